"""Many images, one after the other or side by side, and what is said; one's failure affects no other."""

import json
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor, as_completed
from contextlib import closing
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, NoReturn

import cv2
import numpy as np
from threadpoolctl import threadpool_limits

from texseg.cli.inputs import Input, ReadOptions, collect, open_scenes
from texseg.cli.outputs import Outcome, number_in_words
from texseg.cli.process import Work, fit_model, needs_blocks, process, read_seeds
from texseg.cli.record import parts_of
from texseg.cli.terminal import reason_of, say, shown
from texseg.io.files import atomic_write, remove_leftovers
from texseg.io.read import Image
from texseg.io.regions import csv_text
from texseg.method.sampling import crop_count, read_crops
from texseg.progress import ProgressBar
from texseg.segmenter import Segmenter
from texseg.threads import crew_of, one_blas_thread

_SAMPLE_IMAGES = 16
_SAMPLE_PIXELS = 16_000_000
_INDEX = "texseg_reports.html"
_STATUSES = ("done", "failed", "skipped")
_RESULT = ("n_segments", "probability", "others", "single_texture", "mean_confidence", "height", "width")
_CRASHED = "its process was killed, perhaps for lack of memory"
_GRACE = 0.7  # seconds in which workers may end
_OF_THE_MAIN_PROCESS = [getattr(signal, n) for n in ("SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, n)]
"""Signals that a terminal sends to workers, too; the main process decides what becomes of them."""


def run_and_show(options: dict[str, Any], always: Sequence[str], model: Segmenter | None = None) -> NoReturn:
    """Process all inputs, print the outcome of each, and end with the exit code."""
    items, quiet = collect(options), options["quiet"]
    work = Work.of(options, items, always)
    if options.get("shared"):
        model = fit_shared(items, work.reading, work.parameters, quiet, options["jobs"])
    work = work if model is None else work.by(model)
    order = {item.path: i for i, item in enumerate(items)}
    outcomes: list[Outcome] = []
    with one_blas_thread(), ProgressBar(len(items), hidden=quiet) as bar:
        try:
            with closing(run(items, work, options["jobs"], None if bar.hidden else bar)) as coming:
                for outcome in coming:
                    bar.step()
                    outcomes.append(outcome)
                    _show_outcome(outcome, quiet, with_table=len(items) == 1)
                    if outcome.status == "failed" and options["on_error"] == "stop":
                        break
        except KeyboardInterrupt as interruption:
            folders = (parts_of(item, work.writing.folder) for item in items)
            if any(list(folder.glob("*.npz")) + list(folder.glob("*.texseg")) for folder in folders):
                interruption.add_note("run the same command with --resume to continue")
            raise
        finally:
            outcomes.sort(key=lambda outcome: order[outcome.input])
            if options["summary"] is not None:
                write_report(options["summary"], outcomes)
    entries = [outcome.report for outcome in outcomes if outcome.report is not None]
    if len(items) > 1 and entries:
        from texseg.report import write_index

        write_index(work.writing.folder / _INDEX, entries)
    if len(items) > 1 and not quiet:
        counts = {status: sum(o.status == status for o in outcomes) for status in _STATUSES}
        counts["not begun"] = len(items) - len(outcomes)
        say(", ".join(f"{n} {status}" for status, n in counts.items() if n or status in ("done", "failed")))
    sys.exit(int(any(outcome.status == "failed" for outcome in outcomes)))


def _show_outcome(outcome: Outcome, quiet: bool, with_table: bool) -> None:
    for message in outcome.messages:
        say(f"note: {outcome.input}: {message}", err=True)
    if outcome.status == "failed":
        say(f"failed: {outcome.input}: {outcome.reason}", err=True)
    if outcome.status == "skipped" and not quiet:
        say(f"{outcome.input}: skipped, {outcome.reason}")
    if outcome.status != "done" or quiet:
        return
    result = outcome.result
    size = " x ".join(str(result[side]) for side in ("width", "height", "planes") if side in result)
    number = _number(outcome, with_odds=not with_table)
    say(f"{outcome.input}: {size}, {number}, {outcome.seconds:.1f} s, results in {outcome.outputs[0].parent}")
    if with_table:
        if outcome.choice:
            say(outcome.choice)
        say(f"{'label':>5} {'voxels' if 'planes' in result else 'pixels':>12} {'share':>7}")
        for row in outcome.rows:
            say(f"{row.label:>5} {row.pixels:>12,} {100 * row.fraction:>6.1f}%  {row.name}".rstrip())


def _number(outcome: Outcome, with_odds: bool) -> str:
    """Say how many segments there are."""
    if {row.name for row in outcome.rows} == {"unknown"}:
        return "all unknown"
    result, number = outcome.result, outcome.result["n_segments"]
    text = f"{number} segment" + ("" if number == 1 else "s")
    text += " by brightness or colour" * (result.get("cue") == "values")
    text += " of the logarithm" * bool(result.get("logarithm"))
    if with_odds and number > 1 and result.get("single_texture", 0) >= 0.5:
        return f"{text}, probably a single texture ({result['single_texture']:.0%})"
    return text + (f" ({result['probability']:.0%})" if with_odds and "probability" in result else "")


def fit_shared(
    items: Sequence[Input], reading: ReadOptions, parameters: Any, quiet: bool, n_jobs: int | None = None
) -> Segmenter:
    """Fit one model to an even sample of the inputs, and print what it says."""
    with warnings.catch_warnings(record=True) as caught, one_blas_thread(), ProgressBar(hidden=quiet) as bar:
        warnings.simplefilter("always")
        if reading.seeds is not None and len(items) > 1:
            raise ValueError(f"seeds (--seeds) work on one image at a time, got {len(items)}")
        with crew_of(n_jobs):
            sample = read_sample(items, reading)
            seeds = read_seeds(items[0].path, reading, sample[0])
            model = fit_model(sample, parameters, None if bar.hidden else bar, seeds)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        say(f"note: {message}", err=True)
    if (choice := number_in_words(model)) and not quiet:
        say(choice)
    return model


def read_sample(items: Sequence[Input], reading: ReadOptions) -> list[Image]:
    """Read images of one kind spread evenly over the inputs; the next replaces one that cannot be read."""
    sample: list[Image] = []
    reason = "there are none"
    starts = np.unique(np.linspace(0, len(items), min(_SAMPLE_IMAGES, len(items)), endpoint=False, dtype=int))
    for start, end in zip(starts, [*starts[1:], len(items)], strict=True):
        for item in items[start:end]:
            try:
                with open_scenes(item.path, reading) as scenes:
                    if needs_blocks(scenes[0], reading):
                        n_crops = crop_count(reading.memory, scenes[0].n_channels, len(scenes[0].shape))
                        crops, images = read_crops(scenes[0], n_crops=n_crops)
                        warnings.warn(f"{item.path}: textures learned from {crops}", stacklevel=2)
                    else:
                        images = [scene.read() for scene in scenes]
            except (OSError, ValueError) as error:
                reason = reason_of(error)
                continue
            first = (sample or images)[0]
            channels = first.pixels.shape[len(first.shape) :]
            sample += [image for image in images if image.pixels.shape[len(image.shape) :] == channels]
            break
        if sum(math.prod(image.pixels.shape[:2]) for image in sample) >= _SAMPLE_PIXELS:
            break
    if not sample:
        raise ValueError(f"no image can be read to learn textures from ({reason})")
    return sample


def write_report(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write one record per input, as CSV or JSON according to the suffix of `path`."""
    rows: list[tuple[Any, ...]] = []
    for o in outcomes:
        result, outputs = map(o.result.get, _RESULT), [shown(output) for output in o.outputs]
        rows.append((shown(o.input), o.status, shown(o.reason), *result, round(o.seconds, 3), outputs))
    names = ("input", "status", "reason", *_RESULT, "seconds", "outputs")
    if path.suffix.lower() == ".json":
        records = [dict(zip(names, row, strict=True)) for row in rows]
        text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
    else:
        text = csv_text([(*row, ";".join(outputs)) for *row, outputs in rows], names)
    atomic_write(path, text.encode())


def run(
    items: Sequence[Input], work: Work, n_jobs: int | None = None, callback: Any = None
) -> Generator[Outcome, None, None]:
    """Yield the outcome of each input when it is known; `n_jobs` None: one by one, each by all processors."""
    if n_jobs is None or n_jobs == 1 or len(items) < 2:
        return (process(item, work, n_jobs, callback) for item in items)
    return _side_by_side(items, work, n_jobs)


def _side_by_side(items: Sequence[Input], work: Work, n_jobs: int) -> Generator[Outcome, None, None]:
    """Give each image to one of several processes; one that crashes takes no other image along."""
    n_processes = min(n_jobs, len(items))
    n_threads = n_jobs // n_processes
    try:
        pools = [_pool(n_threads) for _ in range(n_processes)]
    except (OSError, ImportError, NotImplementedError) as error:  # as without a writable /dev/shm
        say(f"note: processing images one after the other, in one process ({reason_of(error)})", err=True)
        yield from (process(item, work, n_jobs) for item in items)
        return

    def in_a_process(item: Input) -> Outcome:
        pool = pools.pop()
        try:
            return pool.submit(process, item, work, n_threads).result()
        except BrokenExecutor:
            pool = _pool(n_threads)
            return Outcome(item.path, "failed", _CRASHED)
        finally:
            pools.append(pool)

    threads = ThreadPoolExecutor(n_processes, initializer=_block_signals)
    try:
        begun, crashed = {threads.submit(in_a_process, item): item for item in items}, []
        for future in as_completed(begun):
            if future.result().reason == _CRASHED:
                crashed.append(begun[future])
            else:
                yield future.result()
        for item in crashed:  # again, alone: memory may have been too short for several
            yield threads.submit(in_a_process, item).result()
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        _end_workers({work.writing.folder / item.name.parent for item in items})
        raise
    finally:
        for pool in pools:
            pool.shutdown()


def _pool(n_threads: int) -> Any:
    """Return a fresh process, not a fork: a fork of a process with threads may hang."""
    from concurrent.futures import ProcessPoolExecutor  # slow to import

    return ProcessPoolExecutor(1, get_context("spawn"), _begin_worker, (n_threads,))


def _begin_worker(n_threads: int) -> None:
    """Set up a new worker: its processors, signals it ignores, and that it never outlives its parent."""
    for number in _OF_THE_MAIN_PROCESS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cv2.setNumThreads(n_threads)
    threadpool_limits(n_threads)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)  # what it has not finished is removed by the next run


def _block_signals() -> None:
    """Block the signals of a terminal in this thread, and so in the processes that it starts."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_MAIN_PROCESS)


def _end_workers(folders: Iterable[Path]) -> None:
    """End all workers, first by asking them, and remove what they have not finished in some folders."""
    workers = active_children()
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        worker.kill()
    for worker in workers:
        worker.join(_GRACE)
    for folder in folders:
        remove_leftovers(folder)
