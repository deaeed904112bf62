"""The search for clusters: annealed starts, the fit to cells, the tree, the choice among rivals."""

from dataclasses import replace

import numpy as np
import pytest
from site_scenes import GRID, N_BINS, N_CHANNELS, agree, regions, scores_of, sites_of

from texseg.counts.grid import cell_grid
from texseg.fitting.anneal import critical_beta
from texseg.method.clusters import _MERITS, Candidate, Search
from texseg.method.confidence import confusion_of_clusters
from texseg.models.histograms import HistogramClustering
from texseg.parameters import PottsSettings, Settings

SETTINGS = Settings(windows=(24.0, 24.0), potts=PottsSettings(beta=2.0), n_starts=2)
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
    (starts,) = search.starts(4)
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
    assert len(search.starts(3)[0]) == 4


def test_calm_windows_found_a_start_that_borders_do_not_spoil():
    """Windows across borders are mixtures; the run on calm windows alone must hold less of them."""
    region = np.mgrid[:24, :48][1] // 12 % 2
    search = search_of(region, replace(SETTINGS, windows=(56.0, 56.0)), n_draws=400)
    pure = profiles_of(region, search.cells)
    (starts,) = search.starts(2)
    calm, every = (np.abs(pure[:, None] - start).sum(axis=2).min(axis=1).sum() for start in starts)
    assert calm < 0.7 * every


def test_there_are_no_more_clusters_than_windows():
    search = search_of(regions((4, 4)))
    assert search.starts(9)[0].shape[1] == 4
    assert search.tree(9).n_clusters <= 4


def test_a_cluster_that_nothing_tells_apart_is_not_split():
    cells, _ = sites_of(np.zeros(GRID, int), n_draws=12)
    same = replace(cells, counts=np.tile(cells.background, (len(cells.counts), 1)))
    grid = cell_grid((8 * GRID[0], 8 * GRID[1]), 8)
    search = Search(same, [grid], np.full(N_CHANNELS, 4.0), SETTINGS, BETA, np.random.RandomState(0))
    assert search.starts(3)[0].shape[1] == 1


# ---- candidates --------------------------------------------------------------------------------------------


def test_planted_textures_are_found():
    region = regions()
    search = search_of(region)
    best = max(search.on_cells(search.starts(4)[0]), key=lambda fit: search.merits(fit)[0])
    assert agree(labels_of(best), region)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_several_runs_the_one_that_found_the_textures_gives_the_segments(monkeypatch, order):
    """The other has split one texture and merged two."""
    region = regions((24, 32))
    search = search_of(region)
    runs = np.stack([profiles_of(labels, search.cells) for labels in (spoilt(region), region)])
    monkeypatch.setattr(search, "starts", lambda *numbers: [runs[list(order)]] * len(numbers))
    assert agree(scores_of(search.cells, search.of_number(4)).argmax(axis=1), region)


def test_the_true_partition_gains_most():
    region = regions()
    search = search_of(region)
    sites = search.cells
    ring = region.copy()
    rows, columns = np.mgrid[: GRID[0], : GRID[1]]
    ring[(np.abs(rows - 7.5) < 1.6) | (np.abs(columns - 9.5) < 1.6)] = 3
    ring[region == 3] = 2  # two textures in one, for a cluster that follows the borders

    def merits(labels):
        posteriors = np.eye(labels.max() + 1, dtype=np.float32)[labels.ravel()]
        profiles = sites.profiles(posteriors)
        scores = scores_of(sites, profiles) - scores_of(sites, sites.background[None])
        return search.merits(Candidate(posteriors, profiles, scores))

    weights = np.array(_MERITS)
    right, order = merits(region), np.array([2, 0, 3, 1])
    assert weights @ right > weights @ merits(ring) + 1
    assert weights @ right > weights @ merits(spoilt(region)) + 1
    np.testing.assert_allclose(merits(np.argsort(order)[region]), right, rtol=1e-5)  # names do not count


def test_runs_fitted_at_once_are_those_fitted_one_by_one():
    search = search_of(regions())
    rng = np.random.default_rng(0)
    starts = search.cells.profiles(rng.dirichlet(np.ones(3), (search.cells.shape[0], 4)).astype(np.float32))
    together = search.on_cells(starts)
    for start, candidate in zip(starts, together, strict=True):
        (alone,) = search.on_cells(start[None])
        np.testing.assert_allclose(candidate.posteriors, alone.posteriors, atol=1e-3)
        np.testing.assert_allclose(candidate.profiles, alone.profiles, atol=1e-3)
        np.testing.assert_allclose(candidate.scores, alone.scores, atol=2e-3)


