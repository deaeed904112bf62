"""Limits on the cost of reading a TIFF file, checked from its tables and the headers of pictures inside it.

tifffile trusts what a file announces (numbers of pages, strips, bytes of text); and a JPEG, PNG, WebP or JPEG
2000 picture in a strip is decoded at the size that it announces itself, whatever the TIFF around it says.
"""

from __future__ import annotations

import math
import os
import re
import struct
from typing import Any, BinaryIO
from xml.etree import ElementTree

from texseg.io.errors import MalformedFileError
from texseg.io.pictures import Jpeg, Jpeg2000, Png, Webp

_FEW_PAGES, _PAGE_BYTES = 2**15, 4096  # beyond so many (half a second), pages take so much of the disk each
_MOST_PLANES = 2**18  # that OME metadata announce; tifffile makes room for each
_FEW_TAGS, _TAG_BYTES = 2**17, 512  # of OME, a second; more take so much of the disk
_MOST_IMAGES, _LONGEST = 2**12, 2**20  # of OME; characters of ImageJ's and tifffile's own descriptions
_COUNTS = ("PlaneCount", "NumPlanes", "End")
_BLOCK = 32  # pixels, of the side of a block of a JPEG with chroma at a quarter of the rows
_MOST_ENTRIES = 4096  # tifffile's own limit
_TYPE_BYTES = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4), start=1)) | {16: 8, 17: 8, 18: 8}


def check_page_chain(stream: BinaryIO, file_size: int) -> int:
    """Follow the chain of page entries to its end, since tifffile would omit what comes after a break.

    Returns the bytes that the file takes on the disk: parts never written take none.
    """
    stream.seek(0)
    start = stream.read(16)
    order = "<" if start[:2] == b"II" else ">"
    is_big = start[2:4] in (b"+\0", b"\0+")
    count_bytes, entry, first, word = (8, "HHQ8s", 8, "Q") if is_big else (2, "HHI4s", 4, "I")
    entry_bytes, offset_bytes = struct.calcsize("<" + entry), struct.calcsize(word)
    stored_bytes = min(file_size, 512 * getattr(os.fstat(stream.fileno()), "st_blocks", 2**60))
    most = _FEW_PAGES + stored_bytes // _PAGE_BYTES
    seen: set[int] = set()
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
        n_entries = _number(stream.read(count_bytes), count_bytes, order)
        if n_entries > _MOST_ENTRIES:
            raise MalformedFileError("TIFF page with more entries than there are tags, file is corrupt")
        page = stream.read(n_entries * entry_bytes + offset_bytes)
        offset = _number(page[n_entries * entry_bytes :], offset_bytes, order)
        for _, kind, count, value in struct.iter_unpack(order + entry, page[: n_entries * entry_bytes]):
            n_bytes = _TYPE_BYTES.get(kind, 1) * count
            if n_bytes > len(value) and struct.unpack(order + word, value)[0] + n_bytes > file_size:
                raise MalformedFileError("file is truncated")
    return stored_bytes


def _number(content: bytes, n_bytes: int, order: str) -> int:
    if len(content) < n_bytes:
        raise MalformedFileError("file is truncated")
    return int.from_bytes(content[:n_bytes], "little" if order == "<" else "big")


def check_description(page: Any, stored_bytes: int) -> None:
    """Refuse a description that is costly to read, or that announces excessively many planes."""
    longest = max(len(page.shaped_description or ""), len(page.imagej_description or ""))
    if longest > _LONGEST:
        raise MalformedFileError(
            f"TIFF description of {longest / 1e6:.1f} million characters, file is corrupt"
        )
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
    try:
        for part in parts:
            sides = [abs(int(side)) for name, side in part.attrib.items() if re.fullmatch("Size[A-Z]", name)]
            n_planes += math.prod(sides) / max(1, page.imagelength * page.imagewidth) if sides else 0
            n_planes += sum(abs(float(part.attrib.get(name, 0))) for name in _COUNTS)
    except (ValueError, OverflowError) as error:
        raise MalformedFileError(f"OME metadata are broken ({error!r})") from error
    if n_planes > _MOST_PLANES:
        raise MalformedFileError(f"OME-TIFF that announces {n_planes:.0f} planes, file is corrupt")


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
    kind = _EMBEDDED.get(int(key.compression))
    if kind is None:
        return
    height, width = (key.tilelength, key.tilewidth) if key.is_tiled else (key.rowsperstrip, key.imagewidth)
    height = min(height, key.imagelength) if not key.is_tiled else height
    picture = kind(data)
    picture.check()
    found = picture.header.height, picture.header.width
    most = (-(-side // _BLOCK) * _BLOCK for side in (height, width))
    if any(side > limit for side, limit in zip(found, most, strict=True)):
        raise MalformedFileError(
            f"a strip or tile of {width} x {height} pixels holds a picture of {found[1]} x {found[0]}, "
            "file is corrupt"
        )


_PLAIN = frozenset((1, 2, 3, 4, 5, 8, 32771, 32773, 32809, 32895, 32908, 32909, 32946, 34925, 34926, 50000))
_EMBEDDED: dict[int, Any] = {
    **dict.fromkeys((6, 7, 33007, 34892), Jpeg),
    **dict.fromkeys((33003, 33004, 33005, 34712), Jpeg2000),
    34933: Png,
    50001: Webp,
}
