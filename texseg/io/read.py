"""The one reader: an image file that is open, what it says about itself, and its pixels by windows.

The content decides on the format, and incomplete files are refused. The values are those of the file: no
rescaling, no change of type. Palettes are expanded to colours, CMYK becomes RGB, and photographs are turned
upright. What is read window by window is what is read as a whole. Files next to an image, the user's mask,
alpha and the values for "no data" are settled here, whatever the format.
"""

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from affine import Affine
from numpy.typing import NDArray

from texseg.io import raster
from texseg.io.display import html_picture, size_in_words, to_rgb
from texseg.io.files import (
    SNIFF_BYTES,
    WRONG_SIZE,
    ImageReadError,
    ImageTooLargeError,
    MalformedFileError,
    PathName,
    UnsuitableImageError,
    format_of,
    is_image,
    open_regular,
    path_of,
    reason_of,
    refusal,
)
from texseg.io.geo import Georeference
from texseg.io.header import Header, Stored, Window, both, data_pixels, with_sidecars
from texseg.io.pictures import open_picture
from texseg.io.regions import PixelSize
from texseg.io.stores import is_store, open_zarr
from texseg.progress import expected_memory

_OF_PHOTOGRAPHS = 0.5  # share of neighbours that differ; label images have less than a tenth
_FEW_LABELS = 16  # fewer may be an intended pattern
_LAST_UPRIGHT = 4  # EXIF orientation; from 5 on, rows and columns are swapped


