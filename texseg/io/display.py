"""Images of any type as viewable pictures, and the one overlay: tint, outlines and numbers of segments."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from texseg.io.regions import boxes_of, palette

_STRETCH_PERCENTILES = (0.5, 99.5)
_STRETCH_SAMPLE = 1_000_000


def display_range(pixels: NDArray, mask: NDArray[np.bool_] | None = None) -> tuple[float, float]:
    """Range of values between two percentiles, from a sample of the valid pixels."""
    values = pixels[..., :3] if pixels.ndim == 3 else pixels
    step = int(np.ceil(np.sqrt(max(1.0, values.size / _STRETCH_SAMPLE))))
    sample = values[::step, ::step]
    if mask is not None and mask[::step, ::step].any():
        sample = sample[mask[::step, ::step]]
    sample = sample.astype(np.float64).ravel()
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return 0.0, 1.0
    low, high = np.percentile(sample, _STRETCH_PERCENTILES)
    return float(low), float(high) if high > low else float(low) + 1.0


def displayable(pixels: NDArray, low: float, high: float) -> NDArray[np.float32]:
    """Pixels stretched to 0 .. 255 as RGB, float32 (H, W, 3); more or fewer than three bands become grey."""
    values = pixels[..., None] if pixels.ndim == 2 else pixels[..., :3]
    values = (np.nan_to_num(values.astype(np.float64), nan=low) - low) * (255.0 / (high - low))
    light = np.clip(values, 0, 255).astype(np.float32)
    return light if light.shape[2] == 3 else np.repeat(light.mean(axis=-1, keepdims=True), 3, axis=-1)


def size_in_words(shape: Sequence[int]) -> str:
    """Columns and rows of an image, and planes of a volume: "48 x 40", "48 x 40 x 6"."""
    return " x ".join(map(str, (shape[-1], shape[-2], *shape[:-2])))


def to_rgb(image: "ArrayLike", mask: NDArray[np.bool_] | None = None, n_axes: int = 2) -> NDArray[np.uint8]:
    """Picture (H, W, 3) of an image (H, W) or (H, W, C), stretched between percentiles of valid pixels.

    Of a volume, with three axes, it shows the orthogonal cuts.
    """
    pixels = np.asarray(image)
    if n_axes == 3:
        pixels, mask = orthogonal_cuts(pixels), None if mask is None else orthogonal_cuts(mask)
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ValueError(f"an image to show must have shape (H, W) or (H, W, C), got {pixels.shape}")
    ends, rows = display_range(pixels, mask), range(0, len(pixels), _BLOCK_ROWS)
    parts = (displayable(pixels[top : top + _BLOCK_ROWS], *ends) for top in rows)
    return np.concatenate([np.rint(part).astype(np.uint8) for part in parts])


TINT = 0.45  # opacity of the colours of the segments
_BLOCK_ROWS = 256
_NOTEBOOK_SIDE = 400  # pixels of a picture in a notebook
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_FONT_HEIGHT = 22.0  # pixels, of its digits at scale one
_DIGIT_HEIGHT, _LARGE_PICTURE = 16.0, 640  # pixels, up to that side of the picture; more in proportion,
# where there is room, so that digits have 20 pixels when a large picture is shrunk to 800


def draw_overlay(
    picture: NDArray[np.uint8], labels: NDArray[np.integer], own_colours: Sequence[str] = ()
) -> None:
    """Tint a picture (H, W, 3) by labels (H, W) unless these are one, outline and number them, in place."""
    colours = palette(int(labels.max(initial=0)), own_colours).astype(np.float32)
    inside, outside = np.zeros((2, *labels.shape), bool)  # of borders: opposite pixels to the right or below
    below, right = labels[:-1] != labels[1:], labels[:, :-1] != labels[:, 1:]
    inside[:-1] |= below
    inside[:, :-1] |= right
    outside[1:] |= below
    outside[:, 1:] |= right
    if len(colours) > 2 and inside.any():
        for top in range(0, len(labels), _BLOCK_ROWS):
            rows = slice(top, top + _BLOCK_ROWS)
            light = picture[rows].astype(np.float32)
            tinted = light + TINT * (colours[labels[rows]] - light)
            picture[rows] = np.where(labels[rows, :, None] > 0, tinted, light)
    picture[inside], picture[outside & ~inside] = 255, 0  # one of the two is visible on any image
    usual = max(1.0, max(labels.shape) / _LARGE_PICTURE)
    for label, row, column, depth in number_places(labels):
        _, least = cv2.getTextSize(str(label), _FONT, _DIGIT_HEIGHT / _FONT_HEIGHT, 2)[0]
        enlarged = min(usual, 2 * depth / least)
        if enlarged >= 1:
            _draw_number(picture, str(label), row, column, enlarged)


def html_picture(
    picture: NDArray[np.uint8] | None, labels: NDArray[np.integer] | None = None, side: int = _NOTEBOOK_SIDE
) -> str:
    """Show a picture (H, W, 3), or white, in a notebook, reduced, with the overlay of labels if given."""
    if labels is not None and labels.ndim == 3:
        labels = orthogonal_cuts(labels)
    if picture is None:
        assert labels is not None
        picture = np.full((*labels.shape, 3), 255, np.uint8)
    step = -(-max(picture.shape) // side)
    small = np.ascontiguousarray(picture[::step, ::step])
    if labels is not None:
        draw_overlay(small, labels[::step, ::step])
    content = cv2.imencode(".png", small[..., ::-1])[1].tobytes()
    return f'<img src="data:image/png;base64,{b64encode(content).decode()}">'


def side_by_side(pictures: Mapping[str, NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Put pictures (H, W, 3) of one size next to each other on white, each under its name."""
    height, width = next(iter(pictures.values())).shape[:2]
    enlarged = max(1.0, max(height, width) / _LARGE_PICTURE)
    gap, scale = round(1.5 * _DIGIT_HEIGHT * enlarged), enlarged * _DIGIT_HEIGHT / _FONT_HEIGHT
    panels = []
    for name, picture in pictures.items():
        panel = np.full((height + 2 * gap, width + gap, 3), 255, np.uint8)
        panel[2 * gap :, gap:] = picture
        fitting = scale * min(1.0, width / cv2.getTextSize(name, _FONT, scale, 1)[0][0])
        place, thick = (gap, round(1.4 * gap)), round(enlarged)
        cv2.putText(panel, name, place, _FONT, fitting, (0, 0, 0), thick, cv2.LINE_AA)
        panels.append(panel)
    return np.hstack(panels)


