"""Broken files of every kind through the reader: a clean error or a whole image, and soon."""

import mutations
import numpy as np
import pytest

from texseg.io.files import ImageReadError, ImageTooLargeError
from texseg.io.read import read_header, read_image

REFUSALS = (ImageReadError, ImageTooLargeError, ValueError)
LIMIT = 2_000_000


def pixels_or_none(path, content):
    path.write_bytes(content)
    try:
        return read_image(path, max_pixels=LIMIT).pixels
    except REFUSALS as error:
        assert str(error).startswith("broken: ")
        assert "\n" not in str(error)
        return None


def test_the_files_are_sound_before_they_are_mutated(tmp_path):
    for name, content in mutations.sound_files().items():
        pixels = pixels_or_none(tmp_path / "broken", content)
        assert (pixels is None) == (name in ("tiff pages", "gif frames")), name


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(tmp_path, seed):
    path = tmp_path / "broken"
    for mutation in mutations.mutations(150, seed):
        pixels = pixels_or_none(path, mutation.content)
        if pixels is None:
            continue
        header = read_header(path)
        assert pixels.ndim in (2, 3)
        assert sorted(pixels.shape[:2]) == sorted((header.height, header.width))
        if mutation.way == "cut off":  # nothing that lacks its end may be returned, unless nothing is lost
            whole = pixels_or_none(path, mutation.original)
            assert np.array_equal(pixels, whole), mutation.name