class Image(NamedTuple):
    """An image read from a file, upright, channels last."""

    pixels: NDArray  #: (H, W) or (H, W, C), values as stored, in the type they are stored in
    mask: NDArray[np.bool_] | None  #: (H, W), True where a pixel is valid; None if all are
    channel_axis: int | None  #: -1 for an image with channels, None for one without
    nodata: float | None  #: value for "no data", given by the caller or the file; already part of `mask`
    geo: Georeference | None  #: where the pixels lie on the earth
    header: Header  #: what the file says about itself
    notes: tuple[str, ...]  #: what a user should know about how the file was read
    pixel_size: PixelSize | None = None  #: height, width, unit, if stated: for :func:`texseg.segment_table`

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; of a volume, planes first."""
        return self.pixels.shape[: self.pixels.ndim - (self.channel_axis is not None)]

    def __repr__(self) -> str:
        """Say what one wants to know first."""
        size, system = self.pixel_size, None if self.geo is None else self.geo.epsg
        colours = "grey" if self.channel_axis is None else f"{self.pixels.shape[-1]} bands"
        unit = "pixels" if len(self.shape) == 2 else "voxels"
        parts = [f"{size_in_words(self.shape)} {unit}", colours, str(self.pixels.dtype)]
        parts += [] if self.mask is None else [f"{1 - self.mask.mean():.1%} without data"]
        parts += [] if size is None else [f"{unit} of {size}"]
        parts += [] if system is None else [f"EPSG:{system}"]
        return f"Image({', '.join([self.header.format, *parts])})"

    def _repr_html_(self) -> str:
        return f"{html_picture(to_rgb(self.pixels, self.mask, len(self.shape)))}<p>{self!r}</p>"

    def to_xarray(self, values: NDArray[Any] | None = None, name: str = "labels") -> Any:
        """Put labels, or other values (H, W) or (D, H, W), into an :class:`xarray.DataArray`.

        Its coordinates are those of the file: the middles of the pixels, on the earth (unless the image is
        rotated there) or in the unit of the pixel size; where the file states neither, there are none. Needs
        xarray: ``read_image("scene.tif").to_xarray(labels).to_netcdf("labels.nc")``.
        """
        from xarray import DataArray

        values, n_axes = self.pixels if values is None else np.asarray(values), len(self.shape)
        if values.shape[:n_axes] != self.shape or values.ndim - n_axes not in (0, 1):
            sides = "planes, " * (n_axes == 3) + "height and width"
            raise ValueError(f"values must have the {sides} of the image, {self.shape}, got {values.shape}")
        *planes, rows, columns = (np.arange(side) + 0.5 for side in self.shape)
        affine, epsg = (None, None) if self.geo is None else (self.geo.transform, self.geo.epsg)
        size, coordinates, units = self.pixel_size, {}, {}
        if affine is not None and affine.b == affine.d == 0:
            coordinates = {"y": affine.e * rows + affine.f, "x": affine.a * columns + affine.c}
        elif affine is None and size is not None:
            coordinates, units = {"y": rows * size.height, "x": columns * size.width}, {"units": size.unit}
            if planes and size.depth is not None:
                coordinates["z"] = planes[0] * size.depth
        dims = ("z", "y", "x", "band")[3 - n_axes : 3 - n_axes + values.ndim]
        array = DataArray(values, coordinates, dims, name, {} if epsg is None else {"crs": f"EPSG:{epsg}"})
        for axis in coordinates:
            array[axis].attrs.update(units)
        return array


@dataclass(frozen=True)
class SourceOptions:
    """How files are read; checked before one is opened, so that the file is not blamed."""

    page: int | Literal["all"] | None = None
    level: int | None = None  # of a pyramid
    channel_axis: int | None = None
    """For arrays of three axes that do not say where their channels are, and pages meant as channels."""
    bands: Sequence[int] | None = None
    grey: bool = False  # turn colour grey
    nodata: float | None = None
    ignore_alpha: bool = False
    mask: Path | None = None  # an image of that size; every value but 0, in any channel, means valid
    pixel_size: PixelSize | None = None  # of level 0, where files do not state it, or wrongly
    max_pixels: int | None = None
    raw: tuple[tuple[int, ...], np.dtype] | None = None  # shape and type of a volume without a header

    def __post_init__(self) -> None:
        nodata, bands = self.nodata, self.bands
        if nodata is not None and (isinstance(nodata, (str, bytes)) or not np.isreal(nodata)):
            raise TypeError(f"nodata must be a number or None, got {nodata!r}")
        if not isinstance(self.ignore_alpha, (bool, np.bool_)):
            raise TypeError(f"ignore_alpha must be True or False, got {self.ignore_alpha!r:.80}")
        if bands is not None and (isinstance(bands, (str, bytes)) or not np.iterable(bands)):
            raise TypeError(f"bands must be a sequence of whole numbers or None, got {bands!r}")
        whole = [(name, getattr(self, name)) for name in ("page", "level", "channel_axis", "max_pixels")]
        for name, value in (*whole, *(("bands", band) for band in bands or ())):
            if isinstance(value, (bool, np.bool_)) or not (value is None or hasattr(value, "__index__")):
                if (name, value) != ("page", "all"):
                    raise TypeError(f"{name} must be a whole number or None, got {value!r}")


class Source(AbstractContextManager["Source"]):
    """An image file that is open, upright, made by :func:`open_source`. Several threads may read."""

    role = ""  # what errors say of the file before its name
    too_large: ImageTooLargeError | None = None  # why it must not be read whole, if it must not

    def __init__(self, path: Path, stored: Stored, header: Header, page: int, reading: SourceOptions) -> None:
        self.header, self.levels, self.dtype, self.geo = header, stored.levels, header.dtype, header.geo
        self._path, self._stored, self._page, self._level = path, stored, page, reading.level or 0
        self._reading, self._lock, self._files = reading, threading.Lock(), ExitStack()
        self._close = weakref.finalize(self, self._files.close)
        level, n_levels, turned = self._level, len(self.levels), header.orientation > _LAST_UPRIGHT
        if level and not 0 <= level < n_levels:
            none = "only pyramids (TIFF, OME-Zarr) have levels, and this is not one"
            found = f"levels are 0 to {n_levels - 1}" if n_levels > 1 else none
            raise UnsuitableImageError(f"level {level} does not exist, {found}")
        shape = self.levels[level] if self.levels else (header.height, header.width)
        self.shape = shape[::-1] if turned else shape
        n_bands = header.n_channels if reading.bands is None else len(reading.bands)
        self._grey = reading.grey and n_bands > 1
        self.n_channels = 1 if self._grey else n_bands
        self.channel_axis = -1 if self.n_channels > 1 else None
        values = header.band_nodata or (header.nodata,) * header.n_channels
        self._values = values if reading.nodata is None else (reading.nodata,) * header.n_channels
        self.nodata = self._values[0] if len(set(self._values)) == 1 else None
        down, across = np.divide(self.levels[0], self.levels[level]).tolist() if level else (1.0, 1.0)
        self.step = down, across  # rows and columns of level 0 that a pixel of this level stands for
        size = header.pixel_size
        if size is not None and turned:
            size = size._replace(height=size.width, width=size.height)
        if (size := reading.pixel_size or size) is not None:
            size = size._replace(height=size.height * down, width=size.width * across)
        self.pixel_size, self._notes = size, list(header.notes)
        if level and header.geo is not None and (affine := header.geo.transform) is not None:
            self.geo = header.geo.moved(affine @ Affine.scale(across, down))
        if header.orientation != 1:
            self._notes.append(f"turned upright (EXIF orientation {header.orientation})")
        beside = None if level else header.mask_file
        self._beside = None if beside is None else self._mask_beside(beside, shape)
        self._mask: Source | None = None
        if reading.mask is not None:
            self._mask = open_source(reading.mask, max_pixels=reading.max_pixels, role="mask ")
            self._files.enter_context(self._mask)
            if self._mask.shape != self.shape:
                raise UnsuitableImageError(f"mask shape {self._mask.shape} does not match image {self.shape}")

    @property
    def only_whole(self) -> str:
        """Why the file cannot be read by windows; empty if it can."""
        return self._stored.only_whole(self._level)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the file is read; reading the whole adds to it."""
        return tuple(dict.fromkeys(self._notes))

    def read(self, window: Window | None = None) -> Image:
        """Read a window, by default all, and where it holds data (None: everywhere)."""
        reading, whole = self._reading, window is None
        window = window or (slice(0, self.shape[0]), slice(0, self.shape[1]))
        stored = _stored_window(window, self.shape, self.header.orientation)
        n_bands = (self.header.n_channels,) if "C" in self.header.axes else ()
        with failures_named(self._path, self.role):
            if self._level and self.only_whole:
                raise UnsuitableImageError(self.only_whole)
            with self._lock:
                pixels, opaque, valid = self._stored.read(stored, self.header.axes, self._page, self._level)
            if pixels.shape != (*(part.stop - part.start for part in stored), *n_bands):
                raise MalformedFileError(WRONG_SIZE)
            if not reading.ignore_alpha:
                valid = both(valid, opaque)
            values = self._values
            if reading.bands is not None:
                bands = list(reading.bands)
                if pixels.ndim == 3:
                    pixels = np.ascontiguousarray(pixels[..., bands if len(bands) > 1 else bands[0]])
                values = tuple(values[band] for band in bands if band < len(values))
            valid = both(valid, data_pixels(pixels, values, self._notes if whole else None, reading.bands))
        if self._beside is not None:
            valid = both(valid, shown(self._beside, None if whole else stored, np.all))
        if self.header.orientation != 1:
            pixels = np.ascontiguousarray(upright(pixels, self.header.orientation))
            valid = None if valid is None else np.ascontiguousarray(upright(valid, self.header.orientation))
        if self._mask is not None:
            valid = both(valid, shown(self._mask, None if whole else window, np.any))
        if whole and valid is not None:
            n_invalid = valid.size - np.count_nonzero(valid)
            said = "pixels are no data (transparent, masked or equal to the no-data value)"
            self._notes += [f"{n_invalid} {said}"] if n_invalid else []
            valid = valid if n_invalid else None
        pixels = _in_grey(pixels) if self._grey else pixels
        about = self.channel_axis, self.nodata, self.geo, self.header, self.notes, self.pixel_size
        return Image(pixels, valid, *about)

    def indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-page palette image, else None."""
        with failures_named(self._path):
            indices = self._stored.decode_indices()
        return None if indices is None else upright(indices, self.header.orientation)

    def _mask_beside(self, path: Path, shape: tuple[int, int]) -> "Source | None":
        """Open GDAL's ``.msk``; one that does not fit is reported and ignored."""
        try:
            mask = self._files.enter_context(open_source(path, alone=True))
        except (OSError, ValueError) as error:
            self._notes.append(f"the mask next to the image cannot be read and is ignored: {error}")
            return None
        fits, ignored = mask.shape == shape, f"{path.name} next to the image has another size and is ignored"
        self._notes.append(f"masked by {path.name} next to the image" if fits else ignored)
        return mask if fits else None

    def __reduce__(self) -> Any:
        """Open the file again, once in each process that it is sent to."""
        mask, bands = self._reading.mask, self._reading.bands
        mask, bands = mask and Path(mask).absolute(), bands and tuple(bands)
        return _opened_again, (self._path.absolute(), replace(self._reading, mask=mask, bands=bands))

    def __exit__(self, *_: object) -> None:
        self._close()


