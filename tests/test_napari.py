"""The napari plugin, without a screen."""

import os
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what napari and Qt warn about is theirs
    pytest.importorskip("napari.layers", reason="napari is not installed: pip install -e '.[napari]'")
    widgets = pytest.importorskip(
        "qtpy.QtWidgets", reason="Qt misses libraries of the system", exc_type=ImportError
    )
    from texseg import TextureSegmenter
    from texseg.napari.widget import SegmentWidget

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, COLUMNS = np.mgrid[:96, :128]
IMAGE = np.where(COLUMNS < 64, np.sin(ROWS * 2.2), np.sin(COLUMNS / 2))


@pytest.fixture(scope="module")
def application():
    return widgets.QApplication.instance() or widgets.QApplication([])


@pytest.fixture
def viewer(application):
    from napari.components import ViewerModel

    return ViewerModel()


@pytest.fixture
def widget(viewer):
    return SegmentWidget(viewer)


def press_and_wait(application, widget):
    widget.button.click()
    wait(application, widget)


def wait(application, widget):
    end = time.monotonic() + 60
    while not widget.button.isEnabled() and time.monotonic() < end:
        application.processEvents()
    assert widget.button.isEnabled()


def test_the_manifest_names_the_widget():
    from npe2 import PluginManifest

    manifest = PluginManifest.from_distribution("texseg")
    (contribution,) = manifest.contributions.widgets
    assert contribution.display_name == "Texture segments"
    (command,) = manifest.contributions.commands
    assert command.python_name == "texseg.napari.widget:SegmentWidget"
    assert contribution.command == command.id and SegmentWidget.__name__ in command.python_name


def test_it_offers_the_images_there_are(viewer, widget):
    assert widget.image.count() == 0
    viewer.add_image(IMAGE, name="a")
    viewer.add_labels(np.ones((3, 3), int), name="no image")
    viewer.add_image(IMAGE, name="b")
    widget.image.setCurrentText("b")
    viewer.layers.remove("a")
    assert [widget.image.itemText(k) for k in range(widget.image.count())] == ["b"]
    assert widget.image.currentText() == "b"


def test_labels_become_a_layer_in_place_and_in_the_colours_of_the_palette(application, viewer, widget):
    from texseg.io.regions import palette

    viewer.add_image(IMAGE, name="scene", scale=(2, 2), translate=(5, 7))
    widget.number.setValue(2)
    press_and_wait(application, widget)
    layer = viewer.layers["scene labels"]
    np.testing.assert_array_equal(layer.data, TextureSegmenter(n_segments=2).fit(IMAGE).labels_)
    assert layer.scale.tolist() == [2, 2] and layer.translate.tolist() == [5, 7]
    np.testing.assert_allclose(layer.get_color(2)[:3], palette(2)[2] / 255, atol=0.01)
    assert widget.shown.text() == "2 segments"


def test_the_slider_moves_over_the_hierarchy(application, viewer, widget):
    viewer.add_image(IMAGE, name="scene")
    widget.number.setValue(2)
    press_and_wait(application, widget)
    assert widget.slider.isEnabled()
    numbers = [int(k) for k in widget.model.hierarchy_.n_segments]
    widget.slider.setValue(numbers.index(1))
    assert widget.shown.text() == "1 segment"
    assert np.unique(viewer.layers["scene labels"].data).tolist() == [1]
    widget.slider.setValue(numbers.index(2))
    np.testing.assert_array_equal(viewer.layers["scene labels"].data, widget.model.labels_)


def test_colour_images_are_taken_as_such(application, viewer, widget):
    viewer.add_image(np.stack([IMAGE, IMAGE, -IMAGE], axis=-1), rgb=True, name="colour")
    widget.number.setValue(2)
    press_and_wait(application, widget)
    assert widget.model.channel_axis == -1


def world(layer, point):
    return np.asarray(layer.data_to_world(point))


def segmented(application, viewer, widget, image=IMAGE, **options):
    """Labels layer of an image in two segments."""
    layer = viewer.add_image(image, name="scene", **options)
    widget.number.setValue(2)
    press_and_wait(application, widget)
    return layer, viewer.layers["scene labels"]


