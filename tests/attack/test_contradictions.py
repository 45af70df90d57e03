"""Feature files whose numbers are each possible, and cannot all be true."""

import os
import shutil

import h5py
import numpy as np
import pytest

from spt_core import read_tokens
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.tokens import layout
from tests.attack.feature_files import good_file


@pytest.fixture
def good(tmp_path):
    return good_file(tmp_path / "s.h5")


def put(path, name, change):
    with h5py.File(path, "r+") as file:
        attrs, values = dict(file[name].attrs), file[name][:]
        del file[name]
        file.create_dataset(name, data=change(values)).attrs.update(attrs)


def state(path, name, value, place=None):
    with h5py.File(path, "r+") as file:
        (file[place] if place else file).attrs[name] = value


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (layout.GRID, lambda g: g[np.random.default_rng(0).permutation(len(g))]),
        (layout.GRID, lambda g: g[:, ::-1]),
        (layout.GRID, lambda g: g * 3),
        (layout.GRID, lambda g: g * 0),
        (layout.COORDS, lambda xy: xy * 0),
        (layout.COORDS, lambda xy: xy + 10**6),
        (layout.COORDS, lambda xy: xy - 10**5),
        (layout.COORDS, lambda xy: (xy + 2**31).astype(np.int32)),
    ],
)
def test_places_that_contradict_cells_or_the_slide_are_refused(good, name, change):
    put(good, name, change)
    with pytest.raises(InputError, match=r"contradict|outside of the slide"):
        read_tokens(good)


@pytest.mark.parametrize(
    ("name", "value", "place", "words"),
    [
        (layout.PATCH_UM, 999.0, None, "as it states"),
        (layout.PATCH_SIZE_L0, 64, layout.COORDS, "contradict"),
        (layout.OVERLAP, 500, layout.COORDS, "cannot overlap"),
        (layout.L0_WIDTH, 10, layout.COORDS, "outside of the slide"),
        (layout.GRID_ORIGIN, np.array([1000, 1000]), None, "before its"),
        (layout.GRID_ORIGIN, np.array([-(2**62), 0]), None, "larger than any"),
        (layout.MPP, np.array([1.0, 0.25]), None, "which no slide has"),
        (layout.HAS_POSITIONS, np.array([0, 1]), None, "not yes or no"),
        (layout.HAS_POSITIONS, "x", None, "not yes or no"),
        (layout.ENCODER_SHA256, "x" * 60_000, None, "longer than any"),
    ],
)
def test_facts_that_contradict_one_another_are_refused(good, name, value, place, words):
    state(good, name, value, place)
    with pytest.raises(InputError, match=words) as refused:
        read_tokens(good)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("chunks", [None, (4, 16)])
def test_features_that_were_never_written_are_refused(good, chunks):
    with h5py.File(good, "r+") as file:
        del file[layout.FEATURES]
        made = file.create_dataset(layout.FEATURES, (40, 16), "f4", chunks=chunks)
        if chunks:
            made[:20] = 1
    with pytest.raises(InputError, match="are missing"):
        read_tokens(good)


@pytest.mark.parametrize(
    "folder",
    [
        "1.2.3x_256px_0px_overlap",
        "..x_256px_0px_overlap",
        "0x_0px_0px_overlap",
        "20x_99999999999999999999px_5px_overlap",
        "\u00b2x_1px_1px_overlap",
        "20x_\u0663px_0px_overlap",
    ],
)
def test_a_folder_that_is_nearly_called_as_trident_s_says_nothing(tmp_path, folder):
    path = tmp_path / folder / "features_uni" / "s.h5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        file[layout.FEATURES] = np.ones((4, 8), np.float32)
        file[layout.COORDS] = np.arange(4)[:, None] * [256, 0]
    facts = read_tokens(path).facts
    assert (facts.patch_size, facts.mpp) == (None, None)


def test_the_rest_of_a_folder_is_converted_and_the_bad_are_listed(
    tmp_path, capsys, good
):
    folder, out = tmp_path / "f", tmp_path / "out"
    folder.mkdir()
    shutil.copy(good, folder / "b.h5")
    (folder / "a.h5").write_bytes(b"x")
    os.symlink("nowhere", folder / "c.h5")
    assert main(["convert", str(folder), "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert "a.h5" in said.err
    assert "c.h5" in said.err
    assert "1 files" in said.out
    assert [path.name for path in out.iterdir()] == ["b.h5"]
    assert main(["info", str(folder)]) == 1


@pytest.mark.parametrize(
    "words", [("--mpp", "nan"), ("--slide-mpp", "-1"), ("--patch-size", "0")]
)
def test_no_size_is_written_that_no_slide_has(tmp_path, capsys, good, words):
    out = str(tmp_path / "out")
    assert main(["convert", str(good), "--out", out, *words]) == 1
    assert f"{words[0]} must be from" in capsys.readouterr().err
