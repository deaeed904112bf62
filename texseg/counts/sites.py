"""Stored count matrices of the sites of a grid: the histograms of cells, and of windows around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray

from texseg.counts.axes import beside, dilated, eroded
from texseg.counts.grid import CellGrid, PackedCounts, averaged, window_matrix, window_means
from texseg.counts.matrix import CountOperator
from texseg.threads import LANES, kernels, side_by_side

Floats = NDArray[np.floating]

WINDOW_STEP = 2  # windows overlap: every second row and column of cells is enough

FAR = 8.0
"""Pixels, between the default's two longer wavelengths; channels with longer ones get the larger window."""

BACKGROUND = 2e-3
"""Share of the background in every profile: what a cluster has never seen is unlikely, not impossible."""

_window_matrix = lru_cache(maxsize=8)(window_matrix)
_STRIP = 1024  # sites multiplied at once; the same for any number of threads, since it affects rounding


def in_strips(function: Callable[[slice], Floats], n_sites: int) -> list[Floats]:
    """Apply a function of some sites to all of them, strip by strip and in parallel."""
    return side_by_side(function, [slice(at, at + _STRIP) for at in range(0, n_sites, _STRIP)])


def mix_background(profiles: Floats, background: Floats, share: float = BACKGROUND) -> Floats:
    """Mix a share of the background (M,) into profiles (..., M)."""
    return (1 - share) * profiles + share * background


def log_profiles(profiles: Floats) -> Floats:
    """Logarithms of profiles (..., M), finite for bins that never occur."""
    return np.log(profiles + 1e-7)


