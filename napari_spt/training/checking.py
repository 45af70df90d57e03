"""Looking at a study's data, in a process of its own that can be broken off."""

import json
import sys

from qtpy.QtCore import QObject, QProcess, QTimer, Signal

from spt_core.commands.written import study_arguments
from spt_core.studies.study_finding import About, Finding, Rank
from spt_core.studies.study_settings import StudySettings


class Checker(QObject):
    """``found`` brings each finding; ``ended`` a sentence where it could not look."""

    began = Signal()
    found = Signal(object)
    ended = Signal(str)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._process: QProcess | None = None
        self._rest = b""
        self._said = ""

    @property
    def is_at_work(self) -> bool:
        return self._process is not None

    def check(self, settings: StudySettings) -> None:
        self.run(
            ["study", "--json", *study_arguments(settings), "--check", "--measure"]
        )

    def run(self, arguments: list[str]) -> None:
        self.stop()
        self._rest, self._said = b"", ""
        process = QProcess(self)
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)
        process.setStandardErrorFile(QProcess.nullDevice())
        self._process = process
        self.began.emit()
        process.start(sys.executable, ["-P", "-m", "spt_core", *arguments])

    def stop(self) -> None:
        """Break it off; nothing more is heard of it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.readyReadStandardOutput.disconnect(self._read)
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        process.finished.connect(process.deleteLater)
        process.kill()

    def close(self) -> None:
        process = self._process
        self.stop()
        if process is not None:
            process.waitForFinished(2000)

    def _read(self) -> None:
        if self._process is None:
            return
        data = self._rest + bytes(self._process.readAllStandardOutput().data())
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            self._take(event)

    def _take(self, event: dict) -> None:
        if event.get("event") == "finding":
            self.found.emit(
                Finding(
                    Rank(event["rank"]),
                    About(event["about"]),
                    event["says"],
                    event["do"],
                )
            )
        elif event.get("event") == "error":
            self._said = str(event.get("message"))
        else:
            self.found.emit(event)

    def _on_finished(self, code: int, _status: object = None) -> None:
        self._read()
        process, self._process = self._process, None
        if process is not None:
            process.deleteLater()
        failed = code not in (0, 1) and not self._said
        self.ended.emit(
            "What looks at the data ended without a word." if failed else self._said
        )

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self._process = None
            QTimer.singleShot(0, lambda: self.ended.emit("Python did not start."))
