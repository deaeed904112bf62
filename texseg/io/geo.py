"""Where the pixels lie on the earth: GeoTIFF tags and world files, carried from input to output.

The tags are copied as they are: the label image names the same coordinate system as the input, whatever that
is, and no GIS library is needed.
"""

import html
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from affine import Affine, dumpsw, loadsw
from numpy.typing import NDArray

from texseg.io.regions import PixelSize

GDAL_NODATA = 42113
_PIXEL_SCALE, _TIEPOINT, _TRANSFORMATION, _KEY_DIRECTORY = 33550, 33922, 34264, 34735
_KEYS = (_KEY_DIRECTORY, 34736, 34737)  # with their numbers and their texts
GEO_TAGS = (_PIXEL_SCALE, _TIEPOINT, _TRANSFORMATION, *_KEYS)

_MODEL_TYPE, _RASTER_TYPE, _GEOGRAPHIC_TYPE, _PROJECTED_TYPE, _LINEAR_UNITS = 1024, 1025, 2048, 3072, 3076
_UNITS = {9001: "m", 9002: "ft", 9003: "us-ft"}
_UTM = (range(32601, 32661), range(32701, 32761), range(25828, 25839))  # EPSG codes, all in metres
_WEB_MERCATOR = 3857  # its metres are those of the ground at the equator only
_PIXEL_IS_POINT = 2
_USER_DEFINED = 32767
_LARGEST = 1e12  # largest coordinate; the earth measures 4e10 mm, and products with pixel numbers stay finite
_EPSG_AT_END = re.compile(r"""(?:AUTHORITY|ID)\[\s*"EPSG"\s*,\s*"?(\d+)"?\s*\]\s*\]\s*$|^\s*EPSG:(\d+)\s*$""")
_TIFF_SHORT, _TIFF_DOUBLE = 3, 12


TiffTag = tuple[int, int, int, Any]  # code, type, length and value, as `tifffile` reads and writes them


class Georeference(NamedTuple):
    """GeoTIFF tags or the text of a world file, as found; if there are both, `tags` takes precedence."""

    tags: tuple[TiffTag, ...] = ()
    world: str | None = None
    system: str | None = None  # text (WKT) of a coordinate system that gives no EPSG code

    @property
    def _keys(self) -> dict[int, int]:
        """Keys of the GeoKeyDirectory whose value stands in the directory itself."""
        directory = next((value for code, _, _, value in self.tags if code == _KEY_DIRECTORY), ())
        entries = [directory[i : i + 4] for i in range(4, len(directory) - 3, 4)]
        return {int(key): int(value) for key, location, _, value in entries if location == 0}

    @property
    def transform(self) -> Affine | None:
        """Map from pixel corners to coordinates, None where the file gives only a coordinate system."""
        if not self.tags:
            return None if self.world is None else parse_world_file(self.world)
        tags = {code: value for code, _, _, value in self.tags}
        m, scale, tie = (tags.get(code, ()) for code in (_TRANSFORMATION, _PIXEL_SCALE, _TIEPOINT))
        if len(m) == 16:
            affine = Affine(m[0], m[1], m[3], m[4], m[5], m[7])
        elif len(scale) >= 2 and len(tie) >= 6:
            scaled = Affine.translation(*tie[3:5]) @ Affine.scale(scale[0], -scale[1])
            affine = scaled @ Affine.translation(-tie[0], -tie[1])
        else:
            return None
        half = -0.5 if self._keys.get(_RASTER_TYPE) == _PIXEL_IS_POINT else 0.0
        return affine @ Affine.translation(half, half) if _is_usable(affine) else None

    @property
    def epsg(self) -> int | None:
        """EPSG code of the coordinate system, None where the file names it in another way."""
        keys = self._keys
        code = keys.get(_PROJECTED_TYPE, keys.get(_GEOGRAPHIC_TYPE))
        return None if code in (None, 0, _USER_DEFINED) else code

    @property
    def pixel_size(self) -> PixelSize | None:
        """Height and width of a pixel on the ground, None if the system's units are not lengths."""
        keys, affine = self._keys, self.transform
        unit = _UNITS.get(keys.get(_LINEAR_UNITS, 0))
        if unit is None and any(self.epsg in codes for codes in _UTM):
            unit = "m"
        if affine is None or unit is None or self.epsg == _WEB_MERCATOR or _GEOGRAPHIC_TYPE in keys:
            return None
        return PixelSize(math.hypot(affine.b, affine.e), math.hypot(affine.a, affine.d), unit)

    def moved(self, affine: Affine) -> "Georeference":
        """Return the same system with another map."""
        half = 0.5 if self._keys.get(_RASTER_TYPE) == _PIXEL_IS_POINT else 0.0
        placed = georeference_of(affine @ Affine.translation(half, half), None)
        keys = tuple(tag for tag in self.tags if tag[0] in _KEYS)
        return Georeference((*(placed.tags if placed else ()), *keys), None, self.system)

    @property
    def has_unnamed_system(self) -> bool:
        """The file describes a coordinate system by its keys or in words, without an EPSG code."""
        return self.epsg is None and bool(self._keys or self.system)


