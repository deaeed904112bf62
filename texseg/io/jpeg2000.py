"""JPEG 2000 files (.jp2) and bare codestreams (.j2k)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.header import Decoded, Header, split_alpha

_CODESTREAM_START = b"\xff\x4f\xff\x51"
_OPACITY = (1, 2)  # channel types of the cdef box: opacity, premultiplied opacity


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield type and content of the boxes up to the codestream, those inside the header box too."""
    position = 0
    while position + 8 <= len(data):
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


class Jpeg2000Source:
    """A JPEG 2000 file in memory."""

    def __init__(self, data: bytes):
        self._data = data
        view = memoryview(data)
        boxes = {b"jp2c": view} if data[:4] == _CODESTREAM_START else dict(_boxes(view))
        codestream = boxes.get(b"jp2c")
        if codestream is None or len(codestream) < 43 or bytes(codestream[:4]) != _CODESTREAM_START:
            raise MalformedFileError("file is truncated")
        x1, y1, x0, y0 = struct.unpack_from(">IIII", codestream, 8)
        n_components, depth = struct.unpack_from(">HB", codestream, 40)
        palette = boxes.get(b"pclr", memoryview(b""))
        n_channels = palette[2] if len(palette) > 2 else n_components
        if x1 <= x0 or y1 <= y0 or n_channels == 0:
            raise MalformedFileError("JPEG 2000 header makes no sense, file is corrupt")
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

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode the image; the decoder refuses incomplete codestreams."""
        import imagecodecs

        return split_alpha(imagecodecs.jpeg2k_decode(self._data), self.header)

    def decode_indices(self) -> NDArray | None:
        """Palettes are expanded by the decoder."""
        return None
