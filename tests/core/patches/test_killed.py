"""kill -9 at random moments costs at most a batch and changes nothing."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest

from spt_core import read_tokens
from spt_core.patches import encode_slide
from tests.core.patches.conftest import SETTINGS, make_slide, run_through

# Slowed down, so that there is something to kill; twenty moments lie in 1.5 seconds.
SLOW_RUN = """
import dataclasses, pathlib, sys, time, torch
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
print("ready", flush=True)
for event in encode_slide(sys.argv[1], sys.argv[2], settings, encoder=encoder):
    pass
print("done", flush=True)
"""


def killed_run(slide, out, seconds):
    """Run until ``seconds`` after everything is loaded, then kill."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, str(slide), str(out)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == b"ready"
    time.sleep(seconds)
    process.kill()
    process.communicate()


def survive(tmp_path, kills):
    slide = make_slide(tmp_path / "s.tif", 2200, 1900)
    _, whole = run_through(encode_slide(slide, tmp_path / "whole", SETTINGS))
    want = read_tokens(whole.path)
    chance = random.Random(0)
    out = tmp_path / "killed"
    kept = []
    for _ in range(kills):
        killed_run(slide, out, chance.uniform(0.1, 1.5))
        partial = out / "s.h5.partial"
        kept.append(partial.stat().st_size if partial.exists() else 0)
        if (out / "s.h5").exists():
            (out / "s.h5").unlink()
            kept.clear()
    # What one run has done the next one keeps.
    assert kept == sorted(kept)
    _, result = run_through(encode_slide(slide, out, SETTINGS))
    assert result.status == "done"
    have = read_tokens(result.path)
    np.testing.assert_array_equal(have.xy, want.xy)
    np.testing.assert_array_equal(have.g_rc, want.g_rc)
    np.testing.assert_allclose(have.x, want.x, atol=1e-4)
    assert sorted(p.name for p in out.iterdir()) == ["s.h5"]


def test_killed_at_a_few_moments(tmp_path):
    survive(tmp_path, 3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_twenty_moments(tmp_path):
    survive(tmp_path, 20)


def test_two_processes_on_one_folder_do_not_collide(tmp_path):
    """Each slide is encoded once, by one of them."""
    from spt_core.patches.encode import encode_slides, slide_tasks

    slide = make_slide(tmp_path / "s.tif", 2200, 1900)
    out = tmp_path / "out"
    other = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, str(slide), str(out)], stdout=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not (out / "s.h5.partial").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    _, results = run_through(encode_slides(slide_tasks([slide], out), SETTINGS))
    assert results[0].status in ("busy", "skipped")
    if results[0].status == "busy":
        assert "another process" in results[0].reason
    said, _ = other.communicate(timeout=120)
    assert b"done" in said
    _, results = run_through(encode_slides(slide_tasks([slide], out), SETTINGS))
    assert results[0].status == "skipped"
