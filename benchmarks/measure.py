"""What the benchmarks share: CPU seconds, threads, the machine, tables."""

from __future__ import annotations

import argparse
import os
import pickle
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
from threadpoolctl import threadpool_limits

from benchmarks.datasets import SUITES, Case


def limit_threads(n_threads: int) -> None:
    """Let OpenCV, BLAS and OpenMP use so many threads from now on."""
    threadpool_limits(n_threads)
    cv2.setNumThreads(n_threads)


def learning_options(description: str | None, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options of a program that learns from images: data, cache, minutes; with one thread."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the data, see README")
    parser.add_argument("--cache", type=Path, required=True, help="folder for what was measured")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="measure missing images only for so long"
    )
    options = parser.parse_args(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    limit_threads(1)
    return options


def remembered(
    options: argparse.Namespace, sets: Mapping[str, int], measured: Callable[[Case], Any]
) -> Iterator[tuple[str, Any]]:
    """Give the field, and what was measured, of every so manieth image of some sets; kept in the cache."""
    end = time.monotonic() + 60 * options.minutes
    for suite, step in sets.items():
        for name in SUITES[suite].names(options.data)[::step]:
            path = options.cache / f"{suite}-{name.replace('/', '_')}.pkl"
            if not path.exists() and time.monotonic() < end:
                path.write_bytes(pickle.dumps(measured(SUITES[suite].load(options.data, name))))
            if path.exists():
                field = name.split("/")[0]
                by_field = {"real": field, "real_more": field, "filled": f"filled/{field}"}
                yield by_field.get(suite, suite), pickle.loads(path.read_bytes())


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Run once; give the result and the CPU seconds of all threads."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def cpu_seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """Give the median CPU seconds of several runs, all threads together."""
    return statistics.median(timed(call)[1] for _ in range(repeats))


def machine(n_threads: int) -> str:
    """Describe machine and versions in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    packages = ", ".join(f"{name} {version(name)}" for name in ("texseg", "numpy", "scipy", "scikit-learn"))
    return (
        f"{model}, {os.cpu_count()} cores, {n_threads} threads a program;"
        f" Python {platform.python_version()}, {packages}, OpenCV {cv2.__version__}"
    )


class Table:
    """A text table whose rows are printed as they come."""

    def __init__(self, columns: Sequence[tuple[str, int]]) -> None:
        self.columns = columns
        header = " ".join(
            f"{name:>{abs(width)}}" if width > 0 else f"{name:<{-width}}" for name, width in columns
        )
        print(header)
        print("-" * len(header), flush=True)

    def row(self, *values: object) -> None:
        """Print one row; numbers right, text left, None empty."""
        cells = []
        for (_, width), value in zip(self.columns, values, strict=False):
            text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
            cells.append(f"{text:>{width}}" if width > 0 else f"{text:<{-width}}")
        print(" ".join(cells).rstrip(), flush=True)


def memory_above_imports(call: Callable[[], Any]) -> int:
    """Run once; give by how many bytes the peak of the process is above what it held before (Linux)."""
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    call()
    return _status("VmHWM") - before


def resident() -> int:
    """Give the bytes that this process holds now (Linux)."""
    return _status("VmRSS")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024
