"""Figures: each function draws on ``ax=`` or ``axes=``, or on a new figure, and returns the Axes.

Functions with several panels take and return an array of Axes, (rows, columns); unused panels are hidden.
No other matplotlib state is touched: no style is set, nothing is drawn on "current" axes, nothing is shown
or saved. Images have their bands last; label 0, no data, stays without colour; label ``k`` has the same
colour everywhere, the one it has in written files. Of a volume (D, H, W) pictures show the orthogonal cuts.

Examples
--------
>>> import numpy as np
>>> from matplotlib.figure import Figure
>>> from texseg import plot
>>> ax = plot.overlay(np.zeros((2, 3)), np.array([[1, 1, 2], [1, 2, 2]]), ax=Figure().subplots())
>>> [text.get_text() for text in ax.get_legend().get_texts()]
['1 (50.0 %)', '2 (50.0 %)']
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import matplotlib.pyplot as plt
import numpy as np
import scipy.fft
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from texseg.channels.gabor import GaborBank
from texseg.io.display import number_places, orthogonal_cuts, to_rgb
from texseg.io.regions import PIXELS, PixelSize, palette, segment_table
from texseg.metrics import Reliability, match_labels, pixel_accuracy

_ROOM = 0.015  # of the longer side: least distance of a number from the border of its segment
_THUMBNAIL_SIDE = 96  # pixels of the array; shown at half that size
_FADED = 0.12  # opacity of the image outside of a thumbnail's segment
_GRID = 128  # samples of the frequency plane on each axis, and of the spatial kernels
_TOP = 99.5  # percentile shown as white
_LEAST = 2.0**-6  # smaller associations have the same colour
_LARGEST_DISC = 300  # points squared
_MOST_NUMBERS = 150  # cells; in larger tables the numbers are not written out


# ---- segmentations -----------------------------------------------------------------------------------------


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
    """Image (H, W) or (H, W, C) tinted by its labels (H, W), with the borders and numbers of the segments.

    ``opacity``, 0 to 1, is that of the tint; label 0 is not tinted. The legend gives label, name (``names``
    are those of label 1, label 2 and so on), and share of the labelled area.
    """
    label_image, picture = _checked(labels), to_rgb(image, None, np.ndim(labels))
    if picture.shape[:2] != label_image.shape:
        raise ValueError(f"labels of shape {label_image.shape} do not match the image of {picture.shape[:2]}")
    if not 0 <= opacity <= 1:
        raise ValueError(f"opacity must lie between 0 and 1, got {opacity!r}")
    ax = _draw([picture, _tint(label_image, opacity)], labels if legend else None, names, ax)
    if boundaries:
        _draw_boundaries(ax, label_image)
    if numbers:
        outline = withStroke(linewidth=2.5, foreground="black")
        style: dict[str, Any] = {"color": "white", "ha": "center", "va": "center", "weight": "bold"}
        for label, row, column, depth in number_places(label_image):
            if depth >= _ROOM * max(label_image.shape):
                ax.text(column, row, str(label), path_effects=[outline], **style)
    return ax


def cuts(volume: ArrayLike, labels: ArrayLike, *, names: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Three orthogonal cuts through the middle of a volume, tinted by label.

    ``volume`` (D, H, W) may have bands as a last axis; ``labels`` and ``names`` are as in `overlay`, which
    draws numbers, too; shares in the legend are those of the whole.
    """
    return overlay(volume, labels, numbers=False, names=names, ax=ax)


def fractions(
    labels: ArrayLike, *, names: Sequence[str] = (), voxel_size: PixelSize = PIXELS, ax: Axes | None = None
) -> Axes:
    """Draw the share of every label (planes, rows, columns), plane by plane; label 0 does not count."""
    volume, ax = np.asarray(labels), _one_axes(ax)
    n = int(volume.max()) + 1
    counts = np.stack([np.bincount(plane.ravel(), minlength=n) for plane in volume])[:, 1:]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    depths = np.arange(len(volume)) * (voxel_size.depth or 1.0)
    for k, share in enumerate(shares.T):
        ax.plot(depths, share, color=_colour(k), label=_named(names, k, "segment"))
    unit = "plane" if voxel_size.depth is None else f"depth ({voxel_size.unit})"
    ax.set(xlabel=unit, ylabel="share of the plane", ylim=(0, 1))
    ax.legend()
    return ax


