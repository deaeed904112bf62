"""The driver: cooling, convergence, over-relaxation, growth with split and merge, coarse-to-fine levels.

The loop is a generator. ``for state in anneal(...)`` sees every step; progress bars, plots, early stopping
and saving are consumers, and to stop is to leave the loop. At fixed temperature F never rises: an EM step
lowers it by construction, an over-relaxed step ([1]_ section 5.3) that raises it is taken back, and moves
that split one cluster and merge two others are made only when they lower it.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.matrix import CountMatrix, groups_of
from texseg.fitting.assignment import Floats, Posterior

__all__ = [
    "Level",
    "State",
    "Transition",
    "anneal",
    "critical_beta",
    "geometric_schedule",
    "grow",
    "last_of",
]

ETA_GROWTH = 1.4
"""Factor by which over-relaxation grows while it succeeds."""

CALM_STEPS = 3
"""Steps in a row that must hardly lower F: one may only mean that clusters are about to part."""

POWER_STEPS = 2
"""Power iterations to find the direction in which a cluster is first split."""

HALVES_STEPS = 2
"""EM steps within a cluster to improve a new split before it is judged."""

MOVES = 5
"""Split-and-merge moves at one temperature and number of clusters, at most."""


class Transition(NamedTuple):
    """A phase transition: cluster ``parent`` fell in two, itself and ``child``.

    A ``child`` that existed before was merged into another cluster, and now stands beside ``parent``.
    """

    beta: float
    parent: int
    child: int


class State(NamedTuple):
    """What the driver yields after every step; all values belong to the same parameters."""

    params: Any
    """The model's NamedTuple of parameters."""
    beta: float
    """Inverse temperature."""
    free_energy: float
    """In nats."""
    posteriors: Any
    """(N, K) assignments for clusterings; None for observation-level models."""
    heldout: float
    """What the validation function returned (larger is better); NaN without one."""
    n_distinct: int
    """Distinguishable clusters, counted at the end of each temperature."""
    level: int
    """0 is the first (coarsest) level."""
    step: int
    """EM steps so far, those taken back included, those made while growing not."""
    converged: bool
    """Whether this is the last step at its temperature."""
    transitions: tuple[Transition, ...] = ()
    """The phase transitions so far, when clusters are grown."""
    stage: int = 0
    """Temperatures and further levels that :func:`anneal` has behind it, this one once ``converged``."""
    n_stages: int = 1
    """Temperatures of the first level, and one for each other level."""


class Level(NamedTuple):
    """One level of a coarse-to-fine run ([1]_ section 5.4).

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
    """

    counts: CountMatrix
    """(N, M), summed over the sites of every row."""
    row_weights: Floats | None = None
    """(N,), how many sites each row stands for; the temperature a row is this many times that of a site."""
    parent: NDArray[np.intp] | None = None
    """(N,), the row of the level before to which each row belongs; not needed at the first level."""
    posterior: Posterior | None = None
    """Another posterior policy for this level, such as the Potts field of its grid."""


def geometric_schedule(start: float, stop: float, factor: float = 0.8) -> list[float]:
    """Inverse temperatures from ``start`` to ``stop``; each temperature is ``factor`` times the one before.

    Examples
    --------
    >>> geometric_schedule(0.5, 1.0, 0.5)
    [0.5, 1.0]
    """
    if not 0 < factor < 1:
        raise ValueError(f"the cooling factor must lie between 0 and 1, got {factor!r}")
    if start <= 0 or stop <= 0:
        raise ValueError(f"inverse temperatures must be positive, got {start!r} and {stop!r}")
    steps = max(0, int(np.ceil(np.log(stop / start) / -np.log(factor) - 1e-9)))
    return [min(float(start * factor**-i), float(stop)) for i in range(steps)] + [float(stop)]


def critical_beta(
    model: Any, n: CountMatrix, rng: np.random.RandomState, row_weights: Floats | None = None
) -> float:
    """Inverse temperature of the first phase transition: below it there is but one profile.

    Parameters
    ----------
    model : clustering model with ``initial`` and ``instabilities``
    n : count matrix of shape (N, M)
    rng : RandomState
    row_weights : array of shape (N,), optional

    Returns
    -------
    float
        Infinite when all rows are alike.
    """
    everything = np.ones((n.shape[0], 1), dtype=np.float32)
    return float(model.instabilities(n, model.initial(n, 1, rng), everything, rng, row_weights).beta[0])


