"""Options that several verbs share; those of parameters come from their table."""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from texseg.io.files import atomic_write, open_regular
from texseg.parameters import MOST_SEGMENTS, PARAMETERS, Parameter

if TYPE_CHECKING:
    from texseg.io.regions import PixelSize
    from texseg.method.edits import Edits

_FORMATS = ("png", "tif", "npy", "zarr", "gpkg")
_SECTIONS = ("Number", "Image", "Method", "Results", "Run")
_GIVEN = "texseg.given"  # where a context keeps options and their values
_MOST_BYTES = 2**20  # of a file of options
_CONFIGS = "--config reads what --save-config writes"
_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
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


class Measured(NamedTuple):
    """Lengths, or an area, in a unit: the power of that unit is 1 or 2."""

    values: tuple[float, ...]
    unit: str
    power: int

    def in_pixels(self, name: str, size: "PixelSize | None") -> Any:
        """Convert to pixels of some size; a whole number of an area."""
        from texseg.io.geo import relative_size
        from texseg.io.regions import PixelSize

        by = relative_size(PixelSize(1.0, 1.0, self.unit), size, rounded=False)
        if by is None:
            needs = "needs the size of a pixel in such a unit, which the file does not state"
            raise ValueError(f"--{name.replace('_', '-')} in {self.unit} {needs}; pass --pixel-size")
        if self.power == 2:
            area = self.values[0] * by[0] * by[1]
            return PARAMETERS[name].checked(round(area) if math.isfinite(area) else area)
        return PARAMETERS[name].checked(tuple(each * math.sqrt(by[0] * by[1]) for each in self.values))


def _lengths(text: str, end: str = "") -> "list[PixelSize]":
    """Read lengths, each with its unit; none unless all have the same."""
    from texseg.io.geo import size_of

    length = rf"\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([^\W\d_]+){end}\s*"
    found = [re.fullmatch(length, part, re.IGNORECASE) for part in text.split(",")]
    sizes = [each and size_of(each.groups(), each.groups()) for each in found]
    kept = [size for size in sizes if size is not None]
    return kept if len(kept) == len(sizes) and len({size.unit for size in kept}) == 1 else []


def _of_parameter(row: Parameter) -> Callable[[str], Any]:
    """Return what reads the value of a parameter: within the limits of the table."""
    power = {"wavelengths": 1, "min_size": 2}.get(row.name, 0)
    kinds: Any = {int: int, float: float, tuple: lambda text: tuple(map(float, text.split(",")))}

    def read(text: str) -> Any:
        may_be_auto = row.name == "n_segments"
        if may_be_auto and text == "auto":
            return None
        found = _lengths(text, r"(?:2|\^2|²)" if power == 2 else "") if power else []
        if found and not (power == 2 and found[1:]):
            return Measured(tuple(each.height for each in found), found[0].unit, power)
        try:
            return row.checked(kinds[row.base](text))
        except ValueError:
            allowed = row.allowed + (" pixels" if power else "")
            allowed += ", such as 3,6,12" if row.base is tuple else ""
            allowed += {1: ", or lengths such as 1um,2um", 2: ", nor an area such as 50um2"}.get(power, "")
            raise ValueError(f"neither {allowed} nor 'auto'" if may_be_auto else f"not {allowed}") from None

    return read


def _page(text: str) -> int | str:
    if text != "all" and not text.isdecimal():
        raise ValueError("neither the number of a page, from 0, nor 'all'")
    return text if text == "all" else int(text)


def _count(text: str, wrong: str, *others: str, least: int = 1) -> int | None:
    """Read a number of at least so many with an optional k, M or G; None for one of the other texts."""
    text = text.strip().lower()
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(e\+?\d+)?([kmg]?)", text)
    number = float(found[1] + (found[2] or "")) * _MULTIPLES[found[3]] if found is not None else 0.0
    if text not in others and not least <= number < math.inf:
        raise ValueError(wrong)
    return None if text in others else int(number)