def number_places(labels: NDArray[np.integer]) -> list[tuple[int, int, int, float]]:
    """Find (label, row, column, depth) of the widest part of each label that occurs in an image (H, W)."""
    boxes = ((label, box) for label, box in enumerate(boxes_of(labels), start=1) if box is not None)
    return [(label, *place) for label, box in boxes for place in deepest_places(labels, label, box)]


def deepest_places(
    labels: NDArray[np.integer], label: int, box: tuple[slice, ...], most: int = 1, apart: int = 0
) -> list[tuple[int, int, float]]:
    """Find places (row, column, depth) deep inside a segment whose box is known, ``apart`` pixels or more."""
    inside = np.pad((labels[box] == label).astype(np.uint8), 1)
    depth = cv2.distanceTransform(inside, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
    depth = np.round(np.ascontiguousarray(depth), 3)  # the last bits depend on the number of threads
    places: list[tuple[int, int, float]] = []
    while len(places) < most and depth.max(initial=0) > 0:
        row, column = np.unravel_index(int(depth.argmax()), depth.shape)
        places.append((int(row) + box[0].start, int(column) + box[1].start, float(depth[row, column])))
        cv2.circle(depth, (int(column), int(row)), apart, 0.0, cv2.FILLED)
    return places


def _draw_number(picture: NDArray[np.uint8], text: str, row: int, column: int, enlarged: float) -> None:
    scale, thickness, (H, W) = enlarged * _DIGIT_HEIGHT / _FONT_HEIGHT, round(2 * enlarged), picture.shape[:2]
    rim = 2 * thickness + 1
    (width, height), _ = cv2.getTextSize(text, _FONT, scale, thickness)
    left = int(np.clip(column - width // 2, 1, max(1, W - width - 1)))
    bottom = int(np.clip(row + height // 2, height + 1, max(height + 1, H - 2)))
    top, first = max(0, bottom - 2 * height), max(0, left - height)  # OpenCV's sizes are only a guide
    patch = picture[top : bottom + height, first : left + width + height]
    ink = np.zeros(patch.shape[:2], np.uint8)
    cv2.putText(ink, text, (left - first, bottom - top), _FONT, scale, 255, thickness)
    patch[cv2.dilate(ink, np.ones((rim, rim), np.uint8)) > 0] = 0
    patch[ink > 127] = 255


def orthogonal_cuts(volume: Any) -> NDArray[Any]:
    """Put the middle plane (H, W) above and left of both cuts across planes: (H + D + 1, W + D + 1)."""
    D, H, W = volume.shape[:3]
    middle, down, across = volume[D // 2], volume[:, :, W // 2], volume[:, H // 2]
    picture = np.zeros((H + D + 1, W + D + 1, *middle.shape[2:]), middle.dtype)
    picture[:H, :W], picture[:H, W + 1 :], picture[H + 1 :, :W] = middle, down.swapaxes(0, 1), across
    return picture
