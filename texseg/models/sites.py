"""Any model of the family as a segmenter of sites, for comparison with the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from texseg.counts.matrix import CountMatrix
from texseg.counts.random import random_state_of
from texseg.fitting.anneal import critical_beta
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
"""Inverse temperature of soft assignments, as a multiple of the first phase transition's."""


def fit_sites(model: str, n: CountMatrix, n_clusters: int, *, random_state: Any = None) -> Any:
    """Fit any model of the family to the sites (rows) of an image; labels are those of ``row_posteriors_``.

    Neighbouring pixels are not independent, so that their number says nothing about the temperature of soft
    assignments.
    """
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
    return makers[model]().fit(n)
