"""One image of a run: read it, label it, write the results, and report the outcome."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.intake import FourthBandWarning
from texseg.cli.inputs import Input
from texseg.cli.large import Task, label_by_blocks, needs_blocks
from texseg.cli.outputs import (
    Labelled,
    Sureness,
    Writing,
    check_names,
    count_segments,
    in_words,
    planned_outputs,
    recorded_entry,
    recorded_sureness,
    write_outputs,
)
from texseg.cli.prepare import refuse_photograph
from texseg.cli.reading import ReadOptions, mask_for, seeds_for, turned_grey
from texseg.cli.record import digest_of, made_from, recorded_result
from texseg.cli.scene_outputs import outputs_by_blocks
from texseg.io.read import Image, read_header, read_image, read_mask, read_pages
from texseg.io.strokes import read_strokes
from texseg.regions import SegmentRow, segment_table

if TYPE_CHECKING:
    from texseg.report import ReportEntry
    from texseg.segmenter import Segmenter


@dataclass(frozen=True)
class Work:
    """All that is the same for every image of a batch."""

    reading: ReadOptions
    writing: Writing
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of `TextureSegmenter`, and "edits" of what it finds; unused with a model."""
    model: Segmenter | None = None
    """Textures to be found again; None: every image has its own."""
    model_digest: str = ""
    """Tells this model from others in records."""
    names: tuple[str, ...] = ()
    """Names of the labels that `model` gives."""
    unknown: bool = False
    """Give what no texture of `model` explains a label of its own, behind those of the textures."""
    rescale: bool = False
    """Bring the values of each image to the range that `model` learned."""
    allow_empty: bool = False
    """Write labels 0 for an image without valid pixels, instead of failing."""
    skip_existing: bool = False
    resume: bool = False
    """Go on with what an ended run has left."""


class Outcome(NamedTuple):
    """The outcome for one input."""

    input: Path
    status: Literal["done", "failed", "skipped"]
    reason: str = ""
    shape: tuple[int, ...] = ()
    seconds: float = 0.0
    rows: tuple[SegmentRow, ...] = ()
    """Segments; of several pages, those of the first."""
    n_segments: int = 0
    choice: str = ""
    """How the number was chosen, in words; empty where it was given."""
    outputs: tuple[Path, ...] = ()
    messages: tuple[str, ...] = ()
    """Notes and warnings, in words."""
    report: ReportEntry | None = None
    sure: Sureness = Sureness()


def reason_of(error: BaseException, path: Path | None = None) -> str:
    """Say in one line why something failed, without the name of the file at its beginning."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        text = "not enough memory"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    elif not isinstance(error, (OSError, ValueError, TypeError)):
        text = f"{type(error).__name__}: {text}"
    return text.removeprefix(f"{path.name}: ") if path is not None else text


def read_scene(path: Path, reading: ReadOptions) -> list[Image]:
    """Read the requested page or pages of a file, with the user's mask applied."""
    options: dict[str, Any] = {
        "channel_axis": reading.channel_axis,
        "nodata": reading.nodata,
        "ignore_alpha": reading.ignore_alpha,
        "max_pixels": reading.max_pixels,
        "bands": reading.channels,
    }
    if reading.page == "all":
        pages = read_pages(path, **options)
    else:
        pages = [read_image(path, page=reading.page, **options)]
    if reading.grey:
        pages = [_in_grey(image) for image in pages]
    if reading.mask is None:
        return pages
    mask = read_mask(mask_for(path, reading.mask), max_pixels=reading.max_pixels)
    return [_with_mask(image, mask) for image in pages]


def _in_grey(image: Image) -> Image:
    """Convert a colour image to grey."""
    if image.channel_axis is None:
        return image
    pixels = turned_grey(np.moveaxis(image.pixels, image.channel_axis, -1))
    return image._replace(pixels=pixels, channel_axis=None)


def _with_mask(image: Image, mask: NDArray[np.bool_]) -> Image:
    if mask.shape != image.pixels.shape[:2]:
        raise ValueError(f"mask shape {mask.shape} does not match image {image.pixels.shape[:2]}")
    return image._replace(mask=mask if image.mask is None else image.mask & mask)


