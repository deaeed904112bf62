"""How well a label image agrees with the truth.

All scores of regions come from one contingency table, ``counts[i, j]`` = pixels of segment i in
region j of the truth; all scores of boundaries from one pass over the two label images. The label
values themselves never matter. In the formulas n is the number of pixels, n_ij the table, n_i. and
n_.j its margins, M the number of segments and N that of regions; hit_j is the overlap of region j with
the segment assigned to it one to one, m_j the size of that segment. A region whose partner does not
overlap it has none: hit_j = m_j = 0. All disjoint parts of one label are a single segment.

References
----------
.. [1] A. Hoover et al., "An experimental comparison of range image segmentation algorithms",
   IEEE PAMI 18, 1996.
.. [2] S. Mikes, M. Haindl, "Texture segmentation benchmark", IEEE PAMI 44, 2022.
.. [3] D. Martin et al., "A database of human segmented natural images and its application to
   evaluating segmentation algorithms and measuring ecological statistics", ICCV 2001.
.. [4] P. Arbelaez et al., "Contour detection and hierarchical image segmentation", IEEE PAMI 33, 2011.
.. [5] J. Freixenet et al., "Yet another survey on image segmentation", ECCV 2002.
.. [6] M. Meila, "Comparing clusterings: an information based distance", J. Multivariate Analysis 98,
   2007.
.. [7] I. Arganda-Carreras et al., "Crowdsourcing the creation of image segmentation algorithms for
   connectomics", Frontiers in Neuroanatomy 9, 2015.
.. [8] C. Guo et al., "On calibration of modern neural networks", ICML 2017.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.spatial import cKDTree

__all__ = [
    "Contingency",
    "FCurves",
    "RegionRates",
    "Reliability",
    "Score",
    "adjusted_rand_index",
    "best_matching",
    "contingency_table",
    "f_curves",
    "match_labels",
    "pixel_accuracy",
    "reliability",
    "score",
    "variation_of_information",
]

HOOVER_THRESHOLD = 0.75
"""The k at which Prague reports CS, OS, US, ME and NE."""

BSDS_TOLERANCE = 0.0075
"""The tolerance of the one-to-one boundary match, as a fraction of the image diagonal."""

LARGEST_TABLE = 10**8


class Contingency(NamedTuple):
    """How many pixels each segment shares with each region of the truth."""

    counts: NDArray[np.int64]
    """int64 (M, N), pixels."""
    labels: NDArray
    """(M,), the label values of the rows, ascending."""
    truth: NDArray
    """(N,), the truth values of the columns, ascending."""


class RegionRates(NamedTuple):
    """Hoover's instances of regions ([1]_, [2]_) at an overlap threshold k, as fractions.

    A region may be in several instances, so ``cs + os + us + me`` may exceed one.
    """

    cs: float | NDArray[np.float64]
    """Correct: regions whose overlap with one segment is at least the share k of both."""
    os: float | NDArray[np.float64]
    """Over-segmented: regions of which two or more segments, each with k of itself inside, cover k."""
    us: float | NDArray[np.float64]
    """Under-segmented: two or more regions, each with k of itself in one segment, fill k of it."""
    me: float | NDArray[np.float64]
    """Missed: regions in none of these instances."""
    ne: float | NDArray[np.float64]
    """Noise: segments in none of these instances, as a fraction of the segments."""


class FCurves(NamedTuple):
    """Hoover's rates as functions of the overlap threshold."""

    thresholds: NDArray[np.float64]
    """float64 (T,), values of k in (.5, 1]."""
    rates: RegionRates
    """Arrays (T,)."""
    integrals: RegionRates
    """Floats: means over the thresholds, the integral over (.5, 1] divided by its length."""


