"""Options that several verbs share, and what is allowed in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from texseg.edits import Edits
    from texseg.regions import PixelSize

_PRESETS = ("default", "plain")
_MODELS = ("acm", "acm-hard", "smm", "pmm", "scm", "hacm")
_FORMATS = ("png", "tif", "npy", "zarr")
_MOST_SEGMENTS = 255
_MULTIPLES = {"k": 1e3, "m": 1e6, "g": 1e9}


def _whole(text: str) -> int | None:
    """Read a number of at least 1 with an optional k, M or G; None if it is none."""
    text = text.strip().lower()
    multiple = _MULTIPLES.get(text[-1:])
    try:
        number = float(text[:-1]) * multiple if multiple else float(text)
    except ValueError:
        return None
    return int(number) if 1 <= number < float("inf") else None


class SegmentCount(click.ParamType):
    """A number of segments, or "auto" for None."""

    name = "INTEGER|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Turn "auto" into None and anything else into a number from 1 to 255."""
        if value is None or value == "auto":
            return None
        try:
            number = int(value)
        except ValueError:
            number = 0
        if not 1 <= number <= _MOST_SEGMENTS:
            self.fail(f"{value!r} is neither a number from 1 to {_MOST_SEGMENTS} nor 'auto'", param, ctx)
        return number


class Page(click.ParamType):
    """A page number from 0, or "all"."""

    name = "INTEGER|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Leave "all" as it is and turn anything else into a number from 0."""
        return "all" if value == "all" else click.IntRange(min=0).convert(value, param, ctx)


class PixelCount(click.ParamType):
    """A number of pixels such as 500M, or "none" for no limit."""

    name = "NUMBER|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Turn "none" into None and a number with an optional k, M or G into an int."""
        if not isinstance(value, str):
            return value
        if value.strip().lower() == "none":
            return None
        number = _whole(value)
        if number is None:
            self.fail(f"{value!r} is not a number of pixels such as 500M, nor 'none'", param, ctx)
        return number


class MemorySize(click.ParamType):
    """An amount of memory such as 2G."""

    name = "BYTES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn a number with an optional k, M or G into an int."""
        number = _whole(str(value).strip().lower().removesuffix("b"))
        if number is None:
            self.fail(f"{value!r} is not an amount of memory such as 2G", param, ctx)
        return number


class PixelSizeText(click.ParamType):
    """A length with its unit, such as 0.25um."""

    name = "LENGTH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PixelSize:
        """Separate the number from its unit."""
        from texseg.regions import PixelSize

        found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([^\W\d_]+)\s*", str(value), re.IGNORECASE)
        try:
            side = float(found[1]) if found is not None else 0.0
        except ValueError:
            side = 0.0
        if found is None or not 0 < side < float("inf"):
            self.fail(f"{value!r} is not a length with its unit, such as 0.25um or 30m", param, ctx)
        return PixelSize(side, side, found[2])


