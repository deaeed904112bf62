"""What is written about an image: under which names, and the writing of it, as rows of labels arrive."""

import copy
import io
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, Self

import click
import numpy as np
from numpy.typing import NDArray

import texseg
from texseg.cli.inputs import OUTPUT_KINDS, Input, is_volume
from texseg.cli.options import words_given
from texseg.cli.record import PartsFolder, recorded_result, replace_earlier, write_record
from texseg.cli.terminal import shown
from texseg.io import regions
from texseg.io.display import orthogonal_cuts
from texseg.io.files import atomic_write, open_regular, output_path
from texseg.io.geo import Georeference
from texseg.io.polygons import Outlines, collection, content_of
from texseg.io.read import Source
from texseg.io.regions import PIXELS, REGION_FIELDS, SEGMENT_FIELDS, Labels, PixelSize, Row, Tally, csv_text
from texseg.io.write import Layout, write_overlay, write_rows
from texseg.segmenter import Segmenter

_LONGEST_NAME = 255  # bytes, of nearly all file systems
_MANY_PAGES = 1000
_ON_DEMAND = ("confidence", "probabilities", "intervals", "regions", "polygons", "report")
_OF_VOLUMES = frozenset("labels overlay confidence segments report run".split())
_FILE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".npy", ".csv", ".json", ".geojson"))
_DIGITS = 4  # of probabilities; further ones depend on the number of threads
_ROWS = 128  # of pixels whose regions are found at once, of an image that comes in several bands
_PAGE_BYTES = 2**28  # of a report whose picture is looked for
_SHOWN = 192  # voxels along the longest axis of a volume that comes by blocks, in its report
_MOST_COMPARED = 4  # numbers of segments, side by side

_OF_THE_RUN = ("summary", "on_error", "save_config", "resume", "skip_existing")
"""Options of a whole run: a command for one image would change its files."""


