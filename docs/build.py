"""Build the documentation: python docs/build.py [FOLDER]; any warning is an error.

The site holds the README (cut into a first page and a guide), the notebooks, the command and the API.
"""

import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from sphinx.cmd.build import main as sphinx

import texseg

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    "models": "Models of co-occurrence data",
    "m3": "Multidimensional membership models",
    "metrics": "Scores of label images",
    "synth": "Mosaics with truth",
    "plot": "Figures",
    "report": "Reports",
    "progress": "Progress",
    "method.hierarchy": "Coarse and fine",
    "method.number": "The number of segments",
    "parameters": "Parameters and presets",
}
"""Modules of the API, what users call first."""


def lay_out(source: Path) -> None:
    """Write the pages into a folder."""
    shutil.copy(ROOT / "docs" / "conf.py", source)
    shutil.copytree(ROOT / "notebooks", source / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(ROOT / "CHANGELOG.md", source / "changelog.md")
    shutil.copy(ROOT / "VISION.md", source)
    (source / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "README.md", source / "benchmarks")
    (source / "docs").mkdir()
    for name in ("segments.png", "open.png", "licences.md", "cluster.md"):
        shutil.copy(ROOT / "docs" / name, source / "docs")
    first, guide = (ROOT / "README.md").read_text("utf-8").split("\n---\n", 1)
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    pages = ["guide", *(f"notebooks/{name}" for name in notebooks), "command", "docs/cluster", "api/index"]
    pages += ["VISION", "changelog", "benchmarks/README", "docs/licences"]
    tree = "\n".join(["```{toctree}", ":hidden:", *pages, "```"])
    first = first.replace("(notebooks)", "(notebooks/01_quickstart.ipynb)")
    (source / "index.md").write_text(f"{first}\n\n{tree}\n", "utf-8")
    (source / "guide.md").write_text(f"# Guide\n\n{guide}", "utf-8")
    command = ".. click:: texseg.cli:main\n   :prog: texseg\n   :nested: full\n"
    page(source / "command.rst", "The command", command)
    lay_out_api(source / "api")


def lay_out_api(folder: Path) -> None:
    """Write a page for the public names and one for each module."""
    folder.mkdir()
    parts = []
    for name in texseg.__all__:
        value = getattr(texseg, name)
        if not isinstance(value, ModuleType) and value.__module__.removeprefix("texseg.") not in MODULES:
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            parts.append(f".. {kind}:: texseg.{name}\n" + "   :members:\n" * isinstance(value, type))
    page(folder / "texseg.rst", "texseg", "\n".join(parts))
    for module, title in MODULES.items():
        text = f".. automodule:: texseg.{module}\n   :members:\n"
        if hasattr(importlib.import_module(f"texseg.{module}"), "__path__"):  # names of its modules
            text += "   :imported-members:\n"
        page(folder / f"{module}.rst", f"texseg.{module}: {title[0].lower()}{title[1:]}", text)
    tree = "\n   ".join(["texseg", *MODULES])
    page(folder / "index.rst", "API", f".. toctree::\n   :maxdepth: 1\n\n   {tree}\n")


def page(path: Path, title: str, text: str) -> None:
    """Write a page with a title."""
    path.write_text(f"{title}\n{'=' * len(title)}\n\n{text}", "utf-8")


def build(folder: Path) -> int:
    """Render the site, and return the exit code."""
    with tempfile.TemporaryDirectory() as source:
        lay_out(Path(source))
        failed = sphinx(["-q", "-W", "--keep-going", "-b", "html", source, str(folder)])
    if not failed:
        print(f"built {folder / 'index.html'}")
    return failed


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"))
