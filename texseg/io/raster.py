"""Arrays that are read by slices: NumPy's, raw volumes, those of ITK, and rasters that GDAL reads.

Nothing is unpickled, and GDAL opens only formats whose files hold their own pixels: others (VRT, WMS, HDF5
with external data, ...) may name files of other folders or addresses, which it would open in silence.
"""

import math
import os
import re
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.io.files import MalformedFileError, UnsuitableImageError, format_of, open_regular, side_text
from texseg.io.geo import georeference_of
from texseg.io.header import Decoded, Header, Stored, Window
from texseg.io.regions import PixelSize


class ArrayStored(Stored):
    """An array that is read by slices."""

    def __init__(self, array: NDArray, header: Header) -> None:
        self.header, self._array = header, array

    def read(self, window: Window, axes: str, page: int, level: int) -> Decoded:
        """Read a window of one page, channels last."""
        fixed: dict[str, Any] = {"Y": window[0], "X": window[1], "C": slice(None), "P": page}
        pixels = np.array(self._array[tuple(fixed[axis] for axis in axes)], dtype=self.header.dtype)
        return Decoded(np.moveaxis(pixels, axes.replace("P", "").index("C"), -1) if "C" in axes else pixels)


def open_npy(path: Path) -> ArrayStored:
    """Open a NumPy array; with three axes, the file does not say which are channels or pages."""
    layout = np.lib.format
    with open_regular(path) as file:
        try:
            is_first = layout.read_magic(file) == (1, 0)
            read = layout.read_array_header_1_0 if is_first else layout.read_array_header_2_0
            shape, _, dtype = read(file)
        except Exception as error:  # malformed headers raise many kinds
            raise MalformedFileError("NPY header is invalid: the file is corrupt") from error
        for is_wrong, why in (
            (dtype.hasobject, "holds Python objects; these are never unpickled, save numbers"),
            (dtype.kind not in "buif", "is not an image; expected real numbers or booleans"),
            (len(shape) not in (2, 3), "is not an image; expected 2 axes, or 3 with channels or pages"),
            (0 in shape, "is empty"),
        ):
            if is_wrong:
                raise UnsuitableImageError(f"array of shape {shape} and dtype {dtype} {why}")
        if file.tell() + math.prod(shape) * dtype.itemsize > path.stat().st_size:
            raise MalformedFileError("file is truncated")
    axes = "YX" if len(shape) == 2 else "???"
    header = Header(format="NPY", shape=shape, axes=axes, dtype=dtype.newbyteorder("="))
    return ArrayStored(np.load(path, mmap_mode="r", allow_pickle=False), header)


