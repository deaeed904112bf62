"""Any model of the family as a segmenter of sites: one call from a count matrix to cluster probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from texseg.counts.matrix import CountMatrix
from texseg.counts.random import random_state_of
from texseg.fitting.anneal import critical_beta
from texseg.fitting.assignment import Floats
from texseg.models.acm import ACM
from texseg.models.estimator import CooccurrenceEstimator
from texseg.models.hacm import HACM
from texseg.models.histograms import HistogramClustering
from texseg.models.pmm import PMM
from texseg.models.scm import SCM
from texseg.models.smm import SMM

COLUMN_GROUPS_A_CLUSTER = 4
"""Column groups of the two-sided models, for every cluster of sites; at most as many as there are columns."""


BEYOND_TRANSITION = 30.0
"""Default inverse temperature of soft assignments, as a multiple of the first phase transition's."""


class SiteLabels(NamedTuple):
    """What :func:`site_labels` returns."""

    posteriors: Floats
    """(N, K), the probabilities of the clusters at every site."""
    free_energy: float
    """In nats; only comparable between runs of the same model."""
    estimator: CooccurrenceEstimator
    """The fitted estimator."""


def site_labels(
    model: str, n: CountMatrix, n_clusters: int, *, beta: float | None = None, random_state: Any = None
) -> SiteLabels:
    """Cluster the sites (rows) of a count matrix of an image with any model of the family.

    The clustering models assign whole sites; for the mixture models SMM and PMM a site's label is the aspect
    (the row group) that accounts for most of its occurrences.

    Parameters
    ----------
    model : {"acm", "acm-hard", "smm", "pmm", "scm", "hacm"}
    n : count matrix of shape (N, M)
        Rows without counts, where there is no data, get the mean probabilities.
    n_clusters : int
    beta : float, optional
        Inverse temperature of the models that assign whole sites softly ("acm", "hacm"); by default 30 times
        that of the first phase transition, since neighbouring pixels are not independent observations and
        their number says nothing.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    SiteLabels

    Raises
    ------
    ValueError
        ``model`` is unknown, or the estimator refuses the counts or settings.

    Examples
    --------
    >>> n = np.repeat([[9.0, 1.0, 1.0], [1.0, 1.0, 9.0]], 20, axis=0)
    >>> labels = site_labels("smm", n, 2, random_state=0).posteriors.argmax(axis=1)
    >>> bool((labels[:20] == labels[0]).all() and (labels[20:] == 1 - labels[0]).all())
    True
    """
    if beta is None:
        first = critical_beta(HistogramClustering(), n, random_state_of(random_state))
        beta = BEYOND_TRANSITION * first if np.isfinite(first) else 1.0
    columns = min(COLUMN_GROUPS_A_CLUSTER * n_clusters, n.shape[1])
    makers: dict[str, Callable[[], CooccurrenceEstimator]] = {
        "acm": lambda: ACM(n_clusters, beta=beta, random_state=random_state),
        "acm-hard": lambda: ACM(n_clusters, "hard", random_state=random_state),
        "smm": lambda: SMM(n_clusters, beta=1.0, random_state=random_state),
        "pmm": lambda: PMM(n_clusters, columns, beta=1.0, random_state=random_state),
        "scm": lambda: SCM(n_clusters, columns, "hard", random_state=random_state),
        "hacm": lambda: HACM(n_clusters, beta=beta, random_state=random_state),
    }
    if model not in makers:
        raise ValueError(f"model must be one of {list(makers)}, got {model!r}")
    estimator = makers[model]().fit(n)
    return SiteLabels(estimator.row_posteriors_, estimator.free_energy_, estimator)
