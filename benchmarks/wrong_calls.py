"""Call every public function wrongly, one argument at a time, and show what is not said in one sentence.

Run ``python benchmarks/wrong_calls.py``: the last line counts the calls, and those that were accepted, that
raised another class than TypeError, ValueError or OSError, or that said something of Python's or NumPy's own.
"""

import re
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np

import texseg
from texseg import TextureSegmenter, metrics, synth
from texseg.parameters import PARAMETERS

FOLDER = Path(tempfile.mkdtemp())
A = np.random.default_rng(0).integers(0, 255, (48, 64)).astype(np.uint8)
L = np.where(np.indices(A.shape)[1] < 30, 1, 2)
SURE = np.ones(A.shape, np.float32)
MODEL = TextureSegmenter(2, preset="plain").fit(A)
MODEL.save(FOLDER / "m.texseg")
texseg.write_labels(FOLDER / "l.png", L)

PATHS = [None, 5, "", b"a.png", FOLDER / "none" / "a.png", FOLDER, "a\0b"]
NUMBERS = ["x", "1", [1], 1.5, -1, 10**9, True, 1j]
FLAGS = ["x", 2, None, [True]]
IMAGES = [
    None,
    "a.png",
    5,
    [[1, 2], [3]],
    A[:0],
    A.astype(complex),
    A.astype(str),
    np.full(A.shape, np.nan),
    A[None, None],
]
LABELS = [None, "x", 5, L.astype(float) + 0.5, -L, L[:0], L.astype(str), L[None, None]]
ANY_LABELS = [
    None,
    "x",
    5,
    L.astype(float) + 0.5,
    L[:0],
    L.astype(str),
    L[None, None],
]  # negative ones count, too
OTHERS = ["x", L[:5], L.astype(complex), 5]
NAMES = [5, [5], "ab", [None]]
SIZES = ["x", 5, (1, 1), (0, 1, "um"), ("a", 1, "um"), (1, 1, 5), (np.nan, 1, "um")]

