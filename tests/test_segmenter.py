"""The default path through its public door: planted textures found, and laws that labels obey."""

import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_clusterer
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_limits

import texseg
from texseg import TextureSegmenter, match_labels, segment
from texseg.counts.grid import PackedCounts
from texseg.method.modelfile import ModelFileError

K = 3
SAMPLES = Path(__file__).parents[1] / "sample_images"


@pytest.fixture(scope="module")
def fitted(mosaic):
    return TextureSegmenter(K).fit(mosaic[0])


def accuracy(labels, truth):
    valid = labels > 0
    return (match_labels(labels, truth, ignore_label=0)[valid] == truth[valid]).mean()


def hole(shape):
    mask = np.ones(shape, bool)
    mask[30:75, 50:100] = False
    return mask


# ---- planted textures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "plain"])
def test_planted_textures_are_found(mosaic, preset):
    image, truth = mosaic
    labels = segment(image, K, preset=preset)
    assert labels.dtype == np.int32
    assert labels.shape == image.shape
    assert np.unique(labels).tolist() == [1, 2, 3]
    assert accuracy(labels, truth) > 0.97


def test_without_smoothness_most_pixels_are_still_right(mosaic):
    image, truth = mosaic
    assert accuracy(segment(image, K, smoothness=0), truth) > 0.95


def test_texture_on_nothing_is_found():
    rng = np.random.default_rng(0)
    image = np.where(np.arange(144) < 72, 0.0, rng.standard_normal((128, 144)))
    labels = segment(image, 2)
    assert (labels == np.where(np.arange(144) < 72, 1, 2)).mean() > 0.95


def test_a_gradient_of_the_light_makes_no_classes(mosaic):
    image, truth = mosaic
    lit = image.astype(float) * np.geomspace(1, 10, image.shape[1])
    with pytest.warns(UserWarning, match="contrast is proportional to brightness"):
        assert accuracy(segment(lit, K), truth) > 0.95


@pytest.mark.parametrize(
    ("name", "light", "n_segments"),
    [
        ("five_textures", "spot", 5),
        ("five_textures", "spot", None),
        ("scattered_textures", "ramp", 5),  # which is right only without the plain values
    ],
)
def test_slow_light_makes_no_classes(name, light, n_segments):
    """Light that changes slowly inside textures must not divide them."""
    image = texseg.read_image(SAMPLES / f"{name}.png").pixels
    truth = texseg.read_labels(SAMPLES / f"{name}_truth.png")
    rows, columns = np.mgrid[: len(image), : len(image)] / len(image) - 0.5
    change = columns if light == "ramp" else np.exp(-(rows**2 + columns**2) / 0.08)
    assert accuracy(segment(image + 2 * image.std() * change, n_segments), truth) > 0.98


def test_textures_that_differ_in_colour_alone_are_found():
    rng = np.random.default_rng(0)
    grey = rng.uniform(0.35, 0.65, (96, 128, 1))
    hue = np.where(np.arange(128)[:, None] < 64, [0.15, -0.075, 0.0], [-0.15, 0.075, 0.0])
    labels = segment(grey + hue, 2, channel_axis=-1)
    truth = np.broadcast_to(np.where(np.arange(128) < 64, 1, 2), (96, 128))
    assert accuracy(labels, truth) > 0.97


@pytest.mark.parametrize("n_bands", [2, 5])
def test_any_number_of_bands_along_any_axis(mosaic, n_bands):
    image, truth = mosaic
    rng = np.random.default_rng(0)
    bands = np.stack([(k + 1) * image + rng.normal(0, 9, image.shape) for k in range(n_bands)])
    first = segment(bands, K, channel_axis=0)
    assert accuracy(first, truth) > 0.95
    np.testing.assert_array_equal(segment(np.moveaxis(bands, 0, -1), K, channel_axis=-1), first)


