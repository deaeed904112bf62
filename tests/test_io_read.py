"""The reader: every encoding gives the values that were written, and what is broken is refused."""

import struct
import threading
import zlib
from pathlib import Path

import imagecodecs
import io_scenes
import numpy as np
import pytest
import tifffile
from io_scenes import SHAPE, read_mask, read_pages, scene, stored_with_orientation
from PIL import Image, ImageFile

from texseg.io.files import ImageReadError, ImageTooLargeError
from texseg.io.read import read_header, read_image, read_labels

PIXELS = scene()[0]


def grey_of(image):
    return image.pixels if image.channel_axis is None else image.pixels[..., 0]


def affine_residual(values):
    """Largest deviation from the best affine map of the scene, in parts of the range."""
    x, y = PIXELS.astype(np.float64).ravel(), values.astype(np.float64).ravel()
    fit = np.polyval(np.polyfit(x, y, 1), x)
    return np.abs(fit - y).max() / np.ptp(y)


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    return io_scenes.exact_encodings(tmp_path_factory.mktemp("exact"))


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    return io_scenes.lossy_encodings(tmp_path_factory.mktemp("lossy"))


class TestEncodings:
    def test_exact_encodings_give_an_affine_map_of_the_scene(self, exact):
        assert len(exact) >= 16
        for name, path in exact.items():
            image = read_image(path)
            assert grey_of(image).shape == SHAPE, name
            assert affine_residual(grey_of(image)) < 1e-12, name
            assert np.corrcoef(grey_of(image).ravel().astype(float), PIXELS.ravel())[0, 1] > 0, name
            assert image.mask is None, name

    def test_lossy_encodings_are_close_and_upright(self, lossy):
        for name, path in lossy.items():
            grey = grey_of(read_image(path))
            assert grey.shape == SHAPE, name
            assert np.median(np.abs(np.clip(grey, 0, 4000) - np.clip(grey, 0, 4000).mean())) > 0
            if name != "hot_pixels.tif":
                assert np.abs(grey.astype(int) - PIXELS).mean() < 3, name

    @pytest.mark.parametrize(
        ("name", "dtype"),
        [
            ("rgb16.png", np.uint16),
            ("gray16.png", np.uint16),
            ("gray16.j2k", np.uint16),
            ("u32.tif", np.uint32),
            ("u64.tif", np.uint64),
            ("i8.tif", np.int8),
            ("f16.tif", np.float16),
            ("f64_tiny_range.tif", np.float64),
            ("bigendian.npy", np.int32),
            ("u16_bigendian.tif", np.uint16),
        ],
    )
    def test_types_are_kept_in_native_byte_order(self, exact, name, dtype):
        image = read_image(exact[name])
        assert image.pixels.dtype == dtype
        assert image.pixels.dtype.isnative
        assert image.header.dtype == dtype

    def test_header_says_before_what_the_pixels_are_after(self, exact, lossy):
        for name, path in {**exact, **lossy}.items():
            header, image = read_header(path), read_image(path)
            stored = header.height, header.width
            assert stored == (SHAPE if header.orientation < 5 else SHAPE[::-1]), name
            assert header.n_channels == (1 if image.channel_axis is None else image.pixels.shape[2]), name
            assert header.dtype == image.pixels.dtype, name

    @pytest.mark.parametrize("depth", [1, 2, 4])
    def test_few_bits_a_pixel_png(self, tmp_path, depth):
        levels = 2**depth
        values = (PIXELS.astype(int) * levels // 256).astype(np.uint8)
        rows = np.packbits(
            np.unpackbits(values[..., None], axis=-1)[..., -depth:].reshape(SHAPE[0], -1), axis=1
        )
        filtered = b"".join(b"\0" + row.tobytes() for row in rows)
        path = tmp_path / "few.png"
        path.write_bytes(png_of(SHAPE, depth, 0, filtered))
        assert np.array_equal(read_image(path).pixels, values * (255 // (levels - 1)))

    @pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
    def test_one_bit_images(self, tmp_path, suffix):
        bits = PIXELS > 128
        path = tmp_path / f"bits.{suffix}"
        Image.fromarray(bits).save(path)
        found = read_image(path).pixels
        assert np.array_equal(found > 0, bits)
        assert len(np.unique(found)) == 2

    def test_fax_compressed_bilevel_tiff(self, tmp_path):
        bits = PIXELS > 128
        Image.fromarray(bits).save(tmp_path / "fax.tif", compression="group4")
        if tifffile.COMPRESSION.CCITT_T6 not in tifffile.TIFF.DECOMPRESSORS:  # before 2026
            with pytest.raises(ImageReadError, match="TIFF compression CCITT_T6 is not supported"):
                read_image(tmp_path / "fax.tif")
            return
        assert np.array_equal(read_image(tmp_path / "fax.tif").pixels > 0, bits)

    def test_cmyk_tiff_becomes_rgb(self, tmp_path):
        Image.Image.save(io_scenes.cmyk(PIXELS), tmp_path / "inks.tif")
        image = read_image(tmp_path / "inks.tif")
        assert image.pixels.shape == (*SHAPE, 3)
        assert np.array_equal(grey_of(image), PIXELS)

    def test_cmyk_jpeg_without_adobe_mark(self, tmp_path):
        inverted = Image.merge(
            "CMYK", [Image.fromarray(255 - np.asarray(b)) for b in io_scenes.cmyk(PIXELS).split()]
        )
        content = io_scenes.bytes_of(inverted.save, format="JPEG", quality=95)  # Pillow stores 255 - ink
        start = content.index(b"\xff\xee")
        end = start + 2 + struct.unpack(">H", content[start + 2 : start + 4])[0]
        (tmp_path / "inks.jpg").write_bytes(content[:start] + content[end:])
        assert np.abs(grey_of(read_image(tmp_path / "inks.jpg")).astype(int) - PIXELS).mean() < 3

    def test_sixteen_bit_palette_of_a_tiff(self, tmp_path):
        colours = np.random.default_rng(0).integers(0, 65536, (3, 256)).astype(np.uint16)
        path = io_scenes.tiff(tmp_path / "p.tif", PIXELS, photometric="palette", colormap=colours)
        image = read_image(path)
        assert image.pixels.dtype == np.uint16
        assert np.array_equal(image.pixels, colours.T[PIXELS])

    def test_palette_of_a_tiff_with_eight_bit_entries(self, tmp_path):
        colours = np.tile(np.arange(256, dtype=np.uint16), (3, 1))
        path = io_scenes.tiff(tmp_path / "p.tif", PIXELS, photometric="palette", colormap=colours)
        assert np.array_equal(grey_of(read_image(path)), PIXELS)

    def test_white_is_zero_in_one_bit_and_sixteen(self, tmp_path):
        for name, array in (("1.tif", PIXELS > 90), ("16.tif", PIXELS.astype(np.uint16) * 257)):
            inverse = ~array if array.dtype == bool else 65535 - array
            options = {"bitspersample": 1} if array.dtype == bool else {}
            path = io_scenes.tiff(tmp_path / name, inverse, photometric="miniswhite", **options)
            assert np.array_equal(read_image(path).pixels, array)

    def test_rle_and_palette_bmp(self, tmp_path):
        Image.fromarray(np.repeat(PIXELS[..., None], 3, -1)).quantize(64).save(tmp_path / "p.bmp")
        assert read_image(tmp_path / "p.bmp").pixels.shape == (*SHAPE, 3)

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_orientation_in_tiff_tag_jpeg_and_webp(self, tmp_path, orientation):
        stored = stored_with_orientation(PIXELS, orientation)
        paths = [
            io_scenes.tiff(tmp_path / "o.tif", stored, extratags=[(274, 3, 1, orientation, True)]),
            io_scenes.write(tmp_path / "o.jpg", stored, quality=98, exif=io_scenes.exif(orientation)),
            io_scenes.write(
                tmp_path / "o.webp",
                np.repeat(stored[..., None], 3, -1),
                lossless=True,
                exif=io_scenes.exif(orientation),
            ),
        ]
        for path in paths:
            image = read_image(path)
            assert np.abs(grey_of(image).astype(int) - PIXELS).mean() < 3
            assert any("turned upright" in note for note in image.notes) == (orientation != 1)

    def test_broken_exif_means_upright(self, tmp_path):
        content = bytearray(
            io_scenes.bytes_of(
                Image.fromarray(PIXELS).save, format="JPEG", quality=98, exif=io_scenes.exif(6)
            )
        )
        start = content.index(b"Exif\0\0")
        content[start + 6 : start + 20] = bytes(14)
        (tmp_path / "o.jpg").write_bytes(content)
        assert read_image(tmp_path / "o.jpg").pixels.shape == SHAPE

    def test_unicode_path(self, tmp_path):
        folder = tmp_path / "Bänke mit Leerzeichen" / "木目 текстура"
        folder.mkdir(parents=True)
        path = io_scenes.write(folder / "bild № 1 (копия).png", PIXELS)
        assert np.array_equal(read_image(path).pixels, PIXELS)
        assert np.array_equal(read_image(str(path)).pixels, PIXELS)


def png_of(shape, depth, colour, filtered, extra=b""):
    """Bytes of a PNG file with the given header and filtered rows."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", shape[1], shape[0], depth, colour, 0, 0, 0)
    body = extra + chunk(b"IDAT", zlib.compress(filtered))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


class TestNoData:
    hole = io_scenes.hole()

    @pytest.mark.parametrize(
        "name", ["rgba.png", "la.png", "rgba16.png", "rgba.tif", "rgba.webp", "rgba.jp2"]
    )
    def test_transparent_pixels_are_no_data_unless_alpha_is_ignored(self, tmp_path, name):
        alpha = np.where(self.hole, 0, 255).astype(np.uint8)
        noise = np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)
        grey = np.where(self.hole, noise, PIXELS)
        rgba = np.stack([grey, grey, grey, alpha], -1)
        path = tmp_path / name
        if name == "rgba16.png":
            io_scenes.png16(path, rgba.astype(np.uint16) * 257)
        elif name == "rgba.tif":
            io_scenes.tiff(path, rgba, photometric="rgb", extrasamples=["unassalpha"])
        elif name == "la.png":
            io_scenes.write(path, rgba[..., 2:])
        else:
            io_scenes.write(path, rgba, **({"lossless": True} if name == "rgba.webp" else {}))
        image = read_image(path)
        assert np.array_equal(image.mask, ~self.hole)
        assert image.pixels.ndim == (2 if name == "la.png" else 3)
        assert read_image(path, ignore_alpha=True).mask is None
        assert any("no data" in note for note in image.notes)

    def test_transparent_palette_entry_and_transparent_grey(self, tmp_path):
        grey = np.where(PIXELS == 0, 1, PIXELS).astype(np.uint8)
        grey[self.hole] = 0
        for image, name in ((Image.fromarray(grey).convert("P"), "p.png"), (Image.fromarray(grey), "l.png")):
            image.save(tmp_path / name, transparency=0)
            assert np.array_equal(read_image(tmp_path / name).mask, ~self.hole)
        for mode in ("P", "L"):
            Image.fromarray(grey).convert(mode).save(tmp_path / "t.gif", transparency=0)
            assert np.array_equal(read_image(tmp_path / "t.gif").mask, ~self.hole)

    @pytest.mark.parametrize(
        ("dtype", "nodata"),
        [
            (np.float32, "-9999"),
            (np.float32, "-3.4028234663852886e+38"),
            (np.float32, "-1.7976931348623157e+308"),
            (np.float64, "nan"),
            (np.uint8, "0"),
            (np.int16, "-32768"),
            (np.uint16, "65535"),
        ],
    )
    def test_gdal_nodata_tag(self, tmp_path, dtype, nodata):
        values = (PIXELS.astype(dtype) + dtype(1)) if dtype != np.uint8 else np.maximum(PIXELS, 1)
        with np.errstate(over="ignore"):
            values[self.hole] = np.float64(nodata).astype(dtype)
        tag = (42113, 2, len(nodata) + 1, nodata, True)
        path = io_scenes.tiff(tmp_path / "n.tif", values, extratags=[*io_scenes.GEO_TAGS, tag])
        image = read_image(path)
        assert np.array_equal(image.mask, ~self.hole)
        assert image.geo.epsg == 32633

    def test_a_nodata_tag_that_cannot_match_or_cannot_be_read_does_nothing(self, tmp_path):
        for text in ("-9999.5", "none", "1e40"):
            tag = (42113, 2, len(text) + 1, text, True)
            path = io_scenes.tiff(tmp_path / "n.tif", PIXELS, extratags=[tag])
            assert read_image(path).mask is None

    def test_untagged_zero_is_a_value_unless_told_otherwise(self, tmp_path):
        values = np.maximum(PIXELS, 1)
        values[self.hole] = 0
        path = io_scenes.write(tmp_path / "z.png", values)
        assert read_image(path).mask is None
        image = read_image(path, nodata=0)
        assert np.array_equal(image.mask, ~self.hole)
        assert image.nodata == 0

    def test_nodata_of_a_colour_pixel_needs_all_channels(self, tmp_path):
        values = np.full((4, 5, 3), 9, np.uint8)
        values[0, 0] = 0
        values[1, 1, 0] = 0
        path = io_scenes.write(tmp_path / "c.png", values)
        assert np.argwhere(~read_image(path, nodata=0).mask).tolist() == [[0, 0]]

    def test_mask_page_of_a_geotiff(self, tmp_path):
        path = tmp_path / "masked.tif"
        with tifffile.TiffWriter(path) as file:
            file.write(PIXELS, photometric="minisblack", metadata=None)
            file.write(~self.hole, photometric="mask", subfiletype=4, metadata=None)
        image = read_image(path)
        assert np.array_equal(image.pixels, PIXELS)
        assert np.array_equal(image.mask, ~self.hole)

    def test_tiles_left_out_of_a_sparse_file_are_no_data(self, tmp_path):
        tiles = (tile if i != 5 else None for i, tile in enumerate(tiles_of(PIXELS, 48, 48)))
        path = tmp_path / "sparse.tif"
        tifffile.imwrite(
            path,
            tiles,
            shape=SHAPE,
            dtype=np.uint8,
            tile=(48, 48),
            compression="zlib",
            photometric="minisblack",
            metadata=None,
        )
        image = read_image(path)
        missing = np.zeros(SHAPE, bool)
        missing[48:96, 48:96] = True
        assert np.array_equal(image.mask, ~missing)
        assert np.array_equal(image.pixels[image.mask], PIXELS[image.mask])

    def test_masks_in_every_form(self, tmp_path):
        valid = ~self.hole
        for name, array in {
            "bool.png": valid,
            "zero_one.png": valid.astype(np.uint8),
            "zero_255.png": valid.astype(np.uint8) * 255,
            "labels.tif": valid * np.uint16(480),
        }.items():
            path = tmp_path / name
            io_scenes.tiff(path, array) if name.endswith("tif") else io_scenes.write(path, array)
            assert np.array_equal(read_mask(path), valid)
        rgb = np.zeros((*SHAPE, 3), np.uint8)
        rgb[..., 2] = valid * 200
        assert np.array_equal(read_mask(io_scenes.write(tmp_path / "rgb.png", rgb)), valid)
        alpha = np.dstack([np.full((*SHAPE, 3), 255, np.uint8), valid.astype(np.uint8) * 255])
        assert np.array_equal(read_mask(io_scenes.write(tmp_path / "alpha.png", alpha)), valid)


def tiles_of(array, height, width):
    padded = np.pad(array, [(0, -n % size) for n, size in zip(array.shape, (height, width), strict=True)])
    for top in range(0, padded.shape[0], height):
        for left in range(0, padded.shape[1], width):
            yield np.ascontiguousarray(padded[top : top + height, left : left + width])


class TestPagesAndChannels:
    stack = np.stack([PIXELS, PIXELS[::-1], PIXELS[:, ::-1]])

    @pytest.mark.parametrize(
        "options",
        [{}, {"metadata": {}}, {"imagej": True, "metadata": {"axes": "ZYX"}}, {"compression": "zlib"}],
    )
    def test_three_pages_are_not_colour(self, tmp_path, options):
        path = tmp_path / "pages.tif"
        tifffile.imwrite(path, self.stack, photometric="minisblack", **options)
        with pytest.raises(ValueError, match=r"pages.tif: 3 pages: choose one with page=N"):
            read_image(path)
        for page in range(3):
            assert np.array_equal(read_image(path, page=page).pixels, self.stack[page])
        assert [np.array_equal(a.pixels, b) for a, b in zip(read_pages(path), self.stack, strict=True)] == [
            True
        ] * 3
        with pytest.raises(ValueError, match="page 3 does not exist, pages are 0 to 2"):
            read_image(path, page=3)

    def test_declared_channels_are_channels(self, tmp_path):
        paths = [tmp_path / "ome.tif", tmp_path / "imagej.tif"]
        tifffile.imwrite(paths[0], self.stack, ome=True, metadata={"axes": "CYX"})
        tifffile.imwrite(paths[1], self.stack, imagej=True, metadata={"axes": "CYX"})
        for path in paths:
            image = read_image(path)
            assert image.channel_axis == -1
            assert np.array_equal(image.pixels, np.moveaxis(self.stack, 0, -1))

    def test_pages_of_channels(self, tmp_path):
        volume = np.stack([self.stack, 255 - self.stack])  # Z C Y X
        path = tmp_path / "zc.tif"
        tifffile.imwrite(path, volume, imagej=True, metadata={"axes": "ZCYX"})
        image = read_image(path, page=1)
        assert np.array_equal(image.pixels, np.moveaxis(volume[1], 0, -1))
        assert read_header(path).n_pages == 2

    def test_pages_taken_for_channels_when_the_caller_says_so(self, tmp_path):
        path = tmp_path / "pages.tif"
        tifffile.imwrite(path, self.stack, photometric="minisblack")
        assert np.array_equal(read_image(path, channel_axis=0).pixels, np.moveaxis(self.stack, 0, -1))

    def test_channel_axis_that_contradicts_the_file(self, tmp_path):
        path = io_scenes.write(tmp_path / "rgb.png", np.repeat(PIXELS[..., None], 3, -1))
        assert read_image(path, channel_axis=-1).pixels.shape == (*SHAPE, 3)
        grey = io_scenes.write(tmp_path / "grey.png", PIXELS)
        assert read_image(grey, channel_axis=-1).channel_axis is None
        with pytest.raises(ValueError, match="contradicts the file"):
            read_image(path, channel_axis=0)
        with pytest.raises(ValueError, match="channel_axis=5 is not an axis"):
            read_image(path, channel_axis=5)

    @pytest.mark.parametrize("kind", ["contig", "separate"])
    def test_many_bands(self, tmp_path, kind):
        bands = np.stack([np.roll(PIXELS, i, axis=1) for i in range(12)])
        array = bands if kind == "separate" else np.moveaxis(bands, 0, -1)
        path = io_scenes.tiff(tmp_path / "bands.tif", array, planarconfig=kind)
        image = read_image(path)
        assert np.array_equal(image.pixels, np.moveaxis(bands, 0, -1))
        assert image.channel_axis == -1

    def test_four_bands_are_not_rgba(self, tmp_path):
        bands = np.stack([PIXELS.astype(np.uint16) * 200, PIXELS, PIXELS * 0, PIXELS], -1).astype(np.uint16)
        path = io_scenes.tiff(
            tmp_path / "rgbn.tif", bands, planarconfig="contig", extratags=io_scenes.GEO_TAGS
        )
        image = read_image(path)
        assert image.pixels.shape == (*SHAPE, 4)
        assert image.mask is None

    def test_thumbnail_page_is_left_aside_with_a_note(self, tmp_path):
        for flag in (0, 1):
            path = tmp_path / f"thumb{flag}.tif"
            with tifffile.TiffWriter(path) as file:
                file.write(PIXELS[::4, ::4], photometric="minisblack", subfiletype=flag, metadata=None)
                file.write(PIXELS, photometric="minisblack", metadata=None)
            image = read_image(path)
            assert np.array_equal(image.pixels, PIXELS)
            assert image.notes == ("a smaller image in the file is ignored (48 x 40)",)

    def test_two_images_of_equal_size_and_different_type(self, tmp_path):
        with tifffile.TiffWriter(tmp_path / "two.tif") as file:
            file.write(PIXELS, photometric="minisblack", metadata=None)
            file.write(np.stack([PIXELS, PIXELS[::-1]]).astype("f4"), photometric="minisblack", metadata=None)
        for page in (None, 3):
            with pytest.raises(
                ValueError, match=r"2 images of equal size but different type: .* from 0 to 2"
            ):
                read_image(tmp_path / "two.tif", page=page)
        pages = [read_image(tmp_path / "two.tif", page=page).pixels for page in range(3)]
        assert [page.dtype.name for page in pages] == ["uint8", "float32", "float32"]
        for page, expected in zip(pages, [PIXELS, PIXELS, PIXELS[::-1]], strict=True):
            assert np.array_equal(page, expected)

    def test_animations(self, tmp_path):
        """Frames of a GIF are its pages; of PNG the first picture is read, and WebP is refused."""
        frames = [Image.fromarray(np.repeat(p[..., None], 3, -1)) for p in self.stack[:2]]
        for name in ("a.gif", "a.webp", "a.png"):
            frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        with pytest.raises(ValueError, match="2 pages"):
            read_image(tmp_path / "a.gif")
        second = grey_of(read_image(tmp_path / "a.gif", page=1))
        assert np.abs(second.astype(int) - self.stack[1]).mean() < 4
        first = read_image(tmp_path / "a.png")
        assert np.array_equal(grey_of(first), self.stack[0])
        assert first.notes == ("the first picture of the animation is read",)
        with pytest.raises(ValueError, match="animations in WebP are not read; save the frame you mean"):
            read_image(tmp_path / "a.webp")

    def test_arrays_of_three_axes_do_not_say_what_they_are(self, tmp_path):
        path = tmp_path / "a.npy"
        np.save(path, self.stack)
        with pytest.raises(ValueError, match=r"shape \(3, 160, 192\) does not say what its axes are"):
            read_image(path)
        assert np.array_equal(read_image(path, page=2).pixels, self.stack[2])
        assert np.array_equal(read_image(path, channel_axis=0).pixels, np.moveaxis(self.stack, 0, -1))
        assert len(read_pages(path)) == 3
        np.save(path, np.moveaxis(self.stack, 0, 1))
        assert np.array_equal(read_image(path, channel_axis=1).pixels, np.moveaxis(self.stack, 0, -1))

    def test_volumetric_tiles_are_refused(self, tmp_path):
        tifffile.imwrite(
            tmp_path / "v.tif", np.zeros((16, 32, 32), np.uint8), tile=(16, 16, 16), volumetric=True
        )
        with pytest.raises(ValueError, match="volumetric TIFF tiles are not read"):
            read_image(tmp_path / "v.tif")


class TestRefused:
    def refuse(self, path, message, error=ImageReadError):
        with pytest.raises(error, match=message) as caught:
            read_image(path)
        assert str(caught.value).startswith(Path(path).name)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty file"),
            (b"this is not an image", "text file, not an image"),
            (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer, not an image"),
            (b"<!DOCTYPE html><html><body>403</body></html>", "HTML page, not an image"),
            (b"\n <html>", "HTML page, not an image"),
            (b'<?xml version="1.0"?><svg/>', "XML or SVG document, not an image"),
            (b"%PDF-1.4", "PDF document, not an image"),
            (b"PK\x03\x04rest", "ZIP archive"),
            (b"\x89HDF\r\n\x1a\n", "HDF5 or NetCDF 4 files are not read"),
            (b"\0\0\0\x18ftypheic", "HEIC files are not read; convert it"),
            (b"P5 3 3 255\n", "PNM files are not read"),
            (b"\x80\x04\x95\x00\xff\xfe", "Python pickle, not an image"),
            (bytes(range(256)) * 3, "unknown content, not an image"),
            ("текст".encode() * 100, "text file, not an image"),
        ],
    )
    def test_content_that_is_no_image(self, tmp_path, content, reason):
        path = tmp_path / "named.png"
        path.write_bytes(content)
        self.refuse(path, reason)

    @pytest.mark.parametrize(
        "name",
        [
            "u8.png",
            "rgb16.png",
            "gray.bmp",
            "gray.gif",
            "lossless.jp2",
            "u16_full.tif",
            "tiled.tif",
            "lzw_strips.tif",
            "deflate_predictor.tif",
            "planar_rgb.tif",
            "lossless.webp",
            "float64.npy",
            "gray16.j2k",
        ],
    )
    @pytest.mark.parametrize("share", [0.02, 0.4, 0.9, 0.999])
    def test_truncated_files(self, exact, tmp_path, name, share):
        content = exact[name].read_bytes()
        path = tmp_path / name
        path.write_bytes(content[: int(len(content) * share)])
        self.refuse(path, "truncated|corrupt|broken|invalid|not an image")

    @pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
    @pytest.mark.parametrize("end", [b"", b"\xff\xd9", b"\0" * 50 + b"\xff\xd9"])
    def test_truncated_jpeg_even_with_an_end_mark(self, tmp_path, options, end):
        content = io_scenes.bytes_of(Image.fromarray(PIXELS).save, format="JPEG", quality=90, **options)
        for share in np.linspace(0.3, 0.99, 12):
            path = tmp_path / "cut.jpg"
            path.write_bytes(content[: int(len(content) * share)] + end)
            self.refuse(path, "truncated|corrupt")

    def test_jpeg_that_lost_its_middle(self, tmp_path):
        content = io_scenes.bytes_of(Image.fromarray(PIXELS).save, format="JPEG", quality=90)
        path = tmp_path / "spliced.jpg"
        path.write_bytes(content[: len(content) // 2] + content[len(content) * 3 // 4 :])
        self.refuse(path, "part of the picture is missing")

    def test_wrong_checksum(self, exact, tmp_path):
        content = bytearray(exact["u8.png"].read_bytes())
        content[content.index(b"IDAT") + 100] ^= 1
        path = tmp_path / "bad_crc.png"
        path.write_bytes(content)
        self.refuse(path, "checksum of the IDAT chunk is wrong")

    def test_broken_chain_of_tiff_pages(self, tmp_path):
        path = tmp_path / "pages.tif"
        tifffile.imwrite(path, np.stack([PIXELS] * 3), ome=True, metadata={"axes": "CYX"})
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        self.refuse(path, "truncated")

    def test_chain_of_tiff_pages_without_end(self, tmp_path):
        path = io_scenes.tiff(tmp_path / "loop.tif", PIXELS)
        content = bytearray(path.read_bytes())
        first = struct.unpack_from("<I", content, 4)[0]
        n_entries = struct.unpack_from("<H", content, first)[0]
        struct.pack_into("<I", content, first + 2 + 12 * n_entries, first)
        path.write_bytes(content)
        self.refuse(path, "chain of TIFF pages has no end")

    def test_tiff_with_a_strip_lost(self, tmp_path):
        path = io_scenes.tiff(tmp_path / "s.tif", PIXELS, rowsperstrip=40, compression="zlib")
        with tifffile.TiffFile(path) as file:
            tag = file.pages[0].tags[279]
            offset = tag.valueoffset
        content = bytearray(path.read_bytes())
        content[offset + tag.valuebytecount // 4 : offset + tag.valuebytecount // 2] = bytes(
            tag.valuebytecount // 4
        )
        path.write_bytes(content)
        self.refuse(path, "strips or tiles are missing")

    def test_tiff_kinds_that_are_not_supported(self, tmp_path):
        lab = io_scenes.tiff(tmp_path / "lab.tif", np.repeat(PIXELS[..., None], 3, -1), photometric="cielab")
        self.refuse(lab, "colour space CIELAB is not supported")
        luma = tmp_path / "luma.tif"
        Image.fromarray(np.dstack([PIXELS] * 3)).convert("YCbCr").save(luma, compression="packbits")
        self.refuse(luma, "YCBCR is supported with JPEG compression only")
        complex_values = io_scenes.tiff(tmp_path / "c.tif", PIXELS.astype(np.complex64))
        self.refuse(complex_values, "dtype complex64; expected real numbers", ValueError)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((2, 3, 8, 8), np.uint8), r"shape \(2, 3, 8, 8\) and dtype uint8 is not an image"),
            (np.zeros((8, 8), complex), "dtype complex128 is not an image"),
            (np.array([["a", "b"]]), "dtype <U1 is not an image"),
            (np.zeros((8, 8), [("x", float)]), "is not an image"),
            (np.zeros((0, 10), np.uint8), r"shape \(0, 10\) and dtype uint8 is empty"),
            (np.zeros(5), r"shape \(5,\) and dtype float64 is not an image"),
        ],
    )
    def test_arrays_that_are_no_image(self, tmp_path, array, message):
        np.save(tmp_path / "a.npy", array)
        self.refuse(tmp_path / "a.npy", message, ValueError)

    def test_pickled_objects_are_never_loaded(self, tmp_path):
        np.save(tmp_path / "o.npy", np.array([_Explosive(), 1], dtype=object), allow_pickle=True)
        self.refuse(tmp_path / "o.npy", r"shape \(2,\) and dtype object holds Python objects", ValueError)

    def test_places_that_are_no_files(self, tmp_path):
        (tmp_path / "dir.png").mkdir()
        self.refuse(tmp_path / "dir.png", "this is a folder, not an image")
        (tmp_path / "broken.png").symlink_to("nowhere")
        self.refuse(tmp_path / "broken.png", "symbolic link that leads nowhere")
        (tmp_path / "loop.png").symlink_to("loop.png")
        self.refuse(tmp_path / "loop.png", "symbolic link")
        self.refuse(tmp_path / "missing.png", "no such file")
        self.refuse(Path("/dev/null"), "device or a pipe")

    def test_incomplete_file_is_refused_whatever_pillow_is_told(self, exact, tmp_path, monkeypatch):
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
        for name in ("u8.png", "gray.bmp", "gray.gif", "lossless.webp"):
            content = exact[name].read_bytes()
            (tmp_path / name).write_bytes(content[: len(content) // 2])
            with pytest.raises(ImageReadError):
                read_image(tmp_path / name)


class _Explosive:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


class TestSizeGuard:
    def test_header_alone_decides(self, tmp_path):
        path = tmp_path / "lying_header.png"
        path.write_bytes(png_of((60000, 60000), 8, 0, b"")[:33])
        with pytest.raises(
            ImageTooLargeError,
            match=r"60000 x 60000 = 3600 Mpx, about \d+ GB needed; limit 179 Mpx, "
            r"raise with --max-pixels / max_pixels=",
        ):
            read_image(path)
        with pytest.raises(ImageReadError, match="truncated"):
            read_image(path, max_pixels=None)
        assert read_header(path).width == 60000

    @pytest.mark.parametrize(
        "name", ["u8.png", "u16_full.tif", "float64.npy", "gray.bmp", "lossless.jp2", "gray.gif"]
    )
    def test_limit_is_inclusive(self, exact, name):
        n_pixels = PIXELS.size
        assert read_image(exact[name], max_pixels=n_pixels).pixels.shape[:2] == SHAPE
        with pytest.raises(ImageTooLargeError, match="limit 0.0307 Mpx"):
            read_image(exact[name], max_pixels=n_pixels - 1)

    def test_pages_and_many_channels_count(self, tmp_path):
        stack = np.zeros((5, 20, 20), np.uint8)
        tifffile.imwrite(tmp_path / "p.tif", stack, photometric="minisblack")
        assert read_image(tmp_path / "p.tif", page=0, max_pixels=400).pixels.shape == (20, 20)
        with pytest.raises(ImageTooLargeError, match="20 x 20 x 5 pages"):
            read_pages(tmp_path / "p.tif", max_pixels=1999)
        io_scenes.tiff(tmp_path / "c.tif", np.zeros((20, 20, 12), np.uint8), planarconfig="contig")
        assert read_image(tmp_path / "c.tif", max_pixels=1200).pixels.shape == (20, 20, 12)
        with pytest.raises(ImageTooLargeError, match="of 12 channels"):
            read_image(tmp_path / "c.tif", max_pixels=1199)

    def test_file_far_larger_than_any_image_of_that_size(self, tmp_path):
        for name in ("long.jpg", "long.png", "long.bmp"):
            path = io_scenes.write(tmp_path / name, PIXELS)
            with path.open("r+b") as file:
                file.truncate(2**27)
        with pytest.raises(ImageTooLargeError, match="file of 0.1 GB for 192 x 160 pixels"):
            read_image(tmp_path / "long.jpg")
        assert np.array_equal(read_image(tmp_path / "long.png").pixels, PIXELS)
        assert np.array_equal(read_image(tmp_path / "long.bmp").pixels, PIXELS)

    def test_pillow_limit_is_neither_used_nor_changed(self, exact, monkeypatch):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
        for name in ("u8.png", "gray.bmp", "gray.gif", "lossless.webp", "palette_shuffled.png"):
            assert read_image(exact[name]).pixels.shape[:2] == SHAPE
        assert read_labels(exact["palette_shuffled.png"]).shape == SHAPE
        assert Image.MAX_IMAGE_PIXELS == 10

    def test_tiles_that_would_fill_the_memory(self, tmp_path):
        path = io_scenes.tiff(
            tmp_path / "t.tif", np.zeros((32, 32), np.uint8), tile=(16, 16), compression="zlib"
        )
        with tifffile.TiffFile(path, mode="r+b") as file:
            for code in (322, 323):
                file.pages[0].tags[code].overwrite(32768)
        with pytest.raises(ImageReadError, match="invalid TIFF tiles of 32768 x 32768 pixels"):
            read_image(path)


class TestLabels:
    labels = scene()[1]

    def test_palette_indices_not_colours(self, tmp_path):
        image = Image.fromarray(self.labels.astype(np.uint8))
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768).astype(np.uint8).tobytes())
        for name in ("l.png", "l.bmp", "l.tif"):
            image.save(tmp_path / name)
            assert np.array_equal(read_labels(tmp_path / name), self.labels), name

    def test_colours_without_palette_are_numbered(self, tmp_path):
        colours = np.array([[0, 0, 0], [0, 0, 255], [0, 255, 0], [9, 9, 9], [255, 0, 0]], np.uint8)
        path = io_scenes.write(tmp_path / "c.png", colours[self.labels])
        assert read_labels(path).tolist() == self.labels.tolist()
        assert read_labels(path).dtype == np.int32

    def test_numbers_of_other_types(self, tmp_path):
        np.save(tmp_path / "l.npy", self.labels.astype(float))
        assert np.array_equal(read_labels(tmp_path / "l.npy"), self.labels)
        np.save(tmp_path / "l.npy", self.labels + 0.5)
        with pytest.raises(ValueError, match="l.npy: labels must be whole numbers"):
            read_labels(tmp_path / "l.npy")
        np.save(tmp_path / "l.npy", self.labels.astype(np.int64) + 2**40)
        with pytest.raises(ValueError, match="l.npy: labels do not fit into 32 bits"):
            read_labels(tmp_path / "l.npy")


class TestGeoreference:
    def test_tags_and_affine_map(self, tmp_path):
        image = read_image(io_scenes.tiff(tmp_path / "g.tif", PIXELS, extratags=io_scenes.GEO_TAGS))
        assert image.geo.epsg == 32633
        assert image.geo.transform @ (0, 0) == (500000.0, 5200000.0)
        assert image.geo.transform @ (2, 4) == (500001.0, 5199998.0)

    def test_pixel_is_point_and_matrix(self, tmp_path):
        keys = (1, 1, 0, 2, 1025, 0, 1, 2, 2048, 0, 1, 4326)
        tags = [*io_scenes.GEO_TAGS[:2], (34735, 3, len(keys), keys, True)]
        point = read_image(io_scenes.tiff(tmp_path / "p.tif", PIXELS, extratags=tags)).geo
        assert point.transform @ (0.5, 0.5) == (500000.0, 5200000.0)
        assert point.epsg == 4326
        matrix = (0.0, 2.0, 0.0, 7.0, 3.0, 0.0, 0.0, 9.0) + (0.0,) * 7 + (1.0,)
        tags = [(34264, 12, 16, matrix, True)]
        turned = read_image(io_scenes.tiff(tmp_path / "m.tif", PIXELS, extratags=tags)).geo
        assert turned.transform @ (1, 10) == (27.0, 12.0)
        assert turned.epsg is None

    def test_world_file_beside_the_image(self, tmp_path):
        path = io_scenes.write(tmp_path / "w.png", PIXELS)
        assert read_image(path).geo is None
        (tmp_path / "w.pgw").write_text("not numbers")
        assert read_image(path).geo is None
        for name in ("w.pgw", "w.PGW", "w.pngw", "w.wld"):
            (tmp_path / "w.pgw").unlink(missing_ok=True)
            (tmp_path / name).write_text(io_scenes.WORLD_FILE)
            assert read_image(path).geo.transform @ (0, 0) == (500000.0, 5200000.0)
            (tmp_path / name).unlink()

    def test_georeferenced_pixels_stay_as_stored(self, tmp_path):
        tags = [*io_scenes.GEO_TAGS, (274, 3, 1, 6, True)]
        image = read_image(io_scenes.tiff(tmp_path / "g.tif", PIXELS, extratags=tags))
        assert np.array_equal(image.pixels, PIXELS)


def test_reader_works_from_several_threads(exact):
    failures = []

    def read_all():
        for name in ("u8.png", "tiled.tif", "gray.gif", "lossless.jp2"):
            if not np.array_equal(grey_of(read_image(exact[name])), PIXELS):
                failures.append(name)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_jpeg_2000_kinds(tmp_path):
    signed = PIXELS.astype(np.int16) - 128
    (tmp_path / "s.j2k").write_bytes(imagecodecs.jpeg2k_encode(signed, level=0))
    image = read_image(tmp_path / "s.j2k")
    assert image.pixels.dtype == np.int16
    assert np.array_equal(image.pixels, signed)