@pytest.mark.parametrize(
    "place",
    [
        {"rotate": 30, "scale": (2, 3), "translate": (5, 7), "shear": [0.4]},
        {"affine": [[0.5, 0.3, 10], [-0.2, 1.5, -4], [0, 0, 1]], "rotate": 10},
    ],
    ids=["rotated and sheared", "affine"],
)
def test_labels_lie_on_the_image_wherever_it_is(application, viewer, widget, place):
    image, labels = segmented(application, viewer, widget, **place)
    for corner in [(0, 0), (95, 0), (0, 127), (40, 90)]:
        np.testing.assert_allclose(world(labels, corner), world(image, corner))


def test_the_opacity_of_colours_is_a_mask_and_no_colour(application, viewer, widget):
    grey = (127 * (IMAGE + 1)).astype(np.uint8)
    opacity = np.where(ROWS < 80, 255, 0).astype(np.uint8)
    pixels = np.stack([grey, grey, 255 - grey, opacity], axis=-1)
    _, labels = segmented(application, viewer, widget, pixels, rgb=True)
    assert (labels.data[80:] == 0).all() and set(np.unique(labels.data[:80])) == {1, 2}
    assert widget.model.textures_.features.n_bands == 3


def test_a_layer_can_be_the_mask(application, viewer, widget):
    mask = np.zeros(IMAGE.shape, int)
    mask[10:, :100] = 3
    viewer.add_labels(mask, name="tissue")
    viewer.add_image(IMAGE, name="scene")
    widget.mask.setCurrentText("tissue")
    widget.number.setValue(2)
    press_and_wait(application, widget)
    found = viewer.layers["scene labels"].data
    assert ((found == 0) == (mask == 0)).all()
    viewer.layers.remove("tissue")
    assert widget.mask.currentText() == "none"


def test_all_planes_of_a_stack_get_the_same_textures(application, viewer, widget):
    stack = np.stack([IMAGE, IMAGE[:, ::-1], IMAGE])
    viewer.add_image(stack, name="scene", rotate=(0, 20, 0), scale=(4, 1, 1))
    widget.planes.setCurrentIndex(1)
    widget.number.setValue(2)
    press_and_wait(application, widget)
    layer = viewer.layers["scene labels"]
    assert layer.data.shape == stack.shape
    first, mirrored = layer.data[0], layer.data[1]
    assert first[50, 10] != first[50, 120]
    assert mirrored[50, 120] == first[50, 10] and mirrored[50, 10] == first[50, 120]
    np.testing.assert_allclose(world(layer, (2, 9, 9)), world(viewer.layers["scene"], (2, 9, 9)))
    widget.slider.setValue(0)
    assert np.unique(layer.data).tolist() == [1]


def test_planes_that_were_not_fitted_are_labelled_by_the_same_model(application, viewer, widget, monkeypatch):
    monkeypatch.setattr("texseg.napari.work.MOST_FITTED", 2)
    viewer.add_image(np.stack([IMAGE, IMAGE[:, ::-1], IMAGE]), name="scene")
    widget.planes.setCurrentIndex(1)
    widget.number.setValue(2)
    press_and_wait(application, widget)
    data = viewer.layers["scene labels"].data
    assert data[1, 50, 10] == data[0, 50, 120] != data[1, 50, 120]
    assert not widget.slider.isEnabled()  # the hierarchy knows the fitted planes alone


def test_the_plane_that_is_shown_is_the_one_that_is_segmented(application, viewer, widget):
    viewer.add_image(np.stack([IMAGE, np.random.default_rng(0).normal(size=IMAGE.shape)]), name="scene")
    viewer.dims.set_current_step(0, 0)
    widget.number.setValue(2)
    press_and_wait(application, widget)
    data = viewer.layers["scene labels"].data
    assert set(np.unique(data[0])) == {1, 2} and (data[1] == 0).all()


