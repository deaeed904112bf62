"""The coarse-to-fine sequence of an image's counts, [1] section 5.4: what `segment` does without.

It starts on windows of which there are few, and continues on cells; here every level halves the cells' sides.

References
----------
.. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from texseg.counts.blocks import scale_rows
from texseg.counts.grid import CellGrid, cell_grid
from texseg.counts.matrix import CountMatrix, CountOperator, WindowedCounts, is_implicit
from texseg.fitting.anneal import State, anneal

_BLOCK_ENTRIES = 2**24  # non-zero entries of a block of rows
_EXPLICIT_SIDE = 8  # cells of this side or larger are stored; smaller ones would take too much memory


class ChannelCounts(CountOperator):
    """A stored table of counts (N, M), together with the channel of every column (M,)."""

    def __init__(self, table: NDArray[Any], groups: NDArray[np.intp]) -> None:
        self.table = table
        self.groups = groups
        self.shape = (table.shape[0], table.shape[1])

    def _product(self, A: NDArray[Any]) -> NDArray[Any]:
        return self.table @ A

    def _adjoint(self, B: NDArray[Any]) -> NDArray[Any]:
        return self.table.T @ B

    def _rows(self, wanted: range) -> sparse.csr_array:
        return sparse.csr_array(self.table[wanted.start : wanted.stop : wanted.step])


def parent_of(grid: CellGrid) -> NDArray[np.intp]:
    """Index of every pixel's cell, shape (pixels,), row-major."""
    return grid.to_pixels(np.arange(grid.n_cells)).ravel()


class Aggregate(NamedTuple):
    """What :func:`aggregate` returns: the coarse counts and how many fine rows each coarse row sums."""

    counts: CountMatrix
    sizes: NDArray[np.float64]


