"""Images of any size: read by windows and labelled block by block, with the labels of the whole.

Blocks begin at multiples of the cells, and each is read with a margin wide enough for filters and windows, so
that its pixels are treated exactly as in the whole image; small parts are joined across blocks
(:mod:`texseg.method.labelling`). Textures are learned from crops chosen by :mod:`texseg.method.sampling`.

Lazy arrays (dask, xarray on dask, zarr) are labelled on demand by any of dask's schedulers, and files by the
workers of a dask client, in the same steps: read blocks, join their parts by a tree, give them their labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features, encode
from texseg.channels.planes import NoValidPixels, shown_by, split_planes
from texseg.channels.rescale import mismatch
from texseg.counts.axes import largest_part, of_each, shortened
from texseg.counts.grid import sides_along
from texseg.counts.sites import WINDOW_STEP
from texseg.io.regions import Tally
from texseg.method.labelling import BlockReading, Names, Place, Window, empty_reading, finished, reading_of
from texseg.method.sampling import (
    CROP_OF_STACK,
    LABELLED_AGAIN,
    SceneSample,
    crop_count,
    crops_in,
    placed,
    read_crops,
    sample_windows,
    valid_pixels,
)
from texseg.method.scenes import scene_of, warn, with_bands_of
from texseg.method.textures import Textures
from texseg.parameters import Settings
from texseg.pixels.joining import joined_labels
from texseg.progress import expected_memory, expected_seconds, free_memory, seconds_of_labelling
from texseg.threads import crew_size, one_blas_thread, side_by_side

SIDE = 1024
"""Side of a block in pixels: with 512, margins cost 1.4 times as much; 2048 needs three times the memory."""

SIDE_IN_SPACE = 168
"""The same in voxels: read with its margin, a block takes as much memory as one of an image."""

PLANES = 18
"""Planes of a stack in a block, and of its margin: the prior couples no more."""

_MARGINS = {2: 288, 3: 96}  # pixels on both sides of a block together, by default

SHARD = 16  # blocks side by side, whose labels one file of a zarr array holds

NOVEL_PART = 25_000  # pixels of a part that no texture explains, from which on it is learned, or said

_LOOKED_AT = 4  # cells from one window to the next, where novelty is only noted
_REDUCTION = 4  # illumination and neighbourhoods are computed on a grid this many times coarser


class ArrayWindows:
    """Windows of anything that can be sliced like an array, and of its mask: in memory, mapped, zarr."""

    def __init__(
        self, array: Any, channel_axis: int | None = None, mask: Any = None, n_axes: int = 2
    ) -> None:
        expected = n_axes + (channel_axis is not None)
        if len(array.shape) != expected:
            raise ValueError(
                f"image must have {expected} axes with channel_axis={channel_axis}, got shape "
                f"{tuple(array.shape)}"
            )
        # of an xarray.DataArray, the array in it
        array, mask = (each.data if hasattr(each, "isel") else each for each in (array, mask))
        self.array, self.mask = array, mask
        self._axis = None if channel_axis is None else channel_axis % expected
        self.shape = tuple(int(side) for axis, side in enumerate(array.shape) if axis != self._axis)
        self.channel_axis = None if channel_axis is None else -1
        chunks = getattr(array, "chunksize", getattr(array, "chunks", None))  # of dask, of zarr
        self.rows_at_once = 0 if chunks is None else [n for i, n in enumerate(chunks) if i != self._axis][0]
        """Rows that a lazy array computes together."""
        if mask is not None and tuple(mask.shape) != self.shape:
            raise ValueError(f"mask shape {tuple(mask.shape)} does not match image {self.shape}")

    def read(self, window: Window) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Read one window."""
        pixels = np.asanyarray(self.array[self.index(window)])  # masked arrays stay masked
        if self._axis is not None:
            pixels = np.moveaxis(pixels, self._axis, -1)
        return pixels, None if self.mask is None else shown_by(np.asarray(self.mask[window]))

    def index(self, window: Window) -> tuple[slice, ...]:
        """Slices of the array for a window."""
        index: list[slice] = list(window)
        if self._axis is not None:
            index.insert(self._axis, slice(None))
        return tuple(index)


