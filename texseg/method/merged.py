"""Textures, several of which may belong to the same segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.fitting.assignment import arg_max_over
from texseg.method.textures import Reading, Scene, Textures, agree

__all__ = ["MergedTextures", "halved", "merged", "separated"]


@dataclass(frozen=True)
class MergedTextures:
    """Textures, several of which may belong to the same segment: a gland is lumen and epithelium."""

    kind: ClassVar[str] = "merged"
    parts: Textures
    """The P textures, as learned."""
    classes: NDArray[np.intp]
    """(P,), segment of each texture, 0 .. K - 1."""
    shares: NDArray[np.floating]
    """(P,), weight of each in the histograms of its segment, such as its number of pixels."""

    @property
    def features(self) -> Features:
        """Features of the images, shared by all parts."""
        return self.parts.features

    @property
    def profiles(self) -> NDArray[np.floating]:
        """Histograms of the segments, (K, M); each channel sums to one."""
        members = self.members * self.shares
        members /= members.sum(axis=1, keepdims=True)
        return (members @ self.parts.profiles).astype(self.parts.profiles.dtype)

    def take(self, order: NDArray[np.intp]) -> MergedTextures:
        """Keep some of the segments, in this order."""
        kept = np.concatenate([np.flatnonzero(self.classes == k) for k in order])
        classes = np.repeat(np.arange(len(order)), [np.count_nonzero(self.classes == k) for k in order])
        return MergedTextures(self.parts.take(kept), classes, self.shares[kept])

    @property
    def cell(self) -> int:
        """Side of the cells in pixels."""
        return self.parts.cell

    @property
    def reach(self) -> int:
        """Radius in pixels that determines a pixel's label."""
        return self.parts.reach

    def speck_area(self, smoothness: float) -> float:
        """Pixels; smaller parts show too little of a texture to be distinguished from a flaw."""
        return self.parts.speck_area(smoothness)

    def read(self, scene: Scene, smoothness: float, *, specks: bool = False) -> Reading:
        """Classify every pixel of a scene; ``specks`` keeps parts that are too small.

        A pixel belongs to the segment of its texture, so that a merge moves no border; its probability is the
        sum over all textures of the segment.
        """
        read = self.parts.read(scene, smoothness, specks=specks)
        groups = [np.flatnonzero(members) for members in self.members]
        posteriors, scores = (
            planes.changed(lambda columns: np.stack([columns[group].max(axis=0) for group in groups]))
            for planes in (read.posteriors, read.scores)
        )
        probabilities = read.probabilities.changed(
            lambda columns: np.stack([columns[group].sum(axis=0) for group in groups])
        )
        agree(probabilities.cells, arg_max_over(posteriors.cells))
        agree(probabilities.near, arg_max_over(posteriors.near))
        return Reading(posteriors, probabilities, scores)

    def unfamiliar(self, scene: Scene) -> NDArray[np.bool_]:
        """Which pixels, (H, W), none of the textures explains."""
        return self.parts.unfamiliar(scene)

    @property
    def members(self) -> NDArray[np.floating]:
        """(K, P), 1 where a texture belongs to a segment."""
        return (np.arange(self.classes.max() + 1)[:, None] == self.classes).astype(np.float64)


def _parted(textures: Textures | MergedTextures) -> MergedTextures:
    """Textures in the form that can be merged; by default, each is a segment."""
    if isinstance(textures, MergedTextures):
        return textures
    K = len(textures.profiles)
    return MergedTextures(textures, np.arange(K), np.ones(K))


def merged(
    textures: Textures | MergedTextures, classes: NDArray[np.intp], sizes: NDArray[np.floating]
) -> MergedTextures:
    """Merge K segments into the new ones ``classes`` (K,), from 0, given their areas ``sizes`` (K,)."""
    before = _parted(textures)
    within = before.shares / (before.members @ before.shares)[before.classes]
    return MergedTextures(before.parts, classes[before.classes], within * sizes[before.classes])


def separated(textures: MergedTextures, segment: int) -> MergedTextures:
    """Undo the merges of a segment (from 0): its first texture keeps the number, the others get new ones."""
    classes = textures.classes.copy()
    others = np.flatnonzero(classes == segment)[1:]
    classes[others] = classes.max() + 1 + np.arange(len(others))
    return replace(textures, classes=classes)


def halved(
    textures: Textures | MergedTextures,
    segment: int,
    profiles: NDArray[np.floating],
    sizes: NDArray[np.floating],
) -> MergedTextures:
    """Replace the only texture of a segment (from 0) by two.

    ``profiles`` (2, M) are theirs, ``sizes`` (2,) their areas. The first keeps the number, the second gets
    the last one; both take over the learned borders.
    """
    before = _parted(textures)
    P, K = len(before.classes), int(before.classes.max()) + 1
    old = int(np.flatnonzero(before.classes == segment)[0])
    parts = before.parts.take(np.array([*range(P), old]))
    table = parts.profiles.copy()
    table[[old, P]] = profiles
    shares = np.append(before.shares, before.shares[old])
    shares[[old, P]] *= sizes / sizes.sum()
    return MergedTextures(replace(parts, profiles=table), np.append(before.classes, K), shares)
