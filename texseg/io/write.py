"""Write label images, overlays, confidence maps and outlines to files, each whole or not at all.

Labels are written as they are: the value of a pixel in the file is its label, whatever the format.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from texseg.io.atomic import atomic_write
from texseg.io.display import display_range, displayable
from texseg.io.geo import GDAL_NODATA, Georeference, world_file_suffix, world_file_text
from texseg.io.longlat import to_longitude_latitude
from texseg.io.polygons import region_outlines
from texseg.io.zarr_rows import ZarrRows
from texseg.overlay import draw_overlay
from texseg.regions import RegionRow, connected_regions, region_table

_BLOCK_ROWS = 256
_TIFF_ASCII = 2
_LONGITUDE_LATITUDE = 4326  # what GeoJSON means unless it says otherwise


def write_labels(
    path: str | os.PathLike[str], labels: NDArray[np.integer], *, geo: Georeference | None = None
) -> None:
    """Write a label image; the value of each pixel is its label.

    PNG files are grey, with 8 bits (up to label 255) or 16 (up to 65535), TIFF files have 8, 16 or 32 bits:
    every library reads these as numbers. (With a palette, most read colours.) The file appears whole or not
    at all.

    Parameters
    ----------
    path : str or path-like
        Target; its suffix decides: ``.png``, ``.tif``, ``.tiff``, ``.npy``, or ``.zarr`` for a zarr array.
    labels : ndarray of int, shape (H, W), or (P, H, W) for the pages of a TIFF or ``.npy`` file
        Labels, 0 for no data.
    geo : Georeference, optional
        Written as tags into a TIFF file, with 0 as the no-data value, or as a world file beside other files.

    Raises
    ------
    TypeError, ValueError
        The array is not a label image, or its labels do not fit into the format.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.png"
    >>> write_labels(path, np.array([[1, 2], [2, 0]]))
    >>> from texseg.io.read import read_labels
    >>> read_labels(path).tolist()
    [[1, 2], [2, 0]]
    """
    path = Path(path)
    labels = _checked_labels(labels)
    suffix = path.suffix.lower()
    if suffix == ".zarr":
        _write_zarr(path, labels)
        return
    if suffix == ".png":
        content = _label_png(labels)
    elif suffix in (".tif", ".tiff"):
        content = _label_tiff(labels, geo)
    elif suffix == ".npy":
        content = _npy(labels)
    else:
        raise ValueError(
            f"{path.name}: labels are written as .png, .tif, .tiff, .npy or .zarr, not {suffix!r}"
        )
    _write_world_file(path, geo)
    atomic_write(path, content)


def write_overlay(
    path: str | os.PathLike[str],
    pixels: NDArray,
    labels: NDArray[np.integer],
    *,
    mask: NDArray[np.bool_] | None = None,
    geo: Georeference | None = None,
) -> None:
    """Write a PNG of the image tinted by label, with the outlines of the segments and their numbers.

    An image of one segment is not tinted.

    Parameters
    ----------
    path : str or path-like
        Target, a PNG file.
    pixels : ndarray of real numbers, shape (H, W) or (H, W, C)
        The image; if it has more than three channels, the first three are shown.
    labels : ndarray of int, shape (H, W)
        Labels, 0 for no data.
    mask : ndarray of bool, shape (H, W), optional
        Valid pixels, from which the range of grey is taken.
    geo : Georeference, optional
        Written as a world file beside the PNG.
    """
    from PIL import Image

    labels = _checked_labels(labels)
    if labels.shape != pixels.shape[:2]:
        raise ValueError(f"labels of shape {labels.shape} do not match the image of shape {pixels.shape}")
    low, high = display_range(pixels, mask)
    picture = np.empty((*labels.shape, 3), dtype=np.uint8)
    for top in range(0, len(labels), _BLOCK_ROWS):
        rows = slice(top, top + _BLOCK_ROWS)
        picture[rows] = displayable(pixels[rows], low, high)
    draw_overlay(picture, labels)
    buffer = BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=3)
    _write_world_file(Path(path), geo)
    atomic_write(Path(path), buffer.getvalue())


def write_confidence(
    path: str | os.PathLike[str], confidence: NDArray[np.floating], *, geo: Georeference | None = None
) -> None:
    """Write a confidence map: its values 0 to 1 (``.tif``, ``.npy``), or grey levels 0 to 255 (``.png``).

    Parameters
    ----------
    path : str or path-like
        Target; its suffix decides.
    confidence : ndarray of float, shape (H, W), or (P, H, W) for the pages of a TIFF or ``.npy`` file
        Confidence of each pixel's label.
    geo : Georeference, optional
        Carried as in `write_labels`.
    """
    from PIL import Image

    path = Path(path)
    if path.suffix.lower() == ".png":
        buffer = BytesIO()
        Image.fromarray(np.rint(255 * np.clip(confidence, 0, 1)).astype(np.uint8)).save(buffer, "PNG")
        content = buffer.getvalue()
    elif path.suffix.lower() == ".npy":
        content = _npy(confidence)
    else:
        content = _tiff(np.asarray(confidence, dtype=np.float32), geo, nodata=None)
    _write_world_file(path, geo)
    atomic_write(path, content)


def write_probabilities(
    path: str | os.PathLike[str], probabilities: NDArray[np.floating], *, geo: Georeference | None = None
) -> None:
    """Write the probabilities of all segments, float32, as the pages of a TIFF file or as a zarr array.

    Parameters
    ----------
    path : str or path-like
        Target; its suffix decides: ``.zarr`` for a zarr array (K, H, W) in chunks of one plane, else TIFF.
    probabilities : ndarray of float, shape (K, H, W)
        Probabilities of each segment, in the order of the labels.
    geo : Georeference, optional
        Carried as in `write_labels`.
    """
    path = Path(path)
    if path.suffix.lower() == ".zarr":
        _fill_zarr(path, probabilities, np.float32)
        return
    _write_world_file(path, geo)
    atomic_write(path, _tiff(np.ascontiguousarray(probabilities, dtype=np.float32), geo, nodata=None))


def write_polygons(
    path: str | os.PathLike[str],
    labels: NDArray[np.integer],
    *,
    names: Sequence[str] = (),
    confidence: NDArray[np.floating] | None = None,
    geo: Georeference | None = None,
) -> None:
    """Write the connected regions to a GeoJSON file, as :func:`polygons` gives them.

    Parameters
    ----------
    path : str or path-like
        Target; the file appears whole or not at all.
    labels, names, confidence, geo
        Those of :func:`polygons`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "regions.geojson"
    >>> write_polygons(path, np.array([[1, 2], [2, 2]]), names=["sand", "rock"])
    >>> [feature["properties"]["name"] for feature in json.loads(path.read_text())["features"]]
    ['sand', 'rock']
    """
    collection = polygons(labels, names=names, confidence=confidence, geo=geo)
    atomic_write(Path(path), json.dumps(collection, ensure_ascii=False).encode())


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

    Parameters
    ----------
    labels : ndarray of int, shape (H, W)
        Labels, 0 for no data.
    names : sequence of str, optional
        Name of label 1, label 2 and so on; "segment 1" where there is none.
    confidence : ndarray of float, shape (H, W), optional
        Confidence of each pixel's label; its mean goes with each polygon.
    geo : Georeference, optional
        Where the pixels lie on the earth: the ``geo`` of what :func:`texseg.read_image` returns.

    Returns
    -------
    dict
        A GeoJSON FeatureCollection, one feature per region: ``geometry`` with the outer ring first and its
        holes after it, ``properties`` with label, name, pixels, mean_confidence and colour.

    Raises
    ------
    TypeError, ValueError
        The array is not a label image.

    Examples
    --------
    >>> found = polygons(np.array([[0, 1], [2, 2]]))
    >>> [(f["properties"]["label"], f["geometry"]["coordinates"]) for f in found["features"]]
    [(1, [[[1, 0], [2, 0], [2, 1], [1, 1], [1, 0]]]), (2, [[[0, 1], [2, 1], [2, 2], [0, 2], [0, 1]]])]
    """
    labels = _checked_labels(labels)
    regions = connected_regions(labels)
    rows = region_table(labels, confidence, names, regions=regions, shapes=False)
    outlines = region_outlines(regions)
    collection = _collection(rows, outlines, geo)
    if geo is not None:
        _settle_system(collection, geo)
    return collection


