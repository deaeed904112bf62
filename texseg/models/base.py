"""What all models share: expected counts, profiles, and the interface that the EM driver sees.

A model is a value without state. Its parameters are a NamedTuple of non-negative arrays whose last axis sums
to one (within each group of columns, where that axis runs over features). The driver sees two functions:
``step``, one EM iteration, and ``relax``, a point on the line through two parameter sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray

from texseg.counts.blocks import scale_rows
from texseg.counts.matrix import CountMatrix, groups_of, row_totals
from texseg.fitting.assignment import Floats, Posterior, SoftMax

Labels = NDArray[np.intp]
Rng = np.random.RandomState
Allowed: TypeAlias = tuple[str, bool, str]  # name of a setting, whether it is allowed, and what would be

FLOOR = 1e-12  # probabilities below this count as this much inside logarithms, so that no count is impossible
RELAX_FLOOR = 0.5  # least share of the plain step's probability after an over-relaxed one
LONG_ROW = 20.0  # a row is long that holds so many times the median of the rows
USUAL_ROW = 4.0  # times the median: what starts see of long rows, at most
_PAIRS_AT_ONCE = 2**16  # numbers of a batch of gathered rows; fits the second-level cache


class Stats(NamedTuple):
    """Expected counts of clusters, which add up over rows and images."""

    counts: Floats  # (K, M), sum_i Q_ik n_ij; (S, K, M) of several runs
    sizes: Floats  # (K,), sum_i Q_ik: rows of every cluster; (S, K) of several runs


class Step(NamedTuple):
    """Result of one EM iteration: the new parameters, and what was computed at the old ones."""

    params: Any  # The parameters after the M-step
    free_energy: float  # F in nats at the parameters BEFORE the M-step, with the posteriors of this step
    posteriors: Any  # (N, K), from which the next step may start; None for models of single occurrences
    stats: Any = None  # For clusterings, the expected counts from which the M-step was computed


def working_dtype(n: CountMatrix) -> np.dtype:
    """float64 for a float64 matrix; float32 for float32 and for implicit matrices."""
    return np.dtype(np.float64 if getattr(n, "dtype", np.float32) == np.float64 else np.float32)


def group_sums(rows: Floats, groups: Labels) -> Floats:
    """Sum the columns (..., M) of each of equally large groups, and put the sum back at each column."""
    number = int(groups[-1]) + 1
    if number == 1:
        return rows.sum(axis=-1, keepdims=True)
    sums = rows.reshape(*rows.shape[:-1], number, -1).sum(axis=-1)
    return sums.repeat(rows.shape[-1] // number, axis=-1)


def normalise_profiles(counts: Floats, groups: Labels) -> Floats:
    """Profiles that sum to one within each group; a cluster without counts gets the pooled profile."""
    in_groups = counts.reshape(*counts.shape[:-1], int(groups[-1]) + 1, -1)
    totals = in_groups.sum(axis=-1, keepdims=True)
    if np.count_nonzero(totals) == totals.size:
        return (in_groups / totals).reshape(counts.shape)
    pooled = normalise(in_groups.sum(axis=-3, keepdims=True))
    return np.where(totals > 0, in_groups / np.where(totals > 0, totals, 1), pooled).reshape(counts.shape)


def mean_profile(n: CountMatrix, rows: Floats) -> Floats:
    """Profile (1, M) of all rows together, which count as ``rows`` (N, 1) says."""
    return normalise_profiles(np.asarray(n.T @ rows, dtype=np.float64).T, groups_of(n))


def log_floored(probabilities: Floats, dtype: np.dtype | type = np.float64) -> Floats:
    """``log(max(p, FLOOR))`` in the given dtype."""
    return np.log(np.maximum(probabilities, FLOOR)).astype(dtype, copy=False)


def normalise(weights: Floats) -> Floats:
    """Divide by the sum of the last axis; uniform where that is zero."""
    total = weights.sum(axis=-1, keepdims=True)
    if np.count_nonzero(total) == total.size:
        return weights / total
    safe = np.where(total > 0, total, 1)
    return np.where(total > 0, weights / safe, 1.0 / weights.shape[-1])


def products_at(A: Floats, B: Floats, rows: NDArray[Any], columns: NDArray[Any]) -> Floats:
    """``sum_k A[r, k] B[c, k]`` for every pair (r, c) of the two index arrays."""
    out = np.empty(len(rows), dtype=np.result_type(A, B))
    batch = max(64, _PAIRS_AT_ONCE // A.shape[1])
    for start in range(0, len(rows), batch):
        part = slice(start, start + batch)
        np.einsum("rk,rk->r", A.take(rows[part], axis=0), B.take(columns[part], axis=0), out=out[part])
    return out


def entry_rows(block: scipy.sparse.csr_array) -> Labels:
    """Row of every stored entry of a CSR block."""
    return np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))


def tempered(probabilities: Floats, beta: float) -> Floats:
    """``p^beta`` of (K, N) as a contiguous (N, K), floored so that no occurrence becomes impossible."""
    p = np.maximum(probabilities, FLOOR).T
    return np.ascontiguousarray(p) if beta == 1 else np.ascontiguousarray(p**beta)


def sum_at(values: Floats, index: NDArray[Any], size: int, counts: Any = None) -> Floats:
    """Sum up the entries (entries, K) that share an index, each ``counts`` (entries,) times, to (size, K)."""
    times = np.ones(len(index), values.dtype) if counts is None else counts
    gather = scipy.sparse.csc_array((times, index, np.arange(len(index) + 1)), (size, len(index)))
    return gather @ values


def soften(posteriors: Floats) -> Floats:
    """Mix a tenth of the uniform distribution into posteriors (N, K), so that EM can still change them."""
    return 0.9 * posteriors + 0.1 * posteriors.mean(axis=1, keepdims=True)


def heaviest_first(weights: Floats) -> Labels:
    """Order of the weights (K,), largest first; equal ones stay in their order."""
    return np.argsort(-weights, kind="stable")


def with_short_rows(n: CountMatrix) -> CountMatrix:
    """Cut down long rows, so that no single row determines a start; other rows stay as they are."""
    totals = row_totals(n)
    usual = float(np.median(totals[totals > 0])) if totals.any() else 0.0
    if totals.max(initial=0.0) <= LONG_ROW * usual:
        return n
    return scale_rows(n, np.minimum(1.0, USUAL_ROW * usual / np.maximum(totals, 1.0)))


def is_number(value: Any, kind: type = Real) -> bool:
    """Whether a setting is a number of some kind, which True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether a setting is a whole number, not below the least."""
    return is_number(value, Integral) and value >= least


def whole_numbers(estimator: Any, *names: str) -> Iterator[Allowed]:
    """Demand whole numbers from 1 on of some settings of an estimator."""
    return ((name, is_whole(getattr(estimator, name)), "a whole number of at least 1") for name in names)


def check_settings(estimator: Any) -> None:
    """Raise a ValueError for the first setting of an estimator that is not allowed."""
    for name, is_allowed, allowed in estimator._allowed():
        if not is_allowed:
            owner, value = type(estimator).__name__, getattr(estimator, name)
            raise ValueError(f"{name} of {owner} must be {allowed}, got {value!r}")


class Model:
    """What the models have in common, as the driver sees them."""

    monotone: ClassVar[bool] = True  # Whether the theory says that F never rises
    profiles_of: ClassVar[str] = "profiles"  # The parameter that sums to one in each group of columns
    joint: ClassVar[str] = ""  # A parameter (K, L) that sums to one as a whole
    prediction: ClassVar[Any]
    """Shares (N, R) of the fitted rows in R profiles (R, M), whose product is ``p(j | i)``."""

    def relax(self, old: Any, new: Any, eta: float, groups: Labels) -> Any:
        """Return normalised parameters at ``eta`` on the line from ``old`` to ``new`` ([1] Eq. 63)."""
        line = {}
        for name, before, after in zip(new._fields, old, new, strict=True):
            value = np.maximum(before + eta * (after - before), RELAX_FLOOR * after)
            if name == self.profiles_of:
                line[name] = normalise_profiles(value, groups)
            else:
                line[name] = value / value.sum() if name == self.joint else normalise(value)
        return new._replace(**line)

    def n_distinct(self, params: Any) -> Any:
        """Count the clusters that can be distinguished; all of them, where growth does not ask."""
        return len(params[0])

    def row_posteriors(self, params: Any, posteriors: Any) -> Floats:
        """Probabilities (N, K) of the clusters (aspects) of the fitted rows."""
        return self.prediction(params, posteriors)[0]

    def by_weight(self, params: Any, posteriors: Any) -> tuple[Any, ...]:
        """Return the parameters with the heaviest cluster or aspect first, and (N, K) posteriors."""
        order = heaviest_first(params.weights)
        moved = posteriors[:, order] if isinstance(posteriors, np.ndarray) else None
        return params._make(part[order] for part in params), moved


@dataclass(frozen=True)
class ClusteringModel(Model):
    """Whole rows are assigned to clusters: scores, expected counts, M-step, and a posterior policy."""

    profiles: ClassVar[Any]  # of parameters: profiles (K, M) of the clusters
    m_step: ClassVar[Any]  # parameters from Stats, groups, old parameters and what nodes explain

    posterior: Posterior = field(default_factory=SoftMax)

    def prediction(self, params: Any, posteriors: Any) -> tuple[Floats, Floats]:
        """Posteriors (N, K), of rows that count once, and profiles (K, M)."""
        return normalise(posteriors), self.profiles(params)

    def everything(self, n: CountMatrix) -> Floats:
        """Posteriors (N, 1) of a single cluster: how often each row counts."""
        return self.posterior(np.zeros((n.shape[0], 1)), 1.0, np.ones(1)).posteriors

    def scores(self, n: CountMatrix, params: Any, of: CountMatrix | None = None) -> Floats:
        """Log-likelihood (N, ..., K) of every row; the length that counts may be that of ``of``."""
        profiles, dtype = self.profiles(params), working_dtype(n)
        logs = log_floored(profiles, dtype).reshape(-1, n.shape[1])
        return np.asarray(n @ logs.T, dtype).reshape(-1, *profiles.shape[:-1])

    def stats(self, n: CountMatrix, Q: Floats) -> Stats:
        """Sum up the expected counts of every cluster under the posteriors ``Q`` (N, K) or (N, S, K)."""
        flat = Q.reshape(len(Q), -1)
        counts = np.asarray(n.T @ flat, dtype=np.float64).T.reshape(*Q.shape[1:], n.shape[1])
        return Stats(counts, np.einsum("n...->...", Q, dtype=np.float64))

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One EM iteration at inverse temperature ``beta``."""
        scores, explained = self.judged(n, params, posteriors)
        Q, free_energy = self.posterior(scores, beta, params.weights, posteriors)
        stats = self.stats(n, Q)
        return Step(self.m_step(stats, groups_of(n), params, explained), free_energy, Q, stats)

    def judged(self, n: CountMatrix, params: Any, posteriors: Any) -> tuple[Floats, Floats | None]:
        """Scores (N, K), and what each node explains in each cluster (K, V), where it is known already."""
        return self.scores(n, params), None

    def normalised(self, counts: Floats, groups: Labels) -> Floats:
        """Profiles (..., M) of expected counts, each summing to one within each group of columns."""
        return normalise_profiles(counts, groups)

    def node_counts(self, n: CountMatrix, params: Any, Q: Floats) -> Floats:
        """Compute the expected counts of the nodes, which are here the clusters, (K, M)."""
        return self.stats(n, Q).counts

    def shares_of_nodes(self, params: Any) -> Floats | None:
        """Shares (K, V) of the nodes in the clusters; None where they are the same."""
        return None

    def fold_in(self, n: CountMatrix, params: Any, beta: float) -> Floats:
        """Posteriors (N, K) of other rows, the parameters fixed."""
        return self.posterior(self.scores(n, params), beta, params.weights).posteriors
