"""What is written about an image: under which names, and the writing of it, as rows of labels arrive."""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from texseg.cli.inputs import OUTPUT_KINDS, Input
from texseg.cli.record import Earlier, replace_earlier, write_record
from texseg.cli.terminal import fail, shown, without_options
from texseg.io.atomic import atomic_write
from texseg.io.files import open_regular
from texseg.io.geo import Georeference
from texseg.io.polygons import Outlines, collection, geojson
from texseg.io.source import Source
from texseg.io.write import Layout, write_confidence, write_overlay, write_rows, write_side_by_side
from texseg.regions import PIXELS, PixelSize, RegionRow, SegmentRow, Tally, csv_text, mean_confidence

if TYPE_CHECKING:
    from texseg.method.number import Selection
    from texseg.report import ReportEntry
    from texseg.segmenter import Segmenter

_LONGEST_NAME = 255  # bytes, of nearly all file systems
_MANY_PAGES = 1000
_ON_DEMAND = ("confidence", "probabilities", "regions", "polygons", "report")
_FILE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".npy", ".csv", ".json", ".geojson"))
_DIGITS = 4  # of probabilities
_ROWS = 128  # of pixels whose regions are found at once, of an image that comes in several bands
_PAGE_BYTES = 2**28  # of a report whose picture is looked for
_MOST_COMPARED = 4  # numbers of segments, side by side
_ALWAYS = frozenset(("labels", "overlay", "segments", "run"))

_FOLDER = {"-o": True, "--output": True}
_OF_THE_RUN = {"--summary": True, "--on-error": True, "--resume": False, "--skip-existing": False}
"""Options of a whole run, and whether they have a value: a command for one image would change its files."""

LABEL_SUFFIXES = {"png": ".png", "tif": ".tif", "npy": ".npy", "zarr": ".zarr"}
"""Suffix of each format of label images."""


@dataclass(frozen=True)
class Writing:
    """What is written about an image, and where."""

    folder: Path
    formats: tuple[str, ...] = ()
    """Formats of the label image; none: PNG, which is looked at everywhere, and TIFF, which every library
    reads as numbers (Matplotlib divides those of a PNG by 255); of several pages or blocks TIFF alone."""
    kinds: frozenset[str] = _ALWAYS
    """A selection of `texseg.cli.inputs.OUTPUT_KINDS`."""
    page: Path | None = None
    """The one report, where it is given a name of its own; there is no record then."""
    command: tuple[str, ...] = ()
    """Words of the command, for reports; without its inputs."""
    pixel_size: PixelSize | None = None
    """Of all images, where the files do not say it, or wrongly."""
    inputs: tuple[str, ...] = ()
    """Inputs of the command, where one model serves all of them; else each is done as if it stood alone."""


@dataclass
class Page:
    """A labelled page: its labels, which arrive row by row, and the picture of it that is shown."""

    source: Source
    """Its file, which says where it lies and how large its pixels are."""
    rows: Iterable[tuple[NDArray[np.integer], NDArray[np.floating] | None]]
    """Labels (h, W) and their confidence, from top to bottom; one band if the page was one block."""
    image: NDArray[Any]
    """What is shown: the pixels, or if ``reduction`` is above 1 means over squares of that side."""
    labels: NDArray[np.integer]
    confidence: NDArray[np.floating] | None
    """Both of the picture, complete when all rows have arrived."""
    mask: NDArray[np.bool_] | None = None
    """Pixels of the picture that hold data; None: those with a label."""
    reduction: int = 1
    by_blocks: bool = False

    @property
    def shown_mask(self) -> NDArray[np.bool_] | None:
        """Pixels of the picture that hold data."""
        return self.labels > 0 if self.by_blocks else self.mask

    @property
    def shown_geo(self) -> Georeference | None:
        """Where the picture lies on the earth; not known of a reduced one."""
        return self.source.geo if self.reduction == 1 else None


