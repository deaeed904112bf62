"""The asymmetric clustering model (ACM): every row belongs to one cluster, every cluster has one profile.

Also known as one-sided clustering, distributional clustering and histogram clustering. With profiles
``q`` (K, M), mixing proportions ``rho`` (K,) and counts ``n`` (N, M), section 3 of the memo:

    scores_ik = sum_j n_ij log q_jk                      the likelihood (Eq. 21), without its constant
    Q_ik      ~ rho_k exp(beta scores_ik)                E-step (Eq. 29, 60); hard: the largest (Eq. 23)
    q_jk      ~ sum_i Q_ik n_ij                          M-step (Eq. 24)
    rho_k     = 1/N sum_i Q_ik                           (Eq. 31)
    p(j | i)  = sum_k Q_ik q_jk                          prediction (Eq. 32)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import softmax

from texseg.counts.blocks import scale_rows
from texseg.counts.matrix import CountMatrix, groups_of, is_implicit, row_totals
from texseg.counts.random import random_state_of
from texseg.fitting.assignment import ArgMax, Floats, SoftMax, Weights
from texseg.fitting.moves import Partition, grow, merged_down
from texseg.models import base
from texseg.models.base import Allowed, Rng
from texseg.models.estimator import ClusterMixin, CooccurrenceEstimator, Data, Run, best_of, settings
from texseg.models.histograms import HistogramClustering, Profiles
from texseg.models.left_out import Caution, LeavesRowsOut, held_totals, rows_of_columns

BACKGROUND_SHARE = 0.1  # share of the background in a mean cluster with which predictive clusterings begin
TURNS = 3  # most times that each side is grown on the other; with two, one planted set in ten is missed
MOST_ROWS = 8000  # rows, drawn at random from larger tables, by which clusters are grown


@dataclass(frozen=True, eq=False)
class PredictiveHistogramClustering(LeavesRowsOut, HistogramClustering):
    """The ACM fitted by predictive EM (section 5.2); F may rise."""


@settings
class OneSided(ClusterMixin, CooccurrenceEstimator):
    """What the ACM and the HACM share: how flat clusters of rows are found."""

    _first_beta = 0.5
    _beta_factor = 0.5

    n_clusters: int = 8
    predictive: bool | None = field(default=None, kw_only=True)

    def _model(self, data: Data) -> HistogramClustering:
        """Rows are left out and a background is chosen with ``beta="auto"``, unless switched off."""
        if data.beta is not None or self.predictive is False:
            return HistogramClustering(SoftMax(data.weights))
        counted = data.counts if data.weights is None else scale_rows(data.counts, np.sign(data.weights))
        totals = row_totals(counted)
        mean = float(totals @ data.rows[:, 0]) / self.n_clusters
        usual = float(np.median(totals[totals > 0])) if totals.any() else 1.0
        mass = mean * BACKGROUND_SHARE / (1 - BACKGROUND_SHARE)
        caution = Caution(rows_of_columns(counted), mass, mean, usual=usual)
        return PredictiveHistogramClustering(SoftMax(data.weights), caution=caution)

    def _fit_run(self, data: Data, rng: Rng) -> tuple[Any, Run]:
        """Where the temperature is chosen, all runs begin with plain clusters at 1, which compete as well."""
        if data.beta is not None:
            return self._fitted(data, rng)
        fixed = data._replace(validation=None, beta=1.0)
        plain = HistogramClustering(SoftMax(data.weights))
        data = data._replace(start=best_of(self._runs(plain, fixed, rng))[1].state.params)
        found = [self._fitted(data, rng)]
        if not self.predictive:
            found.append(self._fitted(data._replace(beta=1.0), rng))
        return best_of(found)

    def _fitted(self, data: Data, rng: Rng) -> tuple[Any, Run]:
        return super()._fit_run(data, rng)

    def _with_all(self, model: Any, run: Run, data: Data, rng: Rng) -> tuple[Any, Run]:
        """Fit plain clusters at temperature 1 anew; others add what was held out, with no step to overfit."""
        if not isinstance(model, LeavesRowsOut) and run.state.beta == 1:
            every = data._replace(counts=data.everything, validation=None, beta=1.0, start=None)
            model, last = self._fitted(every, random_state_of(self.random_state))
            return model, last._replace(history=run.history + last.history)
        if getattr(self, "mixing", "") == "object":
            return super()._with_all(model, run, data, rng)
        new, params, groups = data.validation, run.state.params, groups_of(data.counts)
        scores, before = model.scores(new, params, of=data.counts), run.state.posteriors
        with np.errstate(divide="ignore"):
            Q = softmax(np.log(base.normalise(before)) + run.state.beta * scores, axis=1) * data.rows
        held = held_totals(model, model.node_counts(data.counts, params, before), groups)
        counts = getattr(params, model.profiles_of) * held + model.node_counts(new, params, Q)
        params = params._replace(**{model.profiles_of: base.normalise_profiles(counts, groups)})
        return model, run._replace(state=run.state._replace(params=params, posteriors=Q))

    def _starts(self, model: HistogramClustering, data: Data, rng: Rng) -> Iterator[Any]:
        yield from [None] * self.n_init if data.start is None else [data.start]

    def _runs(self, model: HistogramClustering, data: Data, rng: Rng) -> list[tuple[Any, Run]]:
        """Merge down the clusters of all runs, too; what one run has missed another may have found."""
        runs = super()._runs(model, data, rng)
        if data.beta is None or len(runs) == 1:
            return runs
        found = zip(*(run.state.params for _, run in runs), strict=True)
        profiles, weights = (np.concatenate(parts) for parts in found)
        weights, profiles, _ = merged_down(weights / len(runs), profiles, self.n_clusters)
        plain = HistogramClustering(SoftMax(data.weights))
        start = self._descend(plain, data, Profiles(profiles, weights), data.beta, rng).state.params
        return [*runs, (model, self._descend(model, data, start, data.beta, rng))]


@settings
class ACM(OneSided):
    """Asymmetric clustering model of co-occurrence counts; distributional clustering.

    Every row belongs to one of ``n_clusters`` clusters and all its occurrences come from the profile of that
    cluster. Fitting cools from the first phase transition, splits clusters past their own, and goes on
    splitting one while merging two others as long as that lowers the free energy (Hofmann and Puzicha, A.I.
    Memo 1625, 1998, sections 3 and 5.1).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters, K; at most the number of rows. Fewer are found when the rows do not differ enough.
    assignment : {"soft", "hard"}, default="soft"
        Posterior probabilities with mixing proportions, or only the most probable cluster, at no temperature.
    predictive : bool, optional
        Leave every row out of the profiles by which it is judged (section 5.2), and trust clusters and long
        rows less. By default tried with ``beta="auto"``; only soft assignments.
    beta, n_init, validation_fraction, max_iter, tol, over_relaxation, random_state
        See `SMM`. The clusters of several starts, merged down to K, compete with the best of them.

    Attributes
    ----------
    components_ : ndarray of shape (K, M)
        Profiles ``p(j | k)``, with their share of the background; rows sum to one (in each channel).
    weights_, mixing_, labels_ : ndarrays of shape (K,), (N, K) and (N,)
        Mixing proportions, posterior probabilities of the rows, and most probable clusters, from 0.
    background_share_, row_correlation_ : float
        Share of the background in a cluster of mean size, and correlation between the occurrences of a row
        beyond what its cluster explains, chosen on held-out occurrences; else 0.
    beta_, free_energy_, n_iter_, converged_, history_
        See `SMM`.

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

    assignment: str = "soft"

    def _allowed(self) -> Iterator[Allowed]:
        yield from super()._allowed()
        yield "predictive", self.assignment == "soft" or not self.predictive, 'False with assignment="hard"'

    def _model(self, data: Data) -> HistogramClustering:
        if self.assignment == "hard":
            return HistogramClustering(ArgMax(data.weights))
        if self.predictive and data.beta is not None:
            return PredictiveHistogramClustering(SoftMax(data.weights))
        return super()._model(data)

    def _starts(self, model: HistogramClustering, data: Data, rng: Rng) -> Iterator[Any]:
        if self.assignment == "hard":
            return (grown(data.counts, self.n_clusters, rng, data.weights)[0] for _ in range(self.n_init))
        return super()._starts(model, data, rng)

    def _publish(self, model: HistogramClustering, params: Profiles, posteriors: Floats) -> None:
        self.weights_ = params.weights
        caution = getattr(model, "caution", Caution())
        self.background_share_, self.row_correlation_ = caution.share, caution.correlation


