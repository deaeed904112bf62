"""How inputs are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from texseg.io.read import MAX_PIXELS

_LUMA = np.array([0.2125, 0.7154, 0.0721], np.float32)  # of red, green, blue, as in ITU-R BT.709


@dataclass(frozen=True)
class ReadOptions:
    """How the inputs are read; see `texseg.io.read.read_image`."""

    page: int | Literal["all"] | None = None
    channel_axis: int | None = None
    channels: tuple[int, ...] | None = None
    """Those that are looked at, from 0; None: all."""
    grey: bool = False
    """Turn colour grey."""
    mask: Path | None = None
    """File with a mask for every image, or folder with one named like each image."""
    seeds: Path | None = None
    """File with strokes for the image, or folder with one named like each image."""
    nodata: float | None = None
    ignore_alpha: bool = False
    max_pixels: int | None = MAX_PIXELS
    level: int | None = None
    """Level of a pyramid; such images are read by windows."""
    memory: int | None = None
    """Bytes; images that need more are read by windows, block by block. None: half of what is free."""


def mask_for(path: Path, masks: Path) -> Path:
    """Return the file with the mask of an image: ``masks`` itself, or a file in that folder."""
    return _named_like(path, masks, "mask")


def seeds_for(path: Path, seeds: Path) -> Path:
    """Return the file with the strokes on an image: ``seeds`` itself, or a file in that folder."""
    return _named_like(path, seeds, "strokes")


def _named_like(path: Path, folder: Path, what: str) -> Path:
    if not folder.is_dir():
        return folder
    found = sorted(file for file in folder.iterdir() if file.name == path.name or file.stem == path.stem)
    if not found:
        raise OSError(f"no {what} named {path.stem} in {folder}")
    return found[0]


def turned_grey(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Lightness (H, W) of colours (H, W, 3)."""
    if pixels.shape[-1] != 3:
        raise ValueError(f"only three channels can be turned grey, not {pixels.shape[-1]}; use --channels")
    return np.tensordot(pixels.astype(np.float32), _LUMA, 1)
