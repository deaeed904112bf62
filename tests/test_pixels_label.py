"""From known profiles to pixel labels: the Potts prior, and small parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from skimage.measure import label as connected_components

from texseg.counts.axes import connected_parts
from texseg.counts.grid import cell_grid
from texseg.counts.matrix import WindowedCounts
from texseg.fitting.assignment import soft_max
from texseg.pixels.joining import joined_labels, parts_of_block
from texseg.pixels.label import near_border, pixel_posteriors
from texseg.pixels.planes import PixelPlanes

N_BINS = 6


def scene(shape=(64, 72), seed=0):
    """Two regions, the border at column 36; bins, log profiles, and the region of each pixel."""
    rng = np.random.default_rng(seed)
    profiles = rng.dirichlet(np.ones(N_BINS), (2, 4))
    region = (np.arange(shape[1]) >= 36).astype(int)[None, :].repeat(shape[0], axis=0)
    draws = rng.random((4, *shape, 1))
    bins = (draws > np.cumsum(profiles[region], axis=-1).transpose(2, 0, 1, 3)).sum(axis=-1)
    log_profiles = np.log(profiles + 1e-6).astype(np.float32)
    return bins.clip(0, N_BINS - 1).astype(np.uint8), log_profiles, region


def scores_of(bins, log_profiles, mask=None):
    """Log-likelihoods (K, H, W) of small windows."""
    n = WindowedCounts(bins, (3, 5, 9, 3), n_bins=N_BINS, mask=mask, border="symmetric")
    return (n @ log_profiles.reshape(len(log_profiles), -1).T).T.reshape(-1, *bins.shape[1:])


# ---- posteriors --------------------------------------------------------------------------------------------


def posteriors_of(scores, smoothness=1.0, mask=None):
    """Begin at what the scores say on cells of 12 pixels."""
    K, H, W = scores.shape
    grid = cell_grid((H, W), 12, mask)
    valid = np.ones(H * W) if mask is None else mask.ravel()
    parent = grid.to_pixels(np.arange(grid.n_cells)).ravel()
    sums = [np.bincount(parent, plane.ravel() * valid, grid.n_cells) for plane in scores]
    cells = soft_max(np.stack(sums, axis=1).astype(np.float32))[0]
    band = np.flatnonzero(grid.to_pixels(near_border(cells, grid)))
    local = scores.reshape(K, -1)[:, band]
    return pixel_posteriors(local, cells, grid, band, 10 * smoothness, mask).whole()


def test_posteriors_sum_to_one_and_follow_the_border():
    bins, log_profiles, region = scene()
    scores = scores_of(bins, log_profiles)
    P = posteriors_of(scores)
    assert P.dtype == np.float32
    assert P.shape == (2, 64, 72)
    np.testing.assert_allclose(P.sum(axis=0), 1, rtol=1e-5)
    assert (P.argmax(axis=0) == region).mean() > 0.985
    assert (P.argmax(axis=0) == region)[:, np.abs(np.arange(72) - 36) > 5].mean() > 0.998


def test_pixels_without_data_say_nothing_to_their_neighbours():
    scores = 0.1 * np.random.default_rng(0).standard_normal((2, 64, 72)).astype(np.float32)
    mask = np.ones((64, 72), bool)
    mask[:, 36:] = False
    grid = cell_grid((64, 72), 12, mask)
    found = []
    for share in (0.01, 0.99):  # of the second label, in the cells without data
        cells = np.full((grid.n_cells, 2), 0.5, np.float32)
        cells[grid.sizes == 0] = 1 - share, share
        band = np.arange(64 * 36).reshape(64, 36) // 36 * 72 + np.arange(36)
        local = scores[:, :, :36].reshape(2, -1)
        found.append(pixel_posteriors(local, cells, grid, band.ravel(), 10, mask).whole()[:, mask])
    np.testing.assert_array_equal(*found)


def test_more_smoothness_makes_shorter_borders():
    scores = np.random.default_rng(0).standard_normal((2, 64, 72)).astype(np.float32)

    def length(smoothness):
        labels = posteriors_of(scores, smoothness=smoothness).argmax(axis=0)
        return (labels[1:] != labels[:-1]).sum() + (labels[:, 1:] != labels[:, :-1]).sum()

    none, little, usual, much = (length(s) for s in (1e-6, 0.4, 1.0, 3.0))
    assert none > 1.5 * little
    assert little > 4 * max(usual, much)


def test_clusters_have_no_order():
    bins, log_profiles, _ = scene()
    scores = np.concatenate([scores_of(bins, log_profiles), scores_of(bins, log_profiles[:, ::-1])])
    order = [2, 0, 3, 1]
    np.testing.assert_allclose(posteriors_of(scores[order]), posteriors_of(scores)[order], atol=1e-5)


def test_what_stands_in_a_hole_does_not_reach_the_pixels_round_it():
    bins, log_profiles, _ = scene()
    mask = np.ones((64, 72), bool)
    mask[20:44, 20:52] = False
    scores = scores_of(bins, log_profiles, mask)
    other = scores.copy()
    other[0, ~mask] += 50
    one, two = posteriors_of(scores, mask=mask), posteriors_of(other, mask=mask)
    np.testing.assert_allclose(one[:, mask], two[:, mask], atol=1e-5)


def test_posteriors_leave_their_arguments_alone():
    bins, log_profiles, _ = scene()
    mask = np.ones((64, 72), bool)
    mask[:9] = False
    arrays = bins, log_profiles, mask
    copies = [array.copy() for array in arrays]
    scores = scores_of(bins, log_profiles, mask)
    before = scores.copy()
    posteriors_of(scores, mask=mask)
    np.testing.assert_array_equal(scores, before)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# ---- small parts -------------------------------------------------------------------------------------------


def joined(labels, scores, area, min_size):
    parts = connected_parts(labels)
    pixels = np.flatnonzero(parts.places)
    of_pixels = scores.reshape(len(scores), -1)[:, pixels]
    block = parts_of_block(parts, of_pixels, pixels, (0, 0), labels.shape)
    names = joined_labels([(0, 0)], lambda _: block, area, min_size)[0, 0][1]
    return np.concatenate([[-1], names]).astype(np.int32)[parts.places]


def merge_small(labels, scores, min_size):
    return joined(labels, scores, 0, min_size)


def test_a_small_part_goes_to_the_neighbour_that_explains_it_best():
    labels = np.zeros((12, 12), np.int32)
    labels[:, 6:] = 1
    labels[5:7, 5:7] = 2
    scores = np.zeros((3, 12, 12), np.float32)
    for best in (0, 1):
        scores[:] = 0
        scores[best, 5:7, 5:7] = 1
        merged = merge_small(labels, scores, 5)
        assert (merged[5:7, 5:7] == best).all()
        merged[5:7, 5:7] = 2
        np.testing.assert_array_equal(merged, labels)


def test_parts_as_large_as_min_size_stay():
    labels = np.zeros((12, 12), np.int32)
    labels[5:7, 5:7] = 1
    scores = np.zeros((2, 12, 12), np.float32)
    np.testing.assert_array_equal(merge_small(labels, scores, 4), labels)
    assert not merge_small(labels, scores, 5).any()


@pytest.mark.parametrize("min_size", [0, 1])
def test_no_part_is_below_one_pixel(min_size):
    labels = np.random.default_rng(0).integers(-1, 3, (20, 20)).astype(np.int32)
    np.testing.assert_array_equal(merge_small(labels, np.zeros((3, 20, 20), np.float32), min_size), labels)


def test_no_data_is_neither_merged_nor_merged_into():
    labels = np.full((12, 12), -1, np.int32)
    labels[3:5, 3:5] = 1  # an island
    labels[8, 8:10] = 0
    labels[8, 10] = 1
    merged = merge_small(labels, np.zeros((2, 12, 12), np.float32), 3)
    np.testing.assert_array_equal(merged == -1, labels == -1)
    assert (merged[3:5, 3:5] == 1).all()
    assert len(np.unique(merged[8, 8:11])) == 1


def part_sizes(labels):
    parts = connected_components(labels + 1, connectivity=1, background=0)
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    return sizes[parts]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16), st.integers(2, 20), st.integers(2, 4))
def test_large_parts_and_missing_pixels_stay_whatever_is_merged(seed, min_size, K):
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, K, (12, 14)).astype(np.int32)
    before = labels.copy()
    merged = merge_small(labels, rng.standard_normal((K, 12, 14)).astype(np.float32), min_size)
    large = part_sizes(labels) >= min_size
    np.testing.assert_array_equal(merged[large], labels[large])
    np.testing.assert_array_equal(merged == -1, labels == -1)
    np.testing.assert_array_equal(labels, before)
    assert merged.dtype == np.int32


def merged_by_hand(labels, scores, min_size):
    """Merge the smallest part first, of equals that with the first pixel; find the parts anew after each."""
    labels, limits = labels.copy(), np.broadcast_to(min_size, len(scores))
    while True:
        parts, n_parts = connected_components(labels + 1, connectivity=1, background=0, return_num=True)
        sizes = np.bincount(parts.ravel())
        for part in sorted(range(1, n_parts + 1), key=lambda p: (sizes[p], p)):
            neighbours = labels[ndimage.binary_dilation(parts == part) & (parts != part) & (labels >= 0)]
            if sizes[part] < limits[labels[parts == part][0]] and neighbours.size:
                own = {k: scores[k][parts == part].sum(dtype=float) for k in np.unique(neighbours)}
                labels[parts == part] = max(own, key=own.get)
                break
        else:
            return labels


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16), st.integers(2, 20), st.integers(2, 4), st.integers(-1, 0))
def test_small_parts_are_merged_one_by_one_until_none_with_a_neighbour_is_left(seed, min_size, K, lowest):
    rng = np.random.default_rng(seed)
    labels = rng.integers(lowest, K, (9, 10)).astype(np.int32)
    scores = rng.standard_normal((K, 9, 10)).astype(np.float32)
    merged = merge_small(labels, scores, min_size)
    np.testing.assert_array_equal(merged, merged_by_hand(labels, scores, min_size))
    parts = connected_components(merged + 1, connectivity=1, background=0)
    for part in np.unique(parts[parts > 0]):
        edge = ndimage.binary_dilation(parts == part) & (parts != part) & (merged >= 0)
        assert (parts == part).sum() >= min_size or not edge.any()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(2, 20), st.integers(2, 4), st.integers(-1, 0))
def test_limits_of_labels_hold_while_specks_are_merged(seed, area, K, lowest):
    """A label whose parts are all specks has no limit, also for what its parts become."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(lowest, K, (9, 10)).astype(np.int32)
    scores = rng.standard_normal((K, 9, 10)).astype(np.float32)
    largest = [part_sizes(labels)[labels == k].max(initial=0) for k in range(K)]
    limits = np.where(np.array(largest) >= area, area, 0)
    np.testing.assert_array_equal(joined(labels, scores, area, 0), merged_by_hand(labels, scores, limits))


