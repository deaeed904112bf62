"""Every parameter, declared once: its name, type, default, limits, help, and its option of the command.

From this table come the signatures of `segment` and `TextureSegmenter`, the checks (also of model files), the
options of the command and the documentation. A new parameter is a row, a help text, and its use.
"""

import inspect
import math
import re
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypedDict, TypeVar

from texseg.progress import Progress

if TYPE_CHECKING:
    import numpy as np

MOST_SEGMENTS = 255  # so that labels fit into a byte, with 0 for no data

_REFERENCE_SIDE = 512  # pixels; lengths are meant for images whose longer side is this
_SMALLEST_SCALE = 0.5
_VALUE_CELL = 3  # pixels
_OF_SPACE = {"illumination_sigma": 8.0, "windows": (24.0, 40.0), "learned_borders": False}
_CELL_OF_SPACE = 6  # pixels: holds about as many independent observations as 8 x 8 pixels of an image
_DIRECTIONS_OF_SPACE = 9
_REFERENCE_VOLUME = 96  # pixels, as _REFERENCE_SIDE
_VALUE_STRENGTH = 4.0  # nats that a unanimous neighbourhood adds to these
_HEAVIEST = 1e6  # weight of a channel, where a filter has 1
_LARGEST_IMAGE = 2**53  # pixels
_LONGEST_SHOWN = 80  # characters of a refused value
_SEED_KINDS = "int, RandomState, Generator or None"
_OF_PROGRESS = "function of one :class:`texseg.progress.Progress`"

Model = Literal["acm", "acm-hard", "smm", "pmm", "scm", "hacm"]
Preset = Literal["default", "plain"]
Cue = Literal["auto", "texture", "values"]
Stack = Literal["z", "t"]
_F = TypeVar("_F", bound=Callable[..., Any])


