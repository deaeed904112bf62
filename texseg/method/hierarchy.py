"""Coarser and finer segmentations of one fit, nested in each other and in its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import resized
from texseg.counts.grid import CellGrid
from texseg.counts.sites import Sites
from texseg.io.display import html_picture, size_in_words
from texseg.method.number import MergeTree, grouped
from texseg.method.seeds import painted_cells
from texseg.method.textures import scores_of
from texseg.models.histograms import HistogramClustering, Profiles

_SHOWN = 6  # of a notebook: numbers of segments up to this one
_SMOOTHING = 3.0  # cells; side of the windows over which the parts of a segment are compared
_OWN = 10.0  # nats in favour of a cell's part in the over-segmentation, as much as the Potts prior adds


class Levels(NamedTuple):
    """Nested segmentations: the finest, and the merges that lead from it to a single segment."""

    finest: list[NDArray[np.int32]]
    merges: tuple[tuple[int, int], ...]
    critical_temperatures: NDArray[np.float64]


class Hierarchy:
    """Segmentations into 1 .. K segments; each is a coarsening of the next, and one is the result itself.

    They are computed by ``make`` when first needed; ``is_list`` tells whether a list of images was fitted.
    """

    def __init__(self, make: Callable[[], Levels], is_list: bool) -> None:
        self._make = make
        self.is_list = is_list

    @cached_property
    def _levels(self) -> Levels:
        return self._make()

    def __repr__(self) -> str:
        """Say which numbers of segments there are."""
        shapes = ", ".join(size_in_words(image.shape) for image in self.finest[:3])
        more = ", ..." * (len(self.finest) > 3)
        return f"Hierarchy(1 to {len(self.merges) + 1} segments of {shapes}{more} pixels; labels(k) has k)"

    def _repr_html_(self) -> str:
        pictures = (html_picture(None, self.level(k)[0], 200) for k in self.n_segments[1:_SHOWN])
        return f"{'&emsp;'.join(pictures)}<p>{self!r}</p>"

    @property
    def finest(self) -> list[NDArray[np.int32]]:
        """Labels of each image in the finest segmentation, from 1; 0 without data."""
        return self._levels.finest

    @property
    def merges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (kept, absorbed) of segments of the finest, from 0, in the order of merging down to one."""
        return self._levels.merges

    @property
    def critical_temperatures(self) -> NDArray[np.float64]:
        """(K - 1,): entry k - 1 is where, on cooling, one of k segments splits in two ([1]_ section 5.1).

        For histograms of cells, with each channel counting as many observations as its weight. Infinite
        where flat background leaves the textures.

        References
        ----------
        .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
        """
        return self._levels.critical_temperatures

    @property
    def n_segments(self) -> NDArray[np.intp]:
        """Numbers of segments for which there are label images, 1 .. K."""
        return np.arange(1, len(self.merges) + 2)

    def labels(self, k: int) -> Any:
        """Label image with ``k`` segments: int32 (H, W), 1 .. k, 0 where there is no data; or a list.

        With as many segments as the fit has, it is the fit's ``labels_``.

        Raises
        ------
        ValueError
            ``k`` is below 1 or above the number of segments of the finest segmentation.
        """
        images = self.level(k)
        return images if self.is_list else images[0]

    def level(self, k: int) -> list[NDArray[np.int32]]:
        """Label images with ``k`` segments; one image is a list of one."""
        number = np.concatenate([[0], grouped(self.merges, k) + 1]).astype(np.int32)
        return [number[image] for image in self.finest]


def levels_of(
    labels: Sequence[NDArray[np.int32]], tree: MergeTree, cells: Sites, grids: Sequence[CellGrid], beta: float
) -> Levels:
    """Nest a result between coarser and finer segmentations, using the merge tree of its image.

    Each cluster of the tree becomes a part of the segment with which it shares most pixels. The merges are
    those of the tree, in its order, except that those within a segment come first.
    """
    K = max(int(image.max()) for image in labels)
    shares = painted_cells(labels, grids, K)
    overlaps = np.stack([shares[tree.labels == c].sum(axis=0) for c in range(tree.n_clusters)])
    parts = _nest(tree, overlaps)
    evidence = _evidence(tree, parts, cells, beta)
    ends = np.cumsum([grid.n_cells for grid in grids])[:-1]
    pieces = zip(labels, np.split(evidence, ends), grids, strict=True)
    finest = [_divided(image, parts, piece, grid) for image, piece, grid in pieces]
    used = np.unique(np.concatenate([np.unique(image) for image in finest]))
    number, merges = _without_unused(parts, np.isin(np.arange(len(parts.owners)), used - 1))
    new = np.concatenate([[0], number + 1]).astype(np.int32)
    own = shares.argmax(axis=1)[:, None] == parts.owners
    of_cells = number[np.where(own, evidence, -np.inf).argmax(axis=1)]
    temperatures = critical_temperatures(of_cells, merges, cells)
    return Levels([new[image] for image in finest], merges, temperatures)


def levels_beside_ground(levels: Levels, grounds: Sequence[NDArray[np.bool_]]) -> Levels:
    """Make flat background segment 1 of all levels of the textures next to it, and part of the only one."""
    finest = [
        np.where(ground, 1, image + (image > 0)).astype(np.int32)
        for image, ground in zip(levels.finest, grounds, strict=True)
    ]
    merges = (*((kept + 1, absorbed + 1) for kept, absorbed in levels.merges), (0, 1))
    return Levels(finest, merges, np.append(np.inf, levels.critical_temperatures))


