"""How right the segmentations are: python benchmarks/accuracy.py DATA [--sets outex,rwtd ...].

One row for each suite, number of segments given or chosen, and method, printed when it is ready; below the
table the fields of real images, sources of mosaics and sizes of rare classes one by one.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import cv2
import matplotlib
import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import worst
from benchmarks.datasets import SUITES, Case
from benchmarks.levels import Levels, levels, trees_of
from benchmarks.measure import Table, limit_threads, machine, timed
from benchmarks.peers import PEERS, SIMPLE
from benchmarks.prague import PragueScore, score
from texseg import TextureSegmenter
from texseg.metrics import Reliability, adjusted_rand_index, match_labels, reliability

COLUMNS = [
    ("set", -12),
    ("number", -7),
    ("method", -22),
    ("n", 4),
    ("CO", 6),
    ("CO med", 6),
    ("worst", 6),
    ("<.80", 5),
    ("CS", 6),
    ("ARI", 6),
    ("ARImed", 6),
    ("VI", 6),
    ("F 5px", 6),
    ("BDE", 6),
    ("right", 6),
    ("+-1", 6),
    ("CPU s", 7),
    ("leaves", 6),
    ("best", 6),
    ("true", 6),
    ("level", 6),
]
FIELDS = ("real", "real_more", "equalised", "rare")
"""Suites whose names begin with a field, a source, or the share of the image that a rare class covers."""
AS_GOOD_AS_FOUND = 0.7  # overlap with the true region from which on a rare class counts as found
LEGEND = (
    "CO, ARI, VI (bits), F 5px, BDE (px): means; med: median; CS at k = .75; <.80: share of images with CO"
    " below it; right, +-1: share with the right number of segments, and within one of it;"
    " CPU s: median an image. On cells, where a tree was merged down, ARI of its leaves relabelled by the"
    " truth, of its best level, of that with the true number, and of that with the number answered."
)
PUBLISHED = {
    "outex": [
        ("given", "PCA-MS", 100, 0.892, 0.953, None, 0.20, 0.806, 0.817, None, 0.750, 0.628),
        ("given", "FSEG*", 100, 0.892, 0.945, None, 0.26, 0.852, 0.819, None, 0.801, 0.570),
        ("given", "k-means, loc. spectra", 100, 0.775, 0.748, None, 0.57, 0.600, 0.645, None, 1.387, 0.369),
        ("chosen", "FSEG*", 100, 0.804, *[None] * 9, 0.35),
        ("chosen", "FSEG", 100, 0.650, 0.589, None, 0.88, 0.458, 0.546, None, 1.227, 0.422, None, 0.10),
    ],
    "rwtd": [
        ("chosen", "TextureSAM", 256, *[None] * 5, 0.62),
        ("chosen", "SAM-2", 256, *[None] * 5, 0.36),
    ],
}
"""What others reached on the same suites (all images of the suite), in the columns from `number` on."""


class Method(NamedTuple):
    """One way to segment, by name: ours with its parameters, or a peer."""

    name: str
    parameters: dict
    """For `TextureSegmenter`; empty for a peer."""


class Outcome(NamedTuple):
    """One image, segmented."""

    name: str
    score: PragueScore
    overlap: float
    """Of the smallest region of the truth with the segment that fits it best: intersection over union."""
    seconds: float
    labels: NDArray[np.int32] | None = None
    """None from the cache."""
    free_energy: float = np.nan
    reliability: Reliability | None = None
    levels: Levels | None = None
    confidence: float = np.nan
    """Mean stated probability of the labels of the judged pixels."""


class Task(NamedTuple):
    """All that a worker process needs to make an `Outcome`."""

    data: Path
    suite: str
    case: str
    method: Method
    is_given: bool
    is_calibrated: bool = False
    scale: float = 1.0
    """Factor on the sides of the image."""


def scaled(case: Case, factor: float) -> Case:
    """Resize an image and its truth."""
    if factor == 1:
        return case
    size = [round(side * factor) for side in case.truth.shape[::-1]]
    image = cv2.resize(case.image, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC)
    truth = cv2.resize(case.truth.astype(np.int16), size, interpolation=cv2.INTER_NEAREST)
    return case._replace(image=image, truth=truth)


def run(task: Task) -> Outcome:
    """Segment one case and score it."""
    case = scaled(SUITES[task.suite].load(task.data, task.case), task.scale)
    n_segments = case.n_segments if task.is_given else None
    if not task.method.parameters:
        labels, seconds = timed(lambda: PEERS[task.method.name](case.image, n_segments))
        return _outcome(task, case, labels, seconds)
    model = TextureSegmenter(n_segments, channel_axis=case.channel_axis, **task.method.parameters)
    with warnings.catch_warnings(), trees_of() as trees:
        warnings.simplefilter("ignore")  # fewer segments found than asked for: the scores show it
        _, seconds = timed(lambda: model.fit(case.image))
    truth = np.unique(case.truth, return_inverse=True)[1].reshape(case.truth.shape)
    truth += case.ignore_label is None or case.ignore_label not in case.truth
    judged = truth > 0
    return _outcome(task, case, model.labels_, seconds)._replace(
        free_energy=model.history_[-1].free_energy,
        reliability=_calibration(model, case) if task.is_calibrated else None,
        levels=levels(trees[0], truth, int(model.labels_.max())) if trees and not task.is_given else None,
        confidence=float(model.confidence_[judged].mean()),
    )


def _outcome(task: Task, case: Case, labels: NDArray, seconds: float) -> Outcome:
    found = score(labels, case.truth, case.ignore_label)
    return Outcome(task.case, found, _overlap(labels, case), seconds, labels)


def _overlap(labels: NDArray[np.integer], case: Case) -> float:
    """Give the best intersection over union of a segment with the smallest region of the truth."""
    judged = np.ones(labels.shape, bool) if case.ignore_label is None else case.truth != case.ignore_label
    values, sizes = np.unique(case.truth[judged], return_counts=True)
    region, found = case.truth[judged] == values[sizes.argmin()], labels[judged]
    shared = np.bincount(found[region], minlength=found.max() + 1)
    return float(np.max(shared / (np.bincount(found) + region.sum() - shared)))


def _calibration(model: TextureSegmenter, case: Case) -> Reliability:
    """Compare the stated probability of each pixel's label with how often it is right."""
    probabilities = model.predict_proba(case.image)
    stated = np.take_along_axis(probabilities, model.labels_[..., None] - 1, axis=-1)[..., 0]
    is_right = match_labels(model.labels_, case.truth, case.ignore_label) == case.truth
    judged = np.ones(is_right.shape, bool) if case.ignore_label is None else case.truth != case.ignore_label
    return reliability(np.clip(stated[judged], 0, 1), is_right[judged])


