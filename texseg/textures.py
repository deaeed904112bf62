"""What a segmentation has learned, and how images are labelled with it, on the default and the plain path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import Planes
from texseg.counts.grid import CellGrid, cell_counts, cell_grid, pyramid, window_means
from texseg.counts.matrix import WindowedCounts
from texseg.fitting.anneal import Level, State, anneal, critical_beta, geometric_schedule
from texseg.fitting.assignment import arg_max_over, soft_max_over
from texseg.fitting.starts import BACKGROUND, PottsSettings, Sites, interior_cells, potts_sweeps
from texseg.models.acm import HistogramClustering, Profiles
from texseg.pixels.borders import BorderClassifier, learn_borders
from texseg.pixels.label import dissolve_specks, near_border, pixel_posteriors, pixel_scores
from texseg.settings import Settings

__all__ = ["CellTextures", "Scene", "WindowTextures", "cell_sites", "effective_observations", "window_sites"]

WINDOW_STEP = 2
"""Windows overlap: every second row and column of cells is enough."""

_WINDOW_SAY, _FIELD_SAY = 0.5, 0.5  # of window scores and of log posteriors in calibrated probabilities
_ROOM = 1.75  # limits lie so many times the spread (median to 95 per cent) of the known windows above them
_PATCH = 5  # strange windows in a row, each way, before a pixel is called unfamiliar
_BAND = 3  # cells on either side of a border that its place depends on
_SPECK_SIDE = 5  # cells; a square part below it shows too little of a texture to be told from a flaw
_FOREIGN = 7  # cells; in a square of this side round a cell whose borders were not learned none are used
_SETTLING_SWEEPS = 12  # mean-field sweeps on cells with fixed profiles
_STRIP = 2**18  # pixels that are handled at once
_FAR = 8.0  # pixels; channels of longer wavelength get the larger window
_CHANNEL_DEPENDENCE = 3.0  # channels that carry the information of one independent channel, measured
_COOLING = 0.8  # each temperature of the plain path is this times the one before


@dataclass(frozen=True)
class Scene:
    """One encoded image."""

    bins: NDArray[np.uint8]
    """(C, H, W)."""
    mask: NDArray[np.bool_] | None
    """True where there is data; None when that is everywhere."""
    planes: Planes | None = field(default=None, repr=False)
    """The image itself, for textures that know borders."""
    _tables: dict[int, tuple[NDArray[np.floating], CellGrid]] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of pixels."""
        return self.bins.shape[1], self.bins.shape[2]

    def cells(self, side: int, n_bins: int) -> tuple[NDArray[np.floating], CellGrid]:
        """Histograms of cells of ``side`` pixels (cells, C * n_bins), and their grid; counted once."""
        if side not in self._tables:
            grid = cell_grid(self.shape, side, self.mask)
            ones = np.ones(len(self.bins), np.float32)
            self._tables[side] = cell_counts(self.bins, grid, n_bins, ones, self.mask), grid
        return self._tables[side]


class Reading(NamedTuple):
    """What textures say about every pixel of a scene; all float32 of shape (K, H, W)."""

    posteriors: NDArray[np.floating]
    """Of the model with its prior on the map: these decide the labels."""
    probabilities: NDArray[np.floating]
    """Calibrated: of pixels that get a label with probability p, about the share p is right."""
    scores: NDArray[np.floating]
    """Log-likelihoods without prior."""


class _Cells(NamedTuple):
    """What textures say about the cells of a scene."""

    sites: Sites
    grid: CellGrid
    scores: NDArray[np.floating]
    """(cells, K), log-likelihoods."""
    posteriors: NDArray[np.floating]
    """(cells, K), under the prior on the map."""

    def labels(self) -> NDArray[np.int32]:
        """Labels from 0 of the pixels (H, W), all those of a cell alike."""
        return np.ascontiguousarray(self.grid.to_pixels(self.posteriors.argmax(axis=1).astype(np.int32)))


