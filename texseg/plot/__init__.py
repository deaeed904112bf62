"""Figures: each function draws on ``ax=`` or ``axes=``, or on a new figure, and returns the Axes.

Functions with several panels take and return an array of Axes, (rows, columns); unused panels are hidden.
No other matplotlib state is touched: no style is set, nothing is drawn on "current" axes, nothing is shown
or saved. Images have their bands last; label 0, no data, stays without colour; label ``k`` has the same
colour everywhere, the one it has in written files.

Examples
--------
>>> import numpy as np
>>> from matplotlib.figure import Figure
>>> from texseg import plot
>>> ax = plot.overlay(np.zeros((2, 3)), np.array([[1, 1, 2], [1, 2, 2]]), ax=Figure().subplots())
>>> [text.get_text() for text in ax.get_legend().get_texts()]
['1 (50.0 %)', '2 (50.0 %)']
"""

from texseg.plot.cooccurrence import association, tree_shares, tree_words, words
from texseg.plot.filters import channel_histograms, filter_bank, filter_frequencies, responses
from texseg.plot.runs import annealing, hierarchy, selection
from texseg.plot.segments import comparison, confidence, labels, overlay, reliability

__all__ = [
    "annealing",
    "association",
    "channel_histograms",
    "comparison",
    "confidence",
    "filter_bank",
    "filter_frequencies",
    "hierarchy",
    "labels",
    "overlay",
    "reliability",
    "responses",
    "selection",
    "tree_shares",
    "tree_words",
    "words",
]
