"""Textures of models that were fitted apart get one numbering."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from texseg import TextureSegmenter, match_textures
from texseg.cli import main


def picture(*textures):
    """Stripes, checks or noise side by side."""
    rows, columns = np.mgrid[:72, :48]
    noise = np.random.default_rng(len(textures)).normal(size=rows.shape)
    waves = {
        "stripes": np.sin(rows * 1.1),
        "checks": np.sin(columns * 0.5) * np.sin(rows * 0.5) * 1.4,
        "noise": noise,
        "waves": np.sin(columns * 0.6),
    }
    return np.hstack([waves[name] + 0.1 * noise for name in textures])


def model_of(*textures):
    model = TextureSegmenter(len(textures), preset="plain", log=False).fit(picture(*textures))
    places = [
        np.bincount(model.labels_[:, 48 * i + 10 : 48 * i + 38].ravel()).argmax()
        for i in range(len(textures))
    ]
    assert len(set(places)) == len(textures)
    return model.rename({int(place): name for place, name in zip(places, textures, strict=True)})


@pytest.fixture(scope="module")
def models():
    return [
        model_of("stripes", "checks"),
        model_of("noise", "checks", "stripes"),
        model_of("waves", "noise"),
    ]


def test_equal_textures_have_equal_numbers_and_new_ones_new_numbers(models):
    found = match_textures(models)
    number_of = {}
    for model, match in zip(models, found, strict=True):
        for name, number in zip(model.names_, match.numbers.tolist(), strict=True):
            assert number_of.setdefault(name, number) == number
    assert sorted(number_of.values()) == [1, 2, 3, 4]
    assert found[0].numbers.tolist() == [1, 2] and found[0].is_new.all()
    new = [name for name, is_new in zip(models[1].names_, found[1].is_new, strict=True) if is_new]
    assert new == ["noise"]
    assert found[1].distances[~found[1].is_new].max() < 0.25 < found[1].distances[found[1].is_new].min()


def test_a_model_matches_itself_and_nothing_matches_below_any_distance(models):
    twice = match_textures([models[1], models[1]])
    assert twice[1].numbers.tolist() == [1, 2, 3] and np.allclose(twice[1].distances, 0)
    apart = match_textures(models, limit=0)
    assert np.concatenate([match.numbers for match in apart]).tolist() == list(range(1, 8))


def test_the_command_prints_numbers_and_distances(models, tmp_path, monkeypatch):
    expected = [match.numbers.tolist() for match in match_textures(models[:2])]
    for number, model in enumerate(models[:2]):
        monkeypatch.setattr(model, "pixel_size_", (number + 1.0, number + 1.0, "um"))
        model.save(tmp_path / f"{number}.texseg")
    paths = [str(tmp_path / "0.texseg"), str(tmp_path / "1.texseg")]
    result = CliRunner().invoke(main, ["match", *paths])
    assert result.exit_code == 0, result.output
    assert "models[1] learned from pixels of another size than models[0]" in result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1] == ["segment", "number", "distance"]
    assert {tuple(line[2:]) for line in lines[2:4]} == {("none", "stripes"), ("none", "checks")}
    assert ["none", "noise"] in [line[2:] for line in lines[5:]]
    rows = [
        json.loads(line) for line in CliRunner().invoke(main, ["match", *paths, "--json"]).stdout.splitlines()
    ]
    assert [row["numbers"] for row in rows] == expected
    assert rows[0]["distances"] == [None, None]
    failed = CliRunner().invoke(main, ["match", paths[0], str(tmp_path / "none.texseg")])
    assert failed.exit_code == 1 and "none.texseg: no such model file" in failed.output


def test_the_command_says_that_only_shared_channels_are_compared(models, tmp_path):
    image = np.dstack([picture("stripes", "checks"), picture("checks", "stripes")])
    models[0].save(tmp_path / "grey.texseg")
    TextureSegmenter(2, preset="plain", channel_axis=-1).fit(image).save(tmp_path / "colour.texseg")
    words = ["match", str(tmp_path / "grey.texseg"), str(tmp_path / "colour.texseg")]
    result = CliRunner().invoke(main, words)
    assert "only shared channels are compared" in result.stderr and "grey.texseg 1, " in result.stderr


def test_wrong_calls_are_one_sentence_each(models):
    for wrong in (None, 5, "ab", []):
        with pytest.raises(TypeError, match="models must be a sequence of fitted models"):
            match_textures(wrong)
    with pytest.raises(TypeError, match=r"models\[1\] is not a fitted model"):
        match_textures([models[0], TextureSegmenter()])
    for wrong in ("x", -1, True, float("nan")):
        with pytest.raises(ValueError, match="limit must be a number of at least 0"):
            match_textures(models, wrong)
    other = TextureSegmenter(2, preset="plain", wavelengths=(7, 9), value_weight=0).fit(
        picture("noise", "waves")
    )
    with pytest.raises(ValueError, match="the models share no channels: fit them with the same wavelengths"):
        match_textures([models[0], other])