class Sureness(NamedTuple):
    """How sure results are; None where that is not known, as the odds of a number that was given."""

    probability: float | None = None
    """Of the number of segments."""
    others: str | None = None
    """Other likely numbers, with their probabilities."""
    single_texture: float | None = None
    """Probability that the image is a single texture."""
    mean_confidence: float | None = None
    """Of the labels of all pixels."""


class Written(NamedTuple):
    """Files that were written, and what is reported about them."""

    paths: tuple[Path, ...]
    report: ReportEntry | None
    """What an index of reports says about the report among them."""
    sure: Sureness
    rows: tuple[SegmentRow, ...]
    """Segments; of several pages, those of the first."""
    n_segments: int
    messages: tuple[str, ...] = ()
    """About results of earlier runs."""


# ---- names -------------------------------------------------------------------------------------------------


def planned_outputs(
    item: Input, writing: Writing, *, has_tags: bool, n_pages: int, by_blocks: bool = False
) -> dict[str, list[Path]]:
    """Name the files that are written about an input, by kind.

    For several pages there is one overlay, polygon file and report per page. By blocks there are labels in
    any case.
    """
    formats, kinds = writing.formats, writing.kinds
    maps = formats or (("tif",) if n_pages > 1 or has_tags or by_blocks else ("png",))
    if not formats:
        formats = ("tif",) if n_pages > 1 or by_blocks else ("png", "tif")
    map_format = next((form for form in ("tif", "npy", "png") if form in maps), "tif")
    n_digits = len(str(n_pages - 1))
    pages = [f"_{page:0{n_digits}}" for page in range(n_pages)] if n_pages > 1 else [""]
    endings = {
        "overlay": [f"{page}_overlay.png" for page in pages],
        "polygons": [f"{page}_polygons.geojson" for page in pages],
        "report": [f"{page}_report.html" for page in pages],
        "probabilities": [f"{page}_probabilities.{'zarr' if 'zarr' in formats else 'tif'}" for page in pages],
        "confidence": [f"_confidence{LABEL_SUFFIXES[map_format]}"],
        "segments": ["_segments.csv"],
        "regions": ["_regions.csv"],
        "labels": [f"_labels{LABEL_SUFFIXES[form]}" for form in formats],
        "run": ["_run.json"],
    }
    if writing.page is not None:
        kinds = frozenset()
    folder = writing.folder / item.name.parent
    planned = {
        kind: [folder / f"{item.name.name}{ending}" for ending in of_kind]
        for kind, of_kind in endings.items()
        if kind in kinds or (kind == "labels" and by_blocks)
    }
    return planned if writing.page is None else {"report": [writing.page], **planned}


def check_names(item: Input, writing: Writing, *, several_pages: bool) -> None:
    """Refuse an input whose outputs would have names longer than file systems take, before any work."""
    planned = planned_outputs(item, writing, has_tags=True, n_pages=_MANY_PAGES if several_pages else 1)
    names = [path.name for paths in planned.values() for path in paths]
    longest = max(names, key=lambda name: len(os.fsencode(name)))
    if len(os.fsencode(longest)) > _LONGEST_NAME:
        raise OSError(
            f"its name is too long for its results (at most {_LONGEST_NAME} bytes with the ending "
            f"{longest.removeprefix(item.name.name)}); rename the file"
        )


def inputs_in_danger(items: Sequence[Input], folder: Path, others: Sequence[Path] = ()) -> list[Path]:
    """Find what is read, images and other files, that has the name of an output and would be overwritten."""
    stems = {os.path.realpath(folder / item.name) for item in items}
    ending = re.compile(rf"(_\d+)?_({'|'.join(OUTPUT_KINDS)})\.[^.]+$")
    read = [*(item.path for item in items), *others]
    return [path for path in read if _stems_behind(os.path.realpath(path), ending) & stems]


