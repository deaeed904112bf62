"""Model files: safetensors with a digest of all bytes, what they hold, and checks that it makes sense.

The values that are no tables stand as JSON under ``texseg`` in the metadata; nothing is ever unpickled.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
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
from texseg.channels.textons import patch_side
from texseg.io.files import MalformedFileError, atomic_write, open_regular, output_path, path_of
from texseg.io.regions import checked_size, printable_name
from texseg.method.edits import MergedTextures
from texseg.method.seeds import SeedClassifier
from texseg.method.textures import Textures
from texseg.parameters import MOST_SEGMENTS, PARAMETERS, PottsSettings, checked
from texseg.pixels.borders import PATCH_SIZE, BorderClassifier, Density, n_scores

_PATCH_SIZES = tuple(side**2 for side in range(1, 16, 2))  # pixels
_LONGEST_HALO = 4096  # pixels; a filter with this reach takes a gigabyte
_ROUNDING = 1e-3
_CHANGED = "model file was damaged or changed after it was written (checksum differs)"

FORMAT = "texseg model"
VERSION = 3  # 1 had no checksum; 2 was a ZIP archive, of texseg 0.2
_LARGEST_MODEL = 2**26  # bytes; 255 textures with 256 bins a channel are a third of it
_LARGEST_HEADER = 2**20  # bytes; 255 names and their colours are a fiftieth of it
_NO_DIGEST = "0" * 64
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_DIGEST = re.compile(rb"[0-9a-f]{64}")  # the first in a file: of all its bytes, with zeros in this place


class ModelFileError(OSError):
    """A model file that is missing, broken, foreign, or written by a newer version."""


def save_model(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write arrays of numbers, and what JSON can hold, by name; the file appears whole or not at all."""
    from safetensors.numpy import save  # only files need it

    path = output_path(path, "model")
    tensors, small = dict[str, NDArray[Any]](), dict[str, Any]()
    for key, value in values.items():
        if not isinstance(value, np.ndarray):
            small[key] = value.item() if isinstance(value, np.generic) else value
            try:
                json.dumps(small[key])
            except TypeError as error:
                kind = type(value).__name__
                raise TypeError(f"model value {key!r} of type {kind} is not plain data") from error
        elif value.dtype.kind in "biuf":
            tensors[key] = np.array(value, value.dtype.newbyteorder("="), order="C")
        else:
            raise TypeError(f"model value {key!r} is an array of {value.dtype}; use numbers, or a list")
    header = {"sha256": _NO_DIGEST, "format": FORMAT, "version": VERSION, "values": small}
    content = save(tensors, {"texseg": json.dumps(header)})
    digest = hashlib.sha256(content).hexdigest().encode()
    atomic_write(path, content.replace(_NO_DIGEST.encode(), digest, 1))


