"""Join the parts of a label map processed block by block, as if it had been processed as a whole."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import Parts


class BlockParts(NamedTuple):
    """What has to be known about the n parts of one block, numbered in the order of their first pixels."""

    labels: NDArray[np.int32]  # (n,), from 0
    sizes: NDArray[np.int64]  # (n,), pixels
    first: NDArray[np.int64]  # (n,), first pixel, counted in row-major order in the whole image
    sums: NDArray[np.float64]  # (n, K), scores of small parts summed over their pixels
    pairs: NDArray[np.int64]  # (m, 2), parts that touch
    edges: tuple[NDArray[np.int64], ...]
    """Part of each pixel along both ends of each axis (top, bottom, left, right), flat; -1 without data."""


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
        tuple(way[end].ravel().astype(np.int64) - 1 for way in ways[::-1] for end in (0, -1)),
    )


class Joined(NamedTuple):
    """Blocks next to each other, joined: what is still open, and what became of their parts."""

    up: BlockParts | None
    """Parts that others may change, and for each label one part that stands for all that are final; None of
    the whole image, where all are."""
    named: dict[tuple[int, ...], NDArray[np.int32]]
    """Of each block the final labels of its parts, or -1 - the number of the part in ``up``."""

    def labels_of(self, place: tuple[int, ...], above: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give the final labels of the parts of a block, given those of ``up``."""
        names = self.named[place].copy()
        names[names < 0] = above[-1 - names[names < 0]]
        return names


