"""Which files a command works on, how they are read, and what their outputs are called."""

from __future__ import annotations

import glob
import itertools
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from texseg.cli.terminal import say
from texseg.io.files import ImageTooLargeError, is_image
from texseg.io.read import MAX_PIXELS, Source, natural_key, open_pages, open_source, read_header, stacked
from texseg.io.regions import PixelSize
from texseg.io.stores import is_store
from texseg.method.sampling import valid_pixels
from texseg.progress import expected_by_blocks, expected_memory, expected_seconds, free_memory
from texseg.threads import n_threads

_OF_PHOTOGRAPHS = 0.5  # share of neighbours that differ; label images have less than a tenth
_FEW_LABELS = 16  # fewer may be an intended pattern
_ON_ITS_SIDE = 5  # and above: EXIF orientations that exchange rows and columns

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
    """Files found for the arguments of a command, and how many outputs, pipes and devices were skipped."""

    inputs: list[Input]
    n_own_outputs: int
    n_special: int


def collect(options: dict[str, Any]) -> list[Input]:
    """Find the inputs of a command; none at all is a usage error. A folder of planes is one input."""
    paths, recursive, output = options["paths"], options["recursive"], options.get("output")
    for path in paths:
        if path == "-":
            raise click.UsageError("'-' would be standard input, which is not read; save the image to a file")
        if re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE):
            raise click.UsageError(f"{path} is an address; download the file and give its name")
    found = collect_inputs(paths, recursive=recursive, output=output, whole_folders=is_volume(options))
    if found.n_own_outputs:
        say(f"note: skipped {found.n_own_outputs} files that look like texseg output", err=True)
    if found.n_special:
        say(f"note: skipped {found.n_special} that are pipes or devices, not files", err=True)
    if not found.inputs:
        hint = "" if recursive else "; --recursive looks into the folders inside"
        raise click.UsageError(f"no images found in {', '.join(paths)}{hint}")
    return found.inputs


def collect_inputs(
    arguments: Sequence[str],
    *,
    recursive: bool = False,
    output: Path | None = None,
    whole_folders: bool = False,
) -> Collection:
    """Expand files, folders and patterns into a list of files in natural order, each once.

    An argument that exists is used literally rather than as a pattern. In folders only files that are named
    like an image or hold one are used; files that are named explicitly are all used.
    """
    found: dict[str, tuple[Path, Path]] = {}
    n_own_outputs = n_special = 0
    paths: list[Path] = []
    for argument in arguments:
        is_pattern = not os.path.lexists(argument) and glob.has_magic(argument)
        paths += map(Path, (is_pattern and glob.glob(argument, recursive=True)) or [argument])
    for path in paths:
        if not path.is_dir() or is_store(path) or whole_folders:
            found.setdefault(os.path.abspath(path), (path, path.parent))
            continue
        images = 0
        for file in _files_in(path, recursive, output):
            if _OWN_OUTPUT.search(file.name):
                n_own_outputs += 1
            elif _is_special(file):
                n_special += 1
            elif file.suffix.lower() in _IMAGE_SUFFIXES or is_image(file):
                images += 1
                found.setdefault(os.path.abspath(file), (file, path))
        if not images and path.suffix.lower() in _IMAGE_SUFFIXES:  # named as a file, to be reported as one
            found.setdefault(os.path.abspath(path), (path, path.parent))
    files = sorted(found.values(), key=lambda entry: natural_key(str(entry[0])))
    return Collection(_named(files), n_own_outputs, n_special)


def _files_in(folder: Path, recursive: bool, output: Path | None) -> Iterator[Path]:
    """Files in a folder that are neither hidden nor of the operating system."""
    avoided = None if output is None else os.path.realpath(output)
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if recursive and name[0] != "." and os.path.realpath(os.path.join(place, name)) != avoided
        ]
        shown = (name for name in files if name[0] != "." and name.casefold() not in _SYSTEM_FILES)
        yield from (Path(place, name) for name in shown)


