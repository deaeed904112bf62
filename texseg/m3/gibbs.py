"""Gibbs sampling with auxiliary parameters (Section 4.1 of [1]; Neal 2000, algorithm 8).

A sweep updates the pair of memberships of one point after the other. Every point has its own unborn (still
empty) components, drawn from the prior; if it is the only point of a component, it keeps that component's
parameters as the first of them. The densities of a block of points under all pairs are computed at once.

Prior weights of the pairs of components: an exchangeable prior with the uses and limits of Eq. 6 of [1].

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

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from texseg.m3.families import Array, Family, Labels, Params, Rng, concatenate, take

_BLOCK = 2**17  # densities held at once
_UNDERFLOW = 1e-200  # a sum of weights times densities up to this is computed anew in logarithms


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
    def even(cls, *sizes: int) -> "Sticks":
        """Start with all sticks of equal length."""
        return cls(*(np.full(K + 1, 1.0 / (K + 1)) for K in sizes))

    @classmethod
    def unbroken(cls, *sizes: int) -> "Sticks":
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
        self._pairs = np.pad(_pair_counts(z1, z2).astype(float), ((n_new, 0), (n_new, 0)))

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
    K1, K2 = z1.max() + 1, z2.max() + 1
    return np.bincount(z1 * K2 + z2, minlength=K1 * K2).reshape(K1, K2)


class Chain(NamedTuple):
    """State of the sampler; components are numbered without gaps."""

    z1: Labels  # (N,)
    z2: Labels  # (N,)
    first: Params
    second: Params
    sharing: Sharing
    sticks: Sticks | None  # None if the seats have none

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of components of each side."""
        return len(self.first[0]), len(self.second[0])

    def seats(self, n_new: int, n_others: int) -> Seats:
        """Prior weights for a point that meets ``n_others`` others."""
        assert self.sticks is not None
        return Seats(self.sharing, self.z1, self.z2, n_new, self.sticks)


def step(rng: Rng, X: Array, state: Chain, family: Family, n_new: int, learn_omega: bool = False) -> Chain:
    """Draw memberships, omega and sticks (if any), and parameters, each given the rest."""
    state = sweep(rng, X, state, family, n_new)
    z1, z2, sharing, sticks = state.z1, state.z2, state.sharing, state.sticks
    if sticks is not None:
        if learn_omega:
            sharing = draw_omega(rng, sharing, z1, z2, sticks)
        sticks = draw_sticks(rng, sharing, z1, z2, sticks)
    first = family.resample_first(rng, X, z1, z2, state.sizes[0], state.second)
    second = family.resample_second(rng, X, z1, z2, first, state.second)
    return state._replace(first=first, second=second, sharing=sharing, sticks=sticks)


