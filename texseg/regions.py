"""The contents of a label image: tables of its segments and connected regions."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.palette import palette

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")


class PixelSize(NamedTuple):
    """Height and width of a pixel, and their unit: ``PixelSize(0.5, 0.5, "um")``."""

    height: float = 1.0
    width: float = 1.0
    unit: str = "px"


PIXELS = PixelSize()


class SegmentRow(NamedTuple):
    """One label: its pixels, its share of all labelled pixels, and the box [top, bottom) x [left, right).

    The colour is that of overlays. The area (in squares of the unit) and the perimeter are in the unit of the
    pixel size, "px" if that is not known. The perimeter is None if it was not measured: in images processed
    block by block, and if pixels are not square.
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
    perimeter: float | None
    unit: str


class RegionRow(NamedTuple):
    """One connected region of a label, and its shape as :func:`skimage.measure.regionprops` measures it.

    The fields from `label` to `unit` are those of `SegmentRow`. The centroid is in pixels. The axes are those
    of the ellipse with the same second moments, in the unit; the orientation is the angle from the row axis
    (downwards) to the longer axis, counter-clockwise, in radians from -pi/2 to pi/2. The shape is None if it
    was not measured: in images processed block by block.
    """

    region: int
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
    perimeter: float | None
    unit: str
    centroid_row: float | None = None
    centroid_column: float | None = None
    major_axis: float | None = None
    minor_axis: float | None = None
    eccentricity: float | None = None
    orientation: float | None = None
    solidity: float | None = None


_SHAPE = ("centroid", "axis_major_length", "axis_minor_length", "eccentricity", "orientation", "solidity")
"""skimage's names for the last fields of `RegionRow`; the centroid is two of them."""


def segment_table(
    labels: NDArray[np.integer],
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
    *,
    pixel_size: tuple[float, float, str] | None = None,
    shapes: bool = True,
) -> list[SegmentRow]:
    """Describe every label that occurs.

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
    shapes : bool, default=True
        Measure perimeters.

    Returns
    -------
    list of SegmentRow
        Ascending by label; label 0 is left out.

    Examples
    --------
    >>> [(row.label, row.pixels, row.fraction) for row in segment_table(np.array([[0, 1], [2, 2]]))]
    [(1, 1, 0.3333333333333333), (2, 2, 0.6666666666666666)]
    """
    found, size = list(_measure(labels, confidence)), PixelSize(*(pixel_size or ()))
    return _segment_rows(found, names, size, _perimeters(labels, size) if shapes else None)


def region_table(
    labels: NDArray[np.integer],
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
    *,
    regions: NDArray[np.integer] | None = None,
    pixel_size: tuple[float, float, str] | None = None,
    shapes: bool = True,
) -> list[RegionRow]:
    """Describe every connected region.

    Parameters
    ----------
    labels, confidence, names, pixel_size
        As for :func:`segment_table`.
    regions : ndarray of int, shape (H, W), optional
        Numbers of the regions; by default those of :func:`connected_regions`.
    shapes : bool, default=True
        Measure perimeters and shapes, which takes about half a millisecond per region.

    Returns
    -------
    list of RegionRow
        Ascending by the number of the region; label 0 is left out.

    Examples
    --------
    >>> [(row.region, row.label, row.pixels) for row in region_table(np.array([[2, 0, 2], [1, 1, 2]]))]
    [(1, 2, 1), (2, 2, 2), (3, 1, 2)]
    """
    if regions is None:
        regions = connected_regions(labels)
    label_of = np.zeros(int(regions.max(initial=0)) + 1, dtype=np.int64)
    label_of[regions.ravel()] = labels.ravel()
    found = [(region, int(label_of[region]), measured) for region, measured in _measure(regions, confidence)]
    size = PixelSize(*(pixel_size or ()))
    rows = _region_rows(found, names, size)
    if not shapes:
        return rows
    from skimage.measure import regionprops_table

    table = regionprops_table(regions, properties=_SHAPE, spacing=size[:2])
    table["centroid-0"] /= size.height
    table["centroid-1"] /= size.width
    measured = zip(rows, _perimeters(regions, size), *map(_tidy, table.values()), strict=True)
    return [
        RegionRow._make((*row._replace(perimeter=perimeter)[: -len(shape)], *shape))
        for row, perimeter, *shape in measured
    ]


