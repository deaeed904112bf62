"""Composites: images made of an image's own segments, whose borders are known to the pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.planes import Planes
from texseg.threads import side_by_side

_TRIES = 24  # candidate sources of a piece; the one that fills most of it is taken
_STRIDE = 4  # how much of a piece a source fills is measured on one in 4 * 4 of its pixels
_LARGEST = 300  # pixels, largest side of a composite


class Composite(NamedTuple):
    """An image with known labels."""

    planes: Planes
    labels: NDArray[np.int32]  # (H, W), from 0
    filled: NDArray[np.bool_]
    """(H, W), True where there is texture of that label; elsewhere the pixels are meaningless."""


def border_distance(labels: NDArray[np.integer]) -> NDArray[np.float32]:
    """Distance of every pixel from the nearest one that touches another label; float32 (H, W), pixels."""
    inner = np.ones(labels.shape, np.uint8)
    across, down = labels[:, 1:] != labels[:, :-1], labels[1:] != labels[:-1]
    for side in (inner[:, 1:], inner[:, :-1]):
        side[across] = 0
    for side in (inner[1:], inner[:-1]):
        side[down] = 0
    if inner.all():
        return np.full(labels.shape, np.inf, np.float32)
    return np.asarray(cv2.distanceTransform(inner, cv2.DIST_L2, cv2.DIST_MASK_PRECISE), np.float32)


def trusted(
    labels: NDArray[np.int32], margin: float, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """Labels, replaced by -1 within ``margin`` pixels of a border and where the mask has no data."""
    far = border_distance(labels) > margin
    return np.where(far if mask is None else far & mask, labels, np.int32(-1))


def label_sizes(labels: NDArray[np.int32], n_labels: int) -> NDArray[np.intp]:
    """Pixels of each label from 0 to ``n_labels`` - 1; faster than counting all values at once."""
    return np.array(side_by_side(lambda k: np.count_nonzero(labels == k), range(n_labels)), np.intp)


def compose(
    images: Sequence[Planes],
    usable: Sequence[NDArray[np.int32]],
    n_labels: int,
    side: float,
    rng: np.random.Generator,
) -> Composite:
    """Put pieces of ``usable`` texture (labels (H, W), else -1), ``side`` pixels wide, together at random."""
    height, width = np.minimum(np.max([one.shape for one in usable], axis=0), _LARGEST).tolist()
    pieces, n_pieces = _layout(height, width, side, 2 * n_labels, rng)
    sizes = np.array([label_sizes(one, n_labels) for one in usable], float)
    shares = sizes / sizes.sum(axis=0)
    given = rng.permutation(np.resize(rng.permutation(n_labels), n_pieces))
    truth = given.astype(np.int32)[pieces]
    filled = np.zeros((height, width), bool)
    dtypes = [np.result_type(*same) for same in zip(*(planes.bands for planes in images), strict=True)]
    bands = [np.zeros((height, width), dtype) for dtype in dtypes]
    inside: dict[tuple[int, int], NDArray[np.intp]] = {}
    order = np.argsort(pieces, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(pieces.ravel(), minlength=n_pieces))
    for own, label in zip(np.split(order, ends[:-1]), given, strict=True):
        to = np.stack(np.divmod(own, width))
        source = int(rng.choice(len(images), p=shares[:, label]))
        if (source, label) not in inside:
            inside[source, label] = np.flatnonzero(usable[source] == label)
        at, fits = _place(to, usable[source], int(label), inside[source, label], rng)
        filled[tuple(to)] = fits
        for band, plane in zip(bands, images[source].bands, strict=True):
            band[tuple(to)] = plane[tuple(at)]
    return Composite(Planes(bands, None), truth, filled)


def _layout(
    height: int, width: int, side: float, fewest: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint16], int]:
    """Lay out pieces nearest to random seeds; return each pixel's piece, and the number of pieces."""
    n_pieces = max(fewest, round(height * width / side**2))
    seeds = np.ones((height, width), np.uint8)
    seeds[tuple((rng.random((n_pieces, 2)) * seeds.shape).astype(int).T)] = 0
    _, nearest = cv2.distanceTransformWithLabels(
        seeds, cv2.DIST_L2, cv2.DIST_MASK_5, labelType=cv2.DIST_LABEL_PIXEL
    )
    return (nearest - 1).astype(np.uint16), int(nearest.max())


def _place(
    to: NDArray[np.intp],
    usable: NDArray[np.integer],
    label: int,
    inside: NDArray[np.intp],
    rng: np.random.Generator,
) -> tuple[NDArray[np.intp], Any]:
    """Choose where the pixels (2, n) of a piece come from, and say which of them get their label's texture.

    ``inside`` holds the flat indices of usable pixels of that label.
    """
    centre = to.mean(axis=1).astype(int)
    anchors = np.stack(np.unravel_index(rng.choice(inside, _TRIES), usable.shape))
    shifts = (anchors - centre[:, None])[:, :, None]
    _, fits = _shifted(to[:, None, :: _STRIDE**2], shifts, usable, label)
    return _shifted(to, shifts[:, int(fits.sum(axis=1).argmax())], usable, label)


def _shifted(
    pixels: NDArray[np.intp], shifts: NDArray[np.intp], usable: NDArray[np.integer], label: int
) -> tuple[NDArray[np.intp], Any]:
    """Shift pixels (2, ...), clipped to the image, and say which come from usable texture of a label."""
    moved = pixels + shifts
    limits = np.array(usable.shape).reshape(2, *[1] * (moved.ndim - 1))
    held = np.clip(moved, 0, limits - 1)
    return held, (usable[tuple(held)] == label) & (held == moved).all(axis=0)
