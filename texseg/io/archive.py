"""Plain data in a ZIP archive, readable without this library and never unpickled.

An archive holds ``header.json`` (what it is, its version, a checksum of all values, the small values) and one
``.npy`` member per array. Members carry a fixed date, so the same values always give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from texseg.io.atomic import atomic_write

FORMAT = "texseg model"
VERSION = 2
"""1 had no checksum."""
_HEADER = "header.json"
_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)
_LARGEST_MODEL = 2**26  # bytes, unpacked; 255 textures with 256 bins a channel are a third of it
_LARGEST_HEADER = 2**20  # bytes; 255 names and their colours are a fiftieth of it
_MOST_MEMBERS = 256
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks the others without bound


class ModelFileError(OSError):
    """A model file that is missing, broken, foreign, or written by a newer version."""


def save_model(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write a flat mapping as a model file; an interrupted call leaves no partial file.

    Parameters
    ----------
    path : str or path-like
        Where to write; an existing file is replaced.
    values : mapping of str to value
        Arrays of numbers, booleans or strings, and anything JSON can hold (numbers, strings, None, lists
        and dictionaries of these).

    Raises
    ------
    TypeError
        A value is neither an array of plain data nor known to JSON.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rock.texseg"
    >>> save_model(path, {"names": ["quartz", "mica"], "profiles": np.eye(2)})
    >>> load_model(path)["names"]
    ['quartz', 'mica']
    """
    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    small = {key: _plain(key, value) for key, value in values.items() if key not in arrays}
    members = {key: _npy_bytes(key, array) for key, array in arrays.items()}
    header = {"format": FORMAT, "version": VERSION, "sha256": _checksum(small, arrays), "values": small}
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, _HEADER, json.dumps(header, indent=1, ensure_ascii=False).encode())
        for key, content in members.items():
            _add(archive, key + ".npy", content)
    atomic_write(Path(path), buffer.getvalue())


def load_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a model file that `save_model` wrote.

    Returns
    -------
    dict
        The saved values; tuples have become lists.

    Raises
    ------
    ModelFileError
        The file is missing, broken, not a model file, changed after it was written, or written by a newer
        version of the library.
    """
    name = Path(path).name
    try:
        _check_file(path)
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive)
    except ModelFileError as error:
        raise ModelFileError(f"{name}: {error}") from error
    except FileNotFoundError as error:
        raise ModelFileError(f"{name}: no such model file") from error
    except zipfile.BadZipFile as error:
        raise ModelFileError(f"{name}: not a texseg model file, or a truncated one") from error
    except OSError as error:
        raise ModelFileError(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # a broken archive fails in many ways
        raise ModelFileError(f"{name}: model file is corrupt ({error})") from error


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise TypeError(f"model value {key!r} of type {type(value).__name__} is not plain data") from error


def _npy_bytes(key: str, array: np.ndarray) -> bytes:
    if array.dtype.hasobject:
        raise TypeError(f"model value {key!r} is an array of Python objects; use numbers or strings")
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _checksum(small: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Digest of all values, whatever the order in which they are stored."""
    digest = hashlib.sha256(json.dumps(small, sort_keys=True).encode())
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(json.dumps([key, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, _OLDEST_DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)


def _check_file(path: str | os.PathLike[str]) -> None:
    """Refuse pipes, which would block for ever, and files that are too large, before opening them."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError("is a directory, not a model file")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError("not a regular file")
    if status.st_size > _LARGEST_MODEL:
        raise ModelFileError(f"{status.st_size:,} bytes are no texseg model file")


def _read_archive(archive: zipfile.ZipFile) -> dict[str, Any]:
    members = archive.infolist()
    names = [member.filename for member in members]
    if _HEADER not in names:
        raise ModelFileError("not a texseg model file")
    if len(set(names)) < len(names) or len(names) > _MOST_MEMBERS:
        raise ModelFileError("model file is corrupt (members are repeated, or too many)")
    if any(member.compress_type not in _COMPRESSIONS for member in members):
        raise ModelFileError("model file is corrupt (compressed in another way than model files are)")
    if sum(member.file_size for member in members) > _LARGEST_MODEL:
        raise ModelFileError(f"model file unpacks to more than {_LARGEST_MODEL >> 20} MiB, it is refused")
    if archive.getinfo(_HEADER).file_size > _LARGEST_HEADER:
        raise ModelFileError("model file is corrupt (its header is too long)")
    header = json.loads(_content(archive, _HEADER), object_pairs_hook=_distinct)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("not a texseg model file")
    version = header["version"]
    if version > VERSION:
        raise ModelFileError(
            f"written by a newer texseg (model version {version}, this one reads up to {VERSION}); "
            "update texseg"
        )
    small = dict(header["values"])
    arrays = {
        name.removesuffix(".npy"): _array(_content(archive, name)) for name in names if name.endswith(".npy")
    }
    if (version > 1 or "sha256" in header) and header["sha256"] != _checksum(small, arrays):
        raise ModelFileError("model file was damaged or changed after it was written (checksum differs)")
    if small.keys() & arrays.keys():
        raise ModelFileError("model file is corrupt (a value is there twice)")
    return small | arrays


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    """Unpack no more of a member than its announced size; reading to its end would unpack all there is."""
    with archive.open(name) as member:
        return member.read(archive.getinfo(name).file_size + 1)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with the same key twice."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a value is there twice")
    return dict(pairs)


def _array(content: bytes) -> np.ndarray:
    """Read an array, whose announced size must be that of its data."""
    file = BytesIO(content)
    major = np.lib.format.read_magic(file)[0]
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError("an array is not of the size it announces")
    return np.load(BytesIO(content), allow_pickle=False)
