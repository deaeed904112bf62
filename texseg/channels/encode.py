"""From images to bins: learn the channels' ranges and textons, and encode other images with them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.gabor import GaborBank
from texseg.channels.planes import Planes, slices_of
from texseg.channels.quantize import Range, quantize, robust_range
from texseg.channels.responses import Intensity, Recipe, learn_intensity, recipes
from texseg.channels.textons import learn_codebook, nearest_textons, patch_side
from texseg.threads import LARGE, side_by_side

_VALUE_BINS = 14  # for plain values: slowly changing light then moves them by a bin or two, not by ten
_SIGMAS = 3.0  # only 0.3 % of a Gaussian's weight lies beyond
_MODULUS_TOP = 99.5  # percentile of a filter's moduli at the top of the last bin


class Features(NamedTuple):
    """Everything learned about the channels before any clustering; plain data."""

    bank: GaborBank
    intensity: Intensity
    sigma: float  # pixels; standard deviation of the Gaussian that removes illumination
    patch_weight: float
    value_weight: float
    n_bins: int
    ranges: tuple[Range, ...]  # one per channel; not used for patches
    codebook: NDArray[np.floating]
    """Textons of the patch channel, shape (n_bins, side * side); empty without this channel."""
    names: tuple[str, ...]
    wavelengths: NDArray[np.float64]  # scale of each channel in pixels; 0 for plain values
    weights: NDArray[np.floating]
    has_filters: bool = True  # whether the bank's filters are among the channels

    @property
    def n_filters(self) -> int:
        """Number of channels that are filters; they come first."""
        return len(self.bank.filters) if self.has_filters else 0

    def recipes(self, planes: Planes) -> list[Recipe]:
        """List the channels of an image, in the order of :attr:`names`; see :func:`recipes`."""
        bank = self.bank if self.has_filters else None
        weights = self.patch_weight, self.value_weight
        return recipes(planes, self.intensity, bank, self.sigma, *weights, self.bank.spacing)

    def values_alone(self) -> "Features":
        """Keep only the channels of plain values."""
        kept = np.flatnonzero(self.wavelengths == 0)
        return self._replace(
            patch_weight=0.0,
            ranges=tuple(self.ranges[c] for c in kept),
            codebook=self.codebook[:0],
            names=tuple(self.names[c] for c in kept),
            wavelengths=self.wavelengths[kept],
            weights=self.weights[kept],
            has_filters=False,
        )

    @property
    def n_bands(self) -> int:
        """Number of bands of the images; 1 for grey."""
        return len(self.intensity.low)

    @property
    def reach(self) -> int:
        """Radius in pixels that determines a pixel's bins: filters, after a local mean and deviation."""
        return self.bank.halo + 2 * int(np.ceil(_SIGMAS * self.sigma))


def learn_features(
    images: Sequence[Planes],
    *,
    bank: GaborBank,
    sigma: float,
    n_bins: int = 40,
    patch_weight: float = 0.0,
    value_weight: float = 1.0,
    logarithm: bool = False,
    random_state: int = 0,
    tell: Callable[[int, int], None] | None = None,
) -> tuple[Features, list[NDArray[np.uint8]]]:
    """Learn ranges and textons from images, and encode these: uint8 bins (C, ...), one array each.

    Every plane of a stack, which has one axis more than the bank, is an image.
    """
    shapes, is_stack = [planes.bands[0].shape for planes in images], False
    if len(shapes[0]) > len(bank.spacing):
        is_stack, images = True, [plane for planes in images for plane in slices_of(planes)]
    intensity = learn_intensity(images, sigma, logarithm, bank.spacing)
    masks = [planes.mask for planes in images]
    weights = patch_weight, value_weight
    listed = [recipes(planes, intensity, bank, sigma, *weights, bank.spacing) for planes in images]
    heads, side = listed[0], patch_side(len(bank.spacing))
    codebook = np.empty((0, side ** len(bank.spacing)), np.float32)
    bins = [np.empty((len(heads), *shape), np.uint8) for shape in shapes]
    outs = [out for whole in bins for out in (np.moveaxis(whole, 1, 0) if is_stack else [whole])]

    def learn(index: int) -> Range:
        """Learn one channel from all images, and encode it in all."""
        nonlocal codebook
        head, values, range_ = heads[index], [one[index].values() for one in listed], Range(0.0, 0.0)
        if head.kind == "patch":
            rng = np.random.default_rng(random_state)
            codebook = learn_codebook(values, masks, n_bins, side, rng)
        elif head.kind == "modulus":
            range_ = robust_range(values, masks, None, _MODULUS_TOP)
        else:
            range_ = robust_range(values, masks)
        for plane, out in zip(values, outs, strict=True):
            out[index] = _to_bins(plane, head.kind, range_, codebook, n_bins)
        return range_

    # textons take as long as ten filters, and would keep one thread busy at the end
    order = sorted(range(len(heads)), key=lambda index: heads[index].kind != "patch")
    ranges = dict(zip(order, side_by_side(learn, order, tell), strict=True))
    if bins[0][0].size >= LARGE:
        bank.transfer.cache_clear()  # those of large blocks take as much as several planes
    features = Features(
        bank,
        intensity,
        sigma,
        patch_weight,
        value_weight,
        n_bins,
        tuple(ranges[index] for index in range(len(heads))),
        codebook,
        tuple(head.name for head in heads),
        np.array([head.wavelength for head in heads]),
        np.array([head.weight for head in heads], np.float32),
    )
    return features, bins


def octaves_of(wavelengths: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Group channels by wavelength; each plain value is a group of its own."""
    filtered = [np.flatnonzero(wavelengths == w) for w in np.unique(wavelengths[wavelengths > 0])]
    return filtered + [np.array([c]) for c in np.flatnonzero(wavelengths == 0)]


def encode(planes: Planes, features: Features) -> NDArray[np.uint8]:
    """Bins of another image, using features learned before, uint8 (C, ...); of a stack, plane by plane."""
    if planes.bands[0].ndim > len(features.bank.spacing):
        return np.stack(side_by_side(lambda own: encode(own, features), slices_of(planes)), axis=1)
    return bins_of(features.recipes(planes), features)


def bins_of(channels: Sequence[Recipe], f: Features) -> NDArray[np.uint8]:
    """Bins, uint8 (C, ...), of the channels, given in the order of :attr:`Features.names`."""

    def encoded(index: int) -> NDArray[np.uint8]:
        channel = channels[index]
        return _to_bins(channel.values(), channel.kind, f.ranges[index], f.codebook, f.n_bins)

    return np.stack(side_by_side(encoded, range(len(channels))))


def _to_bins(
    values: NDArray[np.floating], kind: str, range_: Range, codebook: NDArray[np.floating], n_bins: int
) -> NDArray[np.uint8]:
    if kind == "patch":
        return nearest_textons(values, codebook)
    return quantize(values, range_, min(_VALUE_BINS, n_bins) if kind == "value" else n_bins)
