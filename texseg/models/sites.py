"""Any model of the family as a segmenter of sites, for comparison with the default."""

from functools import partial
from typing import Any

import numpy as np

from texseg.counts.matrix import CountMatrix
from texseg.counts.random import random_state_of
from texseg.fitting.anneal import critical_beta
from texseg.models import ACM, HACM, PMM, SCM, SMM
from texseg.models.histograms import HistogramClustering

COLUMN_GROUPS_A_CLUSTER = 4  # of the two-sided models; at most as many as there are columns
BEYOND_TRANSITION = 30.0  # inverse temperature of soft assignments, as a multiple of the first transition's


def fit_sites(model: str, n: CountMatrix, n_clusters: int, *, random_state: Any = None) -> Any:
    """Fit a model to the sites (rows) of an image, whose number does not tell the temperature."""
    first = critical_beta(HistogramClustering(), n, random_state_of(random_state))
    beta = BEYOND_TRANSITION * first if np.isfinite(first) else 1.0
    columns = min(COLUMN_GROUPS_A_CLUSTER * n_clusters, n.shape[1])
    makers: dict[str, Any] = {
        "acm": partial(ACM, n_clusters, beta=beta),
        "acm-hard": partial(ACM, n_clusters, "hard"),
        "smm": partial(SMM, n_clusters, beta=1.0),
        "pmm": partial(PMM, n_clusters, columns, beta=1.0),
        "scm": partial(SCM, n_clusters, columns, "hard"),
        "hacm": partial(HACM, n_clusters, beta=beta),
    }
    return makers[model](random_state=random_state).fit(n)
