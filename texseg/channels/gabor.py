"""The Gabor filter bank: one forward transform, then one product and inverse transform per filter.

Large images are filtered block by block, each with the filters' reach around it: the transforms then stay in
the processor's cache, and all of them share the filters' transfer functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

_HALF_PEAK = np.sqrt(2 * np.log(2))  # half width at half peak of a Gaussian, in standard deviations
_HALO_SIGMAS = 3.5  # the spatial kernels are below 0.3 % of their peak beyond
_FAR_SIGMAS = 6.0  # beyond, a Gaussian is below 2e-8 of its peak, less than float32 resolves
_BLOCK = 512  # largest side in pixels that is transformed at once
_KEPT_TRANSFERS = 24  # the default bank, for an image and for the composites that borders are learned on


class Filter(NamedTuple):
    """One filter of a bank: its centre frequency, and the widths of its Gaussian in frequency."""

    wavelength: float  # pixels
    orientation: float
    """Degrees; direction of the grating's wave vector, from the column axis (x) towards the row axis (y)."""
    along: float  # standard deviation along the wave vector, cycles per pixel
    across: float  # standard deviation across the wave vector, cycles per pixel


class Spectrum(NamedTuple):
    """The transform of an image (H, W), block by block."""

    shape: tuple[int, int]
    sides: tuple[int, int]
    """Rows and columns of a block, without what surrounds it; the last ones may reach beyond the image."""
    blocks: list[NDArray[np.complex64]]  # in row-major order