def kept(tasks: Sequence[Task], options: argparse.Namespace) -> list[Outcome]:
    """Run the tasks of one method; with --scores, write what it reached, and read what peers have reached."""
    if options.scores is None:
        return list(outcomes(tasks, options.jobs))
    number = "given" if tasks[0].is_given else "chosen"
    path = options.scores / f"{tasks[0].suite}-{number}-{tasks[0].method.name.replace(' ', '-')}.json"
    is_ours = bool(tasks[0].method.parameters)
    known = json.loads(path.read_text()) if path.exists() and not is_ours else {}
    missing = [task for task in tasks if task.case not in known]
    results = {result.name: result for result in outcomes(missing, options.jobs)} if missing else {}
    for name, each in results.items():
        values = each.score._asdict() | {"overlap": each.overlap, "seconds": each.seconds}
        if is_ours:
            values |= {"confidence": each.confidence} | (each.levels._asdict() if each.levels else {})
        known[name] = {key: round(float(value), 5) for key, value in values.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=0))
    return [results[t.case] if t.case in results else _read(t.case, known[t.case]) for t in tasks]


def _read(name: str, values: dict[str, float]) -> Outcome:
    score_of_peer = PragueScore(**{key: values[key] for key in PragueScore._fields})  # type: ignore[arg-type]
    return Outcome(name, score_of_peer, values["overlap"], values["seconds"])


