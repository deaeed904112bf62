"""Block by block, an image gets the labels of the whole."""

import numpy as np
import pytest

from texseg import TextureSegmenter
from texseg.counts.axes import connected_parts
from texseg.method.blocks import ArrayWindows, BlockPlan, Request, join_blocks, plan_blocks, read_blocks
from texseg.method.sampling import sample_windows
from texseg.pixels.joining import joined_labels, parts_of_block


def scene(height, width, seed=0):
    """Return two textures whose border runs across all blocks, with small pieces of each in the other."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    waves = np.sin(rows), np.sin(columns / 2)
    first = columns < width / 2 + 30 * np.sin(rows / 40)
    for y, x in rng.random((30, 2)) * (height, width):
        first ^= (abs(rows - y) < 14) & (abs(columns - x) < 14)
    return np.where(first, *waves) + rng.normal(0, 0.2, rows.shape)


def label_blocks(source, textures, blocks, request, store=None, **how):
    store = {} if store is None else store
    read_blocks(source, textures, blocks, request, store, **how)
    return join_blocks(textures, blocks, request, store)


def by_blocks(source, model, blocks, **requested):
    out = np.full(blocks.shape, -1, np.int32)
    for place, labels, _ in label_blocks(source, model.textures_, blocks, Request(**requested)):
        out[blocks.core(place)] = labels
    return out


@pytest.fixture(scope="module")
def image():
    return scene(448, 640)


@pytest.fixture(scope="module")
def model(image):
    return TextureSegmenter(2).fit(image)


@pytest.mark.parametrize("min_size", [0, 700, 2000])
@pytest.mark.parametrize("merged", [False, True])
def test_confidence_is_that_of_the_label_whole_and_by_blocks(min_size, merged):
    """Also where a speck, or a part below min_size, got another label, and after segments were merged."""
    image = scene(448, 640, seed=2)
    image[200:300, 300:420] += np.sin(np.arange(120) / 1.3)
    model = TextureSegmenter(3, min_size=min_size).fit(image)
    if merged:
        model.merge([(1, 2)])
    labels, whole = model.predict_with_confidence(image)
    probabilities = model.predict_proba(image)
    np.testing.assert_allclose(whole, np.take_along_axis(probabilities, labels[..., None] - 1, 2)[..., 0])
    blocks = plan_blocks(image.shape, model.textures_, side=128)
    request, found = Request(min_size=min_size, confidence=True), np.full(image.shape, -1, np.float32)
    same, relabelled, store = np.zeros(image.shape, bool), np.zeros(image.shape, bool), {}
    found_blocks = label_blocks(ArrayWindows(image), model.textures_, blocks, request, store=store)
    for place, own, block in found_blocks:
        core = blocks.core(place)
        found[core], same[core] = block.confidence / np.float32(255), own == labels[core]
        relabelled[core] = own != store[place].labels
    assert same.mean() > 0.9999 and relabelled.any()
    byte = 0.5 / 255 + 1e-5
    for pixels, share in ((same, 0.99), (same & relabelled, 0.95)):  # the rest: rounding near borders
        assert np.quantile(abs(found - whole)[pixels], share) <= byte


@pytest.mark.parametrize("min_size", [0, 2000])
def test_labels_by_blocks_are_those_of_the_whole(image, model, min_size):
    """Specks and small parts that lie across borders of blocks are told by their whole size."""
    whole = model.set_params(min_size=min_size).predict(image)
    model.set_params(min_size=0)
    blocks = plan_blocks(image.shape, model.textures_, side=128)
    assert blocks.grid == (4, 5)
    assert np.mean(by_blocks(ArrayWindows(image), model, blocks, min_size=min_size) == whole) > 0.9999


def test_bands_masks_and_nodata_are_read_by_window(image):
    colour = np.stack([image, image[::-1], image], axis=0)
    mask = np.ones(image.shape, bool)
    mask[100:200, 150:420] = False
    model = TextureSegmenter(2, channel_axis=0, nodata=9.0).fit(colour, mask=mask)
    colour[:, :160, :300] = 9.0  # a block and more without any data
    whole = model.predict(colour, mask=mask)
    blocks = plan_blocks(image.shape, model.textures_, side=128)
    found = by_blocks(ArrayWindows(colour, 0, mask), model, blocks, nodata=9.0)
    assert np.array_equal(found == 0, whole == 0)
    assert np.mean(found == whole) > 0.999


def test_what_no_texture_explains_and_confidence(image, model):
    strange = image.copy()
    strange[100:350, 200:500] = np.random.default_rng(0).normal(0, 2, (250, 300)).cumsum(axis=0)
    strange = strange.clip(image.min(), image.max())
    whole = model.predict(strange, unknown=True)
    assert (whole == 3).mean() > 0.1
    blocks = plan_blocks(image.shape, model.textures_, side=128)
    labels, confidence = np.empty(image.shape, np.int32), np.empty(image.shape, np.float32)
    request = Request(unknown=True, confidence=True)
    for place, found, block in label_blocks(ArrayWindows(strange), model.textures_, blocks, request):
        labels[blocks.core(place)], confidence[blocks.core(place)] = found, block.confidence / 255
    assert np.mean(labels == whole) > 0.999
    own = np.take_along_axis(model.predict_proba(strange), np.minimum(labels, 2)[..., None] - 1, axis=2)
    assert np.mean(abs(confidence - own[..., 0])[labels < 3] < 0.01) > 0.99
    assert not confidence[labels == 3].any()


def test_the_plain_path_by_blocks(image):
    model = TextureSegmenter(2, preset="plain").fit(image[:160, 200:400])
    blocks = plan_blocks(image.shape, model.textures_, side=128)
    labels = by_blocks(ArrayWindows(image), model, blocks, smoothness=0)
    assert np.mean(labels == model.predict(image)) > 0.9999


def test_threads_change_nothing_and_what_is_stored_is_not_read_again(image, model):
    blocks = plan_blocks(image.shape, model.textures_, side=128)
    store, told = {}, []
    one = list(label_blocks(ArrayWindows(image), model.textures_, blocks, Request(), store=store))
    two = list(label_blocks(ArrayWindows(image), model.textures_, blocks, Request(), n_jobs=3))
    for (_, a, _), (_, b, _) in zip(one, two, strict=True):
        assert np.array_equal(a, b)
    del store[2, 2]
    reads = []

    class Watched(ArrayWindows):
        def read(self, window):
            reads.append(window)
            return super().read(window)

    source = Watched(image)
    again = list(
        label_blocks(
            source, model.textures_, blocks, Request(), store=store, tell=lambda *step: told.append(step)
        )
    )
    assert reads == [blocks.around((2, 2))]
    assert told[0] == (0, 20) and told[-1] == (20, 20)
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(one, again, strict=True))


def described(labels, scores, place, blocks, small):
    pieces = connected_parts(np.ascontiguousarray(labels))
    pixels = np.flatnonzero((pieces.sizes[pieces.places] < small) & (pieces.places > 0))
    origin = tuple(part.start for part in blocks.core(place))
    return parts_of_block(pieces, scores.reshape(len(scores), -1)[:, pixels], pixels, origin, blocks.shape)


@pytest.mark.parametrize("areas", [(0, 40), (25, 0), (25, 90), (300, 60), (10**6, 10**6)])
@pytest.mark.parametrize(("shape", "side"), [((37, 50), 12), ((14, 25, 19), 6), ((31, 8, 23), (5, 9, 7))])
@pytest.mark.parametrize("seed", range(4))
def test_small_parts_are_merged_as_when_all_is_seen_at_once(seed, shape, side, areas):
    """A map of random labels has parts of every size across every border of blocks, of volumes as well."""
    rng, K, unit = np.random.default_rng(seed), 3, 5 - len(shape)
    labels = rng.integers(-1, K, shape).astype(np.int32)
    for axis in range(len(shape)):
        labels = labels.repeat(unit, axis)
    labels = labels[tuple(map(slice, shape))]
    scores = rng.standard_normal((K, *shape)).astype(np.float32)
    blocks = BlockPlan(shape, side, 0)
    parts = {
        place: described(
            labels[blocks.core(place)], scores[(slice(None), *blocks.core(place))], place, blocks, max(areas)
        )
        for place in blocks
    }
    names = joined_labels(parts, parts.get, *areas)
    origin = (0,) * len(shape)
    one = described(labels, scores, origin, BlockPlan(shape, 64, 0), max(areas))
    whole = joined_labels([origin], lambda _: one, *areas)[origin]
    whole = [own[connected_parts(labels).places - 1] for own in whole]
    for place in blocks:
        first = np.unravel_index(parts[place].first, shape)
        for own, expected in zip(names[place], whole, strict=True):
            assert np.array_equal(own, expected[first])


def test_crops_lie_evenly_over_the_image():
    windows = sample_windows((5000, 9000), 3)
    assert len(windows) == 15 and windows == sample_windows((5000, 9000), 3)
    assert windows != sample_windows((5000, 9000), 4)
    rows = {window[0].start // (5000 // 3) for window in windows}
    assert rows == {0, 1, 2}
    assert all(0 <= y.start < y.stop <= 5000 and 0 <= x.start < x.stop <= 9000 for y, x in windows)
    assert sample_windows((100, 90)) == [(slice(0, 100), slice(0, 90))]


def test_an_array_that_is_too_large_for_memory_goes_by_blocks(monkeypatch):
    """As with files: textures from crops, labels block by block; in memory, with bands and masks."""
    small = scene(170, 250)
    colour = np.stack([small, small[::-1], small])
    mask = np.ones(small.shape, bool)
    mask[50:100, 100:200] = False
    whole = TextureSegmenter(2, channel_axis=0).fit(colour, mask=mask)
    monkeypatch.setattr("texseg.method.blocks.free_memory", lambda: 10**6)
    monkeypatch.setattr("texseg.method.blocks.SIDE", 128)
    with pytest.warns(UserWarning, match="takes more than half of the memory that is free: it is"):
        found = TextureSegmenter(2, channel_axis=0).fit(colour, mask=mask).labels_
    np.testing.assert_array_equal(found == 0, ~mask)
    assert np.mean(found == whole.labels_) > 0.99
    assert np.mean(whole.predict(colour, mask=mask) == whole.labels_) > 0.9999
