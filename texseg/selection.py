"""How many segments: grow beyond, then merge what cannot be told apart.

An over-segmentation is fitted first. For every two of its clusters the *separation* asks how surely a window
of one can be told from a window of the other, against the spread inside both::

    separation = d' * sqrt(windows) / ((contact + 0.2) / 0.5) ** (1 / 3)
    d'         = (mean_a L + mean_b L) / sqrt((var_a L + var_b L) / 2)
    contact    = length of the common border / (2 sqrt(area of the smaller)), the roots summed over images

``L`` is the log-likelihood ratio of the two clusters, averaged over a window's cells of its own cluster, with
profiles from the other half of a checkerboard of cells (held out). Parts of one texture differ little against
their own spread, whatever the likelihood gains by telling them apart. ``windows`` is how many of them the
smaller of the two would fill: a difference that holds over a large area counts for more. And parts of one
texture lie side by side, along a long common border, while two textures may not touch at all.

The closest pair is merged again and again (average linkage of ``d'``). Two questions are asked of this tree:

*Is there more than one texture?* On the way down, the *contrast* of K segments is ``sqrt(K)`` times the
separation of the closest two of them, measured anew on the segments themselves (the root makes up for their
smaller areas). Where one texture is cut into parts, some of them are alike at every K, and a part that was
merged from others has their spread inside. So there is one segment when no contrast reaches :data:`ONE`.

*How many?* The number K is where the separation of the closest pair leaps: from h(K + 1), the largest of all
merges so far, to h(K). The score of K is ``log u(h(K)) - log h(K + 1)``, where h is at least :data:`NOISE`,
which parts of a homogeneous texture reach, and ``u`` the separation itself up to :data:`CLEAR`, from where on
textures are different whatever it is; beyond, ``u`` grows with its power 0.7 (photographs have parts that
are clearly different, and textures that are more so). The score of one segment is that of the best number,
and the logarithm of ONE over the largest contrast.

Counts of parameters (BIC) fail here, since neighbouring observations are dependent and real textures are
never homogeneous; so does the held-out likelihood alone, which gains by every split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.starts import Candidate, Sites, interior_cells

__all__ = [
    "MergeTree",
    "Selection",
    "choose_number",
    "closest_separations",
    "confusion_of_clusters",
    "merge_tree",
]

Floats = NDArray[np.floating]

NOISE = 7.0
CLEAR = 40.0
ONE = 32.0
DOUBT = 1.15

_FEWEST_INTERIOR = 6  # cells; a cluster with fewer follows borders and is dissolved
_INSIDE = 0.6  # share of a window that must lie in its cluster to say something about spread
_CONTACT_POWER = 1 / 3
_NO_CONTACT = 0.2
_USUAL_CONTACT = 0.5
_BEYOND_CLEAR = 0.7


class Selection(NamedTuple):
    """The choice of the number of segments."""

    n_segments: NDArray[np.intp]
    """Candidates, 1 .. the number of clusters that were found at most."""
    separations: NDArray[np.float64]
    """Separation of the closest two segments at each number; NaN for one segment."""
    contrasts: NDArray[np.float64]
    """Contrast at each number; NaN for one segment."""
    scores: NDArray[np.float64]
    """Logarithm of the leap at each number, see :mod:`texseg.selection`; the largest wins."""
    chosen: int


class MergeTree(NamedTuple):
    """A sequence of partitions, from the over-segmentation down to a single segment."""

    labels: NDArray[np.intp]
    """(N,), cluster of every site in the over-segmentation, 0 .. K - 1."""
    merges: tuple[tuple[int, int], ...]
    """Clusters (kept, absorbed), in the order of merging; each is named by its smallest member."""
    separations: NDArray[np.float64]
    """(K - 1,), of each merged pair."""
    contrasts: NDArray[np.float64]
    """(K - 1,), of the segments before each merge."""

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
    (pairs,) = _pairs([labels], int(labels.max()) + 1, cells, window)
    K = len(pairs.areas)
    merges, separations, levels = [], [], []
    segments = labels
    for _ in range(K - 1):
        separation = pairs.separations()
        a, b = sorted(divmod(int(separation.argmin()), K))
        merges.append((a, b))
        separations.append(float(separation[a, b]))
        segments = np.where(segments == b, a, segments)
        levels.append(np.unique(segments, return_inverse=True)[1])
        pairs.merge(a, b)
    between = _pairs(levels[:-1], None, cells, window)  # the first level is measured, the last is one segment
    closest = separations[:1] + [level.separations().min() for level in between]
    contrasts = np.sqrt(np.arange(K, 1, -1)) * closest
    return MergeTree(labels, tuple(merges), np.array(separations), contrasts)


@dataclass
class _Pairs:
    """What the separations of clusters are made of; arrays over clusters, or pairs of them."""

    distance: NDArray[np.float64]
    """``d'``."""
    areas: NDArray[np.float64]
    """(K, images), in cells; 0 for a cluster that was merged into another."""
    borders: NDArray[np.float64]
    """Lengths of common borders in sides of cells."""
    window: float
    """Side of a window in cells."""

    def separations(self) -> NDArray[np.float64]:
        """Separation of every two clusters; infinite from itself, and from one that is no more."""
        sizes, extents = self.areas.sum(axis=1), 2 * np.sqrt(self.areas).sum(axis=1)
        area = np.minimum(sizes[:, None], sizes)
        gone = area <= 0
        np.fill_diagonal(gone, True)
        contact = self.borders / np.maximum(np.minimum(extents[:, None], extents), 1e-6)
        touch = ((contact + _NO_CONTACT) / _USUAL_CONTACT) ** -_CONTACT_POWER
        return np.where(gone, np.inf, self.distance * np.sqrt(area) / self.window * touch)

    def merge(self, a: int, b: int) -> None:
        """Let ``a`` absorb ``b``; its distances become means, weighted by area."""
        sizes, distance = self.areas.sum(axis=1), self.distance
        merged = (sizes[a] * distance[a] + sizes[b] * distance[b]) / (sizes[a] + sizes[b])
        distance[a] = distance[:, a] = merged
        border = self.borders[a] + self.borders[b]
        self.borders[a] = self.borders[:, a] = border
        self.areas[a] += self.areas[b]
        self.areas[b] = 0


