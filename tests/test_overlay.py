"""Overlays of the likely numbers side by side, where none is clearly right."""

from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from texseg.cli import main, outputs
from texseg.io.display import side_by_side

HALVES = np.repeat([[1] * 60 + [2] * 60], 100, axis=0)
LEVELS = {1: np.ones_like(HALVES), 2: HALVES, 3: np.where(np.arange(100)[:, None] < 50, HALVES, 3)}


def test_pictures_stand_side_by_side_under_their_names():
    pictures = {"one": np.full((100, 120, 3), 50, np.uint8), "other": np.full((100, 120, 3), 90, np.uint8)}
    sheet = side_by_side(pictures)
    top, gap = sheet.shape[0] - 100, sheet.shape[1] // 2 - 120
    assert (sheet[top:, gap : gap + 120] == 50).all() and (sheet[top:, -120:] == 90).all()
    for panel in (sheet[:top, :120], sheet[:top, -120:]):
        assert (panel < 128).any()  # a name


@pytest.mark.parametrize(
    ("probabilities", "shown"),
    [
        ([0.1, 0.45, 0.45], [2, 3]),
        ([0.3, 0.4, 0.3], [1, 2, 3]),
        ([0.1, 0.8, 0.1], []),
        ([0.45, 0.1, 0.1], []),
    ],
)
def test_numbers_are_compared_where_none_has_half_of_the_probability(probabilities, shown):
    selection = SimpleNamespace(n_segments=(1, 2, 3), probabilities=probabilities, by_values=False)
    hierarchy = SimpleNamespace(n_segments=(1, 2, 3), labels=LEVELS.get)
    model = SimpleNamespace(selection_=selection, hierarchy_=hierarchy, labels_=HALVES)
    found = outputs._likely_numbers(model, [SimpleNamespace(labels=HALVES)])
    assert [int(words.split()[0]) for words in found] == shown
    assert not outputs._likely_numbers(model, [SimpleNamespace(labels=HALVES.copy())])  # of another image


def test_the_command_writes_and_names_them(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, HALVES.shape).astype(np.uint8)).save(tmp_path / "a.png")
    monkeypatch.setattr(outputs, "_likely_numbers", lambda model, pages: {"2 segments (40%)": HALVES})
    result = CliRunner().invoke(main, ["segment", str(tmp_path / "a.png"), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "no number of segments is clearly right" in result.stderr
    assert "a_numbers_overlay.png" in result.stderr
    assert (tmp_path / "out" / "a_numbers_overlay.png").exists()
    assert "a_numbers_overlay.png" in (tmp_path / "out" / "a_run.json").read_text()
    monkeypatch.undo()  # a later run with another number has no use for it
    again = CliRunner().invoke(
        main, ["segment", str(tmp_path / "a.png"), "-k", "1", "-o", str(tmp_path / "out")]
    )
    assert "results of an earlier run were removed: a_numbers_overlay.png" in again.stderr
    assert not (tmp_path / "out" / "a_numbers_overlay.png").exists()