def check_georeference(geo: Any) -> None:
    """Refuse what is not the georeference of an image."""
    if geo is not None and not isinstance(geo, Georeference):
        raise TypeError(f"geo must be the geo of what read_image returns, got {geo!r:.80}")


def combined(own: Georeference | None, beside: Georeference | None) -> Georeference | None:
    """Of an image's own georeference and the one next to it, the one that has a map; GDAL's comes first."""
    if own is None or beside is None:
        return own if beside is None else beside
    affine = beside.transform
    if own.transform is not None and (affine is None or beside.world is not None):
        return own
    if affine is not None and own.tags and not (beside.epsg or beside.has_unnamed_system):
        return own.moved(affine)  # a system alone, and a map alone
    return beside


def world_file_suffix(suffix: str) -> str:
    """Suffix of the world file that belongs to an image suffix, such as .pgw to .png."""
    return f".{suffix[1]}{suffix[-1]}w"


def parse_world_file(text: str) -> Affine | None:
    """Affine map of a world file, whose six lines refer to the centre of the first pixel."""
    with suppress(ValueError):
        affine = loadsw(text.replace(",", "."))
        return affine if _is_usable(affine) else None
    return None


def _is_usable(affine: Affine) -> bool:
    """Tell whether a map has finite coordinates and does not collapse the image to a line."""
    sound = all(math.isfinite(value) and abs(value) < _LARGEST for value in affine)
    return sound and not affine.is_degenerate


