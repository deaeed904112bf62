"""The hierarchical asymmetric clustering model (HACM), also known as the cluster-abstraction model (CAM).

Clusters are the leaves of a tree; every node ``v`` has a profile, and every single occurrence in a row of
cluster ``k`` is due to one of the nodes on the path from the root to leaf ``k``. What is common to a whole
subtree is explained by its inner node; leaves keep what is special. [1]_ section 4, [2]_:

    p_kj   = sum_v tau_kv q_vj                              profile of a cluster, v on the path to k
    Q_ik   ~ rho_k exp(beta sum_j n_ij log p_kj)            horizontal E-step, annealed (Eq. 55)
    V_vkj  = tau_kv q_vj / p_kj                             vertical E-step (Eq. 53)
    q_vj   ~ sum_k V_vkj S_kj,   S_kj = sum_i Q_ik n_ij     M-step (Eq. 57)
    tau_kv ~ sum_j V_vkj S_kj                               (Eq. 58, shared by a cluster)
    rho_k  = 1/N sum_i Q_ik                                 (Eq. 56)
    p(j|i) = sum_k Q_ik p_kj                                prediction (Eq. 59)

The degrees of freedom grow in three stages ([1]_ section 4.2): ``tau`` constant on every path, ``tau`` of
each cluster, and ``tau`` of each row in each cluster. Only the last needs the single entries of ``n``.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
.. [2] T. Hofmann, Learning and Representing Topic: A Hierarchical Mixture Model for Word Occurrences in
   Document Databases, 1998.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.anneal import Transition
from texseg.counts import CountMatrix, groups_of, row_blocks
from texseg.models.base import (
    FLOOR,
    ClusteringModel,
    Step,
    count_distinct,
    entry_rows,
    extrapolate,
    log_floored,
    normalise,
    normalise_profiles,
    per_site,
    sum_runs,
    working_dtype,
)
from texseg.posteriors import Floats

_ENTRIES_AT_ONCE = 2**24  # numbers (entries x K x D) of a block of rows with mixing of their own


class Tree:
    """A rooted tree whose leaves are clusters 0 ... K - 1; a parent has a smaller number than its children.

    Parameters
    ----------
    parents : sequence of V ints
        Parent of every node; -1 for node 0, the root.
    leaves : sequence of K ints, optional
        The node of every cluster; by default the nodes without children, in order.

    Attributes
    ----------
    paths : int array of shape (K, D)
        Nodes from the root to each leaf, filled up with -1.
    levels : int array of shape (V,)
        Distance of every node from the root.

    Examples
    --------
    >>> tree = Tree([-1, 0, 0, 1, 1])
    >>> tree.leaves, tree.paths.tolist()
    (array([2, 3, 4]), [[0, 2, -1], [0, 1, 3], [0, 1, 4]])
    """

    def __init__(self, parents: Iterable[int], leaves: Iterable[int] | None = None) -> None:
        self.parents = np.asarray(list(parents), dtype=np.intp)
        nodes = np.arange(len(self.parents))
        later = self.parents[1:]
        if not len(nodes) or self.parents[0] != -1 or (later < 0).any() or (later >= nodes[1:]).any():
            raise ValueError(
                "parents of a tree must begin with -1 for the root, and each further node must name an "
                f"earlier one, got {self.parents.tolist()}"
            )
        without_children = np.setdiff1d(nodes, self.parents)
        self.leaves = without_children if leaves is None else np.asarray(list(leaves), dtype=np.intp)
        if not np.array_equal(np.sort(self.leaves), without_children):
            raise ValueError(f"leaves must be the nodes without children, got {self.leaves.tolist()}")
        self.levels = np.zeros(len(nodes), np.intp)
        for node in nodes[1:]:
            self.levels[node] = self.levels[self.parents[node]] + 1
        self.paths = np.full((len(self.leaves), self.levels.max() + 1), -1)
        for cluster, leaf in enumerate(self.leaves):
            node = leaf
            while node >= 0:
                self.paths[cluster, self.levels[node]] = node
                node = self.parents[node]

    @property
    def on_path(self) -> NDArray[np.bool_]:
        """(K, D), where `paths` holds a node."""
        return self.paths >= 0

    @property
    def membership(self) -> Floats:
        """(K, V), one where node v lies on the path to cluster k."""
        out = np.zeros((len(self.leaves), len(self.parents)))
        k, d = np.nonzero(self.on_path)
        out[k, self.paths[k, d]] = 1
        return out

    @classmethod
    def from_transitions(cls, transitions: Iterable[Transition], n_clusters: int) -> Tree:
        """Turn the phase transitions of an annealing run into the tree of its clusters ([1]_ section 5.1).

        References
        ----------
        .. [1] T. Hofmann and J. Puzicha, A.I. Memo 1625, MIT, 1998.

        Examples
        --------
        >>> Tree.from_transitions([Transition(0.1, 0, 1), Transition(0.3, 1, 2)], 3).parents.tolist()
        [-1, 0, 0, 2, 2]
        """
        parents, leaf_of = [-1], {0: 0}
        for event in transitions:
            node = leaf_of[event.parent]
            leaf_of[event.parent], leaf_of[event.child] = len(parents), len(parents) + 1
            parents += [node, node]
        return cls(parents, [leaf_of[k] for k in range(n_clusters)])

    @classmethod
    def balanced(cls, n_clusters: int) -> Tree:
        """Return the binary tree with ``n_clusters`` leaves whose levels fill up one after the other.

        Examples
        --------
        >>> Tree.balanced(3).parents.tolist()
        [-1, 0, 0, 1, 1]
        """
        if n_clusters < 1:
            raise ValueError(f"a tree needs at least one cluster, got n_clusters={n_clusters}")
        return cls([(node - 1) // 2 for node in range(2 * n_clusters - 1)])


class Hierarchy(NamedTuple):
    """Parameters of the HACM."""

    weights: Floats
    """(K,), ``rho``."""
    vertical: Floats
    """(K, D), or (N, K, D) with mixing for each row: ``tau`` along the paths, zero beyond the leaf."""
    nodes: Floats
    """(V, M), ``q``; rows sum to one within each group of columns."""


@dataclass(frozen=True, eq=False)
class HierarchicalClustering(ClusteringModel):
    """The HACM as the driver sees it, with vertical mixing that is constant or of each cluster.

    Parameters
    ----------
    posterior : Posterior
    tree : Tree
    learn_vertical : bool, default=True
        Whether ``tau`` is estimated, or stays as it is (constant; or all weight on the leaves: an ACM).
    """

    tree: Tree = Tree([-1])
    learn_vertical: bool = True

    def start_from(self, profiles: Floats, weights: Floats, groups: NDArray[np.intp]) -> Hierarchy:
        """Inner nodes are the mean profiles of their clusters; all nodes of a path count alike."""
        membership = self.tree.membership
        nodes = normalise_profiles((membership * weights[:, None]).T @ profiles, groups)
        return Hierarchy(weights, normalise(self.tree.on_path.astype(float)), nodes)

    def profiles(self, params: Hierarchy) -> Floats:
        """``p_kj`` (K, M)."""
        return self._spread(params.vertical) @ params.nodes

    def _spread(self, vertical: Floats) -> Floats:
        """``tau`` as (K, V)."""
        out = np.zeros((len(self.tree.leaves), len(self.tree.parents)))
        k, d = np.nonzero(self.tree.on_path)
        out[k, self.tree.paths[k, d]] = vertical[k, d]
        return out

    def scores(self, n: CountMatrix, params: Hierarchy) -> Floats:
        """``sum_j n_ij log p_kj``, shape (N, K)."""
        dtype = working_dtype(n)
        return np.asarray(n @ log_floored(self.profiles(params), dtype).T, dtype=dtype)

    def step(
        self,
        n: CountMatrix,
        params: Hierarchy,
        beta: float,
        posteriors: Floats | None = None,
        row_weights: Floats | None = None,
    ) -> Step:
        """One EM iteration; the vertical posteriors need only the expected counts (K, M)."""
        scores = self.site_scores(n, params, row_weights)
        Q, free_energy = self.posterior(scores, beta, params.weights, posteriors, row_weights)
        stats = self.stats(n, Q, row_weights)
        tau = self._spread(params.vertical)
        ratio = stats.counts / np.maximum(tau @ params.nodes, FLOOR)
        nodes = normalise_profiles(params.nodes * (tau.T @ ratio), groups_of(n))
        vertical = params.vertical
        if self.learn_vertical:
            k, d = np.nonzero(self.tree.on_path)
            vertical = np.zeros_like(vertical)
            vertical[k, d] = (tau * (ratio @ params.nodes.T))[k, self.tree.paths[k, d]]
            vertical = normalise(vertical + FLOOR * self.tree.on_path)
        return Step(Hierarchy(normalise(stats.sizes), vertical, nodes), free_energy, Q, stats)

    def relax(self, old: Hierarchy, new: Hierarchy, eta: float, groups: NDArray[np.intp]) -> Hierarchy:
        """Over-relaxed parameters, normalised."""
        return Hierarchy(
            normalise(extrapolate(old.weights, new.weights, eta)),
            normalise(extrapolate(old.vertical, new.vertical, eta)),
            normalise_profiles(extrapolate(old.nodes, new.nodes, eta), groups),
        )

    def n_distinct(self, params: Hierarchy) -> int:
        """Count the clusters with members whose profiles differ (by more than 1 % total variation)."""
        return count_distinct(self.profiles(params)[params.weights > FLOOR])

    def prediction(self, params: Hierarchy, posteriors: Floats) -> tuple[Floats, Floats]:
        """``Q`` (N, K) and the profiles (K, M)."""
        return posteriors, self.profiles(params)


@dataclass(frozen=True, eq=False)
class ObjectHierarchy(HierarchicalClustering):
    """The HACM whose vertical mixing belongs to each row in each cluster, ``tau`` (N, K, D)."""

    def refine(self, params: Hierarchy, n_rows: int) -> Hierarchy:
        """Give every row the mixing of its clusters: the third stage begins where the second ended."""
        return params._replace(vertical=np.repeat(params.vertical[None], n_rows, axis=0))

    def step(
        self,
        n: CountMatrix,
        params: Hierarchy,
        beta: float,
        posteriors: Floats | None = None,
        row_weights: Floats | None = None,
    ) -> Step:
        """One EM iteration over blocks of rows; a block needs (its entries x K x D) numbers."""
        K, D = self.tree.paths.shape
        V, M = params.nodes.shape
        counts = np.zeros((M, V))
        vertical = np.empty_like(params.vertical)
        Q = np.empty((n.shape[0], K))
        energy = 0.0
        entries = max(1, _ENTRIES_AT_ONCE // (K * D))
        per_row = max(1, int(np.ceil(getattr(n, "nnz", n.shape[0] * M) / n.shape[0])))
        for rows, block in row_blocks(n, max(1, entries // per_row)):
            mine = None if row_weights is None else row_weights[rows]
            joint = self._joint(params.vertical[rows], params.nodes, entry_rows(block), block.indices)
            p = np.maximum(joint.sum(axis=2), FLOOR)
            scores = sum_runs(block.data[:, None] * np.log(p), block.indptr)
            Q[rows], f = self.posterior(per_site(scores, mine), beta, params.weights, None, mine)
            energy += f
            joint *= (block.data[:, None] / p)[:, :, None]
            vertical[rows] = sum_runs(joint.reshape(len(p), -1), block.indptr).reshape(-1, K, D)
            joint *= Q[rows][entry_rows(block)][:, :, None]
            k, d = np.nonzero(self.tree.on_path)
            by_node = joint[:, k, d] @ (self.tree.paths[k, d][:, None] == np.arange(V)).astype(float)
            np.add.at(counts, block.indices, by_node)
        seen = vertical.sum(axis=2, keepdims=True) > 0
        vertical = np.where(seen, normalise(vertical), params.vertical)
        c = np.ones(len(Q)) if row_weights is None else row_weights
        nodes = normalise_profiles(counts.T, groups_of(n))
        return Step(Hierarchy(normalise(c @ Q), vertical, nodes), energy, Q)

    def _joint(
        self, vertical: Floats, nodes: Floats, rows: NDArray[np.intp], columns: NDArray[np.intp]
    ) -> Floats:
        """``tau q`` of every entry along every path, (entries, K, D); zero beyond the leaf."""
        out = nodes.T[columns][:, np.maximum(self.tree.paths, 0)]
        out *= vertical[rows]
        return out
