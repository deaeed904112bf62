"""The dock widget: segment image layers in the background, and move between fewer and more segments."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from napari.layers import Image, Labels
from napari.qt.threading import create_worker
from napari.utils import DirectLabelColormap
from napari.utils.notifications import show_error, show_info
from numpy.typing import NDArray
from qtpy import QtWidgets
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtGui import QColor, QIcon, QPixmap
from qtpy.QtWidgets import QComboBox, QWidget

from texseg.estimator import TextureSegmenter
from texseg.io.regions import palette
from texseg.napari import source as files
from texseg.napari.source import Index, LayerSource, finest, placement
from texseg.napari.work import Job, Result, Stopped
from texseg.parameters import MOST_SEGMENTS, PRESETS

_SWATCH = 12  # pixels
_BOXES = (  # those of napari's themes are hardly darker than the list
    "QListWidget::indicator { width: 11px; height: 11px; border: 2px solid #9a9da3; border-radius: 3px; }"
    "QListWidget::indicator:checked { background: #4b8bf4; border-color: #e8eaed; }"
)
_EDITABLE = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsEditable
_BRUSH = 5  # pixels
_LEAST_NAME = 14  # letters of a layer that a drop-down shows


class SegmentList(QWidget):
    """Segments with their colours and names; ticked ones are merged or split."""

    def __init__(self, merge: Any, split: Any, rename: Any) -> None:
        super().__init__()
        self.rows = QtWidgets.QListWidget()
        self.rows.setStyleSheet(_BOXES)
        self.rows.setToolTip("Tick segments here or click on them in the image; double-click to name one")
        self.merge = _button("Merge", lambda: merge(self.ticked()), "Join the ticked segments into one")
        split_help = "Divide the ticked segment in two, or undo its merge"
        self.split = _button("Split", lambda: split(self.ticked()[0]), split_help)
        self._rename = rename
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.rows)
        layout.addWidget(_side_by_side(self.merge, self.split))
        self._names: tuple[str, ...] = ()
        self.rows.itemChanged.connect(self._follow)
        self.show_segments(())

    def show_segments(self, names: Sequence[str]) -> None:
        """List segments 1, 2 and so on by their names, none of them ticked."""
        self._names = tuple(names)
        with QSignalBlocker(self.rows):
            self.rows.clear()
            for label, (name, colour) in enumerate(zip(names, palette(len(names))[1:], strict=True), start=1):
                square = QPixmap(_SWATCH, _SWATCH)
                square.fill(QColor(*colour.tolist()))
                item = QtWidgets.QListWidgetItem(QIcon(square), name or f"segment {label}")
                item.setFlags(_EDITABLE)
                item.setCheckState(Qt.CheckState.Unchecked)
                self.rows.addItem(item)
        self._enable()

    def ticked(self) -> list[int]:
        """Labels that are ticked."""
        states = [self.rows.item(row).checkState() for row in range(self.rows.count())]
        return [label for label, state in enumerate(states, start=1) if state == Qt.CheckState.Checked]

    def toggle(self, label: int) -> None:
        """Tick a segment, or untick it."""
        if 1 <= label <= self.rows.count():
            item, on = self.rows.item(label - 1), label in self.ticked()
            item.setCheckState(Qt.CheckState.Unchecked if on else Qt.CheckState.Checked)

    def _follow(self, item: QtWidgets.QListWidgetItem) -> None:
        label = self.rows.row(item) + 1
        name = item.text().strip()
        name = "" if name == f"segment {label}" else name
        if name != self._names[label - 1]:
            self._rename(label, name)
        self._enable()

    def _enable(self) -> None:
        self.merge.setEnabled(len(self.ticked()) > 1)
        self.split.setEnabled(len(self.ticked()) == 1)


class _Result(NamedTuple):
    """Result for an image layer, and how it is shown."""

    found: Result
    indices: list[Index]  # planes that have labels
    number: int  # segments that are shown
    layer: Labels
    shown: NDArray[np.integer]  # what was put into the layer; where it differs, the user has painted


class SegmentWidget(QWidget):
    """Choose an image and a number of segments; the labels become a layer of the viewer.

    A fit runs in the background and can be cancelled. In a stack, either one plane or, with one model, all of
    them are segmented. A slider changes the number of segments without a new fit. Segmenting an image again
    changes its layer of labels, unless that was painted on: then a new one is added. Seeds on a separate
    layer say which segment is where, for *Segment* and, faster, for *Refit*.
    """

    _progressed = Signal(str, float)  # from the thread of a job to the window

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._results: dict[Image, _Result] = {}
        self._job: tuple[Job, Image] | None = None
        self.model: TextureSegmenter | None = None
        self._build()
        self._progressed.connect(self._show_progress)
        self.image.currentIndexChanged.connect(self._choose_image)
        self.slider.valueChanged.connect(self._show_level)
        self.seeds.currentIndexChanged.connect(self._show_state)
        layers = napari_viewer.layers
        layers.events.inserted.connect(self._follow_layers)
        layers.events.removed.connect(self._follow_layers)
        for layer in layers:
            layer.events.name.connect(self._follow_layers)
        self._follow_layers()

    def _build(self) -> None:
        self.image, self.planes, self.mask, self.seeds, self.preset = (QComboBox() for _ in range(5))
        for box in (self.image, self.planes, self.mask, self.seeds, self.preset):
            box.setMinimumContentsLength(_LEAST_NAME)
        models, opens = "texseg models (*.texseg);;all files (*)", "getOpenFileName"
        saves = "getSaveFileName", "Save the model", "textures.texseg", models
        large = partial(self._ask, self.open_scene, opens, "Open a large image", "", "images (*)")
        load = partial(self._ask, self.load_model, opens, "Load a model", "", models)
        save = partial(self._ask, self.save_model, *saves)
        self.open = _button("Open", large, "Open a file that may be larger than memory")
        self.new_seeds = _button("New", self.add_seeds, "Add a layer to paint seeds on")
        self.refit_button = _button("Refit", self.refit, "Correct the segments by the seeds")
        self.button, self.cancel = _button("Segment", self.segment), _button("Cancel", self.stop)
        self.apply = _button("Apply", self.apply_model, "Find the textures of the model in this image")
        self.load = _button("Load", load, "Read a model file, saved here or by the command")
        self.save = _button("Save", save, "Save these textures to a model file")
        self.planes.addItems(["this plane", "all planes, one model", "planes, coupled", "in space"])
        most: dict[str, Any] = {"maximum": MOST_SEGMENTS}
        self.number = QtWidgets.QSpinBox(minimum=0, value=0, specialValueText="choose", **most)
        self.at_least = QtWidgets.QSpinBox(minimum=1, value=2, **most)
        self.at_most = QtWidgets.QSpinBox(minimum=1, value=14, **most)
        self.preset.addItems(list(PRESETS))
        self.smoothness = QtWidgets.QDoubleSpinBox(minimum=0, maximum=10, singleStep=0.25, value=1)
        self.min_size = QtWidgets.QSpinBox(minimum=0, maximum=10**6, singleStep=50, value=0, suffix=" pixels")
        self.progress = QtWidgets.QProgressBar(minimum=0, maximum=100)
        self.slider = QtWidgets.QSlider(Qt.Orientation.Horizontal)
        self.shown = QtWidgets.QLabel("")
        self.segments = SegmentList(self.merge, self.split, self.rename)
        self._form = form = QtWidgets.QFormLayout(self)
        seeds = _side_by_side(self.seeds, self.new_seeds, self.refit_button)
        ways = "Segment the plane shown, all with one model, or a volume: by textures in planes or in space"
        rows: list[tuple[str, QWidget, str]] = [
            ("image", _side_by_side(self.image, self.open), "The image layer to segment"),
            ("stack", self.planes, ways),
            ("mask", self.mask, "A layer of the image's shape: 0 is no data"),
            ("seeds", seeds, "A labels layer: paint label 1 where segment 1 is, and so on"),
            ("segments", self.number, "Number of segments; at 0 texseg chooses it"),
            ("at least", self.at_least, "Smallest number that texseg may choose; 1 allows a single texture"),
            ("at most", self.at_most, "Largest number that texseg may choose, and that of the slider"),
            ("preset", self.preset, "plain is the method of the paper, without additions"),
            ("smoothness", self.smoothness, "How strongly neighbours belong together: higher removes specks"),
            ("min size", self.min_size, "Smaller parts join the neighbour that explains them best"),
        ]
        for name, widget, help_text in rows:
            widget.setToolTip(help_text)
            form.addRow(name, widget)
        form.addRow(_side_by_side(self.button, self.cancel))
        form.addRow(self.progress)
        form.addRow("fewer, more", self.slider)
        form.addRow(self.shown)
        form.addRow(self.segments)
        form.addRow("model", _side_by_side(self.apply, self.load, self.save))

    def _show_state(self) -> None:
        """Enable the controls that can be used now."""
        working = self._job is not None
        for idle in (self.segments, self.button, self.load):
            idle.setEnabled(not working)
        for needs_model in (self.apply, self.save):
            needs_model.setEnabled(not working and self.model is not None)
        self.cancel.setEnabled(working)
        self.progress.setVisible(working)
        layer = self._image_layer()
        result = self._results.get(layer)
        refits = result is not None and len(result.found.fitted) > 0
        self.new_seeds.setEnabled(layer is not None)
        self.refit_button.setEnabled(not working and refits and self.seeds.currentData() is not None)
        is_stack = layer is not None and layer.ndim > 2
        self.planes.setVisible(is_stack)
        self._form.labelForField(self.planes).setVisible(is_stack)

    def _show_progress(self, text: str, share: float) -> None:
        self.progress.setValue(round(100 * share))
        self.shown.setText(f"{text} ...")

    def _follow_layers(self, event: Any = None) -> None:
        """Offer the existing layers; forget results, and end work, whose layers have been removed."""
        if event is not None and event.type == "inserted":
            event.value.events.name.connect(self._follow_layers)
        present = list(self._viewer.layers)
        gone = [image for image, r in self._results.items() if image not in present or r.layer not in present]
        for image in gone:
            del self._results[image]
        if self._job is not None and self._job[1] not in present:
            self.stop()
        results = [result.layer for result in self._results.values()]
        images = [layer for layer in present if isinstance(layer, Image)]
        masks = [layer for layer in present if isinstance(layer, (Labels, Image)) and layer not in results]
        _offer(self.image, images)
        _offer(self.mask, [None, *masks])
        _offer(self.seeds, [None, *(layer for layer in masks if isinstance(layer, Labels))])
        self._choose_image()

    def _image_layer(self) -> Image | None:
        return self.image.currentData()

    def _choose_image(self) -> None:
        """Let the slider show the result of the image that is chosen."""
        result = self._results.get(self._image_layer())
        levels = () if result is None else result.found.levels
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, max(0, len(levels) - 1))
            self.slider.setValue(0 if result is None else levels.index(result.number))
        self.slider.setEnabled(len(levels) > 1)
        if self._job is None:
            self.shown.setText("" if result is None else _count(result.number))
        self._show_segments(result)
        self._show_state()

    def _show_segments(self, result: _Result | None) -> None:
        """List the segments of the model if these are the ones shown; others cannot be edited."""
        own = result is not None and result.number == result.found.model.n_segments_
        self.segments.show_segments(result.found.model.names_ if result is not None and own else ())

    def segment(self) -> None:
        """Fit in the background, and show the labels when they are ready."""
        model = TextureSegmenter(
            self.number.value() or None,
            preset=self.preset.currentText(),
            smoothness=self.smoothness.value(),
            min_size=self.min_size.value(),
            k_min=min(self.at_least.value(), self.at_most.value()),
            k_max=self.at_most.value(),
        )
        layer, way = self._image_layer(), self.planes.currentIndex()
        if layer is not None and layer.ndim > 2 and way > 1:
            space: dict[str, Any] = {"spatial_dims": 3, "spacing": tuple(np.abs(layer.scale[-3:]).tolist())}
            model.set_params(**(space if way == 3 else {"planes": "z"}))
        self._work("fit", model)

    def add_seeds(self) -> None:
        """Add a layer of the image's shape to paint seeds on, and select it."""
        image = self._image_layer()
        if image is None:
            return
        layer = _labels_on(image, np.zeros(LayerSource(image).shape, np.int32), "seeds")
        self._viewer.add_layer(layer)
        layer.brush_size, layer.mode, layer.selected_label = _BRUSH, "paint", 1
        self.seeds.setCurrentIndex(self.seeds.findData(layer))

    def refit(self) -> None:
        """Correct the segments of the chosen image using its seeds, in the background."""
        self._work_again("refit")

    def merge(self, labels: list[int]) -> None:
        """Merge several segments into one, in the chosen image."""
        image = self._image_layer()
        result = self._results.get(image)
        if image is not None and result is not None:
            found, label_of = result.found.merged([labels])
            seeds = self.seeds.currentData()
            if seeds is not None:  # they follow the numbers of the segments
                known = seeds.data < len(label_of)
                seeds.data = np.where(known, label_of[np.where(known, seeds.data, 0)], seeds.data)
            self._put(found, found.model.n_segments_, image, result.indices)
            self._choose_image()

    def split(self, label: int) -> None:
        """Divide a segment in two, in the background."""
        self._work_again("split", label)

    def rename(self, label: int, name: str) -> None:
        """Name a segment; model files keep the name."""
        result = self._results.get(self._image_layer())
        if result is None:
            return
        try:
            result.found.model.rename({label: name})
        except ValueError as error:
            show_error(f"texseg: {error}")
        self._show_segments(result)

    def apply_model(self) -> None:
        """Find the textures of the model again, in the chosen image."""
        if self.model is not None:
            self._work("apply", self.model)

    def stop(self) -> None:
        """Stop the running task at its next step; nothing changes."""
        if self._job is not None:
            self._job[0].stop()
            self.shown.setText("stopping ...")

    def _work_again(self, task: str, *about: Any) -> None:
        """Start a task on the result of the chosen image, if there is one."""
        result = self._results.get(self._image_layer())
        if result is not None:
            self._work(task, result.found.model, result.found.fitted, *about, indices=result.indices)

    def _work(
        self, task: str, model: TextureSegmenter, *about: Any, indices: list[Index] | None = None
    ) -> None:
        """Start a task of a new job on planes of the chosen image, by default the requested ones.

        What the model takes as one image, (H, W) or (D, H, W), is a plane.
        """
        layer = self._image_layer()
        if layer is None:
            show_error("texseg: no image layer; open an image first")
            return
        n_axes = 2 if model.spatial_dims == 2 and model.planes is None else 3
        try:
            if layer.ndim < n_axes:
                raise ValueError(f"the textures are those of volumes, and {layer.name!r} has one plane")
            source = LayerSource(layer, self.mask.currentData(), self.seeds.currentData(), n_axes)
        except ValueError as error:
            show_error(f"texseg: {error}")
            return
        indices = self._indices(layer, source) if indices is None else indices
        job = Job(source, indices, self._progressed.emit)
        self._job = job, layer
        self.destroyed.connect(job.stop)
        self._show_progress("reading", 0)
        self._show_state()
        show = {"yielded": lambda found: self._show(found, layer, indices)}
        ends = {"errored": self._fail, "finished": self._finish}
        create_worker(getattr(job, task), model, *about, _connect=show | ends, _ignore_errors=True)

    def _indices(self, layer: Image, source: LayerSource) -> list[Index]:
        """Find the indices of the planes to be labelled."""
        if layer.ndim == source.n_axes or self.planes.currentIndex() == 1:
            return source.indices
        before = layer.ndim - source.n_axes
        here = np.rint(layer.world_to_data(self._viewer.dims.point[-layer.ndim :])[:before]).astype(int)
        last = np.array(source.shape[:before]) - 1
        return [tuple(np.clip(here, 0, last).tolist())]

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, Stopped):
            show_error(f"texseg: {error}")

    def _finish(self) -> None:
        self._job = None
        self._choose_image()

    def _show(self, found: Result, image: Image, indices: list[Index]) -> None:
        """Show new labels of an image, in the layer of its earlier labels if there is one."""
        if image not in self._viewer.layers:
            return
        self.model = found.model
        self._put(found, found.model.n_segments_, image, indices)
        self._choose_image()

    def _put(self, found: Result, number: int, image: Image, indices: list[Index]) -> None:
        """Put labels into the image's layer; one that was painted on is kept, and a new one added."""
        old = self._results.get(image)
        labels = found.labels_at(number)
        is_large = max(labels.shape[-2:]) > files.LARGEST_PICTURE
        data: Any = files.levels_of_labels(labels) if is_large else labels.copy()
        if old is not None and np.array_equal(finest(old.layer), old.shown):
            layer = old.layer
            layer.data = data
            self._results[image] = _Result(found, indices, number, layer, labels)
        elif old is not None and np.array_equal(labels, old.shown):
            self._results[image] = old._replace(found=found, indices=indices, number=number)
        else:
            layer = _labels_on(image, data, "labels", multiscale=is_large)
            self._results[image] = _Result(found, indices, number, layer, labels)
            layer.mouse_drag_callbacks.append(self._tick_where_clicked)
            self._viewer.add_layer(layer)

    def _tick_where_clicked(self, layer: Labels, event: Any) -> Iterator[None]:
        """Tick the segment under a click, unless it is a drag or paints."""
        result = self._results.get(self._image_layer())
        if layer.mode != "pan_zoom" or result is None or result.layer is not layer:
            return
        moved = False
        yield
        while event.type == "mouse_move":
            moved = True
            yield
        if not moved:
            self.segments.toggle(int(layer.get_value(event.position, world=True) or 0))

    def _show_level(self, place: int) -> None:
        """Show the segmentation at a position of the slider."""
        image = self._image_layer()
        result = self._results.get(image)
        if image is not None and result is not None:
            number = result.found.levels[place]
            self._put(result.found, number, image, result.indices)
            self._show_segments(self._results[image])
            self.shown.setText(_count(number))

    def open_scene(self, path: str | Path) -> None:
        """Add a file that may be larger than memory, by levels of detail, and choose it and its mask."""
        add = {"returned": lambda scene: self._add_scene(scene, Path(path).stem), "errored": self._fail}
        create_worker(files.read_scene, path, _connect=add, _ignore_errors=True)

    def _add_scene(self, scene: files.FileLevels, name: str) -> None:
        for note in scene.notes:
            show_info(f"texseg: {note}")
        image = Image(scene.pixels, multiscale=True, name=name, rgb=scene.pixels[0].ndim > 2)
        self._viewer.add_layer(image)
        if scene.masks is not None:
            mask = Image(scene.masks, multiscale=True, name=f"{name} mask", visible=False)
            self._viewer.add_layer(mask)
            self.mask.setCurrentIndex(self.mask.findData(mask))
        self.image.setCurrentIndex(self.image.findData(image))

    def load_model(self, path: str | Path) -> None:
        """Read a model file; *Apply* finds its textures in images."""
        try:
            self.model = TextureSegmenter.load(path)
        except OSError as error:
            show_error(f"texseg: {error}")
            return
        self._show_state()
        self.shown.setText(f"{Path(path).name}: {_count(self.model.n_segments_)}")

    def save_model(self, path: str | Path) -> None:
        """Write the model of the last segmentation to a file."""
        if self.model is None:
            return
        try:
            self.model.save(path)
        except OSError as error:
            show_error(f"texseg: {path}: {error.strerror or error}")
            return
        self.shown.setText(f"saved {Path(path).name}")

    def _ask(self, use: Any, dialog: str, *about: str) -> None:
        """Do something with the file that the user names, if any."""
        if path := getattr(QtWidgets.QFileDialog, dialog)(self, *about)[0]:
            use(path)


