"""What is learned of borders: densities, the discriminant, and labels that are sharper for it."""

import warnings
from dataclasses import replace

import cv2
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_t
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from threadpoolctl import threadpool_limits

from tests.conftest import oriented_noise
from texseg import TextureSegmenter, match_labels, segment
from texseg.channels.encode import encode, learn_features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import split_planes
from texseg.pixels import borders
from texseg.pixels.borders import BorderClassifier, learn_borders, learn_density
from texseg.pixels.composites import border_distance, compose

SHAPE = 192, 208


def scene(seed=0, shape=SHAPE):
    """Three textures that differ little, with a bent border and a straight one; uint8, and labels from 0."""
    rng = np.random.default_rng(seed)
    kinds = (4.0, 0, (0.4, 0.6)), (5.0, 70, (0.4, 0.6)), (8.0, 45, (0.4, 0.6))
    textures = [oriented_noise(shape, w, a, rng, b) for w, a, b in kinds]
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    below = rows > 0.45 * shape[0] + 14 * np.sin(columns / 12)
    labels = np.where(below, 1 + (columns > 0.5 * shape[1]), 0).astype(np.int32)
    return np.clip(128 + 40 * np.choose(labels, textures), 0, 255).astype(np.uint8), labels


def learned(image, labels, seed=0, mask=None):
    planes = split_planes(image, mask=mask)
    features, (bins,) = learn_features([planes], bank=GaborBank(), sigma=13.0, patch_weight=4.0)
    K = labels.max() + 1
    counts = [[np.bincount(c[labels == k], minlength=40) for c in bins] for k in range(K)]
    log_profiles = np.log(np.array(counts) / 100 + 1).astype(np.float32)
    rng = np.random.default_rng(seed)
    borders = learn_borders([planes], [labels], [bins], features, log_profiles, 4, 7, rng)
    return borders, planes


@pytest.fixture(scope="module")
def classifier():
    return learned(*scene())


# ---- densities ---------------------------------------------------------------------------------------------


def test_densities_are_those_of_the_t_distribution():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 4000)
    shapes = np.array([[[1.0, 0.5], [0.5, 2.0]], [[3.0, 0.0], [0.0, 0.2]]])
    vectors = np.concatenate([rng.multivariate_normal([k, -k], shapes[k], 4000) for k in (0, 1)])
    density = learn_density(vectors, labels, 2)
    points = rng.normal(0, 3, (50, 2))
    floor = 0.01 * np.diag(vectors.var(axis=0))
    expected = []
    for k in (0, 1):
        own = vectors[labels == k]
        shape = np.cov(own.T) + floor
        expected.append(multivariate_t(own.mean(axis=0), shape, df=5).logpdf(points))
    ours = density.log(points)
    np.testing.assert_allclose(ours[0] - ours[1], expected[0] - expected[1], atol=1e-3)


# ---- the classifier ----------------------------------------------------------------------------------------


def test_borders_are_known_on_an_image_that_was_not_seen(classifier):
    borders, _ = classifier
    image, truth = scene(seed=7)
    pixels = np.flatnonzero(border_distance(truth) < 8)
    log_odds = borders.log_odds(split_planes(image), pixels)
    assert log_odds.shape == (3, len(pixels))
    right = log_odds.argmax(axis=0) == truth.ravel()[pixels]
    assert right.mean() > 0.88
    odds = np.exp(log_odds - log_odds.max(axis=0))
    stated = 1 / odds.sum(axis=0)
    assert stated.mean() == pytest.approx(right.mean(), abs=0.06)


def test_odds_are_calibrated_on_an_image_that_was_not_seen(classifier):
    """Odds closer to or farther from even would explain the pixels near borders worse."""
    image, truth = scene(seed=7)
    pixels = np.flatnonzero(border_distance(truth) < 4)
    log_odds = classifier[0].log_odds(split_planes(image), pixels)
    right = log_odds[truth.ravel()[pixels], np.arange(len(pixels))]
    losses = [(logsumexp(cold * log_odds, axis=0) - cold * right).mean() for cold in (0.75, 1.0, 1.6)]
    assert min(losses) == losses[1]


