"""From which crops of a large scene textures are learned: a cheap look at all of it finds what is unlike.

Histograms of differences of values at a few lags are counted in small windows all over the scene. An even
sample of crops comes first; then, one after the other, crops that bring in most of what is unlike everything
in the crops so far (k-means++, with the best candidate in place of a random one). Two windows are unlike if
their squared Hellinger distance is several times that between neighbours, which are mostly of one texture.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import connected_parts, of_each, shortened
from texseg.method.labelling import Window
from texseg.progress import expected_memory

CROP_SIDE = 512
CROPS = 16
"""Textures are learned from this many crops of this side; see ``benchmarks/blocks.py``."""

CROP_SIDE_IN_SPACE, CROPS_IN_SPACE = 96, 8  # of volumes; they are spread evenly, without a look at the rest
CROP_OF_STACK = 8, 256, 256  # of a stack, whose textures lie in its planes

NO_DATA = "no valid pixels: all are masked, transparent, not finite or equal to the no-data value"

_SIDE, _PITCH = 96, 128  # pixels, of windows and from one to the next
_UNIT = 512  # pixels, side of the squares of windows that are looked at or left out together
_MOST_UNITS = 1024  # with more, every second or third row and column of them is looked at
_PIECE = 2**23  # pixels read at once
_LAGS = ((0, 1), (1, 0), (0, 2), (2, 0), (1, 1), (1, -1), (0, 5), (5, 0), (3, 3), (3, -3))
_BINS = 12
_FINE = 6.0  # bins of the square root of a difference of one standard deviation
_HELD = 0.9  # share of a window that must hold data
_UNLIKE = 3.0  # times the distance from a window to the likest of its neighbours
_EVEN = 0.6  # share of the crops that are spread evenly whatever they show
_CANDIDATES = 300  # windows, the most unlike, of which the next crop is chosen
FEWEST_CROPS = 4  # of which one can show what the others do not
_SAID = 0.001  # least share of a scene that is said to be like none of the crops


class SceneSample(NamedTuple):
    """Crops from which textures are learned, and what is known of the rest; print it to read it in words."""

    windows: list[Window]
    by_content: int = 0
    """How many were chosen because the crops before them show nothing like them."""
    looked_at: float = 1.0
    """Share of the pixels that were looked at, the crops apart."""
    unlike: float = 0.0
    """Share of these that is like none of the crops."""
    place: Window | None = None
    """Where most of that lies; None where it is too little to be said."""
    again: int = 0
    """How many show what no texture explained that had been learned from others."""

    def __str__(self) -> str:
        n, side = len(self.windows), max(part.stop - part.start for window in self.windows for part in window)
        text = f"{'one crop' if n == 1 else f'{n} crops'} of {side} pixels"
        if self.by_content:
            text += f", {self.by_content} of them where the scene is unlike an even sample of it"
        if self.place is not None:
            text += (
                f"; {self.unlike:.2%} of the scene is like none of them, most of it at {placed(self.place)}"
            )
        return text

    def record(self) -> dict[str, Any]:
        """Give what a record keeps; places are first and last row, first and last column."""
        places = [[end for part in w for end in (part.start, part.stop - 1)] for w in self.windows]
        place = None if self.place is None else placed(self.place)
        return {**self._asdict(), "windows": places, "place": place}


def learns_again(sample: Mapping[str, Any], n_segments: int | None, grow: bool) -> bool:
    """Tell from the record of a sample whether what no texture explains may join it: once, if it can grow."""
    may_grow = n_segments is not None or grow
    return may_grow and sample.get("again") == 0 and len(sample["windows"]) >= FEWEST_CROPS


LABELLED_AGAIN = "no texture explained {}: texseg learned from there as well, and labelled the image again"


def unexplained(places: Sequence[Window], n_segments: int) -> str:
    """Name places that no texture explains, and say what to do."""
    more = n_segments + 1
    remedy = f"if that is another texture, try n_segments={more} (-k {more})"
    return f"no texture explains {placed(*places)}: {remedy}"


def placed(*windows: Window) -> str:
    """Put rows and columns (of volumes, planes first) into words, of three places at most."""
    names = ("planes", "rows", "columns")
    text = "; ".join(
        ", ".join(
            f"{name} {part.start} to {part.stop - 1}"
            for name, part in zip(names[-len(window) :], window, strict=True)
        )
        for window in windows[:3]
    )
    return text + (f" and {len(windows) - 3} other places" if len(windows) > 3 else "")


class _Survey(NamedTuple):
    """Small windows all over a scene."""

    places: NDArray[np.intp]  # (n, 2), first row and column
    tables: NDArray[np.float32]  # (n, C * bins), square roots of histograms; they sum to one
    noise: NDArray[np.float32]  # (n,), distances beyond which others are unlike
    held: list[Window]  # units that hold data

    def seen_in(self, window: Window) -> NDArray[np.bool_]:
        """Which small windows have their middle in a window."""
        first, end = ([getattr(part, name) for part in window] for name in ("start", "stop"))
        middles = self.places + _SIDE // 2
        return np.all((middles >= first) & (middles < end), axis=1)

    def distances(self, which: Any) -> NDArray[np.float32]:
        """Squared Hellinger distances (n, m) of all to some."""
        return 1 - self.tables @ self.tables[which].T


def crops_in(n_axes: int) -> tuple[int, int]:
    """Most crops that textures are learned from, and their side."""
    return (CROPS, CROP_SIDE) if n_axes == 2 else (CROPS_IN_SPACE, CROP_SIDE_IN_SPACE)


def crop_count(memory: int | None, n_channels: int, n_axes: int = 2) -> int:
    """Return the number of crops to learn from: fewer only if the memory given does not allow all."""
    most, side = crops_in(n_axes)
    fitting = [
        n
        for n in range(1 if memory is not None else most, most + 1)
        if expected_memory(n * side**n_axes, n_channels, n_axes=n_axes) <= (memory or math.inf)
    ]
    return max(fitting, default=1)


def read_crops(
    source: Any, random_state: Any = 0, n_crops: int = CROPS, side: Any = None, places: Sequence[Window] = ()
) -> tuple[SceneSample, list[Any]]:
    """Choose crops of a scene by what they show; give them, and the pixels and mask of those that hold data.

    Of volumes the sample is even, by a ``side`` for each axis.

    ``source`` has ``shape`` and ``read(window)``, see :func:`texseg.method.blocks.read_blocks`. In up to a
    quarter of the crops ``places`` are shown, whatever else is.
    """
    seed = int(random_state) if isinstance(random_state, (int, np.integer)) else 0
    is_image = len(source.shape) == 2
    side = side or (CROP_SIDE if is_image else CROP_SIDE_IN_SPACE)
    n_crops = min(n_crops, math.prod(shortened(source.shape, of_each(side, len(source.shape)))))
    sample = SceneSample(sample_windows(source.shape, seed, n_crops, side))
    parts = zip(sample.windows[0], source.shape, strict=True)
    if is_image and any(part.stop - part.start < n for part, n in parts):
        survey = _survey(source, thinned=True)
        if not survey.held:  # data may lie where nothing was looked at
            survey = _survey(source, thinned=False)
        few = sample.windows
        for n in range(math.ceil(_EVEN * n_crops), 0, -1):  # crops, which a grid may exceed
            few = few if len(few) < n_crops else sample_windows(source.shape, seed, n, side)
        sample = _by_content(survey, source.shape, few, n_crops, side, seed)
    shown: list[Window] = []
    for place in places:
        middle = [(part.start + part.stop) / 2 for part in place]
        seen = (all(p.start <= at < p.stop for p, at in zip(w, middle, strict=True)) for w in shown)
        if len(shown) < n_crops // 4 and not any(seen):
            shown.append(window_around(middle, source.shape, side))
    surplus = max(0, len(sample.windows) + len(shown) - n_crops)
    windows = [*sample.windows[surplus:], *shown]  # the first ones are even, the next were chosen
    crops = [source.read(window) for window in windows]
    kept = [i for i, crop in enumerate(crops) if valid_pixels(crop[0], crop[1], len(source.shape)).any()]
    if not kept:
        raise ValueError(NO_DATA)
    sample = sample._replace(windows=[windows[i] for i in kept], again=len(shown))
    return sample, [crops[i] for i in kept]


def valid_pixels(pixels: NDArray[Any], mask: Any, n_axes: int = 2) -> NDArray[np.bool_]:
    """Tell which pixels of an image of so many axes, and channels after them, hold data."""
    valid = np.ones(pixels.shape[:n_axes], bool) if mask is None else np.asarray(mask)
    if pixels.dtype.kind != "f":
        return valid
    finite = np.isfinite(pixels)
    return valid & (finite if finite.ndim == n_axes else finite.all(axis=-1))


def _survey(source: Any, thinned: bool) -> _Survey:
    """Look at the units of a scene, or at every so manieth row and column of many."""
    H, W = source.shape
    n_units = math.ceil(H / _UNIT) * math.ceil(W / _UNIT)
    step = max(1, round(math.sqrt(n_units / _MOST_UNITS))) if thinned else 1
    rows = max(1, getattr(source, "rows_at_once", 0) // _UNIT) * _UNIT
    columns = max(1, _PIECE // rows // _UNIT) * _UNIT
    places = [np.zeros((0, 2), np.intp)]
    tables = [np.zeros((0, _BINS * (1 + len(_LAGS))), np.float32)]
    held: list[Window] = []
    for top in range(0, H, rows):
        tops = [y for y in range(top, min(top + rows, H), _UNIT) if y // _UNIT % step == 0]
        for left in range(0, W, columns) if tops else ():
            piece = slice(tops[0], min(tops[-1] + _UNIT, H)), slice(left, min(left + columns, W))
            pixels, mask = source.read(piece)[:2]
            with np.errstate(over="ignore"):
                grey = pixels if pixels.ndim == 2 else pixels.mean(axis=-1, dtype=np.float32)
                grey = np.where(valid_pixels(pixels, mask), grey, np.nan).astype(np.float32)
            lefts = [x for x in range(left, piece[1].stop, _UNIT) if x // _UNIT % step == 0]
            for y, x in ((y, x) for y in tops for x in lefts):
                unit = grey[y - piece[0].start :, x - left :][:_UNIT, :_UNIT]
                if np.isfinite(unit).any():
                    held.append((slice(y, y + unit.shape[0]), slice(x, x + unit.shape[1])))
                    starts, windows = _windows_of(unit)
                    places.append(starts + np.array([y, x]))
                    tables.append(_tables(windows))
    where, counted = np.concatenate(places), np.concatenate(tables)
    return _Survey(where, counted, _UNLIKE * _of_neighbours(where, counted), held)


def _windows_of(unit: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """First rows and columns (n, 2) of the windows of a unit that hold data, and their values (n, h, w)."""
    rows, columns = (range(0, length - _SIDE + 1, _PITCH) for length in unit.shape)
    starts = np.array([(y, x) for y in rows for x in columns], np.intp).reshape(-1, 2)
    windows = np.array([unit[y : y + _SIDE, x : x + _SIDE] for y, x in starts]).reshape(-1, _SIDE, _SIDE)
    finite = np.isfinite(windows)
    kept = finite.mean(axis=(1, 2)) >= _HELD
    windows, finite = windows[kept], finite[kept]
    if not finite.all():
        windows = np.where(finite, windows, np.nanmean(windows, axis=(1, 2), keepdims=True))
    return starts[kept], windows


def _tables(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Square roots (n, C * bins) of histograms of windows (n, h, w): values, and differences at lags."""
    n, height, width = windows.shape
    with np.errstate(all="ignore"):  # whatever values an image holds
        mean, spread = (found(windows, axis=(1, 2), keepdims=True) for found in (np.mean, np.std))
        least = np.finfo(np.float32).tiny + np.float32(1e-6) * np.abs(mean)  # of flat windows
        values = np.nan_to_num((windows - mean) / np.maximum(spread, least))
    levels = [np.clip(2 * values + _BINS / 2, 0, _BINS - 1)]
    for down, right in _LAGS:
        one = values[:, : height - down, max(0, -right) : width - max(0, right)]
        other = values[:, down:, max(0, right) : width + min(0, right)]
        levels.append(np.minimum(_FINE * np.sqrt(np.abs(one - other)), _BINS - 1))
    tables, first = [], np.arange(0, n * _BINS, _BINS)[:, None, None]
    for level in levels:
        counts = np.bincount((level.astype(np.intp) + first).ravel(), minlength=n * _BINS)
        tables.append(counts.reshape(n, _BINS) / (math.prod(level.shape[1:]) * len(levels)))
    return np.sqrt(np.concatenate(tables, axis=1)).astype(np.float32)