def _pixel_size(text: str) -> "PixelSize":
    found = _lengths(text)
    if len(found) not in (1, 3):
        raise ValueError("not a length with its unit, such as 0.25um or 30m, or of voxels 2um,2um,5um")
    depth = found[2].height if found[1:] else None
    return found[0]._replace(height=found[len(found) // 2].height, depth=depth)


def _raw(text: str) -> tuple[tuple[int, ...], Any]:
    import numpy as np

    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*):([<>]?[uif]\d|u?int\d+|float\d+)", text)
    with suppress(TypeError):
        if found is not None:
            return tuple(map(int, found.groups()[:3])), np.dtype(found[4])
    raise ValueError("not planes x rows x columns : type, such as 100x512x512:uint16")


def _formats(text: str) -> tuple[str, ...]:
    formats = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    if set(formats) - set(_FORMATS):
        raise ValueError(f"not a list of {', '.join(_FORMATS)}")
    if "zarr" in formats and find_spec("zarr") is None:
        raise ValueError("not possible: zarr images need zarr (pip install 'texseg[large]')")
    if "gpkg" in formats and find_spec("pyogrio") is None:
        raise ValueError("not possible: GeoPackages need pyogrio (pip install 'texseg[geo]')")
    return formats


def _channels(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
        raise ValueError("not a list of different channels, numbered from 0, such as 0,2")
    return tuple(map(int, numbers))


def _read_edits(ctx: click.Context, param: click.Parameter, value: Any) -> "Edits":
    """Read edits from texts of --merge, or from the file of --edits."""
    from texseg.method.edits import Edits, parse_merges, read_edits

    if value is None:
        return Edits()
    try:
        return parse_merges(value) if isinstance(value, tuple) else read_edits(value)
    except (OSError, ValueError) as error:
        strerror = getattr(error, "strerror", None)
        raise click.BadParameter(f"{value}: {strerror}" if strerror else str(error)) from error


def section(name: str, *decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add options that stand in a section of the help; those that have one keep it."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            n_before = len(getattr(command, "__click_params__", ()))
            command = decorator(command)
            for option in command.__click_params__[n_before:]:
                vars(option).setdefault("section", name)
        return command

    return decorate


def flag(names: str, text: str) -> Callable[[Any], Any]:
    """Option that is given or not."""
    return click.option(*names.split(), is_flag=True, help=text)


def value(names: str, kind: Any, text: str, **more: Any) -> Callable[[Any], Any]:
    """Option with a value of some kind; `names` are separated by spaces."""
    return click.option(*names.split(), type=kind, help=text, **more)


def parameter_option(name: str) -> Callable[[Any], Any]:
    """Option of a parameter, from its row in the table."""
    row, is_number = PARAMETERS[name], name == "n_segments"
    default = "auto" if is_number else row.default
    more: dict[str, Any] = {"default": default, "show_default": default is not None}
    if row.base is bool:
        more = {"is_flag": True, "default": default if "/" in row.flags[0] else False}
    elif row.choices:
        more["type"] = click.Choice(row.choices)
    else:
        names = {int: "INTEGER", float: "FLOAT", tuple: "NUMBER,..."}
        more["type"] = ReadBy(names[row.base or float] + "|auto" * is_number, _of_parameter(row))
    text = row.option
    if row.presets is not None and "default" not in text:
        values = [_shown(value) for value in row.presets]
        plain = "" if values[0] == values[1] else f"; with --preset plain {values[1]}"
        text += f"  [default: {values[0]}{plain}]"
    return section(row.group, click.option(*row.flags, help=text, **more))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    numbers = value if isinstance(value, tuple) else (value,)
    return ",".join(number if isinstance(number, str) else f"{number:.3g}" for number in numbers)


_OF_READING = ("channel_axis", "nodata")
FITTED = tuple(row.name for row in PARAMETERS.values() if row.flags and row.name not in _OF_READING)
"""Parameters that have options."""


def parameters_of(options: dict[str, Any]) -> dict[str, Any]:
    """Pick the parameters of `TextureSegmenter`, and the edits of what it finds."""
    if options["n_segments"] is None and options["k_min"] > options["k_max"]:
        limits = f"--k-min {options['k_min']} is above --k-max {options['k_max']}"
        raise click.UsageError(f"{limits}: no number is left to choose")
    kept = (name for name in FITTED if options.get(name) is not None or PARAMETERS[name].presets is None)
    given = {name: options.get(name) for name in kept}
    if options.get("volume"):
        if options["planes"] is not None:
            raise click.UsageError("--volume measures textures in space, --series in planes; leave one out")
        given["spatial_dims"] = 3
    return given | {"edits": edits_of(options, options["n_segments"])}


def edits_of(options: dict[str, Any], K: int | None) -> "Edits":
    """Pick the edits of the segments; what no segments can follow is refused before any work."""
    from texseg.method.edits import Edits

    every: Edits = (options.get("edits") or Edits()) + (options.get("merge") or Edits())
    try:
        every.names_of([""] * (K or MOST_SEGMENTS))
    except ValueError as error:
        raise click.UsageError(f"edits (--merge, --edits): {error}") from None
    return every


class Verb(click.Command):
    """A verb whose options stand in sections, and may be read from a file and written to one."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the help."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _SECTIONS}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(option, "section", "Run"), []).append(record)
        used = {name: records for name, records in sections.items() if records}
        for name, records in used.items():
            with formatter.section(name if len(used) > 1 else "Options"):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words and keep the options; write these to a file, if requested, when all are right."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        words_of = {**(ctx.default_map or {}), **self.make_parser(ctx).parse_args(words)[0]}
        keys = _keys(self)
        given = {key: words_of[option.name] for key, option in keys.items() if option.name in words_of}
        ctx.meta[_GIVEN] = [(keys[key], value) for key, value in given.items()]
        target = ctx.params.pop("save_config", None)
        if target is not None and not ctx.resilient_parsing:
            _save_config(target, given, set(keys))
        return rest


def _save_config(target: Path, given: Mapping[str, Any], known: set[str]) -> None:
    """Write options to a file, unless it holds anything else."""
    held = {""} if target.exists() else set()
    with suppress(OSError, ValueError):
        held = set(_options_in(target))
    if held - known:
        raise click.UsageError(f"--save-config {target} exists and holds something else; choose another name")
    try:
        atomic_write(target, "".join(f"{key} = {_toml(value)}\n" for key, value in given.items()).encode())
    except (OSError, UnicodeError) as error:
        raise click.UsageError(f"--save-config {target} cannot be written: {error}") from None


def _options_in(path: Path) -> dict[str, Any]:
    with open_regular(path, _MOST_BYTES) as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"not a text; {_CONFIGS}") from None
    if text.lstrip().startswith("{"):
        raise ValueError(f"this is JSON, such as a record of results; {_CONFIGS}")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def words_given(ctx: click.Context) -> dict[str, list[str]]:
    """Words of a command with the same options, by the names of these; before them what names the verb."""
    arguments = (p for p in ctx.command.params if isinstance(p, click.Argument) and p.nargs == 1)
    model = [str(ctx.params[argument.name]) for argument in arguments]
    words = {"": ["texseg", str(ctx.command.name), *model]}
    for option, value in ctx.meta[_GIVEN]:
        if option.is_flag:
            words[option.name] = (option.opts if value else option.secondary_opts)[:1]
        else:
            each = value if option.multiple else [value]
            words[option.name] = [word for one in each for word in (option.opts[0], str(one))]
    return words


def _keys(command: click.Command) -> dict[str, click.Option]:
    """Options by their keys in a file."""
    return {
        max(option.opts, key=len).lstrip("-"): option
        for option in command.params
        if isinstance(option, click.Option) and option.name not in ("config", "save_config")
    }


def _toml(value: Any) -> str:
    """Value of an option, as it was given, in TOML."""
    with suppress(tomllib.TOMLDecodeError):  # a number
        if str(tomllib.loads(f"v = {value}")["v"]) == value:
            return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Let the options in a file stand for those that the command does not give."""
    if path is None:
        return
    given, known = dict[str, Any](), _keys(ctx.command)
    try:
        for key, value in _options_in(path).items():
            if (option := known.get(key)) is None:
                close = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ValueError(f"{key} is not an option of texseg {ctx.info_name}{hint}")
            if option.is_flag != isinstance(value, bool) or isinstance(value, dict):
                kind = "true or false" if option.is_flag else "a text or a number"
                raise ValueError(f"{key} must be {kind}")
            texts = [str(each) for each in (value if isinstance(value, list) else [value])]
            words = texts if option.multiple else ",".join(texts)
            given[str(option.name)] = value if option.is_flag else words
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.BadParameter(f"{path}: {reason}", ctx, param) from None
    ctx.default_map = given


paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH...")

_MERGE = "Merge segments and name the result, or name one (3=NAME); numbers are those before merging."
_EDITS = "Merges and names in a JSON file, as a report saves them."
edit_options = section(
    "Number",
    value("--merge", str, _MERGE, multiple=True, metavar="2+5=NAME", callback=_read_edits),
    value("--edits", _FILE, _EDITS, metavar="FILE", callback=_read_edits),
)

_SEEDS = (
    "Strokes: an image with the class of each painted pixel, else 0, or painted in a colour a class; or "
    "GeoJSON or ROIs of ImageJ with a class each; or a folder with one named like each image."
)
_seeds_option = value("--seeds", _EXISTING, _SEEDS, metavar="FILE")
fitting_options = section("Number", *map(parameter_option, FITTED), _seeds_option, edit_options)

volume_options = section(
    "Image",
    flag("--volume", "Textures in space: all pages of a file, or images of a folder, are one volume."),
    value("--raw", ReadBy("SHAPE:TYPE", _raw), "Volume without a header, such as 100x512x512:uint16."),
)

_MOST = "Refuse images of more pixels, such as 500M, unless read by blocks; none refuses no image."
_NO_NUMBER = "not a number of pixels such as 500M, nor 'none'"
_MOST_PIXELS = ReadBy("NUMBER|none", lambda text: _count(text, _NO_NUMBER, "none"))
_SIDE = "Side of a pixel (0.25um), or x,y,z of a voxel (2um,2um,5um).  [default: what the file says]"
_PAGE, _BANDS = ReadBy("INTEGER|all", _page), ReadBy("INTEGER,...", _channels)
reading_options = section(
    "Image",
    value("--page", _PAGE, "Page to use, counted from 0; all fits one model to all pages."),
    parameter_option("channel_axis"),
    value("--channels bands", _BANDS, "Channels to use, such as 0,2.  [default: all]"),
    flag("--grey", "Turn colour images grey."),
    value("--mask", _EXISTING, "Image with 0 where there is no data, or a folder with one for each image."),
    parameter_option("nodata"),
    flag("--ignore-alpha", "Treat transparent pixels as data."),
    value("--pixel-size", ReadBy("LENGTH", _pixel_size), _SIDE),
    value("--level", click.IntRange(min=0), "Level of a pyramid (OME-TIFF, OME-Zarr); 0 is the largest."),
    value("--max-pixels", _MOST_PIXELS, _MOST, default="178956970", show_default=True),
)

_NO_MEMORY = "not an amount of memory of at least 1M, such as 2G"
memory_option = value(
    "--memory",
    ReadBy("BYTES", lambda text: _count(re.sub("(?i)b$", "", text), _NO_MEMORY, least=10**6)),
    "Memory to use, such as 2G; images that need more are labelled block by block.  "
    "[default: half of what is free]",
)

_WHERE = "Folder for the results; created if needed.  [default: here]"
_folder_option = value("-o --output", click.Path(path_type=Path), _WHERE, default=Path("."), metavar="FOLDER")

_LABELS = "Formats of labels, and gpkg for outlines.  [default: png,tif; for several pages or blocks: tif]"
writing_options = section(
    "Results",
    _folder_option,
    value("--format formats", ReadBy(",".join(_FORMATS), _formats), _LABELS, default=()),
    flag("--confidence with_confidence", "Write a map of confidence."),
    flag("--probabilities with_probabilities", "Write the probability of every segment (TIFF or zarr)."),
    flag("--intervals with_intervals", "Add 95 % intervals of the fractions (half as much time again)."),
    flag("--regions with_regions", "Write a table of connected regions."),
    flag("--polygons with_polygons", "Write outlines as GeoJSON."),
    flag("--report-html with_report", "Write a page to click through."),
    flag("--all everything", "Write all of these except probabilities and intervals."),
)

_CONFIG = "Read options from a TOML file (segments = 5); those on the command line take precedence."
run_options = section(
    "Run",
    flag("--recursive", "Look into folders inside folders."),
    memory_option,
    value(
        "--config", _FILE, _CONFIG, metavar="FILE", callback=_read_config, is_eager=True, expose_value=False
    ),
    value("--save-config", _FILE, "Write the options of this command to a TOML file.", metavar="FILE"),
    flag("-q --quiet", "Print failures and notes only."),
)

_JOBS = "Processors, one or more for each image.  [default: all, one image after the other]"
_SCHEDULER = "Label by blocks on the workers of a dask scheduler, such as tcp://10.0.0.1:8786."
batch_options = section(
    "Run",
    value("--jobs", click.IntRange(min=1), _JOBS),
    value("--scheduler", str, _SCHEDULER, metavar="ADDRESS"),
    flag("--resume", "Continue an image by blocks where a run was ended, unless anything changed."),
    flag("--skip-existing", "Skip images whose results exist."),
    value("--on-error", _SKIP_OR_STOP, "What to do when an image fails.  [default: skip]", default="skip"),
    value("--summary", _FILE, "Write a table of all images and their odds, .csv or .json.", metavar="FILE"),
    flag("--allow-empty", "Write labels 0 for images without any data."),
    run_options,
)

_SHARED = "Fit one model to all images, so that a label means the same texture everywhere."
_on_images = section("Run", volume_options, reading_options, writing_options, batch_options)
segmenting_options = section("Run", paths_argument, fitting_options, flag("--shared", _SHARED), _on_images)

_UNKNOWN = "Give what matches no texture the label 'unknown' (K + 1)."
applying_options = section(
    "Image",
    paths_argument,
    section("Number", flag("--unknown", _UNKNOWN), edit_options),
    flag("--rescale", "Bring images in another encoding to the range of the model."),
    flag("--resample", "Bring images to the size of pixel that the model learned from."),
    parameter_option("crop_bar"),
    _on_images,
)

painting_options = section(
    "Run",
    paths_argument,
    section("Number", *(parameter_option(name) for name in FITTED if name != "planes")),
    reading_options,
    section("Results", _folder_option),
    value("--port", click.IntRange(0, 65535), "Port of the page.  [default: any that is free]", default=0),
    flag("--no-browser", "Print the address of the page, and do not open it."),
    run_options,
)
