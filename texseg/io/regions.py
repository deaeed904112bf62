"""The contents of a label image: tables of its segments and connected regions, and one colour a label."""

import colorsys
import csv
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import connected_parts

_UNNAMEABLE = ("Cc", "Cs", "Zl", "Zp")  # Unicode: control characters, lone surrogates, ends of lines
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")
_ERROR_WINDOW = 40  # pixels, side of windows in which labels are wrong together; 32 to 48 cover .89 to 1.0
_NORMAL_95 = 1.96  # standard deviations
_ROUNDING = 1e-4  # of probabilities
_DIGITS = 6  # of mean confidences; further ones depend on the number of threads that added them up


Labels = NDArray[np.integer]
Floats = NDArray[np.floating]


class PixelSize(NamedTuple):
    """Height and width of a pixel, and their unit: ``PixelSize(0.5, 0.5, "um")``; the depth of a voxel."""

    height: float = 1.0
    width: float = 1.0
    unit: str = "px"
    depth: float | None = None

    def __str__(self) -> str:
        depth = "" if self.depth is None else f" x {self.depth:g}"
        return f"{self.width:g} x {self.height:g}{depth} {self.unit}"


PIXELS = PixelSize()


class Row(NamedTuple):
    """One label, or one connected region of it; what was not measured is None.

    The fraction is that of all labelled pixels, the box [top, bottom) x [left, right), the colour that of
    overlays. Area (in squares of the unit), perimeter and axes have the unit of the pixel size, "px" if it is
    not known. The perimeter includes the border of the image; it is Crofton's, from the crossings of lines
    in four directions: exact for discs, but 5 % short for long sides along rows or columns of square pixels,
    up to 10 % for pixels twice as long as wide.

    Chords are the pieces of lines inside, along rows, along columns, down and up to the right, in the mean;
    as in the intercept method only borders to other labels end them, so that the edge of the image does not
    shorten them. The same borders count in `boundary_per_area`, their length over the area. Of the areas of a
    label's regions there are the tenth, fiftieth and ninetieth percentile; the filled area includes holes.

    What follows `region` describes a region, as :func:`skimage.measure.regionprops` does: the centroid in
    pixels, the axes of the ellipse with the same second moments, and the angle from the row axis (downwards)
    to the longer one, counter-clockwise, in radians from -pi/2 to pi/2.
    """

    label: int
    name: str
    colour: str
    pixels: int
    fraction: float
    top: int
    left: int
    bottom: int
    right: int
    mean_confidence: float | None
    area: float
    perimeter: float
    unit: str
    fraction_low: float | None = None
    fraction_high: float | None = None
    boundary_per_area: float | None = None
    chord_row: float | None = None
    chord_column: float | None = None
    chord_down: float | None = None
    chord_up: float | None = None
    regions: int | None = None
    region_area_10: float | None = None
    region_area_50: float | None = None
    region_area_90: float | None = None
    filled_area: float | None = None
    region: int | None = None
    centroid_row: float | None = None
    centroid_column: float | None = None
    major_axis: float | None = None
    minor_axis: float | None = None
    eccentricity: float | None = None
    orientation: float | None = None
    solidity: float | None = None


_N_SHARED, _N_OF_SEGMENTS = Row._fields.index("unit") + 1, Row._fields.index("region")
SEGMENT_FIELDS = Row._fields[:_N_OF_SEGMENTS]
_SHAPE_FIELDS = (*Row._fields[_N_OF_SEGMENTS + 1 :], "filled_area")
REGION_FIELDS = ("region", *Row._fields[:_N_SHARED], *_SHAPE_FIELDS)
_CHORDS = ("chord_row", "chord_column", "chord_down", "chord_up")
_SHAPE = "centroid axis_major_length axis_minor_length eccentricity orientation solidity area_filled".split()
"""skimage's names for `_SHAPE_FIELDS`; the centroid is two of them."""


