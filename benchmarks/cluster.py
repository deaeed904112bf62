"""A scene that no machine here holds, on a cluster: tasks, memory of the largest, and time over the ideal.

Usage: python benchmarks/cluster.py [--side 99328] [--workers 64] [--bandwidth 1e8]

Blocks cost what reading a few real ones costs; their parts are joined by the code that runs on a cluster, on
copies of the parts of these. Every task that is ready goes to the next worker that is free, and costs what it
took here, what dask's scheduler adds (a millisecond), and the time of its inputs on the network. The ideal is
the processor time of all blocks over the number of workers.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import limit_threads, machine
from benchmarks.speed import mirrored
from texseg import TextureSegmenter
from texseg.cli.record import PartsFolder
from texseg.io.write import Layout, write_rows
from texseg.method.blocks import (
    SHARD,
    ArrayWindows,
    BlockPlan,
    Request,
    joined_tallies,
    plan_blocks,
    read_block,
    write_side_by_side,
)
from texseg.method.labelling import finished
from texseg.pixels.joining import joined_labels

K = 5
_OVERHEAD = 1e-3  # seconds, of a task in dask's scheduler and worker
_SEEN = 4  # rows and columns of blocks that are really read
_WRITTEN = 16  # rows of blocks that are really written


class Task(NamedTuple):
    """What ran, after what else."""

    number: int
    value: Any
    seconds: float
    size: int  # bytes of inputs and output
    after: tuple[int, ...]
    kind: str


class Recorder:
    """Runs functions as a cluster would, one after the other, and notes what each cost."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def add(self, value: Any, seconds: float, size: int, after: tuple[int, ...], kind: str) -> Task:
        """Note a task."""
        self.tasks.append(Task(len(self.tasks), value, seconds, size, after, kind))
        return self.tasks[-1]

    def __call__(self, function: Callable[..., Any], *given: Any) -> Task:
        """Run a function of tasks."""
        after: list[int] = []

        def value_of(each: Any) -> Any:
            if isinstance(each, Task):
                after.append(each.number)
                return each.value
            return {name: value_of(own) for name, own in each.items()} if isinstance(each, dict) else each

        values = [value_of(each) for each in given]
        start = time.process_time()
        found = function(*values)
        seconds = time.process_time() - start
        size = sum(len(pickle.dumps(each, protocol=5)) for each in (*values, found))
        return self.add(found, seconds, size, tuple(after), function.__name__)


def finish_time(tasks: list[Task], n_workers: int, bandwidth: float) -> float:
    """Seconds until all is done."""
    waiting = [len(task.after) for task in tasks]
    followers: list[list[int]] = [[] for _ in tasks]
    for task in tasks:
        for number in task.after:
            followers[number].append(task.number)
    ready = [(task.number, 0.0) for task in tasks if not task.after]
    heapq.heapify(ready)
    free, running, now = n_workers, [], 0.0
    while ready or running:
        while ready and free:
            number, _ = heapq.heappop(ready)
            task, free = tasks[number], free - 1
            moved = task.size / bandwidth if task.after else 0.0
            heapq.heappush(running, (now + task.seconds + _OVERHEAD + moved, number))
        now, number = heapq.heappop(running)
        free += 1
        for other in followers[number]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (other, now))
    return now


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=97 * 1024)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--bandwidth", type=float, default=1e8, help="bytes a second between two workers")
    options = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    image = mirrored(2048)
    image = np.concatenate([np.concatenate([image, image[::-1]]), np.concatenate([image, image[::-1]])], 1)
    model = TextureSegmenter(K, random_state=0).fit(mirrored(512))
    small = plan_blocks(image.shape, model.textures_)
    plan, run = BlockPlan((options.side, options.side), small.side, small.margin), Recorder()
    with tempfile.TemporaryDirectory() as folder:
        store = PartsFolder(Path(folder, "parts"), {"texseg": "simulated"}, False)
        simulate(plan, run, image, model, store, options)


