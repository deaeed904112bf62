"""One image of a run: read, label, write, and say what became of it."""

from __future__ import annotations

import copy
import os
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.inputs import OUTPUT_KINDS, Input
from texseg.io.atomic import atomic_write
from texseg.io.read import MAX_PIXELS, Image, read_header, read_image, read_mask, read_pages
from texseg.io.tables import (
    RegionRow,
    SegmentRow,
    connected_regions,
    csv_text,
    region_table,
    segment_table,
)
from texseg.io.write import write_confidence, write_labels, write_overlay, write_polygons

if TYPE_CHECKING:
    from texseg.segmenter import TextureSegmenter

LABEL_SUFFIXES = {"png": ".png", "tif": ".tif", "npy": ".npy"}
"""Suffix of each format of label images."""


@dataclass(frozen=True)
class Reading:
    """How the inputs are read; see `texseg.io.read.read_image`."""

    page: int | Literal["all"] | None = None
    channel_axis: int | None = None
    mask: Path | None = None
    """File with a mask for every image, or folder with one named like each image."""
    nodata: float | None = None
    ignore_alpha: bool = False
    max_pixels: int | None = MAX_PIXELS


@dataclass(frozen=True)
class Writing:
    """What is written about an image, and where."""

    folder: Path
    formats: tuple[str, ...] = ()
    """Formats of the label image; none: PNG, and TIFF where there are geographic tags or several pages."""
    kinds: frozenset[str] = frozenset(("labels", "overlay", "segments"))
    """A selection of `texseg.inputs.OUTPUT_KINDS`."""


@dataclass(frozen=True)
class Work:
    """All that is the same for every image of a batch."""

    reading: Reading
    writing: Writing
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of `TextureSegmenter`; unused with a model."""
    model: TextureSegmenter | None = None
    """Textures to be found again; None: every image has its own."""
    names: tuple[str, ...] = ()
    """Names of the textures of `model`."""
    allow_empty: bool = False
    """Write labels 0 for an image without valid pixels, instead of failing."""
    skip_existing: bool = False


class Outcome(NamedTuple):
    """What became of one input."""

    input: Path
    status: Literal["done", "failed", "skipped"]
    reason: str = ""
    shape: tuple[int, ...] = ()
    seconds: float = 0.0
    rows: tuple[SegmentRow, ...] = ()
    """Segments; of several pages, those of the first."""
    n_segments: int = 0
    outputs: tuple[Path, ...] = ()
    messages: tuple[str, ...] = ()
    """Notes and warnings, in words."""


class Labelled(NamedTuple):
    """Labels (H, W) of one page, and the confidence in them where it is known."""

    labels: NDArray[np.int32]
    confidence: NDArray[np.float32] | None


def reason_of(error: BaseException, path: Path | None = None) -> str:
    """Say in one line why something failed, without the name of the file at its beginning."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        text = "not enough memory"
    elif not isinstance(error, (OSError, ValueError, TypeError)):
        text = f"{type(error).__name__}: {text}"
    return text.removeprefix(f"{path.name}: ") if path is not None else text


def read_scene(path: Path, reading: Reading) -> list[Image]:
    """Read the page or the pages of a file that are asked for, the user's mask applied."""
    options: dict[str, Any] = {
        "channel_axis": reading.channel_axis,
        "nodata": reading.nodata,
        "ignore_alpha": reading.ignore_alpha,
        "max_pixels": reading.max_pixels,
    }
    if reading.page == "all":
        pages = read_pages(path, **options)
    else:
        pages = [read_image(path, page=reading.page, **options)]
    if reading.mask is None:
        return pages
    mask = read_mask(_mask_for(path, reading.mask), max_pixels=reading.max_pixels)
    return [_with_mask(image, mask) for image in pages]


def _mask_for(path: Path, masks: Path) -> Path:
    if not masks.is_dir():
        return masks
    found = sorted(file for file in masks.iterdir() if file.name == path.name or file.stem == path.stem)
    if not found:
        raise OSError(f"no mask named {path.stem} in {masks}")
    return found[0]


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


