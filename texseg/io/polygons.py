"""Outlines of label regions, exact along the edges of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.int64]

_STEPS = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])  # (row, column) of one edge: right, down, left, up
_FIRST_CORNERS = np.array([(0, 0), (0, 1), (1, 1), (1, 0)])  # where the edge of that side of a pixel begins
_EDGES_AT_ONCE = 2**20  # linked to rings, unless a single region has more; each takes some 250 bytes then
_TURNS = (1, 0, -1)  # the last one that fits wins: left before straight on before right


def region_outlines(regions: NDArray[np.integer]) -> Iterator[tuple[int, list[Ring]]]:
    """Trace the outline of every region.

    Parameters
    ----------
    regions : ndarray of int, shape (H, W)
        Numbers of 4-connected regions; 0 is no region.

    Yields
    ------
    region : int
        Number of the region, ascending.
    rings : list of ndarray of int, shape (n, 2)
        Corners (column, row), the first one not repeated at the end. The outer ring comes first, clockwise as
        seen on the screen; holes follow, counter-clockwise. Rings touch in points at most.

    Examples
    --------
    >>> [(number, rings[0].tolist()) for number, rings in region_outlines(np.array([[7, 7]]))]
    [(7, [[0, 0], [2, 0], [2, 1], [0, 1]])]
    """
    regions = np.asarray(regions)
    outlines = Outlines((regions.shape[0], regions.shape[1]))
    outlines.add(regions, regions)
    yield from outlines.rings(np.arange(regions.max(initial=0) + 1))


class Outlines:
    """Outlines of regions of an image that arrives in bands of rows; only edges of regions are kept.

    If two pixels of a region touch only at a corner, the outline turns left: it stays with the pixel
    outside, so that a hole that touches the outer ring remains a separate ring.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the whole image.

    Examples
    --------
    >>> outlines = Outlines((2, 1))
    >>> for number in (3, 4):  # parts of one region
    ...     outlines.add(np.array([[7]]), np.array([[number]]))
    >>> [(region, rings[0].tolist()) for region, rings in outlines.rings(np.array([0, 0, 0, 1, 1]))]
    [(1, [[0, 0], [1, 0], [1, 2], [0, 2]])]
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._corners = shape[0] + 1, shape[1] + 1
        self._top = 0
        self._above = np.zeros((1, shape[1]), np.int64), np.zeros((1, shape[1]), np.int64)
        self._keys: list[NDArray[np.int64]] = []
        self._owners: list[NDArray[np.int64]] = []

    def add(self, labels: NDArray[np.integer], numbers: NDArray[np.integer]) -> None:
        """Add the next rows: values that differ where regions meet, and the number of each pixel's part.

        Parts with different numbers may turn out to be one region; 0 is no region.
        """
        labels, numbers = (
            np.concatenate([last, rows]) for last, rows in zip(self._above, (labels, numbers), strict=True)
        )
        wide = np.pad(labels, ((0, 0), (1, 1)))
        here, above, below = labels[1:], labels[:-1], labels[1:]
        # the last row's lower sides are known when the next rows come, the first row's were not before
        self._keep(0, np.argwhere((here != above) & (here != 0)) + (1, 0), numbers)
        self._keep(1, np.argwhere((here != wide[1:, 2:]) & (here != 0)) + (1, 0), numbers)
        self._keep(2, np.argwhere((above != below) & (above != 0)), numbers)
        self._keep(3, np.argwhere((here != wide[1:, :-2]) & (here != 0)) + (1, 0), numbers)
        self._top += len(here)
        self._above = labels[-1:].astype(np.int64), numbers[-1:].astype(np.int64)

    def _keep(self, side: int, pixels: NDArray, numbers: NDArray) -> None:
        down, across = _FIRST_CORNERS[side]
        rows = pixels[:, 0] + (self._top - 1 + down)
        self._keys.append(self._key(side, rows, pixels[:, 1] + across))
        self._owners.append(numbers[pixels[:, 0], pixels[:, 1]].astype(np.int64))

    def _key(self, side: Any, rows: NDArray, columns: NDArray) -> NDArray[np.int64]:
        height, width = self._corners
        return (side * height + rows).astype(np.int64) * width + columns

    def rings(self, region_of: NDArray[np.integer]) -> Iterator[tuple[int, list[Ring]]]:
        """Yield rings as :func:`region_outlines` does; ``region_of`` gives the region of each part."""
        width = self._corners[1] - 1
        self.add(np.zeros((1, width), np.int64), np.zeros((1, width), np.int64))
        keys, owners = np.concatenate(self._keys), region_of[np.concatenate(self._owners)]
        self._keys, self._owners = [], []
        order = np.argsort(owners, kind="stable")
        keys, owners = keys[order], owners[order]
        del order
        begins = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        first = 0
        for end in [*begins[1:], len(keys)] if begins else ():
            if end - first >= _EDGES_AT_ONCE or end == len(keys):  # whole regions
                yield from self._linked(keys[first:end], owners[first:end])
                first = end

    def _linked(self, keys: NDArray[np.int64], owners: NDArray) -> Iterator[tuple[int, list[Ring]]]:
        """Rings of regions, from all their edges."""
        order = np.argsort(keys)
        keys, owners = keys[order], owners[order]
        directions, corner = np.divmod(keys, self._corners[0] * self._corners[1])
        starts = np.stack(np.divmod(corner, self._corners[1]), axis=1)
        ends = starts + _STEPS[directions]
        following = np.full(len(keys), -1)
        for turn in _TURNS:
            wanted = self._key((directions + turn) % 4, ends[:, 0], ends[:, 1])
            candidate = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            fits = (keys[candidate] == wanted) & (owners[candidate] == owners)
            following[fits] = candidate[fits]
        yield from _rings(starts, directions, owners, following)


def _rings(
    starts: NDArray, directions: NDArray, owners: NDArray, following: NDArray
) -> Iterator[tuple[int, list[Ring]]]:
    """Yield the rings of every region, from its edges and what follows each."""
    order, firsts = _cycles(following)
    starts, directions = starts[order], directions[order]
    before = np.arange(len(order)) - 1
    before[firsts] = np.append(firsts[1:], len(order)) - 1
    turns = directions != directions[before]
    corners = starts[turns][:, ::-1]
    ends = np.cumsum(np.add.reduceat(turns, firsts, dtype=np.intp))
    y, x = starts.T
    along_y, along_x = _STEPS[directions].T
    areas = np.add.reduceat(x * along_y - y * along_x, firsts)  # twice those of the rings; of holes negative
    owners = owners[order[firsts]]
    rings = np.split(corners, ends[:-1])
    sorting = np.lexsort((-areas, owners))
    regions_of_rings = owners[sorting]
    begins = np.flatnonzero(np.diff(regions_of_rings, prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(sorting)), strict=True):
        yield int(regions_of_rings[begin]), [rings[i] for i in sorting[begin:end]]


def _cycles(following: NDArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Order the elements of a permutation cycle by cycle, and tell where each cycle begins in that order."""
    successor = following.tolist()
    seen = bytearray(len(successor))
    order: list[int] = []
    firsts = []
    for first in range(len(successor)):
        if seen[first]:
            continue
        firsts.append(len(order))
        edge = first
        while not seen[edge]:
            seen[edge] = 1
            order.append(edge)
            edge = successor[edge]
    return np.array(order, np.intp), np.array(firsts, np.intp)
