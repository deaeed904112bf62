"""Finding rows by words: retrieval by clusters, and what the nodes of a tree stand for.

A fitted model says how likely each of its nodes (clusters, aspects) is to produce a word of a row, ``p(v |
i)``, and which words a node uses, ``q_vj``. Everything here follows from these two and from the counts
(section 6.1 of the memo; documents are rows, words are columns):

    p(j | i)    = sum_v p(v | i) q_vj                            prediction (Eq. 59)
    p(i | w..)  ~ prod_w ((1 - s) p(w | i) + s n_iw / n_i)       rows for a query, s the row's own share
    p(v | w)    ~ p(v) q_vw,   p(v) = sum_i n_i p(v | i) / n     where in the tree a word is used (Fig. 10)
    r_iv        = sum_j n_ij p(v | i, j) / n_i                   share of a row that comes from a node
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from texseg.counts.matrix import check_counts, row_totals
from texseg.fitting.assignment import Floats
from texseg.models.base import FLOOR, Labels, entry_rows, log_floored, normalise, products_at
from texseg.models.estimator import PREDICTION_FLOOR, best_named, checked_names, distinction, greatest

OWN_SHARE = 0.3  # of its own words in what a row is expected to say; .2 to .7 are alike


class Match(NamedTuple):
    """A row that was found."""

    row: int  # From 0
    title: str
    score: float  # A probability or a share, between 0 and 1; the method says of what


class View(NamedTuple):
    """A node of the tree, as shown while walking through it."""

    node: int
    level: int  # Distance from the root
    parent: int  # -1 at the root
    children: list[int]  # Empty at a leaf
    n_rows: int  # Rows whose cluster lies below
    words: list[tuple[str, float]]  # Words that distinguish the node, with their probabilities


class Retrieval:
    """Find rows, nodes and words of a fitted model, each from the others.

    Parameters
    ----------
    model : ACM, HACM, PMM, SCM or SMM
        Fitted to ``X``. Its nodes are the tree nodes of a `HACM`, otherwise its clusters or aspects.
    X : count matrix of shape (N, M)
        The counts it was fitted to; a ValueError tells if these, or names, do not belong to the model.
    words, titles : sequences of M and N strings, optional
        Names of the columns, all different, and of the rows; by default those of the columns of the data
        frame that was fitted, or numbers.
    own_share : float in 0 ... 1, default=0.3
        Weight of a row's own words against those that its nodes predict. With 0 all rows of a cluster may
        score the same; with 1 no row is found by words that it does not contain.

    Attributes
    ----------
    node_shares, nodes, node_weights : ndarrays of shape (N, V), (V, M) and (V,)
        ``p(v | i)``, ``q`` and ``p(v)``, averaged over all occurrences; rows sum to one.
    own_words : csr_array of shape (N, M)
        ``n_ij / n_i``.
    tree : Tree or None
        None if the model has none.

    Examples
    --------
    >>> from texseg.models import HACM
    >>> X = np.array([[6, 6, 0, 0], [5, 7, 1, 0], [6, 0, 0, 6], [7, 0, 0, 5]])
    >>> found = Retrieval(HACM(2, random_state=0).fit(X), X, ["common", "left", "rare", "right"])
    >>> [match.row for match in found.search("right", 2)], found.level("common"), found.level("left")
    ([2, 3], 0, 1)
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        words: Sequence[str] | None = None,
        titles: Sequence[str] | None = None,
        *,
        own_share: float = OWN_SHARE,
    ) -> None:
        check_is_fitted(model)
        self._counts = sp.csr_array(check_counts(X, owner="Retrieval"), dtype=float)
        self._model = model
        self.tree = getattr(model, "tree_", None)
        self.node_shares, self.nodes = model.mixing_, model.components_
        if self.tree is not None and model.mixing != "object":
            self.node_shares = model.row_posteriors_ @ self.tree.spread(model.vertical_)
            self.nodes = model.nodes_
        expected = len(self.node_shares), self.nodes.shape[1]
        if self._counts.shape != expected:
            raise ValueError(
                f"Retrieval needs the counts that {type(model).__name__} was fitted to, {expected}, "
                f"got {self._counts.shape}"
            )
        if not 0 <= own_share <= 1:
            raise ValueError(f"Retrieval needs own_share between 0 and 1, got {own_share!r}")
        self.own_share = own_share
        words = getattr(model, "feature_names_in_", None) if words is None else words
        self.words = checked_names(words, expected[1], "Retrieval", "words", "columns")
        self.titles = checked_names(titles, expected[0], "Retrieval", "titles", "rows")
        self._column = {word: j for j, word in enumerate(self.words)}
        if twice := [word for j, word in enumerate(self.words) if self._column[word] != j]:
            raise ValueError(f"Retrieval needs words that are all different, got {twice[0]!r} more than once")
        totals = row_totals(self._counts)
        self.own_words = sp.csr_array(self._counts.multiply(1 / np.maximum(totals, FLOOR)[:, None]))
        self.node_weights, self._distinction = normalise(totals @ self.node_shares), distinction(self.nodes)

    # ---- rows

    def search(self, query: "str | Sequence[str] | ArrayLike", n: int = 10) -> list[Match]:
        """Find the ``n`` most probable rows for a query, the best first.

        ``query`` is a word, a string to be split at white space, a sequence of words, of which unknown ones
        are ignored, or an array (M,) of how often each column is requested; a ValueError tells if no word is
        known. Scores are ``p(i | query)``, all rows being as probable before.
        """
        return self._matches(self.row_probabilities(query), n)

    def row_probabilities(self, query: "str | Sequence[str] | ArrayLike") -> Floats:
        """Compute ``p(i | query)`` of every row, shape (N,); see `search`."""
        asked = self._asked(query)
        columns = np.flatnonzero(asked)
        said = (1 - PREDICTION_FLOOR) * (self.node_shares @ self.nodes[:, columns])
        said += PREDICTION_FLOOR / len(self.words)
        own = self.own_words[:, columns].toarray()
        scores = log_floored((1 - self.own_share) * said + self.own_share * own) @ asked[columns]
        return normalise(np.exp(scores - scores.max()))

    def prototypes(self, node: int, n: int = 5) -> list[Match]:
        """Rows with the greatest share of occurrences from a node; the scores are these shares."""
        return self._matches(self.row_shares[:, self._checked(node)], n)

    @cached_property
    def row_shares(self) -> Floats:
        """Share ``r_iv`` (N, V) of a row's occurrences that comes from a node; rows with words sum to one."""
        index, n = entry_rows(self.own_words), self.own_words
        p = products_at(self.node_shares, np.ascontiguousarray(self.nodes.T), index, n.indices)
        ratio = sp.csr_array((n.data / np.maximum(p, FLOOR), n.indices, n.indptr), n.shape)
        return self.node_shares * (ratio @ self.nodes.T)

    # ---- words

    def words_of(self, node: int, n: int = 5) -> list[tuple[str, float]]:
        """Words that distinguish a node from the others, with ``q_vj``; see `distinction`."""
        return best_named(self.nodes[self._checked(node)], self.words, n, self._distinction[node])

    def average_words_of(self, node: int, n: int = 5) -> list[tuple[str, float]]:
        """Most frequent words in the rows below a node, with shares: their plain average."""
        return best_named(self.averages[self._checked(node)], self.words, n)

    @cached_property
    def averages(self) -> Floats:
        """Mean profile of the rows below each node, shape (V, M); rows sum to one."""
        tree = self.tree
        below = self.node_shares if tree is None else self._model.row_posteriors_ @ tree.membership
        return normalise(np.asarray((self._counts.T @ below).T))

    def responsibility(self, query: "str | Sequence[str] | ArrayLike") -> Floats:
        """Where in the tree a word is used: ``p(v | word)`` (V,), sum 1; of several words, the mean."""
        asked = self._asked(query)
        columns = np.flatnonzero(asked)
        joint = self.node_weights[:, None] * self.nodes[:, columns]
        used = joint.any(axis=0)  # a word that no node uses says nothing
        by_word = normalise(np.where(used, joint, self.node_weights[:, None]).T)
        return np.asarray(asked[columns] @ by_word / asked.sum())

    def level(self, word: str) -> int:
        """Level of the node that is most responsible for a word; 0, the root, for the most general ones."""
        return int(self._levels()[self.responsibility([word]).argmax()])

    def unseen_words(self, row: int, n: int = 10) -> list[list[tuple[str, float]]]:
        """Words missing from a row that it would most probably use, by level, the root first (ghost writer).

        At most ``n`` pairs of word and probability a level, a word at the level that makes it most probable.
        """
        if not 0 <= row < len(self.titles):
            raise ValueError(f"row must lie in 0 ... {len(self.titles) - 1}, got {row!r}")
        levels = self._levels()
        by_level = np.zeros((levels.max() + 1, len(self.words)))
        np.add.at(by_level, levels, self.node_shares[row][:, None] * self.nodes)
        by_level[:, self._counts[[row]].indices] = 0
        by_level *= by_level.argmax(axis=0) == np.arange(len(by_level))[:, None]
        return [best_named(row, self.words, n) for row in by_level]

    # ---- the tree

    def look(self, node: int = 0, n_words: int = 5) -> View:
        """Look at a node; `View.children` are the nodes to go to next."""
        tree, node = self._tree(), self._checked(node)
        level, parent = int(tree.levels[node]), int(tree.parents[node])
        n_rows = int(tree.membership[self._model.labels_, node].sum())
        children = np.flatnonzero(tree.parents == node).tolist()
        return View(node, level, parent, children, n_rows, self.words_of(node, n_words))

    def walk(self, query: "str | Sequence[str] | ArrayLike", n_words: int = 5) -> list[View]:
        """Go from the root to a leaf, at each node to the child with the most probable rows below it."""
        tree = self._tree()
        below = self.row_probabilities(query) @ self._model.row_posteriors_ @ tree.membership
        path = [self.look(0, n_words)]
        while path[-1].children:
            path.append(self.look(max(path[-1].children, key=lambda node: below[node]), n_words))
        return path

    # ---- inside

    def _asked(self, query: "str | Sequence[str] | ArrayLike") -> Floats:
        """How often each column is requested, (M,)."""
        if isinstance(query, str):
            query = [query] if query in self._column else query.split()
        asked = np.asarray(query)
        if asked.dtype.kind in "US" or not asked.size:
            known = [self._column[word] for word in asked.ravel().tolist() if word in self._column]
            counts = np.bincount(np.array(known, np.intp), minlength=len(self.words)).astype(float)
        else:
            counts = np.asarray(asked, dtype=float)
            if counts.shape != (len(self.words),):
                raise ValueError(
                    f"a query must be words, or an array of shape ({len(self.words)},), got {counts.shape}"
                )
            if not np.isfinite(counts).all() or (counts < 0).any():
                raise ValueError("a query must not hold negative, infinite or missing counts")
        if not counts.any():
            raise ValueError(f"no word of the query {query!r} is among the {len(self.words)} known ones")
        return counts

    def _matches(self, scores: Floats, n: int) -> list[Match]:
        return [Match(int(i), self.titles[i], float(scores[i])) for i in greatest(scores, n)]

    def _levels(self) -> Labels:
        return np.zeros(len(self.nodes), np.intp) if self.tree is None else self.tree.levels

    def _tree(self) -> Any:
        if self.tree is None:
            raise ValueError(f"{type(self._model).__name__} has no tree to walk in; fit a HACM")
        return self.tree

    def _checked(self, node: int) -> int:
        if not 0 <= node < len(self.nodes):
            raise ValueError(f"node must lie in 0 ... {len(self.nodes) - 1}, got {node!r}")
        return int(node)
