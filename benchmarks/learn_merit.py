"""Learn which of several solutions is right: python benchmarks/learn_merit.py DATA --cache FOLDER

Every image is divided by all rivals (levels of trees, and annealed clusters). What
`texseg.method.clusters.Search.merits` measures of each, and how far its cells are right, is kept in --cache.
The weights are fitted to pairs of rivals, without each field, to judge them on that field alone, and on all.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import Case
from benchmarks.measure import Table, learning_options, remembered
from texseg import TextureSegmenter
from texseg.method.clusters import _MERITS, Candidate, Search
from texseg.metrics import adjusted_rand_index

SETS = {
    "real": 1,
    "real_more": 1,
    "rwtd": 3,
    "prague": 1,
    "outex": 4,
    "brodatz5s": 1,
    "brodatz12v": 2,
    "samples": 1,
}
"""Sets, and every so manieth image of each."""
_SAME = 0.005  # of the adjusted Rand index: rivals that differ by less are equal


def measured(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Merits (n, 3) of n rivals, and the adjusted Rand index of their cells."""
    found: list[tuple[NDArray[np.float64], float]] = []
    judged = np.ones(case.truth.shape, bool) if case.ignore_label is None else case.truth != case.ignore_label
    rivals = Search.rivals

    def keep(search: Search, trees: object, k: int, annealed: object = None) -> list[Candidate]:
        fits, cell = rivals(search, trees, k, annealed), search.settings.cell
        for fit in fits:
            labels = fit.posteriors.argmax(axis=1).reshape(search.grids[0].shape)
            pixels = labels.repeat(cell, 0).repeat(cell, 1)[: judged.shape[0], : judged.shape[1]]
            found.append((search.merits(fit), adjusted_rand_index(case.truth[judged], pixels[judged])))
        return fits

    model = TextureSegmenter(max(case.n_segments, 2), channel_axis=case.channel_axis, cue="texture")
    with patch.object(Search, "rivals", keep), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(case.image)
    merits, right = zip(*found, strict=True)
    return np.array(merits), np.array(right)


def learned(images: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Weights (3,) with which the better of two rivals is likeliest to be the one with more merit."""
    sizes = Counter(field for field, _, _ in images)
    better, weights = [], []
    for field, merits, right in images:
        for i, j in zip(*np.triu_indices(len(right), 1), strict=True):
            if abs(right[i] - right[j]) >= _SAME:
                better.append((merits[i] - merits[j]) * np.sign(right[i] - right[j]))
                weights.append(abs(right[i] - right[j]) / len(right) / np.sqrt(sizes[field]))
    differences, scale = np.array(better), np.std(better, axis=0)
    rows = np.concatenate([differences, -differences]) / scale
    model = LogisticRegression(fit_intercept=False)
    model.fit(rows, np.arange(len(rows)) < len(differences), np.tile(weights, 2) / np.mean(weights) / 2)
    return model.coef_[0] / scale


def main(arguments: Sequence[str] | None = None) -> None:
    images = [
        (field, *found) for field, found in remembered(learning_options(__doc__, arguments), SETS, measured)
    ]
    table = Table([("field", -14), ("n", 4), ("mean", 8), ("shipped", 8), ("held out", 8), ("best", 8)])
    for field in dict.fromkeys(field for field, _, _ in images):
        own = [(merits, right) for name, merits, right in images if name == field]
        weights = learned([image for image in images if image[0] != field])
        of = {
            "mean": [right.mean() for _, right in own],
            "shipped": [right[np.argmax(merits @ np.array(_MERITS))] for merits, right in own],
            "held out": [right[np.argmax(merits @ weights)] for merits, right in own],
            "best": [right.max() for _, right in own],
        }
        table.row(field, len(own), *(float(np.mean(values)) for values in of.values()))
    print("weights of gain, doubt, smallest share:", learned(images).round(2).tolist())


if __name__ == "__main__":
    main()
