"""Images from files: the content decides on the format, and incomplete files are refused.

The values are those of the file: no rescaling, no change of type. Palettes are expanded to colours, CMYK
becomes RGB, an alpha channel becomes part of the mask, and photographs are turned upright.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.forecast import expected_memory
from texseg.io.envi import EnviSource, find_header
from texseg.io.errors import (
    ImageReadError,
    ImageTooLargeError,
    MalformedFileError,
    UnsuitableImageError,
    reason_of,
)
from texseg.io.exif import upright
from texseg.io.geo import Georeference, combined
from texseg.io.header import Header, ImageSource, both
from texseg.io.jpeg import JpegSource
from texseg.io.jpeg2000 import Jpeg2000Source
from texseg.io.nodata import chosen_bands, data_pixels
from texseg.io.npy import NpySource
from texseg.io.pillow_formats import PillowSource
from texseg.io.png import PngSource
from texseg.io.sidecar import Sidecar, read_sidecars
from texseg.io.sniff import SNIFF_BYTES, image_format, require_image_format
from texseg.io.webp import WebpSource
from texseg.regions import PixelSize

MAX_PIXELS = 178_956_970
"""Largest number of pixels that is read unless asked for more: a quarter of a gibibyte of RGB."""

_InMemory = type[JpegSource] | type[Jpeg2000Source] | type[WebpSource]
_IN_MEMORY: dict[str, _InMemory] = {"JPEG": JpegSource, "JPEG 2000": Jpeg2000Source, "WebP": WebpSource}
_LAST_UPRIGHT = 4  # EXIF orientation; from 5 on, rows and columns are swapped
_SIDE_DATA_BYTES = 2**26  # metadata, previews and colour profiles that may come on top of the pixels


class Image(NamedTuple):
    """An image read from a file, upright, channels last.

    Attributes
    ----------
    pixels : ndarray of shape (H, W) or (H, W, C)
        Values as stored, in the type they are stored in.
    mask : ndarray of bool, shape (H, W), or None
        True where a pixel is valid; None if all are.
    channel_axis : int or None
        -1 for an image with channels, None for one without.
    nodata : float or None
        Value that stands for "no data", given by the caller or by the file; already part of `mask`.
    geo : Georeference or None
        Where the pixels lie on the earth.
    header : Header
        What the file says about itself.
    notes : tuple of str
        What a user should know about how the file was read.
    """

    pixels: NDArray
    mask: NDArray[np.bool_] | None
    channel_axis: int | None
    nodata: float | None
    geo: Georeference | None
    header: Header
    notes: tuple[str, ...]

    @property
    def pixel_size(self) -> PixelSize | None:
        """Height, width and unit of a pixel, if the file states them: for :func:`texseg.segment_table`."""
        size = self.header.pixel_size
        is_turned = self.header.orientation > _LAST_UPRIGHT and self.geo is None
        return size._replace(height=size.width, width=size.height) if size and is_turned else size


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
    """Read an image from a PNG, JPEG, TIFF, BMP, WebP, GIF, JPEG 2000, ENVI or NumPy ``.npy`` file.

    The format is recognised from the content, whatever the file is called. World files, GDAL's ``.aux.xml``
    and ``.msk`` beside the image are read with it. A pixel holds no data if any of its bands holds the value
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
        Pixels, mask and metadata.

    Raises
    ------
    ImageReadError
        The file is missing, truncated, corrupt, or not an image.
    ImageTooLargeError
        The image is larger than `max_pixels`.
    ValueError
        The file is valid but holds several pages, complex numbers, a band without any data, or an array
        that is not an image.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ramp.npy"
    >>> np.save(path, np.arange(6.0).reshape(2, 3))
    >>> read_image(path).pixels
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """
    with _opened(path) as (source, header):
        header = _with_settled_axes(header, page, channel_axis)
        if "P" in header.axes and page is None:
            raise UnsuitableImageError(_several_pages(header.n_pages))
        _check_size(header, 1, max_pixels)
        return _read_page(source, header, page or 0, _Wanted(ignore_alpha, nodata, bands, max_pixels))


def read_pages(
    path: str | os.PathLike[str],
    *,
    channel_axis: int | None = None,
    max_pixels: int | None = MAX_PIXELS,
    ignore_alpha: bool = False,
    nodata: float | None = None,
    bands: Sequence[int] | None = None,
) -> list[Image]:
    """Read all pages of a file, in order; the parameters are those of `read_image`.

    The limit `max_pixels` applies to all pages together.
    """
    with _opened(path) as (source, header):
        header = _with_settled_axes(header, 0, channel_axis)
        _check_size(header, header.n_pages, max_pixels)
        wanted = _Wanted(ignore_alpha, nodata, bands, max_pixels)
        return [_read_page(source, header, page, wanted) for page in range(header.n_pages)]


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a file says about itself, without decoding its pixels or limiting their number."""
    with _opened(path) as (_, header):
        return header


