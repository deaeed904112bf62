"""Write label images, overlays, confidence maps and probabilities to files, each whole or not at all.

There is one way, by rows: an image arrives in bands of full width from top to bottom, and a whole image is
one band. Labels are written as they are: the value of a pixel in the file is its label, whatever the format.
"""

import html
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.io import geo as places
from texseg.io.display import draw_overlay, side_by_side, to_rgb
from texseg.io.files import UnsuitableImageError, atomic_write, path_of, unfinished
from texseg.io.geo import OME_UNITS, Georeference, check_georeference
from texseg.io.read import read_header
from texseg.io.regions import PIXELS, PixelSize, checked_description, checked_labels, hex_colours

TILE = 512  # side of the tiles of TIFF files and of the chunks of zarr arrays, in pixels

_TILE_UNIT = 16  # their sides are multiples of it
_REDUCED = 1  # NewSubfileType of overviews
STEP = 4  # each overview has a side this many times smaller
_SMALL = 1024  # an image whose sides are no longer needs no overview
_CLASSIC = 2**32 - 2**25  # bytes; a TIFF that may be larger needs 64-bit offsets
_TIFF_ASCII, _NO_UNIT = 2, 1

Bands = Iterable[NDArray[Any]]


class Layout(NamedTuple):
    """What a file of rows holds."""

    shape: tuple[int, ...]  # (H, W), or (P, H, W) for pages one after the other
    largest: int | None = None  # largest label that may occur; None for numbers from 0 to 1 instead of labels
    dtype: Any = np.int32  # of the values as they are, for ``.npy`` files
    geo: Georeference | None = None
    pyramid: bool = False  # TIFF with overviews; with a georeference and rasterio it is cloud-optimised
    size: PixelSize | None = None  # of a pixel
    names: Sequence[str] = ()  # of label 1, label 2 and so on
    colours: Sequence[str] = ()  # of the same, as ``#0072b2``
    is_ome: bool = False  # describe a TIFF file as OME does, not as ImageJ
    is_volume: bool = False  # whether the pages are planes of a volume
    block: tuple[int, int] = (0, 0)  # side of blocks, and how many side by side a file of a zarr array holds
    written: Path | None = None  # an OME-Zarr image whose largest levels are complete

    @property
    def legend(self) -> list[tuple[int, str, bytes]]:
        """Number, name and colour (RGB) of all labels that may occur."""
        colours = [bytes.fromhex(colour[1:]) for colour in hex_colours(self.largest or 0, self.colours)]
        names = itertools.chain(self.names, itertools.repeat(""))
        named = zip(itertools.count(1), names, colours, strict=False)
        return [(label, name or f"segment {label}", colour) for label, name, colour in named]

    @property
    def stored(self) -> np.dtype:
        """Smallest type that holds all values."""
        return np.min_scalar_type(self.largest) if self.largest is not None else np.dtype(np.float32)


def write_rows(paths: Sequence[Path], bands: Bands, layout: Layout) -> None:
    """Write the same rows to several files, holding one band (h, W) at a time; none crosses a page's end."""
    for path in paths:
        _check(path, layout)
    with ExitStack() as files:
        # each format passes the rows on, but for the TIFF writer, which pulls all of them and so comes last
        for path in sorted(paths, key=lambda path: _FORMATS[path.suffix.lower()] is _tiff):
            bands = _FORMATS[path.suffix.lower()](files.enter_context(unfinished(path)), bands, layout)
        for _ in bands:
            pass
    for path in paths:
        _write_world_file(path, layout.geo)
        if path.suffix.lower() in (".tif", ".tiff") and layout.largest is not None:
            _write_categories(path, layout)


def _check(path: Path, layout: Layout) -> None:
    """Refuse what a format cannot hold."""
    suffix, largest, has_pages = path.suffix.lower(), layout.largest, len(layout.shape) == 3
    if suffix not in _FORMATS:
        raise ValueError(f"{path.name}: labels are written as {', '.join(_FORMATS)}, not {suffix!r}")
    if suffix == ".png" and has_pages:
        raise ValueError(f"a PNG file holds one page, got labels of shape {layout.shape}; use .tif")
    if suffix == ".zarr" and has_pages and largest is not None and not layout.is_volume:
        raise ValueError(f"{path.name}: a zarr array holds one label image, not {layout.shape[0]} pages")
    if suffix == ".png" and (largest or 0) > np.iinfo(np.uint16).max:
        raise ValueError(f"label {largest} does not fit into the 16 bits of a PNG file; use .tif")
    if suffix in (".tif", ".tiff") and (largest or 0) > np.iinfo(np.uint32).max:
        raise ValueError(f"label {largest} does not fit into the 32 bits of a TIFF file; use .npy")
    if suffix == ".zarr" and find_spec("zarr") is None:
        raise UnsuitableImageError("zarr images need zarr (pip install 'texseg[large]')")
    is_array = any((path / name).is_file() for name in ("zarr.json", ".zarray"))
    if suffix == ".zarr" and path.exists() and not is_array:
        raise FileExistsError(f"{path.name} exists and is not a zarr array; not overwritten")


