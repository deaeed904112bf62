"""The channels of an image: filter moduli of its lightness, patches, and its plain values."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.gabor import GaborBank
from texseg.channels.planes import Planes
from texseg.channels.quantize import FARTHEST, Range, bulk_of, robust_range, to_unit
from texseg.channels.textons import PATCH_SIDE
from texseg.counts.axes import resized, shortened, smoothed

_REDUCTION = 4  # the local mean and contrast are smooth: they are computed on a grid this many times coarser
_LOG_OFFSET = 0.05  # medians; .01 and .1 are no better under vignetting, and .01 is worse without
_VALUES_OF_LOG = 0.25  # of the weight of plain values, which light changes: 1 fails under gains, 0 on levels
_MAX_COMPONENTS = 6  # value channels of an image with many bands
_COLOUR_WEIGHT = 8.0  # all value channels of a colour image together; one filter channel has weight 1
PATCH_REACH = 1.3 * PATCH_SIDE  # wavelength of the filters that reach as far as a patch of 5 pixels
_PATCH_CONTRAST = 0.3  # share of the image's contrast used to level patches; 1 for filters
_LAB_SHARES = (2 / 8, 3 / 8, 3 / 8)


class Recipe(NamedTuple):
    """One real-valued channel of an image, whose values are computed on demand, in any thread."""

    name: str
    values: Callable[[], NDArray[np.floating]]  # computes the values, in the shape of the image
    kind: str
    """"modulus" of a filter, "value", or "patch" (the plane whose neighbourhoods are vector-quantised)."""
    wavelength: float  # scale in pixels; 0 for plain values, which have none
    weight: float


class Intensity(NamedTuple):
    """What is learned about an image's intensities, so that another image is treated in the same way."""

    low: NDArray[np.float64]
    """Lower end of the range of each band, shape (B,); equal for the bands of an RGB image."""
    high: NDArray[np.float64]
    axes: NDArray[np.float64]
    """Principal axes of the bands, shape (components, B); empty for grey and RGB images."""
    contrast: float  # standard deviation of the lightness after the local mean is subtracted
    log_offset: float = 0.0
    """Added to the values before taking their logarithm; 0 means no logarithm."""


def measured(band: NDArray[Any], log_offset: float) -> NDArray[Any]:
    """Values of a band on the scale of its range: their logarithms, unless the offset is 0."""
    return np.log(np.maximum(band, 0) + log_offset) if log_offset else band


def learn_intensity(
    images: Sequence[Planes], sigma: float, logarithm: bool = False, spacing: Sequence[float] = (1, 1)
) -> Intensity:
    """Learn ranges, axes and contrast (below ``sigma`` pixels) from images of equally many bands."""
    masks = [planes.mask for planes in images]
    bands = list(zip(*(planes.bands for planes in images), strict=True))
    offset = _log_offset(bands, masks) if logarithm else 0.0
    ranges = [robust_range([measured(plane, offset) for plane in band], masks) for band in bands]
    low = np.array([r.low for r in ranges])
    high = np.array([r.high for r in ranges])
    if len(ranges) == 3:  # RGB: one range, or colours would shift
        low[:], high[:] = low.min(), high.max()
    intensity = Intensity(low, high, np.empty((0, len(ranges))), 0.0, offset)
    if len(ranges) not in (1, 3):
        tables = []
        for planes in images:
            unit = _unit_planes(planes.bands, intensity)
            tables.append(np.stack([u.ravel() if planes.mask is None else u[planes.mask] for u in unit]))
        table = np.concatenate(tables, axis=1)
        _, vectors = np.linalg.eigh(np.cov(table, ddof=min(1, table.shape[1] - 1)))  # one pixel: no variance
        leading = vectors.T[::-1][:_MAX_COMPONENTS]
        sign = np.sign(leading[np.arange(len(leading)), np.abs(leading).argmax(axis=1)])
        intensity = intensity._replace(axes=leading * sign[:, None])
    variances, sizes = [], []
    for planes in images:
        if planes.mask is not None and not planes.mask.any():  # a plane of a stack
            continue
        lightness, _ = _unit_values(planes.bands, intensity)
        detail = lightness - _local_mean(lightness, sigma, spacing)
        valid = detail if planes.mask is None else detail[planes.mask]
        variances.append(valid.var(dtype=np.float64))
        sizes.append(valid.size)
    return intensity._replace(contrast=float(np.sqrt(np.average(variances, weights=sizes))))


def _log_offset(bands: Sequence[Sequence[NDArray[Any]]], masks: Sequence[NDArray[np.bool_] | None]) -> float:
    """Give the offset, from the least of all bands' medians of positive values."""
    bulks = [bulk_of(band, masks).values for band in bands]
    lowest = min(float(bulk.min()) for bulk in bulks)
    if lowest < 0:
        raise ValueError(
            f"log=True needs values of at least 0, but the image goes down to {lowest:.6g}; leave it out for "
            "values that are logarithms already (decibels), or add a constant first"
        )
    medians = [float(np.median(bulk[bulk > 0])) for bulk in bulks if (bulk > 0).any()]
    return _LOG_OFFSET * min(medians, default=1.0)


