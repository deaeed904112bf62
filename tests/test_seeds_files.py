"""Strokes from files, on the command line: read as they are meant, recorded, and refused with a sentence."""

import csv
import json
import time

import numpy as np
import pytest
import tifffile
from affine import Affine
from click.testing import CliRunner
from PIL import Image

import texseg
from texseg.cli import main
from texseg.io import seeds as seed_files
from texseg.io.geo import georeference_of
from texseg.io.read import read_labels

SHAPE = (40, 60)


def read_seed_file(*arguments):
    return seed_files.read_seed_file(*arguments).labels


GEO = georeference_of(Affine(2.0, 0.0, 1000.0, 0.0, -2.0, 5000.0), "EPSG:32633")


def collection(*features):
    return {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "properties": properties, "geometry": {"type": kind, "coordinates": places}}
            for properties, kind, places in features
        ],
    }


@pytest.fixture
def drawn(tmp_path):
    def write(*features):
        path = tmp_path / "strokes.geojson"
        path.write_text(json.dumps(collection(*features)))
        return path

    return write


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def files(mosaic, tmp_path_factory):
    """An image, and strokes of two classes on it."""
    folder = tmp_path_factory.mktemp("strokes")
    image, truth = mosaic
    values = np.unique(truth)
    seeds = np.zeros(truth.shape, np.uint8)
    for number, value in ((2, values[0]), (1, values[1])):
        rows, columns = np.nonzero(truth == value)
        middle = len(rows) // 2
        near = (abs(np.indices(truth.shape)[0] - rows[middle]) < 3) & (truth == value)
        seeds[near & (abs(np.indices(truth.shape)[1] - columns[middle]) < 10)] = number
    Image.fromarray(image.astype(np.uint8)).save(folder / "image.png")
    Image.fromarray(seeds).save(folder / "seeds.png")
    return folder / "image.png", folder / "seeds.png", seeds


# ---- GeoJSON -----------------------------------------------------------------------------------------------


def test_polygons_cover_the_pixels_inside_and_spare_holes(drawn):
    outer = [[10, 5], [30, 5], [30, 15], [10, 15], [10, 5]]
    hole = [[12, 7], [14, 7], [14, 9], [12, 9], [12, 7]]
    strokes = read_seed_file(drawn(({"class": 2}, "Polygon", [outer, hole])), SHAPE)
    expected = np.zeros(SHAPE, int)
    expected[5:15, 10:30] = 2
    expected[7:9, 12:14] = 0
    assert np.array_equal(strokes, expected)


def test_pixels_are_inside_of_a_polygon_if_their_centres_are(drawn):
    ring = [[2.3, 4.7], [6.3, 4.7], [6.3, 9.4], [2.3, 9.4], [2.3, 4.7]]
    strokes = read_seed_file(drawn(({"class": 1}, "Polygon", [ring])), SHAPE)
    rows, columns = np.nonzero(strokes)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (5, 8, 2, 5)


def test_outlines_of_many_corners_cost_no_more_than_their_pixels(drawn):
    turns = np.linspace(0, 2 * np.pi, 20_000)
    circle = 700 + 650 * np.column_stack([np.cos(turns), np.sin(turns)])
    path = drawn(({"class": 1}, "Polygon", [circle.tolist()]), ({"class": 2}, "Point", [700, 700]))
    start = time.perf_counter()
    strokes = read_seed_file(path, (1400, 1400))
    assert time.perf_counter() - start < 5
    assert np.count_nonzero(strokes) == pytest.approx(np.pi * 650**2, rel=1e-4)
    assert (strokes == 2).sum() == 9


@pytest.mark.parametrize("kind", ["crossings", "layers"])
def test_strokes_without_measure_are_refused(drawn, kind):
    rng = np.random.default_rng(0)
    ring = rng.uniform(0, 2000, (30_000, 2)).tolist()
    rings, shape = ([ring], (2000, 2000)) if kind == "crossings" else ([[[0, 0], [60, 0], [0, 40]]], SHAPE)
    n_polygons = 1 if kind == "crossings" else 1000
    path = drawn(*[({"class": 1}, "Polygon", rings)] * n_polygons)
    reason = "invalid coordinates" if kind == "crossings" else "cover the image more than 200 times"
    with pytest.raises(ValueError, match=reason):
        read_seed_file(path, shape)


