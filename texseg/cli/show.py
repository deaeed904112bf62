"""Do the work and report the outcomes on the terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from texseg.cli.batch import fit_shared, run, write_report
from texseg.cli.inputs import Input
from texseg.cli.outputs import in_words
from texseg.cli.parts import can_resume, parts_of
from texseg.cli.prepare import fail
from texseg.cli.process import Outcome, Work, reason_of
from texseg.cli.reading import ReadOptions
from texseg.cli.terminal import say
from texseg.progress import ProgressBar
from texseg.threads import one_blas_thread

if TYPE_CHECKING:
    from texseg.segmenter import Segmenter


_INDEX = "texseg_reports.html"


def fit_and_show(
    items: Sequence[Input],
    reading: ReadOptions,
    parameters: dict[str, Any],
    quiet: bool,
    n_jobs: int | None = None,
) -> Segmenter:
    """Fit one model to the inputs; warnings are printed, a failure ends the command.

    The number chosen is said here, since it is that of all inputs together: the model forgets its odds.
    """
    with warnings.catch_warnings(record=True) as caught, one_blas_thread(), ProgressBar(hidden=quiet) as bar:
        warnings.simplefilter("always")
        try:
            model = fit_shared(items, reading, parameters, None if bar.hidden else bar, n_jobs)
        except (OSError, ValueError, TypeError, MemoryError) as error:
            fail(reason_of(error))
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        say(f"note: {message}", err=True)
    if (choice := in_words(vars(model).pop("selection_", None))) and not quiet:
        click.echo(choice)
    model.callback = None
    return model


def run_and_show(items: Sequence[Input], work: Work, options: dict[str, Any]) -> NoReturn:
    """Process all inputs, print the outcome of each, and end with the exit code."""
    order = {item.path: i for i, item in enumerate(items)}
    outcomes: list[Outcome] = []
    quiet = options["quiet"]
    with one_blas_thread(), ProgressBar(len(items), hidden=quiet) as bar:
        try:
            with closing(run(items, work, options["jobs"], None if bar.hidden else bar)) as coming:
                for outcome in coming:
                    bar.step()
                    outcomes.append(outcome)
                    _show_outcome(outcome, quiet, with_table=len(items) == 1)
                    if outcome.status == "failed" and options["on_error"] == "stop":
                        break
        except KeyboardInterrupt as interruption:
            if any(can_resume(parts_of(item, work.writing.folder)) for item in items):
                interruption.add_note("the same command with --resume goes on from here")
            raise
        finally:
            outcomes.sort(key=lambda outcome: order[outcome.input])
            if options["summary"] is not None:
                _write(write_report, options["summary"], outcomes)
    if len(items) > 1:
        _write_index(work.writing.folder, outcomes)
    if len(items) > 1 and not quiet:
        click.echo(_summary(outcomes, len(items)))
    sys.exit(int(any(outcome.status == "failed" for outcome in outcomes)))


def _write(write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
    """Write a file about the whole run, or end with the reason why that failed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content)
    except OSError as error:
        fail(reason_of(error))


def _write_index(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the index of the reports, if there are any."""
    entries = [outcome.report for outcome in outcomes if outcome.report is not None]
    if entries:
        from texseg.report import write_index

        _write(write_index, folder / _INDEX, entries)


def _summary(outcomes: Sequence[Outcome], n_items: int) -> str:
    counts = {status: sum(o.status == status for o in outcomes) for status in ("done", "failed", "skipped")}
    parts = [f"{counts['done']} done", f"{counts['failed']} failed"]
    if counts["skipped"]:
        parts.append(f"{counts['skipped']} skipped")
    if len(outcomes) < n_items:
        parts.append(f"{n_items - len(outcomes)} not begun")
    return ", ".join(parts)


def _show_outcome(outcome: Outcome, quiet: bool, with_table: bool) -> None:
    for message in outcome.messages:
        say(f"note: {outcome.input}: {message}", err=True)
    if outcome.status == "failed":
        say(f"failed: {outcome.input}: {outcome.reason}", err=True)
    elif quiet:
        return
    elif outcome.status == "skipped":
        say(f"{outcome.input}: skipped, {outcome.reason}")
    else:
        height, width = outcome.shape
        number = f"{outcome.n_segments} segment" + ("" if outcome.n_segments == 1 else "s")
        if not with_table and outcome.sure.probability is not None:
            number += f" ({outcome.sure.probability:.0%})"
            if outcome.n_segments > 1 and (outcome.sure.single_texture or 0) >= 0.5:
                number += f", rather a single texture ({outcome.sure.single_texture:.0%})"
        if {row.name for row in outcome.rows} == {"unknown"}:
            number = "all unknown"
        size = f"{width} x {height}, {number}, {outcome.seconds:.1f} s"
        say(f"{outcome.input}: {size}, results in {outcome.outputs[0].parent}")
        if with_table:
            if outcome.choice:
                click.echo(outcome.choice)
            _show_table(outcome)


def _show_table(outcome: Outcome) -> None:
    click.echo(f"{'label':>5} {'pixels':>12} {'share':>7}")
    for row in outcome.rows:
        say(f"{row.label:>5} {row.pixels:>12,} {100 * row.fraction:>6.1f}%  {row.name}".rstrip())