# ---- what must not matter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "gain", "offset"),
    [
        (np.uint16, 257, 0),
        (np.uint16, 1, 33000),
        (np.uint32, 2**24, 0),
        (np.int16, 16, -2000),
        (np.float16, 1, 0),
        (np.float32, 1 / 256, -0.5),
        (np.float64, 1e-9, 0),
        (np.float64, 1e30, 0),
    ],
)
def test_labels_do_not_know_dtype_gain_and_offset(mosaic, fitted, dtype, gain, offset):
    changed = (mosaic[0].astype(float) * gain + offset).astype(dtype)
    np.testing.assert_array_equal(segment(changed, K), fitted.labels_)


def test_any_gain_and_offset_changes_next_to_nothing(mosaic, fitted):
    changed = mosaic[0] * 0.1234567 - 77.7
    assert (segment(changed, K) == fitted.labels_).mean() > 0.99


def test_equal_bands_are_grey(mosaic, fitted):
    rgb = np.stack([mosaic[0]] * 3, axis=-1)
    np.testing.assert_array_equal(segment(rgb, K, channel_axis=-1), fitted.labels_)


def test_memory_layout_and_byte_order_do_not_matter(mosaic, fitted):
    image = mosaic[0]
    spread = np.zeros((256, 288), np.uint8)
    spread[::2, ::2] = image
    for same in (np.asfortranarray(image), spread[::2, ::2], image.astype(">u2"), image.astype(">f4")):
        np.testing.assert_array_equal(segment(same, K), fitted.labels_)


def test_symmetries_of_the_image_are_symmetries_of_the_labels(mosaic, fitted):
    image = mosaic[0]
    assert (segment(image.T, K).T == fitted.labels_).mean() > 0.97
    assert (segment(image[::-1], K)[::-1] == fitted.labels_).mean() > 0.97
    assert (segment(image[:, ::-1], K)[:, ::-1] == fitted.labels_).mean() > 0.97


def test_a_negative_has_the_same_textures(mosaic, fitted):
    assert (segment(255 - mosaic[0], K) == fitted.labels_).mean() > 0.97


def test_hot_pixels_do_not_matter(mosaic, fitted):
    image = mosaic[0].astype(np.uint16)
    image[5, 5] = image[100, 7] = 65535
    assert (segment(image, K) == fitted.labels_).mean() > 0.98


def test_black_and_white_is_the_same_as_bool_as_bytes_and_scaled(mosaic):
    binary = mosaic[0] > 128
    reference = segment(binary, K)
    for image in (binary.astype(np.uint8), binary.astype(np.uint8) * 255, binary.astype(float)):
        np.testing.assert_array_equal(segment(image, K), reference)


def test_the_same_seed_gives_the_same_labels(mosaic, fitted):
    np.testing.assert_array_equal(segment(mosaic[0], K, random_state=0), fitted.labels_)
    state = np.random.RandomState(0)
    np.testing.assert_array_equal(segment(mosaic[0], K, random_state=state), fitted.labels_)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_seed_names_no_labels(mosaic, fitted, seed):
    assert (segment(mosaic[0], K, random_state=seed) == fitted.labels_).mean() > 0.97


@pytest.mark.parametrize("contrasts", [(0.3, 1.0), (1.0, 0.3)])
def test_labels_are_ordered_by_texture_energy(contrasts):
    noise = np.random.default_rng(0).standard_normal((96, 128))
    labels = segment(noise * np.where(np.arange(128) < 64, *contrasts), 2)
    fainter = 1 if contrasts[0] < contrasts[1] else 2
    assert (labels[:, :60] == fainter).mean() > 0.97
    assert (labels[:, 68:] == 3 - fainter).mean() > 0.97


def test_one_or_two_threads_give_the_same_labels(mosaic):
    before, labels = cv2.getNumThreads(), []
    image = np.tile(mosaic[0], (2, 2))
    for threads in (1, 2):
        with threadpool_limits(threads):
            cv2.setNumThreads(threads)
            labels.append(segment(image, K))
    cv2.setNumThreads(before)
    np.testing.assert_array_equal(*labels)


def test_the_image_the_mask_and_global_random_numbers_are_left_alone(mosaic):
    image = mosaic[0].astype(float)
    image[3, 3] = np.nan
    mask = hole(image.shape).astype(np.uint8)
    copies, state = (image.copy(), mask.copy()), np.random.get_state()[1].copy()  # noqa: NPY002
    with pytest.warns(UserWarning, match="1 non-finite pixels treated as no data"):
        segment(image, K, mask=mask, min_size=20)
    np.testing.assert_array_equal(image, copies[0])
    np.testing.assert_array_equal(mask, copies[1])
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


