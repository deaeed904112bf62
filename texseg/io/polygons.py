"""Outlines of label regions, exact along the edges of pixels, and as GeoJSON."""

import itertools
import json
import os
import struct
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from affine import Affine
from numpy.typing import NDArray

from texseg.io.files import UnsuitableImageError, atomic_write, output_path
from texseg.io.geo import Georeference, check_georeference, to_longitude_latitude
from texseg.io.regions import Row, Tally, checked_description

Ring = NDArray[np.int64]

_LONGITUDE_LATITUDE = 4326  # what GeoJSON means unless it says otherwise
_WKB_POLYGON = 3
_FIRST_CORNERS = (0, 0), (0, 1), (1, 1), (1, 0)  # (row, column) where the edge of that side of a pixel begins
_FIELDS = dict(label=int, name=object, pixels=int, area=float, unit=object, mean_confidence=float)


def write_polygons(
    path: str | os.PathLike[str],
    labels: NDArray[np.integer],
    *,
    names: Sequence[str] = (),
    confidence: NDArray[np.floating] | None = None,
    geo: Georeference | None = None,
) -> None:
    """Write the connected regions to a GeoJSON file, as :func:`polygons` gives them, or to a GeoPackage.

    The file appears whole or not at all, and replaces only an earlier one of its kind, or a FileExistsError
    is raised. A GeoPackage (``.gpkg``) has one layer, regions, and needs pyogrio. All but ``path``, of text
    or path-like, is as for :func:`polygons`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "regions.geojson"
    >>> write_polygons(path, np.array([[1, 2], [2, 2]]), names=["sand", "rock"])
    >>> [feature["properties"]["name"] for feature in json.loads(path.read_text())["features"]]
    ['sand', 'rock']
    """
    target = output_path(path, "GeoJSON")
    found = polygons(labels, names=names, confidence=confidence, geo=geo)
    atomic_write(target, content_of(target, found, geo))


def polygons(
    labels: NDArray[np.integer],
    *,
    names: Sequence[str] = (),
    confidence: NDArray[np.floating] | None = None,
    geo: Georeference | None = None,
) -> dict[str, Any]:
    """Outline the connected regions as GeoJSON polygons, exact along the edges of pixels.

    Coordinates are map coordinates if the image has them, with the EPSG code of their system; in a system
    without a code they are converted to longitude and latitude if rasterio is installed. Otherwise they are
    pixels from the upper left corner, x to the right and y down, as QuPath expects.

    ``labels`` (H, W) are whole numbers, 0 for no data (a TypeError or ValueError says that they are not);
    ``names`` are those of label 1, label 2 and so on, "segment 1" where there is none. The mean of the
    ``confidence`` of its pixels, real numbers (H, W), goes with each polygon.
    ``geo`` says where the pixels lie on the earth: the ``geo`` of what :func:`texseg.read_image` returns.

    The result is a GeoJSON FeatureCollection, one feature per region: ``geometry`` with the outer ring first
    and its holes after it, ``properties`` with label, name, pixels, area, mean_confidence and colour.

    Examples
    --------
    >>> found = polygons(np.array([[0, 1], [2, 2]]))
    >>> [(f["properties"]["label"], f["geometry"]["coordinates"]) for f in found["features"]]
    [(1, [[[1, 0], [2, 0], [2, 1], [1, 1], [1, 0]]]), (2, [[[0, 1], [2, 1], [2, 2], [0, 2], [0, 1]]])]
    """
    labels, confidence, _ = checked_description(labels, confidence, names)
    check_georeference(geo)
    tally, outlines = Tally(names), Outlines((labels.shape[0], labels.shape[1]))
    outlines.add(labels, tally.add(labels, confidence))
    return collection(tally.regions(), outlines.rings(tally.region_of_parts()), geo)


def collection(
    rows: Sequence[Row],
    outlines: Iterable[tuple[int, list[Ring]]],
    geo: Georeference | None = None,
    step: tuple[float, float] = (1.0, 1.0),
) -> dict[str, Any]:
    """Return regions as GeoJSON; without a map, a pixel stands for ``step`` pixels down and across."""
    affine = None if geo is None else geo.transform
    if affine is None and step != (1.0, 1.0):
        affine = Affine.scale(*step[::-1])
    features = []
    for row, (_, rings) in zip(rows, outlines, strict=True):
        name = row.name or f"segment {row.label}"
        classification = {"name": name, "color": list(bytes.fromhex(row.colour[1:]))}
        properties: dict[str, Any] = {field: getattr(row, field) for field in _FIELDS} | {"name": name}
        properties |= {"fill": row.colour, "objectType": "annotation", "classification": classification}
        geometry = {"type": "Polygon", "coordinates": [_closed_ring(ring, affine) for ring in rings]}
        features.append({"type": "Feature", "geometry": geometry, "properties": properties})
    found = {"type": "FeatureCollection", "features": features}
    if geo is not None:
        _settle_system(found, geo)
    return found


def _settle_system(found: dict[str, Any], geo: Georeference) -> None:
    """Name the system of the coordinates by its code, or turn them into longitude and latitude (RFC 7946)."""
    if geo.transform is None:
        said = "the file has a coordinate system but no map from pixels to it (control points are not used)"
        warnings.warn(f"{said}: the outlines are in pixels", stacklevel=3)
    elif geo.epsg is not None and geo.epsg != _LONGITUDE_LATITUDE:
        found["crs"] = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{geo.epsg}"}}
    elif geo.has_unnamed_system:
        rings = [ring for feature in found["features"] for ring in feature["geometry"]["coordinates"]]
        points = np.array([point for ring in rings for point in ring], np.float64).reshape(-1, 2)
        placed = to_longitude_latitude(points, geo)
        if placed is None:
            said = "the coordinate system of the file has no EPSG code, so that GeoJSON cannot name it"
            units = "in its own units; with rasterio installed they are in longitude and latitude"
            warnings.warn(f"{said}: the outlines are {units}", stacklevel=3)
            return
        ends = np.cumsum([len(ring) for ring in rings])
        for ring, part in zip(rings, np.split(placed, ends[:-1]), strict=True):
            ring[:] = part.tolist()


