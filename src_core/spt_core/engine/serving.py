"""Working off requests, and hearing "cancel" all the while.

Analyses wait for one another. Questions, which take seconds, do not wait for them: they
are answered one after the other between two steps of the analysis that runs.
"""

import logging
import os
import sys
import time
from collections import deque
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Protocol

from spt_core.engine.channel import Channel
from spt_core.engine.protocol import (
    Cancel,
    Cancelled,
    Control,
    End,
    Failed,
    FailureKind,
    LookHere,
    Question,
    Request,
    Step,
    Stop,
    Work,
    Working,
)

log = logging.getLogger(__name__)

# After "stop" the work may come to an orderly end for so long. Nothing is lost after
# that either: what is encoded is on the disk, batch by batch.
GRACE_SECONDS = 1.5
# Progress is for eyes.
PROGRESS_SECONDS = 0.2


class AnyHandlers(Protocol):
    """What is done for requests; called from the working thread, unless it is said."""

    def start(self, request: Request) -> Work:
        """Begin a request."""

    def failed(self, error: BaseException, request: Request) -> Failed:
        """What an error means for the request that it ended."""

    def look_here(self, l0_xy: tuple[float, float] | None) -> None:
        """Steer the analysis that runs; called from the listening thread."""


@dataclass(frozen=True, eq=False)
class _Asked:
    number: int
    request: Request

    @property
    def is_question(self) -> bool:
        return isinstance(self.request, Question)


class Server:
    """Answers requests from a channel.

    The thread that ``listens`` takes requests; ``serve`` works in the calling thread.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: deque[_Asked] = deque()
        # An analysis, then the question that is answered between two of its steps.
        self._running: list[_Asked] = []
        self._cancelled: set[int] = set()
        self._handlers: AnyHandlers | None = None
        self._is_stopped = False
        self._is_alone = False  # nobody reads what is said
        self._lock = Condition()

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
            is_serving = self._handlers is not None
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
            for number, message in self.channel.receive():
                if isinstance(message, Stop):
                    clear = False
                    break
                self._take(number, message)
        # Without ears it must end; this is the last chance to say why.
        except Exception:
            log.exception("The engine cannot listen any more")
        finally:
            self.stop(clear=clear)

    def _take(self, number: int | None, message: Request | Control) -> None:
        if isinstance(message, Cancel):
            self._cancel(message.request)
        elif isinstance(message, LookHere):
            with self._lock:
                is_first = [one.number for one in self._running[:1]] == [
                    message.request
                ]
                handlers = self._handlers if is_first else None
            if handlers is not None:
                handlers.look_here(message.l0_xy)
        elif isinstance(message, Request):
            if number is None:
                reason = f"{type(message).__name__} came without a number."
                log.warning(reason)
                self.channel.send(Failed(FailureKind.DEFECT, reason))
                return
            asked = _Asked(number, message)
            with self._lock:
                waits = self._must_wait(asked)
            # Before it is there to be taken: afterwards it may have ended already.
            if waits:
                self.channel.send(Working(Step.WAITING), number)
            with self._lock:
                self._waiting.append(asked)
                self._lock.notify_all()

    def _must_wait(self, asked: _Asked) -> bool:
        """Whether another slide comes first; one question to another is no matter."""
        before = [*self._running, *self._waiting]
        if asked.is_question:
            before = [one for one in before if not one.is_question]
        return bool(before)

    def _cancel(self, number: int) -> None:
        with self._lock:
            if any(one.number == number for one in self._running):
                self._cancelled.add(number)
                return
            waited = [one for one in self._waiting if one.number == number]
            for one in waited:
                self._waiting.remove(one)
        if waited:
            self.channel.send(Cancelled(), number)

    # Called from the working thread

    @property
    def is_asked(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    def serve(self, handlers: AnyHandlers) -> None:
        """Work off requests until told to stop."""
        with self._lock:
            self._handlers = handlers
        while (asked := self._next()) is not None:
            self._work_off(asked, handlers)

    def _next(self) -> _Asked | None:
        """The next request, as soon as there is one; None when all is to stop."""
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._is_stopped)
            if self._is_stopped:
                return None
            return self._begin(self._first_question() or self._waiting[0])

    def _next_question(self) -> _Asked | None:
        """The next question, if one waits."""
        with self._lock:
            question = None if self._is_stopped else self._first_question()
            return None if question is None else self._begin(question)

    def _first_question(self) -> _Asked | None:
        return next((one for one in self._waiting if one.is_question), None)

    def _begin(self, asked: _Asked) -> _Asked:
        self._waiting.remove(asked)
        self._running.append(asked)
        return asked

    def _work_off(self, asked: _Asked, handlers: AnyHandlers) -> None:
        """Do one request to its end, and say how it ended unless all is to stop."""
        end = self._do(asked, handlers)
        with self._lock:
            self._running.pop()
            self._cancelled.discard(asked.number)
        if end is None:
            return
        try:
            self.channel.send(end, asked.number)
        except BrokenPipeError:  # nobody is left to be told
            raise
        # Such as arrays for which there is no room: the request must end all the same.
        except Exception as error:  # noqa: BLE001
            self.channel.send(handlers.failed(error, asked.request), asked.number)

    def _do(self, asked: _Asked, handlers: AnyHandlers) -> End | None:
        """Do one request; give its last message, None when all is to stop."""
        number = asked.number
        try:
            work = handlers.start(asked.request)
            told = 0.0
            try:
                while not self._is_over(number):
                    try:
                        reply = next(work)
                    except StopIteration as stop:
                        return stop.value
                    if not isinstance(reply, Working):
                        self.channel.send(reply, number)
                        continue
                    if _is_news(reply, told):
                        self.channel.send(reply, number)
                        told = time.monotonic()
                    if not asked.is_question:
                        self._answer_within(number, handlers)
                return None if self._is_stopped else Cancelled()
            finally:
                work.close()
        except BrokenPipeError:  # nobody is left to be told
            raise
        # Whatever it is, it ends one request and not the engine.
        except Exception as error:  # noqa: BLE001
            return handlers.failed(error, asked.request)

    def _answer_within(self, number: int, handlers: AnyHandlers) -> None:
        """Answer questions while an analysis rests."""
        while not self._is_over(number):
            question = self._next_question()
            if question is None:
                return
            self._work_off(question, handlers)

    def _is_over(self, number: int) -> bool:
        return self._is_stopped or number in self._cancelled


def _is_news(working: Working, told: float) -> bool:
    progress = working.progress
    is_step = progress is None or not 0 < progress.done < progress.total
    return is_step or time.monotonic() - told >= PROGRESS_SECONDS
