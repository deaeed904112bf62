"""Histogram clustering, the asymmetric clustering model as the driver sees it; its equations stand in `acm`.

It stands apart from the estimator `texseg.models.ACM`, so that images can be divided without scikit-learn.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from texseg.counts.matrix import CountMatrix, groups_of
from texseg.counts.sites import BACKGROUND, Sites, mix_background
from texseg.fitting.assignment import Floats, SoftMax
from texseg.fitting.moves import HALVES_STEPS, POWER_STEPS, Partition
from texseg.models import base
from texseg.models.base import FLOOR, ClusteringModel, Labels, Rng, Stats, Step
from texseg.threads import kernels

_TINY = 1e-30  # in place of zero
SAME_PROFILE = 0.01  # total variation up to which profiles are not distinct


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

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One EM iteration; of stored sites without a prior on their map, in one pass over them."""
        if not self._is_compiled(n) or params.profiles.ndim > 2:
            return super().step(n, params, beta, posteriors)
        (K, M), N = params.profiles.shape, n.shape[0]
        given, new = Profiles(*map(_doubles, params)), Profiles(np.empty((K, M)), np.empty(K))
        stats, planes = Stats(np.empty((K, M)), np.empty(K)), np.empty((K, N), np.float32)
        results = planes, *stats, *new, (energy := np.empty(1))
        kernels.step(*n.scaled, *given, self._behind, *results, N, M, n.n_channels, float(beta), self.share)
        return Step(new, float(energy[0]), planes.T, stats)

    def _is_compiled(self, n: CountMatrix) -> bool:
        is_plain = isinstance(self.posterior, SoftMax) and self.posterior.row_weights is None
        return is_plain and type(self) is HistogramClustering and isinstance(n, Sites) and n.is_compiled

    @property
    def _behind(self) -> Floats | None:
        return None if self.background is None else np.ascontiguousarray(self.background, np.float32)

    def energies(self, n: CountMatrix, stats: Stats, Q: Floats, beta: float) -> Floats:
        """Every cluster's part (K,) of F, with the best parameters for ``Q`` (N, K)."""
        if self._is_compiled(n):
            energies = np.empty(len(stats.sizes))
            kernels.energies(stats.counts, _planes(Q), energies, n.n_channels, float(beta))
            return energies
        S = stats.counts
        totals = S.reshape(len(S), int(groups_of(n)[-1]) + 1, -1).sum(axis=2)
        likelihood = (totals * base.log_floored(totals)).sum(axis=1) - (S * base.log_floored(S)).sum(axis=1)
        return beta * likelihood + self.posterior.cluster_terms(Q)

    def refined(self, n: CountMatrix, now: Partition, beta: float, rng: Rng) -> tuple[Floats, Stats, Floats]:
        """Fractions (N, K) of each row's share that stay if a cluster is halved, what stays, and gains (K,).

        Fresh halves start along the leading direction; all are refined by EM steps within their cluster.
        """
        (K, M), Q, stats, fresh = now.stats.counts.shape, now.Q, now.stats, now.fresh
        n_steps = HALVES_STEPS if fresh.any() else 1
        if self._is_compiled(n):
            halves, kept = _planes(now.halves).copy(), Stats(np.empty((K, M)), np.empty(K))
            starts, gains = _doubles(rng.standard_normal((M, fresh.sum())).T), now.energies.copy()
            given = _planes(Q), halves, fresh, starts, *stats, self._behind, *kept, gains
            sizes = *n.shape, n.n_channels, POWER_STEPS, n_steps
            kernels.halves(*n.scaled, *given, *sizes, float(beta), self.share)
            return halves.T, kept, gains
        halves = now.halves.copy()
        if fresh.any():
            params = Profiles(now.params.profiles[fresh], now.params.weights)
            unstable = self.instabilities(n, params, Q[:, fresh], rng, max_iter=POWER_STEPS)
            halves[:, fresh] = n @ unstable.directions.astype(halves.dtype) > 0
        kept = self.stats(n, Q * halves)
        for _ in range(n_steps):
            halves = self._halved(n, stats, kept, beta)
            kept = self.stats(n, Q * halves)
        left, stay = Stats(*(np.maximum(a - b, 0) for a, b in zip(stats, kept, strict=True))), Q * halves
        parts = (self.energies(n, *part, beta) for part in ((kept, stay), (left, Q - stay)))
        return halves, kept, now.energies - sum(parts)

    def _halved(self, n: CountMatrix, stats: Stats, kept: Stats, beta: float) -> Floats:
        """E-step within every cluster between two halves, of which one is ``kept``: its fractions (N, K)."""
        groups, left = groups_of(n), np.maximum(stats.counts - kept.counts, 0)
        parts = (self._mixed(self.normalised(part, groups)) for part in (kept.counts, left))
        one, other = map(base.log_floored, parts)
        share = (kept.sizes / np.maximum(stats.sizes, _TINY)).clip(0, 1)
        weights = np.stack([share, 1 - share], axis=-1)
        dtype = base.working_dtype(n)
        contrast = np.asarray(n @ (one - other).T.astype(dtype), dtype=dtype)
        # every cluster is a run of its own; pairs last, each with all of its sites side by side
        pairs = np.stack([contrast.T, np.zeros_like(contrast.T)]).transpose(2, 1, 0)
        return base.normalise(self.posterior(pairs, beta, weights).posteriors)[..., 0]

    def m_step(self, stats: Stats, groups: Labels, *_: Any) -> Profiles:
        """Eq. 24 and 31 of the memo, for which the old parameters are not needed."""
        return Profiles(self.normalised(stats.counts, groups), base.normalise(stats.sizes))

    def initial(self, n: CountMatrix, n_clusters: int, rng: Rng, spread: float = 0.05) -> Profiles:
        """Return the marginal profile, ``n_clusters`` times, each entry perturbed by about ``spread``."""
        noise = 1.0 + (spread * rng.uniform(-1, 1, (n_clusters, n.shape[1])) if n_clusters > 1 else 0.0)
        counts = base.mean_profile(n, self.everything(n)) * noise
        return Profiles(base.normalise_profiles(counts, groups_of(n)), np.full(n_clusters, 1.0 / n_clusters))

    def n_distinct(self, params: Profiles) -> Any:
        """Count the clusters with members whose profiles differ."""
        if params.profiles.ndim > 2:
            return np.array([self.n_distinct(Profiles(*one)) for one in zip(*params, strict=True)])
        profiles, number = params.profiles[params.weights > FLOOR], 0
        while len(profiles):
            number += 1
            apart = np.abs(profiles - profiles[0]).sum(axis=1)
            profiles = profiles[apart > 2 * SAME_PROFILE * profiles[0].sum()]
        return number

    def with_empty(
        self, params: Profiles, posteriors: Floats, n_clusters: int, groups: Labels
    ) -> tuple[Profiles, Floats]:
        """Add clusters without members, of the mean profile, until there are ``n_clusters``."""
        missing = n_clusters - len(params.weights)
        mean = base.normalise_profiles(params.weights[None] @ params.profiles, groups)
        profiles = np.concatenate([params.profiles, np.repeat(mean, missing, axis=0)])
        all_of_them = Profiles(profiles, np.pad(params.weights, (0, missing)))
        return all_of_them, np.pad(posteriors, ((0, 0), (0, missing)))

    def instabilities(
        self,
        n: CountMatrix,
        params: Profiles,
        Q: Floats,
        rng: Rng,
        max_iter: int = 50,
        tol: float = 1e-3,
    ) -> Instability:
        """Find the critical inverse temperatures and the directions in which the clusters would split.

        Cluster k becomes unstable when ``beta`` exceeds ``1 / lambda``, with ``lambda`` the largest
        eigenvalue of the Fisher-weighted covariance of its rows, ``D^-1 X^T diag(Q_k) X diag(1 / q_k)``
        (``X`` the residuals, ``D`` the cluster's occurrences in each group).
        """
        q, groups, dtype = params.profiles.T, groups_of(n), base.working_dtype(n)
        within = Q.astype(dtype)
        occurrences = base.group_sums(np.asarray(n.T @ Q, dtype=np.float64).T, groups).T
        scale = np.where(occurrences > 0, 1.0 / np.maximum(occurrences, FLOOR), 0.0)
        # the inner product of the space of directions, in which the operator is self-adjoint
        metric = q * occurrences
        u = _centred(rng.standard_normal(q.shape), q, groups)
        eigenvalues = np.zeros(q.shape[1])
        for _ in range(max_iter):
            u /= np.sqrt(np.maximum((metric * u * u).sum(axis=0), FLOOR**2))
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


def _doubles(values: Floats) -> Floats:
    return np.ascontiguousarray(values, np.float64)


def _planes(values: Floats) -> Floats:
    """Values per site (N, K) as (K, N)."""
    return np.ascontiguousarray(values.T, np.float32)