@dataclass(frozen=True)
class CellTextures:
    """Textures of the default path: profiles, told apart on cells and then on pixels, under Potts priors."""

    kind: ClassVar[str] = "cells"
    features: Features
    profiles: NDArray[np.floating]
    """(K, M), each channel with sum one."""
    background: NDArray[np.floating]
    """(M,), profile of all that was learned from."""
    cell: int
    potts: PottsSettings
    boundary_sigma: float
    windows: tuple[float, float]
    """Sides in pixels of the windows that judge a larger neighbourhood; see `Settings`."""
    limits: NDArray[np.floating]
    """(K,), divergence of a window from its texture's profile above which it is something else, nats."""
    confusion: NDArray[np.floating]
    """(K, K), chance that what was taken for one texture (row) is another; see `confusion_of_clusters`."""
    borders: BorderClassifier | None = None
    """What was learned of borders between the textures, if that was."""

    def take(self, order: NDArray[np.intp]) -> CellTextures:
        """Keep some of the textures, in this order."""
        borders = None if self.borders is None else self.borders.take(order)
        confusion = self.confusion[np.ix_(order, order)]
        return replace(
            self,
            profiles=self.profiles[order],
            limits=self.limits[order],
            confusion=confusion / confusion.sum(axis=1, keepdims=True),
            borders=borders,
        )

    def with_borders(
        self,
        scenes: Sequence[Scene],
        smoothness: float,
        rng: np.random.Generator,
        descriptions: Sequence[str],
        side: int,
    ) -> CellTextures:
        """Learn what borders look like from scenes with their planes, as their cells are labelled now."""
        planes = [scene.planes for scene in scenes if scene.planes is not None]
        labels = [self._cells(scene, smoothness).labels() for scene in scenes]
        bins = [scene.bins for scene in scenes]
        log_profiles = self._log_profiles()
        borders = learn_borders(
            planes, labels, bins, self.features, log_profiles, self.cell, rng, descriptions, side
        )
        return replace(self, borders=borders)

    def _cells(self, scene: Scene, smoothness: float) -> _Cells:
        """Tell the textures apart on the cells of a scene."""
        sites, (grid,) = cell_sites([scene], self.features, self.cell, self.background)
        potts = self.potts._replace(strength=self.potts.strength * smoothness)
        scores = sites.scores(self.profiles)
        return _Cells(sites, grid, scores, settled(scores, sites, potts))

    def speck_area(self, smoothness: float) -> float:
        """Pixels; parts below it show too little of a texture to be told from a flaw."""
        return smoothness * (_SPECK_SIDE * self.cell) ** 2

    @property
    def reach(self) -> int:
        """Pixels beyond which nothing tells what a pixel is: filters, light taken away twice, borders."""
        return self.features.reach + _BAND * self.cell

    def read(self, scene: Scene, smoothness: float, *, specks: bool = False) -> Reading:
        """Tell the textures apart at every pixel of a scene; ``specks`` keeps parts that are too small."""
        K = len(self.profiles)
        cells = self._cells(scene, smoothness)
        sites, grid, local = cells.sites, cells.grid, cells.scores
        weights, wavelengths = self.features.weights, self.features.wavelengths
        scores = pixel_scores(scene.bins, self._log_profiles(), wavelengths, weights, scene.mask)
        band = np.empty(0, np.intp)
        if self.borders is not None and scene.planes is not None:
            band = self._band(cells, self.borders)
            if len(band):
                scores.reshape(K, -1)[:, band] = self.borders.log_odds(scene.planes, band, scene.bins)
        posteriors = pixel_posteriors(
            scores, cells.posteriors, grid, smoothness, self.boundary_sigma, scene.mask
        )
        if not specks:
            dissolve_specks(posteriors, scores, self.speck_area(smoothness), scene.mask)
        around = sites.window_mean(local, self.windows[0] / self.cell)
        share = sites.window_mean(sites.sizes[:, None], self.windows[0] / self.cell)
        wide = _WINDOW_SAY * np.ascontiguousarray((around / np.maximum(share, 1e-6)).T)
        probabilities = np.log(np.maximum(posteriors, 1e-12))
        probabilities *= _FIELD_SAY
        # windows across a border know less than what was learned of it
        learned = probabilities.reshape(K, -1)[:, band]
        for plane, window in zip(probabilities, wide, strict=True):
            plane += grid.to_pixels(window)
        probabilities.reshape(K, -1)[:, band] = learned
        soft_max_over(probabilities.reshape(K, -1))
        _confuse(probabilities.reshape(K, -1), self.confusion)
        _agree(probabilities.reshape(K, -1), arg_max_over(posteriors).ravel())
        return Reading(posteriors, probabilities, scores)

    def _log_profiles(self) -> NDArray[np.floating]:
        """Logarithms (K, C, n_bins) of the profiles, with some of the background in each."""
        mixed = (1 - BACKGROUND) * self.profiles + BACKGROUND * self.background
        return np.log(mixed + 1e-7).reshape(len(mixed), -1, self.features.n_bins)

    def _band(self, cells: _Cells, borders: BorderClassifier) -> NDArray[np.intp]:
        """Pixels (flat indices) near borders between cells of textures whose borders were learned."""
        near = near_border(cells.posteriors, cells.grid)
        if not borders.known.all():
            foreign = ~borders.known[cells.posteriors.argmax(axis=1)]
            around = np.ones((_FOREIGN, _FOREIGN), np.uint8)
            near &= cv2.dilate(foreign.reshape(cells.grid.shape).astype(np.uint8), around).ravel() == 0
        return np.flatnonzero(cells.grid.to_pixels(near))

    def unfamiliar(self, scene: Scene) -> NDArray[np.bool_]:
        """Pixels, (H, W), that none of the textures explains.

        A window is strange when its divergence from the profile that fits it best exceeds that texture's
        limit. Windows across a border are strange too, so that only wide patches of strange windows count.
        Many scattered missing pixels change what filters see, and look strange too.
        """
        sites, grids = cell_sites([scene], self.features, self.cell, self.background)
        windows = window_sites(sites, grids, self.features, self.windows, WINDOW_STEP)
        labels, divergences = divergence(windows, self.profiles)
        strange = (divergences / self.limits[labels]).reshape(windows.grids[0]).astype(np.float32)
        opened = cv2.morphologyEx(strange, cv2.MORPH_OPEN, np.ones((_PATCH, _PATCH), np.uint8))
        H, W = scene.shape
        coarse = opened.repeat(WINDOW_STEP * self.cell, 0).repeat(WINDOW_STEP * self.cell, 1)[:H, :W]
        return coarse > 1


