"""How surely each cluster of cells is one segment, which no posterior shows.

Two halves of one texture are as sure of their pixels as two textures. But such clusters are close. Let c be
the contrast of a cluster: the separation (:mod:`texseg.method.pairs`) from the closest other cluster, times
the root of the number of clusters, over the root of the number of windows that all the data would fill. Then
it is right with probability ``1 / (1 + (half / c)^power)``, at least one half. Clusters of values differ
in what separation does not measure: of these it is a share of the way from chance to certainty, learned from
images with known truth. ``benchmarks/learn_confidence.py`` judges both on fields that were left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.sites import Sites
from texseg.method.pairs import Pairs


class Curve(NamedTuple):
    """How the probability that a cluster is right follows from the evidence."""

    half: float  # contrast of a cluster of textures that is as often right as wrong
    power: float
    values: float  # of clusters of plain values, part of the way from chance to certainty


CURVE = Curve(1.1, 3.0, 0.8)


class Evidence(NamedTuple):
    """Of the clusters that have cells."""

    clusters: NDArray[np.intp]  # (n,), their numbers
    areas: NDArray[np.float64]  # (n,), in cells
    contrasts: NDArray[np.float64] | None  # (n,); None for clusters of plain values
    closest: NDArray[np.intp]
    """(n,), index among them of the closest other one; of plain values, any other one."""


def evidence_of_clusters(
    labels: NDArray[np.intp], n_clusters: int, cells: Sites, window: float, by_values: bool
) -> Evidence:
    """Measure clusters (labels 0 .. K - 1 of the cells) in windows that are ``window`` cells wide."""
    areas = np.bincount(labels, cells.sizes.astype(np.float64), n_clusters).astype(np.float64)
    clusters = np.flatnonzero(areas > 0)
    n = len(clusters)
    if n < 2 or by_values:
        return Evidence(clusters, areas[clusters], None, np.roll(np.arange(n), 1))
    pairs = Pairs.of(np.searchsorted(clusters, labels), n, cells, window)
    separations = pairs.separations(pairs.distances())
    share = np.sqrt(n / pairs.areas.sum()) * window
    contrasts = share * np.maximum(separations.min(axis=1), 1e-3)
    return Evidence(clusters, areas[clusters], contrasts, separations.argmin(axis=1))


def right(evidence: Evidence, curve: Curve = CURVE) -> NDArray[np.float64]:
    """Probability (n,) that each of n clusters is right."""
    n = len(evidence.clusters)
    if evidence.contrasts is None:
        return np.full(n, 1.0 if n < 2 else 1 / n + (1 - 1 / n) * curve.values)
    return np.maximum(1 / (1 + (curve.half / evidence.contrasts) ** curve.power), 0.5)


def confusion_of_clusters(
    labels: NDArray[np.intp], n_clusters: int, cells: Sites, window: float, by_values: bool
) -> NDArray[np.float32]:
    """Probability (K, K) that what was taken for one segment (row) is another (column); rows sum to one.

    A cluster that is not right is the closest other one; empty clusters are not confused with others.
    """
    confusion = np.eye(n_clusters, dtype=np.float32)
    found = evidence_of_clusters(labels, n_clusters, cells, window, by_values)
    own = right(found)
    if len(own) > 1:
        confusion[found.clusters, found.clusters] = own
        confusion[found.clusters, found.clusters[found.closest]] = 1 - own
    return confusion
