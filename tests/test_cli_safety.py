"""Nobody else's files act or are lost, and nothing stops a command half way."""

import ast
import contextlib
import importlib
import inspect
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import io_scenes
import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

import texseg
from texseg import progress
from texseg.cli import batch, main
from texseg.cli.record import PartsFolder
from texseg.io.read import read_labels
from texseg.io.regions import csv_text, segment_table

PIXELS, _ = io_scenes.scene()
SMALL = np.ascontiguousarray(PIXELS[:64, :96])
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs pipes and links")


def invoke(*words, exit_code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == exit_code, result.output
    return result


def start(*words, environment=None, **options):
    """Run the command in a process of its own; return its exit code and what it wrote."""
    command = [sys.executable, "-c", "from texseg.cli import main; main()", *map(str, words)]
    return subprocess.run(
        command, env=os.environ | (environment or {}), check=False, **({"capture_output": True} | options)
    )


def large(path, pixels=None):
    """Write an image of many blocks."""
    pixels = np.kron(PIXELS, np.ones((3, 3), np.uint8)) if pixels is None else pixels
    tifffile.imwrite(path, pixels, tile=(128, 128), compression="zlib")
    return path


def ended_run(words, monkeypatch):
    """Run a command by blocks, and end it when two blocks are done."""
    keep, kept = PartsFolder.__setitem__, []

    def end(self, place, block):
        if len(kept) == 2:
            raise KeyboardInterrupt
        kept.append(place)
        keep(self, place, block)

    with monkeypatch.context() as patch:
        patch.setattr(PartsFolder, "__setitem__", end)
        assert CliRunner().invoke(main, [str(word) for word in words]).exit_code != 0


# ---- what is not texseg's ----------------------------------------------------------------------------------


@POSIX
def test_a_pipe_in_a_folder_is_passed_over(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("pipe", "pipe.png"):
        os.mkfifo(folder / name)
    io_scenes.write(folder / "a.png", SMALL)
    result = invoke("segment", folder, "-k", 2, "-o", tmp_path / "out")
    assert "skipped 2 that are pipes or devices" in result.stderr
    assert (tmp_path / "out" / "a_labels.png").exists()


@POSIX
def test_no_option_waits_for_a_pipe_or_a_device(tmp_path):
    """All in one process: a pipe that is read would block it for ever."""
    image, model = tmp_path / "a.png", tmp_path / "m.texseg"
    io_scenes.write(image, SMALL)
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "pipe.csv", "pipe.html", "folder/a.png"):
        os.mkfifo(tmp_path / name)
    invoke("fit", image, "-k", 2, "-o", model)
    to = ("-k", 2, "-o", tmp_path / "out")
    of_folder = tmp_path / "folder"
    commands = [
        ["segment", of_folder / "a.png", *to],
        *(["segment", image, option, of_folder, *to] for option in ("--mask", "--seeds")),
        ["segment", image, "--summary", tmp_path / "pipe.csv", *to],
        ["report", image, "-k", 2, "-o", tmp_path / "pipe.html"],
        ["fit", image, "-k", 2, "-o", tmp_path / "pipe"],
    ]
    for path in (tmp_path / "pipe", "/dev/zero"):
        commands += [["segment", image, option, path, *to] for option in ("--mask", "--seeds", "--edits")]
        commands += [
            ["segment", path, *to], ["apply", path, image], ["fit", image, "-k", 2, "-o", path],
            ["info", path], ["score", path, path], ["name", path],
        ]  # fmt: skip
    code = (
        "import json, sys; from click.testing import CliRunner; from texseg.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    result = CliRunner().invoke(main, words)\n"
        "    said = result.stderr.strip().splitlines()[-1]\n"
        "    print(json.dumps([words, result.exit_code, said, repr(result.exception)]))"
    )
    words = json.dumps([[str(word) for word in command] for command in commands])
    run = subprocess.run([sys.executable, "-c", code, words], capture_output=True, timeout=120, check=True)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(results) == len(commands)
    for command, exit_code, said, _ in results:
        assert exit_code in (1, 2), command
        assert re.search("is a device or a pipe, not a file|exists and is not a .*; it was not", said), said
    of_others = [said for words, _, said, _ in results if "--mask" in words or "--seeds" in words]
    assert all("the mask " in said or "the strokes " in said for said in of_others)
    assert not (tmp_path / "pipe").is_file() and not (tmp_path / "pipe.csv").is_file()


@POSIX
@pytest.mark.parametrize("kind", ["link", "folder", "pipe as plan", "plan of others"])
def test_a_folder_of_parts_that_is_not_ours_is_not_touched(tmp_path, kind):
    image = large(tmp_path / "a.tif")
    foreign, parts = tmp_path / "data", tmp_path / "out" / ".a.texseg-parts"
    foreign.mkdir()
    (tmp_path / "out").mkdir()
    (foreign / "0_0.npz").write_text("precious")
    (foreign / "dir.part").mkdir()
    (foreign / "dir.part" / "file").write_text("precious")
    if kind == "link":
        (foreign / "plan.json").write_text('{"texseg": "0"}')
        parts.symlink_to(foreign)
    else:
        foreign.rename(parts)
        foreign = parts
        if kind == "pipe as plan":
            os.mkfifo(parts / "plan.json")
        elif kind == "plan of others":
            (parts / "plan.json").write_text('{"plan": 1}')
    before = sorted(foreign.rglob("*"))
    result = invoke("segment", image, "-k", 2, "--memory", "1M", "-o", tmp_path / "out", exit_code=1)
    assert "is not a folder of unfinished blocks of texseg" in result.stderr
    assert sorted(foreign.rglob("*")) == before
    assert (foreign / "0_0.npz").read_text() == "precious"


# ---- --resume ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["image", "mask", "beside", "chunk", "parameter", "elsewhere"])
def test_nothing_is_resumed_that_was_made_from_something_else(tmp_path, monkeypatch, changed):
    pixels = np.kron(PIXELS, np.ones((3, 3), np.uint8))
    mask = np.full(pixels.shape, 255, np.uint8)
    io_scenes.write(tmp_path / "mask.png", mask)
    image = tmp_path / ("a.zarr" if changed == "chunk" else "a.tif")
    if changed == "chunk":
        zarr = pytest.importorskip("zarr")
        zarr.create_array(image, data=pixels, chunks=(128, 128))
    else:
        large(image, pixels)
    out = tmp_path / "out"
    words = ["segment", image, "-k", 2, "--memory", "1M", "--mask", tmp_path / "mask.png", "--jobs", 1]
    ended_run([*words, "-o", out], monkeypatch)
    assert len(list((out / ".a.texseg-parts").glob("*.npz"))) == 2
    if changed == "image":
        large(image, pixels[:, ::-1])
    elif changed == "mask":
        mask[:200] = 0
        io_scenes.write(tmp_path / "mask.png", mask)
    elif changed == "beside":
        shown = np.where(np.arange(pixels.shape[0])[:, None] < 200, 0, mask).astype(np.uint8)
        tifffile.imwrite(tmp_path / "a.tif.msk", shown, tile=(128, 128))
    elif changed == "chunk":
        zarr.open(image, mode="r+")[:128, :128] = 7
    elif changed == "parameter":
        words += ["--smoothness", 2]
    else:
        other = tmp_path / "other"
        other.mkdir()
        (out / ".a.texseg-parts").rename(tmp_path / "brought")
        subprocess.run(["cp", "-r", tmp_path / "brought", out / ".a.texseg-parts"], check=True)
    result = invoke(*words, "--resume", "-o", out)
    assert "--resume starts anew: changed since: " in result.stderr
    invoke(*words, "-o", tmp_path / "fresh")
    labels = [read_labels(place / "a_labels.tif") for place in (out, tmp_path / "fresh")]
    assert np.array_equal(*labels)
    assert not (out / ".a.texseg-parts").exists()


@pytest.mark.parametrize("of", ["image", "mask", "seeds"])
def test_what_lies_beside_any_input_is_part_of_what_results_are_made_from(tmp_path, of):
    """Each in a folder of its own, under the same name."""
    given = {"image": SMALL, "mask": np.full(SMALL.shape, 255, np.uint8), "seeds": np.zeros_like(SMALL)}
    given["seeds"][5:15, 5:15], given["seeds"][50:60, 70:80] = 1, 2
    for name, pixels in given.items():
        (tmp_path / name).mkdir()
        io_scenes.write(tmp_path / name / "a.png", pixels)
        (tmp_path / name / "a.png.aux.xml").write_text("<PAMDataset/>")
    words = ["segment", tmp_path / "image" / "a.png", "--mask", tmp_path / "mask", "--resume"]
    words += ["--seeds", tmp_path / "seeds", "-o", tmp_path / "out"]
    invoke(*words)
    assert "skipped" in invoke(*words).stdout
    band = '<PAMRasterBand band="1"><NoDataValue>77</NoDataValue></PAMRasterBand>'
    (tmp_path / of / "a.png.aux.xml").write_text(f"<PAMDataset>{band}</PAMDataset>")
    assert "skipped" not in invoke(*words).stdout


@POSIX
def test_maps_in_a_folder_of_parts_that_are_links_are_not_written(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    parts = PartsFolder(tmp_path / "parts", {"texseg": "x"}, resume=False)
    (tmp_path / "parts" / "labels.zarr").symlink_to(elsewhere)
    parts = PartsFolder(tmp_path / "parts", {"texseg": "y"}, resume=True)
    parts.remove()
    assert elsewhere.is_dir() and not (tmp_path / "parts").exists()


@pytest.mark.parametrize("broken", ["0_0.npz", "model.texseg"])
def test_what_cannot_be_read_again_is_made_again(tmp_path, monkeypatch, broken):
    image, out = large(tmp_path / "a.tif"), tmp_path / "out"
    words = ["segment", image, "-k", 2, "--memory", "1M", "--jobs", 1]
    ended_run([*words, "-o", out], monkeypatch)
    part = out / ".a.texseg-parts" / broken
    part.write_bytes(part.read_bytes()[:-100])
    assert "starts anew" not in invoke(*words, "--resume", "-o", out).stderr
    invoke(*words, "-o", tmp_path / "fresh")
    labels = [read_labels(place / "a_labels.tif") for place in (out, tmp_path / "fresh")]
    assert np.array_equal(*labels)


# ---- what is said ------------------------------------------------------------------------------------------


@POSIX
def test_a_name_that_the_console_cannot_show_costs_nothing(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("0日.png", "1.png"):
        io_scenes.write(folder / name, SMALL)
    narrow = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    result = start("segment", folder, "-k", 2, "-o", tmp_path / "out", environment=narrow)
    assert result.returncode == 0 and b"Traceback" not in result.stderr
    assert rb"0\u65e5.png" in result.stdout
    assert len(list((tmp_path / "out").glob("*_labels.png"))) == 2


@POSIX
@pytest.mark.parametrize("stream", ["full", "closed", "broken"])
def test_a_stream_that_takes_nothing_stops_no_work(tmp_path, stream):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        io_scenes.write(folder / name, SMALL)
    words = ("segment", folder, "-k", "2", "-o", tmp_path / "out")
    errors = subprocess.PIPE
    if stream == "full":
        with open("/dev/full", "wb") as full:
            result = start(*words, stdout=full, stderr=full, capture_output=False)
    elif stream == "closed":
        code = "import os, sys; os.close(1); os.close(2); os.execv(sys.executable, sys.argv[1:])"
        run = [sys.executable, "-c", "from texseg.cli import main; main()", *map(str, words)]
        result = subprocess.run([sys.executable, "-c", code, *run], check=False)
    else:
        read, write = os.pipe()
        os.close(read)
        result = start(*words, stdout=write, stderr=errors, capture_output=False)
        os.close(write)
        assert b"Traceback" not in result.stderr and b"Exception" not in result.stderr
    assert result.returncode == 0
    assert len(list((tmp_path / "out").glob("*_run.json"))) == 2


def test_without_shared_memory_a_batch_works_in_one_process(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(batch, "_pool", refused)
    for name in ("a.png", "b.png"):
        io_scenes.write(tmp_path / name, SMALL)
    result = invoke("segment", tmp_path, "-k", 2, "--jobs", 2, "-o", tmp_path / "out")
    assert "processing images one after the other, in one process (Permission denied)" in result.stderr
    assert result.stdout.splitlines()[-1] == "2 done, 0 failed"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory; try --memory with less"),
        (RecursionError(), "too deeply nested"),
        (OSError(28, "No space left on device", "x"), "No space left on device: x"),
    ],
)
def test_whatever_happens_outside_of_the_images_is_one_sentence(tmp_path, monkeypatch, error, said):
    def fails(*_):
        raise error

    monkeypatch.setattr(batch, "run", fails)
    io_scenes.write(tmp_path / "a.png", SMALL)
    result = invoke("segment", tmp_path / "a.png", "-k", 2, "-o", tmp_path, exit_code=1)
    assert said in result.stderr and len(result.stderr.splitlines()) == 1


def test_edits_without_end_are_one_sentence(tmp_path):
    io_scenes.write(tmp_path / "a.png", SMALL)
    (tmp_path / "edits.json").write_text("[" * 100_000)
    result = invoke("segment", tmp_path / "a.png", "--edits", tmp_path / "edits.json", exit_code=2)
    assert "edits.json" in result.stderr and "Traceback" not in result.output


def test_no_escape_code_reaches_a_table():
    rows = segment_table(np.array([[1, 2]]), names=["\x1b[2Jsand", "=1+1"])
    text = csv_text(rows, rows[0]._fields)
    assert "\x1b" not in text and "\\x1b[2Jsand" in text and "'=1+1" in text


def test_the_record_holds_no_picture(tmp_path):
    for name in ("a.png", "b.png"):
        io_scenes.write(tmp_path / name, SMALL)
    words = ("report", tmp_path, "-k", 2, "-o", tmp_path / "out")
    invoke(*words)
    assert all(len(path.read_text()) < 4000 for path in (tmp_path / "out").glob("*_run.json"))
    index = tmp_path / "out" / "texseg_reports.html"
    index.unlink()
    invoke(*words, "--skip-existing")
    assert index.read_text().count('<img src="data:image/png;base64,') == 2


# ---- the command in a report -------------------------------------------------------------------------------


def command_in(report):
    content = report.read_text().split('type="application/json">')[1].split("</script>")[0]
    return json.loads(content)["command"]


def test_a_command_from_a_report_changes_nothing_of_its_run(tmp_path):
    """Results of images with equal names stand in folders, and there is a table of the whole run."""
    for folder, pixels in (("", SMALL), ("a", SMALL[::-1]), ("b", SMALL[:, ::-1])):
        (tmp_path / "in" / folder).mkdir(parents=True, exist_ok=True)
        io_scenes.write(tmp_path / "in" / folder / "x.png", pixels)
    out = tmp_path / "out"
    words = ("segment", tmp_path / "in", "--recursive", "-k", 2, "-o", out, f"--summary={out / 'run.csv'}")
    invoke(*words, "--report-html", "--skip-existing")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for report in sorted(out.rglob("*_report.html")):
        words = command_in(report)
        assert words[0] == "texseg" and not [word for word in words if "summary" in word or "skip" in word]
        invoke(*words[1:])
        changed = {path for path, content in before.items() if path.read_bytes() != content}
        # the commands in the reports themselves may name another folder
        assert not {path for path in changed if path.parent != report.parent or path.stem[0] != "x"}
        assert not {path for path in changed if path.suffix in (".png", ".tif", ".csv")}
        before = {path: path.read_bytes() for path in before}


# ---- options that messages name ----------------------------------------------------------------------------


def all_strings():
    """Yield every text of the package that is not a docstring, with the place where it stands."""
    root = Path(texseg.__file__).parent
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{path.relative_to(root)}:{node.lineno}", node.value


def test_every_option_that_a_message_names_exists():
    known = {"--version", "--help"}
    for verb in main.commands.values():
        for option in verb.params:
            if isinstance(option, click.Option):
                known |= {*option.opts, *option.secondary_opts}
    wrong = [
        (place, option)
        for place, text in all_strings()
        for option in re.findall(r"(?<![\w/<!-])--[a-z][a-z-]+", text)
        if option not in known and "<" not in text
    ]
    assert not wrong


def test_every_parameter_that_a_message_names_exists():
    names = ("models", "m3", "plot", "metrics", "synth", "report")
    rooms = (texseg, *(importlib.import_module(f"texseg.{name}") for name in names))
    public = [getattr(room, name) for room in rooms for name in getattr(room, "__all__", vars(room))]
    classes = [found for found in public if isinstance(found, type)]
    methods = [each for found in classes for _, each in inspect.getmembers(found, callable)]
    known = {"n_samples", "charset", "nonce"}  # of scikit-learn, the number of rows, and of headers of pages
    for found in filter(callable, [*public, *methods]):
        with contextlib.suppress(TypeError, ValueError):  # of what is written in C
            known |= {*inspect.signature(found).parameters}
    wrong = [
        (place, name)
        for place, text in all_strings()
        for name in re.findall(r"(?<![\w<.\"'&?/-])([a-z]\w*)=", text)
        if " " in text and "<" not in text and name not in known
    ]
    assert not wrong and {"n_segments", "mask", "page"} <= known


# ---- memory ------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a system in which 8 GB are free; files are added to it."""
    monkeypatch.setattr(progress, "_ROOT", tmp_path)
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)

    def add(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    add("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n")
    return add


def test_limits_of_nested_control_groups_are_seen(machine):
    machine("proc/self/cgroup", "0::/outer/inner\n")
    assert progress.free_memory() == 8_000_000 * 1024
    for group, limit in (("outer", "3000000000"), ("outer/inner", "max"), ("", "9000000000000")):
        machine(f"sys/fs/cgroup/{group}/memory.max", limit)
        machine(f"sys/fs/cgroup/{group}/memory.current", "1000000000")
    assert progress.free_memory() == 2 * 10**9
    machine("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 500000000\n")  # cached files
    assert progress.free_memory() == 2.5 * 10**9
    machine("sys/fs/cgroup/outer/inner/memory.max", "1200000000")
    assert progress.free_memory() == 2 * 10**8


def test_limits_of_the_first_kind_of_control_groups_are_seen(machine):
    machine("proc/self/cgroup", "5:cpu:/elsewhere\n4:hugetlb,memory:/job/step\n")
    machine("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4000000000")
    machine("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000000000")
    assert progress.free_memory() == 3 * 10**9


def test_limits_of_slurm_are_seen(machine, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "512")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    assert progress.free_memory() == 2**31
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1024")
    assert progress.free_memory() == 2**30


@POSIX
def test_the_limit_of_the_shell_is_seen():
    code = "from texseg.progress import free_memory; print(free_memory())"

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (4 * 10**9, 4 * 10**9))

    run = subprocess.run([sys.executable, "-c", code], preexec_fn=limited, capture_output=True, check=True)
    assert int(run.stdout) < 4 * 10**9


@POSIX
@pytest.mark.parametrize("kept_by", ["work that does not end", "a thread that does not end"])
def test_nothing_keeps_a_command_alive_that_was_ended(kept_by):
    """A second signal ends at once what the first could not; what waits for a thread ends by itself."""
    code = (
        "import sys, threading, time; from texseg.cli.terminal import ended_by_signals\n"
        "with ended_by_signals():\n"
        "    try:\n"
        "        print('begun', flush=True); time.sleep(60)\n"
        "    finally:\n"
        "        wait = threading.Thread(target=time.sleep, args=[60])\n"
        "        time.sleep(60) if 'work' in sys.argv[1] else wait.start()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, kept_by], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.8)
        assert process.poll() is None
        if "work" in kept_by:
            process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 128 + signal.SIGTERM
