"""Model files: safetensors with a digest of all bytes, what they hold, and checks that it makes sense.

The values that are no tables stand as JSON under ``texseg`` in the metadata; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.channels.gabor import GaborBank
from texseg.channels.planes import Planes
from texseg.channels.quantize import Range
from texseg.channels.responses import Intensity
from texseg.io.atomic import atomic_write
from texseg.io.errors import MalformedFileError
from texseg.io.files import open_regular
from texseg.method.merged import MergedTextures
from texseg.method.seeds import SeedClassifier
from texseg.method.textures import Textures
from texseg.parameters import MOST_SEGMENTS, PARAMETERS, PottsSettings
from texseg.pixels.borders import PATCH_SIZE, BorderClassifier, Density, n_scores

__all__ = [
    "ModelFileError",
    "class_names_in",
    "from_plain_data",
    "load_model",
    "parameters_in",
    "save_model",
    "to_plain_data",
]

_LARGEST = 1e300  # of images' values, their differences and limits: no difference of two is infinite
_LARGEST_PATCH = 64.0  # a levelled plane has a standard deviation of at most 1
_PATCH_SIZES = tuple(side**2 for side in range(1, 16, 2))  # pixels
_LARGEST_OF_BORDERS = 1e9  # products of such numbers stay far from overflow in single precision
_LONGEST_HALO = 4096  # pixels; a filter with this reach takes a gigabyte
_ROUNDING = 1e-3
_LARGEST_IMAGE = 2**53  # pixels
_WIDEST = 64.0  # cells, of a window
_SMALLEST_SHARE = 1e-9  # of a texture in its segment


FORMAT = "texseg model"
VERSION = 3
"""1 had no checksum; 2 was a ZIP archive, of texseg 0.2."""
_LARGEST_MODEL = 2**26  # bytes; 255 textures with 256 bins a channel are a third of it
_LARGEST_HEADER = 2**20  # bytes; 255 names and their colours are a fiftieth of it
_NO_DIGEST = "0" * 64
_DIGEST = re.compile(rb"[0-9a-f]{64}")  # the first in a file: of all its bytes, with zeros in this place


class ModelFileError(OSError):
    """A model file that is missing, broken, foreign, or written by a newer version."""


def save_model(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write a flat mapping as a model file; an interrupted call leaves no partial file.

    Parameters
    ----------
    path : str or path-like
        Where to write; an existing file is replaced.
    values : mapping of str to value
        Arrays of numbers or booleans, and anything JSON can hold (numbers, strings, None, lists and
        dictionaries of these).

    Raises
    ------
    TypeError
        A value is neither an array of numbers nor known to JSON.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rock.texseg"
    >>> save_model(path, {"names": ["quartz", "mica"], "profiles": np.eye(2)})
    >>> load_model(path)["names"]
    ['quartz', 'mica']
    """
    from safetensors.numpy import save  # only files need it

    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"model value {key!r} is an array of {array.dtype}; use numbers, or a list")
    small = {key: _plain(key, value) for key, value in values.items() if key not in arrays}
    header = {"sha256": _NO_DIGEST, "format": FORMAT, "version": VERSION, "values": small}
    tensors = {
        key: np.array(array, array.dtype.newbyteorder("="), order="C") for key, array in arrays.items()
    }
    content = save(tensors, {"texseg": json.dumps(header)})
    digest = hashlib.sha256(content).hexdigest().encode()
    atomic_write(Path(path), content.replace(_NO_DIGEST.encode(), digest, 1))


