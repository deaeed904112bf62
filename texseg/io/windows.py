"""Images that are read window by window: nothing of their whole size is ever held.

TIFF (with tiles, strips or uncompressed, BigTIFF, pyramids of OME-TIFF and others), zarr and OME-Zarr, NumPy
``.npy``, and where rasterio is installed every raster that GDAL reads. The values, masks and colours of a
window are those that :func:`texseg.io.read.read_image` gives for the whole.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from texseg.io.errors import ImageReadError, UnsuitableImageError, reason_of
from texseg.io.geo import Georeference, combined
from texseg.io.header import Decoded, both
from texseg.io.nodata import check_bands, chosen_bands, holds_nodata
from texseg.io.sidecar import Sidecar, read_sidecars
from texseg.io.sniff import SNIFF_BYTES, image_format
from texseg.io.tiff import TiffSource
from texseg.regions import PixelSize

__all__ = ["FileWindows", "open_windows"]

_SEQUENTIAL = ("PNG", "JPEG", "WebP", "GIF")
"""Formats that GDAL decodes from the first row on, again for each window above the last one."""

Window = tuple[slice, slice]


class _Opened(NamedTuple):
    """What a format provides: the shape, and a function from windows to their content, channels last."""

    shape: tuple[int, int]
    n_channels: int
    dtype: np.dtype
    read: Callable[[Window], Decoded]
    nodata: tuple[float | None, ...] = (None,)
    """Of each band, or one for all."""
    geo: Georeference | None = None
    levels: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    pixel_size: PixelSize | None = None


class FileWindows:
    """An image file that is read window by window; several threads may read.

    Made by :func:`open_windows`; a context manager, which closes the file; else it is closed when nothing
    refers to it any more.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns, as stored.
    n_channels : int
    channel_axis : int or None
        -1 for windows with channels.
    dtype : numpy.dtype
    nodata : float or None
        Value that stands for "no data", if it is the same in all bands; already part of the masks.
    geo : Georeference or None
    pixel_size : PixelSize or None
    levels : tuple of (int, int)
        Shapes of the levels of a pyramid, the largest first.
    notes : tuple of str
    """

    def __init__(
        self,
        path: Path,
        opened: _Opened,
        files: ExitStack,
        ignore_alpha: bool = False,
        bands: Sequence[int] | None = None,
        mask: FileWindows | None = None,
    ) -> None:
        self.shape, self.dtype = opened.shape, opened.dtype
        self.n_channels = opened.n_channels if bands is None else len(bands)
        self.channel_axis = -1 if self.n_channels > 1 else None
        self.nodata = opened.nodata[0] if len(set(opened.nodata)) == 1 else None
        self.geo, self.levels, self.notes = opened.geo, opened.levels, opened.notes
        of_map = None if self.geo is None else self.geo.pixel_size
        self.pixel_size = of_map or opened.pixel_size
        self._path, self._read, self._values = path, opened.read, opened.nodata
        self._close = weakref.finalize(self, files.close)
        self._ignore_alpha, self._bands, self._mask = ignore_alpha, bands, mask
        self._lock = threading.Lock()

    def read(self, window: Window) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Pixels (h, w) or (h, w, channels) of a window, and where they hold data (None: everywhere)."""
        with self._lock, _failures_named(self._path):
            pixels, opaque, valid = self._read(window)
        values = self._values
        if self._bands is not None:
            pixels, values = chosen_bands(pixels, values, self._bands)
        if not self._ignore_alpha:
            valid = both(valid, opaque)
        if self._mask is not None:
            shown, _ = self._mask.read(window)
            valid = both(valid, shown != 0 if shown.ndim == 2 else (shown != 0).all(axis=-1))
        missing = holds_nodata(pixels, values)
        return pixels, valid if missing is None else both(valid, ~missing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def open_windows(
    path: Path,
    *,
    page: int | None = None,
    level: int = 0,
    channel_axis: int | None = None,
    nodata: float | None = None,
    ignore_alpha: bool = False,
    bands: Sequence[int] | None = None,
) -> FileWindows:
    """Open an image file to be read window by window.

    Parameters
    ----------
    path : Path
        A file, or the folder of a zarr array or OME-Zarr image.
    page : int, optional
        Which page of a file with several.
    level : int, default=0
        Which level of a pyramid; 0 is the largest.
    channel_axis : int, optional
        For ``.npy`` and zarr arrays with three axes that do not say where their channels are.
    nodata : float, optional
        Value that stands for "no data"; the default is what the file declares.
    ignore_alpha : bool, default=False
        Treat transparent pixels as valid.
    bands : sequence of int, optional
        The bands to keep, counted from 0; all by default.

    Raises
    ------
    ImageReadError
        The file is missing or broken.
    UnsuitableImageError
        The format, the page or the level cannot be read by windows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ramp.npy"
    >>> np.save(path, np.arange(12.0).reshape(3, 4))
    >>> with open_windows(path) as image:
    ...     image.shape, image.read((slice(1, 2), slice(1, 3)))[0].tolist()
    ((3, 4), [[5.0, 6.0]])
    """
    with ExitStack() as files:
        with _failures_named(path):
            opened = _open(path, page, level, channel_axis, files)
            if bands is not None:
                check_bands(bands, opened.n_channels)
        mask = None
        if level == 0:
            sidecar = read_sidecars(path)
            opened = _with_sidecar(opened, sidecar)
            opened, mask = _with_mask(opened, sidecar.mask, files)
        if nodata is not None:
            opened = opened._replace(nodata=(nodata,))
        opened = opened._replace(nodata=opened.nodata * (opened.n_channels if len(opened.nodata) == 1 else 1))
        return FileWindows(path, opened, files.pop_all(), ignore_alpha, bands, mask)
    raise AssertionError("unreachable")  # an ExitStack may hold errors back, this one does not


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    """Make every failure name the file and say why."""
    try:
        yield
    except UnsuitableImageError as error:
        raise UnsuitableImageError(f"{path.name}: {error}") from error
    except Exception as error:  # decoders raise many kinds on broken files
        raise ImageReadError(f"{path.name}: {reason_of(error)}") from error


def _with_sidecar(opened: _Opened, sidecar: Sidecar) -> _Opened:
    """Add what the files beside an image say, as :func:`texseg.io.read.read_image` does."""
    nodata = opened.nodata if set(sidecar.nodata) <= {None} else sidecar.nodata
    if len(set(nodata)) == 1:
        nodata = nodata[:1]
    geo = combined(opened.geo, sidecar.geo)
    return opened._replace(geo=geo, nodata=nodata, notes=(*opened.notes, *sidecar.notes))


def _with_mask(opened: _Opened, path: Path | None, files: ExitStack) -> tuple[_Opened, FileWindows | None]:
    """Open the mask that GDAL wrote beside an image; one that does not fit is reported and ignored."""
    if path is None:
        return opened, None
    try:
        with _failures_named(path):
            found = _open(path, None, 0, None, files)
    except (OSError, ValueError) as error:
        said = f"the mask beside the image cannot be read, and is left aside: {error}"
        return opened._replace(notes=(*opened.notes, said)), None
    fits = found.shape == opened.shape
    said = f"masked by {path.name} beside the image"
    if not fits:
        said = f"{path.name} beside the image has another size, and is left aside"
    mask = FileWindows(path, found._replace(nodata=()), files) if fits else None
    return opened._replace(notes=(*opened.notes, said)), mask


def _open(path: Path, page: int | None, level: int, channel_axis: int | None, files: ExitStack) -> _Opened:
    if path.is_dir():
        return _open_zarr(path, level, channel_axis)
    with path.open("rb") as file:
        format = image_format(file.read(SNIFF_BYTES))
    if format == "TIFF":
        return _open_tiff(path, page, level, files)
    if level:
        raise UnsuitableImageError(f"level {level} does not exist: only TIFF and OME-Zarr files have levels")
    if format == "NPY":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return _of_array(array, channel_axis, None, ())
    if format not in _SEQUENTIAL and find_spec("rasterio") is not None:
        return _open_raster(path, files)
    raise UnsuitableImageError(
        f"{format or 'such'} files can only be read whole; convert it to a tiled TIFF"
        + ("" if format in _SEQUENTIAL else ", or install rasterio (pip install 'texseg[geo]')")
    )


def _open_tiff(path: Path, page: int | None, level: int, files: ExitStack) -> _Opened:
    stream = files.enter_context(path.open("rb"))
    source = TiffSource(stream, path.stat().st_size)
    header = source.header
    if "P" in header.axes and page is None:
        raise UnsuitableImageError(f"{header.n_pages} pages: choose one with --page N")
    levels = source.level_shapes()
    if not 0 <= level < len(levels):
        raise UnsuitableImageError(f"level {level} does not exist, levels are 0 to {len(levels) - 1}")
    geo = header.geo if level == 0 else None
    notes = header.notes
    if level and header.geo is not None:
        notes = (*notes, f"level {level} of the pyramid is written without the georeference of level 0")
    if header.orientation != 1 and header.geo is None:
        notes = (*notes, "large images are labelled as stored, not turned upright")
    read = source.window_reader(path, page or 0, level)
    size = header.pixel_size
    if size is not None:
        down, across = (whole / part for whole, part in zip(levels[0], levels[level], strict=True))
        size = size._replace(height=size.height * down, width=size.width * across)
    nodata = (header.nodata,)
    return _Opened(
        levels[level], header.n_channels, header.dtype, read, nodata, geo, tuple(levels), notes, size
    )


def _open_zarr(path: Path, level: int, channel_axis: int | None) -> _Opened:
    try:
        import zarr
    except ImportError:
        raise UnsuitableImageError("zarr arrays need zarr (pip install 'texseg[large]')") from None
    try:
        found = zarr.open(path, mode="r")
    except Exception as error:  # zarr raises many kinds on folders that are no arrays
        raise UnsuitableImageError("this folder is neither a zarr array nor an OME-Zarr image") from error
    levels: tuple[tuple[int, int], ...] = ()
    axes = None
    if isinstance(found, zarr.Group):
        attributes = found.attrs.asdict()
        scales = attributes.get("ome", attributes).get("multiscales")
        if not scales:
            raise UnsuitableImageError("this zarr group is no OME-Zarr image; name one of its arrays")
        datasets = scales[0]["datasets"]
        if not 0 <= level < len(datasets):
            raise UnsuitableImageError(f"level {level} does not exist, levels are 0 to {len(datasets) - 1}")
        axes = "".join(str(axis["name"]).lower() for axis in scales[0].get("axes", []))
        arrays = [found[dataset["path"]] for dataset in datasets]
        array: Any = arrays[level]
        levels = tuple((int(a.shape[-2]), int(a.shape[-1])) for a in arrays)
    elif level:
        raise UnsuitableImageError(f"level {level} does not exist: a plain zarr array has no levels")
    else:
        array = found
    return _of_array(array, channel_axis, axes, levels)


def _of_array(
    array: Any, channel_axis: int | None, axes: str | None, levels: tuple[tuple[int, int], ...]
) -> _Opened:
    """Use an array that is read by slices, ignoring axes of length one."""
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "buif":
        raise UnsuitableImageError(f"array of dtype {dtype} is no image; expected real numbers or booleans")
    shape = tuple(int(n) for n in array.shape)
    kept = [i for i, n in enumerate(shape) if n != 1 or i >= len(shape) - 2] if len(shape) > 2 else [0, 1]
    if len(shape) < 2 or len(kept) > 3 or 0 in shape:
        raise UnsuitableImageError(f"array of shape {shape} is no image of rows, columns and channels")
    channel = None
    if len(kept) == 3:
        if axes and "c" in axes:
            channel = axes.index("c")
        elif channel_axis is not None:
            channel = channel_axis % len(shape)
        if channel not in kept:
            raise UnsuitableImageError(
                f"array of shape {shape} does not say where its channels are; give --channel-axis"
            )
    rows, columns = (i for i in kept if i != channel)

    def read(window: Window) -> Decoded:
        index: list[Any] = [0] * len(shape)
        index[rows], index[columns] = window
        if channel is not None:
            index[channel] = slice(None)
        pixels = np.array(array[tuple(index)], dtype=dtype.newbyteorder("="))
        if channel is not None:
            before = sum(i < channel for i in (rows, columns))
            pixels = np.moveaxis(pixels, before, -1)
        return Decoded(pixels)

    n_channels = 1 if channel is None else shape[channel]
    return _Opened((shape[rows], shape[columns]), n_channels, dtype, read, levels=levels)


def _open_raster(path: Path, files: ExitStack) -> _Opened:
    """Open whatever GDAL reads, such as VRT mosaics, JPEG 2000 and ENVI."""
    import rasterio
    from rasterio.enums import ColorInterp

    try:
        raster = files.enter_context(rasterio.open(path))
    except rasterio.errors.RasterioIOError as error:
        raise UnsuitableImageError(f"neither texseg nor GDAL can read it by windows ({error})") from error
    alpha = [b for b, c in zip(raster.indexes, raster.colorinterp, strict=True) if c == ColorInterp.alpha]
    bands = [b for b in raster.indexes if b not in alpha]

    def read(window: Window) -> Decoded:
        pixels = np.moveaxis(raster.read(bands, window=window), 0, -1)
        opaque = raster.read(alpha[0], window=window) != 0 if alpha else None
        return Decoded(pixels if len(bands) > 1 else pixels[..., 0], opaque)

    t = raster.transform
    world = None if t.is_identity else _world_text(t)
    geo = None if world is None else Georeference(world=world)
    dtype = np.dtype(raster.dtypes[0])
    nodata = tuple(raster.nodatavals[band - 1] for band in bands)
    return _Opened((raster.height, raster.width), len(bands), dtype, read, nodata, geo)


def _world_text(t: Any) -> str:
    centre = t.c + (t.a + t.b) / 2, t.f + (t.d + t.e) / 2
    return "".join(f"{value!r}\n" for value in (t.a, t.d, t.b, t.e, *centre))
