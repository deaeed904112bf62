"""Coarse and fine segmentations of one fit, nested in each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.sites import Sites
from texseg.fitting.number import MergeTree
from texseg.models.acm import HistogramClustering, Profiles

__all__ = ["Hierarchy", "critical_temperatures"]


class Hierarchy(NamedTuple):
    """Segmentations into 1 .. K segments, K at most ``k_max``; each is a coarsening of the next."""

    finest: list[NDArray[np.int32]]
    """Labels of each image in the over-segmentation, from 1; 0 where there is no data."""
    tree: MergeTree
    critical_temperatures: NDArray[np.float64]
    """(K - 1,): entry k - 1 is where, on cooling, one of k segments falls in two ([1]_ section 5.1);
    for histograms of cells whose channels count as many observations as their weights.

    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
    """
    is_list: bool
    """Whether a list of images was fitted."""

    @property
    def n_segments(self) -> NDArray[np.intp]:
        """Numbers of segments there are label images for, 1 .. K."""
        return np.arange(1, self.tree.n_clusters + 1)

    @property
    def merges(self) -> tuple[tuple[int, int], ...]:
        """Clusters (kept, absorbed) that are merged on the way from K segments to one."""
        return self.tree.merges

    def labels(self, k: int) -> Any:
        """Label image with ``k`` segments: int32 (H, W), 1 .. k, 0 where there is no data; or a list.

        Raises
        ------
        ValueError
            ``k`` is below 1 or above the number of segments of the finest segmentation.
        """
        number = np.concatenate([[0], self.tree.groups(k) + 1]).astype(np.int32)
        images = [number[image] for image in self.finest]
        return images if self.is_list else images[0]


def critical_temperatures(tree: MergeTree, cells: Sites) -> NDArray[np.float64]:
    """Temperature at which each merged segment would fall in two, coarsest first, shape (K - 1,)."""
    if not tree.merges:
        return np.empty(0)
    parents = []
    for step, (kept, _) in enumerate(tree.merges):
        group = tree.groups(tree.n_clusters - step - 1)
        parents.append(group[tree.labels] == group[kept])
    Q = np.stack(parents[::-1], axis=1).astype(np.float32)
    n = cells.counts * cells.weights
    profiles = cells.profiles(Q) * cells.weights
    params = Profiles(profiles / profiles.sum(axis=1, keepdims=True), Q.mean(axis=0))
    rng = np.random.RandomState(0)
    transitions = HistogramClustering().instabilities(n, params, Q, rng, cells.sizes)
    return np.asarray(1.0 / transitions.beta, np.float64)
