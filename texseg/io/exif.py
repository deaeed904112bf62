"""Orientation of a photograph: read from EXIF, applied to arrays."""

from __future__ import annotations

import struct

from numpy.typing import NDArray

_ORIENTATION_TAG, _SHORT = 0x0112, 3
_BYTE_ORDERS = {b"II": "<", b"MM": ">"}


def orientation_of(exif: bytes | None) -> int:
    """EXIF orientation, 1 to 8, from the bytes of an EXIF block; 1 (upright) if it holds no valid one.

    Only the entries of the first directory are looked at. (Pillow parses the whole block, and warns or raises
    about whatever else is wrong in it.)
    """
    block = (exif or b"").removeprefix(b"Exif\0\0")
    order = _BYTE_ORDERS.get(block[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(order + "I", block, 4)
        (n_entries,) = struct.unpack_from(order + "H", block, directory)
        for entry in range(directory + 2, directory + 2 + 12 * n_entries, 12):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", block, entry)
            if tag == _ORIENTATION_TAG:
                return value if kind == _SHORT and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def upright(pixels: NDArray, orientation: int) -> NDArray:
    """Turn an image (H, W, ...) from its stored orientation to the one for viewing.

    Examples
    --------
    >>> import numpy as np
    >>> upright(np.array([[1, 2, 3], [4, 5, 6]]), 6)
    array([[4, 1],
           [5, 2],
           [6, 3]])
    """
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
