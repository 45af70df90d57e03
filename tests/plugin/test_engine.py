"""The client of the engine: messages, crashes, restarts, and a clean end."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from napari_spt.parts import engine as _engine
from napari_spt.parts.engine import Engine, Message
from spt_core.sample import write_sample_slide
from spt_core.tokens import read_tokens
from tests.processes import is_running

ENDS = ("done", "cancelled", "failed")
POSIX = pytest.mark.skipif(os.name == "nt", reason="kills by signals")


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    path = tmp_path_factory.mktemp("slide") / "sample.tif"
    for _ in write_sample_slide(path, size=4096, workers=1):
        pass
    return path


@pytest.fixture
def work(slide, tmp_path):
    """An analysis of several seconds."""
    return {"slide": slide, "model": "bundled", "features": tmp_path / "features"}


@pytest.fixture
def quick(slide, tmp_path):
    """One of less than a second: large patches, and no model."""
    folder = tmp_path / "quick"
    return {"slide": slide, "encoder": "small-random", "features": folder}


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.close()


def collect(engine, is_over, seconds=90.0):
    """Everything that is said until it is over."""
    seen: list[Message] = []
    end = time.monotonic() + seconds
    while not is_over(seen):
        assert time.monotonic() < end, [m.event for m in seen]
        began = time.perf_counter()
        seen += engine.poll()
        assert time.perf_counter() - began < 0.1  # polling never waits
        time.sleep(0.02)
    return seen


def until(engine, request, *events, seconds=90.0):
    def is_over(seen):
        return any(m.request == request and m.event in (events or ENDS) for m in seen)

    return collect(engine, is_over, seconds)


def folders():
    return set(Path(tempfile.gettempdir()).glob(f"{_engine._PREFIX}*"))


def test_from_off_to_a_result_and_off_again(work):
    before, threads = folders(), threading.active_count()
    engine = Engine()
    assert engine.state == "off"
    assert engine.poll() == []
    began = time.perf_counter()
    engine.start()
    assert time.perf_counter() - began < 0.3
    assert engine.state == "starting"
    request = engine.submit("analyse", **work)
    seen = until(engine, request)
    assert engine.state == "ready"
    assert engine.about["devices"]
    assert seen[-1].event == "done", seen[-1]
    predictions = [m for m in seen if m.event == "prediction"]
    tokens = read_tokens(seen[-1].facts["features"])
    assert (predictions[-1].arrays["l0_xy"] == tokens.xy).all()
    assert predictions[-1].arrays["attention"].shape[1] == len(tokens)
    (folder,) = folders() - before
    # What was read is gone.
    assert [path.name for path in folder.glob("*.npy")] == []
    _check_cancelling(engine, {**work, "features": work["features"] / "more"})
    pid = engine.pid
    engine.close()
    assert engine.state == "off"
    assert not is_running(pid)
    assert folders() == before
    assert threading.active_count() == threads
    engine.close()  # twice does no harm
    assert "torch" not in sys.modules


def _check_cancelling(engine, work):
    first, second = (engine.submit("analyse", **work) for _ in range(2))
    seen = until(engine, first, "prediction")
    engine.cancel(second)
    engine.cancel(first)
    seen += until(engine, first)
    ends = {m.request: m.event for m in seen if m.event in ENDS}
    assert ends == {first: "cancelled", second: "cancelled"}
    engine.cancel(999)
    assert engine.state == "ready"


def test_closing_at_work_is_quick_and_clean(work, quick):
    before, threads = folders(), threading.active_count()
    engine = Engine()
    request = engine.submit("analyse", **work)
    until(engine, request, "prediction")
    began = time.perf_counter()
    engine.close()
    assert time.perf_counter() - began < 5
    assert folders() == before
    assert threading.active_count() == threads
    # It may be used again, and closed while it starts.
    engine.submit("analyse", **quick)
    assert engine.state == "starting"
    engine.close()
    assert engine.state == "off"
    assert folders() == before
    assert threading.active_count() == threads


@POSIX
def test_killed_at_random_moments(engine, work):
    """A sentence for every open request, and the next click goes on from there."""
    chance = random.Random(1)
    done_before = 0
    for moment, blow in (
        (0.3, signal.SIGKILL),
        (None, signal.SIGKILL),
        (None, signal.SIGSEGV),
    ):
        first = engine.submit("analyse", **work)
        second = engine.submit("analyse", **work)
        seen = []
        if moment is None:
            seen = until(engine, first, "started")
            moment = chance.uniform(0, 1.0)
        time.sleep(moment)
        os.kill(engine.pid, blow)
        seen += collect(engine, lambda seen: any(m.event == "lost" for m in seen))
        assert engine.state == "lost"
        for request in (first, second):
            (end,) = [m for m in seen if m.request == request and m.event in ENDS]
            assert end.event == "failed"
            expected = "memory" if blow == signal.SIGKILL else "crash"
            assert end.facts["kind"] == expected
            assert "kept" in end.facts["sentence"]
        for message in seen:
            if message.event == "started":
                assert message.facts["done"] >= done_before
                done_before = message.facts["done"]
    seen = until(engine, engine.submit("analyse", **work))
    assert seen[-1].event == "done"
    assert engine.state == "ready"
    started = next(m for m in seen if m.event == "started")
    assert started.facts["done"] > 0
    tokens = read_tokens(seen[-1].facts["features"])
    assert len(tokens) == started.facts["patches"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by prlimit")
def test_too_little_memory_is_a_sentence(engine, work):
    """Whichever library meets the limit first: some raise, some end the process.

    One that ends it without a word leaves nothing to know it by; that is not the rule.
    """
    kinds = []
    while "memory" not in kinds:
        end = ended_by_memory(engine, work)
        assert "kept" in end["sentence"]
        kinds.append(end["kind"])
        assert kinds[-1] == "memory" or len(kinds) < 3, end
    assert "memory" in end["sentence"]
    assert set(kinds) <= {"memory", "crash"}
    # With memory again, the next click is answered: by the same engine or a fresh one.
    assert until(engine, engine.submit("analyse", **work))[-1].event == "done"


def ended_by_memory(engine, work):
    import resource

    until(engine, engine.submit("explore", features="nowhere.h5"), "failed")
    pages = int(Path(f"/proc/{engine.pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 90 * 2**20
    free = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(engine.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    request = engine.submit("analyse", **work)
    (end,) = [
        m for m in until(engine, request) if m.request == request and m.event in ENDS
    ]
    assert end.event == "failed"
    if engine.state == "ready":
        resource.prlimit(engine.pid, resource.RLIMIT_AS, free)
    return end.facts


def test_an_engine_that_cannot_start_says_why(engine, quick, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('torch is broken here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    end = next(
        m
        for m in until(engine, engine.submit("analyse", **quick))
        if m.event == "failed"
    )
    assert end.facts["kind"] == "crash"
    assert "torch is broken here" in end.facts["sentence"]
    assert engine.state == "lost"


@POSIX
def test_what_killed_sessions_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    hour, days = 2 * 3600, 4 * 24 * 3600
    cases = {
        f"napari-spt-{dead.pid}-a": (hour, False),
        f"napari-spt-{dead.pid}-b": (60, True),
        f"napari-spt-{os.getpid()}-c": (hour, True),
        f"napari-spt-{os.getpid()}-d": (days, False),
        "napari-spt-mine": (days, True),
    }
    for name, (age, _) in cases.items():
        (tmp_path / name).mkdir()
        then = time.time() - age
        os.utime(tmp_path / name, (then, then))
    _engine._remove_stale_folders()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {name for name, (_, stays) in cases.items() if stays}


@POSIX
def test_nothing_is_left_of_a_napari_that_is_killed(work):
    before = folders()
    code = (
        "import sys, time\n"
        "from napari_spt.parts.engine import shared_engine\n"
        "engine = shared_engine()\n"
        "engine.submit('analyse', slide=sys.argv[1], model='bundled',\n"
        "    features=sys.argv[2])\n"
        "while not any(m.event == 'started' for m in engine.poll()):\n"
        "    time.sleep(0.02)\n"
        "print(engine.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, work["slide"], work["features"]],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        child = int(parent.stdout.readline())
        parent.kill()
    end = time.monotonic() + 20
    while folders() != before or is_running(child):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_shared_engine_is_one_and_ends_with_the_program():
    code = (
        "import sys, time\n"
        "from napari_spt.parts.engine import shared_engine\n"
        "assert shared_engine() is shared_engine()\n"
        "assert shared_engine().state == 'off'\n"
        "shared_engine().submit('explore', features='nowhere.h5')\n"
        "print(shared_engine().pid)\n"
        "assert not {'torch', 'qtpy', 'napari'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not is_running(int(done.stdout))
    assert done.stderr == ""
