"""One image of a run: read it, label it as one block or many, write the results, and report the outcome."""

import contextlib
import copy
import itertools
import math
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import click
import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.planes import split_planes
from texseg.cli.inputs import Input, ReadOptions, is_volume, named_like, open_scenes, reading_of
from texseg.cli.options import Measured, parameters_of
from texseg.cli.outputs import Bands, Labelled, Outcome, Page, Writing, number_in_words, write_outputs
from texseg.cli.record import PartsFolder, clear_withdrawn, made_from, parts_of, refuse_others
from texseg.cli.terminal import reason_of
from texseg.io.files import ImageTooLargeError, UnsuitableImageError, digest_of, output_path
from texseg.io.geo import relative_size
from texseg.io.read import Image, Source, read_volume
from texseg.io.seeds import Seeds, read_seed_file
from texseg.io.write import Layout
from texseg.method import blocks, sampling
from texseg.method.blocks import BlockPlan
from texseg.method.edits import Edits
from texseg.method.scenes import FourthBandWarning, LogarithmWarning
from texseg.progress import Phases, Progress, expected_memory, free_memory
from texseg.segmenter import Segmenter
from texseg.threads import crew_of, crew_size

_PREVIEW = 2048  # longest side in pixels of the overlay and the map of confidence, of several blocks
_SMALLEST_SIDE = {2: 256, 3: 48}  # of a block in pixels, by the axes along which textures extend
_ANSWERS = 20  # seconds in which a scheduler answers
_LOST = "another run has finished this image and removed the blocks of both; choose another -o"
_SHARE_OF_FIT = 0.05  # of the time, for the progress that is shown


@dataclass(frozen=True)
class Work:
    """All that is the same for every image of a batch."""

    reading: ReadOptions
    writing: Writing
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of `TextureSegmenter`, and "edits" of what it finds; unused with a model."""
    model: Segmenter | None = None  # textures to be found again; None: every image has its own
    model_digest: str = ""  # tells this model from others in records
    unknown: bool = False  # give what no texture of `model` explains the label behind all others
    resample: bool = False  # bring pixels to the size of those that `model` learned from
    rescale: bool = False  # bring the values of each image to the range that `model` learned
    allow_empty: bool = False  # write labels 0 for an image without valid pixels, instead of failing
    skip_existing: bool = False
    resume: bool = False  # go on with what an ended run has left
    scheduler: str | None = None  # address of a dask scheduler, whose workers label blocks

    @classmethod
    def of(cls, options: dict[str, Any], items: Sequence[Input], always: Sequence[str]) -> Self:
        """Pick what the options of a command say; what they say about writing is checked."""
        if options.get("scheduler") is not None and (options["page"] == "all" or is_volume(options)):
            raise click.UsageError("--scheduler labels an image by blocks, not all pages, volumes and series")
        names = ("allow_empty", "skip_existing", "resume", "unknown", "rescale", "resample", "scheduler")
        given = {name: options[name] for name in names if name in options}
        parameters = parameters_of(options) if "n_segments" in options else {}
        return cls(reading_of(options), Writing.of(options, items, always), parameters, **given)

    def by(self, model: Segmenter) -> Self:
        """Do the same by the textures of a model, which forgets the images that it was fitted to."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            model.save(path)
            return replace(self, model=type(model).load(path), model_digest=digest_of(path))

    def names(self, model: Segmenter | None) -> tuple[str, ...]:
        """Names of the labels that a model gives."""
        return (*(() if model is None else model.names_), *["unknown"] * self.unknown)


def process(item: Input, work: Work, n_jobs: int | None = None, callback: Any = None) -> Outcome:
    """Read, label and write one input by some threads; any failure becomes part of the outcome."""
    start = time.perf_counter()
    with crew_of(n_jobs), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = _process(item, work, callback)
        except Exception as error:  # one image must not end the batch, whatever happens to it
            reason, parts = reason_of(error, item.path), str(parts_of(item, work.writing.folder))
            if isinstance(error, FileNotFoundError) and str(error.filename).startswith(parts):
                if not work.skip_existing:  # its results may be those that were to be made
                    return process(item, replace(work, skip_existing=True), n_jobs, callback)
                reason = _LOST
            outcome = Outcome(item.path, "failed", reason)
    messages = tuple(dict.fromkeys((*outcome.messages, *_said(caught))))
    return outcome._replace(seconds=time.perf_counter() - start, messages=messages)


