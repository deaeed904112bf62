"""EM at one temperature: F never rises; steps end when it hardly falls or held-out data stop improving."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from texseg.counts.matrix import CountMatrix, groups_of
from texseg.fitting.assignment import Floats

ETA_GROWTH = 1.4  # factor by which over-relaxation grows while it succeeds

CALM_STEPS = 3
"""Consecutive steps that must hardly lower F: after a single one, clusters may be just about to separate."""


class StepLimits(NamedTuple):
    """When the steps end; see `texseg.fitting.anneal.anneal`."""

    validation: Callable[[Any, Any], float] | None = None
    patience: int | None = None
    over_relax: bool = True
    tol: float = 1e-5
    max_steps: int = 100
    calm_steps: int = CALM_STEPS


class Problem(NamedTuple):
    """A model on a count matrix at one temperature."""

    model: Any
    n: CountMatrix
    beta: float

    def step(self, params: Any, posteriors: Any) -> Any:
        """One EM iteration."""
        return self.model.step(self.n, params, self.beta, posteriors)

    def energies(self, stats: Any, Q: Floats) -> Floats:
        """Every cluster's part (K,) of F, with the best parameters for ``Q``."""
        return np.asarray(self.model.energies(self.n, stats, Q, self.beta))


class Iteration(NamedTuple):
    """One step, and what it cost."""

    params: Any
    result: Any  # the step made from there
    heldout: float
    cost: int
    converged: bool


def descend(problem: Problem, params: Any, posteriors: Any, settings: StepLimits) -> Iterator[Iteration]:
    """Yield EM steps at one temperature until F hardly falls or held-out data stop improving."""
    model, groups = problem.model, groups_of(problem.n)
    validation, best, since_best = settings.validation or (lambda *_: np.nan), -np.inf, 0
    result, eta, cost, calm = problem.step(params, posteriors), 1.0, 1, 0
    heldout = validation(params, result.posteriors)
    for _ in range(settings.max_steps - 1):
        best, since_best = max(best, heldout), 0 if heldout > best else since_best + 1
        if settings.validation and settings.patience is not None and since_best >= settings.patience:
            break
        proposal = result.params if eta == 1.0 else model.relax(params, result.params, eta, groups)
        trial, trial_cost = problem.step(proposal, result.posteriors), 1
        if eta > 1.0 and np.any(trial.free_energy > result.free_energy):
            eta, proposal, trial_cost = 1.0, result.params, 2
            trial = problem.step(proposal, result.posteriors)
        drop = np.asarray(result.free_energy - trial.free_energy)
        if model.monotone and (drop <= 0).all():
            break
        yield Iteration(params, result, heldout, cost, False)
        params, result, cost = proposal, trial, trial_cost
        heldout = validation(params, result.posteriors)
        eta = eta * ETA_GROWTH if settings.over_relax and model.monotone else 1.0
        calm = calm + 1 if (abs(drop) < settings.tol * abs(result.free_energy)).all() else 0
        if calm >= settings.calm_steps:
            break
    yield Iteration(params, result, heldout, cost, True)
