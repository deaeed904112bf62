"""What models are compared with: several fits averaged, and rows' own occurrences backed off to a model."""

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.combined import Backoff, Committee
from texseg.counts.matrix import split_counts
from texseg.models import SMM


@pytest.fixture(scope="module")
def parts():
    """Rows that depart from their cluster, each in its own way."""
    rng = np.random.default_rng(0)
    profiles = rng.dirichlet(np.full(30, 0.3), 3)
    counts = np.array([rng.multinomial(50, rng.dirichlet(20 * profiles[k % 3] + 1e-3)) for k in range(60)])
    return [sp.csr_array(part) for part in split_counts(counts, [0.6, 0.2, 0.2], 0)]


def perplexity(p, test):
    return np.exp(-(test.toarray() * np.log(0.99 * p + 0.01 / 30)).sum() / test.sum())


def test_backing_off_is_the_formula_and_better_than_the_model(parts):
    train, validation, test = parts
    found = Backoff(SMM(3, random_state=0)).fit(train, validation)
    d, s, n = found.discount_, found.strength_, train.toarray()
    p = found.estimator_.mixing_ @ found.estimator_.components_
    expected = np.maximum(n - d, 0) + (s + d * (n > 0).sum(axis=1, keepdims=True)) * p
    expected /= expected.sum(axis=1, keepdims=True)
    assert found.perplexity(test) == pytest.approx(perplexity(expected, test))
    assert found.perplexity(test) < 0.9 * found.estimator_.perplexity(test)


def test_a_committee_predicts_the_mean_of_what_its_members_predict(parts):
    train, validation, test = parts
    committee = Committee(SMM(6, beta="auto"), 3, 0).fit(train, validation=validation)
    mean = np.mean([m.mixing_ @ m.components_ for m in committee.members_], axis=0)
    assert committee.perplexity(test) == pytest.approx(perplexity(mean, test))
    alone = [member.perplexity(test) for member in committee.members_]
    assert committee.perplexity(test) < np.exp(np.mean(np.log(alone)))
