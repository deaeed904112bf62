"""How fast and how large: python benchmarks/speed.py [DATA] [--largest 4096] [--against REVISION].

DATA, the folder with the Outex mosaics, is needed for the comparison of levels only. ``--against`` measures
another revision of the repository and the files at hand in turn, and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from cv2 import imwrite
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import SAMPLES, SUITES, read
from benchmarks.measure import Table, cpu_seconds, limit_threads, machine, memory_above_imports, timed
from benchmarks.peers import recipe, recipe_without_positions
from benchmarks.pyramid import ChannelCounts, coarse_to_fine, of_cells, pyramid
from texseg import TextureSegmenter, match_labels, segment, threads
from texseg.channels.encode import Features, learn_features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import split_planes
from texseg.counts.matrix import CountMatrix, WindowedCounts
from texseg.counts.sites import WINDOW_STEP
from texseg.fitting.anneal import State, anneal, critical_beta, geometric_schedule, last_of
from texseg.fitting.assignment import SoftMax
from texseg.method.textures import effective_observations, window_sides
from texseg.metrics import pixel_accuracy
from texseg.models.acm import HistogramClustering
from texseg.parameters import Settings, checked

N_THREADS = 2
K = 5


def mirrored(side: int, name: str = "five_textures.png") -> NDArray[np.uint8]:
    """Give a sample image, continued by its mirror images to a square of this side."""
    image = read(SAMPLES / name)
    return np.pad(image, [(0, max(0, side - length)) for length in image.shape], mode="symmetric")[
        :side, :side
    ]


def print_whole_call() -> None:
    """Compare the whole call at 512x512 with the recipe and with the filter bank alone."""
    image, bank = mirrored(512), GaborBank()
    print(f"\nWhole call, 512x512, K = {K}; CPU seconds, median of 3")
    table = Table([("program", -34), ("CPU s", 7), ("/ recipe", 9), ("/ bank", 8)])
    recipe_seconds = cpu_seconds(lambda: recipe(image, K))
    bank_seconds = cpu_seconds(lambda: bank.transform(image))
    calls: dict[str, Callable] = {
        f"texseg {preset}": lambda preset=preset: segment(image, K, preset=preset)
        for preset in ("default", "plain")
    }
    calls["recipe without x, y"] = lambda: recipe_without_positions(image, K)
    for name, call in calls.items():
        seconds = cpu_seconds(call)
        table.row(name, seconds, seconds / recipe_seconds, seconds / bank_seconds)
    table.row("recipe", recipe_seconds, 1.0, recipe_seconds / bank_seconds)
    table.row(f"filter bank, {len(bank.filters)} filters", bank_seconds, bank_seconds / recipe_seconds, 1.0)


def print_stages(side: int = 512, repeats: int = 5) -> None:
    """Print the CPU time of each stage of a call, and what its arithmetic and its memory alone would take."""
    image, marks = mirrored(side), []
    model = TextureSegmenter(K, n_jobs=1, callback=lambda at: marks.append((at.phase, time.process_time())))
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        marks.clear()
        model.fit(image)
        for (phase, start), (_, end) in itertools.pairwise(marks):
            seconds[phase].append(end - start)
    features, pixels = model.textures_.features, image.size
    n_channels, n_filters, n_bins = len(features.names), features.n_filters, features.n_bins
    cells = pixels / model.textures_.cell**2
    numbers = [step.n_distinct for step in model.history_ if step.phase == "windows"]
    sweeps = sum(step.phase == "cells" for step in model.history_)
    step = 4 * n_channels * n_bins  # operations a site and cluster: scores, and sums of the profiles
    work = {  # operations, bytes
        "filters": (5 * pixels * np.log2(pixels) * (n_filters + 0.5), 5 * n_channels * pixels),
        "histograms": (0, n_channels * (pixels + n_bins * cells)),
        "annealing": (step * cells / WINDOW_STEP**2 * sum(numbers), 0),
        "clusters": (step * cells * K * sweeps, 0),
        "borders": (0, n_channels * pixels),
        "pixels": (0, (n_channels + 4 * K) * pixels),
    }
    square, block = np.ones((1024, 1024), np.float32), np.ones(2**25, np.uint8)
    per_operation = cpu_seconds(lambda: square @ square) / (2 * 1024**3)
    per_byte = cpu_seconds(lambda: block.copy()) / block.size
    print(f"\nStages of a call, {side}x{side}, K = {K}; CPU ms of one thread, means of {repeats}")
    table = Table([("stage", -12), ("ms", 8), ("bound", 8)])
    for stage, (operations, n_bytes) in work.items():
        bound = max(operations * per_operation, n_bytes * per_byte)
        table.row(stage, 1e3 * sum(seconds[stage]) / repeats, 1e3 * float(bound))


def print_against(revision: str, only: str, repeats: int) -> None:
    """Compare the files at hand with another revision: one process each, in turn; medians."""
    print(f"\nCPU seconds of a call, one thread, medians of {repeats}: {revision}, here, and their ratio")
    columns = [("image", -24), ("before", 7), ("here", 7), ("ratio", 6), ("accuracy", 9), ("here", 7)]
    table = Table([*columns, ("other px", 9), ("calls", 8), ("here", 8)])
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(here), "worktree"]
        subprocess.run([*git, "add", "--detach", str(before), revision], check=True, capture_output=True)
        try:
            with _worker(before) as old, _worker(here) as new:
                for name, image, truth, n_segments in _cases_against():
                    if only in name:
                        rows = _in_turn([old, new], Path(folder), image, n_segments, repeats)
                        _show_against(table, name, rows, truth)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)


def _worker(tree: Path) -> subprocess.Popen:
    command = [sys.executable, str(Path(__file__).with_name("one_call.py"))]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)


def _cases_against() -> Iterator[tuple[str, NDArray, NDArray, int | None]]:
    mosaic, truth = (mirrored(512, f"five_textures{end}.png") for end in ("", "_truth"))
    for side in (512, 256, 128, 64):
        part = np.s_[256 - side // 2 : 256 + side // 2, 256 - side // 2 : 256 + side // 2]
        yield f"grey {side}", mosaic[part], truth[part], K
    yield "grey 512, chosen", mosaic, truth, None
    for name, n_segments in (("colour_textures", 5), ("steel_1", 2)):
        yield name, read(SAMPLES / f"{name}.png"), read(SAMPLES / f"{name}_truth.png"), n_segments


def _in_turn(
    workers: Sequence[subprocess.Popen], folder: Path, image: NDArray, n_segments: int | None, repeats: int
) -> list[tuple[dict[str, float], int, NDArray]]:
    """Give the median CPU seconds of every phase, the Python calls, and the labels, of each worker."""
    np.save(folder / "image.npy", image)
    axis = -1 if image.ndim == 3 else None
    answers: list[list] = [[] for _ in workers]
    for turn in range(repeats + 1):
        for worker, kept in zip(workers, answers, strict=True):
            labels = folder / ("labels.npy" if turn else "counted.npy")
            assert worker.stdin and worker.stdout
            worker.stdin.write(f"{folder / 'image.npy'} {axis} {n_segments} {labels}\n")
            worker.stdin.flush()
            kept.append((*json.loads(worker.stdout.readline()), np.load(labels)))
    rows = []
    for kept in answers:  # the first turn warms up, and counts
        phases = {name: statistics.median(each[0].get(name, 0) for each in kept[1:]) for name in kept[0][0]}
        phases["whole"] = statistics.median(sum(each[0].values()) for each in kept[1:])
        rows.append((phases, kept[0][1], kept[0][2]))
    return rows


def _show_against(table: Table, name: str, rows: list, truth: NDArray) -> None:
    (old, old_calls, before), (new, new_calls, after) = rows
    right = [pixel_accuracy(labels, truth) for labels in (before, after)]
    other = float(np.mean(match_labels(after, before) != before))
    times = old["whole"], new["whole"], new["whole"] / old["whole"]
    table.row(name, *times, *right, other, old_calls, new_calls)
    for phase in [phase for phase in {**old, **new} if phase != "whole"]:
        table.row(f"  {phase}", old.get(phase, 0.0), new.get(phase, 0.0))


def print_growth(largest: int) -> None:
    """Print time and memory against the size of the image."""
    print(f"\nGrowth with the image, K = {K}, default; median of 3 up to 1024, single runs above")
    table = Table([("side", 6), ("CPU s", 8), ("time x", 8), ("pixels x", 9), ("ratio", 7), ("bytes/px", 9)])
    side, first = 512, 0.0
    while side <= largest:
        image = mirrored(side)
        seconds = cpu_seconds(lambda image=image: segment(image, K), 3 if side <= 1024 else 1)
        first = first or seconds
        pixels = (side / 512) ** 2
        table.row(
            side, seconds, seconds / first, pixels, seconds / first / pixels, peak_memory(side) / side**2
        )
        side *= 2


def print_threads(largest: int, repeats: int = 3) -> None:
    """Compare one thread with two: wall seconds, the least of several in turn, and CPU seconds.

    On a machine that others use, wall seconds tell little. The last column is what the two would give if they
    had a core each: all that is shared out (outermost calls), as evenly as its pieces allow.
    """
    print(f"\nThreads, K = {K}, default")
    table = Table(
        [("side", 6), ("1: wall", 8), ("2: wall", 8), ("x", 5), ("1: CPU", 8), ("2: CPU", 8), ("x", 5)]
    )
    side = 512
    while side <= largest:
        image = mirrored(side)
        walls: dict[int, list[float]] = {1: [], 2: []}
        cpus: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(repeats if side <= 1024 else 1):
            for n in (1, 2):
                start = time.perf_counter()
                cpus[n].append(timed(lambda n=n, image=image: segment(image, K, n_jobs=n))[1])
                walls[n].append(time.perf_counter() - start)
        wall, cpu = ([min(of[n]) for n in (1, 2)] for of in (walls, cpus))
        table.row(side, *wall, wall[0] / wall[1], *cpu, with_a_core_each(image))
        side *= 4 if side < 2048 else 2


def with_a_core_each(image: NDArray) -> float:
    """Give by how much two threads with a core each would be faster, from the CPU seconds of one."""
    shared, ideal, depth = 0.0, 0.0, 0
    original = threads.side_by_side

    def measured(function: Callable, items: Iterable, tell: Callable | None = None) -> list:
        nonlocal shared, ideal, depth
        given = list(items)
        if depth or len(given) < 2:
            return original(function, given, tell)
        loads = [0.0, 0.0]

        def each(item: object) -> object:
            nonlocal shared
            start = time.thread_time()
            result = function(item)
            seconds = time.thread_time() - start
            shared += seconds
            loads[loads.index(min(loads))] += seconds
            return result

        depth += 1
        try:
            return original(each, given, tell)
        finally:
            depth -= 1
            ideal += max(loads)

    users = [m for m in list(sys.modules.values()) if getattr(m, "side_by_side", None) is original]
    for module in users:
        module.side_by_side = measured
    try:
        _, seconds = timed(lambda: segment(image, K, n_jobs=1))
    finally:
        for module in users:
            module.side_by_side = original
    return seconds / (seconds - shared + ideal)


def peak_memory(side: int) -> float:
    """Give the peak bytes of a call, above those of the imported libraries and the image itself."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure-memory", str(side)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(side: int) -> None:
    """Do the work of `peak_memory` in a process of its own."""
    small, image = mirrored(96), mirrored(side)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        segment(small, 2)  # imports what is imported late
    print(memory_above_imports(lambda: segment(image, K)))


