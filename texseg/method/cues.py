"""Whether an image is divided by its textures or by plain values at the scale of pixels.

Grains, pores and stained cells differ only in brightness or colour, and are smaller than any window that
could capture a texture. Two maps are then compared by four numbers: how unsure the map by texture is; how
ragged it is, that is, how much of a label's entropy is left when the labels beside it are known; which share
of the labels by values is told by the values of their pixels, over the rest of them; and which share of the
labels by texture is not told. Each counts by its logarithm, with weights that were learned by logistic
regression, in which an image counts by how far apart the two maps are. Pictures of flat areas have no
texture: labels that explain nearly all of their values are taken at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.method.textures import Scene

_WEIGHTS = (0.39, 1.28, 0.79, 0.8)  # of doubt, raggedness, told and not told; learned from 1264 images
_CONSTANT = 4.8  # learned with them
_UNTOLD = 0.1  # least share of labels that counts as not told; less costs time, and gains nothing
_FLAT = 0.9  # share of pixels like the one beside them; of cells with few values, where .8 to .95 do as well
_LEVELS = 255  # of mean values of cells that count as one; 31 to 1023 do as well
EXACT = 0.02  # of the variance of values, which labels of flat areas leave
_ROWS = 256  # rows of pixels compared at once
_STRIDE = 2  # pixels; information is measured on every second row and column


def measured(labels: Sequence[NDArray], scenes: Sequence[Scene], features: Features) -> tuple[float, ...]:
    """Measure how ragged labels are, and how far they and the values of single pixels tell each other.

    The entropy of a label given the labels left and above, and the part of it that values tell (Theil's
    uncertainty), as shares of its entropy; and the share of the values' variance that labels leave.
    """
    K, of_values = max(int(image.max()) for image in labels) + 1, np.flatnonzero(features.wavelengths == 0)
    sizes, corners, tables = np.zeros(K), np.zeros(K**3), np.zeros((len(of_values), K * features.n_bins))
    for whole, scene in zip(labels, scenes, strict=True):
        judged = whole.astype(np.int32)
        for left_out in (scene.ground, None if scene.mask is None else ~scene.mask):
            if left_out is not None:
                judged[left_out] = 0
        thin = (slice(None, None, _STRIDE),) * judged.ndim
        image = judged[thin]
        sizes += np.bincount(image[image > 0], minlength=K)
        for table, bins in zip(tables, scene.bins[of_values], strict=True):
            joint = features.n_bins * image + bins[thin]
            table += np.bincount(joint[image > 0], minlength=len(table))
        for plane in judged.reshape(-1, *judged.shape[-2:]):
            for top in range(0, len(plane) - 1, _ROWS):
                rows = plane[top : top + _ROWS + 1]
                around = (rows[1:, :-1] * K + rows[:-1, 1:]) * K + rows[1:, 1:]
                corners += np.bincount(around.ravel(), minlength=K**3)
    told = within = total = 0.0
    weights = features.weights[of_values] / max(features.weights[of_values].sum(), 1e-9)
    for weight, table in zip(weights, tables.reshape(len(tables), K, -1), strict=True):
        told += float(weight) * _information(table)
        bins, areas = np.arange(features.n_bins), table.sum(axis=1)
        squares, sums = table.sum(axis=0) @ bins**2, table @ bins
        within += squares - (sums**2 / np.maximum(areas, 1)).sum()
        total += squares - sums.sum() ** 2 / max(areas.sum(), 1)
    counts, entropy = corners.reshape(K, K, K)[1:, 1:, 1:], _entropy(sizes)
    if entropy <= 0:
        return 0.0, 0.0, within / total if total > 0 else 0.0
    ragged = (_entropy(counts) - _entropy(counts.sum(axis=2))) / entropy
    return ragged, told / entropy, within / total if total > 0 else 0.0


def are_flat(scenes: Sequence[Scene], features: Features) -> bool:
    """Whether nearly all pixels with data have the plain values of their neighbours."""
    for scene in scenes:
        judged = np.ones(scene.shape, bool) if scene.mask is None else scene.mask
        if scene.ground is not None:
            judged = judged & ~scene.ground
        for axis in range(judged.ndim):
            own, planes = np.moveaxis(judged, axis, -1), np.moveaxis(scene.bins, axis + 1, -1)
            both = own[..., 1:] & own[..., :-1]
            most = (1 - _FLAT) * np.count_nonzero(both)
            for plane in planes[features.wavelengths == 0]:
                if np.count_nonzero((plane[..., 1:] != plane[..., :-1]) & both) >= most:
                    return False
    return True


def have_few(means: NDArray[np.floating], most: int) -> bool:
    """Whether nearly all mean values (cells, C) are one of so many; those of a smooth change are not."""
    levels = np.round(_LEVELS * (means - means.min(axis=0)) / np.maximum(np.ptp(means, axis=0), 1e-9))
    counts = np.sort(np.unique(levels, axis=0, return_counts=True)[1])
    return bool(counts[-most:].sum() >= _FLAT * len(means))


def odds_of_values(confidence: float, ragged: float, told: float, share: float = 1.0) -> float:
    """Log-odds that a map by values is the better one.

    ``confidence`` is the mean of the map by texture, ``ragged`` its raggedness, ``told`` its share that
    values tell, and ``share`` that of the map by values: with 1, these are the largest odds of any such map.

    Examples
    --------
    >>> odds_of_values(0.98, 0.005, 0.2) < 0, odds_of_values(0.6, 0.03, 0.2, 0.7) > 0
    (True, True)
    """
    numbers = evidence_of_cues(confidence, ragged, told, share)
    return _CONSTANT + float(np.dot(_WEIGHTS, numbers))


def evidence_of_cues(confidence: float, ragged: float, told: float, share: float) -> NDArray[np.float64]:
    """Give what speaks for a map by values, (4,) logarithms."""
    numbers = [1 - confidence, ragged, share / max(1 - share, _UNTOLD), 1 - told]
    return np.log(np.maximum(numbers, [1e-3, 1e-4, 1e-4, 1e-2]))


def _information(table: NDArray[np.floating]) -> float:
    """Mutual information of the rows and columns of a table of counts, in nats."""
    return _entropy(table.sum(axis=0)) + _entropy(table.sum(axis=1)) - _entropy(table.ravel())


def _entropy(counts: NDArray) -> float:
    """Entropy of counts, in nats."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return -float(shares @ np.log(shares))
