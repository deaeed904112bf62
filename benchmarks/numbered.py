"""Images whose number of textures is known, from many sources, to learn and to judge the choice from.

A *source* is left out as a whole when the choice is judged, so that no mosaic mixes two of them. Textures of
one mosaic come from different families, since two of one family look alike.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import SUITES, Case, read
from texseg.synth import mosaic

SOURCES = {
    "dtd": ("dtd",),
    "aerial": ("rsscn7",),
    "leather+": ("leather", "ogre", "ivust", "histology"),
    "sections+": ("petro", "sediment", "wood", "mts60"),
}
"""Sources of `textures/INDEX.csv`, put together so far that mosaics of five families and more can be made."""

SIDES = (200, 256, 320, 384, 448, 512)
SMALLEST_CLASS = 0.01
"""Share of the judged pixels below which a class is not counted."""


class Numbered(NamedTuple):
    """One image to be made when it is asked for."""

    source: str
    kind: str
    """Images of a source that are judged together, such as "2 textures"."""
    name: str
    load: Callable[[], Case]
    """In the truth, 0 is not judged."""


class _Texture(NamedTuple):
    family: str
    path: Path


def numbered(data: Path, n_mosaics: int) -> Iterator[Numbered]:
    """All images, the sources in turn, ``n_mosaics`` from each source of textures."""
    makers = [_mosaics(data, source, n_mosaics) for source in SOURCES]
    makers += [_plates(data), _fabrics(data), _singles(data), _suite(data, "outex", 40)]
    makers += [_suite(data, "rwtd", 128), _suite(data, "prague", 5), _real(data)]
    while makers:
        for maker in list(makers):
            image = next(maker, None)
            if image is None:
                makers.remove(maker)
            else:
                yield image


def _mosaics(data: Path, source: str, n: int) -> Iterator[Numbered]:
    with (data / "textures" / "INDEX.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] in SOURCES[source]]
    all_textures = [_Texture(row["family"], data / "textures" / row["file"]) for row in rows]
    n_families = len({texture.family for texture in all_textures})
    for i in range(n):
        seed = [list(SOURCES).index(source), i]
        K = 1 if i % 5 == 0 else int(np.random.default_rng(seed).integers(2, min(n_families, 12) + 1))
        yield Numbered(source, _kind(K), f"{source}-{i}", partial(_composed, all_textures, K, seed))


def _kind(K: int) -> str:
    if K < 4:
        return ("one texture", "2 textures", "3 textures")[K - 1]
    return "4 to 6" if K < 7 else "7 and more"


def _composed(textures: Sequence[_Texture], K: int, seed: Sequence[int]) -> Case:
    """Draw K families, one texture each, and lay them out."""
    rng = np.random.default_rng([*seed, K])
    order = rng.permutation(len(textures))
    chosen: dict[str, Path] = {}
    for t in order:
        chosen.setdefault(textures[t].family, textures[t].path)
    # families with many textures would come first too often: draw among the families again
    families = rng.permutation(sorted(chosen))[:K]
    images = [_rgb(chosen[family]) for family in families]
    least = 256 if K > 6 else 200
    side = int(rng.choice([s for s in SIDES if s >= least]))
    if K == 1:
        image = _crop(images[0], (side, side), rng)
        truth = np.ones(image.shape[:2], np.uint8)
    else:
        layout = "scattered" if K > 2 and side >= 384 and rng.random() < 0.3 else "voronoi"
        noise = np.zeros((8, 8))
        truth = mosaic([noise] * K, K, side, layout, rng).truth
        crops = [_crop(each, truth.shape, rng) for each in images]
        image = np.zeros((*truth.shape, 3), np.uint8)
        for k, crop in enumerate(crops, start=1):
            image[truth == k] = crop[truth == k]
    look = rng.random()
    if look < 0.6:
        image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        if look < 0.4:
            image = _equalised(image, truth)
    return Case("", image, truth)


def _rgb(path: Path) -> NDArray[np.uint8]:
    image = read(path)
    return np.dstack([image] * 3) if image.ndim == 2 else image[..., :3]


def _crop(image: NDArray[np.uint8], shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Cut a piece out at random; what is too small is enlarged, by two at most, and mirrored beyond."""
    factor = max(1.0, min(2.0, max(shape) / min(image.shape[:2])))
    if factor > 1:
        image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    missing = [max(0, shape[axis] - image.shape[axis]) for axis in (0, 1)]
    image = np.pad(image, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="symmetric")
    top, left = (int(rng.integers(image.shape[axis] - shape[axis] + 1)) for axis in (0, 1))
    return image[top : top + shape[0], left : left + shape[1]]


