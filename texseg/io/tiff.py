"""TIFF files: which of their planes are pages and which are channels is read from their tags."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.geo import GDAL_NODATA, GEO_TAGS, TiffTag, georeference_of_tags
from texseg.io.header import Decoded, Header, both
from texseg.io.jpeg import cmyk_to_rgb
from texseg.io.pixel_size import pixel_size_of_tiff
from texseg.io.sidecar import parse_nodata
from texseg.io.tiff_guard import check_description, check_embedded, check_page_chain

_ORIENTATION = 274
_WHITE_IS_ZERO, _PALETTE, _INKS, _LUMA_CHROMA = 0, 3, 5, 6
_JPEG_COMPRESSIONS = (6, 7, 33007, 34892)
_COLOUR_SAMPLES = {0: 1, 1: 1, 2: 3, 3: 1, 4: 1, 5: 4, 6: 3, 34892: 3}  # by PhotometricInterpretation
_ALPHA_SAMPLES = (1, 2)  # values of ExtraSamples: associated and unassociated alpha
_REDUCED_IMAGE, _MASK_IMAGE = 1, 4  # bits of NewSubfileType
_MOST_AXES = 32
_LARGEST_SEGMENT = 2**28
logging.getLogger("tifffile").addHandler(logging.NullHandler())  # errors and notes report what matters


def _axis_letters(axes: str) -> str:
    """Translate tifffile's axes: samples, otherwise declared channels, are channels; the rest are pages."""
    channel = "S" if "S" in axes else "C"
    return "".join(axis if axis in "YX" else "C" if axis == channel else "P" for axis in axes)


def _area(series: Any) -> int:
    return series.shape[series.axes.index("Y")] * series.shape[series.axes.index("X")]


def _choose_series(tiff: Any) -> tuple[Any, list[Any]]:
    """Return the main image of a file, and the others: thumbnails, masks."""
    images = [series for series in tiff.series if "Y" in series.axes and "X" in series.axes and _area(series)]
    main = [s for s in images if not s.keyframe.subfiletype & (_REDUCED_IMAGE | _MASK_IMAGE)] or images
    if not main:
        raise MalformedFileError("there is no image in this TIFF file")
    largest = max(main, key=_area)
    rivals = [s for s in main if s is not largest and _area(s) == _area(largest)]
    if rivals:
        raise UnsuitableImageError(
            f"{1 + len(rivals)} images of equal size but different type; save the one you mean by itself"
        )
    return largest, [s for s in images if s is not largest]


def _nodata_text(page: Any) -> str | None:
    tag = page.tags.get(GDAL_NODATA)
    return None if tag is None else str(tag.value).strip("\0 ")


def _missing_segments(page: Any, file_size: int) -> NDArray[np.bool_]:
    """Tell which strips or tiles a sparse file leaves out; a file that ends too early is refused."""
    keyframe = page.keyframe
    expected = 1 if keyframe.is_contiguous else math.prod(keyframe.chunked)
    offsets, counts = np.array(page.dataoffsets, np.uint64), np.array(page.databytecounts, np.uint64)
    if keyframe.is_contiguous:
        counts = np.array([math.prod(keyframe.shaped) * keyframe.dtype.itemsize], np.uint64)
    if len(offsets) < expected or len(counts) < expected:
        raise MalformedFileError("strips or tiles are missing, file is corrupt")
    offsets, counts = offsets[:expected], counts[:expected]
    if (offsets + counts > file_size).any() or (offsets > file_size).any():
        raise MalformedFileError("file is truncated")
    missing = (offsets == 0) & (counts == 0)
    if ((offsets == 0) | (counts == 0))[~missing].any():
        raise MalformedFileError("strips or tiles are missing, file is corrupt")
    return missing


def _segment_grid(key: Any) -> tuple[int, int, int, int]:
    """Rows and columns of pixels in a strip or tile, and how many of them lie down and across an image."""
    rows, columns = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, key.imagewidth)
    return rows, columns, math.ceil(key.imagelength / rows), math.ceil(key.imagewidth / columns)


