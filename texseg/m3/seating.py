"""Prior weights of the pairs of components: an exchangeable prior with the uses and limits of Eq. 6 of [1].

Weights have the form ``outer(u, v) + P`` over the seats of the two sides. The first `n_new` rows and columns
are the unborn components, whose weight is divided among them; the occupied ones follow.

Eq. 6 itself depends on the order of the points unless omega = 1 (`benchmarks/m3_printed.py`). In its place
P ~ DP(kappa, P1 x P2), Pl ~ DP(gamma_l, Gl), with ::

    kappa = alpha / omega,    gamma_l = alpha omega_l / (1 - omega)^2 .

Pairs already met are rewarded, n_cd + kappa beta1_c beta2_d. omega = 1 is one Dirichlet process of
concentration alpha (infinite gammas), omega = 0 two independent ones (infinite kappa). beta1, beta2 are
sampled, after the numbers of tables, as in Teh et al. (2006). omega can be sampled from a grid, with ::

    p(z, beta | omega) = prod_l gamma_l^Kl (rest_l)^(gamma_l - 1) / prod_c beta_lc
                         x Gamma(kappa) / Gamma(kappa + N) prod_cd (kappa beta1_c beta2_d)_(n_cd) ,

(x)_n a rising factorial; the first factor is the intensity of Kl weights of a Dirichlet process.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from texseg.m3.families import Array, Labels, Rng


class Sharing(NamedTuple):
    """The settings of Eq. 6."""

    alpha: float
    omega: float
    omega1: float
    omega2: float


# The values between which an omega that is sampled chooses
OMEGA_GRID = np.concatenate([np.arange(0.05, 0.96, 0.05), [0.98, 0.99]])


class Sticks(NamedTuple):
    """Stick lengths of the occupied components and, last, of the unborn rest; each side sums to one."""

    first: Array  # (K1 + 1,)
    second: Array  # (K2 + 1,)

    @classmethod
    def even(cls, *sizes: int) -> Sticks:
        """Start with all sticks of equal length."""
        return cls(*(np.full(K + 1, 1.0 / (K + 1)) for K in sizes))

    @classmethod
    def unbroken(cls, *sizes: int) -> Sticks:
        """Give all to the unborn rest, as for one Dirichlet process (omega = 1)."""
        return cls(*(np.append(np.zeros(K), 1.0) for K in sizes))


class Seats:
    """Which points sit where, with the prior's weights; sides count from 0, unborn components come first."""

    def __init__(self, sharing: Sharing, z1: Labels, z2: Labels, n_new: int, sticks: Sticks) -> None:
        self.n_new = n_new
        self.counts = [[0] * n_new + np.bincount(z).tolist() for z in (z1, z2)]
        self.lengths = [np.append(np.full(n_new, side[-1] / n_new), side[:-1]) for side in sticks]
        self._gammas = stick_concentrations(sharing)
        self._reward = sharing.omega / sharing.alpha
        self._pairs = np.zeros((len(self.counts[0]), len(self.counts[1])))
        np.add.at(self._pairs, (z1 + n_new, z2 + n_new), 1)

    def remove(self, *pair: int) -> None:
        """Take a point from a pair; the stick of a component left empty is joined to the unborn rest."""
        self._pairs[pair] -= 1
        for counts, lengths, seat in zip(self.counts, self.lengths, pair, strict=True):
            counts[seat] -= 1
            if counts[seat] == 0:
                lengths[: self.n_new] += lengths[seat] / self.n_new
                lengths[seat] = 0.0

    def add(self, *pair: int) -> None:
        """Seat a point at a pair of born components."""
        self._pairs[pair] += 1
        for counts, seat in zip(self.counts, pair, strict=True):
            counts[seat] += 1

    def open(self, side: int, rng: Rng, seat: int | None = None) -> int:
        """Give birth to a component, whose stick is a part Beta(1, gamma) of the rest; return its seat."""
        seat = self._empty_seat(side) if seat is None else seat
        lengths, gamma = self.lengths[side], self._gammas[side]
        part = rng.beta(1.0, gamma) if np.isfinite(gamma) else 0.0
        rest = lengths[: self.n_new].sum()
        lengths[seat] = part * rest
        lengths[: self.n_new] = (1.0 - part) * rest / self.n_new
        return seat

    def weights(self) -> Array:
        """Prior weights of all pairs of seats; their sum is ``1 + omega / alpha * (points seated)``."""
        G = np.multiply.outer(*self.lengths)
        G += self._reward * self._pairs
        return G

    def sticks(self) -> Sticks | None:
        """Sticks of the occupied seats, in their order, and of the rest."""
        sides = zip(self.lengths, self.counts, strict=True)
        return Sticks(*(np.append(u[np.array(counts) > 0], u[: self.n_new].sum()) for u, counts in sides))

    def _empty_seat(self, side: int) -> int:
        counts = self.counts[side]
        seat = next((seat for seat in range(self.n_new, len(counts)) if counts[seat] == 0), len(counts))
        if seat == len(counts):
            counts.append(0)
            self.lengths[side] = np.append(self.lengths[side], 0.0)
            self._pairs = np.pad(self._pairs, ((0, 1 - side), (0, side)))
        return seat


