"""The parameters: their one declaration, presets, what overrides them, and how lengths follow the image."""

import inspect
import pydoc
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
)

from texseg import TextureSegmenter, segment
from texseg.parameters import PARAMETERS, PRESETS, Settings, checked
from texseg.segmenter import Segmenter


def test_a_preset_is_taken_as_it_is_when_nothing_is_changed():
    for name, settings in PRESETS.items():
        assert checked({"preset": name, "cell": None, "wavelengths": None, "patch_weight": None}) == settings


def test_what_is_given_overrides_the_preset():
    changed = checked(
        {"preset": "plain", "wavelengths": [3, 6.5], "n_orientations": 6, "patch_weight": 4, "n_starts": 1}
    )
    assert changed.wavelengths == (3.0, 6.5)
    assert changed.n_orientations == 6
    assert changed.patch_weight == 4
    assert changed.n_starts == 1
    assert changed.n_bins == PRESETS["plain"].n_bins
    assert PRESETS["plain"].n_orientations == 4


def test_an_unknown_preset_names_the_known_ones():
    message = "preset must be one of default, plain, got 'fast'"
    with pytest.raises(ValueError, match=re.escape(message)):
        checked({"preset": "fast"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("wavelengths", 4, "wavelengths must be a sequence of numbers from 2 to 1024, got 4"),
        ("wavelengths", ["a"], "wavelengths must be a sequence of numbers from 2 to 1024, got ['a']"),
        ("patch_weight", -0.5, "patch_weight must be a number from 0 to 1000000, got -0.5"),
        ("value_weight", float("nan"), "value_weight must be a number from 0 to 1000000, got nan"),
        ("patch_weight", "4", "patch_weight must be a number from 0 to 1000000, got '4'"),
        ("n_bins", 257, "n_bins must be a whole number from 2 to 256, got 257"),
        ("n_bins", True, "n_bins must be a whole number from 2 to 256, got True"),
        ("smoothness", -1, "smoothness must be a number from 0 to 10000, got -1"),
        ("learned_borders", 1, "learned_borders must be True, False or None, got 1"),
        ("cell", 0, "cell must be a whole number from 1 to 1024, got 0"),
        ("n_starts", 8.0, "n_starts must be a whole number from 1 to 100, got 8.0"),
        ("n_orientations", "4", "n_orientations must be a whole number from 1 to 64, got '4'"),
    ],
)
def test_values_that_cannot_be_are_refused_in_a_sentence(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        checked({name: value})


@pytest.mark.parametrize(
    ("side", "cell", "windows"),
    [
        (2000, 8, (48, 80)),
        (512, 8, (48, 80)),
        (384, 6, (36, 60)),
        (256, 4, (24, 40)),
        (30, 4, (24, 40)),
    ],
)
def test_lengths_follow_the_shorter_side_within_limits_and_filters_do_not(side, cell, windows):
    scaled = Settings().scaled(side)
    assert (scaled.cell, scaled.windows) == (cell, windows)
    assert scaled.wavelengths == Settings().wavelengths
    assert scaled.illumination_sigma == Settings().illumination_sigma


def test_cells_have_two_pixels_at_least():
    assert Settings(cell=1).scaled(600).cell == 2
    assert Settings(cell=3).scaled(100).cell == 2


def test_every_parameter_stands_in_signature_help_and_documentation_with_its_default():
    rows = [(name, row.default) for name, row in PARAMETERS.items()]
    for function, first in ((segment, ["image", "n_segments", "mask", "seeds"]), (TextureSegmenter, [])):
        signature = inspect.signature(function)
        assert list(signature.parameters)[: len(first)] == first
        found = {name: p.default for name, p in signature.parameters.items()}
        assert [(name, found[name]) for name, _ in rows] == rows
        text = pydoc.render_doc(function, renderer=pydoc.plaintext)
        assert all(f"{name}: " in text for name, _ in rows)
    assert list(TextureSegmenter(4).get_params()) == sorted(name for name, _ in rows)
    for name, _ in rows:
        assert f"\n{name} : " in inspect.getdoc(TextureSegmenter)


def test_an_unknown_parameter_is_refused_by_name():
    for function in (TextureSegmenter, Segmenter, lambda **p: segment(np.eye(9), **p)):
        with pytest.raises(
            TypeError, match="Segmenter has no parameter 'smothness'; it has n_segments, model"
        ):
            function(smothness=2)


def test_scikit_learn_can_clone_change_and_show_an_estimator():
    model = TextureSegmenter(3, smoothness=0.5, wavelengths=(4.0, 8.0))
    copy = clone(model)
    assert copy is not model and copy.get_params() == model.get_params()
    assert copy.set_params(k_max=5, cue="texture") is copy
    assert (copy.k_max, copy.cue, model.k_max) == (5, "texture", 14)
    assert "smoothness=0.5" in repr(copy) and "k_max=5" in repr(copy) and "n_bins" not in repr(copy)
    with pytest.raises(ValueError, match="Invalid parameter 'smothness' for estimator TextureSegmenter"):
        copy.set_params(smothness=1)
    assert copy._repr_html_() and copy.__sklearn_tags__().estimator_type == "clusterer"
    check_no_attributes_set_in_init("TextureSegmenter", TextureSegmenter())
    check_parameters_default_constructible("TextureSegmenter", TextureSegmenter())
