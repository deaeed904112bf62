"""Pictures of segmentations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike, NDArray

from texseg.io.display import to_rgb
from texseg.metrics import Reliability, match_labels, pixel_accuracy
from texseg.overlay import number_places
from texseg.plot.axes import bare, one_axes, panels
from texseg.regions import palette, segment_table

__all__ = ["comparison", "confidence", "labels", "overlay", "reliability"]

_ROOM = 0.015  # of the longer side: least distance of a number from the border of its segment


def overlay(
    image: ArrayLike,
    labels: ArrayLike,
    *,
    opacity: float = 0.4,
    boundaries: bool = True,
    numbers: bool = True,
    legend: bool = True,
    names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Image tinted by label, with the borders between the segments and their numbers.

    Parameters
    ----------
    image : real array of shape (H, W) or (H, W, C)
    labels : int array of shape (H, W)
        Pixels of label 0 are shown as they are.
    opacity : float, default=0.4
        Opacity of the tint, 0 to 1.
    boundaries : bool, default=True
        Draw lines along the edges of the pixels where the label changes.
    numbers : bool, default=True
        Write the number of each segment into its widest part, where there is room.
    legend : bool, default=True
        Next to the image: label, name, and share of the labelled area.
    names : sequence of strings, optional
        Name of label 1, label 2 and so on.
    """
    label_image, picture = _checked(labels), to_rgb(image)
    if picture.shape[:2] != label_image.shape:
        raise ValueError(f"labels of shape {label_image.shape} do not match the image of {picture.shape[:2]}")
    if not 0 <= opacity <= 1:
        raise ValueError(f"opacity must lie between 0 and 1, got {opacity!r}")
    ax = _draw([picture, _tint(label_image, opacity)], _patches(label_image, names) if legend else None, ax)
    if boundaries:
        _draw_boundaries(ax, label_image)
    if numbers:
        _draw_numbers(ax, label_image)
    return ax


def labels(
    labels: ArrayLike, *, legend: bool = False, names: Sequence[str] = (), ax: Axes | None = None
) -> Axes:
    """Label image (H, W) in the colours of the palette, 0 empty; ``legend`` and ``names`` as in `overlay`."""
    label_image = _checked(labels)
    return _draw([_tint(label_image, 1.0)], _patches(label_image, names) if legend else None, ax)


def confidence(
    confidence: ArrayLike, labels: ArrayLike | None = None, *, colorbar: bool = True, ax: Axes | None = None
) -> Axes:
    """Posterior of each pixel's label, on a fixed scale from 0 to 1.

    Parameters
    ----------
    confidence : float array of shape (H, W)
        Pixels of confidence 0 hold no data and stay empty.
    labels : int array of shape (H, W), optional
        Draw the borders between its segments.
    colorbar : bool, default=True
    """
    values = np.asarray(confidence)
    if values.ndim != 2:
        raise ValueError(f"a confidence map must have shape (H, W), got {values.shape}")
    ax = one_axes(ax, 5.6, 4.4)
    shown = ax.imshow(np.ma.masked_equal(values, 0), vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    if labels is not None:
        _draw_boundaries(ax, _checked(labels))
    if colorbar:
        ax.figure.colorbar(shown, ax=ax, label="confidence")
    return bare(ax)


def reliability(reliability: Reliability, *, ax: Axes | None = None) -> Axes:
    """Fraction of pixels that are right, against their confidence: on the diagonal if that is calibrated.

    One point per bin of confidence, larger if it stands for more pixels.
    """
    ax = one_axes(ax, 4.0, 3.8)
    used = reliability.n > 0
    areas = 20 + 280 * reliability.n[used] / reliability.n.max()
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=1)
    ax.scatter(reliability.confidence[used], reliability.accuracy[used], areas, alpha=0.8, zorder=2)
    ax.set(xlabel="confidence", ylabel="part that is right", xlim=(0, 1.03), ylim=(0, 1.03), aspect="equal")
    ax.set_title(f"calibration error {reliability.calibration_error:.3f}")
    return ax


