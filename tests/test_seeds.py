"""Seeds, through the public door: painted pixels keep their class, and the rest follows them."""

import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest
from site_scenes import N_CHANNELS, regions, sites_of

from texseg import TextureSegmenter, segment
from texseg.counts.grid import cell_grid
from texseg.fitting.assignment import PottsField
from texseg.method.clusters import Search
from texseg.method.seeds import describe, learn_classes, pins, seeded_textures
from texseg.method.textures import Scene
from texseg.parameters import PottsSettings, Settings

K = 3


@pytest.fixture(scope="module")
def painted(mosaic):
    """Strokes of 3 x 12 pixels in the middle of each texture, in another order than that of the truth."""
    _, truth = mosaic
    return seeds_on(truth, [3, 1, 2])


@pytest.fixture(scope="module")
def fitted(mosaic, painted):
    return TextureSegmenter(K).fit(mosaic[0], seeds=painted)


def seeds_on(truth, classes):
    """Paint a stroke of class ``classes[i]`` on the i-th value of the truth."""
    seeds = np.zeros(truth.shape, int)
    for value, number in zip(np.unique(truth), classes, strict=True):
        if number:
            inside = truth == value
            for _ in range(6):
                inside &= np.roll(inside, 1, 0) & np.roll(inside, -1, 0)
                inside &= np.roll(inside, 1, 1) & np.roll(inside, -1, 1)
            rows, columns = np.nonzero(inside)
            i = np.abs(rows - rows.mean()).argmin()
            stroke = np.zeros(truth.shape, bool)
            stroke[rows[i] - 1 : rows[i] + 2, max(columns[i] - 6, 0) : columns[i] + 6] = True
            seeds[stroke & (truth == value)] = number
    return seeds


def renumbered(truth, classes):
    return np.array(classes)[np.unique(truth, return_inverse=True)[1].reshape(truth.shape)]


def test_classes_have_the_numbers_that_were_painted(mosaic, painted, fitted):
    assert (fitted.labels_ == renumbered(mosaic[1], [3, 1, 2])).mean() > 0.95
    assert fitted.n_segments_ == K


def test_painted_pixels_belong_to_their_class_for_certain(mosaic):
    _, truth = mosaic
    seeds = seeds_on(truth, [3, 1, 2])
    rows, columns = np.nonzero(seeds == 1)
    seeds[rows[:2], columns[:2]] = 2  # against all looks
    model = TextureSegmenter(K, min_size=50).fit(mosaic[0], seeds=seeds)
    assert (model.labels_ == seeds)[seeds > 0].all()
    assert (model.confidence_[seeds > 0] > 0.99).all()


def test_the_number_is_that_of_the_largest_class(mosaic, painted):
    assert np.unique(segment(mosaic[0], seeds=painted)).tolist() == [1, 2, 3]
    alone = np.where(painted == 1, 1, 0)
    assert np.unique(segment(mosaic[0], seeds=alone)).tolist() == [1, 2]


def test_a_class_nobody_painted_is_found_beside_the_others(mosaic):
    image, truth = mosaic
    labels = segment(image, K, seeds=seeds_on(truth, [3, 0, 1]))
    assert (labels == renumbered(truth, [3, 2, 1])).mean() > 0.95


def test_seeds_join_looks_that_no_clustering_would(mosaic):
    image, truth = mosaic
    labels = segment(image, 2, seeds=seeds_on(truth, [1, 2, 1]))
    assert (labels == renumbered(truth, [1, 2, 1])).mean() > 0.95


def test_a_refit_follows_new_seeds_and_keeps_the_rest(mosaic):
    image, truth = mosaic
    model = TextureSegmenter(2).fit(image, seeds=seeds_on(truth, [1, 2, 1])).rename({2: "second"})
    assert model.refit(seeds_on(truth, [1, 0, 3])) is model
    assert (model.labels_ == renumbered(truth, [1, 2, 3])).mean() > 0.95
    assert model.names_ == ("", "second", "")


def test_a_fit_without_seeds_takes_them_later(mosaic, painted):
    model = TextureSegmenter(K).fit(mosaic[0]).refit(painted)
    assert (model.labels_ == renumbered(mosaic[1], [3, 1, 2])).mean() > 0.95


