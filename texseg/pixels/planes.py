"""Values of all pixels, one plane per label; most pixels share the values of their cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from texseg.counts.grid import CellGrid, cell_grid
from texseg.fitting.assignment import arg_max_over
from texseg.threads import side_by_side

Floats = NDArray[np.floating]

_ROWS = 64  # rows of cells whose pixels are looked up at once


@dataclass
class PixelPlanes:
    """K planes (H, W): all pixels of a cell share a value, except a band of pixels with their own values.

    Far from borders, values are computed per cell, and whole planes would repeat them for every pixel.
    Iterating yields whole planes, one at a time.
    """

    grid: CellGrid
    cells: Floats  # (K, cells)
    band: NDArray[np.intp]  # (n,), flat indices of the pixels with values of their own, ascending
    near: Floats  # (K, n), their values

    @classmethod
    def full(cls, planes: Floats) -> PixelPlanes:
        """Store planes (K, H, W) whose pixels all have their own values."""
        K, H, W = planes.shape
        nothing = np.zeros((K, 1), planes.dtype)
        return cls(cell_grid((H, W), max(H, W)), nothing, np.arange(H * W), planes.reshape(K, -1))

    def __len__(self) -> int:
        """Give K."""
        return len(self.cells)

    def __iter__(self) -> Iterator[Floats]:
        """Yield the whole planes (H, W) one by one."""
        return (self._spread(cells, near) for cells, near in zip(self.cells, self.near, strict=True))

    def whole(self) -> Floats:
        """Return all planes, (K, H, W)."""
        return np.stack(list(self))

    def changed(self, change: Callable[[Floats], Floats]) -> PixelPlanes:
        """Apply a function of columns (K, any) to all columns."""
        return PixelPlanes(self.grid, change(self.cells), self.band, change(self.near))

    def labels(self) -> NDArray[np.int32]:
        """Index (H, W) of the largest plane at every pixel; ties go to the first."""
        return np.ascontiguousarray(self._spread(arg_max_over(self.cells), arg_max_over(self.near)))

    def at(self, labels: NDArray[np.int32]) -> Floats:
        """Take the value of each pixel's label (H, W); labels below 0 give that of the first."""
        H, W = self.grid.image_shape
        out = np.empty((H, W), self.cells.dtype)
        side = _ROWS * self.grid.cell

        def look(top: int) -> None:
            rows = slice(top, min(top + side, H))
            out[rows] = self.cells[np.maximum(labels[rows], 0), self.grid.cells_of_rows(rows)]

        side_by_side(look, range(0, H, side))
        own = np.maximum(labels.ravel()[self.band], 0)
        out.ravel()[self.band] = self.near[own, np.arange(len(own))]
        return out

    def exchange(self, pixels: NDArray[np.intp], one: NDArray, other: NDArray) -> None:
        """Exchange the values of two labels at some pixels (flat indices), in place."""
        alone = np.setdiff1d(pixels, self.band, assume_unique=True)
        if len(alone):
            cell = self.grid.cells_of(alone)
            band = np.concatenate([self.band, alone])
            order = np.argsort(band, kind="stable")
            self.near = np.concatenate([self.near, self.cells[:, cell]], axis=1).take(order, axis=1)
            self.band = band[order]
        at = np.searchsorted(self.band, pixels)
        self.near[one, at], self.near[other, at] = self.near[other, at], self.near[one, at]

    def _spread(self, cells: NDArray, near: NDArray) -> NDArray:
        plane = self.grid.to_pixels(cells)
        if not plane.flags.c_contiguous or not plane.flags.owndata:
            plane = plane.copy()
        plane.ravel()[self.band] = near
        return plane
