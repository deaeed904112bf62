"""What a component is: the interface to the samplers, and two Gaussian families (Section 5.1 of [1]).

A family says how a point is distributed given one component of each side, and how the parameters are drawn
from their priors and posteriors. The samplers know nothing else about it.

Parameters of several components are a tuple of arrays (`Params`) whose first axis counts the components.
For `log_density` there are two leading axes, (points or 1, components), so that every point may have
components of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from texseg.m3.gaussian import (
    Array,
    Labels,
    draw_by_precision,
    draw_normal,
    draw_places,
    draw_posterior_whiteners,
    draw_whiteners,
    fit_whiteners,
    gaussian_logs,
    inverse,
    inverse_root,
    pair_sums,
    precisions_of,
)

Params = tuple[Array, ...]


class Components(Protocol):
    """What a sweep over memberships needs from a family."""

    def draw_first(self, rng: np.random.Generator, size: int) -> Params:
        """Draw `size` components of the first side from the prior."""

    def draw_second(self, rng: np.random.Generator, size: int) -> Params:
        """Draw `size` components of the second side from the prior."""

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """Log-density of each point under each pair of components."""


class Family(Components, Protocol):
    """A component family of two sides; parameters of each side are independent under the prior."""

    def prepare(self, X: Array) -> Self:
        """Return a copy with every prior setting resolved for the data (N, D), or raise ValueError."""

    def invariant(self, X: Array) -> Array:
        """Return what the second side cannot change in the data, (N, any); the first side starts from it."""

    def resample_first(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, size: int, second: Params
    ) -> Params:
        """Draw the `size` components of the first side given memberships and second side (4.1, step 2)."""

    def resample_second(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """Draw the second side given memberships and first side; `second` holds its current parameters."""

    def mode_second(self, X: Array, z1: Labels, z2: Labels, first: Params, second: Params) -> Params:
        """Fit the second side given the first side and all memberships, for the finite side of HybridM3."""


def take(params: Params, index: Any) -> Params:
    """Apply the same index to every parameter array."""
    return tuple(array[index] for array in params)


def concatenate(*groups: Params) -> Params:
    """Concatenate the components of several groups."""
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
    A covariance is stored as the upper triangular W with ``W.T @ W = inv(Sigma)``, which is what densities
    need and what draws yield without an inversion (Bartlett).
    """

    mean: ArrayLike | None = None
    mean_covariance: ArrayLike | None = None
    degrees: float | None = None
    scale: ArrayLike = 0.1

    def prepare(self, X: Array) -> Self:
        """Resolve the priors; see `Family`."""
        (centre, spread), owner = _moments(X), type(self).__name__
        return replace(
            self,
            mean=_vector(self.mean, centre, "mean", owner),
            mean_covariance=_matrix(self.mean_covariance, spread, "mean_covariance", owner),
            degrees=_check_degrees(self.degrees, X.shape[1], owner),
            scale=_matrix(self.scale, spread, "scale", owner),
        )

    def invariant(self, X: Array) -> Array:
        """Return the points themselves, whose centres do not depend on covariances."""
        return X

    def draw_first(self, rng: np.random.Generator, size: int) -> Params:
        """Means (places), (size, D)."""
        return (draw_normal(rng, self.mean, self.mean_covariance, size),)

    def draw_second(self, rng: np.random.Generator, size: int) -> Params:
        """Whiteners, (size, D, D)."""
        return (draw_whiteners(rng, self.degrees, inverse_root(self.scale), size),)

    def log_density(self, X: Array, first: Params, second: Params) -> Array:
        """See `Family`."""
        return gaussian_logs(X, first[0], second[-1], self._shifts(second))

    def resample_first(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, size: int, second: Params
    ) -> Params:
        """See `Family`."""
        shifts = self._shifts(second)
        remaining = X if shifts is None else X - shifts[z2]
        return (draw_places(rng, remaining, z1, z2, size, second[-1], self.mean, self.mean_covariance),)

    def resample_second(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """See `Family`."""
        residuals = X - first[0][z1]
        return (draw_posterior_whiteners(rng, residuals, z2, len(second[0]), self.degrees, self.scale),)

    def mode_second(self, X: Array, z1: Labels, z2: Labels, first: Params, second: Params) -> Params:
        """Take the modes of the covariances given the residuals; see `Family`."""
        return (fit_whiteners(X - first[0][z1], z2, len(second[0]), self.degrees, self.scale),)

    def _shifts(self, second: Params) -> Array | None:
        """Return how far the second side moves the centres, (..., K2, D)."""
        return None


@dataclass(frozen=True)
class OffsetGaussians(SharedGaussians):
    """Places on the first side, offsets with a spread on the second: ``x ~ N(t_z1 + B g_z2, Sigma_z2)``.

    The same use of an object for another human pose, or the same contrast in another texture, shifts a point
    in the same way.

    Parameters
    ----------
    directions : array-like of shape (D, R), optional
        The directions B in which the second side may shift a point; all (the identity) by default. A
        column of ones makes the second side a common gain of log-responses.
    offset_covariance : float or array-like of shape (R, R), default=1.0
        Covariance of the Gaussian prior of the offsets, whose mean is zero; a number stands for that
        multiple of the data's covariance along B.
    mean, mean_covariance, degrees, scale
        Gaussian prior of the places and inverse Wishart prior of the covariances, as for `SharedGaussians`.

    Examples
    --------
    >>> family = OffsetGaussians().prepare(np.array([[0.0], [2.0]]))
    >>> place, offset, whitener = np.zeros((1, 1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1, 1))
    >>> family.log_density(np.array([[1.0]]), (place,), (offset, whitener)).round(3).tolist()
    [[[-0.919]]]
    """

    directions: ArrayLike | None = None
    offset_covariance: ArrayLike = 1.0

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
        B = np.asarray(self.directions)
        return X if B.shape[1] == B.shape[0] else X - X @ np.linalg.pinv(B).T @ B.T

    def draw_second(self, rng: np.random.Generator, size: int) -> Params:
        """Offsets, (size, R), and whiteners, (size, D, D)."""
        zero = np.zeros(len(np.asarray(self.offset_covariance)))
        return draw_normal(rng, zero, self.offset_covariance, size), *super().draw_second(rng, size)

    def _shifts(self, second: Params) -> Array | None:
        return np.asarray(second[0] @ np.asarray(self.directions).T)

    def resample_second(
        self, rng: np.random.Generator, X: Array, z1: Labels, z2: Labels, first: Params, second: Params
    ) -> Params:
        """Draw offsets given covariances, then covariances given offsets; see `Family`."""
        B, K2 = np.asarray(self.directions), len(second[1])
        remaining = X - first[0][z1]
        offsets = draw_by_precision(rng, *self._offset_normal(remaining, z2, precisions_of(second[1])))
        residuals = remaining - (offsets @ B.T)[z2]
        return offsets, draw_posterior_whiteners(rng, residuals, z2, K2, self.degrees, self.scale)

    def mode_second(self, X: Array, z1: Labels, z2: Labels, first: Params, second: Params) -> Params:
        """Take the modes of offsets, then of covariances; neither step lowers the posterior; see `Family`."""
        B, K2 = np.asarray(self.directions), len(second[1])
        remaining = X - first[0][z1]
        posterior, pull = self._offset_normal(remaining, z2, precisions_of(second[1]))
        offsets = np.asarray(np.linalg.solve(posterior, pull[..., None])[..., 0], dtype=float)
        residuals = remaining - (offsets @ B.T)[z2]
        return offsets, fit_whiteners(residuals, z2, K2, self.degrees, self.scale)

    def _offset_normal(self, remaining: Array, z2: Labels, precisions: Array) -> tuple[Array, Array]:
        """Precision and precision-weighted mean of each offset's normal posterior."""
        B = np.asarray(self.directions)
        counts, sums = pair_sums(remaining, np.zeros_like(z2), z2, 1, len(precisions))
        seen = B.T @ precisions
        posterior = inverse(self.offset_covariance) + counts[0][:, None, None] * (seen @ B)
        return posterior, (seen @ sums[0][:, :, None])[..., 0]


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
