"""Arrays in files, which are read by slices: NumPy ``.npy`` (never unpickled) and zarr."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.header import Decoded, Header, Stored, Window


class ArrayStored(Stored):
    """An array that is read by slices, or one for each level of a pyramid."""

    is_kept = False

    def __init__(self, array: Any, header: Header, levels: Sequence[Any] = ()) -> None:
        self.header, self._arrays = header, levels or [array]
        rows, columns = (header.axes.find(axis) for axis in "YX")
        self.levels = tuple((int(a.shape[rows]), int(a.shape[columns])) for a in levels)

    def windows(self, axes: str, page: int, level: int) -> Callable[[Window], Decoded]:
        """Read windows of one page, channels last."""
        array, letters = self._arrays[level], axes.replace("P", "").replace("1", "")

        def read(window: Window) -> Decoded:
            fixed = {"Y": window[0], "X": window[1], "C": slice(None), "P": page, "1": 0}
            pixels = np.array(array[tuple(fixed[axis] for axis in axes)], dtype=self.header.dtype)
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
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            else:
                shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        except Exception as error:  # malformed headers raise many kinds
            raise MalformedFileError("NPY header makes no sense, file is corrupt") from error
        found = f"array of shape {shape} and dtype {dtype}"
        if dtype.hasobject:
            raise UnsuitableImageError(
                f"{found} holds Python objects; these are never unpickled, save numbers"
            )
        _check_is_image(shape, dtype)
        if len(shape) > 3:
            raise UnsuitableImageError(f"{found} is no image; expected 2 axes, or 3 with channels or pages")
        if file.tell() + math.prod(shape) * dtype.itemsize > path.stat().st_size:
            raise MalformedFileError("file is truncated")
    return shape, dtype


def _check_is_image(shape: tuple[int, ...], dtype: np.dtype) -> None:
    found = f"array of shape {shape} and dtype {dtype}"
    if dtype.kind not in "buif":
        raise UnsuitableImageError(f"{found} is no image; expected real numbers or booleans")
    if len(shape) < 2:
        raise UnsuitableImageError(f"{found} is no image; expected 2 axes, or 3 with channels or pages")
    if 0 in shape:
        raise UnsuitableImageError(f"{found} is empty")


def open_zarr(path: Path) -> ArrayStored:
    """Open a zarr array, or an OME-Zarr image with its levels; axes of length one are left aside."""
    try:
        import zarr
    except ImportError:
        raise UnsuitableImageError("zarr arrays need zarr (pip install 'texseg[large]')") from None
    try:
        found = zarr.open(path, mode="r")
    except Exception as error:  # zarr raises many kinds on folders that are no arrays
        raise UnsuitableImageError("this folder is neither a zarr array nor an OME-Zarr image") from error
    if not isinstance(found, zarr.Group):
        return _of_arrays([found], "")
    attributes = found.attrs.asdict()
    scales = attributes.get("ome", attributes).get("multiscales")
    if not scales:
        raise UnsuitableImageError("this zarr group is no OME-Zarr image; name one of its arrays")
    names = "".join(str(axis["name"]).lower()[:1] for axis in scales[0].get("axes", []))
    return _of_arrays([found[dataset["path"]] for dataset in scales[0]["datasets"]], names)


def _of_arrays(arrays: Sequence[Any], names: str) -> ArrayStored:
    """Say what the axes of an array are, the levels of which have the same."""
    dtype, shape = np.dtype(arrays[0].dtype), tuple(int(n) for n in arrays[0].shape)
    _check_is_image(shape, dtype)
    kept = [i for i, n in enumerate(shape) if n != 1 or i >= len(shape) - 2] if len(shape) > 2 else [0, 1]
    if len(kept) > 3:
        raise UnsuitableImageError(f"array of shape {shape} is no image of rows, columns and channels")
    axes = ["1"] * len(shape)
    if len(kept) == 2:
        letters = "YX"
    else:
        known = "c" in names and names.index("c") in kept
        letters = "".join("C" if i == names.index("c") else "?" for i in kept) if known else "???"
        letters = letters.replace("?", "Y", 1).replace("?", "X", 1) if known else letters
    for i, letter in zip(kept, letters, strict=True):
        axes[i] = letter
    header = Header(format="zarr", shape=shape, axes="".join(axes), dtype=dtype.newbyteorder("="))
    return ArrayStored(arrays[0], header, arrays if len(arrays) > 1 else ())
