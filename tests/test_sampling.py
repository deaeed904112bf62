"""Crops of a large scene show all that a cheap look at the whole finds, and places are those of the scene."""

import json
import re
import warnings

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from tests.test_cli_large import run
from texseg.cli.process import fit_model
from texseg.method import division
from texseg.method.blocks import ArrayWindows
from texseg.method.division import Divider
from texseg.method.sampling import SceneSample, read_crops, sample_windows
from texseg.segmenter import Segmenter, segment

PATCH = np.s_[640:1100, 1700:2160]  # 4 % of the scene, in none of the crops of an even sample


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(0)
    image = ndimage.gaussian_filter(rng.normal(size=(2048, 2560)).astype(np.float32), (0.5, 2))
    image[PATCH] = ndimage.gaussian_filter(image[PATCH], (2, 0.5))
    image[PATCH] *= image[:300].std() / image[PATCH].std()
    return np.clip(128 + 40 * image / image.std(), 0, 255).astype(np.uint8)


def share_of_patch(window):
    inside = [max(0, min(a.stop, b.stop) - max(a.start, b.start)) for a, b in zip(window, PATCH, strict=True)]
    return inside[0] * inside[1] / 460**2


def test_what_is_unlike_an_even_sample_is_in_the_crops(planted):
    even = sample_windows(planted.shape, 0, 6, 256)
    assert max(map(share_of_patch, even)) < 0.1
    sample, crops = read_crops(ArrayWindows(planted), 0, 6, 256)
    assert sample.by_content >= 1 and len(sample.windows) == len(crops) == 6
    assert max(map(share_of_patch, sample.windows)) > 0.25
    assert sample.unlike < 0.001 and sample.place is None
    assert "of them where the scene is unlike an even sample of it" in str(sample)
    assert read_crops(ArrayWindows(planted), 0, 6, 256)[0].windows == sample.windows


def test_gains_types_and_odd_values_change_no_crop(planted):
    even = read_crops(ArrayWindows(planted), 0, 6, 256)[0].windows
    assert read_crops(ArrayWindows(planted * 2.0**-40), 0, 6, 256)[0].windows == even
    colour = np.stack([planted] * 3, axis=-1).astype(np.uint16)
    assert read_crops(ArrayWindows(colour, -1), 0, 6, 256)[0].windows == even
    odd = planted.astype(np.float64)
    odd[5, :9], odd[200, 7], odd[1900:, :300] = 1e300, np.inf, 3e38
    assert len(read_crops(ArrayWindows(odd), 0, 6, 256)[1]) == 6


def test_what_no_crop_shows_is_said_with_its_place(planted):
    """A single crop cannot show both textures."""
    sample, _ = read_crops(ArrayWindows(planted), 0, 1, 256)
    assert sample.place is not None and share_of_patch(sample.place) > 0.5
    assert "of the scene is like none of them, most of it at rows " in str(sample)
    assert json.loads(json.dumps(sample.record()))["place"].startswith("rows ")


def test_rounding_makes_no_part_of_a_flat_scene_unlike_the_rest():
    sample, _ = read_crops(ArrayWindows(np.full((800, 900), 77, np.uint8)), 0, 4, 256)
    assert (sample.by_content, sample.unlike, sample.place) == (0, 0, None)


def test_crops_hold_data(planted):
    """Masked parts are looked at as little as parts without finite values."""
    values = planted.astype(np.float32)
    values[:, :2200] = np.nan
    mask = np.zeros(planted.shape, bool)
    mask[1000:] = True
    sample, crops = read_crops(ArrayWindows(values, mask=mask), 0, 6, 256)
    assert len(crops) == 6
    for pixels, valid in crops:
        assert (np.isfinite(pixels) & valid).any()
    with pytest.raises(ValueError, match="no valid pixels: all are masked"):
        read_crops(ArrayWindows(values, mask=~mask & np.isnan(values)), 0, 6, 256)


