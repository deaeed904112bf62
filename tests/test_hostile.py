"""Difficult inputs, from file to label image: each kind that has cost somebody hours."""

import json
import os
import warnings

import io_scenes
import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from io_scenes import SHAPE, read_mask, scene

from texseg import TextureSegmenter, segment
from texseg.cli import main
from texseg.io.read import read_image, read_labels
from texseg.metrics import match_labels, pixel_accuracy

PIXELS, TRUTH = scene()
HOLE = io_scenes.hole()


def run(*arguments):
    """Run the command in this process; whatever happens, no traceback."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def labels_of(path, **options):
    image = read_image(path, **options)
    return segment(image.pixels, 4, mask=image.mask, channel_axis=image.channel_axis)


def agreement(labels, reference=None):
    return float(np.mean(match_labels(labels, REFERENCE if reference is None else reference) == REFERENCE))


REFERENCE = segment(PIXELS, 4)


class TestSameSceneInAnotherEncoding:
    exact = (
        "named_wrongly.png", "gray16.png", "rgb.png", "rgb16.png", "rgba_opaque.png", "la_opaque.png",
        "palette_shuffled.png", "lossless.webp", "gray.gif", "gray16.j2k", "u16_12bit.tif",
        "u16_offset_narrow.tif", "u16_bigendian.tif", "u32.tif", "u64.tif", "i16_negative.tif", "f16.tif",
        "f32_unscaled.tif", "f64_tiny_range.tif", "planar_rgb.tif", "palette.tif", "white_is_zero.tif",
        "float64.npy", "oriented_6.png",
    )  # fmt: skip

    def test_the_reference_is_right(self):
        assert pixel_accuracy(REFERENCE, TRUTH) > 0.98

    def test_exact_encodings_give_the_same_labels(self, tmp_path):
        paths = io_scenes.exact_encodings(tmp_path)
        for name in self.exact:
            assert np.array_equal(labels_of(paths[name]), REFERENCE), name

    def test_lossy_encodings_agree(self, tmp_path):
        for name, path in io_scenes.lossy_encodings(tmp_path).items():
            assert agreement(labels_of(path)) >= 0.99, name


class TestNoData:
    def check_hole(self, labels, hole=HOLE):
        assert np.array_equal(labels == 0, hole)
        valid = ~hole
        assert pixel_accuracy(labels[valid], TRUTH[valid]) >= 0.95

    def test_nan_block(self, tmp_path):
        values = np.where(HOLE, np.nan, PIXELS).astype(np.float32)
        path = io_scenes.tiff(tmp_path / "nan.tif", values)
        with pytest.warns(UserWarning, match="4900 non-finite pixels treated as no data") as caught:
            labels = labels_of(path)
        assert len(caught) == 1
        self.check_hole(labels)

    def test_infinite_pixels(self):
        values = PIXELS.astype(np.float32)
        places = [3, 80, 150], [9, 100, 190]
        values[places] = np.inf, -np.inf, np.inf
        with pytest.warns(UserWarning, match="3 non-finite pixels"):
            labels = segment(values, 4)
        assert np.argwhere(labels == 0).tolist() == np.transpose(places).tolist()
        assert np.mean(labels == REFERENCE) >= 0.99

    def test_nodata_tag_with_georeference_from_end_to_end(self, tmp_path):
        values = np.where(HOLE, np.float32(-9999), PIXELS)
        tag = (42113, 2, 6, "-9999", True)
        path = io_scenes.tiff(tmp_path / "g.tif", values, extratags=[*io_scenes.GEO_TAGS, tag])
        assert run("segment", path, "-k", 4, "-o", tmp_path / "out").exit_code == 0
        self.check_hole(read_labels(tmp_path / "out" / "g_labels.tif"))
        self.check_hole(read_labels(tmp_path / "out" / "g_labels.png"))
        image = read_image(tmp_path / "out" / "g_labels.tif")
        assert (image.geo.epsg, image.nodata) == (32633, 0)
        assert image.geo.transform == read_image(path).geo.transform
        assert (tmp_path / "out" / "g_labels.pgw").exists()

    def test_stripe_of_zeros_by_tag_option_and_mask(self, tmp_path):
        stripe = np.zeros(SHAPE, bool)
        stripe[:, 90:115] = True
        values = np.where(stripe, 0, np.maximum(PIXELS, 1)).astype(np.uint8)
        tagged = io_scenes.tiff(tmp_path / "t.tif", values, extratags=[(42113, 2, 2, "0", True)])
        plain = io_scenes.write(tmp_path / "p.png", values)
        mask = io_scenes.write(tmp_path / "mask.png", ~stripe)
        self.check_hole(labels_of(tagged), stripe)
        for options in (["--nodata", 0], ["--mask", mask]):
            assert run("segment", plain, "-k", 4, "-o", tmp_path, *options).exit_code == 0
            self.check_hole(read_labels(tmp_path / "p_labels.png"), stripe)
        assert (labels_of(plain) > 0).all()

    def test_transparent_hole(self, tmp_path):
        noise = np.random.default_rng(0).integers(0, 256, SHAPE)
        grey = np.where(HOLE, noise, PIXELS).astype(np.uint8)
        rgba = np.dstack([grey] * 3 + [np.where(HOLE, 0, 255).astype(np.uint8)])
        path = io_scenes.write(tmp_path / "a.png", rgba)
        self.check_hole(labels_of(path))
        assert run("segment", path, "-k", 4, "-o", tmp_path, "--ignore-alpha").exit_code == 0
        assert (read_labels(tmp_path / "a_labels.png") > 0).all()

    def test_four_bands_keep_their_coordinate_system(self, tmp_path):
        bands = np.dstack([PIXELS.astype(np.uint16) * (i + 1) for i in range(4)])
        path = io_scenes.tiff(tmp_path / "b.tif", bands, planarconfig="contig", extratags=io_scenes.GEO_TAGS)
        assert run("segment", path, "-k", 4, "-o", tmp_path / "out").exit_code == 0
        assert read_image(tmp_path / "out" / "b_labels.tif").geo.epsg == 32633
        assert agreement(read_labels(tmp_path / "out" / "b_labels.tif")) > 0.97

    def test_no_valid_pixel_at_all(self, tmp_path):
        values = np.full(SHAPE, np.nan, np.float32)
        path = io_scenes.tiff(tmp_path / "empty.tif", values)
        with warnings.catch_warnings(), pytest.raises(ValueError, match="no valid pixels"):
            warnings.simplefilter("ignore")
            labels_of(path)
        failed = run("segment", path, "-k", 4, "-o", tmp_path / "out")
        assert failed.exit_code == 1
        assert "empty.tif: no valid pixels" in failed.stderr
        assert not (tmp_path / "out").exists()
        assert run("segment", path, "-k", 4, "-o", tmp_path / "out", "--allow-empty").exit_code == 0
        assert (read_labels(tmp_path / "out" / "empty_labels.png") == 0).all()

    def test_masks(self, tmp_path):
        path = io_scenes.write(tmp_path / "i.png", PIXELS)
        forms = {"one.png": ~HOLE * np.uint8(1), "full.png": ~HOLE * np.uint8(255)}
        results = []
        for name, values in forms.items():
            mask = io_scenes.write(tmp_path / name, values)
            assert run("segment", path, "-k", 4, "-o", tmp_path, "--mask", mask).exit_code == 0
            results.append(read_labels(tmp_path / "i_labels.png"))
            self.check_hole(results[-1])
        assert np.array_equal(*results)
        wrong = io_scenes.write(tmp_path / "wrong.png", np.ones(SHAPE[::-1], np.uint8))
        failed = run("segment", path, "-k", 4, "-o", tmp_path, "--mask", wrong)
        assert failed.exit_code == 1
        assert "mask shape (192, 160) does not match image (160, 192)" in failed.stderr
        assert "corrupt" not in failed.stderr
        with pytest.raises(ValueError, match=r"mask shape \(192, 160\) does not match image \(160, 192\)"):
            segment(PIXELS, 4, mask=read_mask(wrong))
        (tmp_path / "masks").mkdir()
        (tmp_path / "masks" / "i.png").touch()  # of the same name as the image, which is not to blame
        failed = run("segment", path, "-k", 4, "-o", tmp_path, "--mask", tmp_path / "masks")
        assert "i.png: mask i.png: empty file" in failed.stderr
        nothing = io_scenes.write(tmp_path / "nothing.png", np.zeros(SHAPE, np.uint8))
        assert "no valid pixels" in run("segment", path, "-k", 4, "-o", tmp_path, "--mask", nothing).stderr

    @pytest.mark.parametrize("side", [1, 3, 10])
    def test_mask_of_a_few_pixels(self, side):
        mask = np.zeros(SHAPE, bool)
        mask[50 : 50 + side, 60 : 60 + side] = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = segment(PIXELS, 4, mask=mask)
        assert np.array_equal(labels > 0, mask)

    def test_mask_folder(self, tmp_path):
        masks = tmp_path / "masks"
        masks.mkdir()
        io_scenes.write(masks / "a.png", ~HOLE)
        for name in ("a.png", "b.png"):
            io_scenes.write(tmp_path / name, PIXELS)
        result = run(
            "segment", tmp_path / "a.png", tmp_path / "b.png", "-k", 4, "-o", tmp_path, "--mask", masks
        )
        assert result.exit_code == 1
        assert "b.png: no mask named b in" in result.stderr
        self.check_hole(read_labels(tmp_path / "a_labels.png"))

    def test_world_file_goes_along(self, tmp_path):
        path = io_scenes.write(tmp_path / "w.png", PIXELS)
        (tmp_path / "w.pgw").write_text(io_scenes.WORLD_FILE)
        assert run("segment", path, "-k", 4, "-o", tmp_path / "out").exit_code == 0
        assert (tmp_path / "out" / "w_labels.pgw").read_text() == io_scenes.WORLD_FILE


class TestAxesPagesBands:
    stack = np.stack([PIXELS, np.roll(PIXELS, 40, axis=1), np.roll(PIXELS, 60, axis=0)])
    truth = np.stack([TRUTH, np.roll(TRUTH, 40, axis=1), np.roll(TRUTH, 60, axis=0)])

    def test_pages_are_asked_for(self, tmp_path):
        path = tmp_path / "pages.tif"
        tifffile.imwrite(path, self.stack, photometric="minisblack")
        failed = run("segment", path, "-k", 4, "-o", tmp_path)
        assert failed.exit_code == 1
        assert (
            "3 pages: choose one with page=N (--page N, from 0 to 2), or all with --page all" in failed.stderr
        )
        assert run("segment", path, "-k", 4, "-o", tmp_path, "--page", 1).exit_code == 0
        assert pixel_accuracy(read_labels(tmp_path / "pages_labels.png"), self.truth[1]) > 0.97

    def test_all_pages_with_one_model(self, tmp_path):
        path = tmp_path / "pages.tif"
        tifffile.imwrite(path, self.stack, photometric="minisblack")
        assert run("segment", path, "-k", 4, "-o", tmp_path, "--page", "all", "--all").exit_code == 0
        labels = tifffile.imread(tmp_path / "pages_labels.tif")
        assert labels.shape == self.stack.shape
        assert np.mean(match_labels(labels, self.truth) == self.truth) > 0.97
        header = (tmp_path / "pages_segments.csv").read_text().splitlines()[0]
        assert header.startswith("page,label,name,colour,pixels,fraction")
        assert tifffile.imread(tmp_path / "pages_confidence.tif").shape == self.stack.shape
        assert len(list(tmp_path.glob("pages_?_overlay.png"))) == 3
        assert len(list(tmp_path.glob("pages_?_polygons.geojson"))) == 3

    def test_twelve_bands(self, tmp_path):
        path = io_scenes.tiff(tmp_path / "b.tif", np.dstack([PIXELS] * 12), planarconfig="contig")
        assert np.mean(labels_of(path) == REFERENCE) > 0.97

    def test_arrays_from_notebooks(self, tmp_path):
        for name, array, reason in (
            ("ndim4.npy", np.zeros((2, 3, 8, 8)), "shape (2, 3, 8, 8)"),
            ("complex.npy", np.zeros((8, 8), complex), "dtype complex128"),
            ("string.npy", np.array([["a"]]), "dtype <U1"),
            ("empty.npy", np.zeros((0, 5)), "shape (0, 5)"),
        ):
            np.save(tmp_path / name, array)
            failed = run("segment", tmp_path / name, "-k", 2, "-o", tmp_path)
            assert failed.exit_code == 1
            assert reason in failed.stderr
            with pytest.raises((TypeError, ValueError)):
                segment(array, 2)
        np.save(tmp_path / "hwc.npy", np.dstack([PIXELS] * 3))
        assert run("segment", tmp_path / "hwc.npy", "-k", 4, "-o", tmp_path).exit_code == 1
        assert (
            run("segment", tmp_path / "hwc.npy", "-k", 4, "-o", tmp_path, "--channel-axis", -1).exit_code == 0
        )
        assert np.array_equal(read_labels(tmp_path / "hwc_labels.png"), REFERENCE)


class TestGeometryAndContent:
    @pytest.mark.parametrize("shape", [(1, 1), (1, 192), (160, 1), (5, 192), (8, 8), (3, 3)])
    def test_images_smaller_than_a_window(self, shape):
        values = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                labels = segment(values, 4)
            except ValueError as error:
                assert str(shape[0]) in str(error)
                return
        assert labels.shape == shape
        assert 1 <= labels.min() <= labels.max() <= 4

    @pytest.mark.parametrize("value", [np.uint8(128), np.uint8(0), np.float32(1e6)])
    def test_constant_image(self, value):
        with pytest.warns(UserWarning, match="4"):
            labels = segment(np.full(SHAPE, value), 4)
        assert (labels == 1).all()

    def test_half_constant_image(self):
        values = np.where(np.arange(192) < 96, PIXELS, 128).astype(np.uint8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = segment(values, 3)
        flat = labels[:, 108:]
        assert np.mean(flat == np.bincount(flat.ravel()).argmax()) > 0.98

    def test_round_a_single_bright_pixel_all_is_one_flat_segment(self):
        values = np.zeros(SHAPE, np.uint8)
        values[80, 96] = 255
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = segment(values, 2)
        away = np.hypot(*np.subtract(np.indices(SHAPE), np.reshape((80, 96), (2, 1, 1)))) > 56
        assert (labels[away] == labels[0, 0]).all()

    def test_binary_image_in_three_forms(self):
        bits = PIXELS > 128
        reference = segment(bits, 4)
        for values in (bits.astype(np.uint8), bits * np.uint8(255)):
            assert np.array_equal(segment(values, 4), reference)

    def test_saturated_image(self):
        assert pixel_accuracy(segment(np.clip(PIXELS * 3.0 - 200, 0, 255), 4), TRUTH) >= 0.9

    @pytest.mark.filterwarnings("ignore:using the logarithm of the values")
    @pytest.mark.parametrize("kind", ["gain", "ramp"])
    def test_illumination_is_not_texture(self, kind):
        light = np.add.outer(np.linspace(0, 0.5, 160), np.linspace(0, 0.5, 192))
        values = PIXELS * (1 + 49 * light) if kind == "gain" else PIXELS + 400 * light
        assert pixel_accuracy(segment(values, 4), TRUTH) >= 0.95

    def test_colour_counts_even_without_lightness(self):
        noise = np.random.default_rng(0).normal(0, 6, (*SHAPE, 3))
        colour = np.where((np.arange(192) < 96)[:, None], (160, 100, 100), (70, 130, 130))
        labels = segment(np.clip(colour + noise, 0, 255).astype(np.uint8), 2, channel_axis=-1)
        assert pixel_accuracy(labels, np.broadcast_to(1 + (np.arange(192) >= 96), SHAPE)) > 0.97


class TestNamesAndFolders:
    def test_names_of_every_kind(self, tmp_path):
        names = ["bild № 1 (копия).png", "-dash first.png", "[brackets]*.png", "木目.png"]
        for name in names:
            io_scenes.write(tmp_path / name, PIXELS)
        result = run("segment", "-k", 2, "-o", tmp_path / "out", "--", *[tmp_path / name for name in names])
        assert result.exit_code == 0
        written = {path.name for path in (tmp_path / "out").glob("*_labels.png")}
        assert written == {name.replace(".png", "_labels.png") for name in names}

    def test_dash_in_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        io_scenes.write(tmp_path / "-dash first.png", PIXELS)
        assert run("segment", "-k", 2, "--", "-dash first.png").exit_code == 0
        assert (tmp_path / "-dash first_labels.png").exists()

    def test_output_that_cannot_be_written_is_found_before_computing(self, tmp_path, monkeypatch):
        path = io_scenes.write(tmp_path / "i.png", PIXELS)
        (tmp_path / "file_as_dir").write_text("a file")
        monkeypatch.setattr(TextureSegmenter, "fit", lambda *_, **__: pytest.fail("computed"))
        for folder in (tmp_path / "file_as_dir", tmp_path / "file_as_dir" / "inside"):
            failed = run("segment", path, "-k", 2, "-o", folder)
            assert failed.exit_code == 1
            assert f"cannot write to the folder {folder}" in failed.stderr
            assert len(failed.stderr.splitlines()) == 1

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
    def test_read_only_output(self, tmp_path):
        path = io_scenes.write(tmp_path / "i.png", PIXELS)
        (tmp_path / "out").mkdir(mode=0o555)
        assert run("segment", path, "-k", 2, "-o", tmp_path / "out").exit_code == 1

    def test_equal_names_never_share_an_output(self, tmp_path):
        for place in ("a", "b", "."):
            (tmp_path / "in" / place).mkdir(parents=True, exist_ok=True)
            io_scenes.write(tmp_path / "in" / place / "img.png", PIXELS)
        io_scenes.tiff(tmp_path / "in" / "img.tif", PIXELS)
        result = run("segment", tmp_path / "in", "--recursive", "-k", 2, "-o", tmp_path / "out")
        assert result.exit_code == 0
        written = {
            str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*_labels.png")
        }
        assert written == {
            os.path.join("a", "img_labels.png"), os.path.join("b", "img_labels.png"),
            "img.png_labels.png", "img.tif_labels.png",
        }  # fmt: skip

    def test_mixed_folder(self, tmp_path):
        folder = tmp_path / "mixed"
        folder.mkdir()
        for number in (1, 2, 3, 10):
            io_scenes.write(folder / f"img_{number}.png", PIXELS)
        (folder / "bad_text.png").write_text("not an image")
        (folder / "bad_zero.png").touch()
        (folder / "bad_truncated.jpg").write_bytes(b"\xff\xd8\xff\xe0")
        for name in (".DS_Store", "Thumbs.db", "._img_1.png", "notes.txt"):
            (folder / name).write_bytes(b"\0 whatever")
        io_scenes.write(folder / "img_1_labels.png", PIXELS)
        (folder / "sub").mkdir()
        io_scenes.write(folder / "sub" / "not_asked.png", PIXELS)
        report = tmp_path / "run.json"
        result = run("segment", folder, "-k", 2, "-o", tmp_path / "out", "--summary", report)
        assert result.exit_code == 1
        done = [
            line.split(":")[0].rsplit("/")[-1] for line in result.stdout.splitlines() if "segments," in line
        ]
        assert done == ["img_1.png", "img_2.png", "img_3.png", "img_10.png"]
        assert result.stdout.splitlines()[-1] == "4 done, 3 failed"
        assert sorted(line for line in result.stderr.splitlines() if line.startswith("failed")) == [
            f"failed: {folder / 'bad_text.png'}: text file, not an image",
            f"failed: {folder / 'bad_truncated.jpg'}: file is truncated",
            f"failed: {folder / 'bad_zero.png'}: empty file",
        ]
        records = json.loads(report.read_text())
        assert [record["status"] for record in records] == ["failed"] * 3 + ["done"] * 4

    def test_empty_folder(self, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / "notes.txt").write_text("nothing here")
        result = run("segment", tmp_path / "empty", "-k", 2, "-o", tmp_path / "out")
        assert result.exit_code == 2
        assert f"no images found in {tmp_path / 'empty'}" in result.stderr
        assert not (tmp_path / "out").exists()

    def test_what_is_named_like_a_file_and_is_none(self, tmp_path):
        (tmp_path / "dir.png").mkdir()
        (tmp_path / "broken.png").symlink_to("nowhere")
        (tmp_path / "loop.png").symlink_to("loop.png")
        for name in ("dir.png", "broken.png", "loop.png", "missing.png"):
            failed = run("segment", tmp_path / name, "-k", 2, "-o", tmp_path / "out")
            assert failed.exit_code == 1, name
            assert len(failed.stderr.splitlines()) == 1
            assert failed.stderr.startswith(f"failed: {tmp_path / name}: ")


def test_wrong_calls_are_answered_by_one_sentence_each():
    """Of every public function and parameter; the sentence is ours, not Python's or NumPy's."""
    from benchmarks import wrong_calls

    answers = dict(wrong_calls.answers())
    assert len(answers) > 300
    assert {call: said for call, said in answers.items() if said} == {}
