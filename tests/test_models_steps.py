"""One step of every model against the memo's formulas as plain loops, on every kind of count matrix."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp

from texseg.counts.matrix import WindowedCounts
from texseg.fitting.assignment import ArgMax
from texseg.models.acm import HistogramClustering, PredictiveHistogramClustering, Profiles
from texseg.models.base import normalise
from texseg.models.hacm import (
    HierarchicalClustering,
    ObjectMixing,
    PredictiveHierarchy,
    Tree,
    TreeProfiles,
)
from texseg.models.left_out import Caution, rows_of_columns
from texseg.models.pmm import ProductAspectModel, ProductAspects
from texseg.models.scm import TwoSidedClustering, association, mutual_information
from texseg.models.smm import AspectModel, Aspects, PredictiveAspectModel, merged

BETAS = [1.0, 0.6]


def counts(seed=0, shape=(7, 5)):
    """Small counts with zeros, an empty row and an empty column."""
    n = np.random.RandomState(seed).poisson(1.5, shape).astype(float)
    n[2], n[:, 3] = 0, 0
    return n


def distributions(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def image_counts():
    """A windowed image operator and the explicit matrix it stands for."""
    bins = np.random.RandomState(1).randint(0, 4, (2, 4, 5)).astype(np.uint8)
    implicit = WindowedCounts(bins, window=3, n_bins=4, normalize=False)
    return implicit, implicit @ np.eye(8)


def kinds_of(n):
    return {"dense": n, "csr": sp.csr_array(n), "csc": sp.csc_array(n)}


@pytest.mark.parametrize("tilt", [1.0, 0.8])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_smm(kind, beta, tilt):
    n, rng = counts(), np.random.RandomState(0)
    params = Aspects(rng.dirichlet(np.ones(3)), distributions(rng, 3, 7), distributions(rng, 3, 5))
    result = AspectModel(tilt).step(kinds_of(n)[kind], params, beta)
    columns = min(1 / tilt, max(1, 1 / beta))  # no temperature is colder than 1
    pi, p, q, F = naive.smm_step(n, params.weights, params.rows**tilt, params.columns**columns, beta)
    for ours, theirs in zip(result.params, (pi, p, q), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-300)
    assert result.free_energy == pytest.approx(F, rel=1e-10)


def test_priors_of_the_smm_are_unobserved_occurrences():
    """Three more occurrences of every row, by the weights of the aspects; two more in every aspect, even."""
    n, rng = counts(), np.random.RandomState(0)
    params = Aspects(rng.dirichlet(np.ones(3)), distributions(rng, 3, 7), distributions(rng, 3, 5))
    plain = AspectModel().step(n, params, 0.8).params
    smooth = AspectModel(row_prior=3.0, column_prior=2.0).step(n, params, 0.8).params
    by_aspect = plain.weights[:, None] * n.sum()
    np.testing.assert_allclose(smooth.weights, plain.weights)
    columns = (by_aspect * plain.columns + 2 / 5) / (by_aspect + 2)
    np.testing.assert_allclose(smooth.columns, columns)
    totals = n.sum(axis=1, keepdims=True)
    mixing = AspectModel().prediction(plain)[0]
    expected = (totals * mixing + 3 * plain.weights) / (totals + 3)
    np.testing.assert_allclose(AspectModel().prediction(smooth)[0], expected)
    # a row that is folded in has them, too, however few occurrences it holds
    short = np.eye(5)[:1]
    shares = [AspectModel(row_prior=prior).fold_in(short, plain, 1.0) for prior in (0.0, 1e6)]
    np.testing.assert_allclose(shares[1][0], plain.weights, rtol=1e-4)
    assert np.abs(shares[0] - shares[1]).max() > 0.1


def test_merged_aspects_average_the_closest():
    """Two runs that found the same three aspects, one with noise, and in another order."""
    rng = np.random.RandomState(0)
    one = Aspects(np.array([0.5, 0.3, 0.2]), distributions(rng, 3, 40), distributions(rng, 3, 30))
    noisy = [normalise(part * rng.uniform(0.9, 1.1, part.shape)) for part in one]
    other = Aspects(*(part[[2, 0, 1]] for part in noisy))
    found = merged([one, other], 3)
    order = np.argsort(-found.weights)
    shares = one.weights / (one.weights + noisy[0])
    for ours, first, second in zip(found[1:], one[1:], noisy[1:], strict=True):
        expected = shares[:, None] * first + (1 - shares[:, None]) * second
        np.testing.assert_allclose(ours[order], expected)
    np.testing.assert_allclose(found.weights[order], (one.weights + noisy[0]) / 2)


def test_of_two_pairs_of_aspects_as_far_apart_the_lighter_is_merged():
    rows = np.full((4, 6), 1 / 6)
    columns = np.array([[0.5, 0.5, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.4, 0.6]])
    for weights in ([0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]):
        found = merged([Aspects(np.array(weights), rows, columns)], 3)
        assert sorted(found.weights) == pytest.approx([0.2, 0.4, 0.4])


def test_smm_free_energy_at_beta_1_is_the_likelihood():
    n, rng = counts(), np.random.RandomState(0)
    params = Aspects(rng.dirichlet(np.ones(3)), distributions(rng, 3, 7), distributions(rng, 3, 5))
    assert AspectModel().step(n, params, 1.0).free_energy == pytest.approx(-naive.smm_likelihood(n, *params))


def test_smm_likelihood_is_a_sum_of_cross_entropies():
    """Eq. 13, with p_i = n_i / L; the printed sign of a(S) is wrong."""
    n = counts()
    columns = distributions(np.random.RandomState(0), 2, 5)
    params = Aspects(np.full(2, 0.5), np.tile(n.sum(1) / n.sum(), (2, 1)), columns)
    params = AspectModel().step(n, params, 1.0).params
    likelihood = -AspectModel().step(n, params, 1.0).free_energy
    mixing, q = AspectModel().prediction(params)
    rows = [i for i in range(7) if n[i].sum()]
    totals = n.sum(axis=1)
    p = params.weights @ params.rows
    a = sum(naive.kl(n[i] / totals[i], np.ones(5)) * totals[i] for i in rows)
    divergence = sum(totals[i] * naive.kl(n[i] / totals[i], mixing[i] @ q) for i in rows)
    np.testing.assert_allclose(p, totals / n.sum())
    assert likelihood == pytest.approx(-divergence + sum(totals[i] * np.log(p[i]) for i in rows) + a)


@pytest.mark.parametrize("beta", BETAS)
def test_smm_predictive(beta):
    n, rng = counts(), np.random.RandomState(0)
    params = Aspects(rng.dirichlet(np.ones(3)), distributions(rng, 3, 7), distributions(rng, 3, 5))
    n_sparse, model = sp.csr_array(n), PredictiveAspectModel()
    R = np.zeros((7, 5, 3))
    for i, j in zip(*np.nonzero(n), strict=True):
        R[i, j] = naive.smm_responsibility(*params, i, j, beta)
    expected = naive.smm_predictive_posteriors(n, R, beta)
    first = model.step(n_sparse, params, beta)
    np.testing.assert_allclose(first.posteriors.entries[0], R[np.nonzero(n)], rtol=1e-5)
    second = model.step(n_sparse, first.params, beta, first.posteriors)
    np.testing.assert_allclose(second.posteriors.entries[0], expected[np.nonzero(n)], rtol=1e-5)
    np.testing.assert_allclose(
        second.params.weights, np.einsum("ij,ijk->k", n, expected) / n.sum(), rtol=1e-6
    )


@pytest.mark.parametrize("beta", [1.0, 0.7])
def test_smm_predictive_is_uniform_where_no_other_occurrence_says_anything(beta):
    """[1] footnote 11: a single occurrence in its row and column, whatever the weights."""
    n, model = sp.csr_array(np.diag([1.0, 2.0])), PredictiveAspectModel()
    step = model.step(n, Aspects(np.array([0.8, 0.2]), np.full((2, 2), 0.5), np.full((2, 2), 0.5)), beta)
    for _ in range(2):
        step = model.step(n, step.params, beta, step.posteriors)
        np.testing.assert_allclose(step.posteriors.entries[0][0], 0.5)
    assert step.posteriors.entries[0][1, 0] > 0.6


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_pmm(kind, beta):
    n, rng = counts(), np.random.RandomState(0)
    params = ProductAspects(
        rng.dirichlet(np.ones(6)).reshape(2, 3), distributions(rng, 2, 7), distributions(rng, 3, 5)
    )
    result = ProductAspectModel().step(kinds_of(n)[kind], params, beta)
    pi, p, q, F = naive.pmm_step(n, *params, beta)
    for ours, theirs in zip(result.params, (pi, p, q), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-300)
    assert result.free_energy == pytest.approx(F, rel=1e-10)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", ["dense", "csr", "image"])
def test_acm(kind, beta):
    rng = np.random.RandomState(0)
    if kind == "image":
        matrix, n = image_counts()
        groups = matrix.groups
        q = np.concatenate([distributions(rng, 3, 4), distributions(rng, 3, 4)], axis=1)
        tolerance = 1e-5
    else:
        n = counts()
        matrix, groups, q, tolerance = kinds_of(n)[kind], np.zeros(5, int), distributions(rng, 3, 5), 1e-10
    params = Profiles(q, rng.dirichlet(np.ones(3)))
    result = HistogramClustering().step(matrix, params, beta)
    Q = naive.acm_posteriors(n, *params, beta)
    np.testing.assert_allclose(result.posteriors, Q, atol=tolerance)
    np.testing.assert_allclose(result.params.profiles, naive.acm_profiles(n, Q, groups), atol=tolerance)
    np.testing.assert_allclose(result.params.weights, Q.mean(axis=0), atol=tolerance)
    F = naive.acm_free_energy(n, *params, Q, beta)
    assert result.free_energy == pytest.approx(F, rel=tolerance)


def test_acm_hard_takes_the_nearest_profile():
    n = counts(shape=(20, 5))
    n[2] = 1.0  # the nearest profile of an empty row is not defined
    params = Profiles(distributions(np.random.RandomState(0), 3, 5), np.ones(3) / 3)
    Q = HistogramClustering(ArgMax()).step(n, params, 1.0).posteriors
    np.testing.assert_array_equal(Q, naive.acm_hard(n, params.profiles))


@pytest.mark.parametrize(("mass", "correlation"), [(0.0, 0.0), (3.0, 0.0), (3.0, 0.2)])
@pytest.mark.parametrize("kind", ["dense", "csr", "image"])
def test_acm_predictive_leaves_the_row_out(kind, mass, correlation):
    matrix, n = image_counts() if kind == "image" else (kinds_of(counts())[kind], counts())
    groups = getattr(matrix, "groups", np.zeros(n.shape[1], int))
    rng = np.random.RandomState(0)
    Q, rho = rng.dirichlet(np.ones(2), size=len(n)), np.array([0.3, 0.7])
    background = rows_of_columns(matrix)
    caution = Caution(background, mass, 10.0, correlation, usual=4.0) if mass else Caution()
    model = PredictiveHistogramClustering(caution=caution)
    start = model.m_step(model.stats(matrix, Q), groups)._replace(weights=rho)
    result = model.step(matrix, start, 0.8, Q)
    for i in (0, 4):
        others = np.delete(np.arange(len(n)), i)
        S = Q[others].T @ n[others]
        totals = np.array([[S[k, groups == groups[j]].sum() for j in range(n.shape[1])] for k in range(2)])
        p = (S + mass * background) / (totals + mass)
        h = [sum(n[i, j] * np.log(p[k, j]) for j in np.flatnonzero(n[i])) for k in range(2)]
        beta = 0.8 * (1 + 3 * correlation) / (1 + (n[i].sum() - 1) * correlation)
        weights = rho * np.exp(beta * (np.array(h) - max(h)))
        np.testing.assert_allclose(result.posteriors[i], weights / weights.sum(), atol=1e-6)
    np.testing.assert_allclose(model.fold_in(matrix, start, 0.8), model.step(matrix, start, 0.8).posteriors)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_scm(kind, beta):
    n, rng = counts(), np.random.RandomState(0)
    rows, columns = rng.dirichlet(np.ones(2), size=7), rng.dirichlet(np.ones(3), size=5)
    model = TwoSidedClustering()
    start = model.start_from(kinds_of(n)[kind], rows, columns)
    c, joint = naive.scm_association(n, rows, columns)
    np.testing.assert_allclose(association(start), c)
    np.testing.assert_allclose(start.joint, joint)
    result = model.step(kinds_of(n)[kind], start, beta)
    rho, sigma = rows.mean(axis=0), columns.mean(axis=0)
    new_rows = naive.scm_side(n, columns, np.log(c), rho, beta)
    c, _ = naive.scm_association(n, new_rows, columns)
    new_columns = naive.scm_side(n.T, new_rows, np.log(c).T, sigma, beta)
    np.testing.assert_allclose(result.posteriors.rows, new_rows)
    np.testing.assert_allclose(result.posteriors.columns, new_columns)
    F = naive.scm_free_energy(n, new_rows, new_columns, np.log(c), rho, sigma, beta)
    assert result.free_energy == pytest.approx(F)


def test_scm_hard_free_energy_is_the_mutual_information_at_convergence():
    n = np.kron(np.array([[5.0, 1.0], [1.0, 7.0]]), np.ones((4, 3)))
    rows, columns = np.repeat(np.eye(2), 4, axis=0), np.repeat(np.eye(2), 3, axis=0)
    model = TwoSidedClustering(ArgMax())
    result = model.step(n, model.start_from(n, rows, columns), 1.0)
    expected = n.sum() * mutual_information(result.params.joint)
    assert -result.free_energy == pytest.approx(expected)


TREE = Tree([-1, 0, 0, 1, 1])


def expand(tree, tau):
    """From shares along the paths (K, D) to shares of nodes (K, V)."""
    out = np.zeros((len(tree.leaves), len(tree.parents)))
    for k, d in zip(*np.nonzero(tree.on_path), strict=True):
        out[k, tree.paths[k, d]] = tau[k, d]
    return out


def hierarchy(rng, M=5):
    vertical = TREE.on_path * rng.uniform(0.2, 1, (3, 3))
    return TreeProfiles(rng.dirichlet(np.ones(3)), normalise(vertical), distributions(rng, 5, M))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_hacm_with_mixing_of_each_cluster(kind, beta):
    n = counts()
    params = hierarchy(np.random.RandomState(0))
    tau = np.repeat(expand(TREE, params.vertical)[None], 7, axis=0)
    rho, _, tau_new, q, Q = naive.hacm_step(n + 0.0, params.weights, tau, params.nodes, beta)
    result = HierarchicalClustering(tree=TREE).step(kinds_of(n)[kind], params, beta)
    np.testing.assert_allclose(result.posteriors, Q)
    np.testing.assert_allclose(result.params.weights, rho)
    np.testing.assert_allclose(expand(TREE, result.params.vertical), tau_new, atol=1e-10)
    np.testing.assert_allclose(result.params.nodes, q, atol=1e-10)


def test_hacm_predictive_is_the_acm_when_leaves_say_everything():
    n, rng = counts(), np.random.RandomState(0)
    Q, rho = rng.dirichlet(np.ones(3), size=len(n)), rng.dirichlet(np.ones(3))
    flat = PredictiveHistogramClustering()
    profiles = flat.m_step(flat.stats(n, Q), np.zeros(5, int)).profiles
    model = PredictiveHierarchy(tree=TREE, learn_vertical=False)
    start = model.start_from(profiles, rho, np.zeros(5, int), leaf_share=1.0)
    expected = flat.step(n, Profiles(profiles, rho), 0.7, Q)
    found = model.step(n, start, 0.7, Q)
    np.testing.assert_allclose(found.posteriors, expected.posteriors, atol=1e-6)
    np.testing.assert_allclose(found.params.nodes[TREE.leaves], expected.params.profiles, atol=1e-6)


def test_hacm_predictive_takes_away_what_a_row_has_added_to_its_path():
    """Against the nodes of the tree estimated without the row, all else as it was."""
    rng = np.random.RandomState(0)
    n = rng.poisson(20 * rng.dirichlet(np.ones(8), size=30)) + 1.0
    Q, params = np.eye(3)[np.arange(30) % 3], hierarchy(rng, 8)
    tau = expand(TREE, params.vertical)
    plain = HierarchicalClustering(tree=TREE, learn_vertical=False)
    for _ in range(200):
        params = plain.m_step(plain.stats(n, Q), np.zeros(8, int), params)
    found = PredictiveHierarchy(tree=TREE, learn_vertical=False).step(n, params, 0.02, Q).posteriors
    V = tau[:, :, None] * params.nodes / (tau @ params.nodes)[:, None]
    for i in (0, 7):
        others = np.delete(np.arange(30), i)
        by_node = np.einsum("kvj,kj->vj", V, Q[others].T @ n[others])
        p = tau @ (by_node / by_node.sum(axis=1, keepdims=True))
        weights = params.weights * np.exp(0.02 * (np.log(p) @ n[i]))
        kept = params.weights * np.exp(0.02 * (np.log(tau @ params.nodes) @ n[i]))
        right, naive_ones = weights / weights.sum(), kept / kept.sum()
        print(found[i], right, naive_ones)
        assert np.abs(found[i] - right).max() < 0.1 * np.abs(naive_ones - right).max()


def test_hacm_predictive_shares_of_the_nodes_are_those_without_the_row():
    """Rows of one word each: its leaf explains a row best, but without the row the background at the root."""
    n, Q = 4.0 * np.eye(6), np.eye(3)[np.arange(6) % 3]
    background = np.full(6, 1 / 6)
    model = PredictiveHierarchy(tree=TREE, caution=Caution(background, 20.0, 8.0))
    params = model.start_from(Q.T @ n / 8, np.full(3, 1 / 3), np.zeros(6, int), leaf_share=0.5)
    params.nodes[0] = background
    shares = [
        kind.step(n, params, 1.0, Q).params.vertical for kind in (model, HierarchicalClustering(tree=TREE))
    ]
    leaf = np.arange(3), TREE.levels[TREE.leaves]
    assert (shares[0][:, 0] > 0.5).all() and (shares[0][leaf] < 0.5).all()
    assert (shares[1][leaf] > 0.5).all()


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_hacm_with_mixing_of_each_row(kind, beta):
    n, rng = counts(), np.random.RandomState(0)
    n[2] = [1, 0, 2, 0, 1]  # a row without counts has no mixing of its own
    params = hierarchy(rng)
    vertical = normalise(TREE.on_path * rng.uniform(0.2, 1, (7, 3, 3)))
    params = params._replace(vertical=vertical)
    tau = np.array([expand(TREE, row) for row in vertical])
    rho, tau_new, _, q, Q = naive.hacm_step(n, params.weights, tau, params.nodes, beta)
    result = ObjectMixing(tree=TREE).step(kinds_of(n)[kind], params, beta)
    np.testing.assert_allclose(result.posteriors, Q)
    np.testing.assert_allclose(result.params.weights, rho)
    np.testing.assert_allclose([expand(TREE, row) for row in result.params.vertical], tau_new)
    np.testing.assert_allclose(result.params.nodes, q)


def test_hacm_of_rows_starts_where_that_of_clusters_ends():
    n, params = counts(), hierarchy(np.random.RandomState(0))
    shared = HierarchicalClustering(tree=TREE).step(n, params, 0.7)
    own = ObjectMixing(tree=TREE)
    single = own.step(n, own.refine(params, len(n)), 0.7)
    np.testing.assert_allclose(single.posteriors, shared.posteriors)
    assert single.free_energy == pytest.approx(shared.free_energy)


# ---- limits


def test_pmm_with_diagonal_mixing_is_smm():
    n, rng = counts(), np.random.RandomState(0)
    pi, p, q = rng.dirichlet(np.ones(3)), distributions(rng, 3, 7), distributions(rng, 3, 5)
    product = ProductAspectModel().step(n, ProductAspects(np.diag(pi), p, q), 0.8)
    aspects = AspectModel().step(n, Aspects(pi, p, q), 0.8)
    np.testing.assert_allclose(product.params.mixing, np.diag(aspects.params.weights))
    np.testing.assert_allclose(product.params.rows, aspects.params.rows)
    np.testing.assert_allclose(product.params.columns, aspects.params.columns)
    assert product.free_energy == pytest.approx(aspects.free_energy)


def test_hacm_with_all_weight_on_the_leaves_is_acm():
    n, rng = counts(), np.random.RandomState(0)
    q, rho = distributions(rng, 3, 5), rng.dirichlet(np.ones(3))
    nodes = np.zeros((5, 5))
    nodes[TREE.leaves] = q
    nodes[:2] = 0.2
    leaves_only = (TREE.paths == TREE.leaves[:, None]).astype(float)
    model = HierarchicalClustering(tree=TREE, learn_vertical=False)
    tree_step = model.step(n, TreeProfiles(rho, leaves_only, nodes), 0.8)
    flat_step = HistogramClustering().step(n, Profiles(q, rho), 0.8)
    np.testing.assert_allclose(tree_step.posteriors, flat_step.posteriors)
    np.testing.assert_allclose(tree_step.params.nodes[TREE.leaves], flat_step.params.profiles)
    assert tree_step.free_energy == pytest.approx(flat_step.free_energy)


def test_acm_at_zero_temperature_is_hard_acm():
    n = counts(shape=(20, 5))
    params = Profiles(distributions(np.random.RandomState(0), 3, 5), np.ones(3) / 3)
    soft = HistogramClustering().step(n, params, 1e4).posteriors
    hard = HistogramClustering(ArgMax()).step(n, params, 1.0).posteriors
    has_counts = n.sum(axis=1) > 0
    np.testing.assert_allclose(soft[has_counts], hard[has_counts], atol=1e-12)


def test_scm_with_a_column_cluster_for_each_column_is_acm():
    n, rng = counts(), np.random.RandomState(0)
    n[:, 3] = 1.0
    rows = rng.dirichlet(np.ones(2), size=7)
    two_sided = TwoSidedClustering()
    ours = two_sided.step(n, two_sided.start_from(n, rows, np.eye(5)), 0.8)
    flat = HistogramClustering()
    params = flat.m_step(flat.stats(n, rows), np.zeros(5, int))
    np.testing.assert_allclose(ours.posteriors.rows, flat.step(n, params, 0.8).posteriors)


def test_one_cluster_is_the_marginal():
    n = counts()
    marginal = n.sum(axis=0) / n.sum()
    flat = HistogramClustering()
    np.testing.assert_allclose(flat.initial(n, 1, np.random.RandomState(0)).profiles[0], marginal)
    aspect = AspectModel().step(n, AspectModel().initial(n, 1, np.random.RandomState(0)), 0.7).params
    np.testing.assert_allclose(aspect.columns[0], marginal)
    np.testing.assert_allclose(aspect.rows[0], n.sum(axis=1) / n.sum())


def test_trees_say_what_they_need():
    with pytest.raises(ValueError, match="must begin with -1"):
        Tree([0, 0])
    with pytest.raises(ValueError, match="must begin with -1"):
        Tree([-1, 2, 0])
    with pytest.raises(ValueError, match="leaves must be the nodes without children"):
        Tree([-1, 0, 0], [1])
