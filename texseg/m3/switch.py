"""FiniteM3 by a switch: the mixture of Eq. 7 as a latent choice of the topic space.

With both memberships summed out, Eq. 7 gives a word the probability ::

    p(x | pi1, pi2) = a sum_i pi1_i theta1_ix + b sum_j pi2_j theta2_jx,   a = (1+w)/2,  b = (1-w)/2,

which is also the result of this procedure: throw a switch s (first space with probability a), draw a topic of
the chosen space, draw the word from it. With q(pi1) q(pi2) q(s, z) every update has closed form, and the
bound ::

    sum_dx n_dx log( sum_i e1_di a theta1_ix + sum_j e2_dj b theta2_jx ) - KL(q(pi1)) - KL(q(pi2)),
    e = exp E[log pi],

is never below that of the pairs q(z1) q(z2) of Section 4.2, each part of which is multiplied by the other
side's sum of e, at most one. More spaces are more positions of the switch, with shares a_l. Topics with a
Dirichlet prior get a Dirichlet posterior q(theta); theta above is then exp E[log theta].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaln, psi

from texseg.models.base import entry_rows, normalise, products_at

Array = NDArray[np.float64]

_ALPHAS = 1e-4, 1e4  # range of a concentration that is estimated


class Topics(NamedTuple):
    """Parameters of the topic spaces."""

    spaces: tuple[NDArray[Any], ...]  # (Kl, M): probabilities, or Dirichlet parameters if integrated out
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

    def expect(
        self, n: sp.csr_array, memory: Array, topics: Topics, max_steps: int, row_weights: Array | None = None
    ) -> Expectation:
        """E-step, started from `memory`, the Dirichlet parameters (D, K1 + ...) of all memberships."""
        index, table, gamma, sizes = entry_rows(n), self._table(topics), memory, topics.sizes

        def mix(gamma: Array) -> tuple[Array, Array, sp.csr_array]:
            """Geometric memberships (D, K1 + ...), the mixture of each word (nnz,), and ``n`` over it."""
            memberships = np.exp(np.hstack([expected_log(side) for side in split(gamma, sizes)]))
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
        for side, prior in zip(split(gamma, sizes), split(topics.alpha, sizes), strict=True):
            bounds -= divergence(side, prior)
        if row_weights is not None:
            memberships, bounds = memberships * row_weights[:, None], bounds * row_weights
        expected = (table * (ratio.T @ memberships)).T
        return Expectation(gamma, bounds, tuple(np.split(expected, np.cumsum(sizes)[:-1])))

    def maximise(self, stats: tuple[Array, ...], topics: Topics, shares: Array | None) -> Topics:
        """M-step for the topics, and for the shares of the spaces unless they are given."""
        if shares is None:
            shares = shares_from(np.array([counts.sum() for counts in stats]))
        spaces = tuple(n + self.topic_prior if self.topic_prior > 0 else normalise(n) for n in stats)
        return topics._replace(spaces=spaces, shares=shares)

    def topic_bound(self, topics: Topics) -> float:
        """Compute the contribution of the topics' prior to the bound."""
        if self.topic_prior == 0:
            return 0.0
        return -float(sum(divergence(space, self.topic_prior).sum() for space in topics.spaces))

    def means(self, topics: Topics) -> Topics:
        """Return the same with the topics as probabilities."""
        return topics._replace(spaces=tuple(map(normalise, topics.spaces)))

    def _table(self, topics: Topics) -> Array:
        """Lay the topics out as columns, times the shares of their spaces, (M, K1 + ... + KL)."""
        rows = [np.exp(expected_log(t)) if self.topic_prior > 0 else t for t in topics.spaces]
        return np.vstack([share * t for share, t in zip(topics.shares, rows, strict=True)]).T


# ---- functions of the Dirichlet distribution, and Eq. 10


def expected_log(parameters: Array) -> Array:
    """Return ``E[log p]`` under Dirichlet rows, shape (..., K) as given."""
    return psi(parameters) - psi(parameters.sum(axis=-1, keepdims=True))


def divergence(parameters: Array, prior: Array | float) -> Array:
    """Divergence (...) in nats of Dirichlet rows from the one of parameters `prior`, (K,) or K equal ones."""
    prior = np.broadcast_to(np.asarray(prior, dtype=float), parameters.shape[-1:])
    return (
        gammaln(parameters.sum(axis=-1))
        - gammaln(prior.sum())
        + gammaln(prior).sum()
        - gammaln(parameters).sum(axis=-1)
        + ((parameters - prior) * expected_log(parameters)).sum(axis=-1)
    )


def fit_concentrations(
    parameters: Array, start: Array, weights: Array | None = None, *, equal: bool = False
) -> Array:
    """Find the concentrations (K,) within 1e-4 ... 1e4, ``equal`` or one a component, that maximise Eq. 10.

    ``parameters`` (D, K) are the Dirichlet parameters of every document, ``weights`` (D,) how often each
    counts. The objective is concave.
    """
    K = len(start)
    if K == 1:
        return start
    slope = np.average(expected_log(parameters), axis=0, weights=weights)
    tied = np.ones((1, K)) if equal else np.eye(K)

    def loss(logs: Array) -> tuple[float, Array]:
        alpha = np.exp(logs @ tied)
        value = gammaln(alpha.sum()) - gammaln(alpha).sum() + alpha @ slope
        return -float(value), -tied @ (alpha * (psi(alpha.sum()) - psi(alpha) + slope))

    begin = np.log(np.clip(start, *_ALPHAS))[: len(tied)]
    limits = [np.log(_ALPHAS)] * len(tied)
    exact = {"ftol": 0, "gtol": 1e-10}
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=limits, options=exact)
    return np.exp(found.x @ tied)
