"""Between the docks and the engine: who asked what, and one timer that listens."""

from collections.abc import Callable
from threading import Thread
from typing import Any

from qtpy.QtCore import QObject, QTimer
from qtpy.QtWidgets import QApplication

from napari_spt.parts.engine import Message, close_shared_engine, shared_engine

POLL_MS = 500
ENDS = ("done", "cancelled", "failed")

Callback = Callable[[Message], None]


class Post(QObject):
    """Hands the engine's messages to those who asked, in the window's thread."""

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
    def about(self) -> dict[str, Any]:
        """What the engine runs on, once it is ready."""
        return shared_engine().about

    def enter(self, user: int) -> None:
        """A dock opens: start the engine, whose imports take seconds."""
        self.users.add(user)
        shared_engine().start()

    def leave(self, user: int) -> None:
        """A dock closes; after the last one the engine ends, beside the window."""
        if user not in self.users:
            return
        self.users.discard(user)
        # Its widgets may be gone already: nothing is told to them any more.
        for request in [r for r, owner in self._owners.items() if owner == user]:
            self.cancel(request)
            self._end(request)
        if not self.users:
            self.timer.stop()
            Thread(target=close_shared_engine, name="napari-spt closing").start()

    def ask(self, do: str, callback: Callback, *, user: int, **facts: Any) -> int:
        """Send a request of a dock; ``callback`` hears all that comes of it."""
        request = shared_engine().submit(do, **facts)
        self.waiting[request] = callback
        self._owners[request] = user
        self.timer.start()
        return request

    def cancel(self, request: int) -> None:
        if request in self.waiting:
            shared_engine().cancel(request)

    def look_here(self, request: int, l0_xy: list[float] | None) -> None:
        """Let an analysis that runs go on around what is on the screen."""
        if request in self.waiting:
            place = None if l0_xy is None else (l0_xy[0], l0_xy[1])
            shared_engine().look_here(request, place)

    def forget(self, request: int | None) -> None:
        """End a request whose answer nobody waits for any more."""
        if request is not None and request in self.waiting:
            shared_engine().cancel(request)
            self.waiting[request] = lambda _: None

    def deliver(self) -> None:
        errors = []
        for message in _without_old_news(shared_engine().poll()):
            callback = self.waiting.get(message.request)
            if message.event in ENDS:
                self._end(message.request)
            if callback is None:
                continue
            try:
                callback(message)
            # Whatever it is, those that come after it are told too.
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        if not self.waiting:
            self.timer.stop()
        if errors:
            raise errors[0]

    def _end(self, request: int) -> None:
        self.waiting.pop(request, None)
        self._owners.pop(request, None)

    def close(self) -> None:
        self.timer.stop()
        self.waiting.clear()
        self._owners.clear()
        close_shared_engine()


def _without_old_news(messages: list[Message]) -> list[Message]:
    """What somebody asked for; of each request's progress the last alone."""
    last = {m.request: m for m in messages if m.event == "progress"}
    return [
        message
        for message in messages
        if message.request is not None
        and (message.event != "progress" or message is last[message.request])
    ]


_post: Post | None = None


def post() -> Post:
    """The one post of this napari."""
    global _post
    if _post is None:
        _post = Post()
    return _post