def open_source(
    path: PathName, reading: SourceOptions | None = None, *, alone: bool = False, role: str = "", **more: Any
) -> Source:
    """Open an image file, unless `alone` with those next to it, or the folder of a zarr array or OME-Zarr."""
    path, reading = path_of(path), reading or SourceOptions(**more)
    with ExitStack() as files:
        with failures_named(path, role):
            page: Any = reading.page
            stored, header = _stored_and_header(path, files, page, alone=alone)
            page = None if page is None else page - stored.first_page
            header = _with_settled_axes(header, page, reading.channel_axis)
            if "P" in header.axes and page is None:
                choice = f"one with page=N (--page N, from 0 to {header.n_pages - 1}), or all with --page all"
                raise UnsuitableImageError(f"{header.n_pages} pages: choose {choice}")
            _check(header, 1, reading)
            stored.check()
            source = Source(path, stored, header, page or 0, reading)
        source.role = role
        source._files.push(files.pop_all())
    return source


@lru_cache(1)
def _opened_again(path: Path, reading: SourceOptions) -> Source:
    return open_source(path, reading)


@contextmanager
def open_pages(
    path: PathName, reading: SourceOptions | None = None, **options: Any
) -> Iterator[list[Source]]:
    """Open all pages of a file, or the images of a folder in natural order."""
    path, reading = path_of(path), reading or SourceOptions(**options)
    with ExitStack() as files:
        if path.is_dir() and not is_store(path):
            yield _images_in(path, files, replace(reading, page=None, raw=None))
            return
        with failures_named(path):
            stored, header = _stored_and_header(path, files, raw=reading.raw)
            header = _with_settled_axes(header, 0, reading.channel_axis)
            _check(header, header.n_pages, reading)
            stored.check()
        pages = range(header.n_pages)
        yield [files.enter_context(Source(path, stored, header, page, reading)) for page in pages]


