"""What an image holds besides the picture: transparency as its last band, and a microscope's info bar."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.planes import Planes, split_planes

__all__ = ["FourthBandWarning", "Intake", "info_bar", "take_in"]

_NUMBERS = {2: ("two", "one band", "second"), 4: ("four", "three bands", "fourth")}
_PLAIN_ROW = 0.95  # share of the edge row, and of all of a bar's rows ...
_TEXT_ROW = 0.25  # ... and of a row with text, that has the bar's one colour
_BAR_HEIGHTS = (0.02, 0.2)  # of the image; thinner ones are frames, taller ones ground
_FEWEST_ROWS = 8
_TEXT = (0.003, 0.5)  # share of a bar covered by text and scale
_TOLERANCE = 0.03  # of the image's range: how far compression changes a single colour
_GREY = 0.1  # of the image's range: how far a bar may be from black or white
_ABOVE = 0.2  # largest share of the bar's colour in the picture's rows next to it


class FourthBandWarning(UserWarning):
    """An array has two or four bands, the last of which may be transparency."""


class Intake(NamedTuple):
    """An image split into planes, and notes on what was found."""

    planes: Planes
    notes: tuple[str, ...]
    fourth_band: str | None = None
    """How a last band that may be transparency was treated."""


def take_in(
    image: Any,
    *,
    channel_axis: int | None = None,
    mask: Any = None,
    nodata: float | None = None,
    crop_bar: bool = False,
) -> Intake:
    """Split an image into planes, without transparency and, on request, without its info bar.

    The last of two or four bands of unsigned integers, or of floats from 0 to 1, is transparency (as in
    scikit-image and imageio) if it holds only the two ends of its range. Transparent pixels hold no data. If
    it may be transparency all the same (other types and ranges; softer edges), a note says so.

    Examples
    --------
    >>> image = np.full((4, 4, 4), 255, np.uint8)
    >>> image[0, :, 3] = 0
    >>> taken = take_in(image, channel_axis=-1)
    >>> len(taken.planes.bands), int(taken.planes.mask.sum()), taken.fourth_band
    (1, 12, 'the fourth band was taken for transparency: 4 pixels hold no data')
    """
    image, channel_axis, opaque, said = _without_alpha(image, channel_axis)
    if opaque is not None:
        mask = opaque if mask is None else (np.asarray(mask) != 0) & opaque
    planes = split_planes(image, channel_axis=channel_axis, mask=mask, nodata=nodata)
    rows = info_bar(planes)
    if rows is None:
        return Intake(planes, (), said)
    where = f"rows {rows.start} to {rows.stop - 1} look like the info bar of a microscope"
    if not crop_bar:
        return Intake(
            planes,
            (f"{where}, and were segmented like the picture; crop_bar=True (--crop-bar) leaves them out",),
            said,
        )
    kept = np.ones(planes.bands[0].shape, bool) if planes.mask is None else planes.mask.copy()
    kept[rows] = False
    planes = split_planes(image, channel_axis=channel_axis, mask=kept, nodata=nodata)
    return Intake(planes, (f"{where}, and were left out (label 0)",), said)


def _without_alpha(
    image: Any, channel_axis: int | None
) -> tuple[Any, int | None, NDArray[np.bool_] | None, str | None]:
    """Remove transparency from two or four bands; also return where they are opaque, and the note."""
    array = np.asarray(image)
    if not isinstance(channel_axis, (int, np.integer)) or array.ndim != 3 or not -3 <= channel_axis < 3:
        return image, channel_axis, None, None
    n_bands = array.shape[channel_axis]
    if n_bands not in _NUMBERS or array.dtype.kind not in "iuf":
        return image, channel_axis, None, None
    last = np.take(array, -1, axis=channel_axis)
    held = np.isfinite(last)
    if not held.any():
        return image, channel_axis, None, None
    low, high = last[held].min(), last[held].max()
    is_on_or_off = bool(((last == low) | (last == high))[held].all())
    top, is_scaled = 1.0, array.dtype.kind == "u"
    if is_scaled:
        top = float(np.iinfo(array.dtype).max)
    elif array.dtype.kind == "f":
        is_scaled = bool(np.nanmin(array) >= 0 and np.nanmax(array) <= 1)
    if not (is_scaled and is_on_or_off and high == top and low in (0, top)):
        if not is_on_or_off and (n_bands < 4 or not is_scaled):
            return image, channel_axis, None, None
        said = (
            f"the last of {_NUMBERS[n_bands][0]} bands was taken as a band like the others; if it is "
            f"transparency, pass {_NUMBERS[n_bands][1]} and mask=alpha > 0"
        )
        return image, channel_axis, None, said
    bands = np.delete(np.ma.asarray(image) if np.ma.isMaskedArray(image) else array, -1, axis=channel_axis)
    opaque = last == top
    n = int(np.count_nonzero(held & ~opaque))
    said = f"the {_NUMBERS[n_bands][2]} band was taken for transparency: {n} pixels hold no data"
    return bands, channel_axis, None if opaque.all() else opaque, said if n else None


def _shares_of(lines: NDArray[Any], end: float, tolerance: float) -> NDArray[np.floating]:
    """Share of the pixels in each row that have a value, or nearly so."""
    shares: NDArray[np.floating] = (np.abs(lines.astype(np.float64) - end) <= tolerance).mean(axis=1)
    return shares


def info_bar(planes: Planes) -> slice | None:
    """Rows of a nearly black or white bar with text along the lower or upper edge; None if there is none.

    Examples
    --------
    >>> picture = np.random.default_rng(0).uniform(20, 250, (200, 160))
    >>> picture[180:] = 0
    >>> picture[185:193, 20:60] = 255
    >>> info_bar(split_planes(picture))
    slice(180, 200, None)
    """
    if planes.mask is not None:
        return None
    grey = np.mean(planes.bands, axis=0) if len(planes.bands) > 1 else planes.bands[0]
    H = len(grey)
    lowest, highest = float(grey.min()), float(grey.max())
    tolerance = _TOLERANCE * (highest - lowest)
    for is_top in (False, True):
        lines = grey if is_top else grey[::-1]
        end = float(np.median(lines[0]))
        is_plain = _shares_of(lines[:1], end, tolerance)[0] >= _PLAIN_ROW
        if not is_plain or min(end - lowest, highest - end) > _GREY * (highest - lowest):
            continue
        from_edge = _shares_of(lines, end, tolerance)
        others = np.flatnonzero(from_edge < _TEXT_ROW)
        height = int(others[0]) if len(others) else H
        if height < _FEWEST_ROWS:
            continue
        text = 1 - float(from_edge[:height].mean())
        near = from_edge[height : height + _FEWEST_ROWS]
        is_bar = _BAR_HEIGHTS[0] * H <= height <= _BAR_HEIGHTS[1] * H and near.max() <= _ABOVE
        if is_bar and _TEXT[0] <= text <= _TEXT[1]:
            return slice(0, height) if is_top else slice(H - height, H)
    return None
