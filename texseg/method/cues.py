"""Whether an image is divided by its textures or by plain values at the scale of pixels.

Grains, pores and stained cells differ only in brightness or colour, and are smaller than any window that
could capture a texture. Two maps are then compared. What a map tells is the information that its labels carry
about the bins of all channels, weighted as in the likelihood; what its labels cost, told its neighbours, is
their conditional entropy. Labels by texture that follow no texture are ragged: they cost much of their own
entropy. The more ragged they are, the less a map by values must tell to be taken::

    information(values) / information(texture) > LEAST / (cost / entropy)(texture)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.method.textures import Scene

_LEAST = 0.03  # learned from 18 fields; .025 to .033 do as well where each field is held out of learning
_STRIDE = 2  # pixels; information is measured on every second row and column


class MapEvidence(NamedTuple):
    """What a map tells about the pixels."""

    information: float  # nats per pixel about all channels, weighted as in the likelihood
    raggedness: float  # entropy of a label given the labels left and above, as a share of its entropy


def evidence_of_map(
    labels: Sequence[NDArray[np.integer]], scenes: Sequence[Scene], features: Features
) -> MapEvidence:
    """Measure what labels, one image per scene, tell about the pixels.

    Labels begin at 1; pixels without data (0) and flat background are skipped.
    """
    K = max(int(image.max()) for image in labels) + 1
    tables = np.zeros((len(features.names), K * features.n_bins))
    corners: list[NDArray[np.int64]] = []
    for image, scene in zip(labels, scenes, strict=True):
        image = image.astype(np.int64)
        for left_out in (scene.ground, None if scene.mask is None else ~scene.mask):
            image = image if left_out is None else np.where(left_out, 0, image)
        thin = image[::_STRIDE, ::_STRIDE]
        held = thin > 0
        first = features.n_bins * thin[held]
        for table, plane in zip(tables, scene.bins, strict=True):
            table += np.bincount(first + plane[::_STRIDE, ::_STRIDE][held], minlength=len(table))
        own, left, above = image[1:, 1:], image[1:, :-1], image[:-1, 1:]
        there = (own > 0) & (left > 0) & (above > 0)
        corners.append(((left * K + above) * K + own)[there])
    information = np.array([_information(table.reshape(K, -1)) for table in tables])
    near, counts = np.unique(np.concatenate(corners), return_counts=True)
    around = np.bincount(np.unique(near // K, return_inverse=True)[1], counts)
    cost = _entropy(counts) - _entropy(around)
    entropy = _entropy(tables[0].reshape(K, -1).sum(axis=1))
    return MapEvidence(float(features.weights @ information), cost / entropy if entropy > 0 else 0.0)


def speaks_for_values(texture: MapEvidence, values: MapEvidence) -> bool:
    """Whether a map by values should be preferred to one by texture.

    Examples
    --------
    >>> speaks_for_values(MapEvidence(1.8, 0.02), MapEvidence(2.9, 0.1))
    True
    >>> speaks_for_values(MapEvidence(2.6, 0.02), MapEvidence(0.6, 0.1))
    False
    """
    return values.information * texture.raggedness > _LEAST * texture.information


def _information(table: NDArray[np.floating]) -> float:
    """Mutual information of the rows and columns of a table of counts, in nats."""
    return _entropy(table.sum(axis=0)) + _entropy(table.sum(axis=1)) - _entropy(table.ravel())


def _entropy(counts: NDArray) -> float:
    """Entropy of counts, in nats."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return -float(shares @ np.log(shares))
