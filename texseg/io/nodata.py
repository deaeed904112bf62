"""Which pixels hold data, by the values that stand for "no data"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import UnsuitableImageError

_LARGE_FLOAT = 3.3e38  # no-data values near the largest float32 are written with three to nine digits


def data_pixels(
    pixels: NDArray,
    values: Sequence[float | None],
    notes: list[str] | None = None,
    numbers: Sequence[int] | None = None,
) -> NDArray[np.bool_] | None:
    """Pixels that hold data in every band, or, if the value for "no data" is 0, in any band.

    Parameters
    ----------
    pixels : ndarray of shape (H, W) or (H, W, C)
    values : sequence of (float or None)
        The value of each band, or one for all.
    notes : list of str, optional
        Of a whole image: gets a note about data missing from some bands only; and a band without any data
        is refused.
    numbers : sequence of int, optional
        Numbers of the bands in their file; counted from 0 by default.

    Returns
    -------
    ndarray of bool, shape (H, W), or None
        None if all pixels hold data. Non-finite values count as no data only in images of several bands; in
        an image of one band they are left to the caller.

    Raises
    ------
    UnsuitableImageError
        A band holds no data at all while others do.
    """
    bands = [pixels] if pixels.ndim == 2 else list(np.moveaxis(pixels, -1, 0))
    each = list(values) * len(bands) if len(values) == 1 else [*values, *[None] * len(bands)]
    hidden = [_hidden(band, value, len(bands) > 1) for band, value in zip(bands, each, strict=False)]
    found = [one for one in hidden if one is not None]
    missing: NDArray[np.bool_] = np.logical_or.reduce(found) if found else np.zeros(pixels.shape[:2], bool)
    if notes is not None:
        _refuse_dead_bands(hidden, range(len(bands)) if numbers is None else numbers)
        in_all = np.logical_and.reduce(found) if len(found) == len(bands) else np.zeros_like(missing)
        partly = np.count_nonzero(missing) - np.count_nonzero(in_all)
        if partly:
            notes.append(f"{partly} pixels hold data in some of the bands only; they count as no data")
    zeros = [equals(band, 0.0) for band, value in zip(bands, each, strict=False) if value == 0]
    if zeros:
        missing |= np.logical_and.reduce(zeros)
    return ~missing if missing.any() else None


def _refuse_dead_bands(hidden: Sequence[NDArray[np.bool_] | None], numbers: Sequence[int]) -> None:
    dead = [i for i, one in enumerate(hidden) if one is not None and one.all()]
    if 0 < len(dead) < len(hidden):
        kept = [number for i, number in enumerate(numbers) if i not in dead]
        empty = ", ".join(str(numbers[i]) for i in dead)
        raise UnsuitableImageError(
            f"no valid pixels, since band {empty} (counted from 0) of {len(hidden)} holds "
            f"no data at all; leave it out with bands={kept} (--channels {','.join(map(str, kept))})"
        )


def check_bands(bands: Sequence[int], n_bands: int) -> None:
    """Refuse a choice of bands, counted from 0, that is empty or names bands the image does not have."""
    if not bands or any(not 0 <= band < n_bands for band in bands) or len(set(bands)) < len(bands):
        raise UnsuitableImageError(
            f"bands={tuple(bands)} (--channels) must name different bands of the image, "
            f"from 0 to {n_bands - 1}"
        )


def chosen_bands(
    pixels: NDArray, values: Sequence[float | None], bands: Sequence[int]
) -> tuple[NDArray, tuple[float | None, ...]]:
    """Keep some of the bands of an image (H, W) or (H, W, C), and their values for "no data"."""
    check_bands(bands, pixels.shape[2] if pixels.ndim == 3 else 1)
    kept = pixels if pixels.ndim == 2 else pixels[..., list(bands)]
    kept = kept[..., 0] if len(bands) == 1 and kept.ndim == 3 else kept
    return np.ascontiguousarray(kept), tuple(values[band] for band in bands if band < len(values))


def _hidden(band: NDArray, value: float | None, has_others: bool) -> NDArray[np.bool_] | None:
    """Pixels that hold a no-data value other than 0 or, if there are other bands, are not finite."""
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
    step = np.abs(value - np.nextafter(value, value.dtype.type(0)))  # beyond the largest, spacing is infinite
    return np.abs(band - value) <= 2 * step if value else band == 0
