"""One image that is larger than the memory a command may take: by windows and blocks, from file to file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

import texseg
from texseg.cli.inputs import Input
from texseg.cli.parts import PartsFolder, digest_of, stamp_of
from texseg.forecast import expected_memory, free_memory
from texseg.io.atomic import atomic_write
from texseg.io.blockwise import write_label_rows
from texseg.io.errors import ImageReadError, ImageTooLargeError, UnsuitableImageError
from texseg.io.read import read_header
from texseg.io.windows import FileWindows, open_windows
from texseg.io.write import write_confidence, write_overlay
from texseg.progress import Progress
from texseg.regions import SegmentRow, SegmentTally, csv_text
from texseg.segmenter import TextureSegmenter
from texseg.threads import n_threads
from texseg.tiles import SIDE, Asked, BlockReading, Blocks, label_blocks, plan_blocks, sample_windows

if TYPE_CHECKING:
    from texseg.cli.process import Outcome, Reading, Work

_PREVIEW = 2048  # longest side in pixels of the overlay and the map of confidence
_WHOLE_ONLY = ("regions", "polygons", "report")
_SMALLEST_SIDE = 256
_SHARE_OF_FIT = 0.05  # of the time, for the progress that is shown


def memory_budget(memory: int | None) -> int:
    """Bytes that a command may take: what was said, or half of what is free."""
    return free_memory() // 2 if memory is None else memory


def needs_blocks(path: Path, work: Work) -> bool:
    """Tell whether a file is read by windows: larger than the budget, a level of a pyramid, or zarr."""
    reading = work.reading
    if path.is_dir() or reading.level is not None:
        return True
    if reading.page == "all":
        return False
    header = read_header(path)
    budget = memory_budget(work.memory)
    n_segments = work.parameters.get("n_segments") if work.model is None else work.model.n_segments_
    preset = work.parameters.get("preset", "default") if work.model is None else work.model.preset
    needed = expected_memory(header.height * header.width, header.n_channels, n_segments, preset)
    if needed <= budget:
        return False
    try:
        with _open(path, reading):
            return True
    except UnsuitableImageError as error:
        raise ImageTooLargeError(
            f"{header.width} x {header.height} pixels need about {needed / 1e9:.1f} GB, and "
            f"{budget / 1e9:.1f} GB may be taken (--memory); {str(error).removeprefix(path.name + ': ')}"
        ) from error


def process_large(item: Input, work: Work, callback: Any) -> Outcome:
    """Label an image block by block and write the results; what was done before may be gone on with."""
    from texseg.cli.process import Outcome

    unfit = [kind for kind in _WHOLE_ONLY if kind in work.writing.kinds]
    if unfit or set(work.writing.formats) - {"tif"}:
        wrong = ", ".join([*unfit, *sorted(set(work.writing.formats) - {"tif"})])
        raise ValueError(
            f"by blocks, the labels (tif), the overlay, the segments and the confidence are written, not "
            f"{wrong}; leave it out, or give more --memory"
        )
    folder = work.writing.folder / item.name.parent
    name = item.name.name
    with _MaskedWindows(item.path, work.reading) as source:
        parts = PartsFolder(folder / f".{name}.texseg-parts", _plan(item, work, folder), work.resume)
        model = work.model or parts.model() or parts.keep_model(_fit(source, work, callback))
        side, n_jobs = _share(memory_budget(work.memory), model, source)
        blocks = plan_blocks(source.shape, model.textures_, side)
        reduction = _reduction(source.shape)
        asked = Asked(
            model.smoothness,
            model.min_size,
            None,
            work.unknown,
            "confidence" in work.writing.kinds,
            reduction,
        )
        tally = SegmentTally()
        pictures = _Pictures(source.shape, reduction, asked.confidence)
        found = label_blocks(
            source,
            model.textures_,
            blocks,
            asked,
            n_jobs=n_jobs,
            store=parts,
            tell=None if callback is None else lambda done, total: callback(_progress(done, total)),
        )
        target = folder / f"{name}_labels.tif"
        largest = model.n_segments_ + work.unknown
        geo = source.windows.geo
        written = [target]
        write_label_rows(target, _bands(found, blocks, tally, pictures), source.shape, largest, geo)
        if "overlay" in work.writing.kinds:
            written.append(folder / f"{name}_overlay.png")
            write_overlay(written[-1], pictures.image, pictures.labels, mask=pictures.labels > 0)
        if pictures.confidence is not None:
            written.append(folder / f"{name}_confidence.tif")
            write_confidence(written[-1], pictures.confidence)
        rows = tuple(tally.rows(work.names))
        if "segments" in work.writing.kinds:
            written.append(folder / f"{name}_segments.csv")
            atomic_write(written[-1], csv_text(rows, SegmentRow._fields).encode())
        parts.remove()
    said = f"read by blocks of {blocks.side} pixels, learned from {len(sample_windows(source.shape))} crops"
    if work.model is not None:
        said = f"read by blocks of {blocks.side} pixels"
    return Outcome(
        item.path,
        "done",
        shape=source.shape,
        rows=rows,
        n_segments=len([row for row in rows if row.label > 0]),
        outputs=tuple(written),
        messages=(*source.windows.notes, f"{said}; overlay and confidence are 1/{reduction} of the size"),
    )


class _MaskedWindows:
    """The windows of a file with those of the user's mask."""

    def __init__(self, path: Path, reading: Reading) -> None:
        from texseg.cli.process import mask_for

        self.windows = _open(path, reading)
        self.shape, self.channel_axis = self.windows.shape, self.windows.channel_axis
        self._mask = None
        if reading.mask is not None:
            mask = mask_for(path, reading.mask)
            self._mask = open_windows(mask)
            if self._mask.shape != self.shape:
                raise ValueError(f"mask shape {self._mask.shape} does not match image {self.shape}")

    def read(self, window: tuple[slice, slice]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        pixels, valid = self.windows.read(window)
        if self._mask is None:
            return pixels, valid
        values, shown = self._mask.read(window)
        given = values != 0 if values.ndim == 2 else (values != 0).any(axis=-1)
        given = given if shown is None else given & shown
        return pixels, given if valid is None else valid & given

    def __enter__(self) -> _MaskedWindows:
        return self

    def __exit__(self, *error: object) -> None:
        self.windows.__exit__(*error)
        if self._mask is not None:
            self._mask.__exit__(*error)


def _open(path: Path, reading: Reading) -> FileWindows:
    return open_windows(
        path,
        page=None if reading.page == "all" else reading.page,
        level=reading.level or 0,
        channel_axis=reading.channel_axis,
        nodata=reading.nodata,
        ignore_alpha=reading.ignore_alpha,
    )


def sample_of(path: Path, reading: Reading, random_state: int = 0) -> list[tuple[NDArray, Any, int | None]]:
    """Read the crops that textures are learned from: pixels, mask and channel axis of each."""
    with _MaskedWindows(path, reading) as source:
        return _crops(source, random_state)


def _crops(source: _MaskedWindows, random_state: int) -> list[tuple[NDArray, Any, int | None]]:
    crops = []
    for window in sample_windows(source.shape, random_state):
        pixels, mask = source.read(window)
        if mask is None or mask.any():
            crops.append((pixels, mask, source.channel_axis))
    if not crops:
        raise ImageReadError("none of the crops that textures are learned from holds data")
    return crops


def _fit(source: _MaskedWindows, work: Work, callback: Any) -> TextureSegmenter:
    crops = _crops(source, work.parameters.get("random_state", 0))

    def show(progress: Progress) -> None:
        if callback is not None:
            callback(progress._replace(share=_SHARE_OF_FIT * progress.share))

    model = TextureSegmenter(**work.parameters, channel_axis=source.channel_axis, callback=show)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "an image with a side of")
        return model.fit([pixels for pixels, _, _ in crops], mask=[mask for _, mask, _ in crops])