def test_more_names_of_classes_than_there_are_labels_are_refused(drawn):
    path = drawn(*[({"class": f"name {n}"}, "Point", [5, 5]) for n in range(256)])
    with pytest.raises(ValueError, match="256 classes are more than 255"):
        read_seed_file(path, SHAPE)


def test_lines_and_points_are_three_pixels_wide(drawn):
    features = (
        ({"class": 1}, "LineString", [[5.5, 20.5], [25.5, 20.5]]),
        ({"label": 3}, "MultiPoint", [[40.5, 10.5], [50.5, 30.5]]),
    )
    strokes = read_seed_file(drawn(*features), SHAPE)
    assert (strokes[19:22, 5:26] == 1).all()
    assert (strokes == 1).sum() <= 3 * 23
    assert {strokes[10, 40], strokes[30, 50]} == {3}
    assert (strokes == 3).sum() <= 18


def test_coordinates_are_those_of_the_image(drawn):
    ring = [[1020, 4990], [1060, 4990], [1060, 4970], [1020, 4970], [1020, 4990]]
    strokes = read_seed_file(drawn(({"class": 1}, "Polygon", [ring])), SHAPE, GEO)
    expected = np.zeros(SHAPE, int)
    expected[5:15, 10:30] = 1
    assert np.array_equal(strokes, expected)


def test_strokes_are_found_on_a_map_that_is_turned(drawn):
    affine = Affine(1.6, 1.2, 1000.0, 0.4, -2.0, 5000.0)
    column, row = 30.5, 12.5
    place = [
        affine.a * column + affine.b * row + affine.c,
        affine.d * column + affine.e * row + affine.f,
    ]
    geo = georeference_of(affine, "EPSG:32633")
    strokes = read_seed_file(drawn(({"class": 1}, "Point", place)), SHAPE, geo)
    assert np.argwhere(strokes).mean(axis=0).tolist() == [12, 30]


def test_strokes_in_pixels_are_found_on_a_map_too(drawn):
    """QuPath writes pixels, whatever the image says about its place."""
    path = drawn(({"class": 1}, "Point", [10.5, 5.5]), ({"class": 2}, "Point", [30.5, 20.5]))
    with pytest.warns(UserWarning, match="coordinates were taken as pixels"):
        strokes = read_seed_file(path, SHAPE, GEO)
    assert strokes[5, 10] == 1 and strokes[20, 30] == 2
    with pytest.raises(ValueError, match="no stroke lies on the image"):
        read_seed_file(drawn(({"class": 1}, "Point", [-100, 5])), SHAPE, GEO)


def test_strokes_in_degrees_are_found_on_a_map(drawn):
    """GeoJSON is in longitude and latitude unless it says otherwise; as pixels it would hit, too."""
    warp = pytest.importorskip("rasterio.warp")
    geo = georeference_of(Affine(2.0, 0.0, 5e5, 0.0, -2.0, 5.3e6), "EPSG:32633")
    path = drawn(({"class": 1}, "Point", [15.0, 30.0]), ({"class": 1}, "Point", [105.0, 0.0]))
    with pytest.warns(UserWarning, match="taken as pixels"):
        strokes = read_seed_file(path, SHAPE, geo)
    assert strokes[30, 15] == 1
    places = np.transpose(warp.transform("EPSG:32633", "OGC:CRS84", [500020, 500080], [5299960, 5299960]))
    with pytest.warns(UserWarning, match="taken as longitude and latitude"):
        strokes = read_seed_file(drawn(({"class": 2}, "LineString", places.tolist())), SHAPE, geo)
    assert (strokes[20, 10:41] == 2).all() and (strokes > 0).sum() <= 3 * 34


def test_strokes_with_rows_counted_upward_are_found(drawn):
    """QGIS shows an image without a georeference below the origin."""
    ring = [[10, -5], [30, -5], [30, -15], [10, -15], [10, -5]]
    strokes = read_seed_file(drawn(({"class": 1}, "Polygon", [ring])), SHAPE)
    expected = np.zeros(SHAPE, int)
    expected[5:15, 10:30] = 1
    assert np.array_equal(strokes, expected)


