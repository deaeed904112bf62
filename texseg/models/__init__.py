"""The family of co-occurrence models: one file per model, with its equations at the top.

The names are listed in the stub file beside this one and imported when first used: dividing an image needs
none of the estimators, nor scikit-learn.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
