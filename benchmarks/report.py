"""Size of an HTML report, and how fast it is in a browser: python benchmarks/report.py [--side 1024].

Needs Chromium and its driver. The image is the colour mosaic of the samples, repeated to the side asked for:
textured everywhere, which is the worst case for the size. Times are medians, by the wall clock.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, limit_threads, machine
from texseg import TextureSegmenter, read_image
from texseg.report import write_report

SAMPLE = Path(__file__).resolve().parents[1] / "sample_images" / "colour_textures.png"
_REPEATS = 5
_OPEN = """
const done = arguments[0];
(function look() {
  if (document.documentElement.dataset.ready) done(performance.now()); else setTimeout(look, 1);
})();
"""
_MOVE = """
const [name, values, done] = arguments, slider = document.getElementById(name), times = [];
const step = i => {
  if (i === values.length) return done(times);
  const start = performance.now();
  slider.value = values[i];
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  requestAnimationFrame(() => setTimeout(() => { times.push(performance.now() - start); step(i + 1); }));
};
const begin = () => document.documentElement.dataset.ready === "complete" ? step(0) : setTimeout(begin, 5);
begin();
"""


def browser() -> Any:
    """Start Chromium without a window."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(60)
    return driver


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--side", type=int, default=1024, help="pixels (default: 1024)")
    side = parser.parse_args(arguments).side
    limit_threads(2)
    print(machine(2))
    sample = read_image(SAMPLE).pixels
    repeats = -(-side // min(sample.shape[:2]))
    image = np.tile(sample, (repeats, repeats, 1))[:side, :side]
    model = TextureSegmenter(n_segments=5, channel_axis=-1).fit(image)
    numbers = list(range(len(model.hierarchy_.n_segments)))
    table = Table([("what", -40), ("value", 10), ("unit", 5)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        start = time.process_time()
        write_report(model, image, path)
        table.row(f"writing the report, {side} x {side}", time.process_time() - start, "CPU s")
        table.row("size", path.stat().st_size / 1e6, "MB")
        driver = browser()
        try:
            opened = []
            for _ in range(_REPEATS):
                driver.get(path.as_uri())
                opened.append(driver.execute_async_script(_OPEN))
            table.row("opening, until the overlay is shown", statistics.median(opened), "ms")
            moved = driver.execute_async_script(_MOVE, "number", numbers)
            table.row("slider over the hierarchy, to the frame", statistics.median(moved), "ms")
            moved = driver.execute_async_script(_MOVE, "opacity", list(range(0, 100, 5)))
            table.row("slider of the opacity, to the frame", statistics.median(moved), "ms")
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
