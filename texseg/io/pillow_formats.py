"""BMP and GIF files, opened by Pillow's plugins.

The plugins are used directly: `PIL.Image.open` would consult the process-wide limit ``MAX_IMAGE_PIXELS``,
which belongs to the user, not to this library.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import MalformedFileError
from texseg.io.header import Decoded, Header, split_alpha

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_ALPHA_MODES = ("RGBA", "LA", "PA")


def _open_with_plugin(format: str, data: bytes) -> ImageFile:
    from PIL import BmpImagePlugin, GifImagePlugin, ImageFile

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise MalformedFileError(
            f"PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that a {format} file might be returned in part; "
            "set it to False"
        )
    stream = BytesIO(data)
    return BmpImagePlugin.BmpImageFile(stream) if format == "BMP" else GifImagePlugin.GifImageFile(stream)


class PillowSource:
    """A BMP or GIF file in memory; animations have their frames as pages."""

    def __init__(self, format: str, data: bytes):
        self._image = _open_with_plugin(format, data)
        image = self._image
        width, height = image.size
        n_frames = getattr(image, "n_frames", 1)
        has_alpha = image.mode in _ALPHA_MODES or "transparency" in image.info
        self._mode = ("RGBA" if has_alpha else "RGB") if image.mode not in ("L", "1") else image.mode
        n_channels = 1 if self._mode in ("L", "1") else 3
        axes = ("P" if n_frames > 1 else "") + "YX" + ("C" if n_channels > 1 else "")
        extent = {"P": n_frames, "Y": height, "X": width, "C": n_channels}
        self.header = Header(
            format=format,
            shape=tuple(extent[axis] for axis in axes),
            axes=axes,
            dtype=np.dtype(bool if self._mode == "1" else np.uint8),
            has_alpha=has_alpha,
        )

    def decode(self, axes: str, page: int) -> Decoded:
        """Decode one frame, palette expanded."""
        if self.header.n_pages > 1:
            self._image.seek(page)
        return split_alpha(np.asarray(self._image.convert(self._mode)), self.header)

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-frame palette image."""
        if self._image.mode != "P" or self.header.n_pages > 1:
            return None
        return np.asarray(self._image)
