"""Whose turn it is: analyses wait for one another, questions come in between."""

import queue
from threading import Event, Thread

import numpy as np
import pytest
from spt_core.engine.messages import Failure, Say

from spt_core import read_tokens
from spt_core.engine import serving
from spt_core.engine.serving import WAITING, Server
from tests.core.engine.pipe import ENDS

WAIT = {"event": "progress", "done": 0, "total": 0, "message": WAITING}


class Wire:
    """A channel without a pipe; arrays of one name find no room."""

    def __init__(self):
        self.asked, self.said = queue.Queue(), queue.Queue()

    def requests(self):
        return iter(self.asked.get, None)

    def send(self, event, request=None, facts=None, arrays=None):
        if "large" in (arrays or {}):
            raise OSError(28, "No space left on device")
        self.said.put((request, event, (facts or {}).get("message")))


class Undying(Server):
    def end(self):
        pass


class Bench:
    """A server whose analyses and questions take the steps that a test gives them."""

    def __init__(self):
        self.wire = Wire()
        self.server = Undying(self.wire)
        self.steps, self.began, self.closed, self.steered = {}, {}, [], []
        works = {
            "analyse": self._work,
            "what_if": self._work,
            "explore": self._fail,
            "faithfulness": self._too_large,
        }
        self._listening = self.server.listen()
        self._serving = Thread(
            target=self.server.serve, args=(works, self._explain, self._steer)
        )
        self._serving.start()

    def _work(self, request):
        number = request["id"]
        try:
            for step in range(request["steps"]):
                yield Say.step(f"step {step}")
                self.began.setdefault((number, step), Event()).set()
                gate = self.steps.setdefault((number, step), Event())
                assert gate.wait(10)
            return Say("done")
        finally:
            self.closed.append(number)

    def _fail(self, request):
        yield Say.step("failing")
        raise ValueError("this went wrong")

    def _too_large(self, request):
        yield Say.step("growing")
        return Say("done", arrays={"large": np.zeros(1)})

    def _explain(self, error, request):
        return Failure("other", str(error))

    def _steer(self, number, request):
        self.steered.append(number)

    def ask(self, number, do="what_if", steps=1):
        self.say(id=number, do=do, steps=steps)

    def say(self, **request):
        self.wire.asked.put(request)

    def let(self, number, *steps):
        for step in steps:
            self.steps.setdefault((number, step), Event()).set()

    def wait(self, number, step=0):
        assert self.began.setdefault((number, step), Event()).wait(10)

    def until(self, number, *events):
        seen = []
        while not seen or seen[-1][0] != number or seen[-1][1] not in events:
            seen.append(self.wire.said.get(timeout=10))
        return seen

    def close(self):
        self.wire.asked.put({"do": "stop"})
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
    return [(number, event) for number, event, _ in seen if event in ENDS]


def heard(bench, number):
    """Wait until a request has been taken: what waits says so."""
    assert bench.until(number, "progress")[-1] == (number, "progress", WAITING)


def test_questions_are_answered_between_two_steps(bench):
    bench.ask(1, "analyse", steps=3)
    bench.wait(1, 0)
    for number, do in ((2, "what_if"), (3, "analyse"), (4, "what_if")):
        bench.ask(number, do)
        heard(bench, number)
        bench.let(number, 0)
    bench.let(1, 0, 1, 2)
    seen = bench.until(3, *ENDS)
    assert ends(seen) == [(2, "done"), (4, "done"), (1, "done"), (3, "done")]
    # One after the other, each to its end, and all within one step.
    assert [number for number, _, _ in seen] == [1, 2, 2, 4, 4, 1, 1, 3, 3]


def test_a_question_does_not_wait_behind_analyses_that_wait(bench):
    bench.ask(1, "analyse")
    bench.wait(1)
    bench.ask(2, "analyse")
    heard(bench, 2)
    bench.ask(3)
    heard(bench, 3)
    bench.let(3, 0)
    bench.let(2, 0)
    bench.let(1, 0)  # its only step: the question comes after it, and first
    assert ends(bench.until(2, *ENDS)) == [(1, "done"), (3, "done"), (2, "done")]


def test_what_fails_in_a_question_does_not_end_the_analysis(bench):
    bench.ask(1, "analyse", steps=2)
    bench.wait(1, 0)
    for number, do in ((2, "explore"), (3, "faithfulness")):
        bench.ask(number, do)
        heard(bench, number)
    bench.let(1, 0, 1)
    seen = bench.until(1, *ENDS)
    assert ends(seen) == [(2, "failed"), (3, "failed"), (1, "done")]


def test_an_analysis_is_cancelled_while_a_question_runs(bench):
    bench.ask(1, "analyse", steps=9)
    bench.wait(1, 0)
    bench.ask(2, steps=2)
    heard(bench, 2)
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(do="cancel", id=1)
    bench.ask(3)
    heard(bench, 3)
    bench.let(3, 0)
    bench.let(2, 0, 1)
    # It ends as soon as that question has, without another step or question.
    seen = bench.until(3, *ENDS)
    assert ends(seen) == [(2, "done"), (1, "cancelled"), (3, "done")]
    assert (1, 1) not in bench.began