def windowed(image: NDArray, settings: Settings) -> tuple[WindowedCounts, Features]:
    """Give implicit counts of windows of 6 wavelengths, and the channels they were made of."""
    features, (bins,) = learn_features(
        [split_planes(image)],
        bank=GaborBank(settings.wavelengths, settings.n_orientations),
        sigma=settings.illumination_sigma,
        n_bins=settings.n_bins,
        patch_weight=settings.patch_weight,
        value_weight=settings.value_weight,
    )
    sides = window_sides(features.wavelengths, 6.0).tolist()
    return WindowedCounts(bins, sides, n_bins=features.n_bins), features


def print_levels(data: Path, n_images: int) -> None:
    """Compare coarse-to-fine annealing with annealing on single pixels ([1] 5.4)."""
    print("\nACM on windows of 6 wavelengths, multiscale against single level: CPU seconds until the free")
    print("energy of the pixels is within .1 % of the single level's last; same start, end and growth")
    table = Table(
        [("image", -6), ("F single", 12), ("F multi", 12), ("single s", 9), ("multi s", 8), ("ratio", 7)]
    )
    settings = checked({"preset": "plain"})
    ratios = []
    for name in SUITES["outex"].names(data)[:n_images]:
        n, features = windowed(SUITES["outex"].load(data, name).image, settings)
        multi = timed_states(annealed(n, features.bank, cheap_levels(n)))
        single = timed_states(annealed(n, features.bank, [(n, None)]))
        goal = single[-1][1] + 1e-3 * abs(single[-1][1])
        single_seconds, multi_seconds = (reached(run, goal) for run in (single, multi))
        ratios.append(single_seconds / multi_seconds)
        table.row(name, single[-1][1], multi[-1][1], single_seconds, multi_seconds, ratios[-1])
    print(f"median ratio {statistics.median(ratios):.1f}")


