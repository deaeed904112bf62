"""What stands apart in an image's values is said, with the remedy, and does no harm."""

import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from texseg import TextureSegmenter, segment
from texseg.cli import main
from texseg.metrics import pixel_accuracy
from texseg.synth import mosaic

SIDE = 192


@pytest.fixture(scope="module")
def scene():
    """Three textures of equal brightness and contrast."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(SIDE, SIDE))
    stripes = np.sin(rows * 0.9) + 0.3 * noise
    checks = np.sin(columns * 0.5) * np.sin(rows * 0.5) + 0.3 * rng.normal(size=(SIDE, SIDE))
    return mosaic([noise, stripes, checks], 3, SIDE, random_state=0)


def notes_of(image, **parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels = segment(image, 3, **parameters)
    return labels, [str(warning.message) for warning in caught]


def test_an_ordinary_scene_gets_no_note(scene):
    labels, notes = notes_of(scene.image)
    assert notes == []
    assert pixel_accuracy(labels, scene.truth) > 0.97


@pytest.mark.parametrize(("share", "times"), [(0.002, 1e4), (0.03, 1e2), (0.03, 1e6), (0.05, 1e4)])
def test_outliers_cost_nothing_and_get_one_note(scene, share, times):
    image = scene.image.astype(float)
    image[np.random.default_rng(1).random(image.shape) < share] = 255 * times
    image[::40, ::40] *= 1.5  # not all alike
    labels, notes = notes_of(image)
    assert pixel_accuracy(labels, scene.truth) > pixel_accuracy(segment(scene.image, 3), scene.truth) - 0.01
    assert len(notes) == 1


def test_scattered_strong_targets_are_named(scene):
    rng = np.random.default_rng(2)
    image = scene.image.astype(float)
    targets = rng.random(image.shape) < 0.004
    image[targets] = rng.uniform(5e3, 5e4, targets.sum())
    _, (note,) = notes_of(image)
    assert note.startswith("0.3") or note.startswith("0.4")
    assert note.endswith("are outliers and were clipped to the range of the rest")


@pytest.mark.parametrize(("value", "width", "share"), [("-9999", 30, 16), ("-3.4028235e+38", 60, 31)])
def test_a_single_value_on_many_pixels_is_named_with_nodata(scene, value, width, share):
    """Also where there are so many that they are flat background, which takes one of the segments."""
    image = scene.image.astype(np.float32)
    image[:, :width] = float(value)
    _, notes = notes_of(image)
    assert notes == [
        f"{share} % of the pixels hold the single value {value}, an isolated value: if it marks missing "
        f"data, pass nodata={value} (--nodata {value}); otherwise it becomes a segment of its own"
    ]
    labels, notes = notes_of(image, nodata=float(value))
    assert notes == []
    assert pixel_accuracy(labels[:, width:], scene.truth[:, width:]) > 0.97


def test_the_logarithm_repairs_shading_that_multiplies(scene):
    rows, columns = np.mgrid[:SIDE, :SIDE] / (SIDE / 2) - 1
    image = (scene.image + 10) * (1 - 0.8 * (rows**2 + columns**2) / 2)
    for log in (True, None):
        labels, notes = notes_of(image, log=log)
        assert len(notes) == (log is None) and all("using the logarithm" in note for note in notes)
        assert pixel_accuracy(labels, scene.truth) > 0.96


@pytest.mark.parametrize("tiles", [1, 2, 4, 8])
def test_the_logarithm_is_taken_where_one_factor_changes_mean_and_contrast(scene, tiles):
    gains = np.random.default_rng(tiles).uniform(0.4, 1.6, (tiles, tiles))
    image = (scene.image + 10) * np.kron(gains, np.ones((SIDE // tiles, SIDE // tiles)))
    labels, notes = notes_of(image)
    taken = [note for note in notes if "using the logarithm of the values: contrast is proportional" in note]
    assert len(taken) == (tiles > 1)
    assert pixel_accuracy(labels, scene.truth) > 0.95


def test_the_command_tells_the_logarithm_in_its_outcome_and_not_in_a_note(scene, tmp_path):
    gains = np.random.default_rng(4).uniform(0.4, 1.6, (4, 4))
    np.save(tmp_path / "a.npy", (scene.image + 10) * np.kron(gains, np.ones((SIDE // 4, SIDE // 4))))
    run = CliRunner().invoke(main, ["segment", str(tmp_path / "a.npy"), "-k", "3", "-o", str(tmp_path)])
    assert ", 3 segments of the logarithm, " in run.stdout and "logarithm" not in run.stderr


def test_it_is_not_taken_where_light_is_added_nor_on_the_plain_path(scene):
    columns = np.linspace(0, 200, SIDE)
    assert notes_of(scene.image + columns)[1] == []
    rows = np.linspace(0.2, 1, SIDE)[:, None]
    assert not any("using the logarithm" in note for note in notes_of(scene.image * rows, preset="plain")[1])


def test_the_logarithm_does_not_know_the_gain_and_is_kept_in_model_files(scene, tmp_path):
    image = scene.image + 1.0
    model = TextureSegmenter(3, log=True).fit(image)
    np.testing.assert_array_equal(model.labels_, segment(image * 2.0**-10, 3, log=True))
    model.save(tmp_path / "m.texseg")
    again = TextureSegmenter.load(tmp_path / "m.texseg")
    assert again.log is True
    np.testing.assert_array_equal(again.predict(image), model.predict(image))


def test_the_logarithm_of_negative_values_is_refused_with_the_remedy(scene):
    with pytest.raises(ValueError, match="log=True needs values of at least 0, but the image goes down to -"):
        segment(scene.image - 128.0, 3, log=True)
    with pytest.raises(ValueError, match="log must be True, False or None, got 'db'"):
        segment(scene.image, 3, log="db")
