"""Laws between the parts of the estimator: fitting and predicting, data and no data, ends and files."""

import pickle
import warnings

import numpy as np
import pytest

from texseg import TextureSegmenter, segment
from texseg.method.modelfile import ModelFileError, load_model, save_model

K = 3


def fit_in_silence(model, image):
    """Fit, where fewer segments than asked are no news."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(image)


def half_empty():
    """White noise on the right half, nothing on the left."""
    image = np.zeros((64, 80))
    image[:, 40:] = np.random.default_rng(0).standard_normal((64, 40))
    return image


# ---- what is fitted is what is predicted -------------------------------------------------------------------


def test_the_training_image_is_predicted_as_labelled_when_clusters_were_dropped():
    image = half_empty()
    model = fit_in_silence(TextureSegmenter(60), image)
    assert model.n_segments_ < 60
    np.testing.assert_array_equal(model.predict(image), model.labels_)


def test_the_training_image_is_predicted_as_labelled_when_segments_were_merged_away(mosaic):
    model = fit_in_silence(TextureSegmenter(6, min_size=1500), mosaic[0])
    np.testing.assert_array_equal(model.predict(mosaic[0]), model.labels_)


def test_the_label_is_the_most_probable_one_where_clusters_are_so_alike_that_two_are_equal():
    rows, columns = np.mgrid[:64, :96]
    waves = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    image = waves + np.random.default_rng(0).normal(0, 0.1, waves.shape)
    model = fit_in_silence(TextureSegmenter(60, n_starts=2), image)
    probabilities = model.predict_proba(image)
    np.testing.assert_array_equal(probabilities.argmax(axis=-1) + 1, model.labels_)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1, rtol=1e-4)


def test_confidence_is_certain_when_there_is_one_texture_only():
    model = fit_in_silence(TextureSegmenter(K), np.full((64, 64), 3.0))
    assert model.confidence_.min() > 0.99


def test_a_colourless_image_is_one_of_equal_bands_to_a_model_of_colour_images():
    rgb = np.random.default_rng(0).random((64, 64, 3))
    colourless = np.repeat(rgb[..., :1], 3, axis=-1)
    model = TextureSegmenter(2, channel_axis=-1).fit(rgb)
    assert model.predict(colourless).shape == (64, 64)
    one, other = TextureSegmenter(2, channel_axis=-1).fit([rgb, colourless]).labels_
    assert one.shape == other.shape == (64, 64)


# ---- no data -----------------------------------------------------------------------------------------------


def test_masked_arrays_have_no_data_where_they_are_masked(mosaic):
    mask = np.zeros(mosaic[0].shape, bool)
    mask[:, :30] = True
    labels = segment(np.ma.masked_array(mosaic[0], mask), K)
    np.testing.assert_array_equal(labels, segment(mosaic[0], K, mask=~mask))
    np.testing.assert_array_equal(labels == 0, mask)


def test_nan_where_the_mask_says_no_data_is_no_news(mosaic):
    image, mask = mosaic[0].astype(float), np.ones(mosaic[0].shape)
    image[0, 0] = np.nan
    mask[0, 0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = segment(image, K, mask=mask)
    np.testing.assert_array_equal(labels == 0, mask == 0)


# ---- a fit is published at once, or not at all -------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "plain"])
def test_an_ended_fit_leaves_no_half_fitted_model(mosaic, preset):
    def stop(progress):
        if progress.phase == "pixels":
            raise RuntimeError(progress.phase)

    model = TextureSegmenter(K, preset=preset, callback=stop)
    with pytest.raises(RuntimeError, match="pixels"):
        model.fit(mosaic[0])
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_model_whose_second_fit_is_ended_is_still_that_of_the_first(mosaic):
    model = TextureSegmenter(K).fit(mosaic[0])
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}

    def stop(progress):
        if progress.phase == "pixels":
            raise RuntimeError(progress.phase)

    with pytest.raises(RuntimeError, match="pixels"):
        model.set_params(callback=stop).fit(mosaic[0][:64])
    assert before.keys() == {name for name in vars(model) if name.endswith("_")}
    assert all(getattr(model, name) is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict(mosaic[0]), model.labels_)


# ---- in a sentence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "plain"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (5, 192), (8, 8), (16, 16), (20, 20)])
def test_images_smaller_than_the_widest_filter_say_so(shape, preset):
    image = np.random.default_rng(0).standard_normal(shape)
    with pytest.warns(UserWarning, match=f"side of {min(shape)} pixels is smaller than the filters"):
        labels = segment(image, 1, preset=preset)
    assert (labels == 1).all()


def test_a_model_file_of_something_else_is_refused(tmp_path):
    save_model(tmp_path / "other.texseg", {"a": 1})
    with pytest.raises(ModelFileError, match="other.texseg holds no texture model: .* is missing"):
        TextureSegmenter.load(tmp_path / "other.texseg")


@pytest.fixture(scope="module")
def saved_values(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "good.texseg"
    rows, columns = np.mgrid[:64, :96]
    image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    TextureSegmenter(2).fit(image).save(path)
    return load_model(path)


def test_a_pickled_model_holds_no_images(mosaic):
    """Batches send the model to their workers; it must not bring the cells of what it was fitted on."""
    model = TextureSegmenter(K).fit(mosaic[0])
    for learned in ("labels_", "confidence_"):
        assert hasattr(model, learned)
    sent = pickle.dumps(model)
    bare = len(sent) - model.labels_.nbytes - model.confidence_.nbytes
    cells = model.textures_.profiles.shape[1] * 4 * mosaic[0].size / model.textures_.cell**2
    assert bare < cells / 3
    np.testing.assert_array_equal(pickle.loads(sent).predict(mosaic[0]), model.labels_)


@pytest.mark.parametrize("name", ["confusion", "border_weights", "border_form_factors", "parameters"])
def test_a_model_file_that_lacks_something_is_refused(saved_values, tmp_path, name):
    save_model(tmp_path / "bad.texseg", {k: v for k, v in saved_values.items() if k != name})
    with pytest.raises(ModelFileError, match=f"bad.texseg holds no texture model: '{name}' is missing"):
        TextureSegmenter.load(tmp_path / "bad.texseg")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("confusion", np.eye(3), r"confusion must be numbers of shape \(2, 2\), got .* \(3, 3\)"),
        ("border_log_profiles", np.full((1, 14, 40), -np.log(40)), "border_.* must be numbers of shape"),
        ("border_form_centres", np.zeros(7), "border_form_centres must be numbers of shape"),
        ("limits", ["a", "b"], r"limits must be numbers of shape \(2,\), got <U1"),
        ("patch_weight", "much", "patch_weight must be numbers"),
        ("n_orientations", "four", r"n_orientations must be numbers of shape \(\), got <U4"),
        ("parameters", {"colour": 3}, "parameters must be those of a segmenter, got colour"),
        ("parameters", {"smoothness": -1}, "smoothness must be a number from 0 to 10000, got -1"),
    ],
)
def test_a_model_file_whose_values_do_not_fit_is_refused(saved_values, tmp_path, name, value, sentence):
    save_model(tmp_path / "bad.texseg", saved_values | {name: value})
    with pytest.raises(ModelFileError, match=f"bad.texseg holds an invalid texture model: .*{sentence}"):
        TextureSegmenter.load(tmp_path / "bad.texseg")
