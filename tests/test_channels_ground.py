"""Flat background is one segment, and the textures on it keep the labels that they have without it."""

import warnings

import cv2
import numpy as np
import pytest

from texseg import TextureSegmenter, segment
from texseg.channels.ground import find_ground
from texseg.channels.planes import split_planes
from texseg.metrics import match_labels
from texseg.synth import mosaic

SIDE = 160
INSIDE = np.s_[60 : 60 + SIDE, 90 : 90 + SIDE]


@pytest.fixture(scope="module")
def scene():
    rows, columns = np.mgrid[:SIDE, :SIDE]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(SIDE, SIDE))
    stripes = np.sin(rows * 0.9) + 0.3 * noise
    checks = np.sin(columns * 0.5) * np.sin(rows * 0.5) + 0.3 * noise
    return mosaic([noise, stripes, checks], 3, SIDE, random_state=0)


def on_ground(image, value, noise=0.0):
    ground = np.full((300, 340), float(value)) + np.random.default_rng(1).normal(0, 1, (300, 340)) * noise
    ground[INSIDE] = image
    return np.clip(np.rint(ground), 0, 255).astype(np.uint8)


def outside():
    mask = np.ones((300, 340), bool)
    mask[INSIDE] = False
    return mask


@pytest.fixture(scope="module")
def model(scene):
    return TextureSegmenter(4).fit(on_ground(scene.image, 255))


@pytest.mark.parametrize(("value", "noise"), [(255, 0), (0, 0), (128, 0), (90, 1.5)])
def test_ground_is_one_segment_and_the_textures_on_it_keep_theirs(scene, value, noise):
    labels = segment(on_ground(scene.image, value, noise), 4)
    assert (labels[outside()] == 1).mean() > 0.999
    assert (match_labels(labels[INSIDE], scene.truth) == scene.truth).mean() > 0.95


@pytest.mark.parametrize("value", [255, 0, 100])
def test_noisy_ground_that_fills_nine_tenths_does_not_make_outliers_of_the_textures(scene, value):
    image = np.random.default_rng(1).normal(value, 1.5, (506, 506))
    image[180 : 180 + SIDE, 170 : 170 + SIDE] = scene.image
    labels = segment(np.clip(np.rint(image), 0, 255).astype(np.uint8), 4)
    inside = labels[180 : 180 + SIDE, 170 : 170 + SIDE]
    assert (labels == 1).mean() > 0.89
    assert (match_labels(inside, scene.truth) == scene.truth).mean() > 0.95


@pytest.mark.parametrize("value", [64, 128, 200])
def test_ground_may_have_the_noise_of_a_camera_under_textures_of_low_contrast(scene, value):
    """A standard deviation of 3 of 256 levels, where that of the textures is 22."""
    image = on_ground(90 + 0.3 * scene.image, value, 3)
    labels = segment(image, 4)
    assert (labels[outside()] == 1).mean() > 0.98
    assert (match_labels(labels[INSIDE], scene.truth) == scene.truth).mean() > 0.95


def test_ground_reaches_into_the_corners_between_round_things():
    rows, columns = np.mgrid[:200, :200]
    image = np.random.default_rng(0).integers(60, 256, (200, 200))
    outside = (rows - 90) ** 2 + (columns - 100) ** 2 > 60**2
    image[outside] = 0
    ground = find_ground(split_planes(image))
    assert (ground & outside).sum() > 0.98 * outside.sum()
    assert not (ground & ~outside).any()


def test_ground_counts_when_the_number_is_chosen(scene):
    found = TextureSegmenter().fit(on_ground(scene.image, 255))
    selection = found.selection_
    assert found.n_segments_ == selection.chosen == 4
    assert selection.n_segments.tolist() == list(range(2, selection.n_segments[-1] + 1))
    assert (found.labels_[outside()] == 1).all()


