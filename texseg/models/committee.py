"""Several fits of one model from different starts, whose predictions are averaged.

EM finds one of many local optima, and each overfits in its own way; what they agree on is more reliable than
any one of them. With members ``r``,

    p(j | i) = 1/R sum_r p_r(j | i)

is again a mixture, of all their components. Since the logarithm is concave, its log-likelihood is never
below the mean of theirs.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from texseg.counts.matrix import CountMatrix
from texseg.counts.random import random_state_of
from texseg.fitting.assignment import Floats
from texseg.models.estimator import CooccurrenceEstimator, Predictor
from texseg.models.smm import SMM

__all__ = ["Committee"]


class Committee(Predictor):
    """Average of the predictions of one model fitted several times.

    Only for predicting occurrences: to interpret the components, look at a single fit.

    Parameters
    ----------
    estimator : ACM, HACM, PMM, SCM or SMM, optional
        Fitted ``n_members`` times with other random numbers; ``SMM(32, beta="auto")`` when left out.
    n_members : int, default=8
        Number of members; perplexities of the SMM fell by 1 to 6 % with 2, 3 to 9 % with 4 and 4 to 11 % with
        8 (`benchmarks/dyadic.py`); the cost grows in proportion.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    members_ : list of the fitted estimators
    mixing_, components_ : ndarrays of shape (N, R) and (R, M)
        ``p(j | i)`` is their product; R is the number of components of all members together.

    Examples
    --------
    >>> X = np.random.default_rng(0).poisson(np.kron(np.eye(2), np.full((20, 10), 3.0)) + 0.2)
    >>> committee = Committee(SMM(4), n_members=3, random_state=0).fit(X)
    >>> committee.components_.shape
    (12, 20)
    >>> bool(committee.perplexity(X) < np.mean([member.perplexity(X) for member in committee.members_]))
    True
    """

    def __init__(
        self, estimator: CooccurrenceEstimator | None = None, n_members: int = 8, *, random_state: Any = None
    ) -> None:
        self.estimator = estimator
        self.n_members = n_members
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, validation: Any = None) -> Self:
        """Fit all members.

        Parameters
        ----------
        X : count matrix of shape (N, M)
        y : None
            Ignored.
        validation : count matrix of shape (N, M), optional
            Held-out occurrences of the same rows, for all members. Without it, every member with
            ``beta="auto"`` sets different ones aside.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            ``estimator`` is not one of this package.
        ValueError
            ``n_members`` is not a positive whole number, or the estimator refuses the counts or settings.
        """
        if not isinstance(self.n_members, (int, np.integer)) or self.n_members < 1:
            raise ValueError(
                f"Committee needs n_members as a whole number, at least 1, got {self.n_members!r}"
            )
        estimator = SMM(32, beta="auto") if self.estimator is None else self.estimator
        if not isinstance(estimator, CooccurrenceEstimator):
            raise TypeError(
                f"Committee needs an estimator of texseg.models, got {type(self.estimator).__name__}"
            )
        rng = random_state_of(self.random_state)
        self.members_ = [
            clone(estimator).set_params(random_state=rng.randint(2**31)).fit(X, validation=validation)
            for _ in range(self.n_members)
        ]
        self.mixing_ = np.hstack([member.mixing_ for member in self.members_]) / self.n_members
        self.components_ = np.vstack([member.components_ for member in self.members_])
        self.n_features_in_ = self.components_.shape[1]
        return self

    def _check_new(self, X: Any, name: str = "X") -> CountMatrix:
        check_is_fitted(self)
        return self.members_[0]._check_new(X, name)

    def _predictive_mixing(self, n: CountMatrix) -> Floats:
        return np.hstack([member._predictive_mixing(n) for member in self.members_]) / len(self.members_)
