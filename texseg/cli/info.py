"""What a file holds, and what segmenting it would cost."""

from __future__ import annotations

import os
from pathlib import Path

from texseg.forecast import expected_memory, expected_seconds
from texseg.io.header import Header
from texseg.io.read import read_header


def describe(
    path: str | os.PathLike[str], n_segments: int | None = None, preset: str = "default"
) -> dict[str, str | int | float | None]:
    """Describe an image file from its header alone.

    Parameters
    ----------
    path : str or path-like
        Image file of any size.
    n_segments : int, optional
        Number of segments for the forecast; None: to be chosen.
    preset : {"default", "plain"}, default="default"
        For the forecast.

    Returns
    -------
    dict
        Format, size, type, channels, pages, orientation, no-data value, georeference, and what one page is
        expected to cost: memory in MB, processor time in seconds.
    """
    header = read_header(path)
    memory = expected_memory(header.height * header.width, header.n_channels, n_segments, preset)
    seconds = expected_seconds((header.height, header.width), n_segments, preset)
    return {
        "file": Path(path).name,
        "format": header.format,
        "width": header.width,
        "height": header.height,
        "dtype": str(header.dtype),
        "channels": header.n_channels,
        "alpha": "yes" if header.has_alpha else "no",
        "axes": "x".join(map(str, header.shape)) + f" ({header.axes})",
        "pages": header.n_pages,
        "orientation": header.orientation,
        "nodata": header.nodata,
        "georeference": _place(header),
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