# ---- no data -----------------------------------------------------------------------------------------------


def test_pixels_without_data_get_zero_and_all_others_a_label(mosaic):
    image, truth = mosaic
    mask = hole(image.shape)
    model = TextureSegmenter(K).fit(image, mask=mask)
    np.testing.assert_array_equal(model.labels_ == 0, ~mask)
    assert accuracy(model.labels_, truth) > 0.97
    assert (model.confidence_[~mask] == 0).all()
    proba = model.predict_proba(image, mask=mask)
    assert not proba[~mask].any()
    np.testing.assert_allclose(proba[mask].sum(axis=-1), 1, rtol=1e-5)
    near = mask & ~np.pad(mask, 3, mode="edge")[6:, 3:-3]
    assert near.any()


def test_the_same_hole_as_mask_nan_and_nodata_value(mosaic):
    image = mosaic[0].astype(np.float32)
    mask = hole(image.shape)
    reference = segment(image, K, mask=mask)
    np.testing.assert_array_equal(segment(np.where(mask, image, -9999), K, nodata=-9999), reference)
    np.testing.assert_array_equal(segment(image, K, mask=mask * 255), reference)
    with pytest.warns(UserWarning, match="2250 non-finite pixels treated as no data"):
        labels = segment(np.where(mask, image, np.nan), K)
    np.testing.assert_array_equal(labels, reference)


def test_what_hides_under_the_mask_changes_nothing(mosaic):
    image, mask = mosaic[0], hole(mosaic[0].shape)
    other = np.where(mask, image, 255 - image)
    np.testing.assert_array_equal(segment(image, K, mask=mask), segment(other, K, mask=mask))


def test_no_class_is_spent_on_a_stripe_without_data(mosaic):
    image, truth = mosaic
    stripe = image.copy()
    stripe[:, 60:90] = 0
    labels = segment(stripe, K, nodata=0)
    assert (labels[:, 60:90] == 0).all()
    assert accuracy(labels, truth) > 0.96


def test_a_single_valid_pixel_is_one_segment(mosaic):
    mask = np.zeros(mosaic[0].shape, bool)
    mask[60, 70] = True
    with pytest.warns(UserWarning, match="2 segments requested, only 1 found"):
        labels = segment(mosaic[0], 2, mask=mask)
    assert labels[60, 70] == 1
    assert labels.sum() == 1


# ---- degenerate images -------------------------------------------------------------------------------------


def test_one_segment_is_everything(mosaic):
    model = TextureSegmenter(1).fit(mosaic[0])
    assert (model.labels_ == 1).all()
    assert (model.confidence_ == 1).all()
    assert model.n_segments_ == 1


@pytest.mark.parametrize("value", [np.uint8(0), np.uint8(128), np.float32(1e6), 0.1])
@pytest.mark.parametrize("preset", ["default", "plain"])
def test_a_constant_image_is_one_segment_with_a_warning(value, preset):
    image = np.full((64, 80), value)
    with pytest.warns(UserWarning, match="3 segments requested, only 1 found"):
        labels = segment(image, 3, preset=preset)
    assert (labels == 1).all()
    assert (segment(image, 1, preset=preset) == 1).all()


