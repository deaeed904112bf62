"""What lies next to an image or in its tags: masks, no-data values, georeferences, ENVI headers, outlines."""

import json
import os
import time
import warnings
from importlib.util import find_spec

import io_scenes
import numpy as np
import pytest
import tifffile
from io_scenes import SHAPE, scene

from texseg.channels.planes import split_planes
from texseg.io.files import ImageReadError
from texseg.io.polygons import polygons
from texseg.io.read import open_source, read_header, read_image
from texseg.io.regions import PixelSize
from texseg.segmenter import segment

PIXELS = scene()[0]
HOLE = io_scenes.hole()
SYSTEM = 'PROJCS["UTM 33N",GEOGCS["WGS 84",AUTHORITY["EPSG","4326"]],AUTHORITY["EPSG","32633"]]'
PAM = (
    "<PAMDataset><SRS>{system}</SRS><GeoTransform>500000, .5, 0, 5200000, 0, -.5</GeoTransform>"
    '<PAMRasterBand band="1"><NoDataValue>{nodata}</NoDataValue></PAMRasterBand></PAMDataset>'
)
KEYS = (1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32767)


class TestSidecars:
    def test_mask_of_gdal(self, tmp_path):
        path = io_scenes.tiff(tmp_path / "m.tif", PIXELS)
        io_scenes.tiff(tmp_path / "m.tif.msk", np.where(HOLE, 0, 255).astype(np.uint8), compression="zlib")
        image = read_image(path)
        assert np.array_equal(image.mask, ~HOLE)
        assert "masked by m.tif.msk next to the image" in image.notes
        io_scenes.tiff(tmp_path / "m.tif.msk", np.zeros((3, 3), np.uint8))
        image = read_image(path)
        assert image.mask is None
        assert "m.tif.msk next to the image has another size and is ignored" in image.notes

    @pytest.mark.parametrize("name", ["p.tif", "p.png"])
    def test_metadata_of_gdal(self, tmp_path, name):
        values = np.where(HOLE, 7, np.where(PIXELS == 7, 8, PIXELS)).astype(np.uint8)
        path = io_scenes.write(tmp_path / name, values)
        (tmp_path / (name + ".aux.xml")).write_text(PAM.format(system=SYSTEM, nodata=7))
        image = read_image(path)
        assert np.array_equal(image.mask, ~HOLE)
        assert (image.geo.epsg, image.geo.transform @ (2, 4)) == (32633, (500001.0, 5199998.0))

    @pytest.mark.parametrize("text", ["<PAM", '<!DOCTYPE a [<!ENTITY b "c">]><PAMDataset/>'])
    def test_metadata_that_cannot_be_read_are_said(self, tmp_path, text):
        path = io_scenes.write(tmp_path / "p.png", PIXELS)
        (tmp_path / "p.png.aux.xml").write_text(text)
        assert read_image(path).notes == ("p.png.aux.xml next to the image cannot be read and is ignored",)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
    @pytest.mark.parametrize("name", ["w.pgw", "w.png.aux.xml", "w.png.msk", "w.prj"])
    def test_a_pipe_beside_the_image_is_not_waited_for(self, tmp_path, name):
        path = io_scenes.write(tmp_path / "w.png", PIXELS)
        os.mkfifo(tmp_path / name)
        assert np.array_equal(read_image(path).pixels, PIXELS)

    @pytest.mark.parametrize("text", ["nan 0 0 -1 5 5", "1 0 0 -1 inf 5", "1e300 0 0 -1 5 5", "0 0 0 0 5 5"])
    def test_world_files_that_place_nothing(self, tmp_path, text):
        path = io_scenes.write(tmp_path / "w.png", PIXELS)
        (tmp_path / "w.pgw").write_text(text)
        assert read_header(path).geo is None
        (tmp_path / "w.pgw").write_text("1 0 0 -1 5 5" + " " * 10_000)
        assert read_header(path).geo is None


