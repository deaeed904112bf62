"""The separable mixture model (SMM), also known as the aspect model or PLSA.

Every single occurrence of a pair (i, j) comes from one of K aspects, which draws row and column
independently. With ``pi`` (K,), ``p`` (K, N), ``q`` (K, M) and counts ``n`` (N, M), section 2 of the memo:

    p_ij    = sum_k pi_k p_ki q_kj                                  the model (Eq. 1)
    R_ijk   ~ pi_k (p_ki q_kj)^beta                                 E-step (Eq. 6; beta = 1)
    pi_k    ~ sum_ij n_ij R_ijk                                     M-step (Eq. 7)
    p_ki    ~ sum_j n_ij R_ijk,    q_kj ~ sum_i n_ij R_ijk          (Eq. 8, 9)
    F       = -sum_ij n_ij log sum_k pi_k (p_ki q_kj)^beta          free energy (Eq. 64)

Rows and columns may have separate temperatures, ``p^(beta tilt) q^(beta / tilt)``: F has them in the same
places, and the M-step, which normalises every factor by itself, does not change.

The asymmetric form (Eq. 10, 11) is ``p(j | i) = sum_k p(k | i) q_kj`` with ``p(k | i) ~ pi_k p_ki``. R is
never stored: with ``z_ij = sum_k pi_k (p q)^beta`` all sums over it are products with the sparse matrix
``n_ij / z_ij``. Only predictive EM (section 5.2), which leaves the occurrence at hand out of the sums from
which its own posterior is computed, keeps it: (non-zero entries x K) numbers in single precision.

Dirichlet priors add unobserved occurrences to the M-step: to each row ``a`` of them, shared out as the
aspects are in all rows, to each aspect ``b``, spread evenly (Wallach, Mimno and McCallum, 2009):

    p(k | i) ~ sum_j n_ij R_ijk + a pi_k,    q_kj ~ sum_i n_ij R_ijk + b / M
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from texseg.counts.matrix import CountMatrix, column_totals, row_blocks, row_totals
from texseg.fitting.assignment import Floats
from texseg.fitting.moves import merged_down
from texseg.models import base
from texseg.models.acm import grown
from texseg.models.base import FLOOR, Model, Rng, Step
from texseg.models.estimator import CooccurrenceEstimator, Data, DensityMixin, Run, best_of, settings


class Aspects(NamedTuple):
    """Parameters of the SMM; every row sums to one."""

    weights: Floats  # (K,), pi
    rows: Floats  # (K, N), p
    columns: Floats  # (K, M), q


_NUMBERS_AT_ONCE = 2**18  # entries x K of predictive EM; a quarter takes 1.3, four times as many 1.7 times
FEW_ROWS = 10  # for every aspect, where settings are chosen on some of the rows
FOLD_IN_STEPS = 30  # EM steps that find the mixing of rows that were not fitted
TILT = 0.92  # factor between the tilts that held-out occurrences decide on
FIRST_PRIORS = {"row_prior": 0.4, "column_prior": 10.0}  # tried first, then twice and half of them


@dataclass(frozen=True)
class AspectModel(Model):
    """The SMM as the driver sees it; see the top of this file for the equations."""

    tilt: float = 1.0
    row_prior: float = 0.0
    column_prior: float = 0.0

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether F, which has no part for the priors, never rises."""
        return self.row_prior == self.column_prior == 0

    def betas(self, beta: float) -> tuple[float, float]:
        """Inverse temperatures of the rows and of the columns, neither above 1 unless ``beta`` is."""
        most = max(beta, 1.0)
        return min(beta * self.tilt, most), min(beta / self.tilt, most)

    def others(self) -> Iterator[tuple[Self, ...]]:
        """Models with neighbouring settings."""
        yield replace(self, tilt=self.tilt / TILT), replace(self, tilt=self.tilt * TILT)
        for name, first in FIRST_PRIORS.items():
            size = getattr(self, name)
            sizes = (2 * size, size / 2 if size > first / 4 else 0.0) if size else (first,)
            yield tuple(replace(self, **{name: other}) for other in sizes)

    def initial(self, n: CountMatrix, n_components: int, rng: Rng) -> Aspects:
        """Return the marginals, with 30 % noise on every entry."""
        sides = [
            base.normalise(totals * (1 + 0.3 * rng.uniform(-1, 1, (n_components, len(totals)))))
            for totals in (row_totals(n), column_totals(n))
        ]
        return Aspects(np.full(n_components, 1.0 / n_components), *sides)

    def start_from(self, n: CountMatrix, rows: Floats, weights: Floats) -> Aspects:
        """Begin with clusters of rows: assignments (N, K) and the weights (K,) of the clusters."""
        totals = row_totals(n)
        rows = base.soften(np.where(totals[:, None] > 0, rows, weights))
        joint = rows * totals[:, None]
        parts = joint.sum(axis=0), joint.T, np.asarray(n.T @ rows, dtype=float).T
        return Aspects(*map(base.normalise, parts))

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One EM iteration over blocks of rows; memory does not grow with non-zeros x K."""
        of_rows, of_columns = self.betas(beta)
        dtype = base.working_dtype(n) if beta <= 1 else np.float64  # products of floors^beta must not vanish
        A = (base.tempered(params.rows, of_rows) * params.weights).astype(dtype, copy=False)
        B = base.tempered(params.columns, of_columns).astype(dtype, copy=False)
        by_row, pulled, energy = pass_over(n, A, B)
        return Step(self.m_step(by_row, pulled * B), energy, None)

    def m_step(self, by_row: Floats, by_column: Floats) -> Aspects:
        """Eq. 7 to 9 and the priors, from expected counts (N, K) of the rows and (M, K) of the columns."""
        weights = base.normalise(by_row.sum(axis=0))
        rows = base.normalise((by_row + self.row_prior * weights).T)
        return Aspects(weights, rows, base.normalise((by_column + self.column_prior / len(by_column)).T))

    def prediction(self, params: Aspects, posteriors: Any = None) -> tuple[Floats, Floats]:
        """``p(k | i)`` (N, K) (Eq. 10; for rows without occurrences, the weights) and ``q`` (K, M)."""
        return shares_of_rows(params.rows, params.weights), params.columns

    def fold_in(self, n: CountMatrix, params: Aspects, beta: float) -> Floats:
        """``p(k | i)`` (N, K) of new rows, by EM steps with ``pi`` and ``q`` fixed."""
        of_rows, of_columns = self.betas(beta)
        B = base.tempered(params.columns, of_columns) * params.weights
        return folded_in(n, params.weights, B, of_rows, self.row_prior)


def pass_over(n: CountMatrix, A: Floats, B: Floats) -> tuple[Floats, Floats, float]:
    """Return expected counts (N, K) of rows, of columns (M, K) but for the factor ``B``, and F.

    ``A`` (N, K) and ``B`` (M, K) hold all factors of the model, with their temperatures.
    """
    by_row, pulled, energy = np.empty(A.shape), np.zeros(B.shape), 0.0
    for rows, block in row_blocks(n):
        a = A[rows]
        z = base.products_at(a, B, base.entry_rows(block), block.indices)
        energy -= float(block.data @ np.log(z, dtype=np.float64))
        ratio = sp.csr_array((block.data / z, block.indices, block.indptr), block.shape)
        by_row[rows] = a * (ratio @ B)
        pulled += ratio.T @ a
    return by_row, pulled, energy


def shares_of_rows(rows: Floats, weights: Floats) -> Floats:
    """``p(k | i)`` (N, K) from ``p(i | k)`` (K, N); for rows without occurrences, the weights (K,)."""
    joint = (rows * weights[:, None]).T
    joint[joint.sum(axis=1) == 0] = weights
    return base.normalise(joint)


def folded_in(n: CountMatrix, weights: Floats, B: Floats, beta: float, prior: float = 0.0) -> Floats:
    """Shares (N, K) of rows in groups of weights (K,), by EM with ``B`` (M, K) fixed; ``prior`` a row."""
    weights = np.maximum(weights, FLOOR)
    mixing = np.empty((n.shape[0], len(weights)))
    for rows, block in row_blocks(n):
        index, share = base.entry_rows(block), np.tile(base.normalise(weights), (block.shape[0], 1))
        for _ in range(FOLD_IN_STEPS):
            # p_ki^beta, up to a factor that depends on the row only, with p_ki ~ p(k | i) / pi_k
            a = np.maximum(share / weights, FLOOR) ** beta
            z = base.products_at(a, B, index, block.indices)
            ratio = sp.csr_array((block.data / z, block.indices, block.indptr), block.shape)
            share = base.normalise(a * (ratio @ B) + prior * weights)
        share[np.diff(block.indptr) == 0] = base.normalise(weights)
        mixing[rows] = share
    return mixing


@dataclass(frozen=True)
class PredictiveAspectModel(AspectModel):
    """The SMM fitted by predictive EM (section 5.2, Appendix B); F may rise."""

    monotone: ClassVar[bool] = False

    def others(self) -> Iterator[tuple[Self, ...]]:
        """None: both sides have the same temperature here."""
        return iter(())

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One iteration, without ``posteriors`` a plain one; F is that of plain EM at ``params``."""
        A, B = base.tempered(params.rows, beta) * params.weights, base.tempered(params.columns, beta)
        K, energy = A.shape[1], 0.0
        entries, by_row, by_column = [], np.zeros((n.shape[0], K)), np.zeros((n.shape[1], K))
        per_row = getattr(n, "nnz", n.shape[0] * n.shape[1]) / n.shape[0]
        blocks = row_blocks(n, max(1, int(_NUMBERS_AT_ONCE / (K * max(1, per_row)))))
        for at, (rows, block) in enumerate(blocks):
            index, columns, data = base.entry_rows(block), block.indices, block.data.astype(np.float32)
            z = base.products_at(A[rows], B, index, columns)
            energy -= float(block.data @ np.log(z))
            if posteriors is None:
                R = base.normalise((A[rows][index] * B[columns]).astype(np.float32))
            else:
                sums = posteriors.by_row[rows][index], posteriors.by_column[columns]
                R = _left_out(posteriors.entries[at], *sums, posteriors.by_row.sum(axis=0), beta)
            entries.append(R)
            by_row[rows] = base.sum_at(R, index, block.shape[0], data)
            by_column += base.sum_at(R, columns, n.shape[1], data)
        return Step(self.m_step(by_row, by_column), energy, Responsibilities(entries, by_row, by_column))


