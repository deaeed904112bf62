"""Model files: plain data, the same bytes for the same model, refused with a sentence otherwise."""

import hashlib
import io
import json
import os
import re
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from texseg import TextureSegmenter
from texseg.method.modelfile import ModelFileError, load_model, save_model

OLD_FILES = Path(__file__).parent / "data"
VALUES = {
    "profiles": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "names": ["quartz", "полевой шпат", "mica"],
    "scale": np.float64(0.5),
    "n_bins": 40,
    "lightness": None,
    "options": {"preset": "default", "orientations": [0.0, 45.0]},
    "used": np.array([True, False]),
}


def test_round_trip_and_same_bytes(tmp_path):
    save_model(tmp_path / "a.texseg", VALUES)
    save_model(tmp_path / "b.texseg", VALUES)
    assert (tmp_path / "a.texseg").read_bytes() == (tmp_path / "b.texseg").read_bytes()
    loaded = load_model(tmp_path / "a.texseg")
    assert loaded.keys() == VALUES.keys()
    for key, value in VALUES.items():
        if isinstance(value, np.ndarray):
            assert loaded[key].dtype == value.dtype
            assert np.array_equal(loaded[key], value)
        else:
            assert loaded[key] == value


@settings(max_examples=30, deadline=None)
@given(array=hnp.arrays(st.sampled_from(["u1", "i4", "f4", ">f8", "f8", "?"]), hnp.array_shapes(min_dims=0)))
def test_any_plain_array_comes_back(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("m") / "a.texseg"
    save_model(path, {"x": array})
    np.testing.assert_array_equal(load_model(path)["x"], array)


def test_safetensors_alone_can_read_the_arrays(tmp_path):
    save_model(tmp_path / "a.texseg", VALUES)
    assert np.array_equal(load_file(tmp_path / "a.texseg")["profiles"], VALUES["profiles"])


def test_what_is_not_plain_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="model value 'f' of type function is not plain data"):
        save_model(tmp_path / "a.texseg", {"f": test_round_trip_and_same_bytes})
    with pytest.raises(TypeError, match="model value 'o' is an array of object; use numbers, or a list"):
        save_model(tmp_path / "a.texseg", {"o": np.array([{}], dtype=object)})
    with pytest.raises(TypeError, match="model value 'o' is an array of <U1; use numbers, or a list"):
        save_model(tmp_path / "a.texseg", {"o": np.array(["a"])})
    assert not list(tmp_path.iterdir())


def signed(content):
    """Put the digest that fits into the content of a file, as who forges one would."""
    found = re.search(rb"[0-9a-f]{64}", content)
    zeroed = content.replace(found[0], b"0" * 64, 1)
    return zeroed.replace(b"0" * 64, hashlib.sha256(zeroed).hexdigest().encode(), 1)


def file_of(metadata, tensors=b"", entries=None):
    """Make a file with a header of one's own, and the digest that fits."""
    text = json.dumps({"__metadata__": metadata, **(entries or {})}).encode()
    return signed(len(text).to_bytes(8, "little") + text + tensors)


def header(version=3, **values):
    about = {"sha256": "0" * 64, "format": "texseg model", "version": version}
    return {"texseg": json.dumps(about | values)}


def refuse(path, message):
    with pytest.raises(ModelFileError, match=message) as caught:
        load_model(path)
    assert str(caught.value).startswith(path.name)


def test_foreign_missing_and_broken_files(tmp_path):
    path = tmp_path / "m.texseg"
    refuse(path, "no such model file")
    for foreign in (b"", b"not a model", b"\xff" * 300):
        path.write_bytes(foreign)
        refuse(path, "not a texseg model file, or a truncated one")
    save_file({"x": np.zeros(3)}, path)
    refuse(path, "not a texseg model file, or a truncated one")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    refuse(tmp_path / "other.npz", "not a texseg model file")
    path.write_bytes(b"PK\3\4 and no more")
    refuse(path, "model file is corrupt")
    refuse(tmp_path, "is a folder, not a model file")


