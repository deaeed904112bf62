"""Cells, their histograms, and levels that maximise the likelihood of the pixels."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from benchmarks.pyramid import ChannelCounts, aggregate, coarse_to_fine, of_cells, parent_of, pyramid
from texseg.counts.grid import cell_counts, cell_grid, stacked, window_means
from texseg.counts.matrix import WindowedCounts, column_totals, is_implicit
from texseg.fitting.anneal import anneal
from texseg.fitting.assignment import PottsField, soft_max
from texseg.models.acm import HistogramClustering, Profiles

N_BINS = 5


def scene(seed=0, shape=(45, 38), masked=False, n_channels=3):
    """Bins of three regions with different histograms, and perhaps a hole."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    region = (rows > shape[0] / 2).astype(int) + (columns > shape[1] / 2) * (rows <= shape[0] / 2) * 2
    profiles = rng.dirichlet(np.ones(N_BINS), (3, n_channels))
    draws = rng.random((n_channels, *shape))
    bins = (draws[..., None] > np.cumsum(profiles[region], axis=-1).transpose(2, 0, 1, 3)).sum(axis=-1)
    mask = np.ones(shape, bool)
    if masked:
        mask[5:20, 3:15] = False
    return bins.clip(0, N_BINS - 1).astype(np.uint8), (mask if masked else None)


def counts_of(seed=0, shape=(45, 38), masked=False, window=(3, 5, 9)):
    bins, mask = scene(seed, shape, masked)
    return WindowedCounts(bins, window, n_bins=N_BINS, mask=mask)


