"""Whose turn it is: analyses wait for one another, questions come in between."""

import queue
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from spt_core import bundled, read_tokens
from spt_core.engine import serving
from spt_core.engine.codec import decode, encode
from spt_core.engine.protocol import (
    END_TYPES,
    Analyse,
    Analysed,
    AskWithout,
    Cancel,
    Cancelled,
    CheckFaithfulness,
    Failed,
    FailureKind,
    FaithfulnessChecked,
    LookHere,
    MapTissue,
    Predicted,
    Started,
    Step,
    Stop,
    WithoutAnswered,
    Working,
)
from spt_core.engine.serving import Server
from spt_core.events import Progress
from spt_core.insight.results import Faithfulness
from tests.core.engine.pipe import analysis, ends_of

WAITING = Working(Step.WAITING)
LARGE = Faithfulness("a", *(np.zeros(1) for _ in range(4)), 1, False)


class Wire:
    """A channel without a pipe, but with its codec; there is no room for arrays."""

    def __init__(self):
        self.asked, self.said = queue.Queue(), queue.Queue()

    def receive(self):
        for line in iter(self.asked.get, None):
            yield decode(line, None)

    def send(self, message, request=None):
        line = encode(message, request, self._no_room)
        self.said.put(decode(line, None))

    def _no_room(self, name, values):
        raise OSError(28, "No space left on device")


class Undying(Server):
    def end(self):
        pass


class Bench:
    """A server whose analyses and questions take the steps that a test gives them.

    It is the handlers, too; a request's title says its number and steps.
    """

    def __init__(self):
        self.wire = Wire()
        self.server = Undying(self.wire)
        self.steps, self.began, self.closed, self.steered = {}, {}, [], []
        self._listening = self.server.listen()
        self._serving = Thread(target=self.server.serve, args=(self,))
        self._serving.start()

    def start(self, request):
        if isinstance(request, MapTissue):
            return self._fail()
        if isinstance(request, CheckFaithfulness):
            return self._too_large()
        return self._work(*map(int, request.title.split()))

    def failed(self, error, request):
        return Failed(FailureKind.DEFECT, str(error))

    def look_here(self, l0_xy):
        self.steered.append(l0_xy)

    def _work(self, number, steps):
        try:
            for step in range(steps):
                yield Working(Step.LOOKING, Progress(0, steps))
                self.began.setdefault((number, step), Event()).set()
                gate = self.steps.setdefault((number, step), Event())
                assert gate.wait(10)
            return Analysed(Path("f.h5"), False, 1.0)
        finally:
            self.closed.append(number)

    def _fail(self):
        yield Working(Step.GROUPING_TISSUE)
        raise ValueError("this went wrong")

    def _too_large(self):
        yield Working(Step.REMOVING)
        return FaithfulnessChecked(LARGE)

    def ask(self, number, kind=AskWithout, steps=1):
        some = {"features": Path("f"), "title": f"{number} {steps}"}
        if kind is Analyse:
            some["slide"] = Path("s")
        if kind in (AskWithout, CheckFaithfulness):
            some["model"] = Path("m")
        if kind is AskWithout:
            some["l0_polygons"] = ()
        self.say(kind(**some), number)

    def say(self, message, number=None):
        self.wire.asked.put(encode(message, number, None))

    def let(self, number, *steps):
        for step in steps:
            self.steps.setdefault((number, step), Event()).set()

    def wait(self, number, step=0):
        assert self.began.setdefault((number, step), Event()).wait(10)

    def until(self, number, *types):
        seen = []
        while not (seen and seen[-1][0] == number and isinstance(seen[-1][1], types)):
            seen.append(self.wire.said.get(timeout=10))
        return seen

    def close(self):
        self.say(Stop())
        for thread in (self._listening, self._serving):
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    made = Bench()
    yield made
    made.close()


def ends(seen):
    return [(number, type(one)) for number, one in seen if isinstance(one, END_TYPES)]


def heard(bench, number):
    """Wait until a request has been taken: what waits says so."""
    assert bench.until(number, Working)[-1] == (number, WAITING)


def test_questions_are_answered_between_two_steps(bench):
    bench.ask(1, Analyse, steps=3)
    bench.wait(1, 0)
    for number, kind in ((2, AskWithout), (3, Analyse), (4, AskWithout)):
        bench.ask(number, kind)
        heard(bench, number)
        bench.let(number, 0)
    bench.let(1, 0, 1, 2)
    seen = bench.until(3, *END_TYPES)
    assert ends(seen) == [(number, Analysed) for number in (2, 4, 1, 3)]
    # One after the other, each to its end, and all within one step.
    assert [number for number, _ in seen] == [1, 2, 2, 4, 4, 1, 1, 3, 3]


def test_a_question_does_not_wait_behind_analyses_that_wait(bench):
    bench.ask(1, Analyse)
    bench.wait(1)
    bench.ask(2, Analyse)
    heard(bench, 2)
    bench.ask(3)
    heard(bench, 3)
    bench.let(3, 0)
    bench.let(2, 0)
    bench.let(1, 0)  # its only step: the question comes after it, and first
    seen = bench.until(2, *END_TYPES)
    assert ends(seen) == [(1, Analysed), (3, Analysed), (2, Analysed)]


def test_what_fails_in_a_question_does_not_end_the_analysis(bench):
    bench.ask(1, Analyse, steps=2)
    bench.wait(1, 0)
    for number, kind in ((2, MapTissue), (3, CheckFaithfulness)):
        bench.ask(number, kind)
        heard(bench, number)
    bench.let(1, 0, 1)
    seen = bench.until(1, *END_TYPES)
    assert ends(seen) == [(2, Failed), (3, Failed), (1, Analysed)]


