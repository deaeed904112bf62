"""What a segmentation costs in memory and time, from the size of the image alone, and how far a fit is.

The constants are measured (``benchmarks/forecast.py``).
"""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO

from texseg.threads import kernels

TYPICAL_SEGMENTS = 5  # assumed in a forecast when their number is not known

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
_TRIALS = 7
_TRIAL_SIDE = 512  # pixels
_WITHOUT_COMPILER = 1.3  # times as long where loops are not compiled
_COSTS = {  # of the phases of a fit, in their order, as measured on images of 512 to 1280 pixels
    "filters": 0.1,
    "histograms": 0.02,
    "number": 0.28,
    "annealing": 0.14,
    "clusters": 0.28,
    "borders": 0.24,
    "pixels": 0.15,
}
_PRESETS = ("default", "plain")
_IN_SPACE = 1.15  # times the memory of a pixel that a voxel takes ...
_LONGER_IN_SPACE = 2.5  # ... and of the time; to label it alone, against a pixel's:
_LABELLED_IN_SPACE = 2.5
_PER_MEGAPIXEL = 120.0  # trials, for labelling blocks ...
_LOOKED_AT = 10.0  # ... and for the look at all of it from which crops are chosen
# Fitted to runs. Bytes of the search, with each channel more, share of each segment, pixels at which it takes
# half, a power; once, of a pixel, with each channel more; factors of "plain"; of a report: factor, a pixel.
_BYTES = (81.6e6, 0.624e6, 0.0236, 91.5e3, 1.29, 0.57e6, 46.0, 11.5, 0.765, 1.11, 1.4, 215.0)
_BYTES_OF_A_SEGMENT = 6.5  # of a pixel
_OF_NARROW = 0.46  # power of a narrow image's share of the square around it
# Trials once, times pixels to a power, of a megapixel, with each channel more; shares of a segment below five
# and above; factors of "plain", and where the number is chosen.
_TRIALS_OF = (34.1, 0.221, 134.0, 0.223, 0.0035, 0.068, 0.58, 1.14)


def expected_memory(
    n_pixels: int,
    n_channels: int = 1,
    n_segments: int | None = None,
    preset: str = "default",
    n_axes: int = 2,
    has_report: bool = False,
    longest: int = 0,
) -> float:
    """Bytes at most that segmenting images of so many pixels in all takes, besides the imported libraries.

    Of volumes, with three axes, they are voxels. A ``longest`` side that is known tells of a narrow image.
    """
    _check_preset(preset)
    search, of_channel, share, half, power, once, pixel, of_channels, *plain, of_report, report = _BYTES
    more, K, factors = n_channels - 1, n_segments or TYPICAL_SEGMENTS, plain if preset == "plain" else (1, 1)
    searching = (search + of_channel * more) * (1 + share * K) * (n_pixels / (n_pixels + half)) ** power
    searching *= _narrower(n_pixels, longest)
    labelling = once + n_pixels * (pixel + _BYTES_OF_A_SEGMENT * K + of_channels * more)
    most = [searching * factors[0], labelling * factors[1]]
    if has_report:
        most = [most[0] * of_report, most[1], n_pixels * report]
    return max(most) * (1.0 if n_axes == 2 else _IN_SPACE)


def _narrower(n_pixels: int, longest: int) -> float:
    """Cost of the search in an image, relative to a square: cells follow the longer side."""
    return min(1.0, n_pixels / max(1, longest) ** 2) ** _OF_NARROW


def expected_seconds(
    shape: Sequence[int], n_segments: int | None = None, preset: str = "default", n_channels: int = 1
) -> float:
    """Seconds of all threads together that an image or a volume takes, as multiples of a timed trial."""
    _check_preset(preset)
    once, power, megapixel, of_channel, below, above, plain, chosen = _TRIALS_OF
    n_pixels, beyond = math.prod(shape), (n_segments or TYPICAL_SEGMENTS) - TYPICAL_SEGMENTS
    megapixel *= (1.0 if len(shape) == 2 else _LONGER_IN_SPACE) * (1 + of_channel * (n_channels - 1))
    once *= _narrower(n_pixels, max(shape)) if len(shape) == 2 else 1.0
    trials = once * min(1.0, n_pixels / _TRIAL_SIDE**2) ** power + megapixel * n_pixels / 1e6
    trials *= (1 + beyond * (below if beyond < 0 else above)) * (chosen if n_segments is None else 1.0)
    trials *= (_WITHOUT_COMPILER if kernels is None else 1.0) * (plain if preset == "plain" else 1.0)
    return trials * _seconds_of_a_trial()


