"""Scores of every row under profiles from which its own occurrences are left out.

A row that is judged by profiles to which it has contributed itself finds its own cluster too good: the more
so, the fewer rows a cluster has. Predictive EM ([1]_ section 5.2) leaves the row out: where every occurrence
of column j in row i has added ``a_ivj`` to the probability ``q_vj`` in the profile of a node,

    q_vj without i  =  (q_vj - n_ij a_ivj) / (1 - sum_j n_ij a_ivj)

What no other row of the cluster has would then be impossible, so that some of the probability is kept for a
background, as in the deleted interpolation of language models [2]_; as background serves the number of rows
in which a column occurs, which says more about the new than its occurrences do [3]_.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
.. [2] F. Jelinek and R. Mercer, Interpolated estimation of Markov source parameters from sparse data, 1980.
.. [3] R. Kneser and H. Ney, Improved backing-off for m-gram language modeling, 1995.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from texseg.counts.matrix import CountMatrix, groups_of, row_blocks
from texseg.fitting.assignment import Floats
from texseg.models.base import FLOOR, entry_rows, normalise_profiles, sum_at

__all__ = ["left_out_scores", "rows_of_columns"]

NUMBERS_AT_ONCE = 2**18
"""Numbers (entries x V) of a block of rows of which each is left out; a step takes twice as long with 2**14,
as long with 2**16 and 2**20."""


Added = Callable[[slice, NDArray[np.intp], NDArray[np.intp]], Floats]
"""From rows, and row (counted from the first) and column of every entry, to ``a`` (entries, V), float32."""


def left_out_scores(
    n: CountMatrix,
    nodes: Floats,
    added: Added,
    background: Floats | None,
    share: float,
    spread: Floats | None = None,
) -> Floats:
    """Log-likelihood of every row in every cluster, its own part in the profiles left out.

    Parameters
    ----------
    n : count matrix of shape (N, M)
    nodes : array of shape (V, M)
        Their profiles.
    added : function
        What one occurrence of an entry has added to them.
    background : array of shape (M,) or None
    share : float
        Share of the background in the profile of every cluster.
    spread : array of shape (K, V), optional
        Shares of the nodes in the clusters; without, every node is a cluster.

    Returns
    -------
    array of shape (N, K)

    Examples
    --------
    The first row is judged by the second alone, (1/4, 3/4), and the other way round.

    >>> n = np.array([[2.0, 2.0], [1.0, 3.0]])
    >>> def added(rows, index, columns):
    ...     return np.full((len(index), 1), 1 / 8, np.float32)
    >>> scores = left_out_scores(n, np.array([[3 / 8, 5 / 8]]), added, None, 0.0)
    >>> np.exp(scores / 2).round(4).tolist(), (1 / 4) * (3 / 4), (1 / 2) ** 2
    ([[0.1875], [0.25]], 0.1875, 0.25)
    """
    groups, V = groups_of(n), len(nodes)
    n_groups, kept = groups.max() + 1, 1.0 if background is None else 1 - share
    columns = np.ascontiguousarray(nodes.T, np.float32)
    shares = None if spread is None else np.ascontiguousarray(spread.T, np.float32)
    out = np.empty((n.shape[0], V if spread is None else len(spread)))
    per_row = max(1, getattr(n, "nnz", n.shape[0] * n.shape[1]) / n.shape[0])
    for rows, block in row_blocks(n, max(1, int(NUMBERS_AT_ONCE / (V * per_row)))):
        index, data = entry_rows(block), block.data.astype(np.float32)
        weigh = sp.csr_array((data, np.arange(block.nnz), block.indptr), (block.shape[0], block.nnz))
        left = added(rows, index, block.indices)
        places = index * n_groups + groups[block.indices]  # of every entry: its row and group
        left *= -data[:, None]
        rest = 1 + sum_at(left, places, block.shape[0] * n_groups)
        left += columns.take(block.indices, axis=0)
        np.maximum(left, 0, out=left)
        left *= (kept / np.maximum(rest, FLOOR)).astype(np.float32).take(places, axis=0)
        p = left if shares is None else left @ shares
        if background is not None:
            p += (share * background).astype(np.float32)[block.indices, None]
        # a column that only this row has is impossible for all clusters alike
        np.log(np.maximum(p, np.float32(FLOOR), out=p), out=p)
        out[rows] = weigh @ p
    return out


def rows_of_columns(n: CountMatrix) -> Floats:
    """Share (M,) of the columns by the number of rows in which each occurs, in every group of columns.

    Examples
    --------
    >>> rows_of_columns(np.array([[9.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    array([0.75, 0.25])
    """
    seen = np.zeros(n.shape[1])
    for _, block in row_blocks(n):
        seen += np.bincount(block.indices[block.data > 0], minlength=n.shape[1])
    return normalise_profiles(seen[None], groups_of(n))[0]
