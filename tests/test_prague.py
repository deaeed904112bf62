"""Scores of the Prague benchmark against cases worked out by hand, other libraries and laws."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import adapted_rand_error
from sklearn.metrics import rand_score
from test_metrics import BY_HAND, HALVES, SHIFTED, boundary_by_hand, random_pair, small_labels

from benchmarks import prague
from texseg import metrics

PRAGUE_BY_HAND = {
    "ca": 1 / 2 * 8 / 12 + 1 / 2 * 4 / 8,
    "cc": 1 / 2 * 8 / 12 + 1 / 2 * 4 / 4,
    "cs": 0,  # 8 of 12 and 4 of 8 are both less than three quarters
    "os": 0,
    "us": 0,
    "me": 1,
    "ne": 1,
    "o": (0 + 4 / 8) / 2,
    "c": (4 / 12 + 0) / 2,
    "i": 4 / 16,
    "ii": 1 / 2 * 4 / 8,
    "ea": 1 / 2 * 16 / 20 + 1 / 2 * 8 / 12,
    "ms": (1.5 * 12 - 0.5 * 16) / 16,
    "rm": np.sqrt(((4 / 16) ** 2 + (4 / 16) ** 2) / 2),
    "ci": (8 * np.sqrt(8 / 12) + 4 * np.sqrt(8 / 4)) / 16,
    "gce": min(8 * 4 / 12 + 4 * 8 / 12, 4 * 4 / 8 + 4 * 4 / 8) / 16,
    "lce": 4 * 1 / 2 / 16,
    "dm": (144 + 16 + 64 + 64 - 2 * (64 + 16 + 16)) / 256,
    "dd": (32 - (8 + 4) - (8 + 4)) / 32,
    "dvi": 0.5 + 0.75 * (np.log2(3) - 2 / 3),
    "rand_index": 72 / 120,
    "adapted_rand_error": 1 - 2 * 40 / (72 + 56),
    "boundary_f_bsds": 0,  # one pixel apart, but .0075 diagonals are less than that
}


def test_every_score_of_a_case_worked_out_by_hand():
    result = prague.score(SHIFTED, HALVES)._asdict()
    expected = PRAGUE_BY_HAND | {name: BY_HAND[name] for name in result if name in BY_HAND}
    assert set(result) == set(expected)
    for name, value in expected.items():
        assert result[name] == pytest.approx(value, abs=1e-12), name


def test_perfect_labels_get_the_best_of_every_score():
    result = prague.score(HALVES * 7, HALVES)
    best = {
        "co",
        "ca",
        "cc",
        "cs",
        "ea",
        "ms",
        "ci",
        "ari",
        "rand_index",
        "covering",
        "boundary_f",
        "boundary_f_bsds",
    }
    for name, value in result._asdict().items():
        assert name in ("n_segments", "n_regions") or value == (1.0 if name in best else 0.0), name


def test_over_and_under_segmentation_are_told_apart():
    two = np.repeat([[1], [1], [2], [2]], 4, axis=1)
    three = two.copy()
    three[:2, 2:] = 3
    over, under = prague.score(three, two), prague.score(two, three)
    assert (over.cs, over.os, over.us, over.me, over.ne) == (0.5, 0.5, 0, 0, 0)
    assert (under.cs, under.os, under.us, under.me, under.ne) == pytest.approx((1 / 3, 0, 2 / 3, 0, 0))
    assert over.gce == under.gce == 0
    # a segment without a region: commission 1, and its 4 pixels count in RM over three pairs
    assert over.c == 0
    assert over.rm == pytest.approx(np.sqrt(((4 / 16) ** 2 + (4 / 16) ** 2) / 3))
    assert under.o == 0


def test_a_region_is_correct_exactly_at_the_threshold():
    truth = np.repeat([1, 2], 8).reshape(4, 4)
    labels = truth.copy()
    labels[0, :2] = 3
    assert prague.score(labels, truth).cs == 1.0  # 6 of 8 is three quarters


def test_segment_whose_partner_does_not_overlap_has_none():
    result = prague.score([[1, 1, 1, 1, 2]], [[1, 1, 1, 2, 1]])
    assert result.co == 3 / 5
    assert result.ms == pytest.approx((1.5 * 3 - 0.5 * 4) / 5)
    assert result.rm == pytest.approx(np.sqrt((0 + (1 / 5) ** 2 + (1 / 5) ** 2) / 2))


def test_labels_alike_everywhere():
    nothing = prague.score(np.ones((4, 4), int), np.zeros((4, 4), int))
    assert (nothing.co, nothing.boundary_f_bsds) == (1, 1)
    assert prague.score(np.ones((4, 4), int), HALVES).boundary_f_bsds == 0


def test_double_boundary_matches_only_once():
    truth = np.repeat([[1] * 100 + [2] * 100], 200, axis=0)
    labels = truth.copy()
    labels[:, 100] = 3
    result = prague.score(labels, truth)
    assert result.boundary_f == 1
    assert result.boundary_f_bsds == pytest.approx(2 * 200 / 600)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_one_to_one_boundary_matching_is_the_largest(shift):
    rng = np.random.default_rng(shift)
    truth = rng.integers(4, size=(5, 7)).repeat(30, 0).repeat(30, 1)
    labels = np.roll(truth, shift, axis=1)
    labels[rng.random(labels.shape) < 0.01] = 9
    tolerance = 0.0075 * np.hypot(*truth.shape)
    sides = [np.argwhere(boundary_by_hand(image)) for image in (labels, truth)]
    near = np.hypot(*(sides[0][:, None] - sides[1][None]).transpose(2, 0, 1)) <= tolerance
    graph = nx.Graph()
    graph.add_edges_from((("labels", a), ("truth", b)) for a, b in np.argwhere(near).tolist())
    top = [node for node in graph if node[0] == "labels"]
    n_matched = len(nx.bipartite.hopcroft_karp_matching(graph, top)) // 2
    expected = 2 * n_matched / (len(sides[0]) + len(sides[1]))
    assert prague.score(labels, truth).boundary_f_bsds == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_against_other_libraries(seed):
    labels, truth = random_pair(seed)
    result = prague.score(labels, truth)
    error, _, _ = adapted_rand_error(truth, labels, ignore_labels=())
    assert result.adapted_rand_error == pytest.approx(error)
    assert result.rand_index == pytest.approx(rand_score(truth.ravel(), labels.ravel()))


@settings(max_examples=50, deadline=None)
@given(labels=small_labels, truth=small_labels, seed=st.integers(0, 99))
def test_names_of_labels_do_not_matter(labels, truth, seed):
    names = np.random.default_rng(seed).permutation(1000)
    before = prague.score(labels, truth)
    after = prague.score(names[labels] - 500, names[truth[::-1]][::-1])
    for name in ("co", "i", "cs", "os", "us", "me", "ne", "gce", "lce", "dm", "dd", "dvi", "ari", "covering"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), abs=1e-12), name
    for name in ("boundary_f", "boundary_f_bsds", "bde"):
        assert getattr(after, name) == getattr(before, name), name


def test_names_do_not_matter_for_scores_of_matched_pairs():
    labels, truth = random_pair(11)
    names = np.random.default_rng(0).permutation(50)
    np.testing.assert_allclose(prague.score(names[labels], names[truth]), prague.score(labels, truth))


@settings(max_examples=50, deadline=None)
@given(labels=small_labels, truth=small_labels)
def test_symmetric_scores(labels, truth):
    one, other = prague.score(labels, truth), prague.score(truth, labels)
    for name in ("co", "gce", "lce", "dm", "dd", "dvi", "ari", "rand_index", "adapted_rand_error"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-12), name
    assert (one.boundary_f, one.boundary_f_bsds) == pytest.approx((other.boundary_f, other.boundary_f_bsds))
    assert one.lce <= one.gce + 1e-12


@settings(max_examples=30, deadline=None)
@given(a=small_labels, b=small_labels, c=small_labels)
def test_distances_obey_the_triangle_inequality(a, b, c):
    for name in ("dvi", "dm", "dd"):
        direct, first, second = (getattr(prague.score(*pair), name) for pair in ((a, c), (a, b), (b, c)))
        assert direct <= first + second + 1e-12, name


def test_curves_fall_where_they_must_and_meet_the_score_at_three_quarters():
    labels, truth = random_pair(8)
    curves = prague.f_curves(labels, truth)
    assert curves.thresholds[0] == pytest.approx(0.505)
    assert curves.thresholds[-1] == 1.0
    assert (np.diff(curves.rates.cs) <= 0).all()
    at = np.argmin(np.abs(curves.thresholds - 0.75))
    result = prague.score(labels, truth)
    assert [rate[at] for rate in curves.rates] == [result.cs, result.os, result.us, result.me, result.ne]


def test_integral_of_correct_segmentation_against_its_exact_value():
    labels, truth = random_pair(8)
    counts = metrics.contingency_table(labels, truth).counts
    critical = np.minimum(counts / counts.sum(axis=1, keepdims=True), counts / counts.sum(axis=0))
    exact = np.maximum(critical.max(axis=0) - 0.5, 0).mean() / 0.5
    assert prague.f_curves(labels, truth).integrals.cs == pytest.approx(exact, abs=0.01)
