"""Which format a file has, by its content, and what opens it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from texseg.io.arrays import open_npy
from texseg.io.envi import find_header, open_envi
from texseg.io.errors import UnsuitableImageError
from texseg.io.files import open_regular
from texseg.io.header import Stored
from texseg.io.pictures import open_picture
from texseg.io.raster import RasterStored, WholeOrRaster, can_read_rasters, open_hierarchical
from texseg.io.sniff import SNIFF_BYTES, hierarchical_format, image_format, require_image_format
from texseg.io.stores import is_store, open_zarr


def open_stored(path: Path, files: ExitStack) -> Stored:
    """Open a file, or the folder of a zarr store, in the format that its content announces."""
    if path.is_dir() and is_store(path):
        return open_zarr(path)
    stream = files.enter_context(open_regular(path))
    start = stream.read(SNIFF_BYTES)
    format = image_format(start)
    envi = None if format else find_header(path)
    if envi is not None:
        return open_envi(path, envi)
    if format is None and can_read_rasters():
        try:
            hierarchical = hierarchical_format(start)
            if hierarchical:
                return open_hierarchical(hierarchical, path, files)
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
