"""Topics, and the words of a block of documents, of FiniteM3.

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from texseg.m3.dirichlet import divergence, expected_log

__all__ = [
    "Array",
    "Expectation",
    "Topics",
    "Words",
    "expected_log_memberships",
    "membership_divergence",
    "normalise_rows",
    "shares_from",
    "shares_of",
    "split",
]

Array = NDArray[np.float64]

_PIECE = 2**12  # entries multiplied at once


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

        Computed in pieces that fit the cache, which is five times faster than all at once.
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
