"""The page of a tree: in a browser one finds the same rows, words and ways as in Python."""

import json
import re
import shutil

import pytest

from benchmarks.planted import planted_tree
from texseg.models import ACM, HACM, Retrieval
from texseg.report import write_tree_page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def retrieval():
    planted = planted_tree(3, rows_per_leaf=12, random_state=0)
    model = HACM(8, tree="annealing", beta=1.0, random_state=0).fit(planted.counts)
    words = [f"word{j}" for j in range(planted.counts.shape[1])]
    return Retrieval(model, planted.counts, words, [f"<row> {i}" for i in range(len(planted.counts))])


@pytest.fixture(scope="module")
def path(retrieval, tmp_path_factory):
    path = tmp_path_factory.mktemp("tree") / "walk.html"
    write_tree_page(retrieval, path, title="a <walk>")
    return path


def test_the_page_holds_all_it_needs_and_asks_nobody(path):
    page = path.read_text("utf-8")
    assert "default-src 'none'" in page and not re.search(r"(src|href)=\"(?!data:)", page)
    assert "<title>a &lt;walk&gt; - texseg</title>" in page and "<row>" not in page
    content = json.loads(re.search(r'type="application/json">(.*?)</script>', page, re.S)[1])
    assert len(content["words"]) == 120 and len(content["parents"]) == 15
    assert content["titles"][5] == "<row> 5"


def test_a_model_without_a_tree_is_refused(tmp_path):
    X = planted_tree(1, random_state=0).counts
    with pytest.raises(ValueError, match="ACM has no tree to walk in"):
        write_tree_page(Retrieval(ACM(2, random_state=0).fit(X), X), tmp_path / "no.html")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install '.[dev]'")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no browser: install chromium and chromium-driver to test the page")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def texts(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )


def ask(browser, words):
    browser.execute_script(
        "const query = document.getElementById('query');"
        "query.value = arguments[0]; query.dispatchEvent(new Event('input'))",
        words,
    )


def press(browser, key):
    browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0]}))", key)


def test_one_walks_and_searches_as_in_python(browser, path, retrieval):
    browser.get(path.as_uri())
    assert texts(browser, "#node-title") == ["Root, level 0"]
    assert texts(browser, "#words button") == [word for word, _ in retrieval.words_of(0, 12)]
    assert texts(browser, "#average button") == [word for word, _ in retrieval.average_words_of(0, 12)]
    assert len(texts(browser, "#tree button")) == 15

    press(browser, "2")
    second = retrieval.look(retrieval.look(0).children[1])
    assert texts(browser, "#node-title") == [f"Node {second.node}, level 1"]
    assert texts(browser, "#node-key")[0].startswith("48 rows below")
    shown = texts(browser, "#prototypes td:first-child")
    assert shown == [match.title for match in retrieval.prototypes(second.node, 8)]
    press(browser, "ArrowUp")
    assert texts(browser, "#node-title") == ["Root, level 0"]

    query = " ".join(word for word, _ in retrieval.words_of(int(retrieval.tree.leaves[2]), 2))
    ask(browser, query + " unheard")
    assert texts(browser, "#found-key") == ["not among the words: unheard"]
    titles, scores = (texts(browser, f"#matches td:{place}-child") for place in ("first", "last"))
    found = dict(zip(titles, scores, strict=True))
    expected = retrieval.search(query, 20)
    assert list(found) == [match.title for match in expected]
    for match in expected:
        assert float(found[match.title].rstrip(" %")) == pytest.approx(100 * match.score, abs=0.51)
    node = retrieval.responsibility(query).argmax()
    assert texts(browser, "#node-title")[0].startswith(f"Leaf {node},")
    ask(browser, "word1 word11")
    assert texts(browser, "#found-key") == ["p(row | words), all rows being as probable before"]
    ask(browser, "word1 word10x")
    assert texts(browser, "#found-key")[0].startswith("not among the words: word10x; perhaps word10")
    press(browser, "Escape")
    assert not browser.execute_script("return document.querySelector('#tree i')")
    assert not [e for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("wor", ["word0", "word1", "word2"]),
        ("word7 word11", []),  # it is known
        ("word7 wor", ["word7 word0", "word7 word1", "word7 word2"]),
        (
            "word119x",
            ["word119", "word11", "word19"],
        ),  # begins no word: those alike
        ("zz", []),
    ],
)
def test_words_are_completed_while_typing(browser, path, typed, offered):
    browser.get(path.as_uri())
    ask(browser, typed)
    shown = browser.execute_script("return [...document.querySelectorAll('#known option')].map(o => o.value)")
    assert shown[:3] == offered
    assert len(shown) <= 20