def load_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a model file that `save_model` wrote.

    Returns
    -------
    dict
        The saved values; tuples have become lists.

    Raises
    ------
    ModelFileError
        The file is missing, broken, not a model file, changed after it was written, or written by a newer
        version of the library.
    """
    name = Path(path).name
    try:
        content = _content_of(path)
        return _values_of_0_2(content) if content.startswith(b"PK") else _values_of(content)
    except ModelFileError as error:
        raise ModelFileError(f"{name}: {error}") from error
    except FileNotFoundError as error:
        raise ModelFileError(f"{name}: no such model file") from error
    except OSError as error:
        raise ModelFileError(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # what was made to look like a model fails in many ways
        raise ModelFileError(f"{name}: model file is corrupt ({error})") from error


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise TypeError(f"model value {key!r} of type {type(value).__name__} is not plain data") from error


def _content_of(path: str | os.PathLike[str]) -> bytes:
    if Path(path).is_dir():
        raise ModelFileError("is a folder, not a model file")
    try:
        with open_regular(path, _LARGEST_MODEL) as file:
            return file.read()
    except MalformedFileError as error:
        raise ModelFileError(str(error)) from error


def _values_of(content: bytes) -> dict[str, Any]:
    from safetensors.numpy import load

    length = min(int.from_bytes(content[:8], "little"), _LARGEST_HEADER)
    found = _DIGEST.search(content, 8, 8 + length)
    if found is None or b"texseg model" not in content[8 : 8 + length]:
        raise ModelFileError("not a texseg model file, or a truncated one")
    zeroed = content[: found.start()] + _NO_DIGEST.encode() + content[found.end() :]
    if hashlib.sha256(zeroed).hexdigest().encode() != found[0]:
        raise ModelFileError("model file was damaged or changed after it was written (checksum differs)")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["texseg"])
    if header["version"] > VERSION:
        raise ModelFileError(
            f"written by a newer texseg (model version {header['version']}, this one reads up to {VERSION}); "
            "update texseg"
        )
    return {**header["values"], **load(content)}


def _values_of_0_2(content: bytes) -> dict[str, Any]:
    """Read the ZIP archive that texseg 0.2 wrote; the next version will not."""
    import zipfile

    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > _LARGEST_MODEL or len(members) > 256:
            raise ModelFileError(f"would unpack to more than {_LARGEST_MODEL >> 20} MiB; refused")
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise ModelFileError("model file is corrupt (not compressed as model files are)")
        unpacked = {}
        for member in members:
            with archive.open(member) as file:  # no more than it announces
                unpacked[member.filename] = file.read(member.file_size + 1)
    header = json.loads(unpacked.pop("header.json", b"{}"))
    if header.get("format") != FORMAT:
        raise ModelFileError("not a texseg model file")
    if header["version"] != 2:
        raise ModelFileError(f"model version {header['version']} has no checksum; fit and save it again")
    small, arrays = header["values"], {n.removesuffix(".npy"): _array(c) for n, c in unpacked.items()}
    digest = hashlib.sha256(json.dumps(small, sort_keys=True).encode())
    for key in sorted(arrays):
        digest.update(json.dumps([key, arrays[key].dtype.str, arrays[key].shape]).encode())
        digest.update(arrays[key].tobytes())
    if header["sha256"] != digest.hexdigest():
        raise ModelFileError("model file was damaged or changed after it was written (checksum differs)")
    return {**small, **arrays}


def _array(content: bytes) -> NDArray[Any]:
    """Read an array, whose announced size must be that of its data."""
    file = BytesIO(content)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError("an array is not of the size it announces")
    return np.load(BytesIO(content), allow_pickle=False)


def to_plain_data(textures: Textures | MergedTextures) -> dict[str, Any]:
    """Flat mapping of arrays, numbers and strings that :func:`from_plain_data` understands."""
    if isinstance(textures, MergedTextures):
        merged = {"classes": textures.classes, "class_shares": textures.shares}
        return to_plain_data(textures.parts) | merged
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
        "has_filters": f.has_filters,
        "n_bins": f.n_bins,
        "ranges": np.array(f.ranges),
        "codebook": f.codebook,
        "channel_names": list(f.names),
        "wavelengths": f.wavelengths,
        "channel_weights": f.weights,
        "profiles": textures.profiles,
        "background": textures.background,
        "cell": textures.cell,
        "potts": list(textures.potts),
        "windows": list(textures.windows),
        "limits": textures.limits,
        "confusion": textures.confusion,
    }
    if textures.borders is not None:
        values |= _borders_to_plain_data(textures.borders)
    if textures.strokes is not None:
        values |= {f"stroke_{name}": array for name, array in textures.strokes._asdict().items()}
    from_plain_data(values)  # never write what could not be read again
    return values


def from_plain_data(values: Mapping[str, Any]) -> Textures | MergedTextures:
    """Textures from a mapping made by :func:`to_plain_data`."""
    if values["kind"] != Textures.kind:
        raise ValueError(f"kind must be {Textures.kind}, got {values['kind']!r}")
    features = _features(values)
    C, n_bins = len(features.names), features.n_bins
    K = len(values["profiles"])
    profiles = _shares("profiles", values, (K, C * n_bins), n_bins)
    if not 1 <= K <= MOST_SEGMENTS:
        raise ValueError(f"profiles must be those of 1 to {MOST_SEGMENTS} textures, got {K}")
    confusion = _check("confusion", values["confusion"], _Numbers((K, K), 0, 1 + _ROUNDING, np.float32))
    _check_sums("confusion", confusion)
    windows = _check("windows", values["windows"], _Numbers((2,), 1, 2**15))
    textures = Textures(
        features,
        profiles,
        _shares("background", values, (C * n_bins,), n_bins),
        _check("cell", values["cell"], _limits_of("cell")),
        _potts(values["potts"]),
        (float(windows[0]), float(windows[1])),
        _check("limits", values["limits"], _Numbers((K,), 0, np.inf, np.float32)),
        confusion,
        _borders(values, features, K),
        _strokes(values, C * n_bins, K),
    )
    return _with_classes(values, textures) if "classes" in values else textures


def _with_classes(values: Mapping[str, Any], textures: Textures) -> MergedTextures:
    """Restore the merged segments of the model."""
    P = len(textures.profiles)
    classes = _check("classes", values["classes"], _Numbers((P,), 0, P - 1, int))
    if len(np.unique(classes)) <= classes.max():
        raise ValueError(f"classes must be numbered without gaps, got {classes.tolist()}")
    shares = _check("class_shares", values["class_shares"], _Numbers((P,), _SMALLEST_SHARE, _LARGEST_IMAGE))
    return MergedTextures(textures, classes, shares)


def class_names_in(values: Mapping[str, Any]) -> list[str]:
    """Names of the segments in a model file; empty strings for those without a name."""
    if "profiles" not in values:
        raise ModelFileError("holds no texture model: 'profiles' is missing")
    n_textures = len(np.unique(values["classes"])) if "classes" in values else len(values["profiles"])
    n_textures += "ground" in values
    names = values.get("class_names") or [""] * n_textures
    if not isinstance(names, list) or len(names) != n_textures:
        raise ModelFileError(f"class_names must be {n_textures} texts, got {names!r}")
    if not all(isinstance(name, str) for name in names):
        raise ModelFileError(f"class_names must be {n_textures} texts, got {names!r}")
    return names


def parameters_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the segmenter in a model file."""
    parameters = values["parameters"]
    if not isinstance(parameters, dict):
        raise ValueError(f"parameters must be a dictionary, got {parameters!r}")
    if unknown := parameters.keys() - PARAMETERS.keys():
        raise ValueError(f"parameters must be those of a segmenter, got {', '.join(sorted(unknown))}")
    return {name: PARAMETERS[name].checked(value) for name, value in parameters.items()}


