"""Rasters that GDAL reads, where rasterio is installed: only formats whose files hold their own pixels.

Others (VRT, WMS, HDF5 with external data, ...) may name files of other folders or addresses in the network,
which GDAL would open in silence.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from texseg.io.errors import MalformedFileError, UnsuitableImageError
from texseg.io.files import side_text
from texseg.io.geo import Affine, georeference_of
from texseg.io.header import Decoded, Header, Stored, Window

_DRIVERS = "HFA FITS GRIB NITF AAIGrid USGSDEM DTED SRTMHGT".split()
_MOST_NAMES = 12
_HEADER_BYTES = 2**22  # enough for the wavelengths and names of many bands
_SIDE_SUFFIXES = (".prj", ".aux.xml", ".idx", ".hdr")
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
        others = [name for name in raster.files if not _belongs_to(Path(name), path)]
        if others or not raster.count:
            raise UnsuitableImageError("its pixels lie in other files, which are not opened")
        if np.dtype(raster.dtypes[0]).kind not in "buif":
            raise UnsuitableImageError(f"values of type {raster.dtypes[0]}; expected real numbers")
        n_bands, nodata, t = raster.count, raster.nodatavals, raster.transform
        self.header = Header(
            format=raster.driver,
            shape=(raster.height, raster.width) + ((n_bands,) if n_bands > 1 else ()),
            axes="YXC" if n_bands > 1 else "YX",
            dtype=np.dtype(raster.dtypes[0]),
            nodata=nodata[0] if len(set(nodata)) == 1 else None,
            band_nodata=nodata if len(set(nodata)) > 1 else (),
            geo=None if t.is_identity else georeference_of(Affine(*t[:6]), str(raster.crs or "")),
        )

    def windows(self, axes: str, page: int, level: int) -> Callable[[Window], Decoded]:
        """Read windows, channels last."""

        def read(window: Window) -> Decoded:
            pixels = np.moveaxis(self._raster.read(window=window), 0, -1)
            return Decoded(pixels if "C" in axes else pixels[..., 0])

        return read


def find_header(image: Path) -> bool:
    """Tell whether there is an ENVI header that belongs to a file of raw values."""
    for path in (image.with_suffix(".hdr"), image.with_name(image.name + ".hdr"), image.with_suffix(".HDR")):
        text = side_text(path, _HEADER_BYTES) if path != image else None
        if text is not None and text.lstrip().startswith("ENVI"):
            return True
    return False


def _opened(path: Path, drivers: Sequence[str]) -> Any:
    """Open a file by one of some of GDAL's drivers."""
    import rasterio
    from rasterio.io import DatasetReader

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


def open_hierarchical(format: str, path: Path, files: ExitStack) -> RasterStored:
    """Open the only array of a NetCDF file of the classic kind, or name the arrays of the file.

    Files of HDF5 may keep their values in other files, so that these are only listed.
    """
    is_classic = "HDF5" not in format
    if is_classic:
        with suppress(UnsuitableImageError):
            return RasterStored(path, files, ["netCDF"])
    with _opened(path.resolve(), ["netCDF"] if is_classic else ["HDF5"]) as found:
        names = [name.rpartition(":")[2].lstrip("/") for name in found.subdatasets]
    more = ", ..." if len(names) > _MOST_NAMES else ""
    parts = f" of {len(names)} arrays ({', '.join(names[:_MOST_NAMES])}{more})" if names else ""
    raise MalformedFileError(
        f"{format} file{parts}; save the array you mean as TIFF or .npy, such as with gdal_translate"
    )


def _belongs_to(name: Path, image: Path) -> bool:
    name = name.resolve()
    return name == image or (name.stem.startswith(image.stem) and name.name.lower().endswith(_SIDE_SUFFIXES))
