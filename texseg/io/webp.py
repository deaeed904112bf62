"""WebP files, still and animated."""

from __future__ import annotations

import struct
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header, split_alpha

_RIFF_HEADER = 12
_ALPHA_FLAG = 0x10  # of the VP8X chunk
_VP8_START_CODE, _VP8L_SIGNATURE = b"\x9d\x01\x2a", 0x2F


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Type and first bytes (all of EXIF) of each chunk; a file that ends too early is refused."""
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    if end > len(data):
        raise MalformedFileError("file is truncated")
    found = []
    position = _RIFF_HEADER
    while position + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, position)
        start = position + 8
        if start + length > len(data):
            raise MalformedFileError("file is truncated")
        found.append((kind, data[start : start + (length if kind == b"EXIF" else min(length, 10))]))
        position = start + length + length % 2
    return found


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
        chunks = _chunks(data)
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
        from PIL.WebPImagePlugin import WebPImageFile

        if self.header.n_pages == 1:
            return split_alpha(imagecodecs.webp_decode(self._data), self.header)
        animation = WebPImageFile(BytesIO(self._data))
        animation.seek(page)
        return split_alpha(
            np.asarray(animation.convert("RGBA" if self.header.has_alpha else "RGB")), self.header
        )

    def decode_indices(self) -> NDArray | None:
        """WebP has no palettes to look at."""
        return None