def _potts(value: Any) -> PottsSettings:
    array = _check("potts", value, _Numbers((len(PottsSettings._fields),)))
    allowed = {
        "beta": _Numbers((), 0, 100),
        "strength": _Numbers((), 0, 1e4),  # nats
        "sigma": _Numbers((), 0.1, 100),  # cells
        "n_rounds": _Numbers((), 0, 1000, int),
        "n_sweeps": _Numbers((), 0, 1000, int),
    }
    return PottsSettings(
        *(
            _check(f"potts ({name})", part, allowed[name])
            for name, part in zip(PottsSettings._fields, array, strict=True)
        )
    )


class _Numbers(NamedTuple):
    """What is allowed in one table or number of a model file."""

    shape: tuple[int | None, ...] = ()
    """None stands for any length."""
    low: float = 0.0
    high: float = _LARGEST
    dtype: type = float
    """Type it is converted to; int allows only whole numbers."""


def _limits_of(parameter: str, shape: tuple[int | None, ...] = ()) -> _Numbers:
    row = PARAMETERS[parameter]
    return _Numbers(shape, *row.limits, int if row.base is int else float)


_EVERY = {
    **{name: _limits_of(name) for name in ("n_orientations", "n_bins", "patch_weight", "value_weight")},
    "wavelengths_of_bank": _limits_of("wavelengths", (None,)),
    "bandwidth": _Numbers((), 0.1, 4),  # octaves
    "angular_bandwidth": _Numbers((), 5, 150),  # degrees
    "illumination_sigma": _Numbers((), 1, 1024),  # pixels
    "log_offset": _Numbers(),
    "low": _Numbers((None,), -_LARGEST),
    "high": _Numbers((None,), -_LARGEST),
    "axes": _Numbers((None, None), -1.001, 1.001),
}
"""Limits of the features that do not depend on others."""


