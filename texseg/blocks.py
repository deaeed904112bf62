"""Images of any size: read by windows and labelled block by block, with the labels of the whole.

Blocks begin at multiples of the cells, and each is read with a margin wide enough for filters and windows, so
that its pixels are treated exactly as in the whole image; small parts are joined across blocks
(:mod:`texseg.method.labelling`). Textures are learned from crops spread evenly over the image.

Lazy arrays (dask, xarray on dask, zarr) are labelled on demand by any of dask's schedulers. One task joins
the small parts of all blocks, so all are read before the first labels are available. Workers of
``dask.distributed`` give freed memory back at once, and spend most of their time on getting it again. Let
them keep it, before the cluster is started::

    spawn = "distributed.nanny.pre-spawn-environ"
    dask.config.set({f"{spawn}.MALLOC_TRIM_THRESHOLD_": 2**28, f"{spawn}.MALLOC_MMAP_THRESHOLD_": 2**25})
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
from texseg.method.labelling import (
    BlockReading,
    Names,
    Place,
    Window,
    empty_reading,
    final_names,
    finished,
    reading_of,
)
from texseg.method.textures import Scene, Textures
from texseg.pixels.joining import BlockParts
from texseg.progress import expected_memory, free_memory
from texseg.threads import crew_size, map_in_order, one_blas_thread

__all__ = [
    "ArrayWindows",
    "BlockPlan",
    "BlockReading",
    "Request",
    "Windows",
    "crops_of",
    "goes_by_blocks",
    "is_lazy",
    "label_array",
    "label_blocks",
    "plan_blocks",
    "read_block",
    "sample_windows",
]

SIDE = 1024
"""Side of a block in pixels: with 512, margins cost 1.4 times as much; 2048 needs three times the memory."""

CROP_SIDE = 512
CROPS = 16
"""Textures are learned from this many crops of this side; see ``benchmarks/blocks.py``."""

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
    """Windows of anything that can be sliced like an array, and of its mask: in memory, mapped, zarr."""

    def __init__(self, array: Any, channel_axis: int | None = None, mask: Any = None) -> None:
        expected = 2 if channel_axis is None else 3
        if len(array.shape) != expected:
            raise ValueError(
                f"image must have {expected} axes with channel_axis={channel_axis}, got shape "
                f"{tuple(array.shape)}"
            )
        array, mask = _plain(array), _plain(mask)
        self._array, self._mask = array, mask
        self._axis = None if channel_axis is None else channel_axis % 3
        sides = [side for axis, side in enumerate(array.shape) if axis != self._axis]
        self.shape = int(sides[0]), int(sides[1])
        self.channel_axis = None if channel_axis is None else -1
        if mask is not None and tuple(mask.shape) != self.shape:
            raise ValueError(f"mask shape {tuple(mask.shape)} does not match image {self.shape}")

    def read(self, window: Window) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Read one window."""
        pixels = np.asanyarray(self._array[self.index(window)])  # mrequest arrays stay mrequest
        if self._axis is not None:
            pixels = np.moveaxis(pixels, self._axis, -1)
        return pixels, None if self._mask is None else np.asarray(self._mask[window]) != 0

    def index(self, window: Window) -> tuple[slice, ...]:
        """Slices of the array for a window."""
        index: list[slice] = list(window)
        if self._axis is not None:
            index.insert(self._axis, slice(None))
        return tuple(index)

    def pieces(self, window: Window) -> tuple[Any, Any]:
        """Pixels and mask of a window: of a dask array sliced now, of anything else when a task reads it."""
        pairs = ((self._array, self.index(window)), (self._mask, window))
        pixels, mask = (None if array is None else _piece(array, index) for array, index in pairs)
        return pixels, mask


def _piece(array: Any, index: tuple[slice, ...]) -> Any:
    return array[index] if hasattr(array, "__dask_graph__") else _Piece(array, index)


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


