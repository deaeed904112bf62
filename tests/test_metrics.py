"""Scores against cases worked out by hand, other libraries and laws."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from skimage.metrics import variation_of_information as skimage_vi
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

from texseg import metrics

HALVES = np.tile([1, 1, 2, 2], (4, 1))
SHIFTED = np.tile([5, 5, 5, 6], (4, 1))
"""Against HALVES: n_ij = [[8, 4], [0, 4]], segments of 12 and 4 pixels, regions of 8 and 8."""

BY_HAND = {
    "n_segments": 2,
    "n_regions": 2,
    "co": 12 / 16,
    "vi_over": 0.5,
    "vi_under": 0.75 * (np.log2(3) - 2 / 3),
    "ari": (40 - 33.6) / (64 - 33.6),  # pairs: 40 together in both, 72 and 56 in one, 120 in all
    "covering": 1 / 2 * 8 / 12 + 1 / 2 * 4 / 8,
    "boundary_f": 1,
    "boundary_precision": 1,
    "boundary_recall": 1,
    "bde": 1,
}

small_labels = hnp.arrays(np.int64, (5, 6), elements=st.integers(0, 3))


def random_pair(seed=0, n_labels=7, n_truth=5, shape=(40, 50)):
    """Two partitions that agree in part, as a segmentation and its truth do."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_truth, size=(shape[0] // 10, shape[1] // 10)).repeat(10, 0).repeat(10, 1)
    labels = np.roll(truth, 2, axis=(0, 1))
    noisy = rng.random(shape) < 0.2
    return np.where(noisy, rng.integers(n_labels, size=shape), labels), truth


def test_every_score_of_a_case_worked_out_by_hand():
    result = metrics.score(SHIFTED, HALVES)._asdict()
    assert set(result) == set(BY_HAND)
    for name, expected in BY_HAND.items():
        assert result[name] == pytest.approx(expected, abs=1e-12), name


def test_perfect_labels_get_the_best_of_every_score():
    result = metrics.score(HALVES * 7, HALVES)
    best = {"co", "ari", "covering", "boundary_f", "boundary_precision", "boundary_recall"}
    for name, value in result._asdict().items():
        assert name in ("n_segments", "n_regions") or value == (1.0 if name in best else 0.0), name


def test_over_and_under_segmentation_are_told_apart():
    two = np.repeat([[1], [1], [2], [2]], 4, axis=1)
    three = two.copy()
    three[:2, 2:] = 3
    over, under = metrics.score(three, two), metrics.score(two, three)
    assert over.vi_under == under.vi_over == 0
    assert over.vi_over == under.vi_under == 0.5


def test_labels_alike_everywhere():
    nothing = metrics.score(np.ones((4, 4), int), np.zeros((4, 4), int))
    assert (nothing.co, nothing.ari, nothing.boundary_f, nothing.bde) == (1, 1, 1, 0)
    one = metrics.score(np.ones((4, 4), int), HALVES)
    assert (one.boundary_f, one.boundary_precision, one.boundary_recall) == (0, 1, 0)
    assert one.bde == pytest.approx(np.hypot(4, 4))


def boundary_by_hand(labels):
    """Pixels which differ from the right, lower or lower right neighbour."""
    padded = np.pad(labels, ((0, 1), (0, 1)), mode="edge")
    here = padded[:-1, :-1]
    return (here != padded[:-1, 1:]) | (here != padded[1:, :-1]) | (here != padded[1:, 1:])


@pytest.mark.parametrize("tolerance", [1.0, 2.5])
def test_boundary_scores_against_all_distances(tolerance):
    labels, truth = random_pair(3, shape=(30, 40))
    a, b = (np.argwhere(boundary_by_hand(image)) for image in (labels, truth))
    distance = np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1))
    precision = np.mean(distance.min(axis=1) <= tolerance)
    recall = np.mean(distance.min(axis=0) <= tolerance)
    result = metrics.score(labels, truth, tolerance=tolerance)
    assert result.boundary_precision == pytest.approx(precision)
    assert result.boundary_recall == pytest.approx(recall)
    assert result.boundary_f == pytest.approx(2 * precision * recall / (precision + recall))
    assert result.bde == pytest.approx(
        (distance.min(axis=1).mean() + distance.min(axis=0).mean()) / 2, rel=1e-5
    )


