"""A page for walking down the tree of a hierarchical clustering and finding its rows by words."""

import os
from base64 import b64encode
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import texseg
from texseg.io.files import atomic_write, output_path
from texseg.models.estimator import PREDICTION_FLOOR
from texseg.models.retrieval import Retrieval
from texseg.report.pages import filled, script_json, terms

_WORDS, _PROTOTYPES, _MATCHES = 12, 8, 20  # numbers listed: per node, per node, and per query


def write_tree_page(retrieval: Retrieval, path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Write one self-contained HTML file with the tree of a `HACM`, its words and its rows.

    Each node is shown with the words special to it, the words most frequent below it, its prototypes, and its
    children; typing words finds rows, and shows where in the tree the words are used.

    The heading is by default the name of the file. It holds about 5 bytes for each of (N + M) x V numbers
    and 11 for each entry of the counts: 2.7 MB for 1400 rows, 1664 words and 63 nodes.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from texseg.models import HACM, Retrieval
    >>> X = np.array([[6, 6, 0], [5, 7, 0], [6, 0, 6], [7, 0, 5]])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tree.html"
    >>> write_tree_page(Retrieval(HACM(2, random_state=0).fit(X), X, ["all", "one", "other"]), path)
    >>> path.exists()
    True
    """
    path = output_path(path, "report")
    content = _content(retrieval)
    facts = {
        "texseg": texseg.__version__,
        "rows": len(retrieval.titles),
        "words": len(retrieval.words),
        "clusters": len(content["parents"]) - len(set(content["parents"])) + 1,
    }
    page = filled(
        "tree.html",
        TITLE=escape(path.stem if title is None else title),
        FACTS=terms(facts),
        CONTENT=script_json(content),
    )
    atomic_write(path, page.encode())


def _content(retrieval: Retrieval) -> dict[str, Any]:
    views = [retrieval.look(v, _WORDS) for v in range(len(retrieval.nodes))]
    by_row = retrieval.row_shares
    best = np.argsort(-by_row, axis=0, kind="stable")[:_PROTOTYPES].T
    own = retrieval.own_words
    return {
        "words": retrieval.words,
        "titles": retrieval.titles,
        "parents": [view.parent for view in views],
        "levels": [view.level for view in views],
        "sizes": [view.n_rows for view in views],
        "special": [view.words for view in views],
        "average": [retrieval.average_words_of(view.node, _WORDS) for view in views],
        "prototypes": [
            [(int(i), round(float(by_row[i, v]), 4)) for i in rows] for v, rows in enumerate(best)
        ],
        "weights": retrieval.node_weights.tolist(),
        "shares": _packed(retrieval.node_shares, "<f4"),
        "nodes": _packed(retrieval.nodes, "<f4"),
        "own": {
            "start": _packed(own.indptr, "<i4"),
            "column": _packed(own.indices, "<i4"),
            "share": _packed(own.data, "<f4"),
        },
        "own_share": retrieval.own_share,
        "floor": PREDICTION_FLOOR,
        "most": _MATCHES,
    }


def _packed(values: NDArray[Any], dtype: str) -> str:
    return b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")
