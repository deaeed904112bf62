"""How well a label image agrees with the truth.

The label values themselves never matter, and all disjoint parts of one label are a single segment. The
scores of the Prague benchmark, for comparison with papers, are in the repository's ``benchmarks/prague.py``.

References
----------
.. [1] P. Arbelaez et al., "Contour detection and hierarchical image segmentation", IEEE PAMI 33, 2011.
.. [2] J. Freixenet et al., "Yet another survey on image segmentation", ECCV 2002.
.. [3] M. Meila, "Comparing clusterings: an information based distance", J. Multivariate Analysis 98, 2007.
.. [4] C. Guo et al., "On calibration of modern neural networks", ICML 2017.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

__all__ = ["Contingency", "Reliability", "Score", "adjusted_rand_index", "agreement", "best_matching"]
__all__ += ["contingency_table", "match_labels", "pixel_accuracy", "reliability", "score"]

LARGEST_TABLE = 10**8


class Contingency(NamedTuple):
    """How many pixels each segment shares with each region of the truth."""

    counts: NDArray[np.int64]  #: (M, N), pixels
    labels: NDArray  #: (M,), the label values of the rows, ascending
    truth: NDArray  #: (N,), the truth values of the columns, ascending


class Score(NamedTuple):
    """The scores of one label image: shares (0 ... 1), more is better, unless noted otherwise."""

    n_segments: float  #: number of different labels
    n_regions: float  #: number of different truth values
    co: float  #: pixels that are right after one-to-one matching
    ari: float  #: adjusted Rand index; 0 by chance, may be negative
    covering: float  #: best intersection over union of each true region, weighted by area [1]_
    vi_over: float  #: H(labels | truth) in bits, less is better: over-segmentation [3]_
    vi_under: float  #: H(truth | labels) in bits, less is better: under-segmentation
    boundary_f: float  #: harmonic mean of the two below, by distance, not one to one
    boundary_precision: float  #: boundary of the labels within the tolerance of that of the truth
    boundary_recall: float  #: boundary of the truth within the tolerance of that of the labels
    bde: float
    """Boundary displacement error [2]_ in px, less is better: mean distance to the other boundary, both ways;
    the image diagonal if only one of the two has a boundary."""


class Reliability(NamedTuple):
    """Accuracy against confidence, in bins of confidence [4]_."""

    edges: NDArray[np.float64]  #: (B + 1,), the borders of the bins
    n: NDArray[np.int64]  #: (B,), how many values fall into each bin
    confidence: NDArray[np.float64]  #: (B,), mean confidence in the bin, NaN in an empty one
    accuracy: NDArray[np.float64]  #: (B,), share that is correct, NaN in an empty bin
    calibration_error: float  #: mean of abs(accuracy - confidence) over the bins, weighted by n


def contingency_table(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> Contingency:
    """Count the pixels of each pair of label and truth value, integer arrays of one shape.

    Zero is a label like any other; pixels where `truth` is `ignore_label` are skipped.

    >>> contingency_table([[1, 1], [7, 7]], [[0, 0], [0, 5]]).counts.tolist()
    [[2, 0], [1, 1]]
    """
    test, reference = _check_pair(labels, truth, ignore_label=ignore_label)
    if ignore_label is not None:
        kept = reference != ignore_label
        test, reference = test[kept], reference[kept]
    if test.size == 0:
        what = "are empty" if ignore_label is None else f"have no pixel whose truth is not {ignore_label}"
        raise ValueError(f"labels and truth {what}; nothing can be compared")
    label_values, rows = _distinct(test)
    truth_values, columns = _distinct(reference)
    shape = (len(label_values), len(truth_values))
    if shape[0] * shape[1] > LARGEST_TABLE:
        limit = f"more than a table of {LARGEST_TABLE} entries holds; are both label images?"
        raise ValueError(f"labels has {shape[0]} and truth {shape[1]} different values, {limit}")
    counts = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return Contingency(counts.reshape(shape).astype(np.int64), label_values, truth_values)


def _distinct(values: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.intp]]:
    """Distinct values, ascending, and the place of each element among them; a table serves small numbers."""
    low, high = int(values.min()), int(values.max())
    if high > 2**53 or high - low > values.size:
        return np.unique(values.ravel(), return_inverse=True)
    codes = values.ravel().astype(np.intp) - low
    used = np.bincount(codes) > 0
    return (np.flatnonzero(used) + low).astype(values.dtype), (np.cumsum(used) - 1)[codes]


def best_matching(counts: ArrayLike) -> NDArray[np.intp]:
    """Assign rows to columns one to one, maximising the sum of the counts of the pairs.

    ``counts`` (M, N) is a contingency table; the result (M,) holds the column of each row, -1 for the M - N
    rows left over when M > N. The sum of intersections over unions decides between equal sums.

    >>> best_matching([[5, 4], [4, 0], [0, 0]]).tolist()
    [1, 0, -1]
    """
    table = np.asarray(counts)
    union = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True) - table
    similarity = table / np.maximum(union, 1)
    rows, columns = linear_sum_assignment(table + similarity / (min(table.shape) + 1), maximize=True)
    partner = np.full(table.shape[0], -1, dtype=np.intp)
    partner[rows] = columns
    return partner


def match_labels(
    labels: ArrayLike, reference: ArrayLike, ignore_label: int | None = None
) -> NDArray[np.int32]:
    """Renumber labels so that they agree with a reference on as many pixels as possible.

    Both are integer arrays of one shape; the result is int32. Labels for which `reference` has no number left
    get new ones, counting up from its greatest. `ignore_label` keeps its number in `labels`, is given to no
    other label, and its pixels do not count.

    >>> match_labels([[2, 2, 9, 4]], [[1, 1, 2, 1]]).tolist()
    [[1, 1, 2, 3]]
    """
    test, target = _check_pair(labels, reference, "reference", ignore_label)
    lowest, highest, int32 = int(target.min()), int(target.max()), np.iinfo(np.int32)
    values, codes = _distinct(test)
    if not int32.min <= lowest <= highest <= int32.max - len(values):
        they = f"{lowest} ... {highest}, which leave the range of int32; renumber it first"
        raise ValueError(f"reference of match_labels has labels {they}")
    kept = {} if ignore_label is None else {ignore_label: ignore_label}
    counted = ~(np.isin(test, list(kept)) | np.isin(target, list(kept)))
    numbers = dict(kept)
    if counted.any():
        table = contingency_table(test[counted], target[counted])
        partners = zip(table.labels.tolist(), best_matching(table.counts).tolist(), strict=True)
        numbers |= {label: int(table.truth[column]) for label, column in partners if column >= 0}
    fresh = itertools.count(max([highest, *kept]) + 1)
    found = [numbers[value] if value in numbers else next(fresh) for value in values.tolist()]
    return np.array(found, np.int32)[codes].reshape(test.shape)


def pixel_accuracy(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> float:
    """Compute the share of pixels that are right after one-to-one matching (CO of the Prague benchmark).

    The parameters are those of `contingency_table`.

    >>> pixel_accuracy([1, 1, 2, 2], [5, 5, 3, 5])
    0.75
    """
    return _share_right(contingency_table(labels, truth, ignore_label).counts)


def adjusted_rand_index(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> float:
    """Compute the Rand index corrected for chance: 1 for equal partitions, 0 on average for independent ones.

    The parameters are those of `contingency_table`.

    >>> adjusted_rand_index([1, 1, 2, 2], [5, 5, 3, 3])
    1.0
    """
    return _adjusted_rand(contingency_table(labels, truth, ignore_label).counts)


def reliability(confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10) -> Reliability:
    """Compare stated confidence with actual accuracy.

    `confidence`, of any shape, holds the probability of the chosen label, in 0 ... 1; `correct`, of the same
    shape, whether that label is right (after `match_labels`). The `n_bins` bins have equal width.

    >>> table = reliability([0.95, 0.95, 0.55, 0.55], [True, True, True, False], n_bins=2)
    >>> table.n.tolist(), table.accuracy.tolist(), round(table.calibration_error, 3)
    ([0, 4], [nan, 0.75], 0.0)
    """
    stated = np.asarray(confidence, dtype=float).ravel()
    right = np.asarray(correct, dtype=bool).ravel()
    if stated.shape != right.shape or not stated.size:
        sizes = f"the same size, at least 1, got {stated.size} and {right.size}"
        raise ValueError(f"confidence and correct of reliability must have {sizes}")
    if not ((stated >= 0) & (stated <= 1)).all():
        found = f"{np.min(stated)} ... {np.max(stated)}"
        raise ValueError(f"confidence of reliability must lie in 0 ... 1, got {found}")
    if n_bins < 1:
        raise ValueError(f"n_bins of reliability must be at least 1, got {n_bins}")
    bins = np.minimum((stated * n_bins).astype(int), n_bins - 1)
    n = np.bincount(bins, minlength=n_bins)
    sums = np.array([np.bincount(bins, weights=values, minlength=n_bins) for values in (stated, right)])
    means = np.divide(sums, n, out=np.full(sums.shape, np.nan), where=n > 0)
    error = float(np.abs(sums[1] - sums[0]).sum() / stated.size)
    return Reliability(np.linspace(0, 1, n_bins + 1), n, means[0], means[1], error)


def score(
    labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None, tolerance: float = 5.0
) -> Score:
    """Compute the scores of a label image against the truth.

    Both are integers (H, W), of which zero is a label like any other; over truths (n, H, W) of several
    annotators the scores are averaged. Pixels where the truth is ``ignore_label`` are skipped, together with
    the boundaries to them. ``tolerance`` is the distance in px within which boundary pixels count as found
    (`boundary_f`, `boundary_precision`, `boundary_recall`).

    Examples
    --------
    >>> truth = np.repeat([[1, 2]], 8, axis=0).repeat(8, axis=1)
    >>> labels = np.roll(truth, 1, axis=1) + 3
    >>> result = score(labels, truth)
    >>> result.co, result.boundary_recall
    (0.875, 1.0)
    """
    if np.ndim(truth) == 3 and len(np.asarray(truth)):
        each = [score(labels, one, ignore_label, tolerance) for one in np.asarray(truth)]
        return Score(*np.mean(each, axis=0).tolist())
    test, reference = _check_pair(labels, truth)
    if test.ndim != 2:
        raise ValueError(f"labels of score must have two dimensions, got shape {test.shape}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance of score must be at least 0 px, got {tolerance}")
    counts = contingency_table(test, reference, ignore_label).counts
    valid = np.ones(test.shape, bool) if ignore_label is None else reference != ignore_label
    n, regions, segments = counts.sum(), counts.sum(axis=0), counts.sum(axis=1)
    rows, columns = np.nonzero(counts)
    joint = counts[rows, columns]
    overlaps = counts / (segments[:, None] + regions - counts)
    return Score(
        n_segments=len(segments),
        n_regions=len(regions),
        co=_share_right(counts),
        ari=_adjusted_rand(counts),
        covering=float(np.sum(regions * overlaps.max(axis=0)) / n),
        vi_over=float(np.sum(joint * np.log2(regions[columns] / joint)) / n),
        vi_under=float(np.sum(joint * np.log2(segments[rows] / joint)) / n),
        **_boundary_scores(boundary_map(test, valid), boundary_map(reference, valid), tolerance),
    )


def agreement(truths: ArrayLike, ignore_label: int | None = None, tolerance: float = 5.0) -> Score:
    """Score annotators against each other, in the mean of all pairs: a ceiling for methods.

    ``truths``, integers (n, H, W), are those of at least two annotators; the rest is as for `score`.

    >>> agreement([[[1, 1, 2, 2]], [[5, 5, 5, 3]]]).co
    0.75
    """
    everyone = np.asarray(truths)
    if everyone.ndim != 3 or len(everyone) < 2:
        raise ValueError(f"truths of agreement must have shape (2 or more, H, W), got {everyone.shape}")
    each = []
    for number, one in enumerate(everyone):
        rest = np.delete(everyone, number, axis=0)
        if ignore_label is not None:
            rest[:, one == ignore_label] = ignore_label
        each.append(score(one, rest, ignore_label, tolerance))
    return Score(*np.mean(each, axis=0).tolist())


def _check_pair(
    labels: ArrayLike, truth: ArrayLike, name: str = "truth", ignore_label: int | None = None
) -> tuple[NDArray, NDArray]:
    if not isinstance(ignore_label, (int, np.integer, type(None))):
        raise TypeError(f"ignore_label must be a whole number or None, got {ignore_label!r:.80}")
    test, reference = np.asarray(labels), np.asarray(truth)
    for what, values in (("labels", test), (name, reference)):
        if values.dtype.kind not in "bui":
            raise TypeError(f"{what} must be integers, got dtype {values.dtype}; round or encode them first")
    if test.shape != reference.shape:
        raise ValueError(f"labels {test.shape} and {name} {reference.shape} must have the same shape")
    return test, reference


def _share_right(counts: NDArray[np.int64]) -> float:
    partner = best_matching(counts)
    rows = np.flatnonzero(partner >= 0)
    return float(counts[rows, partner[rows]].sum() / counts.sum())


def _adjusted_rand(counts: NDArray[np.int64]) -> float:
    """Compute the adjusted Rand index of a contingency table in exact integers."""
    n = int(counts.sum())
    tables = counts, counts.sum(axis=1), counts.sum(axis=0)
    together, same_labels, same_truth = (int(np.sum(sizes * sizes)) - n for sizes in tables)
    pairs, chance = n * n - n, 2 * same_labels * same_truth
    room = (same_labels + same_truth) * pairs - chance
    return (2 * together * pairs - chance) / room if room else 1.0


def boundary_map(labels: NDArray, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the pixels that differ from the next one to the right, below or diagonally, as BSDS does."""
    edge = np.zeros(labels.shape, bool)
    right, below, diagonally = np.s_[:, :-1], np.s_[:-1], np.s_[:-1, :-1]
    for here, there in ((right, np.s_[:, 1:]), (below, np.s_[1:]), (diagonally, np.s_[1:, 1:])):
        edge[here] |= (labels[here] != labels[there]) & valid[here] & valid[there]
    return edge


def _boundary_scores(test: NDArray[np.bool_], truth: NDArray[np.bool_], tolerance: float) -> dict[str, float]:
    from_test, from_truth = _distances(test, truth), _distances(truth, test)
    precision, recall = (float((d <= tolerance).mean()) if len(d) else 1.0 for d in (from_test, from_truth))
    mean = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    bde = float(np.mean([d.mean() for d in (from_test, from_truth) if len(d)] or 0))
    return {"boundary_f": mean, "boundary_precision": precision, "boundary_recall": recall, "bde": bde}


def _distances(start: NDArray[np.bool_], target: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Give the distance in px of each pixel of one boundary to the other; the diagonal if there is none."""
    if not target.any():
        return np.full(np.count_nonzero(start), np.hypot(*start.shape))
    distance = cv2.distanceTransform((~target).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return distance[start].astype(float)
