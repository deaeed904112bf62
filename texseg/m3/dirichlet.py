"""Functions of the Dirichlet distribution that the topic models need, and Eq. 10 of [1].

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, polygamma, psi

__all__ = ["divergence", "expected_log", "fit_concentration", "fit_concentrations"]

Array = NDArray[np.float64]

_SMALLEST, _LARGEST = 1e-4, 1e4  # range of a concentration that is estimated
_NEAR = 1.0 + 1e-6  # an end of the range counts as reached within this factor


def expected_log(parameters: Array) -> Array:
    """Return ``E[log p]`` under Dirichlet rows, shape (..., K) as given."""
    return psi(parameters) - psi(parameters.sum(axis=-1, keepdims=True))


def divergence(parameters: Array, prior: Array | float) -> Array:
    """Compute the divergence of each Dirichlet row from the one of parameters `prior`, in nats, shape (...).

    `prior` has shape (K,); a number stands for K equal ones.
    """
    prior = np.broadcast_to(np.asarray(prior, dtype=float), parameters.shape[-1:])
    return (
        gammaln(parameters.sum(axis=-1))
        - gammaln(prior.sum())
        + gammaln(prior).sum()
        - gammaln(parameters).sum(axis=-1)
        + ((parameters - prior) * expected_log(parameters)).sum(axis=-1)
    )


def fit_concentration(parameters: Array, start: float, max_steps: int = 100) -> float:
    """Find the symmetric concentration that maximises Eq. 10, by Newton's method in its logarithm.

    Eq. 10 is concave in the concentration (the Dirichlet is an exponential family in it), so the only
    stationary point is the maximum; a step that would lower the objective, far from it, is halved.

    Parameters
    ----------
    parameters : array of shape (D, K)
        Variational Dirichlet parameters of every document.
    start : float
        Where to begin.

    Returns
    -------
    float
        Within 1e-4 ... 1e4; `start` when there is one component only, since nothing depends on it then.
    """
    D, K = parameters.shape
    if K == 1:
        return start
    slope = expected_log(parameters).sum()

    def objective(log_value: float) -> float:
        value = np.exp(log_value)
        return float(D * (gammaln(K * value) - K * gammaln(value)) + (value - 1.0) * slope)

    low, high = np.log(_SMALLEST), np.log(_LARGEST)
    position = float(np.clip(np.log(start), low, high))
    for _ in range(max_steps):
        value = np.exp(position)
        first = D * K * (psi(K * value) - psi(value)) + slope
        second = D * K * (K * polygamma(1, K * value) - polygamma(1, value))
        curvature = value * value * second + value * first
        step = -value * first / curvature if curvature < 0 else np.sign(first)
        step = float(np.clip(step, -2.0, 2.0))
        proposal = float(np.clip(position + step, low, high))
        while objective(proposal) < objective(position) and abs(proposal - position) > 1e-12:
            proposal = 0.5 * (proposal + position)
        moved = abs(proposal - position)
        position = proposal
        if moved < 1e-10:
            break
    return float(np.exp(position))


def fit_concentrations(parameters: Array, start: Array, max_steps: int = 50) -> Array:
    """Find the concentrations, one per component, that maximise Eq. 10 (generalised), by Newton's method.

    The objective is concave, and its Hessian is diagonal plus a constant, so that a step costs O(K)
    (appendix A.4.2 of Blei, Ng and Jordan, 2003). A step that would lower it is halved; a concentration
    stays at the end of its range while the gradient points outwards.

    Parameters
    ----------
    parameters : array of shape (D, K)
        Variational Dirichlet parameters of every document.
    start : array of shape (K,)
        Where to begin.

    Returns
    -------
    array of shape (K,)
        Within 1e-4 ... 1e4; `start` when there is one component only, since nothing depends on it then.
    """
    if len(start) == 1:
        return start
    slope = expected_log(parameters).mean(axis=0)

    def objective(alpha: Array) -> float:
        return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha * slope).sum())

    alpha = np.clip(start, _SMALLEST, _LARGEST)
    for _ in range(max_steps):
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
