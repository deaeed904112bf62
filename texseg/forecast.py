"""What a segmentation needs in memory and time, estimated from the size of the image alone.

The constants are measured (``benchmarks/forecast.py``).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "TYPICAL_SEGMENTS",
    "costs_of",
    "expected_by_blocks",
    "expected_memory",
    "expected_seconds",
    "free_memory",
]

TYPICAL_SEGMENTS = 5
"""Number of segments assumed in a forecast when it is not known."""

_BASE = 50e6  # bytes; threads keep some of the memory they have freed
_TRIALS = 7
_TRIAL_SIDE = 512
_OF_CHOOSING = 1.4  # times as long with the default preset when the number is chosen; 1.2 to 1.5


_COSTS = {  # of the phases of a fit, in their order, as measured on images of 512 to 1280 pixels
    "filters": 0.1,
    "histograms": 0.03,
    "number": 0.65,
    "annealing": 0.22,
    "clusters": 0.5,
    "borders": 0.23,
    "pixels": 0.17,
}
_COST_OF_MERGED = 0.06  # of clusters that the choice of the number has found
_COST_OF_OTHER_MODELS = 1.0


class _Peak(NamedTuple):
    """Bytes in use at one point of a segmentation; the largest of these is what it needs."""

    per_pixel: float
    per_pixel_and_segment: float
    per_pixel_and_channel: float
    per_segment: float = 0.0
    most_pixels: float = np.inf
    """Limit to the pixels that count, since composites are never larger."""

    def bytes(self, n_pixels: int, n_segments: int, n_channels: int) -> float:
        """Compute the bytes for one image."""
        per_pixel = self.per_pixel + self.per_pixel_and_segment * n_segments
        per_pixel += self.per_pixel_and_channel * n_channels
        return self.per_segment * n_segments + min(n_pixels, self.most_pixels) * per_pixel


_LABELLING = _Peak(45.0, 8.5, 4.0)  # with two threads; a single one takes .7 of this
_PEAKS = {
    "default": (_LABELLING, _Peak(82.0, 0.0, 60.0, 2.4e6, 300**2)),  # the second is for composites
    "plain": (_LABELLING,),
}


class _Work(NamedTuple):
    """Time in units of a trial, see `trials`: ``(per_image + per_megapixel * size ** growth) * share``."""

    per_image: float
    per_megapixel: float
    growth: float
    share: float
    """Share of the time for five segments that does not depend on their number; the rest is proportional."""
    beyond: float | None = None
    """Share of the time for five that each further segment adds; as much as each of the five if None."""

    def trials(self, megapixels: float, n_segments: int) -> float:
        """Compute the time for ``n_segments``, in trials."""
        each = (1 - self.share) / 5
        share = self.share + each * n_segments
        if self.beyond is not None and n_segments > 5:
            share = 1 + self.beyond * (n_segments - 5)
        return (self.per_image + self.per_megapixel * megapixels**self.growth) * share


_CLUSTERING = _Work(110.0, 340.0, 1.2, 0.35, 0.17)  # each segment above five costs more than those before
_LEARNED_FROM = 16 * 512**2  # pixels of crops
_BLOCK_WITH_MARGIN = 1312  # pixels, side
_PER_MEGAPIXEL = 300.0  # trials, for labelling blocks
_OF_PLAIN = 0.65  # times as long without the additions to the paper's method


def expected_memory(
    n_pixels: int, n_channels: int = 1, n_segments: int | None = None, preset: str = "default"
) -> float:
    """Bytes at most that segmenting images of so many pixels in all takes, beside the imported libraries.

    Examples
    --------
    >>> f"{expected_memory(2048 * 2048) / 1e6:.0f} MB"
    '434 MB'
    """
    _check_preset(preset)
    K = n_segments or TYPICAL_SEGMENTS
    return _BASE + max(peak.bytes(n_pixels, K, n_channels) for peak in _PEAKS[preset])


def expected_seconds(shape: tuple[int, int], n_segments: int | None = None, preset: str = "default") -> float:
    """Seconds of all threads together that segmenting an image takes on this machine.

    The cost was measured in units of a small trial, which is timed at each call, so that the forecast fits
    the machine.
    """
    _check_preset(preset)
    megapixels, K = shape[0] * shape[1] / 1e6, n_segments or TYPICAL_SEGMENTS
    trials = _CLUSTERING.trials(megapixels, K) * (_OF_CHOOSING if n_segments is None else 1.0)
    if preset == "plain":
        trials *= _OF_PLAIN
    return trials * _seconds_of_a_trial()


def expected_by_blocks(
    shape: tuple[int, int],
    n_channels: int = 1,
    n_segments: int | None = None,
    preset: str = "default",
    n_threads: int = 1,
) -> tuple[float, float]:
    """Bytes, and seconds of all threads together, for an image that is read block by block.

    Textures are learned from 16 crops of 512 pixels, and each thread labels one block of 1024 pixels (with
    its margin) at a time, so memory does not grow with the image.

    Examples
    --------
    >>> memory, _ = expected_by_blocks((20000, 20000))
    >>> f"{memory / 1e6:.0f} MB"
    '434 MB'
    """
    learning = expected_memory(_LEARNED_FROM, n_channels, n_segments, preset)
    labelling = n_threads * expected_memory(_BLOCK_WITH_MARGIN**2, n_channels, n_segments, preset)
    side = round(_LEARNED_FROM**0.5)
    seconds = expected_seconds((side, side), n_segments, preset)
    return max(learning, labelling), seconds + _PER_MEGAPIXEL * shape[0] * shape[1] / 1e6 * (
        _seconds_of_a_trial() * (_OF_PLAIN if preset == "plain" else 1.0)
    )


def costs_of(settings: Any) -> dict[str, float]:
    """Relative time of the phases of a fit, in their order, given its :class:`texseg.parameters.Settings`."""
    costs = dict(_COSTS)
    if settings.n_segments is not None:
        del costs["number"]
    else:
        del costs["annealing"]  # it is part of choosing the number
        costs["clusters"] = _COST_OF_MERGED
    if not settings.learned_borders or settings.smoothness == 0:
        del costs["borders"]
    if settings.model != "acm":
        costs.pop("annealing", None)
        costs["clusters"] = _COST_OF_OTHER_MODELS
    return costs


def free_memory() -> int:
    """Bytes of memory that this process may still use, by the tightest of all limits that are known.

    These are the machine's, those of its control groups (versions 1 and 2, nested), ``ulimit`` and SLURM's;
    4 GB if the system does not tell.
    """
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
                values = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                left[-1] += int(values.get(unneeded, 0))
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
    if preset not in _PEAKS:
        raise ValueError(f"preset must be one of {', '.join(sorted(_PEAKS))}, got {preset!r}")


def _seconds_of_a_trial() -> float:
    """Time the kinds of work that make up a segmentation: transforms, filters, functions, histograms."""
    import scipy.fft
    import scipy.ndimage

    # once a large array has been freed, C libraries keep the memory, as during a segmentation
    np.empty(2**22, np.float32).fill(0)
    image = np.random.default_rng(0).standard_normal((_TRIAL_SIDE, _TRIAL_SIDE), np.float32)
    seconds = []
    for _ in range(_TRIALS):
        start = time.process_time()
        spectrum = scipy.fft.rfft2(image)
        smooth = scipy.ndimage.uniform_filter(scipy.fft.irfft2(spectrum * spectrum, s=image.shape), 33)
        np.exp(smooth * np.float32(1e-3)).sum()
        np.bincount((np.abs(image) * 10).astype(np.intp).ravel())
        seconds.append(time.process_time() - start)
    return median(seconds)