def test_the_discriminant_is_trained_near_borders_only(monkeypatch):
    """What distinguishes textures far from borders is another thing, and needs no learning."""
    composites, trained = [], []

    def composed(*args):
        composites.append(compose(*args))
        return composites[-1]

    def scored(self, planes, pixels):
        made = next(one for one in composites if one.planes is planes)
        trained.append(border_distance(made.labels).ravel()[pixels])
        return scores(self, planes, pixels)

    scores = BorderClassifier.scores
    monkeypatch.setattr(borders, "compose", composed)
    monkeypatch.setattr(BorderClassifier, "scores", scored)
    learned(*scene(shape=(128, 144)))
    assert len(trained) == 2
    assert all(len(distances) > 500 and distances.max() < 4 for distances in trained)  # pixels; a cell


def test_the_discriminant_is_that_of_scikit_learn(classifier):
    borders, planes = classifier
    _, truth = scene()
    near = border_distance(truth) < 8
    pixels = np.flatnonzero(near)[::3]
    scores = borders.scores(planes, pixels)
    labels = truth.ravel()[pixels]
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=1e-3, priors=[1 / 3] * 3)
    theirs.fit(scores, labels)
    other = np.flatnonzero(near)[1::3]
    unseen = borders.scores(planes, other)
    ours = borders.log_odds(planes, other).argmax(axis=0)
    truly = truth.ravel()[other]
    # learned on composites, it is nearly as good as one that was told the image's own truth
    assert (ours == truly).mean() > (theirs.predict(unseen) == truly).mean() - 0.05


def test_textures_can_be_taken_out_and_put_in_another_order(classifier):
    borders, planes = classifier
    pixels = np.arange(5000, 5200)
    everything = borders.log_odds(planes, pixels)
    order = np.array([2, 0])
    np.testing.assert_allclose(borders.take(order).log_odds(planes, pixels), everything[order], rtol=1e-5)


def test_some_pixels_are_answered_as_all_are(classifier):
    borders, planes = classifier
    every = borders.log_odds(planes, np.arange(SHAPE[0] * SHAPE[1]))
    some = np.array([0, 5, SHAPE[1] - 1, 9000, 9001, SHAPE[0] * SHAPE[1] - 1])
    np.testing.assert_allclose(borders.log_odds(planes, some), every[:, some], rtol=1e-3, atol=1e-2)


def test_bins_that_are_known_need_not_be_made_again(classifier):
    borders, planes = classifier
    pixels = np.arange(3000, 3100)
    bins = encode(planes, borders.features)
    expected = borders.log_odds(planes, pixels)
    np.testing.assert_allclose(borders.log_odds(planes, pixels, bins), expected, rtol=1e-5)


def test_a_texture_without_inside_is_left_out_and_the_others_are_learned():
    image, labels = scene()
    labels[50:54] = 3
    borders, planes = learned(image, labels)
    assert borders.known.tolist() == [True, True, True, False]
    assert borders.take(np.array([3, 1])).known.tolist() == [False, True]
    log_odds = borders.log_odds(planes, np.flatnonzero(border_distance(labels) < 8))
    assert (log_odds.argmax(axis=0) < 3).all()
    hidden, _ = learned(*scene(), mask=scene()[1] < 2)
    assert hidden.known.tolist() == [True, True, False]


