"""Hold the forecast of memory and time against runs of many sizes.

Usage: python benchmarks/forecast.py [--largest 4096] [--channels 1]

Each size runs in a process of its own: peak memory above the imported libraries, and processor time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import limit_threads, machine

N_SEGMENTS = 5


def scene(side: int, channels: int) -> np.ndarray:
    """Return bands of five gratings with noise, uint8."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side].astype(np.float32)
    out = np.empty((side, side), np.uint8)
    angles = np.linspace(0, np.pi, N_SEGMENTS, endpoint=False)
    for i, angle in enumerate(angles):
        place = slice(i * side // N_SEGMENTS, (i + 1) * side // N_SEGMENTS)
        wave = np.sin((columns[:, place] * np.cos(angle) + rows[:, place] * np.sin(angle)) * (0.5 + 0.25 * i))
        out[:, place] = 128 + 40 * wave + 15 * rng.standard_normal(wave.shape, np.float32)
    if channels == 1:
        return out
    return np.stack([np.roll(out, 7 * i, axis=0) for i in range(channels)], axis=-1)


def measure(side: int, channels: int) -> dict[str, float]:
    """Segment one image in this process."""
    from texseg.segmenter import TextureSegmenter

    limit_threads(1)  # threads that wait for each other would count as work
    axis = None if channels == 1 else -1
    TextureSegmenter(2, channel_axis=axis).fit(scene(64, channels))  # load everything
    image = scene(side, channels)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    TextureSegmenter(N_SEGMENTS, channel_axis=axis).fit(image)
    seconds = time.process_time() - start
    return {
        "memory": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=4096)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.channels)))
        return
    from texseg.info import expected_seconds
    from texseg.io.forecast import expected_memory

    print(machine(1))
    print(f"{'side':>5} {'MB':>7} {'forecast':>9} {'ratio':>6} {'CPU s':>7} {'forecast':>9} {'ratio':>6}")
    side = 256
    while side <= options.largest:
        command = [sys.executable, __file__, "--measure", str(side), "--channels", str(options.channels)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        memory = expected_memory(side * side, options.channels, N_SEGMENTS)
        seconds = expected_seconds((side, side), N_SEGMENTS)
        print(
            f"{side:>5} {found['memory'] / 1e6:>7.0f} {memory / 1e6:>9.0f} "
            f"{memory / found['memory']:>6.2f} {found['seconds']:>7.2f} {seconds:>9.2f} "
            f"{seconds / found['seconds']:>6.2f}",
            flush=True,
        )
        side *= 2


if __name__ == "__main__":
    main()
