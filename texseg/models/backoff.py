"""A row's own occurrences, backed off to what a model expects of the row.

A model of a few clusters or aspects says what rows of one kind have in common, but loses what is special to
a single row, although the row itself shows it: a word that a text has used is used again. Let the
distribution of row i be drawn around the prediction ``p_ij`` of the model from a Pitman-Yor process with
discount d and strength s; it is observed through the counts ``n_ij``, of which ``t_i`` are non-zero. With
one table per column ([1]_, and [2]_, whose smoothing of n-grams is the case s = 0),

    p(j | i) = (max(n_ij - d, 0) + (s + d t_i) p_ij) / (n_i + s)

(a count below d is taken in full). At d = 0 this is the mean under a Dirichlet prior ([3]_). Both d and s
are chosen on held-out occurrences.

References
----------
.. [1] Y. W. Teh, A hierarchical Bayesian language model based on Pitman-Yor processes, 2006.
.. [2] R. Kneser and H. Ney, Improved backing-off for m-gram language modeling, 1995.
.. [3] D. MacKay and L. Peto, A hierarchical Dirichlet language model, 1995.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from texseg.counts.matrix import CountMatrix, row_blocks, split_counts
from texseg.counts.random import random_state_of
from texseg.fitting.assignment import Floats
from texseg.models.base import entry_rows, products_at
from texseg.models.estimator import PREDICTION_FLOOR, Predictor
from texseg.models.smm import SMM

__all__ = ["Backoff"]

DISCOUNTS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Of every count of a row that is not zero."""

STRENGTHS = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10000.0)
"""Occurrences that the model counts for in every row; with the last, rows are hardly heard."""


