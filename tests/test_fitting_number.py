"""The number of segments: trees made by hand, planted over-segmentations, and planted images."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from site_scenes import N_CHANNELS, gains_of, regions, sites_of

from texseg import TextureSegmenter, match_labels
from texseg.counts.sites import Sites
from texseg.method.number import MergeTree, Selection, choose_number, dissolved, merge_tree
from texseg.method.pairs import (
    EVIDENCE,
    PAIR_EVIDENCE,
    Pairs,
    PairTable,
    in_context,
    merging_table,
    shipped_table,
)

GRID = (24, 32)
WINDOW = 5.0


# the only evidence that counts is the distance, and its log-odds of two textures are itself
PLAIN = PairTable(
    low=np.full(len(EVIDENCE), -20.0),
    high=np.full(len(EVIDENCE), 20.0),
    mean=np.zeros(len(EVIDENCE)),
    spread=np.ones(len(EVIDENCE)),
    knots=np.empty((0, len(EVIDENCE))),
    slopes=(np.arange(len(EVIDENCE)) == EVIDENCE.index("distance"))[None].astype(float),
    constant=0.0,
    doubt=0.0,
)


def tree_of(odds, areas=None):
    """Cluster 0 swallows all others in turn; each merge has these log-odds of two textures."""
    K = len(odds) + 1
    evidence = np.zeros((K - 1, len(EVIDENCE)))
    evidence[:, EVIDENCE.index("distance")] = odds
    areas = np.ones(K) if areas is None else np.array(areas, float)
    return MergeTree(np.arange(K), areas, tuple((0, k) for k in range(1, K)), np.ones(K - 1), evidence)


def halved(region):
    """Cut each of the four rectangles in two: cluster 2 r and 2 r + 1 are parts of texture r."""
    rows = np.mgrid[: region.shape[0], : region.shape[1]][0]
    return 2 * region + (rows % (region.shape[0] // 2) >= region.shape[0] // 4)


@pytest.fixture(scope="module")
def planted():
    """Four textures, cut into eight clusters."""
    region = regions(GRID)
    sites, _ = sites_of(region, n_draws=12)
    return sites, region, halved(region)


# ---- the choice from a tree --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odds", "chosen"),
    [([], 1), ([-4.0], 1), ([4.0], 2), ([-4.0, -4.0, 4.0, 4.0], 3), ([4.0, -9.0, 4.0], 2), ([-3, 9, -3], 3)],
)
def test_the_number_is_the_likeliest_where_little_is_in_doubt(odds, chosen):
    selection = choose_number(tree_of(odds), table=PLAIN)
    assert selection.chosen == chosen
    assert selection.n_segments.tolist() == list(range(1, len(odds) + 2))


def test_probabilities_are_products_of_odds_along_the_tree():
    selection = choose_number(tree_of([-1.0, 0.5, 2.0]), table=PLAIN)
    products = np.exp([0, 2.0, 2.5, 1.5])
    np.testing.assert_allclose(selection.probabilities, products / products.sum())
    assert selection.one_texture == selection.probabilities[0] == selection.probability(1)
    assert selection.probability(9) == 0


def test_doubt_is_spread_evenly():
    selection = choose_number(tree_of([20.0, 20.0]), table=replace(PLAIN, doubt=0.3))
    np.testing.assert_allclose(selection.probabilities, [0.1, 0.1, 0.8], atol=1e-6)


def test_a_single_texture_that_must_be_divided_is_divided_in_two():
    """Little is left for two and more: doubt must not outweigh what the odds say among them."""
    selection = choose_number(tree_of([-9.0, -9.0, -9.0, -9.0]), 2, replace(PLAIN, doubt=0.1))
    assert selection.chosen == 2
    np.testing.assert_allclose(selection.probabilities, [0.92, 0.02, 0.02, 0.02, 0.02], atol=1e-3)
    np.testing.assert_allclose(selection.losses[:2], [np.inf, 0.0625], atol=0.02)


@pytest.mark.parametrize("k_min", [2, 3, 9])
def test_smaller_numbers_are_not_chosen_but_stay_in_the_one_distribution(k_min):
    everything = choose_number(tree_of([-1.0, -2.0, -3.0]), table=PLAIN)
    selection = choose_number(tree_of([-1.0, -2.0, -3.0]), k_min, PLAIN)
    first = min(k_min, 4)  # there are no more clusters
    assert everything.chosen == 1 and selection.chosen == first
    assert selection.n_segments.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(selection.probabilities, everything.probabilities)
    assert selection.probabilities.sum() == pytest.approx(1)
    assert np.isinf(selection.losses[: first - 1]).all() and np.isfinite(selection.losses[first - 1 :]).all()
    assert selection.one_texture > 0.9


def test_the_loss_is_half_of_being_wrong_and_half_of_how_far_the_maps_are_apart():
    selection = choose_number(tree_of([0.0, 0.0], areas=[1, 1, 2]), table=PLAIN)
    # adjusted Rand indices by hand: two segments (2, 2) against three (1, 1, 2), any against one is 0
    one_two = (6 - 8 * 6 / 16) / (7 - 8 * 6 / 16)
    apart = 1 - np.array([[1, 0, 0], [0, 1, one_two], [0, one_two, 1]])
    expected = (0.5 * (1 - np.eye(3)) + 0.5 * apart) @ np.full(3, 1 / 3)
    np.testing.assert_allclose(selection.losses, expected)
    assert selection.chosen == 1 + int(expected.argmin())


def test_a_corner_too_much_is_cheaper_than_half_the_image():
    losses = choose_number(tree_of([0.0, 9.0, 9.0], areas=[40, 1, 60, 60]), table=PLAIN).losses
    assert losses[3] < losses[1]


def test_of_numbers_that_cost_hardly_more_the_fewest_segments_are_chosen():
    """Odds that say next to nothing once made the answer as many clusters as the tree has."""
    choice = choose_number(tree_of([0.02] * 11, areas=[100] * 12), k_min=2, table=PLAIN)
    near = choice.n_segments[choice.losses <= choice.losses.min() + 0.08]
    assert choice.chosen == near[0] < choice.n_segments[choice.losses.argmin()]
    sure = choose_number(tree_of([9.0] * 3, areas=[100] * 4), k_min=2, table=PLAIN)
    assert sure.chosen == sure.n_segments[sure.losses.argmin()] == 4


@pytest.mark.parametrize(
    ("probabilities", "least", "chosen", "words"),
    [
        ([0.97, 0.03], 1, 1, "1 segment (97%)"),
        ([0.05, 0.2, 0.65, 0.1], 2, 3, "3 segments (65%), else 2 (20%), 4 (10%), 1 (5%)"),
        ([0.04, 0.49, 0.47], 2, 2, "2 segments (49%), else 3 (47%), nearly a tie"),
        (
            [0.73, 0.23, 0.04],
            2,
            2,
            "probably a single texture (73%), else 2 (23%); divided into 2 because k_min is 2",
        ),
        (
            [0.4, 0.35, 0.25],
            2,
            2,
            "2 segments (35%), or 1 (40%), 3 (25%); 1 is likeliest, but k_min is 2",
        ),
    ],
)
def test_a_choice_reads_in_words_of_one_distribution(probabilities, least, chosen, words):
    numbers = np.arange(1, len(probabilities) + 1)
    losses = np.where(numbers < least, np.inf, 0.5)
    selection = Selection(numbers, np.array(probabilities), losses, np.zeros(len(numbers)), chosen)
    assert str(selection) == words


@pytest.mark.parametrize(
    ("losses", "how"),
    [([0.5, 0.4, 0.6], "the safer choice"), ([0.5, 0.42, 0.4], "nearly as safe a choice")],
)
def test_words_tell_when_the_chosen_number_is_not_the_likeliest(losses, how):
    numbers, unused = np.array([2, 3, 4]), np.zeros(3)
    selection = Selection(numbers, np.array([0.36, 0.3, 0.34]), np.array(losses), unused, 3)
    words = f"3 segments (30%), or 2 (36%), 4 (34%); 2 is likeliest, 3 is {how}"
    assert str(selection) == words


def test_of_an_image_divided_by_values_nothing_is_told_of_textures():
    numbers, unused = np.array([1, 2]), np.zeros(2)
    selection = Selection(numbers, np.array([0.7, 0.3]), unused, unused, 2, by_values=True)
    assert str(selection) == "2 segments"
    assert selection.others_in_words == ""


@pytest.mark.parametrize(("table", "n"), [(shipped_table(), len(EVIDENCE)), (merging_table(), 30)])
def test_the_shipped_tables_hold_all_evidence_and_stay_within_their_range(table, n):
    assert table.slopes.shape == (len(table.knots) + 1, n)
    assert (table.low < table.high).all()
    far = np.stack([table.high, table.high + 100, table.low, table.low - 100])
    odds = table.log_odds(far)
    assert odds[0] == odds[1] and odds[2] == odds[3]


# ---- groups ------------------------------------------------------------------------------------------------


def test_groups_are_nested_partitions_into_k():
    tree = tree_of(np.zeros(4))._replace(merges=((1, 3), (0, 4), (1, 2), (0, 1)))
    groups = {k: tree.groups(k).tolist() for k in range(1, 6)}
    assert groups == {
        5: [0, 1, 2, 3, 4],
        4: [0, 1, 2, 1, 3],
        3: [0, 1, 2, 1, 0],
        2: [0, 1, 1, 1, 0],
        1: [0, 0, 0, 0, 0],
    }


@pytest.mark.parametrize("k", [-1, 0, 4])
def test_there_are_no_more_groups_than_clusters(k):
    with pytest.raises(ValueError, match=f"k must be 1 to 3, got {k}"):
        tree_of([1.0, 2.0]).groups(k)


# ---- merging -----------------------------------------------------------------------------------------------


def test_parts_of_one_texture_are_merged_first(planted):
    sites, region, clusters = planted
    tree = merge_tree(clusters.ravel(), sites, WINDOW)
    assert tree.n_clusters == 8
    np.testing.assert_array_equal(tree.labels, clusters.ravel())
    assert sorted(tree.merges[:4]) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    np.testing.assert_array_equal(tree.groups(4)[tree.labels], region.ravel())
    assert tree.separations[4:].min() > 3 * tree.separations[:4].max()
    assert choose_number(tree).chosen == 4


def test_parts_of_one_texture_alone_are_one_segment():
    region = np.zeros(GRID, int)
    sites, _ = sites_of(region, n_draws=12)
    tree = merge_tree(halved(regions(GRID)).ravel(), sites, WINDOW)
    assert tree.n_clusters == 8
    assert choose_number(tree).chosen == 1


def test_names_of_clusters_do_not_matter(planted):
    sites, _, clusters = planted
    names = np.random.default_rng(0).permutation(8)
    tree = merge_tree(clusters.ravel(), sites, WINDOW)
    renamed = merge_tree(names[clusters].ravel(), sites, WINDOW)
    np.testing.assert_allclose(renamed.separations, tree.separations, rtol=1e-3)
    for k in range(1, 9):
        one, other = tree.groups(k)[tree.labels], renamed.groups(k)[renamed.labels]
        assert len(np.unique(np.stack([one, other]), axis=1)[0]) == k


def test_twice_the_area_separates_by_the_root_of_two(planted):
    sites, _, clusters = planted
    twice = replace(
        sites, counts=np.tile(sites.counts, (2, 1)), sizes=np.tile(sites.sizes, 2), grids=sites.grids * 2
    )
    one = merge_tree(clusters.ravel(), sites, WINDOW)
    two = merge_tree(np.concatenate([clusters, clusters]).ravel(), twice, WINDOW)
    assert two.merges[:4] == one.merges[:4]  # of halves; then the odds of twice the area are surer
    np.testing.assert_allclose(two.separations[:5], 2**0.5 * one.separations[:5], rtol=1e-3)
    kept = [EVIDENCE.index(name) for name in ("distance", "share", "first channel", "wrong", "step", "nats")]
    np.testing.assert_allclose(two.evidence[:4, kept], one.evidence[:4, kept], atol=1e-3)


def test_of_the_three_closest_pairs_the_likeliest_one_texture_is_merged(planted):
    sites, _, clusters = planted
    twice = replace(
        sites, counts=np.tile(sites.counts, (2, 1)), sizes=np.tile(sites.sizes, 2), grids=sites.grids * 2
    )
    labels = np.concatenate([clusters.ravel(), clusters.ravel()])
    tree = merge_tree(labels.ravel(), twice, WINDOW)
    pairs = Pairs.of(labels, 8, twice, WINDOW)
    linkage, told, ranks = pairs.distances(), [], []
    for merged in tree.merges:
        separations = pairs.separations(linkage)
        left = itertools.combinations(np.flatnonzero(pairs.areas.any(axis=1)).tolist(), 2)
        closest = sorted(left, key=separations.__getitem__)[:3]
        now = pairs.distances()
        ends = [np.array(each) for each in zip(*closest, strict=True)]
        seen = pairs.evidence(*ends, now, separations[tuple(ends)])
        odds = merging_table().log_odds(in_context(np.array(told).reshape(-1, len(PAIR_EVIDENCE)), seen))
        ranks.append(int(np.argmin(odds)))
        a, b = closest[ranks[-1]]
        assert merged == (a, b)
        told.append(seen[ranks[-1]])
        sizes = pairs.areas.sum(axis=1)
        linkage[a] = linkage[:, a] = (sizes[a] * linkage[a] + sizes[b] * linkage[b]) / (sizes[a] + sizes[b])
        pairs.merge(a, b)
    assert max(ranks) > 0  # so that this is not the order of the separations


def test_the_distance_of_merged_clusters_is_the_mean_of_theirs_by_area():
    columns = np.mgrid[: GRID[0], : GRID[1]][1]
    labels = np.digitize(columns, [4, 16]).ravel()  # the first two are a quarter and three of one texture
    sites, _ = sites_of((columns >= 16).astype(int), n_draws=12)
    tree = merge_tree(labels, sites, WINDOW)
    assert tree.merges[0] == (0, 1)
    before, after = (Pairs.of(each, each.max() + 1, sites, WINDOW) for each in (labels, labels // 2))
    mean = np.full((2, 2), np.average(before.distances()[:2, 2], weights=[4, 12]))
    assert tree.separations[1] == pytest.approx(after.separations(mean)[0, 1])


def test_more_cells_than_were_learned_from_make_nothing_surer():
    told = []
    for shape in (GRID, (64, 64), (128, 128)):
        sites, _ = sites_of(regions(shape), n_draws=12)
        tree = merge_tree(halved(regions(shape)).ravel(), sites, WINDOW)
        told.append((tree.separations[-3:], tree.evidence[-3:, EVIDENCE.index("windows")]))
    (few, _), (enough, windows), (many, windows_of_many) = told
    assert (few < 0.6 * enough).all()
    np.testing.assert_allclose(many, enough, rtol=0.15)
    np.testing.assert_allclose(windows_of_many, windows)


def test_clusters_along_borders_are_dissolved(planted):
    sites, region, _ = planted
    clusters = region.copy()
    clusters[11:13] = 4  # two cells wide
    scores = gains_of(sites, sites.profiles(np.eye(5, dtype=np.float32)[clusters.ravel()]))
    labels = dissolved(clusters.ravel(), scores, sites)
    np.testing.assert_array_equal(np.unique(labels), np.arange(4))
    assert (labels == region.ravel()).mean() > 0.98


@pytest.mark.parametrize("least", [2, 3])
def test_some_clusters_are_left_even_without_any_interior(planted, least):
    """A small image must not be called one segment because none of its parts has an interior."""
    stripes = np.broadcast_to(np.arange(GRID[1]) // 2 % 4, GRID).ravel()
    scores = gains_of(planted[0], planted[0].profiles(np.eye(4, dtype=np.float32)[stripes]))
    labels = dissolved(stripes, scores, planted[0], least)
    np.testing.assert_array_equal(np.unique(labels), np.arange(least))
    assert choose_number(merge_tree(labels, planted[0], WINDOW), k_min=2).chosen >= 2


def test_a_cluster_of_cells_without_data_is_none(planted):
    """Under a mask that leaves a few cells, some clusters hold only cells that nobody sees."""
    missing = np.zeros(GRID, bool)
    missing[:, :3] = True
    sites, _ = sites_of(regions(GRID), n_draws=12, missing=missing)
    clusters = np.where(missing, 4, regions(GRID)).ravel()
    scores = gains_of(sites, sites.profiles(np.eye(5, dtype=np.float32)[clusters]))
    labels = dissolved(clusters, scores, sites, least=5)
    np.testing.assert_array_equal(labels[~missing.ravel()], clusters[~missing.ravel()])
    assert merge_tree(labels, sites, WINDOW).n_clusters == 4


def test_a_single_cluster_has_nothing_to_merge(planted):
    sites = planted[0]
    tree = merge_tree(np.zeros(GRID, int).ravel(), sites, WINDOW)
    assert tree.merges == ()
    assert tree.separations.shape == (0,)
    assert choose_number(tree).chosen == 1


def test_cells_without_data_have_no_say():
    missing = np.zeros(GRID, bool)
    missing[:, 13:19] = True
    region = regions(GRID)
    sites, _ = sites_of(region, n_draws=12, missing=missing)
    names = np.where(missing, 0, halved(region))  # whatever they are called
    one = merge_tree(halved(region).ravel(), sites, WINDOW)
    other = merge_tree(names.ravel(), sites, WINDOW)
    assert one.merges == other.merges
    np.testing.assert_allclose(one.separations, other.separations, rtol=1e-3)


def separation_by_hand(labels, sites, side, n_channels):
    """Separation of two clusters by the module's text, cell by cell; odd windows, cut at the border."""
    grid, reach = sites.grids[0], side // 2
    cells = list(itertools.product(range(grid[0]), range(grid[1])))
    counts = sites.counts.astype(float).reshape(*grid, -1)
    background = sites.background.astype(float)

    def profile(k, fold):
        own = [counts[c] for c in cells if labels[c] == k and sum(c) % 2 == fold]
        return 0.998 * np.mean(own, axis=0) + 0.002 * background + 1e-7

    ratio = np.zeros((*grid, n_channels))
    for c in cells:
        own, fold = labels[c], 1 - sum(c) % 2
        logs = np.log(profile(own, fold)) - np.log(profile(1 - own, fold))
        ratio[c] = (sites.weights * counts[c] * logs).reshape(n_channels, -1).sum(axis=1)
    means = {0: [], 1: []}
    shares = {0: [], 1: []}
    for i, j in cells:
        window = np.s_[max(i - reach, 0) : i + reach + 1, max(j - reach, 0) : j + reach + 1]
        own = labels[window] == labels[i, j]
        means[labels[i, j]].append(ratio[window][own].mean(axis=0))
        shares[labels[i, j]].append(own.mean())
    whole = [np.array(means[k])[np.array(shares[k]) >= 0.6] for k in (0, 1)]
    scale = ((whole[0].var(axis=0) + whole[1].var(axis=0)) / 2) ** 0.25  # root of the standard deviation
    sums = [(own / scale).sum(axis=1) for own in whole]
    distance = (sums[0].mean() + sums[1].mean()) / np.sqrt((sums[0].var() + sums[1].var()) / 2)
    area = min(len(means[0]), len(means[1]))
    border = (labels[:, 1:] != labels[:, :-1]).sum() + (labels[1:] != labels[:-1]).sum()
    contact = border / (2 * np.sqrt(area))
    return distance * np.sqrt(area) / side / ((contact + 0.2) / 0.5) ** (1 / 3)


