"""What all estimators share: validation, restarts, the choice of the inverse temperature, prediction.

The inverse temperature and the stopping point are chosen on held-out occurrences of the fitted rows (Hofmann
and Puzicha, A.I. Memo 1625, sections 5.1 and 6.1): with ``beta="auto"`` part of the occurrences is set aside,
and the model with the highest held-out likelihood over all temperatures and steps is kept.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from texseg.counts.blocks import BlockCounts as BlockCounts  # offered with the models, which take it
from texseg.counts.blocks import scale_rows
from texseg.counts.matrix import CountMatrix, check_counts, groups_of, is_implicit, row_blocks, row_totals
from texseg.counts.matrix import split_counts as split_counts
from texseg.counts.random import random_state_of
from texseg.fitting.anneal import State, anneal, critical_beta, geometric_schedule
from texseg.fitting.assignment import Floats
from texseg.models import base
from texseg.models.base import LONG_ROW, Allowed, Labels, Rng, is_number
from texseg.threads import one_blas_thread

PREDICTION_FLOOR = 0.01  # of the uniform distribution in predictions: no new occurrence is impossible
PATIENCE = 5  # steps without a better held-out likelihood after which a temperature is left
HOTTER = 0.8  # of the first phase transition's inverse temperature: where cooling begins, with one profile
COOLING = 0.6  # factor from one temperature to the next while clusters grow; .8 and .9 find the same clusters
WORTHWHILE = 2e-4  # nats an occurrence, least gain of a change of a setting
STANDARD_ERRORS = 2.0  # 1, 1.5, 2, 2.5 and 3 choose 37, 45, 48, 49 and 49 of 52 planted numbers
LARGE_TABLE = 2**22  # entries beyond which single precision is used: a step takes a third of the time
FEW_ENTRIES = 2**20  # of large tables, stored entries of the rows on which settings are chosen
LAST_STEPS = 2  # of EM that take in held-out occurrences: one has most of the gain, more begin to overfit
MAX_WORSE, MAX_WORSE_WARM = 2, 4  # temperatures that are worse, to end the search; closer ones if warm


class FitRecord(NamedTuple):
    """One step of a run, as kept in ``history_``."""

    beta: float
    free_energy: float
    heldout: float
    step: int


class Data(NamedTuple):
    """What a model is fitted to."""

    counts: CountMatrix  # (N, M)
    weights: NDArray[np.float64] | None  # (N,), how often each row counts; None where each counts once
    validation: CountMatrix | None  # Held-out occurrences of the same rows
    everything: CountMatrix | None  # (N, M), both, where the estimator itself has held out the latter
    beta: float | None  # The inverse temperature; None where the held-out occurrences choose it
    start: Any = None  # Parameters from which all runs begin, where these have been found before

    @property
    def share_of_few(self) -> float:
        """Share of the rows of large tables on which settings are chosen; else 1."""
        n = self.counts
        entries = 0 if is_implicit(n) else getattr(n, "nnz", n.shape[0] * n.shape[1])
        return FEW_ENTRIES / entries if entries > LARGE_TABLE else 1.0

    @property
    def rows(self) -> Floats:
        """How often each row counts, (N, 1)."""
        return np.ones((self.counts.shape[0], 1)) if self.weights is None else self.weights[:, None]

    def heldout(self, mixing: Floats, profiles: Floats) -> float:
        """Mean log-likelihood of held-out occurrences; see `heldout_log_likelihood`."""
        n = self.validation if self.weights is None else scale_rows(self.validation, self.weights)
        return heldout_log_likelihood(mixing, profiles, n)


class Run(NamedTuple):
    """The state that was kept from a run, and the records of all its steps."""

    state: State
    history: list[FitRecord]


def best_of(found: Sequence[tuple[Any, Run]]) -> tuple[Any, Run]:
    """Model and run that are best, by held-out likelihood if available, else by F; its records stand last."""
    states = (run.state for _, run in found)
    merits = [-state.free_energy if np.isnan(state.heldout) else state.heldout for state in states]
    model, best = found[int(np.argmax(merits))]
    others = [record for _, run in found if run is not best for record in run.history]
    return model, best._replace(history=others + list(best.history))


def heldout_log_likelihood(
    mixing: Floats, profiles: Floats, n: CountMatrix, floor: float = PREDICTION_FLOOR
) -> float:
    """Mean log-probability of the occurrences in ``n`` given their rows, in nats; NaN if ``n`` is empty.

    ``mixing`` (N, R) is ``p(r | i)``, ``profiles`` (R, M) ``p(j | r)``, ``n`` (N, M) counts, and ``floor``
    the share of the uniform distribution in predictions.

    >>> value = heldout_log_likelihood(np.ones((1, 1)), np.array([[0.5, 0.5]]), np.array([[3.0, 1.0]]))
    >>> bool(np.isclose(value, np.log(0.5)))
    True
    """
    logs, occurrences = 0.0, 0.0
    for _, block, log_p in _log_predictions(mixing, profiles, n, floor):
        logs += float(block.data @ log_p)
        occurrences += float(block.data.sum())
    return logs / occurrences if occurrences else np.nan


def _log_predictions(
    mixing: Floats, profiles: Floats, n: CountMatrix, floor: float
) -> Iterator[tuple[slice, sp.csr_array, Floats]]:
    """Blocks of rows of ``n`` as CSR, with the log-probability of every entry."""
    columns = np.ascontiguousarray(profiles.T)
    for rows, block in row_blocks(n):
        shares = np.ascontiguousarray(mixing[rows])
        p = base.products_at(shares, columns, base.entry_rows(block), block.indices)
        yield rows, block, np.log((1 - floor) * p + floor / n.shape[1])


if TYPE_CHECKING:  # scikit-learn has no types, so that constructors of its heirs would take anything

    class Scikit:
        """Any attribute may exist."""

        def __getattr__(self, name: str) -> Any: ...

        def __sklearn_tags__(self) -> Any: ...

    class ClusterMixin:
        """Tags of clusterings."""

    class DensityMixin:
        """Tags of densities."""

    BaseEstimator = Scikit
else:
    from sklearn import base as scikit

    ClusterMixin, DensityMixin, BaseEstimator = scikit.ClusterMixin, scikit.DensityMixin, scikit.BaseEstimator

    class Scikit(scikit.ClassNamePrefixFeaturesOutMixin, scikit.TransformerMixin, BaseEstimator):
        """What scikit-learn gives to transformers."""


Estimator = TypeVar("Estimator")


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def settings(estimator: type[Estimator]) -> type[Estimator]:
    """Let fields be what the constructor takes and stores; all else is scikit-learn's."""
    return dataclass(eq=False, repr=False)(estimator)


