"""Learn to tell one texture from two, and judge the number chosen: python benchmarks/learn_number.py DATA.

Every image of `benchmarks.numbered` is over-segmented and merged down, as the shipped odds have it; what is
measured of each merge is kept in --cache, so that a second run is short. Then the log-odds of two textures,
of pairs in their trees, are fitted to the probability of the whole number (see `texseg/method/number.py`):
once without each source, to judge the choice on that source alone, and once on all, for --write.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import Case
from benchmarks.levels import rand, scores, shared_pixels, trees_of
from benchmarks.measure import Table, limit_threads
from benchmarks.numbered import Numbered, numbered
from texseg import TextureSegmenter
from texseg.method.number import MergeTree, choose_number
from texseg.method.pairs import EVIDENCE, PAIR_EVIDENCE, PairTable, along_the_tree, shipped_table

SHIPPED = Path(__file__).resolve().parents[1] / "texseg" / "method" / "number.json"
K_MAX = 14
OUTER = 0.005  # quantiles that evidence is held between
N_KNOTS = 2
SHRINKAGE = 0.01
"""On squared slopes; .02 and .03 are right as often, but less sure that what fades is one texture."""
DOUBT = 0.05
SHARPNESS = 1.2
"""Factor on the log-odds, which shrinkage and soft targets make too small; 1 to 1.4 are right as often."""
BY_MAP = 0.5  # share of the target that goes to the levels whose map is best, the rest to the true number
AS_GOOD = 0.03  # of the adjusted Rand index: levels this close to the best share the target
MOST_OF_A_KIND = 25  # images of one source that count in full; more of them share this weight
COLUMNS = [("source", -14), ("images", -13), ("n", 4), ("right", 6), ("+-1", 6), ("ARI", 6), ("number", 7)]
COLUMNS += [("best", 6), ("leaves", 6), ("one", 5), ("stated", 7), ("error", 6)]
LEGEND = (
    "right, +-1: share with the right number, and within one of it. ARI: of the chosen level of the tree on"
    " cells; number: of the level with the true number; best: of the best level; leaves: relabelled by the"
    " truth. one: share called a single texture. stated: mean probability of the number that was chosen;"
    " error: calibration error of it.\n"
    "Images of two or more textures are asked for two at least (the default), images of one texture for one."
)


class Measured(NamedTuple):
    """One image, over-segmented and merged down."""

    source: str
    kind: str
    name: str
    number: int
    """Of textures."""
    tree: MergeTree
    table: NDArray[np.float64]
    """(clusters, textures), pixels they share."""

    def scores(self) -> NDArray[np.float64]:
        """Adjusted Rand index of each level of the tree, from one segment on."""
        return scores(self.table, self.tree)

    @property
    def k_min(self) -> int:
        return 1 if self.number == 1 else 2


def merged_down(case: Case) -> MergeTree:
    """Fit as far as the merge tree that the number is chosen from."""
    model = TextureSegmenter(k_max=K_MAX, channel_axis=case.channel_axis, random_state=0)
    with warnings.catch_warnings(), trees_of(first_only=True) as trees:
        warnings.simplefilter("ignore")
        model.fit(case.image)
    return trees[0]


def place(cache: Path, image: Numbered) -> Path:
    """Give the file of an image in the cache."""
    return cache / f"{image.name.replace('/', '_')}.npz"


def measured(image: Numbered, cache: Path) -> Measured:
    """Measure an image, or take it from the cache."""
    path = place(cache, image)
    if not path.exists():
        case = image.load()
        tree = merged_down(case)
        np.savez(
            path,
            labels=tree.labels.astype(np.uint8),
            areas=tree.areas,
            merges=np.array(tree.merges, int).reshape(-1, 2),
            separations=tree.separations,
            evidence=tree.evidence[:, : len(PAIR_EVIDENCE)],
            table=shared_pixels(tree, case.truth),
            number=len(np.setdiff1d(case.truth, [0])),
        )
    with np.load(path) as saved:
        merges = tuple((int(a), int(b)) for a, b in saved["merges"])
        evidence = along_the_tree(saved["evidence"][:, : len(PAIR_EVIDENCE)])
        labels = saved["labels"].astype(np.intp)
        tree = MergeTree(labels, saved["areas"], merges, saved["separations"], evidence)
        return Measured(image.source, image.kind, image.name, int(saved["number"]), tree, saved["table"])


def target(image: Measured) -> NDArray[np.float64]:
    """Probabilities of the levels of a tree that the fit aims at."""
    each = image.scores()
    aim = BY_MAP * softmax((each - each.max()) / AS_GOOD)
    aim[min(image.number, len(each)) - 1] += 1 - BY_MAP
    return aim


def weights(images: Sequence[Measured]) -> NDArray[np.float64]:
    """Weight of each image, so that no source outweighs the others, nor images of one texture the rest."""
    kinds = [(image.source, image.number == 1) for image in images]
    numbers = Counter(kinds)
    each = np.array([min(1.0, MOST_OF_A_KIND / numbers[kind]) for kind in kinds])
    return each / each.sum()


def fit(images: Sequence[Measured]) -> PairTable:
    """Fit the log-odds of two textures by maximum likelihood of the number, with shrinkage."""
    images = [image for image in images if image.tree.merges]
    evidence = np.concatenate([image.tree.evidence[::-1] for image in images])  # two segments first
    low, high = np.quantile(evidence, [OUTER, 1 - OUTER], axis=0)
    held = np.clip(evidence, low, high)
    mean, spread = held.mean(axis=0), held.std(axis=0) + 1e-6
    at = np.linspace(0, 1, N_KNOTS + 2)[1:-1]
    knots = np.quantile((held - mean) / spread, at, axis=0)
    slopes = np.zeros((N_KNOTS + 1, evidence.shape[1]))
    start = PairTable(low, high, mean, spread, knots, slopes, 0.0, DOUBT)
    columns = start.columns(evidence)
    lengths = np.array([len(image.tree.merges) for image in images])
    place = np.full((len(images), lengths.max()), -1)
    aims = np.zeros((len(images), lengths.max() + 1))
    for i, (image, end) in enumerate(zip(images, np.cumsum(lengths), strict=True)):
        place[i, : lengths[i]] = np.arange(end - lengths[i], end)
        aims[i, : lengths[i] + 1] = target(image)
    there = np.column_stack([np.ones(len(images), bool), place >= 0])
    each = weights(images)[:, None]

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        steps = np.append(columns @ parameters[:-1] + parameters[-1], 0.0)[place]
        logits = np.where(there, np.cumsum(np.column_stack([np.zeros(len(steps)), steps]), axis=1), -1e9)
        logs = log_softmax(logits, axis=1)
        value = -(each * aims * np.where(aims > 0, logs, 0)).sum()
        by_level = each * (np.exp(logs) - aims)
        by_step = by_level[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        by_row = np.zeros(len(columns))
        by_row[place[place >= 0]] = by_step[place >= 0]
        gradient = np.append(columns.T @ by_row + 2 * SHRINKAGE * parameters[:-1], by_row.sum())
        return value + SHRINKAGE * (parameters[:-1] ** 2).sum(), gradient

    found = minimize(loss, np.zeros(columns.shape[1] + 1), jac=True, method="L-BFGS-B").x
    found *= SHARPNESS
    return replace(start, slopes=found[:-1].reshape(slopes.shape), constant=float(found[-1]))


class Judged(NamedTuple):
    """What was chosen for an image."""

    image: Measured
    chosen: int
    probability: float
    log_probability: float
    """Of the true number."""
    ari: tuple[float, ...]
    """Of the chosen level, of that with the true number, of the best, and of the leaves relabelled."""

    @property
    def is_right(self) -> bool:
        return self.chosen == self.image.number


def without_each_source(images: Sequence[Measured]) -> Iterator[tuple[str, PairTable]]:
    """Fit a table without each source."""
    for source in sorted({image.source for image in images}):
        yield source, fit([image for image in images if image.source != source])


def judge(images: Sequence[Measured], table: PairTable) -> Iterator[Judged]:
    """Choose the number of every image."""
    for image in images:
        selection = choose_number(image.tree, image.k_min, table)
        each = image.scores()
        k = selection.chosen
        true, leaves = each[min(image.number, len(each)) - 1], rand(image.table, image.table.argmax(axis=1))
        log_true = float(np.log(selection.probability(min(image.number, len(each)))))
        yield Judged(image, k, selection.probability(k), log_true, (each[k - 1], true, each.max(), leaves))


def judged_apart(images: Sequence[Measured]) -> list[Judged]:
    """Choose the number of every image with a table that was fitted without its source."""
    apart = without_each_source(images)
    return [each for name, table in apart for each in judge([i for i in images if i.source == name], table)]


def print_curve(images: Sequence[Measured]) -> None:
    """Print how the choice gets better with more images to learn from, the sources left out."""
    print("\nlearned from part of the images, each source judged without it; means over the sources:")
    table = Table([("images", 7), ("right", 6), ("ARI", 6), ("log P", 7), ("worst", 6), ("source", -14)])
    for part in (16, 8, 4, 2, 1):
        means = defaultdict(list)
        for name in sorted({image.source for image in images}):
            others = [image for image in images if image.source != name][::part]
            judged = list(judge([image for image in images if image.source == name], fit(others)))
            means["right"].append(np.mean([each.is_right for each in judged]))
            means["ARI"].append(np.mean([each.ari[0] for each in judged]))
            means["log P"].append(np.mean([each.log_probability for each in judged]))
        worst = int(np.argmin(means["right"]))
        name = sorted({image.source for image in images})[worst]
        row = [float(np.mean(values)) for values in means.values()]
        table.row(len(images) // part, *row, float(means["right"][worst]), name)


def calibration_error(judged: Sequence[Judged]) -> float:
    """Mean distance of what was stated from what was right, in up to five groups of like probability."""
    stated = np.array([each.probability for each in judged])
    right = np.array([each.is_right for each in judged])
    groups = np.array_split(np.argsort(stated), max(1, min(5, len(judged) // 10)))
    return sum(abs(stated[group].mean() - right[group].mean()) * len(group) for group in groups) / len(judged)


def print_judged(judged: Sequence[Judged]) -> None:
    """Print a row for each kind of images of each source, and one for each source."""
    rows: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for each in judged:
        rows[each.image.source, each.image.kind].append(each)
        rows[each.image.source, "all"].append(each)
    print(LEGEND + "\n")
    table = Table(COLUMNS)
    for (source, kind), group in sorted(rows.items()):
        off = np.array([abs(each.chosen - each.image.number) for each in group])
        table.row(
            source,
            kind,
            len(group),
            float(np.mean(off == 0)),
            float(np.mean(off <= 1)),
            *np.mean([each.ari for each in group], axis=0).tolist(),
            float(np.mean([each.chosen == 1 for each in group])),
            float(np.mean([each.probability for each in group])),
            calibration_error(group) if kind == "all" else None,
        )


def print_summary(judged: Sequence[Judged], shipped: Sequence[Judged]) -> None:
    """Print means over the sources and the worst of them by number, beside the table as shipped."""
    print("\nby number of textures: means over the sources, the worst source, and the means as shipped:")
    table = Table(
        [("kind", -13), ("n", 5), ("right", 6), ("ARI", 6), ("worst", 6), ("source", -14), ("shipped", 7)]
    )
    for kind in sorted({each.image.kind for each in judged}):
        right = _by_source([each for each in judged if each.image.kind == kind], lambda each: each.is_right)
        ari = _by_source([each for each in judged if each.image.kind == kind], lambda each: each.ari[0])
        before = _by_source([each for each in shipped if each.image.kind == kind], lambda each: each.is_right)
        worst = min(right, key=lambda name: right[name])
        n = sum(each.image.kind == kind for each in judged)
        means = [float(np.mean([*values.values()])) for values in (right, ari, before)]
        table.row(kind, n, means[0], means[1], right[worst], worst, means[2])


def _by_source(judged: Sequence[Judged], value: Callable[[Judged], float]) -> dict[str, float]:
    values = defaultdict(list)
    for each in judged:
        values[each.image.source].append(value(each))
    return {source: float(np.mean(own)) for source, own in values.items()}


def written(table: PairTable, n_images: int) -> str:
    """The table as text, one piece of evidence a line."""
    columns = {name: getattr(table, name).T for name in ("low", "high", "mean", "spread", "knots", "slopes")}
    lines = []
    for i, name in enumerate(EVIDENCE):
        values = {key: np.round(column[i], 4).tolist() for key, column in columns.items()}
        lines.append(f"    {json.dumps(name)}: {json.dumps(values)}")
    about = f"log-odds of two textures, learned by benchmarks/learn_number.py from {n_images} images"
    head = (
        f'  "about": {json.dumps(about)},\n  "constant": {table.constant:.4f},\n  "doubt": {table.doubt},\n'
    )
    return "{\n" + head + '  "evidence": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the data, see README")
    parser.add_argument("--cache", type=Path, required=True, help="folder for what was measured")
    parser.add_argument("--mosaics", type=int, default=400, help="from each folder of textures")
    parser.add_argument("--minutes", type=float, help="only measure, for so long; the next run goes on")
    parser.add_argument("--measured", action="store_true", help="only what is in the cache")
    parser.add_argument("--curve", action="store_true", help="also learn from parts of the images")
    parser.add_argument("--write", action="store_true", help=f"the table of all images to {SHIPPED.name}")
    options = parser.parse_args(arguments)
    limit_threads(1)
    options.cache.mkdir(parents=True, exist_ok=True)
    every = list(numbered(options.data, options.mosaics))
    if options.measured:
        every = [image for image in every if place(options.cache, image).exists()]
    images, end = [], time.monotonic() + 60 * (options.minutes or np.inf)
    for image in every:
        images.append(measured(image, options.cache))
        if time.monotonic() > end:
            break
    if options.minutes:
        print(f"measured {len(images)} of {len(every)} images")
        return
    judged = judged_apart(images)
    print_judged(judged)
    print_summary(judged, list(judge(images, shipped_table())))
    if options.curve:
        print_curve(images)
    if options.write:
        SHIPPED.write_text(written(fit(images), len(images)))


if __name__ == "__main__":
    main()