@pytest.mark.parametrize("n_crops", [1, 2])
def test_notes_on_crops_give_the_place_in_the_scene(n_crops, monkeypatch):
    """Of the only crop, too."""

    def with_novelties(search, profiles, *_):
        marked = [np.zeros(grid.shape, bool) for grid in search.grids]
        marked[-1][2:4, 5:9] = True
        return profiles, [], [np.concatenate([mask.ravel() for mask in marked])]

    monkeypatch.setattr(division.Search, "with_novelties", with_novelties)
    crop = np.where(np.arange(160) < 80, *np.sin(np.indices((160, 160)) * [[[2]], [[0.7]]]))
    sample = SceneSample([np.s_[0:160, 0:160], np.s_[1000:1160, 3000:3160]][-n_crops:])
    with pytest.warns(UserWarning, match="may be one more segment, most of it at rows") as caught:
        Segmenter(2, cue="texture")._fit([crop, crop] if n_crops == 2 else crop, None, sample=sample)
    (text,) = (str(each.message) for each in caught if "one more segment" in str(each.message))
    top, bottom, left, right = map(
        int, re.search(r"rows (\d+) to (\d+), columns (\d+) to (\d+): ", text).groups()
    )
    cell = (bottom + 1 - top) // 2
    assert (top, left, right) == (1000 + 2 * cell, 3000 + 5 * cell, 3000 + 9 * cell - 1)


def test_lazy_arrays_are_looked_at_as_others(planted):
    da = pytest.importorskip("dask.array")
    lazy, _ = read_crops(ArrayWindows(da.from_array(planted, chunks=700)), 0, 6, 256)
    assert lazy.windows == read_crops(ArrayWindows(planted), 0, 6, 256)[0].windows


