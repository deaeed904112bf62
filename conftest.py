"""Which modules cannot be collected here: those of extras that are not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("napari") else ["texseg/napari"]
