"""Writers: labels come back as they went in, files appear whole or not at all, outlines are exact."""

import json
import os
import shutil
import subprocess
import sys
import warnings

import cv2
import imageio.v3
import io_scenes
import matplotlib.image
import numpy as np
import pytest
import skimage.io
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from io_scenes import read_pages
from PIL import Image
from scipy.special import ellipe
from skimage.color import deltaE_ciede2000, rgb2lab
from skimage.measure import perimeter_crofton

from texseg.io.files import atomic_write, unfinished
from texseg.io.geo import Georeference
from texseg.io.polygons import Outlines, write_polygons
from texseg.io.read import read_image, read_labels
from texseg.io.regions import (
    PixelSize,
    Tally,
    connected_regions,
    csv_text,
    palette,
    region_table,
    segment_table,
)
from texseg.io.write import Layout, write_labels, write_overlay, write_rows

PIXELS, TRUTH = io_scenes.scene()
SHAPES = st.tuples(st.integers(1, 23), st.integers(1, 19))


def write_confidence(path, confidence, geo=None):
    layout = Layout(confidence.shape, dtype=confidence.dtype, geo=geo)
    write_rows([path], confidence if confidence.ndim == 3 else [confidence], layout)


def opened(path):
    with Image.open(path) as image:
        image.load()
        return image