@dataclass(frozen=True, eq=False)
class Sites(CountOperator):
    """Histograms of the sites of some grids, as a count matrix with columns multiplied by channel weights."""

    counts: Any  # (N, M), an array or PackedCounts; every channel of a site sums to the site's size
    sizes: Floats  # (N,), share of each site that holds data, 0 to 1
    weights: Floats  # (M,), weight of each column's channel
    grids: tuple[tuple[int, ...], ...]
    """Shape of each image's sites; the images follow one another in the rows of ``counts``. The planes of a
    stack, in which textures lie, are images."""
    background: Floats  # (M,), profile of all images together; each channel sums to one
    stacks: tuple[tuple[int, ...], ...] = ()
    """Shape of each stack's sites, where the images are planes of stacks."""
    shape: tuple[int, int] = field(init=False)
    n_channels: int = field(init=False)
    groups: NDArray[np.intp] = field(init=False, repr=False)  # (M,), the channel of every column

    def __post_init__(self) -> None:
        N, M = self.counts.shape
        n_channels = round(float(self.background.sum()))  # since each sums to one
        derived = {"shape": (N, M), "n_channels": n_channels, "groups": np.arange(M) // (M // n_channels)}
        self.__dict__.update(derived)

    @property
    def is_compiled(self) -> bool:
        """Whether compiled loops may do the work."""
        return kernels is not None and self.counts.dtype == np.float32

    def _product(self, A: Floats) -> Floats:
        if self.is_compiled and A.dtype == np.float32:
            return self._passed(A)
        weighted = A * self.weights[:, None].astype(A.dtype)
        # sites are contiguous in the result; multiplying in the other layout and copying is faster
        parts = in_strips(lambda rows: np.ascontiguousarray((self.counts[rows] @ weighted).T), self.shape[0])
        return (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)).T

    def _adjoint(self, B: Floats) -> Floats:
        if self.is_compiled and B.dtype == np.float32:
            return self._passed(None, B).T.astype(np.float32)
        parts = in_strips(lambda rows: B[rows].T @ self.counts[rows], self.shape[0])
        return sum(parts[1:], start=parts[0]).T * self.weights[:, None]

    @property
    def scaled(self) -> tuple[NDArray[Any], Floats]:
        """Counts (N, M) as compiled loops take them, and what their columns are multiplied by, (M,)."""
        if isinstance(self.counts, PackedCounts):
            return self.counts.table, self.weights * self.counts.unit
        return self.counts, self.weights

    def _passed(self, A: Floats | None, B: Any = None) -> Floats:
        """Compiled: ``n @ A`` (N, K), or without ``A`` ``n.T @ B`` (K, M)."""
        (N, M), (counts, scale) = self.shape, self.scaled
        strips = range(0, N, _STRIP)
        tables = None if A is None else np.ascontiguousarray(A.T * scale, np.float32)
        planes = (
            np.ascontiguousarray(B.T, np.float32)
            if tables is None
            else np.empty((len(tables), N), np.float32)
        )
        sums = np.zeros((len(strips), len(planes), M)) if tables is None else None

        def pass_over(at: int) -> None:
            back = None if sums is None else sums[at // _STRIP]
            kernels.passes(counts, tables, planes, back, N, M, at, min(at + _STRIP, N))

        side_by_side(pass_over, strips)
        return planes.T if sums is None else sums.sum(axis=0) * scale

    def _rows(self, wanted: range) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(self.counts[wanted.start : wanted.stop : wanted.step] * self.weights)

    def only(self, wanted: NDArray[np.bool_]) -> Sites:
        """Keep some of the sites (N,), in one long row, since they no longer form a grid."""
        if wanted.all():
            return replace(self, grids=((1, len(wanted)),))
        counts = self.counts[wanted]
        return replace(self, counts=counts, sizes=self.sizes[wanted], grids=((1, len(counts)),))

    def pieces(self, values: NDArray) -> list[NDArray]:
        """Split values per site, (N, ...), into one array per image, with the image's axes first."""
        ends = np.cumsum([math.prod(shape) for shape in self.grids])[:-1]
        parts = zip(np.split(values, ends), self.grids, strict=True)
        return [part.reshape(*shape, *values.shape[1:]) for part, shape in parts]

    def profiles(self, posteriors: Floats) -> Floats:
        """Mean histograms (..., M) of soft clusters (N, ...); the background for an empty one."""
        return self.means_of(*self.sums(posteriors))

    def sums(self, posteriors: Floats) -> tuple[Floats, Floats]:
        """Sum the histograms (..., M) and sizes (...) of soft clusters (N, ...)."""
        flat = np.moveaxis(posteriors, 0, -1).reshape(-1, len(self.counts))
        sums = (replace(self, weights=np.ones_like(self.weights)).T @ flat.T).T
        return sums.reshape(*posteriors.shape[1:], -1), (flat @ self.sizes).reshape(posteriors.shape[1:])

    def means_of(self, sums: Floats, sizes: Floats) -> Floats:
        """Mean histograms (..., M) from summed ones and their sizes; the background for an empty one."""
        means = sums / np.maximum(sizes, 1e-6)[..., None]
        means[sizes <= 1e-6] = self.background
        return means

    def channel_scores(self, which: NDArray[np.intp], profiles: Floats) -> Floats:
        """Log-likelihoods, channel by channel, (N, K, C), each site's by one of two tables of ``profiles``.

        These are (2, K, M), and ``which`` (N,) says the table of every site.
        """
        (_, K, M), C = profiles.shape, self.n_channels
        logs = log_profiles(mix_background(profiles, self.background)) * self.weights
        packed = self.counts if isinstance(self.counts, PackedCounts) else None
        if kernels is not None:
            lanes = 1 if K == 1 else LANES
            tables = np.zeros((2, -(-K // lanes) * lanes, M), np.float32)
            tables[:, :K] = logs if packed is None else logs * packed.unit
            tables = np.ascontiguousarray(tables.reshape(2, -1, lanes, M).swapaxes(2, 3))
        columns = np.ascontiguousarray(logs.reshape(2, K, C, -1).transpose(0, 2, 3, 1))
        colours = which.astype(np.uint8)

        def scores(strip: slice) -> Floats:
            own = colours[strip]
            out = np.empty((len(own), K, C), np.float32)
            if kernels is not None:
                given = (
                    packed.table[strip] if packed else np.ascontiguousarray(self.counts[strip], np.float32)
                )
                kernels.channel_scores(given, own, tables, out, np.empty(M, np.float32), C, K)
                return out
            counts = self.counts[strip]
            for colour in (0, 1):
                some = counts[own == colour].reshape(-1, C, M // C)
                out[own == colour] = np.matmul(some.transpose(1, 0, 2), columns[colour]).transpose(1, 2, 0)
            return out

        return np.concatenate(in_strips(scores, self.shape[0]))

    def window_mean(self, values: Floats, side: float) -> Floats:
        """Mean of values per site (N, ...) over centred windows ``side`` sites wide, cut at the border."""
        means = []
        for piece in self.pieces(values):
            windows = [_window_matrix(n, side) for n in piece.shape[: len(self.grids[0])]]
            means.append(averaged(np.ascontiguousarray(piece, np.float32), windows).ravel())
        return np.concatenate(means).reshape(values.shape)


def sides_of(wavelengths: NDArray[np.float64], sides: tuple[float, float]) -> NDArray[np.float64]:
    """Side of each channel's window: the first for wavelengths up to :data:`FAR`, and the second above."""
    return np.where(wavelengths > FAR, sides[1], sides[0])


def window_sites(
    cells: Sites,
    grids: Sequence[CellGrid],
    wavelengths: NDArray[np.float64],
    sides: tuple[float, float],
    step: int = WINDOW_STEP,
) -> Sites:
    """Histograms of windows around every ``step``-th cell; sides are those up to :data:`FAR`, and above."""
    side = sides_of(wavelengths, sides)
    ends = np.cumsum([0] + [grid.n_cells for grid in grids]).tolist()
    packed = isinstance(cells.counts, PackedCounts)
    rows = cells.counts.rows if packed else lambda first, stop: cells.counts[first:stop]
    means = [
        window_means(rows(*part), grid, side.tolist(), step)
        for *part, grid in zip(ends, ends[1:], grids, strict=False)
    ]
    counts = means[0][0] if len(means) == 1 else np.concatenate([mean for mean, _, _ in means])
    present = np.concatenate([shares > 1e-3 for _, _, shares in means]).astype(np.float32)
    shapes = [shape for _, shape, _ in means]
    images, stacks = images_of(shapes, is_flat=bool(cells.stacks))
    return replace(cells, counts=counts, sizes=present, grids=images, stacks=stacks)


def images_of(
    shapes: Sequence[tuple[int, ...]], is_flat: bool
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Give the shapes of the images of sites, and those of the stacks that they are planes of."""
    if not is_flat:
        return tuple(shapes), ()
    return tuple(shape[1:] for shape in shapes for _ in range(shape[0])), tuple(shapes)


def border_measure(sites: Sites, reach: int) -> Floats:
    """Largest squared Hellinger distance (N,) of the windows ``reach`` sites before and after each."""
    measures = []
    for counts in sites.pieces(sites.counts):
        roots = np.sqrt(counts * sites.weights)
        found = np.zeros(counts.shape[:-1], np.float32)
        for axis in range(found.ndim):
            length: int = found.shape[axis]
            at = np.arange(length)
            step = roots.take(np.maximum(at - reach, 0), axis=axis)
            step -= roots.take(np.minimum(at + reach, length - 1), axis=axis)
            np.maximum(found, np.einsum("...m,...m->...", step, step), out=found)
        measures.append(found.ravel())
    return np.concatenate(measures)


def interior_cells(labels: NDArray[np.integer], cells: Sites) -> NDArray[np.bool_]:
    """Which cells (N,) neither touch another label nor lie next to a cell that does."""
    return np.concatenate([_interior(grid).ravel() for grid in cells.pieces(labels)])


def _interior(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    grid = labels.astype(np.uint8)
    return beside((dilated(grid, 3) != eroded(grid, 3)).astype(np.uint8)) == 0
