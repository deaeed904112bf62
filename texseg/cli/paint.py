"""`texseg open`: images on a page in the browser, and what is saved from it."""

from __future__ import annotations

import atexit
import copy
import os
import shlex
import threading
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from texseg.app import FITTED, Canvas, Painted, Server, Session
from texseg.cli.inputs import OUTPUT_KINDS, Input, OpenPage, ReadOptions, collect, open_scenes, reading_of
from texseg.cli.options import parameters_of, words_given
from texseg.cli.outputs import (
    Labelled,
    Legend,
    Page,
    Writing,
    check_folder,
    planned_outputs,
    write_outputs,
)
from texseg.cli.process import Work, label_by_blocks, needs_blocks
from texseg.cli.record import made_from
from texseg.cli.terminal import InterruptedBySignalError, say, shown
from texseg.edits import Edits
from texseg.io.write import write_labels
from texseg.parameters import PARAMETERS
from texseg.regions import own_colours

_LARGEST_WHOLE = 2**23  # pixels; strokes on larger images are learned from crops
_USUAL = ("labels", "overlay", "segments", "model")
_OPTIONS = {kind: f"--{kind}" for kind in ("confidence", "probabilities", "regions", "polygons")}
_OPTIONS["report"] = "--report-html"
_OWN = {"", "output", "port", "no_browser", "quiet", "recursive", *FITTED}
"""Options of `texseg open` alone, or that are changed on its page."""
_OF_A_FIT = PARAMETERS.keys() - {"channel_axis", "nodata", "crop_bar"}


def open_page(options: dict[str, Any]) -> None:
    """Serve the page until the command is ended."""
    items = collect(options)
    given = parameters_of({**options, "merge": Edits(), "edits": Edits()})
    del given["edits"]
    reading, folder = reading_of(options), options["output"]
    if reading.is_volume:
        raise click.UsageError("texseg open shows images; choose one plane of a volume with --page")
    check_folder(folder)
    words = words_given(click.get_current_context())
    results = _Results(items, reading, folder, {name: words[name] for name in words.keys() - _OWN})
    with ExitStack() as files:
        pages = [files.enter_context(open_scenes(item.path, reading))[0] for item in items]
        pictures = [
            Canvas(shown(item.name), page, _is_large(page, reading), page.pixel_size and page.pixel_size[:3])
            for item, page in zip(items, pages, strict=True)
        ]
        others = f"_and_{len(items) - 1}" if items[1:] else ""
        path = folder / "strokes" / f"{items[0].name.name}{others}.json"
        session = Session(pictures, given, results, path)
        kinds = [(kind, kind in _USUAL) for kind in (*OUTPUT_KINDS[:-1], "model")]
        with Server(session, kinds, options["port"]) as server:
            say(f"painting at {server.address}")
            say(f"(Ctrl-C ends it; strokes are kept in {shown(path)})")
            if not options["no_browser"]:
                threading.Thread(target=webbrowser.open, args=[server.address], daemon=True).start()
            try:
                server.serve_forever(poll_interval=0.1)
            except InterruptedBySignalError as interruption:
                if (
                    not session.close()
                ):  # a thread in the middle of a library would end the process as a crash
                    atexit.register(os._exit, 128 + interruption.number)
                raise


def _is_large(page: OpenPage, reading: ReadOptions) -> bool:
    return page.shape[0] * page.shape[1] > _LARGEST_WHOLE or needs_blocks([page], reading)


