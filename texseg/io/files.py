"""The one way in which texseg opens files that a user names: regular files of a plausible size."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from texseg.io.errors import MalformedFileError


def path_of(path: Any) -> Path:
    """Return what a caller names a file by."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path must be the name of a file, got {path!r:.80}")
    return Path(path)


def open_regular(path: str | os.PathLike[str], largest: int | None = None) -> BinaryIO:
    """Open a regular file of at most `largest` bytes; a pipe or a device would block, or never end."""
    path = Path(path)
    if path.is_symlink() and not path.exists():
        raise MalformedFileError("symbolic link that leads nowhere")
    _check_kind(path.stat(), largest)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    try:
        _check_kind(os.fstat(file.fileno()), largest)  # nobody exchanged it in between
    except BaseException:
        file.close()
        raise
    return file


def _check_kind(status: os.stat_result, largest: int | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise MalformedFileError("this is a folder, not an image")
    if not stat.S_ISREG(status.st_mode):
        raise MalformedFileError("this is a device or a pipe, not a file")
    if largest is not None and status.st_size > largest:
        raise MalformedFileError(
            f"file of {status.st_size / 1e6:.1f} MB, of which at most {largest / 1e6:.1f} MB are read"
        )


def read_json(path: str | os.PathLike[str], largest: int, what: str = "JSON") -> Any:
    """Content of a small regular file of JSON."""
    with open_regular(path, largest) as file:
        text = file.read()
    try:
        return json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise MalformedFileError(f"not {what}: it is not text") from None
    except RecursionError:
        raise MalformedFileError(f"not {what}: brackets are nested too deeply") from None
    except ValueError as error:
        raise MalformedFileError(f"not {what}: {error}") from None


def side_text(path: Path, largest: int) -> str | None:
    """Text of a small regular file; None if there is no such file, or it is not text."""
    try:
        with open_regular(path, largest) as file:
            return file.read().decode("utf-8-sig")
    except (OSError, ValueError):
        return None