def open_raw(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> ArrayStored:
    """Open a volume (planes, rows, columns) without a header; what a file holds more comes before it."""
    more = path.stat().st_size - math.prod(shape) * dtype.itemsize
    if more < 0:
        raise MalformedFileError(f"file is {-more} bytes shorter than {shape} values of {dtype}")
    header = Header(format="raw", shape=shape, axes="PYX", dtype=dtype.newbyteorder("="))
    return ArrayStored(np.memmap(path, dtype, mode="r", offset=more, shape=shape), header)


def itk_format(path: Path) -> str:
    """Name ITK's reader of a file that holds its values itself and names no other; empty for others."""
    with open_regular(path) as file:
        start = file.read(_HEADER_BYTES)
    if start.startswith(b"NRRD000"):
        header, end, _ = start.replace(b"\r\n", b"\n").partition(b"\n\n")
        return "NrrdImageIO" if end and not re.search(rb"(?i)data *file *:", header) else ""
    named = start.partition(b"ElementDataFile")[2] if re.match(rb"(ObjectType|NDims)\s*=", start) else b""
    return "MetaImageIO" if re.match(rb" *= *LOCAL *\r?\n", named) else ""


class ItkStored(ArrayStored):
    """A volume that SimpleITK reads, as a whole."""

    def __init__(self, path: Path, format: str) -> None:
        import SimpleITK

        self._reader = reader = SimpleITK.ImageFileReader()
        reader.SetImageIO(format)
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        name = SimpleITK.GetPixelIDValueAsString(reader.GetPixelID())
        kind, axes = re.match(r"(\d+)-bit (float|signed|unsigned)", name), "PYX"[-reader.GetDimension() :]
        if kind is None or reader.GetNumberOfComponents() > 1 or reader.GetDimension() > 3:
            raise UnsuitableImageError(f"{name} of {reader.GetDimension()} axes is not a volume of numbers")
        dtype = np.dtype({"signed": "i"}.get(kind[2], kind[2][0]) + str(int(kind[1]) // 8))
        width, height, *depth = reader.GetSpacing()
        size = PixelSize(height, width, "mm", *depth)
        self.header = Header("ITK", reader.GetSize()[::-1], axes, dtype, measured=size)

    def only_whole(self, level: int) -> str:
        """Say that all of the volume is read at once."""
        return "NRRD and MetaImage files can only be read whole; save the volume as .npy or TIFF"

    @cached_property
    def _array(self) -> NDArray:  # type: ignore[override]
        import SimpleITK

        return SimpleITK.GetArrayFromImage(self._reader.Execute())


_DRIVERS = "HFA FITS GRIB NITF AAIGrid USGSDEM DTED SRTMHGT".split()
_MOST_NAMES = 12
_HEADER_BYTES = 2**22  # enough for the wavelengths and names of many bands
_ENVIRONMENT = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # what lies next to an image is read here
    "RAW_CHECK_FILE_SIZE": "YES",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none",
}


class RasterStored(Stored):
    """A file that GDAL has opened."""

    def __init__(self, path: Path, files: ExitStack, drivers: Sequence[str] = _DRIVERS) -> None:
        path = path.resolve()
        self._raster = raster = files.enter_context(_opened(path, drivers))
        others = {Path(name).resolve() for name in raster.files} - {path}
        beside = re.compile(rf"{re.escape(path.stem)}.*(?i:\.prj|\.aux\.xml|\.idx|\.hdr)")
        if not (raster.count and all(beside.fullmatch(each.name) for each in others)):
            raise UnsuitableImageError("its pixels lie in other files, which are not opened")
        if np.dtype(raster.dtypes[0]).kind not in "buif":
            raise UnsuitableImageError(f"values of type {raster.dtypes[0]}; expected real numbers")
        n_bands, nodata, t = raster.count, raster.nodatavals, raster.transform
        shape, axes = (raster.height, raster.width, *[n_bands] * (n_bands > 1)), "YX" + "C" * (n_bands > 1)
        values: Any = {"nodata": nodata[0]} if len(set(nodata)) == 1 else {"band_nodata": nodata}
        geo = None if t.is_identity else georeference_of(t, str(raster.crs or ""))
        self.header = Header(raster.driver, shape, axes, np.dtype(raster.dtypes[0]), geo=geo, **values)

    def read(self, window: Window, axes: str, page: int, level: int) -> Decoded:
        """Read a window, channels last."""
        pixels = np.moveaxis(self._raster.read(window=window), 0, -1)
        return Decoded(pixels if "C" in axes else pixels[..., 0])


def find_header(image: Path) -> bool:
    """Tell whether there is an ENVI header that belongs to a file of raw values."""
    for path in (image.with_suffix(".hdr"), image.with_name(image.name + ".hdr"), image.with_suffix(".HDR")):
        text = side_text(path, _HEADER_BYTES) if path != image else None
        if text is not None and text.lstrip().startswith("ENVI"):
            if re.search(r"(?im)file[ _]compression\s*=\s*(?!0\s*$)", text):
                raise MalformedFileError("compressed ENVI images are not read; unpack it")
            return True
    return False


def _opened(path: Path, drivers: Sequence[str]) -> Any:
    """Open a file by one of some of GDAL's drivers."""
    import rasterio
    from rasterio.io import DatasetReader

    with os.scandir(path.parent) as entries:  # GDAL waits for a pipe that belongs to the image
        for other in entries:
            if os.path.exists(other) and not (other.is_file() or other.is_dir()):
                raise UnsuitableImageError(f"{other.name} next to it is a device or a pipe; move it away")
    try:
        # the header of an ENVI image is a file next to it
        siblings = {"GDAL_DISABLE_READDIR_ON_OPEN": "TRUE"} if list(drivers) == ["ENVI"] else {}
        with rasterio.Env(**_ENVIRONMENT | siblings), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing georeference
            return DatasetReader(path, driver=list(drivers))
    except rasterio.errors.RasterioIOError as error:
        if siblings:
            raise MalformedFileError(f"not as its ENVI header says ({error})") from error
        raise UnsuitableImageError(f"neither texseg nor GDAL can read it ({error})") from error


def open_by_extras(path: Path, start: bytes, files: ExitStack) -> Stored | None:
    """Open what GDAL or ITK reads, where they are installed; None if it is something else."""
    arrays, has_gdal = format_of(start, "arrays"), find_spec("rasterio") is not None
    if find_header(path):
        if not has_gdal:
            raise MalformedFileError("ENVI images need rasterio (pip install 'texseg[geo]')")
        return RasterStored(path, files, ["ENVI"])
    if has_gdal:
        with suppress(UnsuitableImageError):  # what it is instead is said
            return _open_hierarchical(arrays, path, files) if arrays else RasterStored(path, files)
    if find_spec("SimpleITK") is not None and (itk := itk_format(path)):
        return ItkStored(path, itk)
    return None


def _open_hierarchical(format: str, path: Path, files: ExitStack) -> RasterStored:
    """Open the only array of a classic NetCDF file, or name the arrays; HDF5 may keep values elsewhere."""
    is_classic = "HDF5" not in format
    if is_classic:
        with suppress(UnsuitableImageError):
            return RasterStored(path, files, ["netCDF"])
    with _opened(path.resolve(), ["netCDF"] if is_classic else ["HDF5"]) as found:
        names = [name.rpartition(":")[2].lstrip("/") for name in found.subdatasets]
    more = ", ..." if len(names) > _MOST_NAMES else ""
    parts = f" of {len(names)} arrays ({', '.join(names[:_MOST_NAMES])}{more})" if names else ""
    remedy = "save the array you mean as TIFF or .npy, such as with gdal_translate"
    raise MalformedFileError(f"{format} file{parts}; {remedy}")
