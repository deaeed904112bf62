"""What is written about an image: under which names, and the writing of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.cli.inputs import OUTPUT_KINDS, Input
from texseg.cli.record import replace_earlier, write_record
from texseg.cli.terminal import shown
from texseg.io.atomic import atomic_write
from texseg.io.polygons import write_polygons
from texseg.io.read import Image
from texseg.io.write import write_confidence, write_labels, write_overlay
from texseg.regions import (
    PixelSize,
    RegionRow,
    SegmentRow,
    csv_text,
    region_table,
    segment_table,
)

if TYPE_CHECKING:
    from texseg.method.number import Selection
    from texseg.report import ReportEntry
    from texseg.segmenter import Segmenter

_LONGEST_NAME = 255  # bytes, of nearly all file systems
_MANY_PAGES = 1000
_DIGITS = 4  # of probabilities

LABEL_SUFFIXES = {"png": ".png", "tif": ".tif", "npy": ".npy", "zarr": ".zarr"}
"""Suffix of each format of label images."""


@dataclass(frozen=True)
class Writing:
    """What is written about an image, and where."""

    folder: Path
    formats: tuple[str, ...] = ()
    """Formats of the label image; none: PNG, which is looked at everywhere, and TIFF, which every library
    reads as numbers (Matplotlib divides those of a PNG by 255); of several pages TIFF alone."""
    kinds: frozenset[str] = frozenset(("labels", "overlay", "segments", "run"))
    """A selection of `texseg.cli.inputs.OUTPUT_KINDS`."""
    page: Path | None = None
    """The one report, where it is given a name of its own; there is no record then."""
    command: tuple[str, ...] = ()
    """Words of the command, for reports; without its inputs."""
    pixel_size: PixelSize | None = None
    """Of all images, where the files do not say it, or wrongly."""
    inputs: tuple[str, ...] = ()
    """Inputs of the command, where one model serves all of them; else each is done as if it stood alone."""


class Labelled(NamedTuple):
    """Labels (H, W) of one page, and the confidence in them where it is known."""

    labels: NDArray[np.int32]
    confidence: NDArray[np.float32] | None


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
    """Files that were written, and what an index of reports says about the report among them."""

    paths: tuple[Path, ...]
    report: ReportEntry | None
    sure: Sureness
    messages: tuple[str, ...] = ()
    """About results of earlier runs."""


def planned_outputs(item: Input, writing: Writing, *, has_tags: bool, n_pages: int) -> dict[str, list[Path]]:
    """Name the files that are written about an input, by kind.

    For several pages there is one overlay, polygon file and report per page.

    Parameters
    ----------
    item : Input
    writing : Writing
    has_tags : bool
        The input carries geographic tags.
    n_pages : int
        Number of pages that are labelled.
    """
    if writing.page is not None:
        return {"report": [writing.page]}
    formats = writing.formats
    maps = formats or (("tif",) if n_pages > 1 or has_tags else ("png",))
    if not formats:
        formats = ("tif",) if n_pages > 1 else ("png", "tif")
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
    folder = writing.folder / item.name.parent
    return {
        kind: [folder / f"{item.name.name}{ending}" for ending in of_kind]
        for kind, of_kind in endings.items()
        if kind in writing.kinds
    }


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


def write_outputs(
    item: Input,
    images: Sequence[Image],
    labelled: Sequence[Labelled],
    writing: Writing,
    *,
    model: Segmenter | None = None,
    names: Sequence[str] = (),
    made: Mapping[str, Any] | None = None,
    rescale: bool = False,
) -> Written:
    """Write the requested outputs of an input, the record last.

    Parameters
    ----------
    item : Input
    images, labelled : sequences of Image and Labelled
        One per page.
    writing : Writing
    model : Segmenter, optional
        The model that labelled the pages; without it there is no report.
    names : sequence of str, optional
        Names of the labels from 1.
    made : mapping, optional
        What the results are made from, for the record.
    rescale : bool
        Whether the model rescaled the values of the images to the range it learned.
    """
    geo = images[0].geo
    has_tags = geo is not None and bool(geo.tags)
    planned = planned_outputs(item, writing, has_tags=has_tags, n_pages=len(images))
    if model is None:
        planned.pop("report", None)
    files = [path for paths in planned.values() for path in paths]
    reports = planned.pop("report", [])
    (writing.folder / item.name.parent).mkdir(parents=True, exist_ok=True)
    records = planned.pop("run", [])
    earlier = [replace_earlier(path, item.path, made or {}, files) for path in records]
    for path, image, page in zip(planned.get("overlay", ()), images, labelled, strict=False):
        write_overlay(path, image.pixels, page.labels, mask=image.mask, geo=geo)
    for path, page in zip(planned.get("polygons", ()), labelled, strict=False):
        write_polygons(path, page.labels, names=names, confidence=page.confidence, geo=geo)
    size = writing.pixel_size or images[0].pixel_size
    entry = _write_reports(reports, item, images, labelled, model, names, command_for(item, writing), size)
    for path, image in zip(planned.get("probabilities", ()), images, strict=False):
        write_confidence(path, _probabilities(model, image, rescale), geo=geo)
    for path in planned.get("segments", ()):
        _write_table(path, SegmentRow, [segment_table(*page, names, pixel_size=size) for page in labelled])
    for path in planned.get("regions", ()):
        _write_table(path, RegionRow, [region_table(*page, names, pixel_size=size) for page in labelled])
    for path in planned.get("confidence", ()):
        write_confidence(path, _stacked([page.confidence for page in labelled]), geo=geo)
    for path in planned.get("labels", ()):
        write_labels(path, _stacked([page.labels for page in labelled]), geo=geo)
    written = [path for paths in planned.values() for path in paths] + (reports if entry is not None else [])
    pixels = sum(int(np.count_nonzero(page.labels)) for page in labelled)
    confidences = [page.confidence for page in labelled if page.confidence is not None]
    total = sum(float(values.sum(dtype=np.float64)) for values in confidences)
    mean = total / pixels if pixels and len(confidences) == len(labelled) else None
    sure = how_sure(getattr(model, "selection_", None), mean)
    for path, before in zip(records, earlier, strict=True):
        write_record(path, item.path, before, written, {**_result(labelled, entry), **known(sure)})
    messages = tuple(message for before in earlier for message in before.messages)
    return Written((*written, *records), entry, sure, messages)


def how_sure(selection: Selection | None, mean_confidence: float | None) -> Sureness:
    """Round what is known about how sure results are; further digits depend on the number of threads."""
    mean = None if mean_confidence is None else round(mean_confidence, _DIGITS)
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


def _result(labelled: Sequence[Labelled], entry: ReportEntry | None) -> dict[str, Any]:
    """Return what the record says about the labels."""
    height, width = labelled[0].labels.shape
    result: dict[str, Any] = {
        "n_segments": count_segments(labelled),
        "height": height,
        "width": width,
    }
    if entry is not None:
        result["report"] = {name: getattr(entry, name) for name in ("title", "n_segments", "thumbnail")}
    return result


def count_segments(labelled: Sequence[Labelled]) -> int:
    """Count the labels that occur on any of the pages: a model may find only some of its textures."""
    n = max(int(page.labels.max()) for page in labelled) + 1
    counts = np.sum([np.bincount(page.labels.ravel(), minlength=n) for page in labelled], axis=0)
    return int(np.count_nonzero(counts[1:]))


def recorded_entry(result: Mapping[str, Any], reports: Sequence[Path]) -> ReportEntry | None:
    """Entry of a report in the index, from the result in the record."""
    if not reports or "report" not in result:
        return None
    from texseg.report import ReportEntry

    entry = result["report"]
    shape = (result["height"], result["width"])
    return ReportEntry(reports[0], entry["title"], entry["n_segments"], shape, entry["thumbnail"])


def recorded_sureness(result: Mapping[str, Any]) -> Sureness:
    """Return how sure results are, according to their record."""
    return Sureness(**{name: result[name] for name in Sureness._fields if name in result})


def command_for(item: Input, writing: Writing) -> tuple[str, ...]:
    """Words of a command that processes this input again."""
    inputs = writing.inputs or (str(item.path),)
    end = ("--",) if any(path.startswith("-") for path in inputs) else ()
    return tuple(map(shown, (*writing.command, *end, *inputs))) if writing.command else ()


def _write_reports(
    paths: Sequence[Path],
    item: Input,
    images: Sequence[Image],
    labelled: Sequence[Labelled],
    model: Segmenter | None,
    names: Sequence[str],
    command: Sequence[str],
    pixel_size: PixelSize | None,
) -> ReportEntry | None:
    """Write the report of each page, and return the entry of the first."""
    if not paths or model is None:
        return None
    from texseg.report import write_report

    fitted = getattr(model, "labels_", None)  # labels of the fit itself: the report shows the hierarchy, too
    entries = []
    for path, image, page in zip(paths, images, labelled, strict=True):
        own = (None, None) if page.labels is fitted else page
        page_number = (
            ""
            if len(paths) == 1
            else shown(path.stem).removeprefix(shown(item.name.name)).removesuffix("_report")
        )
        entries.append(
            write_report(
                model,
                image.pixels,
                path,
                mask=image.mask,
                labels=own[0],
                confidence=own[1],
                names=names,
                title=shown(item.name) + page_number,
                source=shown(item.path),
                command=command,
                pixel_size=pixel_size,
            )
        )
    return entries[0]


def _probabilities(model: Segmenter | None, image: Image, rescale: bool) -> NDArray[np.float32]:
    """Probabilities (K, H, W) of all segments; a single plane of zeros where there is nothing to label."""
    if model is None:
        return np.zeros((1, *image.pixels.shape[:2]), np.float32)
    return np.moveaxis(model.predict_proba(image.pixels, mask=image.mask, rescale=rescale), -1, 0)


def _stacked(pages: Sequence[Any]) -> NDArray:
    return np.stack(pages) if len(pages) > 1 else pages[0]


def _write_table(
    path: Path, kind: type[SegmentRow] | type[RegionRow], pages: Sequence[Sequence[Any]]
) -> None:
    """Write a table; for several pages the first column is the page."""
    fields, rows = kind._fields, list(pages[0])
    if len(pages) > 1:
        fields = ("page", *fields)
        rows = [(page, *row) for page, of_page in enumerate(pages) for row in of_page]
    atomic_write(path, csv_text(rows, fields).encode())
