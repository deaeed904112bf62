"""A hidden folder in which a long run keeps what is done, so that it can resume after an interruption."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from texseg.blocks import BlockReading
from texseg.cli.inputs import Input
from texseg.io.atomic import atomic_write
from texseg.pixels.joining import BlockParts
from texseg.segmenter import Segmenter

_PLAN, _MODEL = "plan.json", "model.texseg"
_EDGES = ("top", "bottom", "left", "right")
_OPTIONAL = ("strange", "confidence", "preview", "small", "of_small")


class PartsFolder(MutableMapping[tuple[int, int], BlockReading]):
    """Blocks of an image that have been read, each in a file that exists whole or not at all.

    Results lie in it as well until they are complete, so that a run that is killed leaves nothing elsewhere.

    Parameters
    ----------
    folder : Path
        Created if needed.
    plan : dict
        Everything that the blocks depend on, as plain data. What another plan left in the folder is removed.
    resume : bool
        Keep what the same plan left there.
    """

    def __init__(self, folder: Path, plan: dict[str, Any], resume: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plan, sort_keys=True)
        saved = folder / _PLAN
        self.resumed = resume and saved.exists() and saved.read_text(encoding="utf-8") == text
        if not self.resumed:
            self._clear()
            atomic_write(saved, text.encode())

    def model(self) -> Segmenter | None:
        """Return the model that was fitted before, if there is one."""
        path = self.folder / _MODEL
        return Segmenter.load(path) if path.exists() else None

    def keep_model(self, model: Segmenter) -> Segmenter:
        """Save a model, and return it as it will be read again."""
        path = self.folder / _MODEL
        model.save(path)
        return Segmenter.load(path)

    def remove(self) -> None:
        """Remove the folder when all is done."""
        self._clear()
        self.folder.rmdir()

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir() and path.suffix == ".part":
                shutil.rmtree(path)
            elif path.name in (_PLAN, _MODEL) or path.suffix in (".npz", ".part"):
                path.unlink()

    def _path(self, place: tuple[int, int]) -> Path:
        return self.folder / f"{place[0]}_{place[1]}.npz"

    def __contains__(self, place: object) -> bool:
        return isinstance(place, tuple) and self._path(place).exists()

    def __getitem__(self, place: tuple[int, int]) -> BlockReading:
        try:
            with np.load(self._path(place), allow_pickle=False) as saved:
                arrays = dict(saved)
        except FileNotFoundError:
            raise KeyError(place) from None
        edges = tuple(arrays.pop(edge) for edge in _EDGES)
        parts = BlockParts(**{name: arrays[name] for name in BlockParts._fields[:-1]}, edges=edges)
        return BlockReading(arrays["pixels"], parts, **{name: arrays.get(name) for name in _OPTIONAL})

    def __setitem__(self, place: tuple[int, int], block: BlockReading) -> None:
        arrays = {"pixels": block.labels, **block.parts._asdict()}
        arrays |= dict(zip(_EDGES, arrays.pop("edges"), strict=True))
        arrays |= {name: getattr(block, name) for name in _OPTIONAL if getattr(block, name) is not None}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        atomic_write(self._path(place), buffer.getvalue())

    def __delitem__(self, place: tuple[int, int]) -> None:
        self._path(place).unlink()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for path in sorted(self.folder.glob("*_*.npz")):
            row, column = path.stem.split("_")
            yield int(row), int(column)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def parts_of(item: Input, folder: Path) -> Path:
    """Folder in which the blocks of an input are kept, below the folder for its results."""
    return folder / item.name.parent / f".{item.name.name}.texseg-parts"


def can_resume(folder: Path) -> bool:
    """Tell whether a run has left something that the next can go on with."""
    return (folder / _MODEL).exists() or any(folder.glob("*.npz"))


def stamp_of(path: Path) -> dict[str, Any]:
    """Identify one state of an input: its path, size and time."""
    about = path.stat()
    return {"path": str(path.resolve()), "bytes": about.st_size, "time": about.st_mtime_ns}
