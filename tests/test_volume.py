"""Volumes and stacks of planes: textures in space or within planes, files, tables, and the command."""

import copy
import csv
import json
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from PIL import Image
from report_scene import content_of, picture_bytes

import texseg
from texseg import TextureSegmenter
from texseg.channels.gabor import GaborBank, directions_in_space
from texseg.cli import main
from texseg.fitting.assignment import PottsField
from texseg.io.files import ImageTooLargeError
from texseg.io.regions import PixelSize
from texseg.method.blocks import Request, label_array, plan_blocks
from texseg.metrics import pixel_accuracy
from texseg.parameters import PARAMETERS, checked
from texseg.synth import solid, volume

SIZE = 40


def right(labels, truth):
    return pixel_accuracy(labels.reshape(len(labels), -1), truth.reshape(len(truth), -1))


@pytest.fixture(scope="module")
def mosaic():
    return volume([solid("fibres", SIZE, 6, (1, 0, 0)), solid("foam", SIZE, 10)])


@pytest.fixture(scope="module")
def model(mosaic):
    return TextureSegmenter(2, spatial_dims=3).fit(mosaic.image)


def test_textures_in_space_are_found_and_known_again(mosaic, model, tmp_path):
    """Labels, confidence, tree, model file and another volume have three axes."""
    assert right(model.labels_, mosaic.truth) > 0.93
    assert model.confidence_.shape == mosaic.image.shape
    assert model.hierarchy_.labels(1).max() == 1
    assert repr(model).endswith(f" in {' x '.join(map(str, mosaic.image.shape[::-1]))} pixels")
    model.save(tmp_path / "rock.texseg")
    again = TextureSegmenter.load(tmp_path / "rock.texseg")
    assert (again.predict(mosaic.image) == model.labels_).all()
    assert again.predict_proba(mosaic.image[:24]).shape == (24, SIZE, SIZE, 2)
    assert right(again.predict(mosaic.image, unknown=True), mosaic.truth) > 0.9


def test_a_turned_volume_has_the_turned_labels(mosaic, model):
    """No axis is special in space."""
    image, truth = (np.rot90(each, 1, (0, 2)).copy() for each in mosaic)
    labels = TextureSegmenter(2, spatial_dims=3).fit(image).labels_
    assert right(labels, truth) == pytest.approx(right(model.labels_, mosaic.truth), abs=0.01)


def test_strokes_masks_and_bands_have_the_axes_of_the_volume(mosaic):
    seeds, mask = np.zeros(mosaic.image.shape, int), np.ones(mosaic.image.shape, bool)
    for label in (1, 2):
        z, y, x = np.argwhere(mosaic.truth == label).mean(axis=0).astype(int)
        seeds[z, y - 1 : y + 2, x - 6 : x + 6] = 3 - label
    mask[:6] = False
    bands = np.stack([mosaic.image, mosaic.image], axis=-1)
    model = TextureSegmenter(spatial_dims=3, channel_axis=-1).fit(bands, mask=mask, seeds=seeds)
    assert not model.labels_[:6].any()
    assert np.mean(model.labels_[6:] == 3 - mosaic.truth[6:]) > 0.85


def test_strokes_correct_a_volume_and_segments_can_be_merged(mosaic, model):
    z, y, x = np.argwhere(mosaic.truth == 1).mean(axis=0).astype(int)
    seeds = np.zeros(mosaic.image.shape, int)
    seeds[z, y, x - 3 : x + 3] = model.labels_[z, y, x]
    corrected = TextureSegmenter(2, spatial_dims=3).fit(mosaic.image).refit(seeds)
    assert right(corrected.labels_, mosaic.truth) > 0.9
    finer = copy.copy(model).split(1)
    assert finer.n_segments_ == 3
    assert finer.merge([(1, 3)]).confidence_.shape == mosaic.image.shape


