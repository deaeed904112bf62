"""Texture or plain values: grains that differ in brightness alone are found, and textures stay textures."""

import json
import pickle

import io_scenes
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import ndimage
from scipy.spatial import KDTree
from sklearn.metrics import adjusted_rand_score, mutual_info_score
from sklearn.mixture import GaussianMixture

from texseg import TextureSegmenter, segment
from texseg.channels.encode import learn_features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import split_planes
from texseg.cli import main
from texseg.method.clusters import clusters_of_values
from texseg.method.cues import measured, odds_of_values
from texseg.method.textures import Scene
from texseg.report import write_report
from texseg.synth import example

LEVELS = np.array([60, 120, 190])


def grains(seed, shape=(160, 192), n=60):
    """Grains of three grey levels, smaller than a window, under noise; and which pixel is of which."""
    rng = np.random.default_rng(seed)
    own = KDTree(rng.uniform(size=(n, 2)) * shape).query(np.indices(shape).reshape(2, -1).T)[1]
    truth = rng.choice(3, n, p=(0.3, 0.4, 0.3))[own].reshape(shape)
    return (LEVELS[truth] + rng.normal(0, 14, shape)).clip(0, 255).astype(np.uint8), truth


@pytest.fixture(scope="module")
def by_values():
    image, truth = grains(7)
    return TextureSegmenter(3).fit(image), image, truth


def test_grains_are_found_by_their_values(by_values):
    model, image, truth = by_values
    assert model.cue_ == "values"
    assert adjusted_rand_score(truth.ravel(), model.labels_.ravel()) > 0.8
    texture = segment(image, 3, cue="texture")
    assert adjusted_rand_score(truth.ravel(), texture.ravel()) < 0.5


def test_they_are_ordered_from_dark_to_bright(by_values):
    model, image, _ = by_values
    means = [image[model.labels_ == k].mean() for k in (1, 2, 3)]
    assert means == sorted(means)


def test_the_command_says_so(by_values, tmp_path):
    io_scenes.write(tmp_path / "grains.png", by_values[1])
    arguments = ["segment", str(tmp_path / "grains.png"), "-k", "3", "-o", str(tmp_path)]
    said = CliRunner().invoke(main, arguments)
    assert "3 segments by brightness or colour, " in said.stdout and "note:" not in said.stderr
    assert json.loads((tmp_path / "grains_run.json").read_text())["result"]["cue"] == "values"
    asked = CliRunner().invoke(main, [*arguments, "--cue", "texture"])
    assert asked.exit_code == 0
    assert "brightness or colour" not in asked.output


def test_textures_stay_textures(mosaic):
    assert TextureSegmenter(3).fit(mosaic[0]).cue_ == "texture"


def test_values_can_be_asked_for(mosaic):
    image = mosaic[0].astype(float)
    image[:, 70:] += 3 * np.ptp(image)
    assert TextureSegmenter(2, cue="texture").fit(image).cue_ == "texture"
    assert TextureSegmenter(2, cue="values").fit(image).cue_ == "values"


def test_the_model_finds_the_grains_of_another_image(by_values, tmp_path):
    model = by_values[0]
    image, truth = grains(1)
    labels = model.predict(image)
    assert adjusted_rand_score(truth.ravel(), labels.ravel()) > 0.8
    model.save(tmp_path / "grains.texseg")
    np.testing.assert_array_equal(TextureSegmenter.load(tmp_path / "grains.texseg").predict(image), labels)


