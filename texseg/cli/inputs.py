"""Which files a command works on, how they are read, and what their outputs are called."""

import glob
import itertools
import math
import os
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import click

from texseg.cli.terminal import say
from texseg.io import read
from texseg.io.files import ImageTooLargeError, is_image, is_special
from texseg.io.read import MAX_PIXELS, SourceOptions
from texseg.io.stores import is_store
from texseg.method.blocks import expected_by_blocks
from texseg.method.sampling import crop_count, read_crops
from texseg.progress import expected_memory, expected_seconds, free_memory
from texseg.threads import n_threads

_SMALLEST_READ = 144**3  # voxels of the smallest block, with its margins
_LARGEST_SCENE = 10**12  # pixels of an image that is read by windows
_ON_ITS_SIDE = 5  # and above: EXIF orientations that exchange rows and columns

OUTPUT_KINDS = tuple("labels overlay confidence probabilities segments regions polygons report run".split())
"""What is written about an image; each is the last word of a file name, behind an underscore."""

_IMAGE_SUFFIXES = ".png .apng .jpg .jpeg .jpe .jfif .tif .tiff .bmp .dib .webp .gif .jp2 .j2k .j2c .jpx .npy"
_OWN_OUTPUT = re.compile(rf"(?i)_({'|'.join(OUTPUT_KINDS)})\.(png|tiff?|npy|csv|geojson|html|json)$")
_ABOUT_ANOTHER = re.compile(r"(?i)_(truth|strokes|seeds|mask)$")  # how names end, without their suffix
_SYSTEM_FILES = ("thumbs.db", "ehthumbs.db", "desktop.ini")


class Input(NamedTuple):
    """A file to work on, and the path, below the output folder and without suffix, of its outputs."""

    path: Path
    name: PurePath


def collect(options: dict[str, Any]) -> list[Input]:
    """Find the inputs of a command; none at all is a usage error. A folder of planes is one input."""
    paths, recursive = options["paths"], options["recursive"]
    for path in paths:
        if path == "-":
            raise click.UsageError("'-' would be standard input, which is not read; save the image to a file")
        if re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE):
            raise click.UsageError(f"{path} is an address; download the file and give its name")
    found, skipped = collect_inputs(paths, recursive, options.get("output"), is_volume(options))
    for what, n_files in skipped.items():
        say(f"note: skipped {n_files} {what}", err=True)
    if not found:
        hint = "" if recursive else "; --recursive looks into the folders inside"
        raise click.UsageError(f"no images found in {', '.join(paths)}{hint}")
    return found


def collect_inputs(
    arguments: Sequence[str], recursive: bool = False, output: Path | None = None, whole_folders: bool = False
) -> tuple[list[Input], Counter[str]]:
    """Expand what exists, else patterns, into files in natural order; count what is skipped."""
    found: dict[str, tuple[Path, Path]] = {}
    skipped: Counter[str] = Counter()
    paths: list[Path] = []
    for argument in arguments:
        is_pattern = not os.path.lexists(argument) and glob.has_magic(argument)
        paths += map(Path, (is_pattern and glob.glob(argument, recursive=True)) or [argument])
    for path in paths:
        before, is_file = len(found), not path.is_dir() or is_store(path) or whole_folders
        files = [] if is_file else list(_files_in(path, recursive, output))
        stems = {file.with_suffix("") for file in files if file.suffix.lower() in _IMAGE_SUFFIXES.split()}
        for file in files:
            about = file.with_name(_ABOUT_ANOTHER.sub("", file.stem) or file.name)
            if _OWN_OUTPUT.search(file.name):
                skipped["files that look like texseg output"] += 1
            elif about.name != file.stem and about in stems:
                skipped["files named as truth, mask or strokes of another image; name one to use it"] += 1
            elif is_special(file):
                skipped["that are pipes or devices, not files"] += 1
            elif file.suffix.lower() in _IMAGE_SUFFIXES.split() or is_image(file):
                found.setdefault(os.path.abspath(file), (file, path))
        # what is named as a file is reported as one
        if is_file or (len(found) == before and path.suffix.lower() in _IMAGE_SUFFIXES.split()):
            found.setdefault(os.path.abspath(path), (path, path.parent))
    return _named(sorted(found.values(), key=lambda entry: read.natural_key(str(entry[0])))), skipped


