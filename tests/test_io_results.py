"""Label images carry size, names and colours into the programs that open them."""

import json
from importlib.util import find_spec

import cv2
import io_scenes
import numpy as np
import pytest
import tifffile
from affine import Affine
from click.testing import CliRunner
from PIL import Image

import texseg
from texseg.cli import main
from texseg.io.geo import georeference_of
from texseg.io.read import read_image
from texseg.io.regions import PixelSize, area_intervals, hex_colours
from texseg.metrics import pixel_accuracy

LABELS = np.repeat(np.repeat([[0, 1, 2], [3, 3, 2]], 40, axis=0), 40, axis=1)
NAMES = ["water", "", "forest"]
GEO = georeference_of(Affine(2.0, 0.0, 1000.0, 0.0, -2.0, 5000.0), "EPSG:32633")
COLOURS = [tuple(bytes.fromhex(colour[1:])) for colour in hex_colours(3)]


def run(*words):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def test_gdal_reads_colours_and_names_next_to_a_geotiff(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    from rasterio.shutil import copy

    texseg.write_labels(tmp_path / "l.tif", LABELS, geo=GEO, names=NAMES)
    with rasterio.open(tmp_path / "l.tif") as file:
        assert file.crs.to_epsg() == 32633 and file.nodata == 0
        assert [file.colormap(1)[n] for n in (1, 2, 3)] == [(*colour, 255) for colour in COLOURS]
        assert np.array_equal(file.read(1), LABELS)
    copy(tmp_path / "l.tif", tmp_path / "l.vrt", driver="VRT")
    found = (tmp_path / "l.vrt").read_text().split("<CategoryNames>")[1].split("</CategoryNames>")[0]
    expected = ["no data", "water", "segment 2", "forest"]
    assert found.split() == "".join(f"<Category>{name}</Category> " for name in expected).split()
    texseg.write_labels(tmp_path / "l.tif", LABELS)
    assert not (tmp_path / "l.tif.aux.xml").exists()  # it would describe what was replaced


@pytest.mark.parametrize("pages", [1, 2])
def test_imagej_knows_the_size_of_a_pixel(tmp_path, pages):
    labels = LABELS if pages == 1 else np.stack([LABELS] * 2)
    texseg.write_labels(tmp_path / "l.tif", labels, pixel_size=(0.5, 0.25, "um"))
    with tifffile.TiffFile(tmp_path / "l.tif") as file:
        assert file.is_imagej and file.imagej_metadata["unit"] == "um"
        assert file.pages[0].get_resolution() == pytest.approx((4, 2))
        assert np.array_equal(np.squeeze(file.asarray()), labels)
    image = texseg.read_image(tmp_path / "l.tif", page=pages - 1 if pages > 1 else None)
    assert image.pixel_size[:3] == pytest.approx((0.5, 0.25, "um"))
    assert np.array_equal(image.pixels, LABELS)


def test_labels_of_an_ome_image_are_ome_and_those_of_blocks_keep_their_size(tmp_path):
    image = np.random.default_rng(0).integers(0, 255, (80, 1040)).astype(np.uint8)
    image[:, 500:] //= 2
    metadata = {"PhysicalSizeX": 250.0, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 0.5}
    tifffile.imwrite(tmp_path / "a.ome.tif", image, ome=True, metadata=metadata, tile=(64, 64))
    for options in ([], ["--memory", "1M"]):
        run("segment", tmp_path / "a.ome.tif", "-k", 2, *options, "--preset", "plain", "-o", tmp_path)
        with tifffile.TiffFile(tmp_path / "a.ome_labels.tif") as file:
            assert file.is_ome and 'PhysicalSizeY="0.5"' in file.ome_metadata
            assert file.series[0].shape == image.shape
        assert texseg.read_image(tmp_path / "a.ome_labels.tif").pixel_size[:3] == (0.5, 0.25, "um")


def test_zarr_is_an_ome_label_image_with_levels(tmp_path):
    zarr = pytest.importorskip("zarr")
    labels = np.kron(LABELS, np.ones((15, 15), int))
    texseg.write_labels(tmp_path / "l.zarr", labels, pixel_size=(0.5, 0.25, "um"), names=NAMES)
    group = zarr.open_group(tmp_path / "l.zarr", mode="r")
    found = group.attrs["ome"]
    (scales,) = found["multiscales"]
    assert scales["axes"] == [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    steps = [data["coordinateTransformations"][0]["scale"] for data in scales["datasets"]]
    assert steps == [[0.5, 0.25], [2.0, 1.0]]
    assert np.array_equal(group["1"][:], labels[::4, ::4])
    label = found["image-label"]
    assert label["colors"] == [{"label-value": n, "rgba": [*COLOURS[n - 1], 255]} for n in (1, 2, 3)]
    assert [each["name"] for each in label["properties"]] == ["water", "segment 2", "forest"]
    image = read_image(tmp_path / "l.zarr")
    assert image.pixel_size[:3] == (0.5, 0.25, "um")
    assert np.array_equal(image.pixels, labels)


@pytest.mark.parametrize("geo", [GEO, None])
def test_outlines_as_a_geopackage(tmp_path, geo):
    pyogrio = pytest.importorskip("pyogrio")
    texseg.write_polygons(tmp_path / "l.gpkg", LABELS, names=NAMES, geo=geo)
    about, _, shapes, columns = pyogrio.raw.read(tmp_path / "l.gpkg", layer="regions")
    table = dict(zip(about["fields"], columns, strict=True))
    assert table["name"].tolist() == ["water", "segment 2", "forest"]
    assert table["pixels"].tolist() == [1600, 3200, 3200]
    assert about["crs"] == ("EPSG:32633" if geo else None)
    corners = np.frombuffer(shapes[0][13:], "<f8").reshape(-1, 2)
    expected = ([1080, 4920], [1160, 5000]) if geo else ([40, -40], [80, 0])
    assert (corners.min(axis=0).tolist(), corners.max(axis=0).tolist()) == expected


def test_the_command_gives_every_file_names_and_colours(tmp_path):
    rows, columns = np.mgrid[:64, :96]
    image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    Image.fromarray(np.uint8(100 + 50 * image)).save(tmp_path / "i.png")
    formats = ["tif"] + ["gpkg"] * (find_spec("pyogrio") is not None)
    run(
        "segment",
        tmp_path / "i.png",
        "-k",
        2,
        "--merge",
        "1=sand",
        "--format",
        ",".join(formats),
        "-o",
        tmp_path,
    )
    assert "<Category>sand</Category>" in (tmp_path / "i_labels.tif.aux.xml").read_text()
    outlines = tmp_path / "i_polygons.geojson"
    assert outlines.exists() == (len(formats) > 1) == (tmp_path / "i_polygons.gpkg").exists()
    run("segment", tmp_path / "i.png", "-k", 2, "--format", "png", "-o", tmp_path)
    assert not list(tmp_path.glob("i_labels.tif*"))  # nor its names
    if outlines.exists():
        assert json.loads(outlines.read_text())["features"][0]["properties"]["unit"] == "px"


# ---- scale -------------------------------------------------------------------------------------------------


def calibrated(path, pixels, side):
    tifffile.imwrite(path, pixels, imagej=True, resolution=(1 / side, 1 / side), metadata={"unit": "um"})
    return path


@pytest.fixture(scope="module")
def fine(tmp_path_factory):
    """An image with pixels of .25 um, the same at .5 um, and a model of the first."""
    folder = tmp_path_factory.mktemp("scale")
    rng, (rows, columns) = np.random.default_rng(0), np.indices((160, 192))
    wavelength = np.choose(columns // 64, (4.0, 8.0, 16.0))  # at half the size each looks like its neighbour
    waves = np.sin(2 * np.pi * (rows + 0.3 * columns) / wavelength) + 0.2 * rng.standard_normal(rows.shape)
    pixels = np.clip(128 + 45 * waves, 0, 255).astype(np.uint8)
    calibrated(folder / "fine.tif", pixels, 0.25)
    small = np.clip(cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), 0, 255)
    calibrated(folder / "coarse.tif", small, 0.5)
    run("fit", folder / "fine.tif", "-k", 3, "-o", folder / "m.texseg")
    return folder


def test_a_model_finds_its_textures_at_another_magnification(fine, tmp_path):
    apply = (
        "apply",
        fine / "m.texseg",
        fine / "coarse.tif",
        "--confidence",
        "--probabilities",
        "-o",
        tmp_path,
    )
    said = "a pixel of this image is 0.5 x 0.5 um, but the model learned from pixels of 0.25 x 0.25 um"
    assert said in run(*apply).stderr and "try --resample" in run(*apply).stderr
    assert said not in run("apply", fine / "m.texseg", fine / "fine.tif", "-o", tmp_path).stderr
    truth = texseg.read_labels(tmp_path / "fine_labels.tif")[::2, ::2]
    assert pixel_accuracy(truth, np.indices(truth.shape)[1] // 32) > 0.95
    assert np.mean(texseg.read_labels(tmp_path / "coarse_labels.tif") == truth) < 0.5
    mask = np.ones(truth.shape, np.uint8)
    mask[:9] = 0
    Image.fromarray(mask).save(tmp_path / "mask.png")
    run(*apply, "--resample", "--mask", tmp_path / "mask.png")
    labels = texseg.read_labels(tmp_path / "coarse_labels.tif")
    assert labels.shape == truth.shape and np.array_equal(labels == 0, mask == 0)
    assert np.mean(labels[9:] == truth[9:]) > 0.95
    sure = texseg.read_image(tmp_path / "coarse_probabilities.tif", channel_axis=0).pixels
    assert sure.shape == (*truth.shape, 3)
    assert np.mean(sure.argmax(axis=-1)[9:] + 1 == labels[9:]) > 0.97
    assert np.array_equal(texseg.TextureSegmenter.load(fine / "m.texseg").pixel_size_[:3], (0.25, 0.25, "um"))


def test_what_resampling_needs_is_said(fine, tmp_path):
    Image.fromarray(io_scenes.scene()[0]).save(tmp_path / "plain.png")
    apply = ["apply", fine / "m.texseg", tmp_path / "plain.png", "--resample", "-o", tmp_path]
    failed = CliRunner().invoke(main, [str(word) for word in apply])
    assert failed.exit_code == 1 and "--resample needs the size of a pixel of both" in failed.output
    run(*apply, "--pixel-size", "250nm")
    failed = CliRunner().invoke(main, [*map(str, apply), "--pixel-size", "10um", "--memory", "1M"])
    assert "by blocks" not in failed.output and "resampled to 49.2 Mpx it needs about" in failed.output
    planes = [*map(str, apply[:2]), str(tmp_path / "v.npy"), "--volume", "--resample", "-o", str(tmp_path)]
    np.save(tmp_path / "v.npy", np.zeros((4, 9, 9), np.uint8))
    assert "--resample is for images, not for volumes" in CliRunner().invoke(main, planes).output
    coarse = ["segment", str(tmp_path / "plain.png"), "-k", "2", "-o", str(tmp_path), "--min-size", "50um2"]
    failed = CliRunner().invoke(main, coarse)
    assert "--min-size in um needs the size of a pixel in such a unit" in failed.output


def test_lengths_and_areas_in_units_are_those_in_pixels(fine, tmp_path):
    for place, options in (
        ("units", ["--wavelengths", "1um,1.5um", "--min-size", "20um²"]),
        ("pixels", ["--wavelengths", "4,6", "--min-size", 320]),
    ):
        run("segment", fine / "fine.tif", "-k", 3, *options, "-o", tmp_path / place)
    one, other = (texseg.read_labels(tmp_path / place / "fine_labels.tif") for place in ("units", "pixels"))
    assert np.array_equal(one, other)
    for wrong in ("50um", "um2", "5um2,6um2"):
        words = ["segment", str(fine / "fine.tif"), "--min-size", wrong]
        assert "nor an area such as 50um2" in " ".join(CliRunner().invoke(main, words).output.split())
    words = ["segment", str(fine / "fine.tif"), "--wavelengths", "1um,2nm"]
    assert "or lengths such as 1um,2um" in " ".join(CliRunner().invoke(main, words).output.split())
    with pytest.warns(UserWarning, match="pixels of different sizes; the model keeps none"):
        from texseg.cli.process import fit_model

        grey = io_scenes.scene()[0]
        both = [io_scenes.image_of(grey, PixelSize(side, side, "um")) for side in (0.5, 1.0)]
        assert fit_model(both, {"n_segments": 2, "preset": "plain"}).pixel_size_ is None


def test_pixels_without_data_change_no_interval_of_areas():
    planes = np.random.default_rng(0).dirichlet(np.ones(3), (80, 120)).transpose(2, 0, 1)
    padded = np.pad(planes, ((0, 0), (0, 40), (0, 80)))
    np.testing.assert_allclose(area_intervals(padded), area_intervals(planes), rtol=1e-9)
