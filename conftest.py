"""Which modules are not collected: those of missing extras, and one for the type checker alone."""

from importlib.util import find_spec

collect_ignore = ["tests/typed_use.py"] + ([] if find_spec("napari") else ["texseg/napari"])
