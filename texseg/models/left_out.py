"""Scores of every row under profiles from which its own occurrences are left out.

A row that is judged by profiles to which it has itself contributed fits its own cluster too well, the more so
the fewer rows the cluster has. Predictive EM (section 5.2 of the memo) leaves the row out: if every
occurrence of column j in row i has added ``a_ivj`` to the probability ``q_vj`` in the profile of a node,

    q_vj without i  =  (q_vj - n_ij a_ivj) / (1 - sum_j n_ij a_ivj)

What no other row of the cluster has would then be impossible. So every node is given unobserved occurrences,
``mass`` in all, drawn from a background (MacKay and Peto, 1995): the number of rows in which a column occurs,
which says more about new rows than the number of occurrences does (Kneser and Ney, 1995). The shares of the
nodes along a path of a tree are estimated with the row left out as well, or inner nodes would die out
(McCallum et al., 1998). With an intraclass correlation rho, ``n`` occurrences of a row are worth
``n / (1 + (n - 1) rho)`` independent ones (Kish, 1965): long rows are assigned at a higher temperature.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from texseg.counts.matrix import CountMatrix, groups_of, row_blocks, row_totals
from texseg.fitting.assignment import Floats
from texseg.models import base
from texseg.models.base import FLOOR, ClusteringModel, Labels

NUMBERS_AT_ONCE = 2**18  # entries x V of a block of rows; 2**14 takes twice as long, 2**16 to 2**20 the same
LEAST_CORRELATION = 0.01  # of the occurrences of a row; smaller ones change no perplexity by 1 %


@dataclass(frozen=True, eq=False)
class Caution:
    """How far clusters and long rows are trusted; see the top of this file."""

    background: Any = 0.0  # (M,), sums to one in each group of columns
    mass: float = 0.0  # Occurrences of the background in every node and group
    cluster: float = 1.0  # Occurrences of a cluster of mean size
    correlation: float = 0.0  # rho between the occurrences of a row
    usual: float = 1.0  # Occurrences of a row of usual length, to which the temperature applies unchanged

    @property
    def share(self) -> float:
        """Share of the background in a cluster of mean size."""
        return self.mass / (self.mass + self.cluster)


@dataclass(frozen=True, eq=False)
class LeavesRowsOut(ClusteringModel):
    """A clustering whose rows are held out of the profiles that judge them; F is of the corrected scores."""

    caution: Caution = Caution()

    monotone: ClassVar[bool] = False
    with_background: ClassVar[slice] = slice(None)  # the nodes that hold the unobserved occurrences

    def scores(self, n: CountMatrix, params: Any, of: CountMatrix | None = None) -> Floats:
        """Log-likelihood (N, K) of every row, scaled down where the row is long."""
        return super().scores(n, params) * self._tempering(n if of is None else of)

    def judged(self, n: CountMatrix, params: Any, posteriors: Any) -> tuple[Floats, Floats | None]:
        """Without the rows, if ``params`` belong to ``posteriors``; where there are none, by plain EM."""
        if posteriors is None:
            return super().judged(n, params, None)
        scores, explained = self._left_out(n, params, posteriors)
        return scores * self._tempering(n), explained

    def normalised(self, counts: Floats, groups: Labels) -> Floats:
        """Profiles with their share of the background."""
        counts = counts.copy()
        counts[self.with_background] += self.caution.mass * self.caution.background
        return base.normalise_profiles(counts, groups)

    def others(self) -> Iterator[tuple[Self, ...]]:
        """Models with more and with less of each setting, to be tried on held-out occurrences."""
        c = self.caution
        more = min(max(2 * c.correlation, LEAST_CORRELATION), 1.0)
        less = c.correlation / 2 if c.correlation > LEAST_CORRELATION else 0.0
        masses = [replace(c, mass=mass) for mass in (2 * c.mass, c.mass / 2)]
        correlations = [replace(c, correlation=rho) for rho in (more, less) if rho != c.correlation]
        for kind in (masses, correlations):
            yield tuple(replace(self, caution=caution) for caution in kind)

    def _left_out(self, n: CountMatrix, params: Any, Q: Floats) -> tuple[Floats, Floats | None]:
        """Scores (N, K) without the row's own part, and what each node explains in each cluster, (K, V)."""
        nodes, tau, groups = getattr(params, self.profiles_of), self.shares_of_nodes(params), groups_of(n)
        V, n_groups = len(nodes), groups.max() + 1
        totals = np.maximum(held_totals(self, self.node_counts(n, params, Q), groups), FLOOR)
        columns, per_count = _by_column(nodes), _by_column((1 if tau is None else nodes) / totals)
        if tau is not None:
            bare, tau = _by_column(1 / np.maximum(tau @ nodes, FLOOR)), tau.astype(np.float32)
        out, explained = np.empty(Q.shape), np.zeros((Q.shape[1], V))
        once = Q / np.maximum(Q.sum(axis=1, keepdims=True), 1)  # of a row that counts several times
        per_row = max(1, getattr(n, "nnz", n.shape[0] * n.shape[1]) / n.shape[0])
        for rows, block in row_blocks(n, max(1, int(NUMBERS_AT_ONCE / (V * per_row)))):
            index, data = base.entry_rows(block), block.data.astype(np.float32)
            shares = once[rows].astype(np.float32).take(index, axis=0)
            # what an occurrence has added to every node, (entries, V); then the nodes without the row
            left = shares if tau is None else (bare.take(block.indices, axis=0) * shares) @ tau
            left = left * per_count.take(block.indices, axis=0)
            places = index * n_groups + groups[block.indices]  # of every entry: its row and group
            left *= -data[:, None]
            rest = 1 + base.sum_at(left, places, block.shape[0] * n_groups)
            left += columns.take(block.indices, axis=0)
            np.maximum(left, 0, out=left)
            left *= (1 / np.maximum(rest, FLOOR)).astype(np.float32).take(places, axis=0)
            p = left if tau is None else left @ tau.T
            # a column that only this row has is impossible for all clusters alike
            np.maximum(p, np.float32(FLOOR), out=p)
            if tau is not None:
                explained += ((Q[rows].astype(np.float32).take(index, axis=0) * data[:, None]) / p).T @ left
            out[rows] = base.sum_at(np.log(p, out=p), index, block.shape[0], data)
        return out, None if tau is None else explained

    def _tempering(self, n: CountMatrix) -> Floats:
        """Factors (N, 1) applied to the scores: 1 for a row of usual length, less for a longer one."""
        correlation = self.caution.correlation
        beyond = np.maximum(row_totals(n) - 1, 0)
        return ((1 + (self.caution.usual - 1) * correlation) / (1 + beyond * correlation))[:, None]


def held_totals(model: Any, counts: Floats, groups: Labels) -> Floats:
    """Occurrences (V, M) in the group of every entry that the nodes hold, of expected ``counts`` (V, M)."""
    totals = np.broadcast_to(base.group_sums(counts, groups), counts.shape).copy()
    if isinstance(model, LeavesRowsOut):
        totals[model.with_background] += model.caution.mass
    return totals


def _by_column(nodes: Floats) -> Floats:
    return np.ascontiguousarray(nodes.T, np.float32)


def rows_of_columns(n: CountMatrix) -> Floats:
    """Share (M,) of the columns by the number of rows in which each occurs, in every group of columns."""
    seen = np.zeros(n.shape[1])
    for _, block in row_blocks(n):
        seen += np.bincount(block.indices[block.data > 0], minlength=n.shape[1])
    return base.normalise_profiles(seen[None], groups_of(n))[0]
