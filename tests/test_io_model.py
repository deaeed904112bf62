"""Model files: plain data, the same bytes for the same model, refused with a sentence otherwise."""

import io
import json
import os
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from texseg import TextureSegmenter
from texseg.cli import rename_classes
from texseg.modelfile import ModelFileError, load_model, save_model

VALUES = {
    "profiles": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "names": ["quartz", "полевой шпат", "mica"],
    "scale": np.float64(0.5),
    "n_bins": 40,
    "lightness": None,
    "options": {"preset": "default", "orientations": [0.0, 45.0]},
    "kinds": np.array(["bank", "value"]),
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
@given(array=hnp.arrays(st.sampled_from(["u1", "i4", "f4", "f8", "?", "U3"]), hnp.array_shapes(min_dims=0)))
def test_any_plain_array_comes_back(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("m") / "a.texseg"
    save_model(path, {"x": array})
    np.testing.assert_array_equal(load_model(path)["x"], array)


def test_numpy_alone_can_read_the_arrays(tmp_path):
    save_model(tmp_path / "a.texseg", VALUES)
    with np.load(tmp_path / "a.texseg", allow_pickle=False) as archive:
        assert np.array_equal(archive["profiles"], VALUES["profiles"])


def test_what_is_not_plain_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="model value 'f' of type function is not plain data"):
        save_model(tmp_path / "a.texseg", {"f": test_round_trip_and_same_bytes})
    with pytest.raises(TypeError, match="model value 'o' is an array of Python objects"):
        save_model(tmp_path / "a.texseg", {"o": np.array([{}], dtype=object)})
    assert not list(tmp_path.iterdir())


def header_only(path, header):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header))


class TestRefused:
    def refuse(self, path, message):
        with pytest.raises(ModelFileError, match=message) as caught:
            load_model(path)
        assert str(caught.value).startswith(path.name)

    def test_foreign_missing_and_broken_files(self, tmp_path):
        path = tmp_path / "m.texseg"
        self.refuse(path, "no such model file")
        path.write_bytes(b"not an archive")
        self.refuse(path, "not a texseg model file, or a truncated one")
        np.savez(tmp_path / "other.npz", x=np.zeros(3))
        self.refuse(tmp_path / "other.npz", "not a texseg model file")
        header_only(path, {"format": "other", "version": 1})
        self.refuse(path, "not a texseg model file")
        header_only(path, ["list"])
        self.refuse(path, "not a texseg model file")
        header_only(path, {"format": "texseg model"})
        self.refuse(path, "model file is corrupt")
        self.refuse(tmp_path, "directory")

    def test_newer_version(self, tmp_path):
        header_only(tmp_path / "m.texseg", {"format": "texseg model", "version": 99, "values": {}})
        self.refuse(
            tmp_path / "m.texseg", r"newer texseg \(model version 99, this one reads up to 2\); update texseg"
        )

    def test_truncated_at_every_place(self, tmp_path):
        path = tmp_path / "m.texseg"
        save_model(path, VALUES)
        content = path.read_bytes()
        for length in range(0, len(content), 97):
            path.write_bytes(content[:length])
            self.refuse(path, "not a texseg model file, or a truncated one")

    def test_pickled_member_is_not_loaded(self, tmp_path):
        path = tmp_path / "m.texseg"
        header_only(path, {"format": "texseg model", "version": 1, "values": {}})
        np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
        with zipfile.ZipFile(path, "a") as archive:
            archive.write(tmp_path / "o.npy", "o.npy")
        self.refuse(path, "model file is corrupt")

    def test_archive_that_would_fill_the_memory(self, tmp_path):
        path = tmp_path / "m.texseg"
        header_only(path, {"format": "texseg model", "version": 1, "values": {}})
        content = bytearray(path.read_bytes())
        entry = content.index(b"PK\x01\x02")
        content[entry + 24 : entry + 28] = (2**31).to_bytes(4, "little")
        path.write_bytes(content)
        self.refuse(path, "unpacks to more than 64 MiB")

    @pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    def test_member_that_unpacks_to_more_than_it_announces(self, tmp_path, compression):
        path = tmp_path / "m.texseg"
        header_only(path, {"format": "texseg model", "version": 1, "values": {}})
        with zipfile.ZipFile(path, "a", compression) as archive:
            archive.writestr("zeros.npy", bytes(40_000_000))
        content = bytearray(path.read_bytes())
        entry = content.rindex(b"PK\x01\x02")
        content[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
        path.write_bytes(content)
        tracemalloc.start()
        self.refuse(path, "Bad CRC|truncated|compressed in another way")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000

    def test_values_exchanged_between_members(self, tmp_path):
        path = tmp_path / "m.texseg"
        rows = np.arange(6.0).reshape(2, 3)
        for changed in ({"a": rows[::-1], "b": rows}, {"a": rows, "b": rows + 1e-9}):
            save_model(path, {"a": rows, "b": rows, "n": 1})
            rewrite(path, {f"{name}.npy": npy(array) for name, array in changed.items()})
            self.refuse(path, "damaged or changed after it was written")
        save_model(path, {"n": 1})
        for old, new in ((b'"n": 1', b'"n": 2'), (b'"version": 2', b'"version": 1')):  # which had no checksum
            rewrite(path, {"header.json": members(path)["header.json"].replace(old, new)})
            self.refuse(path, "damaged or changed after it was written")

    def test_a_member_or_a_value_that_is_there_twice(self, tmp_path):
        path = tmp_path / "m.texseg"
        save_model(path, {"a": np.zeros(3)})
        with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", npy(np.ones(3)))
        self.refuse(path, "members are repeated")
        header_only(path, {"format": "texseg model", "version": 1, "values": {"a": 1}})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("a.npy", npy(np.ones(3)))
        self.refuse(path, "a value is there twice")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", '{"format": "other", "format": "texseg model", "version": 1}')
        self.refuse(path, "a value is there twice")

    def test_array_that_announces_more_than_it_holds(self, tmp_path):
        path = tmp_path / "m.texseg"
        save_model(path, {"a": np.zeros(3)})
        content = npy(np.zeros(3)).replace(b"(3,), ", b"(3333333333,), ").replace(b" " * 9, b"", 1)
        rewrite(path, {"a.npy": content})
        self.refuse(path, "not of the size it announces")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "m.texseg")
        self.refuse(tmp_path / "m.texseg", "not a regular file")

    def test_a_large_file_is_not_opened(self, tmp_path):
        path = tmp_path / "m.texseg"
        with path.open("wb") as file:
            file.truncate(2**31)
        self.refuse(path, "2,147,483,648 bytes are no texseg model file")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, changes):
    """Write an archive anew, with some members changed."""
    content = members(path) | changes
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in content.items():
            archive.writestr(name, member)


