"""Strokes against peers: python benchmarks/strokes.py DATA [--set real] [--every 2] [--draws 1].

On every image, in each class, strokes 5 pixels wide and 40 long are drawn by a seeded program inside the
class's largest part. The same strokes are given to texseg, to a random forest on scikit-image's
`multiscale_basic_features` (its trainable segmentation), and to its random walker. Judged is the adjusted
Rand index where the truth says something, beside that of texseg with the number of classes and no strokes.
"""

import argparse
import sys
import time
import warnings
import zlib
from pathlib import Path

import cv2
import numpy as np
from skimage.feature import multiscale_basic_features
from skimage.measure import label
from skimage.segmentation import random_walker
from sklearn.ensemble import RandomForestClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.datasets import SUITES
from benchmarks.measure import limit_threads, machine
from texseg import TextureSegmenter
from texseg.metrics import adjusted_rand_index

WIDTH, LENGTH = 5, 40
TRIES = 200  # places of a stroke, until one lies inside
WHOLE = 0.9  # share of a stroke's pixels that a straight one has at least


def draw_strokes(truth, ignore_label, n_strokes, rng):
    """Strokes (H, W) of every class, numbered from 1 in the order of the values of the truth."""
    seeds = np.zeros(truth.shape, np.int32)
    values = np.setdiff1d(truth, [] if ignore_label is None else [ignore_label])
    for number, value in enumerate(values, start=1):
        parts = label(truth == value, connectivity=1)
        part = parts == np.bincount(parts.ravel())[1:].argmax() + 1
        for _ in range(n_strokes):
            seeds[one_stroke(part, rng)[0]] = number
    return seeds


def one_stroke(part, rng):
    """Pixels (H, W) and ends of a straight stroke inside a part: of those that were tried, the most."""
    rows, columns = np.nonzero(part)
    best, most = (part, ()), -1
    for _ in range(TRIES):
        i, angle = rng.integers(len(rows)), rng.uniform(0, np.pi)
        half = LENGTH / 2 * np.array([np.cos(angle), np.sin(angle)])
        centre = np.array([columns[i], rows[i]])
        drawn = np.zeros(part.shape, np.uint8)
        ends = (np.rint(centre - half).astype(int).tolist(), np.rint(centre + half).astype(int).tolist())
        cv2.line(drawn, *ends, 1, WIDTH)
        inside = np.count_nonzero(drawn & part)
        if inside > most:
            best, most = (drawn.astype(bool) & part, ends), inside
        if inside == np.count_nonzero(drawn) and inside >= WHOLE * WIDTH * LENGTH:
            break
    return best


def by_texseg(case, seeds):
    model = TextureSegmenter(case.n_segments, channel_axis=case.channel_axis)
    return model.fit(case.image, seeds=seeds).labels_


def by_forest(case, seeds):
    features = multiscale_basic_features(case.image, channel_axis=case.channel_axis, sigma_max=16)
    forest = RandomForestClassifier(n_estimators=100, max_depth=10, max_samples=0.5, random_state=0)
    forest.fit(features[seeds > 0], seeds[seeds > 0])
    return forest.predict(features.reshape(-1, features.shape[-1])).reshape(seeds.shape)


def by_walker(case, seeds):
    return random_walker(case.image, seeds, mode="cg_j", channel_axis=case.channel_axis)


METHODS = {"texseg": by_texseg, "forest": by_forest, "walker": by_walker}


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", dest="suite", default="real", choices=sorted(SUITES))
    parser.add_argument("--every", type=int, default=1, help="take every n-th image")
    parser.add_argument("--limit", type=int, help="take so many images")
    parser.add_argument("--draws", type=int, default=1, help="random drawings of the strokes")
    parser.add_argument("--strokes", type=int, nargs="+", default=[1, 3], help="a class")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args(arguments)
    limit_threads(1)
    warnings.simplefilter("ignore")
    print(machine(1))
    columns = [f"{method}, {n}" for n in options.strokes for method in options.methods]
    print(f"{'image':<40} {'none':>10} " + " ".join(f"{column:>10}" for column in columns))
    suite, rows, fields, seconds = SUITES[options.suite], [], [], []
    for name in suite.names(options.data)[:: options.every][: options.limit]:
        case = suite.load(options.data, name)
        model = TextureSegmenter(case.n_segments, channel_axis=case.channel_axis).fit(case.image)
        row = [adjusted_rand_index(model.labels_, case.truth, case.ignore_label)]
        for n in options.strokes:
            found = {method: [] for method in options.methods}
            for draw in range(options.draws):
                rng = np.random.default_rng([zlib.crc32(name.encode()), draw])
                seeds = draw_strokes(case.truth, case.ignore_label, n, rng)
                for method in options.methods:
                    labels = METHODS[method](case, seeds)
                    found[method].append(adjusted_rand_index(labels, case.truth, case.ignore_label))
            row += [float(np.mean(found[method])) for method in options.methods]
        if model.ground_ is None:
            model.refit(seeds)  # after a fit without strokes the image is over-segmented first
            start = time.process_time()
            model.refit(seeds)
            seconds.append((time.process_time() - start) * 512**2 / seeds.size)
        rows.append(row)
        fields.append(name.split("/")[0])
        print(f"{name:<40} " + " ".join(f"{value:>10.3f}" for value in row), flush=True)
    for field in sorted(set(fields)) if len(set(fields)) < len(fields) else []:
        means = np.mean([row for row, own in zip(rows, fields, strict=True) if own == field], axis=0)
        print(f"{'mean of ' + field:<40} " + " ".join(f"{value:>10.3f}" for value in means))
    means = np.mean(rows, axis=0)
    print(f"{'mean of ' + str(len(rows)):<40} " + " ".join(f"{value:>10.3f}" for value in means))
    print(f"refit, CPU seconds at 512 x 512, median: {np.median(seconds):.2f}")


if __name__ == "__main__":
    main()