class Responsibilities(NamedTuple):
    """What predictive EM carries from one iteration to the next."""

    entries: list[Floats]  # float32 (entries, K) of every block of rows
    by_row: Floats  # (N, K), expected counts
    by_column: Floats  # (M, K), expected counts


def _left_out(R: Floats, row: Floats, column: Floats, total: Floats, beta: float) -> Floats:
    """Posteriors (entries, K) from all occurrences except the one at hand (Eq. 61 without its diagonal).

    Where no other occurrence says anything, they are uniform ([1] footnote 11).
    """
    joint = np.maximum(row.astype(np.float32) - R, 0) * np.maximum(column.astype(np.float32) - R, 0)
    others = np.maximum(total.astype(np.float32) - R, np.float32(FLOOR))
    if beta == 1:
        return base.normalise(joint / others)
    with np.errstate(divide="ignore"):  # by logarithms: powers take five times as long
        return base.normalise(others * np.exp(np.float32(beta) * np.log(joint / others**2)))


def merged(found: Sequence[Aspects], n_components: int) -> Aspects:
    """Merge the most similar pairs among the aspects of several runs, until ``n_components`` are left."""
    weights = base.normalise(np.concatenate([params.weights for params in found]))
    profiles = np.vstack([np.hstack([params.rows, params.columns]) for params in found])
    weights, profiles, _ = merged_down(weights, profiles, n_components)
    return Aspects(weights, *np.split(profiles, [found[0].rows.shape[1]], axis=1))


