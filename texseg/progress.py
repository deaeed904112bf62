"""How far a fit is: what callbacks are told, and bars that show it on terminals and in notebooks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TextIO

__all__ = ["Phases", "Progress", "ProgressBar"]

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"


class Progress(NamedTuple):
    """What a ``callback`` is told whenever a step begins, and once more at the end."""

    phase: str
    """"filters", "histograms", "number" (or "annealing"), "clusters", "borders" (if learned), "pixels"; or
    "blocks" of an image that is read by windows."""
    done: int
    """Steps of the phase that are behind."""
    total: int
    """Steps of the phase."""
    share: float
    """Part of the time of the whole fit that is behind, 0 to 1; an estimate."""


class Phases:
    """Tells callbacks which phase a fit is in, and which share of its time is behind.

    Examples
    --------
    >>> tell = Phases([print], {"filters": 1.0, "clusters": 3.0})
    >>> tell("clusters", 1, 2)
    Progress(phase='clusters', done=1, total=2, share=0.625)
    """

    def __init__(
        self, callbacks: Sequence[Callable[[Progress], Any] | None], costs: Mapping[str, float]
    ) -> None:
        self._callbacks = [callback for callback in callbacks if callback is not None]
        self._costs = dict(costs)

    def __call__(self, phase: str, done: int = 0, total: int = 1, part: float | None = None) -> None:
        """Tell that ``done`` of ``total`` steps are behind; ``part`` of the phase, if that is another one."""
        part = done / total if part is None else part
        phases = list(self._costs)
        before = sum(self._costs[name] for name in phases[: phases.index(phase)])
        share = (before + part * self._costs[phase]) / sum(self._costs.values())
        share = min(share, 1.0)  # sums of floats are rounded, in newer Pythons each in its own way
        for callback in self._callbacks:
            callback(Progress(phase, done, total, share))


class ProgressBar:
    """Show what a fit is doing, and how long that will take: a ``callback`` of TextureSegmenter.

    ``TextureSegmenter(verbose=True)`` opens one for each fit. Nothing is shown unless the stream is a
    terminal or the output of a notebook.

    Parameters
    ----------
    n_images : int, default=1
        Images that are fitted one after the other; :meth:`step` counts them.
    stream : text stream, optional
        Standard error by default.
    hidden : bool, default=False
        Show nothing at all.

    Examples
    --------
    >>> from texseg import TextureSegmenter
    >>> with ProgressBar() as bar:
    ...     model = TextureSegmenter(n_segments=2, callback=bar)
    """

    def __init__(self, n_images: int = 1, *, stream: TextIO | None = None, hidden: bool = False) -> None:
        stream = sys.stderr if stream is None else stream
        in_notebook = type(stream).__module__.startswith("ipykernel")
        self.hidden = hidden or not (stream.isatty() or in_notebook)
        self._n_images = n_images
        self._n_done = 0
        self._stream = stream
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._n_images > 1:
            self._show(0.0, "")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Stay one bar when scikit-learn clones an estimator with its parameters."""
        return self

    def __call__(self, progress: Progress) -> None:
        """Show how far the fit of an image is."""
        steps = f" {progress.done}/{progress.total}" if progress.total > 1 else ""
        self._show(self._n_done + progress.share, progress.phase + steps)

    def step(self) -> None:
        """Count one more image, and clear the line for what is printed about it."""
        self._n_done += 1
        if self._n_images == 1:
            self.close()
        elif not self.hidden:
            self._show(self._n_done, "")
            self._bar.clear()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def _show(self, n: float, phase: str) -> None:
        """Show ``n`` images as done, the last one in part."""
        if self.hidden:
            return
        images = f"{self._n_done}/{self._n_images} images" if self._n_images > 1 else ""
        label = ", ".join(filter(None, (images, phase)))
        if self._bar is None:
            from tqdm import tqdm  # most calls show nothing

            total = self._n_images
            self._bar = tqdm(desc=label, total=total, bar_format=_FORMAT, file=self._stream, leave=False)
        self._bar.set_description_str(label, refresh=False)
        self._bar.n = min(n, self._n_images)
        self._bar.refresh()
