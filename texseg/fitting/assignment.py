"""From scores to assignments: the three posterior policies of the clustering models.

A policy is called as ``policy(scores, beta, weights, previous)`` and returns the posteriors ``Q`` (N, K), or
(N, S, K) for several runs, and the free energy in nats, ``F = -beta sum Q scores + (the prior's term)``:
``sum KL(Q || weights)`` for :class:`SoftMax`, nothing for :class:`ArgMax` ([1]_ Eq. 23), and ``-H(Q) -
strength / 2 sum Q (G Q)`` for :class:`PottsField`. Only the likelihood is tempered ([1]_ Eq. 60, 65). The
posteriors of a row that counts ``c`` times, as one that stands for several sites does ([1]_ section 5.4), sum
to ``c``: they are how many of these belong to each cluster, and F is that of all of them.

References
----------
.. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.threads import kernels, side_by_side

Floats = NDArray[np.floating]
Weights: TypeAlias = Floats | None  # (N,), how often each row counts; None where each counts once

SETTLING_SWEEPS = 12  # mean-field sweeps after which a map hardly changes when the profiles are fixed

_TINY = 1e-30
_STRIP = 2**17  # probabilities normalised at once
_NUMBERS_AT_ONCE = 2**16  # of planes that one thread blurs; the blur of less takes less time than its start


class Assignment(NamedTuple):
    """Posteriors of a policy and their free energy."""

    posteriors: Floats  # (N, K), or (N, S, K) for several runs; the sum over K is how often a row counts
    free_energy: Any  # in nats; an array (S,) for several runs


def soft_max(logits: Floats) -> tuple[Floats, Floats]:
    """Normalised exponentials (N, ..., K) of each row, and the logarithm (N, ...) of each row's sum."""
    p = np.array(logits)
    top, total = _normalise_exponentials(p, axis=-1)
    return p, np.squeeze(top + np.log(total), axis=-1)


