"""TIFF files: which of their planes are pages and which are channels is read from their tags.

tifffile trusts what a file announces (numbers of pages, strips, bytes of text); and a JPEG, PNG, WebP or JPEG
2000 picture in a strip is decoded at the size that it announces itself, whatever the TIFF around it says. So
the cost of reading is limited before, from the tables and the headers of pictures inside.
"""

import logging
import math
import os
import re
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, reduce
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from texseg.io.files import MalformedFileError, UnsuitableImageError
from texseg.io.geo import GDAL_NODATA, GEO_TAGS, Georeference, pixel_size_of_tiff
from texseg.io.header import Decoded, Header, Stored, Window, both, parse_nodata
from texseg.io.pictures import Jpeg, Jpeg2000, Png, Webp, cmyk_to_rgb

_ORIENTATION = 274
_WHITE_IS_ZERO, _PALETTE, _INKS, _LUMA_CHROMA = 0, 3, 5, 6
_JPEG_COMPRESSIONS = (6, 7, 33007, 34892)
_COLOUR_SAMPLES = {0: 1, 1: 1, 2: 3, 3: 1, 4: 1, 5: 4, 6: 3, 34892: 3}  # by PhotometricInterpretation
_ALPHA_SAMPLES = (1, 2)  # values of ExtraSamples: associated and unassociated alpha
_REDUCED_IMAGE, _MASK_IMAGE = 1, 4  # bits of NewSubfileType
_MOST_AXES = 32
_LARGEST_SEGMENT = 2**28
_FEW_SEGMENTS, _SEGMENT_PIXELS = 2**16, 1024  # beyond so many, they hold so many pixels on average
_AT_ONCE = 4096  # strips or tiles that wait to be decoded
logging.getLogger("tifffile").addHandler(logging.NullHandler())  # errors and notes report what matters


def _area(series: Any) -> int:
    sides = dict(zip(series.axes, series.shape, strict=True))
    return sides.get("Y", 0) * sides.get("X", 0)


def _choose_series(tiff: Any, page: int | None) -> tuple[Any, list[Any], int]:
    """Return the main image, the others (thumbnails, masks), and the number of its first page."""
    images = [series for series in tiff.series if _area(series)]
    main = [s for s in images if not s.keyframe.subfiletype & (_REDUCED_IMAGE | _MASK_IMAGE)] or images
    if not main:
        raise MalformedFileError("there is no image in this TIFF file")
    largest = max(main, key=_area)
    rivals = [s for s in main if _area(s) == _area(largest)]
    firsts = np.cumsum([0, *(len(series.pages) for series in rivals)]).tolist()
    at = 0
    if len(rivals) > 1:
        if page is None or not 0 <= page < firsts[-1]:
            choice = f"choose one with page=N (--page N, from 0 to {firsts[-1] - 1})"
            raise UnsuitableImageError(f"{len(rivals)} images of equal size but different type: {choice}")
        at = int(np.searchsorted(firsts, page, side="right")) - 1
    return rivals[at], [s for s in images if s not in rivals], firsts[at]


def _missing_segments(page: Any, file_size: int) -> NDArray[np.bool_]:
    """Tell which strips or tiles a sparse file leaves out; a file that ends too early is refused."""
    keyframe = page.keyframe
    expected, counts = math.prod(keyframe.chunked), page.databytecounts
    if keyframe.is_contiguous:
        expected, counts = 1, [math.prod(keyframe.shaped) * keyframe.dtype.itemsize]
    offsets, counts = np.array(page.dataoffsets[:expected]), np.array(counts[:expected])
    if not len(offsets) == len(counts) == expected or ((offsets == 0) != (counts == 0)).any():
        raise MalformedFileError("strips or tiles are missing, file is corrupt")
    if (offsets.astype(float) + counts > file_size).any():
        raise MalformedFileError("file is truncated")
    return offsets == 0


def _segment_grid(key: Any) -> tuple[int, int, int, int]:
    """Rows and columns of pixels in a strip or tile, and how many of them lie down and across an image."""
    rows, columns = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, key.imagewidth)
    return rows, columns, math.ceil(key.imagelength / rows), math.ceil(key.imagewidth / columns)