class Parameter(NamedTuple):
    """What is known about one parameter; `_completed` fills in what follows from its name and type."""

    default: Any
    # of a number, or of each number of a sequence; NaN is allowed only without limits
    limits: tuple[float, float] = (-math.inf, math.inf)
    # what None stands for in the presets ``default`` and ``plain``; None if they do not matter
    presets: tuple[Any, Any] | None = None
    flags: tuple[str, ...] = ("",)  # of the option, as click has them; none if empty, "" for its name
    kind: str = ""  # words for the type, where they are not derived from it
    check: Callable[[Any], Any] | None = None  # raises a ValueError, in place of the check by type
    name: str = ""
    help: str = ""  # for the documentation
    option: str = ""  # of the option
    group: str = "Method"  # section of the help of the command
    annotation: Any = None
    members: tuple[Any, ...] = ()  # types that are allowed

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that are allowed; empty for any other type."""
        literals = (typing.get_args(each) for each in self.members if typing.get_origin(each) is Literal)
        return next(literals, ())

    @property
    def base(self) -> type | None:
        """``int``, ``float``, ``bool``, ``str`` (of choices) or ``tuple`` (of floats); None for others."""
        if self.choices:
            return str
        known = (each for each in (bool, int, float) if each in self.members)
        return tuple if Sequence[float] in self.members else next(known, None)

    def checked(self, value: Any) -> Any:
        """Convert a value to its type."""
        if self.check is not None:
            self.check(value)
            return value
        if value is None and NoneType in self.members:
            return None
        if self.base is str and isinstance(value, str) and value in self.choices:
            return value
        if self.base is bool and (_is_bool(value) or (int in self.members and isinstance(value, Integral))):
            return bool(value)
        if self.base is tuple and hasattr(value, "__len__") and hasattr(value, "__iter__") and len(value):
            if all(self._fits(each, Real) for each in value):
                return tuple(float(each) for each in value)
        for base, kind in ((int, Integral), (float, Real)):
            if self.base is base and self._fits(value, kind):
                return base(value)
        raise ValueError(f"{self.name} must be {self.allowed}, got {shown(value)}")

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        if self.base is bool:
            return "True, False or None" if NoneType in self.members else "True or False"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        low, high = self.limits
        numbers = {int: "a whole number", float: "a number", tuple: "a sequence of numbers"}
        return numbers[self.base or float] + ("" if low == -math.inf else f" from {low:.9g} to {high:.9g}")

    def _fits(self, value: Any, kind: type) -> bool:
        if _is_bool(value) or not isinstance(value, kind):
            return False
        number: Any = value
        low, high = self.limits
        return bool(low <= number <= high) or (number != number and low == -math.inf)

    def documentation(self) -> str:
        """Give the entry of a list of parameters, as numpydoc reads it."""
        words = {int: "int", float: "float", bool: "bool", tuple: "sequence of floats"}
        choices = "{" + ", ".join(f'"{choice}"' for choice in self.choices) + "}"
        kind = self.kind or (choices if self.choices else words[self.base or float])
        default = f'"{self.default}"' if isinstance(self.default, str) else self.default
        title = f"{self.name} : {kind}, " + ("optional" if self.default is None else f"default={default}")
        text = self.help
        if self.presets is not None and "default" not in text:
            values = [", ".join(f"{v:.3g}" for v in p) if isinstance(p, tuple) else p for p in self.presets]
            plain = "" if values[0] == values[1] else f"; {values[1]} in the plain preset"
            text += f" By default {values[0]}{plain}."
        return "\n".join([title, *textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="    ")])


def _check_callback(value: Any) -> None:
    if value is not None and not callable(value):
        raise ValueError(f"callback must be a function of one Progress, got {shown(value)}")


def _check_seed(value: Any) -> None:
    """Check a number; generators are used as they are."""
    is_generator = value is None or hasattr(value, "random")
    if not is_generator and not PARAMETERS["random_state"]._fits(value, Integral):
        allowed = "a whole number from 0 to 2**32 - 1, or a generator"
        raise ValueError(f"random_state must be {allowed}, got {shown(value)}")


class Parameters(TypedDict, total=False):
    """Type and row of all parameters but ``n_segments``, which may also be passed by its place."""

    model: Annotated[Model, Parameter("acm")]
    preset: Annotated[Preset, Parameter("default")]
    channel_axis: Annotated[int | None, Parameter(None, (-4, 3))]
    spatial_dims: Annotated[int, Parameter(2, (2, 3), flags=())]
    spacing: Annotated[Sequence[float] | None, Parameter(None, (1e-9, 1e9), flags=())]
    planes: Annotated[Stack | None, Parameter(None, flags=("--series", "planes"))]
    plane_coupling: Annotated[float, Parameter(0.5, (0, 1))]
    nodata: Annotated[float | None, Parameter(None)]
    log: Annotated[bool | None, Parameter(None)]
    crop_bar: Annotated[bool, Parameter(False)]
    flat_ground: Annotated[bool, Parameter(True)]
    # results stop changing long before; far beyond, probabilities become NaN
    smoothness: Annotated[float | None, Parameter(None, (0, 1e4), presets=(1.0, 0.0))]
    min_size: Annotated[float, Parameter(0, (0, _LARGEST_IMAGE))]
    k_min: Annotated[int, Parameter(2, (1, MOST_SEGMENTS))]
    k_max: Annotated[int, Parameter(14, (1, MOST_SEGMENTS))]
    grow: Annotated[bool, Parameter(True)]
    random_state: Annotated[
        "int | np.random.RandomState | np.random.Generator | None",
        Parameter(0, (0, 2**32 - 1), None, ("--seed", "random_state"), _SEED_KINDS, _check_seed),
    ]
    verbose: Annotated[bool | int, Parameter(False, flags=())]
    callback: Annotated[
        Callable[[Progress], Any] | None, Parameter(None, flags=(), kind=_OF_PROGRESS, check=_check_callback)
    ]
    # octaves down from sqrt(2) / 4 cycles a pixel
    wavelengths: Annotated[
        Sequence[float] | None, Parameter(None, (2, 1024), ((2 * 2**0.5, 4 * 2**0.5, 8 * 2**0.5),) * 2)
    ]
    n_orientations: Annotated[
        int | None, Parameter(None, (1, 64), (4, 4), ("--orientations", "n_orientations"))
    ]
    n_bins: Annotated[int | None, Parameter(None, (2, 256), (40, 40), ("--bins", "n_bins"))]
    patch_weight: Annotated[float | None, Parameter(None, (0, _HEAVIEST), presets=(4.0, 0.0))]
    value_weight: Annotated[float | None, Parameter(None, (0, _HEAVIEST), presets=(1.0, 0.0))]
    learned_borders: Annotated[bool | None, Parameter(None, presets=(True, False))]
    cue: Annotated[Cue | None, Parameter(None, presets=("auto", "texture"))]
    cell: Annotated[int | None, Parameter(None, (1, 1024), presets=(8, 8))]
    n_starts: Annotated[int | None, Parameter(None, (1, 100), (1, 1), ("--starts", "n_starts"))]
    n_jobs: Annotated[int | None, Parameter(None, flags=())]


# the help of each parameter, in reStructuredText, with its section in the help of the command, which is else
# Method; the first sentence is the help of the option, too, unless another follows
_HELP = """
n_segments (Number): Number of textures, K; None chooses it between ``k_min`` and ``k_max``, see
    :mod:`texseg.method.number`.
    -- Number of textures; auto chooses it.
