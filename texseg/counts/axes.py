"""Neighbourhoods on grids of two or three axes: OpenCV filters planes, and then the columns through them.

Sides and sigmas are one number, or one for each axis; where they are 1 or 0, nothing happens along the axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.threads import kernels


def of_each(value: Any, n_axes: int) -> tuple[Any, ...]:
    """Give one value for each axis."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n_axes


def _separately(
    values: NDArray, sizes: tuple[Any, ...], apply: Callable[[NDArray, tuple[Any, Any]], NDArray], none: Any
) -> NDArray:
    """Filter each plane of the last two axes, then along the first of three axes."""
    if values.ndim == 2:
        return apply(values, sizes)
    if sizes[1:] != (none, none):
        values = np.stack([apply(plane, sizes[1:]) for plane in values])
    if sizes[0] == none:
        return values
    columns = apply(np.ascontiguousarray(values).reshape(len(values), -1), (sizes[0], none))
    return columns.reshape(-1, *values.shape[1:])


def dilated(values: NDArray, side: Any) -> Any:
    """Largest value in a box around each site."""
    sides = of_each(side, values.ndim)
    return _separately(values, sides, lambda plane, sides: cv2.dilate(plane, np.ones(sides, np.uint8)), 1)


def eroded(values: NDArray, side: Any) -> Any:
    """Smallest value in a box around each site."""
    sides = of_each(side, values.ndim)
    return _separately(values, sides, lambda plane, sides: cv2.erode(plane, np.ones(sides, np.uint8)), 1)


def beside(marked: NDArray[np.uint8]) -> Any:
    """Mark what is marked, and what shares an edge (of voxels, a face) with it."""
    cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
    if marked.ndim == 2:
        return cv2.dilate(marked, cross)
    return np.maximum(dilated(marked, (3, 1, 1)), np.stack([cv2.dilate(plane, cross) for plane in marked]))


def box_sums(values: NDArray, side: Any, border: int) -> NDArray:
    """Sum over a box around each site."""

    def summed(plane: NDArray, sides: tuple[int, int]) -> NDArray:
        return cv2.boxFilter(plane, -1, sides[::-1], normalize=False, borderType=border).reshape(plane.shape)

    return _separately(values, of_each(side, values.ndim), summed, 1)


def smoothed(values: NDArray, sigma: Any, border: int) -> NDArray:
    """Gaussian mean around each site."""

    def mean(plane: NDArray, sigmas: tuple[float, float]) -> NDArray:
        down, across = sigmas
        if down == across:
            return cv2.GaussianBlur(plane, (0, 0), down, borderType=border)
        sizes = (0 if across else 1, 0 if down else 1)
        return cv2.GaussianBlur(plane, sizes, across or 1e-3, sigmaY=down or 1e-3, borderType=border)

    return _separately(values, of_each(sigma, values.ndim), mean, 0)


def resized(values: NDArray, shape: Sequence[int], interpolation: int, out: NDArray | None = None) -> Any:
    """Values on a grid of another shape over the same area; those of an image may be written to ``out``."""
    if values.ndim == 2:
        return cv2.resize(values, (shape[1], shape[0]), out, interpolation=interpolation)
    if values.shape[1:] != tuple(shape[1:]):
        values = np.stack([cv2.resize(p, (shape[2], shape[1]), interpolation=interpolation) for p in values])
    if len(values) == shape[0]:
        return values
    columns = np.ascontiguousarray(values).reshape(len(values), -1)
    return cv2.resize(columns, (columns.shape[1], shape[0]), interpolation=interpolation).reshape(shape)


def shortened(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Shape of the grid of boxes of some steps that cover a grid."""
    return tuple(-(-length // step) for length, step in zip(shape, steps, strict=True))


def nearest_zero(marked: NDArray[np.uint8]) -> tuple[Any, int]:
    """Give the number, from 1, of the zero nearest to each site, zeros in row-major order; and how many."""
    if marked.ndim == 2:
        _, numbers = cv2.distanceTransformWithLabels(
            marked, cv2.DIST_L2, cv2.DIST_MASK_5, labelType=cv2.DIST_LABEL_PIXEL
        )
        return numbers, int(numbers.max())
    from scipy.ndimage import distance_transform_edt

    places = distance_transform_edt(marked, return_distances=False, return_indices=True)
    number = np.cumsum(marked.ravel() == 0, dtype=np.int32)
    return number[np.ravel_multi_index(tuple(places), marked.shape)], int(number[-1])


class Parts(NamedTuple):
    """Connected parts of a map of labels, numbered from 1 in the order of their first pixels."""

    places: NDArray[np.int32]  # part of every pixel; 0 where there is no data
    sizes: NDArray[np.intp]  # (parts + 1,), number of pixels
    labels: NDArray[np.int32]  # (parts + 1,); -1 for part 0
    first: NDArray[np.intp]  # (parts + 1,), flat index of the first pixel; -1 for part 0


def connected_parts(labels: NDArray[np.integer]) -> Parts:
    """Find the parts of labels, -1 without data; pixels are connected along their edges, voxels by faces."""
    labels = np.ascontiguousarray(labels, np.int32)
    if kernels is None:
        from skimage.measure import label

        found = label(labels + 1, background=0, connectivity=1)  # of volumes, in an order of its own
        first = np.full(int(found.max(initial=0)) + 1, -1)
        first[found.ravel()[::-1]] = np.arange(found.size)[::-1]  # the last one written stays
        first[0] = -1
        places = np.argsort(np.argsort(first)).astype(np.int32)[found]
        first, sizes = np.sort(first), np.bincount(places.ravel(), minlength=len(first))
        return Parts(places, sizes, np.append(np.int32(-1), labels.ravel()[first[1:]]), first)
    places, ends = np.empty(labels.shape, np.int32), np.ones(4, np.int64)  # of axes; number of parts
    ends[3 - labels.ndim : 3] = labels.shape
    kernels.number_parts(labels, places, ends)
    sizes = np.zeros(int(ends[3]) + 1, np.intp)
    first, own = np.full(len(sizes), -1), np.full(len(sizes), -1, np.int32)
    kernels.describe_parts(labels, places, sizes, first, own)
    return Parts(places, sizes, own, first)


def largest_part(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which sites are in the largest part of the marked ones; of equal parts, in the first."""
    parts = connected_parts(marked.astype(np.int32) - 1)
    return parts.places == 1 + np.append(parts.sizes[1:], 0).argmax()
