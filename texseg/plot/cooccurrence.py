"""Figures for models of any co-occurrence data (the memo is A.I. Memo 1625, MIT, 1998)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from texseg.plot.axes import across, named, one_axes, panels
from texseg.regions import palette

__all__ = ["association", "tree_shares", "tree_words", "words"]

_LEAST = 2.0**-6  # smaller associations have the same colour
_LARGEST_DISC = 300  # points squared
_MOST_NUMBERS = 150  # cells; in larger tables the numbers are not written out


def association(
    association: ArrayLike,
    *,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Association of row clusters with column clusters, on a logarithmic scale.

    Parameters
    ----------
    association : float array of shape (K, L)
        ``c_kl = pi_kl / (pi_k. pi_.l)``, how many times more often the clusters meet than by chance (Eq.
        42 of the memo): ``association_`` of a fitted SCM. Red: more often than by chance; blue: less often.
    row_names, column_names : sequences of strings, optional
    """
    c = np.asarray(association, dtype=float)
    if c.ndim != 2 or (c < 0).any():
        raise ValueError(f"association must be a non-negative table (K, L), got shape {c.shape}")
    K, L = c.shape
    ax = one_axes(ax, min(10.0, 2 + 0.5 * L), min(10.0, 1.2 + 0.4 * K))
    strength = np.log2(np.maximum(c, _LEAST))
    top = max(1.0, float(np.abs(strength).max()))
    shown = ax.imshow(strength, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto")
    ax.figure.colorbar(shown, ax=ax, label="log2 association")
    if c.size <= _MOST_NUMBERS:
        for (k, j), value in np.ndenumerate(c):
            colour = "white" if abs(strength[k, j]) > 0.6 * top else "black"
            ax.text(j, k, f"{value:.2g}", ha="center", va="center", fontsize=7, color=colour)
    ax.set(xlabel="column cluster", ylabel="row cluster")
    ax.set_xticks(range(L), [named(column_names, j) for j in range(L)], rotation=90 if column_names else 0)
    ax.set_yticks(range(K), [named(row_names, k) for k in range(K)])
    return ax


def words(
    profiles: ArrayLike,
    vocabulary: Sequence[str],
    *,
    n_words: int = 8,
    titles: Sequence[str] = (),
    n_columns: int = 4,
    axes: Any = None,
) -> NDArray[Any]:
    """Most probable words of every aspect, or cluster; bar lengths are the probabilities, on one scale.

    ``profiles`` (K, M) are ``components_``, ``p(j | k)``; ``vocabulary`` holds M strings, ``titles`` K.
    """
    table = np.asarray(profiles, dtype=float)
    top = _top_words(table, vocabulary, n_words)
    columns = min(n_columns, len(table))
    axes = panels(axes, len(table), columns, 2.3, 0.5 + 0.19 * n_words, sharex=True)
    for k, ax in enumerate(axes.flat[: len(table)]):
        ax.barh(range(len(top[k])), table[k, top[k]], color=palette(k + 1)[k + 1] / 255, alpha=0.8)
        ax.set_yticks(range(len(top[k])), [vocabulary[j] for j in top[k]], fontsize=8)
        ax.set_title(named(titles, k), fontsize=9)
        ax.tick_params(labelsize=7, axis="x")
        ax.set_ylim(len(top[k]) - 0.5, -0.5)
    return axes


def tree_words(
    tree: Any, nodes: ArrayLike, vocabulary: Sequence[str], *, n_words: int = 4, ax: Axes | None = None
) -> Axes:
    """Tree (``tree_`` of a HACM) with the most probable words of every node, the root at the top.

    ``nodes`` (V, M) holds the distribution of every node over the ``vocabulary`` of M strings.
    """
    table = np.asarray(nodes, dtype=float)
    if len(table) != len(tree.parents):
        raise ValueError(f"nodes must hold one row for each of {len(tree.parents)} nodes, got {len(table)}")
    top = _top_words(table, vocabulary, n_words)
    places = across(tree.parents)
    n_levels = int(tree.levels.max()) + 1
    ax = one_axes(ax, max(4.0, 1.15 * len(tree.leaves)), max(2.0, (0.45 + 0.16 * n_words) * n_levels))
    _draw_branches(ax, tree, places)
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    style["bbox"] = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6"}
    for node, words in enumerate(top):
        ax.text(places[node], -tree.levels[node], "\n".join(vocabulary[j] for j in words), **style)
    ax.set(xlim=(-0.7, len(tree.leaves) - 0.3), ylim=(-n_levels + 0.4, 0.6))
    ax.axis("off")
    return ax


def tree_shares(tree: Any, shares: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Tree of a hierarchical model with a share at each node: where a word is used (Fig. 10 of the memo).

    The areas of the discs are proportional to the ``shares`` (V,), such as `Retrieval.responsibility`.
    """
    values = np.asarray(shares, dtype=float)
    if values.shape != (len(tree.parents),) or not (values >= 0).all():
        raise ValueError(
            f"shares must hold a non-negative number for each of {len(tree.parents)} nodes, "
            f"got shape {values.shape}"
        )
    places = across(tree.parents)
    ax = one_axes(ax, 3.0, 2.0)
    _draw_branches(ax, tree, places)
    ax.scatter(places, -tree.levels, s=_LARGEST_DISC * values, color="tab:red", zorder=2)
    ax.scatter(places, -tree.levels, s=3, color="0.5", zorder=3)
    ax.margins(0.1)
    ax.axis("off")
    return ax


def _draw_branches(ax: Axes, tree: Any, places: NDArray[np.floating]) -> None:
    for ends in zip(tree.parents[1:], range(1, len(tree.parents)), strict=True):
        ax.plot(places[list(ends)], -tree.levels[list(ends)], color="0.75", linewidth=1, zorder=1)


def _top_words(table: NDArray[np.floating], vocabulary: Sequence[str], n_words: int) -> NDArray[np.intp]:
    """Columns of the ``n_words`` greatest values of every row, greatest first."""
    if table.ndim != 2 or table.shape[1] != len(vocabulary):
        raise ValueError(
            f"profiles must have one column for each of {len(vocabulary)} words, got shape {table.shape}"
        )
    if n_words < 1:
        raise ValueError(f"n_words must be at least 1, got {n_words!r}")
    return np.argsort(-table, axis=1, kind="stable")[:, :n_words]