def _stored_pixels(page: Any, missing: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Pixels (H, W) that lie in stored strips or tiles, None where all do."""
    if not missing.any():
        return None
    height, width = page.keyframe.imagelength, page.keyframe.imagewidth
    rows, columns, down, across = _segment_grid(page.keyframe)
    grid = ~missing.reshape(-1, down, across).any(axis=0)
    return np.repeat(np.repeat(grid, rows, axis=0)[:height], columns, axis=1)[:, :width]


class TiffSource:
    """A TIFF file, opened from a binary stream."""

    def __init__(self, stream: BinaryIO, file_size: int):
        from tifffile import TiffFile

        self._stream, self._file_size = stream, file_size
        chain = check_page_chain(stream, file_size)
        stream.seek(0)
        try:
            file = TiffFile(stream, _multifile=False)
            check_description(file.pages.first, chain)
            self._series, others = _choose_series(file)
            self._description = file.pages.first.description
        except (MalformedFileError, UnsuitableImageError):
            raise
        except Exception as error:  # tifffile raises many kinds on broken files
            raise MalformedFileError(f"TIFF structure is broken ({error})") from error
        if len(self._series.shape) > _MOST_AXES:
            raise MalformedFileError(f"TIFF of {len(self._series.shape)} axes, file is corrupt")
        self._keyframe = self._series.keyframe
        self._mask_page = next((s.pages[0] for s in others if self._is_mask_of_main(s)), None)
        self._check_supported()
        self._stored_axes = _axis_letters(self._series.axes)
        self._alpha = self._alpha_index()
        self.header = self._describe(others)

    def _is_mask_of_main(self, series: Any) -> bool:
        key = series.keyframe
        main = self._keyframe
        same_size = key.imagelength == main.imagelength and key.imagewidth == main.imagewidth
        return bool(key.subfiletype & _MASK_IMAGE) and same_size

    def _check_supported(self) -> None:
        key = self._keyframe
        if key.dtype is None or self._series.dtype is None:
            raise MalformedFileError(f"{key.bitspersample}-bit samples of this kind are not supported")
        if self._series.dtype.kind not in "buif":
            raise UnsuitableImageError(
                f"image of shape {self._series.shape} and dtype {self._series.dtype}; expected real numbers"
            )
        if key.imagedepth > 1:
            raise UnsuitableImageError("volumetric TIFF tiles are not read; save the planes as pages")
        if int(key.photometric) not in _COLOUR_SAMPLES:
            name = getattr(key.photometric, "name", key.photometric)
            raise MalformedFileError(f"TIFF colour space {name} is not supported; save it as RGB or grey")
        if int(key.photometric) == _LUMA_CHROMA and key.compression not in _JPEG_COMPRESSIONS:
            raise MalformedFileError("TIFF colour space YCBCR is supported with JPEG compression only")
        segment = (key.tilelength * key.tilewidth if key.is_tiled else 0) * key.samplesperpixel
        if segment * key.dtype.itemsize > _LARGEST_SEGMENT:
            raise MalformedFileError(f"TIFF tiles of {key.tilewidth} x {key.tilelength} pixels make no sense")

    def _alpha_index(self) -> int | None:
        """Index of the alpha channel among the samples."""
        if "S" not in self._series.axes:
            return None
        n_colours = _COLOUR_SAMPLES[int(self._keyframe.photometric)]
        kinds = self._keyframe.extrasamples
        found = [n_colours + i for i, kind in enumerate(kinds) if kind in _ALPHA_SAMPLES]
        n_samples = self._series.shape[self._series.axes.index("S")]
        return found[0] if found and found[0] < n_samples else None

    def _describe(self, others: list[Any]) -> Header:
        shape, axes = list(self._series.shape), self._stored_axes
        photometric = int(self._keyframe.photometric)
        dtype = self._series.dtype
        if "C" in axes:
            channel = axes.index("C")
            shape[channel] -= self._alpha is not None
            if photometric == _INKS and shape[channel] == 4:
                shape[channel] = 3
            if shape[channel] == 1:
                del shape[channel]
                axes = axes.replace("C", "")
        elif photometric == _PALETTE:
            shape, axes, dtype = [*shape, 3], axes + "C", self._palette().dtype
        tags = [TiffTag(t.code, t.dtype, t.count, t.value) for t in self._keyframe.tags if t.code in GEO_TAGS]
        geo = georeference_of_tags(tags)
        notes = [
            f"a smaller image in the file is ignored ({s.keyframe.imagewidth} x {s.keyframe.imagelength})"
            for s in others
            if not self._is_mask_of_main(s)
        ]
        text = _nodata_text(self._keyframe)
        nodata = None if text is None else parse_nodata(text)
        if text and nodata is None:
            notes.append(
                f"the no-data tag {text[:40]!r} is no number; give the value with nodata= (--nodata)"
            )
        return Header(
            format="TIFF",
            shape=tuple(shape),
            axes=axes,
            dtype=np.dtype(dtype).newbyteorder("="),
            has_alpha=self._alpha is not None,
            orientation=self._orientation(),
            nodata=nodata,
            geo=geo,
            notes=tuple(notes),
            measured=pixel_size_of_tiff(self._keyframe, self._description),
        )

    def _orientation(self) -> int:
        tag = self._keyframe.tags.get(_ORIENTATION)
        return tag.value if tag is not None and tag.value in range(1, 9) else 1

    def _palette(self) -> NDArray:
        """Palette (N, 3), 8 bits where its 16-bit entries hold no more."""
        colours = np.asarray(self._keyframe.colormap).T
        if colours.ndim != 2 or colours.shape[1] != 3:
            raise MalformedFileError("TIFF palette is missing, file is corrupt")
        if colours.max(initial=0) < 256:
            return colours.astype(np.uint8)
        return (colours // 257).astype(np.uint8) if (colours % 257 == 0).all() else colours

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode one page, channels last, colours expanded; missing tiles and masked pixels are not valid."""
        pixels, stored = self._read(page if "P" in axes else None)
        letters = self._stored_axes.replace("P", "" if "P" in axes else "C")
        if "C" in letters:
            pixels = np.moveaxis(pixels, letters.index("C"), -1)
        if self._mask_page is not None:
            _missing_segments(self._mask_page, self._file_size)
            check_embedded(self._mask_page, self._bytes_at)
            stored = both(stored, self._mask_page.asarray() != 0)
        return self._in_light(pixels)._replace(stored=stored)

    def _in_light(self, pixels: NDArray) -> Decoded:
        """Split alpha off stored samples, channels last, and expand the colours."""
        opaque = None
        if self._alpha is not None:
            opaque = pixels[..., self._alpha] != 0
            pixels = np.delete(pixels, self._alpha, axis=-1)
        pixels = self._to_light(pixels)
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[..., 0]
        return Decoded(pixels.astype(pixels.dtype.newbyteorder("="), copy=False), opaque)

    def level_shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of each level of a pyramid, the largest first."""
        axes = self._series.axes
        shapes = [level.shape for level in self._series.levels]
        return [(shape[axes.index("Y")], shape[axes.index("X")]) for shape in shapes]

    def window_reader(self, path: Path, page: int, level: int) -> Callable[[tuple[slice, slice]], Decoded]:
        """Return a function that decodes windows of one page, as :meth:`decode` does the whole page."""
        series = self._series.levels[level]
        stack = _lazy_stack(series, path)
        rows, columns = series.axes.index("Y"), series.axes.index("X")
        pages = [i for i, axis in enumerate(self._stored_axes) if axis == "P"]
        fixed = dict(
            zip(pages, np.unravel_index(page, [series.shape[i] for i in pages]), strict=True) if pages else ()
        )
        letters = self._stored_axes.replace("P", "")
        mask = None if level or self._mask_page is None else _lazy_stack(self._mask_page, path)
        planes = self._planes_of(series, page if pages else None)
        stored = None if level else self._stored_grid(planes)
        checks = [self._guard(plane) for plane in planes]
        if mask is not None:
            checks.append(self._guard(self._mask_page))

        def read(window: tuple[slice, slice]) -> Decoded:
            for check in checks:
                check(window)
            index: list[Any] = [int(fixed[i]) if i in fixed else slice(None) for i in range(stack.ndim)]
            index[rows], index[columns] = window
            pixels = np.asarray(stack[tuple(index)])
            if "C" in letters:
                pixels = np.moveaxis(pixels, letters.index("C"), -1)
            decoded = self._in_light(pixels)
            valid = None if stored is None else stored(window)
            if mask is not None:
                valid = both(valid, np.asarray(mask[window]) != 0)
            return decoded._replace(stored=valid)

        return read

    def _planes_of(self, series: Any, page: int | None) -> list[Any]:
        """Page entries that hold one page of a series, or all; none where it is stored in one piece."""
        numbers = _numbers_of_entries(series)
        if numbers is None:
            return []
        if page is not None:
            numbers = _take_page(numbers, self._stored_axes, page)
        planes = [series.pages[int(number)] for number in np.ravel(numbers)]
        if None in planes:
            raise MalformedFileError("pages are missing, file is corrupt")
        return planes

    def _guard(self, plane: Any) -> Callable[[tuple[slice, slice]], None]:
        """Return a function that checks the strips or tiles of a window, each once, before decoding."""
        key = plane.keyframe
        rows, columns, down, across = _segment_grid(key)
        unchecked = np.ones((key.samplesperpixel if key.planarconfig == 2 else 1, down, across), bool)
        numbers = np.arange(unchecked.size).reshape(unchecked.shape)

        def check(window: tuple[slice, slice]) -> None:
            y, x = (
                slice(part.start // side, -(-part.stop // side))
                for part, side in zip(window, (rows, columns), strict=True)
            )
            check_embedded(plane, self._bytes_at, numbers[:, y, x][unchecked[:, y, x]].tolist())
            unchecked[:, y, x] = False

        return check

    def _stored_grid(self, planes: list[Any]) -> Callable[[tuple[slice, slice]], NDArray[np.bool_]] | None:
        """Return a function that tells where a sparse file holds pixels of a page; None if everywhere."""
        if self._series.dataoffset is not None or not planes:
            return None
        missing = [_missing_segments(plane, self._file_size) for plane in planes]
        if not np.any(missing):
            return None
        rows, columns, down, across = _segment_grid(self._keyframe)
        there = np.logical_not(np.reshape(missing, (-1, down, across)).any(axis=0))

        def stored(window: tuple[slice, slice]) -> NDArray[np.bool_]:
            y, x = (np.arange(part.start, part.stop) for part in window)
            return there[np.ix_(y // rows, x // columns)]

        return stored

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-page palette image, None for other kinds."""
        if int(self._keyframe.photometric) != _PALETTE or self.header.n_pages > 1:
            return None
        return self._read(None)[0]

    def _read(self, page: int | None) -> tuple[NDArray, NDArray[np.bool_] | None]:
        """Read the stored array, or the part of it that belongs to one page, and where it is valid."""
        series, key = self._series, self._keyframe
        numbers = _numbers_of_entries(series)
        if numbers is None:
            return self._read_contiguous(page)
        shape = numbers.shape if page is None else np.shape(_take_page(numbers, self._stored_axes, page))
        planes, stored = [], None
        for plane in self._planes_of(series, page):
            stored = both(stored, _stored_pixels(plane, _missing_segments(plane, self._file_size)))
            check_embedded(plane, self._bytes_at)
            planes.append(plane.asarray())
        return np.stack(planes).reshape(*shape, *key.shape), stored

    def _bytes_at(self, offset: int, count: int) -> bytes:
        self._stream.seek(offset)
        return self._stream.read(count)

    def _read_contiguous(self, page: int | None) -> tuple[NDArray, None]:
        """Read a stack that is stored in one piece behind a single page entry."""
        series = self._series
        if series.dataoffset is None or series.dataoffset + series.nbytes > self._file_size:
            raise MalformedFileError("file is truncated")
        stack = series.asarray()
        return (stack if page is None else _take_page(stack, self._stored_axes, page)), None

    def _to_light(self, pixels: NDArray) -> NDArray:
        """Expand palettes, turn inks into RGB, and invert inverted grey values back."""
        photometric = int(self._keyframe.photometric)
        if photometric == _PALETTE:
            palette = self._palette()
            if pixels.max() >= len(palette):
                raise MalformedFileError("TIFF palette is too short, file is corrupt")
            return palette[pixels]
        if photometric == _INKS and pixels.ndim == 3 and pixels.shape[2] == 4 and pixels.dtype.kind == "u":
            return cmyk_to_rgb(np.iinfo(pixels.dtype).max - pixels)
        if photometric == _WHITE_IS_ZERO and pixels.dtype.kind == "b":
            return ~pixels
        if photometric == _WHITE_IS_ZERO and pixels.dtype.kind == "u":
            return pixels.dtype.type((1 << self._keyframe.bitspersample) - 1) - pixels
        return pixels


def _numbers_of_entries(series: Any) -> NDArray[np.intp] | None:
    """Numbers of a series' page entries along its leading axes; None where one entry stands for all."""
    key = series.keyframe
    leading = series.shape[: len(series.shape) - len(key.shape)]
    if len(series.pages) != math.prod(leading) or series.shape[len(leading) :] != key.shape:
        return None
    return np.arange(len(series.pages)).reshape(leading)


def _lazy_stack(series: Any, path: Path) -> Any:
    """Return an array that reads on slicing: memory-mapped if stored uncompressed, else by tiles."""
    if series.dataoffset is not None:
        dtype = series.dtype.newbyteorder(series.parent.byteorder)
        return np.memmap(path, dtype, "r", series.dataoffset, series.shape)
    key = series.keyframe
    samples = key.samplesperpixel if key.planarconfig == 1 else 1
    piece = key.tilelength * key.tilewidth if key.is_tiled else key.rowsperstrip * key.imagewidth
    if piece * samples * key.dtype.itemsize > _LARGEST_SEGMENT:
        raise UnsuitableImageError(
            f"its pixels are compressed in pieces of {piece / 1e6:.0f} Mpx and can only be read whole; "
            "convert it to a tiled TIFF"
        )
    try:
        import zarr
    except ImportError:
        raise UnsuitableImageError(
            "tiled or compressed TIFF files are read by windows with zarr (pip install 'texseg[large]')"
        ) from None
    store = series.aszarr(level=0) if hasattr(series, "levels") else series.aszarr()
    return zarr.open(store, mode="r")


def _take_page(array: NDArray, axes: str, page: int) -> NDArray:
    """Pick one page: its number counts through the page axes in the order they are stored in."""
    positions = [i for i, axis in enumerate(axes[: array.ndim]) if axis == "P"]
    indices = np.unravel_index(page, [array.shape[i] for i in positions])
    picked: list[Any] = [slice(None)] * array.ndim
    for position, index in zip(positions, indices, strict=True):
        picked[position] = index
    return array[tuple(picked)]
