"""What `texseg score` compares: labels and the truths of one annotator or several, by number and by name."""

import csv
import io
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg import metrics
from texseg.cli.terminal import say
from texseg.io.files import MalformedFileError, open_regular
from texseg.io.read import read_header, read_labels, read_volume, refuse_photograph

USUAL = ("n_segments", "n_regions", "co", "ari", "covering", "boundary_f", "right_name")
"""Measures that people ask for."""


_MOST_BYTES = 2**24  # of a table of names


class _Named(NamedTuple):
    """A label image, and the names of its labels."""

    path: Path
    labels: NDArray[np.integer]
    names: dict[int, str]

    def name(self, label: int) -> str:
        return self.names.get(label, str(label))


def compare(
    labels: Path, truths: Sequence[Path], names: Path | None, ignore_label: int | None, tolerance: float
) -> dict[str, Any]:
    """Compare a label image with the truth of each annotator, and the annotators with each other."""
    found, *right = (_read(path) for path in (labels, *truths))
    if names is not None:
        right = [each._replace(names=_names_in(names)) for each in right]
    arrays = [each.labels for each in right]
    for each in right:
        if each.labels.shape != found.labels.shape:
            shapes = f"{labels} {found.labels.shape} and {each.path} {each.labels.shape}"
            raise ValueError(f"{shapes} must have the same shape")
    zeros = np.mean([each.labels == 0 for each in right])
    if zeros and ignore_label is None:
        said = f"note: the {zeros:.1%} of pixels that are 0 in the truth count as a class"
        say(f"{said}; if they have none, pass --ignore-label 0", err=True)
    options: dict[str, Any] = {"ignore_label": ignore_label, "tolerance": tolerance}
    truth = arrays[0] if len(arrays) == 1 else np.stack(arrays)
    result = metrics.score(found.labels, truth, **options)._asdict()
    result["confusion"] = [_confusion(found, each, ignore_label) for each in right]
    are_named = all(each.names for each in right)
    if found.names and are_named:
        result["right_name"] = float(np.mean([_share_right(table) for table in result["confusion"]]))
    if len(right) > 1:
        result["annotators"] = metrics.agreement(truth, **options)._asdict()
        if are_named:
            among = [_share_right(_confusion(*pair, ignore_label)) for pair in permutations(right, 2)]
            result["annotators"]["right_name"] = float(np.mean(among))
    return result


def show(result: dict[str, Any], everything: bool, with_confusion: bool) -> None:
    """Print measures, with the agreement of annotators as their ceiling, and tables of confusion."""
    ceiling = result.get("annotators", {})
    if ceiling:
        say(f"{'':20} {'labels':>9} {'annotators':>11}")
    for field, value in result.items():
        if isinstance(value, int | float) and (everything or field in USUAL):
            values = [value, *([ceiling[field]] if field in ceiling else [])]
            texts = [f"{each:.4f}" if isinstance(each, float) else str(each) for each in values]
            say(f"{field:20} {texts[0]:>9}" + "".join(f" {text:>11}" for text in texts[1:]))
    for table in result["confusion"] if with_confusion else ():
        cells = [[f"pixels, {Path(table['truth']).name}:", *table["classes"]]]
        cells += [[name, *map(str, row)] for name, row in zip(table["labels"], table["pixels"], strict=True)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        say("")
        for first, *others in cells:
            rest = (f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
            say("  ".join([f"{first:<{widths[0]}}", *rest]))


def _read(path: Path) -> _Named:
    """Read a label image, and the names in the table of segments next to it, if it is one of texseg's."""
    stem, is_ours, _ = path.name.rpartition("_labels.")
    table = path.with_name(f"{stem}_segments.csv")
    names = _names_in(table) if is_ours and table.is_file() else {}
    if not path.is_dir() and read_header(path).n_pages == 1:
        return _Named(path, refuse_photograph(read_labels(path), path), names)
    planes = read_volume(path).pixels
    return _Named(path, planes.reshape(-1, planes.shape[2]).astype(np.int32), names)


def _names_in(path: Path) -> dict[int, str]:
    """Names of labels in a table with the columns label and name."""
    names: dict[int, str] = {}
    try:
        with open_regular(path, _MOST_BYTES) as file:
            rows = csv.DictReader(io.StringIO(file.read().decode("utf-8-sig"), newline=""))
        if not {"label", "name"} <= set(rows.fieldnames or ()):
            raise csv.Error
        pairs = [(int(row["label"]), row["name"].strip()) for row in rows]
    except MalformedFileError as error:
        raise OSError(f"{path}: {error}") from None
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path} must be a CSV file with the columns label and name") from None
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{path}: a label must be a whole number, with a name behind it") from None
    for label, name in pairs:
        if names.setdefault(label, name) != name:
            raise ValueError(f"{path} names label {label} twice, {names[label]} and {name}; keep one of them")
    return {label: name for label, name in names.items() if name and name != f"segment {label}"}


def _share_right(table: dict[str, Any]) -> float:
    """Share of pixels that have the right name."""
    named = zip(table["labels"], table["pixels"], strict=True)
    right = (row[table["classes"].index(name)] for name, row in named if name in table["classes"])
    return sum(right) / np.sum(table["pixels"])


def _confusion(found: _Named, truth: _Named, ignore_label: int | None) -> dict[str, Any]:
    """Pixels of each segment in each class; labels of one name are one."""
    table = metrics.contingency_table(found.labels, truth.labels, ignore_label)
    rows = [found.name(label) for label in table.labels.tolist()]
    columns = [truth.name(label) for label in table.truth.tolist()]
    names = list(dict.fromkeys(rows)), list(dict.fromkeys(columns))
    pixels = np.zeros((len(names[0]), len(names[1])), np.int64)
    places = np.ix_([names[0].index(name) for name in rows], [names[1].index(name) for name in columns])
    np.add.at(pixels, places, table.counts)
    return {"truth": str(truth.path), "labels": names[0], "classes": names[1], "pixels": pixels.tolist()}
