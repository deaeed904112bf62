"""What is read window by window is what is read as a whole, whatever the file is like inside."""

import pickle

import io_scenes
import numpy as np
import pytest
import tifffile

from texseg.io.files import ImageReadError, UnsuitableImageError
from texseg.io.read import open_source, read_image

zarr = pytest.importorskip("zarr")

WINDOW = slice(33, 190), slice(70, 201)
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 255, (200, 260)).astype(np.uint8)
COLOUR = RNG.integers(0, 255, (200, 260, 3)).astype(np.uint8)
ALPHA = np.concatenate([COLOUR, 255 * (GREY > 40)[..., None].astype(np.uint8)], axis=-1)
PALETTE = RNG.integers(0, 2**16, (3, 256)).astype(np.uint16)
TILED = {"tile": (64, 64), "compression": "zlib"}

TIFFS = {
    "tiles": (GREY, TILED),
    "colour": (COLOUR, {**TILED, "photometric": "rgb"}),
    "planes": (np.moveaxis(COLOUR, -1, 0), {**TILED, "photometric": "rgb", "planarconfig": "separate"}),
    "strips": (COLOUR, {"compression": "lzw", "rowsperstrip": 16, "photometric": "rgb"}),
    "one strip": (GREY, {"compression": "zlib", "rowsperstrip": 200}),
    "uncompressed, big-endian": (GREY / np.float32(7), {"byteorder": ">"}),
    "BigTIFF": (GREY.astype(np.uint16), {"bigtiff": True}),
    "alpha": (ALPHA, {**TILED, "photometric": "rgb", "extrasamples": ["unassalpha"]}),
    "palette": (GREY, {**TILED, "photometric": "palette", "colormap": PALETTE}),
    "white is zero": (GREY, {**TILED, "photometric": "miniswhite"}),
    "no data": (GREY, {**TILED, "extratags": [(42113, 2, 3, "17", True)]}),
}


@pytest.mark.parametrize("kind", sorted(TIFFS))
def test_tiff_windows(tmp_path, kind):
    array, options = TIFFS[kind]
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, array, **options)
    whole = read_image(path)
    with open_source(path) as windows:
        pixels, mask = windows.read(WINDOW)[:2]
    np.testing.assert_array_equal(pixels, whole.pixels[WINDOW])
    assert pixels.dtype == whole.pixels.dtype and windows.channel_axis == whole.channel_axis
    assert windows.shape == whole.pixels.shape[:2]
    if whole.mask is None:
        assert mask is None or mask.all()
    else:
        np.testing.assert_array_equal(mask, whole.mask[WINDOW])


def test_tiles_that_a_sparse_file_leaves_out_hold_no_data(tmp_path):
    path = tmp_path / "sparse.tif"

    def tiles():
        for i in range(4 * 5):
            yield None if i in (6, 11) else np.full((64, 64), i + 1, np.uint8)

    tifffile.imwrite(path, tiles(), shape=GREY.shape, dtype=np.uint8, **TILED)
    whole = read_image(path)
    with open_source(path) as windows:
        _, mask = windows.read(WINDOW)[:2]
    assert not mask.all()
    np.testing.assert_array_equal(mask, whole.mask[WINDOW])


def test_pages_and_levels(tmp_path):
    stack = tmp_path / "stack.tif"
    tifffile.imwrite(stack, np.stack([GREY, GREY[::-1]]), photometric="minisblack", **TILED)
    with open_source(stack, page=1) as windows:
        np.testing.assert_array_equal(windows.read(WINDOW)[0], GREY[::-1][WINDOW])
    with pytest.raises(UnsuitableImageError, match="stack.tif: 2 pages: choose one"):
        open_source(stack)
    pyramid = tmp_path / "slide.ome.tif"
    with tifffile.TiffWriter(pyramid, ome=True) as file:
        file.write(GREY, subifds=1, tile=(64, 64), metadata={"axes": "YX"})
        file.write(GREY[::2, ::2], subfiletype=1, tile=(64, 64))
    with open_source(pyramid, level=1) as windows:
        assert windows.levels == ((200, 260), (100, 130)) and windows.shape == (100, 130)
        pixels, _ = windows.read((slice(9, 80), slice(5, 50)))[:2]
        np.testing.assert_array_equal(pixels, GREY[::2, ::2][9:80, 5:50])
    with pytest.raises(UnsuitableImageError, match="level 2 does not exist, levels are 0 to 1"):
        open_source(pyramid, level=2)


