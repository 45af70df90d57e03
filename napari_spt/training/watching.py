"""Watching a study, and asking it, off the window's thread."""

import time
from pathlib import Path
from threading import Event, Thread

from qtpy.QtCore import QObject, Signal

from napari_spt.parts.settings import settings_file
from napari_spt.training.reading import StudyReader
from spt_core.engine.study_queue import StudyQueue, serve_apart
from spt_core.errors import InputError
from spt_core.studies.study_folder import Request, StudyFolder
from spt_core.studies.study_requests import end_unattended, hand_over_apart
from spt_core.studies.study_settings import StudySettings

LOOK_SECONDS = 0.5
_ASK_SECONDS = 30.0


def studies_file() -> Path:
    """The list of a user's studies."""
    return settings_file().with_name("studies.json")


def known_studies() -> StudyQueue:
    return StudyQueue(studies_file())


class Watcher(QObject):
    """Looks at one study twice a second, in a thread; ``looked`` brings what it saw."""

    looked = Signal(object)

    def __init__(self, queue: StudyQueue) -> None:
        super().__init__()
        self.queue = queue
        self._over = Event()
        self._thread: Thread | None = None

    def watch(self, path: Path) -> None:
        self.stop()
        self._over = Event()
        reader = StudyReader(path, self.queue)
        self._thread = Thread(
            target=self._run, args=(reader, self._over), daemon=True, name="study watch"
        )
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _run(self, reader: StudyReader, over: Event) -> None:
        while not over.is_set():
            try:
                look = reader.look()
            except OSError:  # a folder that is being removed, a disk that is away
                look = None
            if over.is_set():
                return
            try:
                self.looked.emit(look)
            except RuntimeError:  # the window is gone
                return
            over.wait(LOOK_SECONDS)


def begin_study(settings: StudySettings, queue: StudyQueue) -> StudyFolder:
    """Write a study down, put it in the queue, and see that somebody does it."""
    folder = StudyFolder(Path(settings.out))
    folder.begin(settings)
    go_on(folder, queue)
    return folder


def go_on(folder: StudyFolder, queue: StudyQueue) -> None:
    folder.clear_request()
    queue.add(folder.path)
    serve_apart(queue)


def ask_study(folder: StudyFolder, request: Request, queue: StudyQueue) -> None:
    """Ask until it is heard: one that is just starting hears nothing yet.

    What nobody does is stopped or discarded at once.
    """
    is_wanted = any(Path(one.path) == folder.path for one in queue.waiting())
    queue.leave(folder.path)
    asked, until = time.time(), time.monotonic() + _ASK_SECONDS
    while time.monotonic() < until:
        if folder.is_held():
            state = folder.state()
            # What an earlier process had heard is of before.
            if state is not None and state.request and state.when >= asked:
                return
            if folder.request() is None:
                folder.ask(request)
        elif _is_over(folder, asked):
            return
        elif is_wanted and queue.is_served() and not _is_over(folder):
            pass  # it is just starting
        elif request is Request.PAUSE or _is_ended(folder, request):
            return
        time.sleep(0.2)


def _is_ended(folder: StudyFolder, request: Request) -> bool:
    """End what nobody does; False where somebody has begun to."""
    try:
        if end_unattended(folder, request):
            hand_over_apart(folder, request)
    except InputError:
        if folder.is_held():
            return False
        raise
    return True


def _is_over(folder: StudyFolder, since: float = 0.0) -> bool:
    state = folder.state()
    if state is None or state.when < since:
        return False
    return state.status in ("paused", "stopped", "discarded", "finished")
