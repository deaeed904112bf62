"""Histograms of small cells stored as bytes, a quarter of the memory that floats need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PackedCounts:
    """A float32 array stored as multiples of ``unit``, up to 255; indexing returns ordinary floats."""

    dtype = np.dtype(np.float32)

    def __init__(self, table: NDArray[np.uint8], unit: np.float32) -> None:
        self.table = table
        self.unit = np.float32(unit)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.table.shape

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        """Return a part as floats."""
        return np.multiply(self.table[index], self.unit, dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[...].astype(dtype or np.float32, copy=False)

    def reshape(self, *shape: int) -> PackedCounts:
        """Return the same counts in another shape, still packed."""
        return PackedCounts(self.table.reshape(*shape), self.unit)

    def rows(self, first: int, stop: int) -> PackedCounts:
        """Take some rows, still packed."""
        return PackedCounts(self.table[first:stop], self.unit)


def stacked(tables: Sequence[Any]) -> NDArray[np.float32] | PackedCounts:
    """Put the rows of several tables, all of one unit, below each other; packed if all of them are.

    Examples
    --------
    >>> row = PackedCounts(np.array([[0, 64]], np.uint8), np.float32(1 / 64))
    >>> stacked([row, row]).shape
    (2, 2)
    """
    if all(isinstance(table, PackedCounts) for table in tables):
        return PackedCounts(np.concatenate([table.table for table in tables]), tables[0].unit)
    return np.concatenate([table[...] for table in tables])
