"""Mosaics: what their truth and their grey values promise."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage
from skimage.color import rgb2gray

from texseg import synth
from texseg.io.read import read_labels

SIZE = 96
PERIODS = (2, 3, 5, 7, 11, 13)


def grey_textures(n=6, side=128):
    """Noise of several scales and directions, each with a brightness and contrast of its own."""
    rng = np.random.default_rng(7)
    sigmas = [(0.5, 0.5), (3, 0.5), (0.5, 3), (2, 2), (4, 1), (1, 4), (5, 5), (0, 2)][:n]
    return [
        (10 + 30 * i + (3 + i) * ndimage.gaussian_filter(rng.normal(size=(side, side)), sigma)).round(2)
        for i, sigma in enumerate(sigmas)
    ]


def colour_textures(n=4, side=128):
    grey = grey_textures(n, side)
    tints = [(255, 90, 30), (20, 90, 255), (30, 200, 90), (200, 200, 200)]
    scaled = [(t - t.min()) / np.ptp(t) for t in grey]
    return [(s[..., None] * tint).astype(np.uint8) for s, tint in zip(scaled, tints, strict=False)]


@pytest.mark.parametrize("layout", ["voronoi", "scattered", "grid"])
@pytest.mark.parametrize("n_segments", [1, 2, 5])
def test_every_region_has_the_same_uniform_histogram(layout, n_segments):
    image, truth = synth.mosaic(grey_textures(), n_segments, SIZE, layout, random_state=3)
    assert image.shape == truth.shape == (SIZE, SIZE)
    assert (image.dtype, truth.dtype) == (np.uint8, np.int32)
    assert np.unique(truth).tolist() == list(range(1, n_segments + 1))
    for label in range(1, n_segments + 1):
        values = image[truth == label]
        counts = np.bincount(values, minlength=256)
        assert counts.max() - counts.min() <= 1
        assert values.mean() == pytest.approx(127.5, abs=1)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), n_segments=st.integers(1, 6))
def test_voronoi_gives_each_texture_one_blob_and_a_fair_share(seed, n_segments):
    _, truth = synth.mosaic(grey_textures(), n_segments, SIZE, "voronoi", random_state=seed)
    for label in range(1, n_segments + 1):
        assert ndimage.label(truth == label)[1] == 1
        assert np.mean(truth == label) >= 0.35 / n_segments


def test_scattered_gives_each_texture_three_places():
    n_places = [
        ndimage.label(truth == label)[1]
        for seed in range(5)
        for truth in [synth.mosaic(grey_textures(), 5, SIZE, "scattered", random_state=seed).truth]
        for label in range(1, 6)
    ]
    assert max(n_places) == 3
    assert np.mean(n_places) > 2.6


@pytest.mark.parametrize("n_segments", [1, 2, 3, 4, 5, 6])
def test_grid_gives_each_texture_a_rectangle_of_equal_area(n_segments):
    _, truth = synth.mosaic(grey_textures(), n_segments, 120, "grid")
    for label in range(1, n_segments + 1):
        rows, columns = np.nonzero(truth == label)
        assert len(rows) == np.ptp(rows + 0) * np.ptp(columns) + np.ptp(rows) + np.ptp(columns) + 1
        assert len(rows) == pytest.approx(120**2 / n_segments, rel=0.02)


def test_same_seed_same_mosaic():
    first = synth.mosaic(grey_textures(), 4, SIZE, random_state=5)
    again = synth.mosaic(grey_textures(), 4, SIZE, random_state=np.random.default_rng(5))
    other = synth.mosaic(grey_textures(), 4, SIZE, random_state=6)
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.truth, again.truth)
    assert (first.truth != other.truth).any()


def test_labels_stand_in_the_order_of_the_textures():
    textures = grey_textures(3)
    for seed in range(3):
        image, truth = synth.mosaic(textures, 3, (80, 120), "grid", random_state=seed)
        assert image.shape == (80, 120)
        steps = [
            [
                np.abs(np.diff(image.astype(float), axis=axis))[_inner(truth, axis) == label].mean()
                for axis in (0, 1)
            ]
            for label in (1, 2, 3)
        ]
        # isotropic; smooth from row to row; smooth from column to column
        assert steps[0][0] == pytest.approx(steps[0][1], rel=0.1)
        assert steps[1][0] < 0.6 * steps[1][1]
        assert steps[2][1] < 0.6 * steps[2][0]


def _inner(truth, axis):
    """Label where both pixels of a step have the same, 0 elsewhere."""
    first, second = (np.delete(truth, at, axis=axis) for at in (-1, 0))
    return np.where(first == second, first, 0)


def test_textures_are_drawn_without_replacement_and_at_random():
    textures = [np.tile(np.arange(period), (64, 64 // period + 1))[:, :64] for period in PERIODS]
    periods = []
    for seed in range(6):
        image, truth = synth.mosaic(textures, 3, 48, "grid", random_state=seed)
        periods.append(sorted(_period_of(image, truth == label) for label in (1, 2, 3)))
    assert all(len(set(found)) == 3 for found in periods)
    assert len({tuple(found) for found in periods}) > 1


def _period_of(image, region):
    rows = image[region].reshape(np.ptp(np.nonzero(region)[0]) + 1, -1).astype(float)
    steps = [np.abs(rows[:, p:] - rows[:, :-p]).mean() for p in PERIODS]
    return PERIODS[int(np.argmin(steps))]


def test_small_textures_are_mirrored():
    texture = np.arange(12.0).reshape(3, 4)
    image = synth.mosaic([texture], 1, (3, 8)).image
    one_rank = 256 / image.size + 1
    np.testing.assert_allclose(image[:, :4].astype(int), image[:, :3:-1].astype(int), atol=one_rank)
    assert (np.diff(image[:, :4].astype(int), axis=1) > 0).all()


def test_colour_keeps_hue_and_hides_brightness():
    image, truth = synth.mosaic(colour_textures(), 4, SIZE, random_state=1)
    assert image.shape == (SIZE, SIZE, 3)
    grey = rgb2gray(image.astype(float))
    quantiles = np.array([np.quantile(grey[truth == k], [0.1, 0.25, 0.5, 0.75, 0.9]) for k in (1, 2, 3, 4)])
    assert np.ptp(quantiles, axis=0).max() < 2.5
    redness = [np.mean(image[truth == k].astype(float) @ [1, 0, -1]) for k in (1, 2, 3, 4)]
    assert redness[0] > 20
    assert redness[1] < -20
    assert abs(redness[3]) < 1


def test_colour_means_the_same_in_every_dtype():
    textures = colour_textures()
    expected = synth.mosaic(textures, 3, SIZE).image
    wide = [t.astype(np.uint16) * 257 for t in textures]
    unit = [t / 255 for t in textures]
    for other in (wide, unit):
        difference = synth.mosaic(other, 3, SIZE).image.astype(int) - expected
        assert np.abs(difference).max() <= 1


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=40), gain=st.floats(0.1, 10))
def test_equalized_ranks_keep_the_order_and_forget_the_scale(values, gain):
    grey = np.array([values], dtype=float)
    ranks = synth.equalize_ranks(grey)
    assert sorted(ranks) == pytest.approx((np.arange(len(values)) + 0.5) / len(values))
    order = np.argsort(ranks)
    assert (np.diff(grey[0][order]) >= 0).all()
    assert synth.equalize_ranks(2 * grey + 3).tolist() == ranks.tolist()
    assert (np.diff(grey[0][np.argsort(synth.equalize_ranks(gain * grey))]) >= 0).all()


def test_ranks_are_taken_inside_the_region_only():
    values = np.array([[1.0, 5.0, 2.0], [100.0, 3.0, -100.0]])
    region = np.array([[True, True, True], [False, True, False]])
    assert synth.equalize_ranks(values, region).tolist() == [0.125, 0.875, 0.375, 0.625]


def test_textures_are_left_untouched():
    textures = grey_textures()
    copies = [t.copy() for t in textures]
    synth.mosaic(textures, 5, SIZE, "scattered")
    for texture, copy in zip(textures, copies, strict=True):
        np.testing.assert_array_equal(texture, copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_segments": 0}, r"n_segments of mosaic must be 1 ... 6, .* got 0"),
        ({"n_segments": 7}, r"must be 1 ... 6, .* got 7; pass more textures"),
        ({"layout": "hexagons"}, "one of voronoi, scattered, grid, got 'hexagons'"),
        ({"size": (3, 4, 5)}, r"a positive number or \(height, width\), got \(3, 4, 5\)"),
        ({"size": 0}, "positive number"),
        ({"textures": [np.ones(5)], "n_segments": 1}, r"textures\[0\] of mosaic has shape \(5,\)"),
        ({"textures": [np.ones((5, 5, 4))], "n_segments": 1}, r"allowed are \(h, w\) and \(h, w, 3\)"),
        ({"textures": [np.full((9, 9), np.nan)], "n_segments": 1}, "finite real numbers"),
        ({"textures": [np.array([["a"]])], "n_segments": 1}, "finite real numbers"),
        ({"textures": [np.ones((9, 9)), np.ones((9, 9, 3))], "n_segments": 1}, "all grey or all colour"),
        ({"textures": [np.full((9, 9, 3), 255.0)], "n_segments": 1}, "outside 0 ... 1"),
        ({"size": 2, "n_segments": 5}, "no voronoi layout of 5 segments fits into 2 x 2 pixels"),
        ({"size": 2, "n_segments": 5, "layout": "scattered"}, "no scattered layout of 5 segments"),
        ({"size": 1, "n_segments": 3, "layout": "grid"}, "no grid layout of 3 segments"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(change, message):
    arguments = {"textures": grey_textures(), "n_segments": 3, "size": SIZE} | change
    with pytest.raises(ValueError, match=message) as caught:
        synth.mosaic(**arguments)
    assert "\n" not in str(caught.value)


SAMPLES = Path(__file__).parents[1] / "sample_images"


@pytest.fixture(scope="module")
def make_samples():
    spec = importlib.util.spec_from_file_location("make_samples", SAMPLES / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sample_mosaics(make_samples):
    return make_samples.mosaics()


def test_sample_mosaics_are_those_the_script_makes(sample_mosaics):
    for name, (image, truth) in sample_mosaics.items():
        assert np.mean(read_labels(SAMPLES / f"{name}_truth.png") == truth) > 0.999, name
        with Image.open(SAMPLES / f"{name}.png") as shipped:
            assert np.mean(np.abs(np.asarray(shipped).astype(int) - image) <= 1) > 0.99, name


def test_sample_images_are_few_and_each_has_a_source(make_samples, sample_mosaics):
    readme = (SAMPLES / "README.md").read_text()
    images = sorted([*SAMPLES.glob("*.png"), *SAMPLES.glob("*.tif")])
    expected = {f"{name}.png" for name in [*sample_mosaics, *make_samples.photographs()]} | {"mountains.tif"}
    expected |= {f"{name}_truth.png" for name in sample_mosaics} | {"tissue_strokes.png"}
    assert {image.name for image in images} == expected
    assert all(f"`{name}`" in readme for name in expected if not name.endswith("_truth.png"))
    assert sum(image.stat().st_size for image in images) < 4e6