def _offer(box: QComboBox, layers: list[Any]) -> None:
    """Fill a box with layers by name, and keep the current choice."""
    chosen = box.currentData()
    with QSignalBlocker(box):
        box.clear()
        for layer in layers:
            box.addItem("none" if layer is None else layer.name, layer)
        if chosen in layers:
            box.setCurrentIndex(layers.index(chosen))


def _button(text: str, action: Any, help_text: str = "") -> QtWidgets.QPushButton:
    button = QtWidgets.QPushButton(text)
    button.setToolTip(help_text)
    button.clicked.connect(lambda: action())
    return button


def _side_by_side(*widgets: QWidget) -> QWidget:
    row = QWidget()
    layout = QtWidgets.QHBoxLayout(row)
    layout.setContentsMargins(0, 0, 0, 0)
    for widget in widgets:
        layout.addWidget(widget)
    return row


def _count(number: int) -> str:
    return f"{number} segment" + ("" if number == 1 else "s")


def _labels_on(image: Image, data: Any, name: str, **options: Any) -> Labels:
    """Layer of labels in the place of an image, in the colours of the palette; nothing for no data."""
    table: NDArray[np.floating] = palette(MOST_SEGMENTS) / 255
    colours: dict[int | None, Any] = {label: (*rgb, 1.0) for label, rgb in enumerate(table)}
    colormap = DirectLabelColormap(color_dict={**colours, 0: (0, 0, 0, 0), None: (0, 0, 0, 0)})
    return Labels(data, name=f"{image.name} {name}", colormap=colormap, **placement(image), **options)
