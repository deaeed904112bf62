"""The pages: a report about one segmentation, and the index of several."""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

import texseg
from texseg.channels.encode import encode
from texseg.channels.planes import split_planes
from texseg.io.display import draw_overlay, size_in_words, to_rgb
from texseg.io.files import atomic_write, output_path
from texseg.io.regions import PIXELS, own_colours, palette
from texseg.parameters import MOST_SEGMENTS
from texseg.report.content import level_content, plain_level, steady_levels
from texseg.report.pictures import (
    CROP_SIDE,
    confidence_uri,
    crop_uri,
    detailed_uri,
    labels_uri,
    middles_of,
    picture_uri,
    reduced,
    reduced_labels,
    shown_shape,
)
from texseg.report.words import Look

_THUMBNAIL_SIDE = 240
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
)
_PARAMETERS = ("model", "preset", "smoothness", "min_size", "random_state")


class ReportEntry(NamedTuple):
    """What the index says about a report."""

    path: Path
    title: str
    n_segments: int
    shape: tuple[int, ...]
    thumbnail: str  # picture of the overlay as a data URI
    single_texture: float = 0.0  # probability that the image is a single texture


def filled(template: str, **values: str) -> str:
    """Return a template of this folder with its ``{{NAME}}`` marks replaced, if only by nothing."""
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda mark: values.get(mark[1], ""), part_of(template))


def part_of(name: str) -> str:
    """Return a file of this folder."""
    return files("texseg.report").joinpath(name).read_text("utf-8")


