"""How many segments: grow beyond, then merge what cannot be told apart.

An over-segmentation is fitted first. For every two of its clusters the *separation* asks how surely a window
of one can be told from a window of the other, against the spread inside both::

    separation = d' * (windows in the smaller of the two) ** 1/4
    d'         = (mean_a L + mean_b L) / sqrt((var_a L + var_b L) / 2)

``L`` is the log-likelihood ratio of the two clusters, averaged over a window's cells of its own cluster, with
profiles from the other half of a checkerboard of cells (held out). Parts of one texture differ little against
their own spread, whatever the likelihood gains by telling them apart. The exponent lets a difference that
holds over a large area count for more; it is between an effect size (0) and a test statistic (1/2).

The closest pair is merged again and again (average linkage). The number is where the closest pair leaps: the
largest ratio of the separation at K to the one at K + 1, where separations below :data:`NOISE`, which parts
of a homogeneous texture reach, count as that, and those above :data:`CLEAR`, which only different textures
reach, as this; so that one segment is chosen when no merge comes near it.

Counts of parameters (BIC) fail here, since neighbouring observations are dependent and real textures are
never homogeneous; so does the held-out likelihood alone, which gains by every split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.starts import Candidate, Sites, interior_cells

__all__ = ["MergeTree", "Selection", "choose_number", "closest_separation", "merge_tree", "separabilities"]

NOISE = 6.0
CLEAR = 40.0

_FEWEST_INTERIOR = 6  # cells; a cluster with fewer follows borders and is dissolved
_INSIDE = 0.6  # share of a window that must lie in its cluster to say something about spread
_AREA_POWER = 0.25


class Selection(NamedTuple):
    """The choice of the number of segments."""

    n_segments: NDArray[np.intp]
    """Candidates, 1 .. the number of clusters that were found at most."""
    separations: NDArray[np.float64]
    """Separation of the closest two segments at each number; NaN for one segment."""
    scores: NDArray[np.float64]
    """Logarithm of the leap at each number; the largest wins."""
    chosen: int


class MergeTree(NamedTuple):
    """A sequence of partitions, from the over-segmentation down to a single segment."""

    labels: NDArray[np.intp]
    """(N,), cluster of every site in the over-segmentation, 0 .. K - 1."""
    merges: tuple[tuple[int, int], ...]
    """Clusters (kept, absorbed), in the order of merging; each is named by its smallest member."""
    separations: NDArray[np.float64]
    """(K - 1,), of each merged pair."""

    @property
    def n_clusters(self) -> int:
        """Clusters of the over-segmentation."""
        return len(self.merges) + 1

    def groups(self, k: int) -> NDArray[np.intp]:
        """Segment, 0 .. k - 1, of each cluster of the over-segmentation when ``k`` segments are left."""
        if not 1 <= k <= self.n_clusters:
            raise ValueError(f"k must be 1 to {self.n_clusters}, got {k}")
        group = np.arange(self.n_clusters)
        for kept, absorbed in self.merges[: self.n_clusters - k]:
            group[group == absorbed] = kept
        return np.unique(group, return_inverse=True)[1]


def merge_tree(candidate: Candidate, cells: Sites, window: float) -> MergeTree:
    """Merge the clusters of an over-segmentation, closest first.

    Parameters
    ----------
    candidate : Candidate
        The over-segmentation.
    cells : Sites
    window : float
        Side of the windows that spread is measured on, in cells.

    Returns
    -------
    MergeTree
        Clusters without interior are dissolved into the others before.
    """
    labels = _dissolve(candidate, cells)
    distance = separabilities(labels, cells, window)
    sizes = np.bincount(labels, cells.sizes).astype(float)
    K = len(sizes)
    alive = np.ones(K, bool)
    merges, separations = [], []
    while alive.sum() > 1:
        area = np.minimum(sizes[:, None], sizes) / window**2
        separation = distance * area**_AREA_POWER
        separation[~alive] = separation[:, ~alive] = np.inf
        np.fill_diagonal(separation, np.inf)
        a, b = sorted(divmod(int(separation.argmin()), K))
        merges.append((a, b))
        separations.append(float(separation[a, b]))
        merged = (sizes[a] * distance[a] + sizes[b] * distance[b]) / (sizes[a] + sizes[b])
        distance[a] = distance[:, a] = merged
        sizes[a] += sizes[b]
        alive[b] = False
    return MergeTree(labels, tuple(merges), np.array(separations))


def choose_number(tree: MergeTree) -> Selection:
    """Find the number of segments at which the separation of the closest pair leaps most.

    Examples
    --------
    Five clusters; two pairs of them are parts of one texture, and the other three are far apart:

    >>> tree = MergeTree(np.arange(5), ((0, 1), (2, 3), (0, 2), (0, 4)), np.array([6.0, 7.0, 30.0, 33.0]))
    >>> choose_number(tree).chosen
    3
    """
    K = tree.n_clusters
    closest = np.full(K + 1, np.nan)
    closest[np.arange(K, 1, -1)] = tree.separations
    heights = np.full(K + 2, NOISE)
    for k in range(K, 1, -1):
        heights[k] = max(heights[k + 1], min(closest[k], CLEAR))
    heights[1] = CLEAR
    scores = np.log(heights[1 : K + 1] / heights[2 : K + 2])
    return Selection(np.arange(1, K + 1), closest[1:], scores, int(scores.argmax()) + 1)


def closest_separation(candidate: Candidate, cells: Sites, window: float) -> float:
    """Separation of the two clusters of a run that are hardest to tell apart; 0 when a cluster is empty."""
    labels = candidate.posteriors.argmax(axis=1)
    sizes = np.bincount(labels, cells.sizes, candidate.posteriors.shape[1])
    if len(sizes) < 2 or sizes.min() <= 0:
        return 0.0
    area = np.minimum(sizes[:, None], sizes) / window**2
    separation = separabilities(labels, cells, window) * area**_AREA_POWER
    return float(separation[~np.eye(len(sizes), dtype=bool)].min())


def _dissolve(candidate: Candidate, cells: Sites) -> NDArray[np.intp]:
    """Labels without the clusters that have no interior; numbered from 0 without gaps."""
    scores = np.array(candidate.scores)
    labels = candidate.posteriors.argmax(axis=1)
    alive = list(range(scores.shape[1]))
    while len(alive) > 1:
        inside = interior_cells(labels, cells) & (cells.sizes > 0.5)
        inner = np.bincount(labels[inside], minlength=scores.shape[1])
        least = min(alive, key=lambda k: inner[k])
        if inner[least] >= _FEWEST_INTERIOR:
            break
        alive.remove(least)
        scores[:, least] = -np.inf
        orphans = labels == least
        labels[orphans] = scores[orphans].argmax(axis=1)
    return np.searchsorted(alive, labels)


def separabilities(labels: NDArray[np.intp], cells: Sites, window: float) -> NDArray[np.float64]:
    """``d'`` of every two clusters, shape (K, K)."""
    K = int(labels.max()) + 1
    held = _held_out_scores(labels, cells)
    mean, variance = np.zeros((K, K)), np.zeros((K, K))
    for a in range(K):
        own = (labels == a) * cells.sizes
        share = cells.window_mean(own[:, None], window)[:, 0]
        mine = own > 0
        whole = mine & (share >= min(_INSIDE, float(np.quantile(share[mine], 0.7))))
        ratios = (held[:, [a]] - held) * own[:, None]
        ratios = cells.window_mean(ratios, window)[whole] / np.maximum(share[whole], 1e-6)[:, None]
        mean[a], variance[a] = ratios.mean(axis=0), ratios.var(axis=0)
    return (mean + mean.T) / np.sqrt((variance + variance.T) / 2 + 1e-6)


def _held_out_scores(labels: NDArray[np.intp], cells: Sites) -> NDArray[np.floating]:
    """Scores of full cells (N, K) under profiles that the cell itself was not part of."""
    members = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float32)
    fold = np.concatenate([np.indices(shape).sum(axis=0).ravel() % 2 for shape in cells.grids])
    held = np.empty(members.shape, np.float32)
    for half in (0, 1):
        scores = cells.scores(cells.profiles(members * (fold == half)[:, None]))
        held[fold != half] = scores[fold != half]
    return held / np.maximum(cells.sizes, 1e-6)[:, None]
