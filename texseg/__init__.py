"""Divide an image by its textures.

The public names are listed, with their types, in the stub file next to this one; they are
imported when first used, so that ``import texseg`` stays fast.
"""

import lazy_loader

__version__ = "0.3.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
