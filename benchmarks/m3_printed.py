"""M3 as printed, to show what it costs: FiniteM3 by pairs of memberships, and the prior of Eq. 6.

FiniteM3 by mean field over pairs of memberships (Section 4.2 and Eq. 9-12 of [1]): each word has q(z1) q(z2);
the topics and omega maximise Eq. 11, which depends on the documents only through
S_xij = sum_dn phi1_dni phi2_dnj [w_dn = x]. Two ways to maximise it: the quadratic penalties with L-BFGS of
Eq. 12 (the "- 2" in its second penalty is a misprint for "- 1", as rows are probabilities), and EM on the
two-part mixture inside the logarithm, which satisfies the constraints by itself.

Eq. 6 sums to one for every omega, omega1, omega2 with sum one, but for the first point (N - 1 = 0), where
the two middle cases read 0 / 0 and only omega remains: here the first point always opens a new pair. It is
not a set of conditionals of any single prior: a pair (c, d) met for the first time by independence
(1 - omega) is rewarded by omega n_cd only later, and so the product of sequential probabilities depends on
the order of the points unless omega = 1, where Eq. 6 is the Chinese restaurant process. For omega < 1
the sampler targets the stationary distribution of its scans, which is a pseudo-posterior; and at omega = 0 no
pair of two new components can be opened except by the first point, so it is not two independent Dirichlet
processes either, contrary to [1].

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import softmax, xlogy

from texseg.m3 import InfiniteM3
from texseg.m3.families import Labels
from texseg.m3.finite import Array, Topics, divergence, expected_log, shares_from, shares_of, split
from texseg.m3.gibbs import Chain, Seats, Sharing, Sticks
from texseg.models.base import entry_rows

_FLOOR = 1e-100  # replaces a probability of zero in logarithms
_EM_STEPS = 20
_ROUNDS, _GROWTH, _VIOLATION = 6, 10.0, 1e-4  # of the penalties
_CHUNK = 2**21  # numbers a chunk of words may need


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


class Words(NamedTuple):
    """The non-zero entries of a block of documents, with the document of each."""

    counts: sp.csr_array
    rows: Labels

    @classmethod
    def of(cls, n: sp.csr_array) -> Words:
        return cls(n, entry_rows(n))

    def per_document(self, values: Array) -> Array:
        return np.bincount(self.rows, values, self.counts.shape[0]).astype(np.float64)


class PairMemory(NamedTuple):
    """Variational parameters of a block of documents."""

    gamma: Array
    """(D, K1 + K2)."""
    phi: Array
    """(nnz, K2), memberships of each distinct word of each document in the second space."""


class Pairs(NamedTuple):
    """What an E-step by pairs returns."""

    memory: PairMemory
    bounds: Array
    """(D,), lower bound of the log-likelihood of each document, in nats."""
    S: Array
    """(M, K1, K2), the statistics of Eq. 11."""


def flat_pairs(n: sp.csr_array, sizes: tuple[int, int]) -> PairMemory:
    """Memory of documents about which nothing is known."""
    return PairMemory(np.ones((n.shape[0], sum(sizes))), np.full((n.nnz, sizes[1]), 1.0 / sizes[1]))


def expect_pairs(
    n: sp.csr_array, memory: PairMemory, topics: Topics, max_steps: int, tol: float = 1e-4
) -> Pairs:
    """E-step (Eq. 9), started from ``memory``."""
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
        if change < tol:
            break
    both = np.hstack([first, phi])
    local = (both * log_pi[words.rows] - xlogy(both, both)).sum(axis=1)
    local += _pair_terms(words, first, phi, logs)
    bounds = words.per_document(n.data * local) - membership_divergence(gamma, topics.sizes, topics.alpha)
    return Pairs(PairMemory(gamma, phi), bounds, _pair_counts(words, first, phi))


def maximise_pairs(S: Array, topics: Topics, penalty: bool) -> Topics:
    """M-step for topics and omega: Eq. 12 by L-BFGS, or Eq. 11 by EM."""
    if not penalty:
        return _maximise_by_em(S, topics)
    proposal = _maximise_by_penalties(S, topics)
    return proposal if pair_objective(S, proposal) > pair_objective(S, topics) else topics


def fit_pairs(
    n: sp.csr_array, sizes: tuple[int, int], n_steps: int, penalty: bool, warm_up: int, seed: int = 0
) -> tuple[Topics, list[float]]:
    """Maximum likelihood with alpha 1 / K1 and 1: the topics, and the bound at each iteration."""
    drawn = np.random.RandomState(seed).gamma(100.0, 0.01, (sum(sizes), n.shape[1]))
    first, second = np.split(drawn / drawn.sum(axis=1, keepdims=True), [sizes[0]])
    topics = Topics((first, second), shares_of(0.5), np.repeat([1.0 / sizes[0], 1.0], sizes))
    memory, bounds = flat_pairs(n, sizes), []
    for step in range(n_steps):
        kept, fresh = expect_pairs(n, memory, topics, 0), expect_pairs(n, flat_pairs(n, sizes), topics, 15)
        better = fresh.bounds > kept.bounds
        entries = better[Words.of(n).rows]
        memory = PairMemory(
            np.where(better[:, None], fresh.memory.gamma, kept.memory.gamma),
            np.where(entries[:, None], fresh.memory.phi, kept.memory.phi),
        )
        found = expect_pairs(n, memory, topics, 0)
        bounds.append(float(found.bounds.sum()))
        updated = maximise_pairs(found.S, topics, penalty)
        topics = updated._replace(shares=topics.shares) if step < warm_up else updated
    return topics, bounds


def pair_objective(S: Array, topics: Topics) -> float:
    """Compute Eq. 11 for the statistics ``S`` (M, K1, K2), in nats."""
    return float((S * _pair_logs(topics)).sum())


def penalised_objective(vector: Array, S: Array, weights: Array) -> tuple[float, Array]:
    """Compute Eq. 12 (to be minimised) and its gradient.

    ``vector`` ((K1 + K2) M + 1,) holds theta1, theta2 and omega; ``weights`` (K1 + K2,) lambda and eta.
    """
    M, K1, K2 = S.shape
    theta = vector[:-1].reshape(K1 + K2, M)
    a, b = (1 + vector[-1]) / 2, (1 - vector[-1]) / 2
    first, second = theta[:K1].T[:, :, None], theta[K1:].T[:, None, :]
    mixed = np.maximum(a * first + b * second, _FLOOR)
    slope = S / mixed
    excess = theta.sum(axis=1) - 1.0
    value = -(S * np.log(mixed)).sum() + 0.5 * (weights * excess**2).sum()
    gradient = np.vstack([-a * slope.sum(axis=2).T, -b * slope.sum(axis=1).T])
    gradient += (weights * excess)[:, None]
    by_omega = -0.5 * float((slope * (first - second)).sum())
    return float(value), np.append(gradient.ravel(), by_omega)


def _maximise_by_penalties(S: Array, topics: Topics) -> Topics:
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
            args=(S / total, weights),
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
    return Topics((theta[:K1], theta[K1:]), shares_of(float(vector[-1])), topics.alpha)


def _maximise_by_em(S: Array, topics: Topics) -> Topics:
    """Eq. 11: responsibilities of the two parts, then relative frequencies; never falls."""
    for _ in range(_EM_STEPS):
        a, b = topics.shares
        one, other = topics.spaces
        part = a * one.T[:, :, None]
        whole = np.maximum(part + b * other.T[:, None, :], _FLOOR)
        to_first = S * (part / whole)
        first, second = to_first.sum(axis=2).T, (S - to_first).sum(axis=1).T
        spaces = normalise_rows(first, one), normalise_rows(second, other)
        found = np.array([first.sum(), second.sum()])
        topics = topics._replace(spaces=spaces, shares=shares_from(found))
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


class Eq6Seats(Seats):
    """Eq. 6 for a point that meets `n_others` others; `weights` sum to ``n_others (n_others + alpha)``.

    For the first point they sum to one, all on the new pair.
    """

    def __init__(self, sharing: Sharing, z1: Labels, z2: Labels, n_new: int, n_others: int) -> None:
        alpha, omega, omega1, omega2 = sharing
        super().__init__(sharing, z1, z2, n_new, Sticks.even(z1.max() + 1, z2.max() + 1))
        self._keep = 1.0 - omega
        self._reward = omega * n_others
        self._corner = (omega * alpha * n_others if n_others else 1.0) / n_new**2
        unborn = (omega1 / self._keep if self._keep > 0 else 0.0), omega2
        for side, scale in enumerate((1.0, self._keep)):
            self.lengths[side] = scale * np.array(self.counts[side], float)
            self.lengths[side][:n_new] = unborn[side] * alpha / n_new

    def weights(self) -> Array:
        """See `Seats`."""
        G = super().weights()
        G[: self.n_new, : self.n_new] = self._corner
        return G

    def remove(self, *pair: int) -> None:
        self._pairs[pair] -= 1
        self._change(pair, -1)

    def add(self, *pair: int) -> None:
        self._pairs[pair] += 1
        self._change(pair, 1)

    def open(self, side: int, rng: np.random.Generator, seat: int | None = None) -> int:
        return self._empty_seat(side) if seat is None else seat

    def sticks(self) -> None:
        """There are none."""

    def _change(self, pair: tuple[int, ...], step: int) -> None:
        for side, seat in enumerate(pair):
            self.counts[side][seat] += step
            self.lengths[side][seat] = (1.0, self._keep)[side] * self.counts[side][seat]


class Eq6Chain(Chain):
    """A state of the sampler under Eq. 6."""

    def seats(self, n_new: int, n_others: int) -> Seats:
        return Eq6Seats(self.sharing, self.z1, self.z2, n_new, n_others)


class Eq6M3(InfiniteM3):
    """InfiniteM3 under Eq. 6, which gives omega no likelihood: it is given, and stays."""

    def _first(self, *args: Any) -> Chain:
        return Eq6Chain(*super()._first(*args)._replace(sticks=None))
