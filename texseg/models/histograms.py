"""Histogram clustering, the asymmetric clustering model as the driver sees it; its equations stand in `acm`.

It stands apart from the estimator `texseg.models.ACM`, so that images can be divided without scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from texseg.counts.matrix import CountMatrix, groups_of
from texseg.counts.sites import BACKGROUND, Sites, mix_background
from texseg.fitting.assignment import Floats, SoftMax
from texseg.models import base
from texseg.models.base import FLOOR, ClusteringModel, Labels, Rng, Stats, Step, Weights

_TINY = 1e-30  # in place of zero


class Profiles(NamedTuple):
    """Parameters of the ACM; for S simultaneous runs there is an axis S before K."""

    profiles: Floats  # (K, M), q; rows sum to one within each group of columns
    weights: Floats  # (K,), rho; sum to one


class Instability(NamedTuple):
    """Where clusters would split: their first phase transitions."""

    beta: Floats
    """(K,), the critical inverse temperature of every cluster; infinite for one that cannot split."""
    directions: Floats  # (M, K), the leading directions, as changes of log q


@dataclass(frozen=True, eq=False)
class HistogramClustering(ClusteringModel):
    """The ACM as the driver sees it; see the top of `texseg.models.acm` for the equations."""

    background: Floats | None = None
    share: float = BACKGROUND

    def profiles(self, params: Profiles) -> Floats:
        """Profiles (..., K, M) with some of the background in each (Eq. 32)."""
        return self._mixed(params.profiles)

    def _mixed(self, profiles: Floats) -> Floats:
        return profiles if self.background is None else mix_background(profiles, self.background, self.share)

    def step(
        self,
        n: CountMatrix,
        params: Profiles,
        beta: float,
        posteriors: Floats | None = None,
        row_weights: Weights = None,
    ) -> Step:
        """One EM iteration; of stored sites without a prior on their map, in one pass over them."""
        if not self._in_one_pass(n, row_weights) or params.profiles.ndim > 2:
            return super().step(n, params, beta, posteriors, row_weights)
        logs, prior = base.log_floored(self.profiles(params), np.float32), base.log_floored(params.weights)
        Q, counts, log_sums = n.passed(logs.T, "soft-max", prior=prior, beta=beta)
        stats = Stats(counts, Q.sum(axis=0, dtype=np.float64))
        return Step(self.m_step(stats, n.groups), -float(log_sums.sum(dtype=np.float64)), Q, stats)

    def _in_one_pass(self, n: CountMatrix, row_weights: Weights) -> bool:
        return (
            row_weights is None and isinstance(n, Sites) and n.is_compiled and type(self.posterior) is SoftMax
        )

    def halved(
        self, n: CountMatrix, Q: Floats, stats: Stats, kept: Stats, beta: float, row_weights: Weights = None
    ) -> tuple[Floats, Stats]:
        """One EM step within every cluster between two halves, of which one is ``kept``.

        Return the fraction (N, K) of each row's share that is kept, and the expected counts of these.
        """
        groups, left = groups_of(n), np.maximum(stats.counts - kept.counts, 0)
        parts = (self._mixed(self.normalised(part, groups)) for part in (kept.counts, left))
        one, other = map(base.log_floored, parts)
        share = (kept.sizes / np.maximum(stats.sizes, _TINY)).clip(0, 1)
        weights = np.stack([share, 1 - share], axis=-1)
        dtype = base.working_dtype(n)
        if self._in_one_pass(n, row_weights):
            odds = -np.diff(np.log(np.maximum(weights, _TINY)))[:, 0]
            ratio = (one - other).T.astype(np.float32)
            halves, counts, _ = n.passed(ratio, "halves", given=Q, prior=odds, beta=beta)
            return halves, Stats(counts, np.einsum("nk,nk->k", Q, halves).astype(np.float64))
        contrast = base.per_site(np.asarray(n @ (one - other).T.astype(dtype), dtype=dtype), row_weights)
        # every cluster is a run of its own; pairs last, each with all of its sites side by side
        pairs = np.stack([contrast.T, np.zeros_like(contrast.T)]).transpose(2, 1, 0)
        halves = self.posterior(pairs, beta, weights, None, row_weights).posteriors[..., 0]
        return halves, self.stats(n, Q * halves, row_weights)

    def m_step(
        self, stats: Stats, groups: Labels, params: Any = None, explained: Floats | None = None
    ) -> Profiles:
        """Eq. 24 and 31 of the memo, for which the old parameters are not needed."""
        return Profiles(self.normalised(stats.counts, groups), base.normalise(stats.sizes))

    def initial(
        self, n: CountMatrix, n_clusters: int, rng: Rng, row_weights: Weights = None, spread: float = 0.05
    ) -> Profiles:
        """Return the marginal profile, ``n_clusters`` times, each entry perturbed by about ``spread``."""
        noise = 1.0 + (spread * rng.uniform(-1, 1, (n_clusters, n.shape[1])) if n_clusters > 1 else 0.0)
        counts = base.mean_profile(n) * noise
        return Profiles(base.normalise_profiles(counts, groups_of(n)), np.full(n_clusters, 1.0 / n_clusters))

    def cluster_energies(self, stats: Stats, groups: Labels) -> Floats:
        """``-sum_j S_kj log q_kj`` (K,) with the best profiles: the energy of every cluster."""
        S = stats.counts
        totals = S.reshape(len(S), int(groups[-1]) + 1, -1).sum(axis=2)
        return (totals * base.log_floored(totals)).sum(axis=1) - (S * base.log_floored(S)).sum(axis=1)

    def n_distinct(self, params: Profiles) -> Any:
        """Count the clusters with members whose profiles differ (by more than 1 % total variation)."""
        if params.profiles.ndim > 2:
            return np.array([self.n_distinct(Profiles(*one)) for one in zip(*params, strict=True)])
        return base.count_distinct(params.profiles[params.weights > FLOOR])

    def with_empty(
        self, params: Profiles, posteriors: Floats, n_clusters: int, groups: Labels
    ) -> tuple[Profiles, Floats]:
        """Add clusters without members, of the mean profile, until there are ``n_clusters``."""
        missing = n_clusters - len(params.weights)
        mean = base.normalise_profiles(params.weights[None] @ params.profiles, groups)
        return Profiles(
            np.concatenate([params.profiles, np.repeat(mean, missing, axis=0)]),
            np.concatenate([params.weights, np.zeros(missing)]),
        ), np.pad(posteriors, ((0, 0), (0, missing)))

    def instabilities(
        self,
        n: CountMatrix,
        params: Profiles,
        Q: Floats,
        rng: Rng,
        row_weights: Weights = None,
        max_iter: int = 50,
        tol: float = 1e-3,
    ) -> Instability:
        """Find the critical inverse temperatures and the directions in which the clusters would split.

        Cluster k becomes unstable when ``beta`` exceeds ``1 / lambda``, with ``lambda`` the largest
        eigenvalue of the Fisher-weighted covariance of its rows, ``D^-1 X^T diag(Q_k / c) X diag(1 / q_k)``
        (``X`` the residuals, ``D`` the cluster's occurrences in each group).
        """
        q, groups, dtype = params.profiles.T, groups_of(n), base.working_dtype(n)
        c = np.ones(n.shape[0]) if row_weights is None else np.maximum(row_weights, FLOOR)
        within = (Q / c[:, None]).astype(dtype)
        occurrences = base.group_sums(np.asarray(n.T @ Q, dtype=np.float64).T, groups).T
        scale = np.where(occurrences > 0, 1.0 / np.maximum(occurrences, FLOOR), 0.0)
        # the inner product of the space of directions, in which the operator is self-adjoint
        metric = q * occurrences
        u = _centred(rng.standard_normal(q.shape), q, groups)
        eigenvalues = np.zeros(q.shape[1])
        for _ in range(max_iter):
            u /= np.sqrt(np.maximum((metric * u * u).sum(axis=0), FLOOR**2))
            if isinstance(n, Sites) and n.is_compiled:
                t, back, _ = n.passed(u.astype(dtype), given=within)
                moved = back.T * scale
            else:
                t = np.asarray(n @ u.astype(dtype))
                moved = np.asarray(n.T @ (within * t), dtype=np.float64) * scale
            before, eigenvalues = eigenvalues, np.einsum("nk,nk,nk->k", within, t, t, dtype=np.float64)
            u = _centred(np.where(q > FLOOR, moved / np.maximum(q, FLOOR), 0.0), q, groups)
            if (np.abs(eigenvalues - before) <= tol * eigenvalues).all():
                break
        with np.errstate(divide="ignore", over="ignore"):
            return Instability(1.0 / eigenvalues, u)


def _centred(u: Floats, q: Floats, groups: Labels) -> Floats:
    """Subtract each group's mean of ``u`` (M, K) under ``q``: directions in which profiles keep their sum."""
    return u - np.broadcast_to(base.group_sums((q * u).T, groups), u.T.shape).T
