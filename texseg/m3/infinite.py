"""InfiniteM3: two Dirichlet processes coupled by a sharing parameter (Section 4.1 of [1])."""

from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import numpy as np

from texseg.m3.families import Array, Family, Labels, Rng, concatenate
from texseg.m3.gibbs import Chain, Sharing, first_state, log_likelihood, next_weights, step
from texseg.m3.sampled import Sample, SampledM3, start_labels, waic
from texseg.models.base import Allowed, is_number
from texseg.models.estimator import settings

_FIRST_OMEGA = 0.5


class Trace(NamedTuple):
    """One number per sweep, burn-in included."""

    log_likelihood: Array  # of the data given memberships and parameters, in nats
    n_first: Labels  # components of the first side
    n_second: Labels
    n_pairs: Labels  # pairs of components in use
    omega: Array  # sharing parameter


@settings
class InfiniteM3(SampledM3):
    """Mixture with two memberships per point, each from a Dirichlet process.

    With the default family, means belong to one membership and covariances to the other. ``omega = 1`` is an
    ordinary Dirichlet-process mixture. The source is Jiang, Lim and Saxena, Multidimensional Membership
    Mixture Models, 2012, section 4.1.

    Parameters
    ----------
    family : Family, optional
        What the components are; `SharedGaussians()` by default.
    alpha : float, default=1.0
        Concentration.
    omega, omega1, omega2 : floats in 0 ... 1 with sum 1, optional
        How far a pair of components counts as one, and shares of the concentration that open a component of
        the first or second side alone. By default omega is sampled, and each side gets half of what remains.
    n_sweeps, burn_in, thin : int, default=200, 100, 5
        Sweeps over all points, how many of them are dropped first, and after these every which is kept.
    n_auxiliary : int, default=2
        Number of new, empty components of each side that every point is offered.
    n_start : int, default=10
        Number of k-means clusters to start with, as components of the first side.
    n_init : int, default=2
        Runs; the one with the best estimated density of new points (Watanabe's criterion) is kept. The second
        side starts with one component and with the clusters of the first in turn.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_, memberships_ : int ndarrays of shape (N,) and (N, 2)
        A label for each pair of memberships in the most representative sample, the one with the smallest
        expected Binder loss, and the pairs themselves.
    n_components_, components_, weights_ : tuples of two ints and of two parameter tuples, ndarray
        Components of each side in that sample, their parameters, in the layout of the family, and the
        probability of every pair for a further point.
    samples_, history_ : list of Sample, Trace
        All kept samples, and the trace of the run that was kept, burn-in included.
    family_, n_iter_, n_features_in_ : Family, int, int
        The family with all prior settings resolved, sweeps of a run, and columns.

    Notes
    -----
    Eq. 6 is exchangeable only for ``omega = 1``; else its Gibbs sampler has no prior's posterior. In its
    place stands ``P ~ DP(alpha / omega, P1 x P2)``, ``Pl ~ DP(alpha omega_l / (1 - omega)^2, Gl)``: one
    Dirichlet process at ``omega = 1``, two independent ones at 0.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[-9.0], [9.0]], 50, axis=0) + rng.standard_normal((100, 1))
    >>> model = InfiniteM3(n_sweeps=60, burn_in=40, n_start=2, random_state=0).fit(X)
    >>> bool(set(model.labels_[:50]) & set(model.labels_[50:])), model.coclustering().shape
    (False, (100, 100))
    """

    family: Family | None = None
    _: KW_ONLY
    omega: float | None = None
    omega1: float | None = None
    omega2: float | None = None
    n_init: int = 2

    def fit(self, X: Any, y: Any = None) -> "InfiniteM3":
        """Sample memberships and parameters given the data (N, D)."""
        rng, X, family = self._prepared(X)
        sharing = self._sharing()
        runs = [self._run(rng, X, family, sharing, number) for number in range(self.n_init)]
        samples, self.history_ = max(runs, key=lambda run: waic(X, run[0], family))
        return self._described(family, samples)

    def _run(
        self, rng: Rng, X: Array, family: Family, sharing: Sharing, number: int
    ) -> tuple[list[Sample], Trace]:
        """Sample once, from the start that belongs to this run's number."""
        start = start_labels(family.invariant(X), self.n_start, rng)
        second = start if sharing.omega == 1 or number % 2 else np.zeros_like(start)
        state = self._first(rng, X, (start, second), family, sharing)
        states, traced = [], []
        for _ in range(self.n_sweeps):
            state = step(rng, X, state, family, self.n_auxiliary, learn_omega=self.omega is None)
            states.append(state)
            n_pairs = len(np.unique(state.z1 * state.sizes[1] + state.z2))
            traced.append((log_likelihood(X, state, family), *state.sizes, n_pairs, state.sharing.omega))
        samples = [_keep(rng, state, family) for state in states[self.burn_in :: self.thin]]
        return samples, Trace(*map(np.array, zip(*traced, strict=True)))

    _first = staticmethod(first_state)

    def _allowed(self) -> Iterator[Allowed]:
        yield from super()._allowed()
        fits = self.omega is None or (is_number(self.omega) and 0 <= self.omega <= 1)
        yield "omega", fits, "None or in 0 ... 1"

    def _sharing(self) -> Sharing:
        omega = _FIRST_OMEGA if self.omega is None else self.omega
        given, rest = [each for each in (self.omega1, self.omega2) if each is not None], 1.0 - omega
        left = (rest - sum(given)) / max(1, 2 - len(given))
        omega1, omega2 = (left if each is None else each for each in (self.omega1, self.omega2))
        low, apart = min(omega1, omega2), abs(omega1 + omega2 - rest)
        if low < 0 or apart > 1e-9 or (low == 0 and rest > 0) or (self.omega is None and given):
            raise ValueError(
                "omega1 and omega2 of InfiniteM3 need omega, with which their sum is 1, and must be above 0"
                f" unless it is 1, got {self.omega!r}, {self.omega1!r} and {self.omega2!r}; leave them out to"
                " halve what omega leaves"
            )
        return Sharing(float(self.alpha), float(omega), float(omega1), float(omega2))


def _keep(rng: Rng, state: Chain, family: Family) -> Sample:
    """Add a draw of an unborn component on each side and the weights of all pairs to a state."""
    first = concatenate(state.first, family.draw_first(rng, 1))
    second = concatenate(state.second, family.draw_second(rng, 1))
    return Sample(state.z1, state.z2, first, second, next_weights(state), state.sizes)
