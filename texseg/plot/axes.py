"""Where the figures are drawn, and where the nodes of a tree stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

__all__ = ["across", "bare", "named", "one_axes", "panels"]


def one_axes(ax: Axes | None, width: float = 5.0, height: float = 4.0) -> Axes:
    """Return the axes given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def panels(axes: Any, n: int, n_columns: int, width: float, height: float, **options: Any) -> NDArray[Any]:
    """Return the given axes as an array of full rows for ``n`` panels, or those of a new figure.

    ``width`` and ``height`` are those of one panel in inches; ``options`` are passed to ``subplots``. Unused
    panels are hidden.
    """
    n_rows = -(-n // n_columns)
    if axes is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
        axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    given = np.asarray(axes, dtype=object).ravel()
    if given.size != n_rows * n_columns:
        raise ValueError(
            f"axes must hold {n_rows * n_columns} Axes for {n_rows} rows of {n_columns}, got {given.size}"
        )
    for ax in given[n:]:
        ax.set_visible(False)
    return given.reshape(n_rows, n_columns)


def bare(ax: Axes, title: str = "", size: float | None = None) -> Axes:
    """Remove ticks and frame, which pictures do not need; set the title."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if title:
        ax.set_title(title, fontsize=size)
    return ax


def named(names: Sequence[str], index: int, kind: str = "") -> str:
    """Return the name given to a panel, or its kind and number."""
    return names[index] if index < len(names) else f"{kind} {index + 1}".strip()


def across(parents: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float64]:
    """Horizontal position of each node of a tree: leaves side by side at 0, 1, 2, ..., parents centred above.

    ``parents`` (V,) holds the parent of every node, an earlier one; -1 for roots.

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
