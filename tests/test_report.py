"""What stands in a report, and that everything is inside of it."""

import copy
import re
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from report_scene import SHAPE, content_of, picture_bytes, scene, truth_level

import texseg
from texseg import TextureSegmenter
from texseg.method.number import Selection
from texseg.report import write_index, write_report
from texseg.report.pictures import picture_uri


@pytest.fixture(scope="module")
def fitted():
    return scene()


@pytest.fixture(scope="module")
def report(fitted, tmp_path_factory):
    image, model = fitted
    path = tmp_path_factory.mktemp("report") / "scene.html"
    return write_report(model, image, path, names=["rows <b>", "rest"])


def pixels(uri):
    return np.asarray(Image.open(BytesIO(picture_bytes(uri)[1])))


DOORS = {
    "report": lambda image, model, path: model.report(path, image),
    "index": lambda image, model, path: write_index(path, []),
    "model": lambda image, model, path: model.save(path),
    "labels": lambda image, model, path: texseg.write_labels(path, model.labels_),
    "polygons": lambda image, model, path: texseg.write_polygons(path, model.labels_),
}
NAMES = {
    "report": "a.html",
    "index": "a.htm",
    "model": "a.texseg",
    "labels": "a.png",
    "polygons": "a.geojson",
}


@pytest.mark.parametrize("door", DOORS)
def test_a_file_of_another_kind_is_kept_and_an_earlier_one_replaced(fitted, tmp_path, door):
    write, path = DOORS[door], tmp_path / "new" / "folder" / NAMES[door]
    write(*fitted, path)
    first = path.read_bytes()
    write(*fitted, path)
    assert path.read_bytes() == first
    path.write_bytes(b"")
    write(*fitted, path)
    assert path.read_bytes() == first
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path, format="PNG")
    photograph = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"exists and is not a .*; it was not replaced, choose another"):
        write(*fitted, path)
    assert path.read_bytes() == photograph and [path] == list(path.parent.iterdir())
    others = sorted(set(DOORS) - {door, "labels", "index" if door == "report" else "report"})
    for other in others if door != "labels" else ():
        DOORS[other](*fitted, tmp_path / NAMES[other])
        (tmp_path / NAMES[other]).replace(path)
        with pytest.raises(FileExistsError, match="exists and is not a"):
            write(*fitted, path)


def test_an_array_given_as_the_name_is_said_in_one_line(fitted):
    image, model = fitted
    with pytest.raises(TypeError, match=r"^path must be the name of a file, got array\(\[\[[^\n]{60,80}$"):
        model.report(image, "a.html")


@pytest.mark.parametrize(
    "door, ends", [("report", ".html or .htm"), ("polygons", ".geojson or .json or .gpkg")]
)
def test_the_image_given_as_the_name_of_the_output_is_kept(fitted, tmp_path, door, ends):
    image, model = fitted
    path = tmp_path / "photo.png"
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)
    photograph = path.read_bytes()
    said = rf"photo\.png cannot be the name of the .*, which ends in {ends}; choose another, such as photo_"
    with pytest.raises(ValueError, match=said):
        DOORS[door]("no image, which would be an error of its own", model, path)
    assert path.read_bytes() == photograph and [path] == list(tmp_path.iterdir())


def test_levels_are_ordered_and_keep_the_numbers_of_the_segmentation(report):
    content = content_of(report.path)
    assert [level["n"] for level in content["levels"]] == [1, 2, 3]
    assert content["chosen"] == 2 and report.n_segments == 2 and report.shape == SHAPE
    one, two, three = (pixels(level["labels"]) for level in content["levels"])
    np.testing.assert_array_equal(two, truth_level(2))
    assert (three[:, :64] == 1).all()  # the left half is label 3 in the hierarchy, and 1 in the segmentation
    assert set(np.unique(three[:, 64:])) == {2, 3}
    assert len(np.unique(one)) == 1 and one[0, 0] in (1, 2)
    assert len(content["palette"]) == 4