class FormatList(click.ParamType):
    """Formats of label images, separated by commas."""

    name = "png,tif,npy,zarr"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split a list at its commas."""
        if isinstance(value, tuple):
            return value
        formats = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",")))
        for form in formats:
            if form not in _FORMATS:
                self.fail(f"{form!r} is not one of {', '.join(_FORMATS)}", param, ctx)
        if "zarr" in formats and find_spec("zarr") is None:
            self.fail("zarr arrays need zarr (pip install 'texseg[large]')", param, ctx)
        return formats


class NumberList(click.ParamType):
    """Numbers, separated by commas."""

    name = "NUMBER,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Split a list at its commas."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 3,6,12", param, ctx)


class ChannelList(click.ParamType):
    """Numbers of channels from 0, separated by commas."""

    name = "INTEGER,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Split a list at its commas."""
        if isinstance(value, tuple):
            return value
        numbers = value.split(",")
        if not all(number.strip().isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
            self.fail(
                f"{value!r} is not a list of different channels, numbered from 0, such as 0,2", param, ctx
            )
        return tuple(map(int, numbers))


def _read_merges(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Edits:
    from texseg.edits import parse_merges

    try:
        return parse_merges(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _read_edits(ctx: click.Context, param: click.Parameter, value: Path | None) -> Edits:
    from texseg.edits import Edits, read_edits

    try:
        return Edits() if value is None else read_edits(value)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.strerror else str(error)
        raise click.BadParameter(reason) from error


def _group(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print failures and notes only.")
shared_option = click.option(
    "--shared", is_flag=True, help="One model for all images: equal labels are equal textures."
)
recursive_option = click.option("--recursive", is_flag=True, help="Look into folders inside folders.")

preset_option = click.option(
    "--preset",
    type=click.Choice(_PRESETS),
    default="default",
    show_default=True,
    help="plain leaves out what was added to the method of the paper.",
)

edit_options = _group(
    click.option(
        "--merge",
        multiple=True,
        metavar="2+5=NAME",
        callback=_read_merges,
        help="Make one segment of several and name it, or name one (3=NAME); the numbers are the old ones.",
    ),
    click.option(
        "--edits",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        callback=_read_edits,
        help="Merges and names in a JSON file, as a report saves them.",
    ),
)

fitting_options = _group(
    click.option(
        "-k",
        "--segments",
        "n_segments",
        type=SegmentCount(),
        default="auto",
        show_default=True,
        help="Number of textures; auto chooses it.",
    ),
    click.option(
        "--k-min",
        type=click.IntRange(1, _MOST_SEGMENTS),
        default=2,
        show_default=True,
        help="Smallest number that auto considers; 1 lets an image be a single texture.",
    ),
    click.option(
        "--k-max",
        type=click.IntRange(1, _MOST_SEGMENTS),
        default=14,
        show_default=True,
        help="Largest number that auto considers.",
    ),
    click.option(
        "--model",
        type=click.Choice(_MODELS),
        default="acm",
        show_default=True,
        help="Model that finds the clusters; those other than acm are there for comparison.",
    ),
    preset_option,
    click.option("--crop-bar", is_flag=True, help="Leave out the info bar of a microscope, if any is found."),
    click.option(
        "--log/--no-log",
        default=None,
        help="Take the logarithm of the values: gains, vignetting, SAR amplitudes.  [default: where contrast "
        "follows brightness by the same factor]",
    ),
    click.option(
        "--smoothness",
        type=click.FloatRange(min=0),
        help="Strength with which neighbours belong together.  [default: 1; with --preset plain 0]",
    ),
    click.option(
        "--min-size",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Merge regions with fewer pixels.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random starts."
    ),
    click.option(
        "--cell", type=click.IntRange(min=1), help="Side of the cells of the fit.  [default: 4 to 8]"
    ),
    click.option(
        "--wavelengths",
        type=NumberList(),
        help="Wavelengths of the filters, in pixels.  [default: 2.83,5.66,11.3]",
    ),
    click.option(
        "--orientations",
        "n_orientations",
        type=click.IntRange(min=1),
        help="Number of directions of the filters.  [default: 4]",
    ),
    click.option(
        "--bins", "n_bins", type=click.IntRange(1, 256), help="Number of bins of each channel.  [default: 40]"
    ),
    click.option(
        "--starts",
        "n_starts",
        type=click.IntRange(min=1),
        help="Number of annealed runs; the best is kept.  [default: 2]",
    ),
    click.option(
        "--patch-weight",
        type=click.FloatRange(min=0),
        help="Weight of textons (a filter has 1); 0 leaves them out.  [default: 4; with --preset plain 0]",
    ),
    click.option(
        "--value-weight",
        type=click.FloatRange(min=0),
        help="Factor on the weight of plain values; 0 leaves them out.  [default: 1; with --preset plain 0]",
    ),
    click.option(
        "--cue",
        type=click.Choice(["auto", "texture", "values"]),
        help="What segments differ in: texture, or plain values at the scale of pixels (grains, pores, "
        "cells); auto takes what tells more of the image.  [default: auto; with --preset plain texture]",
    ),
    click.option(
        "--learned-borders/--no-learned-borders",
        default=None,
        help="Learn what borders look like.  [default: yes; with --preset plain no]",
    ),
    edit_options,
)

reading_options = _group(
    click.option(
        "--page", type=Page(), help="Page of a file with several, from 0; all: one model for all of them."
    ),
    click.option("--channel-axis", type=int, help="Axis of the channels, where the file does not say."),
    click.option(
        "--channels", type=ChannelList(), help="Channels to look at, from 0, such as 0,1,2.  [default: all]"
    ),
    click.option("--grey", is_flag=True, help="Turn colour images grey."),
    click.option(
        "--mask",
        type=click.Path(exists=True, path_type=Path),
        help="Image with zero where there is no data, or a folder with one named like each image.",
    ),
    click.option("--nodata", type=float, help="Value for no data.  [default: what the file says]"),
    click.option("--ignore-alpha", is_flag=True, help="Treat transparent pixels as data."),
    click.option(
        "--max-pixels",
        type=PixelCount(),
        default="178956970",
        show_default=True,
        help="Refuse larger images, such as 500M; none: no limit.  (Images read by blocks have none.)",
    ),
    click.option(
        "--level",
        type=click.IntRange(min=0),
        help="Level of a pyramid (OME-TIFF, OME-Zarr); 0 is the largest.",
    ),
    click.option(
        "--memory",
        type=MemorySize(),
        help="Images that need more, such as 2G, are read and labelled block by block.  "
        "[default: half of what is free]",
    ),
)

seeds_option = click.option(
    "--seeds",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="Strokes: an image with the class of each painted pixel, else 0, or painted in a colour a class; or "
    "GeoJSON with a property class; or a folder with one named like each image.",
)

folder_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("."),
    metavar="FOLDER",
    help="Folder for the results; created if needed.  [default: here]",
)

writing_options = _group(
    folder_option,
    click.option(
        "--format",
        "formats",
        type=FormatList(),
        default=(),
        help="Formats of the label image.  [default: png,tif; for several pages tif]",
    ),
    click.option("--confidence", "with_confidence", is_flag=True, help="Write a map of confidence."),
    click.option(
        "--probabilities",
        "with_probabilities",
        is_flag=True,
        help="Write the probability of every segment: pages of a TIFF, or with --format zarr a zarr array.",
    ),
    click.option(
        "--pixel-size",
        type=PixelSizeText(),
        help="Side of a pixel with its unit, such as 0.25um, for areas and lengths in tables.  [default: "
        "what the file says]",
    ),
    click.option("--regions", "with_regions", is_flag=True, help="Write a table of connected regions."),
    click.option("--polygons", "with_polygons", is_flag=True, help="Write outlines as GeoJSON."),
    click.option("--report-html", "with_report", is_flag=True, help="Write a page to click through."),
    click.option("--all", "everything", is_flag=True, help="Write all of these except probabilities."),
)

batch_options = _group(
    recursive_option,
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        help="Processors to use: one for each image, or several where there are fewer images.  "
        "[default: all, one image after the other]",
    ),
    click.option(
        "--resume", is_flag=True, help="Continue an image by blocks where an interrupted run stopped."
    ),
    click.option("--skip-existing", is_flag=True, help="Skip images whose results exist."),
    click.option(
        "--on-error",
        type=click.Choice(("skip", "stop")),
        default="skip",
        show_default=True,
        help="What to do when an image fails.",
    ),
    click.option(
        "--summary",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write a table of the outcome for each image, .csv or .json: number, its odds, mean confidence.",
    ),
    click.option("--allow-empty", is_flag=True, help="Write labels 0 for images without any data."),
    quiet_option,
)