def load_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save_model` wrote; tuples have become lists. Any fault is a ModelFileError."""
    name = path_of(path).name
    try:
        if Path(path).is_dir():
            raise ModelFileError("is a folder, not a model file")
        with open_regular(path, _LARGEST_MODEL) as file:
            content = file.read()
        return _values_of_0_2(content) if content.startswith(b"PK") else _values_of(content)
    except (ModelFileError, MalformedFileError) as error:
        raise ModelFileError(f"{name}: {error}") from error
    except FileNotFoundError as error:
        raise ModelFileError(f"{name}: no such model file") from error
    except OSError as error:
        raise ModelFileError(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # what was made to look like a model fails in many ways
        raise ModelFileError(f"{name}: model file is corrupt ({error})") from error


def _values_of(content: bytes) -> dict[str, Any]:
    from safetensors.numpy import load

    length = min(int.from_bytes(content[:8], "little"), _LARGEST_HEADER)
    found = _DIGEST.search(content, 8, 8 + length)
    if found is None or b"texseg model" not in content[8 : 8 + length]:
        raise ModelFileError("not a texseg model file, or a truncated one")
    zeroed = content[: found.start()] + _NO_DIGEST.encode() + content[found.end() :]
    if hashlib.sha256(zeroed).hexdigest().encode() != found[0]:
        raise ModelFileError(_CHANGED)
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["texseg"])
    if header["version"] > VERSION:
        versions = f"model version {header['version']}, this one reads up to {VERSION}"
        raise ModelFileError(f"written by a newer texseg ({versions}); update texseg")
    return {**header["values"], **load(content)}


def _values_of_0_2(content: bytes) -> dict[str, Any]:
    """Read the ZIP archive that texseg 0.2 wrote; the next version will not."""
    import zipfile

    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > _LARGEST_MODEL or len(members) > 256:
            raise ModelFileError(f"would unpack to more than {_LARGEST_MODEL >> 20} MiB; refused")
        if {member.compress_type for member in members} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ModelFileError("model file is corrupt (not compressed as model files are)")
        # no more is unpacked than a member announces
        unpacked = {each.filename: archive.open(each).read(each.file_size + 1) for each in members}
    header = json.loads(unpacked.pop("header.json", b"{}"))
    if header.get("format") != FORMAT:
        raise ModelFileError("not a texseg model file")
    if header["version"] != 2:
        raise ModelFileError(f"model version {header['version']} has no checksum; fit and save it again")
    arrays = {}
    for name, member in unpacked.items():
        file = BytesIO(member)
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(member) - file.tell():
            raise ValueError("an array is not of the size it announces")
        arrays[name.removesuffix(".npy")] = np.load(BytesIO(member), allow_pickle=False)
    digest = hashlib.sha256(json.dumps(header["values"], sort_keys=True).encode())
    for key, array in sorted(arrays.items()):
        digest.update(json.dumps([key, array.dtype.str, array.shape]).encode() + array.tobytes())
    if header["sha256"] != digest.hexdigest():
        raise ModelFileError(_CHANGED)
    return {**header["values"], **arrays}


# ---- what the values mean ----------------------------------------------------------------------------------


class _Numbers(NamedTuple):
    """What is allowed in one table or number of a model file."""

    axes: str
    """A letter for the length of each: C channels, B bins, M = C B, K textures, N bands, ...; * is any."""
    low: float
    high: float
    dtype: type  # type it is converted to; int allows only whole numbers


_TYPES: dict[str, type] = {"double": float, "single": np.float32, "whole": int}
_PARAMETERS = ("n_orientations", "n_bins", "patch_weight", "value_weight", "cell")


def _limits() -> dict[str, _Numbers]:
    """Limits of the parameters that a model file holds, and of all else, which its description lists."""
    rows = {name: PARAMETERS[name] for name in _PARAMETERS}
    found = {name: _Numbers("", *row.limits, int if row.base is int else float) for name, row in rows.items()}
    found["wavelengths_of_bank"] = _Numbers("*", *PARAMETERS["wavelengths"].limits, float)
    for line in Path(__file__).with_suffix(".tsv").read_text("ascii").splitlines()[1:]:
        name, axes, low, high, kind, _ = line.split("\t")
        found[name] = _Numbers(axes, float(low), float(high), _TYPES[kind])
    return found


_LIMITS = _limits()
_OF_POTTS = [name for name in _LIMITS if name.startswith("potts (")]
_SOME_HAVE = ("border_", "stroke_", "class", "ground", "potts (")  # of tables that not every model has
_OF_BANK = ("n_orientations", "bandwidth", "angular_bandwidth")
_FEATURES = ("patch_weight", "value_weight", "has_filters", "n_bins", "codebook", "wavelengths")
_TEXTURES = ("kind", "profiles", "background", "cell", "limits", "confusion")
_BORDERS = ("log_profiles", "weights", "offsets")


def _to_plain_data(textures: Textures | MergedTextures) -> dict[str, Any]:
    """Flat mapping of arrays, numbers and strings that :func:`_from_plain_data` understands."""
    if isinstance(textures, MergedTextures):
        return _to_plain_data(textures.parts) | {"classes": textures.classes, "class_shares": textures.shares}
    f, borders = textures.features, textures.borders
    values: dict[str, Any] = {name: getattr(f.bank, name) for name in _OF_BANK}
    values |= f.intensity._asdict() | {name: getattr(f, name) for name in _FEATURES}
    values |= {name: getattr(textures, name) for name in _TEXTURES}
    values |= {"wavelengths_of_bank": list(f.bank.wavelengths), "spacing_of_bank": list(f.bank.spacing)}
    values |= {"illumination_sigma": f.sigma, "ranges": np.array(f.ranges), "channel_names": list(f.names)}
    values |= {"channel_weights": f.weights, "potts": list(textures.potts), "windows": list(textures.windows)}
    if borders is not None:
        values |= {f"border_{name}": getattr(borders, name) for name in _BORDERS}
        values |= {f"border_form_{name}": array for name, array in borders.density._asdict().items()}
        values["border_densities"] = ["form"]
    if textures.strokes is not None:
        values |= {f"stroke_{name}": array for name, array in textures.strokes._asdict().items()}
    _from_plain_data(values)  # never write what could not be read again
    return values


def _from_plain_data(values: Mapping[str, Any]) -> tuple[Textures | MergedTextures, Any]:
    """Textures from a mapping made by :func:`_to_plain_data`, and flat background (C, n_bins) or None."""
    if "spacing_of_bank" not in values:  # before volumes
        values = {**values, "spacing_of_bank": [1.0, 1.0], "potts": [*values["potts"], 0.0]}
    names, spacing, K = values["channel_names"], values["spacing_of_bank"], len(values["profiles"])
    are_texts = isinstance(names, list) and all(isinstance(text, str) for text in names)
    is_space, has_filters = len(spacing) in (2, 3) and min(spacing) == 1, values["has_filters"]
    for is_right, sentence in (
        (values["kind"] == Textures.kind, f"kind must be {Textures.kind}, got {values['kind']!r}"),
        (is_space, f"spacing_of_bank must be 2 or 3 numbers from 1 on, got {list(spacing)}"),
        (are_texts, f"channel_names must be a list of texts, got {names!r}"),
        (isinstance(has_filters, bool), f"has_filters must be true or false, got {has_filters!r}"),
        (1 <= K <= MOST_SEGMENTS, f"profiles must be those of 1 to {MOST_SEGMENTS} textures, got {K}"),
    ):
        if not is_right:
            raise ValueError(sentence)
    C, B = len(names), _check("n_bins", values["n_bins"], _LIMITS["n_bins"], {})
    sizes = {"C": C, "B": B, "M": C * B, "K": K, "P": PATCH_SIZE}
    held = [name for name in _LIMITS if name in values or not name.startswith(_SOME_HAVE)]
    v = {name: _check(name, values[name], _LIMITS[name], sizes) for name in held}
    features = _features(v, tuple(names), has_filters)
    for name, length in (("profiles", B), ("background", B), ("confusion", K)):
        _check_sums(name, v[name], length)
    of_potts = zip(_OF_POTTS, v["potts"], strict=True)
    potts = PottsSettings(*(_check(name, value, _LIMITS[name], {}) for name, value in of_potts))
    about = v["profiles"], v["background"], v["cell"], potts, tuple(v["windows"].tolist())
    forms = values.get("border_densities")
    borders = None if forms is None else _borders(forms, v, features, sizes)
    of_seeds = [f"stroke_{name}" for name in SeedClassifier._fields if "stroke_weights" in values]
    strokes = SeedClassifier(*(v[name] for name in of_seeds)) if of_seeds else None
    textures = Textures(features, *about, v["limits"], v["confusion"], borders, strokes)
    if "classes" not in values:
        return textures, v.get("ground")
    if len(np.unique(v["classes"])) <= v["classes"].max():
        raise ValueError(f"classes must be numbered without gaps, got {v['classes'].tolist()}")
    return MergedTextures(textures, v["classes"], v["class_shares"]), v.get("ground")


def save_textures(
    path: str | os.PathLike[str],
    textures: Textures | MergedTextures,
    parameters: Mapping[str, Any],
    names: Sequence[str],
    ground: NDArray[np.floating] | None,
    colours: Mapping[str, str],
    pixel_size: Sequence[Any] | None,
) -> None:
    """Write what a segmenter has learned to a model file."""
    values = {"parameters": parameters, **_to_plain_data(textures)}
    values |= {"class_names": list(names)} if any(names) else {}
    values |= {"colours": dict(colours)} if colours else {}
    values |= {} if ground is None else {"ground": ground}
    if pixel_size is not None:
        values["pixel_size"] = [each for each in checked_size(pixel_size) if each is not None]
    save_model(path, values)


def read_textures(path: str | os.PathLike[str]) -> tuple[Any, ...]:
    """Textures, parameters, names, flat background (C, n_bins) or None, colours by name, size of a pixel."""
    values = load_model(path)
    try:
        (textures, ground), parameters = _from_plain_data(values), values["parameters"]
        if not isinstance(parameters, dict):
            raise ValueError(f"parameters must be a dictionary, got {parameters!r:.80}")
        if unknown := parameters.keys() - PARAMETERS.keys():
            raise ValueError(f"parameters must be those of a segmenter, got {', '.join(sorted(unknown))}")
        parameters = {**parameters, "n_segments": len(textures.profiles)}
        checked(parameters)
        n_segments = len(textures.profiles) + ("ground" in values)
        names = values.get("class_names") or [""] * n_segments
        are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not are_texts or len(names) != n_segments:
            raise ValueError(f"class_names must be {n_segments} texts, got {names!r:.80}")
        names = tuple(map(printable_name, names))
        size = checked_size(values["pixel_size"]) if "pixel_size" in values else None
        colours = values.get("colours", {})
        if not isinstance(colours, dict) or not all(_COLOUR.fullmatch(str(c)) for c in colours.values()):
            raise ValueError(f"colours must be of the form #0072b2, by names, got {colours!r:.80}")
    except KeyError as missing:
        raise ModelFileError(f"{path} holds no texture model: {missing} is missing") from None
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{path} holds an invalid texture model: {error}") from None
    given = {name: PARAMETERS[name].checked(value) for name, value in parameters.items()}
    return textures, given, names, ground, colours, size


def _check(name: str, value: Any, allowed: _Numbers, sizes: dict[str, int]) -> Any:
    """Convert a number or table to its type, or say what is wrong with it; unknown lengths become known."""
    array = np.asarray(value)
    shape = tuple(int(letter) if letter.isdecimal() else sizes.get(letter) for letter in allowed.axes)
    fits = len(array.shape) == len(shape) and all(map(lambda n, side: n in (None, side), shape, array.shape))
    if not fits or array.dtype.kind not in "uif":
        shapes = f"{shape}, got {array.dtype} of shape {array.shape}".replace("None", "any")
        raise ValueError(f"{name} must be numbers of shape {shapes}")
    for letter, side in zip(allowed.axes.replace("*", " "), array.shape, strict=True):
        sizes.setdefault(letter, side)
    real = array.astype(np.float64)
    outside = ~((real >= allowed.low) & (real <= allowed.high))  # True for NaN
    broken = (real != np.floor(real)) & (allowed.dtype is int)
    for wrong, kind in (
        (outside, f"lie in {allowed.low:g} to {allowed.high:g}"),
        (broken, "be a whole number"),
    ):
        if wrong.any():
            raise ValueError(f"{name} must {kind}, got {array[wrong].flat[0].item()!r}")
    if array.ndim:
        return array.astype(allowed.dtype, order="C")
    return int(array) if allowed.dtype is int else array.item()


def _check_sums(name: str, table: NDArray[np.floating], length: int) -> None:
    """Raise an error if each ``length`` shares of a table, along its last axis, do not sum to one."""
    sums = table.reshape(-1, length).sum(axis=1, dtype=np.float64)
    if np.abs(sums - 1).max(initial=0) > _ROUNDING:
        raise ValueError(f"{name} must sum to one, got a sum of {sums[np.abs(sums - 1).argmax()]:g}")


def _features(v: dict[str, Any], names: tuple[str, ...], has_filters: bool) -> Features:
    """Features of checked tables, which are held against each other before any filter is made."""
    C, n_bands, spacing = len(names), len(v["low"]), tuple(v["spacing_of_bank"].tolist())
    n_axes = len(spacing)
    n_filters = len(v["wavelengths_of_bank"]) * v["n_orientations"] if has_filters and n_axes == 2 else 0
    if n_filters > C or not C or not n_bands:
        raise ValueError(f"{C} channels of {n_bands} bands cannot hold those of {n_filters} filters")
    n_textons = v["n_bins"] if v["patch_weight"] > 0 else 0
    if len(v["codebook"]) != n_textons:
        raise ValueError(f"codebook must hold {n_textons} textons, got {len(v['codebook'])}")
    if v["codebook"].shape[1] not in (_PATCH_SIZES if n_axes == 2 else [patch_side(3) ** 3]):
        raise ValueError(f"codebook must hold square patches, got {v['codebook'].shape[1]} numbers a texton")
    for name, low, high in (("low", v["low"], v["high"]), ("ranges", *v["ranges"].T)):
        if (low > high).any():
            raise ValueError(f"{name}: a range ends below its beginning")
    if len(v["axes"]) and np.abs(np.square(v["axes"]).sum(axis=1) - 1).max() > _ROUNDING:
        raise ValueError("axes must have length one")
    if not len(v["axes"]) and n_bands not in (1, 3):
        raise ValueError(f"axes are missing for {n_bands} bands")
    widths = v["bandwidth"], v["angular_bandwidth"]
    bank = GaborBank(v["wavelengths_of_bank"].tolist(), v["n_orientations"], *widths, spacing)
    if bank.halo > _LONGEST_HALO:
        raise ValueError(f"filters must look at most {_LONGEST_HALO} pixels far, these look {bank.halo}")
    ranges, weights = tuple(Range(*range_) for range_ in v["ranges"].tolist()), v["channel_weights"]
    intensity = Intensity(*(v[name] for name in Intensity._fields))
    about = bank, intensity, v["illumination_sigma"], v["patch_weight"], v["value_weight"], v["n_bins"]
    f = Features(*about, ranges, v["codebook"], names, v["wavelengths"], weights, has_filters)
    _check_channels(f)
    return f


def _check_channels(f: Features) -> None:
    """Make sure that an image would yield exactly the channels of the model."""
    found = f.recipes(Planes([np.zeros((1,) * len(f.bank.spacing), np.float32)] * f.n_bands, None, []))
    if tuple(channel.name for channel in found) != f.names:
        expected = ", ".join(channel.name for channel in found)
        raise ValueError(f"channel_names must be {expected}, got {', '.join(f.names)}")
    if [channel.wavelength for channel in found] != f.wavelengths.tolist():
        raise ValueError("wavelengths must be those of the channels")
    if not np.allclose([channel.weight for channel in found], f.weights, rtol=_ROUNDING, atol=0):
        raise ValueError("channel_weights must be those of the channels")


def _borders(forms: Any, v: dict[str, Any], features: Features, sizes: dict[str, int]) -> BorderClassifier:
    if forms != ["form"]:
        raise ValueError(f"border_densities must be form, got {forms!r}")
    density = Density(*(v[f"border_form_{name}"] for name in Density._fields))
    log_profiles, weights, offsets = (v[f"border_{name}"] for name in _BORDERS)
    R = len(log_profiles)
    if (sizes["L"], sizes["S"]) != (R * PATCH_SIZE, n_scores(features.wavelengths, R)):
        raise ValueError(f"border tables must be those of {R} textures, got other shapes")
    _check_sums("border_log_profiles (as shares)", np.exp(log_profiles), features.n_bins)
    return BorderClassifier(features, log_profiles, density, weights, offsets)