def _check(name: str, value: Any, allowed: _Numbers) -> Any:
    """Convert a number or table to its type, or raise an error that says what is wrong with it."""
    array = np.asarray(value)
    fits = len(array.shape) == len(allowed.shape) and all(
        expected in (None, side) for side, expected in zip(array.shape, allowed.shape, strict=True)
    )
    if not fits or array.dtype.kind not in "uif":
        expected = str(allowed.shape).replace("None", "any")
        raise ValueError(
            f"{name} must be numbers of shape {expected}, got {array.dtype} of shape {array.shape}"
        )
    real = array.astype(np.float64)
    inside = (real >= allowed.low) & (real <= allowed.high)  # False for NaN
    if not inside.all():
        raise ValueError(
            f"{name} must lie in {allowed.low:g} to {allowed.high:g}, got {array[~inside].flat[0].item()!r}"
        )
    broken = real != np.floor(real)
    if allowed.dtype is int and broken.any():
        raise ValueError(f"{name} must be a whole number, got {array[broken].flat[0].item()!r}")
    if array.ndim:
        return array.astype(allowed.dtype, order="C")
    return int(array) if allowed.dtype is int else array.item()


def _check_sums(name: str, table: NDArray[np.floating]) -> None:
    """Raise an error if the last axis of a table of shares does not sum to one."""
    sums = table.sum(axis=-1, dtype=np.float64)
    if np.abs(sums - 1).max(initial=0) > _ROUNDING:
        raise ValueError(f"{name} must sum to one, got a sum of {sums.flat[np.abs(sums - 1).argmax()]:g}")


def ground_of(values: Mapping[str, Any]) -> NDArray[np.floating] | None:
    """Profile of flat ground, (C, n_bins), if the model has one."""
    if "ground" not in values:
        return None
    C, n_bins = len(values["channel_names"]), int(values["n_bins"])
    return _check("ground", values["ground"], _Numbers((C, n_bins), 0, 1, np.float32))


def _features(values: Mapping[str, Any]) -> Features:
    """Read the features of a model file, checked against each other before any filter is made."""
    v = {name: _check(name, values[name], allowed) for name, allowed in _EVERY.items()}
    names = _names("channel_names", values["channel_names"])
    C, n_bands = len(names), len(v["low"])
    has_filters = values["has_filters"]
    if not isinstance(has_filters, bool):
        raise ValueError(f"has_filters must be true or false, got {has_filters!r}")
    n_filters = len(v["wavelengths_of_bank"]) * v["n_orientations"] if has_filters else 0
    if n_filters > C or not C or not n_bands:
        raise ValueError(f"{C} channels of {n_bands} bands cannot hold those of {n_filters} filters")
    _check("high", values["high"], _Numbers((n_bands,), -_LARGEST))
    v["axes"] = _check("axes", values["axes"], _Numbers((None, n_bands), -1.001, 1.001))
    v["contrast"] = _check("contrast", values["contrast"], _Numbers((), 0, 100 * n_bands))
    v["ranges"] = _check("ranges", values["ranges"], _Numbers((C, 2), -_LARGEST))
    n_textons = v["n_bins"] if v["patch_weight"] > 0 else 0
    v["codebook"] = _check(
        "codebook",
        values["codebook"],
        _Numbers((n_textons, None), -_LARGEST_PATCH, _LARGEST_PATCH, np.float32),
    )
    if v["codebook"].shape[1] not in _PATCH_SIZES:
        raise ValueError(f"codebook must hold square patches, got {v['codebook'].shape[1]} numbers a texton")
    v["wavelengths"] = _check("wavelengths", values["wavelengths"], _Numbers((C,), 0, 1024))
    v["channel_weights"] = _check(
        "channel_weights",
        values["channel_weights"],
        _Numbers((C,), 0, 8 * PARAMETERS["value_weight"].limits[1], np.float32),
    )
    for name, low, high in (("low", v["low"], v["high"]), ("ranges", *v["ranges"].T)):
        if (low > high).any():
            raise ValueError(f"{name}: a range ends below its beginning")
    if len(v["axes"]) and np.abs(np.square(v["axes"]).sum(axis=1) - 1).max() > _ROUNDING:
        raise ValueError("axes must have length one")
    if not len(v["axes"]) and n_bands not in (1, 3):
        raise ValueError(f"axes are missing for {n_bands} bands")
    bank = GaborBank(
        v["wavelengths_of_bank"].tolist(), v["n_orientations"], v["bandwidth"], v["angular_bandwidth"]
    )
    if bank.halo > _LONGEST_HALO:
        raise ValueError(f"filters must look at most {_LONGEST_HALO} pixels far, these look {bank.halo}")
    features = Features(
        bank,
        Intensity(v["low"], v["high"], v["axes"], v["contrast"], float(v["log_offset"])),
        v["illumination_sigma"],
        v["patch_weight"],
        v["value_weight"],
        v["n_bins"],
        tuple(Range(*range_) for range_ in v["ranges"].tolist()),
        v["codebook"],
        names,
        v["wavelengths"],
        v["channel_weights"],
        has_filters,
    )
    _check_channels(features)
    return features


