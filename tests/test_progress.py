"""What is shown while something is computed, and when."""

import copy
import io
import pickle
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from sklearn.base import clone

from texseg import TextureSegmenter, segment
from texseg.cli import main
from texseg.progress import Progress, ProgressBar

ROWS, COLUMNS = np.mgrid[:64, :96]
IMAGE = np.where(COLUMNS < 48, np.sin(ROWS * 2.0), np.sin(COLUMNS / 2))


class Terminal(io.StringIO):
    def isatty(self):
        return True


PHASES = ["filters", "histograms", "annealing", "clusters", "borders", "pixels"]


def assert_shown(text, phases):
    places = [text.index(f"{phase}") for phase in phases]
    assert places == sorted(places)
    assert text.endswith("\r") and not text.rsplit("\r", 2)[1].strip()  # the line is empty again


# ---- what a fit tells --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "phases"),
    [
        ({"n_segments": 2}, PHASES),
        ({}, [*PHASES[:2], "number", *PHASES[3:]]),
        ({"n_segments": 2, "preset": "plain"}, [phase for phase in PHASES if phase != "borders"]),
        ({"n_segments": 2, "model": "smm"}, [phase for phase in PHASES if phase != "annealing"]),
    ],
)
def test_a_fit_tells_its_phases_and_the_share_of_the_time_behind(parameters, phases):
    told = []
    model = TextureSegmenter(callback=told.append, n_jobs=1, **parameters).fit(IMAGE)
    assert list(dict.fromkeys(progress.phase for progress in told)) == phases
    shares = [progress.share for progress in told]
    assert shares == sorted(shares)
    assert shares[0] == 0 and shares[-1] == 1
    assert all(0 <= progress.done <= progress.total for progress in told)
    filters = [progress for progress in told if progress.phase == "filters"]
    n_channels = len(model.channel_names_)
    assert [progress[1:3] for progress in filters] == [(i, n_channels) for i in range(n_channels)]


def test_the_borders_of_several_images_are_counted():
    told = []
    TextureSegmenter(2, callback=told.append).fit([IMAGE, IMAGE[:, 20:80]])
    borders = [progress[1:3] for progress in told if progress.phase == "pixels"]
    assert borders == [(0, 2), (1, 2), (2, 2)]


# ---- verbose -----------------------------------------------------------------------------------------------


def test_verbose_shows_the_phases_and_leaves_the_line_empty():
    with redirect_stderr(Terminal()) as terminal:
        segment(IMAGE, 2, verbose=True)
    assert_shown(terminal.getvalue(), PHASES)


def test_verbose_and_a_callback_go_together():
    told = []
    with redirect_stderr(Terminal()) as terminal:
        model = TextureSegmenter(2, verbose=True, callback=told.append).fit(IMAGE)
    assert [progress.phase for progress in told][-1] == "pixels"
    assert_shown(terminal.getvalue(), PHASES)
    np.testing.assert_array_equal(model.labels_, segment(IMAGE, 2))


def test_the_bar_is_taken_away_when_a_callback_ends_the_fit():
    def stop(progress):
        if progress.phase == "clusters":
            raise KeyboardInterrupt

    with redirect_stderr(Terminal()) as terminal, pytest.raises(KeyboardInterrupt):
        segment(IMAGE, 2, verbose=True, callback=stop)
    assert_shown(terminal.getvalue(), PHASES[:4])


def test_verbose_is_silent_where_nobody_looks(capfd):
    segment(IMAGE, 2, verbose=True)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_shown_unless_it_is_asked_for():
    with redirect_stderr(Terminal()) as terminal:
        segment(IMAGE, 2)
    assert terminal.getvalue() == ""


def test_verbose_stays_a_plain_parameter(tmp_path):
    model = TextureSegmenter(2, verbose=True).fit(IMAGE)
    assert model.get_params()["verbose"] is True
    assert clone(model).verbose is True
    assert TextureSegmenter().verbose is False
    model.save(tmp_path / "loud.texseg")
    TextureSegmenter(2).fit(IMAGE).save(tmp_path / "still.texseg")
    assert (tmp_path / "loud.texseg").read_bytes() == (tmp_path / "still.texseg").read_bytes()
    assert TextureSegmenter.load(tmp_path / "loud.texseg").verbose is False
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(IMAGE), model.labels_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"verbose": "yes"}, "verbose must be True or False, got 'yes'"),
        ({"callback": "print"}, "callback must be a function of one Progress, got 'print'"),
    ],
)
def test_what_is_no_switch_and_no_function_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        segment(IMAGE, 2, **parameters)


