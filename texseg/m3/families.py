"""What a component is: the interface to the samplers, and two Gaussian families (Section 5.1 of [1]).

Parameters of several components are a tuple of arrays (`Params`) whose first axis counts the components.
For `log_density` there are two leading axes, (points or 1, components), so that every point may have
components of its own.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Params = tuple[Array, ...]
Rng = np.random.Generator

_LOG_2PI = float(np.log(2.0 * np.pi))


class Family(Protocol):
    """A component family of two sides; parameters of each side are independent under the prior."""

    def prepare(self, X: Array) -> Self:
        """Return a copy with every prior setting resolved for the data (N, D), or raise ValueError."""

    def invariant(self, X: Array) -> Array:
        """Return what the second side cannot change in the data, (N, any); the first side starts from it."""

    def draw_first(self, rng: Rng, size: int) -> Params:
        """Draw `size` components of the first side from the prior."""

    def draw_second(self, rng: Rng, size: int) -> Params:
        """Draw `size` components of the second side from the prior."""

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """Log-density of each point under each pair of components."""

    def resample_first(self, rng: Rng, X: Array, z1: Labels, z2: Labels, size: int, second: Params) -> Params:
        """Draw the `size` components of the first side given memberships and second side (4.1, step 2)."""

    def resample_second(
        self, rng: Rng | None, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """Draw the second side given memberships, first side and itself; without ``rng``, take its mode."""


def take(params: Params, index: Any) -> Params:
    """Apply the same index to every parameter array."""
    return tuple(array[index] for array in params)


def concatenate(*groups: Params) -> Params:
    """Concatenate the components of several groups."""
    return tuple(np.concatenate(arrays) for arrays in zip(*groups, strict=True))


@dataclass(frozen=True)
class SharedGaussians:
    """Means on the first side, covariances on the second: ``x ~ N(mu_z1, Sigma_z2)`` (Section 5.1).

    The parameters of a second component are its whitener, the upper triangular W with ``W.T @ W =
    inv(Sigma)``.

    Parameters
    ----------
    mean, mean_covariance : array-like of shape (D,) and (D, D), optional
        Gaussian prior of the means; by default the mean and the covariance of the data.
    degrees : float, optional
        Degrees of freedom of the inverse Wishart prior of the covariances; D + 2 by default.
    scale : float or array-like of shape (D, D), default=0.1
        Its scale matrix; a number stands for that multiple of the covariance of the data. With the default
        degrees it is the prior mean of the covariances.

    Examples
    --------
    >>> family = SharedGaussians(mean=[0.0], mean_covariance=[[1.0]], scale=[[1.0]]).prepare(np.zeros((3, 1)))
    >>> means, whiteners = np.array([[[0.0], [1.0]]]), np.ones((1, 1, 1, 1))
    >>> family.log_density(np.array([[0.0]]), (means,), (whiteners,)).round(3).tolist()
    [[[-0.919], [-1.419]]]
    """

    mean: Any = None
    mean_covariance: Any = None
    degrees: Any = None
    scale: Any = 0.1

    def prepare(self, X: Array) -> Self:
        """Resolve the priors; see `Family`."""
        (centre, spread), owner, D = _moments(X), type(self).__name__, X.shape[1]
        mean = centre if self.mean is None else np.asarray(self.mean, dtype=float)
        if mean.shape != (D,):
            raise ValueError(f"mean of {owner} must have shape {(D,)}, got {mean.shape}")
        degrees = D + 2.0 if self.degrees is None else float(self.degrees)
        if not degrees > D - 1:
            raise ValueError(f"degrees of {owner} must exceed {D - 1} for {D} columns, got {degrees}")
        covariance = _matrix(self.mean_covariance, spread, "mean_covariance", owner)
        scale = _matrix(self.scale, spread, "scale", owner)
        return replace(self, mean=mean, mean_covariance=covariance, degrees=degrees, scale=scale)

    def invariant(self, X: Array) -> Array:
        """Return the points themselves, whose centres do not depend on covariances."""
        return X

    def draw_first(self, rng: Rng, size: int) -> Params:
        """Means (places), (size, D)."""
        return (rng.multivariate_normal(self.mean, self.mean_covariance, size, method="cholesky"),)

    def draw_second(self, rng: Rng, size: int) -> Params:
        """Whiteners, (size, D, D)."""
        return (draw_whiteners(rng, self.degrees, self.scale, size),)

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """See `Family`; of X (N, D), places (., K1, D) and shifts (., K2, D), shape (N, K1, K2)."""
        whiteners, shifts, D = second[-1], self._shifts(second), X.shape[-1]
        white = _whiten(whiteners, X[:, None, :])
        if shifts is not None:
            white = white - np.einsum("bjxy,bjy->bjx", whiteners, shifts)[:, None]
        apart = white - _whiten(whiteners, first[0])
        squares = np.einsum("nkld,nkld->nkl", apart, apart)
        log_det = np.log(np.diagonal(whiteners, axis1=-2, axis2=-1)).sum(axis=-1)
        return np.asarray(log_det[:, None, :] - 0.5 * (squares + D * _LOG_2PI))

    def resample_first(self, rng: Rng, X: Array, z1: Labels, z2: Labels, size: int, second: Params) -> Params:
        """See `Family`."""
        shifts, precisions = self._shifts(second), np.swapaxes(second[-1], -1, -2) @ second[-1]
        remaining = X if shifts is None else X - shifts[z2]
        counts, sums = pair_sums(remaining, z1, z2, size, len(precisions))
        prior = np.linalg.inv(self.mean_covariance)
        posterior = prior + np.einsum("cd,dxy->cxy", counts, precisions)
        pull = prior @ self.mean + np.einsum("dxy,cdy->cx", precisions, sums)
        return (draw_by_precision(rng, posterior, pull),)

    def resample_second(
        self, rng: Rng | None, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """See `Family`; no part of a mode lowers the posterior."""
        return (self._whiteners(rng, X - first[0][z1], z2, len(second[0])),)

    def _whiteners(self, rng: Rng | None, residuals: Array, z2: Labels, K2: int) -> Array:
        """Draw each covariance given its residuals and the prior, or take its mode: whiteners (K2, D, D)."""
        out = []
        for group in (residuals[z2 == d] for d in range(K2)):
            scale, freedom = self.scale + group.T @ group, self.degrees + len(group)
            if rng is None:
                out.append(inverse_root(scale / (freedom + len(scale) + 1)).T)
            else:
                out.append(draw_whiteners(rng, freedom, scale, 1)[0])
        return np.stack(out)

    def _shifts(self, second: Params) -> Array | None:
        """Return how far the second side moves the centres, (..., K2, D)."""
        return None


@dataclass(frozen=True)
class OffsetGaussians(SharedGaussians):
    """Places on the first side, offsets with a spread on the second: ``x ~ N(t_z1 + B g_z2, Sigma_z2)``.

    Parameters
    ----------
    directions : array-like of shape (D, R), optional
        The directions B in which the second side may shift a point; all (the identity) by default.
    offset_covariance : float or array-like of shape (R, R), default=1.0
        Covariance of the Gaussian prior of the offsets, whose mean is zero; a number is relative to the data.
    mean, mean_covariance, degrees, scale
        Gaussian prior of the places and inverse Wishart prior of the covariances, as for `SharedGaussians`.

    Examples
    --------
    >>> family = OffsetGaussians().prepare(np.array([[0.0], [2.0]]))
    >>> place, offset, whitener = np.zeros((1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1, 1))
    >>> family.log_density(np.array([[1.0]]), (place,), (offset, whitener)).round(3).tolist()
    [[[-0.919]]]
    """

    directions: Any = None
    offset_covariance: Any = 1.0

    def prepare(self, X: Array) -> Self:
        """Resolve the priors; see `Family`."""
        owner, D = type(self).__name__, X.shape[1]
        B = np.eye(D) if self.directions is None else np.asarray(self.directions, dtype=float)
        if B.ndim != 2 or len(B) != D or np.linalg.matrix_rank(B) < B.shape[1]:
            raise ValueError(
                f"directions of {owner} must be independent columns of length {D}, got shape {B.shape}"
            )
        along = np.linalg.pinv(B)
        spread = along @ _moments(X)[1] @ along.T
        offsets = _matrix(self.offset_covariance, spread, "offset_covariance", owner)
        return replace(super().prepare(X), directions=B, offset_covariance=offsets)

    def invariant(self, X: Array) -> Array:
        """Return the points without their part along B, or unchanged if B spans the whole space."""
        B = self.directions
        return X if B.shape[1] == B.shape[0] else X - X @ np.linalg.pinv(B).T @ B.T

    def draw_second(self, rng: Rng, size: int) -> Params:
        """Offsets, (size, R), and whiteners, (size, D, D)."""
        zero = np.zeros(len(self.offset_covariance))
        offsets = rng.multivariate_normal(zero, self.offset_covariance, size, method="cholesky")
        return offsets, *super().draw_second(rng, size)

    def _shifts(self, second: Params) -> Array | None:
        return np.asarray(second[0] @ self.directions.T)

    def resample_second(
        self, rng: Rng | None, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """Draw offsets given covariances, then covariances given offsets; see `SharedGaussians`."""
        B, precisions = self.directions, np.swapaxes(second[1], -1, -2) @ second[1]
        remaining = X - first[0][z1]
        counts, sums = pair_sums(remaining, np.zeros_like(z2), z2, 1, len(precisions))
        seen = B.T @ precisions
        posterior = np.linalg.inv(self.offset_covariance) + counts[0][:, None, None] * (seen @ B)
        offsets = draw_by_precision(rng, posterior, (seen @ sums[0][:, :, None])[..., 0])
        return offsets, self._whiteners(rng, remaining - (offsets @ B.T)[z2], z2, len(precisions))


def _moments(X: Array) -> tuple[Array, Array]:
    """Mean and covariance of the data, the latter made positive definite."""
    N, D = X.shape
    centre = X.mean(axis=0)
    covariance = (X - centre).T @ (X - centre) / max(N - 1, 1)
    floor = 1e-6 * np.trace(covariance) / D
    return centre, covariance + (floor if floor > 0 else 1.0) * np.eye(D)


def _matrix(given: Any, default: Array, name: str, owner: str) -> Array:
    """Resolve a covariance given as None, as a multiple of the data's covariance, or as a matrix."""
    value = np.asarray(1.0 if given is None else given, dtype=float)
    if value.ndim == 0:
        value = value * default
    if value.shape != default.shape or not np.allclose(value, value.T) or np.linalg.eigvalsh(value)[0] <= 0:
        raise ValueError(
            f"{name} of {owner} must be a positive number or a positive definite matrix of shape"
            f" {default.shape}, got {given!r}"
        )
    return value


