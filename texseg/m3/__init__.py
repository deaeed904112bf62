"""Multidimensional membership mixtures: every point belongs to a component of several mixtures at once [1].

[1] Y. Jiang, M. Lim and A. Saxena, Multidimensional Membership Mixture Models, 2012.
Sections and equations in this package are those of [1].
"""

from texseg.m3.families import Family, OffsetGaussians, SharedGaussians
from texseg.m3.finite import FiniteM3
from texseg.m3.hybrid import HybridM3
from texseg.m3.infinite import InfiniteM3

__all__ = ["Family", "FiniteM3", "HybridM3", "InfiniteM3", "OffsetGaussians", "SharedGaussians"]
