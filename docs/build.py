"""Write the API reference to a folder: python docs/build.py [FOLDER]; any warning is an error."""

import importlib
import pkgutil
import sys
import typing
import warnings
from pathlib import Path

import pdoc
import pdoc.render

import texseg

ROOT = Path(__file__).resolve().parents[1]


def resolve_named_tuples() -> None:
    """Evaluate the annotations of NamedTuples, whose constructors do not know the module they are from."""
    found = pkgutil.walk_packages(texseg.__path__, "texseg.")
    modules = [importlib.import_module(m.name) for m in found if not m.name.startswith("texseg.napari")]
    classes = [c for module in modules for c in vars(module).values() if isinstance(c, type)]
    ours = [c for c in classes if c.__module__.startswith("texseg")]
    names = {c.__name__: c for c in ours}  # for annotations that are imported for type checkers only
    for c in ours:
        if issubclass(c, tuple) and hasattr(c, "_fields"):
            c.__new__.__annotations__ = typing.get_type_hints(c, localns=names)


def build(folder: Path) -> None:
    """Render every module but those of the command line (see ``texseg --help``) and of the napari plugin."""
    warnings.simplefilter("error")
    resolve_named_tuples()
    pdoc.render.configure(docformat="numpy", footer_text=f"texseg {texseg.__version__}")
    names = [module.name for module in pkgutil.iter_modules(texseg.__path__)]
    others = [f"texseg.{name}" for name in names if name not in (*texseg.__all__, "cli", "napari")]
    pdoc.pdoc("texseg", *others, output_directory=folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site")
