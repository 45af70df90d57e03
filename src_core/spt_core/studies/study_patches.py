"""The goal patches: a patch encoder of one's own, trained on a study's slides."""

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.files import written_whole
from spt_core.patches.folder import find_slides
from spt_core.patches.training import resume_patches, train_patches
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import StudySettings
from spt_core.training.run_folder import RunFolder

# Number of the run, of its slides, and of its steps.
Trained = tuple[int, int, int]


def train_encoder(
    settings: StudySettings, folder: StudyFolder
) -> Generator[Any, None, Trained]:
    """Train one, or go on with it; slides that come later are for the next run."""
    slides = find_slides([Path(str(settings.slides))])
    number, sources = _begun(folder, settings, slides)
    path = folder.run(number) / "patches"
    RunFolder(path).take_key(folder.path)
    if len(slides) > len(sources):
        yield Note(
            f"{len(slides) - len(sources)} slides came after run {number} was begun: "
            "they join the next one."
        )
    if (path / "checkpoint.pt").exists():
        result = yield from resume_patches(path)
    else:
        (path / "config.yaml").unlink(missing_ok=True)
        result = yield from train_patches(
            PatchTrainSettings(
                sources=tuple(sources),
                method=settings.patch_method,
                out=str(path),
                tables=(settings.labels,) if settings.labels else (),
                arch=settings.patch_arch,
                slide_mpp=settings.encode.slide_mpp,
                channels=settings.encode.channels,
                seed=settings.seed,
                device=settings.device,
                learning_rate=settings.learning_rate,
                **_given(settings),
            )
        )
    with written_whole(folder.encoder) as temporary:
        shutil.copyfile(result.encoder, temporary)
    _write(folder, number, sources, settings, "finished")
    return number, len(sources), result.steps


def _given(settings: StudySettings) -> dict[str, Any]:
    given = {
        "init": settings.patch_start,
        "epochs": settings.patch_epochs,
        "batch_size": settings.batch_size,
    }
    return {name: value for name, value in given.items() if value is not None}


def _begun(
    folder: StudyFolder, settings: StudySettings, slides: list[Path]
) -> tuple[int, list[str]]:
    """The run to go on with, or a new one, and its slides."""
    numbers = (
        [int(path.name) for path in folder.runs.iterdir() if path.name.isdigit()]
        if folder.runs.is_dir()
        else []
    )
    latest = max(numbers, default=0)
    file = folder.run(latest) / "patches.json"
    wanted = [str(path.absolute()) for path in slides]
    if latest and file.exists():
        try:
            plain = json.loads(file.read_text(encoding="utf-8"))
            same = plain["recipe"] == settings.recipe()
            begun, status = list(plain["slides"]), plain["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} cannot be read ({error}).") from error
        if same and (status == "begun" or begun == wanted):
            return latest, begun
    _write(folder, latest + 1, wanted, settings, "begun")
    return latest + 1, wanted


def _write(
    folder: StudyFolder,
    number: int,
    slides: list[str],
    settings: StudySettings,
    status: str,
) -> None:
    with written_whole(folder.run(number) / "patches.json") as temporary:
        plain = {"recipe": settings.recipe(), "slides": slides, "status": status}
        temporary.write_text(json.dumps(plain, indent=1), encoding="utf-8")