class TestNoDataTags:
    def read(self, tmp_path, text, values):
        tag = (42113, 2, len(text) + 1, text, True)
        return read_image(io_scenes.tiff(tmp_path / "n.tif", values, planarconfig="contig", extratags=[tag]))

    @pytest.mark.parametrize("text", ["-3.4e+38", "-3.39999999999999996e+38", "-3.40282e38"])
    def test_rounded_largest_float(self, tmp_path, text, capfd):
        values = np.where(HOLE, np.finfo(np.float32).min, PIXELS).astype(np.float32)
        assert np.array_equal(self.read(tmp_path, text, values).mask, ~HOLE)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_largest_value_of_each_type(self, tmp_path, dtype):
        largest = np.finfo(dtype).max
        values = np.where(HOLE, largest, PIXELS.astype(dtype))
        assert np.array_equal(self.read(tmp_path, repr(float(largest)), values).mask, ~HOLE)

    def test_decimal_comma(self, tmp_path):
        values = np.where(HOLE, np.float32(-9999), PIXELS)
        assert np.array_equal(self.read(tmp_path, "-9999,0", values).mask, ~HOLE)

    def test_what_is_no_number_is_said(self, tmp_path):
        assert self.read(tmp_path, "none", PIXELS).notes == (
            "the no-data tag 'none' is not a number; pass the value as nodata=... (--nodata)",
        )

    def test_one_band_is_enough_unless_the_value_is_zero(self, tmp_path):
        values = np.dstack([PIXELS + np.float32(1)] * 3)
        values[HOLE, 1] = -9999
        image = self.read(tmp_path, "-9999", values)
        assert np.array_equal(image.mask, ~HOLE)
        assert "4900 pixels hold data in some of the bands only; they count as no data" in image.notes
        planes = split_planes(values, channel_axis=-1, nodata=-9999)
        assert np.array_equal(planes.mask, ~HOLE)
        other = np.roll(HOLE, 30, axis=1)
        values[other, 2] = -9999
        image = self.read(tmp_path, "-9999", values)
        assert np.array_equal(image.mask, ~(HOLE | other))
        assert f"{np.sum(HOLE | other)} pixels hold data in some of the bands only" in image.notes[0]
        values[other, 2] = 1
        values[HOLE, 1] = 0
        assert self.read(tmp_path, "0", values).mask is None
        assert split_planes(values, channel_axis=-1, nodata=0).mask is None

    @pytest.mark.parametrize("value", [np.nan, -9999])
    def test_a_dead_band_is_named_and_can_be_left_out(self, tmp_path, value):
        values = np.dstack([PIXELS + np.float32(i) for i in range(3)])
        values[..., 1] = value
        with pytest.raises(
            ValueError, match=r"band 1 .* leave it out with bands=\[0, 2\] \(--channels 0,2\)"
        ):
            self.read(tmp_path, "-9999", values)
        kept = read_image(tmp_path / "n.tif", bands=(0, 2))
        assert np.array_equal(kept.pixels, values[..., [0, 2]])
        with pytest.raises(ValueError, match=r"bands=\(3,\) .* must name different bands"):
            read_image(tmp_path / "n.tif", bands=(3,))
        with pytest.raises(ValueError, match=r"band 1 .* leave it out with bands=\[2\] \(--channels 2\)"):
            read_image(tmp_path / "n.tif", bands=(2, 1))
        with pytest.raises(ValueError, match=r"since band 1 \(counted from 0\) holds none"):
            split_planes(values, channel_axis=-1, nodata=-9999)


