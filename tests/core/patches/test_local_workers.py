"""Processes of this computer that encode: failures, crashes, and no open door."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np
import openslide
import psutil
import pytest

from spt_core import read_tokens
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.patches import SlideStarted, encode_slides, local_workers, slide_tasks
from spt_core.patches.local_workers import encode_in_processes
from tests.core.patches.conftest import SETTINGS, make_slide, run_through


class Deadly(type(Path())):
    """The path of features whose slide takes every process down."""

    def exists(self, **options):
        os.kill(os.getpid(), signal.SIGSEGV)


class Endless(type(Path())):
    """The path of features whose slide openslide comes to no end with."""

    def exists(self, **options):
        local_workers._READ_SECONDS = 2
        openslide.OpenSlide = lambda path: time.sleep(300)
        return False


@pytest.mark.timeout(240)
def test_local_workers_report_failures_and_progress(tmp_path):
    good = make_slide(tmp_path / "good.tif", 1200, 1000)
    bad = tmp_path / "bad.tif"
    bad.write_bytes(b"II*\0 not a slide")
    tasks = slide_tasks([bad, good], tmp_path / "out")
    _, results = run_through(encode_in_processes(tasks, SETTINGS, workers=2))
    by_name = {r.name: r for r in results}
    assert by_name["good"].status == "done"
    assert by_name["bad"].status == "failed"
    assert "damaged or incomplete" in by_name["bad"].reason


@pytest.mark.timeout(240)
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_slide_that_crashes_its_process_fails_and_the_others_go_on(tmp_path, workers):
    paths = [make_slide(tmp_path / f"s{i}.tif", 900, 800, seed=i) for i in range(3)]
    tasks = slide_tasks(paths, tmp_path / "out")
    tasks[1] = dataclasses.replace(tasks[1], out=Deadly(tasks[1].out))
    _, results = run_through(encode_in_processes(tasks, SETTINGS, workers=workers))
    by_name = {r.name: r for r in results}
    assert {name: r.status for name, r in by_name.items()} == {
        "s0": "done",
        "s1": "failed",
        "s2": "done",
    }
    assert "SIGSEGV" in by_name["s1"].reason
    assert "see whether it is whole" in by_name["s1"].reason


@pytest.mark.timeout(240)
def test_a_slide_that_is_never_read_fails(tmp_path):
    (task,) = slide_tasks([make_slide(tmp_path / "s.tif", 900, 800)], tmp_path / "out")
    task = dataclasses.replace(task, out=Endless(task.out))
    _, (result,) = run_through(encode_in_processes([task], SETTINGS))
    assert result.status == "failed"
    assert "a part of it was not read in 5 minutes" in result.reason


@pytest.mark.timeout(240)
def test_nobody_can_reach_the_workers(tmp_path):
    paths = [make_slide(tmp_path / f"s{i}.tif", 1300, 1100, seed=i) for i in range(2)]
    tasks = slide_tasks(paths, tmp_path / "out")
    before = listening()
    seen = 0
    for event in encode_in_processes(tasks, SETTINGS, workers=2):
        if isinstance(event, Progress):
            seen += 1
            assert len(psutil.Process().children(recursive=True)) >= 2
            assert listening() <= before
    assert seen
    run_through(encode_slides(slide_tasks(paths, tmp_path / "one"), SETTINGS))
    for task in tasks:
        want = read_tokens(tmp_path / "one" / task.out.name)
        have = read_tokens(task.out)
        np.testing.assert_array_equal(have.xy, want.xy)
        np.testing.assert_allclose(have.x, want.x, atol=1e-4)


def listening():
    """Addresses at which this process or one of its children can be reached."""
    return {
        one.laddr
        for process in (psutil.Process(), *psutil.Process().children(recursive=True))
        for one in process.net_connections()
        if one.status == psutil.CONN_LISTEN
    }


@pytest.mark.slow
def test_an_encoder_that_cannot_be_loaded_is_said_once(tmp_path):
    tasks = slide_tasks([tmp_path / "a.tif", tmp_path / "b.tif"], tmp_path)
    settings = dataclasses.replace(SETTINGS, encoder="no-such-encoder")
    with pytest.raises(InputError, match="no-such-encoder"):
        run_through(encode_in_processes(tasks, settings))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_is_stopped_goes_on_where_it_was(tmp_path):
    tasks = slide_tasks([make_slide(tmp_path / "s.tif", 2600, 2200)], tmp_path / "out")
    settings = dataclasses.replace(SETTINGS, batch_size=8, lanes=1)
    events = encode_in_processes(tasks, settings)
    for event in events:
        if isinstance(event, Progress) and event.done:
            break
    events.close()
    assert [p.suffix for p in (tmp_path / "out").iterdir()] == [".partial"]
    seen, results = run_through(encode_in_processes(tasks, settings))
    assert next(e.done for e in seen if isinstance(e, SlideStarted)) > 0
    assert results[0].status == "done"