@dataclass(frozen=True)
class Writing:
    """What is written about an image, and where."""

    folder: Path
    formats: tuple[str, ...] = ()
    """Formats of the label image; none: PNG, which is looked at everywhere, and TIFF, which every library
    reads as numbers (Matplotlib divides those of a PNG by 255); of several pages or blocks TIFF alone."""
    kinds: frozenset[str] = frozenset()  # A selection of `texseg.cli.inputs.OUTPUT_KINDS`
    page: Path | None = None  # the one report, where it is given a name of its own; there is no record then
    command: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Words of the command by the names of its options, for reports; without its inputs."""
    inputs: tuple[str, ...] = ()
    """Inputs of the command, where one model serves all of them; else each is done as if it stood alone."""

    @classmethod
    def of(cls, options: dict[str, Any], items: Sequence[Input], always: Iterable[str]) -> Self:
        """Settle what is written, and make sure that no input would be overwritten."""
        folder: Path = options["output"]
        kinds = frozenset(OUTPUT_KINDS) - {"probabilities"} if options["everything"] else frozenset(always)
        kinds |= {"polygons"} if "gpkg" in options["formats"] else set()
        kinds |= {kind for kind in _ON_DEMAND if options[f"with_{kind}"]}
        page, flat = None, sorted(kinds - _OF_VOLUMES)
        if is_volume(options) and flat and not options["everything"]:
            named = ", ".join(flat)
            raise click.UsageError(f"{named} cannot be written of volumes; choose one plane with --page")
        if kinds <= {"report", "run"} and folder.suffix.lower() in (".html", ".htm") and not folder.is_dir():
            if len(items) > 1 or options["page"] == "all":
                raise click.UsageError(f"-o {folder} names one page; several images or pages need a folder")
            check_target(folder, "report")
            folder, page = folder.parent, folder
        if folder.suffix.lower() in _FILE_SUFFIXES and not folder.is_dir():
            one = ", or the page (.html)" if kinds <= {"report", "run"} else ""
            raise click.UsageError(f"-o names the folder for the results{one}; {folder} looks like a file")
        _refuse_names_of_outputs(options, items, folder)
        check_folder(folder)
        if options["summary"] is not None:
            check_target(options["summary"], "summary")
        inputs = options["paths"] if options.get("shared") else ()
        formats = options.get("formats", ())
        return cls(folder, formats, kinds, page, words_given(click.get_current_context()), inputs)

    def planned(
        self, item: Input, has_tags: bool, n_pages: int, by_blocks: bool, is_volume: bool
    ) -> dict[str, list[Path]]:
        """Name the files that are written about an input, by kind; by blocks there are labels in any case."""
        formats, kinds = self.formats, self.kinds if self.page is None else frozenset()
        outlines = ("geojson", "gpkg") if "gpkg" in formats else ("geojson",)
        formats = tuple(form for form in formats if form != "gpkg")
        is_plain = n_pages == 1 and not is_volume and not by_blocks  # one picture, which PNG holds
        maps = formats or (("png",) if is_plain and not has_tags else ("tif",))
        formats = formats or (("png", "tif") if is_plain else ("tif",))
        map_ = next((form for form in ("tif", "npy", "png") if form in maps), "tif")
        stack = "zarr" if "zarr" in formats else "tif"
        n_digits = len(str(n_pages - 1))
        pages = [f"_{page:0{n_digits}}" for page in range(n_pages)] if n_pages > 1 else [""]
        if is_volume:
            kinds, formats = kinds & _OF_VOLUMES, tuple(form for form in formats if form != "png") or ("tif",)
        of_pages = {"overlay": ["png"], "polygons": outlines, "report": ["html"], "probabilities": [stack]}
        csv = ["csv"]
        rest = {"confidence": [map_], "segments": csv, "regions": csv, "labels": formats, "run": ["json"]}
        planned: dict[str, list[Path]] = {}
        for kind, forms in (of_pages | rest).items():
            if kind in kinds or (kind == "labels" and by_blocks):
                numbers = pages if kind in of_pages else [""]
                ends = [f"{number}_{kind}.{form}" for form in forms for number in numbers]
                ends += ["_volumes.csv", "_planes.png"] if is_volume and kind == "segments" else []
                planned[kind] = [self.folder / f"{item.name}{end}" for end in ends]
        return planned if self.page is None else {"report": [self.page], **planned}

    def check_names(self, item: Input, *, several_pages: bool) -> None:
        """Refuse an input whose outputs would have names longer than file systems take, before any work."""
        planned = self.planned(item, True, _MANY_PAGES if several_pages else 1, False, False)
        names = [path.name for paths in planned.values() for path in paths]
        names += [f"{path.name}.aux.xml" for path in planned.get("labels", ())]
        names += [f"{item.name.name}_numbers_overlay.png"] if "overlay" in planned else []
        longest = max(names, key=lambda name: len(os.fsencode(name)))
        if len(os.fsencode(longest)) > _LONGEST_NAME:
            limit = f"at most {_LONGEST_NAME} bytes with the ending {longest.removeprefix(item.name.name)}"
            raise OSError(f"its name is too long for its results ({limit}); rename the file")

    def command_for(self, item: Input) -> tuple[str, ...]:
        """Words of a command that processes this input again, and writes nothing but the same results."""
        if not self.command:
            return ()
        options = {name: words for name, words in self.command.items() if name not in _OF_THE_RUN}
        alone = PurePath(item.path.stem)  # the name of its results if it is the only input
        if not self.inputs and self.page is None and item.name != alone:
            folder = self.folder / (item.name.parent if item.name.name == alone.name else item.name)
            options["output"] = ["-o", str(folder)]
        inputs = self.inputs or (str(item.path),)
        end = ("--",) if any(path.startswith("-") for path in inputs) else ()
        return tuple(map(shown, (*itertools.chain(*options.values()), *end, *inputs)))


Files = Mapping[str, Sequence[Path]]
Bands = Iterable[tuple[NDArray[np.integer], NDArray[np.floating] | None]]
"""Labels (h, W) of a page and their confidence, from top to bottom."""


@dataclass
class Page:
    """A labelled page, or the reduced picture of one whose labels arrive row by row."""

    source: Source
    image: NDArray[Any]  # what is shown: the pixels, or means over squares of them
    labels: NDArray[np.integer]
    confidence: NDArray[np.floating] | None
    mask: NDArray[np.bool_] | None  # pixels of the picture with data; complete, as all, with the last row
    rows: Bands | None = None  # of a page that is labelled by blocks, whose rows in full are not kept
    block: tuple[int, int] = (0, 0)  # see `texseg.io.write.Layout`
    written: Path | None = None  # where workers have written the labels
    tallied: Tally | None = None  # what they have counted of them
    tally: Tally = field(default_factory=Tally)  # these three are collected as rows arrive
    outlines: Outlines | None = None
    numbers: NDArray[np.integer] | None = None  # of the regions

    @property
    def geo(self) -> Georeference | None:
        """Where the picture lies on the earth; not known of a reduced one."""
        return self.source.geo if self.labels.shape == self.source.shape else None

    def passed_on(self, found: "Labelled", kinds: frozenset[str]) -> Iterator[NDArray[np.integer]]:
        """Yield the labels, and collect what tables and outlines need."""
        source, step = self.source, self.source.step
        with_regions = self.rows is None or bool({"regions", "polygons"} & kinds)
        about: dict[str, Any] = {"colours": found.colours, "step": step, "with_regions": with_regions}
        self.tally = Tally(found.names, source.pixel_size or PixelSize(*step), **about)
        self.outlines = Outlines(source.shape) if "polygons" in kinds else None
        tallied = None if with_regions else self.tallied
        if tallied is not None:
            self.tally.join(tallied)
        for labels, confidence in self.rows or [(self.labels, self.confidence)]:
            height = len(labels) if self.rows is None else _ROWS
            for top in range(0, len(labels) if tallied is None else 0, height):
                part = np.asarray(labels[top : top + height])
                sure = None if confidence is None else np.asarray(confidence[top : top + height])
                self.numbers = self.tally.add(part, sure)
                if self.outlines is not None:
                    self.outlines.add(part, self.numbers)
            yield labels

    def outlined(self) -> dict[str, Any]:
        """Outlines of the regions as GeoJSON, in pixels of level 0 where there is no map."""
        assert self.outlines is not None  # requested
        rings = self.outlines.rings(self.tally.region_of_parts())
        return collection(self.tally.regions(), rings, self.source.geo, self.source.step)

    def table(self, kind: str) -> list[Row]:
        """Table of segments, or of regions; places are in pixels of level 0."""
        whole = self.labels if kind == "segments" else self.numbers
        return getattr(self.tally, kind)(whole if self.rows is None else None)


class Labelled(NamedTuple):
    """What was found in the pages of an input."""

    pages: list[Page]
    model: Segmenter | None  # none where there was nothing to label
    largest: int  # largest label that may occur
    choice: str = ""  # about the number that was chosen, in words; empty if it was given
    messages: tuple[str, ...] = ()
    probabilities: Callable[[int], NDArray[np.float32]] | None = None
    """From the number of a page to its probabilities (K, H, W)."""
    parts: PartsFolder | None = None
    volume: tuple[Any, Any, Any] | None = None
    """Pixels, labels and confidence (or None) of the volume or series whose planes are the pages."""
    names: Sequence[str] = ()  # of the labels from 1
    sample: Mapping[str, Any] = {}  # what is recorded about the crops of a large scene

    @property
    def colours(self) -> Sequence[str]:
        """Colours of the labels from 1; the usual ones after these."""
        return regions.own_colours(self.names, getattr(self.model, "colours_", {}))


class Outcome(NamedTuple):
    """The outcome for one input."""

    input: Path
    status: Literal["done", "failed", "skipped"]
    reason: str = ""
    result: Mapping[str, Any] = {}  # as in the record: number of segments, size, and how sure these are
    seconds: float = 0.0
    rows: tuple[Row, ...] = ()  # segments; of several pages, those of all together
    choice: str = ""  # how the number was chosen, in words; empty where it was given
    outputs: tuple[Path, ...] = ()
    messages: tuple[str, ...] = ()  # notes and warnings, in words
    report: Any = None  # `texseg.report.ReportEntry`, if there is one

    @classmethod
    def earlier(cls, item: Input, planned: Files, made: Mapping[str, Any]) -> Self | None:
        """Outcome of an earlier run on an input, if that run was the same and left all planned outputs."""
        result = recorded_result(planned["run"][0], made) if "run" in planned else None
        outputs = tuple(path for paths in planned.values() for path in paths)
        if result is None or not all(path.exists() for path in outputs):
            return None
        entry, report = None, result.get("report")
        if report is not None and "report" in planned:
            from texseg.report import ReportEntry

            path, sides = planned["report"][0], ("planes", "height", "width")
            shape = tuple(result[side] for side in sides if side in result)
            with open_regular(path, _PAGE_BYTES) as file:
                found = re.search(rb'"thumbnail": "(data:image/[\w;,+/=]+)"', file.read())
            picture = "" if found is None else found[1].decode()
            single = result.get("single_texture", 0.0)
            entry = ReportEntry(path, report["title"], report["n_segments"], shape, picture, single)
        return cls(item.path, "skipped", "its results exist", result, outputs=outputs, report=entry)


def _refuse_names_of_outputs(options: dict[str, Any], items: Sequence[Input], folder: Path) -> None:
    """Refuse an image, a mask or strokes that have the name of an output and would be overwritten."""
    given = [Path(options[name]) for name in ("mask", "seeds") if options.get(name) is not None]
    beside = [file for path in given for file in (path.iterdir() if path.is_dir() else [path])]
    stems = {os.path.realpath(folder / item.name) for item in items}
    ending = re.compile(rf"(_\d+)?_({'|'.join(OUTPUT_KINDS)})\.[^.]+$")
    for path in (*(item.path for item in items), *beside):
        real = os.path.realpath(path)
        match = ending.search(real)
        # without the ending of an output, and without the number of a page before it
        if match is not None and {real[: match.start()], real[: match.start(2) - 1]} & stems:
            remedy = "choose another folder with -o"
            raise click.UsageError(f"the results would overwrite the input {path}; {remedy}")


def check_target(path: Path, kind: str) -> None:
    """Refuse a file to write that would replace one of another kind, such as an input, or has no place."""
    try:
        output_path(path, kind)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Try to create a folder and to write in it; one that was not there is left for the first result."""
    if folder.is_file():
        raise OSError(f"cannot write to the folder {folder}: it is a file")
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        for place in missing:
            place.rmdir()
    except OSError as error:
        raise OSError(f"cannot write to the folder {folder}: {error.strerror or error}") from None


