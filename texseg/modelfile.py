"""Model files: what they hold, and whether it makes sense.

The archive itself, and how damage to it is noticed, is :mod:`texseg.io.archive`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from texseg.channels.encode import Features
from texseg.channels.gabor import GaborBank
from texseg.channels.quantize import Range
from texseg.channels.responses import Intensity
from texseg.fitting.starts import PottsSettings
from texseg.io.archive import ModelFileError, load_model, save_model
from texseg.pixels.borders import BorderClassifier, Density, n_scores
from texseg.textures import CellTextures, WindowTextures

__all__ = ["ModelFileError", "from_plain_data", "load_model", "save_model", "to_plain_data"]

_NUMBERS = (
    "n_bins",
    "bandwidth",
    "angular_bandwidth",
    "contrast",
    "log_offset",
    "illumination_sigma",
    "patch_weight",
)
_SINCE = {"log_offset": 0.0}  # values that older files lack, with what they meant


def to_plain_data(textures: CellTextures | WindowTextures) -> dict[str, Any]:
    """Flat mapping of arrays, numbers and strings that :func:`from_plain_data` understands."""
    f = textures.features
    values: dict[str, Any] = {
        "kind": textures.kind,
        "wavelengths_of_bank": list(f.bank.wavelengths),
        "n_orientations": f.bank.n_orientations,
        "bandwidth": f.bank.bandwidth,
        "angular_bandwidth": f.bank.angular_bandwidth,
        "low": f.intensity.low,
        "high": f.intensity.high,
        "axes": f.intensity.axes,
        "contrast": f.intensity.contrast,
        "log_offset": f.intensity.log_offset,
        "illumination_sigma": f.sigma,
        "patch_weight": f.patch_weight,
        "value_weight": f.value_weight,
        "n_bins": f.n_bins,
        "ranges": np.array(f.ranges),
        "codebook": f.codebook,
        "channel_names": list(f.names),
        "wavelengths": f.wavelengths,
        "channel_weights": f.weights,
        "profiles": textures.profiles,
    }
    if isinstance(textures, CellTextures):
        values |= {
            "background": textures.background,
            "cell": textures.cell,
            "potts": list(textures.potts),
            "boundary_sigma": textures.boundary_sigma,
            "windows": list(textures.windows),
            "limits": textures.limits,
            "confusion": textures.confusion,
        }
        if textures.borders is not None:
            values |= _borders_to_plain_data(textures.borders)
    else:
        values |= {
            "proportions": textures.proportions,
            "windows": list(textures.windows),
            "beta": textures.beta,
        }
    return values


def from_plain_data(values: dict[str, Any]) -> CellTextures | WindowTextures:
    """Textures from the mapping that :func:`to_plain_data` made.

    Raises
    ------
    KeyError
        A value is missing.
    ValueError
        A value does not fit the others.
    """
    values = _SINCE | values
    _check_plain_data(values)
    bank = GaborBank(
        values["wavelengths_of_bank"],
        values["n_orientations"],
        values["bandwidth"],
        values["angular_bandwidth"],
    )
    features = Features(
        bank,
        Intensity(values["low"], values["high"], values["axes"], values["contrast"], values["log_offset"]),
        values["illumination_sigma"],
        values["patch_weight"],
        values["value_weight"],
        values["n_bins"],
        tuple(Range(float(low), float(high)) for low, high in values["ranges"]),
        values["codebook"],
        tuple(values["channel_names"]),
        values["wavelengths"],
        values["channel_weights"],
    )
    if values["kind"] == CellTextures.kind:
        return CellTextures(
            features,
            values["profiles"],
            values["background"],
            values["cell"],
            PottsSettings(*values["potts"]),
            values["boundary_sigma"],
            tuple(values["windows"]),
            values["limits"],
            values["confusion"],
            _borders_from_plain_data(values, features),
        )
    return WindowTextures(
        features, values["profiles"], values["proportions"], tuple(values["windows"]), values["beta"]
    )


def _check_plain_data(values: dict[str, Any]) -> None:
    """Refuse what does not fit together, before it fails while an image is labelled."""
    K, C, n_bins = len(values["profiles"]), len(values["channel_names"]), values["n_bins"]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_NUMBERS, ())
    shapes |= {"profiles": (K, C * n_bins), "ranges": (C, 2), "wavelengths": (C,), "channel_weights": (C,)}
    shapes |= {"low": np.shape(values["high"])}
    if values["kind"] == CellTextures.kind:
        shapes |= {"background": (C * n_bins,), "limits": (K,), "confusion": (K, K)}
        shapes |= {"potts": (len(PottsSettings._fields),), "windows": (2,), "cell": (), "boundary_sigma": ()}
        if "border_densities" in values:
            shapes |= _border_shapes(values, K, C, n_bins)
    else:
        shapes |= {"proportions": (K,), "windows": (C,), "beta": ()}
    for name, expected in shapes.items():
        array = np.asarray(values[name])
        if array.shape != expected or array.dtype.kind not in "buif":
            raise ValueError(
                f"{name} must be numbers of shape {expected}, got {array.dtype} of shape {array.shape}"
            )


def _border_shapes(values: dict[str, Any], K: int, C: int, n_bins: int) -> dict[str, tuple[int, ...]]:
    """Shapes of what belongs to a `BorderClassifier` of ``K`` textures."""
    names, learned = values["border_densities"], len(values["border_log_profiles"])
    shapes: dict[str, tuple[int, ...]] = {
        "border_log_profiles": (learned, C, n_bins),
        "border_weights": (n_scores(values["wavelengths"], len(names), learned), K),
        "border_offsets": (K,),
    }
    for name in names:
        side = len(values[f"border_{name}_factors"])
        shapes[f"border_{name}_factors"] = (side, learned * side)
        shapes[f"border_{name}_centres"] = (learned * side,)
        shapes[f"border_{name}_offsets"] = (learned,)
    return shapes


def _borders_to_plain_data(borders: BorderClassifier) -> dict[str, Any]:
    values: dict[str, Any] = {
        "border_log_profiles": borders.log_profiles,
        "border_weights": borders.weights,
        "border_offsets": borders.offsets,
        "border_densities": list(borders.densities),
    }
    for name, density in borders.densities.items():
        values |= {f"border_{name}_{field}": array for field, array in density._asdict().items()}
    return values


def _borders_from_plain_data(values: dict[str, Any], features: Features) -> BorderClassifier | None:
    if "border_densities" not in values:
        return None
    densities = {
        name: Density(*(values[f"border_{name}_{field}"] for field in Density._fields))
        for name in values["border_densities"]
    }
    return BorderClassifier(
        features,
        values["border_log_profiles"],
        densities,
        values["border_weights"],
        values["border_offsets"],
    )