def _check_channels(f: Features) -> None:
    """Make sure that an image would yield exactly the channels of the model."""
    image = Planes([np.zeros((1, 1), np.float32)] * f.n_bands, None)
    found = f.recipes(image)
    if tuple(channel.name for channel in found) != f.names:
        expected = ", ".join(channel.name for channel in found)
        raise ValueError(f"channel_names must be {expected}, got {', '.join(f.names)}")
    if [channel.wavelength for channel in found] != f.wavelengths.tolist():
        raise ValueError("wavelengths must be those of the channels")
    if not np.allclose([channel.weight for channel in found], f.weights, rtol=_ROUNDING, atol=0):
        raise ValueError("channel_weights must be those of the channels")


def _names(name: str, value: Any) -> tuple[str, ...]:
    names = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(names, list) or not all(isinstance(text, str) for text in names):
        raise ValueError(f"{name} must be a list of texts, got {value!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"{name} must differ, got {', '.join(names)}")
    return tuple(names)


def _shares(
    name: str, values: Mapping[str, Any], shape: tuple[int | None, ...], n_bins: int
) -> NDArray[np.float32]:
    """Check histograms in which every channel must sum to one."""
    table = _check(name, values[name], _Numbers(shape, 0, 1 + _ROUNDING, np.float32))
    _check_sums(name, table.reshape(*table.shape[:-1], table.shape[-1] // n_bins, n_bins))
    return table


def _borders_to_plain_data(borders: BorderClassifier) -> dict[str, Any]:
    values: dict[str, Any] = {
        "border_log_profiles": borders.log_profiles,
        "border_weights": borders.weights,
        "border_offsets": borders.offsets,
        "border_densities": ["form"],
    }
    return values | {f"border_form_{name}": array for name, array in borders.density._asdict().items()}


def _borders(values: Mapping[str, Any], features: Features, n_textures: int) -> BorderClassifier | None:
    if "border_densities" not in values:
        return None
    if values["border_densities"] != ["form"]:
        raise ValueError(f"border_densities must be form, got {values['border_densities']!r}")
    C, n_bins = len(features.names), features.n_bins
    log_profiles = _check(
        "border_log_profiles",
        values["border_log_profiles"],
        _Numbers((None, C, n_bins), -50, _ROUNDING, np.float32),
    )
    _check_sums("border_log_profiles (as shares)", np.exp(log_profiles))
    learned = len(log_profiles)
    D = PATCH_SIZE
    shapes = {"factors": (D, learned * D), "centres": (learned * D,), "offsets": (learned,)}
    density = Density(
        **{
            part: _check(f"border_form_{part}", values[f"border_form_{part}"], _real(shape))
            for part, shape in shapes.items()
        }
    )
    shape = (n_scores(features.wavelengths, learned), n_textures)
    return BorderClassifier(
        features,
        log_profiles,
        density,
        _check("border_weights", values["border_weights"], _real(shape)),
        _check("border_offsets", values["border_offsets"], _real((n_textures,))),
    )


def _real(shape: tuple[int, ...], dtype: type = np.float32) -> _Numbers:
    return _Numbers(shape, -_LARGEST_OF_BORDERS, _LARGEST_OF_BORDERS, dtype)


def _strokes(values: Mapping[str, Any], n_columns: int, n_classes: int) -> SeedClassifier | None:
    if "stroke_weights" not in values:
        return None
    sides = _check("stroke_sides", values["stroke_sides"], _Numbers((None,), 1, _WIDEST))
    return SeedClassifier(
        sides,
        _check("stroke_weights", values["stroke_weights"], _real((len(sides), n_columns, n_classes))),
        _check("stroke_offsets", values["stroke_offsets"], _real((n_classes,))),
    )