class Backoff(BaseEstimator):
    """Predict the occurrences of a row from its own counts, backed off to a model.

    Only for predicting occurrences, and only where rows repeat themselves, as texts do: lists that name
    nothing twice hold no evidence of that, and held-out occurrences then leave the model as it is.

    Parameters
    ----------
    estimator : ACM, HACM, PMM, SCM, SMM or Committee, optional
        ``SMM(32, beta="auto")`` when left out.
    validation_fraction : float, default=0.1
        Share of the occurrences held out where ``fit`` is given none.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    estimator_ : the fitted estimator
    counts_ : count matrix of shape (N, M)
        The known occurrences of the rows.
    discount_, strength_ : float
        d and s, chosen on held-out occurrences among all pairs from `DISCOUNTS` and `STRENGTHS`.

    References
    ----------
    Y. W. Teh, A hierarchical Bayesian language model based on Pitman-Yor processes, 2006.

    Examples
    --------
    Everybody likes two things out of ten and names them again and again.

    >>> rng = np.random.default_rng(0)
    >>> likes = np.array([rng.permutation(10) < 2 for _ in range(40)]) + 0.1
    >>> first, second = rng.poisson(5.0 * likes), rng.poisson(5.0 * likes)
    >>> model = Backoff(SMM(1), random_state=0).fit(first)
    >>> round(model.estimator_.perplexity(second), 1), round(model.perplexity(second), 1)
    (9.9, 6.2)
    """

    def __init__(
        self,
        estimator: Predictor | None = None,
        *,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, validation: Any = None) -> Self:
        """Fit the model, and choose how much weight a row's own counts get.

        Parameters
        ----------
        X : count matrix of shape (N, M)
        y : None
            Ignored.
        validation : count matrix of shape (N, M), optional
            Held-out occurrences of the same rows, also used by the model; instead of a random
            ``validation_fraction`` of ``X``.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            ``estimator`` is not one of this package.
        ValueError
            ``X`` or ``validation`` are not counts of the same shape, or a setting is out of range.
        """
        estimator = SMM(32, beta="auto") if self.estimator is None else self.estimator
        if not isinstance(estimator, Predictor):
            raise TypeError(
                f"Backoff needs an estimator of texseg.models, got {type(self.estimator).__name__}"
            )
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"Backoff needs validation_fraction between 0 and 1, got {self.validation_fraction!r}"
            )
        rng = random_state_of(self.random_state)
        known = X
        if validation is None:
            known, validation = split_counts(X, [1 - self.validation_fraction, self.validation_fraction], rng)
        self.estimator_ = clone(estimator).set_params(random_state=rng.randint(2**31))
        self.estimator_.fit(known, validation=validation)
        self.n_features_in_ = self.estimator_.n_features_in_
        judged = self.estimator_._check_new(validation, "validation")
        found = list(evidence(self.estimator_.mixing_, self.estimator_.components_, known, judged))
        self.discount_, self.strength_ = strongest(found, self.n_features_in_)
        self.counts_ = self.estimator_._check_new(X)
        return self

    def perplexity(self, X: Any, fold_in: Any = None, floor: float = PREDICTION_FLOOR) -> float:
        """Compute ``exp(-mean log p(j | i))`` over the occurrences in ``X``.

        Parameters
        ----------
        X : count matrix of shape (N, M)
            New occurrences; without ``fold_in``, of the rows that were fitted, in the same order.
        fold_in : count matrix of shape (N, M), optional
            The known occurrences of the rows of ``X``, if these are not the fitted ones.
        floor : float, default=0.01
            Share of the uniform distribution mixed into every prediction.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        n, mixing = self.estimator_._to_predict(X, fold_in)
        known = self.counts_ if fold_in is None else self.estimator_._check_new(fold_in, "fold_in")
        found = evidence(mixing, self.estimator_.components_, known, n)
        return float(np.exp(-log_likelihood(found, n.shape[1], self.discount_, self.strength_, floor)))

    def probabilities(self, rows: slice = slice(None)) -> Floats:
        """``p(j | i)`` of fitted rows.

        Parameters
        ----------
        rows : slice
            Which of the fitted rows, in steps of one; all by default.

        Returns
        -------
        array of shape (rows, M), rows sum to one
        """
        check_is_fitted(self)
        own = sp.csr_array(self.counts_[rows], dtype=float)
        p = self.estimator_.mixing_[rows] @ self.estimator_.components_
        totals, taken = (part[:, None] for part in _totals(own, self.discount_))
        return _backed_off(p, own.toarray(), totals, taken, self.discount_, self.strength_)


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


def evidence(mixing: Floats, components: Floats, known: CountMatrix, n: CountMatrix) -> Iterator[Evidence]:
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


def _totals(own: sp.csr_array, discount: float) -> tuple[Floats, Floats]:
    """Sum of every row's counts, and of what the discount takes from them, never more than a count."""
    index, size = entry_rows(own), own.shape[0]
    sums = (np.bincount(index, part, size) for part in (own.data, np.minimum(own.data, discount)))
    return next(sums).astype(float), next(sums).astype(float)


def _backed_off(
    p: Floats, n: Floats, totals: Floats, taken: Floats, discount: float, strength: float
) -> Floats:
    """Back off to the model; where nothing is known of a row, only the model counts."""
    known = totals > 0
    weight = np.where(known, strength + taken, 1.0)
    return (np.maximum(n - discount, 0) + weight * p) / np.where(known, totals + strength, 1.0)


def strongest(found: list[Evidence], n_columns: int) -> tuple[float, float]:
    """Discount and strength with the highest likelihood."""
    return max(
        product(DISCOUNTS, STRENGTHS), key=lambda pair: log_likelihood(found, n_columns, pair[0], pair[1])
    )


def log_likelihood(
    found: Iterable[Evidence],
    n_columns: int,
    discount: float,
    strength: float,
    floor: float = PREDICTION_FLOOR,
) -> float:
    """Mean log-probability of the occurrences."""
    logs, occurrences = 0.0, 0.0
    for some in found:
        totals, taken = (part[some.row] for part in _totals(some.own, discount))
        p = _backed_off(some.p, some.n, totals, taken, discount, strength)
        logs += float(some.occurrences @ np.log((1 - floor) * p + floor / n_columns))
        occurrences += float(some.occurrences.sum())
    return logs / occurrences if occurrences else np.nan
