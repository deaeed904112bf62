"""Positions of the nodes in a drawing of a tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["across"]


def across(parents: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float64]:
    """Horizontal position of each node: leaves side by side at 0, 1, 2, ..., parents centred above children.

    Parameters
    ----------
    parents : sequence of V ints
        Parent of every node, an earlier one; -1 for roots.

    Examples
    --------
    >>> across([-1, 0, 0, 1, 1]).tolist()
    [1.25, 0.5, 2.0, 0.0, 1.0]
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    places = np.zeros(len(children))
    stack = [node for node, parent in enumerate(parents) if parent < 0][::-1]
    n_leaves = 0
    while stack:
        node = stack.pop()
        stack += children[node][::-1]
        if not children[node]:
            places[node], n_leaves = n_leaves, n_leaves + 1
    for node in reversed(range(len(children))):
        if children[node]:
            places[node] = places[children[node]].mean()
    return places
