"""Threads: how many a call may use, and BLAS held to one of them, whoever calls from wherever.

A call opens a crew with :func:`crew_of`; whatever it runs may then share out its work with
:func:`side_by_side`, at any depth, and all together never use more threads than the crew has. How work is cut
does not depend on their number, so that neither do the results.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar, copy_context
from functools import wraps
from itertools import islice
from typing import Any, NamedTuple, Self, TypeVar

__all__ = [
    "computing",
    "crew_of",
    "crew_size",
    "map_in_order",
    "n_threads",
    "one_blas_thread",
    "side_by_side",
]

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


class _Crew(NamedTuple):
    """Threads that help the one that called."""

    pool: ThreadPoolExecutor
    size: int


_crew: ContextVar[_Crew | None] = ContextVar("_crew", default=None)


@contextmanager
def crew_of(n_jobs: int | None) -> Iterator[None]:
    """Let :func:`side_by_side` use ``n_jobs`` threads, this one included; inside another crew, that one's.

    Examples
    --------
    >>> with crew_of(2):
    ...     side_by_side(abs, [-3, 2])
    [3, 2]
    """
    size = n_threads(n_jobs) - 1
    if size < 1 or _crew.get() is not None:
        yield
        return
    with ThreadPoolExecutor(size, "texseg") as pool:
        token = _crew.set(_Crew(pool, size))
        try:
            yield
        finally:
            _crew.reset(token)


def crew_size() -> int:
    """Give the number of threads that work here, this one included.

    Examples
    --------
    >>> crew_size()
    1
    """
    crew = _crew.get()
    return 1 if crew is None else 1 + crew.size


def computing(method: Callable[..., _R]) -> Callable[..., _R]:
    """Run a method with as many threads as the ``n_jobs`` of its object says, and BLAS with one."""

    @wraps(method)
    def run(self: Any, *arguments: Any, **named: Any) -> _R:
        with one_blas_thread(), crew_of(self.n_jobs):
            return method(self, *arguments, **named)

    return run


def side_by_side(
    function: Callable[[_T], _R], items: Iterable[_T], tell: Callable[[int, int], Any] | None = None
) -> list[_R]:
    """Give ``function`` of each item, in order; the threads of the crew that are free help.

    The calling thread works, too, and waits for nothing that was not begun, so that a function may share out
    its own work in turn. Without a crew (:func:`crew_of`) it does everything alone. ``tell`` is called on it,
    before each of its items, with the number of items that are done and of all.

    Examples
    --------
    >>> side_by_side(len, ["a", "bcd"])
    [1, 3]
    """
    given, crew = list(items), _crew.get()
    results: list[Any] = [None] * len(given)
    todo = deque(range(len(given)))
    done: list[int] = []

    def work(tell: Callable[[int, int], Any] | None = None) -> None:
        try:
            while (index := _taken(todo)) is not None:
                if tell is not None:
                    tell(len(done), len(given))
                results[index] = function(given[index])
                done.append(index)
        except BaseException:
            todo.clear()  # nobody begins another
            raise

    helpers = []
    if crew is not None:
        n = min(crew.size, len(given) - 1)
        helpers = [crew.pool.submit(copy_context().run, work) for _ in range(n)]
    try:
        work(tell)
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        errors = [error for helper in begun if (error := helper.exception()) is not None]
    if errors:
        raise errors[0]
    return results


def _taken(todo: deque[int]) -> int | None:
    """Take the first from what is to be done; None when another thread had the last."""
    try:
        return todo.popleft()
    except IndexError:
        return None


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
