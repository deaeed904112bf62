"""Ranges and bins: what must not move them, and what must move them exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from texseg.channels.quantize import Range, quantize, robust_range, to_unit


def values(seed=0, shape=(80, 90)):
    return np.random.default_rng(seed).gamma(2.0, 10.0, shape)


def test_bins_are_of_equal_width_and_ends_take_what_lies_outside():
    x = np.linspace(-2, 12, 1401)
    bins = quantize(x, Range(0.0, 10.0), 5)
    assert bins.dtype == np.uint8
    inside = (x > 0) & (x < 10) & (np.abs(x / 2 - np.rint(x / 2)) > 1e-6)
    np.testing.assert_array_equal(bins[inside], np.floor(x[inside] / 2))
    assert (bins[x < 0] == 0).all()
    assert (bins[x > 10] == 4).all()


def test_bins_are_those_of_numpy_histogram():
    x = values()
    bins = quantize(x, Range(0.0, 64.0), 32)
    histogram, _ = np.histogram(np.clip(x, 0, 64), 32, (0, 64))
    np.testing.assert_array_equal(np.bincount(bins.ravel(), minlength=32), histogram)


@pytest.mark.parametrize("n_bins", [1, 2, 40, 256])
def test_every_bin_count_up_to_256_fits(n_bins):
    bins = quantize(np.linspace(0, 1, 10_000), Range(0.0, 1.0), n_bins)
    assert np.unique(bins).tolist() == list(range(n_bins))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_unit_values_are_on_a_grid_so_that_a_gain_and_an_offset_change_none(dtype):
    x = values().astype(dtype)
    top = 19 * np.pi  # so that no value lies exactly between two multiples
    unit = to_unit(x, Range(0.0, top))
    assert (unit * 2**16 % 1 == 0).all()
    moved = to_unit(0.7 * x.astype(float) + 0.3, Range(0.3, 0.7 * top + 0.3))
    np.testing.assert_array_equal(unit, moved)


@pytest.mark.parametrize("range_", [Range(3.0, 3.0), Range(0.0, 0.0)])
def test_a_range_without_extent_gives_the_first_bin(range_):
    assert not quantize(values(), range_).any()
    assert not to_unit(values(), range_).any()


@pytest.mark.parametrize("hot", [1e3, 1e9, np.finfo(np.float32).max])
def test_single_hot_and_dead_pixels_do_not_move_the_range(hot):
    x = values().astype(np.float32)
    spoilt = x.copy()
    spoilt[3, 4], spoilt[50, 60] = hot, -hot
    clean, seen = robust_range([x], [None]), robust_range([spoilt], [None])
    spread = clean.high - clean.low
    assert seen.low == pytest.approx(clean.low, abs=0.01 * spread)
    assert seen.high == pytest.approx(clean.high, abs=0.05 * spread)
    np.testing.assert_allclose(to_unit(spoilt, seen).mean(), to_unit(x, clean).mean(), atol=0.01)


def test_the_range_holds_all_but_a_thousandth_at_either_end():
    x = values()
    low, high = robust_range([x], [None])
    assert (x < low).mean() == pytest.approx(0.001, abs=2e-4)
    assert (x > high).mean() == pytest.approx(0.001, abs=2e-4)
    assert robust_range([x], [None], None, 50).low == 0
    assert robust_range([x], [None], None, 50).high == pytest.approx(np.median(x), rel=1e-3)


def test_a_nearly_constant_image_has_the_range_of_its_extremes():
    x = np.zeros((200, 200))
    x[7, 8] = 5
    assert robust_range([x], [None]) == Range(0.0, 5.0)
    assert robust_range([np.full((4, 4), 3)], [None]) == Range(3.0, 3.0)


def test_masked_values_have_no_say():
    x = values()
    spoilt, mask = x.copy(), np.random.default_rng(1).random(x.shape) < 0.6
    spoilt[~mask] = 1e6
    seen = robust_range([spoilt], [mask])
    assert seen.high <= x.max()
    assert seen == robust_range([x], [mask])


def test_a_few_valid_pixels_off_the_sampling_grid_are_found():
    x = np.zeros((1200, 1200), np.float32)  # large enough to be sampled
    x[1::2] = 7
    mask = np.zeros(x.shape, bool)
    mask[1001, 1001] = True
    assert robust_range([x], [mask]) == Range(7.0, 7.0)


def test_several_images_share_one_range():
    x = values()
    both = robust_range([x, x + 500], [None, None])
    assert both.low == pytest.approx(robust_range([x], [None]).low, abs=1)
    assert both.high == pytest.approx(500 + robust_range([x], [None]).high, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(
    gain=st.floats(1e-9, 1e9),
    offset=st.floats(-1e6, 1e6),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_unit_values_do_not_know_gain_and_offset(gain, offset, dtype):
    grey = np.random.default_rng(0).integers(0, 256, (40, 50))
    changed = (gain * (grey + offset / 1e3)).astype(dtype)
    expected = to_unit(grey, robust_range([grey], [None]))
    np.testing.assert_allclose(to_unit(changed, robust_range([changed], [None])), expected, atol=3e-4)


@pytest.mark.parametrize(
    ("dtype", "gain", "offset"),
    [
        (np.uint8, 1, 0),
        (np.uint16, 257, 0),
        (np.uint16, 1, 65000),
        (np.uint32, 2**24, 0),
        (np.int16, -1, 0),
        (np.int16, 100, -20000),
        (np.int32, 1, -(2**30)),
        (np.float16, 1, 0),
        (np.float32, 1 / 256, -3),
        (np.float64, 1e-9, 0),
        (np.float64, 1e30, 0),
    ],
)
def test_representable_affine_maps_give_the_same_unit_values_to_the_last_bit(dtype, gain, offset):
    grey = np.random.default_rng(0).integers(0, 256, (40, 50))
    base = -grey if gain < 0 else grey
    changed = (gain * grey + offset).astype(dtype)
    np.testing.assert_array_equal(
        to_unit(changed, robust_range([changed], [None])), to_unit(base, robust_range([base], [None]))
    )


def test_values_far_outside_the_range_are_clipped_a_quarter_outside():
    unit = to_unit(np.array([-1e9, -0.1, 0.5, 1.1, 1e9]), Range(0.0, 1.0))
    np.testing.assert_allclose(unit, [-0.25, -0.1, 0.5, 1.1, 1.25], atol=1e-5)
    assert unit.dtype == np.float32


def test_arguments_are_left_alone():
    x = values()
    before = x.copy()
    to_unit(x, robust_range([x], [None]))
    quantize(x, Range(0.0, 1.0))
    np.testing.assert_array_equal(x, before)