CALLS = {
    "read_image": (
        texseg.read_image,
        {"path": FOLDER / "l.png"},
        {
            "path": PATHS,
            "page": ["x", 1.5, True, 7, -1],
            "channel_axis": ["x", 1.5, True],
            "max_pixels": ["1M", 1.5, 0],
            "ignore_alpha": FLAGS,
            "nodata": ["x", 1j, [1]],
            "bands": ["x", 5, [1.5], [], [9], [0, 0]],
        },
    ),
    "read_labels": (
        texseg.read_labels,
        {"path": FOLDER / "l.png"},
        {"path": PATHS, "max_pixels": ["1M", 1.5]},
    ),
    "write_labels": (
        texseg.write_labels,
        {"path": FOLDER / "o.png", "labels": L},
        {
            "path": [None, 5, "", FOLDER / "a.xyz", FOLDER / "l.png" / "a.png"],
            "labels": LABELS,
            "geo": ["x", 5],
        },
    ),
    "polygons": (
        texseg.polygons,
        {"labels": L},
        {
            "labels": LABELS,
            "names": NAMES,
            "confidence": OTHERS,
            "geo": ["x", 5],
        },
    ),
    "write_polygons": (
        texseg.write_polygons,
        {"path": FOLDER / "o.geojson", "labels": L},
        {
            "path": [None, 5, "", FOLDER, FOLDER / "l.png"],
            "labels": LABELS,
            "names": NAMES,
            "confidence": OTHERS,
            "geo": ["x"],
        },
    ),
    "segment_table": (
        texseg.segment_table,
        {"labels": L},
        {
            "labels": LABELS,
            "confidence": OTHERS,
            "names": NAMES,
            "pixel_size": SIZES,
        },
    ),
    "region_table": (
        texseg.region_table,
        {"labels": L},
        {
            "labels": LABELS,
            "confidence": OTHERS,
            "names": NAMES,
            "regions": OTHERS,
            "pixel_size": SIZES,
            "shapes": FLAGS,
        },
    ),
    "match_labels": (
        texseg.match_labels,
        {"labels": L, "reference": L},
        {
            "labels": ANY_LABELS,
            "reference": [*ANY_LABELS, L[:5]],
            "ignore_label": ["x", 1.5],
        },
    ),
    "score": (
        metrics.score,
        {"labels": L, "truth": L},
        {
            "labels": ANY_LABELS,
            "truth": [*ANY_LABELS, L[:5]],
            "ignore_label": ["x", 1.5],
            "tolerance": ["x", -1, np.nan],
        },
    ),
    "mosaic": (
        synth.mosaic,
        {"textures": [A, A.T], "n_segments": 2, "size": 32},
        {
            "textures": [None, 5, [], [5]],
            "n_segments": NUMBERS,
            "size": NUMBERS,
        },
    ),
    "segment": (
        texseg.segment,
        {"image": A, "n_segments": 2, "preset": "plain"},
        {
            "image": IMAGES,
            "mask": ["x", A[:5], np.zeros(A.shape), np.full(A.shape, np.nan), A.astype(str)],
            "seeds": ["x", A[:5], -L, L * 1000],
            **{
                name: [object(), "nonsense", -5.5, [1j]]
                for name in PARAMETERS
                if name not in ("preset", "nodata")
            },
            "nodata": [object(), "nonsense", [1j]],
        },
    ),
    "predict": (
        MODEL.predict,
        {"X": A},
        {"X": IMAGES, "mask": ["x", A[:5]], "unknown": FLAGS, "rescale": FLAGS},
    ),
    "predict_proba": (MODEL.predict_proba, {"X": A}, {"X": IMAGES, "mask": ["x", A[:5]], "rescale": FLAGS}),
    "save": (
        MODEL.save,
        {"path": FOLDER / "n.texseg"},
        {"path": [None, 5, "", FOLDER / "l.png", FOLDER / "l.png" / "m"]},
    ),
    "load": (TextureSegmenter.load, {"path": FOLDER / "m.texseg"}, {"path": PATHS}),
    "refit": (MODEL.refit, {"seeds": L}, {"seeds": [None, "x", A[:5], -L]}),
    "merge": (
        MODEL.merge,
        {"groups": []},
        {"groups": [None, 5, "12", [1, 2], [(1, 9)], [(1, 1)], [("a", "b")]]},
    ),
    "rename": (
        MODEL.rename,
        {"names": {}},
        {"names": [None, 5, "ab", {"a": "b"}, {1: 5}, {9: "a"}, {1: "a\n"}]},
    ),
    "edit": (
        MODEL.edit,
        {"edits": {}},
        {"edits": [None, 5, {"x": 1}, FOLDER / "none.json", FOLDER / "l.png"]},
    ),
    "split": (MODEL.split, {"segment": 1}, {"segment": [None, "a", 9, 1.5, [1]]}),
    "report": (
        MODEL.report,
        {"path": FOLDER / "r.html", "image": A},
        {"path": [None, 5, "", FOLDER / "l.png"], "image": [None, "x", A[:5]]},
    ),
}

OURS = Path(texseg.__file__).parent
FOREIGN = "unsupported operand|object is not|cannot convert|broadcast|argument must|no attribute|expected str"


def complaint(function, arguments):
    """Return what is wrong with the answer to a call; empty if it is one sentence of the right class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**arguments)
    except (TypeError, ValueError, OSError) as error:
        text = str(error)
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        is_ours = Path(place).is_relative_to(OURS) or isinstance(error, OSError)
        is_sentence = text and "\n" not in text and len(text) < 400 and not re.search(FOREIGN, text)
        return "" if is_ours and is_sentence else f"says {text!r:.90}"
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"[:100]
    return "accepts it"


def answers():
    """Yield each call, in words, and what is wrong with its answer."""
    for name, (function, right, kinds) in CALLS.items():
        for parameter, values in kinds.items():
            for value in values:
                is_array = isinstance(value, np.ndarray)
                shown = f"array {value.dtype}{value.shape}" if is_array else f"{value!r:.60}"
                yield f"{name}({parameter}={shown})", complaint(function, {**right, parameter: value})


def main():
    found = list(answers())
    wrong = [f"{call}: {said}" for call, said in found if said]
    print(*wrong, f"{len(found)} calls, {len(wrong)} not answered by one sentence", sep="\n")


if __name__ == "__main__":
    main()
