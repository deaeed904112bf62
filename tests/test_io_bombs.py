"""Small files that would cost much: refused by their tables and headers, before anything is decoded."""

import struct
import subprocess
import sys
import time
import tracemalloc
import zlib

import imagecodecs
import io_scenes
import numpy as np
import pytest
import tifffile
from io_scenes import scene
from PIL import Image
from test_io_read import png_of

from texseg.io.files import ImageReadError
from texseg.io.read import read_header, read_image

PIXELS = scene()[0]
LIMIT_BYTES, LIMIT_SECONDS = 150e6, 5  # the target is one second; machines under test are busy


def refuse(path, reason, **options):
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises((ImageReadError, ValueError), match=reason):
            read_image(path, **options)
        assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < LIMIT_SECONDS


def read_cheaply(path):
    """What is wrong in a file costs nothing, so that nobody need look for it."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        assert read_image(path).pixels.size
        assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < LIMIT_SECONDS


def jpeg(array=PIXELS, **options):
    return io_scenes.bytes_of(Image.fromarray(array).save, format="JPEG", quality=90, **options)


def tiff_with(strip, compression, side=64, n_strips=1):
    """Bytes of a TIFF of `side` pixels whose strips are all the same bytes."""
    tags = [
        (256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, compression), (262, 3, 1, 1),
        (273, 4, n_strips, None), (277, 3, 1, 1), (278, 4, 1, side // n_strips or 1),
        (279, 4, n_strips, len(strip)),
    ]  # fmt: skip
    end = 8 + 2 + 12 * len(tags) + 4
    content = b"II*\0" + struct.pack("<IH", 8, len(tags))
    for code, kind, count, value in tags:
        content += struct.pack("<HHII", code, kind, count, end if value is None or count > 1 else value)
    return content + bytes(4) + strip


def with_size(content, height, width):
    """Return a JPEG whose frame says another size."""
    start = content.index(b"\xff\xc0")
    return content[: start + 5] + struct.pack(">HH", height, width) + content[start + 9 :]


class TestPicturesInsideTiff:
    def test_sound_ones_are_read(self, tmp_path):
        square = np.ascontiguousarray(PIXELS[:64, :64])
        for name, strip, compression in (
            ("png", imagecodecs.png_encode(square), 34933),
            ("jp2", imagecodecs.jpeg2k_encode(square, level=0), 34712),
        ):
            path = tmp_path / name
            path.write_bytes(tiff_with(strip, compression))
            assert np.array_equal(read_image(path).pixels, square), name

    def test_pictures_larger_than_their_strip(self, tmp_path):
        wide = np.zeros((1000, 3000), np.uint8)
        colour = np.zeros((1000, 3000, 3), np.uint8)
        for name, strip, compression in (
            ("jpeg", with_size(jpeg(PIXELS[:64, :64].copy()), 60000, 60000), 7),
            ("png", png_of((60000, 60000), 8, 0, b""), 34933),
            ("jp2", imagecodecs.jpeg2k_encode(wide, level=0), 34712),
            ("webp", imagecodecs.webp_encode(colour), 50001),
        ):
            path = tmp_path / name
            path.write_bytes(tiff_with(strip, compression))
            refuse(path, "holds a picture of|truncated")

    def test_compressions_that_announce_nothing_we_understand(self, tmp_path):
        path = tmp_path / "x"
        path.write_bytes(tiff_with(b"1234", 50002))
        refuse(path, "TIFF compression .* is not supported")

    @pytest.mark.parametrize(
        ("tag", "kind", "count"), [(330, 4, 10**6), (33628, 4, 10**8), (65000, 1, 10**9)]
    )
    def test_tags_without_measure(self, tmp_path, tag, kind, count):
        path = tmp_path / "tag.tif"
        content = tiff_with(bytes(4096), 1)
        content = content.replace(struct.pack("<HHI", 277, 3, 1), struct.pack("<HHI", tag, kind, count))
        with path.open("wb") as file:
            file.write(content)
            file.truncate(2 * 10**9)
        read_cheaply(path)

    def test_more_strips_than_pixels_need(self, tmp_path):
        path = tmp_path / "strips"
        with path.open("wb") as file:
            file.write(tiff_with(b"", 1, 64, 5_000_000))
            file.truncate(25_000_000)
        read_cheaply(path)

    def test_tiles_of_a_few_pixels_that_all_lie_in_one_place(self, tmp_path):
        side, n_tiles = 12_000, 750 * 750
        tags = [
            (256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
            (277, 3, 1, 1), (322, 3, 1, 16), (323, 3, 1, 16),
            (324, 4, n_tiles, 200), (325, 4, n_tiles, 200 + 4 * n_tiles),
        ]  # fmt: skip
        content = b"II*\0" + struct.pack("<IH", 8, len(tags))
        content += b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
        content = (
            content.ljust(200, b"\0") + struct.pack("<I", 200) * n_tiles + struct.pack("<I", 256) * n_tiles
        )
        (tmp_path / "tiles.tif").write_bytes(content)
        refuse(tmp_path / "tiles.tif", "TIFF of 562500 strips or tiles, more than a picture of its size has")


class TestJpeg:
    def test_many_scans(self, tmp_path):
        array = np.zeros((2000, 2000), np.uint8)
        content = jpeg(array, progressive=True)
        start = content.rindex(b"\xff\xda")
        path = tmp_path / "scans"
        path.write_bytes(content[:start] + content[start:-2] * 200 + b"\xff\xd9")
        refuse(path, "scans, more than a picture of its size has")

    @pytest.mark.parametrize("filler", [b"\xff\xd0", b"\xff\xff", b"\xff\xe0\0\2"])
    def test_marks_without_end(self, tmp_path, filler):
        content = jpeg()
        path = tmp_path / "marks"
        path.write_bytes(content[:2] + filler * (5_000_000 // len(filler)) + content[2:-20])
        refuse(path, "truncated|missing|segments|corrupt")

    def test_picture_of_fewer_bits_than_blocks(self, tmp_path):
        path = tmp_path / "few"
        path.write_bytes(with_size(jpeg(), 12000, 12000))
        refuse(path, "truncated")

    def test_arithmetic_coding_hides_what_is_missing(self, tmp_path):
        content = jpeg()
        path = tmp_path / "arithmetic"
        path.write_bytes(content.replace(b"\xff\xc0", b"\xff\xc9", 1))
        refuse(path, "arithmetic coding is not read")

    def test_progressive_file_that_lost_whole_scans(self, tmp_path):
        content = jpeg(progressive=True)
        path = tmp_path / "cut.jpg"
        for end in (b"", b"\xff\xd9"):
            path.write_bytes(content[: content.rindex(b"\xff\xda")] + end)
            refuse(path, "part of the picture is missing")

    def test_fill_bytes_before_the_end_mark(self, tmp_path):
        content = jpeg()
        path = tmp_path / "fill.jpg"
        path.write_bytes(content)
        whole = read_image(path).pixels
        path.write_bytes(content[:-2] + bytes(40) + content[-2:])
        assert np.array_equal(read_image(path).pixels, whole)


@pytest.mark.parametrize(
    ("name", "options", "n_bytes"),
    [
        ("JPEG", {}, 2),
        ("JPEG", {"progressive": True}, 1),
        ("JPEG", {"restart_marker_rows": 2}, 2),
        ("PNG", {}, 12),
        ("PNG", {}, 1),
        ("GIF", {}, 1),
    ],
)
def test_end_mark_alone_is_missing(tmp_path, name, options, n_bytes):
    content = io_scenes.bytes_of(Image.fromarray(PIXELS).save, format=name, **options)
    path = tmp_path / "noend"
    path.write_bytes(content)
    whole = read_image(path).pixels
    path.write_bytes(content[:-n_bytes])
    image = read_image(path)
    assert np.array_equal(image.pixels, whole)
    assert image.notes == (f"the end mark of the {name} file is missing",)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_png_that_lost_a_whole_chunk_and_its_end(tmp_path, dtype):
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3)).astype(dtype)
    content = imagecodecs.png_encode(noise)
    (tmp_path / "cut.png").write_bytes(content[: content.rindex(b"IDAT") - 4])
    refuse(tmp_path / "cut.png", "truncated|Not enough image data")


def test_ome_metadata_of_planes_without_measure(tmp_path):
    planes = (
        'DimensionOrder="XYCZT" Type="uint8" SizeX="192" SizeY="160" SizeC="1" SizeZ="1" SizeT="1000000000"'
    )
    text = f'<OME><Image ID="Image:0"><Pixels ID="Pixels:0" {planes}><TiffData/></Pixels></Image></OME>'
    refuse(io_scenes.tiff(tmp_path / "o.tif", PIXELS, description=text), "announces 1000000000 planes")
    wide = text.replace('"192"', '"1000000"').replace('"160"', '"1000000"').replace("1000000000", "1")
    refuse(io_scenes.tiff(tmp_path / "w.tif", PIXELS, description=wide), "announces 32552083 planes")


OME_PIXELS = (
    '<Pixels ID="P" DimensionOrder="XYCZT" Type="uint8" SizeX="64" SizeY="64" SizeC="1" SizeZ="1" SizeT="1">'
)


def ome(inside, pixels=OME_PIXELS, n_images=1, after=""):
    image = f'<Image ID="I">{pixels}{inside}</Pixels></Image>'
    return f"<OME>{image * n_images}{after}</OME>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ome('<TiffData IFD="0" PlaneCount="100000000"/>'), "announces 100000001 planes"),
        (ome('<TiffData IFD="0" PlaneCount="&#49;00000000"/>'), "announces 100000001 planes"),
        (ome('<TiffData IFD="0" PlaneCount="200000"/>' * 2), "announces 400001 planes"),
        (ome("<TiffData/>", OME_PIXELS.replace("XYCZT", "XYQ").replace('SizeT="1"', 'SizeQ="100000000"')),
         "announces 100000000 planes"),
        (ome("<TiffData/>", OME_PIXELS.replace('SizeT="1"', 'SizeT="-100000" SizeC="-1000"')
             .replace('SizeC="1" ', "")), "announces 100000000 planes"),
        (ome("<TiffData/>", after='<StructuredAnnotations><XMLAnnotation ID="A" Namespace="x/modulo"><Value>'
             '<Modulo><ModuloAlongT Type="phase" Start="0" End="1e9"/></Modulo></Value></XMLAnnotation>'
             "</StructuredAnnotations>"), "announces 1000000001 planes"),
        (ome("<TiffData/>", n_images=20_000), "OME-TIFF of 20000 images"),
        (ome('<TiffData IFD="0"/>' * 300_000), "more metadata than its images need"),
        (ome('<TiffData IFD="0"/>').replace("<OME>", '<!DOCTYPE a [<!ENTITY b "c">]><OME>'), "more metadata"),
        ("ImageJ=1\n" + "a=b\n" * 500_000, "of 2.0 million characters"),
        ('{"shape": [' + "1, " * 1_000_000 + "64, 64]}", "of 3.0 million characters"),
    ],
)  # fmt: skip
def test_descriptions_that_cost_more_than_their_image(tmp_path, text, reason):
    tifffile.imwrite(tmp_path / "d.tif", PIXELS[:64, :64], description=text, metadata=None)
    refuse(tmp_path / "d.tif", reason)


def test_ome_metadata_of_an_image_with_a_small_icon_are_believed(tmp_path):
    text = ome('<TiffData IFD="0" PlaneCount="1"/>')
    with tifffile.TiffWriter(tmp_path / "icon.tif") as file:
        file.write(PIXELS[:64, :64], description=text, metadata=None)
        file.write(PIXELS[:4, :4], metadata=None)
    assert np.array_equal(read_image(tmp_path / "icon.tif").pixels, PIXELS[:64, :64])


def test_axes_without_measure(tmp_path):
    shape = "1, " * 50_000 + "64, 64"
    tifffile.imwrite(
        tmp_path / "a.tif", PIXELS[:64, :64], description=f'{{"shape": [{shape}]}}', metadata=None
    )
    refuse(tmp_path / "a.tif", "TIFF of 50002 axes, file is corrupt")


def test_pages_without_measure(tmp_path, monkeypatch):
    monkeypatch.setattr("texseg.io.tiff._FEW_PAGES", 300)  # memory is watched, which takes its time
    tags = [(256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 1)]
    entries = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", c, 4, 1, v) for c, v in tags)
    size = len(entries) + 4
    pages = b"".join(entries + struct.pack("<I", (8 + (i + 1) * size) * (i < 399)) for i in range(400))
    path = tmp_path / "pages.tif"
    path.write_bytes(b"II*\0\x08\0\0\0" + pages)
    refuse(path, "TIFF of more than 3[0-9][0-9] pages in 0 MB, file is corrupt")
    with path.open("ab") as file:  # never written, so that it takes no room
        file.truncate(10**8)
    refuse(path, "TIFF of more than 3[0-9][0-9] pages in 100 MB")
    path.write_bytes(b"II*\0\x08\0\0\0" + pages + b"x" * 500_000)
    with pytest.raises(ValueError, match="400 pages: choose one"):
        read_image(path)


def test_jpeg_2000_of_two_images(tmp_path):
    content = io_scenes.bytes_of(Image.fromarray(PIXELS).save, format="JPEG2000")
    start = content.index(b"jp2c") - 4
    stream = content[start + 8 :]
    boxes = [struct.pack(">I4s", 8 + len(stream), b"jp2c") + stream] * 2
    (tmp_path / "two.jp2").write_bytes(content[:start] + b"".join(boxes))
    refuse(tmp_path / "two.jp2", "JPEG 2000 file with two images")


def test_jpeg_2000_of_tiles_without_content(tmp_path):
    content = bytearray(imagecodecs.jpeg2k_encode(PIXELS, level=0, codecformat="j2k"))
    struct.pack_into(">II", content, 24, 1, 1)
    (tmp_path / "tiles.j2k").write_bytes(content)
    refuse(tmp_path / "tiles.j2k", "tiles or precincts without content")


def test_jpeg_2000_of_precincts_without_content(tmp_path):
    """Each precinct, here of one pixel, takes hundreds of bytes in a decoder."""
    content = imagecodecs.jpeg2k_encode(PIXELS, level=0, codecformat="j2k")
    start = content.index(b"\xff\x52")
    length = int.from_bytes(content[start + 2 : start + 4], "big")
    style = bytearray(content[start + 4 : start + 2 + length])
    style[0] |= 1
    style += bytes(style[5] + 1)
    segment = b"\xff\x52" + (2 + len(style)).to_bytes(2, "big") + bytes(style)
    (tmp_path / "precincts.j2k").write_bytes(content[:start] + segment + content[start + 2 + length :])
    refuse(tmp_path / "precincts.j2k", "tiles or precincts without content")


def test_png_of_empty_chunks(tmp_path):
    content = png_of(PIXELS.shape, 8, 0, b"", extra=(b"\0\0\0\0tEXt" + bytes(4)) * 500_000)
    (tmp_path / "chunks.png").write_bytes(content)
    refuse(tmp_path / "chunks.png", "chunks without content")


def test_png_of_more_rows_than_its_data_can_hold(tmp_path):
    content = bytearray(imagecodecs.png_encode(PIXELS))
    struct.pack_into(">II", content, 16, 2, 80_000_000)
    struct.pack_into(">I", content, 29, zlib.crc32(content[12:29]))
    (tmp_path / "rows.png").write_bytes(content)
    script = (
        "import resource, sys; from texseg import read_image; import PIL.PngImagePlugin;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read_image(sys.argv[1])\n"
        "except OSError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "rows.png"], capture_output=True, text=True, check=True
    )
    said, grown = done.stdout.splitlines()
    assert said.startswith("rows.png: file is truncated or corrupt")
    assert int(grown) * (1 if sys.platform == "darwin" else 1024) < LIMIT_BYTES


def test_gif_of_empty_blocks(tmp_path):
    content = io_scenes.bytes_of(Image.fromarray(PIXELS).save, format="GIF")
    (tmp_path / "blocks.gif").write_bytes(content[:-1] + b"\x21\xfe\0" * 1_000_000)
    refuse(tmp_path / "blocks.gif", "blocks without content")


def test_gif_of_a_small_frame_on_a_large_screen(tmp_path):
    content = bytearray(io_scenes.bytes_of(Image.fromarray(PIXELS).save, format="GIF"))
    struct.pack_into("<HH", content, 6, 13000, 13000)
    (tmp_path / "screen.gif").write_bytes(content)
    refuse(tmp_path / "screen.gif", "GIF of 13000 x 13000 pixels whose largest frame has 30720")


def test_metadata_beside_an_image_of_elements_without_measure(tmp_path):
    path = io_scenes.write(tmp_path / "i.png", PIXELS)
    for text in ("<a>" * 1_000_000, '<PAMRasterBand band="1"/>' * 100_000 + "</PAMDataset>"):
        (tmp_path / "i.png.aux.xml").write_text("<PAMDataset>" + text)
        tracemalloc.start()
        try:
            assert "i.png.aux.xml next to the image cannot be read" in read_image(path).notes[0]
            assert tracemalloc.get_traced_memory()[1] < 20e6
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGB16", "P"])
def test_interlaced_png_is_read_in_silence(tmp_path, capfd, mode):
    size = PIXELS.shape
    wide = PIXELS.astype(np.uint16) * 257
    pixels = {"L": PIXELS, "P": PIXELS, "RGB": np.dstack([PIXELS, PIXELS.T.reshape(size), PIXELS[::-1]])}.get(
        mode, np.dstack([wide, wide[::-1], wide[:, ::-1]])
    )
    stored = pixels.astype(pixels.dtype.newbyteorder(">"))
    passes = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    rows = b"".join(
        b"\0" + row.tobytes() for y, x, down, right in passes for row in stored[y::down, x::right]
    )
    colour = {"L": 0, "P": 3}.get(mode, 2)
    extra = b""
    if mode == "P":
        entries = np.repeat(np.arange(256, dtype=np.uint8), 3).tobytes()
        extra = chunk(b"PLTE", entries)
    header = struct.pack(">IIBBBBB", size[1], size[0], 16 if mode == "RGB16" else 8, colour, 0, 0, 1)
    content = png_of(size, 8, colour, rows, extra)
    (tmp_path / "i.png").write_bytes(content[:8] + chunk(b"IHDR", header) + content[33:])
    found = read_image(tmp_path / "i.png").pixels
    assert np.array_equal(found[..., 0] if mode == "P" else found, pixels)
    assert capfd.readouterr() == ("", "")


def chunk(kind, content):
    import zlib

    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"CDF\x01" + bytes(99), "NetCDF"),
        (b"ZISRAWFILE", "Zeiss CZI"),
        (b"\xda\xce\xbe\x0a" + bytes(20), "Nikon ND2"),
        (b"\x70\0\0\0\1\2\0\0\x2a" + bytes(20), "Leica LIF"),
        (b"\x5c\1\0\0" + bytes(340) + b"n+1\0", "NIfTI"),
        (b"\x76\x2f\x31\x01" + bytes(9), "OpenEXR"),
        (b"\xff\x0a" + bytes(9), "JPEG XL"),
        (b"\0\0\0\x04" + bytes(7) + b"\1\0\0\0\1", "Gatan DM3 or DM4"),
        (bytes(208) + b"MAP " + bytes(20), "MRC"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"OLE \(Olympus OIB, Zeiss ZVI\)"),
        (b"\x0e\x03\x13\x01" + bytes(9), "HDF4"),
        (b"EHFA_HEADER_TAG\0", "Erdas Imagine"),
        (b"PF\n3 3\n-1.0\n", "PNM"),
    ],
)
def test_formats_of_instruments_are_named(tmp_path, content, name):
    (tmp_path / "x").write_bytes(content)
    refuse(tmp_path / "x", f"{name} files are not read; convert it")


def test_a_few_bytes_that_announce_a_large_webp_are_refused_by_their_header(tmp_path):
    """A picture of one colour takes as many bytes, whatever its size: nothing is decoded to find that out."""
    bits = (12999 | 12999 << 14).to_bytes(4, "little")
    content = b"VP8L" + struct.pack("<I", 13) + b"\x2f" + bits + bytes(9)
    (tmp_path / "few.webp").write_bytes(b"RIFF" + struct.pack("<I", 4 + len(content)) + b"WEBP" + content)
    refuse(tmp_path / "few.webp", "34 bytes cannot hold 13000 x 13000")
    with pytest.raises(ImageReadError, match="34 bytes cannot hold"):
        read_header(tmp_path / "few.webp")


def test_jpeg_without_a_strict_decoder_is_refused(tmp_path):
    (tmp_path / "deep.jpg").write_bytes(imagecodecs.jpeg8_encode(PIXELS.astype(np.uint16), bitspersample=12))
    refuse(tmp_path / "deep.jpg", "JPEG of 12 bits or without losses is not read")
