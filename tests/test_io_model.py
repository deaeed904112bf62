"""Model files: plain data, the same bytes for the same model, refused with a sentence otherwise."""

import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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
            tmp_path / "m.texseg", r"newer texseg \(model version 99, this one reads up to 1\); update texseg"
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
        self.refuse(path, "unpacks to more than 1 GiB")