def segment_table(
    labels: NDArray[np.integer],
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
    *,
    pixel_size: tuple[float, float, str] | None = None,
    probabilities: NDArray[np.floating] | None = None,
) -> list[Row]:
    """Describe every label that occurs, ascending; label 0 is skipped.

    Parameters
    ----------
    labels : ndarray of int, shape (H, W)
        Label image, 0 for no data.
    confidence : ndarray of float, shape (H, W), optional
        Confidence of each pixel's label, 0 to 1.
    names : sequence of str, optional
        Names of label 1, label 2 and so on.
    pixel_size : (float, float, str), optional
        Height, width and unit of a pixel, as in ``read_image(path).pixel_size``; by default
        ``(1, 1, "px")``.
    probabilities : ndarray of float, shape (H, W, K), optional
        Those of ``model.predict_proba(image)``, for the intervals of the fractions, see
        :func:`area_intervals`.

    Examples
    --------
    >>> [(row.label, row.pixels, row.fraction) for row in segment_table(np.array([[0, 1], [2, 2]]))]
    [(1, 1, 0.3333333333333333), (2, 2, 0.6666666666666666)]
    """
    labels, confidence, size = checked_description(labels, confidence, names, pixel_size)
    tally = Tally(names, size)
    tally.add(labels, confidence)
    rows = tally.segments(labels)
    if probabilities is None:
        return rows
    if probabilities.shape[:2] != labels.shape or probabilities.ndim != 3:
        raise ValueError(f"probabilities must have shape {(*labels.shape, 'K')}, got {probabilities.shape}")
    low, high = probabilities.min(initial=0), probabilities.max(initial=0)
    if not -_ROUNDING <= low <= high <= 1 + _ROUNDING:
        raise ValueError(f"probabilities must lie in 0 to 1, got {low:g} to {high:g}")
    return with_intervals(rows, area_intervals(np.moveaxis(probabilities, -1, 0)))


def region_table(
    labels: NDArray[np.integer],
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
    *,
    regions: NDArray[np.integer] | None = None,
    pixel_size: tuple[float, float, str] | None = None,
    shapes: bool = True,
) -> list[Row]:
    """Describe every connected region, ascending by its number; label 0 is skipped.

    Parameters
    ----------
    labels, confidence, names, pixel_size
        As for :func:`segment_table`.
    regions : ndarray of int, shape (H, W), optional
        Numbers of the regions; by default those of :func:`connected_regions`.
    shapes : bool, default=True
        Measure centroids and shapes, which takes about half a millisecond per region.

    Examples
    --------
    >>> [(row.region, row.label, row.pixels) for row in region_table(np.array([[2, 0, 2], [1, 1, 2]]))]
    [(1, 2, 1), (2, 2, 2), (3, 1, 2)]
    """
    labels, confidence, size = checked_description(labels, confidence, names, pixel_size)
    if regions is not None and (regions := checked_labels(regions)).shape != labels.shape:
        raise ValueError(f"regions of shape {regions.shape} do not match labels of shape {labels.shape}")
    if not isinstance(shapes, bool):
        raise TypeError(f"shapes must be True or False, got {shapes!r:.80}")
    tally = Tally(names, size)
    numbers = tally.add(labels, confidence, regions)
    return tally.regions(numbers if shapes else None)


def checked_labels(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return labels as an array, (H, W) or pages of it."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, got an array of dtype {labels.dtype}")
    if labels.ndim not in (2, 3) or labels.size == 0:
        raise ValueError(f"labels must have shape (H, W), got {labels.shape}")
    if labels.min() < 0:
        raise ValueError(f"labels must not be negative, got {labels.min()}")
    return labels


def checked_description(
    labels: Any, confidence: Any, names: Any, pixel_size: Any = None
) -> tuple[NDArray[np.integer], NDArray[np.floating] | None, PixelSize]:
    """Check what a label image (H, W) is described by; return labels, confidence and the size of a pixel."""
    labels = checked_labels(labels)
    if labels.ndim != 2:
        raise ValueError(f"labels must have shape (H, W), got {labels.shape}; of volumes see volume_table")
    if confidence is not None:
        confidence = np.asarray(confidence)
        if confidence.dtype.kind not in "fiub" or confidence.shape != labels.shape:
            raise ValueError(
                f"confidence must be numbers of shape {labels.shape}, got {confidence.dtype} of shape "
                f"{confidence.shape}"
            )
    if isinstance(names, str) or not np.iterable(names) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"names must be a sequence of texts, got {names!r:.80}")
    return labels, confidence, checked_size(pixel_size)


