"""The estimators: scikit-learn's checks, the laws all models share, held-out tools, bad input."""

import numpy as np
import pytest
import scipy.sparse as sp
from drawn_counts import draw_counts
from sklearn.exceptions import NotFittedError
from sklearn.metrics import normalized_mutual_info_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from texseg.counts.matrix import WindowedCounts, split_counts
from texseg.models import (
    ACM,
    HACM,
    PMM,
    SCM,
    SMM,
    Tree,
    cross_validate,
    heldout_log_likelihood,
)
from texseg.models.sites import fit_sites

NON_NEGATIVE = "draws negative data, and counts must be at least 0"
FOR_CLASSIFIERS = "expects the probabilities of the classes of y; the formats are tested below"


HELD_OUT = "holds single occurrences out at random, others of a row twice than of one of weight 2"
WEIGHTS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
RANDOM_STARTS = "starts at random numbers, one a row, so that a row twice and one of weight 2 start apart"


def exempted(estimator):
    checks = {
        "check_estimator_sparse_array": FOR_CLASSIFIERS,
        "check_estimator_sparse_matrix": FOR_CLASSIFIERS,
    }
    if isinstance(estimator, (SMM, PMM, SCM)) or getattr(estimator, "mixing", None) == "object":
        checks |= dict.fromkeys(WEIGHTS, RANDOM_STARTS)
    elif estimator.beta == "auto" and getattr(estimator, "assignment", "soft") == "soft":
        checks |= dict.fromkeys(WEIGHTS, HELD_OUT)
    return checks if isinstance(estimator, (SMM, PMM)) else checks | {"check_clustering": NON_NEGATIVE}


@pytest.mark.filterwarnings("ignore:SMM stopped after max_iter=100 steps at beta=1 ")  # the predictive one
@pytest.mark.filterwarnings("ignore:.*predicts held-out occurrences worse than one profile")
@parametrize_with_checks(
    [
        ACM(),
        ACM(beta=1.0),
        ACM(assignment="hard"),
        SMM(),
        SMM(beta=1.0, predictive=True),
        PMM(),
        SCM(),
        HACM(),
        HACM(beta=1.0),
        HACM(mixing="object", beta=1.0),
    ],
    expected_failed_checks=exempted,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def planted(seed=0, per_cluster=15, occurrences=80, K=3, M=14):
    rng = np.random.RandomState(seed)
    profiles = rng.dirichlet(np.full(M, 0.3), size=K)
    truth = np.repeat(np.arange(K), per_cluster)
    return np.array([rng.multinomial(occurrences, profiles[k]) for k in truth], dtype=float), truth


def same_partition(labels, truth):
    return len(set(zip(labels, truth, strict=True))) == len(set(labels)) == len(set(truth))


COLD = {"beta": 1.0}
LAWS = {
    "smm": lambda **k: SMM(3, random_state=0, **(COLD | k)),
    "smm-predictive": lambda **k: SMM(3, predictive=True, random_state=0, **(COLD | k)),
    "pmm": lambda **k: PMM(3, 4, random_state=0, **(COLD | k)),
    "acm": lambda **k: ACM(3, random_state=0, **(COLD | k)),
    "acm-hard": lambda **k: ACM(3, "hard", random_state=0, **(COLD | k)),
    "acm-predictive": lambda **k: ACM(3, predictive=True, random_state=0, **(COLD | k)),
    "scm": lambda **k: SCM(3, 4, random_state=0, **(COLD | k)),
    "scm-hard": lambda **k: SCM(3, 4, "hard", random_state=0, **(COLD | k)),
    "hacm": lambda **k: HACM(3, random_state=0, **(COLD | k)),
    "hacm-constant": lambda **k: HACM(3, "constant", random_state=0, **(COLD | k)),
    "hacm-object": lambda **k: HACM(3, "object", random_state=0, **(COLD | k)),
    "hacm-annealing": lambda **k: HACM(3, tree="annealing", random_state=0, **(COLD | k)),
}
SOFT = [name for name in LAWS if "hard" not in name]
each_model = pytest.mark.parametrize("name", list(LAWS))


@each_model
def test_planted_clusters_are_found(name):
    n, truth = planted()
    assert same_partition(LAWS[name]().fit(n).labels_, truth)


@each_model
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.lil_array])
def test_sparse_counts_give_the_same_as_dense(name, kind):
    n, _ = planted()
    dense, sparse = LAWS[name]().fit(n), LAWS[name]().fit(kind(n))
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=1e-6)
    np.testing.assert_array_equal(sparse.predict(kind(n)), dense.predict(n))


