"""Files that appear whole or not at all, even if several processes write the same one.

What is unfinished lies in a hidden folder of its own, whose name nobody can foresee. A locked file in it says
that it is texseg's and in use: what a killed run left is known by that file, whose lock is free then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows: unfinished files of killed runs stay there
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".part"
_LOCK, _CONTENT = "lock", "content"
_MARK = b"texseg: unfinished, removed by the next run that writes the same file\n"


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file in full before it gets its name, replacing an older one."""
    with _named(path), unfinished(path) as temporary, temporary.open("xb") as file:
        file.write(content)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Make an error of the system name the file that was meant."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a free name for a file, or a folder, that replaces ``path`` at the end unless there is an error.

    Leftovers of killed runs that wrote the same file are removed; what another run is writing is not.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(f"{path} is a device or a pipe and was not replaced; choose another name")
    prefix = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}."
    with _named(path):
        folder, lock = _own_folder(path.parent, prefix)
    temporary = folder / _CONTENT
    try:
        yield temporary
        with _named(path):
            if not temporary.is_dir():
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            elif path.is_dir() and not path.is_symlink():
                path.replace(folder / "old")
            temporary.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)
    remove_leftovers(path.parent, prefix)


def _own_folder(place: Path, prefix: str) -> tuple[Path, int | None]:
    """Make a folder that belongs to this process alone; also return its locked file."""
    while True:
        folder = place / f"{prefix}{secrets.token_hex(8)}{_SUFFIX}"
        folder.mkdir(0o700)
        if fcntl is None:
            return folder, None
        with contextlib.suppress(FileNotFoundError):  # another process took the empty folder for a leftover
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC)
            if _locked(lock) is not False and (folder / _LOCK).exists():
                os.write(lock, _MARK)
                return folder, lock
            os.close(lock)


def _locked(descriptor: int) -> bool | None:
    """Lock a file; False if another process holds the lock, None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def remove_leftovers(place: Path, prefix: str = ".") -> None:
    """Remove unfinished folders that are texseg's by what they hold, and that no process has locked."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in list(entries):
            is_named_so = entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)
            if is_named_so and entry.is_dir(follow_symlinks=False):
                _remove_leftover(Path(entry))


def _remove_leftover(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # killed before it had written anything
        return
    try:
        content = os.read(lock, len(_MARK) + 1)
        if content == _MARK and _locked(lock):
            shutil.rmtree(folder, ignore_errors=True)
        elif not content and _locked(lock):
            with contextlib.suppress(OSError):
                (folder / _LOCK).unlink()
                folder.rmdir()
    finally:
        os.close(lock)
