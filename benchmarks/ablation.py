"""What each part of the default path brings: python benchmarks/ablation.py DATA [--limit N].

Each row takes one part away and keeps the rest.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import SUITES
from benchmarks.measure import Table, limit_threads, machine, timed
from texseg import segment
from texseg.metrics import adjusted_rand_index, pixel_accuracy

ROWS: dict[str, dict] = {
    "default": {},
    "without learned borders": {"learned_borders": False},
    "without patches": {"patch_weight": 0},
    "without plain values": {"value_weight": 0},
    "one annealed run": {"n_starts": 1},
    "four annealed runs": {"n_starts": 4},
    "no prior on the map": {"smoothness": 0},
    "smaller cells": {"cell": 4},
    "divided by texture alone": {"cue": "texture"},
    "without the logarithm": {"log": False},
    "plain, as published": {"preset": "plain"},
}
SETS = ("outex", "prague", "brodatz5s", "brodatz12v", "rwtd", "real")
BY_RAND_INDEX = ("rwtd", "real")
"""Sets whose score is the adjusted Rand index; that of the others is the share of right pixels."""


def mean_score(data: Path, name: str, limit: int, parameters: dict) -> tuple[float, float]:
    """Mean score on some images of a set, evenly taken, and CPU seconds an image."""
    suite, scores, seconds = SUITES[name], [], []
    all_names = suite.names(data)
    for case_name in all_names[:: max(1, len(all_names) // limit)][:limit]:
        case = suite.load(data, case_name)
        arguments = {"channel_axis": case.channel_axis, **parameters}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels, cost = timed(partial(segment, case.image, case.n_segments, **arguments))
        seconds.append(cost)
        score = adjusted_rand_index if name in BY_RAND_INDEX else pixel_accuracy
        scores.append(score(labels, case.truth, case.ignore_label))
    return float(np.mean(scores)), float(np.mean(seconds))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--limit", type=int, default=20, help="so many images of each set, evenly taken")
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args(arguments)
    names = options.sets.split(",")
    limit_threads(1)
    print(machine(1))
    table = Table([("what", -34), *((name, 10) for name in names), ("CPU s", 6)])
    for row, parameters in ROWS.items():
        results = [mean_score(options.data, name, options.limit, parameters) for name in names]
        table.row(row, *(score for score, _ in results), results[0][1])


if __name__ == "__main__":
    main()
