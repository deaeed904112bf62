"""Images larger than memory: read, labelled and joined block by block, with the labels of the whole.

Blocks begin at multiples of the cells, and each is read with a margin wide enough for filters and windows, so
that its pixels are treated exactly as in the whole image. Only the labels of small parts depend on more: they
are settled by one pass over the parts of all blocks (:mod:`texseg.pixels.joining`).

Textures are learned from crops spread evenly over the image, each placed at random in its field of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features, encode
from texseg.channels.planes import NoValidPixels, split_planes
from texseg.counts.sites import WINDOW_STEP
from texseg.method.textures import Scene, Textures
from texseg.pixels.joining import BlockParts, joined_labels, parts_of_block
from texseg.pixels.label import connected_parts
from texseg.threads import crew_size, map_in_order, one_blas_thread

__all__ = [
    "ArrayWindows",
    "BlockReading",
    "BlockPlan",
    "Windows",
    "finished",
    "label_blocks",
    "labels_of_array",
    "plan_blocks",
    "read_block",
    "sample_windows",
]

Place = tuple[int, int]
Window = tuple[slice, slice]

SIDE = 1024
"""Side of a block in pixels: with 512, margins cost 1.4 times as much; 2048 needs three times the memory."""

CROP_SIDE = 512
CROPS = 16
"""Textures are learned from this many crops of this side; see ``benchmarks/tiles.py``."""

_REDUCTION = 4  # illumination and neighbourhoods are computed on a grid this many times coarser


class Windows(Protocol):
    """An image that is read window by window."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of pixels."""

    @property
    def channel_axis(self) -> int | None:
        """-1 where windows have bands, None for grey images."""

    def read(self, window: Window) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Pixels (h, w) or (h, w, bands) of a window, and where they hold data (None: everywhere)."""


class ArrayWindows:
    """Windows of anything that can be sliced like an array: in memory, memory-mapped, zarr, HDF5.

    Parameters
    ----------
    array : array-like with ``shape`` and slices, of shape (H, W), or with bands along ``channel_axis``
    channel_axis : int, optional
    mask : the same of shape (H, W), optional
        Non-zero where there is data.
    """

    def __init__(self, array: Any, channel_axis: int | None = None, mask: Any = None) -> None:
        expected = 2 if channel_axis is None else 3
        if len(array.shape) != expected:
            raise ValueError(
                f"image must have {expected} axes with channel_axis={channel_axis}, got shape "
                f"{tuple(array.shape)}"
            )
        self._array, self._mask = array, mask
        self._axis = None if channel_axis is None else channel_axis % 3
        sides = [side for axis, side in enumerate(array.shape) if axis != self._axis]
        self.shape = int(sides[0]), int(sides[1])
        self.channel_axis = None if channel_axis is None else -1
        if mask is not None and tuple(mask.shape) != self.shape:
            raise ValueError(f"mask shape {tuple(mask.shape)} does not match image {self.shape}")

    def read(self, window: Window) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Read one window."""
        index: list[slice] = list(window)
        if self._axis is not None:
            index.insert(self._axis, slice(None))
        pixels = self._array[tuple(index)]
        # masked arrays stay masked
        pixels = np.asanyarray(pixels)
        if self._axis is not None:
            pixels = np.moveaxis(pixels, self._axis, -1)
        return pixels, None if self._mask is None else np.asarray(self._mask[window]) != 0


@dataclass(frozen=True)
class BlockPlan:
    """How an image is cut into blocks."""

    shape: tuple[int, int]
    side: int
    margin: int

    def __iter__(self) -> Iterator[Place]:
        """Places of the blocks in their grid, row by row."""
        rows, columns = self.grid
        return ((row, column) for row in range(rows) for column in range(columns))

    def __len__(self) -> int:
        """Give the number of blocks."""
        return math.prod(self.grid)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of blocks."""
        rows, columns = (-(-length // self.side) for length in self.shape)
        return rows, columns

    def core(self, place: Place) -> Window:
        """Pixels that a block labels."""
        return self._window(place, 0)

    def around(self, place: Place) -> Window:
        """Pixels that are read for a block: with a margin where the image continues."""
        return self._window(place, self.margin)

    def inside(self, place: Place) -> Window:
        """Where a block's core lies within the pixels read for it."""
        pairs = zip(self.core(place), self.around(place), strict=True)
        rows, columns = (slice(c.start - a.start, c.stop - a.start) for c, a in pairs)
        return rows, columns

    def _window(self, place: Place, margin: int) -> Window:
        rows, columns = (
            slice(max(0, at * self.side - margin), min(length, (at + 1) * self.side + margin))
            for at, length in zip(place, self.shape, strict=True)
        )
        return rows, columns


