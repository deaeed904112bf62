"""The posterior policies against plain loops, brute force and their own laws."""

import naive
import numpy as np
import pytest

from texseg.fitting.assignment import ArgMax, PottsField, SoftMax, soft_max


def random_scores(seed, N=60, K=3, scale=3.0):
    rng = np.random.RandomState(seed)
    return scale * rng.standard_normal((N, K)), rng.dirichlet(np.ones(K))


def gaussian_matrix(shape, sigma):
    """Dense G (N, N): a truncated, normalised Gaussian per axis, nothing beyond the border."""

    def axis(size):
        radius = round(sigma * 4)
        offsets = np.arange(-radius, radius + 1)
        kernel = np.exp(-(offsets**2) / (2 * sigma**2))
        kernel /= kernel.sum()
        out = np.zeros((size, size))
        for i in range(size):
            for offset, weight in zip(offsets, kernel, strict=True):
                if 0 <= i + offset < size:
                    out[i, i + offset] = weight
        return out

    return np.kron(axis(shape[0]), axis(shape[1]))


def test_soft_max_minimises_its_free_energy():
    scores, rho = random_scores(0)
    Q, F = SoftMax()(scores, 0.7, rho)
    direct = -0.7 * (Q * scores).sum() + naive.entropy_against(Q, rho)
    assert F == pytest.approx(direct, rel=1e-12)
    other = np.random.RandomState(1).dirichlet(np.ones(3), size=len(Q))
    for share in (1e-3, 0.1, 1.0):
        mixed = (1 - share) * Q + share * other
        assert -0.7 * (mixed * scores).sum() + naive.entropy_against(mixed, rho) > F


def test_soft_max_survives_extreme_scores():
    p, log_sum = soft_max(np.array([[1e6, -1e6], [-1e6, -1e6]]))
    np.testing.assert_array_equal(p, [[1, 0], [0.5, 0.5]])
    np.testing.assert_allclose(log_sum, [1e6, -1e6 + np.log(2)])


def test_cold_soft_max_is_arg_max():
    scores, rho = random_scores(2)
    cold, hard = SoftMax()(scores, 1e4, rho).posteriors, ArgMax()(scores, 1.0, rho).posteriors
    np.testing.assert_allclose(cold, hard, atol=1e-12)


def test_arg_max_free_energy_is_minus_the_best_scores():
    scores, rho = random_scores(3)
    Q, F = ArgMax()(scores, 2.0, rho)
    assert F == pytest.approx(-2.0 * scores.max(axis=1).sum())
    assert (Q.sum(axis=1) == 1).all()


@pytest.mark.parametrize("policy", [SoftMax, ArgMax])
def test_a_row_of_weight_two_is_two_rows(policy):
    scores, rho = random_scores(4)
    once, twice = policy()(scores, 1.0, rho), policy(np.full(len(scores), 2.0))(scores, 1.0, rho)
    np.testing.assert_allclose(twice.posteriors, 2 * once.posteriors)
    assert twice.free_energy == pytest.approx(2 * once.free_energy)
    terms = policy(np.full(len(scores), 2.0)).cluster_terms(twice.posteriors)
    np.testing.assert_allclose(terms, 2 * policy().cluster_terms(once.posteriors), rtol=1e-6)


@pytest.mark.parametrize("policy", [SoftMax(), ArgMax(), PottsField((6, 10), strength=2.0)])
def test_cluster_terms_add_up_to_the_priors_term(policy):
    scores, rho = random_scores(5)
    Q = policy(scores, 1.0, rho).posteriors
    terms = policy.cluster_terms(Q)
    best_rho = Q.mean(axis=0)
    if isinstance(policy, SoftMax):
        expected = naive.entropy_against(Q, best_rho)
    elif isinstance(policy, ArgMax):
        expected = 0.0
    else:
        G = gaussian_matrix((6, 10), 1.5)
        expected = naive.potts_free_energy(np.zeros_like(Q), Q, 1.0, 2.0, G)
    assert terms.sum() == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_potts_field_is_a_dense_gaussian_neighbourhood():
    Q = np.random.RandomState(6).dirichlet(np.ones(3), size=70)
    field = PottsField((7, 10), strength=4.0, sigma=1.2).field(Q)
    np.testing.assert_allclose(field, 4.0 * gaussian_matrix((7, 10), 1.2) @ Q, atol=1e-12)


