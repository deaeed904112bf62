"""Seeds: pixels whose class the user has painted, and what is learned from them.

The user's classes are not the image's clusters: a gland is lumen and epithelium, and a shadow on sand is
sand. The seeds show which differences count. So two linear classifiers of cells are learned, on the square
roots of the histograms (whose distances are Hellinger's) of the cell and of windows around it:

1. *Logistic regression* on the painted cells, which weights the channels by how well they separate the
   seeds.
2. *A linear discriminant* ([1]_) between the means of the painted cells, with the covariance within the
   clusters of the image's over-segmentation: what varies inside one texture does not distinguish classes.
   Seeds are few; this uses all the rest of the image.

Their log-odds are averaged and replace the likelihood of the clusters under the same Potts prior. Painted
cells are pinned to their class, which also influences their neighbours. Classes without seeds are first
given clusters of the over-segmentation, those that the other classes explain least; the cells of these
clusters serve as their seeds.

References
----------
.. [1] T. Hastie, R. Tibshirani, J. Friedman, The Elements of Statistical Learning, 2nd ed., section 4.3.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import octaves_of
from texseg.counts.grid import CellGrid
from texseg.counts.sites import Sites, interior_cells, log_profiles, mix_background
from texseg.fitting.assignment import SETTLING_SWEEPS, potts_field
from texseg.parameters import MOST_SEGMENTS
from texseg.threads import one_blas_thread

Floats = NDArray[np.floating]

SEED_STRENGTH = 0.3
"""Factor on the strength of the prior on the map: a user's classes are more scattered than textures; .3 to
.5 give the same."""

PIN = 20.0  # nats for a painted cell or pixel: more than prior and likelihood together

_WINDOWS = (1.0, 3.0, 7.0)  # sides in cells of the windows whose histograms are used
_AXES = 8  # of each octave and window, along which cells differ most; 5 to 12 work
_PENALTY = 3.0  # inverse of scikit-learn's C for the logistic regression; .3 to 3 work
_RIDGE = 0.1  # added to the correlation matrix within clusters; .1 to .3 work
_DEPENDENCE = 0.1  # factor on the discriminant's log-odds, since windows overlap; .03 to .3 work
_LEAST = -6.0  # least log-probability of a class on a cell
_ROUNDS = 3  # of training on the cells whose class is sure by then
_SURE = 0.8  # probability above which a cell's class is sure
_OWN_WEIGHT = 3.0  # weight of a class's sure cells relative to its seeds
_MOST_CELLS = 150  # most sure cells per class, and most cells that serve as seeds of an unpainted one
_MOST_STEPS = 200  # of the regression, run to its end: stopping early costs up to .2 of the index on an image
_LEAST_SCALE = 1e-6  # of the numbers that describe cells, which are all 0 if the image has a single value


class SeedClassifier(NamedTuple):
    """Linear classifier of cells into K classes, over roots of histograms."""

    sides: Floats  # (S,), sides of the windows in cells; 1 is the cell itself
    weights: Floats  # (S, M, K)
    offsets: Floats  # (K,)

    def scores(self, cells: Sites) -> Floats:
        """Log-probabilities (N, K) of the classes at every cell."""
        sums = np.tile(self.offsets, (cells.shape[0], 1))
        for side, weights in zip(self.sides, self.weights, strict=True):
            sums += _roots(cells, float(side)) @ weights
        return _log_probabilities(sums)

    def take(self, order: NDArray[np.intp]) -> SeedClassifier:
        """Keep some of the classes, in this order."""
        return self._replace(weights=self.weights[..., order], offsets=self.offsets[order])


class Description(NamedTuple):
    """Cells described by a few numbers: coordinates of their root histograms along the leading axes."""

    means: Floats  # (S, M)
    axes: Floats  # (S, M, D)
    scale: float  # of the coordinates, by which they are divided
    values: Floats  # (N, S * D)
    deviations: Floats  # (S * D,), of the values
    within: Floats  # (S * D, S * D), correlations of the values within clusters
    clusters: NDArray[np.intp]  # (N,), an over-segmentation

    def classifier(self, weights: Floats, offsets: Floats) -> SeedClassifier:
        """Turn a classifier of these numbers, with weights (S * D, K), into one of histograms."""
        S, _, D = self.axes.shape
        of_roots = np.einsum("smd,sdk->smk", self.axes, (weights / self.scale).reshape(S, D, -1))
        offsets = offsets - np.einsum("sm,smk->k", self.means, of_roots)
        sides = np.array(_WINDOWS)
        return SeedClassifier(sides, of_roots.astype(np.float32), offsets.astype(np.float32))


def describe(cells: Sites, wavelengths: NDArray[np.float64], clusters: NDArray[np.intp]) -> Description:
    """Describe cells, of some clusters, along leading axes of each octave and plain channel, by windows."""
    from scipy.linalg import eigh  # slow to import

    present = cells.sizes > 0
    means, axes, values = [], [], []
    for side in _WINDOWS:
        roots = _roots(cells, side)
        mean = roots[present].mean(axis=0)
        blocks = []
        for channels in octaves_of(wavelengths):
            columns = np.flatnonzero(np.isin(cells.groups, channels))
            own = roots[np.ix_(present, columns)] - mean[columns]
            n = len(columns)
            with one_blas_thread():  # that of SciPy, which has just been loaded
                _, leading = eigh(own.T @ own, subset_by_index=[max(0, n - _AXES), n - 1])
            block = np.zeros((roots.shape[1], leading.shape[1]), np.float32)
            block[columns] = leading
            blocks.append(block)
        basis = np.concatenate(blocks, axis=1)
        means.append(mean)
        axes.append(basis)
        values.append((roots - mean) @ basis)
    numbers = np.concatenate(values, axis=1).astype(np.float64)
    scale = max(float(numbers.std(axis=0).mean()), _LEAST_SCALE)
    numbers /= scale
    deviations, centred = numbers.std(axis=0) + 1e-9, numbers.copy()
    for cluster in np.unique(clusters):
        own = clusters == cluster
        centred[own] -= numbers[own].mean(axis=0)
    within = (centred.T @ centred) / len(numbers) / np.outer(deviations, deviations)
    return Description(np.stack(means), np.stack(axes), scale, numbers, deviations, within, clusters)


def checked_seeds(
    seeds: Any,
    shapes: Sequence[tuple[int, ...]],
    masks: Sequence[NDArray[np.bool_] | None],
    *,
    several: bool,
    n_segments: int | None,
) -> tuple[list[NDArray[np.int32] | None], int]:
    """Check seeds; return those of every image where it holds data, and the number of classes."""
    given = list(seeds) if several and isinstance(seeds, (list, tuple)) else [seeds]
    if len(given) != len(shapes):
        raise ValueError(
            f"seeds must hold one array (or None) for each of the {len(shapes)} images, got {len(given)}"
        )
    pairs = zip(given, shapes, strict=True)
    painted = [None if one is None else _checked(one, shape) for one, shape in pairs]
    checked = [
        one if one is None or mask is None else one * mask for one, mask in zip(painted, masks, strict=True)
    ]
    classes, seen = classes_in(painted), classes_in(checked)
    if not len(classes):
        raise ValueError("seeds are 0 everywhere; give some pixels the number of their class")
    if len(seen) < len(classes):
        missing = int(np.setdiff1d(classes, seen)[0])
        raise ValueError(f"seeds of class {missing} lie only where the image has no data")
    largest = int(classes[-1])
    if n_segments is None:
        return checked, max(2, largest)
    if n_segments < max(2, largest):
        raise ValueError(
            f"n_segments (-k) counts all classes, and must be at least {max(2, largest)} with seeds "
            f"of class {largest}, got {n_segments}"
        )
    return checked, n_segments


def refuse_grey_values(seeds: Sequence[NDArray[np.int32] | None]) -> None:
    """Refuse the grey values of a paint program, such as 85, 170, 255: classes between them cost much."""
    from texseg.io.seeds import count_up

    classes = classes_in(seeds)
    if not count_up(classes):
        missing = int(classes[-1]) - len(classes)
        raise ValueError(
            f"seeds of {len(classes)} classes have numbers up to {classes[-1]}, which requests {missing} "
            f"more classes between them; number them 1 to {len(classes)}, or give n_segments"
        )


def classes_in(seeds: Sequence[NDArray[np.integer] | None]) -> NDArray[np.intp]:
    """Find the classes that occur."""
    found = [one[one > 0] for one in seeds if one is not None]
    return np.unique(np.concatenate([np.zeros(0, np.intp), *found]))


def _checked(seeds: Any, shape: tuple[int, ...]) -> NDArray[np.int32]:
    array = np.asarray(seeds)
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"seeds must be whole numbers, 0 for nothing and c for a pixel of class c, got {array.dtype}"
        )
    if array.shape != tuple(shape):
        raise ValueError(f"seeds of shape {array.shape} do not match the image, which is {tuple(shape)}")
    if array.size and (array.min() < 0 or array.max() > MOST_SEGMENTS):
        raise ValueError(
            f"seeds must be 0 (nothing) to {MOST_SEGMENTS}, got {int(array.min())} to {int(array.max())}"
        )
    return array.astype(np.int32)


def painted_cells(
    classes: Sequence[NDArray[np.int32] | None], grids: Sequence[CellGrid], n_classes: int
) -> Floats:
    """Count the pixels of each class in every cell of all images, (N, K)."""
    tables = []
    for one, grid in zip(classes, grids, strict=True):
        table = np.zeros((grid.n_cells, n_classes))
        if one is not None:
            pixels = np.flatnonzero(one)
            code = grid.cells_of(pixels) * n_classes + one.ravel()[pixels] - 1
            table += np.bincount(code, minlength=table.size).reshape(table.shape)
        tables.append(table)
    return np.concatenate(tables)


def pins(painted: Floats) -> Floats:
    """Nats (N, K) that pin painted cells to their class; cells with several classes share them."""
    return PIN * painted / np.maximum(painted.sum(axis=1, keepdims=True), 1)


def learn_classes(
    painted: Floats,
    description: Description,
    cells: Sites,
    settle: Callable[[Floats], Floats],
    present: NDArray[np.intp] | None = None,
) -> tuple[SeedClassifier, Floats]:
    """Learn the classes from painted cells; return the classifier and its log-probabilities (N, K).

    ``painted`` (N, K) counts the painted pixels of each class in every cell; ``settle`` turns
    log-probabilities into posteriors under the prior on the map; ``present`` (N,) holds the current classes
    from 0, or -1: the cells of an unpainted class serve as its seeds. Unpainted classes without cells are
    given clusters.
    """
    samples = painted * (cells.sizes > 0)[:, None]
    if present is not None:
        samples = _with_present(samples, present, cells)
    samples = _with_found(samples, description.clusters, cells)
    rows, classes = np.nonzero(samples)
    amounts = samples[rows, classes]
    amounts /= np.bincount(classes, amounts)[classes]
    unit, K = description.values, samples.shape[1]
    from sklearn.linear_model import LogisticRegression  # needed only here

    model = LogisticRegression(C=1 / _PENALTY, max_iter=_MOST_STEPS, warm_start=True)  # at the last
    regression = _logistic(model, unit[rows], classes, amounts * len(rows) / K, K)
    discriminant = _discriminant(description, rows, classes, amounts, K)
    first = [(one + other) / 2 for one, other in zip(regression, discriminant, strict=True)]
    weights, offsets = first
    for _ in range(_ROUNDS):
        Q = settle(_log_probabilities(unit @ weights + offsets))
        sure = [_spread_over(np.flatnonzero((Q.argmax(axis=1) == k) & (Q[:, k] > _SURE))) for k in range(K)]
        numbers = np.array([len(own) for own in sure])
        more = np.concatenate([rows, *sure]), np.concatenate([classes, np.repeat(np.arange(K), numbers)])
        shares = np.concatenate([amounts, np.repeat(_OWN_WEIGHT / np.maximum(numbers, 1), numbers)])
        second = _logistic(model, unit[more[0]], more[1], shares * len(rows) / K, K)
        weights, offsets = ((one + other) / 2 for one, other in zip(first, second, strict=True))
    classifier = description.classifier(weights, offsets)
    return classifier, _log_probabilities(unit @ weights + offsets)


def seeded_textures(
    search: Any,
    scenes: Sequence[Any],
    features: Any,
    n_classes: int,
    present: Sequence[NDArray[np.int32]] | None = None,
) -> tuple[Any, NDArray[np.intp]]:
    """Learn ``n_classes`` classes, at least two, from the seeds on scenes that were searched.

    Unpainted classes start from the labels ``present`` (H, W), or from clusters of the cells. Gives
    `texseg.method.textures.Textures`, and the class (N,) of every cell, from 0.
    """
    cells, settings = search.cells, search.settings
    painted = painted_cells([scene.seeds for scene in scenes], search.grids, n_classes)
    missing = np.count_nonzero(painted.sum(axis=0) == 0)
    free = np.count_nonzero((painted.sum(axis=1) == 0) & (cells.sizes > 0))
    if missing > free:
        raise ValueError(
            f"seeds leave {free} cells of {settings.cell} x {settings.cell} pixels to {missing} classes "
            "without seeds; paint fewer pixels, or request fewer classes (n_segments)"
        )
    potts = settings.potts._replace(strength=SEED_STRENGTH * settings.potts.strength)
    field = potts_field(cells, potts, settings.smoothness, SETTLING_SWEEPS)
    held = pins(painted).astype(np.float32)

    def settle(scores: Floats) -> Floats:
        return field((scores + held).astype(np.float32), 1.0, np.ones(1)).posteriors

    of_cells = None
    if present is not None:
        shares = painted_cells(present, search.grids, n_classes)
        of_cells = np.where(shares.any(axis=1), shares.argmax(axis=1), -1)
    classifier, scores = learn_classes(painted, search.description, cells, settle, of_cells)
    Q = settle(scores)
    ends = np.cumsum([grid.n_cells for grid in search.grids])[:-1]
    for scene, own in zip(scenes, np.split(scores, ends), strict=True):
        scene.seed_scores[:] = classifier, own.astype(np.float32, copy=False)
    textures = search.textures(cells.profiles(Q.astype(np.float32)), features)
    certain = np.eye(n_classes, dtype=np.float32)  # the user has said that these classes differ
    return replace(textures, potts=potts, strokes=classifier, confusion=certain), Q.argmax(axis=1)


def _spread_over(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Take at most 150 rows, evenly spread."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_CELLS)).astype(int)]


def _with_present(samples: Floats, present: NDArray[np.intp], cells: Sites) -> Floats:
    """Let the current cells of unpainted classes serve as their seeds, preferably far from borders."""
    out = samples.copy()
    inside = interior_cells(present, cells) & (cells.sizes > 0) & (samples.sum(axis=1) == 0)
    for label in np.flatnonzero(samples.sum(axis=0) == 0):
        own = (present == label) & (cells.sizes > 0) & (samples.sum(axis=1) == 0)
        out[_spread_over(np.flatnonzero(own & inside if (own & inside).any() else own)), label] = 1
    return out


def _with_found(painted: Floats, clusters: NDArray[np.intp], cells: Sites) -> Floats:
    """Let the clusters that the painted classes explain least serve as seeds of the unpainted ones."""
    samples, missing = painted.copy(), np.flatnonzero(painted.sum(axis=0) == 0)
    if not len(missing):
        return samples
    n_clusters = int(clusters.max()) + 1
    inside = interior_cells(clusters, cells) & (cells.sizes > 0)
    members = ((clusters[:, None] == np.arange(n_clusters)) * (cells.sizes > 0)[:, None]).astype(np.float32)
    profiles = mix_background(cells.profiles(members), cells.background)
    known = samples.sum(axis=0) > 0
    shares = (samples[:, known] / np.maximum(samples.sum(axis=1, keepdims=True), 1)).astype(np.float32)
    of_classes = mix_background(cells.profiles(shares), cells.background)
    areas = members.T @ cells.sizes
    unpainted = (painted.sum(axis=1) == 0) & (cells.sizes > 0)
    possible = members.T @ unpainted > 0
    free = members.T @ (painted.sum(axis=1) > 0) == 0  # clusters without seeds
    for label in missing:
        gains = areas * _divergences(profiles, of_classes, cells.weights).min(axis=1)
        best = free & possible if (free & possible).any() else possible
        chosen = int(np.where(best, gains, -1).argmax())
        own = np.flatnonzero((clusters == chosen) & unpainted)
        own = own[inside[own]] if inside[own].any() else own
        samples[_spread_over(own), label] = 1
        of_classes = np.concatenate([of_classes, profiles[chosen][None]])
        free[chosen] = False
    return samples


def _divergences(profiles: Floats, others: Floats, weights: Floats) -> Floats:
    """Kullback-Leibler divergences (n, k) of profiles (n, M) from others (k, M), with weighted channels."""
    weighted = profiles * weights
    own = (weighted * log_profiles(profiles)).sum(axis=1)
    return own[:, None] - weighted @ log_profiles(others).T


def _logistic(
    model: Any, values: Floats, classes: NDArray[np.intp], amounts: Floats, n_classes: int
) -> tuple[Floats, Floats]:
    """Weights (D, K) and offsets (K,) of a logistic regression."""
    from sklearn.exceptions import ConvergenceWarning  # needed only here

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # inseparable classes may need any number
        fitted = model.fit(values, classes, amounts)
    if n_classes == 2:
        half = fitted.coef_[0] / 2, fitted.intercept_[0] / 2
        return np.stack([-half[0], half[0]], axis=1), np.array([-half[1], half[1]])
    return fitted.coef_.T, fitted.intercept_


def _discriminant(
    description: Description,
    rows: NDArray[np.intp],
    classes: NDArray[np.intp],
    amounts: Floats,
    n_classes: int,
) -> tuple[Floats, Floats]:
    """Weights (D, K) and offsets (K,) of the linear discriminant between the means of classes."""
    scale = description.deviations
    means = np.zeros((n_classes, len(scale)))
    np.add.at(means, classes, amounts[:, None] * description.values[rows] / scale)
    weights = np.linalg.solve(description.within + _RIDGE * np.eye(len(scale)), means.T)
    offsets = -np.einsum("kd,dk->k", means, weights) / 2
    return _DEPENDENCE * weights / scale[:, None], _DEPENDENCE * offsets


def _log_probabilities(sums: Floats) -> Floats:
    sums = sums - sums.max(axis=1, keepdims=True)
    sums -= np.log(np.exp(sums).sum(axis=1, keepdims=True))
    return np.maximum(sums, np.float32(_LEAST))


def _roots(cells: Sites, side: float) -> Floats:
    """Square roots (N, M) of the mean histograms in windows ``side`` cells wide."""
    counts, sizes = np.asarray(cells.counts), cells.sizes[:, None]
    if side > 1:
        counts, sizes = cells.window_mean(counts, side), cells.window_mean(sizes, side)
    return np.sqrt(np.maximum(counts / np.maximum(sizes, 1e-6), 0)).astype(np.float32, copy=False)
