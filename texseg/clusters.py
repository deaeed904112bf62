"""The search for clusters on the default path: starts, candidates, exchanges, and the over-segmentation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.fitting.number import MergeTree, closest_separations, confusion_of_clusters, merge_tree
from texseg.fitting.starts import (
    Candidate,
    PottsSettings,
    Sites,
    distinct,
    exchange_starts,
    fit_potts,
    hard_starts,
)
from texseg.settings import Settings
from texseg.textures import WINDOW_STEP, CellTextures, divergence_limits, settled

__all__ = ["Search"]

_MOVE_ROUNDS = 5  # updates of the profiles after an exchange, which begins near its end
_NEAR_TIE = 0.6  # share of the largest gain that a rival has at least
_MOST_RIVALS = 6
_APART = 1.25  # weight of the separation of rivals against their gain, shared among the pairs of clusters
_OVER_STARTS = 6  # runs that the over-segmentation is the best of


@dataclass
class Search:
    """Everything that fits to the cells of some images share."""

    cells: Sites
    windows: Sites
    settings: Settings
    smoothness: float
    rng: np.random.Generator
    _trees: dict[int, MergeTree] = field(default_factory=dict)

    def starts(self, n_segments: int, extra: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """Profiles (S, K, M) of distinct hard solutions on windows, after those of ``extra`` (E, K, M)."""
        K = min(n_segments, len(self.windows.counts))
        found = self._hard(K, self.settings.n_starts)
        return found if extra is None else np.concatenate([extra, found])

    def candidates(self, starts: NDArray[np.floating]) -> list[Candidate]:
        """Fit all starts, then exchange clusters of the best as long as that helps."""
        potts = self._potts()
        candidates = fit_potts(self.cells, starts, potts)
        best = max(candidates, key=_gain)
        for _ in range(self.settings.n_exchanges):
            moves = exchange_starts(self.windows, best.profiles, self.settings.n_moves, self.rng)
            moved = fit_potts(self.cells, moves, potts._replace(n_rounds=_MOVE_ROUNDS)) if len(moves) else []
            candidates += moved
            better = max([best, *moved], key=_gain)
            if better is best:
                break
            best = better
        return candidates

    def best(self, candidates: list[Candidate]) -> Candidate:
        """Choose by interior gain, and among near ties by how far apart the closest clusters are.

        The score is ``log(gain) + c mean log(separation)`` over the two closest pairs; ``c`` is 1.25 over
        the number of pairs. A texture that was cut in two has a close pair, however much its parts gain.
        """
        top = max(candidates, key=_gain)
        K = len(top.profiles)
        rivals = [c for c in candidates if c.gain > _NEAR_TIE * top.gain > 0]
        if K < 2 or len(rivals) < 2:
            return top
        rivals = sorted(rivals, key=_gain, reverse=True)
        labels = np.stack([c.posteriors.argmax(axis=1) for c in rivals], axis=1)
        rivals = [rivals[i] for i in distinct(labels, K)][:_MOST_RIVALS]
        n_pairs = K * (K - 1) / 2
        separations = closest_separations(rivals, self.cells, self._window)
        apart = np.log(np.maximum(separations, 0.1)).mean(axis=1)
        scores = np.log([c.gain for c in rivals]) + _APART / n_pairs * apart
        return rivals[int(scores.argmax())]

    def tree(self, k_max: int) -> MergeTree:
        """Over-segment into ``k_max`` clusters, and merge them down to one; made once."""
        if k_max not in self._trees:
            K = min(k_max, len(self.windows.counts))
            fits = self.candidates(self._hard(K, _OVER_STARTS))
            self._trees[k_max] = merge_tree(max(fits, key=_gain), self.cells, self._window)
        return self._trees[k_max]

    def merged(self, k_max: int, k: int) -> NDArray[np.floating]:
        """Profiles (1, k, M) of the over-segmentation merged down to ``k`` segments."""
        tree = self.tree(k_max)
        members = tree.groups(k)[tree.labels][:, None] == np.arange(k)
        return self.cells.profiles(members.astype(np.float32))[None]

    def textures(self, profiles: NDArray[np.floating], features: Features) -> CellTextures:
        """Make profiles (K, M) into textures that images can be labelled with."""
        s = self.settings
        labels = settled(self.cells.scores(profiles), self.cells, self._potts()).argmax(axis=1)
        return CellTextures(
            features,
            profiles,
            self.cells.background,
            s.cell,
            s.potts,
            s.boundary_sigma,
            s.windows,
            divergence_limits(self.windows, profiles),
            confusion_of_clusters(labels, len(profiles), self.cells, self._window),
        )

    def _hard(self, n_clusters: int, n_starts: int) -> NDArray[np.floating]:
        reach = max(1, round(self.settings.windows[0] / 2 / self.settings.cell / WINDOW_STEP))
        return hard_starts(self.windows, n_clusters, n_starts, reach, self.rng)

    @property
    def _window(self) -> float:
        """Side of the windows that spread is measured on, in cells."""
        return self.settings.windows[0] / self.settings.cell

    def _potts(self) -> PottsSettings:
        potts = self.settings.potts
        return potts._replace(strength=potts.strength * self.smoothness)


def _gain(candidate: Candidate) -> float:
    return candidate.gain