class Score(NamedTuple):
    """All scores of one label image; fractions (0 ... 1) unless noted otherwise."""

    n_segments: int
    """Number M of different labels."""
    n_regions: int
    """Number N of different truth values."""
    co: float
    """Correct assignment, sum_j hit_j / n: the pixel accuracy after one-to-one matching. Up is better."""
    ca: float
    """Class accuracy, sum_j (n_.j / n) hit_j / (n_.j + m_j - hit_j). Up is better."""
    cc: float
    """Object accuracy (precision), sum_j (n_.j / n) hit_j / m_j. Up is better."""
    cs: float
    """Correct segmentation, Hoover's rate at k = .75 (`RegionRates`). Up is better."""
    os: float
    """Over-segmentation at k = .75. Down is better."""
    us: float
    """Under-segmentation at k = .75. Down is better."""
    me: float
    """Missed error at k = .75. Down is better."""
    ne: float
    """Noise error at k = .75. Down is better."""
    o: float
    """Omission, median_j (n_.j - hit_j) / n_.j. Down is better."""
    c: float
    """Commission, median over segments of (m - hit) / m, 1 for one without a region. Down is better."""
    i: float
    """Error of type I, 1 - CO. Down is better."""
    ii: float
    """Error of type II, sum_j (n_.j / n) (m_j - hit_j) / (n - n_.j). Down is better."""
    ea: float
    """Mean class accuracy estimate, sum_j (n_.j / n) 2 hit_j / (n_.j + m_j). Up is better."""
    ms: float
    """Mapping score, sum_j (1.5 hit_j - .5 m_j) / n; may be negative. Up is better."""
    rm: float
    """Root mean square difference of the fractions of the area, over max(M, N) pairs. Down is better."""
    ci: float
    """Comparison index, sum_j hit_j sqrt(n_.j / m_j) / n. Up is better."""
    gce: float
    """Global consistency error [3]_, zero if one refines the other. Down is better."""
    lce: float
    """Local consistency error [3]_, with the refined one chosen pixel by pixel. Down is better."""
    dm: float
    """Mirkin distance, share of ordered pairs (with repetition) on which the two differ. Down is better."""
    dd: float
    """Van Dongen distance, (2 n - sum_i max_j n_ij - sum_j max_i n_ij) / (2 n). Down is better."""
    dvi: float
    """Variation of information [6]_ in bits, ``vi_over + vi_under``. Down is better."""
    vi_over: float
    """H(labels | truth) in bits: over-segmentation. Down is better."""
    vi_under: float
    """H(truth | labels) in bits: under-segmentation. Down is better."""
    ari: float
    """Adjusted Rand index; 0 by chance, may be negative. Up is better."""
    rand_index: float
    """Share of the pairs of pixels on which both agree; PRI for a single truth. Up is better."""
    adapted_rand_error: float
    """1 - F of the precision and recall of pairs [7]_. Down is better."""
    covering: float
    """Covering of the truth [4]_, sum_j n_.j max_i IoU(i, j) / n. Up is better."""
    boundary_f: float
    """Boundary F within the tolerance (5 px), by distance, not one to one. Up is better."""
    boundary_precision: float
    """Share of the boundary of the labels within the tolerance of that of the truth. Up is better."""
    boundary_recall: float
    """Share of the boundary of the truth within the tolerance of that of the labels. Up is better."""
    boundary_f_bsds: float
    """Boundary F [4]_, pixels matched one to one within .0075 image diagonals. Up is better."""
    bde: float
    """Boundary displacement error [5]_ in px, the mean distance to the other boundary, averaged
    over both directions; the image diagonal if only one of the two has a boundary. Down is better."""


class Reliability(NamedTuple):
    """Accuracy against confidence, in bins of confidence [8]_."""

    edges: NDArray[np.float64]
    """float64 (B + 1,), the borders of the bins."""
    n: NDArray[np.int64]
    """int64 (B,), how many values fall into each bin."""
    confidence: NDArray[np.float64]
    """float64 (B,), mean confidence in the bin, NaN in an empty one."""
    accuracy: NDArray[np.float64]
    """float64 (B,), share that is correct, NaN in an empty bin."""
    calibration_error: float
    """Mean of abs(accuracy - confidence) over the bins, weighted by n."""


