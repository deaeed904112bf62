"""The contents of a label image: tables of its segments and connected regions, and one colour a label."""

from __future__ import annotations

import colorsys
import csv
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")
_DIGITS = 6  # of mean confidences; further ones depend on the number of threads that added them up


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
        Ascending by label; label 0 is skipped.

    Examples
    --------
    >>> [(row.label, row.pixels, row.fraction) for row in segment_table(np.array([[0, 1], [2, 2]]))]
    [(1, 1, 0.3333333333333333), (2, 2, 0.6666666666666666)]
    """
    tally = Tally(with_regions=False)
    tally.add(labels, confidence)
    return tally.segments(names, PixelSize(*(pixel_size or ())), labels if shapes else None)


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
        Ascending by the number of the region; label 0 is skipped.

    Examples
    --------
    >>> [(row.region, row.label, row.pixels) for row in region_table(np.array([[2, 0, 2], [1, 1, 2]]))]
    [(1, 2, 1), (2, 2, 2), (3, 1, 2)]
    """
    tally = Tally()
    numbers = tally.add(labels, confidence, regions)
    return tally.regions(names, PixelSize(*(pixel_size or ())), numbers if shapes else None)


def connected_regions(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """Give the 4-connected regions of equal labels numbers from 1, row by row; 0 stays 0."""
    from skimage.measure import label

    return label(labels, background=0, connectivity=1)


class Tally:
    """Both tables, of an image that comes in bands of rows from top to bottom; a whole image is one band.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.add(np.array([[2, 0, 2]])).tolist(), tally.add(np.array([[1, 1, 2]])).tolist()
    ([[1, 0, 2]], [[3, 3, 4]])
    >>> tally.region_of_parts().tolist()
    [0, 1, 2, 3, 2]
    >>> [(row.region, row.label, row.pixels) for row in tally.regions()]
    [(1, 2, 1), (2, 2, 2), (3, 1, 2)]
    """

    def __init__(self, with_regions: bool = True) -> None:
        self._top = 0
        self._segments: dict[int, _Measured] = {}
        self._with_regions = with_regions
        self._parts: list[tuple[int, int, _Measured]] = []  # number, label
        self._n_parts = 0
        self._links: list[NDArray[np.int64]] = []
        self._above: tuple[NDArray[Any], NDArray[Any]] | None = None

    def add(
        self,
        labels: NDArray[np.integer],
        confidence: NDArray[np.floating] | None = None,
        numbers: NDArray[np.integer] | None = None,
    ) -> NDArray[np.integer]:
        """Add the next rows (h, W); return the part of each pixel, from 1 (0 without a label).

        Parts of one region in different bands have different numbers. Those of a single band may be given.
        """
        for label, measured in _measure(labels, confidence):
            measured = measured.lowered(self._top)
            self._segments[label] = measured.joined(self._segments.get(label))
        if self._with_regions:
            numbers = self._add_parts(labels, confidence, numbers)
        self._top += len(labels)
        return labels if numbers is None else numbers

    def _add_parts(
        self,
        labels: NDArray[np.integer],
        confidence: NDArray[np.floating] | None,
        given: NDArray[np.integer] | None,
    ) -> NDArray[np.integer]:
        own = connected_regions(labels) if given is None else given
        label_of = np.zeros(int(own.max(initial=0)) + 1, np.int64)
        label_of[own.ravel()] = labels.ravel()
        first = self._n_parts
        self._n_parts += len(label_of) - 1
        self._parts += [
            (n + first, int(label_of[n]), found.lowered(self._top)) for n, found in _measure(own, confidence)
        ]
        numbers = np.where(own > 0, own + np.int64(first), 0) if first else own
        if self._above is not None:
            one = (self._above[0] == labels[0]) & (labels[0] > 0)
            self._links.append(np.unique(np.stack([self._above[1][one], numbers[0][one]]), axis=1))
        self._above = labels[-1].copy(), numbers[-1].copy()
        return numbers

    def region_of_parts(self) -> NDArray[np.intp]:
        """Give the number of each part's region, from 1; part 0 belongs to none and gets 0."""
        n = self._n_parts
        if not self._links:
            return np.arange(n + 1)
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        links = np.concatenate(self._links, axis=1) - 1
        graph = coo_matrix((np.ones(links.shape[1], bool), tuple(links)), (n, n))
        _, group = connected_components(graph, directed=False)
        _, first, back = np.unique(group, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.intp)
        rank[np.argsort(first)] = np.arange(1, len(first) + 1)  # parts are in the order of first pixels
        return np.append(0, rank[back])

    @property
    def measured(self) -> dict[int, _Measured]:
        """What was found of each label that occurs."""
        return self._segments

    def segments(
        self,
        names: Sequence[str] = (),
        size: PixelSize = PIXELS,
        whole: NDArray[np.integer] | None = None,
    ) -> list[SegmentRow]:
        """Give the table of labels, ascending; perimeters need the ``whole`` labels (H, W)."""
        rows = _segment_rows(sorted(self._segments.items()), names, size)
        if whole is None:
            return rows
        return [
            row._replace(perimeter=length) for row, length in zip(rows, _perimeters(whole, size), strict=True)
        ]

    def regions(
        self,
        names: Sequence[str] = (),
        size: PixelSize = PIXELS,
        whole: NDArray[np.integer] | None = None,
    ) -> list[RegionRow]:
        """Give the table of regions, ascending; shapes need the ``whole`` numbers (H, W) of the regions."""
        merged: dict[int, tuple[int, _Measured]] = {}
        region_of = self.region_of_parts().tolist()
        for part, label, found in self._parts:
            region = region_of[part]
            merged[region] = label, found.joined(merged[region][1] if region in merged else None)
        numbers = sorted(merged)
        segments = _segment_rows([merged[number] for number in numbers], names, size)
        rows = [RegionRow(number, *row) for number, row in zip(numbers, segments, strict=True)]
        if whole is None:
            return rows
        from skimage.measure import regionprops_table

        table = regionprops_table(whole, properties=_SHAPE, spacing=size[:2])
        table["centroid-0"] /= size.height
        table["centroid-1"] /= size.width
        measured = zip(rows, _perimeters(whole, size), *map(_tidy, table.values()), strict=True)
        return [
            RegionRow._make((*row._replace(perimeter=perimeter)[: -len(shape)], *shape))
            for row, perimeter, *shape in measured
        ]


def mean_confidence(tallies: Iterable[Tally]) -> float | None:
    """Mean over all labelled pixels of several pages; None if it is not known."""
    found = [measured for tally in tallies for measured in tally.measured.values()]
    sums = [measured.certain for measured in found]
    if not sums or None in sums:
        return None
    return sum(filter(None, sums)) / sum(measured.pixels for measured in found)


class _Measured(NamedTuple):
    """Number of pixels of a label or region, its box, and the sum of the pixels' confidence."""

    pixels: int
    top: int
    left: int
    bottom: int
    right: int
    certain: float | None

    def lowered(self, rows: int) -> _Measured:
        return self._replace(top=self.top + rows, bottom=self.bottom + rows)

    def joined(self, other: _Measured | None) -> _Measured:
        if other is None:
            return self
        certain = None if self.certain is None or other.certain is None else self.certain + other.certain
        top, left = map(min, self[1:3], other[1:3])
        bottom, right = map(max, self[3:5], other[3:5])
        return _Measured(self.pixels + other.pixels, top, left, bottom, right, certain)


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
    found: Sequence[tuple[int, _Measured]], names: Sequence[str], size: PixelSize
) -> list[SegmentRow]:
    """Rows of the table of segments, without perimeters."""
    total = sum(measured.pixels for _, measured in found)
    colours = hex_colours(max((label for label, _ in found), default=0))
    return [
        SegmentRow(
            label,
            names[label - 1] if label <= len(names) else "",
            colours[label - 1],
            measured.pixels,
            measured.pixels / total,
            *measured[1:5],
            None if measured.certain is None else round(measured.certain / measured.pixels, _DIGITS),
            float(f"{measured.pixels * size.height * size.width:.9g}"),
            None,
            size.unit,
        )
        for label, measured in found
    ]


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


