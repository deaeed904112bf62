"""The record beside the results of an input: what they were made from, with what, and what came out.

The record (``*_run.json``) is written last and removed first: if it exists, the results are complete;
meanwhile it lies beside them under a hidden name, so that a later run knows them even if this one is ended.
Nothing in it changes between identical runs. It holds the digest of every file, by which a later run knows
what of an earlier one may be removed: only what texseg wrote and nobody changed since.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import texseg
from texseg.cli.inputs import OUTPUT_KINDS
from texseg.cli.reading import ReadOptions
from texseg.cli.terminal import shown
from texseg.io.atomic import atomic_write

if TYPE_CHECKING:
    from texseg.segmenter import Segmenter

_NO_MATTER = ("max_pixels", "memory")  # decide whether and how results are made, not what they are


def digest_of(path: Path) -> str:
    """SHA-256 of a file; for a folder, of the names, sizes and times of its files."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        states = [(str(file.relative_to(path)), file.stat()) for file in files]
        told = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_model(model: Segmenter) -> str:
    """SHA-256 of the file that a model would be saved to."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return digest_of(Path(folder) / "model")


def made_from(path: Path, reading: ReadOptions, mask: Path | None, work: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the results of an input depend on; `work` holds what is common to all inputs."""
    read = {name: value for name, value in asdict(reading).items() if name not in _NO_MATTER}
    made = {
        "texseg": texseg.__version__,
        "input_sha256": digest_of(path),
        **read,
        "mask": None if mask is None else digest_of(mask),
        **work,
    }
    return json.loads(json.dumps(made, default=str), parse_constant=str)


class Earlier(NamedTuple):
    """What an earlier run left beside the results that are written now."""

    made: Mapping[str, Any]
    """What all results are made from."""
    outputs: Mapping[str, str]
    """Digests, by name, of files that were made from the same, and stay."""
    result: Mapping[str, Any]
    messages: tuple[str, ...]
    """What was removed, and what was not, in words."""


def replace_earlier(
    path: Path, input_path: Path, made: Mapping[str, Any], planned: Collection[Path]
) -> Earlier:
    """Remove a record, and the results it names that would contradict those that are written now.

    Results made from the same stay, such as labels beside a report that is written later. Of others, what is
    not in `planned` is removed, if it is as texseg wrote it.
    """
    withdrawn = _withdrawn(path)
    record = _read(path) or _read(withdrawn)
    if record:
        # what it was made from is not kept: this run may have written some of its files anew
        atomic_write(withdrawn, json.dumps({**record, "made_from": None}).encode())
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    names = {output.name for output in planned}
    others = {name: digest for name, digest in _outputs_in(record, path).items() if name not in names}
    before = record.get("made_from")
    only_report = all(output.suffix in (".html", ".htm") for output in planned if output != path)
    if only_report and isinstance(before, dict):  # a report has no such option
        made = {**made, "pixel_size": before.get("pixel_size")}
    if before == made:
        return Earlier(made, others, record["result"], ())
    unchanged = [name for name, digest in others.items() if _digest_of_output(path.with_name(name)) == digest]
    for name in unchanged:
        _remove(path.with_name(name))
    messages = []
    of_another = isinstance(before, dict) and before.get("input_sha256") != made.get("input_sha256")
    if of_another and record.get("input") != shown(input_path):
        messages.append(f"results of another image, {record.get('input')}, had these names and are replaced")
    if unchanged:
        messages.append(f"results of an earlier run were removed: {', '.join(unchanged)}")
    messages += [
        f"{name} is of an earlier run but was changed since; it stays, and does not belong to these results"
        for name in others
        if path.with_name(name).exists()
    ]
    return Earlier(made, {}, {}, tuple(messages))


def _withdrawn(path: Path) -> Path:
    """Where a record lies while results are written, for the next run should this one be ended."""
    return path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.part")


def write_record(
    path: Path, input_path: Path, earlier: Earlier, outputs: list[Path], result: Mapping[str, Any]
) -> None:
    """Write the record of an input, whose `outputs` are in the same folder."""
    record = {
        "input": shown(input_path),
        "made_from": earlier.made,
        "outputs": {
            **{shown(output.name): _digest_of_output(output) for output in outputs},
            **earlier.outputs,
        },
        "result": {**earlier.result, **result},
    }
    atomic_write(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    _withdrawn(path).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """Read a record; an empty one where there is none, or it was damaged."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("result"), dict) else {}


def _outputs_in(record: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Digests in a record by the names of files; whatever texseg would not call a result is left out."""
    outputs = record.get("outputs")
    stem = path.name.removesuffix("_run.json")
    of_this = re.compile(rf"{re.escape(stem)}(_\d+)?_({'|'.join(OUTPUT_KINDS)})\.\w+")
    return {
        name: digest
        for name, digest in (outputs.items() if isinstance(outputs, dict) else ())
        if of_this.fullmatch(name) and path.with_name(name).exists()
    }


def _digest_of_output(path: Path) -> str:
    """SHA-256 of the content of a file, or of all files of a zarr array."""
    if not path.is_dir():
        return digest_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    told = [(str(file.relative_to(path)), digest_of(file)) for file in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def recorded_result(path: Path, made: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result in the record of an input, if it was made from exactly the same."""
    record = _read(path)
    return record["result"] if record.get("made_from") == made else None
