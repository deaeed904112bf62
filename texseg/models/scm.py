"""The symmetric clustering model (SCM), also known as two-sided clustering or co-clustering.

Both rows and columns are partitioned; all that matters about a pair is which clusters it joins. With
assignments ``I`` (N, K) and ``J`` (M, L), margins ``p_i`` and ``q_j`` (the shares of row i and column j in
all occurrences) and the association ``c`` (K, L), section 3 of the memo:

    p_ij     = p_i q_j sum_kl I_ik J_jl c_kl                           the model (Eq. 34)
    pi_kl    ~ sum_ij n_ij I_ik J_jl                                   joint frequency of clusters (Eq. 43)
    c_kl     = pi_kl / (pi_k. pi_.l)                                   association (Eq. 42)
    I_ik     ~ rho_k exp(+beta sum_j n_ij sum_l J_jl log c_kl)         (Eq. 49, whose printed sign is wrong)
    J_jl     ~ sigma_l exp(+beta sum_i n_ij sum_k I_ik log c_kl)
    F        = -beta sum_ij n_ij sum_kl I_ik J_jl log c_kl + KL(I || rho) + KL(J || sigma)

The updates alternate, (I, c, J, c); then F never rises, because the association is consistent with the side
that is held fixed (Eq. 45). Hard assignments (Eq. 44) take the largest instead, and maximise the mutual
information ``sum_kl pi_kl log c_kl`` between the clusters.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from texseg.counts.matrix import CountMatrix
from texseg.fitting.assignment import ArgMax, Floats, SoftMax
from texseg.models import base
from texseg.models.acm import TwoSided
from texseg.models.base import FLOOR, Labels, Model, Rng, Step
from texseg.models.estimator import ClusterMixin, Data, Run, settings


class Blocks(NamedTuple):
    """Parameters of the SCM; the last axis of each sums to one, the joint as a whole."""

    joint: Floats  # (K, L), pi
    row_weights: Floats  # (K,), rho
    column_weights: Floats  # (L,), sigma
    columns: Floats  # (M, L), the assignments J of the columns
    margins: Floats  # (M,), q, the share of each column in all occurrences


class Sides(NamedTuple):
    """Posteriors of the SCM."""

    rows: Floats  # (N, K), I
    columns: Floats  # (M, L), J


def association(params: Blocks) -> Floats:
    """``c`` (K, L), consistent with the columns' assignments: ``sum_l c_kl pi_.l = 1`` (Eq. 42, 45)."""
    by_column = np.maximum(params.margins @ params.columns, FLOOR)
    by_row = np.maximum(params.joint.sum(axis=1, keepdims=True), FLOOR)
    return params.joint / (by_row * by_column)


def mutual_information(joint: Floats) -> float:
    """``sum_kl pi_kl log(pi_kl / (pi_k. pi_.l))`` in nats."""
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    positive = joint > 0
    return float((joint[positive] * np.log(joint[positive] / independent[positive])).sum())


