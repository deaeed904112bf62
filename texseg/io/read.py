"""Images from files: the content decides on the format, and incomplete files are refused.

The values are those of the file: no rescaling, no change of type. Palettes are expanded to colours, CMYK
becomes RGB, an alpha channel becomes part of the mask, and photographs are turned upright.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import UnsuitableImageError
from texseg.io.source import Image, open_pages, open_source
from texseg.io.source import read_header as read_header

MAX_PIXELS = 178_956_970
"""Largest number of pixels that is read unless more is requested: a quarter of a gibibyte of RGB."""


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
    options: dict[str, Any] = {
        "channel_axis": channel_axis,
        "ignore_alpha": ignore_alpha,
        "nodata": nodata,
        "bands": bands,
    }
    with open_source(path, page=page, max_pixels=max_pixels, **options) as source:
        return source.image()


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
        pixels, mask = stacked([source.read() for source in sources])
        first, notes = sources[0], tuple(dict.fromkeys(note for source in sources for note in source.notes))
    return Image(pixels, mask, first.channel_axis, first.nodata, None, first.header, notes)


def stacked(planes: Sequence[tuple[NDArray, NDArray[np.bool_] | None]]) -> tuple[NDArray, Any]:
    """Stack planes, and where they hold data (None: everywhere), to a volume."""
    pixels = np.stack([own for own, _ in planes])
    if all(mask is None for _, mask in planes):
        return pixels, None
    return pixels, np.stack([np.ones(own.shape[:2], bool) if mask is None else mask for own, mask in planes])


def read_labels(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> NDArray[np.int32]:
    """Read a label image (H, W): palette indices or grey values as they are, colours numbered from 1.

    Colours that are not in a palette are numbered in the order of their red, green and blue values.
    """
    return read_label_picture(path, max_pixels=max_pixels).labels


class LabelPicture(NamedTuple):
    """A label image as it was painted."""

    labels: NDArray[np.int32]
    """(H, W), as :func:`read_labels` returns them."""
    format: str
    colours: NDArray[Any] | None = None
    """(n, bands), of the labels from 1; None if labels are palette indices or grey values."""
    mask: NDArray[np.bool_] | None = None
    """(H, W), False where the picture is transparent; None if it is nowhere, or labels are indices."""


def read_label_picture(path: str | os.PathLike[str], *, max_pixels: int | None = MAX_PIXELS) -> LabelPicture:
    """Read a label image together with the colours and the transparency that it was painted with."""
    with open_source(path, max_pixels=max_pixels) as source:
        indices, format = source.indices(), source.header.format
        if indices is not None:
            return LabelPicture(indices.astype(np.int32), format)
        pixels, mask = source.read()
    if pixels.ndim == 3:
        colours, places = np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0, return_inverse=True)
        numbers = (places.reshape(pixels.shape[:2]) + 1).astype(np.int32)
        return LabelPicture(numbers, format, colours, mask)
    if pixels.dtype.kind == "f" and not (np.isfinite(pixels) & (pixels == np.rint(pixels))).all():
        raise UnsuitableImageError(f"{Path(path).name}: labels must be whole numbers, got fractions")
    if pixels.size and (pixels.max() > np.iinfo(np.int32).max or pixels.min() < np.iinfo(np.int32).min):
        raise UnsuitableImageError(f"{Path(path).name}: labels do not fit into 32 bits")
    return LabelPicture(pixels.astype(np.int32), format, None, mask)
