"""The dock widget: segment an image layer, and move between fewer and more segments."""

from __future__ import annotations

from typing import Any

import numpy as np
from napari.layers import Image, Labels
from napari.qt.threading import create_worker
from napari.utils import DirectLabelColormap
from napari.utils.notifications import show_error
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QLabel,
    QPushButton,
    QSlider,
    QSpinBox,
    QWidget,
)

from texseg.io.palette import palette
from texseg.segmenter import TextureSegmenter

__all__ = ["SegmentWidget"]

_MOST_SEGMENTS = 255


class SegmentWidget(QWidget):
    """Choose an image and a number of segments; the labels become a layer of the viewer.

    Where the model has a hierarchy, a slider changes the number of segments without a new fit.

    Parameters
    ----------
    napari_viewer : napari.viewer.Viewer
    """

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._layer: Labels | None = None
        self.model: TextureSegmenter | None = None
        self.image = QComboBox()
        self.number = QSpinBox(minimum=0, maximum=_MOST_SEGMENTS, value=0)
        self.number.setSpecialValueText("choose")
        self.smoothness = QDoubleSpinBox(minimum=0, maximum=10, singleStep=0.25, value=1)
        self.button = QPushButton("Segment")
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.shown = QLabel("")
        form = QFormLayout(self)
        form.addRow("image", self.image)
        form.addRow("segments", self.number)
        form.addRow("smoothness", self.smoothness)
        form.addRow(self.button)
        form.addRow("fewer, more", self.slider)
        form.addRow(self.shown)
        self.slider.setEnabled(False)
        self.button.clicked.connect(self.segment)
        self.slider.valueChanged.connect(self._show)
        for event in (napari_viewer.layers.events.inserted, napari_viewer.layers.events.removed):
            event.connect(self._list_images)
        self._list_images()

    def segment(self) -> None:
        """Fit in the background, and add the labels when they are there."""
        name = self.image.currentText()
        if not name:
            show_error("texseg: open an image first, there is no image layer")
            return
        layer = self._viewer.layers[name]
        model = TextureSegmenter(
            self.number.value() or None,
            channel_axis=-1 if layer.rgb else None,
            smoothness=self.smoothness.value(),
        )
        pixels = np.asarray(layer.data[0] if layer.multiscale else layer.data)
        self.button.setEnabled(False)
        self.shown.setText("segmenting ...")
        worker = create_worker(model.fit, pixels, _start_thread=False, _ignore_errors=True)
        worker.returned.connect(lambda fitted: self._finish(fitted, layer))
        worker.errored.connect(self._fail)
        worker.start()

    def _list_images(self, event: Any = None) -> None:
        """Offer the image layers that there are."""
        chosen = self.image.currentText()
        self.image.clear()
        self.image.addItems([layer.name for layer in self._viewer.layers if isinstance(layer, Image)])
        self.image.setCurrentText(chosen)

    def _fail(self, error: Exception) -> None:
        self.button.setEnabled(True)
        self.shown.setText("")
        show_error(f"texseg: {error}")

    def _finish(self, model: TextureSegmenter, layer: Image) -> None:
        self.model = model
        self.button.setEnabled(True)
        self._layer = self._viewer.add_labels(
            model.labels_,
            name=f"{layer.name} textures",
            scale=layer.scale[-2:],
            translate=layer.translate[-2:],
            colormap=_colours(_MOST_SEGMENTS),
        )
        numbers = self._numbers()
        self.slider.blockSignals(True)
        self.slider.setRange(0, len(numbers) - 1)
        self.slider.setValue(numbers.index(model.n_segments_))
        self.slider.setEnabled(len(numbers) > 1)
        self.slider.blockSignals(False)
        self._show(self.slider.value())

    def _numbers(self) -> list[int]:
        """Numbers of segments that the slider moves over."""
        assert self.model is not None
        hierarchy = getattr(self.model, "hierarchy_", None)
        numbers = [] if hierarchy is None else [int(k) for k in hierarchy.n_segments]
        return sorted({*numbers, self.model.n_segments_})

    def _show(self, index: int) -> None:
        """Show the segmentation at a place of the slider."""
        if self.model is None or self._layer is None:
            return
        number = self._numbers()[index]
        self.shown.setText(f"{number} segment" + ("" if number == 1 else "s"))
        own = number == self.model.n_segments_
        self._layer.data = self.model.labels_ if own else self.model.hierarchy_.labels(number)


def _colours(n_labels: int) -> DirectLabelColormap:
    """Colours of the palette, nothing where there is no data."""
    table: NDArray[np.floating] = palette(n_labels) / 255
    colours: dict[int | None, Any] = {label: (*rgb, 1.0) for label, rgb in enumerate(table)}
    return DirectLabelColormap(color_dict={**colours, 0: (0, 0, 0, 0), None: (0, 0, 0, 0)})