def killed(path):
    """End a process at once while it writes a file."""
    code = (
        "import os, sys; from pathlib import Path; from texseg.io.files import unfinished\n"
        "with unfinished(Path(sys.argv[1])) as path: path.write_bytes(b'half'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9


def label_images(largest):
    return hnp.arrays(np.int32, SHAPES, elements=st.integers(0, largest))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


class TestLabels:
    @settings(max_examples=40, deadline=None)
    @given(labels=st.one_of(label_images(5), label_images(255), label_images(256), label_images(65535)))
    def test_round_trip_of_every_format(self, folder, labels):
        for suffix in ("png", "tif", "npy"):
            path = folder / f"labels.{suffix}"
            write_labels(path, labels)
            assert np.array_equal(read_labels(path), labels)

    @settings(max_examples=20, deadline=None)
    @given(labels=label_images(2**31 - 1))
    def test_round_trip_of_large_labels(self, folder, labels):
        write_labels(folder / "large.tif", labels)
        assert np.array_equal(read_labels(folder / "large.tif"), labels)

    @settings(max_examples=60, deadline=None)
    @given(
        pixels=hnp.array_shapes(min_dims=2, max_dims=2, max_side=17).flatmap(
            lambda shape: st.sampled_from(
                ["u1", "u2", "u4", "i1", "i2", "i4", "f2", "f4", "f8", ">u2", ">f4"]
            ).flatmap(lambda kind: hnp.arrays(kind, shape))
        ),
        form=st.sampled_from(["tif", "tiled.tif", "zlib.tif", "npy"]),
    )
    def test_values_of_any_shape_and_type_come_back(self, folder, pixels, form):
        path = folder / f"values.{form}"
        options = {"tiled.tif": {"tile": (16, 16)}, "zlib.tif": {"compression": "zlib", "rowsperstrip": 3}}
        if form == "npy":
            np.save(path, pixels)
        else:
            io_scenes.tiff(path, pixels, **options.get(form, {}))
        np.testing.assert_array_equal(read_image(path).pixels, pixels)

    @settings(max_examples=40, deadline=None)
    @given(
        pixels=SHAPES.flatmap(
            lambda shape: st.sampled_from([(), (2,), (3,), (4,)]).flatmap(
                lambda channels: hnp.arrays(np.uint8, shape + channels)
            )
        ),
        wide=st.booleans(),
    )
    def test_png_of_any_channels_and_depth_comes_back(self, folder, pixels, wide):
        stored = pixels.astype(np.uint16) * 251 if wide else pixels
        io_scenes.png16(folder / "any.png", stored)
        image = read_image(folder / "any.png")
        has_alpha = stored.ndim == 3 and stored.shape[2] in (2, 4)
        colours = stored[..., :-1] if has_alpha else stored
        expected = colours[..., 0] if colours.ndim == 3 and colours.shape[2] == 1 else colours
        assert np.array_equal(image.pixels, expected)
        opaque = stored[..., -1] > 0 if has_alpha else np.ones(stored.shape[:2], bool)
        assert np.array_equal(np.ones(stored.shape[:2], bool) if image.mask is None else image.mask, opaque)

    @pytest.mark.parametrize("largest", [4, 255, 300])
    def test_other_libraries_read_labels_not_colours(self, tmp_path, largest):
        labels = np.where(io_scenes.hole(), 0, TRUTH)
        labels[0, 0] = largest
        for name in ("l.png", "l.tif"):
            write_labels(tmp_path / name, labels)
            path = str(tmp_path / name)
            read = [skimage.io.imread(path), imageio.v3.imread(path), cv2.imread(path, cv2.IMREAD_UNCHANGED)]
            read += [np.asarray(opened(path))]
            if name == "l.tif":
                read += [tifffile.imread(path), matplotlib.image.imread(path)]
            else:
                scale = 255 if largest < 256 else 65535
                read += [np.rint(matplotlib.image.imread(path) * scale)]
            for array in read:
                np.testing.assert_array_equal(array, labels)

    @settings(max_examples=30, deadline=None)
    @given(labels=label_images(300), height=st.integers(1, 9), pyramid=st.booleans())
    def test_several_files_get_the_same_rows(self, folder, labels, height, pyramid):
        paths = [folder / f"rows.{suffix}" for suffix in ("tif", "png", "npy")]
        bands = (labels[top : top + height] for top in range(0, len(labels), height))
        write_rows(paths, bands, Layout(labels.shape, int(labels.max()), pyramid=pyramid))
        for path in paths:
            assert np.array_equal(read_labels(path), labels)

    def test_overviews_hold_every_fourth_row_and_column_however_the_rows_come(self, tmp_path):
        labels = np.random.default_rng(0).integers(1, 200, (700, 1100))
        bands = (labels[top : top + 37] for top in range(0, len(labels), 37))
        write_rows([tmp_path / "l.tif"], bands, Layout(labels.shape, 199, pyramid=True))
        with tifffile.TiffFile(tmp_path / "l.tif") as file:
            assert len(file.pages) > 1
            for step, page in zip((1, 4, 16), file.pages, strict=False):
                assert np.array_equal(page.asarray(), labels[::step, ::step])

    def test_tiff_of_pages_and_its_types(self, tmp_path):
        for largest, dtype in ((200, np.uint8), (300, np.uint16), (70_000, np.uint32)):
            stack = np.stack([TRUTH, TRUTH * 0 + largest])
            write_labels(tmp_path / "s.tif", stack)
            stored = tifffile.imread(tmp_path / "s.tif")
            assert stored.dtype == dtype
            assert np.array_equal(stored, stack)
            assert len(read_pages(tmp_path / "s.tif")) == 2

    @pytest.mark.parametrize(
        ("name", "labels", "error", "message"),
        [
            ("l.png", np.zeros((3, 3)), TypeError, "labels must be integers, got an array of dtype float64"),
            ("l.png", np.zeros(3, int), ValueError, r"labels must have shape \(H, W\), got \(3,\)"),
            ("l.png", np.zeros((0, 3), int), ValueError, r"must have shape \(H, W\), got \(0, 3\)"),
            ("l.png", np.full((3, 3), -1), ValueError, "labels must not be negative, got -1"),
            ("l.png", np.full((3, 3), 65536), ValueError, "label 65536 does not fit into the 16 bits"),
            ("l.tif", np.full((3, 3), 2**32), ValueError, "label 4294967296 does not fit into the 32 bits"),
            ("l.png", np.zeros((2, 3, 3), int), ValueError, "a PNG file holds one page"),
            ("l.jpg", np.zeros((3, 3), int), ValueError, ".tiff, .npy, .zarr, not '.jpg'"),
        ],
    )
    def test_what_is_no_label_image_is_refused(self, tmp_path, name, labels, error, message):
        with pytest.raises(error, match=message):
            write_labels(tmp_path / name, labels)
        assert not list(tmp_path.iterdir())

    def test_inputs_are_not_modified(self, tmp_path):
        labels, pixels = TRUTH.copy(), PIXELS.copy()
        write_labels(tmp_path / "l.png", labels)
        write_overlay(tmp_path / "o.png", pixels, {"": labels})
        assert np.array_equal(labels, TRUTH)
        assert np.array_equal(pixels, PIXELS)


class TestAtomicWrite:
    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path, monkeypatch):
        path = tmp_path / "f"
        path.write_bytes(b"old")
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            atomic_write(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_errors_name_the_file_that_was_meant(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError, match=r"Not a directory: '.*file.out\.png'"):
            write_labels(tmp_path / "file" / "out.png", TRUTH)

    @pytest.mark.skipif(os.name != "posix", reason="needs locks")
    def test_leftovers_of_killed_runs_are_removed(self, tmp_path):
        for name in "ffg":
            killed(tmp_path / name)
        assert len(list(tmp_path.iterdir())) == 3
        atomic_write(tmp_path / "f", b"new")
        assert (tmp_path / "f").read_bytes() == b"new"
        assert len(list(tmp_path.iterdir())) == 2  # and the leftover of another file

    @pytest.mark.skipif(os.name != "posix", reason="needs locks")
    @pytest.mark.parametrize(("module", "name"), [(os, "open"), (shutil, "rmtree")])
    def test_a_signal_at_the_worst_moment_leaves_nothing(self, tmp_path, monkeypatch, module, name):
        """It raises an error wherever the program is: as a folder is made, or removed."""
        usual, calls = getattr(module, name), []

        def interrupted(path, *arguments, **options):
            if str(path).startswith(str(tmp_path)) and not calls:
                calls.append(path)
                raise KeyboardInterrupt
            return usual(path, *arguments, **options)

        monkeypatch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            atomic_write(tmp_path / "f", b"new")
        assert calls and not [path for path in tmp_path.iterdir() if path.name != "f"]

    @pytest.mark.skipif(os.name != "posix", reason="needs locks")
    def test_what_only_has_the_name_of_a_leftover_stays(self, tmp_path):
        """A leftover is known by the file that texseg put into it, not by its name."""
        outside, folder = tmp_path / "outside", tmp_path / "out"
        for place in (outside, folder):
            place.mkdir()
        (outside / "texseg.lock").write_text("foreign")
        (outside / "content").write_text("precious")
        with unfinished(folder / "f") as temporary:
            temporary.write_text("old")
            start, end = temporary.parent.name.split(".")[1], ".part"
        (folder / f".{start}.0{end}").symlink_to(outside)
        (folder / f".{start}.1{end}").write_text("precious")
        (folder / f".{start}.2{end}").mkdir()
        (folder / f".{start}.2{end}" / "content").write_text("precious")
        os.mkfifo(folder / f".{start}.3{end}")
        atomic_write(folder / "f", b"new")
        assert len(list(folder.iterdir())) == 5
        assert {path.read_text() for path in outside.iterdir()} == {"foreign", "precious"}

    def test_a_link_with_the_name_of_a_result_is_replaced_not_followed(self, tmp_path):
        (tmp_path / "precious").write_text("precious")
        (tmp_path / "f").symlink_to(tmp_path / "precious")
        atomic_write(tmp_path / "f", b"new")
        assert (tmp_path / "precious").read_text() == "precious"
        assert (tmp_path / "f").read_bytes() == b"new"

    def test_the_longest_name_can_be_written(self, tmp_path):
        atomic_write(tmp_path / ("\u00e9" * 127), b"new")
        assert [path.name for path in tmp_path.iterdir()] == ["\u00e9" * 127]

    def test_several_processes_write_the_same_file(self, tmp_path):
        """What one has begun is no leftover to the others."""
        code = (
            "import sys; from pathlib import Path; from texseg.io.files import atomic_write\n"
            "for i in range(60): atomic_write(Path(sys.argv[1]), sys.argv[2].encode() * 100_000)"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "f")]
        writers = [subprocess.Popen([*command, letter], stderr=subprocess.PIPE) for letter in "abc"]
        errors = [writer.communicate()[1] for writer in writers]
        assert errors == [b"", b"", b""]
        content = (tmp_path / "f").read_bytes()
        assert content in [letter * 100_000 for letter in (b"a", b"b", b"c")]
        assert list(tmp_path.iterdir()) == [tmp_path / "f"]