def grown(
    n: CountMatrix, n_clusters: int, rng: Rng, row_weights: Weights = None, doubling: bool = False
) -> tuple[Profiles, Floats]:
    """Grow the best hard partition into (at most) ``n_clusters``: profiles, and hard posteriors (N, K)."""
    few, weights = n, row_weights
    if n.shape[0] > MOST_ROWS and not is_implicit(n):
        rows = np.sort(rng.choice(n.shape[0], MOST_ROWS, replace=False))
        few, weights = n[rows], None if row_weights is None else row_weights[rows]
    model = HistogramClustering(ArgMax(weights))

    def small_enough() -> Iterator[Partition]:
        beyond = False
        for now in grow(model, few, n_clusters, rng=rng, doubling=doubling):
            if len(now.energies) > n_clusters:
                beyond = True
            else:
                yield now
                if beyond:
                    return

    best = max(small_enough(), key=lambda now: (len(now.energies), -now.free_energy))
    clusters = model.with_empty(best.params, best.Q, n_clusters, groups_of(n))[0]
    return clusters, HistogramClustering(ArgMax(row_weights)).step(n, clusters, 1.0).posteriors


@settings
class TwoSided(CooccurrenceEstimator):
    """What the SCM and the PMM share: starts from clusters of both sides."""

    def _starts(self, model: Any, data: Data, rng: Rng) -> Iterator[Any]:
        """Grow clusters of one side on the counts summed over those of the other, in turn (Eq. 44)."""
        n, (K, L) = base.with_short_rows(data.counts), (getattr(self, name) for name in self._size_parameters)
        for _ in range(self.n_init):
            rows = grown(n, K, rng, data.weights, doubling=True)[1]
            for _ in range(TURNS):
                columns = grown(np.asarray(n.T @ rows), L, rng, doubling=True)[1]
                before, rows = rows, grown(np.asarray(n @ columns), K, rng, data.weights, doubling=True)[1]
                pairs = np.count_nonzero(before.T @ rows)
                if pairs == np.count_nonzero(before.any(axis=0)) == np.count_nonzero(rows.any(axis=0)):
                    break  # the same partition
            if getattr(self, "assignment", "soft") == "soft":
                rows, columns = base.soften(rows), base.soften(columns)
            yield model.start_from(data.counts, rows, columns)
