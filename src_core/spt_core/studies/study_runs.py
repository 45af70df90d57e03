"""The runs of a study: which slides each learns from, and whether it goes on.

A run that was begun keeps its slides. Slides that come later, other labels and other
settings are for the next one.
"""

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import Cohort
from spt_core.plain_data import json_of
from spt_core.records import from_record
from spt_core.studies.study_folder import StudyFolder

SLIDES_FILE = "slides.txt"
SPLITS_FILE = "splits.json"


@dataclass(frozen=True)
class StudyRun:
    """
    Attributes
    ----------
    recipe, data
        Hashes of the settings, and of the slides with their labels.
    slides
        How many.
    status
        ``begun``, ``finished``, or ``stopped`` where less was wanted than planned.
    """

    number: int
    recipe: str
    data: str
    slides: int
    status: str = "begun"
    began: float = 0.0


@dataclass(frozen=True, eq=False)
class ChosenRun:
    """The run to do, its slides, and what to say of the choice."""

    run: StudyRun
    path: Path
    cohort: Cohort
    notes: tuple[str, ...] = ()

    @property
    def slide_list(self) -> Path:
        return self.path / SLIDES_FILE

    @property
    def splits(self) -> Path:
        return self.path / SPLITS_FILE


def choose_run(folder: StudyFolder, cohort: Cohort, recipe: str) -> ChosenRun:
    """Go on with the latest run where it is the same, or begin another."""
    latest = latest_run(folder)
    notes: list[str] = []
    if latest is not None:
        path = folder.run(latest.number)
        begun = _part(cohort, _listed(path / SLIDES_FILE))
        added = len(cohort) - len(begun)
        changed = _changed(folder, latest, begun, recipe)
        if not changed and (latest.status == "begun" or not added):
            if added:
                notes.append(
                    f"{_slides(added)} came after run {latest.number} was begun: they "
                    "join the next one."
                )
            return ChosenRun(latest, path, begun, tuple(notes))
        if latest.status == "begun":
            notes.append(
                f"Run {latest.number} was not finished and is left as it is: {changed}."
            )
        elif added and not changed:
            notes.append(f"{_slides(added)} came since run {latest.number}.")
    number = latest.number + 1 if latest else 1
    run = StudyRun(
        number, recipe, _data(folder, cohort), len(cohort), began=time.time()
    )
    path = folder.run(number)
    shutil.rmtree(path, ignore_errors=True)  # of one that was discarded, or never began
    with written_whole(path / SLIDES_FILE) as temporary:
        names = sorted({pseudonym(slide.fingerprint()) for slide in cohort})
        temporary.write_text("".join(f"{name}\n" for name in names), encoding="ascii")
    write_run(folder, run)
    notes.append(f"Run {number}: {_slides(len(cohort))}.")
    return ChosenRun(run, path, cohort, tuple(notes))


def begun_run(folder: StudyFolder, cohort: Cohort, recipe: str) -> ChosenRun:
    """The run that was begun, as it was begun."""
    run = latest_run(folder)
    if run is None or run.status == "finished":
        raise InputError(f"No run in {folder.path} is unfinished.")
    path = folder.run(run.number)
    begun = _part(cohort, _listed(path / SLIDES_FILE))
    changed = _changed(folder, run, begun, recipe)
    if changed:
        raise InputError(
            f"The model of run {run.number} cannot be handed over: {changed}. Put "
            "them back as they were, or discard the run."
        )
    return ChosenRun(run, path, begun)


def latest_run(folder: StudyFolder) -> StudyRun | None:
    paths = [folder.run(number) / "run.json" for number in folder.run_numbers()]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return None
    try:
        return from_record(StudyRun, json_of(path), "it")
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read ({error}). Remove its folder; the run is done anew."
        ) from error


def write_run(folder: StudyFolder, run: StudyRun) -> None:
    with written_whole(folder.run(run.number) / "run.json") as temporary:
        temporary.write_text(json.dumps(asdict(run), indent=1), encoding="utf-8")


def end_run(folder: StudyFolder, run: StudyRun, status: str) -> StudyRun:
    ended = replace(run, status=status)
    write_run(folder, ended)
    return ended


def _changed(folder: StudyFolder, run: StudyRun, begun: Cohort, recipe: str) -> str:
    """What differs from when a run was begun, in words; "" where nothing does."""
    if run.recipe != recipe:
        return "the settings are others"
    if len(begun) < run.slides:
        return f"slides of before are gone: {run.slides - len(begun)}"
    if run.data != _data(folder, begun):
        return "its slides or their labels are others"
    return ""


def refuse_changed(folder: StudyFolder, run: StudyRun, cohort: Cohort) -> None:
    """Stop where slides or labels are no more those of a run that goes on."""
    if run.data != _data(folder, cohort):
        raise InputError(
            f"Slides or labels were changed since run {run.number} was begun. Put them "
            "back to go on with it; otherwise the study begins another run."
        )


def _data(folder: StudyFolder, cohort: Cohort) -> str:
    """A hash of the slides and of what is said of them; under the study's key."""
    lines = sorted(
        f"{len(slide)} {slide.fingerprint()} "
        f"{(slide.label, slide.patient, slide.site, slide.split)}"
        for slide in cohort
    )
    return folder.hidden("\n".join([f"{cohort.dim} {cohort.facts}", *lines]))


def _listed(path: Path) -> frozenset[str]:
    # What was not written by us names no slide.
    return frozenset(path.read_text(encoding="ascii", errors="replace").split())


def _part(cohort: Cohort, wanted: Iterable[str]) -> Cohort:
    names = frozenset(wanted)
    return cohort.subset(
        number
        for number, slide in enumerate(cohort)
        if pseudonym(slide.fingerprint()) in names
    )


def _slides(count: int) -> str:
    return "1 slide" if count == 1 else f"{count} slides"
