"""What is learned of the channels: textons of patches, and bins of the images at hand and of others."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from texseg.channels.encode import encode, learn_features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import split_planes
from texseg.channels.textons import learn_codebook, nearest_textons

BANK = GaborBank([3.0, 6.0], 2)


def picture(seed=0, shape=(64, 80)):
    return np.random.default_rng(seed).normal(100, 20, shape).astype(np.float32)


def learn(*images, masks=None, channel_axis=None, **options):
    masks = masks or [None] * len(images)
    planes = [
        split_planes(image, mask=mask, channel_axis=channel_axis)
        for image, mask in zip(images, masks, strict=True)
    ]
    return learn_features(planes, bank=BANK, sigma=8.0, **options)


# ---- patches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [1, 3, 5])
@pytest.mark.parametrize("shape", [(20, 33), (1, 9), (150, 140)])
def test_textons_are_the_nearest_of_the_codebook_to_the_last_bit(side, shape):
    """In whole numbers, so that no processor's way to add decides between textons that are equally near."""
    plane = np.rint(picture(shape=shape) / 100 * 64)
    codebook = np.rint(np.random.default_rng(1).normal(1, 0.3, (12, side * side)) * 64)
    codebook[7] = codebook[3]
    padded = np.pad(plane, side // 2, mode="symmetric").astype(int)
    patches = [padded[y : y + side, x : x + side].ravel() for y in range(shape[0]) for x in range(shape[1])]
    distances = ((np.array(patches)[:, None] - codebook.astype(int)) ** 2).sum(axis=2)
    chosen = nearest_textons((plane / 64).astype(np.float32), (codebook / 64).astype(np.float32))
    assert chosen.dtype == np.uint8
    np.testing.assert_array_equal(chosen.ravel(), distances.argmin(axis=1))


def test_flat_ground_takes_one_word_and_leaves_the_others_to_the_texture():
    plane = np.zeros((100, 100), np.float32)
    plane[:40, :40] = picture(shape=(40, 40)) / 20 - 5
    codebook = learn_codebook([plane], [None], 20, 3, np.random.default_rng(0))
    assert len(np.unique(codebook, axis=0)) == 20


def test_a_codebook_finds_planted_patches():
    # stripes of period 2: there are only two different patches
    plane = np.tile([0.0, 1.0], (30, 20)).astype(np.float32)
    codebook = learn_codebook([plane], [None], 2, 3, np.random.default_rng(3))
    assert codebook.shape == (2, 9)
    planted = np.array([[0, 1, 0] * 3, [1, 0, 1] * 3], float)
    assert cdist(planted, codebook).min(axis=1).max() < 0.35  # the mirrored border makes a few others


def test_a_codebook_is_nearly_optimal_and_knows_only_valid_pixels():
    plane, mask = picture() / 20, np.ones((64, 80), bool)
    mask[:, 40:] = False
    plane[:, 40:] = 1e4
    codebook = learn_codebook([plane], [mask], 16, 1, np.random.default_rng(0))
    assert codebook.max() < 1e3
    values = plane[mask][:, None]
    distortion = (cdist(values, codebook).min(axis=1) ** 2).mean() / values.var()
    assert 0.008 < distortion < 0.02  # the best 16 levels for Gaussian values: 0.01154 (Max 1960, table I)


# ---- bins --------------------------------------------------------------------------------------------------


def test_bins_stand_in_the_order_of_the_names():
    features, (bins,) = learn(picture(), patch_weight=2.0, n_bins=20)
    assert features.names == ("3 px, 0 deg", "3 px, 90 deg", "6 px, 0 deg", "6 px, 90 deg", "patch", "value")
    assert features.wavelengths.tolist() == [3, 3, 6, 6, 6.5, 0]
    assert features.weights.tolist() == [1, 1, 1, 1, 2, 1]
    assert features.codebook.shape == (20, 25)
    assert features.n_bands == 1
    assert bins.dtype == np.uint8
    assert bins.shape == (6, 64, 80)
    assert bins.max() == 19


def test_channels_without_weight_are_not_there():
    features, (bins,) = learn(picture(), value_weight=0.0)
    assert features.names == ("3 px, 0 deg", "3 px, 90 deg", "6 px, 0 deg", "6 px, 90 deg")
    assert len(bins) == 4
    assert features.codebook.shape == (0, 25)


@pytest.mark.parametrize("channel_axis", [None, -1])
def test_the_image_itself_is_encoded_as_it_was_when_learned(channel_axis):
    image = picture() if channel_axis is None else np.stack([picture(k) for k in range(3)], axis=-1)
    mask = np.ones((64, 80), bool)
    mask[10:30, 10:30] = False
    features, (bins,) = learn(image, masks=[mask], channel_axis=channel_axis, patch_weight=1.0)
    again = encode(split_planes(image, mask=mask, channel_axis=channel_axis), features)
    np.testing.assert_array_equal(bins, again)
    assert features.n_bands == (1 if channel_axis is None else 3)


def test_another_image_is_encoded_with_the_ranges_that_were_learned():
    image = picture()
    features, (bins,) = learn(image, patch_weight=1.0)
    other = encode(split_planes(image[:40, 20:]), features)
    inside = np.s_[:, 30:36, 40:56]
    there = bins[:, :40, 20:][:, 30:36, 40:56]
    agree = (other[inside] == there).mean()
    assert agree > 0.5  # borders and the local mean differ
    np.testing.assert_array_equal(other[-1], bins[-1, :40, 20:])  # plain values do not
    brighter = encode(split_planes(image + 20), features)
    assert (brighter[-1] >= bins[-1]).all()
    assert brighter[-1].mean() > bins[-1].mean() + 1


@pytest.mark.parametrize(
    ("dtype", "gain", "offset"),
    [(np.uint16, 257, 0), (np.int16, 50, -9000), (np.float32, 2.0**-8, -1), (np.float64, 1e-9, 0)],
)
def test_bins_do_not_know_dtype_gain_and_offset(dtype, gain, offset):
    image = np.clip(picture(), 0, 255).astype(np.uint8)
    _, (bins,) = learn(image, patch_weight=1.0)
    _, (changed,) = learn((gain * image.astype(float) + offset).astype(dtype), patch_weight=1.0)
    np.testing.assert_array_equal(bins, changed)


def test_hot_pixels_change_bins_only_round_them():
    image = picture()
    spoilt = image.copy()
    spoilt[20, 20], spoilt[50, 70] = 1e6, -1e6
    _, (bins,) = learn(image)
    _, (other,) = learn(spoilt)
    far = np.ones(image.shape, bool)
    for y, x in ((20, 20), (50, 70)):
        far[max(0, y - 25) : y + 26, max(0, x - 25) : x + 26] = False
    assert np.abs(bins[:, far].astype(int) - other[:, far]).mean() < 2


def test_several_images_share_ranges_and_words():
    one, two = picture(0), picture(1, (50, 70)) * 2
    features, (first, second) = learn(one, two, patch_weight=1.0)
    assert first.shape[1:] == (64, 80)
    assert second.shape[1:] == (50, 70)
    np.testing.assert_array_equal(first, encode(split_planes(one), features))
    np.testing.assert_array_equal(second, encode(split_planes(two), features))
    assert second[-1].mean() > first[-1].mean()


def test_a_seed_fixes_the_words():
    one, two, three = (learn(picture(), patch_weight=1.0, random_state=s)[0].codebook for s in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert (one != three).any()


def test_a_constant_image_falls_into_one_bin_a_channel():
    _, (bins,) = learn(np.full((40, 50), 7.0), patch_weight=1.0)
    assert (bins.reshape(len(bins), -1).min(axis=1) == bins.reshape(len(bins), -1).max(axis=1)).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (2, 2), (5, 40)])
def test_tiny_images_are_encoded_without_complaint(shape):
    _, (bins,) = learn(picture(shape=shape), patch_weight=1.0)
    assert bins.shape == (6, *shape)
