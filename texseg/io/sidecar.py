"""What other programs keep beside an image: world files, GDAL's metadata, masks.

A sidecar is read only if it is a regular file of plausible size: a pipe would block for ever.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from texseg.io.files import is_regular, side_text
from texseg.io.geo import Affine, Georeference, georeference_of, parse_world_file, world_file_suffix

_WORLD_BYTES = 4096
_METADATA_BYTES = 2**22  # enough for histograms and statistics of many bands
_MOST_MARKS = 2**16  # so many elements take 20 MB
_NUMBER = re.compile(r"[^\s,]+")


class Sidecar(NamedTuple):
    """What the files beside an image say about it."""

    geo: Georeference | None = None
    nodata: tuple[float | None, ...] = ()
    """Of each band; empty where nothing is said."""
    mask: Path | None = None
    notes: tuple[str, ...] = ()


def read_sidecars(image: Path) -> Sidecar:
    """Read GDAL's metadata (``.aux.xml``), the world file and the system (``.prj``) of an image."""
    said = _read_gdal_metadata(image)
    geo = said.geo
    if geo is None or geo.transform is None:
        world = _read_world_file(image)
        system = side_text(image.with_suffix(".prj"), _METADATA_BYTES) if image.suffix else None
        if world is not None:
            affine = None if world.world is None else parse_world_file(world.world)
            placed = georeference_of(affine, system)
            if placed is not None and placed.epsg is None:  # the text of the file is kept as it is
                placed = world._replace(system=placed.system)
            geo = world if placed is None else placed
    mask = image.with_name(image.name + ".msk")
    return said._replace(geo=geo, mask=mask if is_regular(mask) else None)


def _read_world_file(image: Path) -> Georeference | None:
    """Georeference from the world file beside an image, None if there is no valid one."""
    suffix = image.suffix
    names = [suffix + "w", ".wld"] + ([world_file_suffix(suffix)] if len(suffix) > 2 else [])
    for name in names:
        for candidate in {image.with_suffix(name.lower()), image.with_suffix(name.upper())} if suffix else ():
            text = side_text(candidate, _WORLD_BYTES)
            if text is not None and text.isascii() and parse_world_file(text) is not None:
                return Georeference(world=text)
    return None


def _read_gdal_metadata(image: Path) -> Sidecar:
    path = image.with_name(image.name + ".aux.xml")
    text = side_text(path, _METADATA_BYTES)
    if text is None:
        return Sidecar()
    unread = Sidecar(notes=(f"{path.name} beside the image cannot be read, and is left aside",))
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # GDAL writes none; entities can grow without end
        return unread
    if text.count("<") > _MOST_MARKS:
        return unread
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return unread
    bands = {}
    for band in root.iter("PAMRasterBand"):
        number, value = band.get("band", ""), parse_nodata(band.findtext("NoDataValue", ""))
        if number.isdecimal() and value is not None and 1 <= int(number) <= 2**16:
            bands[int(number)] = value
    nodata = tuple(bands.get(i) for i in range(1, max(bands, default=0) + 1))
    return Sidecar(geo=georeference_of(_geo_transform(root), root.findtext("SRS")), nodata=nodata)


def _geo_transform(root: ElementTree.Element) -> Affine | None:
    try:
        c, a, b, f, d, e = (float(word) for word in _NUMBER.findall(root.findtext("GeoTransform", "")))
    except ValueError:
        return None
    return Affine(a, b, c, d, e, f)


def parse_nodata(text: str) -> float | None:
    """Value of a no-data entry, with a decimal point or comma; None if it is not a number.

    Examples
    --------
    >>> parse_nodata(" -9999,0 "), parse_nodata("nan"), parse_nodata("none")
    (-9999.0, nan, None)
    """
    text = text.strip("\0 \n\t")
    try:
        value = float(text.replace(",", ".") if text.count(",") == 1 and "." not in text else text)
    except ValueError:
        return None
    return math.nan if math.isnan(value) else value
