"""What all estimators share: validation, restarts, the choice of the inverse temperature, prediction.

The inverse temperature and the moment to stop are chosen on held-out occurrences of the fitted rows ([1]_
sections 5.1 and 6.1): with ``beta="auto"`` part of the occurrences is set aside, and the model of the highest
held-out likelihood over all temperatures and steps is kept.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from texseg.counts.matrix import CountMatrix, check_counts, is_implicit, row_blocks, split_counts
from texseg.fitting.anneal import State, anneal
from texseg.fitting.assignment import Floats
from texseg.models.base import entry_rows, products_at

PREDICTION_FLOOR = 0.01
"""Share of the uniform distribution in every prediction, so that no new occurrence is impossible."""

PATIENCE = 5
"""Steps without a better held-out likelihood after which a temperature is left."""

MAX_WORSE = 2
"""Temperatures without a better held-out likelihood after which the search ends."""


class Record(NamedTuple):
    """One step of a run, as kept in ``history_``."""

    beta: float
    free_energy: float
    heldout: float
    step: int


class Run(NamedTuple):
    """The state kept of a run, and the records of all its steps."""

    state: State
    history: list[Record]


def heldout_log_likelihood(
    mixing: Floats, profiles: Floats, n: CountMatrix, floor: float = PREDICTION_FLOOR
) -> float:
    """Mean log-probability of the occurrences in ``n`` given their rows, in nats.

    Parameters
    ----------
    mixing : array of shape (N, R)
        ``p(r | i)``.
    profiles : array of shape (R, M)
        ``p(j | r)``.
    n : count matrix of shape (N, M)
    floor : float
        Share of the uniform distribution that is mixed into every prediction.

    Returns
    -------
    float
        NaN if ``n`` is empty.

    Examples
    --------
    >>> value = heldout_log_likelihood(np.ones((1, 1)), np.array([[0.5, 0.5]]), np.array([[3.0, 1.0]]))
    >>> bool(np.isclose(value, np.log(0.5)))
    True
    """
    columns = np.ascontiguousarray(profiles.T)
    total, occurrences = 0.0, 0.0
    for rows, block in row_blocks(n):
        p = products_at(np.ascontiguousarray(mixing[rows]), columns, entry_rows(block), block.indices)
        total += float(block.data @ np.log((1 - floor) * p + floor / n.shape[1]))
        occurrences += float(block.data.sum())
    return total / occurrences if occurrences else np.nan


class CooccurrenceEstimator(BaseEstimator):
    """Base of the estimators; subclasses say which model, where it starts, and what it is called."""

    _size_parameters: ClassVar[tuple[str, ...]] = ("n_clusters",)
    _first_beta: ClassVar[float] = 1.0
    _beta_factor: ClassVar[float] = 0.7
    _warm: ClassVar[bool] = False

    beta: float | str
    validation_fraction: float
    n_init: int
    max_iter: int
    tol: float
    over_relaxation: bool
    random_state: Any

    # ---- what subclasses define

    def _model(self) -> Any:
        """Return the model as the driver sees it."""
        raise NotImplementedError  # pragma: no cover - interface

    def _start(self, model: Any, n: CountMatrix, rng: np.random.RandomState) -> Any:
        """Return random parameters to begin with."""
        raise NotImplementedError  # pragma: no cover - interface

    def _schedule(self, model: Any, n: CountMatrix, beta: float, rng: np.random.RandomState) -> list[float]:
        """Inverse temperatures on the way to ``beta``."""
        return [beta]

    def _publish(self, model: Any, n: CountMatrix, state: State) -> None:
        """Set the attributes that only this model has."""

    def _row_posteriors(self, model: Any, state: State) -> Floats:
        """Probabilities (N, K) of the clusters (aspects) of the fitted rows."""
        return self.mixing_

    # ---- fitting

    def fit(self, X: Any, y: None = None, validation: Any = None) -> Self:
        """Fit the model to counts.

        Parameters
        ----------
        X : count matrix of shape (N, M)
            Non-negative; fractional counts, empty rows and empty columns are allowed.
        y : None
            Ignored.
        validation : count matrix of shape (N, M), optional
            Held-out occurrences of the same rows, on which to stop early and, with ``beta="auto"``, to choose
            the inverse temperature; instead of a random ``validation_fraction`` of ``X``.

        Returns
        -------
        self
        """
        n, validation = self._check_fit(X, validation)
        rng = check_random_state(self.random_state)
        if self.beta == "auto" and validation is None:
            n, validation = split_counts(n, [1 - self.validation_fraction, self.validation_fraction], rng)
        model, run = self._fit_run(n, validation, rng)
        self._keep(model, n, run)
        return self

    def _fit_run(
        self, n: CountMatrix, validation: CountMatrix | None, rng: np.random.RandomState
    ) -> tuple[Any, Run]:
        model = self._model()
        return model, self._search(model, n, validation, rng)

    def _search(
        self, model: Any, n: CountMatrix, validation: CountMatrix | None, rng: np.random.RandomState
    ) -> Run:
        """Best of ``n_init`` starts: by held-out likelihood if there is any, else by free energy."""
        runs = [
            self._tempered(model, n, self._start(model, n, rng), validation, rng) for _ in range(self.n_init)
        ]
        if validation is None:
            return min(runs, key=lambda run: run.state.free_energy)
        return max(runs, key=lambda run: run.state.heldout)

    def _tempered(
        self,
        model: Any,
        n: CountMatrix,
        start: Any,
        validation: CountMatrix | None,
        rng: np.random.RandomState,
        coldest: float | None = None,
    ) -> Run:
        """One run from ``start`` at the temperature asked for, or at the best one not below ``coldest``."""
        judge = None if validation is None else _judge(model, validation)
        if judge is not None and self.beta == "auto":
            return self._choose_beta(model, n, start, judge, rng, coldest or self._first_beta)
        return self._descend(model, n, start, float(self.beta), judge, rng)

    def _choose_beta(
        self,
        model: Any,
        n: CountMatrix,
        start: Any,
        judge: Callable,
        rng: np.random.RandomState,
        beta: float,
    ) -> Run:
        """Heat up from ``beta``, the coldest, as long as held-out data gain; then look closer."""
        best, history, worse = None, [], 0
        while worse < MAX_WORSE:
            run = self._descend(model, n, start, beta, judge, rng)
            history += run.history
            better = best is None or run.state.heldout > best.heldout
            worse = 0 if better else worse + 1
            if better:
                best = run.state
                start = best.params if self._warm else start
            beta *= self._beta_factor
        assert best is not None
        for factor in () if self._warm else (self._beta_factor**0.5, self._beta_factor**0.25):
            for near in (best.beta * factor, min(best.beta / factor, 1.0)):
                run = self._descend(model, n, start, near, judge, rng)
                history += run.history
                best = max(best, run.state, key=lambda state: state.heldout)
        return Run(best, history)

    def _descend(
        self,
        model: Any,
        n: CountMatrix,
        start: Any,
        beta: float,
        judge: Callable | None,
        rng: np.random.RandomState,
    ) -> Run:
        """EM steps at one temperature; the state kept is the best on held-out data, or the last."""
        kept, history = None, []
        for state in anneal(
            model,
            n,
            self._schedule(model, n, beta, rng),
            start=start,
            rng=rng,
            validation=judge,
            patience=None if judge is None else PATIENCE,
            over_relax=self.over_relaxation,
            perturbation=0.0,
            tol=self.tol,
            max_steps=self.max_iter,
        ):
            history.append(Record(state.beta, state.free_energy, state.heldout, state.step))
            if kept is None or judge is None or state.heldout > kept.heldout:
                kept = state
        assert kept is not None
        return Run(kept._replace(step=state.step, converged=state.step < self.max_iter), history)

    def _keep(self, model: Any, n: CountMatrix, run: Run) -> None:
        state = run.state
        self._fitted_model, self._params = model, state.params
        self.mixing_, self.components_ = model.prediction(state.params, state.posteriors)
        self.row_posteriors_ = self._row_posteriors(model, state)
        self.labels_ = self.row_posteriors_.argmax(axis=1)
        self.beta_ = state.beta
        self.free_energy_ = state.free_energy
        self.n_iter_ = max(1, state.step)
        self.converged_ = state.converged
        self.history_ = run.history
        self._publish(model, n, state)

    # ---- using

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (N, K) of the clusters (aspects) of new rows, which are folded in at ``beta_``.

        Parameters
        ----------
        X : count matrix of shape (N, M)

        Returns
        -------
        array of shape (N, K), rows sum to one
        """
        n = self._check_new(X)
        return self._fitted_model.fold_in(n, self._params, self.beta_)

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Most probable cluster (aspect) of every new row, shape (N,), counted from 0.

        Parameters
        ----------
        X : count matrix of shape (N, M)

        Returns
        -------
        int array of shape (N,)
        """
        return self.predict_proba(X).argmax(axis=1)

    def score(self, X: Any, y: None = None) -> float:
        """Mean log-likelihood of an occurrence in ``X``, in nats, its rows folded in on ``X`` itself.

        Parameters
        ----------
        X : count matrix of shape (N, M)
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return -float(np.log(self.perplexity(X, fold_in=X)))

    def perplexity(self, X: Any, fold_in: Any = None, floor: float = PREDICTION_FLOOR) -> float:
        """Compute ``exp(-mean log p(j | i))`` over the occurrences in ``X``.

        Parameters
        ----------
        X : count matrix of shape (N, M)
            New occurrences; without ``fold_in`` those of the rows that were fitted, in the same order.
        fold_in : count matrix of shape (N, M), optional
            Other occurrences of the rows of ``X``, from which their mixing is found first.
        floor : float, default=0.01
            Share of the uniform distribution mixed into every prediction.

        Returns
        -------
        float
        """
        X = self._check_new(X)
        mixing, profiles = self.mixing_, self.components_
        if fold_in is not None:
            mixing = self._predictive_mixing(self._check_new(fold_in, "fold_in"))
        if len(mixing) != X.shape[0]:
            raise ValueError(
                f"perplexity got X with {X.shape[0]} rows, but {len(mixing)} were "
                f"{'given in fold_in' if fold_in is not None else 'fitted; pass fold_in for other rows'}"
            )
        return float(np.exp(-heldout_log_likelihood(mixing, profiles, X, floor)))

    def _predictive_mixing(self, n: CountMatrix) -> Floats:
        """``p(r | i)`` (N, R) of new rows, for the R rows of ``components_``."""
        return self._fitted_model.fold_in(n, self._params, self.beta_)

    # ---- checks

    def _check_fit(self, X: Any, validation: Any) -> tuple[CountMatrix, CountMatrix | None]:
        owner = type(self).__name__
        self._check_settings(owner)
        n = self._checked(X, "X", reset=True)
        rows = getattr(self, self._size_parameters[0])
        if rows > n.shape[0]:
            raise ValueError(
                f"{owner} got {self._size_parameters[0]}={rows}, more than there are rows "
                f"(n_samples={n.shape[0]}); ask for fewer"
            )
        if validation is not None:
            validation = self._checked(validation, "validation", reset=False)
            if validation.shape != n.shape:
                raise ValueError(
                    f"{owner} needs validation with the rows and columns of X, {n.shape}, "
                    f"got {validation.shape}"
                )
        return n, validation

    def _checked(self, X: Any, name: str, reset: bool) -> CountMatrix:
        owner = type(self).__name__
        if not is_implicit(X):
            X = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=(np.float64, np.float32),
                ensure_non_negative=True,
            )
        elif reset:
            self.n_features_in_ = X.shape[1]
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{owner} was fitted to {self.n_features_in_} columns, got {X.shape[1]} in {name}"
            )
        return check_counts(X, owner=owner, name=name)

    def _check_settings(self, owner: str) -> None:
        if self.beta != "auto" and not (isinstance(self.beta, (int, float)) and 0 < self.beta < np.inf):
            raise ValueError(f'{owner} needs beta as a positive number or "auto", got {self.beta!r}')
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"{owner} needs validation_fraction between 0 and 1, got {self.validation_fraction!r}"
            )
        for name in (*self._size_parameters, "n_init", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{owner} needs {name} as a whole number, at least 1, got {value!r}")
        if not self.tol >= 0:
            raise ValueError(f"{owner} needs tol of at least 0, got {self.tol!r}")

    def _check_new(self, X: Any, name: str = "X") -> CountMatrix:
        check_is_fitted(self)
        return self._checked(X, name, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


def check_assignment(owner: str, assignment: str, beta: float | str) -> None:
    """Refuse unknown assignments, and hard ones with a temperature to be chosen."""
    if assignment not in ("soft", "hard"):
        raise ValueError(f'{owner} needs assignment "soft" or "hard", got {assignment!r}')
    if assignment == "hard" and beta == "auto":
        raise ValueError(f"{owner} has no temperature with assignment='hard'; beta='auto' needs 'soft'")


def _judge(model: Any, validation: CountMatrix) -> Callable[[Any, Any], float]:
    def held_out(params: Any, posteriors: Any) -> float:
        mixing, profiles = model.prediction(params, posteriors)
        return heldout_log_likelihood(mixing, profiles, validation)

    return held_out


def cross_validate(
    estimator: CooccurrenceEstimator, X: Any, n_folds: int = 10, random_state: Any = None
) -> Floats:
    """Test perplexities of ``n_folds`` folds of occurrences ([1]_ section 6.1).

    Every fold is predicted by a model fitted to the others; with ``beta="auto"`` that model sets aside its
    own validation occurrences among those.

    Parameters
    ----------
    estimator : estimator of this package
        Not modified; a clone is fitted each time.
    X : array or sparse matrix of shape (N, M)
        Whole numbers.
    n_folds : int, default=10
    random_state : int, RandomState or None

    Returns
    -------
    array of shape (n_folds,)

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.

    Examples
    --------
    >>> from texseg.models import SMM
    >>> X = np.kron(np.eye(2, dtype=int), np.full((5, 4), 6))
    >>> float(cross_validate(SMM(2, random_state=0), X, n_folds=3, random_state=0).mean().round(1))
    4.1
    """
    folds = split_counts(X, [1 / n_folds] * n_folds, random_state)
    total = sum(folds[1:], folds[0])
    return np.array([clone(estimator).fit(total - fold).perplexity(fold) for fold in folds])
