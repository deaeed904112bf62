"""Which format a file has, by its content, and what opens it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from texseg.io.arrays import open_npy, open_zarr
from texseg.io.envi import find_header, open_envi
from texseg.io.errors import UnsuitableImageError
from texseg.io.files import open_regular
from texseg.io.header import Stored
from texseg.io.pictures import open_picture
from texseg.io.raster import RasterStored, WholeOrRaster, can_read_rasters
from texseg.io.sniff import SNIFF_BYTES, image_format, require_image_format


def open_stored(path: Path, files: ExitStack) -> Stored:
    """Open a file, or the folder of a zarr store, in the format that its content announces."""
    if path.is_dir() and _is_zarr(path):
        return open_zarr(path)
    stream = files.enter_context(open_regular(path))
    start = stream.read(SNIFF_BYTES)
    format = image_format(start)
    envi = None if format else find_header(path)
    if envi is not None:
        return open_envi(path, envi)
    if format is None and can_read_rasters():
        try:
            return RasterStored(path, files)
        except UnsuitableImageError:
            pass  # said below what it is instead
    format = require_image_format(start)
    size = os.fstat(stream.fileno()).st_size
    stream.seek(0)
    if format == "TIFF":
        from texseg.io.tiff import TiffSource

        return TiffSource(stream, size)
    if format == "NPY":
        return open_npy(path)
    whole = open_picture(format, stream, size)
    return WholeOrRaster(whole, path, files) if format in ("JPEG 2000", "BMP") else whole


def _is_zarr(folder: Path) -> bool:
    """Tell whether a folder is one array, or one OME-Zarr image."""
    return any((folder / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))