def cheap_levels(n: WindowedCounts, coarsest: int = 32) -> list[tuple[CountMatrix, NDArray | None]]:
    """Levels whose counts are written out, and the pixels: a step between them costs as much as on pixels."""
    every = pyramid(n, coarsest)
    return [
        (one.counts, one.sizes) for one in every if one.counts is n or isinstance(one.counts, ChannelCounts)
    ]


def annealed(
    n: WindowedCounts, bank: GaborBank, levels: list[tuple[CountMatrix, NDArray | None]]
) -> Iterator[tuple[int, State]]:
    """Anneal on levels of the grid, from the first critical temperature to that of the windows."""
    model, rng = HistogramClustering(), np.random.RandomState(0)
    final = effective_observations(bank, n.windows.tolist())
    first = critical_beta(*of_cells(model, *levels[0]), rng)
    schedule = geometric_schedule(min(0.8 * first, final), final, 0.5)
    return coarse_to_fine(model, levels, schedule, rng=rng, n_clusters=K, growth="split-merge")


def timed_states(run: Iterator[tuple[int, State]]) -> list[tuple[float, float]]:
    """Give CPU seconds so far and free energy at every step on pixels at the final temperature."""
    start, states = time.process_time(), []
    for level, state in run:
        states.append((time.process_time() - start, state.free_energy, state.beta, level))
    _, _, beta, level = states[-1]
    return [(seconds, energy) for seconds, energy, b, at in states if (b, at) == (beta, level)]


