"""Composites: images made of an image's own segments, whose borders are known to the pixel."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.planes import Planes
from texseg.threads import side_by_side

_TRIES = 24  # candidate sources of a piece; the one that fills most of it is taken
_STRIDE = 4  # how much of a piece a source fills is measured on one in 4 * 4 of its pixels
_ROWS = 512  # of labels, looked at once
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
    reach = math.ceil(margin) + 1

    def inner(top: int) -> NDArray[np.bool_]:
        first = max(0, top - reach)
        return border_distance(labels[first : top + _ROWS + reach])[top - first :][:_ROWS] > margin

    far = np.concatenate(side_by_side(inner, range(0, len(labels), _ROWS)))
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
    shares = np.cumsum(sizes / sizes.sum(axis=0), axis=0)
    shares /= shares[-1]
    given = rng.permutation(np.resize(rng.permutation(n_labels), n_pieces)).astype(np.int32)
    # pixels of all images in one row, and the pixels of the composite, sorted by their piece
    first = np.cumsum([0, *(one.size for one in usable)])
    labels = usable[0].ravel() if len(usable) == 1 else np.concatenate([one.ravel() for one in usable])
    order = np.argsort(pieces, axis=None, kind="stable")
    ys, xs = np.divmod(order, width)
    numbers = np.bincount(pieces.ravel(), minlength=n_pieces)
    ends = np.cumsum(numbers)
    sources, anchors = np.empty(n_pieces, np.intp), np.empty((n_pieces, _TRIES), np.intp)
    inside: dict[tuple[int, int], NDArray[np.intp]] = {}
    for piece, label in enumerate(given.tolist()):
        sources[piece] = source = int(shares[:, label].searchsorted(rng.random(), "right"))
        if (source, label) not in inside:
            inside[source, label] = np.flatnonzero(usable[source] == label)
        anchors[piece] = rng.integers(0, len(inside[source, label]), _TRIES)
        anchors[piece] = inside[source, label][anchors[piece]]
    H, W = np.array([one.shape for one in usable])[sources].T
    down, across = np.divmod(anchors.T, W)  # (tries, pieces), to where the centre of each piece moves
    down -= np.add.reduceat(ys, ends - numbers) // numbers
    across -= np.add.reduceat(xs, ends - numbers) // numbers

    def look(some: Any, down: Any, across: Any) -> tuple[Any, Any]:
        """Give where some pixels come from, clipped, and whether with their label."""
        piece = pieces.ravel()[order[some]]
        (y, x), h, w = (ys[some] + down[..., piece], xs[some] + across[..., piece]), H[piece], W[piece]
        held = (y >= 0) & (y < h) & (x >= 0) & (x < w)
        at = first[sources[piece]] + np.clip(y, 0, h - 1) * w + np.clip(x, 0, w - 1)
        return at, held & (labels[at] == given[piece])

    some = np.flatnonzero((np.arange(order.size) - (ends - numbers).repeat(numbers)) % _STRIDE**2 == 0)
    n = -(-numbers // _STRIDE**2)
    fits = look(some, down, across)[1]
    best = np.argmax(np.add.reduceat(fits, np.cumsum(n) - n, axis=1, dtype=np.intp), axis=0)
    at, fits = look(slice(None), *(by[best, np.arange(n_pieces)] for by in (down, across)))
    filled = np.empty(height * width, bool)
    filled[order] = fits
    bands = []
    for same in zip(*(planes.bands for planes in images), strict=True):
        values = same[0].ravel() if len(same) == 1 else np.concatenate([plane.ravel() for plane in same])
        bands.append(np.empty((height, width), values.dtype))
        bands[-1].ravel()[order] = values[at]
    return Composite(Planes(bands, None, []), given[pieces], filled.reshape(height, width))


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
