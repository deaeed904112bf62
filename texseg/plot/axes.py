"""Where the figures are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

__all__ = ["bare", "grid_of_axes", "one_axes"]


def one_axes(ax: Axes | None, width: float = 5.0, height: float = 4.0) -> Axes:
    """Return the axes given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def grid_of_axes(
    axes: Any, n_rows: int, n_columns: int, width: float, height: float, **options: Any
) -> NDArray[Any]:
    """Return the given axes as an array (n_rows, n_columns), or those of a new figure.

    ``width`` and ``height`` are those of one panel in inches; ``options`` are passed to ``subplots``.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        size = (width * n_columns, height * n_rows)
        figure = plt.figure(figsize=size, layout="constrained")
        return figure.subplots(n_rows, n_columns, squeeze=False, **options)
    given = np.asarray(axes, dtype=object).ravel()
    if given.size != n_rows * n_columns:
        raise ValueError(
            f"axes must hold {n_rows * n_columns} Axes for {n_rows} rows of {n_columns}, got {given.size}"
        )
    return given.reshape(n_rows, n_columns)


def bare(ax: Axes, title: str = "") -> Axes:
    """Remove ticks and frame, which pictures do not need; set the title."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    if title:
        ax.set_title(title)
    return ax
