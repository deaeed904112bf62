"""Plain data in a ZIP archive, readable without this library and never unpickled.

A model file holds ``header.json`` (what it is, its version, the small values) and one ``.npy`` member an
array. Members carry a fixed date, so the same model always gives the same bytes.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from texseg.io.atomic import atomic_write

FORMAT = "texseg model"
VERSION = 1
_HEADER = "header.json"
_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)
_LARGEST_MODEL = 2**30


class ModelFileError(OSError):
    """A model file that is missing, broken, foreign, or written by a newer version."""


def save_model(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write a flat mapping as a model file; an interrupted call leaves no half file.

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
    header = {"format": FORMAT, "version": VERSION, "values": small}
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, _HEADER, json.dumps(header, indent=1, ensure_ascii=False).encode())
        for key, array in arrays.items():
            _add(archive, key + ".npy", _npy_bytes(key, array))
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
        The file is missing, broken, no model file, or written by a newer version of the library.
    """
    name = Path(path).name
    try:
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
        json.dumps(value)
    except TypeError as error:
        raise TypeError(f"model value {key!r} of type {type(value).__name__} is not plain data") from error
    return value


def _npy_bytes(key: str, array: np.ndarray) -> bytes:
    if array.dtype.hasobject:
        raise TypeError(f"model value {key!r} is an array of Python objects; use numbers or strings")
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, _OLDEST_DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)


def _read_archive(archive: zipfile.ZipFile) -> dict[str, Any]:
    names = archive.namelist()
    if _HEADER not in names:
        raise ModelFileError("not a texseg model file")
    if sum(member.file_size for member in archive.infolist()) > _LARGEST_MODEL:
        raise ModelFileError("model file unpacks to more than 1 GiB, it is refused")
    header = json.loads(archive.read(_HEADER))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError("not a texseg model file")
    if header["version"] > VERSION:
        raise ModelFileError(
            f"written by a newer texseg (model version {header['version']}, this one reads up to {VERSION}); "
            "update texseg"
        )
    values = dict(header["values"])
    for name in names:
        if name.endswith(".npy"):
            values[name.removesuffix(".npy")] = np.load(BytesIO(archive.read(name)), allow_pickle=False)
    return values