def _by_content(
    survey: _Survey, shape: tuple[int, int], even: list[Window], n_crops: int, side: int, seed: int
) -> SceneSample:
    """Add to an even sample what is unlike it, and fill up at random; without windows, take any units."""
    rng, n = np.random.default_rng(seed), len(survey.places)
    if not n:
        order = rng.permutation(len(survey.held))[:n_crops]
        return SceneSample([survey.held[i] for i in order])
    middles, noise = survey.places + _SIDE // 2, survey.noise
    distance, free = np.full(n, np.inf, np.float32), np.ones(n, bool)
    windows: list[Window] = []

    def add(window: Window, seen: NDArray[np.bool_]) -> None:
        windows.append(window)
        free[seen] = False
        np.minimum(distance, survey.distances(seen).min(axis=1), out=distance)

    def add_around(which: NDArray[np.integer]) -> None:
        window = window_around(middles[which].mean(axis=0), shape, side)
        seen = survey.seen_in(window)
        seen[which[0]] = True
        add(window, seen)

    for window in even:
        if (seen := survey.seen_in(window)).any():
            add(window, seen)
    if not windows:
        add_around(rng.integers(n, size=1))
    n_even = len(windows)
    while len(windows) < n_crops and (excess := np.maximum(0, distance - noise)).any():
        candidates = np.argsort(-excess, kind="stable")[:_CANDIDATES]
        candidates = candidates[excess[candidates] > 0]
        to_each = survey.distances(candidates)
        left = np.maximum(0, np.minimum(distance[:, None], to_each) - noise[:, None]).sum(axis=0)
        best = int(left.argmin())
        near = (np.abs(middles - middles[candidates[best]]) < side).all(axis=1)
        alike = near & (to_each[:, best] <= noise) & (excess > 0)
        alike[candidates[best]] = False
        add_around(np.append(candidates[best], np.flatnonzero(alike)))
    by_content = len(windows) - n_even
    while len(windows) < n_crops and free.any():
        add_around(rng.choice(np.flatnonzero(free), 1))
    unlike = distance > noise
    looked_at = min(1.0, n * _SIDE**2 / math.prod(shape))
    place = _largest_place(survey.places[unlike]) if unlike.mean() >= _SAID else None
    return SceneSample(windows, by_content, looked_at, float(unlike.mean()), place)


