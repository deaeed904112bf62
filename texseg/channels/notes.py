"""What a user should know about the values of an image before it is divided by texture."""

from collections.abc import Sequence
from operator import is_
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.planes import Planes, slices_of
from texseg.channels.quantize import Bulk, bulk_of
from texseg.threads import side_by_side

_HEAVY = 0.001  # share of the values beyond the fence that is worth a note; single hot pixels are not
_SLICES = 8  # of a volume, whose values are looked at
_BLOCK = 24  # pixels, side of the blocks used to detect shading
_MOST_BLOCKS = 1024  # of an image
_MOST_COMPARED = 4096  # of all images; every block is compared with every other
_FEWEST_BLOCKS = 12
_LAGS = (1, 2, 4)  # pixels
_ALIKE = 4  # most similar blocks with which each one is compared
_SURELY_TOGETHER = 0.7  # correlation under sonar, speckle, vignetting, gains; .6 loses .003 on photographs
_ONE_FACTOR = (0.83, 1.35)  # slope of the log contrast over the log mean; around 1, since noise biases it


def notes_on(
    images: Sequence[Planes], originals: Sequence[Planes], logarithm: bool | None
) -> tuple[bool, list[str]]:
    """Tell whether to use the logarithm of the values, if that is not given, and describe what is unusual.

    The logarithm is used where light, gains or speckle multiply the values: contrast is proportional to
    brightness. ``originals`` are the images with their flat background.
    """
    pictures = _pictures(images)
    bulks = _bulks(pictures)
    seen = bulks if all(map(is_, images, originals)) else _bulks(originals)
    notes = []
    for value, share in dict(sorted(pair for bulk in seen for pair in bulk.extremes)).items():
        name = f"{value:g}"
        if float(name) != value:  # the shortest that reads back as the same
            name = str(images[0].bands[0].dtype.type(value))
        notes.append(
            f"{100 * share:.2g} % of the pixels hold the single value {name}, an isolated value: if it marks "
            f"missing data, pass nodata={name} (--nodata {name}); otherwise it becomes a segment of its own"
        )
    heavy = max(bulk.share for bulk in bulks)
    if heavy >= _HEAVY:
        notes.append(
            f"{100 * heavy:.2g} % of the pixels are outliers and were clipped to the range of the rest"
        )
    return _multiply(pictures, bulks) if logarithm is None else logarithm, notes


def _pictures(images: Sequence[Planes]) -> Sequence[Planes]:
    """Give the images, or some planes of each volume, evenly spread."""
    if images[0].bands[0].ndim == 2:
        return images
    return [own for planes in images for own in slices_of(planes)[:: max(1, len(planes.bands[0]) // _SLICES)]]


def _multiply(images: Sequence[Planes], bulks: Sequence[Bulk]) -> bool:
    """Whether light, gains or speckle multiply the values."""
    if any(band.min() < 0 for planes in images for band in planes.bands):
        return False
    fences = [(bulk.values.min(), bulk.values.max()) for bulk in bulks]
    shading = _shading_of(np.concatenate([_blocks(planes, fences) for planes in images]))
    return shading is not None and (
        shading[0] >= _SURELY_TOGETHER and _ONE_FACTOR[0] <= shading[1] <= _ONE_FACTOR[1]
    )


def _bulks(images: Sequence[Planes]) -> list[Bulk]:
    masks = [planes.mask for planes in images]
    return [bulk_of(band, masks) for band in zip(*(planes.bands for planes in images), strict=True)]


def _shading_of(blocks: NDArray[np.floating]) -> tuple[float, float] | None:
    """Correlation and slope of log contrasts over log means of blocks (n, side, side) that look alike."""
    if len(blocks) < _FEWEST_BLOCKS:
        return None
    blocks = blocks[:: -(-len(blocks) // _MOST_COMPARED)]
    means = blocks.mean(axis=(1, 2))
    shifts = [(y * lag, x * lag) for lag in _LAGS for y, x in ((0, 1), (1, 0), (1, 1), (1, -1))]
    contrasts = np.stack(side_by_side(lambda shift: _contrast(blocks, *shift), shifts), axis=1)
    usable = (means > 0) & (contrasts > 1e-6 * np.abs(means)[:, None]).all(axis=1)
    if usable.sum() < _FEWEST_BLOCKS:
        return None
    brightness, logs = np.log(means[usable]), np.log(contrasts[usable])
    contrast = logs.mean(axis=1)
    form = (logs - contrast[:, None]).astype(np.float32)
    _, alike = cv2.batchDistance(form, form, cv2.CV_32F, K=_ALIKE + 1)
    a, b = ((values[:, None] - values[alike[:, 1:]]).ravel() for values in (brightness, contrast))
    square = float(a @ a) + 1e-12
    together = float(a @ b) / np.sqrt(square * float(b @ b) + 1e-12)
    return together, float(a @ b) / square


def _blocks(planes: Planes, fences: Sequence[tuple[Any, Any]]) -> NDArray[np.floating]:
    """Blocks of the mean band without holes, float (n, side, side), evenly spread; ``fences`` clip bands."""
    rows, columns = (length // _BLOCK for length in planes.bands[0].shape)
    step = max(1, int(np.ceil(np.sqrt(rows * columns / _MOST_BLOCKS))))

    def cut(plane: NDArray) -> NDArray:
        inside = plane[: rows * _BLOCK, : columns * _BLOCK].reshape(rows, _BLOCK, columns, _BLOCK)
        return inside[::step, :, ::step].swapaxes(1, 2).reshape(-1, _BLOCK, _BLOCK)

    whole = slice(None) if planes.mask is None else cut(planes.mask).all(axis=(1, 2))
    bands = [np.clip(cut(band)[whole], *fence) for band, fence in zip(planes.bands, fences, strict=True)]
    return np.mean(bands, axis=0, dtype=np.float64)


def _contrast(blocks: NDArray[np.floating], down: int, across: int) -> NDArray[np.floating]:
    """Root mean square difference (n,) of the pixels of blocks and those some rows and columns away."""
    left, right = max(-across, 0), max(across, 0)
    one, other = blocks[:, : _BLOCK - down, left : _BLOCK - right], blocks[:, down:, right : _BLOCK - left]
    return np.asarray(np.sqrt(np.mean((one - other) ** 2, axis=(1, 2))))
