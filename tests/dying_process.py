"""A stand-in for the work on one image that ends its process, as the kernel does when memory runs out."""

import os

from texseg.cli.outputs import Outcome


def process(item, work, n_jobs):
    if item.path.stem == "deadly":
        os._exit(9)
    return Outcome(item.path, "done")
