"""Scores of the Prague texture segmentation benchmark, and others that only serve to compare with papers.

All scores of regions come from one contingency table, ``counts[i, j]`` = pixels of segment i in region j
of the truth. In the formulas n is the number of pixels, n_ij the table, n_i. and n_.j its margins, M the
number of segments and N that of regions; hit_j is the overlap of region j with the segment assigned to it
one to one, m_j the size of that segment. A region whose partner does not overlap it has none: hit_j =
m_j = 0.

References
----------
.. [1] A. Hoover et al., "An experimental comparison of range image segmentation algorithms", IEEE PAMI
   18, 1996.
.. [2] S. Mikes, M. Haindl, "Texture segmentation benchmark", IEEE PAMI 44, 2022.
.. [3] D. Martin et al., "A database of human segmented natural images and its application to evaluating
   segmentation algorithms and measuring ecological statistics", ICCV 2001.
.. [4] P. Arbelaez et al., "Contour detection and hierarchical image segmentation", IEEE PAMI 33, 2011.
.. [5] M. Meila, "Comparing clusterings: an information based distance", J. Multivariate Analysis 98, 2007.
.. [6] I. Arganda-Carreras et al., "Crowdsourcing the creation of image segmentation algorithms for
   connectomics", Frontiers in Neuroanatomy 9, 2015.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.spatial import cKDTree

from texseg import metrics
from texseg.metrics import best_matching, boundary_map, contingency_table

HOOVER_THRESHOLD = 0.75
"""The k at which Prague reports CS, OS, US, ME and NE."""

BSDS_TOLERANCE = 0.0075
"""The tolerance of the one-to-one boundary match, as a fraction of the image diagonal."""


class RegionRates(NamedTuple):
    """Hoover's instances of regions [1]_, [2]_ at an overlap threshold k, as fractions.

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
    """(T,), values of k in (.5, 1]."""
    rates: RegionRates
    """Arrays (T,)."""
    integrals: RegionRates
    """Floats: means over the thresholds, the integral over (.5, 1] divided by its length."""


class PragueScore(NamedTuple):
    """Scores of one label image; fractions (0 ... 1) unless noted otherwise."""

    n_segments: int
    n_regions: int
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
    """Variation of information [5]_ in bits. Down is better."""
    ari: float
    """Adjusted Rand index; 0 by chance, may be negative. Up is better."""
    rand_index: float
    """Share of the pairs of pixels on which both agree; PRI for a single truth. Up is better."""
    adapted_rand_error: float
    """1 - F of the precision and recall of pairs [6]_. Down is better."""
    covering: float
    """Covering of the truth [4]_. Up is better."""
    boundary_f: float
    """Boundary F within 5 px, by distance, not one to one. Up is better."""
    boundary_f_bsds: float
    """Boundary F [4]_, pixels matched one to one within .0075 image diagonals. Up is better."""
    bde: float
    """Boundary displacement error in px. Down is better."""


def score(labels: ArrayLike, truth: ArrayLike, ignore_label: int | None = None) -> PragueScore:
    """Compute every score of a label image (H, W) against the truth."""
    known = metrics.score(labels, truth, ignore_label)
    test, reference = np.asarray(labels), np.asarray(truth)
    counts = contingency_table(test, reference, ignore_label).counts
    valid = np.ones(test.shape, bool) if ignore_label is None else reference != ignore_label
    boundaries = boundary_map(test, valid), boundary_map(reference, valid)
    n_matched = count_one_to_one(*boundaries, BSDS_TOLERANCE * float(np.hypot(*test.shape)))
    n_pixels = sum(int(np.count_nonzero(boundary)) for boundary in boundaries)
    return PragueScore(
        **{name: getattr(known, name) for name in PragueScore._fields if hasattr(known, name)},
        **region_rates(counts)._asdict(),
        **_pixel_scores(counts),
        **_overlap_scores(counts),
        **_pair_scores(counts),
        dvi=known.vi_over + known.vi_under,
        boundary_f_bsds=2 * n_matched / n_pixels if n_pixels else 1.0,
    )


def f_curves(
    labels: ArrayLike, truth: ArrayLike, thresholds: ArrayLike | None = None, ignore_label: int | None = None
) -> FCurves:
    """Compute Hoover's rates at overlap thresholds in (.5, 1], by default .505, .51, ... 1."""
    counts = contingency_table(labels, truth, ignore_label).counts
    given = np.linspace(0.5, 1, 101)[1:] if thresholds is None else np.asarray(thresholds, dtype=float)
    rates = RegionRates(*np.array([region_rates(counts, k) for k in given]).T)
    return FCurves(given, rates, RegionRates(*(float(np.mean(rate)) for rate in rates)))


def region_rates(counts: NDArray[np.int64], k: float = HOOVER_THRESHOLD) -> RegionRates:
    """Find Hoover's instances in a contingency table (M, N)."""
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
    """Compute the pixel-wise scores, weighted over the regions."""
    n, region, segment = counts.sum(), counts.sum(axis=0), counts.sum(axis=1)
    partner = best_matching(counts)
    rows = np.flatnonzero(partner >= 0)
    rows = rows[counts[rows, partner[rows]] > 0]
    hit, size = np.zeros((2, counts.shape[1]), dtype=np.int64)
    segment_hit = np.zeros(counts.shape[0], dtype=np.int64)
    hit[partner[rows]] = segment_hit[rows] = counts[rows, partner[rows]]
    size[partner[rows]] = segment[rows]
    weight, some = region / n, np.maximum(size, 1)
    alone = segment[segment_hit == 0]
    squares = np.sum(((size - region) / n) ** 2) + np.sum((alone / n) ** 2)
    return {
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
    """Compute the scores that need no matching: consistency, van Dongen."""
    n, region, segment = counts.sum(), counts.sum(axis=0), counts.sum(axis=1)[:, None]
    out_of_segment, out_of_region = 1 - counts / segment, 1 - counts / region
    either = np.minimum(out_of_segment, out_of_region)
    return {
        "gce": float(min(np.sum(counts * out_of_segment), np.sum(counts * out_of_region)) / n),
        "lce": float(np.sum(counts * either) / n),
        "dd": float((2 * n - counts.max(axis=1).sum() - counts.max(axis=0).sum()) / (2 * n)),
    }


def _pair_scores(counts: NDArray[np.int64]) -> dict[str, float]:
    """Compute the scores that count pairs of pixels, from sums of squares, in exact Python integers."""
    n = int(counts.sum())
    both, in_labels, in_truth = (
        int(np.sum(sizes * sizes)) for sizes in (counts, counts.sum(axis=1), counts.sum(axis=0))
    )
    pairs, differing, same = n * n - n, in_labels + in_truth - 2 * both, in_labels + in_truth - 2 * n
    return {
        "dm": differing / n**2,
        "rand_index": 1 - differing / pairs if pairs else 1.0,
        "adapted_rand_error": differing / same if same else 0.0,
    }


def count_one_to_one(test: NDArray[np.bool_], truth: NDArray[np.bool_], tolerance: float) -> int:
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
