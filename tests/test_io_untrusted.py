"""Nobody else's data act: no code runs, no other file or address is opened, nothing is waited for."""

import gzip
import http.server
import json
import os
import shutil
import struct
import threading
import time
import tracemalloc
import zlib

import io_scenes
import numpy as np
import pytest
import tifffile
from io_scenes import read_mask, read_pages
from scipy.io import netcdf_file

from texseg.io.files import ImageReadError
from texseg.io.read import open_source, read_header, read_image, read_label_picture, read_labels
from texseg.io.seeds import read_seed_file

PIXELS = io_scenes.scene()[0]
GREY = np.random.default_rng(0).integers(1, 255, (130, 170)).astype(np.uint16)
WINDOW = slice(33, 100), slice(20, 101)


def store(folder, shape=(200, 200), chunks=(200, 200), chunk=None, **meta):
    """Write an array of version 2 by hand: metadata, and one chunk at most."""
    folder.mkdir()
    meta = {
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "|u1", "compressor": None,
        "fill_value": 0, "order": "C", "filters": None, **meta,
    }  # fmt: skip
    (folder / ".zarray").write_text(json.dumps(meta))
    if chunk is not None:
        (folder / "0.0").write_bytes(chunk)
    return folder


def refuse(path, reason, **options):
    start = time.perf_counter()
    tracemalloc.start()
    try:
        with (
            pytest.raises((ImageReadError, ValueError), match=reason),
            open_source(path, **options) as source,
        ):
            source.read()
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 5