def natural_key(text: str) -> list[tuple[int, int | str]]:
    """Sort key by which ``img_2`` comes before ``img_10``."""
    parts = re.split(r"(\d+)", text.casefold())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def _images_in(folder: Path, files: ExitStack, reading: SourceOptions) -> list[Source]:
    """Open the images of a folder as planes of one volume; a note says which numbers are missing."""
    images = (path for path in folder.iterdir() if not path.name.startswith(".") and is_image(path))
    found = sorted(images, key=lambda path: natural_key(path.name))
    if not found:
        raise ImageReadError(f"{folder.name}: there is no image in this folder")
    sources = [files.enter_context(open_source(path, reading)) for path in found]
    first = sources[0]
    for source, path in zip(sources, found, strict=True):
        if (source.shape, source.n_channels) != (first.shape, first.n_channels):
            sizes = f"{source.shape} after {first.shape}"
            raise UnsuitableImageError(f"{path.name}: planes of a volume must have one size, got {sizes}")
    _check(first.header, len(sources), reading)
    held = {int(number) for path in found for number in re.findall(r"\d{1,9}", path.stem)[-1:]}
    gaps = sorted(set(range(min(held, default=0), min(max(held, default=0), 10**6))) - held)
    if gaps:
        first._notes.append(f"planes are missing in the folder: {str(gaps[:5])[1:-1]} ({len(gaps)})")
    return sources


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a file and those next to it say, without decoding its pixels or limiting their number."""
    path = path_of(path)
    with ExitStack() as files, failures_named(path):
        return _stored_and_header(path, files)[1]


@contextmanager
def failures_named(path: Path, role: str = "") -> Iterator[None]:
    """Make every failure name the file and say why; a mask may have the image's own name."""
    name = role + (path.name or os.fspath(path))
    try:
        yield
    except (UnsuitableImageError, ImageTooLargeError) as error:
        raise type(error)(f"{name}: {str(error).removeprefix(name + ': ')}") from error
    except MemoryError as error:
        raise ImageTooLargeError(f"{name}: there is not enough memory to decode the image") from error
    except ImageReadError:
        raise
    except Exception as error:  # decoders raise many kinds on broken files
        raise ImageReadError(f"{name}: {reason_of(error)}") from error


