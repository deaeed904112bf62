"""Batches: which files, in which order, under which names; failures, interruptions, several processes."""

import contextlib
import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import unicodedata
from concurrent.futures.process import BrokenProcessPool
from hashlib import sha256
from pathlib import Path, PurePath

import dying_process
import io_scenes
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import texseg
from texseg.cli import batch, main, outputs
from texseg.cli.batch import read_sample, run, write_report
from texseg.cli.inputs import Input, ReadOptions, collect_inputs
from texseg.cli.outputs import Outcome, Writing
from texseg.cli.process import Work
from texseg.io.read import natural_key, read_labels
from texseg.io.regions import SEGMENT_FIELDS, csv_text, segment_table

PIXELS, TRUTH = io_scenes.scene()
SMALL = np.ascontiguousarray(PIXELS[40:104, 60:156])


def invoke(*arguments, exit_code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    assert "Traceback" not in result.output
    return result


def folder_of(path, names, array=SMALL):
    path.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        io_scenes.write(path / name, np.roll(array, 7 * i, axis=1))
    return path


def names_of(arguments, **options):
    return [
        (item.path.name, str(item.name)) for item in collect_inputs(list(map(str, arguments)), **options)[0]
    ]


class TestInputs:
    def test_natural_order(self):
        assert sorted(["b1", "a10", "a2", "A1", "a02b"], key=natural_key) == ["A1", "a2", "a02b", "a10", "b1"]

    @given(st.lists(st.text(max_size=6), max_size=6))
    def test_any_texts_can_be_ordered(self, texts):
        assert sorted(sorted(texts, key=natural_key), key=natural_key) == sorted(texts, key=natural_key)

    def test_folder(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["b10.png", "b9.png", "sub/c.png", ".hidden.png", ".h/x.png"])
        io_scenes.write(folder / "no_suffix", SMALL, format="PNG")
        for name in ("b9_labels.png", "b9_overlay.png", "b9_segments.csv", "b9_confidence.TIF", "notes.txt"):
            (folder / name).write_text("x")
        assert names_of([folder]) == [("b9.png", "b9"), ("b10.png", "b10"), ("no_suffix", "no_suffix")]
        assert names_of([folder], recursive=True)[-1] == ("c.png", os.path.join("sub", "c"))
        assert sum(collect_inputs([str(folder)])[1].values()) == 4

    def test_truth_and_strokes_of_an_image_next_to_them_are_skipped_with_a_note(self, tmp_path):
        names = [
            "a.png",
            "a_truth.png",
            "a_STROKES.png",
            "b_truth.png",
            "c_mask.png",
            "sub/c.png",
            "_truth.png",
        ]
        folder = folder_of(tmp_path / "in", names)
        kept = ["_truth.png", "a.png", "b_truth.png", "c_mask.png"]
        assert sorted(name for name, _ in names_of([folder])) == kept
        assert len(names_of([folder, folder / "a_truth.png"])) == 5
        done = invoke("segment", folder, "-k", 2, "--preset", "plain", "-q", "-o", tmp_path / "out")
        said = "skipped 2 files named as truth, mask or strokes of another image; name one to use it"
        assert done.stderr == f"note: {said}\n"

    def test_output_folder_inside_the_input_is_not_searched(self, tmp_path):
        folder = folder_of(tmp_path, ["a.png", "out/other.png"])
        assert names_of([folder], recursive=True, output=folder / "out") == [("a.png", "a")]

    def test_what_is_named_is_taken(self, tmp_path):
        folder = folder_of(tmp_path, [".hidden.png", "a_labels.png"])
        assert len(names_of([folder / ".hidden.png", folder / "a_labels.png"])) == 2

    def test_each_file_once(self, tmp_path, monkeypatch):
        folder = folder_of(tmp_path, ["a.png", "b.png"])
        monkeypatch.chdir(tmp_path)
        assert len(names_of([folder, "a.png", folder / "a.png", "./a.png"])) == 2

    def test_literal_before_pattern(self, tmp_path, monkeypatch):
        monkeypatch.chdir(
            folder_of(tmp_path, ["[ab].png", "a.png", "b.png", "x10.png", "x9.png", "sub/x1.png"])
        )
        assert names_of(["[ab].png"]) == [("[ab].png", "[ab]")]
        assert [name for name, _ in names_of(["x*.png"])] == ["x9.png", "x10.png"]
        assert [name for name, _ in names_of(["**/x1.png"])] == ["x1.png"]
        assert names_of(["nothing*.png"]) == [("nothing*.png", "nothing*")]

    def test_equal_names(self, tmp_path):
        folder = folder_of(tmp_path, ["a/i.png", "b/i.png", "i.png", "j.png"])
        io_scenes.tiff(folder / "i.tif", SMALL)
        files = [folder / name for name in ("a/i.png", "b/i.png", "i.png", "i.tif", "j.png")]
        expected = {os.path.join("a", "i"), os.path.join("b", "i"), "i.png", "i.tif", "j"}
        assert {name for _, name in names_of(files)} == expected
        assert {name for _, name in names_of([folder], recursive=True)} == expected

    def test_names_that_differ_in_case_only_or_in_composition(self, tmp_path):
        folder = folder_of(tmp_path, ["I.png", "i.png", "\u00e9.png", "e\u0301.png"])
        names = {unicodedata.normalize("NFC", name).casefold() for _, name in names_of([folder])}
        assert len(names) == 4

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["", "a", "b", "a/b"]),
                st.sampled_from(["i", "I", "i~1", "i.png", "j"]),
                st.sampled_from([".png", ".tif", ".PNG"]),
            ),
            unique=True, max_size=12,
        )
    )  # fmt: skip
    def test_outputs_never_collide(self, places):
        paths = [str(Path("/nowhere", folder, stem + suffix)) for folder, stem, suffix in places]
        names = [str(item.name).casefold() for item in collect_inputs(paths)[0]]
        assert len(set(names)) == len(places)
        assert not any(Path(name).is_absolute() or ".." in PurePath(name).parts for name in names)


