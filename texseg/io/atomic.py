"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
from pathlib import Path

_SUFFIX = ".part"


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file in full before it gets its name, replacing an older one.

    What an earlier run left behind when it was killed in the middle of the same file is removed.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            leftover.unlink()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:  # name the file that was meant
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