@each_model
def test_a_new_row_without_any_word_gets_finite_shares_that_do_not_depend_on_others(name):
    n, _ = planted()
    model = LAWS[name]().fit(n)
    alone = model.predict_proba(np.zeros((1, 14)))
    assert alone.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(model.predict_proba(np.vstack([n[:1], np.zeros((1, 14))]))[1:], alone)


@each_model
def test_single_precision_finds_the_same(name):
    n, _ = planted()
    double, single = LAWS[name]().fit(n), LAWS[name]().fit(n.astype(np.float32))
    predicted = (model.mixing_ @ model.components_ for model in (single, double))
    np.testing.assert_allclose(*predicted, atol=1e-3)
    assert same_partition(single.labels_, double.labels_)  # clusters of equal weight may change places


# with mixing of each row, the root can be one texture and the rows choose level instead of cluster
@pytest.mark.parametrize("name", [name for name in LAWS if name != "hacm-object"])
def test_image_counts_give_the_same_as_explicit_ones(name):
    rng = np.random.RandomState(0)
    left = np.indices((12, 18))[1] < 8
    bins = np.clip(rng.binomial(5, np.where(left, 0.15, 0.85), (2, 12, 18)), 0, 5).astype(np.uint8)
    image = WindowedCounts(bins, window=3, n_bins=6, normalize=False)
    explicit = (image @ np.eye(12)).astype(np.float64)
    ours = LAWS[name]().set_params(**{LAWS[name]()._size_parameters[0]: 2}).fit(image)
    theirs = LAWS[name]().set_params(**{LAWS[name]()._size_parameters[0]: 2}).fit(explicit)
    agreement = (ours.labels_ == theirs.labels_).mean()
    assert max(agreement, 1 - agreement) > 0.98
    borders = (ours.labels_ == left.ravel()).mean()
    assert max(borders, 1 - borders) > 0.95
    np.testing.assert_array_equal(ours.predict(image), ours.predict_proba(image).argmax(axis=1))


@each_model
def test_rows_sum_to_one(name):
    n, _ = planted()
    model = LAWS[name]().fit(n)
    for probabilities in (model.components_, model.mixing_, model.row_posteriors_, model.predict_proba(n)):
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert (probabilities >= 0).all()
    assert model.weights_.sum() == pytest.approx(1)


@each_model
def test_permuting_rows_and_columns_permutes_the_answer(name):
    n, _ = planted()
    rng = np.random.RandomState(1)
    rows, columns = rng.permutation(n.shape[0]), rng.permutation(n.shape[1])
    straight, shuffled = LAWS[name]().fit(n), LAWS[name]().fit(n[rows][:, columns])
    assert same_partition(straight.labels_[rows], shuffled.labels_)
    assert shuffled.free_energy_ == pytest.approx(straight.free_energy_, rel=1e-3)


@each_model
def test_same_seed_same_answer_and_untouched_input(name):
    n, _ = planted()
    n.setflags(write=False)
    one, two = LAWS[name]().fit(n), LAWS[name]().fit(n)
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.labels_, two.labels_)


@pytest.mark.parametrize("name", SOFT)
def test_twice_the_counts_at_twice_the_temperature(name):
    if "predictive" in name:
        pytest.skip("predictive EM leaves out single occurrences, so that their number matters")
    n, _ = planted(occurrences=30)
    once, twice = LAWS[name](beta=0.8).fit(n), LAWS[name](beta=0.4 if _per_row(name) else 0.8).fit(2 * n)
    np.testing.assert_allclose(twice.row_posteriors_, once.row_posteriors_, atol=1e-6)


def _per_row(name):
    """Models that assign whole rows; in the others every occurrence has its own posterior."""
    return not name.startswith(("smm", "pmm"))