@dataclass(frozen=True)
class WindowTextures:
    """Textures of the plain path: profiles of windows round every pixel, without any prior on the map."""

    kind: ClassVar[str] = "windows"
    features: Features
    profiles: NDArray[np.floating]
    """(K, M), each channel with sum one."""
    proportions: NDArray[np.floating]
    """(K,), mixing proportions."""
    windows: tuple[int, ...]
    """Side of each channel's window in pixels."""
    beta: float

    def take(self, order: NDArray[np.intp]) -> WindowTextures:
        """Keep some of the textures, in this order."""
        return replace(self, profiles=self.profiles[order], proportions=self.proportions[order])

    def counts(self, scene: Scene) -> WindowedCounts:
        """Give the scene's implicit count matrix."""
        return WindowedCounts(scene.bins, self.windows, n_bins=self.features.n_bins, mask=scene.mask)

    def speck_area(self, smoothness: float) -> float:
        """Nothing is too small on the plain path."""
        return 0.0

    @property
    def cell(self) -> int:
        """Pixels are not put together."""
        return 1

    @property
    def reach(self) -> int:
        """Pixels beyond which nothing tells what a pixel is."""
        return self.features.reach + max(self.windows) // 2

    def read(self, scene: Scene, smoothness: float, *, specks: bool = False) -> Reading:
        """Tell the textures apart at every pixel of a scene; ``smoothness`` and ``specks`` have no say."""
        params = Profiles(self.profiles, self.proportions)
        scores = self.beta * HistogramClustering().scores(self.counts(scene), params)
        prior = np.log(np.maximum(self.proportions, 1e-30)).astype(scores.dtype)
        shape = (len(self.profiles), *scene.shape)
        planes = np.ascontiguousarray(scores.T).reshape(shape)
        posteriors = soft_max_over((planes + prior[:, None, None]).reshape(len(prior), -1)).reshape(shape)
        return Reading(posteriors, posteriors, planes)

    def unfamiliar(self, scene: Scene) -> NDArray[np.bool_]:
        """Raise: the plain path learns no limits of its textures."""
        raise ValueError("unknown textures cannot be told on preset='plain'; fit with another preset")


def _confuse(probabilities: NDArray[np.floating], confusion: NDArray[np.floating]) -> None:
    """Probabilities (K, pixels) of what pixels are, from those of what they are taken for, in place."""
    for start in range(0, probabilities.shape[1], _STRIP):
        strip = probabilities[:, start : start + _STRIP]
        strip[:] = confusion.T @ strip


def _agree(probabilities: NDArray[np.floating], labels: NDArray[np.integer]) -> None:
    """Exchange the probabilities (K, pixels) of label and first, where they are not the same, in place.

    Where several are the largest, the label's becomes larger by the least there is.
    """
    first = arg_max_over(probabilities)
    pixels = np.flatnonzero(first != labels)
    ours, theirs = labels[pixels], first[pixels]
    swapped = probabilities[ours, pixels]
    probabilities[ours, pixels] = np.nextafter(probabilities[theirs, pixels], np.float32(2))
    probabilities[theirs, pixels] = swapped


def settled(scores: NDArray[np.floating], sites: Sites, potts: PottsSettings) -> NDArray[np.floating]:
    """Posteriors (N, K) of cells under a Potts prior, from their scores (N, K) in textures that are known."""
    return potts_sweeps(scores[:, None], sites, potts, None, _SETTLING_SWEEPS)[:, 0]


def divergence(
    windows: Sites, profiles: NDArray[np.floating]
) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """Best profile of every window (N,), and the Kullback-Leibler divergence from it (N,), weighted nats."""
    own = np.einsum("nm,nm->n", windows.counts * windows.weights, np.log(windows.counts + np.float32(1e-12)))
    scores = windows.scores(profiles)
    return scores.argmax(axis=1), np.maximum(own - scores.max(axis=1), 0)


