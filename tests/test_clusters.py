"""The search on the default path: starts, candidates with exchanges, and the over-segmentation."""

import numpy as np
import pytest
from site_scenes import GRID, N_BINS, N_CHANNELS, agree, regions, sites_of

from texseg.clusters import Search
from texseg.fitting.starts import Candidate, PottsSettings, fit_potts
from texseg.settings import Settings

SETTINGS = Settings(windows=(24.0, 24.0), potts=PottsSettings(beta=2.0))


def search_of(region, settings=SETTINGS, smoothness=1.0, seed=0, n_draws=12):
    """Search among cells drawn from the regions' profiles; windows are theirs, 3 cells wide."""
    cells, _ = sites_of(region, n_draws=n_draws)
    windows = cells._replace(counts=cells.window_mean(cells.counts, 3.0))
    return Search(cells, windows, settings, smoothness, np.random.default_rng(seed))


def spoilt(region):
    """Split region 0 and merge regions 2 and 3."""
    columns = np.mgrid[: region.shape[0], : region.shape[1]][1]
    labels = region.copy()
    labels[region == 3] = 2
    labels[(region == 0) & (columns < region.shape[1] // 4)] = 3
    return labels


def profiles_of(labels, sites):
    return sites.profiles(np.eye(labels.max() + 1, dtype=np.float32)[labels.ravel()])


# ---- starts and candidates ---------------------------------------------------------------------------------


def test_starts_are_distinct_profiles():
    starts = search_of(regions()).starts(4)
    assert 1 <= len(starts) <= SETTINGS.n_starts
    assert starts.shape[1:] == (4, N_CHANNELS * N_BINS)
    np.testing.assert_allclose(starts.reshape(-1, N_CHANNELS, N_BINS).sum(axis=2), 1, rtol=1e-4)


def test_extra_starts_come_first():
    search = search_of(regions())
    extra = profiles_of(spoilt(regions()), search.cells)[None]
    starts = search.starts(4, extra)
    np.testing.assert_array_equal(starts[:1], extra)
    assert len(starts) > 1


def test_there_are_no_more_clusters_than_windows():
    search = search_of(regions((2, 2)))
    assert search.starts(9).shape[1] == 4
    assert search.tree(9).n_clusters <= 4


def test_planted_textures_are_found():
    region = regions()
    search = search_of(region)
    best = max(search.candidates(search.starts(4)), key=lambda candidate: candidate.gain)
    assert agree(best.posteriors.argmax(axis=1), region)


def test_exchanges_repair_one_texture_split_and_two_merged():
    region = regions()
    search = search_of(region)
    wrong = profiles_of(spoilt(region), search.cells)[None]
    (alone,) = fit_potts(search.cells, wrong, SETTINGS.potts)
    assert not agree(alone.posteriors.argmax(axis=1), region)
    candidates = search.candidates(wrong)
    best = max(candidates, key=lambda candidate: candidate.gain)
    assert agree(best.posteriors.argmax(axis=1), region)
    assert best.gain > alone.gain
    assert candidates[0].gain == pytest.approx(alone.gain)


@pytest.mark.parametrize(("n_exchanges", "n_moves"), [(0, 6), (1, 2), (1, 6), (3, 1)])
def test_rounds_and_moves_of_the_exchange_are_limited(n_exchanges, n_moves):
    settings = Settings(potts=SETTINGS.potts, n_exchanges=n_exchanges, n_moves=n_moves)
    search = search_of(regions(), settings)
    wrong = profiles_of(spoilt(regions()), search.cells)[None]
    n_candidates = len(search.candidates(wrong))
    assert n_candidates <= 1 + n_exchanges * n_moves
    assert n_candidates >= 1 + min(n_exchanges, 1)


def test_two_clusters_have_no_exchanges():
    search = search_of(regions())
    starts = search.starts(2)
    assert len(search.candidates(starts)) == len(starts)


def test_smoothness_is_the_strength_of_the_neighbours():
    region = regions()
    profiles = profiles_of(region, search_of(region).cells)[None, :2]
    for smoothness in (0.0, 0.5, 2.0):
        search = search_of(region, smoothness=smoothness)
        (found,) = search.candidates(profiles)
        potts = SETTINGS.potts._replace(strength=SETTINGS.potts.strength * smoothness)
        (expected,) = fit_potts(search.cells, profiles, potts)
        np.testing.assert_array_equal(found.posteriors, expected.posteriors)


def test_a_seed_fixes_the_search():
    one, other = (search_of(regions(), seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.starts(4), other.starts(4))
    assert one.tree(8).merges == other.tree(8).merges


# ---- near ties ---------------------------------------------------------------------------------------------


def candidate_of(labels, sites, gain):
    """Make labels of sites the clusters of a run, with the gain that is told."""
    Q = np.eye(labels.max() + 1, dtype=np.float32)[labels.ravel()]
    profiles = sites.profiles(Q)
    return Candidate(Q, profiles, sites.scores(profiles), gain)


def test_the_greatest_gain_wins_unless_it_is_nearly_a_tie():
    region = regions((24, 32))
    search = search_of(region)
    right = candidate_of(region, search.cells, 1.0)
    far_ahead = candidate_of(spoilt(region), search.cells, 1.8)
    assert search.best([right, far_ahead]) is far_ahead


def test_among_near_ties_the_closest_two_clusters_are_far_apart():
    region = regions((24, 32))
    search = search_of(region)
    right = candidate_of(region, search.cells, 1.0)
    wrong = candidate_of(spoilt(region), search.cells, 1.02)
    assert search.best([wrong, right]) is right
    assert search.best([right, wrong]) is right


@pytest.mark.parametrize("n_clusters", [1, 2])
def test_a_single_run_is_the_best(n_clusters):
    region = regions((24, 32)) % n_clusters
    search = search_of(regions((24, 32)))
    only = candidate_of(region, search.cells, -1.0)
    assert search.best([only]) is only


# ---- the over-segmentation ---------------------------------------------------------------------------------


def test_the_over_segmentation_is_merged_back_to_the_planted_textures():
    region = regions((24, 32))
    search = search_of(region)
    tree = search.tree(9)
    assert 4 <= tree.n_clusters <= 9
    assert agree(tree.groups(4)[tree.labels], region)
    merged = search.merged(9, 4)
    assert merged.shape == (1, 4, N_CHANNELS * N_BINS)
    assert agree(search.cells.scores(merged[0]).argmax(axis=1), tree.groups(4)[tree.labels])
    np.testing.assert_allclose(
        merged[0], profiles_of(tree.groups(4)[tree.labels].reshape(24, 32), search.cells), rtol=1e-5
    )


def test_a_tree_is_made_once_for_every_number():
    search = search_of(regions(GRID))
    assert search.tree(6) is search.tree(6)
    assert search.tree(5).n_clusters <= 5