@each_model
def test_one_cluster_is_the_marginal(name):
    n, _ = planted()
    model = LAWS[name]()
    model.set_params(**dict.fromkeys(model._size_parameters, 1)).fit(n)
    marginal = n.sum(axis=0) / n.sum()
    np.testing.assert_allclose(model.mixing_ @ model.components_, np.tile(marginal, (len(n), 1)), atol=1e-6)
    counts = n @ np.ones(n.shape[1])
    expected = np.exp(-(n * np.log(0.99 * marginal + 0.01 / n.shape[1])).sum() / counts.sum())
    assert model.perplexity(n) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:SMM stopped after max_iter=100 steps at beta=1 ")  # the predictive one
@each_model
def test_empty_rows_columns_and_fractions_are_allowed(name):
    n, truth = planted()
    padded = np.zeros((len(n) + 2, n.shape[1] + 2))
    padded[:-2, 1:-1] = n / 3.7
    model = LAWS[name]().fit(padded)
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.mixing_).all()
    assert same_partition(model.labels_[:-2], truth)
    np.testing.assert_allclose(model.mixing_[-2:].sum(axis=1), 1)


@each_model
@pytest.mark.parametrize("different", [1, 2])
def test_more_clusters_than_different_rows(name, different):
    n = np.repeat([[5.0, 1.0, 0.0], [0.0, 1.0, 5.0]][:different], 3, axis=0)
    model = LAWS[name]().fit(n)
    assert np.isfinite(model.components_).all()
    np.testing.assert_allclose(model.mixing_.sum(axis=1), 1)
    if name != "hacm-constant":  # whose inner nodes always have their share
        expected = n / n.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(model.mixing_ @ model.components_, expected, atol=0.02)


@each_model
def test_new_rows_are_recognised(name):
    n, truth = planted(per_cluster=20)
    model = LAWS[name]().fit(n[::2])
    assert same_partition(model.predict(n[1::2]), truth[1::2])
    own = (model.predict(n[::2]) == model.labels_).mean()
    assert own == 1.0


@each_model
def test_perplexity_by_hand_and_with_fold_in(name):
    n, _ = planted()
    train, test = split_counts(n, [0.8, 0.2], 0)
    model = LAWS[name]().fit(train)
    p = 0.95 * (model.mixing_ @ model.components_) + 0.05 / n.shape[1]
    dense = test.toarray()
    expected = np.exp(-(dense * np.log(p)).sum() / dense.sum())
    assert model.perplexity(test, floor=0.05) == pytest.approx(expected)
    unigram = LAWS["acm"]().set_params(n_clusters=1).fit(train).perplexity(test)
    assert model.perplexity(test, fold_in=train) < 0.9 * unigram
    assert model.perplexity(test, fold_in=train) == pytest.approx(model.perplexity(test), rel=0.02)


@pytest.mark.parametrize("name", [n for n in SOFT if "annealing" not in n and "constant" not in n])
def test_the_temperature_is_chosen_on_heldout_occurrences(name):
    n, _ = planted(occurrences=25)
    train, validation, test = split_counts(n, [0.7, 0.15, 0.15], 0)
    auto = LAWS[name](beta="auto").fit(train, validation=validation)
    assert 0 < auto.beta_ <= 1
    assert auto.beta_ in {record.beta for record in auto.history_}
    best = max(record.heldout for record in auto.history_)
    kept = heldout_log_likelihood(auto.mixing_, auto.components_, validation)
    assert kept == pytest.approx(best, abs=0.02)
    cold = LAWS[name](beta=1.0).fit(train).perplexity(test)
    assert auto.perplexity(test) < 1.05 * cold
    own_split = LAWS[name](beta="auto", validation_fraction=0.2).fit(n)
    assert 0 < own_split.beta_ <= 1


def test_short_rows_want_priors():
    """Twelve occurrences a row of eight overlapping topics, of which every row mixes three."""
    rng = np.random.RandomState(0)
    topics, mixing = rng.dirichlet(np.full(60, 0.1), 8), rng.dirichlet(np.full(8, 0.3), 400)
    n, new = (np.array([rng.multinomial(12, m @ topics) for m in mixing], dtype=float) for _ in range(2))
    auto, plain = SMM(8, random_state=0).fit(n), SMM(8, beta=1.0, random_state=0).fit(n)
    assert auto.priors_[0] > 0
    assert auto.perplexity(new) < 0.8 * plain.perplexity(new)
    assert SMM(8, beta=auto.beta_, random_state=0).fit(n).priors_ == (0, 0)  # the paper's model


