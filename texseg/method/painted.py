"""From strokes to textures: the user's painted classes, learned on the cells of the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.fitting.assignment import SETTLING_SWEEPS
from texseg.method.clusters import Search
from texseg.method.hierarchy import cell_shares
from texseg.method.seeds import STROKE_STRENGTH, learn_classes, painted_cells, pins
from texseg.method.textures import Scene, Textures, potts_field

__all__ = ["Painted", "painted_textures"]

_CHANGED = 0.1  # share of the cells that must change their class for borders to be learned again


class Painted(NamedTuple):
    """What was learned from strokes on some scenes."""

    textures: Textures
    classes: NDArray[np.intp]
    """(N,), class of every cell, from 0."""


def painted_textures(
    search: Search,
    scenes: Sequence[Scene],
    features: Features,
    n_classes: int,
    k_max: int,
    present: Sequence[NDArray[np.int32]] | None = None,
    before: Painted | None = None,
) -> Painted:
    """Learn ``n_classes`` classes from the strokes on some scenes.

    Parameters
    ----------
    search : Search
        The search on these scenes.
    scenes : sequence of Scene
        With their strokes.
    features : Features
    n_classes : int
        K, at least two and at least the largest class painted.
    k_max : int
        Most clusters of the over-segmentation.
    present : sequence of int arrays of shape (H, W), optional
        Current labels, from 1, from which unpainted classes start.
    before : Painted, optional
        Learned from other strokes on the same scenes: its borders are kept if nearly all cells keep their
        class.
    """
    cells, settings = search.cells, search.settings
    seeds = [scene.seeds for scene in scenes]
    painted = painted_cells(seeds, search.grids, n_classes)
    potts = settings.potts._replace(strength=STROKE_STRENGTH * settings.potts.strength)
    field = potts_field(cells, potts, settings.smoothness, SETTLING_SWEEPS)
    held = pins(painted).astype(np.float32)

    def settle(scores: NDArray[np.floating]) -> NDArray[np.floating]:
        return field((scores + held).astype(np.float32), 1.0, np.ones(1)).posteriors

    of_cells = None if present is None else _classes_of_cells(present, search, n_classes)
    clusters = search.tree(k_max).labels
    strokes, scores = learn_classes(painted, search.description, cells, clusters, settle, of_cells)
    Q = settle(scores)
    ends = np.cumsum([grid.n_cells for grid in search.grids])[:-1]
    for scene, own in zip(scenes, np.split(scores, ends), strict=True):
        scene.keep_scores(strokes, own)
    textures = search.textures(cells.profiles(Q.astype(np.float32)), features)
    certain = np.eye(n_classes, dtype=np.float32)  # the user has said that these classes differ
    classes, borders = Q.argmax(axis=1), None
    if before is not None and len(before.textures.profiles) == n_classes:
        if np.mean(before.classes != classes) <= _CHANGED:
            borders = before.textures.borders
    textures = replace(textures, potts=potts, strokes=strokes, confusion=certain, borders=borders)
    return Painted(textures, classes)


def _classes_of_cells(
    present: Sequence[NDArray[np.int32]], search: Search, n_classes: int
) -> NDArray[np.intp]:
    """Class with the most pixels in each cell (N,), from 0; -1 where there is no data."""
    pairs = zip(present, search.cells.grids, strict=True)
    shares = np.concatenate(
        [cell_shares(image, n_classes, grid, search.settings.cell) for image, grid in pairs]
    )
    return np.where(shares.any(axis=1), shares.argmax(axis=1), -1)
