"""WebP files, still and animated.

Frames of an animation are drawn over each other by Pillow, all up to the one that is asked for.
"""

from __future__ import annotations

import struct
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header, Stored, split_alpha

_RIFF_HEADER = 12
_FEW_CHUNKS, _CHUNK_BYTES = 4096, 64  # beyond so many, chunks hold so many bytes on average
_SMALL_SCREEN, _EMPTY_SCREEN = 2**20, 64  # pixels, beyond which so many times the largest frame
_FEW_PIXELS, _PIXELS_PER_BYTE = 2**28, 256  # drawn up to a frame: a second; more need so many bytes
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
        n_kept = {b"EXIF": length, b"ANMF": 12}.get(kind, 10)
        found.append((kind, data[start : start + min(length, n_kept)]))
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


class WebpSource(Stored):
    """A WebP file in memory; the frames of an animation are pages."""

    def __init__(self, data: bytes):
        self._data = data
        if len(data) < _RIFF_HEADER:
            raise MalformedFileError("file is truncated")
        chunks, self._is_cut = _chunks(data)
        width, height, has_alpha = _canvas(dict(reversed(chunks)))
        frames = [start for kind, start in chunks if kind == b"ANMF"]
        n_frames = max(1, len(frames))
        if n_frames > 1:
            sides = [[int.from_bytes(f[i : i + 3], "little") + 1 for i in (6, 9)] for f in frames]
            largest = max(across * down for across, down in sides)
            if width * height > _SMALL_SCREEN + _EMPTY_SCREEN * largest:
                raise MalformedFileError(
                    f"WebP of {width} x {height} pixels whose largest frame has {largest}, file is corrupt"
                )
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
        return split_alpha(self._frame(page), self.header)

    def _frame(self, page: int) -> NDArray:
        """Draw the frames of an animation up to one of them."""
        from PIL.WebPImagePlugin import WebPImageFile

        drawn = (page + 1) * self.header.height * self.header.width
        if drawn > _FEW_PIXELS + _PIXELS_PER_BYTE * len(self._data):
            raise MalformedFileError(
                f"WebP of {drawn / 1e6:.0f} Mpx up to frame {page}, more than its data hold, file is corrupt"
            )
        with WebPImageFile(BytesIO(self._data)) as image:
            image.seek(page)
            return np.asarray(image.convert("RGBA" if self.header.has_alpha else "RGB"))