def checked_size(pixel_size: Any) -> PixelSize:
    """Check the size of a pixel; None stands for pixels."""
    try:
        height, width, unit, *depth = PIXELS if pixel_size is None else pixel_size
        size = PixelSize(float(height), float(width), unit, *depth)
        if not (0 < size.height < np.inf and 0 < size.width < np.inf and isinstance(unit, str)):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"pixel_size must be height, width and unit, such as (0.5, 0.5, 'um'), got {pixel_size!r:.80}"
        ) from None
    return size


def printable_name(name: str) -> str:
    """Return the name of a segment, unless a terminal would act on it."""
    if any(unicodedata.category(letter) in _UNNAMEABLE for letter in name):
        raise ValueError(f"names must be without control characters and lone surrogates, got {name!a}")
    return name


def area_intervals(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """Find how far the area of each segment may be off, as half the width of its 95 % interval.

    Pixels of a window of 40 x 40 count as wrong together, those of different windows as wrong independently
    (a block bootstrap of the errors converges to this): the standard deviation of a fraction is the root of
    the sum over windows of ``(sum sqrt(p (1 - p)))**2``, with the calibrated probability ``p`` (K, H, W) of
    the segment at each pixel (0 without data), over the number of pixels. Whole textures that were joined or
    divided wrongly are an error that the result (K,) does not see.

    Examples
    --------
    >>> planes = np.zeros((2, 64, 64)) + [[[0.9]], [[0.1]]]
    >>> area_intervals(planes).round(3).tolist()
    [0.312, 0.312]
    """
    n_pixels = max(1, np.count_nonzero(probabilities.any(axis=0)))
    starts = [range(0, side, _ERROR_WINDOW) for side in probabilities.shape[1:]]
    halves = []
    for plane in probabilities:
        errors = np.sqrt(np.clip(plane * (1 - plane), 0, None, dtype=np.float64))
        of_windows = np.add.reduceat(np.add.reduceat(errors, starts[0], axis=0), starts[1], axis=1)
        halves.append(_NORMAL_95 * np.sqrt((of_windows**2).sum()) / n_pixels)
    return np.array(halves)


def with_intervals(rows: Iterable[Row], halves: NDArray[np.floating]) -> list[Row]:
    """Put the intervals of fractions into a table of segments."""
    found = []
    for row in rows:
        if row.label <= len(halves):  # else it is unknown, of which there are no probabilities
            low, high = (row.fraction + sign * halves[row.label - 1] for sign in (-1, 1))
            row = row._replace(fraction_low=_tidy(max(0.0, low)), fraction_high=_tidy(min(1.0, high)))
        found.append(row)
    return found


_PLANES, _FADED = 32, 6  # planes measured at once; voxels beyond which the smoothing is not felt


class VolumeRow(NamedTuple):
    """One label of a volume: voxels, volume (unit cubed), surface inside (unit squared), centroid (unit)."""

    label: int
    name: str
    colour: str
    voxels: int
    fraction: float
    volume: float
    surface: float
    centroid_depth: float
    centroid_row: float
    centroid_column: float
    unit: str
    mean_confidence: float | None


def volume_table(
    labels: NDArray[np.integer],
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
    *,
    voxel_size: PixelSize = PIXELS,
) -> list[VolumeRow]:
    """Describe every label of a volume (planes, rows, columns), ascending; label 0 is skipped.

    The surface is the sum of the gradient of the label, smoothed by 1.5 voxels: 3 % off for balls of 15.

    Examples
    --------
    >>> labels = np.repeat([1, 2], 8).reshape(16, 1, 1) * np.ones((16, 20, 20), int)
    >>> first, _ = volume_table(labels, voxel_size=PixelSize(0.5, 0.5, "um", 2.0))
    >>> first.volume, round(first.surface), first.centroid_depth
    (1600.0, 100, 8.0)
    """
    from scipy.ndimage import find_objects, gaussian_filter

    steps = (voxel_size.depth or 1.0, voxel_size.height, voxel_size.width)
    colours, total = hex_colours(int(labels.max(initial=0))), np.count_nonzero(labels)
    rows = []
    for label, box in enumerate(find_objects(labels), start=1):
        if box is None:
            continue
        wide = tuple(slice(max(part.start - _FADED, 0), part.stop + _FADED) for part in box)
        first, last = wide[0].start, min(wide[0].stop, len(labels))
        surface, n, certain, sums = 0.0, 0, 0.0, np.zeros(3)
        for top in range(first, last, _PLANES):  # a large volume may lie in a file
            around = slice(max(top - _FADED - 1, 0), top + _PLANES + _FADED + 1)
            own = slice(top - around.start, min(top + _PLANES, last) - around.start)
            found = labels[(around, *wide[1:])] == label
            smooth = gaussian_filter(found.astype(np.float32), 1.5, mode="nearest")
            axes = [axis for axis in range(3) if smooth.shape[axis] > 1]
            slopes = sum(np.gradient(smooth, steps[axis], axis=axis)[own] ** 2 for axis in axes)
            surface += float(np.sqrt(slopes).sum(dtype=np.float64)) * math.prod(steps)
            inside = found[own]
            n += int(np.count_nonzero(inside))
            for axis, start in enumerate((top, *(part.start for part in wide[1:]))):
                counts = inside.sum(axis=tuple({0, 1, 2} - {axis}))
                sums[axis] += counts @ (start + 0.5 + np.arange(len(counts)))
            if confidence is not None:
                here = slice(top, top + len(inside))
                certain += float(confidence[(here, *wide[1:])][inside].sum(dtype=np.float64))
        centre = map(_tidy, (sums / n * steps).tolist())
        sure = None if confidence is None else round(certain / n, _DIGITS)
        about = label, "".join(names[label - 1 : label]), colours[label - 1]
        values = n, n / total, _tidy(n * math.prod(steps)), float(f"{surface:.5g}")
        rows.append(VolumeRow._make((*about, *values, *centre, voxel_size.unit, sure)))
    return rows


def connected_regions(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """Give the 4-connected regions of equal labels numbers from 1, row by row; 0 stays 0."""
    return connected_parts(labels.astype(np.int32) - 1).places


def boxes_of(labels: Labels) -> list[tuple[slice, slice] | None]:
    """Give the box around the pixels of each label from 1; None where it does not occur."""
    ends = []
    for lines in (labels, labels.T):
        flat, at = lines.ravel(), np.arange(lines.size) // max(1, lines.shape[1])
        first, last = np.full((2, int(flat.max(initial=0)) + 1), -1)
        first[flat[::-1]], last[flat] = at[::-1], at  # the last one written stays
        ends += [first[1:].tolist(), (last + 1)[1:].tolist()]
    return [(slice(y, Y), slice(x, X)) if Y else None for y, Y, x, X in zip(*ends, strict=True)]


class Tally:
    """Both tables, of an image that comes in pieces: bands of rows from top to bottom, or blocks.

    Blocks side by side are joined first, and then the bands that they make; with regions, there are bands
    alone, since regions are numbered row by row.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        size: PixelSize = PIXELS,
        *,
        colours: Sequence[str] = (),
        step: tuple[float, float] = (1.0, 1.0),  # pixels of level 0 down and across, in which places are
        with_regions: bool = True,
    ) -> None:
        self._names, self._size, self._with_regions = names, size, with_regions
        self._colours, self._step = colours, step
        self._parts: list[NDArray[np.float64]] = []  # of each piece (n, 8): see _measured
        self._crossings: list[NDArray[np.int64]] = []  # (4, n): see _crossings_of
        self._links: list[NDArray[np.int64]] = []  # (2, n): parts of one region in two pieces
        self._shape, self._n_parts = [0, 0], 0
        self._edges: list[NDArray[np.int64]] = []  # (2, n) numbers and labels: top, bottom, left, right

    def add(self, labels: Labels, confidence: Floats | None = None, numbers: Labels | None = None) -> Labels:
        """Add the next rows (h, W); return the part of each pixel, from 1; other bands have other parts."""
        if numbers is None:
            numbers = connected_regions(labels) if self._with_regions else labels
        piece = Tally(with_regions=self._with_regions)
        piece._parts, piece._crossings = [_measured(numbers, labels, confidence)], [_crossings_of(numbers)]
        piece._shape, piece._n_parts = list(labels.shape), int(numbers.max(initial=0))
        ends: list[Any] = [np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]]
        piece._edges = [np.stack([numbers[end], labels[end]]).astype(np.int64) for end in ends]
        first = self.join(piece)
        return np.where(numbers > 0, numbers + np.int64(first), 0) if first else numbers

    def join(self, other: "Tally", axis: int = 0) -> int:
        """Take in what lies below (0) or to the right (1); give what its numbers of parts were raised by."""
        first, shift = self._n_parts if self._with_regions else 0, self._shape[axis]
        for parts in other._parts:
            parts[:, 0] += first
            parts[:, [3 + axis, 5 + axis]] += shift
        if first:
            for numbered in (*(each[:2] for each in other._crossings), *(each[:1] for each in other._edges)):
                numbered[numbered > 0] += first
        self._parts += other._parts
        self._crossings += other._crossings
        edges, self._n_parts = other._edges, max(self._n_parts, first + other._n_parts)
        if self._edges:
            end, start = self._edges[2 * axis + 1], edges[2 * axis]
            self._crossings.append(_crossings_of(np.stack([end[0], start[0]], axis), axis))
            if self._with_regions:
                one = (end[1] == start[1]) & (end[1] > 0)
                self._links.append(np.unique(np.stack([end[0][one], start[0][one]]), axis=1))
            joined = [np.concatenate(pair, axis=1) for pair in zip(self._edges, edges, strict=True)]
            joined[2 * axis : 2 * axis + 2] = self._edges[2 * axis], edges[2 * axis + 1]
            edges = joined
        self._edges, self._shape[1 - axis] = edges, other._shape[1 - axis]
        self._shape[axis] += other._shape[axis]
        return first

    def region_of_parts(self) -> NDArray[np.intp]:
        """Give the number of each part's region, from 1; part 0 belongs to none and gets 0."""
        n = self._n_parts
        links = np.concatenate([np.zeros((2, 0), int), *self._links], axis=1) - 1
        if not links.size:
            return np.arange(n + 1)
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        graph = coo_matrix((np.ones(links.shape[1], bool), tuple(links)), (n, n))
        _, group = connected_components(graph, directed=False)  # in the order of their first parts
        return np.append(0, group + 1)

    def segments(self, whole: NDArray[np.integer] | None = None) -> list[Row]:
        """Give the table of labels, ascending; filled areas need the ``whole`` labels (H, W)."""
        label_of, unit = np.zeros(self._n_parts + 1, np.intp), self._size.height * self._size.width
        for band in self._parts:
            label_of[band[:, 0].astype(np.intp)] = band[:, 1]
        _, rows = self._rows(label_of)
        if self._with_regions:
            _, found = self._joined(self.region_of_parts())
            for number, row in enumerate(rows):
                areas = found[found[:, 1] == row.label, 2] * unit
                low, middle, high = map(_tidy, np.percentile(areas, (10, 50, 90)).tolist())
                rows[number] = row._replace(
                    regions=len(areas), region_area_10=low, region_area_50=middle, region_area_90=high
                )
        if whole is not None:
            for number, row in enumerate(rows):  # holes are not connected to the edge around the image
                outside = np.pad(whole != row.label, 1, constant_values=True).astype(np.uint8)
                _, _, statistics, _ = cv2.connectedComponentsWithStats(outside, connectivity=8)
                filled = outside.size - int(statistics[1, cv2.CC_STAT_AREA])
                rows[number] = row._replace(filled_area=_tidy(filled * unit))
        return rows

    def regions(self, whole: NDArray[np.integer] | None = None) -> list[Row]:
        """Give the table of regions, ascending; shapes need the ``whole`` numbers (H, W) of the regions."""
        pairs = zip(*self._rows(self.region_of_parts()), strict=True)
        rows = [row._replace(region=number) for number, row in pairs]
        if whole is None:
            return rows
        from skimage.measure import regionprops_table

        table = regionprops_table(whole, properties=_SHAPE, spacing=self._size[:2])
        table["centroid-0"] *= self._step[0] / self._size.height
        table["centroid-1"] *= self._step[1] / self._size.width
        shapes = zip(*(map(_tidy, column.tolist()) for column in table.values()), strict=True)
        named = (dict(zip(_SHAPE_FIELDS, shape, strict=True)) for shape in shapes)
        return [row._replace(**shape) for row, shape in zip(rows, named, strict=True)]

    def _joined(self, group_of: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Join parts that have one group; return the groups, ascending, and what was measured of them."""
        parts = np.concatenate(self._parts)
        groups = group_of[parts[:, 0].astype(np.intp)]
        order = np.argsort(groups, kind="stable")
        numbers, starts = np.unique(groups[order], return_index=True)
        out, sums = (ufunc.reduceat(parts[order], starts) for ufunc in (np.minimum, np.add))
        out[:, [2, 7]] = sums[:, [2, 7]]
        out[:, 5:7] = np.maximum.reduceat(parts[order, 5:7], starts)
        return numbers, out

    def _rows(self, group_of: NDArray[np.intp]) -> tuple[list[int], list[Row]]:
        """Give the groups of parts, and a row for each."""
        numbers, found = self._joined(group_of)
        crossings = [*self._crossings]
        for at, (edge, _) in enumerate(self._edges):  # nothing is around the image
            line = np.pad(edge, 1) if at < 2 else edge
            pair = [line, np.zeros_like(line)] if at % 2 else [np.zeros_like(line), line]
            crossings.append(_crossings_of(np.stack(pair, at // 2), at // 2))
        one, other, way, often = np.concatenate(crossings, axis=1)
        groups = np.stack([group_of[one], group_of[other]])
        often = np.where(groups[0] != groups[1], often, 0)
        n = _N_WAYS * (int(groups.max(initial=0)) + 1)
        n_crossings, n_inside = (
            np.reshape(sum(np.bincount(_N_WAYS * own + way, counted, n) for own in groups), (-1, _N_WAYS))
            for counted in (often, np.where(groups.all(axis=0), often, 0))
        )
        height, width, diagonal = *self._size[:2], math.hypot(*self._size[:2])
        angle, steps = math.atan2(height, width), np.array([width, height, diagonal, diagonal])
        angles = np.array([angle, np.pi / 2 - angle, np.pi / 4, np.pi / 4])
        lengths = height * width / steps * angles / 2  # of border for a crossing (Crofton), by direction
        perimeters, borders = n_crossings @ lengths, n_inside @ lengths
        colours = hex_colours(int(found[:, 1].max(initial=0)), self._colours)
        rows, total = [], int(found[:, 2].sum())
        for number, (_, *whole, certain) in zip(numbers, found.tolist(), strict=True):
            label, pixels, *edges = map(int, whole)
            box = [round(side * by) for side, by in zip(edges, self._step * 2, strict=True)]
            area = pixels * height * width
            name = self._names[label - 1] if label <= len(self._names) else ""
            sure = None if np.isnan(certain) else round(certain / pixels, _DIGITS)
            with np.errstate(divide="ignore"):
                chords = (2 * pixels * steps / n_inside[number]).tolist()
            about: Any = (label, name, colours[label - 1], pixels, pixels / total, *box, sure, _tidy(area))
            measured: dict[str, Any] = {
                "perimeter": _tidy(perimeters[number]),
                "unit": self._size.unit,
                "boundary_per_area": _tidy(borders[number] / area),
            }
            measured |= {way: _tidy(n) for way, n in zip(_CHORDS, chords, strict=True) if math.isfinite(n)}
            rows.append(Row(*about, **measured))
        return numbers.tolist(), rows


def _measured(numbers: Labels, labels: Labels, confidence: Floats | None) -> NDArray[np.float64]:
    """Give number, label, pixels, box (4) and sum of the confidence (NaN: not known) of each part, (n, 8)."""
    found, counts = [], np.bincount(numbers.ravel())
    label_of = np.zeros(len(counts))
    label_of[numbers.ravel()] = labels.ravel()
    certain = np.full(len(counts), np.nan)
    if confidence is not None:
        certain = np.bincount(numbers.ravel(), confidence.ravel())
    for n, box in enumerate(boxes_of(numbers), start=1):
        if box is not None:
            y, x = box
            found.append((n, label_of[n], counts[n], y.start, x.start, y.stop, x.stop, certain[n]))
    return np.array(found, np.float64).reshape(-1, 8)


_N_WAYS = 4  # along rows, along columns, down to the right, up to the right


def _crossings_of(numbers: NDArray[np.integer], without: int | None = None) -> NDArray[np.int64]:
    """Count crossings (4, n): one part, the other, the direction, how often; ``without`` those of one way."""
    steps = (
        (numbers[:, :-1], numbers[:, 1:]),
        (numbers[:-1], numbers[1:]),
        (numbers[:-1, :-1], numbers[1:, 1:]),
        (numbers[:-1, 1:], numbers[1:, :-1]),
    )
    found = [np.zeros((4, 0), np.int64)]
    for way, (one, other) in enumerate(steps):
        if way != without:
            differ = one != other
            pairs = np.stack([one[differ], other[differ]]).astype(np.int64)
            n = int(pairs.max(initial=0)) + 1
            code, often = np.unique(pairs[0] * n + pairs[1], return_counts=True)
            found.append(np.stack([*np.divmod(code, n), np.full(len(code), way), often]))
    return np.concatenate(found, axis=1)


def _tidy(value: float) -> float:
    """Round a number for tables, to remove the noise of the last bits."""
    return float(f"{value:.9g}")


def harmless_cell(value: Any) -> Any:
    """Escape what a terminal would interpret, and put an apostrophe before what spreadsheets calculate."""
    if not isinstance(value, str):
        return value
    quote = "'" if value.startswith(_FORMULA_SIGNS) else ""
    return quote + "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in ("Cc", "Cs") else c for c in value
    )


def csv_text(rows: Sequence[tuple[Any, ...]], fields: Sequence[str]) -> str:
    """Comma-separated table with a header line; values that are None stay empty, names are "segment 2"."""
    buffer = StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        cells = dict(zip(fields, row, strict=True))
        if "name" in cells:
            cells["name"] = cells["name"] or f"segment {cells['label']}"
        writer.writerow(map(harmless_cell, cells.values()))
    return buffer.getvalue()


_COLOURS = """
    0072b2 e69f00 009e73 cc79a7 f0e442 56b4e9 d55e00
    ddeedd 881100 555555 334466 2200dd 99cc88 eeddff ccaaaa 8877ff 885544 667777 bbffaa bb3300
""".split()
"""The first seven are those of Okabe and Ito (2008, "Color Universal Design"); the next thirteen are those
that stay farthest from each other and from black under normal, protanopic, deuteranopic and tritanopic vision
(Machado et al. 2009): any two of the twenty differ by at least 10.8 (CIEDE2000)."""

_GOLDEN_RATIO = (5**0.5 - 1) / 2


def palette(n_labels: int, own: Sequence[str] = ()) -> NDArray[np.uint8]:
    """Colours (n_labels + 1, 3) uint8 of the labels 0 (black) to `n_labels`; the first may have their own."""
    return np.array([[*bytes.fromhex(c[1:])] for c in ("#000000", *hex_colours(n_labels, own))], np.uint8)


def hex_colours(n_labels: int, own: Sequence[str] = ()) -> list[str]:
    """Colours of the labels 1 to `n_labels` as ``#0072b2``; the first may have colours of their own."""
    colours = [*own, *(f"#{colour}" for colour in _COLOURS[len(own) :])]
    for index in range(len(colours), n_labels):  # hues of a golden-ratio sequence, with alternating lightness
        lightness = (0.35, 0.5, 0.65, 0.8)[index % 4]
        parts = colorsys.hls_to_rgb((index * _GOLDEN_RATIO) % 1.0, lightness, 0.8)
        colours.append(f"#{bytes(round(255 * part) for part in parts).hex()}")
    return colours[:n_labels]


def own_colours(names: Sequence[str], colour_of: Mapping[str, str]) -> list[str]:
    """Colours of the labels from 1 if some names have colours of a user's; the usual ones of the others."""
    pairs = zip(names, hex_colours(len(names)), strict=True) if colour_of else ()
    return [colour_of.get(name, colour) for name, colour in pairs]
