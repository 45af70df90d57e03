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


def test_features_in_a_form_that_numpy_lacks_are_converted(good):
    whole = read_tokens(good).x
    bfloat16 = h5py.h5t.IEEE_F16LE.copy()
    bfloat16.set_fields(15, 7, 8, 0, 7)
    bfloat16.set_ebias(127)
    with h5py.File(good, "r+") as file:
        del file[layout.FEATURES]
        space = h5py.h5s.create_simple(whole.shape)
        place = h5py.h5d.create(file.id, layout.FEATURES.encode(), bfloat16, space)
        place.write(h5py.h5s.ALL, h5py.h5s.ALL, whole)
    np.testing.assert_allclose(read_tokens(good).x, whole, rtol=2**-7)


def test_a_heap_without_an_end_is_not_read_for_ever(good):
    content = bytearray(good.read_bytes())
    place = content.index(b"GCOL") + 16
    content[place : place + 2] = bytes(2)  # the first text is now free space,
    content[place + 8 : place + 16] = bytes(8)  # of no size
    good.write_bytes(content)
    with pytest.raises(InputError, match="encode this slide again"):
        read_tokens(good)


def test_a_file_that_another_program_writes_is_refused(good):
    if os.name == "nt":
        pytest.skip("HDF5 keeps others out there")
    from fcntl import LOCK_EX, flock

    with good.open("rb") as file:
        flock(file, LOCK_EX)
        with pytest.raises(InputError, match="another program is writing"):
            read_tokens(good)


def test_an_attribute_without_a_value_is_none(good):
    state(good, "of_another_tool", np.zeros(0))
    state(good, layout.SCANNER, np.zeros(0))
    assert read_tokens(good).facts.scanner is None


def test_facts_that_are_no_real_numbers_are_refused(good):
    state(good, layout.OVERLAP, 1 + 2j, layout.COORDS)
    with pytest.raises(InputError, match="its overlap is"):
        read_tokens(good)


@pytest.mark.parametrize("name", [layout.FEATURES, layout.COORDS, layout.GRID])
def test_a_table_that_holds_nothing_is_a_sentence(good, name):
    with h5py.File(good, "r+") as file:
        del file[name]
        file[name] = h5py.Empty("f4")
    with pytest.raises(InputError, match="holds nothing"):
        read_tokens(good)


def test_a_file_of_ours_without_places_is_not_another_tool_s(good):
    with h5py.File(good, "r+") as file:
        del file[layout.COORDS]
    with pytest.raises(InputError, match="has no coords"):
        read_tokens(good)
