"""The kept samples of a Gibbs run, and what they say about memberships and densities.

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp

from texseg.m3.families import Family, Params
from texseg.m3.gibbs import pair_logs

__all__ = ["Sample", "coclustering", "density", "pair_scores", "representative", "waic"]

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

_BLOCK = 2**20  # densities held at once


class Sample(NamedTuple):
    """One kept state, with the weights of all pairs for one more point."""

    z1: Labels
    """(N,)."""
    z2: Labels
    """(N,)."""
    first: Params
    """Parameters of the components of the first side, and of unborn ones drawn from the prior, if any."""
    second: Params
    """Likewise for the second side."""
    weights: Array
    """(components of `first`, components of `second`), sum one."""
    sizes: tuple[int, int]
    """Number of components of each side that are not unborn; these come first."""

    @property
    def pairs(self) -> Labels:
        """One label for each pair of memberships, (N,)."""
        return self.z1 * self.sizes[1] + self.z2


def representative(partitions: Sequence[Labels]) -> int:
    """Index of the partition with the smallest expected Binder loss under all of them (Dahl 2006).

    The loss counts pairs of points on which two partitions disagree, by their contingency tables, so that
    no N x N matrix is needed.
    """
    tables = [
        sp.csr_array((np.ones(len(z)), (np.arange(len(z)), np.unique(z, return_inverse=True)[1])))
        for z in partitions
    ]
    together = [float((table.sum(axis=0) ** 2).sum()) for table in tables]
    losses = np.zeros(len(tables))
    for s, one in enumerate(tables):
        for t in range(s):
            shared = float(((one.T @ tables[t]).data ** 2).sum())
            loss = together[s] + together[t] - 2.0 * shared
            losses[s] += loss
            losses[t] += loss
    return int(losses.argmin())


def coclustering(partitions: Sequence[Labels]) -> Array:
    """Share of the partitions in which two points are together, (N, N)."""
    return sum((z[:, None] == z[None, :]).astype(float) for z in partitions) / len(partitions)


def pair_scores(X: Array, first: Params, second: Params, weights: Array, family: Family) -> Array:
    """Log of weight times density for every pair of components, (N, K1, K2)."""
    with np.errstate(divide="ignore"):
        return pair_logs(X, first, second, family) + np.log(weights)


def density(X: Array, samples: Sequence[Sample], family: Family) -> Array:
    """Log of the predictive density, averaged over the samples (Section 5.1 of [1]), (N,)."""
    return logsumexp(_log_densities(X, samples, family), axis=0) - np.log(len(samples))


def waic(X: Array, samples: Sequence[Sample], family: Family) -> float:
    """Estimate the log-density of equally many new points by Watanabe's criterion (2010), in nats.

    For every training point: the log of its mean density, less the variance of its log-density over samples.
    """
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
            out[part] = logsumexp(
                pair_scores(X[part], sample.first, sample.second, sample.weights, family), axis=(1, 2)
            )
    return logs