class _Parts(NamedTuple):
    """Parts of the segments, ordered by segment, and the merges of all of them."""

    owners: NDArray[np.intp]  # (parts,), segment of each, from 0, ascending
    clusters: NDArray[np.intp]  # (parts,), cluster of the tree that each is; -1 for a segment that owns none
    merges: tuple[tuple[int, int], ...]


def _nest(tree: MergeTree, overlaps: NDArray[np.floating]) -> _Parts:
    """Adapt a tree to a segmentation, given the areas (clusters, segments) they share."""
    owner = overlaps.argmax(axis=1)
    unknown = np.setdiff1d(np.arange(overlaps.shape[1]), owner)
    order = np.argsort(np.concatenate([owner, unknown]), kind="stable")
    owners = np.concatenate([owner, unknown])[order]
    clusters = np.concatenate([np.arange(len(owner)), np.full(len(unknown), -1)])[order]
    place = np.argsort(order)  # of each cluster, then of each segment that owns none
    edges = [(int(place[a]), int(place[b])) for a, b in tree.merges]
    within = [(a, b) for a, b in edges if owners[a] == owners[b]]
    within += [(a, a + 1) for a in np.flatnonzero(np.diff(owners) == 0).tolist()]
    nearest = overlaps[:, unknown].argmax(axis=0)
    lost = [(int(place[len(owner) + i]), int(place[c])) for i, c in enumerate(nearest)]
    return _Parts(owners, clusters, _spanning([*within, *lost, *edges], len(owners)))


def _spanning(edges: Sequence[tuple[int, int]], n: int) -> tuple[tuple[int, int], ...]:
    """Keep the edges that join two groups, in their order; each group is named by its smallest member."""
    group = np.arange(n)
    kept = []
    for one, other in edges:
        a, b = sorted((int(group[one]), int(group[other])))
        if a != b:
            group[group == b] = a
            kept.append((a, b))
    return tuple(kept)


def _without_unused(
    parts: _Parts, used: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], tuple[tuple[int, int], ...]]:
    """Join parts without pixels to others of their segment; return new numbers and the remaining merges."""
    kept = np.flatnonzero(used)
    edges = [(p, int(kept[parts.owners[kept] == parts.owners[p]][0])) for p in np.flatnonzero(~used).tolist()]
    merges = _spanning([*edges, *parts.merges], len(used))
    number = grouped(merges, len(kept))
    return number, tuple((int(number[a]), int(number[b])) for a, b in merges[len(edges) :])


def _evidence(tree: MergeTree, parts: _Parts, cells: Sites, beta: float) -> NDArray[np.floating]:
    """Evidence for each part (cells, parts): tempered log-likelihood, and the over-segmentation."""
    members = (tree.labels[:, None] == parts.clusters).astype(np.float32)
    scores = scores_of(cells, cells.profiles(members), cells.background)
    scores = beta * cells.window_mean(scores, _SMOOTHING)
    return scores + _OWN * cells.window_mean(members, _SMOOTHING)


def _divided(
    labels: NDArray[np.integer], parts: _Parts, evidence: NDArray[np.floating], grid: CellGrid
) -> NDArray[np.int32]:
    """Labels of the parts, from 1, within the segments of ``labels``; evidence (cells, parts)."""
    owned = np.bincount(parts.owners)
    first = np.cumsum(owned) - owned
    finest = np.concatenate([[0], first + 1]).astype(np.int32)[labels]
    size = [n * side for n, side in zip(grid.shape, grid.sides, strict=True)]
    for segment in np.flatnonzero(owned > 1):
        inside = labels == segment + 1
        best = np.full(labels.shape, -np.inf, np.float32)
        for part in range(first[segment], first[segment] + owned[segment]):
            coarse = np.ascontiguousarray(evidence[:, part], np.float32).reshape(grid.shape)
            plane = resized(coarse, size, cv2.INTER_LINEAR)[tuple(map(slice, labels.shape))]
            ahead = inside & (plane > best)
            finest[ahead] = part + 1
            best[ahead] = plane[ahead]
    return finest


def critical_temperatures(
    labels: NDArray[np.intp], merges: Sequence[tuple[int, int]], cells: Sites
) -> NDArray[np.float64]:
    """Temperature at which each merged segment would split in two, coarsest first, shape (K - 1,).

    ``labels`` (N,), from 0, are the clusters to which ``merges`` refers.
    """
    if not merges:
        return np.empty(0)
    parents = []
    for step, (kept, _) in enumerate(merges):
        group = grouped(merges, len(merges) - step)
        parents.append(group[labels] == group[kept])
    Q = np.stack(parents[::-1], axis=1).astype(np.float32)
    sizes = np.maximum(cells.sizes, 1e-12)[:, None]
    profiles = cells.profiles(Q) * cells.weights
    params = Profiles(profiles / profiles.sum(axis=1, keepdims=True), Q.mean(axis=0))
    rng = np.random.RandomState(0)
    transitions = HistogramClustering().instabilities(
        cells.counts[...] * cells.weights / sizes, params, Q * sizes, rng
    )
    return np.asarray(1.0 / transitions.beta, np.float64)
