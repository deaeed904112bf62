"""Hold the forecast of memory and time against runs, and fit its constants to them.

Usage: python benchmarks/forecast.py [DATA] [--images 3] [--largest 2048] [--cache measured.json]

Bands of gratings of many sizes, and some images of each set that lies in DATA, with the number of segments
given and chosen, each in a process of its own: peak memory above the imported libraries, of the fit and with
its report, and processor time of the fit in trials. Printed are forecast over measured, and constants for
`texseg.progress` by which the worst of these ratios is nearest to 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.datasets import SUITES, Case
from benchmarks.measure import Table, limit_threads, machine, memory_above_imports, resident
from texseg import TextureSegmenter, progress

N_TEXTURES = 5
SETS = "outex prague rwtd brodatz5v brodatz9-12 fabrics5v plain crops real real_more".split()


def bands(side: int, channels: int) -> Case:
    """Return bands of five gratings with noise, uint8."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side].astype(np.float32)
    out, truth = np.empty((side, side), np.uint8), np.empty((side, side), np.uint8)
    angles = np.linspace(0, np.pi, N_TEXTURES, endpoint=False)
    for i, angle in enumerate(angles):
        place = slice(i * side // N_TEXTURES, (i + 1) * side // N_TEXTURES)
        wave = np.sin((columns[:, place] * np.cos(angle) + rows[:, place] * np.sin(angle)) * (0.5 + 0.25 * i))
        out[:, place] = 128 + 40 * wave + 15 * rng.standard_normal(wave.shape, np.float32)
        truth[:, place] = i
    several = np.stack([np.roll(out, 7 * i, axis=0) for i in range(channels)], axis=-1)
    return Case("", several if channels > 1 else out, truth)


def loaded(data: Path | None, suite: str, name: str) -> Case:
    """Give an image of a set, or bands, whose name is their side and the number of channels."""
    return (
        bands(*map(int, name.split("x")))
        if data is None or suite == "bands"
        else SUITES[suite].load(data, name)
    )


def cases(options: argparse.Namespace) -> Iterator[tuple[str, str, str, bool]]:
    """Give set, name, preset, and whether the number is given, of all runs."""
    sides = [side for side in (128, 256, 512, 1024, 2048, 4096) if side <= options.largest]
    names = {"bands": [f"{side}x{channels}" for channels in (1, 3) for side in sides]}
    for suite in SETS if options.data else []:
        every = SUITES[suite].names(options.data)
        names[suite] = every[:: max(1, len(every) // options.images)][: options.images]
    for suite, own in names.items():
        for name in own:
            yield suite, name, "default", False
            if suite == "bands":
                yield suite, name, "plain", True
            if suite == "bands" or SUITES[suite].is_number_given:
                yield suite, name, "default", True


def measure(case: Case, preset: str, is_given: bool) -> dict[str, float]:
    """Segment one image in this process."""
    limit_threads(1)  # threads that wait for each other would count as work
    warnings.simplefilter("ignore")
    trial = progress._seconds_of_a_trial()
    n_segments, shape = case.n_segments if is_given else None, case.image.shape
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        small = bands(96, 1 if case.channel_axis is None else shape[2])
        model = TextureSegmenter(2, preset=preset, channel_axis=small.channel_axis).fit(small.image)
        model.report(page, small.image)  # loads everything
        model = TextureSegmenter(n_segments, preset=preset, channel_axis=case.channel_axis)
        start, held = time.process_time(), resident()
        memory = memory_above_imports(lambda: model.fit(case.image))
        seconds, kept = time.process_time() - start, resident() - held
        report = kept + memory_above_imports(lambda: model.report(page, case.image))
    trial = (trial + progress._seconds_of_a_trial()) / 2
    about = {"height": shape[0], "width": shape[1], "channels": 1 if len(shape) == 2 else shape[2]}
    costs = {"memory": memory, "report": report, "trials": seconds / trial}
    return {**about, "segments": n_segments or 0, **costs}


def forecast(cost: str, preset: str, found: dict[str, float]) -> float:
    """Forecast of a cost of a run."""
    channels, n_segments = int(found["channels"]), int(found["segments"]) or None
    shape = int(found["height"]), int(found["width"])
    if cost == "trials":
        return progress.expected_seconds(shape, n_segments, preset, channels)
    has_report = cost == "report"
    about = channels, n_segments, preset, 2, has_report, max(shape)
    return progress.expected_memory(shape[0] * shape[1], *about)


def fitted(constants: str, ratios: Callable[[], NDArray[np.float64]]) -> tuple[float, ...]:
    """Constants of a forecast by which the largest of its logarithmic ratios are least."""
    logs = np.log(getattr(progress, constants))

    def loss(logs: NDArray[np.float64]) -> float:
        with patch.object(progress, constants, tuple(np.exp(logs))):
            return float(np.mean(ratios() ** 8) ** (1 / 8))

    for _ in range(3):
        logs = minimize(loss, logs, method="Powell", bounds=[(x - 1, x + 1) for x in logs]).x
    return tuple(float(f"{value:.3g}") for value in np.exp(logs))


def print_ratios(runs: Sequence[tuple[str, str, dict[str, float]]]) -> None:
    """Print forecast over measured, from least to most, of each set."""
    table = Table([("set", -12), ("runs", 5), ("time", 12), ("memory", 12), ("with report", 12)])
    sets = defaultdict(list)
    for run in runs:
        sets[run[0]].append(run)
    for name, own in {**sets, "all": runs}.items():
        every = [np.exp(ratios(cost, own)) for cost in ("trials", "memory", "report")]
        table.row(name, len(own), *(f"{found.min():.2f} - {found.max():.2f}" for found in every))


def ratios(cost: str, runs: Sequence[tuple[str, str, dict[str, float]]]) -> NDArray[np.float64]:
    """Logarithms of forecast over measured."""
    return np.log([forecast(cost, preset, found) / found[cost] for _, preset, found in runs])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--images", type=int, default=3, help="of each set")
    parser.add_argument("--largest", type=int, default=2048, help="side of bands in pixels")
    parser.add_argument("--cache", type=Path, help="file of what was measured")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        suite, name, preset, is_given = json.loads(options.measure)
        print(json.dumps(measure(loaded(options.data, suite, name), preset, is_given)))
        return
    print(machine(1))
    kept = json.loads(options.cache.read_text()) if options.cache and options.cache.exists() else {}
    runs = []
    for case in cases(options):
        key = json.dumps(case)
        if key not in kept:
            command = [
                sys.executable,
                __file__,
                *([str(options.data)] if options.data else []),
                "--measure",
                key,
            ]
            kept[key] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            if options.cache:
                options.cache.write_text(json.dumps(kept))
        runs.append((case[0], case[2], kept[key]))
    with patch.object(progress, "_seconds_of_a_trial", lambda: 1.0):
        print_ratios(runs)
        trials = fitted("_TRIALS_OF", lambda: ratios("trials", runs))
        both = ("memory", "report")
        n_bytes = fitted("_BYTES", lambda: np.concatenate([ratios(cost, runs) for cost in both]))
        print(f"\nfitted anew: _TRIALS_OF = {trials}, _BYTES = {n_bytes}")
        with patch.multiple(progress, _TRIALS_OF=trials, _BYTES=n_bytes):
            print_ratios(runs)


if __name__ == "__main__":
    main()
