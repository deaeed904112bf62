"""Seeds from a file: a label image, or GeoJSON drawn in a viewer or a geographic information system."""

import itertools
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.io.files import MalformedFileError, PathName, UnsuitableImageError, open_regular, read_json
from texseg.io.geo import Georeference, to_longitude_latitude
from texseg.io.read import LabelPicture, failures_named, read_label_picture, refuse_photograph
from texseg.io.regions import Labels

_MOST_UNPAINTED = 14
"""Most numbers of classes that strokes may skip, as many as a fit finds by itself: where more are
missing, the numbers are the grey values of a paint program."""

_LINE_WIDTH = 3  # pixels, of lines and points
_LARGEST_CLASS = 255
_HARD = "use a hard brush without anti-aliasing"
_MOST_BYTES = 2**27  # of GeoJSON
_PROPERTIES = ("class", "label", "classification")
_DRAWN = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon")
_GEOJSON = (".geojson", ".json")
_DRAWINGS = (*_GEOJSON, ".roi", ".zip")
_NUMBERED = re.compile(r"[-_ ]*\d+$")  # the end of the names that ImageJ gives to ROIs of one kind
_FAINT = 0.1  # of the contrast of a stroke: so much is unpainted, or off the way from one colour to another
_NEARLY_PURE = 0.35  # of it: so far is a colour from the pure one that still belongs to the stroke
_FEW, _RARE = 16, 0.02  # pixels, and share of all that are painted: fewer are no stroke but for squares
_MOST_TIMES = 200  # that strokes cover their image
_MOST_CROSSINGS = 2**24  # of the edges of one polygon and rows of pixels
_DEGREES = "longitude and latitude"  # as GeoJSON should be, whatever the image's own system
_UPWARD = Georeference(world="1 0 0 -1 .5 -.5")  # rows as QGIS counts them where an image has no georeference
_FAR = 2.0**20  # pixels; lines may start this far outside of the image


Colours = NDArray[np.float64]


class Seeds(NamedTuple):
    """Strokes on an image, and what their classes are called."""

    labels: NDArray[np.int32]  # (H, W): 0, or c where a pixel is of class c
    names: tuple[str, ...] = ()  # of class 1, class 2 and so on; empty where classes are numbers
    colours: Mapping[str, str] = {}  # by the name of the class, such as ``#0072b2``


def read_seed_file(path: PathName, shape: tuple[int, int], geo: Georeference | None = None) -> Seeds:
    """Read strokes on an image (H, W).

    A picture is a label image, or holds other grey values or colours on an unpainted ground; a warning says
    what was taken as what. GeoJSON holds points, lines (drawn 3 pixels wide) and polygons with the number or
    name of their class in the property ``class``, ``label`` or (QuPath) ``classification``, in the
    coordinates of the image or in its pixels; ROIs of ImageJ have the class in their group or name. Names are
    numbered in the order of the file.
    """
    path = Path(path)
    with failures_named(path):
        if path.suffix.lower() in _DRAWINGS:
            found, said = _drawn(path, shape, geo)
        else:
            picture = read_label_picture(path)
            (rows, columns), (height, width) = shape, picture.labels.shape
            if (rows, columns) != (height, width):
                size = f"{width} x {height} pixels"
                raise UnsuitableImageError(f"the strokes are {size}, the image {columns} x {rows}")
            if picture.format == "JPEG":
                raise UnsuitableImageError("JPEG compression alters the colours of strokes; save them as PNG")
            found, said = _classes(picture)
    if said:
        warnings.warn(f"{path.name}: {said}", stacklevel=2)
    refuse_photograph(found.labels, path)
    return found


def _drawn(path: Path, shape: tuple[int, int], geo: Georeference | None) -> tuple[Seeds, str]:
    """Paint the strokes of a file of geometries, and say what its names were taken as."""
    labels, is_roi = np.zeros(shape, np.int32), path.suffix.lower() not in _GEOJSON
    strokes = list(_rois(path) if is_roi else _features(path))
    names = list(dict.fromkeys(stroke.said for stroke in strokes if isinstance(stroke.said, str)))
    if names and len(names) < len({stroke.said for stroke in strokes}):
        raise UnsuitableImageError("classes must all be numbers or all be names, got both")
    if len(names) > _LARGEST_CLASS:
        raise UnsuitableImageError(f"{len(names)} classes are more than {_LARGEST_CLASS}")
    number_of: dict[Any, int] = {called: number for number, called in enumerate(names, start=1)}
    n_left, has_map = _MOST_TIMES * labels.size, geo is not None and geo.transform is not None and not is_roi
    systems = {"": geo, _DEGREES: geo, "pixels": None, "pixels, rows upward": _UPWARD}
    for taken, system in list(systems.items())[2 * (not has_map) :]:  # QuPath draws in pixels on maps, too
        for stroke in strokes:
            number = int(number_of.get(stroke.said, stroke.said))
            n_left -= _draw(labels, number, stroke, system, taken == _DEGREES)
            if n_left < 0:
                raise UnsuitableImageError(f"strokes cover the image more than {_MOST_TIMES} times")
        if labels.any():
            break
    else:
        where = "pixels (column, row)" + ", or in the image's own system" * has_map
        raise UnsuitableImageError(f"no stroke lies on the image; coordinates must be in {where}")
    colours = {str(one.said): one.colour for one in strokes if one.colour and one.said in names}
    said = [f"class {number} is {called:.60}" for called, number in number_of.items()]
    said += [f"coordinates were taken as {taken}"] * (has_map and taken != "")
    names = [called if (labels == number_of[called]).any() else "" for called in names]
    said += [f"no stroke of {called:.60} lies on the image" for called in number_of if called not in names]
    return Seeds(labels, tuple(names), colours), ", ".join(said)


