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