# ---- the bar -----------------------------------------------------------------------------------------------


def test_a_bar_can_be_the_callback():
    terminal = Terminal()
    with ProgressBar(stream=terminal) as bar:
        TextureSegmenter(n_segments=2, callback=bar).fit(IMAGE)
    assert_shown(terminal.getvalue(), PHASES)


def test_the_share_behind_and_the_time_left_are_shown():
    terminal = Terminal()
    with ProgressBar(stream=terminal) as bar:
        bar(Progress("annealing", 20, 24, 0.75))
        bar._bar.start_t -= 90
        bar(Progress("pixels", 0, 1, 0.9))
    text = terminal.getvalue()
    assert "annealing 20/24:  75%|" in text
    assert "pixels:  90%|" in text
    assert "[01:30<00:10]" in text


def test_a_batch_counts_images_and_tells_the_phase_and_the_time_left():
    terminal = Terminal()
    with ProgressBar(4, stream=terminal) as bar:
        assert "0/4 images:   0%" in terminal.getvalue()
        bar(Progress("filters", 6, 12, 0.2))
        bar.step()
        bar._bar.start_t -= 60
        bar(Progress("clusters", 0, 1, 0.5))
    text = terminal.getvalue()
    assert "0/4 images, filters 6/12:   5%|" in text
    assert "1/4 images:  25%|" in text
    assert "1/4 images, clusters:  38%|" in text
    assert "[01:00<01:40]" in text


def run_on_two_images(folder, *options):
    """Standard error of the command on a folder, seen on a terminal, and the lines it prints."""
    for name, image in (("a.npy", IMAGE), ("b.npy", IMAGE.T)):
        np.save(folder / name, image)
    with redirect_stderr(Terminal()) as terminal, redirect_stdout(io.StringIO()) as printed:
        with pytest.raises(SystemExit) as end:
            main(["segment", str(folder), "-k", "2", "-o", str(folder / "out"), *options])
    assert end.value.code == 0
    return terminal.getvalue(), printed.getvalue().splitlines()


def test_the_command_counts_images_and_tells_phases(tmp_path):
    text, printed = run_on_two_images(tmp_path)
    assert_shown(
        text, ["0/2 images:   0%", *(f"0/2 images, {phase}" for phase in PHASES), "1/2 images:  50%"]
    )
    assert_shown(text, [*(f"1/2 images, {phase}" for phase in PHASES), "2/2 images: 100%"])
    assert printed[-1] == "2 done, 0 failed" and len(printed) == 3


def test_the_command_shows_the_fit_of_a_shared_model_and_then_counts(tmp_path):
    text, _ = run_on_two_images(tmp_path, "--shared", "--jobs", "1")
    assert_shown(text, ["filters ", "clusters", "pixels 1/2", "0/2 images", "1/2 images:  50%"])


def test_the_command_is_quiet_when_asked(tmp_path):
    assert run_on_two_images(tmp_path, "--quiet") == ("", [])


@pytest.mark.parametrize(("stream", "hidden"), [(io.StringIO(), False), (Terminal(), True)])
def test_nothing_is_shown_where_nobody_looks(stream, hidden):
    with ProgressBar(2, stream=stream, hidden=hidden) as bar:
        bar(Progress("filters", 0, 1, 0.0))
        bar.step()
    assert bar.hidden and stream.getvalue() == ""


def test_notebooks_show_it_although_they_are_no_terminals():
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    with ProgressBar(stream=stream) as bar:
        bar(Progress("pixels", 4, 8, 0.5))
    assert not stream.isatty() and "pixels 4/8:  50%" in stream.getvalue()


def test_estimators_with_a_bar_can_be_cloned():
    bar = ProgressBar(stream=Terminal())
    bar(Progress("filters", 0, 1, 0.0))
    model = clone(TextureSegmenter(n_segments=2, callback=bar))
    assert copy.deepcopy(model.callback) is bar
    bar.close()
