"""Images of any type as viewable pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LUMA", "display_range", "displayable", "to_rgb"]

LUMA = np.array([0.2125, 0.7154, 0.0721])
"""Weights of red, green and blue in a grey value, those of `skimage.color.rgb2gray` (ITU-R BT.709)."""

_STRETCH_PERCENTILES = (0.5, 99.5)
_STRETCH_SAMPLE = 1_000_000


def display_range(pixels: NDArray, mask: NDArray[np.bool_] | None = None) -> tuple[float, float]:
    """Range of values between two percentiles, from a sample of the valid pixels."""
    values = pixels[..., :3] if pixels.ndim == 3 else pixels
    step = int(np.ceil(np.sqrt(max(1.0, values.size / _STRETCH_SAMPLE))))
    sample = values[::step, ::step]
    if mask is not None and mask[::step, ::step].any():
        sample = sample[mask[::step, ::step]]
    sample = sample.astype(np.float64).ravel()
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return 0.0, 1.0
    low, high = np.percentile(sample, _STRETCH_PERCENTILES)
    return float(low), float(high) if high > low else float(low) + 1.0


def displayable(pixels: NDArray, low: float, high: float) -> NDArray[np.float32]:
    """Pixels stretched to 0 .. 255 as RGB, float32 (H, W, 3); more or fewer than three bands become grey."""
    values = pixels.astype(np.float64) if pixels.ndim == 2 else pixels[..., :3].astype(np.float64)
    values = (np.nan_to_num(values, nan=low) - low) * (255.0 / (high - low))
    light = np.clip(values, 0, 255).astype(np.float32)
    if light.ndim == 3 and light.shape[2] == 3:
        return light
    grey = light if light.ndim == 2 else light.mean(axis=-1)
    return np.repeat(grey[..., None], 3, axis=-1)


def to_rgb(image: ArrayLike, mask: NDArray[np.bool_] | None = None) -> NDArray[np.uint8]:
    """Picture (H, W, 3) of an image (H, W) or (H, W, C), stretched between percentiles of valid pixels."""
    pixels = np.asarray(image)
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ValueError(f"an image to show must have shape (H, W) or (H, W, C), got {pixels.shape}")
    return np.rint(displayable(pixels, *display_range(pixels, mask))).astype(np.uint8)
