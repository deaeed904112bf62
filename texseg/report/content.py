"""What a report tells about a segmentation, as plain data for the page."""

import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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
    labels: NDArray[np.integer], hierarchy: Any, shown: tuple[int, ...]
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
    shape: tuple[int, ...],
    shown: tuple[int, ...],
    features: Features,
    look: Look,
    confidence: NDArray[np.floating] | None = None,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe one label image: its picture, and of every segment words, areas, parts and histograms.

    The image has the size ``shape``; ``labels`` and ``bins`` may have been subsampled, and numbers of pixels
    are then estimates. Instead of whole numbers (C, H, W), ``bins`` may hold the profiles (K, C, n_bins) of
    the labels from 1, which sum to one. A volume has three axes, and its places a plane.
    """
    film = _Film(labels.shape[-2] + 1, tuple(N / n for N, n in zip(shape, labels.shape, strict=True)))
    flat, regions = film.flat(labels), film.flat(connected_regions(labels))
    parts_of: dict[int, list[Any]] = {}
    for region in region_table(flat, regions=regions, shapes=False):
        parts_of.setdefault(region.label, []).append(region)
    rows = segment_table(flat, None if confidence is None else film.flat(confidence), names)
    numbers = [row.label for row in rows]
    if bins.dtype.kind == "f":
        known = np.concatenate([bins, bins.mean(axis=0, keepdims=True)])  # the last is for unknown textures
        shares = known[np.minimum(numbers, len(bins) + 1) - 1]
    else:
        shares = _histograms(labels, numbers, bins, features.n_bins)
    height = labels.size // labels.shape[-1]
    words = describe(labels, numbers, shares, features, look.at((height, labels.shape[-1])))
    found = plain_level(n_segments, labels, shape, shown)
    for segment, row, sentence in zip(found["segments"], rows, words, strict=True):
        parts = sorted(parts_of[row.label], key=lambda region: -region.pixels)
        listed = [
            p for p in parts[:_MOST_REGIONS] if p is parts[0] or p.pixels >= _SMALLEST_REGION * row.pixels
        ]
        box = slice(row.top, row.bottom), slice(row.left, row.right)
        apart = max(CROP_SIDE, len(flat) // (2 * _MOST_SAMPLES) * (labels.ndim - 2))  # in other planes
        places = deepest_places(flat, row.label, box, _MOST_SAMPLES, apart)
        segment |= {"name": row.name, "words": sentence, "confidence": row.mean_confidence}
        segment |= {"n_parts": len(parts), "parts": [film.part(p, regions) for p in listed]}
        segment["samples"] = [film.place(y, x) for y, x, _ in places]
    found["histograms"] = b64encode(np.rint(shares * 65535).astype("<u2").tobytes()).decode("ascii")
    return found


def plain_level(
    n_segments: int, labels: NDArray[np.integer], shape: tuple[int, ...], shown: tuple[int, ...]
) -> dict[str, Any]:
    """Describe the labels of an image or a volume of a shape by their numbers of pixels alone."""
    sizes, scale = np.bincount(labels.ravel()), math.prod(shape) / labels.size
    empty: dict[str, Any] = dict.fromkeys(("n_parts", "confidence")) | dict.fromkeys(("name", "words"), "")
    empty |= {"parts": [], "samples": []}
    segments = [
        {"label": k, "pixels": round(n * scale), "fraction": float(n / sizes[1:].sum()), **empty}
        for k, n in enumerate(sizes)
        if k and n
    ]
    found = {"n": n_segments, "labels": labels_uri(reduced_labels(labels, shown)), "segments": segments}
    return found | {"estimated": labels.shape != shape, "histograms": ""}


class _Film(NamedTuple):
    """Planes of a volume below each other, with an empty row after each; an image is one plane."""

    rows: int  # of a plane, with the empty one
    scale: tuple[float, ...]  # of the image or volume, for one of the labels, along each axis

    def flat(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put planes below each other."""
        planes = values.reshape(-1, *values.shape[-2:])
        return np.pad(planes, ((0, 0), (0, 1), (0, 0))).reshape(-1, values.shape[-1])

    def place(self, row: int, column: int) -> list[int]:
        """Row and column in the image; of a volume also the number of the plane among those shown."""
        plane, row = divmod(row, self.rows)
        here = [int((at + 0.5) * step) for at, step in zip((row, column), self.scale[-2:], strict=True)]
        return [*here, *[plane] * (len(self.scale) - 2)]

    def part(self, region: Any, regions: NDArray[np.integer]) -> list[int]:
        """Pixels of a connected region, its box in the plane of its deepest place, and that."""
        box = slice(region.top, region.bottom), slice(region.left, region.right)
        ((y, x, _),) = deepest_places(regions, region.region, box)
        first = y - y % self.rows
        inside = np.argwhere(regions[first : first + self.rows, box[1]] == region.region) + [0, region.left]
        corners = np.stack([inside.min(axis=0), inside.max(axis=0) + 1]) * self.scale[-2:]
        pixels = round(region.pixels * math.prod(self.scale))
        return [pixels, *np.rint(corners).astype(int).ravel().tolist(), *self.place(y, x)]


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
