"""Cells of a grid of pixels, whose counts are sums over their pixels (A.I. Memo 1625, section 5.4)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import shortened
from texseg.threads import kernels, side_by_side


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

    def reshape(self, *shape: int) -> "PackedCounts":
        """Return the same counts in another shape, still packed."""
        return PackedCounts(self.table.reshape(*shape), self.unit)

    def rows(self, first: int, stop: int) -> "PackedCounts":
        """Take some rows, still packed."""
        return PackedCounts(self.table[first:stop], self.unit)


def stacked(tables: Sequence[Any]) -> NDArray[np.float32] | PackedCounts:
    """Put the rows of several tables, all of one unit, below each other; packed if all of them are."""
    if all(isinstance(table, PackedCounts) for table in tables):
        return PackedCounts(np.concatenate([table.table for table in tables]), tables[0].unit)
    return np.concatenate([table[...] for table in tables])


class CellGrid(NamedTuple):
    """Cells over an image of two or three axes; those at the far ends of the axes may be cut off."""

    shape: tuple[int, ...]  # numbers of cells along the axes
    cell: int  # side in pixels
    image_shape: tuple[int, ...]
    sizes: NDArray[np.floating]  # (cells,), number of valid pixels in each, in units of a full cell: 0 to 1
    spacing: tuple[float, ...] = ()
    """Of the axes, relative to the finest; infinite across the planes of a stack. Empty: 1 for all."""

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, ...]:
        """Pixels of a cell along each axis."""
        return sides_along(self.cell, self.spacing or (1,) * len(self.shape))

    def near(self, value: Any, none: Any) -> tuple[Any, ...]:
        """Give a value for each axis, but another one across the planes of a stack."""
        spacing = self.spacing or (1,) * len(self.shape)
        return tuple(none if math.isinf(step) else value for step in spacing)

    def cells_of(self, pixels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Index of the cell of some pixels (flat indices)."""
        stride, sides, cells = 1, self.sides, np.zeros(1, np.intp)
        for axis in range(len(sides) - 1, 0, -1):
            pixels, at = np.divmod(pixels, self.image_shape[axis])
            at //= sides[axis]
            at *= stride
            cells = at if stride == 1 else np.add(at, cells, out=at)
            stride *= self.shape[axis]
        pixels //= sides[0]
        pixels *= stride
        return np.add(pixels, cells, out=pixels)

    def cells_of_rows(self, rows: slice) -> NDArray[np.intp]:
        """Index of each pixel's cell, for some rows (of volumes, planes), shape (rows, ...)."""
        cells = np.arange(rows.start, rows.stop) // self.sides[0]
        for side, length, n in zip(self.sides[1:], self.image_shape[1:], self.shape[1:], strict=True):
            cells = cells[..., None] * n + np.arange(length) // side
        return cells

    def to_pixels(self, values: NDArray) -> NDArray:
        """Repeat each cell's value, (cells, ...) in row-major order, over its pixels: image_shape + (...)."""
        grid = values.reshape(*self.shape, *values.shape[1:])
        for axis in reversed(range(len(self.shape))):  # the first axis last: copies of whole rows
            grid = grid.take(np.arange(self.image_shape[axis]) // self.sides[axis], axis=axis)
        return grid


def sides_along(side: float, spacing: Sequence[float]) -> tuple[int, ...]:
    """Pixels along each axis of what is ``side`` pixels of the finest axis wide; at least one."""
    return tuple(max(1, round(side / step)) for step in spacing)


def cell_grid(
    image_shape: tuple[int, ...],
    cell: int,
    mask: NDArray[np.bool_] | None = None,
    spacing: tuple[float, ...] = (),
) -> CellGrid:
    """Lay cells of side ``cell`` pixels over an image, and count the valid pixels of each."""
    sides = sides_along(cell, spacing or (1,) * len(image_shape))
    shape = shortened(image_shape, sides)
    padded = np.zeros([n * side for n, side in zip(shape, sides, strict=True)], bool)
    padded[tuple(map(slice, image_shape))] = True if mask is None else mask
    divided = [part for pair in zip(shape, sides, strict=True) for part in pair]
    inside = padded.reshape(divided).sum(axis=tuple(range(1, len(divided), 2)))
    sizes = (inside.ravel() / math.prod(sides)).astype(np.float32)
    return CellGrid(shape, cell, image_shape, sizes, spacing)


def cell_counts(
    bins: NDArray[np.uint8],
    grid: CellGrid,
    n_bins: int,
    mask: NDArray[np.bool_] | None = None,
    packed: bool = False,
) -> Any:
    """Histograms (cells, C * n_bins) of bins (C, ...), each channel summing to a cell's size; or packed."""
    (C, *shape), side, size = bins.shape, grid.sides[0], math.prod(grid.sides)
    w = grid.n_cells // grid.shape[0]
    table = np.zeros((grid.n_cells, C, n_bins), np.uint8 if packed else np.float32)
    places = np.ones(6, np.int64)
    places[3 - len(shape) : 3], places[6 - len(shape) :] = shape, grid.sides
    given = None if mask is None else np.ascontiguousarray(mask)

    def count(c: int) -> None:
        plane = np.ascontiguousarray(bins[c])
        if kernels is not None:
            kernels.count(plane, given, table, places, C, n_bins, c, len(table))
            return
        for top in range(grid.shape[0]):
            pixels = slice(top * side, min((top + 1) * side, len(plane)))
            index = (grid.cells_of_rows(pixels) - top * w) * n_bins + plane[pixels]
            index = index.ravel() if mask is None else index[mask[pixels]]
            counts = np.bincount(index, minlength=w * n_bins)
            table[top * w : (top + 1) * w, c] = counts.reshape(w, n_bins)

    side_by_side(count, range(C))
    flat, unit = table.reshape(grid.n_cells, -1), np.float32(1) / size
    return PackedCounts(flat, unit) if packed else np.multiply(flat, unit, out=flat)


def window_means(
    counts: NDArray[np.floating] | PackedCounts, grid: CellGrid, sides: Sequence[float], step: int = 1
) -> tuple[NDArray[np.floating], tuple[int, ...], NDArray[np.floating]]:
    """Mean histograms of windows (windows, C * n_bins), their shape, the smallest ones' valid shares."""
    table = counts.reshape(*grid.shape, len(sides), counts.shape[1] // len(sides))
    presence = grid.sizes.reshape(grid.shape)
    steps, spacing = grid.near(step, 1), grid.spacing or (1,) * len(grid.shape)
    shape = shortened(grid.shape, steps)
    means = np.empty((*shape, *table.shape[-2:]), np.float32)
    shares = {}
    for side in sorted(set(sides)):
        channels = np.flatnonzero(np.asarray(sides) == side)
        along = list(zip(grid.shape, grid.sides, spacing, steps, strict=True))
        windows = [window_matrix(n, side / (cells * unit), every) for n, cells, unit, every in along]
        shares[side] = averaged(presence, windows)
        scale = np.where(shares[side] > 1e-6, 1 / np.maximum(shares[side], 1e-6), 0)[..., None]

        def average(c: int, windows: Any = windows, scale: Any = scale) -> None:
            means[..., c, :] = averaged(np.ascontiguousarray(table[..., c, :]), windows) * scale

        side_by_side(average, channels.tolist())
    return means.reshape(math.prod(shape), -1), shape, shares[min(shares)].ravel()


def averaged(values: NDArray[Any], windows: Sequence[NDArray[np.floating]]) -> NDArray[np.floating]:
    """Average values on a grid, one (...) or B (..., B) at each place, over the windows of each axis."""
    first, *others = windows
    shape, rest = values.shape, values.shape[len(windows) :]
    values, lead = first @ values.reshape(shape[0], -1), len(first)
    for axis, window in enumerate(others, start=1):
        length = shape[axis]
        if not rest and axis == len(others):
            values = values.reshape(-1, length) @ window.T
        else:
            values = np.matmul(window, values.reshape(lead, length, -1))
        lead *= len(window)
    return values.reshape(*map(len, windows), *rest)


def window_matrix(length: int, side: float, step: int = 1) -> NDArray[np.floating]:
    """Rows of a centred moving average with fractional ends, cut off at the border; each sums to one."""
    distance = np.abs(np.arange(0, length, step)[:, None] - np.arange(length))
    window = np.clip(side / 2 + 0.5 - distance, 0, 1)
    return (window / window.sum(axis=1, keepdims=True)).astype(np.float32)