def _is_special(path: Path) -> bool:
    """Tell whether a path leads to a pipe, a socket or a device."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def _named(files: list[tuple[Path, Path]]) -> list[Input]:
    """Give each file a name for its outputs: short if that is unique, otherwise longer.

    A name is the path below the folder that was given, without suffix. Names that a file system might not
    tell apart get, in this order, the folders in which they differ, their suffix, a number.
    """
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
class ReadOptions:
    """How the inputs are read; see `texseg.io.read.read_image`."""

    page: int | Literal["all"] | None = None
    channel_axis: int | None = None
    channels: tuple[int, ...] | None = None  # those that are looked at, from 0; None: all
    grey: bool = False  # turn colour grey
    mask: Path | None = None  # file with a mask for every image, or folder with one named like each image
    seeds: Path | None = None  # file with strokes for the image, or folder with one named like each image
    nodata: float | None = None
    ignore_alpha: bool = False
    max_pixels: int | None = MAX_PIXELS
    level: int | None = None  # level of a pyramid; such images are read by windows
    is_volume: bool = False  # all pages of a file, or images of a folder, are planes of one volume
    raw: Any = None  # shape and type of volumes without a header
    pixel_size: PixelSize | None = None  # of all images, where the files do not say it, or wrongly
    memory: int | None = None
    """Bytes; images that need more are read by windows, block by block. None: half of what is free."""


def named_like(path: Path, folder: Path, what: str) -> Path:
    """Return the file with the mask of an image, or with its strokes: itself, or a file in that folder."""
    found = [folder]
    if folder.is_dir():
        found = sorted(file for file in folder.iterdir() if file.name == path.name or file.stem == path.stem)
    if not found:
        raise OSError(f"no {what} named {path.stem} in {folder}")
    if _is_special(found[0]):  # in a folder it is named like the image
        raise OSError(f"the {what} {found[0]} is a device or a pipe, not a file")
    return found[0]


def reading_of(options: dict[str, Any]) -> ReadOptions:
    """Pick how the inputs are read."""
    given: dict[str, Any] = {row.name: options.get(row.name) for row in fields(ReadOptions)}
    given["is_volume"] = is_volume(options)
    if given["is_volume"] and (given["page"] is not None or given["seeds"] is not None):
        raise click.UsageError("--volume and --series read all pages, without --page and --seeds")
    if given["raw"] is not None and not given["is_volume"]:
        raise click.UsageError("--raw states the shape of a volume; add --volume or --series")
    if given["seeds"] is not None and given["page"] == "all":
        raise click.UsageError("--seeds are for a single page; choose it with --page")
    return ReadOptions(**given | ({"page": "all"} if given["is_volume"] else {}))


def is_volume(options: dict[str, Any]) -> bool:
    """Tell whether inputs are volumes or series of planes."""
    return bool(options.get("volume") or options.get("planes"))


class Pixels(NamedTuple):
    """The pixels of a page or a crop, channels last, and where they hold data (None: everywhere)."""

    pixels: NDArray[Any]
    mask: NDArray[np.bool_] | None
    size: PixelSize | None = None  # of a pixel, if it is known
    is_volume: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; of a volume, planes first."""
        return self.pixels.shape[: 2 + self.is_volume]

    @property
    def channel_axis(self) -> int | None:
        """-1 with channels."""
        return -1 if self.pixels.ndim == 3 + self.is_volume else None

    @property
    def hold_data(self) -> bool:
        """Whether there is anything to label."""
        return bool(valid_pixels(self.pixels, self.mask, 2 + self.is_volume).any())


class OpenPage:
    """A page of an input that is open, in grey if requested; the windows that blocks are read by."""

    def __init__(
        self, source: Source, reading: ReadOptions, too_large: ImageTooLargeError | None = None
    ) -> None:
        self.source, self.shape, self.pixel_size = source, source.shape, source.pixel_size
        if reading.pixel_size is not None:  # of level 0
            size, (down, across) = reading.pixel_size, source.step
            self.pixel_size = size._replace(height=size.height * down, width=size.width * across)
        self._grey = reading.grey and source.channel_axis is not None
        self.channel_axis = None if self._grey else source.channel_axis
        self.n_channels = 1 if self._grey else source.n_channels
        self.too_large = too_large
        """Why it must not be read whole, if it must not."""

    def read(self, window: tuple[slice, ...] | None = None) -> Pixels:
        """Read a window, or all of it."""
        pixels, mask = self.source.read(window)
        if not self._grey:
            return Pixels(pixels, mask, self.pixel_size)
        from skimage.color import rgb2gray  # slow to import

        n_channels = pixels.shape[-1]
        if n_channels != 3:
            raise ValueError(f"only three channels can be turned grey, not {n_channels}; use --channels")
        return Pixels(rgb2gray(pixels.astype(np.float32)), mask, self.pixel_size)


