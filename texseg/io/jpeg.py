"""JPEG files; a picture whose data end too early is refused, not padded with grey."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header, Stored

_START_OF_SCAN, _END_OF_IMAGE, _EXIF, _ADOBE = 0xDA, 0xD9, 0xE1, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE_FRAMES = frozenset((0xC2, 0xCA))
_LOSSLESS_FRAMES = frozenset((0xC3, 0xC7, 0xCB, 0xCF))
_ARITHMETIC_FRAMES = frozenset(range(0xC9, 0xD0)) - {0xCC}

_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")  # those that stand alone (0x01, restart, start) left out
_MARKER_IN_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # neither a stuffed 0xFF nor a restart mark
_RESTART_MARK = re.compile(rb"\xff[\xd0-\xd7]")
_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker")

_MOST_SEGMENTS = 4096  # a colour profile has up to 255
_MOST_SCANS = 24  # encoders that search for the best division into scans write up to 16
_MOST_FILLS = 8  # times that fill bytes are removed; the decoder reports those behind its own buffer first
_MANY_SCANS_PIXELS = 2**20  # a smaller picture may have any number of scans

_PADDING = bytes((37 * i + 11) % 251 for i in range(64))
_PADDED_INTERVALS = b"".join(bytes((0xFF, 0xD0 + i)) + _PADDING for i in range(8))


class _Segment(NamedTuple):
    """One marker segment, its content, and where the coded data that follow end."""

    marker: int
    content: slice
    end: int


def _segments(data: bytes) -> Iterator[_Segment]:
    """Yield the marker segments up to the end mark, or to where the file is truncated."""
    position = 2
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None or found.end() + 2 > len(data):
            if found is not None and found[1][0] == _END_OF_IMAGE:
                yield _Segment(_END_OF_IMAGE, slice(found.start(), found.end()), found.end())
            return
        marker, start = found[1][0], found.end()
        if marker == _END_OF_IMAGE:
            yield _Segment(marker, slice(found.start(), start), start)
            return
        stop = max(start + 2, start + struct.unpack_from(">H", data, start)[0])
        if stop > len(data):
            return
        position = stop
        if marker == _START_OF_SCAN:
            following = _MARKER_IN_SCAN.search(data, stop)
            position = len(data) if following is None else following.start()
        yield _Segment(marker, slice(start + 2, stop), position)
    raise MalformedFileError("JPEG with more marker segments than a picture has, file is corrupt")


class JpegLayout:
    """Frame, scans and metadata of a JPEG stream, found without decoding; limits the cost of decoding."""

    def __init__(self, data: bytes):
        self.scans: list[_Segment] = []
        first: dict[int, bytes] = {}
        end = None
        for segment in _segments(data):
            if segment.marker == _START_OF_SCAN:
                self.scans.append(segment)
            elif segment.marker == _END_OF_IMAGE:
                end = segment.end
            elif segment.marker in (_EXIF, _ADOBE) or segment.marker in _FRAMES:
                content = bytes(data[segment.content])
                if segment.marker != _EXIF or content.startswith(b"Exif\0"):
                    first.setdefault(segment.marker, content)
        self.is_ended, self.end = end is not None, len(data) if end is None else end
        self.exif, self.has_adobe = first.get(_EXIF), _ADOBE in first
        self._read_frame({marker: first[marker] for marker in _FRAMES & first.keys()})

    def _read_frame(self, frames: dict[int, bytes]) -> None:
        if not frames:
            raise MalformedFileError("file is truncated")
        if len(frames) > 1:
            raise MalformedFileError("JPEG with two frames, file is corrupt")
        ((self.marker, frame),) = frames.items()
        if len(frame) < 6:
            raise MalformedFileError("JPEG header makes no sense, file is corrupt")
        self.precision, self.height, self.width, self.n_components = struct.unpack_from(">BHHB", frame)
        if self.height == 0 or self.width == 0 or self.n_components not in (1, 3, 4):
            raise MalformedFileError("JPEG header makes no sense, file is corrupt")
        if len(frame) < 6 + 3 * self.n_components:
            raise MalformedFileError("JPEG header makes no sense, file is corrupt")
        self.components = frame[6 : 6 + 3 * self.n_components : 3]

    def check_cost(self) -> None:
        """Refuse many passes over a large picture."""
        n_scans = len(self.scans)
        if n_scans > _MOST_SCANS and n_scans * self.height * self.width > _MOST_SCANS * _MANY_SCANS_PIXELS:
            raise MalformedFileError(f"JPEG of {n_scans} scans, more than a picture of its size has")

    def check_complete(self, data: bytes) -> None:
        """Refuse a picture of which a component, a coefficient or a bit is in no scan, or might be."""
        if self.marker in _ARITHMETIC_FRAMES:  # decoders take missing data for zeros, as the standard says
            raise MalformedFileError(
                "JPEG with arithmetic coding is not read, since missing data would not be noticed; "
                "save it with Huffman coding or as PNG"
            )
        coded = sum(scan.end - scan.content.stop for scan in self.scans)
        samples = 1 if self.marker in _LOSSLESS_FRAMES else 64
        n_blocks = math.ceil(self.height * self.width / samples)  # each takes one bit at least
        if coded * 8 < n_blocks:
            raise MalformedFileError("file is truncated")
        missing = {(c, k): 14 for c in self.components for k in range(64)}  # bits that are not known yet
        for scan in self.scans:
            content = data[scan.content]
            n = content[0] if content else 0
            if len(content) < 4 + 2 * n:
                raise MalformedFileError("JPEG scan header makes no sense, file is corrupt")
            first, last, bits = content[1 + 2 * n : 4 + 2 * n]
            if self.marker not in _PROGRESSIVE_FRAMES:
                first, last, bits = 0, 63, 0
            for c in content[1 : 1 + 2 * n : 2]:
                for k in range(first, min(last, 63) + 1):
                    missing[c, k] = bits & 15
        if any(missing.values()):
            raise MalformedFileError("file is truncated, part of the picture is missing")


def _with_padded_scans(data: bytes, layout: JpegLayout) -> bytes:
    """Return the same file with meaningless bytes after the coded data of each scan and restart interval."""
    parts, position = [], 0
    for scan in layout.scans:
        parts.append(data[position : scan.content.stop])
        coded = data[scan.content.stop : scan.end]
        if len(_RESTART_MARK.findall(coded)) > layout.height * layout.width:
            raise MalformedFileError("JPEG with more restart marks than blocks, file is corrupt")
        parts.append(_RESTART_MARK.sub(lambda mark: _PADDING + mark[0], coded) + _PADDING + _PADDED_INTERVALS)
        position = scan.end
    return b"".join((*parts, data[position:]))


class JpegSource(Stored):
    """A JPEG file in memory."""

    def __init__(self, data: bytes):
        self._layout = layout = JpegLayout(data)
        self._data = data
        self.header = Header(
            format="JPEG",
            shape=(layout.height, layout.width) + ((3,) if layout.n_components > 1 else ()),
            axes="YX" if layout.n_components == 1 else "YXC",
            dtype=np.dtype(np.uint8 if layout.precision <= 8 else np.uint16),
            orientation=orientation_of(layout.exif),
            notes=() if layout.is_ended else ("the end mark of the JPEG file is missing",),
        )

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode the picture; CMYK becomes RGB."""
        layout = self._layout
        layout.check_cost()
        layout.check_complete(self._data)
        data = self._data[: layout.end] if layout.is_ended else self._data + b"\xff\xd9"
        is_common = layout.precision == 8 and layout.marker not in _LOSSLESS_FRAMES
        pixels = _strictly_decoded(data, layout) if is_common else _compared_with_padded(data, layout)
        if pixels.ndim == 3 and pixels.shape[2] == 4:
            pixels = cmyk_to_rgb(pixels if layout.has_adobe else 255 - pixels)
        return Decoded(pixels)


