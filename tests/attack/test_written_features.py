"""Features that are written: inside of their folder, whole, and as they were."""

import errno
import shutil
from collections import namedtuple

import h5py
import pytest

from spt_core import read_tokens
from spt_core.errors import InputError
from spt_core.tokens import layout, write_tokens
from spt_core.tokens.converting import FORMS, write_as
from tests.attack.feature_files import good_file


def test_an_encoder_s_name_leads_to_no_other_folder(tmp_path):
    path = good_file(tmp_path / "s.h5")
    with h5py.File(path, "r+") as file:
        file.attrs[layout.ENCODER] = "x/../../../pwned"
    out = tmp_path / "a" / "b" / "out"
    written = write_as("trident", out, read_tokens(path))
    assert written.resolve().is_relative_to(out.resolve())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "s.h5"]


def test_features_too_large_for_half_precision_are_not_made_infinite(tmp_path):
    path = good_file(tmp_path / "s.h5")
    with h5py.File(path, "r+") as file:
        file[layout.FEATURES][3] = 1e6
    with pytest.raises(InputError, match="half precision"):
        write_as("stamp", tmp_path / "out", read_tokens(path), 0.5)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_is_told_before_it_is_written_to(tmp_path, monkeypatch, form):
    tokens = read_tokens(good_file(tmp_path / "s.h5"))
    usage = namedtuple("usage", "total used free")(10, 10, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="No space") as full:
        write_as(form, tmp_path / "out", tokens, 0.5)
    assert full.value.errno == errno.ENOSPC
    assert full.value.filename.endswith("s.h5")
    assert not [one for one in (tmp_path / "out").rglob("*") if one.is_file()]


def test_tokens_that_are_written_are_read(tmp_path):
    tokens = read_tokens(good_file(tmp_path / "s.h5"))
    write_tokens(tmp_path / "t.h5", tokens)
    again = read_tokens(tmp_path / "t.h5")
    assert (again.x == tokens.x).all()
    assert (again.xy == tokens.xy).all()
