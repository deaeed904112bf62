"""Two ways to predict better than a single fit, to compare with: several fits, and a row's own counts.

Committee: what several fits of one model from different starts agree on, ``p(j | i) = mean_r p_r(j | i)``.
Since the logarithm is concave, its log-likelihood is never below the mean of theirs.

Backoff: the distribution of row i is drawn around the prediction ``p_ij`` of a model from a Pitman-Yor
process with discount d and strength s; it is observed through the counts ``n_ij``, ``t_i`` of them not zero.
With one table a column ([1]; [2] is the case s = 0; at d = 0 it is the mean under a Dirichlet prior, [3]),

    p(j | i) = (max(n_ij - d, 0) + (s + d t_i) p_ij) / (n_i + s)

[1] Y. W. Teh, A hierarchical Bayesian language model based on Pitman-Yor processes, 2006.
[2] R. Kneser and H. Ney, Improved backing-off for m-gram language modeling, 1995.
[3] D. MacKay and L. Peto, A hierarchical Dirichlet language model, 1995.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from texseg.counts.matrix import row_blocks
from texseg.models.base import entry_rows, products_at
from texseg.models.estimator import PREDICTION_FLOOR

Floats = NDArray[np.floating]

DISCOUNTS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Of every count of a row that is not zero."""

STRENGTHS = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10000.0)
"""Occurrences that the model counts for in every row; with the last, the row itself hardly counts."""


class Committee:
    """``n_members`` fits of an estimator from different starts; offers what `Backoff` and the tables ask."""

    def __init__(self, estimator: Any, n_members: int, random_state: int) -> None:
        self.estimator, self.n_members, self.random_state = estimator, n_members, random_state

    def fit(self, X: Any, validation: Any = None) -> Committee:
        rng = np.random.RandomState(self.random_state)
        self.members_ = [
            clone(self.estimator).set_params(random_state=rng.randint(2**31)).fit(X, validation=validation)
            for _ in range(self.n_members)
        ]
        self.mixing_ = np.hstack([member.mixing_ for member in self.members_]) / self.n_members
        self.components_ = np.vstack([member.components_ for member in self.members_])
        return self

    def perplexity(self, X: sp.csr_array) -> float:
        logs, total = 0.0, 0.0
        for some in evidence(self.mixing_, self.components_, X, X):
            p = (1 - PREDICTION_FLOOR) * some.p + PREDICTION_FLOOR / X.shape[1]
            logs, total = logs + some.occurrences @ np.log(p), total + some.occurrences.sum()
        return float(np.exp(-logs / total))


class Backoff:
    """Rows' own occurrences, backed off to a model that is fitted here; d and s chosen on ``validation``."""

    def __init__(self, estimator: Any) -> None:
        self.estimator_ = estimator

    def fit(self, X: sp.csr_array, validation: sp.csr_array) -> Backoff:
        self.estimator_.fit(X, validation=validation)
        factors = self.estimator_.mixing_, self.estimator_.components_
        self.discount_, self.strength_ = strongest(list(evidence(*factors, X, validation)), X.shape[1])
        self.counts_ = X
        return self

    def perplexity(self, X: sp.csr_array) -> float:
        found = evidence(self.estimator_.mixing_, self.estimator_.components_, self.counts_, X)
        return float(np.exp(-log_likelihood(found, X.shape[1], self.discount_, self.strength_)))


class Evidence(NamedTuple):
    """What the entries of a block of rows are predicted from."""

    occurrences: Floats
    """(entries,), which are to be predicted."""
    p: Floats
    """(entries,), prediction of the model."""
    n: Floats
    """(entries,), what the row is known to hold."""
    own: sp.csr_array
    """(rows, M), all that the rows are known to hold."""
    row: NDArray[np.intp]
    """(entries,), row of every entry."""


def evidence(mixing: Floats, components: Floats, known: Any, n: Any) -> Iterator[Evidence]:
    """Yield for every block of rows of ``n`` what its entries are predicted from."""
    columns = np.ascontiguousarray(components.T)
    for rows, block in row_blocks(n):
        index, own = entry_rows(block), sp.csr_array(known[rows], dtype=float)
        own.sum_duplicates()
        p = products_at(np.ascontiguousarray(mixing[rows]), columns, index, block.indices)
        yield Evidence(block.data, p, _entries(own, index, block.indices), own, index)


def _entries(own: sp.csr_array, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    """``own[rows, columns]``; the columns of every row of ``own`` are in order, each once."""
    keys, wanted = entry_rows(own) * own.shape[1] + own.indices, rows * own.shape[1] + columns
    if not len(keys):
        return np.zeros(len(wanted))
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, own.data[places], 0.0)


def _predictions(some: Evidence, discount: float, strength: float) -> Floats:
    """The formula at the top, for every entry; where nothing is known of a row, only the model counts."""
    index, size = entry_rows(some.own), some.own.shape[0]
    totals, taken = (
        np.bincount(index, part, size)[some.row]
        for part in (some.own.data, np.minimum(some.own.data, discount))
    )
    weight = np.where(totals > 0, strength + taken, 1.0)
    own = np.maximum(some.n - discount, 0)
    return (own + weight * some.p) / np.where(totals > 0, totals + strength, 1.0)


def strongest(found: list[Evidence], n_columns: int) -> tuple[float, float]:
    """Discount and strength with the highest likelihood."""
    return max(product(DISCOUNTS, STRENGTHS), key=lambda pair: log_likelihood(found, n_columns, *pair))


def log_likelihood(found: Iterable[Evidence], n_columns: int, discount: float, strength: float) -> float:
    """Mean log-probability of the occurrences."""
    logs, occurrences = 0.0, 0.0
    for some in found:
        p = _predictions(some, discount, strength)
        logs += float(some.occurrences @ np.log((1 - PREDICTION_FLOOR) * p + PREDICTION_FLOOR / n_columns))
        occurrences += float(some.occurrences.sum())
    return logs / occurrences if occurrences else np.nan