def reached(states: list[tuple[float, float]], goal: float) -> float:
    """Give the CPU seconds at which the free energy first is at most `goal`; NaN if it never is."""
    return next((seconds for seconds, energy in states if energy <= goal), np.nan)


def print_implicit(side: int = 160, n_steps: int = 15) -> None:
    """Compare the soft ACM on implicit counts with the same on the explicit matrix."""
    image = mirrored(512)[256 - side // 2 :, 256 - side // 2 :][:side, :side]
    implicit, features = windowed(image, checked({"preset": "plain"}))
    explicit = implicit @ np.eye(implicit.shape[1])
    model = HistogramClustering(SoftMax())
    critical = critical_beta(model, implicit, np.random.RandomState(0))
    final = effective_observations(features.bank, implicit.windows.tolist())
    print(f"\nSoft ACM on implicit (float32) and explicit counts (float64), {side}x{side}, K = {K}: largest")
    print(f"difference of a posterior after one step from the same profiles, and after {n_steps} steps")
    columns = [("beta / critical", 15), ("one step", 9), (f"{n_steps} steps", 9), ("implicit s", 10)]
    table = Table([*columns, ("explicit s", 10)])
    for beta in (2 * critical, final):
        ends, seconds = [], []
        for counts in (implicit, explicit):
            rng, start = np.random.RandomState(0), time.process_time()
            options = {"n_clusters": K, "max_steps": n_steps, "tol": 0, "over_relax": False}
            ends.append(last_of(anneal(model, counts, [beta], rng=rng, **options)))
            seconds.append(time.process_time() - start)
        steps = [model.step(counts, ends[1].params, beta) for counts in (implicit, explicit)]
        differences = [np.abs(a.posteriors - b.posteriors).max() for a, b in (steps, ends)]
        table.row(beta / critical, *(f"{difference:.1e}" for difference in differences), *seconds)
    print(f"explicit counts hold {4 * explicit.shape[1]} bytes a pixel in float32")


def print_start_up(repeats: int = 7) -> None:
    """Compare the start of a process, up to its first result, with that of one that imports NumPy."""
    print("\nStart of a process: median of 7, in turn, and what is more than for NumPy; 128x128 pixels")
    table = Table([("command", -34), ("wall s", 7), ("more", 6), ("CPU s", 7), ("more", 6)])
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "mosaic.png"
        imwrite(picture, mirrored(128))
        read = f"import cv2; image = cv2.imread({str(picture)!r}, 0)"
        command, segment = "from texseg.cli import main; main", "from texseg import segment"
        commands = {
            "import numpy": "import numpy",
            "import texseg": "import texseg",
            "texseg --help": f"{command}(['--help'])",
            "from texseg import segment": segment,
            "segment(image, 5)": f"{read}; {segment}; segment(image, 5)",
            "segment(image, 5), twice": f"{read}; {segment}; segment(image, 5); segment(image, 5)",
            "texseg segment -k 5": f"{command}(['segment', {str(picture)!r}, '-k5', '-q', '-o', {folder!r}])",
            "TextureSegmenter(5).fit(image)": f"{read}; import texseg; texseg.TextureSegmenter(5).fit(image)",
        }
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}  # installed packages are compiled
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(repeats + 1):
            for name, code in commands.items():
                start, before = time.perf_counter(), cpu_of_children()
                subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", code],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    env=environment,
                )
                seconds[name].append((time.perf_counter() - start, cpu_of_children() - before))
    first = None
    for name, measured in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*measured[1:], strict=True))
        first = first or (wall, cpu)
        table.row(name, wall, wall - first[0], cpu, cpu - first[1])


