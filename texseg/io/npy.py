"""NumPy ``.npy`` files, never unpickled."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.header import Decoded, Header


def _read_array_header(path: Path) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the stored array; the file must be long enough to hold it."""
    with path.open("rb") as file:
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


class NpySource:
    """A NumPy array in a file; with three axes, the file does not say which are channels or pages."""

    def __init__(self, path: Path):
        self._path = path
        shape, dtype = _read_array_header(path)
        _check_is_image(shape, dtype)
        self.header = Header(
            format="NPY", shape=shape, axes="YX" if len(shape) == 2 else "???", dtype=dtype.newbyteorder("=")
        )

    def decode(self, axes: str, page: int) -> Decoded:
        """Read the array or one page of it, the meaning of its axes given by `axes`."""
        array = np.load(self._path, mmap_mode="r", allow_pickle=False)
        if "P" in axes:
            array = array.take(page, axis=axes.index("P"))
        if "C" in axes:
            array = np.moveaxis(array, axes.index("C"), -1)
        return Decoded(np.array(array, dtype=self.header.dtype))

    def decode_indices(self) -> NDArray | None:
        """Arrays have no palettes."""
        return None
