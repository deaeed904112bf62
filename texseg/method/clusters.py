"""The clusters of an image, from counts to profiles: what `segment` runs, on one page.

1. *Windows.* The asymmetric clustering model is annealed on the histograms of windows, from just above the
   first critical temperature down to the one that counts independent observations, and grown by splits and
   exchanges ([1]_ section 5.1). A window that straddles a border has a mixed histogram, and together such
   windows can form a cluster of their own, at the cost of merging two true textures. So the first run uses
   only the calmest windows; further ones use all of them, and random halves.
2. *Cells.* All runs continue on the disjoint cells' own histograms, where a Potts prior on the map replaces
   the mixing proportions (a hidden-Markov ACM). Without a prior on the map (``smoothness=0``), a window
   around every cell is used instead.
3. *Merging.* The clusters are a few more than are wanted. They are merged, pair by pair, in the order of
   :mod:`texseg.method.number`, and the level with the wanted number is fitted to the cells again. A number
   that is given and one that is chosen are levels of such a tree alike.
4. *Choice.* Other solutions are annealed with as many clusters as are wanted. Of all these, the one that is
   likeliest to be right is kept, see :meth:`Search.merits`.

:mod:`texseg.method.textures` describes how pixels get their labels.

References
----------
.. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.counts.axes import largest_part
from texseg.counts.grid import CellGrid
from texseg.counts.sites import WINDOW_STEP, Sites, border_measure, window_sites
from texseg.fitting.anneal import State, anneal, critical_beta, geometric_schedule, last_of
from texseg.fitting.assignment import SETTLING_SWEEPS, Posterior, SoftMax, arg_max_over, potts_field, soft_max
from texseg.fitting.moves import Transition
from texseg.method.confidence import confusion_of_clusters
from texseg.method.number import MergeTree, dissolved, merge_tree
from texseg.method.pairs import odds_of_first, shipped_table
from texseg.method.seeds import Description, describe
from texseg.method.textures import Textures, divergence, divergence_limits, scores_of
from texseg.models.histograms import HistogramClustering, Profiles
from texseg.parameters import Settings
from texseg.threads import side_by_side

Floats = NDArray[np.floating]

_MOST_WINDOWS = 4096  # windows used to find starts; in larger images they lie further apart. All do as well
_HALF = 0.5  # of the windows are calm, or used by each start after the second; least share of data in each
_HOTTEST = 0.9  # of the first critical inverse temperature
_COOLING = 0.5  # each temperature is this times the one before; .3 to .75 give the same clusters
_STEPS = 20  # most EM steps between two changes; of k-means and of mixtures, too
_TOLERANCE = 1e-4  # of the free energy
_RUNS = 6  # of k-means
_FEW = 20  # cells of a cluster that touch no other
_POWERS = (1.0, 0.5)  # of values
_LEAST_VALUE = 1 / 64  # of the image's range, added to values
_LEAST_SPREAD = 3e-5  # added to variances, of values in ranges
_MERITS = (3.5, -2.2, 0.55)  # learned, with fields left out: `benchmarks/learn_merit.py`
_LEAST = 1e-3  # added to shares before their logarithms are taken
_LEAST_GAIN = 0.01  # added to gains
_WORST = 0.01  # share of the windows that may be a rare texture; .005 to .02 do as well
_POOR = 0.1  # share of a cluster's windows from which a rare texture in it is looked for
_TOGETHER = 0.68  # share of what is unlike the rest that lies in one place; else a texture varies
_FEWEST_APART = 9  # windows
_TRIED = 2  # of an image, the smallest: large ones are mostly windows along borders
_MORE = 3  # clusters than are wanted in the over-segmentation; 2 to 5 do as well, 14 are worse
_FEWEST = 6  # clusters of it


class Record(NamedTuple):
    """One entry of ``history_``."""

    phase: str
    """"windows" while annealing, "cells" under the prior on the map, or the name of another model."""
    step: int
    beta: float
    """Inverse temperature of the step."""
    free_energy: float
    """Nats; of several runs at once, the lowest."""
    n_distinct: int
    """Distinguishable clusters, counted at the end of each temperature."""
    level: int
    """0 for windows, 1 for cells."""
    transitions: tuple[Transition, ...] = ()
    """Phase transitions at this step: which cluster was split, and at which inverse temperature."""


class Candidate(NamedTuple):
    """One fitted run."""

    posteriors: Floats  # (N, K)
    profiles: Floats  # (K, M); every channel sums to one
    scores: Floats
    """(N, K), log-likelihood of every site in every cluster, relative to the background profile."""


@dataclass
class Search:
    """Fits to the cells of one or several images, and what they share."""

    cells: Sites
    grids: Sequence[CellGrid]
    wavelengths: NDArray[np.float64]  # of the channels, in pixels
    settings: Settings
    beta: float  # inverse temperature at which windows count as many observations as are independent
    rng: np.random.RandomState
    history: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._trees: dict[int, MergeTree] = {}

    def of_number(self, k: int, tell: Callable[[str], None] = lambda phase: None) -> Floats:
        """Profiles (k, M) of a number that is given, see `best_level`."""
        if k == 1:
            return self.best_level([], k)
        more, starts = self.starts(max(k + _MORE, _FEWEST), k)
        tell("clusters")
        return self.best_level([self._merged(fit, k) for fit in self.on_cells(more)], k, starts)

    def best_level(self, trees: Sequence[MergeTree], k: int, starts: Floats | None = None) -> Floats:
        """Profiles (k, M) of the likeliest rival; there are fewer if so many are not found."""
        return max(self.rivals(trees, k, starts), key=lambda fit: np.dot(_MERITS, self.merits(fit))).profiles

    def rivals(self, trees: Sequence[MergeTree], k: int, annealed: Floats | None = None) -> list[Candidate]:
        """Fits to the cells that start from level ``k`` of these trees, and from ``k`` annealed clusters."""
        if k == 1:
            return self.on_cells(self.cells.background[None, None])
        starts = self.starts(k) if annealed is None else [annealed]
        starts += [self._of_level(tree, k)[None] for tree in trees if tree.n_clusters >= k]
        starts += [self._with_worst(self._of_level(tree, k - 1))[None] for tree in trees[:1]]
        complete = [each for each in starts if each.shape[1] == k]
        return self.on_cells(np.concatenate(complete)) if complete else self.rivals(trees, k - 1)

    def _of_level(self, tree: MergeTree, k: int) -> Floats:
        """Profiles (k or fewer, M) of a level of a tree."""
        labels = tree.groups(min(k, tree.n_clusters))[tree.labels]
        return self.cells.profiles((labels[:, None] == np.arange(labels.max() + 1)).astype(np.float32))

    def _with_worst(self, profiles: Floats) -> Floats:
        """Profiles (k, M), and that of the windows that fit them worst: a rare texture has no other start."""
        windows = self.windows.only(self.windows.sizes > 0)
        _, divergences = divergence(windows, scores_of(windows, profiles, windows.background))
        worst = divergences >= np.quantile(divergences, 1 - _WORST)
        return np.concatenate([profiles, windows.profiles(worst[:, None].astype(np.float32))])

    def novelties(self, profiles: Floats, crops: Sequence[tuple[slice, ...]] = ()) -> list[NDArray[np.bool_]]:
        """Cells (N,) of what fits a cluster worst, the largest first, if nearly all of it lies in one place.

        The windows of each of K profiles are divided in two, from those that fit it worst; of a texture that
        varies, these are scattered. Several ``crops`` of one scene may show the same place.
        """
        every, found, background = self.windows, [], self.windows.background
        labels, divergences = divergence(every, scores_of(every, profiles, background))
        scenes = replace(every, grids=every.stacks or every.grids)
        image = np.repeat(np.arange(len(scenes.grids)), [math.prod(shape) for shape in scenes.grids])
        for k in range(len(profiles)):
            own = (every.sizes > 0) & (labels == k)
            if np.count_nonzero(own) < _FEW:
                continue
            windows, apart = every.only(own), divergences[own] >= np.quantile(divergences[own], 1 - _POOR)
            for _ in range(_STEPS):
                halves = windows.profiles(np.stack([~apart, apart], axis=1).astype(np.float32))
                before, apart = apart, np.diff(scores_of(windows, halves, background))[:, 0] > 0
                if np.array_equal(apart, before):
                    break
            marked = np.zeros(len(labels), bool)
            marked[own] = apart ^ (apart.mean() > _HALF)
            largest = np.concatenate([largest_part(each).ravel() for each in scenes.pieces(marked)])
            together = largest & (image == np.bincount(image[largest], minlength=1).argmax())
            if np.count_nonzero(together) < _FEWEST_APART:
                continue
            if crops:
                together = largest & self._are_near(together, scenes.grids, crops)
            if np.count_nonzero(together) >= _TOGETHER * np.count_nonzero(marked):
                found.append(together)
        return [self._cells_of(each) for each in sorted(found, key=np.count_nonzero, reverse=True)]

    def _are_near(
        self, marked: NDArray[np.bool_], shapes: Sequence[tuple[int, ...]], crops: Sequence[tuple[slice, ...]]
    ) -> NDArray[np.bool_]:
        """Which windows (N,) of crops, with grids of some shapes, may show the place of the marked ones."""
        places = []
        for crop, grid, shape in zip(crops, self.grids, shapes, strict=True):
            steps, starts = self._step * np.array(grid.sides), [part.start for part in crop]
            places.append(starts + steps * np.indices(shape).reshape(len(shape), -1).T)
        every, reach = np.concatenate(places), max(part.stop - part.start for crop in crops for part in crop)
        here = every[marked]
        return np.all((every >= here.min(axis=0) - reach) & (every <= here.max(axis=0) + reach), axis=1)

    def _cells_of(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Cells (N,) of some windows (n,)."""
        found = []
        for image, shape in zip(self.windows.pieces(marked), self.cells.grids, strict=True):
            for axis in range(image.ndim):
                image = image.repeat(self._step, axis)
            found.append(image[tuple(map(slice, shape))].ravel())
        return np.concatenate(found)

    def with_novelties(
        self, profiles: Floats, most: int, least: float, crops: Sequence[tuple[slice, ...]] = ()
    ) -> tuple[Floats, list[NDArray[np.bool_]], list[NDArray[np.bool_]]]:
        """Profiles (k, M), k up to ``most``, with rare textures; cells (N,) of these and of what may be some.

        Each of `novelties`, of an image the smallest, is tried as one more cluster. It is added if all are
        likely textures then; it replaces one of two others that are likelier a single texture than it and any
        other; otherwise its cells are given if the log-odds of all are above ``least``.
        """
        taken, left, seen, state = [], [], np.zeros(len(self.cells.sizes), bool), self.rng.get_state()
        novelties = self.novelties(profiles, crops)
        for found in novelties if crops else novelties[: -_TRIED - 1 : -1]:
            k, n_records = len(profiles), len(self.history)
            start = self.cells.profiles(found[:, None].astype(np.float32))
            fit, tree = self._with_last(np.concatenate([profiles, start]))
            odds, is_surer = -np.inf, False  # than what was merged first
            if tree is not None:
                odds, in_tree = odds_of_first(tree.evidence), shipped_table().log_odds(tree.evidence)
                is_surer = in_tree[0] < in_tree[next(i for i, pair in enumerate(tree.merges) if k in pair)]
            cells = arg_max_over(fit.posteriors.T) == k
            if odds > 0 and k < most:
                profiles = fit.profiles
            elif tree is not None and odds <= 0 and is_surer:
                profiles = self.on_cells(self._of_level(tree, k)[None])[0].profiles
            else:
                del self.history[n_records:]  # which is that of the result
                if odds > least and not (cells & seen).any():
                    left.append(cells)
                    seen |= cells
                continue
            taken.append(cells)
        self.rng.set_state(state)  # what follows must not depend on what was tried
        return profiles, taken, left

    def _with_last(self, profiles: Floats) -> tuple[Candidate, MergeTree | None]:
        """Fit one cluster more than there were: the fit, and its tree unless a cluster has no interior."""
        (fit,) = self.on_cells(profiles[None])
        labels = dissolved(fit.posteriors.argmax(axis=1), fit.scores, self.cells)
        has_all = labels.max() + 1 == len(profiles)
        return fit, merge_tree(labels, self.cells, self.window) if has_all else None

    def merits(self, fit: Candidate) -> NDArray[np.float64]:
        """Measure what speaks for a fit among others with as many clusters: (3,) logarithms.

        Of the likelihood that the clusters gain over one, of the doubt about the cells, and of the smallest
        cluster's share.
        """
        labels, share = arg_max_over(fit.posteriors.T), self.cells.sizes / self.cells.sizes.sum()
        gain = share @ fit.scores[np.arange(len(labels)), labels]
        doubt = 1 - share @ fit.posteriors.max(axis=1)
        areas = np.bincount(labels[self.cells.sizes > 0], minlength=fit.scores.shape[1])
        return np.log([max(gain, 0.0) + _LEAST_GAIN, doubt + _LEAST, areas.min() / areas.sum() + _LEAST])

    def tree(self, most: int) -> MergeTree:
        """Over-segment into at most ``most`` clusters, and merge them down to one; computed only once."""
        if most not in self._trees:
            fits = self.on_cells(self.starts(most)[0])
            self._trees[most] = self._merged(max(fits, key=lambda fit: self.merits(fit)[0]), 2)  # by gain
        return self._trees[most]

    def of_values(self, means: Floats, k: int, is_mixture: bool = True) -> Floats:
        """Profiles (k, M) of ``k`` clusters of plain values alone, of means (N, C) of cells.

        Histograms do not know which values are close, so that cells across the borders of small parts, whose
        values lie between those of both, would be clusters. Nor do they count for a cluster with others. A
        mixture of Gaussians may hold some that no pixel is left to; k-means does not.
        """
        sizes = np.maximum(self.cells.window_mean(self.cells.sizes[:, None], self.window), 1e-6)
        points = self.cells.window_mean(means * self.cells.sizes[:, None], self.window) / sizes
        present = self.cells.sizes > 0
        labels = (clusters_of_values if is_mixture else k_means)(points, present, k, self.rng)
        members = (labels[:, None] == np.arange(k)).astype(np.float32)
        inner = members * (self.cells.window_mean(members, 3) > 1 - 1e-3)
        return self.cells.profiles(np.where(inner.sum(axis=0) < _FEW, members, inner))

    def _merged(self, fit: Candidate, least: int) -> MergeTree:
        """Merge the clusters of a fit; ``least`` are kept even if they have no interior."""
        labels = dissolved(fit.posteriors.argmax(axis=1), fit.scores, self.cells, least)
        return merge_tree(labels, self.cells, self.window)

    def starts(self, *numbers: int) -> list[Floats]:
        """Profiles (S, K, M) of each number K, annealed on the calm windows, on all, and on random halves."""
        present = self.windows.sizes > _HALF * self.windows.sizes.max()
        measure = self._contrast
        seen = [present & (measure <= np.quantile(measure[present], _HALF)), present]
        while len(seen) < self.settings.n_starts:
            seen.append(present & (self.rng.uniform(size=len(present)) < _HALF))
        every = [self.windows.only(rows) for rows in seen[: self.settings.n_starts]]
        state = self.rng.get_state()
        given = [(windows, number, state) for windows in every for number in numbers]
        runs = side_by_side(lambda start: self._annealed(*start), given)
        for _, records in runs:
            self.history += [record._replace(step=len(self.history) + record.step) for record in records]
        found = [[profiles for profiles, _ in runs[at :: len(numbers)]] for at in range(len(numbers))]
        complete = [[one for one in own if len(one) == max(map(len, own))] for own in found]
        return [np.stack(own).astype(np.float32) for own in complete]

    def on_cells(self, starts: Floats) -> list[Candidate]:
        """Fit the cells from starting profiles (S, K, M), all runs at once."""
        n, beta, posterior = self._level(self.settings.potts.n_sweeps)
        model = HistogramClustering(posterior, self.cells.background)
        even = np.full(starts.shape[:2], 1 / starts.shape[1], np.float32)
        start, rng, rounds = Profiles(starts.astype(np.float32), even), self.rng, self.settings.potts.n_rounds
        run = anneal(
            model, n, [beta], start=start, rng=rng, over_relax=False, perturbation=0.0, max_steps=rounds
        )
        end = last_of(_recorded(run, self.history, "cells", 1))
        gains = model.scores(n, end.params) - scores_of(n, n.background[None], n.background)[:, None]
        by_run = np.moveaxis(end.posteriors, 1, 0), end.params.profiles, np.moveaxis(gains, 1, 0)
        return [Candidate(*of_run) for of_run in zip(*by_run, strict=True)]

    def textures(self, profiles: Floats, features: Features) -> Textures:
        """Turn profiles (K, M) into textures that can label images."""
        s, cells, profiles = self.settings, self.cells, np.ascontiguousarray(profiles, np.float32)
        n, beta, posterior = self._level(SETTLING_SWEEPS)
        model = HistogramClustering(posterior, cells.background)
        params = Profiles(profiles, np.full(len(profiles), 1 / len(profiles)))
        labels = model.fold_in(n, params, beta).argmax(axis=1)
        return Textures(
            features,
            profiles,
            cells.background,
            s.cell,
            s.potts,
            s.windows,
            divergence_limits(self.windows, model.scores(self.windows, params)),
            confusion_of_clusters(labels, len(profiles), cells, self.window, not features.has_filters),
        )

    @property
    def window(self) -> float:
        """Side of the windows on which spread is measured, in cells."""
        return self.settings.windows[0] / self.settings.cell

    @cached_property
    def windows(self) -> Sites:
        """Windows used to find starts."""
        return self._windows(self._step)

    @cached_property
    def _contrast(self) -> Floats:
        """How far each window's surroundings differ, (N,): the calm ones lie in one texture."""
        return border_measure(self.windows, max(1, round(self.window / 2 / self._step)))

    @cached_property
    def _step(self) -> int:
        """Distance between these windows in cells; larger in large images, which need no more windows."""
        share = np.count_nonzero(self.cells.sizes) / _MOST_WINDOWS
        return max(WINDOW_STEP, round(share ** (1 / len(self.cells.grids[0]))))

    def forget_windows(self) -> None:
        """Free the memory of the windows; they are computed again when needed."""
        for name in ("windows", "_contrast", "_around"):
            self.__dict__.pop(name, None)

    @cached_property
    def description(self) -> Description:
        """Description of the cells, for strokes."""
        return describe(self.cells, self.wavelengths, self.tree(self.settings.k_max).labels)

    @cached_property
    def _around(self) -> Sites:
        """Windows around every cell, in place of a prior on the map."""
        return self._windows(1)

    def _windows(self, step: int) -> Sites:
        return window_sites(self.cells, self.grids, self.wavelengths, self.settings.windows, step)

    def _level(self, n_sweeps: int) -> tuple[Sites, float, Posterior]:
        """Return counts, inverse temperature and posterior policy of the cells, with or without a prior."""
        potts, smoothness = self.settings.potts, self.settings.smoothness
        if smoothness == 0:
            return self._around, self.beta, SoftMax()
        return self.cells, potts.beta, potts_field(self.cells, potts, smoothness, n_sweeps)

    def _annealed(self, windows: Sites, n_clusters: int, random_state: Any) -> tuple[Floats, list[Record]]:
        """Profiles (K, M), annealed on some windows and grown by splits, and the record of the steps.

        If there are fewer than ``n_clusters`` at the final temperature, cooling continues.
        """
        model = HistogramClustering(background=windows.background)
        K, records, rng = min(n_clusters, windows.shape[0]), list[Record](), np.random.RandomState(0)
        rng.set_state(random_state)
        first = min(_HOTTEST * critical_beta(model, windows, rng), self.beta)
        schedule = geometric_schedule(first, self.beta, _COOLING)
        # every pixel of a window counts
        coldest = max(self.beta / _COOLING, self.settings.windows[0] ** len(self.cells.grids[0]))
        schedule += geometric_schedule(self.beta / _COOLING, coldest, _COOLING)
        effort: Any = {"tol": _TOLERANCE, "max_steps": _STEPS}
        run = anneal(model, windows, schedule, rng=rng, n_clusters=K, growth="split-merge", **effort)
        for state in _recorded(run, records, "windows", 0):
            if state.converged and state.beta >= self.beta and len(state.params.profiles) == K:
                break
        return state.params.profiles, records


