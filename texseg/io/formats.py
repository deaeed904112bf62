"""Which format a file has, by its content, and what opens it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from texseg.io.arrays import open_npy, open_zarr
from texseg.io.envi import find_header, open_envi
from texseg.io.errors import ImageTooLargeError, UnsuitableImageError
from texseg.io.files import open_regular
from texseg.io.header import Stored
from texseg.io.jpeg import JpegSource
from texseg.io.jpeg2000 import Jpeg2000Source
from texseg.io.pillow_formats import PillowSource
from texseg.io.png import PngSource
from texseg.io.raster import RasterStored, WholeOrRaster, can_read_rasters
from texseg.io.sniff import SNIFF_BYTES, image_format, require_image_format
from texseg.io.webp import WebpSource

_InMemory = type[JpegSource] | type[Jpeg2000Source] | type[WebpSource]
_IN_MEMORY: dict[str, _InMemory] = {"JPEG": JpegSource, "JPEG 2000": Jpeg2000Source, "WebP": WebpSource}
_SIDE_DATA_BYTES = 2**26  # metadata, previews and colour profiles that may come on top of the pixels


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
    if format == "PNG":
        return PngSource(stream, size)
    if format in _IN_MEMORY:
        whole: Stored = _source_in_memory(_IN_MEMORY[format], stream, size)
    else:
        whole = PillowSource(format, stream, size)
    return WholeOrRaster(whole, path, files) if format in ("JPEG 2000", "BMP") else whole


def _is_zarr(folder: Path) -> bool:
    """Tell whether a folder is one array, or one OME-Zarr image."""
    return any((folder / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def _source_in_memory(kind: _InMemory, stream: BinaryIO, size: int) -> Stored:
    """Read a file whole, unless it is far larger than the picture that it announces."""
    data = stream.read(_SIDE_DATA_BYTES)
    source = kind(data)
    if size <= len(data):
        return source
    header = source.header
    most = (
        _SIDE_DATA_BYTES
        + 2
        * header.height
        * header.width
        * max(4, header.n_channels)
        * header.n_pages
        * header.dtype.itemsize
    )
    if size > most:
        raise ImageTooLargeError(
            f"file of {size / 1e9:.1f} GB for {header.width} x {header.height} pixels, file is corrupt"
        )
    return kind(data + stream.read())
