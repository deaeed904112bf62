"""Images above the memory that was allowed: by blocks, from file to file, and gone on with when ended."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

import texseg.method.blocks
from tests.test_blocks import scene
from texseg.cli import main
from texseg.cli.record import PartsFolder
from texseg.cli.terminal import InterruptedBySignalError
from texseg.io.polygons import polygons
from texseg.io.read import read_image, read_labels
from texseg.io.regions import region_table

zarr = pytest.importorskip("zarr")

LITTLE = ["--memory", "1M"]


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with an image of six blocks, and a model of it."""
    folder = tmp_path_factory.mktemp("large")
    image = np.clip(128 + 50 * scene(400, 520), 0, 255).astype(np.uint8)
    tifffile.imwrite(folder / "image.tif", image, tile=(128, 128), compression="zlib")
    result = run("fit", folder / "image.tif", "-k", 2, "-o", folder / "model.texseg")
    assert result.exit_code == 0, result.output
    return folder


def test_a_fit_says_what_it_learned_from(place, tmp_path):
    """Only of images that are too large to be learned from as a whole."""
    words = ("fit", place / "image.tif", "-k", 2, "--preset", "plain", "-o", tmp_path / "m.texseg")
    assert "learned from" not in run(*words).stderr
    assert f"note: {place / 'image.tif'}: textures learned from" in run(*words, *LITTLE).stderr


def test_a_model_labels_by_blocks_what_it_labels_as_a_whole(place, tmp_path):
    args = ("apply", place / "model.texseg", place / "image.tif", "--confidence")
    assert run(*args, "--format", "tif", "-o", tmp_path / "whole").exit_code == 0
    result = run(*args, *LITTLE, "-o", tmp_path / "blocks")
    assert result.exit_code == 0, result.output
    assert "read by blocks of 256 pixels" in result.stderr
    whole, blocks = (read_labels(tmp_path / name / "image_labels.tif") for name in ("whole", "blocks"))
    assert np.mean(whole == blocks) > 0.9999
    tables = [(tmp_path / name / "image_segments.csv").read_text() for name in ("whole", "blocks")]
    rows = [list(csv.DictReader(table.splitlines())) for table in tables]
    for one, other in zip(*rows, strict=True):
        assert (one["label"], one["left"], one["bottom"]) == (other["label"], other["left"], other["bottom"])
        assert float(one["mean_confidence"]) == pytest.approx(float(other["mean_confidence"]), abs=0.005)
    assert sorted(p.name for p in (tmp_path / "blocks").iterdir()) == [
        "image_confidence.tif",
        "image_labels.tif",
        "image_overlay.png",
        "image_run.json",
        "image_segments.csv",
    ]


@pytest.mark.parametrize(
    ("again", "status"),
    [(["-k", 2], "skipped"), (["-k", 2, "--smoothness", 2], "done"), (["-k", 2, "--report-html"], "done")],
)
def test_results_by_blocks_exist_only_if_they_are_those_asked_for(place, tmp_path, again, status):
    options = ["segment", place / "image.tif", *LITTLE, "-o", tmp_path, "--skip-existing"]
    assert run(*options, "-k", 2).exit_code == 0
    result = run(*options, *again, "--summary", tmp_path / "summary.csv")
    assert result.exit_code == 0, result.output
    (row,) = csv.DictReader((tmp_path / "summary.csv").read_text().splitlines())
    assert row["status"] == status
    record = json.loads((tmp_path / "image_run.json").read_text())
    assert record["made_from"]["by_blocks"] is True
    sure = record["result"].pop("mean_confidence", None)
    record["result"].pop("report", None)
    assert len(record["result"].pop("sample")["windows"]) == 1
    assert (sure is None) == ("--report-html" not in again) and record["result"] == {
        "n_segments": 2,
        "height": 400,
        "width": 520,
    }
    assert set(record["outputs"]) == {path.name for path in tmp_path.glob("image_*")} - {"image_run.json"}


