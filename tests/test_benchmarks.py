"""The benchmarks run, and their tables hold what they say."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from texseg.parameters import PARAMETERS, PRESETS

ROOT = Path(__file__).parents[1]


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}").main


@pytest.mark.parametrize("path", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda path: path.stem)
def test_each_knows_the_names_that_it_imports(path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    if path.stem in ("open", "report"):
        pytest.importorskip("selenium")
    importlib.import_module(f"benchmarks.{path.stem}")


def constants_of(place):
    """Names of the numbers, or tuples of numbers, that a module of texseg defines."""
    module = importlib.import_module(f"texseg.{place}")
    text = Path(module.__file__).read_text("utf-8")
    for name in re.findall(r"^(_?[A-Z][A-Z0-9_]+)(?:: .*)? = ", text, re.MULTILINE):
        if np.issubdtype(np.asarray(getattr(module, name)).dtype, np.number):
            yield place, name


def is_chosen_by_the_caller(name):
    return name in PARAMETERS and PARAMETERS[name].presets is None


def test_every_constant_that_labels_depend_on_is_listed_with_its_kind(monkeypatch):
    """A new one has to be measured, or to be of another kind; forty are enough."""
    monkeypatch.syspath_prepend(str(ROOT))
    constants = importlib.import_module("benchmarks.constants")
    kinds = [
        {place: " ".join(names) for place, names in constants.CONSTANTS.items()},
        *constants.OTHERS.values(),
    ]
    listed = [(place, name) for kind in kinds for place, names in kind.items() for name in names.split()]
    assert len(listed) == len(set(listed))
    settings = PRESETS["default"]
    found = {("parameters", name) for name in vars(settings) if not is_chosen_by_the_caller(name)} - {
        ("parameters", name) for name in ("potts", "learned_borders", "cue", "keeps_cell")
    }
    found |= {("parameters", f"potts.{name}") for name in settings.potts._fields}
    for place in constants.MODULES:
        found.update(constants_of(place))
    assert found == set(listed)
    assert sum(len(names) for names in constants.CONSTANTS.values()) <= 40


def test_accuracy_on_the_sample_images(program, tmp_path, capsys):
    arguments = ["--sets", "samples", "--limit", "1", "--number", "given", "--presets", "default"]
    arguments += ["--peers", "none", "--calibration", "--worst", "1", "--out", str(tmp_path)]
    program("accuracy")([str(tmp_path), *arguments])
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("samples"))
    assert row[1:5] == ["given", "texseg", "default", "1"]
    assert float(row[5]) > 0.9
    assert "reliability, samples, given, texseg default: calibration error" in out
    assert [path.name for path in tmp_path.iterdir()] == ["samples_given_texseg_default.png"]


@pytest.fixture
def real(tmp_path):
    """A folder of data with two fields of one image each."""
    for field, name in (("grey", "five_textures"), ("bright", "colour_textures")):
        for kind, suffix in (("images", ""), ("truth", "_truth")):
            values = np.asarray(Image.open(ROOT / "sample_images" / f"{name}{suffix}.png"))[:200, :200]
            folder = tmp_path / "real" / field / kind
            folder.mkdir(parents=True)
            Image.fromarray(values).save(folder / "00.png")
    return tmp_path


def test_accuracy_on_fields_holds_ours_against_simple_peers_that_run_only_once(program, real, capsys):
    arguments = ["--sets", "real", "--number", "given,chosen", "--presets", "default"]
    arguments += ["--peers", "lab,mean-spread,slic,lbp", "--scores", str(real / "scores")]
    program("accuracy")([str(real), *arguments])
    first = capsys.readouterr().out
    assert "real, given, texseg default, ARI: " in first and "mean of fields" in first
    for number in ("given", "chosen"):
        assert f"real, {number}, texseg default: ARI at least that of the best of lab, mean-spread" in first
    chosen = next(line.split() for line in first.splitlines() if line.startswith("real         chosen"))
    leaves, best, true, level = map(float, chosen[-4:])
    assert 1 >= leaves >= best >= max(true, level)
    peers = real / "scores" / "real-given-lab.json"
    peers.write_text(re.sub(r'"ari": [-.0-9]+', '"ari": 0.125', peers.read_text()))
    program("accuracy")([str(real), *arguments])
    assert "real, given, lab, ARI: bright 0.125, grey 0.125; mean of fields 0.125" in capsys.readouterr().out


def test_the_number_is_learned_and_judged_without_each_source(program, real, capsys):
    arguments = [str(real), "--cache", str(real / "cache")]
    program("learn_number")([*arguments, "--minutes", "1e-6"])
    assert capsys.readouterr().out.startswith("measured 1 of ")
    program("learn_number")(arguments)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("grey")]
    assert {row[1] for row in rows} >= {"all", "whole"}


def test_accuracy_refuses_what_it_does_not_know(program, tmp_path):
    with pytest.raises(SystemExit, match="--sets: 'outx' is not one of outex, prague"):
        program("accuracy")([str(tmp_path), "--sets", "outex,outx"])


def test_speed_compares_implicit_with_explicit_counts(program, capsys):
    program("speed")(["--only", "implicit"])
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("---")) + 1
    assert all(float(line.split()[1]) < 1e-3 for line in lines[first : first + 2])


def test_a_row_for_each_change_of_the_default_and_images_of_another_size(program, tmp_path, capsys):
    arguments = ["--sets", "samples", "--limit", "1", "--number", "given", "--presets", "none"]
    arguments += ["--peers", "none", "--changes", "model=acm-hard", "cell=4", "--scale", "0.5"]
    program("accuracy")([str(tmp_path), *arguments])
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith("samples")]
    assert [row[3] for row in rows] == ["model=acm-hard", "cell=4"]
    assert all(float(row[5]) > 0.5 for row in rows)
    assert "free energy, samples, given, texseg model=acm-hard: " in out


def test_strokes_are_compared_with_peers(program, tmp_path, capsys):
    arguments = ["--set", "samples", "--limit", "1", "--strokes", "1", "--methods", "texseg"]
    program("strokes")([str(tmp_path), *arguments])
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("mean of 1 "))
    assert float(row[4]) > 0.8
    assert "refit, CPU seconds at 512 x 512" in out