def test_the_record_of_a_large_image_tells_the_crops(planted, tmp_path):
    tifffile.imwrite(
        tmp_path / "scene.tif", planted[512:1100, 1600:2200], tile=(256, 256), compression="zlib"
    )
    result = run("segment", tmp_path / "scene.tif", "-k", 2, "--memory", "45M", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "textures learned from one crop of 512 pixels" in result.stderr
    record = json.loads((tmp_path / "out" / "scene_run.json").read_text())
    assert set(record["result"]["sample"]) == {
        "windows",
        "by_content",
        "looked_at",
        "unlike",
        "place",
        "again",
    }
    assert record["result"]["sample"]["windows"] and 0 < record["result"]["sample"]["looked_at"] <= 1


def test_what_fits_its_segment_worst_is_found_where_it_lies_in_one_place(planted):
    """Labels as of a model that does not distinguish the patch; scattered windows are no part."""
    sample, crops = read_crops(ArrayWindows(planted), 0, 6, 384)
    pixels = [crop for crop, _ in crops]
    model = Segmenter(1, learned_borders=False, flat_ground=False).fit(pixels)
    search = model._division.search
    (found,) = search.novelties(model.textures_.profiles, sample.windows)
    divider = Divider(search.settings, search.rng, None, sample.windows)
    window, index = divider._place(search, found)
    assert share_of_patch(window) > 0.4
    assert share_of_patch(sample.windows[index]) > 0.4
    rng = np.random.default_rng(0)
    even = [ndimage.gaussian_filter(rng.normal(size=(384, 384)), (0.5, 2)) for _ in crops]
    model = Segmenter(1, learned_borders=False, flat_ground=False).fit(even)
    assert model._division.search.novelties(model.textures_.profiles, sample.windows) == []


def test_places_that_were_unexplained_are_in_the_crops(planted):
    sample, crops = read_crops(ArrayWindows(planted), 0, 8, 256, [PATCH, PATCH])
    assert sample.again == sample.record()["again"] == 1 and len(crops) == 8
    assert share_of_patch(sample.windows[-1]) > 0.3


@pytest.mark.parametrize("grow", [True, False])
def test_a_number_that_is_chosen_grows_by_what_is_rare(planted, monkeypatch, grow):
    """Or else it is said where that lies."""
    image = planted.copy()
    image[:, :1200] = np.random.default_rng(1).integers(0, 255, (2048, 1200))
    sample, crops = read_crops(ArrayWindows(image), 0, 5, 384)
    choose = division.choose_number
    monkeypatch.setattr(division, "choose_number", lambda *given: choose(*given)._replace(chosen=2))
    model = Segmenter(grow=grow, learned_borders=False, flat_ground=False)
    with pytest.warns(UserWarning) as caught:
        model._fit([pixels for pixels, _ in crops], None, sample=sample)
    said = " ".join(str(each.message) for each in caught)
    assert model.n_segments_ == model.selection_.chosen == 2 + grow
    assert ("the number of segments grew from 2 to 3" in said) == grow
    places = re.findall(r"rows (\d+) to (\d+), columns (\d+) to (\d+)", said)
    windows = [np.s_[int(a) : int(b), int(c) : int(d)] for a, b, c, d in places]
    assert any(share_of_patch(window) > 0.4 for window in windows)
    assert ("may be one more segment" in said) != grow


@pytest.fixture
def looks(monkeypatch):
    """Places that crops had to show, where the look at a scene of 688 x 740 pixels sees only its edges."""
    looks = []

    def blind(scene, seed, n_crops, side=None, places=()):
        looks.append(places)
        if places:
            return read_crops(scene, seed, n_crops, 160, places)
        windows = [np.s_[y : y + 100, x : x + 160] for y in (0, 588) for x in (0, 200, 400)]
        return SceneSample(windows), [scene.read(window) for window in windows]

    for module in ("method.sampling", "method.blocks"):
        monkeypatch.setattr(f"texseg.{module}.crop_count", lambda *_: 6)
        monkeypatch.setattr(f"texseg.{module}.read_crops", blind)
    return looks


def is_own(labels):
    """Whether most of the patch has a label of its own, in the part of the scene of these fixtures."""
    inside, outside = (
        np.bincount(part.ravel(), minlength=9) for part in (labels[160:560, 230:640], labels[:100])
    )
    return inside.argmax() != outside.argmax()


def shown(window):
    """Share of the patch in a window of the part of the scene."""
    return share_of_patch(
        [slice(p.start + at, p.stop + at) for p, at in zip(window, (512, 1500), strict=True)]
    )


@pytest.mark.parametrize("grow", ["--grow", "--no-grow"])
def test_what_no_texture_explains_is_learned_and_labelled_again(planted, tmp_path, monkeypatch, looks, grow):
    """The look at the scene has missed it; or else it is said where it lies."""

    def fit(*arguments, **options):
        warnings.warn(f"of fit {len(looks)}", stacklevel=2)
        return fit_model(*arguments, **options)

    monkeypatch.setattr("texseg.cli.process.fit_model", fit)
    tifffile.imwrite(tmp_path / "scene.tif", planted[512:1200, 1500:2240], tile=(256, 256))
    done = run(
        "segment", tmp_path / "scene.tif", "--k-min", 1, grow, "--memory", "45M", "-o", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output
    assert re.findall(r"of fit \d", done.stderr) == [f"of fit {len(looks)}"]  # notes of the first are void
    labels = tifffile.imread(tmp_path / "out" / "scene_labels.tif")
    assert shown(looks[-1][0]) > 0.2 if grow == "--grow" else len(looks) == 1
    again = re.search("no texture explained rows .*: texseg learned from there as well, and", done.stderr)
    assert (again is not None) == (grow == "--grow")
    assert ("no texture explains rows" in done.stderr) == (grow != "--grow")
    assert is_own(labels) == (grow == "--grow")


@pytest.mark.parametrize("grow", [True, False])
def test_arrays_are_labelled_again_as_files_are(planted, monkeypatch, looks, grow):
    monkeypatch.setattr("texseg.method.blocks.free_memory", lambda: 10**6)
    monkeypatch.setattr("texseg.method.blocks.SIDE", 512)
    with pytest.warns(UserWarning) as caught:
        labels = segment(planted[512:1200, 1500:2240], k_min=1, grow=grow)
    said = " ".join(str(each.message) for each in caught)
    again = re.search("no texture explained rows .*: texseg learned from there as well, and labelled", said)
    assert (again is not None) == grow
    assert ("no texture explains rows" in said) != grow
    assert is_own(labels) == grow and len(looks) == 1 + grow and (not grow or shown(looks[-1][0]) > 0.2)


def test_info_lists_the_crops_of_a_large_image(planted, tmp_path):
    tifffile.imwrite(tmp_path / "scene.tif", planted, tile=(256, 256))
    done = run("info", tmp_path / "scene.tif", "--memory", "200M", "--crops", "--json")
    found = json.loads(done.stdout)
    assert (
        found["crops"].startswith(f"{len(found['windows'])} crops of 512 pixels")
        and found["look_seconds"] >= 0
    )
    windows = [np.s_[top : bottom + 1, left : right + 1] for top, bottom, left, right in found["windows"]]
    assert max(map(share_of_patch, windows)) > 0.25
    assert "crops" not in json.loads(run("info", tmp_path / "scene.tif", "--crops", "--json").stdout)
