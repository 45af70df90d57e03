"""kill -9 at random moments costs at most a batch and changes nothing."""

import dataclasses
import random
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from spt_core import read_tokens
from spt_core.patches import encode_slide
from spt_core.tokens.writing import PartialFeatures
from tests.core.patches.conftest import SETTINGS, make_slide, run_through
from tests.processes import kill

# Not on macOS, where a fork beside threads of the system's libraries crashes.
FORKS = sys.platform == "linux"

# Slowed down, so that there is something to kill; twenty moments lie in 1.5 seconds.
SLOW_RUN = """
import os, sys, time, torch
from spt_core.patches import EncodeSettings, encode_slide, load_encoder

class Slow(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        time.sleep(0.02)
        return self.module(x)

encoder = load_encoder("small-random")
encoder.module = Slow(encoder.module)
settings = EncodeSettings(encoder="small-random", patch_size=64, target_mpp=1.0,
                          batch_size=8, lanes=2)
# Where a process can be forked, importing torch once is enough for all the killing.
forks = sys.platform == "linux"
for _ in sys.stdin if forks else [0]:
    child = os.fork() if forks else 0
    if child:
        print(child, flush=True)
        os.waitpid(child, 0)
        print("gone", flush=True)
        continue
    if not forks:
        print(os.getpid(), flush=True)
    for event in encode_slide(sys.argv[1], sys.argv[2], settings, encoder=encoder):
        pass
    print("done", flush=True)
    break
"""

# The last digits are those of a batch's size.
AS_THERE = dataclasses.replace(SETTINGS, batch_size=8, lanes=2)


def started_run(slide, out):
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, str(slide), str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_after(run, seconds):
    """Let it encode for ``seconds``, then kill it and see that it is gone."""
    if FORKS:
        run.stdin.write("go\n")
        run.stdin.flush()
    process = int(run.stdout.readline())
    time.sleep(seconds)
    kill(process)
    while FORKS and run.stdout.readline().strip() != "gone":
        pass


def survive(tmp_path, kills):
    slide = make_slide(tmp_path / "s.tif", 2200, 1900)
    _, whole = run_through(encode_slide(slide, tmp_path / "whole", AS_THERE))
    want = read_tokens(whole.path)
    chance = random.Random(0)
    out = tmp_path / "killed"
    partial = out / "s.h5.partial"
    kept = [0]
    run = None
    for _ in range(kills):
        if run is None or not FORKS:
            run = started_run(slide, out)
        kill_after(run, chance.uniform(0.1, 1.5))
        if (out / "s.h5").exists():  # it was quicker: begin again
            (out / "s.h5").unlink()
            kept = [0]
        size = partial.stat().st_size if partial.exists() else 0
        # What one run has done the next one keeps.
        assert size >= kept[-1]
        kept.append(size)
        if not FORKS:
            run.communicate()
    if FORKS:
        run.communicate()
    _, result = run_through(encode_slide(slide, out, AS_THERE))
    assert result.status == "done"
    have = read_tokens(result.path)
    np.testing.assert_array_equal(have.xy, want.xy)
    np.testing.assert_array_equal(have.g_rc, want.g_rc)
    assert np.array_equal(have.x, want.x)
    assert sorted(p.name for p in out.iterdir()) == ["s.h5"]


def test_killed_at_a_few_moments(tmp_path):
    survive(tmp_path, 3)


def test_killed_after_the_last_patch(tmp_path, monkeypatch):
    """Nothing is left to encode, and the file states all that it would have."""
    slide = make_slide(tmp_path / "s.tif", 1400, 1200)
    _, whole = run_through(encode_slide(slide, tmp_path / "whole", AS_THERE))

    class KilledError(BaseException):
        pass

    def killed(partial, *args):
        partial.close()
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(PartialFeatures, "finish", killed)
        with pytest.raises(KilledError):
            run_through(encode_slide(slide, tmp_path / "killed", AS_THERE))
    _, result = run_through(encode_slide(slide, tmp_path / "killed", AS_THERE))
    with h5py.File(whole.path) as want, h5py.File(result.path) as have:
        assert have["features"][()].tobytes() == want["features"][()].tobytes()
        for place in ("/", "features", "coords"):
            assert set(have[place].attrs) == set(want[place].attrs)
            for name, value in want[place].attrs.items():
                assert np.array_equal(have[place].attrs[name], value), name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_twenty_moments(tmp_path):
    survive(tmp_path, 20)


def test_a_slide_finished_meanwhile_is_not_done_twice(tmp_path, monkeypatch):
    """Another process finishes it while this one is still looking for tissue."""
    from spt_core.patches import job
    from spt_core.patches.encode import encode_slides, slide_tasks

    slide = make_slide(tmp_path / "s.tif", 1400, 1200)
    out = tmp_path / "out"
    find = job.find_tissue

    def meanwhile(*args):
        monkeypatch.setattr(job, "find_tissue", find)
        run_through(encode_slide(slide, out, SETTINGS))
        return find(*args)

    monkeypatch.setattr(job, "find_tissue", meanwhile)
    _, results = run_through(encode_slides(slide_tasks([slide], out), SETTINGS))
    assert results[0].status == "skipped"
    assert [path.name for path in out.iterdir()] == ["s.h5"]


def test_two_processes_on_one_folder_do_not_collide(tmp_path):
    """Each slide is encoded once, by one of them."""
    from spt_core.patches.encode import encode_slides, slide_tasks

    slide = make_slide(tmp_path / "s.tif", 2200, 1900)
    out = tmp_path / "out"
    other = started_run(slide, out)
    other.stdin.write("go\n")
    other.stdin.flush()
    until = time.monotonic() + 60
    while not (out / "s.h5.partial").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    _, results = run_through(encode_slides(slide_tasks([slide], out), SETTINGS))
    assert results[0].status in ("busy", "skipped")
    if results[0].status == "busy":
        assert "another process" in results[0].reason
    said, _ = other.communicate(timeout=120)
    assert "done" in said
    _, results = run_through(encode_slides(slide_tasks([slide], out), SETTINGS))
    assert results[0].status == "skipped"