def outcomes(tasks: Sequence[Task], n_jobs: int) -> Iterator[Outcome]:
    """Run the tasks, on several processes if asked."""
    if n_jobs == 1:
        yield from map(run, tasks)
        return
    with ProcessPoolExecutor(n_jobs, initializer=limit_threads, initargs=(1,)) as pool:
        yield from pool.map(run, tasks)


def summary(results: Sequence[Outcome]) -> tuple:
    """Summarise the outcomes of a suite, in the columns of the table from `n` on."""
    columns = zip(*(result.score for result in results), strict=True)
    scores = dict(zip(PragueScore._fields, map(np.array, columns), strict=True))
    off = np.abs(scores["n_segments"] - scores["n_regions"])
    means = [float(scores[name].mean()) for name in ("cs", "ari")]
    return (
        len(results),
        float(scores["co"].mean()),
        float(np.median(scores["co"])),
        float(scores["co"].min()),
        float(np.mean(scores["co"] < 0.8)),
        *means,
        float(np.median(scores["ari"])),
        *(float(scores[name].mean()) for name in ("dvi", "boundary_f", "bde")),
        float(np.mean(off == 0)),
        float(np.mean(off <= 1)),
        float(np.median([result.seconds for result in results])),
        *(np.mean([r.levels for r in results if r.levels], axis=0).tolist() if results[0].levels else ()),
    )


def pooled(tables: Sequence[Reliability]) -> Reliability:
    """Put the reliability tables of several images together."""
    n = np.sum([table.n for table in tables], axis=0)
    sums = [
        np.nansum([getattr(table, field) * table.n for table in tables], axis=0)
        for field in ("confidence", "accuracy")
    ]
    confidence, accuracy = (np.divide(s, n, out=np.full(len(n), np.nan), where=n > 0) for s in sums)
    error = float(np.abs(sums[0] - sums[1]).sum() / n.sum())
    return Reliability(tables[0].edges, n, confidence, accuracy, error)


def print_calibration(title: str, table: Reliability) -> None:
    """Print a reliability table and its calibration error."""
    print(f"\nreliability, {title}: calibration error {table.calibration_error:.4f}")
    rows = Table([("confidence", 11), ("share", 7), ("stated", 7), ("right", 7)])
    for low, high, n, stated, right in zip(
        table.edges, table.edges[1:], table.n, table.confidence, table.accuracy, strict=False
    ):
        if n:
            rows.row(f"{low:.1f}-{high:.1f}", n / table.n.sum(), stated, right)


def by_field(results: Sequence[Outcome], value: Callable[[Outcome], float]) -> dict[str, float]:
    """Mean of a value over each field, lowest first: one default must serve them all."""
    fields: dict[str, list[float]] = {}
    for result in results:
        fields.setdefault(result.name.split("/")[0], []).append(value(result))
    means = sorted((float(np.mean(values)), field) for field, values in fields.items())
    return {field: mean for mean, field in means}


def print_fields(suite: str, number: str, every: dict[str, Sequence[Outcome]]) -> None:
    """Print how the methods compare on the fields of a suite."""
    values: list[tuple[str, Callable[[Outcome], float]]] = [("ARI", lambda r: r.score.ari)]
    if suite == "rare":
        values = [("overlap", lambda r: r.overlap), ("found", lambda r: r.overlap >= AS_GOOD_AS_FOUND)]
    for name, results in every.items():
        more = [] if name in PEERS else [("confidence - right", lambda r: r.confidence - r.score.co)]
        for title, value in values + more:
            means = by_field(results, value)
            text = ", ".join(f"{field} {mean:.3f}" for field, mean in means.items())
            print(
                f"{suite}, {number}, {name}, {title}: {text}; mean of fields {np.mean([*means.values()]):.3f}"
            )
        least = min(results, key=lambda result: result.score.ari)
        print(f"{suite}, {number}, {name}, worst ARI: {least.score.ari:.3f} ({least.name})")