def _said(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Give warnings in words; files name their transparent band, and the outcome names the logarithm."""
    no_matter = (DeprecationWarning, FourthBandWarning, LogarithmWarning)
    return [str(each.message) for each in caught if not issubclass(each.category, no_matter)]


def _process(item: Input, work: Work, callback: Any) -> Outcome:
    reading, writing = work.reading, work.writing
    writing.check_names(item, several_pages=reading.page == "all")
    with _client_of(work.scheduler) as client, open_scenes(item.path, reading) as scenes:
        scene, times = scenes[0], _times_the_size(scenes[0], work)
        size = work.parameters.get("n_segments"), work.parameters.get("preset", "default")
        if work.model is not None:
            size = work.model.n_segments_, work.model.preset
        by_blocks = needs_blocks(scene, reading, size, times) or work.scheduler is not None
        if work.scheduler is not None and (remedy := scene.only_whole):
            raise ValueError(f"--scheduler needs an image that is read by windows; {remedy}")
        has_tags, n_pages = bool(scene.geo and scene.geo.tags), len(scenes)
        planned = writing.planned(item, has_tags, n_pages, by_blocks, reading.is_volume)
        if n_pages > 1 and {"png", "zarr"} & {*writing.formats}:
            raise UnsuitableImageError("labels of several pages are written as tif or npy, not png or zarr")
        made = made_from(item, reading, _what_is_done(work, by_blocks))
        for path in planned.get("report", ()):
            output_path(path, "report")
        earlier = Outcome.earlier(item, planned, made) if work.skip_existing or work.resume else None
        if earlier is not None:
            parts = parts_of(item, writing.folder)
            with contextlib.suppress(OSError):  # the folder is not ours
                for path in planned["run"]:  # a run was ended when it had written everything
                    clear_withdrawn(path)
                if parts.is_dir():
                    PartsFolder(parts, made, resume=True).remove()
            return earlier
        refuse_others(planned)
        if by_blocks:
            found = _label_by_blocks(item, scene, work, made, callback, client)
        else:
            found = _label_whole(item, scenes, work, callback, times)
        outcome = write_outputs(item, found, planned, writing, made)
        if found.parts is not None:
            found.parts.remove()
        is_fit = work.model is None and found.model is not None and not by_blocks
        advice = _advice(work, found.model, outcome.result["n_segments"]) if is_fit else []
        return outcome._replace(messages=(*outcome.messages, *advice))


def _what_is_done(work: Work, by_blocks: bool) -> dict[str, Any]:
    """All that the results of any input depend on, besides how it is read."""
    what: dict[str, Any] = {"allow_empty": work.allow_empty, **work.parameters}
    if work.model is not None:
        what |= {name: getattr(work, name) for name in ("unknown", "rescale", "resample")}
        what |= {"model_sha256": work.model_digest, "names": list(work.names(work.model))}
    if "intervals" in work.writing.kinds:
        what["intervals"] = True
    if by_blocks:
        what |= {"by_blocks": True, "memory": work.reading.memory}
    return what


def _times_the_size(scene: Any, work: Work) -> tuple[float, float]:
    """How many times longer and wider pixels are than those the model learned from; 1 unless they matter."""
    learned = None if work.model is None else work.model.pixel_size_
    times = relative_size(scene.pixel_size, learned)
    if work.resample and work.reading.is_volume:
        raise ValueError("--resample is for images, not for volumes and series")
    if work.resample and times is None:
        raise ValueError(
            "--resample needs the size of a pixel of both the model and the image, in units of length: pass "
            "--pixel-size, for the model when it is fitted"
        )
    depths = [
        None if size is None or size.depth is None else (size.depth, size.depth, size.unit)
        for size in (scene.pixel_size, learned)
    ]
    if not work.resample and {times, relative_size(depths[0], depths[1])} - {None, (1.0, 1.0)}:
        remedy = "resample it before" if work.reading.is_volume else "try --resample"
        warnings.warn(
            f"a pixel of this image is {scene.pixel_size}, but the model learned from pixels of {learned}: "
            f"its textures look different; {remedy}",
            stacklevel=2,
        )
    return times if times is not None and work.resample else (1.0, 1.0)


def _resampled(image: Image, times: tuple[float, float]) -> Image:
    """Bring an image to so many times as many rows and columns; holes are filled from their edge."""
    if times == (1.0, 1.0):
        return image
    planes = split_planes(image.pixels, channel_axis=image.channel_axis, mask=image.mask)
    height, width = (max(1, round(n * by)) for n, by in zip(image.pixels.shape, times, strict=False))
    bands = [_resized(band.astype(np.float32), (height, width)) for band in planes.bands]
    bands *= image.pixels.shape[2] // len(bands) if image.pixels.ndim == 3 else 1
    mask = None if planes.mask is None else _resized(planes.mask.astype(np.uint8), (height, width)) > 0
    return image._replace(pixels=np.stack(bands, axis=-1) if image.pixels.ndim == 3 else bands[0], mask=mask)


def _resized(plane: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Resize a plane (H, W) to a shape; whole numbers are those of the nearest pixel."""
    way = cv2.INTER_AREA if shape[0] * shape[1] < plane.size else cv2.INTER_CUBIC
    way = way if plane.dtype.kind == "f" else cv2.INTER_NEAREST_EXACT
    return cv2.resize(np.ascontiguousarray(plane), shape[::-1], interpolation=way)


def _brought_back(plane: NDArray[Any], image: Image) -> NDArray[Any]:
    """Bring labels, or shares from 0 to 1, to the size of an image; they are 0 where that has no data."""
    if plane.shape == image.shape:
        return plane
    is_labels, valid = plane.dtype.kind == "i", True if image.mask is None else image.mask
    found = _resized(plane.astype(np.uint16) if is_labels else plane, image.shape)
    return np.where(valid, found if is_labels else np.clip(found, 0, 1), 0).astype(plane.dtype)


def _advice(work: Work, model: Any, n_segments: int) -> list[str]:
    """Say what was decided for the user, and how to decide otherwise."""
    if n_segments > 1 or work.parameters["n_segments"] is not None or work.parameters.get("edits"):
        return []
    remedy = "pass a number, such as -k 2, to divide it anyway"
    if model.hierarchy_.n_segments[-1] == 1:
        remedy = "no further textures could be distinguished"
    return [f"found one texture; {remedy}"]


def _label_whole(
    item: Input, scenes: Sequence[Any], work: Work, callback: Any, times: tuple[float, float]
) -> Labelled:
    """Label the pages of an input, or the volume that they are, by one model."""
    images, is_volume = [scene.read() for scene in scenes], work.reading.is_volume
    seeds, volume = read_seeds(item.path, work.reading, images[0]), None
    has_data = [sampling.valid_pixels(each.pixels, each.mask, len(each.shape)).any() for each in images]
    usable = np.flatnonzero(has_data).tolist()
    if not usable and (is_volume or not work.allow_empty):
        raise ValueError(sampling.NO_DATA)
    model = None
    found = [(np.zeros(image.shape, np.int32), np.zeros(image.shape, np.float32)) for image in images]
    if usable:
        seen = [_resampled(images[number], times) for number in usable]
        model = work.model or fit_model(seen, work.parameters, callback, seeds)
        if work.model is None:
            answers: Any = model.labels_, model.confidence_
            answers = answers if seen[1:] else ([answers[0]], [answers[1]])
        else:
            model = copy.copy(work.model)
            model.channel_axis = seen[0].channel_axis
            pixels, masks = [image.pixels for image in seen], [image.mask for image in seen]
            given: Any = {"mask": masks, "unknown": work.unknown, "rescale": work.rescale}
            answers = model.predict_with_confidence(pixels, **given)
        for number, labels, sure in zip(usable, *answers, strict=True):
            found[number] = _brought_back(labels, images[number]), _brought_back(sure, images[number])

    def probabilities(number: int) -> NDArray[np.float32]:
        image = images[number]
        if model is None:
            return np.zeros((1, *image.shape), np.float32)
        seen = _resampled(image, times)
        planes = np.moveaxis(model.predict_proba(seen.pixels, mask=seen.mask, rescale=work.rescale), -1, 0)
        return planes if seen is image else np.stack([_brought_back(plane, image) for plane in planes])

    if is_volume:
        volume = images[0].pixels, *found[0]
        pages = _pages_of(scenes[0].planes, *volume)
    else:
        three = zip(scenes, images, found, strict=True)
        pages = [Page(scene, image.pixels, *own, image.mask) for scene, image, own in three]
    choice = "" if work.model is not None else number_in_words(model)
    largest = max(int(labels.max()) for labels, _ in found)
    more: Any = {"probabilities": None if is_volume else probabilities, "volume": volume}
    return Labelled(pages, model, largest, choice, names=work.names(model), **more)


def fit_model(
    images: Sequence[Image],
    parameters: dict[str, Any],
    callback: Any = None,
    seeds: Seeds | Sequence[NDArray[np.int32] | None] | None = None,
    sample: sampling.SceneSample | None = None,
) -> Segmenter:
    """Fit one model to an image, to several jointly, or to a sample of crops, and edit its segments."""
    edits = parameters.get("edits") or Edits()
    given = {
        name: value.in_pixels(name, images[0].pixel_size) if isinstance(value, Measured) else value
        for name, value in parameters.items()
        if name != "edits"
    }
    size = images[0].pixel_size
    if given.get("spatial_dims") == 3 and size is not None and size.depth is not None:
        given["spacing"] = size.depth, size.height, size.width
    model = Segmenter(**given, channel_axis=images[0].channel_axis, callback=callback)
    pixels, masks = [image.pixels for image in images], [image.mask for image in images]
    maps = [seeds.labels] if isinstance(seeds, Seeds) else seeds
    if len(images) == 1:
        model._fit(pixels[0], masks[0], maps and maps[0], sample)
    else:
        model._fit(pixels, masks, maps, sample)
    times = {relative_size(image.pixel_size, images[0].pixel_size) for image in images}
    if times == {(1.0, 1.0)}:
        model.pixel_size_ = images[0].pixel_size
    elif None not in times:
        warnings.warn("the images have pixels of different sizes; the model keeps none", stacklevel=2)
    if isinstance(seeds, Seeds):
        model.rename(dict(enumerate(seeds.names[: model.n_segments_], start=1)))
        model.colours_ = dict(seeds.colours)
    return model.edit(edits)


def read_seeds(path: Path, reading: ReadOptions, image: Image) -> Seeds | None:
    """Read the strokes on an image, or on the planes of a volume, if there are any."""
    if reading.seeds is None:
        return None
    file = named_like(path, reading.seeds, "strokes")
    if reading.is_volume:
        classes = read_volume(file).pixels
        if classes.shape != image.shape or classes.dtype.kind not in "ui":
            raise UnsuitableImageError(
                f"{file.name}: strokes on a volume must be whole numbers of its shape {image.shape}, 0 where "
                f"nothing is painted; got {classes.dtype} of shape {classes.shape}"
            )
        return Seeds(classes.astype(np.int32))
    return read_seed_file(file, image.pixels.shape[:2], image.geo)


def needs_blocks(
    scene: Any, reading: ReadOptions, size: Any = (None, "default"), times: tuple[float, float] = (1.0, 1.0)
) -> bool:
    """Tell whether an image is too large to be labelled whole; what must be enlarged is refused then."""
    if reading.page == "all" and not reading.is_volume:
        return False
    if scene.too_large is not None:
        if not scene.only_whole and times == (1.0, 1.0):
            return True
        raise scene.too_large
    budget = reading.memory or free_memory() // 2
    n_pixels = round(math.prod(scene.shape) * times[0] * times[1])
    needed = expected_memory(n_pixels, scene.n_channels, size[0], size[1], len(scene.shape))
    if needed > budget and (times != (1.0, 1.0) or scene.only_whole):
        what, remedy = f"{' x '.join(map(str, scene.shape[::-1]))} pixels need", scene.only_whole
        if times != (1.0, 1.0):
            what = f"resampled to {n_pixels / 1e6:.1f} Mpx it needs"
            remedy = "save it at the size of the model"
        about, only = (f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB" for n in (needed, budget))
        raise ImageTooLargeError(f"{what} about {about}, but only {only} is allowed (--memory); {remedy}")
    return needed > budget


def _label_by_blocks(
    item: Input, scene: Any, work: Work, made: dict[str, Any], callback: Any, client: Any = None
) -> Labelled:
    """Label an image block by block; an interrupted run can be resumed."""
    _refuse_by_blocks(work)
    wants_confidence = bool(work.writing.kinds & {"confidence", "report"})
    made = {**made, "confidence": wants_confidence}
    parts = PartsFolder(parts_of(item, work.writing.folder), made, work.resume)
    if work.model is not None:
        blocks.warn_of_encoding(scene, work.model.textures_.features)
    tell = partial(Phases([callback], {"fit": _SHARE_OF_FIT, "blocks": 1 - _SHARE_OF_FIT}), "blocks")
    messages, choice = [parts.message] * bool(parts.message), ""
    novel: list[Any] = []
    growth = work.parameters.get("n_segments"), work.parameters.get("grow", False)
    while True:
        model, sample = parts.model() if work.model is None else (work.model, {})
        if model is None:
            fitted, sample = _fit_crops(scene, work, callback, novel)
            choice = number_in_words(fitted)
            model = parts.keep_model(fitted, sample)
        plan, request, n_jobs = _plan_of(scene, work, model, wants_confidence)
        options: dict[str, Any] = {"n_jobs": n_jobs, "tell": tell, "client": client}
        novel = blocks.read_blocks(scene, model.textures_, plan, request, parts, **options)
        if not novel or not sampling.learns_again(sample, *growth):
            break
        messages.append(sampling.LABELLED_AGAIN.format(sampling.placed(*novel)))
        parts.begin()
    found = model.textures_, plan, request, parts
    largest, sides = model.n_segments_ + work.unknown, " x ".join(map(str, dict.fromkeys(plan.sides)))
    said, step, volume = f"read by blocks of {sides} pixels", request.preview, None
    if len(plan.shape) == 3:
        volume = scene, *parts.volume_of(blocks.join_blocks(*found), plan, largest, wants_confidence)
        pages = _pages_of(scene.planes, *volume)
    else:
        pages = [_page_of_blocks(scene, found, largest, wants_confidence, client)]
        said += "" if work.writing.formats else ", labels written as TIFF alone"
    if step > 1:
        said += f"; overlay, confidence and report have 1/{step} of the size"
    messages.append(said)
    if novel:
        messages.append(sampling.unexplained(novel, model.n_segments_))
    messages += [f"textures learned from {sample.pop('words')}", *sample.pop("notes")] if sample else []
    more: Any = {"parts": parts, "sample": sample, "volume": volume, "names": work.names(model)}
    return Labelled(pages, model, largest, choice, tuple(messages), **more)


def _page_of_blocks(scene: Source, found: Any, largest: int, wants_confidence: bool, client: Any) -> Page:
    """Make the page of an image whose blocks arrive row by row; what is shown has 1 / step of its size."""
    textures, plan, request, parts = found
    step, block = request.preview, (plan.sides[0], blocks.SHARD)
    shape = tuple(-(-length // step) for length in scene.shape)
    sure = np.zeros(shape, np.float32) if wants_confidence else None
    page = Page(scene, np.zeros(shape, np.float32), np.zeros(shape, np.int32), sure, None, block=block)
    if client is None:
        page.rows = _rows_of_blocks(blocks.join_blocks(*found), plan, page, step)
    else:
        most = [largest, 255] if wants_confidence else [largest]
        page.written = parts.new_maps(Layout(scene.shape, block=block), most, step)
        previews, page.tallied = blocks.write_blocks(textures, plan, request, parts, client)
        page.rows = _rows_of_maps(previews, parts, plan, page, step)
    return page


def _pages_of(planes: Sequence[Source], pixels: Any, labels: Any, sure: Any) -> list[Page]:
    """Give the planes of a labelled volume as pages."""
    maps = zip(planes, labels, itertools.repeat(None) if sure is None else sure, strict=False)
    return [Page(plane, pixels, own, confidence, None) for plane, own, confidence in maps]


def _refuse_by_blocks(work: Work) -> None:
    """Refuse what needs the whole image."""
    if work.writing.kinds & {"probabilities", "intervals"}:
        raise ValueError("probabilities and intervals are written only for images that fit into --memory")
    if work.rescale or work.reading.seeds is not None:
        other = "" if work.rescale else ", or fit a part of the image with --seeds and apply the model"
        what = "--rescale needs" if work.rescale else "seeds need"
        raise ValueError(f"{what} the whole image in memory; allow more --memory{other}")
    if work.model is not None and work.model.ground_ is not None:
        raise ValueError(
            "the model distinguishes a flat background from textures, which needs the whole image; fit it "
            "with --no-flat-ground, or mask the background"
        )


def _plan_of(
    scene: Source, work: Work, model: Segmenter, wants_confidence: bool
) -> tuple[BlockPlan, blocks.Request, int]:
    """Settle the blocks, what is requested of them, and how many are labelled side by side."""
    memory, textures, is_flat = work.reading.memory, model.textures_, len(scene.shape) == 2
    reduction = 1 << ((max(scene.shape) - 1) // _PREVIEW).bit_length()  # until it is small enough to view
    reduction = reduction if is_flat else 0
    side = blocks.SIDE if model.spatial_dims == 2 else blocks.SIDE_IN_SPACE

    def planned(side: int) -> BlockPlan:
        return blocks.plan_blocks(scene.shape, textures, side, max(1, reduction))

    def needed(plan: BlockPlan) -> float:
        around = zip(plan.shape, plan.sides, plan.margins, strict=True)
        padded = math.prod(min(length, side + 2 * margin) for length, side, margin in around)
        about = scene.n_channels, model.n_segments_, model.preset, len(plan.shape)
        return expected_memory(padded, *about)

    plan = planned(side)
    while memory is not None and side > _SMALLEST_SIDE[model.spatial_dims] and needed(plan) > memory:
        side = side // 2 if model.spatial_dims == 2 else side - textures.cell
        plan = planned(side)
    fitting = int((memory or free_memory() // 2) / needed(plan))
    looks = work.model is None and textures.features.has_filters and is_flat
    asked = model._smoothness, model.min_size, None, work.unknown, wants_confidence, reduction, looks
    return plan, blocks.Request(*asked), max(1, min(crew_size(), fitting))


@contextlib.contextmanager
def _client_of(address: str | None) -> Iterator[Any]:
    """Connect to a dask scheduler, if one is given."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
        from distributed.comm import CommClosedError
    except ImportError:
        raise ImportError("--scheduler needs dask and zarr (pip install 'texseg[large]')") from None
    try:
        client = Client(address, set_as_default=False, timeout=_ANSWERS)
    except (OSError, ValueError) as error:
        raise OSError(f"no dask scheduler answers at {address}: {error}") from None
    try:
        with client:
            yield client
    except (CancelledError, CommClosedError):
        raise OSError(
            f"the dask scheduler at {address} ended; with --resume the same command goes on, on any scheduler"
        ) from None


def _rows_of_blocks(found: Any, plan: BlockPlan, page: Page, step: int) -> Bands:
    """Put the blocks of a row side by side, and fill in the picture, of 1 / step of the size."""
    row: list[NDArray[np.integer]] = []
    sure: list[NDArray[np.floating]] = []
    for place, labels, block in found:
        small = _show(page, plan, place, block.preview, step)
        page.labels[small] = labels[::step, ::step]
        row.append(labels.astype(np.uint16))
        if block.confidence is not None and page.confidence is not None:
            sure.append(block.confidence / np.float32(255))
            page.confidence[small] = sure[-1][::step, ::step]
        if len(row) == plan.grid[1]:
            page.mask = page.labels > 0
            yield np.concatenate(row, axis=1), np.concatenate(sure, axis=1) if sure else None
            row, sure = [], []


def _rows_of_maps(previews: Any, parts: PartsFolder, plan: BlockPlan, page: Page, step: int) -> Bands:
    """Give rows of blocks that workers have written, which are read where a format needs them."""
    from dask.array import from_array

    for place, preview in previews.items():
        _show(page, plan, place, preview, step)
    (labels, page.labels), *others = parts.maps(step)
    page.mask, sure = page.labels > 0, None
    labels = from_array(labels, chunks=plan.sides)
    for certain, small in others:
        sure, page.confidence = from_array(certain, chunks=plan.sides), small / np.float32(255)
    for top in range(0, plan.shape[0], plan.sides[0]):
        rows = slice(top, min(top + plan.sides[0], plan.shape[0]))
        yield labels[rows], None if sure is None else sure[rows] / np.float32(255)


def _show(page: Page, plan: BlockPlan, place: Any, preview: NDArray[Any], step: int) -> Any:
    """Fill in the picture of a block, whose sides fit its squares; give its place there."""
    small = tuple(slice(part.start // step, -(-part.stop // step)) for part in plan.core(place))
    if preview.ndim != page.image.ndim:
        page.image = np.zeros((*page.labels.shape, preview.shape[-1]), np.float32)
    page.image[small] = preview
    return small


def _fit_crops(
    scene: Source, work: Work, callback: Any, places: Sequence[Any] = ()
) -> tuple[Segmenter, dict[str, Any]]:
    """Fit to crops; give the model, and what is said and recorded about them."""
    n_crops = sampling.crop_count(work.reading.memory, scene.n_channels, len(scene.shape))
    side = {"side": sampling.CROP_OF_STACK} if work.parameters.get("planes") else {}
    random_state = work.parameters.get("random_state", 0)
    sample, crops = sampling.read_crops(scene, random_state, n_crops, places=places, **side)

    def show(progress: Progress) -> None:
        if callback is not None:
            callback(progress._replace(share=_SHARE_OF_FIT * progress.share))

    # a single block does not show how much flat background there is
    parameters = {**work.parameters, "flat_ground": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "an image with a side of")
        model = fit_model(crops, parameters, show, sample=sample)
    return model, {"words": str(sample), "notes": _said(caught), **sample.record()}