def test_all_that_follows_a_fit_works_on_values(by_values, tmp_path):
    model, image, _ = by_values
    np.testing.assert_array_equal(model.hierarchy_.labels(3), model.labels_)
    assert model.predict_proba(image).shape == (*image.shape, 3)
    write_report(model, image, tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size > 1000


def test_strokes_correct_what_was_found(by_values):
    image, truth = grains(3)
    model = TextureSegmenter(3).fit(image)
    assert model.cue_ == "values"
    seeds = np.zeros(image.shape, int)
    seeds[::8] = np.where(truth == 2, 2, 1)[::8]
    labels = TextureSegmenter(2, cue="values").fit(image).refit(seeds).labels_
    assert adjusted_rand_score((truth == 2).ravel(), labels.ravel()) > 0.7


def test_strokes_are_learned_on_values_too():
    image, truth = grains(3)
    seeds = np.zeros(image.shape, int)
    seeds[::8] = np.where(truth == 2, 2, 1)[::8]
    model = TextureSegmenter(2, cue="values").fit(image, seeds=seeds)
    assert model.cue_ == "values"
    assert (model.labels_ == np.where(truth == 2, 2, 1)).mean() > 0.97


def test_strokes_are_told_by_texture_after_a_division_by_values():
    """What textures see of the images is kept for that in memory, and not in a pickled model."""
    image = grains(3)[0].astype(float)
    rows, columns = np.indices(image.shape)
    right = columns >= 96
    image += np.where(right, np.where((rows + columns) % 4 < 2, 6, -6), 0)
    seeds = np.zeros(image.shape, int)
    seeds[::16, 5:90], seeds[::16, 100:180] = 1, 2
    model = TextureSegmenter(3).fit(image)
    assert model.cue_ == "values"
    assert len(pickle.dumps(model)) < 20 * image.size
    model.merge([(2, 3)]).refit(seeds)
    assert model.cue_ == "texture"
    assert (model.labels_ == right + 1).mean() > 0.98


def test_masked_pixels_get_no_label(by_values):
    image = by_values[1]
    mask = np.ones(image.shape, bool)
    mask[:40, :50] = False
    labels = segment(image, 3, mask=mask, cue="values")
    assert ((labels == 0) == ~mask).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cue": "colour"}, "cue must be one of auto, texture, values, got 'colour'"),
        ({"cue": "values", "model": "smm"}, 'cue="values" is for model="acm", got model=\'smm\''),
        ({"cue": "values", "value_weight": 0}, 'value_weight must be above 0 with cue="values", got 0'),
        ({"cue": "values", "preset": "plain"}, 'value_weight must be above 0 with cue="values", got 0'),
    ],
)
def test_what_cannot_be_is_said(parameters, message):
    with pytest.raises(ValueError, match=message):
        segment(grains(0)[0], 3, **parameters)


def test_the_information_is_that_of_scikit_learn():
    image, truth = grains(2, (64, 64))
    planes = split_planes(image)
    features, (bins,) = learn_features([planes], bank=GaborBank([4.0], 1), sigma=8.0)
    scenes = [Scene(bins, None)]
    thin = truth[::2, ::2].ravel()
    (values,) = bins[features.wavelengths == 0]
    told = mutual_info_score(thin, values[::2, ::2].ravel())
    ragged, share, left = measured([truth + 1], scenes, features)
    assert share == pytest.approx(told / mutual_info_score(thin, thin))
    seen = values[::2, ::2].ravel().astype(float)
    means = np.array([seen[thin == k].mean() for k in range(3)])[thin]
    assert left == pytest.approx(((seen - means) ** 2).sum() / ((seen - seen.mean()) ** 2).sum())
    near = 3 * truth[1:, :-1] + truth[:-1, 1:]  # labels cost what the neighbours left and above do not tell
    own = truth[1:, 1:]
    cost = mutual_info_score(own.ravel(), own.ravel()) - mutual_info_score(own.ravel(), near.ravel())
    assert ragged == pytest.approx(cost / mutual_info_score(thin, thin))


def test_what_differs_in_texture_alone_is_never_divided_by_values():
    """Equalised mosaics: their values tell next to nothing, however unsure the textures are."""
    columns = np.indices((192, 192))[1]
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(size=(192, 192))
        smooth = ndimage.gaussian_filter(noise, (2, 0)), ndimage.gaussian_filter(noise, (0, 2))
        one, other = (part / part.std() for part in smooth)
        assert TextureSegmenter(2).fit(128 + 40 * np.where(columns < 90, one, other)).cue_ == "texture"
        image, truth = example(192, seed)
        model = TextureSegmenter(5).fit(image)
        assert model.cue_ == "texture" and adjusted_rand_score(truth.ravel(), model.labels_.ravel()) > 0.8


def test_one_small_thing_of_another_colour_is_found():
    """Its values lie far outside of the range of nearly all others, among which there is a drift."""
    rng = np.random.default_rng(3)
    image = np.full((160, 200, 3), (150, 150, 40.0)) + np.linspace(0, 25, 200)[None, :, None]
    truth = (np.hypot(*(np.indices((160, 200)) - np.array([90, 60])[:, None, None])) < 10).astype(int)
    image[truth == 1] = (200, 30, 20)
    image = (image + rng.normal(0, 6, image.shape)).clip(0, 255).astype(np.uint8)
    with pytest.warns(UserWarning, match="outliers"):
        labels = TextureSegmenter(2, channel_axis=-1, cue="values").fit(image).labels_
    assert adjusted_rand_score(truth.ravel(), labels.ravel()) > 0.9


@pytest.mark.filterwarnings("ignore")
def test_the_number_said_is_that_of_the_segments_found():
    """Two values cannot be divided into as many segments as there are textures beside an edge."""
    image = np.zeros((128, 128), np.uint8)
    image[:, 64:] = 255
    model = TextureSegmenter(cue="values").fit(image)
    assert (model.n_segments_, model.selection_.chosen, str(model.selection_)) == (2, 2, "2 segments")


