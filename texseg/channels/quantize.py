"""From real values to bins: the one place where ranges are decided."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

_GRID = 2.0**16  # unit values are rounded to this grid, so that a * x + b gives exactly the same bins
_OVERSHOOT = 0.25  # how far beyond the robust range values may lie before they are clipped, in ranges
_SAMPLES = 2**16  # values sampled per channel to find its range
_AT_ONCE = 2**16  # values turned into bins at once
_FENCE = 3.0  # widths of the bulk: the fence's distance from it; exponential values stay inside
_MOST_OUTLIERS = 0.06  # share of the values; more of them are what stands on ground that fills the image
_FEWEST_ALIKE = 0.01  # least share of the values that are at one extreme value set aside


class Range(NamedTuple):
    """Interval of values to be divided into bins."""

    low: float
    high: float


FARTHEST = Range(-_OVERSHOOT, 1 + _OVERSHOOT)  # where unit values are clipped, see `to_unit`


class Bulk(NamedTuple):
    """The values that determine a range, and what was set aside."""

    values: NDArray  # a sample of them
    extremes: tuple[tuple[float, float], ...]
    """Lowest or highest values that many pixels have and that lie far from all others, and their shares."""
    share: float  # share of the other values that lie beyond the fence


def bulk_of(images: Sequence[NDArray], masks: Sequence[NDArray[np.bool_] | None]) -> Bulk:
    """Separate the bulk of the valid values from outliers.

    A lowest or highest value of one pixel in a hundred, farther from the others than three times their width,
    does not count as measured; the bulk is what lies within three times the width from 10 to 90 % on either
    side, and round what stands on flat background.
    """
    sample = sampled(images, masks)
    sample.sort(kind="stable" if sample.itemsize <= 2 else None)  # stable is quicker for few values
    sample, extremes = _without_extremes(sample)
    low, high = _ends(sample, 10)
    while high > low:
        reach = _FENCE * (high - low)
        first, stop = np.searchsorted(sample, low - reach), np.searchsorted(sample, high + reach, "right")
        outside = np.concatenate([sample[:first], sample[stop:]])
        if len(outside) <= _MOST_OUTLIERS * len(sample):
            return Bulk(sample[first:stop], extremes, len(outside) / len(sample))
        bottom, top = _ends(outside, 10)
        low, high = min(low, bottom), max(high, top)
    return Bulk(sample, extremes, 0.0)


def sampled(images: Sequence[NDArray], masks: Sequence[NDArray[np.bool_] | None]) -> NDArray:
    """Up to about ``_SAMPLES`` valid values on regular sub-grids, always the same ones."""
    samples = []
    for values, mask in zip(images, masks, strict=True):
        n_valid = values.size if mask is None else np.count_nonzero(mask)
        step = max(1, int((n_valid * len(images) / _SAMPLES) ** (1 / values.ndim) + 1e-9))
        for every in (step, 1):  # the mask may hide a sub-grid
            grid = (slice(None, None, every),) * values.ndim
            sample = values[grid].ravel() if mask is None else values[grid][mask[grid]]
            if sample.size:
                break
        # NumPy before 2.4 computes ranks in the precision of the values
        samples.append(sample.astype(np.float32) if sample.dtype == np.float16 else sample)
    return np.concatenate(samples)


def _rank(values: NDArray, percent: float) -> int:
    """Where an order statistic stands in sorted values, the nearest one, as `numpy.percentile` has it."""
    return round((len(values) - 1) * (percent / 100))


def _ends(values: NDArray, percent: float) -> tuple[float, float]:
    """Order statistics of sorted values as far from both ends."""
    return float(values[_rank(values, percent)]), float(values[_rank(values, 100 - percent)])


def _without_extremes(sample: NDArray) -> tuple[NDArray, tuple[tuple[float, float], ...]]:
    extremes, size = [], len(sample)
    for end in (0, -1):
        value = sample[end]
        first, stop = np.searchsorted(sample, value), np.searchsorted(sample, value, "right")
        others = sample[:first] if end else sample[stop:]
        if len(sample) - len(others) < _FEWEST_ALIKE * len(sample) or not len(others):
            continue
        low, high = _ends(others, 1)
        if high > low and abs(float(value) - float(others[end])) > _FENCE * (high - low):
            extremes.append((float(value), (len(sample) - len(others)) / size))
            sample = others
    return sample, tuple(extremes)


def robust_range(
    images: Sequence[NDArray],
    masks: Sequence[NDArray[np.bool_] | None],
    low: float | None = 0.1,
    high: float = 99.9,
) -> Range:
    """Percentiles of the bulk of a channel's valid values; ``low=None`` starts at 0 and uses all values."""
    if low is None:
        sample, bottom = sampled(images, masks), 0.0
        sample.partition(_rank(sample, high))
    else:
        sample = bulk_of(images, masks).values
        bottom = float(sample[_rank(sample, low)])
    top = float(sample[_rank(sample, high)])
    if top > bottom:
        return Range(bottom, top)
    valid = [v if m is None else v[m] for v, m in zip(images, masks, strict=True)]
    lowest, highest = min(v.min() for v in valid), max(v.max() for v in valid)
    return Range(0.0 if low is None else float(lowest), float(highest))


def to_unit(values: NDArray, range: Range) -> NDArray[np.float32]:
    """Map ``range`` to 0..1, float32 multiples of 2**-16; values far outside are clipped."""
    extent = range.high - range.low
    if not extent > 0:
        return np.zeros(values.shape, np.float32)
    if values.dtype.kind == "u" and values.dtype.itemsize <= 2 and values.size > 2 ** (8 * values.itemsize):
        every = np.arange(2 ** (8 * values.itemsize)).astype(values.dtype)  # all values that can occur
        table, lines = to_unit(every, range), values.reshape(len(values), -1)
        found: Any = cv2.LUT(lines, table) if values.itemsize == 1 else table[lines]
        return found.reshape(values.shape)
    unit = (values.astype(np.float64) - range.low) / extent
    np.clip(unit, -_OVERSHOOT, 1 + _OVERSHOOT, out=unit)
    return (np.rint(unit * _GRID) / _GRID).astype(np.float32)


def quantize(values: NDArray, ends: Range, n_bins: int = 40) -> NDArray[np.uint8]:
    """Bins (uint8) of equal width over ``ends``; values outside go to the first or last bin."""
    extent = ends.high - ends.low
    if not extent > 0:
        return np.zeros(values.shape, np.uint8)
    bins = np.empty(values.shape, np.uint8)
    step = max(1, _AT_ONCE // max(1, bins[:1].size))
    for at in range(0, len(bins), step):
        scaled = values[at : at + step] - np.float32(ends.low)
        scaled *= np.float32(n_bins / extent)
        bins[at : at + step] = scaled.clip(0, n_bins - 1, out=scaled)
    return bins
