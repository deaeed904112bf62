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
    for found in pkgutil.walk_packages(texseg.__path__, "texseg."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
                value.__new__.__annotations__ = typing.get_type_hints(value)


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