def contingency_table(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> Contingency:
    """Count the pixels of each pair of label and truth value.

    Parameters
    ----------
    labels, truth : array-like of integers, the same shape
        Zero is a label like any other.
    ignore_label : int, optional
        Pixels where `truth` has this value are left out.

    Returns
    -------
    Contingency
        ``counts`` (M, N) with the label values of its rows and columns.

    Raises
    ------
    TypeError
        If the values are not integers.
    ValueError
        If the shapes differ, no pixel remains, or there are too many values for these to be label
        images.

    Examples
    --------
    >>> contingency_table([[1, 1], [7, 7]], [[0, 0], [0, 5]]).counts.tolist()
    [[2, 0], [1, 1]]
    """
    test, reference = _check_pair(labels, truth)
    if ignore_label is not None:
        kept = reference != ignore_label
        test, reference = test[kept], reference[kept]
    if test.size == 0:
        what = "are empty" if ignore_label is None else f"have no pixel whose truth is not {ignore_label}"
        raise ValueError(f"labels and truth {what}; nothing can be compared")
    label_values, rows = _encode(test)
    truth_values, columns = _encode(reference)
    shape = (len(label_values), len(truth_values))
    if shape[0] * shape[1] > LARGEST_TABLE:
        raise ValueError(
            f"labels has {shape[0]} and truth {shape[1]} different values, more than a table of"
            f" {LARGEST_TABLE} entries holds; are both label images?"
        )
    counts = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return Contingency(counts.reshape(shape).astype(np.int64), label_values, truth_values)


def best_matching(counts: ArrayLike) -> NDArray[np.intp]:
    """Assign rows to columns one to one, maximising the sum of the counts of the pairs.

    Among several assignments with this sum, take the one with the greatest sum of intersections over unions.

    Parameters
    ----------
    counts : array-like, (M, N)
        A contingency table.

    Returns
    -------
    ndarray of int, (M,)
        The column of each row, -1 for the M - N rows left over when M > N.

    Examples
    --------
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

    Parameters
    ----------
    labels, reference : array-like of integers, the same shape
        The label image to renumber, and the one whose numbers to use.
    ignore_label : int, optional
        A label that keeps its number in `labels`, is given to no other, and whose pixels do not count.

    Returns
    -------
    ndarray of int32, the shape of `labels`
        The same partition with the numbers of `reference`; labels for which it has no number left get
        new ones, counting up from its greatest.

    Examples
    --------
    >>> match_labels([[2, 2, 9, 4]], [[1, 1, 2, 1]]).tolist()
    [[1, 1, 2, 3]]
    """
    test, target = _check_pair(labels, reference, "reference")
    counted = np.ones(test.shape, bool)
    if ignore_label is not None:
        counted = (test != ignore_label) & (target != ignore_label)
    values, codes = _encode(test)
    target_values, target_codes = _encode(target)
    shape = (len(values), len(target_values))
    counts = np.bincount((codes * shape[1] + target_codes)[counted.ravel()], minlength=shape[0] * shape[1])
    free_rows = np.flatnonzero(values != ignore_label)
    free_columns = np.flatnonzero(target_values != ignore_label)
    partner = best_matching(counts.reshape(shape)[np.ix_(free_rows, free_columns)])
    int32 = np.iinfo(np.int32)
    if not int32.min <= int(target_values[0]) <= int(target_values[-1]) <= int32.max - len(values):
        raise ValueError(
            f"reference of match_labels has labels {target_values[0]} ... {target_values[-1]}, which leave"
            f" the range of int32; renumber it first"
        )
    renumbered = values.astype(np.int64)
    renumbered[free_rows[partner >= 0]] = target_values[free_columns[partner[partner >= 0]]]
    above = max([*target_values.tolist(), *([] if ignore_label is None else [ignore_label])])
    renumbered[free_rows[partner < 0]] = above + 1 + np.arange(np.count_nonzero(partner < 0))
    return renumbered[codes].reshape(test.shape).astype(np.int32)


def pixel_accuracy(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> float:
    """Compute the share of pixels that are right after one-to-one matching (Prague's CO).

    Parameters
    ----------
    labels, truth, ignore_label
        As for `contingency_table`.

    Returns
    -------
    float
        In (0, 1]; 1 if the two partitions are the same.

    Examples
    --------
    >>> pixel_accuracy([1, 1, 2, 2], [5, 5, 3, 5])
    0.75
    """
    counts = contingency_table(labels, truth, ignore_label).counts
    return float(_partners(counts).hit.sum() / counts.sum())


def adjusted_rand_index(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> float:
    """Compute the Rand index corrected for chance; symmetric.

    Parameters
    ----------
    labels, truth, ignore_label
        As for `contingency_table`.

    Returns
    -------
    float
        1 for the same partition, 0 on average for independent ones.

    Examples
    --------
    >>> adjusted_rand_index([1, 1, 2, 2], [5, 5, 3, 3])
    1.0
    """
    return _pair_scores(contingency_table(labels, truth, ignore_label).counts)["ari"]


def variation_of_information(
    labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None
) -> tuple[float, float]:
    """Compute both parts of the variation of information, in bits [6]_.

    Parameters
    ----------
    labels, truth, ignore_label
        As for `contingency_table`.

    Returns
    -------
    over, under : float
        H(labels | truth), which over-segmentation raises, and H(truth | labels), which
        under-segmentation raises. Their sum is a metric.

    Examples
    --------
    >>> variation_of_information([1, 2, 3, 4], [5, 5, 6, 6])
    (1.0, 0.0)
    """
    scores = _information_scores(contingency_table(labels, truth, ignore_label).counts)
    return scores["vi_over"], scores["vi_under"]


def f_curves(
    labels: ArrayLike, truth: ArrayLike, thresholds: ArrayLike | None = None, ignore_label: int | None = None
) -> FCurves:
    """Compute Hoover's rates as functions of the overlap threshold k.

    Parameters
    ----------
    labels, truth, ignore_label
        As for `contingency_table`.
    thresholds : array-like of float, (T,), optional
        Values of k in (.5, 1]; by default .505, .51, ... 1.

    Returns
    -------
    FCurves
        The thresholds, the rates at each, and the integral of each curve.

    Examples
    --------
    >>> curves = f_curves([1, 1, 1, 1, 2], [1, 1, 1, 1, 1], thresholds=[0.75, 0.85])
    >>> curves.rates.cs.tolist(), curves.integrals.cs
    ([1.0, 0.0], 0.5)
    """
    counts = contingency_table(labels, truth, ignore_label).counts
    given = np.linspace(0.5, 1, 101)[1:] if thresholds is None else np.asarray(thresholds, dtype=float)
    if given.ndim != 1 or not given.size or not ((given > 0.5) & (given <= 1)).all():
        raise ValueError(f"thresholds of f_curves must be a list of numbers in (.5, 1], got {thresholds!r}")
    rates = RegionRates(*np.array([_region_rates(counts, k) for k in given]).T)
    return FCurves(given, rates, RegionRates(*(float(np.mean(rate)) for rate in rates)))


def reliability(confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10) -> Reliability:
    """Compare stated confidence with actual accuracy.

    Parameters
    ----------
    confidence : array-like of float, any shape
        Probability of the chosen label, in 0 ... 1.
    correct : array-like of bool, the same shape
        Whether the chosen label is right (after `match_labels`).
    n_bins : int, default=10
        Number of bins of equal width.

    Returns
    -------
    Reliability
        A row for each bin, and the expected calibration error.

    Examples
    --------
    >>> table = reliability([0.95, 0.95, 0.55, 0.55], [True, True, True, False], n_bins=2)
    >>> table.n.tolist(), table.accuracy.tolist(), round(table.calibration_error, 3)
    ([0, 4], [nan, 0.75], 0.0)
    """
    stated = np.asarray(confidence, dtype=float).ravel()
    right = np.asarray(correct, dtype=bool).ravel()
    if stated.shape != right.shape or not stated.size:
        raise ValueError(
            f"confidence and correct of reliability must have the same size, at least 1,"
            f" got {stated.size} and {right.size}"
        )
    if not ((stated >= 0) & (stated <= 1)).all():
        raise ValueError(
            f"confidence of reliability must lie in 0 ... 1, got {np.min(stated)} ... {np.max(stated)}"
        )
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
    """Compute every score of a label image against the truth.

    Parameters
    ----------
    labels, truth : array-like of integers, (H, W)
        Zero is a label like any other, in both.
    ignore_label : int, optional
        Pixels where `truth` has this value are left out, together with the boundaries to them.
    tolerance : float, default=5
        Distance in px within which boundary pixels count as found (`boundary_f`, `boundary_precision`,
        `boundary_recall`).

    Returns
    -------
    Score
        A named tuple; each field documents its score.

    Raises
    ------
    TypeError, ValueError
        As for `contingency_table`, and if the images are not two-dimensional or `tolerance` is
        negative.

    Examples
    --------
    >>> truth = np.repeat([[1, 2]], 8, axis=0).repeat(8, axis=1)
    >>> labels = np.roll(truth, 1, axis=1) + 3
    >>> result = score(labels, truth)
    >>> result.co, result.cs, result.boundary_recall
    (0.875, 1.0, 1.0)
    """
    test, reference = _check_pair(labels, truth)
    if test.ndim != 2:
        raise ValueError(f"labels of score must have two dimensions, got shape {test.shape}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance of score must be at least 0 px, got {tolerance}")
    counts = contingency_table(test, reference, ignore_label).counts
    valid = np.ones(test.shape, bool) if ignore_label is None else reference != ignore_label
    return Score(
        n_segments=counts.shape[0],
        n_regions=counts.shape[1],
        **_region_rates(counts, HOOVER_THRESHOLD)._asdict(),
        **_pixel_scores(counts),
        **_overlap_scores(counts),
        **_information_scores(counts),
        **_pair_scores(counts),
        **_boundary_scores(_boundary_map(test, valid), _boundary_map(reference, valid), tolerance),
    )


def _check_pair(labels: ArrayLike, truth: ArrayLike, name: str = "truth") -> tuple[NDArray, NDArray]:
    test, reference = np.asarray(labels), np.asarray(truth)
    for what, values in (("labels", test), (name, reference)):
        if values.dtype.kind not in "bui":
            raise TypeError(f"{what} must be integers, got dtype {values.dtype}; round or encode them first")
    if test.shape != reference.shape:
        raise ValueError(f"labels {test.shape} and {name} {reference.shape} must have the same shape")
    return test, reference


def _encode(values: NDArray) -> tuple[NDArray, NDArray[np.intp]]:
    """Give the different values, ascending, and the position of each pixel's value among them."""
    flat = values.ravel().view(np.uint8) if values.dtype == bool else values.ravel()
    lowest = flat.min()
    if int(flat.max()) - int(lowest) > 4 * flat.size + 1024:
        found, codes = np.unique(flat, return_inverse=True)
        return found, codes.ravel()
    wide = flat if flat.dtype.kind == "u" else flat.astype(np.int64)
    offsets = (wide - lowest).astype(np.intp)
    present = np.bincount(offsets) > 0
    positions = np.cumsum(present) - 1
    return np.flatnonzero(present).astype(wide.dtype) + lowest.astype(wide.dtype), positions[offsets]


class _Partners(NamedTuple):
    """What the one-to-one matching assigns to each region and segment, in pixels; zero if nothing."""

    hit: NDArray[np.int64]
    """(N,), overlap of each region with its segment."""
    size: NDArray[np.int64]
    """(N,), size of that segment."""
    segment_hit: NDArray[np.int64]
    """(M,), overlap of each segment with its region."""


def _partners(counts: NDArray[np.int64]) -> _Partners:
    partner = best_matching(counts)
    rows = np.flatnonzero(partner >= 0)
    rows = rows[counts[rows, partner[rows]] > 0]
    columns = partner[rows]
    hit, size = np.zeros((2, counts.shape[1]), dtype=np.int64)
    segment_hit = np.zeros(counts.shape[0], dtype=np.int64)
    hit[columns] = segment_hit[rows] = counts[rows, columns]
    size[columns] = counts[rows].sum(axis=1)
    return _Partners(hit, size, segment_hit)


def _region_rates(counts: NDArray[np.int64], k: float) -> RegionRates:
    segments, regions = counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)
    slack = 1e-9  # keeps rounding of k * n from missing an integer
    in_region = counts >= k * segments - slack
    in_segment = counts >= k * regions - slack
    correct = in_region & in_segment
    filled = np.where(in_region, counts, 0).sum(axis=0) >= k * regions[0] - slack
    over = in_region & ((in_region.sum(axis=0) >= 2) & filled)
    covered = np.where(in_segment, counts, 0).sum(axis=1) >= k * segments[:, 0] - slack
    under = in_segment & ((in_segment.sum(axis=1) >= 2) & covered)[:, None]
    instance = correct | over | under
    return RegionRates(
        cs=float(correct.any(axis=0).mean()),
        os=float(over.any(axis=0).mean()),
        us=float(under.any(axis=0).mean()),
        me=float((~instance.any(axis=0)).mean()),
        ne=float((~instance.any(axis=1)).mean()),
    )


def _pixel_scores(counts: NDArray[np.int64]) -> dict[str, float]:
    """Compute Prague's pixel-wise scores, weighted over the regions."""
    n, region, segment = counts.sum(), counts.sum(axis=0), counts.sum(axis=1)
    hit, size, segment_hit = _partners(counts)
    weight, some = region / n, np.maximum(size, 1)
    alone = segment[segment_hit == 0]
    squares = np.sum(((size - region) / n) ** 2) + np.sum((alone / n) ** 2)
    return {
        "co": float(hit.sum() / n),
        "ca": float(np.sum(weight * hit / (region + size - hit))),
        "cc": float(np.sum(weight * hit / some)),
        "o": float(np.median((region - hit) / region)),
        "c": float(np.median((segment - segment_hit) / segment)),
        "i": float((n - hit.sum()) / n),
        "ii": float(np.sum(weight * (size - hit) / np.maximum(n - region, 1))),
        "ea": float(np.sum(weight * 2 * hit / (region + size))),
        "ms": float(np.sum(1.5 * hit - 0.5 * size) / n),
        "rm": float(np.sqrt(squares / max(counts.shape))),
        "ci": float(np.sum(hit * np.sqrt(region / some)) / n),
    }


def _overlap_scores(counts: NDArray[np.int64]) -> dict[str, float]:
    """Compute the scores that need no matching: consistency, van Dongen, covering."""
    n, region, segment = counts.sum(), counts.sum(axis=0), counts.sum(axis=1)[:, None]
    out_of_segment, out_of_region = 1 - counts / segment, 1 - counts / region
    either = np.minimum(out_of_segment, out_of_region)
    iou = counts / (segment + region - counts)
    return {
        "gce": float(min(np.sum(counts * out_of_segment), np.sum(counts * out_of_region)) / n),
        "lce": float(np.sum(counts * either) / n),
        "dd": float((2 * n - counts.max(axis=1).sum() - counts.max(axis=0).sum()) / (2 * n)),
        "covering": float(np.sum(region * iou.max(axis=0)) / n),
    }


def _information_scores(counts: NDArray[np.int64]) -> dict[str, float]:
    n = counts.sum()
    rows, columns = np.nonzero(counts)
    joint = counts[rows, columns]
    over = float(np.sum(joint * np.log2(counts.sum(axis=0)[columns] / joint)) / n)
    under = float(np.sum(joint * np.log2(counts.sum(axis=1)[rows] / joint)) / n)
    return {"dvi": over + under, "vi_over": over, "vi_under": under}


def _pair_scores(counts: NDArray[np.int64]) -> dict[str, float]:
    """Compute the scores that count pairs of pixels, from sums of squares, in exact Python integers."""
    n = int(counts.sum())
    both, in_labels, in_truth = (
        int(np.sum(sizes * sizes)) for sizes in (counts, counts.sum(axis=1), counts.sum(axis=0))
    )
    pairs, together = n * n - n, both - n
    same_labels, same_truth = in_labels - n, in_truth - n
    differing = in_labels + in_truth - 2 * both
    chance = 2 * same_labels * same_truth
    room = (same_labels + same_truth) * pairs - chance
    return {
        "dm": differing / n**2,
        "ari": (2 * together * pairs - chance) / room if room else 1.0,
        "rand_index": 1 - differing / pairs if pairs else 1.0,
        "adapted_rand_error": differing / (same_labels + same_truth) if same_labels + same_truth else 0.0,
    }


def _boundary_map(labels: NDArray, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the pixels that differ from the next one to the right, below or diagonally, as BSDS does."""
    edge = np.zeros(labels.shape, bool)
    for here, there in (
        (np.s_[:, :-1], np.s_[:, 1:]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[:-1, :-1], np.s_[1:, 1:]),
    ):
        edge[here] |= (labels[here] != labels[there]) & valid[here] & valid[there]
    return edge


def _boundary_scores(test: NDArray[np.bool_], truth: NDArray[np.bool_], tolerance: float) -> dict[str, float]:
    diagonal = float(np.hypot(*test.shape))
    from_test, from_truth = _distances(test, truth, diagonal), _distances(truth, test, diagonal)
    precision, recall = (_share(distances <= tolerance) for distances in (from_test, from_truth))
    n_matched = _count_one_to_one(test, truth, BSDS_TOLERANCE * diagonal)
    n_pixels = len(from_test) + len(from_truth)
    return {
        "boundary_f": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "boundary_precision": precision,
        "boundary_recall": recall,
        "boundary_f_bsds": 2 * n_matched / n_pixels if n_pixels else 1.0,
        "bde": float(np.mean([d.mean() for d in (from_test, from_truth) if len(d)] or 0)),
    }


def _distances(start: NDArray[np.bool_], target: NDArray[np.bool_], farthest: float) -> NDArray[np.float64]:
    """Give the distance in px of each pixel of one boundary to the other, `farthest` if there is none."""
    if not target.any():
        return np.full(np.count_nonzero(start), farthest)
    distance = cv2.distanceTransform((~target).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return distance[start].astype(float)


def _share(found: NDArray[np.bool_]) -> float:
    """Give the share that is found; 1 if there was nothing to find."""
    return float(found.mean()) if found.size else 1.0


def _count_one_to_one(test: NDArray[np.bool_], truth: NDArray[np.bool_], tolerance: float) -> int:
    """Count the pairs of the largest one-to-one matching of boundary pixels within the tolerance.

    By maximum flow through arcs of capacity one, since SciPy's `maximum_bipartite_matching` may take
    exponential time on such chains of near neighbours.
    """
    if not (test.any() and truth.any()):
        return 0
    trees = [cKDTree(np.argwhere(boundary)) for boundary in (test, truth)]
    near = trees[0].sparse_distance_matrix(trees[1], tolerance, output_type="coo_matrix")
    n_test, n_truth = near.shape
    source, sink = n_test + n_truth, n_test + n_truth + 1
    tails = np.concatenate([np.full(n_test, source), near.row, n_test + np.arange(n_truth)])
    heads = np.concatenate([np.arange(n_test), n_test + near.col, np.full(n_truth, sink)])
    arcs = tails.astype(np.int32), heads.astype(np.int32)  # SciPy before 1.14 accepts no other dtype
    network = csr_array((np.ones(len(tails), np.int32), arcs), shape=(sink + 1, sink + 1))
    return int(maximum_flow(network, source, sink).flow_value)