@dataclass
class _Results:
    """Writes what was painted: results as the command does, model, strokes, and the commands for them."""

    items: Sequence[Input]
    reading: ReadOptions
    folder: Path
    words: Mapping[str, Sequence[str]]
    """Words of the other options that were given, by the names of these."""

    def __call__(self, session: Session, image: int, kinds: Sequence[str]) -> dict[str, Any]:
        """Write results about an image."""
        item, picture, state, reading = (
            self.items[image],
            session.pictures[image],
            session.state,
            self.reading,
        )
        assert state is not None  # nothing is saved before there is one
        names = [each["name"] for each in session.classes()][: len(state.parts)]
        written, options = [], []
        if image in session.left:
            written.append(self._map("masks", item, session.left[image]))
            reading, options = replace(reading, mask=written[-1]), ["--mask", str(written[-1])]
        fit = state.unmerged()
        seeds = (
            session.seeds_of(fit, state.strokes, with_dots=True)
            if state.strokes
            else [None] * len(fit.members)
        )
        for (number, window), own in zip(fit.members, seeds, strict=True):
            if own is not None and window == session.pictures[number].everything:
                written.append(self._map("strokes", self.items[number], own))
                options += ["--seeds", str(written[-1])] if number == image else []
        is_repeatable = fit.members == ((image, picture.everything),) and not (
            state.is_split or picture.is_large
        )
        if is_repeatable and state.strokes:  # as the command will find it
            model = session.fitted(fit, seeds, len(fit.parts))
            groups = tuple(tuple(part.label for part in parts) for parts in state.parts)
            state = state._replace(model=model.merge([group for group in groups if len(group) > 1]))
            session.publish(state)
        model = copy.copy(state.model).rename(dict(enumerate(names, 1)))
        model.pixel_size_ = picture.pixel_size
        outputs = frozenset(kind for kind in OUTPUT_KINDS if kind in kinds) | {"run"}
        written += self._write(item, reading, session, image, model, outputs)
        flags = [_OPTIONS[kind] for kind in _OPTIONS if kind in kinds]
        commands = []
        if is_repeatable:
            words = [
                *_parameters(fit),
                *options,
                *_merges(state, names),
                *flags,
                *chain(*self.words.values()),
            ]
            commands.append(("The same again:", self._command("segment", words, [item])))
        if "model" in kinds or not is_repeatable:
            written.append(self.folder / f"{item.name}.texseg")
            model.save(written[-1])
            reading_words = chain(*(self.words[name] for name in self.words.keys() - _OF_A_FIT))
            again = self._command("apply", [str(written[-1]), *flags, *reading_words], self.items)
            commands.append(("What was learned, on these or other images:", again))
        files = [shown(path.relative_to(self.folder)) for path in written]
        return {"folder": shown(self.folder.resolve()), "files": files, "commands": commands}

    def _map(self, kind: str, item: Input, values: Any) -> Path:
        path = self.folder / kind / f"{item.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_labels(path, values.astype(np.uint8))
        return path

    def _command(self, verb: str, words: Sequence[str], items: Sequence[Input]) -> str:
        paths = [str(item.path) for item in items]
        end = ["--"] if any(path.startswith("-") for path in paths) else []
        return shlex.join(map(shown, ["texseg", verb, *words, "-o", str(self.folder), *end, *paths]))

    def _write(
        self,
        item: Input,
        reading: ReadOptions,
        session: Session,
        image: int,
        model: Any,
        kinds: frozenset[str],
    ) -> list[Path]:
        """Write the results that the command writes, from the labels that are seen."""
        writing = Writing(self.folder, kinds=kinds)
        with open_scenes(item.path, reading) as (scene,):
            source, is_large = scene.source, session.pictures[image].is_large
            tags = source.geo is not None and bool(source.geo.tags)
            made = made_from(item, reading, {"operations": session.live, "names": model.names_})
            planned = planned_outputs(item, writing, has_tags=tags, n_pages=1, by_blocks=is_large)
            if is_large:
                work = Work(reading, writing, model=model, names=model.names_)
                found = label_by_blocks(item, scene, work, made, session.follow)
            else:
                read, ((_, sure),), labels = scene.read(), session.sure(image), session.labels[image]
                shown_at = source.geo, scene.pixel_size
                page = Page(source, [(labels, sure)], read.pixels, labels, sure, read.mask, *shown_at)

                def probabilities(_: int) -> Any:
                    return np.moveaxis(model.predict_proba(read.pixels, mask=read.mask), -1, 0)

                found = Labelled([page], model, int(labels.max()), probabilities=probabilities)
            outcome = write_outputs(
                item,
                found,
                planned,
                writing,
                Legend(model.names_, own_colours(model.names_, model.colours_)),
                made,
            )
            if found.parts is not None:
                found.parts.remove()
        return list(outcome.outputs)


def _parameters(state: Painted) -> list[str]:
    """Options for the parameters of a fit."""
    words = []
    for name in FITTED:
        row, value = PARAMETERS[name], state.parameters.get(name)
        value = len(state.parts) if name == "n_segments" and state.strokes else value
        if isinstance(value, bool):
            words.append(row.flags[0].split("/")[not value])
        elif value not in (None, row.default):
            words += [row.flags[0], f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def _merges(state: Painted, names: Sequence[str]) -> list[str]:
    """Options that merge and name segments of a fit."""
    words = []
    for parts, name in zip(state.parts, names, strict=True):
        group = "+".join(str(part.label) for part in parts)
        if len(parts) > 1 or name:
            words += ["--merge", f"{group}={name}" if name else group]
    return words