def test_results_by_blocks_take_the_place_of_those_of_the_whole(place, tmp_path):
    options = ["apply", place / "model.texseg", place / "image.tif", "-o", tmp_path]
    assert run(*options, "--polygons").exit_code == 0
    result = run(*options, *LITTLE)
    assert "were removed: image_polygons.geojson, image_labels.png" in result.stderr
    kinds = ("labels.tif", "overlay.png", "run.json", "segments.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"image_{kind}" for kind in kinds]


def test_a_report_by_blocks_with_a_name_of_its_own_leaves_no_record(place, tmp_path):
    result = run("report", place / "image.tif", "-k", 2, *LITTLE, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page.html").exists() and not list(tmp_path.glob("*_run.json"))


def test_another_encoding_is_said_and_is_not_rescaled_by_blocks(place, tmp_path):
    image = tifffile.imread(place / "image.tif").astype(np.uint16) * 257
    tifffile.imwrite(tmp_path / "wide.tif", image, tile=(128, 128))
    args = ("apply", place / "model.texseg", tmp_path / "wide.tif", *LITTLE, "-o", tmp_path)
    result = run(*args)
    assert result.exit_code == 0 and "as if multiplied by 257" in result.stderr
    result = run(*args, "--rescale")
    assert result.exit_code == 1
    assert "--rescale needs the whole image in memory; allow more --memory" in result.stderr
    assert "multiplied" not in run(*args[:2], place / "image.tif", *args[3:]).stderr


def test_channels_and_grey_are_those_of_the_whole(place, tmp_path):
    grey = tifffile.imread(place / "image.tif")
    dead = np.full(grey.shape, np.nan, np.float32)
    options = {"tile": (128, 128), "compression": "zlib", "planarconfig": "contig"}
    tifffile.imwrite(tmp_path / "bands.tif", np.dstack([dead, grey]), photometric="minisblack", **options)
    tifffile.imwrite(tmp_path / "colour.tif", np.dstack([grey] * 3), photometric="rgb", **options)
    args = ("apply", place / "model.texseg", "--format", "tif", *LITTLE)
    for words in ([tmp_path / "bands.tif", "--channels", "1"], [tmp_path / "colour.tif", "--grey"]):
        result = run(*args, *words, "-o", tmp_path / "out")
        assert result.exit_code == 0, result.output
    found = [read_labels(tmp_path / "out" / f"{name}_labels.tif") for name in ("bands", "colour")]
    assert np.mean(found[0] == found[1]) > 0.999
    assert (found[0] > 0).all()


def test_textures_are_learned_from_crops(place, tmp_path):
    result = run("segment", place / "image.tif", "-k", 2, *LITTLE, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "textures learned from one crop of 512 pixels" in result.stderr
    assert "labels written as TIFF alone" in result.stderr
    labels = read_labels(tmp_path / "image_labels.tif")
    assert set(np.unique(labels)) == {1, 2}
    assert (labels[:, :150] == 1).mean() > 0.8 or (labels[:, :150] == 2).mean() > 0.8


def test_the_number_chosen_by_blocks_is_told_with_others(place, tmp_path):
    result = run("segment", place / "image.tif", "--k-max", 4, *LITTLE, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "by blocks" in result.stderr
    k = read_labels(tmp_path / "image_labels.tif").max()
    assert f"number chosen: {k} segments" in result.stdout


@pytest.mark.parametrize("verb", ["segment", "apply"])
def test_segments_are_merged_and_named(place, tmp_path, verb):
    model = [place / "model.texseg"] if verb == "apply" else []
    options = ["-k", 2] if verb == "segment" else []
    result = run(verb, *model, place / "image.tif", *options, "--merge", "1+2=all", *LITTLE, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert np.unique(read_labels(tmp_path / "image_labels.tif")).tolist() == [1]
    assert (tmp_path / "image_segments.csv").read_text().splitlines()[1].startswith("1,all,#0072b2,208000,")


class Killed(BaseException):
    """Stands for what no handler sees."""


@pytest.mark.parametrize(
    ("resume", "when", "n_kept"),
    [(True, "read_block", 2), (False, "finished", 6), (True, "finished", 6)],
)
def test_an_ended_run_is_gone_on_with(place, tmp_path, monkeypatch, resume, when, n_kept):
    """Ended while blocks are read, or while their labels are written: half files are left then."""
    args = ["apply", place / "model.texseg", place / "image.tif", *LITTLE, "-o", tmp_path]
    args += ["--format", "tif,zarr"]
    parts = tmp_path / ".image.texseg-parts"
    assert run(*args).exit_code == 0
    undisturbed = (tmp_path / "image_labels.tif").read_bytes()
    (tmp_path / "image_labels.tif").unlink()
    work, read, begun = getattr(texseg.method.blocks, when), texseg.method.blocks.read_block, []

    def work_some(*arguments):
        if len(begun) == 2:
            for half in tmp_path.glob(".*.part"):  # stays where it is when a process is killed
                shutil.copytree(half, half.with_suffix(".left.part"))
            raise Killed
        begun.append(arguments[1])
        return work(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(texseg.method.blocks, when, work_some)
        with pytest.raises(Killed):
            CliRunner().invoke(main, [str(word) for word in [*args, "--jobs", 1]], standalone_mode=False)
    assert not (tmp_path / "image_labels.tif").exists()  # no half file
    assert len(list(parts.glob("*.npz"))) == n_kept
    assert len(list(tmp_path.glob(".*.left.part"))) == (2 if when == "finished" else 0)

    def read_and_note(*arguments):
        begun.append(arguments[1])
        return read(*arguments)

    begun.clear()
    monkeypatch.setattr(texseg.method.blocks, "read_block", read_and_note)
    result = run(*args, *(["--resume"] if resume else []))
    assert result.exit_code == 0, result.output
    assert len(begun) == (6 - n_kept if resume else 6)
    assert (tmp_path / "image_labels.tif").read_bytes() == undisturbed
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_is_finished_is_not_made_again_by_resume(place, tmp_path, monkeypatch):
    """By blocks and as a whole; a model that changed since makes it anew."""
    for options in (LITTLE, []):
        args = ["apply", place / "model.texseg", place / "image.tif", *options, "-o", tmp_path]
        with monkeypatch.context() as patch:
            patch.setattr(PartsFolder, "remove", lambda self: None)  # as if it were ended just before
            assert "skipped" not in run(*args, "--resume").stdout
        assert "image.tif: skipped, its results exist" in run(*args, "--resume").stdout
        assert not list(tmp_path.glob(".*"))
        assert "skipped" not in run(*args, "--resume", "--merge", "1+2").stdout


def test_a_model_that_cannot_be_read_again_ends_the_run(place, tmp_path, monkeypatch):
    """The fit must not begin again and again."""

    def refused(path):
        raise OSError("model file was damaged")

    monkeypatch.setattr("texseg.cli.record.Segmenter.load", refused)
    words = ("segment", place / "image.tif", "-k", 2, "--preset", "plain", *LITTLE, "-o", tmp_path)
    failed = run(*words)
    assert failed.exit_code == 1
    assert failed.stderr == f"failed: {place / 'image.tif'}: model file was damaged\n"


def test_two_runs_on_one_image_in_one_folder_are_said(place, tmp_path, monkeypatch):
    read = texseg.method.blocks.read_block

    def read_while_another_run_finishes(*arguments):
        shutil.rmtree(tmp_path / ".image.texseg-parts", ignore_errors=True)
        return read(*arguments)

    monkeypatch.setattr(texseg.method.blocks, "read_block", read_while_another_run_finishes)
    failed = run("apply", place / "model.texseg", place / "image.tif", *LITTLE, "-o", tmp_path)
    assert failed.exit_code == 1
    assert "another run has finished this image and removed the blocks of both; choose" in failed.stderr


def test_two_runs_that_make_the_same_in_one_folder_both_succeed(place, tmp_path, monkeypatch):
    args = ["apply", place / "model.texseg", place / "image.tif", *LITTLE, "-o", tmp_path]
    read, begun = texseg.method.blocks.read_block, []

    def read_after_another_run(*arguments):
        if not begun:
            begun.append(arguments)
            command = [sys.executable, "-m", "texseg", *map(str, args)]
            subprocess.run(command, check=True, capture_output=True)
        return read(*arguments)

    monkeypatch.setattr(texseg.method.blocks, "read_block", read_after_another_run)
    result = run(*args, "--jobs", 1)
    assert result.exit_code == 0 and "its results exist" in result.stdout
    assert not list(tmp_path.glob(".*"))


def test_who_ends_a_run_is_told_how_to_go_on(place, tmp_path, monkeypatch):
    args = ["apply", place / "model.texseg", place / "image.tif", *LITTLE, "-o", tmp_path, "--jobs", 1]
    read = texseg.method.blocks.read_block

    def interrupted_at(n_blocks):
        begun = []

        def read_some(*arguments):
            if len(begun) == n_blocks:
                raise InterruptedBySignalError(signal.SIGINT)
            begun.append(arguments)
            return read(*arguments)

        monkeypatch.setattr(texseg.method.blocks, "read_block", read_some)
        result = run(*args)
        assert result.exit_code == 130
        return result.stderr.splitlines()[-1]

    assert interrupted_at(0) == "texseg: interrupted"
    assert interrupted_at(1) == "texseg: interrupted; run the same command with --resume to continue"


def test_a_mask_is_read_by_windows_too(place, tmp_path):
    mask = np.ones((400, 520), np.uint8)
    mask[:300, 270:] = 0
    tifffile.imwrite(tmp_path / "mask.tif", mask, tile=(64, 64), compression="zlib")
    args = ["apply", place / "model.texseg", place / "image.tif", *LITTLE, "-o", tmp_path]
    result = run(*args, "--mask", tmp_path / "mask.tif")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_labels(tmp_path / "image_labels.tif") == 0, mask == 0)
    tifffile.imwrite(tmp_path / "mask.tif", mask[:99], tile=(64, 64), compression="zlib")
    result = run(*args, "--mask", tmp_path / "mask.tif")
    assert "mask shape (99, 520) does not match image (400, 520)" in result.stderr


def test_regions_and_outlines_are_joined_across_blocks(place, tmp_path):
    """Each region has one row and one outline, exact, however many blocks it lies in."""
    args = ("apply", place / "model.texseg", place / "image.tif", "--format", "tif", "--confidence")
    result = run(*args, "--regions", "--polygons", *LITTLE, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    labels = read_labels(tmp_path / "image_labels.tif")
    rows = list(csv.DictReader((tmp_path / "image_regions.csv").read_text().splitlines()))
    expected = region_table(labels)
    assert len(rows) == len(expected) > 1
    for row, region in zip(rows, expected, strict=True):
        for field in ("region", "label", "pixels", "top", "left", "bottom", "right"):
            assert int(row[field]) == getattr(region, field)
        assert 0 < float(row["mean_confidence"]) <= 1
    found = json.loads((tmp_path / "image_polygons.geojson").read_text())
    whole = polygons(labels)
    for one, other in zip(found["features"], whole["features"], strict=True):
        assert one["geometry"] == other["geometry"]
        assert one["properties"]["label"] == other["properties"]["label"]


def test_labels_as_a_zarr_array(place, tmp_path):
    args = ("apply", place / "model.texseg", place / "image.tif", "--format", "tif,zarr")
    for extra in (LITTLE, []):  # by blocks, and whole
        result = run(*args, *extra, "-o", tmp_path)
        assert result.exit_code == 0, result.output
        array = zarr.open(tmp_path / "image_labels.zarr", mode="r")["0"]
        assert array.dtype == np.uint8
        np.testing.assert_array_equal(array[:], read_labels(tmp_path / "image_labels.tif"))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    other = tmp_path / "mine" / "image_labels.zarr"
    other.mkdir(parents=True)
    (other / "notes.txt").write_text("mine")
    result = run(*args, *LITTLE, "-o", tmp_path / "mine")
    assert "image_labels.zarr exists and is not a zarr array" in result.stderr
    assert (other / "notes.txt").read_text() == "mine"


def test_without_zarr_nothing_is_begun(place, tmp_path, monkeypatch):
    monkeypatch.setattr("texseg.cli.options.find_spec", lambda name: None)
    result = run("segment", place / "image.tif", "-k", 2, "--format", "tif,zarr", "-o", tmp_path)
    assert result.exit_code == 2
    assert "zarr images need zarr (pip install 'texseg[large]')" in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())


def test_probabilities_are_the_same_in_a_tiff_and_in_a_zarr_array(place, tmp_path):
    """Every segment has its plane, in the order of the labels."""
    args = ("apply", place / "model.texseg", place / "image.tif", "--probabilities", "-o", tmp_path)
    for formats in ("tif", "tif,zarr"):
        assert run(*args, "--format", formats).exit_code == 0
    planes = zarr.open(tmp_path / "image_probabilities.zarr", mode="r")["0"]
    assert planes.metadata.dimension_names == ("segment", "y", "x") and planes.chunks[0] == 1
    np.testing.assert_array_equal(planes[:], tifffile.imread(tmp_path / "image_probabilities.tif"))
    np.testing.assert_array_equal(planes[:].argmax(axis=0) + 1, read_labels(tmp_path / "image_labels.tif"))


def test_areas_by_blocks_have_the_unit_of_the_file(place, tmp_path):
    size = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(tmp_path / "i.tif", tifffile.imread(place / "image.tif"), tile=(128, 128), **size)
    result = run("apply", place / "model.texseg", tmp_path / "i.tif", *LITTLE, "--regions", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    for name in ("segments", "regions"):
        rows = list(csv.DictReader((tmp_path / f"i_{name}.csv").read_text().splitlines()))
        assert {row["unit"] for row in rows} == {"um"}
        assert all(float(row["area"]) == int(row["pixels"]) / 4 for row in rows)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of rasterio itself
def test_georeferenced_labels_are_cloud_optimised(place, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    options = {"driver": "GTiff", "height": 400, "width": 520, "count": 1, "dtype": "uint8", "tiled": True}
    transform = rasterio.Affine(10, 0, 500000, 0, -10, 5200000)
    options |= {"crs": "EPSG:32632", "transform": transform, "blockxsize": 128, "blockysize": 128}
    with rasterio.open(tmp_path / "map.tif", "w", **options) as file:
        file.write(tifffile.imread(place / "image.tif"), 1)
    result = run("apply", place / "model.texseg", tmp_path / "map.tif", *LITTLE, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    with rasterio.open(tmp_path / "out" / "map_labels.tif") as file:
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.crs.to_epsg() == 32632 and file.transform == transform and file.nodata == 0
        stored = file.read(1)
    np.testing.assert_array_equal(stored, read_labels(tmp_path / "out" / "map_labels.tif"))
    assert set(np.unique(stored)) == {1, 2}


def test_the_report_of_a_large_image_is_about_an_overview(place, tmp_path, monkeypatch):
    monkeypatch.setattr("texseg.cli.process._PREVIEW", 150)
    args = ("apply", place / "model.texseg", place / "image.tif", "--report-html", *LITTLE)
    result = run(*args, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "report have 1/4 of the size" in result.stderr
    page = (tmp_path / "image_report.html").read_text()
    assert "520 x 400 pixels" in page
    content = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert content["shape"] == [400, 520] and content["levels"][0]["estimated"]
    areas = [segment["pixels"] for segment in content["levels"][0]["segments"]]
    truth = np.bincount(read_labels(tmp_path / "image_labels.tif").ravel())[1:]
    np.testing.assert_allclose(areas, truth, rtol=0.05)


def test_the_only_tile_of_a_sparse_image_is_found(tmp_path):
    """An even sample of crops misses it; empty tiles cost neither time nor labels."""
    rng = np.random.default_rng(0)
    tile = np.hstack([rng.integers(100, 130, (128, 64)), rng.choice([60, 170], (128, 64))]).astype(np.uint8)

    def tiles(at):
        yield np.zeros_like(tile)
        yield from (tile if i == at else None for i in range(1, 64))

    for name, at in (("sparse", 7), ("empty", -1)):
        tifffile.imwrite(
            tmp_path / f"{name}.tif", tiles(at), shape=(1024, 1024), dtype=np.uint8, tile=tile.shape,
            compression="zlib", extratags=[(42113, 2, 2, "0", True)],
        )  # fmt: skip
    args = ("-k", 2, *LITTLE, "-o", tmp_path / "out")
    result = run("segment", tmp_path / "sparse.tif", *args)
    assert result.exit_code == 0, result.output
    labels = read_labels(tmp_path / "out" / "sparse_labels.tif")
    assert (labels[:128, 896:] > 0).all() and np.count_nonzero(labels) == tile.size
    assert np.mean(labels[:128, 896:950] == labels[60, 920]) > 0.95
    result = run("segment", tmp_path / "empty.tif", *args)
    assert result.exit_code == 1 and "empty.tif: no valid pixels" in result.stderr


def test_every_format_is_written_by_blocks(place, tmp_path):
    args = ("apply", place / "model.texseg", place / "image.tif", *LITTLE, "-o", tmp_path)
    result = run(*args, "--format", "png,tif,npy,zarr")
    assert result.exit_code == 0, result.output
    labels = read_labels(tmp_path / "image_labels.tif")
    for suffix in ("png", "npy"):
        assert np.array_equal(read_labels(tmp_path / f"image_labels.{suffix}"), labels)
    assert np.array_equal(zarr.open(tmp_path / "image_labels.zarr")["0"][:], labels)
    result = run(*args, "--probabilities")
    assert result.exit_code == 1 and "only for images that fit into --memory" in result.stderr


def test_a_file_that_can_only_be_read_whole_says_so(tmp_path):
    from PIL import Image

    Image.fromarray(np.zeros((300, 300), np.uint8)).save(tmp_path / "image.gif")
    result = run("segment", tmp_path / "image.gif", *LITTLE, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert re.search(r"need about \d\d+ MB, but only 1 MB is allowed \(--memory\)", result.stderr)


@pytest.mark.parametrize("size", ["0", "1k", "999kB", "much", "-1G", "nan"])
def test_amounts_of_memory_that_make_no_sense(place, size):
    result = run("segment", place / "image.tif", "--memory", size)
    assert result.exit_code == 2 and "not an amount of memory of at least 1M, such as 2G" in " ".join(
        result.output.split()
    )


def test_places_are_those_of_level_0_whatever_the_level(tmp_path):
    """Boxes, centroids, areas and outlines of level 1 lie on the image; its labels have larger pixels."""
    image = np.clip(128 + 50 * scene(200, 261), 0, 255).astype(np.uint8)
    about = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeXUnit": "um", "PhysicalSizeYUnit": "um"}
    for name, metadata in (("p", {}), ("s", about)):
        with tifffile.TiffWriter(tmp_path / f"{name}.ome.tif", ome=True) as tiff:
            tiff.write(image, subifds=1, tile=(64, 64), metadata=metadata)
            tiff.write(image[::2, ::2], subfiletype=1, tile=(64, 64))
        found = run(
            "segment", tmp_path / f"{name}.ome.tif", "--level", 1, "-k", 2, "--regions", "--polygons",
            "-o", tmp_path,
        )  # fmt: skip
        assert found.exit_code == 0, found.output
        with open(tmp_path / f"{name}.ome_regions.csv") as file:
            rows = list(csv.DictReader(file))
        assert max(int(row["bottom"]) for row in rows) == 200
        assert max(int(row["right"]) for row in rows) == 261
        assert max(float(row["centroid_column"]) for row in rows) > 131
        unit = 0.25 if metadata else 1.0
        assert sum(float(row["area"]) for row in rows) == pytest.approx(200 * 261 * unit)
        outlines = json.loads((tmp_path / f"{name}.ome_polygons.geojson").read_text())["features"]
        corners = np.concatenate([np.array(f["geometry"]["coordinates"][0]) for f in outlines])
        assert corners.max(axis=0).tolist() == [261, 200]
    labels = read_image(tmp_path / "s.ome_labels.tif")
    assert labels.pixels.shape == (100, 131)
    assert labels.pixel_size[:3] == pytest.approx((1.0, 0.5 * 261 / 131, "um"))