def cpu_of_children() -> float:
    """Give the CPU seconds of all processes that have ended."""
    used = os.times()
    return used.children_user + used.children_system


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="folder with outex")
    parser.add_argument("--largest", type=int, default=4096, help="side of the largest image in pixels")
    parser.add_argument("--images", type=int, default=5, help="Outex images for the comparison of levels")
    parser.add_argument(
        "--only", default="call,stages,growth,threads,levels,implicit,start", help="parts, comma-separated"
    )
    parser.add_argument("--against", metavar="REVISION", help="compare with this revision, in turn")
    parser.add_argument("--repeats", type=int, default=7, help="turns of --against")
    parser.add_argument("--case", default="", help="only those of --against whose name contains this")
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    limit_threads(N_THREADS)
    if options.measure_memory:
        measure_memory(options.measure_memory)
        return
    print(machine(N_THREADS))
    if options.against:
        print_against(options.against, options.case, options.repeats)
        return
    parts = {
        "call": print_whole_call,
        "stages": print_stages,
        "growth": lambda: print_growth(options.largest),
        "threads": lambda: print_threads(options.largest),
        "implicit": print_implicit,
        "start": print_start_up,
    }
    if options.data:
        parts["levels"] = lambda: print_levels(options.data, options.images)
    for name, show in parts.items():
        if name in options.only.split(","):
            show()


if __name__ == "__main__":
    main()
