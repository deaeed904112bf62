"""Threads: how many a call may use, BLAS limited to one, and compiled loops that run without Python's lock.

A call opens a crew with :func:`crew_of`; everything it runs may then share its work with
:func:`side_by_side`, at any depth, and together they never use more threads than the crew has. How work is
divided does not depend on their number, and so neither do the results.
"""

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

try:  # compiled twins of a few functions, where installing found a compiler: the same but for rounding
    from texseg import _kernels as kernels  # type: ignore[attr-defined]

    if kernels.__doc__ != "2":  # an editable install keeps what older sources were compiled to
        kernels = None
except ImportError:
    kernels = None
LANES = 8  # clusters that a compiled loop sees at once
LARGE = 2**20  # pixels; the planes of smaller images take little

_T = TypeVar("_T")
_R = TypeVar("_R")
_P = ParamSpec("_P")

_lock = threading.Lock()
_users = 0
_limits: dict[str, tuple[Callable[[int], Any], int]] = {}


class one_blas_thread(ContextDecorator):  # reads as the function it is used as
    """Limit BLAS to one thread as long as any caller needs it: more would wait for each other.

    The limit is the process's: the first to enter sets it, and the last to leave restores the previous one.
    """

    def __enter__(self) -> Self:
        global _users
        with _lock:
            import numpy.linalg  # noqa: F401  # only loaded libraries can be limited

            for library in _blas(len(sys.modules)):
                if library.filepath not in _limits:
                    # since 3.7, threadpoolctl's own listens to one thread alone
                    limit = getattr(library, "_real_set_num_threads", library.set_num_threads)
                    _limits[library.filepath] = limit, library.num_threads
                    limit(1)
            _users += 1
        return self

    def __exit__(self, *_: object) -> None:
        global _users
        with _lock:
            _users -= 1
            if not _users:
                for limit, before in _limits.values():
                    limit(before)
                _limits.clear()


@lru_cache(maxsize=1)
def _blas(n_modules: int) -> list[Any]:
    """Libraries of BLAS; looked for again where modules were loaded, which bring them."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def give_back(n_pixels: int) -> None:
    """Return memory that was freed to the system, before much is needed again; C libraries would keep it."""
    with suppress(AttributeError, OSError, TypeError):  # of libraries that do so by themselves
        if n_pixels >= LARGE:
            ctypes.CDLL(None).malloc_trim(0)


def n_threads(n_jobs: int | None) -> int:
    """Give the number of threads for ``n_jobs``; None and -1 stand for all processors of this process."""
    if n_jobs is not None and n_jobs != -1:
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1:
            raise ValueError(f"n_jobs must be a whole number of at least 1, or -1 for all, got {n_jobs!r}")
        return n_jobs
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


_crew: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("_crew", default=None)
"""Threads that help the calling one, and their number."""


@contextmanager
def crew_of(n_jobs: int | None) -> Iterator[None]:
    """Let `side_by_side` use ``n_jobs`` threads, with this one; inside another crew, those of that one."""
    size = n_threads(n_jobs) - 1
    if size < 1 or _crew.get() is not None:
        yield
        return
    with ThreadPoolExecutor(size, "texseg") as pool:
        token = _crew.set((pool, size))
        try:
            yield
        finally:
            _crew.reset(token)


def crew_size() -> int:
    """Give the number of threads available here, including this one."""
    crew = _crew.get()
    return 1 if crew is None else 1 + crew[1]


def computing(method: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[_T, _P], _R]:
    """Run a method with as many threads as its object's ``n_jobs`` allows, and BLAS with one."""

    @wraps(method)
    def run(self: _T, /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        import numpy as np  # which the command's help does without

        usual = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
        with usual, one_blas_thread(), crew_of(self.n_jobs):  # type: ignore[attr-defined]
            return method(self, *arguments, **named)

    return run


def side_by_side(
    function: Callable[[_T], _R],
    items: Iterable[_T],
    tell: Callable[[int, int], Any] | None = None,
    at_once: int | None = None,
) -> list[_R]:
    """Return ``function`` of each item, in order; free threads of the crew help, at any depth of such calls.

    The calling thread calls ``tell``, before each of its items, with the numbers of items done and of all.
    No more than ``at_once`` items are worked on together.
    """
    given, crew = list(items), _crew.get()
    if tell is None and (crew is None or len(given) < 2):
        return [function(item) for item in given]
    results: list[Any] = [None] * len(given)
    todo = deque(range(len(given)))
    done: list[int] = []

    def work(tell: Callable[[int, int], Any] | None = None) -> None:
        try:
            while True:
                try:
                    index = todo.popleft()
                except IndexError:  # another thread has taken the last
                    return
                if tell is not None:
                    tell(len(done), len(given))
                results[index] = function(given[index])
                done.append(index)
        except BaseException:
            todo.clear()  # no thread begins another
            raise

    helpers = []
    if crew is not None:
        pool, size = crew
        n_helpers = min(size, len(given) - 1, (at_once or len(given)) - 1)
        helpers = [pool.submit(copy_context().run, work) for _ in range(n_helpers)]
    try:
        work(tell)
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        errors = [error for helper in begun if (error := helper.exception()) is not None]
    if errors:
        raise errors[0]
    return results
