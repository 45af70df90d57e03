"""The process itself: its queue, its end, its priority, its silence."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

from tests.core.engine.pipe import ENDS, Pipe, of
from tests.processes import is_running, kill

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def threads_of(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def ends_of(messages):
    return [one["id"] for one in messages if one["event"] in ENDS]


@pytest.fixture
def slow(slide, tmp_path):
    """An analysis of seconds: the bundled model on patches of its own."""
    return {"slide": slide, "model": "bundled", "features": tmp_path / "slow"}


@LINUX
def test_every_thread_lets_the_window_go_first(engine, analysed):
    threads = threads_of(engine.process.pid)
    nice = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == {min(own + 4, 19)}


def test_it_tells_what_there_is(engine):
    starting, ready = engine.hello
    assert starting["event"] == "starting"
    is_limited = hasattr(os, "sched_getaffinity")  # not on Windows and macOS
    cores = len(os.sched_getaffinity(0)) if is_limited else os.cpu_count()
    assert ready["threads"] == cores
    assert {"id", "name"} <= set(ready["devices"][0])
    assert ready["device"] in {one["id"] for one in ready["devices"]}
    assert "torch" in ready["versions"]


def test_nothing_but_json_is_said(engine, analysed):
    """Prints of libraries, and of what is below Python, go elsewhere."""
    assert len(engine.lines) > len(analysed)
    for line in engine.lines:
        assert "event" in json.loads(line)
    assert "noise below" in engine.errors.read_text()


def test_analyses_wait_for_one_another_and_say_so(engine, slow, slide, model, tmp_path):
    first = engine.ask("analyse", **slow)
    second = engine.ask("analyse", slide=slide, model=model, features=tmp_path / "f")
    seen = engine.finish(second, seconds=120)
    assert ends_of(seen) == [first, second]
    waits, *rest = (one for one in seen if one["id"] == second)
    assert waits["message"] == "waiting for the other slide"
    assert seen.index(waits) < 10
    end = next(one for one in seen if one["id"] == first and one["event"] in ENDS)
    assert seen.index(end) < seen.index(rest[0])


def test_what_waits_is_cancelled_at_once(engine, slow):
    first = engine.ask("analyse", **slow)
    second = engine.ask("analyse", **slow)
    engine.until("started", request=first)
    engine.say(do="cancel", id=second)
    seen = engine.finish(first, seconds=120)
    assert ends_of(seen) == [second, first]
    assert [one["event"] for one in seen if one["id"] == second] == ["cancelled"]
    assert seen[-1]["event"] == "done"


def test_cancelled_at_random_moments_nothing_is_lost(engine, slow):
    """Each time the work goes on from where it was, to the same result."""
    chance = random.Random(3)
    before = -1
    for _ in range(3):
        number = engine.ask("analyse", **slow)
        engine.until("progress", request=number)
        time.sleep(chance.uniform(0, 1.2))
        engine.say(do="cancel", id=number)
        asked = time.monotonic()
        seen = engine.finish(number)
        if seen[-1]["event"] == "done":
            break
        assert seen[-1] == {"event": "cancelled", "id": number}
        assert time.monotonic() - asked < 10
        for started in of(seen, "started"):
            assert started["done"] >= before
            before = started["done"]
        # A cancel that comes too late, or twice, does nothing.
        engine.say(do="cancel", id=number)
    resumed = engine.finish(engine.ask("analyse", **slow), seconds=120)
    assert resumed[-1]["event"] == "done"
    straight = {**slow, "features": slow["features"].with_name("straight")}
    expected = engine.finish(engine.ask("analyse", **straight), seconds=120)
    assert resumed[-1]["probabilities"] == pytest.approx(
        expected[-1]["probabilities"], abs=1e-4
    )
    assert resumed[-1]["patches"] == expected[-1]["patches"]


def test_cancelled_while_mapping(engine, slow):
    # A map of a small slide takes a moment: it may be done before it is cancelled.
    for _ in range(8):
        number = engine.ask("analyse", **slow)
        while "mapping" not in (message := engine.take()).get("message", ""):
            assert message["event"] not in ENDS
        engine.say(do="cancel", id=number)
        if engine.finish(number)[-1]["event"] == "cancelled":
            return
    raise AssertionError("no map was ever cancelled")


@LINUX
def test_no_threads_are_left_behind(engine, slow, slide, model, tmp_path):
    def work(number):
        """One analysis to its end, and one that is cancelled."""
        for cancels in (False, True):
            folder = tmp_path / f"{number} {cancels}"
            request = engine.ask("analyse", slide=slide, model=model, features=folder)
            if cancels:
                engine.until("started", request=request)
                engine.say(do="cancel", id=request)
            engine.finish(request)

    def threads():
        return len(threads_of(engine.process.pid))

    # Libraries start some of their own once, and keep them.
    engine.finish(engine.ask("analyse", **slow), seconds=120)
    work(0)
    wait_for(lambda: threads() < 20)
    time.sleep(0.5)  # those that have ended are gone
    count = threads()
    for number in range(1, 4):
        work(number)
    wait_for(lambda: threads() <= count, 10)


def test_an_analysis_takes_a_view_and_can_be_steered(engine, slow):
    request = engine.ask("analyse", **slow, l0_from=[700, 700], class_map=False)
    engine.until("started", request=request)
    engine.say(do="from_here", id=request, l0_xy=[1900, 1500])
    assert engine.finish(request, seconds=120)[-1]["event"] == "done"


@LINUX
def test_terminated_it_leaves_nothing(tmp_path):
    pipe = Pipe(tmp_path / "s")
    try:
        pipe.until("starting")
        (pipe.folder / "1-1-x.npy").write_bytes(b"")
        pipe.process.terminate()
        assert pipe.process.wait(20) == 143
        assert not pipe.folder.exists()
    finally:
        pipe.close()


@pytest.mark.parametrize("how", ["stop", "end of input"])
@pytest.mark.parametrize("moment", ["starting", "at work"])
def test_it_ends_when_told(how, moment, slow, tmp_path):
    pipe = Pipe(tmp_path / "s")
    try:
        pipe.until("starting")
        if moment == "at work":
            request = pipe.ask("analyse", **slow)
            pipe.until("started", request=request, seconds=120)
        if how == "stop":
            pipe.say(do="stop")
        else:
            pipe.process.stdin.close()
        assert pipe.process.wait(8) == 0
        # Without anybody left to do so, it removes what it left.
        assert pipe.folder.exists() == (how == "stop")
    finally:
        pipe.close()


@LINUX
def test_it_ends_with_its_parent(slow, tmp_path):
    """The parent is killed outright, while another process holds the pipe open."""
    code = (
        "import subprocess, sys, os, time\n"
        "read, write = os.pipe()\n"
        "os.set_inheritable(write, True)\n"
        "keeper = subprocess.Popen(['sleep', '60'], close_fds=False,\n"
        "    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n"
        "child = subprocess.Popen([sys.executable, '-m', 'spt_core.engine',\n"
        "    '--folder', sys.argv[1], '--parent', str(os.getpid())], stdin=read)\n"
        "print(child.pid, keeper.pid, file=sys.stderr, flush=True)\n"
        "time.sleep(60)\n"
    )
    folder = tmp_path / "s"
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    keeper = None
    try:
        child, keeper = map(int, parent.stderr.readline().split())
        assert '"starting"' in parent.stdout.readline()
        assert '"ready"' in parent.stdout.readline()
        parent.kill()
        parent.wait()
        wait_for(lambda: not is_running(child), 6)
        assert is_running(keeper)
        assert not folder.exists()
    finally:
        parent.kill()
        if keeper is not None:
            kill(keeper)
        parent.communicate()
