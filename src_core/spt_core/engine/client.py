"""The window's end of the pipe to the engine, which does all work with torch.

The window submits and polls, and never waits. Nothing here knows Qt.
"""

import atexit
from collections import deque

from spt_core.engine.process import EngineProcess, EngineState, Received
from spt_core.engine.protocol import (
    Cancel,
    Control,
    Failed,
    FailureKind,
    LookHere,
    Ready,
    Request,
)
from spt_core.engine.session_folder import remove_stale_folders


class EngineClient:
    """Starts the engine when it is needed, and again after it was lost.

    Every request ends with one of :data:`~spt_core.engine.protocol.END_TYPES`, whatever
    becomes of the engine. All methods are called from one thread and none of them
    waits, but for ``close``.
    """

    def __init__(self) -> None:
        self._process: EngineProcess | None = None
        self._received: deque[Received] = deque()
        self._last = 0
        self._old: list[EngineProcess] = []

    @property
    def state(self) -> EngineState:
        return EngineState.OFF if self._process is None else self._process.state

    @property
    def ready(self) -> Ready | None:
        """What the engine runs on, once it is ready."""
        return None if self._process is None else self._process.ready

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the engine, unless it runs; it gets ready by itself."""
        if self._process is not None:
            if self._process.is_alive:
                return
            self._old = [one for one in (*self._old, self._process) if one.is_reading]
        else:
            remove_stale_folders()
        self._process = EngineProcess(self._received)

    def submit(self, request: Request) -> int:
        """Send a request; give its number, by which its replies are known."""
        self._last += 1
        number = self._last
        # Where it dies twice in a row, at once, no third will live.
        failed = Failed(FailureKind.NOT_STARTED, "it ends at once.")
        for _ in range(2):
            self.start()
            try:
                if self._process is not None and self._process.ask(number, request):
                    return number
            except OSError as error:  # such as a full disk
                failed = Failed(FailureKind.FILE_REFUSED, str(error))
                break
        self._received.append(Received(number, failed))
        return number

    def cancel(self, number: int) -> None:
        """Stop a request that runs or waits; it ends with ``Cancelled``."""
        self._control(Cancel(number))

    def look_here(self, number: int, l0_xy: tuple[float, float] | None) -> None:
        """Let a running analysis go on around a place of the slide."""
        self._control(LookHere(number, l0_xy))

    def poll(self) -> list[Received]:
        """Everything since the last call."""
        found = []
        while True:
            try:
                found.append(self._received.popleft())
            except IndexError:
                return found

    def close(self) -> None:
        """End the engine, within a few seconds at most, and leave nothing behind."""
        current, self._process = self._process, None
        for one in (*self._old, *(() if current is None else (current,))):
            one.close()
        self._old = []
        self._received.clear()

    def _control(self, control: Control) -> None:
        if self._process is not None and self._process.is_alive:
            self._process.control(control)


_shared: EngineClient | None = None


def shared_engine() -> EngineClient:
    """The one engine of this process; not started by asking for it."""
    global _shared
    if _shared is None:
        _shared = EngineClient()
        atexit.register(close_shared_engine)
    return _shared


def close_shared_engine() -> None:
    """End the shared engine, if there is one."""
    global _shared
    engine, _shared = _shared, None
    if engine is not None:
        engine.close()
        atexit.unregister(close_shared_engine)
