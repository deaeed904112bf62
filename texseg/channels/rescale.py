"""Whether images are encoded like those a model learned from, and how to rescale them if not."""

from collections.abc import Sequence

import numpy as np

from texseg.channels.planes import Planes
from texseg.channels.quantize import Range, robust_range
from texseg.channels.responses import Intensity, measured

_FACTORS = tuple(f for n in (2.0, 10.0, 16.0, 100.0, 255.0, 256.0, 257.0, 1e3, 65535.0) for f in (n, 1 / n))
_NEAR_FACTOR = 0.3  # tolerance of its natural logarithm: similar scenes fill their range only roughly alike
_OTHER_UNIT = 8.0  # ratio of the ranges beyond which scenes alone cannot explain it
_MOST_OUTSIDE = 0.5
_ROOM = 0.25  # margin beyond the learned range, in ranges


def mismatch(images: Sequence[Planes], intensity: Intensity) -> str | None:
    """Say whether images seem to be encoded differently from those learned from, and by which factor."""
    here, there = _ranges(images, intensity.log_offset), _learned(intensity)
    for band, (new, old) in enumerate(zip(here, there, strict=True)):
        width = old.high - old.low
        if not (width > 0 and new.high > new.low):
            continue
        pairs = [(planes.bands[band], planes.mask) for planes in images]
        values = np.concatenate([v.ravel() if m is None else v[m] for v, m in pairs])
        outside = (values < old.low - _ROOM * width) | (values > old.high + _ROOM * width)
        factor = (new.high - new.low) / width
        if outside.mean() > _MOST_OUTSIDE or not 1 / _OTHER_UNIT <= factor <= _OTHER_UNIT:
            return (
                f"values go from {new.low:g} to {new.high:g} and the model learned from {old.low:g} to "
                f"{old.high:g}, {_as_if(factor, new, old)}; if the scene is stored in another way, "
                "rescale=True (--rescale) brings it to what was learned"
            )
    return None


def rescaled(images: Sequence[Planes], intensity: Intensity) -> list[Planes]:
    """Map the ranges of images, all encoded alike, to the learned ones."""
    maps = []
    for new, old in zip(_ranges(images, intensity.log_offset), _learned(intensity), strict=True):
        factor = (old.high - old.low) / (new.high - new.low) if new.high > new.low else 1.0
        maps.append((new.low, factor, old.low))
    return [
        planes._replace(
            bands=[
                (band.astype(np.float64) - low) * factor + base
                for band, (low, factor, base) in zip(planes.bands, maps, strict=True)
            ]
        )
        for planes in images
    ]


def to_grey(planes: Planes) -> Planes:
    """Luminance of an image with three bands, in their unit; other images unchanged."""
    if len(planes.bands) != 3:
        return planes
    from skimage.color import rgb2gray  # slow to import

    return planes._replace(bands=[rgb2gray(np.stack(planes.bands, axis=-1).astype(np.float64))])


def _ranges(images: Sequence[Planes], log_offset: float) -> list[Range]:
    """Range of each band; one common range for the three bands of RGB images."""
    found = []
    for index in range(len(images[0].bands)):
        values = [measured(planes.bands[index], log_offset) for planes in images]
        found.append(_unlogged(robust_range(values, [planes.mask for planes in images]), log_offset))
    if len(found) == 3:
        found = [Range(min(r.low for r in found), max(r.high for r in found))] * 3
    return found


def _learned(intensity: Intensity) -> list[Range]:
    ends = zip(intensity.low.tolist(), intensity.high.tolist(), strict=True)
    return [_unlogged(Range(low, high), intensity.log_offset) for low, high in ends]


def _unlogged(range_: Range, offset: float) -> Range:
    return Range(*(float(np.exp(end) - offset) for end in range_)) if offset else range_


def _as_if(factor: float, new: Range, old: Range) -> str:
    """Name the factor, rounded to that of a common way to store images if near, or the constant added."""
    near = min(_FACTORS, key=lambda f: abs(np.log(factor / f)))
    if abs(np.log(factor / near)) < _NEAR_FACTOR:
        factor = near
    if abs(np.log(factor)) < _NEAR_FACTOR:
        return f"as if {new.low - old.low:g} was added"
    name = f"{factor:.4g}" if factor > 1 else f"1/{1 / factor:.4g}"
    return f"as if multiplied by {name}"
