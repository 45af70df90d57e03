"""The process itself: its queue, its end, its priority, its silence."""

import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spt_core import bundled
from spt_core.engine.codec import decode
from spt_core.engine.protocol import (
    END_TYPES,
    VERSION,
    Analysed,
    Cancel,
    Cancelled,
    LookHere,
    Predicted,
    Ready,
    Started,
    Starting,
    Step,
    Stop,
    Working,
)
from tests.core.engine.pipe import Pipe, analysis, ends_of, of
from tests.processes import is_running, kill

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def threads_of(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def last_prediction(received):
    return of([one.message for one in received], Predicted)[-1].prediction


@pytest.fixture
def slow(slide, tmp_path):
    """An analysis of seconds: the bundled model on patches of its own."""
    return analysis(slide, tmp_path / "slow", model=Path(bundled.SLIDE_MODEL))


@LINUX
def test_every_thread_lets_the_window_go_first(engine, analysed):
    threads = threads_of(engine.process.pid)
    nice = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == {min(own + 4, 19)}


def test_it_tells_what_there_is(engine):
    starting, ready = engine.hello
    assert starting.version == VERSION
    is_limited = hasattr(os, "sched_getaffinity")  # not on Windows and macOS
    cores = len(os.sched_getaffinity(0)) if is_limited else os.cpu_count()
    assert ready.threads == cores
    assert ready.devices[0].name
    assert ready.device in {one.id for one in ready.devices}
    assert "torch" in ready.versions


def test_nothing_but_json_is_said(engine, analysed):
    """Prints of libraries, and of what is below Python, go elsewhere."""
    assert len(engine.lines) > len(analysed)
    for line in engine.lines:
        assert set(json.loads(line)) == {"id", "type", "value"}
    assert "noise below" in engine.errors.read_text()


def test_analyses_wait_for_one_another_and_say_so(engine, slow, slide, model, tmp_path):
    first = engine.ask(slow)
    second = engine.ask(analysis(slide, tmp_path / "f", model=model))
    seen = engine.finish(second, seconds=120)
    assert ends_of(seen) == [(first, Analysed), (second, Analysed)]
    waits, *rest = (one for one in seen if one.request == second)
    assert waits.message == Working(Step.WAITING)
    assert seen.index(waits) < 10
    end = next(
        one
        for one in seen
        if one.request == first and isinstance(one.message, END_TYPES)
    )
    assert seen.index(end) < seen.index(rest[0])


def test_what_waits_is_cancelled_at_once(engine, slow):
    first = engine.ask(slow)
    second = engine.ask(slow)
    engine.until(Started, request=first)
    engine.say(Cancel(second))
    seen = engine.finish(first, seconds=120)
    assert ends_of(seen) == [(second, Cancelled), (first, Analysed)]
    assert [type(one.message) for one in seen if one.request == second] == [Cancelled]


def test_cancelled_at_random_moments_nothing_is_lost(engine, slow):
    """Each time the work goes on from where it was, to the same result."""
    chance = random.Random(3)
    before = -1
    for _ in range(3):
        number = engine.ask(slow)
        engine.until(Working, request=number)
        time.sleep(chance.uniform(0, 1.2))
        engine.say(Cancel(number))
        asked = time.monotonic()
        seen = engine.finish(number)
        if isinstance(seen[-1].message, Analysed):
            break
        assert seen[-1].message == Cancelled()
        assert time.monotonic() - asked < 10
        for started in of([one.message for one in seen], Started):
            assert started.done >= before
            before = started.done
        # A cancel that comes too late, or twice, does nothing.
        engine.say(Cancel(number))
    resumed = engine.finish(engine.ask(slow), seconds=120)
    assert isinstance(resumed[-1].message, Analysed)
    straight = dataclasses.replace(slow, features=slow.features.with_name("straight"))
    expected = engine.finish(engine.ask(straight), seconds=120)
    found, wanted = last_prediction(resumed), last_prediction(expected)
    assert found.probabilities == pytest.approx(wanted.probabilities, abs=1e-4)
    assert found.seen == wanted.seen


def test_cancelled_while_mapping(engine, slow):
    # A map of a small slide takes a moment: it may be done before it is cancelled.
    for _ in range(8):
        number = engine.ask(slow)
        while getattr(message := engine.take().message, "step", None) != (
            Step.MAPPING_CLASSES
        ):
            assert not isinstance(message, END_TYPES)
        engine.say(Cancel(number))
        if engine.finish(number)[-1].message == Cancelled():
            return
    raise AssertionError("no map was ever cancelled")


@LINUX
def test_no_threads_are_left_behind(engine, slow, slide, model, tmp_path):
    def work(number):
        """One analysis to its end, and one that is cancelled."""
        for cancels in (False, True):
            folder = tmp_path / f"{number} {cancels}"
            number = engine.ask(analysis(slide, folder, model=model))
            if cancels:
                engine.until(Started, request=number)
                engine.say(Cancel(number))
            engine.finish(number)

    def threads():
        return len(threads_of(engine.process.pid))

    # Libraries start some of their own once, and keep them.
    engine.answer(slow, seconds=120)
    work(0)
    wait_for(lambda: threads() < 20)
    time.sleep(0.5)  # those that have ended are gone
    count = threads()
    for number in range(1, 4):
        work(number)
    wait_for(lambda: threads() <= count, 10)


def test_an_analysis_takes_a_view_and_can_be_steered(engine, slow):
    asked = dataclasses.replace(slow, l0_from=(700.0, 700.0), class_map=False)
    number = engine.ask(asked)
    engine.until(Started, request=number)
    engine.say(LookHere(number, (1900.0, 1500.0)))
    assert isinstance(engine.finish(number, seconds=120)[-1].message, Analysed)


@LINUX
def test_terminated_it_leaves_nothing(tmp_path):
    pipe = Pipe(tmp_path / "s")
    try:
        pipe.until(Starting)
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
        pipe.until(Starting)
        if moment == "at work":
            pipe.until(Started, request=pipe.ask(slow), seconds=120)
        if how == "stop":
            pipe.say(Stop())
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
        for kind in (Starting, Ready):
            line = parent.stdout.readline()
            assert isinstance(decode(line.encode(), None)[1], kind)
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