def print_wins(suite: str, number: str, every: dict, simple: Sequence[Sequence[Outcome]]) -> None:
    """Print on how many images and fields ours is at least as good as the best simple peer, by ARI."""
    best = np.max([[result.score.ari for result in results] for results in simple], axis=0)
    rivals = [by_field(results, lambda r: r.score.ari) for results in simple]
    for name, ours in every.items():
        if name in PEERS:
            continue
        wins = [result.score.ari >= peer for result, peer in zip(ours, best, strict=True)]
        fields = by_field(ours, lambda r: r.score.ari)
        above = sum(fields[field] > max(rival[field] for rival in rivals) for field in fields)
        print(
            f"{suite}, {number}, {name}: ARI at least that of the best of {', '.join(SIMPLE)} on"
            f" {np.mean(wins):.0%} of images (the best for each image: {best.mean():.3f}), above the best of"
            f" them in the mean on {above} of {len(fields)} fields"
        )


def write_worst(
    suite: str, number: str, name: str, results: Sequence[Outcome], options: argparse.Namespace
) -> None:
    """Draw the worst images with truth, labels and errors, side by side."""
    path = options.out / f"{suite}_{number}_{name.replace(' ', '_')}.png"
    with_labels = [result for result in results if result.labels is not None]
    chosen = sorted(with_labels, key=lambda result: result.score.co)[: options.worst]
    if not chosen:
        return
    drawn = [_drawn(SUITES[suite].load(options.data, r.name), r) for r in chosen]
    figure = worst.worst_cases(drawn, options.worst)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _drawn(case: Case, result: Outcome) -> worst.Case:
    truth = np.unique(case.truth, return_inverse=True)[1].reshape(case.truth.shape) + 1
    name = f"{case.name}: ARI {result.score.ari:.3f}, {result.score.n_segments} of {case.n_segments}"
    return worst.Case(name, case.image, result.labels, truth)


def print_stability(data: Path, suite: str, names: Sequence[str], options: argparse.Namespace) -> None:
    """Print the mean ARI between the label maps of several seeds, image by image."""
    runs = []
    for seed in range(options.seeds):
        method = Method("texseg default", {"random_state": seed})
        tasks = [Task(data, suite, name, method, True) for name in names]
        runs.append([result.labels for result in outcomes(tasks, options.jobs)])
    agreement = [
        np.mean([adjusted_rand_index(a, b) for a, b in combinations(maps, 2)])
        for maps in zip(*runs, strict=True)
    ]
    worst = f"{np.min(agreement):.4f} ({names[np.argmin(agreement)]})"
    print(f"{suite}: ARI between {options.seeds} seeds, mean {np.mean(agreement):.4f}, worst image {worst}")


def methods(options: argparse.Namespace, is_given: bool) -> list[Method]:
    """List what is to be run; peers need the number."""
    ours = [Method(f"texseg {preset}", {"preset": preset, "random_state": 0}) for preset in options.presets]
    for text in options.changes:
        name, _, value = text.partition("=")
        with suppress(ValueError, SyntaxError):  # what is not a number or the like is text
            value = ast.literal_eval(value)
        ours.append(Method(f"texseg {text}", {name: value, "random_state": 0}))
    return ours + ([Method(peer, {}) for peer in options.peers] if is_given else [])


