"""What reading a TIFF file may cost, found from its tables and from the headers of pictures inside it.

tifffile believes what a file says: so many pages, strips, bytes of text; and a JPEG, PNG, WebP or JPEG 2000
picture in a strip is decoded in the size that it announces itself, whatever the TIFF around it says.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from texseg.io.errors import MalformedFileError
from texseg.io.jpeg import JpegLayout
from texseg.io.jpeg2000 import Jpeg2000Source
from texseg.io.webp import WebpSource

_FEW_PAGES, _PAGE_BYTES = 2**15, 4096  # beyond so many (half a second), pages take so much of the disk each
_MOST_PLANES = 2**18  # of files that hold a part of an OME data set each
_OME_EXTENT = re.compile(rb"""Size([CTXYZ])\s*=\s*["']\s*(\d{1,18})""")
_MOST_ENTRIES = 4096  # tifffile's own limit
_USUAL_ENTRIES = 24  # of a page, read at once
_FEW_SEGMENTS, _SEGMENT_PIXELS = 2**16, 1024  # beyond so many, they hold so many pixels on average
_LARGEST_TEXT = 2**25
_TYPE_BYTES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_WIDTH, _LENGTH, _SAMPLES, _DESCRIPTION = 256, 257, 277, 270
_PLACES = (273, 279, 324, 325)  # offsets and sizes of strips and tiles
_USED_TAGS = frozenset(
    (*range(254, 260), 262, 266, _DESCRIPTION, 274, *_PLACES, 277, 278, 284, 305, 317, 320, 322, 323)
) | {338, 339, 347, 33550, 33922, 34264, 34735, 34736, 34737, 42113, 50838, 50839}  # fmt: skip
"""Tags that decide how the pixels are read: a file that ends before their values is cut."""
_UNREAD_TAGS = frozenset((700, 33723, 34377, 34675, 37724, 42112))
"""XMP, IPTC, layers of Photoshop, colour profile, metadata of GDAL: large in sound files, never looked at."""
_PAGES_INSIDE = 330


def check_page_chain(stream: BinaryIO, file_size: int) -> None:
    """Follow the chain of page entries to its end; tifffile would leave out what lies behind a break."""
    stream.seek(0)
    start = stream.read(16)
    order = "<" if start[:2] == b"II" else ">"
    is_big = start[2:4] in (b"+\0", b"\0+")
    count_bytes, offset_bytes, entry, first = (8, 8, "HHQ8s", 8) if is_big else (2, 4, "HHI4s", 4)
    entry_bytes = struct.calcsize("<" + entry)
    seen: set[int] = set()
    most = _FEW_PAGES + min(file_size, _bytes_on_disk(stream)) // _PAGE_BYTES
    offset = _number(start[first:], offset_bytes, order)
    while offset:
        if offset in seen:
            raise MalformedFileError("the chain of TIFF pages has no end, file is corrupt")
        if len(seen) > most:
            raise MalformedFileError(
                f"TIFF of more than {most} pages in {file_size / 1e6:.0f} MB, file is corrupt"
            )
        seen.add(offset)
        stream.seek(offset)
        page = stream.read(_USUAL_ENTRIES * entry_bytes)
        n_entries = _number(page, count_bytes, order)
        end = count_bytes + n_entries * entry_bytes
        if offset + end + offset_bytes > file_size:
            raise MalformedFileError("file is truncated")
        if n_entries > _MOST_ENTRIES:
            raise MalformedFileError("TIFF page with more entries than there are tags, file is corrupt")
        if len(page) < end + offset_bytes:
            page += stream.read(end + offset_bytes - len(page))
        entries = list(struct.iter_unpack(order + entry, page[count_bytes:end]))
        _check_entries(entries, order, file_size)
        if len(seen) == 1:
            _check_planes(_description(stream, entries, order), _sides(entries, order))
        offset = _number(page[end:], offset_bytes, order)


def _bytes_on_disk(stream: BinaryIO) -> int:
    """Bytes that a file takes, where the system tells: what was never written takes none."""
    status = os.fstat(stream.fileno())
    blocks: int | None = getattr(status, "st_blocks", None)
    return status.st_size if blocks is None else 512 * blocks


def _number(content: bytes, n_bytes: int, order: str) -> int:
    if len(content) < n_bytes:
        raise MalformedFileError("file is truncated")
    return int.from_bytes(content[:n_bytes], "little" if order == "<" else "big")


def _description(stream: BinaryIO, entries: list[tuple[int, int, int, bytes]], order: str) -> bytes:
    for code, _, count, value in entries:
        if code == _DESCRIPTION and count > len(value):
            stream.seek(struct.unpack(order + ("I" if len(value) == 4 else "Q"), value)[0])
            return stream.read(count)
    return b""


def _sides(entries: list[tuple[int, int, int, bytes]], order: str) -> dict[int, int]:
    """Width, height and samples of a page, 1 where they are not said."""
    sides = {_WIDTH: 1, _LENGTH: 1, _SAMPLES: 1}
    for code, kind, count, value in entries:
        if code in sides and count == 1:
            sides[code] = _number(value, _TYPE_BYTES.get(kind, 1), order)
    return sides


