"""What a component is: the interface to the samplers, and two Gaussian families (Section 5.1 of [1]).

A family says how a point is distributed given one component of each side, and how the parameters are drawn
from their priors and posteriors. The samplers know nothing else of it.

Parameters of several components are a tuple of arrays (`Params`) whose first axis counts the components.
For `log_density` two leading axes are used, (points or 1, components), so that every point may bring
components of its own.

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Components", "Family", "OffsetGaussians", "Params", "SharedGaussians", "concatenate", "take"]

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Params = tuple[Array, ...]

_LOG_2PI = float(np.log(2.0 * np.pi))


class Components(Protocol):
    """What a sweep over memberships needs of a family."""

    def draw_first(self, rng: np.random.Generator, size: int) -> Params:
        """Draw `size` components of the first side from the prior."""

    def draw_second(self, rng: np.random.Generator, size: int) -> Params:
        """Draw `size` components of the second side from the prior."""

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """Log-density of each point under each pair of components.

        Parameters
        ----------
        X : array of shape (N, D)
        first : arrays of shape (N or 1, K1, ...)
        second : arrays of shape (N or 1, K2, ...)

        Returns
        -------
        array of shape (N, K1, K2)
        """


class Family(Components, Protocol):
    """A component family of two sides; parameters of each side are independent under the prior."""

    def prepare(self, X: Array) -> Self:
        """Return a copy with every prior setting resolved for the data (N, D), or raise ValueError."""

    def invariant(self, X: Array) -> Array:
        """Give what the second side cannot change in the data, (N, any); the first side starts there."""

    def resample_first(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, size: int, second: Params
    ) -> Params:
        """Draw the `size` components of the first side given memberships and second side (4.1, step 2)."""

    def resample_second(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """Draw the second side given memberships and first side; `second` is where it stood."""

    def mode_second(self, X: Array, z1: Labels, z2: Labels, first: Params, second: Params) -> Params:
        """Fit the second side given the first and all memberships, for the finite side of HybridM3."""


def take(params: Params, index: Any) -> Params:
    """Index every array of some parameters alike."""
    return tuple(array[index] for array in params)


def concatenate(*groups: Params) -> Params:
    """Put components of several groups one after the other."""
    return tuple(np.concatenate(arrays) for arrays in zip(*groups, strict=True))


@dataclass(frozen=True)
class SharedGaussians:
    """Means on the first side, covariances on the second: ``x ~ N(mu_z1, Sigma_z2)`` (Section 5.1).

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

    Notes
    -----
    A covariance is kept as the upper triangular W with ``W.T @ W = inv(Sigma)``, which is what densities
    need and what draws give without an inversion (Bartlett).
    """

    mean: ArrayLike | None = None
    mean_covariance: ArrayLike | None = None
    degrees: float | None = None
    scale: ArrayLike = 0.1

    def prepare(self, X: Array) -> Self:
        """Resolve the priors; see `Family`."""
        centre, spread = _moments(X)
        D = X.shape[1]
        degrees = _check_degrees(self.degrees, D, "SharedGaussians")
        return replace(
            self,
            mean=_vector(self.mean, centre, "mean", "SharedGaussians"),
            mean_covariance=_matrix(self.mean_covariance, spread, "mean_covariance", "SharedGaussians"),
            degrees=degrees,
            scale=_matrix(self.scale, spread, "scale", "SharedGaussians"),
        )

    def invariant(self, X: Array) -> Array:
        """Give the points themselves, whose centres do not depend on covariances."""
        return X

    def draw_first(self, rng: np.random.Generator, size: int) -> Params:
        """Means, (size, D)."""
        return (_draw_normal(rng, self.mean, self.mean_covariance, size),)

    def draw_second(self, rng: np.random.Generator, size: int) -> Params:
        """Whiteners, (size, D, D)."""
        return (_draw_whiteners(rng, self.degrees, _inverse_root(self.scale), size),)

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """See `Family`."""
        return _gaussian_logs(X, first[0], second[0])

    def resample_first(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, size: int, second: Params
    ) -> Params:
        """See `Family`."""
        return (_draw_places(rng, X, z1, z2, size, second[0], self.mean, self.mean_covariance),)

    def resample_second(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """See `Family`."""
        residuals = X - first[0][z1]
        return (_draw_posterior_whiteners(rng, residuals, z2, len(second[0]), self.degrees, self.scale),)

    def mode_second(self, X: Array, z1: Labels, z2: Labels, first: Params, second: Params) -> Params:
        """Take the modes of the covariances given the residuals; see `Family`."""
        return (_fit_whiteners(X - first[0][z1], z2, len(second[0]), self.degrees, self.scale),)


@dataclass(frozen=True)
class OffsetGaussians:
    """A place on the first side, an offset with its spread on the second: ``x ~ N(t_z1 + B g_z2, Sigma_z2)``.

    The same use round another human pose, or the same contrast of another texture, shifts a point alike.

    Parameters
    ----------
    directions : array-like of shape (D, R), optional
        The directions B in which the second side may shift a point; all (the identity) by default. A
        column of ones makes the second side a common gain of log-responses.
    mean, mean_covariance : array-like of shape (D,) and (D, D), optional
        Gaussian prior of the places; by default the mean and the covariance of the data.
    offset_covariance : float or array-like of shape (R, R), default=1.0
        Covariance of the Gaussian prior of the offsets, whose mean is zero; a number stands for that
        multiple of the data's covariance, seen along B.
    degrees, scale
        Inverse Wishart prior of the covariances, as for `SharedGaussians`.

    Examples
    --------
    >>> family = OffsetGaussians().prepare(np.array([[0.0], [2.0]]))
    >>> place, offset, whitener = np.zeros((1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1, 1))
    >>> family.log_density(np.array([[1.0]]), (place,), (offset, whitener)).round(3).tolist()
    [[[-0.919]]]
    """

    directions: ArrayLike | None = None
    mean: ArrayLike | None = None
    mean_covariance: ArrayLike | None = None
    offset_covariance: ArrayLike = 1.0
    degrees: float | None = None
    scale: ArrayLike = 0.1

    def prepare(self, X: Array) -> Self:
        """Resolve the priors; see `Family`."""
        owner = "OffsetGaussians"
        centre, spread = _moments(X)
        D = X.shape[1]
        B = np.eye(D) if self.directions is None else np.asarray(self.directions, dtype=float)
        if B.ndim != 2 or len(B) != D or np.linalg.matrix_rank(B) < B.shape[1]:
            raise ValueError(
                f"directions of {owner} must be independent columns of length {D}, got shape {B.shape}"
            )
        along = np.linalg.pinv(B)
        return replace(
            self,
            directions=B,
            mean=_vector(self.mean, centre, "mean", owner),
            mean_covariance=_matrix(self.mean_covariance, spread, "mean_covariance", owner),
            offset_covariance=_matrix(
                self.offset_covariance, along @ spread @ along.T, "offset_covariance", owner
            ),
            degrees=_check_degrees(self.degrees, D, owner),
            scale=_matrix(self.scale, spread, "scale", owner),
        )

    def invariant(self, X: Array) -> Array:
        """Give the points without their part along B, or as they are where B spans everything."""
        B = np.asarray(self.directions)
        return X if B.shape[1] == B.shape[0] else X - X @ np.linalg.pinv(B).T @ B.T

    def draw_first(self, rng: np.random.Generator, size: int) -> Params:
        """Places, (size, D)."""
        return (_draw_normal(rng, self.mean, self.mean_covariance, size),)

    def draw_second(self, rng: np.random.Generator, size: int) -> Params:
        """Offsets, (size, R), and whiteners, (size, D, D)."""
        zero = np.zeros(len(np.asarray(self.offset_covariance)))
        return (
            _draw_normal(rng, zero, self.offset_covariance, size),
            _draw_whiteners(rng, self.degrees, _inverse_root(self.scale), size),
        )

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """See `Family`."""
        shifts = second[0] @ np.asarray(self.directions).T
        return _gaussian_logs(X, first[0], second[1], shifts)

    def resample_first(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, size: int, second: Params
    ) -> Params:
        """See `Family`."""
        offsets, whiteners = second
        remaining = X - (offsets @ np.asarray(self.directions).T)[z2]
        return (_draw_places(rng, remaining, z1, z2, size, whiteners, self.mean, self.mean_covariance),)

    def resample_second(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """Draw offsets given covariances, then covariances given offsets; see `Family`."""
        B, K2 = np.asarray(self.directions), len(second[1])
        remaining = X - first[0][z1]
        offsets = _draw_by_precision(rng, *self._offset_normal(remaining, z2, _precisions(second[1])))
        residuals = remaining - (offsets @ B.T)[z2]
        return offsets, _draw_posterior_whiteners(rng, residuals, z2, K2, self.degrees, self.scale)

    def mode_second(self, X: Array, z1: Labels, z2: Labels, first: Params, second: Params) -> Params:
        """Take the modes of offsets, then of covariances; neither lowers the posterior; see `Family`."""
        B, K2 = np.asarray(self.directions), len(second[1])
        remaining = X - first[0][z1]
        posterior, pull = self._offset_normal(remaining, z2, _precisions(second[1]))
        offsets = np.asarray(np.linalg.solve(posterior, pull[..., None])[..., 0], dtype=float)
        residuals = remaining - (offsets @ B.T)[z2]
        return offsets, _fit_whiteners(residuals, z2, K2, self.degrees, self.scale)

    def _offset_normal(self, remaining: Array, z2: Labels, precisions: Array) -> tuple[Array, Array]:
        """Precision and precision-weighted mean of each offset's normal posterior."""
        B = np.asarray(self.directions)
        counts, sums = _pair_sums(remaining, np.zeros_like(z2), z2, 1, len(precisions))
        seen = B.T @ precisions
        posterior = _inverse(self.offset_covariance) + counts[0][:, None, None] * (seen @ B)
        return posterior, (seen @ sums[0][:, :, None])[..., 0]