def test_neighbours_know_lone_cells_and_without_them_windows_do():
    region = regions()
    rough = 0.25 * sites_of(region)[1] + 0.75 * sites_of(region)[0].background
    found = {}
    for smoothness in (0.0, 1.0):
        search = search_of(region, replace(SETTINGS, smoothness=smoothness), n_draws=2)
        alone = (scores_of(search.cells, rough).argmax(axis=1) == region.ravel()).mean()
        (candidate,) = search.on_cells(rough[None])
        found[smoothness] = (labels_of(candidate) == region.ravel()).mean()
    assert alone < 0.9
    assert found[1.0] > 0.95
    assert found[0.0] > alone


def test_a_seed_fixes_the_search():
    one, other = (search_of(regions(), seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.starts(4)[0], other.starts(4)[0])
    assert one.tree(8).merges == other.tree(8).merges


# ---- the over-segmentation ---------------------------------------------------------------------------------


def test_the_over_segmentation_is_merged_back_to_the_planted_textures():
    region = regions((24, 32))
    search = search_of(region)
    tree = search.tree(9)
    assert 4 <= tree.n_clusters <= 9
    labels = tree.groups(4)[tree.labels]
    assert agree(labels, region)
    profiles = search.best_level([tree], 4)
    assert profiles.shape == (4, N_CHANNELS * N_BINS)
    assert agree(scores_of(search.cells, profiles).argmax(axis=1), labels)


@pytest.mark.parametrize("right", ["trees", "annealed"])
def test_levels_of_trees_and_annealed_clusters_are_rivals(monkeypatch, right):
    """Whichever found the textures gives the segments; the other has split one and merged two."""
    region = regions((24, 32))
    search = search_of(region)
    pure, wrong = (profiles_of(labels, search.cells)[None] for labels in (region, spoilt(region)))
    more = np.concatenate([pure, pure[:, :3]], axis=1)
    over = more if right == "trees" else np.concatenate([wrong, wrong[:, :3]], axis=1)
    own = wrong if right == "trees" else pure
    monkeypatch.setattr(search, "starts", lambda *numbers: [over if k > 4 else own for k in numbers])
    assert agree(scores_of(search.cells, search.of_number(4)).argmax(axis=1), region)


def test_a_number_that_is_chosen_is_fitted_like_one_that_is_given():
    region = regions((24, 32))
    given, chosen = search_of(region), search_of(region)
    tree = chosen.tree(7)
    for search, profiles in ((given, given.of_number(4)), (chosen, chosen.best_level([tree], 4))):
        assert agree(scores_of(search.cells, profiles).argmax(axis=1), region)


def test_a_small_square_of_another_texture_is_one_of_two():
    region = np.zeros((32, 32), int)
    region[4:9, 20:25] = 1
    search = search_of(region, n_draws=40)
    assert agree(scores_of(search.cells, search.of_number(2)).argmax(axis=1), region)


def test_what_fits_worst_is_a_start_where_annealing_divides_the_background(monkeypatch):
    region = np.zeros((32, 32), int)
    region[4:8, 20:24] = 1
    search = search_of(region, n_draws=40)
    halves = profiles_of(np.mgrid[:32, :32][1] // 16, search.cells)
    over = np.concatenate([halves] * 3)
    monkeypatch.setattr(search, "starts", lambda *of: [(halves if k == 2 else over)[None] for k in of])
    assert agree(scores_of(search.cells, search.of_number(2)).argmax(axis=1), region)


def test_a_rare_texture_is_found_and_in_its_absence_none():
    halves = np.mgrid[:32, :32][1] // 16
    region = halves.copy()
    region[4:11, 20:27] = 2
    search = search_of(region, n_draws=40)
    profiles, (taken,), left = search.with_novelties(profiles_of(halves, search.cells), 3, 0.0)
    assert agree(scores_of(search.cells, profiles).argmax(axis=1), region) and not left
    assert np.mean(region.ravel()[taken] == 2) > 0.5
    profiles, taken, (left,) = search.with_novelties(profiles_of(halves, search.cells), 2, 0.0)
    assert len(profiles) == 2 and not taken and np.mean(region.ravel()[left] == 2) > 0.5
    search = search_of(halves, n_draws=40)
    assert search.with_novelties(profiles_of(halves, search.cells), 3, 0.0)[1:] == ([], [])


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


def test_a_cluster_that_may_be_wrong_is_the_closest_other_one():
    columns = np.mgrid[:24, :32][1]
    cells, _ = sites_of((columns >= 16).astype(int), n_draws=12)
    halves = np.digitize(columns, [8, 16]).ravel()  # the first two are of one texture
    confusion = confusion_of_clusters(halves, 3, cells, 3.0, by_values=False)
    assert confusion[0, 1] > 0.1 and confusion[1, 0] > 0.1
    assert confusion[0, 2] == confusion[1, 2] == 0
    np.testing.assert_allclose(confusion.sum(axis=1), 1, rtol=1e-6)
