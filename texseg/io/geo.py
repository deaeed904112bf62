"""Where the pixels lie on the earth: GeoTIFF tags and world files, carried from input to output.

The tags are copied as they are, not interpreted and written anew: whatever coordinate system a file
names, the label image names the same. That is why no GIS library is needed; the affine map is worked out
only where an output (a world file, GeoJSON) has to state coordinates itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MODEL_PIXEL_SCALE = 33550
MODEL_TIEPOINT = 33922
MODEL_TRANSFORMATION = 34264
GEO_KEY_DIRECTORY = 34735
GEO_DOUBLE_PARAMS = 34736
GEO_ASCII_PARAMS = 34737
GDAL_NODATA = 42113

GEO_TAGS = (
    MODEL_PIXEL_SCALE,
    MODEL_TIEPOINT,
    MODEL_TRANSFORMATION,
    GEO_KEY_DIRECTORY,
    GEO_DOUBLE_PARAMS,
    GEO_ASCII_PARAMS,
)

_GEOGRAPHIC_TYPE, _PROJECTED_TYPE, _RASTER_TYPE = 2048, 3072, 1025
_PIXEL_IS_POINT = 2
_USER_DEFINED = 32767


class TiffTag(NamedTuple):
    """A TIFF tag as `tifffile` reads and writes it."""

    code: int
    dtype: int
    length: int
    value: Any


class Affine(NamedTuple):
    """Map from pixel corners to coordinates: ``x = a col + b row + c``, ``y = d col + e row + f``."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    def __call__(self, column: Any, row: Any) -> tuple[Any, Any]:
        """Coordinates of a place in the image; (0, 0) is the outer corner of the first pixel."""
        return self.a * column + self.b * row + self.c, self.d * column + self.e * row + self.f

    def shifted(self, columns: float, rows: float) -> Affine:
        """Return the same map with its origin moved by so many columns and rows."""
        x, y = self(columns, rows)
        return self._replace(c=x, f=y)


class Georeference(NamedTuple):
    """GeoTIFF tags or the text of a world file, as found; `tags` wins where both are there."""

    tags: tuple[TiffTag, ...] = ()
    world: str | None = None

    @property
    def transform(self) -> Affine | None:
        """Map from pixel corners to coordinates, None where the file gives only a coordinate system."""
        if not self.tags:
            return None if self.world is None else parse_world_file(self.world)
        tags = {tag.code: tag.value for tag in self.tags}
        affine = _transform_of_tags(tags)
        if affine is not None and _geo_keys(tags).get(_RASTER_TYPE) == _PIXEL_IS_POINT:
            return affine.shifted(-0.5, -0.5)
        return affine

    @property
    def epsg(self) -> int | None:
        """EPSG code of the coordinate system, None where the file names it in another way."""
        keys = _geo_keys({tag.code: tag.value for tag in self.tags})
        code = keys.get(_PROJECTED_TYPE, keys.get(_GEOGRAPHIC_TYPE))
        return None if code in (None, 0, _USER_DEFINED) else code


def _geo_keys(tags: dict[int, Any]) -> dict[int, int]:
    """Keys of the GeoKeyDirectory whose value stands in the directory itself."""
    directory = tags.get(GEO_KEY_DIRECTORY, ())
    entries = [directory[i : i + 4] for i in range(4, len(directory) - 3, 4)]
    return {int(key): int(value) for key, location, _, value in entries if location == 0}


def _transform_of_tags(tags: dict[int, Any]) -> Affine | None:
    matrix = tags.get(MODEL_TRANSFORMATION)
    if matrix is not None and len(matrix) == 16:
        return Affine(matrix[0], matrix[1], matrix[3], matrix[4], matrix[5], matrix[7])
    scale, tie = tags.get(MODEL_PIXEL_SCALE), tags.get(MODEL_TIEPOINT)
    if scale is None or tie is None or len(scale) < 2 or len(tie) < 6:
        return None
    column, row, _, x, y, _ = tie[:6]
    return Affine(scale[0], 0.0, x, 0.0, -scale[1], y).shifted(-column, -row)


def georeference_of_tags(tags: Sequence[TiffTag]) -> Georeference | None:
    """Georeference of a TIFF page, None for a page without one."""
    kept = tuple(tag for tag in tags if tag.code in GEO_TAGS)
    return Georeference(tags=kept) if kept else None


def world_file_suffix(suffix: str) -> str:
    """Suffix of the world file that belongs to an image suffix.

    Examples
    --------
    >>> world_file_suffix(".png"), world_file_suffix(".tif")
    ('.pgw', '.tfw')
    """
    return f".{suffix[1]}{suffix[-1]}w"


def read_world_file(image: Path) -> Georeference | None:
    """Georeference from the world file beside an image, None where there is none that makes sense."""
    suffix = image.suffix
    names = [suffix + "w", ".wld"] + ([world_file_suffix(suffix)] if len(suffix) > 2 else [])
    for name in names:
        for candidate in {image.with_suffix(name.lower()), image.with_suffix(name.upper())} if suffix else ():
            try:
                text = candidate.read_text(encoding="ascii")
            except (OSError, ValueError):
                continue
            if parse_world_file(text) is not None:
                return Georeference(world=text)
    return None


def parse_world_file(text: str) -> Affine | None:
    """Affine map of a world file, whose six lines speak of the centre of the first pixel.

    Examples
    --------
    >>> parse_world_file("0.5 0 0 -0.5 500000.25 5199999.75")
    Affine(a=0.5, b=0.0, c=500000.0, d=0.0, e=-0.5, f=5200000.0)
    """
    try:
        a, d, b, e, c, f = (float(word.replace(",", ".")) for word in text.split())
    except ValueError:
        return None
    return Affine(a, b, c, d, e, f).shifted(-0.5, -0.5)


def world_file_text(geo: Georeference) -> str | None:
    """Text of a world file for an output image; None where no affine map is known."""
    if geo.world is not None:
        return geo.world
    if geo.transform is None:
        return None
    centre = geo.transform.shifted(0.5, 0.5)
    lines = (centre.a, centre.d, centre.b, centre.e, centre.c, centre.f)
    return "".join(f"{value!r}\n" for value in lines)
