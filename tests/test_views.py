"""What fitted models and images say of themselves, in a console and in a notebook, and labels as xarray."""

import base64
import re

import cv2
import io_scenes
import numpy as np
import pytest
import tifffile

import texseg
from texseg import TextureSegmenter, read_image
from texseg.io.display import draw_overlay

PIXELS, TRUTH = io_scenes.scene()


@pytest.fixture(scope="module")
def model():
    return TextureSegmenter(k_max=5).fit(PIXELS).rename({1: "sand <1>"})


def picture_in(html):
    content = base64.b64decode(re.search('base64,([^"]+)"', html)[1])
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


def test_a_model_tells_what_it_found(model, tmp_path):
    H, W = PIXELS.shape
    K = model.n_segments_
    assert repr(model) == (
        f"TextureSegmenter(k_max=5): {K} segments by texture in {W} x {H} pixels, named sand <1>"
    )
    assert repr(TextureSegmenter(3)) == "TextureSegmenter(n_segments=3)"
    model.save(tmp_path / "m.texseg")
    assert repr(TextureSegmenter.load(tmp_path / "m.texseg")).endswith(
        f": {K} segments by texture, named sand <1>"
    )
    both = TextureSegmenter(1).fit([PIXELS, PIXELS[:100]])
    assert (
        repr(both) == f"TextureSegmenter(n_segments=1): 1 segment by texture in 2 images of {W} x {H} pixels"
    )


def test_a_notebook_shows_overlay_number_odds_and_table(model):
    shown = model._repr_mimebundle_()
    assert shown["text/plain"] == repr(model)
    html = shown["text/html"]
    expected = np.repeat(np.rint(255 * (PIXELS / 255.0))[..., None], 3, axis=2).astype(np.uint8)
    picture = picture_in(html)
    draw_overlay(expected, model.labels_)
    assert picture.shape == expected.shape
    assert np.median(np.abs(picture.astype(int) - expected)) < 40  # its contrast is stretched
    assert f"number chosen: {model.selection_}" in html
    assert "sand &lt;1&gt;" in html and "sand <1>" not in html
    assert html.count("<tr>") == model.n_segments_
    assert TextureSegmenter(3)._repr_mimebundle_()["text/html"].startswith("<style>")
    large = TextureSegmenter(1).fit(np.tile(PIXELS, (1, 5)))
    assert max(picture_in(large._repr_html_()).shape) <= 400


def test_a_hierarchy_tells_its_numbers(model):
    H, W = PIXELS.shape
    most = model.hierarchy_.n_segments[-1]
    assert repr(model.hierarchy_) == f"Hierarchy(1 to {most} segments of {W} x {H} pixels; labels(k) has k)"


def test_a_hierarchy_shows_its_levels_side_by_side(model):
    page = model.hierarchy_._repr_html_()
    assert (
        page.count("<img") == min(5, len(model.hierarchy_.n_segments) - 1) and repr(model.hierarchy_) in page
    )


def test_an_image_tells_its_size_and_place(tmp_path):
    path = tmp_path / "scene.tif"
    geo = [(33550, 12, 3, (2.0, 3.0, 0.0), True), (33922, 12, 6, (0, 0, 0, 100.0, 50.0, 0), True)]
    keys = (1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32633)
    tifffile.imwrite(
        path, PIXELS, extratags=[*geo, (34735, 3, len(keys), keys, True), (42113, 2, 4, "100", True)]
    )
    image = read_image(path)
    H, W = PIXELS.shape
    lacking = f"{np.mean(PIXELS == 100):.1%}"
    assert repr(image) == (
        f"Image(TIFF, {W} x {H} pixels, grey, uint8, {lacking} without data, pixels of 2 x 3 m, EPSG:32633)"
    )
    assert picture_in(image._repr_html_()).shape == (H, W, 3)


def test_labels_get_the_coordinates_of_the_file(tmp_path):
    pytest.importorskip("xarray")
    path = tmp_path / "scene.tif"
    geo = [(33550, 12, 3, (2.0, 3.0, 0.0), True), (33922, 12, 6, (0, 0, 0, 100.0, 50.0, 0), True)]
    keys = (1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32633)
    tifffile.imwrite(path, PIXELS, extratags=[*geo, (34735, 3, len(keys), keys, True)])
    labels = read_image(path).to_xarray(TRUTH)
    assert (labels.name, labels.dims, labels.attrs) == ("labels", ("y", "x"), {"crs": "EPSG:32633"})
    assert labels.x[:2].values.tolist() == [101.0, 103.0]
    assert labels.y[:2].values.tolist() == [48.5, 45.5]
    assert np.array_equal(labels, TRUTH)
    tifffile.imwrite(path, PIXELS, imagej=True, resolution=(4, 2), metadata={"unit": "um"})
    labels = read_image(path).to_xarray(TRUTH)
    assert labels.x[1] == 0.375 and labels.y[1] == 0.75 and labels.y.attrs == {"units": "um"}
    texseg.write_labels(tmp_path / "plain.png", PIXELS)
    image = read_image(tmp_path / "plain.png")
    assert not image.to_xarray().coords
    with pytest.raises(
        ValueError, match=r"values must have the height and width of the image, \(160, 192\), got"
    ):
        image.to_xarray(TRUTH[:5])
