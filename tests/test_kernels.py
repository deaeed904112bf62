"""Compiled loops and their twins in NumPy give the same labels, where a compiler was at hand."""

import sys
import warnings

import frozen
import numpy as np
import pytest

from texseg import TextureSegmenter, read_image
from texseg.counts.axes import connected_parts
from texseg.counts.grid import PackedCounts, cell_counts, cell_grid
from texseg.counts.sites import Sites
from texseg.fitting.assignment import PottsField
from texseg.fitting.moves import refine_halves, unsplit
from texseg.fitting.steps import Problem
from texseg.models.histograms import HistogramClustering, Profiles
from texseg.threads import kernels

pytestmark = pytest.mark.skipif(kernels is None, reason="built without a compiler")


@pytest.fixture
def twin(monkeypatch):
    """Switch off the compiled loops for what is called."""

    def by_numpy(call):
        with monkeypatch.context() as patch:
            for module in [m for name, m in sys.modules.items() if name.startswith("texseg.")]:
                if getattr(module, "kernels", None) is kernels:
                    patch.setattr(module, "kernels", None)
            return call()

    return by_numpy


@pytest.mark.parametrize(("name", "n_segments"), list(frozen.CASES.items()))
def test_a_frozen_scene_gets_the_same_labels(name, n_segments, twin):
    """The same labels, and confidence but for rounding, on a part of each scene that is quick to divide."""
    picture = read_image(frozen.SAMPLES / f"{name}.png")
    part = picture.pixels[100:260, 100:260]

    def fitted():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TextureSegmenter(n_segments, channel_axis=picture.channel_axis, random_state=0)
            return model.fit(part)

    compiled, plain = fitted(), twin(fitted)
    np.testing.assert_array_equal(compiled.labels_, plain.labels_)
    np.testing.assert_allclose(compiled.confidence_, plain.confidence_, atol=2e-3)


@pytest.mark.parametrize("presence", [None, "some"])
def test_sweeps_agree_on_any_number_of_clusters_and_grids(presence, twin):
    """More clusters than a vector holds, several images, runs, sites without data, impossible clusters."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(7 * 9 + 33 * 5, 3, 11)).astype(np.float32) * 3
    scores[4, :, 2] = -np.inf
    weights = None if presence is None else rng.random(len(scores)).round().astype(np.float32)
    field = PottsField([(7, 9), (33, 5)], strength=6.0, sigma=1.2, n_sweeps=4, presence=weights)

    def swept():
        return field(scores, 0.5, np.ones(11))

    compiled, plain = swept(), twin(swept)
    np.testing.assert_allclose(compiled.posteriors, plain.posteriors, atol=2e-5)
    np.testing.assert_allclose(compiled.free_energy, plain.free_energy, rtol=1e-6)
    assert (compiled.posteriors[4, :, 2] == 0).all()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("n_bins", "n_clusters"), [(5, 3), (8, 11)])
def test_steps_and_halves_agree_on_any_number_of_clusters_and_columns(packed, n_bins, n_clusters, twin):
    """One pass over the sites does what products, assignment and products do, on odd numbers of each."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, (1037, 3 * n_bins)).astype(np.uint8)
    table[7] = 0
    counts = PackedCounts(table, np.float32(1 / 8)) if packed else table.astype(np.float32) / 8
    background = rng.dirichlet(np.ones(n_bins), 3).ravel().astype(np.float32)
    weights = np.repeat(np.float32([1, 2, 0.5]), n_bins)
    sites = Sites(counts, np.ones(len(table), np.float32), weights, ((1, len(table)),), background)
    profiles = rng.dirichlet(np.ones(n_bins), (n_clusters, 3)).reshape(n_clusters, -1)
    model = HistogramClustering(background=background)

    def fitted():
        step = model.step(sites, Profiles(profiles, np.full(n_clusters, 1 / n_clusters)), 1.5)
        problem, rng = Problem(model, sites, 1.5), np.random.RandomState(0)
        begun = unsplit(problem, step.posteriors, step.stats)._replace(fresh=np.arange(n_clusters) % 2 == 0)
        now = refine_halves(problem, begun, rng)
        again = refine_halves(problem, now, rng)
        unstable = model.instabilities(sites, step.params, step.posteriors, rng)
        found = [*step.params, step.free_energy, step.posteriors, begun.energies, now.halves, again.halves]
        return [*found, *again.kept, again.gains, *unstable]

    for one, other in zip(fitted(), twin(fitted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("shape", "spacing"), [((33, 45), ()), ((5, 33, 45), ()), ((5, 33, 45), (np.inf, 1, 1))]
)
def test_cells_are_counted_alike_where_they_are_cut_and_masked(packed, shape, spacing, twin):
    """Of images, volumes and stacks, whose last cells are cut off."""
    rng = np.random.default_rng(0)
    bins, mask = rng.integers(0, 9, (3, *shape), np.uint8), rng.random(shape) > 0.2

    def counted():
        return cell_counts(bins, cell_grid(shape, 6, mask, spacing), 9, mask, packed)

    np.testing.assert_array_equal(counted()[...], twin(counted)[...])


@pytest.mark.parametrize("shape", [(40, 57), (6, 17, 23), (4, 20, 1), (1, 9, 30)])
def test_parts_are_numbered_alike(shape, twin):
    """Of images and volumes with many parts, some inside others, and places without data."""
    labels = np.random.default_rng(0).integers(-1, 3, shape).astype(np.int32)
    labels[5:, 5:11] = 1
    compiled, plain = connected_parts(labels), twin(lambda: connected_parts(labels))
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one, other)
