"""Densities, draws and modes of Gaussians; covariances are upper triangular W, ``W.T @ W = inv(Sigma)``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

_LOG_2PI = float(np.log(2.0 * np.pi))


def gaussian_logs(X: Array, centres: Array, whiteners: Array, shifts: Array | None = None) -> Array:
    """Log-density of X (N, D) around centres (., K1, D) plus shifts (., K2, D), shape (N, K1, K2)."""
    D = X.shape[-1]
    white = _whiten(whiteners, X[:, None, :])
    if shifts is not None:
        white = white - np.einsum("bjxy,bjy->bjx", whiteners, shifts)[:, None]
    middle = _whiten(whiteners, centres)
    squares = np.zeros(np.broadcast_shapes(white.shape[:-1], middle.shape[:-1]))
    for x in range(D):
        squares += (white[..., x] - middle[..., x]) ** 2
    log_det = np.log(np.diagonal(whiteners, axis1=-2, axis2=-1)).sum(axis=-1)
    return log_det[:, None, :] - 0.5 * (squares + D * _LOG_2PI)


def _whiten(whiteners: Array, vectors: Array) -> Array:
    """Multiply vectors (n, K, D) by whiteners (1 or n, K2, D, D), to (n, K, K2, D)."""
    K2, D = whiteners.shape[1:3]
    if len(whiteners) == 1:
        return (vectors @ whiteners.reshape(K2 * D, D).T).reshape(*vectors.shape[:2], K2, D)
    terms = [whiteners[:, None, :, :, y] * vectors[:, :, None, None, y] for y in range(D)]
    return np.sum(terms, axis=0)


def precisions_of(whiteners: Array) -> Array:
    """Invert covariances given as whiteners, both (K, D, D)."""
    return np.swapaxes(whiteners, -1, -2) @ whiteners


def pair_sums(X: Array, z1: Labels, z2: Labels, K1: int, K2: int) -> tuple[Array, Array]:
    """Count (K1, K2) and add up (K1, K2, D) the points of every pair."""
    cell = z1 * K2 + z2
    counts = np.bincount(cell, minlength=K1 * K2).astype(float)
    sums = np.stack([np.bincount(cell, column, K1 * K2) for column in X.T], axis=-1).astype(float)
    return counts.reshape(K1, K2), sums.reshape(K1, K2, -1)


def _scatters(residuals: Array, z2: Labels, K2: int) -> tuple[Array, Array]:
    """Compute number (K2,) and scatter matrix (K2, D, D) of the residuals of each component."""
    groups = [residuals[z2 == d] for d in range(K2)]
    return np.array([len(g) for g in groups], float), np.stack([g.T @ g for g in groups])


def draw_places(
    rng: np.random.Generator,
    X: Array,
    z1: Labels,
    z2: Labels,
    K1: int,
    whiteners: Array,
    mean: ArrayLike | None,
    covariance: ArrayLike | None,
) -> Array:
    """Draw the Gaussian means of the first side, given the covariances of the second side, (K1, D)."""
    precisions = precisions_of(whiteners)
    counts, sums = pair_sums(X, z1, z2, K1, len(whiteners))
    prior = inverse(covariance)
    posterior = prior + np.einsum("cd,dxy->cxy", counts, precisions)
    pull = prior @ np.asarray(mean) + np.einsum("dxy,cdy->cx", precisions, sums)
    return draw_by_precision(rng, posterior, pull)


def draw_posterior_whiteners(
    rng: np.random.Generator, residuals: Array, z2: Labels, K2: int, degrees: float | None, scale: ArrayLike
) -> Array:
    """Draw each covariance given its residuals and the inverse Wishart prior, as a whitener (K2, D, D)."""
    counts, scatters = _scatters(residuals, z2, K2)
    assert degrees is not None
    return np.concatenate(
        [
            draw_whiteners(rng, degrees + count, inverse_root(np.asarray(scale) + scatter), 1)
            for count, scatter in zip(counts, scatters, strict=True)
        ]
    )


def fit_whiteners(residuals: Array, z2: Labels, K2: int, degrees: float | None, scale: ArrayLike) -> Array:
    """Mode of each covariance under the inverse Wishart prior, as a whitener."""
    counts, scatters = _scatters(residuals, z2, K2)
    assert degrees is not None
    D = residuals.shape[1]
    modes = (np.asarray(scale) + scatters) / (degrees + D + 1 + counts)[:, None, None]
    return np.swapaxes(np.stack([inverse_root(mode) for mode in modes]), -1, -2)


def inverse_root(matrix: ArrayLike | None) -> Array:
    """Lower triangular C with ``C @ C.T = inv(matrix)``."""
    return np.asarray(np.linalg.cholesky(inverse(matrix)), dtype=float)


def inverse(matrix: ArrayLike | None) -> Array:
    """Invert a matrix that has been resolved and so is not None."""
    return np.asarray(np.linalg.inv(np.asarray(matrix, dtype=float)), dtype=float)


def draw_whiteners(rng: np.random.Generator, degrees: float | None, root: Array, size: int) -> Array:
    """Draw W with ``W.T @ W`` Wishart of scale ``root @ root.T`` (Bartlett), (size, D, D)."""
    D = len(root)
    assert degrees is not None
    A = np.tril(rng.standard_normal((size, D, D)), -1)
    A[:, np.arange(D), np.arange(D)] = np.sqrt(rng.chisquare(degrees - np.arange(D), (size, D)))
    return np.swapaxes(root @ A, -1, -2)


def draw_normal(
    rng: np.random.Generator, mean: ArrayLike | None, covariance: ArrayLike | None, size: int
) -> Array:
    """Draw from a Gaussian, (size, D)."""
    root = np.linalg.cholesky(np.asarray(covariance))
    return np.asarray(mean) + rng.standard_normal((size, len(root))) @ root.T


def draw_by_precision(rng: np.random.Generator, precision: Array, pull: Array) -> Array:
    """Draw from N(inv(precision) pull, inv(precision)), batched over the first axis."""
    root = np.linalg.cholesky(precision)
    noise = rng.standard_normal(pull.shape)[..., None]
    centre = np.linalg.solve(precision, pull[..., None])
    return (centre + np.linalg.solve(np.swapaxes(root, -1, -2), noise))[..., 0]
