"""Textons: small patches, vector-quantised by k-means (Varma and Zisserman, IEEE PAMI 31(11), 2009).

Moduli keep how strong each frequency is, textons how frequencies line up. Patches and textons are multiples
of 1/64 between -8 and 8: sums of their products are exact in single precision, in any order.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from texseg.threads import kernels

PATCH_SIDE = 5  # pixels; side of the patches, and of other smallest neighbourhoods
_SIDE_IN_SPACE = 3  # of patches: about as many numbers
_SAMPLES = 4096  # patches from which a codebook is learned
_ITERATIONS = 10
_STRIP = 2**14  # patches compared at once
_UNIT = 64  # steps in one unit of the plane
_MOST = 8 * _UNIT - 1  # steps; 25 products of two such numbers, and as many squares, are below 2**24


def learn_codebook(
    planes: Sequence[NDArray[np.float32]],
    masks: Sequence[NDArray[np.bool_] | None],
    n_textons: int,
    side: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Find ``n_textons`` typical patches (n_textons, numbers) of planes or volumes by k-means."""
    share = max(1, _SAMPLES // len(planes))
    samples = []
    for plane, mask in zip(planes, masks, strict=True):
        n = plane.size if mask is None else np.count_nonzero(mask)
        chosen = rng.choice(n, min(share, n), replace=False)
        if mask is not None:
            chosen = np.flatnonzero(mask)[chosen]
        padded = _steps(plane, side)
        samples.append(patches_at(padded, np.unravel_index(chosen, plane.shape), side))
    patches = np.concatenate(samples)
    some = 4 * n_textons
    while len(first := np.unique(patches[:some], axis=0, return_index=True)[1]) < n_textons:
        if some >= len(patches):
            break
        some *= 4
    kept = np.sort(first)[:n_textons]  # distinct patches; if there are fewer, the last is repeated
    codebook = patches[np.concatenate([kept, np.full(n_textons - len(kept), kept[-1])])]
    for _ in range(_ITERATIONS):
        nearest = _nearest(patches, codebook)
        sizes = np.bincount(nearest, minlength=n_textons)
        order = np.argsort(nearest, kind="stable")
        starts = np.cumsum(sizes) - sizes
        filled = sizes > 0  # a texton without patches, as in a constant image, stays as it is
        sums = np.add.reduceat(patches[order], starts[filled], dtype=np.float64)
        codebook[filled] = np.rint(sums / sizes[filled, None])
    return codebook / np.float32(_UNIT)


def patches_at(
    padded: NDArray[np.float32], places: tuple[NDArray[np.intp], ...], side: int
) -> NDArray[np.float32]:
    """Patches (n, numbers) around some places, whose plane is padded by half a side."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side,) * padded.ndim)
    return windows[places].reshape(len(places[0]), side ** len(places))


def patch_side(n_axes: int) -> int:
    """Side of the patches in the plane, or in space."""
    return PATCH_SIDE if n_axes == 2 else _SIDE_IN_SPACE


def _steps(plane: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Multiples of the unit, padded by half a side."""
    padded: NDArray[np.float32] = np.pad(plane, side // 2, mode="symmetric")
    padded *= np.float32(_UNIT)
    return np.clip(np.rint(padded, out=padded), -_MOST, _MOST, out=padded)


def _nearest(patches: NDArray[np.float32], codebook: NDArray[np.float32]) -> NDArray[np.intp]:
    """Nearest texton (n,) of patches (n, d), both in steps; ties go to the first."""
    similarity = patches @ codebook.T
    similarity -= np.float32(0.5) * np.einsum("kd,kd->k", codebook, codebook)
    return similarity.argmax(axis=1)


def nearest_textons(plane: NDArray[np.float32], codebook: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Index of the texton nearest to every pixel's patch, uint8; the border is mirrored."""
    n_axes, (H, *across) = plane.ndim, plane.shape
    side = int(round(codebook.shape[1] ** (1 / n_axes)))
    padded = _steps(plane, side)
    steps = np.rint(codebook * np.float32(_UNIT))
    out = np.empty(plane.shape, np.uint8)
    if kernels is not None and n_axes == 2 and side == PATCH_SIDE:
        kernels.nearest(padded, np.ascontiguousarray(steps, np.float32), out, plane.shape[1])
        return out
    height = max(1, _STRIP // out[0].size)
    for top in range(0, H, height):
        strip = padded[top : min(top + height, H) + side - 1]
        windows = np.lib.stride_tricks.sliding_window_view(strip, (side,) * n_axes)
        order = (*range(n_axes, 2 * n_axes), *range(n_axes))
        table = np.ascontiguousarray(windows.transpose(order)).reshape(side**n_axes, -1)
        out[top : top + height] = _nearest(table.T, steps).reshape(-1, *across)
    return out
