"""Model files whose values, tables or bytes were altered: refused, or the labels of the sound file.

Usage: python benchmarks/altered_models.py [--number 400] [--seed 0]   (Linux)

Every file is read in a process of its own. Last come files made to cost much memory or time.
"""

from __future__ import annotations

import argparse
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

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, machine
from texseg import TextureSegmenter, read_image
from texseg.io.archive import ModelFileError, save_model

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


def altered(sound: bytes, rng: np.random.Generator, *, signed: bool) -> Iterator[tuple[str, bytes]]:
    """Yield kind and content without end; `signed` ones have values altered and a checksum that fits."""
    with zipfile.ZipFile(io.BytesIO(sound)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    tables = [name for name in members if name.endswith(".npy")]
    header = json.loads(members["header.json"])
    while True:
        name, other = rng.choice(tables, 2, replace=False).tolist()
        table = np.load(io.BytesIO(members[name]))
        ways = [way for way in TABLES if table.dtype.kind == "f" and table.size and table.ndim]
        for way in rng.choice(ways, 2, replace=False) if ways else ():
            try:
                yield f"table: {way}", archive(members | {name: npy(TABLES[way](table, rng))})
            except ValueError:
                continue  # the table has no such change
        key, value = str(rng.choice(list(header["values"]))), VALUES[rng.integers(len(VALUES))]
        values = header["values"] | {key: value}
        if isinstance(header["values"][key], dict) and rng.random() < 0.7:
            inner = str(rng.choice(list(header["values"][key])))
            values = header["values"] | {key: header["values"][key] | {inner: value}}
        yield "value", archive(members | {"header.json": json.dumps(header | {"values": values}).encode()})
        yield "table exchanged", archive(members | {name: members[other], other: members[name]})
        if signed:
            continue
        yield "member left out", archive({n: m for n, m in members.items() if n != name})
        yield "member repeated", archive([*members.items(), (name, members[name])])
        yield "member cut", archive(members | {name: members[name][: rng.integers(len(members[name]))]})
        content = bytearray(sound)
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        yield "bit", bytes(content)
        yield "cut", sound[: rng.integers(len(sound))]
        first, last = sorted(rng.integers(len(sound), size=2).tolist())
        yield "part repeated", sound[:last] + sound[first:]


def write_signed(content: bytes, path: Path) -> None:
    """Write an altered file as the library would."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        values = json.loads(source.read("header.json"))["values"]
        for name in source.namelist():
            if name.endswith(".npy"):
                values[name.removesuffix(".npy")] = np.load(io.BytesIO(source.read(name)), allow_pickle=False)
    save_model(path, values)


def costly(sound: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files that announce or unpack to far more than they are."""
    with zipfile.ZipFile(io.BytesIO(sound)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    name = next(name for name in members if name.endswith(".npy"))
    header = json.loads(members["header.json"])
    yield "60 MB of zeros deflated", archive(members | {"zeros.npy": npy(np.zeros(60_000_000, np.uint8))})
    yield "400 MB of zeros deflated", archive(members | {"zeros.npy": bytes(400_000_000)})
    for what, compression in (("deflated", zipfile.ZIP_DEFLATED), ("in bzip2", zipfile.ZIP_BZIP2)):
        lying = bytearray(archive(members | {"zeros.npy": bytes(400_000_000)}, compression))
        place = lying.rindex(b"PK\1\2", 0, lying.rindex(b"PK\5\6"))
        lying[place + 24 : place + 28] = struct.pack("<I", 100)
        yield f"400 MB {what} announced as 100 bytes", bytes(lying)
    yield "5,000 members", archive(members | {f"m{i}.npy": npy(np.zeros(1)) for i in range(5000)})
    for shape in (
        "(2**62, 8)",
        "(4611686018427387904, 8)",
        "(-1,)",
        "(18446744073709551617,)",
        "(0, 10**30)",
    ):
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }"
        text = text.ljust(118 + 64 * (len(text) > 117)) + "\n"
        content = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + bytes(64)
        yield f"table of shape {shape}", archive(members | {name: content})
    deep = "(" * 60_000
    content = b"\x93NUMPY\1\0" + struct.pack("<H", len(deep)) + deep.encode()
    yield "table whose header is nested", archive(members | {name: content})
    content = b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + b"{"
    yield "table whose header is of 4 GB", archive(members | {name: content})
    for what, text in (
        ("nested lists", "[" * 500_000),
        ("nested values", '{"a":' * 150_000),
        ("a number of 900,000 digits", '{"format": ' + "9" * 900_000 + "}"),
        ("400,000 numbers", json.dumps(header | {"values": {"profiles": list(range(140_000))}})),
        ("UTF-16", json.dumps(header).encode("utf-16")),
        ("version 2e308", json.dumps(header | {"version": 1}).replace('"version": 1', '"version": 2e308')),
        ("version as text", json.dumps(header | {"version": "2"})),
        ("no values", json.dumps(header | {"values": None})),
    ):
        yield (
            f"header: {what}",
            archive(members | {"header.json": text if isinstance(text, bytes) else text.encode()}),
        )


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
    """Write a model of each kind, and take those of older versions."""
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
    return files | {path.stem: path for path in sorted(OLD_FILES.glob("model_*.texseg"))}


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
                kinds = altered(path.read_bytes(), rng, signed=renewed)
                for _ in range(options.number):
                    kind, content = next(kinds)
                    bad.write_bytes(content)
                    if renewed:
                        try:
                            write_signed(content, bad)
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
        for what, content in costly(sound.read_bytes()):
            bad.write_bytes(content)
            word, seconds, megabytes = outcome(bad, image, expected)
            table.row(what, word, f"{seconds:.2f}", f"{megabytes:.0f}")


if __name__ == "__main__":
    main()
