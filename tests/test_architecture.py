"""The shape of the package: imports point down one list, and what is public says what it is."""

import ast
import importlib
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

import texseg

ROOT = Path(texseg.__file__).parent

ORDER = """
    __main__ cli napari
    report plot
    estimator segmenter
    method
    parameters pixels
    channels io
    m3 models fitting counts
    metrics synth progress threads
""".split()
"""From top to bottom: a room may import what stands after it, never what stands before it."""

NEED_A_VIEWER = {"napari"}  # not importable without it

ONLY_IN = {
    "click": {"cli"},
    "tqdm": {"progress", "cli"},
    "matplotlib": {"plot", "report"},
    "tifffile": {"io", "cli"},
    "imagecodecs": {"io"},
    "SimpleITK": {"io"},
    "simplejpeg": {"io"},
    "rasterio": {"io"},
    "PIL": {"io", "plot", "report"},
}
"""Libraries that serve one purpose, and the rooms that serve it."""


@cache
def sources():
    """Map the dotted name of every module to its syntax tree."""
    trees = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        trees[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def room(module):
    return module.split(".")[0]


def imported(tree):
    """Yield the absolute names that a module imports, at whatever depth of its code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: imports within the package are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = sorted(name for name in sources() if name)


def test_every_room_has_its_place():
    unknown = sorted({room(module) for module in MODULES} - set(ORDER))
    assert not unknown, f"put {unknown} where they belong in the order of this file"
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    own = ORDER.index(room(module))
    for name in imported(sources()[module]):
        if name.startswith("texseg."):
            other = name.split(".")[1]
            if other in ORDER:
                assert ORDER.index(other) >= own, f"{module} imports {name}, which stands above it"


def test_no_module_imports_itself_in_a_circle():
    files = set(sources())
    below = {
        module: {
            name
            for full in imported(tree)
            if full.startswith("texseg.")
            for name in (full.removeprefix("texseg."), full.removeprefix("texseg.").rpartition(".")[0])
            if name in files and name != module
        }
        for module, tree in sources().items()
        if module
    }
    while below:
        free = [module for module, names in below.items() if not names & set(below)]
        assert free, f"a circle among {sorted(below)}"
        for module in free:
            del below[module]


def test_no_two_classes_share_a_name():
    """Who reads of a Scene or a Reading must not have to ask which one."""
    places = {}
    for module, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in places.items() if len(modules) > 1}


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_libraries_with_one_purpose_are_used_where_it_is_served(library):
    users = {
        room(module)
        for module, tree in sources().items()
        for name in imported(tree)
        if name.split(".")[0] == library
    }
    assert users <= ONLY_IN[library]


def test_library_code_neither_prints_nor_exits_nor_shares_random_numbers():
    forbidden = {"print", "input", "breakpoint", "exit", "quit"}
    for module, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, f"{module}, line {node.lineno}: {node.func.id}()"
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random.seed", "np.random.rand"):
                pytest.fail(f"{module}, line {node.lineno}: global random numbers")


def test_importing_the_package_and_its_command_is_light():
    code = (
        "import sys, texseg, texseg.cli;"
        "heavy = {'numpy', 'scipy', 'cv2', 'skimage', 'sklearn', 'matplotlib', 'tifffile', 'PIL', 'tqdm'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


SLOW_TO_IMPORT = """
    sklearn scipy.stats scipy.optimize scipy.sparse.linalg pandas matplotlib tqdm rasterio networkx zarr dask
    skimage.draw
""".split()
"""What a call on a small image, and the command, would wait longer for than for the result."""

NOT_FOR_LABELS = "skimage scipy.special scipy.ndimage scipy.fft scipy.sparse numpy.f2py".split()
"""Half of the time of a first call that wants labels only; tables of segments need some of them."""

CALLS = {
    "function": "texseg.segment(np.asarray(Image.open('image.png')), 4)",
    "command": "texseg.cli.main(['segment', 'image.png', '-k', '4', '--quiet'])",
}


@pytest.mark.parametrize("call", CALLS)
def test_dividing_an_image_imports_nothing_slow_that_it_does_not_need(call, tmp_path):
    slow = SLOW_TO_IMPORT + (NOT_FOR_LABELS if call == "function" else [])
    image = np.random.default_rng(0).integers(0, 255, (128, 128)).astype(np.uint8)
    image[:, 64:] = image[:, 64:] // 32 + 100
    Image.fromarray(image).save(tmp_path / "image.png")
    code = (
        "import sys, numpy as np, texseg, texseg.cli; from PIL import Image\n"
        f"try: {CALLS[call]}\n"
        "except SystemExit as end: assert not end.code\n"
        f"print(sorted({set(slow)} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.strip() == "[]"


# ---- what is public ----------------------------------------------------------------------------------------


NEED_A_FILE = {"read_labels"}  # an example would be mostly about making the file


@pytest.mark.parametrize("name", texseg.__all__)
def test_every_public_name_can_be_imported_and_explains_itself(name):
    value = getattr(texseg, name)
    assert name in dir(texseg)
    assert inspect.getdoc(value)
    if not isinstance(value, ModuleType) and name not in NEED_A_FILE:
        assert ">>>" in inspect.getdoc(value), f"texseg.{name} has no example"


def test_the_stub_lists_the_names_and_nothing_else():
    stub = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    *imports, version = stub.body
    assert all(isinstance(node, ast.ImportFrom) and node.level == 1 for node in imports)
    assert ast.unparse(version) == "__version__: str"
    aliases = [alias for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for alias in aliases)  # the form that type checkers re-export
    assert sorted(alias.name for alias in aliases) == sorted(texseg.__all__)


@pytest.mark.parametrize("module", ["models", "metrics", "synth"])
def test_what_users_call_has_an_example(module):
    public = importlib.import_module(f"texseg.{module}")
    for name in public.__all__:
        value = getattr(public, name)
        plain_data = inspect.isclass(value) and issubclass(value, tuple)
        if not plain_data and (inspect.isfunction(value) or inspect.isclass(value)):
            assert ">>>" in inspect.getdoc(value), f"{module}.{name} has no example"


def test_names_that_modules_promise_exist():
    for module in (m for m in MODULES if room(m) not in NEED_A_VIEWER):
        loaded = importlib.import_module(f"texseg.{module}")
        for name in getattr(loaded, "__all__", ()):
            assert hasattr(loaded, name), f"{module}.__all__ names {name}"