def write_report(
    model: Any,
    image: "ArrayLike",
    path: str | os.PathLike[str],
    *,
    mask: "ArrayLike | None" = None,
    labels: "ArrayLike | None" = None,
    confidence: "ArrayLike | None" = None,
    names: Sequence[str] = (),
    title: str | None = None,
    source: str | os.PathLike[str] | None = None,
    command: Sequence[str] = (),
    overview_of: tuple[int, ...] | None = None,
    pixel_size: Sequence[Any] | None = None,
) -> ReportEntry:
    """Write one self-contained HTML file about a segmentation.

    It shows the image under an overlay, the number of segments if the model has a hierarchy, the confidence
    under the pointer, and for each segment a description, samples, parts and histograms. Segments can be
    merged and named on the page, which then gives the command and the file of edits that do the same.

    Parameters
    ----------
    model : TextureSegmenter
    image : real array of shape (H, W), or with bands along the model's ``channel_axis``
        What the model was fitted to, unless ``labels`` are given. Beyond 1024 pixels, the figures of finer
        and coarser segmentations are estimates. Of a volume or a stack (D, H, W) the page moves through
        planes and cuts across them, at most 4 million voxels, and says what it leaves out.
    path : str or path-like
        File to write, ``.html`` or ``.htm``; its folder is made. Only an earlier report is replaced.
    mask : array of shape (H, W), optional
        Non-zero where there is data.
    labels, confidence : int and float arrays of shape (H, W), optional
        The model's labels for another image, up to 255, and the confidence in them.
    names : sequence of strings, optional
        Name of label 1, label 2 and so on; by default those of the model.
    title, source : str, optional
        Heading, by default the name of the file without its suffix; file of the image, to be named.
    command : sequence of strings, optional
        Words of the command that made the report, "texseg" first.
    overview_of : (int, int), optional
        Rows and columns of a larger image, if all of the above are reduced from it: areas are then estimates,
        and the histograms of the segments are those that were learned.
    pixel_size : (float, float, str), optional
        Height, width and unit of a pixel, and the depth of a voxel, for a scale bar and the proportions of
        cuts: ``read_image(path).pixel_size``.

    Returns
    -------
    ReportEntry
        For :func:`write_index`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from texseg import TextureSegmenter
    >>> rows, columns = np.mgrid[:64, :96]
    >>> stripes = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "stripes.html"
    >>> write_report(TextureSegmenter(n_segments=2).fit(stripes), stripes, path).n_segments
    2
    """
    path = output_path(path, "report")
    pixels = np.asarray(image)
    valid = None if mask is None else np.asarray(mask)
    n_axes = 3 if model.spatial_dims == 3 or model.planes is not None else 2
    planes = split_planes(
        pixels, channel_axis=model.channel_axis, mask=valid, nodata=model.nodata, n_axes=n_axes
    )
    if model.channel_axis is not None:
        pixels = np.moveaxis(pixels, model.channel_axis, -1)
    names = names or model.names_
    own, sure, hierarchy = _segmentation(model, labels, confidence, pixels.shape[:n_axes])
    title = path.stem if title is None else title
    shown = shown_shape(own.shape)
    features, shape = model.textures_.features, own.shape if overview_of is None else overview_of
    bins, seen = None, planes.mask
    if n_axes == 3:  # planes below each other are a picture
        pixels = reduced(pixels, shown).reshape(-1, shown[-1], *pixels.shape[3:])
        seen = None if seen is None else reduced_labels(seen, shown).reshape(-1, shown[-1])
        sure = None if sure is None else reduced(sure, shown)
    elif overview_of is None:  # a reduced picture has a different texture
        bins = encode(planes, features)
    picture = to_rgb(pixels, seen)
    settings = {"shape": shape, "shown": shown, "features": features, "look": Look.of(picture)}
    number, shares = len(np.unique(own[own > 0])), model.profiles_ if bins is None else bins
    first = own if n_axes == 2 else reduced_labels(own, shown)
    levels = [level_content(number, first, shares, confidence=sure, names=names, **settings)]
    if bins is not None and shown != own.shape:  # the picture shown has lost its finest texture
        levels[0]["full"] = labels_uri(own)
        for segment in levels[0]["segments"]:
            segment["crops"] = [crop_uri(picture, place) for place in segment["samples"]]
    others = steady_levels(own, hierarchy, shown) if hierarchy is not None and overview_of is None else ()
    if bins is not None and others:
        sampled = np.stack([reduced_labels(plane, shown) for plane in bins])
        levels += [level_content(k, level, sampled, **settings) for k, level in others]
    levels += [plain_level(k, level, shape, shown) for k, level in others]
    if pixel_size is None and model.spacing is not None:
        pixel_size = (*model.spacing[1:], "px", model.spacing[0])
    colours = own_colours(names, getattr(model, "colours_", {}))
    content = page_content(model, levels, shape, shown, sure, hierarchy, pixel_size, colours)
    content |= {"title": title, "command": list(command)}
    content["thumbnail"] = _thumbnail(picture, first, colours)
    heading = {
        "date": date.today().isoformat(),
        **({} if source is None else {"input": os.fspath(source)}),
        "size": f"{size_in_words(shape)} {'pixels' if n_axes == 2 else 'voxels'}",
    }
    facts = {
        "texseg": texseg.__version__,
        **{name: value for name in _PARAMETERS if (value := getattr(model, name)) is not None},
        **({"command": shlex.join(command)} if command else {}),
    }
    page = filled(
        "report.html",
        POLICY=_POLICY,
        TITLE=escape(title),
        HEADING=terms(heading),
        FACTS=terms(facts),
        IMAGE=detailed_uri(picture, shown) if n_axes == 2 else picture_uri(picture),
        STYLE=part_of("report.css"),
        SCRIPT=part_of("report.js") + "start();\n",
        CONTENT=script_json(content),
    )
    atomic_write(path, page.encode())
    selection = getattr(model, "selection_", None)
    single = 0.0 if selection is None or hierarchy is None else float(selection.one_texture)
    return ReportEntry(path, title, levels[0]["n"], shape, content["thumbnail"], single)


def page_content(
    model: Any,
    levels: list[dict[str, Any]],
    shape: tuple[int, ...],
    shown: tuple[int, ...],
    sure: NDArray[np.floating] | None,
    hierarchy: Any | None,
    pixel_size: Sequence[Any] | None,
    colours: Sequence[str] = (),
) -> dict[str, Any]:
    """Put together what the script of the page reads; the first of ``levels`` is the segmentation itself."""
    features, volume = model.textures_.features, {}
    if len(shape) == 3:
        height, width, _, depth = (*(pixel_size or PIXELS), None)[:4]
        volume = {"planes": middles_of(shown[0], shape[0]).tolist(), "axis": model.planes or "z"}
        volume |= {"whole": list(shape), "steps": [(depth or width) / width, height / width]}
    return {
        **volume,
        "shape": list(shape[-2:]),
        "shown": list(shown[-2:]),
        "chosen": levels[0]["n"],
        "levels": sorted(levels, key=lambda level: level["n"]),
        "channels": list(features.names),
        "n_bins": features.n_bins,
        "palette": palette(max(s["label"] for level in levels for s in level["segments"]), colours).tolist(),
        "confidence": "" if sure is None else confidence_uri(reduced(sure, shown)),
        "selection": _selection(model, hierarchy),
        "members": dict(enumerate(model.fitted_labels, start=1)),
        "crop": CROP_SIDE,
        "pixel": None if pixel_size is None or pixel_size[2] == "px" else pixel_size[1:3],
    }


