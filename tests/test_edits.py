"""Merging, splitting and naming without a new fit: labels, probabilities, hierarchy and files follow."""

import json
import os
import pickle

import numpy as np
import pytest

from texseg import TextureSegmenter

ROWS, COLUMNS = np.mgrid[:128, :192]
LEFT, BELOW = COLUMNS < 64, ROWS >= 64
WAVES = np.where(COLUMNS < 128, np.sin(COLUMNS / 2), np.sin((ROWS + COLUMNS) / 1.5))
IMAGE = np.where(LEFT, np.sin(ROWS * 2.2), WAVES) + 0.1 * np.random.default_rng(0).normal(size=ROWS.shape)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A model file of three textures."""
    path = tmp_path_factory.mktemp("model") / "three.texseg"
    fitted().save(path)
    return path


def fitted():
    return TextureSegmenter(n_segments=3, k_max=6).fit(IMAGE)


def test_a_merge_moves_no_border_and_numbers_move_up():
    model = fitted()
    before = model.labels_.copy()
    assert model.merge([(1, 2)]) is model
    np.testing.assert_array_equal(model.labels_, np.array([0, 1, 1, 2], np.int32)[before])
    assert model.labels_.dtype == np.int32 and model.n_segments_ == 2
    assert model.profiles_.shape[0] == 2
    np.testing.assert_allclose(model.profiles_.sum(axis=2), 1, atol=1e-5)


def test_predictions_follow_a_merge():
    model = fitted()
    three, probabilities = model.predict(IMAGE), model.predict_proba(IMAGE)
    model.merge([(1, 3)])
    np.testing.assert_array_equal(model.predict(IMAGE), np.array([0, 1, 2, 1])[three])
    merged = model.predict_proba(IMAGE)
    assert merged.shape == (*IMAGE.shape, 2)
    np.testing.assert_allclose(merged.sum(axis=-1), 1, atol=1e-5)
    inside = three == 2
    np.testing.assert_allclose(merged[inside][:, 1], probabilities[inside][:, 1], atol=1e-5)
    assert (merged.argmax(axis=-1) + 1 == model.predict(IMAGE)).all()


def test_profiles_of_a_merged_segment_are_those_of_all_its_pixels():
    model = fitted()
    sizes = np.bincount(model.labels_.ravel())[1:]
    expected = np.average(model.profiles_[:2], axis=0, weights=sizes[:2])
    np.testing.assert_allclose(model.merge([(1, 2)]).profiles_[0], expected, atol=1e-5)


def test_merges_add_up():
    once, twice = fitted(), fitted()
    once.merge([(1, 2, 3)])
    twice.merge([(1, 2)]).merge([(1, 2)])
    np.testing.assert_array_equal(once.labels_, twice.labels_)
    np.testing.assert_allclose(once.profiles_, twice.profiles_, atol=1e-6)


def test_the_hierarchy_is_that_of_the_edited_segments():
    model = fitted()
    assert (model.hierarchy_.labels(3) == model.labels_).all()
    model.merge([(1, 3)])
    np.testing.assert_array_equal(model.hierarchy_.labels(2), model.labels_)
    assert np.unique(model.hierarchy_.labels(1)).tolist() == [1]
    finer = model.hierarchy_.labels(3)
    assert (np.unique(np.stack([finer, model.labels_]).reshape(2, -1), axis=1).shape[1]) == 3  # nested


def test_splitting_a_merged_segment_undoes_the_merge():
    model = fitted()
    before, probabilities = model.labels_.copy(), model.predict_proba(IMAGE)
    model.merge([(1, 2)]).split(1)
    assert model.n_segments_ == 3
    np.testing.assert_array_equal(model.labels_ == 1, before == 1)
    np.testing.assert_array_equal(model.predict_proba(IMAGE)[..., [0, 2, 1]], probabilities)


@pytest.mark.filterwarnings("ignore:.* one more segment")
def test_a_segment_is_split_as_the_hierarchy_divides_it():
    model = TextureSegmenter(n_segments=2, k_max=6).fit(IMAGE)
    before = model.labels_.copy()
    sizes = np.bincount(before.ravel())[1:]
    larger = int(sizes.argmax()) + 1
    model.split(larger)
    assert model.n_segments_ == 3 and model.names_ == ("", "", "")
    np.testing.assert_array_equal(np.where(model.labels_ == 3, larger, model.labels_), before)
    truth = LEFT + 2 * (COLUMNS >= 128)
    from texseg.metrics import pixel_accuracy

    assert pixel_accuracy(model.labels_, truth) > 0.95
    assert pixel_accuracy(model.predict(IMAGE), truth) > 0.95


def test_names_follow():
    model = fitted()
    assert model.names_ == ("", "", "")
    model.rename({2: "gland", 3: "stroma"})
    assert model.names_ == ("", "gland", "stroma")
    model.merge([(1, 2)])
    assert model.names_ == ("gland", "stroma")
    model.rename({1: ""})
    assert model.names_ == ("", "stroma")
    assert model.fit(IMAGE).names_ == ("", "", "")


def test_edits_are_a_small_file_with_the_numbers_before(tmp_path):
    file = tmp_path / "edits.json"
    file.write_text(json.dumps({"merge": [[1, 2]], "names": {"2": "gland", "3": "stroma"}}))
    model = fitted().edit(file)
    assert model.n_segments_ == 2 and model.names_ == ("gland", "stroma")
    assert fitted().edit({"merge": [(1, 2)]}).n_segments_ == 2


def test_a_model_file_keeps_merges_and_names(tmp_path):
    model = fitted().edit({"merge": [[1, 3]], "names": {"1": "waves"}})
    model.save(tmp_path / "m.texseg")
    loaded = TextureSegmenter.load(tmp_path / "m.texseg")
    assert loaded.n_segments_ == 2 and loaded.names_ == ("waves", "")
    np.testing.assert_array_equal(loaded.predict(IMAGE), model.predict(IMAGE))
    np.testing.assert_allclose(loaded.profiles_, model.profiles_, atol=1e-6)


def test_a_loaded_model_can_be_edited(path):
    three = TextureSegmenter.load(path).predict(IMAGE)
    model = TextureSegmenter.load(path).merge([(2, 3)])
    np.testing.assert_array_equal(model.predict(IMAGE), np.minimum(three, 2))
    assert not hasattr(model, "labels_")
    assert model.split(2).n_segments_ == 3


def test_a_merged_model_that_was_loaded_is_merged_on(path, tmp_path):
    TextureSegmenter.load(path).merge([(2, 3)]).save(tmp_path / "two.texseg")
    model = TextureSegmenter.load(tmp_path / "two.texseg").merge([(1, 2)])
    assert model.n_segments_ == 1 and (model.predict(IMAGE) == 1).all()


def test_several_images_are_edited_together():
    model = TextureSegmenter(n_segments=3).fit([IMAGE, IMAGE[:, ::-1].copy()])
    before = [labels.copy() for labels in model.labels_]
    model.merge([(1, 2)])
    for labels, old in zip(model.labels_, before, strict=True):
        np.testing.assert_array_equal(labels, np.array([0, 1, 1, 2])[old])
    assert isinstance(model.hierarchy_.labels(1), list)


def test_pixels_without_data_stay_so():
    mask = np.ones(IMAGE.shape, bool)
    mask[:20] = False
    model = TextureSegmenter(n_segments=3).fit(IMAGE, mask=mask).merge([(1, 2)])
    assert (model.labels_[:20] == 0).all() and (model.confidence_[:20] == 0).all()
    assert (model.hierarchy_.labels(1)[:20] == 0).all()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.merge([(1, 4)]), "label 4 is not one of the segments, which are 1 to 3"),
        (lambda m: m.merge([(1, 2), (2, 3)]), r"a label can be merged once, got 1\+2, 2\+3"),
        (lambda m: m.merge([(2,)]), "merge must hold groups of two labels or more"),
        (lambda m: m.merge((1, 2)), "merge must hold groups of two labels or more"),
        (lambda m: m.merge([(1, 2.5)]), "merge must hold groups of two labels or more"),
        (lambda m: m.merge("12"), "merge must hold groups of two labels or more"),
        (lambda m: m.merge([("a", "b")]), "merge must hold groups of two labels or more"),
        (lambda m: m.merge(7), "merge must hold groups of two labels or more"),
        (lambda m: m.split("a"), "label 'a' is not one of the segments, which are 1 to 3"),
        (lambda m: m.split([1]), r"label \[1\] is not one of the segments"),
        (lambda m: m.rename({1: "\ud800"}), "names must be without control characters and lone surrogates"),
        (lambda m: m.rename({1: "\x1b[31mred"}), "names must be without control characters"),
        (lambda m: m.rename({"9" * 5000: "x"}), 'names must be of the form {"2": "gland"}'),
        (lambda m: m.split(0), "label 0 is not one of the segments"),
        (lambda m: m.split(1), "can be split where the model was fitted, not in one loaded from a file"),
        (lambda m: m.rename({9: "x"}), "label 9 is not one of the segments"),
        (lambda m: m.rename({1: "x", 2: "x"}), "each name may be given once, got x, x"),
        (
            lambda m: m.edit({"merge": [[1, 2]], "names": {"1": "x", "2": "y"}}),
            "label 2 is part of a segment that gets two names, x and y; keep one",
        ),
        (lambda m: m.rename({"one": "x"}), 'names must be of the form {"2": "gland"}'),
        (lambda m: m.rename({1: 2}), 'names must be of the form {"2": "gland"}'),
        (lambda m: m.edit({"merge": [], "name": {}}), "edits must be of the form"),
        (lambda m: m.edit({"names": ["x"]}), 'names must be of the form {"2": "gland"}'),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(path, edit, message):
    model = TextureSegmenter.load(path)
    with pytest.raises(ValueError, match=message):
        edit(model)
    assert model.n_segments_ == 3 and model.names_ == ("", "", "")


def test_one_texture_cannot_be_split():
    noise = np.random.default_rng(0).normal(size=(96, 96))
    model = TextureSegmenter(n_segments=1, k_max=1).fit(noise)
    with pytest.raises(ValueError, match="segment 1 cannot be split: no two textures can be distinguished"):
        model.split(1)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"no json", b"[1, 2]", b'{"merge": 3}', b"[" * 200_000])
def test_a_file_that_holds_no_edits_is_refused(path, tmp_path, content):
    (tmp_path / "e.json").write_bytes(content)
    with pytest.raises(OSError, match=r"e\.json: not a file of edits"):
        TextureSegmenter.load(path).edit(tmp_path / "e.json")


def test_a_pipe_is_not_waited_for(path, tmp_path):
    os.mkfifo(tmp_path / "e.json")
    with pytest.raises(OSError, match=r"e\.json: not a file of edits: this is a device or a pipe"):
        TextureSegmenter.load(path).edit(tmp_path / "e.json")


def of_labels(probabilities, labels):
    return np.take_along_axis(probabilities, labels[..., None] - 1, axis=2)[..., 0]


def test_confidence_is_that_of_the_labels_after_every_edit(tmp_path):
    """`confidence_`, `predict_with_confidence` and `predict_proba` are one thing: fitted, edited, loaded."""
    model = fitted()
    before = model.confidence_
    for edit in (None, lambda: model.merge([(1, 2)]), lambda: model.split(1), lambda: model.rename({1: "a"})):
        if edit is not None:
            edit()
        np.testing.assert_allclose(
            model.confidence_, of_labels(model.predict_proba(IMAGE), model.labels_), rtol=1e-5
        )
    np.testing.assert_allclose(model.confidence_, before, rtol=1e-5)  # a merge that was undone
    assert (model.merge([(1, 2, 3)]).confidence_ > 0.9999).all()
    model = fitted().merge([(2, 3)])
    model.save(tmp_path / "m.texseg")
    loaded = TextureSegmenter.load(tmp_path / "m.texseg")
    labels, confidence = loaded.predict_with_confidence(IMAGE)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(confidence, model.confidence_, rtol=1e-5)
    assert not hasattr(loaded, "confidence_")
    seeds = np.zeros(IMAGE.shape, int)
    seeds[10:14, 10:50], seeds[10:14, 140:180] = 1, 2
    before = fitted().merge([(2, 3)])
    old = before.hierarchy_
    refitted = before.refit(seeds)
    assert refitted.hierarchy_ is not old
    np.testing.assert_array_equal(refitted.hierarchy_.labels(refitted.n_segments_), refitted.labels_)
    assert (refitted.confidence_[seeds > 0] == 1).all() and refitted.confidence_.max() <= 1
    halves = refitted.merge([(1, 2)])
    assert (halves.confidence_ > 0.9999).all()


def test_a_pickled_model_that_is_edited_says_that_it_has_no_images():
    model = pickle.loads(pickle.dumps(fitted()))
    assert model.confidence_.shape == IMAGE.shape
    model.merge([(1, 2)])
    with pytest.raises(AttributeError, match=r"confidence_ needs the images that were fitted"):
        _ = model.confidence_


def test_seeds_of_a_class_that_nothing_defines_are_refused_before_any_work():
    model = fitted()
    seeds = np.zeros(IMAGE.shape, int)
    seeds[10:14, 10:50], seeds[10:14, 140:180] = 1, 9
    with pytest.raises(ValueError, match="without gaps: class 4 is neither painted nor a segment"):
        model.refit(seeds)


def test_numpy_set_to_raise_errors_changes_nothing_inside():
    with np.errstate(all="raise"):
        model = fitted()
    np.testing.assert_array_equal(model.labels_, fitted().labels_)