def content_of(path: Path, found: dict[str, Any], geo: Georeference | None) -> bytes:
    """Return features as GeoJSON or, by the name, as a GeoPackage, in whose pixels y is minus the row."""
    if path.suffix.lower() != ".gpkg":
        return json.dumps(found, ensure_ascii=False).encode()
    if find_spec("pyogrio") is None:
        raise UnsuitableImageError("GeoPackages need pyogrio (pip install 'texseg[geo]')")
    from pyogrio.raw import write

    features, code = found["features"], None if geo is None or geo.transform is None else geo.epsg
    if geo is not None and geo.has_unnamed_system:  # then they are in longitude and latitude
        code = _LONGITUDE_LATITUDE
    system = None if code is None else f"EPSG:{code}"
    fields: dict[str, Any] = {**_FIELDS, "fill": object}
    columns = [np.array([f["properties"][name] for f in features], kind) for name, kind in fields.items()]
    shapes = np.empty(len(features), object)
    for place, feature in enumerate(features):
        upwards = (1, 1 if system else -1)
        rings = [np.array(ring, "<f8") * upwards for ring in feature["geometry"]["coordinates"]]
        parts = [struct.pack("<I", len(ring)) + ring.tobytes() for ring in rings]
        shapes[place] = struct.pack("<BII", 1, _WKB_POLYGON, len(rings)) + b"".join(parts)
    buffer, about = BytesIO(), {"layer": "regions", "driver": "GPKG", "geometry_type": "Polygon"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing system
        write(buffer, shapes, columns, list(fields), crs=system, **about)
    return buffer.getvalue()


def _closed_ring(ring: NDArray[np.int64], affine: Affine | None) -> list[list[float]]:
    """Ring as GeoJSON has it: closed, the outer one counter-clockwise in a plane whose y axis points up."""
    corners = np.vstack([ring, ring[:1]])
    if affine is None:
        return corners.tolist()
    if not affine.is_proper:
        corners = corners[::-1]
    return np.stack(affine @ corners.T, axis=-1).tolist()


class Outlines:
    """Outlines of regions of an image that arrives in rows; a hole that touches the outer ring stays one."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._width, self._n_corners = shape[1] + 1, (shape[0] + 1) * (shape[1] + 1)
        self._top = 0
        self._above = np.zeros((1, shape[1]), np.int64), np.zeros((1, shape[1]), np.int64)
        self._keys: list[NDArray[np.int64]] = []  # of edges: direction, and the corner where they begin
        self._owners: list[NDArray[np.int64]] = []

    def add(self, labels: NDArray[np.integer], numbers: NDArray[np.integer]) -> None:
        """Add the next rows: values that differ where regions meet, and the number of each pixel's part."""
        labels, numbers = map(np.concatenate, zip(self._above, (labels, numbers), strict=True))
        wide = np.pad(labels, ((0, 0), (1, 1)))
        here, above = labels[1:], labels[:-1]
        # the last row's lower sides are known when the next rows come, the first row's were not before
        sides = (here != above, 1), (here != wide[1:, 2:], 1), (here != above, 0), (here != wide[1:, :-2], 1)
        for side, (differ, first) in enumerate(sides):
            rows, columns = np.nonzero(differ & (labels[first : first + len(here)] != 0))
            down, across = _FIRST_CORNERS[side]
            corners = (rows + (first + self._top - 1 + down)) * self._width + columns + across
            self._keys.append(side * self._n_corners + corners.astype(np.int64))
            self._owners.append(numbers[rows + first, columns].astype(np.int64))
        self._top += len(here)
        self._above = labels[-1:].astype(np.int64), numbers[-1:].astype(np.int64)

    def rings(self, region_of: NDArray[np.integer]) -> Iterator[tuple[int, list[Ring]]]:
        """Yield each region and its rings of corners (column, row), the outer one first and clockwise."""
        self.add(*np.zeros((2, 1, self._width - 1), np.int64))
        keys, owners = np.concatenate(self._keys), region_of[np.concatenate(self._owners)]
        self._keys, self._owners = [], []
        order = np.lexsort((keys, owners))
        keys, owners = keys[order], owners[order]
        begins = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        for first, end in itertools.pairwise([*begins, len(keys)]):
            yield int(owners[first]), self._linked(keys[first:end].tolist())

    def _linked(self, edges: list[int]) -> list[Ring]:
        """Link the edges of a region, ascending, to rings; the first is an upper one of the outer ring."""
        left, rings, steps = set(edges), [], (1, self._width, -1, -self._width)
        for first in edges:
            edge, ring = first, list[int]()
            while first in left:
                side, corner = divmod(edge, self._n_corners)
                end = corner + steps[side]
                for turn in (-1, 0, 1):  # left before straight on before right
                    edge = (side + turn) % 4 * self._n_corners + end
                    if edge in left:
                        break
                left.remove(edge)
                if turn:
                    ring.append(end)
            if ring:
                rings.append(np.stack(np.divmod(np.roll(ring, 1), self._width)[::-1], axis=1))
        return rings
