"""The settings of a segmentation, and its presets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

__all__ = ["PRESETS", "Cue", "PottsSettings", "Settings", "settings_for"]

_REFERENCE_SIDE = 512  # pixels; lengths below are meant for images whose longer side is this
_SMALLEST_SCALE = 0.5
_VALUE_CELL = 3  # pixels
_VALUE_STRENGTH = 4.0  # nats that a unanimous neighbourhood adds to these
_MOST_BINS = 256

Cue = Literal["auto", "texture", "values"]


class PottsSettings(NamedTuple):
    """How strongly likelihood and neighbours count on cells."""

    beta: float = 0.5
    """Inverse temperature of a full cell's scores: all channels of a grey image, whose weights sum to 17,
    then count as 8.5 independent observations, since neighbouring pixels and channels are redundant."""
    strength: float = 10.0
    """Nats that a unanimous neighbourhood adds."""
    sigma: float = 1.5
    """Standard deviation of the Gaussian neighbourhood, in cells."""
    n_rounds: int = 8
    """Updates of the profiles."""
    n_sweeps: int = 3
    """Mean-field sweeps between two updates."""


@dataclass(frozen=True)
class Settings:
    """The settings of a segmentation; lengths in pixels."""

    wavelengths: tuple[float, ...] = (2 * 2**0.5, 4 * 2**0.5, 8 * 2**0.5)
    """Wavelengths of the filters: three octaves down from sqrt(2) / 4 cycles per pixel."""
    n_orientations: int = 4
    n_bins: int = 40
    """Bins per channel."""
    illumination_sigma: float = 13.0
    """Standard deviation of the Gaussian over which local mean and contrast are computed."""
    patch_weight: float = 4.0
    """Weight of the texton channel, relative to 1 for a filter; 0 leaves it out."""
    value_weight: float = 1.0
    """Factor on the weights of the plain values (1 on grey, 8 on colour images); 0 leaves them out."""
    smoothness: float = 1.0
    """Factor on the strength of the prior on the map; 0 leaves it out."""
    learned_borders: bool = True
    """Whether to learn what borders look like, see `texseg.pixels.borders`."""
    cell: int = 8
    """Side of the cells to which the clusters are fitted."""
    windows: tuple[float, float] = (48.0, 80.0)
    """Sides of the windows used for the starts: for channels with wavelengths up to 8 pixels, and above."""
    n_starts: int = 2
    """Number of annealed runs, on different windows."""
    potts: PottsSettings = PottsSettings()
    cue: Cue = "auto"
    """How segments differ: by texture, by values at the scale of pixels, or by what explains more."""

    def for_values(self, weight: float) -> Settings:
        """Adapt cells and prior to plain values with total weight ``weight``, at the scale of pixels.

        A cell, and a window, then counts as one independent observation. Cells of 2 pixels, and weights half
        or twice as large, gave the same on slices of rock.
        """
        potts = self.potts._replace(beta=1 / weight, strength=_VALUE_STRENGTH)
        return replace(
            self,
            cell=_VALUE_CELL,
            windows=(2.0 * _VALUE_CELL, 2.0 * _VALUE_CELL),
            n_starts=1,
            potts=potts,
            learned_borders=False,
        )

    def scaled(self, side: int) -> Settings:
        """Adapt cells and windows, but not filters, to an image's longer side, within limits."""
        scale = min(1.0, max(_SMALLEST_SCALE, side / _REFERENCE_SIDE))
        small, large = self.windows
        return replace(
            self,
            cell=max(2, round(self.cell * scale)),
            windows=(small * scale, large * scale),
        )


PRESETS: dict[str, Settings] = {
    "default": Settings(),
    "plain": Settings(
        patch_weight=0.0, value_weight=0.0, smoothness=0.0, learned_borders=False, cue="texture"
    ),
}
"""``default`` is the method of A.I. Memo 1625 with four additions; ``plain`` is the same without them."""


def settings_for(preset: str, **changes: Any) -> Settings:
    """Take the settings of a preset, with all changes that are not None.

    Examples
    --------
    >>> settings_for("default", cell=4, n_bins=None).cell
    4
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(sorted(PRESETS))}, got {preset!r}")
    given = {name: value for name, value in changes.items() if value is not None}
    for name, value in given.items():
        given[name] = _CHECKS[name](name, value)
    return replace(PRESETS[preset], **given)


def _check_amount(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value < np.inf:
        raise ValueError(f"{name} must be a finite number, at least 0, got {value!r}")
    return float(value)


def _check_whole(name: str, value: Any) -> int:
    most = _MOST_BINS if name == "n_bins" else None
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):
        limits = f"of at least 1, at most {most}" if most else "of at least 1"
        raise ValueError(f"{name} must be a whole number {limits}, got {value!r}")
    return int(value)


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _check_cue(name: str, value: Any) -> Cue:
    for cue in get_args(Cue):
        if value == cue:
            return cue
    raise ValueError(f"{name} must be one of {', '.join(get_args(Cue))}, got {value!r}")


def _check_wavelengths(name: str, value: Any) -> tuple[float, ...]:
    try:
        return tuple(float(w) for w in value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a sequence of numbers in pixels, got {value!r}") from None


_CHECKS: dict[str, Any] = {
    "wavelengths": _check_wavelengths,
    "n_orientations": _check_whole,
    "n_bins": _check_whole,
    "patch_weight": _check_amount,
    "value_weight": _check_amount,
    "smoothness": _check_amount,
    "learned_borders": _check_flag,
    "cell": _check_whole,
    "n_starts": _check_whole,
    "cue": _check_cue,
}
