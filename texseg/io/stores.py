"""Zarr arrays and OME-Zarr images, versions 2 and 3, read chunk by chunk.

Nothing that a store names is run or trusted: metadata are plain JSON, the codecs come from a short list, and
a chunk never unpacks to more than its own pixels. A chunk that is missing holds no data.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.files import open_regular, side_text
from texseg.io.header import Decoded, Header, Stored, Window

_METADATA_BYTES = 2**22
_MOST_LEVELS = 64
_LARGEST_CHUNK = 2**28  # bytes, unpacked
_FEW_CHUNKS, _CHUNK_PIXELS = 2**16, 1024  # beyond so many, they hold so many values on average
_TYPES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
_OLD_TYPES = re.compile(r"[<>|][buif][1248]")
_MISSING = 2**64 - 1  # in the index of a shard


class ZarrArray(NamedTuple):
    """What the metadata of an array say."""

    folder: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk: tuple[int, ...]
    file: tuple[int, ...]
    """Shape of what one file holds: a chunk, or a shard of chunks."""
    key: str
    """Separator in the names of files, behind a prefix."""
    codecs: tuple[str, ...]
    """In the order of decoding, of bytes alone."""
    order: tuple[int, ...]
    """In which the axes of a chunk are stored."""
    shard_index: tuple[bool, int] | None
    """Whether it stands at the end, and the bytes of its checksum."""


def is_store(folder: Path) -> bool:
    """Tell whether a folder is one array, or one OME-Zarr image."""
    return any((folder / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def open_zarr(folder: Path) -> ZarrStored:
    """Open a zarr array, or an OME-Zarr image with its levels."""
    meta = _metadata(folder)
    if "shape" in meta:
        return ZarrStored([_array(folder, meta)], "")
    attributes = meta.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    scales = attributes.get("ome", attributes).get("multiscales")
    if not scales:
        raise UnsuitableImageError("this zarr group is no OME-Zarr image; name one of its arrays")
    paths = [PurePosixPath(str(dataset["path"])) for dataset in scales[0]["datasets"]]
    if not 1 <= len(paths) <= _MOST_LEVELS or any(path.is_absolute() or ".." in path.parts for path in paths):
        raise MalformedFileError("OME-Zarr metadata name arrays outside of the image, or too many")
    names = "".join(str(axis["name"]).lower()[:1] for axis in scales[0].get("axes", []))
    return ZarrStored([_array(folder / path, _metadata(folder / path)) for path in paths], names)


def _metadata(folder: Path) -> dict[str, Any]:
    """Metadata of an array or a group, in the words of version 3 where these are the same."""
    for name in ("zarr.json", ".zarray", ".zgroup"):
        if (folder / name).exists():
            try:
                meta = dict(json.loads(side_text(folder / name, _METADATA_BYTES) or ""))
                if name != "zarr.json" and (folder / ".zattrs").exists():
                    meta["attributes"] = json.loads(side_text(folder / ".zattrs", _METADATA_BYTES) or "")
            except (ValueError, TypeError, RecursionError):
                raise MalformedFileError(
                    f"{name} or .zattrs of the zarr store is broken or too large"
                ) from None
            return meta
    raise UnsuitableImageError("this folder is neither a zarr array nor an OME-Zarr image")


def _array(folder: Path, meta: dict[str, Any]) -> ZarrArray:
    try:
        found = _version_3(folder, meta) if meta.get("zarr_format") == 3 else _version_2(folder, meta)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise MalformedFileError(f"metadata of the zarr array make no sense ({repr(error)[:80]})") from error
    shape = found.shape
    if not all(len(part) == len(shape) for part in (found.chunk, found.file, found.order)):
        raise MalformedFileError("metadata of the zarr array contradict each other")
    if len(shape) < 2 or 0 in shape or len(shape) > 8 or found.dtype.kind not in "buif":
        raise UnsuitableImageError(
            f"array of shape {shape} and dtype {found.dtype} is no image of rows, columns and channels"
        )
    if min(*found.chunk, *found.file) < 1 or max(map(math.prod, (found.chunk, found.file))) < 1:
        raise MalformedFileError("metadata of the zarr array make no sense")
    n_bytes = math.prod(found.chunk) * found.dtype.itemsize
    if n_bytes > _LARGEST_CHUNK:
        raise MalformedFileError(f"zarr chunks of {n_bytes / 1e6:.0f} MB are too large to be read")
    n_chunks = math.prod(-(-n // side) for n, side in zip(shape, found.chunk, strict=True))
    per_file = math.prod(a // b for a, b in zip(found.file, found.chunk, strict=True))
    if max(n_chunks, per_file) > _FEW_CHUNKS + math.prod(shape) // _CHUNK_PIXELS:
        raise MalformedFileError(f"zarr array of {max(n_chunks, per_file)} chunks, more than its size needs")
    return found


def _version_2(folder: Path, meta: dict[str, Any]) -> ZarrArray:
    shape, chunk = _sides(meta["shape"]), _sides(meta["chunks"])
    _check_type(meta["dtype"], _OLD_TYPES)
    if meta.get("filters"):
        raise MalformedFileError("zarr filters are not read; save the array without them")
    codec = None if meta.get("compressor") is None else str(meta["compressor"]["id"])
    order = tuple(range(len(shape)))
    return ZarrArray(
        folder,
        shape,
        np.dtype(meta["dtype"]),
        chunk,
        chunk,
        "/" if meta.get("dimension_separator") == "/" else ".",
        _known([codec] if codec else []),
        order[::-1] if meta.get("order") == "F" else order,
        None,
    )


def _version_3(folder: Path, meta: dict[str, Any]) -> ZarrArray:
    shape, file = _sides(meta["shape"]), _sides(meta["chunk_grid"]["configuration"]["chunk_shape"])
    if not isinstance(meta["data_type"], str) or not _TYPES.fullmatch(meta["data_type"]):
        raise UnsuitableImageError(
            f"array of dtype {meta['data_type']!r:.40} is no image; expected real numbers"
        )
    if meta["chunk_grid"]["name"] != "regular" or meta.get("storage_transformers"):
        raise MalformedFileError("zarr arrays with irregular chunks or transformed storage are not read")
    encoding, codecs = meta["chunk_key_encoding"], meta["codecs"]
    is_old = encoding["name"] == "v2"
    separator = encoding.get("configuration", {}).get("separator", "." if is_old else "/")
    chunk, index = file, None
    if codecs[0]["name"] == "sharding_indexed":
        shard = codecs[0]["configuration"]
        names = [codec["name"] for codec in shard["index_codecs"]]
        if len(codecs) > 1 or names not in (["bytes"], ["bytes", "crc32c"]):
            raise MalformedFileError("zarr shards with such an index are not read")
        index = shard.get("index_location", "end") == "end", 4 * (len(names) - 1)
        chunk, codecs = _sides(shard["chunk_shape"]), shard["codecs"]
        if any(a % b for a, b in zip(file, chunk, strict=True)):
            raise MalformedFileError("zarr shards must hold whole chunks")
    order = tuple(range(len(shape)))
    if codecs[0]["name"] == "transpose":
        order = _sides(codecs[0]["configuration"]["order"])
        codecs = codecs[1:]
        if sorted(order) != list(range(len(shape))):
            raise MalformedFileError("metadata of the zarr array contradict each other")
    if codecs[0]["name"] != "bytes":
        raise MalformedFileError(_unknown(codecs[0]["name"]))
    big = codecs[0].get("configuration", {}).get("endian") == "big"
    dtype = np.dtype(meta["data_type"]).newbyteorder(">" if big else "<")
    packed = _known([codec["name"] for codec in codecs[1:]])[::-1]
    key = separator if is_old else "c" + separator
    return ZarrArray(folder, shape, dtype, chunk, file, key, packed, order, index)


def _check_type(name: Any, known: re.Pattern[str]) -> None:
    if not isinstance(name, str) or not known.fullmatch(name):
        said = repr(name)[:40]
        raise UnsuitableImageError(f"array of dtype {said} is no image; expected real numbers or booleans")


def _sides(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(isinstance(n, int) and 0 <= n < 2**48 for n in values):
        raise ValueError(values)
    return tuple(int(n) for n in values)


def _known(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in _DECODERS:
            raise MalformedFileError(_unknown(name))
    return tuple(names)


def _unknown(name: Any) -> str:
    return f"zarr codec {str(name)[:40]!r} is not read, only {', '.join(sorted(_DECODERS))}"


def _inflated(data: bytes, n_bytes: int) -> bytes:
    return zlib.decompressobj(wbits=47).decompress(data, n_bytes + 1)  # zlib or gzip, by their first bytes


def _unblosc(data: bytes, n_bytes: int) -> bytes:
    import imagecodecs

    if int.from_bytes(data[4:8], "little") != n_bytes:
        raise MalformedFileError("a zarr chunk is broken")
    return bytes(imagecodecs.blosc_decode(data, out=n_bytes))


def _unzstd(data: bytes, n_bytes: int) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.zstd_decode(data, out=n_bytes))


def _unlz4(data: bytes, n_bytes: int) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.lz4_decode(data[4:], out=n_bytes))


def _checked_sum(data: bytes, n_bytes: int) -> bytes:
    """Leave out the checksum, verified where the library of zarr itself is there."""
    try:
        from google_crc32c import value
    except ImportError:
        return data[:-4]
    if value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise MalformedFileError("checksum of a zarr chunk is wrong")
    return data[:-4]


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "blosc": _unblosc,
    "zstd": _unzstd,
    "gzip": _inflated,
    "zlib": _inflated,
    "lz4": _unlz4,
    "crc32c": _checked_sum,
}


class ZarrStored(Stored):
    """An array, or one for each level of a pyramid; axes of length one are left aside."""

    is_kept = False

    def __init__(self, arrays: Sequence[ZarrArray], names: str) -> None:
        self._arrays = arrays
        shape = arrays[0].shape
        if any(len(array.shape) != len(shape) for array in arrays):
            raise MalformedFileError("the levels of the OME-Zarr image have different axes")
        kept = [i for i, n in enumerate(shape) if n != 1 or i >= len(shape) - 2] if len(shape) > 2 else [0, 1]
        if len(kept) > 3:
            raise UnsuitableImageError(f"array of shape {shape} is no image of rows, columns and channels")
        channel = names.find("c")
        letters = ["Y", "X"] if len(kept) == 2 else ["?"] * 3
        if len(kept) == 3 and channel in kept:
            letters = ["Y", "X"]
            letters.insert(kept.index(channel), "C")
        axes = "".join(letters[kept.index(i)] if i in kept else "1" for i in range(len(shape)))
        if len(arrays) > 1 and "?" not in axes:
            y, x = axes.index("Y"), axes.index("X")
            self.levels = tuple((array.shape[y], array.shape[x]) for array in arrays)
        missing, total = _count_missing(arrays[0])
        note = f"{missing} of {total} chunks of the zarr array are missing; their pixels are no data"
        self.header = Header(
            format="zarr",
            shape=shape,
            axes=axes,
            dtype=arrays[0].dtype.newbyteorder("="),
            notes=(note,) * bool(missing),
        )

    def windows(self, axes: str, page: int, level: int) -> Callable[[Window], Decoded]:
        """Read windows of one page, channels last; chunks that are missing are not valid."""
        array, letters = self._arrays[level], axes.replace("P", "").replace("1", "")

        def read(window: Window) -> Decoded:
            fixed = {"Y": window[0], "X": window[1], "P": slice(page, page + 1), "1": slice(0, 1)}
            box = [fixed.get(axis, slice(0, n)) for axis, n in zip(axes, array.shape, strict=True)]
            values, there = _read_box(array, box)
            dropped = tuple(i for i, axis in enumerate(axes) if axis in "P1")
            values, there = values.squeeze(dropped), None if there is None else there.squeeze(dropped)
            if "C" in letters:
                channel = letters.index("C")
                values = np.moveaxis(values, channel, -1)
                there = None if there is None else np.logical_and.reduce(there, axis=channel)
            return Decoded(values, None, there)

        return read


def _count_missing(array: ZarrArray) -> tuple[int, int]:
    """Count the files of chunks that are missing, and those that there should be."""
    grid = [-(-n // side) for n, side in zip(array.shape, array.file, strict=True)]
    separator = re.escape(array.key[-1])
    name = re.compile(
        ("c" + separator if len(array.key) > 1 else "") + separator.join([r"(\d+)"] * len(grid))
    )
    found = 0
    for place, _, files in os.walk(array.folder):
        for file in files:
            path = os.path.relpath(os.path.join(place, file), array.folder).replace(os.sep, "/")
            match = name.fullmatch(path)
            found += match is not None and all(int(i) < n for i, n in zip(match.groups(), grid, strict=True))
    return math.prod(grid) - found, math.prod(grid)


def _read_box(array: ZarrArray, box: Sequence[slice]) -> tuple[NDArray, NDArray[np.bool_] | None]:
    """Read a part of an array, and where there are chunks (None: everywhere)."""
    values = np.zeros([part.stop - part.start for part in box], array.dtype.newbyteorder("="))
    there = None
    ranges = [range(part.start // n, -(-part.stop // n)) for part, n in zip(box, array.chunk, strict=True)]
    for place in itertools.product(*ranges):
        inside, taken = [], []
        for part, i, n in zip(box, place, array.chunk, strict=True):
            start, stop = max(part.start, i * n), min(part.stop, (i + 1) * n)
            inside.append(slice(start - part.start, stop - part.start))
            taken.append(slice(start - i * n, stop - i * n))
        chunk = _chunk(array, place)
        if chunk is None:
            there = np.ones(values.shape, bool) if there is None else there
            there[tuple(inside)] = False
        else:
            values[tuple(inside)] = chunk[tuple(taken)]
    return values, there


def _chunk(array: ZarrArray, place: tuple[int, ...]) -> NDArray | None:
    """Unpack a chunk; None where there is none."""
    per_file = [a // b for a, b in zip(array.file, array.chunk, strict=True)]
    name = array.key[-1].join(str(i // n) for i, n in zip(place, per_file, strict=True))
    path = array.folder / ("c" + array.key[-1] + name if len(array.key) > 1 else name)
    n_bytes = math.prod(array.chunk) * array.dtype.itemsize
    most = 2 * n_bytes + 2**16  # packed, if nothing can be packed
    try:
        if array.shard_index is None:
            with open_regular(path, most) as file:
                data: bytes | None = file.read()
        else:
            number = int(
                np.ravel_multi_index([i % n for i, n in zip(place, per_file, strict=True)], per_file)
            )
            data = _of_shard(path, number, math.prod(per_file), array.shard_index, most)
    except FileNotFoundError:
        return None
    if data is None:
        return None
    for codec in array.codecs:
        data = _DECODERS[codec](data, n_bytes)
    if len(data) != n_bytes:
        raise MalformedFileError("a zarr chunk is broken, or unpacks to more than its pixels")
    stored = np.frombuffer(data, array.dtype).reshape([array.chunk[i] for i in array.order])
    return stored.transpose(np.argsort(array.order))


def _of_shard(path: Path, number: int, n_chunks: int, index: tuple[bool, int], most: int) -> bytes | None:
    """Bytes of one chunk of a shard; None where there is none."""
    is_at_end, n_sum = index
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek((size - 16 * n_chunks - n_sum if is_at_end else 0) + 16 * number)
        entry = file.read(16)
        offset, length = (int.from_bytes(entry[i : i + 8], "little") for i in (0, 8))
        if offset == length == _MISSING:
            return None
        if len(entry) < 16 or length > most or offset + length > size:
            raise MalformedFileError("the index of a zarr shard makes no sense")
        file.seek(offset)
        return file.read(length)