class CountEstimator(Scikit):
    """Base of whatever is fitted to counts: the checks of tables, and the names of columns."""

    components_: Floats
    mixing_: Floats
    row_posteriors_: Floats
    labels_: Labels
    beta_: float
    converged_: bool

    def fit_predict(self, X: Any, y: None = None, **options: Any) -> Labels:
        """Fit the model, with the options of `fit`, and return ``labels_``, int (N,)."""
        return self.fit(X, **options).labels_

    def score(self, X: Any, y: None = None, sample_weight: Any = None) -> float:
        """Mean log-likelihood of an occurrence, in nats, rows weighted by (N,); see `score_samples`."""
        logs, totals = self.score_samples(X), row_totals(self._check_new(X))
        weights = np.ones(len(logs)) if sample_weight is None else _check_sample_weight(sample_weight, logs)
        return float((weights @ logs) / (weights @ totals))

    def top_words(
        self, names: Sequence[str] | None = None, n: int = 10, *, distinct: bool = False
    ) -> list[list[tuple[str, float]]]:
        """List the most probable words (columns) of every component, with their probabilities.

        ``names`` are those of the M columns, by default of the data frame that was fitted, or numbers;
        another number of names is a ValueError. Returns ``n`` pairs (name, probability) for every row of
        ``components_`` (of a `HACM`, of ``nodes_``); with ``distinct``, what distinguishes a component from
        the others, by its part of the divergence from the mean of all, rather than what is frequent.
        """
        labels = self._column_names(names)
        profiles = getattr(self, "nodes_", self.components_)
        ranks = distinction(profiles) if distinct else profiles
        return [best_named(p, labels, n, own, -1.0) for p, own in zip(profiles, ranks, strict=True)]

    def to_frame(self, names: Sequence[str] | None = None) -> Any:
        """Return ``components_`` as a `pandas.DataFrame`: rows components, columns words."""
        columns, index = self._column_names(names), self.get_feature_names_out()
        return import_module("pandas").DataFrame(self.components_, index, columns)

    def _column_names(self, names: Sequence[str] | None) -> list[str]:
        check_is_fitted(self)
        given = getattr(self, "feature_names_in_", None) if names is None else names
        return checked_names(given, self.components_.shape[1], type(self).__name__, "names", "columns")

    def _checked(self, X: Any, name: str, reset: bool) -> CountMatrix:
        kind: dict[str, Any] = {"skip_check_array": True}
        if not is_implicit(X):
            kind = {"accept_sparse": "csr", "dtype": (np.float64, np.float32), "ensure_non_negative": True}
        X = validate_data(self, X, reset=reset, **kind)
        if not (reset or is_implicit(X)):  # a new row may hold no known word at all
            return sp.csr_array(X) if sp.issparse(X) else X
        return check_counts(X, owner=type(self).__name__, name=name)

    def _check_new(self, X: Any, name: str = "X") -> CountMatrix:
        check_is_fitted(self)
        return self._checked(X, name, reset=False)

    def _check_weights(self, sample_weight: Any, n: CountMatrix) -> NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        rows = np.empty((n.shape[0], 1))
        weights = _check_sample_weight(sample_weight, rows, ensure_non_negative=True).astype(float)
        if not (weights * row_totals(n)).any():
            raise ValueError(
                f"{type(self).__name__} got sample_weight of zero for every row with occurrences"
            )
        return weights

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