def test_segments_are_described(report):
    rows = content_of(report.path)["levels"][1]["segments"]
    assert [row["label"] for row in rows] == [1, 2]
    assert [row["pixels"] for row in rows] == [96 * 64, 96 * 64]
    assert [row["fraction"] for row in rows] == [0.5, 0.5]
    assert [row["confidence"] for row in rows] == pytest.approx([0.2, 1.0])
    assert [row["name"] for row in rows] == ["rows <b>", "rest"]
    assert rows[1]["parts"] == [[96 * 64, 0, 64, 96, 128, *rows[1]["samples"][0]]]
    others = content_of(report.path)["levels"][2]["segments"]
    assert all(row["confidence"] is None and row["name"] == "" for row in others)


def test_parts_are_listed_largest_first_and_specks_only_counted(fitted, tmp_path):
    image, model = fitted
    labels = np.ones(SHAPE, int)
    labels[2:22, 2:12] = labels[40:60, 50:90] = 2
    labels[80, 80] = 2
    write_report(model, image, tmp_path / "a.html", labels=labels)
    segment = content_of(tmp_path / "a.html")["levels"][0]["segments"][1]
    assert segment["n_parts"] == 3
    assert [part[:5] for part in segment["parts"]] == [[800, 40, 50, 60, 90], [200, 2, 2, 22, 12]]


def test_a_part_is_placed_by_a_point_inside_it(fitted, tmp_path):
    image, model = fitted
    labels = np.ones(SHAPE, int)
    labels[10:60, 10:60] = 2
    labels[15:55, 15:60] = 1  # a bracket, whose box has its middle outside
    write_report(model, image, tmp_path / "a.html", labels=labels)
    for segment in content_of(tmp_path / "a.html")["levels"][0]["segments"]:
        for *_, row, column in segment["parts"]:
            assert labels[row, column] == segment["label"]


def test_the_size_of_a_pixel_gives_a_scale_bar(fitted, tmp_path):
    image, model = fitted
    write_report(model, image, tmp_path / "a.html", pixel_size=(0.5, 0.25, "um"))
    assert content_of(tmp_path / "a.html")["pixel"] == [0.25, "um"]
    write_report(model, image, tmp_path / "a.html")
    assert content_of(tmp_path / "a.html")["pixel"] is None


def test_histograms_are_those_of_the_encoded_image(fitted, report):
    from texseg.channels.encode import encode
    from texseg.channels.planes import split_planes

    image, model = fitted
    bins = encode(split_planes(image), model.textures_.features)
    content = content_of(report.path)
    C, B = len(content["channels"]), content["n_bins"]
    assert (C, B) == (len(bins), model.textures_.features.n_bins)
    raw = np.frombuffer(picture_bytes("data:image/x;base64," + content["levels"][1]["histograms"])[1], "<u2")
    table = raw.reshape(2, C, B) / 65535
    for label in (1, 2):
        for channel in range(C):
            counts = np.bincount(bins[channel][truth_level(2) == label], minlength=B)
            np.testing.assert_allclose(table[label - 1, channel], counts / counts.sum(), atol=1e-5)


def test_confidence_picture_has_the_values(report):
    shown = pixels(content_of(report.path)["confidence"])
    assert abs(int(shown[0, 0]) - 51) <= 8 and shown[0, 127] == 255


def test_everything_is_inside_the_file(report):
    page = report.path.read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", page)
    assert not re.findall(r"https?://", page)
    assert "{{" not in page


def test_parameters_that_the_preset_sets_are_not_said_to_be_none(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (96, 96)).astype(np.uint8)
    TextureSegmenter(2).fit(image).report(tmp_path / "left.html", image)
    TextureSegmenter(2, smoothness=0.5).fit(image).report(tmp_path / "given.html", image)
    assert "None" not in (tmp_path / "left.html").read_text().split("<footer>")[1]
    assert "<dt>smoothness</dt><dd>0.5</dd>" in (tmp_path / "given.html").read_text()


def test_names_and_titles_cannot_break_the_page(fitted, tmp_path):
    image, model = fitted
    write_report(
        model, image, tmp_path / "a.html", title="</title><i>{{CONTENT}}", names=["</script><b>", "x"]
    )
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "&lt;/title&gt;&lt;i&gt;{{CONTENT}}" in page
    assert page.count("</script>") == 2
    assert content_of(tmp_path / "a.html")["levels"][1]["segments"][0]["name"] == "</script><b>"