def _check_planes(description: bytes, sides: dict[int, int]) -> None:
    """Refuse metadata (OME) that announce planes without measure: tifffile makes room for each at once.

    Planes that are larger than the page count as so many pages.
    """
    n_planes = 0.0
    for pixels in description.split(b"Pixels ")[1:]:
        extents = dict.fromkeys(b"CTXYZ", 1) | {axis[0]: int(n) for axis, n in _OME_EXTENT.findall(pixels)}
        pages = extents[ord("X")] * extents[ord("Y")] / max(1, sides[_WIDTH] * sides[_LENGTH])
        n_planes += math.prod(extents[axis] for axis in b"CTZ") * max(1.0, pages)
    if n_planes > _MOST_PLANES:
        raise MalformedFileError(f"OME-TIFF that announces {n_planes:.0f} planes, file is corrupt")


def _check_entries(entries: list[tuple[int, int, int, bytes]], order: str, file_size: int) -> None:
    """Refuse values behind the end of the file, and tables and tags without measure that are read at once."""
    n_segments = 0
    for code, kind, count, value in entries:
        if code in _UNREAD_TAGS:
            continue
        n_bytes = _TYPE_BYTES.get(kind, 1) * count
        if n_bytes > len(value) and code in _USED_TAGS:
            (offset,) = struct.unpack(order + ("I" if len(value) == 4 else "Q"), value)
            if offset + n_bytes > file_size:
                raise MalformedFileError("file is truncated")
        if code in _PLACES:
            n_segments = max(n_segments, count)
        elif n_bytes > _LARGEST_TEXT or (code == _PAGES_INSIDE and count > _MOST_ENTRIES):
            raise MalformedFileError(f"TIFF tag {code} of {n_bytes / 1e6:.0f} MB, file is corrupt")
    if n_segments < _FEW_SEGMENTS:
        return
    if n_segments > _FEW_SEGMENTS + math.prod(_sides(entries, order).values()) // _SEGMENT_PIXELS:
        raise MalformedFileError(f"TIFF of {n_segments} strips or tiles, more than a picture of its size has")


def check_embedded(
    page: Any, read: Callable[[int, int], bytes], segments: Iterable[int] | None = None
) -> None:
    """Refuse a page whose strips or tiles are pictures larger than they should be, or costly.

    Parameters
    ----------
    page : tifffile.TiffPage or TiffFrame
        The page; compressions that announce no size of their own are bounded by the decoder.
    read : callable
        ``read(offset, count)`` gives bytes of the file.
    segments : iterable of int, optional
        The strips or tiles that are looked at; all by default.
    """
    from tifffile import TIFF

    key = page.keyframe
    compression = int(key.compression)
    if compression not in TIFF.DECOMPRESSORS or not (compression in _PLAIN or compression in _EMBEDDED):
        name = getattr(key.compression, "name", compression)
        raise MalformedFileError(
            f"TIFF compression {name} is not supported (a newer tifffile and imagecodecs may read it); "
            "save it with deflate or LZW"
        )
    if compression in _PLAIN:
        return
    height, width = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, key.imagewidth)
    height = min(height, key.imagelength) if not key.is_tiled else height
    places = list(zip(page.dataoffsets, page.databytecounts, strict=False))
    for offset, count in places if segments is None else (places[i] for i in segments if i < len(places)):
        if not count:
            continue
        found = _EMBEDDED[compression](read(offset, count))
        if found[0] > _rounded(height) or found[1] > _rounded(width):
            raise MalformedFileError(
                f"a strip or tile of {width} x {height} pixels holds a picture of {found[1]} x {found[0]}, "
                "file is corrupt"
            )


def _rounded(side: int) -> int:
    """Side of the blocks of a JPEG that cover so many pixels, chroma at a quarter of the rows."""
    return -(-side // 32) * 32


def _size_of_jpeg(data: bytes) -> tuple[int, int]:
    layout = JpegLayout(data)
    layout.check_cost()
    layout.check_complete(data)
    return layout.height, layout.width


def _size_of_png(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _size_of_webp(data: bytes) -> tuple[int, int]:
    header = WebpSource(data).header
    return header.height, header.width


def _size_of_jpeg2000(data: bytes) -> tuple[int, int]:
    source = Jpeg2000Source(data)
    source.check_cost()
    return source.header.height, source.header.width


def _size_of_lerc(data: bytes) -> tuple[int, int]:
    if data[:6] != b"Lerc2 ":
        raise MalformedFileError(
            "this kind of LERC compression is not supported; save it with deflate or LZW"
        )
    version = struct.unpack_from("<i", data, 6)[0]
    height, width = struct.unpack_from("<ii", data, 14 if version >= 3 else 10)
    return height, width


_PLAIN = frozenset((1, 2, 3, 4, 5, 8, 32771, 32773, 32809, 32895, 32908, 32909, 32946, 34925, 34926, 50000))
_EMBEDDED: dict[int, Callable[[bytes], tuple[int, int]]] = {
    **dict.fromkeys((6, 7, 33007, 34892), _size_of_jpeg),
    **dict.fromkeys((33003, 33004, 33005, 34712), _size_of_jpeg2000),
    34887: _size_of_lerc,
    34933: _size_of_png,
    50001: _size_of_webp,
}
