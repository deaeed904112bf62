"""How much the result depends on each constant: python benchmarks/constants.py DATA [--only NAME ...].

Every constant of the default path that was chosen by measurement is set to half and to double of what it is
(a share half way to 0 and to 1), and some images of each set are divided again. A row tells by how much the
score changes in the mean, and on the set where it falls most. Constants of exact arithmetic, of speed alone
and of what is said about a result are not among them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import SUITES, Case
from benchmarks.measure import Table, limit_threads, machine
from texseg import segment
from texseg.metrics import adjusted_rand_index
from texseg.settings import PRESETS

SETS = {"outex": (3,), "brodatz12v": (4,), "brodatz5s": (2,), "prague": (0, 3)} | {
    "rwtd": (5, 40, 75),
    "real": (2, 9, 20, 33),
}
"""Places of the images in their set; the adjusted Rand index judges all alike."""

CONSTANTS = {
    "settings": (
        "illumination_sigma patch_weight value_weight smoothness cell windows n_starts boundary_sigma "
        "potts.beta potts.strength potts.sigma potts.n_rounds potts.n_sweeps n_bins"
    ),
    "channels.encode": "_VALUE_BINS",
    "channels.quantize": "_OVERSHOOT",
    "channels.responses": "_COLOUR_WEIGHT _GREY_WEIGHT _PATCH_CONTRAST",
    "channels.textons": "_SAMPLES _ITERATIONS",
    "counts.sites": "FAR BACKGROUND",
    "fitting.candidates": "_SAME _EXTRAPOLATION",
    "fitting.pairs": "_ENOUGH_WINDOWS _INSIDE _CONTACT_POWER _INTERLEAVED _LEAST_SIDE",
    "clusters": (
        "_PRESENT _CALM _HOTTEST _COOLING _COLDEST _STEPS _MOVE_ROUNDS _NEIGHBOURS _NEAR_TIE "
        "_MOST_RIVALS _APART _ODDS"
    ),
    "textures": "_SPECK_SIDE _FOREIGN SETTLING_SWEEPS _CHANNEL_DEPENDENCE",
    "pixels.borders": "_HEAVY _FLOOR _PIECE _MARGIN _NEAR _CLEAR _N_COMPOSITES _PER_TEXTURE _SHARE _RIDGE",
    "pixels.composites": "_TRIES _BEND _BEND_LENGTH",
}
SHARES = {"_CALM", "_HOTTEST", "_COOLING", "_NEAR_TIE", "_SAME", "_PRESENT", "_INSIDE"}


def scaled(value: Any, factor: float, is_share: bool) -> Any:
    """Change a constant; shares go half way to 0 or to 1."""
    if isinstance(value, tuple):
        return tuple(scaled(each, factor, is_share) for each in value)
    if is_share:
        return value / 2 if factor < 1 else (1 + value) / 2
    changed = value * factor
    return max(1, round(changed)) if isinstance(value, int) else changed


def set_setting(name: str, factor: float | None) -> None:
    """Change one of the default preset's settings, or take the change back."""
    default = set_setting.original
    if factor is None:
        PRESETS["default"] = default
    elif name.startswith("potts."):
        field = name.removeprefix("potts.")
        value = scaled(getattr(default.potts, field), factor, False)
        PRESETS["default"] = replace(default, potts=default.potts._replace(**{field: value}))
    else:
        PRESETS["default"] = replace(default, **{name: scaled(getattr(default, name), factor, False)})


set_setting.original = PRESETS["default"]


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
    columns = [("half", 7), ("worst", 18), ("double", 7), ("worst ", 18)]
    table = Table([("constant", -34), ("value", 12), *columns])
    for place, names in CONSTANTS.items():
        module = importlib.import_module(f"texseg.{place}")
        for name in names.split():
            if options.only and name not in options.only:
                continue
            row: list[Any] = []
            value = None
            for factor in (0.5, 2.0):
                if place == "settings":
                    field = name.removeprefix("potts.")
                    holder = set_setting.original.potts if "." in name else set_setting.original
                    value = getattr(holder, field)
                    set_setting(name, factor)
                    found = scores(cases)
                    set_setting(name, None)
                else:
                    value = getattr(module, name)
                    setattr(module, name, scaled(value, factor, name in SHARES))
                    found = scores(cases)
                    setattr(module, name, value)
                changes = {each: found[each] - now[each] for each in now}
                worst = min(changes, key=changes.__getitem__)
                row += [f"{np.mean(list(changes.values())):+.3f}", f"{changes[worst]:+.3f} {worst}"]
            shown = f"{value:.3g}" if isinstance(value, float) else str(value)
            table.row(f"{place}.{name.lstrip('_')}", shown, *row)


if __name__ == "__main__":
    main()