# ---- cells -------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_cells_partition_the_image(H, W, cell, seed, masked):
    rng = np.random.default_rng(seed)
    mask = rng.random((H, W)) < 0.6 if masked else None
    grid = cell_grid((H, W), cell, mask)
    parent = parent_of(grid)
    assert grid.shape == (-(-H // cell), -(-W // cell))
    assert grid.n_cells == len(grid.sizes)
    valid = np.ones(H * W) if mask is None else mask.ravel().astype(float)
    np.testing.assert_allclose(grid.sizes * cell**2, np.bincount(parent, valid, grid.n_cells), rtol=1e-6)
    rows, columns = np.divmod(np.arange(H * W), W)
    np.testing.assert_array_equal(parent, rows // cell * grid.shape[1] + columns // cell)
    values = rng.random((grid.n_cells, 2))
    np.testing.assert_array_equal(grid.to_pixels(values).reshape(H * W, 2), values[parent])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_cell_counts_are_histograms_of_the_cells_own_pixels(H, W, cell, seed, masked):
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, N_BINS, (2, H, W), dtype=np.uint8)
    mask = rng.random((H, W)) < 0.6 if masked else None
    grid = cell_grid((H, W), cell, mask)
    table = cell_counts(bins, grid, N_BINS, mask)
    expected = np.zeros((grid.n_cells, 2, N_BINS))
    for c, y, x in np.ndindex(2, H, W):
        if mask is None or mask[y, x]:
            expected[y // cell * grid.shape[1] + x // cell, c, bins[c, y, x]] += 1 / cell**2
    np.testing.assert_allclose(table, expected.reshape(grid.n_cells, -1), atol=1e-5)
    np.testing.assert_allclose(table.sum(axis=1), grid.sizes * 2, atol=1e-5)


def test_cell_counts_are_aggregated_counts_of_bare_pixels():
    bins, mask = scene(masked=True)
    grid = cell_grid((45, 38), 8, mask)
    bare = WindowedCounts(bins, 1, n_bins=N_BINS, mask=mask)
    expected = aggregate(bare, parent_of(grid), grid.n_cells).counts @ np.eye(15)
    table = cell_counts(bins, grid, N_BINS, mask)
    np.testing.assert_allclose(table * 64, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("cells_a_side", [1, 3, 5])
def test_window_means_are_box_filters_of_cells(cells_a_side):
    bins, mask = scene(shape=(64, 80), masked=True)
    grid = cell_grid((64, 80), 8, mask)
    table = cell_counts(bins, grid, N_BINS, mask)
    means, shape, sizes = window_means(table, grid, [8 * cells_a_side] * 3)
    assert shape == grid.shape

    def box(values):
        return ndimage.convolve(values, np.ones((cells_a_side, cells_a_side)), mode="constant")

    presence = box(grid.sizes.reshape(shape))
    expected = np.stack([box(plane) for plane in table.T.reshape(-1, *shape)], axis=-1)
    expected /= np.maximum(presence, 1e-9)[..., None]
    np.testing.assert_allclose(means, expected.reshape(len(table), -1), atol=1e-5)
    inside = box(np.ones(shape))
    np.testing.assert_allclose(sizes, (presence / inside).ravel(), atol=1e-5)
    present = sizes > 0
    np.testing.assert_allclose(means.reshape(-1, 3, N_BINS).sum(axis=2)[present], 1, atol=1e-4)


def test_window_means_take_cells_in_part_skip_cells_and_keep_channels_apart():
    grid = cell_grid((8, 8 * 9), 8)
    table = np.zeros((9, 2), np.float32)
    table[4] = 1  # one bin a channel, two channels, one full cell
    narrow_wide, _, _ = window_means(table, grid, [8.0, 16.0])
    # a window of 8 px is the cell itself; one of 16 px holds a half of each neighbour
    np.testing.assert_allclose(narrow_wide[:, 0], [0, 0, 0, 0, 1, 0, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(narrow_wide[:, 1], [0, 0, 0, 0.25, 0.5, 0.25, 0, 0, 0], atol=1e-6)
    second, shape, sizes = window_means(table, grid, [8.0, 16.0], step=2)
    assert shape == (1, 5)
    assert sizes.shape == (5,)
    np.testing.assert_allclose(second, narrow_wide[::2], atol=1e-6)


# ---- levels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("coarsest", [1, 2, 4, 8, 16, 32])
def test_levels_halve_down_to_the_pixels_and_hold_all_counts(coarsest, masked):
    n = counts_of(masked=masked)
    levels = list(pyramid(n, coarsest))
    sides = [coarsest >> k for k in range(coarsest.bit_length())]
    assert [level.shape for level in levels] == [(-(-45 // s), -(-38 // s)) for s in sides]
    assert levels[-1].counts is n
    assert levels[0].parent is None
    valid = 45 * 38 - (15 * 12 if masked else 0)
    total = column_totals(n)
    above = None
    for side, level in zip(sides, levels, strict=True):
        assert level.counts.shape == (level.shape[0] * level.shape[1], 15)
        assert level.sizes.shape == (level.counts.shape[0],)
        assert level.sizes.sum() == pytest.approx(valid)
        np.testing.assert_allclose(column_totals(level.counts), total, rtol=1e-4)
        assert isinstance(level.counts, ChannelCounts) == (side >= 8)
        np.testing.assert_array_equal(level.counts.groups, n.groups)
        if above is not None:
            grouped = np.bincount(level.parent, level.sizes, len(above.sizes))
            np.testing.assert_allclose(grouped, above.sizes, rtol=1e-6)
        above = level


@pytest.mark.parametrize("masked", [False, True])
def test_the_likelihood_of_a_coarse_assignment_is_the_same_on_every_finer_level(masked):
    n, rng = counts_of(masked=masked), np.random.default_rng(4)
    log_profiles = np.log(rng.dirichlet(np.ones(15), 3)).T
    levels = list(pyramid(n, 32))
    for start in range(len(levels)):
        Q = rng.dirichlet(np.ones(3), levels[start].counts.shape[0])
        likelihood = (Q * (levels[start].counts @ log_profiles)).sum()
        for level in levels[start + 1 :]:
            Q = Q[level.parent]
            assert (Q * (level.counts @ log_profiles)).sum() == pytest.approx(likelihood, rel=1e-5)


def test_an_image_smaller_than_a_cell_is_one_row():
    levels = list(pyramid(counts_of(shape=(6, 7)), 32))
    assert levels[0].counts.shape == (1, 15)
    assert levels[0].sizes == [42]


# ---- models on the levels and on every kind of counts ------------------------------------------------------


def kinds_of(n):
    """Return the same counts explicitly, sparsely and implicitly."""
    dense = n[:].toarray()
    return {"dense": dense.astype(np.float64), "float32": dense, "csr": sp.csr_array(dense), "implicit": n}


@pytest.mark.parametrize("masked", [False, True])
def test_the_soft_acm_has_the_same_posteriors_on_implicit_and_explicit_counts(masked):
    n, rng = counts_of(masked=masked), np.random.default_rng(0)
    profiles = rng.dirichlet(np.ones(N_BINS), (4, 3)).reshape(4, -1)
    start, beta, model = Profiles(profiles, np.full(4, 0.25)), 12.0, HistogramClustering()
    results = {}
    for kind, counts in kinds_of(n).items():
        if kind == "implicit":
            params, Q = start, None
            for _ in range(15):
                params, _, Q, _ = model.step(counts, params, beta, Q)
            results[kind] = Q
        else:
            results[kind] = acm_by_hand(np.asarray(counts @ np.eye(15)), start, beta, n.groups)
    for kind, Q in results.items():
        np.testing.assert_allclose(Q, results["implicit"], atol=1e-5, err_msg=kind)


def acm_by_hand(n, start, beta, groups, n_steps=15):
    """Posteriors of the last of some EM steps on an explicit table, profiles with sum one a channel."""
    q, rho = start.profiles, start.weights
    for _ in range(n_steps):
        logits = beta * (n @ np.log(q).T) + np.log(rho)
        Q = np.exp(logits - logits.max(axis=1, keepdims=True))
        Q /= Q.sum(axis=1, keepdims=True)
        S = Q.T @ n
        q = np.concatenate([S[:, groups == c] / S[:, groups == c].sum(1, keepdims=True) for c in range(3)], 1)
        rho = Q.mean(axis=0)
    return Q


@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "implicit", "aggregated"])
def test_no_bare_em_step_raises_the_free_energy(kind):
    n, rng = counts_of(), np.random.default_rng(1)
    sizes = None
    if kind == "aggregated":
        grid = cell_grid((45, 38), 4)
        counts, sizes = aggregate(n, parent_of(grid))
    else:
        counts = kinds_of(n)[kind]
    model, counts = of_cells(HistogramClustering(), counts, sizes)
    beta, Q, energies = 6.0, None, []
    profiles = rng.dirichlet(np.ones(N_BINS), (4, 3)).reshape(4, -1)
    params = Profiles(profiles if is_implicit(counts) else profiles / 3, np.full(4, 0.25))
    for _ in range(40):
        params, free_energy, Q, _ = model.step(counts, params, beta, Q)
        energies.append(free_energy)
    assert energies[-1] < energies[0]
    assert (np.diff(energies) <= 1e-6 * abs(energies[0])).all()


def free_energies_by_temperature(states):
    runs = {}
    for level, state in states:
        runs.setdefault((level, state.beta), []).append(state.free_energy)
    return runs


@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "implicit", "aggregated", "levels"])
@pytest.mark.parametrize("growth", [None, "split-merge"])
def test_free_energy_never_rises_at_fixed_temperature(kind, growth):
    n = counts_of()
    if kind == "levels":
        levels = [(level.counts, level.sizes) for level in pyramid(n, 16)]
    elif kind == "aggregated":
        levels = [(aggregate(n, parent_of(cell_grid((45, 38), 4))).counts, None)]
    else:
        levels = [(kinds_of(n)[kind], None)]
    states = list(
        coarse_to_fine(
            HistogramClustering(),
            levels,
            [0.5, 2.0, 8.0],
            rng=np.random.RandomState(0),
            n_clusters=3,
            growth=growth,
            max_steps=12,
        )
    )
    runs = free_energies_by_temperature(states)
    assert {level for level, _ in runs} == ({0, 1, 2, 3, 4} if kind == "levels" else {0})
    assert growth or max(len(energies) for energies in runs.values()) > 3
    for energies in runs.values():
        assert (np.diff(energies) <= 1e-6 * np.abs(energies[0])).all()


@pytest.mark.parametrize("side", [8, 4, 1])
def test_free_energy_never_rises_under_a_potts_prior(side):
    n = counts_of()
    grid = cell_grid((45, 38), side)
    counts = aggregate(n, parent_of(grid)).counts
    model = HistogramClustering(PottsField(grid.shape, strength=5.0))
    states = list(
        anneal(
            model,
            counts,
            [4.0 / side**2],
            rng=np.random.RandomState(0),
            n_clusters=3,
            max_steps=12,
        )
    )
    energies = [state.free_energy for state in states]
    assert (np.diff(energies) <= 1e-6 * np.abs(energies[0])).all()


def test_coarse_to_fine_ends_at_a_pixel_free_energy_as_low_as_the_single_level():
    n, beta = counts_of(), 10.0

    def end(levels):
        run = coarse_to_fine(
            HistogramClustering(),
            levels,
            [0.5, 2.0, beta],
            rng=np.random.RandomState(0),
            n_clusters=3,
            growth="split-merge",
        )
        *_, (_, state) = run
        return state

    multi = end([(level.counts, level.sizes) for level in pyramid(n, 16)])
    single = end([(n, None)])
    assert multi.free_energy <= single.free_energy + 1e-3 * abs(single.free_energy)
    scores = beta * (n @ np.log(np.maximum(multi.params.profiles, 1e-12)).T)
    _, sums = soft_max(scores + np.log(multi.params.weights))
    assert multi.free_energy == pytest.approx(-sums.sum(), rel=1e-4)


def test_packed_counts_are_the_same_numbers():
    bins = np.random.default_rng(0).integers(0, N_BINS, (3, 45, 50)).astype(np.uint8)
    mask = np.random.default_rng(1).random((45, 50)) > 0.3
    grid = cell_grid((45, 50), 8, mask)
    plain, packed = (cell_counts(bins, grid, N_BINS, mask, p) for p in (False, True))
    assert packed.table.dtype == np.uint8
    np.testing.assert_array_equal(packed[...], plain)
    np.testing.assert_array_equal(packed[3:9:2], plain[3:9:2])
    np.testing.assert_array_equal(np.asarray(packed.rows(2, 5)), plain[2:5])
    np.testing.assert_array_equal(stacked([packed, packed])[...], stacked([plain, packed]))
    means = [window_means(counts, grid, [16, 24, 24], 2) for counts in (plain, packed)]
    for one, other in zip(*means, strict=True):
        np.testing.assert_array_equal(one, other)