def _stored_and_header(
    path: Path, files: ExitStack, page: int | None = None, *, alone: bool = False, raw: Any = None
) -> tuple[Stored, Header]:
    """Open a file in the format that its content announces, with those next to it unless it is `alone`."""
    stored = _stored(path, files, page) if raw is None else raster.open_raw(path, *raw)
    header = stored.header if alone or raw else with_sidecars(stored.header, path)
    if header.geo is not None:  # which refers to the pixels as stored
        header = replace(header, orientation=1)
    return stored, header


def _stored(path: Path, files: ExitStack, page: int | None) -> Stored:
    """Open a file, or the folder of a zarr store, in the format that its content announces."""
    if path.is_dir() and is_store(path):
        return open_zarr(path)
    stream = files.enter_context(open_regular(path))
    start = stream.read(SNIFF_BYTES)
    if not (format := format_of(start, "image")):
        if (stored := raster.open_by_extras(path, start, files)) is None:
            raise refusal(start)
        return stored
    size = os.fstat(stream.fileno()).st_size
    stream.seek(0)
    if format == "TIFF":
        from texseg.io.tiff import TiffSource

        return TiffSource(stream, size, page)
    if format == "NPY":
        return raster.open_npy(path)
    return open_picture(format, stream, size)


def _with_settled_axes(header: Header, page: int | None, channel_axis: int | None) -> Header:
    """Settle which axis is which from what the file and the caller say; the file has precedence."""
    axes, shape, n_axes = header.axes, header.shape, len(header.shape)
    if channel_axis is not None and n_axes != 2:
        if not -n_axes <= channel_axis < n_axes:
            raise UnsuitableImageError(f"channel_axis={channel_axis} is not an axis of shape {shape}")
        position = channel_axis % n_axes
        if axes[position] in "YX" or ("C" in axes and axes[position] != "C"):
            said = f"contradicts the file, whose axes {shape} are {axes}"
            raise UnsuitableImageError(f"channel_axis={channel_axis} {said}")
        axes = ("?YX", "Y?X", "YX?")[position] if "?" in axes else axes
        axes = axes[:position] + "C" + axes[position + 1 :]
    elif "?" in axes and channel_axis is None:
        if page is None:
            remedy = "give channel_axis (--channel-axis), or page (--page) if the first axis counts pages"
            raise UnsuitableImageError(f"array of shape {shape} does not say what its axes are; {remedy}")
        axes = "PYX"
    header = replace(header, axes=axes)
    if page is not None and not 0 <= page < header.n_pages:
        raise UnsuitableImageError(f"page {page} does not exist, pages are 0 to {header.n_pages - 1}")
    return header


def _check(header: Header, n_pages: int, reading: SourceOptions) -> None:
    """Refuse images above the limit, before anything of their size is allocated."""
    n_bands, limit = header.n_channels, reading.max_pixels
    bands = (0,) if reading.bands is None else tuple(reading.bands)
    if not bands or any(not 0 <= band < n_bands for band in bands) or len(set(bands)) < len(bands):
        allowed = f"different bands of the image, from 0 to {n_bands - 1}"
        raise UnsuitableImageError(f"bands={bands} (--channels) must name {allowed}")
    n_pixels = header.height * header.width * n_pages
    if limit is None or n_pixels * max(1.0, header.n_channels / 4) <= limit:
        return
    pages = f" x {n_pages} pages" if n_pages > 1 else ""
    channels = f" of {header.n_channels} channels" if header.n_channels > 4 else ""
    numbers = n_pixels / 1e6, expected_memory(n_pixels, header.n_channels) / 1e9, limit / 1e6
    size, memory, most = (f"{number:.0f}" if number >= 10 else f"{number:.3g}" for number in numbers)
    needed = f"{header.width} x {header.height}{pages} = {size} Mpx{channels}, about {memory} GB needed"
    raise ImageTooLargeError(f"{needed}; limit {most} Mpx, raise with --max-pixels / max_pixels=")


