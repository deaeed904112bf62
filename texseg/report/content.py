"""What a report tells about a segmentation, as plain data for the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.io.display import deepest_places
from texseg.io.regions import connected_regions, region_table, segment_table
from texseg.metrics import match_labels
from texseg.report.pictures import CROP_SIDE, labels_uri, reduced_labels
from texseg.report.words import Look, describe

_MOST_SAMPLES = 3
_MOST_REGIONS = 12  # the largest regions of each segment are listed, at most this many
_SMALLEST_REGION = 0.01  # of the segment's area; smaller ones are specks, which are only counted


def steady_levels(
    labels: NDArray[np.integer], hierarchy: Any, shown: tuple[int, int]
) -> Iterator[tuple[int, NDArray[np.integer]]]:
    """Yield other numbers of segments with their labels in the shape ``shown``, in colours that stay.

    Starting from ``labels``, a segment of the next finer or coarser segmentation gets the number of the
    segment with which it shares most pixels.
    """
    own = len(np.unique(labels[labels > 0]))
    numbers = sorted(int(k) for k in hierarchy.n_segments)
    for way in ([k for k in numbers if k > own], [k for k in reversed(numbers) if k < own]):
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
    scale = shape[0] / labels.shape[0], shape[1] / labels.shape[1]
    regions = connected_regions(labels)
    parts_of: dict[int, list[Any]] = {}
    for region in region_table(labels, regions=regions, shapes=False):
        parts_of.setdefault(region.label, []).append(region)
    segments = []
    rows = segment_table(labels, confidence, names)
    numbers = [row.label for row in rows]
    if bins.dtype.kind == "f":
        known = np.concatenate([bins, bins.mean(axis=0, keepdims=True)])  # the last is for unknown textures
        shares = known[np.minimum(numbers, len(bins) + 1) - 1]
    else:
        shares = _histograms(labels, numbers, bins, features.n_bins)
    words = describe(labels, numbers, shares, features, look.at((labels.shape[0], labels.shape[1])))
    for row, sentence in zip(rows, words, strict=True):
        parts = sorted(parts_of[row.label], key=lambda region: -region.pixels)
        listed = [
            p for p in parts[:_MOST_REGIONS] if p is parts[0] or p.pixels >= _SMALLEST_REGION * row.pixels
        ]
        box = slice(row.top, row.bottom), slice(row.left, row.right)
        places = deepest_places(labels, row.label, box, _MOST_SAMPLES, apart=CROP_SIDE)
        segments.append(
            {
                "label": row.label,
                "name": row.name,
                "pixels": round(row.pixels * scale[0] * scale[1]),
                "fraction": row.fraction,
                "confidence": row.mean_confidence,
                "n_parts": len(parts),
                "parts": [_part(p, regions, scale) for p in listed],
                "words": sentence,
                "samples": [_place(y, x, scale) for y, x, _ in places],
                "room": round(places[0][2] * min(scale), 1),
            }
        )
    return {
        "n": n_segments,
        "estimated": labels.shape != shape,
        "labels": labels_uri(reduced_labels(labels, shown)),
        "segments": segments,
        "histograms": b64encode(np.rint(shares * 65535).astype("<u2").tobytes()).decode("ascii"),
    }


def _place(row: float, column: float, scale: tuple[float, float]) -> list[int]:
    return [int((row + 0.5) * scale[0]), int((column + 0.5) * scale[1])]


def _part(region: Any, regions: NDArray[np.integer], scale: tuple[float, float]) -> list[int]:
    box = slice(region.top, region.bottom), slice(region.left, region.right)
    ((y, x, _),) = deepest_places(regions, region.region, box)
    sides = np.array([[region.top, region.left], [region.bottom, region.right]])
    corners = np.rint(sides * scale).astype(int).ravel().tolist()
    return [round(region.pixels * scale[0] * scale[1]), *corners, *_place(y, x, scale)]


def _histograms(
    labels: NDArray[np.integer], numbers: Sequence[int], bins: NDArray[np.uint8], n_bins: int
) -> NDArray[np.floating]:
    place = np.zeros(int(labels.max(initial=0)) + 1, np.int32)
    place[numbers] = np.arange(1, len(numbers) + 1)
    first = place[labels] * n_bins
    length = (len(numbers) + 1) * n_bins
    table = np.stack([np.bincount((first + plane).ravel(), minlength=length) for plane in bins], axis=1)
    table = table.reshape(len(numbers) + 1, n_bins, len(bins))[1:].transpose(0, 2, 1)
    return table / table.sum(axis=2, keepdims=True)
