"""A study from beginning to end: check, encode, evaluate in folds, train, report.

Long work as a generator: closing it stops within a step and keeps what is done; the
next call goes on. ``spt_core.studies.study_folder`` says what is in the folder.
"""

from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from spt_core.studies.cell_runners import Beat, CellEvent
from spt_core.studies.study_folder import Request, Stage, Status, StudyFolder
from spt_core.studies.study_recorder import Recorder
from spt_core.studies.study_requests import DONE, Watch, has_checkpoint, obey
from spt_core.studies.study_result import StudyResult
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.studies.study_stages import Work

__all__ = ["StudyResult", "study"]

Events = Generator[Any, None, StudyResult]


def study(
    settings: StudySettings,
    *,
    command: str = "",
    hard_after: float | None = None,
    say: Callable[[StudyResult], object] | None = None,
    keep: Request | None = None,
) -> Events:
    """Do a study, or go on with it.

    Parameters
    ----------
    command
        By which it was asked for, for the report.
    hard_after
        Seconds after a request in which a long step may end by itself; then the
        process ends, after ``say`` was told what came of it. For processes that do
        nothing else.
    keep
        Take no step: hand over the best or the last model of a run that was begun, as
        its last checkpoint has it.
    """
    folder = StudyFolder(Path(settings.out))
    with folder.held():
        folder.begin(settings)
        recorder = Recorder(folder, stages_of(settings))
        recorder.may_speak = settings.labels is None
        watch = Watch(folder, recorder, hard_after, say)
        if keep is not None:
            watch.hand_over(keep)
        with watch:
            work = Work(settings, folder, recorder, watch, command)
            try:
                with closing(work.events()) as events:
                    result = yield from _recorded(events, recorder, watch)
                # Begun earlier, and not come to yet.
                if result is None and watch.keeps_model and has_checkpoint(folder):
                    watch.hand_over()
                    with closing(work.events()) as events:
                        result = yield from _recorded(events, recorder, watch)
            except (GeneratorExit, KeyboardInterrupt):
                recorder.end(Status.PAUSED)
                raise
            except BaseException as error:
                with suppress(OSError):  # the disk may be full
                    recorder.end(Status.FAILED, str(error) or type(error).__name__)
                raise
        if result is None:
            request = watch.request
            if request is None:  # nothing else ends the work without a result
                raise RuntimeError("the study ended without a result")
            said = obey(folder, recorder, request)
            says = (said,) if said else ()
            return StudyResult(folder.path, DONE[request].value, says, run=recorder.run)
        folder.clear_request()
        recorder.end(Status(result.status), result.says[0] if result.says else "")
    return result


def _recorded(
    work: Generator[Any, None, StudyResult], recorder: Recorder, watch: Watch
) -> Generator[Any, None, StudyResult | None]:
    """Pass events on, writing them down; None where a request ended the work."""
    while True:
        try:
            event = next(work)
        except StopIteration as stop:
            return stop.value
        if isinstance(event, Beat):
            recorder.beat(event.cell)
        elif isinstance(event, CellEvent):
            recorder.take(event.event, event.cell)
        else:
            recorder.take(event)
        yield event
        if watch.stops:
            return None


def stages_of(settings: StudySettings) -> tuple[Stage, ...]:
    """Those that such a study has, in order."""
    found = [Stage.CHECK]
    if settings.slides and settings.aim is not Goal.PATCHES:
        found.append(Stage.ENCODE)
    once = settings.aim is Goal.BOTH and settings.pretrain_once
    if once:
        found.append(Stage.PRETRAIN)
    if settings.evaluates:
        found.append(Stage.EVALUATE)
    if settings.aim is Goal.BOTH and not once:
        found.append(Stage.PRETRAIN)
    return (*found, Stage.TRAIN, Stage.REPORT)