def _gaussian_logs(X: Array, centres: Array, whiteners: Array, shifts: Array | None = None) -> Array:
    """Log-density of X (N, D) round centres (., K1, D) plus shifts (., K2, D), shape (N, K1, K2)."""
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


def _precisions(whiteners: Array) -> Array:
    return np.swapaxes(whiteners, -1, -2) @ whiteners


def _pair_sums(X: Array, z1: Labels, z2: Labels, K1: int, K2: int) -> tuple[Array, Array]:
    """Count (K1, K2) and add up (K1, K2, D) the points of every pair."""
    cell = z1 * K2 + z2
    counts = np.bincount(cell, minlength=K1 * K2).astype(float)
    sums = np.stack([np.bincount(cell, column, K1 * K2) for column in X.T], axis=-1).astype(float)
    return counts.reshape(K1, K2), sums.reshape(K1, K2, -1)


def _scatters(residuals: Array, z2: Labels, K2: int) -> tuple[Array, Array]:
    """Compute number (K2,) and scatter matrix (K2, D, D) of the residuals of each component."""
    groups = [residuals[z2 == d] for d in range(K2)]
    return np.array([len(g) for g in groups], float), np.stack([g.T @ g for g in groups])


def _draw_places(
    rng: np.random.Generator,
    X: Array,
    z1: Labels,
    z2: Labels,
    K1: int,
    whiteners: Array,
    mean: ArrayLike | None,
    covariance: ArrayLike | None,
) -> Array:
    """Draw the Gaussian means of the first side, whose points have covariances of the second, (K1, D)."""
    precisions = _precisions(whiteners)
    counts, sums = _pair_sums(X, z1, z2, K1, len(whiteners))
    prior = _inverse(covariance)
    posterior = prior + np.einsum("cd,dxy->cxy", counts, precisions)
    pull = prior @ np.asarray(mean) + np.einsum("dxy,cdy->cx", precisions, sums)
    return _draw_by_precision(rng, posterior, pull)