def _stems_behind(path: str, ending: re.Pattern[str]) -> set[str]:
    """Names without the ending of an output, and without the page number before it."""
    match = ending.search(path)
    return set() if match is None else {path[: match.start()], path[: match.start(2) - 1]}


def command_for(item: Input, writing: Writing) -> tuple[str, ...]:
    """Words of a command that processes this input again, and writes nothing but the same results."""
    if not writing.command:
        return ()
    words = without_options(writing.command, _OF_THE_RUN)
    alone = PurePath(item.path.stem)  # the name of its results if it is the only input
    if not writing.inputs and writing.page is None and item.name != alone:
        folder = writing.folder / (item.name.parent if item.name.name == alone.name else item.name)
        words = [*without_options(words, _FOLDER), "-o", str(folder)]
    inputs = writing.inputs or (str(item.path),)
    end = ("--",) if any(path.startswith("-") for path in inputs) else ()
    return tuple(map(shown, (*words, *end, *inputs)))


# ---- what is requested -------------------------------------------------------------------------------------


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
    return _ALWAYS | extra


def refuse_input(target: Path, items: Sequence[Input]) -> None:
    """Refuse to overwrite one of the inputs."""
    if target.exists() and any(item.path.exists() and target.samefile(item.path) for item in items):
        raise click.UsageError(f"{target} is one of the inputs and would be overwritten")


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


# ---- contents ----------------------------------------------------------------------------------------------


def write_outputs(
    item: Input,
    pages: Sequence[Page],
    planned: Mapping[str, list[Path]],
    writing: Writing,
    *,
    model: Segmenter | None,
    largest: int,
    names: Sequence[str] = (),
    made: Mapping[str, Any] | None = None,
    probabilities: Callable[[int], NDArray[np.float32]] | None = None,
) -> Written:
    """Write the planned outputs of an input, label images as their rows arrive, the record last.

    Without a ``model`` there is no report. No label is above ``largest``; ``probabilities`` gives those of a
    page, float32 (K, H, W).
    """
    files = {kind: paths for kind, paths in planned.items() if kind != "report" or model is not None}
    likely = _likely_numbers(model, pages) if "overlay" in files else {}
    if likely:
        stem = files["overlay"][0].name.removesuffix("_overlay.png")
        files["overlay"] = [*files["overlay"], files["overlay"][0].with_name(f"{stem}_numbers_overlay.png")]
    every = [path for paths in files.values() for path in paths]
    earlier: list[Earlier] = []
    (writing.folder / item.name.parent).mkdir(parents=True, exist_ok=True)

    def make_room() -> None:
        earlier.extend(replace_earlier(path, item.path, made or {}, every) for path in files.get("run", ()))

    noted = [_Noted(page, writing) for page in pages]
    shape = pages[0].source.shape if len(pages) == 1 else (len(pages), *pages[0].source.shape)
    layout = Layout(shape, largest, geo=pages[0].source.geo, pyramid=pages[0].by_blocks)
    write_rows(files.get("labels", ()), _all_rows(noted, make_room), layout)
    entry = _write_pictures(item, pages, files, writing, model, names)
    if likely:
        write_side_by_side(files["overlay"][-1], pages[0].image, likely, pages[0].shown_mask)
    for number, path in enumerate(files.get("probabilities", ())):
        assert probabilities is not None  # whoever requests them
        write_confidence(path, probabilities(number), geo=pages[0].source.geo)
    _write_tables(noted, files, names)
    tallies = [page.tally for page in noted]
    sure = how_sure(getattr(model, "selection_", None), mean_confidence(tallies))
    n_segments = len(set().union(*(tally.pixels for tally in tallies)))
    height, width = pages[0].source.shape
    result: dict[str, Any] = {"n_segments": n_segments, "height": height, "width": width}
    if entry is not None:  # the picture in the index is in the report as well
        result["report"] = {"title": entry.title, "n_segments": entry.n_segments}
    records = files.pop("run", [])
    written = [path for kind, paths in files.items() if kind != "report" for path in paths]
    written += files.get("report", [])
    for path, before in zip(records, earlier, strict=True):
        write_record(path, item.path, before, written, {**result, **known(sure)})
    messages = tuple(message for before in earlier for message in before.messages)
    if likely:
        seen = shown(files["overlay"][-1])
        messages += (f"no number of segments is clearly right: compare the likely ones in {seen}",)
    rows = tuple(noted[0].tally.segments(names))
    return Written((*written, *records), entry, sure, rows, n_segments, messages)