def test_a_name_without_a_stroke_on_the_image_names_nothing(drawn):
    features = [({"class": name}, "Point", [place, 5.5]) for name, place in (("a", 9), ("b", 900), ("c", 30))]
    with pytest.warns(UserWarning, match="class 3 is c, no stroke of b lies on the image"):
        seeds = seed_files.read_seed_file(drawn(*features), SHAPE)
    assert seeds.names == ("a", "", "c") and set(np.unique(seeds.labels)) == {0, 1, 3}


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (({}, "Point", [5, 5]), "feature 0 needs its class, a number from 1 to 255 or a name"),
        (({"class": 1.5}, "Point", [5, 5]), "got 1.5"),
        (({"class": "0"}, "Point", [5, 5]), "got '0'"),
        (({"class": "\ud800"}, "Point", [5, 5]), "feature 0 needs its class"),
        (({"class": 1}, "Circle", [5, 5]), "must be one of Point"),
        (({"class": 1}, "Point", ["a", "b"]), "invalid coordinates"),
        (({"class": 1}, "LineString", 7), "invalid coordinates"),
        ((["class"], "Point", [5, 5]), r"feature 0 needs its class.*, got None"),
        (({"class": 1}, "Point", [500, 500]), "no stroke lies on the image; coordinates must be in pixels"),
    ],
)
def test_what_is_no_stroke_is_refused_with_a_sentence(drawn, feature, message):
    with pytest.raises(ValueError, match=message):
        read_seed_file(drawn(feature), SHAPE)


def test_classes_with_names_are_numbered_in_the_order_of_the_file(drawn):
    """As QuPath writes its annotations; numbers may be text."""
    tumor = {"objectType": "annotation", "classification": {"name": "Tumor", "color": [200, 0, 0]}}
    path = drawn((tumor, "Point", [5, 5]), ({"class": "Stroma"}, "Point", [50, 30]))
    with pytest.warns(UserWarning, match=r"^strokes\.geojson: class 1 is Tumor, class 2 is Stroma$"):
        found = seed_files.read_seed_file(path, SHAPE)
    assert found.labels[5, 5] == 1 and found.labels[30, 50] == 2
    assert found.names == ("Tumor", "Stroma") and found.colours == {"Tumor": "#c80000"}
    tumor["classification"] = {"name": "Tumor", "colorRGB": -3670016}  # of older versions
    drawn((tumor, "Point", [5, 5]))
    with pytest.warns(UserWarning, match="class 1 is Tumor"):
        assert seed_files.read_seed_file(path, SHAPE).colours == {"Tumor": "#c80000"}
    assert read_seed_file(drawn(({"class": "7"}, "Point", [5, 5])), SHAPE)[5, 5] == 7
    both = drawn((tumor, "Point", [5, 5]), ({"class": 1}, "Point", [50, 30]))
    with pytest.raises(ValueError, match="classes must all be numbers or all be names, got both"):
        read_seed_file(both, SHAPE)


def test_rois_of_imagej(tmp_path, monkeypatch):
    """Their class is their group, or their name without the number that ImageJ adds."""
    roifile = pytest.importorskip("roifile")
    square = np.array([[10, 5], [30, 5], [30, 15], [10, 15]])
    rois = [
        roifile.ImagejRoi.frompoints(square, name="water-1"),
        roifile.ImagejRoi.frompoints(square + [20, 15], name="forest-1"),
        roifile.ImagejRoi.frompoints(square + [0, 20], name="water-2"),
    ]
    rois[0].stroke_color = b"\xff\x00\x00\xc8"
    roifile.roiwrite(tmp_path / "set.zip", rois, mode="w")
    with pytest.warns(UserWarning, match=r"^set\.zip: class 1 is water, class 2 is forest$"):
        found = seed_files.read_seed_file(tmp_path / "set.zip", SHAPE, GEO)
    expected = np.zeros(SHAPE, int)
    expected[5:15, 10:30], expected[20:30, 30:50], expected[25:35, 10:30] = 1, 2, 1
    assert np.array_equal(found.labels, expected)
    assert found.names == ("water", "forest") and found.colours == {"water": "#0000c8"}
    point = roifile.ImagejRoi.frompoints([[5.0, 6.0]], name="0001-0002")
    point.roitype = roifile.ROI_TYPE.POINT
    point.tofile(tmp_path / "one.roi")
    with pytest.raises(ValueError, match="ROI 0001-0002 needs its class: give it a group, or a name such as"):
        read_seed_file(tmp_path / "one.roi", SHAPE)
    point.group = 2
    point.tofile(tmp_path / "one.roi")
    strokes = read_seed_file(tmp_path / "one.roi", SHAPE)
    assert strokes[6, 5] == 2 and (strokes > 0).sum() == 9
    (tmp_path / "one.roi").write_bytes(b"Iout\0")
    with pytest.raises(OSError, match=r"^one\.roi: file is corrupt"):
        read_seed_file(tmp_path / "one.roi", SHAPE)
    monkeypatch.setattr("texseg.io.seeds.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^set\.zip: ROIs of ImageJ need roifile \(pip install roifile\)$"):
        read_seed_file(tmp_path / "set.zip", SHAPE)


