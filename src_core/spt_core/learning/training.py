"""Training: from a folder of features to a model file, as a generator of events."""

from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.devices import choose_device, useful_threads
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.learning.bags import with_whole_bags
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.finish import as_chosen, bare_model, finished_model
from spt_core.learning.model_card import FOUND, SCANNER
from spt_core.learning.model_file import load_model, save_model
from spt_core.learning.settings import TrainSettings
from spt_core.learning.sites import (
    settle_sites,
    site_table,
    site_wins,
    with_found_sites,
)
from spt_core.learning.task import (
    BY_LOSS,
    BY_VALIDATION,
    BY_VALIDATION_LOSS,
    Epoch,
    SlideTrainingTask,
)
from spt_core.tokens import check_labels, read_labels
from spt_core.training.alarms import DivergedError
from spt_core.training.processes import joined, own_device
from spt_core.training.run import TrainingRun
from spt_core.training.run_folder import RunFolder

GUESSED = {
    FOUND: "Sites found among the slides' mean tokens",
    SCANNER: "Sites taken from what the files say of their scanners",
}

__all__ = ["DivergedError", "Epoch", "TrainResult", "resume", "train"]


@dataclass(frozen=True)
class TrainResult:
    """Where the models are, and how good."""

    run: Path
    best: Path
    last: Path
    steps: int
    best_step: int
    chosen_by: str
    metrics: dict[str, float | None]


Events = Generator[Any, None, TrainResult]


def train(
    settings: TrainSettings,
    *,
    cohort: Cohort | None = None,
    resume: bool = False,
    end_early: Callable[[], bool] | None = None,
) -> Events:
    """Train one model.

    Closing the generator stops at the next step and keeps all that is done; so does
    Ctrl-C. ``resume`` goes on with the run in ``settings.out``.

    Parameters
    ----------
    cohort
        Already open slides to train on (a fold, say), instead of the folder's.
    end_early
        Asked after each step: True ends the run there, with its models written.
    """
    device = own_device(choose_device(settings.device))
    with joined(device) as processes, ExitStack() as held:
        folder = RunFolder(Path(settings.out))
        if processes.first:
            held.enter_context(folder.held())
        if cohort is None:
            cohort = _open(settings)
        yield from cohort.notes()
        start = load_model(settings.init).standardiser if settings.init else None
        cohort = with_found_sites(cohort, settings, start.card if start else None)
        if settings.sites in GUESSED:
            yield Note(f"{GUESSED[settings.sites]}:\n{site_table(cohort)}")
        learned_from = _training_part(cohort, settings)
        settled = settle_sites(settings, cohort, learned_from, start, resumed=resume)
        settings = settled.settings
        cohort, learned_from = settled.cohort, settled.learned_from
        for note in settled.notes:
            yield Note(note)
        settings = settings.resolved(
            len(learned_from),
            on_cpu=device.type == "cpu",
            site_counts=np.bincount(learned_from.site_numbers() + 1)[1:].tolist(),
        )
        if int(settings.batch_size or 1) < processes.world:
            raise InputError(
                f"A batch of {settings.batch_size} slides cannot be shared by "
                f"{processes.world} processes. Start fewer."
            )
        if not resume:
            settings, said = with_whole_bags(settings, learned_from, device)
            if said:
                yield Note(said)
            if processes.first:
                folder.begin(settings)
        task = SlideTrainingTask(
            settings,
            cohort,
            learned_from,
            device,
            processes,
            folder,
            settled.standardiser,
        )
        run = TrainingRun(task, settings, folder)
        if end_early is not None:
            run.end_early = end_early
        if resume:
            run.restore()
        yield Note(_opening(task, run))
        yield Note(_choice(task))
        weights = sum(weight.numel() for weight in task.encoder.parameters())
        with useful_threads(device, weights), run.recorded():
            yield from run.events()
            result = yield from _finish(task, run)
        return result


def resume(
    path: str | Path,
    *,
    cohort: Cohort | None = None,
    end_early: Callable[[], bool] | None = None,
    **changes: Any,
) -> Events:
    """Go on with the run in a folder, up to its end.

    A run that was begun on slides that were already open needs them again.
    """
    settings = TrainSettings.read(RunFolder(Path(path)).config)
    settings = replace(settings, out=str(path), **changes)
    return (yield from train(settings, cohort=cohort, resume=True, end_early=end_early))


def _opening(task: SlideTrainingTask, run: TrainingRun) -> str:
    settings = task.settings
    weights = sum(weight.numel() for weight in run.weights)
    return (
        f"{settings.objective} on {len(task.cohort)} slides, model {settings.model}, "
        f"{weights / 1e6:.2f} M weights, batches of {task.plan.batch}, {task.steps} "
        f"steps ({settings.epochs} epochs of {task.plan.steps_per_epoch}) on "
        f"{task.device}."
    )


def _choice(task: SlideTrainingTask) -> str:
    if task.chosen_by in (BY_VALIDATION, BY_VALIDATION_LOSS):
        slides = len(task.choice_fingerprints)
        return f"The best model is chosen by {task.chosen_by} ({slides} slides)."
    if task.chosen_by == BY_LOSS:
        return (
            "There is no validation split: the best model is chosen by the training "
            "loss."
        )
    return (
        "There is no validation split with labels: the model of the last epoch is kept."
    )


def _finish(task: SlideTrainingTask, run: TrainingRun) -> Events:
    """Write both models with all that belongs to them."""
    folder = run.folder
    metrics: dict[str, float | None] = {}
    if run.processes.first:
        run.checkpoint()
        finished = yield from finished_model(task, bare_model(task, run.step))
        save_model(folder.last, finished)
        if run.best_step not in (-1, run.step):
            best = load_model(folder.best, task.device)
            finished = yield from finished_model(task, best)
        finished = as_chosen(task, finished)
        save_model(folder.best, finished)
        metrics = asdict(finished.card.metrics)
        folder.draw_curve()
        metrics_of_best = finished.card.metrics
        said = site_wins(metrics_of_best, task.settings, task.monitor.asked_of)
        if said:
            yield Note(said)
    run.processes.wait()
    return TrainResult(
        folder.path,
        folder.best,
        folder.last,
        run.step,
        run.best_step if run.best_step >= 0 else run.step,
        task.chosen_by,
        metrics,
    )


def _open(settings: TrainSettings) -> Cohort:
    labels = None
    if settings.labels:
        labels = read_labels(
            settings.labels,
            slides=settings.slide_table,
            patients_from=settings.patient_from,
        )
    cohort = open_cohort(
        settings.features,
        labels,
        encoder=settings.encoder,
        mpp=settings.mpp,
        patch_size=settings.patch_size,
    )
    if labels is None:
        return cohort
    names = cohort.names
    remarks = check_labels(labels, names, supervised=settings.supervised)
    return replace(cohort, remarks=(*cohort.remarks, *remarks))


def _training_part(cohort: Cohort, settings: TrainSettings) -> Cohort:
    """The slides that may be learned from: not those kept for validation or test."""
    part = cohort.subset(
        index
        for index, slide in enumerate(cohort)
        if slide.split in (None, "train") and (slide.label or not settings.supervised)
    )
    least = 1 if settings.objective == "classify" else 2
    if len(part) < least:
        raise InputError(
            f"{settings.objective} needs at least {least} slides to learn from; "
            f"{len(part)} of {len(cohort)} are left."
        )
    if settings.supervised and part.classes != cohort.classes:
        missing = sorted(set(cohort.classes) - set(part.classes))
        raise InputError(
            f"No slide of the training split has the label {', '.join(missing)}."
        )
    return part
