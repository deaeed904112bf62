"""Moves between partitions: they keep every occurrence, and lower the free energy where it can be lowered."""

import numpy as np
import pytest

from texseg.fitting import moves
from texseg.fitting.anneal import anneal, last_of
from texseg.fitting.moves import merge, merge_losses, merged_down, net_gains, refine_halves, split, unsplit
from texseg.fitting.steps import Problem
from texseg.models.acm import HistogramClustering


def planted(seed=0, per_cluster=40, K=4, M=12):
    """Rows of K clusters with profiles far apart; returns counts and truth."""
    rng = np.random.RandomState(seed)
    profiles = rng.dirichlet(np.full(M, 0.3), size=K)
    truth = np.repeat(np.arange(K), per_cluster)
    return np.array([rng.multinomial(60, profiles[k]) for k in truth], dtype=float), truth


def partition_of(n, labels):
    """Give the partition of labels, its problem, and what its splits would give."""
    problem = Problem(HistogramClustering(), n, 1.0)
    Q = np.eye(labels.max() + 1)[labels]
    now = unsplit(problem, Q, problem.model.stats(n, Q))
    return problem, refine_halves(problem, now, np.random.RandomState(0))


def test_splits_and_merges_keep_every_row_and_every_occurrence():
    n, truth = planted()
    problem, now = partition_of(n, truth)
    for i, j in ((0, 1), (1, 3), (2, 4), (0, 4)):
        _, Q, stats, *_ = merge(split(now, 2), i, j)
        assert Q.shape[1] == 4
        np.testing.assert_allclose(Q.sum(axis=1), 1)
        np.testing.assert_allclose(stats.counts.sum(axis=0), n.sum(axis=0))
        np.testing.assert_allclose(stats.counts, n.T.dot(Q).T, rtol=1e-6, atol=1e-6)
        assert stats.sizes.sum() == pytest.approx(len(n))


def spoilt(truth):
    """Cut cluster 0 in two, and make 2 and 3 one."""
    labels = np.where(truth == 3, 2, truth)
    labels[:20] = 3
    return labels


def test_a_cluster_is_never_split_and_merged_with_itself_in_one_move():
    """Where one of four is split, only pairs of the other three are merged: twelve moves, and no more."""
    n, truth = planted()
    problem, now = partition_of(n, spoilt(truth))
    now = refine_halves(problem, now, np.random.RandomState(0))
    assert np.isfinite(net_gains(now.gains, merge_losses(problem, now))).sum() == 4 * 3


def test_annealing_makes_exchanges_where_they_lower_the_free_energy():
    """Splits alone keep what a wrong first split has joined; with exchanges the free energy is no higher."""
    better = 0
    for seed in range(12):
        n, _ = planted(seed, per_cluster=15, K=7, M=8)
        energies = []
        for growth in ("split", "split-merge"):
            rng = np.random.RandomState(0)
            run = anneal(HistogramClustering(), n, [1.0], rng=rng, n_clusters=7, growth=growth)
            energies.append(last_of(run).free_energy)
        assert energies[1] <= energies[0] + 1e-4 * abs(energies[0])
        better += energies[1] < energies[0] - 1e-3 * abs(energies[0])
    assert better >= 3


def test_two_small_clusters_are_a_closer_pair_than_two_large_ones_of_more_similar_profiles():
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(13), [2, 2] + [60] * 11)
    profiles = rng.dirichlet(np.full(12, 5.0), size=13)
    profiles[1] = 0.7 * profiles[0] + 0.3 * profiles[1]
    problem, now = partition_of(60 * profiles[labels], labels)
    losses = merge_losses(problem, now)
    assert divmod(int(losses.argmin()), len(losses)) == (0, 1)
    weights, left, pairs = merged_down(now.stats.sizes, profiles, 12)
    assert pairs == [(0, 1)]
    np.testing.assert_array_equal(weights, [4] + [60] * 11)
    np.testing.assert_allclose(left, [profiles[:2].mean(axis=0), *profiles[2:]])


def test_there_are_five_exchanges_at_a_temperature_and_again_at_the_next(monkeypatch):
    n, truth = planted()
    problem, now = partition_of(n, truth)
    result = problem.step(now.params, now.Q)
    found = now, moves.Transition(1.0, 0, 1)
    monkeypatch.setattr(moves, "exchange", lambda problem, now: (found[0]._replace(), found[1]))
    growing = moves.Growing(4, True, np.random.RandomState(0))
    for beta in (1.0, 2.0):
        colder = problem._replace(beta=beta)
        made = [growing.change(colder, result) is not None for _ in range(7)]
        assert made == [True] * 5 + [False] * 2