def labels(
    labels: ArrayLike, *, legend: bool = False, names: Sequence[str] = (), ax: Axes | None = None
) -> Axes:
    """Label image (H, W) in the colours of the palette, 0 empty; ``legend`` and ``names`` as in `overlay`."""
    label_image = _checked(labels)
    return _draw([_tint(label_image, 1.0)], labels if legend else None, names, ax)


def confidence(
    confidence: ArrayLike, labels: ArrayLike | None = None, *, colorbar: bool = True, ax: Axes | None = None
) -> Axes:
    """Posterior (H, W) of each pixel's label, on a fixed scale from 0 to 1; 0, no data, stays empty.

    With ``labels`` (H, W) the borders between the segments are drawn.
    """
    values = _seen(np.asarray(confidence))
    if values.ndim != 2:
        raise ValueError(f"a confidence map must have shape (H, W), got {values.shape}")
    ax = _one_axes(ax, 5.6, 4.4)
    shown = ax.imshow(np.ma.masked_equal(values, 0), vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    if labels is not None:
        _draw_boundaries(ax, _checked(labels))
    if colorbar:
        ax.figure.colorbar(shown, ax=ax, label="confidence")
    return _bare(ax)


def reliability(reliability: Reliability, *, ax: Axes | None = None) -> Axes:
    """Fraction of pixels that are right, against their confidence: on the diagonal if that is calibrated.

    One point per bin of confidence, larger if it stands for more pixels.
    """
    ax = _one_axes(ax, 4.0, 3.8)
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
    """Several segmentations of one image side by side, in the colours of the truth, or of the first.

    ``labellings`` maps names to label images (H, W). With a ``truth`` (H, W), titles give the share of pixels
    that are right.
    """
    if not labellings:
        raise ValueError("comparison needs at least one labelling, got an empty mapping")
    reference = next(iter(labellings.values())) if truth is None else truth
    shown: list[tuple[str, Any]] = [("image", to_rgb(image, None, np.ndim(reference)))]
    if truth is not None:
        shown.append(("truth", _tint(_checked(truth), 1.0)))
    for name, labelling in labellings.items():
        matched = match_labels(labelling, reference, ignore_label=0)
        title = name
        if truth is not None:
            title += f"\n{100 * pixel_accuracy(labelling, truth, ignore_label=0):.1f} % right"
        shown.append((title, _tint(_seen(matched), 1.0)))
    axes = _panels(axes, len(shown), min(n_columns, len(shown)), 2.5, 2.8)
    for ax, (title, picture) in zip(axes.flat, shown, strict=False):
        _bare(ax, title).imshow(picture, interpolation="nearest")
    return axes


def _seen(values: NDArray[Any]) -> NDArray[Any]:
    """Values of an image, or on the cuts through a volume."""
    return orthogonal_cuts(values) if values.ndim == 3 else values


def _checked(labels: ArrayLike) -> NDArray[np.integer]:
    label_image = _seen(np.asarray(labels))
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


def _draw(pictures: Any, labels: ArrayLike | None, names: Sequence[str], ax: Axes | None) -> Axes:
    """Draw pictures over each other, and beside them the names and shares of the labels, if given."""
    flat = None if labels is None else np.reshape(labels, (-1, np.shape(labels)[-1]))
    rows = [] if flat is None else segment_table(flat, names=names)
    ax = _one_axes(ax, 6.2 if rows else 5.0, 4.4)
    for picture in pictures:
        ax.imshow(picture, interpolation="nearest")
    if rows:
        texts = [f"{row.label} {row.name}".rstrip() + f" ({100 * row.fraction:.1f} %)" for row in rows]
        patches = [Patch(facecolor=row.colour, edgecolor="0.3", linewidth=0.5) for row in rows]
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0}
        ax.legend(patches, texts, frameon=False, **place)
    return _bare(ax)


