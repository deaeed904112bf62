"""What a file holds, and what segmenting it would cost."""

from __future__ import annotations

import os
from pathlib import Path

from texseg.io.forecast import forecast
from texseg.io.read import read_header


def describe(path: str | os.PathLike[str]) -> dict[str, str | int | float | None]:
    """Describe an image file from its header alone.

    Parameters
    ----------
    path : str or path-like
        Image file of any size.

    Returns
    -------
    dict
        Format, size, type, channels, pages, orientation, no-data value, georeference, and the memory (MB) and
        time (s) that one page is expected to cost with the default settings.
    """
    header = read_header(path)
    cost = forecast(header.height * header.width, header.n_channels)
    where = None
    if header.geo is not None:
        affine = header.geo.transform
        system = "unknown coordinate system" if header.geo.epsg is None else f"EPSG:{header.geo.epsg}"
        where = (
            system
            if affine is None
            else f"{system}, origin {affine.c:g} {affine.f:g}, pixel {affine.a:g} {affine.e:g}"
        )
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
        "georeference": where,
        "memory_MB": round(cost.memory / 1e6),
        "seconds": round(cost.seconds, 1),
    }