def test_a_report_of_a_volume_has_its_planes(mosaic, model, tmp_path, monkeypatch):
    """They stand below each other; places lie in their segment; a large one is thinned."""
    model.report(tmp_path / "r.html", mosaic.image, pixel_size=(1.0, 1.0, "um", 2.0))
    content = content_of(tmp_path / "r.html")
    assert content["planes"] == list(range(SIZE)) and content["shown"] == [SIZE, SIZE]
    assert content["steps"] == [2, 1]
    (own,) = (level for level in content["levels"] if level["n"] == 2)
    shown = np.asarray(Image.open(BytesIO(picture_bytes(own["labels"])[1])))
    assert (shown.reshape(model.labels_.shape) == model.labels_).all()
    assert [row["pixels"] for row in own["segments"]] == np.bincount(model.labels_.ravel())[1:].tolist()
    for row in own["segments"]:
        for y, x, z in (*row["samples"], *(part[5:] for part in row["parts"])):
            assert model.labels_[z, y, x] == row["label"]
    monkeypatch.setattr("texseg.report.pictures._MOST_VOXELS", 20 * 20 * 10)
    monkeypatch.setattr("texseg.report.pictures._MOST_PLANES", 10)
    model.report(tmp_path / "r.html", mosaic.image)
    content = content_of(tmp_path / "r.html")
    assert content["shown"] == [20, 20] and content["planes"] == list(range(2, SIZE, 4))


def test_a_fitted_volume_is_shown_in_a_notebook(mosaic, model, stack):
    for found in (model, TextureSegmenter(2, planes="z").fit(stack[0])):
        page = found._repr_html_()
        assert "<img" in page and "<table>" in page
        sides = " x ".join(map(str, (*found.labels_.shape[:0:-1], len(found.labels_))))
        assert f"{sides} pixels" in repr(found) and f"{sides} pixels" in repr(found.hierarchy_)


def test_a_volume_from_a_file_tells_its_sides_and_gets_coordinates(mosaic, tmp_path):
    pytest.importorskip("xarray")
    texseg.write_labels(tmp_path / "v.tif", mosaic.truth[:9], pixel_size=PixelSize(2.0, 3.0, "um", 5.0))
    image = texseg.read_volume(tmp_path / "v.tif")
    assert repr(image) == f"Image(TIFF, {SIZE} x {SIZE} x 9 voxels, grey, uint8, voxels of 3 x 2 x 5 um)"
    assert "<img" in image._repr_html_()
    labels = image.to_xarray(mosaic.truth[:9])
    assert labels.dims == ("z", "y", "x") and [float(labels[axis][1]) for axis in "zyx"] == [7.5, 3, 4.5]
    with pytest.raises(ValueError, match="values must have the planes, height and width of the image"):
        image.to_xarray(mosaic.truth[0])


@pytest.mark.parametrize("scales", [(6,), (5, 11)])
def test_the_number_is_chosen_in_space_as_in_the_plane(scales):
    """What was learned from images about one texture or two holds for cells of voxels."""
    image, _ = volume([solid("field", 56, scale, random_state=1) for scale in scales])
    assert TextureSegmenter(spatial_dims=3, k_min=1).fit(image).n_segments_ == len(scales)


def test_coarser_planes_are_measured_in_the_units_of_the_finest_axis():
    """Of every second plane, with the spacing said, nearly the same labels are found."""
    image, truth = volume([solid("field", SIZE, 5), solid("field", SIZE, 11)])
    labels = TextureSegmenter(2, spatial_dims=3, spacing=(2, 1, 1)).fit(image[::2]).labels_
    assert right(labels, truth[::2]) > 0.95


@pytest.mark.parametrize("n", [3, 4, 6, 7, 9, 10, 13])
def test_directions_are_those_of_a_turned_cube_and_no_two_are_opposite(n):
    found = np.array(directions_in_space(n))
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    assert len(found) == n
    turned = found[:, [1, 0, 2]] * [1, -1, 1]
    assert np.allclose(np.sort(np.abs(turned @ found.T).max(axis=1)), 1)
    assert (np.abs(found @ found.T) - np.eye(n)).max() < 0.99


def test_a_filter_in_space_has_the_amplitude_of_its_own_grating():
    """Also of coarse filters, which are computed on a coarser grid."""
    bank = GaborBank(n_orientations=9, spacing=(1.0, 1.0, 1.0))
    places = np.indices((48, 48, 48))
    for own, within in ((bank.filters[0], 0.2), (bank.filters[12], 0.08), (bank.filters[-1], 0.08)):
        phase = 2 * np.pi / own.wavelength * np.tensordot(own.direction, places, 1)
        grating = (3 * np.cos(phase)).astype(np.float32)
        assert bank.modulus(bank.spectrum(grating), own)[20:28, 20:28, 20:28] == pytest.approx(3, abs=within)
        flat = bank.modulus(bank.spectrum(np.full((48, 48, 48), 7, np.float32)), own)
        assert abs(flat).max() < 0.01


