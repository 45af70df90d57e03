"""Working off requests, and hearing "cancel" all the while.

Analyses wait for one another. Questions, which take seconds, do not wait for them: they
are answered one after the other between two steps of the analysis that runs.
"""

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition, Thread
from typing import Any

from spt_core.engine.channel import Channel
from spt_core.engine.messages import OTHER, Failure, Request, Say, Work

log = logging.getLogger(__name__)

# After "stop" the work may come to an orderly end for so long. Nothing is lost after
# that either: what is encoded is on the disk, batch by batch.
GRACE_SECONDS = 1.5
# Progress is for eyes.
PROGRESS_SECONDS = 0.2
QUESTIONS = frozenset({"explore", "what_if", "faithfulness"})
WAITING = "waiting for the other slide"

Explain = Callable[[BaseException, Request], Failure]


class Server:
    """Answers requests from a channel.

    The thread that ``listens`` takes requests; ``serve`` works in the calling thread.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: deque[dict[str, Any]] = deque()
        # An analysis, then the question that is answered between two of its steps.
        self._running: list[dict[str, Any]] = []
        self._cancelled: set[int] = set()
        self._is_serving = False
        self._is_stopped = False
        self._is_alone = False  # nobody reads what is said
        self._lock = Condition()
        self._works: Mapping[str, Callable[[Request], Work]] = {}
        self._explain: Explain
        self._steer: Callable[[int, Mapping[str, Any]], None] | None = None

    # Called from the listening thread

    def listen(self) -> Thread:
        """Take requests in a thread of its own, from now on."""
        thread = Thread(target=self._listen, name="requests", daemon=True)
        thread.start()
        return thread

    def stop(self, *, clear: bool = False) -> None:
        """End soon; ``clear`` where nobody is left to remove the arrays."""
        with self._lock:
            self._is_stopped = True
            self._is_alone = self._is_alone or clear
            self._waiting.clear()
            is_serving = self._is_serving
            self._lock.notify_all()
        if is_serving:
            time.sleep(GRACE_SECONDS)
        self.end()

    def end(self) -> None:
        """End the process now; threads of libraries are not waited for."""
        if self._is_alone:
            self.channel.clear()
        sys.stderr.flush()
        os._exit(0)

    def _listen(self) -> None:
        clear = True
        try:
            for request in self.channel.requests():
                if request.get("do") == "stop":
                    clear = False
                    break
                self._take(request)
        finally:
            self.stop(clear=clear)

    def _take(self, request: dict[str, Any]) -> None:
        number = request.get("id")
        if not isinstance(number, int):
            log.warning("A request without a number: %s", request.get("do"))
            return
        if request.get("do") == "cancel":
            self._cancel(number)
        elif request.get("do") == "from_here":
            with self._lock:
                is_first = [one["id"] for one in self._running[:1]] == [number]
                steer = self._steer if is_first else None
            if steer is not None:
                steer(number, request)
        else:
            with self._lock:
                waits = self._must_wait(request)
            # Before it is there to be taken: afterwards it may have ended already.
            if waits:
                say = Say.step(WAITING)
                self.channel.send(say.event, number, say.facts)
            with self._lock:
                self._waiting.append(request)
                self._lock.notify_all()

    def _must_wait(self, request: dict[str, Any]) -> bool:
        """Whether another slide comes first; one question to another is no matter."""
        before = [*self._running, *self._waiting]
        if _is_question(request):
            before = [one for one in before if not _is_question(one)]
        return bool(before)

    def _cancel(self, number: int) -> None:
        with self._lock:
            if any(one["id"] == number for one in self._running):
                self._cancelled.add(number)
                return
            waited = [one for one in self._waiting if one["id"] == number]
            for one in waited:
                self._waiting.remove(one)
        if waited:
            self.channel.send("cancelled", number)

    # Called from the working thread

    @property
    def is_asked(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    def serve(
        self,
        works: Mapping[str, Callable[[Request], Work]],
        explain: Explain,
        steer: Callable[[int, Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Work off requests until told to stop."""
        with self._lock:
            self._is_serving = True
            self._works, self._explain, self._steer = works, explain, steer
        while (request := self._next()) is not None:
            self._work_off(request)

    def _next(self) -> dict[str, Any] | None:
        """The next request, as soon as there is one; None when all is to stop."""
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._is_stopped)
            if self._is_stopped:
                return None
            return self._begin(self._first_question() or self._waiting[0])

    def _next_question(self) -> dict[str, Any] | None:
        """The next question, if one waits."""
        with self._lock:
            question = None if self._is_stopped else self._first_question()
            return None if question is None else self._begin(question)

    def _first_question(self) -> dict[str, Any] | None:
        return next(filter(_is_question, self._waiting), None)

    def _begin(self, request: dict[str, Any]) -> dict[str, Any]:
        self._waiting.remove(request)
        self._running.append(request)
        return request

    def _work_off(self, request: dict[str, Any]) -> None:
        """Do one request to its end, and say how it ended unless all is to stop."""
        number: int = request["id"]
        end = self._do(request)
        with self._lock:
            self._running.pop()
            self._cancelled.discard(number)
        if end is None:
            return
        try:
            self.channel.send(end.event, number, end.facts, end.arrays)
        except BrokenPipeError:  # nobody is left to be told
            raise
        # Such as arrays for which there is no room: the request must end all the same.
        except Exception as error:  # noqa: BLE001
            end = self._explain(error, request).said()
            self.channel.send(end.event, number, end.facts)

    def _do(self, request: dict[str, Any]) -> Say | None:
        """Do one request; give its last message, None when all is to stop."""
        number: int = request["id"]
        try:
            start = self._works.get(str(request.get("do")))
            if start is None:
                raise Failure(OTHER, f"There is no such request: {request.get('do')}.")
            work = start(request)
            said = 0.0
            try:
                while not self._is_over(number):
                    try:
                        say = next(work)
                    except StopIteration as stop:
                        return stop.value
                    is_progress = say.event == "progress"
                    if not is_progress or _is_news(say, said):
                        self.channel.send(say.event, number, say.facts, say.arrays)
                        said = time.monotonic() if is_progress else said
                    if is_progress and not _is_question(request):
                        self._answer_within(number)
                return None if self._is_stopped else Say("cancelled")
            finally:
                work.close()
        except BrokenPipeError:  # nobody is left to be told
            raise
        # Whatever it is, it ends one request and not the engine.
        except Exception as error:  # noqa: BLE001
            return self._explain(error, request).said()

    def _answer_within(self, number: int) -> None:
        """Answer questions while an analysis rests."""
        while not self._is_over(number):
            question = self._next_question()
            if question is None:
                return
            self._work_off(question)

    def _is_over(self, number: int) -> bool:
        return self._is_stopped or number in self._cancelled


def _is_question(request: Mapping[str, Any]) -> bool:
    return str(request.get("do")) in QUESTIONS


def _is_news(say: Say, said: float) -> bool:
    is_step = say.facts["done"] == 0 or say.facts["done"] >= say.facts["total"]
    return is_step or time.monotonic() - said >= PROGRESS_SECONDS
