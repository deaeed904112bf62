"""Which files a command works on, and what their outputs are called."""

from __future__ import annotations

import glob
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from texseg.io.sniff import SNIFF_BYTES, image_format

OUTPUT_KINDS = tuple("labels overlay confidence probabilities segments regions polygons report run".split())
"""What is written about an image; each is the last word of a file name, behind an underscore."""

_IMAGE_SUFFIXES = frozenset(
    ".png .apng .jpg .jpeg .jpe .jfif .tif .tiff .bmp .dib .webp .gif .jp2 .j2k .j2c .jpx .npy".split()
)
_OWN_OUTPUT = re.compile(
    rf"_({'|'.join(OUTPUT_KINDS)})\.(png|tiff?|npy|csv|geojson|html|json)$", re.IGNORECASE
)
_SYSTEM_FILES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini"))


class Input(NamedTuple):
    """A file to work on, and the path, below the output folder and without suffix, of its outputs."""

    path: Path
    name: PurePath


class Collection(NamedTuple):
    """Files found for the arguments of a command, and how many earlier outputs were passed over."""

    inputs: list[Input]
    n_own_outputs: int


def natural_key(text: str) -> list[tuple[int, int | str]]:
    """Sort key by which ``img_2`` comes before ``img_10``.

    Examples
    --------
    >>> sorted(["img_10", "img_2", "img_1"], key=natural_key)
    ['img_1', 'img_2', 'img_10']
    """
    parts = re.split(r"(\d+)", text.casefold())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def collect_inputs(
    arguments: Sequence[str], *, recursive: bool = False, output: Path | None = None
) -> Collection:
    """Expand files, folders and patterns into a list of files in natural order, each once.

    An argument that exists is taken literally rather than as a pattern. In folders, hidden files, files of
    the operating system, earlier outputs and the folder `output` are skipped, and so are files that neither
    are named like an image nor hold one; files that are named explicitly are always taken.

    Parameters
    ----------
    arguments : sequence of str
        Paths and patterns.
    recursive : bool, default=False
        Search the folders inside folders, too.
    output : Path, optional
        Folder that is not searched.

    Returns
    -------
    Collection
        Inputs, whose output names are unique even if case does not count, and the number of files that were
        skipped because they look like outputs.
    """
    found: dict[str, tuple[Path, Path]] = {}
    n_own_outputs = 0
    for path in _literal_paths(arguments):
        if not path.is_dir() or _is_zarr(path):
            found.setdefault(os.path.abspath(path), (path, path.parent))
            continue
        images = 0
        for file in _files_in(path, recursive, output):
            if _OWN_OUTPUT.search(file.name):
                n_own_outputs += 1
            elif _looks_like_image(file):
                images += 1
                found.setdefault(os.path.abspath(file), (file, path))
        if not images and path.suffix.lower() in _IMAGE_SUFFIXES:  # named as a file, to be reported as one
            found.setdefault(os.path.abspath(path), (path, path.parent))
    files = sorted(found.values(), key=lambda entry: natural_key(str(entry[0])))
    return Collection(_named(files), n_own_outputs)


def _literal_paths(arguments: Sequence[str]) -> Iterator[Path]:
    for argument in arguments:
        if not os.path.lexists(argument) and glob.has_magic(argument):
            matches = glob.glob(argument, recursive=True)
            yield from map(Path, matches or [argument])
        else:
            yield Path(argument)


def _files_in(folder: Path, recursive: bool, output: Path | None) -> Iterator[Path]:
    """Files in a folder that are neither hidden nor of the operating system."""
    avoided = None if output is None else os.path.realpath(output)
    for place, folders, files in os.walk(folder):
        if recursive:
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and os.path.realpath(os.path.join(place, name)) != avoided
            ]
        else:
            folders.clear()
        for name in files:
            if not name.startswith(".") and name.casefold() not in _SYSTEM_FILES:
                yield Path(place, name)


def _is_zarr(folder: Path) -> bool:
    """Tell whether a folder is one array, or one OME-Zarr image."""
    return any((folder / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup"))


def _looks_like_image(path: Path) -> bool:
    if path.suffix.lower() in _IMAGE_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return image_format(file.read(SNIFF_BYTES)) is not None
    except OSError:
        return False


def _named(files: list[tuple[Path, Path]]) -> list[Input]:
    """Give each file a name for its outputs: short if that is unique, otherwise longer.

    A name is the path below the folder that was given, without suffix. Equal names get, in this order, the
    folders in which they differ, their suffix, a number.
    """
    names = [PurePath(os.path.relpath(path, root)).with_suffix("") for path, root in files]
    lengthenings = itertools.chain([_with_folders, _with_suffixes], itertools.repeat(_with_numbers))
    while groups := _equal(names):
        lengthen = next(lengthenings)
        for group in groups:
            longer = lengthen([files[i][0] for i in group], [names[i] for i in group])
            for i, name in zip(group, longer, strict=True):
                names[i] = name
    return [Input(path, name) for (path, _), name in zip(files, names, strict=True)]


def _equal(names: Iterable[PurePath]) -> list[list[int]]:
    """Give the indices of names that a file system might not tell apart."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(unicodedata.normalize("NFC", str(name)).casefold(), []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def _with_folders(paths: list[Path], names: list[PurePath]) -> list[PurePath]:
    absolute = [os.path.abspath(path) for path in paths]
    try:
        common = os.path.commonpath([os.path.dirname(path) for path in absolute])
    except ValueError:  # on different drives
        return names
    return [PurePath(os.path.relpath(path, common)).with_suffix("") for path in absolute]


def _with_suffixes(paths: list[Path], names: list[PurePath]) -> list[PurePath]:
    return [name.with_name(path.name) for path, name in zip(paths, names, strict=True)]


def _with_numbers(paths: list[Path], names: list[PurePath]) -> list[PurePath]:
    return [name.with_name(f"{name.name}~{i}") for i, name in enumerate(names, start=1)]
