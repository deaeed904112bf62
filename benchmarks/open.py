"""`texseg open` in a browser: python benchmarks/open.py [--sides 512 2048] [DATA --images 10 --strokes 3].

From the address that the command prints to the first segments on the screen, and from the end of a stroke to
new segments, in seconds; then, on images of DATA, strokes of every class are painted on the page: the
adjusted Rand index of the segments that the page shows, of those that it saves, and of those that the command
makes again, ``texseg segment --seeds``.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import cv2
import numpy as np
from selenium import webdriver

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.datasets import SUITES
from benchmarks.measure import machine
from benchmarks.speed import mirrored
from benchmarks.strokes import WIDTH, one_stroke
from texseg import read_labels, write_labels
from texseg.metrics import adjusted_rand_index

COMMAND = [sys.executable, "-m", "texseg"]
STROKES = 8  # timed on every image
WAIT = """const [from, done] = arguments, start = performance.now();
const look = () => %s ? done((performance.now() - start) / 1000) : requestAnimationFrame(look);
look();"""
PAINT = """const [cls, points, width] = arguments, [H, W] = told.shape;
const box = at("sheet").getBoundingClientRect();
choose(cls); brush.size = width * scaleNow();
const send = (kind, [x, y]) => at("stage").dispatchEvent(new PointerEvent(kind, {
  bubbles: true, cancelable: true, pointerId: 1, 
  clientX: box.left + x / W * box.width, clientY: box.top + y / H * box.height,
}));
send("pointerdown", points[0]); for (const point of points) send("pointermove", point);
const before = known.number; send("pointerup", points.at(-1)); return before;"""


class Page:
    """The page of an image, opened by the command in a browser."""

    def __init__(self, browser, image, folder, *options):
        words = [*COMMAND, "open", str(image), "-o", str(folder), "--no-browser", *map(str, options)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        address = re.search(r"http://\S+", self.process.stdout.readline())[0]
        start = time.perf_counter()
        self.run = browser.execute_script
        self._wait = browser.execute_async_script
        browser.get(address)
        self.wait("known.number > 0")
        self.opened = time.perf_counter() - start

    def cpu(self):
        """CPU seconds of the command so far, which other programs do not lengthen."""
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def wait(self, condition, value=None):
        return self._wait(WAIT % condition, value)

    def settle(self):
        self.wait("document.documentElement.dataset.idle === 'true' && content.rest === false")

    def paint(self, label, points):
        before = self.run(PAINT, self.run("return told.classes[arguments[0]].cls", label - 1), points, WIDTH)
        return self.wait("known.number > from", before)

    def close(self):
        self.process.terminate()
        self.process.communicate()


def print_times(browser, sides, folder):
    print(f"{'side':>6} {'first segments':>15} {'stroke, median':>15} {'largest':>8} {'its CPU s':>10}")
    for side in sides:
        write_labels(folder / f"{side}.png", mirrored(side))
        page = Page(browser, folder / f"{side}.png", folder)
        rng, seconds, cpu = np.random.default_rng(0), [], []
        page.settle()
        for n in range(STROKES):
            x, y = rng.uniform(0.1, 0.8, 2) * side
            before = page.cpu()
            seconds.append(page.paint(1 + n % 2, [[x, y], [x + 20, y + 8], [x + 40, y + 10]]))
            cpu.append(page.cpu() - before)
            page.settle()
        page.close()
        numbers = f"{page.opened:>15.2f} {np.median(seconds[1:]):>15.2f} {max(seconds):>8.2f}"
        print(f"{side:>6} {numbers} {np.median(cpu[1:]):>10.2f}", flush=True)


def print_indices(browser, data, n_images, n_strokes, folder):
    suite, rows = SUITES["real"], []
    names = suite.names(data)
    print(f"{'image':<34} {'unpainted':>9} {'shown':>7} {'saved':>7} {'--seeds':>7}")
    for name in names[:: max(1, len(names) // n_images)][:n_images]:
        case, rng = suite.load(data, name), np.random.default_rng(zlib.crc32(name.encode()))
        image, out = folder / f"{name.replace('/', '_')}.png", folder / name
        cv2.imwrite(str(image), case.image[..., ::-1] if case.image.ndim == 3 else case.image)
        page = Page(browser, image, out, "-k", case.n_segments, "--no-flat-ground")
        page.settle()
        indices = [adjusted_rand_index(labels_of(page), case.truth, case.ignore_label)]
        values = np.setdiff1d(case.truth, [] if case.ignore_label is None else [case.ignore_label])
        for label, value in enumerate(values, start=1):
            _, parts, stats, _ = cv2.connectedComponentsWithStats(
                (case.truth == value).astype(np.uint8), connectivity=4
            )
            part = parts == 1 + stats[1:, cv2.CC_STAT_AREA].argmax()
            for _ in range(n_strokes):
                page.paint(label, one_stroke(part, rng)[1])
        page.settle()
        indices.append(adjusted_rand_index(labels_of(page), case.truth, case.ignore_label))
        page.run("saveNow()")
        page.wait("told.saved.number")
        (_, command), *_ = page.run("return told.saved.commands")
        page.close()
        saved = out / f"{image.stem}_labels.png"
        indices.append(adjusted_rand_index(read_labels(saved), case.truth, case.ignore_label))
        subprocess.run([*COMMAND, *shlex.split(command)[1:], "-q"], check=True, capture_output=True)
        indices.append(adjusted_rand_index(read_labels(saved), case.truth, case.ignore_label))
        rows.append(indices)
        print(
            f"{name:<34} {indices[0]:>9.3f} " + " ".join(f"{value:>7.4f}" for value in indices[1:]),
            flush=True,
        )
    means, furthest = np.mean(rows, axis=0), np.ptp(np.array(rows)[:, 1:], axis=1).max()
    print(f"{'mean':<34} {means[0]:>9.3f} " + " ".join(f"{value:>7.4f}" for value in means[1:]))
    print(f"shown, saved and --seeds: {furthest:.4f} apart at most")


def labels_of(page):
    """Labels that the page shows, (H, W)."""
    return np.array(page.run("return [...shownLabels]")).reshape(page.run("return [height, width]"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="folder of the suites; without it, times alone")
    parser.add_argument("--sides", type=int, nargs="*", default=[512, 2048])
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--strokes", type=int, default=3, help="of each class")
    given = parser.parse_args()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    print(machine(0))
    with (
        webdriver.Chrome(options=options, service=service) as browser,
        tempfile.TemporaryDirectory() as folder,
    ):
        browser.set_script_timeout(300)
        print_times(browser, given.sides, Path(folder))
        if given.data is not None:
            print_indices(browser, given.data, given.images, given.strokes, Path(folder))


if __name__ == "__main__":
    main()