def _likely_numbers(model: Segmenter | None, pages: Sequence[Page]) -> dict[str, NDArray[np.integer]]:
    """Labels by the words for their number, where no number has half of the probability; empty elsewhere."""
    selection = getattr(model, "selection_", None)
    if model is None or selection is None or selection.by_values or len(pages) > 1:
        return {}
    if pages[0].labels is not getattr(model, "labels_", None):
        return {}
    numbers: dict[int, float] = dict(zip(selection.n_segments, selection.probabilities, strict=True))
    hierarchy, best = model.hierarchy_, max(numbers.values())
    known = [int(k) for k in hierarchy.n_segments if numbers.get(int(k), 0) >= best / 2]
    if best >= 0.5 or len(known) < 2:
        return {}
    chosen = sorted(sorted(known, key=lambda k: -numbers[k])[:_MOST_COMPARED])
    return {f"{k} segments ({numbers[k]:.0%})": hierarchy.labels(k) for k in chosen}


class _Noted:
    """What tables and outlines of a page need, collected as its rows arrive."""

    def __init__(self, page: Page, writing: Writing) -> None:
        self.page, self.size = page, writing.pixel_size or page.source.pixel_size or PIXELS
        self.tally = Tally(with_regions=bool({"regions", "polygons"} & writing.kinds))
        self.outlines = Outlines(page.source.shape) if "polygons" in writing.kinds else None
        self.numbers: NDArray[np.integer] | None = None

    def rows(self) -> Iterator[NDArray[np.integer]]:
        """Pass the labels on."""
        for labels, confidence in self.page.rows:
            step = _ROWS if self.page.by_blocks else len(labels)
            for top in range(0, len(labels), step):
                part = slice(top, top + step)
                sure = None if confidence is None else confidence[part]
                self.numbers = self.tally.add(labels[part], sure)
                if self.outlines is not None:
                    self.outlines.add(labels[part], self.numbers)
            yield labels

    def segments(self, names: Sequence[str]) -> list[SegmentRow]:
        return self.tally.segments(names, self.size)

    def regions(self, names: Sequence[str]) -> list[RegionRow]:
        return self.tally.regions(names, self.size, None if self.page.by_blocks else self.numbers)

    def polygons(self, names: Sequence[str]) -> bytes:
        assert self.outlines is not None  # requested
        rings = self.outlines.rings(self.tally.region_of_parts())
        return geojson(collection(self.tally.regions(names, self.size), rings, self.page.source.geo))


def _all_rows(noted: Sequence[_Noted], make_room: Callable[[], None]) -> Iterator[NDArray[np.integer]]:
    """Labels of all pages; before the last rows everything is labelled, and what was written can go."""
    missing = sum(page.page.source.shape[0] for page in noted)
    for page in noted:
        for labels in page.rows():
            missing -= len(labels)
            if missing == 0:
                make_room()
            yield labels


