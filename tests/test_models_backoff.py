"""A row's own occurrences beside what a model expects of it."""

import numpy as np
import pytest
import scipy.sparse as sp

from texseg.counts.blocks import BlockCounts
from texseg.counts.matrix import split_counts
from texseg.models import ACM, HACM, SMM, Backoff, Committee


@pytest.fixture(scope="module")
def parts():
    """Rows that depart from their cluster, each in its own way."""
    rng = np.random.default_rng(0)
    profiles = rng.dirichlet(np.full(30, 0.3), 3)
    rows = [rng.dirichlet(20 * profiles[k % 3] + 1e-3) for k in range(60)]
    counts = np.array([rng.multinomial(50, p) for p in rows])
    counts[7] = 0
    return [part.toarray() for part in split_counts(counts, [0.6, 0.2, 0.2], 0)]


@pytest.mark.parametrize(
    "model", [SMM(3), ACM(3, beta="auto"), HACM(3, "object"), Committee(SMM(3), 2)], ids=repr
)
def test_predictions_are_those_of_the_formula_and_better_than_the_models(parts, model):
    train, validation, test = parts
    found = Backoff(model, random_state=0).fit(train, validation=validation)
    d, s = found.discount_, found.strength_
    p = found.estimator_.mixing_ @ found.estimator_.components_
    kinds = (train > 0).sum(axis=1, keepdims=True)
    expected = np.maximum(train - d, 0) + (s + d * kinds) * p
    expected[7] = p[7]
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities(), expected)
    np.testing.assert_allclose(found.probabilities(slice(5, 9)), expected[5:9])
    logs = (test * np.log(0.99 * expected + 0.01 / 30)).sum()
    assert found.perplexity(test) == pytest.approx(np.exp(-logs / test.sum()))
    assert found.perplexity(test) < 0.9 * found.estimator_.perplexity(test)
    folded = found.perplexity(test[20:40], fold_in=train[20:40])
    assert folded < 0.9 * found.estimator_.perplexity(test[20:40], fold_in=train[20:40])


def test_rows_that_repeat_nothing_are_not_heard():
    rng = np.random.default_rng(1)
    sets = np.array([rng.permutation(np.r_[np.ones(8), np.zeros(16)]) for _ in range(200)])
    train, validation, test = (part.toarray() for part in split_counts(sets, [0.6, 0.2, 0.2], 0))
    found = Backoff(SMM(1), random_state=0).fit(train, validation=validation)
    assert found.strength_ >= 1000
    assert found.perplexity(test) == pytest.approx(found.estimator_.perplexity(test), rel=0.01)


def test_every_kind_of_counts_gives_the_same(parts):
    train, validation, test = parts
    expected = Backoff(SMM(3), random_state=0).fit(train, validation=validation).perplexity(test)
    for known in (sp.csr_array(train), BlockCounts([train[:13], train[13:]])):
        found = Backoff(SMM(3), random_state=0).fit(known, validation=sp.csr_array(validation))
        assert found.perplexity(sp.csr_array(test)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_without_validation_it_holds_some_back_and_knows_it_in_the_end(parts, scale):
    n = scale * (parts[0] + parts[1])
    one, other = (Backoff(SMM(3, beta="auto"), random_state=2).fit(n) for _ in range(2))
    assert one.perplexity(parts[2]) == other.perplexity(parts[2])
    np.testing.assert_allclose(one.counts_, n)
    np.testing.assert_allclose(one.probabilities().sum(axis=1), 1)


def test_what_cannot_be_backed_off_to_is_refused(parts):
    with pytest.raises(TypeError, match="Backoff needs an estimator of texseg.models, got str"):
        Backoff("SMM").fit(parts[0])
    with pytest.raises(ValueError, match="Backoff needs validation_fraction between 0 and 1, got 1"):
        Backoff(SMM(2), validation_fraction=1).fit(parts[0])
    with pytest.raises(ValueError, match="got X with 3 rows, but 60 were fitted; pass fold_in"):
        Backoff(SMM(2), random_state=0).fit(parts[0]).perplexity(parts[2][:3])