def _names(text: str, allowed: Sequence[str], flag: str) -> list[str]:
    chosen = [] if text == "none" else text.split(",")
    for name in chosen:
        if name not in allowed:
            raise SystemExit(f"{flag}: {name!r} is not one of {', '.join(allowed)}")
    return chosen


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with outex, prague_gray, rwtd, brodatz, fabrics, ...")
    parser.add_argument("--sets", default=",".join(SUITES), help="comma-separated, of: " + ", ".join(SUITES))
    parser.add_argument("--number", default="given,chosen", help="given, chosen, or both")
    parser.add_argument("--presets", default="default,plain", help="of default, plain; or none")
    parser.add_argument(
        "--changes", nargs="+", default=[], help="rows of the default with model=smm, log=False ..."
    )
    parser.add_argument("--scale", type=float, default=1, help="factor on the sides of all images")
    parser.add_argument("--peers", default=",".join(PEERS), help="of " + ", ".join(PEERS) + "; or none")
    parser.add_argument(
        "--scores", type=Path, help="folder for scores by image; peers found there are not rerun"
    )
    parser.add_argument("--limit", type=int, help="only the first so many images of each set")
    parser.add_argument("--every", type=int, default=1, help="only every so manieth image of each set")
    parser.add_argument("--jobs", type=int, default=1, help="processes, with one thread each; 1: two threads")
    parser.add_argument("--calibration", action="store_true", help="also reliability tables")
    parser.add_argument("--seeds", type=int, default=0, help="also the agreement between so many seeds")
    parser.add_argument("--worst", type=int, default=0, help="draw so many of the worst images of each row")
    parser.add_argument("--out", type=Path, default=Path("worst"), help="folder for the drawings")
    options = parser.parse_args(arguments)
    options.sets = _names(options.sets, list(SUITES), "--sets")
    options.number = _names(options.number, ["given", "chosen"], "--number")
    options.presets = _names(options.presets, ["default", "plain"], "--presets")
    options.peers = _names(options.peers, list(PEERS), "--peers")
    return options


def print_suite(table: Table, suite: str, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Print the rows of a suite; yield what is to be printed below the table."""
    names = SUITES[suite].names(options.data)[:: options.every][: options.limit]
    simple: list[Sequence[Outcome]] = []  # with the number given; chosen ones are held against them, too
    for number in options.number if SUITES[suite].is_number_given else ["chosen"]:
        is_given = number == "given"
        every: dict[str, Sequence[Outcome]] = {}
        for method in methods(options, is_given):
            is_calibrated = options.calibration and bool(method.parameters)
            how = (method, is_given, is_calibrated, options.scale)
            tasks = [Task(options.data, suite, name, *how) for name in names]
            every[method.name] = kept(tasks, options)
            if options.worst:
                write_worst(suite, number, method.name, every[method.name], options)
            table.row(suite, number, method.name, *summary(every[method.name]))
            if method.parameters:
                yield from _of_ours(f"{suite}, {number}, {method.name}", every[method.name], options)
        if suite in FIELDS:
            yield partial(print_fields, suite, number, every)
        simple = [every[peer] for peer in SIMPLE if peer in every] or simple
        if len(simple) == len(SIMPLE):
            yield partial(print_wins, suite, number, every, simple)
    for number, name, *rest in PUBLISHED.get(suite, []):
        if number in options.number and options.peers:
            table.row(suite, number, f"({name})", *rest)


def _of_ours(
    title: str, results: Sequence[Outcome], options: argparse.Namespace
) -> Iterator[Callable[[], None]]:
    tables = [result.reliability for result in results if result.reliability is not None]
    if tables:
        yield partial(print_calibration, title, pooled(tables))
    if any("model=" in change for change in options.changes):
        energy = float(np.mean([result.free_energy for result in results]))
        yield partial(print, f"free energy, {title}: {energy:.6g}")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    n_threads = 2 if options.jobs == 1 else 1
    limit_threads(n_threads)
    matplotlib.use("agg")
    print(machine(n_threads))
    print(LEGEND + " In parentheses: published, on all images of the suite.\n")
    table = Table(COLUMNS)
    below: list[Callable[[], None]] = []
    for suite in options.sets:
        below.extend(print_suite(table, suite, options))
    for show in below:
        show()
    for suite in options.sets if options.seeds else []:
        if SUITES[suite].is_number_given:
            print_stability(
                options.data,
                suite,
                SUITES[suite].names(options.data)[:: options.every][: options.limit],
                options,
            )


if __name__ == "__main__":
    main()