# ---- specks ------------------------------------------------------------------------------------------------


def without_specks(labels, area, K=2, mask=None):
    scores = (labels == np.arange(K)[:, None, None]).astype(np.float32) * 0.6 + 0.4 / K
    known = labels if mask is None else np.where(mask, labels, -1)
    found = joined(known.astype(np.int32), scores, area, 0)
    return np.where(found < 0, labels, found)


def test_a_speck_goes_when_its_label_is_at_home_elsewhere():
    labels = np.zeros((30, 40), int)
    labels[:, 25:] = 1
    tidy = labels.copy()
    labels[5:10, 5:10] = 1
    np.testing.assert_array_equal(without_specks(labels, area=26), tidy)
    np.testing.assert_array_equal(without_specks(labels, area=25), labels)


def test_a_texture_that_comes_in_small_parts_alone_keeps_them():
    labels = np.zeros((30, 40), int)
    for column in (5, 15, 25):
        labels[5:10, column : column + 5] = 1
    np.testing.assert_array_equal(without_specks(labels, area=400), labels)


def test_thin_parts_that_hang_on_to_their_own_stay():
    labels = np.zeros((30, 40), int)
    labels[:, 25:] = 1
    labels[12, 3:25] = 1
    np.testing.assert_array_equal(without_specks(labels, area=400), labels)


