"""Images whose number of textures is known, from many sources, to learn and to judge the choice from.

A *source* is left out as a whole when the choice is judged, so that no mosaic mixes two of them, and a field
of real images is a source together with the crops that are cut from it. Textures of one mosaic come from
different families, since two of one family look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import SUITES, Case, composed, laid_out, largest_square, rgb, texture_files

SOURCES = {
    "dtd": ("textures", ("dtd",)),
    "aerial": ("textures", ("rsscn7",)),
    "leather+": ("textures", ("leather", "ogre", "ivust", "histology")),
    "sections+": ("textures", ("petro", "sediment", "wood", "mts60")),
    "walls": ("textures_more", ("acwalls",)),
    "ground": ("textures_more", ("acground", "soil")),
    "synthetic": ("textures_more", ("torley",)),
    "stone+": ("textures_more", ("dziq", "kylberg", "coralcrop")),
    "brodatz": ("brodatz", ("brodatz",)),
    "fabrics": ("fabrics", ("fabrics",)),
}
"""Folder and sources of its index, put together so far that mosaics of five families and more can be made."""
NUMBERS = (2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12)
FIELDS = ("rwtd", "real", "real_more")
"""Suites from which crops inside one region are cut."""
SMALLEST_PART = 96  # pixels; side of such a crop
LEAST_SIDE, MOST_SIDE = 200, 512


class Numbered(NamedTuple):
    """One image to be made when it is asked for."""

    source: str
    kind: str
    """Images of a source that are judged together, such as "2 textures"."""
    name: str
    load: Callable[[], Case]
    """In the truth, 0 is not judged."""


def numbered(data: Path, n_mosaics: int) -> Iterator[Numbered]:
    """All images, the sources in turn, ``n_mosaics`` from each folder of textures."""
    folders = [folder for folder, _ in SOURCES.values()]
    makers = [_mosaics(data, source, n_mosaics // folders.count(SOURCES[source][0])) for source in SOURCES]
    makers *= 3  # of mosaics there are more, and their turn comes as much more often
    makers += [_suite(data, suite, SUITES[suite].names(data)) for suite in ("plain", "outex", "prague")]
    for suite in FIELDS:
        for _, names in groupby(SUITES[suite].names(data), key=field):
            listed = list(names)
            makers += [_suite(data, suite, listed), _crops(data, suite, listed)]
    while makers:
        for maker in list(makers):
            image = next(maker, None)
            if image is None:
                makers.remove(maker)
            else:
                yield image


def _mosaics(data: Path, source: str, n: int) -> Iterator[Numbered]:
    folder, names = SOURCES[source]
    textures = [texture for texture in texture_files(data, folder) if texture.source in names]
    n_families = len({texture.family for texture in textures})
    numbers = [K for K in NUMBERS if K <= n_families]
    for i in range(n if numbers else 0):
        seed = [list(SOURCES).index(source), i]
        K = 1 if i % 5 == 0 else int(np.random.default_rng(seed).choice(numbers))
        yield Numbered(source, _kind(K), f"{source}-{i}", partial(composed, textures, K, seed))


def _kind(K: int) -> str:
    if K < 4:
        return ("one texture", "2 textures", "3 textures")[K - 1]
    return "4 to 6" if K < 7 else "7 and more"


def field(name: str) -> str:
    """Field of a real image; of others, nothing."""
    return name.partition("/")[0] if "/" in name else ""


def _suite(data: Path, suite: str, names: Sequence[str]) -> Iterator[Numbered]:
    for name in names:
        source, kind = ("brodatz", "one texture") if suite == "plain" else (field(name) or suite, "whole")
        yield Numbered(source, kind, f"{suite}-{name}", partial(_from_one, suite, data, name))


def _from_one(suite: str, data: Path, name: str) -> Case:
    """Load an image with truth from 1, and 0 where it is not judged."""
    case = SUITES[suite].load(data, name)
    truth = np.unique(case.truth, return_inverse=True)[1].reshape(case.truth.shape)
    return case._replace(truth=truth + (case.ignore_label is None or case.ignore_label not in case.truth))


def _crops(data: Path, suite: str, names: Sequence[str]) -> Iterator[Numbered]:
    """Squares inside one region of real images: alone, and two regions of one image side by side."""
    for name in names:
        case = _from_one(suite, data, name)
        parts = [part for k in range(1, case.truth.max() + 1) if len(part := _part(case, k)) >= SMALLEST_PART]
        if len(parts) > 1:
            load = partial(_crop, *parts[:2])
            yield Numbered(field(name) or suite, "2 textures", f"crops-{suite}-{name}", load)
        for i, part in enumerate(parts[:2]):
            source = field(name) or suite
            yield Numbered(source, "one texture", f"crop-{suite}-{name}-{i}", partial(_crop, part))


def _part(case: Case, label: int) -> NDArray[np.uint8]:
    return rgb(case.image[largest_square(case.truth, [label])])


def _crop(*parts: NDArray[np.uint8]) -> Case:
    """One part as it is, or several in a mosaic as they are."""
    if len(parts) > 1:
        side = min(max(LEAST_SIDE, *(len(part) for part in parts)), MOST_SIDE)
        return laid_out(parts, np.random.default_rng(side), "colour", [side])
    return Case("", parts[0], np.ones(parts[0].shape[:2], np.uint8))
