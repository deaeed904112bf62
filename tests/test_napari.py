"""The napari plugin, without a screen."""

import os
import time
import warnings

import numpy as np
import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what napari and Qt warn about is theirs
    pytest.importorskip("napari.layers", reason="napari is not installed: pip install -e '.[napari]'")
    widgets = pytest.importorskip(
        "qtpy.QtWidgets", reason="Qt misses libraries of the system", exc_type=ImportError
    )
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
    from texseg import TextureSegmenter
    from texseg.io.palette import palette

    viewer.add_image(IMAGE, name="scene", scale=(2, 2), translate=(5, 7))
    widget.number.setValue(2)
    press_and_wait(application, widget)
    layer = viewer.layers["scene textures"]
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
    assert np.unique(viewer.layers["scene textures"].data).tolist() == [1]
    widget.slider.setValue(numbers.index(2))
    np.testing.assert_array_equal(viewer.layers["scene textures"].data, widget.model.labels_)


def test_colour_images_are_taken_as_such(application, viewer, widget):
    viewer.add_image(np.stack([IMAGE, IMAGE, -IMAGE], axis=-1), rgb=True, name="colour")
    widget.number.setValue(2)
    press_and_wait(application, widget)
    assert widget.model.channel_axis == -1


def test_what_cannot_be_done_is_said(application, viewer, widget):
    from napari.utils.notifications import notification_manager

    widget.button.click()
    assert "there is no image layer" in notification_manager.records[-1].message
    viewer.add_image(np.zeros((2, 8, 8)), name="stack")
    widget.number.setValue(2)
    press_and_wait(application, widget)
    assert "image must have 2 axes" in notification_manager.records[-1].message