def _files_in(folder: Path, recursive: bool, output: Path | None) -> Iterator[Path]:
    """Files in a folder that are neither hidden nor of the operating system."""
    avoided = None if output is None else os.path.realpath(output)
    for place, folders, files in os.walk(folder):
        inside = [name for name in folders if recursive and name[0] != "."]
        folders[:] = [name for name in inside if os.path.realpath(os.path.join(place, name)) != avoided]
        shown = (name for name in files if name[0] != "." and name.casefold() not in _SYSTEM_FILES)
        yield from (Path(place, name) for name in shown)


def _named(files: list[tuple[Path, Path]]) -> list[Input]:
    """Name outputs by the path below the folder that was given; where that is not unique, longer."""
    names = [PurePath(os.path.relpath(path, root)).with_suffix("") for path, root in files]
    for attempt in itertools.count():
        groups: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            groups.setdefault(unicodedata.normalize("NFC", str(name)).casefold(), []).append(i)
        equal = [group for group in groups.values() if len(group) > 1]
        if not equal:
            break
        for group in equal:
            paths = [os.path.abspath(files[i][0]) for i in group]
            for n, (i, path) in enumerate(zip(group, paths, strict=True), start=1):
                if attempt == 0:
                    with suppress(ValueError):  # on different drives
                        common = os.path.commonpath(list(map(os.path.dirname, paths)))
                        names[i] = PurePath(os.path.relpath(path, common)).with_suffix("")
                else:
                    number = f"{names[i].name}~{n}"
                    names[i] = names[i].with_name(files[i][0].name if attempt == 1 else number)
    return [Input(path, name) for (path, _), name in zip(files, names, strict=True)]


@dataclass(frozen=True)
class ReadOptions(SourceOptions):
    """How the inputs are read; masks and seeds are files, or folders with one named like each image."""

    max_pixels: int | None = MAX_PIXELS
    seeds: Path | None = None  # strokes on the image
    is_volume: bool = False  # all pages of a file, or images of a folder, are planes of one volume
    memory: int | None = None
    """Bytes; images that need more are read by windows, block by block. None: half of what is free."""


def named_like(path: Path, folder: Path, what: str) -> Path:
    """Return the file with the mask of an image, or with its strokes: itself, or a file in that folder."""
    found = [folder]
    if folder.is_dir():
        found = sorted(file for file in folder.iterdir() if file.name == path.name or file.stem == path.stem)
    if not found:
        raise OSError(f"no {what} named {path.stem} in {folder}")
    if is_special(found[0]):  # in a folder it is named like the image
        raise OSError(f"the {what} {found[0]} is a device or a pipe, not a file")
    return found[0]


def reading_of(options: dict[str, Any]) -> ReadOptions:
    """Pick how the inputs are read."""
    given = {row.name: options[row.name] for row in fields(ReadOptions) if row.name in options}
    page, seeds, raw = (given.get(name) for name in ("page", "seeds", "raw"))
    if is_volume(options) and page is not None:
        raise click.UsageError("--volume and --series read all pages, without --page")
    if raw is not None and not is_volume(options):
        raise click.UsageError("--raw states the shape of a volume; add --volume or --series")
    if seeds is not None and page == "all":
        raise click.UsageError("--seeds are for a single page; choose it with --page")
    return ReadOptions(**given | ({"page": "all", "is_volume": True} if is_volume(options) else {}))


def is_volume(options: dict[str, Any]) -> bool:
    """Tell whether inputs are volumes or series of planes."""
    return bool(options.get("volume") or options.get("planes"))


