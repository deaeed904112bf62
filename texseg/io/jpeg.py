"""JPEG files; a picture whose data end too early is refused, not filled with grey."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header

_START_OF_SCAN, _END_OF_IMAGE, _EXIF, _ADOBE = 0xDA, 0xD9, 0xE1, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ARITHMETIC_FRAMES = frozenset(range(0xC9, 0xD0)) - {0xCC}
_WITHOUT_LENGTH = frozenset(range(0xD0, 0xDA)) | {0x01}

_MARKER_IN_SCAN = re.compile(rb"\xff+[\x01-\xcf\xd8-\xfe]")  # neither a stuffed 0xFF nor a restart mark
_RESTART_MARK = re.compile(rb"(?=\xff[\xd0-\xd7])")
_PADDING = bytes((37 * i + 11) % 251 for i in range(64))
_PADDED_INTERVALS = b"".join(bytes((0xFF, 0xD0 + i)) + _PADDING for i in range(8))


class _Segment(NamedTuple):
    """One marker segment: `start` of its marker, its content, and where coded data follow, their end."""

    marker: int
    start: int
    content: slice
    end: int


def _segments(data: bytes) -> list[_Segment]:
    """All marker segments up to the end mark; a scan's coded data belong to its segment."""
    found = []
    position = 2
    while True:
        while position < len(data) and data[position] != 0xFF:  # a few cameras write stray bytes
            position += 1
        while position < len(data) and data[position] == 0xFF:
            position += 1
        if position >= len(data):
            raise MalformedFileError("file is truncated")
        marker, start = data[position], position - 1
        position += 1
        if marker == _END_OF_IMAGE:
            found.append(_Segment(marker, start, slice(position, position), position))
            return found
        if marker in _WITHOUT_LENGTH or marker == 0:
            continue
        if position + 2 > len(data):
            raise MalformedFileError("file is truncated")
        content = slice(position + 2, position + struct.unpack_from(">H", data, position)[0])
        position = max(content.stop, position + 2)
        if marker == _START_OF_SCAN:
            next_marker = _MARKER_IN_SCAN.search(data, position)
            if next_marker is None:
                raise MalformedFileError("file is truncated")
            position = next_marker.start()
        found.append(_Segment(marker, start, content, position))


def _leading_segments(data: bytes) -> dict[int, bytes]:
    """Frame header, EXIF and Adobe segments before the first scan."""
    kept: dict[int, bytes] = {}
    position = 2
    while position + 4 <= len(data):
        if data[position] != 0xFF or data[position + 1] in (0x00, 0xFF):
            position += 1
            continue
        marker = data[position + 1]
        if marker in (_START_OF_SCAN, _END_OF_IMAGE):
            break
        if marker in _WITHOUT_LENGTH:
            position += 2
            continue
        end = position + 2 + struct.unpack_from(">H", data, position + 2)[0]
        content = data[position + 4 : end]
        if marker in _FRAMES or marker == _ADOBE:
            kept.setdefault(marker, content)
        elif marker == _EXIF and content.startswith(b"Exif\0"):
            kept.setdefault(marker, content)
        position = max(end, position + 4)
    return kept


def _with_padded_scans(data: bytes) -> bytes:
    """Return the same file with meaningless bytes behind the coded data of each scan and restart interval."""
    parts = [data[:2]]
    for segment in _segments(data):
        parts.append(data[segment.start : segment.content.stop])
        if segment.marker == _START_OF_SCAN:
            coded = data[segment.content.stop : segment.end]
            parts.append(_RESTART_MARK.sub(_PADDING, coded) + _PADDING + _PADDED_INTERVALS)
    return b"".join(parts)


class JpegSource:
    """A JPEG file in memory."""

    def __init__(self, data: bytes):
        self._data = data
        leading = _leading_segments(data)
        frames = _FRAMES & leading.keys()
        if not frames:
            raise MalformedFileError("file is truncated")
        self._frame = min(frames)
        if len(leading[self._frame]) < 6:
            raise MalformedFileError("JPEG header makes no sense, file is corrupt")
        precision, height, width, components = struct.unpack_from(">BHHB", leading[self._frame])
        if height == 0 or width == 0 or components not in (1, 3, 4):
            raise MalformedFileError("JPEG header makes no sense, file is corrupt")
        self._adobe = _ADOBE in leading
        self.header = Header(
            format="JPEG",
            shape=(height, width) if components == 1 else (height, width, 3),
            axes="YX" if components == 1 else "YXC",
            dtype=np.dtype(np.uint8 if precision <= 8 else np.uint16),
            orientation=orientation_of(leading.get(_EXIF)),
        )

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode the picture; CMYK becomes RGB.

        The decoder fills missing data with grey and says nothing. A complete picture, however, does not
        change when meaningless bytes are added behind its coded data, an incomplete one does.
        """
        import imagecodecs

        padded = self._data if self._frame in _ARITHMETIC_FRAMES else _with_padded_scans(self._data)
        pixels = imagecodecs.jpeg_decode(self._data)
        if padded is not self._data and not np.array_equal(pixels, imagecodecs.jpeg_decode(padded)):
            raise MalformedFileError("file is truncated or corrupt, part of the picture is missing")
        if pixels.ndim == 3 and pixels.shape[2] == 4:
            pixels = cmyk_to_rgb(pixels if self._adobe else 255 - pixels)
        return Decoded(pixels)

    def decode_indices(self) -> NDArray | None:
        """JPEG has no palettes."""
        return None


def cmyk_to_rgb(light: NDArray) -> NDArray:
    """RGB (H, W, 3) from CMYK (H, W, 4) in which the full value means no ink, of the same integer type."""
    full = np.iinfo(light.dtype).max
    product = light[..., :3].astype(np.float32) * (light[..., 3:].astype(np.float32) / full)
    return np.rint(product).astype(light.dtype)
