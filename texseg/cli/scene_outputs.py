"""Outputs for an image that is labelled block by block, written as blocks arrive and afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.blocks import BlockPlan, BlockReading, Request
from texseg.cli.inputs import Input
from texseg.cli.outputs import Writing, Written, command_for, how_sure, known, planned_outputs
from texseg.cli.record import Earlier, replace_earlier, write_record
from texseg.cli.terminal import shown
from texseg.io.atomic import atomic_write
from texseg.io.geo import Georeference
from texseg.io.polygons import Outlines, collection, geojson
from texseg.io.write import Layout, write_confidence, write_overlay, write_rows
from texseg.regions import PIXELS, PixelSize, RegionRow, SegmentRow, Tally, csv_text
from texseg.segmenter import Segmenter

BY_BLOCKS = ("tif", "zarr")
"""Formats of label images that are written block by block."""

_ROWS = 128  # of pixels whose regions are found at once

Found = Iterable[tuple[tuple[int, int], NDArray[np.int32], BlockReading]]


class About(NamedTuple):
    """An image, and how it was read."""

    item: Input
    shape: tuple[int, int]
    blocks: BlockPlan
    asked: Request
    geo: Georeference | None
    pixel_size: PixelSize | None
    made: Mapping[str, Any]
    """What the results are made from, for the record."""


def outputs_by_blocks(item: Input, writing: Writing) -> dict[str, list[Path]]:
    """Name the outputs of each kind that is asked for, label images (``BY_BLOCKS``) in any case."""
    chosen = replace(writing, formats=_label_formats(writing))
    labels = replace(chosen, kinds=frozenset(("labels",)), page=None)
    named = (planned_outputs(item, each, has_tags=False, n_pages=1) for each in (labels, chosen))
    return next(named) | next(named)


def write_blocks(
    found: Found, about: About, writing: Writing, model: Segmenter, names: Sequence[str], scratch: Path
) -> tuple[Written, tuple[SegmentRow, ...]]:
    """Write label images as blocks arrive, then the rest; return what was written, and rows of the table.

    Label images lie in the folder ``scratch`` until they are complete.
    """
    noted = _Noted(about.shape, writing.kinds)
    pictures = _Pictures(about.shape, about.asked.preview, about.asked.confidence)
    planned = outputs_by_blocks(about.item, writing)
    files = [path for paths in planned.values() for path in paths]
    records, earlier = planned.pop("run", []), list[Earlier]()
    targets = dict(zip(_label_formats(writing), planned["labels"], strict=True))
    largest = model.n_segments_ + about.asked.unknown

    def make_room() -> None:
        earlier.extend(replace_earlier(path, about.item.path, about.made, files) for path in records)

    bands = _telling_before_the_last(_bands(found, about.blocks, noted, pictures), about.shape[0], make_room)
    layout = Layout(about.shape, largest, geo=about.geo, pyramid=True)
    write_rows(list(targets.values()), bands, layout)
    for path in planned.get("overlay", ()):
        write_overlay(path, pictures.image, pictures.labels, mask=pictures.labels > 0)
    for path in planned.get("confidence", ()):
        assert pictures.confidence is not None  # asked for
        write_confidence(path, pictures.confidence)
    size = writing.pixel_size or about.pixel_size or PIXELS
    rows = tuple(noted.tally.segments(names, size))
    for path in planned.get("segments", ()):
        atomic_write(path, csv_text(rows, SegmentRow._fields).encode())
    noted.write_regions(planned, names, about.geo, size)
    for path in planned.get("report", ()):
        _write_overview(path, about, model, pictures, rows, command_for(about.item, writing))
    written = [path for paths in planned.values() for path in paths]
    height, width = about.shape
    sure = how_sure(None, _mean_confidence(rows))
    result = {"n_segments": len(rows), "height": height, "width": width, **known(sure)}
    for path, before in zip(records, earlier, strict=True):
        write_record(path, about.item.path, before, written, result)
    messages = tuple(message for before in earlier for message in before.messages)
    return Written((*written, *records), None, sure, messages), rows


def _mean_confidence(rows: Sequence[SegmentRow]) -> float | None:
    """Mean over all pixels; None if it is not known."""
    sums = [row.pixels * row.mean_confidence for row in rows if row.mean_confidence is not None]
    return sum(sums) / sum(row.pixels for row in rows) if sums and len(sums) == len(rows) else None


def _label_formats(writing: Writing) -> tuple[str, ...]:
    return tuple(form for form in BY_BLOCKS if form in (writing.formats or BY_BLOCKS[:1]))


class _Pictures:
    """Reduced image, labels and confidence, filled in block by block."""

    def __init__(self, shape: tuple[int, int], reduction: int, with_confidence: bool) -> None:
        self._reduction = reduction
        small = tuple(-(-side // reduction) for side in shape)
        self.image: NDArray[np.float32] = np.zeros(small, np.float32)
        self.labels = np.zeros(small, np.int32)
        self.confidence = np.zeros(small, np.float32) if with_confidence else None

    def add(self, window: tuple[slice, slice], labels: NDArray[np.int32], block: BlockReading) -> None:
        """Fill in one block; blocks are aligned with the squares of the reduction."""
        step = self._reduction
        place = tuple(slice(part.start // step, -(-part.stop // step)) for part in window)
        assert block.preview is not None  # asked for
        if block.preview.ndim != self.image.ndim:
            self.image = np.zeros((*self.labels.shape, block.preview.shape[-1]), np.float32)
        self.image[place] = block.preview
        self.labels[place] = labels[::step, ::step]
        if self.confidence is not None and block.confidence is not None:
            self.confidence[place] = block.confidence[::step, ::step] / np.float32(255)


class _Noted:
    """What tables and outlines need, collected as rows of blocks arrive."""

    def __init__(self, shape: tuple[int, int], kinds: Collection[str]) -> None:
        self.tally = Tally(with_regions=bool({"regions", "polygons"} & set(kinds)))
        self.kinds = kinds
        self.outlines = Outlines(shape) if "polygons" in kinds else None

    def write_regions(
        self,
        planned: Mapping[str, Sequence[Path]],
        names: Sequence[str],
        geo: Georeference | None,
        size: PixelSize,
    ) -> None:
        """Write table and outlines of the connected regions, if requested."""
        if not {"regions", "polygons"} & set(self.kinds):
            return
        rows = self.tally.regions(names, size)
        for path in planned.get("regions", ()):
            atomic_write(path, csv_text(rows, RegionRow._fields).encode())
        if self.outlines is not None:
            for path in planned["polygons"]:
                atomic_write(
                    path,
                    geojson(collection(rows, self.outlines.rings(self.tally.region_of_parts()), geo)),
                )

    def add(self, labels: NDArray[np.integer], confidence: NDArray[np.floating] | None) -> None:
        """Add the next rows of pixels, as wide as the image; a few at once: that takes 30 bytes a pixel."""
        for top in range(0, len(labels), _ROWS):
            rows = slice(top, top + _ROWS)
            numbers = self.tally.add(labels[rows], None if confidence is None else confidence[rows])
            if self.outlines is not None:
                self.outlines.add(labels[rows], numbers)


def _bands(
    found: Found,
    blocks: BlockPlan,
    noted: _Noted,
    pictures: _Pictures,
) -> Iterator[NDArray[np.integer]]:
    """Put the blocks of a row side by side, and collect what tables and pictures need."""
    row: list[NDArray[np.integer]] = []
    sure: list[NDArray[np.floating]] = []
    for place, labels, block in found:
        window = blocks.core(place)
        confidence = None if block.confidence is None else block.confidence / np.float32(255)
        pictures.add(window, labels, block)
        row.append(labels.astype(np.uint16))
        if confidence is not None:
            sure.append(confidence)
        if len(row) == blocks.grid[1]:
            band = np.concatenate(row, axis=1)
            noted.add(band, np.concatenate(sure, axis=1) if sure else None)
            yield band
            row, sure = [], []


def _telling_before_the_last(
    bands: Iterator[NDArray[np.integer]], n_rows: int, tell: Callable[[], None]
) -> Iterator[NDArray[np.integer]]:
    """Pass bands on; before the last, all blocks are labelled, and what an earlier run wrote can go."""
    for band in bands:
        n_rows -= len(band)
        if n_rows == 0:
            tell()
        yield band


def _write_overview(
    path: Path,
    about: About,
    model: Segmenter,
    pictures: _Pictures,
    rows: Sequence[SegmentRow],
    command: Sequence[str],
) -> None:
    """Write the report, based on the reduced picture."""
    from texseg.report import write_report

    seen = copy.copy(model)
    seen.channel_axis = -1 if pictures.image.ndim == 3 else None
    write_report(
        seen,
        pictures.image,
        path,
        mask=pictures.labels > 0,
        labels=pictures.labels,
        confidence=pictures.confidence,
        names=[row.name for row in rows],
        title=shown(about.item.name),
        source=shown(about.item.path),
        command=command,
        overview_of=about.shape,
        pixel_size=about.pixel_size,
    )