def test_other_files_are_refused_with_a_sentence(tmp_path):
    broken = tmp_path / "a.geojson"
    broken.write_text("{")
    with pytest.raises(OSError, match=r"a\.geojson: not GeoJSON"):
        read_seed_file(broken, SHAPE)
    broken.write_text("[" * 100_000)
    with pytest.raises(OSError, match=r"^a\.geojson: not GeoJSON: brackets are nested too deeply$"):
        read_seed_file(broken, SHAPE)
    broken.write_text('{"features": [{"properties": {"class": 1}, "geometry": 5}]}')
    with pytest.raises(ValueError, match=r"a\.geojson: feature 0 must be one of Point.*, got None"):
        read_seed_file(broken, SHAPE)
    broken.write_text("[]")
    with pytest.raises(ValueError, match="must be a GeoJSON FeatureCollection"):
        read_seed_file(broken, SHAPE)
    with pytest.raises(OSError, match=r"none\.geojson: no such file"):
        read_seed_file(tmp_path / "none.geojson", SHAPE)
    Image.fromarray(np.ones(SHAPE, np.uint8)).save(tmp_path / "full.png")
    with pytest.raises(ValueError, match="no stroke: all pixels are 1"):
        read_seed_file(tmp_path / "full.png", SHAPE)
    with pytest.raises(ValueError, match="the strokes are 60 x 40 pixels, the image 50 x 50"):
        read_seed_file(tmp_path / "full.png", (50, 50))


# ---- pictures ----------------------------------------------------------------------------------------------

PAINTED = np.zeros(SHAPE, int)
"""Strokes of three classes."""
PAINTED[5:9, 5:40], PAINTED[20:23, 10:50], PAINTED[30:36, 3:20] = 1, 2, 3

COLOURS = [(0, 0, 255), (0, 200, 0), (255, 0, 0)]
"""In their order, class 1 first."""


def saved(path, table, painted=PAINTED):
    """Save a picture that has, where class c is painted, entry c of a table of values or colours."""
    Image.fromarray(np.array(table, np.uint8)[painted]).save(path)
    return path


def test_label_images_are_taken_as_they_are(tmp_path):
    for numbers in ([0, 1, 2, 3], [0, 2, 3, 9]):
        strokes = read_seed_file(saved(tmp_path / "a.png", numbers), SHAPE)
        assert np.array_equal(strokes, np.array(numbers)[PAINTED])


@pytest.mark.parametrize(
    ("table", "ground"),
    [
        ([0, 85, 170, 255], "0"),
        ([255, 0, 100, 200], "255"),
        ([7, 60, 120, 200], "7"),
        ([(0, 0, 0), *COLOURS], r"\(0, 0, 0\)"),
        ([(255, 255, 255), *COLOURS], r"\(255, 255, 255\)"),
        ([(9, 9, 9, 0), *[(*colour, 255) for colour in COLOURS]], "transparency"),
    ],
)
def test_grey_values_and_colours_are_numbered_in_their_order(tmp_path, table, ground):
    path = saved(tmp_path / "a.png", table)
    with pytest.warns(UserWarning, match=rf"^a\.png: unpainted is {ground}, class 1 is .*, class 3 is [^,]*"):
        assert np.array_equal(read_seed_file(path, SHAPE), PAINTED)


