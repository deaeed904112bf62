"""`texseg open` in a real browser: what is painted is learned, seen in every window, and never lost."""

import json
from pathlib import Path

import io_scenes
import numpy as np
import pytest
from open_session import SHAPE, served, settle, stripes, stroke
from test_report_browser import ActionChains, browser, pytestmark, wait_until, webdriver  # noqa: F401

from texseg.cli import session as module

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

IDLE = "document.documentElement.dataset.idle === 'true' && !content.rest && content.number === known.number"
PAINT = """
const [points, W, H, pointerType] = arguments, stage = document.getElementById("stage");
const { left, top, width, height } = document.getElementById("sheet").getBoundingClientRect();
const send = (type, [x, y, pressure]) => stage.dispatchEvent(new PointerEvent(type, {
  bubbles: true, cancelable: true, pointerId: 1, button: 0, pointerType, pressure: pressure ?? .5,
  clientX: left + x / W * width, clientY: top + y / H * height,
}));
send("pointerdown", points[0]);
for (const point of points.slice(1)) send("pointermove", point);
send("pointerup", points.at(-1));
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    saved = []

    def save(session, image, kinds):
        saved.append((image, kinds))
        return {
            "folder": "out",
            "files": ["image_labels.png"],
            "commands": [("The same again:", "texseg segment")],
        }

    with served(tmp_path_factory.mktemp("open"), k_max=4, save=save) as server:
        server.session.asked = saved
        yield server


@pytest.fixture
def page(browser, server):  # noqa: F811
    server.session.do({"kind": "anew"}, "test")
    settle(server.session)
    browser.get(server.address)
    ready(browser)
    yield browser
    errors = [
        entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]
    assert not errors, "the browser's console shows errors"


def ready(page, session=None):
    """Wait until the page shows all that the session knows."""
    if session is not None:
        settle(session)
        wait_until(page, f"known.since >= {session.version}")
    wait_until(page, f"window.known !== null && {IDLE}")


def js(page, code, *arguments):
    return page.execute_script(code, *arguments)


def paint(page, session, *points, cls=None, shape=SHAPE, kind="mouse"):
    """Paint a stroke as a hand does, and wait for what follows."""
    if cls is not None:
        js(page, "document.querySelector(`[data-cls='${arguments[0]}']`).click()", cls)
    before = len(session.operations)
    js(page, PAINT, points, shape[1], shape[0], kind)
    with session.changed:
        assert session.changed.wait_for(lambda: len(session.operations) > before, 10)
    ready(page, session)


def shown(page):
    """Labels that the page shows."""
    return np.array(js(page, "return [...shownLabels]")).reshape(js(page, "return [height, width]"))


def test_segments_are_shown_at_once_with_all_that_a_report_has(page, server):
    assert np.array_equal(shown(page), server.session.labels[0])
    n = len(server.session.classes())
    assert js(page, "return document.querySelectorAll('#segments tbody tr').length") == n
    assert js(page, "return document.querySelectorAll('#classes [role=radio]').length") == n
    assert js(page, "return content.levels.length") > 1 and js(page, "return !at('doubt').hidden")
    assert len(js(page, "return at('first').innerText").splitlines()) == 3  # the hint


def test_a_stroke_corrects_the_segments_and_keys_take_it_back(page, server):
    before = shown(page)
    y, x = np.argwhere(before == 2)[0].tolist()
    paint(page, server.session, (x + 0.5, y + 0.5), (x + 4, y + 2), cls=server.session.classes()[0]["cls"])
    assert shown(page)[y, x] == 1 and np.array_equal(shown(page), server.session.labels[0])
    body = page.find_element("tag name", "body")
    body.send_keys(Keys.CONTROL, "z")
    with server.session.changed:
        assert server.session.changed.wait_for(lambda: not server.session._ids, 10)
    ready(page, server.session)
    assert np.array_equal(shown(page), before)
    ink = "const { width, height } = at('ink'), context = at('ink').getContext('2d');"
    assert js(page, ink + "return context.getImageData(0, 0, width, height).data.every(v => !v)")


def test_a_stroke_can_be_painted_by_keys_alone(page, server):
    page.find_element("tag name", "body").send_keys("2")
    stage = page.find_element("id", "stage")
    js(page, "at('stage').focus()")
    stage.send_keys(Keys.ARROW_LEFT, Keys.ENTER, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ENTER)
    with server.session.changed:
        assert server.session.changed.wait_for(lambda: server.session._ids, 10)
    (operation,) = server.session.live
    assert operation["cls"] == server.session.classes()[1]["cls"] and len(operation["points"]) == 4


def test_pressure_is_width(page, server):
    paint(page, server.session, (20, 20, 0.1), (40, 20, 0.9), cls=1, kind="pen")
    widths = [point[2] for point in server.session.live[-1]["points"]]
    assert widths[-1] > 2 * widths[0]


def test_clicks_merge_split_and_name(page, server):
    session, n = server.session, len(server.session.classes())
    for box in page.find_elements("css selector", "#segments td input")[:2]:
        box.click()
    page.find_element("id", "merge").click()
    wait_until(page, f"told.classes.length === {n - 1}")
    ready(page, session)
    assert set(np.unique(shown(page))) == set(range(1, n))
    js(page, "select(1)")
    page.find_element("id", "name").send_keys("grain", Keys.TAB)
    wait_until(page, "told.classes[0].name === 'grain'")
    assert "grain" in js(page, "return at('segments').tBodies[0].innerText + at('classes').innerText")
    page.find_element("id", "split").click()
    wait_until(page, f"told.classes.length === {n}")


def test_the_slider_asks_for_another_number(page, server):
    js(page, "showLevel(0)")
    wait_until(page, "told.classes.length === content.levels[0].n && isOwn()")
    assert server.session.live[-1]["values"]["n_segments"] == len(server.session.classes())


def test_a_lasso_leaves_out(page, server):
    js(page, "setTool('cut')")
    paint(page, server.session, (0, 0), (40, 0), (40, 40), (0, 40))
    assert not shown(page)[2:38, 2:38].any() and shown(page)[50:, 50:].all()


def test_the_tools_erase_and_crop(page, server):
    before = shown(page)
    paint(page, server.session, (10, 85), (100, 85), cls=server.session.classes()[0]["cls"])
    assert not np.array_equal(shown(page), before)
    js(page, "setTool('erase'); setSize(80)")
    paint(page, server.session, (0, 85), (127, 85))
    assert np.array_equal(shown(page), before)
    js(page, "setTool('keep')")
    paint(page, server.session, (20, 20), (90, 20), (90, 70), (20, 70))
    assert not shown(page)[:18].any() and not shown(page)[:, 93:].any() and shown(page)[25:65, 25:85].all()


def test_parameters_are_changed_on_the_page_and_explained(page, server):
    field = page.find_element("id", "parameter-smoothness")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("1.25", Keys.TAB)
    wait_until(page, "content.parameters.smoothness === 1.25")
    assert server.session.state.parameters["smoothness"] == 1.25
    helps = js(page, "return [...at('parameters').querySelectorAll('p')].map(p => p.textContent)")
    assert len(helps) == 4 and "neighbours belong together" in helps[0]


def test_every_control_has_a_name_for_screen_readers_and_w_goes_to_a_doubt(page, server):
    page.find_element("tag name", "body").send_keys("w")
    wait_until(page, "at('said').textContent.includes('is unsure here')")
    controls = page.find_elements("css selector", "button, input, select, summary, [role=application]")
    named = [each.accessible_name for each in controls if each.is_displayed()]
    assert len(named) > 30 and all(named)


def test_the_likely_numbers_stand_side_by_side(page, server):
    state, selection = server.session.state, None
    numbers = state.model.selection_.n_segments
    with server.session.changed:
        flat = np.where(np.isin(numbers, (2, 3)), 0.45, 0.1 / max(1, len(numbers) - 2))
        selection = state.model.selection_._replace(probabilities=flat)
        state.model.selection_ = selection
        server.session.content.clear()
        server.session.changed.notify_all()
    wait_until(page, "!at('likely').hidden")
    assert js(page, "return [...at('likely-cards').children].map(c => c.dataset.n)") == ["2", "3"]


def test_save_writes_the_ticked_results_and_shows_the_command(page, server):
    page.find_element("css selector", "#kinds input[value=confidence]").click()
    page.find_element("id", "save").click()
    wait_until(page, "at('saved').textContent.includes('texseg segment')")
    assert server.session.asked[-1] == (0, ("labels", "confidence"))


def test_a_page_that_is_loaded_again_shows_all_strokes(page, server):
    paint(page, server.session, (10, 10), (30, 12), cls=1)
    labels = shown(page)
    page.refresh()
    ready(page, server.session)
    assert js(page, "return strokes.length") == 1 and np.array_equal(shown(page), labels)


def test_two_windows_do_not_lose_each_others_strokes(page, server):
    first = page.current_window_handle
    page.switch_to.new_window("tab")
    page.get(server.address)
    ready(page, server.session)
    paint(page, server.session, (100, 10), (110, 12), cls=server.session.classes()[1]["cls"])
    second = page.current_window_handle
    page.switch_to.window(first)
    paint(page, server.session, (10, 10), (30, 12), cls=server.session.classes()[0]["cls"])
    assert js(page, "return strokes.map(one => one.cls)") == [
        each["cls"] for each in server.session.classes()[1::-1]
    ]
    page.find_element("id", "back").click()
    page.switch_to.window(second)
    wait_until(page, "strokes.length === 1 && strokes[0].cls === told.classes[1].cls")
    page.close()
    page.switch_to.window(first)


def test_twenty_classes_can_be_told_apart_and_painted(page, server):
    n = len(server.session.classes())
    for _ in range(20 - n):
        server.session.do({"kind": "class"}, "test")
    wait_until(page, "document.querySelectorAll('#classes [role=radio]').length === 20")
    colours = js(
        page, "return [...document.querySelectorAll('#classes .swatch')].map(s => s.style.background)"
    )
    assert len(set(colours)) == 20
    classes = [each["cls"] for each in server.session.classes()[n:]]
    for k, cls in enumerate(classes):
        server.session.do(stroke(cls, (4 + 7 * k, 70), (8 + 7 * k, 92)), "test")
    ready(page, server.session)
    assert set(np.unique(shown(page))[-len(classes) :]) == set(range(n + 1, 21))
    assert js(page, "return document.querySelectorAll('#segments tbody tr').length") == 20
    assert js(page, "return document.documentElement.scrollWidth <= innerWidth")


def test_no_other_page_can_talk_to_it(browser, server, tmp_path):  # noqa: F811
    page = tmp_path / "foreign.html"
    address = f"http://{server.hosts[0]}"
    page.write_text(f"<iframe src='{server.address}'></iframe><img id=i src='{address}/picture/0'>")
    browser.get(page.as_uri())
    before = len(server.session.operations)
    code = """
    const [address, token, done] = arguments, body = '{"kind": "anew"}';
    const headers = { "X-Token": token, "Content-Type": "application/json" };
    Promise.allSettled([
      fetch(address + "/do", { method: "POST", body, headers }),
      fetch(address + "/do", { method: "POST", body, mode: "no-cors" }),
      fetch(address + "/?token=" + token), fetch(address + "/labels/0", { headers }),
    ]).then(all => done(all.map(({ value }) => value && value.type !== "opaque" ? value.status : "none")));
    """
    assert browser.execute_async_script(code, address, server.token) == ["none"] * 4
    assert len(server.session.operations) == before
    assert browser.execute_script("return document.getElementById('i').naturalWidth") == 0
    browser.get_log("browser")


def test_a_server_that_is_gone_is_said_and_what_is_painted_meanwhile_is_sent_again(page, server):
    page.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    js(page, PAINT, [[20, 50], [30, 52]], SHAPE[1], SHAPE[0], "mouse")
    wait_until(page, "document.body.classList.contains('lost') && unsent.length === 1")
    assert "run it again" in js(page, "return at('said').textContent")
    page.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
    wait_until(page, "!document.body.classList.contains('lost') && strokes.length === 1")
    assert len(json.loads(Path(server.session.path).read_text())["operations"]) == len(
        server.session.operations
    )
    page.get_log("browser")


class Scene:
    """An image of 12,000 x 12,000 pixels that is made where it is read."""

    channel_axis, pixel_size, shape = None, None, (12_000, 12_000)
    tile = (100 + 40 * stripes((480, 640))).clip(0, 255).astype(np.uint8)

    def read(self, window):
        rows, columns = (np.arange(part.start, part.stop) // 8 for part in window)
        return io_scenes.image_of(self.tile[np.ix_(rows % 480, columns % 640)])


def test_a_large_scene_is_looked_at_by_tiles(browser, tmp_path, monkeypatch):  # noqa: F811
    for name, value in (("_CROP", 96), ("_CROPS", 3), ("SIDE", 256)):
        monkeypatch.setattr(module, name, value)
    with served(tmp_path, [Scene()], large=True, n_segments=2) as server:
        session = server.session
        browser.get(server.address)
        wait_until(browser, "document.documentElement.dataset.number > 0")
        assert js(browser, "return [at('image').naturalWidth, told.large]") == [1024, True]
        js(browser, "zoomBy(32, .5, .5)")
        wait_until(browser, "at('tiles').children.length > 0 && !at('map').hidden")
        js(browser, "choose(told.classes[1].cls)")
        js(browser, PAINT, [[6000, 6000], [6020, 6010]], 12_000, 12_000, "mouse")
        with session.changed:
            assert session.changed.wait_for(lambda: session._ids and not session.is_behind, 15)
        assert session.labels[0][6000, 6000] == 2
        wait_until(browser, f"known.number === {session.number}")
        browser.get("about:blank")
