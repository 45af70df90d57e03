"""The client of the engine: messages, crashes, restarts, and a clean end."""

import dataclasses
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

from spt_core import bundled
from spt_core.engine import process
from spt_core.engine.client import EngineClient, EngineState
from spt_core.engine.protocol import (
    END_TYPES,
    VERSION,
    Analysed,
    Cancelled,
    Failed,
    FailureKind,
    MapTissue,
    Predicted,
    Started,
)
from spt_core.engine.session_folder import PREFIX, remove_stale_folders
from spt_core.sample import write_sample_slide
from spt_core.tokens import read_tokens
from tests.core.engine.pipe import analysis, ends_of
from tests.processes import is_running

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
    model = Path(bundled.SLIDE_MODEL)
    return analysis(slide, tmp_path / "features", model=model)


@pytest.fixture
def quick(slide, tmp_path):
    """One of less than a second: large patches, and no model."""
    return analysis(slide, tmp_path / "quick", encoder="small-random")


@pytest.fixture
def engine():
    engine = EngineClient()
    yield engine
    engine.close()


def collect(engine, is_over, seconds=240.0):
    """Everything that is said until it is over."""
    seen = []
    end = time.monotonic() + seconds
    while not is_over(seen):
        assert time.monotonic() < end, seen
        began = time.perf_counter()
        seen += engine.poll()
        assert time.perf_counter() - began < 0.1  # polling never waits
        time.sleep(0.02)
    return seen


def until(engine, request, *types, seconds=240.0):
    types = types or END_TYPES

    def is_over(seen):
        return any(m.request == request and isinstance(m.message, types) for m in seen)

    return collect(engine, is_over, seconds)


def end_of(engine, request, seconds=240.0):
    """The one message that ends a request."""
    seen = until(engine, request, seconds=seconds)
    (end,) = [
        m.message
        for m in seen
        if m.request == request and isinstance(m.message, END_TYPES)
    ]
    return end


def folders(pid=None):
    """Session folders of one process alone: other tests run engines meanwhile."""
    return set(Path(tempfile.gettempdir()).glob(f"{PREFIX}{pid or os.getpid()}-*"))


def test_from_off_to_a_result_and_off_again(work):
    before, threads = folders(), threading.active_count()
    engine = EngineClient()
    assert engine.state == EngineState.OFF
    assert engine.ready is None
    assert engine.poll() == []
    began = time.perf_counter()
    engine.start()
    assert time.perf_counter() - began < 0.3
    assert engine.state == EngineState.STARTING
    request = engine.submit(work)
    seen = [m.message for m in until(engine, request)]
    assert engine.state == EngineState.READY
    assert engine.ready.devices
    assert isinstance(seen[-1], Analysed), seen[-1]
    *_, prediction = (m.prediction for m in seen if isinstance(m, Predicted))
    tokens = read_tokens(seen[-1].features)
    assert (prediction.xy == tokens.xy).all()
    assert prediction.attention.shape[1] == len(tokens)
    (folder,) = folders() - before
    # What was read is gone.
    assert [path.name for path in folder.glob("*.npy")] == []
    _check_cancelling(
        engine, dataclasses.replace(work, features=work.features / "more")
    )
    pid = engine.pid
    engine.close()
    assert engine.state == EngineState.OFF
    assert not is_running(pid)
    assert folders() == before
    assert threading.active_count() == threads
    engine.close()  # twice does no harm


def _check_cancelling(engine, work):
    first, second = (engine.submit(work) for _ in range(2))
    seen = until(engine, first, Predicted)
    engine.look_here(first, (700.0, 900.0))
    engine.cancel(second)
    engine.cancel(first)
    seen += until(engine, first)
    assert dict(ends_of(seen)) == {first: Cancelled, second: Cancelled}
    engine.cancel(999)
    assert engine.state == EngineState.READY


def test_closing_at_work_is_quick_and_clean(work, quick):
    before, threads = folders(), threading.active_count()
    engine = EngineClient()
    until(engine, engine.submit(work), Predicted)
    began = time.perf_counter()
    engine.close()
    assert time.perf_counter() - began < 5
    assert folders() == before
    assert threading.active_count() == threads
    # It may be used again, and closed while it starts.
    engine.submit(quick)
    assert engine.state == EngineState.STARTING
    engine.close()
    assert engine.state == EngineState.OFF
    assert folders() == before
    assert threading.active_count() == threads


@pytest.mark.slow
@POSIX
def test_killed_at_random_moments(engine, work):
    """Every open request is told why, and the next click goes on from there."""
    chance = random.Random(1)
    done_before = 0
    # Once something is predicted, something is kept, however slow the computer is.
    for moment, blow in (
        (None, signal.SIGKILL),
        (Started, signal.SIGKILL),
        (Predicted, signal.SIGSEGV),
    ):
        first = engine.submit(work)
        second = engine.submit(work)
        seen = [] if moment is None else until(engine, first, moment)
        time.sleep(0.3 if moment is None else chance.uniform(0, 1.0))
        os.kill(engine.pid, blow)
        seen += collect(engine, is_lost)
        assert engine.state == EngineState.LOST
        killed = blow == signal.SIGKILL
        expected = FailureKind.KILLED if killed else FailureKind.CRASHED
        ends = [m for m in seen if isinstance(m.message, END_TYPES)]
        assert [m.request for m in ends] == [first, second, None]
        assert {m.message.kind for m in ends} == {expected}
        for received in seen:
            if isinstance(received.message, Started):
                assert received.message.done >= done_before
                done_before = received.message.done
    seen = [m.message for m in until(engine, engine.submit(work))]
    assert isinstance(seen[-1], Analysed)
    assert engine.state == EngineState.READY
    started = next(m for m in seen if isinstance(m, Started))
    assert started.done > 0
    assert len(read_tokens(seen[-1].features)) == started.patches