def write_index(
    path: str | os.PathLike[str], entries: Sequence[ReportEntry], *, title: str = "texseg"
) -> None:
    """Write a page with a picture for every report, from `write_report`, each a link to it.

    The links are relative to the folder of ``path``, so that the folder can be moved as a whole. As by
    `write_report`, only an earlier page of texseg is replaced; else a FileExistsError is raised.
    """
    path = output_path(path, "report")
    cards = []
    for entry in entries:
        link = quote(os.fsencode(Path(os.path.relpath(entry.path, path.parent)).as_posix()))
        number = f"{entry.n_segments} segment" + ("" if entry.n_segments == 1 else "s")
        if entry.n_segments > 1 and entry.single_texture >= 0.5:
            number += f", probably a single texture ({entry.single_texture:.0%})"
        cards.append(
            f'<a class="card" href="{link}"><img src="{entry.thumbnail}" alt="">'
            f"<strong>{escape(entry.title)}</strong>"
            f"<span>{number}, {size_in_words(entry.shape)} pixels</span></a>"
        )
    page = filled("index.html", TITLE=escape(title), NUMBER=str(len(cards)), CARDS="\n".join(cards))
    atomic_write(path, page.encode())


def _segmentation(
    model: Any, labels: "ArrayLike | None", confidence: "ArrayLike | None", shape: tuple[int, ...]
) -> tuple[NDArray[np.integer], NDArray[np.floating] | None, Any | None]:
    hierarchy = None
    if labels is None:
        labels, confidence = getattr(model, "labels_", None), getattr(model, "confidence_", None)
        hierarchy = getattr(model, "hierarchy_", None)
        if labels is None or isinstance(labels, list):
            raise ValueError(
                "write_report needs labels=, since the model was not fitted to one image; "
                "pass those of model.predict(image), or one of model.labels_"
            )
    own = np.asarray(labels)
    sure = None if confidence is None else np.asarray(confidence, dtype=np.float32)
    if own.shape != shape or (sure is not None and sure.shape != shape):
        raise ValueError(
            f"labels of shape {own.shape} do not belong to the image of shape {shape}; report on the image "
            "that the model was fitted to, or pass labels="
        )
    if own.max(initial=0) < 1 or own.max() > MOST_SEGMENTS:
        raise ValueError(f"a report shows labels from 1 to {MOST_SEGMENTS}, got at most {own.max(initial=0)}")
    return own, sure, hierarchy


def _selection(model: Any, hierarchy: Any | None) -> dict[str, Any] | None:
    selection = getattr(model, "selection_", None)
    if selection is None or hierarchy is None:
        return None
    return {
        "n": [int(n) for n in selection.n_segments],
        "probabilities": [round(float(p), 4) for p in selection.probabilities],
        "chosen": int(selection.chosen),
        "words": str(selection),
    }


def script_json(content: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the script it stands in."""
    return json.dumps(content).replace("<", "\\u003c")


def terms(facts: Mapping[str, Any]) -> str:
    """Return a list of terms and their descriptions."""
    return "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in facts.items())


def _thumbnail(picture: NDArray[np.uint8], labels: NDArray[np.integer], colours: Sequence[str]) -> str:
    if labels.ndim == 3:  # the plane in the middle
        top = len(labels) // 2 * labels.shape[1]
        picture, labels = picture[top : top + labels.shape[1]], labels[len(labels) // 2]
    shape = shown_shape((labels.shape[0], labels.shape[1]), _THUMBNAIL_SIDE)
    small = reduced(picture, shape).copy()
    draw_overlay(small, reduced_labels(labels, shape), colours)
    return picture_uri(small)