def _draw_posterior_whiteners(
    rng: np.random.Generator, residuals: Array, z2: Labels, K2: int, degrees: float | None, scale: ArrayLike
) -> Array:
    counts, scatters = _scatters(residuals, z2, K2)
    assert degrees is not None
    return np.concatenate(
        [
            _draw_whiteners(rng, degrees + count, _inverse_root(np.asarray(scale) + scatter), 1)
            for count, scatter in zip(counts, scatters, strict=True)
        ]
    )


def _fit_whiteners(
    residuals: Array, z2: Labels, K2: int, degrees: float | None, scale: ArrayLike
) -> Array:
    """Mode of each covariance under the inverse Wishart prior, as a whitener."""
    counts, scatters = _scatters(residuals, z2, K2)
    assert degrees is not None
    D = residuals.shape[1]
    modes = (np.asarray(scale) + scatters) / (degrees + D + 1 + counts)[:, None, None]
    return np.swapaxes(np.stack([_inverse_root(mode) for mode in modes]), -1, -2)


def _inverse_root(matrix: ArrayLike | None) -> Array:
    """Lower triangular C with ``C @ C.T = inv(matrix)``."""
    return np.asarray(np.linalg.cholesky(_inverse(matrix)), dtype=float)


def _inverse(matrix: ArrayLike | None) -> Array:
    return np.asarray(np.linalg.inv(np.asarray(matrix, dtype=float)), dtype=float)