# ---- Gaussians; a covariance is kept as its whitener, the upper triangular W with W.T @ W = inv(Sigma)


def _whiten(whiteners: Array, vectors: Array) -> Array:
    """Multiply vectors (n, K, D) by whiteners (1 or n, K2, D, D), to (n, K, K2, D)."""
    K2, D = whiteners.shape[1:3]
    if len(whiteners) == 1:
        return (vectors @ whiteners.reshape(K2 * D, D).T).reshape(*vectors.shape[:2], K2, D)
    terms = [whiteners[:, None, :, :, y] * vectors[:, :, None, None, y] for y in range(D)]
    return np.sum(terms, axis=0)


def pair_sums(X: Array, z1: Labels, z2: Labels, K1: int, K2: int) -> tuple[Array, Array]:
    """Count (K1, K2) and add up (K1, K2, D) the points of every pair."""
    cell = z1 * K2 + z2
    counts = np.bincount(cell, minlength=K1 * K2).astype(float)
    sums = np.stack([np.bincount(cell, column, K1 * K2) for column in X.T], axis=-1).astype(float)
    return counts.reshape(K1, K2), sums.reshape(K1, K2, -1)


def inverse_root(matrix: Array) -> Array:
    """Lower triangular C with ``C @ C.T = inv(matrix)``."""
    return np.asarray(np.linalg.cholesky(np.linalg.inv(matrix)))


def draw_whiteners(rng: Rng, degrees: float, scale: Array, size: int) -> Array:
    """Draw W with ``inv(W.T @ W)`` inverse Wishart of the given scale (Bartlett), (size, D, D)."""
    root, D = inverse_root(scale), len(scale)
    A = np.tril(rng.standard_normal((size, D, D)), -1)
    A[:, np.arange(D), np.arange(D)] = np.sqrt(rng.chisquare(degrees - np.arange(D), (size, D)))
    return np.swapaxes(root @ A, -1, -2)


def draw_by_precision(rng: Rng | None, precision: Array, pull: Array) -> Array:
    """Draw from N(inv(precision) pull, inv(precision)), batched over the first axis; or return its mean."""
    centre = np.asarray(np.linalg.solve(precision, pull[..., None]), dtype=float)
    if rng is not None:
        root, noise = np.linalg.cholesky(precision), rng.standard_normal(pull.shape)[..., None]
        centre = centre + np.linalg.solve(np.swapaxes(root, -1, -2), noise)
    return centre[..., 0]