def test_directions_that_planes_sample_too_coarsely_are_left_out():
    names = [own.name for own in GaborBank([4.0], 3, spacing=(4.0, 1.0, 1.0)).filters]
    assert names == ["4 px, (0 0 1)", "4 px, (0 1 0)"]


def test_the_prior_in_space_is_a_gaussian_along_all_axes():
    spot = np.zeros((7 * 7 * 7, 2), np.float32)
    spot[171, 0] = 1  # in the middle
    field = PottsField((7, 7, 7), strength=1.0, sigma=0.8).field(spot)[:, 0].reshape(7, 7, 7)
    assert field == pytest.approx(field.transpose(2, 0, 1), abs=1e-6)
    assert field.sum() == pytest.approx(1, abs=0.01)


@pytest.fixture(scope="module")
def stack():
    image, truth = texseg.synth.mosaic(
        [solid("field", (1, 96, 96), 5)[0], solid("field", (1, 96, 96), 11)[0]], 2, 96
    )
    rng = np.random.default_rng(0)
    return np.stack([image + rng.normal(0, 130, image.shape) for _ in range(6)]), np.stack([truth] * 6)


def test_planes_that_are_coupled_change_less_and_are_not_less_right(stack):
    found = {}
    for coupling in (0.0, 0.5):
        labels = TextureSegmenter(2, planes="z", plane_coupling=coupling, cue="texture").fit(stack[0]).labels_
        found[coupling] = right(labels, stack[1]), (labels[1:] != labels[:-1]).mean()
    assert found[0.5][0] >= found[0.0][0]
    assert found[0.5][1] < found[0.0][1] / 5


def test_without_coupling_a_stack_has_the_labels_of_its_planes_as_images(stack):
    """One model for all; only specks are followed through planes."""
    given = {"cue": "texture", "flat_ground": False}
    alone = TextureSegmenter(2, **given).fit(list(stack[0])).labels_
    together = TextureSegmenter(2, planes="t", plane_coupling=0, **given).fit(stack[0]).labels_
    assert np.mean(np.stack(alone) == together) > 0.999


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"spatial_dims": 3, "planes": "z"}, "leave one out"),
        ({"spacing": (1, 1, 1)}, "spacing needs spatial_dims=3"),
        ({"spatial_dims": 3, "spacing": (1, 2)}, "one number each"),
        ({"spatial_dims": 3, "learned_borders": True}, "learned_borders=True needs spatial_dims=2"),
        ({"spatial_dims": 3, "n_orientations": 5}, "n_orientations .* must be one of 3, 4, 6"),
    ],
)
def test_wrong_parameters_of_volumes_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        TextureSegmenter(2, **parameters).fit(np.random.default_rng(0).normal(size=(24, 24, 24)))


def test_a_volume_without_the_parameter_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match="a volume spatial_dims=3, a stack planes='z'"):
        TextureSegmenter(2).fit(np.zeros((4, 20, 20)))


def test_settings_follow_the_axes():
    assert checked({"spatial_dims": 3, "spacing": (5, 2, 2)}).steps == (2.5, 1, 1)
    assert checked({"planes": "z"}).n_axes == 3
    assert PARAMETERS["plane_coupling"].default == 0.5


# ---- tables, figures, files --------------------------------------------------------------------------------


def test_a_volume_of_one_plane_has_a_table():
    (row,) = texseg.volume_table(np.pad(np.ones((1, 20, 20), int), ((0, 0), (10, 10), (10, 10))))
    assert row.volume == 400 and row.surface == pytest.approx(80, rel=0.1)  # its rim alone


def test_a_ball_has_its_volume_and_surface():
    z, y, x = np.indices((20, 40, 40)) - np.array([9.5, 19.5, 19.5]).reshape(3, 1, 1, 1)
    ball = ((2 * z) ** 2 + y**2 + x**2 < 15**2).astype(int)
    (row,) = texseg.volume_table(ball, names=["ball"], voxel_size=PixelSize(1.0, 1.0, "um", 2.0))
    assert row.volume == pytest.approx(4 / 3 * np.pi * 15**3, rel=0.01)
    assert row.surface == pytest.approx(4 * np.pi * 15**2, rel=0.03)
    assert (row.centroid_depth, row.centroid_row, row.name) == (20.0, 20.0, "ball")