def test_values_are_a_mixture_of_gaussians():
    """Of several values with any covariances, as in scikit-learn; of one with equal spreads, after a root."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2, 1500)
    several = rng.normal(size=(1500, 2)) * np.where(drawn, 0.02, 0.2)[:, None] + drawn[:, None] * 0.3
    found = clusters_of_values(several, np.ones(1500, bool), 2, np.random.RandomState(0))
    peer = GaussianMixture(2, n_init=5, random_state=0).fit_predict(several)
    assert adjusted_rand_score(peer, found) > 0.99
    rng, present = np.random.default_rng(1), np.ones(300, bool)
    drawn = rng.random(300) < 0.25
    for bent in (1, 2):
        one = (np.abs(rng.normal(size=300) * 0.1 + np.where(drawn, 0.3, 0.75)) ** bent)[:, None]
        found = clusters_of_values(one, present, 2, np.random.RandomState(0))
        values, agreements, likelihoods = one - one.min() + 1 / 64, [], []
        for power in (1, 0.5):
            peer = GaussianMixture(2, covariance_type="tied", max_iter=200, random_state=0).fit(values**power)
            slopes = np.log(power) + (power - 1) * np.log(values).mean()
            likelihoods.append(peer.score(values**power) + slopes)
            agreements.append(adjusted_rand_score(peer.predict(values**power), found))
        assert np.argmax(likelihoods) == bent - 1
        assert agreements[bent - 1] == 1 > agreements[2 - bent]
        free = GaussianMixture(2, max_iter=200, random_state=0).fit(values ** (1 / bent))
        assert adjusted_rand_score(free.predict(values ** (1 / bent)), found) < 1


def test_small_grains_of_another_brightness_stay():
    """They are smaller than what could show a texture, but not than a window of values."""
    rng = np.random.default_rng(5)
    elsewhere = np.ones((160, 160))
    elsewhere[tuple(rng.integers(0, 160, (2, 60)))] = 0
    truth = (ndimage.distance_transform_edt(elsewhere) < 5).astype(int)
    image = (90 + 50 * truth + rng.normal(0, 10, truth.shape)).clip(0, 255).astype(np.uint8)
    labels = TextureSegmenter(2, cue="values").fit(image).labels_
    assert adjusted_rand_score(truth.ravel(), labels.ravel()) > 0.8


def test_what_values_tell_of_textures_already_is_no_reason_to_change():
    assert odds_of_values(0.8, 0.03, 0.95, 0.9) < 0 < odds_of_values(0.8, 0.03, 0.3, 0.9)


@pytest.mark.parametrize("n_segments", [None, 3])
def test_flat_areas_are_divided_by_their_values(n_segments):
    """Windows at their borders would look like textures."""
    truth = np.zeros((192, 192), int)
    truth[80:], truth[80:, 100:] = 1, 2
    model = TextureSegmenter(n_segments).fit(np.array([20, 120, 230], np.uint8)[truth])
    assert model.cue_ == "values"
    assert adjusted_rand_score(truth.ravel(), model.labels_.ravel()) == 1


def test_pixels_without_data_make_no_image_flat():
    """Noise that is seen in single pixels alone has no neighbours to be equal to."""
    rng = np.random.default_rng(3)
    image, mask = rng.integers(0, 256, (96, 96)).astype(np.uint8), np.zeros((96, 96), bool)
    mask[::7, ::9] = True
    assert TextureSegmenter().fit(image, mask=mask).labels_.max() == 2


def test_background_is_one_of_the_most_segments():
    """It counts together with the flat areas on it."""
    image = np.full((400, 400), 255, np.uint8)
    image[90:210, 90:150], image[90:210, 150:210] = 20, 200
    image[90:210:9, 90:210:9] += 30
    model = TextureSegmenter(k_max=2).fit(image)
    assert model.ground_ is not None
    assert model.labels_.max() == 2


@pytest.mark.parametrize("n_areas", [3, 5])
def test_scattered_flat_areas_get_as_many_segments_as_explain_their_values(n_areas):
    """Windows hold several areas, so that textures are fewer."""
    places = np.random.default_rng(1).uniform(size=(3 * n_areas, 2)) * 192
    nearest = KDTree(places).query(np.indices((192, 192)).reshape(2, -1).T)[1]
    truth = nearest.reshape(192, 192) % n_areas
    model = TextureSegmenter().fit(np.linspace(30, 220, n_areas).round()[truth])
    assert model.cue_ == "values" and model.n_segments_ == model.selection_.chosen == n_areas
    assert adjusted_rand_score(truth.ravel(), model.labels_.ravel()) > 0.95
