"""Between the docks and the engine: who asked what, and one timer that listens."""

from collections.abc import Callable
from threading import Thread

from qtpy.compat import isalive
from qtpy.QtCore import QObject, QTimer
from qtpy.QtWidgets import QApplication

from spt_core.engine.client import Received, close_shared_engine, shared_engine
from spt_core.engine.protocol import END_TYPES, Ready, Reply, Request, Working

POLL_MS = 500

Callback = Callable[[Reply], None]


class Post(QObject):
    """Hands the engine's replies to those who asked, in the window's thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, Callback] = {}
        self._owners: dict[int, int] = {}
        self.users: set[int] = set()
        self.timer = QTimer(self)
        self.timer.setInterval(POLL_MS)
        self.timer.timeout.connect(self.deliver)
        application = QApplication.instance()
        if application is not None:
            application.aboutToQuit.connect(self.close)

    @property
    def ready(self) -> Ready | None:
        """What the engine runs on, once it is ready."""
        return shared_engine().ready

    def enter(self, user: int) -> None:
        """A dock opens: start the engine, whose imports take seconds."""
        self.users.add(user)
        shared_engine().start()

    def leave(self, user: int) -> None:
        """A dock closes; after the last one the engine ends, in a thread."""
        if user not in self.users:
            return
        self.users.discard(user)
        # Its widgets may be gone already: nothing is sent to them any more.
        for request in [r for r, owner in self._owners.items() if owner == user]:
            self.cancel(request)
            self._end(request)
        if not self.users:
            self._stop_listening()
            Thread(target=close_shared_engine, name="napari-spt closing").start()

    def ask(self, request: Request, callback: Callback, *, user: int) -> int:
        """Send a request of a dock; ``callback`` gets every reply to it."""
        number = shared_engine().submit(request)
        self.waiting[number] = callback
        self._owners[number] = user
        self.timer.start()
        return number

    def cancel(self, number: int) -> None:
        if number in self.waiting:
            shared_engine().cancel(number)

    def look_here(self, number: int, l0_xy: tuple[float, float] | None) -> None:
        """Let an analysis that runs go on around what is on the screen."""
        if number in self.waiting:
            shared_engine().look_here(number, l0_xy)

    def forget(self, number: int | None) -> None:
        """End a request whose answer nobody waits for any more."""
        if number is not None and number in self.waiting:
            shared_engine().cancel(number)
            self.waiting[number] = lambda _: None

    def deliver(self) -> None:
        errors = []
        for received in _latest_progress(shared_engine().poll()):
            number, reply = received.request, received.message
            if number is None:
                continue
            callback = self.waiting.get(number)
            if isinstance(reply, END_TYPES):
                self._end(number)
            if callback is None:
                continue
            try:
                callback(reply)
            # Whatever it is, the replies after it are delivered too.
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        if not self.waiting:
            self.timer.stop()
        if errors:
            raise errors[0]

    def _end(self, number: int) -> None:
        self.waiting.pop(number, None)
        self._owners.pop(number, None)

    def _stop_listening(self) -> None:
        # After an exception Python ends with the timer gone before the docks are.
        if isalive(self.timer):
            self.timer.stop()

    def close(self) -> None:
        self._stop_listening()
        self.waiting.clear()
        self._owners.clear()
        close_shared_engine()


def _latest_progress(received: list[Received]) -> list[Received]:
    """Of each request's progress the last alone: the others are old news."""
    last = {one.request: one for one in received if isinstance(one.message, Working)}
    return [
        one
        for one in received
        if not isinstance(one.message, Working) or one is last[one.request]
    ]


_post: Post | None = None


def post() -> Post:
    """The one post of this napari."""
    global _post
    if _post is None:
        _post = Post()
    return _post
