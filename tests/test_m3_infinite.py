"""InfiniteM3: samplers by law, families against scipy."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import multivariate_normal, wishart
from sklearn.metrics import normalized_mutual_info_score

from texseg.m3 import InfiniteM3, OffsetGaussians, SharedGaussians
from texseg.m3.families import take
from texseg.m3.gibbs import (
    OMEGA_GRID,
    Chain,
    Seats,
    Sharing,
    Sticks,
    draw_omega,
    draw_sticks,
    first_state,
    log_likelihood,
    next_weights,
    step,
    stick_concentrations,
)
from texseg.m3.sampled import representative, waic


class Flat(NamedTuple):
    """A family under which every point is as likely everywhere: memberships follow the prior alone."""

    def prepare(self, X):
        return self

    def invariant(self, X):
        return X

    def draw_first(self, rng, size):
        return (np.zeros(size),)

    def draw_second(self, rng, size):
        return (np.zeros(size),)

    def log_density(self, X, first, second):
        return np.zeros((len(X), first[0].shape[1], second[0].shape[1]))

    def resample_first(self, rng, X, z1, z2, size, second):
        return (np.zeros(size),)

    def resample_second(self, rng, X, z1, z2, first, second):
        return second


def numbered(z):
    return np.unique(z, return_inverse=True)[1]


def tied(state):
    """Whether both memberships are one partition."""
    n_pairs = np.unique(np.stack([state.z1, state.z2]), axis=1).shape[1]
    return n_pairs == len(np.unique(state.z1)) == len(np.unique(state.z2))


def halves(alpha, omega):
    return Sharing(alpha, omega, (1 - omega) / 2, (1 - omega) / 2)


def expected_tables(concentration, N):
    return (concentration / (concentration + np.arange(N))).sum()


@pytest.mark.parametrize("sharing", [Sharing(1.5, 1.0, 0.0, 0.0), Sharing(2.0, 0.0, 0.7, 0.3)])
def test_limits_are_chinese_restaurants(sharing):
    """One process at omega = 1, two at 0."""
    rng, N = np.random.default_rng(1), 8
    alpha, omega, omega1, omega2 = sharing
    expected = (alpha, alpha) if omega else (alpha * omega1, alpha * omega2)
    start = np.zeros(N, int)
    state = first_state(rng, np.zeros((N, 1)), (start, start), Flat(), sharing)
    sizes = []
    for _ in range(1500):
        state = step(rng, np.zeros((N, 1)), state, Flat(), 2)
        sizes.append(state.sizes)
        if omega == 1:
            assert tied(state)
    for side in (0, 1):
        mean = expected_tables(expected[side], N)
        assert np.mean(np.array(sizes)[:, side]) == pytest.approx(mean, abs=0.15)


FAMILY = SharedGaussians(mean=[0.0], mean_covariance=[[4.0]], degrees=8, scale=[[6.0]]).prepare(
    np.zeros((2, 1))
)


def pick(rng, sticks, gamma):
    """Draw from a Dirichlet process of which `sticks` are known; breaks new ones off the rest."""
    u, total = rng.random(), 0.0
    for k, length in enumerate(sticks):
        total += length
        if u < total:
            return k
    while True:
        length = rng.beta(1.0, gamma) * (1.0 - sum(sticks))
        sticks.append(length)
        total += length
        if u < total:
            return len(sticks) - 1


OFFSETS = OffsetGaussians(
    mean=[0.0], mean_covariance=[[4.0]], offset_covariance=[[2.0]], degrees=8, scale=[[6.0]]
).prepare(np.zeros((2, 1)))


def draw_prior(rng, N, sharing, family):
    """Memberships, sticks and parameters from the exchangeable prior (or one Dirichlet process)."""
    if sharing.omega == 1:
        z = [0]
        for i in range(1, N):
            counts = np.append(np.bincount(z), sharing.alpha)
            z.append(int(rng.choice(len(counts), p=counts / (i + sharing.alpha))))
        z1 = z2 = np.array(z)
        sticks = Sticks(*[np.append(np.zeros(z1.max() + 1), 1.0)] * 2)
    else:
        gammas, lengths, pairs = stick_concentrations(sharing), ([], []), []
        kappa = sharing.alpha / sharing.omega
        for i in range(N):
            if rng.random() < kappa / (kappa + i):
                pairs.append((pick(rng, lengths[0], gammas[0]), pick(rng, lengths[1], gammas[1])))
            else:
                pairs.append(pairs[rng.integers(i)])
        used = [np.unique(z, return_inverse=True) for z in np.array(pairs).T]
        kept = [np.array(lengths[s])[used[s][0]] for s in (0, 1)]
        sticks = Sticks(*(np.append(k, 1.0 - k.sum()) for k in kept))
        z1, z2 = used[0][1], used[1][1]
    first, second = family.draw_first(rng, z1.max() + 1), family.draw_second(rng, z2.max() + 1)
    return Chain(z1, z2, first, second, sharing, sticks)


def draw_data(rng, state):
    """One column; an offset is there if the second side has two parameters."""
    *offsets, whiteners = state.second
    centres = state.first[0][state.z1] + sum(offset[state.z2] for offset in offsets)
    return centres + rng.standard_normal((len(state.z1), 1)) / whiteners[state.z2][:, :, 0]


def summary(state, X):
    n1, n2 = np.bincount(state.z1), np.bincount(state.z2)
    place, second = state.first[0][state.z1][:, 0], [p[state.z2].ravel() for p in state.second]
    second[-1] = np.log(second[-1])
    pairs = len(np.unique(state.z1 * 100 + state.z2))
    values = [
        len(n1), len(n2), pairs, (n1**2).sum(), (n2**2).sum(), (n1 == 1).sum(), (n2 == 1).sum(),
        place.mean(), (place**2).mean(), np.abs(X).mean(), state.sharing.omega,
    ]  # fmt: skip
    for parameter in second:
        values += [parameter.mean(), (parameter**2).mean(), (place * parameter).mean()]
    return [*values, (second[0] * second[-1]).mean()]


@pytest.mark.parametrize(("omega", "family"), [(1.0, FAMILY), (None, FAMILY), (None, OFFSETS)])
def test_geweke_joint_distribution(omega, family):
    """(Data | state, state | data) in turn leave the joint law as it is (Geweke 2004).

    Many short chains start from exact draws, so that before and after differ by independent amounts with
    mean zero.
    """
    rng, n_chains, n_points = np.random.default_rng(5), 300, 5
    moved = []
    for _ in range(n_chains):
        sharing = halves(1.3, float(rng.choice(OMEGA_GRID)) if omega is None else omega)
        state = draw_prior(rng, n_points, sharing, family)
        X = draw_data(rng, state)
        before = summary(state, X)
        for _ in range(5):
            state = step(rng, X, state, family, 2, learn_omega=omega is None)
            X = draw_data(rng, state)
        moved.append(np.subtract(summary(state, X), before))
    moved = np.array(moved)
    error = moved.std(axis=0, ddof=1) / np.sqrt(n_chains)
    assert (np.abs(moved.mean(axis=0)) <= 3.5 * error + 1e-12).all()


def test_omega_is_drawn_from_its_posterior_given_pairs_and_sticks():
    """With omega from its prior, and pairs and sticks given it, a new draw has the same joint law."""
    rng, changes = np.random.default_rng(3), []
    for _ in range(1500):
        omega = float(rng.choice(OMEGA_GRID))
        state = draw_prior(rng, 8, halves(1.3, omega), FAMILY)
        drawn = draw_omega(rng, state.sharing, state.z1, state.z2, state.sticks).omega
        rests = state.sticks.first[-1], state.sticks.second[-1]
        pairs = len(np.unique(state.z1 * 100 + state.z2))
        given = np.array([1.0, omega, *state.sizes, pairs, *rests, *np.log(rests)])
        changes.append((drawn - omega) * given)
        changes[-1][1] = drawn**2 - omega**2
    error = np.std(changes, axis=0, ddof=1) / np.sqrt(len(changes))
    assert (np.abs(np.mean(changes, axis=0)) <= 3.5 * error).all()


def test_names_of_components_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 1))
    z1, z2 = np.array([0, 0, 1, 2, 2, 3, 1, 0]), np.array([0, 1, 1, 0, 2, 2, 0, 1])
    state = first_state(rng, X, (z1, z2), FAMILY, halves(1.5, 0.4))
    order1, order2 = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
    sticks = Sticks(state.sticks.first[[*order1, 4]], state.sticks.second[[*order2, 3]])
    renamed = state._replace(
        z1=np.argsort(order1)[z1], z2=np.argsort(order2)[z2], first=take(state.first, order1),
        second=take(state.second, order2), sticks=sticks,
    )  # fmt: skip
    expected = next_weights(state)[np.ix_([*order1, 4], [*order2, 3])]
    np.testing.assert_allclose(next_weights(renamed), expected)
    assert log_likelihood(X, renamed, FAMILY) == pytest.approx(log_likelihood(X, state, FAMILY))
    one, other = (
        draw_omega(np.random.default_rng(1), s.sharing, s.z1, s.z2, s.sticks) for s in (state, renamed)
    )
    assert one == other


def test_exchangeable_weights_are_the_urn():
    rng = np.random.default_rng(0)
    z1, z2 = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
    sharing = halves(2.0, 0.4)
    sticks = draw_sticks(rng, sharing, z1, z2, Sticks.even(3, 2))
    assert sticks.first.sum() == pytest.approx(1.0)
    state = Chain(z1, z2, (z1,), (z2,), sharing, sticks)
    kappa = 2.0 / 0.4
    n = np.zeros((4, 3))
    np.add.at(n, (z1, z2), 1)
    expected = (n + kappa * np.multiply.outer(sticks.first, sticks.second)) / (4 + kappa)
    np.testing.assert_allclose(next_weights(state), expected)
    seats = Seats(sharing, z1, z2, 2, sticks)
    before = seats.weights().sum()
    seats.remove(2 + 2, 2 + 0)
    assert seats.weights().sum() == pytest.approx(before - 0.4 / 2.0)
    assert seats.weights()[4].sum() == 0


def test_shared_gaussians_agree_with_scipy():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((6, 3))
    family = SharedGaussians(scale=0.5).prepare(X)
    first, second = family.draw_first(rng, 2), family.draw_second(rng, 4)
    logs = family.log_density(X, (first[0][None],), (second[0][None],))
    for c, d in np.ndindex(2, 4):
        covariance = np.linalg.inv(second[0][d].T @ second[0][d])
        expected = multivariate_normal(first[0][c], covariance).logpdf(X)
        np.testing.assert_allclose(logs[:, c, d], expected)
    repeated = (np.broadcast_to(first[0], (6, 2, 3)),), (np.broadcast_to(second[0], (6, 4, 3, 3)),)
    own = family.log_density(X, *repeated)
    np.testing.assert_allclose(own, logs)


def test_offset_gaussians_agree_with_scipy():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((5, 3))
    ones = np.ones((3, 1))
    family = OffsetGaussians(directions=ones, scale=0.5).prepare(X)
    first, second = family.draw_first(rng, 2), family.draw_second(rng, 3)
    logs = family.log_density(X, (first[0][None],), tuple(p[None] for p in second))
    for c, d in np.ndindex(2, 3):
        covariance = np.linalg.inv(second[1][d].T @ second[1][d])
        centre = first[0][c] + ones @ second[0][d]
        np.testing.assert_allclose(logs[:, c, d], multivariate_normal(centre, covariance).logpdf(X))


def test_posterior_draws_have_the_conjugate_moments():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((30, 2)) + [1.0, 0.0]
    z = np.zeros(30, int)
    family = SharedGaussians(mean=[0, 0], mean_covariance=np.eye(2), degrees=6, scale=np.eye(2)).prepare(X)
    means, root = (np.array([[0.9, 0.1]]),), np.linalg.cholesky(np.array([[2.0, 0.5], [0.5, 1.0]])).T
    drawn = [family.resample_second(rng, X, z, z, means, (root[None],))[0] for _ in range(4000)]
    precisions = np.concatenate(drawn).swapaxes(1, 2) @ np.concatenate(drawn)
    scatter = (X - means[0]).T @ (X - means[0])
    expected = wishart(36, np.linalg.inv(np.eye(2) + scatter)).mean()
    np.testing.assert_allclose(precisions.mean(axis=0), expected, rtol=0.03, atol=0.02)
    precision = root.T @ root
    draws = np.concatenate([family.resample_first(rng, X, z, z, 1, (root[None],))[0] for _ in range(4000)])
    posterior = np.eye(2) + 30 * precision
    centre = np.linalg.solve(posterior, precision @ X.sum(axis=0))
    np.testing.assert_allclose(draws.mean(axis=0), centre, atol=0.01)
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(posterior), atol=0.003)


def crosses(seed=0, N=100):
    """Two crossing covariances at each of three means (as in Fig. 1), and the best guess at the pairs."""
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    roots = np.array([[2.4, 0.17], [0.17, 2.4]])
    z1, z2 = rng.integers(3, size=N), rng.integers(2, size=N)
    X = means[z1] + roots[z2] * rng.standard_normal((N, 2))
    known = np.stack([multivariate_normal(m, np.diag(r**2)).logpdf(X) for m in means for r in roots], axis=1)
    return X, z1, z2, known.argmax(axis=1)


def test_shared_parameters_are_found():
    X, z1, z2, guess = crosses()
    family = SharedGaussians(scale=0.05)
    model = InfiniteM3(family, n_sweeps=150, burn_in=75, random_state=0).fit(X)
    best = normalized_mutual_info_score(guess, z1 * 2 + z2)
    assert normalized_mutual_info_score(model.labels_, z1 * 2 + z2) > best - 0.1
    best = normalized_mutual_info_score(guess // 2, z1)
    assert normalized_mutual_info_score(model.memberships_[:, 0], z1) > best - 0.1
    assert model.n_components_[0] <= 5
    assert model.n_components_[1] <= 4
    assert (model.predict(X) == model.labels_).mean() > 0.9
    pairs = model.predict_memberships(X)
    assert (pairs == model.memberships_).all(axis=1).mean() > 0.9
    together = model.coclustering()
    assert together.shape == (100, 100)
    np.testing.assert_allclose(np.diagonal(together), 1.0)
    assert (model.coclustering(side=1) >= together).all()
    assert len(model.history_.n_pairs) == 150
    assert len(model.samples_) == 15
    with pytest.raises(ValueError, match="side must be None, 0 or 1, got 2"):
        model.coclustering(side=2)


@pytest.mark.parametrize("options", [{"omega": 1.0}, {}])
def test_density_has_integral_one(options):
    X = np.concatenate([np.random.default_rng(0).normal(m, 1, 20) for m in (-3, 3)])[:, None]
    model = InfiniteM3(n_sweeps=40, burn_in=20, random_state=0, **options).fit(X)
    grid = np.linspace(-200, 200, 40001)
    density = np.exp(model.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=2e-3)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


def test_of_several_runs_the_best_by_watanabes_criterion_stays():
    """Two kinds of spread at one place: a start with one covariance and one with many, told apart by hand."""
    X = crosses(N=60)[0]
    settings = {"n_sweeps": 30, "burn_in": 20, "thin": 2, "n_start": 4}
    several = InfiniteM3(n_init=3, random_state=5, **settings).fit(X)
    assert len(several.samples_) == 5
    assert several.n_iter_ == len(several.history_.omega) == 30
    criteria = []
    for n_init in (1, 2, 3):
        model = InfiniteM3(n_init=n_init, random_state=5, **settings).fit(X)
        criteria.append(waic(X, model.samples_, model.family_))
    assert criteria == sorted(criteria)
    assert criteria[0] < criteria[2] == waic(X, several.samples_, several.family_)


def test_watanabes_criterion_in_loops():
    X = crosses(N=12)[0]
    model = InfiniteM3(n_sweeps=20, burn_in=10, thin=3, random_state=0).fit(X)
    total = 0.0
    for x in X:
        densities = []
        for sample in model.samples_:
            density = 0.0
            for c, d in np.ndindex(sample.weights.shape):
                covariance = np.linalg.inv(sample.second[0][d].T @ sample.second[0][d])
                density += sample.weights[c, d] * multivariate_normal(sample.first[0][c], covariance).pdf(x)
            densities.append(density)
        total += np.log(np.mean(densities)) - np.var(np.log(densities), ddof=1)
    assert waic(X, model.samples_, model.family_) == pytest.approx(total)
    assert np.isfinite(waic(X, model.samples_[:1], model.family_))


def test_omega_one_ties_both_memberships():
    X = crosses(N=40)[0]
    model = InfiniteM3(omega=1.0, n_sweeps=20, burn_in=10, random_state=1).fit(X)
    for sample in model.samples_:
        assert tied(sample)


@pytest.mark.parametrize("options", [{}, {"omega": 1.0}, {"omega": 0.0}])
def test_one_point(options):
    model = InfiniteM3(n_sweeps=8, burn_in=2, thin=1, random_state=0, **options).fit([[3.0, 4.0]])
    assert model.labels_.tolist() == [0]
    assert np.isfinite(model.score_samples([[3.0, 4.0]])).all()


def test_far_outliers_do_not_underflow():
    X = np.concatenate([np.random.default_rng(0).normal(0, 0.01, (40, 1)), [[1e4]]])
    for omega in (0.5, 1.0):
        model = InfiniteM3(omega=omega, n_sweeps=60, burn_in=20, thin=2, random_state=0).fit(X)
        assert model.labels_[-1] not in model.labels_[:-1]


def test_same_seed_same_answer_and_inputs_stay():
    X = crosses(N=30)[0]
    before = X.copy()
    one, two = (InfiniteM3(n_sweeps=10, burn_in=5, random_state=3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.history_.log_likelihood, two.history_.log_likelihood)
    np.testing.assert_array_equal(X, before)


def test_representative_is_the_least_binder_loss():
    partitions = [np.array(p) for p in ([0, 0, 1, 1], [0, 0, 1, 2], [0, 1, 2, 3], [5, 5, 1, 1])]
    together = [z[:, None] == z[None] for z in partitions]
    losses = [sum((a != b).sum() for b in together) for a in together]
    assert representative(partitions) == int(np.argmin(losses))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0}, "alpha of InfiniteM3 must be above 0, got 0"),
        ({"alpha": "one"}, "alpha of InfiniteM3 must be above 0, got 'one'"),
        ({"burn_in": "half"}, "burn_in of InfiniteM3 must be in 0 ... n_sweeps - 1 = 199, got 'half'"),
        ({"omega": "half"}, "omega of InfiniteM3 must be None or in 0 ... 1, got 'half'"),
        (
            {"family": SharedGaussians},
            "family of InfiniteM3 must be None, or one such as .*, got <class",
        ),
        ({"omega": 2}, "omega of InfiniteM3 must be None or in 0 ... 1, got 2"),
        ({"omega": 0.5, "omega1": 0.4, "omega2": 0.4}, "with which their sum is 1, .*, got 0.5, 0.4 and 0.4"),
        ({"omega1": 0.4}, "omega1 and omega2 of InfiniteM3 need omega, .*, got None, 0.4 and None"),
        ({"omega": 0.5, "omega1": 0.5}, "must be above 0 unless it is 1"),
        ({"omega": 0.5, "omega2": 0.0}, "must be above 0 unless it is 1"),
        ({"burn_in": 200}, "burn_in of InfiniteM3 must be in 0 ... n_sweeps - 1 = 199, got 200"),
        ({"thin": 0}, "thin of InfiniteM3 must be a whole number of at least 1, got 0"),
        ({"n_init": 0}, "n_init of InfiniteM3 must be a whole number of at least 1, got 0"),
        ({"n_init": 1.5}, "n_init of InfiniteM3 must be a whole number of at least 1, got 1.5"),
        ({"n_init": None}, "n_init of InfiniteM3 must be a whole number of at least 1, got None"),
        ({"n_sweeps": 0}, "n_sweeps of InfiniteM3 must be a whole number of at least 1, got 0"),
        ({"family": SharedGaussians(degrees=0.5)}, "degrees of SharedGaussians must exceed 1"),
        ({"family": SharedGaussians(mean=[1.0])}, r"mean of SharedGaussians must have shape \(2,\)"),
        ({"family": SharedGaussians(scale=-1.0)}, "scale of SharedGaussians must be a positive number"),
        ({"family": OffsetGaussians(directions=np.ones((3, 1)))}, "independent columns of length 2"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        InfiniteM3(**settings).fit(np.eye(2))