def label_scene(images: Sequence[Image], work: Work, callback: Any = None) -> list[Labelled]:
    """Label the pages of a scene: by the model, or by one model fitted to all of them."""
    usable = [_has_valid_pixels(image) for image in images]
    if not any(usable) and not work.allow_empty:
        raise ValueError(
            "no valid pixels: all are masked, transparent, not finite or equal to the no-data value"
        )
    chosen = [image for image, is_usable in zip(images, usable, strict=True) if is_usable]
    labelled = iter(_label_images(chosen, work, callback) if chosen else [])
    return [
        next(labelled) if is_usable else _empty(image)
        for image, is_usable in zip(images, usable, strict=True)
    ]


def _empty(image: Image) -> Labelled:
    shape = image.pixels.shape[:2]
    return Labelled(np.zeros(shape, np.int32), np.zeros(shape, np.float32))


def _label_images(images: Sequence[Image], work: Work, callback: Any) -> list[Labelled]:
    pixels, masks = [image.pixels for image in images], [image.mask for image in images]
    if work.model is None:
        fitted = fit_model(images, work.parameters, callback)
        return [Labelled(*pair) for pair in zip(fitted.labels_, fitted.confidence_, strict=True)]
    model = copy.copy(work.model)
    model.channel_axis = images[0].channel_axis
    labels = model.predict(pixels, mask=masks)
    if "confidence" not in work.writing.kinds:
        return [Labelled(one, None) for one in labels]
    confidence = [_confidence(model, *args) for args in zip(pixels, masks, labels, strict=True)]
    return [Labelled(*pair) for pair in zip(labels, confidence, strict=True)]


def _confidence(model: TextureSegmenter, pixels: NDArray, mask: NDArray | None, labels: NDArray) -> NDArray:
    posterior = model.predict_proba(pixels, mask=mask)
    own = np.take_along_axis(posterior, np.maximum(labels - 1, 0)[..., None], axis=-1)[..., 0]
    return np.where(labels > 0, own, 0).astype(np.float32)


def fit_model(images: Sequence[Image], parameters: dict[str, Any], callback: Any = None) -> TextureSegmenter:
    """Fit one model to images; its labels are a list, one entry an image."""
    from texseg.segmenter import TextureSegmenter

    model = TextureSegmenter(**parameters, channel_axis=images[0].channel_axis, callback=callback)
    return model.fit([image.pixels for image in images], mask=[image.mask for image in images])


def planned_outputs(item: Input, writing: Writing, *, has_tags: bool, n_pages: int) -> dict[str, list[Path]]:
    """Files that are written about an input, by kind; overlays and polygons of several pages one a page."""
    formats = writing.formats
    if not formats:
        formats = ("tif",) if n_pages > 1 else ("png", "tif") if has_tags else ("png",)
    map_format = next(form for form in ("tif", "npy", "png") if form in formats)
    n_digits = len(str(n_pages - 1))
    pages = [f"_{page:0{n_digits}}" for page in range(n_pages)] if n_pages > 1 else [""]
    endings = {
        "overlay": [f"{page}_overlay.png" for page in pages],
        "polygons": [f"{page}_polygons.geojson" for page in pages],
        "confidence": [f"_confidence{LABEL_SUFFIXES[map_format]}"],
        "segments": ["_segments.csv"],
        "regions": ["_regions.csv"],
        "labels": [f"_labels{LABEL_SUFFIXES[form]}" for form in formats],
    }
    folder = writing.folder / item.name.parent
    return {
        kind: [folder / f"{item.name.name}{ending}" for ending in of_kind]
        for kind, of_kind in endings.items()
        if kind in writing.kinds
    }


def inputs_in_danger(items: Sequence[Input], folder: Path) -> list[Path]:
    """Find the inputs that have the name of an output of some input, and would be written over."""
    stems = {os.path.realpath(folder / item.name) for item in items}
    ending = re.compile(rf"(_\d+)?_({'|'.join(OUTPUT_KINDS)})\.[^.]+$")
    return [item.path for item in items if _stems_behind(os.path.realpath(item.path), ending) & stems]