def test_the_separation_is_that_of_held_out_window_means():
    labels = (np.mgrid[:10, :14][1] >= 6).astype(int)
    sites, _ = sites_of(labels, n_draws=20)
    (separation,) = merge_tree(labels.ravel(), sites, 3.0).separations
    assert separation == pytest.approx(separation_by_hand(labels, sites, 3, N_CHANNELS), rel=1e-3)


def test_textures_that_do_not_touch_are_farther_apart():
    columns = np.mgrid[:24, :30][1]
    found = []
    for gap in (columns >= 24, (columns >= 12) & (columns < 18)):
        labels = np.where(columns >= 12, 1, 0)
        sites, _ = sites_of(labels, n_draws=12, missing=gap)
        found.append(merge_tree(labels.ravel(), sites, WINDOW).separations[0])
    contact = 24 / (2 * np.sqrt(12 * 24))
    assert found[1] / found[0] == pytest.approx((1 + contact / 0.2) ** (1 / 3), rel=0.15)


def test_interleaved_stripes_are_closer_than_halves():
    columns = np.mgrid[:96, :96][1]
    found, contacts = [], []
    for labels in (columns // 48, columns // 8 % 2):
        sites, _ = sites_of(labels, n_draws=12)
        found.append(merge_tree(labels.ravel(), sites, WINDOW).separations[0])
        contacts.append((np.diff(labels, axis=1) != 0).sum() / (2 * np.sqrt(96 * 48)))
    assert contacts[0] < 1 and contacts[1] > 7
    touch = [((c + 0.2) / 0.5) ** (1 / 3) * max(1, c / 6) for c in contacts]
    assert found[0] / found[1] == pytest.approx(touch[1] / touch[0], rel=0.2)


@pytest.mark.parametrize("width", [32, 4, 2])
def test_the_separation_of_a_distance_falls_with_the_length_of_the_common_border(width):
    labels = (np.mgrid[:64, :64][1] // width % 2).astype(int)
    pairs = Pairs.of(labels.ravel(), 2, mixed(labels, n_draws=2), WINDOW)
    area, contact = 64 * 32, 64 * (64 // width - 1) / (2 * np.sqrt(64 * 32))
    touch = ((contact + 0.2) / 0.5) ** (1 / 3) * max(1, contact / 6)
    assert pairs.separations(np.ones((2, 2)))[0, 1] == pytest.approx(np.sqrt(area) / WINDOW / touch)


def mixed(shares, n_draws, seed=0):
    """Sites of two textures mixed: ``shares`` (H, W) of the second, 0 to 1."""
    rng = np.random.default_rng(seed)
    pure = rng.dirichlet(np.full(8, 0.7), (2, N_CHANNELS))
    profiles = pure[0] + shares.reshape(-1, 1, 1) * (pure[1] - pure[0])
    counts = (rng.multinomial(n_draws, profiles) / n_draws).reshape(shares.size, -1).astype(np.float32)
    size, weights = np.ones(shares.size, np.float32), np.ones(counts.shape[1], np.float32)
    return Sites(counts, size, weights, (shares.shape,), counts.mean(axis=0))


def test_interleaved_stripes_are_one_texture():
    """Two halves that differ as little are two."""
    columns = np.mgrid[:64, :64][1]
    chosen = []
    for labels in (columns // 32, columns // 2 % 2):
        sites = mixed(0.4 + 0.2 * labels, n_draws=12)
        chosen.append(choose_number(merge_tree(labels.ravel(), sites, WINDOW)).chosen)
    assert chosen == [2, 1]


def test_a_change_without_a_step_is_one_texture_that_would_be_two_with_a_step():
    """From side to side the texture changes slowly, and at the border that was drawn hardly at all."""
    across = np.broadcast_to(np.arange(32) - 15.5, (24, 32))
    found = {}
    for width in (0.5, 16.0):
        tree = merge_tree((across > 0).astype(int).ravel(), mixed(np.clip(0.5 + across / width, 0, 1), 12), 5)
        found[width] = tree
    step = EVIDENCE.index("step")
    assert found[0.5].evidence[0, step] == pytest.approx(1, abs=0.15)
    assert found[16.0].evidence[0, step] < 0.5
    assert choose_number(found[0.5]).chosen == 2
    assert choose_number(found[16.0]).chosen == 1
    found[16.0].evidence[0, step] = 1.0
    assert choose_number(found[16.0]).chosen == 2


# ---- planted images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_textures", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_number_of_planted_textures_is_found(make_number, n_textures, seed):
    image, truth = make_number(n_textures, (192, 208), seed)
    model = TextureSegmenter(k_min=1).fit(image)
    assert model.n_segments_ == model.selection_.chosen == n_textures
    assert (match_labels(model.labels_, truth) == truth).mean() > 0.97


@pytest.mark.parametrize("side", [200, 800])  # of cells, the second has five times those learned from
def test_a_texture_that_fades_is_one_at_every_size(make_number, side):
    """The larger the image, the surer even the least change once seemed to be a border."""
    image, _ = make_number(1, (side, side))
    faded = 128 + (image - 128.0) * np.linspace(0.75, 1.25, side)
    model = TextureSegmenter(k_min=1, k_max=5, n_starts=1).fit(np.clip(faded, 0, 255).astype(np.uint8))
    assert model.n_segments_ == 1
    assert model.selection_.one_texture > 0.6
