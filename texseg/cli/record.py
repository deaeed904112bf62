"""What results are made from: the record next to them, and the blocks of a run that was interrupted.

The record (``*_run.json``) is written last and removed first: if it exists, the results are complete;
meanwhile it lies next to them under a hidden name, so that a later run knows them even if this one is ended.
By the digests in it a later run knows what it may remove: what texseg wrote and nobody changed since.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import texseg
from texseg.cli.inputs import OUTPUT_KINDS, Input, ReadOptions, named_like
from texseg.cli.terminal import shown
from texseg.io.files import atomic_write, digest_of, open_regular, read_json, remove_leftovers
from texseg.io.header import world_files
from texseg.io.write import STEP, Layout, new_zarr
from texseg.method.blocks import BlockPlan, BlockReading
from texseg.method.labelling import Window
from texseg.pixels.joining import BlockParts
from texseg.segmenter import Segmenter

_NO_MATTER = ("max_pixels", "memory", "mask", "seeds")  # decide whether results are made, or are files
_PLAN, _MODEL, _SAMPLE = "plan.json", "model.texseg", "sample.json"
_MAPS = ("labels.zarr", "confidence.zarr")
_LEVELS = 3  # of the maps
_FILES = ("labels.npy", "confidence.npy")  # the same of volumes
_BLOCK = re.compile(r"\d+(_\d+)+\.npz")
_LARGEST_TEXT = 2**26  # bytes of a record or a plan
_EDGES = ("top", "bottom", "left", "right", "front", "back")  # of volumes the last axis is called so
_OPTIONAL = ("novel", "confidence", "preview", "small", "of_small", "largest_novel")


def made_from(item: Input, reading: ReadOptions, work: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the results of an input depend on; `work` holds what is common to all inputs."""
    images = {"image": item.path}
    for what, given, said in (("mask", reading.mask, "mask"), ("seeds", reading.seeds, "strokes")):
        images |= {} if given is None else {what: named_like(item.path, given, said)}
    beside = {f"{what} {file.name}": file for what, path in images.items() for file in _beside(path)}
    made = {
        "texseg": texseg.__version__,
        "input_sha256": digest_of(item.path),
        **{name: value for name, value in asdict(reading).items() if name not in _NO_MATTER},
        "mask": None,
        **{what: digest_of(path) for what, path in images.items() if what != "image"},
        "beside": {said: digest_of(file) for said, file in beside.items()},
        **work,
    }
    return json.loads(json.dumps(made, default=str), parse_constant=str)


def _beside(image: Path) -> list[Path]:
    """Files that are read together with an image: masks, metadata, world files, headers of raw values."""
    files = [image.with_name(image.name + end) for end in (".aux.xml", ".msk", ".hdr")] + world_files(image)
    files += [image.with_suffix(end) for end in (".hdr", ".HDR", ".prj")]
    return [file for file in dict.fromkeys(files) if file != image and file.is_file()]


def refuse_others(planned: Mapping[str, Collection[Path]]) -> None:
    """Refuse, before any work, to replace what somebody else wrote, or has changed since texseg wrote it."""
    for path in planned.get("run", ()):
        record = _read(path)
        digests = _outputs_in(record, path)
        was_ended = not record and _withdrawn(path).exists()  # what it wrote is not listed
        for output in (each for outputs in planned.values() for each in outputs if each != path):
            if output.name in digests and digest_of(output) != digests[output.name]:
                said = "was changed since texseg wrote it"
            elif output.is_file() and output.name not in digests and not was_ended:
                said = f"was not written by texseg ({path.name} does not list it)"
            else:
                continue
            remedy = "move it away, or choose another folder with -o"
            raise FileExistsError(f"{shown(output)} {said}, and was not replaced; {remedy}")


def replace_earlier(
    path: Path, input_path: Path, made: Mapping[str, Any], planned: Collection[Path]
) -> tuple[dict[str, Any], list[str]]:
    """Remove a record and what it names that is outdated and unchanged; return the new one, and notes."""
    withdrawn = _withdrawn(path)
    record, names = _read(path) or _read(withdrawn), {output.name for output in planned}
    others = {name: digest for name, digest in _outputs_in(record, path).items() if name not in names}
    # what it was made from is not kept: this run may have written some of its files anew
    atomic_write(withdrawn, json.dumps({**record, "made_from": None}).encode())
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    before = record.get("made_from")
    only_report = all(output.suffix in (".html", ".htm") for output in planned if output != path)
    in_space = made.get("spatial_dims") == 3  # then textures depend on the sides of voxels
    if only_report and not in_space and isinstance(before, dict) and made.get("pixel_size") is None:
        made = {**made, "pixel_size": before.get("pixel_size")}
    new = {"input": shown(input_path), "made_from": made, "outputs": {}, "result": {}}
    if before == made:
        return new | {"outputs": others, "result": record["result"]}, []
    unchanged = [name for name, digest in others.items() if digest_of(path.with_name(name)) == digest]
    for each in map(path.with_name, unchanged):
        _remove(each)
        each.with_name(f"{each.name}.aux.xml").unlink(missing_ok=True)  # names and colours of labels
    messages = []
    of_another = isinstance(before, dict) and before.get("input_sha256") != made.get("input_sha256")
    if of_another and record.get("input") != shown(input_path):
        messages.append(f"results of another image, {record.get('input')}, had these names and were replaced")
    if unchanged:
        messages.append(f"results of an earlier run were removed: {', '.join(unchanged)}")
    messages += [
        f"{name} was changed since an earlier run; it was kept, but does not belong to these results"
        for name in others
        if path.with_name(name).exists()
    ]
    return new, messages


