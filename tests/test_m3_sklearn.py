"""The estimators of texseg.m3 under scikit-learn's own checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from texseg.m3 import FiniteM3, HybridM3, InfiniteM3

ESTIMATORS = [
    FiniteM3((3, 2), max_iter=12, warm_up=6, random_state=0),
    InfiniteM3(n_sweeps=20, burn_in=10, random_state=0),
    HybridM3(2, n_sweeps=20, burn_in=10, random_state=0),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
