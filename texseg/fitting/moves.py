"""Moves between partitions: split, merge, and exchange, which splits one cluster and merges two others.

Every cluster keeps a tentative split into two halves; gains of splits and losses of merges are changes of F.
"""

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.matrix import CountMatrix, groups_of
from texseg.fitting.assignment import Floats
from texseg.fitting.steps import Problem, StepLimits, descend

POWER_STEPS = 2  # power iterations to find the direction in which a cluster is first split
HALVES_STEPS = 2  # EM steps within a cluster to improve a new split before it is judged
SETTLING = StepLimits(over_relax=False, max_steps=6, calm_steps=1)  # after a move
MOVES = 5  # most split-and-merge moves at one temperature and number of clusters


class Transition(NamedTuple):
    """A phase transition: cluster ``parent`` was split in two, itself and ``child``.

    If a cluster numbered ``child`` existed before, it was merged into another one, and its number was reused.
    """

    beta: float
    parent: int
    child: int


class Partition(NamedTuple):
    """Posteriors with everything needed to decide on splits and merges."""

    params: Any  # the best for Q
    Q: Floats  # (N, K)
    stats: Any
    energies: Floats  # (K,), parts of F
    halves: Floats  # (N, K), the fraction of each row's share in cluster k that stays in k when k is split
    fresh: NDArray[np.bool_]  # (K,), clusters whose halves have not been found yet
    kept: Any = None  # statistics of the halves that stay, once they have been refined
    gains: Any = None  # (K,), how far F would fall if each cluster were split

    @property
    def free_energy(self) -> float:
        """F in nats."""
        return float(self.energies.sum())


def assess(problem: Problem, now: Partition) -> Partition:
    """Find the best parameters for the posteriors, and every cluster's part of F."""
    params = problem.model.m_step(now.stats, groups_of(problem.n))
    return now._replace(params=params, energies=problem.energies(now.stats, now.Q), kept=None, gains=None)


def unsplit(problem: Problem, Q: Floats, stats: Any) -> Partition:
    """Make a partition in which no cluster's halves have been found yet."""
    none = np.empty(0)
    return assess(problem, Partition(None, Q, stats, none, np.full_like(Q, 0.5), np.ones(Q.shape[1], bool)))


def settle(problem: Problem, now: Partition) -> Partition:
    """Run EM steps; the halves stay as they are."""
    params = problem.model.m_step(now.stats, groups_of(problem.n))
    *_, last = descend(problem, params, now.Q, SETTLING)
    return assess(problem, now._replace(Q=last.result.posteriors, stats=last.result.stats))


def refine_halves(problem: Problem, now: Partition, rng: np.random.RandomState) -> Partition:
    """Improve every tentative split by EM steps within its cluster; new ones start along the eigenvector."""
    halves, *found = problem.model.refined(problem.n, now, problem.beta, rng)
    return Partition(*now[:4], halves, np.zeros_like(now.fresh), *found)


def split(now: Partition, k: int) -> Partition:
    """Append the half that leaves cluster ``k`` as a new cluster; to be assessed."""
    left = now.Q[:, k] * (1 - now.halves[:, k])
    Q = np.column_stack([now.Q, left])
    Q[:, k] *= now.halves[:, k]
    stats = []
    for whole, part in zip(now.stats, now.kept, strict=True):
        stats.append(np.concatenate([whole, (whole[k] - part[k])[None].clip(0)]))
        stats[-1][k] = part[k]
    halves, fresh = np.column_stack([now.halves, np.full_like(left, 0.5)]), np.append(now.fresh, True)
    fresh[k] = True
    return now._replace(Q=Q, stats=type(now.stats)(*stats), halves=halves, fresh=fresh)


def split_unstable(now: Partition, room: int) -> tuple[Partition, list[int]]:
    """Split the clusters that gain by it, at most ``room`` and those that gain most first; return which."""
    most = np.argsort(-now.gains, kind="stable")[:room].tolist()
    which = [k for k in most if now.gains[k] > resolution(now.energies)]
    return reduce(split, which, now), which


def merge(now: Partition, i: int, j: int) -> Partition:
    """Merge ``j`` into ``i``, whose two halves they become; the last cluster takes the place of ``j``."""
    order = np.arange(now.Q.shape[1] - 1)
    order[j : j + 1] = now.Q.shape[1] - 1
    merged, stats = now.Q[:, i] + now.Q[:, j], [part[order] for part in now.stats]
    Q, halves, fresh = now.Q[:, order], now.halves[:, order], now.fresh[order]
    Q[:, i], halves[:, i], fresh[i] = merged, now.Q[:, i] / np.maximum(merged, 1e-30), False
    for part, whole in zip(stats, now.stats, strict=True):
        part[i] = whole[i] + whole[j]
    return now._replace(Q=Q, stats=type(now.stats)(*stats), halves=halves, fresh=fresh)


def merge_losses(problem: Problem, now: Partition) -> Floats:
    """How much F would rise if clusters i < j were merged, shape (K, K), infinite elsewhere."""
    K = now.Q.shape[1]
    i, j = np.nonzero(np.arange(K)[:, None] < np.arange(K))
    both = type(now.stats)(*(part[i] + part[j] for part in now.stats))
    losses = np.full((K, K), np.inf)
    losses[i, j] = problem.energies(both, now.Q[:, i] + now.Q[:, j]) - now.energies[i] - now.energies[j]
    return losses


