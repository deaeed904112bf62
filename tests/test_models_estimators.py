"""What people expect of estimators: pipelines, weights, names, scores, tables in blocks, convergence."""

import weakref
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from benchmarks.pyramid import aggregate, coarse_to_fine, of_cells
from texseg.counts.blocks import BlockCounts, scale_rows
from texseg.counts.matrix import WindowedCounts, split_counts
from texseg.models import ACM, HACM, PMM, SCM, SMM, choose_number
from texseg.models.acm import grown
from texseg.models.estimator import _halves
from texseg.models.scm import TwoSidedClustering, mutual_information


def planted(K, seed, per_cluster=12, occurrences=90, M=30):
    rng = np.random.RandomState(seed)
    profiles = rng.dirichlet(np.full(M, 0.4), size=K)
    truth = np.repeat(np.arange(K), per_cluster)
    return np.array([rng.multinomial(occurrences, profiles[k]) for k in truth], dtype=float), truth


MODELS = {
    "smm": SMM(3, beta=1.0, random_state=0),
    "pmm": PMM(3, 4, beta=1.0, random_state=0),
    "acm": ACM(3, beta=1.0, random_state=0),
    "scm": SCM(3, 4, beta=1.0, random_state=0),
    "hacm": HACM(3, beta=1.0, random_state=0),
    "hacm-object": HACM(3, "object", beta=1.0, random_state=0, max_iter=200),
}
each_model = pytest.mark.parametrize("model", list(MODELS.values()), ids=list(MODELS))


@pytest.mark.parametrize(("model", "K"), [(ACM, 3), (ACM, 6), (ACM, 10), (ACM, 20), (HACM, 3), (HACM, 10)])
def test_growth_finds_every_planted_cluster(model, K):
    for seed in range(2):
        n, truth = planted(K, seed)
        assert adjusted_rand_score(truth, model(K, random_state=seed).fit(n).labels_) == 1


