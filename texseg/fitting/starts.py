"""Several runs at once, and the choice among them: how the default path finds the right clusters.

A window that straddles a border has a mixed histogram, and together such windows earn a cluster of their own,
for which two true textures are merged. So windows only serve the starts: hard ACM from k-means++ seeds
([1]_ Eq. 23, 24), some of them on sites far from borders. Every distinct start is then fitted to the disjoint
cells' own histograms under a Potts prior (a hidden-Markov ACM), and the run with the greatest
:func:`interior_gain` is kept: a cluster of border cells has no interior and earns nothing.

All runs share their matrix products: S runs of K clusters are one run of S * K clusters whose posteriors
sum to one within each run.

References
----------
.. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from texseg.counts.grid import window_matrix
from texseg.fitting.assignment import Neighbourhood, arg_max_over, mean_field

__all__ = [
    "Candidate",
    "PottsSettings",
    "Sites",
    "border_measure",
    "distinct",
    "exchange_starts",
    "fit_potts",
    "hard_starts",
    "interior_cells",
    "interior_gain",
    "plus_plus",
    "potts_sweeps",
]

Floats = NDArray[np.floating]

BACKGROUND = 2e-3
"""Share of the whole image's profile that is mixed into every cluster's: unseen bins are unlikely, not
impossible."""

_TRIALS = 3  # candidates a seed is chosen from
_CALM = 0.6  # share of the sites that count as far from borders
_STEADY = 0.998  # share of labels that stay when a run has converged
_SAME = 0.97  # starts that agree on this share of the sites are the same
_DIVISIBLE = 8  # windows that a cluster must hold to be split
_HALVING_STEPS = 4
_EXTRAPOLATION = 2.0  # how far the interior of a cluster may stand for the whole


_window_matrix = lru_cache(maxsize=8)(window_matrix)


class Sites(NamedTuple):
    """Histograms of the sites of a grid, as the fits below take them."""

    counts: Floats
    """(N, M); every channel of a site sums to the site's size."""
    sizes: Floats
    """(N,), share of each site that holds data, 0 to 1."""
    weights: Floats
    """(M,), weight of each column's channel."""
    grids: tuple[tuple[int, int], ...]
    """Rows and columns of each image's sites; the images follow one another in the rows of ``counts``."""
    background: Floats
    """(M,), profile of all images together; each channel sums to one."""

    def pieces(self, values: NDArray) -> list[NDArray]:
        """Take values a site, (N, ...), apart into one (h, w, ...) an image."""
        ends = np.cumsum([h * w for h, w in self.grids])[:-1]
        parts = zip(np.split(values, ends), self.grids, strict=True)
        return [part.reshape(h, w, *values.shape[1:]) for part, (h, w) in parts]

    def histograms(self, rows: NDArray[np.intp]) -> Floats:
        """Histograms of some sites, each channel with sum one."""
        return self.counts[rows] / np.maximum(self.sizes[rows], 1e-6)[:, None]

    @property
    def n_channels(self) -> int:
        """Number C of channels, since each sums to one in the background."""
        return round(float(self.background.sum()))

    def scores(self, profiles: Floats) -> Floats:
        """Log-likelihood of every site under profiles (..., M), shape (N, ...), in weighted nats."""
        logs = self._logs(profiles).reshape(-1, len(self.weights))
        # sites are adjacent in memory; the product is faster in the other layout, copy included
        planes = np.ascontiguousarray((self.counts @ logs.T).T)
        return planes.T.reshape(-1, *profiles.shape[:-1])

    def channel_scores(self, rows: NDArray[np.intp], profiles: Floats) -> Floats:
        """Log-likelihood of some sites under profiles (K, M), channel by channel: (rows, K, C)."""
        logs = self._logs(profiles).reshape(len(profiles), self.n_channels, -1)
        counts = self.counts[rows].reshape(len(rows), self.n_channels, -1)
        return np.matmul(counts.transpose(1, 0, 2), logs.transpose(1, 2, 0)).transpose(1, 2, 0)

    def _logs(self, profiles: Floats) -> Floats:
        """Weighted logarithms of profiles, with some of the background in each."""
        mixed = (1 - BACKGROUND) * profiles + BACKGROUND * self.background
        return np.log(mixed + np.float32(1e-7)) * self.weights

    def profiles(self, posteriors: Floats) -> Floats:
        """Mean histograms (..., M) of soft clusters (N, ...); the background for an empty one."""
        flat = np.moveaxis(posteriors, 0, -1).reshape(-1, len(self.counts))
        mass = flat @ self.sizes
        means = (flat @ self.counts) / np.maximum(mass, 1e-6)[:, None]
        means[mass <= 1e-6] = self.background
        return means.reshape(*posteriors.shape[1:], -1)

    def window_mean(self, values: Floats, side: float) -> Floats:
        """Mean of values a site (N, ...) over centred square windows of so many sites, cut at the border."""
        means = []
        for piece in self.pieces(values):
            h, w = piece.shape[:2]
            down = _window_matrix(h, side) @ np.ascontiguousarray(piece, np.float32).reshape(h, -1)
            means.append(np.matmul(_window_matrix(w, side), down.reshape(h, w, -1)).reshape(h * w, -1))
        return np.concatenate(means).reshape(values.shape)