class TiffSource(Stored):
    """A TIFF file, opened from a binary stream."""

    def __init__(self, stream: BinaryIO, file_size: int, page: int | None = None):
        from tifffile import TiffFile

        self._stream, self._file_size, self._lock = stream, file_size, threading.Lock()
        stored_bytes = check_page_chain(stream, file_size)
        stream.seek(0)
        self._reader = cache(self._reader_of)
        file = TiffFile(stream, _multifile=False)
        check_description(file.pages.first, stored_bytes)
        self._series, others, self.first_page = _choose_series(file, page)
        self._description = file.pages.first.description
        if len(self._series.shape) > _MOST_AXES:
            raise MalformedFileError(f"TIFF of {len(self._series.shape)} axes, file is corrupt")
        self._keyframe = self._series.keyframe
        self._mask_page = next((s.pages[0] for s in others if self._is_mask_of_main(s)), None)
        self._check_supported()
        axes, key, self._alpha = self._series.axes, self._keyframe, None
        channel = "S" if "S" in axes else "C"  # samples, otherwise declared channels; the rest are pages
        self._stored_axes = "".join(a if a in "YX" else "C" if a == channel else "P" for a in axes)
        if "S" in axes:
            samples = range(_COLOUR_SAMPLES[int(key.photometric)], self._series.shape[axes.index("S")])
            kinds = zip(samples, key.extrasamples, strict=False)
            self._alpha = next((sample for sample, kind in kinds if kind in _ALPHA_SAMPLES), None)
        self.header = self._describe(others)
        y, x = axes.index("Y"), axes.index("X")
        self.levels = tuple((level.shape[y], level.shape[x]) for level in self._series.levels)

    def _is_mask_of_main(self, series: Any) -> bool:
        sizes = {(key.imagelength, key.imagewidth) for key in (series.keyframe, self._keyframe)}
        return bool(series.keyframe.subfiletype & _MASK_IMAGE) and len(sizes) == 1

    def _check_supported(self) -> None:
        key = self._keyframe
        if key.dtype is None or self._series.dtype is None:
            raise MalformedFileError(f"{key.bitspersample}-bit samples of this kind are not supported")
        if self._series.dtype.kind not in "buif":
            kind = f"shape {self._series.shape} and dtype {self._series.dtype}"
            raise UnsuitableImageError(f"image of {kind}; expected real numbers")
        if key.imagedepth > 1:
            raise UnsuitableImageError("volumetric TIFF tiles are not read; save the planes as pages")
        if int(key.photometric) not in _COLOUR_SAMPLES:
            name = getattr(key.photometric, "name", key.photometric)
            raise MalformedFileError(f"TIFF colour space {name} is not supported; save it as RGB or grey")
        if int(key.photometric) == _LUMA_CHROMA and key.compression not in _JPEG_COMPRESSIONS:
            raise MalformedFileError("TIFF colour space YCBCR is supported with JPEG compression only")
        n_values = key.tilelength * key.tilewidth * key.samplesperpixel
        if key.is_tiled and n_values * key.dtype.itemsize > _LARGEST_SEGMENT:
            raise MalformedFileError(f"invalid TIFF tiles of {key.tilewidth} x {key.tilelength} pixels")

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
        of_page = self._keyframe.tags
        tags = tuple((t.code, t.dtype, t.count, t.value) for t in of_page if t.code in GEO_TAGS)
        orientation = of_page.valueof(_ORIENTATION, 1)
        smaller = (s.keyframe for s in others if not self._is_mask_of_main(s))
        ignored = "a smaller image in the file is ignored"
        notes = [f"{ignored} ({key.imagewidth} x {key.imagelength})" for key in smaller]
        text = str(of_page.valueof(GDAL_NODATA, "")).strip("\0 ")
        nodata = parse_nodata(text)
        if text and nodata is None:
            remedy = "pass the value as nodata=... (--nodata)"
            notes.append(f"the no-data tag {text[:40]!r} is not a number; {remedy}")
        upright = orientation if orientation in range(1, 9) else 1
        geo, alpha = Georeference(tags) if tags else None, self._alpha is not None
        about = np.dtype(dtype).newbyteorder("="), alpha, upright, nodata, geo, tuple(notes)
        size = pixel_size_of_tiff(self._keyframe, self._description)
        is_ome = "<Pixels" in self._description
        return Header("TIFF", tuple(shape), axes, *about, is_ome=is_ome, measured=size)

    def _palette(self) -> NDArray:
        """Palette (N, 3), 8 bits where its 16-bit entries hold no more."""
        colours = np.asarray(self._keyframe.colormap).T
        if colours.max(initial=0) < 256:
            return colours.astype(np.uint8)
        return (colours // 257).astype(np.uint8) if (colours % 257 == 0).all() else colours

    def only_whole(self, level: int) -> str:
        """Say that a part takes almost the time and memory of the whole, if it does."""
        key, page = self._series.levels[level].keyframe, self._series.levels[level].pages[0]
        rows, columns, _, _ = _segment_grid(key)
        samples = key.samplesperpixel if key.planarconfig == 1 else 1
        is_mapped = page.is_contiguous and key.is_final
        if is_mapped or rows * columns * samples * key.dtype.itemsize <= _LARGEST_SEGMENT:
            return ""
        said = f"its pixels are compressed in pieces of {rows * columns / 1e6:.0f} Mpx"
        return f"{said} and can only be read whole; convert it to a tiled TIFF"

    def read(self, window: Window, axes: str, page: int, level: int) -> Decoded:
        """Read a window of one page, channels last, colours expanded; missing tiles are invalid."""
        return self._reader(axes, page, level)(window)

    def _reader_of(self, axes: str, page: int, level: int) -> Callable[[Window], Decoded]:
        series = self._series.levels[level]
        planes, leading = self._planes_of(series, page if "P" in axes else None)
        letters = self._stored_axes.replace("P", "" if "P" in axes else "C")
        readers = [self._plane(plane) for plane in planes]
        mask = None if level or self._mask_page is None else self._plane(self._mask_page)
        if not planes:  # a stack that is stored in one piece behind a single page entry
            if series.dataoffset is None or series.dataoffset + series.nbytes > self._file_size:
                raise MalformedFileError("file is truncated")
            dtype = series.dtype.newbyteorder(series.parent.byteorder)
            stack: NDArray = np.memmap(self._stream, dtype, "r", series.dataoffset, series.shape)
            stack = stack if "P" not in axes else _take_page(stack, self._stored_axes, page)

        def read(window: Window) -> Decoded:
            if planes:
                parts = [part(window) for part in readers]
                pixels = np.stack([part.pixels for part in parts]).reshape(*leading, *parts[0].pixels.shape)
                stored = reduce(both, (part.stored for part in parts))
            else:
                place = {"Y": window[0], "X": window[1]}
                pixels = np.array(stack[tuple(place.get(letter, slice(None)) for letter in letters)])
                stored = None
            if "C" in letters:
                pixels = np.moveaxis(pixels, letters.index("C"), -1)
            if mask is not None:
                shown = mask(window)
                stored = both(both(stored, shown.stored), shown.pixels != 0)
            return self._in_light(pixels, stored)

        return read

    def _plane(self, plane: Any) -> Callable[[Window], Decoded]:
        """Return a function that decodes windows of one page entry from its strips or tiles."""
        key = plane.keyframe
        missing = _missing_segments(plane, self._file_size)
        from tifffile import TIFF

        compression = int(key.compression)  # of these the cost is bounded, or `check_embedded` does it
        if compression not in TIFF.DECOMPRESSORS or compression not in _PLAIN | _EMBEDDED.keys():
            name = getattr(key.compression, "name", compression)
            remedy = "(a newer tifffile and imagecodecs may read it); save it with deflate or LZW"
            raise MalformedFileError(f"TIFF compression {name} is not supported {remedy}")
        samples = key.samplesperpixel if key.planarconfig == 1 else 1
        n_planes = key.samplesperpixel if key.planarconfig != 1 else 1
        if plane.is_contiguous and key.is_final:
            dtype = key.dtype.newbyteorder(plane.parent.byteorder)
            shape = (n_planes, key.imagelength, key.imagewidth, samples)
            values = np.memmap(self._stream, dtype, "r", plane.dataoffsets[0], shape)
            return lambda window: Decoded(_squeezed(values[:, window[0], window[1]]))
        rows, columns, down, across = _segment_grid(key)
        if (n := down * across) > _FEW_SEGMENTS + key.imagelength * key.imagewidth // _SEGMENT_PIXELS:
            raise MalformedFileError(f"TIFF of {n} strips or tiles, more than a picture of its size has")
        numbers = np.arange(n_planes * down * across).reshape(n_planes, down, across)
        there = np.all(~missing.reshape(numbers.shape), axis=0).reshape(down, across)
        extra = {"jpegtables": plane.jpegtables, "jpegheader": key.jpegheader}
        options = extra if int(key.compression) in _JPEG_COMPRESSIONS else {}
        decode = key.decode  # compiled here, not by several threads at once

        def read(window: Window) -> Decoded:
            top, left = window[0].start, window[1].start
            height, width = window[0].stop - top, window[1].stop - left
            y, x = (np.arange(part.start, part.stop) for part in window)
            found = np.full((n_planes, height, width, samples), key.nodata, key.dtype)

            def paste(number: int) -> None:
                with self._lock:
                    self._stream.seek(plane.dataoffsets[number])
                    data = self._stream.read(plane.databytecounts[number])
                check_embedded(key, data)
                segment, (s, _, h, w, _), shape = decode(data, number, **options)
                (y0, x0), (y1, x1) = (max(h, top), max(w, left)), (h + shape[1], w + shape[2])
                y1, x1 = min(y1, top + height), min(x1, left + width)
                part = segment[0, y0 - h : y1 - h, x0 - w : x1 - w]
                found[s, y0 - top : y1 - top, x0 - left : x1 - left] = part

            inside = numbers[:, y[0] // rows : y[-1] // rows + 1, x[0] // columns : x[-1] // columns + 1]
            wanted = inside[~missing[inside]].tolist()
            with ThreadPoolExecutor(max(1, key.maxworkers)) as workers:
                for first in range(0, len(wanted), _AT_ONCE):
                    list(workers.map(paste, wanted[first : first + _AT_ONCE]))
            valid = None if there.all() else there[np.ix_(y // rows, x // columns)]
            return Decoded(_squeezed(found), None, valid)

        return read

    def _planes_of(self, series: Any, page: int | None) -> tuple[list[Any], tuple[int, ...]]:
        """Page entries that hold one page of a series, or all, and their order; none of a single piece."""
        key = series.keyframe
        leading = series.shape[: len(series.shape) - len(key.shape)]
        if len(series.pages) != math.prod(leading) or series.shape[len(leading) :] != key.shape:
            return [], ()
        numbers = np.arange(len(series.pages)).reshape(leading)
        if page is not None:
            numbers = np.asarray(_take_page(numbers, self._stored_axes, page))
        return [series.pages[int(number)] for number in np.ravel(numbers)], numbers.shape

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-page palette image, None for other kinds."""
        if int(self._keyframe.photometric) != _PALETTE or self.header.n_pages > 1:
            return None
        whole = slice(0, self.header.height), slice(0, self.header.width)
        return self._plane(self._series.pages[0])(whole).pixels

    def _in_light(self, pixels: NDArray, stored: NDArray[np.bool_] | None) -> Decoded:
        """Split alpha off samples, channels last; expand palettes, turn inks and inverted grey into light."""
        opaque, photometric = None, int(self._keyframe.photometric)
        if self._alpha is not None:
            opaque = pixels[..., self._alpha] != 0
            pixels = np.delete(pixels, self._alpha, axis=-1)
        if photometric == _PALETTE:
            pixels = self._palette()[pixels]
        elif photometric == _INKS and pixels.shape[2:] == (4,) and pixels.dtype.kind == "u":
            pixels = cmyk_to_rgb(np.iinfo(pixels.dtype).max - pixels)
        elif photometric == _WHITE_IS_ZERO and pixels.dtype.kind in "bu":
            pixels = pixels ^ pixels.dtype.type((1 << self._keyframe.bitspersample) - 1)
        if pixels.shape[2:] == (1,):
            pixels = pixels[..., 0]
        return Decoded(pixels.astype(pixels.dtype.newbyteorder("="), copy=False), opaque, stored)


def _squeezed(values: NDArray) -> NDArray:
    """Leave out the axes of planes and of samples where there is one."""
    values = values if len(values) > 1 else values[0]
    return values if values.shape[-1] > 1 else values[..., 0]


def _take_page(array: NDArray, axes: str, page: int) -> NDArray:
    """Pick one page: its number counts through the page axes in the order they are stored in."""
    axes = axes[: array.ndim]
    lengths = [n for n, axis in zip(array.shape, axes, strict=True) if axis == "P"]
    numbers = iter(np.unravel_index(page, lengths))
    return array[tuple(next(numbers) if axis == "P" else slice(None) for axis in axes)]


_FEW_PAGES, _PAGE_BYTES = 2**15, 4096  # beyond so many (half a second), pages take so much of the disk each
_MOST_PLANES = 2**18  # that OME metadata announce; tifffile makes room for each
_FEW_TAGS, _TAG_BYTES = 2**17, 512  # of OME, a second; more take so much of the disk
_MOST_IMAGES, _LONGEST = 2**12, 1.0  # of OME; million characters of ImageJ's and tifffile's descriptions
_COUNTS = ("PlaneCount", "NumPlanes", "End")
_BLOCK = 32  # pixels, of the side of a block of a JPEG with chroma at a quarter of the rows
_MOST_ENTRIES = 4096  # tifffile's own limit
_TYPE_BYTES = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4), start=1)) | {16: 8, 17: 8, 18: 8}


def check_page_chain(stream: BinaryIO, file_size: int) -> int:
    """Follow the chain of page entries to its end; return the bytes that the file takes on the disk."""
    stream.seek(0)
    start = stream.read(16)
    order = "<" if start[:2] == b"II" else ">"
    is_big = start[2:4] in (b"+\0", b"\0+")
    n_type, entry, first, word = ("Q", "HHQ8s", 8, "Q") if is_big else ("H", "HHI4s", 4, "I")
    entry_bytes, offset_bytes = struct.calcsize("<" + entry), struct.calcsize(word)
    stored_bytes = min(file_size, 512 * getattr(os.fstat(stream.fileno()), "st_blocks", 2**60))
    most = _FEW_PAGES + stored_bytes // _PAGE_BYTES
    seen: set[int] = set()
    (offset,) = struct.unpack_from(order + word, start, first)
    while offset:
        if offset in seen:
            raise MalformedFileError("the chain of TIFF pages has no end, file is corrupt")
        if len(seen) > most:
            size = f"{file_size / 1e6:.0f} MB"
            raise MalformedFileError(f"TIFF of more than {most} pages in {size}, file is corrupt")
        seen.add(offset)
        stream.seek(offset)
        (n_entries,) = struct.unpack(order + n_type, stream.read(struct.calcsize(n_type)))
        if n_entries > _MOST_ENTRIES:
            raise MalformedFileError("TIFF page with more entries than there are tags, file is corrupt")
        page = stream.read(n_entries * entry_bytes + offset_bytes)
        (offset,) = struct.unpack_from(order + word, page, n_entries * entry_bytes)
        for _, kind, count, value in struct.iter_unpack(order + entry, page[: n_entries * entry_bytes]):
            n_bytes = _TYPE_BYTES.get(kind, 1) * count
            if n_bytes > len(value) and struct.unpack(order + word, value)[0] + n_bytes > file_size:
                raise MalformedFileError("file is truncated")
    return stored_bytes


def check_description(page: Any, stored_bytes: int) -> None:
    """Refuse a description that is costly to read, or that announces excessively many planes."""
    longest = max(len(page.shaped_description or ""), len(page.imagej_description or "")) / 1e6
    if longest > _LONGEST:
        raise MalformedFileError(f"TIFF description of {longest:.1f} million characters, file is corrupt")
    text = page.description
    if not page.is_ome:
        return
    if text.count("<") > _FEW_TAGS + stored_bytes // _TAG_BYTES or "<!DOCTYPE" in text:
        raise MalformedFileError("OME-TIFF with more metadata than its images need, file is corrupt")
    try:
        parts = list(ElementTree.fromstring(text).iter())
    except ElementTree.ParseError:
        return  # then tifffile reads pages, as of a file without metadata
    n_images = sum(part.tag.endswith("Image") for part in parts)
    if n_images > _MOST_IMAGES:
        raise MalformedFileError(f"OME-TIFF of {n_images} images, file is corrupt")
    n_planes = 0.0
    for part in parts:
        sides = [abs(int(side)) for name, side in part.attrib.items() if re.fullmatch("Size[A-Z]", name)]
        n_planes += math.prod(sides) / max(1, page.imagelength * page.imagewidth) if sides else 0
        n_planes += sum(abs(float(part.attrib.get(name, 0))) for name in _COUNTS)
    if n_planes > _MOST_PLANES:
        raise MalformedFileError(f"OME-TIFF that announces {n_planes:.0f} planes, file is corrupt")


def check_embedded(key: Any, data: bytes) -> None:
    """Refuse a strip or tile that is a picture larger than it should be, or costly."""
    kind = _EMBEDDED.get(int(key.compression))
    if kind is None:
        return
    height, width, _, _ = _segment_grid(key)
    height = min(height, key.imagelength) if not key.is_tiled else height
    picture = kind(data)
    picture.check()
    found = picture.header.height, picture.header.width
    most = (-(-side // _BLOCK) * _BLOCK for side in (height, width))
    if any(side > limit for side, limit in zip(found, most, strict=True)):
        piece = f"a strip or tile of {width} x {height} pixels"
        raise MalformedFileError(f"{piece} holds a picture of {found[1]} x {found[0]}, file is corrupt")


_PLAIN = frozenset((1, 2, 3, 4, 5, 8, 32771, 32773, 32809, 32895, 32908, 32909, 32946, 34925, 34926, 50000))
_EMBEDDED: dict[int, Any] = {34933: Png, 50001: Webp, **dict.fromkeys(_JPEG_COMPRESSIONS, Jpeg)}
_EMBEDDED |= dict.fromkeys((33003, 33004, 33005, 34712), Jpeg2000)
