"""How much the result depends on each constant: python benchmarks/constants.py DATA [--only NAME ...].

Every constant of the default path that was chosen by measurement is set to half and to double of what it is
(a share half way to 0 and to 1), and some images of each set are divided again. A row tells by how much the
score changes in the mean, and on the set where it falls most, and why the constant is what it is. All other
constants of these modules are listed by what they are.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import texseg
from benchmarks.datasets import SUITES, Case
from benchmarks.measure import limit_threads, machine
from texseg import segment
from texseg.metrics import adjusted_rand_index
from texseg.parameters import PRESETS

SETS = {"outex": (3,), "brodatz12v": (4,), "brodatz5s": (2,), "prague": (0, 3)} | {
    "rwtd": (5, 40, 75),
    "real": (2, 9, 20, 33),
}
"""Places of the images in their set; the adjusted Rand index judges all alike."""

MODULES = [
    "parameters",
    *(
        f"{room}.{path.stem}"
        for room in ("channels", "counts", "fitting", "method", "pixels")
        for path in sorted(Path(texseg.__file__).with_name(room).glob("[a-z]*.py"))
        if path.stem not in {"rescale", "hierarchy", "scenes", "labelling", "blocks", "edits", "modelfile"}
    ),
]
"""All that lies between an image and its labels."""

CONSTANTS: dict[str, dict[str, str]] = {
    "parameters": {
        "illumination_sigma": "pixels; longer than a grain, shorter than a change of light",
        "patch_weight": "of textons, where a filter counts 1: they see the form, moduli the strength",
        "cell": "pixels; the least area that shows something of a texture",
        "windows": "pixels; they must show a texture, but few may straddle a border",
        "potts.beta": "a full cell counts as 8.5 independent observations",
        "potts.strength": "nats; more than a cell's likelihood, or single cells would be speckled",
        "potts.sigma": "cells; shorter lets specks stand, longer rounds off small parts",
        "_SMALLEST_SCALE": "cells of fewer than 4 pixels say too little",
        "_VALUE_CELL": "pixels; what differs in values is smaller than any window",
        "_VALUE_STRENGTH": "nats; as potts.strength, on cells of plain values",
    },
    "channels.encode": {
        "_VALUE_BINS": "slowly changing light moves plain values by a bin or two, not by ten",
        "_MODULUS_TOP": "percentile; the few strongest responses would stretch the bins",
    },
    "channels.quantize": {
        "_OVERSHOOT": "ranges; what lies beyond is clipped, and a lone pixel there replaced",
        "_FENCE": "widths; amplitudes and exponential values stay inside, wrong ones do not",
        "_FEWEST_ALIKE": "share; a value that so many pixels have, far from all others, means something else",
    },
    "channels.responses": {
        "_LOG_OFFSET": "medians; or zeros would fill the range of logarithms",
        "_VALUES_OF_LOG": "factor; light changes plain values, which therefore count less",
        "_COLOUR_WEIGHT": "of all colours together, where a filter counts 1",
        "_LAB_SHARES": "of it; chroma, which light hardly changes, counts more than lightness",
        "_PATCH_CONTRAST": "of the image's contrast; textons must see weak textures, too",
    },
    "channels.textons": {"PATCH_SIDE": "pixels; the smallest neighbourhood with a form"},
    "channels.ground": {
        "_FLAT": "of the range in textures; noise of a twentieth of their contrast stays below",
        "_TEXTURED": "percentile that stands for textures, which may cover little of a slide",
        "_LEAST_SHARE": "of the image; smaller areas are textures like any other",
        "_ONE_VALUE": "levels; skies and water, which change slowly, are textures",
    },
    "channels.notes": {
        "_BLOCK": "pixels; must show a texture, and little of a change of light",
        "_LAGS": "pixels; contrasts that recognise blocks of one texture",
        "_ALIKE": "blocks compared with each; all of one texture",
        "_SURELY_TOGETHER": "correlation; sonar, speckle, vignetting, gains have more",
        "_ONE_FACTOR": "slope; 1 if one factor changes brightness and contrast, but noise biases it",
    },
    "counts.sites": {
        "BACKGROUND": "share; what a cluster has never seen is unlikely, not impossible",
    },
    "method.number": {
        "_FEWEST_INTERIOR": "cells; a cluster with fewer follows borders",
    },
    "method.clusters": {
        "_HALF": "of the windows; those at borders are fewer",
        "_MERITS": "of three logarithms in the odds between two solutions, learned by logistic regression",
    },
    "method.cues": {
        "_WEIGHTS": "of the four logarithms in the log-odds of values, learned by logistic regression",
        "_CONSTANT": "of these log-odds, learned with the weights",
    },
    "method.textures": {
        "_CHANNEL_DEPENDENCE": "channels that carry the information of one; measured on single textures",
        "_PART": "cells; a smaller part cannot be told from a flaw, and pieces of composites are as large",
    },
    "pixels.borders": {
        "_WINDOWS": "pixels; the finest that tell textures apart, and the coarsest that see a border's place",
        "_HEAVY": "degrees of freedom; Gaussian densities would be ruled by flaws",
    },
}
"""Numbers chosen by measurement on which the labels of `segment` depend, with the reason for each."""

OTHERS: dict[str, dict[str, str]] = {
    "of volumes and stacks of planes only; see volumes.py": {
        "parameters": "_CELL_OF_SPACE _DIRECTIONS_OF_SPACE _REFERENCE_VOLUME potts.coupling",
        "channels.gabor": "_BLOCK_OF_SPACE _FOLDS _WIDTH",
        "channels.textons": "_SIDE_IN_SPACE",
        "method.pairs": "_MOST_WINDOWS_IN_SPACE",
        "method.textures": "_WIDER",
        "pixels.label": "_OF_VOLUMES _PLANES",
    },
    "from A.I. Memo 1625, section 6.3": {"parameters": "wavelengths n_orientations n_bins"},
    "parameters that are 1, and change nothing": {"parameters": "smoothness value_weight"},
    "effort: more takes longer, and changes results little or not": {
        "parameters": "n_starts potts.n_rounds potts.n_sweeps",
        "channels.notes": "_MOST_BLOCKS _MOST_COMPARED _SLICES",
        "channels.quantize": "_SAMPLES",
        "channels.responses": "_MAX_COMPONENTS _REDUCTION",
        "channels.textons": "_SAMPLES _ITERATIONS",
        "method.clusters": (
            "_MOST_WINDOWS _HOTTEST _COOLING _STEPS _TOLERANCE _RUNS _MORE _FEWEST _WORST _POWERS _TRIED"
        ),
        "counts.sites": "WINDOW_STEP",
        "method.cues": "_STRIDE",
        "fitting.assignment": "SETTLING_SWEEPS",
        "fitting.moves": "POWER_STEPS HALVES_STEPS MOVES",
        "method.number": "_RIVALS",
        "method.pairs": "_ENOUGH_WINDOWS",
        "fitting.steps": "ETA_GROWTH CALM_STEPS",
        "pixels.borders": "_N_COMPOSITES _PER_TEXTURE _SHARE",
        "pixels.composites": "_TRIES _STRIDE _LARGEST",
        "pixels.label": "_REDUCTION",
    },
    "floors in place of zero, and least numbers of samples; ten times more or less is the same": {
        "channels.notes": "_FEWEST_BLOCKS",
        "fitting.assignment": "_TINY",
        "method.clusters": "_LEAST_GAIN _LEAST_SPREAD _LEAST_VALUE _FEW",
        "method.pairs": "_LEAST_SPREAD _LEAST_VARIANCE _FEWEST_NEAR",
        "pixels.borders": "_FEWEST _RIDGE _NEVER _COLD _TINY",
    },
    "definitions of evidence: the odds of pairs and the weights of merits and cues were learned with them": {
        "method.clusters": "_LEAST",
        "method.cues": "_UNTOLD",
        "method.pairs": (
            "_MOST_CELLS _INSIDE _CONTACT_POWER _NO_CONTACT _USUAL_CONTACT _INTERLEAVED _LEAST_SIDE _FIRST "
            "_USUAL_STEP _OTHERS _COMPARED"
        ),
    },
    "definitions of what is meant: by lengths, by a wrong number, by outliers, by flat": {
        "method.cues": "_FLAT _LEVELS EXACT",
        "channels.quantize": "_MOST_OUTLIERS",
        "method.number": "_EXACT _AS_GOOD",
        "parameters": "_REFERENCE_SIDE",
    },
    "exact arithmetic": {
        "channels.quantize": "_GRID",
        "channels.textons": "_UNIT _MOST",
        "channels.gabor": "_HALF_PEAK _HALO_SIGMAS _FELT_SIGMAS _FAR_SIGMAS",
        "channels.encode": "_SIGMAS",
    },
    "memory and speed; labels are the same to the pixel": {
        "channels.gabor": "_BLOCK _KEPT_TRANSFERS",
        "channels.textons": "_STRIP",
        "channels.quantize": "_AT_ONCE",
        "counts.matrix": "_BLOCK_ENTRIES _DEALT_SINGLY",
        "counts.sites": "_STRIP",
        "fitting.assignment": "_NUMBERS_AT_ONCE _STRIP",
        "pixels.label": "_STRIP",
        "method.pairs": "_NUMBERS_AT_ONCE",
        "pixels.borders": "_BLOCK _ROWS",
        "pixels.composites": "_ROWS",
        "method.cues": "_ROWS",
        "pixels.planes": "_PIXELS",
        "method.textures": "_STRIP _MANY_CELLS _MOST_PACKED _BAND",
    },
    "derived from others": {
        "counts.sites": "FAR",
        "channels.ground": "_NARROW _BROAD",
        "channels.quantize": "FARTHEST",
        "channels.responses": "PATCH_REACH",
        "method.pairs": "_RULES",
        "pixels.borders": "PATCH_SIZE",
    },
    "confidence, unknown parts, words about a result": {
        "channels.notes": "_HEAVY",
        "method.confidence": "CURVE",
        "method.matching": "_POINTS",
        "method.number": "_LISTED _MOST_LISTED _LIKELY _TIE",
        "method.textures": "_CALIBRATION _ROOM _PATCH",
    },
    "what is rare, and large scenes: which crops are learned from, and what is said of the rest": {
        "method.sampling": (
            "CROP_SIDE CROPS CROP_OF_STACK _UNIT _MOST_UNITS _PIECE _LAGS _BINS _FINE _HELD _UNLIKE _EVEN "
            "_CANDIDATES _SAID FEWEST_CROPS"
        ),
        "method.clusters": "_POOR _TOGETHER _FEWEST_APART",
        "method.division": "_RARE _LIKELY _DOUBTFUL",
    },
    "only with strokes, or only without additions": {
        "method.seeds": (
            "SEED_STRENGTH PIN _WINDOWS _AXES _PENALTY _RIDGE _DEPENDENCE _LEAST _ROUNDS _SURE _OWN_WEIGHT "
            "_MOST_CELLS _MOST_STEPS _LEAST_SCALE"
        ),
        "method.division": "_CHANGED",
        "method.textures": "_SMALL_WINDOWS _PLAIN_WINDOWS _FINEST",
    },
    "limits of what may be asked for": {
        "parameters": "MOST_SEGMENTS _HEAVIEST _LARGEST_IMAGE _LONGEST_SHOWN",
    },
}
"""The other constants of the same modules, by what they are."""

SHARES = {"_HALF", "_LEAST_SHARE", "_SMALLEST_SCALE", "_SURELY_TOGETHER"}
TRIED: dict[str, tuple[Any, Any]] = {
    "_MODULUS_TOP": (99.0, 99.75),
    "_LAB_SHARES": ((1 / 3, 1 / 3, 1 / 3), (1 / 8, 7 / 16, 7 / 16)),
    "PATCH_SIDE": (3, 5),
    "_TEXTURED": (96, 99),
    "_LAGS": ((1, 2), (1, 2, 4, 8)),
    "_ONE_FACTOR": ((0.9, 1.2), (0.7, 1.5)),
    "_WINDOWS": ((1, 3), (5, 15)),
}
"""What is tried where half and double mean nothing."""


def alternatives(name: str, value: Any) -> tuple[Any, Any]:
    """Two other values of a constant, a smaller and a larger one."""
    if name in TRIED:
        return TRIED[name]
    if name in SHARES:
        return value / 2, (1 + value) / 2
    if isinstance(value, tuple):
        return tuple(each / 2 for each in value), tuple(each * 2 for each in value)
    if isinstance(value, int):
        return max(1, round(value / 2)), value * 2
    return value / 2, value * 2


@contextmanager
def changed(place: str, name: str, value: Any) -> Iterator[None]:
    """Give a constant another value in all modules and defaults that hold it, or a setting in the preset."""
    if place == "parameters" and not name.startswith("_"):
        before = PRESETS["default"]
        field = name.removeprefix("potts.")
        of_potts = {"potts": before.potts._replace(**{field: value})} if "." in name else {name: value}
        PRESETS["default"] = replace(before, **of_potts)
        yield
        PRESETS["default"] = before
        return
    before = value_of(place, name)
    modules = [m for each, m in sorted(sys.modules.items()) if each.startswith("texseg.")]
    with ExitStack() as stack:
        for module in modules:
            if getattr(module, name, None) is before:
                stack.enter_context(patch.object(module, name, value))
            for held in list(vars(module).values()):
                function = held.__init__ if isinstance(held, type) else held
                defaults = getattr(function, "__defaults__", None) or ()
                if isinstance(before, float) and any(default is before for default in defaults):
                    new = tuple(value if default is before else default for default in defaults)
                    stack.enter_context(patch.object(function, "__defaults__", new))
        yield


def value_of(place: str, name: str) -> Any:
    """Value of a constant."""
    if place == "parameters" and not name.startswith("_"):
        default = PRESETS["default"]
        return getattr(default.potts if "." in name else default, name.removeprefix("potts."))
    return getattr(importlib.import_module(f"texseg.{place}"), name)


def scores(cases: dict[str, list[Case]]) -> dict[str, float]:
    """Mean adjusted Rand index on each set."""
    result = {}
    for name, each in cases.items():
        found = []
        for case in each:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                labels = segment(case.image, case.n_segments, channel_axis=case.channel_axis)
            found.append(adjusted_rand_index(labels, case.truth, ignore_label=case.ignore_label))
        result[name] = float(np.mean(found))
    return result


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(shown(each) for each in value) + ")"
    return f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", help="names of constants")
    options = parser.parse_args(arguments)
    limit_threads(1)
    print(machine(1))
    cases = {
        name: [SUITES[name].load(options.data, SUITES[name].names(options.data)[i]) for i in places]
        for name, places in SETS.items()
    }
    now = scores(cases)
    print(", ".join(f"{name} {score:.3f}" for name, score in now.items()))
    print("| constant | value | less | more | why |\n|---|---|---|---|---|")
    for place, names in CONSTANTS.items():
        for name, reason in names.items():
            if options.only and name not in options.only:
                continue
            value, cells = value_of(place, name), []
            for other in alternatives(name, value):
                with changed(place, name, other):
                    found = scores(cases)
                changes = {each: found[each] - now[each] for each in now}
                worst = min(changes, key=changes.__getitem__)
                cell = f"{shown(other)}: {np.mean(list(changes.values())):+.3f}"
                cells.append(cell + f" ({changes[worst]:+.3f} {worst})" * (changes[worst] < -0.0005))
            row = (f"{place}.{name.lstrip('_')}", shown(value), *cells, reason)
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
