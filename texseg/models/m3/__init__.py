"""Multidimensional membership mixtures: every point belongs to a component of several mixtures at once."""

from texseg.models.m3.finite import FiniteM3

__all__ = ["FiniteM3"]
