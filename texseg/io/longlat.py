"""Longitude and latitude, in which GeoJSON states coordinates unless it names another system by its code."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.geo import Georeference


def to_longitude_latitude(points: NDArray[np.float64], geo: Georeference) -> NDArray[np.float64] | None:
    """Reproject map coordinates (n, 2) from the system that a file describes by its GeoTIFF keys or in words.

    None if that is impossible: rasterio is not installed, or does not understand the description.
    """
    try:
        from rasterio.crs import CRS
        from rasterio.errors import CRSError
        from rasterio.io import MemoryFile
        from rasterio.warp import transform
    except ImportError:
        return None
    try:
        if geo.system:
            system = CRS.from_wkt(geo.system)
        else:
            with MemoryFile(_one_pixel(geo)) as memory, memory.open() as file:
                system = file.crs
        if not system:
            return None
        longitudes, latitudes = transform(system, "OGC:CRS84", points[:, 0], points[:, 1])
    except (CRSError, OSError):
        return None
    placed = np.stack([longitudes, latitudes], axis=-1)
    return placed if np.isfinite(placed).all() else None


def _one_pixel(geo: Georeference) -> bytes:
    """Return a TIFF file with the georeference, for a library that reads keys from files only."""
    from tifffile import imwrite

    buffer = BytesIO()
    tags = [(*tag, True) for tag in geo.tags]
    imwrite(buffer, np.zeros((1, 1), np.uint8), photometric="minisblack", metadata=None, extratags=tags)
    return buffer.getvalue()
