"""From the arguments of a command to the work to be done, checked before anything is computed."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np
from numpy.typing import NDArray

from texseg.cli.inputs import OUTPUT_KINDS, Input, collect_inputs
from texseg.cli.outputs import Writing, inputs_in_danger
from texseg.cli.reading import ReadOptions
from texseg.cli.terminal import say
from texseg.edits import Edits

_FILE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".npy", ".csv", ".json", ".geojson"))


_OVERRIDES = (
    "smoothness",
    "cell",
    "wavelengths",
    "n_orientations",
    "n_bins",
    "n_starts",
    "patch_weight",
    "value_weight",
    "learned_borders",
    "cue",
)
"""Parameters that take the place of what the preset says, where they are given."""


_ON_DEMAND = ("confidence", "probabilities", "regions", "polygons", "report")
_OF_PHOTOGRAPHS = 0.5  # share of neighbours that differ; label images have less than a tenth
_FEW_LABELS = 16  # fewer may be an intended pattern


def fail(reason: str) -> NoReturn:
    """End with exit code 1 and one line on standard error."""
    say(f"texseg: {reason}", err=True)
    sys.exit(1)


def collect(paths: Sequence[str], recursive: bool, output: Path | None) -> list[Input]:
    """Find the inputs of a command; none at all is a usage error."""
    for path in paths:
        if path == "-":
            raise click.UsageError("'-' would be standard input, which is not read; save the image to a file")
        if re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE):
            raise click.UsageError(f"{path} is an address; download the file and give its name")
    found = collect_inputs(paths, recursive=recursive, output=output)
    if found.n_own_outputs:
        click.echo(f"note: left out {found.n_own_outputs} that look like results of texseg", err=True)
    if not found.inputs:
        hint = "" if recursive else "; --recursive looks into the folders inside"
        raise click.UsageError(f"no images found in {', '.join(paths)}{hint}")
    return found.inputs


def parameters_of(options: dict[str, Any]) -> dict[str, Any]:
    """Pick the parameters of `TextureSegmenter`, and the edits of what it finds."""
    if options["n_segments"] is None and options["k_min"] > options["k_max"]:
        raise click.UsageError(
            f"--k-min {options['k_min']} is above --k-max {options['k_max']}: no number is left to choose"
        )
    return {
        "n_segments": options["n_segments"],
        "model": options["model"],
        "k_min": options["k_min"],
        "k_max": options["k_max"],
        "preset": options["preset"],
        "log": options["log"],
        "crop_bar": options["crop_bar"],
        "min_size": options["min_size"],
        "random_state": options["seed"],
        "edits": edits_of(options),
        **{name: options[name] for name in _OVERRIDES if options[name] is not None},
    }


def edits_of(options: dict[str, Any]) -> Edits:
    """Pick the edits of the segments."""
    return options["edits"] + options["merge"]


def reading_of(options: dict[str, Any]) -> ReadOptions:
    """Pick how the inputs are read."""
    if options.get("seeds") is not None and options["page"] == "all":
        raise click.UsageError("--seeds are strokes on one page; name it with --page")
    return ReadOptions(
        page=options["page"],
        channel_axis=options["channel_axis"],
        channels=options["channels"],
        grey=options["grey"],
        mask=options["mask"],
        seeds=options.get("seeds"),
        nodata=options["nodata"],
        ignore_alpha=options["ignore_alpha"],
        max_pixels=options["max_pixels"],
        level=options["level"],
        memory=options["memory"],
    )


def writing_of(options: dict[str, Any], items: Sequence[Input], kinds: frozenset[str]) -> Writing:
    """Settle what is written, and make sure that no input would be overwritten."""
    folder: Path = options["output"]
    page = None
    if kinds <= {"report", "run"} and folder.suffix.lower() in (".html", ".htm") and not folder.is_dir():
        if len(items) > 1 or options["page"] == "all":
            raise click.UsageError(f"-o {folder} names one page; several images or pages need a folder")
        refuse_input(folder, items)
        folder, page = folder.parent, folder
    if folder.suffix.lower() in _FILE_SUFFIXES and not folder.is_dir():
        raise click.UsageError(f"-o names the folder for the results; {folder} looks like a file")
    for path in inputs_in_danger(items, folder, _read_beside(options)):
        raise click.UsageError(f"the results would overwrite the input {path}; choose another folder with -o")
    check_folder(folder)
    if options["summary"] is not None:
        if options["summary"].suffix.lower() not in (".csv", ".json"):
            raise click.UsageError(f"--summary {options['summary']}: the name must end in .csv or .json")
        refuse_input(options["summary"], items)
        check_folder(options["summary"].parent)
    inputs = options["paths"] if options.get("shared") else ()
    words, size = _words_without(options["paths"]), options.get("pixel_size")
    return Writing(folder, options.get("formats", ()), kinds, page, words, size, inputs)


def _read_beside(options: dict[str, Any]) -> list[Path]:
    """List the masks and strokes, or all files in their folders."""
    given = [Path(options[name]) for name in ("mask", "seeds") if options.get(name) is not None]
    return [file for path in given for file in (path.iterdir() if path.is_dir() else [path])]


def _words_without(paths: Sequence[str]) -> tuple[str, ...]:
    """Words of the command that is running, without its inputs."""
    words = list(click.get_current_context().find_root().obj)
    for word in ("--", *paths):
        if word in words:
            words.remove(word)
    return tuple(words)


def kinds_of(options: dict[str, Any]) -> frozenset[str]:
    """Pick the kinds of outputs."""
    extra = {kind for kind in _ON_DEMAND if options[f"with_{kind}"]}
    if options["everything"]:
        return frozenset(OUTPUT_KINDS) - {"probabilities"} | extra
    return frozenset({"labels", "overlay", "segments", "run"} | extra)


def refuse_input(target: Path, items: Sequence[Input]) -> None:
    """Refuse to overwrite one of the inputs."""
    if target.exists() and any(item.path.exists() and target.samefile(item.path) for item in items):
        raise click.UsageError(f"{target} is one of the inputs and would be overwritten")


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


def check_folder(folder: Path) -> None:
    """Try to create a folder and to write in it; one that was not there is left for the first result."""
    if folder.is_file():
        fail(f"cannot write to the folder {folder}: it is a file")
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        for place in missing:
            place.rmdir()
    except OSError as error:
        fail(f"cannot write to the folder {folder}: {error.strerror or error}")
