"""Requests to a study that runs, noticed at once and obeyed within seconds."""

import os
import shutil
import threading
import time
from contextlib import suppress
from types import TracebackType

from spt_core.studies.study_folder import Request, Status, StudyFolder
from spt_core.studies.study_recorder import Recorder

POLL_SECONDS = 0.2
# Of a process that broke off a step that would not end.
EXIT_CODE = 3

BEING_DONE = {
    Request.PAUSE: Status.PAUSING,
    Request.KEEP_BEST: Status.STOPPING,
    Request.KEEP_LAST: Status.STOPPING,
    Request.DISCARD: Status.DISCARDING,
}
DONE = {
    Request.PAUSE: Status.PAUSED,
    Request.KEEP_BEST: Status.STOPPED,
    Request.KEEP_LAST: Status.STOPPED,
    Request.DISCARD: Status.DISCARDED,
}


class Watch:
    """Looks for a request while the study works, in a thread of its own.

    Parameters
    ----------
    hard_after
        Seconds after which a step that does not end is broken off, and the process
        with it: everything may be killed at any moment, and goes on from there. None
        waits for the step.
    """

    def __init__(
        self, folder: StudyFolder, recorder: Recorder, hard_after: float | None
    ) -> None:
        self.folder, self.recorder, self.hard_after = folder, recorder, hard_after
        self.request: Request | None = None
        self.has_model = False  # there is one to keep: its training is at work
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def keeps_model(self) -> bool:
        """Whether the model is wanted as it is now."""
        return self.request in (Request.KEEP_BEST, Request.KEEP_LAST)

    @property
    def stops(self) -> bool:
        """Whether nothing more is to be done."""
        return self.request is not None and not (self.keeps_model and self.has_model)

    def _watch(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            self.request = self.folder.request()
            if self.request is not None:
                self.recorder.request = self.request.value
                with suppress(OSError):  # obeyed all the same where the disk is full
                    self.recorder.write(BEING_DONE[self.request])
                break
        else:
            return
        if self.hard_after is None:
            return
        until = time.monotonic() + self.hard_after
        while not self._over.wait(POLL_SECONDS):
            if self.stops and time.monotonic() > until:
                try:
                    obey(self.folder, self.recorder, self.request)
                finally:
                    os._exit(EXIT_CODE)


def obey(folder: StudyFolder, recorder: Recorder, request: Request) -> None:
    """What a request leaves behind, once the work has stopped."""
    message = ""
    if request is Request.DISCARD and recorder.run:
        path = folder.run(recorder.run)
        for name in ("run.json", "patches.json"):  # it counts no more
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        message = f"Run {recorder.run} was removed; the features are kept."
    elif request in (Request.KEEP_BEST, Request.KEEP_LAST):
        message = (
            "There was no model to keep yet: what was done is kept, and goes on when "
            "the study is run again."
        )
    folder.clear_request()
    recorder.end(DONE[request], message)