class Request(NamedTuple):
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
    source: Windows, place: Place, blocks: BlockPlan, textures: Textures, request: Request
) -> BlockReading:
    """Label one block of an image."""
    pixels, mask = source.read(blocks.around(place))
    inside, origin = blocks.inside(place), tuple(part.start for part in blocks.core(place))
    preview = _reduced(pixels, inside, request.preview, source.channel_axis) if request.preview else None
    with one_blas_thread():
        scene = _scene(pixels, mask, textures.features, request.nodata, source.channel_axis)
        if scene is None:
            h, w = (part.stop - part.start for part in inside)
            reading = empty_reading((h, w), len(textures.profiles), blocks.shape[1])
        else:
            read = textures.read(scene, request.smoothness, specks=True)
            reading = reading_of(
                read, scene.mask, request.small(textures), inside, (origin[0], origin[1]), blocks.shape[1]
            )
        strange = None
        if request.unknown:
            strange = reading.labels > 0
            if scene is not None:
                strange = textures.unfamiliar(scene)[inside].copy()
    assert reading.confidence is not None and reading.of_small is not None  # just now
    sure, of_small = (np.rint(255 * each).astype(np.uint8) for each in (reading.confidence, reading.of_small))
    if not request.confidence:
        return reading._replace(strange=strange, confidence=None, preview=preview, small=None, of_small=None)
    return reading._replace(strange=strange, confidence=sure, preview=preview, of_small=of_small)


def label_blocks(
    source: Windows,
    textures: Textures,
    blocks: BlockPlan,
    request: Request,
    *,
    n_jobs: int = 1,
    store: MutableMapping[Place, BlockReading] | None = None,
    tell: Callable[[int, int], Any] | None = None,
) -> Iterator[tuple[Place, NDArray[np.int32], BlockReading]]:
    """Label an image read window by window; labels and confidence are those of the whole image.

    Each of ``n_jobs`` threads holds one block in memory. ``store`` keeps the readings until all are known;
    blocks that it already holds are not read again. ``tell`` gets the numbers of blocks read, and of all.

    Yields
    ------
    place : (int, int)
    labels : int32 array (h, w), from 1; 0 without data
    reading : BlockReading
        What else is known about the block; its confidence, in bytes, is that of these labels.
    """
    kept: MutableMapping[Place, BlockReading] = {} if store is None else store
    missing = [place for place in blocks if place not in kept]
    if tell is not None:
        tell(len(blocks) - len(missing), len(blocks))

    def work(place: Place) -> tuple[Place, BlockReading]:
        return place, read_block(source, place, blocks, textures, request)

    with one_blas_thread():
        for done, (place, reading) in enumerate(map_in_order(work, missing, n_jobs), start=1):
            kept[place] = reading
            if tell is not None:
                tell(len(blocks) - len(missing) + done, len(blocks))
    area = textures.speck_area(request.smoothness)
    names = final_names({place: kept[place].parts for place in blocks}, area, request.min_size)
    for place in blocks:
        labels, reading = finished(kept[place], names[place], len(textures.profiles))
        yield place, labels, reading


def label_array(
    image: Any,
    textures: Textures,
    request: Request,
    channel_axis: int | None = None,
    mask: Any = None,
    blocks: BlockPlan | None = None,
) -> Any:
    """Label an array (H, W), or with bands, block by block; a lazy array gives a lazy array of its labels."""
    source = ArrayWindows(image, channel_axis, mask)
    blocks = plan_blocks(source.shape, textures, SIDE) if blocks is None else blocks
    if is_lazy(image):
        return _lazy_labels(image, source, textures, request, channel_axis, blocks)
    out = np.empty(source.shape, np.int32)
    for place, labels, _ in label_blocks(source, textures, blocks, request, n_jobs=crew_size()):
        out[blocks.core(place)] = labels
    return out


def is_lazy(image: Any) -> bool:
    """Tell whether an image is read piece by piece: a dask array, xarray's on dask, or a zarr array.

    Examples
    --------
    >>> is_lazy(np.eye(3))
    False
    """
    if type(image).__module__.split(".")[0] == "zarr":
        return True
    collection = getattr(image, "__dask_graph__", None)
    return collection is not None and collection() is not None