def test_more_segments_than_there_are_textures_keep_numbers_without_gaps():
    image = np.zeros((64, 80))
    image[:, 40:] = np.random.default_rng(0).standard_normal((64, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TextureSegmenter(30).fit(image)
    assert np.unique(model.labels_).tolist() == list(range(1, model.n_segments_ + 1))
    assert len(model.profiles_) == model.n_segments_


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 2), (5, 192), (8, 8), (17, 30)])
def test_images_smaller_than_the_filters_give_labels_or_a_sentence(shape):
    image = np.random.default_rng(0).standard_normal(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            labels = segment(image, 2)
        except ValueError as error:
            assert "smaller than" in str(error)
        else:
            assert labels.shape == shape
            assert labels.min() == 1


# ---- the estimator -----------------------------------------------------------------------------------------


def test_the_training_image_is_predicted_as_it_was_labelled(mosaic, fitted):
    image = mosaic[0]
    np.testing.assert_array_equal(fitted.predict(image), fitted.labels_)
    mask = hole(image.shape)
    model = TextureSegmenter(K, min_size=40).fit(image, mask=mask)
    np.testing.assert_array_equal(model.predict(image, mask=mask), model.labels_)


def test_textures_are_found_again_in_other_images(fitted, make_mosaic, mosaic):
    names = np.array([(fitted.labels_[mosaic[1] == t]).mean().round() for t in (1, 2, 3)])
    for shape, seed in (((128, 144), 5), ((200, 96), 6)):
        image, truth = make_mosaic(shape, seed)
        assert (fitted.predict(image) == names[truth - 1]).mean() > 0.96


def test_probabilities_sum_to_one_and_belong_to_the_labels(mosaic, fitted):
    proba = fitted.predict_proba(mosaic[0])
    assert proba.shape == (*mosaic[0].shape, K)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(proba.argmax(axis=-1) + 1, fitted.labels_)
    np.testing.assert_allclose(proba.max(axis=-1), fitted.confidence_, rtol=1e-5)


def test_what_was_learned_is_described(fitted):
    assert fitted.n_segments_ == K
    assert fitted.profiles_.shape[:2] == (K, len(fitted.channel_names_))
    np.testing.assert_allclose(fitted.profiles_.sum(axis=-1), 1, rtol=1e-4)
    assert all(record.phase for record in fitted.history_)
    assert len(fitted.history_) >= 1


def test_several_images_have_their_textures_in_common(mosaic, make_mosaic):
    second, truth = make_mosaic((160, 96), 9)
    images, truths = [mosaic[0], second], [mosaic[1], truth]
    model = TextureSegmenter(K).fit(images)
    assert [labels.shape for labels in model.labels_] == [(128, 144), (160, 96)]
    joined = np.concatenate([labels.ravel() for labels in model.labels_])
    assert accuracy(joined[None], np.concatenate([t.ravel() for t in truths])[None]) > 0.96
    for labels, predicted in zip(model.labels_, model.predict(images), strict=True):
        np.testing.assert_array_equal(labels, predicted)
    np.testing.assert_array_equal(model.predict(second), model.labels_[1])
    assert [p.shape for p in model.predict_proba(images)] == [(128, 144, K), (160, 96, K)]
    assert [c.shape for c in model.confidence_] == [(128, 144), (160, 96)]


def test_cells_kept_as_bytes_give_the_same_labels(mosaic, make_mosaic, monkeypatch):
    """Many cells, of one image or of several together, take a quarter of the memory."""
    images = [mosaic[0], make_mosaic((160, 96), 9)[0]]
    expected = TextureSegmenter(K).fit(images).labels_
    monkeypatch.setattr("texseg.method.textures._MANY_CELLS", 1500)  # they have 1140 and 960
    model = TextureSegmenter(K).fit(images)
    assert isinstance(model._division.search.cells.counts, PackedCounts)
    for one, other in zip(model.labels_, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_list_of_one_image_is_that_image(mosaic, fitted):
    model = TextureSegmenter(K).fit([mosaic[0]])
    assert isinstance(model.labels_, list)
    np.testing.assert_array_equal(model.labels_[0], fitted.labels_)


def test_several_images_have_a_mask_each(mosaic):
    image, mask = mosaic[0], hole(mosaic[0].shape)
    one, two = TextureSegmenter(K).fit([image, image], mask=[mask, None]).labels_
    np.testing.assert_array_equal(one == 0, ~mask)
    assert (two > 0).all()


def test_estimator_conventions(mosaic, fitted):
    model = clone(TextureSegmenter(K, min_size=5, wavelengths=(3.0, 6.0)))
    assert model.get_params()["min_size"] == 5
    assert model.get_params()["wavelengths"] == (3.0, 6.0)
    assert isinstance(model, BaseEstimator) and is_clusterer(model)
    assert "min_size=5" in repr(model) and "min_size" in model._repr_html_()
    assert {"mask", "seeds"} <= model.get_metadata_routing().fit.requests.keys()
    np.testing.assert_array_equal(TextureSegmenter(K).fit_predict(mosaic[0]), fitted.labels_)
    for method in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(TextureSegmenter(K), method)(mosaic[0])
    with pytest.raises(NotFittedError):
        TextureSegmenter(K).save("nowhere.texseg")


@pytest.mark.parametrize("preset", ["default", "plain"])
@pytest.mark.parametrize("colour", [False, True])
def test_a_saved_model_predicts_the_same(tmp_path, mosaic, preset, colour):
    image = np.stack([mosaic[0], mosaic[0].T.reshape(128, 144), mosaic[0][::-1]], -1) if colour else mosaic[0]
    model = TextureSegmenter(
        K, preset=preset, channel_axis=-1 if colour else None, smoothness=0.7, min_size=9, nodata=0
    ).fit(image)
    path = tmp_path / "model.texseg"
    model.save(path)
    loaded = TextureSegmenter.load(path)
    np.testing.assert_array_equal(loaded.predict(image), model.labels_)
    np.testing.assert_array_equal(loaded.predict_proba(image), model.predict_proba(image))
    np.testing.assert_array_equal(loaded.profiles_, model.profiles_)
    assert loaded.channel_names_ == model.channel_names_
    assert loaded.n_segments_ == model.n_segments_
    for name in ("preset", "channel_axis", "smoothness", "min_size", "nodata"):
        assert getattr(loaded, name) == getattr(model, name)
    model.save(tmp_path / "again.texseg")
    assert (tmp_path / "again.texseg").read_bytes() == path.read_bytes()


def test_a_file_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="no such model file"):
        TextureSegmenter.load(tmp_path / "absent.texseg")


def test_small_parts_are_merged(mosaic):
    from skimage.measure import label as connected_components

    options = {"smoothness": 1e-4, "learned_borders": False}
    labels = segment(mosaic[0], K, **options, min_size=60)
    sizes = np.bincount(connected_components(labels, connectivity=1).ravel())[1:]
    assert sizes.min() >= 60
    scattered = segment(mosaic[0], K, **options)
    assert np.bincount(connected_components(scattered, connectivity=1).ravel())[1:].min() < 60


def test_a_flaw_too_small_to_be_a_texture_of_its_own_is_dissolved(make_number):
    """A knot in a cloth looks like another texture for the length of a knot; it must stay cloth."""
    image, truth = make_number(2, (192, 208))
    spoilt = image.copy()
    spoilt[90:102, 40:52] = image[90:102, 150:162]  # a piece of the right texture within the left one
    assert truth[96, 45] != truth[96, 155]
    labels = segment(spoilt, 2)
    assert (labels[88:104, 38:54] == labels[96, 20]).all()


# ---- callbacks ---------------------------------------------------------------------------------------------


def test_a_callback_is_told_every_phase_in_order(mosaic, fitted):
    told = []
    model = TextureSegmenter(K, callback=told.append).fit(mosaic[0])
    phases = list(dict.fromkeys(progress.phase for progress in told))
    assert phases[0] == "filters"
    assert phases[-1] == "pixels"
    assert set(phases) >= {"filters", "annealing", "clusters", "pixels"}
    np.testing.assert_array_equal(model.labels_, fitted.labels_)


@pytest.mark.parametrize("phase", ["filters", "clusters", "pixels"])
def test_an_exception_of_the_callback_ends_the_fit(mosaic, phase):
    def stop(progress):
        if progress.phase == phase:
            raise KeyboardInterrupt(phase)

    model = TextureSegmenter(K, callback=stop)
    with pytest.raises(KeyboardInterrupt, match=phase):
        model.fit(mosaic[0])
    assert not hasattr(model, "labels_")
    with pytest.raises(NotFittedError):
        TextureSegmenter(K).predict(mosaic[0])


# ---- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_segments": 0}, "n_segments must be a whole number from 1 to 255, got 0"),
        ({"n_segments": -2}, "n_segments must be a whole number .* got -2"),
        ({"n_segments": 256}, "n_segments must be a whole number .* got 256"),
        ({"n_segments": 2.0}, "n_segments must be a whole number .* got 2.0"),
        ({"n_segments": True}, "n_segments must be a whole number .* got True"),
        ({"n_segments": "3"}, "n_segments must be a whole number .* got '3'"),
        ({"smoothness": -1}, "smoothness must be a number from 0 to 10000, got -1"),
        ({"smoothness": np.nan}, "smoothness must be a number from 0 to 10000, got nan"),
        ({"min_size": -5}, "min_size must be a number from 0 to 9.007.*, got -5"),
        ({"preset": "best"}, "preset must be one of .*default.*plain, got 'best'"),
        ({"n_orientations": 0}, "n_orientations must be a whole number from 1 to 64, got 0"),
        ({"n_bins": 0}, "n_bins must be a whole number from 2 to 256, got 0"),
        ({"n_starts": 0}, "n_starts must be a whole number from 1 to 100, got 0"),
        ({"cell": 0}, "cell must be a whole number from 1 to 1024, got 0"),
        ({"patch_weight": -1}, "patch_weight must be a number from 0 to 1000000, got -1"),
        ({"wavelengths": (1.5,)}, "wavelengths must be a sequence of numbers from 2 to 1024"),
        ({"wavelengths": 4}, "wavelengths must be a sequence of numbers from 2 to 1024, got 4"),
        ({"smoothness": np.inf}, "smoothness must be a number from 0 to 10000, got inf"),
        ({"smoothness": "1"}, "smoothness must be a number from 0 to 10000, got '1'"),
        ({"min_size": None}, "min_size must be a number from 0 to 9.007.*, got None"),
        ({"min_size": "9"}, "min_size must be a number from 0 to 9.007.*, got '9'"),
        ({"n_bins": 1}, "n_bins must be a whole number from 2 to 256, got 1"),
        ({"n_orientations": 10**9}, "n_orientations must be a whole number from 1 to 64, got 1000000000"),
        ({"n_orientations": 10**5000}, "n_orientations must be .*, got an object of type int"),
        ({"cell": 10**6}, "cell must be a whole number from 1 to 1024, got 1000000"),
        ({"cell": np.eye(50)}, r"cell must be a whole number from 1 to 1024, got array\(.*\.\.\.$"),
        ({"channel_axis": True}, "channel_axis must be a whole number from -4 to 3, got True"),
        ({"nodata": "none"}, "nodata must be a number, got 'none'"),
        ({"wavelengths": []}, r"wavelengths must be a sequence of numbers from 2 to 1024, got \[\]"),
        (
            {"random_state": -1},
            r"random_state must be a whole number from 0 to 2\*\*32 - 1, or a generator, got -1",
        ),
        ({"random_state": "x"}, "random_state must be a whole number .* got 'x'"),
        ({"n_bins": 40.5}, "n_bins must be a whole number .* got 40.5"),
        ({"n_bins": 300}, "n_bins must be a whole number from 2 to 256, got 300"),
        ({"n_starts": 2.5}, "n_starts must be a whole number from 1 to 100, got 2.5"),
        ({"cell": 3.5}, "cell must be a whole number from 1 to 1024, got 3.5"),
        ({"n_orientations": 1.5}, "n_orientations must be a whole number from 1 to 64, got 1.5"),
        ({"patch_weight": "a"}, "patch_weight must be a number from 0 to 1000000, got 'a'"),
    ],
)
def test_parameters_are_checked_before_anything_is_computed(mosaic, parameters, message):
    told = []
    model = TextureSegmenter(**({"n_segments": K, "callback": told.append} | parameters))
    with pytest.raises(ValueError, match=message):
        model.fit(mosaic[0])
    assert not told


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (np.ones((2, 3, 4, 5)), ValueError, r"got shape \(2, 3, 4, 5\)"),
        (np.ones((0, 7)), ValueError, r"image is empty, got shape \(0, 7\)"),
        (np.ones((9, 9), complex), TypeError, "real numbers, got dtype complex128"),
        ("rock.png", TypeError, "must be an array, got str; with photo = texseg.read_image"),
        (["a.png", "b.png"], TypeError, "must be an array, got str"),
        (SimpleNamespace(pixels=np.ones((9, 9))), TypeError, "must be an array, got SimpleNamespace"),
        (np.array([["a"] * 9] * 9), TypeError, "real numbers, got dtype <U1"),
        (np.array([[None] * 9] * 9), TypeError, "real numbers, got dtype object"),
        (np.full((9, 9), np.nan), ValueError, "no valid pixels"),
        ([], ValueError, "one image or more"),
    ],
)
def test_what_is_no_image_is_refused_in_a_sentence(image, error, message):
    with pytest.raises(error, match=message):
        segment(image, 2)