def last_of(states: Iterable[State]) -> State:
    """Exhaust the generator and return its last state."""
    *_, state = states
    return state


def anneal(
    model: Any,
    n: CountMatrix | Sequence[Level],
    schedule: Sequence[float] | None = None,
    *,
    rng: np.random.RandomState,
    n_clusters: int = 1,
    start: Any = None,
    growth: str | None = None,
    validation: Callable[[Any, Any], float] | None = None,
    patience: int | None = None,
    row_weights: Floats | None = None,
    over_relax: bool = True,
    perturbation: float = 0.01,
    tol: float = 1e-5,
    max_steps: int = 100,
) -> Iterator[State]:
    """Fit a model by annealed EM, yielding every step ([1]_ section 5.1).

    Parameters
    ----------
    model
        Has ``initial(n, n_clusters, rng)``, ``step(n, params, beta, posteriors, row_weights)``,
        ``relax(old, new, eta, groups)`` and ``n_distinct(params)``; with ``growth`` also ``instabilities``
        and ``cluster_energies``.
    n : count matrix, or sequence of Level from coarse to fine
    schedule : sequence of floats, optional
        Inverse temperatures at the first level; finer levels stay at the last one. By default from just above
        the first phase transition, computed from the data, down to temperature 1.
    rng : RandomState
    n_clusters : int
        Clusters of the start, or with ``growth`` the largest number.
    start : parameters, optional
        Where to begin, instead of the model's own start.
    growth : {None, "split", "split-merge"}
        Begin with one cluster and split those that are beyond their phase transition, at every temperature;
        "split-merge" then also splits one and merges two others as long as that lowers the free energy.
    validation : function (params, posteriors) -> float, optional
        Log-likelihood of held-out data, reported with every state.
    patience : int, optional
        End a temperature when the held-out likelihood has not improved for so many steps.
    row_weights : array of shape (N,), optional
        Sites each row stands for, when ``n`` is a single matrix.
    over_relax : bool, default=True
        Lengthen M-steps as long as that lowers F ([1]_ Eq. 63), back to plain ones when it does not; not for
        models whose F may rise.
    perturbation : float, default=0.01
        Relative noise put on the parameters before each temperature, so that identical clusters can part.
    tol : float, default=1e-5
        A temperature has converged when three steps in a row lower F by less than this fraction of it.
    max_steps : int, default=100
        Steps a temperature, at most.

    Yields
    ------
    State

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.

    Examples
    --------
    >>> from texseg.models.acm import HistogramClustering
    >>> n = np.repeat([[9.0, 1.0], [1.0, 9.0]], 50, axis=0)
    >>> run = anneal(HistogramClustering(), n, n_clusters=2, rng=np.random.RandomState(0))
    >>> end = last_of(run)
    >>> end.n_distinct, np.sort(end.params.profiles[:, 0]).round(2)
    (2, array([0.1, 0.9]))
    """
    levels = n if _is_levels(n) else [Level(n, row_weights)]
    first = levels[0]
    if schedule is None:
        hottest = 0.8 * critical_beta(model, first.counts, rng, first.row_weights)
        schedule = geometric_schedule(min(hottest, 1.0), 1.0)
    _check_schedule(schedule)
    _check_growth(growth)
    settings = _Settings(validation, patience, over_relax, tol, max_steps)
    params = start
    if params is None:
        params = model.initial(first.counts, 1 if growth else n_clusters, rng)
    posteriors, step, n_distinct = None, 0, 1
    transitions: tuple[Transition, ...] = ()
    stage, n_stages = 0, len(schedule) + len(levels) - 1
    for index, level in enumerate(levels):
        here = model if level.posterior is None else model.with_posterior(level.posterior)
        if index and posteriors is not None:
            posteriors = posteriors[level.parent]
        for beta in schedule if index == 0 else schedule[-1:]:
            problem = _Problem(here, level.counts, beta, level.row_weights)
            if growth:
                grown, events = _grow_at(problem, posteriors, n_clusters, settings, rng, growth != "split")
                params, posteriors, transitions = grown.params, grown.Q, transitions + events
            elif index == 0:
                params = _perturbed(here, params, perturbation, rng, groups_of(level.counts))
            for move in _descend(problem, params, posteriors, settings):
                step += move.cost
                if move.converged:
                    n_distinct, stage = here.n_distinct(move.params), stage + 1
                yield State(
                    move.params,
                    beta,
                    move.result.free_energy,
                    move.result.posteriors,
                    move.heldout,
                    n_distinct,
                    index,
                    step,
                    move.converged,
                    transitions,
                    stage,
                    n_stages,
                )
            params, posteriors = move.params, move.result.posteriors


