"""What an image file says about itself before a pixel is decoded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.geo import Georeference
from texseg.regions import PixelSize


@dataclass(frozen=True)
class Header:
    """Size, type and metadata of an image file, read without decoding it."""

    format: str
    """According to the content, whatever the file is called."""
    shape: tuple[int, ...]
    """Extent of each axis of the stored image, palette expanded and without alpha."""
    axes: str
    """One letter per axis: ``Y`` rows, ``X`` columns, ``C`` channels, ``P`` pages (frames, planes), ``1`` an
    axis of length one that is left aside, ``?`` if the file does not say."""
    dtype: np.dtype
    has_alpha: bool = False
    """Whether there is an alpha channel in addition to those counted in `shape`."""
    orientation: int = 1
    """EXIF orientation, 1 to 8; 1 is upright."""
    nodata: float | None = None
    """Value that the file declares to mean "no data"."""
    geo: Georeference | None = None
    notes: tuple[str, ...] = ()
    """What a user should know about how the file is read."""
    band_nodata: tuple[float | None, ...] = ()
    """Values that mean "no data" if they differ from band to band; otherwise empty."""
    mask_file: Path | None = None
    """Mask next to the image, as GDAL writes it."""
    is_ome: bool = False
    """Whether a TIFF file has metadata of OME."""
    measured: PixelSize | None = None
    """Size of a pixel that the file states independently of the georeference."""

    def extent(self, letter: str) -> int:
        """Product of the extents of the axes with this letter, 1 where there is none."""
        return math.prod(n for n, axis in zip(self.shape, self.axes, strict=True) if axis == letter)

    @property
    def height(self) -> int:
        """Number of rows as stored, before the orientation is applied."""
        return self.extent("Y")

    @property
    def width(self) -> int:
        """Number of columns as stored, before the orientation is applied."""
        return self.extent("X")

    @property
    def pixel_size(self) -> PixelSize | None:
        """Height, width and unit of a pixel as stored, None where the file does not say."""
        of_map = None if self.geo is None else self.geo.pixel_size
        return of_map or self.measured

    @property
    def n_channels(self) -> int:
        """Number of colour or band channels, alpha not counted."""
        return self.extent("C")

    @property
    def n_pages(self) -> int:
        """Number of pages, frames or planes."""
        return self.extent("P")


class Decoded(NamedTuple):
    """One decoded page, channels last; the masks (H, W) are None where they would be True everywhere."""

    pixels: NDArray
    opaque: NDArray[np.bool_] | None = None
    stored: NDArray[np.bool_] | None = None


Window = tuple[slice, ...]
"""Rows and columns (of volumes, planes first), from start to stop."""


class Stored:
    """An opened file of one format."""

    header: Header
    first_page = 0
    """Number of the first page of this image, in a file of several images."""
    levels: tuple[tuple[int, int], ...] = ()
    """Rows and columns of each level of a pyramid, the largest first."""

    def check(self) -> None:
        """Refuse what the file cannot hold, before it is decoded."""

    def only_whole(self, level: int) -> str:
        """Why the file cannot be read in parts; empty if it can."""
        return ""

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-page palette image, else None."""
        return None

    def windows(self, axes: str, page: int, level: int) -> Callable[[Window], Decoded]:
        """Return what reads windows of one page, channels last; `axes` names the axes of the stored image."""
        raise NotImplementedError


def both(first: NDArray[np.bool_] | None, second: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Pixels that are in both masks, None standing for all pixels."""
    if first is None or second is None:
        return second if first is None else first
    return first & second