def test_a_refit_refuses_new_classes_with_gaps_in_their_numbers(mosaic):
    image, truth = mosaic
    model = TextureSegmenter(K).fit(image)
    with pytest.raises(ValueError, match="without gaps: class 4 is neither painted nor a segment"):
        model.refit(seeds_on(truth, [1, 40, 1]))


def test_an_image_of_one_value_is_what_was_painted():
    seeds = np.zeros((64, 64), int)
    seeds[10, 5:20], seeds[50, 5:20] = 1, 2
    labels = segment(np.zeros((64, 64)), seeds=seeds)
    assert (labels == seeds)[seeds > 0].all()


def test_a_refit_without_change_is_the_fit(mosaic, painted):
    model = TextureSegmenter(K).fit(mosaic[0], seeds=painted)
    before = model.labels_.copy()
    assert (model.refit(painted).labels_ == before).mean() > 0.99


def test_inputs_are_left_alone(mosaic, painted):
    image, seeds = mosaic[0].copy(), painted.copy()
    segment(image, seeds=seeds)
    assert np.array_equal(image, mosaic[0])
    assert np.array_equal(seeds, painted)


def test_seeds_on_one_of_several_images_serve_all(mosaic, painted):
    image, truth = mosaic
    model = TextureSegmenter(K).fit([image, image[::-1]], seeds=[painted, None])
    for labels, right in zip(model.labels_, (truth, truth[::-1]), strict=True):
        assert (labels == renumbered(right, [3, 1, 2])).mean() > 0.95


def test_classes_are_found_again_by_the_saved_model(mosaic, fitted, tmp_path):
    image, truth = mosaic
    fitted.save(tmp_path / "model")
    loaded = TextureSegmenter.load(tmp_path / "model")
    flipped = image[:, ::-1]
    assert np.array_equal(loaded.predict(flipped), fitted.predict(flipped))
    assert (loaded.predict(flipped) == renumbered(truth, [3, 1, 2])[:, ::-1]).mean() > 0.95


def test_merged_classes_stay_merged_in_files(mosaic, painted, tmp_path):
    model = TextureSegmenter(K).fit(mosaic[0], seeds=painted).merge([(1, 3)])
    model.save(tmp_path / "model")
    loaded = TextureSegmenter.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(mosaic[0]), model.predict(mosaic[0]))


def test_pixels_without_data_have_no_class(mosaic, painted):
    mask = np.ones(mosaic[1].shape, bool)
    mask[:20] = False
    seeds = painted.copy()
    seeds[0, 0] = 1
    labels = segment(mosaic[0], K, mask=mask, seeds=seeds)
    assert np.array_equal(labels > 0, mask)