def _classes(picture: LabelPicture) -> tuple[Seeds, str]:
    """Turn a picture into classes: label images as they are, grey values and colours numbered from 1."""
    labels = picture.labels
    values, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numbers = values[values > 0]
    if picture.colours is None and picture.mask is None and values[0] <= 0 and count_up(numbers):
        return Seeds(labels), ""
    places = places.reshape(labels.shape)
    ground, commonest = labels == 0 if picture.mask is None else ~picture.mask, int(counts.argmax())
    if picture.mask is None and 2 * counts[commonest] > labels.size:
        ground = places == commonest
    if not ground.any():
        remedy = "leave it 0 in a label image, transparent, or in one colour on more than half of the image"
        raise UnsuitableImageError(f"no unpainted background found; {remedy}")
    looks = np.reshape(values if picture.colours is None else picture.colours[values - 1], (len(values), -1))
    looks = looks.astype(np.float64)
    unpainted = looks[places[ground][0]] if picture.mask is None else None
    painted, counts = places[~ground], np.bincount(places[~ground], minlength=len(values))
    if not len(painted):
        raise UnsuitableImageError(f"no stroke: all pixels are {_called(picture, int(labels.flat[0]))}")
    places = np.where(ground, -1, places)
    corner = places[:-1, :-1]
    is_broad = (corner == places[1:, :-1]) & (corner == places[:-1, 1:]) & (corner == places[1:, 1:])
    broad = np.intersect1d(np.flatnonzero(counts), corner[is_broad])  # 2 x 2 pixels, somewhere
    kept = _pure(looks, counts, broad, unpainted)
    if len(kept) > _MOST_UNPAINTED and not (picture.colours is None and count_up(values[kept])):
        remedy = f"{_HARD}, one colour a class, and a format without losses such as PNG"
        many = f"{np.count_nonzero(counts)} different colours are too many for strokes"
        raise UnsuitableImageError(f"{many}; {remedy}")
    means = [f"class {c} is {_called(picture, int(values[place]))}" for c, place in enumerate(kept, start=1)]
    # what is nearly pure belongs to a stroke, and what is nearly unpainted to none
    far = np.linalg.norm(looks[:, None] - looks[kept], axis=2)
    nearest, contrast = far.argmin(axis=1), np.full(len(kept), 255.0)
    if unpainted is not None:
        contrast = np.linalg.norm(looks[kept] - unpainted, axis=1)
        counts[np.linalg.norm(looks - unpainted, axis=1) < _FAINT * contrast[nearest]] = 0
    number_of = np.where(far.min(axis=1) <= _NEARLY_PURE * contrast[nearest], nearest + 1, 0).astype(np.int32)
    lost = counts * (number_of == 0)
    blurred = lost.sum() / max(1, counts.sum())
    if blurred > 0.5:
        soft = f"{100 * blurred:.0f} % of the painted pixels are the soft edges of strokes"
        raise UnsuitableImageError(f"{soft} and would be lost; {_HARD}")
    if blurred:
        other = f"{100 * blurred:.2g} % of the painted pixels have {np.count_nonzero(lost)} other colours"
        means.append(f"{other}, as at the edges of soft brushes, and count as unpainted")
    said = "transparency" if picture.mask is not None else _called(picture, int(labels[ground][0]))
    classes = np.where(ground, 0, number_of[places]).astype(np.int32)
    shown = looks[kept] if looks.shape[1] == 3 and np.asarray(picture.colours).dtype == np.uint8 else ()
    colours = {f"class {c}": f"#{bytes(map(int, look)).hex()}" for c, look in enumerate(shown, start=1)}
    return Seeds(classes, tuple(colours), colours), f"unpainted is {said}, {', '.join(means)}"


