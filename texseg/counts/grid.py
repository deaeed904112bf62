"""Square cells of a pixel grid, and their histograms, packed if many.

Cells partition the image; the counts of a cell are sums over its pixels, so that assignments that are
constant on cells have the same likelihood as on pixels ([1]_ section 5.4).

References
----------
.. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.threads import side_by_side

_ROWS = 16  # rows of cells counted at once


class PackedCounts:
    """A float32 array stored as bytes, multiples of ``unit``, up to 255; indexing returns ordinary floats."""

    dtype = np.dtype(np.float32)

    def __init__(self, table: NDArray[np.uint8], unit: np.float32) -> None:
        self.table = table
        self.unit = np.float32(unit)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.table.shape

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        """Return a part as floats."""
        return np.multiply(self.table[index], self.unit, dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[...].astype(dtype or np.float32, copy=False)

    def reshape(self, *shape: int) -> PackedCounts:
        """Return the same counts in another shape, still packed."""
        return PackedCounts(self.table.reshape(*shape), self.unit)

    def rows(self, first: int, stop: int) -> PackedCounts:
        """Take some rows, still packed."""
        return PackedCounts(self.table[first:stop], self.unit)


def stacked(tables: Sequence[Any]) -> NDArray[np.float32] | PackedCounts:
    """Put the rows of several tables, all of one unit, below each other; packed if all of them are."""
    if all(isinstance(table, PackedCounts) for table in tables):
        return PackedCounts(np.concatenate([table.table for table in tables]), tables[0].unit)
    return np.concatenate([table[...] for table in tables])


class CellGrid(NamedTuple):
    """Square cells over an image; cells at the lower and right edge may be cut off."""

    shape: tuple[int, int]  # rows and columns of cells
    cell: int  # side in pixels
    image_shape: tuple[int, int]
    sizes: NDArray[np.floating]  # (cells,), number of valid pixels in each, in units of a full cell: 0 to 1

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.shape[0] * self.shape[1]

    def parent(self) -> NDArray[np.intp]:
        """Index of every pixel's cell, shape (H * W,), row-major."""
        return self.cells_of_rows(slice(0, self.image_shape[0])).ravel()

    def cells_of(self, pixels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Index of each pixel's cell, for some pixels (flat indices)."""
        rows, columns = np.divmod(pixels, self.image_shape[1])
        return rows // self.cell * self.shape[1] + columns // self.cell

    def cells_of_rows(self, rows: slice) -> NDArray[np.intp]:
        """Index of each pixel's cell, for some rows, shape (rows, W)."""
        down = np.arange(rows.start, rows.stop) // self.cell * self.shape[1]
        return down[:, None] + np.arange(self.image_shape[1]) // self.cell

    def to_pixels(self, values: NDArray) -> NDArray:
        """Repeat each cell's value, (cells, ...) in row-major order, over its pixels: shape (H, W, ...)."""
        H, W = self.image_shape
        grid = values.reshape(*self.shape, *values.shape[1:])
        return grid.repeat(self.cell, axis=1)[:, :W].repeat(self.cell, axis=0)[:H]  # copies of whole rows


def cell_grid(image_shape: tuple[int, int], cell: int, mask: NDArray[np.bool_] | None = None) -> CellGrid:
    """Lay square cells of side ``cell`` pixels over an image, and count the valid pixels of each."""
    H, W = image_shape
    shape = (-(-H // cell), -(-W // cell))
    padded = np.zeros((shape[0] * cell, shape[1] * cell), bool)
    padded[:H, :W] = True if mask is None else mask
    inside = padded.reshape(shape[0], cell, shape[1], cell).sum(axis=(1, 3))
    return CellGrid(shape, cell, image_shape, (inside.ravel() / cell**2).astype(np.float32))


def cell_counts(
    bins: NDArray[np.uint8],
    grid: CellGrid,
    n_bins: int,
    weights: NDArray[np.floating],
    mask: NDArray[np.bool_] | None = None,
    packed: bool = False,
) -> Any:
    """Histograms (cells, C * n_bins) of the cells' own pixels in uint8 bins (C, H, W).

    A full cell's sums to ``weights`` in every channel. They can be packed as bytes if weights are 1 and cells
    have at most 255 pixels.
    """
    H, W = grid.image_shape
    (h, w), C = grid.shape, len(bins)
    table = np.empty((h, w, C, n_bins), np.uint8 if packed else np.float32)

    def count(top: int) -> None:
        """Count the cells of some rows, so that only few indices are in memory at once."""
        bottom = min(top + _ROWS, h)
        pixels = slice(top * grid.cell, min(bottom * grid.cell, H))
        first = (grid.cells_of_rows(pixels) - top * w) * n_bins
        for c in range(C):
            index = first + bins[c, pixels]
            index = index.ravel() if mask is None else index[mask[pixels]]
            counts = np.bincount(index, minlength=(bottom - top) * w * n_bins)
            table[top:bottom, :, c] = counts.reshape(bottom - top, w, n_bins)
            if not packed:
                table[top:bottom, :, c] *= weights[c] / grid.cell**2

    side_by_side(count, range(0, h, _ROWS))
    flat = table.reshape(grid.n_cells, -1)
    return PackedCounts(flat, np.float32(1) / grid.cell**2) if packed else flat


def window_means(
    counts: NDArray[np.floating] | PackedCounts, grid: CellGrid, sides: Sequence[float], step: int = 1
) -> tuple[NDArray[np.floating], tuple[int, int], NDArray[np.floating]]:
    """Average cell histograms over square windows around every ``step``-th cell, one side a channel.

    Sides are in pixels, and cells at the ends of a window may count in part. Returns the means
    (windows, C * n_bins), rows and columns of windows, and the valid share (windows,) of the smallest ones.
    """
    h, w = grid.shape
    table = counts.reshape(h, w, len(sides), counts.shape[1] // len(sides))
    presence = grid.sizes.reshape(h, w)
    shape = (-(-h // step), -(-w // step))
    means = np.empty((*shape, *table.shape[2:]), np.float32)
    shares = {}
    for side in sorted(set(sides)):
        channels = np.flatnonzero(np.asarray(sides) == side)
        down, across = (window_matrix(length, side / grid.cell, step) for length in (h, w))
        shares[side] = down @ presence @ across.T
        scale = np.where(shares[side] > 1e-6, 1 / np.maximum(shares[side], 1e-6), 0)[..., None]

        def average(c: int, down: Any = down, across: Any = across, scale: Any = scale) -> None:
            block = down @ np.ascontiguousarray(table[:, :, c]).reshape(h, -1)
            means[:, :, c] = np.matmul(across, block.reshape(shape[0], w, -1)) * scale

        side_by_side(average, channels.tolist())
    return means.reshape(shape[0] * shape[1], -1), shape, shares[min(shares)].ravel()


def window_matrix(length: int, side: float, step: int = 1) -> NDArray[np.floating]:
    """Rows of a centred moving average with fractional ends, cut off at the border; each sums to one."""
    distance = np.abs(np.arange(0, length, step)[:, None] - np.arange(length))
    window = np.clip(side / 2 + 0.5 - distance, 0, 1)
    return (window / window.sum(axis=1, keepdims=True)).astype(np.float32)
