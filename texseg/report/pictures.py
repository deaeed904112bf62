"""Pictures as data URIs, small enough to send by mail."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

_LONGEST_SIDE = 1024
_LARGEST_PNG = 1_000_000  # bytes; larger pictures become JPEG
_DETAILED_SIDES = (4096, 2048)  # pixels of the picture that can be zoomed into
_LARGEST_DETAIL = 2_000_000  # bytes of it
_JPEG_QUALITY = 85
_CONFIDENCE_STEP = 4  # grey levels; gives two digits, and finer differences cost space
CROP_SIDE = 64  # pixels of the image, of a sample of a segment


def shown_shape(shape: tuple[int, int], longest: int = _LONGEST_SIDE) -> tuple[int, int]:
    """Size (H, W) at which an image is shown: its own, or with the longest side reduced."""
    scale = min(1.0, longest / max(shape))
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def reduced(picture: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Picture (H, W) or (H, W, C) at another size, averaged over areas."""
    if picture.shape[:2] == shape:
        return picture
    return np.asarray(cv2.resize(picture, shape[::-1], interpolation=cv2.INTER_AREA))


def reduced_labels(labels: NDArray[np.integer], shape: tuple[int, int]) -> NDArray[np.integer]:
    """Label image at another size: the label in the middle of every new pixel."""
    rows, columns = (
        ((np.arange(n) + 0.5) * N / n).astype(int) for n, N in zip(shape, labels.shape, strict=True)
    )
    return labels[np.ix_(rows, columns)]


def crop_uri(picture: NDArray[np.uint8], place: list[int]) -> str:
    """Square around a place in a picture (H, W, 3), as JPEG."""
    top, left = (
        max(0, min(n - CROP_SIDE, middle - CROP_SIDE // 2))
        for middle, n in zip(place, picture.shape[:2], strict=True)
    )
    return _uri(_encoded(picture[top : top + CROP_SIDE, left : left + CROP_SIDE], "jpeg"), "jpeg")


def picture_uri(picture: NDArray[np.uint8]) -> str:
    """Picture (H, W, 3), lossless if that is small enough, else as JPEG."""
    grey = bool((picture == picture[..., :1]).all())
    values = picture[..., 0] if grey else picture
    content = _encoded(values, "png")
    return _uri(content) if len(content) <= _LARGEST_PNG else _uri(_encoded(values, "jpeg"), "jpeg")


def detailed_uri(picture: NDArray[np.uint8], shape: tuple[int, int]) -> str:
    """Picture (H, W, 3) with as much detail as its file may take, at least that of the size ``shape``."""
    full = (picture.shape[0], picture.shape[1])
    for side in _DETAILED_SIDES:
        larger = shown_shape(full, side)
        if larger > shape:
            content = _encoded(reduced(picture, larger), "jpeg")
            if len(content) <= _LARGEST_DETAIL:
                return _uri(content, "jpeg")
    return picture_uri(reduced(picture, shape))


def labels_uri(labels: NDArray[np.integer]) -> str:
    """Label image as a grey PNG; the value of a pixel is its label."""
    return _uri(_encoded(labels.astype(np.uint8), "png"))


def confidence_uri(confidence: NDArray[np.floating]) -> str:
    """Confidence (H, W), 0 to 1, as a grey PNG from 0 to 255."""
    steps = np.rint(np.clip(confidence, 0, 1) * (255 / _CONFIDENCE_STEP)) * _CONFIDENCE_STEP
    return _uri(_encoded(np.minimum(steps, 255).astype(np.uint8), "png"))


def _encoded(values: NDArray[np.uint8], kind: str) -> bytes:
    buffer = BytesIO()
    Image.fromarray(values).save(buffer, kind, optimize=kind == "png", quality=_JPEG_QUALITY)
    return buffer.getvalue()


def _uri(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode('ascii')}"
