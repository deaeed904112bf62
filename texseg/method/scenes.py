"""From arrays to scenes: transparency, info bars, planes, masks, background, logarithm, notes, seeds, bins.

:func:`learn_scenes` is for images that textures are learned from, :func:`known_scenes` for those that are
labelled by what was learned.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features, encode, learn_features
from texseg.channels.gabor import GaborBank
from texseg.channels.ground import find_ground, without_ground
from texseg.channels.notes import notes_on
from texseg.channels.planes import NoValidPixels, Planes, non_finite, split_planes
from texseg.channels.rescale import mismatch, rescaled, to_grey
from texseg.method.seeds import checked_seeds, refuse_grey_values
from texseg.method.textures import Scene
from texseg.parameters import Settings

_LOGARITHM_TAKEN = (
    "using the logarithm of the values: contrast is proportional to brightness, as under shading or speckle "
    "that multiply; log=False (--no-log) turns this off"
)
_NUMBERS = {2: ("two", "one band", "second"), 4: ("four", "three bands", "fourth")}
_PLAIN_ROW = 0.95  # share of the edge row, and of all of a bar's rows ...
_TEXT_ROW = 0.25  # ... and of a row with text, that has the bar's one colour
_BAR_HEIGHTS = (0.02, 0.2)  # of the image; thinner ones are frames, taller ones ground
_FEWEST_ROWS = 8
_TEXT = (0.003, 0.5)  # share of a bar covered by text and scale
_TOLERANCE = 0.03  # of the image's range: how far compression changes a single colour
_GREY = 0.1  # of the image's range: how far a bar may be from black or white
_ABOVE = 0.2  # largest share of the bar's colour in the picture's rows next to it
Note = tuple[str, type[Warning]]
Grounds = list[NDArray[np.bool_] | None]


class LogarithmWarning(UserWarning):
    """Texseg decided to use the logarithm of the values."""


class FourthBandWarning(UserWarning):
    """An array has two or four bands, the last of which may be transparency."""


class Learned(NamedTuple):
    """Scenes, and what was learned to encode them."""

    scenes: list[Scene]
    features: Features
    settings: Settings  # adapted to the size of the images
    n_classes: int | None  # number of classes where there are seeds
    originals: list[Planes]  # the images with their flat background


def learn_scenes(
    X: Any, mask: Any, seeds: Any, settings: Settings, rng: np.random.RandomState, tell: Callable[..., Any]
) -> Learned:
    """Check images, masks and seeds, learn features from the images, and encode them."""
    bank = GaborBank(settings.wavelengths, settings.n_orientations, spacing=settings.steps)
    images = _planes(X, mask, settings)
    images = _same_bands(images, max(len(planes.bands) for planes in images))
    if len(counts := sorted({len(planes.bands) for planes in images})) > 1:
        raise ValueError(f"all images must have the same number of bands, got {counts}")
    sides = [planes.bands[0].shape[-settings.spatial_dims :] for planes in images]
    side = min(min(shape) for shape in sides)
    if side < bank.halo:
        warn(
            f"an image with a side of {side} pixels is smaller than the filters, which look "
            f"{bank.halo} pixels far: borders are padded by mirroring; labels may be unreliable"
        )
    n_classes, painted = None, [None] * len(images)
    if seeds is not None:
        painted, n_classes = _seeds(seeds, images, isinstance(X, (list, tuple)), settings)
    originals, grounds = images, [None] * len(images) if seeds is not None else _grounds(images, settings)
    images = [without_ground(*pair) for pair in zip(images, grounds, strict=True)]
    settings = settings.scaled(min(max(shape) for shape in sides))
    given = settings.log if settings.preset != "plain" else bool(settings.log)
    logarithm, notes = notes_on(images, originals, given)
    if logarithm and given is None:
        warn(_LOGARITHM_TAKEN, LogarithmWarning)
    for note in notes:
        warn(note)
    features, bins = learn_features(
        images,
        bank=bank,
        sigma=settings.illumination_sigma,
        n_bins=settings.n_bins,
        patch_weight=settings.patch_weight,
        value_weight=settings.value_weight,
        logarithm=logarithm,
        random_state=rng.randint(2**31),
        tell=partial(tell, "filters"),
    )
    of_scenes = zip(bins, images, grounds, painted, strict=True)
    scenes = [scene_of(b, planes, features, ground, own) for b, planes, ground, own in of_scenes]
    return Learned(scenes, features, settings, n_classes, originals)


def scene_of(
    bins: NDArray[np.uint8],
    planes: Planes,
    features: Features,
    ground: NDArray[np.bool_] | None = None,
    seeds: NDArray[np.int32] | None = None,
) -> Scene:
    """Make the scene of an encoded image; one with more axes than textures have is a stack."""
    spacing = features.bank.spacing
    stacked = (math.inf,) * (bins.ndim - 1 - len(spacing))
    return Scene(bins, planes.mask, planes, ground, seeds, (*stacked, *spacing))


def known_scenes(
    X: Any, mask: Any, settings: Settings, features: Features, has_ground: bool, rescale: bool
) -> list[Scene]:
    """Encode images as those were that the features were learned from."""
    images = _planes(X, mask, settings)
    if features.n_bands == 1 and any(len(planes.bands) == 3 for planes in images):
        warn("the model learned grey images; colour images are turned to grey for it")
        images = [to_grey(planes) for planes in images]
    images = [with_bands_of(features, planes) for planes in images]
    if rescale:
        images = rescaled(images, features.intensity)
    elif (difference := mismatch(images, features.intensity)) is not None:
        warn(difference)
    grounds = [_found_ground(planes) if has_ground else None for planes in images]
    images = [without_ground(*pair) for pair in zip(images, grounds, strict=True)]
    pairs = zip(images, grounds, strict=True)
    return [scene_of(encode(planes, features), planes, features, ground) for planes, ground in pairs]


def with_bands_of(features: Features, planes: Planes) -> Planes:
    """Refuse another number of bands than features were learned from."""
    (planes,) = _same_bands([planes], features.n_bands)
    if len(planes.bands) != features.n_bands:
        raise ValueError(
            f"the model was fitted on images with {features.n_bands} band(s), got one with "
            f"{len(planes.bands)}"
        )
    return planes


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever called texseg, at whatever depth of it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("texseg."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def refuse_seeds_without_cells(settings: Settings) -> None:
    """Refuse seeds where there are no cells to decide them on."""
    if settings.smoothness == 0:
        raise ValueError(
            "strokes are decided on cells under the prior on the map, and need smoothness above 0 "
            "(which the plain preset sets to 0)"
        )


def _planes(X: Any, mask: Any, settings: Settings) -> list[Planes]:
    """Check the images and take them apart."""
    several = isinstance(X, (list, tuple)) and not hasattr(X, "pixels")
    images = list(X) if several else [X]
    for image in images:
        _check_array(image)
    masks = list(mask) if several and mask is not None else [mask] * len(images)
    if not images or len(masks) != len(images):
        raise ValueError(f"fit needs one image or more, and a mask each; got {len(images)}, {len(masks)}")
    axis, nodata, bar = settings.channel_axis, settings.nodata, settings.crop_bar
    pairs = list(zip(images, masks, strict=True))
    n_axes = settings.n_axes
    parts = []
    for index, (image, one) in enumerate(pairs):
        try:
            parts.append(_taken_apart(image, axis, one, nodata, bar, n_axes))
        except NoValidPixels as reason:
            raise NoValidPixels(f"image {index}: {reason}" if several else str(reason)) from None
    taken, notes = zip(*parts, strict=True)
    for note, category in sorted(
        dict.fromkeys(itertools.chain(*notes)), key=lambda each: each[1] is UserWarning
    ):
        warn(note, category)
    bad = sum(non_finite(image, axis, one) for image, one in pairs)
    if bad:
        warn(f"{bad} non-finite pixels treated as no data (label 0)")
    return list(taken)


def _taken_apart(
    image: Any, channel_axis: int | None, mask: Any, nodata: float | None, crop_bar: bool, n_axes: int
) -> tuple[Planes, list[Note]]:
    """Split an image into planes, without transparency and, on request, without its info bar."""
    image, opaque, note = _without_alpha(image, channel_axis, n_axes)
    notes: list[Note] = [(note, FourthBandWarning)] if note else []
    if opaque is not None:
        mask = opaque if mask is None else (np.asarray(mask) != 0) & opaque
    planes = split_planes(image, channel_axis=channel_axis, mask=mask, nodata=nodata, n_axes=n_axes)
    rows = _info_bar(planes) if n_axes == 2 else None
    if rows is None:
        return planes, notes
    what = f"rows {rows.start} to {rows.stop - 1} look like the info bar of a microscope, and were "
    if not crop_bar:
        what += "segmented like the picture; crop_bar=True (--crop-bar) skips them"
        return planes, [*notes, (what, UserWarning)]
    kept = np.ones(planes.bands[0].shape, bool) if planes.mask is None else planes.mask.copy()
    kept[rows] = False
    planes = split_planes(image, channel_axis=channel_axis, mask=kept, nodata=nodata)
    return planes, [*notes, (what + "skipped (label 0)", UserWarning)]


def _without_alpha(
    image: Any, channel_axis: int | None, n_axes: int
) -> tuple[Any, NDArray[np.bool_] | None, str | None]:
    """Remove transparency from two or four bands; also return where they are opaque, and the note.

    The last of two or four bands of unsigned integers, or of floats from 0 to 1, is transparency (as in
    scikit-image and imageio) if it holds only the two ends of its range. If it may be transparency all the
    same (other types and ranges; softer edges), a note says so.
    """
    array, unchanged = np.asarray(image), (image, None, None)
    if not isinstance(channel_axis, (int, np.integer)) or array.ndim != n_axes + 1:
        return unchanged
    n_bands = array.shape[channel_axis] if -array.ndim <= channel_axis < array.ndim else 0
    if n_bands not in _NUMBERS or array.dtype.kind not in "iuf":
        return unchanged
    last = np.take(array, -1, axis=channel_axis)
    held = np.isfinite(last)
    if not held.any():
        return unchanged
    low, high = last[held].min(), last[held].max()
    is_on_or_off = bool(((last == low) | (last == high))[held].all())
    kind = array.dtype.kind
    is_scaled = kind == "u" or (kind == "f" and bool(np.nanmin(array) >= 0 and np.nanmax(array) <= 1))
    top = float(np.iinfo(array.dtype).max) if kind == "u" else 1.0
    number, others, place = _NUMBERS[n_bands]
    if not (is_scaled and is_on_or_off and high == top and low in (0, top)):
        if not is_on_or_off and (n_bands < 4 or not is_scaled):
            return unchanged
        note = f"the last of {number} bands was taken as a band like the others; if it is transparency, pass "
        return image, None, f"{note}{others} and mask=alpha > 0"
    bands = np.delete(np.ma.asarray(image) if np.ma.isMaskedArray(image) else array, -1, axis=channel_axis)
    opaque = last == top
    n = int(np.count_nonzero(held & ~opaque))
    note = f"the {place} band was taken for transparency: {n} pixels hold no data"
    return bands, None if opaque.all() else opaque, note if n else None


def _info_bar(planes: Planes) -> slice | None:
    """Rows of a nearly black or white bar with text along the lower or upper edge; None if there is none."""
    if planes.mask is not None:
        return None
    grey = np.mean(planes.bands, axis=0) if len(planes.bands) > 1 else planes.bands[0]
    H = len(grey)
    lowest, highest = float(grey.min()), float(grey.max())
    tolerance = _TOLERANCE * (highest - lowest)
    for is_top in (False, True):
        lines = grey if is_top else grey[::-1]
        end = float(np.median(lines[0]))
        first_row = _shares_of(lines[:1], end, tolerance)[0]
        if first_row < _PLAIN_ROW or min(end - lowest, highest - end) > _GREY * (highest - lowest):
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


def _shares_of(lines: NDArray[Any], end: float, tolerance: float) -> NDArray[np.floating]:
    """Share of the pixels in each row that have a value, or nearly so."""
    return (np.abs(lines.astype(np.float64) - end) <= tolerance).mean(axis=1)


def _check_array(image: Any) -> None:
    """Refuse the name of a file, and what `read_image` returns, with a sentence that helps."""
    if isinstance(image, (str, os.PathLike)) or hasattr(image, "pixels"):
        raise TypeError(
            f"an image must be an array, got {type(image).__name__}; with photo = texseg.read_image(path), "
            "pass photo.pixels, channel_axis=photo.channel_axis and mask=photo.mask"
        )
    if isinstance(image, (list, tuple)):
        try:
            np.asarray(image)
        except ValueError as error:
            raise ValueError("an image must be an array, got nested lists of unequal lengths") from error


def _seeds(
    seeds: Any, images: list[Planes], several: bool, settings: Settings
) -> tuple[list[Any], int | None]:
    """Seeds of each image and the number of classes."""
    refuse_seeds_without_cells(settings)
    if settings.model != "acm":
        raise ValueError(f"strokes need model='acm', got {settings.model!r}")
    shapes, masks = [image.bands[0].shape for image in images], [image.mask for image in images]
    painted, n_classes = checked_seeds(seeds, shapes, masks, several=several, n_segments=settings.n_segments)
    if settings.n_segments is None:
        refuse_grey_values(painted)
    return painted, n_classes


def _grounds(images: list[Planes], settings: Settings) -> Grounds:
    """Flat background of each image; None for all where there is none, or it is not to be distinguished."""
    wanted = settings.flat_ground and settings.preset != "plain" and settings.n_axes == 2
    if not wanted or settings.n_segments == 1:
        return [None] * len(images)
    found = [_found_ground(planes) for planes in images]
    return [ground if any(other.any() for other in found) else None for ground in found]


def _found_ground(planes: Planes) -> NDArray[np.bool_]:
    ground = find_ground(planes)
    return np.zeros(planes.bands[0].shape, bool) if ground is None else ground


def _same_bands(images: list[Planes], n_bands: int) -> list[Planes]:
    """Give images whose bands are all equal, which came back as one, as many bands as the others."""
    return [
        planes._replace(bands=planes.bands * n_bands) if len(planes.bands) == 1 else planes
        for planes in images
    ]
