"""Names and colours of the classes in a model file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from texseg.modelfile import ModelFileError, class_names_in, load_model, save_model
from texseg.regions import palette

_NAMES, _COLOURS = "class_names", "class_colours"


def rename_classes(path: str | os.PathLike[str], names: Mapping[int, str]) -> list[tuple[str, str]]:
    """Name classes of a model file by their label, and list all of them.

    Parameters
    ----------
    path : str or path-like
        Model file; it is replaced if `names` is not empty.
    names : mapping of int to str
        New names by label, from 1.

    Returns
    -------
    list of (name, colour)
        For label 1, 2 and so on; the colour has the form ``#0072b2``.

    Raises
    ------
    ValueError
        A label the model does not have, or a name given twice.
    """
    values = load_model(path)
    known = _names_in(path, values)
    for label, name in names.items():
        if not 1 <= label <= len(known):
            raise ValueError(f"label {label} is not in the model, its labels are 1 to {len(known)}")
        known[label - 1] = name
    given = [name for name in known if name]
    if len(set(given)) < len(given):
        raise ValueError(f"each name may be given once, got {', '.join(given)}")
    colours = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in palette(len(known))[1:].tolist()]
    if names:
        save_model(path, {**values, _NAMES: known, _COLOURS: colours})
    return list(zip(known, colours, strict=True))


def _names_in(path: str | os.PathLike[str], values: Mapping[str, Any]) -> list[str]:
    try:
        return class_names_in(values)
    except ModelFileError as error:
        raise ModelFileError(f"{Path(path).name} {error}") from None