def test_what_was_held_out_is_taken_in_at_the_end():
    """The model then gives every row its share of all occurrences, which a fit to a part of them cannot."""
    n, _ = planted(seed=1)
    own = SMM(3, beta="auto", random_state=0).fit(n)
    totals = n.sum(axis=1) + own.priors_[0]
    np.testing.assert_allclose(own.weights_ @ own.row_components_, totals / totals.sum())
    part = split_counts(n, [0.9, 0.1], 0)
    given = SMM(3, over_relaxation=False, random_state=0).fit(part[0], validation=part[1])
    totals = part[0].sum(axis=1) + given.priors_[0]
    np.testing.assert_allclose(given.weights_ @ given.row_components_, totals / totals.sum())


def test_early_stopping_at_a_given_temperature():
    n, _ = planted(occurrences=10)
    train, validation = split_counts(n, [0.7, 0.3], 0)
    model = SMM(8, beta=1.0, n_init=1, random_state=0, tol=0).fit(train, validation=validation)
    heldout = [record.heldout for record in model.history_]
    kept = heldout_log_likelihood(model.mixing_, model.components_, validation)
    assert kept == pytest.approx(max(heldout))
    assert np.argmax(heldout) < len(heldout) - 1


@pytest.mark.filterwarnings("ignore:SMM stopped after max_iter=60 steps")
def test_predictive_em_generalises_better_than_plain_em():
    """[1] Fig. 8, at beta = 1 and with more aspects than the data support."""
    n, _ = planted(occurrences=15, M=40, seed=3)
    train, test = split_counts(n, [0.8, 0.2], 0)
    plain = SMM(6, beta=1.0, random_state=0, max_iter=60, tol=0).fit(train).perplexity(test)
    predictive = SMM(6, beta=1.0, predictive=True, random_state=0, max_iter=60, tol=0).fit(train)
    predictive = predictive.perplexity(test)
    assert predictive < 0.97 * plain


@pytest.mark.parametrize("model", [ACM, HACM])
def test_rows_are_left_out_where_the_temperature_is_chosen(model):
    """More clusters than the data support: rows that know themselves in their profiles predict worse."""
    n, _ = planted(occurrences=40, M=300, K=6, seed=5)
    train, validation, test = split_counts(n, [0.7, 0.15, 0.15], 0)

    def fitted(**options):
        return model(12, n_init=1, random_state=0, **options).fit(train, validation=validation)

    by_default, plain = fitted(), fitted(predictive=False)
    assert by_default.perplexity(test) < 0.985 * plain.perplexity(test)
    np.testing.assert_allclose(by_default.components_, fitted(predictive=True).components_)
    columns = (train > 0).sum(axis=0) / (train > 0).sum()
    assert (by_default.components_[:, columns > 0] > 0).all()  # nothing that one row has is impossible


def test_cross_validation_uses_every_occurrence_once():
    n, _ = planted()
    scores = cross_validate(ACM(3, random_state=0), n, n_folds=4, random_state=0)
    assert scores.shape == (4,)
    unigram = cross_validate(ACM(1), n, n_folds=4, random_state=0)
    assert (scores < unigram).all()


@pytest.mark.parametrize("model", [SMM(1), ACM(1)], ids=["SMM", "ACM"])
def test_where_nothing_can_be_held_out_the_temperature_is_one(model):
    """The search once went on for ever: nothing held out makes every trial as good as the last."""
    assert model.fit(np.array([[1, 0], [0, 0]])).beta_ == 1


def test_nothing_held_out_is_no_number():
    assert np.isnan(heldout_log_likelihood(np.ones((1, 1)), np.ones((1, 2)) / 2, np.zeros((1, 2))))


# ---- planted structure


def test_bars_are_recovered_by_the_smm():
    """Ten topics, the rows and columns of a 5 x 5 grid; documents mix three of them."""
    bars = [np.zeros((5, 5)) for _ in range(10)]
    for k in range(5):
        bars[k][k], bars[5 + k][:, k] = 0.2, 0.2
    truth = np.array([bar.ravel() for bar in bars])
    rng = np.random.RandomState(0)
    mixing = np.array([rng.permutation(np.r_[np.ones(3) / 3, np.zeros(7)]) for _ in range(300)])
    n = np.array([rng.multinomial(100, m @ truth) for m in mixing])
    found = SMM(10, beta="auto", n_init=3, max_iter=300, random_state=0).fit(n).components_
    distance = np.abs(truth[:, None] - found[None]).sum(axis=2) / 2
    assert set(distance.argmin(axis=1)) == set(range(10))
    assert distance.min(axis=1).mean() < 0.05