class TestGeoreference:
    def read_tagged(self, tmp_path):
        return read_image(io_scenes.tiff(tmp_path / "in.tif", PIXELS, extratags=io_scenes.GEO_TAGS)).geo

    def test_tags_are_carried_with_nodata_zero(self, tmp_path):
        geo = self.read_tagged(tmp_path)
        for labels in (TRUTH, TRUTH * 100):
            write_labels(tmp_path / "out.tif", labels, geo=geo)
            image = read_image(tmp_path / "out.tif")
            assert image.geo.tags == geo.tags
            assert image.nodata == 0
            with tifffile.TiffFile(tmp_path / "out.tif") as file:
                assert file.geotiff_metadata["ProjectedCSTypeGeoKey"] == 32633
        assert not (tmp_path / "out.tfw").exists()

    def test_a_png_gets_a_world_file(self, tmp_path):
        write_labels(tmp_path / "out.png", TRUTH, geo=self.read_tagged(tmp_path))
        numbers = [float(line) for line in (tmp_path / "out.pgw").read_text().split()]
        assert numbers == [0.5, 0, 0, -0.5, 500000.25, 5199999.75]

    def test_a_world_file_is_copied(self, tmp_path):
        geo = Georeference(world=io_scenes.WORLD_FILE)
        write_labels(tmp_path / "out.png", TRUTH, geo=geo)
        write_overlay(tmp_path / "over.png", PIXELS, {"": TRUTH}, geo=geo)
        write_confidence(tmp_path / "conf.tif", np.ones(TRUTH.shape, np.float32), geo=geo)
        for name in ("out.pgw", "over.pgw", "conf.tfw"):
            assert (tmp_path / name).read_text() == io_scenes.WORLD_FILE

    def test_a_coordinate_system_without_map_gives_no_world_file(self, tmp_path):
        geo = read_image(io_scenes.tiff(tmp_path / "in.tif", PIXELS, extratags=io_scenes.GEO_TAGS[2:])).geo
        write_labels(tmp_path / "out.png", TRUTH, geo=geo)
        assert geo.transform is None
        assert not (tmp_path / "out.pgw").exists()


