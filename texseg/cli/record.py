"""The record beside the results of an input: what they were made from, with what, and what came out.

The record (``*_run.json``) is written last and removed first: if it exists, the results are complete. Nothing
in it changes between identical runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import texseg
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


def write_record(
    path: Path, input_path: Path, made: Mapping[str, Any], outputs: list[Path], result: Mapping[str, Any]
) -> None:
    """Write the record of an input, whose `outputs` are in the same folder."""
    record = {
        "input": shown(input_path),
        "made_from": made,
        "outputs": [shown(output.name) for output in outputs],
        "result": result,
    }
    atomic_write(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def remove_record(path: Path) -> None:
    """Remove the record, and with it the claim that the results are complete."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def recorded_result(path: Path, made: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result in the record of an input, if it was made from exactly the same."""
    try:
        record = json.loads(path.read_bytes())
        return dict(record["result"]) if record["made_from"] == made else None
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that was damaged
        return None