@pytest.mark.parametrize("way", [2, 3])
def test_a_stack_is_segmented_as_one_volume(application, viewer, widget, way, tmp_path, monkeypatch):
    """By textures within planes, coupled, or in space; strokes, merges and model files as for images."""
    said = []
    from texseg.synth import solid, volume

    cube = volume([solid("field", 40, 5), solid("field", 40, 11)]).image[::2]
    layer = viewer.add_image(cube, name="rock", scale=(2, 1, 1))
    widget.planes.setCurrentIndex(way)
    widget.number.setValue(2)
    viewer.dims.set_current_step(0, 9)
    press_and_wait(application, widget)
    given = {"planes": "z"} if way == 2 else {"spatial_dims": 3, "spacing": (2.0, 1.0, 1.0)}
    expected = TextureSegmenter(2, **given).fit(cube)
    labels = viewer.layers["rock labels"]
    assert (labels.data == expected.labels_).all() and (labels.scale == layer.scale).all()
    widget.slider.setValue(0)
    assert (labels.data == expected.hierarchy_.labels(1)).all()
    widget.slider.setValue(1)
    widget.new_seeds.click()
    places = np.argwhere(expected.labels_ == 1)
    place = places[len(places) // 2]
    viewer.layers["rock seeds"].data[tuple(place)] = 2
    widget.refit_button.click()
    wait(application, widget)
    assert labels.data[tuple(place)] == 2
    widget.save_model(tmp_path / "rock.texseg")
    widget.merge([1, 2])
    assert labels.data.max() == 1
    viewer.add_image(cube[0], name="one plane")
    widget.load_model(tmp_path / "rock.texseg")
    widget.image.setCurrentText("one plane")
    monkeypatch.setattr("texseg.napari.widget.show_error", said.append)
    widget.apply.click()
    assert said == ["texseg: the textures are those of volumes, and 'one plane' has one plane"]


def test_of_several_resolutions_the_finest_is_taken(application, viewer, widget):
    viewer.add_image([IMAGE, IMAGE[::2, ::2]], multiscale=True, name="scene")
    widget.number.setValue(2)
    press_and_wait(application, widget)
    assert viewer.layers["scene labels"].data.shape == IMAGE.shape


def test_it_tells_how_far_it_is_and_the_window_stays_alive(application, viewer, widget):
    told = []
    widget._progressed.connect(lambda text, share: told.append((text, share)))
    segmented(application, viewer, widget)
    assert {"filters", "borders", "coarse and fine"} <= {text for text, _ in told}
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[-1] == 1


def test_cancel_ends_the_fit_and_leaves_everything_as_it_was(application, viewer, widget):
    viewer.add_image(IMAGE, name="scene")
    widget.button.click()
    assert widget.cancel.isEnabled() and not widget.button.isEnabled()
    widget.cancel.click()
    wait(application, widget)
    assert [layer.name for layer in viewer.layers] == ["scene"]
    assert widget.model is None and not widget.cancel.isEnabled()


def test_an_image_that_is_removed_meanwhile_gets_no_labels(application, viewer, widget):
    viewer.add_image(IMAGE, name="scene")
    widget.button.click()
    viewer.layers.remove("scene")
    wait(application, widget)
    assert not list(viewer.layers)


def test_segmenting_again_changes_the_same_layer(application, viewer, widget):
    image, labels = segmented(application, viewer, widget)
    widget.number.setValue(1)
    press_and_wait(application, widget)
    assert list(viewer.layers) == [image, labels]
    assert np.unique(labels.data).tolist() == [1]


def test_what_was_painted_is_kept(application, viewer, widget):
    image, labels = segmented(application, viewer, widget)
    before = widget.model.labels_.copy()
    labels.data_setitem((np.array([3]), np.array([4])), np.array([9]))
    np.testing.assert_array_equal(widget.model.labels_, before)
    widget.slider.setValue(0)
    assert labels in viewer.layers and labels.data[3, 4] == 9
    assert len(viewer.layers) == 3
    assert np.unique(viewer.layers[-1].data).tolist() == [1]


def test_a_layer_of_labels_that_is_removed_is_forgotten(application, viewer, widget):
    image, labels = segmented(application, viewer, widget)
    assert widget.slider.isEnabled()
    viewer.layers.remove(labels)
    assert not widget.slider.isEnabled() and widget.shown.text() == ""
    press_and_wait(application, widget)
    assert [layer.name for layer in viewer.layers] == ["scene", "scene labels"]


def test_each_image_has_a_result_of_its_own(application, viewer, widget):
    _, first = segmented(application, viewer, widget)
    viewer.add_image(IMAGE.T.copy(), name="other")
    widget.image.setCurrentText("other")
    assert not widget.slider.isEnabled()
    widget.image.setCurrentText("scene")
    assert widget.slider.isEnabled() and widget.shown.text() == "2 segments"
    viewer.layers["other"].name = "renamed"
    assert [widget.image.itemText(k) for k in range(2)] == ["scene", "renamed"]


def test_parameters_reach_the_model(application, viewer, widget):
    viewer.add_image(IMAGE, name="scene")
    widget.number.setValue(2)
    widget.at_least.setValue(3)
    widget.at_most.setValue(5)
    widget.smoothness.setValue(0.5)
    widget.min_size.setValue(300)
    widget.preset.setCurrentText("plain")
    press_and_wait(application, widget)
    given = widget.model.get_params()
    assert given["k_min"] == 3
    assert (given["k_max"], given["smoothness"], given["min_size"], given["preset"]) == (5, 0.5, 300, "plain")


def test_a_model_is_saved_loaded_and_applied(application, viewer, widget, tmp_path):
    assert not widget.save.isEnabled() and not widget.apply.isEnabled()
    _, labels = segmented(application, viewer, widget)
    widget.save_model(tmp_path / "two.texseg")
    other = SegmentWidget(viewer)
    other.load_model(tmp_path / "two.texseg")
    assert other.shown.text() == "two.texseg: 2 segments"
    viewer.add_image(IMAGE[:, ::-1].copy(), name="mirrored")
    other.image.setCurrentText("mirrored")
    other.apply.click()
    wait(application, other)
    found = viewer.layers["mirrored labels"].data
    assert (found == labels.data[:, ::-1]).mean() > 0.95


def click_on(layer, position, moves=0):
    """A click of the mouse on a layer, as napari tells its callbacks."""
    event = SimpleNamespace(type="mouse_press", position=position)
    for callback in layer.mouse_drag_callbacks:
        steps = callback(layer, event)
        next(steps, None)
        for _ in range(moves):
            event.type = "mouse_move"
            next(steps, None)
        event.type = "mouse_release"
        next(steps, None)


def rows(widget):
    return [widget.segments.rows.item(k).text() for k in range(widget.segments.rows.count())]


def test_segments_are_merged_by_clicks_and_split_again(application, viewer, widget):
    image, labels = segmented(application, viewer, widget, scale=(2, 2))
    before = labels.data.copy()
    assert rows(widget) == ["segment 1", "segment 2"] and not widget.segments.merge.isEnabled()
    click_on(labels, (100, 20))
    click_on(labels, (100, 220), moves=3)  # a drag is no click
    assert widget.segments.ticked() == [labels.data[50, 10]]
    click_on(labels, (100, 220))
    widget.segments.merge.click()
    assert np.unique(labels.data).tolist() == [1] and widget.model.n_segments_ == 1
    assert rows(widget) == ["segment 1"] and widget.shown.text() == "1 segment"
    click_on(labels, (100, 20))
    widget.segments.split.click()
    wait(application, widget)
    np.testing.assert_array_equal(labels.data, before)
    assert viewer.layers[-1] is labels and widget.slider.isEnabled()


def test_merges_hold_on_all_planes_of_a_stack(application, viewer, widget, monkeypatch):
    monkeypatch.setattr("texseg.napari.work.MOST_FITTED", 2)
    viewer.add_image(np.stack([IMAGE, IMAGE[:, ::-1], IMAGE]), name="scene")
    widget.planes.setCurrentIndex(1)
    widget.number.setValue(2)
    press_and_wait(application, widget)
    before = viewer.layers["scene labels"].data.copy()
    widget.merge([1, 2])
    assert np.unique(viewer.layers["scene labels"].data).tolist() == [1]
    widget.split(1)
    wait(application, widget)
    np.testing.assert_array_equal(viewer.layers["scene labels"].data, before)


def test_names_are_given_in_the_list_and_kept_in_model_files(application, viewer, widget, tmp_path):
    from napari.utils.notifications import notification_manager

    segmented(application, viewer, widget)
    widget.segments.rows.item(1).setText("weave")
    assert widget.model.names_ == ("", "weave") and rows(widget) == ["segment 1", "weave"]
    widget.segments.rows.item(0).setText("weave")
    assert "each name may be given once" in notification_manager.records[-1].message
    assert rows(widget) == ["segment 1", "weave"]
    widget.save_model(tmp_path / "m.texseg")
    assert TextureSegmenter.load(tmp_path / "m.texseg").names_ == ("", "weave")


def test_only_the_segments_of_the_model_can_be_edited(application, viewer, widget):
    segmented(application, viewer, widget)
    widget.slider.setValue(0)
    assert rows(widget) == []
    widget.slider.setValue(1)
    assert len(rows(widget)) == 2


def test_what_cannot_be_done_is_said(application, viewer, widget, tmp_path):
    from napari.utils.notifications import notification_manager

    def said():
        return notification_manager.records[-1].message

    widget.button.click()
    assert "no image layer; open an image first" in said()
    viewer.add_labels(np.ones((3, 3), int), name="small")
    viewer.add_image(IMAGE, name="scene")
    widget.mask.setCurrentText("small")
    widget.button.click()
    assert "the mask 'small' has shape (3, 3), the image 'scene' (96, 128)" in said()
    viewer.layers["small"].data = np.zeros(IMAGE.shape, int)
    press_and_wait(application, widget)
    assert "the mask covers every pixel" in said()
    (tmp_path / "a.texseg").write_bytes(b"none")
    widget.load_model(tmp_path / "a.texseg")
    assert "not a texseg model file" in said()


def paint(widget, *seeds):
    """Add a layer for seeds, and paint rows 40 to 50 of some columns."""
    widget.new_seeds.click()
    layer = widget.seeds.currentData()
    for label, columns in seeds:
        layer.data[..., 40:50, columns] = label
    return layer


def test_seeds_say_which_segment_is_where(application, viewer, widget):
    viewer.add_image(IMAGE, name="waves", scale=(2, 2))
    layer = paint(widget, (2, slice(10, 40)), (1, slice(80, 110)))
    assert layer.scale.tolist() == [2, 2]
    assert layer.mode == "paint"
    press_and_wait(application, widget)
    labels = viewer.layers["waves labels"].data
    assert (labels == np.where(COLUMNS < 64, 2, 1)).mean() > 0.95


def test_a_refit_corrects_the_same_layer(application, viewer, widget):
    widget.number.setValue(2)
    segmented(application, viewer, widget)
    assert not widget.refit_button.isEnabled()
    paint(widget, (2, slice(10, 40)), (1, slice(80, 110)))
    n_layers = len(viewer.layers)
    for left, right in ((2, 1), (1, 2)):
        widget.seeds.currentData().data[40:50, 10:40] = left
        widget.seeds.currentData().data[40:50, 80:110] = right
        widget.refit_button.click()
        wait(application, widget)
        labels = next(iter(widget._results.values())).layer.data
        assert (labels == np.where(COLUMNS < 64, left, right)).mean() > 0.95
    assert len(viewer.layers) == n_layers


def test_seeds_follow_merges(application, viewer, widget):
    widget.number.setValue(3)
    viewer.add_image(IMAGE, name="waves")
    paint(widget, (3, slice(10, 40)), (1, slice(80, 110)))
    press_and_wait(application, widget)
    widget.merge([1, 2])
    seeds, labels = widget.seeds.currentData().data, viewer.layers["waves labels"].data
    assert set(np.unique(seeds)) == {0, 1, 2}
    assert (seeds == labels)[seeds > 0].all()


def test_names_of_layers_can_be_read(widget):
    boxes = (widget.image, widget.mask, widget.seeds)
    assert all(box.minimumSizeHint().width() >= 14 * box.fontMetrics().averageCharWidth() for box in boxes)


def test_seeds_on_a_plane_of_a_stack_serve_all_planes(application, viewer, widget):
    viewer.add_image(np.stack([IMAGE, IMAGE[:, ::-1]]), name="stack")
    widget.planes.setCurrentIndex(1)
    layer = paint(widget)
    layer.data[0, 40:50, 10:40], layer.data[0, 40:50, 80:110] = 2, 1
    press_and_wait(application, widget)
    labels = viewer.layers["stack labels"].data
    expected = np.where(COLUMNS < 64, 2, 1)
    assert (labels == np.stack([expected, expected[:, ::-1]])).mean() > 0.95


def test_seeds_of_another_shape_are_refused_with_a_sentence(application, viewer, widget, monkeypatch):
    said = []
    monkeypatch.setattr("texseg.napari.widget.show_error", said.append)
    viewer.add_image(IMAGE, name="waves")
    viewer.add_labels(np.ones((5, 5), int), name="small")
    widget.seeds.setCurrentText("small")
    widget.button.click()
    assert "the seeds 'small' have shape (5, 5), the image 'waves' (96, 128)" in said[0]


# ---- scenes larger than memory -----------------------------------------------------------------------------


@pytest.fixture
def small_memory(monkeypatch):
    """A machine that this test's scene is too large for."""
    monkeypatch.setattr("texseg.napari.source.free_memory", lambda: 10**6)
    monkeypatch.setattr("texseg.napari.source.LARGEST_PICTURE", 500)
    monkeypatch.setattr("texseg.napari.source._OVERVIEW", 200)


@pytest.fixture
def scene_file(tmp_path):
    """A tiled TIFF of two textures with a pyramid; its upper edge holds no data, which is 0."""
    tifffile = pytest.importorskip("tifffile")
    pixels = (100 + 90 * np.tile(IMAGE, (6, 5))).astype(np.uint8)
    pixels[:20] = 0
    path = tmp_path / "scene.tif"
    with tifffile.TiffWriter(path) as tif:
        nodata = [(42113, "s", 0, "0", True)]
        tif.write(pixels, tile=(128, 128), subifds=1, extratags=nodata)
        tif.write(pixels[::2, ::2], tile=(128, 128), subfiletype=1)
    return path, pixels


def opened(application, viewer, widget, path):
    pytest.importorskip("dask")
    pytest.importorskip("zarr")
    widget.open_scene(path)
    end = time.monotonic() + 60
    while not len(viewer.layers) and time.monotonic() < end:
        application.processEvents()
    return viewer.layers[path.stem]


def test_a_large_file_is_shown_by_levels(application, viewer, widget, small_memory, scene_file):
    path, pixels = scene_file
    layer = opened(application, viewer, widget, path)
    assert layer.multiscale and [level.shape for level in layer.data][:2] == [(576, 640), (288, 320)]
    assert all(hasattr(level, "dask") for level in layer.data[:2])
    np.testing.assert_array_equal(np.asarray(layer.data[0][:50, 100:300]), pixels[:50, 100:300])
    assert widget.image.currentText() == "scene" and widget.mask.currentText() == "scene mask"


def test_a_large_file_gets_labels_at_full_resolution(application, viewer, widget, small_memory, scene_file):
    path, pixels = scene_file
    opened(application, viewer, widget, path)
    widget.number.setValue(2)
    press_and_wait(application, widget)
    layer = viewer.layers["scene labels"]
    finest = np.asarray(layer.data[0])
    assert layer.multiscale and finest.shape == pixels.shape
    np.testing.assert_array_equal(layer.data[1], finest[::2, ::2])
    assert (finest[:20] == 0).all() and set(np.unique(finest[20:])) == {1, 2}
    left = np.arange(640) % 128 < 64
    assert np.mean((finest[40:, left] == finest[100, 20]) & (finest[40:, ~left] != finest[100, 20])) > 0.9
    widget.merge([1, 2])
    assert set(np.unique(layer.data[0])) == {0, 1}


def test_bands_that_cannot_be_shown_are_refused(application, viewer, widget, tmp_path):
    from texseg.napari.source import read_scene

    np.save(tmp_path / "bands.npy", np.zeros((5, 40, 50), np.uint8))
    with pytest.raises(ValueError, match="channel"):
        read_scene(tmp_path / "bands.npy")