model: Clustering model (acm recommended; others for comparison). ``acm`` is the default path with all it
    has; the others cluster the histograms of windows as they are.
preset: ``plain`` turns off what was added to the method of the paper [1]_: ``patch_weight``,
    ``value_weight``, ``smoothness`` and ``learned_borders``.
channel_axis (Image): Axis of the bands of the images; None for grey images. Three bands are red, green and
    blue.
    -- Axis of the channels, where the file does not say.
spatial_dims: Axes along which textures extend: 3 for a volume (planes, rows, columns), whose textures are
    then measured in space. Strokes, masks and labels have three axes, too.
spacing: Distances of the planes, rows and columns of a volume, in any unit; equal by default.
planes (Image): The first axis counts planes in depth (z) or time (t): textures are measured within planes,
    with one model for all, and the prior on the map couples neighbouring planes.
    -- Pages of a file, or images of a folder, are planes in depth or time: textures within planes.
plane_coupling: How much a neighbouring plane counts in the prior on the map, relative to a pixel's own
    plane; 0 for scenes that move.
nodata (Image): Pixels with this value (in all bands) hold no data. NaN and infinite pixels never do.
    -- Value for no data.  [default: what the file says]
log (Image): Use the logarithm of the values, where light multiplies: gains, vignetting, amplitudes with
    speckle, transmitted light. What is in decibels is a logarithm already. By default it is used, with a
    warning, where contrast follows brightness by the same factor all over the image; never in the plain
    preset.
    -- Use the logarithm of the values: gains, vignetting, SAR amplitudes.  [default: where contrast
    follows brightness by the same factor]
crop_bar (Image): Skip the info bar of a microscope, if any is found. It gets label 0.
flat_ground (Image): Make background of one value, from a fifth of the image on or between the panels of
    a figure, a segment, see :mod:`texseg.channels.ground`; never in the plain preset, and not in volumes.
    -- Make flat background a segment of its own.  [default: yes; with --preset plain no]
smoothness: Strength with which neighbours belong together. On cells and pixels, 1 adds up to 10 nats to
    what a unanimous neighbourhood says; 0 turns this prior off, and windows round every pixel take its
    place.
min_size (Number): Merge regions with fewer pixels into the neighbour that explains them best.
    -- Merge regions with fewer pixels (or smaller than 50um2) into the neighbour that explains them best.
k_min (Number): Smallest number that is considered when the number is chosen; 1 lets an image be a single
    texture. This sorts plain from patterned images. An image without any structure always has one segment.
k_max (Number): Largest number that is considered when the number is chosen. It is that of ``hierarchy_``,
    too.
grow (Number): Let a number that is chosen on crops of a large scene grow by textures that are rare in it:
    parts of crops that look unlike most of what got their label, see :mod:`texseg.method.clusters`.
    -- Let a number chosen on crops of a large scene grow by textures that are rare in it.
random_state: Seed of the random starts.
verbose: Show a progress bar with the phase and the time left while fitting, on a terminal or in a notebook.
callback: Receives progress as numbers; an exception it raises ends the fit.
wavelengths: Wavelengths of the filters, in pixels.
    -- Wavelengths of the filters, in pixels or with a unit (1um,2um).
n_orientations: Number of directions of the filters.
n_bins: Number of bins of each channel.
patch_weight: Weight of textons (a filter has 1); 0 turns them off. They are quantised patches of 5 x 5.
value_weight: Factor on the weight of plain values (1 on grey, 8 on colour images); 0 turns them off.
learned_borders: Learn what borders look like. This uses composites of the image's own segments, see
    :mod:`texseg.pixels.borders`.
