"""Any model of the family on images, and the number of segments chosen, through the public door."""

import warnings

import numpy as np
import pytest

from texseg import TextureSegmenter, match_labels, segment

MODELS = ("acm", "acm-hard", "smm", "pmm", "scm", "hacm")
K = 3


def accuracy(labels, truth):
    valid = labels > 0
    return (match_labels(labels, truth, ignore_label=0)[valid] == truth[valid]).mean()


# ---- models ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, mosaic):
    return TextureSegmenter(K, model=request.param).fit(mosaic[0])


def test_every_model_finds_planted_textures(mosaic, fitted):
    assert fitted.labels_.dtype == np.int32
    assert np.unique(fitted.labels_).tolist() == [1, 2, 3]
    assert accuracy(fitted.labels_, mosaic[1]) > 0.97


def test_every_model_is_a_full_model_afterwards(mosaic, fitted):
    image = mosaic[0]
    np.testing.assert_array_equal(fitted.predict(image), fitted.labels_)
    np.testing.assert_allclose(fitted.profiles_.sum(axis=-1), 1, rtol=1e-4)
    assert fitted.history_[-1].phase == ("cells" if fitted.model == "acm" else fitted.model)
    assert fitted.history_[-1].n_distinct == K
    assert np.isfinite(fitted.history_[-1].free_energy)
    assert fitted.hierarchy_.labels(K).shape == image.shape


def test_the_history_tells_the_temperatures_of_the_model(mosaic):
    history = TextureSegmenter(K, model="hacm").fit(mosaic[0]).history_
    betas = [record.beta for record in history]
    assert len(set(betas)) > 5
    falls = sum(one > other for one, other in zip(betas, betas[1:], strict=False))
    assert falls == 2  # three runs, one after the other: flat clusters are cooled, the tree stays at the end
    assert all(np.isfinite(betas)) and betas[0] > 0
    assert [record.step for record in history] == list(range(1, len(history) + 1))


@pytest.mark.parametrize("model", MODELS[1:])
def test_every_model_leaves_pixels_without_data_out(mosaic, model):
    image, truth = mosaic
    mask = np.ones(image.shape, bool)
    mask[30:75, 50:100] = False
    labels = segment(image, K, model=model, mask=mask)
    np.testing.assert_array_equal(labels == 0, ~mask)
    assert accuracy(labels, truth) > 0.96
    other = np.where(mask, image, 255 - image)
    np.testing.assert_array_equal(segment(other, K, model=model, mask=mask), labels)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_takes_one_segment_and_an_image_of_nothing(mosaic, model):
    assert (segment(mosaic[0], 1, model=model) == 1).all()
    with pytest.warns(UserWarning, match="3 segments requested, only 1 found"):
        labels = segment(np.full((64, 80), 7.0), K, model=model)
    assert (labels == 1).all()


def test_acm_is_the_default_model(mosaic):
    np.testing.assert_array_equal(segment(mosaic[0], K), segment(mosaic[0], K, model="acm"))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "lda"}, "model must be one of acm, acm-hard, smm, pmm, scm, hacm, got 'lda'"),
        ({"model": None}, "model must be one of .*, got None"),
    ],
)
def test_other_models_are_refused_before_anything_is_computed(mosaic, parameters, message):
    told = []
    with pytest.raises(ValueError, match=message):
        TextureSegmenter(K, callback=told.append, **parameters).fit(mosaic[0])
    assert not told


# ---- the number is chosen ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(make_number):
    return make_number(K, (160, 176))


@pytest.fixture(scope="module")
def chosen(three):
    """A model that chose the number itself."""
    return TextureSegmenter().fit(three[0])


def test_the_number_is_chosen_when_none_is_given(three, chosen):
    image, truth = three
    assert chosen.n_segments is None
    assert chosen.n_segments_ == chosen.selection_.chosen == K
    assert accuracy(chosen.labels_, truth) > 0.97
    np.testing.assert_array_equal(segment(image), chosen.labels_)
    np.testing.assert_array_equal(segment(image, random_state=0, k_max=14), chosen.labels_)


@pytest.fixture(scope="module")
def probabilities_of_the_default(three):
    return TextureSegmenter(random_state=1).fit(three[0]).selection_.probabilities


@pytest.mark.parametrize("model", MODELS[1:])
def test_the_number_is_chosen_for_every_model(three, probabilities_of_the_default, model):
    fitted = TextureSegmenter(model=model, random_state=1).fit(three[0])  # from 0 the PMM finds two alike
    assert fitted.n_segments_ == K
    np.testing.assert_array_equal(fitted.selection_.probabilities, probabilities_of_the_default)
    assert accuracy(fitted.labels_, three[1]) > 0.97


