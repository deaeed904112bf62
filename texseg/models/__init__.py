"""The family of co-occurrence models: one file per model, with its equations at the top.

The names are listed in the stub file next to this one and imported when first used: dividing an image needs
none of the estimators, nor scikit-learn. "The memo" is T. Hofmann and J. Puzicha, Statistical Models for
Co-occurrence Data, A.I. Memo 1625, MIT, 1998; its sections and equations are those that the files name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