cue: What segments differ in: texture, or plain values at the scale of pixels (grains, pores, cells); auto
    picks the more informative one. See :mod:`texseg.method.cues`.
cell: Side of the cells of the fit, in pixels; by default 4 to 8, by the size of the image.
n_starts: Number of annealed runs; the best is kept. The first sees the calmest windows, the second all of
    them, and each further one a random half.
n_jobs: Threads that a call uses, on which the labels do not depend; None and -1 stand for all processors.
"""
_ENTRY = re.compile(r"(?m)^(\w+)(?: \((\w+)\))?: (.*(?:\n    (?!--).*)*)(?:\n    -- (.*(?:\n    .*)*))?")
_HELP_OF = {name: texts for name, *texts in _ENTRY.findall(_HELP)}


def _completed(name: str, annotated: Any) -> Parameter:
    """Add to a row what follows from its name and its type."""
    given, row = annotated.__origin__, annotated.__metadata__[0]
    members = typing.get_args(given) if typing.get_origin(given) in (typing.Union, UnionType) else (given,)
    text, option = (" ".join(part.split("\n    ")) for part in _HELP_OF[name][1:])
    flags, first_sentence = row.flags, text.partition(". ")[0].removesuffix(".")
    if flags == ("",):
        dashed = name.replace("_", "-")
        may_be_negated = bool in members and row.default is not False
        flags = (f"--{dashed}/--no-{dashed}" if may_be_negated else f"--{dashed}",)
    members = (int,) if isinstance(given, typing.ForwardRef) else members  # a seed
    about = {"group": _HELP_OF[name][0] or "Method", "annotation": getattr(given, "__forward_arg__", given)}
    option = option or re.sub(r"`+| \[\d\]_", "", first_sentence) + "."
    return row._replace(name=name, help=text, members=members, flags=flags, option=option, **about)


# every parameter by its name, in the order of the signatures
_K = Annotated[int | None, Parameter(None, (1, MOST_SEGMENTS), flags=("-k", "--segments", "n_segments"))]
_ALL = {"n_segments": _K} | Parameters.__annotations__
PARAMETERS = {name: _completed(name, row) for name, row in _ALL.items()}


class PottsSettings(NamedTuple):
    """How strongly likelihood and neighbours count on cells."""

    # inverse temperature of a full cell's scores: all channels of a grey image, whose weights sum to 17, then
    # count as 8.5 independent observations, since neighbouring pixels and channels are redundant
    beta: float = 0.5
    strength: float = 10.0  # nats that a unanimous neighbourhood adds
    sigma: float = 1.5  # of the Gaussian neighbourhood, in cells
    n_rounds: int = 8  # updates of the profiles
    n_sweeps: int = 3  # mean-field sweeps between two updates
    coupling: float = 0.0  # of the planes of a stack: see `texseg.fitting.assignment.PottsField`


_DEFAULTS = {name: row.presets[0] if row.presets else row.default for name, row in PARAMETERS.items()}
_FIELDS = [(name, Any, field(default=value)) for name, value in _DEFAULTS.items()]
_Resolved: Any = make_dataclass("_Resolved", _FIELDS, frozen=True)


@dataclass(frozen=True)
class Settings(_Resolved):
    """Every parameter, with the preset's value where it is None, and what follows from them; in pixels."""

    illumination_sigma: float = 13.0  # of the Gaussian over which local mean and contrast are computed
    windows: tuple[float, float] = (48.0, 80.0)  # of the starts, for wavelengths up to 8 pixels, and above
    potts: PottsSettings = PottsSettings()
    keeps_cell: bool = False  # whether `cell` was given, and does not follow the size of the image

    @property
    def n_axes(self) -> int:
        """Number of axes of space of an image: 3 for volumes and stacks of planes."""
        return 2 if self.planes is None and self.spatial_dims == 2 else 3

    @property
    def steps(self) -> tuple[float, ...]:
        """Spacing of the axes along which textures extend, relative to the finest."""
        given = self.spacing or (1.0,) * self.spatial_dims
        return tuple(step / min(given) for step in given)

    def changed(self, **values: Any) -> Self:
        """Take other values, of any parameter."""
        return replace(self, **values)

    def for_values(self, weight: float) -> Self:
        """Adapt to plain values of this total weight: a cell counts as one independent observation."""
        potts = self.potts._replace(beta=1 / weight, strength=_VALUE_STRENGTH)
        own: Any = {"cell": _VALUE_CELL, "windows": (2.0 * _VALUE_CELL, 2.0 * _VALUE_CELL), "n_starts": 1}
        return self.changed(**own, potts=potts, learned_borders=False)

    def scaled(self, side: int) -> Self:
        """Adapt cells and windows, but not filters, to an image's longer side, within limits."""
        reference = _REFERENCE_SIDE if self.spatial_dims == 2 else _REFERENCE_VOLUME
        scale = min(1.0, max(_SMALLEST_SCALE, side / reference))
        small, large = self.windows
        cell = self.cell if self.keeps_cell else max(2, round(self.cell * scale))
        return self.changed(cell=cell, windows=(small * scale, large * scale))