def comparison(
    image: ArrayLike,
    labellings: Mapping[str, ArrayLike],
    *,
    truth: ArrayLike | None = None,
    n_columns: int = 4,
    axes: Any = None,
) -> NDArray[Any]:
    """Several segmentations of one image side by side, in matching colours.

    Parameters
    ----------
    image : real array of shape (H, W) or (H, W, C)
    labellings : mapping from a name to an int array of shape (H, W)
    truth : int array of shape (H, W), optional
        Shown next to the image; the titles then give the share of pixels that are right. Without it colours
        follow the first labelling.
    n_columns : int, default=4
    """
    if not labellings:
        raise ValueError("comparison needs at least one labelling, got an empty mapping")
    shown: list[tuple[str, Any]] = [("image", to_rgb(image))]
    reference = next(iter(labellings.values())) if truth is None else truth
    if truth is not None:
        shown.append(("truth", _tint(_checked(truth), 1.0)))
    for name, labelling in labellings.items():
        matched = match_labels(labelling, reference, ignore_label=0)
        title = name
        if truth is not None:
            title += f"\n{100 * pixel_accuracy(labelling, truth, ignore_label=0):.1f} % right"
        shown.append((title, _tint(matched, 1.0)))
    axes = panels(axes, len(shown), min(n_columns, len(shown)), 2.5, 2.8)
    for ax, (title, picture) in zip(axes.flat, shown, strict=False):
        bare(ax, title).imshow(picture, interpolation="nearest")
    return axes


def _checked(labels: ArrayLike) -> NDArray[np.integer]:
    label_image = np.asarray(labels)
    if label_image.ndim != 2 or label_image.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be integers of shape (H, W), got {label_image.dtype} of shape {label_image.shape}"
        )
    if label_image.min(initial=0) < 0:
        raise ValueError(f"labels must be 0 or more, got {label_image.min()}")
    return label_image


def _tint(labels: NDArray[np.integer], opacity: float) -> NDArray[np.uint8]:
    """Colours with an alpha channel, (H, W, 4); label 0 is transparent."""
    colours = palette(int(labels.max(initial=0)))
    alpha = np.full(len(colours), round(255 * opacity), np.uint8)
    alpha[0] = 0
    return np.column_stack([colours, alpha])[labels]


def _draw(pictures: Sequence[NDArray[np.uint8]], patches: list[Patch] | None, ax: Axes | None) -> Axes:
    """Draw pictures over each other, and a legend of patches next to them."""
    ax = one_axes(ax, 5.0 if patches is None else 6.2, 4.4)
    for picture in pictures:
        ax.imshow(picture, interpolation="nearest")
    if patches is not None:
        ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0, frameon=False)
    return bare(ax)


def _draw_boundaries(ax: Axes, labels: NDArray[np.integer]) -> None:
    """Lines along the pixel edges between labels, white on dark so as to be visible on any background."""
    y, x = np.nonzero(labels[:, 1:] != labels[:, :-1])
    upright = np.stack([x + 0.5, y - 0.5, x + 0.5, y + 0.5], axis=1)
    y, x = np.nonzero(labels[1:] != labels[:-1])
    lines: Any = np.concatenate([upright, np.stack([x - 0.5, y + 0.5, x + 0.5, y + 0.5], axis=1)])
    lines = lines.reshape(-1, 2, 2)
    for width, colour in ((2.2, "black"), (1.0, "white")):
        ax.add_collection(LineCollection(lines, linewidths=width, colors=colour, capstyle="projecting"))


def _draw_numbers(ax: Axes, labels: NDArray[np.integer]) -> None:
    style: dict[str, Any] = {"color": "white", "ha": "center", "va": "center", "weight": "bold"}
    style["path_effects"] = [withStroke(linewidth=2.5, foreground="black")]
    for label, row, column, depth in number_places(labels):
        if depth >= _ROOM * max(labels.shape):
            ax.text(column, row, str(label), **style)


def _patches(labels: NDArray[np.integer], names: Sequence[str]) -> list[Patch]:
    """Return a patch of colour for each label, with its name and share."""
    rows = segment_table(labels, names=names)
    return [
        Patch(
            facecolor=row.colour,
            edgecolor="0.3",
            linewidth=0.5,
            label=f"{row.label} {row.name}".rstrip() + f" ({100 * row.fraction:.1f} %)",
        )
        for row in rows
    ]
