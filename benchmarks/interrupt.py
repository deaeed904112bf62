"""Batches that are ended by signals and begun again, and batches that write into one folder together.

Usage: python benchmarks/interrupt.py [--moments 20] [--signals SIGKILL,SIGTERM] [--together 20]   (Linux)
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.batch import COMMAND, make_images
from benchmarks.measure import machine

N_IMAGES, SIDE = 30, 48
SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
MARK = "TEXSEG_INTERRUPT_BENCHMARK"
ALLOWED = 2.0  # seconds from the signal to the end of the last process


def batch(folder: Path, out: Path, *options: str) -> list[str]:
    table = out.with_suffix(".csv")
    fixed = ("-k", "3", "--preset", "plain", "--jobs", "2", "--report-html", "--summary", str(table), "-q")
    return [*COMMAND, "segment", str(folder), "-o", str(out), *fixed, *options]


def contents(out: Path) -> dict[str, bytes]:
    """Contents of the results but for pages, which tell the time they were made at, and their digests."""
    files = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    return {
        name: b"" if name.endswith(".html") else re.sub(rb'"[^"]+\.html": "\w+"', b"", content)
        for name, content in files.items()
    }


def alive(mark: str) -> Iterator[int]:
    """Give the processes that a run began, itself and workers."""
    for place in Path("/proc").iterdir():
        try:
            begun = place.name.isdigit() and f"{MARK}={mark}".encode() in (place / "environ").read_bytes()
            if begun and (place / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(place.name)
        except OSError:
            continue  # it ended meanwhile


def end(process: subprocess.Popen, name: str, to_all: bool, mark: str) -> float:
    """Send a signal; give the seconds until nothing is left of the run, up to ten."""
    start = time.perf_counter()
    if to_all:  # as a terminal does
        os.killpg(process.pid, getattr(signal, name))
    else:
        process.send_signal(getattr(signal, name))
    while next(alive(mark), None) is not None and time.perf_counter() - start < 10:
        time.sleep(0.02)
    return time.perf_counter() - start


def print_signals(folder: Path, scratch: Path, signals: list[str], moments: int) -> None:
    whole, out = scratch / "whole", scratch / "out"
    start = time.perf_counter()
    subprocess.run(batch(folder, whole), check=True)
    duration = time.perf_counter() - start
    expected = contents(whole)
    print(f"{N_IMAGES} images, --jobs 2: {duration:.1f} s, {len(expected)} files")
    print("signal   slowest end  left after 2 s  unfinished  no table  other after going on  exit codes")
    for name in signals:
        seconds, left, unfinished, untold, other = 0.0, 0, 0, 0, 0
        codes = set()
        for i in range(moments):
            shutil.rmtree(out, ignore_errors=True)
            out.with_suffix(".csv").unlink(missing_ok=True)
            mark = f"{name}{i}"
            process = subprocess.Popen(
                batch(folder, out),
                env=os.environ | {MARK: mark},
                start_new_session=True,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(duration * (i + 0.5) / moments)
            if process.poll() is None:
                took = end(process, name, name == "SIGINT" and i % 2 == 1, mark)
                seconds, left = max(seconds, took), left + (took > ALLOWED)
                for number in alive(mark):
                    os.kill(number, signal.SIGKILL)
                worked = any(out.glob("*_labels.png"))
                untold += worked and name != "SIGKILL" and not out.with_suffix(".csv").exists()
            codes.add(process.wait())
            unfinished += any(out.rglob("*.part"))
            again = subprocess.run(batch(folder, out, "--skip-existing"), check=False)
            other += again.returncode != 0 or contents(out) != expected
        counts = f"{left:12} of {moments} {unfinished:8} {untold:9} {other:16} of {moments}"
        print(f"{name:8} {seconds:9.2f} s {counts}  {sorted(codes)}", flush=True)


def print_together(folder: Path, scratch: Path, times: int) -> None:
    expected = contents(scratch / "whole")
    failures = 0
    for i in range(times):
        out = scratch / f"together{i}"
        runs = [subprocess.Popen(batch(folder, out)) for _ in range(3)]
        codes = [process.wait() for process in runs]
        failures += any(codes) or contents(out) != expected
    print(f"three batches into one folder: {failures} of {times} failed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--signals", default=",".join(SIGNALS))
    parser.add_argument("--together", type=int, default=20)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("SIGHUP", "SIGINT"):  # which a shell may have told to ignore
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    print(machine(1))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "in")
        folder.mkdir()
        make_images(folder, N_IMAGES, SIDE)
        middle = folder / f"{N_IMAGES // 2:04}.png"  # the one that is cut off
        middle.write_bytes((folder / "0000.png").read_bytes())
        print_signals(folder, Path(scratch), options.signals.split(","), options.moments)
        print_together(folder, Path(scratch), options.together)


if __name__ == "__main__":
    main()
