"""HybridM3: a Dirichlet process on one side, a fit on the other."""

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from texseg.m3 import HybridM3, OffsetGaussians, SharedGaussians
from texseg.m3.hybrid import _fit_second, _Hybrid, _sample_first


def arrangement(seed=0, N=150):
    """Things used in three ways round each of four people."""
    rng = np.random.default_rng(seed)
    people = np.array([[0.0, 0.0], [8.0, 1.0], [1.0, 9.0], [9.0, 9.0]])
    uses = np.array([[0.0, 0.0], [2.0, 0.5], [-0.5, 2.0]])
    z1, z2 = rng.integers(4, size=N), rng.integers(3, size=N)
    return people[z1] + uses[z2] + 0.2 * rng.standard_normal((N, 2)), z1, z2


def test_planted_places_and_uses_are_found():
    X, z1, z2 = arrangement()
    family = OffsetGaussians(offset_covariance=0.1, scale=0.003)
    model = HybridM3(3, family=family, n_sweeps=60, burn_in=30, n_start=8, n_init=8, random_state=0).fit(X)
    assert normalized_mutual_info_score(model.memberships_[:, 0], z1) > 0.9
    assert normalized_mutual_info_score(model.memberships_[:, 1], z2) > 0.9
    assert (model.predict(X) == model.labels_).mean() > 0.95
    assert len(model.history_) == len(model.n_first_) == 60


def test_density_has_integral_one():
    X = np.concatenate([np.random.default_rng(0).normal(m, 1, 20) for m in (-3, 3)])[:, None]
    model = HybridM3(2, n_sweeps=20, burn_in=10, random_state=0).fit(X)
    grid = np.linspace(-200, 200, 40001)
    assert np.trapezoid(np.exp(model.score_samples(grid[:, None])), grid) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("family", [SharedGaussians(), OffsetGaussians()])
def test_fitting_the_second_side_raises_the_mean_likelihood(family):
    rng = np.random.default_rng(1)
    X, _, _ = arrangement(1, 80)
    family = family.prepare(X)
    second = family.draw_second(rng, 3)
    z2, even = rng.integers(3, size=80), np.full(3, 1 / 3)
    drawn = [
        _Hybrid(rng.integers(4, size=80), z2, family.draw_first(rng, 4), second, even) for _ in range(40)
    ]
    fitted = _fit_second(X, drawn, family)

    def objective(z2, second):
        total = 0.0
        for d in drawn:
            logs = family.log_density(X, tuple(p[None] for p in d.first), tuple(p[None] for p in second))
            total += logs[np.arange(80), d.z1, z2].sum()
        return total / len(drawn)

    assert objective(fitted.z2, fitted.second) > objective(drawn[0].z2, second)
    nudged = tuple(p * 1.05 for p in fitted.second)
    assert objective(fitted.z2, fitted.second) > objective(fitted.z2, nudged)
    assert fitted.shares.sum() == pytest.approx(1.0)


def test_the_first_side_is_sampled_from_its_posterior_given_the_second():
    """Geweke's joint-distribution test with a Chinese restaurant on the first side, the second side fixed."""
    rng, n_chains, alpha = np.random.default_rng(2), 300, 1.3
    family = OffsetGaussians(mean=[0.0], mean_covariance=[[4.0]]).prepare(np.zeros((2, 1)))
    z2, second = np.array([0, 1, 0, 1, 1]), (np.array([[-1.0], [2.0]]), np.array([[[1.0]], [[2.0]]]))

    def draw_data(state):
        noise = rng.standard_normal((5, 1)) / second[1][z2][:, :, 0]
        return state.first[0][state.z1] + second[0][z2] + noise

    def summary(state, X):
        counts, place = np.bincount(state.z1), state.first[0][state.z1][:, 0]
        cross = (state.z1[:, None] == state.z1)[z2 == 0][:, z2 == 1].mean()
        moments = place.mean(), (place**2).mean(), place @ z2, np.abs(X).mean()
        return [len(counts), (counts**2).sum(), cross, *moments]

    moved = []
    for _ in range(n_chains):
        z = [0]
        for i in range(1, 5):
            counts = np.append(np.bincount(z), alpha)
            z.append(int(rng.choice(len(counts), p=counts / (i + alpha))))
        state = _Hybrid(np.array(z), z2, family.draw_first(rng, max(z) + 1), second, np.full(2, 0.5))
        X = draw_data(state)
        before = summary(state, X)
        for _ in range(5):
            state = _sample_first(rng, X, state, family, alpha, 2)
            X = draw_data(state)
        moved.append(np.subtract(summary(state, X), before))
    error = np.std(moved, axis=0, ddof=1) / np.sqrt(n_chains)
    assert (np.abs(np.mean(moved, axis=0)) <= 3.5 * error).all()


def test_one_component_on_the_finite_side_is_a_mixture_with_one_covariance():
    X = np.concatenate([np.random.default_rng(0).normal(m, 0.5, (30, 2)) for m in (0, 5, 10)])
    model = HybridM3(1, n_sweeps=60, burn_in=30, random_state=0).fit(X)
    assert model.n_components_[1] == 1
    assert normalized_mutual_info_score(model.labels_, np.repeat([0, 1, 2], 30)) > 0.9


def test_one_point():
    model = HybridM3(2, n_sweeps=6, burn_in=2, random_state=0).fit([[1.0, 2.0]])
    assert model.labels_.tolist() == [0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components of HybridM3 must be a whole number of at least 1, got 0"),
        ({"alpha": -1}, "alpha of HybridM3 must be above 0, got -1"),
        ({"n_draws": 0}, "n_draws of HybridM3 must be a whole number of at least 1, got 0"),
        ({"burn_in": 500}, "burn_in of HybridM3 must be in 0"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        HybridM3(**settings).fit(np.eye(2))