def test_nothing_is_learned_of_one_texture_or_of_those_without_inside():
    image, labels = scene()
    assert learned(image, np.zeros_like(labels))[0] is None
    thin = np.zeros_like(labels)
    thin[50:54] = 1
    assert learned(image, thin)[0] is None
    for width in (7, 9):  # so narrow that pieces of their insides hold nothing to train on
        stripes = (np.arange(SHAPE[1]) // width % 2).astype(np.int32)[None, :].repeat(SHAPE[0], axis=0)
        assert learned(image, stripes)[0] is None


# ---- in a segmentation -------------------------------------------------------------------------------------


def errors(labels, truth):
    return float((match_labels(labels, truth + 1, ignore_label=0) != truth + 1).mean())


def test_learned_borders_are_more_accurate():
    pairs = []
    for seed in range(2):
        image, truth = scene(seed)
        both = (segment(image, 3, learned_borders=learned) for learned in (False, True))
        pairs.append([errors(labels, truth) for labels in both])
    without, learned = np.mean(pairs, axis=0)
    assert learned < 0.75 * without
    assert learned < 0.025


def test_without_enough_inside_the_result_is_that_without_learned_borders():
    image, _ = scene(shape=(24, 60))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the image is small
        without, learned = (TextureSegmenter(3, learned_borders=b).fit(image) for b in (False, True))
    assert learned.textures_.borders is None
    np.testing.assert_array_equal(learned.labels_, without.labels_)
    np.testing.assert_array_equal(learned.confidence_, without.confidence_)


def test_borders_are_saved_with_the_model_and_used_on_other_images(tmp_path):
    image, _ = scene()
    other, truth = scene(seed=9)
    model = TextureSegmenter(3).fit(image)
    np.testing.assert_array_equal(model.predict(image), model.labels_)
    model.save(tmp_path / "model.texseg")
    loaded = TextureSegmenter.load(tmp_path / "model.texseg")
    labels = loaded.predict(other)
    np.testing.assert_array_equal(labels, model.predict(other))
    without = TextureSegmenter(3, learned_borders=False).fit(image).predict(other)
    assert errors(labels, truth) < errors(without, truth)
    proba = loaded.predict_proba(other)
    np.testing.assert_array_equal(proba.argmax(axis=-1) + 1, labels)
    np.testing.assert_allclose(proba.sum(axis=-1), 1, rtol=1e-4)


def test_labels_do_not_depend_on_the_number_of_threads():
    image, _ = scene(shape=(112, 120))
    with threadpool_limits(1):
        one = segment(image, 3)
    with threadpool_limits(2):
        two = segment(image, 3)
    np.testing.assert_array_equal(one, two)


def test_it_takes_masks_bands_several_images_and_what_cannot_be_learned():
    image, truth = scene(shape=(88, 96))
    mask = np.ones(image.shape, bool)
    mask[30:50, 40:60] = False
    filled = np.where(mask, image, 255)
    one, two = (segment(x, 3, mask=mask) for x in (image, filled))
    np.testing.assert_array_equal(one, two)
    assert not one[~mask].any()
    assert (match_labels(one, truth + 1, ignore_label=0) == truth + 1)[mask].mean() > 0.93
    bands = np.stack([image, image[::-1], 255 - image, image // 2, image], axis=-1)
    assert segment(bands, 3, channel_axis=-1).shape == image.shape
    model = TextureSegmenter(3).fit([image, image[:, ::-1].copy()])
    assert [labels.shape for labels in model.labels_] == [image.shape] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert set(np.unique(segment(image, 1))) == {1}
        assert segment(image[:12, :9], 3).shape == (12, 9)


def test_near_a_texture_whose_borders_were_not_learned_nothing_changes():
    image, _ = scene()
    model = TextureSegmenter(3).fit(image)
    textures, plain = model.textures_, replace(model.textures_, borders=None)
    seen = model._scenes([image], None, False)[0]
    third = np.float32([0, 0, -1e4])
    partly = replace(textures, borders=textures.borders._replace(offsets=textures.borders.offsets + third))
    with_all, with_two, without = (t.read(seen, 1.0).scores.whole() for t in (textures, partly, plain))
    near = cv2.dilate((model.labels_ == 3).astype(np.uint8), np.ones((17, 17), np.uint8)) > 0
    np.testing.assert_array_equal(with_two[:, near], without[:, near])
    others = (with_two != without).any(axis=0)
    assert others.any() and (with_all != without).any(axis=0).sum() > others.sum()
    np.testing.assert_allclose(with_two[:2, others], with_all[:2, others], rtol=1e-4)


def test_two_composites_give_the_discriminant_of_both_together():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=(2, 400))
    scores = rng.normal(size=(2, 400, 5)) + labels[..., None] * [[[0.2]], [[1.5]]]
    one, other = (borders._Scatter.of(*each, 3) for each in zip(scores, labels, strict=True))
    together = borders._Scatter.of(np.concatenate(scores), np.concatenate(labels), 3)
    for found, expected in zip((one + other).discriminant(), together.discriminant(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
