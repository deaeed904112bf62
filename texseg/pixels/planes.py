"""Values of all pixels, one plane per label; most pixels share the values of their cell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from texseg.counts.grid import CellGrid, cell_grid
from texseg.fitting.assignment import arg_max_over
from texseg.threads import side_by_side

Floats = NDArray[np.floating]

_PIXELS = 2**18  # whose cells are looked up at once


@dataclass
class PixelPlanes:
    """K planes of an image's shape: pixels of a cell share a value, except a band with their own."""

    grid: CellGrid
    cells: Floats  # (K, cells)
    band: NDArray[np.intp]  # (n,), flat indices of the pixels with values of their own, ascending
    near: Floats  # (K, n), their values

    @classmethod
    def full(cls, planes: Floats) -> "PixelPlanes":
        """Store planes (K, ...) whose pixels all have their own values."""
        K, *shape = planes.shape
        nothing = np.zeros((K, 1), planes.dtype)
        flat = planes.reshape(K, -1)
        return cls(cell_grid(tuple(shape), max(shape)), nothing, np.arange(flat.shape[1]), flat)

    def __len__(self) -> int:
        """Give K."""
        return len(self.cells)

    def whole(self) -> Floats:
        """Return all planes, (K, ...)."""
        return np.stack([self._spread(*pair) for pair in zip(self.cells, self.near, strict=True)])

    def of(self, pixels: NDArray[np.intp]) -> Floats:
        """Values (K, m) of some pixels (flat indices)."""
        values = self.cells.take(self.grid.cells_of(pixels), axis=1)
        at = np.searchsorted(self.band, pixels)
        own = np.append(self.band, -1)[at] == pixels
        values[:, own] = self.near[:, at[own]]
        return values

    def labels(self) -> NDArray[np.int32]:
        """Index of the largest plane at every pixel; ties go to the first."""
        return self._spread(arg_max_over(self.cells), arg_max_over(self.near))

    def at(self, labels: NDArray[np.int32]) -> Floats:
        """Take the value of each pixel's label; labels below 0 give that of the first."""
        out = np.empty(labels.shape, self.cells.dtype)
        side = max(1, _PIXELS // max(1, out[0].size))

        def look(top: int) -> None:
            rows = slice(top, min(top + side, len(out)))
            out[rows] = self.cells[np.maximum(labels[rows], 0), self.grid.cells_of_rows(rows)]

        side_by_side(look, range(0, len(out), side))
        for at in range(0, len(self.band), _PIXELS):
            pixels = self.band[at : at + _PIXELS]
            own = np.maximum(labels.ravel()[pixels], 0)
            out.ravel()[pixels] = self.near[own, np.arange(at, at + len(own))]
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
        plane.ravel()[self.band] = near
        return plane
