"""The driver: cooling, convergence, over-relaxation, growth with split and merge.

The loop is a generator, which shows every step; leaving it stops the fit. At fixed temperature F never rises:
an over-relaxed step that raises it is undone, and moves are made only when they lower it.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from texseg.counts.matrix import CountMatrix, groups_of
from texseg.fitting.moves import Growing, Transition
from texseg.fitting.steps import CALM_STEPS, Iteration, Problem, StepLimits, descend


class State(NamedTuple):
    """What the driver yields after every step; all values belong to the same parameters."""

    params: Any  # the model's NamedTuple of parameters
    beta: float  # inverse temperature
    free_energy: float  # in nats
    posteriors: Any  # (N, K) assignments for clusterings; None for observation-level models
    heldout: float  # value of the validation function (larger is better); NaN without one
    n_distinct: int  # distinguishable clusters, counted at the end of each temperature
    step: int  # EM steps so far, including those undone but not those made while growing
    converged: bool  # whether this is the last step at its temperature
    transitions: tuple[Transition, ...] = ()  # the phase transitions so far, when clusters are grown


def geometric_schedule(start: float, stop: float, factor: float = 0.8) -> list[float]:
    """Inverse temperatures from ``start`` to ``stop``; each temperature is ``factor`` times the last one."""
    steps = max(0, int(np.ceil(np.log(stop / start) / -np.log(factor) - 1e-9)))
    return [min(float(start * factor**-i), float(stop)) for i in range(steps)] + [float(stop)]


def critical_beta(model: Any, n: CountMatrix, rng: np.random.RandomState) -> float:
    """Inverse temperature of the first phase transition: below it there is only one profile; may be inf."""
    return float(model.instabilities(n, model.initial(n, 1, rng), model.everything(n), rng).beta[0])


def last_of(states: Iterable[State]) -> State:
    """Exhaust the generator and return its last state."""
    *_, state = states
    return state


def anneal(
    model: Any,
    n: CountMatrix,
    schedule: Sequence[float] | None = None,
    *,
    rng: np.random.RandomState,
    n_clusters: int = 1,
    start: Any = None,
    growth: str | None = None,
    validation: Callable[[Any, Any], float] | None = None,
    patience: int | None = None,
    over_relax: bool = True,
    perturbation: float = 0.01,
    tol: float = 1e-5,
    max_steps: int = 100,
) -> Iterator[State]:
    """Fit a model by annealed EM, yielding every step ([1]_ section 5.1, over-relaxed by Eq. 63).

    The ``schedule`` of inverse temperatures is by default from the first phase transition to 1; ``growth`` is
    "split", or "split-merge", which also exchanges clusters.
    """
    if schedule is None:
        hottest = 0.8 * critical_beta(model, n, rng)
        schedule = geometric_schedule(min(hottest, 1.0), 1.0)
    # growth itself looks for clusters that are about to separate
    settings = StepLimits(validation, patience, over_relax, tol, max_steps, 1 if growth else CALM_STEPS)
    params = start
    if params is None:
        params = model.initial(n, 1 if growth else n_clusters, rng)
    posteriors, step, n_distinct = None, 0, 1
    growing = Growing(n_clusters, growth != "split", rng) if growth else None
    for beta in schedule:
        problem = Problem(model, n, beta)
        if growing is None:
            noise = (1 + perturbation * rng.uniform(-1, 1, value.shape) for value in params)
            noisy = params._make(map(np.multiply, params, noise))
            params = model.relax(noisy, noisy, 1.0, groups_of(n))
        for now, settled in _at_one_temperature(problem, params, posteriors, settings, growing):
            step += now.cost
            if settled:
                n_distinct = model.n_distinct(now.params)
            found = now.params, beta, now.result.free_energy, now.result.posteriors, now.heldout, n_distinct
            yield State(*found, step, settled, growing.transitions if growing else ())
        params, posteriors = now.params, now.result.posteriors


def _at_one_temperature(
    problem: Problem, params: Any, posteriors: Any, settings: StepLimits, growing: Growing | None
) -> Iterator[tuple[Iteration, bool]]:
    """EM steps, repeated after each change made by growth; the very last one is marked True."""
    while True:
        for now in descend(problem, params, posteriors, settings):
            changed = growing.change(problem, now.result) if growing and now.converged else None
            yield now, now.converged and changed is None
        if changed is None:
            return
        params, posteriors = changed.params, changed.Q
