"""M3 as printed (benchmarks/m3_printed.py): Eq. 6 and Eq. 9-12 by their formulas, and why they lose."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.special import gammaln, psi
from scipy.stats import chisquare

from benchmarks.m3_printed import (
    Eq6Chain,
    Eq6M3,
    Eq6Seats,
    PairMemory,
    expect_pairs,
    fit_pairs,
    flat_pairs,
    maximise_pairs,
    pair_objective,
    penalised_objective,
)
from texseg.m3.finite import Switch, Topics, divergence, shares_of
from texseg.m3.gibbs import Sharing, next_weights, sweep


def numbered(z):
    return np.unique(z, return_inverse=True)[1]


def halves(alpha, omega):
    return Sharing(alpha, omega, (1 - omega) / 2, (1 - omega) / 2)


def equation_6(z1, z2, sharing):
    """The four cases as printed, for one more point after N - 1 = len(z1); new ones last."""
    alpha, omega, omega1, omega2 = sharing
    N1, K1, K2 = len(z1), z1.max() + 1, z2.max() + 1
    p = np.zeros((K1 + 1, K2 + 1))
    for c in range(K1 + 1):
        for d in range(K2 + 1):
            nc, nd, ncd = (z1 == c).sum(), (z2 == d).sum(), ((z1 == c) & (z2 == d)).sum()
            if c < K1 and d < K2:
                p[c, d] = ((1 - omega) * nc * nd + omega * ncd * N1) / (N1 * (N1 + alpha))
            elif d < K2:
                p[c, d] = omega1 * alpha * nd / (N1 * (N1 + alpha))
            elif c < K1:
                p[c, d] = omega2 * alpha * nc / (N1 * (N1 + alpha))
            else:
                p[c, d] = omega * alpha / (N1 + alpha)
    return p


pairs_and_omegas = st.tuples(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=20),
    st.floats(0.01, 50),
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).filter(lambda w: sum(w) > 0.01),
)


@given(pairs_and_omegas)
@settings(max_examples=60, deadline=None)
def test_equation_6_sums_to_one_over_all_cases(case):
    pairs, alpha, shares = case
    omega, omega1, omega2 = np.array(shares) / sum(shares)
    sharing = Sharing(alpha, omega, omega1, omega2)
    z1, z2 = (numbered(z) for z in np.array(pairs).T)
    expected = equation_6(z1, z2, sharing)
    assert expected.sum() == pytest.approx(1.0)
    N1 = len(z1)
    for n_new in (1, 3):
        weights = Eq6Seats(sharing, z1, z2, n_new, N1).weights() / (N1 * (N1 + alpha))
        assert weights.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(weights[n_new:, n_new:], expected[:-1, :-1], atol=1e-12)
        np.testing.assert_allclose(weights[:n_new, n_new:].sum(axis=0), expected[-1, :-1], atol=1e-12)
        np.testing.assert_allclose(weights[n_new:, :n_new].sum(axis=1), expected[:-1, -1], atol=1e-12)
    state = Eq6Chain(z1, z2, (z1,), (z2,), sharing, None)
    np.testing.assert_allclose(next_weights(state), expected, atol=1e-12)


def test_the_first_point_opens_a_new_pair():
    for omega in (0.0, 0.4, 1.0):
        nobody = Eq6Seats(halves(1.0, omega), np.zeros(1, int), np.zeros(1, int), 2, 0)
        nobody.remove(2, 2)
        weights = nobody.weights()
        assert weights[:2, :2].sum() == pytest.approx(1.0)
        assert weights.sum() == pytest.approx(1.0)


def sequential_probability(z1, z2, sharing):
    p = 1.0
    for i in range(1, len(z1)):
        one, two = numbered(z1[:i]), numbered(z2[:i])
        c = one[z1[:i] == z1[i]][0] if z1[i] in z1[:i] else one.max() + 1
        d = two[z2[:i] == z2[i]][0] if z2[i] in z2[:i] else two.max() + 1
        p *= equation_6(one, two, sharing)[c, d]
    return p


def test_equation_6_is_exchangeable_only_for_one_process():
    z1, z2 = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    order = [0, 3, 1, 2]
    half = halves(1.0, 0.5)
    assert sequential_probability(z1, z2, half) != pytest.approx(
        sequential_probability(z1[order], z2[order], half), rel=0.05
    )
    one, z = Sharing(1.3, 1.0, 0.0, 0.0), np.array([0, 0, 1, 0, 2])
    order = [4, 2, 0, 1, 3]
    assert sequential_probability(z, z, one) == pytest.approx(sequential_probability(z[order], z[order], one))


@pytest.mark.parametrize("omega", [0.3, 1.0])
def test_conditionals_are_equation_6_births_and_lonely_points_included(omega):
    """The first update of a sweep under flat densities, against enumeration."""
    sharing = halves(1.5, omega)
    z1 = np.array([0, 1, 1, 0, 2]) if omega == 0.3 else np.array([0, 1, 1, 1, 2])
    z2 = np.array([0, 0, 1, 1, 0]) if omega == 0.3 else z1
    rest1, rest2 = numbered(z1[1:]), numbered(z2[1:])
    expected = equation_6(rest1, rest2, sharing)
    rng, counts = np.random.default_rng(0), np.zeros_like(expected)
    state = Eq6Chain(z1, z2, (np.zeros(3),), (np.zeros(z2.max() + 1),), sharing, None)
    for _ in range(3000):
        seats = _first_update(rng, state)
        counts[seats] += 1
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], 3000 * expected[possible]).pvalue > 1e-3


def _first_update(rng, state):
    """Where the first point goes, all others being pinned to their components by their densities."""
    pinned = Pinned(state.z1, state.z2)
    after = sweep(rng, np.arange(len(state.z1), dtype=float)[:, None], _with_names(state), pinned, 2)
    others1, others2 = after.z1[1:], after.z2[1:]
    c, d = after.z1[0], after.z2[0]
    names1, names2 = numbered(state.z1[1:]), numbered(state.z2[1:])
    new1, new2 = names1.max() + 1, names2.max() + 1
    return (
        names1[others1 == c][0] if c in others1 else new1,
        names2[others2 == d][0] if d in others2 else new2,
    )


def _with_names(state):
    return state._replace(first=(np.arange(state.z1.max() + 1.0),), second=(np.arange(state.z2.max() + 1.0),))


class Pinned(NamedTuple):
    """Every point but the first can only be where it is; unborn components are named -1."""

    z1: np.ndarray
    z2: np.ndarray

    def draw_first(self, rng, size):
        return (np.full(size, -1.0),)

    def draw_second(self, rng, size):
        return (np.full(size, -1.0),)

    def log_density(self, X, first, second):
        point = X[:, 0].astype(int)
        at1 = first[0] == self.z1[point][:, None]
        at2 = second[0] == self.z2[point][:, None]
        allowed = at1[:, :, None] & at2[:, None, :]
        return np.where(allowed | (point == 0)[:, None, None], 0.0, -1e4)


@pytest.mark.parametrize("omega", [0.4, 1.0])
def test_mixtures_under_equation_6_find_two_far_groups(omega):
    X = np.repeat([[-9.0], [9.0]], 20, axis=0) + np.random.default_rng(0).standard_normal((40, 1))
    model = Eq6M3(omega=omega, n_sweeps=40, burn_in=20, n_start=2, random_state=0).fit(X)
    assert not set(model.labels_[:20]) & set(model.labels_[20:])
    assert (model.history_.omega == omega).all()


@pytest.fixture
def documents():
    n = np.random.default_rng(3).poisson(0.8, (12, 9)).astype(float)
    n[4] = 0
    return n


def random_topics(rng, K1, K2, M, omega=0.3, alpha=(0.7, 1.3)):
    spaces = rng.dirichlet(np.ones(M), K1), rng.dirichlet(np.ones(M), K2)
    return Topics(spaces, shares_of(omega), np.repeat(alpha, (K1, K2)))


@pytest.mark.parametrize("penalty", [False, True])
def test_bound_of_pairs_never_falls(documents, penalty):
    bounds = fit_pairs(sp.csr_array(documents), (3, 2), 10, penalty, warm_up=0)[1]
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])


def test_pairs_step_is_the_formula_in_loops(documents):
    rng = np.random.default_rng(1)
    topics = random_topics(rng, 3, 2, 9)
    n = sp.csr_array(documents)
    gamma, phi = rng.gamma(2.0, 1.0, (12, 5)), rng.dirichlet(np.ones(2), n.nnz)
    found = expect_pairs(n, PairMemory(gamma, phi), topics, max_steps=0)
    S, bounds, entry = np.zeros((9, 3, 2)), np.zeros(12), 0
    for d in range(12):
        log1 = psi(gamma[d, :3]) - psi(gamma[d, :3].sum())
        log2 = psi(gamma[d, 3:]) - psi(gamma[d, 3:].sum())
        for x in np.flatnonzero(documents[d]):
            one, two = topics.spaces[0][:, x], topics.spaces[1][:, x]
            L = np.array([[np.log(0.65 * s + 0.35 * t) for t in two] for s in one])
            q1 = np.exp(log1 + L @ phi[entry])
            q1 /= q1.sum()
            q2 = np.exp(log2 + q1 @ L)
            q2 /= q2.sum()
            S[x] += documents[d, x] * np.outer(q1, q2)
            word = q1 @ (log1 - np.log(q1)) + q2 @ (log2 - np.log(q2)) + q1 @ L @ q2
            bounds[d] += documents[d, x] * word
            entry += 1
        bounds[d] -= divergence(gamma[d, :3], 0.7) + divergence(gamma[d, 3:], 1.3)
    np.testing.assert_allclose(found.S, S, rtol=1e-10)
    np.testing.assert_allclose(found.bounds, bounds, rtol=1e-10)


def test_bounds_are_ordered_pairs_switch_exact():
    """Three words, K1 = K2 = 2: the exact likelihood by integrating over both memberships."""
    rng = np.random.default_rng(5)
    topics = random_topics(rng, 2, 2, 4, omega=0.4, alpha=(0.8, 1.7))
    n = sp.csr_array(np.array([[2.0, 0, 1, 0]]))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    p, w = (nodes + 1) / 2, weights / 2
    density = [
        np.exp(gammaln(2 * a) - 2 * gammaln(a) + (a - 1) * (np.log(p) + np.log1p(-p))) for a in (0.8, 1.7)
    ]
    mixed = [
        0.7 * np.add.outer(p * topics.spaces[0][0, x], np.zeros(200))
        + 0.7 * np.add.outer((1 - p) * topics.spaces[0][1, x], np.zeros(200))
        + 0.3 * (p * topics.spaces[1][0, x] + (1 - p) * topics.spaces[1][1, x])
        for x in range(4)
    ]
    exact = np.log(((w * density[0]) @ (mixed[0] ** 2 * mixed[2])) @ (w * density[1]))
    switch = Switch(0.0, tol=1e-10).expect(n, np.ones((1, 4)), topics, 500)
    mean_field = expect_pairs(n, flat_pairs(n, (2, 2)), topics, 500, tol=1e-10)
    same_gamma = Switch(0.0).expect(n, mean_field.memory.gamma, topics, 0)
    assert mean_field.bounds[0] < same_gamma.bounds[0] <= switch.bounds[0] + 1e-9
    assert switch.bounds[0] < exact
    assert exact - switch.bounds[0] < 0.3


def test_gradient_of_the_penalised_objective():
    rng = np.random.default_rng(4)
    S, weights = rng.gamma(1.0, 1.0, (5, 3, 2)), rng.gamma(1.0, 1.0, 5)
    vector = np.append(rng.uniform(0.1, 0.5, 25), 0.4)
    error = check_grad(
        lambda v: penalised_objective(v, S, weights)[0],
        lambda v: penalised_objective(v, S, weights)[1],
        vector,
    )
    assert error < 1e-4 * np.linalg.norm(penalised_objective(vector, S, weights)[1])


def test_penalties_vanish_where_rows_are_probabilities():
    """Eq. 12 with "- 1" in both penalties; with the printed "- 2" the second would punish probabilities."""
    rng = np.random.default_rng(4)
    topics = random_topics(rng, 3, 2, 5, omega=0.25)
    S = rng.gamma(1.0, 1.0, (5, 3, 2))
    vector = np.append(np.vstack(topics.spaces).ravel(), topics.omega)
    assert penalised_objective(vector, S, np.full(5, 1e6))[0] == pytest.approx(
        -pair_objective(S, topics), rel=1e-9
    )


def test_em_reaches_at_least_what_penalties_reach():
    rng = np.random.default_rng(6)
    S = rng.gamma(0.5, 1.0, (12, 3, 2))
    topics = random_topics(rng, 3, 2, 12)
    exact = topics
    for _ in range(50):
        exact = maximise_pairs(S, exact, penalty=False)
    penalised = maximise_pairs(S, topics, penalty=True)
    start, by_em, by_penalty = (pair_objective(S, t) for t in (topics, exact, penalised))
    assert start < by_penalty <= by_em + 1e-6 * abs(by_em)
    np.testing.assert_allclose(penalised.spaces[0].sum(axis=1), 1.0)
