"""The verbs of the command: what they write and print, and what they refuse."""

import csv
import json
import os
import subprocess
import sys
from importlib import metadata

import io_scenes
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from report_scene import content_of

import texseg
from texseg.cli import main
from texseg.io.read import read_labels
from texseg.metrics import pixel_accuracy

PIXELS, TRUTH = io_scenes.scene()


def names_in(path):
    return texseg.TextureSegmenter.load(path).names_


def run(*arguments, exit_code=0, **options):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], **options)
    assert result.exit_code == exit_code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def scene_file(tmp_path_factory):
    return io_scenes.write(tmp_path_factory.mktemp("scene") / "scene.png", PIXELS)


@pytest.fixture(scope="module")
def model_file(scene_file, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "rock.texseg"
    result = run("fit", scene_file, "-k", 4, "-o", path)
    assert result.stdout == f"{path}: 4 textures\n"
    return path


class TestSegment:
    def test_files_and_table(self, scene_file, tmp_path):
        out = tmp_path / "new" / "folder"
        result = run("segment", scene_file, "-k", 4, "-o", out)
        assert sorted(path.name for path in out.iterdir()) == [
            "scene_labels.png", "scene_labels.tif", "scene_overlay.png",
            "scene_run.json", "scene_segments.csv",
        ]  # fmt: skip
        labels = read_labels(out / "scene_labels.png")
        assert np.array_equal(labels, texseg.segment(PIXELS, 4))
        assert np.array_equal(read_labels(out / "scene_labels.tif"), labels)
        with (out / "scene_segments.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [int(row["pixels"]) for row in rows] == np.bincount(labels.ravel())[1:].tolist()
        assert sum(float(row["fraction"]) for row in rows) == pytest.approx(1)
        assert {row["unit"] for row in rows} == {"px"}
        lines = result.stdout.splitlines()
        assert f"{scene_file}: 192 x 160, 4 segments, " in lines[0]
        assert lines[1].split() == ["label", "pixels", "share"]
        assert [int(line.split()[0]) for line in lines[2:]] == [1, 2, 3, 4]
        assert result.stderr == ""

    def test_a_pixel_size_gives_the_tables_units(self, scene_file, tmp_path):
        """It is recorded, since other sizes make other results."""
        out = ("-k", 2, "--regions", "-o", tmp_path, "--skip-existing", "--pixel-size")
        assert run("segment", scene_file, *out, "0.5um").exit_code == 0
        for name in ("segments", "regions"):
            rows = list(csv.DictReader((tmp_path / f"scene_{name}.csv").read_text().splitlines()))
            assert all(float(row["area"]) == int(row["pixels"]) / 4 for row in rows)
            assert {row["unit"] for row in rows} == {"um"}
        assert "skipped" in run("segment", scene_file, *out, "0.5um").stdout
        assert "skipped" not in run("segment", scene_file, *out, "2 mm").stdout
        wrong = run("segment", scene_file, *out, "0.5", exit_code=2)
        assert "'0.5' is not a length with its unit, such as 0.25um or 30m" in wrong.stderr

    def test_intervals_of_areas_hold_them(self, scene_file, tmp_path):
        """They are part of the record: a table without them is another result."""
        run("segment", scene_file, "-k", 4, "-q", "-o", tmp_path)
        run("segment", scene_file, "-k", 4, "-q", "--intervals", "--skip-existing", "-o", tmp_path)
        rows = list(csv.DictReader((tmp_path / "scene_segments.csv").read_text().splitlines()))
        found = read_labels(tmp_path / "scene_labels.png")
        right = texseg.match_labels(TRUTH, found)
        for row in rows:
            low, fraction, high = (float(row[name]) for name in ("fraction_low", "fraction", "fraction_high"))
            assert 0 <= low < fraction < high < low + 0.3
            assert low <= np.mean(right == int(row["label"])) <= high

    def test_everything_that_can_be_written(self, scene_file, tmp_path):
        run("segment", scene_file, "-k", 4, "-o", tmp_path, "--all", "--format", "png,tif,npy", "-q")
        names = {path.name.removeprefix("scene_") for path in tmp_path.iterdir()}
        assert names == {
            "labels.png", "labels.tif", "labels.npy", "overlay.png", "confidence.tif",
            "segments.csv", "regions.csv", "polygons.geojson", "report.html", "run.json",
        }  # fmt: skip
        for suffix in ("tif", "npy"):
            assert np.array_equal(
                read_labels(tmp_path / f"scene_labels.{suffix}"), read_labels(tmp_path / "scene_labels.png")
            )
        polygons = json.loads((tmp_path / "scene_polygons.geojson").read_text())
        with (tmp_path / "scene_regions.csv").open(newline="") as file:
            regions = list(csv.DictReader(file))
        assert len(polygons["features"]) == len(regions)
        assert all(0 < float(row["mean_confidence"]) <= 1 for row in regions)

    def test_options_reach_the_segmentation(self, scene_file, tmp_path):
        run(
            "segment",
            scene_file,
            "-k",
            3,
            "--smoothness",
            0.5,
            "--min-size",
            50,
            "--seed",
            3,
            "-o",
            tmp_path,
            "-q",
        )
        expected = texseg.segment(PIXELS, 3, smoothness=0.5, min_size=50, random_state=3)
        assert np.array_equal(read_labels(tmp_path / "scene_labels.png"), expected)

    def test_every_parameter_is_an_option(self, scene_file, tmp_path):
        options = {
            "cell": 4, "wavelengths": "3,6", "orientations": 3, "bins": 20, "starts": 1, "patch-weight": 2,
            "value-weight": 0.5,
        }  # fmt: skip
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        given += ["--no-learned-borders", "--cue", "texture"]
        run("segment", scene_file, "-k", 3, *given, "-o", tmp_path, "-q")
        expected = texseg.segment(
            PIXELS, 3, cell=4, wavelengths=(3, 6), n_orientations=3, n_bins=20, n_starts=1, patch_weight=2,
            value_weight=0.5, learned_borders=False, cue="texture",
        )  # fmt: skip
        assert np.array_equal(read_labels(tmp_path / "scene_labels.png"), expected)

    def test_the_plain_preset_is_plain(self, scene_file, tmp_path):
        run("segment", scene_file, "-k", 3, "--preset", "plain", "-o", tmp_path, "-q")
        expected = texseg.segment(PIXELS, 3, preset="plain")
        assert np.array_equal(read_labels(tmp_path / "scene_labels.png"), expected)

    def test_channels_and_grey(self, tmp_path):
        colour = np.dstack([PIXELS, PIXELS[::-1], PIXELS[:, ::-1]])
        path = io_scenes.write(tmp_path / "c.png", colour)
        run("segment", path, "-k", 3, "--channels", "1", "-o", tmp_path, "-q")
        expected = texseg.segment(np.ascontiguousarray(PIXELS[::-1]), 3)
        assert np.array_equal(read_labels(tmp_path / "c_labels.png"), expected)
        run("segment", path, "-k", 3, "--grey", "-o", tmp_path, "-q")
        grey = (colour.astype(np.float32) * np.float32([0.2125, 0.7154, 0.0721])).sum(axis=-1)
        assert np.mean(read_labels(tmp_path / "c_labels.png") == texseg.segment(grey, 3)) > 0.99
        failed = run("segment", path, "-k", 3, "--channels", "0,3", "-o", tmp_path, exit_code=1)
        assert "(--channels) must name different bands of the image, from 0 to 2" in failed.stderr
        failed = run("segment", path, "-k", 3, "--channels", "0,1", "--grey", "-o", tmp_path, exit_code=1)
        assert "only three channels can be turned grey, not 2" in failed.stderr

    def test_a_dead_band_is_left_out_by_channels(self, tmp_path):
        values = np.dstack([PIXELS, np.full(PIXELS.shape, np.nan), PIXELS[::-1]]).astype(np.float32)
        path = io_scenes.tiff(tmp_path / "d.tif", values, planarconfig="contig")
        said = run("segment", path, "-k", 3, "-o", tmp_path, exit_code=1).stderr
        assert "band 1 (counted from 0) of 3 holds no data" in said
        assert "leave it out with bands=[0, 2] (--channels 0,2)" in said
        run("segment", path, "-k", 3, "-o", tmp_path, "--channels", "0,2", "-q")
        assert (read_labels(tmp_path / "d_labels.png") > 0).all()

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("-", "'-' would be standard input, which is not read"),
            ("https://a.org/b.png", "https://a.org/b.png is an address; download the file"),
        ],
    )
    def test_what_is_no_file_gets_a_sentence(self, tmp_path, monkeypatch, path, message):
        monkeypatch.chdir(tmp_path)
        assert message in " ".join(run("segment", "--", path, exit_code=2).stderr.split())

    def test_one_segment_is_one_segment(self, scene_file, tmp_path):
        assert "192 x 160, 1 segment, " in run("segment", scene_file, "-k", 1, "-o", tmp_path).stdout

    def test_one_texture_is_no_dead_end(self, tmp_path):
        noise = np.random.default_rng(0).integers(0, 256, (96, 96)).astype(np.uint8)
        Image.fromarray(noise).save(tmp_path / "noise.png")
        said = "found one texture; pass a number, such as -k 2, to divide it anyway"
        plain = run("segment", tmp_path / "noise.png", "--k-min", 1, "-o", tmp_path / "chosen")
        assert said in plain.stderr and "number chosen: 1 segment (" in plain.stdout
        divided = run("segment", tmp_path / "noise.png", "-o", tmp_path / "divided")
        assert said not in divided.stderr and "number chosen: probably a single texture (" in divided.stdout
        assert " because k_min is 2" in divided.stdout
        assert said not in run("segment", tmp_path / "noise.png", "-k", 1, "-o", tmp_path / "given").stderr

    def test_no_number_is_advised_that_would_divide_nothing(self, tmp_path):
        Image.fromarray(np.full((96, 96), 7, np.uint8)).save(tmp_path / "flat.png")
        chosen = run("segment", tmp_path / "flat.png", "-o", tmp_path / "chosen").stderr
        assert "found one texture; no further textures could be distinguished" in chosen
        assert "-k" not in chosen

    def test_number_is_chosen(self, scene_file, tmp_path):
        run("segment", scene_file, "--k-max", 6, "-o", tmp_path, "-q")
        expected = texseg.segment(PIXELS, k_max=6)
        assert np.array_equal(read_labels(tmp_path / "scene_labels.png"), expected)

    def test_the_choice_is_told_with_others_and_how_to_get_them(self, scene_file, tmp_path):
        told = run("segment", scene_file, "--k-max", 6, "-o", tmp_path).stdout
        selection = texseg.TextureSegmenter(k_max=6).fit(PIXELS).selection_
        assert f"number chosen: {selection}" in told
        for other in [k for k in selection.others if k > 1][:1]:
            assert f"; to have another: -k {other}" in told
        assert "number chosen" not in run("segment", scene_file, "-k", 2, "-o", tmp_path / "given").stdout

    def test_no_number_between_k_min_and_k_max_is_a_mistake(self, scene_file, tmp_path):
        refused = run("segment", scene_file, "--k-min", 5, "--k-max", 4, "-o", tmp_path, exit_code=2)
        assert "--k-min 5 is above --k-max 4: no number is left to choose" in refused.stderr

    def test_another_model_of_the_family(self, scene_file, tmp_path):
        run("segment", scene_file, "-k", 4, "--model", "acm-hard", "-o", tmp_path, "-q")
        expected = texseg.segment(PIXELS, 4, model="acm-hard")
        assert np.array_equal(read_labels(tmp_path / "scene_labels.png"), expected)

    def test_quiet(self, scene_file, tmp_path):
        assert run("segment", scene_file, "-k", 2, "-o", tmp_path, "-q").output == ""

    def test_inputs_are_never_written_over(self, tmp_path):
        for name in ("a.png", "a_labels.png", "a_3_overlay.png"):
            io_scenes.write(tmp_path / name, PIXELS)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        for other in ("a_labels.png", "a_3_overlay.png"):
            refused = run(
                "segment", tmp_path / "a.png", tmp_path / other, "-k", 2, "-o", tmp_path, exit_code=2
            )
            assert f"the results would overwrite the input {tmp_path / other}" in refused.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        run("segment", tmp_path / "a.png", tmp_path / "a_labels.png", "-k", 2, "-o", tmp_path / "out", "-q")

    @pytest.mark.parametrize("form", ["png", "tif,zarr"])
    def test_formats_without_pages_are_refused_before_any_work(self, tmp_path, monkeypatch, form):
        if "zarr" in form:
            pytest.importorskip("zarr")
        Image.fromarray(PIXELS).save(
            tmp_path / "two.tif", save_all=True, append_images=[Image.fromarray(PIXELS)]
        )
        monkeypatch.setattr(texseg.TextureSegmenter, "_fit", None)
        pages = ["segment", tmp_path / "two.tif", "--page", "all", "-k", 4, "-o", tmp_path / "out"]
        result = run(*pages, "--format", form, exit_code=1)
        assert "labels of several pages are written as tif or npy, not png or zarr" in result.stderr
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["-k", "0"], "'0' is neither a whole number from 1 to 255 nor 'auto'"),
            (["-k", "256"], "'256' is neither a whole number from 1 to 255 nor 'auto'"),
            (["-k", "many"], "'many' is neither a whole number from 1 to 255 nor 'auto'"),
            (["-k", "2", "--k-max", "256"], "'256' is not a whole number from 1 to 255"),
            (
                ["-k", "2", "--wavelengths", "a"],
                "'a' is not a sequence of numbers from 2 to 1024 pixels",
            ),
            (["-k", "2", "--channels", "0,0"], "'0,0' is not a list of different channels, numbered from 0"),
            (["-k", "2", "--page", "-1"], "'-1' is neither the number of a page, from 0, nor 'all'"),
            (
                ["-k", "2", "--max-pixels", "lots"],
                "'lots' is not a number of pixels such as 500M, nor 'none'",
            ),
            (["-k", "2", "--max-pixels", "0"], "'0' is not a number of pixels"),
            (["-k", "2", "--format", "png,gif"], "'png,gif' is not a list of png, tif, npy, zarr"),
            (
                ["-k", "2", "--summary", "run.txt"],
                "run.txt cannot be the name of the summary to write, which ends in .csv or .json",
            ),
            (
                ["-k", "2", "-o", "labels.png"],
                "-o names the folder for the results; labels.png looks like a file",
            ),
            (["-k", "2", "--segmets", "3"], "--segments"),
            (["-k", "2", "--mask", "nowhere.png"], "'nowhere.png' does not exist"),
            (["-k", "2", "--preset", "best"], "'best' is not one of 'default', 'plain'"),
        ],
    )
    def test_mistakes_in_the_command(self, scene_file, tmp_path, monkeypatch, arguments, message):
        monkeypatch.chdir(tmp_path)
        assert message in " ".join(run("segment", scene_file, *arguments, exit_code=2).stderr.split())
        assert not list(tmp_path.iterdir())

    def test_mistyped_verb(self):
        said = run("segmet", exit_code=2).stderr
        assert "No such command 'segmet'" in said
        if [int(part) for part in metadata.version("click").split(".")[:2]] >= [8, 4]:  # it suggests verbs
            assert "Did you mean 'segment'?" in said

    def test_report_may_not_be_an_input(self, tmp_path):
        array = tmp_path / "a.json"
        io_scenes.write(array, PIXELS, format="PNG")
        refused = run("segment", array, "-k", 2, "-o", tmp_path / "o", "--summary", array, exit_code=2)
        assert "a.json exists and is not a summary of texseg; it was not replaced" in refused.stderr

    def test_size_limit(self, scene_file, tmp_path):
        failed = run("segment", scene_file, "-k", 2, "-o", tmp_path, "--max-pixels", "30k", exit_code=1)
        assert "192 x 160 = 0.0307 Mpx, about 0.0" in failed.stderr
        assert "GB needed; limit 0.03 Mpx" in failed.stderr
        for enough in ("31k", "0.1M", "none", "30720"):
            run("segment", scene_file, "-k", 2, "-o", tmp_path, "--max-pixels", enough, "-q")


