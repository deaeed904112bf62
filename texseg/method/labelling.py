"""From what textures say about pixels to labels and their confidence: an image that fits is one block.

A part that is too small to show its texture goes to the neighbour that explains it best, and exchanges the
probabilities of both labels; a part below ``min_size`` has the probability of the label that it got.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import connected_parts
from texseg.method.textures import Reading, Scene, Textures
from texseg.pixels.joining import BlockParts, joined_labels, parts_of_block

Place = tuple[int, ...]
Window = tuple[slice, ...]
Names = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Labels from 0 of the parts of a block: after specks, and after parts below ``min_size``, were merged."""

Labelled = tuple[NDArray[np.int32], NDArray[np.floating]]
"""Labels from 1, 0 without data, and the probability of each."""


class BlockReading(NamedTuple):
    """What is known about the h x w (or d x h x w) pixels of a block before it is joined with the others."""

    labels: NDArray[np.uint8]  # (h, w), from 1; 0 without data
    parts: BlockParts | None  # None when they have been joined
    novel: NDArray[np.bool_] | None = None  # (h, w), which pixels no texture explains; None if not requested
    confidence: NDArray | None = None
    """(h, w), probability of the labels, or as bytes times 255; None if not requested."""
    preview: NDArray[np.float32] | None = None
    """Means over squares of ``Request.preview`` pixels, (h / side, w / side) or with bands; None if 0."""
    small: NDArray[np.int64] | None = None
    """(n,), flat indices of the pixels of small parts, whose label may change."""
    of_small: NDArray | None = None  # (K, n), probabilities of all textures there, as `confidence`
    places: NDArray[np.int32] | None = None  # (h, w), part of each pixel from 1; None if it is found again
    largest_novel: NDArray[np.integer] | None = None
    """(5,), pixels of the largest part that no texture explains, first and last + 1 row and column."""


def reading_of(
    read: Reading,
    mask: NDArray[np.bool_] | None,
    small: float,
    inside: Window = (),
    origin: Place = (),
    whole: Place = (),
) -> BlockReading:
    """Find the parts of a block, and the probabilities that parts below ``small`` pixels may need.

    ``inside`` is the block within what was read; ``origin`` its first pixel in an image of the shape
    ``whole``. By default the block is the image.
    """
    labels, read = read.posteriors.labels(), read._replace(posteriors=read.scores)  # no longer needed
    if mask is not None:
        labels[~mask] = -1
    likely = read.probabilities.at(labels)[inside]
    labels = np.ascontiguousarray(labels[inside])
    if mask is not None:
        likely = likely * (labels >= 0)
    pieces = connected_parts(labels)
    changeable = pieces.sizes < small
    changeable[0] = False
    pixels = np.flatnonzero(changeable[pieces.places])
    starts = [axis.start for axis in inside] or [0] * labels.ndim
    places = [at + start for at, start in zip(np.unravel_index(pixels, labels.shape), starts, strict=True)]
    there = np.ravel_multi_index(tuple(places), read.scores.grid.image_shape)
    scores, of_small = (
        each.of(there).astype(np.float32, copy=False) for each in (read.scores, read.probabilities)
    )
    origin = origin or (0,) * labels.ndim
    parts = parts_of_block(pieces, scores, pixels, origin, whole or labels.shape)
    shown = labels.astype(np.uint8) + np.uint8(1)
    return BlockReading(shown, parts, None, likely, None, pixels, of_small, pieces.places)


def empty_reading(shape: Place, n_textures: int, whole: Place) -> BlockReading:
    """Read a block without any data."""
    pixels, of_small = np.zeros(0, np.intp), np.zeros((n_textures, 0), np.float32)
    pieces = connected_parts(np.full(shape, -1, np.int32))
    parts = parts_of_block(pieces, of_small, pixels, (0,) * len(shape), whole)
    nothing = np.zeros(shape, np.uint8), np.zeros(shape, np.float32)
    return BlockReading(nothing[0], parts, None, nothing[1], None, pixels, of_small)


def finished(block: BlockReading, names: Names, n_textures: int) -> tuple[NDArray[np.int32], BlockReading]:
    """Give the labels (h, w) of a block, from 1 (0 without data), and its reading with their confidence."""
    labels, parts = block.labels.astype(np.int32), block.parts
    confidence = None if block.confidence is None else block.confidence.copy()
    if parts is None or not all(np.array_equal(each, parts.labels) for each in names):
        places = connected_parts(labels - 1).places if block.places is None else block.places
        small = np.arange(labels.size) if block.small is None else block.small
        a = labels.ravel()[small] - 1
        b, c = (np.concatenate([[-1], each])[places.ravel()[small]] for each in names)
        labels.ravel()[small] = c + 1
        if confidence is not None:
            assert block.of_small is not None  # with the confidence
            changed = np.flatnonzero((b != a) | (c != a))
            which = np.where(c == b, a, np.where(c == a, b, c))[changed]
            confidence.ravel()[small[changed]] = block.of_small[which, changed]
    if block.novel is not None:
        unknown = block.novel & (labels > 0)
        labels[unknown] = n_textures + 1
        if confidence is not None:
            confidence[unknown] = 0
    return labels, block._replace(confidence=confidence)


def label_scene(scene: Scene, textures: Textures, smoothness: float, min_size: float = 0) -> Labelled:
    """Label every pixel of a scene, with its probability.

    Flat background is label 1, and textures are numbered after it; painted pixels keep their class.
    """
    area = textures.speck_area(smoothness)
    block = reading_of(textures.read(scene, smoothness), scene.mask, max(area, min_size))
    names = joined_labels([(0,)], lambda _: block.parts, area, min_size)[0,]
    labels, block = finished(block, names, len(textures.profiles))
    confidence = block.confidence
    assert confidence is not None  # always known of a scene
    if scene.seeds is not None:
        painted = scene.seeds > 0
        labels[painted], confidence[painted] = scene.seeds[painted], 1
        confidence[labels == 0] = 0
    if scene.ground is not None:
        labels[labels > 0] += 1
        labels[scene.ground], confidence[scene.ground] = 1, 1
    return labels, confidence


def probabilities(scene: Scene, textures: Textures, smoothness: float) -> NDArray[np.floating]:
    """Probability of every segment at every pixel, (segments, ...); zeros where there is no data."""
    area = textures.speck_area(smoothness)
    read = textures.read(scene, smoothness)
    block = reading_of(read, scene.mask, area)
    names = joined_labels([(0,)], lambda _: block.parts, area, 0)[0,]
    known = finished(block, names, len(textures.profiles))[0].ravel()
    moved = np.flatnonzero(known != block.labels.ravel())
    read.probabilities.exchange(moved, block.labels.ravel()[moved].astype(np.intp) - 1, known[moved] - 1)
    planes = read.probabilities.whole()
    if scene.mask is not None:
        planes = planes * scene.mask
    if scene.ground is not None:
        planes = np.concatenate([scene.ground[None].astype(np.float32), planes])
    return planes


def confidence_of(
    scene: Scene, textures: Textures, smoothness: float, labels: NDArray[np.integer]
) -> NDArray[np.floating]:
    """Probability of given labels, from 1; 0 where there is no data."""
    planes = probabilities(scene, textures, smoothness)
    sure = np.take_along_axis(planes, np.maximum(labels - 1, 0)[None], axis=0)[0] * (labels > 0)
    if scene.seeds is not None:
        sure[(scene.seeds > 0) & (labels > 0)] = 1
    return sure