def _pairs(
    partitions: Sequence[NDArray[np.intp]], n_clusters: int | None, cells: Sites, window: float
) -> list[_Pairs]:
    """Measure the pairs of some partitions; of ``n_clusters`` each, else as many as each has labels."""
    members = [
        (labels[:, None] == np.arange(n_clusters or labels.max() + 1)).astype(np.float32)
        for labels in partitions
    ]
    if not members:
        return []
    held = _held_out_scores(np.concatenate(members, axis=1), cells)
    ends = np.cumsum([own.shape[1] for own in members])[:-1]
    measured = []
    for labels, own, scores in zip(partitions, members, np.split(held, ends, axis=1), strict=True):
        images = cells.pieces((own * cells.sizes[:, None]).astype(np.float64))
        areas = np.stack([image.sum(axis=(0, 1)) for image in images], axis=1)
        distance = _separabilities(labels, scores, cells, window)
        measured.append(_Pairs(distance, areas, _borders(labels, own.shape[1], cells), window))
    return measured


def _borders(labels: NDArray[np.intp], n_clusters: int, cells: Sites) -> NDArray[np.float64]:
    """Sides of cells along which every two clusters touch, shape (K, K); cells without data do not."""
    table = np.zeros((n_clusters, n_clusters))
    named = np.where(cells.sizes > 0, labels, n_clusters)
    for grid in cells.pieces(named):
        for one, other in ((grid[:, :-1], grid[:, 1:]), (grid[:-1], grid[1:])):
            there = (one < n_clusters) & (other < n_clusters) & (one != other)
            np.add.at(table, (one[there], other[there]), 1)
    return table + table.T


def choose_number(tree: MergeTree) -> Selection:
    """Find the number of segments at which the separation of the closest pair leaps most.

    Examples
    --------
    Five clusters; two pairs of them are parts of one texture, and the other three are far apart:

    >>> separations = np.array([6.0, 7.0, 30.0, 33.0])
    >>> tree = MergeTree(np.arange(5), ((0, 1), (2, 3), (0, 2), (0, 4)), separations, 2 * separations)
    >>> choose_number(tree).chosen
    3
    """
    K = tree.n_clusters
    closest = np.full(K + 1, np.nan)
    closest[np.arange(K, 1, -1)] = tree.separations
    heights = np.full(K + 2, NOISE)
    for k in range(K, 1, -1):
        heights[k] = max(heights[k + 1], closest[k])
    scores = _usefulness(heights[1 : K + 1]) - np.log(heights[2:])
    contrasts = np.concatenate([[np.nan], tree.contrasts[::-1]])
    if K > 1:
        scores[0] = scores[1:].max() + np.log(ONE / max(contrasts[1:].max(), 1e-3))
    else:
        scores[0] = 0
    return Selection(np.arange(1, K + 1), closest[1:], contrasts, scores, int(scores.argmax()) + 1)


