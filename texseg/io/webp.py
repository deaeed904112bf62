"""WebP files, still and animated.

Pillow's plugin would consult the process-wide limit ``MAX_IMAGE_PIXELS``, which belongs to the user.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header, split_alpha

_RIFF_HEADER = 12
_FEW_CHUNKS, _CHUNK_BYTES = 4096, 64  # beyond so many, chunks hold so many bytes on average
_ALPHA_FLAG = 0x10  # of the VP8X chunk
_VP8_START_CODE, _VP8L_SIGNATURE = b"\x9d\x01\x2a", 0x2F


def _chunks(data: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Type and first bytes (all of EXIF) of each chunk, and whether the file ends too early."""
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    found = []
    position = _RIFF_HEADER
    while position + 8 <= min(end, len(data)):
        kind, length = struct.unpack_from("<4sI", data, position)
        start = position + 8
        found.append((kind, data[start : start + (length if kind == b"EXIF" else min(length, 10))]))
        position = start + length + length % 2
        if len(found) > _FEW_CHUNKS + len(data) // _CHUNK_BYTES:
            raise MalformedFileError("WebP of chunks without content, file is corrupt")
    return found, end > len(data) or position > len(data) + 1


def _canvas(chunks: dict[bytes, bytes]) -> tuple[int, int, bool]:
    """Width, height and presence of alpha from whichever header the file has."""
    extended, lossless, lossy = (chunks.get(kind, b"") for kind in (b"VP8X", b"VP8L", b"VP8 "))
    if len(extended) == 10:
        width, height = (int.from_bytes(extended[i : i + 3], "little") + 1 for i in (4, 7))
        return width, height, bool(extended[0] & _ALPHA_FLAG)
    if len(lossless) >= 5 and lossless[0] == _VP8L_SIGNATURE:
        bits = int.from_bytes(lossless[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1)
    if len(lossy) == 10 and lossy[3:6] == _VP8_START_CODE:
        width, height = struct.unpack_from("<HH", lossy, 6)
        return width & 0x3FFF, height & 0x3FFF, False
    raise MalformedFileError("WebP header makes no sense, file is corrupt")


class WebpSource:
    """A WebP file in memory; animations have their frames as pages."""

    def __init__(self, data: bytes):
        self._data = data
        if len(data) < _RIFF_HEADER:
            raise MalformedFileError("file is truncated")
        chunks, self._is_cut = _chunks(data)
        width, height, has_alpha = _canvas(dict(reversed(chunks)))
        n_frames = max(1, sum(kind == b"ANMF" for kind, _ in chunks))
        self.header = Header(
            format="WebP",
            shape=((n_frames,) if n_frames > 1 else ()) + (height, width, 3),
            axes="PYXC" if n_frames > 1 else "YXC",
            dtype=np.dtype(np.uint8),
            has_alpha=has_alpha,
            orientation=orientation_of(dict(chunks).get(b"EXIF")),
        )

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode one frame."""
        import imagecodecs

        if self._is_cut:
            raise MalformedFileError("file is truncated")
        if self.header.n_pages == 1:
            return split_alpha(imagecodecs.webp_decode(self._data), self.header)
        return split_alpha(
            imagecodecs.webp_decode(self._data, index=page, hasalpha=self.header.has_alpha), self.header
        )

    def decode_indices(self) -> NDArray | None:
        """WebP has no palettes to look at."""
        return None
