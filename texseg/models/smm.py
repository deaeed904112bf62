"""The separable mixture model (SMM), also known as the aspect model or PLSA.

Every single occurrence of a pair (i, j) is due to one of K aspects, which chooses row and column
independently. With ``pi`` (K,), ``p`` (K, N), ``q`` (K, M) and counts ``n`` (N, M), [1]_ section 2:

    p_ij    = sum_k pi_k p_ki q_kj                                  the model (Eq. 1)
    R_ijk   ~ pi_k (p_ki q_kj)^beta                                 E-step (Eq. 6; beta = 1)
    pi_k    ~ sum_ij n_ij R_ijk                                     M-step (Eq. 7)
    p_ki    ~ sum_j n_ij R_ijk,    q_kj ~ sum_i n_ij R_ijk          (Eq. 8, 9)
    F       = -sum_ij n_ij log sum_k pi_k (p_ki q_kj)^beta          free energy (Eq. 64)

The asymmetric form (Eq. 10, 11) is ``p(j | i) = sum_k p(k | i) q_kj`` with ``p(k | i) ~ pi_k p_ki``. The
responsibilities R are never stored: with ``z_ij = sum_k pi_k (p q)^beta`` all sums over them are products with
the sparse matrix ``n_ij / z_ij``.

Predictive EM ([1]_ section 5.2) leaves the occurrence at hand out of the sums from which its own posterior is
computed, and therefore keeps R: (non-zero entries x K) numbers.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from texseg.counts import CountMatrix, column_totals, row_blocks, row_totals
from texseg.models.base import FLOOR, Step, count_distinct, extrapolate, normalise
from texseg.posteriors import Floats

_PAIRS_AT_ONCE = 2**16  # numbers of a batch of gathered rows; fits the second-level cache


class Aspects(NamedTuple):
    """Parameters of the SMM; every row sums to one."""

    weights: Floats
    """(K,), ``pi``."""
    rows: Floats
    """(K, N), ``p``."""
    columns: Floats
    """(K, M), ``q``."""


def products_at(A: Floats, B: Floats, rows: NDArray[Any], columns: NDArray[Any]) -> Floats:
    """``sum_k A[r, k] B[c, k]`` for every pair (r, c) of the two index arrays.

    Examples
    --------
    >>> products_at(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1]), np.array([1, 1]))
    array([3., 4.])
    """
    out = np.empty(len(rows), dtype=np.result_type(A, B))
    batch = max(64, _PAIRS_AT_ONCE // A.shape[1])
    for start in range(0, len(rows), batch):
        part = slice(start, start + batch)
        np.einsum("rk,rk->r", A.take(rows[part], axis=0), B.take(columns[part], axis=0), out=out[part])
    return out


def entry_rows(block: sp.csr_array) -> NDArray[np.intp]:
    """Row of every stored entry of a CSR block."""
    return np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))


def tempered(probabilities: Floats, beta: float) -> Floats:
    """``p^beta`` of (K, N) as a contiguous (N, K), floored so that no occurrence becomes impossible."""
    p = np.maximum(probabilities, FLOOR).T
    return np.ascontiguousarray(p) if beta == 1 else np.ascontiguousarray(p**beta)


@dataclass(frozen=True)
class AspectModel:
    """The SMM as the driver sees it; see the top of this file for the equations."""

    monotone: ClassVar[bool] = True

    def initial(
        self,
        n: CountMatrix,
        n_components: int,
        rng: np.random.RandomState,
        row_weights: Floats | None = None,
        spread: float = 1.0,
    ) -> Aspects:
        """Return the marginals, each entry times a random number within ``1 +- spread / 2``."""
        rows, columns = row_totals(n), column_totals(n)

        def noisy(marginal: Floats) -> Floats:
            noise = 1 + spread * rng.uniform(-0.5, 0.5, (n_components, len(marginal)))
            return normalise(marginal * noise)

        return Aspects(np.full(n_components, 1.0 / n_components), noisy(rows), noisy(columns))

    def step(
        self,
        n: CountMatrix,
        params: Aspects,
        beta: float,
        posteriors: Any = None,
        row_weights: Floats | None = None,
    ) -> Step:
        """One EM iteration over blocks of rows; memory does not grow with non-zeros x K."""
        A = tempered(params.rows, beta) * params.weights
        B = tempered(params.columns, beta)
        by_row, by_column = np.empty_like(A), np.zeros_like(B)
        energy = 0.0
        for rows, block in row_blocks(n):
            a = A[rows]
            z = products_at(a, B, entry_rows(block), block.indices)
            energy -= float(block.data @ np.log(z))
            ratio = sp.csr_array((block.data / z, block.indices, block.indptr), block.shape)
            by_row[rows] = a * (ratio @ B)
            by_column += ratio.T @ a
        by_column *= B
        return Step(self.m_step(by_row, by_column), energy, None)

    def m_step(self, by_row: Floats, by_column: Floats) -> Aspects:
        """Eq. 7 to 9 from the expected counts (N, K) of the rows and (M, K) of the columns."""
        return Aspects(normalise(by_row.sum(axis=0)), normalise(by_row.T), normalise(by_column.T))

    def relax(self, old: Aspects, new: Aspects, eta: float, groups: NDArray[np.intp]) -> Aspects:
        """Over-relaxed parameters, normalised."""
        return Aspects(*(normalise(extrapolate(o, n, eta)) for o, n in zip(old, new, strict=True)))

    def n_distinct(self, params: Aspects) -> int:
        """Count the aspects with weight whose columns differ (by more than 1 % total variation)."""
        return count_distinct(params.columns[params.weights > FLOOR])

    def mixing(self, params: Aspects) -> Floats:
        """``p(k | i)`` (N, K), Eq. 10; rows never seen get the mean over all occurrences."""
        joint = (params.rows * params.weights[:, None]).T
        seen = joint.sum(axis=1, keepdims=True) > 0
        return np.where(seen, normalise(joint), params.weights)

    def profiles(self, params: Aspects) -> Floats:
        """``p(j | k)`` (K, M)."""
        return params.columns


@dataclass(frozen=True)
class PredictiveAspectModel(AspectModel):
    """The SMM fitted by predictive EM ([1]_ section 5.2, Appendix B); F may rise.

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
    """

    monotone: ClassVar[bool] = False

    def step(
        self,
        n: CountMatrix,
        params: Aspects,
        beta: float,
        posteriors: list[Floats] | None = None,
        row_weights: Floats | None = None,
    ) -> Step:
        """One iteration; ``posteriors`` holds the responsibilities (entries, K) of each block of rows."""
        plain = super().step(n, params, beta)
        blocks = list(row_blocks(n))
        if posteriors is None:
            posteriors = [self._responsibilities(params, beta, rows, block) for rows, block in blocks]
        by_row = np.zeros(params.rows.T.shape)
        by_column = np.zeros(params.columns.T.shape)
        for R, (rows, block) in zip(posteriors, blocks, strict=True):
            weighted = block.data[:, None] * R
            by_row[rows] = _sum_runs(weighted, block.indptr)
            np.add.at(by_column, block.indices, weighted)
        updated = [
            _left_out(R, by_row[rows], by_column, block, beta)
            for R, (rows, block) in zip(posteriors, blocks, strict=True)
        ]
        return Step(self.m_step(by_row, by_column), plain.free_energy, updated)

    def _responsibilities(self, params: Aspects, beta: float, rows: slice, block: sp.csr_array) -> Floats:
        a = tempered(params.rows, beta)[rows] * params.weights
        return normalise(a[entry_rows(block)] * tempered(params.columns, beta)[block.indices])


def _sum_runs(values: Floats, indptr: NDArray[Any]) -> Floats:
    """Sums (rows, K) of the consecutive entries (entries, K) of each row."""
    out = np.zeros((len(indptr) - 1, values.shape[1]))
    filled = np.diff(indptr) > 0
    if filled.any():
        out[filled] = np.add.reduceat(values, indptr[:-1][filled], axis=0)
    return out


def _left_out(R: Floats, by_row: Floats, by_column: Floats, block: sp.csr_array, beta: float) -> Floats:
    """Posteriors (entries, K) from all occurrences but the one at hand (Eq. 61 without its diagonal)."""
    total = np.maximum(by_column.sum(axis=0) - R, FLOOR)
    row = np.maximum(by_row[entry_rows(block)] - R, 0)
    column = np.maximum(by_column[block.indices] - R, 0)
    return normalise(total * (row * column / total**2) ** beta)
