"""Tables that are larger than memory, and tables with weighted rows, as count matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray

from texseg.counts.matrix import CountMatrix, CountOperator, check_counts, is_implicit, split_counts


class BlockCounts(CountOperator):
    """A table in blocks of rows, only one of which is in memory at a time.

    Every model takes it in place of an array, with the same result (where it holds out occurrences itself,
    with one as good). Each EM step reads every block once or twice; blocks of about 100 MB work well.

    Parameters
    ----------
    blocks : sequence of paths, functions or matrices
        Each an ``.npz`` file from `scipy.sparse.save_npz`, an ``.npy`` file, a function without arguments
        that returns an array or sparse matrix, or such a matrix itself. All have the same M columns.

    Raises
    ------
    ValueError
        No block, blocks with different numbers of columns, or entries that are not counts.

    Examples
    --------
    >>> n = BlockCounts([np.eye(2, 3), lambda: np.ones((1, 3))])
    >>> n.shape, n @ np.ones(3)
    ((3, 3), array([1., 1., 3.]))
    """

    def __init__(self, blocks: Sequence[str | Path | CountMatrix | Callable[[], Any]]) -> None:
        if not len(blocks):
            raise ValueError("BlockCounts needs at least one block of rows, got none")
        self._blocks = list(blocks)
        self._held: tuple[int, scipy.sparse.csr_array | None] = (-1, None)
        sizes, widths, self.nnz = [], set(), 0
        for index in range(len(self._blocks)):
            block = self._read(index)
            sizes.append(block.shape[0])
            widths.add(block.shape[1])
            self.nnz += block.nnz
        if len(widths) > 1:
            raise ValueError(
                f"BlockCounts needs blocks with equally many columns, got {sorted(widths)}; "
                "write them with the same vocabulary"
            )
        self.edges = [0, *np.cumsum(sizes).tolist()]
        self.shape = (self.edges[-1], widths.pop())
        self.groups = np.zeros(self.shape[1], np.intp)

    def deal(self, fractions: Sequence[float], seed: int) -> list[BlockCounts]:
        """Divide the occurrences as `split_counts` does, repeated each time a block is read."""

        def part(which: int, index: int) -> CountMatrix:
            return split_counts(self._read(index), fractions, seed + index)[which]

        blocks = range(len(self._blocks))
        return [
            BlockCounts([partial(part, which, index) for index in blocks]) for which in range(len(fractions))
        ]

    def _read(self, index: int) -> scipy.sparse.csr_array:
        if self._held[0] == index and self._held[1] is not None:
            return self._held[1]
        source = self._blocks[index]
        if callable(source):
            table = source()
        elif isinstance(source, (str, Path)):
            table = scipy.sparse.load_npz(source) if str(source).endswith(".npz") else np.load(source)
        else:
            table = source
        if table.shape[0] and table.sum() > 0:
            table = check_counts(table, owner="BlockCounts", name=f"block {index}")
        block = scipy.sparse.csr_array(table)
        self._held = (index, block)
        return block

    def _product(self, A: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([self._read(index) @ A for index in range(len(self._blocks))])

    def _adjoint(self, B: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((self.shape[1], B.shape[1]))
        for index, start in enumerate(self.edges[:-1]):
            block = self._read(index)
            out += block.T @ B[start : start + block.shape[0]]
        return out

    def _rows(self, wanted: range) -> scipy.sparse.csr_array:
        rows, parts = np.asarray(wanted), []
        for index, (start, stop) in enumerate(pairwise(self.edges)):
            inside = rows[(rows >= start) & (rows < stop)] - start
            if len(inside):
                block = self._read(index)
                parts.append(block if len(inside) == block.shape[0] else block[inside])
        return scipy.sparse.csr_array(parts[0] if len(parts) == 1 else scipy.sparse.vstack(parts))


class _ScaledRows(CountOperator):
    """An implicit matrix with each row multiplied by a number."""

    def __init__(self, n: CountOperator, weights: NDArray[np.float64]) -> None:
        self.n = n
        self.weights = weights
        self.shape = n.shape
        self.groups = n.groups
        self.nnz = getattr(n, "nnz", n.shape[0] * n.shape[1])
        self.edges = getattr(n, "edges", [0, n.shape[0]])

    def _product(self, A: NDArray[Any]) -> NDArray[Any]:
        product = self.n @ A
        return product * self.weights[:, None].astype(product.dtype)

    def _adjoint(self, B: NDArray[Any]) -> NDArray[Any]:
        return self.n.T @ (B * self.weights[:, None].astype(B.dtype))

    def _rows(self, wanted: range) -> scipy.sparse.csr_array:
        block = self.n[wanted.start : wanted.stop : wanted.step]
        return scipy.sparse.csr_array(scipy.sparse.diags_array(self.weights[wanted]) @ block)


def scale_rows(n: CountMatrix, weights: NDArray[np.float64]) -> CountMatrix:
    """Multiply each row of a count matrix by a number; an implicit one stays implicit."""
    if is_implicit(n):
        return _ScaledRows(n, weights)
    if scipy.sparse.issparse(n):
        return scipy.sparse.csr_array(scipy.sparse.diags_array(weights) @ n)
    return n * weights[:, None].astype(n.dtype)
