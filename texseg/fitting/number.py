"""How many segments: grow beyond, then merge what cannot be told apart.

An over-segmentation is fitted first. For every two of its clusters the *separation* asks how surely a window
of one can be told from a window of the other, against the spread inside both::

    separation = d' * sqrt(windows) / (((contact + 0.2) / 0.5) ** (1 / 3) * max(1, contact / 6))
    d'         = (mean_a L + mean_b L) / sqrt((var_a L + var_b L) / 2)
    contact    = length of the common border / (2 sqrt(area of the smaller)), the roots summed over images

``L`` is the log-likelihood ratio of the two clusters, averaged over a window's cells of its own cluster, with
profiles from the other half of a checkerboard of cells (held out). It is the sum over the channels, each
over the root of its own standard deviation within the two clusters: a channel that varies inside textures has
less to say than its nats. Parts of one texture differ little against their own spread, whatever the
likelihood gains by telling them apart. ``windows`` is how many of them the smaller of the two would fill: a
difference that holds over a large area counts for more. And parts of one texture lie side by side, along a
long common border, while two textures may not touch at all. Where the border is longer than twelve roots of
the smaller's area, the two are interleaved, as the stripes of one cloth are.

The closest pair is merged again and again (average linkage of ``d'``). On the way down, the *contrast* of K
segments is ``sqrt(K)`` times the separation of the closest two of them, measured anew on the segments
themselves (the root makes up for their smaller areas). Two questions are asked of this tree:

*Is there more than one texture?* Where one texture is cut into parts, some of them are alike at every K, and
a part that was merged from others has their spread inside. So there is one segment when no contrast reaches
:data:`ONE`.

*How many?* Above the right number two segments are parts of one texture and lie close; below it a segment
holds several textures, and its spread hides how far it is from others. So the contrast is large at the right
number, and the separation of the closest pair leaps from h(K + 1), the largest of all merges so far, to h(K).
The score of K is ``log u(h(K)) - log h(K + 1) + 2 log contrast + log(K) / 2``, where h is at least
:data:`NOISE`, which parts of a homogeneous texture reach, and ``u`` the separation itself up to
:data:`CLEAR`, from where on textures are different whatever it is; beyond, ``u`` grows with its power 0.7
(photographs have parts that are clearly different, and textures that are more so), and contrasts count no
more. The score of one segment is that of the best number, and the logarithm of ONE over the largest contrast.

Counts of parameters (BIC) fail here, since neighbouring observations are dependent and real textures are
never homogeneous; so does the held-out likelihood alone, which gains by every split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.grid import window_matrix
from texseg.counts.sites import Sites, interior_cells
from texseg.fitting.candidates import Candidate

__all__ = [
    "MergeTree",
    "Selection",
    "choose_number",
    "closest_separations",
    "confusion_of_clusters",
    "merge_tree",
]

Floats = NDArray[np.floating]

NOISE = 5.0
CLEAR = 50.0
ONE = 34.0
DOUBT = 1.1

_FEWEST_INTERIOR = 6  # cells; a cluster with fewer follows borders and is dissolved
_ENOUGH_WINDOWS = 32  # square root of the number of windows that a cluster's spread is measured on at most
_LEAST_SPREAD = 1e-6
_LEAST_CONTRAST = 1e-3
_INSIDE = 0.6  # share of a window that must lie in its cluster to say something about spread
_CONTACT_POWER = 1 / 3
_NO_CONTACT = 0.2
_USUAL_CONTACT = 0.5
_INTERLEAVED = 6.0  # contact from which on two clusters count as parts of a pattern
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
    """Score of each number, see :mod:`texseg.fitting.number`; the largest wins."""
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
    (pairs,) = _measure([labels], int(labels.max()) + 1, cells, window)
    K = len(pairs.areas)
    merges, separations, contrasts = [], [], []
    linkage = pairs.distances()
    for n_left in range(K, 1, -1):
        separation = pairs.separations(linkage)
        a, b = sorted(divmod(int(separation.argmin()), K))
        merges.append((a, b))
        separations.append(float(separation[a, b]))
        contrasts.append(np.sqrt(n_left) * pairs.separations(pairs.distances()).min())
        sizes = pairs.areas.sum(axis=1)
        linkage[a] = (sizes[a] * linkage[a] + sizes[b] * linkage[b]) / (sizes[a] + sizes[b])
        linkage[:, a] = linkage[a]
        pairs.merge(a, b)
    return MergeTree(labels, tuple(merges), np.array(separations), np.array(contrasts))


@dataclass
class _Pairs:
    """What the separations of clusters are made of; arrays over clusters, or pairs of them."""

    cells: Sites
    window: float
    """Side of a window in cells."""
    labels: NDArray[np.intp]
    held: Floats
    """(N, K, C), score of every cell in every cluster, learned without the cell, channel by channel."""
    areas: NDArray[np.float64]
    """(K, images), in cells; 0 for a cluster that was merged into another."""
    borders: NDArray[np.float64]
    """Lengths of common borders in sides of cells."""
    means: NDArray[np.float64]
    """(K, K, C), of the log-likelihood ratios of a to b in windows inside a."""
    covariances: NDArray[np.float64]
    """(K, K, C, C), of the same."""

    @classmethod
    def of(cls, labels: NDArray[np.intp], held: Floats, cells: Sites, window: float) -> _Pairs:
        """Measure all pairs."""
        _, K, C = held.shape
        own = (labels[:, None] == np.arange(K)) * cells.sizes[:, None]
        areas = np.stack([image.sum(axis=(0, 1), dtype=np.float64) for image in cells.pieces(own)], axis=1)
        moments = np.zeros((K, K, C)), np.zeros((K, K, C, C))
        pairs = cls(cells, window, labels, held, areas, _borders(labels, K, cells), *moments)
        for a in range(K):
            pairs._look_from(a, np.arange(K))
        return pairs

    def distances(self) -> NDArray[np.float64]:
        """``d'`` of every two clusters."""
        means = self.means + self.means.transpose(1, 0, 2)
        covariances = (self.covariances + self.covariances.transpose(1, 0, 2, 3)) / 2
        scales = np.diagonal(covariances, axis1=2, axis2=3) ** 0.25 + _LEAST_SPREAD
        spread = np.einsum("abcd,abc,abd->ab", covariances, 1 / scales, 1 / scales)
        return (means / scales).sum(axis=2) / np.sqrt(np.maximum(spread, 0) + _LEAST_SPREAD)

    def separations(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Separation of every two clusters; infinite from itself, and from one that is no more."""
        sizes, extents = self.areas.sum(axis=1), 2 * np.sqrt(self.areas).sum(axis=1)
        area = np.minimum(sizes[:, None], sizes)
        gone = area <= 0
        np.fill_diagonal(gone, True)
        contact = self.borders / np.maximum(np.minimum(extents[:, None], extents), 1e-6)
        touch = ((contact + _NO_CONTACT) / _USUAL_CONTACT) ** _CONTACT_POWER
        touch *= np.maximum(contact / _INTERLEAVED, 1)
        return np.where(gone, np.inf, distances * np.sqrt(area) / self.window / touch)

    def merge(self, a: int, b: int) -> None:
        """Let ``a`` absorb ``b``, and measure it anew."""
        self.labels = np.where(self.labels == b, a, self.labels)
        border = self.borders[a] + self.borders[b]
        self.borders[a] = self.borders[:, a] = border
        self.areas[a] += self.areas[b]
        self.areas[b] = 0
        (self.held[:, [a]],) = _held_out_scores([(self.labels == a)[:, None]], self.cells)
        others = np.flatnonzero(self.areas.sum(axis=1) > 0)
        self._look_from(a, others)
        for other in others.tolist():
            self._look_from(other, np.array([a]))

    def _look_from(self, a: int, others: NDArray[np.intp]) -> None:
        """Measure the ratios of ``a`` to others on the windows of ``a``."""
        own = (self.labels == a) * self.cells.sizes
        ratios = _inner_ratios(own, self.held, a, others, self.cells, self.window)
        means = ratios.mean(axis=0)
        ratios -= means
        self.means[a, others] = means
        self.covariances[a, others] = np.einsum("nkc,nkd->kcd", ratios, ratios, optimize=True) / len(ratios)


def _measure(
    partitions: Sequence[NDArray[np.intp]], n_clusters: int, cells: Sites, window: float
) -> Iterator[_Pairs]:
    """Measure the pairs of some partitions."""
    members = [labels[:, None] == np.arange(n_clusters) for labels in partitions]
    if not members:
        return
    for labels, held in zip(partitions, _held_out_scores(members, cells), strict=True):
        yield _Pairs.of(labels, held, cells, window)


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
    """Find the number of segments that are far apart, and with one more would not be.

    Examples
    --------
    Five clusters; two pairs of them are parts of one texture, and the other three are far apart:

    >>> separations = np.array([6.0, 7.0, 30.0, 33.0])
    >>> tree = MergeTree(np.arange(5), ((0, 1), (2, 3), (0, 2), (0, 4)), separations, 2 * separations)
    >>> choose_number(tree).chosen
    3
    """
    K = tree.n_clusters
    numbers = np.arange(2, K + 1)
    closest, contrasts = tree.separations[::-1], tree.contrasts[::-1]
    heights = np.maximum.accumulate(np.append(NOISE, tree.separations))[::-1]  # of K = 2, 3, ...
    apart = np.clip(contrasts, _LEAST_CONTRAST, CLEAR * np.sqrt(numbers))
    scores = _usefulness(heights[:-1]) - np.log(heights[1:]) + 2 * np.log(apart) + np.log(numbers) / 2
    one = scores.max() + np.log(ONE / max(contrasts.max(), _LEAST_CONTRAST)) if K > 1 else 0.0
    scores = np.append(one, scores)
    return Selection(
        np.arange(1, K + 1),
        np.append(np.nan, closest),
        np.append(np.nan, contrasts),
        scores,
        int(scores.argmax()) + 1,
    )


def _usefulness(separation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of a separation, growing more slowly above :data:`CLEAR`."""
    return np.log(np.minimum(separation, CLEAR)) + _BEYOND_CLEAR * np.log(np.maximum(separation / CLEAR, 1))


def closest_separations(candidates: Sequence[Candidate], cells: Sites, window: float) -> NDArray[np.float64]:
    """Separations of the two pairs of clusters of each run that are hardest to tell apart, smallest first.

    Shape (S, 2); (S, 1) for two clusters, and (S, 0) for one. 0 when a cluster is empty.
    """
    K = candidates[0].posteriors.shape[1]
    closest = np.zeros((len(candidates), min(2, K * (K - 1) // 2)))
    runs = [candidate.posteriors.argmax(axis=1) for candidate in candidates]
    full = [s for s, labels in enumerate(runs) if np.bincount(labels, cells.sizes, K).min() > 0]
    for s, pairs in zip(full, _measure([runs[s] for s in full], K, cells, window), strict=True):
        separations = pairs.separations(pairs.distances())
        closest[s] = np.sort(separations[np.triu_indices(K, 1)])[: closest.shape[1]]
    return closest


def confusion_of_clusters(
    labels: NDArray[np.intp], n_clusters: int, cells: Sites, window: float
) -> NDArray[np.float32]:
    """Chance that what was taken for one texture belongs to another, since the clusters may be wrong.

    No posterior of a solution knows that two of its clusters are the halves of one texture. But such clusters
    are close. Let c be the contrast of a cluster and its closest other (see the top of this file) over the
    root of the windows that all the data would fill: the cluster is right with probability
    ``1 / (1 + (DOUBT / c)^3)``, at least one half, and is that other otherwise. The curve was measured on
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
        (pairs,) = _measure([np.searchsorted(present, labels)], len(present), cells, window)
        separations = pairs.separations(pairs.distances())
        share = np.sqrt(len(present) / cells.sizes.sum()) * window
        contrasts = share * np.maximum(separations.min(axis=1), 1e-3)
        right = np.maximum(1 / (1 + (DOUBT / contrasts) ** 3), 0.5)
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


def _inner_ratios(
    own: Floats, held: Floats, a: int, others: NDArray[np.intp], cells: Sites, window: float
) -> NDArray[np.float64]:
    """Log-likelihood ratios (n, others, C) of ``a`` to others: means over the ``own`` (N,) cells of windows.

    Windows lie round own cells, and hold the share :data:`_INSIDE` of them; if there are few, the best.
    """
    shares, means = [], []
    step = max(1, round(np.sqrt(np.count_nonzero(own)) / _ENOUGH_WINDOWS))
    for inside, piece in zip(cells.pieces(own), cells.pieces(held), strict=True):
        if not inside.any():
            continue
        ends = (np.flatnonzero(inside.any(axis=axis))[[0, -1]] for axis in (1, 0))
        box = tuple(slice(first, last + 1) for first, last in ends)
        down, across = (window_matrix(n, window)[b, b] for n, b in zip(inside.shape, box, strict=True))
        inside, scores = inside[box], piece[box]
        down, across, mine = down[::step], across[::step], inside[::step, ::step] > 0
        shares.append((down @ inside @ across.T)[mine])
        ratios = (scores[:, :, [a]] - scores[:, :, others]) * inside[:, :, None, None]
        rows = (down @ ratios.reshape(len(inside), -1)).reshape(len(down), inside.shape[1], -1)
        means.append(np.matmul(across, rows)[mine])
    share = np.concatenate(shares)
    whole = share >= min(_INSIDE, float(np.quantile(share, 0.7)))
    inner = np.concatenate(means)[whole] / share[whole, None]
    return inner.reshape(len(inner), len(others), -1).astype(np.float64)


def _held_out_scores(members: Sequence[NDArray[np.bool_]], cells: Sites) -> Iterator[Floats]:
    """Scores (N, K, C) of full cells in the clusters of one-hot members (N, K), learned without the cell.

    All profiles are made at once, the scores one partition after the other.
    """
    fold = np.concatenate([np.indices(shape).sum(axis=0).ravel() % 2 for shape in cells.grids])
    together = np.concatenate(members, axis=1)
    halves = [(together & (fold == half)[:, None]).astype(np.float32) for half in (1, 0)]
    profiles = [cells.profiles(half) for half in halves]
    rows = [np.flatnonzero(fold == half) for half in (0, 1)]
    end = 0
    for own in members:
        start, end = end, end + own.shape[1]
        held = np.empty((*own.shape, cells.n_channels), np.float32)
        for mine, learned in zip(rows, profiles, strict=True):
            held[mine] = cells.channel_scores(mine, learned[start:end])
        yield held / np.maximum(cells.sizes, 1e-6)[:, None, None]