def _pure(looks: Colours, counts: Labels, broad: Labels, unpainted: Colours | None) -> list[int]:
    """Colours (n, bands) of strokes, ascending: those that fill squares, and common ones that are pure."""
    pure, present = broad.tolist(), np.flatnonzero(counts)
    strength = counts if unpainted is None else np.linalg.norm(looks - unpainted, axis=1)
    if unpainted is not None and len(present) > max(_MOST_UNPAINTED, 2 * len(broad)):
        ends, reach, pure = [unpainted], _FAINT * strength[broad].max(initial=0), []
        for place in broad[np.argsort(-strength[broad])].tolist():  # cores and rims of soft brushes, too
            if np.linalg.norm(looks[place] - ends, axis=1).min() > reach:
                ends, pure = [*ends, looks[place]], [*pure, place]
    if not pure and len(present) <= _MOST_UNPAINTED:
        return present.tolist()
    common = np.setdiff1d(np.flatnonzero(counts >= max(_FEW, _RARE * counts.sum())), broad)
    for place in common[np.argsort(-strength[common])].tolist():
        ends = [looks[i] for i in pure] + ([] if unpainted is None else [unpainted])
        if not any(_is_between(looks[place], *pair) for pair in itertools.combinations(ends, 2)):
            pure.append(place)
    return sorted(pure) or present.tolist()


def _is_between(colour: Colours, one: Colours, other: Colours) -> bool:
    way = other - one
    share = np.clip((colour - one) @ way / (way @ way), 0, 1)
    return bool(np.linalg.norm(colour - one - share * way) <= _FAINT * np.linalg.norm(way))


def count_up(numbers: NDArray[np.integer]) -> bool:
    """Tell whether numbers are those of classes, rather than grey values of a paint program."""
    return not len(numbers) or int(numbers[-1]) - len(numbers) <= _MOST_UNPAINTED


def _called(picture: LabelPicture, label: int) -> str:
    """Call a label as its painter sees it."""
    if picture.colours is None:
        return str(label)
    return f"({', '.join(map(str, picture.colours[label - 1].tolist()))})"


class _Stroke(NamedTuple):
    """A geometry of a file, its class as it is written there, and the colour of that class."""

    said: int | str
    kind: str
    coordinates: Any
    colour: str = ""


def _features(path: Path) -> Iterator[_Stroke]:
    """Yield every geometry in a GeoJSON file."""
    content = read_json(path, _MOST_BYTES, "GeoJSON")
    features = content.get("features") if isinstance(content, Mapping) else None
    if not isinstance(features, list):
        raise UnsuitableImageError("strokes must be a GeoJSON FeatureCollection")
    for place, feature in enumerate(features):
        properties, geometry = (_mapping(_mapping(feature).get(part)) for part in ("properties", "geometry"))
        given = next((properties[name] for name in _PROPERTIES if name in properties), None)
        said = _class_of(given)
        if said is None:
            raise UnsuitableImageError(
                f"feature {place} needs its class, a number from 1 to {_LARGEST_CLASS} or a name, in the "
                f"property class, label or classification, got {given!r:.60}"
            )
        kind = geometry.get("type")
        if kind not in _DRAWN:
            allowed = ", ".join(_DRAWN)
            raise UnsuitableImageError(f"feature {place} must be one of {allowed}, got {kind!r:.60}")
        look = _mapping(properties.get("classification"))
        colour = look.get("color", look.get("colorRGB"))
        if isinstance(colour, int):  # of older versions of QuPath
            colour = list((colour & 0xFFFFFF).to_bytes(3, "big"))
        are_bytes = isinstance(colour, list) and all(type(part) is int and 0 <= part < 256 for part in colour)
        hex_colour = f"#{bytes(colour).hex()}" if are_bytes and len(colour) == 3 else ""
        yield _Stroke(said, kind, geometry.get("coordinates"), hex_colour)


def _rois(path: Path) -> Iterator[_Stroke]:
    """Yield the regions of interest in a file of ImageJ: one, or a ZIP archive of several."""
    if find_spec("roifile") is None:
        raise UnsuitableImageError("ROIs of ImageJ need roifile (pip install roifile)")
    from roifile import ImagejRoi

    with open_regular(path, _MOST_BYTES) as file:
        contents = {path.stem: file.read()}
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(file) as archive:
                members = [each for each in archive.infolist() if each.filename.lower().endswith(".roi")]
                if sum(each.file_size for each in members) > _MOST_BYTES:
                    raise MalformedFileError("the ROIs would unpack to more than is read")
                contents = {Path(each.filename).stem: archive.open(each).read() for each in members}
        rois = {name: ImagejRoi.frombytes(content) for name, content in contents.items()}
    for name, roi in rois.items():
        name = roi.name or name
        said: int | str = roi.group or _NUMBERED.sub("", name)
        if isinstance(said, str) and not re.search(r"[^\W\d_]", said):
            remedy = "give it a group, or a name such as water-1"
            raise UnsuitableImageError(f"ROI {name} needs its class: {remedy}")
        try:
            parts = [np.asarray(part, float).tolist() for part in roi.coordinates(multi=True)]
        except Exception as error:  # of kinds without an outline
            raise UnsuitableImageError(f"ROI {name} has no outline ({error})") from error
        kinds = {4: "MultiLineString", 3: "MultiLineString", 5: "MultiLineString", 10: "MultiPoint"}
        kind = kinds.get(int(roi.roitype), "MultiPolygon")
        nested = {"MultiPolygon": [[part + part[:1] for part in parts]], "MultiPoint": sum(parts, [])}
        argb = roi.stroke_color or b""
        colour = f"#{argb[1:4].hex()}" if len(argb) == 4 and argb[0] else ""
        yield _Stroke(said, kind, nested.get(kind, parts), colour)


