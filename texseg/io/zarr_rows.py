"""Label images as zarr arrays, written as rows of blocks come."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from texseg.io.blockwise import TILE
from texseg.io.errors import UnsuitableImageError

__all__ = ["ZarrRows"]


class ZarrRows:
    """A zarr array of labels (H, W) that grows from the top; a context, which leaves it whole or not at all.

    Parameters
    ----------
    path : Path
        Folder of the array; an array that is there already is replaced, anything else is not.
    shape : (int, int)
    largest : int
        Largest label that may occur: up to 255 it has 8 bits, up to 65535 16.
    """

    def __init__(self, path: Path, shape: tuple[int, int], largest: int) -> None:
        try:
            import zarr
        except ImportError:
            raise UnsuitableImageError("zarr arrays need zarr (pip install 'texseg[large]')") from None
        if path.exists() and not any((path / name).is_file() for name in ("zarr.json", ".zarray")):
            raise FileExistsError(f"{path.name} is there and is no zarr array; it is not written over")
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        dtype = np.uint8 if largest <= np.iinfo(np.uint8).max else np.uint16
        chunks = tuple(min(TILE, side) for side in shape)
        self._array: Any = zarr.create_array(
            self._temporary, shape=shape, dtype=dtype, chunks=chunks, fill_value=0, dimension_names=("y", "x")
        )
        self._top = 0

    def keeping(self, bands: Iterable[NDArray[np.integer]]) -> Iterator[NDArray[np.integer]]:
        """Write bands of rows (h, W), and pass them on."""
        for band in bands:
            self._array[self._top : self._top + len(band)] = band
            self._top += len(band)
            yield band

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            return
        old = self._temporary.with_suffix(".old")
        if self._path.exists():
            self._path.replace(old)
        self._temporary.replace(self._path)
        shutil.rmtree(old, ignore_errors=True)