def write_outlines(
    path: Path,
    rows: Sequence[RegionRow],
    outlines: Iterable[tuple[int, list[NDArray[np.int64]]]],
    geo: Georeference | None = None,
) -> None:
    """Write regions whose outlines are known, each with its row of the table, as GeoJSON."""
    collection = _collection(rows, outlines, geo)
    if geo is not None:
        _settle_system(collection, geo)
    atomic_write(path, json.dumps(collection, ensure_ascii=False).encode())


def _collection(
    rows: Sequence[RegionRow],
    outlines: Iterable[tuple[int, list[NDArray[np.int64]]]],
    geo: Georeference | None,
) -> dict[str, Any]:
    features = []
    for row, (_, rings) in zip(rows, outlines, strict=True):
        name = row.name or f"segment {row.label}"
        properties: dict[str, Any] = {
            "label": row.label,
            "name": name,
            "pixels": row.pixels,
            "mean_confidence": row.mean_confidence,
            "fill": row.colour,
            "objectType": "annotation",
            "classification": {"name": name, "color": list(bytes.fromhex(row.colour[1:]))},
        }
        geometry = {"type": "Polygon", "coordinates": [_closed_ring(ring, geo) for ring in rings]}
        features.append({"type": "Feature", "geometry": geometry, "properties": properties})
    return {"type": "FeatureCollection", "features": features}


