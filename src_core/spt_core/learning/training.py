"""Training: from a folder of features to a model file, as a generator of events."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from spt_core.devices import choose_device, useful_threads
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.settings import TrainSettings
from spt_core.learning.trainer import (
    DivergedError,
    Epoch,
    Events,
    Trainer,
    TrainResult,
)
from spt_core.tokens import check_labels, read_labels
from spt_core.training.processes import joined, own_device
from spt_core.training.run_folder import RunFolder

__all__ = ["DivergedError", "Epoch", "TrainResult", "resume", "train"]


def train(
    settings: TrainSettings, *, cohort: Cohort | None = None, resume: bool = False
) -> Events:
    """Train one model.

    Closing the generator stops at the next step and keeps all that is done; so does
    Ctrl-C. ``resume`` goes on with the run in ``settings.out``.

    Parameters
    ----------
    cohort
        Already open slides to train on (a fold, say), instead of the folder's.
    """
    device = own_device(choose_device(settings.device))
    with joined(device) as processes:
        yield from []  # so that even an empty run is a generator
        run = RunFolder(Path(settings.out))
        if cohort is None:
            cohort = _open(settings)
        for remark in cohort.remarks:
            yield Note(remark)
        learned_from = _training_part(cohort, settings)
        settings = settings.resolved(len(learned_from), on_cpu=device.type == "cpu")
        if int(settings.batch_size or 1) < processes.world:
            raise InputError(
                f"A batch of {settings.batch_size} slides cannot be shared by "
                f"{processes.world} processes. Start fewer."
            )
        if not resume and processes.first:
            run.begin(settings)
        trainer = Trainer(settings, cohort, learned_from, device, processes, run)
        if resume:
            trainer.restore()
        weights = sum(weight.numel() for weight in trainer.encoder.parameters())
        with useful_threads(device, weights):
            return (yield from trainer.events())


def resume(path: str | Path, **changes: Any) -> Events:
    """Go on with the run in a folder, up to its end."""
    settings = TrainSettings.read(RunFolder(Path(path)).config)
    settings = replace(settings, out=str(path), **changes)
    return (yield from train(settings, resume=True))


def _open(settings: TrainSettings) -> Cohort:
    labels = read_labels(settings.labels) if settings.labels else None
    cohort = open_cohort(
        settings.features,
        labels,
        encoder=settings.encoder,
        mpp=settings.mpp,
        patch_size=settings.patch_size,
    )
    if labels is None:
        return cohort
    names = [slide.name for slide in cohort]
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