def test_cuts_and_fractions_are_drawn(mosaic):
    ax = texseg.plot.cuts(mosaic.image, mosaic.truth)
    assert ax.images[0].get_array().shape[:2] == (2 * SIZE + 1, 2 * SIZE + 1)
    shares = [f"{label} ({np.mean(mosaic.truth == label):.1%})".replace("%", " %") for label in (1, 2)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == shares  # of the whole
    lines = texseg.plot.fractions(mosaic.truth).lines
    assert lines[0].get_ydata() + lines[1].get_ydata() == pytest.approx(1)


def test_figures_of_volumes_show_their_cuts(mosaic, model):
    sides = (2 * SIZE + 1, 2 * SIZE + 1)
    assert texseg.plot.confidence(model.confidence_, model.labels_).images[0].get_array().shape == sides
    axes = texseg.plot.comparison(mosaic.image, {"texseg": model.labels_}, truth=mosaic.truth)
    assert [ax.images[0].get_array().shape[:2] for ax in axes.flat] == [sides] * 3
    assert "% right" in axes.flat[2].get_title()
    ax = texseg.plot.hierarchy(model.hierarchy_, mosaic.image, n_segments=3)
    assert len(ax.artists) == 5  # thumbnails: one segment, then two splits


@pytest.fixture
def folder(mosaic, tmp_path):
    for z, plane in enumerate(mosaic.image):
        if z != 5:
            (tmp_path / "scan").mkdir(exist_ok=True)
            Image.fromarray(plane).save(tmp_path / "scan" / f"slice_{z}.png")
    return tmp_path / "scan"


def test_a_folder_of_slices_is_read_in_natural_order_and_gaps_are_said(mosaic, folder):
    image = texseg.read_volume(folder)
    assert (image.pixels == np.delete(mosaic.image, 5, axis=0)).all()
    assert image.notes == ("planes are missing in the folder: 5 (1)",)
    Image.fromarray(mosaic.image[0, :9]).save(folder / "slice_99.png")
    with pytest.raises(ValueError, match="slice_99.png: planes of a volume must have one size"):
        texseg.read_volume(folder)


def test_an_empty_folder_and_a_large_one_are_refused(folder, tmp_path):
    with pytest.raises(OSError, match="no image in this folder"):
        texseg.read_volume(tmp_path)
    with pytest.raises(ImageTooLargeError, match="40 x 40 x 39 pages .* limit"):
        texseg.read_volume(folder, max_pixels=50_000)


def test_the_distance_of_planes_is_read_from_files_and_written(mosaic, tmp_path):
    path, um = tmp_path / "stack.tif", PixelSize(2.0, 2.0, "um", 5.0)
    tifffile.imwrite(
        path, mosaic.image, imagej=True, resolution=(0.5, 0.5), metadata={"spacing": 5, "unit": "um"}
    )
    assert texseg.read_volume(path).pixel_size == um
    units = {f"PhysicalSize{axis}Unit": "µm" for axis in "XYZ"}
    sizes = {"PhysicalSizeX": 2, "PhysicalSizeY": 2, "PhysicalSizeZ": 5}
    tifffile.imwrite(tmp_path / "s.ome.tif", mosaic.image, metadata={"axes": "ZYX", **sizes, **units})
    assert texseg.read_volume(tmp_path / "s.ome.tif").pixel_size == um
    for name in ("labels.tif", "labels.zarr"):
        if name == "labels.zarr":
            pytest.importorskip("zarr")
        texseg.write_labels(tmp_path / name, mosaic.truth, pixel_size=um)
        back = texseg.read_volume(tmp_path / name)
        assert back.pixel_size == um
        assert (back.pixels == mosaic.truth).all()


def test_nrrd_and_metaimage_are_read_where_simpleitk_is(mosaic, tmp_path):
    itk = pytest.importorskip("SimpleITK")
    image = itk.GetImageFromArray(mosaic.image)
    image.SetSpacing((0.5, 0.5, 2.0))
    for name in ("rock.nrrd", "rock.mha"):
        itk.WriteImage(image, str(tmp_path / name))
        found = texseg.read_volume(tmp_path / name)
        assert (found.pixels == mosaic.image).all()
        assert found.pixel_size == PixelSize(0.5, 0.5, "mm", 2.0)
    itk.WriteImage(image, str(tmp_path / "rock.mhd"))  # which names another file
    with pytest.raises(OSError, match="MetaImage files are not read"):
        texseg.read_volume(tmp_path / "rock.mhd")


def command(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_writes_stack_tables_cuts_and_fractions(mosaic, tmp_path):
    (tmp_path / "rock.raw").write_bytes(b"head" + mosaic.image.tobytes())
    words = ("--raw", f"{SIZE}x{SIZE}x{SIZE}:uint8", "--volume", "--pixel-size", "2um,2um,2um", "-k", 2)
    run = command("segment", tmp_path / "rock.raw", *words, "--confidence", "-o", tmp_path / "out")
    assert run.exit_code == 0, run.output
    assert f": {SIZE} x {SIZE} x {SIZE}, 2 segments" in run.stdout
    said = json.loads(command("info", tmp_path / "rock.raw", *words[:3], "--json").stdout)
    assert (said["width"], said["planes"], said["read"]) == (SIZE, SIZE, "whole")
    names = "confidence.tif labels.tif overlay.png planes.png run.json segments.csv volumes.csv".split()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"rock_{name}" for name in names]
    labels = tifffile.imread(tmp_path / "out" / "rock_labels.tif")
    assert right(labels, mosaic.truth) > 0.93
    table = (tmp_path / "out" / "rock_volumes.csv").read_text().splitlines()
    assert float(table[1].split(",")[5]) == 8 * int(table[1].split(",")[3])
    assert (tmp_path / "out" / "rock_segments.csv").read_text().startswith("plane,label")
    # sides of voxels decide what textures are: a page without them is not one of these labels
    page = command("report", tmp_path / "rock.raw", *words[:3], "-k", 2, "-o", tmp_path / "out")
    assert "results of an earlier run were removed: " in page.stderr and "rock_labels.tif" in page.stderr


def test_the_command_learns_from_a_folder_of_planes_and_applies_to_another(folder, tmp_path):
    assert command("fit", folder, "--series", "z", "-k", 2, "-o", tmp_path / "m.texseg").exit_code == 0
    run = command("apply", tmp_path / "m.texseg", folder, "-o", tmp_path / "out")
    assert run.exit_code == 0, run.output
    assert "planes are missing in the folder: 5" in run.output
    assert tifffile.imread(tmp_path / "out" / "scan_labels.tif").shape == (SIZE - 1, SIZE, SIZE)


def test_a_stack_of_labels_is_scored(mosaic, model, tmp_path):
    for name, labels in (("a", model.labels_), ("truth", mosaic.truth)):
        texseg.write_labels(tmp_path / f"{name}.tif", labels)
    run = command("score", tmp_path / "a.tif", tmp_path / "truth.tif", "--json")
    assert json.loads(run.stdout)["co"] == pytest.approx(right(model.labels_, mosaic.truth))


def test_a_model_of_other_voxels_is_said_also_where_only_the_planes_are_further_apart(mosaic, tmp_path):
    for name, depth in (("near", 2), ("far", 5)):
        size = {"resolution": (0.5, 0.5), "metadata": {"spacing": depth, "unit": "um"}}
        tifffile.imwrite(tmp_path / f"{name}.tif", mosaic.image, imagej=True, **size)
    words = ("--volume", "-k", 2, "-o", tmp_path / "m.texseg")
    assert command("fit", tmp_path / "near.tif", *words).exit_code == 0
    for name, is_said in (("near", False), ("far", True)):
        run = command("apply", tmp_path / "m.texseg", tmp_path / f"{name}.tif", "-o", tmp_path / "out")
        said = (
            "is 2 x 2 x 5 um, but the model learned from pixels of 2 x 2 x 2 um: its textures look different"
        )
        assert (said in run.stderr) == is_said and "label       voxels" in run.stdout


def test_a_plane_without_its_volume_is_refused_with_the_remedy(mosaic, model):
    with pytest.raises(ValueError, match=r"must be a volume, planes first, got shape .*; try image\[None\]"):
        model.predict(mosaic.image[0])
    assert model.predict(mosaic.image[0][None]).shape == (1, SIZE, SIZE)
    with pytest.raises(ValueError, match="of volumes see volume_table"):
        texseg.segment_table(model.labels_)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--volume", "--series", "z"), "leave one out"),
        (("--raw", "3x3x3:uint8"), "add --volume or --series"),
        (("--volume", "--raw", "3x3:uint8"), "not planes x rows x columns : type"),
        (("--volume", "--page", "1"), "without --page"),
        (("--volume", "--polygons"), "polygons cannot be written of volumes"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, message, folder):
    run = command("segment", folder, *words)
    assert run.exit_code == 2
    assert message in " ".join(run.output.split())


def test_a_raw_file_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "a.raw").write_bytes(b"1234")
    run = command("segment", tmp_path / "a.raw", "--volume", "--raw", "9x9x9:uint8", "-o", tmp_path)
    assert "725 bytes shorter" in run.output


