"""The `texseg` command: its verbs.

Heavy modules are imported inside the verbs, so that ``texseg --help`` answers at once.
"""

import json
import logging
import shlex
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

import texseg
from texseg.cli import options as opt
from texseg.cli.terminal import Verbs, say

_OUTPUT, _INPUT = click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path)
_FOLDER, _NOT_NEGATIVE = click.Path(path_type=Path, file_okay=False), click.FloatRange(min=0)
_WHERE = "Folder for the image and the results.  [default: texseg_demo]"
_USUAL = ("labels", "overlay", "segments", "run")
_SHELLS = ("bash", "zsh", "fish")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(texseg.__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Divide images by their textures.

    Exit codes: 0 success, 1 an input failed, 2 the command was not understood, 130 interrupted by Ctrl-C (but
    0 from texseg open, which is meant to end so), 129 and more ended by another signal.
    """
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # its findings are part of our error messages


verb = partial(main.command, cls=opt.Verb)


@verb(
    epilog="""\b
    Examples:
      texseg segment rock.png -k 5 -o out/
      texseg segment scans/ --recursive -k 3 --shared -o out/ --summary out/run.csv
      texseg segment stack.tif --page all -k 4 --all
      texseg segment rock.png --seeds strokes.png -o out/
      texseg segment -k 2 -- "-starts with a dash.png"
    """
)
@opt.segmenting_options
def segment(**options: Any) -> None:
    """Label the textures of images.

    PATH is an image, a folder of images, or a pattern. The results for rock.png are rock_labels.png and .tif
    (the value of a pixel is its label), rock_overlay.png to look at, rock_segments.csv, and rock_run.json,
    which says how they were made. Earlier results are replaced, but no file that you made or edited.
    """
    _segment(options, _USUAL)


@verb(
    name="open",
    epilog="""\b
    Examples:
      texseg open rock.png -o out/
      texseg open slides/ -k 4 --no-browser
    """,
)
@opt.painting_options
def paint(**options: Any) -> None:
    """Paint on images in the browser: strokes correct the segments.

    The page is served to this computer alone, until Ctrl-C. What you paint is kept at once, in the folder
    strokes among the results; Save writes what texseg segment writes, the model, and the command that makes
    them again.
    """
    from texseg.cli.paint import open_page

    open_page(options)


@verb(
    epilog="""\b
    Example:
      texseg report rock.png -k 5 -o out/
      texseg report rock.png -o rock.html
    """
)
@opt.segmenting_options
def report(**options: Any) -> None:
    """Segment images and write, for each, one page to click through.

    The page for rock.png is rock_report.html, or the file that -o names (it must end in .html); it needs no
    other file and no network. For several images texseg_reports.html is an index of them. Options that name
    other results write these, too.
    """
    _segment(options, ("report", "run", *["labels"] * bool(options["formats"])))


def _segment(options: dict[str, Any], always: Sequence[str], model: Any = None) -> None:
    """Do the work of `segment`, `report` and `apply`."""
    from texseg.cli.batch import run_and_show

    run_and_show(options, always, model)


@verb()
@opt.value("-o --output", _FOLDER, _WHERE, default=Path("texseg_demo"), metavar="FOLDER")
@click.pass_context
def demo(ctx: click.Context, output: Path) -> None:
    """Make a sample image of five textures and segment it.

    It prints the command that it runs, so that you can repeat it with an image of your own.
    """
    import numpy as np

    from texseg.cli.outputs import check_folder

    check_folder(output)
    image, path = texseg.synth.example().image, output / "example.png"
    if path.exists() and not np.array_equal(texseg.read_image(path).pixels, image):
        raise OSError(f"{path} exists and is not the example; choose another --output")
    texseg.write_labels(path, image)  # any grey picture of bytes
    words = ["segment", str(path), "-k", "5", "-o", str(output), "--report-html"]
    say(f"texseg {shlex.join(words)}")
    with segment.make_context(words[0], words[1:], parent=ctx) as inner:
        try:
            segment.invoke(inner)
        finally:
            say(f"To compute with the labels, read {output / 'example_labels.tif'}.")
            say(f"To explore the result, open {output / 'example_report.html'} in a browser.")


@verb(
    epilog="""\b
    Examples:
      texseg fit slide_1.png slide_2.png -k 4 -o rock.texseg
      texseg name rock.texseg 1=quartz 2=feldspar
      texseg apply rock.texseg slides/ -o out/
    """
)
@opt.paths_argument
@opt.fitting_options
@opt.volume_options
@opt.reading_options
@opt.section(
    "Results",
    opt.value(
        "-o --output",
        _OUTPUT,
        "Model file to write (a file; elsewhere -o is a folder).",
        required=True,
        metavar="FILE",
    ),
)
@opt.run_options
def fit(**options: Any) -> None:
    """Learn textures from images and write them to a model file.

    For many images an evenly spaced sample is read.
    """
    from texseg.cli.batch import fit_shared
    from texseg.cli.inputs import collect, reading_of
    from texseg.cli.outputs import check_target

    target: Path = options["output"]
    items = collect(options | {"output": None})
    check_target(target, "model")
    model = fit_shared(items, reading_of(options), opt.parameters_of(options), options["quiet"])
    model.save(target)
    if not options["quiet"]:
        say(f"{target}: {model.n_segments_} textures")


@verb()
@click.argument("model", type=_INPUT)
@opt.applying_options
def apply(**options: Any) -> None:
    """Find the textures of a MODEL file in other images.

    Every pixel gets the most similar of the learned textures, however strange the image is, unless --unknown
    is given. Options and results are those of `texseg segment`.
    """
    from texseg.segmenter import Segmenter

    model = Segmenter.load(options["model"])
    model.edit(opt.edits_of(options, len(model.names_)))
    model.crop_bar |= options["crop_bar"]
    options["volume"] |= model.spatial_dims == 3 or model.planes is not None
    _segment(options, _USUAL, model)


@verb(
    epilog="""\b
    Examples:
      texseg score out/rock_labels.png truth.png
      texseg score out/rock_labels.png ann.png bert.png --names classes.csv --confusion
    """
)
@click.argument("labels", type=_INPUT)
@click.argument("truth", nargs=-1, required=True, metavar="TRUTH...", type=_INPUT)
@opt.value("--names", _OUTPUT, "Classes of the truth: CSV file with the columns label, name.", metavar="FILE")
@opt.value("--ignore-label", int, "Skip the pixels where the truth has this label, such as 0.")
@opt.value("--tolerance", _NOT_NEGATIVE, "Pixels within which borders agree.", default=5.0, show_default=True)
@opt.flag("--confusion", "Print the pixels of every segment in every class.")
@opt.flag("--all everything", "Print all measures, not just the usual ones.")
@opt.flag("--json as_json", "Print JSON, with all measures and the confusion.")
def score(**options: Any) -> None:
    """Compare labels with the TRUTH of one annotator or of several.

    The numbers of the labels do not matter, only which pixels belong together. Where both have names,
    right_name is the share of pixels with the right one; those of LABELS are in the table of segments next to
    it. With several annotators the second column is how well they agree with each other: no method can be
    expected to do better. Planes of a stack count as one image, below each other.

    n_segments and n_regions are how many labels there are in LABELS and in the TRUTH. The measures are best
    at 1: co, share of right pixels; ari, adjusted Rand index; covering, overlap of each region of the TRUTH
    with the best segment; boundary_f, F measure of the borders.
    """
    from texseg.cli.scores import compare, show

    names = ("labels", "truth", "names", "ignore_label", "tolerance")
    result = compare(*(options[name] for name in names))
    if options["as_json"]:
        say(json.dumps(result))
    else:
        show(result, options["everything"], options["confusion"])


@verb()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_INPUT)
@opt.parameter_option("n_segments")
@opt.parameter_option("preset")
@opt.volume_options
@opt.parameter_option("planes")
@opt.memory_option
@opt.flag("--crops", "Look at large images, and list the crops to learn from.")
@opt.flag("--json as_json", "Print JSON, one line a file.")
def info(**options: Any) -> None:
    """Say what would be read from image files, and at what cost.

    The seconds are what one processor needs to find the labels; tables, pictures and reports take more.
    """
    from texseg.cli.inputs import describe, reading_of

    n_failed, about = 0, (options["n_segments"], options["preset"], reading_of(options), options["crops"])
    for file in options["files"]:
        try:
            description = describe(file, *about)
        except (OSError, ValueError) as error:
            say(f"failed: {error}", err=True)
            n_failed += 1
            continue
        if options["as_json"]:
            say(json.dumps(description))
        else:
            for field, value in description.items():
                say(f"{field + ':':14} {'not stated' if value is None else value}")
    sys.exit(int(n_failed > 0))


@verb(
    epilog="""\b
    Example:
      texseg name rock.texseg 1=quartz 2=feldspar
    """
)
@click.argument("model", type=_INPUT)
@click.argument("names", nargs=-1, metavar="[NUMBER=NAME]...")
def name(model: Path, names: Sequence[str]) -> None:
    """Give names to the textures of a MODEL file, or list them."""
    given: dict[int, str] = {}
    for text in names:
        number, _, class_name = (part.strip() for part in text.partition("="))
        if not number.isdecimal() or not class_name:
            raise click.UsageError(f"{text!r} is not of the form NUMBER=NAME, such as 1=quartz")
        given[int(number)] = class_name
    from texseg.io.regions import hex_colours
    from texseg.segmenter import Segmenter

    try:
        found = Segmenter.load(model)
        if given:
            found.rename(given).save(model)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    usual = hex_colours(len(found.names_))
    for label, (class_name, colour) in enumerate(zip(found.names_, usual, strict=True), start=1):
        say(f"{label:>3}  {found.colours_.get(class_name, colour)}  {class_name}".rstrip())


@verb(
    epilog="""\b
    Example:
      texseg match monday.texseg tuesday.texseg
    """
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL MODEL...", type=_INPUT)
@opt.value("--limit", _NOT_NEGATIVE, "Largest distance of equal textures.", default=0.25, show_default=True)
@opt.flag("--json as_json", "Print JSON, one line a model.")
def match(models: Sequence[Path], limit: float, as_json: bool) -> None:
    """Give equal textures of several MODEL files one number.

    For each segment of each model: its number among all, the distance to the nearest texture of the models
    before (0 is equal, 1 as far as any two), or 'none' where no model before has the texture, and its name.
    """
    from texseg.method.matching import match_textures
    from texseg.segmenter import Segmenter

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = [Segmenter.load(path) for path in models]
        found = match_textures(loaded, limit)
    bands = [model.textures_.features.n_bands for model in loaded]
    if len(set(bands)) > 1:
        held = ", ".join(f"{path} {n}" for path, n in zip(models, bands, strict=True))
        say(f"note: only shared channels are compared; the images had different bands: {held}", err=True)
    for warning in caught:
        say(f"note: {warning.message}", err=True)
    for path, model, matched in zip(models, loaded, found, strict=True):
        numbers, names = matched.numbers.tolist(), model.names_
        pairs = zip(matched.distances.tolist(), matched.is_new.tolist(), strict=True)
        distances = [None if is_new else round(distance, 4) for distance, is_new in pairs]
        if as_json:
            say(json.dumps({"model": str(path), "numbers": numbers, "distances": distances}))
            continue
        say(f"{path}:")
        say(f"{'segment':>9} {'number':>7} {'distance':>9}")
        for label, row in enumerate(zip(numbers, distances, names, strict=True), start=1):
            said = "none" if row[1] is None else f"{row[1]:.3f}"
            say(f"{label:>9} {row[0]:>7} {said:>9}  {row[2]}".rstrip())


@verb(
    epilog="""\b
    Examples:
      texseg completion bash >> ~/.bashrc
      texseg completion zsh >> ~/.zshrc
      texseg completion fish > ~/.config/fish/completions/texseg.fish
    """
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes options in a SHELL."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # click knows all of _SHELLS
    click.echo(script(main, {}, "texseg", "_TEXSEG_COMPLETE").source())