def joined(
    blocks: Mapping[tuple[int, ...], BlockParts | Joined], area: float, is_whole: bool, spares: bool = True
) -> Joined:
    """Join neighbouring blocks, and merge their parts below ``area`` that no other block can change.

    ``spares`` keeps the small parts of a label that has no larger one in the whole image.
    """
    given: Any = {place: each.up if isinstance(each, Joined) else each for place, each in blocks.items()}
    places, sizes = list(given), [len(each.labels) for each in given.values()]
    offset = dict(zip(places, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    pairs = [each.pairs + offset[place] for place, each in given.items()] + _across(given, offset)
    columns: list[Any] = [*zip(*(each[:4] for each in given.values()), strict=True), pairs]
    state, names = _Graph(*map(np.concatenate, columns)).contracted()
    own = np.split(names, np.cumsum(sizes)[:-1])
    largest = np.zeros(state.sums.shape[1], np.int64)
    np.maximum.at(largest, state.labels, state.sizes)
    is_spared, up = (largest < area) & spares, None
    limits = np.where(is_spared & is_whole, 0, area)
    small = state.sizes < limits[state.labels]
    if is_whole:  # nothing stays open
        numbers = state.merged(small, limits)
    else:
        edges = _edges({place: (given[place].edges, own[i]) for i, place in enumerate(places)})
        is_open = np.isin(np.arange(len(small)), np.concatenate(edges)) | is_spared[state.labels]
        is_open &= small
        one, other = state.pairs[small[state.pairs].all(axis=1)].T
        before = -1
        while before != (before := int(is_open.sum())):  # and all that these may change
            is_open[one[is_open[other]]] = True
            is_open[other[is_open[one]]] = True
        number = np.cumsum(is_open) - 1
        numbers = np.where(is_open, -1 - number, state.merged(small & ~is_open, limits))
        up = state.handed_up(is_open, ~small, number, edges)
    named = {place: numbers[names].astype(np.int32) for place, names in zip(places, own, strict=True)}
    return Joined(up, named)


def joined_labels(
    places: Iterable[tuple[int, ...]],
    parts_of: Callable[[tuple[int, ...]], Any],
    area: float,
    min_size: float,
    call: Callable[..., Any] = lambda function, *given: function(*given),
) -> dict[tuple[int, ...], tuple[Any, Any]]:
    """Label the parts of all blocks: when those below ``area``, and below ``min_size``, were merged.

    A tree joins blocks 2 by 2, and hands up only what others may change; ``call`` runs a function, or has it
    run elsewhere.
    """
    places = list(places)

    def along_tree(parts_of: Callable[[tuple[int, ...]], Any], area: float, spares: bool) -> dict[Any, Any]:
        tree = [{p: call(joined, {p: parts_of(p)}, area, len(places) == 1, spares) for p in places}]
        while len(tree[-1]) > 1:
            tiles: dict[tuple[int, ...], dict[Any, Any]] = {}
            for place, each in tree[-1].items():
                tiles.setdefault(tuple(at // 2 for at in place), {})[place] = each
            is_whole = len(tiles) == 1
            tree.append({place: call(joined, own, area, is_whole, spares) for place, own in tiles.items()})
        labels: dict[Any, Any] = dict.fromkeys(tree[-1], np.zeros(0, np.int32))
        for level, below in zip(tree[:0:-1], tree[-2::-1], strict=True):
            parents = {place: tuple(at // 2 for at in place) for place in below}
            labels = {p: call(Joined.labels_of, level[q], p, labels[q]) for p, q in parents.items()}
        return {place: call(Joined.labels_of, each, place, labels[place]) for place, each in tree[0].items()}

    def renamed(place: tuple[int, ...]) -> Any:
        return call(lambda parts, labels: parts._replace(labels=labels), parts_of(place), known[place])

    known = along_tree(parts_of, area, True)
    final = along_tree(renamed, min_size, False) if min_size > 1 else known
    return {place: (known[place], final[place]) for place in places}


def _edges(blocks: Mapping[tuple[int, ...], Any]) -> tuple[NDArray[np.int64], ...]:
    """Parts along the ends of all axes of blocks side by side, given their edges and names of parts."""
    found = []
    for axis in range(len(min(blocks))):
        for side, end in enumerate((min, max)):
            outer = end(place[axis] for place in blocks)
            own = [blocks[place] for place in sorted(blocks) if place[axis] == outer]
            found.append(
                np.concatenate([np.append(names, -1)[edges[2 * axis + side]] for edges, names in own])
            )
    return tuple(found)


class _Graph(NamedTuple):
    """All parts of an image, and which of them touch."""

    labels: NDArray[np.int32]
    sizes: NDArray[np.int64]
    first: NDArray[np.int64]
    sums: NDArray[np.float64]
    pairs: NDArray[np.int64]

    def contracted(self) -> "tuple[_Graph, NDArray[np.intp]]":
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

    def handed_up(
        self,
        is_open: NDArray[np.bool_],
        is_large: NDArray[np.bool_],
        number: NDArray[np.intp],
        edges: tuple[NDArray[np.int64], ...],
    ) -> BlockParts:
        """Parts that are open, by their numbers, and one for all large parts of each label."""
        n, K = np.count_nonzero(is_open), self.sums.shape[1]
        first, sizes = np.full((2, K), -1, np.int64)
        large = np.flatnonzero(is_large)[::-1]
        first[self.labels[large]], sizes[self.labels[large]] = self.first[large], self.sizes[large]
        there = sizes >= 0
        number = np.where(is_large, n - 1 + np.cumsum(there)[self.labels], number)
        pairs = np.sort(number[self.pairs[is_open[self.pairs].any(axis=1)]], axis=1)
        return BlockParts(
            np.append(self.labels[is_open], np.flatnonzero(there)).astype(np.int32),
            np.append(self.sizes[is_open], sizes[there]),
            np.append(self.first[is_open], first[there]),
            np.concatenate([self.sums[is_open], np.zeros((np.count_nonzero(there), K))]),
            np.unique(pairs, axis=0),
            tuple(np.append(number, -1)[edge] for edge in edges),
        )

    def merged(self, small: NDArray[np.bool_], limits: NDArray[np.floating]) -> NDArray[np.int32]:
        """Labels, where ``small`` parts, below limits (K,), went to the neighbour that explains them best."""
        near: list[set[int]] = [set() for _ in self.labels]
        one, other = self.pairs.T
        for p, q in self.pairs[small[one] | small[other]].tolist():
            near[p].add(q)
            near[q].add(p)
        own, sizes, first = self.labels.copy(), self.sizes.copy(), self.first.copy()
        sums, into = self.sums.copy(), np.arange(len(own))
        queue = [(int(sizes[p]), int(first[p]), p) for p in np.flatnonzero(small).tolist()]
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
    a, b = one[touch].astype(np.int64) - 1, other[touch].astype(np.int64) - 1
    return np.stack(np.divmod(np.unique((np.minimum(a, b) << 32) + np.maximum(a, b)), 1 << 32), axis=1)


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