@pytest.mark.parametrize("arguments", [("wool",), ("fibres",), ("field", (4, 4))])
def test_wrong_arguments_of_solid_are_refused(arguments):
    with pytest.raises(ValueError, match="with a direction fibres and layers"):
        solid(*arguments)


def test_textures_of_several_shapes_are_refused():
    with pytest.raises(ValueError, match="textures of volume must have one shape"):
        volume([np.zeros((4, 4, 4)), np.zeros((4, 4, 5))])


@pytest.mark.parametrize("n_segments", [2, None])
def test_a_plane_without_data_gets_no_label_and_changes_no_other(stack, n_segments):
    """Films and scans begin or end with empty planes."""
    image, empty = stack[0][:3].astype(np.float32), np.full((1, *stack[0].shape[1:]), np.nan, np.float32)
    with pytest.warns(UserWarning, match="non-finite pixels treated as no data"):
        labels = texseg.segment(np.concatenate([empty, image]), n_segments, planes="z")
    assert not labels[0].any() and right(labels[1:], stack[1][:3]) > 0.85


def test_sites_of_a_stack_are_images(stack):
    """Statistics of textures are those of planes; only the prior sees the stack."""
    model = TextureSegmenter(2, planes="z").fit(stack[0][:3])
    cells = model._division.search.cells
    assert len(cells.grids) == 3
    assert cells.stacks == ((3, *cells.grids[0]),)
    assert replace(cells, stacks=()).pieces(cells.sizes)[0].shape == cells.grids[0]