def _progress(done: int, total: int) -> Progress:
    return Progress("blocks", done, total, _SHARE_OF_FIT + (1 - _SHARE_OF_FIT) * done / total)


def _plan(item: Input, work: Work, folder: Path) -> dict[str, Any]:
    """Give all that the blocks depend on, as plain data."""
    reading = {name: str(value) for name, value in asdict(work.reading).items()}
    plan = {"version": texseg.__version__, "input": stamp_of(item.path), "reading": reading}
    if work.model is None:
        plan["parameters"] = {name: str(value) for name, value in work.parameters.items()}
    else:
        plan["model"] = digest_of(work.model, folder / f".{item.name.name}.texseg-model")
        (folder / f".{item.name.name}.texseg-model").rmdir()
    confidence = "confidence" in work.writing.kinds
    return plan | {"unknown": work.unknown, "confidence": confidence, "memory": work.memory}


def _share(budget: int, model: TextureSegmenter, source: _MaskedWindows) -> tuple[int, int]:
    """Give the side of the blocks and the number of threads, so that all blocks at work fit into the budget."""
    most = min(n_threads(-1), max(1, cv2.getNumThreads()))
    side = SIDE
    while True:
        wide = side + 2 * model.textures_.reach
        each = expected_memory(wide * wide, source.windows.n_channels, model.n_segments_, model.preset)
        if each <= budget or side <= _SMALLEST_SIDE:
            return side, max(1, min(most, int(budget // each)))
        side //= 2


def _reduction(shape: Sequence[int]) -> int:
    """Give the power of two, at most the smallest step of blocks, that makes an image small enough to look at."""
    reduction = 1
    while max(shape) > _PREVIEW * reduction:
        reduction *= 2
    return reduction


class _Pictures:
    """Reduced image, labels and confidence, filled in block by block."""

    def __init__(self, shape: tuple[int, int], reduction: int, with_confidence: bool) -> None:
        self._reduction = reduction
        small = tuple(-(-side // reduction) for side in shape)
        self.image: NDArray[np.float32] = np.zeros(small, np.float32)
        self.labels = np.zeros(small, np.int32)
        self.confidence = np.zeros(small, np.float32) if with_confidence else None

    def add(self, window: tuple[slice, slice], labels: NDArray[np.int32], block: BlockReading) -> None:
        """Fill in one block; blocks begin where the squares of the reduction do."""
        step = self._reduction
        place = tuple(slice(part.start // step, -(-part.stop // step)) for part in window)
        assert block.preview is not None  # asked for
        if block.preview.ndim != self.image.ndim:
            self.image = np.zeros((*self.labels.shape, block.preview.shape[-1]), np.float32)
        self.image[place] = block.preview
        self.labels[place] = labels[::step, ::step]
        if self.confidence is not None and block.confidence is not None:
            self.confidence[place] = block.confidence[::step, ::step] / np.float32(255)


def _bands(
    found: Iterator[tuple[tuple[int, int], NDArray[np.int32], BlockReading]],
    blocks: Blocks,
    tally: SegmentTally,
    pictures: _Pictures,
) -> Iterator[NDArray[np.integer]]:
    """Put the blocks of a row side by side, and note down what tables and pictures need."""
    row: list[NDArray[np.integer]] = []
    for place, labels, block in found:
        window = blocks.core(place)
        confidence = None if block.confidence is None else block.confidence / np.float32(255)
        tally.add(labels, (window[0].start, window[1].start), confidence)
        pictures.add(window, labels, block)
        row.append(labels.astype(np.uint16))
        if len(row) == blocks.grid[1]:
            yield np.concatenate(row, axis=1)
            row = []


def with_level(work: Work, level: int | None) -> Work:
    """Give the same work on another level of pyramids."""
    return replace(work, reading=replace(work.reading, level=level))
