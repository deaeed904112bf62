"""Sites of a grid as a count matrix, and the gain of partitions of them: formulas by hand, and laws."""

from dataclasses import replace

import numpy as np
import pytest
from site_scenes import GRID, N_BINS, N_CHANNELS, regions, scores_of, sites_of

from texseg.counts.sites import BACKGROUND, border_measure

# ---- sites -------------------------------------------------------------------------------------------------


def test_scores_are_weighted_log_likelihoods_under_profiles_with_a_little_background():
    sites, profiles = sites_of(regions())
    scores = scores_of(sites, np.stack([profiles, profiles[::-1]]))
    assert scores.shape == (320, 2, 4)
    mixed = (1 - BACKGROUND) * profiles + BACKGROUND * sites.background
    for i, k in ((0, 0), (17, 3), (300, 1)):
        expected = sum(sites.weights[j] * sites.counts[i, j] * np.log(mixed[k, j]) for j in range(24))
        assert scores[i, 0, k] == pytest.approx(expected, rel=1e-3)
        assert scores[i, 1, 3 - k] == pytest.approx(expected, rel=1e-3)


def test_a_bin_that_a_cluster_has_not_seen_costs_what_a_little_background_says():
    """Unseen bins are unlikely, not impossible: one part in 500 of the image's own share."""
    sites, _ = sites_of(np.zeros(GRID, int))
    seen = np.zeros((1, 24), np.float32)
    seen[0, ::N_BINS] = 1  # each channel has one bin alone
    ones, table = np.ones(24), np.eye(24, dtype=np.float32)
    unit = replace(sites, counts=table, sizes=ones, weights=ones, grids=((1, 24),))
    costs = scores_of(unit, seen)[:, 0]
    unseen = np.arange(24) % N_BINS > 0
    np.testing.assert_allclose(costs[unseen], np.log(sites.background[unseen] / 500), rtol=1e-3)
    np.testing.assert_allclose(costs[~unseen], 0, atol=3e-3)


def test_products_are_those_of_the_weighted_table():
    sites, _ = sites_of(regions())
    rng = np.random.default_rng(0)
    table = sites.counts * sites.weights
    for shape in ((24, 5), (24, 2, 3)):
        A, B = rng.standard_normal(shape), rng.standard_normal((320, *shape[1:]))
        np.testing.assert_allclose(sites @ A, np.tensordot(table, A, 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(sites.T @ B, np.tensordot(table.T, B, 1), rtol=1e-5, atol=1e-5)
        assert np.vdot(sites @ A, B) == pytest.approx(np.vdot(A, sites.T @ B))
    np.testing.assert_array_equal(sites[3:9:2].toarray(), table[3:9:2])
    np.testing.assert_array_equal(sites.groups, np.repeat(np.arange(N_CHANNELS), N_BINS))


def test_profiles_are_mean_histograms_of_soft_clusters():
    missing = np.zeros(GRID, bool)
    missing[3:6] = True
    sites, _ = sites_of(regions(), missing=missing)
    Q = np.random.default_rng(0).dirichlet(np.ones(3), (320, 2)).astype(np.float32)
    profiles = sites.profiles(Q)
    assert profiles.shape == (2, 3, 24)
    valid = ~missing.ravel()
    expected = np.average(sites.counts[valid], axis=0, weights=Q[valid, 1, 2])
    np.testing.assert_allclose(profiles[1, 2], expected, rtol=1e-4)
    np.testing.assert_allclose(profiles.reshape(2, 3, N_CHANNELS, N_BINS).sum(axis=3), 1, rtol=1e-4)


def test_an_empty_cluster_has_the_profile_of_everything():
    sites, _ = sites_of(regions())
    Q = np.zeros((320, 2), np.float32)
    Q[:, 0] = 1
    np.testing.assert_allclose(sites.profiles(Q)[1], sites.background, rtol=1e-5)


def test_pieces_are_the_grids_of_the_images():
    sites, _ = sites_of(regions())
    two = replace(sites, grids=((10, 8), (12, 20)))
    one, other = two.pieces(np.arange(640).reshape(320, 2))
    assert one.shape == (10, 8, 2)
    assert other.shape == (12, 20, 2)
    assert one[3, 4, 1] == 2 * (3 * 8 + 4) + 1
    assert other[0, 1, 0] == 2 * (80 + 1)


# ---- borders -----------------------------------------------------------------------------------------------


def test_the_border_measure_is_greatest_at_borders_and_a_hellinger_distance():
    region = (np.mgrid[:10, :24][1] >= 12).astype(int)
    sites, profiles = sites_of(region, n_draws=5000)
    measure = border_measure(sites, 2).reshape(10, 24)
    assert (measure[:, 10:14].min(axis=1) > 5 * measure[:, [0, 1, 2, 3, 20, 21, 22, 23]].max()).all()
    roots = np.sqrt(profiles * sites.weights)
    assert measure[5, 12] == pytest.approx(((roots[0] - roots[1]) ** 2).sum(), rel=0.1)
    across = replace(sites, counts=sites.counts.reshape(10, 24, -1).swapaxes(0, 1).reshape(240, -1))
    turned = border_measure(replace(across, grids=((24, 10),)), 2).reshape(24, 10)
    np.testing.assert_allclose(turned.T, measure, atol=1e-6)
