"""How sure a fitted model is: calibrated probabilities, and textures it has never seen."""

import numpy as np
import pytest

from conftest import oriented_noise
from texseg import TextureSegmenter, match_labels

K = 3
UNKNOWN = K + 1


@pytest.fixture(scope="module")
def learned(make_number):
    """Three homogeneous textures, and the truth."""
    return make_number(K, (192, 208))


@pytest.fixture(scope="module")
def fitted(learned):
    return TextureSegmenter(K).fit(learned[0])


def with_a_stranger(image, stranger):
    """Put a texture, of standard deviation one, on the columns from 90 on."""
    changed = image.copy()
    changed[:, 90:] = np.clip(128 + 40 * stranger[:, 90:], 0, 255)
    return changed


STRANGERS = {
    "white noise": lambda shape, rng: rng.standard_normal(shape),
    "another scale": lambda shape, rng: oriented_noise(shape, 6.0, 0, rng),
    "another direction": lambda shape, rng: oriented_noise(shape, 9.0, 135, rng),
    "nothing at all": lambda shape, rng: np.zeros(shape),
}


# ---- textures never seen -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRANGERS)
def test_a_texture_that_was_not_learned_is_unknown(fitted, make_number, name):
    image, _ = make_number(K, (160, 176), 7)
    stranger = STRANGERS[name](image.shape, np.random.default_rng(1))
    changed = with_a_stranger(image, stranger)
    labels = fitted.predict(changed, unknown=True)
    assert (labels[:, 102:] == UNKNOWN).mean() > 0.95
    assert (labels[:, :66] == UNKNOWN).mean() < 0.05  # farther from the border than a window reaches
    known = labels != UNKNOWN
    np.testing.assert_array_equal(labels[known], fitted.predict(changed)[known])


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_textures_that_were_learned_are_known_in_other_images(fitted, make_number, seed):
    image, _ = make_number(K, (150, 170), seed)
    labels = fitted.predict(image, unknown=True)
    assert (labels == UNKNOWN).mean() < 0.02


@pytest.mark.filterwarnings("ignore:.*of the pixels are unknown to the model")
def test_unknown_is_told_when_asked_only(fitted, learned):
    stranger = np.random.default_rng(0).integers(0, 255, (96, 96)).astype(np.uint8)
    assert np.isin(fitted.predict(stranger), (1, 2, 3)).all()
    assert (fitted.predict(stranger, unknown=True) == UNKNOWN).mean() > 0.95


@pytest.mark.filterwarnings("ignore:.*of the pixels are unknown to the model")
def test_no_data_is_no_unknown_texture(fitted):
    stranger = np.random.default_rng(0).integers(0, 255, (96, 96)).astype(np.uint8)
    mask = np.ones(stranger.shape, bool)
    mask[20:50, 30:70] = False
    labels = fitted.predict(stranger, mask=mask, unknown=True)
    np.testing.assert_array_equal(labels == 0, ~mask)
    assert (labels[mask] == UNKNOWN).mean() > 0.95


def test_a_hole_makes_nothing_unknown(fitted, learned):
    mask = np.ones(learned[0].shape, bool)
    mask[30:75, 50:100] = False
    labels = fitted.predict(learned[0], mask=mask, unknown=True)
    assert (labels == UNKNOWN).mean() < 0.02


@pytest.mark.filterwarnings("ignore:.*of the pixels are unknown to the model")
def test_every_image_of_a_list_is_searched_for_strangers(fitted, learned):
    stranger = np.random.default_rng(0).integers(0, 255, (96, 96)).astype(np.uint8)
    own, other = fitted.predict([learned[0], stranger], unknown=True)
    np.testing.assert_array_equal(own, fitted.predict(learned[0], unknown=True))
    np.testing.assert_array_equal(other, fitted.predict(stranger, unknown=True))


def test_a_saved_model_knows_its_limits(tmp_path, fitted, make_number):
    changed = with_a_stranger(make_number(K, (160, 176), 7)[0], np.zeros((160, 176)))
    fitted.save(tmp_path / "model.texseg")
    loaded = TextureSegmenter.load(tmp_path / "model.texseg")
    np.testing.assert_array_equal(
        loaded.predict(changed, unknown=True), fitted.predict(changed, unknown=True)
    )


def test_a_model_of_one_texture_knows_that_one_alone(make_number, learned):
    image, truth = learned
    model = TextureSegmenter(1).fit(make_number(1, (192, 208), 5)[0])
    labels = model.predict(image, unknown=True)
    away = np.abs(np.arange(208) - 104) > 32  # farther from the border than a window reaches
    assert (labels == np.where(truth == 1, 1, 2))[110:, away].mean() > 0.95
    assert (labels[:80] == 2).all()


# ---- probabilities -----------------------------------------------------------------------------------------


def noisy(make_number, n_textures, noise):
    """Planted textures under white noise of ``noise`` times their standard deviation."""
    image, truth = make_number(n_textures, (192, 208))
    return image + 40 * noise * np.random.default_rng(1).standard_normal(image.shape), truth


@pytest.mark.parametrize(("n_textures", "noise"), [(3, 0.0), (3, 2.0), (5, 1.5), (5, 2.5)])
def test_confidence_is_about_the_share_that_is_right(make_number, n_textures, noise):
    image, truth = noisy(make_number, n_textures, noise)
    model = TextureSegmenter(n_textures).fit(image)
    right = match_labels(model.labels_, truth) == truth
    assert model.confidence_.mean() == pytest.approx(right.mean(), abs=0.02)
    sure = model.confidence_ > 0.9
    assert (~right[~sure]).mean() > 10 * (~right[sure]).mean()


@pytest.mark.parametrize("seed", [0, 1])
def test_halves_of_one_texture_are_uncertain_and_two_textures_are_not(make_number, seed):
    for n_textures, low, high in ((1, 0.49, 0.6), (2, 0.98, 1.0)):
        image, _ = make_number(n_textures, (192, 208), seed)
        model = TextureSegmenter(2, cue="texture").fit(image)
        assert low < model.confidence_.mean() <= high


def test_segments_of_values_are_as_sure_as_such_maps_are_right(make_number):
    """Whatever the values were, they once had a confidence of one half."""
    image, _ = make_number(2, (192, 208))
    for n_segments, sure in ((1, 1.0), (2, 0.8)):
        model = TextureSegmenter(n_segments, cue="values").fit(image)
        assert 0.8 * sure < model.confidence_.mean() <= sure + 1e-6


@pytest.mark.parametrize("preset", ["default", "plain"])
def test_probabilities_belong_to_labels_and_confidence(mosaic, preset):
    image = mosaic[0]
    model = TextureSegmenter(K, preset=preset).fit(image)
    proba = model.predict_proba(image)
    own = np.take_along_axis(proba, model.labels_[..., None] - 1, axis=-1)[..., 0]
    np.testing.assert_allclose(own, model.confidence_, rtol=1e-5)
    assert (proba.argmax(axis=-1) + 1 == model.labels_).mean() > 0.99
    np.testing.assert_allclose(proba.sum(axis=-1), 1, rtol=1e-5)


def test_probabilities_are_smaller_at_borders(learned, fitted):
    truth = learned[1]
    border = np.zeros(truth.shape, bool)
    border[1:] |= truth[1:] != truth[:-1]
    border[:, 1:] |= truth[:, 1:] != truth[:, :-1]
    assert fitted.confidence_[border].mean() < fitted.confidence_[~border].mean() - 0.02
