"""Images larger than the memory a command may take: processed by windows and blocks, from file to file."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import texseg
from texseg.blocks import (
    CROP_SIDE,
    CROPS,
    SIDE,
    BlockPlan,
    Request,
    label_blocks,
    plan_blocks,
    sample_windows,
)
from texseg.cli.inputs import Input
from texseg.cli.outputs import Sureness, Writing, in_words
from texseg.cli.parts import PartsFolder, parts_of, stamp_of
from texseg.cli.reading import ReadOptions, mask_for, turned_grey
from texseg.cli.record import digest_of_model
from texseg.cli.scene_outputs import BY_BLOCKS, About, write_blocks
from texseg.edits import Edits
from texseg.forecast import expected_memory, free_memory
from texseg.io.errors import ImageTooLargeError, UnsuitableImageError
from texseg.io.header import Header
from texseg.io.read import Image, read_header
from texseg.io.windows import FileWindows, open_windows
from texseg.progress import Progress
from texseg.regions import SegmentRow
from texseg.segmenter import Segmenter
from texseg.threads import crew_size

_PREVIEW = 2048  # longest side in pixels of the overlay and the map of confidence
_SMALLEST_SIDE = 256
_SHARE_OF_FIT = 0.05  # of the time, for the progress that is shown


def memory_budget(memory: int | None) -> int:
    """Bytes that a command may take: the given number, or half of the free memory."""
    return free_memory() // 2 if memory is None else memory


def needs_blocks(
    path: Path, reading: ReadOptions, n_segments: int | None = None, preset: str = "default"
) -> bool:
    """Tell whether to read a file by windows: it exceeds the budget, a level is requested, or it is zarr.

    Raises
    ------
    ImageTooLargeError
        It exceeds the budget and can only be read whole.
    """
    if path.is_dir() or reading.level is not None:
        return True
    if reading.page == "all":
        return False
    header = read_header(path)
    budget = memory_budget(reading.memory)
    needed = expected_memory(header.height * header.width, header.n_channels, n_segments, preset)
    if needed <= budget:
        return False
    try:
        with _open(path, reading):
            return True
    except UnsuitableImageError as error:
        if reading.max_pixels is not None and header.height * header.width > reading.max_pixels:
            return False  # reading the whole refuses it, too, and names the limit
        raise ImageTooLargeError(
            f"{header.width} x {header.height} pixels need about {_amount(needed)}, and "
            f"{_amount(budget)} may be taken (--memory); {str(error).removeprefix(path.name + ': ')}"
        ) from error


def _amount(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


class Task(NamedTuple):
    """What is to be found in an image; most fields are those of `texseg.cli.process.Work`."""

    parameters: dict[str, Any]
    model: Segmenter | None
    names: tuple[str, ...]
    unknown: bool
    resume: bool
    made: dict[str, Any]
    """What the results are made from, for the record."""


class BlocksWritten(NamedTuple):
    """What is reported about an image when its results have been written."""

    shape: tuple[int, int]
    rows: tuple[SegmentRow, ...]
    outputs: tuple[Path, ...]
    messages: tuple[str, ...]
    sure: Sureness
    choice: str
    """About the number that was chosen, in words; empty if it was given, or chosen before the run ended."""


def label_by_blocks(
    item: Input, reading: ReadOptions, writing: Writing, task: Task, callback: Any
) -> BlocksWritten:
    """Label an image block by block and write the results; an interrupted run can be resumed."""
    unfit = sorted(set(writing.formats) - set(BY_BLOCKS))
    if unfit:
        raise ValueError(
            f"by blocks, labels are written as {' or '.join(BY_BLOCKS)}, not {', '.join(unfit)}; leave it "
            "out, or give more --memory"
        )
    if "probabilities" in writing.kinds:
        raise ValueError("probabilities of all segments are written of images that fit into --memory")
    wants_confidence = bool(writing.kinds & {"confidence", "report"})
    with _MaskedWindows(item.path, reading) as source:
        plan = _plan(item, reading, task) | {"confidence": wants_confidence}
        parts = PartsFolder(parts_of(item, writing.folder), plan, task.resume)
        model, choice = task.model or parts.model(), ""
        if model is None:
            model = _fit(source, reading, task, callback)
            choice = in_words(getattr(model, "selection_", None))
            model = parts.keep_model(model)
        if model.ground_ is not None:
            raise ValueError(
                "the model tells flat ground from textures, which needs the whole image; fit it with "
                "flat_ground=False, or mask the ground"
            )
        reduction = _reduction(source.shape)
        blocks = plan_blocks(source.shape, model.textures_, _side(reading.memory, model, source), reduction)
        n_jobs = _jobs(reading.memory, model, blocks, source)
        asked = Request(
            model._smoothness,
            model.min_size,
            None,
            task.unknown,
            wants_confidence,
            reduction,
        )
        found = label_blocks(
            source,
            model.textures_,
            blocks,
            asked,
            n_jobs=n_jobs,
            store=parts,
            tell=None if callback is None else lambda done, total: callback(_progress(done, total)),
        )
        windows = source.windows
        about = About(item, source.shape, blocks, asked, windows.geo, windows.pixel_size, task.made)
        written, rows = write_blocks(found, about, writing, model, task.names or model.names_, parts.folder)
        parts.remove()
    said = f"read by blocks of {blocks.side} pixels"
    if not writing.formats:
        said += ", labels written as TIFF alone"
    if task.model is None:
        n_crops = _crop_count(reading.memory, source.windows.n_channels)
        n_crops = len(sample_windows(source.shape, n_crops=n_crops))
        said += f", textures learned from up to {n_crops} crops of {CROP_SIDE} pixels"
    if reduction > 1:
        said += f"; overlay, confidence and report have 1/{reduction} of the size"
    messages = (*source.windows.notes, said, *written.messages)
    return BlocksWritten(source.shape, rows, written.paths, messages, written.sure, choice)


class _MaskedWindows:
    """The windows of a file together with those of the user's mask."""

    def __init__(self, path: Path, reading: ReadOptions) -> None:
        with ExitStack() as files:
            self.windows = files.enter_context(_open(path, reading))
            self.shape, self.channel_axis = self.windows.shape, self.windows.channel_axis
            self._grey = reading.grey and self.channel_axis is not None
            if self._grey:
                self.channel_axis = None
            self._mask = None
            if reading.mask is not None:
                self._mask = files.enter_context(open_windows(mask_for(path, reading.mask)))
                if self._mask.shape != self.shape:
                    raise ValueError(f"mask shape {self._mask.shape} does not match image {self.shape}")
            self._files = files.pop_all()

    def read(self, window: tuple[slice, slice]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        pixels, valid = self.windows.read(window)
        if self._grey:
            pixels = turned_grey(pixels)
        if self._mask is None:
            return pixels, valid
        values, shown = self._mask.read(window)
        given = values != 0 if values.ndim == 2 else (values != 0).any(axis=-1)
        given = given if shown is None else given & shown
        return pixels, given if valid is None else valid & given

    def __enter__(self) -> _MaskedWindows:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()


def _open(path: Path, reading: ReadOptions) -> FileWindows:
    return open_windows(
        path,
        page=None if reading.page == "all" else reading.page,
        level=reading.level or 0,
        channel_axis=reading.channel_axis,
        nodata=reading.nodata,
        ignore_alpha=reading.ignore_alpha,
        bands=reading.channels,
    )


def sample_of(path: Path, reading: ReadOptions, random_state: int = 0) -> list[Image]:
    """Read the crops that textures are learned from."""
    with _MaskedWindows(path, reading) as source:
        return _crops(source, reading.memory, random_state)


def _crop_count(memory: int | None, n_channels: int) -> int:
    """Return the number of crops: fewer only if the memory given does not allow the usual number."""
    n_crops = CROPS
    while memory is not None and n_crops > 1:
        if expected_memory(n_crops * CROP_SIDE**2, n_channels) <= memory:
            break
        n_crops -= 1
    return n_crops


def _crops(source: _MaskedWindows, memory: int | None, random_state: int) -> list[Image]:
    """Read the crops that textures are learned from: an even sample, or, where that holds no data, any."""
    n_crops = _crop_count(memory, source.windows.n_channels)
    crops = [_crop(source, window) for window in sample_windows(source.shape, random_state, n_crops)]
    found = [crop for crop in crops if crop is not None]
    if not found:
        everywhere = (_crop(source, window) for window in _shuffled_windows(source.shape, random_state))
        found = list(itertools.islice((crop for crop in everywhere if crop is not None), n_crops))
    if not found:
        raise ValueError(
            "no valid pixels: all are masked, transparent, not finite or equal to the no-data value"
        )
    return found


def _crop(source: _MaskedWindows, window: tuple[slice, slice]) -> Image | None:
    """Read one crop; None where no pixel holds data."""
    pixels, mask = source.read(window)
    finite = np.isfinite(pixels) if pixels.dtype.kind == "f" else np.ones((), bool)
    finite = finite.all(axis=-1) if finite.ndim == 3 else finite
    if not (finite if mask is None else finite & mask).any():
        return None
    axes = "YX" if source.channel_axis is None else "YXC"
    header = Header("window", pixels.shape, axes, pixels.dtype)
    return Image(pixels, mask, source.channel_axis, source.windows.nodata, None, header, ())


def _shuffled_windows(shape: tuple[int, int], random_state: int) -> Iterator[tuple[slice, slice]]:
    """Windows that cover an image, in random order."""
    rows, columns = (range(0, length, CROP_SIDE) for length in shape)
    for number in np.random.default_rng(random_state).permutation(len(rows) * len(columns)).tolist():
        y, x = rows[number // len(columns)], columns[number % len(columns)]
        yield slice(y, min(y + CROP_SIDE, shape[0])), slice(x, min(x + CROP_SIDE, shape[1]))


def _fit(source: _MaskedWindows, reading: ReadOptions, task: Task, callback: Any) -> Segmenter:
    crops = _crops(source, reading.memory, task.parameters.get("random_state", 0))

    def show(progress: Progress) -> None:
        if callback is not None:
            callback(progress._replace(share=_SHARE_OF_FIT * progress.share))

    edits = task.parameters.get("edits") or Edits()
    given = {name: value for name, value in task.parameters.items() if name != "edits"}
    given["flat_ground"] = False  # a single block does not show how much of it there is
    model = Segmenter(**given, channel_axis=source.channel_axis, callback=show)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "an image with a side of")
        model.fit([crop.pixels for crop in crops], mask=[crop.mask for crop in crops])
    return model.edit(edits)


def _progress(done: int, total: int) -> Progress:
    return Progress("blocks", done, total, _SHARE_OF_FIT + (1 - _SHARE_OF_FIT) * done / total)


def _plan(item: Input, reading: ReadOptions, task: Task) -> dict[str, Any]:
    """Return everything that the blocks depend on, as plain data."""
    read = {name: str(value) for name, value in asdict(reading).items()}
    plan = {"version": texseg.__version__, "input": stamp_of(item.path), "reading": read}
    if task.model is None:
        plan["parameters"] = {name: str(value) for name, value in task.parameters.items()}
    else:
        plan["model"] = digest_of_model(task.model)
    return plan | {"unknown": task.unknown}


def _side(memory: int | None, model: Segmenter, source: _MaskedWindows) -> int:
    """Return the side of the blocks: halved until one fits into the memory given.

    The memory that happens to be free is ignored, so that a resumed run has the same blocks.
    """
    side = SIDE
    while memory is not None and side > _SMALLEST_SIDE and _memory(side, model, source) > memory:
        side //= 2
    return side


def _jobs(memory: int | None, model: Segmenter, blocks: BlockPlan, source: _MaskedWindows) -> int:
    """Return the number of blocks at once: at most one per thread, and as many as fit into memory."""
    fitting = int(memory_budget(memory) / _memory(blocks.side, model, source))
    return max(1, min(crew_size(), fitting))


def _memory(side: int, model: Segmenter, source: _MaskedWindows) -> float:
    """Bytes that a block takes while it is labelled."""
    wide = side + 2 * model.textures_.reach
    return expected_memory(wide * wide, source.windows.n_channels, model.n_segments_, model.preset)


def _reduction(shape: Sequence[int]) -> int:
    """Return the power of two by which to reduce an image so that it is small enough to view."""
    reduction = 1
    while max(shape) > _PREVIEW * reduction:
        reduction *= 2
    return reduction