def is_lost(seen):
    return any(m.request is None and isinstance(m.message, Failed) for m in seen)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by prlimit")
def test_too_little_memory_is_told(engine, work):
    """Whichever library meets the limit first: some raise, some end the process.

    One that ends it without a word leaves nothing to know it by; that is not the rule.
    """
    told = {FailureKind.OUT_OF_MEMORY, FailureKind.KILLED}
    kinds = []
    while not told & set(kinds):
        end = ended_by_memory(engine, work)
        kinds.append(end.kind)
        assert kinds[-1] in told or len(kinds) < 3, end
    assert set(kinds) <= {*told, FailureKind.CRASHED}
    # With memory again, the next click is answered: by the same engine or a fresh one.
    assert isinstance(end_of(engine, engine.submit(work)), Analysed)


def ended_by_memory(engine, work):
    import resource

    end_of(engine, engine.submit(MapTissue(Path("nowhere.h5"), "")))
    pages = int(Path(f"/proc/{engine.pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 90 * 2**20
    free = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(engine.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    end = end_of(engine, engine.submit(work))
    assert isinstance(end, Failed)
    if engine.state == EngineState.READY:
        resource.prlimit(engine.pid, resource.RLIMIT_AS, free)
    return end


def test_an_engine_that_cannot_start_says_why(engine, quick, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('torch is broken here')")
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{before}")
    end = end_of(engine, engine.submit(quick))
    assert end.kind == FailureKind.NOT_STARTED
    assert "torch is broken here" in end.reason
    assert engine.state == EngineState.LOST


SPEAKER = """
import sys
sys.stdout.write(sys.argv[-1])
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def speak(engine, quick, monkeypatch):
    """Ask an engine that says given lines; give how the request ended."""
    start = subprocess.Popen

    def speak(*lines):
        said = [sys.executable, "-c", SPEAKER, "".join(f"{line}\n" for line in lines)]
        monkeypatch.setattr(
            process.subprocess, "Popen", lambda _, **options: start(said, **options)
        )
        return end_of(engine, engine.submit(quick))

    return speak


def starting(version):
    value = f'{{"version": {version}, "pid": 1, "priority": "nice"}}'
    return f'{{"id": null, "type": "Starting", "value": {value}}}'


@pytest.mark.parametrize(
    "line",
    [
        starting(VERSION + 1),
        '{"id": null, "type": "Starting", "value": {"version": 0}}',
        '{"event": "starting", "pid": 1}',
    ],
)
def test_an_engine_of_another_version_is_refused(engine, speak, line):
    end = speak(line)
    assert end.kind == FailureKind.NOT_STARTED
    assert "protocol" in end.reason
    assert engine.state == EngineState.LOST


def test_a_result_that_cannot_be_read_ends_its_request(engine, speak):
    missing = '{"class_name": "a", "removed": {"npy": "gone.npy"}}'
    end = speak(
        starting(VERSION),
        "noise",
        '{"id": 1, "type": "Predicted", "value": {}}',
        '{"id": 1, "type": "Working", "value": {"step": "opening"}}',
        f'{{"id": 1, "type": "FaithfulnessChecked", "value": {missing}}}',
    )
    assert end.kind == FailureKind.LOST_RESULT
    assert end.reason
    assert engine.state == EngineState.STARTING


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
    remove_stale_folders()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {name for name, (_, stays) in cases.items() if stays}


@POSIX
def test_nothing_is_left_of_a_napari_that_is_killed(work):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from spt_core.engine.client import shared_engine\n"
        "from spt_core.engine.protocol import Analyse, Started\n"
        "engine = shared_engine()\n"
        "slide, features = map(Path, sys.argv[1:])\n"
        "engine.submit(Analyse(slide, 's', features, model=Path('bundled')))\n"
        "while not any(isinstance(m.message, Started) for m in engine.poll()):\n"
        "    time.sleep(0.02)\n"
        "print(engine.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, work.slide, work.features],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        child = int(parent.stdout.readline())
        parent.kill()
    end = time.monotonic() + 20
    while folders(parent.pid) or is_running(child):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_shared_engine_is_one_and_ends_with_the_program():
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from spt_core.engine.client import EngineState, shared_engine\n"
        "from spt_core.engine.protocol import MapTissue\n"
        "assert shared_engine() is shared_engine()\n"
        "assert shared_engine().state == EngineState.OFF\n"
        "shared_engine().submit(MapTissue(Path('nowhere.h5'), ''))\n"
        "print(shared_engine().pid)\n"
        "assert not {'torch', 'qtpy', 'napari'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not is_running(int(done.stdout))
    assert done.stderr == ""
