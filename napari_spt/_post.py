"""Between the docks and the engine: who asked what, and one timer that listens."""

from collections.abc import Callable
from threading import Thread
from typing import Any

from qtpy.QtCore import QObject, QTimer
from qtpy.QtWidgets import QApplication

from napari_spt._engine import Message, close_shared_engine, shared_engine

POLL_MS = 500
ENDS = ("done", "cancelled", "failed")

Callback = Callable[[Message], None]


class Post(QObject):
    """Hands the engine's messages to those who asked, in the window's thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, Callback] = {}
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
        if not self.users:
            self.timer.stop()
            self.waiting.clear()
            Thread(target=close_shared_engine, name="napari-spt closing").start()

    def ask(self, do: str, callback: Callback, **facts: Any) -> int:
        request = shared_engine().submit(do, **facts)
        self.waiting[request] = callback
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
        for message in shared_engine().poll():
            if message.request is None:
                continue
            callback = self.waiting.get(message.request)
            if message.event in ENDS:
                self.waiting.pop(message.request, None)
            if callback is not None:
                callback(message)
        if not self.waiting:
            self.timer.stop()

    def close(self) -> None:
        self.timer.stop()
        self.waiting.clear()
        close_shared_engine()


_post: Post | None = None


def post() -> Post:
    """The one post of this napari."""
    global _post
    if _post is None:
        _post = Post()
    return _post
