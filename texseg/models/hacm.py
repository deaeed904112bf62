"""The hierarchical asymmetric clustering model (HACM), also known as the cluster-abstraction model (CAM).

Clusters are the leaves of a tree; every node ``v`` has a profile, and every single occurrence in a row of
cluster ``k`` comes from one of the nodes on the path from the root to leaf ``k``. What is common to a whole
subtree is explained by its inner node; leaves keep what is special. Section 4 of the memo:

    p_kj   = sum_v tau_kv q_vj                              profile of a cluster, v on the path to k
    Q_ik   ~ rho_k exp(beta sum_j n_ij log p_kj)            horizontal E-step, annealed (Eq. 55)
    V_vkj  = tau_kv q_vj / p_kj                             vertical E-step (Eq. 53)
    q_vj   ~ sum_k V_vkj S_kj,   S_kj = sum_i Q_ik n_ij     M-step (Eq. 57)
    tau_kv ~ sum_j V_vkj S_kj                               (Eq. 58, shared by a cluster)
    rho_k  = 1/N sum_i Q_ik                                 (Eq. 56)
    p(j|i) = sum_k Q_ik p_kj                                prediction (Eq. 59)

The degrees of freedom grow in three stages (section 4.2): ``tau`` constant along every path, one ``tau`` per
cluster, and one ``tau`` per row in each cluster. Only the last needs the single entries of ``n``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.matrix import CountMatrix, groups_of, row_blocks
from texseg.fitting.anneal import State, Transition, anneal, critical_beta, geometric_schedule
from texseg.fitting.assignment import Floats, SoftMax
from texseg.fitting.moves import merged_down, resolution
from texseg.models import base
from texseg.models.acm import HistogramClustering, OneSided, Profiles
from texseg.models.base import FLOOR, Allowed, ClusteringModel, Labels, Rng, Stats, Step
from texseg.models.estimator import Data, Run, settings
from texseg.models.left_out import LeavesRowsOut
from texseg.models.smm import FOLD_IN_STEPS

STAGES = ("constant", "cluster", "object")  # of the vertical mixing, with ever more degrees of freedom
LEAF_SHARE = 0.25  # where predictive fits begin; .98 of inner words of planted trees stay there, with .5 .3
_ENTRIES_AT_ONCE = 2**24  # numbers (entries x K x D) in a block, where every row has its own mixing


class Tree:
    """A rooted tree whose leaves are clusters 0 ... K - 1; a parent has a smaller number than its children.

    ``parents`` are V ints, the parent of every node, -1 for node 0, the root; ``leaves``, K ints, the nodes
    of the clusters, by default those without children, in order. ``paths`` (K, D) are the nodes from the root
    to each leaf, padded with -1; ``levels`` (V,) distances from the root.

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
        paths = [[0]]
        for node in nodes[1:].tolist():
            paths.append([*paths[self.parents[node]], node])
        self.levels = np.array([len(path) - 1 for path in paths])
        below = [-1] * int(self.levels.max())
        self.paths = np.array([[*paths[leaf], *below[self.levels[leaf] :]] for leaf in self.leaves])

    @property
    def on_path(self) -> NDArray[np.bool_]:
        """(K, D), True where `paths` holds a node."""
        return self.paths >= 0

    @property
    def membership(self) -> Floats:
        """(K, V), one where node v lies on the path to cluster k."""
        return self.spread(np.ones(self.paths.shape))

    def spread(self, along: Floats) -> Floats:
        """Turn values along the paths (K, D) into values of the nodes (K, V), zero off the path."""
        out = np.zeros((len(self.leaves), len(self.parents)))
        k, d = np.nonzero(self.on_path)
        out[k, self.paths[k, d]] = along[k, d]
        return out

    @classmethod
    def from_transitions(cls, transitions: Iterable[Transition], n_clusters: int) -> "Tree":
        """Turn the phase transitions of an annealing run into the tree of its clusters (section 5.1).

        >>> Tree.from_transitions([Transition(0.1, 0, 1), Transition(0.3, 1, 2)], 3).parents.tolist()
        [-1, 0, 0, 2, 2]
        """
        parents, leaf_of = [-1], {0: 0}
        for event in transitions:
            node = leaf_of[event.parent]
            leaf_of[event.parent], leaf_of[event.child] = len(parents), len(parents) + 1
            parents += [node, node]
        return cls(parents, [leaf_of[k] for k in range(n_clusters)])


