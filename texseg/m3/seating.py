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
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]
Rng = np.random.Generator
Labels = NDArray[np.intp]


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
    def even(cls, K1: int, K2: int) -> Sticks:
        """Start with all sticks of equal length."""
        return cls(np.full(K1 + 1, 1.0 / (K1 + 1)), np.full(K2 + 1, 1.0 / (K2 + 1)))


class Seats:
    """Which points sit where; seat numbers include the unborn components, which come first."""

    def __init__(self, z1: Labels, z2: Labels, n_new: int, reward: float) -> None:
        self.n_new = n_new
        self.first = [0] * n_new + np.bincount(z1).tolist()
        self.second = [0] * n_new + np.bincount(z2).tolist()
        self._reward = reward
        pairs = np.zeros((len(self.first), len(self.second)), np.intp)
        np.add.at(pairs, (z1 + n_new, z2 + n_new), 1)
        self._pairs = pairs.tolist()
        self._P = reward * pairs
        self._u = np.zeros(len(self.first))
        self._v = np.zeros(len(self.second))

    def remove(self, c: int, d: int) -> None:
        """Take a point from the pair (c, d); a component left empty becomes unborn."""
        self._change(c, d, -1)

    def add(self, c: int, d: int) -> None:
        """Seat a point at the pair (c, d) of born components."""
        self._change(c, d, 1)

    def open(self, side: int, rng: Rng, seat: int | None = None) -> int:
        """Give birth to a component of a side (0 or 1), at an empty seat or a new one; return the seat."""
        counts = (self.first, self.second)[side]
        if seat is None:
            empty = (seat for seat in range(self.n_new, len(counts)) if counts[seat] == 0)
            seat = next(empty, len(counts))
        if seat == len(counts):
            counts.append(0)
            self._P = np.pad(self._P, ((0, 1 - side), (0, side)))
            if side == 0:
                self._u = np.append(self._u, 0.0)
                self._pairs.append([0] * len(self.second))
            else:
                self._v = np.append(self._v, 0.0)
                for row in self._pairs:
                    row.append(0)
        return seat

    def weights(self) -> Array:
        """Prior weights of all pairs of seats for the next point, up to a common factor."""
        G = np.multiply.outer(self._u, self._v)
        G += self._P
        return G

    def _change(self, c: int, d: int, step: int) -> None:
        self.first[c] += step
        self.second[d] += step
        self._pairs[c][d] += step
        self._P[c, d] = self._reward * self._pairs[c][d]


class OneSideSeats(Seats):
    """A Chinese restaurant on the first side; on the second, one component for all points."""

    def __init__(self, alpha: float, z1: Labels, n_new: int) -> None:
        super().__init__(z1, np.zeros_like(z1), n_new, 0.0)
        self._u[:] = self.first
        self._u[:n_new] = alpha / n_new
        self._v[n_new:] = 1.0

    def _change(self, c: int, d: int, step: int) -> None:
        super()._change(c, d, step)
        self._u[c] = self.first[c]


class ExchangeableSeats(Seats):
    """The exchangeable prior given its sticks; `weights` sum to ``1 + omega / alpha * (points seated)``."""

    def __init__(self, sharing: Sharing, z1: Labels, z2: Labels, n_new: int, sticks: Sticks) -> None:
        super().__init__(z1, z2, n_new, sharing.omega / sharing.alpha)
        self._gammas = stick_concentrations(sharing)
        for weights, side in ((self._u, sticks.first), (self._v, sticks.second)):
            weights[:n_new] = side[-1] / n_new
            weights[n_new:] = side[:-1]

    def remove(self, c: int, d: int) -> None:
        """See `Seats`; the stick of a component left empty is joined to the unborn rest."""
        super().remove(c, d)
        for count, sticks, seat in ((self.first[c], self._u, c), (self.second[d], self._v, d)):
            if count == 0:
                sticks[: self.n_new] += sticks[seat] / self.n_new
                sticks[seat] = 0.0

    def open(self, side: int, rng: Rng, seat: int | None = None) -> int:
        """See `Seats`; a part Beta(1, gamma) is broken off the rest."""
        seat = super().open(side, rng, seat)
        sticks, gamma = (self._u, self._v)[side], self._gammas[side]
        part = rng.beta(1.0, gamma) if np.isfinite(gamma) else 0.0
        rest = sticks[: self.n_new].sum()
        sticks[seat] = part * rest
        sticks[: self.n_new] = (1.0 - part) * rest / self.n_new
        return seat

    def sticks(self) -> Sticks:
        """Sticks of the occupied seats, in their order, and of the rest."""
        sides = ((self._u, self.first), (self._v, self.second))
        return Sticks(
            *(
                np.append(weights[np.array(counts) > 0], weights[: self.n_new].sum())
                for weights, counts in sides
            )
        )


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
        return Sticks(*(np.append(np.zeros(z.max() + 1), 1.0) for z in (z1, z2)))
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
