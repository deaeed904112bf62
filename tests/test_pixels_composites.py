"""Composites: every filled pixel comes from the inside of a segment of its label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from texseg.channels.planes import Planes
from texseg.pixels.composites import border_distance, compose, trusted

MARGIN = 3.0


def addresses(shape, offset=0):
    """An image whose values say where they are from."""
    return (offset + np.arange(shape[0] * shape[1])).reshape(shape).astype(np.float64)


def thirds(shape):
    return (3 * np.arange(shape[1]) // shape[1]).astype(np.int32)[None, :].repeat(shape[0], axis=0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 3))
def test_border_distance_is_that_of_the_nearest_pixel_at_a_border(seed, n_labels):
    labels = np.random.default_rng(seed).integers(0, n_labels, (7, 9)).repeat(3, axis=0)
    at_border = np.zeros(labels.shape, bool)
    for row, column in np.ndindex(labels.shape):
        around = labels[max(0, row - 1) : row + 2, column], labels[row, max(0, column - 1) : column + 2]
        at_border[row, column] = any((side != labels[row, column]).any() for side in around)
    places = np.argwhere(at_border)
    every = np.argwhere(np.ones(labels.shape, bool))
    distances = np.linalg.norm(every[:, None] - places, axis=-1).min(axis=1, initial=np.inf)
    np.testing.assert_allclose(border_distance(labels).ravel(), distances, rtol=1e-5)


def test_pixels_come_from_trusted_pixels_of_their_label():
    shape = (96, 120)
    labels = thirds(shape)
    image = Planes([addresses(shape), -addresses(shape)], None, [])
    made = compose([image], [trusted(labels, MARGIN)], 3, 24, np.random.default_rng(0))
    assert made.labels.shape == made.filled.shape == shape
    assert made.filled.mean() > 0.8
    assert set(np.unique(made.labels)) == {0, 1, 2}
    source = made.planes.bands[0].astype(int)
    np.testing.assert_array_equal(made.planes.bands[1], -made.planes.bands[0])
    usable = trusted(labels, MARGIN).ravel()
    np.testing.assert_array_equal(usable[source[made.filled]], made.labels[made.filled])
    # pieces are copied as they are: next to each other in a piece is next to each other in the image
    steps = source[:, 1:] - source[:, :-1]
    inner = made.filled[:, 1:] & made.filled[:, :-1] & (border_distance(made.labels)[:, 1:] > 1)
    assert (steps[inner] == 1).mean() > 0.9  # where they are not, two pieces of one label touch


def test_several_images_give_pieces_and_missing_pixels_give_none():
    shapes = (70, 80), (60, 100)
    labels = [thirds(shape) for shape in shapes]
    labels[1][:] = np.minimum(labels[1], 1)  # the second image lacks a texture
    mask = np.ones(shapes[1], bool)
    mask[:30] = False
    offset = shapes[0][0] * shapes[0][1]
    images = [Planes([addresses(shapes[0])], None, []), Planes([addresses(shapes[1], offset)], mask, [])]
    usable = [trusted(labels[0], MARGIN), trusted(labels[1], MARGIN, mask)]
    made = compose(images, usable, 3, 16, np.random.default_rng(1))
    assert made.labels.shape == (70, 100)  # as high as the highest, as wide as the widest
    source = made.planes.bands[0][made.filled].astype(int)
    found = np.concatenate([one.ravel() for one in usable])[source]
    np.testing.assert_array_equal(found, made.labels[made.filled])
    assert 0.1 < (source >= offset).mean() < 0.9


def test_composites_are_no_larger_than_needed_repeat_and_leave_their_sources_alone():
    labels = thirds((40, 600))
    image = Planes([addresses(labels.shape)], None, [])
    usable = trusted(labels, MARGIN)
    copies = usable.copy(), image.bands[0].copy()
    one, two = (compose([image], [usable], 3, 30, np.random.default_rng(5)) for _ in range(2))
    assert one.labels.shape == (40, 300)
    for a, b in zip(one[1:], two[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.planes.bands[0], two.planes.bands[0])
    np.testing.assert_array_equal(usable, copies[0])
    np.testing.assert_array_equal(image.bands[0], copies[1])


@pytest.mark.parametrize("n_labels", [2, 6])
def test_every_label_has_pieces_however_few_fit(n_labels):
    labels = (np.arange(96) * n_labels // 96).astype(np.int32)[:, None].repeat(96, axis=1)
    image = Planes([addresses((96, 96))], None, [])
    made = compose([image], [trusted(labels, 1)], n_labels, 200, np.random.default_rng(0))
    assert set(np.unique(made.labels)) == set(range(n_labels))


def test_images_of_different_types_keep_their_values():
    whole = np.arange(6400, dtype=np.uint16).reshape(80, 80)
    fractions = np.linspace(0.1, 0.9, 6400).reshape(80, 80)
    labels = np.zeros((80, 80), np.int32)
    images = [Planes([whole], None, []), Planes([fractions], None, [])]
    made = compose(images, [labels, labels + 1], 2, 24, np.random.default_rng(0))
    values = made.planes.bands[0][made.filled & (made.labels == 1)]
    assert len(values) > 500
    assert np.isin(values, fractions).all()
