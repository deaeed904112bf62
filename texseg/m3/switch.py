"""FiniteM3 by a switch: the mixture of Eq. 7 as a latent choice of the topic space.

With both memberships summed out, Eq. 7 gives a word the probability ::

    p(x | pi1, pi2) = a sum_i pi1_i theta1_ix + b sum_j pi2_j theta2_jx,   a = (1+w)/2,  b = (1-w)/2,

which is also the result of this procedure: throw a switch s (first space with probability a), draw a topic of
the chosen space, draw the word from it. With q(pi1) q(pi2) q(s, z) every update has closed form, and the
bound ::

    sum_dx n_dx log( sum_i e1_di a theta1_ix + sum_j e2_dj b theta2_jx ) - KL(q(pi1)) - KL(q(pi2)),
    e = exp E[log pi],

is never below that of the pairs q(z1) q(z2) of Section 4.2 at the same q(pi1), q(pi2): with pairs, each
part is multiplied by the other side's sum of e, which is at most one, and the factors lose more.

More spaces are more positions of the switch: with shares a_l, sum_l a_l sum_i e_l,di theta_l,ix stands inside
the logarithm, and there is a divergence for each space.

Topics with a Dirichlet prior get a Dirichlet posterior q(theta); theta above is then exp E[log theta].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from texseg.m3.dirichlet import divergence, expected_log
from texseg.models.base import entry_rows, products_at

Array = NDArray[np.float64]


class Topics(NamedTuple):
    """Parameters of the topic spaces."""

    spaces: tuple[Array, ...]
    """For each space (Kl, M): Dirichlet parameters of its topics if these are integrated out, else
    probabilities."""
    shares: Array  # (L,), weights of the spaces, with sum one; (1 + omega) / 2 and (1 - omega) / 2 in Eq. 7
    alpha: Array  # (K1 + ... + KL,), concentration of the memberships in each topic

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

    memory: Array  # Variational parameters of the documents; the next E-step may start from them
    bounds: Array  # (D,), lower bound of the log-likelihood of each document, in nats
    stats: tuple[Array, ...]  # Expected counts; they add over blocks


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
    """Scale rows to sum to one; rows without any count become those of `fallback`."""
    totals = expected.sum(axis=1, keepdims=True)
    return np.where(totals > 0, expected / np.where(totals > 0, totals, 1.0), fallback)


def shares_of(omega: float) -> Array:
    """Weights of the two spaces of Eq. 7."""
    return np.array([(1.0 + omega) / 2.0, (1.0 - omega) / 2.0])


def shares_from(occurrences: Array) -> Array:
    """Find the shares (L,) that fit the occurrences (L,) of each space; of two, the first gets most."""
    if len(occurrences) == 2:
        first, second = occurrences
        return shares_of(float(np.clip((first - second) / (first + second), 0.0, 1.0)))
    return occurrences / occurrences.sum()


class Switch(NamedTuple):
    """Variational inference with the switch."""

    topic_prior: float  # Concentration of the Dirichlet prior of the topics; 0 takes the topics as parameters
    tol: float = 1e-4  # A document is done when its Dirichlet parameters change by less than this on average

    def flat(self, n: sp.csr_array, sizes: tuple[int, ...]) -> Array:
        """Memory (D, K1 + ... + KL) of documents about which nothing is known."""
        return np.ones((n.shape[0], sum(sizes)))

    def expect(
        self, n: sp.csr_array, memory: Array, topics: Topics, max_steps: int, row_weights: Array | None = None
    ) -> Expectation:
        """E-step, started from `memory`, the Dirichlet parameters of all memberships."""
        index, table, gamma, sizes = entry_rows(n), self._table(topics), memory, topics.sizes

        def mix(gamma: Array) -> tuple[Array, Array, sp.csr_array]:
            """Geometric memberships (D, K1 + ...), the mixture of each word (nnz,), and ``n`` over it."""
            memberships = np.exp(expected_log_memberships(gamma, sizes))
            mixture = products_at(memberships, table, index, n.indices).astype(float, copy=False)
            ratio = np.divide(n.data, mixture, out=np.zeros_like(mixture), where=mixture > 0)
            return memberships, mixture, sp.csr_array((ratio, n.indices, n.indptr), n.shape)

        memberships, mixture, ratio = mix(gamma)
        moving = np.ones(len(gamma), bool)
        for _ in range(max_steps):
            updated = topics.alpha + memberships * (ratio @ table)
            moving &= np.abs(updated - gamma).mean(axis=1) > self.tol
            gamma = np.where(moving[:, None], updated, gamma)
            memberships, mixture, ratio = mix(gamma)
            if not moving.any():
                break
        with np.errstate(divide="ignore"):
            bounds = np.bincount(index, n.data * np.log(mixture), n.shape[0]).astype(float)
        bounds -= membership_divergence(gamma, sizes, topics.alpha)
        if row_weights is not None:
            memberships, bounds = memberships * row_weights[:, None], bounds * row_weights
        expected = (table * (ratio.T @ memberships)).T
        return Expectation(gamma, bounds, tuple(np.split(expected, np.cumsum(sizes)[:-1])))

    def maximise(self, stats: tuple[Array, ...], topics: Topics, shares: Array | None) -> Topics:
        """M-step for the topics, and for the shares of the spaces unless they are given."""
        if shares is None:
            shares = shares_from(np.array([counts.sum() for counts in stats]))
        if self.topic_prior > 0:
            spaces = tuple(counts + self.topic_prior for counts in stats)
        else:
            spaces = tuple(normalise_rows(*both) for both in zip(stats, topics.spaces, strict=True))
        return topics._replace(spaces=spaces, shares=shares)

    def topic_bound(self, topics: Topics) -> float:
        """Compute the contribution of the topics' prior to the bound."""
        if self.topic_prior == 0:
            return 0.0
        return -float(sum(divergence(space, self.topic_prior).sum() for space in topics.spaces))

    def means(self, topics: Topics) -> Topics:
        """Return the same with the topics as probabilities."""
        return topics._replace(spaces=tuple(normalise_rows(space, space) for space in topics.spaces))

    def _table(self, topics: Topics) -> Array:
        """Lay the topics out as columns, times the shares of their spaces, (M, K1 + ... + KL)."""
        rows = [np.exp(expected_log(t)) if self.topic_prior > 0 else t for t in topics.spaces]
        return np.vstack([share * t for share, t in zip(topics.shares, rows, strict=True)]).T
