"""JPEG 2000 files (.jp2) and bare codestreams (.j2k)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from texseg.io.errors import MalformedFileError
from texseg.io.header import Decoded, Header, Stored, split_alpha

_CODESTREAM_START = b"\xff\x4f\xff\x51"
_TABLE_BYTES = 100e6  # bytes that a decoder may take for its tables beside the pixels
_MOST_BOXES = 4096
_TILE_BYTES, _COMPONENT_BYTES, _PRECINCT_BYTES = 7000, 1200, 400  # of OpenJPEG 2.5, for each
_CODING_STYLE, _CODING_STYLE_OF_COMPONENT, _START_OF_TILE = 0xFF52, 0xFF53, 0xFF90
_OPACITY = (1, 2)  # channel types of the cdef box: opacity, premultiplied opacity


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield type and content of the boxes up to the codestream, those inside the header box too."""
    position = n_boxes = 0
    while position + 8 <= len(data):
        n_boxes += 1
        if n_boxes > _MOST_BOXES:
            raise MalformedFileError("JPEG 2000 file of more boxes than an image has, file is corrupt")
        length, kind = struct.unpack_from(">I4s", data, position)
        start = position + 8
        if length == 1 and position + 16 <= len(data):
            length, start = struct.unpack_from(">Q", data, start)[0], position + 16
        end = len(data) if length == 0 else position + length
        if end < start:
            raise MalformedFileError("JPEG 2000 box makes no sense, file is corrupt")
        content = data[start:end]
        yield kind, content
        if kind == b"jp2h":
            yield from _boxes(content)
        position = end


def _has_opacity(definition: memoryview, n_channels: int) -> bool:
    """Tell whether a channel definition box declares the last channel to be alpha."""
    entries = [definition[i : i + 6] for i in range(2, len(definition) - 5, 6)]
    kinds = dict(struct.unpack_from(">HH", entry) for entry in entries)
    return kinds.get(n_channels - 1) in _OPACITY


def _check_codestream(codestream: memoryview) -> None:
    """Refuse tiles and precincts so small that their tables would fill the memory."""
    x1, y1, x0, y0, tile_x, tile_y = struct.unpack_from(">IIIIII", codestream, 8)
    n_components = struct.unpack_from(">H", codestream, 40)[0]
    if not tile_x or not tile_y or not n_components or x1 <= x0 or y1 <= y0:
        raise MalformedFileError("JPEG 2000 header makes no sense, file is corrupt")
    n_tiles = -(-x1 // tile_x) * -(-y1 // tile_y)
    area = (x1 - x0) * (y1 - y0)
    tables = n_tiles * (_TILE_BYTES + _COMPONENT_BYTES * n_components)
    smallest = min((size for size in _precinct_areas(codestream)), default=2**30)
    tables += min(tile_x * tile_y, area) * n_components // smallest * _PRECINCT_BYTES
    if tables > _TABLE_BYTES + 4 * area:
        raise MalformedFileError("JPEG 2000 of tiles or precincts without content, file is corrupt")


def _precinct_areas(codestream: memoryview) -> Iterator[int]:
    """Yield the areas in pixels of the precincts that the main header declares."""
    position = 2
    while position + 4 <= len(codestream):
        marker, length = struct.unpack_from(">HH", codestream, position)
        if marker == _START_OF_TILE or length < 2:
            return
        content = codestream[position + 4 : position + 2 + length]
        sizes = b""
        if marker == _CODING_STYLE and content and content[0] & 1:
            sizes = bytes(content[10:])
        elif marker == _CODING_STYLE_OF_COMPONENT and len(content) > 7:
            sizes = bytes(content[7:]) if content[1] & 1 else b""
        for level, size in enumerate(reversed(sizes)):
            yield 1 << (size & 15) + (size >> 4) + 2 * max(0, level - (level == len(sizes) - 1))
        position += 2 + length


class Jpeg2000Source(Stored):
    """A JPEG 2000 file in memory."""

    def __init__(self, data: bytes):
        self._data = data
        view = memoryview(data)
        boxes: dict[bytes, memoryview] = {b"jp2c": view} if data[:4] == _CODESTREAM_START else {}
        for kind_of_box, content in () if boxes else _boxes(view):
            if kind_of_box in boxes and kind_of_box == b"jp2c":
                raise MalformedFileError("JPEG 2000 file with two images, save the one you mean by itself")
            boxes.setdefault(kind_of_box, content)
        codestream = boxes.get(b"jp2c")
        if codestream is None or len(codestream) < 43 or bytes(codestream[:4]) != _CODESTREAM_START:
            raise MalformedFileError("file is truncated")
        x1, y1, x0, y0 = struct.unpack_from(">IIII", codestream, 8)
        n_components, depth = struct.unpack_from(">HB", codestream, 40)
        palette = boxes.get(b"pclr", memoryview(b""))
        n_channels = palette[2] if len(palette) > 2 else n_components
        if x1 <= x0 or y1 <= y0 or n_channels == 0:
            raise MalformedFileError("JPEG 2000 header makes no sense, file is corrupt")
        announced = boxes.get(b"ihdr")
        if announced is not None and bytes(announced[:8]) != struct.pack(">II", y1 - y0, x1 - x0):
            raise MalformedFileError("JPEG 2000 headers contradict each other, file is corrupt")
        self._codestream = codestream
        has_alpha = _has_opacity(boxes.get(b"cdef", memoryview(b"")), n_channels)
        n_channels -= has_alpha
        kind = "int" if depth & 0x80 else "uint"
        bits = next((b for b in (8, 16, 32) if (depth & 0x7F) < b), 64)
        self.header = Header(
            format="JPEG 2000",
            shape=(y1 - y0, x1 - x0) + ((n_channels,) if n_channels > 1 else ()),
            axes="YXC" if n_channels > 1 else "YX",
            dtype=np.dtype(f"{kind}{bits}"),
            has_alpha=has_alpha,
        )

    def check_cost(self) -> None:
        """Refuse what would cost far more than its pixels."""
        _check_codestream(self._codestream)

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode the image; the decoder refuses incomplete codestreams."""
        import imagecodecs

        self.check_cost()
        return split_alpha(imagecodecs.jpeg2k_decode(self._data), self.header)