class GaborBank:
    """Moduli of complex Gabor filters, the texture features of [1]_ section 6.3.

    Each filter is a Gaussian in the frequency plane on one side of the origin, so that its response is
    analytic and its modulus is the local amplitude: for a grating ``a cos(...)`` of the filter's own
    frequency it is ``a``. A second Gaussian at the origin removes the response to constants (no DC).

    The wavelengths are in pixels, above 2: by default three octaves down from sqrt(2) / 4 cycles per pixel.
    The orientations are evenly spread over 180 degrees, from 0. The bandwidths are widths at half peak: along
    the wave vector in octaves, and across it in degrees. All orientations of the shortest wavelength come
    first.

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
    .. [2] A. K. Jain and F. Farrokhnia, Unsupervised texture segmentation using Gabor filters,
       Pattern Recognition 24(12), 1991.

    Examples
    --------
    >>> x = np.arange(64)
    >>> grating = np.tile(3 * np.cos(2 * np.pi * x / 8), (64, 1))
    >>> response = GaborBank(wavelengths=[8], n_orientations=2).transform(grating)
    >>> response.shape, round(float(response[0, 32, 32]), 2), round(float(response[1, 32, 32]), 2)
    ((2, 64, 64), 3.0, 0.0)
    """

    def __init__(
        self,
        wavelengths: Sequence[float] = (2 * 2**0.5, 4 * 2**0.5, 8 * 2**0.5),
        n_orientations: int = 4,
        bandwidth: float = 1.0,
        angular_bandwidth: float = 45.0,
    ) -> None:
        if not len(wavelengths) or min(wavelengths) <= 2:
            raise ValueError(f"wavelengths must be above 2 pixels (Nyquist), got {list(wavelengths)}")
        self.wavelengths = tuple(float(w) for w in wavelengths)
        self.n_orientations = n_orientations
        self.bandwidth = float(bandwidth)
        self.angular_bandwidth = float(angular_bandwidth)
        along = (2**bandwidth - 1) / (2**bandwidth + 1) / _HALF_PEAK
        across = np.tan(np.radians(angular_bandwidth) / 2) / _HALF_PEAK
        self.filters = [
            Filter(w, 180.0 * k / n_orientations, float(along / w), float(across / w))
            for w in self.wavelengths
            for k in range(n_orientations)
        ]

    @property
    def halo(self) -> int:
        """Reach of the filters in pixels; also the width of the mirrored border."""
        widths = [min(f.along, f.across) for f in self.filters]
        return int(np.ceil(_HALO_SIGMAS / (2 * np.pi * min(widths))))

    @staticmethod
    @lru_cache(_KEPT_TRANSFERS)  # making one takes as long as using it
    def transfer(filter: Filter, shape: tuple[int, int]) -> NDArray[np.floating]:
        """Transfer function of one filter on the FFT grid of ``shape``, float32 (H, W), 2 at its peak.

        The factor 2 compensates for the missing half plane: the modulus is then the amplitude of a grating.
        """
        v = np.fft.fftfreq(shape[0]).astype(np.float32)[:, None]
        u = np.fft.fftfreq(shape[1]).astype(np.float32)[None, :]
        centre = 1 / filter.wavelength
        ends = centre * np.array([0.0, 1.0])  # zero and the centre, on the wave vector
        angle = np.radians(filter.orientation)
        at = (ends * np.sin(angle))[:, None], (ends * np.cos(angle))[None, :]
        side, low = (_sampled(filter, *at, c).diagonal() for c in (centre, 0.0))
        constant = side[0] / low[0]
        gain = 2 / (side[1] - constant * low[1])
        response = _sampled(filter, v, u, centre)
        response -= np.float32(constant) * _sampled(filter, v, u, 0.0)
        response *= np.float32(gain)
        response.setflags(write=False)
        return response

    def spectrum(self, image: NDArray[np.float32]) -> Spectrum:
        """Transform an image (H, W), with its border mirrored by at least :attr:`halo` pixels."""
        (H, W), halo = image.shape, self.halo
        n_down, n_across = -(-H // _BLOCK), -(-W // _BLOCK)
        h, w = -(-H // n_down), -(-W // n_across)
        rows, columns = (cv2.getOptimalDFTSize(side + 2 * halo) for side in (h, w))
        below, right = (n_down - 1) * h + rows - halo - H, (n_across - 1) * w + columns - halo - W
        padded = cv2.copyMakeBorder(image, halo, below, halo, right, cv2.BORDER_REFLECT)
        blocks = [
            cv2.dft(np.ascontiguousarray(padded[y : y + rows, x : x + columns]), flags=cv2.DFT_COMPLEX_OUTPUT)
            for y in range(0, n_down * h, h)
            for x in range(0, n_across * w, w)
        ]
        return Spectrum((H, W), (h, w), [block.view(np.complex64)[..., 0] for block in blocks])

    def modulus(self, spectrum: Spectrum, filter: Filter) -> NDArray[np.float32]:
        """Modulus (H, W) of one filter's response, from the :meth:`spectrum` of an image."""
        (H, W), (h, w), halo = spectrum.shape, spectrum.sides, self.halo
        out = np.empty((H, W), np.float32)
        transfer = self.transfer(filter, spectrum.blocks[0].shape)
        for index, block in enumerate(spectrum.blocks):
            y, x = (side * at for side, at in zip((h, w), divmod(index, -(-W // w)), strict=True))
            pairs = (block * transfer).view(np.float32).reshape(*block.shape, 2)
            response = cv2.dft(pairs, pairs, flags=cv2.DFT_INVERSE | cv2.DFT_SCALE).view(np.complex64)
            here = out[y : y + h, x : x + w]
            np.abs(response[halo : halo + here.shape[0], halo : halo + here.shape[1], 0], out=here)
        return out

    def transform(self, image: ArrayLike) -> NDArray[np.floating]:
        """Return all responses at once, float32 of shape (len(filters), H, W)."""
        spectrum = self.spectrum(np.asarray(image, dtype=np.float32))
        return np.stack([self.modulus(spectrum, filter) for filter in self.filters])


def _sampled(
    filter: Filter, v: NDArray[np.floating], u: NDArray[np.floating], centre: float
) -> NDArray[np.floating]:
    """Gaussian at ``centre`` on the wave vector, plus what folds back from beyond the Nyquist frequency.

    This is the spectrum of the sampled kernel, which is as short as the continuous one; a spectrum cut off
    at Nyquist would make the kernel ring without end.
    """
    angle = np.radians(filter.orientation)
    cos, sin = float(np.cos(angle).round(7)), float(np.sin(angle).round(7))
    width_v = float(np.hypot(filter.along * sin, filter.across * cos))
    width_u = float(np.hypot(filter.along * cos, filter.across * sin))
    out = np.zeros(np.broadcast_shapes(v.shape, u.shape), v.dtype)
    for dv in _folds(centre * sin, width_v):
        for du in _folds(centre * cos, width_u):
            here_v, here_u = v + v.dtype.type(dv), u + u.dtype.type(du)
            for rows in _runs(abs(here_v[:, 0] - centre * sin) < _FAR_SIGMAS * width_v):
                for columns in _runs(abs(here_u[0] - centre * cos) < _FAR_SIGMAS * width_u):
                    out[rows, columns] += _gaussian(
                        filter, here_v[rows], here_u[:, columns], centre, cos, sin
                    )
    return out


def _runs(wanted: NDArray[np.bool_]) -> list[slice]:
    """Slices of consecutive True values."""
    steps = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
    return [slice(*run) for run in steps.reshape(-1, 2).tolist()]


def _folds(centre: float, width: float) -> range:
    """Integers by which a Gaussian's frequencies differ from those in -1/2 to 1/2 they fold back to."""
    reach = _HALO_SIGMAS * width + 0.5
    return range(int(np.ceil(centre - reach)), int(np.floor(centre + reach)) + 1)


def _gaussian(
    filter: Filter, v: NDArray[np.floating], u: NDArray[np.floating], centre: float, cos: float, sin: float
) -> NDArray[np.floating]:
    if sin == 0 or cos == 0:  # axis-parallel filters are products of two one-dimensional ones
        p, t = (u * cos, v * cos) if sin == 0 else (v * sin, u * sin)
        return np.exp(-0.5 * ((p - centre) / filter.along) ** 2) * np.exp(-0.5 * (t / filter.across) ** 2)
    p, t = u * cos + v * sin, v * cos - u * sin
    exponent = ((p - centre) / filter.along) ** 2
    exponent += (t / filter.across) ** 2
    return np.exp(-0.5 * exponent)
