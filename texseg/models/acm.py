"""The asymmetric clustering model (ACM): every row belongs to one cluster, every cluster has one profile.

Also known as one-sided clustering, distributional clustering and histogram clustering. With profiles
``q`` (K, M), mixing proportions ``rho`` (K,) and counts ``n`` (N, M), [1]_ section 3:

    scores_ik = sum_j n_ij log q_jk                      the likelihood (Eq. 21), without its constant
    Q_ik      ~ rho_k exp(beta scores_ik)                E-step (Eq. 29, 60); hard: the largest (Eq. 23)
    q_jk      ~ sum_i Q_ik n_ij                          M-step (Eq. 24)
    rho_k     = 1/N sum_i Q_ik                           (Eq. 31)
    p(j | i)  = sum_k Q_ik q_jk                          prediction (Eq. 32)

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin

from texseg.counts.matrix import CountMatrix, groups_of, row_totals
from texseg.counts.sites import BACKGROUND, mix_background
from texseg.fitting.anneal import State, anneal, critical_beta, grow, last_of
from texseg.fitting.assignment import ArgMax, Floats, SoftMax
from texseg.models.base import (
    FLOOR,
    ClusteringModel,
    Stats,
    count_distinct,
    extrapolate,
    group_sums,
    heaviest_first,
    log_floored,
    normalise,
    normalise_profiles,
    per_site,
    working_dtype,
)
from texseg.models.estimator import (
    BACKGROUND_SHARES,
    CooccurrenceEstimator,
    Data,
    check_assignment,
    check_predictive,
    with_short_rows,
)
from texseg.models.left_out import Caution, LeavesRowsOut, left_out_scores, rows_of_columns

COLDER = 4.0
"""How far below the first phase transition the one-sided starts are found (ratio of temperatures)."""

ONE_SIDED_STEPS = 40
"""EM steps of a one-sided start."""

class Profiles(NamedTuple):
    """Parameters of the ACM; for S simultaneous runs there is an axis S before K."""

    profiles: Floats
    """(K, M), ``q``; rows sum to one within each group of columns."""
    weights: Floats
    """(K,), ``rho``; sum to one."""


class Instability(NamedTuple):
    """Where clusters would split: their first phase transitions."""

    beta: Floats
    """(K,), the critical inverse temperature of every cluster; infinite for one that cannot split."""
    directions: Floats
    """(M, K), the leading directions, as changes of ``log q``."""


@dataclass(frozen=True, eq=False)
class HistogramClustering(ClusteringModel):
    """The ACM as the driver sees it; see the top of this file for the equations.

    Parameters
    ----------
    posterior : Posterior, default=SoftMax()
        Turns scores into assignments, see `texseg.fitting.assignment`.
    background : array of shape (M,), optional
        A profile mixed into every cluster, so that what a cluster has not seen is unlikely rather than
        impossible.
    share : float, default=BACKGROUND
        Share of the background in every profile.
    """

    background: Floats | None = None
    share: float = BACKGROUND

    def _mixed(self, profiles: Floats) -> Floats:
        """Profiles (..., M) with some of the background in each."""
        return profiles if self.background is None else mix_background(profiles, self.background, self.share)

    def scores(self, n: CountMatrix, params: Profiles) -> Floats:
        """``sum_j n_ij log q_jk``, shape (N, K), or (N, S, K) of several runs."""
        dtype, profiles = working_dtype(n), self._mixed(params.profiles)
        logs = log_floored(profiles, dtype).reshape(-1, n.shape[1])
        return np.asarray(n @ logs.T, dtype=dtype).reshape(-1, *profiles.shape[:-1])

    def contrast(
        self, n: CountMatrix, one: Profiles, other: Profiles, row_weights: Floats | None = None
    ) -> Floats:
        """Difference of the site scores, computed with a single matrix product."""
        ratio = log_floored(self._mixed(one.profiles)) - log_floored(self._mixed(other.profiles))
        dtype = working_dtype(n)
        return per_site(np.asarray(n @ ratio.T.astype(dtype), dtype=dtype), row_weights)

    def m_step(self, stats: Stats, groups: NDArray[np.intp]) -> Profiles:
        """Eq. 24 and 31 of the memo."""
        return Profiles(self.normalised(stats.counts, groups), normalise(stats.sizes))

    def relax(self, old: Profiles, new: Profiles, eta: float, groups: NDArray[np.intp]) -> Profiles:
        """Over-relaxed profiles and proportions, normalised."""
        return Profiles(
            normalise_profiles(extrapolate(old.profiles, new.profiles, eta), groups),
            normalise(extrapolate(old.weights, new.weights, eta)),
        )

    def initial(
        self,
        n: CountMatrix,
        n_clusters: int,
        rng: np.random.RandomState,
        row_weights: Floats | None = None,
        spread: float = 0.05,
    ) -> Profiles:
        """Return the marginal profile, ``n_clusters`` times, each entry perturbed by about ``spread``."""
        groups = groups_of(n)
        marginal = normalise_profiles(np.asarray(n.T @ np.ones((n.shape[0], 1)), dtype=np.float64).T, groups)
        noise = 1.0 + (spread * rng.uniform(-1, 1, (n_clusters, n.shape[1])) if n_clusters > 1 else 0.0)
        return Profiles(normalise_profiles(marginal * noise, groups), np.full(n_clusters, 1.0 / n_clusters))

    def cluster_energies(self, stats: Stats, groups: NDArray[np.intp]) -> Floats:
        """``-sum_j S_kj log q_kj`` (K,) with the best profiles: the energy of every cluster."""
        S = stats.counts
        totals = np.broadcast_to(group_sums(S, groups), S.shape)
        return -(S * (log_floored(S) - log_floored(totals))).sum(axis=1)

    def n_distinct(self, params: Profiles) -> Any:
        """Count the clusters with members whose profiles differ (by more than 1 % total variation)."""
        if params.profiles.ndim > 2:
            return np.array([self.n_distinct(Profiles(*one)) for one in zip(*params, strict=True)])
        return count_distinct(params.profiles[params.weights > FLOOR])

    def prediction(self, params: Profiles, posteriors: Floats) -> tuple[Floats, Floats]:
        """``Q`` (N, K) and the profiles (K, M) (Eq. 32)."""
        return posteriors, self._mixed(params.profiles)

    def by_weight(self, params: Profiles, posteriors: Floats) -> tuple[Profiles, Floats]:
        """Return parameters and posteriors (N, K) with the heaviest cluster first."""
        order = heaviest_first(params.weights)
        return Profiles(params.profiles[order], params.weights[order]), posteriors[:, order]

    def with_empty(
        self, params: Profiles, posteriors: Floats, n_clusters: int, groups: NDArray[np.intp]
    ) -> tuple[Profiles, Floats]:
        """Add clusters without members, of the mean profile, until there are ``n_clusters``."""
        missing = n_clusters - len(params.weights)
        mean = normalise_profiles(params.weights[None] @ params.profiles, groups)
        return Profiles(
            np.concatenate([params.profiles, np.repeat(mean, missing, axis=0)]),
            np.concatenate([params.weights, np.zeros(missing)]),
        ), np.pad(posteriors, ((0, 0), (0, missing)))

    def instabilities(
        self,
        n: CountMatrix,
        params: Profiles,
        Q: Floats,
        rng: np.random.RandomState,
        row_weights: Floats | None = None,
        max_iter: int = 50,
        tol: float = 1e-3,
    ) -> Instability:
        """Find the critical inverse temperatures and the directions in which the clusters would split.

        Cluster k becomes unstable when ``beta`` exceeds ``1 / lambda``, with ``lambda`` the largest
        eigenvalue of the Fisher-weighted covariance of its rows, ``D^-1 X^T diag(Q_k / c) X diag(1 / q_k)``
        (``X`` the residuals, ``D`` the cluster's occurrences in each group). All clusters share the two
        products of each step of the power iteration.

        Parameters
        ----------
        n : count matrix of shape (N, M)
        params : Profiles
        Q : array of shape (N, K)
            The posteriors; the profiles are their centroids.
        rng : RandomState
            Draws the first vector.
        row_weights : array of shape (N,), optional
        max_iter, tol : int, float
            Stop after ``max_iter`` steps, or when no eigenvalue changes by more than the fraction ``tol``.

        Returns
        -------
        Instability

        Examples
        --------
        Two groups of rows, (9, 1) and (1, 9): all 10 log-odds of a row move together, so the eigenvalue
        is 10 * .8**2 = 6.4 and the transition is at beta = 1 / 6.4.

        >>> n = np.repeat([[9.0, 1.0], [1.0, 9.0]], 50, axis=0)
        >>> model = HistogramClustering()
        >>> start = model.initial(n, 1, None)
        >>> transition = model.instabilities(n, start, np.ones((100, 1)), np.random.RandomState(0))
        >>> float(transition.beta[0].round(4))
        0.1562
        """
        q, groups, dtype = params.profiles.T, groups_of(n), working_dtype(n)
        c = np.ones(n.shape[0]) if row_weights is None else np.maximum(row_weights, FLOOR)
        within = (Q / c[:, None]).astype(dtype)
        occurrences = group_sums(np.asarray(n.T @ Q, dtype=np.float64).T, groups).T
        scale = np.where(occurrences > 0, 1.0 / np.maximum(occurrences, FLOOR), 0.0)
        # the inner product of the space of directions, in which the operator is self-adjoint
        metric = q * occurrences
        u = _centred(rng.standard_normal(q.shape), q, groups)
        eigenvalues = np.zeros(q.shape[1])
        for _ in range(max_iter):
            u /= np.sqrt(np.maximum((metric * u * u).sum(axis=0), FLOOR**2))
            t = np.asarray(n @ u.astype(dtype))
            before, eigenvalues = eigenvalues, np.einsum("nk,nk,nk->k", within, t, t, dtype=np.float64)
            moved = np.asarray(n.T @ (within * t), dtype=np.float64) * scale
            u = _centred(np.where(q > FLOOR, moved / np.maximum(q, FLOOR), 0.0), q, groups)
            if (np.abs(eigenvalues - before) <= tol * eigenvalues).all():
                break
        with np.errstate(divide="ignore", over="ignore"):
            return Instability(1.0 / eigenvalues, u)


def _centred(u: Floats, q: Floats, groups: NDArray[np.intp]) -> Floats:
    """Subtract each group's mean of ``u`` (M, K) under ``q``: directions in which profiles keep their sum."""
    return u - np.broadcast_to(group_sums((q * u).T, groups), u.T.shape).T


@dataclass(frozen=True, eq=False)
class PredictiveHistogramClustering(LeavesRowsOut, HistogramClustering):
    """The ACM fitted by predictive EM ([1]_ section 5.2); F may rise.

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
    """

    def _left_out(self, n: CountMatrix, params: Profiles, Q: Floats) -> tuple[Floats, Floats]:
        groups = groups_of(n)
        in_group = (groups[:, None] == np.arange(groups.max() + 1)).astype(working_dtype(n))
        totals = np.asarray(n @ in_group, dtype=np.float64).T @ Q  # (groups, K), of every cluster
        if self.caution is not None:
            totals += self.caution.mass
        per_count = (1 / np.maximum(totals, FLOOR)).astype(np.float32)[groups]

        def added(rows: slice, index: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
            out = per_count.take(columns, axis=0)
            out *= Q[rows].astype(np.float32).take(index, axis=0)
            return out

        return left_out_scores(n, params.profiles, added)


class ACM(ClusterMixin, CooccurrenceEstimator):
    """Asymmetric clustering model of co-occurrence counts ([1]_ section 3); distributional clustering.

    Every row belongs to one of ``n_clusters`` clusters and all its occurrences come from the profile of that
    cluster. On images, rows are places and columns the bins of filter responses: histogram clustering.

    Fitting cools from the first phase transition, where all rows form one cluster, splits each cluster past
    its own transition, and keeps splitting one cluster while merging two others as long as that lowers the
    free energy ([1]_ section 5.1).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, K; at most the number of rows. Fewer are found when the rows do not differ enough.
    assignment : {"soft", "hard"}, default="soft"
        Posterior probabilities with mixing proportions, or only the most probable cluster, without a
        temperature.
    beta : float or "auto", default=1.0
        Inverse temperature at the end of the annealing; "auto" chooses it, and the moment to stop, on
        held-out occurrences. Only for soft assignments.
    predictive : bool, optional
        Leave every row out of the profiles by which it is judged ([1]_ section 5.2); the default with
        ``beta="auto"``, where clusters and long rows are then also trusted less (`texseg.models.left_out`).
        Only for soft assignments.
    validation_fraction, n_init, max_iter, tol, over_relaxation, random_state
        See `SMM`.

    Attributes
    ----------
    components_ : ndarray of shape (K, M)
        Profiles ``p(j | k)``, including their share of the background; rows sum to one (for images: in each
        channel).
    background_share_ : float
        Share of the background in a cluster of mean size, chosen on held-out occurrences; 0 without
        ``beta="auto"``.
    row_correlation_ : float
        Correlation between the occurrences of a row beyond what its cluster explains, chosen likewise; 0 if
        there is none.
    weights_ : ndarray of shape (K,)
        Mixing proportions.
    mixing_ : ndarray of shape (N, K)
        Posterior probabilities of the rows.
    labels_ : int ndarray of shape (N,)
        Most probable cluster of every row, from 0.
    beta_, free_energy_, n_iter_, converged_, history_
        See `SMM`.

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[9.0, 1.0], [8.0, 2.0], [1.0, 9.0], [0.0, 3.0]])
    >>> model = ACM(n_clusters=2, random_state=0).fit(X)
    >>> bool(model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3])
    True
    >>> bool(model.predict([[0.0, 7.0]])[0] == model.labels_[3])
    True
    """

    _first_beta = 0.5

    def __init__(
        self,
        n_clusters: int = 8,
        assignment: str = "soft",
        *,
        beta: float | str = 1.0,
        predictive: bool | None = None,
        validation_fraction: float = 0.1,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        over_relaxation: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.assignment = assignment
        self.beta = beta
        self.predictive = predictive
        self.validation_fraction = validation_fraction
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.over_relaxation = over_relaxation
        self.random_state = random_state

    def _check_settings(self, owner: str) -> None:
        super()._check_settings(owner)
        check_assignment(owner, self.assignment, self.beta)
        check_predictive(owner, self.predictive)
        if self.assignment == "hard" and self.predictive:
            raise ValueError(f"{owner} can be fitted by predictive EM only with assignment='soft'")

    def _model(self) -> HistogramClustering:
        if self.predictive:
            return PredictiveHistogramClustering()
        return HistogramClustering(ArgMax() if self.assignment == "hard" else SoftMax())

    def _models(self, data: Data) -> list[Any]:
        return predictive_models(data, self.n_clusters) if leaves_out(self) else [self._model()]

    def _start(self, model: HistogramClustering, data: Data, rng: np.random.RandomState) -> Profiles | None:
        if self.assignment == "hard":
            return grown(data.counts, self.n_clusters, rng, data.weights)
        if self.beta == "auto":
            return random_start(model, data, self.n_clusters, rng)
        return None

    def _rivals(self, model: HistogramClustering, data: Data, rng: np.random.RandomState) -> list[Profiles]:
        """If the temperature is to be chosen, random starts compete with grown clusters."""
        return [grown(data.counts, self.n_clusters, rng, data.weights)] if self.beta == "auto" else []

    def _publish(self, model: HistogramClustering, params: Profiles, posteriors: Floats) -> None:
        self.weights_ = params.weights
        caution = getattr(model, "caution", None)
        self.background_share_ = 0.0 if caution is None else caution.share
        self.row_correlation_ = 0.0 if caution is None else caution.correlation


def random_start(
    model: HistogramClustering, data: Data, n_clusters: int, rng: np.random.RandomState
) -> Profiles:
    """Profiles near the mean, far enough apart to separate at once at a low temperature."""
    return model.initial(data.counts, n_clusters, rng, data.weights, spread=0.5)


def leaves_out(estimator: Any) -> bool:
    """Whether rows are left out and a background is chosen: with ``beta="auto"``, unless switched off."""
    return estimator.beta == "auto" and estimator.predictive in (True, None)


def predictive_models(data: Data, n_clusters: int) -> list[PredictiveHistogramClustering]:
    """One model for each share of the background."""
    background, totals = rows_of_columns(data.counts), row_totals(data.counts)
    mean, usual = totals.sum() / n_clusters, float(np.median(totals[totals > 0])) if totals.any() else 1.0
    cautions = (Caution(background, mean * s / (1 - s), mean, usual=usual) for s in BACKGROUND_SHARES)
    return [PredictiveHistogramClustering(caution=caution) for caution in cautions]


def _rank(state: State) -> tuple[int, float]:
    return len(state.params.weights), -state.free_energy


def grown(
    n: CountMatrix, n_clusters: int, rng: np.random.RandomState, row_weights: Floats | None = None
) -> Profiles:
    """Profiles of the best hard partition into ``n_clusters`` found while splitting and merging (see `grow`).

    Fewer clusters have members if the rows do not support that many.
    """
    model, best = HistogramClustering(ArgMax()), None
    for state in grow(model, n, n_clusters, rng=rng, row_weights=row_weights):
        if len(state.params.weights) > n_clusters:
            continue
        if best is None or _rank(state) > _rank(best):
            best = state
    assert best is not None
    return model.with_empty(best.params, best.posteriors, n_clusters, groups_of(n))[0]


def one_sided(
    n: CountMatrix, n_clusters: int, rng: np.random.RandomState, row_weights: Floats | None = None
) -> Floats:
    """Start of a two-sided model: a short soft clustering of the rows, well below the phase transition.

    Parameters
    ----------
    n : count matrix of shape (N, M), or the transpose of one
    n_clusters : int
    rng : RandomState
    row_weights : array of shape (N,), optional
        Number of sites that each row stands for.

    Returns
    -------
    array of shape (N, K), rows sum to one
    """
    model = HistogramClustering()
    beta = COLDER * critical_beta(model, n, rng, row_weights)
    if not np.isfinite(beta):
        return np.full((n.shape[0], n_clusters), 1.0 / n_clusters)
    start = model.initial(n, n_clusters, rng, spread=0.5)
    run = anneal(
        model,
        n,
        [beta],
        row_weights=row_weights,
        start=start,
        rng=rng,
        perturbation=0.0,
        max_steps=ONE_SIDED_STEPS,
    )
    return last_of(run).posteriors


def two_sided(
    n: CountMatrix,
    n_row_clusters: int,
    n_column_clusters: int,
    rng: np.random.RandomState,
    row_weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Cluster the rows (N, K) and the columns (M, L) independently; see `one_sided`.

    Long rows are cut down: at the high temperature of the starts, one could outweigh all others together.
    """
    n = with_short_rows(n)
    return one_sided(n, n_row_clusters, rng, row_weights), one_sided(n.T, n_column_clusters, rng)
