"""The figures show what they are given: artists and values, not only that nothing fails."""

from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox

from texseg import plot
from texseg.channels.gabor import GaborBank
from texseg.io.regions import palette
from texseg.metrics import reliability
from texseg.models.hacm import Tree

LABELS = np.array([[0, 1, 1, 1], [1, 1, 2, 2], [2, 2, 2, 2]])
IMAGE = np.linspace(0, 1, 12).reshape(3, 4)
WORDS = ["air", "bee", "cat", "dog", "elm"]


@pytest.fixture
def ax():
    return Figure().subplots()


def grid(rows, columns):
    return Figure().subplots(rows, columns, squeeze=False)


# ---- axes


def test_figures_draw_on_the_axes_given_and_leave_pyplot_alone(ax):
    before = plt.get_fignums()
    assert plot.labels(LABELS, ax=ax) is ax
    axes = grid(1, 4)
    assert (plot.responses(np.ones((4, 2, 2)), axes=axes) == axes).all()
    assert plt.get_fignums() == before


def test_without_axes_a_new_figure_is_made_and_the_current_one_is_not_touched():
    current = plt.figure()
    ax = plot.labels(LABELS)
    assert ax.figure is not current and not current.axes
    plt.close("all")


def test_what_is_refused_leaves_no_figure_behind():
    before = plt.get_fignums()
    image = np.zeros(LABELS.shape)
    with pytest.raises(ValueError, match=r"labels must be 0 or more, got -"):
        plot.overlay(image, -LABELS)
    with pytest.raises(TypeError):
        plot.overlay(image, LABELS, names=5)
    with pytest.raises(ValueError, match="opacity must lie between 0 and 1"):
        plot.overlay(image, LABELS, opacity=2)
    assert plt.get_fignums() == before


def test_too_few_axes_are_refused():
    with pytest.raises(ValueError, match="axes must hold 4 Axes for 1 rows of 4, got 2"):
        plot.responses(np.ones((3, 2, 2)), axes=grid(1, 2))


# ---- segments


def test_overlay_tints_by_label_and_leaves_no_data_untouched(ax):
    plot.overlay(IMAGE, LABELS, opacity=0.4, ax=ax)
    picture, tint = (np.asarray(shown.get_array()) for shown in ax.get_images())
    assert picture.shape == (3, 4, 3) and picture[0, 0, 0] == 0 and picture[2, 3, 0] == 255
    assert tint[0, 0, 3] == 0
    assert (tint[LABELS > 0][:, 3] == 102).all()
    assert (tint[..., :3] == palette(2)[LABELS]).all()


def test_borders_run_along_the_edges_of_the_pixels_between_two_labels(ax):
    plot.overlay(IMAGE, LABELS, ax=ax)
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    segments = {tuple(map(tuple, s)) for s in lines[-1].get_segments()}
    expected = set()
    for row in range(3):
        for column in range(4):
            if column < 3 and LABELS[row, column] != LABELS[row, column + 1]:
                expected.add(((column + 0.5, row - 0.5), (column + 0.5, row + 0.5)))
            if row < 2 and LABELS[row, column] != LABELS[row + 1, column]:
                expected.add(((column - 0.5, row + 0.5), (column + 0.5, row + 0.5)))
    assert segments == expected
    assert not plot.overlay(IMAGE, LABELS, boundaries=False, ax=Figure().subplots()).collections


def test_legend_tells_names_shares_and_colours(ax):
    plot.overlay(IMAGE, LABELS, names=["quartz"], ax=ax)
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["1 quartz (45.5 %)", "2 (54.5 %)"]
    colours = [handle.get_facecolor()[:3] for handle in legend.get_patches()]
    np.testing.assert_allclose(colours, palette(2)[1:] / 255)
    assert plot.overlay(IMAGE, LABELS, legend=False, ax=Figure().subplots()).get_legend() is None


