"""One numbering of the textures of models that were learned apart, by the distances of their profiles."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from texseg.channels.encode import Features
from texseg.io.geo import relative_size

_POINTS = 256  # on which two cumulative histograms are compared; a channel has up to as many bins


class TextureMatch(NamedTuple):
    """Numbers of the segments of one model that all models share."""

    numbers: NDArray[np.intp]
    """(K,), from 1: equal numbers are equal textures."""
    distances: NDArray[np.float64]
    """(K,), to the nearest texture of the models before; inf for the first model."""
    is_new: NDArray[np.bool_]
    """(K,), whether no model before has the texture."""


def match_textures(models: Sequence[Any], limit: float = 0.25) -> list[TextureMatch]:
    """Give one numbering to the textures of models that were fitted apart, such as to different images.

    Textures are compared by their histograms of filter responses (relative to the contrast of the image) and
    values, channel by channel; textons are skipped, since each model has its own. The distance of two
    histograms is the earth mover's, relative to the mean difference of two values from the textures of both
    models: 0 is equal, 1 as far as any two. That of textures is the mean over channels by their weights.
    Each model is assigned to all before it so that the sum of distances is smallest; a texture farther than
    ``limit`` gets a new number.

    Parameters
    ----------
    models : sequence of TextureSegmenter
        Fitted, or loaded from files, with the same wavelengths.
    limit : float, default=0.25
        In models of halves of three mosaics, nine of ten equal textures were .01 to .35 apart, others .16 on.

    Returns
    -------
    list of TextureMatch
        Of each model, in their order.

    Examples
    --------
    >>> from texseg import TextureSegmenter
    >>> rows, columns = np.mgrid[:64, :96]
    >>> image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    >>> models = [TextureSegmenter(2, preset="plain").fit(each) for each in (image, image[::-1, ::-1])]
    >>> [match.numbers.tolist() for match in match_textures(models)]
    [[1, 2], [1, 2]]
    """
    _check(models, limit)
    found: list[TextureMatch] = []
    n_known = 0
    for place, model in enumerate(models):
        K = len(model.profiles_)
        table = np.full((K, n_known), math.inf)
        for earlier, match in zip(models, found, strict=False):
            distances = _distances(model, earlier)
            for column, number in enumerate(match.numbers - 1):
                table[:, number] = np.minimum(table[:, number], distances[:, column])
        numbers = np.zeros(K, np.intp)
        costs = np.minimum(table, limit)  # what is farther is no match, however far
        for row, column in zip(*linear_sum_assignment(costs), strict=True):
            if table[row, column] <= limit:
                numbers[row] = column + 1
        is_new = numbers == 0
        numbers[is_new] = n_known + 1 + np.arange(np.count_nonzero(is_new))
        found.append(TextureMatch(numbers, table.min(axis=1, initial=math.inf), is_new))
        n_known = max(n_known, int(numbers.max()))
        times = relative_size(model.pixel_size_, models[0].pixel_size_)
        if times not in (None, (1.0, 1.0)):
            warnings.warn(
                f"models[{place}] learned from pixels of another size than models[0]: textures are compared "
                "in pixels",
                stacklevel=2,
            )
    return found


def _check(models: Any, limit: Any) -> None:
    if isinstance(models, (str, bytes)) or not np.iterable(models) or not len(list(models)):
        raise TypeError(f"models must be a sequence of fitted models, got {models!r:.80}")
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < math.inf:
        raise ValueError(f"limit must be a number of at least 0, got {limit!r:.80}")
    for place, model in enumerate(models):
        if not hasattr(model, "profiles_"):
            raise TypeError(f"models[{place}] is not a fitted model, got {model!r:.80}")


def _distances(one: Any, other: Any) -> NDArray[np.float64]:
    """Distances (K, L) of the textures of two models."""
    features, others = one.textures_.features, other.textures_.features
    shared = [
        (i, others.names.index(name))
        for i, name in enumerate(features.names)
        if name in others.names and name != "patch"  # textons
    ]
    if not shared:
        raise ValueError("the models share no channels: fit them with the same wavelengths and bands")
    total, weights = np.zeros((len(one.profiles_), len(other.profiles_))), 0.0
    for i, j in shared:
        ends = _comparable(features, i), _comparable(others, j)
        points = np.linspace(min(ends[0][0], ends[1][0]), max(ends[0][1], ends[1][1]), _POINTS)
        P, Q = (
            _cumulative(profiles, end, points)
            for profiles, end in zip((one.profiles_[:, i], other.profiles_[:, j]), ends, strict=True)
        )
        pooled = np.concatenate([P, Q]).mean(axis=0)
        spread = 2 * (pooled * (1 - pooled)).sum()
        total += features.weights[i] * np.abs(P[:, None] - Q).sum(axis=2) / max(spread, 1e-9)
        weights += float(features.weights[i])
    return total / weights


def _comparable(features: Features, channel: int) -> tuple[float, float]:
    """Range of a channel; grey values are in the unit of the images, filters are relative to contrast."""
    low, high = features.ranges[channel]
    if features.names[channel] != "value":
        return low, high
    start, end = features.intensity.low[0], features.intensity.high[0]
    return float(start + (end - start) * low), float(start + (end - start) * high)


def _cumulative(
    histograms: NDArray[np.floating], ends: tuple[float, float], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Cumulative shares (K, points) of histograms whose bins divide a range."""
    edges = np.linspace(*ends, histograms.shape[1] + 1)
    sums = np.pad(np.cumsum(histograms, axis=1, dtype=np.float64), ((0, 0), (1, 0)))
    return np.stack([np.interp(points, edges, row) for row in sums])
