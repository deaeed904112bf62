"""Sheets of the images with the fewest pixels right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from texseg.io.display import to_rgb
from texseg.io.regions import palette
from texseg.metrics import match_labels, pixel_accuracy

_WRONG = (0.85, 0.1, 0.1)


class Case(NamedTuple):
    """One image with its segmentation and the truth."""

    name: str
    image: ArrayLike
    labels: ArrayLike
    truth: ArrayLike


def worst_cases(cases: Sequence[Case], n: int = 5) -> Figure:
    """Draw the cases with the fewest pixels right, worst first: image, truth, labels, errors."""
    scored = [(pixel_accuracy(case.labels, case.truth, ignore_label=0), case) for case in cases]
    scored = sorted(scored, key=lambda pair: pair[0])[:n]
    figure = pyplot.figure(figsize=(9.2, 2.5 * len(scored)), layout="constrained")
    axes = figure.subplots(len(scored), 4, squeeze=False)
    for row, (accuracy, case) in zip(axes, scored, strict=True):
        picture, truth = to_rgb(case.image), np.asarray(case.truth)
        matched = match_labels(case.labels, truth, ignore_label=0)
        wrong = (matched != truth) & (truth != 0)
        marked = picture // 2 + 64
        marked[wrong] = np.array(_WRONG) * 255
        pictures = (picture, palette(int(truth.max()))[truth], palette(int(matched.max()))[matched], marked)
        titles = (case.name, "truth", f"{100 * accuracy:.1f} % right", "wrong")
        for ax, title, shown in zip(row, titles, pictures, strict=True):
            ax.imshow(shown, interpolation="nearest")
            ax.set_title(title)
            ax.set_axis_off()
    return figure