def test_masks_must_match(mosaic):
    image = mosaic[0]
    with pytest.raises(ValueError, match=r"mask shape \(144, 128\) does not match image \(128, 144\)"):
        segment(image, 2, mask=np.ones((144, 128)))
    with pytest.raises(ValueError, match="no valid pixels"):
        segment(image, 2, mask=np.zeros(image.shape))
    with pytest.raises(ValueError, match="a mask each; got 2, 1"):
        segment([image, image], 2, mask=[None])


@pytest.mark.filterwarnings("ignore:the last of four bands")
def test_bands_must_match(mosaic, fitted):
    rng = np.random.default_rng(0)
    rgb, four = rng.random((64, 64, 3)), rng.random((64, 64, 4))
    with pytest.raises(ValueError, match=r"same number of bands, got \[3, 4\]"):
        TextureSegmenter(2, channel_axis=-1).fit([rgb, four])
    model = TextureSegmenter(2, channel_axis=-1).fit(rgb)
    with pytest.raises(ValueError, match=r"fitted on images with 3 band\(s\), got one with 4"):
        model.predict(four)
    with pytest.raises(ValueError, match="image must have 2 axes"):
        fitted.predict(rgb)


def test_the_package_names_what_it_promises():
    assert {"segment", "TextureSegmenter", "match_labels"} <= set(texseg.__all__)