def write_outputs(
    item: Input, found: Labelled, planned: Files, writing: Writing, made: Mapping[str, Any]
) -> Outcome:
    """Write the planned outputs of an input, label images as their rows arrive, the record last."""
    model, pages, source = found.model, found.pages, found.pages[0].source
    files = dict(planned)
    records, reports = files.pop("run", []), files.pop("report", [])
    reports = reports if model is not None else []
    likely = _likely_numbers(model, pages) if "overlay" in files else {}
    if likely:
        stem = files["overlay"][0].name.removesuffix("_overlay.png")
        files["overlay"] = [*files["overlay"], files["overlay"][0].with_name(f"{stem}_numbers_overlay.png")]
    written = [*(path for paths in files.values() for path in paths), *reports]
    earlier: list[tuple[dict[str, Any], list[str]]] = []

    def rows() -> Iterator[NDArray[np.integer]]:
        missing = sum(page.source.shape[0] for page in pages)
        for labels in itertools.chain(*(page.passed_on(found, writing.kinds) for page in pages)):
            missing -= len(labels)
            if missing == 0:  # everything is labelled, and what was written before can go
                every = [*written, *records]
                earlier.extend(replace_earlier(path, item.path, made, every) for path in records)
            yield labels

    _write_files(found, files, likely, rows(), "intervals" in writing.kinds)
    entry = _write_reports(item, found, reports, writing)
    whole = pages[0].tally if len(pages) == 1 else Tally(found.names, with_regions=False)
    for page in pages if len(pages) > 1 else ():  # all of them below each other
        whole.add(page.labels, page.confidence)
    segments = whole.segments()
    height, width = source.shape
    sides = {"height": height, "width": width} | ({"planes": len(pages)} if found.volume else {})
    result = {"n_segments": len(segments), **sides, **_how_found(model, segments)}
    result |= {"sample": found.sample} if found.sample else {}
    if entry is not None:  # the picture in the index is in the report as well
        result["report"] = {"title": entry.title, "n_segments": entry.n_segments}
    messages = [*source.notes, *found.messages]
    for path, (record, said) in zip(records, earlier, strict=True):
        write_record(path, record, written, result)
        messages += said
    if likely:
        seen = shown(files["overlay"][-1])
        messages.append(f"no number of segments is clearly right: compare the likely ones in {seen}")
    about: Any = {"choice": found.choice, "messages": tuple(messages), "report": entry}
    return Outcome(item.path, "done", "", result, 0.0, tuple(segments), outputs=(*written, *records), **about)


