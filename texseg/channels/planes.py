"""An image split into finite planes, and where it holds data."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import nearest_zero


class NoValidPixels(ValueError):
    """All pixels of an image are masked or have no data."""


class Planes(NamedTuple):
    """An image as real planes with its holes filled in."""

    bands: list[NDArray[Any]]  # each (H, W), or (D, H, W), in the image's own dtype and unit; finite
    mask: NDArray[np.bool_] | None  # True where there is data; None if there is data everywhere
    kept: list[Any]  # the plane that patches come from, once computed, after what it was computed from


def slices_of(planes: Planes) -> list[Planes]:
    """Give the planes of a stack, as images."""
    masks = [None] * len(planes.bands[0]) if planes.mask is None else list(planes.mask)
    return [Planes(list(bands), mask, []) for *bands, mask in zip(*planes.bands, masks, strict=True)]


def split_planes(
    image: Any,
    *,
    channel_axis: int | None = None,
    mask: NDArray[Any] | None = None,
    nodata: float | None = None,
    n_axes: int = 2,
) -> Planes:
    """Check an image, bands along ``channel_axis``, and split it into finite planes and a mask.

    Pixels that are masked, not finite, or have the value ``nodata`` in any band (0: in every band) hold no
    data; holes are filled with the texture mirrored at their edge, so that filters near them see no step. An
    image whose bands are all equal becomes one band. ``n_axes`` of space are 3 for volumes and stacks.
    """
    bands = _bands(image, channel_axis, n_axes)
    bands = [band.astype(np.uint8) if band.dtype == bool else band for band in bands]
    valid = _valid_pixels(bands, mask, nodata)
    valid &= ~_hidden(image, channel_axis)
    if all(np.array_equal(bands[0], band, equal_nan=band.dtype.kind == "f") for band in bands[1:]):
        bands = bands[:1]
    if valid.all():
        return Planes(bands, None, [])
    if not valid.any():
        raise NoValidPixels(
            f"no valid pixels in the image of shape {valid.shape}: all are masked or no data"
            + _dead_bands(bands, nodata)
        )
    source = _mirror_index(valid)
    return Planes([band[source] for band in bands], valid, [])


def _bands(image: Any, channel_axis: int | None, n_axes: int) -> list[NDArray[Any]]:
    """Bands of an image; an error if it is not an image."""
    if channel_axis is not None and not isinstance(channel_axis, (int, np.integer)):
        raise TypeError(f"channel_axis must be one whole number or None, got {channel_axis!r}")
    array = np.asarray(image)
    if array.dtype.kind not in "buif":
        raise TypeError(f"image must hold real numbers, got dtype {array.dtype} of shape {array.shape}")
    expected = n_axes + (channel_axis is not None)
    if array.ndim < 2:
        raise ValueError(
            f"image must have {expected} axes with channel_axis={channel_axis}, got shape {array.shape}; "
            "a list stands for several images, so pass nested lists through numpy.asarray"
        )
    if array.ndim != expected:
        if n_axes == 3 and array.ndim == expected - 1:
            raise ValueError(
                f"image must be a volume, planes first, got shape {array.shape}; try image[None]"
            )
        raise ValueError(
            f"image must have {expected} axes with channel_axis={channel_axis}, got shape {array.shape}; "
            "a colour image needs channel_axis, for example -1 (model.channel_axis = -1 after a fit), a "
            "volume spatial_dims=3, a stack planes='z'; several images are passed as a list"
        )
    if array.size == 0:
        raise ValueError(f"image is empty, got shape {array.shape}")
    if channel_axis is None:
        return [array]
    if not -expected <= channel_axis < expected:
        raise ValueError(
            f"channel_axis must be {-expected} to {expected - 1} for an image with {expected} axes, "
            f"got {channel_axis}"
        )
    return list(np.moveaxis(array, channel_axis, 0))


def non_finite(image: Any, channel_axis: int | None = None, mask: Any = None) -> int:
    """Count the pixels with a NaN or an infinity in any band, only within ``mask`` if it is given."""
    array = np.asarray(image)
    if array.dtype.kind != "f":
        return 0
    bad = ~np.isfinite(array)
    bad = bad if channel_axis is None else bad.any(axis=channel_axis)
    if mask is not None:
        bad &= np.asarray(mask) != 0
    return int(np.count_nonzero(bad & ~_hidden(image, channel_axis)))


def _hidden(image: Any, channel_axis: int | None) -> Any:
    """Pixels that a masked array hides in any band."""
    is_masked = hasattr(image, "mask") and isinstance(image, np.ma.MaskedArray)  # a late import
    hidden = np.ma.getmaskarray(image) if is_masked else np.zeros((), bool)
    return hidden.any(axis=channel_axis) if hidden.ndim and channel_axis is not None else hidden


def shown_by(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Pixels that a mask shows: every number but zero."""
    if mask.dtype.kind not in "buif":
        raise TypeError(f"mask must hold booleans or real numbers, got dtype {mask.dtype}")
    shown: NDArray[np.bool_] = (mask > 0) | (mask < 0)
    return shown


def _valid_pixels(
    bands: list[NDArray[Any]], mask: NDArray[Any] | None, nodata: float | None
) -> NDArray[np.bool_]:
    if nodata is not None and not isinstance(nodata, Real):
        raise TypeError(f"nodata must be a real number, got {nodata!r}")
    shape = bands[0].shape
    valid = np.ones(shape, bool)
    if mask is not None:
        given = np.asarray(mask)
        if given.shape != shape:
            raise ValueError(f"mask shape {given.shape} does not match image {shape}")
        valid &= shown_by(given)
    for band in bands:
        if band.dtype.kind == "f":
            valid &= np.isfinite(band)
    if nodata is not None and np.isfinite(nodata):
        held = [band == nodata for band in bands]
        valid &= ~(np.logical_and.reduce(held) if nodata == 0 else np.logical_or.reduce(held))
    return valid


def _dead_bands(bands: list[NDArray[Any]], nodata: float | None) -> str:
    """If only some bands have no data, name them and say how to leave them out."""
    dead = [
        i
        for i, band in enumerate(bands)
        if (band.dtype.kind == "f" and not np.isfinite(band).any()) or (nodata and (band == nodata).all())
    ]
    if not 0 < len(dead) < len(bands):
        return ""
    numbers = ", ".join(map(str, dead))
    return f", since band {numbers} (counted from 0) holds none; leave it out: np.delete(image, {dead}, axis)"


def _mirror_index(valid: NDArray[np.bool_]) -> tuple[NDArray[np.intp], ...]:
    """Index of the pixel whose value each pixel takes: itself, or its mirror image at the nearest valid."""
    numbers, n = nearest_zero((~valid).view(np.uint8))
    number = np.zeros(n + 1, np.intp)
    number[numbers[valid]] = np.flatnonzero(valid)
    nearest = np.stack(np.unravel_index(number[numbers], valid.shape))
    here = np.indices(valid.shape)
    last = np.subtract(valid.shape, 1).reshape(-1, *[1] * valid.ndim)
    mirror = np.clip(2 * nearest - here, 0, last)
    lands = valid[tuple(mirror)]
    return tuple(np.where(lands, mirror, nearest))
