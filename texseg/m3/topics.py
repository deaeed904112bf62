"""What both inference methods of FiniteM3 share: the parameters and the words of a block of documents.

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from texseg.m3.dirichlet import divergence, expected_log

__all__ = [
    "Array",
    "Expectation",
    "Inference",
    "Topics",
    "Words",
    "expected_log_memberships",
    "membership_divergence",
    "normalise_rows",
    "omega_from",
]

Array = NDArray[np.float64]

_PIECE = 2**12  # entries multiplied at once


class Topics(NamedTuple):
    """Parameters of the two topic spaces."""

    first: Array
    """(K1, M); Dirichlet parameters of the topics if these are integrated out, else probabilities."""
    second: Array
    """(K2, M), likewise."""
    omega: float
    alpha: Array
    """(K1 + K2,), concentration of the memberships in each topic."""

    @property
    def shares(self) -> tuple[float, float]:
        """Weights of the two spaces in Eq. 7."""
        return (1.0 + self.omega) / 2.0, (1.0 - self.omega) / 2.0

    @property
    def sizes(self) -> tuple[int, int]:
        """K1 and K2."""
        return len(self.first), len(self.second)


class Expectation(NamedTuple):
    """What an E-step on a block of documents returns."""

    memory: Any
    """Variational parameters of the documents; the next E-step may start from them."""
    bounds: Array
    """(D,), lower bound of the log-likelihood of each document, in nats."""
    stats: tuple[Array, ...]
    """Expected counts; they add over blocks."""


class Inference(Protocol):
    """How FiniteM3 bounds the likelihood; implemented by `Switch` and `Pairs`."""

    def flat(self, n: sp.csr_array, sizes: tuple[int, int]) -> Any:
        """Memory of documents about which nothing is known."""

    def expect(self, n: sp.csr_array, memory: Any, topics: Topics, max_steps: int) -> Expectation:
        """E-step, started from `memory`."""

    def choose(self, n: sp.csr_array, better: NDArray[np.bool_], one: Any, other: Any) -> Any:
        """Memory that follows `one` for the documents in `better`, `other` for the rest."""

    def gamma(self, memory: Any) -> Array:
        """Dirichlet parameters of both memberships, (D, K1 + K2)."""

    def maximise(self, stats: tuple[Array, ...], topics: Topics, omega: float | None) -> Topics:
        """M-step for the topics, and for omega unless it is given."""

    def topic_bound(self, topics: Topics) -> float:
        """Compute what the prior of the topics adds to the bound."""

    def means(self, topics: Topics) -> Topics:
        """Give the same with topics as probabilities."""


class Words(NamedTuple):
    """The non-zero entries of a block of documents, with the document of each."""

    counts: sp.csr_array
    rows: NDArray[np.intp]

    @classmethod
    def of(cls, n: sp.csr_array) -> Words:
        """Read off the rows of a CSR block."""
        return cls(n, np.repeat(np.arange(n.shape[0]), np.diff(n.indptr)))

    def per_document(self, values: Array) -> Array:
        """Sum values of the entries, (nnz,), over each document, (D,)."""
        return np.bincount(self.rows, values, self.counts.shape[0]).astype(np.float64)

    def mixed(self, memberships: Array, table: Array) -> Array:
        """Inner product of a document's row (D, K) and a word's row (M, K) for each entry, (nnz,).

        In pieces that stay in the cache, which is five times faster than at once.
        """
        out = np.empty(len(self.rows))
        for start in range(0, len(out), _PIECE):
            part = slice(start, start + _PIECE)
            left, right = self.rows[part], self.counts.indices[part]
            out[part] = np.einsum("ek,ek->e", memberships.take(left, axis=0), table.take(right, axis=0))
        return out

    def with_values(self, values: Array) -> sp.csr_array:
        """Keep the pattern, replace the values."""
        return sp.csr_array((values, self.counts.indices, self.counts.indptr), self.counts.shape)


def expected_log_memberships(gamma: Array, K1: int) -> Array:
    """Return ``E[log pi]`` of both sides, side by side, (D, K1 + K2)."""
    return np.hstack([expected_log(gamma[:, :K1]), expected_log(gamma[:, K1:])])


def membership_divergence(gamma: Array, K1: int, alpha: Array) -> Array:
    """Compute the divergence of q(pi1) q(pi2) from their priors, (D,), in nats."""
    return divergence(gamma[:, :K1], alpha[:K1]) + divergence(gamma[:, K1:], alpha[K1:])


def normalise_rows(expected: Array, fallback: Array) -> Array:
    """Scale rows to sum one; rows without any count are taken from `fallback`."""
    totals = expected.sum(axis=1, keepdims=True)
    return np.where(totals > 0, expected / np.where(totals > 0, totals, 1.0), fallback)


def omega_from(first: float, second: float) -> float:
    """Find the omega in 0 ... 1 that fits the occurrences explained by each space; exact, being concave."""
    return float(np.clip((first - second) / (first + second), 0.0, 1.0))
