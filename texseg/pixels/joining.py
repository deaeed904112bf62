"""Join the parts of a label map processed block by block, as if it had been processed as a whole."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.pixels.label import Parts


class BlockParts(NamedTuple):
    """What has to be known about the n parts of one block, numbered in the order of their first pixels."""

    labels: NDArray[np.int32]  # (n,), from 0
    sizes: NDArray[np.int64]  # (n,), pixels
    first: NDArray[np.int64]  # (n,), first pixel, counted in row-major order in the whole image
    sums: NDArray[np.float64]  # (n, K), scores of small parts summed over their pixels
    pairs: NDArray[np.int64]  # (m, 2), parts that touch
    edges: tuple[NDArray[np.int64], ...]
    """Part of each pixel along both ends of each axis: top, bottom, left, right; -1 without data."""


def parts_of_block(
    parts: Parts,
    scores: NDArray[np.floating],
    pixels: NDArray[np.intp],
    origin: tuple[int, ...],
    whole: tuple[int, ...],
) -> BlockParts:
    """Describe the parts of a block, given scores (K, m) of the pixels of small parts, and its origin."""
    places, n = parts.places, len(parts.sizes) - 1
    index = np.unravel_index(parts.first[1:], places.shape)
    flat = np.zeros(n, np.int64)
    for at, start, length in zip(index, origin, whole, strict=True):
        flat = flat * length + at + start
    part = places.ravel()[pixels] - 1
    sums = [np.bincount(part, column, n) for column in scores]
    ways = [np.moveaxis(places, axis, 0) for axis in reversed(range(places.ndim))]
    pairs = np.concatenate([_touching(way[:-1], way[1:]) for way in ways])
    return BlockParts(
        parts.labels[1:],
        parts.sizes[1:].astype(np.int64),
        flat,
        np.stack(sums, axis=1) if n else np.empty((0, len(scores))),
        np.unique(pairs, axis=0),
        tuple(way[end].astype(np.int64) - 1 for way in ways[::-1] for end in (0, -1)),
    )


def joined_labels(
    blocks: Mapping[tuple[int, ...], BlockParts], area: float, min_size: float
) -> dict[tuple[int, ...], NDArray[np.int32]]:
    """Give the final labels of the parts of all blocks; those below ``area`` and ``min_size`` are merged."""
    places = list(blocks)
    sizes = [len(blocks[place].labels) for place in places]
    offset = dict(zip(places, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    if not sum(sizes):
        return {place: blocks[place].labels for place in places}
    pairs = [blocks[place].pairs + offset[place] for place in places] + _across(blocks, offset)
    state = _Graph(
        np.concatenate([blocks[place].labels for place in places]),
        np.concatenate([blocks[place].sizes for place in places]),
        np.concatenate([blocks[place].first for place in places]),
        np.concatenate([blocks[place].sums for place in places]),
        np.concatenate(pairs),
    )
    K = state.sums.shape[1]
    state, names = state.contracted()
    if area > 0:
        largest = np.zeros(K, np.int64)
        np.maximum.at(largest, state.labels, state.sizes)
        limits = np.where(largest >= area, area, 0)  # none is a speck where all are so small
        state = state._replace(labels=state.merged(limits))
        state, again = state.contracted()
        names = again[names]
    if min_size > 1:
        state = state._replace(labels=state.merged(np.full(K, min_size)))
    ends = np.cumsum(sizes)[:-1]
    return dict(zip(places, np.split(state.labels[names], ends), strict=True))


class _Graph(NamedTuple):
    """All parts of an image, and which of them touch."""

    labels: NDArray[np.int32]
    sizes: NDArray[np.int64]
    first: NDArray[np.int64]
    sums: NDArray[np.float64]
    pairs: NDArray[np.int64]

    def contracted(self) -> tuple[_Graph, NDArray[np.intp]]:
        """Unite parts that touch and have the same label; also return the new number of each old part."""
        one, other = self.pairs[self.labels[self.pairs[:, 0]] == self.labels[self.pairs[:, 1]]].T
        group, before = np.arange(len(self.labels)), np.empty(0, np.intp)
        while len(one) and not np.array_equal(group, before):  # the smallest of each group spreads in it
            before, least = group.copy(), np.minimum(group[one], group[other])
            for ends in (one, other, before[one], before[other]):
                np.minimum.at(group, ends, least)
            group = group[group]
        group = np.unique(group, return_inverse=True)[1]
        m = int(group.max(initial=-1)) + 1
        first = np.full(m, np.iinfo(np.int64).max)
        np.minimum.at(first, group, self.first)
        rank = np.empty(m, np.intp)
        rank[np.argsort(first, kind="stable")] = np.arange(m)
        names = rank[group]
        labels = np.empty(m, np.int32)
        labels[names] = self.labels
        sums = [np.bincount(names, column, m) for column in self.sums.T]
        pairs = np.sort(names[self.pairs], axis=1)
        pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
        sizes = np.zeros(m, np.int64)
        np.add.at(sizes, names, self.sizes)
        return _Graph(labels, sizes, np.sort(first), np.stack(sums, axis=1), pairs), names

    def merged(self, limits: NDArray[np.floating]) -> NDArray[np.int32]:
        """Labels, where parts below limits (K,) went to the neighbour that explains them, smallest first."""
        near: list[set[int]] = [set() for _ in self.labels]
        small = self.sizes < limits[self.labels]
        one, other = self.pairs.T
        for p, q in self.pairs[small[one] | small[other]].tolist():
            near[p].add(q)
            near[q].add(p)
        own, sizes, sums = self.labels.copy(), self.sizes.copy(), self.sums.copy()
        into = np.arange(len(own))
        first = into.copy()
        queue = [(int(sizes[p]), p, p) for p in np.flatnonzero(small).tolist()]
        heapq.heapify(queue)
        while queue:
            size, _, p = heapq.heappop(queue)
            if into[p] != p or sizes[p] != size or not near[p]:
                continue
            own[p] = max(sorted({int(own[q]) for q in near[p]}), key=lambda k: sums[p, k])
            group = [p, *(q for q in near[p] if own[q] == own[p])]
            keep = max(group, key=lambda q: sizes[q])
            group.remove(keep)
            into[group] = keep
            sizes[keep] += sizes[group].sum()
            sums[keep] += sums[group].sum(axis=0)
            first[keep] = first[[keep, *group]].min()
            for q in group:
                for r in near[q]:
                    near[r].discard(q)
                    near[r].add(keep)
                near[keep] = (near[keep] | near[q]) - {q, keep}
                near[q] = set()
            if sizes[keep] < limits[own[keep]]:
                heapq.heappush(queue, (int(sizes[keep]), int(first[keep]), keep))
        while (into != into[into]).any():  # a part may have been merged into one that was later merged itself
            into = into[into]
        return own[into]


def _touching(one: NDArray[np.int32], other: NDArray[np.int32]) -> NDArray[np.int64]:
    """Pairs (m, 2) of different parts from 0, given the parts from 1 on both sides of all pixel edges."""
    touch = (one != other) & (one > 0) & (other > 0)
    pairs = np.stack([one[touch], other[touch]], axis=1).astype(np.int64) - 1
    return np.unique(np.sort(pairs, axis=1), axis=0)


def _across(
    blocks: Mapping[tuple[int, ...], BlockParts], offset: Mapping[tuple[int, ...], int]
) -> list[NDArray[np.int64]]:
    """Pairs of parts that touch across block borders."""
    pairs = []
    for place, block in blocks.items():
        for axis in range(len(place)):
            below = (*place[:axis], place[axis] + 1, *place[axis + 1 :])
            if below not in blocks:
                continue
            one, other = block.edges[2 * axis + 1], blocks[below].edges[2 * axis]
            both = (one >= 0) & (other >= 0)
            shift = [offset[place], offset[below]]
            pairs.append(np.unique(np.stack([one[both], other[both]], axis=1) + shift, axis=0))
    return pairs