class TreeProfiles(NamedTuple):
    """Parameters of the HACM."""

    weights: Floats  # (K,), rho
    vertical: Floats  # tau (K, D) along the paths, zero beyond the leaf; (N, K, D) with mixing for each row
    nodes: Floats  # (V, M), q; rows sum to one within each group of columns


@dataclass(frozen=True, eq=False)
class HierarchicalClustering(ClusteringModel):
    """The HACM as the driver sees it, with vertical mixing that is constant or specific to each cluster."""

    profiles_of: ClassVar[str] = "nodes"

    tree: Tree = Tree([-1])
    learn_vertical: bool = True

    def start_from(
        self, profiles: Floats, weights: Floats, groups: Labels, leaf_share: float | None = None
    ) -> TreeProfiles:
        """Start with mean profiles and even weights along each path, of which leaves may get a share."""
        membership = self.tree.membership
        nodes = base.normalise_profiles((membership * weights[:, None]).T @ profiles, groups)
        vertical = base.normalise(self.tree.on_path.astype(float))
        if leaf_share is not None:
            leaf = np.arange(self.tree.paths.shape[1]) == self.tree.levels[self.tree.leaves][:, None]
            above = base.normalise((self.tree.on_path & ~leaf) + FLOOR * leaf)
            vertical = leaf_share * leaf + (1 - leaf_share) * above
        return TreeProfiles(weights, vertical, nodes)

    def profiles(self, params: TreeProfiles) -> Floats:
        """``p_kj`` (K, M)."""
        return self.tree.spread(params.vertical) @ params.nodes

    def m_step(self, stats: Stats, groups: Labels, params: Any, explained: Any = None) -> TreeProfiles:
        """Eq. 56 to 58; the vertical posteriors need only the expected counts (K, M)."""
        tau, vertical = self.tree.spread(params.vertical), params.vertical
        ratio = stats.counts / np.maximum(tau @ params.nodes, FLOOR)
        nodes = self.normalised(params.nodes * (tau.T @ ratio), groups)
        if self.learn_vertical:
            k, d = np.nonzero(self.tree.on_path)
            explained = ratio @ params.nodes.T if explained is None else explained
            vertical = np.zeros_like(params.vertical)
            vertical[k, d] = (tau * explained)[k, self.tree.paths[k, d]]
            vertical = base.normalise(vertical + FLOOR * self.tree.on_path)
        return TreeProfiles(base.normalise(stats.sizes), vertical, nodes)

    def shares_of_nodes(self, params: TreeProfiles) -> Floats:
        """``tau`` (K, V), zero off the path."""
        return self.tree.spread(params.vertical)

    def node_counts(self, n: CountMatrix, params: TreeProfiles, Q: Floats) -> Floats:
        """Compute the expected counts (V, M) of the nodes (Eq. 57)."""
        tau = self.tree.spread(params.vertical)
        return params.nodes * (tau.T @ (self.stats(n, Q).counts / np.maximum(tau @ params.nodes, FLOOR)))

    def by_weight(self, params: TreeProfiles, posteriors: Floats) -> Any:
        """Return model, parameters and posteriors (N, K) with the heaviest leaf first; the nodes stay."""
        order = base.heaviest_first(params.weights)
        model = replace(self, tree=Tree(self.tree.parents, self.tree.leaves[order]))
        moved = params._replace(weights=params.weights[order], vertical=params.vertical[..., order, :])
        return model, moved, posteriors[:, order]


@dataclass(frozen=True, eq=False)
class PredictiveHierarchy(LeavesRowsOut, HierarchicalClustering):
    """The HACM whose rows are held out of the nodes that judge them; only the root holds the background."""

    with_background: ClassVar[slice] = slice(1)


