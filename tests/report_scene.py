"""A small fitted model whose labels and hierarchy are known, for the tests of the report."""

import base64
import json
import re
from types import SimpleNamespace

import numpy as np

from texseg import TextureSegmenter

SHAPE = (96, 128)


def truth_level(k):
    """Nested label images whose numbers change from level to level."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    left, below = columns < 64, rows >= 48
    if k == 1:
        return np.ones(SHAPE, int)
    if k == 2:
        return np.where(left, 1, 2)
    return np.where(left, 3, np.where(below, 1, 2))


class Staged(TextureSegmenter):
    """A model whose hierarchy and confidence are known."""

    hierarchy_ = SimpleNamespace(n_segments=(1, 2, 3), labels=truth_level)
    confidence_ = np.where(truth_level(2) == 1, 0.2, 1.0).astype(np.float32)


def scene():
    """Image of three textures, (H, W), and a model with two segments, of known labels and confidence."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    image = np.where(columns < 64, np.sin(rows * 2.2), np.sin(columns / 2))
    image = np.where((columns >= 64) & (rows >= 48), np.sin((rows + columns) / 1.5), image)
    model = Staged(n_segments=2).fit(image)
    model.labels_ = truth_level(2)
    return image, model


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