def grow(
    model: Any,
    n: CountMatrix,
    n_clusters: int,
    *,
    rng: np.random.RandomState,
    beta: float = 1.0,
    n_extra: int = 3,
    row_weights: Floats | None = None,
    max_moves: int = MOVES,
    settle_steps: int = 6,
) -> Iterator[State]:
    """Grow clusters at one temperature by splits, with split-and-merge moves at each number, and back down.

    Begins with one cluster, splits the one that gains most until there are ``n_clusters + n_extra``, then
    merges the pair that loses least until one is left, and so visits every number of clusters twice. At each
    number, as long as a split gains more than some merge loses, both are made. Fast and reliable with hard
    assignments (the model's posterior ``ArgMax()``).

    Parameters
    ----------
    model : clustering model with ``instabilities`` and ``cluster_energies``
    n : count matrix of shape (N, M)
    n_clusters : int
    rng : RandomState
    beta : float, default=1.0
        Inverse temperature; without effect on hard assignments.
    n_extra : int, default=3
    row_weights : array of shape (N,), optional
        Sites each row stands for; rows of weight 0 are without data.
    max_moves : int, default=5
        Split-and-merge moves at each number of clusters, at most.
    settle_steps : int, default=6
        EM steps after each change, at most.

    Yields
    ------
    State
        One for every number of clusters visited; the better of two with equally many is that of the lower
        ``free_energy``. ``step`` counts the visits.

    Examples
    --------
    >>> from texseg.models.acm import HistogramClustering
    >>> from texseg.fitting.assignment import ArgMax
    >>> n = np.repeat([[9.0, 1.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 9.0]], 20, axis=0)
    >>> run = grow(HistogramClustering(ArgMax()), n, 3, n_extra=0, rng=np.random.RandomState(0))
    >>> [(len(s.params.weights), round(s.free_energy)) for s in run]
    [(1, 725), (2, 543), (3, 396), (2, 543), (1, 725)]
    """
    problem = _Problem(model, n, beta, row_weights)
    settings = _Settings(over_relax=False, max_steps=settle_steps, calm_steps=1)
    now, most, visits = _whole(problem), min(n_clusters + n_extra, n.shape[0]), 0
    yield _visited(problem, now, visits)
    now, halves = _refine_halves(problem, now, rng)
    while len(halves.gains) < most and halves.gains.max() > _resolution(now.energies):
        now = _assess(problem, *_split(now, int(halves.gains.argmax()), halves))
        now, halves, _ = _improve(problem, _settle(problem, now, settings), settings, rng, max_moves)
        yield _visited(problem, now, visits := visits + 1)
    while now.Q.shape[1] > 1:
        losses = _merge_losses(problem, now)
        i, j = divmod(int(losses.argmin()), len(losses))
        now = _assess(problem, *_merge((now.Q, now.stats, now.halves, now.fresh), i, j))
        now, halves, _ = _improve(problem, _settle(problem, now, settings), settings, rng, max_moves)
        yield _visited(problem, now, visits := visits + 1)


def _visited(problem: _Problem, now: _Partition, visits: int) -> State:
    n_distinct = problem.model.n_distinct(now.params)
    energy = float(now.energies.sum())
    return State(now.params, problem.beta, energy, now.Q, np.nan, n_distinct, 0, visits, True)


# ---- one temperature -------------------------------------------------------------------------------------


class _Settings(NamedTuple):
    validation: Callable[[Any, Any], float] | None = None
    patience: int | None = None
    over_relax: bool = True
    tol: float = 1e-5
    max_steps: int = 100
    calm_steps: int = CALM_STEPS