class TestStores:
    """Zarr arrays, which are read without the library that might run what a store names."""

    def test_codecs_and_layouts_of_both_versions(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        codecs = pytest.importorskip("zarr.codecs")
        numcodecs = pytest.importorskip("numcodecs")
        big = codecs.BytesCodec(endian="big")
        kinds = [
            {"zarr_format": 2, "compressors": codec}
            for codec in (None, numcodecs.Blosc("lz4"), numcodecs.Zlib(), numcodecs.GZip(), numcodecs.LZ4())
        ]
        kinds += [
            {},
            {"zarr_format": 2, "order": "F"},
            {"compressors": codecs.BloscCodec()},
            {"compressors": codecs.GzipCodec()},
            {"compressors": [codecs.ZstdCodec(), codecs.Crc32cCodec()]},
            {"shards": (100, 120)},
            {"shards": (100, 120), "compressors": None},
            {"filters": [codecs.TransposeCodec(order=(1, 0))]},
            {"serializer": big, "compressors": None},
            {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}},
        ]
        for i, kind in enumerate(kinds):
            array = zarr.create_array(
                tmp_path / str(i), shape=GREY.shape, dtype=GREY.dtype, chunks=(50, 60), **kind
            )
            array[:] = GREY
            with open_source(tmp_path / str(i)) as source:
                np.testing.assert_array_equal(source.read(WINDOW)[0], GREY[WINDOW], str(kind))
                pixels, valid = source.read()[:2]
                np.testing.assert_array_equal(pixels, GREY, str(kind))
                assert valid is None and source.notes == (), kind

    def test_missing_chunks_hold_no_data_and_are_counted(self, tmp_path):
        store(tmp_path / "half", chunks=(100, 200), chunk=bytes(20_000))
        with open_source(tmp_path / "half") as source:
            valid = source.read()[1]
            assert source.notes[0].startswith("1 of 2 chunks of the zarr array are missing")
        assert valid[:100].all() and not valid[100:].any()

    def test_a_store_of_hardly_any_chunks_is_refused(self, tmp_path):
        refuse(store(tmp_path / "none", shape=[10**9, 10**9], chunks=[2**14, 2**14]), "are missing")

    def test_folders_of_a_store_that_are_links_are_refused(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        zarr.create_array(tmp_path / "s", data=GREY, chunks=(50, 60))
        (tmp_path / "s" / "c").rename(tmp_path / "c")
        (tmp_path / "s" / "c").symlink_to(tmp_path / "c")
        refuse(tmp_path / "s", "must not be links")

    def test_missing_chunks_inside_a_shard(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        array = zarr.create_array(
            tmp_path / "s", shape=GREY.shape, dtype=GREY.dtype, chunks=(50, 60), shards=(100, 120)
        )
        array[:50] = GREY[:50]
        with open_source(tmp_path / "s") as source:
            pixels, valid = source.read()[:2]
        assert valid[:50].all() and not valid[50:].any()
        np.testing.assert_array_equal(pixels[:50], GREY[:50])

    @pytest.mark.parametrize(
        ("meta", "reason"),
        [
            ({"filters": [{"id": "pickle"}]}, "zarr filters are not read"),
            ({"compressor": {"id": "pickle"}}, "zarr codec 'pickle' is not read"),
            ({"dtype": "|O"}, "dtype '|O' is not an image"),
            ({"dtype": [["a", "<f4"]]}, "is not an image"),
            ({"shape": [20_000, 20_000], "chunks": [1, 1]}, "400000000 chunks, more than its size needs"),
            ({"shape": [10**6, 10**6], "chunks": [10**6, 10**6]}, "chunks of 1000000 MB are too large"),
            ({"shape": [-5, 5]}, "invalid metadata of the zarr array"),
            ({"shape": "many"}, "invalid metadata of the zarr array"),
            ({"chunks": [0, 0]}, "invalid metadata"),
            ({"shape": [200, 200, 3]}, "contradict"),
            ({"compressor": 5}, "invalid metadata"),
        ],
    )
    def test_metadata_that_cost_or_do_more_than_an_image(self, tmp_path, meta, reason):
        refuse(store(tmp_path / "s", chunk=b"", **meta), reason)

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"chunk_grid": {"name": "rectilinear"}}, "irregular chunks"),
            ({"storage_transformers": [{"name": "x"}]}, "transformed storage"),
            (
                {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "../"}}},
                "invalid metadata",
            ),
            ({"shape": [20, 30, 2, 2, 5]}, "not an image of rows, columns and channels"),
            (
                {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}] * 2},
                "codec 'transpose'",
            ),
            ({"shard": {"index_codecs": [{"name": "bytes"}, {"name": "gzip"}]}}, "shards with such an index"),
            ({"shard": {"codecs": [{"name": "sharding_indexed"}]}}, "codec 'sharding_indexed' is not read"),
            ({"index": (0, 2**63)}, "index of a zarr shard is invalid"),
            ({"index": (2**64 - 8, 16)}, "index of a zarr shard is invalid"),
            ({"index": (0, 0)}, "a zarr chunk is broken"),
        ],
    )
    def test_metadata_and_shards_of_version_3(self, tmp_path, changed, reason):
        shard = {
            "chunk_shape": [20, 30], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}],
            **changed.pop("shard", {}),
        }  # fmt: skip
        grid = {"name": "regular", "configuration": {"chunk_shape": [20, 30]}}
        index = changed.pop("index", (0, 600))
        meta = {
            "zarr_format": 3, "shape": [20, 30], "data_type": "uint8", "fill_value": 0,
            "chunk_key_encoding": {"name": "default"}, "chunk_grid": grid,
            "codecs": [{"name": "sharding_indexed", "configuration": shard}],
        }  # fmt: skip
        changed = {k: {**meta[k], **v} if k == "chunk_grid" else v for k, v in changed.items()}
        if len(changed.get("shape", "12")) > 2:
            changed["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": changed["shape"]}}
            changed["codecs"] = [{"name": "bytes"}]
        (tmp_path / "s" / "c" / "0").mkdir(parents=True)
        (tmp_path / "s" / "zarr.json").write_text(json.dumps(meta | changed))
        (tmp_path / "s" / "c" / "0" / "0").write_bytes(bytes(600) + struct.pack("<QQ", *index))
        refuse(tmp_path / "s", reason)

    def test_groups_that_are_no_images(self, tmp_path):
        (tmp_path / "g").mkdir()
        group = {"zarr_format": 3, "node_type": "group"}
        (tmp_path / "g" / "zarr.json").write_text(json.dumps(group))
        refuse(tmp_path / "g", "this zarr group is not an OME-Zarr image")
        scales = [{"datasets": [{"path": "0"}, {"path": "1"}], "axes": [{"name": "y"}, {"name": "x"}]}]
        (tmp_path / "g" / "zarr.json").write_text(
            json.dumps(group | {"attributes": {"ome": {"multiscales": scales}}})
        )
        store(tmp_path / "g" / "0", chunk=bytes(40_000))
        refuse(tmp_path / "g", "neither a zarr array nor an OME-Zarr image")
        store(tmp_path / "g" / "1", shape=[2, 100, 100], chunks=[2, 100, 100])
        refuse(tmp_path / "g", "levels of the OME-Zarr image have different axes")

    def test_a_chunk_that_unpacks_to_more_than_its_pixels(self, tmp_path):
        bomb = store(tmp_path / "b", chunk=zlib.compress(bytes(100_000_000), 9), compressor={"id": "zlib"})
        refuse(bomb, "a zarr chunk is broken, or unpacks to more than its pixels")

    def test_a_group_names_no_arrays_outside_of_itself(self, tmp_path):
        store(tmp_path / "other", chunk=bytes(40_000))
        group = tmp_path / "group"
        group.mkdir()
        for path in ("../other", str(tmp_path / "other")):
            scales = [{"datasets": [{"path": path}], "axes": [{"name": "y"}, {"name": "x"}]}]
            meta = {"zarr_format": 3, "node_type": "group", "attributes": {"ome": {"multiscales": scales}}}
            (group / "zarr.json").write_text(json.dumps(meta))
            refuse(group, "name arrays outside of the image")

    @pytest.mark.parametrize("text", ["", "[" * 100_000, "5", "null", '{"zarr_format": 3, "shape": [5, 5]}'])
    def test_broken_metadata(self, tmp_path, text):
        (tmp_path / "zarr.json").write_text(text)
        refuse(tmp_path, "broken|invalid|no OME-Zarr image")


