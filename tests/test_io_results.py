"""Label images carry size, names and colours into the programs that open them."""

import json

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from PIL import Image

import texseg
from texseg.cli import main
from texseg.io.geo import Affine, georeference_of
from texseg.io.read import read_image
from texseg.regions import hex_colours

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
    assert image.pixel_size == pytest.approx((0.5, 0.25, "um"))
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
        assert texseg.read_image(tmp_path / "a.ome_labels.tif").pixel_size == (0.5, 0.25, "um")


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
    assert image.pixel_size == (0.5, 0.25, "um")
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
    formats = ["tif"] + ["gpkg"] * (texseg.io.polygons.find_spec("pyogrio") is not None)
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
    if outlines.exists():
        assert json.loads(outlines.read_text())["features"][0]["properties"]["unit"] == "px"