class TestOverlayAndConfidence:
    @pytest.mark.parametrize(
        "pixels",
        [
            PIXELS,
            PIXELS.astype(np.uint16) * 13 + 30000,
            np.where(io_scenes.hole(), np.nan, PIXELS * 1e-9),
            np.stack([PIXELS, PIXELS], -1),
            np.stack([PIXELS] * 3, -1),
            np.stack([PIXELS] * 12, -1),
            PIXELS > 100,
        ],
    )
    def test_overlay_shows_the_image_stretched_under_every_type(self, tmp_path, pixels):
        labels = np.where(io_scenes.hole(), 0, 1)
        write_overlay(tmp_path / "o.png", pixels, {"": labels}, mask=~io_scenes.hole())
        shown = np.asarray(opened(tmp_path / "o.png")).astype(float).mean(axis=-1)
        flat = pixels if pixels.ndim == 2 else pixels[..., 0]
        inner = np.zeros(labels.shape, bool)
        inner[2:38, 2:58] = True
        assert np.corrcoef(shown[inner], flat[inner].astype(float))[0, 1] > 0.99
        assert np.ptp(shown[inner]) > 100

    @pytest.mark.parametrize("grey", [0, 128, 255])
    def test_overlay_draws_outlines_that_are_seen_on_any_image(self, tmp_path, grey):
        write_overlay(tmp_path / "o.png", np.full((*TRUTH.shape, 3), grey, np.uint8), {"": TRUTH})
        shown = np.asarray(opened(tmp_path / "o.png"))
        left = np.zeros(TRUTH.shape, bool)
        left[:, :-1] = TRUTH[:, :-1] != TRUTH[:, 1:]
        right = np.roll(left, 1, axis=1) & ~left
        assert (shown[left] == 255).mean() > 0.9
        assert (shown[right] == 0).mean() > 0.7

    def test_overlay_has_the_numbers_of_the_labels(self, tmp_path):
        labels = np.repeat([1, 8], 60)[None].repeat(60, axis=0)
        pixels = np.full(labels.shape, 99, np.uint8)
        write_overlay(tmp_path / "18.png", pixels, {"": labels})
        write_overlay(tmp_path / "81.png", pixels, {"": 9 - labels})
        one, eight = (np.asarray(opened(tmp_path / name))[:, :55] for name in ("18.png", "81.png"))
        for half in (one, eight):
            assert (half > 200).all(axis=-1).any()
            assert (half < 20).all(axis=-1).any()
        assert ((one > 200) != (eight > 200)).any()

    def test_numbers_can_be_read_in_a_large_picture_that_is_shrunk(self, tmp_path):
        labels = np.repeat([1, 8], 400)[None].repeat(400, axis=0)
        labels[:8, :20] = 5  # too small for any number
        labels[350:362, 700:730] = 6  # at four times the size there is room for a small one
        ink = []
        for times in (1, 4):
            large = np.kron(labels, np.ones((times, times), int))
            write_overlay(tmp_path / "o.png", np.full(large.shape, 99, np.uint8), {"": large})
            shown = np.asarray(opened(tmp_path / "o.png"))
            half = shown[50 * times : 350 * times, : 390 * times]
            rows = np.flatnonzero((half > 200).all(axis=-1).any(axis=1))
            assert 17 * times <= np.ptp(rows) + 1 <= 23 * times
            ink.append([(half > 200).all(axis=-1).mean(), (half < 20).all(axis=-1).mean()])
            small = shown[352 * times : 360 * times, 705 * times : 725 * times]
            assert (small > 200).all(axis=-1).any() == (times == 4)
        np.testing.assert_allclose(*ink, rtol=0.2)

    def test_overlay_of_one_segment_is_not_tinted(self, tmp_path):
        write_overlay(tmp_path / "o.png", PIXELS, {"": TRUTH * 0 + 1})
        shown = np.asarray(opened(tmp_path / "o.png"))
        assert (shown[..., 0] == shown[..., 2]).all()

    def test_constant_and_empty_images_are_drawn(self, tmp_path):
        for pixels in (np.full((9, 9), 7.0), np.full((9, 9), np.nan)):
            write_overlay(tmp_path / "o.png", pixels, {"": np.ones((9, 9), int)}, mask=np.isfinite(pixels))
            assert opened(tmp_path / "o.png").size == (9, 9)

    def test_shapes_must_match(self, tmp_path):
        with pytest.raises(ValueError, match=r"labels of shape \(160, 192\) do not match the image of shape"):
            write_overlay(tmp_path / "o.png", PIXELS.T, {"": TRUTH})

    def test_confidence_in_every_format(self, tmp_path):
        confidence = (PIXELS / 255).astype(np.float32)
        for name in ("c.tif", "c.npy"):
            write_confidence(tmp_path / name, confidence)
            assert np.array_equal(read_image(tmp_path / name).pixels, confidence)
        write_confidence(tmp_path / "c.png", confidence)
        assert np.array_equal(read_image(tmp_path / "c.png").pixels, PIXELS)


