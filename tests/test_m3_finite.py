"""FiniteM3: Eq. 7-12 of the M3 paper as loops, limits, bounds, gradients, recovery."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, psi
from sklearn.decomposition import LatentDirichletAllocation

from texseg.counts.matrix import WindowedCounts
from texseg.m3 import FiniteM3
from texseg.m3.finite import Switch, Topics, divergence, fit_concentrations, shares_of


def draw_documents(rng, topics, alpha, omega, n_documents, length):
    """Counts drawn word by word from Eq. 7."""
    first, second = topics
    n = np.zeros((n_documents, first.shape[1]))
    for d in range(n_documents):
        pi1 = rng.dirichlet(np.broadcast_to(alpha[0], len(first)))
        pi2 = rng.dirichlet(np.broadcast_to(alpha[1], len(second)))
        p = (1 + omega) / 2 * pi1 @ first + (1 - omega) / 2 * pi2 @ second
        n[d] = rng.multinomial(length, p / p.sum())
    return n


def random_topics(rng, K1, K2, M, omega=0.3, alpha=(0.7, 1.3)):
    concentrations = np.repeat(alpha, (K1, K2))
    spaces = rng.dirichlet(np.ones(M), K1), rng.dirichlet(np.ones(M), K2)
    return Topics(spaces, shares_of(omega), concentrations)


@pytest.fixture
def documents():
    rng = np.random.default_rng(3)
    n = rng.poisson(0.8, (12, 9)).astype(float)
    n[4] = 0
    return n


def test_switch_step_is_the_formula_in_loops(documents):
    rng = np.random.default_rng(0)
    topics = random_topics(rng, 3, 2, 9)
    gamma = rng.gamma(2.0, 1.0, (12, 5))
    found = Switch(0.0).expect(sp.csr_array(documents), gamma, topics, max_steps=1)
    a, b = (1 + 0.3) / 2, (1 - 0.3) / 2
    expected = np.zeros_like(gamma)
    for d in range(12):
        e1 = np.exp(psi(gamma[d, :3]) - psi(gamma[d, :3].sum()))
        e2 = np.exp(psi(gamma[d, 3:]) - psi(gamma[d, 3:].sum()))
        expected[d] = [0.7] * 3 + [1.3] * 2
        for x in range(9):
            parts = np.append(e1 * a * topics.spaces[0][:, x], e2 * b * topics.spaces[1][:, x])
            expected[d] += documents[d, x] * parts / parts.sum()
    np.testing.assert_allclose(found.memory, expected, rtol=1e-12)
    assert found.stats[0].sum() + found.stats[1].sum() == pytest.approx(documents.sum())


@pytest.mark.parametrize("topic_prior", [0.0, 0.3])
def test_bound_never_falls(documents, topic_prior):
    model = FiniteM3((3, 2), topic_prior=topic_prior, warm_up=4, max_iter=10, tol=0, random_state=0).fit(
        documents
    )
    assert len(model.history_) == 10
    assert np.diff(model.history_).min() > -1e-9 * abs(model.lower_bound_)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1.0)
    assert 0 <= model.omega_ <= 1


def test_dense_sparse_and_image_counts_agree():
    bins = np.random.default_rng(0).integers(0, 4, (2, 5, 6)).astype(np.uint8)
    image = WindowedCounts(bins, window=3, n_bins=4, normalize=False)
    dense = np.asarray(image @ np.eye(8), dtype=float)
    settings = {"warm_up": 3, "max_iter": 6, "random_state": 0}
    models = [FiniteM3((3, 2), **settings).fit(n) for n in (dense, sp.csr_array(dense), image)]
    for model in models[1:]:
        np.testing.assert_allclose(model.history_, models[0].history_, rtol=1e-6)
    np.testing.assert_allclose(models[2].transform(image), models[0].transform(dense), atol=1e-5)
    with pytest.raises(ValueError, match="X has 8 features, but FiniteM3 is expecting 9 features"):
        FiniteM3(random_state=0, max_iter=1).fit(np.eye(9)).transform(image)


def test_permuting_components_permutes_the_step(documents):
    rng = np.random.default_rng(2)
    topics = random_topics(rng, 3, 2, 9)
    order1, order2 = [2, 0, 1], [1, 0]
    first, second = topics.spaces
    swapped = topics._replace(spaces=(first[order1], second[order2]))
    method = Switch(0.0)
    n = sp.csr_array(documents)
    one = method.expect(n, np.ones((12, 5)), topics, 5)
    other = method.expect(n, np.ones((12, 5)), swapped, 5)
    np.testing.assert_allclose(other.bounds, one.bounds, rtol=1e-10)
    columns = order1 + [3 + k for k in order2]
    np.testing.assert_allclose(other.memory, one.memory[:, columns], rtol=1e-8)


def test_omega_one_is_latent_dirichlet_allocation():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(30, 0.1), 4), rng.dirichlet(np.ones(30), 1)
    n = draw_documents(rng, topics, (0.2, 1.0), 1.0, 60, 80)
    ours = FiniteM3(
        (4, 2), omega=1.0, alpha=0.25, topic_prior=0.1, max_iter=100, max_doc_iter=100, random_state=0
    ).fit(n)
    lda = LatentDirichletAllocation(
        4, doc_topic_prior=0.25, topic_word_prior=0.1, max_iter=100, random_state=0
    ).fit(n)
    assert ours.lower_bound_ == pytest.approx(lda.score(n), rel=0.01)
    assert ours.omega_ == 1.0
    np.testing.assert_allclose(ours.transform(n)[:, 4:], 0.5, rtol=1e-6)


def test_bound_at_omega_one_is_that_of_scikit_learn_at_the_same_topics(documents):
    lda = LatentDirichletAllocation(
        3,
        doc_topic_prior=0.4,
        topic_word_prior=0.2,
        max_iter=5,
        max_doc_update_iter=2000,
        mean_change_tol=1e-9,
        random_state=0,
    ).fit(documents)
    topics = Topics((lda.components_, np.full((2, 9), 0.2)), shares_of(1.0), np.full(5, 0.4))
    method = Switch(0.2, tol=1e-9)
    n = sp.csr_array(documents)
    found = method.expect(n, np.ones((12, 5)), topics, 2000)
    assert found.bounds.sum() + method.topic_bound(topics) == pytest.approx(lda.score(documents), rel=1e-6)


def test_one_topic_each_is_the_marginal(documents):
    model = FiniteM3((1, 1), topic_prior=0.0, random_state=0).fit(documents)
    marginal = documents.sum(axis=0) / documents.sum()
    mixed = model.weights_ @ model.components_
    np.testing.assert_allclose(mixed, marginal, atol=1e-3)
    entropy = -(marginal * np.log(marginal)).sum()
    assert model.perplexity(documents) == pytest.approx(np.exp(entropy), rel=1e-4)


def test_one_number_of_components_adds_one_common_topic(documents):
    model = FiniteM3(3, max_iter=5, random_state=0).fit(documents)
    assert model.n_components_ == (3, 1)
    assert model.transform(documents).shape == (12, 4)
    np.testing.assert_allclose(model.transform(documents)[:, 3], 1.0)


def test_one_document_and_empty_documents(documents):
    one = FiniteM3((2, 2), random_state=0).fit(documents[:1])
    assert np.isfinite(one.lower_bound_)
    model = FiniteM3((2, 2), random_state=0, max_iter=5).fit(documents)
    assert model.score_samples(documents)[4] == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(model.transform(documents)[4], 0.5, rtol=1e-3)


def test_words_without_a_topic_have_probability_zero_without_a_prior():
    n = np.array([[3.0, 2, 0], [1, 4, 0]])
    unseen = np.array([[1.0, 0, 1]])
    assert FiniteM3((1, 1), topic_prior=0.0, random_state=0).fit(n).perplexity(unseen) == np.inf
    assert np.isfinite(FiniteM3((1, 1), random_state=0).fit(n).perplexity(unseen))


def test_a_given_omega_is_kept(documents):
    model = FiniteM3((2, 2), omega=0.4, warm_up=2, max_iter=5, random_state=0)
    assert model.fit(documents).omega_ == 0.4


def test_concentration_is_the_maximum_of_equation_10():
    rng = np.random.default_rng(7)
    gamma = rng.gamma(1.5, 2.0, (40, 5))
    slope = (psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))).sum()

    def negative(log_alpha):
        a = np.exp(log_alpha)
        return -(40 * (gammaln(5 * a) - 5 * gammaln(a)) + (a - 1) * slope)

    best = np.exp(minimize_scalar(negative, bounds=(-6, 6), method="bounded", options={"xatol": 1e-10}).x)
    for start in (1e-3, 1.0, 300.0):
        np.testing.assert_allclose(fit_concentrations(gamma, np.full(5, start), equal=True), best, rtol=1e-5)
    assert fit_concentrations(np.ones((3, 1)), np.array([0.7]), equal=True) == 0.7


def test_concentrations_of_all_components_are_the_maximum():
    """The planted ones, from exact memberships; elsewhere no better point and no slope; ends of the range."""
    rng = np.random.default_rng(7)
    planted = np.array([0.5, 1.0, 4.0])
    exact = 1e12 * rng.dirichlet(planted, 4000)
    for start in (np.full(3, 1e-4), np.full(3, 100.0)):
        np.testing.assert_allclose(fit_concentrations(exact, start), planted, rtol=0.1)
    gamma = rng.gamma(1.5, 2.0, (40, 4)) * [0.1, 1.0, 1.0, 5.0]
    best = fit_concentrations(gamma, np.ones(4))
    slope = (psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))).mean(axis=0)

    def objective(alpha):
        return gammaln(alpha.sum()) - gammaln(alpha).sum() + alpha @ slope

    np.testing.assert_allclose(psi(best) - psi(best.sum()), slope, atol=1e-8)
    assert objective(best) > max(objective(best * rng.uniform(0.95, 1.05, 4)) for _ in range(50))
    assert objective(best) > objective(fit_concentrations(gamma, np.ones(4), equal=True))
    unused = np.column_stack([gamma, np.full(40, 1e-5)])
    assert fit_concentrations(unused, np.ones(5))[-1] == pytest.approx(1e-4)
    np.testing.assert_allclose(fit_concentrations(unused, np.ones(5))[:-1], best, rtol=1e-2)
    assert fit_concentrations(np.ones((3, 1)), np.array([0.7])) == 0.7


def test_a_concentration_for_each_topic_reaches_a_higher_bound():
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(30, 0.2), 3), rng.dirichlet(np.full(30, 0.2), 2)
    n = draw_documents(rng, topics, (np.array([0.05, 0.1, 2.0]), np.array([0.1, 3.0])), 0.5, 100, 60)
    each, equal = (
        FiniteM3((3, 2), alpha=alpha, random_state=0).fit(n) for alpha in ("asymmetric", "symmetric")
    )
    assert each.lower_bound_ > equal.lower_bound_ + 10
    assert len(np.unique(each.alpha_)) == 5
    assert len(np.unique(equal.alpha_[:3])) == len(np.unique(equal.alpha_[3:])) == 1


def test_given_concentrations_are_kept(documents):
    for alpha, kept in ((0.7, [0.7] * 5), ((0.2, 2.0), [0.2] * 3 + [2.0] * 2)):
        model = FiniteM3((3, 2), alpha=alpha, warm_up=1, max_iter=3, random_state=0).fit(documents)
        assert model.alpha_.tolist() == kept


def test_divergence_is_zero_at_the_prior_and_right_elsewhere():
    assert divergence(np.full((1, 3), 0.6), 0.6) == pytest.approx(0.0, abs=1e-12)

    def integrand(p):
        q = p ** (2.0 - 1) * (1 - p) ** (3.0 - 1) / np.exp(gammaln(2) + gammaln(3) - gammaln(5))
        prior = (p * (1 - p)) ** (1.5 - 1) / np.exp(2 * gammaln(1.5) - gammaln(3))
        return q * np.log(q / prior)

    assert divergence(np.array([2.0, 3.0]), 1.5) == pytest.approx(quad(integrand, 0, 1)[0], rel=1e-6)


def test_planted_topics_are_recovered():
    """Bars: rows of a 4 x 4 grid on the first side, one topic for each half of the columns on the second."""
    grid = np.arange(16).reshape(4, 4)
    first = np.stack([np.isin(np.arange(16), row) / 4 for row in grid])
    second = np.stack([np.isin(np.arange(16), grid[:, half]) / 8 for half in ([0, 1], [2, 3])])
    rng = np.random.default_rng(0)
    n = draw_documents(rng, (first, second), (0.1, 0.3), 0.4, 300, 100)
    models = [FiniteM3((4, 2), random_state=seed, max_iter=150).fit(n) for seed in range(3)]
    model = max(models, key=lambda m: m.lower_bound_)
    assert model.omega_ == pytest.approx(0.4, abs=0.1)
    for found, planted in ((model.components_[:4], first), (model.components_[4:], second)):
        distance = min(
            0.5 * np.abs(found[list(order)] - planted).sum(axis=1).mean()
            for order in itertools.permutations(range(len(planted)))
        )
        assert distance < 0.1


def test_same_seed_same_answer_and_inputs_stay(documents):
    before = documents.copy()
    one, two = (FiniteM3((3, 2), random_state=4, max_iter=8).fit(documents) for _ in range(2))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(documents, before)
    assert list(one.get_feature_names_out()) == [f"finitem3{k}" for k in range(5)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": (2, 0)}, "n_components of FiniteM3 must be a whole number of at least 1, or"),
        ({"n_components": (2,)}, r"must be .*, or one for each of two or more spaces, got \(2,\)"),
        ({"omega": 1.5}, "omega of FiniteM3 must be None, lie in 0 ... 1, or be 2 shares .*, got 1.5"),
        ({"omega": (0.5, 0.4)}, "omega of FiniteM3 must be None, .* 2 shares with sum 1, got"),
        ({"n_components": (2, 2, 2), "omega": 0.5}, "omega of FiniteM3 must be None, or 3 shares with sum 1"),
        ({"n_components": (2, 2, 2), "alpha": (1.0, 1.0)}, "or one or 3 positive finite numbers, got"),
        ({"alpha": (1.0, -1.0)}, "alpha of FiniteM3 must be 'asymmetric' or 'symmetric', or one or 2 pos"),
        ({"alpha": None}, "alpha of FiniteM3 must be .* finite numbers, got None"),
        ({"alpha": np.inf}, "alpha of FiniteM3 must be .* finite numbers, got inf"),
        ({"alpha": "auto"}, "alpha of FiniteM3 must be 'asymmetric' or 'symmetric', .* got 'auto'"),
        ({"topic_prior": -1}, "topic_prior of FiniteM3 must be at least 0, got -1"),
        ({"max_iter": 0}, "max_iter of FiniteM3 must be at least 1, got 0"),
        ({"tol": "fine"}, "tol of FiniteM3 must be at least 0, got 'fine'"),
        ({"warm_up": -1}, "warm_up of FiniteM3 must be at least 0, got -1"),
    ],
)
def test_wrong_settings_are_named(documents, settings, message):
    with pytest.raises(ValueError, match=message):
        FiniteM3(**settings).fit(documents)


def test_a_weight_of_two_is_the_document_twice(documents):
    weights = np.arange(12) % 3
    for alpha in ("asymmetric", "symmetric"):
        settings = {"alpha": alpha, "max_iter": 40, "random_state": 0}
        weighted = FiniteM3((3, 2), **settings).fit(documents, sample_weight=weights)
        repeated = FiniteM3((3, 2), **settings).fit(np.repeat(documents, weights, axis=0))
        np.testing.assert_allclose(weighted.components_, repeated.components_, atol=1e-5)
        assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_)


def test_topics_have_words_and_documents_have_labels(documents):
    model = FiniteM3((3, 2), random_state=np.random.default_rng(0), max_iter=20)
    labels = model.fit_predict(documents)
    np.testing.assert_array_equal(labels, model.transform(documents)[:, :3].argmax(axis=1))
    words = model.top_words([f"w{j}" for j in range(9)], n=2)
    assert len(words) == 5 and words[0][0][0] == f"w{model.components_[0].argmax()}"


# ---- more than two spaces


def test_three_planted_spaces_are_found_and_their_shares():
    rng = np.random.default_rng(1)
    spaces = [rng.dirichlet(np.full(60, 0.15), K) for K in (4, 3, 2)]
    p = sum(
        share * rng.dirichlet(np.full(len(space), 0.2), 200) @ space
        for share, space in zip((0.5, 0.3, 0.2), spaces, strict=True)
    )
    n = np.stack([rng.multinomial(150, row / row.sum()) for row in p])
    runs = [FiniteM3((4, 3, 2), random_state=seed, max_iter=60).fit(n) for seed in range(2)]
    model = max(runs, key=lambda run: run.lower_bound_)
    assert model.n_components_ == (4, 3, 2) and not hasattr(model, "omega_")
    np.testing.assert_allclose(model.weights_, [0.5, 0.3, 0.2], atol=0.06)
    for space, found in zip(spaces, np.split(model.components_, [4, 7]), strict=True):
        for topic in space:
            assert np.abs(found - topic).sum(axis=1).min() < 0.5
    assert (np.diff(model.history_) > -1e-9 * abs(model.lower_bound_)).all()
    memberships = np.split(model.transform(n[:5]), [4, 7], axis=1)
    np.testing.assert_allclose([part.sum(axis=1) for part in memberships], 1)


def test_three_spaces_are_the_formula_in_loops(documents):
    rng = np.random.default_rng(0)
    spaces, shares = tuple(rng.dirichlet(np.ones(9), K) for K in (2, 3, 2)), np.array([0.5, 0.2, 0.3])
    gamma = rng.gamma(2.0, 1.0, (12, 7))
    found = Switch(0.0).expect(sp.csr_array(documents), gamma, Topics(spaces, shares, np.full(7, 0.6)), 1)
    expected = np.full_like(gamma, 0.6)
    for d in range(12):
        parts = np.split(gamma[d], [2, 5])
        e = [np.exp(psi(part) - psi(part.sum())) for part in parts]
        for x in range(9):
            terms = np.concatenate([s * one * t[:, x] for s, one, t in zip(shares, e, spaces, strict=True)])
            expected[d] += documents[d, x] * terms / terms.sum()
    np.testing.assert_allclose(found.memory, expected, rtol=1e-9)


def test_a_space_without_a_share_changes_nothing(documents):
    two = FiniteM3((3, 2), omega=0.4, random_state=0, max_iter=20).fit(documents)
    three = FiniteM3((3, 2, 1), omega=(0.7, 0.3, 0.0), random_state=0, max_iter=20).fit(documents)
    # up to when a document counts as done
    np.testing.assert_allclose(three.score_samples(documents), two.score_samples(documents), rtol=1e-4)
    np.testing.assert_allclose(three.components_[:5], two.components_, atol=1e-3)