def soft_max_over(planes: Floats, local: Floats | None = None, strength: float = 1.0) -> Floats:
    """Normalise exponentials of ``local`` + ``strength`` planes (..., K, N) over K, in place."""
    K, N = planes.shape[-2:]
    step = max(1, _STRIP // max(1, planes.size // max(1, N)))
    given = [each for each in (planes, local) if each is not None]
    packed = all(each.dtype == np.float32 and each.flags.c_contiguous for each in given)
    is_compiled = kernels is not None and planes.ndim == 2 and packed

    def of_strip(at: int) -> None:
        if is_compiled:
            kernels.soft_max(planes, local, K, at, min(at + step, N), float(strength))
            return
        strip = planes[..., at : at + step]
        if local is not None:
            strip *= strength
            strip += local[..., at : at + step]
        _normalise_exponentials(strip, axis=-2)

    side_by_side(of_strip, range(0, N, step))
    return planes


def _normalise_exponentials(logits: Floats, axis: int) -> tuple[Floats, Floats]:
    """Turn logits into probabilities along an axis, in place; return the largest logits, and the sums."""
    top = logits.max(axis=axis, keepdims=True)
    logits -= top
    np.exp(logits, out=logits)
    total = logits.sum(axis=axis, keepdims=True)
    logits /= total
    return top, total


def arg_max_over(values: Floats) -> NDArray[np.int32]:
    """Index, int32, of the largest value (K, ...) along the first axis, which is not moved; ties: first."""
    best = values[0].copy()
    index = np.zeros(best.shape, np.int32)
    for k, plane in enumerate(values[1:], start=1):
        np.copyto(index, k, where=plane > best)
        np.maximum(best, plane, out=best)
    return index


@dataclass(frozen=True, eq=False)
class SoftMax:
    """Posterior probabilities of a mixture with mixing proportions ([1] Eq. 29 and 60)."""

    row_weights: Weights = None

    def __call__(self, scores: Floats, beta: float, weights: Floats, previous: Any = None) -> Assignment:
        """Return ``Q ~ weights exp(beta scores)``, which minimises F, and F = -sum of the log sums."""
        prior = np.log(np.maximum(weights, _TINY)).astype(scores.dtype)
        Q, log_sums = soft_max(beta * scores + prior)
        return _counted(Q, -log_sums, self.row_weights)

    def cluster_terms(self, posteriors: Floats) -> Floats:
        """``sum_i Q_ik log(Q_ik / (c_i rho_k))`` with the best ``rho``, shape (K,)."""
        ones, c = np.ones(len(posteriors)), self.row_weights
        shares = posteriors if c is None else posteriors / np.maximum(c, _TINY)[:, None]
        sizes, total = ones @ posteriors, len(ones) if c is None else c.sum()
        surprise = ones @ (posteriors * np.log(np.maximum(shares, _TINY)))
        return surprise - sizes * np.log(np.maximum(sizes, _TINY) / total)


@dataclass(frozen=True, eq=False)
class ArgMax:
    """Hard assignments to the cluster with the largest score ([1] Eq. 23); ties go to the first."""

    row_weights: Weights = None

    def __call__(self, scores: Floats, beta: float, weights: Floats, previous: Any = None) -> Assignment:
        """Return one-hot rows; F is ``-beta`` times the sum of the largest scores."""
        best = scores.argmax(axis=-1)[..., None]
        Q = np.zeros_like(scores)
        np.put_along_axis(Q, best, 1, axis=-1)
        largest = np.take_along_axis(scores, best, axis=-1)[..., 0]
        return _counted(Q, -beta * largest.astype(np.float64), self.row_weights)

    def cluster_terms(self, posteriors: Floats) -> Floats:
        """Zeros (K,): without mixing proportions and entropy only the likelihood counts."""
        return np.zeros(posteriors.shape[1])


def mean_field(
    local: Floats, field: Callable[[Floats], Floats], planes: Floats, n_sweeps: int, strength: float = 1.0
) -> Floats:
    """Sweep ``Q <- softmax(local + strength * field of Q)`` over all sites (K, N), from ``planes``.

    The number of sweeps does not depend on the map, so that a block has the posteriors of the whole.
    """
    for _ in range(n_sweeps):
        planes = soft_max_over(field(planes), local, strength)
    return planes


class PottsField:
    """Mean field of a Potts model over pixel grids: neighbours pull a site towards their own cluster.

    ``Q <- softmax(beta scores + strength * G Q)``, where ``G`` is a Gaussian neighbourhood that ends at the
    border of the grid. F never rises, since the eigenvalues of ``G`` lie above -0.001.

    ``presence`` (N,) says how much each site counts as a neighbour, 0 to 1. With a ``coupling`` the first of
    three axes counts planes: those on either side count by it times a Gaussian of their distance, relative to
    1 for the site's own plane; all together they count as one, so that maps are not smoothed more within
    planes.
    """

    def __init__(
        self,
        shape: tuple[int, ...] | Sequence[tuple[int, ...]],
        strength: float = 10.0,
        sigma: float = 1.5,
        n_sweeps: int = 3,
        presence: Floats | None = None,
        coupling: float | None = None,
    ) -> None:
        several: Any = shape if np.ndim(shape[0]) else [shape]
        self.grids = [tuple(map(int, one)) for one in several]
        through = through_planes(sigma, coupling)
        self.through = through / through.sum()
        self.strength = strength
        self.sigma = sigma
        self.n_sweeps = n_sweeps
        self.presence = presence

    def __call__(self, scores: Floats, beta: float, weights: Floats, previous: Any = None) -> Assignment:
        """Sweep from ``previous`` (if None, from the posteriors that ignore neighbours)."""
        local = scores.dtype.type(beta) * _planes(scores)
        planes = soft_max_over(local.copy()) if previous is None else _planes(previous).astype(local.dtype)
        *runs, K, N = planes.shape
        energies = np.empty((*runs, N), planes.dtype)

        def settle(run: tuple[Floats, Floats, Floats]) -> None:
            own, local, energies = run
            own[:] = mean_field(local, self._field, own, self.n_sweeps, self.strength)
            if kernels is not None and own.dtype == np.float32:
                kernels.field_energies(own, local, self._field(own), energies, K, float(self.strength))
                return
            surprise = np.log(np.maximum(own, _TINY)) - np.where(own > 0, local, 0)
            np.einsum("kn,kn->n", own, surprise - 0.5 * self.strength * self._field(own), out=energies)

        every = planes.reshape(-1, K, N), local.reshape(-1, K, N), energies.reshape(-1, N)
        side_by_side(settle, zip(*every, strict=True))
        return _counted(_sites_first(planes), _sites_first(energies))

    def field(self, posteriors: Floats) -> Floats:
        """``strength * G Q`` (N, ..., K): what the neighbours of every site add to its scores."""
        planes = _planes(posteriors)
        fields = self.strength * self._field(planes.reshape(-1, planes.shape[-1]))
        return _sites_first(fields.reshape(planes.shape))

    def _field(self, planes: Floats) -> Floats:
        """``G Q`` of planes (n, N), with zeros outside the grids."""
        out, step = np.empty_like(planes), max(1, _NUMBERS_AT_ONCE // planes.shape[1])
        some = [slice(at, at + step) for at in range(0, len(planes), step)]
        side_by_side(lambda rows: self._blur(planes[rows], out[rows]), some)
        return out

    def _blur(self, stack: Floats, out: Floats) -> None:
        """Write the field of some planes (n, N) into ``out``."""
        presence = self.presence
        if kernels is not None and stack.dtype == np.float32 and len(self.grids[0]) == 2:
            taps = cv2.getGaussianKernel(round(8 * self.sigma + 1) | 1, self.sigma, cv2.CV_32F)
            shares = None if presence is None else np.ascontiguousarray(presence, np.float32)
            kernels.fields(stack, out, shares, np.array(self.grids, np.int32), taps, stack.shape[1])
            return
        gap = int(4 * self.sigma) + 1  # the reach of the filter
        start = 0
        for *above, h, w in self.grids:
            place = slice(start, start + math.prod(above) * h * w)
            # one tall image for a single call, with the planes too far apart to influence each other
            here = stack[:, place] if presence is None else stack[:, place] * presence[place]
            if above:
                here = along_first(here.reshape(len(stack), above[0], -1), self.through)
            tall = np.zeros((len(stack) * math.prod(above), h + gap, w), stack.dtype)
            tall[:, :h] = here.reshape(-1, h, w)
            flat = tall.reshape(-1, w)
            blurred = cv2.GaussianBlur(flat, (0, 0), self.sigma, borderType=cv2.BORDER_CONSTANT)
            out[:, place] = blurred.reshape(tall.shape)[:, :h].reshape(len(stack), -1)
            start = place.stop

    def cluster_terms(self, posteriors: Floats) -> Floats:
        """``sum_i [Q log Q - 1/2 Q field]`` of every cluster, shape (K,)."""
        surprise = np.log(np.maximum(posteriors, _TINY)) - 0.5 * self.field(posteriors)
        return np.ones(len(posteriors)) @ (posteriors * surprise)


def potts_field(sites: Any, potts: Any, smoothness: float, n_sweeps: int) -> PottsField:
    """Make the prior on the map of cells; see `texseg.parameters.PottsSettings`."""
    grids, coupling = (sites.stacks, potts.coupling) if sites.stacks else (sites.grids, None)
    return PottsField(grids, potts.strength * smoothness, potts.sigma, n_sweeps, sites.sizes, coupling)


Posterior: TypeAlias = SoftMax | ArgMax | PottsField


def through_planes(sigma: float, coupling: float | None) -> Floats:
    """Weights of the planes before, at and after a site: a Gaussian, or as of `PottsField` for couplings."""
    reach = int(4 * sigma) + 1
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    if coupling is not None:
        weights *= coupling
        weights[reach] = 1
    return weights


def along_first(stacks: Floats, weights: Floats) -> Floats:
    """Weighted sums of the planes (n, planes, sites) of some stacks, with nothing beyond the ends."""
    one = np.ones(1)
    sums = [cv2.sepFilter2D(own, -1, one, weights, borderType=cv2.BORDER_CONSTANT) for own in stacks]
    return np.stack(sums)


def _planes(values: Floats) -> Floats:
    """Values per site (N, ..., K) as (..., K, N), with sites contiguous."""
    return np.ascontiguousarray(values.transpose(*range(1, values.ndim), 0))


def _sites_first(planes: Floats) -> Floats:
    return planes.transpose(-1, *range(planes.ndim - 1))


def _counted(Q: Floats, energies: Floats, row_weights: Weights = None) -> Assignment:
    """Count every row of posteriors (N, ..., K) and energies (N, ...) as often as its weight says."""
    energies = energies.astype(np.float64)
    total = energies.sum(axis=0) if row_weights is None else row_weights @ energies
    if row_weights is not None:
        Q = Q * row_weights.reshape(-1, *[1] * (Q.ndim - 1)).astype(Q.dtype)
    return Assignment(Q, float(total) if total.ndim == 0 else total)