def _likely_numbers(model: Segmenter | None, pages: Sequence[Page]) -> dict[str, NDArray[np.integer]]:
    """Labels by the words for their number, where no number has half of the probability; empty elsewhere."""
    selection, labels = (getattr(model, name, None) for name in ("selection_", "labels_"))
    if model is None or selection is None or selection.by_values or pages[0].labels is not labels:
        return {}
    numbers: dict[int, float] = dict(zip(selection.n_segments, selection.probabilities, strict=True))
    hierarchy, best = model.hierarchy_, max(numbers.values())
    known = [int(k) for k in hierarchy.n_segments if numbers.get(int(k), 0) >= best / 2]
    if best >= 0.5 or len(known) < 2:
        return {}
    chosen = sorted(sorted(known, key=lambda k: -numbers[k])[:_MOST_COMPARED])
    return {f"{k} segment{'s' * (k > 1)} ({numbers[k]:.0%})": hierarchy.labels(k) for k in chosen}


def _write_files(
    found: Labelled, files: Files, likely: Mapping[str, Labels], rows: Iterator[Labels], with_intervals: bool
) -> None:
    """Write files of all kinds, labels first: their rows complete all else."""
    pages, source, (first, *others) = found.pages, found.pages[0].source, found.pages
    shape = (len(pages), *source.shape) if others else source.shape
    plain = Layout(shape, dtype=np.float32, size=source.pixel_size, is_ome=source.header.is_ome)
    named = plain._replace(largest=found.largest, names=found.names, colours=found.colours, geo=source.geo)
    named = named._replace(is_volume=found.volume is not None, pyramid=first.rows is not None)
    named = named._replace(block=first.block, written=first.written)
    write_rows(files.get("labels", ()), rows, named)
    if found.volume is not None:
        _write_of_volume(files, found, *found.volume)
    else:
        for path, page in zip(files.get("overlay", ()), pages, strict=False):
            write_overlay(path, page.image, {"": page.labels}, page.mask, page.geo, found.colours)
    if likely:
        write_overlay(files["overlay"][-1], first.image, likely, first.mask)
    maps = [page.confidence for page in pages if page.confidence is not None]
    for path in files.get("confidence", ()):
        write_rows([path], maps, plain._replace(shape=shape if others else maps[0].shape, geo=first.geo))
    for number, path in enumerate(files.get("probabilities", ())):
        assert found.probabilities is not None  # refused of blocks
        planes = found.probabilities(number)
        write_rows([path], planes, plain._replace(shape=planes.shape, geo=source.geo))
    for number, page in enumerate(pages):
        paths = files.get("polygons", ())[number :: len(pages)]
        outlined = page.outlined() if paths else {}
        for path in paths:
            atomic_write(path, content_of(path, outlined, page.source.geo))
    for kind, fields in (("segments", SEGMENT_FIELDS), ("regions", REGION_FIELDS)):
        for path in files.get(kind, ())[:1]:
            atomic_write(path, _table(found, kind, fields, with_intervals))