def test_a_question_is_cancelled_in_its_turn_and_before_it(bench):
    bench.ask(1, "analyse", steps=2)
    bench.wait(1, 0)
    bench.ask(2, steps=9)
    heard(bench, 2)
    bench.ask(3)
    heard(bench, 3)
    bench.say(do="cancel", id=3)
    assert bench.until(3, *ENDS)[-1][1] == "cancelled"
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(do="cancel", id=2)
    bench.ask(4)
    heard(bench, 4)  # and so the cancel before it
    bench.let(4, 0)
    bench.let(2, 0)
    bench.let(1, 1)
    seen = bench.until(1, *ENDS)
    assert ends(seen) == [(2, "cancelled"), (4, "done"), (1, "done")]


def test_the_view_steers_the_analysis_and_never_a_question(bench):
    bench.ask(1, "analyse", steps=2)
    bench.wait(1, 0)
    bench.ask(2)
    heard(bench, 2)
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.say(do="from_here", id=2, l0_xy=[1, 1])
    bench.say(do="from_here", id=1, l0_xy=[1, 1])
    bench.ask(3)
    heard(bench, 3)
    assert bench.steered == [1]
    for number in (2, 3):
        bench.let(number, 0)
    bench.let(1, 1)
    bench.until(1, *ENDS)


def test_stop_ends_the_question_and_the_analysis(bench):
    bench.ask(1, "analyse", steps=9)
    bench.wait(1, 0)
    bench.ask(2, steps=9)
    heard(bench, 2)
    bench.let(1, 0)
    bench.wait(2, 0)
    bench.wire.asked.put({"do": "stop"})
    bench._listening.join(10)
    bench.let(2, 0)
    bench._serving.join(10)
    assert bench.closed == [2, 1]
    assert all(event not in ENDS for _, event, _ in list(bench.wire.said.queue))


def test_only_what_waits_for_another_slide_says_so(bench):
    bench.ask(1)
    bench.wait(1)
    bench.ask(2)  # a question behind a question
    bench.ask(3, "analyse")
    heard_so_far = bench.until(3, "progress")
    assert [number for number, _, message in heard_so_far if message == WAITING] == [3]
    for number in (1, 2, 3):
        bench.let(number, 0)
    assert ends(bench.until(3, *ENDS)) == [(1, "done"), (2, "done"), (3, "done")]


# The same through the pipe, with real work


@pytest.fixture
def region(analysed):
    """The left half of the slide."""
    xy = read_tokens(analysed[-1]["features"]).xy
    left, top = xy.min(axis=0)
    right, bottom = xy.max(axis=0) + 128
    half = (left + right) / 2
    corners = [[left, top], [half, top], [half, bottom], [left, bottom]]
    return [np.array(corners, float).tolist()]


def test_a_slide_is_asked_about_while_another_is_analysed(
    engine, analysed, region, slide, model, tmp_path
):
    about = {"features": analysed[-1]["features"], "model": model, "region": region}
    alone = engine.finish(engine.ask("what_if", **about))[-1]
    slow = {"slide": slide, "model": "bundled", "features": tmp_path / "slow"}
    analysis = engine.ask("analyse", **slow)
    seen = engine.until("started", request=analysis)
    other = engine.ask("analyse", **slow)
    questions = [
        engine.ask("what_if", **about),
        engine.ask("explore", features=tmp_path / "none.h5"),
        engine.ask("faithfulness", features=about["features"], model=model),
    ]
    seen += engine.finish(other, seconds=120)
    order = [(one["id"], one["event"]) for one in seen if one["event"] in ENDS]
    assert order == [
        (questions[0], "done"),
        (questions[1], "failed"),
        (questions[2], "done"),
        (analysis, "done"),
        (other, "done"),
    ]
    for number in (other, *questions):
        first = next(one for one in seen if one["id"] == number)
        assert {name: first[name] for name in WAIT} == WAIT
    # The answers are those that each gets alone.
    answer = next(
        one for one in seen if (one["id"], one["event"]) == (questions[0], "done")
    )
    assert answer["removed"] == alone["removed"]
    assert answer["after"]["probabilities"] == pytest.approx(
        alone["after"]["probabilities"]
    )
    kept = [one for one in seen if one["event"] == "done"][-2:]
    assert kept[0]["reused"] is False
    assert kept[1]["reused"] is True
    assert kept[0]["probabilities"] == pytest.approx(kept[1]["probabilities"], abs=1e-6)


def test_an_analysis_with_a_question_in_it_is_cancelled(
    engine, analysed, model, slide, tmp_path
):
    slow = {"slide": slide, "model": "bundled", "features": tmp_path / "slow"}
    analysis = engine.ask("analyse", **slow)
    engine.until("started", request=analysis)
    features = analysed[-1]["features"]
    question = engine.ask("faithfulness", features=features, model=model)
    while engine.until("progress", request=question)[-1]["message"] == WAITING:
        pass
    engine.say(do="cancel", id=analysis)
    seen = engine.finish(analysis)
    order = [(one["id"], one["event"]) for one in seen if one["event"] in ENDS]
    assert order == [(question, "done"), (analysis, "cancelled")]
