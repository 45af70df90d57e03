"""Cohorts: other tools' folders, odd slides listed, memory or files."""

import h5py
import numpy as np
import pytest

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.learning.cohort import open_cohort
from spt_core.tokens import TokenFacts, Tokens, read_labels, write_tokens


def write(folder, name, *, n=20, d=6, dtype=np.float32, **facts):
    rng = np.random.default_rng(len(name) + n)
    p = np.stack(np.divmod(np.arange(n), 5), axis=1)
    stated = {"encoder": "e", "mpp": 0.5, "patch_size": 256, "l0_patch_xy": (512, 512)}
    x = rng.normal(size=(n, d)).astype(dtype)
    tokens = Tokens(x, p, p[:, ::-1] * 512, TokenFacts(**{**stated, **facts}))
    write_tokens(folder / f"{name}.h5", tokens)
    return x


@pytest.mark.parametrize("limit", [0, 2**30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_are_the_same_from_memory_and_from_files(tmp_path, limit, dtype):
    x = write(tmp_path, "a", dtype=dtype)
    cohort = open_cohort(tmp_path, in_memory_bytes=limit)
    assert (cohort[0].x is None) == (limit == 0)
    rows, out = np.array([3, 17, 0]), np.empty((3, 6), np.float32)
    cohort[0].read(rows, out)
    np.testing.assert_array_equal(out, x[rows].astype(np.float32))
    assert cohort.dtype == dtype
    np.testing.assert_array_equal(cohort[0].tokens(), x)


def test_batches_of_doubles_are_single_precision(tmp_path):
    x = write(tmp_path, "a").astype(np.float64)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["features"]
        file["features"] = x
    cohort = open_cohort(tmp_path)
    assert cohort[0].source.dtype == np.float64
    assert cohort.dtype == np.float32


def test_slides_unlike_the_rest_are_listed_before_a_run(tmp_path):
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    write(tmp_path, "close", mpp=0.51)  # within 5 %
    write(tmp_path, "coarse", mpp=1.0)
    write(tmp_path, "other", encoder="uni", patch_size=224)
    write(tmp_path, "wide", d=7)
    (tmp_path / "broken.h5").write_text("no")
    with pytest.raises(InputError) as info:
        open_cohort(tmp_path)
    text = str(info.value)
    assert "coarse: mpp 1.0 (most have 0.5)" in text
    assert "other: encoder uni (most have e), patch_size 224 (most have 256)" in text
    assert "wide: token length 7 (most have 6)" in text
    assert "broken.h5 cannot be read" in text
    assert "close" not in text


def test_what_is_not_stated_is_remarked_and_not_refused(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "b", encoder=None, mpp=None)
    cohort = open_cohort(tmp_path)
    assert len(cohort) == 2
    assert any(
        "1 feature files do not state their encoder" in r for r in cohort.remarks
    )
    told = open_cohort(tmp_path, encoder="e", mpp=0.5)
    assert told.remarks == ()


def test_the_way_that_is_named_states_what_is_not_stated(tmp_path):
    """By a command that exists, whichever command says so."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    write(before, "a", encoder=None, mpp=None, patch_size=None)
    said = " ".join(open_cohort(before).remarks)
    assert "do not state their pixel size" in said
    options = ("--encoder", "--mpp", "--patch-size")
    assert all(f"'spt convert' with {option} writes" in said for option in options)
    stated = ["--encoder", "e", "--mpp", "0.5", "--patch-size", "256"]
    assert main(["convert", str(before), "--out", str(after), *stated]) == 0
    assert open_cohort(after).remarks == ()


def test_empty_slides_are_left_out_and_said(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "none", n=0)
    cohort = open_cohort(tmp_path)
    assert len(cohort) == 1
    assert "1 slides have no tokens and are left out: none." in cohort.remarks


def test_folders_without_features(tmp_path):
    with pytest.raises(InputError, match="spt encode"):
        open_cohort(tmp_path)
    with pytest.raises(InputError, match="There is no folder"):
        open_cohort(tmp_path / "nowhere")
    write(tmp_path, "none", n=0)
    with pytest.raises(InputError, match="None of the slides has a token"):
        open_cohort(tmp_path)


def test_labels_and_patients(tmp_path):
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    (tmp_path / "labels.csv").write_text("slide,label,patient\na,x,p\nc.svs,y,p\n")
    cohort = open_cohort(tmp_path, read_labels(tmp_path / "labels.csv"))
    np.testing.assert_array_equal(cohort.class_numbers(), [0, -1, 1])
    assert cohort.patients() == ["patient:p", "slide:b", "patient:p"]
    assert [slide.name for slide in cohort.subset([2, 0])] == ["c", "a"]


def test_fingerprints_are_of_pixels_where_stated(tmp_path):
    write(tmp_path, "a", slide_fingerprint="pixels")
    write(tmp_path, "b", n=21)
    write(tmp_path, "c", n=22)
    prints = [slide.fingerprint() for slide in open_cohort(tmp_path)]
    assert prints[0] == "pixels"
    assert len(set(prints)) == 3
    again = [s.fingerprint() for s in open_cohort(tmp_path, in_memory_bytes=0)]
    assert prints == again
