"""What is painted on images, and the model that follows.

Everything a user does is an operation in one list, and the model a function of that list: so undoing takes an
operation out, windows do not lose each other's strokes, and a saved list brings everything back. Segments of
the first fit are the classes of their numbers, later classes have others.
"""

import copy
import itertools
import json
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.cli.process import fit_model
from texseg.io.display import deepest_places, display_range, displayable
from texseg.io.files import atomic_write, open_regular
from texseg.io.regions import Floats, Labels, boxes_of, connected_regions
from texseg.method.blocks import SIDE, BlockPlan, Request, plan_blocks, read_block
from texseg.method.edits import checked_edits
from texseg.method.sampling import read_crops, valid_pixels, window_around
from texseg.method.seeds import classes_in
from texseg.parameters import MOST_SEGMENTS, PARAMETERS
from texseg.progress import Progress
from texseg.report.content import level_content, plain_level, steady_levels
from texseg.report.pages import page_content
from texseg.report.pictures import reduced, reduced_labels, shown_shape
from texseg.report.words import Look
from texseg.segmenter import Segmenter
from texseg.threads import one_blas_thread

Window = tuple[slice, slice]
Place = tuple[int, ...]
Member = tuple[int, Window]
Classes = tuple[tuple[int, ...], ...]
Operation = dict[str, Any]
Seeds = list[NDArray[np.int32] | None]

FITTED = ("n_segments", "smoothness", "min_size", "cue", "log")  # parameters that can be changed on the page

_MOST_POINTS, _MOST_OPERATIONS = 5000, 20_000
_FARTHEST = 2**15  # pixels, of a point from the corner; and the widest brush
_CROPS, _CROP = 8, 512  # number, and side in pixels, of the crops that stand for a large image
_PIXELS_KEPT = 2**23  # of results that are kept for undoing
_DOTS, _DOT = 12, 3  # number, and radius in pixels, of the dots that stand for a segment without strokes
_MOST_DOUBTS = 9
_LARGEST_BETWEEN = 2**20  # pixels of an image that is fitted anew, and to other numbers, between strokes
_PAUSE = 0.2  # seconds between two reports of progress
_REST = 1.0  # seconds after which no other stroke is expected soon


class Painted(NamedTuple):
    """A model, and what its labels mean."""

    model: Segmenter
    members: tuple[Member, ...]  # windows of images it was fitted to; those of large ones are crops
    parameters: Mapping[str, Any]
    fit: Classes = ()  # of every label when it was fitted, from 1; several where segments had been merged
    is_halved: bool = False  # segments were split since, which no option of the command does
    strokes: tuple[Operation, ...] = ()
    seeds: Seeds | None = None  # with which it was fitted, of each member
    left: Mapping[int, NDArray[np.bool_]] = {}  # what lassos have left of images

    @property
    def classes(self) -> Classes:
        """Classes of every label, from 1; several where segments were merged."""
        return tuple(sum((self.fit[k - 1] for k in own), ()) for own in self.model.fitted_labels)


