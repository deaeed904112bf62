"""The forecast of memory and time: how it grows, and that it speaks of every preset."""

import numpy as np
import pytest

from texseg import progress
from texseg.cli.inputs import describe
from texseg.io.write import write_labels
from texseg.method.blocks import expected_by_blocks
from texseg.parameters import PRESETS
from texseg.progress import expected_memory, expected_seconds

SIDES = (64, 256, 512, 1024, 4096)


@pytest.fixture(autouse=True)
def trial(monkeypatch):
    """Let the trial take a hundredth of a second, whatever else this machine does."""
    monkeypatch.setattr(progress, "_seconds_of_a_trial", lambda: 0.01)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("n_segments", [1, 5, 12, 100])
def test_both_grow_with_the_image_and_with_the_segments(preset, n_segments):
    memory = [expected_memory(side**2, 1, n_segments, preset) for side in SIDES]
    seconds = [expected_seconds((side, side), n_segments, preset) for side in SIDES]
    for costs in (memory, seconds):
        assert 0 < costs[0]
        assert (np.diff(costs) > 0).all()
    assert seconds[-1] / seconds[-2] < 25  # about in proportion to the pixels
    assert expected_memory(512**2, 1, n_segments + 1, preset) > memory[2]
    assert expected_memory(512**2, 3, n_segments, preset) > memory[2]
    assert expected_seconds((512, 512), n_segments + 1, preset) > seconds[2]


@pytest.mark.parametrize("side", SIDES)
def test_what_takes_more_work_takes_longer(side):
    plain, default = (expected_seconds((side, side), 5, preset) for preset in ("plain", "default"))
    assert default > plain
    for preset in ("plain", "default"):
        assert expected_seconds((side, side), None, preset) > expected_seconds((side, side), 5, preset)
    assert expected_memory(side**2, 1, 5, has_report=True) >= expected_memory(side**2, 1, 5)


def test_five_segments_are_taken_where_the_number_is_not_known():
    for preset in PRESETS:
        assert expected_memory(512**2, 1, None, preset) == expected_memory(512**2, 1, 5, preset)


def test_time_follows_the_machine(monkeypatch):
    fast = expected_seconds((512, 512), 5)
    monkeypatch.setattr(progress, "_seconds_of_a_trial", lambda: 0.03)
    assert expected_seconds((512, 512), 5) == pytest.approx(3 * fast)


def test_what_does_not_fit_into_memory_is_forecast_by_blocks(tmp_path, monkeypatch):
    """By blocks, memory does not grow with the image, and time does."""
    write_labels(tmp_path / "image.png", np.ones((600, 800), np.int32))
    assert describe(tmp_path / "image.png", None, "default")["read"] == "whole"
    monkeypatch.setattr("texseg.cli.inputs.free_memory", lambda: 10**7)
    found = describe(tmp_path / "image.png", 5, "default")
    assert found["read"] == "by blocks"
    small, large = (expected_by_blocks((side, side), 1, 5, "default") for side in (4000, 40000))
    assert small[0] == large[0] and large[1] > 50 * small[1]
    assert expected_by_blocks((4000, 4000), 1, None, "default", 8)[0] > 2 * small[0]


def test_a_file_is_described_for_a_preset(tmp_path):
    write_labels(tmp_path / "image.png", np.ones((600, 800), np.int32))
    plain, default = (describe(tmp_path / "image.png", 8, preset) for preset in ("plain", "default"))
    assert plain["seconds"] < default["seconds"]
    assert default["memory_MB"] <= default["with_report_MB"]


@pytest.mark.parametrize(
    "call", [lambda: expected_memory(100, preset="best"), lambda: expected_seconds((9, 9), preset="best")]
)
def test_a_preset_that_does_not_exist(call):
    with pytest.raises(ValueError, match="preset must be one of default, plain, got 'best'"):
        call()
