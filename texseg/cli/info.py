"""What a file holds, and what segmenting it would cost."""

from __future__ import annotations

import os
from pathlib import Path

from texseg.forecast import expected_by_blocks, expected_memory, expected_seconds, free_memory
from texseg.io.header import Header
from texseg.io.read import read_header
from texseg.threads import n_threads

_ON_ITS_SIDE = 5  # and above: EXIF orientations that exchange rows and columns


def describe(
    path: str | os.PathLike[str], n_segments: int | None = None, preset: str = "default"
) -> dict[str, str | int | float | None]:
    """Describe an image file from its header alone.

    Parameters
    ----------
    path : str or path-like
        Image file of any size.
    n_segments : int, optional
        Number of segments for the forecast; None if it is to be chosen automatically.
    preset : {"default", "plain"}, default="default"
        Preset for the forecast.

    Returns
    -------
    dict
        Format, size of the results (photographs are turned upright), type, channels, pages, orientation,
        no-data value, georeference, size of a pixel, whether a page is read whole or by blocks, and what it
        is expected to cost: memory in MB, processor time in seconds.
    """
    header = read_header(path)
    shape, size = (header.height, header.width), header.pixel_size
    size_shown = shape[::-1] if header.orientation >= _ON_ITS_SIDE else shape
    memory = expected_memory(shape[0] * shape[1], header.n_channels, n_segments, preset)
    whole = memory <= free_memory() // 2
    if whole:
        seconds = expected_seconds(shape, n_segments, preset)
    else:
        memory, seconds = expected_by_blocks(shape, header.n_channels, n_segments, preset, n_threads(None))
    return {
        "file": Path(path).name,
        "format": header.format,
        "width": size_shown[1],
        "height": size_shown[0],
        "dtype": str(header.dtype),
        "channels": header.n_channels,
        "alpha": "yes" if header.has_alpha else "no",
        "axes": "x".join(map(str, header.shape)) + f" ({header.axes})",
        "pages": header.n_pages,
        "orientation": header.orientation,
        "nodata": header.nodata,
        "georeference": _place(header),
        "pixel_size": None if size is None else f"{size.width:g} x {size.height:g} {size.unit}",
        "read": "whole" if whole else "by blocks",
        "memory_MB": round(memory / 1e6),
        "seconds": round(seconds, 1),
    }


def _place(header: Header) -> str | None:
    """Say where an image lies."""
    if header.geo is None:
        return None
    affine, epsg = header.geo.transform, header.geo.epsg
    system = "unknown coordinate system" if epsg is None else f"EPSG:{epsg}"
    if affine is None:
        return system
    return f"{system}, origin {affine.c:g} {affine.f:g}, pixel {affine.a:g} {affine.e:g}"