def georeference_of(affine: Affine | None, system: str | None) -> Georeference | None:
    """Georeference, as GeoTIFF tags, of an affine map and the text (WKT) of a coordinate system."""
    tags: list[TiffTag] = []
    if affine is not None and _is_usable(affine):
        a, b, c, d, e, f = affine[:6]
        matrix = (a, b, 0.0, c, d, e, 0.0, f, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
        tags.append((_TRANSFORMATION, _TIFF_DOUBLE, 16, matrix))
    found = _EPSG_AT_END.search(system := system or "")
    code = int(found[1] or found[2]) if found else 0
    if 0 < code < _USER_DEFINED:
        is_geographic = system.lstrip().startswith(("GEOG", "EPSG:4326"))
        kind, key = (2, _GEOGRAPHIC_TYPE) if is_geographic else (1, _PROJECTED_TYPE)
        keys = (1, 1, 0, 3, _MODEL_TYPE, 0, 1, kind, _RASTER_TYPE, 0, 1, 1, key, 0, 1, code)
        tags.append((_KEY_DIRECTORY, _TIFF_SHORT, len(keys), keys))
        system = ""
    return Georeference(tuple(tags), system=system if system.strip() else None) if tags else None


def world_file_text(geo: Georeference) -> str | None:
    """Text of a world file for an output image; None where no affine map is known."""
    if geo.world is not None:
        return geo.world
    return None if geo.transform is None else dumpsw(geo.transform)


_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT = 282, 283, 296
_MICROMETRES = {2: 25_400.0, 3: 10_000.0}  # in an inch, a centimetre, by ResolutionUnit
_PRINTED = 20.0  # micrometres; coarser ones are for printing, or from programs that had to write something
_ONE_SIZE = 0.05  # logarithm of the ratio of sizes that are taken to be one
_LARGEST_SIZE = 1e9  # of sizes in any unit, and of their inverse
_OME_SIZE = re.compile(r"""\bPhysicalSize([XYZ])(Unit)?\s*=\s*["']([^"']{1,40})["']""")
_IMAGEJ_SPACING = re.compile(r"^spacing=([\d.eE+-]{1,40})$", re.MULTILINE)
_IMAGEJ_UNIT = re.compile(r"^unit=(.{1,40})$", re.MULTILINE)
_METRIC = {"nm": 1e-3, "um": 1.0, "mm": 1e3, "cm": 1e4, "m": 1e6}  # micrometres
OME_UNITS = dict(nm="nanometer", um="micrometer", mm="millimeter", cm="centimeter", m="meter", ft="foot")
"""What OME-Zarr calls units."""
_MICRO = ("µm", "μm", "um", "micron", "microns", "micrometer", "micrometers", r"\u00b5m")


def pixel_size_of_tiff(page: Any, description: str) -> PixelSize | None:
    """Size of a pixel by a TIFF; a resolution in inches or centimetres counts if finer than any print."""
    if "<Pixels" in description:
        start = description.index("<Pixels")
        element = description[start : description.find(">", start)]
        found = {axis + unit: html.unescape(text) for axis, unit, text in _OME_SIZE.findall(element)}
        sides = ((found.get(axis), found.get(f"{axis}Unit", "um")) for axis in "YXZ")
        return size_of(*sides)
    is_said = page.tags.get(_X_RESOLUTION) is not None and page.tags.get(_Y_RESOLUTION) is not None
    across, down = page.get_resolution() if is_said else (0, 0)
    if not across or not down:
        return None
    imagej = _IMAGEJ_UNIT.search(description) if description.startswith("ImageJ=") else None
    if imagej is not None:
        unit, spacing = imagej[1].strip(), _IMAGEJ_SPACING.search(description)
        return size_of((1 / down, unit), (1 / across, unit), (spacing and spacing[1], unit))
    long = _MICROMETRES.get(page.tags.valueof(_RESOLUTION_UNIT), 0.0)
    return size_of((long / down, "um"), (long / across, "um")) if long / across < _PRINTED else None


def size_of(*sides: tuple[Any, ...]) -> PixelSize | None:
    """Size from height, width and depth with their units, in micrometres if these differ; None if invalid."""
    numbers, units = [], ["um" if unit.lower() in _MICRO else unit for _, unit in sides]
    unit = units[0] if units[0] == units[1] else "um"
    for (side, _), own in zip(sides, units, strict=True):
        try:
            numbers.append(float(side) * _times(own, unit))
        except (TypeError, ValueError):
            numbers.append(math.nan)
    height, width, *depth = [n if 1 / _LARGEST_SIZE < n < _LARGEST_SIZE else None for n in numbers]
    is_length = unit.isalpha() and unit not in ("pixel", "pixels", "px")
    return PixelSize(height, width, unit, *depth) if height and width and is_length else None


def _times(unit: str, other: str) -> float:
    """How many of another unit a unit is; NaN if that is not known."""
    return 1.0 if unit == other else _METRIC.get(unit, math.nan) / _METRIC.get(other, math.nan)


def relative_size(
    size: Sequence[Any] | None, reference: Sequence[Any] | None, rounded: bool = True
) -> tuple[float, float] | None:
    """How many times longer and wider a pixel is than another, nearly equal ones once; None if not known."""
    if size is None or reference is None:
        return None
    by = _times(size[2], reference[2])
    if math.isnan(by):
        return None
    times = by * size[0] / reference[0], by * size[1] / reference[1]
    is_one = rounded and max(abs(math.log(by)) for by in times) <= _ONE_SIZE
    return (1.0, 1.0) if is_one else times


def to_longitude_latitude(
    points: NDArray[np.float64], geo: Georeference, back: bool = False
) -> NDArray[np.float64] | None:
    """Reproject coordinates (n, 2) from the system that a file describes, or back; None if impossible."""
    try:
        from rasterio.crs import CRS
        from rasterio.io import MemoryFile
        from rasterio.warp import transform
    except ImportError:
        return None
    from tifffile import imwrite

    try:
        if geo.system:
            system = CRS.from_wkt(geo.system)
        else:
            pixel = BytesIO()  # rasterio reads GeoTIFF keys from files only
            tags = [(*tag, True) for tag in geo.tags]
            imwrite(pixel, np.zeros((1, 1), np.uint8), metadata=None, extratags=tags)
            with MemoryFile(pixel.getvalue()) as memory, memory.open() as file:
                system = file.crs
        ends = (system, "OGC:CRS84")[:: -1 if back else 1]
        placed = np.stack(transform(*ends, *points.T), axis=-1) if system else np.array(np.nan)
    except Exception:  # GDAL has kinds of its own
        return None
    return placed if np.isfinite(placed).all() else None
