"""What a segmentation has learned, and how it labels images, for the default and the plain preset."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from texseg.channels.encode import Features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import Planes, slices_of
from texseg.counts.axes import dilated, eroded, shortened
from texseg.counts.grid import CellGrid, PackedCounts, cell_counts, cell_grid, sides_along, stacked
from texseg.counts.matrix import CountMatrix, WindowedCounts
from texseg.counts.sites import (
    WINDOW_STEP,
    Sites,
    images_of,
    in_strips,
    interior_cells,
    log_profiles,
    mix_background,
    window_sites,
)
from texseg.fitting.assignment import SETTLING_SWEEPS, arg_max_over, potts_field, soft_max_over
from texseg.method.seeds import PIN, SeedClassifier, painted_cells, pins
from texseg.models.histograms import HistogramClustering, Profiles
from texseg.parameters import PottsSettings
from texseg.pixels.borders import BorderClassifier, learn_borders
from texseg.pixels.label import near_border, pixel_posteriors
from texseg.pixels.planes import PixelPlanes
from texseg.threads import give_back, kernels, side_by_side

_CALIBRATION = 0.5  # weight of window scores, and of log posteriors, in calibrated probabilities
_ROOM = 1.75  # limits lie this many times the spread (median to 95 %) of known windows above their median
_PATCH = 5  # novel windows in a row, each way, that make a pixel novel
_BAND = 3  # cells on either side of a border that its place depends on
_PART = 5  # cells, side of a square: smaller parts cannot be distinguished from a flaw
_SMALL_WINDOWS = 1.0  # near borders that were not learned: sides in wavelengths
_WIDER = 1.5  # times as wide in space, where windows of one wavelength hold few independent observations
_PLAIN_WINDOWS = 6.0  # without a prior on the map: sides in wavelengths
_FINEST = 2 * 2**0.5  # pixels; values without a wavelength count as if they had this one
_STRIP = 2**18  # pixels processed at once
_CHANNEL_DEPENDENCE = 3.0  # channels that carry the information of one independent channel, measured
_MANY_CELLS = 2**14  # with more cells, their histograms are packed
_MOST_PACKED = 255  # pixels per cell that can be packed


@dataclass(frozen=True)
class Scene:
    """One encoded image."""

    bins: NDArray[np.uint8]  # (C, ...), with the axes of the image
    mask: NDArray[np.bool_] | None  # True where there is data; None if there is data everywhere
    planes: Planes | None = field(default=None, repr=False)
    """The image itself, for textures with learned borders."""
    ground: NDArray[np.bool_] | None = field(default=None, repr=False)
    """Flat background, a segment of its own, outside of the mask; None if it is not treated separately."""
    seeds: NDArray[np.int32] | None = field(default=None, repr=False)
    """Class of the painted pixels, from 1; 0 elsewhere."""
    spacing: tuple[float, ...] = ()  # of the axes, as in `texseg.counts.grid.CellGrid`
    _tables: dict[int, tuple[Any, CellGrid]] = field(default_factory=dict, repr=False)
    _kept: list[Any] = field(default_factory=list, repr=False)  # the last cells, and what they were told by
    seed_scores: list[Any] = field(default_factory=list, repr=False)  # the classifier of strokes, its scores

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels along each axis."""
        return self.bins.shape[1:]

    @property
    def is_stack(self) -> bool:
        """Whether textures lie in the planes of a stack."""
        return math.inf in self.spacing

    def images(self) -> list[tuple[slice, Planes, NDArray[np.uint8]]]:
        """Give the image in which textures lie, or the planes of a stack: flat indices, planes and bins."""
        assert self.planes is not None
        if not self.is_stack:
            return [(slice(0, self.bins[0].size), self.planes, self.bins)]
        n = self.bins[0, 0].size
        slices = enumerate(slices_of(self.planes))
        return [(slice(at * n, (at + 1) * n), own, self.bins[:, at]) for at, own in slices]

    def cells(
        self, side: int, n_bins: int, packed: bool
    ) -> tuple[NDArray[np.floating] | PackedCounts, CellGrid]:
        """Histograms (cells, C * n_bins) of cells of ``side`` pixels, and their grid; counted only once.

        To pack them takes a little longer and a quarter of the memory.
        """
        if side not in self._tables:
            grid = cell_grid(self.shape, side, self.mask, self.spacing)
            self._tables[side] = cell_counts(self.bins, grid, n_bins, self.mask, packed), grid
        return self._tables[side]