def seconds_of_labelling(n_pixels: int, n_axes: int = 2) -> float:
    """Seconds of all threads together that labelling so many pixels by blocks takes; of voxels, all read."""
    trials = _PER_MEGAPIXEL + _LOOKED_AT if n_axes == 2 else _LABELLED_IN_SPACE * _PER_MEGAPIXEL
    return trials * n_pixels / 1e6 * _seconds_of_a_trial()


def costs_of(settings: Any) -> dict[str, float]:
    """Relative time of the phases of a fit, in their order, given its :class:`texseg.parameters.Settings`."""
    costs = dict(_COSTS)
    if settings.n_segments is not None:
        del costs["number"]
    else:
        del costs["annealing"]  # it is part of choosing the number
        costs["clusters"] /= 2
    if not settings.learned_borders or settings.smoothness == 0:
        del costs["borders"]
    if settings.model != "acm":
        costs.pop("annealing", None)
        costs["clusters"] = 1.0
    return costs


def free_memory() -> int:
    """Bytes of memory that this process may still use, by the tightest limit; 4 GB if none is known."""
    free: list[int] = []
    for found in (_in_machine, _in_control_groups, _in_address_space, _in_job):
        with contextlib.suppress(OSError, ValueError, IndexError, ImportError):
            free += found()
    return max(0, min(free, default=4 * 10**9))


def _in_machine() -> list[int]:
    lines = (_ROOT / "proc/meminfo").read_text().splitlines()
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _in_control_groups() -> list[int]:
    """Limit of every group around this process, less what its members use apart from the files they read."""
    left = []
    for line in (_ROOT / "proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        mount, limit, used, unneeded = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        if controllers:
            mount, limit, used = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            unneeded = "total_inactive_file"
            if "memory" not in controllers.split(","):
                continue
        place = _ROOT / mount / group.strip("/")
        for folder in (place, *place.parents[: len(Path(group.strip("/")).parts)]):
            with contextlib.suppress(OSError, ValueError):  # "max", or beyond the container
                room = int((folder / limit).read_text()) - int((folder / used).read_text())
                left.append(room)
                of_files = f"\n{(folder / 'memory.stat').read_text()}".partition(f"\n{unneeded} ")[2]
                left[-1] += int(of_files.split("\n", 1)[0] or 0)
    return left


def _in_address_space() -> list[int]:
    """Return what is left of ``ulimit -v``."""
    import resource  # not on Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return []
    return [limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()]


def _in_job() -> list[int]:
    """Return what SLURM grants this job on this machine."""
    megabytes = os.environ.get("SLURM_MEM_PER_NODE")
    if megabytes is None and "SLURM_MEM_PER_CPU" in os.environ:
        megabytes = str(int(os.environ["SLURM_MEM_PER_CPU"]) * int(os.environ.get("SLURM_CPUS_ON_NODE", 1)))
    return [int(megabytes) * 2**20] if megabytes and int(megabytes) > 0 else []


_ROOT = Path("/")


def _check_preset(preset: str) -> None:
    if preset not in _PRESETS:
        raise ValueError(f"preset must be one of {', '.join(_PRESETS)}, got {preset!r}")


def _seconds_of_a_trial() -> float:
    """Time the kinds of work that make up a segmentation: transforms, filters, functions, histograms."""
    import cv2
    import numpy as np

    # once a large array has been freed, C libraries keep the memory, as during a segmentation
    np.empty(2**22, np.float32).fill(0)
    image = np.random.default_rng(0).standard_normal((_TRIAL_SIDE, _TRIAL_SIDE), np.float32)
    seconds = []
    for _ in range(_TRIALS):
        start = time.process_time()
        spectrum = cv2.dft(image, flags=cv2.DFT_COMPLEX_OUTPUT)
        spectrum = cv2.dft(spectrum * spectrum, flags=cv2.DFT_INVERSE | cv2.DFT_SCALE | cv2.DFT_REAL_OUTPUT)
        smooth = cv2.blur(spectrum, (33, 33))
        np.exp(smooth * np.float32(1e-3)).sum()
        np.bincount((np.abs(image) * 10).astype(np.intp).ravel())
        seconds.append(time.process_time() - start)
    return sorted(seconds)[_TRIALS // 2]


# ---- how far a fit is -------------------------------------------------------------------------------------


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
    """Tells callbacks which phase a fit is in, and which share of its time is over, by the phases' costs."""

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

    ``n_images`` are fitted one after the other, and :meth:`step` counts them; ``stream`` is standard error by
    default; ``hidden`` shows nothing at all.

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
