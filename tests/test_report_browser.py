"""The report in a real browser: sliders move, pictures change, nothing fails, nothing leaves the file."""

import importlib
import json
import shlex
import shutil
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_scene import SHAPE, scene, truth_level

from texseg import TextureSegmenter, read_labels
from texseg.method.number import Selection
from texseg.report import write_index, write_report
from texseg.synth import solid, volume

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install '.[dev]'")
ActionChains = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
ScrollOrigin = pytest.importorskip("selenium.webdriver.common.actions.wheel_input").ScrollOrigin
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: install chromium and chromium-driver to test the report"
)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1300,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)  # of a busy machine
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    image, model = scene()
    command = ["texseg", "report", "a scene.png", "-k", "2", "-o", "out/"]
    entry = write_report(model, image, folder / "scene.html", names=["rows"], command=command)
    write_index(folder / "index.html", [entry])
    return folder


@pytest.fixture
def page(browser, folder):
    browser.get((folder / "scene.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    yield browser
    errors = [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert not errors, "the browser's console shows errors"


def wait_until(browser, condition):
    script = (
        "const done = arguments[0];"
        f"(function look() {{ if ({condition}) done(true); else requestAnimationFrame(look); }})();"
    )
    browser.execute_async_script(script)


def slide(page, name, value):
    """Move a slider as a hand does."""
    page.execute_script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('input', { bubbles: true }));",
        name,
        value,
    )


def pixels(page, layer):
    """Colours of a canvas, (H, W, 4), read from a copy so that the page's own canvas stays as it is."""
    values = page.execute_script(
        "const source = document.getElementById(arguments[0]), copy = document.createElement('canvas');"
        "copy.width = source.width; copy.height = source.height;"
        "const context = copy.getContext('2d', { willReadFrequently: true });"
        "context.drawImage(source, 0, 0);"
        "return [...context.getImageData(0, 0, copy.width, copy.height).data]",
        layer,
    )
    return np.array(values).reshape(*SHAPE, 4)


def pixel(page, layer, x, y):
    return pixels(page, layer)[y, x].tolist()


def text(page, name):
    return page.execute_script("return document.getElementById(arguments[0]).textContent", name)


def press(page, *keys):
    page.find_element("tag name", "body").send_keys(*keys)


def rows(page):
    return [row.text for row in page.find_elements("css selector", "#segments tbody tr")]


def click_on(page, x, y):
    """Click on a pixel of the image."""
    page.execute_script(
        "const sheet = document.getElementById('sheet'), box = sheet.getBoundingClientRect();"
        "for (const kind of ['pointerdown', 'pointerup', 'click'])"
        "sheet.dispatchEvent(new PointerEvent(kind, { bubbles: true,"
        " clientX: box.left + (arguments[0] + .5) / arguments[2] * box.width,"
        " clientY: box.top + (arguments[1] + .5) / arguments[3] * box.height }));",
        x,
        y,
        SHAPE[1],
        SHAPE[0],
    )


def test_the_report_opens_on_the_segmentation(page):
    assert text(page, "number-value") == "2"
    assert text(page, "table-title") == "2 segments"
    assert rows(page)[0].split() == ["rows", "6,144", "50.0", "%", "1", "0.200"]
    assert pixel(page, "tint", 5, 5) != pixel(page, "tint", 100, 5)
    assert pixel(page, "lines", 63, 30)[3] == 255 and pixel(page, "lines", 30, 30)[3] == 0
    assert page.execute_script("return document.getElementById('image').naturalWidth") == SHAPE[1]


def test_the_slider_changes_the_number_of_segments_and_colours_stay(page):
    left = pixel(page, "tint", 5, 5)
    below = pixel(page, "tint", 100, 80)
    slide(page, "number", 2)
    wait_until(page, "document.getElementById('number-value').textContent === '3'")
    assert text(page, "table-title") == "3 segments" and len(rows(page)) == 3
    assert pixel(page, "tint", 5, 5) == left
    assert pixel(page, "tint", 100, 5) != pixel(page, "tint", 100, 80)
    slide(page, "number", 0)
    wait_until(page, "document.getElementById('number-value').textContent === '1'")
    assert pixel(page, "tint", 5, 5) == pixel(page, "tint", 100, 80)
    assert pixel(page, "lines", 63, 30)[3] == 0
    slide(page, "number", 1)
    wait_until(page, "document.getElementById('number-value').textContent === '2'")
    assert pixel(page, "tint", 100, 80) == below


def test_the_slider_changes_the_opacity(page):
    slide(page, "opacity", 80)
    assert text(page, "opacity-value") == "80 %"
    assert page.find_element("id", "tint").value_of_css_property("opacity") == "0.8"


def test_a_click_tells_about_the_segment_and_a_second_one_lets_go(page):
    assert not page.find_element("id", "segment").is_displayed()
    click_on(page, 100, 50)
    assert page.find_element("id", "segment").is_displayed()
    assert text(page, "segment-title") == "segment 2: 6,144 pixels, 50.0 %"
    assert text(page, "parts-title") == "It is in one piece:"
    assert pixel(page, "tint", 100, 50) == [*page.execute_script("return content.palette[2]"), 255]
    assert pixel(page, "tint", 5, 5) == [0, 0, 0, 255]  # the others are darkened
    panels = page.find_elements("css selector", "#histograms figure")
    assert len(panels) == page.execute_script("return content.channels.length")
    assert len(page.find_elements("css selector", "#histograms .telling")) == 3
    click_on(page, 100, 50)
    assert not page.find_element("id", "segment").is_displayed()
    assert pixel(page, "tint", 5, 5)[3] == 255


def test_histograms_differ_most_in_the_channels_that_tell_the_segments_apart(page):
    click_on(page, 100, 50)
    captions = [c.text for c in page.find_elements("css selector", "#histograms figcaption")]
    differences = [float(caption.rsplit(": ", 1)[1]) for caption in captions]
    telling = [
        float(c.text.rsplit(": ", 1)[1]) for c in page.find_elements("css selector", ".telling figcaption")
    ]
    assert sorted(telling) == sorted(differences)[-3:]
    assert max(differences) > 0.5


def test_parts_are_marked_in_the_image(page):
    click_on(page, 5, 5)
    page.find_element("css selector", "#parts button").click()
    drawn = pixels(page, "mark")[..., 3] > 0
    assert drawn[30, :2].any() and drawn[30, 62:66].any() and not drawn[30, 10:50].any()


def test_rows_of_the_table_select_too(page):
    page.find_elements("css selector", "#segments tbody button")[0].click()
    assert text(page, "segment-title").startswith("rows: ")
    selected = [
        r.get_attribute("aria-selected") for r in page.find_elements("css selector", "#segments tbody tr")
    ]
    assert selected == ["true", "false"]


def test_views_show_confidence_and_the_bare_image(page):
    page.find_element("css selector", "#view-confidence").click()
    assert pixel(page, "tint", 5, 5)[:3] != pixel(page, "tint", 100, 5)[:3]
    assert pixel(page, "tint", 100, 5)[:3] == [253, 231, 37]  # the bright end of the scale
    assert page.find_element("id", "scale").is_displayed()
    page.find_element("css selector", "input[value=image]").send_keys(" ")
    assert not page.find_element("id", "tint").is_displayed()
    assert not page.find_element("id", "lines").is_displayed()


def test_confidence_is_there_for_the_segmentation_alone(page):
    page.find_element("css selector", "#view-confidence").click()
    press(page, "\ue014")
    wait_until(page, "document.getElementById('number-value').textContent === '3'")
    assert not page.find_element("id", "view-confidence").is_displayed()
    assert page.execute_script("return state.view") == "segments"


def test_everything_can_be_done_with_the_keyboard(page):
    press(page, "\ue014")  # right
    wait_until(page, "document.getElementById('number-value').textContent === '3'")
    press(page, "\ue012")  # left
    wait_until(page, "document.getElementById('number-value').textContent === '2'")
    before = int(text(page, "opacity-value").split()[0])
    press(page, "\ue013", "\ue013", "\ue015")  # up, up, down
    assert int(text(page, "opacity-value").split()[0]) == before + 5
    press(page, "2")
    assert text(page, "segment-title").startswith("segment 2")
    press(page, "\ue00c")  # escape
    assert not page.find_element("id", "segment").is_displayed()
    press(page, "v")
    assert page.execute_script("return state.view") == "confidence"
    press(page, "b")
    assert not page.find_element("id", "lines").is_displayed()


def point_at(page, x, y):
    """Move the pointer to a pixel of the image."""
    page.execute_script(
        "const sheet = document.getElementById('sheet'), box = sheet.getBoundingClientRect();"
        "sheet.dispatchEvent(new PointerEvent('pointermove', { bubbles: true,"
        " clientX: box.left + (arguments[0] + .5) / arguments[2] * box.width,"
        " clientY: box.top + (arguments[1] + .5) / arguments[3] * box.height }));",
        x,
        y,
        SHAPE[1],
        SHAPE[0],
    )


def click(page, name):
    page.execute_script("document.getElementById(arguments[0]).click()", name)


def tick(page, *places):
    for place in places:
        page.find_elements("css selector", "#segments tbody input")[place].click()


def rename(page, name):
    field = page.find_element("id", "name")
    field.clear()
    field.send_keys(name)


def saved_labels(page):
    """The label picture that the button saves, as an array of its own mode."""
    data = page.execute_async_script(
        "const done = arguments[0];"
        "labelPicture().then(({ blob }) => blob.arrayBuffer()).then(b => done([...new Uint8Array(b)]))"
    )
    return np.asarray(Image.open(BytesIO(bytes(data))))


def test_what_is_under_the_pointer_is_told(page):
    point_at(page, 5, 7)
    assert text(page, "readout") == "x 5, y 7 \N{MIDDLE DOT} rows \N{MIDDLE DOT} confidence 0.20"
    point_at(page, 100, 50)
    assert text(page, "readout") == "x 100, y 50 \N{MIDDLE DOT} segment 2 \N{MIDDLE DOT} confidence 1.00"
    slide(page, "number", 2)
    wait_until(page, "document.getElementById('number-value').textContent === '3'")
    assert text(page, "readout") == ""
    point_at(page, 100, 90)
    assert "confidence" not in text(page, "readout")  # it is known for the segmentation alone


def test_the_image_fits_into_the_window(page):
    stage = page.find_element("id", "stage")
    window = page.execute_script("return innerHeight")
    assert stage.rect["y"] + stage.rect["height"] <= window
    assert stage.rect["width"] / stage.rect["height"] == pytest.approx(SHAPE[1] / SHAPE[0], rel=0.01)
    assert stage.rect["width"] > 300  # the 128 pixels are enlarged


def test_zoom_and_pan_move_the_picture_and_the_place_of_clicks(page):
    def box():
        return page.execute_script(
            "const s = document.getElementById('sheet').getBoundingClientRect(),"
            " t = document.getElementById('stage').getBoundingClientRect();"
            "return [(t.left - s.left) / s.width, (t.top - s.top) / s.height, t.width / s.width]"
        )

    click(page, "in")
    assert box() == pytest.approx([1 / 6, 1 / 6, 2 / 3], abs=0.01)  # about the middle
    ActionChains(page).move_to_element(page.find_element("id", "stage")).click_and_hold().move_by_offset(
        -60, 0
    ).release().perform()
    left = box()[0]
    assert left > 1 / 6 + 0.05
    assert not page.find_element("id", "segment").is_displayed()  # a move is no click
    click_on(page, 100, 50)
    assert text(page, "segment-title").startswith("segment 2")
    for _ in range(9):
        press(page, "-")
    assert box() == pytest.approx([0, 0, 1], abs=0.01)
    press(page, "+", "+")
    assert box()[2] < 0.5
    press(page, "0")
    assert box() == pytest.approx([0, 0, 1], abs=0.01)


def test_the_wheel_zooms_about_the_pointer(page):
    stage = page.find_element("id", "stage")
    origin = ScrollOrigin.from_element(stage, -stage.size["width"] // 2 + 2, 0)
    ActionChains(page).scroll_from_origin(origin, 0, -240).perform()
    wait_until(page, "zoom.factor > 1.5")
    assert page.execute_script("return zoom.x") == pytest.approx(0, abs=0.02)


def test_words_and_samples_show_what_a_segment_is(page):
    click_on(page, 5, 5)
    assert "horizontal stripes" in text(page, "words")
    samples = page.find_elements("css selector", "#samples canvas")
    assert samples
    shown = page.execute_script(
        "const c = document.querySelector('#samples canvas');"
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    rows = np.array(shown).reshape(128, 128, 4)[..., 0]
    assert rows.std(axis=0).mean() > 5 * rows.std(axis=1).mean()  # horizontal stripes, indeed


def test_segments_are_merged_and_named_and_the_command_says_so(page):
    assert not page.find_element("id", "edits").is_displayed()
    tick(page, 0, 1)
    click(page, "merge")
    assert text(page, "table-title") == "1 segment"
    assert [row.split()[:2] for row in rows(page)] == [["rows", "12,288"]]
    assert pixel(page, "tint", 5, 5) == pixel(page, "tint", 100, 50) and pixel(page, "lines", 63, 30)[3] == 0
    rename(page, "it's a + b")
    assert rows(page)[0].startswith("it's a + b")
    words = shlex.split(text(page, "edits-command"))
    assert words == ["texseg", "report", "a scene.png", *"-k 2 -o out/ --merge".split(), "1+2=it's a + b"]
    assert page.execute_script("return editsNow()") == {"merge": [[1, 2]], "names": {"1": "it's a + b"}}
    assert (saved_labels(page) == 1).all()
    click(page, "undo")
    assert text(page, "table-title") == "2 segments" and rows(page)[0].startswith("rows")
    assert not page.find_element("id", "edits").is_displayed()


def test_a_segment_is_named_without_a_merge(page):
    click_on(page, 100, 50)
    rename(page, "waves")
    assert [row.split()[0] for row in rows(page)] == ["rows", "waves"]
    assert text(page, "edits-command").endswith("--merge 1=rows --merge 2=waves")
    assert page.execute_script("return editsNow()") == {"merge": [], "names": {"1": "rows", "2": "waves"}}


def test_edits_of_edited_results_are_those_of_the_fit(browser, tmp_path):
    image = scene()[0]
    model = TextureSegmenter(n_segments=3).fit(image).edit({"merge": [[1, 3]], "names": {"1": "old"}})
    command = ["texseg", "segment", "a.png", "--merge", "1+3=old", "-k", "3", "--edits=e.json"]
    write_report(model, image, tmp_path / "a.html", command=command)
    browser.get((tmp_path / "a.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    assert rows(browser)[0].startswith("old")
    click_on(browser, *np.argwhere(model.labels_ == 2)[0, ::-1].tolist())
    rename(browser, "new")
    command = ["texseg", "segment", "a.png", "-k", "3"]
    assert shlex.split(text(browser, "edits-command")) == [*command, "--merge", "1+3=old", "--merge", "2=new"]
    tick(browser, 0, 1)
    click(browser, "merge")
    assert shlex.split(text(browser, "edits-command")) == [*command, "--merge", "1+2+3=old"]


def test_without_a_command_the_edits_are_told_in_python(browser, tmp_path):
    image, model = scene()
    write_report(model, image, tmp_path / "a.html")
    browser.get((tmp_path / "a.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    tick(browser, 0, 1)
    click(browser, "merge")
    assert text(browser, "edits-command") == 'model.edit({"merge":[[1,2]],"names":{}})'


def test_the_command_of_another_number_is_offered(page):
    page.find_elements("css selector", "#others button")[1].click()
    wait_until(page, "document.getElementById('number-value').textContent === '3'")
    assert shlex.split(text(page, "edits-command"))[2:] == ["a scene.png", "-o", "out/", "-k", "3"]
    assert not page.find_element("id", "editing").is_displayed()  # edits are of the results
    page.find_elements("css selector", "#others button")[0].click()
    wait_until(page, "document.getElementById('number-value').textContent === '2'")


def test_labels_are_saved_as_grey_levels_at_the_number_shown(page, tmp_path):
    np.testing.assert_array_equal(saved_labels(page), truth_level(2))
    slide(page, "number", 2)
    wait_until(page, "document.getElementById('number-value').textContent === '3'")
    three = saved_labels(page)
    assert three.dtype == np.uint8 and (three[:, :64] == 1).all() and len(np.unique(three)) == 3
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    click(page, "download")
    file = tmp_path / "scene_labels_3.png"
    end = time.monotonic() + 20
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    np.testing.assert_array_equal(read_labels(file), three)


def test_numbers_stand_on_their_segments_and_can_be_turned_off(page):
    def numbers():
        return page.execute_script(
            "const sheet = document.getElementById('sheet').getBoundingClientRect();"
            "return [...document.querySelectorAll('#numbers span')].map(number => {"
            "  const box = number.getBoundingClientRect();"
            "  return [number.textContent, (box.left + box.width / 2 - sheet.left) / sheet.width];"
            "})"
        )

    placed = dict(numbers())
    assert set(placed) == {"1", "2"} and placed["1"] < 0.5 < placed["2"]
    tick(page, 0, 1)
    click(page, "merge")
    assert [label for label, _ in numbers()] == ["1"]
    assert text(page, "number-value") == "1"  # the slider says what is seen
    click(page, "undo")
    press(page, "n")
    assert not page.find_element("id", "numbers").is_displayed()


def test_confidence_is_shown_from_that_of_a_guess(page):
    page.find_element("css selector", "#view-confidence").click()
    assert (text(page, "least"), text(page, "middle")) == ("0.50", "0.75")
    assert pixel(page, "tint", 5, 5)[:3] == [68, 1, 84]  # .2 is below the dark end of the scale


def test_a_scale_bar_has_a_round_length(browser, tmp_path):
    image, model = scene()
    write_report(model, image, tmp_path / "a.html", pixel_size=(0.5, 0.5, "um"))
    browser.get((tmp_path / "a.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    assert text(browser, "bar") == "10 um"  # of 64
    share = browser.execute_script(
        "return document.querySelector('#bar i').getBoundingClientRect().width"
        " / document.getElementById('stage').clientWidth"
    )
    assert share == pytest.approx(10 / 64, abs=0.01)
    click(browser, "in")
    click(browser, "in")
    assert text(browser, "bar") == "5 um"


@pytest.mark.parametrize("probabilities", [[0.3, 0.4, 0.3], [0.1, 0.8, 0.1], [0.2, 0.42, 0.2]])
def test_where_no_number_is_clearly_right_the_likely_ones_stand_first(browser, tmp_path, probabilities):
    image, model = scene()
    unused = np.zeros(3)
    model.selection_ = Selection(np.array([1, 2, 3]), np.array(probabilities), unused, unused, 2, 0.0)
    write_report(model, image, tmp_path / "a.html")
    browser.get((tmp_path / "a.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    cards = browser.find_elements("css selector", "#likely-cards button")
    if probabilities[0] < 0.3:  # one is likely, or far ahead of the others
        assert not cards and not browser.find_element("id", "likely").is_displayed()
        return
    assert [card.text for card in cards] == [
        "1 segment (30 %)",
        "2 segments (40 %), saved",
        "3 segments (30 %)",
    ]
    assert cards[0].rect["y"] < browser.find_element("id", "stage").rect["y"]
    cards[2].click()
    wait_until(browser, "document.getElementById('number-value').textContent === '3'")


def test_the_table_fits_a_phone(page):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360
        table = page.find_element("id", "segments").rect
        assert table["x"] + table["width"] <= 360
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_slider_and_clicks_move_through_the_planes_of_a_volume(browser, tmp_path, monkeypatch):
    """The plane, the cuts through the chosen row and column, tables and saved labels belong together."""
    image, truth = volume([solid("fibres", 40, 6, (1, 0, 0)), solid("foam", 40, 10)])
    model = TextureSegmenter(2, spatial_dims=3).fit(image)
    model.report(tmp_path / "rock.html", image)
    browser.get((tmp_path / "rock.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    assert text(browser, "plane-value") == "20" and text(browser, "unit") == "voxels"
    for z in (3, 30):
        slide(browser, "plane", z)
        assert text(browser, "plane-value") == str(z)
        assert (saved_labels(browser) == model.labels_[z]).all()
        top = browser.execute_script(
            "const of = id => document.getElementById(id).getBoundingClientRect();"
            "return (of('sheet').top - of('image').top) / of('sheet').height"
        )
        assert top == pytest.approx(z, abs=0.01)  # the film is moved so that this plane is seen
    press(browser, "\ue00e")  # page up
    assert text(browser, "plane-value") == "31"
    cut = browser.find_element("id", "cut-row")
    assert (cut.get_attribute("width"), cut.get_attribute("height")) == ("40", "40")
    browser.execute_script("arguments[0].scrollIntoView()", cut)
    offset = int(-0.5 * cut.size["width"] + 3.5 * cut.size["width"] / 40), int(-0.3 * cut.size["height"])
    ActionChains(browser).move_to_element_with_offset(cut, *offset).click().perform()
    assert text(browser, "plane-value") == "8"
    assert browser.execute_script("return [state.plane, state.column]") == [8, 3]
    assert browser.find_elements("css selector", "#cuts figcaption")[1].text == "y, z at x 3"
    point_at(browser, 64, 48)  # the middle, in the shape of the other scene
    label = model.labels_[8, 20, 20]
    assert text(browser, "readout").startswith(f"x 20, y 20, z 8 \N{MIDDLE DOT} segment {label}")
    press(browser, "1")
    part = browser.find_elements("css selector", "#parts button")[0]
    part.click()
    assert f", z {text(browser, 'plane-value')}" in part.text
    assert text(browser, "thinned") == "" and browser.find_element("id", "histograms").is_displayed()
    slide(browser, "number", 0)
    wait_until(browser, "document.getElementById('number-value').textContent === '1'")
    press(browser, "1")
    assert text(browser, "segment-title").endswith(": 64,000 voxels, 100.0 %")  # of others sizes alone
    for name in ("histograms", "parts-title"):
        assert not browser.find_element("id", name).is_displayed()
    monkeypatch.setattr("texseg.report.pictures._MOST_VOXELS", 20 * 20 * 10)
    monkeypatch.setattr("texseg.report.pictures._MOST_PLANES", 10)
    model.report(tmp_path / "rock.html", image)
    browser.refresh()
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    assert text(browser, "thinned") == "Shown are 10 of 40 planes, each at 20 x 20 pixels."
    assert (saved_labels(browser) == model.labels_[22, 1::2, 1::2]).all()
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_light_and_dark(page):
    def paper():
        return page.find_element("tag name", "body").value_of_css_property("background-color")

    first = paper()
    press(page, "t")
    second = paper()
    page.find_element("id", "theme").click()
    assert first != second and paper() == first


def test_it_prints_without_controls_on_white(page):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        press(page, "t")
        assert not page.find_element("css selector", ".controls").is_displayed()
        assert page.find_element("id", "segments").is_displayed()
        paper = page.find_element("tag name", "body").value_of_css_property("background-color")
        assert paper in ("rgba(255, 255, 255, 1)", "rgb(255, 255, 255)")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert len(page.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 10_000


def test_no_request_leaves_the_file(browser, folder):
    browser.get_log("performance")
    browser.get((folder / "scene.html").as_uri())
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    slide(browser, "number", 2)
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert (folder / "scene.html").as_uri() in sent
    assert all(url == (folder / "scene.html").as_uri() or url.startswith("data:") for url in sent)


def test_the_index_leads_to_the_report(browser, folder):
    browser.get((folder / "index.html").as_uri())
    card = browser.find_element("css selector", ".card")
    assert "scene" in card.text and "2 segments" in card.text
    card.click()
    wait_until(browser, "document.documentElement.dataset.ready === 'complete'")
    assert browser.current_url.endswith("/scene.html")
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_size_and_speed_can_be_measured(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    importlib.import_module("benchmarks.report").main(["--side", "128"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[-1] for row in rows[3:]] == ["s", "MB", "ms", "ms", "ms"]
    assert all(float(row[-2 if row[-1] != "s" else -3]) > 0 for row in rows[3:])
