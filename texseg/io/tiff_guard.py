"""Limits on the cost of reading a TIFF file, checked from its tables and the headers of pictures inside it.

tifffile trusts what a file announces (numbers of pages, strips, bytes of text); and a JPEG, PNG, WebP or JPEG
2000 picture in a strip is decoded at the size that it announces itself, whatever the TIFF around it says.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple
from xml.etree import ElementTree

from texseg.io.errors import MalformedFileError
from texseg.io.pictures import Jpeg, Jpeg2000, Webp

_FEW_PAGES, _PAGE_BYTES = 2**15, 4096  # beyond so many (half a second), pages take so much of the disk each
_MOST_PLANES = 2**18  # of files that hold a part of an OME data set each
_MOST_SMALL_PLANES = 2**23  # of the size of the smallest page: eight bytes each
_FEW_TAGS, _FEW_ATTRIBUTES, _TAG_BYTES = 2**17, 2**18, 512  # of OME, a second; more take so much of the disk
_MOST_IMAGES, _MOST_AXES = 2**14, 32  # of OME
_LONGEST_LIST, _LONGEST_SHAPE = 2**19, 2**21  # characters of ImageJ's and tifffile's own descriptions
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


class PageChain(NamedTuple):
    """Number of pages, pixels of the smallest one, and bytes that the file takes on the disk."""

    n_pages: int
    smallest: int
    stored_bytes: int


def check_page_chain(stream: BinaryIO, file_size: int) -> PageChain:
    """Follow the chain of page entries to its end; tifffile would omit what comes after a break."""
    stream.seek(0)
    start = stream.read(16)
    order = "<" if start[:2] == b"II" else ">"
    is_big = start[2:4] in (b"+\0", b"\0+")
    count_bytes, offset_bytes, entry, first = (8, 8, "HHQ8s", 8) if is_big else (2, 4, "HHI4s", 4)
    entry_bytes = struct.calcsize("<" + entry)
    seen: set[int] = set()
    stored_bytes = min(file_size, _bytes_on_disk(stream))
    most = _FEW_PAGES + stored_bytes // _PAGE_BYTES
    offset = _number(start[first:], offset_bytes, order)
    areas: list[int] = []
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
        sides = _sides(entries, order)
        areas.append(sides[_WIDTH] * sides[_LENGTH])
        offset = _number(page[end:], offset_bytes, order)
    return PageChain(len(areas), max(1, min(areas, default=1)), stored_bytes)


def _bytes_on_disk(stream: BinaryIO) -> int:
    """Bytes that a file takes on disk, if the system tells; parts never written take none."""
    status = os.fstat(stream.fileno())
    blocks: int | None = getattr(status, "st_blocks", None)
    return status.st_size if blocks is None else 512 * blocks


def _number(content: bytes, n_bytes: int, order: str) -> int:
    if len(content) < n_bytes:
        raise MalformedFileError("file is truncated")
    return int.from_bytes(content[:n_bytes], "little" if order == "<" else "big")


def _sides(entries: list[tuple[int, int, int, bytes]], order: str) -> dict[int, int]:
    """Width, height and samples of a page, 1 if not stated."""
    sides = {_WIDTH: 1, _LENGTH: 1, _SAMPLES: 1}
    for code, kind, count, value in entries:
        if code in sides and count == 1:
            sides[code] = _number(value, _TYPE_BYTES.get(kind, 1), order)
    return sides


def check_description(page: Any, chain: PageChain) -> None:
    """Refuse a description of the first page that is costly to read, or announces excessively many planes.

    tifffile allocates room at once for every plane that is announced, and reads a description to its end.

    Parameters
    ----------
    page : tifffile.TiffPage
        The first page.
    chain : PageChain
        What :func:`check_page_chain` found.
    """
    for kind, text, longest in (
        ("ImageJ", page.imagej_description, _LONGEST_LIST),
        ("shape", page.shaped_description, _LONGEST_SHAPE),
    ):
        if text is not None and len(text) > longest:
            raise MalformedFileError(
                f"TIFF description ({kind}) of {len(text) / 1e6:.1f} million characters, file is corrupt"
            )
    if not page.is_ome:
        return
    text = page.description
    paid = chain.stored_bytes // _TAG_BYTES
    too_much = text.count("<") > _FEW_TAGS + paid or text.count("=") > _FEW_ATTRIBUTES + paid
    if too_much or "<!DOCTYPE" in text:
        raise MalformedFileError("OME-TIFF with more metadata than its images need, file is corrupt")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return  # then tifffile reads pages, as of a file without metadata
    try:
        n_pixels, n_planes = _announced(root, chain.n_pages)
    except (KeyError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise MalformedFileError(f"OME metadata are broken ({error!r})") from error
    n_planes = max(n_planes, n_pixels / max(1, page.imagelength * page.imagewidth))
    if n_planes > _MOST_PLANES or n_pixels / chain.smallest > _MOST_SMALL_PLANES:
        raise MalformedFileError(f"OME-TIFF that announces {n_planes:.0f} planes, file is corrupt")


def _announced(root: ElementTree.Element, n_pages: int) -> tuple[int, float]:
    """Pixels of all planes that OME metadata announce; planes of which they give the place or the labels."""
    images = [part for image in root if image.tag.endswith("Image") for part in image]
    images = [part for part in images if part.tag.endswith("Pixels")]
    if len(images) > _MOST_IMAGES:
        raise MalformedFileError(f"OME-TIFF of {len(images)} images, file is corrupt")
    n_pixels, n_places = 0, 0.0
    for pixels in images:
        axes = pixels.attrib["DimensionOrder"]
        if len(axes) > _MOST_AXES:
            raise MalformedFileError(f"TIFF of {len(axes)} axes, file is corrupt")
        n_pixels += math.prod(abs(int(pixels.attrib["Size" + axis])) for axis in axes)
        for data in pixels:
            if data.tag.endswith("TiffData"):
                said = data.attrib.get("NumPlanes", "1" if "IFD" in data.attrib else "0")
                n_places += abs(int(data.attrib.get("PlaneCount", said))) or n_pages
    for along in root.iter():
        if along.tag[:-1].endswith("Along") and "Start" in along.attrib:
            extent = float(along.attrib["End"]) - float(along.attrib["Start"])
            n_places += abs(extent / float(along.attrib.get("Step", 1)))
    return n_pixels, n_places


def _check_entries(entries: list[tuple[int, int, int, bytes]], order: str, file_size: int) -> None:
    """Refuse values beyond the end of the file, and oversized tables and tags that are read at once."""
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


def check_compression(key: Any) -> None:
    """Refuse a page of unknown compression; the others bound their cost, or `check_embedded` does."""
    from tifffile import TIFF

    compression = int(key.compression)
    if compression not in TIFF.DECOMPRESSORS or not (compression in _PLAIN or compression in _EMBEDDED):
        name = getattr(key.compression, "name", compression)
        raise MalformedFileError(
            f"TIFF compression {name} is not supported (a newer tifffile and imagecodecs may read it); "
            "save it with deflate or LZW"
        )


def check_embedded(key: Any, data: bytes) -> None:
    """Refuse a strip or tile that is a picture larger than it should be, or costly."""
    size_of = _EMBEDDED.get(int(key.compression))
    if size_of is None:
        return
    height, width = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, key.imagewidth)
    height = min(height, key.imagelength) if not key.is_tiled else height
    found = size_of(data)
    if found[0] > _rounded(height) or found[1] > _rounded(width):
        raise MalformedFileError(
            f"a strip or tile of {width} x {height} pixels holds a picture of {found[1]} x {found[0]}, "
            "file is corrupt"
        )


def _rounded(side: int) -> int:
    """Side of the blocks of a JPEG that cover so many pixels, chroma at a quarter of the rows."""
    return -(-side // 32) * 32


def _size_of_jpeg(data: bytes) -> tuple[int, int]:
    picture = Jpeg(data)
    picture.check_complete()
    return picture.header.height, picture.header.width


def _size_of_png(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _size_of_webp(data: bytes) -> tuple[int, int]:
    header = Webp(data).header
    return header.height, header.width


def _size_of_jpeg2000(data: bytes) -> tuple[int, int]:
    picture = Jpeg2000(data)
    picture.check_cost()
    return picture.header.height, picture.header.width


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
