"""Arrays in files, which are read by slices: NumPy ``.npy``, never unpickled."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.files import open_regular
from texseg.io.header import Decoded, Header, Stored, Window


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
    shape, dtype = _read_array_header(path)
    axes = "YX" if len(shape) == 2 else "???"
    header = Header(format="NPY", shape=shape, axes=axes, dtype=dtype.newbyteorder("="))
    return ArrayStored(np.load(path, mmap_mode="r", allow_pickle=False), header)


def _read_array_header(path: Path) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the stored array; the file must be long enough to hold it."""
    with open_regular(path) as file:
        try:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            else:
                shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        except Exception as error:  # malformed headers raise many kinds
            raise MalformedFileError("NPY header makes no sense, file is corrupt") from error
        _check_is_image(shape, dtype)
        if file.tell() + math.prod(shape) * dtype.itemsize > path.stat().st_size:
            raise MalformedFileError("file is truncated")
    return shape, dtype


def _check_is_image(shape: tuple[int, ...], dtype: np.dtype) -> None:
    found = f"array of shape {shape} and dtype {dtype}"
    if dtype.hasobject:
        raise UnsuitableImageError(f"{found} holds Python objects; these are never unpickled, save numbers")
    if dtype.kind not in "buif":
        raise UnsuitableImageError(f"{found} is no image; expected real numbers or booleans")
    if len(shape) not in (2, 3):
        raise UnsuitableImageError(f"{found} is no image; expected 2 axes, or 3 with channels or pages")
    if 0 in shape:
        raise UnsuitableImageError(f"{found} is empty")
