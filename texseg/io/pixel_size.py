"""The size of a pixel, if a TIFF file states it: OME-XML, ImageJ's description, resolution tags."""

from __future__ import annotations

import html
import math
import re
from typing import Any

from texseg.regions import PixelSize

__all__ = ["pixel_size_of_tiff"]

_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT = 282, 283, 296
_MICROMETRES = {2: 25_400.0, 3: 10_000.0}  # in an inch, a centimetre, by ResolutionUnit
_PRINTED = 20.0  # micrometres; coarser ones are for printing, or from programs that had to write something
_LARGEST = 1e9  # of sizes in any unit, and of their inverse
_OME_SIZE = re.compile(r"""\bPhysicalSize([XY])(Unit)?\s*=\s*["']([^"']{1,40})["']""")
_IMAGEJ_UNIT = re.compile(r"^unit=(.{1,40})$", re.MULTILINE)
_MICRO = ("µm", "μm", "um", "micron", "microns", "micrometer", "micrometers", r"\u00b5m")


def pixel_size_of_tiff(page: Any, description: str) -> PixelSize | None:
    """Size of a pixel from the tags of a page and the description of the file; None if they do not say.

    A resolution in inches or centimetres is used only if it is finer than any print.
    """
    if "<Pixels" in description:
        start = description.index("<Pixels")
        element = description[start : description.find(">", start)]
        found = {axis + unit: html.unescape(text) for axis, unit, text in _OME_SIZE.findall(element)}
        if {"X", "Y"} <= found.keys() and found.get("XUnit") == found.get("YUnit"):
            return _size(found["Y"], found["X"], found.get("XUnit", "um"))
        return None
    across, down = (_ratio(page, code) for code in (_X_RESOLUTION, _Y_RESOLUTION))
    if not across or not down:
        return None
    imagej = _IMAGEJ_UNIT.search(description) if description.startswith("ImageJ=") else None
    if imagej is not None:
        return _size(1 / down, 1 / across, imagej[1].strip())
    unit = page.tags.get(_RESOLUTION_UNIT)
    long = _MICROMETRES.get(unit.value, 0.0) if unit is not None else 0.0
    return _size(long / down, long / across, "um") if long / across < _PRINTED else None


def _ratio(page: Any, code: int) -> float:
    """Value of a rational tag; 0 where there is none, or none that makes sense."""
    tag = page.tags.get(code)
    value = () if tag is None else tag.value
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not value[1]:
        return 0.0
    return value[0] / value[1]


def _size(height: Any, width: Any, unit: str) -> PixelSize | None:
    """Size in a unit; None for pixels, and for invalid sizes."""
    unit = "um" if unit.lower() in _MICRO else unit
    try:
        size = PixelSize(float(height), float(width), unit)
    except ValueError:
        return None
    sound = all(math.isfinite(side) and 1 / _LARGEST < side < _LARGEST for side in size[:2])
    return size if sound and unit.isalpha() and unit not in ("pixel", "pixels", "px") else None
