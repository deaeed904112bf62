"""Strokes from a file: a label image, or GeoJSON drawn in a viewer or a geographic information system."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import ImageReadError, UnsuitableImageError
from texseg.io.geo import Georeference
from texseg.io.read import read_labels

__all__ = ["read_strokes"]

_LINE_WIDTH = 3  # pixels, of lines and points
_LARGEST_CLASS = 255
_PROPERTIES = ("class", "label")
_DRAWN = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon")
_FAR = 2.0**20  # pixels; lines may start this far outside of the image


def read_strokes(
    path: str | os.PathLike[str], shape: tuple[int, int], geo: Georeference | None = None
) -> NDArray[np.int32]:
    """Read strokes (H, W): 0, or c where a pixel is of class c.

    Parameters
    ----------
    path : str or path-like
        A label image of the image's size, 0 where nothing is painted; or GeoJSON (``.geojson``, ``.json``)
        of points, lines (drawn 3 pixels wide) and polygons with the number of their class in the property
        ``class`` or ``label``, in the coordinates of the image where it has a georeference, else in pixels
        (column, row) from its upper left corner.
    shape : (H, W)
        Shape of the image.
    geo : Georeference, optional
        Georeference of the image.

    Raises
    ------
    OSError, ValueError
        The file cannot be read, or holds no strokes on this image; the message names it.
    """
    name = Path(path).name
    if Path(path).suffix.lower() in (".geojson", ".json"):
        drawn = np.zeros(shape, np.int32)
        for number, kind, coordinates in _features(Path(path)):
            _draw(drawn, number, kind, coordinates, geo, name)
        if not drawn.any():
            in_pixels = geo is None or geo.transform is None
            where = "pixels (column, row)" if in_pixels else "the image's own system"
            raise UnsuitableImageError(f"{name}: no stroke lies on the image; coordinates must be in {where}")
        return drawn
    labels = read_labels(path)
    if labels.shape != tuple(shape):
        raise UnsuitableImageError(
            f"{name}: the strokes are {_size(labels.shape)} pixels, the image {_size(shape)}"
        )
    if labels.size and labels.min() > 0:
        raise UnsuitableImageError(
            f"{name}: strokes must be 0 where nothing is painted, as in a grey label image; no pixel is 0"
        )
    return labels


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape[::-1]))


def _features(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Yield class, type and coordinates of every geometry in a file."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ImageReadError(f"{path.name}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise ImageReadError(f"{path.name}: no GeoJSON: {error}") from None
    features = content.get("features") if isinstance(content, Mapping) else None
    if not isinstance(features, list):
        raise UnsuitableImageError(f"{path.name}: strokes must be a GeoJSON FeatureCollection")
    for place, feature in enumerate(features):
        values = feature if isinstance(feature, Mapping) else {}
        properties, geometry = values.get("properties") or {}, values.get("geometry") or {}
        number = next((properties[name] for name in _PROPERTIES if name in properties), None)
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _LARGEST_CLASS:
            raise UnsuitableImageError(
                f"{path.name}: feature {place} needs the number of its class, 1 to {_LARGEST_CLASS}, in the "
                f"property class or label, got {number!r}"
            )
        kind = geometry.get("type")
        if kind not in _DRAWN:
            raise UnsuitableImageError(
                f"{path.name}: feature {place} must be one of {', '.join(_DRAWN)}, got {kind!r}"
            )
        yield number, kind, geometry.get("coordinates")


def _draw(
    drawn: NDArray[np.int32],
    number: int,
    kind: str,
    coordinates: Any,
    geo: Georeference | None,
    name: str,
) -> None:
    """Paint one geometry, in place."""
    try:
        parts = coordinates if kind.startswith("Multi") else [coordinates]
        if kind.endswith("Polygon"):
            for rings in parts:
                _fill(drawn, number, [_pixels(ring, geo) for ring in rings])
        else:
            for line in parts:
                _line(drawn, number, _pixels([line] if kind.endswith("Point") else line, geo))
    except (TypeError, ValueError, IndexError) as error:
        raise UnsuitableImageError(f"{name}: {kind} with coordinates that make no sense") from error


def _pixels(points: Any, geo: Georeference | None) -> NDArray[np.float64]:
    """Columns and rows (n, 2), from the corner of the image, of points in its coordinates."""
    places = np.array([[float(value) for value in point[:2]] for point in points], np.float64)
    if places.ndim != 2 or places.shape[1] != 2 or not np.isfinite(places).all():
        raise ValueError(points)
    transform = None if geo is None else geo.transform
    if transform is not None:
        matrix = np.array([[transform.a, transform.b], [transform.d, transform.e]])
        places = np.linalg.solve(matrix, (places - [transform.c, transform.f]).T).T
    return np.clip(places, -_FAR, _FAR)


def _fill(drawn: NDArray[np.int32], number: int, rings: list[NDArray[np.float64]]) -> None:
    """Paint the pixels whose centres lie inside the first ring and in none of the others."""
    from skimage.draw import polygon  # slow to import

    inside = np.zeros(drawn.shape, bool)
    for ring in rings:
        rows, columns = polygon(ring[:, 1] - 0.5, ring[:, 0] - 0.5, drawn.shape)
        inside[rows, columns] ^= True
    drawn[inside] = number


def _line(drawn: NDArray[np.int32], number: int, points: NDArray[np.float64]) -> None:
    marked = np.zeros(drawn.shape, np.uint8)
    corners = np.floor(points[[0, *range(len(points))]]).astype(np.int32).reshape(-1, 1, 2)  # a point, too
    cv2.polylines(marked, [corners], isClosed=False, color=1)
    drawn[cv2.dilate(marked, np.ones((_LINE_WIDTH, _LINE_WIDTH), np.uint8)) > 0] = number