def simulate(
    plan: BlockPlan, run: Recorder, image: Any, model: Any, store: PartsFolder, options: argparse.Namespace
) -> None:
    """Read some blocks, join and write copies of them, and print what all took."""
    source, small = ArrayWindows(image), BlockPlan(image.shape, plan.side, plan.margin)
    request, seconds = Request(preview=64, confidence=True, finds_novelty=True), []
    for place in itertools.product(range(_SEEN), repeat=2):
        start = time.process_time()
        store[place] = read_block(source, place, small, model.textures_, request)
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(plan)} blocks of {plan.sides[0]} pixels, {np.mean(seconds):.2f} s each, peak {peak:.2f} GB")
    parts = {place: store[place].parts for place in small}

    def parts_of(place: Any) -> Task:
        own = parts[place[0] % _SEEN, place[1] % _SEEN]
        first = own.first + (place[0] * options.side + place[1]) * plan.sides[0]  # elsewhere, the same order
        size = len(pickle.dumps(own, protocol=5))
        return run.add(own._replace(first=first), float(np.mean(seconds)), size, (), "read")

    names = joined_labels(plan, parts_of, model.textures_.speck_area(1.0), 0, run)
    strips: dict[Any, list[Any]] = {}
    for place, own in names.items():
        strips.setdefault((place[0], place[1] // SHARD), []).append((place, own))
    side = plan.sides[0]
    layout = Layout((_WRITTEN * side, SHARD * side), K, block=(side, SHARD))
    path = store.new_maps(layout, [K, 255], request.preview)
    start = time.process_time()
    done = {}
    for place, own in strips[0, 0]:
        block = store[place[0] % _SEEN, place[1] % _SEEN]
        done[place] = finished(block, tuple(each.value for each in own), K)
    _, tally = write_side_by_side(done, BlockPlan(layout.shape, side, 0), store)
    a_block = (time.process_time() - start) / SHARD
    for row in range(1, _WRITTEN):
        below = {(row, place[1]): own for place, own in done.items()}
        write_side_by_side(below, BlockPlan(layout.shape, side, 0), store)
    for own in strips.values():
        after = tuple(each.number for _, names in own for each in names)
        run.add(None, a_block * len(own), 4 * side**2, after, "write")
    copies = {place: pickle.loads(pickle.dumps(tally)) for place in strips}
    start = time.process_time()
    joined_tallies(copies).segments()
    joins = time.process_time() - start
    start = time.process_time()
    store.maps(request.preview)
    write_rows([path.with_name("written.zarr")], [], layout._replace(written=path))
    levels = len(plan) / (_WRITTEN * SHARD) * (time.process_time() - start)
    ideal = np.mean(seconds) * len(plan) / options.workers
    for n_workers in (1, options.workers):
        took = finish_time(run.tasks, n_workers, options.bandwidth)
        alone = np.mean(seconds) * len(plan) / n_workers
        print(f"{n_workers} workers: {took:.0f} s, {took / alone:.3f} times the ideal of {alone:.0f} s")
    print_tasks(run.tasks)
    print(f"{len(run.tasks)} tasks, {len(run.tasks) / len(plan):.2f} a block")
    print(f"the process that waits: {joins:.1f} s to join tables, {levels:.1f} s for smaller levels")
    print(f"with it {(took + joins + levels) / ideal:.3f} times the ideal")


def print_tasks(tasks: list[Task]) -> None:
    for kind in dict.fromkeys(task.kind for task in tasks):
        own = [task for task in tasks if task.kind == kind]
        largest, longest = max(task.size for task in own), max(task.seconds for task in own)
        mean = np.mean([task.seconds for task in own])
        times = f"{mean * 1e3:.1f} ms, at most {longest * 1e3:.0f}"
        print(f"{kind}: {len(own)} tasks, {times} ms, {largest / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
