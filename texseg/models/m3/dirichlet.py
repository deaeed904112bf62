"""What the topic models need of the Dirichlet distribution, and Eq. 10 of [1].

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, polygamma, psi

__all__ = ["expected_log", "fit_concentration", "kl_to_symmetric"]

Array = NDArray[np.float64]

_SMALLEST, _LARGEST = 1e-4, 1e4  # range of a concentration that is estimated


def expected_log(parameters: Array) -> Array:
    """Return ``E[log p]`` under Dirichlet rows, shape (..., K) as given."""
    return psi(parameters) - psi(parameters.sum(axis=-1, keepdims=True))


def kl_to_symmetric(parameters: Array, concentration: float) -> Array:
    """Compute the divergence of each Dirichlet row from the symmetric one, in nats, shape (...)."""
    K = parameters.shape[-1]
    return (
        gammaln(parameters.sum(axis=-1))
        - gammaln(K * concentration)
        + K * gammaln(concentration)
        - gammaln(parameters).sum(axis=-1)
        + ((parameters - concentration) * expected_log(parameters)).sum(axis=-1)
    )


def fit_concentration(parameters: Array, start: float, max_steps: int = 100) -> float:
    """Find the symmetric concentration that maximises Eq. 10, by Newton in its logarithm.

    Eq. 10 is concave in the concentration (the Dirichlet is an exponential family in it), so the only
    stationary point is the maximum; a step that would lower it, far away, is halved.

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
