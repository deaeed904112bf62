"""What a user wants changed about a segmentation: segments to merge, and names for them.

All numbers are those of the labels before the edits. Merged segments keep the smallest number among them, and
higher numbers go down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Edits", "check_labels", "checked_edits", "checked_groups", "parse_merges", "read_edits"]


class Edits(NamedTuple):
    """Segments to merge, and names."""

    merge: tuple[tuple[int, ...], ...] = ()
    """Groups of labels."""
    names: tuple[tuple[int, str], ...] = ()
    """Pairs of a label and a name; a group is named by any label in it."""

    def __bool__(self) -> bool:
        return bool(self.merge or self.names)

    def __add__(self, other: Edits) -> Edits:  # type: ignore[override]
        return Edits(self.merge + other.merge, self.names + other.names)

    def classes(self, n_segments: int) -> NDArray[np.intp]:
        """Give the new label of each label, both from 0, shape (n_segments,).

        Raises
        ------
        ValueError
            A label is not among those of the segmentation, or in two groups.
        """
        label_of = np.arange(n_segments)
        used: set[int] = set()
        for group in self.merge:
            check_labels(group, n_segments)
            if used & set(group) or len(set(group)) < len(group):
                raise ValueError(f"a label can be merged once, got {_words(self.merge)}")
            used |= set(group)
            label_of[np.array(group) - 1] = min(group) - 1
        return np.unique(label_of, return_inverse=True)[1]

    def names_of(self, old: Sequence[str]) -> tuple[str, ...]:
        """Name the new labels after the old ones; empty where there is no name.

        Raises
        ------
        ValueError
            A label is not among those of the segmentation, or a name is given twice.
        """
        classes = self.classes(len(old))
        names = [""] * (int(classes.max(initial=-1)) + 1)
        for label, name in reversed(list(enumerate(old))):
            names[classes[label]] = name or names[classes[label]]
        for label, name in self.names:
            check_labels((label,), len(old))
            names[classes[label - 1]] = name.strip()
        given = [name for name in names if name]
        if len(set(given)) < len(given):
            raise ValueError(f"each name may be given once, got {', '.join(given)}")
        return tuple(names)


def checked_edits(values: Any) -> Edits:
    """Edits from what a file of edits holds: ``{"merge": [[2, 5]], "names": {"2": "gland"}}``.

    Raises
    ------
    ValueError
        It holds something else.

    Examples
    --------
    >>> checked_edits({"merge": [[2, 5]], "names": {"2": "gland"}})
    Edits(merge=((2, 5),), names=((2, 'gland'),))
    """
    if isinstance(values, Edits):
        return values
    if not isinstance(values, Mapping) or not set(values) <= {"merge", "names"}:
        form = '{"merge": [[2, 5]], "names": {"2": "gland"}}'
        raise ValueError(f"edits must be of the form {form}, got {values}")
    merge, names = values.get("merge", []), values.get("names", {})
    groups = checked_groups(merge)
    if not isinstance(names, Mapping):
        raise ValueError(f'names must be of the form {{"2": "gland"}}, got {names}')
    pairs = []
    for label, name in names.items():
        if not str(label).isdecimal() or not isinstance(name, str):
            raise ValueError(f'names must be of the form {{"2": "gland"}}, got {dict(names)}')
        pairs.append((int(label), name))
    return Edits(groups, tuple(pairs))


def checked_groups(merge: Any) -> tuple[tuple[int, ...], ...]:
    """Check groups of labels to merge, such as ``[(2, 5)]``; anything else is a ValueError."""
    wrong = ValueError(f"merge must hold groups of two labels or more, such as [(2, 5)], got {merge!r}")
    if isinstance(merge, (str, Mapping)) or not isinstance(merge, Iterable):
        raise wrong
    groups = []
    for group in merge:
        if isinstance(group, (str, Mapping)) or not isinstance(group, Iterable):
            raise wrong
        labels = tuple(group)
        if len(labels) < 2 or not all(
            isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in labels
        ):
            raise wrong
        groups.append(tuple(int(label) for label in labels))
    return tuple(groups)


def read_edits(path: str | os.PathLike[str]) -> Edits:
    """Read a file of edits, such as a report saves.

    Raises
    ------
    OSError
        The file cannot be read, or holds no edits.
    """
    name = Path(path).name
    try:
        return checked_edits(json.loads(Path(path).read_text("utf-8")))
    except UnicodeDecodeError:
        raise OSError(f"{name}: no file of edits: it holds no text") from None
    except ValueError as error:  # of JSON, or ours
        raise OSError(f"{name}: no file of edits: {error}") from None


def parse_merges(texts: Iterable[str]) -> Edits:
    """Edits from words such as "2+5=gland", "2+5" and, for a name alone, "3=stroma".

    Raises
    ------
    ValueError
        A word is of another form.

    Examples
    --------
    >>> parse_merges(["2+5=gland", "3=stroma"])
    Edits(merge=((2, 5),), names=((2, 'gland'), (3, 'stroma')))
    """
    merge, names = [], []
    for text in texts:
        numbers, _, name = text.partition("=")
        labels = tuple(int(number) for number in numbers.split("+") if number.strip().isdecimal())
        if len(labels) != numbers.count("+") + 1 or (len(labels) < 2 and not name.strip()):
            raise ValueError(f"{text!r} is not of the form 2+5=gland, 2+5 or 3=stroma")
        if len(labels) > 1:
            merge.append(labels)
        if name.strip():
            names.append((labels[0], name.strip()))
    return Edits(tuple(merge), tuple(names))


def check_labels(labels: Sequence[int], n_segments: int) -> None:
    """Refuse labels that a segmentation does not have."""
    for label in labels:
        if not 1 <= label <= n_segments:
            raise ValueError(f"label {label} is not one of the segments, which are 1 to {n_segments}")


def _words(groups: Sequence[Sequence[int]]) -> str:
    return ", ".join("+".join(map(str, group)) for group in groups)
