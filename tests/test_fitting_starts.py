"""Starts on windows and Potts fits on cells: formulas by hand, planted clusters, and laws."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from site_scenes import GRID, N_BINS, N_CHANNELS, agree, regions, sites_of

from texseg.fitting.assignment import PottsField, soft_max
from texseg.fitting.starts import (
    BACKGROUND,
    PottsSettings,
    Sites,
    border_measure,
    exchange_starts,
    fit_potts,
    hard_starts,
    interior_gain,
    plus_plus,
    potts_sweeps,
)

# ---- sites -------------------------------------------------------------------------------------------------


def test_scores_are_weighted_log_likelihoods_under_profiles_with_a_little_background():
    sites, profiles = sites_of(regions())
    scores = sites.scores(np.stack([profiles, profiles[::-1]]))
    assert scores.shape == (320, 2, 4)
    mixed = (1 - BACKGROUND) * profiles + BACKGROUND * sites.background
    for i, k in ((0, 0), (17, 3), (300, 1)):
        expected = sum(sites.weights[j] * sites.counts[i, j] * np.log(mixed[k, j]) for j in range(24))
        assert scores[i, 0, k] == pytest.approx(expected, rel=1e-3)
        assert scores[i, 1, 3 - k] == pytest.approx(expected, rel=1e-3)


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


def test_histograms_do_not_know_how_full_a_site_is():
    sites, _ = sites_of(regions())
    half = sites._replace(counts=sites.counts / 2, sizes=sites.sizes / 2)
    rows = np.array([0, 5, 200])
    np.testing.assert_allclose(half.histograms(rows), sites.histograms(rows), rtol=1e-6)
    np.testing.assert_allclose(half.histograms(rows).sum(axis=1), N_CHANNELS, rtol=1e-5)


def test_pieces_are_the_grids_of_the_images():
    sites, _ = sites_of(regions())
    two = sites._replace(grids=((10, 8), (12, 20)))
    one, other = two.pieces(np.arange(640).reshape(320, 2))
    assert one.shape == (10, 8, 2)
    assert other.shape == (12, 20, 2)
    assert one[3, 4, 1] == 2 * (3 * 8 + 4) + 1
    assert other[0, 1, 0] == 2 * (80 + 1)


# ---- starts ------------------------------------------------------------------------------------------------


def test_the_border_measure_is_greatest_at_borders_and_a_hellinger_distance():
    region = (np.mgrid[:10, :24][1] >= 12).astype(int)
    sites, profiles = sites_of(region, n_draws=5000)
    measure = border_measure(sites, 2).reshape(10, 24)
    assert (measure[:, 10:14].min(axis=1) > 5 * measure[:, [0, 1, 2, 3, 20, 21, 22, 23]].max()).all()
    roots = np.sqrt(profiles * sites.weights)
    assert measure[5, 12] == pytest.approx(((roots[0] - roots[1]) ** 2).sum(), rel=0.1)
    across = sites._replace(counts=sites.counts.reshape(10, 24, -1).swapaxes(0, 1).reshape(240, -1))
    turned = border_measure(across._replace(grids=((24, 10),)), 2).reshape(24, 10)
    np.testing.assert_allclose(turned.T, measure, atol=1e-6)


def test_seeds_are_histograms_of_allowed_sites():
    sites, _ = sites_of(regions())
    allowed = np.zeros((320, 3), bool)
    allowed[:40, 0] = allowed[100:140, 1] = True
    allowed[:, 2] = True
    seeds = plus_plus(sites, 4, allowed, np.random.default_rng(0))
    assert seeds.shape == (3, 4, 24)
    table = sites.histograms(np.arange(320))
    for run in range(3):
        for seed in seeds[run]:
            rows = np.flatnonzero(np.abs(table - seed).max(axis=1) < 1e-6)
            assert allowed[rows, run].any()


def test_seeds_of_a_run_come_from_different_textures():
    region = regions()
    sites, profiles = sites_of(region, n_draws=2000)
    seeds = plus_plus(sites, 4, np.ones((320, 20), bool), np.random.default_rng(0))
    nearest = np.abs(seeds[:, :, None] - profiles).sum(axis=3).argmin(axis=2)
    found = np.array([len(np.unique(run)) for run in nearest])
    assert (found == 4).mean() > 0.9


def test_more_seeds_than_different_sites_are_no_error():
    counts = np.tile(np.repeat([0.5, 0.5], 2), (9, 1)).astype(np.float32)
    sites = Sites(counts, np.ones(9, np.float32), np.ones(4, np.float32), ((3, 3),), counts[0])
    seeds = plus_plus(sites, 5, np.ones((9, 2), bool), np.random.default_rng(0))
    assert np.isfinite(seeds).all()
    assert np.isfinite(hard_starts(sites, 5, 2, 1, np.random.default_rng(0))).all()


def test_starts_find_planted_textures_and_repeat_none():
    region = regions()
    sites, profiles = sites_of(region)
    starts = hard_starts(sites, 4, 12, 2, np.random.default_rng(0))
    assert 1 <= len(starts) <= 12
    labels = [sites.scores(start).argmax(axis=1) for start in starts]
    assert any(agree(each, region) for each in labels)
    assert sum(agree(each, region) for each in labels) == 1
    np.testing.assert_allclose(starts.reshape(len(starts), 4, N_CHANNELS, N_BINS).sum(axis=3), 1, rtol=1e-4)


def test_missing_sites_found_no_cluster():
    missing = np.zeros(GRID, bool)
    missing[5:11, 4:16] = True
    sites, _ = sites_of(regions(), missing=missing)
    for start in hard_starts(sites, 4, 6, 2, np.random.default_rng(0)):
        sums = start.reshape(4, N_CHANNELS, N_BINS).sum(axis=2)
        np.testing.assert_allclose(sums, 1, rtol=1e-4)


def test_a_seed_fixes_the_starts():
    sites, _ = sites_of(regions(), n_draws=8)
    one, two = (hard_starts(sites, 4, 6, 2, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_an_exchange_repairs_one_texture_split_and_two_merged():
    region = regions()
    sites, profiles = sites_of(region)
    spoilt = region.copy()
    spoilt[region == 3] = 2
    spoilt[(region == 0) & (np.mgrid[: GRID[0], : GRID[1]][1] < 5)] = 3  # where region 0 is the left half
    wrong = sites.profiles(np.eye(4, dtype=np.float32)[spoilt.ravel()])
    moves = exchange_starts(sites, wrong, 3, np.random.default_rng(0))
    assert 1 <= len(moves) <= 3
    np.testing.assert_allclose(moves.reshape(len(moves), 4, N_CHANNELS, N_BINS).sum(axis=3), 1, rtol=1e-4)
    assert not agree(sites.scores(wrong).argmax(axis=1), region)
    assert agree(sites.scores(moves[0]).argmax(axis=1), region)


@pytest.mark.parametrize("n_clusters", [1, 2])
def test_there_is_nothing_to_exchange_among_fewer_than_three(n_clusters):
    sites, profiles = sites_of(regions())
    moves = exchange_starts(sites, profiles[:n_clusters], 5, np.random.default_rng(0))
    assert moves.shape == (0, n_clusters, 24)


# ---- Potts fits --------------------------------------------------------------------------------------------


def test_sweeps_are_those_of_the_potts_posterior_policy():
    sites, profiles = sites_of(regions(), n_draws=4)
    potts = PottsSettings(beta=0.7, strength=3.0, sigma=1.5)
    scores = sites.scores(profiles)
    Q = potts_sweeps(scores[:, None], sites, potts, n_sweeps=4)[:, 0]
    field = PottsField(GRID, strength=3.0, sigma=1.5, n_sweeps=4)
    expected = field(scores, 0.7, np.ones(4)).posteriors
    np.testing.assert_allclose(Q, expected, atol=1e-5)


def test_the_field_is_a_gaussian_mean_with_nothing_beyond_the_border():
    Q = np.random.default_rng(0).dirichlet(np.ones(3), 320).astype(np.float32)
    sites, _ = sites_of(regions())
    potts = PottsSettings(beta=0.0, strength=1.0, sigma=1.2)
    swept = potts_sweeps(np.zeros((320, 1, 3), np.float32), sites, potts, Q[:, None], n_sweeps=1)[:, 0]
    planes = Q.reshape(*GRID, 3)
    blurred = [gaussian_filter(planes[..., k], 1.2, mode="constant", truncate=6) for k in range(3)]
    expected = soft_max(np.stack(blurred, axis=-1).reshape(320, 3))[0]
    np.testing.assert_allclose(swept, expected, atol=1e-3)


def test_without_strength_every_cell_decides_alone():
    sites, profiles = sites_of(regions(), n_draws=4)
    scores = sites.scores(profiles)
    Q = potts_sweeps(scores[:, None], sites, PottsSettings(beta=0.3, strength=0.0))[:, 0]
    np.testing.assert_allclose(Q, soft_max(0.3 * scores)[0], rtol=1e-4, atol=1e-6)


def test_missing_cells_pull_at_nobody_and_images_do_not_touch():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((320, 1, 2)).astype(np.float32)
    potts = PottsSettings(strength=8.0)
    missing = np.zeros(GRID, bool)
    missing[4:9] = True
    sites, _ = sites_of(regions(), missing=missing)
    changed = scores.copy()
    changed[missing.ravel()] += [40, 0]
    one, two = (potts_sweeps(s, sites, potts)[~missing.ravel()] for s in (scores, changed))
    np.testing.assert_allclose(one, two, atol=1e-6)
    pair = sites_of(regions())[0]._replace(grids=((6, 20), (10, 20)))
    changed = scores.copy()
    changed[120:] += [40, 0]
    one, two = (potts_sweeps(s, pair, potts)[:120] for s in (scores, changed))
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_fit_refines_rough_profiles_and_knows_lone_cells_by_their_neighbours():
    region = regions()
    sites, profiles = sites_of(region, n_draws=2)  # too few to tell most cells apart alone
    rough = 0.25 * profiles + 0.75 * sites.background
    alone = (sites.scores(rough).argmax(axis=1) == region.ravel()).mean()
    (candidate,) = fit_potts(sites, rough[None], PottsSettings(beta=2.0, strength=6.0))
    together = (candidate.posteriors.argmax(axis=1) == region.ravel()).mean()
    assert alone < 0.9
    assert together > 0.95
    assert np.abs(candidate.profiles - profiles).sum() < np.abs(rough - profiles).sum()


def test_runs_fitted_at_once_are_those_fitted_one_by_one():
    sites, _ = sites_of(regions(), n_draws=10)
    starts = plus_plus(sites, 3, np.ones((320, 4), bool), np.random.default_rng(1))
    together = fit_potts(sites, starts, PottsSettings())
    for start, candidate in zip(starts, together, strict=True):
        (alone,) = fit_potts(sites, start[None], PottsSettings())
        np.testing.assert_allclose(candidate.posteriors, alone.posteriors, atol=1e-3)
        np.testing.assert_allclose(candidate.profiles, alone.profiles, atol=1e-3)
        assert candidate.gain == pytest.approx(alone.gain, rel=1e-3, abs=1e-3)
        np.testing.assert_allclose(candidate.posteriors.sum(axis=1), 1, rtol=1e-5)


def gain_of(labels, profiles, sites):
    Q = np.eye(len(profiles), dtype=np.float32)[np.ravel(labels)]
    scores = sites.scores(profiles) - sites.scores(sites.background)[:, None]
    return interior_gain(scores, Q, sites)


def test_the_true_partition_gains_most():
    region = regions()
    sites, profiles = sites_of(region)
    right = gain_of(region, profiles, sites)
    ring = region.copy()
    rows, columns = np.mgrid[: GRID[0], : GRID[1]]
    ring[(np.abs(rows - 7.5) < 1.6) | (np.abs(columns - 9.5) < 1.6)] = 3
    ring[region == 3] = 2  # two textures in one, for a cluster that follows the borders
    Q = np.eye(4, dtype=np.float32)[ring.ravel()]
    assert right > gain_of(ring, sites.profiles(Q), sites) + 0.1
    assert right > gain_of(np.where(region == 3, 2, region), profiles, sites)
    assert right > 0
    assert gain_of(np.zeros(GRID, int), sites.background[None], sites) == pytest.approx(0, abs=1e-4)


def test_the_gain_does_not_know_the_names_of_clusters():
    region = regions()
    sites, profiles = sites_of(region)
    order = np.array([2, 0, 3, 1])
    renamed = np.argsort(order)[region]
    assert gain_of(renamed, profiles[order], sites) == pytest.approx(gain_of(region, profiles, sites))
