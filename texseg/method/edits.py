"""Merging, splitting and naming the segments of a segmenter, without a new fit.

All numbers are those of the labels before the edits. Merged segments keep the smallest number among them, and
higher numbers go down.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from texseg.fitting.assignment import arg_max_over
from texseg.io.files import MalformedFileError, read_json
from texseg.io.regions import printable_name
from texseg.method.seeds import painted_cells
from texseg.method.textures import Reading, Scene, Textures, agree
from texseg.parameters import shown
from texseg.pixels.planes import PixelPlanes

Labels = NDArray[np.int32] | Any
"""Of one image; a list of them of several. `Any` spares users of type checkers to rule out what they know."""

Values = NDArray[np.float32] | Any  # the same, of probabilities

_SMALLEST_PART = 0.05  # of the segment being split; smaller parts are specks, not textures of their own
_LARGEST_FILE = 2**20  # bytes


class Edits(NamedTuple):
    """Segments to merge, and names."""

    merge: tuple[tuple[int, ...], ...] = ()  # groups of labels
    names: tuple[tuple[int, str], ...] = ()
    """Pairs of a label and a name; a group is named by any label in it."""

    def __bool__(self) -> bool:
        return bool(self.merge or self.names)

    def __add__(self, other: Edits) -> Edits:  # type: ignore[override]
        return Edits(self.merge + other.merge, self.names + other.names)

    def classes(self, n_segments: int) -> NDArray[np.intp]:
        """Give the new label of each label, both from 0, shape (n_segments,)."""
        label_of = np.arange(n_segments)
        used: set[int] = set()
        for group in self.merge:
            _check_labels(group, n_segments)
            if used & set(group) or len(set(group)) < len(group):
                words = ", ".join("+".join(map(str, labels)) for labels in self.merge)
                raise ValueError(f"a label can be merged once, got {words}")
            used |= set(group)
            label_of[np.array(group) - 1] = min(group) - 1
        return np.unique(label_of, return_inverse=True)[1]

    def names_of(self, old: Sequence[str]) -> tuple[str, ...]:
        """Name the new labels after the old ones; empty where there is no name."""
        classes = self.classes(len(old))
        names = [""] * (int(classes.max(initial=-1)) + 1)
        for label, name in reversed(list(enumerate(old))):
            names[classes[label]] = name or names[classes[label]]
        names_given = dict[int, str]()
        for label, name in self.names:
            _check_labels((label,), len(old))
            new = classes[label - 1]
            names[new] = names_given.setdefault(new, name.strip())
            if names[new] != name.strip():
                both = f"{names[new]} and {name.strip()}"
                raise ValueError(f"label {label} is part of a segment that gets two names, {both}; keep one")
        given = [name for name in names if name]
        if len(set(given)) < len(given):
            raise ValueError(f"each name may be given once, got {', '.join(given)}")
        return tuple(names)


def checked_edits(values: Any) -> Edits:
    """Edits from what a file of edits holds: ``{"merge": [[2, 5]], "names": {"2": "gland"}}``."""
    if isinstance(values, Edits):
        return values
    if not isinstance(values, Mapping) or not set(values) <= {"merge", "names"}:
        form = '{"merge": [[2, 5]], "names": {"2": "gland"}}'
        raise ValueError(f"edits must be of the form {form}, got {shown(values)}")
    groups, names = _checked_groups(values.get("merge", [])), values.get("names", {})
    if not isinstance(names, Mapping):
        raise ValueError(f'names must be of the form {{"2": "gland"}}, got {shown(names)}')
    return Edits(groups, tuple(_checked_name(*pair) for pair in names.items()))


def _checked_name(label: Any, name: Any) -> tuple[int, str]:
    text = str(label) if isinstance(label, (str, int, np.integer)) else ""
    if not text.isdecimal() or len(text) > 9 or not isinstance(name, str):
        raise ValueError(f'names must be of the form {{"2": "gland"}}, got {shown({label: name})}')
    return int(text), printable_name(name)


def _checked_groups(merge: Any) -> tuple[tuple[int, ...], ...]:
    groups = [_members(group) for group in _members(merge) or []]
    are_groups = all(group and len(group) > 1 and all(map(_is_whole, group)) for group in groups)
    if _members(merge) is None or not are_groups:
        form = "groups of two labels or more, such as [(2, 5)]"
        raise ValueError(f"merge must hold {form}, got {shown(merge)}")
    return tuple(tuple(map(int, group)) for group in groups if group)


def _members(value: Any) -> tuple[Any, ...] | None:
    """Members of a list, tuple, set or array; None of anything else."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(value) if isinstance(value, (list, tuple, set, range)) else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def read_edits(path: str | os.PathLike[str]) -> Edits:
    """Read a file of edits, such as a report saves."""
    try:
        return checked_edits(read_json(path, _LARGEST_FILE))
    except (MalformedFileError, ValueError) as error:
        raise OSError(f"{Path(path).name}: not a file of edits: {error}") from None