def _write_pictures(
    item: Input,
    pages: Sequence[Page],
    files: Mapping[str, Sequence[Path]],
    writing: Writing,
    model: Segmenter | None,
    names: Sequence[str],
) -> ReportEntry | None:
    """Write overlays, reports and the map of confidence; return the entry of the first report."""
    for path, page in zip(files.get("overlay", ()), pages, strict=False):
        write_overlay(path, page.image, page.labels, mask=page.shown_mask, geo=page.shown_geo)
    for path in files.get("confidence", ()):
        maps = [page.confidence for page in pages if page.confidence is not None]
        write_confidence(path, np.stack(maps) if len(maps) > 1 else maps[0], geo=pages[0].shown_geo)
    entries = []
    for path, page in zip(files.get("report", ()), pages, strict=False):
        from texseg.report import write_report

        of_page = shown(path.stem).removeprefix(shown(item.name.name)).removesuffix("_report")
        seen: Any = copy.copy(model)
        seen.channel_axis = -1 if page.image.ndim == 3 else None
        # of labels of the fit itself the report shows the hierarchy, too
        is_fit = page.labels is getattr(model, "labels_", None)
        entries.append(
            write_report(
                seen,
                page.image,
                path,
                mask=page.shown_mask,
                labels=None if is_fit else page.labels,
                confidence=None if is_fit else page.confidence,
                names=names,
                title=shown(item.name) + (of_page if len(pages) > 1 else ""),
                source=shown(item.path),
                command=command_for(item, writing),
                overview_of=page.source.shape if page.by_blocks else None,
                pixel_size=writing.pixel_size or page.source.pixel_size,
            )
        )
    return entries[0] if entries else None


def _write_tables(noted: Sequence[_Noted], files: Mapping[str, Sequence[Path]], names: Sequence[str]) -> None:
    """Write tables and outlines; in tables of several pages the first column is the page."""
    for path, page in zip(files.get("polygons", ()), noted, strict=False):
        atomic_write(path, page.polygons(names))
    for kind, fields in (("segments", SegmentRow._fields), ("regions", RegionRow._fields)):
        for path in files.get(kind, ()):
            tables: list[list[Any]] = [getattr(page, kind)(names) for page in noted]
            if len(tables) > 1:
                fields = ("page", *fields)
                tables = [[(number, *row) for row in rows] for number, rows in enumerate(tables)]
            atomic_write(path, csv_text([row for rows in tables for row in rows], fields).encode())


# ---- how sure ----------------------------------------------------------------------------------------------


def how_sure(selection: Selection | None, confidence: float | None) -> Sureness:
    """Round what is known about how sure results are; further digits depend on the number of threads."""
    mean = None if confidence is None else round(confidence, _DIGITS)
    if selection is None or selection.by_values:
        return Sureness(mean_confidence=mean)
    return Sureness(
        round(selection.probability(selection.chosen), _DIGITS),
        selection.others_in_words,
        round(float(selection.one_texture), _DIGITS),
        mean,
    )


def in_words(selection: Selection | None) -> str:
    """Say how likely the chosen number is, which others are likely, and how to get them."""
    if selection is None:
        return ""
    others = [k for k in selection.others.tolist() if k > 1]
    hint = f"; to have another: -k {others[0]}" if others else ""
    return f"number chosen: {selection}{hint}"


def known(sure: Sureness) -> dict[str, Any]:
    """Return what is known, for a record."""
    return {name: value for name, value in sure._asdict().items() if value is not None}


def recorded_sureness(result: Mapping[str, Any]) -> Sureness:
    """Return how sure results are, according to their record."""
    return Sureness(**{name: result[name] for name in Sureness._fields if name in result})


def recorded_entry(result: Mapping[str, Any], reports: Sequence[Path]) -> ReportEntry | None:
    """Entry of a report in the index, from the result in the record and the picture in the report."""
    if not reports or "report" not in result:
        return None
    from texseg.report import ReportEntry

    entry, shape = result["report"], (result["height"], result["width"])
    return ReportEntry(reports[0], entry["title"], entry["n_segments"], shape, _thumbnail_in(reports[0]))


def _thumbnail_in(report: Path) -> str:
    """Picture of a report in the index, as a data URI; an empty one where there is none."""
    with open_regular(report, _PAGE_BYTES) as file:
        found = re.search(rb'"thumbnail": "(data:image/[\w;,+/=]+)"', file.read())
    return "" if found is None else found[1].decode()
