"""The number of segments: trees made by hand, planted over-segmentations, and planted images."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from site_scenes import N_CHANNELS, gains_of, regions, sites_of

from texseg import TextureSegmenter, match_labels
from texseg.fitting.candidates import Candidate, interior_gain
from texseg.fitting.number import CLEAR, NOISE, ONE, MergeTree, choose_number, closest_separations, merge_tree

GRID = (24, 32)
WINDOW = 5.0


def tree_of(separations, contrast=2 * ONE):
    """Cluster 0 swallows all others in turn, at these separations; every contrast is the same."""
    K = len(separations) + 1
    merges = tuple((0, k) for k in range(1, K))
    return MergeTree(np.arange(K), merges, np.array(separations, float), np.full(K - 1, contrast))


def candidate_of(labels, sites):
    """Make labels of sites the clusters of a fit."""
    Q = np.eye(labels.max() + 1, dtype=np.float32)[labels.ravel()]
    profiles = sites.profiles(Q)
    scores = gains_of(sites, profiles)
    return Candidate(Q, profiles, scores, interior_gain(scores, Q, sites))


def halved(region):
    """Cut each of the four rectangles in two: cluster 2 r and 2 r + 1 are parts of texture r."""
    rows = np.mgrid[: region.shape[0], : region.shape[1]][0]
    return 2 * region + (rows % (region.shape[0] // 2) >= region.shape[0] // 4)


@pytest.fixture(scope="module")
def planted():
    """Four textures, cut into eight clusters."""
    region = regions(GRID)
    sites, _ = sites_of(region, n_draws=12)
    return sites, region, halved(region)


# ---- the choice from a tree --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("separations", "chosen"),
    [
        ([], 1),
        ([1.0], 2),
        ([CLEAR], 2),
        ([CLEAR, CLEAR, CLEAR], 4),
        ([5.0, 5.5, 30.0, 50.0], 3),
        ([5.0, 8.0, 10.0, 39.0], 2),
        ([9.0, 12.0, 35.0, 250.0], 2),  # a leap far above what is clear counts, though less
        ([7.0, 30.0, 9.0, 35.0], 4),  # what was once far apart stays so, whatever is merged into it
    ],
)
def test_the_number_is_where_the_separation_leaps(separations, chosen):
    selection = choose_number(tree_of(separations))
    assert selection.chosen == chosen
    assert selection.n_segments.tolist() == list(range(1, len(separations) + 2))
    assert choose_number(tree_of(separations, 0.9 * ONE)).chosen == 1


def test_one_contrast_is_enough_for_more_than_one_segment():
    contrasts = np.array([3.0, 1.01 * ONE, 3.0])
    tree = tree_of([5.0, 12.0, 60.0])._replace(contrasts=contrasts)
    selection = choose_number(tree)
    assert selection.chosen == 3
    np.testing.assert_array_equal(selection.contrasts, [np.nan, *contrasts[::-1]])
    assert choose_number(tree._replace(contrasts=contrasts / 1.02)).chosen == 1


def test_without_any_contrast_there_is_one_segment():
    selection = choose_number(tree_of([0.5, 0.5], contrast=0.0))
    assert selection.chosen == 1
    assert np.isfinite(selection.scores).all()


def test_scores_are_leaps_contrasts_and_numbers():
    contrasts = np.array([40.0, 90.0, 50.0])
    selection = choose_number(tree_of([5.0, 12.0, 60.0])._replace(contrasts=contrasts))
    np.testing.assert_array_equal(selection.separations, [np.nan, 60, 12, 5])
    two = np.log(CLEAR * (60 / CLEAR) ** 0.7 / 12) + 2 * np.log(50) + np.log(2) / 2
    three = np.log(12 / 5) + 2 * np.log(CLEAR * 3**0.5) + np.log(3) / 2
    four = np.log(5 / NOISE) + 2 * np.log(40) + np.log(4) / 2
    np.testing.assert_allclose(selection.scores, [three - np.log(90 / ONE), two, three, four])


def test_a_contrast_far_above_what_is_clear_counts_no_more():
    separations = [5.0, 12.0, 12.0]
    one, other = (
        choose_number(tree_of(separations)._replace(contrasts=np.array([40.0, factor * CLEAR, 40.0]))).scores
        for factor in (2, 20)
    )
    np.testing.assert_array_equal(one[1:], other[1:])


def test_all_leaps_together_lead_from_noise_to_the_last_merge():
    separations = np.random.default_rng(0).uniform(1, CLEAR, 12)
    scores = choose_number(tree_of(separations, contrast=ONE)).scores
    numbers = np.arange(2, 14)
    leaps = scores[1:] - 2 * np.log(ONE) - np.log(numbers) / 2
    assert (leaps > -1e-12).all()
    assert leaps.sum() == pytest.approx(np.log(separations.max() / NOISE))


# ---- groups ------------------------------------------------------------------------------------------------


def test_groups_are_nested_partitions_into_k():
    tree = MergeTree(np.arange(5), ((1, 3), (0, 4), (1, 2), (0, 1)), np.arange(4.0), np.arange(4.0))
    groups = {k: tree.groups(k).tolist() for k in range(1, 6)}
    assert groups == {
        5: [0, 1, 2, 3, 4],
        4: [0, 1, 2, 1, 3],
        3: [0, 1, 2, 1, 0],
        2: [0, 1, 1, 1, 0],
        1: [0, 0, 0, 0, 0],
    }


@pytest.mark.parametrize("k", [-1, 0, 4])
def test_there_are_no_more_groups_than_clusters(k):
    with pytest.raises(ValueError, match=f"k must be 1 to 3, got {k}"):
        tree_of([1.0, 2.0]).groups(k)


# ---- merging -----------------------------------------------------------------------------------------------


def test_parts_of_one_texture_are_merged_first(planted):
    sites, region, clusters = planted
    tree = merge_tree(candidate_of(clusters, sites), sites, WINDOW)
    assert tree.n_clusters == 8
    np.testing.assert_array_equal(tree.labels, clusters.ravel())
    assert sorted(tree.merges[:4]) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    np.testing.assert_array_equal(tree.groups(4)[tree.labels], region.ravel())
    assert tree.separations[:4].max() < NOISE
    assert tree.separations[4:].min() > 3 * NOISE
    assert choose_number(tree).chosen == 4


def test_parts_of_one_texture_alone_are_one_segment():
    region = np.zeros(GRID, int)
    sites, _ = sites_of(region, n_draws=12)
    tree = merge_tree(candidate_of(halved(regions(GRID)), sites), sites, WINDOW)
    assert tree.n_clusters == 8
    assert tree.contrasts.max() < ONE
    assert choose_number(tree).chosen == 1


def test_names_of_clusters_do_not_matter(planted):
    sites, _, clusters = planted
    names = np.random.default_rng(0).permutation(8)
    tree = merge_tree(candidate_of(clusters, sites), sites, WINDOW)
    renamed = merge_tree(candidate_of(names[clusters], sites), sites, WINDOW)
    np.testing.assert_allclose(renamed.separations, tree.separations, rtol=1e-3)
    for k in range(1, 9):
        one, other = tree.groups(k)[tree.labels], renamed.groups(k)[renamed.labels]
        assert len(np.unique(np.stack([one, other]), axis=1)[0]) == k


def test_twice_the_area_separates_by_the_root_of_two(planted):
    sites, _, clusters = planted
    twice = replace(
        sites,
        counts=np.tile(sites.counts, (2, 1)), sizes=np.tile(sites.sizes, 2), grids=sites.grids * 2
    )
    one = merge_tree(candidate_of(clusters, sites), sites, WINDOW)
    two = merge_tree(candidate_of(np.concatenate([clusters, clusters]), twice), twice, WINDOW)
    assert two.merges == one.merges
    np.testing.assert_allclose(two.separations, 2**0.5 * one.separations, rtol=1e-3)
    np.testing.assert_allclose(two.contrasts, 2**0.5 * one.contrasts, rtol=1e-3)


def test_clusters_along_borders_are_dissolved(planted):
    sites, region, _ = planted
    clusters = region.copy()
    clusters[11:13] = 4  # two cells wide
    tree = merge_tree(candidate_of(clusters, sites), sites, WINDOW)
    assert tree.n_clusters == 4
    np.testing.assert_array_equal(np.unique(tree.labels), np.arange(4))
    assert (tree.labels == region.ravel()).mean() > 0.98


def test_a_single_cluster_has_nothing_to_merge(planted):
    sites = planted[0]
    tree = merge_tree(candidate_of(np.zeros(GRID, int), sites), sites, WINDOW)
    assert tree.merges == ()
    assert tree.separations.shape == (0,)
    assert choose_number(tree).chosen == 1


def test_cells_without_data_have_no_say():
    missing = np.zeros(GRID, bool)
    missing[:, 13:19] = True
    region = regions(GRID)
    sites, _ = sites_of(region, n_draws=12, missing=missing)
    names = np.where(missing, 0, halved(region))  # whatever they are called
    one = merge_tree(candidate_of(halved(region), sites), sites, WINDOW)
    other = merge_tree(candidate_of(names, sites), sites, WINDOW)
    assert one.merges == other.merges
    np.testing.assert_allclose(one.separations, other.separations, rtol=1e-3)


def separation_by_hand(labels, sites, side, n_channels):
    """Separation of two clusters by the module's text, cell by cell; odd windows, cut at the border."""
    grid, reach = sites.grids[0], side // 2
    cells = list(itertools.product(range(grid[0]), range(grid[1])))
    counts = sites.counts.astype(float).reshape(*grid, -1)
    background = sites.background.astype(float)

    def profile(k, fold):
        own = [counts[c] for c in cells if labels[c] == k and sum(c) % 2 == fold]
        return 0.998 * np.mean(own, axis=0) + 0.002 * background + 1e-7

    ratio = np.zeros((*grid, n_channels))
    for c in cells:
        own, fold = labels[c], 1 - sum(c) % 2
        logs = np.log(profile(own, fold)) - np.log(profile(1 - own, fold))
        ratio[c] = (sites.weights * counts[c] * logs).reshape(n_channels, -1).sum(axis=1)
    means = {0: [], 1: []}
    shares = {0: [], 1: []}
    for i, j in cells:
        window = np.s_[max(i - reach, 0) : i + reach + 1, max(j - reach, 0) : j + reach + 1]
        own = labels[window] == labels[i, j]
        means[labels[i, j]].append(ratio[window][own].mean(axis=0))
        shares[labels[i, j]].append(own.mean())
    whole = [np.array(means[k])[np.array(shares[k]) >= 0.6] for k in (0, 1)]
    scale = ((whole[0].var(axis=0) + whole[1].var(axis=0)) / 2) ** 0.25  # root of the standard deviation
    sums = [(own / scale).sum(axis=1) for own in whole]
    distance = (sums[0].mean() + sums[1].mean()) / np.sqrt((sums[0].var() + sums[1].var()) / 2)
    area = min(len(means[0]), len(means[1]))
    border = (labels[:, 1:] != labels[:, :-1]).sum() + (labels[1:] != labels[:-1]).sum()
    contact = border / (2 * np.sqrt(area))
    return distance * np.sqrt(area) / side / ((contact + 0.2) / 0.5) ** (1 / 3)