def test_arrays(tmp_path):
    np.save(tmp_path / "image.npy", COLOUR)
    array = zarr.create_array(tmp_path / "image.zarr", shape=COLOUR.shape, dtype="u1", chunks=(50, 64, 3))
    array[:] = COLOUR
    for name in ("image.npy", "image.zarr"):
        with open_source(tmp_path / name, channel_axis=-1, nodata=3) as windows:
            pixels, mask = windows.read(WINDOW)[:2]
        np.testing.assert_array_equal(pixels, COLOUR[WINDOW])
        np.testing.assert_array_equal(mask, (COLOUR[WINDOW] != 3).all(axis=-1))
        with pytest.raises(UnsuitableImageError, match="does not say what its axes are"):
            open_source(tmp_path / name)


def test_ome_zarr_says_itself_where_its_channels_are(tmp_path):
    group = zarr.open_group(tmp_path / "slide.zarr", mode="w")
    for level in (0, 1):
        values = np.moveaxis(COLOUR, -1, 0)[:, :: 2**level, :: 2**level][None]
        array = group.create_array(str(level), shape=values.shape, dtype="u1", chunks=(1, 1, 64, 64))
        array[:] = values
    axes = [{"name": name} for name in "tcyx"]
    datasets = [{"path": "0"}, {"path": "1"}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    with open_source(tmp_path / "slide.zarr", level=1) as windows:
        assert windows.levels == ((200, 260), (100, 130))
        pixels, _ = windows.read((slice(9, 80), slice(5, 50)))[:2]
        np.testing.assert_array_equal(pixels, COLOUR[::2, ::2][9:80, 5:50])


def assert_windows_are_those_of_the_whole(path, **options):
    whole = read_image(path, **options)
    with open_source(path, **options) as windows:
        pixels, mask = windows.read(WINDOW)[:2]
        assert (windows.n_channels, windows.channel_axis) == (
            1 if whole.channel_axis is None else whole.pixels.shape[-1],
            whole.channel_axis,
        )
        assert windows.nodata == whole.nodata
    np.testing.assert_array_equal(pixels, whole.pixels[WINDOW])
    np.testing.assert_array_equal(mask, whole.mask[WINDOW])
    assert not mask.all()
    return windows


PAM = "<PAMDataset>{}</PAMDataset>"
BAND = '<PAMRasterBand band="{}"><NoDataValue>{}</NoDataValue></PAMRasterBand>'


class TestWhatLiesBesideAnImage:
    def test_no_data_of_all_bands_and_of_each(self, tmp_path):
        path = tmp_path / "image.tif"
        values = COLOUR.copy()
        values[40:50, 80:90] = 0
        tifffile.imwrite(path, values, photometric="rgb", **TILED)
        for bands in ([(1, 17)], [(1, 17), (2, 0), (3, 9)], [(1, 0), (2, 0), (3, 0)], [(2, 200)]):
            said = PAM.format("".join(BAND.format(*band) for band in bands))
            (tmp_path / "image.tif.aux.xml").write_text(said)
            assert_windows_are_those_of_the_whole(path)

    def test_mask(self, tmp_path):
        path = tmp_path / "image.tif"
        tifffile.imwrite(path, GREY, **TILED)
        tifffile.imwrite(tmp_path / "image.tif.msk", 255 * (GREY > 9).astype(np.uint8), **TILED)
        found = assert_windows_are_those_of_the_whole(path)
        assert "masked by image.tif.msk next to the image" in found.notes
        tifffile.imwrite(tmp_path / "image.tif.msk", GREY[:9], **TILED)
        with open_source(path) as windows:
            assert windows.read(WINDOW)[1] is None
            assert "image.tif.msk next to the image has another size and is ignored" in windows.notes
        (tmp_path / "image.tif.msk").write_bytes(b"no mask")
        with open_source(path) as windows:
            assert windows.read(WINDOW)[1] is None
            assert "cannot be read and is ignored" in windows.notes[0]

    def test_georeference_of_every_level(self, tmp_path):
        pyramid = tmp_path / "slide.tif"
        with tifffile.TiffWriter(pyramid) as file:
            file.write(GREY, subifds=1, tile=(64, 64))
            file.write(GREY[::2, ::2], subfiletype=1, tile=(64, 64))
        (tmp_path / "slide.tfw").write_text("2 0 0 -2 500 700")
        for level in (0, 1):
            with open_source(pyramid, level=level) as windows:
                affine = windows.geo.transform
                assert (affine.c, affine.f) == (499, 701)  # the outer corner
                height, width = windows.shape
                assert affine @ (width, height) == (499 + 2 * GREY.shape[1], 701 - 2 * GREY.shape[0])


def test_some_of_the_bands(tmp_path):
    path = tmp_path / "image.tif"
    values = COLOUR.astype(np.float32)
    values[..., 1] = -9999
    values[:60, :90, 2] = -9999
    tifffile.imwrite(path, values, photometric="rgb", extratags=[(42113, 2, 6, "-9999", True)], **TILED)
    assert_windows_are_those_of_the_whole(path, bands=(2, 0))
    assert_windows_are_those_of_the_whole(path, bands=(2,))
    with pytest.raises(UnsuitableImageError, match=r"image.tif: bands=\(3,\) .* from 0 to 2"):
        open_source(path, bands=(3,))


def test_channels_that_are_stored_as_pages_of_a_sparse_file(tmp_path):
    path = tmp_path / "sparse.ome.tif"

    def tiles():
        for i in range(3 * 4 * 5):
            yield None if i in (6, 31, 51) else np.full((64, 64), i + 1, np.uint8)

    tifffile.imwrite(path, tiles(), shape=(3, *GREY.shape), dtype=np.uint8, metadata={"axes": "CYX"}, **TILED)
    assert_windows_are_those_of_the_whole(path)


def test_a_tile_that_holds_a_larger_picture_is_refused_when_it_is_reached(tmp_path):
    """Whole reading refuses it at once; by windows, only tiles that are read are looked at."""
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, GREY, tile=(64, 64), compression="jpeg")
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        offset = file.pages[0].dataoffsets[-1]
    frame = content.index(b"\xff\xc0", offset)
    content[frame + 5 : frame + 9] = b"\xea\x60" * 2
    path.write_bytes(content)
    with open_source(path) as windows:
        windows.read((slice(0, 100), slice(0, 100)))
        with pytest.raises(ImageReadError, match="image.tif: .*(holds a picture|truncated)"):
            windows.read((slice(150, 200), slice(200, 260)))