def _draw_boundaries(ax: Axes, labels: NDArray[np.integer]) -> None:
    """Lines along the pixel edges between labels, white on dark so as to be visible on any background."""
    beside, below = np.nonzero(labels[:, 1:] != labels[:, :-1]), np.nonzero(labels[1:] != labels[:-1])
    steps = (beside, [[0.5, -0.5], [0.5, 0.5]]), (below, [[-0.5, 0.5], [0.5, 0.5]])
    lines: Any = np.concatenate([np.stack([x, y], axis=1)[:, None] + ends for (y, x), ends in steps])
    for width, colour in ((2.2, "black"), (1.0, "white")):
        ax.add_collection(LineCollection(lines, linewidths=width, colors=colour, capstyle="projecting"))


# ---- how a segmentation was found --------------------------------------------------------------------------


def annealing(history: Sequence[Any], *, axes: Any = None) -> NDArray[Any]:
    """Free energy ``T F`` in nats and number of distinct clusters against the temperature, as it falls.

    Vertical lines mark where the number rises. ``history`` is ``model.history_`` of the plain path, or the
    states of :func:`texseg.fitting.anneal.anneal`.
    """
    ends = {record.beta: record for record in history if not getattr(record, "level", 0)}
    cooling = list(ends.values())
    if len(cooling) < 2:
        raise ValueError(
            "annealing needs a history with several temperatures, as preset='plain' leaves behind; "
            f"got {len(cooling)} at the first level"
        )
    axes = _panels(axes, 2, 1, 5.6, 2.2, sharex=True)
    energy, number = axes.flat
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
    style: dict[str, Any] = {"xytext": (3, -3), "textcoords": "offset points", "fontsize": 7, "va": "top"}
    for index in np.flatnonzero(np.diff(counts) > 0) + 1:
        for ax in (energy, number):
            ax.axvline(temperatures[index], color="0.6", linestyle=":", linewidth=1)
        number.annotate(f"{temperatures[index]:.2g}", (temperatures[index], counts[index]), **style)
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
    ax = _one_axes(ax, 5.6, 3.0)
    own = numbers == selection.chosen
    ax.bar(numbers[~own], probabilities[~own], color="0.7")
    bars = ax.bar(numbers[own], probabilities[own], color=_colour(0))
    ax.bar_label(bars, [f"chosen: {selection.chosen}"], padding=2)
    ax.set(xlabel="number of segments", ylabel="probability")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(y=0.2)
    return ax


def hierarchy(
    hierarchy: Any, image: ArrayLike | None = None, *, n_segments: int | None = None, ax: Axes | None = None
) -> Axes:
    """Tree of the segments from one to many, with a thumbnail of each at the number at which it appears.

    ``hierarchy`` is ``model.hierarchy_``, or has ``n_segments`` (ascending) and ``labels(k)``, (H, W).
    Thumbnails show the ``image``, if given. The tree stops at ``n_segments``, by default the largest number.
    """
    numbers = [k for k in hierarchy.n_segments if n_segments is None or k <= n_segments]
    if not numbers:
        raise ValueError(f"hierarchy holds {list(hierarchy.n_segments)} segments, none up to {n_segments!r}")
    firsts, regions, parents = _split_tree([(k, np.asarray(hierarchy.labels(k))) for k in numbers])
    places = _across(parents)
    n_leaves = int(places.max()) + 1
    ax = _one_axes(ax, max(4.0, 0.8 * n_leaves), max(3.0, 0.92 * len(numbers) + 0.3))
    picture = None if image is None else to_rgb(image, None, regions[0].ndim)
    for index, (k, region, parent) in enumerate(zip(firsts, regions, parents, strict=True)):
        if parent >= 0:
            sideways = [places[parent]] * 2 + [places[index]] * 2
            ax.plot(sideways, [firsts[parent], k - 0.5, k - 0.5, k], color="0.5", linewidth=1, zorder=1)
        box = OffsetImage(_thumbnail(picture, _seen(region), index), zoom=0.5)
        ax.add_artist(AnnotationBbox(box, (places[index], k), pad=0.05, frameon=True))
    ax.set(xlim=(-0.6, n_leaves - 0.4), ylim=(numbers[-1] + 0.6, numbers[0] - 0.6))
    ax.set_ylabel("number of segments")
    ax.set_yticks(numbers)
    ax.set_xticks([])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    return ax