def plan_blocks(shape: tuple[int, int], textures: Textures, side: int = SIDE, multiple: int = 1) -> BlockPlan:
    """Cut an image into blocks, aligned with all grids in use and with a sufficient margin.

    Their side is also a multiple of ``multiple``.

    Examples
    --------
    >>> blocks = BlockPlan((1000, 600), side=512, margin=128)
    >>> blocks.grid, blocks.around((1, 1)), blocks.inside((1, 1))
    ((2, 2), (slice(384, 1000, None), slice(384, 600, None)), (slice(128, 616, None), slice(128, 216, None)))
    """
    step = math.lcm(WINDOW_STEP * textures.cell, _REDUCTION, multiple)
    return BlockPlan(shape, max(1, round(side / step)) * step, -(-textures.reach // step) * step)


class BlockReading(NamedTuple):
    """What is known about the h x w pixels of a block before it is joined with the others."""

    labels: NDArray[np.uint8]
    """(h, w), from 1; 0 without data."""
    parts: BlockParts
    strange: NDArray[np.bool_] | None
    """(h, w), which pixels no texture explains; None if not requested."""
    confidence: NDArray[np.uint8] | None
    """(h, w), probability of the labels times 255; None if not requested."""
    preview: NDArray[np.float32] | None
    """Means over squares of ``Asked.preview`` pixels, (h / side, w / side) or with bands; None if 0."""


class Asked(NamedTuple):
    """What is requested of an image."""

    smoothness: float = 1.0
    min_size: float = 0
    nodata: float | None = None
    unknown: bool = False
    confidence: bool = False
    preview: int = 0
    """Side in pixels of the squares averaged for a reduced image; it divides the side of the blocks."""

    def small(self, textures: Textures) -> float:
        """Pixels; smaller parts may be given to a neighbour."""
        return max(textures.speck_area(self.smoothness), self.min_size)


def read_block(
    pixels: NDArray[Any],
    mask: NDArray[np.bool_] | None,
    place: Place,
    blocks: BlockPlan,
    textures: Textures,
    asked: Asked,
    channel_axis: int | None = None,
) -> BlockReading:
    """Label one block.

    Parameters
    ----------
    pixels : array (h, w), or with bands along ``channel_axis``
        The pixels of ``blocks.around(place)``.
    mask : bool array (h, w), or None
    place : (int, int)
    blocks : BlockPlan
    textures : Textures
    asked : Asked
    channel_axis : int, optional

    Raises
    ------
    ValueError
        The number of bands differs from that of the training images, or the shape is not an image's.
    """
    inside = blocks.inside(place)
    preview = _reduced(pixels, inside, asked.preview, channel_axis) if asked.preview else None
    origin = tuple(part.start for part in blocks.core(place))
    h, w = (part.stop - part.start for part in inside)
    with one_blas_thread():
        scene = _scene(pixels, mask, textures.features, asked.nodata, channel_axis)
        if scene is None:
            nothing = np.full((h, w), -1, np.int32), np.zeros((len(textures.profiles), h, w), np.float32)
            parts = parts_of_block(*nothing, origin, blocks.shape[1], 0)
            empty = np.zeros((h, w), np.uint8)
            unsaid = np.zeros((h, w), bool) if asked.unknown else None
            return BlockReading(empty, parts, unsaid, empty if asked.confidence else None, preview)
        reading = textures.read(scene, asked.smoothness, specks=True)
        labels = reading.posteriors.labels()
        if scene.mask is not None:
            labels[~scene.mask] = -1
        confidence = None
        if asked.confidence:
            likely = reading.probabilities.at(labels)[inside] * (labels[inside] >= 0)
            confidence = np.rint(255 * likely).astype(np.uint8)
        labels = np.ascontiguousarray(labels[inside])
        scores = np.stack([plane[inside] for plane in reading.scores])
        parts = parts_of_block(labels, scores, origin, blocks.shape[1], asked.small(textures))
        strange = textures.unfamiliar(scene)[inside].copy() if asked.unknown else None
    return BlockReading((labels + 1).astype(np.uint8), parts, strange, confidence, preview)


def finished(block: BlockReading, names: NDArray[np.int32], n_textures: int) -> NDArray[np.int32]:
    """Give the labels (h, w) of a block, from 1 (0 without data), from the final labels of its parts."""
    places = connected_parts(block.labels.astype(np.int32) - 1).places
    labels = np.concatenate([np.zeros(1, np.int32), names + np.int32(1)])[places]
    if block.strange is not None:
        labels[block.strange & (labels > 0)] = n_textures + 1
    return labels


def label_blocks(
    source: Windows,
    textures: Textures,
    blocks: BlockPlan,
    asked: Asked,
    *,
    n_jobs: int = 1,
    store: MutableMapping[Place, BlockReading] | None = None,
    tell: Callable[[int, int], Any] | None = None,
) -> Iterator[tuple[Place, NDArray[np.int32], BlockReading]]:
    """Label an image read window by window; the labels are those of the whole image.

    Parameters
    ----------
    source : Windows
    textures : Textures
    blocks : BlockPlan
        From :func:`plan_blocks`.
    asked : Asked
    n_jobs : int, default=1
        Threads; each holds one block in memory. The labels do not depend on their number.
    store : mapping of places to BlockReading, optional
        Keeps the readings of the blocks until all are known; a dictionary by default. Blocks that it already
        holds are not read again.
    tell : function of two ints, optional
        Called with the number of blocks read and the number of all blocks.

    Yields
    ------
    place : (int, int)
    labels : int32 array (h, w), from 1; 0 without data
    reading : BlockReading
        What else is known about the block.
    """
    kept: MutableMapping[Place, BlockReading] = {} if store is None else store
    missing = [place for place in blocks if place not in kept]
    if tell is not None:
        tell(len(blocks) - len(missing), len(blocks))

    def work(place: Place) -> tuple[Place, BlockReading]:
        pixels, mask = source.read(blocks.around(place))
        return place, read_block(pixels, mask, place, blocks, textures, asked, source.channel_axis)

    with one_blas_thread():
        for done, (place, reading) in enumerate(map_in_order(work, missing, n_jobs), start=1):
            kept[place] = reading
            if tell is not None:
                tell(len(blocks) - len(missing) + done, len(blocks))
    parts = {place: kept[place].parts for place in blocks}
    names = joined_labels(parts, textures.speck_area(asked.smoothness), asked.min_size)
    del parts
    for place in blocks:
        block = kept[place]
        yield place, finished(block, names[place], len(textures.profiles)), block


def labels_of_array(
    array: Any, textures: Textures, asked: Asked, channel_axis: int | None = None, mask: Any = None
) -> NDArray[np.int32]:
    """Label an array block by block with all available threads: int32 (H, W), from 1; 0 without data."""
    source = ArrayWindows(array, channel_axis, mask)
    blocks = plan_blocks(source.shape, textures, SIDE)
    out = np.empty(source.shape, np.int32)
    for place, labels, _ in label_blocks(source, textures, blocks, asked, n_jobs=crew_size()):
        out[blocks.core(place)] = labels
    return out


def sample_windows(
    shape: tuple[int, int], random_state: int = 0, n_crops: int = CROPS, side: int = CROP_SIDE
) -> list[Window]:
    """Choose the crops from which textures are learned: one at random in each field of an even grid.

    Examples
    --------
    >>> sample_windows((300, 400), n_crops=2, side=100)[0]
    (slice(127, 227, None), slice(26, 126, None))
    """
    H, W = shape
    height, width = min(side, H), min(side, W)
    n_rows = max(1, min(n_crops, round(math.sqrt(n_crops * H / W))))
    n_columns = max(1, round(n_crops / n_rows))
    rng = np.random.default_rng(random_state)
    rows, columns = np.linspace(0, H, n_rows + 1), np.linspace(0, W, n_columns + 1)
    windows = {}
    for top, bottom in zip(rows, rows[1:], strict=False):
        for left, right in zip(columns, columns[1:], strict=False):
            y = min(int(top + rng.random() * max(0.0, bottom - top - height)), H - height)
            x = min(int(left + rng.random() * max(0.0, right - left - width)), W - width)
            windows[y, x] = slice(y, y + height), slice(x, x + width)
    return list(windows.values())


def _reduced(
    pixels: NDArray[Any], inside: Window, side: int, channel_axis: int | None
) -> NDArray[np.float32]:
    """Means over squares of pixels; those at the edge of the image may be smaller."""
    image = np.moveaxis(pixels, channel_axis, -1) if channel_axis is not None else pixels
    block = image[inside].astype(np.float64)
    for axis in (0, 1):
        starts = np.arange(0, block.shape[axis], side)
        sizes = np.diff([*starts, block.shape[axis]])
        shape = [-1 if i == axis else 1 for i in range(block.ndim)]
        block = np.add.reduceat(block, starts, axis=axis) / sizes.reshape(shape)
    return block.astype(np.float32)


def _scene(
    pixels: NDArray[Any],
    mask: NDArray[np.bool_] | None,
    features: Features,
    nodata: float | None,
    channel_axis: int | None,
) -> Scene | None:
    """Encode a window; None where it holds no data at all."""
    try:
        planes = split_planes(pixels, channel_axis=channel_axis, mask=mask, nodata=nodata)
    except NoValidPixels:
        return None
    if len(planes.bands) == 1 != features.n_bands:
        planes = planes._replace(bands=planes.bands * features.n_bands)
    if len(planes.bands) != features.n_bands:
        raise ValueError(
            f"the model was fitted on images with {features.n_bands} band(s), got one with "
            f"{len(planes.bands)}"
        )
    return Scene(encode(planes, features), planes.mask, planes)