# ---- larger than memory ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bar(mosaic):
    """A volume that is long enough for blocks that do not see both of its ends."""
    return np.concatenate([mosaic.image, mosaic.image[::-1], np.rot90(mosaic.image, 1, (1, 2))])


@pytest.fixture(scope="module")
def of_bar(bar, model):
    return model.predict_with_confidence(bar)


def test_a_volume_has_the_labels_of_the_whole_by_blocks_in_three_axes(bar, model, of_bar):
    blocks = replace(plan_blocks(bar.shape, model.textures_), side=(60, 24, 24))
    assert blocks.grid == (2, 2, 2) and blocks.margin == (48, 48, 48)
    labels = label_array(bar, model.textures_, Request(), blocks=blocks, n_axes=3)
    assert (labels == of_bar[0]).all()


def test_a_lazy_volume_has_the_labels_of_the_whole(bar, model, of_bar, monkeypatch):
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr("texseg.method.blocks.SIDE_IN_SPACE", 60)
    lazy = model.predict(da.from_array(bar, chunks=(40, 48, 48)))
    assert max(lazy.numblocks) > 1 and (np.asarray(lazy) == of_bar[0]).all()


def test_a_stack_has_the_labels_of_the_whole_by_blocks(stack, monkeypatch):
    """The prior reaches through planes, no farther than the margin."""
    long = np.concatenate([stack[0]] * 8)
    model = TextureSegmenter(2, planes="z", cue="texture").fit(stack[0])
    whole = model.predict(long)
    blocks = plan_blocks(long.shape, model.textures_)
    assert blocks.grid == (3, 1, 1)
    monkeypatch.setattr("texseg.method.blocks.free_memory", lambda: 10**6)
    monkeypatch.setattr("texseg.method.blocks.SIDE_IN_SPACE", 24)
    assert (model.predict(long) == whole).all()


def test_an_array_that_does_not_fit_is_learned_from_crops(mosaic, model, monkeypatch):
    monkeypatch.setattr("texseg.method.blocks.free_memory", lambda: 10**6)
    monkeypatch.setattr("texseg.method.blocks.SIDE_IN_SPACE", 24)
    monkeypatch.setattr("texseg.method.sampling.CROP_SIDE_IN_SPACE", 32)
    with pytest.warns(UserWarning, match="textures learned from 8 crops of 32 pixels"):
        labels = TextureSegmenter(2, spatial_dims=3).fit(mosaic.image).labels_
    assert right(labels, mosaic.truth) > 0.9