def _settle_system(collection: dict[str, Any], geo: Georeference) -> None:
    """Name the system of the coordinates by its code, or turn them into longitude and latitude (RFC 7946)."""
    if geo.transform is None:
        warnings.warn(
            "the file has a coordinate system but no map from pixels to it (control points are not used): "
            "the outlines are in pixels",
            stacklevel=3,
        )
    elif geo.epsg is not None and geo.epsg != _LONGITUDE_LATITUDE:
        collection["crs"] = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{geo.epsg}"}}
    elif geo.has_unnamed_system:
        rings = [ring for feature in collection["features"] for ring in feature["geometry"]["coordinates"]]
        points = np.array([point for ring in rings for point in ring], np.float64).reshape(-1, 2)
        placed = to_longitude_latitude(points, geo)
        if placed is None:
            warnings.warn(
                "the coordinate system of the file has no EPSG code, so that GeoJSON cannot name it: the "
                "outlines are in its own units; with rasterio installed they are in longitude and latitude",
                stacklevel=3,
            )
            return
        ends = np.cumsum([len(ring) for ring in rings])
        for ring, part in zip(rings, np.split(placed, ends[:-1]), strict=True):
            ring[:] = part.tolist()


def _checked_labels(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers, got an array of dtype {labels.dtype}")
    if labels.ndim not in (2, 3) or labels.size == 0:
        raise ValueError(f"labels must have shape (H, W), got {labels.shape}")
    if labels.min() < 0:
        raise ValueError(f"labels must not be negative, got {labels.min()}")
    return labels


def _write_zarr(path: Path, labels: NDArray[np.integer]) -> None:
    if labels.ndim != 2:
        raise ValueError(f"{path.name}: a zarr array holds one label image, not {len(labels)} pages")
    _fill_zarr(path, labels, np.min_scalar_type(int(labels.max(initial=0))))


def _fill_zarr(path: Path, array: NDArray, dtype: DTypeLike) -> None:
    with ZarrRows(path, array.shape, dtype) as rows:
        for _ in rows.keeping([array]):
            pass


def _label_png(labels: NDArray[np.integer]) -> bytes:
    from PIL import Image

    largest = int(labels.max())
    if labels.ndim != 2:
        raise ValueError(f"a PNG file holds one page, got labels of shape {labels.shape}; use .tif")
    if largest > np.iinfo(np.uint16).max:
        raise ValueError(f"label {largest} does not fit into the 16 bits of a PNG file; use .tif")
    buffer = BytesIO()
    Image.fromarray(labels.astype(np.uint8 if largest <= 255 else np.uint16)).save(buffer, "PNG")
    return buffer.getvalue()


def _label_tiff(labels: NDArray[np.integer], geo: Georeference | None) -> bytes:
    largest = int(labels.max())
    if largest > np.iinfo(np.uint32).max:
        raise ValueError(f"label {largest} does not fit into the 32 bits of a TIFF file; use .npy")
    return _tiff(labels.astype(np.min_scalar_type(largest)), geo, nodata=0)


def _tiff(array: NDArray, geo: Georeference | None, nodata: int | None) -> bytes:
    """Return a deflated TIFF file, its pages one after the other, with the georeference of the input."""
    from tifffile import imwrite

    tags = [(*tag, True) for tag in geo.tags] if geo is not None else []
    if nodata is not None:
        text = str(nodata)
        tags.append((GDAL_NODATA, _TIFF_ASCII, len(text) + 1, text, True))
    buffer = BytesIO()
    imwrite(
        buffer,
        array,
        photometric="minisblack",
        compression="zlib",
        metadata=None,
        extratags=tags,
    )
    return buffer.getvalue()


def _npy(array: NDArray) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _write_world_file(path: Path, geo: Georeference | None) -> None:
    """Write the affine map beside an image that cannot hold it."""
    if geo is None or (geo.tags and path.suffix.lower() in (".tif", ".tiff")):
        return
    text = world_file_text(geo)
    if text is not None:
        atomic_write(path.with_suffix(world_file_suffix(path.suffix)), text.encode("ascii"))


def _closed_ring(ring: NDArray[np.int64], geo: Georeference | None) -> list[list[float]]:
    """Ring as GeoJSON has it: closed, the outer one counter-clockwise in a plane whose y axis points up."""
    affine = None if geo is None else geo.transform
    corners = np.vstack([ring, ring[:1]])
    if affine is None:
        return corners.tolist()
    if affine.a * affine.e - affine.b * affine.d < 0:
        corners = corners[::-1]
    return np.stack(affine(corners[:, 0], corners[:, 1]), axis=-1).tolist()
