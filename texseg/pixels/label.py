"""Pixel-accurate borders: small windows, known profiles and a Potts prior.

The clusters are known, so that small windows suffice to tell them apart, and windows that straddle a border
can no longer form a cluster of their own. Filters of long wavelength reach across borders and get little
weight here.
"""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from texseg.counts.axes import dilated, eroded, resized, shortened, smoothed
from texseg.counts.grid import CellGrid, sides_along
from texseg.fitting.assignment import SETTLING_SWEEPS, along_first, mean_field, through_planes
from texseg.pixels.planes import PixelPlanes
from texseg.threads import side_by_side

Floats = NDArray[np.floating]

_STRIP = 2**17  # pixels whose last label is computed at once
_REDUCTION = 4  # the neighbourhood is smooth, so it is computed on a grid this many times coarser
_OF_VOLUMES = 2  # the same in space, where cells are smaller
_PLANES = 1.5  # standard deviation of the coupling of planes


def pixel_posteriors(
    local: Floats,
    cell_posteriors: Floats,
    grid: CellGrid,
    band: NDArray[np.intp],
    strength: float = 10.0,
    mask: NDArray[np.bool_] | None = None,
    coupling: float = 0.0,
) -> PixelPlanes:
    """Mean field of a Potts model over the pixels near borders, starting from the cells' posteriors.

    ``local`` (K, n) are the log-likelihoods of the ``band`` of pixels (sorted flat indices); others keep the
    posterior of their cell. A unanimous neighbourhood, a Gaussian of half a cell, adds ``strength`` nats;
    planes of a stack add to it, see `texseg.fitting.assignment.PottsField`.
    """
    cells = np.ascontiguousarray(cell_posteriors.T)
    if not len(band):
        return PixelPlanes(grid, cells, band, cells[:, :0])
    shape, is_stack = grid.image_shape, 1 in grid.near(0, 1)
    reduction = _REDUCTION if len(shape) == 2 or is_stack else _OF_VOLUMES
    steps = sides_along(reduction, grid.spacing or (1,) * len(shape))
    small = shortened(shape, steps)
    sigma = tuple(side / 2 / step for side, step in zip(grid.sides, steps, strict=True))
    if is_stack:
        sigma = (0.0, *sigma[1:])
    presence = None if mask is None else mask.ravel()[band]

    def elsewhere(values: Floats) -> Any:
        """Reduce the plane of one label without the band: all other pixels stay as they are."""
        plane = grid.to_pixels(values)
        plane.ravel()[band] = 0
        if mask is not None:
            plane *= mask
        return resized(plane, small, cv2.INTER_AREA)

    constant = side_by_side(elsewhere, cells)
    spare: list[Floats] = []  # planes that no thread uses

    def of_label(task: tuple[Floats, Any, Floats]) -> None:
        own, beyond, out = task
        plane = spare.pop() if spare else np.empty(shape, own.dtype)
        plane.fill(0)
        plane.ravel()[band] = own if presence is None else own * presence
        around = smoothed(resized(plane, small, cv2.INTER_AREA) + beyond, sigma, cv2.BORDER_CONSTANT)
        if coupling and is_stack:
            through = through_planes(_PLANES, coupling)
            around = along_first(around.reshape(1, len(around), -1), through).reshape(around.shape)
        there = resized(around, shape, cv2.INTER_LINEAR, plane)
        np.multiply(there.ravel()[band], np.float32(strength), out=out)
        spare.append(plane)

    of_all = np.ones_like(local[0])
    of_label((of_all, sum(constant), of_all))

    def field(planes: Floats) -> Floats:
        """Give what all pixels add to planes (K, n) of the band; that of the last label is what is left."""
        out = np.empty_like(planes)
        side_by_side(of_label, zip(planes[:-1], constant, out, strict=False))

        def rest(at: int) -> None:
            some = slice(at, at + _STRIP)
            np.subtract(of_all[some], out[:-1, some].sum(axis=0), out=out[-1, some])

        side_by_side(rest, range(0, len(band), _STRIP))
        return out

    # taken, sites are contiguous, as an index would not leave them
    near = mean_field(local, field, cells.take(grid.cells_of(band), axis=1), SETTLING_SWEEPS)
    return PixelPlanes(grid, cells, band, near)


def near_border(cell_posteriors: Floats, grid: CellGrid) -> NDArray[np.bool_]:
    """Which cells lie at most two cells from one that touches another label, shape (cells,)."""
    labels = cell_posteriors.argmax(axis=1).reshape(grid.shape).astype(np.uint8)
    side = grid.near(3, 1)
    border = (dilated(labels, side) != eroded(labels, side)).astype(np.uint8)
    return dilated(border, side).astype(bool).ravel()
