"""Functions of the Dirichlet distribution that the topic models need, and Eq. 10 of [1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, polygamma, psi

Array = NDArray[np.float64]

_NEWTON_STEPS = 50
_SMALLEST, _LARGEST = 1e-4, 1e4  # range of a concentration that is estimated
_NEAR = 1.0 + 1e-6  # an end of the range counts as reached within this factor


def expected_log(parameters: Array) -> Array:
    """Return ``E[log p]`` under Dirichlet rows, shape (..., K) as given."""
    return psi(parameters) - psi(parameters.sum(axis=-1, keepdims=True))


def divergence(parameters: Array, prior: Array | float) -> Array:
    """Divergence (...) in nats of Dirichlet rows from the one of parameters `prior`, (K,) or K equal ones."""
    prior = np.broadcast_to(np.asarray(prior, dtype=float), parameters.shape[-1:])
    return (
        gammaln(parameters.sum(axis=-1))
        - gammaln(prior.sum())
        + gammaln(prior).sum()
        - gammaln(parameters).sum(axis=-1)
        + ((parameters - prior) * expected_log(parameters)).sum(axis=-1)
    )


def fit_concentration(parameters: Array, start: Array, weights: Array | None = None) -> Array:
    """Find the equal concentrations (K,) within 1e-4 ... 1e4 that maximise Eq. 10 (concave in their value).

    ``parameters`` (D, K) are the Dirichlet parameters of every document, ``weights`` (D,) how often each
    counts.
    """
    K = len(start)
    if K == 1:
        return start
    slope = np.average(expected_log(parameters), axis=0, weights=weights).sum()

    def loss(log_value: float) -> float:
        value = np.exp(log_value)
        return -float(gammaln(K * value) - K * gammaln(value) + (value - 1.0) * slope)

    limits = np.log(_SMALLEST), np.log(_LARGEST)
    found = minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-10})
    return np.full(K, np.exp(found.x))


def fit_concentrations(parameters: Array, start: Array, weights: Array | None = None) -> Array:
    """Find the concentrations (K,), one a component, that maximise Eq. 10 (generalised), by Newton's method.

    The objective is concave, and its Hessian is diagonal plus a constant, so that a step costs O(K) (appendix
    A.4.2 of Blei, Ng and Jordan, 2003).
    """
    if len(start) == 1:
        return start
    slope = np.average(expected_log(parameters), axis=0, weights=weights)

    def objective(alpha: Array) -> float:
        return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha * slope).sum())

    alpha = np.clip(start, _SMALLEST, _LARGEST)
    for _ in range(_NEWTON_STEPS):
        step = _ascent(alpha, psi(alpha.sum()) - psi(alpha) + slope)
        while objective(alpha + step) < objective(alpha) and np.abs(step).max() > 1e-12:
            step = 0.5 * step
        alpha = np.clip(alpha + step, _SMALLEST, _LARGEST)
        if (np.abs(step) < 1e-10 * alpha).all():
            break
    return alpha


def _ascent(alpha: Array, gradient: Array) -> Array:
    """Newton's step, shortened so that it stays in range and takes at most nine tenths of any alpha."""
    at_ends = alpha <= _SMALLEST * _NEAR, alpha >= _LARGEST / _NEAR
    outwards = (at_ends[0] & (gradient < 0)) | (at_ends[1] & (gradient > 0))
    inverse = np.where(outwards, 0.0, 1.0 / polygamma(1, alpha))
    common = (inverse * gradient).sum() / (1.0 / polygamma(1, alpha.sum()) - inverse.sum())
    step = inverse * (gradient + common)
    room = np.where(step < 0, alpha - np.maximum(_SMALLEST, alpha / 10.0), _LARGEST - alpha)
    moving = step != 0
    return step * min(1.0, float((room[moving] / np.abs(step[moving])).min(initial=1.0)))
