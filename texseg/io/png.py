"""PNG files: the chunks that make up the picture are checked, then decoded without the others.

So whatever the others hold (texts, colour profiles) cannot stop the decoder, make it warn, or use up memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.exif import orientation_of
from texseg.io.header import Decoded, Header, Stored, split_alpha

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"\0\0\0\0IEND\xaeB`\x82"
_GREY, _RGB, _PALETTE, _GREY_ALPHA, _RGB_ALPHA = 0, 2, 3, 4, 6
_COLOUR_CHANNELS = {_GREY: 1, _RGB: 3, _PALETTE: 3, _GREY_ALPHA: 1, _RGB_ALPHA: 3}
_STORED_SAMPLES = {_GREY: 1, _RGB: 3, _PALETTE: 1, _GREY_ALPHA: 2, _RGB_ALPHA: 4}
_PICTURE_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"acTL", b"fcTL", b"fdAT", b"IEND")
_FEW_CHUNKS, _CHUNK_BYTES = 4096, 512  # beyond so many, chunks are expected to hold so many bytes on average
_LARGEST_SIDE_CHUNK = 2**20
_LARGEST_RATIO = 1032  # of deflate: 258 bytes from two bits


class PngSource(Stored):
    """A PNG file, opened from a stream; the frames of an animation are pages."""

    def __init__(self, stream: BinaryIO, file_size: int):
        self._stream, self._size = stream, file_size
        self._is_ended = True
        stream.seek(0)
        start = stream.read(33)
        if len(start) < 33 or start[12:16] != b"IHDR":
            raise MalformedFileError("file is truncated")
        width, height, self._depth, self._colour, _, _, self._is_interlaced = struct.unpack_from(
            ">IIBBBBB", start, 16
        )
        if self._colour not in _COLOUR_CHANNELS or width == 0 or height == 0:
            raise MalformedFileError("PNG header makes no sense, file is corrupt")
        chunks = self._side_chunks()
        n_channels = _COLOUR_CHANNELS[self._colour]
        if len(chunks.get(b"acTL", b"enough")) < 4:
            raise MalformedFileError("PNG header makes no sense, file is corrupt")
        n_frames = struct.unpack_from(">I", chunks[b"acTL"])[0] if b"acTL" in chunks else 1
        self._n_frames = n_frames = max(1, n_frames)
        is_wide = self._depth == 16 and n_frames == 1
        self._transparent = chunks.get(b"tRNS")
        axes = ("P" if n_frames > 1 else "") + "YX" + ("C" if n_channels > 1 else "")
        extent = {"P": n_frames, "Y": height, "X": width, "C": n_channels}
        self.header = Header(
            format="PNG",
            shape=tuple(extent[axis] for axis in axes),
            axes=axes,
            dtype=np.dtype(np.uint16 if is_wide else np.uint8),
            has_alpha=self._colour in (_GREY_ALPHA, _RGB_ALPHA) or self._transparent is not None,
            orientation=orientation_of(chunks.get(b"eXIf")),
            notes=("frames of 16 bits are read as 8 bits",) * (self._depth == 16 and n_frames > 1)
            + ("the end mark of the PNG file is missing",) * (not self._is_ended),
        )

    def _chunk_headers(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield type, place of the content and length of each chunk, up to the end mark."""
        position, kind, count = len(_SIGNATURE), b"", 0
        while kind != b"IEND":
            count += 1
            if count > _FEW_CHUNKS + self._size // _CHUNK_BYTES:
                raise MalformedFileError("PNG of chunks without content, file is corrupt")
            if kind == b"IDAT" and self._size - position < len(_END):
                self._is_ended = False  # whether the picture is complete, the decoder tells
                return
            self._stream.seek(position)
            start = self._stream.read(8)
            if len(start) < 8:
                raise MalformedFileError("file is truncated")
            length, kind = struct.unpack(">I4s", start)
            if position + 12 + length > self._size:
                raise MalformedFileError("file is truncated")
            yield kind, position + 8, length
            position += 12 + length

    def _side_chunks(self) -> dict[bytes, bytes]:
        """Small chunks that say how to read the pixels; a file truncated after its header has fewer."""
        chunks: dict[bytes, bytes] = {}
        try:
            for kind, place, length in self._chunk_headers():
                if kind in (b"acTL", b"tRNS", b"eXIf") and 1 <= length <= _LARGEST_SIDE_CHUNK:
                    self._stream.seek(place)
                    chunks[kind] = self._stream.read(length)
        except MalformedFileError:
            pass  # reported when decoding, after the check against too large images
        return chunks

    def _picture(self) -> bytes:
        """Return the file with only the chunks of the picture, all checksums verified."""
        most = (
            2**26 + 9 * self.header.height * self.header.width * self._n_frames
        )  # 8 bytes, hardly compressed
        missing = self.header.height * self.header.width * _STORED_SAMPLES[self._colour] * self._depth // 8
        parts = [_SIGNATURE]
        for kind, place, length in self._chunk_headers():
            if kind not in _PICTURE_CHUNKS:
                continue
            most -= length
            missing -= length * _LARGEST_RATIO * (kind == b"IDAT")
            if most < 0:
                raise MalformedFileError("PNG with far more data than its size needs, file is corrupt")
            self._stream.seek(place - 8)
            chunk = self._stream.read(length + 12)
            if zlib.crc32(chunk[4:-4]) != struct.unpack(">I", chunk[-4:])[0]:
                name = kind.decode("latin-1")
                raise MalformedFileError(f"checksum of the {name} chunk is wrong, file is corrupt")
            parts.append(chunk)
        if missing > 0:  # before room is made for rows that cannot come
            raise MalformedFileError("file is truncated")
        return b"".join(parts if self._is_ended else [*parts, _END])

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode one frame; every chunk must be there and have the right checksum."""
        from PIL import ImageFile
        from PIL.PngImagePlugin import PngImageFile

        if ImageFile.LOAD_TRUNCATED_IMAGES:
            raise MalformedFileError(
                "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that a PNG file might be returned in part; "
                "set it to False"
            )
        data = self._picture()
        is_wide = self._depth == 16 and self._n_frames == 1
        if is_wide and (self._colour != _GREY or self._transparent):
            return split_alpha(self._wide(data), self.header)
        with PngImageFile(BytesIO(data)) as image:
            if page:
                image.seek(page)
            if is_wide:
                return Decoded(np.asarray(image))
            mode = ("L" if self.header.n_channels == 1 else "RGB") if not self.header.has_alpha else "RGBA"
            if self.header.has_alpha and self._colour == _GREY and self._n_frames == 1:
                return self._with_transparent_grey(np.asarray(image.convert("L")))
            pixels = np.asarray(image.convert(mode))
        if self.header.has_alpha and self.header.n_channels == 1:
            pixels = pixels[..., [0, 3]]
        return split_alpha(pixels, self.header)

    def _with_transparent_grey(self, grey: NDArray) -> Decoded:
        """Mask the one grey value that the file names, which is given in the bit depth of the file."""
        assert self._transparent is not None
        if len(self._transparent) < 2:
            return Decoded(grey)
        value = struct.unpack_from(">H", self._transparent)[0] * (255 // ((1 << self._depth) - 1))
        return Decoded(grey, grey != value)

    def _wide(self, data: bytes) -> NDArray:
        """Decode 16 bits in colour or with transparency, which Pillow cuts to 8."""
        if not self._is_interlaced:
            import imagecodecs

            return imagecodecs.png_decode(data)
        import cv2

        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        if pixels is None:
            raise MalformedFileError("file is truncated or corrupt")
        if pixels.ndim == 2:
            return pixels
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
        return pixels[..., [0, -1]] if self.header.n_channels == 1 else pixels

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a palette image, None for other colour types."""
        if self._colour != _PALETTE:
            return None
        from PIL.PngImagePlugin import PngImageFile

        with PngImageFile(BytesIO(self._picture())) as image:
            return np.asarray(image)
