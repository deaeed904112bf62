"""Many images, one after the other or side by side.

A failure affects only the image it belongs to. Results are written as soon as they are available, each file
whole or not at all, so that an interrupted run can be continued with the missing images.
"""

from __future__ import annotations

import csv
import json
import math
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from texseg.cli.inputs import Input
from texseg.cli.large import needs_blocks, sample_of
from texseg.cli.process import Outcome, Work, fit_model, process, read_scene, read_seeds, reason_of
from texseg.cli.reading import ReadOptions
from texseg.cli.terminal import shown
from texseg.cli.workers import begin_worker, end_workers, in_worker, unheard_by_workers
from texseg.io.atomic import atomic_write
from texseg.io.read import Image
from texseg.regions import harmless_cell
from texseg.threads import crew_of

if TYPE_CHECKING:
    from texseg.segmenter import Segmenter

_OF_IMAGES = ("labels_", "confidence_", "_parts", "_division", "_hierarchy")  # that were fitted
_SAMPLE_IMAGES = 16
_SAMPLE_PIXELS = 16_000_000
_PENDING_PER_JOB = 2


def run(
    items: Sequence[Input], work: Work, n_jobs: int | None = None, callback: Any = None
) -> Generator[Outcome, None, None]:
    """Process inputs and yield the outcome of each as soon as it is known.

    Parameters
    ----------
    items : sequence of Input
        In the order in which they are started.
    work : Work
        What is done with each.
    n_jobs : int, optional
        Processors to use, by at most as many processes; if there are fewer images, each gets several
        threads. None: one image after the other, with as many threads as there are processors.
    callback : callable, optional
        Called with the progress within an image, only if there is a single process.
    """
    if n_jobs is None or n_jobs == 1 or len(items) < 2:
        return (_process_with(n_jobs, item, work, callback) for item in items)
    return _side_by_side(items, work, n_jobs)


def _process_with(n_jobs: int | None, item: Input, work: Work, callback: Any = None) -> Outcome:
    with crew_of(n_jobs):
        return process(item, work, callback)


def _side_by_side(items: Sequence[Input], work: Work, n_jobs: int) -> Generator[Outcome, None, None]:
    n_processes = min(n_jobs, len(items))
    n_threads = n_jobs // n_processes
    todo = deque(items)
    while todo:
        begun: dict[Future[Outcome], Input] = {}
        pool = _pool(n_processes, n_threads)
        try:
            while todo or begun:
                while todo and len(begun) < _PENDING_PER_JOB * n_processes:
                    begun[_submit(pool, todo[0], work)] = todo[0]
                    todo.popleft()
                finished, _ = wait(begun, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
                    del begun[future]
        except BrokenProcessPool:  # one of those running crashed its process: each gets a process of its own
            for future, item in begun.items():
                finished_well = future.done() and future.exception() is None
                yield future.result() if finished_well else _process_apart(item, work, n_threads)
        except BaseException:
            end_workers()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _process_apart(item: Input, work: Work, n_threads: int) -> Outcome:
    pool = _pool(1, n_threads)
    try:
        return _submit(pool, item, work).result()
    except BrokenProcessPool:
        reason = "the process that worked on it was ended from outside, perhaps for lack of memory"
        return Outcome(item.path, "failed", reason)
    except BaseException:
        end_workers()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _pool(n_processes: int, n_threads: int) -> ProcessPoolExecutor:
    """Return fresh processes, not forks: a fork of a process with threads may hang."""
    return ProcessPoolExecutor(n_processes, get_context("spawn"), begin_worker, (n_threads,))


def _submit(pool: ProcessPoolExecutor, item: Input, work: Work) -> Future[Outcome]:
    """Submit an input; the first time, this starts the workers, which inherit that Ctrl-C is ignored."""
    with unheard_by_workers():
        return pool.submit(in_worker, process, item, work)


def fit_shared(
    items: Sequence[Input],
    reading: ReadOptions,
    parameters: dict[str, Any],
    callback: Any = None,
    n_jobs: int | None = None,
) -> Segmenter:
    """Fit one model to an even sample of the inputs, few enough to be held in memory together.

    It forgets these images, and can be sent to workers for little.
    """
    if reading.seeds is not None and len(items) > 1:
        raise ValueError(f"strokes (--seeds) are learned from one image at a time, got {len(items)}")
    with crew_of(n_jobs):
        sample = read_sample(items, reading)
        model = fit_model(sample, parameters, callback, read_seeds(items[0].path, reading, sample[0]))
    for name in _OF_IMAGES:
        vars(model).pop(name, None)
    return model


def read_sample(items: Sequence[Input], reading: ReadOptions) -> list[Image]:
    """Read images spread evenly over the inputs; one that cannot be read is replaced by the next.

    At most 16 files are read, and no more once 16 million pixels are reached. Images whose number of channels
    differs from the first are left out.
    """
    sample: list[Image] = []
    reason = "there are none"
    starts = np.unique(np.linspace(0, len(items), min(_SAMPLE_IMAGES, len(items)), endpoint=False, dtype=int))
    for start, end in zip(starts, [*starts[1:], len(items)], strict=True):
        for item in items[start:end]:
            try:
                large = needs_blocks(item.path, reading)
                images = sample_of(item.path, reading) if large else read_scene(item.path, reading)
            except (OSError, ValueError) as error:
                reason = reason_of(error)
                continue
            sample += [
                image
                for image in images
                if not sample or image.pixels.shape[2:] == sample[0].pixels.shape[2:]
            ]
            break
        if sum(math.prod(image.pixels.shape[:2]) for image in sample) >= _SAMPLE_PIXELS:
            break
    if not sample:
        raise ValueError(f"no image can be read to learn textures from ({reason})")
    return sample


def write_report(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write one record per input, as CSV or JSON according to the suffix of `path`."""
    records = [_record(outcome) for outcome in outcomes]
    if path.suffix.lower() == ".json":
        text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
    else:
        buffer = StringIO(newline="")
        writer = csv.DictWriter(buffer, _record(Outcome(path, "done")), lineterminator="\n")
        writer.writeheader()
        for record in records:
            cells = {**record, "outputs": ";".join(record["outputs"])}
            writer.writerow({field: harmless_cell(value) for field, value in cells.items()})
        text = buffer.getvalue()
    atomic_write(path, text.encode())


def _record(outcome: Outcome) -> dict[str, Any]:
    height, width = outcome.shape or (None, None)
    return {
        "input": shown(outcome.input),
        "status": outcome.status,
        "reason": shown(outcome.reason),
        "n_segments": outcome.n_segments or None,
        **outcome.sure._asdict(),
        "height": height,
        "width": width,
        "seconds": round(outcome.seconds, 3),
        "outputs": [shown(output) for output in outcome.outputs],
    }