@dataclass(frozen=True)
class BlockPlan:
    """How an image or a volume is cut into blocks; side and margin are one number, or one for each axis."""

    shape: tuple[int, ...]
    side: Any
    margin: Any

    @property
    def sides(self) -> tuple[int, ...]:
        """Pixels of a block along each axis."""
        return of_each(self.side, len(self.shape))

    @property
    def margins(self) -> tuple[int, ...]:
        """Pixels that are read on either side of it."""
        return of_each(self.margin, len(self.shape))

    def __iter__(self) -> Iterator[Place]:
        """Places of the blocks in their grid, row by row."""
        return iter(np.ndindex(self.grid))

    def __len__(self) -> int:
        """Give the number of blocks."""
        return math.prod(self.grid)

    @property
    def grid(self) -> tuple[int, ...]:
        """Rows and columns of blocks."""
        return shortened(self.shape, self.sides)

    def core(self, place: Place) -> Window:
        """Pixels that a block labels."""
        return replace(self, margin=0).around(place)

    def inside(self, place: Place) -> Window:
        """Where a block's core lies within the pixels read for it."""
        pairs = zip(self.core(place), self.around(place), strict=True)
        return tuple(slice(c.start - a.start, c.stop - a.start) for c, a in pairs)

    def around(self, place: Place) -> Window:
        """Pixels that are read for a block: with a margin where the image continues."""
        return tuple(
            slice(max(0, at * side - margin), min(length, (at + 1) * side + margin))
            for at, length, side, margin in zip(place, self.shape, self.sides, self.margins, strict=True)
        )