def _usefulness(separation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of a separation, growing more slowly above :data:`CLEAR`."""
    return np.log(np.minimum(separation, CLEAR)) + _BEYOND_CLEAR * np.log(np.maximum(separation / CLEAR, 1))


def closest_separations(
    candidates: Sequence[Candidate], cells: Sites, window: float
) -> NDArray[np.float64]:
    """Separations of the two pairs of clusters of each run that are hardest to tell apart, smallest first.

    Shape (S, 2); (S, 1) for two clusters, and (S, 0) for one. 0 when a cluster is empty.
    """
    K = candidates[0].posteriors.shape[1]
    closest = np.zeros((len(candidates), min(2, K * (K - 1) // 2)))
    runs = [candidate.posteriors.argmax(axis=1) for candidate in candidates]
    full = [s for s, labels in enumerate(runs) if np.bincount(labels, cells.sizes, K).min() > 0]
    for s, pairs in zip(full, _pairs([runs[s] for s in full], K, cells, window), strict=True):
        separations = pairs.separations()
        closest[s] = np.sort(separations[np.triu_indices(K, 1)])[: closest.shape[1]]
    return closest


def confusion_of_clusters(
    labels: NDArray[np.intp], n_clusters: int, cells: Sites, window: float
) -> NDArray[np.float32]:
    """Chance that what was taken for one texture belongs to another, since the clusters may be wrong.

    No posterior of a solution knows that two of its clusters are the halves of one texture. But such clusters
    are close. Let c be the contrast of a cluster and its closest other (see :mod:`texseg.selection`) over
    the root of the windows that all the data would fill: the cluster is right with probability
    ``1 / (1 + (DOUBT / c)^4)``, at least one half, and is that other otherwise. The curve was measured on
    mosaics and photographs, with the number of segments given.

    Parameters
    ----------
    labels : array of shape (N,)
        Cluster of each cell, 0 .. K - 1.
    n_clusters : int
        K.
    cells : Sites
    window : float
        Side of the windows that spread is measured on, in cells.

    Returns
    -------
    float32 array of shape (K, K)
        Rows, the clusters that were found, sum to one. Empty clusters are not confused with any.
    """
    confusion = np.eye(n_clusters, dtype=np.float32)
    present = np.flatnonzero(np.bincount(labels, cells.sizes, n_clusters) > 0)
    if len(present) > 1:
        (pairs,) = _pairs([np.searchsorted(present, labels)], len(present), cells, window)
        separations = pairs.separations()
        share = np.sqrt(len(present) / cells.sizes.sum()) * window
        contrasts = share * np.maximum(separations.min(axis=1), 1e-3)
        right = np.maximum(1 / (1 + (DOUBT / contrasts) ** 4), 0.5)
        confusion[present, present] = right
        confusion[present, present[separations.argmin(axis=1)]] = 1 - right
    return confusion


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


def _separabilities(
    labels: NDArray[np.intp], held: Floats, cells: Sites, window: float
) -> NDArray[np.float64]:
    """``d'`` of every two clusters, shape (K, K), from held-out scores (N, K)."""
    K = held.shape[1]
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


def _held_out_scores(members: Floats, cells: Sites) -> Floats:
    """Scores of full cells (N, C) in the clusters of one-hot members (N, C), learned without the cell."""
    fold = np.concatenate([np.indices(shape).sum(axis=0).ravel() % 2 for shape in cells.grids])
    held = np.empty(members.shape, np.float32)
    for half in (0, 1):
        scores = cells.scores(cells.profiles(members * (fold == half)[:, None]))
        held[fold != half] = scores[fold != half]
    return held / np.maximum(cells.sizes, 1e-6)[:, None]