def _unit_planes(bands: list[NDArray[Any]], intensity: Intensity) -> list[NDArray[np.floating]]:
    """Values on the unit scale; filters would spread a lone pixel far outside: it takes their median."""
    units = []
    for band, *ends in zip(bands, intensity.low, intensity.high, strict=True):
        unit = to_unit(measured(band, intensity.log_offset), Range(*ends))
        far = (unit <= FARTHEST.low) | (unit >= FARTHEST.high)
        if far.any():
            planes = unit.reshape(-1, *unit.shape[-2:])
            medians = np.stack([cv2.medianBlur(plane, PATCH_SIDE) for plane in planes])
            unit = np.where(far, medians.reshape(unit.shape), unit)
        units.append(unit)
    return units


def _unit_values(
    bands: list[NDArray[Any]], intensity: Intensity
) -> tuple[NDArray[np.floating], list[NDArray[np.floating]]]:
    """Lightness (the plane that is filtered) and the plain value planes, all as unit values."""
    unit = _unit_planes(bands, intensity)
    if len(unit) == 1:
        return unit[0], unit
    stacked = np.stack(unit, axis=-1)
    if not len(intensity.axes):
        # OpenCV stays in float32; skimage would use float64 and twice the memory
        flat = np.clip(stacked, 0, 1).reshape(-1, *stacked.shape[-2:])
        values = cv2.cvtColor(flat, cv2.COLOR_RGB2LAB).reshape(stacked.shape) / np.float32(100)
    else:
        values = stacked @ intensity.axes.T.astype(np.float32)
    planes = [np.ascontiguousarray(values[..., k]) for k in range(values.shape[-1])]
    return planes[0], planes


def _local_mean(plane: NDArray[np.floating], sigma: float, spacing: Sequence[float]) -> NDArray[np.floating]:
    """Gaussian mean with mirrored borders, computed on a coarser grid."""
    steps = [max(1, round(_REDUCTION / unit)) for unit in spacing]
    reduced = resized(plane, shortened(plane.shape, steps), cv2.INTER_AREA)
    sigmas = tuple(sigma / unit / step for unit, step in zip(spacing, steps, strict=True))
    blurred = smoothed(reduced, sigmas, cv2.BORDER_REFLECT)
    return np.asarray(resized(blurred, plane.shape, cv2.INTER_LINEAR), np.float32)


def flatten_illumination(
    lightness: NDArray[Any], sigma: float, contrasts: Sequence[float], spacing: Sequence[float] = (1, 1)
) -> list[NDArray[Any]]:
    """Subtract the local mean and divide by the local deviation plus each of the ``contrasts``."""
    detail = lightness - _local_mean(lightness, sigma, spacing)
    spread = _local_mean(detail * detail, sigma, spacing)
    np.sqrt(np.maximum(spread, 0, out=spread), out=spread)
    sums = [spread + np.float32(max(contrast, 1e-6)) for contrast in contrasts]
    return [np.divide(detail, each, out=each) for each in sums]


def form_of(planes: Planes, intensity: Intensity, sigma: float, spacing: Sequence[float]) -> NDArray[Any]:
    """Give the plane that patches come from; computed only once."""
    told_by = planes.bands, intensity
    if not planes.kept or not all(map(is_, told_by, planes.kept[0])):
        lightness, _ = _unit_values(planes.bands, intensity)
        contrasts = [_PATCH_CONTRAST * intensity.contrast]
        planes.kept[:] = told_by, *flatten_illumination(lightness, sigma, contrasts, spacing)
    form: NDArray[Any] = planes.kept[1]
    return form


def recipes(
    planes: Planes,
    intensity: Intensity,
    bank: GaborBank | None,
    sigma: float,
    patch_weight: float = 0.0,
    value_weight: float = 1.0,
    spacing: Sequence[float] = (1, 1),
) -> list[Recipe]:
    """List the channels of an image: the bank's moduli of the lightness, patches, plain values."""
    lightness, values = _unit_values(planes.bands, intensity)
    channels = []
    if bank is not None:  # moduli measure the contrast of a texture; patches only its form
        contrasts = [intensity.contrast, _PATCH_CONTRAST * intensity.contrast][: 1 + (patch_weight > 0)]
        flat, *form = flatten_illumination(lightness, sigma, contrasts, spacing)
        planes.kept[:] = [(planes.bands, intensity), *form] * bool(form)
        spectrum = bank.spectrum(flat)
        for filter in bank.filters:
            modulus = partial(bank.modulus, spectrum, filter)
            channels.append(Recipe(filter.name, modulus, "modulus", filter.wavelength, 1.0))
    if patch_weight > 0:
        patches = partial(form_of, planes, intensity, sigma, spacing)
        channels.append(Recipe("patch", patches, "patch", PATCH_REACH, patch_weight))
    if len(values) == 1:
        names, shares = ["value"], [1.0]
    elif len(intensity.axes):
        names = [f"component {k + 1}" for k in range(len(values))]
        shares = [_COLOUR_WEIGHT / len(values)] * len(values)
    else:
        names, shares = ["L", "a", "b"], [_COLOUR_WEIGHT * share for share in _LAB_SHARES]
    if intensity.log_offset:
        value_weight *= _VALUES_OF_LOG
    if value_weight > 0:
        for name, plane, share in zip(names, values, shares, strict=True):
            channels.append(Recipe(name, partial(np.asarray, plane), "value", 0.0, value_weight * share))
    return channels