def test_a_newer_version_is_refused(tmp_path):
    (tmp_path / "m.texseg").write_bytes(file_of(header(99, values={})))
    refuse(tmp_path / "m.texseg", r"newer texseg \(model version 99, this one reads up to 3\); update texseg")


def test_every_bit_and_every_place_counts(tmp_path):
    """What was altered anywhere is refused, and so is what was cut or made longer."""
    path = tmp_path / "m.texseg"
    save_model(path, VALUES)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        refuse(path, "damaged or changed|not a texseg model file")
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        refuse(path, "damaged or changed|not a texseg model file")
    path.write_bytes(content + b" ")
    refuse(path, "damaged or changed")


@pytest.mark.parametrize(
    ("metadata", "tensors", "entries"),
    [
        ({"texseg": "[" * 50_000 + '"texseg model' + "0" * 64}, b"", None),
        (header(values=None), b"", None),
        (header("3", values={}), b"", None),
        ({"a": "texseg model", "b": "0" * 64}, b"", None),
        (header(values={}), b"", {"x": {"dtype": "F64", "shape": [2**61], "data_offsets": [0, 0]}}),
        (header(values={}), bytes(8), {"x": {"dtype": "F64", "shape": [9], "data_offsets": [0, 8]}}),
        (header(values={}), bytes(8), {"x": {"dtype": "F8", "shape": [1], "data_offsets": [0, 8]}}),
    ],
)
def test_what_is_signed_and_makes_no_sense(tmp_path, metadata, tensors, entries):
    path = tmp_path / "m.texseg"
    path.write_bytes(file_of(metadata, tensors, entries))
    refuse(path, "model file is corrupt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m.texseg")
    refuse(tmp_path / "m.texseg", "a device or a pipe, not a file")


def test_a_large_file_is_not_opened(tmp_path):
    path = tmp_path / "m.texseg"
    with path.open("wb") as file:
        file.truncate(2**31)
    refuse(path, "file of 2147.5 MB, of which at most 67.1 MB are read")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def rewrite(path, changes, compression=zipfile.ZIP_STORED):
    """Write an archive of version 0.2 anew, with some members changed; return its header."""
    with zipfile.ZipFile(OLD_FILES / "model_0_2_0_default.texseg") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, member in (content | changes).items():
            archive.writestr(name, member)
    return json.loads(content["header.json"])


def test_old_files_with_values_exchanged_or_without_a_checksum(tmp_path):
    path = tmp_path / "m.texseg"
    head = rewrite(path, {"profiles.npy": npy(np.zeros(3))})
    refuse(path, "damaged or changed after it was written")
    del head["sha256"]
    rewrite(path, {"header.json": json.dumps(head | {"version": 1})})
    refuse(path, "model version 1 has no checksum; fit and save it again")
    rewrite(path, {"header.json": json.dumps(head)})
    refuse(path, "model file is corrupt")
    rewrite(path, {"header.json": json.dumps(head | {"format": "other"})})
    refuse(path, "not a texseg model file")


