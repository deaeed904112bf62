"""Figures of how a segmentation was found: the annealing run, the hierarchy, the choice of the number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from texseg.io.display import to_rgb
from texseg.plot.axes import across, one_axes, panels
from texseg.regions import palette

__all__ = ["annealing", "hierarchy", "selection"]

_THUMBNAIL_SIDE = 96  # pixels of the array; shown at half that size
_FADED = 0.12  # opacity of the image outside of a thumbnail's segment


def annealing(history: Sequence[Any], *, axes: Any = None) -> NDArray[Any]:
    """Free energy and number of distinct clusters against the temperature, with the phase transitions.

    Top: ``T F`` in nats (the free energy of physics, which falls while the system cools); bottom: the number
    of clusters; both at the end of each temperature, which falls to the right. Vertical lines mark where the
    number rises.

    Parameters
    ----------
    history : sequence of records
        With ``beta``, ``free_energy``, ``n_distinct`` and ``level``, as ``model.history_`` of the plain path
        or the states of :func:`texseg.fitting.anneal.anneal`.
    """
    ends = {(record.level, record.beta): record for record in history}
    cooling = [record for (level, _), record in ends.items() if level == 0]
    if len({record.beta for record in cooling}) < 2:
        raise ValueError(
            "annealing needs a history with several temperatures, as preset='plain' leaves behind; "
            f"got {len(cooling)} at the first level"
        )
    axes = panels(axes, 2, 1, 5.6, 2.2, sharex=True)
    energy, number = axes[:, 0]
    temperatures = np.array([1 / record.beta for record in cooling])
    counts = np.array([record.n_distinct for record in cooling])
    energy.plot(temperatures, [record.free_energy / record.beta for record in cooling], "o-", markersize=3)
    energy.set_ylabel("T F (nats)")
    number.step(temperatures, counts, where="post", marker="o", markersize=3)
    number.set(ylabel="distinct clusters", xlabel="temperature T", xscale="log")
    number.yaxis.set_major_locator(MaxNLocator(integer=True))
    number.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    number.xaxis.set_major_formatter("{x:g}")
    number.xaxis.set_minor_locator(NullLocator())
    number.set_xlim(temperatures.max() * 1.1, temperatures.min() / 1.1)
    for index in np.flatnonzero(np.diff(counts) > 0):
        for ax in (energy, number):
            ax.axvline(temperatures[index + 1], color="0.6", linestyle=":", linewidth=1)
        place = (temperatures[index + 1], counts[index + 1])
        style: dict[str, Any] = {"xytext": (3, -3), "textcoords": "offset points", "fontsize": 7, "va": "top"}
        number.annotate(f"{place[0]:.2g}", place, **style)
    return axes


def selection(selection: Any, *, ax: Axes | None = None) -> Axes:
    """Probability of every number of segments, and the one chosen, of ``model.selection_``."""
    numbers = np.asarray(selection.n_segments)
    probabilities = np.asarray(selection.probabilities, dtype=float)
    if numbers.shape != probabilities.shape or selection.chosen not in numbers:
        raise ValueError(
            "a selection needs one probability for each number of segments, the chosen one among them; got "
            f"{numbers.tolist()} with {probabilities.size} probabilities, chosen {selection.chosen!r}"
        )
    ax = one_axes(ax, 5.6, 3.0)
    own = numbers == selection.chosen
    ax.bar(numbers[~own], probabilities[~own], color="0.7")
    bars = ax.bar(numbers[own], probabilities[own], color=palette(1)[1] / 255)
    ax.bar_label(bars, [f"chosen: {selection.chosen}"], padding=2)
    ax.set(xlabel="number of segments", ylabel="probability")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(y=0.2)
    return ax


class _Node(NamedTuple):
    """A segment of the tree; its children begin where it splits."""

    n_segments: int
    """Of the label image in which it first appears."""
    region: NDArray[np.bool_]
    parent: int
    """Index of the node; -1 for the root."""


def hierarchy(
    hierarchy: Any,
    image: ArrayLike | None = None,
    *,
    n_segments: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Tree of the segments from one to many, with a thumbnail of each at the number at which it appears.

    A segment of a finer level belongs to the segment of the coarser one with which it shares most pixels.

    Parameters
    ----------
    hierarchy : object with ``n_segments`` (ascending) and ``labels(k)``
        ``model.hierarchy_``; ``labels(k)`` is an int array (H, W) with 0 where there is no data.
    image : real array of shape (H, W) or (H, W, C), optional
        Seen in the thumbnails; without it they show the segment in the colour of its leaf.
    n_segments : int, optional
        Stop at this number; by default at the largest.
    """
    numbers = [k for k in hierarchy.n_segments if n_segments is None or k <= n_segments]
    if not numbers:
        raise ValueError(f"hierarchy holds {list(hierarchy.n_segments)} segments, none up to {n_segments!r}")
    nodes = _split_tree([(k, np.asarray(hierarchy.labels(k))) for k in numbers])
    places = across([node.parent for node in nodes])
    n_leaves = int(places.max()) + 1
    ax = one_axes(ax, max(4.0, 0.8 * n_leaves), max(3.0, 0.92 * len(numbers) + 0.3))
    picture = None if image is None else to_rgb(image)
    for index, node in enumerate(nodes):
        if node.parent >= 0:
            sideways, y = [places[node.parent]] * 2 + [places[index]] * 2, node.n_segments - 0.5
            down = [nodes[node.parent].n_segments, y, y, node.n_segments]
            ax.plot(sideways, down, color="0.5", linewidth=1, zorder=1)
        box = OffsetImage(_thumbnail(picture, node.region, index), zoom=0.5)
        ax.add_artist(AnnotationBbox(box, (places[index], node.n_segments), pad=0.05, frameon=True))
    ax.set(xlim=(-0.6, n_leaves - 0.4), ylim=(numbers[-1] + 0.6, numbers[0] - 0.6))
    ax.set_ylabel("number of segments")
    ax.set_yticks(numbers)
    ax.set_xticks([])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    return ax