def test_soft_edges_count_as_unpainted(tmp_path):
    """Only their thin seams are lost, whatever values they have."""
    big = np.kron(PAINTED, np.ones((4, 4), int))
    path = tmp_path / "soft.png"
    soft = Image.fromarray(np.array([(0, 0, 0), *COLOURS], np.uint8)[big])
    soft.resize((150, 100), Image.Resampling.BICUBIC).save(path)
    with pytest.warns(UserWarning, match="% of the painted pixels have .* other colours, as at the edges"):
        strokes = read_seed_file(path, (100, 150))
    hard = Image.fromarray(PAINTED.astype(np.uint8)).resize((150, 100), Image.Resampling.NEAREST)
    expected = np.asarray(hard)
    assert set(np.unique(strokes)) == {0, 1, 2, 3}
    assert ((strokes == 0) | (strokes == expected)).mean() > 0.99
    assert (strokes > 0).sum() > 0.6 * (expected > 0).sum()


def test_a_class_of_a_soft_brush_is_kept(tmp_path):
    """Pure blue is common but fills no square; what is nearly pure belongs to it."""
    rows, columns = np.mgrid[:256, :256]
    picture = np.full((256, 256, 3), 255.0)
    for colour, distance in (((255, 0, 0), abs(rows - 60.0)), ((0, 0, 255), abs(rows - columns) / 1.5)):
        strength = np.clip((1.2 if colour[2] else 1.8) - 0.7 * distance, 0, 1)
        strength[:, :40] = 0
        strength[200:] = 0
        if colour[2]:
            strength[:90] = 0
        picture += strength[..., None] * (np.array(colour) - picture)
    Image.fromarray(np.rint(picture).astype(np.uint8)).save(tmp_path / "soft.png")
    with pytest.warns(UserWarning, match=r"unpainted is \(255, .*class 1 is \(0, 0, 255\), class 2"):
        strokes = read_seed_file(tmp_path / "soft.png", (256, 256))
    assert set(np.unique(strokes)) == {0, 1, 2}
    assert (strokes[59:62, 60:] == 2).all() and (strokes[150, [150, 60]] == [1, 0]).all()
    assert (strokes[55:66] == 1).sum() == 0


@pytest.mark.parametrize("ground", [255, 0])
def test_the_pale_rim_of_a_soft_brush_is_no_class(tmp_path, ground):
    """Where the brush fades, its colours change so slowly that they fill squares, as strokes do."""
    rows, columns = np.mgrid[:200, :200]
    picture, steps = np.full((200, 200, 3), float(ground)), [1.0, 0.99, 0.5, 0.02, 0.01]
    for row, colour in ((40, (200, 0, 90)), (140, (0, 90, 220))):
        for strength, first, last in zip(steps, [0, 14, 17, 18, 20], [14, 17, 18, 20, 23], strict=True):
            distance = np.hypot(rows - row, np.clip(abs(columns - 100) - 40, 0, None))
            edge = (distance >= first) & (distance < last)
            shade = strength + (0.3 * (columns % 7) / 7 - 0.15) * (strength == 0.5)
            picture[edge] = (np.array(colour) * np.broadcast_to(shade, edge.shape)[edge, None]) + (
                ground * (1 - np.broadcast_to(shade, edge.shape)[edge, None])
            )
    Image.fromarray(np.rint(picture).astype(np.uint8)).save(tmp_path / "soft.png")
    with pytest.warns(UserWarning, match=r"class 1 is \(0, 90, 220\), class 2 is \(200, 0, 90\)(?!, class)"):
        strokes = read_seed_file(tmp_path / "soft.png", (200, 200))
    assert set(np.unique(strokes)) == {0, 1, 2}
    assert (strokes[25:55, 60:140] == 2).all() and (strokes[125:155, 60:140] == 1).all()


