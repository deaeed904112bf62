"""What the two sampled models share: predictions from kept samples, starts, and checks."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.metrics import pair_confusion_matrix
from sklearn.utils.validation import check_is_fitted, validate_data

from texseg.counts.random import random_state_of
from texseg.m3.families import Array, Family, Labels, Params, Rng, SharedGaussians, take
from texseg.m3.gibbs import pair_logs
from texseg.models.base import Allowed, check_settings, is_number, is_whole, whole_numbers
from texseg.models.estimator import BaseEstimator, ClusterMixin, DensityMixin, settings

_BLOCK = 2**20  # densities held at once


class Sample(NamedTuple):
    """One kept state, with the weights of all pairs for one more point."""

    z1: Labels  # (N,)
    z2: Labels  # (N,)
    first: Params  # of the first side, and of unborn components drawn from the prior, if any
    second: Params
    weights: Array  # (components of `first`, components of `second`), sum one
    sizes: tuple[int, int]  # components of each side that are not unborn; these come first

    @property
    def pairs(self) -> Labels:
        """One label for each pair of memberships, (N,)."""
        return self.z1 * self.sizes[1] + self.z2


def representative(partitions: Sequence[Labels]) -> int:
    """Index of the partition with the smallest expected Binder loss (Dahl 2006)."""
    losses = np.zeros(len(partitions), np.int64)
    for s, t in combinations(range(len(partitions)), 2):
        losses[[s, t]] += int(pair_confusion_matrix(partitions[s], partitions[t])[[0, 1], [1, 0]].sum())
    return int(losses.argmin())


def pair_scores(X: Array, first: Params, second: Params, weights: Array, family: Family) -> Array:
    """Log of weight times density for every pair of components, (N, K1 K2)."""
    with np.errstate(divide="ignore"):
        return (pair_logs(X, first, second, family) + np.log(weights)).reshape(len(X), -1)


def waic(X: Array, samples: Sequence[Sample], family: Family) -> float:
    """Estimate the log-density of equally many new points, in nats, by Watanabe's criterion (2010)."""
    logs = _log_densities(X, samples, family)
    means = logsumexp(logs, axis=0) - np.log(len(samples))
    return float((means - logs.var(axis=0, ddof=min(1, len(samples) - 1))).sum())


def _log_densities(X: Array, samples: Sequence[Sample], family: Family) -> Array:
    """Log-density of every point under every sample, (samples, N)."""
    logs = np.empty((len(samples), len(X)))
    for out, sample in zip(logs, samples, strict=True):
        rows = max(1, _BLOCK // sample.weights.size)
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            scores = pair_scores(X[part], sample.first, sample.second, sample.weights, family)
            out[part] = logsumexp(scores, axis=1)
    return logs


@settings
class SampledM3(ClusterMixin, DensityMixin, BaseEstimator):
    """Base of estimators that keep samples of pairs of memberships."""

    _: KW_ONLY
    alpha: float = 1.0
    n_sweeps: int = 200
    burn_in: int = 100
    thin: int = 5
    n_auxiliary: int = 2
    n_start: int = 10
    n_init: int = 1
    random_state: Any = None

    def predict(self, X: Any) -> Labels:
        """Label each point (N,) by its most probable pair; unused pairs get the labels after `labels_`."""
        best = self._best_pairs(X)  # checks first that there has been a fit
        return self._pair_labels[best]

    def predict_memberships(self, X: Any) -> Labels:
        """Find the most probable pair of components of each point in the representative sample, (N, 2)."""
        return np.stack(np.divmod(self._best_pairs(X), self.n_components_[1]), axis=1)

    def score_samples(self, X: Any) -> Array:
        """Compute the log-density (N,) of each point, in nats, averaged over the samples."""
        logs = _log_densities(self._check_new(X), self.samples_, self.family_)
        return logsumexp(logs, axis=0) - np.log(len(self.samples_))

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log-density of a point, in nats."""
        return float(self.score_samples(X).mean())

    def coclustering(self, side: int | None = None) -> Array:
        """Posterior probability (N, N) that points are together on one side (0 or 1), or on both (None)."""
        check_is_fitted(self)
        if side not in (None, 0, 1):
            raise ValueError(f"side must be None, 0 or 1, got {side!r}")
        partitions = [s.pairs if side is None else (s.z1, s.z2)[side] for s in self.samples_]
        return sum((z[:, None] == z[None, :]).astype(float) for z in partitions) / len(partitions)

    def _allowed(self) -> Iterator[Allowed]:
        yield from whole_numbers(self, "thin", "n_auxiliary", "n_start", "n_init", "n_sweeps")
        last = self.n_sweeps - 1
        yield "burn_in", is_whole(self.burn_in, 0) and self.burn_in <= last, f"in 0 ... n_sweeps - 1 = {last}"
        yield "alpha", is_number(self.alpha) and self.alpha > 0, "above 0"
        is_family = not isinstance(self.family, type) and hasattr(self.family, "prepare")
        yield "family", self.family is None or is_family, "None, or one such as SharedGaussians()"

    def _prepared(self, X: Any) -> tuple[np.random.Generator, Array, Family]:
        """Check the settings and the data, and resolve the priors of the family."""
        check_settings(self)
        X = validate_data(self, X, dtype=np.float64)
        seed = random_state_of(self.random_state).randint(2**32, size=4, dtype=np.uint32)
        family = SharedGaussians() if self.family is None else self.family
        return np.random.default_rng(seed), X, family.prepare(X)

    def _best_pairs(self, X: Any) -> Labels:
        """Most probable pair of each point, flattened."""
        X = self._check_new(X)
        return pair_scores(X, *self.components_, self.weights_, self.family_).argmax(axis=1)

    def _check_new(self, X: Any) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=np.float64)

    def _described(self, family: Family, samples: list[Sample]) -> Self:
        """Set the attributes from the kept samples, of which the most representative stands for all."""
        self.family_, self.samples_, self.n_iter_ = family, samples, self.n_sweeps
        best = samples[representative([sample.pairs for sample in samples])]
        K1, K2 = self.n_components_ = best.sizes
        self.memberships_ = np.stack([best.z1, best.z2], axis=1)
        self.components_ = (take(best.first, slice(K1)), take(best.second, slice(K2)))
        weights = best.weights[:K1, :K2]
        self.weights_ = weights / weights.sum()
        used, self.labels_ = np.unique(best.pairs, return_inverse=True)
        unused = np.setdiff1d(np.arange(K1 * K2), used)
        self._pair_labels = np.argsort(np.concatenate([used, unused]))
        return self


def start_labels(X: Array, n_start: int, rng: Rng) -> Labels:
    """Clusters of k-means as a start, numbered without gaps, (N,)."""
    distinct = len(np.unique(X, axis=0))
    means = KMeans(min(n_start, distinct), n_init=1, random_state=int(rng.integers(2**31)))
    return np.unique(means.fit_predict(X), return_inverse=True)[1]