def test_specks_do_not_reach_across_missing_pixels():
    labels = np.zeros((30, 40), int)
    labels[:, 25:] = 1
    labels[5:10, 5:10] = 1
    mask = np.ones(labels.shape, bool)
    mask[4:11, 4:11] = False
    mask[5:10, 5:10] = True
    np.testing.assert_array_equal(without_specks(labels, 200, mask=mask)[mask], labels[mask])


# ---- planes ------------------------------------------------------------------------------------------------


def test_planes_of_cells_and_a_band_are_those_that_were_written_out():
    rng = np.random.default_rng(0)
    grid = cell_grid((19, 30), 4)
    band = np.sort(rng.choice(19 * 30, 200, replace=False))
    planes = PixelPlanes(grid, rng.random((3, grid.n_cells)), band, rng.random((3, 200)))
    whole = np.stack([grid.to_pixels(cells) for cells in planes.cells])
    whole.reshape(3, -1)[:, band] = planes.near
    np.testing.assert_array_equal(planes.whole(), whole)
    labels = planes.labels()
    np.testing.assert_array_equal(labels, whole.argmax(axis=0))
    np.testing.assert_array_equal(planes.at(labels), whole.max(axis=0))
    pixels = np.sort(rng.choice(19 * 30, 100, replace=False))  # inside the band and outside
    planes.exchange(pixels, np.zeros(100, int), np.full(100, 2))
    flat = whole.reshape(3, -1)
    flat[0, pixels], flat[2, pixels] = flat[2, pixels], flat[0, pixels]
    np.testing.assert_array_equal(planes.whole(), whole)