@pytest.mark.parametrize(("k_min", "k_max", "n_segments"), [(1, 14, 2), (2, 14, 2), (3, 3, 3)])
def test_one_texture_on_ground_is_two_segments_for_certain(scene, k_min, k_max, n_segments):
    """It was once called one segment, and -k 2 was said to give what was there."""
    noise = np.random.default_rng(0).normal(128, 40, (SIDE, SIDE))
    found = TextureSegmenter(k_min=k_min, k_max=k_max).fit(on_ground(noise, 255))
    selection = found.selection_
    assert found.n_segments_ == selection.chosen == n_segments
    assert selection.n_segments[0] == 2 and selection.n_segments[-1] <= k_max
    assert selection.one_texture == 0 and str(selection).startswith(f"{n_segments} segments (")


def test_levels_hold_the_ground_and_the_result_is_one_of_them(model, tmp_path):
    hierarchy = model.hierarchy_
    np.testing.assert_array_equal(hierarchy.labels(4), model.labels_)
    for k in hierarchy.n_segments:
        labels = hierarchy.labels(k)
        assert np.unique(labels).tolist() == list(range(1, k + 1))
        assert (labels[outside()] == 1).all()
    assert (hierarchy.labels(2) == np.where(model.labels_ == 1, 1, 2)).all()
    temperatures = hierarchy.critical_temperatures
    assert len(temperatures) == len(hierarchy.merges)
    assert np.isinf(temperatures[0]) and np.isfinite(temperatures[1:]).all()


def test_everything_about_the_segments_knows_the_ground(model, scene):
    image = on_ground(scene.image, 255)
    assert model.n_segments_ == 4
    assert model.profiles_.shape == (4, len(model.channel_names_), 40)
    np.testing.assert_allclose(model.profiles_.sum(axis=2), 1, rtol=1e-4)
    assert (model.confidence_[outside()] == 1).all()
    probabilities = model.predict_proba(image)
    assert probabilities.shape == (300, 340, 4)
    np.testing.assert_array_equal(probabilities.argmax(axis=-1) + 1, model.labels_)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1, rtol=1e-4)


def test_ground_is_found_again_in_other_images_and_with_a_model_file(model, scene, tmp_path):
    moved = np.roll(on_ground(scene.image, 255), (30, -40), (0, 1))
    labels = model.predict(moved, unknown=True)
    np.testing.assert_array_equal(labels == 1, np.roll(outside(), (30, -40), (0, 1)))
    assert (model.predict(scene.image) >= 2).all()
    model.save(tmp_path / "m.texseg")
    loaded = TextureSegmenter.load(tmp_path / "m.texseg")
    assert loaded.n_segments_ == 4
    np.testing.assert_array_equal(loaded.profiles_, model.profiles_)
    np.testing.assert_array_equal(loaded.predict(moved, unknown=True), labels)


def test_textures_are_merged_and_split_beside_the_ground(scene, tmp_path):
    """The ground stays segment 1, and cannot be merged with a texture or split."""
    image = on_ground(scene.image, 255)
    model = TextureSegmenter(4).fit(image)
    before = model.labels_
    model.merge([(2, 4)]).rename({2: "rock"})
    np.testing.assert_array_equal(model.labels_, np.array([0, 1, 2, 3, 2])[before])
    np.testing.assert_array_equal(model.predict(image), model.labels_)
    assert model.predict_proba(image).shape == (300, 340, 3)
    assert model.profiles_.shape[0] == model.n_segments_ == 3
    model.save(tmp_path / "m.texseg")
    np.testing.assert_array_equal(TextureSegmenter.load(tmp_path / "m.texseg").predict(image), model.labels_)
    model.split(2)
    np.testing.assert_array_equal(model.labels_, before)
    model.split(3)
    np.testing.assert_array_equal(np.where(model.labels_ == 5, 3, model.labels_), before)
    with pytest.raises(ValueError, match="segment 1 is flat background, which cannot be merged"):
        model.merge([(1, 2)])
    with pytest.raises(ValueError, match="segment 1 is flat background, which cannot be split"):
        model.split(1)


def test_ground_may_be_a_texture_like_any_other(scene):
    found = TextureSegmenter(4, flat_ground=False).fit(on_ground(scene.image, 255))
    assert found.ground_ is None
    with pytest.raises(ValueError, match="flat_ground must be True or False, got 'no'"):
        segment(scene.image, 3, flat_ground="no")


