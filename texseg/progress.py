"""Progress bars for fits and batches, on terminals and in notebooks."""

from __future__ import annotations

import sys
from typing import Any, Self, TextIO

from tqdm import tqdm

__all__ = ["ProgressBar"]


class ProgressBar:
    """Show what a fit is doing, and how long that will take: a ``callback`` of TextureSegmenter.

    Nothing is shown unless the stream is a terminal or the output of a notebook.

    Parameters
    ----------
    n_images : int, default=1
        Of one image the steps of each phase are counted; of several the images, see :meth:`step`, with the
        phase behind.
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
        self._stream = stream
        self._bar: Any = None
        self._phase: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Stay one bar when scikit-learn clones an estimator with its parameters."""
        return self

    def __call__(self, progress: Any) -> None:
        """Show a :class:`texseg.segmenter.Progress`."""
        if self.hidden:
            return
        if self._n_images > 1:
            self._images().set_postfix_str(progress.phase)
            return
        if progress.phase != self._phase:
            self.close()
            self._phase = progress.phase
            self._bar = self._opened(progress.total or None, "step", progress.phase)
        self._bar.n = progress.done
        self._bar.refresh()

    def step(self) -> None:
        """Count one more image, and clear the line for what is printed about it."""
        if self._n_images == 1:
            self.close()
        elif not self.hidden:
            bar = self._images()
            bar.update()
            bar.clear()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._phase = None, None

    def _images(self) -> Any:
        if self._bar is None:
            self._bar = self._opened(self._n_images, "image")
        return self._bar

    def _opened(self, total: int | None, unit: str, phase: str | None = None) -> Any:
        return tqdm(desc=phase, total=total, unit=unit, file=self._stream, leave=False)