def test_old_files_that_would_fill_the_memory(tmp_path):
    path = tmp_path / "m.texseg"
    rewrite(path, {"zeros.npy": bytes(80_000_000)}, zipfile.ZIP_DEFLATED)
    refuse(path, "would unpack to more than 64 MiB; refused")
    for compression, message in ((zipfile.ZIP_DEFLATED, "Bad CRC"), (zipfile.ZIP_BZIP2, "not compressed as")):
        rewrite(path, {"zeros.npy": bytes(40_000_000)}, compression)
        content = bytearray(path.read_bytes())
        entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x05\x06"))
        content[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
        path.write_bytes(content)
        tracemalloc.start()
        refuse(path, message)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000


def test_old_files_with_arrays_that_are_none(tmp_path):
    path, objects = tmp_path / "m.texseg", io.BytesIO()
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    larger = npy(np.zeros(3)).replace(b"(3,), ", b"(3333333333,), ").replace(b" " * 9, b"", 1)
    for content in (objects.getvalue(), larger):
        rewrite(path, {"a.npy": content})
        refuse(path, "not of the size it announces")


# ---- what the values may be --------------------------------------------------------------------------------


def two_gratings():
    rows, columns = np.mgrid[:64, :96]
    return np.where(columns < 48, np.sin(rows * 1.5), np.sin(columns * 1.5))


@pytest.mark.parametrize("kind", ["default", "plain", "merged"])
def test_files_of_version_0_2_are_read_and_written_as_new_ones(kind, tmp_path):
    old = TextureSegmenter.load(OLD_FILES / f"model_0_2_0_{kind}.texseg")
    old.save(tmp_path / "new.texseg")
    new = TextureSegmenter.load(tmp_path / "new.texseg")
    for model in (old, new):
        labels = model.predict(two_gratings())
        if kind != "merged":
            left, right = (set(part.ravel().tolist()) for part in (labels[:, :44], labels[:, 52:]))
            assert len(left) == len(right) == 1 and left != right
        assert model.names_ == (("a", "") if kind == "merged" else ("", ""))


@pytest.fixture(scope="module")
def sound():
    return load_model(OLD_FILES / "model_0_2_0_default.texseg")


def entry(array, value):
    changed = array.copy()
    changed.flat[0] = value
    return changed


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("profiles", lambda a: entry(a, np.nan), "profiles must lie in 0 to 1.001, got nan"),
        ("profiles", lambda a: entry(a, -0.5), "profiles must lie in"),
        ("profiles", lambda a: a / 2, "profiles must sum to one, got a sum of 0.5"),
        ("profiles", lambda a: a[:0], "profiles must be those of 1 to 255 textures, got 0"),
        ("background", lambda a: a[::-1] * 0, "background must sum to one"),
        ("confusion", lambda a: a * 0, "confusion must sum to one"),
        ("limits", lambda a: -a - 1, "limits must lie in"),
        ("border_weights", lambda a: entry(a, np.inf), "border_weights must lie in"),
        ("border_log_profiles", lambda a: a * 2, "border_log_profiles .* must sum to one"),
        ("border_densities", lambda a: ["colour"], "border_densities must be form, got"),
        ("n_orientations", lambda a: 10**9, "n_orientations must lie in 1 to 64"),
        ("n_orientations", lambda a: 1.5, "n_orientations must be a whole number"),
        ("n_orientations", lambda a: 1, "channel_names must be"),
        ("n_orientations", lambda a: 9, ".* cannot hold those of 27 filters"),
        ("wavelengths_of_bank", lambda a: [1e-300], "wavelengths_of_bank must lie in 2 to 1024"),
        ("wavelengths_of_bank", lambda a: [5.0], "channel_names must be 5 px"),
        ("wavelengths", lambda a: a[::-1], "wavelengths must be those of the channels"),
        ("bandwidth", lambda a: 1e-9, "bandwidth must lie in"),
        ("angular_bandwidth", lambda a: 179.9999, "angular_bandwidth must lie in"),
        ("illumination_sigma", lambda a: 1e9, "illumination_sigma must lie in"),
        ("channel_weights", lambda a: a * 2, "channel_weights must be those of the channels"),
        ("channel_weights", lambda a: a * 0, "channel_weights must be those of the channels"),
        ("low", lambda a: a + 1e200, "low: a range ends below its beginning"),
        ("ranges", lambda a: a[:, ::-1], "ranges: a range ends below its beginning"),
        ("axes", lambda a: np.full((2, 1), 0.5), "axes must have length one"),
        ("codebook", lambda a: a * 1e9, "codebook must lie in"),
        ("codebook", lambda a: a[:, :24], "codebook must hold square patches, got 24 numbers a texton"),
        ("channel_names", lambda a: a[::-1], "channel_names must be 2.83 px, 0 deg"),
        ("channel_names", lambda a: "abcd", "channel_names must be a list of texts"),
        ("cell", lambda a: 0, "cell must lie in"),
        ("potts", lambda a: [0.5, 10, 0, 8, 3], r"potts \(sigma\) must lie in 0.1 to 100, got"),
        ("potts", lambda a: [0.5, 10, 1.5, 10**9, 3], r"potts \(n_rounds\) must lie in"),
        ("kind", lambda a: "stars", "kind must be cells, got 'stars'"),
        ("parameters", lambda a: [], "parameters must be a dictionary"),
        ("parameters", lambda a: a | {"smoothness": 1e300}, "smoothness must be a number from 0 to 10000"),
        ("parameters", lambda a: a | {"channel_axis": 1.5}, "channel_axis must be a whole number"),
        ("parameters", lambda a: a | {"nodata": "none"}, "nodata must be a number"),
    ],
)
def test_values_that_make_no_sense_are_refused(sound, tmp_path, name, change, sentence):
    save_model(tmp_path / "bad.texseg", sound | {name: change(sound[name])})
    with pytest.raises(ModelFileError, match=f"holds an invalid texture model: {sentence}"):
        TextureSegmenter.load(tmp_path / "bad.texseg")


