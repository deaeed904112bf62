"""BMP and GIF files, opened by Pillow's plugins.

The plugins are used directly: `PIL.Image.open` would consult the process-wide limit ``MAX_IMAGE_PIXELS``,
which belongs to the user, not to this library.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.header import Decoded, Header, Stored, split_alpha

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_ALPHA_MODES = ("RGBA", "LA", "PA")
_FEW_BLOCKS, _BLOCK_BYTES = 4096, 64  # beyond 4096, blocks of a GIF must hold 64 bytes on average
_SMALL_SCREEN, _EMPTY_SCREEN = 2**20, 64  # pixels of a GIF, beyond which so many times its largest frame


def _open_with_plugin(format: str, stream: BinaryIO) -> ImageFile:
    from PIL import BmpImagePlugin, GifImagePlugin, ImageFile

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise MalformedFileError(
            f"PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that a {format} file might be returned in part; "
            "set it to False"
        )
    return BmpImagePlugin.BmpImageFile(stream) if format == "BMP" else GifImagePlugin.GifImageFile(stream)


def _gif_frames(stream: BinaryIO, file_size: int) -> tuple[int, int, bool]:
    """Count the frames and the pixels of the largest one without decoding, and look for the end mark.

    Pillow takes much longer.
    """

    def table_bytes(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    stream.seek(0)
    start = stream.read(13)
    if len(start) < 13:
        raise MalformedFileError("file is truncated")
    position = 13 + table_bytes(start[10])
    n_frames = n_blocks = most_pixels = 0
    while True:
        stream.seek(position)
        start = stream.read(10)
        if start[:1] == b"\x21":
            position += 2
        elif start[:1] == b"\x2c" and len(start) == 10:
            n_frames += 1
            width, height = struct.unpack_from("<HH", start, 5)
            most_pixels = max(most_pixels, width * height)
            position += 11 + table_bytes(start[9])
        else:  # the end mark, or a file that ends before it, which decoding will report
            return n_frames, most_pixels, start != b""
        while True:
            n_blocks += 1
            if n_blocks > _FEW_BLOCKS + file_size // _BLOCK_BYTES:
                raise MalformedFileError("GIF of blocks without content, file is corrupt")
            stream.seek(position)
            length = stream.read(1)
            if not length:
                raise MalformedFileError("file is truncated")
            position += 1 + length[0]
            if not length[0]:
                break


class PillowSource(Stored):
    """A BMP or GIF file; animations have their frames as pages."""

    def __init__(self, format: str, stream: BinaryIO, file_size: int):
        n_frames, most_pixels, is_ended = _gif_frames(stream, file_size) if format == "GIF" else (1, 0, True)
        n_frames = max(1, n_frames)
        stream.seek(0)
        self._image = image = _open_with_plugin(format, stream)
        width, height = image.size
        if width < 1 or height < 1:
            raise MalformedFileError(f"{format} header makes no sense, file is corrupt")
        if format == "GIF" and width * height > _SMALL_SCREEN + _EMPTY_SCREEN * most_pixels:
            raise MalformedFileError(
                f"GIF of {width} x {height} pixels whose largest frame has {most_pixels}, file is corrupt"
            )
        has_alpha = image.mode in _ALPHA_MODES or "transparency" in image.info
        colours = image.mode if image.mode in ("L", "1") else "RGB"
        self._mode = colours + "A" * has_alpha
        n_channels = 3 if colours == "RGB" else 1
        axes = ("P" if n_frames > 1 else "") + "YX" + ("C" if n_channels > 1 else "")
        extent = {"P": n_frames, "Y": height, "X": width, "C": n_channels}
        self.header = Header(
            format=format,
            shape=tuple(extent[axis] for axis in axes),
            axes=axes,
            dtype=np.dtype(bool if colours == "1" else np.uint8),
            has_alpha=has_alpha,
            notes=() if is_ended else ("the end mark of the GIF file is missing",),
        )

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode one frame, palette expanded."""
        if self.header.n_pages > 1:
            self._image.seek(page)
        if self._image.size != (self.header.width, self.header.height):  # a frame larger than the screen
            raise MalformedFileError("a frame is larger than the image, file is corrupt")
        return split_alpha(np.asarray(self._image.convert(self._mode)), self.header)

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-frame palette image."""
        if self._image.mode != "P" or self.header.n_pages > 1:
            return None
        return np.asarray(self._image)