class _AggregatedCounts(CountOperator):
    """Row sums of an implicit matrix, still implicit: prolong, multiply, restrict."""

    def __init__(self, fine: CountOperator, parent: NDArray[np.intp], n_rows: int) -> None:
        self.fine = fine
        self.parent = parent
        self.groups = fine.groups
        self.shape = (n_rows, fine.shape[1])

    def _product(self, A: NDArray[Any]) -> NDArray[np.float64]:
        fine = self.fine @ A
        inside = self.parent >= 0
        parent = self.parent if inside.all() else self.parent[inside]
        return np.stack(
            [
                np.bincount(parent, column if inside.all() else column[inside], self.shape[0])
                for column in fine.T
            ],
            axis=1,
        )

    def _adjoint(self, B: NDArray[Any]) -> NDArray[Any]:
        fine = B[np.maximum(self.parent, 0)].astype(np.float32)
        fine[self.parent < 0] = 0.0
        return self.fine.T @ fine

    def _rows(self, wanted: range) -> sparse.csr_array:
        """Sum blocks of the fine rows, from the first to the last that belongs to ``wanted``."""
        position = np.full(self.shape[0] + 1, -1)  # the last entry stands for parent -1
        position[wanted] = np.arange(len(wanted))
        parent = position[self.parent]
        inside = np.flatnonzero(parent >= 0)
        first, last = (inside[0], inside[-1] + 1) if len(inside) else (0, 0)
        out = sparse.csr_array((len(wanted), self.shape[1]))
        step = max(1, _BLOCK_ENTRIES // self.shape[1])
        for start in range(first, last, step):
            block = slice(start, min(start + step, last))
            out = out + aggregate(self.fine[block], parent[block], len(wanted)).counts
        return out


def aggregate(n: CountMatrix, parent: ArrayLike, n_rows: int | None = None) -> Aggregate:
    """Sum rows of ``n`` that share a parent: the counts of the next coarser level ([1] section 5.4).

    ``parent`` (N,) is the coarse row of every row, -1 for none. Assignments that are constant within every
    parent have the same likelihood on both levels.

    Examples
    --------
    >>> aggregate(np.array([[1, 0], [2, 1], [0, 5]]), [0, 0, 1]).counts
    array([[3., 1.],
           [0., 5.]])
    """
    parent = np.asarray(parent)
    rows = int(parent.max(initial=-1)) + 1 if n_rows is None else n_rows
    inside = np.flatnonzero(parent >= 0)
    sizes = np.bincount(parent[inside], minlength=rows).astype(np.float64)
    if is_implicit(n):
        return Aggregate(_AggregatedCounts(n, parent.astype(np.intp), rows), sizes)
    ones, places = np.ones(len(inside)), (parent[inside], inside)
    restrict = sparse.csr_array((ones, places), shape=(rows, n.shape[0]))
    return Aggregate(restrict @ n, sizes)


def block_sums(n: WindowedCounts, side: int) -> NDArray[np.float32]:
    """Sum the rows of every square block of ``side`` pixels: (rows, columns, C * n_bins) of blocks."""
    H, W = n.image_shape
    tops, lefts = np.arange(0, H, side), np.arange(0, W, side)
    out = np.empty((len(tops), len(lefts), len(n.bins), n.n_bins), np.float32)
    for window, channels in n._scales.items():
        for c in channels:
            for b in range(n.n_bins):
                plane = (n.bins[c] == b).astype(np.float32)
                if n._valid is not None:
                    plane *= n._valid
                plane = n._box(plane, int(window)) * n._norms[window]
                out[:, :, c, b] = np.add.reduceat(np.add.reduceat(plane, tops, axis=0), lefts, axis=1)
    out *= n.weights[:, None]
    return out.reshape(len(tops), len(lefts), -1)


class PyramidLevel(NamedTuple):
    """One level of the coarse-to-fine sequence."""

    counts: CountMatrix
    sizes: NDArray[np.float64]  # (N,), number of pixels in each row
    parent: NDArray[np.intp] | None  # (N,), the row of the previous, coarser level; None at the first
    shape: tuple[int, int]


def pyramid(n: WindowedCounts, coarsest: int) -> Iterator[PyramidLevel]:
    """Yield the levels of an image's counts from cells of ``coarsest`` pixels down to single pixels.

    Sides, powers of two, halve from level to level. Levels with cells of 8 pixels and more are stored; finer
    ones stay implicit: their products prolong, multiply with the pixels' counts, and restrict.
    """
    base = cell_grid(n.image_shape, _EXPLICIT_SIDE)
    explicit = block_sums(n, base.cell).reshape(-1, n.shape[1]) if coarsest >= base.cell else None
    above: CellGrid | None = None
    cell = coarsest
    while cell >= 1:
        grid = cell_grid(n.image_shape, cell, n.mask)
        parent = None if above is None else _cell_parent(grid, above)
        sizes = grid.sizes.astype(np.float64) * cell**2
        if cell >= base.cell:
            table = aggregate(explicit, _cell_parent(base, grid), grid.n_cells).counts
            counts: CountMatrix = ChannelCounts(table, n.groups)
        else:
            counts = n if cell == 1 else aggregate(n, parent_of(grid), grid.n_cells).counts
        yield PyramidLevel(counts, sizes, parent, grid.shape)
        above, cell = grid, cell // 2


def coarse_to_fine(
    model: Any, levels: Iterable[tuple[CountMatrix, Any]], schedule: Sequence[float], **options: Any
) -> Iterator[tuple[int, State]]:
    """Anneal counts and sizes of the first level's rows; others go on at the last temperature, in turn."""
    for index, (counts, sizes) in enumerate(levels):
        for state in anneal(*of_cells(model, counts, sizes), schedule, **options):
            yield index, state
        options |= {"start": state.params, "perturbation": 0.0}
        schedule = schedule[-1:]


def of_cells(model: Any, counts: CountMatrix, sizes: Any) -> tuple[Any, CountMatrix]:
    """Give cells the mean counts of their pixels, and count each as many times as it has pixels."""
    if sizes is None:
        return model, counts
    policy = type(model.posterior)(sizes)
    return replace(model, posterior=policy), scale_rows(counts, 1 / np.maximum(sizes, 1e-9))


def _cell_parent(fine: CellGrid, coarse: CellGrid) -> NDArray[np.intp]:
    ratio = coarse.cell // fine.cell
    rows, columns = np.arange(fine.shape[0]) // ratio, np.arange(fine.shape[1]) // ratio
    return (rows[:, None] * coarse.shape[1] + columns).ravel()
