"""Rare textures in large scenes: is a patch in the sample, does it get its own segment, is it said if not?

Usage: python benchmarks/rare_patches.py [--side 6000] [--places 10] [--shares .02,.005] [--k given,chosen]
           [--samples content,place] [--textures FOLDER] [--first 0] [--whole] [--blind]

A scene has five textures in bent Voronoi cells, and at a random place one square of a sixth. Textures are
noise, woven, blurred, striped and cellular (`texseg.synth`), or images in a folder. The model is fitted to
crops that are chosen by content or by place, and labels the patch with its surroundings: overlap of the best
segment with the patch, and whether its place is said. With ``--whole`` the command segments the whole scene,
from a tiled TIFF; with ``--blind``, too, the crops are an even sample alone, so that only what is noted while
blocks are labelled can bring the patch in.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import tifffile
from click.testing import CliRunner
from numpy.typing import NDArray
from scipy import ndimage

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, limit_threads, machine
from texseg import cli, read_image, synth
from texseg.method import sampling
from texseg.method.blocks import ArrayWindows
from texseg.method.sampling import SceneSample, read_crops, sample_windows
from texseg.segmenter import Segmenter

_TILE = 1024  # pixels, side of the textures, which are repeated
_LAYOUT = 8  # pixels of the scene for one of its layout
_TEXTURES = 6
_KINDS: list[Any] = [(4, 0.7), (0.7, 4), (2, 2), (1, 1), (0, 0), (7, 1.5), (1.5, 7)]
_KINDS += ["weave", "stripes", "cells"]


class Planted(NamedTuple):
    """A scene with a patch."""

    image: NDArray[np.uint8]
    patch: tuple[slice, slice]


def textures(rng: np.random.Generator, folder: Path | None) -> list[NDArray[np.uint8]]:
    """Six textures of one histogram, which continue at their edges."""
    if folder is not None:
        names = sorted(path for path in folder.iterdir() if path.suffix in (".png", ".jpg", ".tif", ".gif"))
        chosen = [names[i] for i in rng.choice(len(names), _TEXTURES, replace=False)]
        planes = [_mirrored(read_image(path).pixels) for path in chosen]
    else:
        chosen = rng.permutation(len(_KINDS))[:_TEXTURES].tolist()
        planes = [_drawn(_KINDS[number], rng) for number in chosen]
    everywhere = np.ones((_TILE, _TILE), bool)
    return [
        np.uint8(255 * _unit(synth.equalize_ranks(plane, everywhere, rng))).reshape(_TILE, _TILE)
        for plane in planes
    ]


def _unit(values: NDArray[Any]) -> NDArray[Any]:
    return (values - values.min()) / (values.max() - values.min())


def _mirrored(pixels: NDArray[Any]) -> NDArray[np.float64]:
    grey = pixels if pixels.ndim == 2 else pixels.mean(axis=2)
    grey = np.concatenate([grey, grey[::-1]])
    grey = np.concatenate([grey, grey[:, ::-1]], axis=1)
    times = [-(-_TILE // side) for side in grey.shape]
    return np.tile(grey, times)[:_TILE, :_TILE].astype(float)


def _drawn(kind: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    noise = rng.normal(size=(_TILE, _TILE))
    rows, columns = np.indices(noise.shape) * (2 * np.pi / _TILE)
    if isinstance(kind, str):
        period = rng.integers(120, 220)
        if kind == "weave":
            return np.sin(period * rows) * np.sin(period * columns) + 0.6 * noise
        if kind == "stripes":
            return np.sin(period * rows + period // 2 * columns) + 0.8 * noise
        return ndimage.maximum_filter(noise, 5, mode="wrap")
    return ndimage.gaussian_filter(noise, kind, mode="wrap")


def scene(side: int, share: float, seed: int, folder: Path | None = None) -> Planted:
    """Five textures, and a patch of another."""
    rng = np.random.default_rng(seed)
    kinds = textures(rng, folder)
    small = -(-side // _LAYOUT)
    truth = synth.mosaic([np.eye(8)] * 5, 5, small, random_state=seed).truth.astype(np.uint8) - 1
    truth = cv2.resize(truth, (side, side), interpolation=cv2.INTER_NEAREST)
    length = round(side * share**0.5)
    top, left = (int(start) for start in rng.integers(0, side - length, 2))
    patch = slice(top, top + length), slice(left, left + length)
    truth[patch] = 5
    image = np.zeros((side, side), np.uint8)
    times = -(-side // _TILE)
    for number, texture in enumerate(kinds):
        inside = truth == number
        image[inside] = np.tile(texture, (times, times))[:side, :side][inside]
    return Planted(image, patch)


def overlap(labels: NDArray[np.integer], patch: tuple[slice, slice], others: NDArray[Any]) -> float:
    """Largest intersection over union of a label with the patch; ``others`` (256,) lie elsewhere."""
    inside = np.bincount(labels[patch].ravel(), minlength=256)
    everywhere = np.bincount(labels.ravel(), minlength=256) + others
    return float((inside / np.maximum(everywhere + labels[patch].size - inside, 1)).max())


def is_said(messages: list[str], patch: tuple[slice, slice]) -> bool:
    """Whether a message names a place whose middle lies in the patch."""
    for message in messages:
        for found in re.finditer(r"rows (\d+) to (\d+), columns (\d+) to (\d+)", message):
            top, bottom, left, right = map(int, found.groups())
            middle = (top + bottom) / 2, (left + right) / 2
            if all(part.start <= at < part.stop for part, at in zip(patch, middle, strict=True)):
                return True
    return False


def sample_of(planted: Planted, how: str, seed: int) -> tuple[SceneSample, float]:
    """Crops, and the CPU seconds that their choice took."""
    start, source = time.process_time(), ArrayWindows(planted.image)
    if how == "place":
        return SceneSample(sample_windows(source.shape, seed)), 0.0
    sample, _ = read_crops(source, seed)
    return sample, time.process_time() - start


def share_in(windows: list[Any], patch: tuple[slice, slice]) -> tuple[float, float]:
    """Share of the patch in crops, and of the crops in the patch."""
    both = 0
    for window in windows:
        sides = [
            max(0, min(a.stop, b.stop) - max(a.start, b.start)) for a, b in zip(window, patch, strict=True)
        ]
        both += sides[0] * sides[1]
    area = (patch[0].stop - patch[0].start) * (patch[1].stop - patch[1].start)
    return both / area, both / sum((w[0].stop - w[0].start) * (w[1].stop - w[1].start) for w in windows)


def by_crops(planted: Planted, k: int | None, how: str, seed: int) -> tuple[Any, ...]:
    """Fit to crops, label the surroundings of the patch."""
    sample, choosing = sample_of(planted, how, seed)
    windows, said = sample.windows, [str(sample)]
    start = time.process_time()
    model = Segmenter(k, random_state=0, flat_ground=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model._fit([planted.image[window] for window in windows], None, sample=sample)
    fitting = time.process_time() - start
    around = [
        slice(max(0, part.start - 400), min(side, part.stop + 400))
        for part, side in zip(planted.patch, planted.image.shape, strict=True)
    ]
    inside = tuple(
        slice(p.start - a.start, p.stop - a.start) for p, a in zip(planted.patch, around, strict=True)
    )
    labels = model.predict(planted.image[tuple(around)])
    others = np.zeros(256)
    for window, own in zip(windows, model.labels_, strict=True):  # what lies elsewhere, as in the crops
        places = [np.arange(part.start, part.stop) for part in window]
        inside_patch = [(p >= a.start) & (p < a.stop) for p, a in zip(places, planted.patch, strict=True)]
        others += np.bincount(own[~np.logical_and.outer(*inside_patch)].ravel(), minlength=256)
    others *= (planted.image.size - labels.size) / max(1, others.sum())
    found = overlap(labels, inside, others)
    said += [str(each.message) for each in caught]
    return (
        len(windows),
        *share_in(windows, planted.patch),
        model.n_segments_,
        found,
        "said" if is_said(said, planted.patch) else "",
        choosing,
        fitting,
    )


def by_command(planted: Planted, k: int | None, folder: Path) -> tuple[Any, ...]:
    """Segment the whole scene."""
    path = folder / "scene.tif"
    tifffile.imwrite(path, planted.image, tile=(512, 512), compression="zlib")
    words = ["segment", str(path), "-k", str(k or "auto"), "--memory", "1GB", "-o", str(folder / "out")]
    start = time.process_time()
    run = CliRunner().invoke(cli.main, words)
    seconds = time.process_time() - start
    assert run.exit_code == 0, run.output
    labels = tifffile.imread(folder / "out" / "scene_labels.tif")
    print(run.stderr + run.stdout, flush=True)
    said = "said" if is_said([run.stderr], planted.patch) else ""
    return (
        None,
        None,
        None,
        int(labels.max()),
        overlap(labels, planted.patch, np.zeros(256)),
        said,
        None,
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=6000)
    parser.add_argument("--places", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first place")
    parser.add_argument("--shares", default=".02,.005")
    parser.add_argument("--k", default="given,chosen")
    parser.add_argument("--samples", default="content,place")
    parser.add_argument("--textures", type=Path, help="folder with images of textures")
    parser.add_argument("--whole", action="store_true", help="the command segments the whole scene")
    parser.add_argument("--only-sample", action="store_true", help="only look for the patch in the sample")
    parser.add_argument("--blind", action="store_true", help="the same, from an even sample of crops")
    options = parser.parse_args()
    if options.blind:
        sampling._by_content = lambda survey, shape, even, n, side, seed: SceneSample(
            sample_windows(shape, seed, n, side)
        )
    limit_threads(1)
    print(machine(1))
    names = [("share", 6), ("place", 5), ("k", -6), ("sample", -7), ("crops", 5), ("in crops", 8)]
    names += [("of crops", 8), ("found", 5), ("overlap", 7), ("said", -4), ("choosing", 8), ("fit", 7)]
    table, results = Table(names), {}
    for share in map(float, options.shares.split(",")):
        for seed in range(options.first, options.first + options.places):
            planted = scene(options.side, share, seed, options.textures)
            for how in options.samples.split(","):
                if options.only_sample:
                    sample, seconds = sample_of(planted, how, seed)
                    windows = sample.windows
                    seen = share_in(windows, planted.patch)
                    table.row(f"{share:g}", seed, "", how, len(windows), *seen, None, None, "", seconds)
                    results.setdefault((share, "", how), []).append(seen[1] > 0.01)
                    continue
                for asked in options.k.split(","):
                    k = _TEXTURES if asked == "given" else None
                    if options.whole or options.blind:
                        with tempfile.TemporaryDirectory() as folder:
                            row = by_command(planted, k, Path(folder))
                    else:
                        row = by_crops(planted, k, how, seed)
                    table.row(f"{share:g}", seed, asked, how, *row)
                    results.setdefault((share, asked, how), []).append((row[4] >= 0.7, row[5] == "said"))
    for key, rows in results.items():
        good = np.mean([row if isinstance(row, np.bool_ | bool) else row[0] for row in rows])
        silent = np.mean([isinstance(row, tuple) and not any(row) for row in rows])
        print(*key, f"found {good:.0%}, silent {silent:.0%} of {len(rows)}")


if __name__ == "__main__":
    main()
