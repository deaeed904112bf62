"""Other ways to segment textures, written as their users write them or called as they are."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, signal
from scipy.sparse import coo_matrix
from skimage.color import rgb2gray, rgb2lab
from skimage.feature import local_binary_pattern, multiscale_basic_features
from skimage.filters import gabor_kernel
from skimage.segmentation import slic
from sklearn.cluster import AgglomerativeClustering, KMeans

Peer = Callable[[NDArray, int], NDArray[np.integer]]


def _grey(image: NDArray) -> NDArray[np.float64]:
    return rgb2gray(image) * 255 if image.ndim == 3 else image.astype(float)


def _k_means(features: NDArray, n_segments: int, n_init: int = 5) -> NDArray[np.integer]:
    """Cluster standardised features (H, W, F) into labels 1 ... K."""
    columns = features.reshape(-1, features.shape[-1])
    spread = columns.std(axis=0)
    standard = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
    labels = KMeans(n_segments, n_init=n_init, random_state=0).fit_predict(standard)
    return labels.reshape(features.shape[:2]) + 1


def gabor_energies(image: NDArray) -> NDArray[np.float64]:
    """Smoothed Gabor magnitudes at all octaves of the image and 4 orientations, (H, W, F)."""
    grey = _grey(image)
    shortest = 4 / np.sqrt(2)
    n_octaves = int(np.log2(np.hypot(*grey.shape) / shortest)) - 1
    centred = grey - grey.mean()
    energies = []
    for wavelength in shortest * 2.0 ** np.arange(n_octaves):
        for theta in np.arange(4) * np.pi / 4:
            kernel = gabor_kernel(1 / wavelength, theta=theta, bandwidth=1)
            magnitude = np.abs(signal.fftconvolve(centred, kernel, mode="same"))
            energies.append(ndimage.gaussian_filter(magnitude, 1.5 * wavelength))
    return np.stack(energies, axis=-1)


def _positions(shape: tuple[int, int]) -> NDArray[np.float64]:
    return np.indices(shape).transpose(1, 2, 0).astype(float)


def recipe(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """The usual recipe: Gabor energies and positions, k-means."""
    features = np.concatenate([gabor_energies(image), _positions(image.shape[:2])], axis=-1)
    return _k_means(features, n_segments)


def recipe_without_positions(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    return _k_means(gabor_energies(image), n_segments)


def binary_patterns(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """Local histograms of uniform binary patterns (8 points, radius 1 and 2), k-means."""
    grey = np.round(_grey(image)).astype(np.uint8)
    histograms = []
    for radius in (1, 2):
        pattern = local_binary_pattern(grey, 8, radius, method="uniform").astype(int)
        histograms += [ndimage.gaussian_filter((pattern == code).astype(float), 12) for code in range(10)]
    return _k_means(np.sqrt(np.stack(histograms, axis=-1)), n_segments)


def _lab(image: NDArray) -> NDArray[np.float64]:
    """Lightness and, of colour images, a and b: (H, W, F)."""
    return rgb2lab(image[..., :3]) if image.ndim == 3 else image.astype(float)[..., None]


def lab_means(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """Smoothed L, a, b as they are, k-means: no texture at all."""
    smooth = ndimage.gaussian_filter(_lab(image), (3, 3, 0))
    labels = KMeans(n_segments, n_init=5, random_state=0).fit_predict(smooth.reshape(-1, smooth.shape[-1]))
    return labels.reshape(image.shape[:2]) + 1


def mean_and_spread(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """Local mean of L, a, b and local standard deviation of L, k-means."""
    planes = _lab(image)
    mean = ndimage.gaussian_filter(planes, (8, 8, 0))
    square = ndimage.gaussian_filter(planes[..., 0] ** 2, 8)
    spread = np.sqrt(np.maximum(square - mean[..., 0] ** 2, 0))
    return _k_means(np.concatenate([mean, spread[..., None]], axis=-1), n_segments)


def superpixels(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """SLIC, then neighbours of similar colour are merged by Ward's criterion."""
    planes = _lab(image)
    parts = slic(planes, n_segments=400, compactness=10, start_label=0, channel_axis=-1, convert2lab=False)
    n_parts = parts.max() + 1
    sizes = np.bincount(parts.ravel(), minlength=n_parts)
    sums = [np.bincount(parts.ravel(), plane.ravel(), n_parts) for plane in np.moveaxis(planes, -1, 0)]
    pairs = np.concatenate(
        [
            np.stack([parts[:, 1:].ravel(), parts[:, :-1].ravel()]),
            np.stack([parts[1:].ravel(), parts[:-1].ravel()]),
        ],
        axis=1,
    )
    touching = coo_matrix((np.ones(pairs.shape[1]), pairs), shape=(n_parts, n_parts))
    means = np.stack(sums, axis=-1) / sizes[:, None]
    return AgglomerativeClustering(n_segments, connectivity=touching).fit_predict(means)[parts] + 1


def basic_features(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """Local mean and contrast of the features of scikit-image's trainable segmentation, k-means."""
    stack = multiscale_basic_features(_grey(image), edges=True, texture=True, sigma_max=16)
    features = []
    for channel in np.moveaxis(stack, -1, 0):
        mean, square = (ndimage.gaussian_filter(values, 12) for values in (channel, channel**2))
        features += [mean, np.sqrt(np.maximum(square - mean**2, 0))]
    return _k_means(np.stack(features, axis=-1), n_segments)


def empirical_wavelets(image: NDArray, n_segments: int) -> NDArray[np.integer]:
    """Empirical curvelets of pyewt, local energies in 37 px windows, k-means (square images)."""
    import pyewt

    parameters = pyewt.Default_Params() | {"option": 1}
    with contextlib.redirect_stdout(io.StringIO()):
        coefficients = pyewt.ewt2d_curvelet(_grey(image), parameters)[0]
    bands = [band for scale in coefficients[1:] for band in (scale if isinstance(scale, list) else [scale])]
    energies = [ndimage.uniform_filter(np.abs(np.asarray(band)), 37) for band in bands]
    return _k_means(np.stack(energies, axis=-1), n_segments)


PEERS: dict[str, Peer] = {
    "recipe": recipe,
    "recipe-xy": recipe_without_positions,
    "lbp": binary_patterns,
    "basic": basic_features,
    "lab": lab_means,
    "mean-spread": mean_and_spread,
    "slic": superpixels,
}
"""Peers by name; `recipe-xy` is the recipe less x and y."""

SIMPLE = ("lab", "mean-spread", "slic", "lbp")
"""What anybody would try first: ours should never be worse."""

if importlib.util.find_spec("pyewt"):
    PEERS["pyewt"] = empirical_wavelets
