"""Hold the forecast of memory and time against runs of many sizes.

Usage: python benchmarks/forecast.py [--largest 2048] [--presets default,plain] [--segments 5]
           [--channels 1]

With the number of segments given, and chosen (plain: given only). Each size runs in a process of its own:
peak memory above the imported libraries, and processor time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import Table, limit_threads, machine, memory_above_imports

N_TEXTURES = 5


def scene(side: int, channels: int) -> np.ndarray:
    """Return bands of five gratings with noise, uint8."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side].astype(np.float32)
    out = np.empty((side, side), np.uint8)
    angles = np.linspace(0, np.pi, N_TEXTURES, endpoint=False)
    for i, angle in enumerate(angles):
        place = slice(i * side // N_TEXTURES, (i + 1) * side // N_TEXTURES)
        wave = np.sin((columns[:, place] * np.cos(angle) + rows[:, place] * np.sin(angle)) * (0.5 + 0.25 * i))
        out[:, place] = 128 + 40 * wave + 15 * rng.standard_normal(wave.shape, np.float32)
    if channels == 1:
        return out
    return np.stack([np.roll(out, 7 * i, axis=0) for i in range(channels)], axis=-1)


def measure(side: int, channels: int, preset: str, n_segments: int | None) -> dict[str, float]:
    """Segment one image in this process."""
    from texseg import TextureSegmenter

    limit_threads(1)  # threads that wait for each other would count as work
    axis = None if channels == 1 else -1
    TextureSegmenter(2, preset=preset, channel_axis=axis).fit(scene(96, channels))  # load everything
    segmenter, image = TextureSegmenter(n_segments, preset=preset, channel_axis=axis), scene(side, channels)
    start = time.process_time()
    memory = memory_above_imports(lambda: segmenter.fit(image))
    return {"memory": memory, "seconds": time.process_time() - start}


def print_sizes(options: argparse.Namespace, preset: str, n_segments: int | None) -> None:
    """Print a row for each size: what was measured, the forecast, and forecast over measured."""
    from texseg.progress import expected_memory, expected_seconds

    print(f"\npreset {preset}, {n_segments or 'chosen number of'} segments, {options.channels} channel(s)")
    columns = [("side", 5), ("MB", 9), ("forecast", 9), ("ratio", 6), ("CPU s", 8), ("forecast", 9)]
    table = Table([*columns, ("ratio", 6)])
    side = 256
    while side <= options.largest:
        command = [sys.executable, __file__, "--measure", str(side), "--channels", str(options.channels)]
        command += ["--presets", preset, "--segments", str(n_segments or 0)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        memory = expected_memory(side * side, options.channels, n_segments, preset)
        seconds = expected_seconds((side, side), n_segments, preset)
        shares = memory / found["memory"], seconds / found["seconds"]
        table.row(side, found["memory"] / 1e6, memory / 1e6, shares[0], found["seconds"], seconds, shares[1])
        side *= 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=2048)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--presets", default="default,plain", help="comma-separated")
    parser.add_argument("--segments", type=int, default=5, help="requested segments, where a number is given")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    presets = options.presets.split(",")
    if options.measure:
        found = measure(options.measure, options.channels, presets[0], options.segments or None)
        print(json.dumps(found))
        return
    print(machine(1))
    for preset in presets:
        for n_segments in [options.segments] if preset == "plain" else [options.segments, None]:
            print_sizes(options, preset, n_segments)


if __name__ == "__main__":
    main()
