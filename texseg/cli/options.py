"""Options that several verbs share; those of parameters come from their table."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from texseg.parameters import PARAMETERS, Parameter

if TYPE_CHECKING:
    from texseg.edits import Edits
    from texseg.regions import PixelSize

_FORMATS = ("png", "tif", "npy", "zarr")
_MULTIPLES = {"k": 1e3, "m": 1e6, "g": 1e9}


class ReadBy(click.ParamType):
    """A text that a function turns into a value; its ValueErrors say what is wrong with it."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn a text into a value."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            return self.fail(f"{value!r} is {error}", param, ctx)


def _of_parameter(row: Parameter) -> Callable[[str], Any]:
    """Return what reads the value of a parameter: within the limits of the table."""
    kinds: dict[Any, Callable[[str], Any]] = {
        int: int,
        float: float,
        tuple: lambda text: tuple(float(part) for part in text.split(",")),
    }

    def read(text: str) -> Any:
        may_be_auto = row.name == "n_segments"
        if may_be_auto and text == "auto":
            return None
        try:
            return row.checked(kinds[row.base](text))
        except ValueError:
            allowed = row.allowed + (", such as 3,6,12" if row.base is tuple else "")
            raise ValueError(f"neither {allowed} nor 'auto'" if may_be_auto else f"not {allowed}") from None

    return read


def _page(text: str) -> int | str:
    if text != "all" and not text.isdecimal():
        raise ValueError("neither the number of a page, from 0, nor 'all'")
    return text if text == "all" else int(text)


def _whole(text: str) -> int | None:
    """Read a number of at least 1 with an optional k, M or G; None if it is none."""
    text = text.strip().lower()
    multiple = _MULTIPLES.get(text[-1:])
    try:
        number = float(text[:-1]) * multiple if multiple else float(text)
    except ValueError:
        return None
    return int(number) if 1 <= number < float("inf") else None


def _pixel_count(text: str) -> int | None:
    number = _whole(text)
    if number is None and text.strip().lower() != "none":
        raise ValueError("not a number of pixels such as 500M, nor 'none'")
    return number


def _memory(text: str) -> int:
    number = _whole(text.strip().lower().removesuffix("b"))
    if number is None:
        raise ValueError("not an amount of memory such as 2G")
    return number


def _pixel_size(text: str) -> PixelSize:
    from texseg.regions import PixelSize

    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([^\W\d_]+)\s*", text, re.IGNORECASE)
    try:
        side = float(found[1]) if found is not None else 0.0
    except ValueError:
        side = 0.0
    if found is None or not 0 < side < float("inf"):
        raise ValueError("not a length with its unit, such as 0.25um or 30m")
    return PixelSize(side, side, found[2])


def _formats(text: str) -> tuple[str, ...]:
    formats = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    if set(formats) - set(_FORMATS):
        raise ValueError(f"not a list of {', '.join(_FORMATS)}")
    if "zarr" in formats and find_spec("zarr") is None:
        raise ValueError("not possible: zarr arrays need zarr (pip install 'texseg[large]')")
    return formats


def _channels(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
        raise ValueError("not a list of different channels, numbered from 0, such as 0,2")
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
    except RecursionError:
        raise click.BadParameter(f"{value}: too deeply nested") from None
    except (OSError, ValueError) as error:
        strerror = getattr(error, "strerror", None)
        raise click.BadParameter(f"{value}: {strerror}" if strerror else str(error)) from error


def _group(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


# ---- parameters --------------------------------------------------------------------------------------------


def parameter_option(name: str) -> Callable[[Any], Any]:
    """Option of a parameter, from its row in the table."""
    row = PARAMETERS[name]
    more: dict[str, Any] = {
        "default": row.default,
        "show_default": row.default is not None and row.default is not False,
    }
    if row.base is bool:
        is_pair = "/" in row.flags[0]
        more |= {"is_flag": True, "show_default": False} | ({} if is_pair else {"default": False})
    elif row.choices:
        more["type"] = click.Choice(row.choices)
    else:
        names = {int: "INTEGER", float: "FLOAT", tuple: "NUMBER,..."}
        kind = names[row.base or float] + ("|auto" if name == "n_segments" else "")
        more["type"] = ReadBy(kind, _of_parameter(row))
    if name == "n_segments":
        more |= {"default": "auto", "show_default": True}
    text = row.option
    if row.presets is not None and "default" not in text:
        values = [_shown(value) for value in row.presets]
        plain = "" if values[0] == values[1] else f"; with --preset plain {values[1]}"
        text += f"  [default: {values[0]}{plain}]"
    return click.option(*row.flags, help=text, **more)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    numbers = value if isinstance(value, tuple) else (value,)
    return ",".join(number if isinstance(number, str) else f"{number:.3g}" for number in numbers)


FITTED = tuple(row.name for row in PARAMETERS.values() if row.group == "fitting" and row.flags)
"""Parameters that have options."""


def parameters_of(options: dict[str, Any]) -> dict[str, Any]:
    """Pick the parameters of `TextureSegmenter`, and the edits of what it finds."""
    if options["n_segments"] is None and options["k_min"] > options["k_max"]:
        raise click.UsageError(
            f"--k-min {options['k_min']} is above --k-max {options['k_max']}: no number is left to choose"
        )
    given = {
        name: options[name]
        for name in FITTED
        if options[name] is not None or PARAMETERS[name].presets is None and name != "cue"
    }
    return given | {"edits": edits_of(options)}


def edits_of(options: dict[str, Any]) -> Edits:
    """Pick the edits of the segments."""
    return options["edits"] + options["merge"]


# ---- groups of options -------------------------------------------------------------------------------------

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print failures and notes only.")
shared_option = click.option(
    "--shared",
    is_flag=True,
    help="Fit one model to all images, so that a label means the same texture everywhere.",
)
recursive_option = click.option("--recursive", is_flag=True, help="Look into folders inside folders.")

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

fitting_options = _group(*map(parameter_option, FITTED), edit_options)

reading_options = _group(
    click.option(
        "--page",
        type=ReadBy("INTEGER|all", _page),
        help="Page of a file with several, from 0; all: one model for all of them.",
    ),
    parameter_option("channel_axis"),
    click.option(
        "--channels",
        type=ReadBy("INTEGER,...", _channels),
        help="Channels to look at, from 0, such as 0,1,2.  [default: all]",
    ),
    click.option("--grey", is_flag=True, help="Turn colour images grey."),
    click.option(
        "--mask",
        type=click.Path(exists=True, path_type=Path),
        help="Image with zero where there is no data, or a folder with one named like each image.",
    ),
    parameter_option("nodata"),
    click.option("--ignore-alpha", is_flag=True, help="Treat transparent pixels as data."),
    click.option(
        "--max-pixels",
        type=ReadBy("NUMBER|none", _pixel_count),
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
        type=ReadBy("BYTES", _memory),
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
        type=ReadBy(",".join(_FORMATS), _formats),
        default=(),
        help="Formats of the label image.  [default: png,tif; for several pages, or by blocks, tif]",
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
        type=ReadBy("LENGTH", _pixel_size),
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
        "--resume",
        is_flag=True,
        help="Continue an image by blocks where an interrupted run stopped, unless anything changed since.",
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