# ``default`` is the method of A.I. Memo 1625 with four additions; ``plain`` is the same without them
PRESETS: dict[str, Settings] = {
    preset: Settings(preset=preset, **{name: r.presets[at] for name, r in PARAMETERS.items() if r.presets})
    for at, preset in enumerate(typing.get_args(Preset))
}


def checked(values: Mapping[str, Any]) -> Settings:
    """Check parameters, each and together, and take those that are None from their preset."""
    given = {name: PARAMETERS[name].checked(value) for name, value in values.items()}
    kept = {name: v for name, v in given.items() if v is not None or PARAMETERS[name].presets is None}
    s = PRESETS[kept.get("preset", "default")].changed(**kept, keeps_cell=kept.get("cell") is not None)
    if s.n_segments is None and s.k_min > s.k_max:
        raise ValueError(f"k_min must be at most k_max ({s.k_max}), got {s.k_min}; raise k_max")
    if s.spatial_dims == 3 and s.planes is not None:
        rivals = f"planes={s.planes!r} measures textures within planes, and spatial_dims=3 in space"
        raise ValueError(f"{rivals}; leave one out")
    if s.spacing is not None and (s.spatial_dims == 2 or len(s.spacing) != 3):
        needs = "spatial_dims=3, and one number each for planes, rows and columns"
        raise ValueError(f"spacing needs {needs}; got {s.spacing} with spatial_dims={s.spatial_dims}")
    if s.planes is not None:
        s = s.changed(potts=s.potts._replace(coupling=s.plane_coupling))
    if s.spatial_dims == 3:
        if s.learned_borders and kept.get("learned_borders"):
            raise ValueError("learned_borders=True needs spatial_dims=2; borders in space are not learned")
        of_space = {"cell": _CELL_OF_SPACE, "n_orientations": _DIRECTIONS_OF_SPACE}
        s = s.changed(**_OF_SPACE, **{name: v for name, v in of_space.items() if name not in kept})
    if s.cue == "values" and s.model != "acm":
        raise ValueError(f'cue="values" is for model="acm", got model={s.model!r}')
    for name in ("value_weight", "smoothness"):
        if s.cue == "values" and getattr(s, name) == 0:
            raise ValueError(f'{name} must be above 0 with cue="values", got 0')
    return s


def check_flags(**flags: Any) -> None:
    """Refuse anything but True and False."""
    for name, value in flags.items():
        if not _is_bool(value):
            raise TypeError(f"{name} must be True or False, got {shown(value)}")


def shown(value: Any) -> str:
    """Show a refused value in an error message, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer with too many digits, or somebody's class
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def takes_parameters(function: _F) -> _F:
    """Show every parameter in the signature of a function that takes them as ``**parameters``."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keyword, named = inspect.Parameter.KEYWORD_ONLY, signature.parameters
    rows = [row for row in PARAMETERS.values() if row.name not in named]
    others = [inspect.Parameter(r.name, keyword, default=r.default, annotation=r.annotation) for r in rows]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *others])
    return function


def documents_parameters(cls: _F) -> _F:
    """Put the documentation of every parameter where the docstring says ``{parameters}``."""
    text = "\n".join(row.documentation() for row in PARAMETERS.values())
    cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace("{parameters}", text)
    return cls


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")
