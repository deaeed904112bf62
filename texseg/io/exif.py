"""Orientation of a photograph: read from EXIF, applied to arrays."""

from __future__ import annotations

from numpy.typing import NDArray

_ORIENTATION_TAG = 0x0112


def orientation_of(exif: bytes | None) -> int:
    """EXIF orientation, 1 to 8, from the bytes of an EXIF block; 1 (upright) where it says nothing valid."""
    if not exif:
        return 1
    from PIL.Image import Exif

    block = Exif()
    try:
        block.load(exif)
        value = block.get(_ORIENTATION_TAG, 1)
    except Exception:  # the parser raises many kinds on broken blocks, and a picture needs no EXIF
        return 1
    return value if value in range(1, 9) else 1


def upright(pixels: NDArray, orientation: int) -> NDArray:
    """Turn an image (H, W, ...) from its stored orientation to the one it is meant to be seen in.

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