def divergence_limits(windows: Sites, profiles: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divergence (K,) that windows of each texture's own rarely reach, with room for parts not seen."""
    labels, divergences = divergence(windows, profiles)
    inside = interior_cells(labels, windows) & (windows.sizes > 0)
    limits = np.full(len(profiles), np.nan)
    for k in range(len(profiles)):
        members = divergences[inside & (labels == k)]
        if len(members):
            middle, high = np.quantile(members, [0.5, 0.95])
            limits[k] = middle + _ROOM * (high - middle) + 1e-3
    typical = np.nanmedian(limits) if np.isfinite(limits).any() else np.quantile(divergences, 0.95) + 1e-3
    return np.where(np.isfinite(limits), limits, typical).astype(np.float32)


def cell_sites(
    scenes: Sequence[Scene],
    features: Features,
    cell: int,
    background: NDArray[np.floating] | None = None,
) -> tuple[Sites, list[CellGrid]]:
    """Bare histograms of the cells of all scenes."""
    tables, grids = zip(*(scene.cells(cell, features.n_bins) for scene in scenes), strict=True)
    counts = tables[0] if len(tables) == 1 else np.concatenate(tables)
    sizes = np.concatenate([grid.sizes for grid in grids])
    if background is None:
        background = (counts.sum(axis=0, dtype=np.float64) / sizes.sum(dtype=np.float64)).astype(np.float32)
    weights = np.repeat(features.weights, features.n_bins)
    return Sites(counts, sizes, weights, tuple(grid.shape for grid in grids), background), list(grids)


def window_sites(
    sites: Sites,
    grids: Sequence[CellGrid],
    features: Features,
    sides: tuple[float, float],
    step: int,
) -> Sites:
    """Histograms of the windows round every ``step``-th cell."""
    side = np.where(features.wavelengths > _FAR, sides[1], sides[0])
    ends = np.cumsum([grid.n_cells for grid in grids])[:-1]
    means = [
        window_means(table, grid, side.tolist(), step)
        for table, grid in zip(np.split(sites.counts, ends), grids, strict=True)
    ]
    counts = np.concatenate([mean for mean, _, _ in means])
    present = np.concatenate([shares > 1e-3 for _, _, shares in means]).astype(np.float32)
    return sites._replace(counts=counts, sizes=present, grids=tuple(shape for _, shape, _ in means))


def effective_observations(bank: GaborBank, windows: Sequence[int]) -> float:
    """Independent observations in a window, per channel: what the final temperature counts.

    Neighbouring responses of a filter are correlated over its own envelope, so that an area A holds about
    ``1 + A / (2 pi sigma_x sigma_y)`` independent ones; channels overlap in frequency, and three of them
    carry what one independent channel would. Both were measured on homogeneous textures.
    """
    areas = np.square(np.asarray(windows, float))
    sigma = np.array([1 / (2 * np.pi * f.along) / (2 * np.pi * f.across) for f in bank.filters])
    return float(np.mean(1 + areas / (2 * np.pi * sigma)) / _CHANNEL_DEPENDENCE)


def plain_counts(scene: Scene, features: Features, settings: Settings) -> WindowedCounts:
    """Windowed counts of the filter channels; windows are proportional to the filter scale ([1] 6.3)."""
    return WindowedCounts(
        scene.bins, plain_windows(features, settings), n_bins=features.n_bins, mask=scene.mask
    )


def plain_windows(features: Features, settings: Settings) -> tuple[int, ...]:
    """Odd side of each channel's window."""
    return tuple(int(side) // 2 * 2 + 1 for side in settings.window_ratio * features.wavelengths)


def plain_run(
    n: WindowedCounts, n_clusters: int, bank: GaborBank, settings: Settings, rng: np.random.RandomState
) -> Iterator[State]:
    """Anneal the ACM on the windowed counts, coarse to fine ([1]_ sections 5.1 and 5.4).

    The run begins at 0.8 of the first critical inverse temperature, computed from the data, and ends at the
    one that counts :func:`effective_observations`; clusters are grown by splits, with split-and-merge moves.

    Yields
    ------
    State

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
    """
    levels = [Level(level.counts, level.sizes, level.parent) for level in pyramid(n, settings.coarsest)]
    final = effective_observations(bank, n.windows.tolist())
    model = HistogramClustering()
    first = critical_beta(model, levels[0].counts, rng, levels[0].row_weights)
    schedule = geometric_schedule(min(0.8 * first, final), final, _COOLING)
    return anneal(model, levels, schedule, rng=rng, n_clusters=n_clusters, growth="split-merge")
