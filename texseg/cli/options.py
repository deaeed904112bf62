"""Options that several verbs share; those of parameters come from their table."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
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
_EXISTING = click.Path(exists=True, path_type=Path)
_SKIP_OR_STOP = click.Choice(("skip", "stop"))
_FILE = click.Path(path_type=Path, dir_okay=False)


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


def _count(text: str, wrong: str) -> int:
    """Read a number of at least 1 with an optional k, M or G."""
    text = text.strip().lower()
    multiple = _MULTIPLES.get(text[-1:])
    try:
        number = float(text[:-1]) * multiple if multiple else float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number < float("inf"):
        raise ValueError(wrong)
    return int(number)


def _pixel_count(text: str) -> int | None:
    is_none = text.strip().lower() == "none"
    return None if is_none else _count(text, "not a number of pixels such as 500M, nor 'none'")


def _memory(text: str) -> int:
    return _count(text.strip().lower().removesuffix("b"), "not an amount of memory such as 2G")


def _pixel_size(text: str) -> PixelSize:
    from texseg.regions import PixelSize

    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*([^\W\d_]+)\s*", text, re.IGNORECASE)
    side = float(found[1] + (found[2] or "")) if found is not None else 0.0
    if found is None or not 0 < side < float("inf"):
        raise ValueError("not a length with its unit, such as 0.25um or 30m")
    return PixelSize(side, side, found[3])


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


def _read_edits(ctx: click.Context, param: click.Parameter, value: Any) -> Edits:
    """Read edits from texts of --merge, or from the file of --edits."""
    from texseg.edits import Edits, parse_merges, read_edits

    if value is None:
        return Edits()
    try:
        return parse_merges(value) if isinstance(value, tuple) else read_edits(value)
    except (OSError, ValueError) as error:
        strerror = getattr(error, "strerror", None)
        raise click.BadParameter(f"{value}: {strerror}" if strerror else str(error)) from error


def _group(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda command: reduce(lambda made, decorator: decorator(made), reversed(decorators), command)


def _flag(*names: str, text: str) -> Callable[[Any], Any]:
    return click.option(*names, is_flag=True, help=text)


def _value(names: str, kind: Any, text: str, **more: Any) -> Callable[[Any], Any]:
    return click.option(*names.split(), type=kind, help=text, **more)


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
    check_labels_of_edits(options, options["n_segments"])
    given = {
        name: options[name]
        for name in FITTED
        if options[name] is not None or PARAMETERS[name].presets is None and name != "cue"
    }
    return given | {"edits": edits_of(options)}


def check_labels_of_edits(options: dict[str, Any], K: int | None) -> None:
    """Refuse edits of segments beyond their number, before any work."""
    for name in ("merge", "edits"):
        labels = {label for group in options[name].merge for label in group}
        labels |= {label for label, _ in options[name].names}
        beyond = sorted(label for label in labels if not 1 <= label <= (K or label))
        if beyond:
            allowed = f"which are 1 to {K}" if K else "which count from 1"
            raise click.UsageError(f"--{name} names segment {beyond[0]}, not one of the segments, {allowed}")


def edits_of(options: dict[str, Any]) -> Edits:
    """Pick the edits of the segments."""
    return options["edits"] + options["merge"]


# ---- groups of options -------------------------------------------------------------------------------------

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
quiet_option = _flag("-q", "--quiet", text="Print failures and notes only.")
shared_option = _flag(
    "--shared", text="Fit one model to all images, so that a label means the same texture everywhere."
)
recursive_option = _flag("--recursive", text="Look into folders inside folders.")

_MERGE = "Make one segment of several and name it, or name one (3=NAME); the numbers are the old ones."
_EDITS = "Merges and names in a JSON file, as a report saves them."
edit_options = _group(
    _value("--merge", str, _MERGE, multiple=True, metavar="2+5=NAME", callback=_read_edits),
    _value("--edits", _FILE, _EDITS, metavar="FILE", callback=_read_edits),
)

fitting_options = _group(*map(parameter_option, FITTED), edit_options)

reading_options = _group(
    _value("--page", ReadBy("INTEGER|all", _page), "Page of several, from 0; all: one model for all pages."),
    parameter_option("channel_axis"),
    _value("--channels", ReadBy("INTEGER,...", _channels), "Channels to use, such as 0,2.  [default: all]"),
    _flag("--grey", text="Turn colour images grey."),
    _value("--mask", _EXISTING, "Image with 0 where there is no data, or a folder with one for each image."),
    parameter_option("nodata"),
    _flag("--ignore-alpha", text="Treat transparent pixels as data."),
    _value(
        "--max-pixels",
        ReadBy("NUMBER|none", _pixel_count),
        "Refuse larger images, such as 500M; none: no limit.  (Images read by blocks have none.)",
        default="178956970",
        show_default=True,
    ),
    _value("--level", click.IntRange(min=0), "Level of a pyramid (OME-TIFF, OME-Zarr); 0 is the largest."),
    _value(
        "--memory",
        ReadBy("BYTES", _memory),
        "Images that need more, such as 2G, are labelled block by block.  [default: half of what is free]",
    ),
)

seeds_option = _value(
    "--seeds",
    _EXISTING,
    "Strokes: an image with the class of each painted pixel, else 0, or painted in a colour a class; or "
    "GeoJSON with a property class; or a folder with one named like each image.",
    metavar="FILE",
)

folder_option = _value(
    "-o --output",
    click.Path(path_type=Path),
    "Folder for the results; created if needed.  [default: here]",
    default=Path("."),
    metavar="FOLDER",
)

writing_options = _group(
    folder_option,
    _value(
        "--format formats",
        ReadBy(",".join(_FORMATS), _formats),
        "Formats of the label image.  [default: png,tif; for several pages, or by blocks, tif]",
        default=(),
    ),
    _flag("--confidence", "with_confidence", text="Write a map of confidence."),
    _flag(
        "--probabilities",
        "with_probabilities",
        text="Write the probability of every segment: pages of a TIFF, or with --format zarr an array.",
    ),
    _value(
        "--pixel-size",
        ReadBy("LENGTH", _pixel_size),
        "Side of a pixel with its unit, such as 0.25um, for tables.  [default: what the file says]",
    ),
    _flag("--regions", "with_regions", text="Write a table of connected regions."),
    _flag("--polygons", "with_polygons", text="Write outlines as GeoJSON."),
    _flag("--report-html", "with_report", text="Write a page to click through."),
    _flag("--all", "everything", text="Write all of these except probabilities."),
)

batch_options = _group(
    recursive_option,
    _value(
        "--jobs",
        click.IntRange(min=1),
        "Processors to use: one for each image, or several where there are fewer images.  "
        "[default: all, one image after the other]",
    ),
    _flag("--resume", text="Continue an image by blocks where a run was ended, unless anything changed."),
    _flag("--skip-existing", text="Skip images whose results exist."),
    _value("--on-error", _SKIP_OR_STOP, "What to do when an image fails.  [default: skip]", default="skip"),
    _value("--summary", _FILE, "Write a table of all images and their odds, .csv or .json.", metavar="FILE"),
    _flag("--allow-empty", text="Write labels 0 for images without any data."),
    quiet_option,
)