def _strictly_decoded(data: bytes, layout: JpegLayout) -> NDArray:
    """Decode 8 bits; every decoder warning is an error, except for fill bytes after the coded data."""
    import simplejpeg

    space = {1: "GRAY", 3: "RGB", 4: "CMYK"}[layout.n_components]
    for _ in range(_MOST_FILLS):
        try:
            pixels = simplejpeg.decode_jpeg(data, colorspace=space)
        except ValueError as error:
            fill = _EXTRANEOUS.search(str(error))
            if fill is None:
                raise MalformedFileError(
                    f"file is truncated or corrupt, part of the picture is missing ({error})"
                ) from error
            data = _without_fill(data, int(fill[1]))
        else:
            return pixels[..., 0] if layout.n_components == 1 else pixels
    raise MalformedFileError("file is corrupt, the coded data do not end where they should")


def _without_fill(data: bytes, n_bytes: int) -> bytes:
    """Remove the fill bytes that some cameras write between the coded data and the next marker."""
    for scan in JpegLayout(data).scans:
        fill = data[scan.end - n_bytes : scan.end]
        if scan.end - n_bytes >= scan.content.stop and len(set(fill)) == 1:
            return data[: scan.end - n_bytes] + data[scan.end :]
    raise MalformedFileError("file is corrupt, part of the picture is missing")


def _compared_with_padded(data: bytes, layout: JpegLayout) -> NDArray:
    """Decode 12 bits or a lossless picture, for which there is no strict decoder.

    The decoder silently fills missing data with grey. However, a complete picture does not change when
    meaningless bytes are appended to its coded data, while an incomplete one does.
    """
    import imagecodecs

    pixels = imagecodecs.jpeg_decode(data)
    if not np.array_equal(pixels, imagecodecs.jpeg_decode(_with_padded_scans(data, layout))):
        raise MalformedFileError("file is truncated or corrupt, part of the picture is missing")
    return pixels


def cmyk_to_rgb(light: NDArray) -> NDArray:
    """RGB (H, W, 3) from CMYK (H, W, 4) in which the full value means no ink, of the same integer type."""
    full = np.iinfo(light.dtype).max
    product = light[..., :3].astype(np.float32) * (light[..., 3:].astype(np.float32) / full)
    return np.rint(product).astype(light.dtype)