def stick_concentrations(sharing: Sharing) -> tuple[float, float]:
    """gamma1 and gamma2 of the exchangeable prior; infinite for omega = 1."""
    apart = (1.0 - sharing.omega) ** 2
    if apart == 0:
        return np.inf, np.inf
    return sharing.alpha * sharing.omega1 / apart, sharing.alpha * sharing.omega2 / apart


def draw_omega(rng: Rng, sharing: Sharing, z1: Labels, z2: Labels, sticks: Sticks) -> Sharing:
    """Draw omega from `OMEGA_GRID` (uniform prior) given pairs and sticks."""
    choices = [Sharing(sharing.alpha, w, (1.0 - w) / 2, (1.0 - w) / 2) for w in OMEGA_GRID.tolist()]
    pairs = _pair_counts(z1, z2)
    base = np.multiply.outer(sticks.first[:-1], sticks.second[:-1])[pairs > 0]
    scores = np.array([_log_prior(choice, pairs[pairs > 0], base, sticks) for choice in choices])
    probabilities = np.exp(scores - scores.max())
    return choices[rng.choice(len(choices), p=probabilities / probabilities.sum())]


def _log_prior(sharing: Sharing, counts: Labels, base: Array, sticks: Sticks) -> float:
    """Log of p(z, beta | omega), up to a constant; see the top of this file."""
    kappa = sharing.alpha / sharing.omega
    rising = gammaln(kappa * base + counts) - gammaln(kappa * base)
    value = rising.sum() + gammaln(kappa) - gammaln(kappa + counts.sum())
    for gamma, side in zip(stick_concentrations(sharing), sticks, strict=True):
        value += (len(side) - 1) * np.log(gamma) + (gamma - 1.0) * np.log(max(side[-1], 1e-300))
    return float(value)


def draw_sticks(rng: Rng, sharing: Sharing, z1: Labels, z2: Labels, sticks: Sticks) -> Sticks:
    """One Gibbs step for the sticks: numbers of tables given the sticks, then sticks given the tables."""
    gammas = stick_concentrations(sharing)
    if not np.isfinite(gammas[0]):
        return Sticks.unbroken(z1.max() + 1, z2.max() + 1)
    pairs = _pair_counts(z1, z2)
    tables = pairs
    if sharing.omega > 0:
        tables = np.zeros_like(pairs)
        strengths = sharing.alpha / sharing.omega * np.multiply.outer(sticks.first[:-1], sticks.second[:-1])
        for c, d in np.argwhere(pairs):
            seated = np.arange(pairs[c, d])
            tables[c, d] = (rng.random(len(seated)) * (strengths[c, d] + seated) < strengths[c, d]).sum()
    return Sticks(*(rng.dirichlet(np.append(tables.sum(axis=1 - side), gammas[side])) for side in (0, 1)))


def _pair_counts(z1: Labels, z2: Labels) -> Labels:
    """Points of every pair, (K1, K2)."""
    pairs = np.zeros((z1.max() + 1, z2.max() + 1), np.intp)
    np.add.at(pairs, (z1, z2), 1)
    return pairs
