"""Learn when a map by plain values is better than one by texture: python benchmarks/learn_cues.py DATA

Every image is divided by both. What `texseg/method/cues.py` measures of the two maps, and how far each is
right, is kept in --cache, so that a second run is short. The weights are fitted without each field, to judge
them on that field alone, and on all.
"""

from __future__ import annotations

import sys
import warnings
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
from texseg.method import cues, division
from texseg.metrics import adjusted_rand_index

SETS = {"real": 1, "real_more": 1, "rwtd": 1, "prague": 1, "outex": 12, "brodatz5s": 4, "brodatz12v": 6}
SETS |= {"fabrics5v": 5, "textures2-8": 2, "equalised": 20, "samples": 1, "grains": 1, "filled": 1}
"""Sets, and every so manieth image of each."""


def measured(case: Case) -> tuple[NDArray[np.float64], float, float]:
    """Evidence (4,), and the adjusted Rand index of both maps, by texture first."""
    kept: dict[str, division.Division] = {}

    def keep(by_texture: division.Division, by_values: division.Division, _: object) -> division.Division:
        kept.update(texture=by_texture, values=by_values)
        return by_texture

    model = TextureSegmenter(max(case.n_segments, 2), channel_axis=case.channel_axis)
    with (
        patch.object(division, "_better", keep),
        patch.object(division, "odds_of_values", lambda *numbers: 1.0),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        model.fit(case.image)
    scenes, features = kept["texture"].scenes, kept["texture"].textures.features
    texture, values = ([labels for labels, _ in each.labelled] for each in kept.values())
    (ragged, told, _), (_, share, _) = (cues.measured(each, scenes, features) for each in (texture, values))
    judged = np.ones(case.truth.shape, bool) if case.ignore_label is None else case.truth != case.ignore_label
    right = [adjusted_rand_index(case.truth[judged], each.labelled[0][0][judged]) for each in kept.values()]
    labels, sure = kept["texture"].labelled[0]
    return cues.evidence_of_cues(float(sure[labels > 0].mean()), ragged, told, share), *right


def learned(logs: NDArray[np.float64], gains: NDArray[np.float64], fields: NDArray[np.str_]) -> NDArray:
    """Constant and weights (5,) of the log-odds that values gain."""
    sizes = np.array([np.count_nonzero(fields == field) for field in fields])
    model = LogisticRegression(max_iter=500).fit(logs, gains > 0, 5 * np.abs(gains) / np.sqrt(sizes))
    return np.append(model.intercept_, model.coef_[0])


def main(arguments: Sequence[str] | None = None) -> None:
    options = learning_options(__doc__, arguments)
    rows = [(field, *found) for field, found in remembered(options, SETS, measured)]
    fields, texture, values = (np.array([row[i] for row in rows]) for i in (0, 2, 3))
    logs = np.array([row[1] for row in rows])
    scenes = np.array([field.removeprefix("filled/") for field in fields])  # which lend their shapes
    gains = values - texture
    table = Table([("field", -14), ("n", 4), ("texture", 8), ("values", 8), ("held out", 8), ("best", 8)])
    for field in dict.fromkeys(fields):
        own, others = fields == field, scenes != field.removeprefix("filled/")
        constant, *weights = learned(logs[others], gains[others], fields[others])
        chosen = np.where(constant + logs[own] @ weights > 0, values[own], texture[own])
        best = np.maximum(values[own], texture[own])
        means = [float(part.mean()) for part in (texture[own], values[own], chosen, best)]
        table.row(field, int(own.sum()), *means)
    print(
        "constant, weights of doubt, raggedness, told, not told:",
        learned(logs, gains, fields).round(2).tolist(),
    )


if __name__ == "__main__":
    main()