@contextmanager
def open_scenes(path: Path, reading: ReadOptions) -> Iterator[list[Any]]:
    """Open the page or pages of a file, or the volume; too large ones only if they are read by windows."""
    if reading.mask is not None:
        reading = replace(reading, mask=named_like(path, reading.mask, "mask"))
    with ExitStack() as files:
        opened: Any = read.open_pages if reading.page == "all" else read.open_source
        try:
            source = files.enter_context(opened(path, reading))
        except ImageTooLargeError as error:
            if reading.page == "all" and not reading.is_volume:
                raise
            most = max(_LARGEST_SCENE, reading.max_pixels or 0)
            source = files.enter_context(opened(path, replace(reading, max_pixels=most)))
            (source[0] if reading.is_volume else source).too_large = error
        yield [read.Volume(source)] if reading.is_volume else source if reading.page == "all" else [source]


def describe(
    path: Path, n_segments: int | None, preset: str, reading: ReadOptions = ReadOptions(), crops: bool = False
) -> dict[str, Any]:
    """Describe a file by its header, upright, what segmenting it costs, and by its pixels where crops lie."""
    planes: tuple[int, ...] = ()
    if reading.is_volume:
        with read.open_pages(path, raw=reading.raw) as pages:
            header, planes = pages[0].header, (len(pages),)
    else:
        header = read.read_header(path)
    height, width, geo = header.height, header.width, header.geo
    shape: tuple[int, ...] = (*planes, height, width)
    kind, memory = (header.n_channels, n_segments, preset), reading.memory
    n_pixels, n_axes = math.prod(shape), len(shape)
    side = 0 if planes else max(shape)
    needed, with_report = (expected_memory(n_pixels, *kind, n_axes, has, side) for has in (False, True))
    whole = needed <= (memory or free_memory() // 2)
    # a block of a volume is not made smaller than this, whatever is allowed
    least = expected_memory(_SMALLEST_READ, *kind, n_axes) if planes else 0.0
    if whole:
        seconds = expected_seconds(shape, n_segments, preset, header.n_channels)
    else:
        needed, seconds = expected_by_blocks(shape, *kind, n_threads(None))
    place = None
    if geo is not None:
        place = "unknown coordinate system" if geo.epsg is None else f"EPSG:{geo.epsg}"
        if (affine := geo.transform) is not None:
            place += f", origin {affine.c:g} {affine.f:g}, pixel {affine.a:g} {affine.e:g}"
    sides = (width, height) if header.orientation < _ON_ITS_SIDE else (height, width)
    about: dict[str, Any] = {"file": path.name, "format": header.format}
    about |= dict(zip(("width", "height", "planes"), (*sides, *planes), strict=False))
    about |= {"dtype": str(header.dtype), "channels": header.n_channels}
    about |= {"alpha": "yes" if header.has_alpha else "no"}
    about |= {"axes": "x".join(map(str, header.shape)) + f" ({header.axes})", "pages": header.n_pages}
    about |= {"orientation": header.orientation, "nodata": header.nodata, "georeference": place}
    about |= {"pixel_size": header.pixel_size and str(header.pixel_size)}
    about |= {"read": "whole" if whole else "by blocks"}
    about |= {"memory_MB": round(min(needed, max(memory or needed, least)) / 1e6)}
    about |= {"with_report_MB": round(with_report / 1e6)} if whole else {}
    about["seconds"] = round(seconds, 1)
    return about | (_look_of(path, reading) if crops and not whole and not planes else {})


def _look_of(path: Path, reading: ReadOptions) -> dict[str, Any]:
    """Look at a scene: processor time, crops in words, and first and last row and column of each."""
    start = time.process_time()
    with open_scenes(path, reading) as (scene,):
        sample, _ = read_crops(scene, n_crops=crop_count(reading.memory, scene.n_channels))
    seconds = round(time.process_time() - start, 1)
    return {"look_seconds": seconds, "crops": str(sample), "windows": sample.record()["windows"]}
