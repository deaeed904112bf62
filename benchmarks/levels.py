"""The merge tree behind a segmentation, and how well each of its levels agrees with the truth, on cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from texseg.method import clusters
from texseg.method.number import MergeTree


class Levels(NamedTuple):
    """Adjusted Rand indices of an over-segmentation merged down, on cells."""

    leaves: float
    """Of the clusters of the over-segmentation, each with the label that most of its pixels have."""
    best: float
    """Of the best level of the tree."""
    true: float
    """Of the level with the true number."""
    chosen: float
    """Of the level with as many segments as were answered."""


class _Found(Exception):
    pass


@contextmanager
def trees_of(*, first_only: bool = False) -> Iterator[list[MergeTree]]:
    """Collect the trees of all over-segmentations inside the block, or leave it after the first."""
    trees: list[MergeTree] = []
    make: Callable[..., MergeTree] = clusters.merge_tree

    def kept(*arguments: Any, **options: Any) -> MergeTree:
        trees.append(make(*arguments, **options))
        if first_only:
            raise _Found
        return trees[-1]

    with patch.object(clusters, "merge_tree", kept), suppress(_Found):
        yield trees


def shared_pixels(tree: MergeTree, truth: NDArray[np.integer]) -> NDArray[np.float64]:
    """Count pixels (clusters, textures) of each cluster in each texture; 0 in the truth is not judged."""
    H, W = truth.shape
    cell = next(c for c in range(1, 65) if -(-H // c) * -(-W // c) == len(tree.labels))
    labels = tree.labels.reshape(-(-H // cell), -1).repeat(cell, axis=0)[:H].repeat(cell, axis=1)[:, :W]
    table = np.zeros((tree.n_clusters, int(truth.max()) + 1))
    np.add.at(table, (labels, truth), 1)
    return table[:, 1:]


def scores(table: NDArray[np.float64], tree: MergeTree) -> NDArray[np.float64]:
    """Adjusted Rand index of each level of a tree, from one segment on."""
    return np.array([rand(table, tree.groups(k)) for k in range(1, tree.n_clusters + 1)])


def rand(table: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """Give the adjusted Rand index of clusters (rows) in groups against the truth (columns)."""
    together = np.zeros((groups.max() + 1, table.shape[1]))
    np.add.at(together, groups, table)
    tables = (together, together.sum(axis=1), together.sum(axis=0))
    cells, rows, columns = ((t * (t - 1)).sum() for t in tables)
    n = table.sum()
    expected, most = rows * columns / (n * (n - 1)), (rows + columns) / 2
    return 1.0 if most <= expected else float((cells - expected) / (most - expected))


def levels(tree: MergeTree, truth: NDArray[np.integer], n_chosen: int) -> Levels:
    """Judge a tree; truth from 1, where 0 is not judged."""
    table = shared_pixels(tree, truth)
    each = scores(table, tree)
    leaves = rand(table, table.argmax(axis=1))
    n_true = len(np.setdiff1d(truth, [0]))
    true, chosen = (each[min(k, len(each)) - 1] for k in (n_true, n_chosen))
    return Levels(leaves, float(each.max()), float(true), float(chosen))
