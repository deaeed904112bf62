"""Label images and probabilities as zarr arrays, written as rows of blocks arrive."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import DTypeLike, NDArray

from texseg.io.blockwise import TILE
from texseg.io.errors import UnsuitableImageError

__all__ = ["ZarrRows"]


class ZarrRows:
    """A zarr array that grows along its first axis; a context manager, which leaves it whole or not at all.

    Parameters
    ----------
    path : Path
        Folder of the array; an array that is there already is replaced, anything else is not.
    shape : (int, int) or (int, int, int)
        Rows and columns, preceded by the number of planes if there are several.
    dtype : dtype
    scratch : Path, optional
        Folder on the same disk for the array while it is written; that of the target by default.
    """

    def __init__(
        self, path: Path, shape: tuple[int, ...], dtype: DTypeLike, scratch: Path | None = None
    ) -> None:
        try:
            import zarr
        except ImportError:
            raise UnsuitableImageError("zarr arrays need zarr (pip install 'texseg[large]')") from None
        if path.exists() and not any((path / name).is_file() for name in ("zarr.json", ".zarray")):
            raise FileExistsError(f"{path.name} is there and is no zarr array; it is not written over")
        self._path = path
        self._temporary = (scratch or path.parent) / f".{path.name}.{secrets.token_hex(4)}.part"
        chunks = (1,) * (len(shape) - 2) + tuple(min(TILE, side) for side in shape[-2:])
        names = ("segment", "y", "x")[-len(shape) :]
        self._array: Any = zarr.create_array(
            self._temporary, shape=shape, dtype=dtype, chunks=chunks, fill_value=0, dimension_names=names
        )
        self._top = 0

    def keeping(self, bands: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Write bands of rows (h, W), or of planes (k, H, W), and pass them on."""
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
        old = self._temporary.with_suffix(".old.part")
        if self._path.exists():
            self._path.replace(old)
        self._temporary.replace(self._path)
        shutil.rmtree(old, ignore_errors=True)
