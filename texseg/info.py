"""What a file holds, and what segmenting it would cost."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

import numpy as np

from texseg.io.forecast import expected_memory
from texseg.io.header import Header
from texseg.io.read import read_header

_TRIALS = 7
_TRIAL_SIDE = 512
_PER_IMAGE, _PER_MEGAPIXEL, _GROWTH = 30.0, 250.0, 1.1  # in trials, for five segments; benchmarks/forecast.py
_OF_CHOOSING = 1.45  # times as long when the number of segments is to be chosen


def describe(
    path: str | os.PathLike[str], n_segments: int | None = None
) -> dict[str, str | int | float | None]:
    """Describe an image file from its header alone.

    Parameters
    ----------
    path : str or path-like
        Image file of any size.
    n_segments : int, optional
        Number of segments for the forecast; None: to be chosen.

    Returns
    -------
    dict
        Format, size, type, channels, pages, orientation, no-data value, georeference, and what one page is
        expected to cost with the default settings: memory in MB, processor time in seconds.
    """
    header = read_header(path)
    memory = expected_memory(header.height * header.width, header.n_channels, n_segments)
    seconds = expected_seconds((header.height, header.width), n_segments)
    return {
        "file": Path(path).name,
        "format": header.format,
        "width": header.width,
        "height": header.height,
        "dtype": str(header.dtype),
        "channels": header.n_channels,
        "alpha": "yes" if header.has_alpha else "no",
        "axes": "x".join(map(str, header.shape)) + f" ({header.axes})",
        "pages": header.n_pages,
        "orientation": header.orientation,
        "nodata": header.nodata,
        "georeference": _place(header),
        "memory_MB": round(memory / 1e6),
        "seconds": round(seconds, 1),
    }


def _place(header: Header) -> str | None:
    """Say where an image lies."""
    if header.geo is None:
        return None
    affine, epsg = header.geo.transform, header.geo.epsg
    system = "unknown coordinate system" if epsg is None else f"EPSG:{epsg}"
    if affine is None:
        return system
    return f"{system}, origin {affine.c:g} {affine.f:g}, pixel {affine.a:g} {affine.e:g}"


def expected_seconds(shape: tuple[int, int], n_segments: int | None = None) -> float:
    """Processor time that segmenting an image takes on this machine with the default settings.

    The cost was measured in units of a small trial, which is timed here and now, so that the forecast follows
    the machine.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    n_segments : int, optional
        Number of segments; None: to be chosen.

    Returns
    -------
    float
        Seconds, all threads together.
    """
    megapixels = shape[0] * shape[1] / 1e6
    trials = _PER_IMAGE + _PER_MEGAPIXEL * megapixels**_GROWTH
    return trials * _share_of_segments(n_segments) * _seconds_of_a_trial()


def _share_of_segments(n_segments: int | None) -> float:
    """Time for so many segments in parts of that for five; above, each more means more starts."""
    if n_segments is None:
        return _OF_CHOOSING
    return 0.7 + 0.06 * n_segments if n_segments <= 5 else 1.0 + 0.33 * (n_segments - 5)


def _seconds_of_a_trial() -> float:
    """Time the kinds of work a segmentation consists of: transforms, filters, functions, histograms."""
    import scipy.fft
    import scipy.ndimage

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
