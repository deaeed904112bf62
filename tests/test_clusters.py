"""The search for clusters: annealed starts, the fit to cells, exchanges, the tree."""

from dataclasses import replace

import numpy as np
import pytest
from site_scenes import GRID, N_BINS, N_CHANNELS, agree, regions, scores_of, sites_of

from texseg.counts.grid import cell_grid
from texseg.fitting.anneal import critical_beta
from texseg.method.clusters import Search, interior_gain
from texseg.models.histograms import HistogramClustering
from texseg.parameters import PottsSettings, Settings

SETTINGS = Settings(windows=(24.0, 24.0), potts=PottsSettings(beta=2.0))
BETA = 20.0


def search_of(region, settings=SETTINGS, seed=0, n_draws=12):
    """Search among cells of 8 pixels drawn from the regions' profiles; windows are 3 cells wide."""
    cells, _ = sites_of(region, n_draws=n_draws)
    grid = cell_grid((8 * region.shape[0], 8 * region.shape[1]), 8)
    wavelengths = np.full(N_CHANNELS, 4.0)
    return Search(cells, [grid], wavelengths, settings, BETA, np.random.RandomState(seed))


def spoilt(region):
    """Split region 0 and merge regions 2 and 3."""
    columns = np.mgrid[: region.shape[0], : region.shape[1]][1]
    labels = region.copy()
    labels[region == 3] = 2
    labels[(region == 0) & (columns < region.shape[1] // 4)] = 3
    return labels


def profiles_of(labels, sites):
    return sites.profiles(np.eye(labels.max() + 1, dtype=np.float32)[labels.ravel()])


def labels_of(candidate):
    return candidate.posteriors.argmax(axis=1)


# ---- annealed starts ---------------------------------------------------------------------------------------


def test_starts_are_profiles_of_annealed_runs():
    search = search_of(regions())
    starts = search.starts(4)
    assert starts.shape == (2, 4, N_CHANNELS * N_BINS)
    np.testing.assert_allclose(starts.reshape(-1, N_CHANNELS, N_BINS).sum(axis=2), 1, rtol=1e-4)
    assert any(agree(scores_of(search.cells, start).argmax(axis=1), regions()) for start in starts)


def test_a_run_cools_from_one_cluster_and_tells_of_every_transition():
    search = search_of(regions())
    search.starts(4)
    betas = [record.beta for record in search.history]
    assert search.history[0].n_distinct == 1
    assert search.history[-1].n_distinct == 4
    assert sum(one > other for one, other in zip(betas, betas[1:], strict=False)) == 1  # two runs, both cool
    parted = [t for record in search.history for t in record.transitions]
    assert len(parted) >= 6
    assert all(t.beta == r.beta for r in search.history for t in r.transitions)


def test_starts_lie_just_above_the_first_transition():
    search = search_of(regions())
    search.starts(4)
    betas = [record.beta for record in search.history]
    second = next(after for before, after in zip(betas, betas[1:], strict=False) if after < before)
    windows = search.windows.only(search.windows.sizes > 0)
    model = HistogramClustering(background=windows.background)
    critical = critical_beta(model, windows, np.random.RandomState(0))
    assert 0.7 * critical < second < critical  # the run on all windows
    assert search.history[0].n_distinct == 1


def test_more_starts_see_random_halves():
    search = search_of(regions(), replace(SETTINGS, n_starts=4))
    assert len(search.starts(3)) == 4


def test_calm_windows_found_a_start_that_borders_do_not_spoil():
    """Windows across borders are mixtures; the run on calm windows alone must hold less of them."""
    region = np.mgrid[:24, :48][1] // 12 % 2
    search = search_of(region, replace(SETTINGS, windows=(56.0, 56.0)), n_draws=400)
    pure = profiles_of(region, search.cells)
    calm, every = (np.abs(pure[:, None] - start).sum(axis=2).min(axis=1).sum() for start in search.starts(2))
    assert calm < 0.7 * every


def test_there_are_no_more_clusters_than_windows():
    search = search_of(regions((4, 4)))
    assert search.starts(9).shape[1] == 4
    assert search.tree(9).n_clusters <= 4


def test_a_cluster_that_nothing_tells_apart_is_not_split():
    cells, _ = sites_of(np.zeros(GRID, int), n_draws=12)
    same = replace(cells, counts=np.tile(cells.background, (len(cells.counts), 1)))
    grid = cell_grid((8 * GRID[0], 8 * GRID[1]), 8)
    search = Search(same, [grid], np.full(N_CHANNELS, 4.0), SETTINGS, BETA, np.random.RandomState(0))
    assert search.starts(3).shape[1] == 1


# ---- candidates --------------------------------------------------------------------------------------------


def test_planted_textures_are_found():
    region = regions()
    search = search_of(region)
    best = max(search.candidates(search.starts(4)), key=lambda candidate: candidate.gain)
    assert agree(labels_of(best), region)


def test_exchanges_repair_one_texture_split_and_two_merged():
    region = regions()
    search = search_of(region)
    wrong = profiles_of(spoilt(region), search.cells)[None]
    (alone,) = search.on_cells(wrong, SETTINGS.potts.n_rounds)
    assert not agree(labels_of(alone), region)
    candidates = search.candidates(wrong)
    best = max(candidates, key=lambda candidate: candidate.gain)
    assert agree(labels_of(best), region)
    assert best.gain > alone.gain
    assert candidates[0].gain == pytest.approx(alone.gain)


def test_exchanges_go_on_while_they_help():
    """Two textures split and two pairs merged: one exchange cannot repair both."""
    rows, columns = np.mgrid[:16, :30]
    region = rows // 8 * 3 + columns // 10
    wrong = np.select([region == 3, region == 5], [2, 4], region)
    wrong[(region == 0) & (columns < 5)], wrong[(region == 1) & (columns < 15)] = 3, 5
    search = search_of(region)
    candidates = search.candidates(profiles_of(wrong, search.cells)[None])
    assert not agree(labels_of(candidates[0]), region)
    assert agree(labels_of(max(candidates, key=lambda candidate: candidate.gain)), region)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_several_runs_the_one_that_found_the_textures_gives_the_segments(monkeypatch, order):
    """The other has split one texture and merged two; exchanges would repair it."""
    region = regions((24, 32))
    search = search_of(region)
    runs = np.stack([profiles_of(labels, search.cells) for labels in (spoilt(region), region)])
    monkeypatch.setattr(search, "starts", lambda n_clusters: runs[list(order)])
    monkeypatch.setattr(search, "candidates", lambda starts: search.on_cells(starts, 8))
    assert agree(scores_of(search.cells, search.of_number(4)).argmax(axis=1), region)


def test_a_cluster_of_border_cells_gains_nothing():
    """However well it explains them: else windows across borders would be worth a cluster."""
    region = regions((24, 32))
    cells, _ = sites_of(region)
    labels = region.copy()
    labels[11:13] = 4  # two cells wide
    posteriors = np.eye(5, dtype=np.float32)[labels.ravel()]
    scores = np.ones((region.size, 5), np.float32)
    gains = []
    for of_borders in (0.0, 1.0, 100.0):
        scores[:, 4] = of_borders
        gains.append(interior_gain(scores, posteriors, cells))
    assert 0.5 < gains[0] < 1
    assert gains[0] == gains[1] == gains[2]


def test_two_clusters_have_no_exchanges():
    search = search_of(regions())
    starts = search.starts(2)
    assert len(search.candidates(starts)) == len(starts)


def test_runs_fitted_at_once_are_those_fitted_one_by_one():
    search = search_of(regions())
    rng = np.random.default_rng(0)
    starts = search.cells.profiles(rng.dirichlet(np.ones(3), (search.cells.shape[0], 4)).astype(np.float32))
    together = search.on_cells(starts, 8)
    for start, candidate in zip(starts, together, strict=True):
        (alone,) = search.on_cells(start[None], 8)
        np.testing.assert_allclose(candidate.posteriors, alone.posteriors, atol=1e-3)
        np.testing.assert_allclose(candidate.profiles, alone.profiles, atol=1e-3)
        assert candidate.gain == pytest.approx(alone.gain, rel=1e-3, abs=1e-3)


def test_neighbours_know_lone_cells_and_without_them_windows_do():
    region = regions()
    rough = 0.25 * sites_of(region)[1] + 0.75 * sites_of(region)[0].background
    found = {}
    for smoothness in (0.0, 1.0):
        search = search_of(region, replace(SETTINGS, smoothness=smoothness), n_draws=2)
        alone = (scores_of(search.cells, rough).argmax(axis=1) == region.ravel()).mean()
        (candidate,) = search.on_cells(rough[None], 8)
        found[smoothness] = (labels_of(candidate) == region.ravel()).mean()
    assert alone < 0.9
    assert found[1.0] > 0.95
    assert found[0.0] > alone


def test_a_seed_fixes_the_search():
    one, other = (search_of(regions(), seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.starts(4), other.starts(4))
    assert one.tree(8).merges == other.tree(8).merges


# ---- the over-segmentation ---------------------------------------------------------------------------------


def test_the_over_segmentation_is_merged_back_to_the_planted_textures():
    region = regions((24, 32))
    search = search_of(region)
    tree = search.tree(9)
    assert 4 <= tree.n_clusters <= 9
    labels = tree.groups(4)[tree.labels]
    assert agree(labels, region)
    profiles = search.level(tree, 4)
    assert profiles.shape == (4, N_CHANNELS * N_BINS)
    assert agree(scores_of(search.cells, profiles).argmax(axis=1), labels)


def test_a_number_that_is_given_is_a_level_of_a_tree_of_a_few_more():
    region = regions((24, 32))
    given, chosen = search_of(region), search_of(region)
    profiles = given.of_number(4)
    assert agree(scores_of(given.cells, profiles).argmax(axis=1), region)
    np.testing.assert_allclose(profiles, chosen.level(chosen.tree(7), 4), atol=1e-6)


def test_a_small_square_of_another_texture_is_one_of_two():
    """Halves of a large background gain more, but are hardly two textures."""
    region = np.zeros((32, 32), int)
    region[4:9, 20:25] = 1
    search = search_of(region, n_draws=40)
    assert agree(scores_of(search.cells, search.of_number(2)).argmax(axis=1), region)


def test_one_cluster_needs_no_search():
    search = search_of(regions())
    (profile,) = search.of_number(1)
    np.testing.assert_allclose(profile, search.cells.background, atol=1e-5)


def test_as_many_clusters_as_are_wanted_are_kept_even_without_interior():
    """In a small image no part may have an interior, and the user still wants three."""
    region = regions((6, 8))
    search = search_of(region)
    assert search.tree(7).n_clusters < 4
    assert len(search.of_number(4)) == 4


def test_a_tree_is_made_once_for_every_number():
    search = search_of(regions(GRID))
    assert search.tree(6) is search.tree(6)
    assert search.tree(5).n_clusters <= 5