class _Problem(NamedTuple):
    """A model on a count matrix at one temperature."""

    model: Any
    n: CountMatrix
    beta: float
    row_weights: Floats | None

    def step(self, params: Any, posteriors: Any) -> Any:
        return self.model.step(self.n, params, self.beta, posteriors, self.row_weights)

    def energies(self, stats: Any, Q: Floats) -> Floats:
        """Every cluster's part (K,) of F, with the best parameters for ``Q``."""
        likelihood = self.model.cluster_energies(stats, groups_of(self.n))
        return self.beta * likelihood + self.model.posterior.cluster_terms(Q, self.row_weights)


class _Move(NamedTuple):
    params: Any
    result: Any  # the step made from there
    heldout: float
    cost: int
    converged: bool


def _descend(problem: _Problem, params: Any, posteriors: Any, settings: _Settings) -> Iterator[_Move]:
    """EM steps at one temperature, F never rising, until it hardly falls or held-out data object."""
    model, groups = problem.model, groups_of(problem.n)
    watch = _Watch(settings.validation, settings.patience)
    result, eta, cost, calm = problem.step(params, posteriors), 1.0, 1, 0
    heldout = watch(params, result.posteriors)
    for _ in range(settings.max_steps - 1):
        if watch.impatient:
            break
        proposal = result.params if eta == 1.0 else model.relax(params, result.params, eta, groups)
        trial, trial_cost = problem.step(proposal, result.posteriors), 1
        if eta > 1.0 and trial.free_energy > result.free_energy:
            eta, proposal, trial_cost = 1.0, result.params, 2
            trial = problem.step(proposal, result.posteriors)
        drop = result.free_energy - trial.free_energy
        if model.monotone and drop <= 0:
            break
        yield _Move(params, result, heldout, cost, False)
        params, result, cost = proposal, trial, trial_cost
        heldout = watch(params, result.posteriors)
        eta = eta * ETA_GROWTH if settings.over_relax and model.monotone else 1.0
        calm = calm + 1 if abs(drop) < settings.tol * abs(result.free_energy) else 0
        if calm >= settings.calm_steps:
            break
    yield _Move(params, result, heldout, cost, True)


class _Watch:
    """Held-out likelihood of every step, and whether it has stopped improving."""

    def __init__(self, validation: Callable[[Any, Any], float] | None, patience: int | None) -> None:
        self.validation = validation
        self.patience = patience
        self.best = -np.inf
        self.since_best = 0

    def __call__(self, params: Any, posteriors: Any) -> float:
        if self.validation is None:
            return np.nan
        value = self.validation(params, posteriors)
        self.since_best = 0 if value > self.best else self.since_best + 1
        self.best = max(self.best, value)
        return value

    @property
    def impatient(self) -> bool:
        return self.patience is not None and self.since_best >= self.patience


def _perturbed(
    model: Any, params: Any, amount: float, rng: np.random.RandomState, groups: NDArray[np.intp]
) -> Any:
    """Multiply every parameter by noise, so that clusters on top of each other can part."""
    noisy = params._replace(
        **{
            name: value * (1 + amount * rng.uniform(-1, 1, value.shape))
            for name, value in params._asdict().items()
        }
    )
    return model.relax(noisy, noisy, 1.0, groups)


def _is_levels(n: Any) -> bool:
    return isinstance(n, (list, tuple)) and len(n) > 0 and isinstance(n[0], Level)


def _check_schedule(schedule: Sequence[float]) -> None:
    if len(schedule) == 0 or min(schedule) <= 0:
        raise ValueError(
            f"anneal needs a schedule of positive inverse temperatures, got {list(schedule)}; "
            "see geometric_schedule"
        )


def _check_growth(growth: str | None) -> None:
    if growth not in (None, "split", "split-merge"):
        raise ValueError(f'growth must be None, "split" or "split-merge", got {growth!r}')


# ---- growth: every cluster keeps a tentative split into two halves -----------------------------------------


