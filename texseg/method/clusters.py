"""The clusters of an image, from counts to profiles: what `segment` runs, on one page.

1. *Windows.* The asymmetric clustering model is annealed on the histograms of windows, from just above the
   first critical temperature down to the one that counts independent observations, and grown by splits and
   exchanges ([1]_ section 5.1). A window that straddles a border has a mixed histogram, and together such
   windows can form a cluster of their own, at the cost of merging two true textures. So one run uses only
   the calmest windows, and another all of them.
2. *Cells.* All runs continue on the disjoint cells' own histograms, where a Potts prior on the map replaces
   the mixing proportions (a hidden-Markov ACM). The run with the greatest :func:`interior_gain
   <texseg.method.candidates.interior_gain>` is kept: a cluster of border cells has no interior and gains
   nothing. Without a prior on the map (``smoothness=0``), a window around every cell is used instead.
3. *Exchanges.* One cluster of the best run is split and two others are merged, as long as that helps.
4. *Near ties* are decided by how surely the clusters are different textures.
5. *Doubt.* If two of the clusters are likelier to be one texture than two, and the image is not divided by
   plain values (`texseg.method.cues`), other optima are tried: more clusters, merged down to as many; and
   clusters found without the plain values, since light that changes slowly inside textures may divide them.
   Those beyond such doubt are judged like near ties.

:mod:`texseg.method.textures` describes how pixels get their labels.

References
----------
.. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.counts.grid import CellGrid
from texseg.counts.sites import WINDOW_STEP, Sites, border_measure, window_sites
from texseg.fitting.anneal import State, anneal, critical_beta, geometric_schedule, last_of
from texseg.fitting.assignment import SETTLING_SWEEPS, Posterior, SoftMax
from texseg.fitting.moves import Transition, exchanges
from texseg.fitting.steps import Problem
from texseg.method.candidates import Candidate, distinct, interior_gain
from texseg.method.number import MergeTree, confusion_of_clusters, doubt_of_clusters, merge_tree
from texseg.method.seeds import Description, describe
from texseg.method.textures import Textures, divergence_limits, potts_field
from texseg.models.histograms import HistogramClustering, Profiles
from texseg.parameters import Settings
from texseg.threads import side_by_side

__all__ = ["Judged", "Record", "Search"]

Floats = NDArray[np.floating]

_MOST_WINDOWS = 4096  # windows used to find starts; in larger images they lie further apart. All do as well
_HALF = (
    0.5  # share of the windows that are calm, or used by each start after the second; share of data in each
)
_HOTTEST = 0.9  # of the first critical inverse temperature
_COOLING = 0.5  # each temperature is this times the one before; .3 to .75 give the same clusters
_STEPS = 20  # most EM steps between two changes
_TOLERANCE = 1e-4  # of the free energy
_MOVE_ROUNDS = 5  # updates of the profiles after an exchange, which starts near its optimum
_NEIGHBOURS = 6  # most exchanges tried in a round
_NEAR_TIE = 0.6  # least share of the largest gain that makes a candidate a rival
_MOST_RIVALS = 3  # with 6, every tie of 85 images is decided in the same way
_ODDS = 0.3  # weight of the mean log-odds; .2 to .4 work
_DOUBTFUL = -0.5  # log-odds of two textures below which more is tried; -1.5 to 0 do as well
_MORE = 14  # clusters that are merged down where there is doubt, as many as the number is chosen from


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


class Judged(NamedTuple):
    """A candidate, and how surely its clusters are different textures."""

    candidate: Candidate
    score: float
    """To be compared among candidates with equally many clusters."""
    least_odds: float
    """Least log-odds of two textures; below 0, two clusters are likelier to be one."""


@dataclass
class Search:
    """Fits to the cells of one or several images, and what they share."""

    cells: Sites
    grids: Sequence[CellGrid]
    wavelengths: NDArray[np.float64]
    """Of the channels, in pixels."""
    settings: Settings
    beta: float
    """Inverse temperature at which windows count as many observations as are independent."""
    rng: np.random.RandomState
    history: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._trees: dict[int, MergeTree] = {}

    def find(self, n_clusters: int, tell: Callable[[str], None]) -> Judged:
        """Find ``n_clusters`` clusters by annealing."""
        tell("annealing")
        starts = self.starts(n_clusters)
        tell("clusters")
        return self.best(self.candidates(starts))

    def surer(self, found: Judged) -> Candidate | None:
        """Try other optima where there is doubt; None if none of them is beyond doubt, and better."""
        if found.least_odds >= _DOUBTFUL:
            return None
        others = [self._judged(other) for other in self._other_optima(len(found.candidate.profiles))]
        best = max([found, *(other for other in others if other.least_odds >= _DOUBTFUL)], key=_score)
        return None if best is found else best.candidate

    def _other_optima(self, n_clusters: int) -> Iterator[Candidate]:
        """Merge down more clusters; and find as many without plain values, which follow the light."""
        more = max(_MORE, n_clusters + 2)
        if self.tree(more).n_clusters >= n_clusters:
            yield self.merged(more, n_clusters)
        is_plain = self.wavelengths == 0
        if is_plain.any() and not is_plain.all():
            weights = self.cells.weights * ~is_plain[self.cells.groups]
            blind = replace(self, cells=replace(self.cells, weights=weights))
            found = blind.best(blind.candidates(blind.starts(n_clusters))).candidate
            yield self._settled(found.posteriors.argmax(axis=1), n_clusters)

    def starts(self, n_clusters: int) -> Floats:
        """Profiles (S, K, M), annealed on the calm windows, on all of them, and on random halves."""
        present = self.windows.sizes > _HALF * self.windows.sizes.max()
        measure = border_measure(self.windows, max(1, round(self.window / 2 / self._step)))
        seen = [present & (measure <= np.quantile(measure[present], _HALF)), present]
        while len(seen) < self.settings.n_starts:
            seen.append(present & (self.rng.uniform(size=len(present)) < _HALF))
        found = [
            self._annealed(self.windows.only(rows), n_clusters) for rows in seen[: self.settings.n_starts]
        ]
        most = max(len(profiles) for profiles in found)
        return np.stack([profiles for profiles in found if len(profiles) == most]).astype(np.float32)

    def candidates(self, starts: Floats) -> list[Candidate]:
        """Fit all starts to the cells, then exchange clusters of the best as long as that helps."""
        candidates = self.on_cells(starts, self.settings.potts.n_rounds)
        best = max(candidates, key=_gain)
        windows = self.windows.only(self.windows.sizes > 0)
        problem = Problem(HistogramClustering(background=windows.background), windows, self.beta, None)
        while len(best.profiles) > 2:
            even = Profiles(best.profiles, np.full(len(best.profiles), 1 / len(best.profiles)))
            neighbours = exchanges(problem, even, _NEIGHBOURS, self.rng)
            moved = self.on_cells(np.stack([each.profiles for each in neighbours]), _MOVE_ROUNDS)
            candidates += moved
            better = max([best, *moved], key=_gain)
            if better is best:
                break
            best = better
        return candidates

    def best(self, candidates: list[Candidate]) -> Judged:
        """Choose by interior gain, and among near ties by how surely no texture was split in two."""
        top = max(candidates, key=_gain)
        rivals = sorted((c for c in candidates if c.gain > _NEAR_TIE * top.gain > 0), key=_gain, reverse=True)
        if len(rivals) < 2:
            return self._judged(top)
        labels = np.stack([c.posteriors.argmax(axis=1) for c in rivals], axis=1)
        kept = distinct(labels, len(top.profiles))[:_MOST_RIVALS]
        return max(side_by_side(lambda i: self._judged(rivals[i]), kept), key=_score)

    def _judged(self, candidate: Candidate) -> Judged:
        """Judge how surely clusters are different textures.

        The score is ``log(gain) + (log(separation) + c odds) / pairs``, with the sum of the log-odds of all
        merges, see :func:`doubt_of_clusters <texseg.method.number.doubt_of_clusters>`: when a texture was
        split in two, two clusters are much alike, however much the parts gain.
        """
        K = len(candidate.profiles)
        score = float(np.log(max(candidate.gain, 1e-9)))
        if K < 2:
            return Judged(candidate, score, np.inf)
        labels = candidate.posteriors.argmax(axis=1)
        separation, odds = doubt_of_clusters(labels, K, self.cells, self.window)
        with np.errstate(divide="ignore"):  # clusters without separation, or without cells, are no textures
            score += float(np.log(separation) + _ODDS * odds.sum()) / (K * (K - 1) / 2)
        return Judged(candidate, score, float(odds.min()))

    def on_cells(self, starts: Floats, n_rounds: int) -> list[Candidate]:
        """Fit the cells from starting profiles (S, K, M), all runs at once."""
        n, beta, posterior = self._level(self.settings.potts.n_sweeps)
        model = HistogramClustering(posterior, self.cells.background)
        start = Profiles(
            starts.astype(np.float32), np.full(starts.shape[:2], 1 / starts.shape[1], np.float32)
        )
        run = anneal(
            model,
            n,
            [beta],
            start=start,
            rng=self.rng,
            over_relax=False,
            perturbation=0.0,
            max_steps=n_rounds,
        )
        end = last_of(self._recorded(run, "cells", 1))
        one = Profiles(self.cells.background[None], np.ones(1))
        gains = model.scores(n, end.params) - model.scores(n, one)[:, None]
        return [
            Candidate(Q, profiles, gain, interior_gain(gain, Q, self.cells))
            for Q, profiles, gain in zip(
                np.moveaxis(end.posteriors, 1, 0), end.params.profiles, np.moveaxis(gains, 1, 0), strict=True
            )
        ]

    def tree(self, k_max: int) -> MergeTree:
        """Over-segment into ``k_max`` clusters, and merge them down to one; computed only once."""
        if k_max not in self._trees:
            fits = self.candidates(self.starts(k_max))
            self._trees[k_max] = merge_tree(max(fits, key=_gain), self.cells, self.window)
        return self._trees[k_max]

    def merged(self, k_max: int, k: int) -> Candidate:
        """Fit ``k`` clusters, starting from the over-segmentation merged down to ``k`` segments.

        Exchanges are not tried again, since the over-segmentation was grown with them.
        """
        tree = self.tree(k_max)
        return self._settled(tree.groups(k)[tree.labels], k)

    def _settled(self, labels: NDArray[np.intp], n_clusters: int) -> Candidate:
        """Fit clusters, starting from labels (N,) of the cells, 0 .. K - 1."""
        members = labels[:, None] == np.arange(n_clusters)
        profiles = self.cells.profiles(members.astype(np.float32))
        (fitted,) = self.on_cells(profiles[None], self.settings.potts.n_rounds)
        return fitted

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
            confusion_of_clusters(labels, len(profiles), cells, self.window),
        )

    @property
    def window(self) -> float:
        """Side of the windows on which spread is measured, in cells."""
        return self.settings.windows[0] / self.settings.cell

    @cached_property
    def windows(self) -> Sites:
        """Windows used to find starts."""
        return self._windows(self._step)

    @property
    def _step(self) -> int:
        """Distance between these windows in cells; larger in large images, which need no more windows."""
        return max(WINDOW_STEP, round(np.sqrt(np.count_nonzero(self.cells.sizes) / _MOST_WINDOWS)))

    def forget_windows(self) -> None:
        """Free the memory of the windows; they are computed again when needed."""
        self.__dict__.pop("windows", None)
        self.__dict__.pop("_every_window", None)

    @cached_property
    def description(self) -> Description:
        """Description of the cells, for strokes."""
        return describe(self.cells, self.wavelengths)

    @cached_property
    def _every_window(self) -> Sites:
        """Windows around every cell, used instead of a prior on the map."""
        return self._windows(1)

    def _windows(self, step: int) -> Sites:
        return window_sites(self.cells, self.grids, self.wavelengths, self.settings.windows, step)

    def _level(self, n_sweeps: int) -> tuple[Sites, float, Posterior]:
        """Return counts, inverse temperature and posterior policy of the cells, with or without a prior."""
        potts, smoothness = self.settings.potts, self.settings.smoothness
        if smoothness == 0:
            return self._every_window, self.beta, SoftMax()
        return self.cells, potts.beta, potts_field(self.cells, potts, smoothness, n_sweeps)

    def _annealed(self, windows: Sites, n_clusters: int) -> Floats:
        """Profiles (K, M), annealed on some windows and grown by splits.

        If there are fewer than ``n_clusters`` at the final temperature, cooling continues.
        """
        model = HistogramClustering(background=windows.background)
        K = min(n_clusters, windows.shape[0])
        first = min(_HOTTEST * critical_beta(model, windows, self.rng), self.beta)
        schedule = geometric_schedule(first, self.beta, _COOLING)
        coldest = max(self.beta / _COOLING, self.settings.windows[0] ** 2)  # every pixel of a window counts
        schedule += geometric_schedule(self.beta / _COOLING, coldest, _COOLING)
        run = anneal(
            model,
            windows,
            schedule,
            rng=self.rng,
            n_clusters=K,
            growth="split-merge",
            tol=_TOLERANCE,
            max_steps=_STEPS,
        )
        for state in self._recorded(run, "windows", 0):
            if state.converged and state.beta >= self.beta and len(state.params.profiles) == K:
                break
        return state.params.profiles

    def _recorded(self, run: Iterator[State], phase: str, level: int) -> Iterator[State]:
        """Pass on the states of a run, and keep a record of each."""
        seen = 0
        for state in run:
            new = state.transitions[seen:]
            seen += len(new)
            energy, distinct_clusters = float(np.min(state.free_energy)), int(np.max(state.n_distinct))
            step = len(self.history) + 1
            self.history.append(Record(phase, step, state.beta, energy, distinct_clusters, level, new))
            yield state


def _gain(candidate: Candidate) -> float:
    return candidate.gain


def _score(judged: Judged) -> float:
    return judged.score
