"""Coarse and fine segmentations of one fit: nested, complete, and with the temperatures of the theory."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from site_scenes import regions, sites_of
from sklearn.exceptions import NotFittedError

from texseg import TextureSegmenter, match_labels
from texseg.method.hierarchy import critical_temperatures

K_MAX = 7
MERGES = ((0, 1), (2, 3), (0, 2))


@pytest.fixture(scope="module")
def fitted(make_number):
    """Three textures in an image with a hole, their number chosen; and the truth, 0 in the hole."""
    image, truth = make_number(3, (160, 176))
    mask = np.ones(image.shape, bool)
    mask[60:90, 70:110] = False
    model = TextureSegmenter(k_max=K_MAX).fit(image, mask=mask)
    return model, np.where(mask, truth, 0)


# ---- label images ------------------------------------------------------------------------------------------


def test_there_are_labels_for_every_number(fitted):
    model, truth = fitted
    hierarchy = model.hierarchy_
    most = len(hierarchy.merges) + 1
    assert 3 <= most <= K_MAX  # clusters that only follow borders are dissolved
    assert hierarchy.n_segments.tolist() == list(range(1, most + 1))
    for k in hierarchy.n_segments:
        labels = hierarchy.labels(k)
        assert labels.dtype == np.int32
        assert labels.shape == truth.shape
        assert np.unique(labels).tolist() == list(range(k + 1))
        np.testing.assert_array_equal(labels == 0, truth == 0)


def test_each_segmentation_is_a_coarsening_of_the_next(fitted):
    hierarchy = fitted[0].hierarchy_
    for k in hierarchy.n_segments[:-1]:
        coarse, fine = hierarchy.labels(k), hierarchy.labels(k + 1)
        pairs = np.unique(np.stack([coarse.ravel(), fine.ravel()]), axis=1)
        assert pairs.shape[1] == k + 2  # every fine label, and no data, within one coarse label


def test_the_merges_lead_from_the_finest_to_one_segment(fitted):
    hierarchy = fitted[0].hierarchy_
    absorbed = [pair[1] for pair in hierarchy.merges]
    assert sorted(absorbed) == list(range(1, len(hierarchy.merges) + 1))
    for step, (kept, _) in enumerate(hierarchy.merges):
        assert kept not in absorbed[:step]


@pytest.mark.parametrize("n_segments", [None, 2, 4, 12])
def test_the_result_is_one_level_pixel_by_pixel(fitted, mosaic, n_segments):
    model = fitted[0]
    if n_segments is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* segments requested|.* one more segment")
            model = TextureSegmenter(n_segments, k_max=5, min_size=200).fit(mosaic[0])
    np.testing.assert_array_equal(model.hierarchy_.labels(model.n_segments_), model.labels_)


def test_the_planted_textures_are_one_level(fitted):
    model, truth = fitted
    assert model.n_segments_ == 3
    labels = match_labels(model.hierarchy_.labels(3), truth, ignore_label=0)
    assert (labels == truth)[truth > 0].mean() > 0.97


@pytest.mark.filterwarnings("ignore:.* one more segment")
def test_the_hierarchy_is_made_once_and_anew_after_another_fit(fitted, mosaic):
    model = fitted[0]
    assert model.hierarchy_ is model.hierarchy_
    other = TextureSegmenter(2, k_max=4).fit(mosaic[0])
    first = other.hierarchy_
    other.set_params(k_max=3).fit(mosaic[0][:96])
    assert other.hierarchy_ is not first
    assert other.hierarchy_.labels(3).shape == (96, 144)


def test_asking_for_the_hierarchy_costs_no_fit(mosaic):
    model = TextureSegmenter(2, k_max=3).fit(mosaic[0][:96])
    before = len(model.history_)
    assert hasattr(model, "hierarchy_")
    assert len(model.history_) == before
    assert model.hierarchy_.labels(3).shape == (96, 144)
    assert len(model.history_) > before


def test_a_list_of_images_has_lists_of_labels(mosaic, make_mosaic):
    second, _ = make_mosaic((96, 160), 7)
    hierarchy = TextureSegmenter(3, k_max=5).fit([mosaic[0], second]).hierarchy_
    assert hierarchy.n_segments[-1] >= 3
    for k in hierarchy.n_segments:
        one, other = hierarchy.labels(k)
        assert one.shape == (128, 144)
        assert other.shape == (96, 160)
        assert np.union1d(one, other).tolist() == list(range(1, k + 1))


def test_other_numbers_are_refused(fitted):
    hierarchy = fitted[0].hierarchy_
    most = hierarchy.n_segments[-1]
    for k in (0, most + 1):
        with pytest.raises(ValueError, match=f"k must be 1 to {most}, got {k}"):
            hierarchy.labels(k)


def test_models_without_a_hierarchy_say_why(tmp_path, mosaic):
    TextureSegmenter(2).fit(mosaic[0][:64]).save(tmp_path / "model.texseg")
    message = "hierarchy_ needs a model fitted in this session"
    with pytest.raises(AttributeError, match=message):
        _ = TextureSegmenter.load(tmp_path / "model.texseg").hierarchy_
    with pytest.raises(NotFittedError):
        _ = TextureSegmenter(2).hierarchy_


# ---- critical temperatures ---------------------------------------------------------------------------------


def test_critical_temperatures_are_positive_and_one_a_merge(fitted):
    temperatures = fitted[0].hierarchy_.critical_temperatures
    assert temperatures.shape == (len(fitted[0].hierarchy_.merges),)
    assert np.isfinite(temperatures).all()
    assert (temperatures > 0).all()


def distance_after_annealing(n, members, beta, n_steps=300):
    """How far two profiles part that begin all but equal, at one temperature; plain EM on some rows."""
    rng = np.random.default_rng(0)
    mean = n[members].sum(axis=0) / n[members].sum()
    profiles = mean * np.exp(1e-4 * rng.standard_normal((2, len(mean))))
    for _ in range(n_steps):
        profiles /= profiles.sum(axis=1, keepdims=True)
        logits = beta * n[members] @ np.log(profiles).T
        Q = np.exp(logits - logits.max(axis=1, keepdims=True))
        Q /= Q.sum(axis=1, keepdims=True)
        profiles = Q.T @ n[members]
    profiles /= profiles.sum(axis=1, keepdims=True)
    return np.abs(profiles[0] - profiles[1]).sum()


def test_segments_fall_in_two_below_their_critical_temperature_and_not_above():
    sites, _ = sites_of(regions(), n_draws=30)
    labels = regions().ravel()
    temperatures = critical_temperatures(labels, MERGES, sites)
    n = (sites.counts * sites.weights).astype(float) + 1e-9
    parents = [labels >= 0, labels >= 2, labels <= 1]  # coarsest first
    for members, temperature in zip(parents, temperatures, strict=True):
        assert distance_after_annealing(n, members, 1.1 / temperature) > 1e-2
        assert distance_after_annealing(n, members, 0.9 / temperature) < 1e-4


def test_critical_temperatures_count_observations():
    sites, _ = sites_of(regions())
    labels = regions().ravel()
    double = replace(sites, weights=2 * sites.weights)
    np.testing.assert_allclose(
        critical_temperatures(labels, MERGES, double),
        2 * critical_temperatures(labels, MERGES, sites),
        rtol=1e-3,
    )


def test_a_tree_without_merges_has_no_temperatures():
    sites, _ = sites_of(regions())
    assert critical_temperatures(np.zeros(320, int), (), sites).shape == (0,)


def test_an_image_of_nothing_has_one_level():
    hierarchy = TextureSegmenter().fit(np.full((64, 80), 9)).hierarchy_
    assert hierarchy.n_segments.tolist() == [1]
    assert (hierarchy.labels(1) == 1).all()
    assert hierarchy.merges == ()
