"""BLAS is held to one thread while anybody computes, and is what it was before when all have finished."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # brings a BLAS of its own
from threadpoolctl import threadpool_info, threadpool_limits

from texseg import TextureSegmenter
from texseg.models import ACM
from texseg.threads import crew_of, crew_size, n_threads, one_blas_thread, side_by_side


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield blas_threads()  # 2, and 1 of a library that does not let itself be told, as in older OpenCV


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
    assert blas_threads() == two_threads and 2 in two_threads


def test_models_are_fitted_by_one_thread(two_threads):
    class Looked(ACM):
        def _model(self, data):
            seen.append(blas_threads())
            return super()._model(data)

    seen = []
    Looked(2, beta=1.0, random_state=0).fit(np.eye(4))
    assert seen[0] == {1} and blas_threads() == two_threads


def test_a_library_that_is_imported_meanwhile_is_limited_by_the_next_to_enter():
    code = (
        "import texseg.threads, threadpoolctl\n"
        "with texseg.threads.one_blas_thread():\n"
        "    import scipy.linalg, scipy.optimize\n"
        "    with texseg.threads.one_blas_thread():\n"
        "        found = threadpoolctl.threadpool_info()\n"
        "        print({one['num_threads'] for one in found if one['user_api'] == 'blas'})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "{1}\n"


def test_a_fit_that_fails_restores_the_limit(two_threads):
    with pytest.raises(ValueError, match="n_segments"):
        TextureSegmenter(0).fit(np.eye(32))
    assert blas_threads() == two_threads and 2 in two_threads


def test_no_more_is_worked_on_together_than_memory_allows():
    running, most = [], []

    def work(i):
        running.append(i)
        most.append(len(running))
        time.sleep(0.002)
        running.remove(i)
        return i

    with crew_of(5):
        assert side_by_side(work, range(20), at_once=2) == list(range(20))
    assert max(most) == 2


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True])
def test_numbers_of_threads_that_make_no_sense(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a whole number"):
        n_threads(n_jobs)
    assert n_threads(-1) == n_threads(None) >= 1


def test_a_crew_shares_work_out_at_any_depth_and_never_grows():
    """Work that is shared out by shared work neither waits for itself nor uses more threads."""
    at_once, most, lock = [0], [0], threading.Lock()

    def inner(i):
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.002)
        with lock:
            at_once[0] -= 1
        return i

    def outer(i):
        assert crew_size() == 3
        return side_by_side(inner, range(10 * i, 10 * i + 5))

    with crew_of(3), crew_of(8):  # a crew inside a crew is the same
        found = side_by_side(outer, range(6))
    assert found == [list(range(10 * i, 10 * i + 5)) for i in range(6)]
    assert 1 < most[0] <= 3
    assert crew_size() == 1


def test_progress_is_told_by_the_calling_thread():
    told = []

    def tell(done, total):
        assert threading.current_thread() is threading.main_thread()
        told.append((done, total))

    with crew_of(4):
        side_by_side(lambda i: time.sleep(0.001), range(30), tell)
    assert told == sorted(told)
    assert all(0 <= done < total == 30 for done, total in told)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_of_shared_work_ends_it(n_jobs):
    begun = []

    def work(i):
        begun.append(i)
        time.sleep(0.002)
        raise IndexError(i)

    with crew_of(n_jobs), pytest.raises(IndexError):
        side_by_side(work, range(50))
    assert len(begun) <= n_jobs
    assert crew_size() == 1


def mosaic(height, width):
    rows, columns = np.mgrid[:height, :width]
    noise = np.random.default_rng(0).normal(size=(height, width))
    return np.where(columns + rows // 3 < width // 2, np.sin(rows), np.sin(columns / 2)) + noise / 4


@pytest.mark.parametrize("n_segments", [2, None])
def test_labels_do_not_depend_on_the_number_of_threads(n_segments):
    """The image has more cells than are multiplied at once, so that sums are made of several parts."""
    image = mosaic(260, 300)
    models = [TextureSegmenter(n_segments, cell=4, n_jobs=n, k_max=4).fit(image) for n in (1, 2, 5)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.labels_, models[0].labels_)
        np.testing.assert_array_equal(model.confidence_, models[0].confidence_)
        np.testing.assert_array_equal(model.profiles_, models[0].profiles_)
        np.testing.assert_array_equal(model.predict_proba(image), models[0].predict_proba(image))


def test_the_number_of_threads_is_checked_and_used(monkeypatch):
    with pytest.raises(ValueError, match="n_jobs must be a whole number of at least 1, or -1 for all, got 0"):
        TextureSegmenter(2, n_jobs=0).fit(mosaic(64, 64))
    seen = set()
    monkeypatch.setattr("texseg.method.scenes.learn_features", lambda *a, **b: seen.add(crew_size()) or 1 / 0)
    for n in (1, 3):
        with pytest.raises(ZeroDivisionError):
            TextureSegmenter(2, n_jobs=n).fit(mosaic(64, 64))
    assert seen == {1, 3}