class Reading(NamedTuple):
    """How textures explain every pixel of a scene; all float32, K planes (H, W)."""

    posteriors: PixelPlanes  # posteriors under the prior on the map, which decide the labels
    probabilities: PixelPlanes
    """Calibrated: of the pixels labelled with probability p, about the share p is right."""
    scores: PixelPlanes  # log-likelihoods without prior


class _Cells(NamedTuple):
    """How textures explain the cells of a scene."""

    sites: Sites
    grid: CellGrid
    scores: NDArray[np.floating]  # (cells, K), log-likelihoods
    posteriors: NDArray[np.floating]  # (cells, K), under the prior on the map

    def labels(self) -> NDArray[np.int32]:
        """Labels (H, W) from 0 of the pixels, the same for all pixels of a cell."""
        return self.grid.to_pixels(self.posteriors.argmax(axis=1).astype(np.int32))


@dataclass(frozen=True)
class Textures:
    """Textures as profiles, and how they label cells and then pixels, under Potts priors."""

    kind: ClassVar[str] = "cells"
    features: Features
    profiles: NDArray[np.floating]  # (K, M), each channel sums to one
    background: NDArray[np.floating]  # (M,), profile of all training images
    cell: int
    potts: PottsSettings
    windows: tuple[float, float]
    """Sides in pixels of the windows that judge a larger neighbourhood; see `Settings`."""
    limits: NDArray[np.floating]
    """(K,), divergence in nats of a window from its texture's profile above which it is novel."""
    confusion: NDArray[np.floating]
    """(K, K), probability that one texture (row) is really another; see `confusion_of_clusters`."""
    borders: BorderClassifier | None = None
    """What was learned about borders between the textures, if anything."""
    strokes: SeedClassifier | None = None
    """If classes were painted, what classifies cells in place of the profiles."""

    def take(self, order: NDArray[np.intp]) -> Textures:
        """Keep some of the textures, in this order."""
        borders = None if self.borders is None else self.borders.take(order)
        confusion = self.confusion[np.ix_(order, order)]
        return replace(
            self,
            profiles=self.profiles[order],
            limits=self.limits[order],
            confusion=confusion / confusion.sum(axis=1, keepdims=True),
            borders=borders,
            strokes=None if self.strokes is None else self.strokes.take(order),
        )

    def with_borders(self, scenes: Sequence[Scene], smoothness: float, rng: np.random.Generator) -> Textures:
        """Learn what borders look like from scenes with planes and the current labels of their cells."""
        _, planes, bins = zip(*(image for scene in scenes for image in scene.images()), strict=True)
        maps = [self._cells(scene, smoothness).labels() for scene in scenes]
        labels = [own for whole in maps for own in (whole if scenes[0].is_stack else [whole])]
        mixed = mix_background(self.profiles, self.background)
        profiles = log_profiles(mixed).reshape(len(mixed), -1, self.features.n_bins)
        borders = learn_borders(planes, labels, bins, self.features, profiles, self.cell, _PART, rng)
        return replace(self, borders=borders)

    def _cells(self, scene: Scene, smoothness: float) -> _Cells:
        """Classify the cells of a scene; only once where nothing but the borders has been learned since."""
        told_by = self.profiles, self.strokes, self.potts, smoothness, scene.seeds
        if not scene._kept or not all(map(operator.is_, told_by, scene._kept[0])):
            sites, (grid,) = cell_sites([scene], self.features, self.cell, self.background)
            prior, beta = potts_field(sites, self.potts, smoothness, SETTLING_SWEEPS), self.potts.beta
            if self.strokes is None:
                scores = scores_of(sites, self.profiles, self.background)
            else:
                known = scene.seed_scores and scene.seed_scores[0] is self.strokes
                scores = scene.seed_scores[1] if known else self.strokes.scores(sites).astype(np.float32)
                scores = scores / beta
            pinned = scores
            if scene.seeds is not None:
                pinned = scores + pins(painted_cells([scene.seeds], [grid], scores.shape[1])) / beta
            posteriors = prior(pinned.astype(np.float32), beta, np.ones(1)).posteriors
            scene._kept[:] = told_by, _Cells(sites, grid, scores, posteriors)
        cells: _Cells = scene._kept[1]
        return cells

    def speck_area(self, smoothness: float) -> float:
        """Pixels; smaller parts show too little of a texture to be distinguished from a flaw."""
        spacing = self.features.bank.spacing
        side = _PART * self.cell if self.features.has_filters else self.windows[0]
        return smoothness * side ** len(spacing) / math.prod(spacing)

    @property
    def reach(self) -> int:
        """Radius in pixels that determines a pixel's label: filters after illumination, windows, borders."""
        windows = int(window_sides(self.features.wavelengths, _PLAIN_WINDOWS).max()) // 2
        cells = _BAND * self.cell
        if self.strokes is not None:
            cells += math.ceil(self.strokes.sides.max() / 2) * self.cell
        if len(self.features.bank.spacing) == 3:  # farther, too little is felt to change a label
            return self.features.bank.halo + max(cells, windows)
        return self.features.reach + max(cells, windows)

    def read(self, scene: Scene, smoothness: float) -> Reading:
        """Classify every pixel of a scene, before parts that are too small go to a neighbour."""
        if smoothness == 0:
            return self._read_windows(scene)
        cells = self._cells(scene, smoothness)
        sites, grid, local = cells.sites, cells.grid, cells.scores
        give_back(scene.bins[0].size)
        scores, learned = self._pixel_scores(scene, cells)
        give_back(scene.bins[0].size)
        strength = PottsSettings().strength * smoothness
        prior = strength, scene.mask, self.potts.coupling
        posteriors = pixel_posteriors(scores.near, cells.posteriors, grid, scores.band, *prior)
        around = sites.window_mean(local, self.windows[0] / self.cell)
        share = sites.window_mean(sites.sizes[:, None], self.windows[0] / self.cell)
        of_windows = _CALIBRATION * np.ascontiguousarray((around / np.maximum(share, 1e-6)).T)

        learned = np.append(learned, -1)  # what a search behind the last finds

        def calibrated(columns: NDArray, from_windows: NDArray) -> NDArray[np.floating]:
            """Probabilities (K, n) from posteriors and window scores."""
            probabilities = np.log(np.maximum(columns, 1e-12))
            probabilities *= _CALIBRATION
            probabilities += from_windows
            soft_max_over(probabilities)
            probabilities = self.confusion.T @ probabilities
            agree(probabilities, arg_max_over(columns))
            return probabilities

        near = np.empty_like(posteriors.near)

        def of_strip(at: int) -> None:
            pixels = posteriors.band[at : at + _STRIP]
            from_windows = of_windows.take(grid.cells_of(pixels), axis=1)
            # windows across a border are less reliable than what was learned about it
            from_windows[:, learned[np.searchsorted(learned[:-1], pixels)] == pixels] = 0
            near[:, at : at + _STRIP] = calibrated(posteriors.near[:, at : at + _STRIP], from_windows)

        side_by_side(of_strip, range(0, len(posteriors.band), _STRIP))
        sure = PixelPlanes(grid, calibrated(posteriors.cells, of_windows), posteriors.band, near)
        return Reading(posteriors, sure, scores)

    def _pixel_scores(self, scene: Scene, cells: _Cells) -> tuple[PixelPlanes, NDArray[np.intp]]:
        """Log-likelihoods, and the pixels (sorted flat indices) for which they come from learned borders.

        Those of a pixel's cell; near borders, from learned borders if possible, else from small windows.
        """
        of_cells = np.ascontiguousarray(self.potts.beta * cells.scores.T, np.float32)
        near = near_border(cells.posteriors, cells.grid)
        learned = np.zeros_like(near)
        if self.borders is not None and scene.planes is not None:
            learned = near & ~self._foreign(cells, self.borders)
        band = np.flatnonzero(cells.grid.to_pixels(near))
        known = learned[cells.grid.cells_of(band)]
        local = np.empty((len(of_cells), len(band)), np.float32)
        if not known.all():
            wide = _SMALL_WINDOWS * (_WIDER if len(self.features.bank.spacing) == 3 else 1)
            n = self._windowed(scene, wide, votes_of_scales(self.features.wavelengths))
            for k in range(len(local)):  # the scores of all at once would take as much again
                one = scores_of(n, self.profiles[k : k + 1], self.background)
                local[k, ~known] = one[band[~known], 0]
        if self.borders is not None and scene.planes is not None and known.any():
            of_known = band[known]
            for place, planes, bins in scene.images():
                here = slice(*np.searchsorted(of_known, [place.start, place.stop]))
                found = self.borders.log_odds(planes, of_known[here] - place.start, bins)
                if found.shape == local.shape:
                    local = found
                else:
                    local[:, np.flatnonzero(known)[here]] = found
        if scene.seeds is not None:
            (painted,) = np.nonzero(scene.seeds.ravel()[band])
            local[scene.seeds.ravel()[band[painted]] - 1, painted] += PIN
        return PixelPlanes(cells.grid, of_cells, band, local), band[known]

    def _read_windows(self, scene: Scene) -> Reading:
        """Classify every pixel by the window around it, without a prior on the map."""
        n = self._windowed(scene, _PLAIN_WINDOWS, np.ones(1))
        f = self.features
        beta = effective_observations(f.bank, n.windows[: f.n_filters])
        scores = np.empty((len(self.profiles), n.shape[0]), np.float32)
        for k in range(len(scores)):  # those of all at once would take three times as much
            one = scores_of(n, self.profiles[k : k + 1], self.background)
            np.multiply(one[:, 0], np.float32(beta), out=scores[k])
        shape = (len(scores), *scene.shape)
        posteriors = PixelPlanes.full(soft_max_over(scores.copy()).reshape(shape))
        return Reading(posteriors, posteriors, replace(posteriors, near=scores))

    def _windowed(self, scene: Scene, windows: float, votes: Any) -> WindowedCounts:
        """Histograms around every pixel, with window sides in wavelengths."""
        f = self.features
        sides = window_sides(f.wavelengths, windows).tolist()
        return WindowedCounts(
            scene.bins,
            sides,
            n_bins=f.n_bins,
            mask=scene.mask,
            weights=f.weights * votes,
            border="symmetric",
            spacing=scene.spacing,
        )

    def _foreign(self, cells: _Cells, borders: BorderClassifier) -> NDArray[np.bool_]:
        """Which cells lie near those of a texture whose borders were not learned."""
        if borders.known.all():
            return np.zeros(cells.grid.n_cells, bool)
        foreign = ~borders.known[cells.posteriors.argmax(axis=1)]
        around = cells.grid.near(2 * _BAND + 1, 1)
        return dilated(foreign.reshape(cells.grid.shape).astype(np.uint8), around).ravel() > 0

    def novelty(self, scene: Scene, step: int = WINDOW_STEP) -> NDArray[np.bool_]:
        """Which pixels none of the textures explains, by windows around every ``step``-th cell.

        A window is novel if its divergence from the best-fitting profile exceeds that texture's limit.
        Windows across a border are novel too, so only wide patches of novel windows count. Many scattered
        missing pixels change the filter responses, and so look novel as well.
        """
        sites, grids = cell_sites([scene], self.features, self.cell, self.background)
        windows = window_sites(sites, grids, self.features.wavelengths, self.windows, step)
        labels, divergences = divergence(windows, scores_of(windows, self.profiles, self.background))
        (grid,) = grids
        scores = (divergences / self.limits[labels]).astype(np.float32)
        scores = scores.reshape((windows.stacks or windows.grids)[0])
        side = grid.near(math.ceil(_PATCH * WINDOW_STEP / step) | 1, 1)
        coarse = dilated(eroded(scores, side), side) > 1
        for axis, (times, cells) in enumerate(zip(grid.near(step, 1), grid.sides, strict=True)):
            coarse = coarse.repeat(times * cells, axis)
        return coarse[tuple(map(slice, scene.shape))]


