"""Many small images in one run: memory over the run, one broken image among them, killing and going on.

Usage: python benchmarks/batch.py [--images 1000] [--side 96]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from PIL import Image

from benchmarks.measure import limit_threads, machine
from texseg.cli.batch import run
from texseg.cli.inputs import ReadOptions, collect_inputs
from texseg.cli.outputs import Writing
from texseg.cli.process import Work
from texseg.synth import mosaic

WINDOW = 100
N_KILLED = 50
COMMAND = [sys.executable, "-c", "from texseg.cli import main; main()"]


def make_images(folder: Path, n_images: int, side: int) -> None:
    """Write small mosaics of three gratings, the middle one cut off."""
    rows, columns = np.mgrid[: 4 * side, : 4 * side]
    waves = (np.sin(columns / 0.6), np.sin(rows / 1.2), np.sin((rows + columns) / 2.5))
    noise = np.random.default_rng(0).standard_normal((3, 4 * side, 4 * side))
    textures = [wave + 0.5 * n for wave, n in zip(waves, noise, strict=True)]
    for i in range(n_images):
        scene = mosaic(textures, 3, size=side, random_state=i)
        Image.fromarray(scene.image).save(folder / f"{i:04}.png")
    middle = folder / f"{n_images // 2:04}.png"
    middle.write_bytes(middle.read_bytes()[:200])


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def print_memory(folder: Path, out: Path) -> None:
    items = collect_inputs([str(folder)])[0]
    work = Work(ReadOptions(), Writing(out), {"n_segments": 3})
    memory, statuses = [], []
    start = time.perf_counter()
    for outcome in run(items, work):
        memory.append(resident_megabytes())
        statuses.append(outcome.status)
    seconds = time.perf_counter() - start
    window = min(WINDOW, len(items) // 2)
    first, last = np.mean(memory[:window]), np.mean(memory[-window:])
    n_done, n_failed = statuses.count("done"), statuses.count("failed")
    print(f"{len(items)} images in {seconds:.0f} s: {n_done} done, {n_failed} failed")
    print(f"resident memory: first {window} images {first:.1f} MB, last {window} {last:.1f} MB, ", end="")
    print(f"{last / first - 1:+.1%}")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def print_killing(folder: Path, scratch: Path) -> None:
    """Kill a run of 50 images at three places, go on, and compare with a run in one go."""
    few = scratch / "few"
    few.mkdir()
    for path in sorted(folder.iterdir())[:N_KILLED]:
        (few / path.name).write_bytes(path.read_bytes())
    whole, out = scratch / "whole", scratch / "parts"
    subprocess.run([*COMMAND, "segment", str(few), "-k", "3", "-o", str(whole), "-q"], check=False)
    command = [*COMMAND, "segment", str(few), "-k", "3", "-o", str(out), "-q", "--skip-existing"]
    counts = []
    for share in (0.2, 0.5, 0.8):
        process = subprocess.Popen(command)
        while process.poll() is None and len(list(out.glob("*_labels.png"))) < share * N_KILLED:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        counts.append(len(list(out.glob("*_labels.png"))))
    subprocess.run(command, check=False)
    same = contents(whole) == contents(out)
    print(f"killed after {counts} of {N_KILLED} images, then finished: same files as in one go: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--side", type=int, default=96)
    options = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "in")
        folder.mkdir()
        make_images(folder, options.images, options.side)
        print_memory(folder, Path(scratch, "out"))
        print_killing(folder, Path(scratch))


if __name__ == "__main__":
    main()