@pytest.mark.parametrize("seed", range(5))
def test_against_other_libraries(seed):
    labels, truth = random_pair(seed)
    result = metrics.score(labels, truth)
    assert (result.vi_over, result.vi_under) == pytest.approx(tuple(skimage_vi(truth, labels)))
    assert result.ari == pytest.approx(adjusted_rand_score(truth.ravel(), labels.ravel()))
    table = metrics.contingency_table(labels, truth)
    np.testing.assert_array_equal(table.counts, contingency_matrix(labels.ravel(), truth.ravel()))
    np.testing.assert_array_equal(table.labels, np.unique(labels))
    np.testing.assert_array_equal(table.truth, np.unique(truth))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_best_matching_beats_every_permutation(shape):
    counts = np.random.default_rng(1).integers(0, 50, shape)
    square = np.pad(counts, [(0, max(shape) - side) for side in shape])
    best = max(sum(square[i, p[i]] for i in range(len(p))) for p in permutations(range(len(square))))
    partner = metrics.best_matching(counts)
    pairs = [(i, j) for i, j in enumerate(partner) if j >= 0]
    assert sum(counts[i, j] for i, j in pairs) == best
    assert len(pairs) == len({j for _, j in pairs}) == min(shape)


def test_ties_of_the_matching_go_to_the_better_fitting_pair():
    # 50 + 0 and 40 + 10 are the same sum; the second pairing leaves no segment without a region
    assert metrics.best_matching([[50, 40], [10, 0]]).tolist() == [1, 0]


@settings(max_examples=50, deadline=None)
@given(labels=small_labels, truth=small_labels, seed=st.integers(0, 99))
def test_names_of_labels_do_not_matter(labels, truth, seed):
    names = np.random.default_rng(seed).permutation(1000)
    before = metrics.score(labels, truth)
    after = metrics.score(names[labels] - 500, names[truth[::-1]][::-1])
    for name in ("co", "vi_over", "vi_under", "ari", "covering"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), abs=1e-12), name
    for name in ("boundary_f", "bde"):
        assert getattr(after, name) == getattr(before, name), name


@settings(max_examples=50, deadline=None)
@given(labels=small_labels, truth=small_labels)
def test_symmetric_scores(labels, truth):
    one, other = metrics.score(labels, truth), metrics.score(truth, labels)
    for name in ("co", "ari"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-12), name
    assert (one.vi_over, one.vi_under) == pytest.approx((other.vi_under, other.vi_over))
    assert one.boundary_f == pytest.approx(other.boundary_f)


@settings(max_examples=50, deadline=None)
@given(labels=small_labels, truth=small_labels)
def test_single_scores_are_those_of_score(labels, truth):
    result = metrics.score(labels, truth)
    assert metrics.pixel_accuracy(labels, truth) == result.co
    assert metrics.adjusted_rand_index(labels, truth) == result.ari


def test_ignored_pixels_count_nowhere():
    labels, truth = random_pair(5)
    holed = truth.copy()
    holed[:, :10] = 0
    holed[:, 10:][holed[:, 10:] == 0] = 9
    whole = metrics.score(labels[:, 10:], holed[:, 10:])
    part = metrics.score(labels, holed, ignore_label=0)
    for name in part._fields:
        assert getattr(part, name) == pytest.approx(getattr(whole, name)), name
    assert metrics.score(labels, holed).n_regions == part.n_regions + 1


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.uint64])
def test_dtype_and_range_do_not_matter(dtype):
    labels, truth = random_pair(6, n_labels=2, n_truth=2)
    np.testing.assert_allclose(
        metrics.score(labels.astype(dtype), truth.astype(dtype)), metrics.score(labels, truth)
    )


def test_labels_at_the_ends_of_their_dtype():
    labels, truth = random_pair(6)
    expected = metrics.score(labels, truth)
    ends = np.linspace(-(2**62), 2**62, 8).astype(np.int64)
    np.testing.assert_allclose(metrics.score(ends[labels], truth), expected)
    np.testing.assert_allclose(metrics.score(labels.astype(np.uint64) + np.uint64(2**63), truth), expected)
    np.testing.assert_allclose(metrics.score((labels - 128).astype(np.int8), truth), expected)
    counted = metrics.contingency_table(labels.astype(np.uint64) + np.uint64(2**63), truth)
    assert counted.labels.tolist() == [2**63 + label for label in range(7)]


@settings(max_examples=50, deadline=None)
@given(labels=small_labels, truth=small_labels)
def test_match_labels_gives_the_best_names_to_the_same_partition(labels, truth):
    matched = metrics.match_labels(labels, truth)
    assert matched.dtype == np.int32
    assert np.mean(matched == truth) == pytest.approx(metrics.pixel_accuracy(labels, truth))
    assert metrics.adjusted_rand_index(matched, labels) == 1.0


def test_match_labels_numbers_extra_labels_upwards():
    matched = metrics.match_labels([[1, 1, 2, 3, 4]], [[9, 9, 9, 4, 4]])
    assert matched.tolist() == [[9, 9, 10, 4, 11]]


