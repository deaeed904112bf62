"""The settings of a segmentation, and the presets that fill them in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from texseg.fitting.starts import PottsSettings

__all__ = ["PRESETS", "Settings", "settings_for"]

_REFERENCE_SIDE = 512  # pixels; lengths below are meant for images whose longer side is this
_SMALLEST_SCALE = 0.5
_MOST_BINS = 256


@dataclass(frozen=True)
class Settings:
    """What a segmentation is made with; lengths in pixels."""

    wavelengths: tuple[float, ...] = (2 * 2**0.5, 4 * 2**0.5, 8 * 2**0.5)
    """Of the filters: three octaves down from sqrt(2) / 4 cycles per pixel."""
    n_orientations: int = 4
    n_bins: int = 40
    """Bins a channel."""
    illumination_sigma: float = 13.0
    """Local mean and contrast are taken over a Gaussian of this standard deviation."""
    patch_weight: float = 4.0
    """Weight of the patch channel against 1 for a filter; 0 leaves it out."""
    value_weight: float = 1.0
    """Factor on the weights of the plain values (1 on grey, 8 on colour images); 0 leaves them out."""
    cell: int = 8
    """Side of the cells that the clusters are fitted on."""
    windows: tuple[float, float] = (48.0, 80.0)
    """Sides of the windows of the starts: for channels up to 8 pixels of wavelength, and above."""
    n_starts: int = 24
    """Runs of the hard ACM from different seeds, for up to five clusters; more clusters get more."""
    n_exchanges: int = 3
    """Rounds in which one cluster of the best run is split and two others are merged, at most."""
    n_moves: int = 6
    """Such moves that are tried in a round."""
    potts: PottsSettings = PottsSettings()
    boundary_sigma: float = 4.5
    """Standard deviation of the Gaussian neighbourhood of pixels."""
    borders: tuple[str, ...] | None = ("form",)
    """What borders are learned from, see `texseg.pixels.borders.learn_borders`; None: they are not."""
    composite: int = 300
    """Largest side of the composites that borders are learned from."""
    window_ratio: float = 6.0
    """Plain path: side of a channel's window in wavelengths."""
    coarsest: int = 32
    """Plain path: side of the cells that the annealing begins on."""

    def scaled(self, side: int) -> Settings:
        """Adapt cells, windows and smoothing to an image's longer side, within limits; filters never."""
        scale = min(1.0, max(_SMALLEST_SCALE, side / _REFERENCE_SIDE))
        small, large = self.windows
        return replace(
            self,
            cell=max(2, round(self.cell * scale)),
            windows=(small * scale, large * scale),
            boundary_sigma=self.boundary_sigma * scale,
        )


PRESETS: dict[str, Settings] = {
    "default": Settings(),
    "accurate": Settings(borders=("detail", "form", "frequencies"), composite=400),
    "plain": Settings(patch_weight=0.0, value_weight=0.0, borders=None),
}
"""``default`` is fast; ``accurate`` learns more of what borders look like; ``plain`` is the path of A.I. Memo
1625."""


def settings_for(preset: str, **changes: Any) -> Settings:
    """Take the settings of a preset, with those changes that are not None.

    Examples
    --------
    >>> settings_for("default", cell=4, n_bins=None).cell
    4
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(sorted(PRESETS))}, got {preset!r}")
    given = {name: value for name, value in changes.items() if value is not None}
    for name, value in given.items():
        if name == "wavelengths":
            given[name] = _check_wavelengths(value)
        elif name.endswith("weight"):
            if not isinstance(value, (int, float, np.number)) or not 0 <= value < np.inf:
                raise ValueError(f"{name} must be a finite number, at least 0, got {value!r}")
        else:
            most = _MOST_BINS if name == "n_bins" else None
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or value < 1 or (most is not None and value > most):
                limits = f"of at least 1, at most {most}" if most else "of at least 1"
                raise ValueError(f"{name} must be a whole number {limits}, got {value!r}")
    return replace(PRESETS[preset], **given)


def _check_wavelengths(value: Any) -> tuple[float, ...]:
    try:
        return tuple(float(w) for w in value)
    except (TypeError, ValueError):
        raise ValueError(f"wavelengths must be a sequence of numbers in pixels, got {value!r}") from None
