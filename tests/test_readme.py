"""What the README says can be done."""

import csv
import re
import shlex
import tomllib
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import texseg
from texseg.io.read import read_labels

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_python_example_runs(monkeypatch, tmp_path):
    import matplotlib.pyplot as plt

    (tmp_path / "sample_images").symlink_to(ROOT / "sample_images")
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    names = {}
    exec(example, names)
    plt.close("all")
    assert names["labels"].dtype == np.int32 and set(np.unique(names["labels"])) == {1, 2, 3, 4, 5}
    assert set(np.unique(names["coarse"])) == {1, 2}
    assert (tmp_path / "overlay.png").stat().st_size > 10_000


def test_the_first_command_writes_what_is_promised(monkeypatch, tmp_path):
    from click.testing import CliRunner

    from texseg.cli import main

    program, *arguments = shlex.split(blocks("sh")[0].splitlines()[-1])
    assert program == "texseg"
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert "`texseg_demo/example_report.html`" in README
    assert (tmp_path / "texseg_demo" / "example_report.html").exists()


def test_the_commands_for_an_own_photograph_write_pages_and_labels(monkeypatch, tmp_path):
    from click.testing import CliRunner

    from texseg.cli import main

    (tmp_path / "my_photo.jpg").write_bytes((ROOT / "sample_images" / "cat.png").read_bytes())
    monkeypatch.chdir(tmp_path)
    for line in blocks("sh")[1].splitlines():
        assert CliRunner().invoke(main, shlex.split(line, comments=True)[1:]).exit_code == 0, line
    assert {"my_photo_overlay.png", "my_photo_report.html"} <= {path.name for path in Path("out").iterdir()}


def assert_names_are_those_of_strokes(stem, names):
    strokes, labels = (
        read_labels(path) for path in ("sample_images/tissue_strokes.png", f"{stem}_labels.tif")
    )
    with open(f"{stem}_segments.csv") as file:
        number_of = {row["name"]: int(row["label"]) for row in csv.DictReader(file)}
    for number, name in enumerate(names, start=1):
        assert (labels[strokes == number] == number_of[name]).mean() > 0.9, name


@pytest.mark.parametrize("topic", ["sample_images/tissue.png", "sample_images/scattered_textures.png"])
def test_the_commands_on_sample_images_run(monkeypatch, tmp_path, topic):
    from click.testing import CliRunner

    from texseg.cli import main

    (tmp_path / "sample_images").symlink_to(ROOT / "sample_images")
    monkeypatch.chdir(tmp_path)
    for line in "".join(block for block in blocks("sh") if topic in block).splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "echo":
            Path(arguments[2]).write_text(arguments[0])
        else:
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, result.output
            if "--edits" in arguments:
                assert "gland" in result.output and "stroma" in result.output
                assert_names_are_those_of_strokes("out/tissue", ("stroma", "gland"))
    if "tissue" in topic:  # the last ones are about seeds
        seeds, labels = (
            read_labels(path) for path in ("sample_images/tissue_strokes.png", "out/tissue_labels.tif")
        )
        assert (labels[seeds > 0] == seeds[seeds > 0]).all() and Path("gland.texseg").exists()
        return
    with open("out/three_real_textures_segments.csv") as file:
        (unknown,) = (float(row["fraction"]) for row in csv.DictReader(file) if row["name"] == "unknown")
    assert unknown == pytest.approx(1 / 3, abs=0.03)
    table = (Path("out") / f"{Path(topic).stem}_segments.csv").read_text()
    labels, truth = (
        read_labels(path)
        for path in ("out/scattered_textures_labels.tif", "sample_images/scattered_textures_truth.png")
    )
    number_of = {name: int(label) for label, name in (row.split(",")[:2] for row in table.split("\n")[1:6])}
    for number, name in enumerate(("gravel", "grass", "weave", "wood", "sand"), start=1):
        assert (labels[truth == number] == number_of[name]).mean() > 0.9, name


def test_models_take_the_tables_it_names():
    from scipy.sparse import csr_array

    from texseg.models import ACM

    assert "`ACM(n_clusters=5).fit(table).labels_`" in README
    table = np.random.default_rng(0).multinomial(40, np.full(12, 1 / 12), 30)
    for given in (table, csr_array(table)):
        assert set(ACM(n_clusters=5, random_state=0).fit(given).labels_) <= {0, 1, 2, 3, 4}


@pytest.mark.parametrize("verb", ["demo", "fit", "name", "apply", "completion", "info", "report", "score"])
def test_the_verbs_it_names_exist(verb):
    from texseg.cli import main

    assert f"texseg {verb}" in README and verb in main.commands


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_parameters_it_names_exist():
    import inspect

    from texseg import TextureSegmenter

    table = README.split("## What to change")[1].split("## Outputs")[0]
    changes = " ".join(line.split("|")[2] for line in table.splitlines() if line.count("|") > 3)
    named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", changes)) - {"predict", "fit", "mask", "seeds"}
    assert named and named <= set(inspect.signature(TextureSegmenter).parameters)


def test_the_list_of_strings_knows_what_people_see(capsys, monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    listed = importlib.import_module("strings").main
    listed([str(ROOT / "texseg" / "metrics.py"), str(ROOT / "texseg" / "report")])
    shown = capsys.readouterr().out
    assert "labels and truth {...}; nothing can be compared" in shown  # an error
    assert "Compare stated confidence with actual accuracy." in shown  # a public docstring
    assert "merge selected" in shown  # a button


def test_strings_that_people_see_avoid_words_that_read_badly(capsys, monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    importlib.import_module("strings").main(["--doubtful", str(ROOT / "texseg")])
    assert not capsys.readouterr().out


def test_the_conda_recipe_asks_for_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    recipe = (ROOT / "recipe" / "meta.yaml").read_text("utf-8")
    other_names = {"opencv-python-headless": "py-opencv", "matplotlib": "matplotlib-base"}
    asked = dict(re.match(r"([\w-]+)>=([\d.]+)$", line).groups() for line in project["dependencies"])
    expected = {other_names.get(name, name): version for name, version in asked.items()}
    expected["py-opencv"] = expected["py-opencv"].rpartition(".")[0]  # the fourth number is that of the wheel
    run = recipe[recipe.index("  run:") : recipe.index("test:")]
    assert dict(re.findall(r"- ([\w-]+) >=([\d.]+)", run)) == {"python": "3.11", **expected}
    assert f'version = "{texseg.__version__}"' in recipe
    assert project["requires-python"] == ">=3.11"


def test_the_dockerfile_copies_what_the_package_is_made_from_and_nothing_else():
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    assert len(lines) == 10 and lines[-1] == 'ENTRYPOINT ["texseg"]'
    assert all(
        re.match(r"(# |FROM python:3\.\d+|COPY |RUN |USER texseg|WORKDIR |ENTRYPOINT )", line)
        for line in lines
    )
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[0] == "!"]
    assert all((ROOT / name).exists() for name in kept)
    assert {"texseg", "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"} <= set(kept)
