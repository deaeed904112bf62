"""What a run costs, told from the size of the image alone."""

from __future__ import annotations

from typing import NamedTuple

_BYTES_PER_PIXEL = 200.0
_BYTES_PER_VALUE = 8.0
_BASE_BYTES = 60e6
_SECONDS_PER_MEGAPIXEL = 4.0


class Forecast(NamedTuple):
    """Expected memory above the imported libraries, in bytes, and processor time in seconds."""

    memory: float
    seconds: float


def forecast(n_pixels: int, n_channels: int = 1) -> Forecast:
    """Forecast what it costs to segment an image of so many pixels and channels with the default settings."""
    memory = _BASE_BYTES + n_pixels * (_BYTES_PER_PIXEL + _BYTES_PER_VALUE * n_channels)
    return Forecast(memory, n_pixels * 1e-6 * _SECONDS_PER_MEGAPIXEL)