def checked_names(names: Any, number: int, owner: str, what: str, of_what: str) -> list[str]:
    """Give the names as strings, or numbers where there are none."""
    given = range(number) if names is None else names
    if (got := len(given) if hasattr(given, "__len__") else repr(given)) != number:
        raise ValueError(f"{owner} needs {what} for its {number} {of_what}, got {got}")
    return [str(name) for name in given]


def greatest(ranks: Floats, n: int) -> Labels:
    """Places of the ``n`` greatest, the greatest first."""
    if not base.is_whole(n, 0):
        raise ValueError(f"n must be a whole number, at least 0, got {n!r}")
    return np.argsort(-ranks, kind="stable")[:n]


def best_named(
    profile: Floats, names: Sequence[str], n: int, ranks: Floats | None = None, above: float = 0.0
) -> list[tuple[str, float]]:
    """Names and values of the ``n`` greatest of ``ranks`` (M,) where ``profile`` (M,) is above a bound."""
    best = greatest(profile if ranks is None else ranks, n)
    return [(names[j], float(profile[j])) for j in best if profile[j] > above]


def distinction(profiles: Floats) -> Floats:
    """``q_kj log(q_kj / mean_j)``: what each column adds to a profile's divergence from the mean profile."""
    return profiles * (base.log_floored(profiles) - base.log_floored(profiles.mean(axis=0)))