@pytest.mark.parametrize("name", ["smm", "pmm", "acm", "acm-hard", "scm", "hacm", "hacm-object"])
def test_a_model_is_found_again_in_counts_drawn_from_it(name):
    first = LAWS[name]().fit(planted()[0])
    whole = name.startswith(("acm", "scm"))
    occurrences = 3000
    drawn = draw_counts(first.mixing_, first.components_, occurrences, whole_rows=whole, random_state=1)
    again = LAWS[name]().fit(drawn.counts)
    p = first.mixing_ @ first.components_
    q = again.mixing_ @ again.components_
    noise = np.abs(p - drawn.counts / occurrences).sum(axis=1).mean() / 2
    assert np.abs(p - q).sum(axis=1).mean() / 2 < noise


def test_drawn_counts_follow_the_mixture():
    mixing, profiles = np.array([[0.2, 0.8], [1.0, 0.0]]), np.array([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]])
    drawn = draw_counts(mixing, profiles, [200_000, 100_000], random_state=0)
    np.testing.assert_array_equal(drawn.counts.sum(axis=1), [200_000, 100_000])
    np.testing.assert_allclose(drawn.counts / [[200_000], [100_000]], mixing @ profiles, atol=0.005)
    np.testing.assert_allclose(drawn.components[0] / 200_000, mixing[0], atol=0.005)
    whole = draw_counts(np.full((500, 2), 0.5), profiles, 7, whole_rows=True, random_state=0)
    assert set(np.unique(whole.components)) == {0, 7}
    assert (whole.counts[whole.components[:, 1] == 7][:, 0] == 0).all()


@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_blocks_are_recovered_by_the_scm(assignment):
    rng = np.random.RandomState(0)
    rates = np.array([[6, 1, 1, 3], [1, 6, 1, 1], [1, 1, 6, 3]])
    rows, columns = np.repeat(np.arange(3), 30), np.repeat(np.arange(4), 10)
    n = rng.poisson(rates[rows][:, columns])
    assert normalized_mutual_info_score(rows, SCM(3, 4, random_state=0).fit(n).row_labels_) > 0.999
    model = SCM(3, 4, assignment, beta=1.0, random_state=0).fit(n)
    assert normalized_mutual_info_score(rows, model.row_labels_) == pytest.approx(1)
    assert normalized_mutual_info_score(columns, model.column_labels_) == pytest.approx(1)
    joint = np.array([[n[rows == k][:, columns == m].sum() for m in range(4)] for k in range(3)]) / n.sum()
    expected = (joint * np.log(joint / np.outer(joint.sum(axis=1), joint.sum(axis=0)))).sum()
    assert model.mutual_information_ == pytest.approx(expected)
    share = model.joint_.sum(axis=1, keepdims=True) * model.joint_.sum(axis=0)
    np.testing.assert_allclose(model.association_ * share, model.joint_)


