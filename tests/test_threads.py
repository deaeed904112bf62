"""BLAS is held to one thread while anybody computes, and is what it was before when all have finished."""

import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # brings a BLAS of its own
from threadpoolctl import threadpool_info, threadpool_limits

from texseg import TextureSegmenter
from texseg.threads import map_in_order, n_threads, one_blas_thread


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_the_limit_lasts_until_the_last_thread_leaves(two_threads):
    entered, leave = threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=stay)
    with one_blas_thread():
        other.start()
        assert entered.wait(10)
    assert blas_threads() == {1}  # the first has left, the other is still at work
    leave.set()
    other.join()
    assert blas_threads() == {2}


def test_a_fit_that_fails_restores_the_limit(two_threads):
    with pytest.raises(ValueError, match="n_segments"):
        TextureSegmenter(0).fit(np.eye(32))
    assert blas_threads() == {2}


def test_results_come_in_order_and_few_wait():
    begun = []

    def work(i):
        begun.append(i)
        return i

    results = map_in_order(work, range(20), 3)
    assert next(results) == 0
    assert len(begun) <= 5  # three waited, and no more is begun than is taken
    assert list(results) == list(range(1, 20))


def test_an_error_comes_out_of_the_threads():
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda i: 1 // (3 - i), range(9), 2))


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True])
def test_numbers_of_threads_that_make_no_sense(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a whole number"):
        n_threads(n_jobs)
    assert n_threads(-1) == n_threads(None) >= 1
