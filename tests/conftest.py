"""Images with planted textures that several test files share."""

import numpy as np
import pytest


def oriented_noise(shape, wavelength, degrees, rng, bandwidths=(0.2, 0.25)):
    """Gaussian noise of one scale and direction, standard deviation 1.

    Bandwidths are standard deviations of the spectrum along and across the direction, in 1 / wavelength: the
    narrower, the longer the beats, in which one texture differs from itself.
    """
    v, u = np.fft.fftfreq(shape[0])[:, None], np.fft.fftfreq(shape[1])[None, :]
    angle = np.radians(degrees)
    p, t = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
    along, across = (np.abs(p) * wavelength - 1) / bandwidths[0], t * wavelength / bandwidths[1]
    window = np.exp(-0.5 * (along**2 + across**2))
    noise = np.fft.ifft2(np.fft.fft2(rng.standard_normal(shape)) * window).real
    return noise / noise.std()


def planted(shape=(128, 144), seed=0):
    """Return an image of three textures of equal mean and contrast, uint8, and its truth 1..3."""
    rng = np.random.default_rng(seed)
    textures = [oriented_noise(shape, w, a, rng) for w, a in ((3.5, 0), (3.5, 90), (9.0, 45))]
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    truth = np.where(rows < 0.45 * shape[0] + 6 * np.sin(columns / 20), 0, 1 + (columns >= 0.5 * shape[1]))
    grey = np.choose(truth, textures) + 0.1 * rng.standard_normal(shape)
    return np.clip(128 + 40 * grey, 0, 255).astype(np.uint8), truth + 1


def planted_in_number(n_textures, shape, seed=0):
    """Return an image of 1 to 5 homogeneous textures of equal mean and contrast, uint8, and its truth."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]] / np.array(shape)[:, None, None]
    top = rows < 0.5 + 0.03 * np.sin(columns * 10)
    left = columns < 0.5 + 0.03 * np.sin(rows * 10)
    thirds = 2 + (columns > 1 / 3) + (columns > 2 / 3)
    truth = {
        1: np.zeros(shape, int),
        2: np.where(left, 0, 1),
        3: np.where(top, 2, np.where(left, 0, 1)),
        4: np.where(top, 2, 0) + np.where(left, 0, 1),
        5: np.where(top, np.where(left, 0, 1), thirds),
    }[n_textures]
    kinds = ((3.5, 0), (3.5, 90), (9.0, 45), (6.0, 0), (5.0, 135))[:n_textures]
    textures = [oriented_noise(shape, w, a, rng, bandwidths=(0.4, 0.4)) for w, a in kinds]
    grey = np.choose(truth, textures) + 0.1 * rng.standard_normal(shape)
    return np.clip(128 + 40 * grey, 0, 255).astype(np.uint8), truth + 1


@pytest.fixture(scope="session")
def mosaic():
    """Three planted textures, uint8 (128, 144), and the truth 1..3; both read-only."""
    image, truth = planted()
    image.setflags(write=False)
    truth.setflags(write=False)
    return image, truth


@pytest.fixture(scope="session")
def make_mosaic():
    """Return the function that plants the same three textures in other shapes and with other seeds."""
    return planted


@pytest.fixture(scope="session")
def make_number():
    """Return the function that plants 1 to 5 homogeneous textures."""
    return planted_in_number
