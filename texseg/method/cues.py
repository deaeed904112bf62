"""Whether an image is divided by its textures or by plain values at the scale of pixels.

Grains, pores and stained cells differ only in brightness or colour, and are smaller than any window that
could capture a texture. Two maps are then compared by four numbers: how unsure the map by texture is; how
ragged it is, that is, how much of a label's entropy is left when the labels beside it are known; which share
of the labels by values is told by the values of their pixels; and which share of the labels by texture is
not. Each counts by its logarithm, with weights that were learned by logistic regression, in which an image
counts by how far apart the two maps are. Pictures of flat areas have no texture: labels that explain nearly
all of their values are taken at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.method.textures import Scene

_WEIGHTS = (0.66, 1.5, 2.1, 0.96)  # of doubt, raggedness, share and rest; learned from 364 images
_CONSTANT = 8.4  # learned with them
_FLAT = 0.9  # share of pixels like the one beside them
_REST = 0.02  # of the variance of values, which labels of flat areas leave
_ROWS = 256  # rows of pixels compared at once
_STRIDE = 2  # pixels; information is measured on every second row and column


Maps = Sequence[NDArray[np.integer]]
"""Labels of one image per scene, from 1; pixels without data (0) and flat background are skipped."""


def raggedness(labels: Maps, scenes: Sequence[Scene]) -> float:
    """Entropy of a label given the labels left and above, as a share of its entropy."""
    K, kept = _number(labels), _judged(labels, scenes)
    sizes, table = np.zeros(K), np.zeros((K, K, K), np.intp)
    for image in kept:
        sizes += _sizes(image, K)
        for plane in image.reshape(-1, *image.shape[-2:]):
            for top in range(0, len(plane) - 1, _ROWS):
                rows = plane[top : top + _ROWS + 1]
                corners = (rows[1:, :-1] * K + rows[:-1, 1:]) * K + rows[1:, 1:]
                table += np.bincount(corners.ravel(), minlength=K**3).reshape(K, K, K)
    counts, entropy = table[1:, 1:, 1:], _entropy(sizes)
    return (_entropy(counts) - _entropy(counts.sum(axis=2))) / entropy if entropy > 0 else 0.0


def share_of_values(labels: Maps, scenes: Sequence[Scene], features: Features) -> float:
    """Share of the labels' entropy that the plain values of single pixels tell (Theil's uncertainty)."""
    sizes, tables = _tables(labels, scenes, features)
    entropy = _entropy(sizes)
    if entropy <= 0:
        return 0.0
    of_values = features.weights[features.wavelengths == 0]
    weights = of_values / max(of_values.sum(), 1e-9)
    return float(weights @ [_information(table) for table in tables]) / entropy


def are_flat(scenes: Sequence[Scene], features: Features) -> bool:
    """Whether nearly all pixels have the plain values of a neighbour."""
    planes = [plane for scene in scenes for plane in scene.bins[features.wavelengths == 0]]
    changes = [np.count_nonzero(plane[..., 1:] != plane[..., :-1]) for plane in planes]
    return all(n < (1 - _FLAT) * plane.size for n, plane in zip(changes, planes, strict=True))


def are_exact(labels: Maps, scenes: Sequence[Scene], features: Features) -> bool:
    """Whether the labels explain nearly all variance of the plain values: there is no texture in them."""
    within = total = 0.0
    for table in _tables(labels, scenes, features)[1]:
        bins, sizes = np.arange(features.n_bins), table.sum(axis=1)
        squares, sums = table.sum(axis=0) @ bins**2, table @ bins
        within += squares - (sums**2 / np.maximum(sizes, 1)).sum()
        total += squares - sums.sum() ** 2 / max(sizes.sum(), 1)
    return within <= _REST * total


def _tables(
    labels: Maps, scenes: Sequence[Scene], features: Features
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pixels of each label (K,), and of each label and bin of each plain value (C, K, bins), thinned."""
    K, of_values = _number(labels), np.flatnonzero(features.wavelengths == 0)
    sizes, tables = np.zeros(K), np.zeros((len(of_values), K * features.n_bins))
    for image, scene in zip(_judged(labels, scenes), scenes, strict=True):
        sizes += _sizes(image, K)
        thinned = (slice(None, None, _STRIDE),) * image.ndim
        thin = image[thinned]
        held = thin > 0
        for table, plane in zip(tables, scene.bins[of_values], strict=True):
            joint = features.n_bins * thin[held] + plane[thinned][held]
            table += np.bincount(joint, minlength=len(table))
    return sizes, tables.reshape(len(tables), K, -1)


def odds_of_values(confidence: float, ragged: float, told: float, share: float = 1.0) -> float:
    """Log-odds that a map by values is the better one.

    ``confidence`` is the mean of the map by texture, ``ragged`` its raggedness, ``told`` its share that
    values tell, and ``share`` that of the map by values: with 1, these are the largest odds of any such map.

    Examples
    --------
    >>> odds_of_values(0.98, 0.005, 0.2) < 0, odds_of_values(0.6, 0.03, 0.2, 0.7) > 0
    (True, True)
    """
    numbers = [1 - confidence, ragged, share, 1 - told]
    return _CONSTANT + float(np.dot(_WEIGHTS, np.log(np.maximum(numbers, [1e-3, 1e-4, 1e-4, 1e-2]))))


def _number(labels: Maps) -> int:
    return max(int(image.max()) for image in labels) + 1


def _judged(labels: Maps, scenes: Sequence[Scene]) -> list[NDArray[np.int32]]:
    """Labels with 0 on flat background and without data."""
    kept = []
    for image, scene in zip(labels, scenes, strict=True):
        judged = image.astype(np.int32)
        for left_out in (scene.ground, None if scene.mask is None else ~scene.mask):
            if left_out is not None:
                judged[left_out] = 0
        kept.append(judged)
    return kept


def _sizes(image: NDArray[np.int32], n_labels: int) -> NDArray[np.intp]:
    """Pixels of each label but 0, thinned."""
    thin = image[(slice(None, None, _STRIDE),) * image.ndim]
    return np.bincount(thin[thin > 0], minlength=n_labels)


def _information(table: NDArray[np.floating]) -> float:
    """Mutual information of the rows and columns of a table of counts, in nats."""
    return _entropy(table.sum(axis=0)) + _entropy(table.sum(axis=1)) - _entropy(table.ravel())


def _entropy(counts: NDArray) -> float:
    """Entropy of counts, in nats."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return -float(shares @ np.log(shares))
