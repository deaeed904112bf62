"""Which modules are not collected: those of missing extras, and one for the type checker alone."""

import os
from importlib.util import find_spec

# tests run side by side, where threads of BLAS in each of them spend their time waiting for one another
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

collect_ignore = ["tests/typed_use.py"] + ([] if find_spec("napari") else ["texseg/napari"])