@each_model
def test_shares_times_components_are_the_predictions(model):
    n, _ = planted(3, 0)
    fitted = model.fit(n)
    shares = fitted.transform(n[::2])
    assert shares.shape == (len(n) // 2, len(fitted.components_)) == (18, len(fitted.get_feature_names_out()))
    expected = np.clip(fitted.inverse_transform(shares), 1e-300, None)
    by_hand = np.exp(-(n[::2] * np.log(0.99 * expected + 0.01 / 30)).sum() / n[::2].sum())
    assert fitted.perplexity(n[::2], fold_in=n[::2]) == pytest.approx(by_hand)
    with pytest.raises(ValueError, match="needs shares in its"):
        fitted.inverse_transform(shares[:, 1:])


def unequal(seed=0):
    """Three clusters of 6, 20 and 11 rows; heaviest first they are 2, 0 and 1."""
    n, truth = planted(3, seed, per_cluster=20)
    kept = np.concatenate([np.arange(6), np.arange(20, 40), np.arange(40, 51)])
    return n[kept], np.array([2, 0, 1])[truth[kept]]


@each_model
def test_the_heaviest_components_come_first_with_all_that_belongs_to_them(model):
    n, expected = unequal()
    fitted = model.fit(n)
    weights = fitted.weights_.sum(axis=1) if isinstance(fitted, PMM) else fitted.weights_
    assert (np.diff(weights) <= 1e-12).all()
    np.testing.assert_array_equal(fitted.labels_, expected)
    np.testing.assert_array_equal(fitted.predict(n), expected)
    own = fitted.inverse_transform(fitted.transform(n))
    np.testing.assert_allclose(fitted.mixing_ @ fitted.components_, own, atol=0.02)


@pytest.mark.parametrize(
    "model",
    [ACM(3, beta=1.0, random_state=0), ACM(3, "hard", random_state=0), HACM(3, beta=1.0, random_state=0)],
)
def test_a_weight_of_two_is_the_row_twice_and_zero_is_no_row(model):
    n, _ = planted(3, 1, per_cluster=5)
    weights = np.arange(len(n)) % 3
    weighted = model.fit(n, sample_weight=weights)
    components, labels = weighted.components_, weighted.labels_
    repeated = model.fit(np.repeat(n, weights, axis=0))
    np.testing.assert_allclose(components, repeated.components_, atol=1e-6)
    np.testing.assert_array_equal(labels, repeated.predict(n))


def test_weights_of_mixtures_scale_the_counts_of_rows():
    n, _ = planted(3, 1)
    weights = np.where(np.arange(len(n)) < 12, 3.0, 1.0)
    assert SMM(3, random_state=0).fit(n, sample_weight=weights).weights_.max() == pytest.approx(0.6, abs=0.02)


def test_weights_must_leave_something():
    with pytest.raises(ValueError, match="sample_weight of zero for every row with occurrences"):
        ACM(2).fit(np.diag([1.0, 1.0, 0.0]), sample_weight=[0, 0, 1])
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        ACM(2).fit(np.eye(3), sample_weight=[1, 1, -1])


def test_image_counts_are_weighted_without_being_written_out():
    n = WindowedCounts(np.random.default_rng(0).integers(0, 4, (2, 6, 7), np.uint8), window=3, n_bins=4)
    weights = np.random.default_rng(1).random(42)
    scaled, A = scale_rows(n, weights), np.random.default_rng(2).random((8, 3))
    written = weights[:, None] * n[:].toarray()
    np.testing.assert_allclose(scaled @ A, written @ A, rtol=1e-5)
    np.testing.assert_allclose(scaled.T @ (n @ A), written.T @ (n @ A), rtol=1e-5)
    np.testing.assert_allclose(scaled[5:9].toarray(), written[5:9], rtol=1e-6)


def three_planted():
    """Sixty rows of three clusters, shuffled."""
    n, _ = planted(3, 2, per_cluster=20)
    return n[np.random.RandomState(0).permutation(60)]


@pytest.mark.parametrize("mixing", ["cluster", "object"])
def test_what_rows_of_weight_zero_hold_changes_nothing(mixing):
    n, _ = planted(3, 0)
    weights, changed = (np.arange(36) % 5 > 0).astype(float), n.copy()
    changed[::5] = np.random.RandomState(1).poisson(3, changed[::5].shape)
    model = HACM(3, mixing, beta=1.0, random_state=0)
    first, second = (model.fit(table, sample_weight=weights).predict_proba(n) for table in (n, changed))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("model", [ACM(beta=1.0), HACM(beta=1.0), SMM(beta=1.0)], ids=["acm", "hacm", "smm"])
def test_cross_validation_chooses_the_planted_number(model):
    """Also where rows may mix aspects: halves of a row share nothing but what the row is drawn from."""
    size = "n_components" if isinstance(model, SMM) else "n_clusters"
    search = GridSearchCV(model.set_params(random_state=0), {size: [2, 3, 4, 12]}, cv=3)
    assert search.fit(three_planted()).best_params_[size] == 3


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_blocks_of_hard_clusters_are_those_of_their_labels(seed):
    # lengthened M-steps left an association of other columns than those that were kept
    rng = np.random.RandomState(seed)
    profiles = rng.dirichlet(np.full(5, 0.4), 3)[:, np.arange(30) % 5] / 6
    n = np.array([rng.multinomial(90, profiles[i % 3]) for i in range(60)], float)[1::2]
    model = SCM(3, 5, assignment="hard", random_state=0).fit(n)
    joint = np.eye(3)[model.row_labels_].T @ n @ np.eye(5)[model.column_labels_]
    np.testing.assert_allclose(model.joint_, joint / joint.sum(), atol=1e-6)


@pytest.mark.parametrize("model", [ACM, SMM])
def test_the_planted_number_is_chosen_where_too_many_cost_nothing(model):
    """At a temperature of their own each number predicts alike from the planted one on."""
    assert choose_number(model(random_state=0), three_planted(), [2, 3, 4, 8]) == 3


def test_a_number_is_chosen_from_some():
    with pytest.raises(ValueError, match="at least one number to choose from, got none"):
        choose_number(SMM(), three_planted(), [])


def test_halves_of_rows_are_independent():
    """The halves of 2000 rows of one profile vary as single occurrences do, and not together."""
    rng = np.random.default_rng(0)
    n = sp.csr_array(rng.multinomial(40, [0.5, 0.3, 0.2], size=2000).astype(float))
    one, other = (half.toarray() for half in _halves(n))
    np.testing.assert_array_equal(one + other, n.toarray())
    shares = [half[:, 0] / half.sum(axis=1) for half in (one, other)]
    assert abs(np.corrcoef(shares)[0, 1]) < 0.08
    assert abs(np.var(shares[0]) / (0.25 / 20) - 1) < 0.15
    again = _halves(n[700:900])[0].toarray()
    np.testing.assert_array_equal(again, one[700:900])


@each_model
def test_a_row_is_not_judged_by_occurrences_that_it_was_folded_in_on(model):
    """What one half of a row says about the other is worse than what the row says about itself."""
    n, _ = planted(3, 3)
    fitted = model.fit(n)
    logs = fitted.score_samples(n)
    assert fitted.score(n) == pytest.approx(logs.sum() / n.sum())
    assert fitted.score(n, sample_weight=np.arange(36.0)) == pytest.approx(
        (logs * np.arange(36)).sum() / (n.sum(axis=1) * np.arange(36)).sum()
    )
    np.testing.assert_allclose(fitted.score_samples(n[5:8]), logs[5:8])
    if len(fitted.components_) == len(np.ravel(fitted.weights_)):  # weights are those of the components
        once = np.zeros((1, 30))
        once[0, 7] = 1
        alone = np.log(0.99 * (fitted.weights_ @ fitted.components_)[7] + 0.01 / 30)
        assert fitted.score_samples(once)[0] == pytest.approx(alone, abs=1e-4)


def test_names_of_a_data_frame_go_in_and_come_out():
    n, _ = planted(3, 0)
    frame = pytest.importorskip("pandas").DataFrame(n, columns=[f"word {j}" for j in range(30)])
    model = HACM(3, random_state=0).set_output(transform="pandas").fit(frame)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert list(model.transform(frame).columns) == ["hacm0", "hacm1", "hacm2"]
    assert model.top_words(n=1)[0][0][0].startswith("word ")
    steps = make_pipeline(FunctionTransformer(np.sqrt), SMM(3, random_state=0))
    assert steps.fit_transform(n).shape == (36, 3)


@each_model
def test_a_table_in_blocks_gives_the_same_as_in_one_piece(model, tmp_path):
    n, _ = unequal(4)
    np.save(tmp_path / "a.npy", n[:10])
    sp.save_npz(tmp_path / "b.npz", sp.csr_array(n[10:25]))
    blocks = BlockCounts([tmp_path / "a.npy", str(tmp_path / "b.npz"), lambda: n[25:]])
    expected = model.fit(sp.csr_array(n)).components_
    np.testing.assert_allclose(model.fit(blocks).components_, expected, atol=1e-4)


def test_occurrences_of_blocks_are_dealt_out_again_in_the_same_way():
    n, truth = planted(3, 4)
    blocks = BlockCounts([n[:10], n[10:]])
    train, test = split_counts(blocks, [0.8, 0.2], 0)
    np.testing.assert_array_equal((train[:] + test[:]).toarray(), n)
    np.testing.assert_array_equal(train[:].toarray(), train[:].toarray())
    assert adjusted_rand_score(truth, ACM(3, beta="auto", random_state=0).fit(blocks).labels_) == 1


@pytest.mark.parametrize(
    "model",
    [
        SMM(2, beta="auto", max_iter=2),
        ACM(2, max_iter=2),
        HACM(2, max_iter=2, n_init=1),
        PMM(2, 2, max_iter=2),
        SCM(2, 2, max_iter=2),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:.*predicts held-out occurrences worse than one profile")
@pytest.mark.filterwarnings("ignore:.* stopped after max_iter=2 steps")
def test_one_block_at_a_time_is_in_memory(model):
    made, most = [], 0

    def read(seed):
        nonlocal most
        block = sp.csr_array(np.random.RandomState(seed).poisson(1.0, (9, 6)) + np.eye(9, 6))
        made.append(weakref.ref(block))
        most = max(most, sum(one() is not None for one in made))
        return block

    n = BlockCounts([partial(read, seed) for seed in range(4)])
    model.set_params(random_state=0).fit(n).predict(n)
    assert most <= 3  # the one that was read last, the one being read, and one in use


def test_bad_blocks_are_refused():
    with pytest.raises(ValueError, match="at least one block"):
        BlockCounts([])
    with pytest.raises(ValueError, match="equally many columns"):
        BlockCounts([np.eye(2), np.eye(3)])
    with pytest.raises(ValueError, match="counts in block 0 must be at least 0"):
        BlockCounts([np.array([[3.0, -1.0]])])


@pytest.mark.parametrize("scale", [1 / 90, 0.7])
def test_the_temperature_is_chosen_for_fractions_too(scale):
    n, truth = planted(3, 5)
    model = SMM(3, beta="auto", random_state=0).fit(scale * n)
    assert adjusted_rand_score(truth, model.labels_) == 1


@pytest.mark.parametrize("model", [ACM, SMM])
def test_any_generator_is_a_seed(model):
    n, _ = planted(3, 6)
    first, second = (model(3, random_state=np.random.default_rng(4)).fit(n).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="cannot be used to seed"):
        model(3, random_state="four").fit(n)


def test_steps_of_all_temperatures_together_may_exceed_the_limit_of_one():
    n, _ = planted(6, 0)
    model = ACM(6, random_state=0, max_iter=15).fit(n)
    assert len(model.history_) > 15 and model.converged_


@pytest.mark.parametrize("model", [SMM(4, beta=1.0, random_state=0), PMM(4, 4, beta=1.0, random_state=0)])
def test_an_early_end_is_said(model):
    n, _ = planted(6, 0)
    with pytest.warns(
        ConvergenceWarning, match="stopped after max_iter=2 steps at beta=1 before it had conv"
    ):
        assert not model.set_params(max_iter=2).fit(n).converged_


def test_two_sided_clustering_goes_from_coarse_to_fine():
    """[1] 5.4: blocks of four rows first, then the rows; both at the temperature of a row."""
    n, truth = planted(3, 7, occurrences=20)
    parent = np.arange(36) // 4
    coarse, sizes = aggregate(n, parent)
    model, rng = TwoSidedClustering(), np.random.RandomState(0)
    mean = of_cells(model, coarse, sizes)[1]
    rows, columns = grown(mean, 3, rng, sizes, True)[1], grown(coarse.T, 5, rng, doubling=True)[1]
    start = model.start_from(mean, rows, columns)
    levels = [(coarse, sizes), (n, None)]
    states = list(coarse_to_fine(model, levels, [1.0], start=start, rng=rng, perturbation=0.0))
    assert states[0][1].posteriors.rows.shape == (9, 3) and states[-1][1].posteriors.rows.shape == (36, 3)
    assert adjusted_rand_score(truth, states[-1][1].posteriors.rows.argmax(axis=1)) == 1
    for level in (0, 1):
        energies = [state.free_energy for at, state in states if at == level]
        assert (np.diff(energies) <= 1e-9).all()


def test_a_very_long_row_takes_no_cluster_from_the_others_unsaid():
    n, truth = planted(6, 1)
    n[0] *= 50
    assert adjusted_rand_score(truth, ACM(6, random_state=0).fit(n).labels_) == 1
    n[0] = np.random.RandomState(0).multinomial(5000, np.random.RandomState(9).dirichlet(np.full(30, 0.3)))
    with pytest.warns(UserWarning, match="row 0, which holds 56 times the occurrences of the usual row"):
        ACM(6, random_state=0).fit(n)
    with pytest.warns(UserWarning, match="SMM gave row 0"):
        SMM(6, n_init=4, random_state=0).fit(n)
    left_out = ACM(6, random_state=0).fit(n, sample_weight=np.arange(72) > 0)
    assert adjusted_rand_score(truth[1:], left_out.labels_[1:]) == 1


@pytest.mark.parametrize("model", [SCM(5, 5, n_init=3), PMM(5, 10, n_init=3, max_iter=200)], ids=repr)
def test_the_starts_of_two_sided_clusterings_are_not_those_of_one_long_row(model):
    agreements = []
    for seed in range(6):
        n, truth = planted(5, seed, per_cluster=20)
        n[0] = np.random.RandomState(seed).multinomial(4500, n[:20].sum(axis=0) / n[:20].sum())
        labels = model.set_params(random_state=seed).fit(n).labels_
        agreements.append(adjusted_rand_score(truth, labels))
    assert np.mean(agreements) > 0.95


def test_whoever_types_the_default_predicts_better_than_one_profile_and_is_warned_otherwise():
    """Short rows of many topics, where maximum likelihood loses to a single profile."""
    n, _ = planted(8, 0, occurrences=12, M=200)
    train, validation, test = split_counts(n, [0.8, 0.1, 0.1], 0)
    single = ACM(1, beta=1.0).fit(train).perplexity(test)
    for model in (SMM(32, random_state=0), ACM(32, random_state=0), HACM(32, random_state=0)):
        assert model.fit(train).perplexity(test) < single
    with pytest.warns(UserWarning, match="ACM predicts held-out occurrences worse than one profile for all"):
        ACM(32, "hard", random_state=0).fit(train, validation=validation)


@pytest.mark.parametrize("model", [SMM(3, random_state=0), ACM(3, random_state=0)], ids=["smm", "acm"])
def test_a_new_row_without_a_known_word_gets_the_weights(model):
    n, _ = planted(3, 0)
    n = np.pad(n, ((0, 0), (0, 1)))
    fitted = model.fit(n)
    new = np.zeros((2, 31))
    new[1, 30] = 3  # a column that no fitted row has
    np.testing.assert_allclose(fitted.transform(new[:1]), fitted.weights_[None], atol=1e-9)
    np.testing.assert_allclose(fitted.transform(new).sum(axis=1), 1)
    assert np.isfinite(fitted.transform(new)).all()


@pytest.mark.parametrize("case", ["many", "unequal", "sparse", "noise"])
def test_aspects_are_found_without_doubles(case):
    """Whole rows of twenty planted aspects: random starts alone give some twice and miss others."""
    rng = np.random.RandomState(1)
    M, occurrences, alpha, noise = {"sparse": (200, 40, 0.1, 0), "noise": (60, 90, 0.2, 0.3)}.get(
        case, (30, 90, 0.4, 0)
    )
    sizes = np.rint(np.geomspace(5, 40, 20)).astype(int) if case == "unequal" else np.full(20, 12)
    profiles, truth = rng.dirichlet(np.full(M, alpha), size=20), np.repeat(np.arange(20), sizes)
    n = np.array([rng.multinomial(occurrences, (1 - noise) * profiles[k] + noise / M) for k in truth])
    assert adjusted_rand_score(truth, SMM(20, random_state=0).fit_predict(n.astype(float))) > 0.99


def test_two_sided_clusters_tell_as_much_as_the_planted_ones():
    rng = np.random.RandomState(0)
    rows, columns = np.repeat(np.arange(10), 15), np.repeat(np.arange(10), 12)
    joint = rng.dirichlet(np.full(100, 0.3)).reshape(10, 10)[rows][:, columns]
    n = rng.multinomial(30_000, (joint / joint.sum()).ravel()).reshape(joint.shape).astype(float)
    model = SCM(10, 10, "hard", random_state=0).fit(n)
    known = np.eye(10)[rows].T @ n @ np.eye(10)[columns]
    assert model.mutual_information_ > 0.999 * mutual_information(known / known.sum())


def test_settings_of_large_tables_are_chosen_on_some_rows_and_in_single_precision(monkeypatch):
    n, truth = planted(4, 2, per_cluster=60)
    expected = SMM(4, random_state=0).fit(n)
    monkeypatch.setattr("texseg.models.estimator.LARGE_TABLE", 3000)
    monkeypatch.setattr("texseg.models.estimator.FEW_ENTRIES", 2000)
    model = SMM(4, random_state=0).fit(n)
    assert adjusted_rand_score(truth, model.labels_) == 1
    assert model.perplexity(n) == pytest.approx(expected.perplexity(n), rel=0.01)


@pytest.mark.parametrize("model", [ACM, HACM])
def test_the_chosen_temperature_predicts_no_worse_than_temperature_one(model):
    """Long rows, of which leaving them out brings nothing: the plain clusters are those of beta=1."""
    n, _ = planted(6, 1, per_cluster=8, occurrences=900)
    train, test = split_counts(n, [0.9, 0.1], 0)
    chosen, plain = (model(6, random_state=0, **beta).fit(train) for beta in ({}, {"beta": 1.0}))
    assert chosen.perplexity(test) < 1.001 * plain.perplexity(test)
    if chosen.beta_ == 1:
        np.testing.assert_allclose(chosen.components_, plain.components_)


def test_the_history_of_several_starts_ends_with_the_one_that_is_kept():
    n, _ = planted(8, 3, occurrences=40)
    for seed in range(2):
        one, four = (SMM(8, beta=1.0, n_init=starts, random_state=seed).fit(n) for starts in (1, 4))
        assert four.history_[-1].free_energy == four.free_energy_ <= one.free_energy_ * (1 + 1e-6)


def test_words_and_recommendations_have_names():
    pd = pytest.importorskip("pandas")
    n, _ = planted(3, 0)
    frame = pd.DataFrame(n, columns=[f"word {j}" for j in range(30)])
    model = SMM(3, random_state=0).fit(frame)
    words = model.top_words(n=4)
    assert [len(row) for row in words] == [4, 4, 4]
    assert words[0][0] == (f"word {model.components_[0].argmax()}", model.components_[0].max())
    table = model.to_frame()
    np.testing.assert_array_equal(table.to_numpy(), model.components_)
    assert list(table.columns) == list(frame.columns) and list(table.index) == ["smm0", "smm1", "smm2"]
    rare = np.where(np.arange(30) < 25, n, 0)
    found = model.recommend(pd.DataFrame(rare, columns=frame.columns), 3)
    expected = model.transform(pd.DataFrame(rare, columns=frame.columns)) @ model.components_
    expected[rare > 0] = 0
    assert [row[0][0] for row in found] == [f"word {j}" for j in expected.argmax(axis=1)]
    with pytest.raises(ValueError, match="SMM needs names for its 30 columns, got 2"):
        model.top_words(["a", "b"])


def test_distinct_words_are_not_those_that_all_components_share():
    n = np.array([[20.0, 6, 0], [21, 7, 0], [19, 0, 8], [22, 0, 7]])
    model = ACM(2, beta=1.0, random_state=0).fit(n)
    assert [row[0][0] for row in model.top_words(n=1)] == ["0", "0"]
    assert {row[0][0] for row in model.top_words(n=1, distinct=True)} == {"1", "2"}