def parse_merges(texts: Iterable[str]) -> Edits:
    """Edits from words such as "2+5=gland", "2+5" and, for a name alone, "3=stroma"."""
    merge, names = [], []
    for text in texts:
        numbers, _, name = text.partition("=")
        words = [word for word in numbers.split("+") if word.strip().isdecimal() and len(word) < 10]
        labels = tuple(map(int, words))
        if len(labels) != numbers.count("+") + 1 or (len(labels) < 2 and not name.strip()):
            raise ValueError(f"{text!r} is not of the form 2+5=gland, 2+5 or 3=stroma")
        if len(labels) > 1:
            merge.append(labels)
        if name.strip():
            names.append(_checked_name(labels[0], name.strip()))
    return Edits(tuple(merge), tuple(names))


def _check_labels(labels: Iterable[Any], n_segments: int) -> None:
    for label in labels:
        if not _is_whole(label) or not 1 <= label <= n_segments:
            raise ValueError(f"label {shown(label)} is not one of the segments, which are 1 to {n_segments}")


@dataclass(frozen=True)
class MergedTextures:
    """Textures, several of which may belong to the same segment: a gland is lumen and epithelium."""

    parts: Textures  # the P textures, as learned; whatever a merge does not change is theirs
    classes: NDArray[np.intp]  # (P,), segment of each texture, 0 .. K - 1.
    shares: NDArray[np.floating]
    """(P,), weight of each in the histograms of its segment, such as its number of pixels."""

    @classmethod
    def of(cls, textures: Textures | MergedTextures) -> MergedTextures:
        """Textures in the form that can be merged; by default, each is a segment."""
        if isinstance(textures, MergedTextures):
            return textures
        K = len(textures.profiles)
        return cls(textures, np.arange(K), np.ones(K))

    def __getattr__(self, name: str) -> Any:
        if name not in ("features", "cell", "reach", "speck_area", "novelty"):
            raise AttributeError(name)
        return getattr(self.parts, name)

    @property
    def members(self) -> NDArray[np.floating]:
        """(K, P), 1 where a texture belongs to a segment."""
        return (np.arange(self.classes.max() + 1)[:, None] == self.classes).astype(np.float64)

    @property
    def profiles(self) -> NDArray[np.floating]:
        """Histograms of the segments, (K, M); each channel sums to one."""
        members = self.members * self.shares
        members /= members.sum(axis=1, keepdims=True)
        return (members @ self.parts.profiles).astype(self.parts.profiles.dtype)

    def read(self, scene: Scene, smoothness: float) -> Reading:
        """Classify every pixel of a scene.

        A pixel belongs to the segment of its texture, so that a merge moves no border; its probability is the
        sum over all textures of the segment.
        """
        read = self.parts.read(scene, smoothness)
        groups = [np.flatnonzero(members) for members in self.members]

        def of_segments(planes: PixelPlanes, joined: Any) -> PixelPlanes:
            both = (planes.cells, planes.near)
            cells, near = (np.stack([joined(each[group], axis=0) for group in groups]) for each in both)
            return replace(planes, cells=cells, near=near)

        posteriors, scores = of_segments(read.posteriors, np.max), of_segments(read.scores, np.max)
        probabilities = of_segments(read.probabilities, np.sum)
        agree(probabilities.cells, arg_max_over(posteriors.cells))
        agree(probabilities.near, arg_max_over(posteriors.near))
        return Reading(posteriors, probabilities, scores)

    def merged(self, classes: NDArray[np.intp], sizes: NDArray[np.floating]) -> MergedTextures:
        """Merge K segments into new ones, ``classes`` (K,) from 0, given their areas ``sizes`` (K,)."""
        within = self.shares / (self.members @ self.shares)[self.classes]
        return MergedTextures(self.parts, classes[self.classes], within * sizes[self.classes])

    def separated(self, segment: int) -> MergedTextures:
        """Undo the merges of a segment: its first texture keeps the number, the others get new ones."""
        classes = self.classes.copy()
        others = np.flatnonzero(classes == segment)[1:]
        classes[others] = classes.max() + 1 + np.arange(len(others))
        return replace(self, classes=classes)

    def halved(
        self, segment: int, profiles: NDArray[np.floating], sizes: NDArray[np.floating]
    ) -> MergedTextures:
        """Replace the only texture of a segment by two, given their profiles (2, M) and areas (2,).

        The first keeps the number, the second gets the last one; both take over the learned borders.
        """
        P, K = len(self.classes), int(self.classes.max()) + 1
        old = int(np.flatnonzero(self.classes == segment)[0])
        parts = self.parts.take(np.array([*range(P), old]))
        table, shares = parts.profiles.copy(), np.append(self.shares, self.shares[old])
        table[[old, P]] = profiles
        shares[[old, P]] *= sizes / sizes.sum()
        return MergedTextures(replace(parts, profiles=table), np.append(self.classes, K), shares)


