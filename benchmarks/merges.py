"""What merging segments by hand can gain: python benchmarks/merges.py DATA [--set real] [--every 2].

Every image is divided into as many segments as its truth has classes, and again into some more; of these,
pairs are merged one after the other, each time the pair that helps the adjusted Rand index most, until there
are as many as classes and nothing more is gained: what a user with good eyes does in the report.
"""

import argparse
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.datasets import SUITES
from benchmarks.measure import limit_threads, machine
from texseg import TextureSegmenter
from texseg.metrics import adjusted_rand_index


def score(case, labels):
    """Adjusted Rand index where the truth says something."""
    return adjusted_rand_index(labels, case.truth, case.ignore_label)


def best_merges(case, model):
    """Merge pairs of segments while that helps, and return the index."""
    best = score(case, model.labels_)
    while model.n_segments_ > 1:
        tries = {}
        for a, b in combinations(range(1, model.n_segments_ + 1), 2):
            tries[a, b] = score(case, np.where(model.labels_ == b, a, model.labels_))
        pair = max(tries, key=tries.get)
        if tries[pair] <= best and model.n_segments_ <= case.n_segments:
            break
        best = tries[pair]
        model.merge([pair])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", dest="suite", default="real", choices=sorted(SUITES))
    parser.add_argument("--more", type=int, default=2, help="segments beyond the classes of the truth")
    parser.add_argument("--every", type=int, default=1, help="take every n-th image")
    options = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    print(f"{'image':<40} {'K':>2} {'given':>6} {'merged':>6}")
    suite, rows = SUITES[options.suite], []
    for name in suite.names(options.data)[:: options.every]:
        case = suite.load(options.data, name)
        K = case.n_segments
        given = TextureSegmenter(K, channel_axis=case.channel_axis).fit(case.image)
        more = TextureSegmenter(K + options.more, channel_axis=case.channel_axis, flat_ground=False)
        more.fit(case.image)
        rows.append((score(case, given.labels_), best_merges(case, more)))
        print(f"{name:<40} {K:>2} {rows[-1][0]:>6.3f} {rows[-1][1]:>6.3f}", flush=True)
    means = np.mean(rows, axis=0)
    print(f"mean of {len(rows)}: {means[0]:.3f}, and {means[1]:.3f} with {options.more} more, merged")


if __name__ == "__main__":
    main()
