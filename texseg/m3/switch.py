"""FiniteM3 by a switch: the two-part mixture of Eq. 7 as a latent choice of the topic space.

With both memberships summed out, Eq. 7 gives a word the probability ::

    p(x | pi1, pi2) = a sum_i pi1_i theta1_ix + b sum_j pi2_j theta2_jx,   a = (1+w)/2,  b = (1-w)/2,

which is also the law of: throw a switch s (first space with probability a), draw one topic of the chosen
space, draw the word from it. With q(pi1) q(pi2) q(s, z) every update is closed, and the bound ::

    sum_dx n_dx log( sum_i e1_di a theta1_ix + sum_j e2_dj b theta2_jx ) - KL(q(pi1)) - KL(q(pi2)),
    e = exp E[log pi],

is never below that of the pairs q(z1) q(z2) of Section 4.2 at the same q(pi1), q(pi2): with pairs, each
part is multiplied by the other side's sum of e, which is at most one, and the factors lose more.

Topics with a Dirichlet prior get a Dirichlet posterior q(theta); theta above is then exp E[log theta].

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from texseg.m3.dirichlet import divergence, expected_log
from texseg.m3.topics import (
    Array,
    Expectation,
    Topics,
    Words,
    expected_log_memberships,
    membership_divergence,
    normalise_rows,
    omega_from,
)

__all__ = ["Switch"]


class Switch(NamedTuple):
    """Variational inference with the switch; `Inference` says what each method does."""

    topic_prior: float
    """Concentration of the Dirichlet prior of the topics; 0 takes the topics as parameters."""
    tol: float = 1e-4
    """A document is done when its Dirichlet parameters change by less than this on average."""

    def flat(self, n: sp.csr_array, sizes: tuple[int, int]) -> Array:  # noqa: D102
        return np.ones((n.shape[0], sum(sizes)))

    def expect(self, n: sp.csr_array, memory: Array, topics: Topics, max_steps: int) -> Expectation:  # noqa: D102
        words, table, gamma = Words.of(n), self._table(topics), memory
        K1 = len(topics.first)
        memberships, mixture = _mix(words, gamma, table, K1)
        moving = np.ones(len(gamma), bool)
        for _ in range(max_steps):
            updated = topics.alpha + memberships * (_ratio(words, mixture) @ table)
            moving &= np.abs(updated - gamma).mean(axis=1) > self.tol
            gamma = np.where(moving[:, None], updated, gamma)
            memberships, mixture = _mix(words, gamma, table, K1)
            if not moving.any():
                break
        expected = (table * (_ratio(words, mixture).T @ memberships)).T
        with np.errstate(divide="ignore"):
            bounds = words.per_document(n.data * np.log(mixture))
        bounds -= membership_divergence(gamma, K1, topics.alpha)
        return Expectation(gamma, bounds, (expected[:K1], expected[K1:]))

    def choose(self, n: sp.csr_array, better: NDArray[np.bool_], one: Array, other: Array) -> Array:  # noqa: D102
        return np.where(better[:, None], one, other)

    def gamma(self, memory: Array) -> Array:  # noqa: D102
        return memory

    def maximise(self, stats: tuple[Array, ...], topics: Topics, omega: float | None) -> Topics:  # noqa: D102
        first, second = stats
        if omega is None:
            omega = omega_from(first.sum(), second.sum())
        if self.topic_prior > 0:
            return topics._replace(
                first=first + self.topic_prior, second=second + self.topic_prior, omega=omega
            )
        return topics._replace(
            first=normalise_rows(first, topics.first),
            second=normalise_rows(second, topics.second),
            omega=omega,
        )

    def topic_bound(self, topics: Topics) -> float:  # noqa: D102
        if self.topic_prior == 0:
            return 0.0
        return -float(sum(divergence(t, self.topic_prior).sum() for t in topics[:2]))

    def means(self, topics: Topics) -> Topics:  # noqa: D102
        return topics._replace(
            first=normalise_rows(topics.first, topics.first),
            second=normalise_rows(topics.second, topics.second),
        )

    def _table(self, topics: Topics) -> Array:
        """Lay ``a theta1`` and ``b theta2`` out as columns, (M, K1 + K2)."""
        rows = [np.exp(expected_log(t)) if self.topic_prior > 0 else t for t in topics[:2]]
        return np.vstack([share * t for share, t in zip(topics.shares, rows, strict=True)]).T


def _mix(words: Words, gamma: Array, table: Array, K1: int) -> tuple[Array, Array]:
    """Geometric memberships (D, K1 + K2) and what they make of each occurring word (nnz,)."""
    memberships = np.exp(expected_log_memberships(gamma, K1))
    return memberships, words.mixed(memberships, table)


def _ratio(words: Words, mixture: Array) -> sp.csr_array:
    counts = words.counts.data
    return words.with_values(np.divide(counts, mixture, out=np.zeros_like(mixture), where=mixture > 0))