class TestBatches:
    def test_one_failure_costs_nothing_else(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a.png", "b.png", "c.png"])
        (folder / "b.png").write_bytes((folder / "b.png").read_bytes()[:300])
        report = tmp_path / "run.csv"
        result = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", "--summary", report, exit_code=1)
        assert result.stdout.splitlines()[-1] == "2 done, 1 failed"
        with report.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["status"] for row in rows] == ["done", "failed", "done"]
        assert rows[1]["reason"] == "file is truncated"
        assert rows[0]["outputs"].split(";")[-2] == str(tmp_path / "out" / "a_labels.tif")
        assert not list((tmp_path / "out").glob("b_*"))

    def test_stop_at_the_first_failure(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a.png", "b.png", "c.png"])
        (folder / "b.png").write_text("x")
        result = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", "--on-error", "stop", exit_code=1)
        assert result.stdout.splitlines()[-1] == "1 done, 1 failed, 1 not begun"
        assert not (tmp_path / "out" / "c_labels.png").exists()

    def test_whatever_goes_wrong_is_one_line(self, tmp_path, monkeypatch):
        folder = folder_of(tmp_path / "in", ["a.png", "b.png"])
        for error, reason in (
            (MemoryError(), "not enough memory"),
            (RuntimeError("two\nlines"), "RuntimeError: two lines"),
            (OSError(28, "No space left on device", "x.png"), "No space left on device: x.png"),
        ):
            monkeypatch.setattr(
                outputs, "write_rows", lambda *_, error=error, **__: (_ for _ in ()).throw(error)
            )
            result = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", exit_code=1)
            assert result.stdout.splitlines()[-1] == "0 done, 2 failed"
            assert all(reason in line for line in result.stderr.splitlines())

    def test_several_processes_give_the_same_files(self, tmp_path):
        folder = folder_of(tmp_path / "in", [f"{i}.png" for i in range(5)])
        (folder / "3.png").write_text("x")
        invoke("segment", folder, "-k", 2, "-o", tmp_path / "one", exit_code=1)
        result = invoke("segment", folder, "-k", 2, "-o", tmp_path / "two", "--jobs", 2, exit_code=1)
        assert result.stdout.splitlines()[-1] == "4 done, 1 failed"
        assert contents(tmp_path / "one") == contents(tmp_path / "two")

    def test_shared_model_gives_equal_labels_to_equal_textures(self, tmp_path):
        folder = tmp_path / "in"
        folder.mkdir()
        for i, shift in enumerate((0, 60, 100)):
            io_scenes.write(folder / f"{i}.png", np.roll(PIXELS, shift, axis=1))
        invoke("segment", folder, "-k", 4, "-o", tmp_path / "out", "--shared", "-q")
        for i, shift in enumerate((0, 60, 100)):
            first = np.roll(read_labels(tmp_path / "out" / "0_labels.png"), shift, axis=1)
            assert np.mean(first == read_labels(tmp_path / "out" / f"{i}_labels.png")) > 0.96

    def test_a_shared_model_costs_no_more_to_send_for_more_images(self, tmp_path):
        """Every worker gets it with every image, so it must not bring along what it was learned from."""
        folder = folder_of(tmp_path, [f"{i}.png" for i in range(4)], PIXELS)
        items = collect_inputs([str(folder)])[0]
        work = Work(ReadOptions(), Writing(tmp_path))
        sizes = [
            len(pickle.dumps(work.by(batch.fit_shared(some, work.reading, {"n_segments": 2}, quiet=True))))
            for some in (items[:1], items)
        ]
        assert abs(sizes[1] - sizes[0]) < 0.1 * sizes[0] < PIXELS.size

    def test_shared_model_of_nothing_readable(self, tmp_path):
        folder = tmp_path / "in"
        folder.mkdir()
        (folder / "a.png").write_text("x")
        failed = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", "--shared", exit_code=1)
        assert "no image can be read to learn textures from (a.png: text file, not an image)" in failed.stderr

    def test_skip_existing_makes_only_what_is_missing(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a.png", "b.png", "c.png"])
        out = tmp_path / "out"
        invoke("segment", folder, "-k", 2, "-o", out, "-q")
        whole = contents(out)
        times = {path: path.stat().st_mtime_ns for path in out.iterdir()}
        (out / "b_overlay.png").unlink()
        (out / "c_labels.png").unlink()
        result = invoke("segment", folder, "-k", 2, "-o", out, "--skip-existing")
        assert result.stdout.splitlines()[-1] == "2 done, 0 failed, 1 skipped"
        assert contents(out) == whole
        assert (out / "a_labels.png").stat().st_mtime_ns == times[out / "a_labels.png"]

    def test_skip_existing_knows_georeferenced_files_and_pages(self, tmp_path):
        folder = tmp_path / "in"
        folder.mkdir()
        io_scenes.tiff(folder / "g.tif", SMALL, extratags=io_scenes.GEO_TAGS)
        np.save(folder / "s.npy", np.stack([SMALL, SMALL]))
        out = tmp_path / "out"
        options = ("-k", 2, "-o", out, "--page", "all", "--polygons", "--skip-existing")
        assert invoke("segment", folder, *options).stdout.splitlines()[-1] == "2 done, 0 failed"
        assert invoke("segment", folder, *options).stdout.splitlines()[-1] == "0 done, 0 failed, 2 skipped"
        (out / "g_labels.tif").unlink()
        (out / "s_1_polygons.geojson").unlink()
        assert invoke("segment", folder, *options).stdout.splitlines()[-1] == "2 done, 0 failed"

    @pytest.mark.skipif(os.name != "posix", reason="needs signals")
    def test_killed_and_started_again(self, tmp_path):
        options = ["--shared"]
        folder = folder_of(tmp_path / "in", [f"{i}.png" for i in range(12)])
        invoke("segment", folder, "-k", 2, "-o", tmp_path / "whole", "-q", *options)
        out = tmp_path / "out"
        arguments = ["segment", str(folder), "-k", "2", "-o", str(out), *options]
        killed = subprocess.Popen(
            [sys.executable, "-c", "from texseg.cli import main; main()", *arguments],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while len(list(out.glob("*_labels.png"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        finished = list(out.glob("*_labels.png"))
        assert 3 <= len(finished) < 12
        for path in finished:
            assert read_labels(path).shape == SMALL.shape
        invoke(*arguments, "--skip-existing", "-q")
        assert contents(out) == contents(tmp_path / "whole")

    def test_what_a_run_left_that_was_killed_right_at_its_end_goes_with_the_next(self, tmp_path):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        invoke("segment", folder, "-k", 2, "-o", out, "-q")
        complete, hidden = contents(out), f".{sha256(b'a_run.json').hexdigest()[:16]}"
        (out / f"{hidden}.part").write_text("{}")
        (out / f"{hidden}.0.part").mkdir()
        (out / f"{hidden}.0.part" / "texseg.lock").touch()
        invoke("segment", folder, "-k", 2, "-o", out, "-q", "--skip-existing")
        assert contents(out) == complete

    @pytest.mark.parametrize("changed", [["-k", "3"], ["-k", "2", "--seed", "1"], ["-k2", "--nodata", "7"]])
    def test_results_of_other_parameters_are_no_results(self, tmp_path, changed):
        folder = folder_of(tmp_path / "in", ["a.png"])
        invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", "-q")
        again = ["segment", folder, *changed, "-o", tmp_path / "out", "--skip-existing", "--summary"]
        invoke(*again, tmp_path / "run.json")
        assert json.loads((tmp_path / "run.json").read_text())[0]["status"] == "done"
        invoke(*again, tmp_path / "run.json")
        assert json.loads((tmp_path / "run.json").read_text())[0]["status"] == "skipped"

    def test_results_of_another_image_or_model_are_no_results(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a.png"])
        for k in (2, 3):
            invoke("fit", folder, "-k", k, "-o", tmp_path / f"{k}.texseg", "-q")
        apply = ["-o", tmp_path / "out", "--skip-existing"]
        said = [invoke("apply", tmp_path / f"{k}.texseg", folder, *apply).stdout for k in (2, 2, 3, 3)]
        assert ["skipped" in text for text in said] == [False, True, False, True]
        io_scenes.write(folder / "a.png", SMALL[::-1])
        assert "skipped" not in invoke("apply", tmp_path / "3.texseg", folder, *apply).stdout

    def test_the_record_says_what_results_are_made_from(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a.png"])
        invoke("segment", folder, "-k", 2, "--smoothness", 0.5, "-o", tmp_path / "out", "-q")
        record = json.loads((tmp_path / "out" / "a_run.json").read_text())
        assert record["input"] == str(folder / "a.png")
        assert record["made_from"]["texseg"] == texseg.__version__
        assert record["made_from"]["input_sha256"] == sha256((folder / "a.png").read_bytes()).hexdigest()
        assert record["made_from"]["smoothness"] == 0.5
        assert list(record["outputs"]) == ["a_overlay.png", "a_segments.csv", "a_labels.png", "a_labels.tif"]
        for name, digest in record["outputs"].items():
            assert sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == digest
        mean = record["result"].pop("mean_confidence")
        with (tmp_path / "out" / "a_segments.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert mean == pytest.approx(
            sum(float(row["fraction"]) * float(row["mean_confidence"]) for row in rows), abs=1e-4
        )
        assert record["result"] == {"n_segments": 2, "height": 64, "width": 96}

    def test_results_of_an_earlier_run_do_not_stay_beside_those_of_another(self, tmp_path):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        invoke("segment", folder, "-k", 3, "-o", out, "-q", "--polygons", "--confidence", "--report-html")
        said = invoke("segment", folder, "-k", 2, "-o", out, "-q", "--format", "npy").stderr
        left = {"a_labels.npy", "a_overlay.png", "a_segments.csv", "a_run.json"}
        assert {path.name for path in out.iterdir()} == left
        assert "results of an earlier run were removed: " in said
        assert all(name in said for name in ("a_polygons.geojson", "a_labels.png", "a_report.html"))
        assert set(json.loads((out / "a_run.json").read_text())["outputs"]) == left - {"a_run.json"}

    def test_results_of_another_image_are_not_replaced_in_silence(self, tmp_path):
        first, out = folder_of(tmp_path / "in", ["a.png"]) / "a.png", tmp_path / "out"
        second = folder_of(tmp_path / "other", ["b.png", "a.png"]) / "a.png"
        invoke("segment", first, "-k", 3, "-o", out)
        assert "another image" not in invoke("segment", first, "-k", 2, "-o", out).stderr
        said = invoke("segment", second, "-k", 2, "-o", out).stderr
        assert f"results of another image, {first}, had these names and were replaced" in said

    def test_results_made_from_the_same_stay_and_are_recorded_together(self, tmp_path):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        segment = ("segment", folder, "-k", 2, "-o", out, "-q", "--pixel-size", "2um")
        invoke(*segment)
        assert invoke("report", folder, "-k", 2, "-o", out, "-q").stderr == ""
        recorded = json.loads((out / "a_run.json").read_text())["outputs"]
        kinds = {"labels.png", "labels.tif", "overlay.png", "segments.csv", "report.html"}
        assert set(recorded) == {f"a_{kind}" for kind in kinds}
        before = contents(out)
        invoke(*segment, "--skip-existing")
        assert contents(out) == before

    def test_what_texseg_did_not_write_or_was_changed_since_is_never_removed(self, tmp_path):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        invoke("segment", folder, "-k", 3, "-o", out, "-q", "--polygons", "--regions")
        (out / "a_regions.csv").write_text("my own corrections")
        for name in ("a_confidence.png", "a_notes.txt", "b_polygons.geojson"):
            (out / name).write_text("mine")
        record = json.loads((out / "a_run.json").read_text())
        for name in ("a_notes.txt", "b_polygons.geojson", "../in/a.png"):
            record["outputs"][name] = sha256((out / name).read_bytes()).hexdigest()
        (out / "a_run.json").write_text(json.dumps(record))
        said = invoke("segment", folder, "-k", 2, "-o", out, "-q").stderr
        assert "a_regions.csv was changed since an earlier run" in said
        assert (out / "a_regions.csv").read_text() == "my own corrections"
        assert (folder / "a.png").exists() and not (out / "a_polygons.geojson").exists()
        for name in ("a_confidence.png", "a_notes.txt", "b_polygons.geojson"):
            assert (out / name).read_text() == "mine"

    @pytest.mark.parametrize("options", [("-k", 3), ("-k", 2, "--report-html")])
    def test_what_was_edited_since_is_not_replaced(self, tmp_path, options):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        invoke("segment", folder, "-k", 3, "-o", out, "-q")
        (out / "a_labels.png").write_bytes(b"corrected by hand")
        before = contents(out)
        said = invoke("segment", folder, *options, "-o", out, "-q", exit_code=1).stderr
        assert f"{out / 'a_labels.png'} was changed since texseg wrote it, and was not replaced; move" in said
        assert contents(out) == before
        (out / "a_labels.png").unlink()
        invoke("segment", folder, *options, "-o", out, "-q")
        assert read_labels(out / "a_labels.png").max() == options[1]

    def test_what_texseg_did_not_write_is_not_replaced(self, tmp_path):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        out.mkdir()
        (out / "a_labels.png").write_bytes(b"drawn by hand")
        said = invoke("segment", folder, "-k", 3, "-o", out, "-q", exit_code=1).stderr
        reason = "was not written by texseg (a_run.json does not list it), and was not replaced; move it away"
        assert f"{out / 'a_labels.png'} {reason}" in said
        assert contents(out) == {"a_labels.png": b"drawn by hand"}
        (out / "a_labels.png").unlink()
        invoke("segment", folder, "-k", 3, "-o", out, "-q")
        (out / "a_regions.csv").write_text("counted by hand")
        said = invoke("segment", folder, "-k", 3, "-o", out, "-q", "--regions", exit_code=1).stderr
        assert "a_regions.csv was not written by texseg (a_run.json does not" in said

    @pytest.mark.parametrize("record", [b"", b"{", b'{"outputs": 3}'])
    def test_a_damaged_record_gives_away_no_files(self, tmp_path, record):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        out.mkdir()
        (out / "a_labels.png").write_bytes(b"drawn by hand")
        (out / "a_run.json").write_bytes(record)
        said = invoke("segment", folder, "-k", 3, "-o", out, "-q", exit_code=1).stderr
        assert "a_labels.png was not written by texseg (a_run.json does not list it)" in said
        assert contents(out) == {"a_labels.png": b"drawn by hand", "a_run.json": record}

    def test_a_first_run_that_is_ended_hinders_no_second(self, tmp_path, monkeypatch):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"

        def full(*_, **__):
            raise OSError("No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(outputs, "write_record", full)
            invoke("segment", folder, "-k", 3, "-o", out, "-q", exit_code=1)
        assert (out / "a_labels.png").exists()
        invoke("segment", folder, "-k", 2, "-o", out, "-q")
        assert read_labels(out / "a_labels.png").max() == 2

    def test_a_run_that_is_ended_leaves_what_the_next_needs_to_know(self, tmp_path, monkeypatch):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        invoke("segment", folder, "-k", 3, "-o", out, "-q", "--polygons")

        def full(*_, **__):
            raise OSError("No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(outputs, "collection", full)
            invoke("segment", folder, "-k", 2, "-o", out, "-q", "--polygons", exit_code=1)
        assert "a_polygons.geojson" in invoke("segment", folder, "-k", 2, "-o", out, "-q").stderr
        assert not (out / "a_polygons.geojson").exists()

    def test_what_a_run_that_was_ended_wrote_is_not_taken_for_results_of_the_one_before(
        self, tmp_path, monkeypatch
    ):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        invoke("segment", folder, "-k", 3, "-o", out, "-q", "--polygons")

        def full(*_, **__):
            raise OSError("No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(outputs, "csv_text", full)
            invoke("segment", folder, "-k", 2, "-o", out, "-q", "--polygons", exit_code=1)
        said = invoke("segment", folder, "-k", 3, "-o", out, "-q").stderr
        assert "a_polygons.geojson was changed since an earlier run" in said
        assert "a_polygons.geojson" not in json.loads((out / "a_run.json").read_text())["outputs"]

    def test_tables_in_another_unit_contradict(self, tmp_path):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        segment = ("segment", folder, "-k", 2, "-o", out, "-q")
        invoke(*segment, "--regions", "--pixel-size", "0.5um")
        invoke(*segment)
        assert not (out / "a_regions.csv").exists()
        assert json.loads((out / "a_run.json").read_text())["made_from"]["pixel_size"] is None

    @pytest.mark.parametrize("option", ["--mask", "--seeds"])
    def test_masks_and_strokes_with_the_name_of_a_result_are_not_overwritten(self, tmp_path, option):
        folder = folder_of(tmp_path, ["a.png"])
        painted = np.zeros(SMALL.shape[:2], np.uint8)
        painted[5:20, 5:20], painted[40:60, 60:80] = 1, 2
        io_scenes.write(folder / "a_labels.png", painted)
        before = (folder / "a_labels.png").read_bytes()
        given = (option, folder / "a_labels.png")
        said = invoke("segment", folder / "a.png", *given, "-o", folder, exit_code=2).stderr
        assert "would overwrite the input" in said
        assert (folder / "a_labels.png").read_bytes() == before

    @pytest.mark.parametrize("suffix", ["csv", "json"])
    def test_the_summary_says_how_sure_each_result_is(self, tmp_path, suffix):
        folder = folder_of(tmp_path / "in", ["a.png", "b.png"])
        summary = tmp_path / f"summary.{suffix}"
        arguments = ("segment", folder, "--k-max", 4, "-o", tmp_path / "out", "--summary", summary)
        printed = invoke(*arguments).stdout

        def read():
            text = summary.read_text()
            return list(csv.DictReader(text.splitlines())) if suffix == "csv" else json.loads(text)

        rows = read()
        selection = texseg.TextureSegmenter(k_max=4).fit(SMALL).selection_
        own = selection.probability(selection.chosen)
        assert float(rows[0]["probability"]) == pytest.approx(own, abs=1e-4)
        assert float(rows[0]["single_texture"]) == pytest.approx(selection.one_texture, abs=1e-4)
        others = [f"{k} ({selection.probability(k):.0%})" for k in selection.others]
        assert rows[0]["others"] == ", ".join(others)
        said = f"segments ({own:.0%}), "
        if selection.one_texture >= 0.5:
            said = f"segments, probably a single texture ({selection.one_texture:.0%})"
        assert f"{selection.chosen} {said}" in printed
        assert all(0.5 < float(row["mean_confidence"]) <= 1 for row in rows)
        invoke(*arguments, "--skip-existing")
        for row, before in zip(read(), rows, strict=True):
            assert row["status"] == "skipped"
            for name in ("probability", "others", "single_texture", "mean_confidence"):
                assert row[name] == before[name]

    def test_a_line_of_a_batch_says_that_an_image_is_rather_one_texture(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a.png"])
        noise = np.random.default_rng(0).integers(0, 256, (96, 96)).astype(np.uint8)
        io_scenes.write(folder / "noise.png", noise)
        printed = invoke("segment", folder, "-o", tmp_path / "out").stdout
        rather = texseg.TextureSegmenter().fit(noise).selection_.one_texture
        line = next(line for line in printed.splitlines() if "noise.png" in line)
        assert rather > 0.5 and f" segments, probably a single texture ({rather:.0%}), " in line

    def test_a_shared_model_tells_its_number_once_and_not_as_odds_of_each_image(self, tmp_path):
        """An image with two of three shared textures was once said to have 2 segments, others: 2."""
        folder, summary = folder_of(tmp_path / "in", ["a.png", "b.png"]), tmp_path / "summary.csv"
        arguments = ("segment", folder, "--k-max", 4, "-o", tmp_path / "out", "--summary", summary)
        printed = invoke(*arguments, "--shared").stdout
        assert printed.count("number chosen: ") == 1 and printed.startswith("number chosen: ")
        assert "%" not in "".join(printed.splitlines()[1:])
        for row in csv.DictReader(summary.read_text().splitlines()):
            assert row["probability"] == row["others"] == row["single_texture"] == ""

    def test_fit_tells_the_number_it_chose(self, tmp_path):
        image, model = folder_of(tmp_path / "in", ["a.png"]) / "a.png", tmp_path / "m.texseg"
        told = invoke("fit", image, "--k-max", 4, "-o", model).stdout
        assert told.startswith("number chosen: ")
        assert told.splitlines()[0] in invoke("segment", image, "--k-max", 4, "-o", tmp_path).stdout
        assert "number chosen" not in invoke("fit", image, "-k", 2, "-o", model).stdout

    @pytest.mark.parametrize("record", [None, "", "[]", '{"outputs": ["a_labels.png"]}', '{"result": {}}'])
    def test_a_damaged_record_ends_no_run(self, tmp_path, record):
        folder, out = folder_of(tmp_path / "in", ["a.png"]), tmp_path / "out"
        out.mkdir()
        if record is None and hasattr(os, "mkfifo"):  # which nothing waits for
            os.mkfifo(out / "a_run.json")
        else:
            (out / "a_run.json").write_text(record or "")
        invoke("segment", folder, "-k", 2, "-o", out, "-q", "--skip-existing")
        assert json.loads((out / "a_run.json").read_text())["result"]["n_segments"] == 2

    def test_an_interrupted_rewriting_leaves_no_record_behind(self, tmp_path, monkeypatch):
        folder = folder_of(tmp_path / "in", ["a.png"])
        invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", "-q")

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(outputs, "csv_text", interrupt)
        invoke("segment", folder, "-k", 3, "-o", tmp_path / "out", "-q", exit_code=1)
        assert not (tmp_path / "out" / "a_run.json").exists()

    @pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
    @pytest.mark.parametrize(
        "number, is_short_of_memory",
        [(signal.SIGKILL, False), (signal.SIGTERM, False), (signal.SIGTERM, True)],
    )
    def test_workers_end_with_the_main_process(self, tmp_path, number, is_short_of_memory):
        """Also if the kernel has killed one of them, so that nothing waits for what never comes."""
        folder = folder_of(tmp_path / "in", [f"{i}.png" for i in range(40)])
        out = tmp_path / "out"
        arguments = ["segment", str(folder), "-k", "2", "-o", str(out), "--jobs", "2", "-q"]
        code = "from texseg.cli import main; main()"
        main_process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments, "--summary", str(tmp_path / "run.json")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OF_TEST": str(tmp_path)},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while len(list(out.glob("*_run.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        processes = processes_with("OF_TEST", tmp_path)
        assert len(processes) >= 3
        if is_short_of_memory:
            workers = [path for path in processes if b"spawn_main" in (path / "cmdline").read_bytes()]
            os.kill(int(workers[0].name), signal.SIGKILL)
        main_process.send_signal(number)
        _, said = main_process.communicate(timeout=20)  # workers hold the output open as long as they live
        deadline = time.monotonic() + 10
        while processes_with("OF_TEST", tmp_path) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not processes_with("OF_TEST", tmp_path)
        if number == signal.SIGKILL:
            return
        assert main_process.returncode == 128 + number
        assert said == b"texseg: interrupted\n"
        assert not any(path.is_dir() for path in out.glob(".*.part"))  # a record of what is there may stay
        records = json.loads((tmp_path / "run.json").read_text())
        assert {record["status"] for record in records} <= {"done"}
        assert len(records) < 40


def processes_with(name, value):
    """Processes whose environment says so."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and f"{name}={value}".encode() in (path / "environ").read_bytes():
                found.append(path)
        except OSError:  # it ended, or belongs to somebody else
            continue
    return found


class TestNames:
    @pytest.mark.skipif(sys.platform != "linux", reason="needs names of any bytes")
    @pytest.mark.parametrize("suffix", ["csv", "json"])
    def test_a_name_that_is_no_text_costs_nothing(self, tmp_path, suffix):
        folder = folder_of(tmp_path / "in", ["a.png"])
        (folder / "a.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
        io_scenes.write(folder / "b.png", SMALL)
        run_file = tmp_path / f"run.{suffix}"
        said = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", "--all", "--summary", run_file)
        assert r"caf\xe9.png: 96 x 64" in said.stdout
        assert said.stdout.splitlines()[-1] == "2 done, 0 failed"
        assert "caf" in run_file.read_text(encoding="utf-8")
        assert r"caf\xe9" in (tmp_path / "out" / "texseg_reports.html").read_text(encoding="utf-8")
        assert "caf%E9_report.html" in (tmp_path / "out" / "texseg_reports.html").read_text(encoding="utf-8")

    def test_a_name_too_long_for_its_results_is_refused_before_the_work(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a" * 236 + ".png", "a" * 235 + ".png", "b.png"])
        said = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out", exit_code=1)
        reason = (
            "its name is too long for its results (at most 255 bytes with the ending _numbers_overlay.png"
        )
        assert said.stderr.count(reason) == 1
        assert said.stdout.splitlines()[-1] == "2 done, 1 failed"

    @pytest.mark.skipif(os.name != "posix", reason="needs such names")
    def test_no_name_tells_the_terminal_what_to_do(self, tmp_path):
        folder = folder_of(tmp_path / "in", ["a\x1b[2J\nfailed: x.png"])
        said = invoke("segment", folder, folder / "no\x1b[2J.png", "-k", 2, "-o", tmp_path / "o", exit_code=1)
        assert "\x1b" not in said.output
        assert r"a\x1b[2J\nfailed: x.png: 96 x 64" in said.stdout
        assert r"no\x1b[2J.png: no such file" in said.stderr
        assert "\x1b" not in invoke("segment", "-k", 2, "--mask", "\x1b[2J", folder, exit_code=2).output
        assert "\x1b" not in invoke("info", folder / "a\x1b[2J\nfailed: x.png").output

    @pytest.mark.skipif(os.name != "posix", reason="needs such names")
    def test_no_cell_is_a_formula(self, tmp_path, monkeypatch):
        folder = folder_of(tmp_path / "in", ["=1+1.png", "@b.png", "+c.png"])
        monkeypatch.chdir(folder)
        invoke("segment", "=1+1.png", "@b.png", "+c.png", "-k", 2, "-o", "o", "-q", "--summary", "run.csv")
        with (folder / "run.csv").open(newline="") as file:
            assert [row["input"] for row in csv.DictReader(file)] == ["'+c.png", "'=1+1.png", "'@b.png"]
        names = ["=cmd", "sand"]
        assert "'=cmd" in csv_text(
            [row[: len(SEGMENT_FIELDS)] for row in segment_table(np.array([[1, 2]]), names=names)],
            SEGMENT_FIELDS,
        )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestProcesses:
    def test_a_process_that_dies_takes_only_its_image_along(self, tmp_path, monkeypatch):
        items = [Input(tmp_path / name, PurePath(name)) for name in ("a", "b", "deadly", "e", "f")]
        work = Work(ReadOptions(), Writing(tmp_path / "out"), {"n_segments": 2})
        monkeypatch.setattr(batch, "process", dying_process.process)
        outcomes = {outcome.input.stem: outcome for outcome in run(items, work, n_jobs=2)}
        assert [outcomes[item.path.stem].status for item in items] == [
            "done",
            "done",
            "failed",
            "done",
            "done",
        ]
        assert "its process was killed, perhaps for lack of memory" in outcomes["deadly"].reason

    def test_what_was_finished_when_a_process_died_is_kept(self, tmp_path, monkeypatch):
        items = [Input(tmp_path / f"{i}.png", PurePath(str(i))) for i in range(4)]
        pool = _PoolThatBreaks()
        monkeypatch.setattr(batch, "_pool", lambda n_threads: pool)
        outcomes = list(run(items, Work(ReadOptions(), Writing(tmp_path)), n_jobs=2))
        assert sorted(outcome.input.stem for outcome in outcomes) == ["0", "1", "2", "3"]


class _PoolThatBreaks:
    """A pool whose second task breaks it, while others are done."""

    def __init__(self):
        self.n_tasks = 0

    def submit(self, process, item, work, n_threads):
        from concurrent.futures import Future

        future = Future()
        self.n_tasks += 1
        if self.n_tasks == 2:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(Outcome(item.path, "done"))
        return future

    def shutdown(self, **_):
        pass


class TestSample:
    def test_even_and_bounded(self, tmp_path, monkeypatch):
        folder = folder_of(tmp_path, [f"{i}.png" for i in range(40)])
        (folder / "0.png").write_text("x")
        seen = []
        original = batch.open_scenes

        @contextlib.contextmanager
        def noting(path, reading):
            with original(path, reading) as scenes:
                seen.append(path)
                yield scenes

        monkeypatch.setattr(batch, "open_scenes", noting)
        sample = read_sample(collect_inputs([str(folder)])[0], ReadOptions())
        assert len(sample) == 16
        numbers = [int(path.stem) for path in seen]
        assert numbers[0] == 1  # the first cannot be read
        assert max(np.diff(numbers)) <= 3
        monkeypatch.setattr(batch, "_SAMPLE_PIXELS", 2 * SMALL.size)
        assert len(read_sample(collect_inputs([str(folder)])[0], ReadOptions())) == 2

    def test_other_channels_are_left_out(self, tmp_path):
        io_scenes.write(tmp_path / "a.png", SMALL)
        io_scenes.write(tmp_path / "b.png", np.dstack([SMALL] * 3))
        assert [
            image.pixels.ndim for image in read_sample(collect_inputs([str(tmp_path)])[0], ReadOptions())
        ] == [2]


def test_report_formats(tmp_path):
    outcomes = [
        Outcome(
            Path("a.png"),
            "done",
            result={"n_segments": 2, "height": 3, "width": 4},
            seconds=0.25,
            outputs=(Path("o/a_labels.png"),),
        ),
        Outcome(Path("b.png"), "failed", "file is truncated"),
        Outcome(Path("c.png"), "skipped", "its outputs exist"),
    ]
    write_report(tmp_path / "r.json", outcomes)
    records = json.loads((tmp_path / "r.json").read_text())
    assert records[0] == {
        "input": "a.png", "status": "done", "reason": "", "n_segments": 2, "height": 3, "width": 4,
        "probability": None, "others": None, "single_texture": None, "mean_confidence": None,
        "seconds": 0.25, "outputs": [os.path.join("o", "a_labels.png")],
    }  # fmt: skip
    write_report(tmp_path / "r.csv", outcomes)
    with (tmp_path / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done", "failed", "skipped"]
    assert rows[1]["reason"] == "file is truncated"
    assert rows[1]["height"] == ""