@pytest.mark.parametrize(
    ("parameters", "change", "message"),
    [
        ({}, lambda s: s * 0, "seeds are 0 everywhere"),
        ({}, lambda s: s[:-1], "do not match the image"),
        ({}, lambda s: s / 2, "must be whole numbers"),
        ({}, lambda s: -s, "must be 0 (nothing) to 255"),
        ({"n_segments": 2}, lambda s: s, "n_segments (-k) counts all classes, and must be at least 3"),
        ({"n_segments": 1}, lambda s: s > 0, "must be at least 2"),
        ({"smoothness": 0}, lambda s: s, "need smoothness above 0"),
        ({"preset": "plain"}, lambda s: s, "need smoothness above 0"),
        ({"model": "smm"}, lambda s: s, "need model='acm'"),
        ({}, lambda s: [s, s], "do not match the image"),
        ({}, lambda s: 85 * s, "numbers up to 255, which requests 252 more classes"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(mosaic, painted, parameters, change, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        TextureSegmenter(**parameters).fit(mosaic[0], seeds=change(painted))


def test_a_list_of_images_needs_a_list_of_seeds(mosaic, painted):
    with pytest.raises(ValueError, match="one array .or None. for each of the 2 images, got 1"):
        TextureSegmenter().fit([mosaic[0]] * 2, seeds=[painted])


def test_seeds_where_there_is_no_data_are_refused(mosaic, painted):
    with pytest.raises(ValueError, match="seeds of class 2 lie only where"):
        TextureSegmenter().fit(mosaic[0], mask=painted != 2, seeds=painted)


def test_a_refit_needs_the_images(mosaic, painted, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    for model in (TextureSegmenter.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(ValueError, match="refit needs the images that were fitted"):
            model.refit(painted)


def test_a_painted_class_is_not_split_but_painted_anew(fitted):
    with pytest.raises(ValueError, match="is a class of strokes; paint a part"):
        fitted.split(1)


# ---- what is learned, on cells drawn from known profiles ---------------------------------------------------


def learned_labels(region, painted, clusters, n_draws, seed=0):
    """Classes (N,), from 0, that are learned from cells with seeds of each class (N, K)."""
    cells, _ = sites_of(region, seed, n_draws)
    field = PottsField(cells.grids, 2.0, 1.5, 12, cells.sizes)

    def settle(scores):
        return field((scores + pins(painted)).astype(np.float32), 1.0, np.ones(1)).posteriors

    description = describe(cells, np.full(N_CHANNELS, 4.0), clusters)
    return learn_classes(painted, description, cells, settle)[1].argmax(axis=1)


def test_the_cell_of_a_seed_keeps_its_class_against_all_neighbours():
    """It looks like the class around it, which is painted, too: the user knows better."""
    region = regions((24, 32)) % 2
    cells, _ = sites_of(region, n_draws=12)
    seeds = np.zeros((24 * 8, 32 * 8), np.int32)
    for row, column, number in ((3, 5, 1), (3, 20, 2), (20, 5, 1), (20, 20, 2), (12, 8, 2)):
        seeds[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = number
    settings = Settings(windows=(24.0, 24.0), potts=PottsSettings(beta=2.0), k_max=4)
    grid, rng = cell_grid(seeds.shape, 8), np.random.RandomState(0)
    search = Search(cells, [grid], np.full(N_CHANNELS, 4.0), settings, 20.0, rng)
    scene = Scene(np.zeros((N_CHANNELS, *seeds.shape), np.uint8), None, seeds=seeds)
    features = SimpleNamespace(has_filters=True)  # all that is asked of them here
    classes = seeded_textures(search, [scene], features, 2)[1].reshape(24, 32)
    assert classes[12, 8] == 1
    assert (classes == region).mean() > 0.97


def test_cells_whose_class_is_sure_improve_the_class():
    """One seed of a few pixels a class is not like its class: alone it gives 83 % of the cells."""
    region = regions((24, 32)) % 2
    rng = np.random.RandomState(1)
    painted = np.zeros((region.size, 2))
    for k in (0, 1):
        painted[rng.choice(np.flatnonzero(region.ravel() == k), 1), k] = 16
    labels = learned_labels(region, painted, np.zeros(region.size, int), n_draws=3, seed=1)
    assert (labels == region.ravel()).mean() > 0.98


def test_a_cluster_with_seeds_never_stands_for_a_class_without():
    """Class 1 is two looks, most of its seeds on one of them; the other is far, but not the class missing."""
    region = regions((24, 32)) % 2
    region[14:20, 4:14] = 2  # another texture, on less area
    clusters = region.ravel()
    painted = np.zeros((region.size, 2))
    painted[np.flatnonzero(clusters == 0)[30:60], 0] = 16
    painted[np.flatnonzero(clusters == 1)[100], 0] = 16
    labels = learned_labels(region, painted, clusters, n_draws=12)
    assert (labels[clusters == 1] == 0).mean() > 0.9
    assert (labels[clusters == 2] == 1).mean() > 0.9


def test_classes_for_which_seeds_leave_no_room_are_refused_before_they_are_searched_for():
    rows, columns = np.mgrid[:64, :96]
    stripes = columns // 32
    image = np.choose(stripes, [np.sin(rows), np.sin(rows / 2), np.sin(rows / 5)])
    seeds = stripes + 1
    message = "seeds leave 0 cells of 4 x 4 pixels to 2 classes without seeds; paint fewer pixels, or request"
    with pytest.raises(ValueError, match=message):
        segment(image, 5, seeds=seeds)
    seeds[:4, :8] = 0  # two cells: more classes than clusters that could hold them
    with pytest.warns(UserWarning, match="nothing was found for class|image with a side|can be told apart"):
        assert set(np.unique(segment(image, 5, seeds=seeds, k_max=2))) >= {1, 2, 3}
