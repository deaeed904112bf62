"""The interface between data and models: everything that can act as a matrix of co-occurrence counts.

A count matrix ``n`` (N sites x M features) is anything with ``shape``, ``n @ A`` and ``n.T @ B``. NumPy
arrays and scipy.sparse matrices have these; :class:`WindowedCounts` is an implicit one for images, whose
entries are local histograms that are never stored. No model asks which kind it got.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import ArrayLike, NDArray

from texseg.counts.axes import box_sums
from texseg.counts.random import random_state_of

CountMatrix = Any  # an array, a sparse matrix, or an implicit operator of this module

_BORDERS = {"zero": cv2.BORDER_CONSTANT, "symmetric": cv2.BORDER_REFLECT}
_DEALT_SINGLY = 2**26  # most occurrences that split_counts shuffles; of more, each entry is divided by itself
_BLOCK_ENTRIES = 2**24  # non-zero entries that row_blocks may hold at once


class CountOperator(ABC):
    """An operator with ``shape``, ``@``, ``.T @`` and ``[rows]``; subclasses define the products."""

    shape: tuple[int, int]
    groups: NDArray[np.intp]

    def __matmul__(self, A: NDArray[Any]) -> NDArray[Any]:
        A = np.asarray(A)
        if A.shape[0] != self.shape[1]:
            raise ValueError(f"n @ A needs A with {self.shape[1]} rows, got shape {A.shape}")
        return self._product(A.reshape(A.shape[0], -1)).reshape(self.shape[0], *A.shape[1:])

    def __getitem__(self, rows: slice) -> scipy.sparse.csr_array:
        """Compute the rows of a forward slice as CSR; memory grows with the slice."""
        if not isinstance(rows, slice) or (rows.step is not None and rows.step < 1):
            raise TypeError(f"rows must be selected by a slice with a positive step, got {rows!r}")
        wanted = range(*rows.indices(self.shape[0]))
        if not len(wanted):
            return scipy.sparse.csr_array((0, self.shape[1]), dtype=np.float32)
        return self._rows(wanted)

    @property
    def T(self) -> _Transposed:
        """The transpose, for products ``n.T @ B``."""
        return _Transposed(self)

    @abstractmethod
    def _product(self, A: NDArray[Any]) -> NDArray[Any]: ...

    @abstractmethod
    def _adjoint(self, B: NDArray[Any]) -> NDArray[Any]: ...

    @abstractmethod
    def _rows(self, wanted: range) -> scipy.sparse.csr_array: ...


class _Transposed:
    def __init__(self, operator: CountOperator) -> None:
        self._operator = operator
        self.shape = operator.shape[::-1]

    @property
    def T(self) -> CountOperator:
        return self._operator

    def __matmul__(self, B: NDArray[Any]) -> NDArray[Any]:
        B = np.asarray(B)
        if B.shape[0] != self.shape[1]:
            raise ValueError(f"n.T @ B needs B with {self.shape[1]} rows, got shape {B.shape}")
        return self._operator._adjoint(B.reshape(B.shape[0], -1)).reshape(self.shape[0], *B.shape[1:])


class WindowedCounts(CountOperator):
    """Local histograms of quantised channels around every pixel, as an implicit count matrix.

    Row ``i`` holds, for every channel, the histogram of the bins in a window centred on pixel ``i`` (A.I.
    Memo 1625, section 6.3), which is never written down. ``bins`` are uint8 (C, H, W) or (C, D, H, W), below
    ``n_bins``; ``window`` sides odd numbers of pixels, one or C. Pixels outside ``mask`` are counted in no
    window; with ``normalize`` every channel of a row sums to its weight; beyond the ``border`` lies nothing
    or the mirror image; ``spacing`` is that of `texseg.counts.grid.CellGrid`.
    """

    def __init__(
        self,
        bins: NDArray[np.uint8],
        window: int | Sequence[int] = 1,
        *,
        n_bins: int = 40,
        mask: NDArray[np.bool_] | None = None,
        weights: ArrayLike | None = None,
        normalize: bool = True,
        border: str = "zero",
        spacing: Sequence[float] = (),
    ) -> None:
        self.bins = bins
        C, *sides = self.bins.shape
        self.n_bins = n_bins
        self.image_shape = tuple(sides)
        self.shape = (math.prod(sides), C * n_bins)
        self._spacing = spacing or (1,) * len(sides)
        self.groups = np.repeat(np.arange(C), n_bins)
        self.windows = np.broadcast_to(np.asarray(window, np.intp), (C,))
        self.mask = None if mask is None or mask.all() else mask
        self.weights = np.ones(C, np.float32) if weights is None else np.asarray(weights, np.float32)
        self.border = border
        self.normalize = normalize
        self._valid = None if self.mask is None else self.mask.astype(np.float32)
        self._scales = {w: np.flatnonzero(self.windows == w) for w in np.unique(self.windows)}
        valid = np.ones(self.image_shape, np.float32) if self._valid is None else self._valid
        # factor of every row for each window side, shape (H, W); zero where there is no data
        self._norms = {w: valid.copy() for w in self._scales}
        if normalize:
            self._norms = {w: valid / np.maximum(self._box(valid, int(w)), 1.0) for w in self._scales}

    def _box(self, field: NDArray[Any], window: int) -> NDArray[Any]:
        if window == 1:
            return field
        sides = tuple(int(window / step) // 2 * 2 + 1 for step in self._spacing)
        return box_sums(field, sides, _BORDERS[self.border])

    def _product(self, A: NDArray[Any]) -> NDArray[np.float32]:
        K = A.shape[1]
        tables = (A.reshape(len(self.bins), self.n_bins, K) * self.weights[:, None, None]).astype(np.float32)
        out = np.zeros((self.shape[0], K), np.float32)
        for k in range(K):
            total = out[:, k].reshape(self.image_shape)
            for window, channels in self._scales.items():
                field = np.zeros(self.image_shape, np.float32)
                for c in channels:
                    field += tables[c, :, k][self.bins[c]]
                if self._valid is not None:
                    field *= self._valid
                total += self._box(field, int(window)) * self._norms[window]
        return out

    def _adjoint(self, B: NDArray[Any]) -> NDArray[np.float64]:
        K = B.shape[1]
        out = np.empty((len(self.bins), self.n_bins, K))
        for k in range(K):
            column = np.ascontiguousarray(B[:, k], dtype=np.float32).reshape(self.image_shape)
            for window, channels in self._scales.items():
                field = self._box(column * self._norms[window], int(window))
                if self._valid is not None:
                    field = field * self._valid
                flat = field.ravel()
                for c in channels:
                    out[c, :, k] = np.bincount(self.bins[c].ravel(), flat, self.n_bins)[: self.n_bins]
        out *= self.weights[:, None, None]
        return out.reshape(-1, K)

    def _rows(self, wanted: range) -> scipy.sparse.csr_array:
        H, W = self.image_shape
        top, bottom = wanted[0] // W, wanted[-1] // W + 1
        out = np.empty((bottom - top, W, len(self.bins), self.n_bins), np.float32)
        for window, channels in self._scales.items():
            halo = int(window) // 2
            y0, y1 = max(0, top - halo), min(H, bottom + halo)
            for c in channels:
                for b in range(self.n_bins):
                    plane = (self.bins[c, y0:y1] == b).astype(np.float32)
                    if self._valid is not None:
                        plane *= self._valid[y0:y1]
                    out[:, :, c, b] = self._box(plane, int(window))[top - y0 : bottom - y0]
            out[:, :, channels] *= self._norms[window][top:bottom, :, None, None]
        out *= self.weights[:, None]
        dense = out.reshape(-1, self.shape[1])
        return scipy.sparse.csr_array(dense[wanted.start - top * W : wanted.stop - top * W : wanted.step])


def is_implicit(n: CountMatrix) -> bool:
    """Whether ``n`` is an operator of this package, not an array or sparse matrix."""
    return isinstance(n, CountOperator)


def row_totals(n: CountMatrix) -> NDArray[np.float64]:
    """Occurrences of every row, shape (N,)."""
    return np.asarray(n @ np.ones(n.shape[1]), dtype=np.float64)


def column_totals(n: CountMatrix) -> NDArray[np.float64]:
    """Occurrences of every column, shape (M,)."""
    return np.asarray(n.T @ np.ones(n.shape[0]), dtype=np.float64)


def groups_of(n: CountMatrix) -> NDArray[np.intp]:
    """Which channel each column belongs to, shape (M,); all zero for plain matrices."""
    groups = getattr(n, "groups", None)
    return np.zeros(n.shape[1], np.intp) if groups is None else groups


def row_blocks(n: CountMatrix, rows: int | None = None) -> Iterator[tuple[slice, scipy.sparse.csr_array]]:
    """Yield ``(slice, CSR)`` for consecutive blocks of rows, for models that need the entries."""
    if scipy.sparse.issparse(n):
        n = scipy.sparse.csr_array(n)
    if rows is None:
        per_row = getattr(n, "nnz", n.shape[0] * n.shape[1]) / max(1, n.shape[0])
        rows = max(1, int(_BLOCK_ENTRIES / max(1.0, per_row)))
    edges = getattr(n, "edges", (0, n.shape[0]))
    for first, last in pairwise(edges):
        for start in range(first, last, rows):
            block = slice(start, min(start + rows, last))
            yield block, scipy.sparse.csr_array(n[block])


def check_counts(X: Any, *, owner: str = "a count matrix", name: str = "X") -> CountMatrix:
    """Return ``X`` as a count matrix that models can use, or raise an error that names ``owner``."""
    if is_implicit(X):
        return X
    sparse = scipy.sparse.issparse(X)
    matrix = scipy.sparse.csr_array(X) if sparse else np.asarray(X)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(
            f"{owner} needs {name} as a table with at least one row and one column, got shape {matrix.shape}"
        )
    if matrix.dtype.kind not in "buif":
        raise TypeError(f"{owner} needs {name} with real numbers, got dtype {matrix.dtype}")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    values = np.asarray(matrix.data if sparse else matrix)
    if not np.isfinite(values).all():
        raise ValueError(f"{owner} got NaN or infinity in {name}; counts must be finite")
    if values.size and values.min() < 0:
        raise ValueError(f"Negative values in data passed to {owner}: counts in {name} must be at least 0")
    if not values.any():
        raise ValueError(f"{owner} got only zeros in {name}; there is no occurrence to explain")
    return matrix


def split_counts(
    n: CountMatrix,
    fractions: Sequence[float],
    random_state: int | np.random.RandomState | np.random.Generator | None = None,
) -> list[CountMatrix]:
    """Divide the occurrences (not the entries) of ``n`` among parts at random, for example 80 / 10 / 10 %.

    ``n`` is an array or sparse matrix (N, M), or `BlockCounts`; the fractional part of an entry goes
    undivided to one part. Returns matrices of its shape that sum to it.

    Raises
    ------
    ValueError
        Fractions that are not positive or do not sum to one.
    TypeError
        An image's windows, whose occurrences overlap.

    Examples
    --------
    >>> train, test = split_counts(np.full((2, 3), 10), [0.9, 0.1], random_state=0)
    >>> int(train.sum()), int(test.sum())
    (54, 6)
    """
    shares = np.asarray(fractions, dtype=float)
    if shares.ndim != 1 or not len(shares) or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"fractions must be positive numbers with sum 1, got {list(fractions)}")
    rng = random_state_of(random_state)
    if hasattr(n, "deal"):
        return n.deal(list(shares), rng.randint(2**31))
    if is_implicit(n):
        raise TypeError(
            "split_counts deals out single occurrences, which overlapping windows of an image do not have; "
            "write the table out, or give held-out data as validation"
        )
    matrix = scipy.sparse.coo_array(check_counts(n, owner="split_counts", name="n"))
    whole = np.floor(matrix.data)
    if whole.sum() > _DEALT_SINGLY:
        return _dealt_by_entries(matrix, shares, rng)
    entry = rng.permutation(np.repeat(np.arange(matrix.nnz), whole.astype(np.intp)))
    cuts = np.rint(np.cumsum(shares)[:-1] * len(entry)).astype(np.intp)
    beyond = matrix.data - whole
    owner = np.searchsorted(np.cumsum(shares)[:-1], rng.random_sample(matrix.nnz)) if beyond.any() else None
    tables = []
    for index, part in enumerate(np.split(entry, cuts)):
        dealt = np.bincount(part, minlength=matrix.nnz).astype(float)
        if owner is not None:
            dealt += np.where(owner == index, beyond, 0)
        table = scipy.sparse.csr_array((dealt, matrix.coords), matrix.shape)
        table.eliminate_zeros()
        tables.append(table)
    return tables


def _dealt_by_entries(n: Any, shares: NDArray[np.float64], rng: np.random.RandomState) -> list[CountMatrix]:
    left, tables = n.data, []
    for share, rest in zip(shares, np.cumsum(shares[::-1])[::-1], strict=True):
        whole = np.floor(left)
        part = rng.binomial(whole.astype(np.int64), min(1.0, share / rest)) + (left - whole) * (share == rest)
        tables.append(scipy.sparse.csr_array((part, n.coords), n.shape))
        left = left - part
    return tables
