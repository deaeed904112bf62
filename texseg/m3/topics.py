"""Topics, and the words of a block of documents, of FiniteM3.

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.m3.dirichlet import divergence, expected_log

__all__ = [
    "Array",
    "Expectation",
    "Topics",
    "expected_log_memberships",
    "membership_divergence",
    "normalise_rows",
    "shares_from",
    "shares_of",
    "split",
]

Array = NDArray[np.float64]


class Topics(NamedTuple):
    """Parameters of the topic spaces."""

    spaces: tuple[Array, ...]
    """For each space (Kl, M): Dirichlet parameters of its topics if these are integrated out, else
    probabilities."""
    shares: Array
    """(L,), weights of the spaces, with sum one; (1 + omega) / 2 and (1 - omega) / 2 in Eq. 7."""
    alpha: Array
    """(K1 + ... + KL,), concentration of the memberships in each topic."""

    @property
    def omega(self) -> float:
        """Sharing parameter of Eq. 7, of two spaces."""
        return float(1 - 2 * self.shares[1])

    @property
    def sizes(self) -> tuple[int, ...]:
        """K1 ... KL."""
        return tuple(len(space) for space in self.spaces)


class Expectation(NamedTuple):
    """What an E-step on a block of documents returns."""

    memory: Array
    """Variational parameters of the documents; the next E-step may start from them."""
    bounds: Array
    """(D,), lower bound of the log-likelihood of each document, in nats."""
    stats: tuple[Array, ...]
    """Expected counts; they add over blocks."""


def split(values: Array, sizes: tuple[int, ...]) -> list[Array]:
    """Split the last axis, (K1 + ... + KL,), into the spaces."""
    return np.split(values, np.cumsum(sizes)[:-1], axis=-1)


def expected_log_memberships(gamma: Array, sizes: tuple[int, ...]) -> Array:
    """Return ``E[log pi]`` of all spaces, side by side, (D, K1 + ... + KL)."""
    return np.hstack([expected_log(side) for side in split(gamma, sizes)])


def membership_divergence(gamma: Array, sizes: tuple[int, ...], alpha: Array) -> Array:
    """Compute the divergence of q(pi1) ... q(piL) from their priors, (D,), in nats."""
    sides = zip(split(gamma, sizes), split(alpha, sizes), strict=True)
    return np.sum([divergence(side, prior) for side, prior in sides], axis=0)


def normalise_rows(expected: Array, fallback: Array) -> Array:
    """Scale rows to sum to one; rows without any count are taken from `fallback`."""
    totals = expected.sum(axis=1, keepdims=True)
    return np.where(totals > 0, expected / np.where(totals > 0, totals, 1.0), fallback)


def shares_of(omega: float) -> Array:
    """Weights of the two spaces of Eq. 7."""
    return np.array([(1.0 + omega) / 2.0, (1.0 - omega) / 2.0])


def shares_from(occurrences: Array) -> Array:
    """Find the shares that fit the occurrences (L,) explained by each space; exact (the problem is concave).

    Of two spaces the first has at least half, since omega lies in 0 ... 1.
    """
    if len(occurrences) == 2:
        first, second = occurrences
        return shares_of(float(np.clip((first - second) / (first + second), 0.0, 1.0)))
    return occurrences / occurrences.sum()