def test_a_brush_of_soft_edges_alone_is_refused(tmp_path):
    """A class of thin pure lines inside broad soft edges would be lost, not just its edges."""
    rows, columns = np.mgrid[:120, :120]
    strength = 1 - np.clip(abs(rows - 60) / 12, 0, 1)
    picture = np.full((120, 120, 3), 255, np.uint8)
    picture[..., 0] = picture[..., 1] = 255 - 255 * strength
    picture[:8, :8] = 255, 0, 0
    Image.fromarray(picture).save(tmp_path / "brush.png")
    with pytest.raises(
        ValueError, match="% of the painted pixels are the soft edges of strokes and would be"
    ):
        read_seed_file(tmp_path / "brush.png", (120, 120))


def test_pictures_without_ground_or_with_too_many_colours_are_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (*SHAPE, 3))
    Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="no unpainted background found; leave it 0"):
        read_seed_file(tmp_path / "a.png", SHAPE)
    noise[10:] = 0
    Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "b.png")
    with pytest.raises(ValueError, match="b.png: 600 different colours are too many for strokes"):
        read_seed_file(tmp_path / "b.png", SHAPE)


def test_jpeg_is_refused_since_it_changes_colours(tmp_path):
    picture = np.full((*SHAPE, 3), 255, np.uint8)
    picture[5:15, 5:15] = (255, 0, 0)
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=90)
    with pytest.raises(ValueError, match="a.jpg: JPEG compression alters the colours of strokes"):
        read_seed_file(tmp_path / "a.jpg", SHAPE)


# ---- the command -------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_library(mosaic, files, tmp_path):
    image, seeds, strokes = files
    run("segment", image, "--seeds", seeds, "-o", tmp_path, "-q")
    labels = read_labels(tmp_path / "image_labels.png")
    assert np.array_equal(labels, texseg.segment(mosaic[0].astype(np.uint8), seeds=strokes))
    assert (labels == strokes)[strokes > 0].all()


def test_grey_values_of_a_paint_program_are_classes(files, tmp_path):
    image, seeds, strokes = files
    grey = tmp_path / "grey.png"
    Image.fromarray((127 * strokes).astype(np.uint8)).save(grey)
    run("segment", image, "--seeds", seeds, "-o", tmp_path / "numbers", "-q")
    result = run("segment", image, "--seeds", grey, "-o", tmp_path / "values", "-q")
    assert "grey.png: unpainted is 0, class 1 is 127, class 2 is 254" in result.stderr
    labels = [read_labels(tmp_path / name / "image_labels.png") for name in ("numbers", "values")]
    assert np.array_equal(*labels)


def test_results_of_other_strokes_are_no_results(files, tmp_path):
    image, seeds, strokes = files
    own = tmp_path / "own.tif"
    tifffile.imwrite(own, strokes)
    again = ("segment", image, "--seeds", own, "-o", tmp_path / "out", "--skip-existing")
    run(*again, "-q")
    record = json.loads((tmp_path / "out" / "image_run.json").read_text())
    assert len(record["made_from"]["seeds"]) == 64
    assert "skipped" in run(*again).output
    tifffile.imwrite(own, np.where(strokes > 0, 3 - strokes, 0).astype(np.uint8))
    assert "skipped" not in run(*again).output


def test_a_model_of_strokes_is_applied_to_other_images(files, tmp_path):
    image, seeds, strokes = files
    run("fit", image, "--seeds", seeds, "-o", tmp_path / "m.texseg", "-q")
    run("apply", tmp_path / "m.texseg", image, "-o", tmp_path, "-q")
    labels = read_labels(tmp_path / "image_labels.png")
    assert (labels == strokes)[strokes > 0].mean() > 0.9


def test_what_strokes_are_not_for_is_said(files, tmp_path):
    image, seeds, _ = files
    both = ("--seeds", seeds, "-o", tmp_path / "m.texseg")
    assert "work on one image at a time, got 2" in run("fit", image, seeds, *both, exit_code=1).output
    assert "--seeds are for a single page" in run("fit", image, "--page", "all", *both, exit_code=2).output
    photo = ("segment", image, "--seeds", image, "-o", tmp_path)
    assert "as in a photograph" in run(*photo, exit_code=1).output
    assert "does not exist" in run("segment", image, "--seeds", tmp_path / "none.png", exit_code=2).output