@pytest.mark.parametrize("k_max", [1, 2, 5])
def test_no_number_above_k_max_is_considered(three, k_max):
    model = TextureSegmenter(k_min=1, k_max=k_max).fit(three[0])
    assert model.n_segments_ <= k_max
    numbers = model.selection_.n_segments
    assert numbers.tolist() == list(range(1, len(numbers) + 1))
    assert len(numbers) <= k_max
    assert set(numbers.tolist()) <= set(model.hierarchy_.n_segments.tolist())


@pytest.mark.parametrize(
    ("k_max", "got"), [(0, "0"), (-1, "-1"), (256, "256"), (4.0, "4.0"), (None, "None"), (True, "True")]
)
def test_k_max_is_checked_before_anything_is_computed(three, k_max, got):
    told = []
    with pytest.raises(ValueError, match=f"k_max must be a whole number from 1 to 255, got {got}"):
        TextureSegmenter(k_max=k_max, callback=told.append).fit(three[0])
    assert not told


def test_k_min_is_at_least_met_or_refused(make_number, three):
    image = make_number(1, (160, 176))[0]
    plain = TextureSegmenter(k_min=1).fit(image)
    assert plain.n_segments_ == 1 and plain.selection_.one_texture > 0.5
    asked = TextureSegmenter().fit(image)
    assert asked.n_segments_ >= 2 and asked.selection_.one_texture == plain.selection_.one_texture
    assert str(asked.selection_).startswith("probably a single texture")
    with pytest.raises(ValueError, match=r"k_min must be at most k_max \(4\), got 5; raise k_max"):
        TextureSegmenter(k_min=5, k_max=4).fit(image)
    with pytest.raises(ValueError, match="k_min must be a whole number from 1 to 255, got 0"):
        TextureSegmenter(k_min=0).fit(image)


def test_a_k_min_that_is_not_met_is_said(three):
    """Nine segments for k_min=14 were once called certain, without a word."""
    with pytest.warns(UserWarning, match="k_min is 14, but only") as said:
        found = TextureSegmenter(k_min=14).fit(three[0])
    assert len(said) == 1
    assert (
        f"only {found.n_segments_} could be distinguished; to search for as many, pass n_segments=14"
        in str(said[0].message)
    )
    assert found.n_segments_ < 14
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TextureSegmenter().fit(np.full((40, 40), 7)).n_segments_ == 1  # plain images need none
        assert TextureSegmenter(k_min=4).fit(three[0]).n_segments_ >= 4


def test_the_callback_is_told_that_the_number_is_looked_for(three):
    told = []
    TextureSegmenter(callback=lambda progress: told.append(progress.phase)).fit(three[0])
    phases = list(dict.fromkeys(told))
    assert phases == ["filters", "histograms", "number", "clusters", "borders", "pixels"]


def test_a_choice_is_forgotten_when_the_next_fit_is_told_the_number(three):
    model = TextureSegmenter().fit(three[0])
    assert model.selection_.chosen == K
    model.set_params(n_segments=2).fit(three[0])
    assert model.n_segments_ == 2
    assert not hasattr(model, "selection_")
    with pytest.raises(AttributeError, match="selection_ exists only after a fit that chooses the number"):
        _ = model.selection_


def test_the_file_of_a_model_that_chose_its_number(tmp_path, three, chosen):
    chosen.save(tmp_path / "model.texseg")
    loaded = TextureSegmenter.load(tmp_path / "model.texseg")
    assert loaded.n_segments_ == loaded.n_segments == K
    np.testing.assert_array_equal(loaded.predict(three[0]), chosen.labels_)
    assert not hasattr(loaded, "selection_")


@pytest.mark.parametrize("image", [np.full((64, 80), 3), np.zeros((20, 30))])
def test_an_image_of_nothing_is_one_segment_without_being_told(image):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "an image with a side of .* is smaller than the filters")
        model = TextureSegmenter().fit(image)
    assert (model.labels_ == 1).all()
    assert model.selection_.chosen == 1


def test_the_number_of_a_list_is_that_of_all_its_images(make_number):
    image, truth = make_number(4, (192, 208))
    halves, truths = [image[:96], image[96:]], [truth[:96], truth[96:]]
    model = TextureSegmenter().fit(halves)
    assert model.n_segments_ == 4
    labels = np.concatenate(model.labels_)
    assert accuracy(labels, np.concatenate(truths)) > 0.95
