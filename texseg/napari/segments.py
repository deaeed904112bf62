"""The list of segments in the dock widget: tick and merge, split, name."""

from __future__ import annotations

from collections.abc import Sequence

from qtpy.QtCore import Qt, Signal
from qtpy.QtGui import QColor, QIcon, QPixmap
from qtpy.QtWidgets import QHBoxLayout, QListWidget, QListWidgetItem, QPushButton, QVBoxLayout, QWidget

from texseg.regions import palette

__all__ = ["SegmentList"]

_SWATCH = 12  # pixels
_BOXES = (  # those of napari's themes are hardly darker than the list
    "QListWidget::indicator { width: 11px; height: 11px; border: 2px solid #9a9da3; border-radius: 3px; }"
    "QListWidget::indicator:checked { background: #4b8bf4; border-color: #e8eaed; }"
)
_EDITABLE = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsEditable


class SegmentList(QWidget):
    """Segments with their colours and names; ticked ones are merged or split."""

    merge_requested = Signal(list)  # labels
    split_requested = Signal(int)  # label
    named = Signal(int, str)  # label, name

    def __init__(self) -> None:
        super().__init__()
        self.rows = QListWidget()
        self.rows.setStyleSheet(_BOXES)
        self.rows.setToolTip("Tick segments here or click on them in the image; double-click to name one")
        self.merge, self.split = QPushButton("Merge"), QPushButton("Split")
        self.merge.setToolTip("Join the ticked segments into one")
        self.split.setToolTip("Divide the ticked segment in two, or undo its merge")
        buttons = QHBoxLayout()
        buttons.addWidget(self.merge)
        buttons.addWidget(self.split)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.rows)
        layout.addLayout(buttons)
        self._names: tuple[str, ...] = ()
        self.rows.itemChanged.connect(self._follow)
        self.merge.clicked.connect(lambda: self.merge_requested.emit(self.ticked()))
        self.split.clicked.connect(lambda: self.split_requested.emit(self.ticked()[0]))
        self.show_segments(())

    def show_segments(self, names: Sequence[str]) -> None:
        """List segments 1, 2 and so on by their names, none of them ticked."""
        self._names = tuple(names)
        self.rows.blockSignals(True)
        self.rows.clear()
        for label, (name, colour) in enumerate(zip(names, palette(len(names))[1:], strict=True), start=1):
            square = QPixmap(_SWATCH, _SWATCH)
            square.fill(QColor(*colour.tolist()))
            item = QListWidgetItem(QIcon(square), name or f"segment {label}")
            item.setFlags(_EDITABLE)
            item.setCheckState(Qt.CheckState.Unchecked)
            self.rows.addItem(item)
        self.rows.blockSignals(False)
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

    def _follow(self, item: QListWidgetItem) -> None:
        label = self.rows.row(item) + 1
        name = item.text().strip()
        name = "" if name == f"segment {label}" else name
        if name != self._names[label - 1]:
            self.named.emit(label, name)
        self._enable()

    def _enable(self) -> None:
        self.merge.setEnabled(len(self.ticked()) > 1)
        self.split.setEnabled(len(self.ticked()) == 1)
