"""What an image file, and those next to it, say before a pixel is decoded."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from affine import Affine
from numpy.typing import NDArray

from texseg.io.files import UnsuitableImageError, side_text
from texseg.io.geo import Georeference, combined, georeference_of, parse_world_file, world_file_suffix
from texseg.io.regions import PixelSize


@dataclass(frozen=True)
class Header:
    """Size, type and metadata of an image file, read without decoding it."""

    format: str  # according to the content, whatever the file is called
    shape: tuple[int, ...]  # extent of each axis of the stored image, palette expanded and without alpha
    axes: str
    """One letter per axis: ``Y`` rows, ``X`` columns, ``C`` channels, ``P`` pages (frames, planes), ``1`` an
    axis of length one that is left aside, ``?`` if the file does not say."""
    dtype: np.dtype
    has_alpha: bool = False  # whether there is an alpha channel in addition to those counted in `shape`
    orientation: int = 1  # EXIF orientation, 1 to 8; 1 is upright
    nodata: float | None = None  # value that the file declares to mean "no data"
    geo: Georeference | None = None
    notes: tuple[str, ...] = ()  # what a user should know about how the file is read
    band_nodata: tuple[float | None, ...] = ()
    """Values that mean "no data" if they differ from band to band; otherwise empty."""
    mask_file: Path | None = None  # mask next to the image, as GDAL writes it
    is_ome: bool = False  # whether a TIFF file has metadata of OME
    measured: PixelSize | None = None  # size of a pixel, if the file states it without the georeference

    def extent(self, letter: str) -> int:
        """Product of the extents of the axes with this letter, 1 where there is none."""
        return math.prod(n for n, axis in zip(self.shape, self.axes, strict=True) if axis == letter)

    @property
    def height(self) -> int:
        """Number of rows as stored, before the orientation is applied."""
        return self.extent("Y")

    @property
    def width(self) -> int:
        """Number of columns as stored, before the orientation is applied."""
        return self.extent("X")

    @property
    def pixel_size(self) -> PixelSize | None:
        """Height, width and unit of a pixel as stored, None where the file does not say."""
        return (None if self.geo is None else self.geo.pixel_size) or self.measured

    @property
    def n_channels(self) -> int:
        """Number of colour or band channels, alpha not counted."""
        return self.extent("C")

    @property
    def n_pages(self) -> int:
        """Number of pages, frames or planes."""
        return self.extent("P")


class Decoded(NamedTuple):
    """One decoded page, channels last; the masks (H, W) are None where they would be True everywhere."""

    pixels: NDArray
    opaque: NDArray[np.bool_] | None = None
    stored: NDArray[np.bool_] | None = None


Window = tuple[slice, ...]  # rows and columns (of volumes, planes first), from start to stop


class Stored(ABC):
    """An opened file of one format."""

    header: Header
    first_page = 0  # number of the first page of this image, in a file of several images
    levels: tuple[tuple[int, int], ...] = ()  # rows and columns of each level of a pyramid, the largest first
    decoded: tuple[int, NDArray] | None = None  # a page that is kept for further windows

    def check(self) -> None:
        """Refuse what the file cannot hold, before it is decoded; of most formats, the header tells."""
        return

    def only_whole(self, level: int) -> str:
        """Why the file cannot be read in parts; empty if it can."""
        return ""

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-page palette image, else None."""
        return None

    @abstractmethod
    def read(self, window: Window, axes: str, page: int, level: int) -> Decoded:
        """Read a window of one page, channels last; `axes` names the axes of the stored image."""


