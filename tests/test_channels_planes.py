"""From images to real-valued channels: what is data, what is filled in, what the light must not change."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.color import rgb2lab

from texseg.channels.gabor import GaborBank
from texseg.channels.planes import non_finite, split_planes
from texseg.channels.responses import flatten_illumination, learn_intensity, recipes

SIGMA = 8.0


def picture(seed=0, shape=(60, 75)):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def channels_of(image, *, learn_from=None, bank=None, channel_axis=None, mask=None, **options):
    planes = split_planes(image, channel_axis=channel_axis, mask=mask)
    source = planes if learn_from is None else split_planes(learn_from, channel_axis=channel_axis)
    bank = bank or GaborBank([4.0], 2)
    channels = recipes(planes, learn_intensity([source], SIGMA), bank, SIGMA, **options)
    return [channel._replace(values=channel.values()) for channel in channels]


# ---- what is data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "options", "error", "message"),
    [
        (np.ones((3, 3), complex), {}, TypeError, "image must hold real numbers, got dtype complex128"),
        (np.array([["a", "b"]]), {}, TypeError, "image must hold real numbers, got dtype <U1"),
        (np.array([[None, 1]]), {}, TypeError, "image must hold real numbers, got dtype object"),
        (np.ones(5), {}, ValueError, r"image must have 2 axes with channel_axis=None, got shape \(5,\)"),
        (np.ones((4, 5, 3)), {}, ValueError, r"2 axes with .* got shape \(4, 5, 3\); a colour image needs"),
        (np.ones((4, 5)), {"channel_axis": -1}, ValueError, "image must have 3 axes with channel_axis=-1"),
        (np.ones((2, 4, 5, 3)), {"channel_axis": -1}, ValueError, "image must have 3 axes with"),
        (np.ones((0, 5)), {}, ValueError, r"image is empty, got shape \(0, 5\)"),
        (np.ones((4, 5, 0)), {"channel_axis": -1}, ValueError, r"image is empty, got shape \(4, 5, 0\)"),
        (np.ones((4, 5, 3)), {"channel_axis": 3}, ValueError, "channel_axis must be -3 to 2 .* got 3"),
        (np.ones((4, 5, 3)), {"channel_axis": -4}, ValueError, "channel_axis must be -3 to 2 .* got -4"),
        (np.ones((4, 5)), {"mask": np.ones((5, 4))}, ValueError, r"mask shape \(5, 4\) does not match image"),
        (
            np.ones((4, 5)),
            {"mask": np.full((4, 5), "a")},
            TypeError,
            "mask must hold booleans or real numbers",
        ),
        (np.ones((4, 5)), {"mask": np.full((4, 5), None)}, TypeError, "mask must hold .*, got dtype object"),
        (np.ones((4, 5)), {"mask": np.zeros((4, 5))}, ValueError, "no valid pixels in the image of shape"),
        (np.full((4, 5), np.nan), {}, ValueError, "no valid pixels in the image of shape"),
        (np.full((4, 5), 7), {"nodata": 7}, ValueError, "no valid pixels .* all are masked or no data"),
        (np.ones((4, 5)), {"nodata": "none"}, TypeError, "nodata must be a real number, got 'none'"),
    ],
)
def test_images_that_are_none_are_refused_in_a_sentence(image, options, error, message):
    with pytest.raises(error, match=message):
        split_planes(image, **options)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.uint32, np.float16, np.float32, np.float64])
def test_complete_images_have_no_mask_and_keep_their_values(dtype):
    image = (picture() > 99).astype(dtype)
    planes = split_planes(image)
    assert planes.mask is None
    np.testing.assert_array_equal(planes.bands[0], image)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_pixels_are_no_data(bad):
    image = picture().astype(np.float32)
    image[5:9, 20:33] = bad
    planes = split_planes(image)
    assert (~planes.mask).sum() == non_finite(image) == 52
    assert not planes.mask[5:9, 20:33].any()
    assert np.isfinite(planes.bands[0]).all()
    np.testing.assert_array_equal(planes.bands[0][planes.mask], image[planes.mask])


def test_one_bad_band_makes_a_bad_pixel():
    image = np.stack([picture(0), picture(1), picture(2)], axis=-1).astype(float)
    image[3, 4, 1] = np.nan
    image[3, 4, 2] = np.inf
    image[10, 11, 0] = np.nan
    planes = split_planes(image, channel_axis=-1)
    assert np.argwhere(~planes.mask).tolist() == [[3, 4], [10, 11]]
    assert non_finite(image, -1) == 2
    assert non_finite(picture()) == 0


@pytest.mark.parametrize(
    ("dtype", "nodata"), [(np.uint8, 0), (np.int16, -9999), (np.float32, -9999.1), (np.float64, np.nan)]
)
def test_the_nodata_value_marks_pixels(dtype, nodata):
    image = (picture() % 100 + 1).astype(dtype)
    image[:, 30:40] = nodata
    mask = split_planes(image, nodata=nodata).mask
    assert not mask[:, 30:40].any()
    assert mask[:, :30].all() and mask[:, 40:].all()


def test_nodata_must_stand_in_every_band_and_need_not_fit_the_dtype():
    image = np.stack([picture(0), picture(1)])
    image[:, 7, 8] = 0
    both = (image[0] == 0) & (image[1] == 0)
    np.testing.assert_array_equal(split_planes(image, channel_axis=0, nodata=0).mask, ~both)
    assert split_planes(picture(), nodata=-9999).mask is None
    assert split_planes(picture(), nodata=np.nan).mask is None


def test_undefined_values_of_a_mask_hide_pixels():
    image, mask = np.ones((4, 5)), np.full((4, 5), -1.0)
    mask[1] = np.nan
    np.testing.assert_array_equal(split_planes(image, mask=mask).mask, np.isfinite(mask))


def test_masks_of_any_dtype_add_to_missing_values():
    image = picture().astype(float)
    image[0, 0] = np.nan
    mask = np.full(image.shape, 255, np.uint8)
    mask[30:, :] = 0
    expected = mask > 0
    expected[0, 0] = False
    for given_mask in (mask, mask > 0, (mask > 0).astype(float), (mask > 0).tolist()):
        np.testing.assert_array_equal(split_planes(image, mask=given_mask).mask, expected)


def test_masked_arrays_hold_no_data_where_any_band_is_masked():
    image = np.ma.masked_less(picture(), 20)
    np.testing.assert_array_equal(split_planes(image).mask, ~image.mask)
    bands = np.ma.stack([image, np.ma.masked_greater(picture(1), 230)])
    np.testing.assert_array_equal(split_planes(bands, channel_axis=0).mask, ~bands.mask.any(axis=0))
    assert split_planes(np.ma.masked_array(picture())).mask is None


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_bands_lie_along_the_axis_that_is_named(axis):
    bands = [picture(k) for k in range(4)]
    planes = split_planes(np.stack(bands, axis=axis), channel_axis=axis)
    for plane, band in zip(planes.bands, bands, strict=True):
        np.testing.assert_array_equal(plane, band)


def test_equal_bands_are_a_grey_image():
    grey = picture().astype(float)
    grey[4, 4] = np.nan
    planes = split_planes(np.stack([grey] * 3, axis=-1), channel_axis=-1)
    assert len(planes.bands) == 1
    np.testing.assert_array_equal(planes.bands[0], split_planes(grey).bands[0])


# ---- holes -------------------------------------------------------------------------------------------------


def test_a_half_plane_is_filled_with_the_mirror_image_of_the_other():
    image, mask = picture(shape=(40, 60)), np.ones((40, 60), bool)
    mask[:, 40:] = False
    filled = split_planes(image, mask=mask).bands[0]
    # the last valid column is the axis: column 40 + k holds what stands k + 1 before it
    np.testing.assert_array_equal(filled[:, 40:], image[:, 19:39][:, ::-1])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.05, 0.95))
def test_holes_are_filled_with_values_of_valid_pixels_only(seed, share):
    rng = np.random.default_rng(seed)
    mask = rng.random((20, 30)) < share
    mask[rng.integers(20), rng.integers(30)] = True
    image = np.where(mask, rng.integers(0, 100, mask.shape), 10_000)
    filled = split_planes(image, mask=mask).bands[0]
    assert filled.max() < 100
    np.testing.assert_array_equal(filled[mask], image[mask])


def test_what_hides_in_a_hole_changes_nothing():
    image, mask = picture(), np.ones((60, 75), bool)
    mask[20:40, 30:50] = False
    other = image.copy()
    other[~mask] = 255 - other[~mask]
    for one, two in zip(channels_of(image, mask=mask), channels_of(other, mask=mask), strict=True):
        np.testing.assert_array_equal(one.values, two.values)


def test_a_hole_makes_no_edge_for_the_filters():
    image = np.random.default_rng(0).standard_normal((120, 120))
    distance = np.hypot(*(np.mgrid[:120, :120] - 60)) - 20
    bank = GaborBank([4.0, 11.0], 2)
    for channel in channels_of(np.where(distance > 0, image, 50.0), bank=bank, mask=distance > 0)[:4]:
        near, far = channel.values[(distance > 0) & (distance < 6)], channel.values[distance > 20]
        assert near.mean() == pytest.approx(far.mean(), rel=0.2)
        assert near.max() < 1.2 * far.max()


# ---- channels ----------------------------------------------------------------------------------------------


def test_a_grey_image_yields_the_bank_and_its_values_with_weight_one():
    channels = channels_of(picture())
    assert [c.kind for c in channels] == ["modulus", "modulus", "value"]
    assert [c.name for c in channels] == ["4 px, 0 deg", "4 px, 90 deg", "value"]
    assert [c.weight for c in channels] == [1, 1, 1]
    assert [c.wavelength for c in channels] == [4, 4, 0]
    assert all(c.values.dtype == np.float32 and c.values.shape == (60, 75) for c in channels)


def test_a_colour_image_yields_one_bank_on_the_lightness_and_three_values():
    rgb = np.random.default_rng(0).random((60, 75, 3))
    channels = channels_of(rgb, channel_axis=-1)
    assert [c.name for c in channels] == ["4 px, 0 deg", "4 px, 90 deg", "L", "a", "b"]
    assert [c.weight for c in channels[2:]] == [2, 3, 3]
    lightness = channels_of(np.asarray(channels[2].values))
    np.testing.assert_allclose(channels[0].values, lightness[0].values, rtol=0.02, atol=0.01)


def test_lab_values_are_those_of_scikit_image_where_the_range_is_the_unit_interval():
    rgb = np.random.default_rng(0).random((60, 75, 3))
    rgb[:10] = np.linspace(0, 1, 75)[:, None]
    rgb[:2], rgb[2:4] = 0, 1  # the percentiles of the range are 0 and 1
    channels = channels_of(rgb, channel_axis=-1)[2:]
    expected = rgb2lab(rgb) / 100
    for k, channel in enumerate(channels):
        np.testing.assert_allclose(channel.values, expected[..., k], atol=5e-3)


@pytest.mark.parametrize("n_bands", [2, 4, 9])
def test_other_bands_yield_principal_components_of_weight_eight_together(n_bands):
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((3, n_bands))
    image = rng.standard_normal((60, 75, 3)) @ mixing + 0.05 * rng.standard_normal((60, 75, n_bands))
    values = [c for c in channels_of(image, channel_axis=-1) if c.kind == "value"]
    assert len(values) == min(n_bands, 6)
    assert sum(c.weight for c in values) == pytest.approx(8)
    variances = [c.values.var() for c in values]
    assert (np.diff(variances) <= 1e-6).all()
    covariance = np.cov(np.stack([c.values.ravel() for c in values]))
    off = covariance - np.diag(np.diag(covariance))
    assert np.abs(off).max() < 1e-3 * covariance.max()


def test_three_bands_share_one_range_so_that_colours_keep_their_hue():
    rgb = np.random.default_rng(0).random((60, 75, 3)) * [1.0, 0.5, 0.25]
    intensity = learn_intensity([split_planes(rgb, channel_axis=-1)], SIGMA)
    assert np.ptp(intensity.low) == np.ptp(intensity.high) == 0
    assert not len(intensity.axes)


def test_weights_of_zero_leave_channels_out():
    assert [c.kind for c in channels_of(picture(), value_weight=0)] == ["modulus"] * 2
    with_patches = channels_of(picture(), patch_weight=3, value_weight=0.5)
    assert [(c.kind, c.weight) for c in with_patches[2:]] == [("patch", 3), ("value", 0.5)]


def test_equal_bands_yield_the_same_channels_as_grey():
    grey = picture()
    colour = channels_of(np.stack([grey] * 3, axis=-1), channel_axis=-1)
    for one, two in zip(channels_of(grey), colour, strict=True):
        assert one.name == two.name
        np.testing.assert_array_equal(one.values, two.values)


def test_another_image_is_seen_with_the_intensity_that_was_learned():
    half = np.tile(np.linspace(0, 100, 75), (60, 1))
    alone = channels_of(half)[2].values
    seen = channels_of(half, learn_from=2 * half)[2].values
    np.testing.assert_allclose(seen, alone / 2, atol=2e-3)


@pytest.mark.parametrize(("dtype", "gain", "offset"), [(np.uint16, 257, 0), (np.float64, 1e-9, -3e-7)])
def test_channels_do_not_know_dtype_gain_and_offset(dtype, gain, offset):
    image = picture()
    changed = (gain * image.astype(float) + offset).astype(dtype)
    for one, two in zip(channels_of(image), channels_of(changed), strict=True):
        np.testing.assert_allclose(one.values, two.values, atol=1e-4)


def test_a_slow_gradient_of_the_light_leaves_the_filters_almost_alone():
    rng = np.random.default_rng(0)
    image = rng.standard_normal((96, 120))
    ramp = np.linspace(-5, 5, 120)
    lit = channels_of(image + ramp, bank=GaborBank([3.0, 6.0], 2))
    plain = channels_of(image, bank=GaborBank([3.0, 6.0], 2))
    for one, two in zip(lit[:4], plain[:4], strict=True):
        a, b = one.values[:, 20:-20], two.values[:, 20:-20]
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.99
        balance = (a / b)[:, :40].mean() / (a / b)[:, 40:].mean()
        assert balance == pytest.approx(1, abs=0.1)


def test_a_multiplicative_gradient_is_levelled():
    texture = 1 + 0.4 * np.random.default_rng(0).standard_normal((96, 120))
    light = np.geomspace(1, 20, 120)
    lit = (texture * light).astype(np.float32)

    def ratio(plane):
        return plane[:, -30:].std() / plane[:, :30].std()

    (flat,) = flatten_illumination(lit, SIGMA, [0.01])
    assert ratio(lit) > 5
    assert ratio(flat) == pytest.approx(1, abs=0.2)
    assert abs(flat.mean()) < 0.05


def test_the_noise_of_a_flat_region_is_not_blown_up_to_a_texture():
    rng = np.random.default_rng(0)
    image = rng.standard_normal((96, 120)).astype(np.float32)
    image[:, :60] *= 1e-4
    contrast = learn_intensity([split_planes(image)], SIGMA).contrast
    assert contrast > 0
    (flat,) = flatten_illumination(image, SIGMA, [contrast])
    assert flat[:, :40].std() < 0.01 * flat[:, 80:].std()


def test_a_constant_image_has_no_contrast_and_finite_channels():
    planes = split_planes(np.full((60, 75), 9.0))
    intensity = learn_intensity([planes], SIGMA)
    assert intensity.contrast == 0
    for channel in recipes(planes, intensity, GaborBank([4.0], 2), SIGMA):
        assert not channel.values().any()


def test_several_images_are_learned_from_together():
    one, two = picture().astype(float), picture(1) / 4.0
    intensity = learn_intensity([split_planes(one), split_planes(two)], SIGMA)
    alone = learn_intensity([split_planes(one)], SIGMA)
    assert intensity.high == pytest.approx(alone.high, rel=0.02)
    assert intensity.contrast < alone.contrast


def test_the_image_and_the_mask_are_left_alone():
    image, mask = picture().astype(float), np.ones((60, 75))
    image[3, 3] = np.nan
    mask[10:20] = 0
    copies = image.copy(), mask.copy()
    channels_of(image, mask=mask, patch_weight=1)
    np.testing.assert_array_equal(image, copies[0])
    np.testing.assert_array_equal(mask, copies[1])
