"""Lazy arrays: dask, xarray on dask, and zarr, labelled block by block by any of dask's schedulers.

Labels are computed only on demand, by dask's threads, processes or ``dask.distributed``, which also repeats
what was lost with a worker. They are those of the whole image: one task joins the small parts of all blocks,
so all blocks are read before the first labels are available.

Workers of ``dask.distributed`` are told to give freed memory back to the system at once, and on Linux spend
most of their time on getting it again. Let them keep it, before the cluster is started::

    spawn = "distributed.nanny.pre-spawn-environ"
    dask.config.set({f"{spawn}.MALLOC_TRIM_THRESHOLD_": 2**28, f"{spawn}.MALLOC_MMAP_THRESHOLD_": 2**25})
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.method.textures import Textures
from texseg.pixels.joining import BlockParts, joined_labels
from texseg.tiles import (
    ArrayWindows,
    Asked,
    BlockPlan,
    BlockReading,
    Place,
    finished,
    plan_blocks,
    read_block,
    sample_windows,
)

__all__ = ["crops_of", "is_lazy", "lazy_labels"]


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


def crops_of(
    image: Any, channel_axis: int | None, mask: Any, random_state: int
) -> tuple[list[NDArray[Any]], list[NDArray[np.bool_] | None]]:
    """Compute the crops from which textures are learned, and their masks."""
    source = ArrayWindows(_plain(image), channel_axis, _plain(mask))
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


def lazy_labels(
    image: Any,
    textures: Textures,
    asked: Asked,
    channel_axis: int | None = None,
    mask: Any = None,
    blocks: BlockPlan | None = None,
) -> Any:
    """Label a lazy image.

    Parameters
    ----------
    image : dask array, xarray.DataArray or zarr array of shape (H, W), or with bands along ``channel_axis``
    textures : Textures
    asked : Asked
    channel_axis : int, optional
    mask : array of shape (H, W), lazy or not, optional
        Non-zero where there is data.
    blocks : BlockPlan, optional
        :func:`texseg.tiles.plan_blocks` by default.

    Returns
    -------
    dask array of int32, (H, W), or xarray.DataArray with the coordinates of the image
        Labels from 1; 0 without data.
    """
    try:
        import dask
        import dask.array as da
    except ImportError:
        raise ImportError("lazy arrays need dask: pip install 'texseg[large]'") from None
    pixels, valid = _plain(image), _plain(mask)
    source = ArrayWindows(pixels, channel_axis, valid)  # checks the shapes
    blocks = plan_blocks(source.shape, textures) if blocks is None else blocks
    shared = dask.delayed(textures, traverse=False)
    read, finish = dask.delayed(_read, pure=True), dask.delayed(_finish, pure=True)
    axis = None if channel_axis is None else channel_axis % 3
    readings = {}
    for place in blocks:
        window = blocks.around(place)
        index: list[slice] = list(window)
        if axis is not None:
            index.insert(axis, slice(None))
        part = _piece(pixels, tuple(index))
        given = None if valid is None else _piece(valid, window)
        readings[place] = read(part, given, place, blocks, shared, asked, axis)
    names = dask.delayed(_join, pure=True)(
        [dask.delayed(_parts, pure=True)(reading) for reading in readings.values()],
        list(readings),
        textures.speck_area(asked.smoothness),
        asked.min_size,
    )
    rows, columns = blocks.grid
    grid = []
    for row in range(rows):
        line = []
        for column in range(columns):
            core = blocks.core((row, column))
            labels = finish(readings[row, column], names[row * columns + column], len(textures.profiles))
            shape = tuple(part.stop - part.start for part in core)
            line.append(da.from_delayed(labels, shape, np.int32))
        grid.append(line)
    found = da.block(grid)
    if not hasattr(image, "isel"):
        return found
    frame = image if axis is None else image.isel({image.dims[axis]: 0}, drop=True)
    return frame.copy(data=found).rename("labels")


def _plain(array: Any) -> Any:
    """Unwrap an xarray.DataArray."""
    return array.data if hasattr(array, "isel") else array


def _piece(array: Any, index: tuple[slice, ...]) -> Any:
    """Slice a dask array now; anything else, such as zarr, when the task runs."""
    return array[index] if hasattr(array, "__dask_graph__") else _Piece(array, index)


class _Piece:
    """A part of an array that is read in the task that needs it."""

    def __init__(self, array: Any, index: tuple[slice, ...]) -> None:
        self.array, self.index = array, index

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.array[self.index], dtype)


def _read(
    pixels: Any,
    mask: Any,
    place: Place,
    blocks: BlockPlan,
    textures: Textures,
    asked: Asked,
    channel_axis: int | None,
) -> BlockReading:
    valid = None if mask is None else np.asarray(mask) != 0
    return read_block(np.asarray(pixels), valid, place, blocks, textures, asked, channel_axis)


def _parts(reading: BlockReading) -> BlockParts:
    return reading.parts


def _join(parts: list[BlockParts], places: list[Place], area: float, min_size: float) -> list[NDArray]:
    return list(joined_labels(dict(zip(places, parts, strict=True)), area, min_size).values())


def _finish(reading: BlockReading, names: NDArray[np.int32], n_textures: int) -> NDArray[np.int32]:
    return finished(reading, names, n_textures)