def _remove(path: Path) -> None:
    """Remove a file, a folder, or a link but not what it leads to."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def write_record(path: Path, new: dict[str, Any], outputs: list[Path], result: Mapping[str, Any]) -> None:
    """Write the record of an input, whose `outputs` are in the same folder."""
    digests = {shown(output.name): digest_of(output) for output in outputs}
    record = new | {"outputs": {**digests, **new["outputs"]}, "result": {**new["result"], **result}}
    atomic_write(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    _withdrawn(path).unlink(missing_ok=True)


def clear_withdrawn(path: Path) -> None:
    """Remove what a run left that was ended when it had written a record."""
    withdrawn = _withdrawn(path)
    if withdrawn.exists():  # only then is it worth a look at the whole folder
        remove_leftovers(path.parent, withdrawn.name.removesuffix("part"))
        withdrawn.unlink(missing_ok=True)


def recorded_result(path: Path, made: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result in the record of an input, if it was made from exactly the same."""
    record = _read(path)
    return record["result"] if record.get("made_from") == made else None


def _withdrawn(path: Path) -> Path:
    """Where a record lies while results are written, for the next run should this one be ended."""
    return path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.part")


def _read(path: Path) -> dict[str, Any]:
    """Read a record; an empty one where there is none, or it was damaged."""
    record = _read_json(path)
    return record if isinstance(record, dict) and isinstance(record.get("result"), dict) else {}


def _read_json(path: Path) -> Any:
    """Content of a file of texseg's; None where there is none that can be read."""
    with contextlib.suppress(OSError):
        return read_json(path, _LARGEST_TEXT)
    return None