class TestFitApplyName:
    def test_learned_textures_are_found_again(self, model_file, scene_file, tmp_path):
        flipped = io_scenes.write(tmp_path / "other.png", np.roll(PIXELS, 50, axis=1))
        run("apply", model_file, scene_file, flipped, "-o", tmp_path, "--confidence")
        labels = read_labels(tmp_path / "other_labels.png")
        assert pixel_accuracy(labels, np.roll(TRUTH, 50, axis=1)) > 0.97
        same = np.roll(read_labels(tmp_path / "scene_labels.png"), 50, axis=1)
        assert np.mean(labels == same) > 0.97
        with Image.open(tmp_path / "other_confidence.png") as image:
            assert np.asarray(image).mean() > 128

    def test_unknown_textures_get_a_label_of_their_own(self, model_file, tmp_path):
        strange = np.random.default_rng(0).integers(0, 256, (160, 384)).astype(np.uint8)
        strange[:, :192] = PIXELS
        path = io_scenes.write(tmp_path / "strange.png", strange)
        run("apply", model_file, path, "-o", tmp_path, "--unknown", "--all", "-q")
        labels = read_labels(tmp_path / "strange_labels.png")
        assert np.mean(labels[:, 240:] == 5) > 0.8
        assert np.mean(labels[:, :150] == 5) < 0.05
        last = (tmp_path / "strange_segments.csv").read_text().splitlines()[-1]
        assert last.startswith("5,unknown,")
        with Image.open(tmp_path / "strange_confidence.png") as image:
            assert not np.asarray(image)[labels == 5].any()
        foreign = io_scenes.write(tmp_path / "foreign.png", np.ascontiguousarray(strange[:, 192:]))
        assert "all unknown" in run("apply", model_file, foreign, "-o", tmp_path, "--unknown").stdout
        assert (read_labels(tmp_path / "foreign_labels.png") == 5).all()
        run("apply", model_file, path, "-o", tmp_path, "-q")
        assert read_labels(tmp_path / "strange_labels.png").max() == 4

    def test_names_and_colours(self, model_file, scene_file, tmp_path):
        path = tmp_path / "named.texseg"
        path.write_bytes(model_file.read_bytes())
        assert names_in(path) == ("",) * 4
        listed = run("name", path, "1=quartz", "2 = potash feldspar")
        assert [line.split(maxsplit=2) for line in listed.stdout.splitlines()][:2] == [
            ["1", "#0072b2", "quartz"],
            ["2", "#e69f00", "potash feldspar"],
        ]
        assert names_in(path) == ("quartz", "potash feldspar", "", "")
        before = path.read_bytes()
        assert run("name", path).stdout == listed.stdout
        assert path.read_bytes() == before
        table = run("apply", path, scene_file, "-o", tmp_path, "--polygons").stdout
        assert "quartz" in table
        assert "quartz" in (tmp_path / "scene_segments.csv").read_text()
        assert "potash feldspar" in (tmp_path / "scene_polygons.geojson").read_text()

    def test_segments_are_counted_that_were_found(self, model_file, tmp_path):
        """Of the four textures of the model a flat image shows one, whatever its number."""
        flat = io_scenes.write(tmp_path / "flat.png", np.full((64, 64), 90, np.uint8))
        done = run("apply", model_file, flat, "-o", tmp_path, "--summary", tmp_path / "s.json").stdout
        assert "64 x 64, 1 segment, " in done
        assert json.loads((tmp_path / "s.json").read_text())[0]["n_segments"] == 1
        assert json.loads((tmp_path / "flat_run.json").read_text())["result"]["n_segments"] == 1

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["5=x"], "label 5 is not one of the segments, which are 1 to 4"),
            (["0=x"], "label 0 is not one of the segments"),
            (["quartz"], "'quartz' is not of the form NUMBER=NAME, such as 1=quartz"),
            (["1="], "'1=' is not of the form"),
            (["1=x", "2=x"], "each name may be given once, got x, x"),
        ],
    )
    def test_names_that_are_refused(self, model_file, names, message):
        before = model_file.read_bytes()
        assert message in run("name", model_file, *names, exit_code=2).stderr
        assert model_file.read_bytes() == before

    def test_models_that_cannot_be_used(self, model_file, scene_file, tmp_path):
        broken = tmp_path / "broken.texseg"
        broken.write_bytes(model_file.read_bytes()[:1000])
        for path, reason in ((broken, "model file was damaged"), (tmp_path / "none", "no such model file")):
            for verb in (["name", path], ["apply", path, scene_file, "-o", tmp_path]):
                failed = run(*verb, exit_code=1)
                assert failed.stderr.startswith(f"texseg: {path.name}: {reason}")

    def test_colour_is_turned_to_grey_and_other_channels_are_refused(self, model_file, tmp_path):
        colour = np.dstack([PIXELS, PIXELS.T[:160].repeat(2, axis=1)[:, :192], PIXELS[::-1]])
        done = run("apply", model_file, io_scenes.write(tmp_path / "c.png", colour), "-o", tmp_path)
        assert "the model learned grey images; colour images are turned to grey for it" in done.stderr
        bands = np.dstack([colour, PIXELS[:, ::-1], PIXELS])
        np.save(tmp_path / "b.npy", bands)
        failed = run(
            "apply", model_file, tmp_path / "b.npy", "--channel-axis", -1, "-o", tmp_path, exit_code=1
        )
        assert "the model was fitted on images with 1 band(s), got one with 5" in failed.stderr

    def test_another_encoding_is_named_and_brought_back(self, model_file, tmp_path):
        image = io_scenes.write(tmp_path / "wide.png", PIXELS.astype(np.uint16) * 257)
        named = run("apply", model_file, image, "-o", tmp_path / "a")
        assert "as if multiplied by 257" in named.stderr
        quiet = run("apply", model_file, image, "--rescale", "-o", tmp_path / "b")
        assert "multiplied" not in quiet.stderr

    def test_a_refused_image_leaves_no_folder(self, tmp_path):
        (tmp_path / "text.png").write_text("no image")
        run("segment", tmp_path / "text.png", "-o", tmp_path / "new" / "out", exit_code=1)
        assert [path.name for path in tmp_path.iterdir()] == ["text.png"]
        summary = tmp_path / "tables" / "all.csv"
        run("segment", tmp_path / "text.png", "-o", tmp_path / "new", "--summary", summary, exit_code=1)
        assert "failed" in summary.read_text() and not (tmp_path / "new").exists()

    def test_fit_on_what_cannot_be_read_or_written(self, scene_file, tmp_path):
        failed = run("fit", tmp_path / "none.png", "-k", 2, "-o", tmp_path / "m.texseg", exit_code=1)
        assert (
            failed.stderr == "texseg: no image can be read to learn textures from (none.png: no such file)\n"
        )
        refused = run("fit", scene_file, "-k", 2, "-o", scene_file, exit_code=2)
        assert f"{scene_file} exists and is not a model of texseg; it was not replaced" in refused.stderr
        (tmp_path / "file").touch()
        failed = run("fit", scene_file, "-k", 2, "-o", tmp_path / "file" / "m.texseg", exit_code=1)
        assert failed.stderr == f"texseg: cannot write to the folder {tmp_path / 'file'}: it is a file\n"