def _split_tree(
    levels: Sequence[tuple[int, NDArray[np.integer]]],
) -> tuple[list[int], list[NDArray[np.bool_]], list[int]]:
    """For each node the number of segments at which it appears, its region, and its parent (-1 at the root).

    A segment that stays whole from one level to the next keeps its node.
    """
    nodes, node_of, coarse = list[tuple[int, Any, int]](), dict[int, int](), np.zeros_like(levels[0][1])
    for k, fine in levels:
        inside = {label: fine == label for label in np.unique(fine[fine > 0]).tolist()}
        parents = [int(np.bincount(coarse[own], minlength=2)[1:].argmax()) + 1 for own in inside.values()]
        before, node_of, coarse = node_of, {}, fine
        for (label, region), parent in zip(inside.items(), parents, strict=True):
            node_of[label] = before.get(parent, -1)
            if parents.count(parent) > 1 or parent not in before:
                nodes.append((k, region, node_of[label]))
                node_of[label] = len(nodes) - 1
    firsts, regions, above = map(list, zip(*nodes, strict=True))
    return firsts, regions, above


def _thumbnail(picture: NDArray[np.uint8] | None, region: NDArray[np.bool_], index: int) -> NDArray[np.uint8]:
    """Small picture of a segment, the rest of the image faded to white."""
    if picture is None:
        picture = np.broadcast_to(255 * _colour(index), (*region.shape, 3))
    faded = 255 - (255 - picture.astype(np.float32)) * np.where(region, 1, _FADED)[..., None]
    scale = min(1.0, _THUMBNAIL_SIDE / max(region.shape))
    small = cv2.resize(faded, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.rint(small).astype(np.uint8)


# ---- channels: filters, responses, histograms --------------------------------------------------------------


def filter_bank(bank: GaborBank, *, axes: Any = None) -> NDArray[Any]:
    """Show the filters in space: real parts of the kernels, a row for each wavelength, at the same scale."""
    axes = _panels(axes, len(bank.filters), bank.n_orientations, 1.5, 1.6)
    reach = min(_GRID // 2 - 1, int(np.ceil(1.5 * max(bank.wavelengths))))
    centre = slice(_GRID // 2 - reach, _GRID // 2 + reach + 1)
    for ax, filter in zip(axes.flat, bank.filters, strict=True):
        kernel = scipy.fft.fftshift(scipy.fft.ifft2(bank.transfer(filter, (_GRID, _GRID))).real)
        kernel = kernel[centre, centre]
        top, box = np.abs(kernel).max(), (-reach, reach, reach, -reach)
        name = f"{filter.wavelength:.3g} px, {filter.orientation:g}°"
        _bare(ax, name, 9).imshow(kernel, cmap="gray", vmin=-top, vmax=top, extent=box)
    return axes


def filter_frequencies(bank: GaborBank, *, ax: Axes | None = None) -> Axes:
    """Show the contour at half of each filter's peak in the frequency plane, in cycles per pixel."""
    ax = _one_axes(ax, 4.6, 4.4)
    frequencies = scipy.fft.fftshift(scipy.fft.fftfreq(_GRID * 2))
    for filter in bank.filters:
        transfer = scipy.fft.fftshift(bank.transfer(filter, (_GRID * 2, _GRID * 2)))
        colour = _colour(bank.wavelengths.index(filter.wavelength))
        ax.contour(frequencies, frequencies, transfer, levels=[transfer.max() / 2], colors=[colour])
        if filter.orientation == 0:
            ax.plot([], [], color=colour, label=f"{filter.wavelength:.3g} px")
    ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.axvline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.set(aspect="equal", xlabel="cycles per pixel, x", ylabel="cycles per pixel, y")
    ax.set(xlim=(-0.5, 0.5), ylim=(0.5, -0.5), title="half peak of each filter")
    ax.legend(title="wavelength", fontsize=8)
    return ax


def responses(
    responses: ArrayLike, *, names: Sequence[str] = (), n_columns: int = 4, axes: Any = None
) -> NDArray[Any]:
    """Responses (C, H, W) of the filters, each from black (zero) to white (its 99.5th percentile).

    ``names`` are C strings.
    """
    planes = np.asarray(responses)
    if planes.ndim != 3:
        raise ValueError(f"responses must have shape (C, H, W), got {planes.shape}")
    axes = _panels(axes, len(planes), n_columns, 1.9, 2.1)
    for index, (ax, plane) in enumerate(zip(axes.flat, planes, strict=False)):
        title = _named(names, index, "channel")
        _bare(ax, title, 9).imshow(plane, cmap="gray", vmin=0, vmax=np.percentile(plane, _TOP))
    return axes


def channel_histograms(
    profiles: ArrayLike,
    segment: int,
    *,
    shares: ArrayLike | None = None,
    names: Sequence[str] = (),
    n_columns: int = 4,
    axes: Any = None,
) -> NDArray[Any]:
    """Histograms of one segment in every channel against the rest of the image, with the total variation.

    ``profiles`` (K, C, n_bins) are ``model.profiles_``, ``segment`` is a label from 1, ``shares`` (K,) are
    the areas of the segments (equal by default), and ``names`` are ``model.channel_names_``.
    """
    table = np.asarray(profiles, dtype=float)
    if table.ndim != 3:
        raise ValueError(f"profiles must have shape (K, C, n_bins), got {table.shape}")
    K, C, n_bins = table.shape
    if not 1 <= segment <= K:
        raise ValueError(f"segment must be a label from 1 to {K}, got {segment!r}")
    weights = np.ones(K) if shares is None else np.asarray(shares, dtype=float).copy()
    if weights.shape != (K,):
        raise ValueError(f"shares must hold one area for each of {K} segments, got shape {weights.shape}")
    weights[segment - 1] = 0
    own = table[segment - 1]
    rest = np.tensordot(weights / weights.sum(), table, axes=1) if weights.sum() > 0 else np.zeros_like(own)
    colour, edges = _colour(segment - 1), np.arange(n_bins + 1)
    axes = _panels(axes, C, n_columns, 2.1, 1.5, sharex=True)
    for index, ax in enumerate(axes.flat[:C]):
        ax.stairs(own[index], edges, fill=True, color=colour, alpha=0.75, label=f"segment {segment}")
        ax.stairs(rest[index], edges, color="0.25", linewidth=1, label="the rest")
        difference = np.abs(own[index] - rest[index]).sum() / 2
        ax.set_title(f"{_named(names, index, 'channel')}: {difference:.2f}", fontsize=8)
        ax.set_yticks([])
        ax.tick_params(labelsize=7)
    axes.flat[0].legend(fontsize=7, frameon=False)
    return axes


# ---- models of any co-occurrence data (the memo is A.I. Memo 1625, MIT, 1998) ------------------------------


def association(
    association: ArrayLike,
    *,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Association (K, L) of row and column clusters, ``association_`` of an SCM, on a logarithmic scale.

    Red clusters meet more often than by chance, blue ones less often (Eq. 42 of the memo).
    """
    c = np.asarray(association, dtype=float)
    if c.ndim != 2 or (c < 0).any():
        raise ValueError(f"association must be a non-negative table (K, L), got shape {c.shape}")
    K, L = c.shape
    ax = _one_axes(ax, min(10.0, 2 + 0.5 * L), min(10.0, 1.2 + 0.4 * K))
    strength = np.log2(np.maximum(c, _LEAST))
    top = max(1.0, float(np.abs(strength).max()))
    shown = ax.imshow(strength, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto")
    ax.figure.colorbar(shown, ax=ax, label="log2 association")
    if c.size <= _MOST_NUMBERS:
        for (k, j), value in np.ndenumerate(c):
            colour = "white" if abs(strength[k, j]) > 0.6 * top else "black"
            ax.text(j, k, f"{value:.2g}", ha="center", va="center", fontsize=7, color=colour)
    ax.set(xlabel="column cluster", ylabel="row cluster")
    ax.set_xticks(range(L), [_named(column_names, j) for j in range(L)], rotation=90 if column_names else 0)
    ax.set_yticks(range(K), [_named(row_names, k) for k in range(K)])
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
    axes = _panels(axes, len(table), columns, 2.3, 0.5 + 0.19 * n_words, sharex=True)
    for k, ax in enumerate(axes.flat[: len(table)]):
        ax.barh(range(len(top[k])), table[k, top[k]], color=_colour(k), alpha=0.8)
        ax.set_yticks(range(len(top[k])), [vocabulary[j] for j in top[k]], fontsize=8)
        ax.set_title(_named(titles, k), fontsize=9)
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
    n_levels = int(tree.levels.max()) + 1
    ax = _one_axes(ax, max(4.0, 1.15 * len(tree.leaves)), max(2.0, (0.45 + 0.16 * n_words) * n_levels))
    places = _draw_branches(ax, tree)
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6"}
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "bbox": box}
    for node, words in enumerate(top):
        ax.text(places[node], -tree.levels[node], "\n".join(vocabulary[j] for j in words), **style)
    ax.set(xlim=(-0.7, len(tree.leaves) - 0.3), ylim=(-n_levels + 0.4, 0.6))
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
    ax = _one_axes(ax, 3.0, 2.0)
    places = _draw_branches(ax, tree)
    ax.scatter(places, -tree.levels, s=_LARGEST_DISC * values, color="tab:red", zorder=2)
    ax.scatter(places, -tree.levels, s=3, color="0.5", zorder=3)
    ax.margins(0.1)
    return ax


def _draw_branches(ax: Axes, tree: Any) -> NDArray[np.floating]:
    """Draw the branches of a tree; return how far to the right each node stands."""
    places = _across(tree.parents)
    for ends in zip(tree.parents[1:], range(1, len(tree.parents)), strict=True):
        ax.plot(places[list(ends)], -tree.levels[list(ends)], color="0.75", linewidth=1, zorder=1)
    ax.axis("off")
    return places


def _top_words(table: NDArray[np.floating], vocabulary: Sequence[str], n_words: int) -> NDArray[np.intp]:
    """Columns of the ``n_words`` greatest values of every row, greatest first."""
    if table.ndim != 2 or table.shape[1] != len(vocabulary):
        raise ValueError(
            f"profiles must have one column for each of {len(vocabulary)} words, got shape {table.shape}"
        )
    if n_words < 1:
        raise ValueError(f"n_words must be at least 1, got {n_words!r}")
    return np.argsort(-table, axis=1, kind="stable")[:, :n_words]


# ---- where figures are drawn, and where the nodes of a tree stand ------------------------------------------


def _one_axes(ax: Axes | None, width: float = 5.0, height: float = 4.0) -> Axes:
    """Return the axes given, or those of a new figure of this size in inches."""
    return plt.subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


def _panels(axes: Any, n: int, n_columns: int, width: float, height: float, **options: Any) -> NDArray[Any]:
    """Return the axes given for ``n`` panels, or those of a new figure; sizes are of a panel, in inches."""
    n_rows = -(-n // n_columns)
    if axes is None:
        options |= {"figsize": (width * n_columns, height * n_rows), "layout": "constrained"}
        axes = plt.subplots(n_rows, n_columns, squeeze=False, **options)[1]
    given = np.asarray(axes, dtype=object).ravel()
    if given.size != n_rows * n_columns:
        raise ValueError(
            f"axes must hold {n_rows * n_columns} Axes for {n_rows} rows of {n_columns}, got {given.size}"
        )
    for ax in given[n:]:
        ax.set_visible(False)
    return given.reshape(n_rows, n_columns)


def _bare(ax: Axes, title: str = "", size: float | None = None) -> Axes:
    """Remove ticks and frame, which pictures do not need; set the title."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if title:
        ax.set_title(title, fontsize=size)
    return ax


def _colour(k: int) -> NDArray[np.floating]:
    """Colour of label k + 1, from 0 to 1."""
    return palette(k + 1)[k + 1] / 255


def _named(names: Sequence[str], index: int, kind: str = "") -> str:
    """Return the name given to a panel, or, where that is missing or empty, its kind and number."""
    return (names[index] if index < len(names) else "") or f"{kind} {index + 1}".strip()


def _across(parents: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float64]:
    """Horizontal position (V,) of each node of a tree: leaves at 0, 1, 2, ..., parents centred above."""
    places, leaves = np.zeros(len(parents)), itertools.count()

    def place(node: int) -> float:
        children = np.flatnonzero(np.equal(parents, node)).tolist()
        places[node] = np.mean([place(child) for child in children]) if children else next(leaves)
        return float(places[node])

    for root in np.flatnonzero(np.less(parents, 0)).tolist():
        place(root)
    return places