class _Partition(NamedTuple):
    """Posteriors with everything that splits and merges are decided by."""

    params: Any  # the best for Q
    Q: Floats  # (N, K)
    stats: Any
    energies: Floats  # (K,), parts of F
    halves: Floats  # (N, K), the fraction of each row's share in cluster k that stays in k when k is split
    fresh: NDArray[np.bool_]  # (K,), clusters whose halves are still to be found


class _Halves(NamedTuple):
    """What splitting each cluster would give."""

    gains: Floats  # (K,), by how much F would fall
    kept: Any  # statistics of the half that stays


def _whole(problem: _Problem) -> _Partition:
    """All rows in one cluster."""
    Q = np.ones((problem.n.shape[0], 1), dtype=np.float32)
    stats = problem.model.stats(problem.n, Q, problem.row_weights)
    return _assess(problem, Q, stats, np.full_like(Q, 0.5), np.ones(1, bool))


def _assess(problem: _Problem, Q: Floats, stats: Any, halves: Floats, fresh: NDArray[np.bool_]) -> _Partition:
    params = problem.model.m_step(stats, groups_of(problem.n))
    return _Partition(params, Q, stats, problem.energies(stats, Q), halves, fresh)


def _settle(problem: _Problem, now: _Partition, settings: _Settings) -> _Partition:
    """EM steps; the halves stay as they were."""
    *_, last = _descend(problem, now.params, now.Q, settings)
    return _assess(problem, last.result.posteriors, last.result.stats, now.halves, now.fresh)


def _refine_halves(
    problem: _Problem, now: _Partition, rng: np.random.RandomState
) -> tuple[_Partition, _Halves]:
    """Improve every tentative split by EM steps within its cluster; begin new ones along the eigenvector."""
    model, n, rows = problem.model, problem.n, problem.row_weights
    halves = now.halves.copy()
    if now.fresh.any():
        params = now.params._replace(profiles=now.params.profiles[now.fresh])
        unstable = model.instabilities(n, params, now.Q[:, now.fresh], rng, rows, max_iter=POWER_STEPS)
        halves[:, now.fresh] = n @ unstable.directions.astype(halves.dtype) > 0
    for _ in range(HALVES_STEPS if now.fresh.any() else 1):
        kept, left = _split_stats(problem, now, halves)
        contrast = model.contrast(n, model.m_step(kept, groups_of(n)), model.m_step(left, groups_of(n)), rows)
        for k, share in enumerate((kept.sizes / np.maximum(now.stats.sizes, 1e-30)).clip(0, 1)):
            pair = np.stack([contrast[:, k], np.zeros_like(contrast[:, k])], axis=1)
            weights = np.array([share, 1 - share])
            halves[:, k] = model.posterior(pair, problem.beta, weights, None, rows).posteriors[:, 0]
    kept, left = _split_stats(problem, now, halves)
    stay = now.Q * halves
    gains = now.energies - problem.energies(kept, stay) - problem.energies(left, now.Q - stay)
    return now._replace(halves=halves, fresh=np.zeros_like(now.fresh)), _Halves(gains, kept)


def _split_stats(problem: _Problem, now: _Partition, halves: Floats) -> tuple[Any, Any]:
    kept = problem.model.stats(problem.n, now.Q * halves, problem.row_weights)
    left = type(kept)(*(np.maximum(whole - part, 0) for whole, part in zip(now.stats, kept, strict=True)))
    return kept, left


def _split(now: _Partition, k: int, halves: _Halves) -> tuple[Floats, Any, Floats, NDArray[np.bool_]]:
    """Append the half of cluster ``k`` that leaves as a new cluster."""
    left = now.Q[:, k] * (1 - now.halves[:, k])
    Q = np.column_stack([now.Q, left])
    Q[:, k] *= now.halves[:, k]
    stats = type(now.stats)(
        *(
            np.concatenate([_with_row(whole, k, part[k]), (whole[k] - part[k])[None].clip(0)])
            for whole, part in zip(now.stats, halves.kept, strict=True)
        )
    )
    fresh = np.append(now.fresh, True)
    fresh[k] = True
    return Q, stats, np.column_stack([now.halves, np.full_like(left, 0.5)]), fresh