def _png(path: Path, bands: Bands, layout: Layout) -> Iterator[NDArray[Any]]:
    """Grey levels: labels in 8 or 16 bits, numbers from 0 to 1 as 0 to 255."""
    import imagecodecs

    rows, is_map = [], layout.largest is None
    for band in bands:
        rows.append(np.rint(255 * band.clip(0, 1)).astype("u1") if is_map else band.astype(layout.stored))
        yield band
    path.write_bytes(imagecodecs.png_encode(np.concatenate(rows)))


def _npy(path: Path, bands: Bands, layout: Layout) -> Iterator[NDArray[Any]]:
    dtype = np.dtype(layout.dtype)
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": layout.shape}
    with path.open("xb") as file:
        np.lib.format.write_array_header_1_0(file, about)
        for band in bands:
            file.write(np.ascontiguousarray(band, dtype).data)
            yield band


def _zarr(path: Path, bands: Bands, layout: Layout) -> Iterator[NDArray[Any]]:
    """Write an OME-Zarr image in square chunks of one plane; label images have smaller levels, too."""
    import zarr

    shape, at, n_levels = layout.shape, 0, 1
    reduced: list[NDArray[Any]] = []
    if layout.written is None:
        array = new_zarr(path, layout)
        for band in _reducing(bands, reduced):
            page, top = divmod(at, shape[-2])
            array[(page,) * (len(shape) - 2) + (slice(top, top + len(band)),)] = band
            at += len(band)
            yield band
    else:
        yield from bands
        layout.written.rename(path)
        n_levels = len(found := sorted(zarr.open_group(path).array_keys()))
        reduced = [zarr.open_group(path)[found[-1]][::STEP, ::STEP]]
    for level in _overviews(reduced if layout.largest is not None and not layout.is_volume else []):
        new_zarr(path, layout._replace(shape=level.shape, block=(0, 0)), n_levels)[:] = level
        n_levels += 1
    zarr.open_group(path).attrs["ome"] = _of_ome(layout, n_levels)


