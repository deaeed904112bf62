"""Texture mosaics, and solid ones, with known truth: which pixel belongs to which texture.

Inside each region the grey values are replaced by their ranks, so that every region has the same uniform
histogram: the regions differ in texture only, not in brightness or contrast.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

__all__ = ["Mosaic", "equalize_ranks", "example", "mosaic", "solid", "volume"]

SMALLEST_SHARE = 0.35
"""No texture covers less than this fraction of its fair share of the area, 1 / K."""

MAX_TRIES = 1000
_LARGEST_SIDE = 2**16  # pixels


class Mosaic(NamedTuple):
    """An image made of textures, with its truth; unpack it as ``image, truth``."""

    image: NDArray[np.uint8]  #: (H, W) or (H, W, 3); of a volume (D, H, W)
    truth: NDArray[np.int32]  #: the label 1 ... K of each pixel


def mosaic(
    textures: "Sequence[ArrayLike]",
    n_segments: int,
    size: int | tuple[int, int] = 512,
    layout: str = "voronoi",
    random_state: int | np.random.Generator | None = 0,
) -> Mosaic:
    """Compose a mosaic of textures with known truth.

    ``n_segments`` (K) of the textures are drawn without replacement, a random crop of each fills its
    region(s), and the grey values inside each region are equalised by rank (`equalize_ranks`). In colour
    images the difference of the colour from grey is kept, reduced only where it would leave the displayable
    range. The same ``random_state`` gives the same mosaic.

    The textures, all grey (h, w) or all colour (h, w, 3), are of any real dtype (colour: whole numbers, or
    0 ... 1); one that is smaller than the mosaic is continued by its mirror image. Labels 1 ... K number the
    drawn ones in the order given. ``size`` is the side of a square, or (height, width), in pixels. Of each
    texture, ``layout`` 'voronoi' makes one blob with bent borders, 'scattered' three cells with straight
    borders, apart from each other, and 'grid' a rectangle of equal area. It covers at least .35 / K of all.

    Examples
    --------
    >>> import numpy as np
    >>> stripes = np.tile([0, 0, 9, 9], (64, 16))
    >>> noise = np.random.default_rng(0).normal(size=(64, 64))
    >>> image, truth = mosaic([stripes, noise], 2, size=64, random_state=0)
    >>> image.shape, image.dtype.name, truth.dtype.name, np.unique(truth).tolist()
    ((64, 64), 'uint8', 'int32', [1, 2])
    >>> [round(float(image[truth == k].mean())) for k in (1, 2)]
    [128, 128]
    """
    shape: Any = tuple(size) if isinstance(size, Sequence | np.ndarray) else (size, size)
    are_sides = all(isinstance(side, int | np.integer) and 1 <= side <= _LARGEST_SIDE for side in shape)
    if len(shape) != 2 or not are_sides or isinstance(size, bool):
        raise ValueError(f"size of mosaic must be a positive number or (height, width), got {size!r}")
    checked = _check_textures(textures)
    is_whole = isinstance(n_segments, int | np.integer) and not isinstance(n_segments, bool)
    if not is_whole or not 1 <= n_segments <= len(checked):
        allowed = f"1 ... {len(checked)}, the number of textures given, got {n_segments}"
        raise ValueError(
            f"n_segments of mosaic must be {allowed}; pass more textures or request fewer segments"
        )
    if layout not in _LAYOUTS:
        raise ValueError(f"layout of mosaic must be one of {', '.join(_LAYOUTS)}, got {layout!r}")
    rng = np.random.default_rng(random_state)
    drawn = np.sort(rng.choice(len(checked), n_segments, replace=False))
    truth = _draw_layout(layout, n_segments, shape, rng)
    image = np.empty(shape + checked[0].shape[2:], np.uint8)
    for label, index in enumerate(drawn, start=1):
        region = truth == label
        image[region] = _fill(_crop(checked[index], shape, rng), region, rng)
    return Mosaic(image, truth)


def example(size: int = 320, random_state: int = 0) -> Mosaic:
    """Make a mosaic of five textures that need no files: a weave, two woods, clouds and sand.

    >>> image, truth = example(size=96)
    >>> image.shape, int(truth.max())
    ((96, 96), 5)
    """
    noise = np.random.default_rng(random_state).normal(size=(5, size, size))
    rows, columns = np.indices((size, size)) / 2.2
    weave = np.sin(rows) * np.sin(columns) + 0.6 * noise[0]
    blurred = [ndimage.gaussian_filter(noise[i + 1], s) for i, s in enumerate([(4, 0.7), (0.7, 4), (2, 2)])]
    return mosaic([weave, *blurred, noise[4]], 5, size, random_state=random_state)


def volume(textures: "Sequence[ArrayLike]", random_state: int | None = 0) -> Mosaic:
    """Compose a solid mosaic of volumes of one shape: one bent Voronoi cell for each, equalised by rank.

    >>> image, truth = volume([solid("fibres", 32, direction=(1, 0, 0)), solid("foam", 32)])
    >>> image.shape, image.dtype.name, np.unique(truth).tolist()
    ((32, 32, 32), 'uint8', [1, 2])
    """
    checked = [np.asarray(texture) for texture in textures]
    if len({texture.shape for texture in checked}) != 1 or checked[0].ndim != 3:
        shapes = [texture.shape for texture in checked]
        raise ValueError(f"textures of volume must have one shape of 3 axes, got {shapes}")
    rng = np.random.default_rng(random_state)
    truth = _draw_layout("voronoi", len(checked), checked[0].shape, rng)
    image = np.empty(truth.shape, np.uint8)
    for label, texture in enumerate(checked, start=1):
        image[truth == label] = _to_uint8(equalize_ranks(texture, truth == label, rng))
    return Mosaic(image, truth)


def solid(
    kind: Literal["field", "spheres", "fibres", "layers", "foam"],
    size: int | tuple[int, int, int] = 96,
    scale: float = 8.0,
    direction: Sequence[float] = (),
    random_state: int | None = 0,
) -> NDArray[np.float32]:
    """Fill a volume (planes, rows, columns) with one texture.

    Random fields have wavelengths around ``scale`` pixels, only along ``direction`` if that is given; spheres
    and the cells of foam lie about ``scale`` apart; fibres run along the direction, and layers across it.

    >>> solid("layers", 16, scale=4, direction=(1, 0, 0)).shape
    (16, 16, 16)
    """
    rng, given = np.random.default_rng(random_state), np.atleast_1d(size)
    shape = tuple(np.repeat(given, 3 if given.size == 1 else 1).tolist())
    if len(shape) != 3 or (not len(direction) and kind not in ("field", "spheres", "foam")):
        kinds = "field, spheres, foam, or with a direction fibres and layers, of one or three sides"
        raise ValueError(f"solid makes {kinds}; got {kind!r}, {direction=}, {size=}")
    along = np.divide(direction, np.linalg.norm(direction)) if len(direction) else np.zeros(3)
    if kind == "field":
        return _field(shape, scale, along, rng)
    bends = _field(shape, 5 * scale, np.zeros(3), rng).reshape(-1, 1)  # nothing is straight all the way
    places = np.indices(shape).reshape(3, -1).T + 0.1 * scale * bends / bends.std()
    depth = places @ along
    if kind == "layers":
        edges = np.cumsum(scale * rng.uniform(0.35, 0.65, int(2 * np.ptp(depth) / scale) + 8)) + depth.min()
        found = np.sin(np.pi * np.interp(depth, edges, np.arange(len(edges))))
    else:
        seen = places @ np.linalg.svd(along[None])[2][1:].T if kind == "fibres" else places
        axes = [np.arange(side.min() - scale, side.max() + scale, scale) for side in seen.T]
        sites = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        sites = sites + rng.uniform(-0.35, 0.35, sites.shape) * scale
        near, next_to_it = cKDTree(sites).query(seen, 2)[0].T
        widths = {"spheres": 0.4 * scale - near, "fibres": 0.3 * scale - near}
        found = np.clip(widths.get(kind, 0.2 * scale - (next_to_it - near)), -1, 1)
    return found.reshape(shape).astype(np.float32)


def _field(shape: tuple[int, ...], scale: float, along: NDArray, rng: np.random.Generator) -> NDArray:
    f = np.meshgrid(*map(np.fft.fftfreq, shape), indexing="ij", sparse=True)
    radius = np.sqrt(sum(part**2 for part in f))
    gain = np.exp(-0.5 * ((radius * scale - 1) / 0.3) ** 2)
    if along.any():
        cosine = abs(sum(part * d for part, d in zip(f, along, strict=True))) / np.maximum(radius, 1e-9)
        gain = gain * np.minimum(cosine, 1) ** 12
    return np.fft.ifftn(np.fft.fftn(rng.normal(size=shape)) * gain).real.astype(np.float32)


def equalize_ranks(
    values: "ArrayLike", region: "ArrayLike | None" = None, random_state: int | np.random.Generator | None = 0
) -> NDArray[np.float64]:
    """Replace grey values, of two or three axes, by their ranks, which spread evenly over 0 ... 1.

    Equal values are ordered by the mean of their 3x3 neighbourhood, and remaining ties at random. `region`
    marks the n pixels to equalise, by default all; the result (n,) holds their new values in row-major order,
    (i + .5) / n in some order.

    >>> equalize_ranks([[10, 30], [20, 99]]).tolist()
    [0.125, 0.625, 0.375, 0.875]
    """
    grey = np.asarray(values, dtype=float)
    inside = np.ones(grey.shape, bool) if region is None else np.asarray(region, bool)
    rng = np.random.default_rng(random_state)
    local_mean = ndimage.uniform_filter(grey, 3)
    n = np.count_nonzero(inside)
    order = np.lexsort((rng.random(n), local_mean[inside], grey[inside]))
    ranks = np.empty(n)
    ranks[order] = np.arange(n)
    return (ranks + 0.5) / n


def _check_textures(textures: "Sequence[ArrayLike]") -> list[NDArray]:
    if not np.iterable(textures):
        raise TypeError(f"textures of mosaic must be a sequence of arrays, got {textures!r:.80}")
    checked = [np.asarray(texture) for texture in textures]
    for position, texture in enumerate(checked):
        described = f"textures[{position}] of mosaic has shape {texture.shape} and dtype {texture.dtype}"
        if texture.ndim not in (2, 3) or (texture.ndim == 3 and texture.shape[2] != 3) or 0 in texture.shape:
            raise ValueError(f"{described}; allowed are (h, w) and (h, w, 3)")
        if texture.dtype.kind not in "buif" or not np.isfinite(texture).all():
            raise ValueError(f"{described}; allowed are finite real numbers")
        if texture.ndim != checked[0].ndim:
            raise ValueError(f"{described}, but the first is {checked[0].shape}; give all grey or all colour")
        is_float_colour = texture.ndim == 3 and texture.dtype.kind == "f"
        if is_float_colour and not 0 <= texture.min() <= texture.max() <= 1:
            raise ValueError(f"{described} and values outside 0 ... 1; scale colour to 0 ... 1")
    return checked


def _crop(texture: NDArray, shape: tuple[int, int], rng: np.random.Generator) -> NDArray:
    """Cut out a random piece of the given shape; a smaller texture is continued by its mirror image."""
    missing = [max(0, side - have) for side, have in zip(shape, texture.shape, strict=False)]
    if any(missing):
        pad = [(0, more) for more in missing] + [(0, 0)] * (texture.ndim - 2)
        texture = np.pad(texture, pad, mode="symmetric")
    top, left = (rng.integers(have - side + 1) for side, have in zip(shape, texture.shape, strict=False))
    return texture[top : top + shape[0], left : left + shape[1]]


def _fill(crop: NDArray, region: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Give the uint8 values, (n,) or (n, 3), of the n pixels of a region filled with a crop."""
    if crop.ndim == 2:
        return _to_uint8(equalize_ranks(crop, region, rng))
    colour = crop / (1.0 if crop.dtype.kind in "bf" else np.iinfo(crop.dtype).max)
    from skimage.color import rgb2gray  # slow to import

    grey = rgb2gray(colour)
    target = equalize_ranks(grey, region, rng)
    difference = (colour - grey[..., None])[region]
    room = np.where(difference > 0, 1 - target[:, None], target[:, None])
    within = np.divide(room, np.abs(difference), out=np.ones_like(room), where=difference != 0)
    return _to_uint8(target[:, None] + np.minimum(within.min(axis=1, keepdims=True), 1) * difference)


