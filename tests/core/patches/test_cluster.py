"""A real cluster of two processes, one of which is killed in mid-run."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

from spt_core import read_tokens
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.patches import SlideStarted, encode_slides, slide_tasks
from spt_core.patches.cluster import encode_on_cluster
from spt_core.patches.scheduler import TlsFiles, connect, trust
from tests.core.patches.conftest import SETTINGS, make_slide, run_through
from tests.processes import kill

# dask's own, when a process dies under its hands.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.mark.timeout(240)
def test_a_killed_workers_slides_are_redone_and_nothing_is_twice(tmp_path):
    slides = tmp_path / "slides"
    slides.mkdir()
    paths = [make_slide(slides / f"s{i}.tif", 2000, 1700, seed=i) for i in range(4)]
    tasks = slide_tasks(paths, tmp_path / "out")
    settings = dataclasses.replace(SETTINGS, lanes=1, threads=1, readers=1)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        killed = threading.Event()
        events = encode_on_cluster(tasks, settings, cluster.scheduler_address)
        seen, results = [], None
        while True:
            try:
                event = next(events)
            except StopIteration as stop:
                results = stop.value
                break
            seen.append(event)
            if isinstance(event, SlideStarted) and not killed.is_set():
                time.sleep(0.1)
                kill(victim)
                killed.set()
    assert killed.is_set()
    assert sorted(r.name for r in results) == [f"s{i}" for i in range(4)]
    # A slide whose file the killed worker had just finished is not done a second time.
    statuses = [r.status for r in results]
    assert set(statuses) <= {"done", "skipped"}
    assert statuses.count("skipped") <= 1
    assert any(isinstance(event, Progress) for event in seen)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        f"s{i}.h5" for i in range(4)
    ]
    run_through(encode_slides(slide_tasks(paths, tmp_path / "one"), settings))
    for i in range(4):
        have = read_tokens(tmp_path / "out" / f"s{i}.h5")
        want = read_tokens(tmp_path / "one" / f"s{i}.h5")
        np.testing.assert_array_equal(have.xy, want.xy)
        assert np.array_equal(have.x, want.x)


@pytest.mark.slow  # its client tries to come back for ten seconds
@pytest.mark.timeout(240)
def test_a_scheduler_lost_in_mid_run_is_a_sentence(tmp_path):
    paths = [make_slide(tmp_path / f"s{i}.tif", 1200, 1000, seed=i) for i in range(2)]
    tasks = slide_tasks(paths, tmp_path / "out")
    settings = dataclasses.replace(SETTINGS, lanes=1, threads=1, readers=1)
    where = tmp_path / "scheduler.json"
    words = ["--port", "0", "--host", "127.0.0.1", "--no-dashboard"]
    scheduler = dask("scheduler", *words, "--scheduler-file", str(where))
    try:
        address = written(where)["address"]
        worker = dask("worker", address, "--no-nanny", "--no-dashboard")
        try:
            events = encode_on_cluster(tasks, settings, address)
            while not isinstance(next(events), SlideStarted):
                pass
            kill(scheduler.pid)
            with pytest.raises(InputError, match="was lost"):
                run_through(events)
        finally:
            kill(worker.pid)
            worker.wait()
    finally:
        kill(scheduler.pid)
        scheduler.wait()
    results = run_through(encode_slides(tasks, settings))[1]
    assert {one.status for one in results} <= {"done", "skipped"}, results


def dask(kind, *words):
    """A process of dask's, as somebody would start it."""
    module = f"distributed.cli.dask_{kind}"
    return subprocess.Popen(
        [sys.executable, "-m", module, *words], stderr=subprocess.DEVNULL
    )


def written(path, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            return json.loads(path.read_text())
        time.sleep(0.05)
    raise TimeoutError(path)


def test_workers_in_other_folders_find_what_is_named_from_here(tmp_path, monkeypatch):
    """Else features would go to a folder of the worker, and be said to be here."""
    make_slide(tmp_path / "s.tif", 600, 500)
    monkeypatch.chdir(tmp_path)
    tasks = slide_tasks([Path("s.tif")], Path("out"))
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        (tmp_path / "elsewhere").mkdir()
        with Client(cluster) as client:
            client.run(os.chdir, tmp_path / "elsewhere")
        events = encode_on_cluster(tasks, SETTINGS, cluster.scheduler_address)
        _, results = run_through(events)
    assert [one.status for one in results] == ["done"], results
    assert (tmp_path / "out" / "s.h5").exists()


def test_no_scheduler_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("spt_core.patches.scheduler._CONNECT_SECONDS", 1.0)
    tasks = slide_tasks([tmp_path / "s.tif"], tmp_path)
    with pytest.raises(InputError, match="no scheduler at"):
        run_through(encode_on_cluster(tasks, SETTINGS, "tcp://127.0.0.1:9"))


def test_trust_in_a_scheduler_is_explained_and_tls_files_are_checked(tmp_path):
    assert "can run programs" in trust("tcp://10.0.0.1:8786")
    assert trust("tls://10.0.0.1:8786") is None
    pem = tmp_path / "a.pem"
    pem.write_text("")
    assert TlsFiles.given(None, None, None) is None
    assert TlsFiles.given(str(pem), str(pem), str(pem)) == TlsFiles(pem, pem, pem)
    with pytest.raises(InputError, match="all three"):
        TlsFiles.given(str(pem), None, None)
    with pytest.raises(InputError, match="There is no file"):
        TlsFiles.given(str(pem), str(pem), str(tmp_path / "b.pem"))
    with pytest.raises(InputError, match="--tls-ca"):
        connect("tls://127.0.0.1:9")
    with pytest.raises(InputError, match="tls://"):
        connect("tcp://127.0.0.1:9", TlsFiles(pem, pem, pem))