def _table(found: Labelled, kind: str, fields: tuple[str, ...], with_intervals: bool) -> bytes:
    """Table of segments or regions; of several pages or planes, the first column tells their number."""
    tables = [page.table(kind) for page in found.pages]
    if kind == "segments" and with_intervals and found.probabilities is not None:
        halves = (regions.area_intervals(found.probabilities(number)) for number in range(len(tables)))
        tables = list(map(regions.with_intervals, tables, halves))
    first = () if len(tables) == 1 else ("plane",) if found.volume else ("page",)
    numbered = [(number, row) for number, rows in enumerate(tables) for row in rows]
    cells = [(*[n] * len(first), *(getattr(row, name) for name in fields)) for n, row in numbered]
    return csv_text(cells, (*first, *fields)).encode()


def _write_of_volume(files: Files, found: Labelled, pixels: Any, labels: Any, sure: Any) -> None:
    """Write what only volumes have: cuts, the table of volumes, and the fractions plane by plane."""
    names, size = found.names, found.pages[0].source.pixel_size or PIXELS
    for path in files.get("overlay", ()):
        write_overlay(path, orthogonal_cuts(pixels), {"": orthogonal_cuts(labels)}, colours=found.colours)
    for table, figure in [files["segments"][1:]] if "segments" in files else []:
        rows = regions.volume_table(labels, sure, names, voxel_size=size)
        atomic_write(table, csv_text(rows, regions.VolumeRow._fields).encode())
        buffer = io.BytesIO()
        figure_of: Any = texseg.plot.fractions(labels, names=names, voxel_size=size).figure
        figure_of.savefig(buffer, format="png", dpi=120)
        atomic_write(figure, buffer.getvalue())