class TestEdits:
    """Segments that are merged and named on the command line, by words or by a file."""

    def test_merges_and_names_are_those_of_all_results(self, scene_file, tmp_path):
        run("segment", scene_file, "-k", 4, "-o", tmp_path / "a", "-q")
        merges = ["--merge", "2+4=gland", "--merge", "3=stroma"]
        run("segment", scene_file, "-k", 4, *merges, "--polygons", "-o", tmp_path / "b", "-q")
        four, three = (read_labels(tmp_path / folder / "scene_labels.png") for folder in "ab")
        np.testing.assert_array_equal(three, np.array([0, 1, 2, 3, 2])[four])
        with (tmp_path / "b" / "scene_segments.csv").open() as file:
            assert [row["name"] for row in csv.DictReader(file)] == ["segment 1", "gland", "stroma"]
        features = json.loads((tmp_path / "b" / "scene_polygons.geojson").read_text())["features"]
        assert {f["properties"]["name"] for f in features} == {"segment 1", "gland", "stroma"}

    def test_the_file_that_a_report_saves_does_the_same(self, scene_file, tmp_path):
        edits = tmp_path / "edits.json"
        edits.write_text('{"merge": [[2, 4]], "names": {"2": "gland", "3": "stroma"}}')
        merges = ["--merge", "2+4=gland", "--merge", "3=stroma"]
        run("segment", scene_file, "-k", 4, *merges, "-o", tmp_path / "a")
        run("segment", scene_file, "-k", 4, "--edits", edits, "-o", tmp_path / "b")
        for name in ("scene_labels.png", "scene_segments.csv"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_models_are_edited_when_they_are_learned_or_applied(self, scene_file, tmp_path):
        run("fit", scene_file, "-k", 4, "-o", tmp_path / "four.texseg", "-q")
        run("fit", scene_file, "-k", 4, "--merge", "2+4=gland", "-o", tmp_path / "three.texseg", "-q")
        assert names_in(tmp_path / "three.texseg") == ("", "gland", "")
        run("apply", tmp_path / "three.texseg", scene_file, "-o", tmp_path / "a", "-q")
        words = ("apply", tmp_path / "three.texseg", scene_file, "--merge", "1+4", "-o", tmp_path / "c")
        said = "edits (--merge, --edits): label 4 is not one of the segments, which are 1 to 3"
        assert said in run(*words, exit_code=2).stderr and not (tmp_path / "c").exists()
        merge = ["--merge", "2+4=gland"]
        run("apply", tmp_path / "four.texseg", scene_file, *merge, "-o", tmp_path / "b", "-q")
        for name in ("scene_labels.png", "scene_segments.csv"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    @pytest.mark.parametrize(
        ("options", "exit_code", "message"),
        [
            (["--merge", "2"], 2, "'2' is not of the form 2+5=gland, 2+5 or 3=stroma"),
            (["--merge", "a+b"], 2, "'a+b' is not of the form"),
            (["--merge", "2+9"], 2, "label 9 is not one of the segments, which are 1 to 2"),
            (["--merge", "0+1", "-k", "auto"], 2, "label 0 is not one of the segments, which are 1 to 255"),
            (["--merge", "1+2=a", "--merge", "2=b"], 2, "label 2 is part of a segment that gets two names"),
            (["--merge", "1=a", "--merge", "2=a"], 2, "each name may be given once, got a, a"),
            (["--edits", "none.json"], 2, "none.json: No such file or directory"),
            (["--edits", "wrong.json"], 2, "wrong.json: not a file of edits"),
        ],
    )
    def test_mistakes(self, scene_file, tmp_path, monkeypatch, options, exit_code, message):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "wrong.json").write_text("[1]")
        refused = run("segment", scene_file, "-k", 2, *options, "-o", "out", exit_code=exit_code)
        assert message in refused.stderr


class TestReport:
    def test_page_of_one_image(self, scene_file, tmp_path):
        run("report", scene_file, "-k", 4, "-o", tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["scene_report.html", "scene_run.json"]
        run("report", scene_file, "-k", 4, "-o", tmp_path / "mine" / "page.html", "-q")
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["page.html"]
        refused = run("report", scene_file, "-k", 4, "-o", tmp_path / "page.png", exit_code=2)
        assert "-o names the folder for the results, or the page (.html); " in refused.stderr
        (tmp_path / "mine" / "notes.html").write_text("<!doctype html>mine")
        refused = run("report", scene_file, "-k", 4, "-o", tmp_path / "mine" / "notes.html", exit_code=2)
        assert "notes.html exists and is not a report of texseg; it was not replaced" in refused.stderr
        (tmp_path / "mine" / "scene_report.html").write_text("<!doctype html>mine")
        refused = run("report", scene_file, "-k", 4, "-o", tmp_path / "mine", exit_code=1)
        assert "scene_report.html exists and is not a report of texseg" in refused.stderr
        assert (tmp_path / "mine" / "scene_report.html").read_text() == "<!doctype html>mine"
        refused = run("report", scene_file, tmp_path / "b.png", "-o", tmp_path / "page.html", exit_code=2)
        assert "names one page; several images or pages need a folder" in " ".join(refused.stderr.split())
        page = (tmp_path / "scene_report.html").read_text()
        assert "192 x 160 pixels" in page
        assert "<title>scene" in page

    def test_the_page_has_the_numbers_that_were_considered_and_their_segments(self, scene_file, tmp_path):
        run("report", scene_file, "-o", tmp_path, "-q")
        content = content_of(tmp_path / "scene_report.html")
        assert content["selection"] and len(content["levels"]) > 1

    def test_pages_and_index_of_several(self, scene_file, tmp_path):
        for name in ("b10.png", "b9.png"):
            (tmp_path / name).write_bytes(scene_file.read_bytes())
        out = tmp_path / "out"
        run("segment", tmp_path, "-k", 2, "-o", out, "--report-html", "-q")
        index = (out / "texseg_reports.html").read_text()
        assert index.index("b9_report.html") < index.index("b10_report.html")
        (out / "b9_report.html").unlink()
        (out / "texseg_reports.html").unlink()
        again = run("segment", tmp_path, "-k", 2, "-o", out, "--report-html", "--skip-existing")
        assert again.stdout.splitlines()[-1] == "1 done, 0 failed, 1 skipped"
        assert (out / "b9_report.html").exists()
        assert (out / "texseg_reports.html").read_text() == index

    def test_pages_of_a_learned_model_and_of_a_stack(self, model_file, scene_file, tmp_path):
        run("apply", model_file, scene_file, "-o", tmp_path, "--report-html", "-q")
        assert (tmp_path / "scene_report.html").exists()
        np.save(tmp_path / "s.npy", np.stack([PIXELS, PIXELS]))
        said = run("report", tmp_path / "s.npy", "-k", 2, "--page", "all", "-o", tmp_path).stdout
        rows = [line.split() for line in said.splitlines()]
        of_both = sum(int(row[1].replace(",", "")) for row in rows if row[0] in "12")
        assert of_both == 2 * PIXELS.size  # the table is of all pages
        assert len(list(tmp_path.glob("s_?_report.html"))) == 2

    def test_each_names_the_command_that_makes_it_again(self, scene_file, tmp_path):
        for name in ("a b.png", "-c.png"):
            (tmp_path / name).write_bytes(scene_file.read_bytes())
        options = ["-k", 2, "-o", tmp_path / "out"]
        run("report", "-q", *options, "--", tmp_path, exit_code=0)
        page = (tmp_path / "out" / "a b_report.html").read_text()
        words = ["texseg", "report", *options, "-q", tmp_path / "a b.png"]
        assert f'"command": {json.dumps([str(word) for word in words])}' in page
        assert f"<dt>input</dt><dd>{tmp_path / 'a b.png'}</dd>" in page

    def test_pages_of_a_model_shared_by_several_images(self, scene_file, tmp_path):
        (tmp_path / "copy.png").write_bytes(scene_file.read_bytes())
        run("report", scene_file, tmp_path / "copy.png", "-k", 2, "--shared", "-o", tmp_path / "out", "-q")
        names = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert [name for name in names if name.endswith(".html")] == [
            "copy_report.html", "scene_report.html", "texseg_reports.html",
        ]  # fmt: skip


class TestScore:
    def test_a_photograph_is_no_label_image(self, tmp_path):
        noise = np.random.default_rng(0).integers(0, 256, PIXELS.shape).astype(np.uint8)
        for name, array in (("photo.png", noise), ("l.png", TRUTH.astype(np.uint8))):
            io_scenes.write(tmp_path / name, array)
        for pair in (("photo.png", "l.png"), ("l.png", "photo.png")):
            failed = run("score", *(tmp_path / name for name in pair), exit_code=1)
            assert "photo.png: 99" in failed.stderr or "photo.png: 100" in failed.stderr
            assert "% of neighbouring pixels differ, as in a photograph" in failed.stderr

    def test_few_scores_unless_all_are_asked_for(self, tmp_path):
        path = io_scenes.write(tmp_path / "l.png", TRUTH.astype(np.uint8))
        assert len(run("score", path, path).stdout.splitlines()) == 6
        assert len(run("score", path, path, "--all").stdout.splitlines()) > 9

    def test_scores_of_label_files(self, tmp_path):
        io_scenes.write(tmp_path / "t.png", TRUTH.astype(np.uint8) * 50)
        colours = np.random.default_rng(0).integers(0, 256, (5, 3)).astype(np.uint8)
        io_scenes.write(tmp_path / "l.png", colours[TRUTH])
        printed = run("score", tmp_path / "l.png", tmp_path / "t.png").stdout
        assert ["co", "1.0000"] in [line.split() for line in printed.splitlines()]
        scores = json.loads(run("score", tmp_path / "l.png", tmp_path / "t.png", "--json").stdout)
        assert (scores["n_segments"], scores["co"], scores["boundary_f"]) == (4, 1.0, 1.0)
        part = run("score", tmp_path / "l.png", tmp_path / "t.png", "--ignore-label", 50, "--json").stdout
        assert json.loads(part)["n_regions"] == 3

    def test_classes_have_names_and_annotators_a_ceiling(self, tmp_path):
        """Segments with equal names are one class; the measures by number do not see the names."""
        found = TRUTH.astype(np.uint8)
        ann, bert = found.copy(), np.where(found > 2, 3, found).astype(np.uint8)
        ann[:2] = 2
        for name, array in (("rock_labels.png", found), ("ann.png", ann), ("bert.png", bert)):
            io_scenes.write(tmp_path / name, array)
        (tmp_path / "rock_segments.csv").write_text("label,name\n1,sand\n2,clay\n3,silt\n4,silt\n")
        (tmp_path / "classes.csv").write_text("label,name\n1,sand\n2,clay\n3,silt\n4,silt\n")
        files = [tmp_path / name for name in ("rock_labels.png", "ann.png", "bert.png")]
        names = ("--names", tmp_path / "classes.csv")
        result = json.loads(run("score", *files, *names, "--json").stdout)
        wrong = float((ann[:2] != found[:2]).sum() / found.size)
        assert result["right_name"] == pytest.approx(1 - wrong / 2)
        assert result["annotators"]["right_name"] == pytest.approx(1 - wrong)
        assert result["annotators"]["co"] < result["co"] < 1
        table = result["confusion"][1]
        assert (table["labels"], table["classes"]) == (["sand", "clay", "silt"],) * 2
        areas = [int((found == 1).sum()), int((found == 2).sum()), int((found > 2).sum())]
        assert table["pixels"] == np.diag(areas).tolist()
        lines = run("score", *files, *names, "--confusion").stdout.splitlines()
        assert lines[0].split() == ["labels", "annotators"]
        assert ["right_name", f"{1 - wrong / 2:.4f}", f"{1 - wrong:.4f}"] in [line.split() for line in lines]
        assert lines[-4].split() == ["pixels,", "bert.png:", "sand", "clay", "silt"]
        assert "right_name" not in run("score", *files).stdout
        for text, message in (
            (b"label\n1\n", "classes.csv must be a CSV file with the columns label and name"),
            (b"\xff\xfe\0", "classes.csv must be a CSV file with the columns label and name"),
            (b"label,name\nx,y\n", "classes.csv: a label must be a whole number, with a name behind it"),
            (b"label,name\n1,a\n1,b\n", "classes.csv names label 1 twice, a and b; keep one of them"),
        ):
            (tmp_path / "classes.csv").write_bytes(text)
            assert message in run("score", *files, *names, exit_code=1).stderr
        failed = run("score", *files, "--names", "/dev/zero", exit_code=1)
        assert "/dev/zero: this is a device or a pipe, not a file" in failed.stderr

    def test_zeros_of_the_truth_count_as_a_class_and_this_is_said(self, tmp_path):
        truth = TRUTH.astype(np.uint8)
        path = io_scenes.write(tmp_path / "l.png", truth)
        assert run("score", path, path).stderr == ""
        truth[:16] = 0
        holed = io_scenes.write(tmp_path / "t.png", truth)
        said = "the 10.0% of pixels that are 0 in the truth count as a class; if they have none, pass --ig"
        assert said in run("score", path, holed).stderr
        assert run("score", path, holed, "--ignore-label", 0).stderr == ""

    def test_files_that_cannot_be_compared(self, tmp_path):
        io_scenes.write(tmp_path / "t.png", TRUTH.astype(np.uint8))
        io_scenes.write(tmp_path / "s.png", TRUTH.T.astype(np.uint8))
        assert "same shape" in run("score", tmp_path / "s.png", tmp_path / "t.png", exit_code=1).stderr
        failed = run("score", tmp_path / "none.png", tmp_path / "t.png", exit_code=1)
        assert failed.stderr == "texseg: none.png: no such file\n"


class TestInfo:
    def test_what_would_be_read(self, scene_file, tmp_path):
        tag = (42113, 2, 2, "7", True)
        geo = io_scenes.tiff(tmp_path / "g.tif", PIXELS, extratags=[*io_scenes.GEO_TAGS, tag])
        first, second = run("info", scene_file, geo, "--json").stdout.splitlines()
        found = json.loads(first)
        assert (found["format"], found["width"], found["height"], found["dtype"]) == (
            "PNG",
            192,
            160,
            "uint8",
        )
        assert found["memory_MB"] > 0
        assert found["seconds"] > 0
        found = json.loads(second)
        assert found["nodata"] == 7
        assert found["georeference"] == "EPSG:32633, origin 500000 5.2e+06, pixel 0.5 -0.5"
        text = run("info", geo).stdout
        assert "format:        TIFF" in text

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_the_size_is_that_of_the_results(self, tmp_path, orientation):
        stored = io_scenes.stored_with_orientation(PIXELS, orientation)
        Image.fromarray(stored).save(tmp_path / "i.png", exif=io_scenes.exif(orientation))
        found = json.loads(run("info", tmp_path / "i.png", "--json").stdout)
        assert (found["height"], found["width"]) == texseg.read_image(tmp_path / "i.png").pixels.shape

    def test_cost_grows_with_pixels_and_segments(self, tmp_path):
        costs = []
        for side, number in ((512, 5), (512, 10), (1024, 10)):
            io_scenes.write(tmp_path / "i.png", np.zeros((side, side), np.uint8))
            costs.append(json.loads(run("info", tmp_path / "i.png", "-k", number, "--json").stdout))
        memory = [cost["memory_MB"] for cost in costs]
        assert memory[0] < memory[1] < memory[2] < 4.1 * memory[1]
        assert costs[2]["seconds"] > costs[0]["seconds"]

    def test_cost_grows_with_the_preset(self, tmp_path):
        image = tmp_path / "i.png"
        io_scenes.write(image, np.zeros((2048, 2048), np.uint8))  # so large that rounding hides nothing
        costs = [
            json.loads(run("info", image, "-k", 5, "--preset", preset, "--json").stdout)["seconds"]
            for preset in ("plain", "default")
        ]
        assert costs[0] < costs[1]

    def test_memory_decides_whether_an_image_is_read_whole(self, scene_file):
        found = [
            json.loads(run("info", scene_file, "--json", *more).stdout) for more in ((), ("--memory", "9M"))
        ]
        assert [each["read"] for each in found] == ["whole", "by blocks"]
        assert found[1]["memory_MB"] == 9

    def test_what_a_file_does_not_say_is_said(self, scene_file):
        text = run("info", scene_file).stdout
        assert "nodata:        not stated" in text and "None" not in text

    def test_broken_files(self, scene_file, tmp_path):
        (tmp_path / "text.png").write_text("no image")
        result = run("info", tmp_path / "text.png", scene_file, exit_code=1)
        assert result.stderr == "failed: text.png: text file, not an image\n"
        assert "scene.png" in result.stdout

    def test_a_system_without_map(self, tmp_path):
        path = io_scenes.tiff(tmp_path / "g.tif", PIXELS, extratags=io_scenes.GEO_TAGS[2:])
        assert json.loads(run("info", path, "--json").stdout)["georeference"] == "EPSG:32633"


class TestOptionsInFiles:
    """Options may come from a TOML file; those of the command itself go first."""

    def test_what_is_saved_makes_the_same_again(self, scene_file, tmp_path):
        given = ("-k", 2, "--no-log", "--merge", "1+2=rock", "--channels", "0", "--pixel-size", "0.5um")
        config = tmp_path / "run.toml"
        run("segment", scene_file, *given, "-o", tmp_path / "a", "--save-config", config)
        assert config.read_text().splitlines() == [
            "segments = 2", "log = false", 'merge = ["1+2=rock"]', "channels = 0",
            'pixel-size = "0.5um"', f'output = "{tmp_path}/a"',
        ]  # fmt: skip
        again = run("segment", scene_file, "--config", config, "-o", tmp_path / "b", "--skip-existing")
        assert "rock" in again.stdout
        records = [json.loads((tmp_path / name / "scene_run.json").read_text()) for name in "ab"]
        assert records[0]["made_from"] == records[1]["made_from"]
        assert "skipped" in run("segment", scene_file, "--config", config, "--skip-existing").stdout

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("segmnts = 3", "run.toml: segmnts is not an option of texseg segment; did you mean segments?"),
            ("grey = 3", "run.toml: grey must be true or false"),
            ("bins = true", "run.toml: bins must be a text or a number"),
            ("bins = 3000", "Invalid value for '--bins': '3000' is not a whole number from 2 to 256"),
            ("bins = ", "run.toml: Invalid value (at"),
            (f"bins = {'[' * 5000}", "run.toml: brackets are nested too deeply"),
            (
                '{"bins": 3}',
                "run.toml: this is JSON, such as a record of results; --config reads what --save",
            ),
            (None, "run.toml: No such file or directory"),
        ],
    )
    def test_files_that_are_refused(self, scene_file, tmp_path, text, message):
        if text is not None:
            (tmp_path / "run.toml").write_text(text)
        result = run("segment", scene_file, "--config", tmp_path / "run.toml", exit_code=2)
        assert message in result.stderr

    def test_an_image_is_no_list_of_options(self, scene_file):
        result = run("segment", scene_file, "--config", scene_file, exit_code=2)
        assert f"{scene_file.name}: not a text; --config reads what --save-config writes" in result.stderr

    def test_completing_a_command_writes_nothing(self, tmp_path):
        words = f"texseg segment a.png --save-config {tmp_path / 'x.toml'} --see"
        found = run(
            env={"_TEXSEG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "5"},
            prog_name="texseg",
        )
        assert "--seeds" in found.stdout and not list(tmp_path.iterdir())

    def test_no_other_file_is_written_over(self, scene_file, tmp_path):
        (tmp_path / "project.toml").write_text("name = 1")
        for path in (scene_file, tmp_path / "project.toml"):
            before = path.read_bytes()
            result = run("segment", scene_file, "--save-config", path, exit_code=2)
            assert f"{path.name} exists and holds something else; choose another name" in result.stderr
            assert path.read_bytes() == before

    def test_a_device_is_not_read(self, scene_file):
        result = run("segment", scene_file, "--config", "/dev/zero", exit_code=2)
        assert "/dev/zero: this is a device or a pipe, not a file" in result.stderr

    def test_a_place_that_cannot_be_written(self, scene_file, tmp_path):
        result = run("segment", scene_file, "--save-config", scene_file / "x.toml", exit_code=2)
        assert "x.toml cannot be written: [Errno 20] Not a directory" in result.stderr


class TestCommandItself:
    def test_every_option_stands_in_a_section(self):
        text = run("segment", "--help").output
        starts = [text.index(f"\n{title}:") for title in ("Number", "Image", "Method", "Results", "Run")]
        assert starts == sorted(starts)
        places = [
            text.index(f" {option} ") for option in ("--seeds", "--mask", "--cue", "--regions", "--jobs")
        ]
        assert [int(np.searchsorted(starts, place)) for place in places] == [1, 2, 3, 4, 5]
        assert "\nOptions:" in run("score", "--help").output

    def test_the_page_offers_no_option_that_it_refuses(self):
        text = run("open", "--help").output
        assert "--mask" in text
        assert not any(f"{option} " in text for option in ("--volume", "--series", "--raw", "--seeds"))

    def test_a_report_may_come_with_other_results(self, scene_file, tmp_path):
        run(
            "report",
            scene_file,
            "-k",
            1,
            "--format",
            "npy",
            "--regions",
            "--pixel-size",
            "2um",
            "-o",
            tmp_path,
        )
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {f"scene_{end}" for end in ("report.html", "run.json", "labels.npy", "regions.csv")}
        assert ",um" in (tmp_path / "scene_regions.csv").read_text()

    def test_a_demonstration_leaves_a_picture_of_the_user_alone(self, tmp_path):
        io_scenes.write(tmp_path / "example.png", np.zeros((40, 40), np.uint8))
        before = (tmp_path / "example.png").read_bytes()
        result = run("demo", "-o", tmp_path, exit_code=1)
        assert "example.png exists and is not the example; choose another --output" in result.stderr
        assert (tmp_path / "example.png").read_bytes() == before

    def test_a_demonstration_needs_no_image(self, tmp_path):
        result = run("demo", "-o", tmp_path / "new")
        assert f"texseg segment {tmp_path}/new/example.png -k 5 -o {tmp_path}/new" in result.stdout
        assert f"read {tmp_path}/new/example_labels.tif.\n" in result.stdout
        assert result.stdout.endswith(f"open {tmp_path}/new/example_report.html in a browser.\n")
        found = read_labels(tmp_path / "new" / "example_labels.png")
        assert pixel_accuracy(found, texseg.synth.example().truth) > 0.98
        assert "demo" not in content_of(tmp_path / "new" / "example_report.html")["command"]

    def test_help_needs_no_heavy_module(self):
        code = (
            "import sys; from click.testing import CliRunner; from texseg.cli import main; "
            "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
            "assert CliRunner().invoke(main, ['segment', '--help']).exit_code == 0; "
            "print([m for m in ('numpy', 'scipy', 'sklearn', 'cv2', 'PIL', 'tifffile') if m in sys.modules])"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == "[]"

    def test_help_has_examples(self):
        assert "texseg segment rock.png -k 5 -o out/" in run("segment", "--help").stdout
        assert "Exit codes" in run("--help").stdout

    def test_python_can_run_it_as_a_module(self):
        command = [sys.executable, "-m", "texseg", "--version"]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert result.stdout.strip().endswith(texseg.__version__)

    def test_version(self):
        assert run("--version", prog_name="texseg").stdout == f"texseg {texseg.__version__}\n"

    @pytest.mark.parametrize(
        ("shell", "words"), [("bash", "complete "), ("zsh", "#compdef"), ("fish", "complete ")]
    )
    def test_completion_scripts(self, shell, words):
        assert words in run("completion", shell).stdout
        assert "_TEXSEG_COMPLETE" in run("completion", shell).stdout

    def test_completion_completes(self):
        environment = {
            **os.environ,
            "_TEXSEG_COMPLETE": "bash_complete",
            "COMP_WORDS": "texseg seg",
            "COMP_CWORD": "1",
        }
        result = subprocess.run(
            [sys.executable, "-c", "from texseg.cli import main; main(prog_name='texseg')"],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        assert "segment" in result.stdout
