"""The paper's path: annealed on windowed counts, from coarse cells down to single pixels."""

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


def test_free_energy_falls_at_every_temperature_down_to_the_pixels(fitted):
    runs = {}
    for record in fitted.history_:
        assert record.phase == "anneal"
        runs.setdefault((record.level, record.beta), []).append(record.free_energy)
    for energies in runs.values():
        assert (np.diff(energies) <= 1e-6 * np.abs(energies[0])).all()
    levels = [record.level for record in fitted.history_]
    assert levels == sorted(levels)
    assert levels[-1] == 5  # cells of 32, 16, 8, 4, 2 and 1 pixels
    steps = [record.step for record in fitted.history_]
    assert all(one < two for one, two in zip(steps, steps[1:], strict=False))


def test_it_cools_and_clusters_part_on_the_way(fitted):
    coarse = [record for record in fitted.history_ if record.level == 0]
    betas = [record.beta for record in coarse]
    assert betas == sorted(betas)
    assert coarse[0].n_distinct == 1
    assert fitted.history_[-1].n_distinct == K
    assert {record.beta for record in fitted.history_ if record.level > 0} == {betas[-1]}


def test_windows_are_proportional_to_the_wavelength(fitted):
    windows = np.array(fitted.textures_.windows)
    assert (windows % 2 == 1).all()
    ratio = windows / fitted.textures_.features.wavelengths
    assert np.ptp(ratio) < 0.1 * ratio.mean()


def test_the_training_image_is_predicted_as_it_was_labelled(mosaic, fitted):
    np.testing.assert_array_equal(fitted.predict(mosaic[0]), fitted.labels_)
    proba = fitted.predict_proba(mosaic[0])
    np.testing.assert_allclose(proba.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(proba.argmax(axis=-1) + 1, fitted.labels_)


def test_textures_are_found_again_in_other_images(mosaic, fitted, make_mosaic):
    names = np.array([fitted.labels_[mosaic[1] == t].mean().round() for t in (1, 2, 3)])
    image, truth = make_mosaic((150, 128), 5)
    assert (fitted.predict(image) == names[truth - 1]).mean() > 0.93


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


def test_a_callback_is_told_every_level_and_can_end_the_fit(mosaic, fitted):
    told = []
    model = TextureSegmenter(K, preset="plain", callback=told.append).fit(mosaic[0])
    np.testing.assert_array_equal(model.labels_, fitted.labels_)
    phases = list(dict.fromkeys(progress.phase for progress in told))
    levels = [f"annealing, level {level} of 6" for level in range(1, 7)]
    assert phases == ["filters", *levels, "boundaries"]
    shares = [progress.share for progress in told]
    assert shares == sorted(shares)
    assert shares[0] == 0 and shares[-1] == 1
    annealing = [progress for progress in told if progress.phase in levels and progress.total > 1]
    (n_stages,) = {progress.total for progress in annealing}
    n_betas = len({record.beta for record in fitted.history_})
    assert n_stages == n_betas + 5  # each finer level stays at the last temperature
    assert {progress.done for progress in annealing} == set(range(1, n_stages))

    def stop(progress):
        if "level 2 of" in progress.phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TextureSegmenter(K, preset="plain", callback=stop).fit(mosaic[0])