def new_zarr(path: Path, layout: Layout, level: int = 0) -> Any:
    """Make an array of a zarr group in square chunks; many of them share a file where blocks are known."""
    import zarr

    shape, (side, beside) = layout.shape, layout.block
    chunk = (side // 2 if level == 0 else side) or TILE
    names = ("z" if layout.is_volume else "segment", "y", "x")[-len(shape) :]
    options: dict[str, Any] = {"dtype": layout.stored, "fill_value": 0, "dimension_names": names}
    options["chunks"] = (1,) * (len(shape) - 2) + tuple(min(chunk, n) for n in shape[-2:])
    if side and min(shape) >= chunk:
        whole = side, side * min(beside, -(-shape[1] // side))
        options["shards" if level == 0 else "chunks"] = whole
    return zarr.open_group(path, mode="a").create_array(str(level), shape=shape, **options)


def _of_ome(layout: Layout, n_levels: int) -> dict[str, Any]:
    """Metadata of OME-Zarr 0.5: axes with their unit, scales of the levels, names and colours of labels."""
    size, more = layout.size or PIXELS, len(layout.shape) - 2
    unit = {"unit": OME_UNITS[size.unit]} if size.unit in OME_UNITS else {}
    spatial = [{"name": name, "type": "space", **unit} for name in "zyx"]
    first: Any = spatial[:1] if layout.is_volume else [{"name": "c", "type": "channel"}]
    axes = first * more + spatial[1:]
    deep, datasets = [(size.depth or 1.0) if layout.is_volume else 1.0] * more, []
    for level in range(n_levels):
        scale = [*deep, *(side * STEP**level for side in size[:2])]
        transformations = [{"type": "scale", "scale": scale}]
        datasets.append({"path": str(level), "coordinateTransformations": transformations})
    found: dict[str, Any] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    if layout.largest is not None:
        colours = [{"label-value": n, "rgba": [*colour, 255]} for n, _, colour in layout.legend]
        named = [{"label-value": n, "name": name} for n, name, _ in layout.legend]
        found["image-label"] = {"colors": colours, "properties": named}
    return found


def _tiff(path: Path, bands: Bands, layout: Layout) -> Iterator[NDArray[Any]]:
    """Write a tiled and deflated file, BigTIFF if it may exceed 4 GB; 0 is no data among labels."""
    from tifffile import TiffWriter

    geo, dtype, shape = layout.geo, layout.stored, layout.shape
    tags = [(*tag, True) for tag in geo.tags] if geo is not None else []
    if layout.largest is not None:
        tags.append((places.GDAL_NODATA, _TIFF_ASCII, 2, "0", True))
    tile = tuple(min(TILE, -(-side // _TILE_UNIT) * _TILE_UNIT) for side in shape[-2:])
    common: Any = {"photometric": "minisblack", "compression": "zlib", "predictor": False, "metadata": None}
    common["tile"] = tile
    bands, reduced = map(np.asarray, bands), list[NDArray[Any]]()  # they may be lazy
    is_big = math.prod(shape) * dtype.itemsize > _CLASSIC
    own = _calibration(layout)
    with path.open("x+b") as file, TiffWriter(file, bigtiff=is_big, ome="metadata" in own) as tiff:
        pieces = _tiles(_reducing(bands, reduced) if layout.pyramid else bands, shape[-2], tile, dtype)
        tiff.write(pieces, shape=shape, dtype=dtype, extratags=tags, **common | own)
        for _ in bands:  # tifffile stops at the last tile, other formats have something to do at the end
            pass
        for level in _overviews(reduced):
            tiff.write(level.astype(dtype), subfiletype=_REDUCED, **common)
    if layout.pyramid and geo is not None and geo.tags and find_spec("rasterio") is not None:
        import rasterio
        from rasterio.shutil import copy

        # in the order for reading over a network: tables first, overviews before tiles
        ordered = path.with_name("ordered")
        options = {"blocksize": TILE, "compress": "DEFLATE", "overview_resampling": "NEAREST"}
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
            copy(path, ordered, driver="COG", bigtiff="IF_SAFER", **options)
        ordered.replace(path)
    yield from ()


def _calibration(layout: Layout) -> dict[str, Any]:
    """Resolution and description by which ImageJ, or a reader of OME-TIFF, knows the size of a pixel."""
    size, (*pages, _, _) = layout.size, layout.shape
    if size is None or not size.unit.isascii() or (layout.geo is not None and layout.geo.tags):
        return {}
    about: dict[str, Any] = {"resolution": (1 / size.width, 1 / size.height), "resolutionunit": _NO_UNIT}
    if layout.is_ome:
        sides = {"X": size.width, "Y": size.height} | ({} if size.depth is None else {"Z": size.depth})
        physical = {f"PhysicalSize{axis}": side for axis, side in sides.items()}
        units = {f"PhysicalSize{axis}Unit": size.unit.replace("um", "µm") for axis in sides}
        return about | {"metadata": {"axes": "ZYX"[-len(layout.shape) :], **physical, **units}}
    n_pages = math.prod(pages)
    text = f"ImageJ=1.54f\nimages={n_pages}\nslices={n_pages}\nunit={size.unit}\n"
    return about | {"description": text + ("" if size.depth is None else f"spacing={size.depth!r}\n")}


def _tiles(bands: Bands, height: int, tile: Sequence[int], dtype: np.dtype) -> Iterator[NDArray[Any]]:
    """Cut bands into tiles, beginning anew on each page."""
    waiting: list[NDArray[Any]] = []
    top = 0
    for band in bands:
        waiting.append(band.astype(dtype))
        top += len(band)
        rows = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
        whole = len(rows) if top == height else len(rows) // tile[0] * tile[0]
        top %= height
        waiting = [rows[whole:]]
        for start in range(0, whole, tile[0]):
            strip = rows[start : min(start + tile[0], whole)]
            for left in range(0, rows.shape[1], tile[1]):
                yield strip[:, left : left + tile[1]]


def _reducing(bands: Bands, reduced: list[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Pass bands on, and keep every fourth row and column of them."""
    at = 0
    for band in bands:
        reduced.append(band[-at % STEP :: STEP, ::STEP].copy())
        at += len(band)
        yield band


def _overviews(reduced: list[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield smaller levels, until one is small enough to be looked at."""
    level = np.concatenate(reduced) if reduced else np.empty((0, 0))
    while max(level.shape) * STEP > _SMALL:
        yield level
        level = level[::STEP, ::STEP]


_FORMATS: dict[str, Any] = {".png": _png, ".tif": _tiff, ".tiff": _tiff, ".npy": _npy, ".zarr": _zarr}


def _write_world_file(path: Path, geo: Georeference | None) -> None:
    """Write the affine map next to an image that cannot hold it."""
    if geo is None or path.suffix == ".zarr" or (geo.tags and path.suffix.lower() in (".tif", ".tiff")):
        return
    text = places.world_file_text(geo)
    if text is not None:
        atomic_write(path.with_suffix(places.world_file_suffix(path.suffix)), text.encode("ascii"))


def _write_categories(path: Path, layout: Layout) -> None:
    """Write names and colours of labels next to a GeoTIFF, or one with names, for GDAL, QGIS and others."""
    beside = path.with_name(path.name + ".aux.xml")
    if not any(layout.names) and (layout.geo is None or not layout.geo.tags):
        beside.unlink(missing_ok=True)  # it would be that of the file that is replaced
        return
    legend = [("no data", (0, 0, 0, 0)), *((name, (*colour, 255)) for _, name, colour in layout.legend)]
    entries = "".join('<Entry c1="{}" c2="{}" c3="{}" c4="{}" />'.format(*colour) for _, colour in legend)
    names = "".join(f"<Category>{html.escape(name, quote=False)}</Category>" for name, _ in legend)
    tables = f"<ColorTable>{entries}</ColorTable><CategoryNames>{names}</CategoryNames>"
    band = f'<PAMRasterBand band="1"><ColorInterp>Palette</ColorInterp>{tables}</PAMRasterBand>'
    atomic_write(beside, f"<PAMDataset>{band}</PAMDataset>".encode("ascii", "xmlcharrefreplace"))


def write_labels(
    path: str | os.PathLike[str],
    labels: NDArray[np.integer],
    *,
    geo: Georeference | None = None,
    pixel_size: tuple[float, float, str] | PixelSize | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write a label image; the value of each pixel is its label.

    The suffix of ``path`` decides: ``.png``, ``.tif``, ``.tiff``, ``.npy``, or ``.zarr`` for OME-Zarr.
    Labels, whole numbers (0: no data), are (H, W), or (D, H, W) of a volume or of pages (TIFF, ``.npy``).
    PNG files are grey, with 8 bits (up to label 255) or 16 (up to 65535), TIFF files have 8, 16 or 32 bits:
    every library reads these as numbers, where most read a palette as colours. A file appears whole or never,
    and its folder is made; one that cannot be labels, such as a colour photograph, is kept (FileExistsError).

    ``geo`` is written as tags into a TIFF file, with 0 as the no-data value, or as a world file next to other
    files. ``pixel_size`` is the height, width and unit (and depth) of a pixel, as ``read_image(path)`` gives
    it, for ImageJ and OME-Zarr. ``names`` of label 1, label 2 and so on, and colours, stand in OME-Zarr
    itself, and next to a TIFF with names or a georeference, in ``.aux.xml``, which GDAL and QGIS read. A
    TypeError or ValueError says that the array is not a label image, or does not fit into the format.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.png"
    >>> write_labels(path, np.array([[1, 2], [2, 0]]))
    >>> from texseg.io.read import read_labels
    >>> read_labels(path).tolist()
    [[1, 2], [2, 0]]
    """
    target, labels = path_of(path), checked_labels(labels)
    check_georeference(geo)
    if target.suffix.lower() in _FORMATS and target.is_file() and target.stat().st_size:
        header = read_header(target)
        if header.n_channels > 1 or header.dtype.kind not in "biu":
            said = f"{target} exists and is not a label image"
            raise FileExistsError(f"{said}; it was not replaced, choose another name")
    pages = labels.reshape(-1, *labels.shape[-2:])
    checked = checked_description(pages[0], None, names, pixel_size)[2]
    size = None if pixel_size is None else checked
    layout = Layout(labels.shape, int(labels.max()), labels.dtype, geo, size=size, names=names)
    write_rows([target], pages, layout._replace(is_volume=labels.ndim == 3))


def write_overlay(
    path: Path,
    pixels: NDArray,
    labellings: Mapping[str, NDArray[np.integer]],
    mask: NDArray[np.bool_] | None = None,
    geo: Georeference | None = None,
    colours: Sequence[str] = (),
) -> None:
    """Draw an image (H, W) or (H, W, C) under labellings (H, W), side by side under names if several."""
    from imagecodecs import png_encode

    drawn = dict[str, NDArray[np.uint8]]()
    for name, labels in labellings.items():
        if checked_labels(labels).shape != pixels.shape[:2]:
            raise ValueError(f"labels of shape {labels.shape} do not match the image of shape {pixels.shape}")
        draw_overlay(drawn.setdefault(name, to_rgb(pixels, mask)), labels, colours)
    _write_world_file(path, geo)
    picture = side_by_side(drawn) if len(drawn) > 1 else next(iter(drawn.values()))
    atomic_write(path, bytes(png_encode(picture, level=3)))