class TestPalette:
    # Machado, Oliveira and Fernandes (2009), "A physiologically-based model for simulation of color vision
    # deficiency", severity 1, on linear RGB
    deficiencies = {
        "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                       [-0.003882, -0.048116, 1.051998]],
        "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                         [-0.011820, 0.042940, 0.968881]],
        "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                       [0.004733, 0.691367, 0.303900]],
        "normal": np.eye(3),
    }  # fmt: skip

    @pytest.mark.parametrize("vision", deficiencies)
    def test_twenty_colours_and_black_stay_apart(self, vision):
        srgb = palette(20) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen = np.clip(linear @ np.array(self.deficiencies[vision]).T, 0, 1)
        lab = rgb2lab(np.where(seen <= 0.0031308, seen * 12.92, 1.055 * seen ** (1 / 2.4) - 0.055))
        distances = deltaE_ciede2000(lab[:, None], lab[None, :])
        assert distances[~np.eye(21, dtype=bool)].min() > 10.8

    def test_colours_do_not_depend_on_the_number_of_labels(self):
        assert np.array_equal(palette(255)[:8], palette(7))
        assert len(np.unique(palette(255), axis=0)) == 256


class TestTables:
    def test_segments_and_regions(self):
        labels = np.array([[1, 1, 0, 2], [1, 2, 2, 0], [0, 2, 0, 1]])
        confidence = np.where(labels == 2, 0.5, 1.0)
        rows = segment_table(labels, confidence, ["quartz"])
        assert [row[:5] for row in rows] == [(1, "quartz", "#0072b2", 4, 0.5), (2, "", "#e69f00", 4, 0.5)]
        assert rows[1][5:9] == (0, 1, 3, 4)
        assert [row.mean_confidence for row in rows] == [1.0, 0.5]
        regions = region_table(labels)
        assert [(r.region, r.label, r.pixels) for r in regions] == [
            (1, 1, 3),
            (2, 2, 1),
            (3, 2, 3),
            (4, 1, 1),
        ]
        header, line = csv_text(rows[:1], rows[0]._fields).splitlines()
        assert header.startswith(
            "label,name,colour,pixels,fraction,top,left,bottom,right,mean_confidence,area,perimeter,unit,"
        )
        assert line.startswith(f"1,quartz,#0072b2,4,0.5,0,0,3,4,1.0,4.0,{rows[0].perimeter},px,,,")
        assert header.count(",") == line.count(",")

    @pytest.mark.parametrize("size", [(1, 1), (2, 1), (0.5, 1.5)])
    def test_chords_and_borders_are_those_of_geometry(self, size):
        """Stripes 10 and 30 wide, at a slope of 0 and of 1; the edge of the image shortens no chord."""
        y, x = np.mgrid[: 240 : size[0], : 240 : size[1]]
        upright = segment_table((x % 40 < 10) + 1, pixel_size=(*size, "m"))
        for row, width in zip(upright, (30, 10), strict=True):
            assert row.chord_row == pytest.approx(width, rel=0.1)
            assert row.chord_column is None  # no border ends them
            assert row.boundary_per_area == pytest.approx(2 / width, rel=0.2)
        if size == (1, 1):
            sloping = segment_table(((x - y) % 40 < 10) + 1)[1]
            assert sloping.chord_row == sloping.chord_column == pytest.approx(10, rel=0.1)
            assert sloping.chord_down is None
            assert sloping.chord_up == pytest.approx(10 / 2**0.5, rel=0.1)

    def test_intervals_follow_from_probabilities_by_windows(self):
        """Pixels of a window are wrong together, windows independently; pixels that are sure add nothing."""
        labels = np.ones((80, 90), int)
        labels[:, 60:] = 2
        sure = np.stack([labels == 1, labels == 2], axis=-1).astype(float)
        assert [
            row.fraction_high - row.fraction_low for row in segment_table(labels, probabilities=sure)
        ] == [0, 0]
        unsure = sure.copy()
        unsure[:40, 40:80] = 0.5
        (one, two) = segment_table(labels, probabilities=unsure)
        half = 1.96 * 0.5 * 1600 / 7200
        assert (one.fraction_high - one.fraction, two.fraction_low) == (
            pytest.approx(half),
            pytest.approx(1 / 3 - half),
        )
        unsure[40:, 40:80] = 0.5
        again = segment_table(labels, probabilities=unsure)[0]
        assert again.fraction_high - again.fraction == pytest.approx(half * 2**0.5)
        with pytest.raises(
            ValueError, match=r"probabilities must have shape \(80, 90, 'K'\), got \(2, 80, 90\)"
        ):
            segment_table(labels, probabilities=np.moveaxis(sure, -1, 0))
        for wrong in (100 * sure, -sure, sure + np.nan):
            with pytest.raises(ValueError, match="probabilities must lie in 0 to 1, got"):
                segment_table(labels, probabilities=wrong)

    def test_regions_of_a_label_and_its_holes(self):
        labels = np.ones((40, 60), int)
        labels[5:15, 5:25] = labels[20:30, 40:50] = labels[35, 55] = 2
        labels[8:12, 8:12] = 3
        labels[0, 10] = 3
        one, two, _ = segment_table(labels, pixel_size=(0.5, 0.5, "mm"))
        assert (two.regions, two.region_area_50, two.area) == (3, 25.0, 71.25)
        assert two.filled_area == two.area + 4 * 4 / 4
        assert one.filled_area == (40 * 60 - 1) / 4  # the pixel at the edge is no hole
        regions = region_table(labels, pixel_size=(0.5, 0.5, "mm"))
        assert [r.filled_area - r.area for r in regions if r.label == 2] == [4, 0, 0]

    def test_colours_are_those_of_the_overlay(self):
        rows = segment_table(np.arange(1, 31)[None])
        assert [tuple(bytes.fromhex(row.colour[1:])) for row in rows] == [
            *map(tuple, palette(30)[1:].tolist())
        ]

    def test_a_disk_and_a_bar_have_the_shapes_of_geometry(self):
        """Lengths have the unit of the pixel size, centroids are in pixels, whatever that is."""
        y, x = np.mgrid[:200, :200]
        labels = np.where((y - 60) ** 2 + (x - 60) ** 2 <= 40**2, 2, 1)
        labels[150:160, 20:180] = 3
        um = PixelSize(0.5, 0.5, "um")
        disk, bar = (
            next(row for row in region_table(labels, pixel_size=um) if row.label == n) for n in (2, 3)
        )
        assert disk.unit == "um"
        assert disk.area == pytest.approx(np.pi * 20**2, rel=0.01)
        assert disk.perimeter == pytest.approx(2 * np.pi * 20, rel=0.01)
        assert (disk.major_axis, disk.minor_axis) == (
            pytest.approx(40, rel=0.01),
            pytest.approx(40, rel=0.01),
        )
        assert (disk.centroid_row, disk.centroid_column) == (60, 60)
        assert disk.eccentricity < 0.1
        assert bar.orientation == pytest.approx(np.pi / 2)
        assert (bar.area, bar.solidity) == (160 * 10 / 4, 1)
        assert bar.major_axis == pytest.approx(80 * 2 / 3**0.5, rel=0.01)  # of a bar's second moments
        segment = segment_table(labels, pixel_size=um)[1]
        assert (segment.area, segment.perimeter) == (disk.area, disk.perimeter)

    @pytest.mark.parametrize("size", [(1, 1), (2, 1), (0.5, 1.5)])
    @pytest.mark.parametrize(("axes", "within"), [((61.3, 61.3), 0.01), ((91.3, 61.3), 0.025)])
    def test_perimeters_are_those_of_geometry_for_square_and_other_pixels(self, size, axes, within):
        y, x = np.mgrid[-100 : 100 : size[0], -100 : 100 : size[1]]
        labels = ((y / axes[0]) ** 2 + (x / axes[1]) ** 2 <= 1) + 1
        length = 4 * axes[0] * ellipe(1 - (axes[1] / axes[0]) ** 2)
        assert segment_table(labels, pixel_size=(*size, "m"))[1].perimeter == pytest.approx(
            length, rel=within
        )

    @settings(max_examples=30, deadline=None)
    @given(labels=label_images(3))
    def test_perimeters_are_those_of_scikit_image_where_pixels_are_square(self, labels):
        for row in segment_table(labels):
            assert row.perimeter == pytest.approx(perimeter_crofton(np.pad(labels == row.label, 1), 4))

    def test_pixels_that_are_not_square_have_areas_and_axes_in_their_unit(self):
        (row,) = region_table(np.ones((30, 30), int), pixel_size=PixelSize(2, 1, "m"))
        assert row.area == 1800
        assert row.major_axis == pytest.approx(2 * row.minor_axis, rel=0.01)

    @settings(max_examples=30, deadline=None)
    @given(labels=label_images(4))
    def test_regions_add_up_to_segments(self, labels):
        segments = segment_table(labels)
        regions = region_table(labels, shapes=False)
        for row in segments:
            parts = [r for r in regions if r.label == row.label]
            assert row.pixels == sum(r.pixels for r in parts) == np.sum(labels == row.label)
            assert row.fraction == pytest.approx(sum(r.fraction for r in parts))
            assert row.top == min(r.top for r in parts)
            assert row.right == max(r.right for r in parts)