class Canvas:
    """An image that is painted on; of a large one only windows are in memory."""

    def __init__(self, name: str, page: Any, is_large: bool) -> None:
        self.name, self.page, self.is_large, self.pixel_size = name, page, is_large, page.pixel_size
        self.shape = H, W = int(page.shape[0]), int(page.shape[1])
        self.shown = shown_shape(self.shape)
        self.everything: Window = (slice(0, H), slice(0, W))

    @cached_property
    def _whole(self) -> Any:
        return self.page.read(self.everything)

    def read(self, window: Window) -> Any:
        """Pixels of a window, and where they hold data."""
        if self.is_large:
            return self.page.read(window)
        pixels, mask = self._whole[:2]
        return self._whole._replace(pixels=pixels[window], mask=None if mask is None else mask[window])

    @cached_property
    def _reduced(self) -> tuple[NDArray[np.float32], tuple[float, float]]:
        n_edges = max(2, self.shown[0] // 32 * self.is_large)
        edges = np.linspace(0, self.shown[0], n_edges).astype(int).tolist()
        strips = []
        for top, bottom in itertools.pairwise(edges):
            rows = slice(*(round(edge * self.shape[0] / self.shown[0]) for edge in (top, bottom)))
            pixels, mask = self.read((rows, self.everything[1]))[:2]
            shape, valid = (bottom - top, self.shown[1]), valid_pixels(pixels, mask)
            strips.append((reduced(pixels.astype(np.float32), shape), reduced_labels(valid, shape)))
        small, valid = map(np.concatenate, zip(*strips, strict=True))
        return small, display_range(small, valid)

    def picture(self, window: Window | None, shape: tuple[int, int]) -> NDArray[np.uint8]:
        """Picture (h, w, 3) of a window, or of all of it, at a size."""
        pixels = self._reduced[0] if window is None else self.read(window).pixels
        return reduced(np.rint(displayable(pixels, *self._reduced[1])).astype(np.uint8), shape)

    @cached_property
    def look(self) -> Look:
        """What it looks like, at the size of the overview."""
        return Look.of(self.picture(None, self.shown))


class Session:
    """Images, what is painted on them (kept in `path`), and a thread that keeps a model up to date."""

    def __init__(
        self, pictures: Sequence[Canvas], parameters: Mapping[str, Any], save: Callable[..., Any], path: Path
    ) -> None:
        self.pictures, self.parameters, self.path, self._save = list(pictures), dict(parameters), path, save
        self.changed = threading.Condition()
        self.version = self.painted = self.number = self.contents = 0  # of all, operations, models, content
        self.operations: list[Operation] = []
        self.undone: list[Operation] = []
        self.progress: Progress | None = None
        self.said: list[tuple[int, str]] = []
        self.saved: dict[str, Any] = {}
        self.state: Any = None  # `Painted`, as soon as there is one
        self.labels: dict[int, NDArray[np.uint8]] = {}  # of images, in full
        self.confidence: dict[int, NDArray[np.uint8]] = {}  # of these labels, times 255
        self.content: dict[int, dict[str, Any]] = {}
        self._seen: dict[int, float] = {0: 0.0}  # when each image was last looked at
        self._blocks: dict[int, set[Place]] = {}  # that are labelled; an image that fits is one
        self._wanted: list[tuple[int, Any]] = []  # images and places of blocks
        self._kept: dict[tuple[int, ...], Painted] = {}
        self._built: tuple[int, ...] | None = None
        self._prepared: Any = None  # what is known for strokes, of the present segments
        self._stuck = -1  # operations on which a job has failed
        self._broken: set[int] = set()  # operations that cannot be done
        self._to_save: list[tuple[int, tuple[str, ...]]] = []
        self._stop, self._is_filling, self._is_closed, self._told = threading.Event(), True, False, 0.0
        self._is_settling, self._written, self._painted_at = False, b"", 0.0
        self._about = [[picture.name, *picture.shape] for picture in self.pictures]
        self._other_paths = (path.with_stem(f"{path.stem}_{n}") for n in itertools.count(2))
        self._restore()
        self._thread = threading.Thread(target=self._run, daemon=True, name="texseg-session")
        self._thread.start()

    # ---- what windows do ---------------------------------------------------------------------------------

    def do(self, given: Any, by: str) -> None:
        """Do one operation of a window; a ValueError says what is wrong with it."""
        with self.changed:
            if len(self.operations) >= _MOST_OPERATIONS:
                raise ValueError(f"at most {_MOST_OPERATIONS:,} operations are kept; save, and start anew")
            last = max((each["id"] for each in (*self.operations, *self.undone)), default=0)
            operation = self.checked(given, last + 1, by)
            self.operations.append(operation)
            self.undone = [each for each in self.undone if each["by"] != by]
            self._keep(operation["kind"])

    def undo(self, by: str, again: bool = False) -> None:
        """Take the last operation of a window out, or put it in again."""
        with self.changed:
            source, target = (self.undone, self.operations) if again else (self.operations, self.undone)
            if own := [each for each in source if each["by"] in (by, "earlier")]:
                source.remove(own[-1])
                target.append(own[-1])
                self.operations.sort(key=lambda each: each["id"])
                self._keep(own[-1]["kind"])

    def cancel(self) -> None:
        """Stop what is being computed; an operation that wants a new fit is removed."""
        with self.changed:
            self._stop.set()
            self._is_filling, built = False, self._built or ()
            if fits := [e for e in self.live if e["kind"] in ("fit", "mask") and e["id"] not in built]:
                self.operations.remove(fits[-1])
                self._keep("fit")
            self.tell("stopped")

    def save(self, image: int, kinds: Sequence[str]) -> None:
        """Write results of some kinds, when all strokes are learned."""
        with self.changed:
            self._stuck = -1
            self._to_save.append((image, tuple(map(str, kinds))))
            self.tell("saving ...")

    def look(self, image: int) -> None:
        """Note that a window looks at an image, so that its labels are wanted."""
        with self.changed:
            if image not in self._seen:
                self._stuck = -1
                self.changed.notify_all()
            self._seen[image] = time.monotonic()

    def want(self, image: int, window: Window) -> None:
        """Label a part of a large image next."""
        with self.changed:
            plan = self.plan(image)
            pairs = zip(window, plan.sides, strict=True)
            ranges = (range(part.start // side, -(-part.stop // side)) for part, side in pairs)
            missing = set(itertools.product(*ranges)) - self._blocks.get(image, set())
            self._wanted = [*((image, place) for place in sorted(missing)), *self._wanted][:64]
            self.changed.notify_all()

    def tell(self, text: str) -> None:
        """Say something on the page."""
        with self._telling():
            self.said = [*self.said[-19:], (self.version + 1, text)]

    def close(self) -> bool:
        """Stop computing; tell whether it has stopped within a second."""
        with self._telling():
            self._is_closed = True
            self._stop.set()
        self._thread.join(1.0)
        return not self._thread.is_alive()

    def checked(self, given: Any, number: int, by: str) -> Operation:
        """Check what came from a window or from a file, and number it."""
        match given:
            case {"kind": "stroke", "image": image, "cls": cls, "points": points}:
                own = {"image": self.image(image), "cls": _whole(cls), "points": _points(points)}
            case {"kind": "mask", "image": image, "keep": bool(keep), "points": [_, _, _, *_] as points}:
                own = {"image": self.image(image), "keep": keep, "points": _points(points)}
            case {"kind": "merge", "classes": [_, _, *_] as classes} if len(classes) <= MOST_SEGMENTS:
                own = {"classes": [_whole(cls, 1) for cls in classes]}
            case {"kind": "split", "cls": cls}:
                own = {"cls": _whole(cls, 1)}
            case {"kind": "name", "cls": cls, "name": name}:
                ((_, text),) = checked_edits({"names": {"1": name}}).names
                own = {"cls": _whole(cls, 1), "name": text.strip()[:60]}
            case {"kind": "fit", "values": dict(values)} if set(values) <= set(FITTED):
                own = {"values": {name: PARAMETERS[name].checked(value) for name, value in values.items()}}
            case {"kind": "class" | "anew"}:
                own = {"cls": 1000 * number}
            case _:
                raise ValueError("this is not an operation of the page")
        return {"kind": given["kind"], **own, "id": number, "by": by}

    def image(self, number: Any) -> int:
        """Check the number of an image."""
        return _whole(number, 0, len(self.pictures) - 1)

    def _restore(self) -> None:
        while self.path.exists():
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                with open_regular(self.path) as file:
                    self._written = file.read()
                found = json.loads(self._written)
                if found["images"] == self._about:
                    own = ((each, _whole(each["id"], 1)) for each in found["operations"])
                    self.operations = [self.checked(*each, "earlier") for each in own]
                    return
            self._go_elsewhere("does not belong to these images")

    def _keep(self, changed: str) -> None:
        if changed in ("fit", "mask", "anew") or self._is_settling:
            self._stop.set()  # what is being computed is no longer wanted
        kept = [{name: value for name, value in each.items() if name != "by"} for each in self.operations]
        while self.path.exists() and self.path.read_bytes() != self._written:
            self._go_elsewhere("was changed by another page")
        self._written = json.dumps({"images": self._about, "operations": kept}).encode()
        atomic_write(self.path, self._written)
        with self._telling():
            self.painted, self._painted_at = self.painted + 1, time.monotonic()

    def _go_elsewhere(self, why: str) -> None:
        before, self.path, self._written = self.path, next(self._other_paths), b""
        self.tell(f"{before.name} {why}; strokes are kept in {self.path.name}")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Change what windows are told, and wake those that wait for it."""
        with self.changed:
            yield
            self.version += 1
            self.changed.notify_all()

    # ---- what the operations amount to -------------------------------------------------------------------

    @property
    def live(self) -> list[Operation]:
        """Operations since everything was begun anew, without those that cannot be done."""
        start = max((n for n, each in enumerate(self.operations, 1) if each["kind"] == "anew"), default=0)
        return [each for each in self.operations[start:] if each["id"] not in self._broken]

    @property
    def _ids(self) -> tuple[int, ...]:
        return tuple(each["id"] for each in self.live if each["kind"] not in ("name", "class"))

    @property
    def is_behind(self) -> bool:
        """Whether there are operations that the model does not follow yet."""
        return self._ids != self._built

    @property
    def is_stuck(self) -> bool:
        """Whether the last job has failed; other operations, or another image, may help."""
        return self._stuck == self.painted

    @property
    def will_settle(self) -> bool:
        """Whether a new fit to the strokes on an image will replace a quick refit; of large ones, to save."""
        state = self.state
        if state is None or not state.strokes or state.seeds is not None:
            return False
        picture = self.pictures[state.members[0][0]]
        may_settle = not (state.is_halved or state.members[1:] or picture.is_large)
        return may_settle and (bool(self._to_save) or math.prod(picture.shape) <= _LARGEST_BETWEEN)

    def classes(self) -> list[dict[str, Any]]:
        """Classes that one can paint, in the order of the labels: those of segments, then those added."""
        with self.changed:
            every, live = list(() if self.state is None else self.state.classes), self.live
        used, given = set(itertools.chain(*every)), dict[int, str]()
        every += [(each["cls"],) for each in live if each["kind"] == "class" and each["cls"] not in used]
        for n, each in enumerate(live):
            if each["kind"] == "name":
                given[each["cls"]] = each["name"]
            elif each["kind"] in ("fit", "mask") and not any(one["kind"] == "stroke" for one in live[:n]):
                given = {}  # these are other segments
        names = [next((given[c] for c in own if given.get(c)), "") for own in every]
        names = [name if name not in names[:k] else "" for k, name in enumerate(names)]
        return [{"cls": own[0], "name": name} for own, name in zip(every, names, strict=True)]

    def seeds_of(
        self, state: Painted, strokes: Sequence[Operation], maps: Sequence[NDArray[np.int32]] = ()
    ) -> Seeds:
        """Seeds of the members by labels of the fit; dots lie deep in segments of maps without strokes."""
        found = [rasterised(strokes, numbered(state.fit), *member) for member in state.members]
        painted = classes_in(found)
        for own, labels in zip(found, maps, strict=False):
            for label in np.setdiff1d(classes_in([labels]), painted).tolist():
                box = slice(0, labels.shape[0]), slice(0, labels.shape[1])
                for y, x, depth in deepest_places(labels, label, box, _DOTS, apart=8 * _DOT):
                    if not own[y, x]:
                        cv2.circle(own, (x, y), max(0, min(_DOT, int(depth) - 1)), label, cv2.FILLED)
        return [own if own.any() else None for own in found]

    def _fitted(self, state: Painted, seeds: Seeds | None, n_segments: int | None) -> Painted:
        """Fit a model to the members of a state."""
        given = {**state.parameters, "n_segments": n_segments}
        if any(self.pictures[image].is_large for image, _ in state.members):
            given["flat_ground"] = False  # crops do not show how much there is
        images = [self.data(*member, state.left) for member in state.members]
        model = fit_model(images, given, self.follow, seeds)
        model.callback = None
        used = set(itertools.chain(*state.fit))
        fit = (*state.fit, *((c,) for c in range(1, MOST_SEGMENTS + 1) if c not in used))
        return state._replace(model=model, seeds=seeds, fit=fit[: model.n_segments_])

    def data(self, image: int, window: Any, left: Mapping[int, NDArray[np.bool_]]) -> Any:
        """Pixels of a window, and where they hold data inside of all lassos."""
        read = self.pictures[image].read(window)
        mask = np.ones(read.shape, bool) if read.mask is None else read.mask
        return read._replace(mask=mask & left[image][window] if image in left else mask)

    def _first(self, parameters: Mapping[str, Any], left: Mapping[int, NDArray[np.bool_]]) -> Painted:
        picture = self.pictures[0]
        windows: Any = [picture.everything]
        if picture.is_large:
            windows = read_crops(picture, n_crops=_CROPS, side=_CROP)[0].windows
        members: Any = tuple((0, window) for window in windows)
        state = Painted(None, members, parameters, left=left)  # type: ignore[arg-type]
        return self._fitted(state, None, parameters.get("n_segments"))

    def _seen_of(self, members: Sequence[Member], strokes: Sequence[Operation]) -> set[int]:
        """Find the classes whose strokes are not erased."""
        every = sorted({0, *(each["cls"] for each in strokes)})
        numbers = {c: k for k, c in enumerate(every)}
        return {every[k] for k in classes_in([rasterised(strokes, numbers, *each) for each in members])}

    def _with_strokes(self, state: Painted, live: Sequence[Operation]) -> Painted:
        strokes, classes = [each for each in live if each["kind"] == "stroke"], state.classes
        members = self._members(state.members, strokes)
        painted = self._seen_of(members, strokes)
        if not painted:
            return self._state_of([each for each in live if each not in strokes])
        new = sorted(painted - numbered(classes).keys())
        if len(classes) + len(new) == 1:
            return state  # which has this class everywhere
        grown = state._replace(fit=(*classes, *((c,) for c in new)), is_halved=False, members=members)
        seeds = self.seeds_of(grown, strokes)
        grown = grown._replace(strokes=tuple(strokes), seeds=None)
        if members != state.members or state.model.ground_ is not None:
            return self._fitted_to_strokes(grown)
        model = copy.copy(state.model)
        model.refit(seeds if isinstance(model.labels_, list) else seeds[0])
        return grown._replace(model=model)

    def _fitted_to_strokes(self, state: Painted) -> Painted:
        """Fit a model as the command does that saves it; merged segments stay merged."""
        groups = state.model.fitted_labels
        seeds = self.seeds_of(state, state.strokes, state.model._part_images())
        state = self._fitted(state, seeds, len(state.fit))
        state.model.merge([own for own in groups if own[1:]])
        return state

    def _settle(self) -> None:
        """Replace a quick refit by a new fit to the same strokes, unless another operation comes first."""
        with self.changed:
            ids, state, self._is_settling = self._built, self.state, True
        assert ids is not None
        try:
            self._kept[ids] = self._fitted_to_strokes(state)
            self._publish(ids, self._kept[ids])
        except (CancelledError, ValueError, TypeError) as error:
            self.state = state._replace(seeds=[])  # it stays as it is
            if not isinstance(error, CancelledError):
                self.tell(str(error))
        finally:
            self._is_settling = False

    def _members(self, members: tuple[Member, ...], strokes: Sequence[Operation]) -> tuple[Member, ...]:
        for stroke in strokes:
            image, canvas = stroke["image"], self.pictures[stroke["image"]]
            for x, y, _ in stroke["points"] if stroke["cls"] else []:
                around = [canvas.everything, *(window for number, window in members if number == image)]
                is_in = [ys.start <= y < ys.stop and xs.start <= x < xs.stop for ys, xs in around]
                if is_in[0] and not any(is_in[1:]):
                    side = _CROP if canvas.is_large else max(canvas.shape)
                    window: Any = window_around((y, x), canvas.shape, side)
                    members = (*members, (image, window))
        return members

    def _after(self, state: Painted, live: Sequence[Operation]) -> Painted:
        """Follow the last of all operations, from the state before it."""
        operation = live[-1]
        if operation["kind"] == "stroke":
            return self._with_strokes(state, live)
        if operation["kind"] in ("fit", "mask"):
            if operation["kind"] == "mask":
                state = state._replace(left=self._lassoed(state.left, operation))
            strokes = [each for each in live if each["kind"] == "stroke"]
            return self._anew(state, operation.get("values", {}), strokes)
        label_of, model = numbered(state.classes), copy.copy(state.model)
        if operation["kind"] == "merge":
            labels = {label_of[c] for c in operation["classes"] if c in label_of}
            model.merge([sorted(labels)] if len(labels) > 1 else [])
        elif operation["cls"] in label_of:
            model.split(label_of[operation["cls"]])
            if sum(map(len, model.fitted_labels)) > len(state.fit):  # it has not been a merge
                state = state._replace(fit=(*state.fit, (1000 * operation["id"],)), is_halved=True)
        return state._replace(model=model)

    def _anew(self, state: Painted, values: Mapping[str, Any], strokes: Sequence[Operation]) -> Painted:
        """Fit with other parameters, or to what a lasso has left; painted classes stay."""
        parameters, is_free = {**state.parameters, **values}, "n_segments" in values
        members, own = self._members(state.members, strokes), {each[0]: each for each in state.classes}
        painted = self._seen_of(members, strokes)
        first = {next((c for c in own if cls in own[c]), cls) for cls in painted}
        if not painted or not is_free and len(own.keys() | first) == 1:
            return self._first(parameters, state.left)
        every = list(dict.fromkeys([*own, *sorted(first), *(range(1, MOST_SEGMENTS) if is_free else ())]))
        wanted = max(2, len(first), values["n_segments"] or 0) if is_free else len(every)
        chosen = {*sorted(every, key=lambda c: (c not in first, every.index(c)))[:wanted]}
        fit = tuple(own.get(c, (c,)) for c in every if c in chosen)
        fresh = Painted(state.model, members, parameters, fit, strokes=tuple(strokes), left=state.left)
        seeds = self.seeds_of(fresh, strokes, () if is_free else state.model._images())
        return self._fitted(fresh, seeds, wanted)

    # ---- the thread that computes ------------------------------------------------------------------------

    def follow(self, progress: Progress) -> None:
        """Show progress, and stop where that is wanted."""
        if self._stop.is_set():
            raise CancelledError
        if time.monotonic() - self._told > _PAUSE:
            self._told = time.monotonic()
            with self._telling():
                self.progress = progress

    def _run(self) -> None:
        while not self._is_closed:
            with self.changed:
                if self.is_stuck or (job := next(self._jobs(), None)) is None:
                    if self.progress is not None:
                        with self._telling():
                            self.progress = None
                    self.changed.wait(_REST or None)
                    continue
                self._stop.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    job()
                except CancelledError:
                    pass
                except Exception as error:  # whatever happens to one job, the page stays alive
                    self._stuck = self.painted
                    self.tell(" ".join(str(error).split()) or type(error).__name__)
            for text in dict.fromkeys(str(each.message) for each in caught):
                self.tell(f"note: {text}")

    def _jobs(self) -> Iterator[Callable[[], None]]:
        if self.is_behind:
            yield self._build
        if self.state is None:
            return
        looked = sorted(self._seen, key=lambda image: -self._seen[image])[:4]
        yield from (job for image in looked if image not in self.labels for job in self._blocks_left(image))
        if not self.confidence.keys() >= {image for image, _ in self.state.members}:
            yield self._measure
        yield from (partial(self._describe, image, False) for image in looked if image not in self.content)
        is_at_rest = time.monotonic() - self._painted_at >= _REST
        if self.will_settle and (is_at_rest or self._to_save):
            yield self._settle
        if self._to_save:
            yield partial(self._write, *self._to_save.pop(0))
        first = self.pictures[self.state.members[0][0]]
        if self.state.model._division is not self._prepared and not first.is_large:
            yield self._prepare
        yield from (partial(self._describe, image, True) for image in looked if self.content[image]["rest"])
        if self._wanted:
            yield partial(self._fill, *self._wanted.pop(0))
        for image in looked if self._is_filling else ():
            yield from self._blocks_left(image)

    def _build(self) -> None:
        with self.changed:
            live = [each for each in self.live if each["kind"] not in ("name", "class")]
            self._is_filling = True
        state = self._state_of(live)
        pixels = sum(math.prod(labels.shape) for labels in state.model._images())
        for old in [each for each in self._kept if each][: -max(2, _PIXELS_KEPT // max(1, pixels))]:
            del self._kept[old]
        self._publish(tuple(each["id"] for each in live), state)

    def _lassoed(self, left: Mapping[int, NDArray[np.bool_]], lasso: Operation) -> dict[int, Any]:
        """Find what one more lasso leaves of its image."""
        image = lasso["image"]
        drawn = np.zeros(self.pictures[image].shape, np.uint8)
        cv2.fillPoly(drawn, [np.array(lasso["points"])[:, :2].astype(np.int32)], 1)
        kept = (drawn > 0) == lasso["keep"]
        return {**left, image: kept & left.get(image, kept)}

    def _state_of(self, live: Sequence[Operation]) -> Painted:
        """Return what operations amount to; strokes in a row are learned at once."""
        ids, kinds = tuple(each["id"] for each in live), [each["kind"] for each in live]
        n = max((n for n in range(len(ids) + 1) if ids[:n] in self._kept), default=0)
        if not n and () not in self._kept:
            self._kept[()] = self._first(self.parameters, {})
        while n < len(ids):
            known = self._kept[ids[:n]]
            while kinds[n] == "stroke" and kinds[n + 1 : n + 2] not in ([], ["merge"], ["split"]):
                n += 1  # only a merge or a split needs what was learned before it
            n += 1
            try:
                self._kept[ids[:n]] = self._after(known, live[:n])
            except (ValueError, TypeError) as error:
                self._broken.add(ids[n - 1])
                self.tell(str(error))
                raise CancelledError from None
        return self._kept[ids]

    def _publish(self, ids: tuple[int, ...], state: Painted) -> None:
        with self._telling():
            self._built, self.state, self.progress = ids, state, None
            self.number += 1
            self.labels, self.confidence, self.content, self._blocks, self._wanted = {}, {}, {}, {}, []
            for (image, window), labels in zip(state.members, state.model._images(), strict=True):
                self._put(self.labels, image, window, labels)
                self._blocks[image] = set() if self.pictures[image].is_large else {(0, 0)}

    def _put(self, maps: dict[int, NDArray[np.uint8]], image: int, window: Window, values: Any) -> None:
        whole = maps.setdefault(image, np.zeros(self.pictures[image].shape, np.uint8))
        left = self.state.left
        whole[window] = values * left[image][window] if image in left else values

    def _measure(self) -> None:
        model, maps = self.state.model, self.state.model.confidence_
        maps = maps if isinstance(model.labels_, list) else [maps]
        for (image, window), own in zip(self.state.members, maps, strict=True):
            self._put(self.confidence, image, window, np.rint(255 * own))

    def _prepare(self) -> None:
        """Compute what each stroke needs, so that the first need not wait for it."""
        self._prepared = division = self.state.model._division
        with one_blas_thread():
            for each in filter(None, (division, division.rival)) if self.state.model.ground_ is None else ():
                each.search.description  # noqa: B018

    def plan(self, image: int) -> BlockPlan:
        """Cut an image into blocks; one that fits is one block."""
        picture = self.pictures[image]
        if picture.is_large:
            return plan_blocks(picture.shape, self.state.model.textures_, SIDE)
        return BlockPlan(picture.shape, max(picture.shape), 0)

    def _blocks_left(self, image: int) -> Iterator[Callable[[], None]]:
        done = self._blocks.get(image, ())
        yield from (partial(self._fill, image, place) for place in self.plan(image) if place not in done)

    def _fill(self, image: int, place: Place) -> None:
        model, plan, picture = self.state.model, self.plan(image), self.pictures[image]
        core: Any = plan.core(place)
        if picture.is_large:
            request = Request(model._smoothness, model.min_size, confidence=True)
            reading = read_block(picture.page, place, plan, model.textures_, request)
            labels, sure = reading.labels, reading.confidence
        else:
            pixels, mask = self.data(image, core, self.state.left)[:2]
            labels, sure = model.predict_with_confidence(pixels, mask=mask)
            sure = np.rint(255 * sure)
        with self._telling():
            self._put(self.labels, image, core, labels)
            self._put(self.confidence, image, core, sure)
            self._blocks.setdefault(image, set()).add(place)
            done, of_all = len(self._blocks[image]), len(plan)
            self.progress = Progress("blocks", done, of_all, done / of_all)
            self.contents += 1
            if done & (done - 1) == 0 or done == of_all:  # less and less often
                self.content.pop(image, None)

    def _describe(self, image: int, with_others: bool) -> None:
        state, picture, model, hierarchy = self.state, self.pictures[image], self.state.model, None
        shape, shown = shapes = picture.shape, picture.shown
        labels = reduced_labels(self.labels[image], shown)
        small = reduced(self.confidence[image], shown) / np.float32(255)
        same: dict[str, Any] = {"shape": shape, "shown": shown, "look": picture.look, "confidence": small}
        about = len(state.classes), labels, model.profiles_
        levels = [level_content(*about, features=model.textures_.features, **same)]
        is_quick = not state.strokes or math.prod(picture.shape) <= _LARGEST_BETWEEN
        has_others = is_quick and state.members == ((image, picture.everything),)
        if with_others and has_others:
            hierarchy = model.hierarchy_
            for k, other in steady_levels(self.labels[image], hierarchy, shown):
                if self.is_behind:
                    return  # a stroke goes first
                levels.append(plain_level(k, other, *shapes))
        chosen = None if state.strokes else hierarchy  # the odds are of the number without strokes
        size = picture.pixel_size and picture.pixel_size[:3]
        content = page_content(model, levels, *shapes, small, chosen, size) | {
            "title": picture.name,
            "number": self.number,
            "classes": [own[0] for own in state.classes],
            "rest": has_others and not with_others,
            "doubts": _doubts(labels, small, shape[0] / shown[0]),
            "parameters": {name: state.parameters.get(name) for name in FITTED},
        }
        with self._telling():
            self.content[image] = content
            self.contents += 1

    def _write(self, image: int, kinds: Sequence[str]) -> None:
        saved = self._save(self, image, kinds)
        with self._telling():
            self.saved = {**saved, "number": self.version + 1}


def rasterised(
    strokes: Sequence[Operation], label_of: Mapping[int, int], image: int, window: Window
) -> NDArray[np.int32]:
    """Paint strokes on a window of an image, in their order: the label of each class, 0 where erased."""
    top, left = (part.start for part in window)
    drawn = np.zeros([part.stop - part.start for part in window], np.uint8)
    for stroke in strokes:
        if stroke["image"] == image and (label := {0: 0, **label_of}.get(stroke["cls"])) is not None:
            places = [(math.floor(x) - left, math.floor(y) - top) for x, y, _ in stroke["points"]]
            pairs = zip([places[0], *places], places, stroke["points"], strict=False)
            for start, end, (_, _, width) in pairs:
                cv2.line(drawn, start, end, label, max(1, round(width)))
    return drawn.astype(np.int32)


def numbered(classes: Classes) -> dict[int, int]:
    """Label of every class, merged ones included."""
    return {c: k for k, own in enumerate(classes, 1) for c in own}


def _doubts(labels: Labels, sure: Floats, scale: float) -> list[Any]:
    """Places, boxes, confidence and labels of the largest regions that are least sure."""
    regions = connected_regions(labels)
    boxes = boxes_of(regions)
    doubt, found = np.bincount(regions.ravel(), (1 - sure).ravel()), []
    doubt[0] = 0
    for region in np.argsort(-doubt, kind="stable")[:_MOST_DOUBTS].tolist():
        if doubt[region] <= 0:
            break
        rows, columns = box = boxes[region - 1]
        unsure = cv2.blur(np.where(regions[box] == region, sure[box], 1).astype(np.float32), (15, 15))
        unsure[regions[box] != region] = 1
        y, x = np.unravel_index(int(unsure.argmin()), unsure.shape)
        edges = (rows.start + y, columns.start + x, rows.start, columns.start, rows.stop, columns.stop)
        where = [int(edge * scale) for edge in edges]
        found.append([*where, float(unsure.min()), int(labels[regions == region][0])])
    return found


def _whole(value: Any, least: int = 0, most: int = 2**40) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"a whole number from {least} to {most} is needed, got {value!r:.60}")
    return value


def _points(points: Any) -> list[list[float]]:
    table = np.array(points, float)
    if table.ndim != 2 or table.shape[1] != 3 or len(table) > _MOST_POINTS:
        raise ValueError(f"points must be a list of 1 to {_MOST_POINTS}, each [column, row, width]")
    if not (np.abs(table) < _FARTHEST).all() or not (table[:, 2] > 0).all():
        raise ValueError(f"points must be finite and near the image, got {points!r:.60}")
    return table.tolist()