def nested(seed=0):
    """Four clusters in two super-clusters; columns: 4 common, 3 of each super-cluster, 3 of each cluster."""
    rng = np.random.RandomState(seed)
    rows = []
    for k in range(4):
        p = np.zeros(22)
        p[:4] = 0.4 / 4
        p[4 + 3 * (k // 2) : 7 + 3 * (k // 2)] = 0.3 / 3
        p[10 + 3 * k : 13 + 3 * k] = 0.3 / 3
        rows += [rng.multinomial(150, p) for _ in range(20)]
    return np.array(rows, dtype=float), np.repeat(np.arange(4), 20)


@pytest.mark.parametrize("tree", ["merging", "annealing", Tree([-1, 0, 0, 1, 1, 2, 2])])
def test_abstraction_levels_are_recovered_by_the_hacm(tree):
    n, truth = nested()
    model = HACM(4, tree=tree, n_init=3, beta=1.0, random_state=0).fit(n)
    assert same_partition(model.labels_, truth)
    assert same_partition(HACM(4, tree=tree, random_state=0).fit(n).labels_, truth)
    # half of the smallest true probability of a node's own words, which is 1 / 4 at the root
    words = [{int(name) for name, p in node if p > 0.125} for node in model.top_words()]
    assert words[0] == {0, 1, 2, 3}
    if tree == "annealing":
        return  # its first split need not be the coarsest
    supers = [{4, 5, 6}, {7, 8, 9}]
    inner = [words[v] for v in np.flatnonzero(model.tree_.levels == 1)]
    assert sorted(inner, key=min) == supers
    leaves = sorted((words[v] for v in model.tree_.leaves), key=min)
    assert leaves == [{10 + 3 * k, 11 + 3 * k, 12 + 3 * k} for k in range(4)]


def test_tree_exports_agree():
    networkx = pytest.importorskip("networkx")
    n, _ = nested()
    model = HACM(4, n_init=3, random_state=0).fit(n)
    names = [f"w{j}" for j in range(22)]
    text, graph = model.tree_text(names, n_words=2), model.tree_graph(names, n_words=2)
    assert networkx.is_arborescence(graph)
    assert graph.number_of_nodes() == len(text.splitlines()) == 7
    assert text.splitlines()[0].startswith("root: w")
    assert text.count("cluster ") == 4
    assert text.count("20 rows") == 4
    assert sorted(c for _, c in graph.nodes(data="cluster") if c is not None) == [0, 1, 2, 3]
    assert graph.nodes[0]["words"] == model.top_words(names, 2)[0]


@pytest.mark.parametrize("model", ["acm", "acm-hard", "smm", "pmm", "scm", "hacm"])
def test_every_model_labels_sites(model):
    n, truth = planted()
    posteriors = fit_sites(model, n / 4, 3, random_state=0).row_posteriors_
    assert posteriors.shape == (45, 3)
    assert same_partition(posteriors.argmax(axis=1), truth)


def test_sites_all_alike_do_not_divide_by_zero():
    fitted = fit_sites("acm", np.tile([3.0, 1.0], (6, 1)), 2, random_state=0)
    np.testing.assert_allclose(fitted.row_posteriors_.sum(axis=1), 1)


# ---- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n - 1, "Negative values"),
        (lambda n: np.where(n > 3, np.nan, n), "NaN"),
        (lambda n: np.where(n > 3, np.inf, n), "infinity"),
        (lambda n: 0 * n, "only zeros"),
        (lambda n: n[:2], "more than there are rows"),
        (lambda n: n[:0], "0 sample"),
        (lambda n: n[0], "1D array"),
    ],
)
@each_model
def test_bad_counts_are_refused(name, change, message):
    with pytest.raises(ValueError, match=message):
        LAWS[name]().fit(change(planted()[0]))


@each_model
def test_other_numbers_of_columns_are_refused(name):
    n, _ = planted()
    model = LAWS[name]().fit(n)
    for use in (model.predict, model.predict_proba, model.score, model.perplexity):
        with pytest.raises(ValueError, match="features"):
            use(n[:, :-1])


def test_image_of_other_columns_is_refused():
    bins = np.zeros((1, 4, 4), np.uint8)
    bins[0, :2] = 1
    with pytest.raises(ValueError, match="holds out single occurrences, which overlapping windows"):
        ACM(2, random_state=0).fit(WindowedCounts(bins, n_bins=2))
    model = ACM(2, beta=1.0, random_state=0).fit(WindowedCounts(bins, n_bins=2))
    with pytest.raises(ValueError, match="X has 3 features, but ACM is expecting 2 features"):
        model.predict(WindowedCounts(bins, n_bins=3))


