"""The product-space mixture model (PMM): aspects that are pairs of a row group and a column group.

An SMM whose ``K L`` aspects share K distributions over rows and L over columns. With ``pi`` (K, L),
``p`` (K, N), ``q`` (L, M), section 2.5 of the memo:

    p_ij   = sum_kl pi_kl p_ki q_lj                      the model (Eq. 15, 16)
    R_ijkl ~ pi_kl (p_ki q_lj)^beta                      E-step
    pi_kl  ~ sum_ij n_ij R_ijkl                          M-step
    p_ki   ~ sum_j n_ij sum_l R_ijkl                     (Eq. 18)
    q_lj   ~ sum_i n_ij sum_k R_ijkl                     (Eq. 19)
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from texseg.counts.matrix import CountMatrix, column_totals, row_totals
from texseg.fitting.assignment import Floats
from texseg.models import base
from texseg.models.acm import TwoSided
from texseg.models.base import Model, Step
from texseg.models.estimator import CooccurrenceEstimator, Data, DensityMixin, settings
from texseg.models.smm import folded_in, pass_over, shares_of_rows


class ProductAspects(NamedTuple):
    """Parameters of the PMM; rows of the last two sum to one, the mixing weights sum to one as a whole."""

    mixing: Floats  # (K, L), pi
    rows: Floats  # (K, N), p
    columns: Floats  # (L, M), q


@dataclass(frozen=True)
class ProductAspectModel(Model):
    """The PMM as the driver sees it; see the top of this file for the equations."""

    joint: ClassVar[str] = "mixing"

    def start_from(self, n: CountMatrix, rows: Floats, columns: Floats) -> ProductAspects:
        """Parameters for given shares of the rows (N, K) and of the columns (M, L) in their groups."""
        joint = np.asarray(rows.T @ (n @ columns), dtype=np.float64)
        sides = base.normalise(rows.T * row_totals(n)), base.normalise(columns.T * column_totals(n))
        return ProductAspects(joint / joint.sum(), *sides)

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One EM iteration over blocks of rows; the K L aspects are never formed."""
        pi, A, B = params.mixing, base.tempered(params.rows, beta), base.tempered(params.columns, beta)
        by_row, pulled, energy = pass_over(n, A, B @ pi.T)
        joint, by_column = pi * (pulled.T @ B), B * (pulled @ pi)
        new = joint / joint.sum(), base.normalise(by_row.T), base.normalise(by_column.T)
        return Step(ProductAspects(*new), energy, None)

    def by_weight(self, params: ProductAspects, posteriors: Any) -> tuple[ProductAspects, Any]:
        """Return the parameters with the heaviest groups of rows and of columns first."""
        rows = base.heaviest_first(params.mixing.sum(axis=1))
        columns = base.heaviest_first(params.mixing.sum(axis=0))
        joint = params.mixing[rows][:, columns]
        return ProductAspects(joint, params.rows[rows], params.columns[columns]), None

    def row_posteriors(self, params: ProductAspects, posteriors: Any = None) -> Floats:
        """``p(k | i)`` (N, K); for rows without occurrences, the overall weights."""
        return shares_of_rows(params.rows, params.mixing.sum(axis=1))

    def prediction(self, params: ProductAspects, posteriors: Any = None) -> tuple[Floats, Floats]:
        """``p(l | i)`` (N, L) and ``q`` (L, M)."""
        return self.row_posteriors(params) @ base.normalise(params.mixing), params.columns

    def fold_in(self, n: CountMatrix, params: ProductAspects, beta: float) -> Floats:
        """``p(k | i)`` (N, K) of new rows, by EM steps with ``pi`` and ``q`` fixed."""
        B_pi = base.tempered(params.columns, beta) @ params.mixing.T
        return folded_in(n, params.mixing.sum(axis=1), B_pi, beta)


@settings
class PMM(DensityMixin, TwoSided):
    """Product-space mixture model of co-occurrence counts.

    Every occurrence comes from one pair of a row group and a column group (Hofmann and Puzicha, A.I. Memo
    1625, 1998, section 2.5).

    Parameters
    ----------
    n_row_components, n_column_components : int, default=8
        Numbers K and L of the groups; K at most the number of rows.
    beta, validation_fraction, n_init, max_iter, tol, over_relaxation, random_state
        See `SMM`.

    Attributes
    ----------
    components_, mixing_ : ndarrays of shape (L, M) and (N, L)
        ``p(j | l)`` and ``p(l | i)``; rows sum to one.
    weights_, row_components_, row_posteriors_ : ndarrays of shape (K, L), (K, N) and (N, K)
        ``pi``, whose sum is one, ``p(i | k)`` and ``p(k | i)``.
    labels_ : int ndarray of shape (N,)
        Most probable row group of every row, from 0.
    beta_, free_energy_, n_iter_, converged_, history_
        See `SMM`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.kron(np.eye(2), np.full((5, 4), 6.0))
    >>> PMM(2, 2, beta=1.0, random_state=0).fit(X).weights_.round(2)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    _size_parameters = ("n_row_components", "n_column_components")
    _beta_factor = 0.92
    _warm = True
    _assigns_rows = False
    score = CooccurrenceEstimator.score

    n_row_components: int = 8
    n_column_components: int = 8

    def _model(self, data: Data) -> ProductAspectModel:
        return ProductAspectModel()

    def _publish(self, model: ProductAspectModel, params: ProductAspects, posteriors: None) -> None:
        self.weights_, self.row_components_ = params.mixing, params.rows

    def _predictive_mixing(self, n: CountMatrix) -> Floats:
        return super()._predictive_mixing(n) @ base.normalise(self._params.mixing)
