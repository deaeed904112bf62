"""The Gabor filter bank: a forward transform of each block, then a product and inverse transform per filter.

In space the Gaussians are round, so that a transfer function is a product of three lines, and the modulus of
a coarse filter, which few frequencies hold, is computed on a coarse grid.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from texseg.counts.axes import resized, shortened
from texseg.threads import side_by_side

_HALF_PEAK = np.sqrt(2 * np.log(2))  # half width at half peak of a Gaussian, in standard deviations
_HALO_SIGMAS = 3.5  # the spatial kernels are below 0.3 % of their peak beyond
_FELT_SIGMAS = 5.0  # beyond, what they hold changes no bin
_FAR_SIGMAS = 6.0  # beyond, a Gaussian is below 2e-8 of its peak, less than float32 resolves
_BLOCK = 512  # largest side in pixels that is transformed at once
_BLOCK_OF_SPACE = 256
_FOLDS = 3  # most periods of the spectrum of a sampled kernel on either side
_WIDTH = 12.0  # standard deviations of a filter in space, of the spectrum that is transformed back
_SHELLS = {3: (1,), 4: (3,), 6: (2,), 7: (1, 3), 9: (1, 2), 10: (2, 3), 13: (1, 2, 3)}
"""Numbers of directions over the half sphere that turns by 90 degrees map to themselves: the axes, the
diagonals of the faces of a cube, and those through the cube, by how many of their coordinates are not 0."""
_KEPT_TRANSFERS = 24  # the default bank, for an image and for the composites that borders are learned on


class Filter(NamedTuple):
    """One filter of a bank: its centre frequency, and the widths of its Gaussian in frequency."""

    wavelength: float  # pixels
    orientation: float
    """Degrees; direction of the grating's wave vector, from the column axis (x) towards the row axis (y)."""
    along: float  # standard deviation along the wave vector, cycles per pixel
    across: float  # standard deviation across the wave vector, cycles per pixel
    direction: tuple[float, ...] = ()
    """In space, the unit vector of the grating's wave vector; empty in the plane."""

    @property
    def name(self) -> str:
        """Wavelength and direction in words."""
        if not self.direction:
            return f"{self.wavelength:.3g} px, {self.orientation:g} deg"
        return f"{self.wavelength:.3g} px, ({' '.join(f'{part:.2g}' for part in self.direction)})"


class Spectrum(NamedTuple):
    """The transform of an image or a volume, block by block."""

    shape: tuple[int, ...]
    sides: tuple[int, ...]
    """Pixels of a block, without what surrounds it; the last ones may reach beyond the image."""
    blocks: list[NDArray[np.complex64]]  # in row-major order