def _stems_behind(path: str, ending: re.Pattern[str]) -> set[str]:
    match = ending.search(path)
    return set() if match is None else {path[: match.start()], path[: match.start(2) - 1]}


def is_complete(item: Input, work: Work) -> bool:
    """Tell whether all outputs of an input are there already."""
    header = read_header(item.path)
    n_pages = 1
    if work.reading.page == "all":
        n_pages = header.shape[0] if "?" in header.axes else header.n_pages
    has_tags = header.geo is not None and bool(header.geo.tags)
    planned = planned_outputs(item, work.writing, has_tags=has_tags, n_pages=n_pages)
    return all(path.exists() for paths in planned.values() for path in paths)


def write_scene(item: Input, images: Sequence[Image], labelled: Sequence[Labelled], work: Work) -> list[Path]:
    """Write what is asked for about an input, the label image last."""
    geo = images[0].geo
    planned = planned_outputs(
        item, work.writing, has_tags=geo is not None and bool(geo.tags), n_pages=len(images)
    )
    (work.writing.folder / item.name.parent).mkdir(parents=True, exist_ok=True)
    for path, image, page in zip(planned.get("overlay", ()), images, labelled, strict=False):
        write_overlay(path, image.pixels, page.labels, mask=image.mask, geo=geo)
    for path, page in zip(planned.get("polygons", ()), labelled, strict=False):
        write_polygons(path, page.labels, names=work.names, confidence=page.confidence, geo=geo)
    for path in planned.get("segments", ()):
        _write_table(path, SegmentRow, [segment_table(*page, work.names) for page in labelled])
    for path in planned.get("regions", ()):
        _write_table(path, RegionRow, [_regions(page, work.names) for page in labelled])
    for path in planned.get("confidence", ()):
        write_confidence(path, _stacked([page.confidence for page in labelled]), geo=geo)
    for path in planned["labels"]:
        write_labels(path, _stacked([page.labels for page in labelled]), geo=geo)
    return [path for paths in planned.values() for path in paths]


def _regions(page: Labelled, names: Sequence[str]) -> list[RegionRow]:
    return region_table(page.labels, connected_regions(page.labels), page.confidence, names)


def _stacked(pages: Sequence[Any]) -> NDArray:
    return np.stack(pages) if len(pages) > 1 else pages[0]


def _write_table(
    path: Path, kind: type[SegmentRow] | type[RegionRow], pages: Sequence[Sequence[Any]]
) -> None:
    """Write a table; of several pages the first column says which."""
    fields, rows = kind._fields, list(pages[0])
    if len(pages) > 1:
        fields = ("page", *fields)
        rows = [(page, *row) for page, of_page in enumerate(pages) for row in of_page]
    atomic_write(path, csv_text(rows, fields).encode())


def process(item: Input, work: Work, callback: Any = None) -> Outcome:
    """Read, label and write one input; whatever goes wrong becomes part of the outcome."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = _process(item, work, callback)
        except Exception as error:  # one image must not end the batch, whatever happens to it
            outcome = Outcome(item.path, "failed", reason_of(error, item.path))
    said = [
        str(warning.message) for warning in caught if not issubclass(warning.category, DeprecationWarning)
    ]
    messages = tuple(dict.fromkeys((*outcome.messages, *said)))
    return outcome._replace(seconds=time.perf_counter() - start, messages=messages)


def _process(item: Input, work: Work, callback: Any) -> Outcome:
    if work.skip_existing and is_complete(item, work):
        return Outcome(item.path, "skipped", "its outputs exist")
    images = read_scene(item.path, work.reading)
    labelled = label_scene(images, work, callback)
    outputs = write_scene(item, images, labelled, work)
    return Outcome(
        item.path,
        "done",
        shape=images[0].pixels.shape[:2],
        rows=tuple(segment_table(*labelled[0], work.names)),
        n_segments=max(int(page.labels.max()) for page in labelled),
        outputs=tuple(outputs),
        messages=images[0].notes,
    )
