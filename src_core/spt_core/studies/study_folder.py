"""The folder of a study: what is in it, and what another process may read of it.

::

    study.yaml       every setting
    features/        one file per slide
    runs/1/ ...      what was learned from which slides, with its cells and trainings
    report/          of the latest run: RESULT.md, report.html, tables
    model.safetensors   the model that is handed over, with its card
    state.json       stage, progress and status, for whoever watches
    events.jsonl     what happened, a line each
    request          pause, stop-keep-best, stop-keep-last or discard: for the study
    folds.json       which fold each patient is asked in, under HMACs
    patients.key     the key of those HMACs; keep it, give it to nobody
    README.md        what is what

Without torch: a window reads and asks by these files.
"""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.files import held_by_one, refuse_links, remove_left, written_whole
from spt_core.patients_key import KEY_FILE, new_key, read_key, write_key
from spt_core.plain_data import from_json, json_of
from spt_core.records import from_record
from spt_core.studies.study_settings import Goal, StudySettings

_NUMBER = re.compile("[0-9]{1,9}")
_WAIT_SECONDS = 2.0


class Stage(StrEnum):
    """What a study does, in this order."""

    CHECK = "check"
    ENCODE = "encode"
    PRETRAIN = "pretrain"  # once for all folds
    EVALUATE = "evaluate"
    TRAIN = "train"
    REPORT = "report"


class Status(StrEnum):
    RUNNING = "running"
    PAUSING = "pausing"
    STOPPING = "stopping"
    DISCARDING = "discarding"
    PAUSED = "paused"
    STOPPED = "stopped"
    DISCARDED = "discarded"
    FAILED = "failed"
    FINISHED = "finished"


class Request(StrEnum):
    """What a study can be asked; all but a pause also where nobody does it."""

    PAUSE = "pause"
    KEEP_BEST = "stop-keep-best"
    KEEP_LAST = "stop-keep-last"
    DISCARD = "discard"


@dataclass(frozen=True)
class StudyState:
    """How far a study is.

    Attributes
    ----------
    done, total
        Of the stage: patches, cells or steps; 0 of 0 where that is not known.
    rate
        Per second.
    run
        The number of the run, 0 before the first.
    request
        What it was asked and has taken notice of; "" without.
    began, when
        Of this process and of this line, in seconds since 1970.
    """

    status: str
    stage: str
    stages: tuple[str, ...]
    message: str
    done: int
    total: int
    rate: float | None
    run: int
    pid: int
    request: str
    began: float
    when: float


@dataclass(frozen=True)
class StudyFolder:
    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())

    @property
    def settings(self) -> Path:
        return self.path / "study.yaml"

    @property
    def features(self) -> Path:
        return self.path / "features"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def encoder(self) -> Path:
        return self.path / "encoder.safetensors"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def request_file(self) -> Path:
        return self.path / "request"

    @property
    def folds(self) -> Path:
        return self.path / "folds.json"

    def run(self, number: int) -> Path:
        return self.runs / str(number)

    def run_numbers(self) -> list[int]:
        """Of the runs that are there, the latest first."""
        there = self.runs.iterdir() if self.runs.is_dir() else ()
        names = [path.name for path in there]
        numbers = (int(name) for name in names if _NUMBER.fullmatch(name))
        return sorted(numbers, reverse=True)

    def features_of(self, settings: StudySettings) -> Path:
        """The folder that is learned from: features alone are taken where they are."""
        if settings.features and not settings.slides:
            return Path(settings.features)
        return self.features

    # one process at a time

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out; somebody who only looks lets go at once."""
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            with held_by_one(self.path / ".lock") as is_ours:
                if is_ours:
                    refuse_links(self.runs, self.report)
                    runs = self.runs.iterdir() if self.runs.is_dir() else ()
                    remove_left(self.path, self.report, *runs)
                    yield
                    return
            if time.monotonic() > until:
                raise InputError(f"Another process is at work in {self.path}.")
            time.sleep(0.1)

    def is_held(self) -> bool:
        """Whether a process is at work here."""
        if not (self.path / ".lock").exists():
            return False
        with held_by_one(self.path / ".lock") as is_ours:
            return not is_ours

    # state, events, requests

    def write_state(self, state: StudyState) -> None:
        with written_whole(self.path / "state.json") as temporary:
            temporary.write_text(json.dumps(asdict(state)), encoding="utf-8")

    def state(self) -> StudyState | None:
        """The last that was written; None where nothing was begun."""
        file = self.path / "state.json"
        try:
            state = from_record(StudyState, json_of(file), "it")
            Status(state.status)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{file} cannot be read ({error}). Remove it: nothing is lost."
            ) from error
        return state

    def read_events(self, start: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The events from a byte on, and where to go on reading.

        A last line that is still being written, or was cut by a kill, is left out.
        """
        if not self.events.exists():
            return [], start
        with self.events.open("rb") as file:
            file.seek(start)
            data = file.read()
        end = data.rfind(b"\n") + 1
        found = []
        for line in data[:end].splitlines():
            try:
                event = from_json(line)
            except ValueError:  # cut by a kill; the next one began a new line
                continue
            if isinstance(event, dict):
                found.append(event)
        return found, start + end

    def ask(self, request: Request | str) -> None:
        """Ask a study that runs; it takes notice within seconds."""
        with written_whole(self.request_file) as temporary:
            temporary.write_text(Request(request).value + "\n", encoding="ascii")

    def request(self) -> Request | None:
        try:
            word = self.request_file.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return Request(word) if word in tuple(Request) else None

    def clear_request(self) -> None:
        self.request_file.unlink(missing_ok=True)

    # patients

    def key(self, start: Path | None = None) -> bytes:
        """The random key of the patients' HMACs, made when first asked for.

        ``start`` is a model to begin from: patients are known by its run's key.
        """
        path = self.path / KEY_FILE
        if not path.exists():
            theirs = start.parent / KEY_FILE if start else path
            write_key(path, read_key(theirs) if theirs.exists() else new_key())
        return read_key(path)

    def hidden(self, text: str) -> str:
        """A patient, or anything else, as the folder's files may hold it."""
        return hmac.new(self.key(), text.encode(), hashlib.sha256).hexdigest()[:32]

    def begin(self, settings: StudySettings) -> None:
        """Write down what is asked."""
        self.path.mkdir(parents=True, exist_ok=True)
        with written_whole(self.settings) as temporary:
            settings.write(temporary)
        with written_whole(self.path / "README.md") as temporary:
            temporary.write_text(_readme(settings), encoding="utf-8")
        self.key(Path(settings.init) if settings.init else None)


def _readme(settings: StudySettings) -> str:
    handed = (
        "| `encoder.safetensors` | the patch encoder that is handed over |"
        if settings.goal == Goal.PATCHES
        else "| `model.safetensors` | the model that is handed over, with its card |"
    )
    return f"""# A study of slides

Made by `spt study`, with the goal `{settings.goal}`. `spt study FOLDER` goes on with
it, where FOLDER is this one: after a stop, or with slides that were added.

| | |
|---|---|
| `report/RESULT.md` | what was found, in words; the tables are beside it |
{handed}
| `study.yaml` | every setting |
| `features/` | one file per slide |
| `runs/` | each run: its slides, its folds, every model that was trained and asked |
| `folds.json` | the fold that each patient is asked in, under HMACs |
| `patients.key` | the key of those HMACs: keep it, give it to nobody |
| `state.json`, `events.jsonl` | how far it is, and what happened |

The scores are of folds: every patient is asked by models that have not learned from
them. The model that is handed over has learned from all slides; no score is of it.
"""
