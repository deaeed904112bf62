"""Textures learned on the left half of a mosaic and found again in other mosaics of the same textures.

Usage: python benchmarks/transfer.py DATA [--mosaics 20] [--layout voronoi]

The mosaics have five Brodatz textures and the seeds 0, 1, 2 ... A model is fitted to the left half, with as
many segments as textures cover at least 5 % of it, and applied to another mosaic of just these textures, with
other crops and another layout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import limit_threads, machine
from texseg import TextureSegmenter
from texseg.io.read import read_image
from texseg.metrics import pixel_accuracy
from texseg.synth import mosaic

N_TEXTURES = 5
SMALLEST_SHARE = 0.05


def shown_in(truth, textures):
    """Return the textures that cover enough of a part of a mosaic; label k is texture k - 1."""
    labels, counts = np.unique(truth, return_counts=True)
    return [textures[label - 1] for label in labels[counts >= SMALLEST_SHARE * counts.sum()]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with brodatz")
    parser.add_argument("--mosaics", type=int, default=20)
    parser.add_argument("--layout", default="voronoi", choices=("voronoi", "scattered"))
    options = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    print(f"{'seed':>4} {'K':>2} {'learned':>8} {'other':>6}")
    album = [read_image(path).pixels for path in sorted((options.data / "brodatz").glob("*.png"))]
    rows = []
    half = slice(0, 256)
    for seed in range(options.mosaics):
        drawn = np.random.default_rng(seed).choice(len(album), N_TEXTURES, replace=False)
        five = [album[i] for i in drawn]
        scene = mosaic(five, N_TEXTURES, size=512, layout=options.layout, random_state=seed)
        textures = shown_in(scene.truth[:, half], five)
        other = mosaic(textures, len(textures), size=512, layout=options.layout, random_state=1000 + seed)
        model = TextureSegmenter(len(textures), random_state=0).fit(
            np.ascontiguousarray(scene.image[:, half])
        )
        learned = pixel_accuracy(model.labels_, scene.truth[:, half])
        rows.append((learned, pixel_accuracy(model.predict(other.image), other.truth)))
        print(f"{seed:>4} {len(textures):>2} {rows[-1][0]:>8.3f} {rows[-1][1]:>6.3f}", flush=True)
    learned, others = np.transpose(rows)
    print(f"CO, mean: left half {learned.mean():.3f}, other mosaics {others.mean():.3f}", end="")
    print(f" (median {np.median(others):.3f}, worst {others.min():.3f})")


if __name__ == "__main__":
    main()