# ---- what the values may be --------------------------------------------------------------------------------

OLD_FILES = Path(__file__).parent / "data"


def two_gratings():
    rows, columns = np.mgrid[:64, :96]
    return np.where(columns < 48, np.sin(rows * 1.5), np.sin(columns * 1.5))


@pytest.mark.parametrize("preset", ["default", "accurate", "plain"])
def test_files_of_version_0_1_are_read(preset):
    """They had no checksum, and a preset that is gone."""
    labels = TextureSegmenter.load(OLD_FILES / f"model_0_1_0_{preset}.texseg").predict(two_gratings())
    assert (labels[:, :44] == 1).all()
    assert (labels[:, 52:] == 2).all()


@pytest.fixture(scope="module")
def sound():
    """Values of a file without checksum, whose values alone can tell that they make no sense."""
    return load_model(OLD_FILES / "model_0_1_0_default.texseg")


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
        ("border_densities", lambda a: ["colour"], "border_densities must be of detail, form"),
        ("border_densities", lambda a: a * 2, "border_densities must differ"),
        ("n_orientations", lambda a: 10**9, "n_orientations must lie in 1 to 64"),
        ("n_orientations", lambda a: 1.5, "n_orientations must be a whole number"),
        ("n_orientations", lambda a: 1, "channel_names must be"),
        ("n_orientations", lambda a: 9, ".* cannot hold those of 9 filters"),
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
        ("channel_names", lambda a: a[::-1], "channel_names must be 4 px, 0 deg"),
        ("channel_names", lambda a: "abcd", "channel_names must be a list of texts"),
        ("cell", lambda a: 0, "cell must lie in"),
        ("potts", lambda a: [0.5, 10, 0, 8, 3], r"potts \(sigma\) must lie in 0.1 to 100, got"),
        ("potts", lambda a: [0.5, 10, 1.5, 10**9, 3], r"potts \(n_rounds\) must lie in"),
        ("kind", lambda a: "stars", "kind must be cells or windows, got 'stars'"),
        ("parameters", lambda a: [], "parameters must be a dictionary"),
        ("parameters", lambda a: a | {"smoothness": 1e300}, "smoothness must be a number from 0 to 10000"),
        ("parameters", lambda a: a | {"channel_axis": 1.5}, "channel_axis must be a whole number"),
        ("parameters", lambda a: a | {"nodata": "none"}, "nodata must be a number"),
    ],
)
def test_values_that_make_no_sense_are_refused(sound, tmp_path, name, change, sentence):
    save_model(tmp_path / "bad.texseg", sound | {name: change(sound[name])})
    with pytest.raises(ModelFileError, match=f"holds no texture model that makes sense: {sentence}"):
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
    expected = TextureSegmenter.load(OLD_FILES / "model_0_1_0_default.texseg").predict(two_gratings())
    labels = TextureSegmenter.load(tmp_path / "same.texseg").predict(two_gratings())
    np.testing.assert_array_equal(labels, expected)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    model = TextureSegmenter.load(OLD_FILES / "model_0_1_0_plain.texseg")
    model.textures_ = replace(model.textures_, cell=10**9)
    with pytest.raises(ValueError, match="cell must lie in 1 to 1024, got 1000000000"):
        model.save(tmp_path / "m.texseg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"a": 1}, "m.texseg holds no texture model: 'profiles' is missing"),
        ({"profiles": np.eye(2), "class_names": ["a"]}, r"m.texseg class_names must be 2 texts, got \['a'\]"),
        ({"profiles": np.eye(2), "class_names": ["a", 7]}, "class_names must be 2 texts"),
        ({"profiles": np.eye(2), "class_names": {"a": 7}}, "class_names must be 2 texts"),
    ],
)
def test_class_names_that_do_not_fit_are_refused(tmp_path, values, sentence):
    save_model(tmp_path / "m.texseg", values)
    with pytest.raises(ModelFileError, match=sentence):
        rename_classes(tmp_path / "m.texseg", {})