def _to_uint8(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.clip(np.floor(values * 256), 0, 255).astype(np.uint8)


def _draw_layout(
    layout: str, n_segments: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw layouts until one has a fair share of the area for every label."""
    smallest = SMALLEST_SHARE / n_segments * math.prod(shape)
    for _ in range(MAX_TRIES):
        cells = _LAYOUTS[layout](n_segments, shape, rng)
        if np.bincount(cells.ravel(), minlength=n_segments + 1)[1:].min() < max(smallest, 1):
            continue
        numbers = range(1, n_segments + 1 if layout == "voronoi" else 1)  # textures that must be one blob
        if all(ndimage.label(cells == label)[1] == 1 for label in numbers):
            return cells.astype(np.int32)
    size = f"{' x '.join(map(str, shape))} pixels after {MAX_TRIES} tries"
    remedy = "use a larger size or fewer segments"
    raise ValueError(f"no {layout} layout of {n_segments} segments fits into {size}; {remedy}")


def _draw_voronoi(n_segments: int, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.intp]:
    n_axes = len(shape)
    grid = np.indices(shape).reshape(n_axes, -1).T.astype(float)
    sites = rng.random((n_segments, n_axes)) * shape
    coarse = grid[:: max(1, len(grid) // 4096)]
    for _ in range(5):
        nearest = cKDTree(sites).query(coarse)[1]
        counts = np.bincount(nearest, minlength=n_segments)
        for axis in range(n_axes):
            sums = np.bincount(nearest, weights=coarse[:, axis], minlength=n_segments)
            sites[:, axis] = np.divide(sums, counts, out=sites[:, axis].copy(), where=counts > 0)
    side = min(shape)  # every pixel is displaced, smoothly enough not to tear regions apart
    noise = ndimage.gaussian_filter(rng.normal(size=(n_axes, *shape)), (0, *[side / 20] * n_axes))
    displaced = 0.025 * side * noise / noise.std(axis=tuple(range(1, n_axes + 1)), keepdims=True)
    return cKDTree(sites).query(grid + displaced.reshape(n_axes, -1).T)[1].reshape(shape) + 1


def _draw_scattered(n_segments: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
    n_cells = 3 * n_segments
    grid = np.indices(shape).reshape(2, -1).T
    cells = cKDTree(rng.random((n_cells, 2)) * shape).query(grid)[1].reshape(shape)
    touch = np.zeros((n_cells, n_cells), bool)
    touch[cells[1:], cells[:-1]] = True
    touch[cells[:, 1:], cells[:, :-1]] = True
    pairs = np.nonzero(np.triu(touch | touch.T, k=1))
    shuffled = np.tile(np.repeat(np.arange(1, n_segments + 1), 3), (500, 1))
    rng.permuted(shuffled, axis=1, out=shuffled)
    n_alike = (shuffled[:, pairs[0]] == shuffled[:, pairs[1]]).sum(axis=1)
    return shuffled[np.argmin(n_alike)][cells]


def _draw_grid(n_segments: int, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
    n_rows = max(1, round(np.sqrt(n_segments)))
    rows = np.array_split(rng.permutation(n_segments) + 1, n_rows)
    bottoms = np.cumsum([len(row) for row in rows]) / n_segments * shape[0]
    row_of = np.searchsorted(bottoms, np.arange(shape[0]) + 0.5)
    columns = (np.arange(shape[1]) + 0.5) / shape[1]
    return np.array([row[(columns * len(row)).astype(int)] for row in rows])[row_of]


_LAYOUTS: dict[str, Callable] = {"voronoi": _draw_voronoi, "scattered": _draw_scattered, "grid": _draw_grid}