def test_filters_that_look_too_far_are_refused(sound, tmp_path):
    bad = sound | {"wavelengths_of_bank": [1024.0], "bandwidth": 0.1}
    save_model(tmp_path / "bad.texseg", bad)
    with pytest.raises(ModelFileError, match="filters must look at most 4096 pixels far"):
        TextureSegmenter.load(tmp_path / "bad.texseg")


@pytest.mark.parametrize("change", [lambda a: a.astype(float), lambda a: a.astype(">f4"), np.asfortranarray])
def test_the_same_numbers_in_another_form_give_the_same_labels(sound, tmp_path, change):
    tables = {k: change(v) for k, v in sound.items() if isinstance(v, np.ndarray) and v.dtype == np.float32}
    save_model(tmp_path / "same.texseg", sound | tables)
    expected = TextureSegmenter.load(OLD_FILES / "model_0_2_0_default.texseg").predict(two_gratings())
    labels = TextureSegmenter.load(tmp_path / "same.texseg").predict(two_gratings())
    np.testing.assert_array_equal(labels, expected)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    model = TextureSegmenter.load(OLD_FILES / "model_0_2_0_plain.texseg")
    model.textures_ = replace(model.textures_, cell=10**9)
    with pytest.raises(ValueError, match="cell must lie in 1 to 1024, got 1000000000"):
        model.save(tmp_path / "m.texseg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("names", [["a"], ["a", 7], {"a": 7}])
def test_class_names_that_do_not_fit_are_refused(tmp_path, sound, names):
    save_model(tmp_path / "m.texseg", {**sound, "class_names": names})
    with pytest.raises(ModelFileError, match=r"m.texseg holds .*class_names must be \d texts"):
        TextureSegmenter.load(tmp_path / "m.texseg")


def test_class_names_that_would_act_on_a_terminal_are_refused(tmp_path, sound):
    for name in ("\x1b[2J", "\ud800"):
        save_model(tmp_path / "m.texseg", {**sound, "class_names": [name, "b"][: len(sound["profiles"])]})
        with pytest.raises(ModelFileError, match="names must be without control characters"):
            TextureSegmenter.load(tmp_path / "m.texseg")


def test_a_file_of_other_data_is_not_a_model(tmp_path):
    save_model(tmp_path / "m.texseg", {"a": 1})
    with pytest.raises(ModelFileError, match="m.texseg holds no texture model: '.*' is missing"):
        TextureSegmenter.load(tmp_path / "m.texseg")
