"""Seeds from a file: a label image, or GeoJSON drawn in a viewer or a geographic information system."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import ImageReadError, UnsuitableImageError
from texseg.io.files import open_regular
from texseg.io.geo import Georeference
from texseg.io.read import LabelPicture, read_header, read_label_picture
from texseg.io.source import failures_named

__all__ = ["count_up", "read_seed_file"]

_MOST_UNPAINTED = 14
"""Most numbers of classes that strokes may skip, as many as a fit finds by itself: where more are
missing, the numbers are the grey values of a paint program."""

_LINE_WIDTH = 3  # pixels, of lines and points
_LARGEST_CLASS = 255
_MOST_BYTES = 2**27  # of GeoJSON
_PROPERTIES = ("class", "label", "classification")
_DRAWN = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon")
_FAR = 2.0**20  # pixels; lines may start this far outside of the image


def read_seed_file(
    path: str | os.PathLike[str], shape: tuple[int, int], geo: Georeference | None = None
) -> NDArray[np.int32]:
    """Read seeds (H, W): 0, or c where a pixel is of class c.

    A picture is a label image, or holds other grey values or colours on an unpainted ground; a warning says
    what was taken as what. GeoJSON holds points, lines (drawn 3 pixels wide) and polygons with the number or
    name of their class in the property ``class``, ``label`` or (QuPath) ``classification``, in the
    coordinates of the image or in its pixels; names are numbered in their order.
    """
    name = Path(path).name
    if Path(path).suffix.lower() in (".geojson", ".json"):
        drawn = np.zeros(shape, np.int32)
        features = list(_features(Path(path)))
        number_of = _numbers([said for said, _, _ in features], name)
        for said, kind, coordinates in features:
            number = int(number_of.get(said, said))
            _draw(drawn, number, kind, coordinates, geo, name)
        if not drawn.any():
            in_pixels = geo is None or geo.transform is None
            where = "pixels (column, row)" if in_pixels else "the image's own system"
            raise UnsuitableImageError(f"{name}: no stroke lies on the image; coordinates must be in {where}")
        return drawn
    picture = read_label_picture(path)
    if picture.labels.shape != tuple(shape):
        (rows, columns), found = shape, picture.labels.shape
        raise UnsuitableImageError(
            f"{name}: the strokes are {found[1]} x {found[0]} pixels, the image {columns} x {rows}"
        )
    if read_header(path).format == "JPEG":
        raise UnsuitableImageError(
            f"{name}: JPEG compression alters the colours of strokes; save them as PNG"
        )
    return _classes(picture, name)


def _classes(picture: LabelPicture, name: str) -> NDArray[np.int32]:
    """Turn a picture into classes: label images as they are, grey values and colours numbered from 1."""
    labels = picture.labels
    values, places = np.unique(labels, return_inverse=True)
    numbers = values[values > 0]
    if picture.colours is None and picture.mask is None and values[0] <= 0 and count_up(numbers):
        return labels
    places = places.reshape(labels.shape)
    ground = labels == 0 if picture.mask is None else ~picture.mask
    if picture.mask is None:
        commonest = int(np.bincount(places.ravel()).argmax())
        if 2 * np.count_nonzero(places == commonest) > labels.size:
            ground = places == commonest
    if not ground.any():
        raise UnsuitableImageError(
            f"{name}: no unpainted background found; leave it 0 in a label image, transparent, or in one "
            "colour that covers more than half of the image"
        )
    painted = places[~ground]
    if not len(painted):
        raise UnsuitableImageError(
            f"{name}: no stroke: all pixels are {_called(picture, int(labels.flat[0]))}"
        )
    present = np.unique(painted)
    places = np.where(ground, -1, places)
    corner = places[:-1, :-1]
    is_broad = (corner == places[1:, :-1]) & (corner == places[:-1, 1:]) & (corner == places[1:, 1:])
    broad = np.intersect1d(present, corner[is_broad])  # 2 x 2 pixels, somewhere
    kept = broad if len(broad) else present
    if len(kept) > _MOST_UNPAINTED and not (picture.colours is None and count_up(values[kept])):
        raise UnsuitableImageError(
            f"{name}: {len(present)} different colours are too many for strokes; use a hard brush without "
            "anti-aliasing, one colour a class, and a format without losses such as PNG"
        )
    meanings = [
        f"class {c} is {_called(picture, int(values[place]))}" for c, place in enumerate(kept, start=1)
    ]
    blurred = 1 - np.isin(painted, kept).mean()
    if blurred > 0.5:
        raise UnsuitableImageError(
            f"{name}: {100 * blurred:.0f} % of the painted pixels are the soft edges of strokes and would be "
            "lost; use a hard brush without anti-aliasing"
        )
    if blurred:
        meanings.append(
            f"{100 * blurred:.2g} % of the painted pixels have {len(present) - len(kept)} other colours, "
            "as at the edges of soft brushes, and count as unpainted"
        )
    unpainted = "transparency" if picture.mask is not None else _called(picture, int(labels[ground][0]))
    warnings.warn(f"{name}: unpainted is {unpainted}, {', '.join(meanings)}", stacklevel=3)
    number_of = np.zeros(len(values), np.int32)
    number_of[kept] = np.arange(1, len(kept) + 1)
    return np.where(ground, 0, number_of[places]).astype(np.int32)


def count_up(numbers: NDArray[np.integer]) -> bool:
    """Tell whether numbers are those of classes, rather than grey values of a paint program."""
    return not len(numbers) or int(numbers[-1]) - len(numbers) <= _MOST_UNPAINTED


def _called(picture: LabelPicture, label: int) -> str:
    """Call a label as its painter sees it."""
    if picture.colours is None:
        return str(label)
    return f"({', '.join(map(str, picture.colours[label - 1].tolist()))})"


def _features(path: Path) -> Iterator[tuple[int | str, str, Any]]:
    """Yield class, type and coordinates of every geometry in a file."""
    with failures_named(path), open_regular(path, _MOST_BYTES) as file:
        text = file.read()
    try:
        content = json.loads(text.decode("utf-8-sig"))
    except RecursionError:
        raise ImageReadError(f"{path.name}: no GeoJSON: brackets are nested too deeply") from None
    except ValueError as error:
        raise ImageReadError(f"{path.name}: no GeoJSON: {error}") from None
    features = content.get("features") if isinstance(content, Mapping) else None
    if not isinstance(features, list):
        raise UnsuitableImageError(f"{path.name}: strokes must be a GeoJSON FeatureCollection")
    for place, feature in enumerate(features):
        properties, geometry = (_mapping(_mapping(feature).get(part)) for part in ("properties", "geometry"))
        said = _class_of(properties)
        if said is None:
            given = next((properties[name] for name in _PROPERTIES if name in properties), None)
            raise UnsuitableImageError(
                f"{path.name}: feature {place} needs its class, a number from 1 to {_LARGEST_CLASS} or a "
                f"name, in the property class, label or classification, got {given!r:.60}"
            )
        kind = geometry.get("type")
        if kind not in _DRAWN:
            raise UnsuitableImageError(
                f"{path.name}: feature {place} must be one of {', '.join(_DRAWN)}, got {kind!r:.60}"
            )
        yield said, kind, geometry.get("coordinates")


def _class_of(properties: Mapping[str, Any]) -> int | str | None:
    """Return the number or name of a class, as QuPath and others write it; None if there is none."""
    said = next((properties[name] for name in _PROPERTIES if name in properties), None)
    said = said.get("name") if isinstance(said, Mapping) else said
    if isinstance(said, str):
        said = " ".join(said.split())
        said = int(said) if said.isdecimal() and len(said) < 10 else said
    if isinstance(said, str):
        return said if said and said.isprintable() else None
    if not isinstance(said, int) or isinstance(said, bool):
        return None
    return said if 1 <= said <= _LARGEST_CLASS else None


def _numbers(classes: list[int | str], name: str) -> dict[int | str, int]:
    """Give numbers to the classes that have names, in the order of the names, and say so."""
    names = sorted({said for said in classes if isinstance(said, str)})
    if names and len(names) < len(set(classes)):
        raise UnsuitableImageError(f"{name}: classes must all be numbers or all be names, got both")
    if len(names) > _LARGEST_CLASS:
        raise UnsuitableImageError(f"{name}: {len(names)} classes are more than {_LARGEST_CLASS}")
    if names:
        meanings = (f"class {number} is {said:.60}" for number, said in enumerate(names, start=1))
        warnings.warn(f"{name}: {', '.join(meanings)}", stacklevel=3)
    return {said: number for number, said in enumerate(names, start=1)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


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
        raise UnsuitableImageError(f"{name}: {kind} with invalid coordinates") from error


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
