"""What a report tells about a segmentation, as plain data for the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.metrics import match_labels
from texseg.overlay import deepest_places
from texseg.regions import palette, region_table, segment_table
from texseg.report.pictures import CROP_SIDE, labels_uri, reduced_labels
from texseg.report.words import Look, describe

__all__ = ["level_content", "palette_of", "steady_levels"]

_MOST_SAMPLES = 3
_MOST_REGIONS = 12  # the largest regions of each segment are listed, at most this many
_SMALLEST_REGION = 0.01  # of the segment's area; smaller ones are specks, which are only counted


def steady_levels(
    labels: NDArray[np.integer], hierarchy: Any, shown: tuple[int, int]
) -> Iterator[tuple[int, NDArray[np.integer]]]:
    """Label images with other numbers of segments, numbered so that colours stay while the number changes.

    Starting from ``labels``, a segment of the next finer or coarser segmentation takes the number of the
    segment with which it shares most pixels.

    Yields
    ------
    number of segments, int array of the shape ``shown``
    """
    own = len(np.unique(labels[labels > 0]))
    numbers = sorted(int(k) for k in hierarchy.n_segments)
    finer = [k for k in numbers if k > own]
    coarser = [k for k in reversed(numbers) if k < own]
    for way in (finer, coarser):
        reference = reduced_labels(labels, shown)
        for k in way:
            level = reduced_labels(hierarchy.labels(k), shown)
            reference = match_labels(level, reference, ignore_label=0)
            yield k, reference


def level_content(
    n_segments: int,
    labels: NDArray[np.integer],
    bins: NDArray[Any],
    *,
    shape: tuple[int, int],
    shown: tuple[int, int],
    features: Features,
    look: Look,
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe one label image: its picture, and of every segment words, areas, parts and histograms.

    The image has the size ``shape``; ``labels`` and ``bins`` may have been subsampled, and numbers of pixels
    are then estimates. Instead of whole numbers (C, H, W), ``bins`` may hold the profiles (K, C, n_bins) of
    the labels from 1, which sum to one.
    """
    down, across = shape[0] / labels.shape[0], shape[1] / labels.shape[1]
    regions: dict[int, list[Any]] = {}
    for region in region_table(labels, shapes=False):
        regions.setdefault(region.label, []).append(region)
    segments = []
    rows = segment_table(labels, confidence, names, shapes=False)
    numbers = [row.label for row in rows]
    if bins.dtype.kind == "f":
        known = np.concatenate([bins, bins.mean(axis=0, keepdims=True)])  # the last is for unknown textures
        shares = known[np.minimum(numbers, len(bins) + 1) - 1]
    else:
        shares = _histograms(labels, numbers, bins, features.n_bins)
    words = describe(labels, numbers, shares, features, look.at((labels.shape[0], labels.shape[1])))
    for row, sentence in zip(rows, words, strict=True):
        parts = sorted(regions[row.label], key=lambda region: -region.pixels)
        listed = [
            p for p in parts[:_MOST_REGIONS] if p is parts[0] or p.pixels >= _SMALLEST_REGION * row.pixels
        ]
        segments.append(
            {
                "label": row.label,
                "name": row.name,
                "pixels": round(row.pixels * down * across),
                "fraction": row.fraction,
                "confidence": row.mean_confidence,
                "n_parts": len(parts),
                "parts": [_part(p, down, across) for p in listed],
                "words": sentence,
                "samples": _samples(labels, row, down, across),
            }
        )
    return {
        "n": n_segments,
        "estimated": labels.shape != shape,
        "labels": labels_uri(reduced_labels(labels, shown)),
        "segments": segments,
        "histograms": b64encode(np.rint(shares * 65535).astype("<u2").tobytes()).decode("ascii"),
    }


def _part(region: Any, down: float, across: float) -> list[int]:
    """Pixels and box (top, left, bottom, right) of a region, in pixels of the image."""
    box = (region.top * down, region.left * across, region.bottom * down, region.right * across)
    return [round(region.pixels * down * across), *map(round, box)]


def palette_of(largest: int) -> list[list[int]]:
    """Colours of the labels 0 ... ``largest``."""
    return palette(largest).tolist()


def _samples(labels: NDArray[np.integer], row: Any, down: float, across: float) -> list[list[int]]:
    """Centres (row, column) of sample squares of a segment, in pixels of the image."""
    box = slice(row.top, row.bottom), slice(row.left, row.right)
    places = deepest_places(labels, row.label, box, _MOST_SAMPLES, apart=CROP_SIDE)
    return [[round((y + 0.5) * down), round((x + 0.5) * across)] for y, x, _ in places]


def _histograms(
    labels: NDArray[np.integer], numbers: Sequence[int], bins: NDArray[np.uint8], n_bins: int
) -> NDArray[np.floating]:
    """Histograms (segments, C, n_bins), each summing to one."""
    place = np.zeros(int(labels.max(initial=0)) + 1, np.int32)
    place[numbers] = np.arange(1, len(numbers) + 1)
    first = place[labels] * n_bins
    table = np.stack(
        [np.bincount((first + plane).ravel(), minlength=(len(numbers) + 1) * n_bins) for plane in bins],
        axis=1,
    )
    table = table.reshape(len(numbers) + 1, n_bins, len(bins))[1:].transpose(0, 2, 1)
    return table / table.sum(axis=2, keepdims=True)
