"""The report in a real browser: sliders move, pictures change, nothing fails, nothing leaves the file."""

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from report_scene import SHAPE, scene

from texseg.report import write_index, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
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
    driver.set_script_timeout(20)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    image, model = scene()
    entry = write_report(model, image, folder / "scene.html", names=["rows"])
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
        "const stage = document.getElementById('stage'), box = stage.getBoundingClientRect();"
        "stage.dispatchEvent(new MouseEvent('click', { bubbles: true,"
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