def _class_of(given: Any) -> int | str | None:
    """Return the number or name of a class, as QuPath and others write it; None if there is none."""
    said = given.get("name") if isinstance(given, Mapping) else given
    if isinstance(said, str):
        said = " ".join(said.split())
        said = int(said) if said.isdecimal() and len(said) < 10 else said
    if isinstance(said, str):
        return said if said and said.isprintable() else None
    return said if type(said) is int and 1 <= said <= _LARGEST_CLASS else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _draw(drawn: Labels, number: int, stroke: _Stroke, geo: Georeference | None, in_degrees: bool) -> int:
    """Paint one geometry, in place; return how many pixels were looked at."""
    kind, is_area, n_seen = stroke.kind, stroke.kind.endswith("Polygon"), 0
    try:
        parts = stroke.coordinates if kind.startswith("Multi") else [stroke.coordinates]
        for part in parts:
            lines = part if is_area else [[part] if kind.endswith("Point") else part]
            rings = [_pixels(line, geo, in_degrees) for line in lines]
            corners = np.floor(np.concatenate(rings)).astype(np.int64)
            (left, top), (right, bottom) = np.maximum(corners.min(axis=0) - 1, 0), corners.max(axis=0) + 2
            box = drawn[top : max(top, bottom), left : max(left, right)]
            if box.size:
                paint = _inside if is_area else _line
                box[paint([ring - [left, top] for ring in rings], box.shape)] = number
            n_seen += box.size
    except (TypeError, ValueError, IndexError) as error:
        raise UnsuitableImageError(f"{kind} with invalid coordinates") from error
    return n_seen


def _pixels(points: Any, geo: Georeference | None, in_degrees: bool) -> NDArray[np.float64]:
    """Columns and rows (n, 2), from the corner of the image, of points in its coordinates."""
    places = np.array([[float(value) for value in point[:2]] for point in points], np.float64)
    if places.ndim != 2 or places.shape[1] != 2 or not np.isfinite(places).all():
        raise ValueError(points)
    if geo is not None and in_degrees:
        there = to_longitude_latitude(places, geo, back=True)
        places = places if there is None else there
    if geo is not None and (transform := geo.transform) is not None:
        matrix = np.array([[transform.a, transform.b], [transform.d, transform.e]])
        places = np.linalg.solve(matrix, (places - [transform.c, transform.f]).T).T
    return np.clip(places, -_FAR, _FAR)


def _line(lines: list[NDArray[np.float64]], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Pixels of a line, or of a point."""
    marked = np.zeros(shape, np.uint8)
    corners = np.floor(lines[0][[0, *range(len(lines[0]))]]).astype(np.int32)  # a point, too
    cv2.polylines(marked, [corners.reshape(-1, 1, 2)], isClosed=False, color=1)
    return cv2.dilate(marked, np.ones((_LINE_WIDTH, _LINE_WIDTH), np.uint8)) > 0


def _inside(rings: list[NDArray[np.float64]], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Pixels whose centres lie inside of an odd number of rings: right of so many of their edges."""
    height, width = shape
    starts, ends = np.concatenate(rings), np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    (x, y), (across, down) = (starts - 0.5).T, (ends - starts).T
    first = np.clip(np.ceil(np.minimum(y, y + down)), 0, height).astype(np.int64)
    n_rows = np.clip(np.ceil(np.maximum(y, y + down)), 0, height).astype(np.int64) - first
    if n_rows.sum() > _MOST_CROSSINGS:
        raise ValueError(n_rows)
    edge = np.repeat(np.arange(len(n_rows)), n_rows)
    row = first[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    column = np.clip(np.ceil(x[edge] + (row - y[edge]) * across[edge] / down[edge]), 0, width)
    turns = np.bincount(row * (width + 1) + column.astype(np.int64), minlength=height * (width + 1))
    return np.logical_xor.accumulate(turns.reshape(height, width + 1) % 2 == 1, axis=1)[:, :width]
