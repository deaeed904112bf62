"""The images the benchmarks run on, one suite a name; each case is made when it is asked for."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from texseg.synth import mosaic

N_SEEDS = 20
N_FAMILY_SEEDS = 28  # four mosaics of each number of textures
SAMPLES = Path(__file__).resolve().parents[1] / "sample_images"
SMALLEST_CROP = 128
SMALLEST_SHARE = 0.01  # of the judged pixels of a real image; smaller classes are not judged


class Case(NamedTuple):
    """One image with its truth."""

    name: str
    image: NDArray[np.uint8]
    """(H, W), or (H, W, 3) for colour."""
    truth: NDArray[np.integer]
    """(H, W), any values."""
    ignore_label: int | None = None
    """Where the truth has this value nothing is judged."""

    @property
    def n_segments(self) -> int:
        return len(np.setdiff1d(self.truth, [] if self.ignore_label is None else [self.ignore_label]))

    @property
    def channel_axis(self) -> int | None:
        return -1 if self.image.ndim == 3 else None


class Suite(NamedTuple):
    """A set of cases with a title."""

    title: str
    names: Callable[[Path], list[str]]
    """Names of all cases, from the data folder."""
    load: Callable[[Path, str], Case]
    """The case of that name."""
    is_number_given: bool
    """Whether running with the number of segments given makes sense."""


def read(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image)


def _natural(paths: list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (len(path.stem), path.stem))


def _files(folder: str, pattern: str) -> Callable[[Path], list[str]]:
    def names(data: Path) -> list[str]:
        return [path.stem for path in _natural(list((data / folder).glob(pattern)))]

    return names


def _outex(data: Path, name: str) -> Case:
    return Case(name, read(data / "outex" / f"{name}.png"), read(data / "outex" / "gt.png"))


def _prague(data: Path, name: str) -> Case:
    folder = data / "prague_gray"
    return Case(name, read(folder / f"{name}.png"), read(folder / f"gt{name[2:].removesuffix('_1')}.png"))


def _rwtd(data: Path, name: str) -> Case:
    labels = next((data / "rwtd" / "labels").glob(f"{name}.*"))
    truth = read(labels)
    return Case(
        name, read(data / "rwtd" / "images" / f"{name}.jpg"), truth if truth.ndim == 2 else truth[..., 0]
    )


def _samples(data: Path, name: str) -> Case:
    return Case(name, read(SAMPLES / f"{name}.png"), read(SAMPLES / f"{name}_truth.png"))


def _real_names(data: Path) -> list[str]:
    """Images of all fields, by field; those of a field with truth for every second image."""
    files = (data / "real").glob("*/truth/*.png")
    return sorted(f"{path.parts[-3]}/{path.stem}" for path in files)


def _real(data: Path, name: str) -> Case:
    field, stem = name.split("/")
    image = read(next((data / "real" / field / "images").glob(f"{stem}.*")))
    truth = read(data / "real" / field / "truth" / f"{stem}.png").copy()
    values, areas = np.unique(truth[truth > 0], return_counts=True)
    truth[np.isin(truth, values[areas < SMALLEST_SHARE * areas.sum()])] = 0
    return Case(name, image, truth, ignore_label=0)


@lru_cache(maxsize=1)
def _families(data: Path) -> dict[str, list[str]]:
    """Files of `textures` by family: images of one family may look alike."""
    families: dict[str, list[str]] = {}
    with (data / "textures" / "INDEX.csv").open(newline="") as table:
        for row in csv.DictReader(table):
            families.setdefault(row["family"], []).append(row["file"])
    return families


def _texture_names(data: Path) -> list[str]:
    return sorted(name for names in _families(data).values() for name in names)


def _texture(data: Path, name: str) -> Case:
    """One texture, one segment."""
    image = read(data / "textures" / name)
    return Case(name, image, np.ones(image.shape[:2], np.uint8))


def _family_mosaic(data: Path, name: str) -> Case:
    """Textures of 2 to 8 families; every second mosaic is grey."""
    seed = int(name)
    rng = np.random.default_rng(seed)
    families = list(_families(data).values())
    chosen = rng.choice(len(families), 2 + seed % 7, replace=False)
    images = [read(data / "textures" / str(rng.choice(families[i]))) for i in chosen]
    colour = [image[..., :3] if image.ndim == 3 else np.stack([image] * 3, axis=-1) for image in images]
    if seed % 2:
        colour = [cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY) for image in colour]
    return Case(name, *mosaic(colour, len(colour), random_state=seed))


@lru_cache(maxsize=2)
def textures(folder: Path) -> tuple[NDArray[np.uint8], ...]:
    """All textures of a folder, grey ones with mean and contrast made alike."""
    images = [read(path) for path in _natural(list(folder.glob("*.png")))]
    return tuple(_standardized(image) if image.ndim == 2 else image[..., :3] for image in images)


def _standardized(image: NDArray) -> NDArray[np.uint8]:
    standard = (image - image.mean()) / image.std()
    return np.clip(np.round(128 + 42 * standard), 0, 255).astype(np.uint8)


def _mosaics(folder: str, n_segments: Callable[[int], int], layout: str) -> dict:
    def names(data: Path) -> list[str]:
        return [str(seed) for seed in range(N_SEEDS)]

    def load(data: Path, name: str) -> Case:
        seed = int(name)
        image, truth = mosaic(textures(data / folder), n_segments(seed), layout=layout, random_state=seed)
        return Case(name, image, truth)

    return {"names": names, "load": load}


def _between(low: int, high: int) -> Callable[[int], int]:
    return lambda seed: low + seed % (high - low + 1)


def _plate(data: Path, name: str) -> Case:
    """A whole plate: one texture, one segment."""
    image = read(data / "brodatz" / f"{name}.png")
    return Case(name, image, np.ones(image.shape, np.uint8))


@lru_cache(maxsize=1)
def _crops(data: Path) -> dict[str, tuple[slice, slice]]:
    """The largest square inside one region of each photograph that has a large one."""
    crops = {}
    for name in _files("rwtd/images", "*.jpg")(data):
        window = _largest_square(_rwtd(data, name).truth)
        if window[0].stop - window[0].start >= SMALLEST_CROP:
            crops[name] = window
    return crops


def _largest_square(labels: NDArray) -> tuple[slice, slice]:
    """Find the largest square of odd side inside one region."""
    best = (slice(0, 0), slice(0, 0))
    for label in np.unique(labels):
        region = np.pad((labels == label).astype(np.uint8), 1)
        reach = cv2.distanceTransform(region, cv2.DIST_C, 3)[1:-1, 1:-1]
        row, column = np.unravel_index(reach.argmax(), reach.shape)
        half = int(reach.max()) - 1
        if 2 * half + 1 > best[0].stop - best[0].start:
            best = slice(row - half, row + half + 1), slice(column - half, column + half + 1)
    return best


def _crop(data: Path, name: str) -> Case:
    image = _rwtd(data, name).image[_crops(data)[name]]
    return Case(name, image, np.ones(image.shape[:2], np.uint8))


SUITES = {
    "outex": Suite("Outex_US_00000, 5 textures", _files("outex", "[0-9]*.png"), _outex, True),
    "prague": Suite("Prague, grey", _files("prague_gray", "tm*.png"), _prague, True),
    "rwtd": Suite("RWTD photographs, colour", _files("rwtd/images", "*.jpg"), _rwtd, True),
    "brodatz5v": Suite(
        "Brodatz, 5 voronoi", **_mosaics("brodatz", _between(5, 5), "voronoi"), is_number_given=True
    ),
    "brodatz5s": Suite(
        "Brodatz, 5 scattered", **_mosaics("brodatz", _between(5, 5), "scattered"), is_number_given=True
    ),
    "brodatz12v": Suite(
        "Brodatz, 12 voronoi", **_mosaics("brodatz", _between(12, 12), "voronoi"), is_number_given=True
    ),
    "brodatz2-4": Suite(
        "Brodatz, 2-4 voronoi", **_mosaics("brodatz", _between(2, 4), "voronoi"), is_number_given=True
    ),
    "brodatz5-8": Suite(
        "Brodatz, 5-8 voronoi", **_mosaics("brodatz", _between(5, 8), "voronoi"), is_number_given=True
    ),
    "brodatz9-12": Suite(
        "Brodatz, 9-12 voronoi", **_mosaics("brodatz", _between(9, 12), "voronoi"), is_number_given=True
    ),
    "fabrics5v": Suite(
        "fabrics, colour, 5 voronoi", **_mosaics("fabrics", _between(5, 5), "voronoi"), is_number_given=True
    ),
    "plain": Suite("one Brodatz plate", _files("brodatz", "*.png"), _plate, False),
    "crops": Suite("one texture of a photograph", lambda data: list(_crops(data)), _crop, False),
    "real": Suite("real images of nine fields", _real_names, _real, True),
    "textures": Suite("one texture of many sources", _texture_names, _texture, False),
    "textures2-8": Suite(
        "2-8 textures of different families",
        lambda data: [str(seed) for seed in range(N_FAMILY_SEEDS)],
        _family_mosaic,
        True,
    ),
    "samples": Suite(
        "sample images with truth",
        lambda data: sorted(path.stem.removesuffix("_truth") for path in SAMPLES.glob("*_truth.png")),
        _samples,
        True,
    ),
}
"""All suites by name; `samples` needs no data folder."""
