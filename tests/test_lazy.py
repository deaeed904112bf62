"""Lazy arrays are labelled lazily, with the labels of the whole, also when a worker is lost."""

import multiprocessing

import numpy as np
import pytest

from tests.test_blocks import scene
from texseg import TextureSegmenter, segment
from texseg.method.blocks import Request, label_array, plan_blocks

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def image():
    return scene(200, 300)


@pytest.fixture(scope="module")
def model(image):
    return TextureSegmenter(2).fit(image)


def by_blocks(image, model, **options):
    blocks = plan_blocks(model.labels_.shape, model.textures_, side=128)
    return label_array(image, model.textures_, Request(), blocks=blocks, **options)


def test_dask_arrays_have_the_labels_of_the_whole(image, model):
    lazy = by_blocks(da.from_array(image, chunks=(90, 110)), model)
    assert isinstance(lazy, da.Array) and lazy.dtype == np.int32 and lazy.shape == image.shape
    found = lazy.compute(scheduler="threads")
    assert np.mean(found == model.labels_) > 0.9999


def test_nothing_is_read_before_it_is_asked_for(model):
    def read():
        raise AssertionError("read too early")

    lazy = model.predict(da.from_delayed(dask.delayed(read)(), (200, 300), float))
    with pytest.raises(AssertionError, match="read too early"):
        lazy.compute(scheduler="sync")


def test_bands_and_masks_are_lazy_too(image):
    colour = np.stack([image, image[::-1], image])
    mask = np.ones(image.shape, bool)
    mask[50:120, 100:200] = False
    model = TextureSegmenter(2, channel_axis=0).fit(colour, mask=mask)
    undefined = np.where(mask, 1, np.nan)  # NaN is no data, as in memory
    lazy = by_blocks(da.from_array(colour), model, channel_axis=0, mask=da.from_array(undefined))
    found = lazy.compute(scheduler="sync")
    np.testing.assert_array_equal(found == 0, ~mask)
    assert np.mean(found == model.labels_) > 0.999


def test_zarr_arrays_and_xarray(image, model, tmp_path):
    zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
    array = zarr.create_array(tmp_path / "image.zarr", shape=image.shape, dtype="f8", chunks=(100, 100))
    array[:] = image
    expected = model.predict(image)
    np.testing.assert_array_equal(model.predict(array).compute(scheduler="sync"), expected)
    frame = xarray.DataArray(da.from_array(image), dims=("y", "x"), coords={"y": np.arange(len(image)) / 2})
    labels = model.predict(frame)
    assert labels.dims == ("y", "x") and labels.name == "labels" and labels.chunks is not None
    np.testing.assert_array_equal(labels.coords["y"], frame.coords["y"])
    np.testing.assert_array_equal(labels.to_numpy(), expected)


def test_fit_and_segment_learn_from_crops(image, model):
    lazy = da.from_array(image, chunks=150)
    labels = segment(lazy, 2)
    assert isinstance(labels, da.Array)
    assert np.mean(labels.compute(scheduler="sync") == model.labels_) > 0.99
    with pytest.raises(ValueError, match="rescale=True needs images in memory"):
        model.predict(lazy, rescale=True)
    with pytest.raises(ValueError, match="image must have 2 axes with channel_axis=None, got shape"):
        segment(da.zeros((3, 300, 300)), 2)


def test_what_was_learned_from_crops_has_their_hierarchy_and_can_be_merged():
    model = TextureSegmenter(2).fit(da.from_array(scene(150, 600)))
    assert model.hierarchy_.n_segments[0] == 1 and isinstance(model.hierarchy_.labels(1), list)
    with pytest.raises(ValueError, match="too large to be fitted as a whole; fit a part of it"):
        model.split(1)
    with pytest.raises(ValueError, match="refit needs images that were fitted as a whole, not crops of a"):
        model.refit(np.ones((150, 600), int))
    model.merge([(1, 2)])
    assert set(np.unique(model.labels_)) == {1}
    with pytest.raises(AttributeError, match="after editing an image that was fitted on crops"):
        _ = model.hierarchy_


def test_a_worker_that_is_killed_loses_nothing(image, model, monkeypatch):
    distributed = pytest.importorskip("distributed")
    # one process imports everything, and workers begin as its copies: they are there at once
    multiprocessing.set_forkserver_preload(["distributed", "texseg.method.blocks"])
    monkeypatch.setitem(dask.config.config["distributed"]["worker"], "multiprocessing-method", "forkserver")
    lazy = by_blocks(da.from_array(image, chunks=(100, 150)), model)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        future = client.compute(lazy)
        list(cluster.workers.values())[0].process.process._process.kill()
        found = future.result(timeout=240)
    assert np.mean(found == model.labels_) > 0.9999
