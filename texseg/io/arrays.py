"""NumPy ``.npy`` files, read by slices and never unpickled."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.files import open_regular
from texseg.io.header import Decoded, Header, Stored, Window
from texseg.regions import PixelSize


class ArrayStored(Stored):
    """An array that is read by slices."""

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
    for is_wrong, why in (
        (dtype.hasobject, "holds Python objects; these are never unpickled, save numbers"),
        (dtype.kind not in "buif", "is not an image; expected real numbers or booleans"),
        (len(shape) not in (2, 3), "is not an image; expected 2 axes, or 3 with channels or pages"),
        (0 in shape, "is empty"),
    ):
        if is_wrong:
            raise UnsuitableImageError(f"array of shape {shape} and dtype {dtype} {why}")