@contextmanager
def open_scenes(path: Path, reading: ReadOptions) -> Iterator[list[OpenPage]]:
    """Open the requested page or pages of a file; too large ones only if they are read by windows."""
    options: dict[str, Any] = {
        "channel_axis": reading.channel_axis,
        "nodata": reading.nodata,
        "ignore_alpha": reading.ignore_alpha,
        "bands": reading.channels,
        "mask": None if reading.mask is None else named_like(path, reading.mask, "mask"),
    }
    with ExitStack() as files:
        if reading.page == "all":
            options |= {"raw": reading.raw, "max_pixels": reading.max_pixels}
            pages = files.enter_context(open_pages(path, **options))
            yield [OpenPage(page, reading) for page in pages]
            return
        options |= {"page": reading.page, "level": reading.level or 0}
        too_large = None
        try:
            source = open_source(path, **options, max_pixels=reading.max_pixels)
        except ImageTooLargeError as error:
            source, too_large = open_source(path, **options), error
        yield [OpenPage(files.enter_context(source), reading, too_large)]


def read_images(scenes: Sequence[OpenPage], reading: ReadOptions) -> list[Pixels]:
    """Read pages, or the one volume that they are planes of."""
    images = [scene.read() for scene in scenes]
    if not reading.is_volume:
        return images
    pixels, mask = stacked([(image.pixels, image.mask) for image in images])
    return [Pixels(pixels, mask, images[0].size, is_volume=True)]


def refuse_photograph(labels: NDArray[np.integer], path: Path) -> NDArray[np.integer]:
    """Refuse an image in which most neighbours differ, which is not a label image."""
    if labels.ndim == 2 and min(labels.shape) > 1:
        different = (labels[:, 1:] != labels[:, :-1]).mean()
        if different > _OF_PHOTOGRAPHS and len(np.unique(labels)) > _FEW_LABELS:
            raise ValueError(
                f"{path.name}: {100 * different:.0f} % of neighbouring pixels differ, as in a photograph; "
                "a label image has one number for all pixels of a segment"
            )
    return labels


def describe(
    path: Path,
    n_segments: int | None = None,
    preset: str = "default",
    memory: int | None = None,
    reading: ReadOptions = ReadOptions(),
) -> dict[str, str | int | float | None]:
    """Describe an image file from its header alone, and forecast what segmenting it costs in so many bytes.

    The size is that of the results (photographs are turned upright), memory in MB, processor time in seconds.
    """
    if reading.is_volume:
        with open_pages(path, raw=reading.raw) as pages:
            header, n_planes = pages[0].header, len(pages)
    else:
        header, n_planes = read_header(path), 1
    height, width, geo = header.height, header.width, header.geo
    about = header.n_channels, n_segments, preset
    needed = expected_memory(height * width * n_planes, *about)
    whole = reading.is_volume or needed <= (memory or free_memory() // 2)
    if whole:
        seconds = expected_seconds((height * n_planes, width), n_segments, preset)
    else:
        needed, seconds = expected_by_blocks((height, width), *about, n_threads(None))
    if header.orientation >= _ON_ITS_SIDE:
        height, width = width, height
    place = None
    if geo is not None:
        place = "unknown coordinate system" if geo.epsg is None else f"EPSG:{geo.epsg}"
        if (affine := geo.transform) is not None:
            place += f", origin {affine.c:g} {affine.f:g}, pixel {affine.a:g} {affine.e:g}"
    return {
        "file": path.name,
        "format": header.format,
        "width": width,
        "height": height,
        **({"planes": n_planes} if reading.is_volume else {}),
        "dtype": str(header.dtype),
        "channels": header.n_channels,
        "alpha": "yes" if header.has_alpha else "no",
        "axes": "x".join(map(str, header.shape)) + f" ({header.axes})",
        "pages": header.n_pages,
        "orientation": header.orientation,
        "nodata": header.nodata,
        "georeference": place,
        "pixel_size": header.pixel_size and str(header.pixel_size),
        "read": "whole" if whole else "by blocks",
        "memory_MB": round(min(needed, memory or needed) / 1e6),
        "seconds": round(seconds, 1),
    }