def _draw_whiteners(rng: np.random.Generator, degrees: float | None, root: Array, size: int) -> Array:
    """Draw W with ``W.T @ W`` Wishart of scale ``root @ root.T`` (Bartlett), (size, D, D)."""
    D = len(root)
    assert degrees is not None
    A = np.tril(rng.standard_normal((size, D, D)), -1)
    A[:, np.arange(D), np.arange(D)] = np.sqrt(rng.chisquare(degrees - np.arange(D), (size, D)))
    return np.swapaxes(root @ A, -1, -2)


def _draw_normal(
    rng: np.random.Generator, mean: ArrayLike | None, covariance: ArrayLike | None, size: int
) -> Array:
    root = np.linalg.cholesky(np.asarray(covariance))
    return np.asarray(mean) + rng.standard_normal((size, len(root))) @ root.T


def _draw_by_precision(rng: np.random.Generator, precision: Array, pull: Array) -> Array:
    """Draw from N(inv(precision) pull, inv(precision)), batched over the first axis."""
    root = np.linalg.cholesky(precision)
    noise = rng.standard_normal(pull.shape)[..., None]
    centre = np.linalg.solve(precision, pull[..., None])
    return (centre + np.linalg.solve(np.swapaxes(root, -1, -2), noise))[..., 0]


def _moments(X: Array) -> tuple[Array, Array]:
    """Mean and covariance of the data, the latter made positive definite."""
    N, D = X.shape
    centre = X.mean(axis=0)
    covariance = (X - centre).T @ (X - centre) / max(N - 1, 1)
    floor = 1e-6 * np.trace(covariance) / D
    return centre, covariance + (floor if floor > 0 else 1.0) * np.eye(D)


def _check_degrees(degrees: float | None, D: int, owner: str) -> float:
    value = D + 2.0 if degrees is None else float(degrees)
    if not value > D - 1:
        raise ValueError(f"degrees of {owner} must exceed {D - 1} for data of {D} columns, got {degrees!r}")
    return value


def _vector(given: ArrayLike | None, default: Array, name: str, owner: str) -> Array:
    value = default if given is None else np.asarray(given, dtype=float)
    if value.shape != default.shape:
        raise ValueError(f"{name} of {owner} must have shape {default.shape}, got {value.shape}")
    return value


def _matrix(given: ArrayLike | None, default: Array, name: str, owner: str) -> Array:
    """Resolve a covariance: left out, a multiple of the data's, or a matrix."""
    value = np.asarray(1.0 if given is None else given, dtype=float)
    if value.ndim == 0:
        value = value * default
    if value.shape != default.shape or not np.allclose(value, value.T) or np.linalg.eigvalsh(value)[0] <= 0:
        raise ValueError(
            f"{name} of {owner} must be a positive number or a positive definite matrix of shape"
            f" {default.shape}, got {given!r}"
        )
    return value
