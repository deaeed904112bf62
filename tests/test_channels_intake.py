"""What comes beside the picture, or encoded otherwise, is noticed, and left out or brought back on demand."""

import warnings

import numpy as np
import pytest

from texseg import TextureSegmenter, segment
from texseg.synth import mosaic

SIDE = 160


def textures():
    rows, columns = np.mgrid[:SIDE, :SIDE]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(SIDE, SIDE))
    return noise, np.sin(rows * 0.9) + 0.3 * noise, np.sin(columns * 0.5) * np.sin(rows * 0.5) + 0.3 * noise


@pytest.fixture(scope="module")
def grey():
    return mosaic(textures(), 3, SIDE, random_state=0).image


@pytest.fixture(scope="module")
def colour(grey):
    return np.stack([grey, 255 - grey // 2, grey // 3 + 9], axis=-1)


@pytest.fixture(scope="module")
def model(grey):
    return TextureSegmenter(3).fit(grey)


def said_by(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(warning.message) for warning in caught]


# ---- transparency ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [255, 1.0])
def test_a_fourth_band_of_opaque_pixels_is_no_texture(colour, top):
    image = colour if top == 255 else colour / 255
    alpha = np.full((SIDE, SIDE, 1), top, image.dtype)
    labels, said = said_by(lambda: segment(np.concatenate([image, alpha], axis=-1), 3, channel_axis=-1))
    assert said == []
    np.testing.assert_array_equal(labels, segment(colour, 3, channel_axis=-1))


def test_transparent_pixels_hold_no_data(colour):
    alpha = np.full((SIDE, SIDE, 1), 255, np.uint8)
    alpha[20:60, 30:90] = 0
    rgba = np.concatenate([colour, alpha], axis=-1)
    labels, said = said_by(lambda: segment(rgba, 3, channel_axis=-1))
    assert said == ["the fourth band was taken for transparency: 2400 pixels hold no data"]
    np.testing.assert_array_equal(labels == 0, alpha[..., 0] == 0)
    np.testing.assert_array_equal(labels, segment(colour, 3, channel_axis=-1, mask=alpha[..., 0]))


def test_a_fourth_band_that_may_be_transparency_is_never_taken_in_silence(colour, grey):
    bands = np.concatenate([colour, grey[..., None]], axis=-1)
    with pytest.warns(UserWarning, match="the last of four bands was taken as a band like the others"):
        segment(bands, 3, channel_axis=-1)


@pytest.mark.parametrize("scale", ["float", "int16", "soft"])
def test_neither_is_one_of_another_type_or_range(colour, scale):
    alpha = np.full((SIDE, SIDE, 1), 255, np.uint8)
    alpha[20:60, 30:90] = 0
    rgba = np.concatenate([colour, alpha], axis=-1)
    rgba[0, 0, 3] = 128 if scale == "soft" else 255
    image = rgba if scale == "soft" else rgba.astype(scale)
    with pytest.warns(
        UserWarning, match="four bands was taken as a band like the others; .* pass three bands"
    ):
        segment(image, 3, channel_axis=-1)


def test_bands_of_an_instrument_are_taken_in_silence(colour, grey):
    reflectance = np.concatenate([colour, grey[..., None]], axis=-1).astype(float)
    for bands in (reflectance, reflectance[..., 2:]):
        _, said = said_by(lambda bands=bands: segment(bands, 3, channel_axis=-1))
        assert said == []


def test_grey_with_transparency_is_grey(grey):
    alpha = np.full((SIDE, SIDE), 255, np.uint8)
    labels, said = said_by(lambda: segment(np.stack([grey, alpha], axis=-1), 3, channel_axis=-1))
    assert said == []
    np.testing.assert_array_equal(labels, segment(grey, 3))
    alpha[20:60, 30:90] = 0
    labels, said = said_by(lambda: segment(np.stack([grey, alpha], axis=-1), 3, channel_axis=-1))
    assert said == ["the second band was taken for transparency: 2400 pixels hold no data"]
    np.testing.assert_array_equal(labels == 0, alpha == 0)


def test_pixels_without_data_do_not_hide_transparency(colour):
    rgba = np.concatenate([colour / 255, np.ones((SIDE, SIDE, 1))], axis=-1)
    rgba[5, 7] = np.nan
    labels, said = said_by(lambda: segment(rgba, 3, channel_axis=-1))
    assert said == ["1 non-finite pixels treated as no data (label 0)"]
    assert np.argwhere(labels == 0).tolist() == [[5, 7]]


# ---- info bars ---------------------------------------------------------------------------------------------


def with_bar(image, colour, rows=24):
    bar = np.full((rows, SIDE), colour, np.uint8)
    bar[8:16, 20:60] = bar[10:12, 90:150] = 255 - colour
    return np.concatenate([image, bar])


@pytest.mark.parametrize("colour", [0, 255])
def test_an_info_bar_is_named_and_left_out_on_demand(grey, colour):
    image = with_bar(grey, colour)
    _, said = said_by(lambda: segment(image, 3))
    assert said == [
        "rows 160 to 183 look like the info bar of a microscope, and were segmented like the picture; "
        "crop_bar=True (--crop-bar) skips them"
    ]
    labels, said = said_by(lambda: segment(image, 3, crop_bar=True))
    assert said == ["rows 160 to 183 look like the info bar of a microscope, and were skipped (label 0)"]
    assert not labels[160:].any()
    assert (labels[:160] == segment(grey, 3)).mean() > 0.98


@pytest.mark.parametrize("colour", [20, 235])
def test_a_bar_need_not_be_the_darkest_or_brightest_thing(grey, colour):
    image = with_bar(grey.T, colour)
    assert image[:SIDE].min() < 20
    assert image[:SIDE].max() > 235
    with pytest.warns(UserWarning, match="rows 160 to 183 look like the info bar"):
        assert not segment(image, 3, crop_bar=True)[160:].any()


def test_a_bar_along_the_upper_edge_is_one_too(grey):
    with pytest.warns(UserWarning, match="rows 0 to 23 look like the info bar"):
        labels = segment(with_bar(grey, 0)[::-1], 3, crop_bar=True)
    assert not labels[:24].any()
    assert labels[24:].all()


def test_a_dark_ground_with_particles_is_no_bar():
    image = np.zeros((200, 160), np.uint8)
    for row, column in np.random.default_rng(0).integers(0, (180, 140), (25, 2)):
        image[row : row + 12, column : column + 12] = textures()[0][:12, :12] * 40 + 128
    _, said = said_by(lambda: segment(image, 2))
    assert not [note for note in said if "info bar" in note]


# ---- another encoding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encode", "factor"),
    [
        (lambda x: x.astype(np.uint16) * 257, "as if multiplied by 257"),
        (lambda x: x / 255, "as if multiplied by 1/255"),
        (lambda x: x + 1000.0, "as if 1000 was added"),
    ],
)
def test_a_scene_in_another_encoding_is_named_and_brought_back(model, grey, encode, factor):
    labels, said = said_by(lambda: model.predict(encode(grey)))
    assert len(said) == 1
    assert factor in said[0]
    assert "rescale=True (--rescale)" in said[0]
    labels, said = said_by(lambda: model.predict(encode(grey), rescale=True))
    assert said == []
    np.testing.assert_array_equal(labels, model.predict(grey))
    np.testing.assert_array_equal(model.predict_proba(encode(grey), rescale=True), model.predict_proba(grey))


def test_the_logarithm_is_brought_back_too(grey):
    model = TextureSegmenter(3, log=True).fit(grey + 1.0)
    with pytest.warns(UserWarning, match="as if multiplied by 1/100"):
        model.predict((grey + 1.0) / 100)
    np.testing.assert_array_equal(model.predict((grey + 1.0) / 100, rescale=True), model.labels_)


def test_another_scene_of_the_same_encoding_passes_in_silence(model, grey):
    darker = (grey * 0.6 + 10).astype(np.uint8)
    _, said = said_by(lambda: model.predict(darker))
    assert said == []


def test_mostly_unknown_is_said(model):
    stranger = np.where(np.indices((SIDE, SIDE)).sum(axis=0) % 24 < 12, 5, 250).astype(np.uint8)
    with pytest.warns(UserWarning, match="100% of the pixels are unknown to the model"):
        assert (model.predict(stranger, unknown=True) == 4).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_colour_images_are_turned_to_grey_for_a_model_of_grey_ones(model, grey, dtype):
    """The grey values keep the unit of the colours, whatever their type: those of bytes are not 0 to 1."""
    tinted = np.stack([grey, grey, grey // 2 + 64], axis=-1).astype(dtype)
    model.channel_axis = -1
    try:
        labels, said = said_by(lambda: model.predict(tinted))
    finally:
        model.channel_axis = None
    assert said == ["the model learned grey images; colour images are turned to grey for it"]
    assert (labels == model.labels_).mean() > 0.95
