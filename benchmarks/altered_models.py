"""Model files whose values, tables or bytes were altered: refused, or the labels of the sound file.

Usage: python benchmarks/altered_models.py [--number 400] [--seed 0]   (Linux)

Every file is read in a process of its own. Last come files made to cost much memory or time.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, machine
from texseg import TextureSegmenter, read_image
from texseg.method.modelfile import ModelFileError, load_model, save_model

SECONDS = 20
ROOT = Path(__file__).resolve().parents[1]
OLD_FILES = ROOT / "tests" / "data"
Members = dict[str, bytes]
TABLES = {
    "NaN": lambda a, r: entry(a, r, np.nan),
    "infinite": lambda a, r: entry(a, r, np.inf),
    "negative": lambda a, r: entry(a, r, -5),
    "huge": lambda a, r: entry(a, r, 3e38),
    "other sign": lambda a, r: -a,
    "twice": lambda a, r: a * 2,
    "a little more": lambda a, r: a * 1.01 + 1e-3,
    "permuted": lambda a, r: r.permutation(a),
    "repeated rows": lambda a, r: np.concatenate([a, a[-1:]]),
    "cut rows": lambda a, r: a[:-1],
    "transposed": lambda a, r: a.T[..., None],
    "zeros": lambda a, r: np.zeros_like(a),
    "empty": lambda a, r: a[:0],
    "texts": lambda a, r: a.astype(str),
}
VALUES = (None, -1, 0, 1.5, 10**9, 1e300, float("nan"), float("inf"), 10**400, "x", [], {}, [1], [[]], True)


def entry(array: np.ndarray, rng: np.random.Generator, value: float) -> np.ndarray:
    changed = array.copy()
    changed.flat[rng.integers(array.size)] = value
    return changed


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(members: Members | list[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as target:
        warnings.simplefilter("ignore")  # of repeated names
        for name, content in members.items() if isinstance(members, dict) else members:
            target.writestr(name, content)
    return file.getvalue()


def altered(sound: bytes, rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Yield kind and content of files whose bytes were altered, without end."""
    header = 8 + int.from_bytes(sound[:8], "little")
    while True:
        content = bytearray(sound)
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        yield "bit", bytes(content)
        content = bytearray(sound)
        content[rng.integers(header)] = int(rng.integers(32, 127))
        yield "letter of the header", bytes(content)
        place = header + 4 * int(rng.integers((len(sound) - header) // 4))
        yield "number of a table", sound[:place] + rng.bytes(4) + sound[place + 4 :]
        yield "cut", sound[: rng.integers(len(sound))]
        first, last = sorted(rng.integers(len(sound), size=2).tolist())
        yield "part repeated", sound[:last] + sound[first:]


def other_values(values: dict[str, Any], rng: np.random.Generator) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kind and values of models that the library would write and sign, without end."""
    tables = [name for name, value in values.items() if isinstance(value, np.ndarray)]
    small = [name for name in values if name not in tables]
    while True:
        name, other = rng.choice(tables, 2, replace=False).tolist()
        table = values[name]
        ways = [way for way in TABLES if table.dtype.kind == "f" and table.size and table.ndim]
        for way in rng.choice(ways, 2, replace=False) if ways else ():
            try:
                yield f"table: {way}", values | {name: TABLES[way](table, rng)}
            except ValueError:
                continue  # the table has no such change
        key, value = str(rng.choice(small)), VALUES[rng.integers(len(VALUES))]
        if isinstance(values[key], dict) and rng.random() < 0.7:
            value = values[key] | {str(rng.choice(list(values[key]))): value}
        yield "value", values | {key: value}
        yield "table exchanged", values | {name: values[other], other: table}
        yield "value left out", {n: v for n, v in values.items() if n not in (name, key)}


def signed(metadata: str, entries: dict[str, Any], tables: bytes = b"") -> bytes:
    """Make a file of one's own with the digest that fits."""
    zeros = "0" * 64
    header = {"__metadata__": {"texseg": metadata.replace("{", '{"sha256": "' + zeros + '", ', 1)}}
    text = json.dumps(header | entries).encode()
    content = len(text).to_bytes(8, "little") + text + tables
    return content.replace(zeros.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def costly(old: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files that announce or unpack to far more than they are: of version 0.2, and new ones."""
    with zipfile.ZipFile(io.BytesIO(old)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    yield "60 MB of zeros deflated", archive(members | {"zeros.npy": npy(np.zeros(60_000_000, np.uint8))})
    yield "400 MB of zeros deflated", archive(members | {"zeros.npy": bytes(400_000_000)})
    for what, compression in (("deflated", zipfile.ZIP_DEFLATED), ("in bzip2", zipfile.ZIP_BZIP2)):
        lying = bytearray(archive(members | {"zeros.npy": bytes(400_000_000)}, compression))
        place = lying.rindex(b"PK\1\2", 0, lying.rindex(b"PK\5\6"))
        lying[place + 24 : place + 28] = struct.pack("<I", 100)
        yield f"400 MB {what} announced as 100 bytes", bytes(lying)
    yield "5,000 members", archive(members | {f"m{i}.npy": npy(np.zeros(1)) for i in range(5000)})
    for shape in ("(2**62, 8)", "(4611686018427387904, 8)", "(-1,)", "(0, 10**30)"):
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }"
        text = text.ljust(118 + 64 * (len(text) > 117)) + "\n"
        content = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + bytes(64)
        yield f"table of shape {shape}", archive(members | {"profiles.npy": content})
    about = '{"format": "texseg model", "version": 3, "values": '
    for shape in ([2**62, 8], [2**62], [-1], [0, 10**30], [3]):
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 64]}
        yield f"signed, a table of shape {shape}", signed(about + "{}}", {"x": entry}, bytes(64))
    for what, values in (
        ("nested lists", "[" * 400_000),
        ("nested values", '{"a":' * 100_000),
        ("a number of 900,000 digits", "9" * 900_000 + "}"),
        ("100,000 numbers", json.dumps({"profiles": list(range(100_000))}) + "}"),
        ("no values", "null}"),
    ):
        yield f"signed, {what}", signed(about + values, {})
    yield "signed, version 2e308", signed('{"format": "texseg model", "version": 2e308, "values": {}}', {})
    yield "signed, version as text", signed('{"format": "texseg model", "version": "3", "values": {}}', {})


def outcome(path: Path, image: np.ndarray, expected: np.ndarray | None) -> tuple[str, float, float]:
    """Read and use a file in a process of its own; give one word, seconds to read it and megabytes."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        Path("/proc/self/clear_refs").write_text("5")
        before = resident_peak()
        signal.alarm(SECONDS)
        start = time.perf_counter()
        seconds, word = 0.0, "refused"
        try:
            model = TextureSegmenter.load(path)
            seconds = time.perf_counter() - start
            labels = model.predict(image)
            shares = model.predict_proba(image)
            sound = (shares >= 0).all() and np.allclose(shares.sum(axis=-1), labels > 0, atol=1e-3)
            word = "no probabilities" if not sound else "other labels"
            word = "same" if sound and np.array_equal(labels, expected) else word
        except ModelFileError:
            pass
        except BaseException as error:
            word = f"raises {type(error).__name__}"
        seconds = seconds or time.perf_counter() - start
        os.write(writer, f"{word}|{seconds}|{(resident_peak() - before) / 1e3}".encode())
        os._exit(0)
    _, status = os.waitpid(process, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    if not told:
        return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else "crashes", SECONDS, 0.0
    word, seconds, megabytes = told.split("|")
    return word, float(seconds), float(megabytes)


def resident_peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def sound_files(folder: Path, image: np.ndarray) -> dict[str, Path]:
    """Write a model of each kind."""
    files = {name: folder / f"{name}.texseg" for name in ("default", "plain", "merged", "strokes")}
    model = TextureSegmenter(4, n_starts=4).fit(image)
    model.save(files["default"])
    TextureSegmenter(4, preset="plain").fit(image).save(files["plain"])
    TextureSegmenter(4, n_starts=4).fit(image).merge([(1, 2)]).save(files["merged"])
    seeds = np.zeros(image.shape, np.int32)
    for label in range(1, 5):
        rows, columns = np.nonzero(model.labels_ == label)
        seeds[rows[::9], columns[::9]] = label
    TextureSegmenter(4).fit(image, seeds=seeds).save(files["strokes"])
    return files


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=400, help="altered files of each sound one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine(1))
    rng = np.random.default_rng(options.seed)
    image = read_image(ROOT / "sample_images" / "five_textures.png").pixels[::2, ::2]
    words: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bad = folder / "altered.texseg"
        for renewed in (False, True):
            print("\nchecksum renewed: models with other values" if renewed else "\nchecksum as it was")
            table = Table((("file", -28), ("refused", 8), ("same", 6), ("else", 6), ("what else", -60)))
            for name, path in sound_files(folder, image).items():
                expected = TextureSegmenter.load(path).predict(image)
                words = Counter()
                kinds: Iterator[tuple[str, Any]]
                kinds = other_values(load_model(path), rng) if renewed else altered(path.read_bytes(), rng)
                for _ in range(options.number):
                    kind, changed = next(kinds)
                    try:
                        save_model(bad, changed) if renewed else bad.write_bytes(changed)
                    except (ValueError, TypeError):
                        continue  # no plain data: never written
                    word, _, _ = outcome(bad, image, expected)
                    words[word if word in ("refused", "same") else f"{kind} -> {word}"] += 1
                others = {word: n for word, n in words.items() if word not in ("refused", "same")}
                table.row(name, words["refused"], words["same"], sum(others.values()), str(others or ""))
        print("\nfiles that announce or unpack to much")
        table = Table((("what", -44), ("outcome", -22), ("s", 6), ("MB", 6)))
        sound = folder / "default.texseg"
        expected = TextureSegmenter.load(sound).predict(image)
        for what, content in costly((OLD_FILES / "model_0_2_0_default.texseg").read_bytes()):
            bad.write_bytes(content)
            word, seconds, megabytes = outcome(bad, image, expected)
            table.row(what, word, f"{seconds:.2f}", f"{megabytes:.0f}")


if __name__ == "__main__":
    main()
