"""The images the benchmarks run on, one suite a name; each case is made when it is asked for."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree

from texseg.synth import mosaic

N_SEEDS = 20
N_FAMILY_SEEDS = 28  # four mosaics of each number of textures
SAMPLES = Path(__file__).resolve().parents[1] / "sample_images"
SMALLEST_CROP = 128
SMALLEST_SHARE = 0.01  # of the judged pixels of a real image; smaller classes are not judged
SIDES = (200, 256, 320, 384, 448, 512)
N_GRAINS = 20
N_FILLED = 900
N_EQUALISED = 167  # mosaics a source: five hundred together
RARE_SHARES = (1, 2, 5)  # per cent of the image that a square of another plate covers
RARE_PAIRS = ("D009+D024", "D004+D017", "D004+D020")
N_RARE_PAIRS = 13  # the three above and ten drawn at random


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


def _real(folder: str, title: str) -> Suite:
    """Images of several fields with a truth by hand, named "field/image"."""

    def names(data: Path) -> list[str]:
        files = (data / folder).glob("*/truth/*.png")
        return sorted(f"{path.parts[-3]}/{path.stem}" for path in files)

    def load(data: Path, name: str) -> Case:
        field, stem = name.split("/")
        image = read(next((data / folder / field / "images").glob(f"{stem}.*")))
        truth = read(data / folder / field / "truth" / f"{stem}.png").copy()
        values, areas = np.unique(truth[truth > 0], return_counts=True)
        truth[np.isin(truth, values[areas < SMALLEST_SHARE * areas.sum()])] = 0
        return Case(name, image[..., :3] if image.ndim == 3 else image, truth, ignore_label=0)

    return Suite(title, names, load, True)


class Texture(NamedTuple):
    """A file that shows one texture."""

    family: str
    """Images of one family may look alike."""
    path: Path
    source: str


@lru_cache(maxsize=8)
def texture_files(data: Path, folder: str) -> tuple[Texture, ...]:
    """The files of a folder of single textures."""
    index = data / folder / "INDEX.csv"
    if not index.exists():
        return tuple(Texture(p.stem, p, folder) for p in sorted((data / folder).glob("*.png")))
    with index.open(newline="") as table:
        rows = list(csv.DictReader(table))
    return tuple(Texture(row["family"], data / folder / row["file"], row["source"]) for row in rows)


def _single(folder: str, title: str) -> Suite:
    """One texture, one segment."""

    def load(data: Path, name: str) -> Case:
        image = read(data / folder / name)
        return Case(name, image, np.ones(image.shape[:2], np.uint8))

    return Suite(title, lambda data: sorted(t.path.name for t in texture_files(data, folder)), load, False)


def composed(
    files: Sequence[Texture],
    K: int,
    seed: Sequence[int],
    *,
    look: str | None = None,
    sides: Sequence[int] = SIDES,
) -> Case:
    """Draw K families, one texture each, and lay them out."""
    rng = np.random.default_rng([*seed, K])
    chosen: dict[str, Path] = {}
    for t in rng.permutation(len(files)):
        chosen.setdefault(files[t].family, files[t].path)
    # families with many textures would come first too often: draw among the families again
    images = [rgb(read(chosen[family])) for family in rng.permutation(sorted(chosen))[:K]]
    return laid_out(images, rng, look, sides)


def laid_out(
    images: Sequence[NDArray[np.uint8]],
    rng: np.random.Generator,
    look: str | None = None,
    sides: Sequence[int] = SIDES,
) -> Case:
    """Make a mosaic of colour images (H, W, 3): "equalised" and "grey", or in "colour"; drawn if not said."""
    K = len(images)
    least = 256 if K > 6 else min(sides)
    side = int(rng.choice([s for s in sides if s >= least]))
    if K == 1:
        image = _cut(images[0], (side, side), rng)
        truth = np.ones(image.shape[:2], np.uint8)
    else:
        layout = "scattered" if K > 2 and side >= 384 and rng.random() < 0.3 else "voronoi"
        truth = mosaic([np.zeros((8, 8))] * K, K, side, layout, rng).truth
        image = np.zeros((*truth.shape, 3), np.uint8)
        for k, each in enumerate(images, start=1):
            image[truth == k] = _cut(each, truth.shape, rng)[truth == k]
    look = look or str(rng.choice(["equalised", "grey", "colour"], p=[0.4, 0.2, 0.4]))
    if look != "colour":
        image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        image = _equalised(image, truth) if look == "equalised" else image
    return Case("", image, truth)


def rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Three channels of a grey or colour image."""
    return np.dstack([image] * 3) if image.ndim == 2 else image[..., :3]