def _outputs_in(record: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Digests in a record by the names of files; whatever texseg would not call a result is skipped."""
    outputs = record.get("outputs")
    stem = path.name.removesuffix("_run.json")
    of_this = re.compile(rf"{re.escape(stem)}(_\d+|_numbers)?_({'|'.join(OUTPUT_KINDS)}|volumes|planes)\.\w+")
    return {
        name: digest
        for name, digest in (outputs.items() if isinstance(outputs, dict) else ())
        if of_this.fullmatch(name) and (path.with_name(name).is_file() or path.with_name(name).is_dir())
    }


def parts_of(item: Input, folder: Path) -> Path:
    """Folder in which the blocks of an input are kept, below the folder for its results."""
    return folder / item.name.parent / f".{item.name.name}.texseg-parts"


class PartsFolder:
    """Blocks of an image that have been read, each in a file; those made from the same may be kept."""

    def __init__(self, folder: Path, made: Mapping[str, Any], resume: bool) -> None:
        self.folder = folder
        before = self._claimed()
        # a folder that was brought from elsewhere is another one, whatever its plan says
        self.plan = {**made, "folder": folder.stat().st_ino}  # on whatever machine it is mounted
        self.message = ""
        if resume and before is not None and before != self.plan:
            changed = [name for name in {**before, **self.plan} if before.get(name) != self.plan.get(name)]
            names = ", ".join(name.removesuffix("_sha256") for name in changed)
            self.message = f"--resume starts anew: changed since: {names}"
        if not resume or before != self.plan:
            self.begin()

    def _claimed(self) -> Any:
        """Make the folder, or make sure that it is texseg's; return the plan in it, None without any."""
        with contextlib.suppress(FileExistsError):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir()
        plan = _read_json(self.folder / _PLAN)
        is_real = not self.folder.is_symlink() and self.folder.is_dir()
        if is_real and isinstance(plan, dict) and "texseg" in plan and not (self.folder / _PLAN).is_symlink():
            return plan
        if is_real and all(path.name.endswith(".part") for path in self.folder.iterdir()):
            return None  # ended before anything was written
        raise OSError(
            f"{shown(self.folder)} is not a folder of unfinished blocks of texseg: move it away (nothing in "
            "it was changed)"
        )

    def begin(self) -> None:
        """Forget all blocks, and the model."""
        self._clear()
        atomic_write(self.folder / _PLAN, json.dumps(self.plan, sort_keys=True).encode(), parents=False)

    def model(self) -> tuple[Segmenter | None, dict[str, Any]]:
        """Return the model that was fitted before, if any, and what is recorded about its crops."""
        about = _read_json(self.folder / _SAMPLE)
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Segmenter.load(self.folder / _MODEL), dict(about)
        self.begin()
        return None, {}

    def keep_model(self, model: Segmenter, about: Mapping[str, Any]) -> Segmenter:
        """Save a model and, last, what is known of its crops, which completes it; give it as it is read."""
        model.save(self.folder / _MODEL)
        atomic_write(self.folder / _SAMPLE, json.dumps(about).encode(), parents=False)
        return Segmenter.load(self.folder / _MODEL)

    def remove(self) -> None:
        """Remove the folder when all is done, unless somebody has put something else into it."""
        self._clear()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def new_maps(self, layout: Layout, largest: Sequence[int], step: int) -> Path:
        """Make zarr arrays that the workers of a cluster write; give the folder of the labels.

        ``largest`` are those of labels and, if it is wanted, of confidence. The first smaller levels are made
        as well, down to one pixel for squares of ``step``.
        """
        for name, most in zip(_MAPS, largest, strict=False):
            for level in range(_LEVELS):
                (side, beside), times = layout.block, STEP**level
                if times <= step and not (self.folder / name / str(level)).exists():
                    sides = tuple(-(-n // times) for n in layout.shape)
                    of_level = layout._replace(shape=sides, largest=most, block=(side // times, beside))
                    new_zarr(self.folder / name, of_level, level)
        return self.folder / _MAPS[0]

    def volume_of(self, found: Any, plan: BlockPlan, largest: int, with_confidence: bool) -> list[Any]:
        """Put the blocks of a volume into files; give its labels and, on request, their confidence."""
        types = np.min_scalar_type(largest), np.dtype(np.float16)
        labels, *sure = [
            np.lib.format.open_memmap(self.folder / name, "w+", dtype, plan.shape)
            for name, dtype in zip(_FILES[: 1 + with_confidence], types, strict=False)
        ]
        for place, own, block in found:
            labels[plan.core(place)] = own
            for array in sure:
                array[plan.core(place)] = block.confidence / 255
        return [labels, *sure, None][:2]

    def write_maps(self, window: Window, *maps: Any) -> None:
        """Write a window of labels, and of their confidence in bytes, on all levels that there are."""
        for levels, values in zip(self._levels("r+"), maps, strict=False):
            for level, array in enumerate(levels):
                times = STEP**level
                fewer = tuple(slice(part.start // times, -(-part.stop // times)) for part in window)
                array[fewer] = values[::times, ::times]

    def maps(self, step: int) -> list[tuple[Any, Any]]:
        """Arrays of the labels and, if there is one, of confidence; and every ``step``-th row and column."""
        rest = [step // STEP ** (len(levels) - 1) for levels in self._levels("r")]
        return [(own[0], own[-1][::n, ::n]) for own, n in zip(self._levels("r"), rest, strict=True)]

    def _levels(self, mode: Any) -> list[list[Any]]:
        """Levels of the maps that there are, the largest first."""
        import zarr

        paths = [path for path in map(self.folder.joinpath, _MAPS) if path.exists()]
        groups = [zarr.open_group(path, mode=mode) for path in paths]
        return [[group[name] for name in sorted(group.array_keys())] for group in groups]

    def _clear(self) -> None:
        for path in list(self.folder.iterdir()):
            if path.name in (_MODEL, _PLAN, _SAMPLE, *_MAPS, *_FILES) or _BLOCK.fullmatch(path.name):
                _remove(path)
        remove_leftovers(self.folder)

    def _path(self, place: tuple[int, ...]) -> Path:
        return self.folder / f"{'_'.join(map(str, place))}.npz"

    def __contains__(self, place: tuple[int, ...]) -> bool:
        with contextlib.suppress(Exception):  # whatever a damaged file leads to, this block is read again
            return bool(self[place])
        return False

    def __getitem__(self, place: tuple[int, ...]) -> BlockReading:
        with open_regular(self._path(place)) as file, np.load(file, allow_pickle=False) as saved:
            arrays = dict(saved)
        edges = tuple(arrays.pop(edge) for edge in _EDGES[: 2 * len(place)])
        parts = BlockParts(**{name: arrays[name] for name in BlockParts._fields[:-1]}, edges=edges)
        return BlockReading(arrays["pixels"], parts, **{name: arrays.get(name) for name in _OPTIONAL})

    def __setitem__(self, place: tuple[int, ...], block: BlockReading) -> None:
        assert block.parts is not None  # as it was read
        arrays = {"pixels": block.labels, **block.parts._asdict()}
        arrays |= dict(zip(_EDGES, arrays.pop("edges"), strict=False))
        arrays |= {name: getattr(block, name) for name in _OPTIONAL if getattr(block, name) is not None}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        atomic_write(self._path(place), buffer.getvalue(), parents=False)
