"""Textures learned on one half of a mosaic and found again in other mosaics of the same textures.

Usage: python benchmarks/transfer.py DATA [--mosaics 20]

For each of 20 draws of five Brodatz textures a model is fitted to the left half of a mosaic of them (of a
seed at which that half holds all five) and applied to another mosaic, with other crops and another layout,
and to the right half of the first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import limit_threads, machine
from texseg.io.read import read_image
from texseg.metrics import pixel_accuracy
from texseg.segmenter import TextureSegmenter
from texseg.synth import mosaic

N_TEXTURES = 5
SMALLEST_SHARE = 0.03


def mosaic_whose_left_half_has_all(textures, layout, first_seed):
    """Return the first mosaic from `first_seed` on whose left half holds enough of every texture."""
    for seed in range(first_seed, first_seed + 1000):
        scene = mosaic(textures, N_TEXTURES, size=512, layout=layout, random_state=seed)
        counts = np.bincount(scene.truth[:, :256].ravel(), minlength=N_TEXTURES + 1)
        counts = counts[counts > 0]
        if len(counts) == N_TEXTURES and counts.min() >= SMALLEST_SHARE * 512 * 256:
            return scene, seed
    raise RuntimeError("no such mosaic")


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
    album = [read_image(path).pixels for path in sorted((options.data / "brodatz").glob("*.png"))]
    rows = []
    for number in range(options.mosaics):
        drawn = np.random.default_rng(number).choice(len(album), N_TEXTURES, replace=False)
        textures = [album[i] for i in drawn]
        scene, seed = mosaic_whose_left_half_has_all(textures, options.layout, 1000 * number)
        other = mosaic(textures, N_TEXTURES, size=512, layout="voronoi", random_state=seed + 5000)
        model = TextureSegmenter(N_TEXTURES, random_state=0).fit(np.ascontiguousarray(scene.image[:, :256]))
        scores = (
            pixel_accuracy(model.labels_, scene.truth[:, :256]),
            pixel_accuracy(model.predict(scene.image[:, 256:]), scene.truth[:, 256:]),
            pixel_accuracy(model.predict(other.image), other.truth),
        )
        rows.append(scores)
        print(f"{number:>3} " + " ".join(f"{score:.3f}" for score in scores))
    left, right, others = np.mean(rows, axis=0)
    print(f"CO, mean: left half (learned) {left:.3f}, right half {right:.3f}, other mosaics {others:.3f}")
    print(f"CO, other mosaics: median {np.median(rows, axis=0)[2]:.3f}, worst {np.min(rows, axis=0)[2]:.3f}")


if __name__ == "__main__":
    main()