def connected_regions(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """Give the 4-connected regions of equal labels numbers from 1, row by row; 0 stays 0."""
    from skimage.measure import label

    return label(labels, background=0, connectivity=1)


class SegmentTally:
    """The table of :func:`segment_table` for an image processed block by block.

    Examples
    --------
    >>> tally = SegmentTally()
    >>> tally.add(np.array([[1, 2]]), (0, 0))
    >>> tally.add(np.array([[2, 2]]), (1, 0))
    >>> [(row.label, row.pixels, row.top, row.bottom) for row in tally.rows()]
    [(1, 1, 0, 1), (2, 3, 0, 2)]
    """

    def __init__(self) -> None:
        self._found: dict[int, _Measured] = {}

    def add(
        self,
        labels: NDArray[np.integer],
        origin: tuple[int, int],
        confidence: NDArray[np.floating] | None = None,
    ) -> None:
        """Count the labels (h, w) of a block whose first pixel is at ``origin``."""
        for label, measured in _measure(labels, confidence):
            measured = measured.moved(*origin)
            self._found[label] = measured.joined(self._found.get(label))

    def rows(self, names: Sequence[str] = (), size: PixelSize = PIXELS) -> list[SegmentRow]:
        """Give the table, ascending by label; label 0 is left out."""
        return _segment_rows(sorted(self._found.items()), names, size)


class RegionTally:
    """The table of :func:`region_table` for an image that comes in bands of rows, from top to bottom.

    Examples
    --------
    >>> tally = RegionTally()
    >>> tally.add(np.array([[2, 0, 2]])).tolist(), tally.add(np.array([[1, 1, 2]])).tolist()
    ([[1, 0, 2]], [[3, 3, 4]])
    >>> tally.region_of_parts().tolist()
    [0, 1, 2, 3, 2]
    >>> [(row.region, row.label, row.pixels) for row in tally.rows()]
    [(1, 2, 1), (2, 2, 2), (3, 1, 2)]
    """

    def __init__(self) -> None:
        self._top = 0
        self._above: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._links: list[NDArray[np.int64]] = []
        self._measures: list[_Measured] = []
        self._labels: list[int] = []

    def add(
        self, labels: NDArray[np.integer], confidence: NDArray[np.floating] | None = None
    ) -> NDArray[np.int64]:
        """Add the next rows (h, W); return the part of each pixel, from 1 (0 without a label).

        Parts of one region in different bands of rows have different numbers.
        """
        own = connected_regions(labels).astype(np.int64)
        first = len(self._labels)
        label_of = np.zeros(int(own.max(initial=0)) + 1, np.int64)
        label_of[own.ravel()] = labels.ravel()
        self._measures += [measured.moved(self._top, 0) for _, measured in _measure(own, confidence)]
        self._labels += label_of[1:].tolist()
        numbers = np.where(own > 0, own + first, 0)
        if self._above is not None:
            one = (self._above[0] == labels[0]) & (labels[0] > 0)
            self._links.append(np.unique(np.stack([self._above[1][one], numbers[0][one]]), axis=1))
        self._above = labels[-1].copy(), numbers[-1].copy()
        self._top += len(labels)
        return numbers

    def region_of_parts(self) -> NDArray[np.intp]:
        """Give the number of each part's region, from 1; part 0 belongs to none and gets 0."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        n = len(self._labels)
        links = np.concatenate([np.empty((2, 0), np.int64), *self._links], axis=1) - 1
        graph = coo_matrix((np.ones(links.shape[1], bool), tuple(links)), (n, n))
        _, group = connected_components(graph, directed=False)
        _, first, back = np.unique(group, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.intp)
        rank[np.argsort(first)] = np.arange(1, len(first) + 1)  # parts are in the order of first pixels
        return np.append(0, rank[back])

    def rows(self, names: Sequence[str] = (), size: PixelSize = PIXELS) -> list[RegionRow]:
        """Give the table, ascending by the number of the region, without shapes."""
        merged: dict[int, tuple[int, _Measured]] = {}
        regions = self.region_of_parts()[1:].tolist()
        for region, label, measured in zip(regions, self._labels, self._measures, strict=True):
            before = merged[region][1] if region in merged else None
            merged[region] = label, measured.joined(before)
        found = [(region, *what) for region, what in sorted(merged.items())]
        return _region_rows(found, names, size)


def harmless_cell(value: Any) -> Any:
    """Put an apostrophe before a text that spreadsheets would take for a formula.

    Examples
    --------
    >>> harmless_cell("=1+1"), harmless_cell("sand"), harmless_cell(-1)
    ("'=1+1", 'sand', -1)
    """
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA_SIGNS) else value


def csv_text(rows: Sequence[SegmentRow] | Sequence[RegionRow], fields: Sequence[str]) -> str:
    """Comma-separated table with a header line; values that are None stay empty, names are "segment 2"."""
    buffer = StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(fields)
    label, name = fields.index("label"), fields.index("name")
    for row in rows:
        cells = list(row)
        cells[name] = cells[name] or f"segment {cells[label]}"
        writer.writerow(map(harmless_cell, cells))
    return buffer.getvalue()


_DIGITS = 6  # of mean confidences; further ones depend on the number of threads that added them up


class _Measured(NamedTuple):
    """Number of pixels of a label or region, its box, and the sum of the pixels' confidence."""

    pixels: int
    top: int
    left: int
    bottom: int
    right: int
    certain: float | None

    def moved(self, rows: int, columns: int) -> _Measured:
        _, top, left, bottom, right, _ = self
        return self._replace(top=top + rows, left=left + columns, bottom=bottom + rows, right=right + columns)

    def joined(self, other: _Measured | None) -> _Measured:
        if other is None:
            return self
        certain = None if self.certain is None or other.certain is None else self.certain + other.certain
        return _Measured(
            self.pixels + other.pixels,
            min(self.top, other.top),
            min(self.left, other.left),
            max(self.bottom, other.bottom),
            max(self.right, other.right),
            certain,
        )


def _measure(
    numbers: NDArray[np.integer], confidence: NDArray[np.floating] | None
) -> Iterator[tuple[int, _Measured]]:
    """Yield each number above 0 that occurs, with measurements of its pixels."""
    from scipy.ndimage import find_objects

    counts = np.bincount(numbers.ravel())
    sums = None if confidence is None else np.bincount(numbers.ravel(), weights=confidence.ravel())
    for number, box in enumerate(find_objects(numbers), start=1):
        if box is not None:
            rows, columns = box
            certain = None if sums is None else float(sums[number])
            sides = rows.start, columns.start, rows.stop, columns.stop
            yield number, _Measured(int(counts[number]), *sides, certain)


def _segment_rows(
    found: Sequence[tuple[int, _Measured]],
    names: Sequence[str],
    size: PixelSize,
    perimeters: Sequence[float | None] | None = None,
) -> list[SegmentRow]:
    """Rows of the table of segments, without perimeters unless they are given."""
    total = sum(measured.pixels for _, measured in found)
    colours = palette(max((label for label, _ in found), default=0)).tolist()
    rows = []
    for (label, measured), perimeter in zip(found, perimeters or [None] * len(found), strict=True):
        pixels, top, left, bottom, right, certain = measured
        rows.append(
            SegmentRow(
                label,
                names[label - 1] if label <= len(names) else "",
                "#{:02x}{:02x}{:02x}".format(*colours[label]),
                pixels,
                pixels / total,
                top,
                left,
                bottom,
                right,
                None if certain is None else round(certain / pixels, _DIGITS),
                float(f"{pixels * size.height * size.width:.9g}"),
                perimeter,
                size.unit,
            )
        )
    return rows


def _region_rows(
    found: Sequence[tuple[int, int, _Measured]], names: Sequence[str], size: PixelSize
) -> list[RegionRow]:
    """Rows of the table of regions, each (number, label, measured), without shapes."""
    rows = _segment_rows([(label, measured) for _, label, measured in found], names, size)
    return [RegionRow(number, *row) for (number, *_), row in zip(found, rows, strict=True)]


def _perimeters(numbers: NDArray[np.integer], size: PixelSize) -> list[float | None]:
    """Perimeter of each number that occurs; None where pixels are not square."""
    from skimage.measure import regionprops_table

    if size.height != size.width:
        return [None for _ in np.flatnonzero(np.bincount(numbers.ravel())[1:])]
    found = regionprops_table(numbers, properties=("perimeter",), spacing=size[:2])
    return _tidy(found["perimeter"])


def _tidy(values: NDArray[np.floating]) -> list[float | None]:
    """Round numbers for tables, to remove the noise of the last bits."""
    return [float(f"{value:.9g}") for value in values.tolist()]