class TestOutlines:
    labels = np.ones((4, 4), int)

    def test_control_points_give_pixels_without_a_system(self, tmp_path):
        tie = (0.0, 0.0, 0.0, 5e5, 5e6, 0.0, 9.0, 0.0, 0.0, 5.1e5, 5e6, 0.0)
        tags = [(33922, 12, 12, tie, True), io_scenes.GEO_TAGS[2]]
        geo = read_image(io_scenes.tiff(tmp_path / "g.tif", PIXELS, extratags=tags)).geo
        with pytest.warns(UserWarning, match="no map from pixels to it"):
            found = polygons(self.labels, geo=geo)
        assert "crs" not in found
        assert found["features"][0]["geometry"]["coordinates"][0][2] == [4, 4]

    @pytest.mark.parametrize("raster_type", [1, 2])
    def test_a_system_without_a_map_gets_the_one_of_the_world_file(self, tmp_path, raster_type):
        keys = list(io_scenes.GEO_TAGS[2])
        keys[3] = tuple(raster_type if i == 11 else value for i, value in enumerate(keys[3]))
        path = io_scenes.tiff(tmp_path / "w.tif", PIXELS, extratags=[tuple(keys)])
        (tmp_path / "w.tfw").write_text(io_scenes.WORLD_FILE)
        geo = read_image(path).geo
        assert (geo.epsg, geo.transform[:6]) == (32633, (0.5, 0, 5e5, 0, -0.5, 5.2e6))
        found = polygons(self.labels, geo=geo)
        assert found["crs"]["properties"]["name"].endswith("EPSG::32633")
        assert found["features"][0]["geometry"]["coordinates"][0][0] == [5e5, 5.2e6]

    def test_system_without_a_code(self, tmp_path, monkeypatch):
        tags = [*io_scenes.GEO_TAGS[:2], (34735, 3, len(KEYS), KEYS, True)]
        geo = read_image(io_scenes.tiff(tmp_path / "c.tif", PIXELS, extratags=tags)).geo
        monkeypatch.setattr("texseg.io.polygons.to_longitude_latitude", lambda points, geo: None)
        with pytest.warns(UserWarning, match="no EPSG code"):
            assert "crs" not in polygons(self.labels, geo=geo)
        monkeypatch.setattr("texseg.io.polygons.to_longitude_latitude", lambda points, geo: points / 1e6)
        found = polygons(self.labels, geo=geo)
        assert found["features"][0]["geometry"]["coordinates"][0][0] == [0.5, 5.2]

    @pytest.mark.parametrize("place", ["prj", "metadata"])
    def test_system_described_in_words(self, tmp_path, place):
        crs = pytest.importorskip("rasterio.crs")
        words = crs.CRS.from_epsg(32633).to_wkt(version="WKT1_ESRI")
        assert "EPSG" not in words and "AUTHORITY" not in words
        path = io_scenes.write(tmp_path / "i.png", PIXELS)
        if place == "prj":
            (tmp_path / "i.pgw").write_text(io_scenes.WORLD_FILE)
            (tmp_path / "i.prj").write_text(words)
        else:
            (tmp_path / "i.png.aux.xml").write_text(
                f"<PAMDataset><SRS>{words}</SRS><GeoTransform>500000,0.5,0,5200000,0,-0.5</GeoTransform></PAMDataset>"
            )
        found = polygons(self.labels, geo=read_image(path).geo)
        assert "crs" not in found
        corner = found["features"][0]["geometry"]["coordinates"][0][0]
        assert corner == pytest.approx((15.0, 46.954), abs=1e-3)

    def test_system_without_a_code_in_longitude_and_latitude(self, tmp_path):
        pytest.importorskip("rasterio")
        from rasterio.crs import CRS
        from rasterio.io import MemoryFile
        from rasterio.transform import Affine

        system = CRS.from_proj4("+proj=laea +lat_0=50 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80")
        options = {"width": 192, "height": 160, "count": 1, "dtype": "uint8", "driver": "GTiff"}
        with MemoryFile() as memory:
            with memory.open(
                crs=system, transform=Affine(10, 0, 4321000, 0, -10, 3210000), **options
            ) as file:
                file.write(PIXELS, 1)
            (tmp_path / "c.tif").write_bytes(memory.read())
        found = polygons(self.labels, geo=read_image(tmp_path / "c.tif").geo)
        ring = np.array(found["features"][0]["geometry"]["coordinates"][0])
        assert "crs" not in found
        np.testing.assert_allclose(ring.min(axis=0), [10, 49.99964], atol=1e-5)
        json.dumps(found, allow_nan=False)


