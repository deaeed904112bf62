"""Retrieval by clusters: planted trees, whose words, levels, rows and ways down are known."""

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.planted import planted_tree
from texseg.models import ACM, HACM, PMM, SCM, SMM, Retrieval

DEPTH = 3


@pytest.fixture(scope="module")
def planted():
    return planted_tree(DEPTH, rows_per_leaf=12, random_state=0)


@pytest.fixture(scope="module")
def fitted(planted):
    return HACM(2**DEPTH, tree="annealing", beta=1.0, random_state=0).fit(planted.counts)


@pytest.fixture(scope="module")
def retrieval(planted, fitted):
    names = [f"word{j}" for j in range(planted.counts.shape[1])]
    return Retrieval(fitted, planted.counts, names, [f"row {i}" for i in range(len(planted.counts))])


def found_node(planted, fitted, node):
    """The node of the fitted tree with the same rows below it."""
    rows = planted.tree.membership[planted.clusters, node]
    same = (fitted.tree_.membership[fitted.labels_] == rows[:, None]).all(axis=0)
    assert same.sum() == 1, f"the tree has no node with the rows of planted node {node}"
    return int(same.argmax())


def words_of(planted, node):
    return {f"word{j}" for j in np.flatnonzero(planted.owners == node)}


def test_the_planted_tree_is_found(planted, fitted):
    assert len({found_node(planted, fitted, v) for v in range(len(planted.tree.parents))}) == 15


def test_clusters_that_one_run_missed_are_taken_from_the_others():
    # with so much background every run alone misses a leaf of this set
    planted = planted_tree(4, row_total=40, background=0.4, random_state=0)
    model = HACM(16, beta=1.0, random_state=0).fit(planted.counts)
    most_of = [np.bincount(planted.clusters[model.labels_ == k]).argmax() for k in range(16)]
    assert sorted(most_of) == list(range(16))


def test_phase_transitions_give_the_planted_tree():
    # halves that a cluster kept from temperatures at which it was stable spoilt the splits of this set
    planted = planted_tree(4, random_state=0)
    model = HACM(16, tree="annealing", n_init=1, random_state=0).fit(planted.counts)
    assert len({found_node(planted, model, v) for v in range(len(planted.tree.parents))}) == 31


def test_words_stand_at_the_level_of_the_node_that_they_were_planted_in(planted, retrieval):
    levels = planted.tree.levels[planted.owners]
    found = np.array([retrieval.level(word) for word in retrieval.words])
    abstract = levels < DEPTH
    assert (found == levels)[abstract].mean() >= 0.9
    assert (found == levels)[~abstract].mean() >= 0.9


def test_the_words_of_a_node_are_its_own_and_a_plain_average_is_not(planted, fitted, retrieval):
    own, averaged = [], []
    for node in range(1, 7):
        found, planted_words = found_node(planted, fitted, node), words_of(planted, node)
        own += [word in planted_words for word, _ in retrieval.words_of(found, 8)]
        averaged += [word in planted_words for word, _ in retrieval.average_words_of(found, 8)]
    assert np.mean(own) >= 0.9
    assert np.mean(averaged) <= 0.6


def test_an_average_is_the_pooled_profile_of_the_rows_below(planted, fitted, retrieval):
    node = found_node(planted, fitted, 2)
    pooled = planted.counts[planted.tree.membership[planted.clusters, 2] > 0].sum(axis=0)
    np.testing.assert_allclose(retrieval.averages[node], pooled / pooled.sum(), atol=1e-6)


def test_rows_for_a_query_are_those_of_the_cluster_that_uses_its_words(planted, retrieval):
    for cluster, leaf in enumerate(planted.tree.leaves):
        matches = retrieval.search(sorted(words_of(planted, leaf))[:3], 12)
        assert {planted.clusters[match.row] for match in matches} == {cluster}
        assert [match.score for match in matches] == sorted((m.score for m in matches), reverse=True)
        assert matches[0].title == f"row {matches[0].row}"


