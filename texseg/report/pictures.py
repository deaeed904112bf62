"""Pictures as data URIs, small enough to send by mail."""

import math
from base64 import b64encode
from io import BytesIO
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

_LONGEST_SIDE = 1024
_MOST_VOXELS, _MOST_ROWS = 2**22, 2**15 - 1  # of planes below each other, which browsers decode at once
_MOST_PLANES = 64  # of a volume, for whose sake planes are reduced
_LARGEST_PNG = 1_000_000  # bytes; larger pictures become JPEG
_DETAILED_SIDES = (4096, 2048)  # pixels of the picture that can be zoomed into
_LARGEST_DETAIL = 2_000_000  # bytes of it
_JPEG_QUALITY = 85
_CONFIDENCE_STEP = 4  # grey levels; gives two digits, and finer differences cost space
CROP_SIDE = 64  # pixels of the image, of a sample of a segment


def shown_shape(shape: tuple[int, ...], longest: int = _LONGEST_SIDE) -> Any:
    """Size (H, W) at which an image is shown, with the longest side reduced; of a volume (D, H, W)."""
    height, width = shape[-2:]
    scale = min(1.0, longest / max(height, width))
    if len(shape) == 2:
        return max(1, round(height * scale)), max(1, round(width * scale))
    scale = min(scale, math.sqrt(_MOST_VOXELS / (min(shape[0], _MOST_PLANES) * height * width)))
    height, width = max(1, int(height * scale)), max(1, int(width * scale))
    return max(1, min(shape[0], _MOST_VOXELS // (height * width), _MOST_ROWS // height)), height, width


def middles_of(n: int, N: int) -> NDArray[np.intp]:
    """Places in the middle of each of n equal parts of N."""
    return ((np.arange(n) + 0.5) * N / n).astype(int)


def reduced(picture: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Picture (H, W) or (H, W, C) at another size, averaged over areas; of a volume some planes."""
    if picture.shape[: len(shape)] == shape:
        return picture
    if len(shape) == 3:
        planes = middles_of(shape[0], len(picture))
        return np.stack([reduced(picture[z].astype(np.float32), shape[1:]) for z in planes])
    return np.asarray(cv2.resize(picture, shape[::-1], interpolation=cv2.INTER_AREA))


def reduced_labels(labels: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Label image, or volume of labels, at another size: the label in the middle of every new pixel."""
    return labels[np.ix_(*map(middles_of, shape, labels.shape))]


def crop_uri(picture: NDArray[np.uint8], place: list[int]) -> str:
    """Square around a place in a picture (H, W, 3), as JPEG."""
    top, left = (
        max(0, min(n - CROP_SIDE, middle - CROP_SIDE // 2))
        for middle, n in zip(place, picture.shape[:2], strict=True)
    )
    return _uri(encoded(picture[top : top + CROP_SIDE, left : left + CROP_SIDE], "jpeg"), "jpeg")


def picture_uri(picture: NDArray[np.uint8]) -> str:
    """Picture (H, W, 3), lossless if that is small enough, else as JPEG."""
    grey = bool((picture == picture[..., :1]).all())
    values = picture[..., 0] if grey else picture
    content = encoded(values, "png")
    return _uri(content) if len(content) <= _LARGEST_PNG else _uri(encoded(values, "jpeg"), "jpeg")


def detailed_uri(picture: NDArray[np.uint8], shape: tuple[int, int]) -> str:
    """Picture (H, W, 3) with as much detail as its file may take, at least that of the size ``shape``."""
    full = (picture.shape[0], picture.shape[1])
    for side in _DETAILED_SIDES:
        larger = shown_shape(full, side)
        if larger > shape:
            content = encoded(reduced(picture, larger), "jpeg")
            if len(content) <= _LARGEST_DETAIL:
                return _uri(content, "jpeg")
    return picture_uri(reduced(picture, shape))


def labels_uri(labels: NDArray[np.integer]) -> str:
    """Label image, or planes below each other, as a grey PNG; the value of a pixel is its label."""
    return _uri(encoded(labels.reshape(-1, labels.shape[-1]).astype(np.uint8), "png"))


def confidence_uri(confidence: NDArray[np.floating]) -> str:
    """Confidence (H, W), or planes below each other, 0 to 1, as a grey PNG from 0 to 255."""
    flat = confidence.reshape(-1, confidence.shape[-1])
    steps = np.rint(np.clip(flat, 0, 1) * (255 / _CONFIDENCE_STEP)) * _CONFIDENCE_STEP
    return _uri(encoded(np.minimum(steps, 255).astype(np.uint8), "png"))


def encoded(values: NDArray[np.uint8], kind: str, **options: Any) -> bytes:
    """Content of a file of some kind with a picture (H, W) or (H, W, 3); as small as can be by default."""
    buffer = BytesIO()
    options = {"optimize": kind == "png", "quality": _JPEG_QUALITY, **options}
    Image.fromarray(values).save(buffer, kind, **options)
    return buffer.getvalue()


def _uri(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode('ascii')}"