def _equalised(image: NDArray[np.uint8], truth: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Give every region the same mean and contrast."""
    out = np.empty_like(image)
    for k in np.unique(truth):
        inside = truth == k
        values = image[inside].astype(float)
        out[inside] = np.clip(128 + 42 * (values - values.mean()) / (values.std() + 1e-9), 0, 255)
    return out


@lru_cache(maxsize=2)
def _set(folder: Path) -> tuple[_Texture, ...]:
    return tuple(_Texture(path.stem, path) for path in sorted(folder.glob("*.png")))


def _plates(data: Path) -> Iterator[Numbered]:
    """Mosaics of Brodatz plates: two at 256 pixels, five scattered, and 3 to 14."""
    from benchmarks.datasets import textures

    def made(K: int, side: int, layout: str, seed: int) -> Case:
        image, truth = mosaic(textures(data / "brodatz"), K, side, layout=layout, random_state=seed)
        return Case("", image, truth)

    for i in range(24):
        for kind, K, side, layout in (
            ("2 at 256", 2, 256, "voronoi"),
            ("5 scattered", 5, 512, "scattered"),
            ("3 to 14", 3 + i % 12, 512 if i % 2 else 384, "voronoi"),
        ):
            yield Numbered("brodatz", kind, f"brodatz-{kind}-{i}", partial(made, K, side, layout, 1000 + i))


def _fabrics(data: Path) -> Iterator[Numbered]:
    """Mosaics of colour prints."""
    for i in range(24):
        K = 2 + i % 7
        load = partial(_composed, _set(data / "fabrics"), K, [len(SOURCES), i])
        yield Numbered("fabrics", _kind(K), f"fabrics-{i}", load)


def _singles(data: Path) -> Iterator[Numbered]:
    """One texture: plates, fabrics, and the largest square of one texture in each photograph."""
    for suite, source in (("plain", "brodatz"), ("crops", "rwtd")):
        for name in SUITES[suite].names(data)[:60]:
            load = partial(SUITES[suite].load, data, name)
            yield Numbered(source, "one texture", f"{suite}-{name}", load)
    for name in sorted(path.stem for path in (data / "fabrics").glob("*.png")):
        yield Numbered("fabrics", "one texture", f"fabric-{name}", partial(_fabric, data, name))


def _fabric(data: Path, name: str) -> Case:
    image = read(data / "fabrics" / f"{name}.png")[..., :3][:640, :640]
    return Case(name, image, np.ones(image.shape[:2], np.uint8))


def _suite(data: Path, suite: str, n: int) -> Iterator[Numbered]:
    for name in SUITES[suite].names(data)[:n]:
        yield Numbered(suite, suite, f"{suite}-{name}", partial(_from_one, SUITES[suite].load, data, name))


def _from_one(load: Callable[[Path, str], Case], data: Path, name: str) -> Case:
    case = load(data, name)
    return case._replace(truth=np.unique(case.truth, return_inverse=True)[1].reshape(case.truth.shape) + 1)


def _real(data: Path) -> Iterator[Numbered]:
    """Images of nine fields with a truth by hand."""
    for path in sorted((data / "real").glob("*/images/*.png")):
        field = path.parts[-3]
        yield Numbered(f"real {field}", "real", f"{field}-{path.stem}", partial(_judged, path))


def _judged(path: Path) -> Case:
    truth = read(path.parents[1] / "truth" / path.name)
    values, n = np.unique(truth[truth > 0], return_counts=True)
    small = values[n < SMALLEST_CLASS * n.sum()]
    image = read(path)
    judged = np.where(np.isin(truth, small), 0, truth)
    return Case(path.stem, image[..., :3] if image.ndim == 3 else image, judged)