@settings
class CooccurrenceEstimator(CountEstimator, ABC):
    """Base of the estimators; subclasses define the model, its starts and its attributes."""

    _size_parameters: ClassVar[tuple[str, ...]] = ("n_clusters",)
    _first_beta: ClassVar[float] = 1.0
    _beta_factor: ClassVar[float] = 0.7
    _warm: ClassVar[bool] = False
    _assigns_rows: ClassVar[bool] = True  # or single occurrences

    beta: float | str = field(default="auto", kw_only=True)
    validation_fraction: float = field(default=0.1, kw_only=True)
    n_init: int = field(default=1, kw_only=True)
    max_iter: int = field(default=100, kw_only=True)
    tol: float = field(default=1e-5, kw_only=True)
    over_relaxation: bool = field(default=True, kw_only=True)
    random_state: Any = field(default=None, kw_only=True)

    # ---- what subclasses define

    @abstractmethod
    def _model(self, data: Data) -> Any:
        """Return the model in the form that the EM driver uses."""

    @abstractmethod
    def _starts(self, model: Any, data: Data, rng: Rng) -> Iterator[Any]:
        """Yield initial parameters, for a single temperature; None to cool and grow from one cluster."""

    def _publish(self, model: Any, params: Any, posteriors: Any) -> None:
        """Set the attributes that only this model has."""

    # ---- fitting

    @one_blas_thread()  # products are small, and more threads would wait for each other
    def fit(self, X: Any, y: None = None, validation: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to counts.

        Parameters
        ----------
        X : count matrix of shape (N, M)
            Non-negative; fractional counts, empty rows and columns are allowed. Names of a data frame are
            kept; a table larger than memory can be given as `BlockCounts`. A ValueError names what is wrong.
        validation : count matrix of shape (N, M), optional
            Held-out occurrences of the same rows, in place of a random ``validation_fraction`` of ``X``.
        sample_weight : array of shape (N,), optional
            How often each row counts: 2 counts it twice, 0 leaves it out of the fit.
        """
        base.check_settings(self)
        owner, size = type(self).__name__, self._size_parameters[0]
        n = self._checked(X, "X", reset=True)
        if (rows := getattr(self, size)) > n.shape[0]:
            raise ValueError(
                f"{owner} got {size}={rows}, more than there are rows (n_samples={n.shape[0]}); ask for fewer"
            )
        if validation is not None:
            validation = self._checked(validation, "validation", reset=False)
            if validation.shape != n.shape:
                raise ValueError(
                    f"{owner} needs validation with the rows and columns of X, {n.shape}, "
                    f"got {validation.shape}"
                )
        weights, rng = self._check_weights(sample_weight, n), random_state_of(self.random_state)
        data = self._data(n, validation, weights, rng)
        model, run = self._fit_run(data, rng)
        self._warn_if_useless(run.state, data)
        if data.everything is not None:
            model, run = self._with_all(model, run, data, rng)
        self._keep(model, run)
        if weights is not None and not weights.all():  # fold in the rows that took no part in the fit
            rest, out = scale_rows(n, (weights == 0).astype(float)), (weights == 0)[:, None]
            self.mixing_ = np.where(out, self._predictive_mixing(rest), self.mixing_)
            self.row_posteriors_ = np.where(out, self.predict_proba(rest), self.row_posteriors_)
            self.labels_ = self.row_posteriors_.argmax(axis=1)
        self._warn_of_long_rows(row_totals(n))
        if not self.converged_:
            warnings.warn(
                f"{owner} stopped after max_iter={self.max_iter} steps at beta={self.beta_:.3g} before it "
                "had converged; pass a larger max_iter, or a larger tol to be content with this",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _data(
        self, n: CountMatrix, validation: CountMatrix | None, weights: NDArray[np.float64] | None, rng: Rng
    ) -> Data:
        """Hold occurrences out where these are to choose the temperature; where none can be, it is 1."""
        auto = self.beta == "auto"
        beta = None if auto and getattr(self, "assignment", "soft") == "soft" else 1.0
        parts: tuple[CountMatrix | None, ...] = n, validation, None
        if beta is None and validation is None:
            if is_implicit(n) and not hasattr(n, "deal"):
                raise ValueError(
                    f'{type(self).__name__}: beta="auto" holds out single occurrences, which overlapping '
                    "windows of an image do not have; pass beta=1, or held-out data as validation"
                )
            fitted, held_out = split_counts(n, [1 - self.validation_fraction, self.validation_fraction], rng)
            if row_totals(held_out).any() and row_totals(fitted).any():
                parts = fitted, held_out, n
            else:
                beta = 1.0
        if weights is not None and not self._assigns_rows:  # occurrences count as often as their row
            parts = tuple(None if part is None else scale_rows(part, weights) for part in parts)
            weights = None
        data = Data(parts[0], weights, parts[1], parts[2], beta if auto else float(self.beta))
        if data.share_of_few < 1:
            single = (None if part is None else part.astype(np.float32) for part in parts)
            data = data._replace(**dict(zip(("counts", "validation", "everything"), single, strict=True)))
        return data

    def _fit_run(self, data: Data, rng: Rng) -> tuple[Any, Run]:
        return self._refine(*best_of(self._runs(self._model(data), data, rng)), data, rng)

    def _runs(self, model: Any, data: Data, rng: Rng) -> list[tuple[Any, Run]]:
        return [(model, self._tempered(model, data, start, rng)) for start in self._starts(model, data, rng)]

    def _tempered(self, model: Any, data: Data, start: Any, rng: Rng, coldest: float | None = None) -> Run:
        """One run from ``start`` at the requested temperature, or at the best one on held-out data."""
        if data.beta is None:
            return self._choose_beta(model, data, start, rng, coldest or self._first_beta)
        return self._descend(model, data, start, data.beta, rng)

    def _with_all(self, model: Any, run: Run, data: Data, rng: Rng) -> tuple[Any, Run]:
        """Take in the occurrences that the estimator itself has held out, now that they are not needed."""
        every = data._replace(counts=data.everything, validation=None)
        last = self._descend(model, every, run.state.params, run.state.beta, rng, LAST_STEPS + 1).state
        kept = {"params": last.params, "posteriors": last.posteriors, "free_energy": last.free_energy}
        return model, run._replace(state=run.state._replace(**kept))

    def _warn_if_useless(self, state: State, data: Data) -> None:
        """Warn where one profile for all rows predicts held-out occurrences better."""
        if data.validation is None:
            return
        single = data.heldout(np.ones_like(data.rows), base.mean_profile(data.counts, data.rows))
        if state.heldout < single - 5 * WORTHWHILE:  # the two perplexities differ as they are shown
            remedy = "" if data.beta is None else 'pass beta="auto", or '
            warnings.warn(
                f"{type(self).__name__} predicts held-out occurrences worse than one profile for all rows "
                f"(perplexity {np.exp(-state.heldout):.4g} instead of {np.exp(-single):.4g}); {remedy}ask "
                "for fewer components",
                stacklevel=4,
            )

    def _choose_beta(self, model: Any, data: Data, start: Any, rng: Rng, beta: float) -> Run:
        """Heat up from ``beta`` while held-out likelihood rises, refine the step, and cool from the best."""
        history: list[FitRecord] = []

        def tried(beta: float, start: Any) -> State:
            run = self._descend(model, data, start, beta, rng)
            history.extend(run.history)
            return run.state

        best, worse = tried(beta, start), 0
        while worse < (MAX_WORSE_WARM if self._warm else MAX_WORSE):
            beta *= self._beta_factor
            state = tried(beta, best.params if self._warm else start)
            worse = 0 if state.heldout > best.heldout else worse + 1
            best = best if worse else state
        for factor in () if self._warm else (self._beta_factor**0.5, self._beta_factor**0.25):
            for near in (best.beta * factor, min(best.beta / factor, 1.0)):
                if near != best.beta:
                    best = max(best, tried(near, start), key=lambda state: state.heldout)
        # and cool again, carrying the solution along, until held-out likelihood falls
        while not self._warm and best.beta < 1:
            colder = tried(min(best.beta / self._beta_factor, 1.0), best.params)
            if colder.heldout <= best.heldout:
                break
            best = colder
        return Run(best, history)

    def _refine(self, model: Any, run: Run, data: Data, rng: Rng) -> tuple[Any, Run]:
        """Change the model's settings or the temperature, one at a time, while held-out likelihood rises."""
        best, history, moved = run.state, list(run.history), data.beta is None
        factor = self._beta_factor if self._warm else self._beta_factor**0.5

        def others() -> list[list[tuple[Any, float]]]:
            """For each setting, and for the temperature, the next larger and the next smaller value."""
            kinds = [[(other, best.beta) for other in kind] for kind in getattr(model, "others", tuple)()]
            heats = {best.beta * factor, max(best.beta, min(best.beta / factor, 1.0))} - {best.beta}
            return [*kinds, [(model, beta) for beta in sorted(heats)]] if kinds else []

        while moved:
            moved = False
            for kind in range(len(others())):
                way, gained = 0, False
                while way < len(tried := others()[kind]):
                    other, beta = tried[way]
                    trial = self._descend(other, data, best.params, beta, rng)
                    history += trial.history
                    if trial.state.heldout > best.heldout + WORTHWHILE:
                        model, best, moved, gained = other, trial.state, True, True
                    elif gained:  # the same way has gone far enough
                        break
                    else:
                        way += 1
        return model, Run(best, history)

    def _descend(
        self, model: Any, data: Data, start: Any, beta: float, rng: Rng, plain_steps: int = 0
    ) -> Run:
        """Run EM at one temperature; keep the state that is best on held-out data, or else the last."""

        def judge(params: Any, posteriors: Any) -> float:
            return data.heldout(*model.prediction(params, posteriors))

        n, schedule, n_clusters = data.counts, [beta], getattr(self, self._size_parameters[0])
        options: dict[str, Any] = {"rng": rng, "start": start, "tol": self.tol}
        options |= {"over_relax": self.over_relaxation and not plain_steps, "perturbation": 0.0}
        if judged := data.validation is not None:
            options |= {"validation": judge, "patience": PATIENCE}
        if start is None:
            options |= {"growth": "split-merge", "n_clusters": n_clusters}
            hottest = HOTTER * critical_beta(model, n, rng)
            schedule = geometric_schedule(min(beta, hottest), beta, COOLING)
        kept, history, steps = None, [], 0
        for state in anneal(model, n, schedule, max_steps=plain_steps or self.max_iter, **options):
            history.append(FitRecord(state.beta, state.free_energy, state.heldout, state.step))
            if kept is None or not judged or state.heldout > kept.heldout:
                kept = state
            steps += 1
            if state.converged:
                converged, steps = steps < self.max_iter, 0
        assert kept is not None
        if start is None:
            all_of_them = model.with_empty(kept.params, kept.posteriors, n_clusters, groups_of(n))
            kept = kept._replace(params=all_of_them[0], posteriors=all_of_them[1])
        return Run(kept._replace(step=state.step, converged=converged), history)

    def _keep(self, model: Any, run: Run) -> None:
        state = run.state
        model, params, posteriors = self._in_order(model, state.params, state.posteriors)
        other_rows = {"posterior": type(model.posterior)()} if hasattr(model, "posterior") else {}
        self._fitted_model, self._params = replace(model, **other_rows), params
        self.mixing_, self.components_ = model.prediction(params, posteriors)
        self.row_posteriors_ = model.row_posteriors(params, posteriors)
        self.labels_ = self.row_posteriors_.argmax(axis=1)
        self.beta_, self.free_energy_ = state.beta, state.free_energy
        self.n_iter_, self.converged_, self.history_ = max(1, state.step), state.converged, run.history
        self._publish(model, params, posteriors)

    def _in_order(self, model: Any, params: Any, posteriors: Any) -> tuple[Any, Any, Any]:
        """Sort the clusters (aspects) by weight, the heaviest first."""
        return model, *model.by_weight(params, posteriors)

    def _warn_of_long_rows(self, totals: Floats) -> None:
        """Warn of a row that took a cluster away from the others merely because it is so long."""
        usual = float(np.median(totals[totals > 0]))
        alone = np.bincount(self.labels_, minlength=self.labels_.max() + 1)[self.labels_] == 1
        rows = np.flatnonzero(alone & (totals > LONG_ROW * usual))
        if len(rows) and len(totals) > self.row_posteriors_.shape[1] > 1:
            i = int(rows[0])
            warnings.warn(
                f"{type(self).__name__} gave row {i}, which holds {totals[i] / usual:.0f} times the "
                "occurrences of the usual row, a cluster of its own, so that the others have one fewer; pass "
                "sample_weight with 0 there to leave it out of the fit (it is assigned afterwards), or ask "
                "for one more cluster",
                stacklevel=4,
            )

    # ---- using

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (N, K) of the clusters (aspects) of new rows (N, M), folded in at ``beta_``.

        The profiles stay fixed and only the row's own probabilities are estimated.
        """
        n = self._check_new(X)
        return self._fitted_model.fold_in(n, self._params, self.beta_)

    def perplexity(self, X: Any, fold_in: Any = None, floor: float = PREDICTION_FLOOR) -> float:
        """Compute ``exp(-mean log p(j | i))`` over the occurrences in ``X``.

        ``X`` (N, M) are new occurrences of the rows that were fitted, in the same order; or of other rows, if
        ``fold_in`` (N, M) holds further occurrences of these, from which their mixing is found first. Another
        number of rows is a ValueError. ``floor`` is the share of the uniform distribution in predictions.
        """
        n = self._check_new(X)
        given = None if fold_in is None else self._check_new(fold_in, "fold_in")
        mixing = self.mixing_ if given is None else self._predictive_mixing(given)
        if len(mixing) != n.shape[0]:
            raise ValueError(
                f"perplexity got X with {n.shape[0]} rows, but {len(mixing)} were "
                f"{'given in fold_in' if fold_in is not None else 'fitted; pass fold_in for other rows'}"
            )
        return float(np.exp(-heldout_log_likelihood(mixing, self.components_, n, floor)))

    def recommend(
        self, rows: Any, n: int = 10, names: Sequence[str] | None = None
    ) -> list[list[tuple[str, float]]]:
        """List the columns that rows do not have and would most probably have next: items for users.

        ``rows`` (R, M) need not have been fitted; ``names`` as in `top_words`. Returns for every row at most
        ``n`` pairs (name, probability), the most probable first.
        """
        labels, out = self._column_names(names), []
        for _, block in row_blocks(self._check_new(rows, "rows"), 1024):
            p = self._predictive_mixing(block) @ self.components_
            p[base.entry_rows(block), block.indices] = -1.0
            out += [best_named(row, labels, n, row, -1.0) for row in p]
        return out

    def predict(self, X: Any) -> Labels:
        """Most probable cluster (aspect) of every row of new counts (N, M), int (N,), counted from 0."""
        return self.predict_proba(X).argmax(axis=1)

    def transform(self, X: Any) -> Floats:
        """Shares (N, R) of new rows in ``components_``: ``transform(X) @ components_`` is ``p(j | i)``.

        Rows are folded in, see `predict_proba`.
        """
        return self._predictive_mixing(self._check_new(X))

    def inverse_transform(self, X: Any) -> Floats:
        """Turn shares (N, R) in the components into expected shares (N, M) of the columns, ``p(j | i)``.

        A ValueError tells if ``X`` does not have R columns.
        """
        check_is_fitted(self)
        shares = np.asarray(X, dtype=float)
        if shares.ndim != 2 or shares.shape[1] != len(self.components_):
            raise ValueError(
                f"{type(self).__name__} needs shares in its {len(self.components_)} components, one a "
                f"column, got shape {shares.shape}"
            )
        return shares @ self.components_

    def score_samples(self, X: Any) -> Floats:
        """Log-likelihood (N,) of every row, in nats, each half of a row predicted from its other half.

        The halves depend only on the row itself. Sums over the occurrences; 0 for a row without any.
        """
        total = []
        for _, block in row_blocks(self._check_new(X)):
            logs = np.zeros(block.shape[0])
            halves = _halves(block)
            for known, new in (halves, halves[::-1]):
                mixing = self._predictive_mixing(known)
                for rows, part, log_p in _log_predictions(mixing, self.components_, new, PREDICTION_FLOOR):
                    logs[rows] += np.bincount(base.entry_rows(part), part.data * log_p, part.shape[0])
            total.append(logs)
        return np.concatenate(total)

    def _predictive_mixing(self, n: CountMatrix) -> Floats:
        return self._fitted_model.fold_in(n, self._params, self.beta_)

    # ---- checks

    def _allowed(self) -> Iterator[Allowed]:
        beta, share, kinds = self.beta, self.validation_fraction, ("soft", "hard")
        is_beta = beta == "auto" or (is_number(beta) and 0 < float(beta) < np.inf)
        yield "beta", is_beta, 'a positive number or "auto"'
        yield "validation_fraction", is_number(share) and 0 < share < 1, "between 0 and 1"
        yield from base.whole_numbers(self, *self._size_parameters, "n_init", "max_iter")
        yield "tol", is_number(self.tol) and self.tol >= 0, "at least 0"
        yield "assignment", getattr(self, "assignment", "soft") in kinds, '"soft" or "hard"'
        yield "predictive", getattr(self, "predictive", None) in (True, False, None), "True, False or None"
        yield "over_relaxation", self.over_relaxation in (True, False), "True or False"


def _halves(n: sp.csr_array) -> tuple[sp.csr_array, sp.csr_array]:
    """Assign every occurrence to one of two halves by coins that depend on nothing but its own row."""
    n = n.copy()
    n.eliminate_zeros()
    n.sort_indices()
    taken = np.empty(n.nnz)
    for row in map(slice, n.indptr[:-1], n.indptr[1:]):
        counts = n.data[row].astype(float)
        rng = np.random.default_rng(crc32(np.append(counts, n.indices[row]).tobytes()))
        whole = np.floor(counts)  # what remains is assigned as one occurrence
        taken[row] = rng.binomial(whole.astype(int), 0.5)
        taken[row] += (counts - whole) * rng.integers(2, size=len(counts))
    both = (taken, n.indices, n.indptr), (n.data - taken, n.indices, n.indptr)
    one, other = (sp.csr_array(parts, n.shape, copy=True) for parts in both)
    one.eliminate_zeros()
    other.eliminate_zeros()
    return one, other


def cross_validate(
    estimator: CooccurrenceEstimator, X: Any, n_folds: int = 10, random_state: Any = None
) -> Floats:
    """Test perplexities (n_folds,) of folds of the occurrences (A.I. Memo 1625, section 6.1).

    Every fold is predicted by a clone of the estimator fitted to the others. ``X`` (N, M) are whole numbers.

    >>> from texseg.models import SMM
    >>> X = np.kron(np.eye(2, dtype=int), np.full((5, 4), 6))
    >>> float(cross_validate(SMM(2, random_state=0), X, n_folds=3, random_state=0).mean().round(1))
    4.1
    """
    folds = split_counts(X, [1 / n_folds] * n_folds, random_state)
    total = sum(folds[1:], folds[0])
    return np.array([clone(estimator).fit(total - fold).perplexity(fold) for fold in folds])


def choose_number(
    estimator: CooccurrenceEstimator, X: Any, numbers: Iterable[int], *, n_folds: int = 5
) -> int:
    """Choose the number of clusters (aspects): the smallest that predicts new rows as well as any.

    Folds of the rows of ``X`` (N, M) are judged by a model of the others (`score`); of all numbers that are
    below the best by less than two standard errors of the difference, the smallest is used. Of two-sided
    models the number of rows' groups is varied. A ValueError tells if ``numbers`` is empty.

    >>> from texseg.models import ACM
    >>> rng = np.random.RandomState(0)
    >>> profiles = rng.dirichlet(np.full(30, 0.4), size=3)
    >>> X = np.array([rng.multinomial(90, profiles[i % 3]) for i in range(60)])
    >>> choose_number(ACM(random_state=0), X, [2, 3, 4, 5])
    3
    """
    tried = sorted(set(numbers))
    if not tried:
        raise ValueError("choose_number needs at least one number to choose from, got none")
    name, folds = estimator._size_parameters[0], KFold(n_folds, shuffle=True, random_state=0)
    scores = np.array([cross_val_score(clone(estimator).set_params(**{name: K}), X, cv=folds) for K in tried])
    return int(tried[smallest_as_good(scores)])


def smallest_as_good(scores: Floats, factor: float = STANDARD_ERRORS) -> int:
    """Find the first of the rows of scores (numbers, folds) that is hardly below the best."""
    behind = scores[scores.mean(axis=1).argmax()] - scores
    errors = factor * behind.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    return int(np.argmax(behind.mean(axis=1) <= np.maximum(errors, WORTHWHILE)))
