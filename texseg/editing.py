"""Merging, splitting and naming the segments of a segmenter, without a new fit."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from texseg.edits import Edits, check_labels, checked_edits, checked_groups, read_edits
from texseg.fitting.number import grouped
from texseg.merged import MergedTextures, halved, merged, separated
from texseg.textures import Scene

__all__ = ["Editable"]

_SMALLEST_PART = 0.05  # of a segment that is split; smaller parts are specks, and no texture of their own


class Editable:
    """Merging, splitting and naming the segments of a fitted or loaded segmenter, without a new fit."""

    k_max: int
    textures_: Any
    labels_: Any
    confidence_: Any
    names_: tuple[str, ...]
    _fitted: list[Scene]
    _describe: Any

    @property
    @abstractmethod
    def _smoothness(self) -> float:
        """Strength of the prior on the map."""

    def merge(self, groups: Iterable[Sequence[int]]) -> Self:
        """Make one segment of several, of each group of labels.

        The segment keeps the smallest of their numbers, and higher numbers move up. No border moves; its
        probability is the sum of theirs, and images that are predicted later are labelled in the same way.

        Parameters
        ----------
        groups : sequence of sequences of int
            Such as ``[(2, 5)]``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A label is not among those of the model, or in two groups.

        Examples
        --------
        >>> from texseg import TextureSegmenter
        >>> rows, columns = np.mgrid[:64, :96]
        >>> image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
        >>> TextureSegmenter(n_segments=2).fit(image).merge([(1, 2)]).n_segments_
        1
        """
        return self.edit(Edits(checked_groups(groups)))

    def rename(self, names: Mapping[int, str]) -> Self:
        """Name segments, such as ``{2: "gland"}``; an empty name takes the name away.

        Raises
        ------
        ValueError
            A label is not among those of the model, or a name is given twice.
        """
        return self.edit({"names": names})

    def edit(self, edits: Edits | Mapping[str, Any] | str | os.PathLike[str]) -> Self:
        """Merge and name segments, as a report or its file of edits says.

        Parameters
        ----------
        edits : mapping, or path of a JSON file
            ``{"merge": [[2, 5]], "names": {"2": "gland"}}``; all numbers are those before the edit.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            The edits are of another form, or do not fit the model.
        OSError
            The file cannot be read, or holds no edits.
        """
        check_is_fitted(self, "textures_")
        checked = read_edits(edits) if isinstance(edits, (str, os.PathLike)) else checked_edits(edits)
        K = len(self.names_)
        classes, names = checked.classes(K), checked.names_of(self.names_)
        if checked.merge:
            images = self._images()
            sizes = [np.bincount(image.ravel(), minlength=K + 1)[1:] for image in images]
            textures = merged(self.textures_, classes, np.sum(sizes, axis=0) if images else np.ones(K))
            label_of = np.concatenate([[0], classes + 1]).astype(np.int32)
            grown = np.flatnonzero(np.bincount(classes) > 1) + 1
            self._take_over(textures, [label_of[image] for image in images], grown, np.maximum)
        self.names_ = names
        return self

    def split(self, segment: int) -> Self:
        """Divide a segment in two: undo a merge, or take the first division of the hierarchy inside it.

        The larger part (of a merge, the first) keeps the number, the others come last. Other segments stay
        as they are.

        Parameters
        ----------
        segment : int
            Its label.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            There is no such segment, no two textures are told apart in it, or the model was loaded from a
            file and the segment is not a merged one.
        """
        check_is_fitted(self, "textures_")
        K = len(self.names_)
        check_labels((segment,), K)
        textures, images = self.textures_, self._images()
        if isinstance(textures, MergedTextures) and np.count_nonzero(textures.classes == segment - 1) > 1:
            textures = separated(textures, segment - 1)
        else:
            textures = halved(textures, segment - 1, *self._halves(segment))
        parts = np.array([segment - 1, *range(K, len(textures.profiles))])
        new = []
        for scene, image in zip(self._fitted if images else (), images, strict=True):
            part = textures.take(parts).read(scene, self._smoothness).posteriors.argmax(axis=0)
            new.append(np.where(image == segment, parts[part] + 1, image).astype(np.int32))
        self._take_over(textures, new, parts + 1, lambda before, now: now)
        self.names_ = (*self.names_, *[""] * (len(parts) - 1))
        return self

    def _images(self) -> list[NDArray[np.int32]]:
        """Labels of the images that were fitted; none of a loaded model."""
        labels = getattr(self, "labels_", [])
        return list(labels) if isinstance(labels, list) else [labels]

    def _halves(self, segment: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Profiles (2, M) and areas (2,) of the parts in which the hierarchy first divides a segment."""
        search = getattr(self, "_search", None)
        if search is None:
            raise ValueError(
                f"segment {segment} can be split where the model was fitted, not in one loaded from a file"
            )
        n_bins, cell = self.textures_.features.n_bins, search.settings.cell
        pairs = zip(self._fitted, self._images(), strict=True)
        inside = np.concatenate([_cells_inside(scene, i == segment, cell, n_bins) for scene, i in pairs])
        tree = search.tree(self.k_max)
        for k in range(2, tree.n_clusters + 1):
            groups = grouped(tree.merges, k)[tree.labels]
            sizes = np.bincount(groups[inside], minlength=k)
            two = np.argsort(sizes, kind="stable")[:-3:-1]
            if sizes[two[1]] >= max(1, _SMALLEST_PART * sizes.sum()):
                halves = inside[:, None] & (groups[:, None] == two)
                return search.cells.profiles(halves.astype(np.float32)), sizes[two].astype(float)
        raise ValueError(f"segment {segment} cannot be split: no two textures are told apart in it")

    def _take_over(
        self,
        textures: MergedTextures,
        images: list[NDArray[np.int32]],
        changed: NDArray[np.intp],
        confidence: Any,
    ) -> None:
        """Publish edited textures, and the labels of the images that were fitted.

        The confidence of the ``changed`` labels is a function of that before, and of what the textures say
        without the learned borders, for which the image would be needed.
        """
        if images:
            is_list = isinstance(self.labels_, list)
            sure = []
            for scene, image, before in zip(
                self._fitted, images, self.confidence_ if is_list else [self.confidence_], strict=True
            ):
                probabilities = textures.read(scene, self._smoothness).probabilities
                now = np.take_along_axis(probabilities, np.maximum(image - 1, 0)[None], axis=0)[0]
                sure.append(np.where(np.isin(image, changed), confidence(before, now), before))
            self.labels_ = images if is_list else images[0]
            self.confidence_ = sure if is_list else sure[0]
            self.__dict__.pop("_hierarchy", None)
        self.textures_ = textures
        self._describe()


def _cells_inside(scene: Scene, inside: NDArray[np.bool_], cell: int, n_bins: int) -> NDArray[np.bool_]:
    """Cells of a scene more than half of whose valid pixels are inside."""
    grid = scene.cells(cell, n_bins)[1]
    n_inside = np.bincount(grid.parent()[inside.ravel()], minlength=grid.n_cells)
    return n_inside > grid.sizes * cell**2 / 2
