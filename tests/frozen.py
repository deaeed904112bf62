"""What `segment` gave for the sample images when this was last agreed to: accuracy, and a hash of the labels.

``python tests/frozen.py`` writes the file anew; look at the differences before you commit them.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import texseg

SAMPLES = Path(__file__).resolve().parents[1] / "sample_images"
FILE = Path(__file__).with_name("frozen.json")
CASES = {
    "five_textures": 5,
    "three_real_textures": 3,
    "scattered_textures": 5,
    "colour_textures": 5,
    "steel_1": 2,
}
SEEDS = (0, 1, 2)


def result(name, n_segments, seed, **parameters):
    """Right pixels, number of segments, and the hash of the labels of a sample."""
    photo = texseg.read_image(SAMPLES / f"{name}.png")
    truth = texseg.read_labels(SAMPLES / f"{name}_truth.png")
    options = {"channel_axis": photo.channel_axis, "random_state": seed, **parameters}
    labels = texseg.segment(photo.pixels, n_segments, **options)
    return {
        "right": round(texseg.metrics.pixel_accuracy(labels, truth), 4),
        "n_segments": int(labels.max()),
        "hash": hashlib.sha256(np.ascontiguousarray(labels, np.uint8).tobytes()).hexdigest()[:16],
    }


def cases():
    """Yield the key of every result, and how it is made."""
    for name, n_segments in CASES.items():
        for seed in SEEDS:
            yield f"{name}, {n_segments}, seed {seed}", (name, n_segments, seed), {}
        yield f"{name}, chosen, seed 0", (name, None, 0), {}
    yield "five_textures, plain", ("five_textures", 5, 0), {"preset": "plain"}


def main():
    FILE.write_text(
        json.dumps({key: result(*args, **kw) for key, args, kw in cases()}, indent=1) + "\n", "utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