def agree(probabilities: NDArray[np.floating], labels: NDArray[np.integer]) -> None:
    """Make the label the most probable everywhere, in place: exchange its probability with the largest.

    ``probabilities`` is (K, pixels). The label's becomes larger by the least possible amount, to avoid ties.
    """
    first = arg_max_over(probabilities)
    pixels = np.flatnonzero(first != labels)
    ours, theirs = labels[pixels], first[pixels]
    swapped = probabilities[ours, pixels]
    probabilities[ours, pixels] = np.nextafter(probabilities[theirs, pixels], np.float32(2))
    probabilities[theirs, pixels] = swapped


def scores_of(n: CountMatrix, profiles: NDArray, background: NDArray) -> NDArray[np.floating]:
    """Log-likelihoods (N, K) of the sites of a count matrix in profiles (K, M)."""
    return HistogramClustering(background=background).scores(n, Profiles(profiles, np.ones(len(profiles))))


def divergence(windows: Sites, scores: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """Best profile of every window (N,), and the Kullback-Leibler divergence from it (N,), weighted nats."""

    def entropy(rows: slice) -> NDArray[np.floating]:
        counts = windows.counts[rows]
        return np.einsum("nm,nm->n", counts * windows.weights, np.log(counts + np.float32(1e-12)))

    own = np.concatenate(in_strips(entropy, len(scores)))
    return scores.argmax(axis=1), np.maximum(own - scores.max(axis=1), 0)


def divergence_limits(windows: Sites, scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divergence (K,) that a texture's own windows rarely reach, with room for parts not seen in training."""
    labels, divergences = divergence(windows, scores)
    n_clusters = scores.shape[1]
    inside = interior_cells(labels, windows) & (windows.sizes > 0)
    limits = np.full(n_clusters, np.nan)
    for k in range(n_clusters):
        members = divergences[inside & (labels == k)]
        if len(members):
            middle, high = np.quantile(members, [0.5, 0.95])
            limits[k] = middle + _ROOM * (high - middle) + 1e-3
    typical = np.nanmedian(limits) if np.isfinite(limits).any() else np.quantile(divergences, 0.95) + 1e-3
    return np.where(np.isfinite(limits), limits, typical).astype(np.float32)


def cell_sites(
    scenes: Sequence[Scene], features: Features, cell: int, background: NDArray[np.floating] | None = None
) -> tuple[Sites, list[CellGrid]]:
    """Histograms of the cells' own pixels, of all scenes."""
    sides = [sides_along(cell, scene.spacing or (1,) * len(scene.shape)) for scene in scenes]
    n_cells = sum(math.prod(shortened(*pair)) for pair in zip((s.shape for s in scenes), sides, strict=True))
    packed = (n_cells > _MANY_CELLS or kernels is not None) and max(map(math.prod, sides)) <= _MOST_PACKED
    tables, grids = zip(*(scene.cells(cell, features.n_bins, packed) for scene in scenes), strict=True)
    counts = tables[0] if len(tables) == 1 else stacked(tables)
    sizes = np.concatenate([grid.sizes for grid in grids])
    if background is None:
        sums = sum(in_strips(lambda rows: counts[rows].sum(axis=0, dtype=np.float64), len(counts)))
        background = (sums / sizes.sum(dtype=np.float64)).astype(np.float32)
    weights = np.repeat(features.weights, features.n_bins)
    images, stacks = images_of([grid.shape for grid in grids], scenes[0].is_stack)
    return Sites(counts, sizes, weights, images, background, stacks), list(grids)


def mean_values(scene: Scene, grid: CellGrid, features: Features) -> NDArray[np.float32]:
    """Mean plain values (cells, C) of a scene's cells; 0 where there are no data."""
    assert scene.planes is not None
    valid = np.ones(scene.shape, bool) if scene.mask is None else scene.mask
    values = [channel.values() for channel in features.recipes(scene.planes) if channel.kind == "value"]
    sums = np.stack([*(np.where(valid, plane, 0) for plane in values), valid]).astype(np.float32)
    for axis, (side, length) in enumerate(zip(grid.sides, scene.shape, strict=True), start=1):
        sums = np.add.reduceat(sums, range(0, length, side), axis=axis)
    table = sums.reshape(len(sums), -1).T
    return np.asarray(table[:, :-1] / np.maximum(table[:, -1:], 1), np.float32)


def window_sides(wavelengths: NDArray[np.float64], windows: float) -> NDArray[np.intp]:
    """Odd side in pixels of each channel's window, given in wavelengths; plain values count as the finest."""
    return (windows * np.maximum(wavelengths, _FINEST)).astype(int) // 2 * 2 + 1


def votes_of_scales(wavelengths: NDArray[np.float64]) -> NDArray[np.floating]:
    """Nats that channels count for the place of a border: coarse filters reach across it, by their area."""
    return (_FINEST / np.maximum(wavelengths, _FINEST)) ** 2


def effective_observations(bank: GaborBank, windows: ArrayLike) -> float:
    """Independent observations in a window, per channel: the final inverse temperature.

    Neighbouring responses of a filter are correlated over its own envelope, so that an area A holds about
    ``1 + A / (2 pi sigma_x sigma_y)`` independent ones, and a volume accordingly; channels overlap in
    frequency, and three of them carry what one independent channel would. Both were measured on homogeneous
    textures.
    """
    n = len(bank.spacing)
    areas = np.power(np.asarray(windows, float), n)
    sigma = np.array([1 / (2 * np.pi * f.along) / (2 * np.pi * f.across) ** (n - 1) for f in bank.filters])
    return float(np.mean(1 + areas / ((2 * np.pi) ** (n / 2) * sigma)) / _CHANNEL_DEPENDENCE)
