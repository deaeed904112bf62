"""Label images that are written block by block, as tiled and compressed TIFF files that may be very large."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.io.geo import GDAL_NODATA, Georeference
from texseg.palette import palette

__all__ = ["write_label_rows"]

TILE = 512
"""Side of the tiles in pixels."""

_REDUCED = 1  # NewSubfileType of overviews
_STEP = 4  # each overview has a side this many times smaller
_SMALL = 1024  # an image whose sides are no longer needs no overview
_CLASSIC = 2**32 - 2**25  # bytes; a TIFF that may be larger needs 64-bit offsets
_TIFF_ASCII = 2


def write_label_rows(
    path: Path,
    bands: Iterable[NDArray[np.integer]],
    shape: tuple[int, int],
    largest: int,
    geo: Georeference | None = None,
    scratch: Path | None = None,
) -> None:
    """Write a label image from bands of full width, top to bottom, holding one of them at a time.

    The file is a tiled, deflated TIFF (BigTIFF if it may exceed 4 GB) with overviews, which hold every fourth
    row and column of the level before; it appears whole or not at all. With a georeference, and if rasterio
    is installed, it is a cloud-optimised GeoTIFF, each overview having half the side of the level before.

    Parameters
    ----------
    path : Path
        Target, ``.tif``.
    bands : iterable of int arrays of shape (h, W)
        Their heights may differ.
    shape : (int, int)
        H and W of the image.
    largest : int
        Largest label that may occur: up to 255 the file has 8 bits and a palette, up to 65535 16 bits.
    geo : Georeference, optional
        Its tags are written, with 0 as the no-data value.
    scratch : Path, optional
        Folder on the same disk for the file while it is written; that of the target by default.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.tif"
    >>> write_label_rows(path, [np.ones((512, 700), int), np.full((88, 700), 2)], (600, 700), 2)
    >>> from texseg.io.read import read_labels
    >>> read_labels(path)[[0, 511, 512, 599], 0].tolist()
    [1, 1, 2, 2]
    """
    from tifffile import TiffWriter

    dtype = np.dtype(np.uint8 if largest <= 255 else np.uint16)
    colours = palette(255).T.astype(np.uint16) * 257 if largest <= 255 else None
    tags = [(*tag, True) for tag in geo.tags] if geo is not None else []
    tags.append((GDAL_NODATA, _TIFF_ASCII, 2, "0", True))
    common: dict[str, Any] = {
        "photometric": "minisblack" if colours is None else "palette",
        "colormap": colours,
        "compression": "zlib",
        "predictor": False,
        "metadata": None,
        "tile": (TILE, TILE),
    }
    temporary = (scratch or path.parent) / f".{path.name}.{secrets.token_hex(4)}.part"
    reduced: list[NDArray] = []
    try:
        with TiffWriter(temporary, bigtiff=shape[0] * shape[1] * dtype.itemsize > _CLASSIC) as file:
            tiles = _tiles(_keeping(bands, reduced, dtype), dtype)
            file.write(tiles, shape=shape, dtype=dtype, extratags=tags, **common)
            level = np.concatenate(reduced)
            while max(level.shape) * _STEP > _SMALL:
                file.write(level, subfiletype=_REDUCED, **common)
                level = level[::_STEP, ::_STEP]
        if geo is not None and geo.tags and find_spec("rasterio") is not None:
            _optimise_for_clouds(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _optimise_for_clouds(path: Path) -> None:
    """Rewrite a GeoTIFF in the order for reading over a network: tables first, overviews before tiles."""
    import rasterio
    from rasterio.shutil import copy

    ordered = path.with_suffix(".cog.part")
    options = {"blocksize": TILE, "compress": "DEFLATE", "overview_resampling": "NEAREST"}
    try:
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
            copy(path, ordered, driver="COG", bigtiff="IF_SAFER", **options)
        ordered.replace(path)
    finally:
        ordered.unlink(missing_ok=True)


def _keeping(
    bands: Iterable[NDArray[np.integer]], reduced: list[NDArray], dtype: np.dtype
) -> Iterator[NDArray]:
    """Pass bands on, each as high as a tile, and keep every fourth row and column of them."""
    waiting: list[NDArray] = []
    for band in bands:
        waiting.append(band.astype(dtype))
        rows = np.concatenate(waiting)
        whole = len(rows) // TILE * TILE
        waiting = [rows[whole:]]
        for top in range(0, whole, TILE):
            reduced.append(rows[top : top + TILE : _STEP, ::_STEP].copy())
            yield rows[top : top + TILE]
    for rest in waiting:
        if len(rest):
            reduced.append(rest[::_STEP, ::_STEP].copy())
            yield rest


def _tiles(bands: Iterable[NDArray], dtype: np.dtype) -> Iterator[NDArray]:
    """Cut bands into the tiles of a TIFF file, the last ones padded with zeros."""
    for band in bands:
        for top in range(0, band.shape[0], TILE):
            for left in range(0, band.shape[1], TILE):
                piece = band[top : top + TILE, left : left + TILE]
                tile = np.zeros((TILE, TILE), dtype)
                tile[: piece.shape[0], : piece.shape[1]] = piece
                yield tile