def _has_valid_pixels(image: Image) -> bool:
    valid = np.ones(image.pixels.shape[:2], bool) if image.mask is None else image.mask
    if image.pixels.dtype.kind == "f":
        finite = np.isfinite(image.pixels)
        valid = valid & (finite if finite.ndim == 2 else finite.all(axis=-1))
    return bool(valid.any())


class Labelling(NamedTuple):
    """Labels of the pages of a scene, and the model they come from; None where there is nothing to label."""

    pages: list[Labelled]
    model: Segmenter | None


def read_seeds(path: Path, reading: ReadOptions, image: Image) -> NDArray[np.int32] | None:
    """Read the strokes on an image, if there are any."""
    if reading.seeds is None:
        return None
    file = seeds_for(path, reading.seeds)
    strokes = read_strokes(file, image.pixels.shape[:2], image.geo)
    refuse_photograph(strokes, file)
    return strokes


def label_scene(
    images: Sequence[Image], work: Work, callback: Any = None, seeds: NDArray[np.int32] | None = None
) -> Labelling:
    """Label the pages of a scene: by the model, or by one model fitted to all of them.

    Strokes are possible only on single pages.
    """
    usable = [_has_valid_pixels(image) for image in images]
    if not any(usable):
        if not work.allow_empty:
            raise ValueError(
                "no valid pixels: all are masked, transparent, not finite or equal to the no-data value"
            )
        return Labelling([_empty(image) for image in images], None)
    found = _label_images(
        [i for i, is_usable in zip(images, usable, strict=True) if is_usable], work, callback, seeds
    )
    pages = iter(found.pages)
    every = [next(pages) if is_usable else _empty(i) for i, is_usable in zip(images, usable, strict=True)]
    return found._replace(pages=every)


def _empty(image: Image) -> Labelled:
    shape = image.pixels.shape[:2]
    return Labelled(np.zeros(shape, np.int32), np.zeros(shape, np.float32))


def _label_images(
    images: Sequence[Image], work: Work, callback: Any, seeds: NDArray[np.int32] | None
) -> Labelling:
    if work.model is None:
        fitted: Any = fit_model(images, work.parameters, callback, seeds)
        if len(images) == 1:
            return Labelling([Labelled(fitted.labels_, fitted.confidence_)], fitted)
        return Labelling(list(map(Labelled, fitted.labels_, fitted.confidence_)), fitted)
    model = copy.copy(work.model)
    model.channel_axis = images[0].channel_axis
    pixels, masks = [image.pixels for image in images], [image.mask for image in images]
    labels, confidence = model.predict_with_confidence(
        pixels, mask=masks, unknown=work.unknown, rescale=work.rescale
    )
    return Labelling(list(map(Labelled, labels, confidence)), model)


def fit_model(
    images: Sequence[Image],
    parameters: dict[str, Any],
    callback: Any = None,
    seeds: NDArray[np.int32] | None = None,
) -> Segmenter:
    """Fit one model to an image, or to several jointly, and edit its segments."""
    from texseg.segmenter import Segmenter

    edits = parameters.get("edits")
    given = {name: value for name, value in parameters.items() if name != "edits"}
    model = Segmenter(**given, channel_axis=images[0].channel_axis, callback=callback)
    if len(images) == 1:
        model.fit(images[0].pixels, mask=images[0].mask, seeds=seeds)
    else:
        model.fit([image.pixels for image in images], mask=[image.mask for image in images])
    return model.edit(edits) if edits else model


def _planned(item: Input, work: Work) -> dict[str, list[Path]]:
    """Name the outputs of each kind, according to the header of the input."""
    header = read_header(item.path)
    n_pages = 1
    if work.reading.page == "all":
        n_pages = header.shape[0] if "?" in header.axes else header.n_pages
    has_tags = header.geo is not None and bool(header.geo.tags)
    return planned_outputs(item, work.writing, has_tags=has_tags, n_pages=n_pages)


def earlier_outcome(item: Input, planned: dict[str, list[Path]], made: dict[str, Any]) -> Outcome | None:
    """Outcome of an earlier run on an input, if that run was the same and left all planned outputs."""
    result = recorded_result(planned["run"][0], made) if "run" in planned else None
    outputs = tuple(path for paths in planned.values() for path in paths)
    if result is None or not all(path.exists() for path in outputs):
        return None
    return Outcome(
        item.path,
        "skipped",
        "its results exist",
        shape=(result["height"], result["width"]),
        n_segments=result["n_segments"],
        outputs=outputs,
        report=recorded_entry(result, planned.get("report", ())),
        sure=recorded_sureness(result),
    )


