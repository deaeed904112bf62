"""Settings of Sphinx; `docs/build.py` lays out the source that it works on."""

import re

from texseg import __version__

project = "texseg"
author = copyright = "The texseg developers"
version = release = __version__
extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "myst_nb",
    "sphinx_click",
]
html_theme = "furo"
smartquotes = False  # code in running text is copied as it is
html_title = f"texseg {__version__}"
nb_execution_mode = "off"  # the notebooks are stored with their outputs, and run in the tests
nb_merge_streams = True
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types with shapes
suppress_warnings = ["ref.citation"]  # a reference at the end of a docstring needs no mark in its text
numpydoc_show_class_members = False
exclude_patterns = ["_build"]


def quote_marks(app, what, name, obj, options, lines):
    """Keep names that end in _ and marks of references elsewhere, [1]_, from being taken for links."""
    targets = set(re.findall(r"^\s*\.\. \[(\w+)\]", "\n".join(lines), re.M))
    for i, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        line = re.sub(r"\[(\w+)\]_", lambda mark: mark[0] if mark[1] in targets else f"[{mark[1]}]", line)
        lines[i] = re.sub(r"(?<![`\w:.])([a-zA-Z]\w*)_(?=$|[\s,.;:)'])", r"\1\\_", line)


def leave_out(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn gives to every estimator for the routing of metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app):
    """Before numpydoc, which makes sections of docstrings."""
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", quote_marks, priority=400)
