"""From arrays to scenes: planes and masks, flat ground, the logarithm, notes, seeds, and bins.

:func:`learn_scenes` is for images that textures are learned from, :func:`known_scenes` for those that are
labelled by what was learned.
"""

from __future__ import annotations

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
from texseg.channels.ground import find_ground, profile_of_ground, without_ground
from texseg.channels.intake import FourthBandWarning, take_in
from texseg.channels.notes import multiplies, notes_on
from texseg.channels.planes import Planes, non_finite
from texseg.channels.rescale import mismatch, rescaled, to_grey
from texseg.method.seeds import checked_seeds, refuse_grey_values
from texseg.method.textures import Scene
from texseg.parameters import Settings

__all__ = ["Learned", "known_scenes", "learn_scenes", "refuse_seeds_without_cells", "warn"]

_LOGARITHM_TAKEN = (
    "the logarithm of the values is taken, since contrast follows brightness by the same factor everywhere, "
    "as under light, gains or speckle that multiply; log=False (--no-log) takes the values as they are"
)
Grounds = list[NDArray[np.bool_] | None]


class Learned(NamedTuple):
    """Scenes, and what was learned to encode them."""

    scenes: list[Scene]
    features: Features
    settings: Settings
    """Adapted to the size of the images."""
    n_classes: int | None
    """Number of classes where there are seeds."""
    originals: list[Planes]
    """The images with their flat ground."""

    def profile_of_ground(self) -> NDArray[np.floating] | None:
        """Profile (C, n_bins) of flat ground, if there is any."""
        return profile_of_ground(self.originals, [scene.ground for scene in self.scenes], self.features)

    @property
    def has_ground(self) -> bool:
        """Whether flat ground is a segment."""
        return any(scene.ground is not None for scene in self.scenes)


def learn_scenes(
    X: Any, mask: Any, seeds: Any, settings: Settings, rng: np.random.RandomState, tell: Callable[..., Any]
) -> Learned:
    """Check images, masks and seeds, learn features from the images, and encode them."""
    images = _planes(X, mask, settings)
    images = _same_bands(images, max(len(planes.bands) for planes in images))
    if len({len(planes.bands) for planes in images}) > 1:
        counts = sorted({len(planes.bands) for planes in images})
        raise ValueError(f"all images must have the same number of bands, got {counts}")
    shapes = [planes.bands[0].shape for planes in images]
    settings = settings.scaled(min(max(shape) for shape in shapes))
    side, bank = min(min(shape) for shape in shapes), GaborBank(settings.wavelengths, settings.n_orientations)
    if side < bank.halo:
        warn(
            f"an image with a side of {side} pixels is smaller than the filters, which look "
            f"{bank.halo} pixels far: what lies beyond its border is mirrored; labels may mean little"
        )
    n_classes, painted = None, [None] * len(images)
    if seeds is not None:
        painted, n_classes = _seeds(seeds, images, isinstance(X, (list, tuple)), settings)
    originals, grounds = images, [None] * len(images) if seeds is not None else _grounds(images, settings)
    images = [without_ground(*pair) for pair in zip(images, grounds, strict=True)]
    logarithm = settings.log
    if logarithm is None:
        logarithm = settings.preset != "plain" and multiplies(images)
        if logarithm:
            warn(_LOGARITHM_TAKEN)
    for note in notes_on(images, logarithm):
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
    scenes = [Scene(b, planes.mask, planes, ground, own) for b, planes, ground, own in of_scenes]
    return Learned(scenes, features, settings, n_classes, originals)


def known_scenes(
    X: Any, mask: Any, settings: Settings, features: Features, has_ground: bool, rescale: bool
) -> list[Scene]:
    """Encode images as those were that the features were learned from."""
    images = _planes(X, mask, settings)
    if features.n_bands == 1 and any(len(planes.bands) == 3 for planes in images):
        warn("the model learned grey images; colour images are turned to grey for it")
        images = [to_grey(planes) for planes in images]
    images = _same_bands(images, features.n_bands)
    for planes in images:
        if len(planes.bands) != features.n_bands:
            raise ValueError(
                f"the model was fitted on images with {features.n_bands} band(s), "
                f"got one with {len(planes.bands)}"
            )
    if rescale:
        images = rescaled(images, features.intensity)
    elif (difference := mismatch(images, features.intensity)) is not None:
        warn(difference)
    grounds = [_found_ground(planes) if has_ground else None for planes in images]
    images = [without_ground(*pair) for pair in zip(images, grounds, strict=True)]
    pairs = zip(images, grounds, strict=True)
    return [Scene(encode(planes, features), planes.mask, planes, ground) for planes, ground in pairs]


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever called texseg, at whatever depth of it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("texseg."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level - 1)


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
    taken = [take_in(image, channel_axis=axis, mask=one, nodata=nodata, crop_bar=bar) for image, one in pairs]
    for note in dict.fromkeys(intake.fourth_band for intake in taken if intake.fourth_band):
        warn(note, FourthBandWarning)
    for note in dict.fromkeys(note for intake in taken for note in intake.notes):
        warn(note)
    bad = sum(non_finite(image, axis, one) for image, one in pairs)
    if bad:
        warn(f"{bad} non-finite pixels treated as no data (label 0)")
    return [intake.planes for intake in taken]


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
    """Flat ground of each image; None for all where there is none, or it is not to be told apart."""
    if not settings.flat_ground or settings.preset == "plain" or settings.n_segments == 1:
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
