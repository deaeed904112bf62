"""Which pixels hold data, by the values that stand for "no data"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import UnsuitableImageError

_LARGE_FLOAT = 3.3e38  # no-data values near the largest float32 are written with three to nine digits


def data_pixels(
    pixels: NDArray, values: Sequence[float | None], notes: list[str]
) -> NDArray[np.bool_] | None:
    """Pixels that hold data in every band, or, where the value for "no data" is 0, in any.

    Parameters
    ----------
    pixels : ndarray of shape (H, W) or (H, W, C)
    values : sequence of (float or None)
        The value of each band, or one for all.
    notes : list of str
        What only some bands lack is noted here.

    Returns
    -------
    ndarray of bool, shape (H, W), or None
        None where all pixels hold data. Values that are not finite count as no data only beside bands that
        are; where an image has one band, they are left to whoever uses it.

    Raises
    ------
    UnsuitableImageError
        A band holds no data at all, others do.
    """
    bands = [pixels] if pixels.ndim == 2 else list(np.moveaxis(pixels, -1, 0))
    each = list(values) * len(bands) if len(values) == 1 else [*values, *[None] * len(bands)]
    hidden = [_hidden(band, value, len(bands) > 1) for band, value in zip(bands, each, strict=False)]
    dead = [i for i, one in enumerate(hidden) if one is not None and one.all()]
    if 0 < len(dead) < len(bands):
        kept = [i for i in range(len(bands)) if i not in dead]
        raise UnsuitableImageError(
            f"no valid pixels, since band {', '.join(map(str, dead))} of {len(bands)} (counted from 0) holds "
            f"no data at all; leave it out with read_image(..., bands={kept}), or save the file without it"
        )
    found = [one for one in hidden if one is not None]
    missing: NDArray[np.bool_] = np.logical_or.reduce(found) if found else np.zeros(pixels.shape[:2], bool)
    in_all = np.logical_and.reduce(found) if len(found) == len(bands) else np.zeros_like(missing)
    partly = np.count_nonzero(missing) - np.count_nonzero(in_all)
    if partly:
        notes.append(f"{partly} pixels hold data in some of the bands only; they count as no data")
    zeros = [equals(band, 0.0) for band, value in zip(bands, each, strict=False) if value == 0]
    if zeros:
        missing |= np.logical_and.reduce(zeros)
    return ~missing if missing.any() else None


def equals_nodata(pixels: NDArray, value: float) -> NDArray[np.bool_]:
    """Pixels (H, W) any of whose bands holds the no-data value; for 0, all of whose bands do."""
    if pixels.ndim == 2:
        return equals(pixels, value)
    each = [equals(pixels[..., i], value) for i in range(pixels.shape[2])]
    return np.logical_and.reduce(each) if value == 0 else np.logical_or.reduce(each)


def _hidden(band: NDArray, value: float | None, has_others: bool) -> NDArray[np.bool_] | None:
    """Pixels without data by a value other than 0, or, beside other bands, by not being finite."""
    hidden = equals(band, value) if value else None
    if has_others and band.dtype.kind == "f":
        infinite = ~np.isfinite(band)
        hidden = infinite if hidden is None else hidden | infinite
    return hidden if hidden is not None and hidden.any() else None


def equals(band: NDArray, nodata: float) -> NDArray[np.bool_]:
    """Pixels of a band that hold the no-data value: equal in the type of the image, as in GDAL."""
    if band.dtype.kind != "f":
        if not float(nodata).is_integer():
            return np.zeros(band.shape, dtype=bool)
        return band == int(nodata)
    if np.isnan(nodata):
        return np.isnan(band)
    if abs(nodata) >= _LARGE_FLOAT and band.dtype.itemsize >= 4 and abs(nodata) < 3.5e38:
        return band >= _LARGE_FLOAT if nodata > 0 else band <= -_LARGE_FLOAT
    with np.errstate(over="ignore"):
        value = np.float64(nodata).astype(band.dtype)
    if not np.isfinite(value):
        return band == value
    return np.abs(band - value) <= 2 * np.abs(np.spacing(value)) if value else band == 0