class Editable:
    """What a segmenter can do with its segments without a new fit."""

    textures_: Any
    labels_: Labels
    hierarchy_: Any
    names_: tuple[str, ...]
    ground_: Any
    _division: Any = None
    _parts: Sequence[NDArray[np.int32]] = ()
    _describe: Any

    def _check_is_fitted(self) -> None:
        if not hasattr(self, "textures_"):
            from sklearn.exceptions import NotFittedError  # a second to import, which nobody else waits for

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit, or load a model")

    def merge(self, groups: Iterable[Sequence[int]]) -> Self:
        """Merge each group of labels into one segment.

        It keeps the smallest of their numbers, and higher numbers go down to close the gaps. No border moves.
        Images predicted later are labelled in the same way, and a merged segment's probability is the sum of
        those of its parts, also in ``confidence_``.

        Groups are, for example, ``[(2, 5)]``; a ValueError says which labels are unknown, or in two groups.

        Examples
        --------
        >>> from texseg import TextureSegmenter
        >>> rows, columns = np.mgrid[:64, :96]
        >>> image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
        >>> TextureSegmenter(n_segments=2).fit(image).merge([(1, 2)]).n_segments_
        1
        """
        return self.edit(Edits(_checked_groups(groups)))

    def rename(self, names: Mapping[int, str]) -> Self:
        """Name segments, for example ``{2: "gland"}``, each differently; an empty string removes a name."""
        return self.edit({"names": names})

    def edit(self, edits: Edits | Mapping[str, Any] | str | os.PathLike[str]) -> Self:
        """Merge and name segments according to the edits made in a report, or a file of edits.

        Edits are ``{"merge": [[2, 5]], "names": {"2": "gland"}}``, also in a JSON file; all numbers are those
        before the edit. A ValueError says that they have another form, or do not fit the model; an OSError,
        that the file cannot be read, or holds no edits.
        """
        self._check_is_fitted()
        checked = read_edits(edits) if isinstance(edits, (str, os.PathLike)) else checked_edits(edits)
        K = len(self.names_)
        classes, names = checked.classes(K), checked.names_of(self.names_)
        if checked.merge:
            first = self._first_texture
            if first and np.count_nonzero(classes == 0) > 1:
                raise ValueError("segment 1 is flat background, which cannot be merged with a texture")
            images = self._images()
            sizes = np.sum([np.bincount(image.ravel(), minlength=K + 1)[1:] for image in images], axis=0)
            sizes = sizes if images else np.ones(K)
            textures = MergedTextures.of(self.textures_)
            self._take_over(textures.merged(classes[first:] - first, sizes[first:]))
        self.names_ = names
        return self

    def split(self, segment: int) -> Self:
        """Divide a segment: undo its merges, or split it in two where the hierarchy first divides it.

        The larger part (of a merge, the first) keeps the number; new parts get the last numbers. Other
        segments stay as they are.

        A ValueError says that no such segment exists, that the hierarchy does not divide it, that it is a
        class of strokes, or that the model was loaded from a file and the segment is not a merged one.
        """
        self._check_is_fitted()
        K, first = len(self.names_), self._first_texture
        _check_labels((segment,), K)
        if segment <= first:
            raise ValueError("segment 1 is flat background, which cannot be split")
        textures, parts, number = MergedTextures.of(self.textures_), None, segment - 1 - first
        if np.count_nonzero(textures.classes == number) > 1:
            textures = textures.separated(number)
        elif textures.parts.strokes is not None:
            remedy = "paint a part of it as a new class, and refit"
            raise ValueError(f"segment {segment} is a class of strokes; {remedy}")
        else:
            halves, search = self._halves(segment), self._division.search
            shares = painted_cells(halves, search.grids, 2)  # profiles (2, M) and areas (2,) of the parts
            profiles = search.cells.profiles((shares / math.prod(search.grids[0].sides)).astype(np.float32))
            textures = textures.halved(number, profiles, shares.sum(axis=0))
            last = len(textures.classes) + first
            pairs = zip(halves, self._part_images(), strict=True)
            parts = [np.where(half == 2, last, image).astype(np.int32) for half, image in pairs]
        self._take_over(textures, parts)
        self.names_ = (*self.names_, *[""] * (len(textures.profiles) + first - K))
        return self

    @property
    def fitted_labels(self) -> list[list[int]]:
        """Labels of the fit in every segment; several where segments were merged."""
        first, classes = self._first_texture, MergedTextures.of(self.textures_).classes
        groups = [np.flatnonzero(classes == k) + first + 1 for k in range(classes.max() + 1)]
        return [*([1] for _ in range(first)), *(own.tolist() for own in groups)]

    @property
    def _first_texture(self) -> int:
        """Label of the first texture, counted from 0; 1 if flat background comes before it."""
        return int(self.ground_ is not None)

    def _images(self) -> list[NDArray[np.int32]]:
        """Labels of the fitted images; empty for a loaded model."""
        labels = getattr(self, "labels_", [])
        return list(labels) if isinstance(labels, list) else [labels]

    def _part_images(self) -> Sequence[NDArray[np.int32]]:
        """Labels of these images before segments were merged, from 1."""
        return self._parts if isinstance(self.textures_, MergedTextures) else self._images()

    def _halves(self, segment: int) -> list[NDArray[np.int32]]:
        """Images of 1 (the larger part) and 2 where the hierarchy first divides a segment; 0 elsewhere."""
        if self._division is None:
            place = "where the model was fitted, not in one loaded from a file"
            raise ValueError(f"segment {segment} can be split {place}")
        hierarchy, images = self.hierarchy_, self._images()
        if hierarchy.is_list and not isinstance(self.labels_, list):
            where = "in an image that was too large to be fitted as a whole"
            remedy = "fit a part of it, split there, and predict the whole"
            raise ValueError(f"segment {segment} cannot be split {where}; {remedy}")
        for k in hierarchy.n_segments[hierarchy.n_segments > len(self.names_)]:
            level = hierarchy.level(int(k))
            inside = [np.where(own == segment, finer, 0) for own, finer in zip(images, level, strict=True)]
            sizes = np.sum([np.bincount(image.ravel(), minlength=k + 1)[1:] for image in inside], axis=0)
            two = np.argsort(sizes, kind="stable")[:-3:-1]
            if sizes[two[1]] >= max(1, _SMALLEST_PART * sizes.sum()):
                return [np.where(i == two[1] + 1, 2, np.minimum(i, 1)).astype(np.int32) for i in inside]
        raise ValueError(f"segment {segment} cannot be split: no two textures can be distinguished in it")

    def _take_over(self, textures: MergedTextures, parts: Sequence[NDArray[np.int32]] | None = None) -> None:
        """Set the public attributes to the edited textures and to the labels of the fitted images."""
        parts = self._part_images() if parts is None else parts
        first = self._first_texture
        label_of = np.concatenate([[0], np.arange(first) + 1, textures.classes + first + 1]).astype(np.int32)
        if parts:
            images = [label_of[image] for image in parts]
            self.labels_ = images if isinstance(self.labels_, list) else images[0]
            self.__dict__.pop("_hierarchy", None)
            self.__dict__.pop("_confidence", None)
            if self._division is not None:
                self._division = self._division.unpainted()
        self.textures_, self._parts = textures, parts
        self._describe()
