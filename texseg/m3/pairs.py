"""FiniteM3 as printed: mean field over pairs of memberships (Section 4.2 and Eq. 9-12 of [1]).

Each word has q(z1) q(z2); the topics and omega maximise Eq. 11, which depends on the documents only through
S_xij = sum_dn phi1_dni phi2_dnj [w_dn = x]. Two ways to maximise it are implemented: the quadratic penalties
with L-BFGS of Eq. 12 (the "- 2" in its second penalty is a misprint for "- 1", as rows are probabilities),
and EM on the two-part mixture inside the logarithm, which satisfies the constraints by itself.

A topic prior t > 0 adds t log theta to the objective: the posterior mode under Dirichlet(1 + t).

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax, xlogy

from texseg.m3.topics import (
    Array,
    Expectation,
    Topics,
    Words,
    expected_log_memberships,
    membership_divergence,
    normalise_rows,
    shares_from,
    shares_of,
)

__all__ = ["PairInference", "PairMemory", "pair_objective", "penalised_objective"]

_FLOOR = 1e-100  # replaces a probability of zero in logarithms
_EM_STEPS = 20
_ROUNDS, _GROWTH, _VIOLATION = 6, 10.0, 1e-4  # of the penalties
_CHUNK = 2**21  # numbers a chunk of words may need


class PairMemory(NamedTuple):
    """Variational parameters of a block of documents."""

    gamma: Array
    """(D, K1 + K2)."""
    phi: Array
    """(nnz, K2), memberships of each distinct word of each document in the second space."""


class PairInference(NamedTuple):
    """Variational inference with pairs; `Inference` says what each method does."""

    topic_prior: float
    penalty: bool
    """Maximise Eq. 12 by L-BFGS; otherwise Eq. 11 by EM."""
    tol: float = 1e-4

    def flat(self, n: sp.csr_array, sizes: tuple[int, ...]) -> PairMemory:  # noqa: D102
        return PairMemory(np.ones((n.shape[0], sum(sizes))), np.full((n.nnz, sizes[1]), 1.0 / sizes[1]))

    def expect(self, n: sp.csr_array, memory: PairMemory, topics: Topics, max_steps: int) -> Expectation:  # noqa: D102
        words, logs = Words.of(n), _pair_logs(topics)
        gamma, phi = memory
        log_pi = expected_log_memberships(gamma, topics.sizes)
        first, phi = _update_words(words, phi, log_pi, logs)
        for _ in range(max_steps):
            updated = topics.alpha + _document_sums(words, np.hstack([first, phi]))
            change = np.abs(updated - gamma).mean()
            gamma = updated
            log_pi = expected_log_memberships(gamma, topics.sizes)
            first, phi = _update_words(words, phi, log_pi, logs)
            if change < self.tol:
                break
        both = np.hstack([first, phi])
        local = (both * log_pi[words.rows] - xlogy(both, both)).sum(axis=1) + _pair_terms(
            words, first, phi, logs
        )
        bounds = words.per_document(n.data * local) - membership_divergence(gamma, topics.sizes, topics.alpha)
        return Expectation(PairMemory(gamma, phi), bounds, (_pair_counts(words, first, phi),))

    def choose(  # noqa: D102
        self, n: sp.csr_array, better: NDArray[np.bool_], one: PairMemory, other: PairMemory
    ) -> PairMemory:
        entries = better[Words.of(n).rows]
        return PairMemory(
            np.where(better[:, None], one.gamma, other.gamma),
            np.where(entries[:, None], one.phi, other.phi),
        )

    def gamma(self, memory: PairMemory) -> Array:  # noqa: D102
        return memory.gamma

    def maximise(self, stats: tuple[Array, ...], topics: Topics, shares: Array | None) -> Topics:  # noqa: D102
        omega = None if shares is None else float(1 - 2 * shares[1])
        if not self.penalty:
            return _maximise_by_em(stats[0], topics, omega, self.topic_prior)
        proposal = _maximise_by_penalties(stats[0], topics, omega, self.topic_prior)
        better = pair_objective(stats[0], proposal, self.topic_prior) > pair_objective(
            stats[0], topics, self.topic_prior
        )
        return proposal if better else topics

    def topic_bound(self, topics: Topics) -> float:  # noqa: D102
        return self.topic_prior * sum(float(np.log(np.maximum(t, _FLOOR)).sum()) for t in topics.spaces)

    def means(self, topics: Topics) -> Topics:  # noqa: D102
        return topics


def pair_objective(S: Array, topics: Topics, topic_prior: float = 0.0) -> float:
    """Compute Eq. 11 for the statistics `S` (M, K1, K2), plus the log-prior of the topics; in nats."""
    return float((S * _pair_logs(topics)).sum()) + PairInference(topic_prior, False).topic_bound(topics)


def penalised_objective(
    vector: Array, S: Array, weights: Array, omega: float | None, topic_prior: float = 0.0
) -> tuple[float, Array]:
    """Compute Eq. 12 (to be minimised) and its gradient.

    Parameters
    ----------
    vector : array of shape ((K1 + K2) * M + 1,)
        theta1, theta2 and omega, one after the other.
    S : array of shape (M, K1, K2)
    weights : array of shape (K1 + K2,)
        The lambda and eta of Eq. 12.
    omega : float or None
        A given omega is used in place of the last entry, whose gradient is then zero.
    topic_prior : float

    Returns
    -------
    value : float
    gradient : array, shape of `vector`
    """
    M, K1, K2 = S.shape
    theta = vector[:-1].reshape(K1 + K2, M)
    a, b = (1 + vector[-1]) / 2, (1 - vector[-1]) / 2
    if omega is not None:
        a, b = (1 + omega) / 2, (1 - omega) / 2
    first, second = theta[:K1].T[:, :, None], theta[K1:].T[:, None, :]
    mixed = np.maximum(a * first + b * second, _FLOOR)
    slope = S / mixed
    excess = theta.sum(axis=1) - 1.0
    safe = np.maximum(theta, _FLOOR)
    value = (
        -(S * np.log(mixed)).sum()
        + 0.5 * (weights * excess**2).sum()
        - topic_prior * np.log(safe).sum()
    )
    gradient = np.vstack([-a * slope.sum(axis=2).T, -b * slope.sum(axis=1).T])
    gradient += (weights * excess)[:, None] - topic_prior / safe
    by_omega = 0.0 if omega is not None else -0.5 * float((slope * (first - second)).sum())
    return float(value), np.append(gradient.ravel(), by_omega)


def _maximise_by_penalties(S: Array, topics: Topics, omega: float | None, topic_prior: float) -> Topics:
    """Eq. 12: small penalties first, then ten times larger where a row still violates its constraint."""
    M, K1, K2 = S.shape
    total = S.sum()
    vector = np.append(np.vstack(topics.spaces).ravel(), topics.omega)
    weights = np.full(K1 + K2, 0.1)
    bounds = [(1e-12, 1.0)] * ((K1 + K2) * M) + [(0.0, 1.0)]
    for _ in range(_ROUNDS):
        found = minimize(
            penalised_objective,
            vector,
            args=(S / total, weights, omega, topic_prior / total),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 50},
        )
        vector = found.x
        theta = vector[:-1].reshape(K1 + K2, M)
        violated = np.abs(theta.sum(axis=1) - 1.0) > _VIOLATION
        if not violated.any():
            break
        weights[violated] *= _GROWTH
    theta = normalise_rows(theta, theta)
    return Topics.pair(
        theta[:K1], theta[K1:], float(vector[-1]) if omega is None else omega, topics.alpha
    )


def _maximise_by_em(S: Array, topics: Topics, omega: float | None, topic_prior: float) -> Topics:
    """Eq. 11: responsibilities of the two parts, then relative frequencies; never falls."""
    for _ in range(_EM_STEPS):
        a, b = topics.shares
        one, other = topics.spaces
        part = a * one.T[:, :, None]
        whole = np.maximum(part + b * other.T[:, None, :], _FLOOR)
        to_first = S * (part / whole)
        first, second = to_first.sum(axis=2).T, (S - to_first).sum(axis=1).T
        spaces = normalise_rows(first + topic_prior, one), normalise_rows(second + topic_prior, other)
        found = np.array([first.sum(), second.sum()])
        shares = shares_from(found) if omega is None else shares_of(omega)
        topics = topics._replace(spaces=spaces, shares=shares)
    return topics


def _pair_logs(topics: Topics) -> Array:
    """Logarithm of Eq. 7 for every word and pair of topics, (M, K1, K2)."""
    (a, b), (first, second) = topics.shares, topics.spaces
    mixed = a * first.T[:, :, None] + b * second.T[:, None, :]
    return np.log(np.maximum(mixed, _FLOOR))


def _chunks(words: Words, logs_per_word: int) -> list[slice]:
    size = max(1, _CHUNK // logs_per_word)
    return [slice(start, start + size) for start in range(0, len(words.rows), size)]


def _update_words(words: Words, phi: Array, log_pi: Array, logs: Array) -> tuple[Array, Array]:
    """One coordinate step for q(z1), then for q(z2), of every occurring word."""
    _, K1, K2 = logs.shape
    first, second = np.empty((len(phi), K1)), np.empty_like(phi)
    for part in _chunks(words, K1 * K2):
        prior, L = log_pi[words.rows[part]], logs[words.counts.indices[part]]
        first[part] = softmax(prior[:, :K1] + np.einsum("eij,ej->ei", L, phi[part]), axis=1)
        second[part] = softmax(prior[:, K1:] + np.einsum("eij,ei->ej", L, first[part]), axis=1)
    return first, second


def _pair_terms(words: Words, first: Array, second: Array, logs: Array) -> Array:
    out = np.empty(len(first))
    for part in _chunks(words, logs[0].size):
        L = logs[words.counts.indices[part]]
        out[part] = np.einsum("ei,eij,ej->e", first[part], L, second[part], optimize=True)
    return out


def _pair_counts(words: Words, first: Array, second: Array) -> Array:
    """S of Eq. 11, (M, K1, K2)."""
    M, K1, K2 = words.counts.shape[1], first.shape[1], second.shape[1]
    S = np.zeros((M, K1 * K2))
    for part in _chunks(words, K1 * K2):
        pairs = (first[part][:, :, None] * second[part][:, None, :]).reshape(-1, K1 * K2)
        columns = words.counts.indices[part]
        place = sp.csr_array(
            (words.counts.data[part], (columns, np.arange(len(columns)))), shape=(M, len(columns))
        )
        S += place @ pairs
    return S.reshape(M, K1, K2)


def _document_sums(words: Words, values: Array) -> Array:
    """Sum over each document of count times value, (D, columns)."""
    place = sp.csr_array(
        (words.counts.data, np.arange(len(values)), words.counts.indptr),
        shape=(words.counts.shape[0], len(values)),
    )
    return place @ values