def test_a_row_is_found_by_a_word_that_it_lacks(planted, retrieval):
    """The cluster hypothesis: it beats all rows of other clusters that lack the word too."""
    leaf, cluster = planted.tree.leaves[3], 3
    of_leaf = np.flatnonzero(planted.owners == leaf)
    word = of_leaf[planted.counts[:, of_leaf].sum(axis=0).argmin()]
    probabilities = retrieval.row_probabilities([f"word{word}"])
    lacking = planted.counts[:, word] == 0
    inside = lacking & (planted.clusters == cluster)
    assert inside.any()
    assert probabilities[inside].min() > probabilities[lacking & (planted.clusters != cluster)].max()


def test_probabilities_of_rows_are_those_of_the_formula(planted, fitted):
    share, floor, M = 0.4, 0.01, planted.counts.shape[1]
    retrieval = Retrieval(fitted, sp.csr_array(planted.counts), own_share=share)
    query = np.zeros(M)
    query[[3, 50]] = 2, 1
    expected = []
    for i, row in enumerate(planted.counts):
        product = 1.0
        for j, times in ((3, 2), (50, 1)):
            said = sum(fitted.row_posteriors_[i, k] * fitted.components_[k, j] for k in range(2**DEPTH))
            product *= ((1 - share) * ((1 - floor) * said + floor / M) + share * row[j] / row.sum()) ** times
        expected.append(product)
    found = retrieval.row_probabilities(query)
    np.testing.assert_allclose(found, np.array(expected) / np.sum(expected), rtol=1e-9)
    np.testing.assert_allclose(retrieval.row_probabilities(["3", "50", "3"]), found)
    np.testing.assert_allclose(retrieval.row_probabilities("50 3 unheard 3"), found)


def test_nodes_for_a_word_are_those_of_the_formula(planted, fitted, retrieval):
    shares = planted.counts.sum(axis=1) @ retrieval.node_shares
    for word in (3, 50):
        joint = shares * retrieval.nodes[:, word]
        found = retrieval.responsibility([retrieval.words[word]])
        np.testing.assert_allclose(found, joint / joint.sum(), rtol=1e-9)


def test_prototypes_of_a_node_lie_below_it_and_their_shares_are_a_share(planted, fitted, retrieval):
    for node in range(1, 15):
        for match in retrieval.prototypes(found_node(planted, fitted, node), 5):
            assert planted.tree.membership[planted.clusters[match.row], node] == 1
            assert 0.25 < match.score < 0.6  # a word in four is due to each of four levels, give or take
    np.testing.assert_allclose(retrieval.row_shares.sum(axis=1), 1, rtol=1e-9)


def test_a_word_of_two_subtrees_has_two_places(planted):
    """Fig. 10 of the memo: an ambivalent word is used in two branches."""
    left, right = planted.tree.leaves[[0, 7]]
    one, other = (np.flatnonzero(planted.owners == leaf) for leaf in (left, right))
    counts = planted.counts.copy()
    counts[:, one[0]] += counts[:, other[0]]
    model = HACM(2**DEPTH, tree="annealing", beta=1.0, random_state=0).fit(counts)
    share = Retrieval(model, counts).responsibility([str(one[0])])
    assert share.sum() == pytest.approx(1)
    places = {found_node(planted, model, left), found_node(planted, model, right)}
    assert set(np.argsort(-share)[:2].tolist()) == places and np.sort(share)[-2] > 0.2


def test_words_that_a_row_lacks_are_told_by_level(planted, retrieval):
    rng = np.random.default_rng(0)
    right = []
    for row in rng.choice(len(planted.counts), 20, replace=False):
        lists = retrieval.unseen_words(row, 1)
        assert len(lists) == DEPTH + 1
        lacking = planted.counts[row] == 0
        for node, words in zip(planted.tree.paths[planted.clusters[row]], lists, strict=True):
            for word, _ in words:
                assert lacking[int(word[4:])]
                if lacking[planted.owners == node].any():
                    right.append(planted.owners[int(word[4:])] == node)
    assert len(right) > 10 and np.mean(right) >= 0.8


