"""The goal patches: a patch encoder of one's own, trained on a study's slides."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.patches.encoder_file import ENCODER_FILE
from spt_core.patches.folder import find_slides
from spt_core.patches.training import resume_patches, train_patches
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.plain_data import json_of
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import StudySettings
from spt_core.training.run_folder import RunFolder

PATCHES_FILE = "patches.json"


@dataclass(frozen=True)
class PatchRun:
    """A run, its slides, and what to say of the choice."""

    path: Path
    slides: tuple[str, ...]
    status: str = "begun"
    notes: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def training(self) -> Path:
        return self.path / "patches"

    @property
    def encoder(self) -> Path:
        return self.training / ENCODER_FILE

    def write(self, settings: StudySettings, status: str) -> None:
        plain = {
            "recipe": settings.recipe(),
            "slides": list(self.slides),
            "status": status,
        }
        with written_whole(self.path / PATCHES_FILE) as temporary:
            temporary.write_text(json.dumps(plain, indent=1), encoding="utf-8")


def choose_patch_run(
    folder: StudyFolder, settings: StudySettings, *, begins: bool = True
) -> PatchRun:
    """Go on with the latest run where it is the same, or begin another.

    Without ``begins`` another is refused.
    """
    there = find_slides([Path(str(settings.slides))])
    wanted = tuple(str(path.absolute()) for path in there)
    latest = max(folder.run_numbers(), default=0)
    notes = []
    if latest and (folder.run(latest) / PATCHES_FILE).exists():
        recipe, begun, status = _read(folder.run(latest) / PATCHES_FILE)
        gone, added = set(begun) - set(wanted), set(wanted) - set(begun)
        same = recipe == settings.recipe() and not gone
        if same and (status != "finished" or not added):
            if added:
                notes.append(
                    f"{_slides(len(added))} came after run {latest} was begun: they "
                    "join the next one."
                )
            return PatchRun(folder.run(latest), begun, status, tuple(notes))
        if status != "finished":
            why = f"slides of before are gone: {len(gone)}" if gone else ""
            notes.append(
                f"Run {latest} was not finished and is left as it is: "
                f"{why or 'the settings are others'}."
            )
    if not begins:
        raise InputError(
            f"The encoder of run {latest} cannot be handed over: its slides or the "
            "settings are others. Put them back as they were, or discard the run."
        )
    run = PatchRun(folder.run(latest + 1), wanted, notes=tuple(notes))
    run.write(settings, "begun")
    return run


def _read(file: Path) -> tuple[str, tuple[str, ...], str]:
    """The recipe, the slides and the status of a run."""
    try:
        plain = json_of(file)
        slides = tuple(str(slide) for slide in plain["slides"])
        return str(plain["recipe"]), slides, str(plain["status"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}). Remove its folder; the run is done anew."
        ) from error


def train_encoder(
    settings: StudySettings,
    folder: StudyFolder,
    run: PatchRun,
    end_early: Callable[[], bool],
) -> Generator[Any, None, int]:
    """Train one, or go on with it; how many steps it took."""
    training = RunFolder(run.training)
    training.take_key(folder.path)
    if training.is_begun:
        result = yield from resume_patches(run.training, end_early=end_early)
        return result.steps
    # Killed before its first checkpoint.
    training.config.unlink(missing_ok=True)
    training.metrics.unlink(missing_ok=True)
    result = yield from train_patches(
        PatchTrainSettings(
            sources=run.slides,
            method=settings.patch_method,
            out=str(run.training),
            tables=(settings.labels,) if settings.labels else (),
            arch=settings.patch_arch,
            slide_mpp=settings.encode.slide_mpp,
            channels=settings.encode.channels,
            seed=settings.seed,
            device=settings.device,
            learning_rate=settings.learning_rate,
            **_given(settings),
        ),
        end_early=end_early,
    )
    return result.steps


def _given(settings: StudySettings) -> dict[str, Any]:
    given = {
        "init": settings.patch_start,
        "epochs": settings.patch_epochs,
        "batch_size": settings.batch_size,
    }
    return {name: value for name, value in given.items() if value is not None}


def _slides(count: int) -> str:
    return "1 slide" if count == 1 else f"{count} slides"