def test_other_rows_need_fold_in():
    n, _ = planted()
    model = ACM(3, random_state=0).fit(n)
    with pytest.raises(ValueError, match="45 were fitted; pass fold_in"):
        model.perplexity(n[:5])
    with pytest.raises(ValueError, match="5 were given in fold_in"):
        model.perplexity(n, fold_in=n[:5])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (SMM(beta=0), 'beta of SMM must be a positive number or "auto", got 0'),
        (ACM(beta=-1.0), "beta of ACM must be a positive number"),
        (PMM(beta="cold"), "or \"auto\", got 'cold'"),
        (SMM(validation_fraction=1.0), "validation_fraction of SMM must be between 0 and 1"),
        (SMM(0), "n_components of SMM must be a whole number"),
        (ACM(2.5), "n_clusters of ACM must be a whole number"),
        (SCM(2, 0), "n_column_clusters of SCM must be a whole number"),
        (HACM(n_init=0), "n_init of HACM must be a whole number"),
        (SMM(max_iter=-1), "max_iter of SMM must be a whole number of at least 1, got -1"),
        (SMM(True), "n_components of SMM must be a whole number of at least 1, got True"),
        (SMM(tol=-1), "tol of SMM must be at least 0"),
        (SMM(tol="fine"), "tol of SMM must be at least 0, got 'fine'"),
        (ACM(validation_fraction="tenth"), "validation_fraction of ACM must be between 0 and 1, got 'tenth'"),
        (SMM(predictive="yes"), "predictive of SMM must be True, False or None, got 'yes'"),
        (SMM(over_relaxation="no"), "over_relaxation of SMM must be True or False, got 'no'"),
        (ACM(assignment="fuzzy"), 'assignment of ACM must be "soft" or "hard", got'),
        (
            ACM(assignment="hard", predictive=True),
            'of ACM must be False with assignment="hard", got True',
        ),
        (ACM(predictive="yes"), "predictive of ACM must be True, False or None, got 'yes'"),
        (HACM(predictive=True, beta=1.0), 'predictive of HACM must be False unless beta="auto", got True'),
        (HACM(mixing="row"), "mixing of HACM must be one of constant, cluster, object, got 'row'"),
        (HACM(tree="oak"), 'tree of HACM must be "merging", "annealing" or a Tree, got'),
        (
            HACM(3, tree=Tree([-1, 0, 0, 1, 1, 2, 2])),
            "n_clusters .* must be that of the leaves .*, 4, got 3",
        ),
    ],
)
def test_bad_settings_are_refused(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(planted()[0])


def test_validation_of_another_shape_is_refused():
    n, _ = planted()
    with pytest.raises(ValueError, match=r"needs validation with the rows and columns of X, \(45, 14\)"):
        SMM(3).fit(n, validation=n[:4])


def test_fractions_are_held_out_as_a_whole():
    n, _ = planted()
    for table in (n / 40, n + 0.25 * (n > 0)):
        parts = split_counts(table, [0.7, 0.3], 0)
        np.testing.assert_allclose((parts[0] + parts[1]).toarray(), table)
        assert (parts[1].toarray() >= 0).all()
        assert parts[1].sum() == pytest.approx(0.3 * table.sum(), rel=0.15)


def test_names_must_fit_the_columns():
    model = HACM(3, random_state=0).fit(planted()[0])
    with pytest.raises(ValueError, match="names for its 14 columns, got 2"):
        model.tree_text(["a", "b"])
    with pytest.raises(ValueError, match="names for its 14 columns, got 10"):
        model.top_words(10)
    for n in (-1, 2.5, None):
        with pytest.raises(ValueError, match=f"n must be a whole number, at least 0, got {n}"):
            model.recommend(planted()[0], n)
    with pytest.raises(NotFittedError):
        HACM(3).recommend(planted()[0])


def test_any_number_is_a_temperature():
    n, _ = planted()
    np.testing.assert_array_equal(
        ACM(3, beta=np.float32(0.5), random_state=0).fit(n).components_,
        ACM(3, beta=0.5, random_state=0).fit(n).components_,
    )


@pytest.mark.parametrize("model", [ACM, SMM])
def test_counts_may_be_of_any_size(model):
    """More occurrences than could be dealt out one by one, as of genes or of views of pages."""
    n, truth = planted()
    many = model(3, random_state=0).fit(1e9 * n + 0.5)
    assert same_partition(many.labels_, truth)
    parts = split_counts(1e9 * n + 0.25, [0.7, 0.2, 0.1], 0)
    np.testing.assert_array_equal(sum(parts).toarray(), 1e9 * n + 0.25)
    shares = [part.toarray()[n > 0] / (1e9 * n[n > 0]) for part in parts]
    for share, expected in zip(shares, [0.7, 0.2, 0.1], strict=True):
        np.testing.assert_allclose(share, expected, atol=1e-4)


def test_a_warning_shows_two_different_numbers():
    """Of two nearly equal perplexities, one held-out occurrence says nothing."""
    ACM(2, random_state=0).fit(np.array([[2, 1], [1, 2], [0, 5]]))
