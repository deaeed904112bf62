"""Two clusters of an over-segmentation: how far apart they are, and whether they are one texture or two.

The *separation* measures how surely a window of one can be told from a window of the other, given the spread
inside both::

    separation = d' * sqrt(windows) / (((contact + 0.2) / 0.5) ** (1 / 3) * max(1, contact / 6))
    d'         = (mean_a L + mean_b L) / sqrt((var_a L + var_b L) / 2)
    contact    = length of the common border / (2 sqrt(area of the smaller)), the roots summed over images

``L`` is the log-likelihood ratio of the two clusters, averaged over the own cells of a window, with profiles
from the other half of a checkerboard of cells: the sum over the channels, each divided by the root of its
standard deviation within the clusters, so that a channel that varies inside textures counts less. ``windows``
is how many the smaller would fill, up to the size of the images that were learned from; in larger ones the
least change inside one texture would seem sure. Parts of one texture lie side by side, along a long border,
while two textures need not touch; beyond twelve roots of the area, they are interleaved stripes of one cloth.

Which of the closest pairs is merged, and whether it was one texture or two, is decided by more *evidence*
(:data:`EVIDENCE`): how the difference is spread over the channels and the two sides; whether it grows in
larger windows as with independent noise, or is a slow change; whether it is complete right at the border, as
between two textures, or grows away from it, as under changing light; areas and outlines. All are ratios or
counts of windows, clipped to the range they were learned in. The log-odds of two textures are a sum of
functions of one piece of evidence each, linear between knots, from ``benchmarks/learn_number.py``.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import dilated
from texseg.counts.grid import averaged, window_matrix
from texseg.counts.sites import Sites
from texseg.threads import kernels, side_by_side

Floats = NDArray[np.floating]

PAIR_EVIDENCE = tuple(
    "distance|separation|linked separation|contrast|smaller|larger|share|windows|number|contact|outline|"
    "common|first channel|third channel|median channel|mean channel|channels above 1|channels above 2|"
    "nats|weaker side|stronger side|in larger windows|dependence|wrong|step|touching".split("|")
)
"""What is measured of a pair of clusters; logarithms, except for shares and "step"."""
_CONTEXT = ("leap", "leap of linked", "next", "largest contrast")
MERGING_EVIDENCE = PAIR_EVIDENCE + _CONTEXT
"""The same, plus how the pair compares with merges before it and, once they are known, after it."""
_COMPARED = [i for i, name in enumerate(PAIR_EVIDENCE) if name not in ("windows", "number")]
_OTHERS_OF_TREE = ("merge before", "merge after", "mean before")
EVIDENCE = (*PAIR_EVIDENCE, *(f"{PAIR_EVIDENCE[i]}, {other}" for other in _OTHERS_OF_TREE for i in _COMPARED))
"""The same, plus how the pair compares with those of the other merges of its tree."""

_window_matrix = lru_cache(maxsize=8)(window_matrix)
_MOST_CELLS = 4096  # of the images learned from; on more, the least change inside a texture would seem sure
_MOST_WINDOWS_IN_SPACE = 114.0  # that these fill; in space, cells of a window are others
_ENOUGH_WINDOWS = 32**2  # the largest number of windows on which a cluster's spread is measured, about
_NUMBERS_AT_ONCE = 2**21  # ratios (cells x clusters x channels) in memory
_LEAST_SPREAD = 1e-6
_LEAST_VARIANCE = 1e-9
_INSIDE = 0.6  # share of a window that must lie in its cluster for the window to count
_OTHERS = 0.7  # of the windows, those with the least shares, if fewer have as much
_RULES = np.array([_ENOUGH_WINDOWS, _OTHERS, _INSIDE], np.float64)
_CONTACT_POWER = 1 / 3
_NO_CONTACT = 0.2
_USUAL_CONTACT = 0.5
_INTERLEAVED = 6.0  # contact above which two clusters count as parts of a pattern
_LEAST_SIDE = -3.0  # standard deviations; limit to how wrong a channel may be on one side
_FEWEST_NEAR = 4  # cells along the common border needed to measure its step
_FIRST = 0.5  # logarithm of the separation with which the first merge is compared
_USUAL_STEP = 0.8  # assumed where there is no common border to measure it


@dataclass
class Pairs:
    """What the separations of clusters are computed from; arrays over clusters, or pairs of them."""

    cells: Sites
    window: float  # side of a window in cells
    labels: NDArray[np.int32]
    held_out: "HeldOut"
    held: Floats
    """(N, K, C), score of every cell in every cluster, channel by channel, learned without that cell."""
    areas: NDArray[np.float64]
    """(K, images), in cells; 0 for a cluster that was merged into another. Images with more than
    ``_MOST_CELLS`` cells in total are measured as if they were reduced to this number."""
    borders: NDArray[np.float64]  # (K, K), lengths of common borders in sides of cells, likewise reduced
    means: NDArray[np.float64]  # (K, K, C), means of the log-likelihood ratios of a to b in windows inside a
    covariances: NDArray[np.float64]  # (K, K, C, C), their covariances
    scales: dict[tuple[int, int], NDArray[np.float64]] = field(default_factory=dict)
    """The last evidence of pairs, measured at several scales, until one of the two changes."""

    @classmethod
    def of(cls, labels: NDArray[np.intp], n_clusters: int, cells: Sites, window: float) -> "Pairs":
        """Measure all pairs of clusters, given the labels (N,) of the cells, 0 .. K - 1."""
        members, colours = labels[:, None] == np.arange(n_clusters), _checkerboard(cells.grids)
        halves = members[:, None] & (colours[:, None] == np.arange(2))[:, :, None]
        held_out = HeldOut(*cells.sums(halves.astype(np.float32)))
        held = held_out.scores(cells)
        _, K, C = held.shape
        n_axes = len(cells.grids[0])
        images = [image.reshape(-1, K) for image in cells.pieces(members * cells.sizes[:, None])]
        areas = np.stack([image.sum(axis=0, dtype=np.float64) for image in images], axis=1)
        most = _MOST_CELLS if n_axes == 2 else _MOST_WINDOWS_IN_SPACE * window**n_axes
        shrink = min(1.0, most / areas.sum())
        borders = shrink ** (1 - 1 / n_axes) * _borders(labels, K, cells)
        moments = np.zeros((K, K, C)), np.zeros((K, K, C, C))
        named = labels.astype(np.int32)
        pairs = cls(cells, window, named, held_out, held, shrink * areas, borders, *moments)
        pairs._look(~np.eye(K, dtype=bool))
        return pairs

    def distances(self) -> NDArray[np.float64]:
        """``d'`` of every pair of clusters, shape (K, K)."""
        means = self.means + self.means.transpose(1, 0, 2)
        covariances = (self.covariances + self.covariances.transpose(1, 0, 2, 3)) / 2
        scales = np.diagonal(covariances, axis1=2, axis2=3) ** 0.25 + _LEAST_SPREAD
        spread = np.einsum("abcd,abc,abd->ab", covariances, 1 / scales, 1 / scales)
        return (means / scales).sum(axis=2) / np.sqrt(np.maximum(spread, 0) + _LEAST_SPREAD)

    def separations(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Separation of every pair of clusters; infinite from itself, and from one merged into another."""
        sizes, extents = self.areas.sum(axis=1), self._extents()
        area = np.minimum(sizes[:, None], sizes)
        gone = area <= 0
        np.fill_diagonal(gone, True)
        contact = self.borders / np.maximum(np.minimum(extents[:, None], extents), 1e-6)
        touch = ((contact + _NO_CONTACT) / _USUAL_CONTACT) ** _CONTACT_POWER
        touch *= np.maximum(contact / _INTERLEAVED, 1)
        return np.where(gone, np.inf, distances * np.sqrt(area / self._in_window) / touch)

    @property
    def _in_window(self) -> float:
        """Cells of a window."""
        return self.window ** len(self.cells.grids[0])

    def _extents(self) -> NDArray[np.float64]:
        """Half the outline (K,) of a square, or the surface of a cube, as large as each cluster."""
        n_axes = len(self.cells.grids[0])
        return n_axes * (self.areas ** (1 - 1 / n_axes)).sum(axis=1)

    def merge(self, a: int, b: int) -> None:
        """Let ``a`` absorb ``b``, and measure ``a`` again."""
        self.labels = np.where(self.labels == b, np.int32(a), self.labels)
        self.scales = {pair: seen for pair, seen in self.scales.items() if a not in pair and b not in pair}
        self.borders[a] = self.borders[:, a] = self.borders[a] + self.borders[b]
        self.borders[a, a] = 0
        self.areas[a] += self.areas[b]
        self.areas[b] = self.borders[b] = self.borders[:, b] = 0
        for sums in self.held_out:
            sums[:, a] += sums[:, b]
        self.held[:, [a]] = HeldOut(*(sums[:, [a]] for sums in self.held_out)).scores(self.cells)
        wanted = np.zeros((len(self.areas), len(self.areas)), bool)
        wanted[a] = wanted[:, a] = self.areas.sum(axis=1) > 0
        wanted[a, a] = False
        self._look(wanted)

    def evidence(self, a: Any, b: Any, distances: NDArray[np.float64], linked: Any) -> NDArray[np.float64]:
        """Measure what tells whether clusters a and b are one texture or two: (n, PAIR_EVIDENCE) of n pairs.

        ``distances`` (K, K) are those of all pairs now, ``linked`` (n,) separations by average linkage.
        """
        separations = self.separations(distances)
        n_left = np.count_nonzero(self.areas.sum(axis=1) > 0)
        windows = np.sort(self.areas.sum(axis=1)[np.array([a, b])] / self._in_window, axis=0)
        total = self.areas.sum() / self._in_window
        extents, outlines, border = self._extents(), self.borders.sum(axis=1), self.borders[a, b]
        means = np.array([self.means[a, b], self.means[b, a]])  # (2, n, C), in windows of a, and of b
        both = np.array([self.covariances[a, b], self.covariances[b, a]])
        variances = np.diagonal(both, axis1=2, axis2=3) + _LEAST_VARIANCE
        channels = means.sum(axis=0) / np.sqrt(variances.mean(axis=0))
        falling = np.sort(channels, axis=1)[:, ::-1]
        sides = np.sort(np.maximum(means / np.sqrt(variances), _LEAST_SIDE).mean(axis=2), axis=0)
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        given = dict(zip(pairs, variances.mean(axis=0), strict=True))
        unseen = [pair for pair in given if pair not in self.scales]
        seen = side_by_side(lambda pair: self._scales_of_difference(*pair, given[pair]), unseen)
        self.scales.update(zip(unseen, seen, strict=True))
        ones = np.ones(len(a))
        values = [
            _log(distances[a, b], 1e-3),
            _log(separations[a, b], 1e-3),
            _log(linked, 1e-3),
            _log(np.sqrt(n_left) * separations.min(), 1e-3) * ones,
            np.log(windows[0] + 0.05),
            np.log(windows[1] + 0.05),
            np.log(windows[0] / total),
            np.log(total) * ones,
            np.log(n_left) * ones,
            np.log(border / np.minimum(extents[a], extents[b]) + 0.05),
            np.log(np.maximum(outlines[a] / extents[a], outlines[b] / extents[b]) + 0.05),
            border / np.maximum(np.minimum(outlines[a], outlines[b]), 1.0),
            _log(falling[:, 0]),
            _log(falling[:, min(2, falling.shape[1] - 1)]),
            _log(np.median(channels, axis=1)),
            _log(channels.mean(axis=1)),
            (channels > 1).mean(axis=1),
            (channels > 2).mean(axis=1),
            _log(means.sum(axis=(0, 2)) / channels.shape[1], 0.01),
            _log(sides[0]),
            _log(sides[1]),
            *np.transpose([self.scales[pair] for pair in pairs]),
        ]
        return np.array(values).T.copy()

    def _scales_of_difference(self, a: int, b: int, variances: NDArray[np.float64]) -> NDArray[np.float64]:
        """How the difference behaves in larger windows, in single cells, and towards the common border."""
        by = variances**-0.25
        ways = np.array(side_by_side(lambda pair: self._scales_from(*pair, by), ((a, b), (b, a))))
        means, spreads = ways[:, :3].sum(axis=0), ways[:, 3:6].sum(axis=0) + 2 * _LEAST_VARIANCE
        d_prime = np.maximum(means / np.sqrt(spreads / 2), 0.05)
        touching = ways[:, 7].min() >= _FEWEST_NEAR
        step = np.clip(ways[:, 8].sum() / max(means[2], 1e-3), -1, 2) if touching else _USUAL_STEP
        leaps = np.log(d_prime[1] / d_prime[0]), np.log(spreads[0] / spreads[2])
        return np.array([*leaps, ways[:, 6].max(), step, touching])

    def _scales_from(self, one: int, other: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the weighted ratio of one cluster to another, (9,).

        Means and variances in windows, in windows twice as wide, and in single cells; the share of windows
        below 0; how many cells lie two or three cells from the other, and their mean.
        """
        given, out = self._given(), np.zeros(9)
        if given is not None:
            by, K, C = weights.astype(np.float32), *self.held.shape[1:]
            kernels.pair_scales(*given, by, _RULES, out, one, K, C, other, float(self.window))
            return out
        own = (self.labels == one) * self.cells.sizes
        inside = np.flatnonzero(own)
        ratio = ((self.held[inside, one] - self.held[inside, other]) * weights).sum(axis=1)
        both = np.zeros((len(own), 2, 1), np.float32)
        both[inside, 0, 0] = ratio
        samples = [
            self._inner_ratios(both, one, (0, np.array([1])), side)[:, 0, 0]
            for side in (self.window, 2 * self.window)
        ]
        samples.append(ratio)
        masks = (self.cells.pieces((self.labels == k).astype(np.uint8)) for k in (one, other))
        reached = [
            ((mine & dilated(foreign, 7)) > dilated(foreign, 3)).ravel()
            for mine, foreign in zip(*masks, strict=True)
        ]
        near = ratio[np.concatenate(reached)[inside]]
        out[:6] = [*(sample.mean() for sample in samples), *(sample.var() for sample in samples)]
        out[6:] = np.mean(samples[0] < 0), len(near), near.mean() if len(near) else 0
        return out

    def _given(self) -> tuple[NDArray[Any], ...] | None:
        """Give what compiled loops need to know of the cells; None if they cannot be used."""
        if kernels is None or len(self.cells.grids[0]) != 2:
            return None
        sizes = np.asarray(self.cells.sizes, np.float32)
        return self.held, self.labels, sizes, np.array(self.cells.grids, np.int32)

    def _look(self, wanted: NDArray[np.bool_]) -> None:
        """Measure the ratios of clusters to the ``wanted`` others (K, K), each in its own windows."""
        given, (_, K, C) = self._given(), self.held.shape
        step = max(1, _NUMBERS_AT_ONCE // self.held[:, 0].size)

        def look_from(a: int) -> None:
            others = np.flatnonzero(wanted[a])
            if given is not None:
                moments = self.means[a], self.covariances[a]
                kernels.pair_moments(*given, others, _RULES, *moments, a, K, C, float(self.window))
                return
            for some in (others[at : at + step] for at in range(0, len(others), step)):
                ratios = self._inner_ratios(self.held, a, (a, some), self.window)
                self.means[a, some] = means = ratios.mean(axis=0)
                ratios -= means
                by_pair = ratios.transpose(1, 2, 0)
                self.covariances[a, some] = by_pair @ by_pair.swapaxes(1, 2) / len(ratios)

        side_by_side(look_from, np.flatnonzero(wanted.any(axis=1)).tolist())

    def _inner_ratios(
        self, held: Floats, cluster: int, pairs: tuple[int, NDArray[np.intp]], side: float
    ) -> NDArray[np.float64]:
        """Log-likelihood ratios (n, others, C) of one to others: means over a cluster's cells of windows.

        These are windows centred on its cells, whose share :data:`_INSIDE` it fills, or of which it fills as
        much as of the best three tenths.
        """
        own, (a, others) = (self.labels == cluster) * self.cells.sizes, pairs
        shares, ratios = [], []
        n_axes = len(self.cells.grids[0])
        step = max(1, round((np.count_nonzero(own) / _ENOUGH_WINDOWS) ** (1 / n_axes)))
        images = zip(self.cells.pieces(own), self.cells.pieces(held), strict=True)
        for inside, scores in images:
            if inside.any():
                box = tuple(slice(at.min(), at.max() + 1) for at in np.nonzero(inside))
                along = [
                    _window_matrix(n, side)[b, b][::step] for n, b in zip(inside.shape, box, strict=True)
                ]
                mine = inside[box][(slice(None, None, step),) * n_axes] > 0
                shares.append(averaged(inside[box], along)[mine])
                apart = (scores[box][..., [a], :] - scores[box][..., others, :]) * inside[box][
                    ..., None, None
                ]
                means = averaged(apart.reshape(*apart.shape[:n_axes], -1), along)
                ratios.append(means[mine].reshape(-1, *apart.shape[n_axes:]))
        share = np.concatenate(shares)
        place = math.ceil(_OTHERS * (len(share) - 1) - 1e-9)  # exact; np.quantile takes ten times as long
        # equal shares differ by rounding
        whole = share >= min(_INSIDE, np.partition(share, place)[place]) - 1e-6
        return np.concatenate(ratios)[whole] / share[whole, None, None].astype(np.float64)


def along_the_tree(evidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Append to the evidence (merges, PAIR_EVIDENCE) of successive merges how each compares with others."""
    before = -np.diff(evidence, axis=0, prepend=evidence[:1])
    after = -np.diff(evidence, axis=0, append=evidence[-1:])
    mean = evidence.cumsum(axis=0) / np.arange(1, len(evidence) + 1)[:, None] - evidence
    return np.column_stack([evidence, *(each[:, _COMPARED] for each in (before, after, mean))])


def odds_of_first(evidence: NDArray[np.float64]) -> float:
    """Log-odds of two textures of the first merge of a tree, from evidence (merges, ...) of all of them."""
    seen = evidence[:, : len(PAIR_EVIDENCE)]
    return float(merging_table().log_odds(in_context(seen[:0], seen[:1], seen[1:]))[0])


def in_context(
    earlier: NDArray[np.float64], seen: NDArray[np.float64], later: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Append to the evidence (n, PAIR_EVIDENCE) of pairs how each would do as the merge after ``earlier``.

    While a tree is made, nothing is known of ``later`` merges.
    """
    later = seen[:0] if later is None else later
    linked = [PAIR_EVIDENCE.index(name) for name in ("separation", "linked separation")]
    contrast = PAIR_EVIDENCE.index("contrast")
    leaps = np.clip(seen[:, linked] - earlier[:, linked].max(axis=0, initial=_FIRST), -2, 3)
    drop = np.clip((seen - later[:1])[:, linked[0]], -3, 3) if len(later) else np.zeros(len(seen))
    others = np.concatenate([earlier, later])[:, contrast]
    return np.column_stack([seen, leaps, drop, np.maximum(seen[:, contrast], others.max(initial=0.0))])


@dataclass(frozen=True)
class PairTable:
    """Learned log-odds of two textures: a sum of functions of one piece of evidence, linear between knots."""

    low: NDArray[np.float64]
    """(E,), least value of each piece of evidence in training; lower ones count as this."""
    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    knots: NDArray[np.float64]  # (knots, E), where the slopes change; in units of spread from mean
    slopes: NDArray[np.float64]  # (knots + 1, E), the first slope and its changes
    constant: float
    doubt: float  # share of the probability spread evenly over all numbers that may be answered

    def columns(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give what the (flattened) slopes multiply, shape (n, (knots + 1) * E)."""
        values = (np.clip(evidence, self.low, self.high) - self.mean) / self.spread
        return np.concatenate([values, *(np.maximum(values - knot, 0) for knot in self.knots)], axis=1)

    def log_odds(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-odds (n,) of two textures against one, from evidence (n, E)."""
        return self.columns(evidence) @ self.slopes.ravel() + self.constant


def shipped_table() -> PairTable:
    """Give the log-odds of merges in their tree, from which the number is chosen."""
    return _read("number.json", EVIDENCE)


def merging_table() -> PairTable:
    """Give the log-odds of pairs that may be merged next."""
    return _read("pairs.json", MERGING_EVIDENCE)


@lru_cache(maxsize=2)
def _read(file: str, evidence: tuple[str, ...]) -> PairTable:
    values = json.loads(Path(__file__).with_name(file).read_text("utf-8"))
    by_name = values["evidence"]
    columns = {
        key: np.array([by_name[name][key] for name in evidence]).T
        for key in ("low", "high", "mean", "spread", "knots", "slopes")
    }
    return PairTable(**columns, constant=values["constant"], doubt=values["doubt"])


def _log(value: Any, least: float = 0.1) -> Any:
    """Logarithm of a value that may be small or negative by chance."""
    return np.log(np.maximum(value, 0.0) + least)


def _borders(labels: NDArray[np.intp], n_clusters: int, cells: Sites) -> NDArray[np.float64]:
    """Lengths (K, K) of common borders, in sides of cells; cells without data have none."""
    table = np.zeros((n_clusters, n_clusters))
    named = np.where(cells.sizes > 0, labels, n_clusters)
    for grid in cells.pieces(named):
        for way in (np.moveaxis(grid, axis, 0) for axis in range(grid.ndim)):
            one, other = way[:-1], way[1:]
            there = (one < n_clusters) & (other < n_clusters) & (one != other)
            np.add.at(table, (one[there], other[there]), 1)
    return table + table.T


class HeldOut(NamedTuple):
    """Histograms of K clusters, summed over the white cells of a checkerboard, and over the black ones."""

    sums: Floats  # (2, K, M)
    sizes: Floats  # (2, K), cells

    def scores(self, cells: Sites) -> Floats:
        """Scores (N, K, C) of full cells in the clusters, with profiles from cells of the other colour."""
        held = cells.channel_scores(1 - _checkerboard(cells.grids), cells.means_of(self.sums, self.sizes))
        held /= np.maximum(cells.sizes, 1e-6)[:, None, None]
        return held


def _checkerboard(grids: Sequence[tuple[int, ...]]) -> NDArray[np.intp]:
    return np.concatenate([np.indices(shape).sum(axis=0).ravel() % 2 for shape in grids])