def test_tables_of_applied_models_know_the_confidence(files, tmp_path):
    image, seeds, _ = files
    run("fit", image, "--seeds", seeds, "-o", tmp_path / "m.texseg", "-q")
    run("apply", tmp_path / "m.texseg", image, "-o", tmp_path, "-q")
    model = texseg.TextureSegmenter.load(tmp_path / "m.texseg")
    labels, confidence = model.predict_with_confidence(np.asarray(Image.open(image)))
    with (tmp_path / "image_segments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        mean = confidence[labels == int(row["label"])].mean()
        assert float(row["mean_confidence"]) == pytest.approx(mean, abs=1e-5)


def test_probabilities_are_pages_in_the_order_of_the_labels(files, tmp_path):
    image, seeds, _ = files
    run("segment", image, "--seeds", seeds, "-o", tmp_path, "--probabilities", "-q")
    pages = tifffile.imread(tmp_path / "image_probabilities.tif")
    labels = read_labels(tmp_path / "image_labels.png")
    assert pages.dtype == np.float32
    assert pages.shape == (2, *labels.shape)
    assert np.allclose(pages.sum(axis=0), 1, atol=1e-4)
    assert (pages.argmax(axis=0) + 1 == labels).mean() > 0.98
    run("segment", image, "-k", 2, "-o", tmp_path / "all", "--all", "-q")
    assert not list((tmp_path / "all").glob("*_probabilities*"))


def test_painted_colours_are_those_of_the_segments(files, tmp_path):
    """After segments are merged, too."""
    image, _, seeds = files
    paint = np.array([(255, 255, 255), (255, 0, 0), (0, 0, 255)], np.uint8)
    Image.fromarray(paint[seeds]).save(tmp_path / "paint.png")
    tifffile.imwrite(tmp_path / "deep.tif", paint[seeds].astype(np.uint16) * 257, photometric="rgb")
    with pytest.warns(UserWarning, match="unpainted is"):
        assert seed_files.read_seed_file(tmp_path / "deep.tif", seeds.shape).colours == {}
    run("segment", image, "--seeds", tmp_path / "paint.png", "-o", tmp_path, "-q", "--merge", "1=sea")
    with open(tmp_path / "image_segments.csv") as file:
        rows = [(row["label"], row["name"], row["colour"]) for row in csv.DictReader(file)]
    assert rows[1] == ("2", "class 2", "#ff0000")


def test_names_order_and_colours_of_the_user_stay_in_all_results(files, tmp_path):
    image, _, seeds = files
    image_size = seeds.shape
    features = []
    for number, name, colour in ((2, "Tumor", [200, 0, 0]), (1, "Stroma", [0, 200, 0])):
        rows, columns = np.nonzero(seeds == number)
        line = [[columns.min() + 1.5, rows.mean() + 0.5], [columns.max() - 0.5, rows.mean() + 0.5]]
        about = {"objectType": "annotation", "classification": {"name": name, "color": colour}}
        features.append((about, "LineString", np.clip(line, 0, max(image_size)).tolist()))
    (tmp_path / "s.geojson").write_text(json.dumps(collection(*features)))
    strokes = ["--seeds", tmp_path / "s.geojson", "--format", "tif"]
    run("segment", image, *strokes, "--polygons", "--report-html", "-o", tmp_path)
    page = (tmp_path / "image_report.html").read_text()
    assert '"palette": [[0, 0, 0], [200, 0, 0], [0, 200, 0]' in page and '"name": "Tumor"' in page
    with open(tmp_path / "image_segments.csv") as file:
        rows = [(row["label"], row["name"], row["colour"]) for row in csv.DictReader(file)]
    assert rows == [("1", "Tumor", "#c80000"), ("2", "Stroma", "#00c800")]
    assert (
        "<Category>no data</Category><Category>Tumor" in (tmp_path / "image_labels.tif.aux.xml").read_text()
    )
    outlines = json.loads((tmp_path / "image_polygons.geojson").read_text())["features"]
    assert {(f["properties"]["name"], f["properties"]["fill"]) for f in outlines} == {r[1:] for r in rows}
    tints = np.asarray(Image.open(tmp_path / "image_overlay.png")).astype(int)
    first = read_labels(tmp_path / "image_labels.tif") == 1
    assert np.median(tints[first], axis=0)[0] > np.median(tints[first], axis=0)[1] + 30  # red
