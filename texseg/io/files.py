"""Files that a user names: regular ones of a plausible size, what they are, and how they are written.

What texseg writes appears whole or not at all, even if several processes write the same file. What is
unfinished lies in a hidden folder of its own, whose name nobody can foresee. A locked file in it says that it
is texseg's and in use: what a killed run left is known by that file, whose lock is free then.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # on Windows: unfinished files of killed runs stay there
    fcntl = None  # type: ignore[assignment]


PathName = str | os.PathLike[str]


class ImageReadError(OSError):
    """A file that is missing, broken, or not an image; the message names the file and the reason."""


class ImageTooLargeError(ValueError):
    """An image larger than the limit according to its header; nothing was decoded."""


class UnsuitableImageError(ValueError):
    """A valid file that does not hold a single real image: wrong shape or type, or several pages."""


class MalformedFileError(OSError):
    """The reason, in words, why a file cannot be read; the reader adds the name of the file."""


INVALID = "{} is invalid: the file is corrupt"
WRONG_SIZE = "the decoded image is not of the size in the header, file is corrupt"


def reason_of(error: Exception) -> str:
    """One line that says why a file cannot be read."""
    if isinstance(error, MalformedFileError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, struct.error) or "truncated" in str(error):
        return "file is truncated"
    said = " ".join(str(error).split())
    return f"file is corrupt ({said[:100] or type(error).__name__})"


def path_of(path: Any) -> Path:
    """Return what a caller names a file by."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path must be the name of a file, got {' '.join(repr(path).split()):.80}")
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
    size, most = status.st_size / 1e6, (largest or math.inf) / 1e6
    if size > most:
        raise MalformedFileError(f"file of {size:.1f} MB, of which at most {most:.1f} MB are read")


def is_special(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path leads to a pipe, a socket or a device."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def read_json(path: str | os.PathLike[str], largest: int, what: str = "JSON") -> Any:
    """Content of a small regular file of JSON."""
    with open_regular(path, largest) as file:
        text = file.read()
    try:
        return json.loads(text.decode("utf-8-sig"))
    except (RecursionError, ValueError) as error:
        known = {UnicodeDecodeError: "it is not text", RecursionError: "brackets are nested too deeply"}
        raise MalformedFileError(f"not {what}: {known.get(type(error), error)}") from None


def digest_of(path: Path) -> str:
    """SHA-256 of a file; for a folder, of the names and contents of all its files."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        digests = [(str(file.relative_to(path)), digest_of(file)) for file in files]
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def side_text(path: Path, largest: int) -> str | None:
    """Text of a small regular file; None if there is no such file, or it is not text."""
    try:
        with open_regular(path, largest) as file:
            return file.read().decode("utf-8-sig")
    except (OSError, ValueError):
        return None


_READABLE = "PNG, JPEG, TIFF, BMP, WebP, GIF, JPEG 2000, ENVI and NumPy .npy"
SNIFF_BYTES = 512


@cache
def _signatures() -> list[list[str]]:
    """Kind of file, name of the format, and pattern of the first bytes."""
    table = Path(__file__).with_name("signatures.tsv").read_text("ascii")
    return [line.split("\t") for line in table.splitlines()]


def format_of(start: bytes, *kinds: str) -> str:
    """Name of the format that the first bytes of a file announce, of these kinds; empty for any other."""
    for kind, name, pattern in _signatures():
        if kind in kinds and re.match(pattern.encode(), start, re.DOTALL):
            return name
    return ""


def is_image(path: Path) -> bool:
    """Tell whether a file is a regular one that begins as images do."""
    try:
        with open_regular(path) as file:
            return bool(format_of(file.read(SNIFF_BYTES), "image"))
    except OSError:
        return False


def refusal(start: bytes) -> MalformedFileError:
    """Return an error that says what a file is, given that it is not an image."""
    if not start:
        return MalformedFileError("empty file")
    unread = format_of(start, "unread", "arrays")
    if unread == "ENVI header":
        return MalformedFileError("this is the header of an ENVI image; pass the data file next to it")
    if unread:
        return MalformedFileError(f"{unread} files are not read; convert it to one of {_READABLE}")
    known = format_of(start, "other")
    is_text = b"\0" not in start and len(start.decode("utf-8", "ignore").encode()) > len(start) - 4
    return MalformedFileError(f"{known or ('text file' if is_text else 'unknown content')}, not an image")


_ENDINGS = {"report": ".html .htm", "model": "", "GeoJSON": ".geojson .json .gpkg", "summary": ".csv .json"}
"""Of what is written under a name that a user gives; empty: any."""


def output_path(path: Any, kind: str) -> Path:
    """Name of a file to write, checked before any work: it may replace only an earlier one of its kind."""
    target, allowed, content = path_of(path), _ENDINGS[kind].split(), b""
    if allowed and target.suffix.lower() not in allowed:
        said = f"{target} cannot be the name of the {kind} to write, which ends in"
        example = f"{target.stem}_{kind.lower()}{allowed[0]}"
        raise ValueError(f"{said} {' or '.join(allowed)}; choose another, such as {example}")
    if target.is_file():
        with open_regular(target) as file:
            content = file.read(SNIFF_BYTES)
    if target.exists() and not (target.is_file() and (not content or format_of(content, kind))):
        said = f"{target} exists and is not a {kind} of texseg"
        raise FileExistsError(f"{said}; it was not replaced, choose another name")
    return target


_SUFFIX = ".part"
_LOCK, _CONTENT = "texseg.lock", "content"


def atomic_write(path: Path, content: bytes, parents: bool = True) -> None:
    """Write a file in full before it gets its name, replacing an older one; its folder is made, if wanted."""
    with _named(path), unfinished(path, parents) as temporary, temporary.open("xb") as file:
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
def unfinished(path: Path, parents: bool = True) -> Iterator[Path]:
    """Yield a free name for what replaces ``path`` unless there is an error; leftovers of it are removed."""
    if is_special(path):
        raise OSError(f"{path} is a device or a pipe and was not replaced; choose another name")
    prefix = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}."
    with _named(path):
        folder, lock = _own_folder(path.parent, prefix, parents)
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
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:  # once more if a signal came just now
            shutil.rmtree(folder, ignore_errors=True)
            if lock is not None:
                os.close(lock)
    remove_leftovers(path.parent, prefix)


def _own_folder(place: Path, prefix: str, parents: bool) -> tuple[Path, int | None]:
    """Make a folder that belongs to this process alone; also return its locked file."""
    while True:
        folder = place / f"{prefix}{secrets.token_hex(8)}{_SUFFIX}"
        try:
            folder.mkdir(0o700, parents)
            if fcntl is None:
                return folder, None
            with contextlib.suppress(FileNotFoundError):  # another process took the empty one for a leftover
                lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                if _locked(lock) is not False and (folder / _LOCK).exists():
                    return folder, lock
                os.close(lock)
        except KeyboardInterrupt:
            shutil.rmtree(folder, ignore_errors=True)
            raise


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
                with contextlib.suppress(OSError):
                    os.rmdir(entry)  # killed before it had written anything
                with contextlib.suppress(OSError):
                    lock = os.open(Path(entry, _LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                    if _locked(lock):
                        shutil.rmtree(entry, ignore_errors=True)
                    os.close(lock)