@dataclass(frozen=True)
class TwoSidedClustering(Model):
    """The SCM as the driver sees it; see the top of this file for the equations."""

    posterior: SoftMax | ArgMax = field(default_factory=SoftMax)
    joint: ClassVar[str] = "joint"

    def start_from(self, n: CountMatrix, rows: Floats, columns: Floats) -> Blocks:
        """Parameters for given assignments of the rows (N, K) and of the columns (M, L)."""
        margins = base.normalise(np.asarray(n.T @ rows.sum(axis=1), dtype=np.float64))
        return _m_step(np.asarray(n @ columns), Sides(rows, columns), margins)

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One round of I, c, J, c; F is that of the new assignments, with the association between them."""
        dtype, margins = base.working_dtype(n), params.margins
        n_J = np.asarray(n @ params.columns.astype(dtype), dtype=dtype)
        scores = n_J @ base.log_floored(association(params), dtype).T
        rows, f_rows = self.posterior(scores, beta, params.row_weights)
        row_prior = f_rows + beta * float((rows * scores).sum(dtype=np.float64))
        middle = _m_step(n_J, Sides(rows, params.columns), margins)
        scores = np.asarray(n.T @ rows, dtype=dtype) @ base.log_floored(association(middle), dtype)
        columns, f_columns = type(self.posterior)()(scores, beta, params.column_weights)
        sides = Sides(rows, columns)
        end = _m_step(np.asarray(n @ columns, dtype=dtype), sides, margins)
        return Step(end, f_columns + row_prior, sides)

    def relax(self, old: Blocks, new: Blocks, eta: float, groups: Labels) -> Blocks:
        """Over-relaxed parameters; hard ones stay, for the association would belong to other assignments."""
        return new if isinstance(self.posterior, ArgMax) else super().relax(old, new, eta, groups)

    def by_weight(self, params: Blocks, posteriors: Sides) -> tuple[Blocks, Sides]:
        """Return parameters and posteriors with the heaviest clusters of rows and of columns first."""
        rows, columns = base.heaviest_first(params.row_weights), base.heaviest_first(params.column_weights)
        weights = params.row_weights[rows], params.column_weights[columns]
        moved = Sides(posteriors.rows[:, rows], posteriors.columns[:, columns])
        joint = params.joint[rows][:, columns]
        return Blocks(joint, *weights, params.columns[:, columns], params.margins), moved

    def fold_in(self, n: CountMatrix, params: Blocks, beta: float) -> Floats:
        """Assign new rows, ``I`` (N, K), with the columns and the association fixed."""
        scores = (n @ params.columns) @ base.log_floored(association(params)).T
        return self.posterior(scores, beta, params.row_weights).posteriors

    def prediction(self, params: Blocks, posteriors: Sides) -> tuple[Floats, Floats]:
        """``I`` (N, K) and the profiles ``p(j | k) = q_j sum_l J_jl c_kl`` (K, M) (Eq. 47)."""
        rows = base.normalise(posteriors.rows)
        return rows, association(params) @ (params.columns * params.margins[:, None]).T


def _m_step(n_J: Floats, sides: Sides, margins: Floats) -> Blocks:
    joint = np.asarray(sides.rows.T @ n_J, dtype=np.float64)
    weights = base.normalise(sides.rows.sum(axis=0, dtype=np.float64)), sides.columns.mean(axis=0)
    return Blocks(joint / joint.sum(), *weights, sides.columns, margins)


@settings
class SCM(ClusterMixin, TwoSided):
    """Symmetric clustering model of co-occurrence counts; two-sided clustering or co-clustering.

    Partitions rows and columns at once, so that the row and column clusters tell as much as possible about
    each other (Hofmann and Puzicha, A.I. Memo 1625, 1998, section 3.3).

    Parameters
    ----------
    n_row_clusters, n_column_clusters : int, default=8
        Numbers K and L of clusters; K at most the number of rows. With more column clusters than columns some
        stay empty.
    assignment : {"soft", "hard"}, default="soft"
        Mean-field posteriors of both sides, or only the most probable clusters, without a temperature.
    beta, validation_fraction, n_init, max_iter, tol, over_relaxation, random_state
        See `SMM`.

    Attributes
    ----------
    row_labels_, labels_, column_labels_ : int ndarrays of shape (N,), (N,) and (M,)
        Clusters of the rows and of the columns, from 0.
    association_, joint_, mutual_information_ : ndarrays of shape (K, L), float
        ``c_kl``, how many times more often clusters occur together than if they were independent; ``pi_kl``,
        their share in all occurrences; and the information between them, in nats.
    mixing_, column_mixing_, weights_ : ndarrays of shape (N, K), (M, L) and (K,)
        Posterior probabilities, and mixing proportions of the rows.
    components_ : ndarray of shape (K, M)
        ``p(j | k)``, rows sum to one.
    beta_, free_energy_, n_iter_, converged_, history_
        See `SMM`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.kron(np.eye(2), np.full((5, 4), 6.0))
    >>> model = SCM(2, 2, assignment="hard", random_state=0).fit(X)
    >>> bool(np.isclose(model.mutual_information_, np.log(2)))
    True
    """

    _size_parameters = ("n_row_clusters", "n_column_clusters")

    n_row_clusters: int = 8
    n_column_clusters: int = 8
    assignment: str = "soft"

    def _model(self, data: Data) -> TwoSidedClustering:
        return TwoSidedClustering((ArgMax if self.assignment == "hard" else SoftMax)(data.weights))

    def _runs(self, model: Any, data: Data, rng: Rng) -> list[tuple[Any, Run]]:
        """Products with tables that are a tenth full, or more, are faster in dense arrays."""
        n: Any = data.counts
        dense = sp.issparse(n) and n.nnz * 10 > n.shape[0] * n.shape[1]
        return super()._runs(model, data._replace(counts=n.toarray()) if dense else data, rng)

    def _publish(self, model: TwoSidedClustering, params: Blocks, posteriors: Sides) -> None:
        self.row_labels_, self.weights_ = self.labels_, params.row_weights
        self.column_mixing_, self.column_labels_ = posteriors.columns, posteriors.columns.argmax(axis=1)
        self.joint_, self.association_ = params.joint, association(params)
        self.mutual_information_ = mutual_information(self.joint_)