def test_the_separation_is_that_of_held_out_window_means():
    labels = (np.mgrid[:10, :14][1] >= 6).astype(int)
    sites, _ = sites_of(labels, n_draws=20)
    (separation,) = merge_tree(candidate_of(labels, sites), sites, 3.0).separations
    assert separation == pytest.approx(separation_by_hand(labels, sites, 3, N_CHANNELS), rel=1e-3)


def test_textures_that_do_not_touch_are_farther_apart():
    columns = np.mgrid[:24, :30][1]
    found = []
    for gap in (columns >= 24, (columns >= 12) & (columns < 18)):
        labels = np.where(columns >= 12, 1, 0)
        sites, _ = sites_of(labels, n_draws=12, missing=gap)
        found.append(closest_separations([candidate_of(labels, sites)], sites, WINDOW)[0, 0])
    contact = 24 / (2 * np.sqrt(12 * 24))
    assert found[1] / found[0] == pytest.approx((1 + contact / 0.2) ** (1 / 3), rel=0.15)


def test_interleaved_stripes_are_closer_than_halves():
    columns = np.mgrid[:96, :96][1]
    found, contacts = [], []
    for labels in (columns // 48, columns // 8 % 2):
        sites, _ = sites_of(labels, n_draws=12)
        found.append(closest_separations([candidate_of(labels, sites)], sites, WINDOW)[0, 0])
        contacts.append((np.diff(labels, axis=1) != 0).sum() / (2 * np.sqrt(96 * 48)))
    assert contacts[0] < 1 and contacts[1] > 7
    touch = [((c + 0.2) / 0.5) ** (1 / 3) * max(1, c / 6) for c in contacts]
    assert found[0] / found[1] == pytest.approx(touch[1] / touch[0], rel=0.2)


def test_the_closest_separations_are_those_of_the_pairs(planted):
    sites, region, clusters = planted
    for labels in (region, clusters):
        candidate = candidate_of(labels, sites)
        tree = merge_tree(candidate, sites, WINDOW)
        first = tree.separations[0]
        (closest,) = closest_separations([candidate], sites, WINDOW)
        assert closest.shape == (2,)
        assert closest[0] == pytest.approx(first, rel=1e-6)
        assert tree.contrasts[0] == pytest.approx(np.sqrt(tree.n_clusters) * first, rel=1e-6)
        assert closest[1] >= closest[0]


def test_an_empty_cluster_and_a_single_one_are_separated_from_nothing(planted):
    sites, region, _ = planted
    empty = candidate_of(np.where(region == 2, 4, region), sites)
    np.testing.assert_array_equal(closest_separations([empty], sites, WINDOW), [[0, 0]])
    assert closest_separations([candidate_of(0 * region, sites)], sites, WINDOW).shape == (1, 0)


# ---- planted images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_textures", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_number_of_planted_textures_is_found(make_number, n_textures, seed):
    image, truth = make_number(n_textures, (192, 208), seed)
    model = TextureSegmenter().fit(image)
    assert model.n_segments_ == model.selection_.chosen == n_textures
    assert (match_labels(model.labels_, truth) == truth).mean() > 0.97