def _write_reports(item: Input, found: Labelled, paths: Sequence[Path], writing: Writing) -> Any:
    """Write the reports of the pages, or the one of a volume; return the entry of the first, if any."""
    entries, pages = [], found.pages
    shape = None if pages[0].rows is None else pages[0].source.shape
    if found.volume is not None and paths:
        pixels, *maps = found.volume
        step = 1 if found.parts is None else -(-max(maps[0].shape) // _SHOWN)
        shape = maps[0].shape if step > 1 else None
        labels, sure = (each[::step, ::step, ::step] for each in maps)
        seen: Any = np.stack([pixels[z][::step, ::step] for z in range(0, len(maps[0]), step)])
        pages = [Page(pages[0].source, seen, labels, sure, labels > 0)]
    for path, page in zip(paths, pages, strict=False):
        from texseg.report import write_report

        of_page = shown(path.stem).removeprefix(shown(item.name.name)).removesuffix("_report")
        seen = copy.copy(found.model)
        seen.channel_axis = -1 if page.image.ndim > page.labels.ndim else None
        # of labels of the fit itself the report shows the hierarchy, too
        is_fit = np.array_equal(page.labels, getattr(found.model, "labels_", ()))
        about: Any = {} if is_fit else {"labels": page.labels, "confidence": page.confidence}
        about |= {"mask": page.mask, "overview_of": shape, "pixel_size": page.source.pixel_size}
        about |= {"source": shown(item.path), "command": writing.command_for(item), "names": found.names}
        title = shown(item.name) + (of_page if len(pages) > 1 else "")
        entries.append(write_report(seen, page.image, path, title=title, **about))
    return entries[0] if entries else None


def _how_found(model: Segmenter | None, segments: Sequence[Row]) -> dict[str, Any]:
    """Tell what texseg decided, and how sure results are: of plain values textures do not tell the number."""
    sure: dict[str, Any] = {} if model is None or model.cue_ == "texture" else {"cue": model.cue_}
    if model is not None and model.textures_.features.intensity.log_offset:
        sure["logarithm"] = True
    selection = getattr(model, "selection_", None)
    if selection is not None and not selection.by_values:
        sure["probability"] = round(selection.probability(selection.chosen), _DIGITS)
        sure["others"] = selection.others_in_words
    if selection is not None:
        sure["single_texture"] = round(float(selection.one_texture), _DIGITS)
    shares = [row.fraction * row.mean_confidence for row in segments if row.mean_confidence is not None]
    return sure | ({"mean_confidence": round(sum(shares), _DIGITS)} if shares else {})


def number_in_words(model: Segmenter | None) -> str:
    """Say how likely the chosen number is, which others are likely, and how to get them."""
    selection = getattr(model, "selection_", None)
    if selection is None:
        return ""
    if selection.one_texture >= 0.5:  # which matters more than what the segments differ in
        selection = selection._replace(by_values=False)
    others = [k for k in selection.others.tolist() if k > 1]
    hint = f"; to have another: -k {others[0]}" if others else ""
    if selection.one_texture >= 0.5 and selection.chosen > 1:
        hint = "; to allow a single one: --k-min 1"
    return f"number chosen: {selection}{hint}"
