"""One colour for each label, the same in every output.

The first seven colours are those of Okabe and Ito (2008, "Color Universal Design"); the next thirteen are
those that stay farthest from each other and from black under normal, protanopic, deuteranopic and
tritanopic vision (Machado et al. 2009): any two of the twenty differ by at least 10.8 (CIEDE2000).
"""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray

_COLOURS = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (240, 228, 66),
    (86, 180, 233),
    (213, 94, 0),
    (221, 238, 221),
    (136, 17, 0),
    (85, 85, 85),
    (51, 68, 102),
    (34, 0, 221),
    (153, 204, 136),
    (238, 221, 255),
    (204, 170, 170),
    (136, 119, 255),
    (136, 85, 68),
    (102, 119, 119),
    (187, 255, 170),
    (187, 51, 0),
)
_GOLDEN_RATIO = (5**0.5 - 1) / 2


def palette(n_labels: int) -> NDArray[np.uint8]:
    """Colours of the labels 0 to `n_labels`.

    Parameters
    ----------
    n_labels : int
        Largest label.

    Returns
    -------
    ndarray of uint8, shape (n_labels + 1, 3)
        Red, green, blue; row 0, for "no data", is black. Above label 20 the colours are spread over all hues
        and no longer chosen for colour-blind readers.

    Examples
    --------
    >>> palette(2).tolist()
    [[0, 0, 0], [0, 114, 178], [230, 159, 0]]
    """
    spread = [_spread_colour(i) for i in range(len(_COLOURS), n_labels)]
    return np.array([(0, 0, 0), *_COLOURS[:n_labels], *spread], dtype=np.uint8)


def _spread_colour(index: int) -> tuple[int, ...]:
    """Colour with the hue of a golden-ratio sequence and a lightness that changes from one to the next."""
    hue = (index * _GOLDEN_RATIO) % 1.0
    lightness = (0.35, 0.5, 0.65, 0.8)[index % 4]
    return tuple(round(255 * part) for part in colorsys.hls_to_rgb(hue, lightness, 0.8))