class Candidate(NamedTuple):
    """One fitted run."""

    posteriors: Floats
    """(N, K)."""
    profiles: Floats
    """(K, M); every channel sums to one."""
    scores: Floats
    """(N, K), log-likelihood of every site in every cluster, relative to the background profile."""
    gain: float


def border_measure(sites: Sites, reach: int) -> Floats:
    """How much the windows on opposite sides of every site differ, shape (N,).

    The larger of the two directions' squared Hellinger distances, between windows ``reach`` sites before and
    behind, channels weighted.
    """
    measures = []
    for counts in sites.pieces(sites.counts):
        roots = np.sqrt(counts * sites.weights)
        measure = np.zeros(roots.shape[:2], np.float32)
        for axis in (0, 1):
            index = np.arange(measure.shape[axis])
            step = roots.take(np.maximum(index - reach, 0), axis)
            step -= roots.take(np.minimum(index + reach, index[-1]), axis)
            measure = np.maximum(measure, np.einsum("hwm,hwm->hw", step, step))
        measures.append(measure.ravel())
    return np.concatenate(measures)


def plus_plus(sites: Sites, n_clusters: int, allowed: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """Seeds of several runs by greedy k-means++, with the Kullback-Leibler divergence as the distance.

    Parameters
    ----------
    sites : Sites
    n_clusters : int
        K, seeds a run.
    allowed : bool array of shape (N, S)
        The sites that each of the S runs may use.
    rng : numpy.random.Generator

    Returns
    -------
    float32 array of shape (S, K, M)
        Histograms of sites.
    """
    N, S = allowed.shape
    own = np.einsum("nm,nm->n", sites.counts * sites.weights, np.log(sites.counts + np.float32(1e-12)))
    seeds = np.empty((S, n_clusters), np.intp)
    seeds[:, 0] = [rng.choice(np.flatnonzero(allowed[:, s])) for s in range(S)]
    distance = own[:, None] - sites.scores(sites.histograms(seeds[:, 0]))
    for k in range(1, n_clusters):
        chance = np.cumsum(np.maximum(distance, 0) * allowed, axis=0, dtype=np.float64)
        drawn = rng.random((S, _TRIALS)) * chance[-1][:, None]
        trials = np.stack([np.searchsorted(chance[:, s], drawn[s]) for s in range(S)]).clip(0, N - 1)
        scores = sites.scores(sites.histograms(trials.ravel())).reshape(N, S, _TRIALS)
        after = np.minimum(own[:, None, None] - scores, distance[:, :, None])
        best = np.einsum("nst,ns->st", after, allowed.astype(np.float32)).argmin(axis=1)
        seeds[:, k] = trials[np.arange(S), best]
        distance = after[:, np.arange(S), best]
    return sites.histograms(seeds.ravel()).reshape(S, n_clusters, -1)


def hard_starts(
    windows: Sites, n_clusters: int, n_starts: int, reach: int, rng: np.random.Generator, n_steps: int = 10
) -> Floats:
    """Distinct solutions of the hard ACM on windowed histograms.

    Every second run is made on the calmest 60 per cent of the sites alone, by :func:`border_measure`.

    Parameters
    ----------
    windows : Sites
    n_clusters, n_starts : int
    reach : int
        Half the side of a window, in sites.
    rng : numpy.random.Generator
    n_steps : int, default=10
        Steps at most.

    Returns
    -------
    float32 array of shape (S, K, M)
        Profiles; runs that end alike are given once.
    """
    present = windows.sizes > 0.25 * windows.sizes.max()
    measure = border_measure(windows, reach)
    calm = present & (measure <= np.quantile(measure[present], _CALM))
    allowed = np.stack([present if s % 2 == 0 else calm for s in range(n_starts)], axis=1)
    profiles = plus_plus(windows, n_clusters, allowed, rng)
    clusters = np.arange(n_clusters)[:, None]
    labels = np.full(allowed.shape[::-1], -1)
    moving = np.arange(n_starts)  # a run whose labels all stay has ended
    for _ in range(n_steps):
        found = arg_max_over(windows.scores(profiles[moving]).transpose(2, 1, 0))
        changes = np.count_nonzero(found != labels[moving], axis=1)
        labels[moving] = found
        if changes.sum() < (1 - _STEADY) * labels.size:
            break
        moving, found = moving[changes > 0], found[changes > 0]
        members = ((found[:, None] == clusters) & allowed.T[moving, None]).astype(np.float32)  # (S, K, N)
        empty = ~members.any(axis=2)
        means = windows.profiles(members.transpose(2, 0, 1))
        profiles[moving] = np.where(empty[:, :, None], profiles[moving], means)
    return profiles[distinct(labels[:, present].T, n_clusters)]


def distinct(labels: NDArray[np.intp], n_clusters: int) -> list[int]:
    """Keep the runs (columns) whose partitions differ from all before."""
    kept: list[int] = []
    for s in range(labels.shape[1]):
        for other in kept:
            pairs = np.bincount(labels[:, other] * n_clusters + labels[:, s], minlength=n_clusters**2)
            table = pairs.reshape(n_clusters, n_clusters)
            if table[linear_sum_assignment(table, maximize=True)].sum() > _SAME * len(labels):
                break
        else:
            kept.append(s)
    return kept


def exchange_starts(windows: Sites, profiles: Floats, n_moves: int, rng: np.random.Generator) -> Floats:
    """Neighbours of a solution: one cluster split, two others merged.

    The moves whose split gains most over what the merge loses, on windowed histograms and hard assignments.

    Parameters
    ----------
    windows : Sites
    profiles : float32 array of shape (K, M)
        The solution.
    n_moves : int
        Moves at most; there are none for fewer than three clusters.
    rng : numpy.random.Generator

    Returns
    -------
    float32 array of shape (S, K, M)
    """
    K = len(profiles)
    scores = windows.scores(profiles)
    labels, best = scores.argmax(axis=1), scores.max(axis=1)
    members = (labels[:, None] == np.arange(K)) & (windows.sizes > 0)[:, None]
    divisible = np.flatnonzero(members.sum(axis=0) >= _DIVISIBLE)
    if K < 3 or not len(divisible):
        return np.empty((0, *profiles.shape), np.float32)
    halves, gains = _halves(windows, members[:, divisible], best, rng)
    a, b = np.triu_indices(K, 1)
    merged = windows.profiles((members[:, a] | members[:, b]).astype(np.float32))
    together = windows.scores(merged)
    losses = np.einsum("n,np->p", best, members[:, a] | members[:, b]) - np.einsum(
        "np,np->p", together, members[:, a] | members[:, b]
    )
    net = gains[:, None] - losses
    net[(divisible[:, None] == a) | (divisible[:, None] == b)] = -np.inf
    moves = np.argsort(-net, axis=None)[: min(n_moves, int(np.isfinite(net).sum()))]
    starts = []
    for split, pair in zip(*np.unravel_index(moves, net.shape), strict=True):
        rest = np.delete(profiles, [divisible[split], a[pair], b[pair]], axis=0)
        starts.append(np.concatenate([rest, merged[pair][None], halves[split]]))
    return np.array(starts, np.float32).reshape(-1, *profiles.shape)


def _halves(
    windows: Sites, members: NDArray[np.bool_], best: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Two profiles (K, 2, M) for every cluster, and what its windows gain by them (K,)."""
    halves = plus_plus(windows, 2, members, rng)
    for _ in range(_HALVING_STEPS):
        second = windows.scores(halves).argmax(axis=2).astype(bool)
        parts = np.stack([members & ~second, members & second], axis=2).astype(np.float32)
        halves = np.where(np.asarray(parts.any(axis=0))[:, :, None], windows.profiles(parts), halves)
    gains = np.einsum("nk,nk->k", windows.scores(halves).max(axis=2) - best[:, None], members)
    return halves, gains


class PottsSettings(NamedTuple):
    """How strongly likelihood and neighbours speak on cells."""

    beta: float = 0.5
    """Inverse temperature of a full cell's scores: all channels of a grey image, which weigh 17, then count
    as 8.5 independent observations, since neighbouring pixels and channels repeat each other."""
    strength: float = 10.0
    """Nats that a unanimous neighbourhood adds."""
    sigma: float = 1.5
    """Standard deviation of the Gaussian neighbourhood, in cells."""
    n_rounds: int = 8
    """Updates of the profiles."""
    n_sweeps: int = 3
    """Mean-field sweeps between two updates."""


def fit_potts(cells: Sites, starts: Floats, settings: PottsSettings) -> list[Candidate]:
    """Fit the ACM with a Potts prior to bare cells, from several starts at once.

    Parameters
    ----------
    cells : Sites
    starts : float32 array of shape (S, K, M)
        Profiles to begin with.
    settings : PottsSettings

    Returns
    -------
    list of S Candidates
    """
    profiles, Q = starts, None
    for _ in range(settings.n_rounds):
        if Q is not None:
            profiles = cells.profiles(Q)
        scores = cells.scores(profiles)
        Q = potts_sweeps(scores, cells, settings, Q)
    assert Q is not None
    scores -= cells.scores(cells.background)[:, None, None]
    return [
        Candidate(Q[:, s], profiles[s], scores[:, s], interior_gain(scores[:, s], Q[:, s], cells))
        for s in range(len(starts))
    ]


def potts_sweeps(
    scores: Floats,
    cells: Sites,
    settings: PottsSettings,
    Q: Floats | None = None,
    n_sweeps: int | None = None,
) -> Floats:
    """Mean-field sweeps of S runs at once; ``scores`` and the result have shape (N, S, K)."""
    local = settings.beta * np.ascontiguousarray(scores.transpose(1, 2, 0))  # (S, K, N): sites are adjacent
    planes = None if Q is None else np.ascontiguousarray(Q.transpose(1, 2, 0))
    neighbourhood = Neighbourhood(cells.grids, settings.sigma, settings.strength, cells.sizes)
    n_sweeps = settings.n_sweeps if n_sweeps is None else n_sweeps
    return mean_field(local, neighbourhood, planes, n_sweeps).transpose(2, 0, 1)


def interior_gain(scores: Floats, posteriors: Floats, cells: Sites) -> float:
    """Mean gain over the background profile, judged by the cells that are not at a border.

    Cells next to a change of label do not count, and each cluster's remaining gain stands for its border
    cells too, by at most a factor of two. So a cluster that follows borders earns nothing, and a correct
    partition is not punished for having many borders.
    """
    labels = arg_max_over(posteriors.T)
    inside = interior_cells(labels, cells)
    K = scores.shape[1]
    own = scores[np.arange(len(labels)), labels]
    area = np.bincount(labels, cells.sizes, K)
    inner = np.bincount(labels, cells.sizes * inside, K)
    gain = np.bincount(labels, own * inside, K)
    share = np.minimum(area / np.maximum(inner, 1e-9), _EXTRAPOLATION)
    return float((gain * share).sum() / cells.sizes.sum())


def interior_cells(labels: NDArray[np.integer], cells: Sites) -> NDArray[np.bool_]:
    """Which cells (N,) neither touch another label, nor lie beside a cell that does."""
    return np.concatenate([_interior(grid).ravel() for grid in cells.pieces(labels)])


def _interior(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    grid = labels.astype(np.uint8)
    square = np.ones((3, 3), np.uint8)
    edge = (cv2.dilate(grid, square) != cv2.erode(grid, square)).astype(np.uint8)
    return cv2.dilate(edge, cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))) == 0