def test_overlay_has_the_numbers_of_segments_that_have_room_for_them(ax):
    labels = np.ones((100, 120), int)
    labels[:, 60:] = 2
    labels[50, 50] = 3
    plot.overlay(labels, labels, ax=ax)
    placed = {text.get_text(): text.get_position() for text in ax.texts}
    assert set(placed) == {"1", "2"}
    for number, (x, y) in placed.items():
        assert labels[round(y), round(x)] == int(number)
    assert not plot.overlay(labels, labels, numbers=False, ax=Figure().subplots()).texts


def test_labels_are_shown_in_the_colours_of_the_palette(ax):
    plot.labels(LABELS, legend=True, ax=ax)
    shown = np.asarray(ax.get_images()[0].get_array())
    assert (shown[..., :3] == palette(2)[LABELS]).all()
    assert ((shown[..., 3] == 255) == (LABELS > 0)).all()
    assert len(ax.get_legend().get_texts()) == 2


def test_shares_by_plane_name_segments_without_a_name_by_their_number(ax):
    labels = np.array([[[1, 1, 2]], [[2, 2, 1]]])
    plot.fractions(labels, names=("gland", ""), ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["gland", "segment 2"]


def test_confidence_has_a_fixed_scale_and_no_value_where_there_is_no_data(ax):
    values = np.where(LABELS > 0, 0.9, 0.0)
    plot.confidence(values, LABELS, ax=ax)
    shown = ax.get_images()[0]
    assert shown.get_clim() == (0, 1)
    assert (np.ma.getmaskarray(shown.get_array()) == (LABELS == 0)).all()
    assert any(isinstance(c, LineCollection) for c in ax.collections)
    assert [a.get_ylabel() for a in ax.figure.axes[1:]] == ["confidence"]
    assert len(plot.confidence(values, colorbar=False, ax=Figure().subplots()).figure.axes) == 1


def test_reliability_shows_a_point_for_each_bin_with_pixels(ax):
    table = reliability([0.55, 0.55, 0.95, 0.95, 0.95, 0.95], [True, False, True, True, True, False])
    plot.reliability(table, ax=ax)
    points = ax.collections[0]
    np.testing.assert_allclose(points.get_offsets(), [[0.55, 0.5], [0.95, 0.75]])
    small, large = points.get_sizes()
    assert small < large
    assert ax.get_title() == "calibration error 0.150"


def test_comparison_matches_colours_and_tells_the_part_that_is_right():
    truth = np.where(LABELS == 0, 1, LABELS)
    swapped = np.array([0, 2, 1])[truth]
    swapped[2, 3] = 2
    axes = plot.comparison(IMAGE, {"swapped": swapped}, truth=truth, axes=grid(1, 3))
    assert [ax.get_title() for ax in axes.flat] == ["image", "truth", "swapped\n91.7 % right"]
    colours = np.asarray(axes[0, 2].get_images()[0].get_array())[..., :3]
    assert (colours[:2] == palette(2)[truth][:2]).all()


def test_comparison_without_truth_follows_the_first_and_hides_panels_not_needed():
    other = np.array([0, 2, 1])[LABELS]
    axes = plot.comparison(IMAGE, {"a": LABELS, "b": other}, n_columns=2)
    assert axes.shape == (2, 2)
    assert [ax.get_visible() for ax in axes.flat] == [True, True, True, False]
    first, second = (np.asarray(ax.get_images()[0].get_array()) for ax in axes.flat[1:3])
    assert (first == second).all()
    plt.close("all")


# ---- filters and histograms


def test_filters_in_space_are_real_parts_of_the_kernels():
    bank = GaborBank(wavelengths=[4, 8], n_orientations=2)
    axes = plot.filter_bank(bank, axes=grid(2, 2))
    assert [ax.get_title() for ax in axes.flat] == ["4 px, 0°", "4 px, 90°", "8 px, 0°", "8 px, 90°"]
    across, down = (np.asarray(axes[1, k].get_images()[0].get_array()) for k in (0, 1))
    np.testing.assert_allclose(across, down.T, atol=1e-6)
    middle = across[across.shape[0] // 2]
    centre = len(middle) // 2
    assert middle[centre] == middle.max()  # even: a cosine under the envelope
    assert middle[centre + 4] == middle.min()  # half a wavelength further


def test_contours_in_frequency_enclose_the_centre_of_each_filter(ax):
    bank = GaborBank(wavelengths=[4, 8], n_orientations=2)
    plot.filter_frequencies(bank, ax=ax)
    for contour, filter in zip(ax.collections, bank.filters, strict=True):
        (path,) = contour.get_paths()
        angle = np.radians(filter.orientation)
        centre = np.array([np.cos(angle), np.sin(angle)]) / filter.wavelength
        assert path.contains_point(centre)
        radii = np.linalg.norm(path.vertices, axis=1)  # an octave wide at half peak
        assert np.log2(radii.max() / radii.min()) == pytest.approx(1, abs=0.12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["4 px", "8 px"]


def test_responses_are_shown_one_by_one():
    planes = np.arange(24.0).reshape(2, 3, 4)
    axes = plot.responses(planes, names=["fine"], n_columns=3, axes=grid(1, 3))
    assert [ax.get_visible() for ax in axes.flat] == [True, True, False]
    assert [ax.get_title() for ax in axes.flat[:2]] == ["fine", "channel 2"]
    np.testing.assert_array_equal(axes[0, 1].get_images()[0].get_array(), planes[1])
    assert axes[0, 1].get_images()[0].get_clim()[0] == 0


def test_histograms_of_a_segment_against_the_rest():
    profiles = np.array([[[1.0, 0, 0]], [[0, 1.0, 0]], [[0, 0, 1.0]]])
    axes = plot.channel_histograms(
        profiles, 1, shares=[0.5, 0.3, 0.1], names=["a"], n_columns=1, axes=grid(1, 1)
    )
    own, rest = (patch.get_data().values for patch in axes[0, 0].patches)
    np.testing.assert_allclose(own, [1, 0, 0])
    np.testing.assert_allclose(rest, [0, 0.75, 0.25])
    assert axes[0, 0].get_title() == "a: 1.00"
    assert axes[0, 0].patches[0].get_facecolor()[:3] == pytest.approx(palette(1)[1] / 255)


def test_histograms_of_the_only_segment_stand_against_nothing():
    axes = plot.channel_histograms(np.full((1, 2, 4), 0.25), 1, n_columns=2, axes=grid(1, 2))
    np.testing.assert_allclose(axes[0, 1].patches[1].get_data().values, 0)
    assert axes[0, 1].get_title().startswith("channel 2")


# ---- runs


def record(level, T, F, K):
    return SimpleNamespace(level=level, beta=1 / T, free_energy=F, n_distinct=K)


def test_annealing_shows_the_end_of_each_temperature_and_the_transitions():
    history = [
        record(0, 4.0, 12.0, 1),
        record(0, 4.0, 10.0, 1),
        record(0, 2.0, 15.0, 1),
        record(0, 2.0, 14.0, 2),
        record(0, 1.0, 20.0, 2),
        record(0, 0.5, 30.0, 4),
        record(1, 0.5, 29.0, 4),
    ]
    axes = plot.annealing(history, axes=grid(2, 1))
    np.testing.assert_allclose(axes[0, 0].lines[0].get_xydata(), [[4, 40], [2, 28], [1, 20], [0.5, 15]])
    np.testing.assert_allclose(axes[1, 0].lines[0].get_xydata(), [[4, 1], [2, 2], [1, 2], [0.5, 4]])
    assert [line.get_xdata()[0] for line in axes[1, 0].lines[1:]] == [2.0, 0.5]
    assert [text.get_text() for text in axes[1, 0].texts] == ["2", "0.5"]
    left, right = axes[1, 0].get_xlim()
    assert left > 4 and right < 0.5  # it cools to the right


def test_selection_shows_every_probability_and_the_choice(ax):
    chosen = SimpleNamespace(n_segments=[2, 3, 4], probabilities=[0.3, 0.6, 0.1], chosen=3)
    plot.selection(chosen, ax=ax)
    bars = {round(bar.get_x() + bar.get_width() / 2): bar for bar in ax.patches}
    assert {k: bar.get_height() for k, bar in bars.items()} == {2: 0.3, 3: 0.6, 4: 0.1}
    assert bars[3].get_facecolor() != bars[2].get_facecolor() == bars[4].get_facecolor()
    assert ax.texts[0].get_text() == "chosen: 3"


class Nested:
    n_segments = (1, 2, 3)
    maps = {
        1: np.array([[0, 1, 1, 1], [1, 1, 1, 1]]),
        2: np.array([[0, 1, 2, 2], [1, 1, 2, 2]]),
        3: np.array([[0, 3, 2, 2], [3, 3, 1, 1]]),  # other numbers; the left segment stays whole
    }

    def labels(self, k):
        return self.maps[k]


def test_hierarchy_draws_each_segment_where_it_appears(ax):
    plot.hierarchy(Nested(), ax=ax)
    boxes = [artist for artist in ax.artists if isinstance(artist, AnnotationBbox)]
    assert sorted(box.xy[1] for box in boxes) == [1, 2, 2, 3, 3]
    assert len(ax.lines) == 4
    pictures = [np.asarray(box.offsetbox.get_data()) for box in boxes]
    regions = [
        np.abs(p - palette(i + 1)[i + 1].astype(int)).max(axis=-1) <= 1 for i, p in enumerate(pictures)
    ]
    expected = [
        Nested.maps[1] == 1,
        Nested.maps[2] == 1,
        Nested.maps[2] == 2,
        Nested.maps[3] == 1,
        Nested.maps[3] == 2,
    ]
    for region, wanted in zip(regions, expected, strict=True):
        np.testing.assert_array_equal(region, wanted)


def test_hierarchy_can_stop_early_and_show_the_image(ax):
    image = np.arange(8).reshape(2, 4)
    plot.hierarchy(Nested(), image, n_segments=2, ax=ax)
    boxes = [artist for artist in ax.artists if isinstance(artist, AnnotationBbox)]
    assert [box.xy[1] for box in boxes] == [1, 2, 2]
    whole = np.asarray(boxes[0].offsetbox.get_data())
    assert whole[1, 3].tolist() == [255, 255, 255] and whole[0, 1, 0] < 60


# ---- co-occurrence


def test_association_is_logarithmic_and_written_out(ax):
    plot.association([[4.0, 0.5], [1.0, 0.0]], row_names=["nouns", "verbs"], ax=ax)
    np.testing.assert_allclose(ax.get_images()[0].get_array(), [[2, -1], [0, -6]])
    assert ax.get_images()[0].get_clim() == (-6, 6)
    assert [text.get_text() for text in ax.texts] == ["4", "0.5", "1", "0"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["nouns", "verbs"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2"]


def test_large_associations_are_not_written_out(ax):
    assert not plot.association(np.ones((20, 20)), ax=ax).texts


def test_words_come_with_their_probabilities_in_order():
    profiles = np.array([[0.1, 0.6, 0.3, 0, 0], [0, 0, 0, 0.5, 0.5]])
    axes = plot.words(profiles, WORDS, n_words=2, titles=["insects"], axes=grid(1, 2))
    assert [tick.get_text() for tick in axes[0, 0].get_yticklabels()] == ["bee", "cat"]
    assert [bar.get_width() for bar in axes[0, 0].patches] == [0.6, 0.3]
    assert [ax.get_title() for ax in axes.flat] == ["insects", "2"]
    assert to_rgb(axes[0, 1].patches[0].get_facecolor()) == pytest.approx(palette(2)[2] / 255)


def test_words_hide_the_panels_not_needed():
    axes = plot.words(np.eye(5), WORDS, n_columns=3, axes=grid(2, 3))
    assert [ax.get_visible() for ax in axes.flat] == [True] * 5 + [False]


def test_words_of_a_tree_stand_at_its_nodes(ax):
    tree = Tree([-1, 0, 0, 1, 1])
    plot.tree_words(tree, np.eye(5), WORDS, n_words=1, ax=ax)
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places == {
        "air": (1.25, 0),
        "bee": (0.5, -1),
        "cat": (2.0, -1),
        "dog": (0.0, -2),
        "elm": (1.0, -2),
    }
    assert len(ax.lines) == 4


def test_shares_of_a_tree_are_the_areas_of_discs_at_its_nodes(ax):
    plot.tree_shares(Tree([-1, 0, 0, 1, 1]), [0.5, 0, 0.25, 0.25, 0], ax=ax)
    discs = ax.collections[0]
    assert discs.get_offsets().tolist() == [[1.25, 0], [0.5, -1], [2.0, -1], [0.0, -2], [1.0, -2]]
    areas = discs.get_sizes()
    assert areas[0] > 0 and (areas / areas[0]).tolist() == [1, 0, 0.5, 0.5, 0]
    assert len(ax.lines) == 4


# ---- mistakes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plot.overlay(IMAGE, LABELS.T),
            r"labels of shape \(4, 3\) do not match the image of \(3, 4\)",
        ),
        (lambda: plot.overlay(IMAGE, LABELS, opacity=2), "opacity must lie between 0 and 1, got 2"),
        (lambda: plot.overlay(np.ones(3), LABELS), r"an image to show must have shape .* got \(3,\)"),
        (lambda: plot.labels(LABELS / 2), r"labels must be integers of shape \(H, W\), got float64"),
        (lambda: plot.confidence(np.ones(3)), r"a confidence map must have shape \(H, W\), got \(3,\)"),
        (lambda: plot.comparison(IMAGE, {}), "comparison needs at least one labelling"),
        (lambda: plot.responses(np.ones((2, 2))), r"responses must have shape \(C, H, W\), got \(2, 2\)"),
        (lambda: plot.channel_histograms(np.ones((2, 2)), 1), r"profiles must have shape \(K, C, n_bins\)"),
        (
            lambda: plot.channel_histograms(np.ones((2, 1, 3)), 3),
            "segment must be a label from 1 to 2, got 3",
        ),
        (
            lambda: plot.channel_histograms(np.ones((2, 1, 3)), 1, shares=[1]),
            r"shares must hold one area for each of 2 segments, got shape \(1,\)",
        ),
        (lambda: plot.annealing([record(0, 1.0, 1.0, 1)]), "needs a history with several temperatures"),
        (
            lambda: plot.selection(SimpleNamespace(n_segments=[1, 2], probabilities=[1], chosen=1)),
            r"one probability for each number of segments.* got \[1, 2\] with 1 probabilities",
        ),
        (
            lambda: plot.hierarchy(Nested(), n_segments=0),
            r"hierarchy holds \[1, 2, 3\] segments, none up to 0",
        ),
        (lambda: plot.association([[-1.0]]), "association must be a non-negative table"),
        (lambda: plot.words(np.eye(3), WORDS), r"profiles must have one column for each of 5 words"),
        (lambda: plot.words(np.eye(5), WORDS, n_words=0), "n_words must be at least 1, got 0"),
        (lambda: plot.tree_shares(Tree([-1]), [1, 2]), "for each of 1 nodes, got shape"),
        (lambda: plot.tree_words(Tree([-1]), np.eye(5), WORDS), "one row for each of 1 nodes, got 5"),
    ],
)
def test_mistakes_are_named_before_anything_is_drawn(call, message):
    before = plt.get_fignums()
    with pytest.raises(ValueError, match=message):
        call()
    assert plt.get_fignums() == before