def _recorded(run: Iterator[State], records: list[Record], phase: str, level: int) -> Iterator[State]:
    """Pass on the states of a run, and keep a record of each."""
    seen = 0
    for state in run:
        new = state.transitions[seen:]
        seen += len(new)
        energy, n_distinct = float(np.min(state.free_energy)), int(np.max(state.n_distinct))
        records.append(Record(phase, len(records) + 1, state.beta, energy, n_distinct, level, new))
        yield state


def clusters_of_values(
    points: Floats, present: NDArray[np.bool_], k: int, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Likeliest (n,) of k Gaussians of points (n, d), fitted to those that are present.

    One value may be the brightness or its square root, whichever is likelier to be a mixture of Gaussians of
    equal spread (Box and Cox, J. R. Stat. Soc. B 26, 1964, section 3); several have any covariances.
    """
    chosen = _some(present, rng)
    powers = _POWERS if points.shape[1] == 1 else (1.0,)
    best, most, low = np.zeros(len(points), np.intp), -np.inf, points[present].min(axis=0)
    for power in powers:
        seen = (np.maximum(points - low, 0).astype(float) + _LEAST_VALUE) ** power
        some = seen[chosen]
        mixture, likelihood = _gaussians(some, _centres(some, k, rng), len(powers) > 1)
        likelihood += np.log(power) + (1 - 1 / power) * np.log(some).mean()  # of the values before
        if likelihood > most:
            best, most = _log_densities(seen, *mixture).argmax(axis=1), likelihood
    return best


def k_means(
    points: Floats, present: NDArray[np.bool_], k: int, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Nearest (n,) of k centres of points (n, d), found from those that are present."""
    return _distances(points, _centres(points[_some(present, rng)], k, rng)).argmin(axis=1)


def _some(present: NDArray[np.bool_], rng: np.random.RandomState) -> NDArray[np.intp]:
    places = np.flatnonzero(present)
    return rng.choice(places, min(_MOST_WINDOWS, len(places)), replace=False)


def _gaussians(points: Floats, centres: Floats, is_shared: bool) -> tuple[tuple[Floats, ...], float]:
    """Weights (k,), means (k, d) and covariances (k, d, d) by EM, and the mean log-likelihood of points."""
    members = np.eye(len(centres))[_distances(points, centres).argmin(axis=1)]
    for _ in range(_STEPS):
        sizes = members.sum(axis=0) + 1e-9
        means = members.T @ points / sizes[:, None]
        apart = points[None] - means[:, None]
        spread = np.swapaxes(apart * members.T[..., None], 1, 2) @ apart / sizes[:, None, None]
        if is_shared:
            spread = np.broadcast_to(np.tensordot(sizes / sizes.sum(), spread, 1), spread.shape)
        mixture = sizes / sizes.sum(), means, spread + _LEAST_SPREAD * np.eye(points.shape[1])
        members, totals = soft_max(_log_densities(points, *mixture))
    return mixture, float(totals.mean())


def _log_densities(points: Floats, weights: Floats, means: Floats, covariances: Floats) -> Floats:
    """Log of weight times density, (n, k)."""
    ends = np.linalg.inv(np.linalg.cholesky(covariances))
    apart = (points[None] - means[:, None]) @ np.swapaxes(ends, 1, 2)
    scales = np.log(weights) + np.log(np.diagonal(ends, axis1=1, axis2=2)).sum(axis=1)
    constant = points.shape[1] / 2 * np.log(2 * np.pi)
    return scales - constant - (apart**2).sum(axis=2).T / 2


def _centres(some: Floats, k: int, rng: np.random.RandomState) -> Floats:
    """Centres (k, d) of points; the best of some runs."""
    best, least = some[:1], np.inf
    for _ in range(_RUNS):
        centres = some[[rng.randint(len(some))]]
        while len(centres) < k:  # far from one another
            far = _distances(some, centres).min(axis=1) + 1e-12
            centres = np.concatenate([centres, some[[rng.choice(len(some), p=far / far.sum())]]])
        for _ in range(_STEPS):
            nearest = _distances(some, centres).argmin(axis=1)
            sizes = np.bincount(nearest, minlength=k)
            sums = np.stack([np.bincount(nearest, column, k) for column in some.T], axis=1)
            moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
            if np.array_equal(moved, centres):
                break
            centres = moved
        loss = _distances(some, centres).min(axis=1).sum()
        if loss < least:
            best, least = centres, loss
    return best


def _distances(points: Floats, centres: Floats) -> Floats:
    return ((points[:, None] - centres) ** 2).sum(axis=2)
