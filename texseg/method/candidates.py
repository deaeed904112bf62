"""Candidate solutions on cells, and the evidence for one of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.sites import Sites, interior_cells
from texseg.fitting.assignment import arg_max_over

__all__ = ["Candidate", "distinct", "interior_gain"]

Floats = NDArray[np.floating]

_SAME = 0.97  # partitions that agree on more than this share of the sites count as the same
_EXTRAPOLATION = 2.0  # most by which the interior's gain is scaled up to the whole cluster


class Candidate(NamedTuple):
    """One fitted run."""

    posteriors: Floats
    """(N, K)."""
    profiles: Floats
    """(K, M); every channel sums to one."""
    scores: Floats
    """(N, K), log-likelihood of every site in every cluster, relative to the background profile."""
    gain: float


def distinct(labels: NDArray[np.intp], n_clusters: int) -> list[int]:
    """Find the runs (columns) whose partitions differ from those of all runs kept before."""
    kept: list[int] = []
    for s in range(labels.shape[1]):
        for other in kept:
            pairs = np.bincount(labels[:, other] * n_clusters + labels[:, s], minlength=n_clusters**2)
            table = pairs.reshape(n_clusters, n_clusters)
            if _agree(table):
                break
        else:
            kept.append(s)
    return kept


def _agree(table: NDArray[np.intp]) -> bool:
    """Tell whether two partitions are nearly the same, given the table (K, K) of their pairs of labels."""
    enough = _SAME * table.sum()
    if min(table.max(axis=0).sum(), table.max(axis=1).sum()) <= enough:  # no assignment has more
        return False
    if len(np.unique(table.argmax(axis=1))) == len(table):  # this one has as much
        return True
    from scipy.optimize import linear_sum_assignment  # slow to import, and hardly ever needed

    return bool(table[linear_sum_assignment(table, maximize=True)].sum() > enough)


def interior_gain(scores: Floats, posteriors: Floats, cells: Sites) -> float:
    """Mean gain over the background profile, judged by the cells that are not at a border.

    Cells near a change of label do not count; each cluster's interior gain is scaled up to its whole area, by
    at most a factor of two. So a cluster that only follows borders gains nothing, and a correct partition is
    not penalised for having many borders.
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
