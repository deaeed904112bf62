"""Counts with a known tree, for experiments and tests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.random import random_state_of
from texseg.models.hacm import Tree


class PlantedTree(NamedTuple):
    """What `planted_tree` returns."""

    counts: NDArray[np.float64]
    """(N, M)."""
    clusters: NDArray[np.intp]
    """(N,), the leaf of every row, from 0."""
    owners: NDArray[np.intp]
    """(M,), the node to which a word belongs."""
    tree: Tree
    """Balanced and binary; its leaves are the clusters in order."""


def planted_tree(
    depth: int = 4,
    *,
    rows_per_leaf: int = 20,
    words_per_node: int = 8,
    row_total: float = 80,
    background: float = 0.1,
    random_state: Any = None,
) -> PlantedTree:
    """Draw rows from the leaves of a binary tree in which every node has words of its own.

    A word of a row comes from one of the nodes on the path to its leaf, all equally often, or, with
    probability ``background``, is any word at all.

    Parameters
    ----------
    depth : int, default=4
        Levels below the root; there are ``2 ** depth`` leaves.
    rows_per_leaf : int, default=20
    words_per_node : int, default=8
        Their frequencies are drawn from Dirichlet(5).
    row_total : float, default=80
        Mean number of words in a row (Poisson).
    background : float in 0 ... 1, default=0.1
    random_state : int, RandomState, Generator or None

    Returns
    -------
    PlantedTree

    Examples
    --------
    >>> planted = planted_tree(2, rows_per_leaf=3, random_state=0)
    >>> planted.counts.shape, planted.tree.leaves.tolist(), planted.clusters.tolist()
    ((12, 56), [3, 4, 5, 6], [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    """
    rng = random_state_of(random_state)
    tree = Tree([(node - 1) // 2 for node in range(2 ** (depth + 1) - 1)])
    owners = np.repeat(np.arange(len(tree.parents)), words_per_node)
    nodes = np.full((len(tree.parents), len(owners)), background / len(owners))
    for node in range(len(nodes)):
        nodes[node, owners == node] += (1 - background) * rng.dirichlet(np.full(words_per_node, 5.0))
    clusters = np.repeat(np.arange(2**depth), rows_per_leaf)
    profiles = nodes[tree.paths].mean(axis=1)
    counts = [rng.multinomial(rng.poisson(row_total), profiles[k] / profiles[k].sum()) for k in clusters]
    return PlantedTree(np.array(counts, dtype=float), clusters, owners, tree)
