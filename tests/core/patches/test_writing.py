"""The log of unfinished features: never more than a batch is lost, one writer."""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.tokens import TokenFacts, h5_writing, read_tokens
from spt_core.tokens.writing import PartialFeatures, SlideInUseError

IDENTITY = {"encoder": "e", "patch_size": 64}
DIM = 6


def some_rows(first, count):
    rows = np.arange(first, first + count)[::-1].copy()
    return rows, np.random.default_rng(first).normal(size=(count, DIM)).astype("f4")


def grid(n):
    g_rc = np.stack([np.arange(n) // 7, np.arange(n) % 7], axis=1)
    return g_rc, g_rc[:, ::-1] * 64


def test_what_is_appended_is_there_again_and_becomes_the_file(tmp_path):
    path = tmp_path / "s.h5"
    parts = [some_rows(0, 5), some_rows(20, 3), some_rows(5, 4)]
    with PartialFeatures(path, IDENTITY, DIM) as log:
        for rows, x in parts[:2]:
            log.append(rows, x)
    with PartialFeatures(path, IDENTITY, DIM) as log:
        assert log.done.tolist() == [0, 1, 2, 3, 4, 20, 21, 22]
        np.testing.assert_array_equal(log.read(parts[1][0]), parts[1][1])
        log.append(*parts[2])
        assert log.finish(*grid(30), TokenFacts(name="s", patch_size=64), {}) == 12
    assert [p.name for p in tmp_path.iterdir()] == ["s.h5"]
    tokens = read_tokens(path)
    want = {
        int(row): line for rows, x in parts for row, line in zip(rows, x, strict=True)
    }
    assert (tokens.p[:, 0] * 7 + tokens.p[:, 1]).tolist() == sorted(want)
    np.testing.assert_array_equal(tokens.x, [want[row] for row in sorted(want)])


def test_a_log_cut_anywhere_keeps_its_whole_records(tmp_path):
    path = tmp_path / "s.h5"
    log_path = tmp_path / "s.h5.partial"
    ends = {}
    with PartialFeatures(path, IDENTITY, DIM) as log:
        for i in range(4):
            log.append(*some_rows(10 * i, 3))
            ends[log_path.stat().st_size] = 3 * (i + 1)
        header = min(ends) - 8 - 3 * (8 + 4 * DIM)
    content = log_path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in [*rng.integers(0, len(content), 60), *ends, len(content) - 1]:
        log_path.write_bytes(content[:cut])
        kept = max((n for end, n in ends.items() if end <= cut), default=0)
        with PartialFeatures(path, IDENTITY, DIM) as log:
            assert len(log.done) == kept
            log.append(*some_rows(90, 2))
        with PartialFeatures(path, IDENTITY, DIM) as log:
            assert len(log.done) == kept + 2
    # A record that is damaged, rather than cut, ends the log as well.
    for place in rng.integers(header + 1, len(content), 30):
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        log_path.write_bytes(bytes(damaged))
        with PartialFeatures(path, IDENTITY, DIM) as log:
            assert len(log.done) == max(
                (n for end, n in ends.items() if end <= place), default=0
            )
            for rows in log.chunks():
                assert np.isfinite(log.read(rows)).all()


def test_an_empty_log_leaves_nothing_behind(tmp_path):
    PartialFeatures(tmp_path / "s.h5", IDENTITY, DIM).close()
    assert list(tmp_path.iterdir()) == []


def test_another_identity_is_refused_and_nothing_is_lost(tmp_path):
    with PartialFeatures(tmp_path / "s.h5", IDENTITY, DIM) as log:
        log.append(*some_rows(0, 3))
    with pytest.raises(InputError, match="patch size 64 there, 32 here"):
        PartialFeatures(tmp_path / "s.h5", {**IDENTITY, "patch_size": 32}, DIM)
    with PartialFeatures(tmp_path / "s.h5", IDENTITY, DIM) as log:
        assert len(log.done) == 3


@pytest.mark.parametrize("shape", [(3, DIM + 1), (3, 2 * DIM), (2, DIM), (3 * DIM,)])
def test_features_of_another_shape_are_refused(tmp_path, shape):
    with PartialFeatures(tmp_path / "s.h5", IDENTITY, DIM) as log:
        log.append(*some_rows(0, 3))
        with pytest.raises(ValueError, match=r"where \(3, 6\) belong"):
            log.append(np.arange(3, 6), np.zeros(shape, "f4"))
        assert log.done.tolist() == [0, 1, 2]


def finished(log):
    return log.finish(*grid(30), TokenFacts(name="s", patch_size=64), {})


def test_without_room_nothing_is_written_and_the_log_stays(tmp_path, monkeypatch):
    full = SimpleNamespace(total=10**9, used=10**9, free=100)
    with PartialFeatures(tmp_path / "s.h5", IDENTITY, DIM) as log:
        log.append(*some_rows(0, 5))
        with monkeypatch.context() as patched:
            patched.setattr(h5_writing.shutil, "disk_usage", lambda _: full)
            with pytest.raises(OSError, match="No space left") as raised:
                finished(log)
        assert raised.value.errno == errno.ENOSPC
        assert [p.name for p in tmp_path.iterdir()] == ["s.h5.partial"]
        assert finished(log) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["s.h5"]


def test_what_hdf5_raises_on_closing_is_an_oserror(tmp_path, monkeypatch):
    class Failing(h5py.File):
        def close(self):
            super().close()
            raise RuntimeError("Can't decrement id ref count")

    with PartialFeatures(tmp_path / "s.h5", IDENTITY, DIM) as log:
        log.append(*some_rows(0, 5))
        with monkeypatch.context() as patched:
            patched.setattr(h5_writing.h5py, "File", Failing)
            with pytest.raises(OSError, match="decrement"):
                finished(log)
        assert [p.name for p in tmp_path.iterdir()] == ["s.h5.partial"]
        assert finished(log) == 5


REFUSED = """
import pathlib, resource, signal, sys
import numpy as np
from spt_core.tokens import TokenFacts
from spt_core.tokens.writing import PartialFeatures

n, limit = 1000, int(sys.argv[2])
g_rc = np.stack([np.arange(n), np.arange(n)], axis=1)
with PartialFeatures(pathlib.Path(sys.argv[1]), {}, 6) as log:
    log.append(np.arange(n), np.ones((n, 6), "f4"))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        log.finish(g_rc, g_rc, TokenFacts(name="s", patch_size=64), {})
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
@pytest.mark.parametrize("limit", [2_000, 26_000, 40_000])
def test_a_write_that_the_system_refuses_does_not_crash(tmp_path, limit):
    """HDF5 itself ends in a segmentation fault here."""
    ran = subprocess.run(
        [sys.executable, "-c", REFUSED, tmp_path / "s.h5", str(limit)],
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{os.strerror(errno.EFBIG)}\n"
    assert [p.name for p in tmp_path.iterdir()] == ["s.h5.partial"]
    with PartialFeatures(tmp_path / "s.h5", {}, DIM) as log:
        assert len(log.done) == 1000


def test_one_writer_only(tmp_path):
    """Within one process, between two, and free again when its owner is gone."""
    path = tmp_path / "s.h5"
    code = (
        "import sys, pathlib\n"
        "from spt_core.tokens.writing import PartialFeatures, SlideInUseError\n"
        "try:\n"
        f"    PartialFeatures(pathlib.Path(sys.argv[1]), {IDENTITY!r}, {DIM})\n"
        "except SlideInUseError as error:\n"
        "    sys.exit(7)\n"
    )
    with PartialFeatures(path, IDENTITY, DIM) as log:
        log.append(*some_rows(0, 3))
        with pytest.raises(SlideInUseError, match="another process"):
            PartialFeatures(path, IDENTITY, DIM)
        assert subprocess.run([sys.executable, "-c", code, path]).returncode == 7
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 0