def test_scores_and_earlier_posteriors_may_be_of_different_precision():
    scores, rho = random_scores(7, N=70)
    field = PottsField((7, 10), strength=4.0)
    before = field(scores, 1.0, rho).posteriors
    expected = field(scores, 1.0, rho, before).free_energy
    for one, other in ((np.float32, np.float64), (np.float64, np.float32)):
        found = field(scores.astype(one), 1.0, rho, before.astype(other))
        assert found.free_energy == pytest.approx(expected, rel=1e-5)


def test_potts_free_energy_against_the_dense_formula():
    scores, rho = random_scores(7, N=70)
    Q, F = PottsField((7, 10), strength=4.0, sigma=1.2)(scores, 0.6, rho)
    expected = naive.potts_free_energy(scores, Q, 0.6, 4.0, gaussian_matrix((7, 10), 1.2))
    assert F == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("strength", [0.5, 10.0, 100.0, 900.0])
@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.5, 4.0])
@pytest.mark.parametrize("scale", [0.1, 5.0])
def test_potts_free_energy_never_rises(strength, sigma, scale):
    """All sites at once, from a checkerboard start that makes a repulsive parallel update oscillate."""
    scores, rho = random_scores(8, N=12 * 15, scale=scale)
    policy = PottsField((12, 15), strength, sigma, n_sweeps=1)
    board = np.indices((12, 15)).sum(axis=0).ravel() % 2
    Q = np.stack([board, 1 - board, np.zeros_like(board)], axis=1) * 0.98 + 0.02 / 3
    energies = []
    for _ in range(30):
        Q, F = policy(scores, 1.0, rho, Q)
        energies.append(F)
    assert (np.diff(energies) <= 1e-9 * np.abs(energies[:-1])).all()


def test_neighbourhood_is_almost_positive_so_that_sweeps_descend():
    for sigma in (0.3, 0.8, 1.5, 4.0):
        assert np.linalg.eigvalsh(gaussian_matrix((12, 15), sigma)).min() > -1e-3


def test_potts_grids_do_not_see_each_other():
    scores, rho = random_scores(9, N=30 + 20)
    both = PottsField([(5, 6), (4, 5)])(scores, 1.0, rho)
    first = PottsField((5, 6))(scores[:30], 1.0, rho)
    second = PottsField((4, 5))(scores[30:], 1.0, rho)
    np.testing.assert_allclose(both.posteriors, np.concatenate([first.posteriors, second.posteriors]))
    assert both.free_energy == pytest.approx(first.free_energy + second.free_energy)


def test_sites_without_data_pull_at_nobody():
    scores, rho = random_scores(10, N=48)
    present = np.ones((6, 8))
    present[:, 3:] = 0
    masked = PottsField((6, 8), presence=present.ravel())(scores, 1.0, rho).posteriors.reshape(6, 8, 3)
    alone = PottsField((6, 3))(scores.reshape(6, 8, 3)[:, :3].reshape(18, 3), 1.0, rho).posteriors
    np.testing.assert_allclose(masked[:, :3].reshape(18, 3), alone)


def test_strong_field_removes_single_sites():
    truth = np.zeros((10, 10), int)
    truth[:, 5:] = 1
    noisy = truth.copy()
    noisy[2, 2] = 1
    scores = np.eye(2)[noisy.ravel()]
    Q = PottsField((10, 10), strength=10.0)(scores, 1.0, np.ones(2)).posteriors
    np.testing.assert_array_equal(Q.argmax(axis=1).reshape(10, 10), truth)


def test_single_precision_stays_single():
    scores, rho = random_scores(11)
    for policy in (SoftMax(), ArgMax(), PottsField((6, 10))):
        assert policy(scores.astype(np.float32), 1.0, rho).posteriors.dtype == np.float32