@dataclass(frozen=True, eq=False)
class ObjectMixing(HierarchicalClustering):
    """The HACM with separate vertical mixing for each row in each cluster, ``tau`` (N, K, D)."""

    def profiles(self, params: TreeProfiles) -> Floats:
        """``p_kj`` (K, M), for the mixing averaged over the rows."""
        return self.tree.spread(params.vertical.mean(axis=0)) @ params.nodes

    def refine(self, params: TreeProfiles, n_rows: int) -> TreeProfiles:
        """Give every row the mixing of its clusters: the third stage begins where the second ended."""
        return params._replace(vertical=np.repeat(params.vertical[None], n_rows, axis=0))

    def step(self, n: CountMatrix, params: Any, beta: float, posteriors: Any = None) -> Step:
        """One EM iteration over blocks of rows; a block needs (its entries x K x D) numbers."""
        K, D = self.tree.paths.shape
        V, M = params.nodes.shape
        counts = np.zeros((M, V))
        vertical = np.empty_like(params.vertical)
        Q, every = np.empty((n.shape[0], K)), self.everything(n)
        energy = 0.0
        entries = max(1, _ENTRIES_AT_ONCE // (K * D))
        per_row = max(1, int(np.ceil(getattr(n, "nnz", n.shape[0] * M) / n.shape[0])))
        for rows, block in row_blocks(n, max(1, entries // per_row)):
            index = base.entry_rows(block)
            # tau q of every entry along every path, zero beyond the leaf
            joint = params.nodes.T[block.indices][:, np.maximum(self.tree.paths, 0)]
            joint *= params.vertical[rows][index]
            p = np.maximum(joint.sum(axis=2), FLOOR)
            scores = base.sum_at(np.log(p), index, block.shape[0], block.data)
            Q[rows], f = SoftMax(every[rows, 0])(scores, beta, params.weights)
            energy += f
            joint /= p[:, :, None]
            of_rows = base.sum_at(joint.reshape(len(p), K * D), index, block.shape[0], block.data)
            vertical[rows] = of_rows.reshape(-1, K, D)
            joint *= Q[rows][index][:, :, None]
            counts += base.sum_at(self._to_nodes(joint), block.indices, M, block.data)
        seen = vertical.sum(axis=2, keepdims=True) * every[:, None] > 0
        vertical = np.where(seen, base.normalise(vertical), params.vertical)
        nodes = base.normalise_profiles(counts.T, groups_of(n))
        return Step(TreeProfiles(base.normalise(Q.sum(axis=0)), vertical, nodes), energy, Q)

    def fold_in(self, n: CountMatrix, params: TreeProfiles, beta: float, nodes: bool = False) -> Floats:
        """Posteriors (N, K), or ``p(v | i)`` (N, V), of new rows, estimated with their vertical mixing."""
        seen = params.vertical.mean(axis=0)
        own = self.refine(params._replace(vertical=seen), n.shape[0])
        for _ in range(FOLD_IN_STEPS):
            step = self.step(n, own, beta)
            own = own._replace(vertical=step.params.vertical)
        return self.prediction(own, step.posteriors)[0] if nodes else step.posteriors

    def _to_nodes(self, along: Floats) -> Floats:
        """Sum up values along the paths (n, K, D) at each node, (n, V)."""
        k, d = np.nonzero(self.tree.on_path)
        return along[:, k, d] @ (self.tree.paths[k, d][:, None] == np.arange(len(self.tree.parents)))

    def row_posteriors(self, params: TreeProfiles, posteriors: Floats) -> Floats:
        """``Q`` (N, K)."""
        return base.normalise(posteriors)

    def prediction(self, params: TreeProfiles, posteriors: Floats) -> tuple[Floats, Floats]:
        """``p(v | i) = sum_k Q_ik tau_ikv`` (N, V) and the nodes (V, M) (Eq. 59)."""
        return self._to_nodes(base.normalise(posteriors)[:, :, None] * params.vertical), params.nodes


def merging_tree(counts: Floats) -> Tree:
    """Tree built by repeatedly merging the two most similar of the clusters, whose counts are (K, M)."""
    *_, merges = merged_down(counts.sum(axis=1), base.normalise(counts), 1)
    return Tree.from_transitions([Transition(0.0, *pair) for pair in reversed(merges)], len(counts))


@settings
class HACM(OneSided):
    """Hierarchical asymmetric clustering model, also known as the cluster-abstraction model.

    Clusters of rows are the leaves of a tree; inner nodes explain what their clusters have in common (Hofmann
    and Puzicha, A.I. Memo 1625, 1998, section 4). Fits go from a flat clustering (`ACM`) to a tree.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of leaves, K; at most the number of rows.
    mixing : {"constant", "cluster", "object"}, default="cluster"
        Shares of the nodes along a path: all equal, one set per cluster, or one set per row in each cluster,
        (N, K, depth) numbers. Each stage starts from the one before (section 4.2).
    tree : {"merging", "annealing"} or Tree, default="merging"
        Built from the flat clusters by merging the two most similar again and again, or from the phase
        transitions of a cooling run (section 5.1; wrong more often where rows are few or short), or given.
    n_init : int, default=3
        Flat clusterings (or cooling runs), of which the best is kept: three find all planted trees.
    beta, predictive, validation_fraction, max_iter, tol, over_relaxation, random_state
        See `ACM`; rows are not held out for the mixing of single rows, nor with annealed trees.

    Attributes
    ----------
    tree_, nodes_ : Tree, ndarray of shape (V, M)
        The tree, and ``q``, the profile of every node; rows sum to one.
    vertical_ : ndarray of shape (K, D), or (N, K, D) with mixing="object"
        Shares of the nodes along the paths ``tree_.paths``.
    row_posteriors_, weights_, labels_ : ndarrays of shape (N, K), (K,) and (N,)
        Cluster probabilities of the rows, mixing proportions, and most probable clusters, from 0.
    mixing_, components_ : ndarrays of shape (N, R) and (R, M)
        ``p(j | i)`` is their product; R is K, or V with mixing="object".
    beta_, free_energy_, n_iter_, converged_, history_
        See `SMM`.

    Examples
    --------
    >>> X = np.array([[6.0, 6.0, 0.0], [5.0, 7.0, 0.0], [6.0, 0.0, 6.0], [7.0, 0.0, 5.0]])
    >>> model = HACM(n_clusters=2, beta=1.0, random_state=0).fit(X)
    >>> print(model.tree_text(["common", "left", "right"], n_words=1))
    root: common 1.00
      cluster 0 (2 rows): left 1.00
      cluster 1 (2 rows): right 0.92
    """

    mixing: str = "cluster"
    tree: str | Tree = field(default="merging", kw_only=True)
    n_init: int = field(default=3, kw_only=True)

    def _allowed(self) -> Iterator[Allowed]:
        yield from super()._allowed()
        yield "predictive", self.beta == "auto" or not self.predictive, 'False unless beta="auto"'
        yield "mixing", self.mixing in STAGES, f"one of {', '.join(STAGES)}"
        known = isinstance(self.tree, Tree) or self.tree in ("merging", "annealing")
        yield "tree", known, '"merging", "annealing" or a Tree'
        K = len(self.tree.leaves) if isinstance(self.tree, Tree) else self.n_clusters
        yield "n_clusters", self.n_clusters == K, f"that of the leaves of the tree, {K}"

    def _fitted(self, data: Data, rng: Rng) -> tuple[Any, Run]:
        """Fit the flat clusters, the tree, and then the stages of the vertical mixing one after the other."""
        if self.tree == "annealing":
            flat, history = HistogramClustering(SoftMax(data.weights)), []
            state, tree = self._annealed(flat, data, rng)
            clusters = state.params
        else:
            flat, run = super()._fitted(data, rng)
            state, history, clusters = run.state, run.history, run.state.params
            tree = merging_tree(flat.stats(data.counts, state.posteriors).counts)
            if isinstance(self.tree, Tree):  # clusters in the left-to-right order of a drawing of the tree
                own, given = (np.lexsort(each.paths.T[::-1]) for each in (tree, self.tree))
                tree, clusters = self.tree, Profiles(*(part[own[np.argsort(given)]] for part in clusters))
        kind: Any = partial(HierarchicalClustering, flat.posterior)
        if isinstance(flat, LeavesRowsOut):
            kind = partial(PredictiveHierarchy, flat.posterior, caution=flat.caution)
        model, coldest = kind(tree=tree, learn_vertical=False), self._first_beta
        stages, leaf_share = STAGES[: STAGES.index(self.mixing) + 1], None
        if not flat.monotone and len(stages) > 1:  # near the flat clustering, and from there
            stages, leaf_share = stages[1:], LEAF_SHARE
        params = model.start_from(*clusters, groups_of(data.counts), leaf_share)
        for stage in stages:
            if stage == "cluster":
                model = kind(tree=tree)
            elif stage == "object":
                model = ObjectMixing(flat.posterior, tree=tree)
                params = model.refine(params, data.counts.shape[0])
            if model.monotone:
                run = self._tempered(model, data, params, rng, coldest)
            else:
                run = self._descend(model, data, params, state.beta, rng)
            params, history = run.state.params, history + run.history
            coldest = min(coldest, 2 * run.state.beta)
        return self._refine(model, Run(run.state, history), data, rng)

    def _annealed(self, flat: HistogramClustering, data: Data, rng: Rng) -> tuple[State, Tree]:
        """Cool from the first phase transition until there are enough clusters; best of ``n_init`` runs."""
        n, coldest = data.counts, data.beta or 1.0
        schedule = geometric_schedule(min(critical_beta(flat, n, rng), coldest), coldest, 0.9)
        found = []
        for _ in range(self.n_init):
            for state in anneal(flat, n, schedule, growth="split", n_clusters=self.n_clusters, rng=rng):
                if len(state.params.weights) == self.n_clusters:
                    break
            found.append((flat.step(n, state.params, coldest).free_energy, state))
        # of runs that differ by rounding only, the first, so that sparse counts give what dense ones do
        energies = np.array([energy for energy, _ in found])
        best = found[int(np.argmax(energies <= energies.min() + resolution(energies.min())))][1]
        return best, Tree.from_transitions(best.transitions, len(best.params.weights))

    def _in_order(self, model: HierarchicalClustering, params: TreeProfiles, posteriors: Floats) -> Any:
        """Sort the clusters by weight, unless the tree was given, which fixes their order."""
        if isinstance(self.tree, Tree):
            return model, params, posteriors
        return model.by_weight(params, posteriors)

    def _publish(self, model: HierarchicalClustering, params: TreeProfiles, posteriors: Floats) -> None:
        self.tree_, self.nodes_ = model.tree, params.nodes
        self.vertical_, self.weights_ = params.vertical, params.weights

    def _predictive_mixing(self, n: CountMatrix) -> Floats:
        of_nodes = {"nodes": True} if self.mixing == "object" else {}
        return self._fitted_model.fold_in(n, self._params, self.beta_, **of_nodes)

    def tree_text(self, names: Sequence[str] | None = None, n_words: int = 5) -> str:
        """Write out the tree, a node a line, indented by level, with its most probable words."""
        words = self.top_words(names, n_words)
        sizes = np.bincount(self.labels_, minlength=self.n_clusters)
        titles = {int(leaf): f"cluster {k} ({sizes[k]} rows)" for k, leaf in enumerate(self.tree_.leaves)}
        lines, stack = [], [0]
        while stack:
            node = stack.pop()
            title = titles.get(node, "root" if node == 0 else f"node {node}")
            shown = ", ".join(f"{word} {p:.2f}" for word, p in words[node])
            lines.append("  " * int(self.tree_.levels[node]) + f"{title}: {shown}")
            stack += [int(child) for child in np.flatnonzero(self.tree_.parents == node)[::-1]]
        return "\n".join(lines)

    def tree_graph(self, names: Sequence[str] | None = None, n_words: int = 5) -> Any:
        """Export the tree as a `networkx.DiGraph`, whose nodes have ``words``, ``level`` and ``cluster``."""
        import networkx

        cluster = {int(leaf): k for k, leaf in enumerate(self.tree_.leaves)}
        graph = networkx.DiGraph()
        for node, words in enumerate(self.top_words(names, n_words)):
            level = int(self.tree_.levels[node])
            graph.add_node(node, words=words, level=level, cluster=cluster.get(node))
            if node:
                graph.add_edge(int(self.tree_.parents[node]), node)
        return graph
