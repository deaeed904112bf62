"""What a layer of the viewer holds, plane by plane, and files larger than memory as lazy levels of detail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray

from texseg.io.files import UnsuitableImageError
from texseg.io.read import Source, open_source
from texseg.method.blocks import is_lazy
from texseg.progress import expected_memory, free_memory

LARGEST_PICTURE = 8192  # pixels, side of labels that can be painted on; graphics cards draw no more

_OVERVIEW = 2048  # pixels, side of the coarsest level where a file has no pyramid; what a screen shows
_TILE = 1024  # pixels, side of what is read at once

_PLACEMENT = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
_COLOURS = 3  # bands of an RGB layer; a fourth one is its opacity

Index = tuple[int, ...]


class Plane(NamedTuple):
    """One image of a layer, or one volume."""

    place: Index  # on the axes before its own; empty where there are none
    pixels: Any  # (H, W) or (D, H, W), with 3 colours of an RGB layer; lazy where `LayerSource.is_too_large`
    mask: Any  # True where there is data; None when that is everywhere


class LayerSource:
    """The planes, or volumes, of an image layer, under a mask, with seeds; pixels are loaded on demand.

    Of several resolutions the finest is used; the opacity of RGBA colours is used as a mask. A mask has one
    plane for all, or as many planes as the image; seeds have the shape of the image.
    """

    def __init__(
        self, layer: Image, mask: Labels | Image | None = None, seeds: Labels | None = None, n_axes: int = 2
    ) -> None:
        self._data, self.n_axes = finest(layer), n_axes
        self.channel_axis = -1 if layer.rgb else None
        shape = tuple(int(n) for n in self._data.shape[: -1 if layer.rgb else None])
        self.shape = shape
        """Of the labels: (H, W), or with further axes before them."""
        self._mask: Any = None if mask is None else finest(mask)
        if mask is not None and finest(mask).shape not in (shape, shape[-2:]):
            raise ValueError(
                f"the mask {mask.name!r} has shape {tuple(finest(mask).shape)}, "
                f"the image {layer.name!r} {shape}; draw it on a labels layer of the image's own shape"
            )
        self._seeds: Any = None if seeds is None else finest(seeds)
        if seeds is not None and finest(seeds).shape != shape:
            raise ValueError(
                f"the seeds {seeds.name!r} have shape {tuple(finest(seeds).shape)}, the image "
                f"{layer.name!r} {shape}; 'New' adds a layer for them"
            )

    def seeds(self, index: Index) -> NDArray[np.integer] | None:
        """Load the seeds (H, W) on one plane; None if there is no layer for them."""
        return None if self._seeds is None else np.asarray(self._seeds[index])

    @property
    def painted(self) -> list[Index]:
        """Indices of the planes with seeds."""
        return [] if self._seeds is None else [index for index in self.indices if self._seeds[index].any()]

    @property
    def indices(self) -> list[Index]:
        """Indices of all planes."""
        return list(np.ndindex(self.shape[: -self.n_axes]))

    def plane(self, index: Index) -> Plane:
        """Load one plane."""
        data, mask = (self._data[index] if index else self._data), None
        pixels = data if self.is_too_large else np.asarray(data)
        if self._mask is not None:
            mask = self._mask[index] if index and self._mask.ndim == len(self.shape) else self._mask
            mask = (mask if self.is_too_large and is_lazy(mask) else np.asarray(mask)) != 0
            if mask.ndim < self.n_axes:
                mask = np.broadcast_to(mask, self.shape[-3:])
        if self.channel_axis is not None:
            if pixels.shape[-1] > _COLOURS:
                opaque = pixels[..., _COLOURS] > 0
                mask = opaque if mask is None else mask & opaque
            pixels = pixels[..., :_COLOURS]
        return Plane(index, pixels, mask)

    @property
    def is_too_large(self) -> bool:
        """Whether planes are lazy, and would take more than half of the memory that is free."""
        needed = expected_memory(
            int(np.prod(self.shape[-self.n_axes :])), 1 if self.channel_axis is None else _COLOURS
        )
        return is_lazy(self._data) and needed > free_memory() // 2

    def planes(self, indices: list[Index]) -> Iterator[Plane]:
        """Load planes, skipping those without any data."""
        for index in indices:
            plane = self.plane(index)
            if plane.mask is None or bool(plane.mask.any()):
                yield plane


def placement(layer: Layer) -> dict[str, Any]:
    """Arguments that put another layer of the same axes exactly where this one is."""
    state = layer.as_layer_data_tuple()[1]
    return {name: state[name] for name in _PLACEMENT if name in state}


def finest(layer: Layer) -> Any:
    """Return the data of a layer at its highest resolution."""
    return layer.data[0] if layer.multiscale else layer.data


class FileLevels(NamedTuple):
    """A file by levels of detail, the finest first, as lazy arrays; the coarsest may be in memory."""

    pixels: list[Any]  # (H, W), or (H, W, 3) of colours
    masks: list[Any] | None  # (H, W), True where there is data; None where the file has no value for none
    notes: tuple[str, ...]


def read_scene(path: str | Path) -> FileLevels:
    """Open an image file by windows that are read when they are shown; one without a pyramid is read once."""
    finest = open_source(path)
    if finest.only_whole:
        raise UnsuitableImageError(f"{Path(path).name}: {finest.only_whole}")
    if finest.n_channels not in (1, 3):
        raise UnsuitableImageError(
            f"{Path(path).name}: {finest.n_channels} bands, of which napari shows one or three; "
            "keep some with `texseg segment --channels`"
        )
    windows = [finest, *(open_source(path, level=k) for k in range(1, len(finest.levels)))]
    corner = finest.read((slice(0, 1), slice(0, 1)))[1]
    masked = corner is not None or finest.nodata is not None
    pixels = [_lazy(level, 0) for level in windows]
    masks = [_lazy(level, 1) for level in windows] if masked else None
    if max(windows[-1].shape) > 2 * _OVERVIEW:
        step = -(-max(windows[-1].shape) // _OVERVIEW)
        for part, levels in enumerate((pixels, masks)):  # rows as a whole, in which most files are stored
            if levels is not None:
                levels.append(_lazy(windows[-1], part, columns=-1)[::step, ::step].compute())
    return FileLevels(pixels, masks, finest.notes)


def levels_of_labels(labels: NDArray[Any]) -> list[NDArray[Any]]:
    """Give labels at half the resolution, again and again, without a copy, down to what a screen shows."""
    levels = [labels]
    while max(levels[-1].shape[-2:]) > _OVERVIEW:
        levels.append(levels[-1][..., ::2, ::2])
    return levels


def _lazy(windows: Source, part: int, columns: int = _TILE) -> Any:
    """Pixels (0) or mask (1) of a file as a dask array."""
    import dask.array as da

    def read(block_info: Any) -> NDArray[Any]:
        rows, columns = (slice(*ends) for ends in block_info[None]["array-location"][:2])
        found = windows.read((rows, columns))
        if part == 0:
            return found[0]
        return np.ones(found[0].shape[:2], bool) if found[1] is None else found[1]

    dtype = windows.dtype if part == 0 else np.dtype(bool)
    bands = (windows.n_channels,) if part == 0 and windows.n_channels > 1 else ()
    shape = (*windows.shape, *bands)
    chunks = da.core.normalize_chunks((_TILE, columns, *bands), shape, dtype=dtype)
    return da.map_blocks(read, chunks=chunks, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))
