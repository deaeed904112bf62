"""Zarr arrays and OME-Zarr images, versions 2 and 3, read chunk by chunk.

Nothing that a store names is run or trusted: metadata are plain JSON, the codecs come from a short list, and
a chunk never unpacks to more than its own pixels. A chunk that is missing holds no data.
"""

import contextlib
import itertools
import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.files import MalformedFileError, UnsuitableImageError, open_regular, read_json
from texseg.io.geo import OME_UNITS, size_of
from texseg.io.header import Decoded, Header, Stored, Window

_METADATA_BYTES = 2**22
_MOST_LEVELS = 64
_LARGEST_CHUNK = 2**28  # bytes, unpacked
_FEW_CHUNKS, _CHUNK_PIXELS = 2**16, 1024  # beyond so many, they hold so many values on average
_TYPES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|[<>|][buif][1248]")
_CODECS = ("blosc", "crc32c", "gzip", "lz4", "zlib", "zstd")
_MISSING = 2**64 - 1  # in the index of a shard


class _Array(NamedTuple):
    """What the metadata of an array say."""

    folder: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk: tuple[int, ...]
    file: tuple[int, ...]  # shape of what one file holds: a chunk, or a shard of chunks
    prefix: str
    separator: str  # the names of files: prefix, and places in the grid with the separator between them
    codecs: list[str]  # in the order of decoding, of bytes alone
    order: tuple[int, ...]  # in which the axes of a chunk are stored
    shard_index: tuple[bool, int] | None  # whether it stands at the end, and the bytes of its checksum


