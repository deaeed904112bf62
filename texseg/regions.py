"""What a label image holds: its segments and connected regions as tables."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")


class SegmentRow(NamedTuple):
    """One label: its pixels, its share of all labelled pixels, and the box [top, bottom) x [left, right)."""

    label: int
    name: str
    pixels: int
    fraction: float
    top: int
    left: int
    bottom: int
    right: int
    mean_confidence: float | None


class RegionRow(NamedTuple):
    """One connected region of a label; the fields after `region` are those of `SegmentRow`."""

    region: int
    label: int
    name: str
    pixels: int
    fraction: float
    top: int
    left: int
    bottom: int
    right: int
    mean_confidence: float | None


def segment_table(
    labels: NDArray[np.integer], confidence: NDArray[np.floating] | None = None, names: Sequence[str] = ()
) -> list[SegmentRow]:
    """Describe every label that occurs.

    Parameters
    ----------
    labels : ndarray of int, shape (H, W)
        Label image, 0 for no data.
    confidence : ndarray of float, shape (H, W), optional
        Confidence of each pixel's label, 0 to 1.
    names : sequence of str, optional
        Name of label 1, label 2 and so on.

    Returns
    -------
    list of SegmentRow
        Ascending by label; label 0 is left out.

    Examples
    --------
    >>> [(row.label, row.pixels, row.fraction) for row in segment_table(np.array([[0, 1], [2, 2]]))]
    [(1, 1, 0.3333333333333333), (2, 2, 0.6666666666666666)]
    """
    return [SegmentRow(label, _name(names, label), *rest) for label, rest in _measure(labels, confidence)]


def region_table(
    labels: NDArray[np.integer],
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
    *,
    regions: NDArray[np.integer] | None = None,
) -> list[RegionRow]:
    """Describe every connected region.

    Parameters
    ----------
    labels, confidence, names
        Those of :func:`segment_table`.
    regions : ndarray of int, shape (H, W), optional
        Numbers of the regions; by default those of :func:`connected_regions`.

    Returns
    -------
    list of RegionRow
        Ascending by the number of the region; label 0 has none.

    Examples
    --------
    >>> [(row.region, row.label, row.pixels) for row in region_table(np.array([[2, 0, 2], [1, 1, 2]]))]
    [(1, 2, 1), (2, 2, 2), (3, 1, 2)]
    """
    if regions is None:
        regions = connected_regions(labels)
    label_of = np.zeros(int(regions.max(initial=0)) + 1, dtype=np.int64)
    label_of[regions.ravel()] = labels.ravel()
    return [
        RegionRow(region, int(label_of[region]), _name(names, int(label_of[region])), *measures)
        for region, measures in _measure(regions, confidence)
    ]


def connected_regions(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """Give the 4-connected regions of equal label numbers from 1, row by row; 0 stays 0."""
    from skimage.measure import label

    return label(labels, background=0, connectivity=1)


class SegmentTally:
    """The table of :func:`segment_table` for an image that is seen block by block.

    Examples
    --------
    >>> tally = SegmentTally()
    >>> tally.add(np.array([[1, 2]]), (0, 0))
    >>> tally.add(np.array([[2, 2]]), (1, 0))
    >>> [(row.label, row.pixels, row.top, row.bottom) for row in tally.rows()]
    [(1, 1, 0, 1), (2, 3, 0, 2)]
    """

    def __init__(self) -> None:
        self._pixels: dict[int, int] = {}
        self._boxes: dict[int, tuple[int, int, int, int]] = {}
        self._sums: dict[int, float] = {}

    def add(
        self,
        labels: NDArray[np.integer],
        origin: tuple[int, int],
        confidence: NDArray[np.floating] | None = None,
    ) -> None:
        """Count the labels (h, w) of a block whose first pixel is at ``origin``."""
        top, left = origin
        for label, (pixels, _, *box, mean) in _measure(labels, confidence):
            here = box[0] + top, box[1] + left, box[2] + top, box[3] + left
            seen = self._boxes.get(label, here)
            first, last = np.minimum(seen, here), np.maximum(seen, here)
            self._boxes[label] = int(first[0]), int(first[1]), int(last[2]), int(last[3])
            self._pixels[label] = self._pixels.get(label, 0) + pixels
            if mean is not None:
                self._sums[label] = self._sums.get(label, 0.0) + mean * pixels

    def rows(self, names: Sequence[str] = ()) -> list[SegmentRow]:
        """Give the table, ascending by label; label 0 is left out."""
        total = sum(self._pixels.values())
        return [
            SegmentRow(
                label,
                _name(names, label),
                pixels,
                pixels / total,
                *self._boxes[label],
                round(self._sums[label] / pixels, _DIGITS) if label in self._sums else None,
            )
            for label, pixels in sorted(self._pixels.items())
        ]


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
        self._measures: list[tuple[int, float, int, int, int, int, float | None]] = []
        self._labels: list[int] = []

    def add(
        self, labels: NDArray[np.integer], confidence: NDArray[np.floating] | None = None
    ) -> NDArray[np.int64]:
        """Add the next rows (h, W); give the part of each pixel, from 1 (0 without a label).

        Parts of one region in several bands have different numbers.
        """
        own = connected_regions(labels).astype(np.int64)
        first = len(self._labels)
        label_of = np.zeros(int(own.max(initial=0)) + 1, np.int64)
        label_of[own.ravel()] = labels.ravel()
        for _, (pixels, _, top, left, bottom, right, mean) in _measure(own, confidence):
            box = top + self._top, left, bottom + self._top, right
            self._measures.append((pixels, 0.0, *box, mean))
        self._labels += label_of[1:].tolist()
        numbers = np.where(own > 0, own + first, 0)
        if self._above is not None:
            one = (self._above[0] == labels[0]) & (labels[0] > 0)
            self._links.append(np.unique(np.stack([self._above[1][one], numbers[0][one]]), axis=1))
        self._above = labels[-1].copy(), numbers[-1].copy()
        self._top += len(labels)
        return numbers

    def region_of_parts(self) -> NDArray[np.intp]:
        """Give the number of the region, from 1, of every part from 0 on; part 0 is in none."""
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

    def rows(self, names: Sequence[str] = ()) -> list[RegionRow]:
        """Give the table, ascending by the number of the region."""
        merged: dict[int, tuple[int, int, int, int, int, int, float | None]] = {}
        total = sum(measure[0] for measure in self._measures)
        regions = self.region_of_parts()[1:].tolist()
        for region, label, measure in zip(regions, self._labels, self._measures, strict=True):
            pixels, _, top, left, bottom, right, mean = measure
            certain = None if mean is None else mean * pixels
            if region in merged:
                _, more, *box, sure = merged[region]
                pixels += more
                top, left = min(top, box[0]), min(left, box[1])
                bottom, right = max(bottom, box[2]), max(right, box[3])
                certain = None if sure is None or certain is None else certain + sure
            merged[region] = label, pixels, top, left, bottom, right, certain
        rows = []
        for region, (label, pixels, top, left, bottom, right, certain) in sorted(merged.items()):
            mean = None if certain is None else round(certain / pixels, _DIGITS)
            share = pixels / total
            rows.append(
                RegionRow(region, label, _name(names, label), pixels, share, top, left, bottom, right, mean)
            )
        return rows


def harmless_cell(value: Any) -> Any:
    """Give a text that spreadsheets would take for a formula an apostrophe in front.

    Examples
    --------
    >>> harmless_cell("=1+1"), harmless_cell("sand"), harmless_cell(-1)
    ("'=1+1", 'sand', -1)
    """
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA_SIGNS) else value


def csv_text(rows: Sequence[SegmentRow] | Sequence[RegionRow], fields: Sequence[str]) -> str:
    """Comma-separated table with a header line; confidences that are not known stay empty."""
    buffer = StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(fields)
    writer.writerows(map(harmless_cell, row) for row in rows)
    return buffer.getvalue()


def _name(names: Sequence[str], label: int) -> str:
    return names[label - 1] if 0 < label <= len(names) else ""


_DIGITS = 6  # of mean confidences: beyond, they depend on how many threads added them up


def _measure(
    numbers: NDArray[np.integer], confidence: NDArray[np.floating] | None
) -> Iterator[tuple[int, tuple[int, float, int, int, int, int, float | None]]]:
    """Yield each number above 0 with its pixels, fraction, box and mean confidence."""
    from scipy.ndimage import find_objects

    counts = np.bincount(numbers.ravel())
    total = int(counts[1:].sum())
    sums = None if confidence is None else np.bincount(numbers.ravel(), weights=confidence.ravel())
    for number, box in enumerate(find_objects(numbers), start=1):
        if box is not None:
            rows, columns = box
            count = int(counts[number])
            mean = None if sums is None else round(float(sums[number] / count), _DIGITS)
            yield number, (count, count / total, rows.start, columns.start, rows.stop, columns.stop, mean)