def read_mask(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> NDArray[np.bool_]:
    """Read a mask (H, W) from an image file: every value but zero, in any channel, means valid."""
    image = read_image(path, max_pixels=max_pixels)
    valid = image.pixels != 0
    if image.channel_axis is not None:
        valid = valid.any(axis=-1)
    return valid if image.mask is None else valid & image.mask


def read_labels(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> NDArray[np.int32]:
    """Read a label image (H, W): palette indices or grey values as they are, colours numbered from 1.

    Colours that are not in a palette are numbered in the order of their red, green and blue values.
    """
    return read_label_picture(path, max_pixels=max_pixels).labels


class LabelPicture(NamedTuple):
    """A label image as it was painted."""

    labels: NDArray[np.int32]
    """(H, W), as :func:`read_labels` returns them."""
    colours: NDArray[Any] | None = None
    """(n, bands), of the labels from 1; None if labels are palette indices or grey values."""
    mask: NDArray[np.bool_] | None = None
    """(H, W), False where the picture is transparent; None if it is nowhere, or labels are indices."""


def read_label_picture(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> LabelPicture:
    """Read a label image together with the colours and the transparency that it was painted with."""
    with _opened(path) as (source, header):
        _check_size(header, header.n_pages, max_pixels)
        labels = source.decode_indices()
        if labels is not None:
            return LabelPicture(upright(labels, header.orientation).astype(np.int32))
    image = read_image(path, max_pixels=max_pixels)
    pixels, mask = image.pixels, image.mask
    if pixels.ndim == 3:
        colours, labels = np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0, return_inverse=True)
        return LabelPicture((labels.reshape(pixels.shape[:2]) + 1).astype(np.int32), colours, mask)
    if pixels.dtype.kind == "f" and not (np.isfinite(pixels) & (pixels == np.rint(pixels))).all():
        raise UnsuitableImageError(f"{Path(path).name}: labels must be whole numbers, got fractions")
    if pixels.size and (pixels.max() > np.iinfo(np.int32).max or pixels.min() < np.iinfo(np.int32).min):
        raise UnsuitableImageError(f"{Path(path).name}: labels do not fit into 32 bits")
    return LabelPicture(pixels.astype(np.int32), None, mask)


@contextmanager
def _opened(path: str | os.PathLike[str], *, alone: bool = False) -> Iterator[tuple[ImageSource, Header]]:
    """Open a file in the format that its content announces; every failure names the file and says why.

    Files beside it are read too unless it is opened `alone`.
    """
    name = Path(path).name or os.fspath(path)
    try:
        with _open_regular_file(Path(path)) as stream:
            source = _source(Path(path), stream)
            header = source.header
            yield source, header if alone else _with_sidecar(header, read_sidecars(Path(path)))
    except (UnsuitableImageError, ImageTooLargeError) as error:
        raise type(error)(f"{name}: {error}") from error
    except MemoryError as error:
        raise ImageTooLargeError(f"{name}: there is not enough memory to decode the image") from error
    except Exception as error:  # decoders raise many kinds on broken files
        raise ImageReadError(f"{name}: {reason_of(error)}") from error


def _open_regular_file(path: Path) -> BinaryIO:
    if path.is_symlink() and not path.exists():
        raise MalformedFileError("symbolic link that leads nowhere")
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise MalformedFileError("this is a folder, not an image")
    if not stat.S_ISREG(mode):
        raise MalformedFileError("this is a device or a pipe, not a file")
    return path.open("rb")


def _source(path: Path, stream: BinaryIO) -> ImageSource:
    """Parse the header according to the format."""
    start = stream.read(SNIFF_BYTES)
    envi = None if image_format(start) else find_header(path)
    if envi is not None:
        return EnviSource(path, envi)
    format = require_image_format(start)
    size = os.fstat(stream.fileno()).st_size
    stream.seek(0)
    if format == "TIFF":
        from texseg.io.tiff import TiffSource

        return TiffSource(stream, size)
    if format == "NPY":
        return NpySource(path)
    if format == "PNG":
        return PngSource(stream, size)
    if format in _IN_MEMORY:
        return _source_in_memory(_IN_MEMORY[format], stream, size)
    return PillowSource(format, stream, size)


def _source_in_memory(kind: _InMemory, stream: BinaryIO, size: int) -> ImageSource:
    """Read a file whole, unless it is far larger than the picture that it announces."""
    data = stream.read(_SIDE_DATA_BYTES)
    source = kind(data)
    if size <= len(data):
        return source
    header = source.header
    most = (
        _SIDE_DATA_BYTES
        + 2
        * header.height
        * header.width
        * max(4, header.n_channels)
        * header.n_pages
        * header.dtype.itemsize
    )
    if size > most:
        raise ImageTooLargeError(
            f"file of {size / 1e9:.1f} GB for {header.width} x {header.height} pixels, file is corrupt"
        )
    return kind(data + stream.read())


def _with_settled_axes(header: Header, page: int | None, channel_axis: int | None) -> Header:
    """Settle which axis is which from what the file and the caller say."""
    if channel_axis is not None:
        header = replace(header, axes=_with_channel_axis(header, channel_axis))
    elif "?" in header.axes:
        if page is None:
            raise UnsuitableImageError(
                f"array of shape {header.shape} does not say what its axes are; "
                "give channel_axis (--channel-axis), or page (--page) if the first axis counts pages"
            )
        header = replace(header, axes="PYX")
    if page is not None and not 0 <= page < header.n_pages:
        raise UnsuitableImageError(f"page {page} does not exist, pages are 0 to {header.n_pages - 1}")
    return header


def _with_channel_axis(header: Header, channel_axis: int) -> str:
    """Axes with the channels where the caller says, unless the file itself says otherwise."""
    axes, n_axes = header.axes, len(header.shape)
    if n_axes == 2:
        return axes
    if not -n_axes <= channel_axis < n_axes:
        raise UnsuitableImageError(f"channel_axis={channel_axis} is not an axis of shape {header.shape}")
    position = channel_axis % n_axes
    if axes[position] in "YX" or ("C" in axes and axes[position] != "C"):
        raise UnsuitableImageError(
            f"channel_axis={channel_axis} contradicts the file, whose axes {header.shape} are {axes}"
        )
    if "?" in axes:
        return "".join("C" if i == position else "YX"[i - (i > position)] for i in range(n_axes))
    return axes[:position] + "C" + axes[position + 1 :]


def _several_pages(n_pages: int) -> str:
    last = n_pages - 1
    return f"{n_pages} pages: choose one with page=N (--page N, from 0 to {last}), or all with --page all"


def _remedy(max_pixels: int) -> str:
    return f"limit {_megapixels(max_pixels)}, raise with --max-pixels / max_pixels="


def _megapixels(n_pixels: float) -> str:
    """Format a number of pixels with a sensible number of digits.

    Examples
    --------
    >>> _megapixels(178_956_970), _megapixels(30_720)
    ('179 Mpx', '0.0307 Mpx')
    """
    return f"{_digits(n_pixels / 1e6)} Mpx"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.3g}"


def _check_size(header: Header, n_pages: int, max_pixels: int | None) -> None:
    """Refuse images above the limit, before anything of their size is allocated."""
    n_pixels = header.height * header.width * n_pages
    if max_pixels is None or n_pixels * max(1.0, header.n_channels / 4) <= max_pixels:
        return
    pages = f" x {n_pages} pages" if n_pages > 1 else ""
    channels = f" of {header.n_channels} channels" if header.n_channels > 4 else ""
    memory = expected_memory(n_pixels, header.n_channels)
    raise ImageTooLargeError(
        f"{header.width} x {header.height}{pages} = {_megapixels(n_pixels)}{channels}, "
        f"about {_digits(memory / 1e9)} GB needed; {_remedy(max_pixels)}"
    )


class _Wanted(NamedTuple):
    """What the caller of a reader requests."""

    ignore_alpha: bool
    nodata: float | None
    bands: Sequence[int] | None
    max_pixels: int | None


def _with_sidecar(header: Header, sidecar: Sidecar) -> Header:
    """Add what the files beside an image say to its own header; GDAL's metadata take precedence."""
    geo = combined(header.geo, sidecar.geo)
    own = set(sidecar.nodata)
    return replace(
        header,
        geo=geo,
        nodata=sidecar.nodata[0] if len(own) == 1 else header.nodata,
        band_nodata=sidecar.nodata if len(own) > 1 else (),
        mask_file=sidecar.mask,
        notes=(*header.notes, *sidecar.notes),
    )


def _read_page(source: ImageSource, header: Header, page: int, wanted: _Wanted) -> Image:
    """Decode one page and combine it with everything known about it."""
    pixels, opaque, valid = source.decode(header.axes, page)
    if pixels.shape != (header.height, header.width) + ((header.n_channels,) if "C" in header.axes else ()):
        raise MalformedFileError("the decoded image is not of the size in the header, file is corrupt")
    if not wanted.ignore_alpha:
        valid = both(valid, opaque)
    notes = list(header.notes)
    if header.mask_file is not None:
        valid = both(valid, _mask_beside(header, pixels.shape[:2], wanted.max_pixels, notes))
    nodata = header.nodata if wanted.nodata is None else wanted.nodata
    values = header.band_nodata if wanted.nodata is None else ()
    if wanted.bands is not None:
        pixels, values = chosen_bands(pixels, values, wanted.bands)
    valid = both(valid, data_pixels(pixels, values or (nodata,), notes, wanted.bands))
    if header.orientation != 1 and header.geo is None:  # a georeference refers to the pixels as stored
        pixels = np.ascontiguousarray(upright(pixels, header.orientation))
        valid = None if valid is None else upright(valid, header.orientation)
        notes.append(f"turned upright (EXIF orientation {header.orientation})")
    if valid is not None:
        n_invalid = valid.size - np.count_nonzero(valid)
        valid = valid if n_invalid else None
    if valid is not None:
        notes.append(f"{n_invalid} pixels are no data (transparent, masked or equal to the no-data value)")
    channel_axis = -1 if pixels.ndim == 3 else None
    return Image(pixels, valid, channel_axis, nodata, header.geo, header, tuple(notes))


def _mask_beside(
    header: Header, shape: tuple[int, ...], max_pixels: int | None, notes: list[str]
) -> NDArray[np.bool_] | None:
    """Mask (H, W) from GDAL's ``.msk`` file; one that does not fit is reported and ignored."""
    assert header.mask_file is not None
    try:
        with _opened(header.mask_file, alone=True) as (source, said):
            _check_size(said, said.n_pages, max_pixels)
            values = source.decode(said.axes, 0).pixels
    except (OSError, ValueError) as error:
        notes.append(f"the mask beside the image cannot be read, and is left aside: {error}")
        return None
    valid = values != 0 if values.ndim == 2 else (values != 0).all(axis=-1)
    if valid.shape != shape:
        notes.append(f"{header.mask_file.name} beside the image has another size, and is left aside")
        return None
    notes.append(f"masked by {header.mask_file.name} beside the image")
    return valid