def _merge(
    state: tuple[Floats, Any, Floats, NDArray[np.bool_]], i: int, j: int
) -> tuple[Floats, Any, Floats, NDArray[np.bool_]]:
    """Add cluster ``j`` to ``i``, whose halves these become; the last cluster takes the place of ``j``."""
    Q, stats, halves, fresh = state
    order = np.arange(Q.shape[1] - 1)
    order[j : j + 1] = Q.shape[1] - 1
    merged = Q[:, i] + Q[:, j]
    share = Q[:, i] / np.maximum(merged, 1e-30)
    Q, halves, fresh = Q[:, order], halves[:, order], fresh[order]
    Q[:, i], halves[:, i], fresh[i] = merged, share, False
    stats = type(stats)(*(_with_row(part, i, part[i] + part[j])[order] for part in stats))
    return Q, stats, halves, fresh


def _with_row(array: Floats, k: int, row: Floats) -> Floats:
    changed = array.copy()
    changed[k] = row
    return changed


def _merge_losses(problem: _Problem, now: _Partition) -> Floats:
    """By how much F would rise if clusters i < j were one, shape (K, K), infinite elsewhere."""
    K = now.Q.shape[1]
    i, j = np.triu_indices(K, 1)
    stats = type(now.stats)(*(part[i] + part[j] for part in now.stats))
    losses = np.full((K, K), np.inf)
    both = problem.energies(stats, now.Q[:, i] + now.Q[:, j])
    losses[i, j] = both - now.energies[i] - now.energies[j]
    return losses


def _best_move(gains: Floats, losses: Floats) -> tuple[float, int, int, int]:
    """Find the split of k and merge of i < j (both other than k) that together lower F most."""
    best = (-np.inf, -1, -1, -1)
    for k in np.argsort(-gains):
        others = losses.copy()
        others[k] = others[:, k] = np.inf
        i, j = divmod(int(others.argmin()), len(others))
        net = gains[k] - others[i, j]
        if net > best[0]:
            best = (float(net), int(k), i, j)
    return best


def _improve(
    problem: _Problem, now: _Partition, settings: _Settings, rng: np.random.RandomState, max_moves: int
) -> tuple[_Partition, _Halves, list[tuple[int, int]]]:
    """Split one cluster and merge two others, as long as that lowers F."""
    moved: list[tuple[int, int]] = []
    for _ in range(max_moves):
        now, halves = _refine_halves(problem, now, rng)
        if len(halves.gains) < 3:
            return now, halves, moved
        net, k, i, j = _best_move(halves.gains, _merge_losses(problem, now))
        if net <= _resolution(now.energies):
            return now, halves, moved
        moved.append((k, j))
        now = _settle(problem, _assess(problem, *_merge(_split(now, k, halves), i, j)), settings)
    now, halves = _refine_halves(problem, now, rng)
    return now, halves, moved


def _grow_at(
    problem: _Problem,
    Q: Floats | None,
    n_clusters: int,
    settings: _Settings,
    rng: np.random.RandomState,
    moves: bool,
) -> tuple[_Partition, tuple[Transition, ...]]:
    """Split what is beyond its phase transition at this temperature; then try split-and-merge moves."""
    if Q is None:
        now = _whole(problem)
    else:
        stats = problem.model.stats(problem.n, Q, problem.row_weights)
        now = _assess(problem, Q, stats, np.full_like(Q, 0.5), np.ones(Q.shape[1], bool))
    now = _settle(problem, now, settings)
    events: list[Transition] = []
    while True:
        now, halves = _refine_halves(problem, now, rng)
        room = n_clusters - len(halves.gains)
        unstable = [k for k in np.argsort(-halves.gains) if halves.gains[k] > _resolution(now.energies)]
        if not unstable[:room]:
            break
        for k in unstable[:room]:
            events.append(Transition(problem.beta, int(k), now.Q.shape[1]))
            now = _assess(problem, *_split(now, int(k), halves))
        now = _settle(problem, now, settings)
    if moves:
        now, _, moved = _improve(problem, now, settings, rng, MOVES)
        events += [Transition(problem.beta, k, j) for k, j in moved]
    return now, tuple(events)


def _resolution(energies: Floats) -> float:
    """Smallest difference of F that single precision can tell from rounding."""
    return 1e-6 * float(np.abs(energies).sum())