def test_no_data_is_no_ground(scene):
    image, mask = on_ground(scene.image, 255), ~outside()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = segment(image, 3, mask=mask)
    np.testing.assert_array_equal(labels == 0, ~mask)


def test_dust_on_the_ground_is_ground(scene):
    image = on_ground(scene.image, 255, 2)
    dust = (np.random.default_rng(2).uniform(size=image.shape) < 0.001) & outside()
    image[dust] = 0
    assert find_ground(split_planes(image))[outside()].mean() > 0.99
    labels = segment(image, 4)
    assert (match_labels(labels[INSIDE], scene.truth) == scene.truth).mean() > 0.95


def test_stripes_of_a_cloth_are_no_ground(scene):
    """Half of the image is black, but nowhere more than 24 pixels wide."""
    image = np.random.default_rng(0).integers(60, 256, (240, 240))
    image[:, np.arange(240) % 48 < 24] = 0
    assert find_ground(split_planes(image)) is None


def test_a_slow_change_and_a_small_area_are_no_ground(scene):
    ramp = on_ground(scene.image, 0).astype(float)
    ramp[outside()] = np.broadcast_to(np.linspace(0, 255, 340), (300, 340))[outside()]
    assert find_ground(split_planes(ramp)) is None
    small = scene.image.copy()
    small[:40, :60] = 255
    assert find_ground(split_planes(small)) is None
    assert find_ground(split_planes(np.full((90, 90), 7))) is None


def test_ground_around_a_field_of_view_reaches_into_its_corners(scene):
    """Where the circle touches the image the ground is narrower than any square, and filters would see it."""
    rows, columns = np.indices(scene.image.shape) - (SIDE - 1) / 2
    outside = np.hypot(rows, columns) > SIDE / 2
    field = np.where(outside, -2000.0, scene.image)
    assert np.array_equal(find_ground(split_planes(field)), outside)
    with pytest.warns(UserWarning, match="21 % of the pixels hold the single value -2000"):
        labels = segment(field, 4)
    alone = segment(field, 3, nodata=-2000)
    assert np.array_equal(labels == 1, outside)
    assert np.array_equal(labels[~outside] - 1, alone[~outside])


@pytest.mark.parametrize("frame", [0, 12])
def test_gaps_between_the_panels_of_a_figure_are_ground(frame):
    rows, columns = np.mgrid[:128, :128]
    noise = np.random.default_rng(0).normal(size=(3, 128, 128))
    noise[2] = 4 * cv2.GaussianBlur(noise[2], (0, 0), 2)
    textures = [
        noise[0],
        np.sin(rows * 0.9) + 0.3 * noise[1],
        np.sin(columns * 0.5) * np.sin(rows * 0.5),
        noise[2],
    ]
    figure, truth = np.full((268 + 2 * frame,) * 2, 255, np.uint8), np.ones((268 + 2 * frame,) * 2, int)
    for number, texture in enumerate(textures):
        place = tuple(slice(frame + 140 * at, frame + 140 * at + 128) for at in divmod(number, 2))
        figure[place] = np.clip(128 + 40 * texture / texture.std(), 0, 255)
        truth[place] = number + 2
    found = segment(figure, 5)
    assert np.array_equal(found == 1, truth == 1)
    assert (match_labels(found, truth) == truth).mean() > 0.99


@pytest.mark.parametrize("narrow", [3, 30])
def test_lines_that_divide_no_panels_are_no_ground(narrow):
    """Neither lost lines of a scanner, nor those at the edge or beside the text of a bar."""
    image = np.random.default_rng(0).integers(0, 256, (240, 240))
    image[:, -narrow:] = 0
    image[100 : 100 + min(narrow, 12)] = 0
    image[100 + min(narrow, 12) + 8 :][:12] = 0
    assert find_ground(split_planes(image)) is None


def test_ground_does_not_flow_into_a_texture_that_has_its_value():
    stripes = np.indices((200, 200))[1] // 4 % 2 * 255
    stripes[:70] = 255
    ground = find_ground(split_planes(stripes))
    assert ground[:66].all() and not ground[76:].any()