def expected_by_blocks(
    shape: Sequence[int], n_channels: int, n_segments: int | None, preset: str, n_threads: int = 1
) -> tuple[float, float]:
    """Bytes, and seconds of all threads together, for what is read by blocks, whatever its size."""
    n, about = len(shape), (n_channels, n_segments, preset, len(shape))
    crops, crop = crops_in(n)
    side, margins = (SIDE if n == 2 else SIDE_IN_SPACE), _MARGINS[n]
    learning = expected_memory(crops * crop**n, *about)
    labelling = n_threads * expected_memory((side + margins) ** n, *about)
    seconds = expected_seconds((round(crops ** (1 / n) * crop),) * n, n_segments, preset, n_channels)
    again = margins if n == 3 else 0  # of volumes, margins count
    read = math.prod(length + (length - 1) // side * again for length in shape)
    return max(learning, labelling), seconds + seconds_of_labelling(read, n)


def plan_blocks(
    shape: tuple[int, ...], textures: Textures, side: int | None = None, multiple: int = 1
) -> BlockPlan:
    """Cut an image into blocks, aligned with all grids (and ``multiple``), with a sufficient margin."""
    bank, n_more = textures.features.bank, len(shape) - len(textures.features.bank.spacing)
    is_flat = len(bank.spacing) == 2
    side = side or (SIDE if is_flat else SIDE_IN_SPACE)
    cells, coarse = (sides_along(each, bank.spacing) for each in (textures.cell, _REDUCTION))
    grids = zip(bank.spacing, cells, coarse, bank.units, strict=True)
    steps = [(unit, math.lcm(WINDOW_STEP * cell, *others, multiple)) for unit, cell, *others in grids]
    sides = [max(1, round(side / unit / step)) * step for unit, step in steps]
    # what lies at the end of the reach is hardly felt in space
    whole: Any = math.ceil if is_flat else round
    margins = [whole(textures.reach / unit / step) * step for unit, step in steps]
    return BlockPlan(shape, (PLANES,) * n_more + tuple(sides), (PLANES,) * n_more + tuple(margins))


class Request(NamedTuple):
    """What is requested of an image."""

    smoothness: float = 1.0
    min_size: float = 0
    nodata: float | None = None
    unknown: bool = False
    confidence: bool = False
    preview: int = 0
    """Side in pixels of the squares averaged for a reduced image; it divides the side of the blocks."""
    finds_novelty: bool = False  # what no texture explains

    def small(self, textures: Textures) -> float:
        """Pixels; smaller parts may be given to a neighbour."""
        return max(textures.speck_area(self.smoothness), self.min_size)


def read_block(
    source: Any, place: Place, blocks: BlockPlan, textures: Textures, request: Request, around: Any = None
) -> BlockReading:
    """Label one block; a source that holds no more than its window says where ``around`` it is."""
    pixels, mask = source.read(around or blocks.around(place))[:2]
    inside, origin = blocks.inside(place), tuple(part.start for part in blocks.core(place))
    axis, features = source.channel_axis, textures.features
    with one_blas_thread():
        try:
            n_axes, nodata = len(origin), request.nodata
            planes = split_planes(pixels, channel_axis=axis, mask=mask, nodata=nodata, n_axes=n_axes)
        except NoValidPixels:
            shape = tuple(part.stop - part.start for part in inside)
            reading = empty_reading(shape, len(textures.profiles), blocks.shape)
            novel: NDArray[np.bool_] | None = np.zeros(shape, bool)
        else:
            planes = with_bands_of(features, planes)
            scene = scene_of(encode(planes, features), planes, features)
            read, small = textures.read(scene, request.smoothness), request.small(textures)
            reading = reading_of(read, scene.mask, small, inside, origin, blocks.shape)
            is_wanted = request.unknown or request.finds_novelty
            step = WINDOW_STEP if request.unknown else _LOOKED_AT
            novel = textures.novelty(scene, step)[inside].copy() if is_wanted else None
    preview = _reduced(pixels[inside], request.preview) if request.preview else None
    largest = _largest_place(novel, origin) if request.finds_novelty and novel is not None else None
    novel = novel if request.unknown else None
    reading = reading._replace(novel=novel, preview=preview, largest_novel=largest, places=None)
    if not request.confidence:
        return reading._replace(confidence=None, small=None, of_small=None)
    sure, of_small = (
        np.rint(255 * np.asarray(each)).astype(np.uint8) for each in (reading.confidence, reading.of_small)
    )
    return reading._replace(confidence=sure, of_small=of_small)


def read_blocks(
    source: Any,
    textures: Textures,
    blocks: BlockPlan,
    request: Request,
    store: Any,
    *,
    n_jobs: int = 1,
    tell: Callable[[int, int], Any] | None = None,
    client: Any = None,
) -> list[Window]:
    """Label the blocks that a store does not hold yet, by threads or by the workers of a dask client.

    ``source`` has ``shape``, ``channel_axis`` (-1, or None for grey) and ``read(window)``, which gives pixels
    and where they hold data (None: everywhere), as :class:`ArrayWindows` and `texseg.io.read.Source`.
    ``tell`` gets the numbers of blocks that are done, and of all. Gives the places of large parts that no
    texture explains, the largest first, where the request looks for them.
    """

    def work(place: Place) -> NDArray[np.integer] | None:
        if place in store:
            return store[place].largest_novel
        store[place] = reading = read_block(source, place, blocks, textures, request)
        return reading.largest_novel

    if client is None:
        parts = side_by_side(work, blocks, tell, at_once=n_jobs)
    else:
        parts = list(_by_workers(client, client.map(work, list(blocks), pure=False), tell))
    if tell is not None:
        tell(len(blocks), len(blocks))
    found = [part.tolist() for part in parts if part is not None and part[0] >= NOVEL_PART]
    return [tuple(map(slice, ends[::2], ends[1::2])) for _, *ends in sorted(found, reverse=True)]


def join_blocks(
    textures: Textures, blocks: BlockPlan, request: Request, kept: Any
) -> Iterator[tuple[Place, NDArray[np.int32], BlockReading]]:
    """Label blocks that have been read, as a whole image would be.

    Yields the place, labels (h, w) from 1 (0 without data), and what else is known about each block; its
    confidence, in bytes, is that of these labels.
    """
    areas = textures.speck_area(request.smoothness), request.min_size
    for place, own in joined_labels(blocks, lambda place: kept[place].parts, *areas).items():
        yield place, *finished(kept[place], own, len(textures.profiles))


def write_blocks(
    textures: Textures, blocks: BlockPlan, request: Request, kept: Any, client: Any
) -> tuple[dict[Place, Any], Tally]:
    """Have the workers of a dask client label blocks that have been read, and write the maps of the store.

    Gives the previews of the blocks, and the table of their labels.
    """

    def write(names: Mapping[Place, Names]) -> tuple[dict[Place, Any], Tally]:
        done = {place: finished(kept[place], own, len(textures.profiles)) for place, own in names.items()}
        return write_side_by_side(done, blocks, kept)

    areas = textures.speck_area(request.smoothness), request.min_size
    strips: dict[Any, dict[Place, Names]] = {}
    parts = {place: _later(lambda place: kept[place].parts, place) for place in blocks}
    for place, own in joined_labels(blocks, parts.__getitem__, *areas, _later).items():
        strips.setdefault((place[0], place[1] // SHARD), {})[place] = own
    previews, tallies = dict[Place, Any](), dict[Place, Tally]()
    written = client.compute([_later(write, names) for names in strips.values()])
    for seen, tally in _by_workers(client, written):
        previews |= seen
        tallies[min(seen)] = tally
    return previews, joined_tallies(tallies)


def write_side_by_side(
    done: Mapping[Place, tuple[NDArray[np.int32], BlockReading]], blocks: BlockPlan, kept: Any
) -> tuple[dict[Place, Any], Tally]:
    """Write blocks that one file of the maps holds; give their previews, and the table of their labels."""
    tallies = {place: Tally(with_regions=False) for place in done}
    for place, (labels, reading) in done.items():
        sure = reading.confidence
        tallies[place].add(labels.astype(np.uint16), None if sure is None else sure / np.float32(255))
    planes = zip(*((labels, reading.confidence) for labels, reading in done.values()), strict=True)
    (rows, left), right = blocks.core(min(done)), blocks.core(max(done))[1]
    maps = [np.concatenate(plane, axis=1) for plane in planes if plane[0] is not None]
    kept.write_maps((rows, slice(left.start, right.stop)), *maps)
    return {place: reading.preview for place, (_, reading) in done.items()}, joined_tallies(tallies)


def joined_tallies(tallies: Mapping[Place, Tally]) -> Tally:
    """Join the tables of blocks by their places: those side by side first."""
    rows: dict[int, Tally] = {}
    for place in sorted(tallies):
        rows.setdefault(place[0], Tally(with_regions=False)).join(tallies[place], 1)
    whole = Tally(with_regions=False)
    for row in rows.values():
        whole.join(row)
    return whole


def _later(task: Callable[..., Any], *given: Any) -> Any:
    """Have dask run a function, when its result is needed."""
    from dask import delayed

    return delayed(task, pure=False)(*given)


def _by_workers(
    client: Any, futures: list[Any], tell: Callable[[int, int], Any] | None = None
) -> Iterator[Any]:
    """Give what the workers of a cluster have done, as it arrives."""
    from distributed import as_completed

    for done, future in enumerate(as_completed(futures, loop=client.loop)):
        if tell is not None:
            tell(done, len(futures))
        yield future.result()
        future.release()


def warn_of_encoding(source: Any, features: Features) -> None:
    """Say whether crops of a scene seem to be encoded differently from what features were learned from."""
    n_axes = len(source.shape)
    sides: Any = 256 if n_axes == 2 else (16, 128, 128)
    crops = [source.read(window)[:2] for window in sample_windows(source.shape, n_crops=4, side=sides)]
    about: Any = {"channel_axis": None if crops[0][0].ndim == n_axes else -1, "n_axes": n_axes}
    images = [
        with_bands_of(features, split_planes(pixels, mask=mask, **about))
        for pixels, mask in crops
        if valid_pixels(pixels, mask, n_axes).any()
    ]
    if images and (difference := mismatch(images, features.intensity)) is not None:
        warn(difference)


def label_array(
    image: Any,
    textures: Textures,
    request: Request,
    channel_axis: int | None = None,
    mask: Any = None,
    blocks: BlockPlan | None = None,
    n_axes: int = 2,
    novel: list[Window] | None = None,
) -> Any:
    """Label an array (H, W), or with bands, block by block; a lazy array gives a lazy array of its labels.

    Of others, the places of large parts that no texture explains are added to ``novel``, if requested.
    """
    source = ArrayWindows(image, channel_axis, mask, n_axes)
    blocks = plan_blocks(source.shape, textures) if blocks is None else blocks
    if not is_lazy(image):
        out, kept = np.empty(source.shape, np.int32), dict[Place, BlockReading]()
        request = request._replace(finds_novelty=novel is not None)
        found = read_blocks(source, textures, blocks, request, kept, n_jobs=crew_size())
        if novel is not None:
            novel += found
        for place, labels, _ in join_blocks(textures, blocks, request, kept):
            out[blocks.core(place)] = labels
        return out
    try:
        import dask
        import dask.array as da
    except ImportError:
        raise ImportError("lazy arrays need dask: pip install 'texseg[large]'") from None
    shared = dask.delayed(textures, traverse=False)
    pixels, mask = (
        each if each is None or hasattr(each, "__dask_graph__") else da.from_array(each, name=False)
        for each in (source.array, source.mask)
    )
    readings = {}
    for place in blocks:
        window = blocks.around(place)
        part, valid = pixels[source.index(window)], None if mask is None else mask[window]
        readings[place] = _later(_read_part, part, valid, channel_axis, place, blocks, shared, request)
    area = textures.speck_area(request.smoothness)
    names = joined_labels(blocks, lambda place: readings[place].parts, area, request.min_size, _later)
    found = [
        da.from_delayed(
            _later(finished, reading, names[place], len(textures.profiles))[0],
            tuple(part.stop - part.start for part in blocks.core(place)),
            np.int32,
        )
        for place, reading in readings.items()
    ]
    nested = np.empty(len(found), object)
    for number, block in enumerate(found):  # at once, NumPy would compute blocks of equal shape
        nested[number] = block
    labels = da.block(nested.reshape(blocks.grid).tolist())
    if not hasattr(image, "isel"):
        return labels
    axis = None if channel_axis is None else channel_axis % (n_axes + 1)
    frame = image if axis is None else image.isel({image.dims[axis]: 0}, drop=True)
    return frame.copy(data=labels).rename("labels")


def is_lazy(image: Any) -> bool:
    """Tell whether an image is read piece by piece: a dask array, xarray's on dask, or a zarr array."""
    if type(image).__module__.split(".")[0] == "zarr":
        return True
    collection = getattr(image, "__dask_graph__", None)
    return collection is not None and collection() is not None


def goes_by_blocks(image: Any, settings: Settings, n_segments: int | None) -> bool:
    """Tell whether an image is lazy, or seen as a whole would take more than half of what is free.

    One that fits into a block is always seen as a whole.
    """
    if is_lazy(image):
        return True
    axis, n_axes = settings.channel_axis, settings.n_axes
    if not isinstance(image, np.ndarray) or image.ndim != n_axes + (axis is not None):
        return False
    bands = 1 if axis is None else image.shape[axis % image.ndim]
    n_pixels = image.size // max(bands, 1)
    if n_pixels <= (SIDE if n_axes == 2 else SIDE_IN_SPACE) ** n_axes:
        return False
    return expected_memory(n_pixels, bands, n_segments, settings.preset, n_axes) > free_memory() // 2


def _read_part(pixels: Any, mask: Any, channel_axis: int | None, place: Place, *about: Any) -> BlockReading:
    """Label a block from its pixels and margin alone."""
    array, given, n_axes = np.asarray(pixels), None if mask is None else np.asarray(mask), len(place)
    source = ArrayWindows(array, channel_axis, given, n_axes)
    return read_block(source, place, *about, (slice(None),) * n_axes)  # type: ignore[call-arg]


def crops_of(
    image: Any, mask: Any, settings: Settings, places: Sequence[Window] = ()
) -> tuple[list[NDArray[Any]], list[NDArray[np.bool_] | None], SceneSample]:
    """Choose and read the crops from which textures are learned; give them, their masks, and the choice."""
    axis, n_axes = settings.channel_axis, settings.n_axes
    source, side = ArrayWindows(image, axis, mask, n_axes), None if settings.planes is None else CROP_OF_STACK
    sample, read = read_crops(source, settings.random_state, crop_count(None, 1, n_axes), side, places)
    if places:
        warn(LABELLED_AGAIN.format(placed(*places)))
    elif not is_lazy(image):
        warn(
            f"an image of shape {image.shape} takes more than half of the memory that is free: it is "
            f"labelled block by block, with textures learned from {sample}"
        )
    elif sample.place is not None:
        warn(f"textures are learned from {sample}")
    crops = [pixels if axis is None else np.moveaxis(pixels, -1, axis) for pixels, _ in read]
    return crops, [valid for _, valid in read], sample


def _largest_place(marked: NDArray[np.bool_], origin: Sequence[int]) -> NDArray[np.integer]:
    """Pixels of the largest part, and its rows and columns: (5,)."""
    where = np.nonzero(largest_part(marked))
    if not len(where[0]):
        return np.zeros(1 + 2 * marked.ndim, np.intp)
    ends = [end + at for own, at in zip(where, origin, strict=True) for end in (own.min(), own.max() + 1)]
    return np.array([len(where[0]), *ends])


def _reduced(block: NDArray[Any], side: int) -> NDArray[np.float32]:
    """Means over squares of pixels; those at the edge of the image may be smaller."""
    block = block.astype(np.float64)
    for axis in (0, 1):
        starts = np.arange(0, block.shape[axis], side)
        sizes = np.diff([*starts, block.shape[axis]])
        shape = [-1 if i == axis else 1 for i in range(block.ndim)]
        block = np.add.reduceat(block, starts, axis=axis) / sizes.reshape(shape)
    return block.astype(np.float32)
