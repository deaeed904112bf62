"""What borders between given textures look like: a classifier of pixels, learned on composites.

Log-densities of the textures in several descriptions of a pixel's neighbourhood, over windows of several
sizes, are weighted by a linear discriminant (T. Hastie, R. Tibshirani, J. Friedman, The Elements of
Statistical Learning, 2nd ed., section 4.3). Its temperature is fitted on a composite of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features, bins_of, octaves_of
from texseg.channels.planes import Planes
from texseg.channels.responses import form_of, recipes
from texseg.channels.textons import PATCH_SIDE, patches_at
from texseg.pixels.composites import border_distance, compose, label_sizes, trusted
from texseg.threads import LANES, kernels, side_by_side

_WINDOWS = (3, 7)  # sides in pixels of the windows over which log-densities are averaged
PATCH_SIZE = PATCH_SIDE**2  # numbers in a patch whose density is learned
_HEAVY = 5.0  # degrees of freedom of the densities: limits the effect of a texture's flaws
_BLOCK = 2**13  # pixels described at once
_ROWS = 128  # rows of pixels processed together, with 3 more read on either side
_N_COMPOSITES = 2
_PER_TEXTURE = 6000  # training pixels of densities
_SHARE = 8  # at most one in this many pixels of a composite trains the discriminant
_FEWEST = 100  # training pixels that a texture needs to be learned
_RIDGE = 0.01  # added to relative variances, of densities and of scores
_COLD = (0.02, 20.0)  # bounds of the inverse temperature of the discriminant; .3 to .7 on images
_MOST_STEPS, _EXACT = 50, 1e-6  # of its search; the relative change at which it ends
_TINY = 1e-12  # keeps a division by the curvature of a flat loss possible
_NEVER = np.float32(-1e4)  # log-odds of a texture whose borders were not learned


class Density(NamedTuple):
    """Multivariate t density of each texture over vectors of D numbers."""

    factors: NDArray[np.floating]
    """(D, K * D): vector times factors, minus centres, has unit covariance under each of the K textures."""
    centres: NDArray[np.floating]  # (K * D,)
    offsets: NDArray[np.floating]  # (K,), half the log-determinants of the precisions

    def log(self, vectors: NDArray[np.floating]) -> NDArray[np.floating]:
        """Log-densities (K, n) of vectors (n, D), up to a constant."""
        K, D = len(self.offsets), len(self.factors)
        whitened = (vectors @ self.factors - self.centres).reshape(-1, K, D)
        distances = np.einsum("nkd,nkd->kn", whitened, whitened)
        return self.offsets[:, None] - (_HEAVY + D) / 2 * np.log1p(distances / _HEAVY)


def learn_density(vectors: NDArray[np.floating], labels: NDArray[np.integer], n_labels: int) -> Density:
    """Learn densities from mean and covariance of each label's vectors (n, D)."""
    scale = vectors.std(axis=0, dtype=np.float64) + 1e-6
    unit = vectors / scale
    factors, centres, offsets = [], [], []
    for k in range(n_labels):
        own = unit[labels == k].astype(np.float64, copy=False)
        mean = own.mean(axis=0)
        own -= mean
        precision = np.linalg.inv(own.T @ own / (len(own) - 1) + _RIDGE * np.eye(unit.shape[1]))
        factor = np.linalg.cholesky(precision)
        factors.append(factor / scale[:, None])
        centres.append(mean @ factor)
        offsets.append(np.log(factor.diagonal()).sum())
    return Density(
        np.concatenate(factors, axis=1).astype(np.float32),
        np.concatenate(centres).astype(np.float32),
        np.array(offsets, np.float32),
    )


