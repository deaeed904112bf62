"""What a layer of the viewer holds, plane by plane, and where a matching layer has to be placed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray

from texseg.blocks import is_lazy
from texseg.progress import expected_memory, free_memory

__all__ = ["Plane", "LayerSource", "finest", "placement"]

_PLACEMENT = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
_COLOURS = 3  # bands of an RGB layer; a fourth one is its opacity

Index = tuple[int, ...]


class Plane(NamedTuple):
    """One image of a layer."""

    place: Index
    """Its place on the axes before the last two; empty where there are none."""
    pixels: Any
    """(H, W), or (H, W, 3) of an RGB layer; lazy where :attr:`LayerSource.is_too_large`."""
    mask: Any
    """True where there is data; None when that is everywhere."""


class LayerSource:
    """The planes of an image layer, under a mask, with seeds; pixels are loaded on demand.

    Of several resolutions the finest is used; the opacity of RGBA colours is used as a mask. A mask has one
    plane for all, or as many planes as the image; seeds have the shape of the image.
    """

    def __init__(self, layer: Image, mask: Labels | Image | None = None, seeds: Labels | None = None) -> None:
        self._data = finest(layer)
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
        return list(np.ndindex(self.shape[:-2]))

    def plane(self, index: Index) -> Plane:
        """Load one plane."""
        data, mask = (self._data[index] if index else self._data), None
        pixels = data if self.is_too_large else np.asarray(data)
        if self._mask is not None:
            mask = self._mask[index] if index and self._mask.ndim == len(self.shape) else self._mask
            mask = (mask if self.is_too_large and is_lazy(mask) else np.asarray(mask)) != 0
        if self.channel_axis is not None:
            if pixels.shape[-1] > _COLOURS:
                opaque = pixels[..., _COLOURS] > 0
                mask = opaque if mask is None else mask & opaque
            pixels = pixels[..., :_COLOURS]
        return Plane(index, pixels, mask)

    @property
    def is_too_large(self) -> bool:
        """Whether planes are lazy, and would take more than half of the memory that is free."""
        needed = expected_memory(int(np.prod(self.shape[-2:])), 1 if self.channel_axis is None else _COLOURS)
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