def test_match_labels_leaves_the_ignored_label_alone():
    matched = metrics.match_labels([[0, 0, 0, 1, 2, 2]], [[3, 3, 3, 3, 0, 5]], ignore_label=0)
    assert matched.tolist() == [[0, 0, 0, 3, 5, 5]]
    alone = metrics.match_labels([[1, 2]], [[1, 1]], ignore_label=2)
    assert alone.tolist() == [[1, 2]]
    above = metrics.match_labels([[1, 2, 3]], [[1, 1, 1]], ignore_label=2)
    assert above.tolist() == [[1, 2, 3]]


def test_reliability_of_hand_made_confidence():
    table = metrics.reliability([0.1, 0.15, 0.6, 1.0], [False, True, True, True], n_bins=2)
    assert table.edges.tolist() == [0, 0.5, 1]
    assert table.n.tolist() == [2, 2]
    assert table.confidence.tolist() == pytest.approx([0.125, 0.8])
    assert table.accuracy.tolist() == [0.5, 1.0]
    assert table.calibration_error == pytest.approx(0.5 * 0.375 + 0.5 * 0.2)


def test_calibrated_confidence_has_a_small_calibration_error():
    rng = np.random.default_rng(0)
    confidence = rng.random((200, 300))
    calibrated = metrics.reliability(confidence, rng.random(confidence.shape) < confidence)
    assert calibrated.calibration_error < 0.01
    overconfident = metrics.reliability(confidence, rng.random(confidence.shape) < confidence**2)
    assert overconfident.calibration_error == pytest.approx(1 / 2 - 1 / 3, abs=0.01)


def test_inputs_are_left_untouched():
    labels, truth = random_pair(9)
    copies = labels.copy(), truth.copy()
    metrics.score(labels, truth, ignore_label=1)
    metrics.match_labels(labels, truth)
    np.testing.assert_array_equal(labels, copies[0])
    np.testing.assert_array_equal(truth, copies[1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: metrics.score(HALVES * 1.0, HALVES),
            TypeError,
            "labels must be integers, got dtype float64",
        ),
        (lambda: metrics.score(HALVES, HALVES * 1j), TypeError, "truth must be integers, got dtype complex"),
        (lambda: metrics.score(HALVES, HALVES[1:]), ValueError, r"labels \(4, 4\) and truth \(3, 4\)"),
        (lambda: metrics.match_labels(HALVES, HALVES[1:]), ValueError, r"and reference \(3, 4\)"),
        (
            lambda: metrics.match_labels([1, 2], [1, 2**31 - 1]),
            ValueError,
            "1 ... 2147483647, which leave the",
        ),
        (lambda: metrics.score([1, 2], [1, 2]), ValueError, r"two dimensions, got shape \(2,\)"),
        (lambda: metrics.score(HALVES, HALVES, tolerance=-1), ValueError, "at least 0 px, got -1"),
        (
            lambda: metrics.score(HALVES, HALVES * 0, ignore_label=0),
            ValueError,
            "no pixel whose truth is not 0",
        ),
        (lambda: metrics.pixel_accuracy(np.zeros(0, int), np.zeros(0, int)), ValueError, "are empty"),
        (
            lambda: metrics.pixel_accuracy(np.arange(20000), np.arange(20000)),
            ValueError,
            "20000 and truth 20000 different values",
        ),
        (lambda: metrics.reliability([0.5], [True, False]), ValueError, "same size, at least 1, got 1 and 2"),
        (lambda: metrics.reliability([1.5], [True]), ValueError, r"lie in 0 ... 1, got 1.5 ... 1.5"),
        (lambda: metrics.reliability([0.5], [True], n_bins=0), ValueError, "at least 1, got 0"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_several_annotators_are_averaged_and_their_agreement_is_the_ceiling():
    one, other, third = (random_pair(seed)[1] for seed in range(3))
    both = metrics.score(one, [other, third])
    pairs = [metrics.score(one, each) for each in (other, third)]
    assert both == pytest.approx(np.mean(pairs, axis=0))
    ceiling = metrics.agreement([one, other])
    assert ceiling == pytest.approx(np.mean([metrics.score(one, other), metrics.score(other, one)], axis=0))
    assert metrics.agreement([one, one]).co == 1
    with_gap = np.where(one == 3, 99, one)
    assert metrics.agreement([with_gap, one], ignore_label=99).co == 1
    with pytest.raises(ValueError, match=r"truths of agreement must have shape \(2 or more, H, W\)"):
        metrics.agreement([one])
