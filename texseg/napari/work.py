"""Background work: fits and predictions, which report their progress and stop when asked."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from threading import Event
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from texseg.estimator import TextureSegmenter
from texseg.method.blocks import is_lazy
from texseg.method.edits import Edits
from texseg.napari.source import Index, LayerSource
from texseg.progress import Progress

MOST_FITTED = 8  # planes of a stack that one model is fitted to; the others are labelled by it

_FIT = 0.85  # share of the time spent on the fit itself; the rest goes to the hierarchy


class Stopped(Exception):
    """The user has stopped the job."""


class Result(NamedTuple):
    """What a job has found."""

    model: TextureSegmenter
    labels: NDArray[np.integer]  # of the shape of the source; 0 on planes that were not requested
    levels: tuple[int, ...]  # numbers of segments there are labels for, without a new fit
    fitted: tuple[Index, ...]  # planes that the model was fitted to, in its order

    def labels_at(self, number: int) -> NDArray[np.integer]:
        """Labels with another number of segments."""
        if number == self.model.n_segments_:
            return self.labels
        out = np.zeros_like(self.labels)
        for index, image in zip(self.fitted, self.model.hierarchy_.level(number), strict=True):
            out[index] = image
        return out

    def merged(self, groups: Sequence[Sequence[int]]) -> tuple[Self, NDArray[np.integer]]:
        """Merge segments of the model and of all labels; also return the new label of each old one."""
        K = self.model.n_segments_
        label_of = np.concatenate([[0], Edits(tuple(map(tuple, groups))).classes(K) + 1])
        label_of = label_of.astype(self.labels.dtype)
        self.model.merge(groups)
        levels = _levels(self.model) if self.fitted else (self.model.n_segments_,)
        return self._replace(labels=label_of[self.labels], levels=levels), label_of


class Job:
    """One fit or prediction of some planes; the methods are generators for one of napari's threads.

    Progress, a text and a share from 0 to 1, is passed to ``tell``. :meth:`stop` ends a job by `Stopped`.
    """

    def __init__(self, source: LayerSource, indices: list[Index], tell: Callable[[str, float], Any]) -> None:
        self._source, self._indices, self._tell = source, indices, tell
        self._stop = Event()

    def stop(self) -> None:
        """Stop the job at its next step."""
        self._stop.set()

    def fit(self, model: TextureSegmenter) -> Iterator[Result]:
        """Fit a model, and yield twice: first the labels, then again with the other numbers of segments."""
        model.set_params(callback=self._follow, channel_axis=self._source.channel_axis)
        painted = [index for index in self._source.painted if index in self._indices]
        chosen = _spread(painted, MOST_FITTED)
        others = [index for index in self._indices if index not in painted]
        chosen = sorted(chosen + _spread(others, MOST_FITTED - len(chosen)))
        sample = list(self._source.planes(chosen))
        if not sample:
            raise ValueError("the mask covers every pixel; choose another mask, or none")
        seeds: Any = [self._source.seeds(plane.place) for plane in sample]
        if self._source.is_too_large and self._source.n_axes == 3:
            raise ValueError("this volume needs more memory than is free; try `texseg segment --volume`")
        if self._source.is_too_large:  # it is learned from crops of a single plane
            sample = sample[len(sample) // 2 :][:1]
        if len(sample) == 1:
            model.fit(sample[0].pixels, mask=sample[0].mask, seeds=seeds[0])
        else:
            masks, pixels = [plane.mask for plane in sample], [plane.pixels for plane in sample]
            model.fit(pixels, mask=masks, seeds=None if seeds[0] is None else seeds)
        model.set_params(callback=None)
        if is_lazy(model.labels_):
            model.labels_ = self._computed(model.labels_)
        yield from self._all_found(model, tuple(plane.place for plane in sample))

    def refit(self, model: TextureSegmenter, fitted: tuple[Index, ...]) -> Iterator[Result]:
        """Correct a model that was fitted to some planes by the seeds on them, and yield as `fit` does."""
        self._note("seeds", 0.0)
        missed = [index for index in self._source.painted if index not in fitted]
        if missed:
            raise ValueError(f"plane {missed[0]} has seeds, but the model has not seen it; press Segment")
        if model.ground_ is not None:  # seeds cannot be combined with one
            yield from self.fit(clone(model).set_params(n_segments=model.n_segments_))
            return
        seeds: Any = [self._source.seeds(place) for place in fitted]
        model.refit(seeds if isinstance(model.labels_, list) else seeds[0])
        yield from self._all_found(model, fitted)

    def split(self, model: TextureSegmenter, fitted: tuple[Index, ...], label: int) -> Iterator[Result]:
        """Split a segment of a model that was fitted to some planes, and yield as :meth:`fit` does."""
        self._note("splitting", 0.0)
        model.split(label)
        yield from self._all_found(model, fitted)

    def _all_found(self, model: TextureSegmenter, fitted: tuple[Index, ...]) -> Iterator[Result]:
        labels = getattr(model, "labels_", [])
        own = labels if isinstance(labels, list) else [labels]
        everywhere = self._predicted(model, dict(zip(fitted, own, strict=True)))
        if self._source.is_too_large:  # what was fitted is not all of it
            fitted = ()
        found = Result(model, everywhere, (model.n_segments_,), fitted)
        yield found
        self._note("coarse and fine", _FIT)
        if fitted and len(self._indices) <= MOST_FITTED:  # else there are planes that the hierarchy lacks
            levels = _levels(model)
            self._note("coarse and fine", 1.0)
            yield found._replace(levels=levels)

    def apply(self, model: TextureSegmenter) -> Iterator[Result]:
        """Find the textures of a model again, and yield the labels."""
        model = copy(model)
        model.set_params(channel_axis=self._source.channel_axis)
        yield Result(model, self._predicted(model, {}), (model.n_segments_,), ())

    def _predicted(
        self, model: TextureSegmenter, known: dict[Index, NDArray[np.integer]]
    ) -> NDArray[np.integer]:
        """Labels of all planes; those already known are kept."""
        out = np.zeros(self._source.shape, np.uint8 if self._source.is_too_large else np.int32)
        for index, labels in known.items():
            out[index] = labels
        others = [index for index in self._indices if index not in known]
        for done, index in enumerate(others):
            self._note(f"plane {done + 1} of {len(others)}", done / len(others))
            for plane in self._source.planes([index]):
                labels = model.predict(plane.pixels, mask=plane.mask)
                out[index] = self._computed(labels) if is_lazy(labels) else labels
        return out

    def _computed(self, labels: Any) -> NDArray[np.uint8]:
        """Compute lazy labels, of which there are at most 255, block by block."""
        from dask.array import store
        from dask.callbacks import Callback

        def follow(_key: Any, _result: Any, _graph: Any, state: Any, _thread: Any) -> None:
            left = sum(len(state[name]) for name in ("waiting", "ready", "running"))
            self._note("blocks", len(state["finished"]) / max(1, left + len(state["finished"])))

        out = np.zeros(labels.shape, np.uint8)
        with Callback(posttask=follow):
            store(labels.astype(np.uint8), out, lock=False)
        return out

    def _follow(self, progress: Progress) -> None:
        self._note(progress.phase, _FIT * progress.share)

    def _note(self, text: str, share: float) -> None:
        if self._stop.is_set():
            raise Stopped
        self._tell(text, share)


def _levels(model: TextureSegmenter) -> tuple[int, ...]:
    """Numbers of segments in the hierarchy, if the model has one, and its own."""
    numbers = getattr(getattr(model, "hierarchy_", None), "n_segments", ())
    return tuple(sorted({*(int(k) for k in numbers), model.n_segments_}))


def _spread(indices: list[Index], most: int) -> list[Index]:
    """Pick at most ``most`` of the indices, evenly spread, including the first and the last."""
    if not indices or most < 1:
        return []
    places = np.unique(np.linspace(0, len(indices) - 1, min(most, len(indices))).round().astype(int))
    return [indices[place] for place in places]