def written(kind, volume, path):
    """Write a volume in some format; give its path and the words that it needs."""
    if kind == "tif":
        tifffile.imwrite(path / "v.tif", volume, compression="zlib", photometric="minisblack")
    elif kind == "npy":
        np.save(path / "v.npy", volume)
    elif kind == "raw":
        (path / "v.raw").write_bytes(volume.tobytes())
        return path / "v.raw", ["--raw", f"{'x'.join(map(str, volume.shape))}:uint8"]
    elif kind == "zarr":
        pytest.importorskip("zarr")
        texseg.write_labels(path / "v.zarr", volume)
    else:
        (path / "v.folder").mkdir()
        for z, plane in enumerate(volume):
            Image.fromarray(plane).save(path / "v.folder" / f"{z}.png")
    return path / f"v.{kind}", []


@pytest.fixture(scope="module")
def whole(bar, model, tmp_path_factory):
    """A folder with a model, and with what it makes of a volume that fits."""
    folder = tmp_path_factory.mktemp("whole")
    model.save(folder / "m.texseg")
    path, _ = written("npy", bar, folder)
    run = command("apply", folder / "m.texseg", path, "--confidence", "-o", folder)
    assert run.exit_code == 0 and "blocks" not in run.output, run.output
    return folder


@pytest.mark.parametrize("kind", ["tif", "npy", "raw", "zarr", "folder"])
def test_the_command_labels_a_volume_that_does_not_fit(bar, whole, of_bar, kind, tmp_path):
    """Labels, confidence and tables are those of the whole, from whatever the volume lies in."""
    path, words = written(kind, bar, tmp_path)
    formats = "tif,zarr" if kind == "zarr" else "tif"
    words = (*words, "--confidence", "--report-html", "--memory", "9MB", "--format", formats)
    run = command("apply", whole / "m.texseg", path, *words, "-o", tmp_path / "out")
    assert run.exit_code == 0 and "read by blocks of 48 pixels" in run.output, run.output
    assert (tifffile.imread(tmp_path / "out" / "v_labels.tif") == of_bar[0]).all()
    sure = tifffile.imread(tmp_path / "out" / "v_confidence.tif")
    assert np.mean(abs(sure - of_bar[1]) < 0.005) > 0.99
    if kind == "zarr":
        assert (texseg.read_volume(tmp_path / "out" / "v_labels.zarr").pixels == of_bar[0]).all()
    for table in ("v_volumes.csv", "v_segments.csv"):
        one, other = ((folder / table).read_text().splitlines() for folder in (whole, tmp_path / "out"))
        for a, b in zip(csv.reader(one), csv.reader(other), strict=True):
            for x, y in zip(a, b, strict=True):
                assert x == y or float(x) == pytest.approx(float(y), abs=0.001)
    assert " voxels" in (tmp_path / "out" / "v_report.html").read_text()
    one, other = ((folder / "v_overlay.png").read_bytes() for folder in (whole, tmp_path / "out"))
    assert one == other
    assert not list((tmp_path / "out").glob(".*"))


def test_info_says_what_a_volume_by_blocks_takes(bar, tmp_path):
    path, _ = written("npy", bar, tmp_path)
    said = json.loads(command("info", path, "--volume", "--memory", "9MB", "--json").stdout)
    assert (said["read"], said["planes"]) == ("by blocks", len(bar))


def test_strokes_on_planes_are_read_from_a_stack(mosaic, tmp_path):
    strokes = np.zeros(mosaic.image.shape, np.uint8)
    for label in (1, 2):
        z, y, x = np.argwhere(mosaic.truth == label).mean(axis=0).astype(int)
        strokes[z, y - 1 : y + 2, x - 6 : x + 6] = 3 - label
    path, _ = written("npy", mosaic.image, tmp_path)
    tifffile.imwrite(tmp_path / "strokes.tif", strokes)
    words = ("--volume", "--seeds", tmp_path / "strokes.tif", "-o", tmp_path / "out")
    run = command("segment", path, *words)
    assert run.exit_code == 0, run.output
    assert np.mean(tifffile.imread(tmp_path / "out" / "v_labels.tif") == 3 - mosaic.truth) > 0.85
    tifffile.imwrite(tmp_path / "strokes.tif", strokes[:9])
    run = command("segment", path, *words)
    assert "strokes on a volume must be whole numbers of its shape (40, 40, 40)" in run.output
