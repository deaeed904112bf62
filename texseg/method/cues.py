"""Whether an image is divided by its textures or by plain values at the scale of pixels.

Grains, pores and stained cells differ only in brightness or colour, and are smaller than any window that
could capture a texture. Textures and values are two resolutions of one model, so that its own objective can
compare two maps: the information that labels carry about the bins of *all* channels, weighted as in the
likelihood. A map of values at the scale of pixels is chosen where the labels by texture are unsure, carry no
more information about all channels together than it does, and explain far less of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.method.textures import Scene

__all__ = ["Told", "is_unsure", "speaks_for_values", "told_by"]

_SURE = 0.96  # mean confidence of labels by texture above which values are not tried: none was chosen there
_MORE = 0.29  # by how much `Told.values` must be larger for a map by values; .28 to .31 choose the same
_MORE_PAINTED = 0.02  # the same for classes painted on an image that would be divided by values
_LEAST_PAINTED = 0.99  # share of the information by texture that such a map by values must reach
_STRIDE = 2  # pixels; information is measured on every second row and column


class Told(NamedTuple):
    """What a map tells about the pixels."""

    information: float
    """Nats per pixel about all channels, weighted as in the likelihood."""
    values: float
    """Share of the labels' own entropy that plain values explain, 0 to 1 (Theil's uncertainty)."""


def is_unsure(confidence: Sequence[NDArray[np.floating]], scenes: Sequence[Scene]) -> bool:
    """Whether the labels by texture leave room for another cue."""
    told = [c if scene.mask is None else c[scene.mask] for c, scene in zip(confidence, scenes, strict=True)]
    return float(np.mean(np.concatenate([c.ravel() for c in told]))) < _SURE


def told_by(labels: Sequence[NDArray[np.integer]], scenes: Sequence[Scene], features: Features) -> Told:
    """Measure what labels, one image per scene, tell about the pixels.

    Labels begin at 1; pixels without data (0) and flat ground are left out.
    """
    K = max(int(image.max()) for image in labels) + 1
    tables = np.zeros((len(features.names), K * features.n_bins))
    for image, scene in zip(labels, scenes, strict=True):
        held = image > 0 if scene.ground is None else (image > 0) & ~scene.ground
        thin = np.s_[::_STRIDE, ::_STRIDE]
        held = held[thin]
        first = features.n_bins * image[thin][held]
        for table, plane in zip(tables, scene.bins, strict=True):
            table += np.bincount(first + plane[thin][held], minlength=len(table))
    information = np.array([_information(table.reshape(K, -1)) for table in tables])
    shares = tables[0].reshape(K, -1).sum(axis=1) / tables[0].sum()
    entropy = -float(shares[shares > 0] @ np.log(shares[shares > 0]))
    of_values = np.where(features.wavelengths == 0, features.weights, 0)
    values = float(of_values @ information / of_values.sum())
    return Told(float(features.weights @ information), values / entropy if entropy > 0 else 0.0)


def speaks_for_values(texture: Told, values: Told, *, is_painted: bool = False) -> bool:
    """Whether a map by values should be preferred to one by texture; both may show painted classes.

    Examples
    --------
    >>> speaks_for_values(Told(1.8, 0.1), Told(1.9, 0.5))
    True
    >>> speaks_for_values(Told(2.6, 0.1), Told(1.9, 0.5))
    False
    """
    least, more = (_LEAST_PAINTED, _MORE_PAINTED) if is_painted else (1.0, _MORE)
    return values.information >= least * texture.information and values.values - texture.values > more


def _information(table: NDArray[np.floating]) -> float:
    """Mutual information of the rows and columns of a table of counts, in nats."""
    joint = table / table.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    seen = joint > 0
    return float(joint[seen] @ np.log(joint[seen] / independent[seen]))