def goes_by_blocks(image: Any, channel_axis: int | None, n_segments: int | None, preset: str) -> bool:
    """Tell whether an image is lazy, or seen as a whole would take more than half of what is free."""
    if is_lazy(image):
        return True
    if not isinstance(image, np.ndarray) or image.ndim != (2 if channel_axis is None else 3):
        return False
    bands = 1 if channel_axis is None else image.shape[channel_axis % 3]
    return expected_memory(image.size // max(bands, 1), bands, n_segments, preset) > free_memory() // 2


def _lazy_labels(
    image: Any,
    source: ArrayWindows,
    textures: Textures,
    request: Request,
    channel_axis: int | None,
    blocks: BlockPlan,
) -> Any:
    try:
        import dask
        import dask.array as da
    except ImportError:
        raise ImportError("lazy arrays need dask: pip install 'texseg[large]'") from None
    shared = dask.delayed(textures, traverse=False)
    read, join, finish = (dask.delayed(task, pure=True) for task in (_read_part, _join, _labels_of))
    readings = {
        place: read(*source.pieces(blocks.around(place)), channel_axis, place, blocks, shared, request)
        for place in blocks
    }
    names = join(
        [dask.delayed(_parts_of, pure=True)(reading) for reading in readings.values()],
        list(readings),
        textures.speck_area(request.smoothness),
        request.min_size,
    )
    found = [
        da.from_delayed(
            finish(reading, names[at], len(textures.profiles)),
            tuple(part.stop - part.start for part in blocks.core(place)),
            np.int32,
        )
        for at, (place, reading) in enumerate(readings.items())
    ]
    rows, columns = blocks.grid
    labels = da.block([found[row * columns : (row + 1) * columns] for row in range(rows)])
    if not hasattr(image, "isel"):
        return labels
    frame = image if channel_axis is None else image.isel({image.dims[channel_axis % 3]: 0}, drop=True)
    return frame.copy(data=labels).rename("labels")


def _plain(array: Any) -> Any:
    """Unwrap an xarray.DataArray."""
    return array.data if hasattr(array, "isel") else array


class _Piece:
    """A part of an array that is read in the task that needs it."""

    def __init__(self, array: Any, index: tuple[slice, ...]) -> None:
        self.array, self.index = array, index

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.array[self.index], dtype)


class _Part:
    """A source that is one window of an image, which dask has computed or a task reads."""

    def __init__(self, pixels: Any, mask: Any, channel_axis: int | None) -> None:
        self._source = ArrayWindows(
            np.asarray(pixels), channel_axis, None if mask is None else np.asarray(mask)
        )
        self.shape, self.channel_axis = self._source.shape, self._source.channel_axis

    def read(self, _: Window) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        return self._source.read((slice(None), slice(None)))


def _read_part(
    pixels: Any,
    mask: Any,
    channel_axis: int | None,
    place: Place,
    blocks: BlockPlan,
    textures: Textures,
    request: Request,
) -> BlockReading:
    return read_block(_Part(pixels, mask, channel_axis), place, blocks, textures, request)


def _parts_of(reading: BlockReading) -> BlockParts:
    return reading.parts


def _join(parts: list[BlockParts], places: list[Place], area: float, min_size: float) -> list[Names]:
    return list(final_names(dict(zip(places, parts, strict=True)), area, min_size).values())


def _labels_of(reading: BlockReading, names: Names, n_textures: int) -> NDArray[np.int32]:
    return finished(reading, names, n_textures)[0]


def crops_of(
    image: Any, channel_axis: int | None, mask: Any, random_state: int
) -> tuple[list[NDArray[Any]], list[NDArray[np.bool_] | None]]:
    """Compute the crops from which textures are learned, and their masks."""
    source = ArrayWindows(image, channel_axis, mask)
    crops: list[NDArray[Any]] = []
    masks: list[NDArray[np.bool_] | None] = []
    for window in sample_windows(source.shape, random_state):
        pixels, given = source.read(window)
        if given is None or given.any():
            crops.append(pixels if channel_axis is None else np.moveaxis(pixels, -1, channel_axis))
            masks.append(given)
    if not crops:
        raise ValueError("none of the crops that textures are learned from holds data: all are masked")
    return crops, masks


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