@pytest.mark.filterwarnings("ignore")  # of rasterio, about its own dependencies
def test_any_raster_that_gdal_reads(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    place = rasterio.transform.from_origin(500, 700, 2, 2)
    shape = {"width": 260, "height": 200, "count": 1, "dtype": "uint8"}
    with rasterio.open(tmp_path / "map.img", "w", driver="HFA", nodata=7, transform=place, **shape) as file:
        file.write(GREY, 1)
    with open_source(tmp_path / "map.img") as windows:
        pixels, mask = windows.read(WINDOW)[:2]
        np.testing.assert_array_equal(pixels, GREY[WINDOW])
        np.testing.assert_array_equal(mask, GREY[WINDOW] != 7)
        assert (windows.geo.transform.a, windows.geo.transform.c, windows.geo.transform.f) == (2, 500, 700)


def test_what_cannot_be_read_by_windows(tmp_path):
    with pytest.raises(ImageReadError, match="absent.tif: no such file"):
        open_source(tmp_path / "absent.tif")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ImageReadError, match="folder: this is a folder, not an image"):
        open_source(tmp_path / "folder")
    np.save(tmp_path / "complex.npy", np.ones((4, 4), complex))
    with pytest.raises(
        UnsuitableImageError, match="complex.npy: array of shape .* complex128 is not an image"
    ):
        open_source(tmp_path / "complex.npy")
    np.save(tmp_path / "grey.npy", GREY)
    with pytest.raises(UnsuitableImageError, match="only pyramids .* have levels"):
        open_source(tmp_path / "grey.npy", level=1)
    for suffix in ("png", "jpg", "webp", "gif"):  # GDAL would read a large one for hours
        path = io_scenes.write(tmp_path / f"picture.{suffix}", GREY)
        with open_source(path) as source:
            assert "files can only be read whole; convert it to a tiled" in source.only_whole
            pixels = source.read(WINDOW)[0]
            np.testing.assert_array_equal(pixels, source.read()[0][WINDOW])
    (tmp_path / "cut.tif").write_bytes(b"II*\0\x08\0\0\0")
    with pytest.raises(ImageReadError, match="cut.tif"):
        open_source(tmp_path / "cut.tif")


def test_an_open_image_that_is_sent_to_another_process_is_opened_there(tmp_path, monkeypatch):
    """With the same page, bands and mask, wherever that process runs."""
    colours = np.dstack([GREY, GREY // 2, GREY // 3])
    io_scenes.tiff(tmp_path / "a.tif", colours, photometric="rgb", tile=(64, 64))
    io_scenes.write(
        tmp_path / "mask.png", (255 * (np.indices(GREY.shape).sum(axis=0) % 3 > 0)).astype(np.uint8)
    )
    monkeypatch.chdir(tmp_path)
    with open_source("a.tif", bands=[2, 0], mask="mask.png") as source:
        sent, here = pickle.dumps(source), source.read(WINDOW)
        monkeypatch.chdir("/")
        there = pickle.loads(sent).read(WINDOW)
    for own, other in zip(here[:2], there[:2], strict=True):
        np.testing.assert_array_equal(own, other)