def _split_tree(levels: Sequence[tuple[int, NDArray[np.integer]]]) -> list[_Node]:
    """Nodes of the tree; a segment that stays whole from one level to the next keeps its node."""
    first = levels[0][1]
    nodes = [_Node(levels[0][0], first == label, -1) for label in np.unique(first[first > 0])]
    node_of = {int(label): i for i, label in enumerate(np.unique(first[first > 0]))}
    for (_, coarse), (k, fine) in zip(levels[:-1], levels[1:], strict=True):
        shared = np.zeros((int(fine.max()) + 1, int(coarse.max()) + 1), np.int64)
        np.add.at(shared, (fine.ravel(), coarse.ravel()), 1)
        shared[:, 0] = 0
        parents = {int(label): int(shared[label].argmax()) for label in np.unique(fine[fine > 0])}
        siblings = list(parents.values())
        before, node_of = node_of, {}
        for label, parent in parents.items():
            if siblings.count(parent) == 1:
                node_of[label] = before[parent]
            else:
                node_of[label] = len(nodes)
                nodes.append(_Node(k, fine == label, before[parent]))
    return nodes


def _thumbnail(picture: NDArray[np.uint8] | None, region: NDArray[np.bool_], index: int) -> NDArray[np.uint8]:
    """Small picture of a segment, the rest of the image faded to white."""
    if picture is None:
        picture = np.broadcast_to(palette(index + 1)[index + 1], (*region.shape, 3))
    faded = 255 - (255 - picture.astype(np.float32)) * np.where(region, 1, _FADED)[..., None]
    scale = min(1.0, _THUMBNAIL_SIDE / max(region.shape))
    small = cv2.resize(faded, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.rint(small).astype(np.uint8)