def test_what_is_unlike_every_segment_is_said_with_its_place():
    """Two segments are given where a small square is a third texture; with three there is nothing to say."""
    rng = np.random.default_rng(0)

    def texture(across, down):
        blurred = cv2.GaussianBlur(rng.normal(size=(512, 512)), (0, 0), sigmaX=across, sigmaY=down)
        return blurred / blurred.std()

    image = np.concatenate([texture(1, 4)[:, :256], texture(4, 1)[:, :256]], axis=1)
    image[40:136, 296:392] = texture(1, 1)[:96, :96]
    with pytest.warns(UserWarning, match="may be one more segment") as record:
        TextureSegmenter(2).fit(image)
    assert record[0].filename == __file__
    text = str(record[0].message)
    numbers = [int(number) for number in re.findall(r"(?:rows|columns) (\d+) to (\d+)", text)[0]]
    assert abs(numbers[0] - 40) <= 16 and abs(numbers[1] - 135) <= 16
    assert 0.02 < float(text.split("%")[0]) / 100 < 0.05 and "n_segments=3 (-k 3)" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TextureSegmenter(3).fit(image)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_small_square_of_another_texture_is_one_of_two_segments(share):
    rng, side = np.random.default_rng(0), round(512 * share**0.5)
    image, other = (
        blurred / blurred.std()
        for blurred in (cv2.GaussianBlur(rng.normal(size=(512, 512)), (0, 0), 1, sigmaY=s) for s in (4, 1))
    )
    place = np.s_[150 : 150 + side, 260 : 260 + side]
    image[place] = other[place]
    found = segment(image, 2)
    inside = found == found[150 + side // 2, 260 + side // 2]
    square = np.zeros((512, 512), bool)
    square[place] = True
    assert (inside & square).sum() > 0.8 * (inside | square).sum()


def test_of_several_images_the_one_without_data_is_named():
    image = np.random.default_rng(0).normal(size=(64, 64))
    with pytest.raises(ValueError, match=r"image 1: no valid pixels in the image of shape \(64, 64\)"):
        TextureSegmenter(2).fit([image, np.full((64, 64), np.nan)])
