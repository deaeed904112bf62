"""What pyproject.toml cannot say: compiled twins of a few functions, which installing can do without."""

import sys

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "texseg._kernels",
            ["texseg/kernels.c"],
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-Wno-psabi"],
            py_limited_api=True,
            optional=True,  # without a compiler, NumPy does their work, with the same labels
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
