"""PNG files, checked chunk by chunk before a pixel is decoded."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header, split_alpha

_SIGNATURE_BYTES = 8
_GREY, _RGB, _PALETTE, _GREY_ALPHA, _RGB_ALPHA = 0, 2, 3, 4, 6
_COLOUR_CHANNELS = {_GREY: 1, _RGB: 3, _PALETTE: 3, _GREY_ALPHA: 1, _RGB_ALPHA: 3}


def _chunk_headers(data: memoryview) -> Iterator[tuple[bytes, memoryview, int]]:
    """Yield type, content and stored checksum of each chunk, up to the end mark."""
    position = _SIGNATURE_BYTES
    kind = b""
    while kind != b"IEND":
        if position + 12 > len(data):
            raise MalformedFileError("file is truncated")
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 8 + length
        if end + 4 > len(data):
            raise MalformedFileError("file is truncated")
        yield kind, data[position + 8 : end], struct.unpack_from(">I", data, end)[0]
        position = end + 4


def _verify_checksums(data: bytes) -> None:
    for kind, content, checksum in _chunk_headers(memoryview(data)):
        if zlib.crc32(content, zlib.crc32(kind)) != checksum:
            name = kind.decode("latin-1")
            raise MalformedFileError(f"checksum of the {name} chunk is wrong, file is corrupt")


class PngSource:
    """A PNG file in memory; animated ones have their frames as pages."""

    def __init__(self, data: bytes):
        self._data = data
        if len(data) < 33 or data[12:16] != b"IHDR":
            raise MalformedFileError("file is truncated")
        width, height, depth, self._colour, *_ = struct.unpack_from(">IIBBBBB", data, 16)
        if self._colour not in _COLOUR_CHANNELS or width == 0 or height == 0:
            raise MalformedFileError("PNG header makes no sense, file is corrupt")
        chunks = self._leading_chunks()
        n_channels = _COLOUR_CHANNELS[self._colour]
        n_frames = struct.unpack_from(">I", chunks[b"acTL"])[0] if b"acTL" in chunks else 1
        self._animated = n_frames > 1
        axes = ("P" if n_frames > 1 else "") + "YX" + ("C" if n_channels > 1 else "")
        extent = {"P": n_frames, "Y": height, "X": width, "C": n_channels}
        self.header = Header(
            format="PNG",
            shape=tuple(extent[axis] for axis in axes),
            axes=axes,
            dtype=np.dtype(np.uint16 if depth == 16 else np.uint8),
            has_alpha=self._colour in (_GREY_ALPHA, _RGB_ALPHA) or b"tRNS" in chunks,
            orientation=orientation_of(chunks.get(b"eXIf")),
        )

    def _leading_chunks(self) -> dict[bytes, bytes]:
        """Small chunks that say how to read the pixels; a file cut behind its header has fewer."""
        chunks: dict[bytes, bytes] = {}
        try:
            for kind, content, _ in _chunk_headers(memoryview(self._data)):
                if kind in (b"acTL", b"tRNS", b"eXIf") and len(content) >= 1:
                    chunks[kind] = bytes(content)
        except MalformedFileError:
            pass  # said when decoding, after the guard against too large images
        if len(chunks.get(b"acTL", b"enough")) < 4:
            raise MalformedFileError("PNG header makes no sense, file is corrupt")
        return chunks

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode one frame; every chunk must be there and have the right checksum."""
        import imagecodecs

        _verify_checksums(self._data)
        if self._animated:
            pixels = imagecodecs.apng_decode(self._data, index=page)
        else:
            pixels = imagecodecs.png_decode(self._data)
        return split_alpha(pixels, self.header)

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a palette image, None for other colour types."""
        if self._colour != _PALETTE:
            return None
        from PIL.PngImagePlugin import PngImageFile

        _verify_checksums(self._data)
        return np.asarray(PngImageFile(BytesIO(self._data)))