def test_a_walk_follows_the_words_from_the_root_to_their_leaf(planted, fitted, retrieval):
    for cluster, leaf in enumerate(planted.tree.leaves):
        path = retrieval.walk(sorted(words_of(planted, leaf))[:2])
        expected = [found_node(planted, fitted, node) for node in planted.tree.paths[cluster]]
        assert [view.node for view in path] == expected
        assert [view.n_rows for view in path] == [96, 48, 24, 12]
        assert [view.level for view in path] == [0, 1, 2, 3]
        for above, below in zip(path, path[1:], strict=False):
            assert below.node in above.children and below.parent == above.node
        assert not path[-1].children


@pytest.mark.filterwarnings("ignore:HACM stopped after max_iter=10 steps")
@pytest.mark.parametrize("mixing", ["constant", "object"])
def test_every_stage_of_the_mixing_predicts_what_its_model_predicts(planted, mixing):
    model = HACM(8, mixing, random_state=0, max_iter=10).fit(planted.counts)
    found = Retrieval(model, planted.counts)
    np.testing.assert_allclose(found.node_shares @ found.nodes, model.mixing_ @ model.components_, atol=1e-9)
    np.testing.assert_allclose(found.node_shares.sum(axis=1), 1, rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [ACM(8), SMM(8, n_init=3), PMM(8, 8), SCM(8, 8, "hard")],
    ids=lambda model: type(model).__name__,
)
def test_models_without_a_tree_find_rows_and_words_too(planted, model):
    found = Retrieval(model.set_params(random_state=0).fit(planted.counts), planted.counts)
    node = int(found.responsibility(["60"]).argmax())
    assert found.words_of(node, 3) and found.average_words_of(node, 3) and found.prototypes(node, 3)
    top = found.search("60 61", 5)
    assert np.mean([planted.counts[m.row, [60, 61]].any() for m in top]) == 1
    assert found.level("60") == 0 and len(found.unseen_words(0)) == 1
    with pytest.raises(ValueError, match="has no tree to walk in; fit a HACM"):
        found.walk("60")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"X": np.ones((3, 3))}, r"needs the counts that HACM was fitted to, \(96, 120\), got \(3, 3\)"),
        ({"words": ["a"]}, "needs words for its 120 columns, got 1"),
        ({"titles": ["a"]}, "needs titles for its 96 rows, got 1"),
        ({"words": ["a"] * 120}, "all different, got 'a' more than once"),
        ({"own_share": 2}, "needs own_share between 0 and 1, got 2"),
    ],
)
def test_what_does_not_belong_together_is_refused(planted, fitted, options, message):
    with pytest.raises(ValueError, match=message):
        Retrieval(fitted, **{"X": planted.counts, **options})


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.search("nonsense"), "no word of the query .* is among the 120 known ones"),
        (lambda r: r.search(""), "no word of the query"),
        (lambda r: r.search(np.ones(3)), r"an array of shape \(120,\), got \(3,\)"),
        (lambda r: r.search(-np.ones(120)), "must not hold negative, infinite or missing counts"),
        (lambda r: r.words_of(99), "node must lie in 0 ... 14, got 99"),
        (lambda r: r.look(-1), "node must lie in 0 ... 14, got -1"),
        (lambda r: r.unseen_words(96), "row must lie in 0 ... 95, got 96"),
    ],
)
def test_bad_questions_get_a_clear_answer(retrieval, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(retrieval)


def test_a_name_may_hold_spaces():
    n = np.array([[6.0, 6, 0], [5, 7, 0], [6, 0, 6], [7, 0, 5]])
    found = Retrieval(ACM(2, random_state=0).fit(n), n, ["to all", "Toy Story", "Story"])
    np.testing.assert_allclose(found.row_probabilities("Toy Story"), found.row_probabilities(["Toy Story"]))
    assert found.search("Story to", 1)[0].row in (2, 3)
    with pytest.raises(ValueError, match="n must be a whole number, at least 0, got -3"):
        found.search("Story", -3)


def test_names_are_those_of_the_data_frame_that_was_fitted():
    frame = pytest.importorskip("pandas").DataFrame(
        np.kron(np.eye(2), np.full((3, 2), 5)), columns=list("abcd")
    )
    found = Retrieval(ACM(2, random_state=0).fit(frame), frame)
    assert found.words == list("abcd")
    assert {match.row for match in found.search("d", 3)} == {3, 4, 5}