class TestEnvi:
    pytestmark = pytest.mark.skipif(find_spec("rasterio") is None, reason="read by GDAL")

    def write(self, tmp_path, array, interleave, data_type, order=0, **entries):
        bands = array if array.ndim == 3 else array[..., None]
        axes = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}[interleave]
        stored = bands.transpose(axes)
        (tmp_path / "e.dat").write_bytes(
            b"1234" + stored.astype(stored.dtype.newbyteorder("<>"[order])).tobytes()
        )
        header = {
            "samples": SHAPE[1], "lines": SHAPE[0], "bands": bands.shape[2], "header offset": 4,
            "data type": data_type, "interleave": interleave, "byte order": order, **entries,
        }  # fmt: skip
        (tmp_path / "e.hdr").write_text("ENVI\n" + "\n".join(f"{k} = {v}" for k, v in header.items()))
        return tmp_path / "e.dat"

    @pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
    @pytest.mark.parametrize(("dtype", "number"), [(np.int16, 2), (np.float32, 4), (np.uint16, 12)])
    @pytest.mark.parametrize("order", [0, 1])
    def test_layouts_and_types(self, tmp_path, interleave, dtype, number, order):
        cube = np.dstack([PIXELS.astype(dtype) * (i + 1) for i in range(5)])
        image = read_image(self.write(tmp_path, cube, interleave, number, order))
        assert image.pixels.dtype == dtype
        assert np.array_equal(image.pixels, cube)

    def test_place_and_no_data(self, tmp_path):
        values = np.where(HOLE, 3, np.where(PIXELS == 3, 4, PIXELS)).astype(np.uint8)
        entries = {
            "map info": "{UTM, 1, 1, 500000, 5200000, 0.5, 0.5, 33, North, WGS-84}",
            "data ignore value": 3,
        }
        image = read_image(self.write(tmp_path, values, "bsq", 1, **entries))
        assert np.array_equal(image.mask, ~HOLE)
        assert (image.geo.epsg, image.geo.transform @ (0, 0)) == (32633, (500000.0, 5200000.0))

    @pytest.mark.parametrize("filler", ["\n", " \n", " ", "a = {\n", "a={", "a", "b = 1\n"])
    def test_a_long_header_takes_no_longer_than_it_is(self, tmp_path, filler):
        path = self.write(tmp_path, PIXELS, "bsq", 1)
        header = tmp_path / "e.hdr"
        header.write_text(header.read_text() + "\n" + filler * (2_000_000 // len(filler)))
        start = time.perf_counter()
        assert np.array_equal(read_image(path).pixels, PIXELS)
        assert time.perf_counter() - start < 5

    def test_a_value_over_several_lines(self, tmp_path):
        path = self.write(tmp_path, PIXELS, "bsq", 1, description="{made of\n\nlines = 7\n}", lines=160)
        assert np.array_equal(read_image(path).pixels, PIXELS)

    def test_broken_ones(self, tmp_path, monkeypatch):
        path = self.write(tmp_path, PIXELS, "bsq", 1, lines=1000)
        with pytest.raises(ImageReadError, match="not as its ENVI header says"):
            read_image(path)
        with pytest.raises(ImageReadError, match="pass the data file next to it"):
            read_image(tmp_path / "e.hdr")
        path = self.write(tmp_path, PIXELS.astype(np.complex64), "bsq", 6)
        with pytest.raises(ValueError, match="values of type complex64; expected real numbers"):
            read_image(path)
        path = self.write(tmp_path, PIXELS, "bsq", 1, samples="many")
        with pytest.raises(ImageReadError, match="not as its ENVI header says"):
            read_image(path)
        monkeypatch.setattr("texseg.io.raster.find_spec", lambda name: None)
        with pytest.raises(ImageReadError, match="ENVI images need rasterio"):
            read_image(path)


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 2, 4), (3, 3, 4), (4, 5, 2), (1, 7, 4)])
def test_a_few_pixels_and_one_valid_pixel(shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    mask = np.zeros(shape[:2], bool)
    mask[0, 0] = True
    for valid, number in ((None, 2), (mask, 2), (None, None), (mask, None)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = segment(image, number, channel_axis=-1, mask=valid)
        assert np.array_equal(labels > 0, np.ones(shape[:2], bool) if valid is None else valid)


def test_images_that_are_no_arrays():
    with pytest.raises(ValueError, match="a list stands for several images"):
        segment(PIXELS.tolist(), 2)
    with pytest.raises(ValueError, match="an image must be an array, got nested lists of unequal lengths"):
        segment([[[1], [2, 3]]], 2)
    with pytest.raises(ValueError, match=r"channel_axis must be a whole number from -4 to 3, got \(0,\)"):
        segment(np.zeros((3, 9, 9)), 2, channel_axis=(0,))


def test_ome_tiff_cut_by_one_byte_is_refused(tmp_path):
    path = tmp_path / "o.ome.tif"
    tifffile.imwrite(path, np.stack([PIXELS] * 3), ome=True, metadata={"axes": "CYX"})
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ImageReadError, match="truncated"):
        read_image(path)


class TestPixelSize:
    """What a file says about the size of its pixels; what is said for printers is not taken for a length."""

    @pytest.mark.parametrize(
        "options, expected",
        [
            ({"ome": True, "metadata": {"PhysicalSizeX": 0.25, "PhysicalSizeY": 0.5}}, (0.5, 0.25, "um")),
            (
                {"ome": True, "metadata": {"PhysicalSizeX": 2, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 2,
                                           "PhysicalSizeYUnit": "nm"}},
                (2, 2, "nm"),
            ),
            (
                {"ome": True, "metadata": {"PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm",
                                           "PhysicalSizeY": 500, "PhysicalSizeYUnit": "nm"}},
                (0.5, 0.25, "um"),
            ),
            ({"ome": True, "metadata": {"PhysicalSizeX": 2}}, None),
            (
                {"ome": True, "metadata": {"PhysicalSizeX": 2, "PhysicalSizeXUnit": "reference frame",
                                           "PhysicalSizeY": 2}},
                None,
            ),
            ({"imagej": True, "resolution": (4, 4), "metadata": {"unit": "micron"}}, (0.25, 0.25, "um")),
            ({"imagej": True, "resolution": (4, 2), "metadata": {"unit": "pixel"}}, None),
            ({"resolution": (20_000, 40_000), "resolutionunit": "CENTIMETER"}, (0.25, 0.5, "um")),
            ({"resolution": (300, 300), "resolutionunit": "INCH"}, None),
            ({"resolution": (10, 10), "resolutionunit": "CENTIMETER"}, None),  # what libvips writes by itself
            ({"resolution": (0, 0), "resolutionunit": "CENTIMETER"}, None),
            ({}, None),
        ],
    )  # fmt: skip
    def test_of_tiff_files(self, tmp_path, options, expected):
        tifffile.imwrite(tmp_path / "p.tif", PIXELS, **options)
        assert read_image(tmp_path / "p.tif").pixel_size == (expected and PixelSize(*expected))
        with open_source(tmp_path / "p.tif") as windows:
            assert windows.pixel_size == (expected and PixelSize(*expected))

    @pytest.mark.parametrize(
        "keys, expected",
        [
            ((3072, 0, 1, 32633), (2, 2, "m")),
            ((3072, 0, 1, 2263, 3076, 0, 1, 9003), (2, 2, "us-ft")),
            ((3072, 0, 1, 2263), None),  # feet, which nothing in the file says
            ((2048, 0, 1, 4326), None),
            ((3072, 0, 1, 3857, 3076, 0, 1, 9001), None),
        ],
    )
    def test_of_maps(self, tmp_path, keys, expected):
        directory = (1, 1, 0, len(keys) // 4, *keys)
        tags = [
            (33550, 12, 3, (2.0, 2.0, 0.0), True),
            (33922, 12, 6, (0.0, 0.0, 0.0, 5e5, 5e6, 0.0), True),
            (34735, 3, len(directory), directory, True),
        ]
        assert read_image(io_scenes.tiff(tmp_path / "m.tif", PIXELS, extratags=tags)).pixel_size == (
            expected and PixelSize(*expected)
        )

    def test_levels_of_a_pyramid_have_larger_pixels(self, tmp_path):
        with tifffile.TiffWriter(tmp_path / "p.tif") as file:
            size = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
            file.write(np.zeros((128, 128), np.uint8), subifds=1, tile=(32, 32), **size)
            file.write(np.zeros((64, 64), np.uint8), subfiletype=1, tile=(32, 32))
        with open_source(tmp_path / "p.tif", level=1) as windows:
            assert windows.pixel_size == PixelSize(2, 2, "um")