def sweep(rng: Rng, X: Array, state: Chain, family: Any, n_new: int) -> Chain:
    """Draw the pair of memberships of every point once, in order; drop components left empty."""
    seats = state.seats(n_new, len(X) - 1)
    z1, z2 = state.z1 + n_new, state.z2 + n_new
    first, second = state.first, state.second
    start = 0
    while start < len(X):
        width = (n_new + len(first[0])) * (n_new + len(second[0]))
        rows = slice(start, min(len(X), start + max(1, _BLOCK // width)))
        block = _Block(rng, X[rows], first, second, family, n_new)
        _sweep_block(rng, seats, block, z1[rows], z2[rows])
        (first, second), start = block.shared, rows.stop
    kept1, z1 = np.unique(z1 - n_new, return_inverse=True)
    kept2, z2 = np.unique(z2 - n_new, return_inverse=True)
    first, second = take(first, kept1), take(second, kept2)
    return state._replace(z1=z1, z2=z2, first=first, second=second, sticks=seats.sticks())


class _Block:
    """Densities of a block of points under every pair of seats, each point with its unborn components."""

    def __init__(self, rng: Rng, X: Array, first: Params, second: Params, family: Any, n_new: int) -> None:
        self.X, self.family, self.n_new = X, family, n_new
        self.shared = [first, second]
        drawn = family.draw_first(rng, len(X) * n_new), family.draw_second(rng, len(X) * n_new)
        self.own = [tuple(a.reshape(len(X), n_new, *a.shape[1:]) for a in params) for params in drawn]
        self.logs = self._logs(self._seats(0, 0), self._seats(1, 0), 0)
        self.density = self._exponentials(0)

    def bear(self, side: int, row: int, unborn: int, seat: int) -> None:
        """Seat an unborn component of a point; later points see it."""
        born = take(self.own[side], (row, slice(unborn, unborn + 1)))
        shared, at = self.shared[side], seat - self.n_new  # the place of an empty component, or the end
        self.shared[side] = concatenate(take(shared, slice(at)), born, take(shared, slice(at + 1, None)))
        seats = [self._seats(0, row + 1), self._seats(1, row + 1)]
        seats[side] = [_shared(born)]
        logs = np.zeros_like(self.logs.take([0], axis=1 + side))
        logs[row + 1 :] = self._logs(seats[0], seats[1], row + 1)
        before, after = np.split(self.logs, [seat], axis=1 + side)
        rest = np.take(after, np.arange(1, after.shape[1 + side]), axis=1 + side)
        self.logs = np.concatenate([before, logs, rest], axis=1 + side)
        self.density = self._exponentials(row + 1)

    def _seats(self, side: int, start: int) -> list[Params]:
        """Components of a side for the points from `start` on: their own unborn ones, and the common ones."""
        return [take(self.own[side], slice(start, None)), _shared(self.shared[side])]

    def _logs(self, firsts: list[Params], seconds: list[Params], start: int) -> Array:
        """Log-densities of the points from `start` on, under every pair."""
        X, density = self.X[start:], self.family.log_density
        rows = [np.concatenate([density(X, first, other) for other in seconds], 2) for first in firsts]
        return np.concatenate(rows, axis=1)

    def _exponentials(self, start: int) -> Array:
        """Densities from row `start` on, each point's scaled by its largest; earlier rows are finished."""
        density = np.zeros_like(self.logs)
        logs = self.logs[start:]
        density[start:] = np.exp(logs - logs.max(axis=(1, 2), keepdims=True))
        return density


def _sweep_block(rng: Rng, seats: Seats, block: _Block, z1: Labels, z2: Labels) -> None:
    """Update the memberships of the points of a block, in place."""
    uniforms = rng.random(len(z1)).tolist()
    for row, pair in enumerate(zip(z1.tolist(), z2.tolist(), strict=True)):
        seats.remove(*pair)
        own = [seat if seats.counts[side][seat] == 0 else None for side, seat in enumerate(pair)]
        weights, logs, density = seats.weights(), block.logs[row], block.density[row]
        if own != [None, None]:  # the components in which it is alone replace the first unborn ones
            rows, columns = (np.arange(n) for n in logs.shape)
            rows[0], columns[0] = own[0] or 0, own[1] or 0
            logs = logs[np.ix_(rows, columns)]
            density = np.exp(logs - logs.max())
        cumulative = (weights * density).cumsum()
        if cumulative[-1] <= _UNDERFLOW:
            with np.errstate(divide="ignore"):
                scores = np.log(weights) + logs
            cumulative = np.exp(scores - scores.max()).cumsum()
        chosen = int(cumulative.searchsorted(uniforms[row] * cumulative[-1], side="right"))
        new = list(divmod(chosen, weights.shape[1]))
        for side, seat in enumerate(new):
            if seat < seats.n_new:
                stays = seat == 0 and own[side] is not None
                new[side] = seats.open(side, rng, own[side] if stays else None)
                if not stays:
                    block.bear(side, row, seat, new[side])
        seats.add(*new)
        z1[row], z2[row] = new


def next_weights(state: Chain) -> Array:
    """Probability of every pair for one more point, (K1 + 1, K2 + 1), the last of each side being new."""
    weights = np.roll(state.seats(1, len(state.z1)).weights(), (-1, -1), axis=(0, 1))
    return weights / weights.sum()


def log_likelihood(X: Array, state: Chain, family: Family) -> float:
    """Log-density of all points given memberships and parameters, in nats."""
    logs = pair_logs(X, state.first, state.second, family)
    return float(logs[np.arange(len(X)), state.z1, state.z2].sum())


def pair_logs(X: Array, first: Params, second: Params, family: Family) -> Array:
    """Log-density of every point under every pair of components, (N, K1, K2)."""
    return family.log_density(X, _shared(first), _shared(second))


def first_state(
    rng: Rng, X: Array, memberships: tuple[Labels, Labels], family: Family, sharing: Sharing
) -> Chain:
    """Start from given memberships, with parameters drawn from their posterior."""
    z1, z2 = memberships
    K1, K2 = int(z1.max()) + 1, int(z2.max()) + 1
    second = family.draw_second(rng, K2)
    first = family.resample_first(rng, X, z1, z2, K1, second)
    second = family.resample_second(rng, X, z1, z2, first, second)
    sticks = draw_sticks(rng, sharing, z1, z2, Sticks.even(K1, K2))
    return Chain(z1, z2, first, second, sharing, sticks)


def _shared(params: Params) -> Params:
    return take(params, (None,))
