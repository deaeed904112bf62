"""What the two sampled models share: predictions from kept samples, starts, and checks.

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted, validate_data

from texseg.counts.random import random_state_of
from texseg.m3.families import Family, Params, take
from texseg.m3.samples import Sample, coclustering, density, pair_scores, representative

__all__ = ["SampledM3", "check_alpha", "check_sampling", "generator", "start_labels"]

Array = NDArray[np.float64]
Labels = NDArray[np.intp]


class SampledM3(ClusterMixin, DensityMixin, BaseEstimator):
    """Base of estimators that keep samples of pairs of memberships."""

    samples_: list[Sample]
    family_: Family
    memberships_: Labels
    labels_: Labels
    n_components_: tuple[int, int]
    components_: tuple[Params, Params]
    weights_: Array

    def predict(self, X: Any) -> Labels:
        """Label each point by its most probable pair in the representative sample, (N,).

        Pairs without training points get labels from ``labels_.max() + 1`` on.
        """
        best = self._best_pairs(X)
        return self._pair_labels.ravel()[best]

    def predict_memberships(self, X: Any) -> Labels:
        """Find the most probable pair of components of each point in the representative sample, (N, 2)."""
        best = self._best_pairs(X)
        return np.stack(np.divmod(best, self.n_components_[1]), axis=1)

    def score_samples(self, X: Any) -> Array:
        """Compute the log-density of each point, averaged over the samples (Section 5.1), in nats, (N,).

        The probability that every sample leaves to new components is included, by one draw from the prior
        each, so that the density integrates to one.
        """
        check_is_fitted(self)
        return density(validate_data(self, X, reset=False, dtype=np.float64), self.samples_, self.family_)

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log-density of a point, in nats."""
        return float(self.score_samples(X).mean())

    def coclustering(self, side: int | None = None) -> Array:
        """Compute the posterior probability that two training points are together.

        Parameters
        ----------
        side : {0, 1}, optional
            The membership to compare; by default both must agree.

        Returns
        -------
        ndarray of shape (N, N)
        """
        check_is_fitted(self)
        if side not in (None, 0, 1):
            raise ValueError(f"side must be None, 0 or 1, got {side!r}")
        if side is None:
            return coclustering([sample.pairs for sample in self.samples_])
        return coclustering([(sample.z1, sample.z2)[side] for sample in self.samples_])

    def _best_pairs(self, X: Any) -> Labels:
        """Most probable pair of each point, flattened."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = pair_scores(X, *self.components_, self.weights_, self.family_)
        return scores.reshape(len(scores), -1).argmax(axis=1)

    def _describe(self) -> None:
        """Set the attributes from the most representative of the kept samples."""
        best = self.samples_[representative([sample.pairs for sample in self.samples_])]
        K1, K2 = self.n_components_ = best.sizes
        self.memberships_ = np.stack([best.z1, best.z2], axis=1)
        self.components_ = (take(best.first, slice(K1)), take(best.second, slice(K2)))
        weights = best.weights[:K1, :K2]
        self.weights_ = weights / weights.sum()
        self._pair_labels, self.labels_ = _label_pairs(best)


def generator(random_state: Any) -> np.random.Generator:
    """Make a generator from what scikit-learn accepts as random state, or continue one."""
    return np.random.default_rng(random_state_of(random_state).randint(2**32, size=4, dtype=np.uint32))


def check_sampling(estimator: Any, at_least_one: tuple[str, ...]) -> None:
    """Check the settings of a Gibbs run."""
    owner = type(estimator).__name__
    for name in (*at_least_one, "n_sweeps"):
        value = getattr(estimator, name)
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} of {owner} must be a whole number of at least 1, got {value!r}")
    if not 0 <= estimator.burn_in < estimator.n_sweeps:
        raise ValueError(
            f"burn_in of {owner} must lie in 0 ... n_sweeps - 1 = {estimator.n_sweeps - 1}, got"
            f" {estimator.burn_in!r}"
        )


def start_labels(X: Array, n_start: int, rng: np.random.Generator) -> Labels:
    """Clusters of k-means as a start, numbered without gaps, (N,)."""
    distinct = len(np.unique(X, axis=0))
    means = KMeans(min(n_start, distinct), n_init=1, random_state=int(rng.integers(2**31)))
    return np.unique(means.fit_predict(X), return_inverse=True)[1]


def check_alpha(estimator: Any) -> None:
    """Check the concentration."""
    if not estimator.alpha > 0:
        raise ValueError(f"alpha of {type(estimator).__name__} must be above 0, got {estimator.alpha!r}")


def _label_pairs(sample: Sample) -> tuple[Labels, Labels]:
    """Label the pairs, used ones first: a table (K1, K2) of all labels, and those of the points (N,)."""
    used, labels = np.unique(sample.pairs, return_inverse=True)
    n_pairs = sample.sizes[0] * sample.sizes[1]
    table = np.empty(n_pairs, np.intp)
    table[np.concatenate([used, np.setdiff1d(np.arange(n_pairs), used)])] = np.arange(n_pairs)
    return table.reshape(sample.sizes), labels
