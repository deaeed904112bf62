"""What a segment looks like, in words, each compared with the rest of the image."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.channels.gabor import GaborBank
from texseg.report.pictures import reduced

_LIGHT_SIGMA = 13.0  # pixels; slower changes are light and shadow, faster ones texture
_FLAT = 1.0  # of 100 steps of lightness; texture below it cannot be seen
_MORE = 1.3  # ratio of contrasts that catches the eye
_GRAIN = 1.15  # ratio of the shares of energy in an octave
_LIGHTER = 6.0  # of 100 steps of lightness
_COLOURED = 6.0  # distance in the a, b plane of CIELAB; 2 can just be seen side by side
_LINES, _STRIPES = 0.7, 1.2  # largest minus smallest energy over the directions, in units of their mean;
# gravel and grass have up to .1, photographs up to .6, a weave .9, lamellae 1.4, a grating 3.3
_DIRECTIONS = ("vertical {}", "{} running down to the left", "horizontal {}", "{} running down to the right")
# degrees in the plane of colours of CIELAB, where pure red has 40, yellow 103, green 136, blue 306
_HUES = dict(reddish=30, orange=70, yellowish=100, greenish=145, bluish=275, purple=325) | {"blue-green": 200}


class Look(NamedTuple):
    """What an image looks like, pixel by pixel, as float32 planes (H, W)."""

    lightness: NDArray[np.floating]  # 0 to 100
    red_green: NDArray[np.floating]
    blue_yellow: NDArray[np.floating]
    variance: NDArray[np.floating]  # Of the lightness about its local mean

    @classmethod
    def of(cls, picture: NDArray[np.uint8]) -> Self:
        """Compute the planes from a picture (H, W, 3)."""
        lab = cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
        lightness, red_green, blue_yellow = np.ascontiguousarray(np.moveaxis(lab, -1, 0))
        variance = (lightness - cv2.GaussianBlur(lightness, (0, 0), _LIGHT_SIGMA)) ** 2
        return cls(lightness, red_green, blue_yellow, variance)

    def at(self, shape: tuple[int, int]) -> "Look":
        """Reduce to another size."""
        return Look(*(reduced(plane, shape) for plane in self))


def describe(
    labels: NDArray[np.integer],
    numbers: Sequence[int],
    shares: NDArray[np.floating],
    features: Features,
    look: Look,
) -> list[str]:
    """Say for every segment how it differs from the rest, such as "Darker than the rest, vertical stripes.".

    ``numbers`` are the S labels that occur; ``shares`` (S, C, n_bins) are histograms of the channels, each
    summing to one, those of the filters first; ``look`` has the size of the labels (H, W).
    """
    bank = features.bank
    middles = (np.arange(features.n_bins) + 0.5) / features.n_bins
    tops = [range_.high for range_ in features.ranges[: features.n_filters]]
    energies = (shares[:, : features.n_filters] @ middles) * tops  # (S, filters), mean moduli
    size = np.bincount(labels.ravel())[list(numbers)].astype(float)
    means = np.stack(
        [np.bincount(labels.ravel(), weights=plane.ravel())[list(numbers)] / size for plane in look], axis=1
    )
    sentences = []
    for i in range(len(numbers)):
        others = np.arange(len(numbers)) != i
        weight = size * others
        alone = weight.sum() == 0
        rest_energy = energies[i] if alone else np.average(energies, axis=0, weights=weight)
        rest = means[i] if alone else np.average(means, axis=0, weights=weight)
        parts = _light(means[i], rest)
        own_contrast, usual = np.sqrt(means[i, 3]), np.sqrt(rest[3])
        if own_contrast < _FLAT:
            parts.append("flat")
        elif own_contrast > _MORE * usual:
            parts.append("more contrast")
        elif own_contrast * _MORE < usual:
            parts.append("less contrast")
        if features.has_filters and own_contrast >= _FLAT:
            parts += [] if alone else _grain(energies[i], rest_energy, bank)
            parts += _stripes(energies[i], bank)
        text = ", ".join(parts) or "much like the rest"
        sentences.append(text[0].upper() + text[1:] + ".")
    return sentences


def _light(own: NDArray[np.floating], rest: NDArray[np.floating]) -> list[str]:
    parts = []
    if abs(own[0] - rest[0]) >= _LIGHTER:
        parts.append("lighter than the rest" if own[0] > rest[0] else "darker than the rest")
    red, yellow = own[1:3] - rest[1:3]
    if np.hypot(red, yellow) >= _COLOURED:
        hue = np.degrees(np.arctan2(yellow, red))
        parts.append(f"more {min(_HUES, key=lambda name: abs((hue - _HUES[name] + 180) % 360 - 180))}")
    return parts


def _grain(own: NDArray[np.floating], rest: NDArray[np.floating], bank: GaborBank) -> list[str]:
    of_scale = np.array([[each.wavelength == w for each in bank.filters] for w in bank.wavelengths])
    scales, usual = of_scale @ own, of_scale @ rest
    if len(scales) < 2 or not scales.all() or not usual.all():
        return []
    ratios = (scales / scales.sum()) / (usual / usual.sum())
    best = int(ratios.argmax())
    if ratios[best] < _GRAIN:
        return []
    word = "fine" if best == 0 else "coarse" if best == len(scales) - 1 else "medium"
    return [f"{word} (waves of about {bank.wavelengths[best]:.0f} pixels)"]


def _stripes(own: NDArray[np.floating], bank: GaborBank) -> list[str]:
    if bank.n_orientations < 2 or len(bank.spacing) == 3:
        return []
    directions = own.reshape(-1, bank.n_orientations).sum(axis=0)
    spread = np.ptp(directions) / max(directions.mean(), 1e-9)
    if spread < _LINES:
        return []
    degrees = 180 * int(directions.argmax()) / bank.n_orientations
    return [_DIRECTIONS[round(degrees / 45) % 4].format("stripes" if spread >= _STRIPES else "lines")]
