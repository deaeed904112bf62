"""Flat background around the textures: the margin of a scanned slide, the gaps of a figure.

Ground without texture would dominate what is learned from an image: ranges, textons, and which windows are
calm. And filters on it reach into the textures, which creates a ring along its edge. So it becomes a segment
of its own.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features, encode
from texseg.channels.planes import Planes, split_planes
from texseg.channels.quantize import robust_range, sampled, to_unit
from texseg.channels.textons import PATCH_SIDE

_FLAT = 0.1  # of the range in a neighbourhood of texture; noise of a twentieth of its contrast stays below
_TEXTURED = 98  # percentile of the ranges that stands for texture; the rest of the image must have some
_NARROW = 3 * PATCH_SIDE  # pixels, squares that fit into ground; narrower areas are gaps between grains
_BROAD = 2 * _NARROW + 1  # fit into a fifth of the image, or flat are the gaps of a texture; 15 to 61 agree
_LEAST_SHARE = 0.2  # of the image: smaller areas are textures like any other
_ONE_VALUE = 0.6  # times the level: largest spread of its values (2 to 98 %); skies have more


def find_ground(planes: Planes) -> NDArray[np.bool_] | None:
    """Find broad background of one value, a fifth to 98 % of the image, or gaps of panels; bool (H, W)."""
    valid = np.ones(planes.bands[0].shape, bool) if planes.mask is None else planes.mask
    units = [to_unit(band, robust_range([band], [planes.mask])) for band in planes.bands]
    ground = _ground_of(units, valid)
    if ground is None:
        blurred = [cv2.blur(unit, (3, 3), borderType=cv2.BORDER_REFLECT) for unit in units]
        ground = _ground_of([np.asarray(unit, np.float32) for unit in blurred], valid)
    return _gaps_of(planes.bands) if ground is None and planes.mask is None else ground


def _gaps_of(bands: Sequence[NDArray[Any]]) -> NDArray[np.bool_] | None:
    """Rows and columns of one value between the panels of a figure, and around them."""
    gaps, between = np.zeros(bands[0].shape, bool), False
    for axis, lines in enumerate((gaps.T, gaps)):
        flat = reduce(np.logical_and, [band.min(axis=axis) == band.max(axis=axis) for band in bands])
        runs = [(is_flat, len(list(run))) for is_flat, run in groupby(flat)]
        if flat.mean() < _LEAST_SHARE and all(n >= (PATCH_SIDE if gap else _BROAD) for gap, n in runs):
            lines[flat] = True
            between |= any(is_flat for is_flat, _ in runs[1:-1])
    return gaps if between and all(np.ptp(band[gaps]) == 0 for band in bands) else None


def _ground_of(units: Sequence[NDArray[np.floating]], valid: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Flat background of an image on the unit scale."""
    square = np.ones((PATCH_SIDE, PATCH_SIDE), np.uint8)
    ranges: Any = reduce(np.maximum, [cv2.dilate(unit, square) - cv2.erode(unit, square) for unit in units])
    level = _FLAT * float(np.percentile(sampled([ranges], [valid]), _TEXTURED))
    flat = ((ranges <= level) & valid).astype(np.uint8)
    squares = cv2.morphologyEx(flat, cv2.MORPH_OPEN, np.ones((_BROAD, _BROAD), np.uint8)) > 0
    share = np.count_nonzero(squares) / np.count_nonzero(valid)
    if share < _LEAST_SHARE / 2:
        return None
    if share < _LEAST_SHARE:  # the corners around a field of view hold fewer squares, but a single value
        whole = np.count_nonzero(_with_tapers(squares, units, 0.0, valid)) / np.count_nonzero(valid)
        if whole < _LEAST_SHARE:
            return None
    ends = [_TEXTURED, 100 - _TEXTURED]
    spreads = [float(np.subtract(*np.percentile(unit[squares], ends))) for unit in units]
    if max(spreads) > _ONE_VALUE * level:
        return None
    core = cv2.morphologyEx(flat, cv2.MORPH_OPEN, np.ones((_NARROW, _NARROW), np.uint8))
    for _ in range(_NARROW // PATCH_SIDE):  # corners between round things, where no square fits
        core = cv2.dilate(core, square) & flat
    for unit in units:  # add the rim of the core where it has the ground's values
        near = cv2.dilate(np.where(core > 0, unit, np.float32(-9)), square)
        core_rim = (cv2.dilate(core, square) > 0) & (np.abs(unit - near) <= level) & valid
        core = core_rim.astype(np.uint8)
    core = _with_tapers(core, units, level, valid)
    _, holes, stats, _ = cv2.connectedComponentsWithStats((core == 0).astype(np.uint8), connectivity=4)
    small = stats[:, cv2.CC_STAT_AREA] < _NARROW**2  # as round dust: no texture can be seen in it
    ground = (core > 0) | small[holes]
    return ground if np.count_nonzero(valid & ~ground) >= (1 - _TEXTURED / 100) * valid.sum() else None


def _with_tapers(
    core: NDArray[Any], units: Sequence[NDArray[np.floating]], level: float, valid: NDArray[np.bool_]
) -> NDArray[Any]:
    """Add corners connected to the ground that have its value, unless textures have that value as well."""
    alike = valid.copy()
    for unit in units:
        alike &= np.abs(unit - np.median(unit[core > 0])) <= level
    _, numbers = cv2.connectedComponents((alike | (core > 0)).astype(np.uint8), connectivity=4)
    joined = np.isin(numbers, np.unique(numbers[core > 0])).astype(np.uint8)
    rest = (valid & (joined == 0)).astype(np.uint8)
    broad = cv2.morphologyEx(rest, cv2.MORPH_OPEN, np.ones((_NARROW, _NARROW), np.uint8))
    odd = np.count_nonzero((alike | (broad == 0)) & (rest > 0))
    return joined if odd <= (1 - _TEXTURED / 100) * np.count_nonzero(rest) else core


def without_ground(planes: Planes, ground: NDArray[np.bool_] | None) -> Planes:
    """Mask the ground and fill it, like other holes, with the textures mirrored at its edge."""
    if ground is None:
        return planes
    valid = ~ground if planes.mask is None else planes.mask & ~ground
    filled = split_planes(np.stack(planes.bands, axis=-1), channel_axis=-1, mask=valid)
    n_bands = len(planes.bands)
    return filled._replace(bands=filled.bands * (n_bands if len(filled.bands) < n_bands else 1))


def profile_of_ground(
    images: Sequence[Planes], grounds: Sequence[NDArray[np.bool_] | None], features: Features
) -> NDArray[np.floating] | None:
    """Histograms (C, n_bins) of the ground of all images, each summing to one; None if there is no ground."""
    counts = np.zeros((len(features.names), features.n_bins))
    for planes, ground in zip(images, grounds, strict=True):
        if ground is not None:
            for row, bins in zip(counts, encode(planes, features), strict=True):
                row += np.bincount(bins[ground], minlength=features.n_bins)
    return (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32) if counts.any() else None