@settings
class SMM(DensityMixin, CooccurrenceEstimator):
    """Separable mixture model of co-occurrence counts; the aspect model, PLSA.

    Every occurrence of a pair (row i, column j) comes from one of ``n_components`` aspects, so a row may have
    shares in several of them; compare `ACM`. The source is Hofmann and Puzicha, A.I. Memo 1625, 1998, section
    2.

    Parameters
    ----------
    n_components : int, default=8
        Number of aspects, K; at most the number of rows; see `choose_number`.
    beta : "auto" or float, default="auto"
        Inverse temperature; below 1 it prevents overfitting. "auto" chooses it, for rows and for columns, the
        stopping point and the sizes of Dirichlet priors on held-out occurrences, and takes these in at the
        end. 1 is maximum likelihood, which may predict sparse tables worse than one profile for all rows.
    predictive : bool, default=False
        Leave every occurrence out of the sums that predict its own aspect (section 5.2).
    validation_fraction : float, default=0.1
        Share of the occurrences held out for ``beta="auto"``.
    n_init : int, default=2
        Starts, of which the best is kept: from grown clusters of rows, then random ones. With ``beta="auto"``
        the aspects of all, merged down to K, compete with them, and a second start gains up to 1 %.
    max_iter, tol : int, float, default=100, 1e-5
        Most EM steps at each temperature, which end when three in a row lower F by less than this fraction.
    over_relaxation : bool, default=True
        Lengthen M-steps while that lowers the free energy (section 5.3); not in predictive EM.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : ndarray of shape (K, M)
        ``p(j | k)``, rows sum to one; the heaviest aspect first.
    weights_, mixing_, row_components_ : ndarrays of shape (K,), (N, K) and (K, N)
        ``pi``, ``p(k | i)`` and ``p(i | k)``; rows sum to one.
    labels_ : int ndarray of shape (N,)
        Most probable aspect of every row, from 0.
    beta_, side_betas_, priors_ : float, (float, float), (float, float)
        Inverse temperature; those of rows and columns; unobserved occurrences of every row and every aspect.
    free_energy_, n_iter_, converged_, history_
        F in nats, steps and convergence of the run that was kept, and a `FitRecord` for every step of the
        search, those of the kept run last.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.kron(np.eye(2), np.full((5, 4), 6.0))
    >>> model = SMM(n_components=2, random_state=0).fit(X)
    >>> model.components_.round(2)[model.labels_[0]]
    array([0.25, 0.25, 0.25, 0.25, 0.  , 0.  , 0.  , 0.  ])
    >>> round(model.perplexity(X), 1)
    4.0
    """

    _size_parameters = ("n_components",)
    _beta_factor = 0.92
    _warm = True
    _assigns_rows = False
    score = CooccurrenceEstimator.score

    n_components: int = 8
    predictive: bool = field(default=False, kw_only=True)
    n_init: int = field(default=2, kw_only=True)

    def _model(self, data: Data) -> AspectModel:
        return PredictiveAspectModel() if self.predictive else AspectModel()

    def _starts(self, model: AspectModel, data: Data, rng: Rng) -> Iterator[Aspects]:
        """Grown clusters of rows, which have no doubles, and then random ones."""
        n = base.with_short_rows(data.counts)
        clusters, rows = grown(n, self.n_components, rng)
        yield model.start_from(n, rows, clusters.weights)
        for _ in range(1, self.n_init):
            yield model.initial(n, self.n_components, rng)

    def _fit_run(self, data: Data, rng: Rng) -> tuple[AspectModel, Run]:
        """One run finds all settings; others take them over, and compete with all runs merged down."""
        if data.beta is not None:
            return super()._fit_run(data, rng)
        if FEW_ROWS * self.n_components <= data.share_of_few * data.counts.shape[0] < data.counts.shape[0]:
            return self._from_few_rows(data, rng)
        model, starts = self._model(data), self._starts(self._model(data), data, rng)
        first = self._tempered(model, data, next(starts), rng)
        if not self.predictive:  # both priors and a lower temperature: each alone may be worse than neither
            other, state = replace(model, **FIRST_PRIORS), first.state
            beta = min(state.beta / self._beta_factor**2, 1.0)
            trial = self._descend(other, data, state.params, beta, rng)
            if trial.state.heldout > state.heldout:
                model, state = other, trial.state
            first = Run(state, [*first.history, *trial.history])
        model, first = self._refine(model, first, data, rng)
        if self.n_init == 1:
            return model, first
        beta = first.state.beta
        runs = [first, *(self._descend(model, data, start, beta, rng) for start in starts)]
        together = merged([run.state.params for run in runs], self.n_components)
        last = self._refine(model, self._descend(model, data, together, beta, rng), data, rng)
        return best_of([*((model, run) for run in runs), last])

    def _from_few_rows(self, data: Data, rng: Rng) -> tuple[AspectModel, Run]:
        """Begin with the settings and columns that only some of the rows have found."""
        assert data.validation is not None
        rows = np.flatnonzero(rng.random_sample(data.counts.shape[0]) < data.share_of_few)
        few = Data(data.counts[rows], None, data.validation[rows], None, None)
        model, run = self._fit_run(few, rng)
        of_rows = base.normalise(row_totals(data.counts))
        begun = run.state.params._replace(rows=np.tile(of_rows, (self.n_components, 1)))
        return self._refine(model, self._descend(model, data, begun, run.state.beta, rng), data, rng)

    def _publish(self, model: AspectModel, params: Aspects, posteriors: None) -> None:
        self.weights_, self.row_components_ = params.weights, params.rows
        self.side_betas_, self.priors_ = model.betas(self.beta_), (model.row_prior, model.column_prior)