def is_store(folder: Path) -> bool:
    """Tell whether a folder is one array, or one OME-Zarr image."""
    return any((folder / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def open_zarr(folder: Path) -> "ZarrStored":
    """Open a zarr array, or an OME-Zarr image with its levels."""
    meta = _metadata(folder)
    if "shape" in meta:
        return ZarrStored(folder, [_array(folder, meta)], "")
    attributes = meta.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    scales = attributes.get("ome", attributes).get("multiscales")
    if not scales:
        raise UnsuitableImageError("this zarr group is not an OME-Zarr image; name one of its arrays")
    paths = [PurePosixPath(str(dataset["path"])) for dataset in scales[0]["datasets"]]
    if not 1 <= len(paths) <= _MOST_LEVELS or any(path.is_absolute() or ".." in path.parts for path in paths):
        raise MalformedFileError("OME-Zarr metadata name arrays outside of the image, or too many")
    axes = scales[0].get("axes", [])
    names = "".join(str(axis["name"]).lower()[:1] for axis in axes)
    stored = ZarrStored(folder, [_array(folder / path, _metadata(folder / path)) for path in paths], names)
    with contextlib.suppress(KeyError, TypeError, IndexError, ValueError):  # scales that are not understood
        scale = scales[0]["datasets"][0]["coordinateTransformations"][0]["scale"]
        units = {long: short for short, long in OME_UNITS.items()}
        known = [name for name in "yxz" if name in names]
        pairs = [(scale[place], units[axes[place]["unit"]]) for place in map(names.index, known)]
        stored.header = replace(stored.header, measured=size_of(*pairs))
    return stored


def _metadata(folder: Path) -> dict[str, Any]:
    """Metadata of an array or a group, as they are stored."""
    for name in ("zarr.json", ".zarray", ".zgroup"):
        if (folder / name).exists():
            try:
                meta = dict(read_json(folder / name, _METADATA_BYTES))
                if name != "zarr.json" and (folder / ".zattrs").exists():
                    meta["attributes"] = read_json(folder / ".zattrs", _METADATA_BYTES)
            except (OSError, ValueError, TypeError):
                said = f"{name} or .zattrs of the zarr store is broken or too large"
                raise MalformedFileError(said) from None
            return meta
    raise UnsuitableImageError("this folder is neither a zarr array nor an OME-Zarr image")


def _array(folder: Path, meta: dict[str, Any]) -> _Array:
    """Parse the metadata of an array, and refuse one that is not an image or costs more than an image."""
    try:
        found = (_of_version_3 if meta.get("zarr_format") == 3 else _of_version_2)(folder, meta)
        if found.separator not in ("/", "."):
            raise ValueError(found.separator)
        for codec in found.codecs:
            if codec not in _CODECS:
                known = ", ".join(_CODECS)
                raise MalformedFileError(f"zarr codec {str(codec)[:40]!r} is not read, only {known}")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise MalformedFileError(f"invalid metadata of the zarr array ({repr(error)[:80]})") from error
    shape, chunk, file = found.shape, found.chunk, found.file
    if not len(shape) == len(chunk) == len(file) or sorted(found.order) != list(range(len(shape))):
        raise MalformedFileError("metadata of the zarr array contradict each other")
    n_long = 2 + sum(n != 1 for n in shape[:-2])
    if len(shape) < 2 or 0 in shape or len(shape) > 8 or n_long > 3:
        raise UnsuitableImageError(f"array of shape {shape} is not an image of rows, columns and channels")
    if min(*chunk, *file) < 1 or any(a % b for a, b in zip(file, chunk, strict=True)):
        raise MalformedFileError("invalid metadata of the zarr array")
    n_bytes = math.prod(chunk) * found.dtype.itemsize
    if n_bytes > _LARGEST_CHUNK:
        raise MalformedFileError(f"zarr chunks of {n_bytes / 1e6:.0f} MB are too large to be read")
    n_chunks = math.prod(-(-n // side) for n, side in zip(shape, chunk, strict=True))
    n_chunks = max(n_chunks, math.prod(file) // math.prod(chunk))
    if n_chunks > _FEW_CHUNKS + math.prod(shape) // _CHUNK_PIXELS:
        raise MalformedFileError(f"zarr array of {n_chunks} chunks, more than its size needs")
    return found


def _of_version_2(folder: Path, meta: dict[str, Any]) -> _Array:
    if meta.get("filters"):
        raise MalformedFileError("zarr filters are not read; save the array without them")
    shape, chunk, packed = _sides(meta["shape"]), _sides(meta["chunks"]), meta.get("compressor")
    codecs = [] if packed is None else [packed["id"]]
    separator, order = meta.get("dimension_separator", "."), tuple(range(len(shape)))
    order = order[::-1] if meta.get("order") == "F" else order
    return _Array(folder, shape, _dtype(meta["dtype"]), chunk, chunk, "", separator, codecs, order, None)


def _of_version_3(folder: Path, meta: dict[str, Any]) -> _Array:
    shape, file = _sides(meta["shape"]), _sides(meta["chunk_grid"]["configuration"]["chunk_shape"])
    dtype, encoding, codecs = _dtype(meta["data_type"]), meta["chunk_key_encoding"], meta["codecs"]
    if meta["chunk_grid"]["name"] != "regular" or meta.get("storage_transformers"):
        raise MalformedFileError("zarr arrays with irregular chunks or transformed storage are not read")
    is_old = encoding["name"] == "v2"
    separator = encoding.get("configuration", {}).get("separator", "." if is_old else "/")
    chunk, index, order = file, None, tuple(range(len(shape)))
    if codecs[0]["name"] == "sharding_indexed":
        shard = codecs[0]["configuration"]
        names = [codec["name"] for codec in shard["index_codecs"]]
        if len(codecs) > 1 or names not in (["bytes"], ["bytes", "crc32c"]):
            raise MalformedFileError("zarr shards with such an index are not read")
        index = shard.get("index_location", "end") == "end", 4 * (len(names) - 1)
        chunk, codecs = _sides(shard["chunk_shape"]), shard["codecs"]
    if codecs[0]["name"] == "transpose":
        order, codecs = _sides(codecs[0]["configuration"]["order"]), codecs[1:]
    if codecs[0]["name"] == "bytes":
        first, *codecs = codecs
        dtype = dtype.newbyteorder(">" if first.get("configuration", {}).get("endian") == "big" else "<")
    names, prefix = [codec["name"] for codec in codecs][::-1], "" if is_old else "c" + separator
    return _Array(folder, shape, dtype, chunk, file, prefix, separator, names, order, index)


def _dtype(name: Any) -> np.dtype:
    if not isinstance(name, str) or not _TYPES.fullmatch(name):
        wanted = "expected real numbers or booleans"
        raise UnsuitableImageError(f"array of dtype {name!r:.40} is not an image; {wanted}")
    return np.dtype(name)


def _sides(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(isinstance(n, int) and 0 <= n < 2**48 for n in values):
        raise ValueError(values)
    return tuple(values)


class ZarrStored(Stored):
    """An array, or one for each level of a pyramid; axes of length one are left aside."""

    def __init__(self, folder: Path, arrays: Sequence[_Array], names: str) -> None:
        self._arrays = arrays
        shape = arrays[0].shape
        if any(len(array.shape) != len(shape) for array in arrays):
            raise MalformedFileError("the levels of the OME-Zarr image have different axes")
        kept = [i for i, n in enumerate(shape) if n != 1 or i >= len(shape) - 2] if len(shape) > 2 else [0, 1]
        letters = ["Y", "X"]
        if len(kept) == 3:
            channel = names.find("c")
            letters = letters if channel in kept else ["?", "?"]
            letters.insert(kept.index(channel) if channel in kept else 2, "C" if channel in kept else "?")
        axes = "".join(letters[kept.index(i)] if i in kept else "1" for i in range(len(shape)))
        if len(arrays) > 1 and "?" not in axes:
            y, x = axes.index("Y"), axes.index("X")
            self.levels = tuple((array.shape[y], array.shape[x]) for array in arrays)
        total = math.prod(-(-n // side) for n, side in zip(shape, arrays[0].file, strict=True))
        missing = total - _n_files(folder, arrays[0])
        if missing > 0.999 * total:  # the cost would be that of an image without end
            raise MalformedFileError(f"{missing} of {total} chunks of the zarr array are missing")
        note = f"{missing} of {total} chunks of the zarr array are missing; their pixels are no data"
        dtype, notes = arrays[0].dtype.newbyteorder("="), (note,) if missing > 0 else ()
        self.header = Header("zarr", shape, axes, dtype, notes=notes)

    def read(self, window: Window, axes: str, page: int, level: int) -> Decoded:
        """Read a window of one page, channels last; chunks that are missing are not valid."""
        array, letters = self._arrays[level], axes.replace("P", "").replace("1", "")
        fixed = {"Y": window[0], "X": window[1], "P": slice(page, page + 1), "1": slice(0, 1)}
        box = [fixed.get(axis, slice(0, n)) for axis, n in zip(axes, array.shape, strict=True)]
        values = np.zeros([part.stop - part.start for part in box], array.dtype.newbyteorder("="))
        there, pairs = np.ones(values.shape, bool), list(zip(box, array.chunk, strict=True))
        for place in itertools.product(*(range(b.start // n, -(-b.stop // n)) for b, n in pairs)):
            chunk, corner = _chunk(array, place), np.multiply(place, array.chunk).tolist()
            ends = [(max(b.start, c), min(b.stop, c + n)) for (b, n), c in zip(pairs, corner, strict=True)]
            inside = tuple(slice(s - b.start, e - b.start) for (s, e), b in zip(ends, box, strict=True))
            taken = tuple(slice(s - c, e - c) for (s, e), c in zip(ends, corner, strict=True))
            there[inside] = chunk is not None
            if chunk is not None:
                values[inside] = chunk[taken]
        dropped = tuple(i for i, axis in enumerate(axes) if axis in "P1")
        values, there = values.squeeze(dropped), there.squeeze(dropped)
        if "C" in letters:
            values = np.moveaxis(values, letters.index("C"), -1)
            there = np.logical_and.reduce(there, axis=letters.index("C"))
        return Decoded(values, None, None if there.all() else there)


def _n_files(store: Path, array: _Array) -> int:
    """Count the files with chunks of an array; a link would lead out of the store, or round in circles."""
    numbers = re.escape(array.separator).join([r"\d+"] * len(array.shape))
    name, n_found = re.compile(re.escape(array.prefix) + numbers), 0
    for place, folders, files in os.walk(store):
        if any(os.path.islink(os.path.join(place, folder)) for folder in folders):
            raise UnsuitableImageError("folders in a zarr store must not be links; copy what they lead to")
        paths = (os.path.relpath(os.path.join(place, file), array.folder) for file in files)
        n_found += sum(name.fullmatch(path.replace(os.sep, "/")) is not None for path in paths)
    return n_found


def _chunk(array: _Array, place: tuple[int, ...]) -> NDArray | None:
    """Unpack a chunk; None where there is none."""
    per_file = [a // b for a, b in zip(array.file, array.chunk, strict=True)]
    in_grid, in_shard = np.divmod(place, per_file)
    path = array.folder / (array.prefix + array.separator.join(map(str, in_grid)))
    n_bytes = math.prod(array.chunk) * array.dtype.itemsize
    most = 2 * n_bytes + 2**16  # packed, if nothing can be packed
    try:
        with open_regular(path, most if array.shard_index is None else None) as file:
            if array.shard_index is not None:
                is_at_end, n_sum = array.shard_index
                size = os.fstat(file.fileno()).st_size
                start = size - 16 * math.prod(per_file) - n_sum if is_at_end else 0
                file.seek(start + 16 * int(np.ravel_multi_index(in_shard, per_file)))
                entry = file.read(16)
                offset, length = (int.from_bytes(entry[i : i + 8], "little") for i in (0, 8))
                if offset == length == _MISSING:
                    return None
                if len(entry) < 16 or length > most or offset + length > size:
                    raise MalformedFileError("the index of a zarr shard is invalid")
                file.seek(offset)
                most = length
            data = file.read(most)
    except FileNotFoundError:
        return None
    import imagecodecs

    try:
        for codec in array.codecs:
            if codec == "crc32c":
                data = data[:-4]
            else:
                packed = data[4:] if codec == "lz4" else data
                data = getattr(imagecodecs, f"{codec}_decode")(packed, out=n_bytes)  # and no more
        stored = np.frombuffer(data, array.dtype).reshape([array.chunk[i] for i in array.order])
    except Exception as error:  # of the libraries
        raise MalformedFileError("a zarr chunk is broken, or unpacks to more than its pixels") from error
    return stored.transpose(np.argsort(array.order))
