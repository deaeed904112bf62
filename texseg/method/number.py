"""How many segments: over-segment, merge close clusters down to one, and judge each merge.

An over-segmentation is fitted first. Two of its clusters are merged again and again, until one is left. Each
merge asks one question: were these two one texture or two? What is measured of the pair, its *evidence*, has
learned log-odds of two (:class:`texseg.method.pairs.PairTable`). Of the three closest pairs (average linkage
of ``d'``, see :mod:`texseg.method.pairs`) the one with the least is merged, since a small patch of another
texture may be closer than two halves of one that a shadow crosses. The finished tree is judged by other
log-odds ``f``, whose evidence also says how a pair compares with the merges before and after it. If K is the
right number, all merges down to K joined one texture, and all merges from K down joined two, so that::

    log P(K) = sum of f over the merges that lead from K segments to one + constant

The table of ``f`` was fitted by maximum likelihood of the number, on images where it is known
(``benchmarks/learn_number.py``), so P is calibrated for images like those. A share of the probability, the
doubt, is spread evenly over all numbers that may be answered: of other images the answer is never certain.

*Which number is chosen?* The least whose expected loss is within .08 of the smallest: few segments first. The
loss of k segments where K are right is one half if k differs from K, plus half the distance between the two
maps: one minus the adjusted Rand index of the two levels of the tree. So a number that merely splits off a
small corner costs little more than one half, and being off by one is cheaper than being off by four.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.sites import Sites, interior_cells
from texseg.fitting.assignment import soft_max
from texseg.method.pairs import (
    PAIR_EVIDENCE,
    Pairs,
    PairTable,
    along_the_tree,
    in_context,
    merging_table,
    shipped_table,
)

_RIVALS = 3  # closest pairs among which the likeliest to be one texture is merged; 6 do as well
_FEWEST_INTERIOR = 6  # cells; a cluster with fewer follows borders and is dissolved; 3 to 24 work
_EXACT = 0.5  # share of the loss that any wrong number costs; the rest is the distance between the maps
_AS_GOOD = 0.08  # of the loss: fewer segments cost hardly more; .05 to .1 are right as often
_LISTED = 0.05  # least probability of another number to be reported
_MOST_LISTED = 3
_LIKELY = 0.5  # least probability of a single texture to be reported
_TIE = 0.9  # of the probability of the likeliest number


class Selection(NamedTuple):
    """The choice of the number of segments; print it to read it in words."""

    n_segments: NDArray[np.intp]
    """(n,), numbers of segments, ascending; also those that were not allowed, such as 1 by default."""
    probabilities: NDArray[np.float64]
    """(n,), probability that each is the number of textures; they sum to one."""
    losses: NDArray[np.float64]
    """(n,), expected loss of answering with each, 0 to 1, given that the number is an allowed one; infinite
    for the others."""
    separations: NDArray[np.float64]
    """(n,), separation of the closest two segments, see :mod:`texseg.method.pairs`; NaN for one segment."""
    chosen: int
    """The fewest segments whose loss is within .08 of the least."""
    by_values: bool = False
    """Whether the image was divided by plain values, of whose number textures tell nothing."""

    @property
    def one_texture(self) -> float:
        """Probability that everything is a single texture, whether or not that was allowed as an answer."""
        return self.probability(1)

    @property
    def others(self) -> NDArray[np.intp]:
        """Up to three other numbers with a probability of at least 5 %, the likeliest first."""
        order = np.argsort(-self.probabilities, kind="stable")
        likely = order[(self.probabilities[order] >= _LISTED) & (not self.by_values)]
        return self.n_segments[likely][self.n_segments[likely] != self.chosen][:_MOST_LISTED]

    @property
    def others_in_words(self) -> str:
        """These with their probabilities, such as "3 (20%), 4 (10%)"."""
        return self._listed(self.others.tolist())

    def probability(self, k: int) -> float:
        """Probability of ``k`` segments, 0 if it was not compared."""
        return float(self.probabilities[self.n_segments == k].sum())

    def _listed(self, numbers: Sequence[int]) -> str:
        return ", ".join(f"{k} ({self.probability(k):.0%})" for k in numbers)

    def __str__(self) -> str:
        text = f"{self.chosen} segment{'' if self.chosen == 1 else 's'}"
        if self.by_values:
            return text
        own, others = self.probability(self.chosen), self.others.tolist()
        least = int(self.n_segments[np.isfinite(self.losses)][0])
        if self.chosen >= least > 1 and self.one_texture >= _LIKELY:
            numbers = sorted({self.chosen, *others}, key=lambda k: -self.probability(k))
            rest = self._listed([k for k in numbers if k > 1])
            single = f"probably a single texture ({self.one_texture:.0%}), else {rest}"
            return f"{single}; divided into {self.chosen} because k_min is {least}"
        text += f" ({own:.0%})"
        if not others:
            return text
        likeliest = self.probability(others[0])
        is_likelier = likeliest * _TIE > own
        text += (", or " if is_likelier else ", else ") + self.others_in_words
        if is_likelier and others[0] < least:
            text += f"; {others[0]} is likeliest, but k_min is {least}"
        elif is_likelier:
            is_least = self.losses[self.n_segments == self.chosen] <= self.losses.min()
            how = "the safer choice" if is_least else "nearly as safe a choice"
            text += f"; {others[0]} is likeliest, {self.chosen} is {how}"
        elif likeliest >= _TIE * own:
            text += ", nearly a tie"
        return text


class MergeTree(NamedTuple):
    """A sequence of partitions, from the over-segmentation down to a single segment."""

    labels: NDArray[np.intp]  # (N,), cluster of every site in the over-segmentation, 0 .. K - 1
    areas: NDArray[np.float64]  # (K,), areas of the clusters, in sites
    merges: tuple[tuple[int, int], ...]
    """Clusters (kept, absorbed), in the order of merging; each is named by its smallest member."""
    separations: NDArray[np.float64]  # (K - 1,), separation of the two closest clusters before each merge
    evidence: NDArray[np.float64]
    """(K - 1, len(EVIDENCE)), what was measured of each merged pair, see :mod:`texseg.method.pairs`."""

    @property
    def n_clusters(self) -> int:
        """Number of clusters of the over-segmentation."""
        return len(self.merges) + 1

    def groups(self, k: int) -> NDArray[np.intp]:
        """Segment, 0 .. k - 1, of each cluster of the over-segmentation when ``k`` segments are left."""
        return grouped(self.merges, k)


def grouped(merges: Sequence[tuple[int, int]], k: int) -> NDArray[np.intp]:
    """Segment, 0 .. k - 1, of each of K clusters after the first K - k merges (kept, absorbed).

    Examples
    --------
    >>> grouped([(1, 2), (0, 1)], 2)
    array([0, 1, 1])
    """
    K = len(merges) + 1
    if not 1 <= k <= K:
        raise ValueError(f"k must be 1 to {K}, got {k}")
    group = np.arange(K)
    for kept, absorbed in merges[: K - k]:
        group[group == absorbed] = kept
    return np.unique(group, return_inverse=True)[1]


def merge_tree(labels: NDArray[np.intp], cells: Sites, window: float) -> MergeTree:
    """Merge clusters, given the labels (N,) of all cells, 0 .. K - 1; windows are ``window`` cells wide.

    Of the three closest pairs, the one that is likeliest to be one texture is merged.
    """
    K = int(labels.max()) + 1
    pairs = Pairs.of(labels, K, cells, window)
    areas = pairs.areas.sum(axis=1)
    merges: list[tuple[int, int]] = []
    separations: list[float] = []
    evidence: list[NDArray[np.float64]] = []
    linkage, table = pairs.distances(), merging_table()
    for _ in range(K - 1):
        separation = pairs.separations(linkage)
        separations.append(float(separation.min()))
        a, b = np.triu_indices(K, 1)
        order = np.argsort(separation[a, b], kind="stable")[:_RIVALS]
        order = order[np.isfinite(separation[a, b][order])]  # clusters that are left
        closest = a[order], b[order]
        seen = pairs.evidence(*closest, pairs.distances(), separation[closest])
        earlier = np.array(evidence).reshape(-1, len(PAIR_EVIDENCE))
        best = int(np.argmin(table.log_odds(in_context(earlier, seen))))
        kept, absorbed = (int(ends[best]) for ends in closest)
        merges.append((kept, absorbed))
        evidence.append(seen[best])
        share = pairs.areas[[kept, absorbed]].sum(axis=1)
        linkage[kept] = share / share.sum() @ linkage[[kept, absorbed]]
        linkage[:, kept] = linkage[kept]
        pairs.merge(kept, absorbed)
    seen = np.array(evidence).reshape(-1, len(PAIR_EVIDENCE))
    return MergeTree(labels, areas, tuple(merges), np.array(separations), along_the_tree(seen))


def choose_number(tree: MergeTree, k_min: int = 1, table: PairTable | None = None) -> Selection:
    """Find the fewest segments, at least ``k_min``, whose expected loss is within .08 of the least.

    If the tree has fewer than ``k_min`` clusters, all of them are kept. ``table`` is the shipped one unless
    given.
    """
    K = tree.n_clusters
    table = table or shipped_table()
    logits = np.append(0.0, np.cumsum(table.log_odds(tree.evidence)[::-1]))
    first = min(k_min, K) - 1
    levels = [tree.groups(k) for k in range(first + 1, K + 1)]
    apart = 1 - np.array([[_agreement(tree.areas, one, other) for other in levels] for one in levels])
    allowed = _doubted(soft_max(logits[first:])[0], table.doubt)
    losses = (_EXACT * (1 - np.eye(len(levels))) + (1 - _EXACT) * apart) @ allowed
    return Selection(
        np.arange(1, K + 1),
        _doubted(soft_max(logits)[0], table.doubt),
        np.append(np.full(first, np.inf), losses),
        np.append(np.nan, tree.separations[::-1]),
        first + 1 + int(np.argmax(losses <= losses.min() + _AS_GOOD)),
    )


def _doubted(probabilities: NDArray[Any], doubt: float) -> NDArray[Any]:
    """Spread a share of the probability evenly."""
    return (1 - doubt) * probabilities + doubt / len(probabilities)


def _agreement(areas: NDArray[np.float64], one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """Give the adjusted Rand index of two groupings of clusters with these areas."""
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), areas)
    pairs, rows, columns = ((t**2).sum() for t in (table, table.sum(axis=1), table.sum(axis=0)))
    expected, most = rows * columns / areas.sum() ** 2, (rows + columns) / 2
    return 1.0 if most <= expected else float((pairs - expected) / (most - expected))


def dissolved(
    labels: NDArray[np.intp], scores: NDArray[np.floating], cells: Sites, least: int = 2
) -> NDArray[np.intp]:
    """Labels from 0 without gaps, without clusters that have hardly any interior; ``least`` are kept.

    ``scores`` (N, K) are the cells' log-likelihoods, which decide where those of such a cluster go.
    """
    alive, labels = np.unique(labels[cells.sizes > 0]).tolist(), labels.copy()
    scores = np.where(np.isin(np.arange(scores.shape[1]), alive), scores, -np.inf)
    empty = ~np.isin(labels, alive)  # clusters of cells without data
    labels[empty] = scores[empty].argmax(axis=1)
    while len(alive) > least:
        inside = interior_cells(labels, cells) & (cells.sizes > 0.5)
        inner = np.bincount(labels[inside], minlength=scores.shape[1])
        smallest = min(alive, key=lambda k: inner[k])
        if inner[smallest] >= _FEWEST_INTERIOR:
            break
        alive.remove(smallest)
        scores[:, smallest] = -np.inf
        orphans = labels == smallest
        labels[orphans] = scores[orphans].argmax(axis=1)
    return np.searchsorted(alive, labels)
