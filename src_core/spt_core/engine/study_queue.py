"""The studies of a user: which there are, which wait, and who does them.

One file lists them. A process of its own, which outlives the window that started it,
does those that are wanted, one after the other; where it was killed, or the computer
was switched off, the list still says what was wanted.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from spt_core.engine.priority import lower_priority
from spt_core.errors import InputError
from spt_core.files import held_by_one, written_whole
from spt_core.plain_data import json_of
from spt_core.records import from_record
from spt_core.studies.study_folder import StudyFolder

LOOK_SECONDS = 0.3
_MOST = 50
_WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class QueuedStudy:
    """
    Attributes
    ----------
    path
        Of its folder.
    wanted
        Whether it is to be done, or being done.
    added
        When it was asked for, in seconds since 1970.
    says
        Its last words, where it ended without any in its folder.
    """

    path: str
    wanted: bool = False
    added: float = 0.0
    says: str = ""

    @property
    def folder(self) -> StudyFolder:
        return StudyFolder(Path(self.path))


@dataclass(frozen=True)
class StudyQueue:
    """The file that lists studies, those that were asked for first in front."""

    file: Path

    def studies(self) -> list[QueuedStudy]:
        """All that are known and still there."""
        try:
            plain = json_of(self.file)
            found = [from_record(QueuedStudy, one, "a study") for one in plain]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError):  # not ours any more: begin anew
            return []
        return [one for one in found if one.folder.settings.exists()]

    def waiting(self) -> list[QueuedStudy]:
        return [one for one in self.studies() if one.wanted]

    def know(self, path: Path) -> None:
        """Let a study be listed; one that is stays as it is."""
        path = Path(path).absolute()

        def change(known: list[QueuedStudy]) -> list[QueuedStudy]:
            if any(Path(one.path) == path for one in known):
                return known
            return [*known, QueuedStudy(str(path), added=time.time())]

        self._change(change)

    def add(self, path: Path) -> None:
        """A study is wanted: after those that wait, unless it waits already."""
        path = Path(path).absolute()

        def change(known: list[QueuedStudy]) -> list[QueuedStudy]:
            new = QueuedStudy(str(path), True, time.time())
            if any(Path(one.path) == path and one.wanted for one in known):
                return [new if Path(one.path) == path else one for one in known]
            return [*(one for one in known if Path(one.path) != path), new]

        self._change(change)

    def leave(self, path: Path, says: str = "", *, added: float | None = None) -> None:
        """A study is not wanted any more; it stays known.

        Parameters
        ----------
        added
            When it was asked for; one that was asked for again since stays wanted.
        """

        def change(one: QueuedStudy) -> QueuedStudy:
            if Path(one.path) != Path(path) or added not in (None, one.added):
                return one
            return replace(one, wanted=False, says=says)

        self._change(lambda known: [change(one) for one in known])

    def forget(self, path: Path) -> None:
        """A study is not listed any more; its folder stays as it is."""
        self._change(
            lambda known: [one for one in known if Path(one.path) != Path(path)]
        )

    def is_served(self) -> bool:
        """Whether a process does what is wanted."""
        if not self._serving.exists():
            return False
        with held_by_one(self._serving) as is_ours:
            return not is_ours

    @property
    def _serving(self) -> Path:
        return self.file.with_suffix(".serving")

    @contextmanager
    def serving(self) -> Iterator[bool]:
        with held_by_one(self._serving) as is_ours:
            yield is_ours

    def _change(self, change: Callable[[list[QueuedStudy]], list[QueuedStudy]]) -> None:
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            with held_by_one(self.file.with_suffix(".lock")) as is_ours:
                if is_ours:
                    found = change(self.studies())[-_MOST:]
                    plain = json.dumps([asdict(one) for one in found], indent=1)
                    with written_whole(self.file, private=True) as temporary:
                        temporary.write_text(plain, encoding="utf-8")
                    return
            if time.monotonic() > until:
                raise InputError(f"{self.file} is held by another process.")
            time.sleep(0.05)


# Starting


def serve_apart(queue: StudyQueue) -> None:
    """Let a process that outlives this one do what is wanted, if none does."""
    if queue.is_served():
        return
    command = [sys.executable, "-P", "-m", __name__, str(queue.file)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **_apart(),
    )
    # Waited for, so that it leaves nothing behind when it ends.
    threading.Thread(target=process.wait, daemon=True).start()


def _apart() -> dict:
    if os.name != "nt":
        return {"start_new_session": True}
    return {
        "creationflags": subprocess.CREATE_NO_WINDOW  # type: ignore[attr-defined]
        | subprocess.CREATE_NEW_PROCESS_GROUP  # type: ignore[attr-defined]
    }


# The process


def serve(queue: StudyQueue, *, linger: float = 2.0) -> None:
    """Do what is wanted, one study after the other, until nothing is.

    Parameters
    ----------
    linger
        Seconds to wait for another before the end.
    """
    # Somebody who only looks whether there is such a process lets go at once.
    patience = time.monotonic() + LOOK_SECONDS
    while time.monotonic() < patience:
        if not _served(queue, linger):
            time.sleep(LOOK_SECONDS / 5)
        elif queue.waiting():  # asked for while this was about to end
            patience = time.monotonic() + LOOK_SECONDS
        else:
            return


def _served(queue: StudyQueue, linger: float) -> bool:
    with queue.serving() as is_ours:
        if not is_ours:
            return False
        until = time.monotonic() + linger
        while time.monotonic() < until:
            waiting = queue.waiting()
            if waiting:
                do_study(queue, waiting[0])
                until = time.monotonic() + linger
            else:
                time.sleep(LOOK_SECONDS)
        return True


def do_study(queue: StudyQueue, wanted: QueuedStudy) -> int | None:
    """Do one study in a process of its own; its exit code."""
    path, folder = Path(wanted.path), wanted.folder
    if folder.is_held():  # by one that was started before, or by hand
        while folder.is_held():
            time.sleep(LOOK_SECONDS)
        queue.leave(path, added=wanted.added)
        return None
    # Without a name: what a study says may name patients. Not a pipe: the study goes
    # on where this process is killed.
    began = time.time()
    with tempfile.TemporaryFile() as log:
        process = _start(path, log)
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            is_wanted = any(Path(one.path) == path for one in queue.waiting())
            # One that has not begun yet hears nothing: it is ended at once.
            if not is_wanted and not folder.is_held():
                _end(process)
        has_said = not process.returncode or _says_why(folder, began)
        says = "" if has_said else _last_line(log)
    # It may have been paused and asked for again while its process came to an end.
    queue.leave(path, says, added=wanted.added)
    return process.returncode


def _start(path: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "spt_core", "study", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def _says_why(folder: StudyFolder, began: float) -> bool:
    """Whether a study's folder says how it ended, in words without patients."""
    try:
        state = folder.state()
    except InputError:
        return False
    return state is not None and state.when >= began and bool(state.message)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5.0)
    if process.poll() is None:
        process.kill()
        process.wait()


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def main() -> None:
    lower_priority()
    serve(StudyQueue(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