def upright(pixels: NDArray, orientation: int) -> NDArray:
    """Turn an image (H, W, ...) from its stored orientation to the one for viewing."""
    if orientation > _LAST_UPRIGHT:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _in_grey(pixels: NDArray) -> NDArray:
    from skimage.color import rgb2gray  # slow to import

    if (n_channels := pixels.shape[-1]) != 3:
        raise ValueError(f"only three channels can be turned grey, not {n_channels}; use --channels")
    return rgb2gray(pixels.astype(np.float32))


def _stored_window(window: Window, shape: tuple[int, int], orientation: int) -> Window:
    """Return the window of the stored pixels that shows, once turned, a window of the upright image."""
    rows, columns = window
    if orientation in (2, 3, 6, 7):
        columns = slice(shape[1] - columns.stop, shape[1] - columns.start)
    if orientation in (3, 4, 7, 8):
        rows = slice(shape[0] - rows.stop, shape[0] - rows.start)
    return (columns, rows) if orientation > _LAST_UPRIGHT else (rows, columns)


def shown(mask: Source, window: Window | None, over_channels: Callable[..., Any]) -> NDArray[np.bool_]:
    """Pixels that a mask shows: every value but zero, in any channel or in all."""
    values, valid = mask.read(window)[:2]
    shown: NDArray[np.bool_] = values != 0
    if shown.ndim == 3:
        shown = over_channels(shown, axis=-1)
    return shown if valid is None else shown & valid


MAX_PIXELS = 178_956_970  # most that are read unless more is requested: a quarter of a gibibyte of RGB


def read_image(
    path: str | os.PathLike[str],
    *,
    page: int | None = None,
    channel_axis: int | None = None,
    max_pixels: int | None = MAX_PIXELS,
    ignore_alpha: bool = False,
    nodata: float | None = None,
    bands: Sequence[int] | None = None,
) -> Image:
    """Read an image from a PNG, JPEG, TIFF, BMP, WebP, GIF, JPEG 2000, ENVI, NumPy ``.npy`` or zarr file.

    The format is recognised from the content, whatever the file is called. World files, GDAL's ``.aux.xml``
    and ``.msk`` next to the image are read with it. A pixel holds no data if any of its bands holds the value
    for "no data"; if that value is 0, only if all of them do.

    Parameters
    ----------
    path : str or path-like
        The file.
    page : int, optional
        Which page of a file with several, counted from 0. By default such a file is refused.
    channel_axis : int, optional
        Axis of the stored array that holds the channels, for ``.npy`` arrays of three axes and for files
        whose pages are meant as channels. Not needed for files that say where their channels are, nor for
        images of two axes.
    max_pixels : int or None, default=178956970
        Largest image that is decoded; the header is checked before anything else. None for no limit.
        A pixel of more than four channels counts as a quarter for each channel.
    ignore_alpha : bool, default=False
        Treat transparent pixels as valid.
    nodata : float, optional
        Value that stands for "no data"; the default is what the file declares (GDAL's tag).
    bands : sequence of int, optional
        The bands to keep, counted from 0; all by default.

    Returns
    -------
    Image
        Pixels, mask and metadata. An ImageReadError says that the file is missing, truncated, corrupt or
        not an image; an ImageTooLargeError, that it exceeds `max_pixels`; a ValueError, that it holds
        several pages, complex numbers, a band without any data, or an array that is not an image.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ramp.npy"
    >>> np.save(path, np.arange(6.0).reshape(2, 3))
    >>> read_image(path).pixels
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """
    given: Any = {"page": page, "channel_axis": channel_axis, "bands": bands, "nodata": nodata}
    with open_source(path, **given, ignore_alpha=ignore_alpha, max_pixels=max_pixels) as source:
        return source.read()


def read_volume(path: str | os.PathLike[str], **options: Any) -> Image:
    """Read the pages of a file, or the images of a folder in natural order, as one volume.

    Its pixels are (planes, rows, columns), and channels if there are several, and its pixel size has a depth
    if the file states it. ``raw=((planes, rows, columns), dtype)`` is for files without a header; other
    options are those of :func:`read_image`.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "cube.npy"
    >>> np.save(path, np.zeros((4, 6, 8)))
    >>> read_volume(path).pixels.shape
    (4, 6, 8)
    """
    with open_pages(path, **{"max_pixels": MAX_PIXELS, **options}) as sources:
        return Volume(sources).read()


