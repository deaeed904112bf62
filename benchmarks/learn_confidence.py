"""Learn how surely a cluster is right, and judge it: python benchmarks/learn_confidence.py DATA --cache C.

Every image is divided into its true number of segments (two at least), and the evidence on its clusters is
kept in --cache with the share of right pixels, so that a second run is short. The curve (see
`texseg/method/confidence.py`) is fitted without each field, to judge it on that field alone, and on all.
"""

from __future__ import annotations

import pickle
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import SUITES, Case
from benchmarks.measure import Table, learning_options
from texseg import TextureSegmenter
from texseg.method import clusters
from texseg.method.confidence import CURVE, Curve, Evidence, evidence_of_clusters, right
from texseg.metrics import match_labels

SETS = {"real": 1, "real_more": 1, "rwtd": 4, "prague": 1, "outex": 10, "brodatz5s": 4, "brodatz2-4": 2}
SETS |= {"brodatz5-8": 4, "fabrics5v": 4, "textures2-8": 2, "equalised": 25}
SETS |= {"plain": 3, "textures": 20, "textures_more": 20, "crops": 8}
"""Sets, and every so manieth image of each; a single texture is divided into two."""
BOUNDS = ((0.2, 3.0), (1.0, 5.0), (0.0, 0.99))  # of half, power, values


class Measured(NamedTuple):
    """One image, divided."""

    field: str
    name: str
    evidence: Evidence
    certain: float
    """Mean confidence if all clusters were right for certain."""
    right: float
    """Share of right pixels."""

    def stated(self, curve: Curve) -> float:
        """Mean confidence."""
        areas = self.evidence.areas
        return self.certain * float(areas @ right(self.evidence, curve) / areas.sum())


def divided(case: Case, field: str) -> Measured:
    """Divide an image; where two cues were tried, the evidence is that of the one that was used."""
    calls: list[Evidence] = []

    def certain(labels: Any, n_clusters: int, *how: Any) -> NDArray[np.float32]:
        calls.append(evidence_of_clusters(labels, n_clusters, *how))
        return np.eye(n_clusters, dtype=np.float32)

    model = TextureSegmenter(max(case.n_segments, 2), channel_axis=case.channel_axis, random_state=0)
    with patch.object(clusters, "confusion_of_clusters", certain), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(case.image)
    evidence = calls[-1 if model.cue_ == "values" else 0]
    judged = np.ones(case.truth.shape, bool) if case.ignore_label is None else case.truth != case.ignore_label
    is_right = match_labels(model.labels_, case.truth, case.ignore_label) == case.truth
    sure = model.confidence_[judged].mean()
    return Measured(field, case.name, evidence, float(sure), float(is_right[judged].mean()))


def images(data: Path) -> Iterator[tuple[str, str, str]]:
    """Field, suite and name of every image, the suites in turn."""
    makers = []
    for suite, step in SETS.items():
        names = SUITES[suite].names(data)[::step]
        makers.append([(suite, names[i]) for i in np.random.default_rng(0).permutation(len(names))])
    while any(makers):
        for suite, name in [maker.pop(0) for maker in makers if maker]:
            yield name.split("/")[0] if suite.startswith("real") else suite, suite, name


def measured(data: Path, cache: Path, minutes: float) -> Iterator[Measured]:
    """Measure all images, or take them from the cache; those that are missing only for so many minutes."""
    end = time.monotonic() + 60 * minutes
    for field, suite, name in images(data):
        path = cache / f"{suite}-{name.replace('/', '_')}.pkl"
        if not path.exists():
            if time.monotonic() > end:
                continue
            path.write_bytes(pickle.dumps(tuple(divided(SUITES[suite].load(data, name), field))))
        yield Measured(*pickle.loads(path.read_bytes()))


def fit(every: Sequence[Measured]) -> Curve:
    """Fit the curve by maximum likelihood of the share of right pixels."""
    share = np.array([image.right for image in every])

    def loss(values: NDArray[np.float64]) -> float:
        stated = np.clip([image.stated(Curve(*values)) for image in every], 1e-3, 1 - 1e-3)
        return -float((share * np.log(stated) + (1 - share) * np.log(1 - stated)).mean())

    return Curve(*minimize(loss, CURVE, method="L-BFGS-B", bounds=BOUNDS).x.tolist())


def main(arguments: Sequence[str] | None = None) -> None:
    options = learning_options(__doc__, arguments)
    every = list(measured(options.data, options.cache, options.minutes))
    fields = defaultdict(list)
    for image in every:
        fields[image.field].append(image)
    print("confidence less share of right pixels, in the mean of a field: as shipped, and learned without it")
    table = Table([("field", -14), ("n", 4), ("right", 6), ("shipped", 8), ("apart", 8), ("by image", 8)])
    for field, own in sorted(fields.items()):
        apart = fit([image for image in every if image.field != field])
        off = [[image.stated(curve) - image.right for image in own] for curve in (CURVE, apart)]
        share = float(np.mean([image.right for image in own]))
        table.row(field, len(own), share, *np.mean(off, axis=1).tolist(), float(np.mean(np.abs(off[1]))))
    print(f"learned from all: {fit(every)}")


if __name__ == "__main__":
    main()
