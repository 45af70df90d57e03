"""Requests to a study, noticed at once and obeyed within seconds.

A step that does not end is broken off with its process. What it leaves is what a kill
leaves: the last checkpoint, from which a study goes on, or from which its model is
handed over as it was.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from spt_core.errors import InputError
from spt_core.plain_data import json_of
from spt_core.studies.study_folder import Request, Status, StudyFolder
from spt_core.studies.study_recorder import Recorder
from spt_core.studies.study_result import StudyResult

POLL_SECONDS = 0.2
_SAY_SECONDS = 1.0
# Of slide models, and of patch encoders.
RUN_FILES = ("run.json", "patches.json")

BEING_DONE = {
    Request.PAUSE: Status.PAUSING,
    Request.KEEP_BEST: Status.STOPPING,
    Request.KEEP_LAST: Status.STOPPING,
    Request.DISCARD: Status.DISCARDING,
}
_IN_THE_BACKGROUND = (
    "The step that was at work was broken off. The model is being handed over in the "
    "background, which takes a minute or so; state.json says when it is done."
)
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
    say
        Told what came of it, before the process ends; it has a second for that.
    """

    def __init__(
        self,
        folder: StudyFolder,
        recorder: Recorder,
        hard_after: float | None,
        say: Callable[[StudyResult], object] | None = None,
    ) -> None:
        self.folder, self.recorder, self.hard_after = folder, recorder, hard_after
        self.say = say
        self.request: Request | None = None
        self.has_model = False  # there is one to keep: its training is at work
        self.hands_over = False  # no step is taken any more
        # Held while it is settled whether the training is broken off, or has ended.
        self._settling = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watch":
        if self.request is None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def keeps_model(self) -> bool:
        """Whether the model is wanted as it is now."""
        return self.request in (Request.KEEP_BEST, Request.KEEP_LAST)

    @property
    def stops(self) -> bool:
        """Whether nothing more is to be done."""
        return self.request is not None and not (self.keeps_model and self.has_model)

    def hand_over(self, request: Request | None = None) -> None:
        """From here on the model is handed over: nothing is broken off any more."""
        with self._settling:
            self.has_model = self.hands_over = True
        if request is not None:
            self.request, self.recorder.request = request, request.value
            self.recorder.status = BEING_DONE[request]

    def ends_training(self) -> bool:
        """Asked between steps: whether the training ends here."""
        if self.keeps_model:
            self.hand_over()
        return self.keeps_model

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
            if time.monotonic() > until:
                with self._settling:
                    if not self.hands_over:
                        self._break_off(self.request)

    def _break_off(self, request: Request) -> None:
        code = 1
        try:
            says = _IN_THE_BACKGROUND
            if self.keeps_model and has_checkpoint(self.folder):
                with suppress(OSError):
                    self.recorder.write()
                hand_over_apart(self.folder, request)
            else:
                says = obey(self.folder, self.recorder, request)
            self._tell(request, says)
            code = 0  # as where the step ended in time
        except OSError as error:
            self._tell(request, f"{error.filename} cannot be written: {error.strerror}")
        finally:
            os._exit(code)

    def _tell(self, request: Request, says: str) -> None:
        if self.say is None:
            return
        result = StudyResult(
            self.folder.path,
            DONE[request].value,
            (says,) if says else (),
            run=self.recorder.run,
        )
        # Who reads what is printed may have stopped reading.
        teller = threading.Thread(target=self.say, args=(result,), daemon=True)
        teller.start()
        teller.join(_SAY_SECONDS)


def end_unattended(folder: StudyFolder, request: Request) -> bool:
    """Obey for a study that no process does: paused, killed or broken off.

    Returns
    -------
    Whether its model is to be handed over yet, which a process with torch does.
    """
    state = folder.state()
    if state is None or request is Request.PAUSE:
        raise InputError(f"No study runs in {folder.path}.")
    with folder.held():
        run, is_open = latest_run_of(folder)
        if run and not is_open:
            raise InputError(
                f"Run {run} of the study in {folder.path} is finished: there is "
                "nothing to stop or to discard."
            )
        recorder = Recorder.again(folder, state)
        recorder.run, recorder.request = run, request.value
        folder.clear_request()
        if request is not Request.DISCARD and has_checkpoint(folder):
            recorder.write(BEING_DONE[request], "")
            return True
        obey(folder, recorder, request)
    return False


def hand_over_apart(folder: StudyFolder, request: Request) -> None:
    """Let another process hand over a run's model as its last checkpoint has it."""
    words = ["study", str(folder.path), "--request", request.value]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "spt_core", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    # Waited for, so that it leaves nothing behind when it ends.
    threading.Thread(target=process.wait, daemon=True).start()


def latest_run_of(folder: StudyFolder) -> tuple[int, bool]:
    """The number of the latest run, 0 without one, and whether it is not finished."""
    for number in folder.run_numbers():
        for name in RUN_FILES:
            file = folder.run(number) / name
            if not file.exists():
                continue
            try:
                plain = json_of(file)
                return number, plain["status"] != "finished"
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{file} cannot be read ({error}). Remove its folder; the run is "
                    "done anew."
                ) from error
    return 0, False


def has_checkpoint(folder: StudyFolder) -> bool:
    """Whether a run that is not finished has a model that could be handed over."""
    number, is_open = latest_run_of(folder)
    return is_open and any(
        any((folder.run(number) / name).glob("checkpoint*.pt"))
        for name in ("model", "patches")
    )


def obey(folder: StudyFolder, recorder: Recorder, request: Request) -> str:
    """What a request leaves behind, once the work has stopped; what to say of it."""
    message = ""
    if request is Request.DISCARD and recorder.run:
        path = folder.run(recorder.run)
        for name in RUN_FILES:  # it counts no more
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
    return message
