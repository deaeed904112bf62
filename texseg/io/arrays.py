"""Arrays in files, which are read by slices: NumPy ``.npy``, never unpickled, and ENVI."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.io.beside import parse_nodata
from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.files import open_regular, side_text
from texseg.io.geo import Affine, Georeference, georeference_of
from texseg.io.header import Decoded, Header, Stored, Window
from texseg.regions import PixelSize


class ArrayStored(Stored):
    """An array that is read by slices."""

    is_kept = False

    def __init__(self, array: NDArray, header: Header) -> None:
        self.header, self._array = header, array

    def windows(self, axes: str, page: int, level: int) -> Callable[[Window], Decoded]:
        """Read windows of one page, channels last."""
        letters = axes.replace("P", "")

        def read(window: Window) -> Decoded:
            fixed: dict[str, Any] = {"Y": window[0], "X": window[1], "C": slice(None), "P": page}
            pixels = np.array(self._array[tuple(fixed[axis] for axis in axes)], dtype=self.header.dtype)
            return Decoded(np.moveaxis(pixels, letters.index("C"), -1) if "C" in letters else pixels)

        return read


def open_npy(path: Path) -> ArrayStored:
    """Open a NumPy array; with three axes, the file does not say which are channels or pages."""
    layout = np.lib.format
    with open_regular(path) as file:
        try:
            is_first = layout.read_magic(file) == (1, 0)
            read = layout.read_array_header_1_0 if is_first else layout.read_array_header_2_0
            shape, _, dtype = read(file)
        except Exception as error:  # malformed headers raise many kinds
            raise MalformedFileError("NPY header is invalid: the file is corrupt") from error
        _check_is_image(shape, dtype)
        if file.tell() + math.prod(shape) * dtype.itemsize > path.stat().st_size:
            raise MalformedFileError("file is truncated")
    axes = "YX" if len(shape) == 2 else "???"
    header = Header(format="NPY", shape=shape, axes=axes, dtype=dtype.newbyteorder("="))
    return ArrayStored(np.load(path, mmap_mode="r", allow_pickle=False), header)


def open_raw(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> ArrayStored:
    """Open a volume (planes, rows, columns) without a header; what a file holds more comes before it."""
    more = path.stat().st_size - math.prod(shape) * dtype.itemsize
    if more < 0:
        raise MalformedFileError(f"file is {-more} bytes shorter than {shape} values of {dtype}")
    header = Header(format="raw", shape=shape, axes="PYX", dtype=dtype.newbyteorder("="))
    return ArrayStored(np.memmap(path, dtype, mode="r", offset=more, shape=shape), header)


def is_of_itk(start: bytes) -> bool:
    """Tell whether a file is NRRD or MetaImage and holds its values itself, and names no other file."""
    if start.startswith(b"NRRD000"):
        return re.search(rb"^data ?file:", start, re.IGNORECASE | re.MULTILINE) is None
    return re.search(rb"^ElementDataFile *= *LOCAL", start, re.MULTILINE) is not None


class ItkStored(ArrayStored):
    """A volume that SimpleITK reads, as a whole."""

    def __init__(self, path: Path) -> None:
        import SimpleITK

        self._reader = reader = SimpleITK.ImageFileReader()
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        name = SimpleITK.GetPixelIDValueAsString(reader.GetPixelID())
        kind, axes = re.match(r"(\d+)-bit (float|signed|unsigned)", name), "PYX"[-reader.GetDimension() :]
        if kind is None or reader.GetNumberOfComponents() > 1 or reader.GetDimension() > 3:
            raise UnsuitableImageError(f"{name} of {reader.GetDimension()} axes is not a volume of numbers")
        dtype = np.dtype({"signed": "i"}.get(kind[2], kind[2][0]) + str(int(kind[1]) // 8))
        width, height, *depth = reader.GetSpacing()
        size = PixelSize(height, width, "mm", *depth)
        self.header = Header("ITK", reader.GetSize()[::-1], axes, dtype, measured=size)

    @cached_property
    def _array(self) -> NDArray:  # type: ignore[override]
        import SimpleITK

        return SimpleITK.GetArrayFromImage(self._reader.Execute())


def _check_is_image(shape: tuple[int, ...], dtype: np.dtype) -> None:
    found = f"array of shape {shape} and dtype {dtype}"
    if dtype.hasobject:
        raise UnsuitableImageError(f"{found} holds Python objects; these are never unpickled, save numbers")
    if dtype.kind not in "buif":
        raise UnsuitableImageError(f"{found} is not an image; expected real numbers or booleans")
    if len(shape) not in (2, 3):
        raise UnsuitableImageError(f"{found} is not an image; expected 2 axes, or 3 with channels or pages")
    if 0 in shape:
        raise UnsuitableImageError(f"{found} is empty")


_HEADER_BYTES = 2**22  # enough for the wavelengths and names of many bands
_TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = (6, 9)
_AXES = {"bsq": "CYX", "bil": "YCX", "bip": "YXC"}


def find_header(image: Path) -> str | None:
    """Text of the ENVI header that belongs to a file of raw values, None if there is none."""
    for path in (image.with_suffix(".hdr"), image.with_name(image.name + ".hdr"), image.with_suffix(".HDR")):
        text = side_text(path, _HEADER_BYTES) if path != image else None
        if text is not None and text.lstrip().startswith("ENVI"):
            return text
    return None


def open_envi(path: Path, text: str) -> ArrayStored:
    """Open an ENVI image: the file of its values, by the text of its header."""
    entries = _entries(text)
    height, width, n_bands = (_whole(entries, key) for key in ("lines", "samples", "bands"))
    offset = _whole(entries, "header offset", 0)
    kind = _whole(entries, "data type")
    if kind in _COMPLEX:
        raise UnsuitableImageError("complex ENVI files are not images; expected real numbers")
    if kind not in _TYPES or min(height, width, n_bands) < 1:
        raise MalformedFileError("the ENVI header next to the image is invalid")
    interleave = entries.get("interleave", "bsq").lower()
    if interleave not in _AXES:
        raise MalformedFileError(f"interleave {interleave!r} of the ENVI header is not bsq, bil or bip")
    if _whole(entries, "file compression", 0):
        raise MalformedFileError("compressed ENVI images are not read")
    extent = {"C": n_bands, "Y": height, "X": width}
    axes = _AXES[interleave]
    stored = tuple(extent[axis] for axis in axes)
    dtype = np.dtype((">" if _whole(entries, "byte order", 0) else "<") + _TYPES[kind])
    if offset + math.prod(stored) * dtype.itemsize > path.stat().st_size:
        raise MalformedFileError("file is truncated: shorter than its ENVI header says")
    values: NDArray = np.memmap(path, dtype, mode="r", offset=offset, shape=stored)
    if n_bands == 1:
        values, axes = values.squeeze(axis=axes.index("C")), "YX"
    header = Header(
        format="ENVI",
        shape=values.shape,
        axes=axes,
        dtype=dtype.newbyteorder("="),
        nodata=parse_nodata(entries.get("data ignore value", "")),
        geo=_place(entries),
    )
    return ArrayStored(values, header)


def _entries(text: str) -> dict[str, str]:
    """Names in lower case, and values; a value in braces may span several lines."""
    entries = {}
    lines = (line.strip() for line in text.splitlines())
    for line in lines:
        key, is_entry, value = line.partition("=")
        parts = [value.strip()]
        while parts[0].startswith("{") and "}" not in parts[-1]:
            parts.append(next(lines, "}"))
        if is_entry and not key.startswith(";"):
            entries[key.strip().lower()] = " ".join(parts)
    return entries


def _whole(entries: dict[str, str], key: str, default: int | None = None) -> int:
    text = entries.get(key, "" if default is None else str(default))
    if not re.fullmatch(r"\d{1,12}", text):
        raise MalformedFileError(f"the ENVI header next to the image has an invalid entry {key!r}: {text!r}")
    return int(text)


def _place(entries: dict[str, str]) -> Georeference | None:
    """Georeference from the entry 'map info': projection, tie point (pixel from 1, map), pixel size, zone."""
    words = [word.strip() for word in entries.get("map info", "").strip("{}").split(",")]
    try:
        column, row, x, y, width, height = (float(word) for word in words[1:7])
    except ValueError:
        return None
    if any(word.lower().startswith("rotation") and word.split("=")[-1].strip(" }0.") for word in words):
        return None
    affine = Affine(width, 0.0, x, 0.0, -height, y).shifted(1 - column, 1 - row)
    system = entries.get("coordinate system string", "").strip("{}")
    is_wgs84 = any(word.upper().replace(" ", "-") == "WGS-84" for word in words)
    if words[0].upper() == "UTM" and is_wgs84 and len(words) > 8 and words[7].isdecimal():
        system = f"EPSG:{(32700 if words[8].lower() == 'south' else 32600) + int(words[7])}"
    elif words[0].lower().startswith("geographic") and is_wgs84:
        system = "EPSG:4326"
    return georeference_of(affine, system)
