"""How often the intervals of area fractions hold the true ones, on mosaics with the number given.

Usage: python benchmarks/areas.py DATA [--suites outex] [--images 50]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import SUITES
from benchmarks.measure import Table, limit_threads
from texseg import TextureSegmenter, match_labels, segment_table


def measure(data: Path, suite: str, n_images: int) -> list[str]:
    """Share of the segments whose interval holds the true fraction, and means over them."""
    held, widths, errors = [], [], []
    for name in SUITES[suite].names(data)[:n_images]:
        case = SUITES[suite].load(data, name)
        model = TextureSegmenter(case.n_segments, channel_axis=case.channel_axis).fit(case.image)
        probabilities = model.predict_proba(case.image)
        truth = match_labels(case.truth, model.labels_)
        for row in segment_table(model.labels_, probabilities=probabilities):
            true = float(np.mean(truth == row.label))
            assert row.fraction_low is not None and row.fraction_high is not None
            held.append(row.fraction_low <= true <= row.fraction_high)
            widths.append(row.fraction_high - row.fraction_low)
            errors.append(abs(row.fraction - true))
    return [suite, str(len(held)), *(f"{np.mean(each):.4f}" for each in (held, widths, errors))]


def main(arguments: list[str] | None = None) -> None:
    """Print a line a suite."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--suites", default="outex")
    parser.add_argument("--images", type=int, default=50)
    options = parser.parse_args(arguments)
    limit_threads(1)
    table = Table([("suite", -12), ("segments", 8), ("intervals that hold", 19), ("width", 7), ("error", 7)])
    for suite in options.suites.split(","):
        table.row(*measure(options.data, suite, options.images))


if __name__ == "__main__":
    main()