def region_outlines(regions):
    """Outline regions that arrive as one band."""
    outlines = Outlines(regions.shape)
    outlines.add(regions, regions)
    return outlines.rings(np.arange(regions.max(initial=0) + 1))


def filled(rings, shape):
    """Pixels inside rings along pixel edges, by counting the upright edges to their left."""
    inside = np.zeros(shape, bool)
    for ring in rings:
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if x0 == x1:
                inside[min(y0, y1) : max(y0, y1), x0:] ^= True
            else:
                assert y0 == y1
    return inside


def _sides(ring):
    """Straight pieces of a ring, whatever corner and way it begins with."""
    corners = [tuple(corner) for corner in ring.tolist()]
    return [frozenset(side) for side in zip(corners, corners[1:] + corners[:1], strict=True)]


class TestPolygons:
    @settings(max_examples=150, deadline=None)
    @given(labels=label_images(3))
    def test_outlines_are_exact_and_simple(self, labels):
        regions = connected_regions(labels)
        seen = []
        for number, rings in region_outlines(regions):
            seen.append(number)
            assert np.array_equal(filled(rings, regions.shape), regions == number)
            for ring in rings:
                assert len({tuple(corner) for corner in ring.tolist()}) == len(ring)  # no ring meets itself
            outer = filled(rings[:1], regions.shape)
            assert (outer | ~(regions == number)).all()
        assert seen == list(range(1, regions.max() + 1))

    @settings(max_examples=60, deadline=None)
    @given(labels=label_images(3), height=st.integers(1, 5))
    def test_what_comes_in_bands_has_the_regions_and_outlines_of_the_whole(self, labels, height):
        um = PixelSize(0.5, 2, "um")
        tally, outlines = Tally(["a"], um), Outlines(labels.shape)
        for top in range(0, len(labels), height):
            band = labels[top : top + height]
            outlines.add(band, tally.add(band, band / 4))
        whole = region_table(labels, labels / 4, ["a"], pixel_size=um, shapes=False)
        assert tally.regions() == whole
        assert tally.segments(labels) == segment_table(labels, labels / 4, ["a"], pixel_size=um)
        together = outlines.rings(tally.region_of_parts())
        for one, other in zip(together, region_outlines(connected_regions(labels)), strict=True):
            assert one[0] == other[0]
            assert [ring.tolist() for ring in one[1]] == [ring.tolist() for ring in other[1]]

    def test_outlines_are_those_of_gdal(self):
        features, errors = (pytest.importorskip(f"rasterio.{name}") for name in ("features", "errors"))
        rng = np.random.default_rng(0)
        for _ in range(40):
            regions = connected_regions(rng.integers(0, 3, rng.integers(2, 12, 2))).astype(np.int32)
            found = {
                number: {frozenset(_sides(ring)) for ring in rings}
                for number, rings in region_outlines(regions)
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", errors.NotGeoreferencedWarning)
                shapes = list(features.shapes(regions, mask=regions > 0, connectivity=4))
            assert found == {
                int(number): {frozenset(_sides(np.array(ring[:-1], int))) for ring in shape["coordinates"]}
                for shape, number in shapes
            }

    def test_geojson_in_pixels(self, tmp_path):
        labels = np.array([[1, 1, 1], [1, 2, 1], [1, 1, 1]])
        write_polygons(tmp_path / "p.geojson", labels, names=["quartz", "mica"], confidence=labels / 4)
        collection = json.loads((tmp_path / "p.geojson").read_text())
        assert collection["type"] == "FeatureCollection"
        assert "crs" not in collection
        ring, grain = collection["features"]
        assert ring["geometry"]["coordinates"][0] == [[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]]
        assert sorted(ring["geometry"]["coordinates"][1][:-1]) == [[1, 1], [1, 2], [2, 1], [2, 2]]
        assert grain["properties"]["classification"] == {"name": "mica", "color": [230, 159, 0]}
        assert grain["properties"]["fill"] == "#e69f00"
        assert grain["properties"]["objectType"] == "annotation"
        assert grain["properties"]["mean_confidence"] == 0.5

    def test_geojson_in_map_coordinates(self, tmp_path):
        geo = read_image(io_scenes.tiff(tmp_path / "in.tif", PIXELS, extratags=io_scenes.GEO_TAGS)).geo
        write_polygons(tmp_path / "p.geojson", np.ones((2, 4), int), geo=geo)
        collection = json.loads((tmp_path / "p.geojson").read_text())
        assert collection["crs"]["properties"]["name"] == "urn:ogc:def:crs:EPSG::32633"
        (feature,) = collection["features"]
        assert feature["properties"]["name"] == "segment 1"
        corners = np.array(feature["geometry"]["coordinates"][0])
        assert corners.min(axis=0).tolist() == [500000.0, 5199999.0]
        assert corners.max(axis=0).tolist() == [500002.0, 5200000.0]
        x, y = corners.T
        assert np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) > 0  # counter-clockwise