def test_an_analysis_is_cancelled_while_a_question_runs(bench):
    bench.ask(1, Analyse, steps=9)
    bench.wait(1, 0)
    bench.ask(2, steps=2)
    heard(bench, 2)
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(Cancel(1))
    bench.ask(3)
    heard(bench, 3)
    bench.let(3, 0)
    bench.let(2, 0, 1)
    # It ends as soon as that question has, without another step or question.
    seen = bench.until(3, *END_TYPES)
    assert ends(seen) == [(2, Analysed), (1, Cancelled), (3, Analysed)]
    assert (1, 1) not in bench.began


def test_a_question_is_cancelled_in_its_turn_and_before_it(bench):
    bench.ask(1, Analyse, steps=2)
    bench.wait(1, 0)
    bench.ask(2, steps=9)
    heard(bench, 2)
    bench.ask(3)
    heard(bench, 3)
    bench.say(Cancel(3))
    assert bench.until(3, *END_TYPES)[-1][1] == Cancelled()
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(Cancel(2))
    bench.ask(4)
    heard(bench, 4)  # and so the cancel before it
    bench.let(4, 0)
    bench.let(2, 0)
    bench.let(1, 1)
    seen = bench.until(1, *END_TYPES)
    assert ends(seen) == [(2, Cancelled), (4, Analysed), (1, Analysed)]


def test_the_view_steers_the_analysis_and_never_a_question(bench):
    bench.ask(1, Analyse, steps=2)
    bench.wait(1, 0)
    bench.ask(2)
    heard(bench, 2)
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(LookHere(2, (2.0, 2.0)))
    bench.say(LookHere(1, (1.0, 1.0)))
    bench.ask(3)
    heard(bench, 3)
    assert bench.steered == [(1.0, 1.0)]
    for number in (2, 3):
        bench.let(number, 0)
    bench.let(1, 1)
    bench.until(1, *END_TYPES)


def test_stop_ends_the_question_and_the_analysis(bench):
    bench.ask(1, Analyse, steps=9)
    bench.wait(1, 0)
    bench.ask(2, steps=9)
    heard(bench, 2)
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(Stop())
    bench._listening.join(10)
    bench.let(2, 0)
    bench._serving.join(10)
    assert bench.closed == [2, 1]
    assert ends(bench.wire.said.queue) == []


def test_only_what_waits_for_another_slide_says_so(bench):
    bench.ask(1)
    bench.wait(1)
    bench.ask(2)  # a question behind a question
    bench.ask(3, Analyse)
    heard_so_far = bench.until(3, Working)
    assert [number for number, message in heard_so_far if message == WAITING] == [3]
    for number in (1, 2, 3):
        bench.let(number, 0)
    seen = bench.until(3, *END_TYPES)
    assert ends(seen) == [(1, Analysed), (2, Analysed), (3, Analysed)]


# The same through the pipe, with real work


@pytest.fixture
def region(analysed):
    """The left half of the slide."""
    xy = read_tokens(analysed[-1].features).xy
    left, top = xy.min(axis=0)
    right, bottom = xy.max(axis=0) + 128
    half = (left + right) / 2
    corners = [[left, top], [half, top], [half, bottom], [left, bottom]]
    return (np.array(corners, float),)


@pytest.fixture
def slow(slide, tmp_path):
    return analysis(slide, tmp_path / "slow", model=Path(bundled.SLIDE_MODEL))


def test_a_slide_is_asked_about_while_another_is_analysed(
    engine, analysed, region, slow, model, tmp_path
):
    features = analysed[-1].features
    without = AskWithout(features, "s", model, region)
    alone = engine.answer(without)[-1]
    first = engine.ask(slow)
    seen = engine.until(Started, request=first)
    other = engine.ask(slow)
    questions = [
        engine.ask(without),
        engine.ask(MapTissue(tmp_path / "none.h5", "s")),
        engine.ask(CheckFaithfulness(features, "s", model)),
    ]
    seen += engine.finish(other, seconds=120)
    assert ends_of(seen) == [
        (questions[0], WithoutAnswered),
        (questions[1], Failed),
        (questions[2], FaithfulnessChecked),
        (first, Analysed),
        (other, Analysed),
    ]
    for number in (other, *questions):
        assert next(one for one in seen if one.request == number).message == WAITING
    # The answers are those that each gets alone.
    answer = next(
        one.message for one in seen if isinstance(one.message, WithoutAnswered)
    )
    assert answer.what_if.removed == alone.what_if.removed
    assert answer.what_if.after.probabilities == pytest.approx(
        alone.what_if.after.probabilities
    )
    found = {}
    for one in seen:
        if isinstance(one.message, Predicted):
            found[one.request] = one.message.prediction.probabilities
        elif isinstance(one.message, Analysed):
            assert one.message.reused is (one.request == other)
    assert found[first] == pytest.approx(found[other], abs=1e-6)


def test_an_analysis_with_a_question_in_it_is_cancelled(engine, analysed, model, slow):
    number = engine.ask(slow)
    engine.until(Started, request=number)
    question = engine.ask(CheckFaithfulness(analysed[-1].features, "s", model))
    while engine.until(Working, request=question)[-1].message == WAITING:
        pass
    engine.say(Cancel(number))
    seen = engine.finish(number)
    assert ends_of(seen) == [(question, FaithfulnessChecked), (number, Cancelled)]