# ---- as text -----------------------------------------------------------------------------------------------


def harmless_cell(value: Any) -> Any:
    r"""Escape what a terminal would interpret, and put an apostrophe before what spreadsheets calculate.

    Examples
    --------
    >>> harmless_cell("=1+1"), harmless_cell("sand"), harmless_cell(-1), harmless_cell("a\x1b[2J")
    ("'=1+1", 'sand', -1, 'a\\x1b[2J')
    """
    if not isinstance(value, str):
        return value
    quote = "'" if value.startswith(_FORMULA_SIGNS) else ""
    return quote + "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in ("Cc", "Cs") else c for c in value
    )


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


# ---- colours -----------------------------------------------------------------------------------------------

_COLOURS = """
    0072b2 e69f00 009e73 cc79a7 f0e442 56b4e9 d55e00
    ddeedd 881100 555555 334466 2200dd 99cc88 eeddff ccaaaa 8877ff 885544 667777 bbffaa bb3300
""".split()
"""The first seven are those of Okabe and Ito (2008, "Color Universal Design"); the next thirteen are those
that stay farthest from each other and from black under normal, protanopic, deuteranopic and tritanopic vision
(Machado et al. 2009): any two of the twenty differ by at least 10.8 (CIEDE2000)."""

_GOLDEN_RATIO = (5**0.5 - 1) / 2


def palette(n_labels: int) -> NDArray[np.uint8]:
    """Colours of the labels 0 to `n_labels`, the same in every output.

    Parameters
    ----------
    n_labels : int
        Largest label.

    Returns
    -------
    ndarray of uint8, shape (n_labels + 1, 3)
        Red, green, blue; row 0, for "no data", is black. Above label 20 the colours are spread over all hues
        and no longer chosen for colour-blind readers.

    Examples
    --------
    >>> palette(2).tolist()
    [[0, 0, 0], [0, 114, 178], [230, 159, 0]]
    """
    return np.array([(0, 0, 0), *map(_colour, range(n_labels))], dtype=np.uint8)


def hex_colours(n_labels: int) -> list[str]:
    """Colours of the labels 1 to `n_labels` as ``#0072b2``."""
    return ["#{:02x}{:02x}{:02x}".format(*_colour(index)) for index in range(n_labels)]


def _colour(index: int) -> tuple[int, ...]:
    """Take one of the list; after it hues of a golden-ratio sequence, with alternating lightness."""
    if index < len(_COLOURS):
        return tuple(bytes.fromhex(_COLOURS[index]))
    hue = (index * _GOLDEN_RATIO) % 1.0
    lightness = (0.35, 0.5, 0.65, 0.8)[index % 4]
    return tuple(round(255 * part) for part in colorsys.hls_to_rgb(hue, lightness, 0.8))
