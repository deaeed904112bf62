"""Gibbs sampling with auxiliary parameters (Section 4.1 of [1]; Neal 2000, algorithm 8).

A sweep updates the pair of memberships of one point after the other. Every point has its own unborn (still
empty) components, drawn from the prior; if it is the only point of a component, it keeps that component's
parameters as the first of them. The densities of a block of points under all pairs are computed at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from texseg.m3.families import Array, Family, Labels, Params, Rng, concatenate, take
from texseg.m3.seating import Seats, Sharing, Sticks, draw_omega, draw_sticks

_BLOCK = 2**17  # densities held at once
_UNDERFLOW = 1e-200  # a sum of weights times densities up to this is computed anew in logarithms


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