class Volume:
    """Planes that are open as one source of three axes; what is not about its shape is that of the first."""

    def __init__(self, planes: Sequence[Source]) -> None:
        self.planes, self.too_large = planes, planes[0].too_large
        self.shape = (len(planes), *planes[0].shape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.planes[0], name)

    @property
    def only_whole(self) -> str:
        """Why the file cannot be read by windows; one of its planes may be read whole."""
        return self.planes[0].only_whole if self.planes[0].header.format == "ITK" else ""

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read pixels as of an array: all of an axis, or one place on it."""
        index = (*index, *[slice(None)] * 3)[:3] if isinstance(index, tuple) else (index, np.s_[:], np.s_[:])
        places = zip(index, self.shape, strict=True)
        window = tuple(slice(0, n) if isinstance(at, slice) else slice(at, at + 1) for at, n in places)
        return self.read(window).pixels.squeeze(tuple(i for i in range(3) if not isinstance(index[i], slice)))

    def read(self, window: Window | None = None) -> Image:
        """Read a window of planes, rows and columns, by default all, and where it holds data."""
        images, within = [], None if window is None else window[1:]
        for plane in self.planes[window[0] if window else slice(None)]:
            images.append(plane.read(within))
            plane._stored.decoded = None
        masks = [np.ones(image.shape, bool) if image.mask is None else image.mask for image in images]
        mask = None if all(image.mask is None for image in images) else np.stack(masks)
        notes = tuple(dict.fromkeys(note for image in images for note in image.notes))
        pixels = np.stack([image.pixels for image in images])
        return images[0]._replace(pixels=pixels, mask=mask, geo=None, notes=notes)


def read_labels(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> NDArray[np.int32]:
    """Read a label image (H, W): palette indices or grey values as they are, colours numbered from 1."""
    return read_label_picture(path, max_pixels=max_pixels).labels


class LabelPicture(NamedTuple):
    """A label image as it was painted."""

    labels: NDArray[np.int32]  # (H, W), as :func:`read_labels` returns them
    format: str
    colours: NDArray[Any] | None = None
    """(n, bands), of the labels from 1; None if labels are palette indices or grey values."""
    mask: NDArray[np.bool_] | None = None  # (H, W), False where the picture is transparent; else None


def read_label_picture(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> LabelPicture:
    """Read a label image together with the colours and the transparency that it was painted with."""
    with open_source(path, max_pixels=max_pixels) as source:
        indices, format = source.indices(), source.header.format
        if indices is not None:
            return LabelPicture(indices.astype(np.int32), format)
        pixels, mask = source.read()[:2]
    if pixels.ndim == 3:
        colours, places = np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0, return_inverse=True)
        return LabelPicture((places.reshape(pixels.shape[:2]) + 1).astype(np.int32), format, colours, mask)
    if pixels.dtype.kind == "f" and not (np.isfinite(pixels) & (pixels == np.rint(pixels))).all():
        raise UnsuitableImageError(f"{Path(path).name}: labels must be whole numbers, got fractions")
    if pixels.size and (pixels.max() > np.iinfo(np.int32).max or pixels.min() < np.iinfo(np.int32).min):
        raise UnsuitableImageError(f"{Path(path).name}: labels do not fit into 32 bits")
    return LabelPicture(pixels.astype(np.int32), format, None, mask)


def refuse_photograph(labels: NDArray[np.integer], path: Path) -> NDArray[np.integer]:
    """Refuse an image in which most neighbours differ, which is not a label image."""
    if labels.ndim == 2 and min(labels.shape) > 1:
        different = (labels[:, 1:] != labels[:, :-1]).mean()
        if different > _OF_PHOTOGRAPHS and len(np.unique(labels)) > _FEW_LABELS:
            said = f"{path.name}: {100 * different:.0f} % of neighbouring pixels differ, as in a photograph"
            raise ValueError(f"{said}; a label image has one number for all pixels of a segment")
    return labels
