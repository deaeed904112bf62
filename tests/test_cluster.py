"""Workers of a dask scheduler label what one process labels, whatever is killed meanwhile."""

import multiprocessing
import threading
import time
from contextlib import contextmanager

import pytest

from tests.test_cli_large import LITTLE, place, run  # noqa: F401  # a fixture
from texseg.cli.record import PartsFolder

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
zarr = pytest.importorskip("zarr")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Workers begin as copies of one process; a lost scheduler is soon given up."""
    multiprocessing.set_forkserver_preload(["distributed", "texseg.cli.process"])
    config = dask.config.config["distributed"]
    monkeypatch.setitem(config["worker"], "multiprocessing-method", "forkserver")
    monkeypatch.setitem(config["comm"]["timeouts"], "connect", "1s")
    monkeypatch.setattr("texseg.cli.process._ANSWERS", 1)


def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 60}
    return distributed.LocalCluster(**options)


@contextmanager
def when_blocks_exist(folder, act, n=1):
    """Do something as soon as some blocks of an image have been read."""

    def watch():
        while len(list(folder.glob("*.npz"))) < n:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join()


def test_a_killed_worker_and_a_killed_scheduler_change_no_file(place, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("texseg.cli.process._PREVIEW", 40)  # so that workers make smaller levels
    options = [*LITTLE, "--format", "tif,zarr", "--confidence", "-o"]
    args = ["apply", place / "model.texseg", place / "image.tif", *options]
    assert run(*args, tmp_path / "one").exit_code == 0
    one = {path.name: path.read_bytes() for path in (tmp_path / "one").glob("*.*v")}
    for name in ("image_labels.tif", "image_confidence.tif", "image_overlay.png"):
        one[name] = (tmp_path / "one" / name).read_bytes()
    parts = tmp_path / "two" / ".image.texseg-parts"
    with cluster() as first:
        with when_blocks_exist(parts, first.close, 2):
            failed = run(*args, tmp_path / "two", "--scheduler", first.scheduler_address)
    assert failed.exit_code == 1 and "with --resume the same command goes on" in failed.stderr, failed.stderr
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    assert len(kept) >= 2
    monkeypatch.setattr(PartsFolder, "remove", lambda self: None)
    with cluster() as second:
        kill = next(iter(second.workers.values())).process.process._process.kill
        with when_blocks_exist(parts, kill, min(6, len(kept) + 1)):
            done = run(*args, tmp_path / "two", "--resume", "--scheduler", second.scheduler_address)
    assert done.exit_code == 0, done.output
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items())
    assert {name: (tmp_path / "two" / name).read_bytes() for name in one} == one
    levels = zarr.open(tmp_path / "two" / "image_labels.zarr", mode="r")
    array = levels["0"]
    assert sorted(levels) == ["0", "1", "2"] and (levels["2"][:] == array[::16, ::16]).all()
    assert len(levels.attrs["ome"]["multiscales"][0]["datasets"]) == 3
    assert (
        array.shards is not None
        and (array[:] == zarr.open(tmp_path / "one" / "image_labels.zarr")["0"][:]).all()
    )


def test_what_a_scheduler_cannot_do_is_said(place, tmp_path):  # noqa: F811
    args = ["segment", place / "image.tif", "-k", 2, "-o", tmp_path, "--scheduler"]
    assert "no dask scheduler answers at tcp://127.0.0.1:1" in run(*args, "tcp://127.0.0.1:1").stderr
    assert "--scheduler labels an image by blocks" in run(*args, "tcp://127.0.0.1:1", "--page", "all").stderr