def window_around(middle: Sequence[float], shape: tuple[int, int], side: int) -> Window:
    """Rows and columns of a square about a place, moved into an image of a shape."""
    pairs = list(zip(middle, shape, strict=True))
    starts = [int(min(max(0, at - side // 2), max(0, length - side))) for at, length in pairs]
    rows, columns = (slice(at, min(at + side, length)) for at, length in zip(starts, shape, strict=True))
    return rows, columns


def _largest_place(places: NDArray[np.intp]) -> Window:
    """Rows and columns of the largest part of windows next to each other."""
    grid = places // _PITCH
    marked = np.full(grid.max(axis=0) + 1, -1, np.int32)
    marked[tuple(grid.T)] = 0
    at = connected_parts(marked).places[tuple(grid.T)]
    largest = places[at == np.bincount(at).argmax()]
    rows, columns = (slice(int(own.min()), int(own.max()) + _SIDE) for own in largest.T)
    return rows, columns


def _of_neighbours(places: NDArray[np.intp], tables: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distance (n,) of every window to the likest of the windows next to it."""
    at = {(int(y), int(x)): i for i, (y, x) in enumerate(places)}
    least = np.full(len(at), np.inf, np.float32)
    for down, right in ((0, _PITCH), (_PITCH, 0)):
        pairs = [(i, at.get((y + down, x + right), -1)) for (y, x), i in at.items()]
        one, other = np.array([pair for pair in pairs if pair[1] >= 0], np.intp).reshape(-1, 2).T
        apart = 1 - np.einsum("nm,nm->n", tables[one], tables[other])
        for each in (one, other):
            np.minimum.at(least, each, apart)
    known = np.isfinite(least)
    least = np.where(known, least, np.median(least[known]) if known.any() else np.float32(0))
    return np.maximum(least, 10 * np.finfo(np.float32).eps)  # where all are equal, rounding is no difference


def sample_windows(
    shape: tuple[int, ...], random_state: int = 0, n_crops: int = CROPS, side: Any = CROP_SIDE
) -> list[Window]:
    """Spread crops evenly: one at random in each field of a grid."""
    sides = list(map(min, of_each(side, len(shape)), shape))
    fields, left = [], float(n_crops)
    for axis, length in enumerate(shape):
        others = shape[axis + 1 :]
        share = (left * length ** len(others) / math.prod(others)) ** (1 / (1 + len(others)))
        n = max(1, min(n_crops, round(share)) if others else round(left))
        fields.append(list(itertools.pairwise(np.linspace(0, length, n + 1))))
        left = n_crops / math.prod(map(len, fields))
    rng = np.random.default_rng(random_state)
    windows: dict[tuple[int, ...], Window] = {}
    for field in itertools.product(*fields):
        starts = tuple(
            min(int(low + rng.random() * max(0.0, high - low - wide)), length - wide)
            for (low, high), wide, length in zip(field, sides, shape, strict=True)
        )
        windows[starts] = tuple(slice(at, at + wide) for at, wide in zip(starts, sides, strict=True))
    return list(windows.values())
