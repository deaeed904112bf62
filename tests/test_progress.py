"""What is shown while something is computed, and when."""

import copy
import io

import numpy as np
import pytest
from ipykernel.iostream import OutStream
from sklearn.base import clone

from texseg import TextureSegmenter
from texseg.progress import ProgressBar
from texseg.segmenter import Progress

ROWS, COLUMNS = np.mgrid[:64, :96]
IMAGE = np.where(COLUMNS < 48, np.sin(ROWS * 2.0), np.sin(COLUMNS / 2))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_fit_shows_its_phases_and_leaves_the_line_empty():
    terminal = Terminal()
    with ProgressBar(stream=terminal) as bar:
        TextureSegmenter(n_segments=2, callback=bar).fit(IMAGE)
    text = terminal.getvalue()
    places = [text.index(phase) for phase in ("filters: ", "starts: ", "clusters: ", "boundaries: ")]
    assert places == sorted(places)
    assert text.endswith("\r") and not text.rsplit("\r", 2)[1].strip()


def test_the_steps_of_a_phase_are_counted_with_the_time_left():
    terminal = Terminal()
    with ProgressBar(stream=terminal) as bar:
        for done in (1, 2, 4):
            bar(Progress("boundaries", done, 8))
        bar(Progress("annealing, level 1", 3, 0))
    text = terminal.getvalue()
    assert "boundaries:  50%" in text and "4/8 [" in text and "<" in text
    assert "annealing, level 1: 3step [" in text  # the number of steps is not known beforehand


def test_a_batch_counts_images_and_tells_the_phase():
    terminal = Terminal()
    with ProgressBar(3, stream=terminal) as bar:
        bar(Progress("filters", 0, 1))
        bar.step()
        bar(Progress("clusters", 0, 1))
    text = terminal.getvalue()
    assert "0/3" in text and "1/3" in text
    assert text.index("filters") < text.index("clusters")


@pytest.mark.parametrize(("stream", "hidden"), [(io.StringIO(), False), (Terminal(), True)])
def test_nothing_is_shown_where_nobody_looks(stream, hidden):
    with ProgressBar(2, stream=stream, hidden=hidden) as bar:
        bar(Progress("filters", 0, 1))
        bar.step()
    assert bar.hidden and stream.getvalue() == ""


def test_notebooks_show_it_although_they_are_no_terminals():
    stream = type("OutStream", (io.StringIO,), {"__module__": OutStream.__module__})()
    with ProgressBar(stream=stream) as bar:
        bar(Progress("boundaries", 4, 8))
    assert not stream.isatty() and "boundaries:  50%" in stream.getvalue()


def test_estimators_with_a_bar_can_be_cloned():
    bar = ProgressBar(stream=Terminal())
    bar(Progress("filters", 0, 1))
    model = clone(TextureSegmenter(n_segments=2, callback=bar))
    assert copy.deepcopy(model.callback) is bar
    bar.close()