def _cut(image: NDArray[np.uint8], shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.uint8]:
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
        out[truth == k] = _standardized(image[truth == k])
    return out


def _equalised_names(data: Path) -> list[str]:
    return [f"{folder}/{i}" for i in range(N_EQUALISED) for folder in ("brodatz", "fabrics", "textures")]


def _equalised_mosaic(data: Path, name: str) -> Case:
    """Three to eight textures of equal mean and contrast: plain values must never divide them."""
    folder, seed = name.split("/")
    K = 3 + int(seed) % 6
    case = composed(texture_files(data, folder), K, [5, int(seed)], look="equalised", sides=(384, 448, 512))
    return case._replace(name=name)


def _grains(data: Path, name: str) -> Case:
    """Two to five kinds of grains that differ in brightness alone, under noise, smaller than most windows."""
    rng, K = np.random.default_rng(int(name)), 2 + int(name) % 4
    side = int(rng.choice([160, 256, 384]))
    n_grains = side**2 // int(rng.choice([150, 300, 500, 900, 1500]))  # pixels each
    middles = rng.uniform(size=(n_grains, 2)) * side
    own = KDTree(middles).query(np.indices((side, side)).reshape(2, -1).T)[1]
    kinds = np.unique(rng.choice(K, n_grains, p=rng.dirichlet(np.full(K, 3.0))), return_inverse=True)[1]
    truth = kinds[own].reshape(side, side)
    levels = np.sort(rng.choice(np.arange(40, 216, 25), K, replace=False))
    image = levels[truth] + rng.normal(0, rng.uniform(6, 18), truth.shape)
    return Case(name, image.clip(0, 255).astype(np.uint8), (truth + 1).astype(np.uint8))


def _shape_of(data: Path, seed: int) -> tuple[str, str, np.random.Generator]:
    """Suite and name of a real scene, and the generator that drew it."""
    rng = np.random.default_rng(5000 + seed)
    scenes = [(suite, scene) for suite in ("real", "real_more") for scene in SUITES[suite].names(data)]
    return *scenes[int(rng.integers(len(scenes)))], rng


def _filled_names(data: Path) -> list[str]:
    return [f"{_shape_of(data, seed)[1].split('/')[0]}/{seed}" for seed in range(N_FILLED)]