@pytest.fixture
def requests():
    """Paths that are asked for at a server on this machine."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked_at = f"http://127.0.0.1:{server.server_port}"
    yield asked_at, asked
    server.shutdown()
    server.server_close()


def vrt(source, height=200, width=240):
    return (
        f'<VRTDataset rasterXSize="{width}" rasterYSize="{height}"><VRTRasterBand dataType="Byte" band="1">'
        f'<SimpleSource><SourceFilename relativeToVRT="0">{source}</SourceFilename><SourceBand>1</SourceBand>'
        "</SimpleSource></VRTRasterBand></VRTDataset>"
    )


class TestOtherFilesAndAddresses:
    """GDAL opens what its own descriptions name; it never gets to see them."""

    def test_nothing_is_asked_for(self, tmp_path, requests):
        address, asked = requests
        remote = vrt(f"/vsicurl/{address}/leak.tif")
        (tmp_path / "curl.vrt").write_text(remote)
        (tmp_path / "byte_order_mark.png").write_text("\ufeff" + remote)
        (tmp_path / "declared.img").write_text('<?xml version="1.0"?>\n<!-- so -->' + remote)
        (tmp_path / "wms.xml").write_text(
            f'<GDAL_WMS><Service name="TMS"><ServerUrl>{address}/${{z}}.png</ServerUrl></Service></GDAL_WMS>'
        )
        for name in ("curl.vrt", "byte_order_mark.png", "declared.img", "wms.xml"):
            for options in ({}, {"level": 0}):
                refuse(tmp_path / name, "other files or addresses|not an image", **options)
        assert not asked

    def test_a_mask_beside_an_image_is_no_way_in(self, tmp_path, requests):
        address, asked = requests
        tifffile.imwrite(tmp_path / "m.tif", PIXELS)
        secret = tmp_path / "secret.tif"
        tifffile.imwrite(secret, PIXELS)
        for source in (f"/vsicurl/{address}/leak.tif", secret):
            (tmp_path / "m.tif.msk").write_text(vrt(source, *PIXELS.shape))
            image = read_image(tmp_path / "m.tif")
            assert image.mask is None and "mask next to the image cannot be read" in image.notes[0]
            with open_source(tmp_path / "m.tif") as found:
                assert found.read(WINDOW)[1] is None and found.notes == image.notes
        assert not asked

    @pytest.mark.filterwarnings("ignore")  # of rasterio, about a missing georeference
    def test_a_raster_whose_pixels_lie_elsewhere(self, tmp_path):
        rasterio = pytest.importorskip("rasterio")
        shape = {"width": 240, "height": 200, "count": 1, "dtype": "uint8"}
        with rasterio.open(tmp_path / "s.img", "w", driver="HFA", USE_SPILL="YES", **shape) as file:
            file.write(np.full((200, 240), 7, np.uint8), 1)
        refuse(tmp_path / "s.img", "its pixels lie in other files|Erdas Imagine files are not read")

    def test_volumes_whose_values_lie_elsewhere(self, tmp_path):
        pytest.importorskip("SimpleITK")
        secret = tmp_path / "secret.raw"
        secret.write_bytes(PIXELS.tobytes())
        height, width = PIXELS.shape
        nrrd = f"NRRD0004\ntype: uint8\ndimension: 2\nsizes: {width} {height}\nencoding: raw\n"
        meta = f"ObjectType = Image\nNDims = 2\nDimSize = {width} {height}\nElementType = MET_UCHAR\n"
        for name, header in (
            ("far.nrrd", f"{nrrd}# {'x' * 600}\ndata file: {secret}\n\n"),
            ("twice.mha", f"{meta}ElementDataFile = {secret}\nElementDataFile = LOCAL\n"),
            ("colon.mha", f"{meta}ElementDataFile: {secret}\nElementDataFile = LOCAL\n"),
        ):
            (tmp_path / name).write_text(header)
            refuse(tmp_path / name, "files are not read")

    def test_an_envi_image_that_unpacks_to_more(self, tmp_path):
        pytest.importorskip("rasterio")
        (tmp_path / "d.dat").write_bytes(gzip.compress(bytes(10**6)))
        shape = "samples = 1000\nlines = 1000\nbands = 1\ndata type = 1\ninterleave = bsq\nbyte order = 0\n"
        (tmp_path / "d.hdr").write_text(f"ENVI\n{shape}header offset = 0\nfile compression = 1\n")
        refuse(tmp_path / "d.dat", "compressed ENVI images are not read")
        assert len(list(tmp_path.iterdir())) == 2  # GDAL would have written next to it

    def test_arrays_in_netcdf(self, tmp_path):
        pytest.importorskip("rasterio")
        for names in (("first",), ("first", "second")):
            with netcdf_file(tmp_path / "a.nc", "w") as file:
                file.createDimension("y", 20)
                file.createDimension("x", 30)
                for name in names:
                    file.createVariable(name, "i2", ("y", "x"))[:] = np.arange(600).reshape(20, 30)
            if len(names) == 1:
                with open_source(tmp_path / "a.nc") as source:
                    assert source.read()[0].shape == (20, 30)
        refuse(tmp_path / "a.nc", r"NetCDF file of 2 arrays \(first, second\); save the array you mean")

    def test_arrays_in_hdf5_are_named(self, tmp_path):
        pytest.importorskip("rasterio")
        shutil = pytest.importorskip("rasterio.shutil")
        tifffile.imwrite(tmp_path / "a.tif", np.stack([PIXELS] * 2), photometric="minisblack", metadata=None)
        try:
            shutil.copy(tmp_path / "a.tif", tmp_path / "a.nc", driver="netCDF", FORMAT="NC4")
        except Exception:
            pytest.skip("this GDAL does not write NetCDF 4")
        refuse(tmp_path / "a.nc", "HDF5 or NetCDF 4 file.*; save the array you mean as TIFF")


def slow_files(folder):
    """Make what blocks for ever, or never ends, when it is read like a file."""
    os.mkfifo(folder / "pipe.png")
    os.mkfifo(folder / "pipe.geojson")
    (folder / "zero.tif").symlink_to("/dev/zero")
    return [folder / name for name in ("pipe.png", "pipe.geojson", "zero.tif")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
class TestPipesAndDevices:
    @pytest.mark.parametrize(
        "read",
        [
            read_image, read_pages, read_header, read_mask, read_labels, read_label_picture, open_source,
            lambda path: read_seed_file(path, PIXELS.shape), lambda path: open_source(path, level=1),
        ],
    )  # fmt: skip
    def test_no_reader_waits_for_them(self, tmp_path, read):
        for path in slow_files(tmp_path):
            with pytest.raises(ImageReadError, match="this is a device or a pipe, not a file"):
                read(path)

    def test_nor_as_a_mask(self, tmp_path):
        image = io_scenes.write(tmp_path / "i.png", PIXELS)
        for path in slow_files(tmp_path):
            with pytest.raises(ImageReadError, match="this is a device or a pipe, not a file"):
                open_source(image, mask=path)

    def test_nor_inside_a_store(self, tmp_path):
        os.mkfifo(store(tmp_path / "s") / "0.0")
        refuse(tmp_path / "s", "this is a device or a pipe")
        (tmp_path / "t").mkdir()
        os.mkfifo(tmp_path / "t" / ".zarray")
        refuse(tmp_path / "t", "broken")
        shutil.copy(tmp_path / "s" / ".zarray", tmp_path / "zarray")

    def test_nor_beside_what_gdal_reads(self, tmp_path):
        pytest.importorskip("rasterio")
        rows = "\n".join(" ".join(map(str, row)) for row in PIXELS)
        size = f"ncols {PIXELS.shape[1]}\nnrows {PIXELS.shape[0]}\nxllcorner 0\nyllcorner 0\ncellsize 1\n"
        (tmp_path / "a.asc").write_text(size + rows)
        with open_source(tmp_path / "a.asc") as source:
            assert source.shape == PIXELS.shape
        os.mkfifo(tmp_path / "a.prj")
        refuse(tmp_path / "a.asc", "not an image")

    def test_nor_as_an_envi_header(self, tmp_path):
        (tmp_path / "d.dat").write_bytes(bytes(range(256)) * 4)
        os.mkfifo(tmp_path / "d.hdr")
        refuse(tmp_path / "d.dat", "unknown content, not an image")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"page": "x"}, "page must be a whole number or None, got 'x'"),
        ({"page": 0.5}, "page must be a whole number"),
        ({"page": True}, "page must be a whole number"),
        ({"max_pixels": "1M"}, "max_pixels must be a whole number or None, got '1M'"),
        ({"channel_axis": True}, "channel_axis must be a whole number"),
        ({"bands": "12"}, "bands must be a sequence of whole numbers"),
        ({"bands": [0.5]}, "bands must be a whole number"),
        ({"bands": 3}, "bands must be a sequence"),
        ({"nodata": "none"}, "nodata must be a number"),
    ],
)
def test_the_file_is_not_blamed_for_the_errors_of_the_caller(tmp_path, options, reason):
    with pytest.raises(TypeError, match=reason):
        read_image(tmp_path / "absent.png", **options)
