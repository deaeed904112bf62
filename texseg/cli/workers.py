"""Processes that work on images side by side: they start quietly, and end with their parent process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from texseg.threads import crew_of

T = TypeVar("T")

_GRACE = 0.7  # seconds in which a worker may remove the file it is writing

_OF_THE_MAIN_PROCESS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
"""Signals that a terminal sends to workers, too; the main process decides what becomes of them."""


def begin_worker(n_threads: int) -> None:
    """Set up a new worker: its processors, the signals it handles, and that it never outlives its parent."""
    import cv2
    from threadpoolctl import threadpool_limits

    for number in _OF_THE_MAIN_PROCESS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cv2.setNumThreads(n_threads)
    threadpool_limits(n_threads)
    _threads.append(n_threads)


_threads = [1]  # the last: how many this worker may use
_at_work = threading.Event()


def _leave(number: int, frame: FrameType | None) -> None:
    """Unwind the work on an image; anywhere else that might leave a lock between processes behind."""
    if not _at_work.is_set():
        os._exit(1)
    threading.Thread(target=_end_soon, daemon=True).start()
    sys.exit(1)


def _end_soon() -> None:
    time.sleep(_GRACE)
    os._exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        _end_soon()


def in_worker(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; if the worker is told to leave meanwhile, nothing follows."""
    _at_work.set()
    try:
        with crew_of(_threads[-1]):
            return function(*arguments)
    except SystemExit:
        os._exit(1)
    finally:
        _at_work.clear()


@contextlib.contextmanager
def unheard_by_workers() -> Iterator[None]:
    """Make workers that are started inside inherit that the signals of a terminal are blocked.

    The main process receives them at the end of the block.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_MAIN_PROCESS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_workers() -> None:
    """End all workers, first by asking them."""
    workers = multiprocessing.active_children()
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        if worker.is_alive():
            worker.kill()