def _filled(data: Path, name: str) -> Case:
    """Textures in their own colours, in the shapes of a real scene, under slow light, blur and noise."""
    suite, scene, rng = _shape_of(data, int(name.split("/")[1]))
    case = SUITES[suite].load(data, scene)
    truth = case.truth
    classes = np.setdiff1d(truth, [0])
    by_family: dict[str, list[Path]] = {}
    for texture in (*texture_files(data, "textures"), *texture_files(data, "textures_more")):
        by_family.setdefault(texture.family, []).append(texture.path)
    families = list(by_family.values())
    chosen = rng.choice(len(families), len(classes), replace=False)
    image, is_grey = np.zeros((*truth.shape, 3), np.float32), case.image.ndim == 2 or rng.random() < 0.3
    shapes = truth[tuple(distance_transform_edt(truth == 0, return_distances=False, return_indices=True))]
    for k, i in zip(classes, chosen, strict=True):
        paths = families[i]
        texture = rgb(read(paths[int(rng.integers(len(paths)))]))
        scale = rng.uniform(0.5, 1.2)
        texture = cv2.resize(texture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        missing = [max(0, truth.shape[axis] - texture.shape[axis]) for axis in (0, 1)]
        texture = np.pad(texture, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="symmetric")
        top, left = (int(rng.integers(texture.shape[axis] - truth.shape[axis] + 1)) for axis in (0, 1))
        cut = texture[top : top + truth.shape[0], left : left + truth.shape[1]]
        image[shapes == k] = cut[shapes == k]
    if rng.random() < 0.3:  # partly alike in brightness
        for k in classes:
            image[shapes == k] += rng.uniform(0.3, 0.9) * (110 - image[shapes == k].mean(axis=0))
    if rng.random() < 0.5:
        angle, (rows, columns) = rng.uniform(0, 2 * np.pi), np.indices(truth.shape)
        slope = np.cos(angle) * rows / truth.shape[0] + np.sin(angle) * columns / truth.shape[1]
        image *= (1 + rng.uniform(0.1, 0.5) * (slope - slope.mean()))[..., None]
    image = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.4, 1.2))
    image += rng.normal(0, rng.uniform(0, 6), image.shape)
    pixels = image.clip(0, 255).astype(np.uint8)
    return Case(name, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) if is_grey else pixels, truth, 0)


def _rare_names(data: Path) -> list[str]:
    plates = [texture.family for texture in texture_files(data, "brodatz")]
    rng = np.random.default_rng(0)
    drawn = ["+".join(rng.choice(plates, 2, replace=False)) for _ in range(N_RARE_PAIRS - len(RARE_PAIRS))]
    return [f"{share}/{pair}" for pair in (*RARE_PAIRS, *drawn) for share in RARE_SHARES]


def _rare(data: Path, name: str) -> Case:
    """A plate, and one square of another on it."""
    share, pair = name.split("/")
    rng = np.random.default_rng([int(share), *map(ord, pair)])
    ground, other = (
        _standardized(_cut(rgb(read(data / "brodatz" / f"{plate}.png")), (512, 512), rng)[..., 0])
        for plate in pair.split("+")
    )
    side = round(512 * np.sqrt(int(share) / 100))
    top, left = (int(rng.integers(32, 480 - side)) for _ in range(2))
    truth = np.ones(ground.shape, np.uint8)
    truth[top : top + side, left : left + side] = 2
    return Case(name, np.where(truth == 2, other, ground), truth)


def _family_mosaic(data: Path, name: str) -> Case:
    """Textures of 2 to 8 families; every second mosaic is grey."""
    seed = int(name)
    rng = np.random.default_rng(seed)
    by_family: dict[str, list[Path]] = {}
    for texture in texture_files(data, "textures"):
        by_family.setdefault(texture.family, []).append(texture.path)
    families = list(by_family.values())
    chosen = rng.choice(len(families), 2 + seed % 7, replace=False)
    images = [read(families[i][rng.integers(len(families[i]))]) for i in chosen]
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
        window = largest_square(_rwtd(data, name).truth)
        if window[0].stop - window[0].start >= SMALLEST_CROP:
            crops[name] = window
    return crops


def largest_square(labels: NDArray, among: Sequence[int] | None = None) -> tuple[slice, slice]:
    """Find the largest square of odd side inside one region, of some labels or of any."""
    best = (slice(0, 0), slice(0, 0))
    for label in np.unique(labels) if among is None else among:
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
    "real": _real("real", "real images of nine fields"),
    "real_more": _real("real_more", "real images of ten more fields"),
    "textures": _single("textures", "one texture of ten sources"),
    "textures_more": _single("textures_more", "one texture of seven more sources"),
    "equalised": Suite("3-8 textures, equal mean and contrast", _equalised_names, _equalised_mosaic, True),
    "grains": Suite(
        "2-5 kinds of grains of other brightness",
        lambda data: [str(seed) for seed in range(N_GRAINS)],
        _grains,
        True,
    ),
    "filled": Suite(
        "textures in the shapes of real scenes",
        _filled_names,
        _filled,
        True,
    ),
    "rare": Suite("a square of another plate", _rare_names, _rare, True),
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
