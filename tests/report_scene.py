"""A small fitted model with a hierarchy, for the tests of the report."""

import base64
import json
import re
from types import SimpleNamespace

import numpy as np

from texseg import TextureSegmenter

SHAPE = (96, 128)


def scene(n_segments=2):
    """Image of three textures, (H, W), the fitted model, and a hierarchy of three levels."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    image = np.where(columns < 64, np.sin(rows * 2.2), np.sin(columns / 2))
    image = np.where((columns >= 64) & (rows >= 48), np.sin((rows + columns) / 1.5), image)
    model = TextureSegmenter(n_segments=n_segments).fit(image)
    return image, model


def truth_level(k):
    """Nested label images whose numbers change from level to level."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    left, below = columns < 64, rows >= 48
    if k == 1:
        return np.ones(SHAPE, int)
    if k == 2:
        return np.where(left, 1, 2)
    return np.where(left, 3, np.where(below, 1, 2))


HIERARCHY = SimpleNamespace(n_segments=(1, 2, 3), labels=truth_level)


def content_of(path):
    """The data inside a report."""
    page = path.read_text("utf-8")
    return json.loads(
        re.search(r'<script id="content" type="application/json">(.*?)</script>', page, re.S)[1]
    )


def picture_bytes(uri):
    """Kind and bytes of a data URI."""
    kind, data = re.fullmatch(r"data:image/(\w+);base64,(.*)", uri).groups()
    return kind, base64.b64decode(data)
