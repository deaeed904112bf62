"""Threads: how many a call may use, and BLAS held to one of them, whoever calls from wherever."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator
from itertools import islice
from typing import Any, Self, TypeVar

__all__ = ["map_in_order", "n_threads", "one_blas_thread"]

_T = TypeVar("_T")
_R = TypeVar("_R")

_lock = threading.Lock()
_users = 0
_limits: list[tuple[Callable[[int], Any], int]] = []


class one_blas_thread(ContextDecorator):  # noqa: N801  # reads as the function it is used as
    """Hold BLAS to one thread as long as anybody needs it, a context or a decorator.

    Its products are small here: more threads would spend several times the processor time waiting for each
    other. The limit is one for the whole process, so that calls from several threads share it: the first to
    come sets it, and the last to leave restores what was before.

    Examples
    --------
    >>> with one_blas_thread():
    ...     pass
    """

    def __enter__(self) -> Self:
        global _users, _limits
        with _lock:
            if not _users:
                import numpy.linalg  # noqa: F401  # what is not loaded is not limited
                import scipy.linalg  # noqa: F401
                from threadpoolctl import ThreadpoolController

                libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                _limits = [(_setter(library), library.num_threads) for library in libraries]
                for limit, _ in _limits:
                    limit(1)
            _users += 1
        return self

    def __exit__(self, *_: object) -> None:
        global _users, _limits
        with _lock:
            _users -= 1
            if not _users:
                for limit, before in _limits:
                    limit(before)
                _limits = []


def _setter(library: Any) -> Callable[[int], Any]:
    """Give what sets the threads of a library, from any thread.

    Since 3.7 threadpoolctl lets only the thread that came first set them, in silence; here whoever leaves
    last has to.
    """
    return getattr(library, "_real_set_num_threads", library.set_num_threads)


def n_threads(n_jobs: int | None) -> int:
    """Give the number of threads for ``n_jobs``; None and -1 stand for all processors of this process.

    Examples
    --------
    >>> n_threads(3)
    3
    """
    if n_jobs is not None and n_jobs != -1:
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
            raise ValueError(f"n_jobs must be a whole number of at least 1, or -1 for all, got {n_jobs!r}")
        return n_jobs
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


def map_in_order(function: Callable[[_T], _R], items: Iterable[_T], n_jobs: int) -> Iterator[_R]:
    """Yield ``function`` of each item, in order, with ``n_jobs`` threads and no more results in waiting.

    Examples
    --------
    >>> list(map_in_order(abs, range(-3, 1), 2))
    [3, 2, 1, 0]
    """
    if n_jobs == 1:
        yield from map(function, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(n_jobs) as pool:
        waiting = [pool.submit(function, item) for item in islice(rest, n_jobs)]
        try:
            while waiting:
                result = waiting.pop(0).result()
                waiting += [pool.submit(function, item) for item in islice(rest, 1)]
                yield result
        finally:
            for future in waiting:
                future.cancel()
