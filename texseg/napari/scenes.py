"""Scenes larger than memory: files as lazy levels of detail, and levels of their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import UnsuitableImageError
from texseg.io.source import Source, open_source

__all__ = ["LARGEST_PICTURE", "FileLevels", "levels_of_labels", "read_scene"]

LARGEST_PICTURE = 8192
"""Side in pixels of the largest labels in one piece, which can be painted on; graphics cards draw no more."""

_OVERVIEW = 2048  # pixels, side of the coarsest level where a file has no pyramid; what a screen shows
_TILE = 1024  # pixels, side of what is read at once


class FileLevels(NamedTuple):
    """A file by levels of detail, the finest first, as lazy arrays; the coarsest may be in memory."""

    pixels: list[Any]
    """(H, W), or (H, W, 3) of colours."""
    masks: list[Any] | None
    """(H, W), True where there is data; None where the file names no value for its absence."""
    notes: tuple[str, ...]


def read_scene(path: str | Path) -> FileLevels:
    """Open an image file by windows, see :mod:`texseg.io.source`; pixels are read when they are shown.

    A file without a pyramid is read once, by windows, for a coarse level.

    Raises
    ------
    ImageReadError, UnsuitableImageError
        The file is broken, cannot be read by windows, or has other bands than grey or three colours.
    """
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
        coarse, valid = _reduced(windows[-1])
        pixels.append(coarse)
        if masks is not None:
            masks.append(valid)
    return FileLevels(pixels, masks, finest.notes)


def levels_of_labels(labels: NDArray[Any]) -> list[NDArray[Any]]:
    """Give labels at half the resolution, again and again, without a copy, down to what a screen shows."""
    levels = [labels]
    while max(levels[-1].shape[-2:]) > _OVERVIEW:
        levels.append(levels[-1][..., ::2, ::2])
    return levels


def _lazy(windows: Source, part: int) -> Any:
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
    chunks = da.core.normalize_chunks((_TILE, _TILE, *bands), shape, dtype=dtype)
    return da.map_blocks(read, chunks=chunks, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))


def _reduced(windows: Source) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Every n-th pixel of every n-th row, and where it holds data."""
    H, W = windows.shape
    step = -(-max(H, W) // _OVERVIEW)
    pixels, masks = [], []
    height = step * max(1, _TILE // step)
    for top in range(0, H, height):
        found, valid = windows.read((slice(top, min(top + height, H)), slice(0, W)))
        pixels.append(found[::step, ::step].copy())
        masks.append(np.ones(pixels[-1].shape[:2], bool) if valid is None else valid[::step, ::step])
    return np.concatenate(pixels), np.concatenate(masks)