def test_probabilities_of_a_choice_are_told_in_numbers_and_words(fitted, tmp_path):
    image, model = fitted
    numbers, probabilities, unused = np.array([2, 3]), np.array([0.75, 0.25]), np.zeros(2)
    model.selection_ = Selection(numbers, probabilities, unused, unused, 2)
    try:
        write_report(model, image, tmp_path / "a.html")
    finally:
        del model.selection_
    assert content_of(tmp_path / "a.html")["selection"] == {
        "n": [2, 3],
        "probabilities": [0.75, 0.25],
        "chosen": 2,
        "words": "2 segments (75%), else 3 (25%)",
    }


def test_another_image_has_the_labels_it_was_given_and_no_hierarchy(fitted, tmp_path):
    image, model = fitted
    other = image[:48, ::-1]
    labels = model.predict(other)
    write_report(model, other, tmp_path / "a.html", labels=labels)
    content = content_of(tmp_path / "a.html")
    assert len(content["levels"]) == 1 and content["confidence"] == "" and content["selection"] is None
    np.testing.assert_array_equal(pixels(content["levels"][0]["labels"]), labels)


def test_pixels_without_data_stay_empty(tmp_path):
    image = scene()[0]
    mask = np.ones(SHAPE, bool)
    mask[:20] = False
    model = TextureSegmenter(n_segments=2).fit(image, mask=mask)
    write_report(model, image, tmp_path / "a.html", mask=mask)
    level = content_of(tmp_path / "a.html")["levels"][-1]
    assert (pixels(level["labels"])[:20] == 0).all()
    assert sum(row["pixels"] for row in level["segments"]) == mask.sum()


