"""HybridM3: one side infinite, one side finite (Section 4.3 of [1]).

The first membership is sampled by a standard Dirichlet process given the second. The second membership is a
maximum-likelihood estimate given the sampled first ones.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from texseg.m3.families import Array, Family, Labels, Params, Rng, concatenate, take
from texseg.m3.gibbs import Chain, Sharing, Sticks, pair_logs, sweep
from texseg.m3.sampled import Sample, SampledM3, start_labels
from texseg.models.base import Allowed, whole_numbers
from texseg.models.estimator import settings


@settings
class HybridM3(SampledM3):
    """Mixture with one membership of a Dirichlet process and one of a finite mixture.

    With `OffsetGaussians`, the places of things (infinitely many) and their shifts away from these places (a
    given number) are independent (Jiang, Lim and Saxena, 2012, section 4.3).

    Parameters
    ----------
    n_components : int, default=2
        Number K2 of components of the second, finite side.
    family : Family, optional
        What the components are; `SharedGaussians()` by default.
    alpha : float, default=1.0
        Concentration of the Dirichlet process of the first side.
    n_draws : int, default=5
        The second side is fitted after this many sweeps, to the mean log-likelihood under all of them.
    n_init : int, default=1
        Runs, from `n_start` clusters down to one; that with the highest mean of `history_` over the kept
        sweeps is kept.
    n_sweeps, burn_in, thin, n_auxiliary, n_start, random_state
        As for `InfiniteM3`, of the first side.

    Attributes
    ----------
    history_, n_first_ : float and int ndarrays of shape (n_sweeps,)
        Log-density of data and memberships given the parameters after each sweep, in nats, and number of
        components of the first side.
    labels_, memberships_, n_components_, components_, weights_, samples_, family_, n_iter_, n_features_in_
        As for `InfiniteM3`.

    Examples
    --------
    >>> from texseg.m3 import OffsetGaussians
    >>> rng = np.random.default_rng(0)
    >>> places, offsets = rng.integers(2, size=80), rng.integers(2, size=80)
    >>> X = (20.0 * places + 4.0 * offsets + 0.1 * rng.standard_normal(80))[:, None]
    >>> model = HybridM3(2, family=OffsetGaussians(), n_sweeps=60, burn_in=40, random_state=0).fit(X)
    >>> model.memberships_.shape, model.n_components_[1]
    ((80, 2), 2)
    """

    n_components: int = 2
    _: KW_ONLY
    family: Family | None = None
    n_draws: int = 5

    def fit(self, X: Any, y: Any = None) -> "HybridM3":
        """Alternately sample the first side and fit the second to the data (N, D)."""
        rng, X, family = self._prepared(X)
        starts = np.rint(np.linspace(self.n_start, 1, self.n_init)).astype(int)
        runs = [list(self._iterate(rng, X, family, n_start)) for n_start in starts.tolist()]
        histories = [np.array([self._log_joint(X, state, family) for state in run]) for run in runs]
        best = int(np.argmax([history[self.burn_in :].mean() for history in histories]))
        states, self.history_ = runs[best], histories[best]
        self.n_first_ = np.array([len(state.first[0]) for state in states])
        kept = states[self.burn_in :: self.thin]
        return self._described(family, [self._keep(rng, state, family) for state in kept])

    def _allowed(self) -> Iterator[Allowed]:
        yield from super()._allowed()
        yield from whole_numbers(self, "n_components", "n_draws")

    def _iterate(self, rng: Rng, X: Array, family: Family, n_start: int) -> "Iterator[_Hybrid]":
        """Yield the state after every sweep."""
        state = _start(rng, X, family, n_start, self.n_components)
        drawn: list[_Hybrid] = []
        for _ in range(self.n_sweeps):
            state = _sample_first(rng, X, state, family, float(self.alpha), self.n_auxiliary)
            yield state
            drawn.append(state)
            if len(drawn) == self.n_draws:
                state = _fit_second(X, drawn, family)
                drawn = []

    def _log_joint(self, X: Array, state: "_Hybrid", family: Family) -> float:
        """Log-density of data, Chinese restaurant and second memberships."""
        alpha, points, counts = float(self.alpha), np.arange(len(X)), np.bincount(state.z1)
        logs = pair_logs(X, state.first, state.second, family)[points, state.z1, state.z2]
        value = logs.sum() + np.log(state.shares)[state.z2].sum() + gammaln(alpha) - gammaln(alpha + len(X))
        return float(value + len(counts) * np.log(alpha) + gammaln(counts).sum())

    def _keep(self, rng: Rng, state: "_Hybrid", family: Family) -> Sample:
        """Add an unborn component of the first side, and the weights of all pairs for one more point."""
        first = concatenate(state.first, family.draw_first(rng, 1))
        counts = np.append(np.bincount(state.z1), self.alpha)
        weights = np.multiply.outer(counts / counts.sum(), state.shares)
        return Sample(state.z1, state.z2, first, state.second, weights, (len(counts) - 1, len(state.shares)))


class _Hybrid(NamedTuple):
    z1: Labels
    z2: Labels
    first: Params
    second: Params
    shares: Array  # (K2,), mixing proportions of the second side


class _Given(NamedTuple):
    """A family whose second membership is known, in the last column of the data.

    To the sampler, both memberships are those of the first side, as in one Dirichlet process (omega = 1).
    """

    family: Family
    second: Params

    def draw_first(self, rng: Rng, size: int) -> Params:
        return self.family.draw_first(rng, size)

    def draw_second(self, rng: Rng, size: int) -> Params:
        return (np.zeros(size),)

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        own = take(self.second, X[:, -1:].astype(np.intp))
        logs = self.family.log_density(X[:, :-1], first, own)
        return np.broadcast_to(logs, (*logs.shape[:2], second[0].shape[1]))


def _start(rng: Rng, X: Array, family: Family, n_start: int, K2: int) -> _Hybrid:
    """Begin with k-means for the first side, and k-means on what it leaves for the second."""
    z1 = start_labels(family.invariant(X), n_start, rng)
    centres = np.stack([X[z1 == c].mean(axis=0) for c in range(z1.max() + 1)])
    z2 = start_labels(X - centres[z1], K2, rng)
    second = family.draw_second(rng, K2)
    first = family.resample_first(rng, X, z1, z2, len(centres), second)
    second = family.resample_second(None, X, z1, z2, first, second)
    return _Hybrid(z1, z2, first, second, _shares(z2, K2))


def _sample_first(rng: Rng, X: Array, state: _Hybrid, family: Family, alpha: float, n_new: int) -> _Hybrid:
    """Draw the first memberships and parameters given the second side."""
    known, K1 = np.column_stack([X, state.z2]), len(state.first[0])
    one, sticks = Sharing(alpha, 1.0, 0.0, 0.0), Sticks.unbroken(K1, K1)
    before = Chain(state.z1, state.z1, state.first, (np.zeros(K1),), one, sticks)
    after = sweep(rng, known, before, _Given(family, state.second), n_new)
    first = family.resample_first(rng, X, after.z1, state.z2, after.sizes[0], state.second)
    return state._replace(z1=after.z1, first=first)


def _fit_second(X: Array, drawn: list[_Hybrid], family: Family) -> _Hybrid:
    """Fit memberships and shares, then parameters, to the mean log-likelihood of the draws."""
    last = drawn[-1]
    K2 = len(last.shares)
    points = np.arange(len(X))
    logs = sum(pair_logs(X, d.first, last.second, family)[points, d.z1] for d in drawn) / len(drawn)
    z2 = (logs + np.log(last.shares)).argmax(axis=1)
    offsets = np.cumsum([0] + [len(d.first[0]) for d in drawn[:-1]])
    z1 = np.concatenate([d.z1 + offset for d, offset in zip(drawn, offsets, strict=True)])
    first, every = concatenate(*(d.first for d in drawn)), np.tile(X, (len(drawn), 1))
    second = family.resample_second(None, every, z1, np.tile(z2, len(drawn)), first, last.second)
    return last._replace(z2=z2, second=second, shares=_shares(z2, K2))


def _shares(z2: Labels, K2: int) -> Array:
    """Mixing proportions with one pseudo-count each, so that an empty component can come back."""
    return (np.bincount(z2, minlength=K2) + 1.0) / (len(z2) + K2)
