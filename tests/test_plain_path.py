"""The paper's method alone: the same path as the default, without the four additions."""

import numpy as np
import pytest

from texseg import TextureSegmenter, match_labels, segment

K = 3


@pytest.fixture(scope="module")
def fitted(mosaic):
    return TextureSegmenter(K, preset="plain").fit(mosaic[0])


def accuracy(labels, truth):
    return (match_labels(labels, truth) == truth).mean()


def test_planted_textures_are_found(mosaic, fitted):
    assert fitted.labels_.dtype == np.int32
    assert accuracy(fitted.labels_, mosaic[1]) > 0.95


def test_only_filters_are_channels(fitted):
    assert len(fitted.channel_names_) == 12
    assert all(name.endswith("deg") for name in fitted.channel_names_)


def test_it_is_the_default_with_four_parameters_off(mosaic, fitted):
    labels = segment(mosaic[0], K, patch_weight=0, value_weight=0, smoothness=0, learned_borders=False)
    np.testing.assert_array_equal(labels, fitted.labels_)


@pytest.mark.parametrize("addition", [{"patch_weight": 4.0}, {"value_weight": 1.0}, {"smoothness": 1.0}])
def test_each_addition_can_be_made_alone(mosaic, fitted, addition):
    model = TextureSegmenter(K, preset="plain", **addition).fit(mosaic[0])
    assert accuracy(model.labels_, mosaic[1]) > 0.94
    assert (model.labels_ != fitted.labels_).any()


@pytest.mark.parametrize("preset", ["default", "plain"])
def test_every_path_cools_and_clusters_part_on_the_way(mosaic, preset):
    history = TextureSegmenter(K, preset=preset, n_starts=2).fit(mosaic[0]).history_
    windows = [record for record in history if record.phase == "windows"]
    betas = [record.beta for record in windows]
    assert sum(one > other for one, other in zip(betas, betas[1:], strict=False)) == 3  # four runs, all cool
    assert windows[0].n_distinct == 1
    assert max(record.n_distinct for record in windows) == max(K + 3, 6)  # the clusters that are merged down
    assert windows[-1].n_distinct == K  # their rivals
    transitions = [t for record in windows for t in record.transitions]
    assert len(transitions) >= 2 * (K - 1)
    assert [record.step for record in history] == list(range(1, len(history) + 1))
    assert history[-1].phase == "cells"
    runs = np.split(np.array(windows, dtype=object), np.flatnonzero(np.diff(betas) < 0) + 1)
    for run in runs:
        for beta in {record[2] for record in run}:
            energies = [record[3] for record in run if record[2] == beta]
            assert (np.diff(energies) <= 1e-5 * np.abs(energies[0])).all()  # F never rises at one temperature


def test_the_clustering_goes_through_driver_seam_and_model(mosaic, monkeypatch):
    """What `segment` runs must be what the documentation shows: the driver on count matrices of the ACM."""
    from texseg.counts.sites import Sites
    from texseg.fitting import steps
    from texseg.models.acm import HistogramClustering

    seen = []
    step = HistogramClustering.step

    def watched(self, n, *arguments):
        seen.append((type(n), type(self.posterior).__name__))
        return step(self, n, *arguments)

    monkeypatch.setattr(HistogramClustering, "step", watched)
    segment(mosaic[0], K)
    assert steps.descend.__module__ == "texseg.fitting.steps"
    assert {kind for kind, _ in seen} == {Sites}
    assert {policy for _, policy in seen} == {"SoftMax", "PottsField"}
    assert len(seen) > 20


def test_the_training_image_is_predicted_as_it_was_labelled(mosaic, fitted):
    np.testing.assert_array_equal(fitted.predict(mosaic[0]), fitted.labels_)
    proba = fitted.predict_proba(mosaic[0])
    np.testing.assert_allclose(proba.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(proba.argmax(axis=-1) + 1, fitted.labels_)


def test_textures_are_found_again_in_other_images(mosaic, fitted, make_mosaic):
    names = np.array([fitted.labels_[mosaic[1] == t].mean().round() for t in (1, 2, 3)])
    image, truth = make_mosaic((150, 128), 5)
    assert (fitted.predict(image) == names[truth - 1]).mean() > 0.93


def test_several_images_share_their_textures_and_the_number_is_chosen(mosaic, make_mosaic):
    one, other = TextureSegmenter(K, preset="plain").fit([mosaic[0], make_mosaic((150, 128), 5)[0]]).labels_
    assert accuracy(one, mosaic[1]) > 0.93
    assert other.shape == (150, 128)
    assert TextureSegmenter(preset="plain").fit(mosaic[0]).n_segments_ >= 1


@pytest.mark.parametrize(
    ("dtype", "gain", "offset"), [(np.uint16, 257, 0), (np.float32, 1 / 256, -1), (np.float64, 1e-9, 0)]
)
def test_labels_do_not_know_dtype_gain_and_offset(mosaic, fitted, dtype, gain, offset):
    changed = (mosaic[0].astype(float) * gain + offset).astype(dtype)
    np.testing.assert_array_equal(segment(changed, K, preset="plain"), fitted.labels_)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_names_no_labels(mosaic, fitted, seed):
    labels = segment(mosaic[0], K, preset="plain", random_state=seed)
    assert (labels == fitted.labels_).mean() > 0.97


def test_pixels_without_data_get_zero_and_all_others_a_label(mosaic):
    image, truth = mosaic
    mask = np.ones(image.shape, bool)
    mask[30:75, 50:100] = False
    labels = segment(image, K, preset="plain", mask=mask)
    np.testing.assert_array_equal(labels == 0, ~mask)
    assert (match_labels(labels, truth, ignore_label=0)[mask] == truth[mask]).mean() > 0.94
    other = np.where(mask, image, 255 - image)
    np.testing.assert_array_equal(segment(other, K, preset="plain", mask=mask), labels)


def test_colour_is_seen_by_its_lightness(mosaic):
    image, truth = mosaic
    rgb = np.stack([image, image, 255 - image], axis=-1)
    model = TextureSegmenter(K, preset="plain", channel_axis=-1).fit(rgb)
    assert len(model.channel_names_) == 12
    assert accuracy(model.labels_, truth) > 0.9


def test_one_segment_is_everything(mosaic):
    model = TextureSegmenter(1, preset="plain").fit(mosaic[0])
    assert (model.labels_ == 1).all()
    assert model.history_[-1].n_distinct == 1