def test_colour_images_are_shown_in_colour(tmp_path):
    image = scene()[0]
    colour = np.stack([image, image, -image])
    model = TextureSegmenter(n_segments=2, channel_axis=0).fit(colour)
    write_report(model, colour, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    shown = pixels(re.search(r'<img id="image" src="([^"]+)"', page)[1])
    assert shown.shape == (*SHAPE, 3)
    assert np.corrcoef(shown[..., 0].ravel(), shown[..., 2].ravel())[0, 1] < -0.9


def test_large_images_are_shown_reduced_with_the_numbers_of_the_full_size(fitted, tmp_path):
    _, model = fitted
    rng = np.random.default_rng(0)
    image = rng.normal(size=(1300, 1040))
    labels = np.ones(image.shape, int)
    labels[:, 520:] = 2
    entry = write_report(model, image, tmp_path / "a.html", labels=labels)
    content = content_of(entry.path)
    assert content["shape"] == [1300, 1040] and content["shown"] == [1024, 819]
    assert pixels(content["levels"][0]["labels"]).shape == (1024, 819)
    assert content["levels"][0]["segments"][0]["pixels"] == 1300 * 520
    shown = pixels(re.search(r'<img id="image" src="([^"]+)"', entry.path.read_text("utf-8"))[1])
    assert shown.shape[:2] == image.shape  # the picture itself keeps its detail
    assert entry.path.stat().st_size < 4e6


def test_other_numbers_of_segments_of_a_large_image_are_estimated(fitted, tmp_path):
    _, model = fitted
    large = copy.copy(model)
    large.labels_ = np.repeat(np.repeat(truth_level(2), 9, axis=0), 9, axis=1)
    large.confidence_ = np.ones(large.labels_.shape, np.float32)
    levels = {k: np.repeat(np.repeat(truth_level(k), 9, axis=0), 9, axis=1) for k in (1, 2, 3)}
    large.hierarchy_ = SimpleNamespace(n_segments=(1, 2, 3), labels=levels.get)
    image = np.random.default_rng(0).normal(size=large.labels_.shape)
    write_report(large, image, tmp_path / "a.html")
    content = content_of(tmp_path / "a.html")
    assert [level["estimated"] for level in content["levels"]] == [True, False, True]
    areas = {row["label"]: row["pixels"] for row in content["levels"][2]["segments"]}
    true = 9 * 9 * 96 * 64
    assert areas == pytest.approx({1: true, 2: true / 2, 3: true / 2}, rel=0.01)
    (part,) = content["levels"][2]["segments"][0]["parts"]
    assert part[1:5] == pytest.approx([0, 0, 96 * 9, 64 * 9], abs=2)


def test_pictures_that_do_not_compress_are_stored_with_loss():
    noise = np.random.default_rng(0).integers(0, 256, (700, 700, 3), dtype=np.uint8)
    assert picture_bytes(picture_uri(noise))[0] == "jpeg"
    assert picture_bytes(picture_uri(noise[:100]))[0] == "png"
    np.testing.assert_array_equal(pixels(picture_uri(noise[:100])), noise[:100])


def test_the_index_links_to_every_report_from_where_it_stands(report, tmp_path):
    entries = [
        report._replace(path=tmp_path / "deep er" / "a#1.html", title="a & b"),
        report._replace(path=tmp_path / "b.html", n_segments=1),
        report._replace(path=tmp_path / "c.html", single_texture=0.73),
    ]
    write_index(tmp_path / "index.html", entries, title="all <of> them")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert re.findall(r'href="([^"]+)"><img', page) == ["deep%20er/a%231.html", "b.html", "c.html"]
    assert "a &amp; b" in page and "all &lt;of&gt; them" in page
    assert "2 segments, 128 x 96 pixels" in page and "1 segment, " in page
    assert (
        page.count("probably a single texture")
        == page.count("2 segments, probably a single texture (73%)")
        == 1
    )
    thumbnail = pixels(re.findall(r'<img src="([^"]+)"', page)[0])
    assert thumbnail.shape == (*SHAPE, 3) and thumbnail[..., 0].std() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model, image: {"labels": np.ones((3, 4), int)},
            r"labels of shape \(3, 4\) do not belong to the image",
        ),
        (
            lambda model, image: {"labels": np.zeros(SHAPE, int)},
            "a report shows labels from 1 to 255, got at most 0",
        ),
        (
            lambda model, image: {"labels": np.full(SHAPE, 256)},
            "a report shows labels from 1 to 255, got at most 256",
        ),
        (
            lambda model, image: {"labels": truth_level(2), "confidence": np.ones((3, 4))},
            "do not belong to the image",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused_and_nothing_is_written(fitted, tmp_path, change, message):
    image, model = fitted
    with pytest.raises(ValueError, match=message):
        write_report(model, image, tmp_path / "a.html", **change(model, image))
    assert not list(tmp_path.iterdir())


def test_a_model_without_labels_of_its_own_needs_them(fitted, tmp_path):
    image, model = fitted
    model.save(tmp_path / "m.texseg")
    loaded = TextureSegmenter.load(tmp_path / "m.texseg")
    with pytest.raises(
        ValueError, match="write_report needs labels=, since the model was not fitted to one image"
    ):
        write_report(loaded, image, tmp_path / "a.html")
    write_report(loaded, image, tmp_path / "a.html", labels=loaded.predict(image))


def test_the_model_reports_on_itself(fitted, tmp_path):
    image, model = fitted
    assert model.report(tmp_path / "a.html", image, title="mine") is None
    write_report(model, image, tmp_path / "b.html", title="mine")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_fitted_model_shows_its_own_hierarchy_and_choice(tmp_path):
    image = scene()[0]
    model = TextureSegmenter(k_max=5).fit(image)
    model.report(tmp_path / "a.html", image)
    content = content_of(tmp_path / "a.html")
    assert [level["n"] for level in content["levels"]] == list(model.hierarchy_.n_segments)
    assert content["selection"]["chosen"] == content["chosen"] == model.n_segments_
    chosen = content["levels"][model.n_segments_ - 1]
    np.testing.assert_array_equal(pixels(chosen["labels"]), model.labels_)


def test_merged_segments_are_told_with_the_numbers_of_the_fit_also_next_to_flat_background(tmp_path):
    image = np.pad(scene()[0], 24, constant_values=scene()[0].max())
    model = TextureSegmenter(4, flat_ground=True, learned_borders=False).fit(image)
    assert model.ground_ is not None and model.n_segments_ == 4
    model.merge([(2, 3)]).report(tmp_path / "a.html", image)
    assert content_of(tmp_path / "a.html")["members"] == {"1": [1], "2": [2, 3], "3": [4]}


def segments_of(path, n):
    (level,) = [level for level in content_of(path)["levels"] if level["n"] == n]
    return level["segments"]


def test_segments_are_told_in_words(report):
    rows, waves = segments_of(report.path, 2)
    assert rows["words"] == "Fine (waves of about 3 pixels), horizontal stripes."
    assert waves["words"] == "Medium (waves of about 6 pixels), vertical stripes."
    assert segments_of(report.path, 3)[1]["words"].endswith("running down to the left.")
    assert segments_of(report.path, 1)[0]["words"]


def test_words_tell_light_colour_and_contrast(tmp_path):
    rng = np.random.default_rng(0)
    grey = rng.integers(90, 110, SHAPE)
    image = np.stack([grey] * 3, axis=-1).astype(np.uint8)
    image[:, 64:] = (image[:, 64:].astype(int) - 100) * 4 + [200, 110, 110]
    labels = np.where(np.arange(SHAPE[1]) < 64, 1, 2) * np.ones((SHAPE[0], 1), int)
    model = TextureSegmenter(2, channel_axis=-1).fit(image)
    write_report(model, image, tmp_path / "a.html", labels=labels)
    left, right = (segment["words"] for segment in segments_of(tmp_path / "a.html", 2))
    assert "Darker than the rest" in left and "less contrast" in left
    assert "Lighter than the rest, more reddish, more contrast" in right


def test_a_flat_segment_is_called_so(fitted, tmp_path):
    image, model = fitted
    image = image.copy()
    image[:, 64:] = image.mean()
    write_report(model, image, tmp_path / "a.html", labels=truth_level(2))
    assert segments_of(tmp_path / "a.html", 2)[1]["words"] == "Flat."


def test_samples_lie_inside_their_segments_and_apart(fitted, tmp_path):
    image, model = fitted
    image, labels = np.tile(image, (3, 3)), np.repeat(np.repeat(truth_level(2), 3, axis=0), 3, axis=1)
    write_report(model, image, tmp_path / "a.html", labels=labels)
    for segment in segments_of(tmp_path / "a.html", 2):
        places = np.array(segment["samples"])
        assert len(places) == 3 and (labels[tuple(places.T)] == segment["label"]).all()
        apart = np.linalg.norm(places[:, None] - places, axis=-1)[~np.eye(3, dtype=bool)]
        assert apart.min() > 60


def test_samples_and_labels_of_a_large_image_have_its_full_size(fitted, tmp_path):
    _, model = fitted
    image = np.random.default_rng(0).normal(size=(1300, 1040))
    labels = np.ones(image.shape, int)
    labels[:, 521:] = 2
    write_report(model, image, tmp_path / "a.html", labels=labels)
    (level,) = content_of(tmp_path / "a.html")["levels"]
    np.testing.assert_array_equal(pixels(level["full"]), labels)
    crops = [pixels(crop) for crop in level["segments"][0]["crops"]]
    assert [crop.shape for crop in crops] == [(64, 64, 3)] * 3
    assert crops[0].std() > 30  # of a picture reduced to 1024 pixels the noise is weaker


def test_the_page_says_what_it_is_about(fitted, tmp_path):
    import datetime

    image, model = fitted
    command = ["texseg", "report", "my rock.png", "-o", "out/"]
    write_report(model, image, tmp_path / "a.html", source="scans/my rock.png", command=command)
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "<dt>input</dt><dd>scans/my rock.png</dd>" in page
    assert f"<dt>date</dt><dd>{datetime.date.today()}</dd>" in page
    assert "texseg report &#x27;my rock.png&#x27; -o out/" in page
    assert content_of(tmp_path / "a.html")["command"] == command