class GaborBank:
    """Moduli of complex Gabor filters, the texture features of A.I. Memo 1625, section 6.3.

    Each filter is a Gaussian on one side of the frequency plane, so that its modulus is the amplitude ``a``
    of a grating ``a cos(...)`` of its own frequency; a second Gaussian removes the response to constants.
    Wavelengths are in pixels, above 2, orientations spread over 180 degrees, bandwidths octaves along the
    wave vector and degrees across it. With a ``spacing`` of three axes, relative to the finest, directions
    spread over the half sphere, and those that an axis samples too coarsely are skipped.
    """

    def __init__(
        self,
        wavelengths: Sequence[float] = (2 * 2**0.5, 4 * 2**0.5, 8 * 2**0.5),
        n_orientations: int = 4,
        bandwidth: float = 1.0,
        angular_bandwidth: float = 45.0,
        spacing: tuple[float, ...] = (1.0, 1.0),
    ) -> None:
        if not len(wavelengths) or min(wavelengths) <= 2:
            raise ValueError(f"wavelengths must be above 2 pixels (Nyquist), got {list(wavelengths)}")
        self.wavelengths = tuple(float(w) for w in wavelengths)
        self.n_orientations = n_orientations
        self.bandwidth = float(bandwidth)
        self.angular_bandwidth = float(angular_bandwidth)
        along = (2**bandwidth - 1) / (2**bandwidth + 1) / _HALF_PEAK
        across = np.tan(np.radians(angular_bandwidth) / 2) / _HALF_PEAK
        self.spacing = spacing
        if len(spacing) == 3:
            directions = directions_in_space(n_orientations)
            self.filters = [
                Filter(w, 0.0, float(across / w), float(across / w), direction)
                for w in self.wavelengths
                for direction in directions
                if all(abs(d) * step / w < 0.5 for d, step in zip(direction, spacing, strict=True))
            ]
            return
        self.filters = [
            Filter(w, 180.0 * k / n_orientations, float(along / w), float(across / w))
            for w in self.wavelengths
            for k in range(n_orientations)
        ]

    @cached_property
    def halo(self) -> int:
        """Reach of the filters in pixels; also the width of the mirrored border."""
        widths = [min(f.along, f.across) for f in self.filters]
        return int(np.ceil(_HALO_SIGMAS / (2 * np.pi * min(widths))))

    @cached_property
    def halos(self) -> tuple[int, ...]:
        """The same along each axis; in space, where blocks are small, what lies beyond is not felt at all."""
        wider = 1.0 if len(self.spacing) == 2 else _FELT_SIGMAS / _HALO_SIGMAS
        return tuple(int(np.ceil(wider * self.halo / step)) for step in self.spacing)

    @staticmethod
    @lru_cache(_KEPT_TRANSFERS)  # making one takes as long as using it
    def transfer(filter: Filter, shape: tuple[int, int]) -> NDArray[np.floating]:
        """Transfer function of one filter on the FFT grid of ``shape``, float32 (H, W), 2 at its peak."""
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
        """Transform an image or volume, with its border mirrored by at least :attr:`halo` pixels."""
        halos, most = self.halos, _BLOCK if image.ndim == 2 else _BLOCK_OF_SPACE
        sides = shortened(image.shape, shortened(image.shape, (most,) * image.ndim))
        sides = tuple(-(-side // unit) * unit for side, unit in zip(sides, self.units, strict=True))
        numbers = shortened(image.shape, sides)
        sizes = [
            unit * cv2.getOptimalDFTSize(-(-(side + 2 * halo) // unit))
            for side, halo, unit in zip(sides, halos, self.units, strict=True)
        ]
        along = zip(image.shape, numbers, sides, sizes, halos, strict=True)
        widths = [(halo, (n - 1) * side + size - halo - length) for length, n, side, size, halo in along]
        if is_flat := image.ndim == 2:
            padded: Any = cv2.copyMakeBorder(image, *widths[0], *widths[1], cv2.BORDER_REFLECT)
        else:
            import scipy.fft  # not needed for images

            padded = np.pad(image, widths, mode="symmetric")

        def transformed(place: tuple[int, ...]) -> NDArray[np.complex64]:
            starts = [at * side for at, side in zip(place, sides, strict=True)]
            window = tuple(slice(at, at + size) for at, size in zip(starts, sizes, strict=True))
            block = np.ascontiguousarray(padded[window])
            pairs: Any = cv2.dft(block, flags=cv2.DFT_COMPLEX_OUTPUT) if is_flat else None
            return pairs.view(np.complex64)[..., 0] if is_flat else scipy.fft.fftn(block)

        return Spectrum(image.shape, sides, side_by_side(transformed, np.ndindex(*numbers)))

    def modulus(self, spectrum: Spectrum, filter: Filter) -> NDArray[np.float32]:
        """Modulus of one filter's response, from the :meth:`spectrum` of an image, in its shape."""
        out = np.empty(spectrum.shape, np.float32)
        places = np.ndindex(*shortened(spectrum.shape, spectrum.sides))
        for place, block in zip(places, spectrum.blocks, strict=True):
            starts = [at * side for at, side in zip(place, spectrum.sides, strict=True)]
            here = out[tuple(slice(at, at + n) for at, n in zip(starts, spectrum.sides, strict=True))]
            inside: Any = tuple(slice(halo, halo + n) for halo, n in zip(self.halos, here.shape, strict=True))
            if filter.direction:
                here[...] = self._modulus_in_space(block, filter)[inside]
                continue
            pairs = (block * self.transfer(filter, block.shape)).view(np.float32).reshape(*block.shape, 2)
            response = cv2.dft(pairs, pairs, flags=cv2.DFT_INVERSE | cv2.DFT_SCALE).view(np.complex64)
            np.abs(response[(*inside, 0)], out=here)
        return out

    @cached_property
    def units(self) -> tuple[int, ...]:
        """Steps of the coarsest grid: moduli do not depend on where a volume is cut at multiples of them."""
        return tuple(map(max, zip(*map(self._coarse_steps, self.filters), strict=True)))

    def _coarse_steps(self, filter: Filter) -> list[int]:
        """Pixels along each axis between those at which a filter's modulus is computed: powers of two."""
        if not filter.direction:
            return [1, 1]
        most = (1 / (_WIDTH * filter.along * step) for step in self.spacing)
        return [1 << max(1, int(n)).bit_length() - 1 for n in most]

    def _modulus_in_space(self, block: NDArray[np.complex64], filter: Filter) -> NDArray[np.float32]:
        """Modulus on the grid of a transformed block (d, h, w)."""
        import scipy.fft  # not needed for images

        kept, lines, lows, at_zero, at_centre = [], [], [], 1.0, np.ones(2)
        along = zip(block.shape, self.spacing, filter.direction, self._coarse_steps(filter), strict=True)
        for n, step, part, every in along:
            centre, sigma, m = part / filter.wavelength, filter.along, n // every
            bins = np.arange(m) - m // 2 + (round(centre * step * n) if m < n else 0)
            # of a coarser grid, the values at the middle of its voxels
            turn = np.exp(2j * np.pi * bins * (n / m - 1) / 2 / n) * (m / n)
            ends = np.array([0.0, centre])
            side, low = (_folded(ends, c, sigma, 1 / step) for c in (centre, 0.0))
            at_zero *= side[0] / low[0]
            at_centre *= side[1], low[1]
            kept.append(bins % n)
            lines.append((_folded(bins / n / step, centre, sigma, 1 / step) * turn).astype(np.complex64))
            lows.append((_folded(bins / n / step, 0.0, sigma, 1 / step) * turn).astype(np.complex64))
        gain = 2 / (at_centre[0] - at_zero * at_centre[1])
        z, y, x = lines
        transfer = (z * np.float32(gain))[:, None, None] * (y[:, None] * x)
        z, y, x = lows
        transfer -= (z * np.float32(gain * at_zero))[:, None, None] * (y[:, None] * x)
        transfer *= block[np.ix_(*kept)]
        return resized(np.abs(scipy.fft.ifftn(transfer, overwrite_x=True)), block.shape, cv2.INTER_CUBIC)

    def transform(self, image: ArrayLike) -> NDArray[np.floating]:
        """Return all responses at once, float32 of shape (len(filters), H, W)."""
        spectrum = self.spectrum(np.asarray(image, dtype=np.float32))
        return np.stack([self.modulus(spectrum, filter) for filter in self.filters])


def directions_in_space(n: int) -> list[tuple[float, ...]]:
    """Give ``n`` unit vectors (planes, rows, columns), evenly over the half sphere."""
    if n not in _SHELLS:
        allowed = ", ".join(map(str, _SHELLS))
        raise ValueError(f"n_orientations (--orientations) must be one of {allowed} in space, got {n}")
    every = [v for v in itertools.product((0, 1, -1), repeat=3) if next((x for x in v if x), -1) > 0]
    chosen = [v for v in every if np.count_nonzero(v) in _SHELLS[n]]
    return [tuple((np.array(v) / np.linalg.norm(v)).tolist()) for v in chosen]


def _folded(f: NDArray[np.float64], centre: float, sigma: float, period: float) -> NDArray[np.float64]:
    """Gaussian of frequencies, plus what folds back from beyond the Nyquist frequency of an axis."""
    shifts = period * np.arange(-_FOLDS, _FOLDS + 1)[:, None]
    return np.exp(-0.5 * ((f - centre + shifts) / sigma) ** 2).sum(axis=0)


def _sampled(
    filter: Filter, v: NDArray[np.floating], u: NDArray[np.floating], centre: float
) -> NDArray[np.floating]:
    """Gaussian at ``centre`` on the wave vector, plus what folds back from beyond the Nyquist frequency."""
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