def both(first: NDArray[np.bool_] | None, second: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Pixels that are in both masks, None standing for all pixels."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


_WORLD_BYTES = 4096
_METADATA_BYTES = 2**22  # enough for histograms and statistics of many bands
_MOST_MARKS = 2**16  # so many elements take 20 MB


def with_sidecars(header: Header, image: Path) -> Header:
    """Add what ``.aux.xml``, ``.msk``, world file and ``.prj`` say; their no data replaces the image's."""
    root, notes = _gdal_metadata(image)
    geo, affine, values = None, None, dict[int, float]()
    if root is not None:
        with suppress(ValueError, TypeError):
            numbers = root.findtext("GeoTransform", "").replace(",", " ").split()
            affine = Affine.from_gdal(*map(float, numbers))
        geo = georeference_of(affine, root.findtext("SRS"))
        for band in root.iter("PAMRasterBand"):
            number, value = band.get("band", ""), parse_nodata(band.findtext("NoDataValue", ""))
            if number.isdecimal() and value is not None and 1 <= int(number) <= 2**16:
                values[int(number)] = value
    if geo is None or geo.transform is None:
        geo = _place_beside(image) or geo
    nodata = tuple(values.get(i) for i in range(1, max(values, default=0) + 1))
    said: Any = {"band_nodata": nodata} if len(set(nodata)) > 1 else {"nodata": nodata[0]} if nodata else {}
    mask = image.with_name(image.name + ".msk")
    said |= {"mask_file": mask} if os.path.isfile(mask) else {}
    return replace(header, geo=combined(header.geo, geo), notes=(*header.notes, *notes), **said)


def _place_beside(image: Path) -> Georeference | None:
    """Georeference from the world file next to an image and its ``.prj``, None if there is no valid one."""
    for candidate in world_files(image):
        text = side_text(candidate, _WORLD_BYTES)
        affine = parse_world_file(text) if text is not None and text.isascii() else None
        if affine is not None:
            placed = georeference_of(affine, side_text(image.with_suffix(".prj"), _METADATA_BYTES))
            if placed is None or placed.epsg is None:  # the text of the file is kept as it is
                return Georeference(world=text, system=placed and placed.system)
            return placed
    return None


def world_files(image: Path) -> list[Path]:
    """Names that the world file of an image may have."""
    suffix = image.suffix
    names = [suffix + "w", ".wld", *([world_file_suffix(suffix)] if len(suffix) > 2 else [])]
    return [image.with_suffix(each) for name in names if suffix for each in (name.lower(), name.upper())]


def _gdal_metadata(image: Path) -> tuple[ElementTree.Element | None, tuple[str, ...]]:
    """Parse the ``.aux.xml`` next to an image, or tell why it is left aside."""
    path = image.with_name(image.name + ".aux.xml")
    text = side_text(path, _METADATA_BYTES)
    if text is None:
        return None, ()
    with suppress(ElementTree.ParseError):  # GDAL writes no declarations, whose entities can grow without end
        if not ("<!DOCTYPE" in text or "<!ENTITY" in text or text.count("<") > _MOST_MARKS):
            return ElementTree.fromstring(text), ()
    return None, (f"{path.name} next to the image cannot be read and is ignored",)


def parse_nodata(text: str) -> float | None:
    """Value of a no-data entry, with a decimal point or comma; None if it is not a number."""
    text = text.strip("\0 \n\t")
    try:
        value = float(text.replace(",", ".") if text.count(",") == 1 and "." not in text else text)
    except ValueError:
        return None
    return math.nan if math.isnan(value) else value


_LARGE_FLOAT = 3.3e38  # no-data values near the largest float32 are written with three to nine digits


def data_pixels(
    pixels: NDArray, values: Sequence[float | None], notes: list[str] | None, numbers: Sequence[int] | None
) -> NDArray[np.bool_] | None:
    """Pixels (H, W) with data in every band, or with nodata 0 in any; None: all. `notes`: of whole images."""
    bands = [pixels] if pixels.ndim == 2 else list(np.moveaxis(pixels, -1, 0))
    each = list(values) * len(bands) if len(values) == 1 else [*values, *[None] * len(bands)]
    hidden = [_hidden(band, value, len(bands) > 1) for band, value in zip(bands, each, strict=False)]
    found = [one for one in hidden if one is not None]
    missing: NDArray[np.bool_] = np.logical_or.reduce(found) if found else np.zeros(pixels.shape[:2], bool)
    if notes is not None:
        numbers = range(len(bands)) if numbers is None else numbers
        dead = [i for i, one in enumerate(hidden) if one is not None and one.all()]
        if 0 < len(dead) < len(hidden):
            kept = [number for i, number in enumerate(numbers) if i not in dead]
            what = f"band {', '.join(str(numbers[i]) for i in dead)} (counted from 0) of {len(hidden)}"
            remedy = f"leave it out with bands={kept} (--channels {','.join(map(str, kept))})"
            raise UnsuitableImageError(f"no valid pixels, since {what} holds no data at all; {remedy}")
        in_all = np.logical_and.reduce(found) if len(found) == len(bands) else np.zeros_like(missing)
        partly = np.count_nonzero(missing) - np.count_nonzero(in_all)
        if partly:
            notes.append(f"{partly} pixels hold data in some of the bands only; they count as no data")
    zeros = [equals(band, 0.0) for band, value in zip(bands, each, strict=False) if value == 0]
    if zeros:
        missing |= np.logical_and.reduce(zeros)
    return ~missing if missing.any() else None


def _hidden(band: NDArray, value: float | None, has_others: bool) -> NDArray[np.bool_] | None:
    """Pixels that hold a no-data value other than 0 or, if there are other bands, are not finite."""
    hidden = equals(band, value) if value else np.zeros((), bool)
    if has_others and band.dtype.kind == "f":
        hidden = hidden | ~np.isfinite(band)
    return hidden if hidden.any() else None


def equals(band: NDArray, nodata: float) -> NDArray[np.bool_]:
    """Pixels of a band that hold the no-data value: equal in the type of the image, as in GDAL."""
    if band.dtype.kind != "f":
        return band == int(nodata) if float(nodata).is_integer() else np.zeros(band.shape, bool)
    if abs(nodata) >= _LARGE_FLOAT and band.dtype.itemsize >= 4 and abs(nodata) < 3.5e38:
        return band >= _LARGE_FLOAT if nodata > 0 else band <= -_LARGE_FLOAT
    with np.errstate(over="ignore"):
        value = band.dtype.type(nodata)
    return np.isclose(band, value, rtol=2 * np.finfo(band.dtype).eps, atol=0, equal_nan=True)
