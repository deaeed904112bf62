"""Several fits averaged: never worse than the members' mean, and the formula of the mean."""

import numpy as np
import pytest

from texseg.counts.matrix import split_counts
from texseg.models import ACM, HACM, SMM, Committee


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    profiles = rng.dirichlet(np.full(30, 0.2), 5)
    counts = np.array([rng.multinomial(40, p) for p in rng.dirichlet(np.full(5, 0.3), 60) @ profiles])
    return [part.toarray().astype(float) for part in split_counts(counts, [0.6, 0.2, 0.2], 0)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", [SMM(6), ACM(6, beta=0.2), HACM(4, "object", max_iter=5)], ids=repr)
def test_it_predicts_the_mean_of_what_its_members_predict(parts, model):
    train, _, test = parts
    committee = Committee(model, 3, random_state=0).fit(train)
    mean = np.mean([m.mixing_ @ m.components_ for m in committee.members_], axis=0)
    np.testing.assert_allclose(committee.mixing_ @ committee.components_, mean, rtol=1e-9)
    M = test.shape[1]
    expected = np.exp(-(test * np.log(0.99 * mean + 0.01 / M)).sum() / test.sum())
    assert committee.perplexity(test) == pytest.approx(expected)
    alone = [member.perplexity(test) for member in committee.members_]
    assert committee.perplexity(test) <= np.exp(np.mean(np.log(alone)))
    folded = Committee(model, 1, random_state=0).fit(train)
    new = test[:7]
    assert folded.perplexity(new, fold_in=train[:7]) == pytest.approx(
        folded.members_[0].perplexity(new, fold_in=train[:7])
    )


def test_members_differ_and_a_seed_repeats_them(parts):
    train, validation, test = parts
    committees = (Committee(SMM(6, beta="auto"), 2, random_state=3) for _ in range(2))
    one, other = (committee.fit(train, validation=validation) for committee in committees)
    assert one.perplexity(test) == other.perplexity(test)
    assert not np.allclose(one.members_[0].components_, one.members_[1].components_)
    assert one.perplexity(test) < min(member.perplexity(test) for member in one.members_)


def test_what_cannot_be_a_committee_is_refused(parts):
    with pytest.raises(ValueError, match="needs n_members as a whole number, at least 1, got 0"):
        Committee(SMM(2), 0).fit(parts[0])
    with pytest.raises(TypeError, match="needs an estimator of texseg.models, got str"):
        Committee("SMM").fit(parts[0])
    with pytest.raises(ValueError, match="got X with 3 rows, but 60 were fitted; pass fold_in"):
        Committee(SMM(2), 1, random_state=0).fit(parts[0]).perplexity(parts[2][:3])
