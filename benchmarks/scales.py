"""Whether the number of segments depends on the size of an image: python benchmarks/scales.py DATA.

Every image is divided as it is, reduced to half its sides and enlarged to twice; the number is chosen each
time. Mosaics of five plates are also made at 512, 1024 and 2048 pixels.
"""

import argparse
import sys
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.datasets import SUITES, textures
from benchmarks.measure import limit_threads
from texseg import TextureSegmenter
from texseg.metrics import adjusted_rand_index
from texseg.synth import mosaic

SETS = "outex:6,brodatz2-4:2,brodatz5s:4,rwtd:12,real:6"
FACTORS = (0.5, 1, 2)
SIDES = (512, 1024, 2048)


def number_at(image, channel_axis, factor):
    """Number of segments that is chosen for an image, resized."""
    interpolation = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    if factor != 1:
        image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=interpolation)
    return TextureSegmenter(channel_axis=channel_axis).fit(image).n_segments_


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=SETS, help="name:n takes every n-th image (default: %(default)s)")
    parser.add_argument("--mosaics", type=int, default=3, help="layouts that are made in several sizes")
    options = parser.parse_args()
    limit_threads(1)
    print(f"{'set':<14} {'images':>6} {'same at half':>14} {'same at twice':>14}")
    for part in filter(None, options.sets.split(",")):
        name, _, step = part.partition(":")
        cases = [SUITES[name].load(options.data, each) for each in SUITES[name].names(options.data)]
        numbers = np.array(
            [
                [number_at(case.image, case.channel_axis, f) for f in FACTORS]
                for case in cases[:: int(step or 1)]
            ]
        )
        half, twice = (np.mean(numbers[:, [0, 2]] == numbers[:, 1:2], axis=0)).tolist()
        print(f"{name:<14} {len(numbers):>6} {half:>14.2f} {twice:>14.2f}", flush=True)
    plates = textures(options.data / "brodatz")
    for i in range(options.mosaics):
        for side in SIDES:
            image, truth = mosaic(plates[7 * i : 7 * i + 5], 5, side, random_state=7 * i)
            model = TextureSegmenter().fit(image)
            index = adjusted_rand_index(model.labels_, truth)
            print(f"five plates from {7 * i:>2}, {side:>4} px: {model.n_segments_} segments, ARI {index:.3f}")


if __name__ == "__main__":
    main()
