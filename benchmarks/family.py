"""The models of the family on images, one table and one figure: python benchmarks/family.py DATA --every 17.

`acm` is the default path; the other models label its cells, and their pixels are then labelled in the same
way. Number of segments given. Free energies are those of each model's own objective: to be compared within a
model only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.accuracy import Method, Outcome, Task, run
from benchmarks.datasets import SUITES
from benchmarks.measure import Table, limit_threads, machine

MODELS = ("acm", "acm-hard", "smm", "pmm", "scm", "hacm")
SETS = ("outex", "prague", "brodatz5v", "brodatz5s", "brodatz12v", "fabrics5v", "rwtd", "real")
FEW = 3
"""Images of a set, at least."""

Results = dict[tuple[str, str], list[Outcome]]


def measured(data: Path, sets: Sequence[str], models: Sequence[str], every: int) -> Results:
    """Print a row for each set and model, as soon as it is there."""
    table = Table(
        [("set", -11), ("n", 3), ("model", -9), ("CO", 6), ("worst", 6), ("ARI", 6), ("CPU s", 6), ("F", 9)]
    )
    results: Results = {}
    for suite in sets:
        names = SUITES[suite].names(data)
        names = names[:: min(every, max(1, len(names) // FEW))]
        for model in models:
            method = Method(f"texseg default {model}", {"model": model, "random_state": 0})
            found = [run(Task(data, suite, name, method, True, False)) for name in names]
            results[suite, model] = found
            right = [outcome.score.co for outcome in found]
            table.row(
                suite,
                len(found),
                model,
                float(np.mean(right)),
                float(np.min(right)),
                float(np.mean([outcome.score.ari for outcome in found])),
                float(np.median([outcome.seconds for outcome in found])),
                round(float(np.mean([outcome.free_energy for outcome in found]))),
            )
    return results


def draw(results: Results, sets: Sequence[str], models: Sequence[str], path: Path) -> None:
    """Right pixels of every image and their mean, by set and model; time a call beside them."""
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=[4, 1], sharex=False
    )
    colours = pyplot.get_cmap("tab10").colors
    for m, model in enumerate(models):
        shift = (m - (len(models) - 1) / 2) * 0.13
        for s, suite in enumerate(sets):
            right_pixels = [outcome.score.co for outcome in results[suite, model]]
            options: dict[str, Any] = {"color": colours[m], "label": model if s == 0 else None}
            left.plot(np.full(len(right_pixels), s + shift), right_pixels, ".", ms=3, color=colours[m])
            left.plot([s + shift], [np.mean(right_pixels)], "_", ms=9, mew=2.5, **options)
        seconds = [outcome.seconds for suite in sets for outcome in results[suite, model]]
        right.barh(m, float(np.mean(seconds)), color=colours[m])
    left.set(xticks=range(len(sets)), xticklabels=sets, ylabel="pixels right; line: mean")
    left.tick_params(axis="x", labelrotation=20)
    left.legend(fontsize=8, ncols=3, loc="lower left")
    right.set(yticks=range(len(models)), yticklabels=models, xlabel="CPU s a call, mean")
    right.invert_yaxis()
    figure.savefig(path, dpi=90, metadata={"Software": None})
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(SUITES), default=list(SETS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--every", type=int, default=1, help="only every so manieth image, three at least")
    parser.add_argument("--figure", type=Path, help="where to draw; nothing by default")
    options = parser.parse_args(arguments)
    limit_threads(1)
    matplotlib.use("agg")
    print(machine(1))
    results = measured(options.data, options.sets, options.models, options.every)
    if options.figure is not None:
        draw(results, options.sets, options.models, options.figure)


if __name__ == "__main__":
    main()
