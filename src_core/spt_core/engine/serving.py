"""Working off requests, one after the other, and hearing "cancel" all the while."""

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

Explain = Callable[[BaseException, Request], Failure]


class Server:
    """Answers requests from a channel.

    The thread that ``listens`` takes requests; ``serve`` works in the calling thread.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: deque[dict[str, Any]] = deque()
        self._running: int | None = None
        self._is_cancelled = False
        self._is_serving = False
        self._is_stopped = False
        self._is_alone = False  # nobody reads what is said
        self._lock = Condition()
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
                steer = self._steer if self._running == number else None
            if steer is not None:
                steer(number, request)
        else:
            with self._lock:
                self._waiting.append(request)
                self._lock.notify_all()

    def _cancel(self, number: int) -> None:
        with self._lock:
            if self._running == number:
                self._is_cancelled = True
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
            self._steer = steer
        while (request := self._next()) is not None:
            end = self._work_off(request, works, explain)
            with self._lock:
                self._running = None
            if end is not None:
                self.channel.send(end.event, request["id"], end.facts, end.arrays)

    def _next(self) -> dict[str, Any] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._is_stopped)
            if self._is_stopped:
                return None
            request = self._waiting.popleft()
            self._running, self._is_cancelled = request["id"], False
            return request

    def _work_off(
        self,
        request: dict[str, Any],
        works: Mapping[str, Callable[[Request], Work]],
        explain: Explain,
    ) -> Say | None:
        """Do one request; give its last message, None when all is to stop."""
        number: int = request["id"]
        try:
            start = works.get(str(request.get("do")))
            if start is None:
                raise Failure(OTHER, f"There is no such request: {request.get('do')}.")
            work = start(request)
            said = 0.0
            try:
                while True:
                    if self._is_cancelled or self._is_stopped:
                        return None if self._is_stopped else Say("cancelled")
                    try:
                        say = next(work)
                    except StopIteration as stop:
                        return stop.value
                    if say.event == "progress":
                        if not _is_news(say, said):
                            continue
                        said = time.monotonic()
                    self.channel.send(say.event, number, say.facts, say.arrays)
            finally:
                work.close()
        except BrokenPipeError:  # nobody is left to be told
            raise
        # Whatever it is, it ends one request and not the engine.
        except Exception as error:  # noqa: BLE001
            return explain(error, request).said()


def _is_news(say: Say, said: float) -> bool:
    is_step = say.facts["done"] == 0 or say.facts["done"] >= say.facts["total"]
    return is_step or time.monotonic() - said >= PROGRESS_SECONDS