def _made_from(item: Input, work: Work) -> dict[str, Any]:
    mask = None if work.reading.mask is None else mask_for(item.path, work.reading.mask)
    what: dict[str, Any] = {
        "allow_empty": work.allow_empty,
        "pixel_size": work.writing.pixel_size,
        **work.parameters,
    }
    if work.reading.seeds is not None:
        what["seeds"] = digest_of(seeds_for(item.path, work.reading.seeds))
    if work.model is not None:
        what |= {"model_sha256": work.model_digest, "names": list(work.names), "unknown": work.unknown}
        what["rescale"] = work.rescale
    return made_from(item.path, work.reading, mask, what)


def process(item: Input, work: Work, callback: Any = None) -> Outcome:
    """Read, label and write one input; any failure becomes part of the outcome."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = _process(item, work, callback)
        except Exception as error:  # one image must not end the batch, whatever happens to it
            outcome = Outcome(item.path, "failed", reason_of(error, item.path))
    said = [
        str(warning.message)
        for warning in caught
        # the file itself says which of its bands is transparency
        if not issubclass(warning.category, (DeprecationWarning, FourthBandWarning))
    ]
    messages = tuple(dict.fromkeys((*outcome.messages, *said)))
    return outcome._replace(seconds=time.perf_counter() - start, messages=messages)


def _process(item: Input, work: Work, callback: Any) -> Outcome:
    check_names(item, work.writing, several_pages=work.reading.page == "all")
    model, parameters = work.model, work.parameters
    n_segments = parameters.get("n_segments") if model is None else model.n_segments_
    preset = parameters.get("preset", "default") if model is None else model.preset
    if needs_blocks(item.path, work.reading, n_segments, preset):
        if work.reading.seeds is not None:
            raise ValueError(
                "strokes need the whole image in memory; give more --memory, or fit a part of it with "
                "--seeds and apply the model"
            )
        planned = outputs_by_blocks(item, work.writing)
        made = {}
        if "run" in planned:  # a large file is not read for nothing
            made = _made_from(item, work) | {"by_blocks": True, "memory": work.reading.memory}
        earlier = earlier_outcome(item, planned, made) if work.skip_existing else None
        if earlier is not None:
            return earlier
        large = Task(work.parameters, model, work.names, work.unknown, work.resume, made)
        found = label_by_blocks(item, work.reading, work.writing, large, callback)
        return Outcome(item.path, "done", n_segments=len(found.rows), **found._asdict())
    made = _made_from(item, work)
    earlier = earlier_outcome(item, _planned(item, work), made) if work.skip_existing else None
    if earlier is not None:
        return earlier
    images = read_scene(item.path, work.reading)
    pages, model = label_scene(images, work, callback, read_seeds(item.path, work.reading, images[0]))
    names = work.names or (() if model is None else model.names_)
    written = write_outputs(
        item, images, pages, work.writing, model=model, names=names, made=made, rescale=work.rescale
    )
    n_segments = count_segments(pages)
    messages = (*images[0].notes, *written.messages)
    if n_segments == 1 and work.model is None and work.parameters["n_segments"] is None:
        messages = (*messages, f"one texture was found; {_more_than_one(model)}")
    if work.model is None and parameters.get("cue") is None and model is not None and model.cue_ == "values":
        messages = (*messages, "divided by values at the scale of pixels, which tell more; or --cue texture")
    selection = getattr(model, "selection_", None) if work.model is None else None
    return Outcome(
        item.path,
        "done",
        shape=images[0].pixels.shape[:2],
        rows=tuple(segment_table(*pages[0], names, shapes=False)),
        n_segments=n_segments,
        choice=in_words(selection),
        outputs=written.paths,
        messages=messages,
        report=written.report,
        sure=written.sure,
    )


def _more_than_one(model: Segmenter | None) -> str:
    """Say whether a given number would divide what was found to be one texture."""
    if model is None or model.hierarchy_.n_segments[-1] == 1:
        return "nothing in the image could be told apart from it"
    return "a given number, such as -k 2, divides it all the same"
