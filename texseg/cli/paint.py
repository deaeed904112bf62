"""`texseg open`: images on a page in the browser, and what is saved from it."""

import copy
import os
import shlex
import signal
import threading
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from texseg.cli.inputs import OUTPUT_KINDS, Input, ReadOptions, collect, open_scenes, reading_of
from texseg.cli.options import parameters_of, words_given
from texseg.cli.outputs import Writing, check_folder
from texseg.cli.process import Work, needs_blocks, process
from texseg.cli.server import Server
from texseg.cli.session import FITTED, Canvas, Session
from texseg.cli.terminal import InterruptedBySignalError, say, shown
from texseg.io.write import write_labels
from texseg.method.edits import parse_merges
from texseg.parameters import PARAMETERS

_LARGEST_WHOLE = 2**23  # pixels; strokes on larger images are learned from crops
_USUAL = ("labels", "overlay", "segments", "model")
_ASKED = {"confidence", "probabilities", "regions", "polygons", "report"}  # kinds that are options
_OWN = {"", "output", "port", "no_browser", "quiet", "recursive", *FITTED}
"""Options of `texseg open` alone, or that are changed on its page."""
_OF_A_FIT = PARAMETERS.keys() - {"channel_axis", "nodata", "crop_bar"}


def open_page(options: dict[str, Any]) -> None:
    """Serve the page until the command is ended."""
    items = collect(options)
    given = parameters_of(options)
    del given["edits"]
    reading, folder = reading_of(options), options["output"]
    if reading.page == "all":
        raise click.UsageError("texseg open shows one page of a file; give its number with --page")
    check_folder(folder)
    words = words_given(click.get_current_context())
    words = {name: words[name] for name in words.keys() - _OWN}
    with ExitStack() as files:
        pictures = []
        for item in items:
            page = files.enter_context(open_scenes(item.path, reading))[0]
            is_large = page.shape[0] * page.shape[1] > _LARGEST_WHOLE or needs_blocks(page, reading)
            pictures.append(Canvas(shown(item.name), page, is_large))
        others = f"_and_{len(items) - 1}" if items[1:] else ""
        path = folder / "strokes" / f"{items[0].name.name}{others}.json"
        session = Session(pictures, given, partial(_save, items, reading, folder, words), path)
        kinds = [(kind, kind in _USUAL) for kind in (*OUTPUT_KINDS[:-1], "model")]
        with Server(session, kinds, options["port"]) as server:
            try:
                say(f"painting at {server.address}")
                say("(Ctrl-C ends it; what is painted is kept at once)")
                if not options["no_browser"]:
                    threading.Thread(target=webbrowser.open, args=[server.address], daemon=True).start()
                server.serve_forever(poll_interval=0.1)
            except InterruptedBySignalError as interruption:
                if interruption.number == signal.SIGINT:
                    kept = f"all that was painted is in {shown(session.path)}"
                    interruption.words = f"ended; {kept if session.operations else 'nothing was painted'}"
                    interruption.code = 0
                if not session.close():  # threads that are in a library would be waited for
                    say(f"texseg: {interruption.words}", err=True)
                    os._exit(interruption.code)
                raise


def _save(
    items: Sequence[Input],
    reading: ReadOptions,
    folder: Path,
    given: Mapping[str, Sequence[str]],
    session: Session,
    image: int,
    kinds: Sequence[str],
) -> dict[str, Any]:
    """Write results about an image; return their names, and the commands that make them again."""
    item, canvas, state = items[image], session.pictures[image], session.state
    maps, seeds, options, commands = [], None, dict(given), []
    if image in state.left:
        valid, plan = np.zeros(canvas.shape, bool), session.plan(image)
        for window in map(plan.core, plan):
            valid[window] = session.data(image, window, state.left).mask
        maps.append(_map(folder / "masks", item, valid))
        reading, options["mask"] = replace(reading, mask=maps[-1]), ["--mask", str(maps[-1])]
    strokes = state.seeds or []
    if state.strokes and not strokes:
        strokes = session.seeds_of(state, state.strokes, state.model._part_images())
    for (number, window), own in zip(state.members, strokes, strict=False):
        if own is not None and window == session.pictures[number].everything:
            maps.append(_map(folder / "strokes", items[number], own))
            seeds = maps[-1] if number == image else seeds
    names = [each["name"] for each in session.classes()][: len(state.classes)]
    model = copy.copy(state.model).rename(dict(enumerate(names, 1)))
    model.pixel_size_ = canvas.pixel_size
    written = frozenset(kind for kind in OUTPUT_KINDS if kind in kinds) | {"run"}
    flags = [f"--{kind}" if kind != "report" else "--report-html" for kind in sorted(written & _ASKED)]
    work = Work(reading, Writing(folder, kinds=written), model=model)
    if state.members == ((image, canvas.everything),) and not state.is_halved and not canvas.is_large:
        parameters = dict(state.parameters)
        if seeds is not None:
            parameters["n_segments"], options["seeds"] = len(state.fit), ["--seeds", str(seeds)]
        pairs = zip(("+".join(map(str, own)) for own in model.fitted_labels), names, strict=True)
        merges = [f"{own}={name}" if name else own for own, name in pairs if name or "+" in own]
        words = [*_words(parameters), *chain(*options.values()), *flags]
        words += [word for text in merges for word in ("--merge", text)]
        commands.append(("The same again:", _command(["segment", *words], folder, [item])))
        parameters["edits"] = parse_merges(merges)
        work = Work(replace(reading, seeds=seeds), work.writing, parameters)
    if "model" in kinds or work.model is not None:
        maps.append(folder / f"{item.name}.texseg")
        model.save(maps[-1])
        words = ["apply", str(maps[-1]), *chain(*(given[name] for name in given.keys() - _OF_A_FIT)), *flags]
        commands.append(("What was learned, on these or other images:", _command(words, folder, items)))
    outcome = process(item, work, callback=session.follow)
    if outcome.status == "failed":
        raise ValueError(outcome.reason)
    files = [shown(path.relative_to(folder)) for path in (*maps, *outcome.outputs)]
    return {"folder": shown(folder.resolve()), "files": files, "commands": commands}


def _map(folder: Path, item: Input, values: Any) -> Path:
    path = folder / f"{item.name}.png"
    write_labels(path, values.astype(np.uint8))
    return path


def _command(words: Sequence[str], folder: Path, items: Sequence[Input]) -> str:
    paths = [str(item.path) for item in items]
    end = ["--"] if any(path.startswith("-") for path in paths) else []
    return shlex.join(map(shown, ["texseg", *words, "-o", str(folder), *end, *paths]))


def _words(parameters: Mapping[str, Any]) -> list[str]:
    words = []
    for name in FITTED:
        row, value = PARAMETERS[name], parameters.get(name)
        if isinstance(value, bool):
            words.append(row.flags[0].split("/")[not value])
        elif value not in (None, row.default):
            words += [row.flags[0], f"{value:g}" if isinstance(value, float) else str(value)]
    return words