def merged_down(
    weights: Floats, profiles: Floats, n_left: int
) -> tuple[Floats, Floats, list[tuple[int, int]]]:
    """Merge the most similar pairs of profiles (K, M) of some weights (K,), until ``n_left`` are left.

    The loss is the squared Hellinger distance times half the harmonic mean of the weights; to second order
    that is the information lost. The pairs, in their order, are returned as well.
    """
    pairs = []
    weights, profiles, roots = weights.copy(), profiles.copy(), np.sqrt(profiles)
    alike, left, total = roots @ roots.T, np.arange(len(weights)), profiles[0].sum()
    while len(left) > n_left:
        w = weights[left]
        loss = w[:, None] * w / np.maximum(w[:, None] + w, 1e-30) * (total - alike[np.ix_(left, left)])
        np.fill_diagonal(loss, np.inf)
        kept, gone = left[list(divmod(int(loss.argmin()), len(left)))]
        pairs.append((int(kept), int(gone)))
        weights[kept] += weights[gone]
        profiles[kept] += weights[gone] / max(weights[kept], 1e-30) * (profiles[gone] - profiles[kept])
        roots[kept] = np.sqrt(profiles[kept])
        alike[kept] = alike[:, kept] = roots @ roots[kept]
        left = left[left != gone]
    return weights[left], profiles[left], pairs


def net_gains(gains: Floats, losses: Floats) -> Floats:
    """How much F falls (K, K, K) if cluster k is split and i < j are merged; -inf for k among them."""
    net = gains[:, None, None] - losses
    clusters = np.arange(len(gains))
    net[clusters, clusters], net[clusters, :, clusters] = -np.inf, -np.inf
    return net


def exchange(problem: Problem, now: Partition) -> tuple[Partition, Transition] | None:
    """Split one cluster and merge two others, if that lowers F; the result still has to settle."""
    if len(now.gains) < 3:
        return None
    net = net_gains(now.gains, merge_losses(problem, now))
    k, i, j = (int(at) for at in np.unravel_index(net.argmax(), net.shape))
    if net[k, i, j] <= resolution(now.energies):
        return None
    return merge(split(now, k), i, j), Transition(problem.beta, k, j)


def improve(problem: Problem, now: Partition, rng: np.random.RandomState) -> Partition:
    """Exchange clusters as long as that lowers F."""
    for _ in range(MOVES):
        now = refine_halves(problem, now, rng)
        exchanged = exchange(problem, now)
        if exchanged is None:
            return now
        now = settle(problem, exchanged[0])
    return refine_halves(problem, now, rng)


def resolution(energies: Floats) -> float:
    """Smallest difference in F that single precision can tell from rounding error."""
    return 1e-6 * float(np.abs(energies).sum())


def grow(
    model: Any, n: CountMatrix, n_clusters: int, rng: Any, n_extra: int = 3, doubling: bool = False
) -> Iterator[Partition]:
    """Grow clusters at temperature 1 by splits (``doubling``: of all at once), then merge back to one."""
    problem, everything = Problem(model, n, 1.0), model.everything(n)
    now = unsplit(problem, everything, model.stats(n, everything))
    yield now
    now = refine_halves(problem, now, rng)
    while room := min(n_clusters + n_extra, n.shape[0]) - len(now.gains):
        now, which = split_unstable(now, room if doubling else 1)
        if not which:
            break
        now = improve(problem, settle(problem, now), rng)
        yield now
    while now.Q.shape[1] > 1:
        losses = merge_losses(problem, now)
        i, j = divmod(int(losses.argmin()), len(losses))
        now = improve(problem, settle(problem, merge(now, i, j)), rng)
        yield now


class Growing:
    """Growth while annealing: clusters beyond their phase transition are split, and exchanges lower F."""

    def __init__(self, n_clusters: int, exchanging: bool, rng: np.random.RandomState) -> None:
        self.n_clusters = n_clusters
        self.exchanging = exchanging
        self.rng = rng
        self.transitions: tuple[Transition, ...] = ()
        self._beta = 0.0
        self._exchanges = 0
        self._halves: tuple[Floats, NDArray[np.bool_]] | None = None

    def change(self, problem: Problem, result: Any) -> Partition | None:
        """Give the partition that should replace a settled step; None if the step should stay."""
        Q = result.posteriors
        if problem.beta != self._beta:
            self._beta, self._exchanges = problem.beta, 0
            # below a transition halves become alike: only exchanges can repair a split that begins with them
            if not self.exchanging:
                self._halves = None
        now = unsplit(problem, Q, result.stats)
        if self._halves is not None and self._halves[0].shape == Q.shape:
            now = now._replace(halves=self._halves[0], fresh=self._halves[1])
        now, K = refine_halves(problem, now, self.rng), Q.shape[1]
        changed, which = split_unstable(now, max(self.n_clusters - K, 0))
        self.transitions += tuple(Transition(problem.beta, k, child) for child, k in enumerate(which, K))
        if changed is now and self.exchanging and self._exchanges < MOVES:
            exchanged = exchange(problem, now)
            if exchanged is not None:
                changed, transition = exchanged
                self._exchanges += 1
                self.transitions += (transition,)
        self._halves = changed.halves, changed.fresh
        return None if changed is now else assess(problem, changed)
