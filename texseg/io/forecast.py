"""What a segmentation needs in memory, told from the size of the image alone.

The constants are measured (``benchmarks/forecast.py``) with the default settings.
"""

from __future__ import annotations

_BASE = 15e6
_PER_PIXEL = 42.0
_PER_PIXEL_AND_SEGMENT = 16.0
_PER_VALUE = 5.0

TYPICAL_SEGMENTS = 5
"""Number of segments a forecast is made for when it is not known."""


def expected_memory(n_pixels: int, n_channels: int = 1, n_segments: int | None = None) -> float:
    """Memory above the imported libraries that segmenting an image takes at its peak.

    Parameters
    ----------
    n_pixels : int
        Number of pixels, of all pages that are segmented together.
    n_channels : int, default=1
        Number of channels.
    n_segments : int, optional
        Number of segments; 5 where it is not known.

    Returns
    -------
    float
        Bytes.
    """
    per_pixel = _PER_PIXEL + _PER_PIXEL_AND_SEGMENT * (n_segments or TYPICAL_SEGMENTS)
    return _BASE + n_pixels * (per_pixel + _PER_VALUE * n_channels)
