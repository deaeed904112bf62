"""Files that appear whole or not at all, even if several processes write the same one."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows: unfinished files of killed runs stay there
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".part"


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file in full before it gets its name, replacing an older one.

    Leftovers of an earlier run that was killed while writing the same file are removed; what another run is
    writing at this moment is not.
    """
    try:
        for slot in itertools.count():
            temporary = unfinished(path, slot)
            descriptor = _claimed(temporary)
            if descriptor is not None:
                _finish(descriptor, temporary, path, content)
                break
        _remove_leftovers(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # name the intended file


def unfinished(path: Path, slot: int = 0) -> Path:
    """Name of a file until it is complete; short, since its final name may have the maximum length."""
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    return path.with_name(f".{digest}.{slot}{_SUFFIX}")


def _finish(descriptor: int, temporary: Path, path: Path, content: bytes) -> None:
    try:
        with open(descriptor, "wb", closefd=fcntl is None) as file:  # Windows cannot rename an open file
            file.truncate()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        if fcntl is not None:  # the name is free now, so the lock may be released
            os.close(descriptor)


def _claimed(temporary: Path) -> int | None:
    """Open a file that belongs to this process alone; None if another one is writing it."""
    if fcntl is None:
        try:
            return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError:
            return None
    while True:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:  # a file system without locks
            return descriptor
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(temporary)):
                return descriptor
        os.close(descriptor)  # meanwhile another process finished or removed it


def _remove_leftovers(path: Path) -> None:
    """Remove what several runs left behind that were killed at the same time."""
    for slot in itertools.count(1):
        temporary = unfinished(path, slot)
        if fcntl is None or not temporary.exists():
            return
        descriptor = _claimed(temporary)
        if descriptor is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
            os.close(descriptor)