class BorderClassifier(NamedTuple):
    """Linear discriminant over log-densities of K textures."""

    features: Features
    log_profiles: NDArray[np.floating]
    """(K, C, n_bins), logarithms of the profiles of all textures whose borders were learned."""
    density: Density  # density of each texture's patches
    weights: NDArray[np.floating]  # (scores, K), see `n_scores`
    offsets: NDArray[np.floating]  # (K,)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(K,), whether each texture's borders were learned; pixels are never assigned to the others."""
        return self.offsets > _NEVER

    def take(self, order: NDArray[np.intp]) -> "BorderClassifier":
        """Keep some of the textures, in this order."""
        return self._replace(weights=self.weights[:, order], offsets=self.offsets[order])

    def log_odds(
        self, planes: Planes, pixels: NDArray[np.intp], bins: NDArray[np.uint8] | None = None
    ) -> NDArray[np.floating]:
        """Log-probabilities (K, n), up to a constant, at pixels (sorted flat indices); bins are (C, H, W)."""
        return self._at(planes, pixels, bins, is_weighted=True)

    def scores(self, planes: Planes, pixels: NDArray[np.intp]) -> NDArray[np.floating]:
        """Local means (n, scores) of all log-densities around the pixels."""
        return self._at(planes, pixels, None, is_weighted=False).T

    def _at(
        self, planes: Planes, pixels: NDArray[np.intp], bins: Any, is_weighted: bool
    ) -> NDArray[np.floating]:
        """Scores (scores, n) of pixels, or log-odds (K, n)."""
        bins, form = _read(planes, self.features, bins)
        planes.kept.clear()  # it is as large as the image
        (C, H, W), K, n_out = bins.shape, len(self.log_profiles), len(self.offsets)
        groups, weights = octaves_of(self.features.wavelengths), self._in_lanes() if is_weighted else None
        if weights is None:
            n_out = n_scores(self.features.wavelengths, K)
        out = np.empty((n_out, len(pixels)), np.float32, order="C" if is_weighted else "F")
        tables = np.zeros((-(-K // LANES) * LANES, C, 256), np.float32)
        tables[:K, :, : self.features.n_bins] = self.log_profiles - self.log_profiles.mean(axis=0)
        given = (
            np.ascontiguousarray(bins),
            _marked(pixels, (H, W), max(_WINDOWS) // 2),
            np.ascontiguousarray(tables.reshape(-1, LANES, C, 256).transpose(0, 2, 3, 1)),
            np.concatenate(groups).astype(np.int32),
            np.cumsum([0, *map(len, groups)], dtype=np.int32),
            *(np.ascontiguousarray(each, np.float32) for each in (form, *self.density)),
            weights,
        )
        own = np.ascontiguousarray(pixels, np.int64)

        def look(place: tuple[slice, slice]) -> None:
            rows, part = place
            if kernels is None:
                found = np.concatenate(list(self._scores(bins, form, pixels[part], rows)))
                out[:, part] = self.offsets[:, None] + self.weights.T @ found if is_weighted else found
                return
            near = np.zeros(
                (part.stop - part.start, n_out if weights is None else weights.shape[-1]), np.float32
            )
            if is_weighted:
                near[:, :n_out] = self.offsets
            kernels.near_borders(*given, near, own[part], H, W, _HEAVY)
            out[:, part] = near[:, :n_out].T

        side_by_side(look, _strips(pixels, (H, W)))
        return out

    def _in_lanes(self) -> NDArray[np.float32]:
        """Weights as compiled loops take them: (chunks, groups, windows, lanes, out), filled with zeros."""
        K, n_out = len(self.log_profiles), -(-len(self.offsets) // LANES) * LANES
        given = self.weights.reshape(-1, K, len(_WINDOWS), len(self.offsets)).transpose(1, 0, 2, 3)
        table = np.zeros((-(-K // LANES) * LANES, *given.shape[1:3], n_out), np.float32)
        table[:K, ..., : len(self.offsets)] = given
        table = table.reshape(-1, LANES, *table.shape[1:]).transpose(0, 2, 3, 1, 4)
        return np.ascontiguousarray(table)

    def _scores(
        self, bins: NDArray[np.uint8], form: NDArray[np.floating], pixels: NDArray[np.intp], rows: slice
    ) -> Iterator[NDArray[np.floating]]:
        """Yield local means (windows, n) around pixels of some rows, one log-density after the other."""
        f, reach = self.features, max(_WINDOWS) // 2
        _, H, W = bins.shape
        top, bottom = max(rows.start - reach, 0), min(rows.stop + reach, H)
        bins, form = bins[:, top:bottom], form[top : bottom + 2 * (PATCH_SIDE // 2)]
        pixels = pixels - top * W
        tables = np.zeros((*self.log_profiles.shape[:2], 256), np.float32)
        tables[..., : f.n_bins] = self.log_profiles - self.log_profiles.mean(axis=0)
        for group in octaves_of(f.wavelengths):
            for table in tables:
                logs = cv2.LUT(bins[group[0]], table[group[0]])
                for c in group[1:]:
                    logs += cv2.LUT(bins[c], table[c])
                yield _local_means(logs, pixels)
        shape = bins.shape[1:]
        around = np.flatnonzero(_marked(pixels, shape, reach))
        plane = np.zeros(shape, np.float32)
        blocks = (around[start : start + _BLOCK] for start in range(0, len(around), _BLOCK))
        logs = np.concatenate([self.density.log(_vectors(form, block)) for block in blocks], axis=1)
        for row in logs - logs.mean(axis=0):
            plane.ravel()[around] = row
            yield _local_means(plane, pixels)


def _strips(pixels: NDArray[np.intp], shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Split an image into strips of rows; also give which of the sorted pixels (flat indices) each holds."""
    H, W = shape
    tops = np.arange(0, H, _ROWS)
    ends = np.searchsorted(pixels, np.append(tops, H) * W).tolist()
    parts = zip(tops.tolist(), ends, ends[1:], strict=False)
    return [(slice(top, min(top + _ROWS, H)), slice(*part)) for top, *part in parts if part[0] < part[1]]


def learn_borders(
    images: Sequence[Planes],
    labels: Sequence[NDArray[np.int32]],
    bins: Sequence[NDArray[np.uint8]],
    features: Features,
    log_profiles: NDArray[np.floating],
    cell: int,
    piece: int,
    rng: np.random.Generator,
) -> BorderClassifier | None:
    """Learn borders from composites of pieces ``piece`` cells wide; None of fewer than two textures."""
    inner = [trusted(one, cell, planes.mask) for one, planes in zip(labels, images, strict=True)]
    sizes = np.sum([label_sizes(one, len(log_profiles)) for one in inner], axis=0)
    known = np.flatnonzero(sizes >= _FEWEST)
    K = len(known)
    if K < 2:
        return None
    numbers = np.full(len(log_profiles) + 1, -1, np.int32)  # the last entry stands for label -1
    numbers[known] = np.arange(K)
    inner = inner if K == len(log_profiles) else [numbers[one] for one in inner]

    def composite(rng: np.random.Generator) -> tuple[Planes, NDArray[np.intp], NDArray[np.int32]]:
        """Pixels of a composite near borders, and their labels."""
        made = compose(images, inner, K, piece * cell, rng)
        filled = cv2.distanceTransform(made.filled.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
        far = made.filled.all() | (filled > cell)
        pixels = np.flatnonzero(far & (border_distance(made.labels) < cell))
        pixels = np.sort(rng.choice(pixels, min(made.labels.size // _SHARE, len(pixels)), replace=False))
        return made.planes, pixels, made.labels.ravel()[pixels]

    def learn(own: np.random.Generator) -> Any:
        return _learn_density(images, inner, bins, features, K, own) if own is rng else composite(own)

    density, *made = side_by_side(learn, [rng, *rng.spawn(_N_COMPOSITES)])
    truths = [truth for *_, truth in made]
    if min(np.bincount(truth, minlength=K).min() for truth in truths) < _FEWEST:
        return None
    classifier = BorderClassifier(
        features, log_profiles[known], density, np.empty((0, K), np.float32), np.empty(K, np.float32)
    )
    tables = side_by_side(lambda own: classifier.scores(*own[:2]), made)
    first, second = (_Scatter.of(*each, K) for each in zip(tables, truths, strict=True))
    weights, offsets = first.discriminant()
    heat = _temperature(weights.T @ tables[1].T + offsets[:, None], truths[1])
    weights, offsets = (first + second).discriminant()
    of_all = np.zeros((len(weights), len(log_profiles)), np.float32)
    of_all[:, known] = weights / heat
    all_offsets = np.full(len(log_profiles), _NEVER)
    all_offsets[known] = offsets / heat
    return classifier._replace(weights=of_all, offsets=all_offsets)


def _learn_density(
    images: Sequence[Planes],
    inner: Sequence[NDArray[np.int32]],
    bins: Sequence[NDArray[np.uint8]],
    f: Features,
    n_labels: int,
    rng: np.random.Generator,
) -> Density:
    """Density of each texture's patches, from pixels inside the segments of all images."""
    vectors, labels = [], []
    share = _PER_TEXTURE // len(images)
    for planes, usable, known in zip(images, inner, bins, strict=True):
        own = (np.flatnonzero(usable == k) for k in range(n_labels))
        pixels = np.sort(np.concatenate([rng.permutation(p)[: max(share, _FEWEST)].copy() for p in own]))
        vectors.append(_vectors(_read(planes, f, known)[1], pixels))
        labels.append(usable.ravel()[pixels])
    return learn_density(np.concatenate(vectors), np.concatenate(labels), n_labels)


def _read(
    planes: Planes, f: Features, bins: NDArray[np.uint8] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.floating]]:
    """Compute the bins (C, H, W), if not given, and the plane that patches come from, mirrored outside."""
    if bins is None:
        every = recipes(planes, f.intensity, f.bank, f.sigma, 1.0, 1.0)
        bins = bins_of([recipe for recipe in every if recipe.name in f.names], f)
    return bins, np.pad(form_of(planes, f.intensity, f.sigma, (1, 1)), PATCH_SIDE // 2, mode="symmetric")


def _vectors(form: NDArray[np.floating], pixels: NDArray[np.intp]) -> NDArray[np.float32]:
    """Patches around some pixels, (n, D)."""
    shape = [side - 2 * (PATCH_SIDE // 2) for side in form.shape]
    places = np.unravel_index(pixels, shape)
    return patches_at(form, places, PATCH_SIDE).astype(np.float32, copy=False)


def n_scores(wavelengths: NDArray[np.float64], n_labels: int) -> int:
    """Count the scores of a pixel for channels of these wavelengths and ``n_labels`` textures."""
    return (len(octaves_of(wavelengths)) + 1) * n_labels * len(_WINDOWS)


def _local_means(plane: NDArray[np.float32], pixels: NDArray[np.intp]) -> NDArray[np.float32]:
    """Means (windows, n) of a plane in windows around some pixels."""
    means = [cv2.blur(plane, (side, side), borderType=cv2.BORDER_REFLECT) for side in _WINDOWS]
    return np.stack([mean.ravel()[pixels] for mean in means])


def _marked(pixels: NDArray[np.intp], shape: tuple[int, ...], reach: int) -> NDArray[np.uint8]:
    """Mark by 1 all pixels within a square of side ``2 reach + 1`` around given ones."""
    marked = np.zeros(shape, np.uint8)
    marked.ravel()[pixels] = 1
    return np.asarray(cv2.dilate(marked, np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)), np.uint8)


class _Scatter(NamedTuple):
    """What a linear discriminant needs to know of scores with known labels; several composites add."""

    sizes: NDArray[np.float64]  # (K,)
    means: NDArray[np.float64]  # (K, F)
    within: NDArray[np.float64]  # (F, F), squares and products around the own mean

    @classmethod
    def of(cls, scores: NDArray[np.floating], labels: NDArray[np.integer], n_labels: int) -> "_Scatter":
        """Measure scores (n, F) with labels (n,)."""
        members = (labels == np.arange(n_labels)[:, None]).astype(scores.dtype)
        sizes = members.sum(axis=1, dtype=np.float64)
        means = (members @ scores) / sizes[:, None]
        centred = scores - means.astype(scores.dtype)[labels]
        return cls(sizes, means, (centred.T @ centred).astype(np.float64))

    def __add__(self, other: Any) -> "_Scatter":
        sizes = self.sizes + other.sizes
        apart, share = self.means - other.means, other.sizes / sizes
        between = apart.T @ (apart * (self.sizes * share)[:, None])
        means = self.means - apart * share[:, None]
        return _Scatter(sizes, means, self.within + other.within + between)

    def discriminant(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (F, K) and offsets (K,); labels are equally likely."""
        covariance = self.within / self.sizes.sum()
        scale = np.sqrt(np.diag(covariance)) + 1e-6
        correlation = covariance / np.outer(scale, scale) + _RIDGE * np.eye(len(scale))
        weights = np.linalg.solve(correlation, (self.means / scale).T) / scale[:, None]
        return weights, -np.einsum("kf,fk->k", self.means, weights) / 2


def _temperature(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    """Temperature of the least log-loss of logits (K, n): Newton's steps within a bracket that shrinks."""
    odds = logits - np.take_along_axis(logits, labels[None], axis=0)  # against the true label
    (low, high), cold, top = _COLD, 1.0, odds.max(axis=0)
    for _ in range(_MOST_STEPS):
        p = np.exp(cold * (odds - top))
        p /= p.sum(axis=0)
        of_each = p * odds
        means = of_each.sum(axis=0)
        slope = means.sum()
        low, high = (cold, high) if slope < 0 else (low, cold)
        before, cold = cold, cold - slope / max(np.vdot(of_each, odds) - means @ means, _TINY)
        if not low < cold < high:
            cold = np.sqrt(low * high)
        if abs(cold - before) < _EXACT * before:
            break
    return float(1 / cold)
