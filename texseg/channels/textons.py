"""Patches as words: small neighbourhoods, vector-quantised by k-means.

The moduli of a filter bank keep how strong each frequency is, not how the frequencies line up. The joint
histogram of a small neighbourhood keeps that: every pixel is given the word of a codebook that is nearest
to the patch around it ([1]_). Words are bins like any other, so that this is one more channel.

References
----------
.. [1] M. Varma and A. Zisserman, A statistical approach to material classification using image patch
   exemplars, IEEE PAMI 31(11), 2009.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

__all__ = ["learn_codebook", "words"]

_SAMPLES = 4096  # patches that a codebook is learned from
_ITERATIONS = 10
_STRIP = 2**14  # patches that are compared at once


def learn_codebook(
    planes: Sequence[NDArray[np.float32]],
    masks: Sequence[NDArray[np.bool_] | None],
    n_words: int,
    side: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Find ``n_words`` typical patches by k-means.

    Parameters
    ----------
    planes : sequence of float32 arrays of shape (H, W)
    masks : sequence of bool arrays of the same shapes, or None
        Patches are centred on True pixels only.
    n_words : int
    side : int
        Of a patch in pixels, odd.
    rng : numpy.random.Generator

    Returns
    -------
    float32 array of shape (n_words, side * side)

    Examples
    --------
    >>> plane = np.tile(np.float32([0, 1]), (8, 4))
    >>> np.sort(learn_codebook([plane], [None], 2, 1, np.random.default_rng(2)), axis=0)
    array([[0.],
           [1.]], dtype=float32)
    """
    share = max(1, _SAMPLES // len(planes))
    samples = []
    for plane, mask in zip(planes, masks, strict=True):
        inside = np.flatnonzero(np.ones(plane.shape, bool) if mask is None else mask)
        chosen = rng.choice(inside, min(share, len(inside)), replace=False)
        rows, columns = np.unravel_index(chosen, plane.shape)
        padded = np.pad(plane, side // 2, mode="symmetric")
        offsets = np.arange(side)
        samples.append(
            padded[(rows[:, None, None] + offsets[:, None]), (columns[:, None, None] + offsets)].reshape(
                len(chosen), -1
            )
        )
    patches = np.concatenate(samples).astype(np.float64)
    start = patches[rng.choice(len(patches), n_words, replace=len(patches) < n_words)]
    with warnings.catch_warnings():  # a word without patches, as in a constant image, keeps its start
        warnings.filterwarnings("ignore", "One of the clusters is empty", UserWarning)
        codebook, _ = kmeans2(patches, start, iter=_ITERATIONS, minit="matrix", missing="warn")
    return codebook.astype(np.float32)


def words(plane: NDArray[np.float32], codebook: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Nearest word of every pixel's patch, uint8 (H, W); the border is mirrored.

    Examples
    --------
    >>> plane = np.zeros((4, 6), np.float32)
    >>> plane[:, 3:] = 1
    >>> words(plane, np.array([[0] * 9, [1] * 9], np.float32))[0]
    array([0, 0, 0, 1, 1, 1], dtype=uint8)
    """
    H, W = plane.shape
    side = int(round(np.sqrt(codebook.shape[1])))
    padded = np.pad(plane, side // 2, mode="symmetric")
    bias = 0.5 * np.einsum("kd,kd->k", codebook, codebook)
    out = np.empty((H, W), np.uint8)
    height = max(1, _STRIP // W)
    for top in range(0, H, height):
        strip = padded[top : min(top + height, H) + side - 1]
        windows = np.lib.stride_tricks.sliding_window_view(strip, (side, side))
        table = np.ascontiguousarray(windows.transpose(2, 3, 0, 1)).reshape(side * side, -1)
        similarity = table.T @ codebook.T
        similarity -= bias
        out[top : top + height] = similarity.argmax(axis=1).reshape(-1, W)
    return out
