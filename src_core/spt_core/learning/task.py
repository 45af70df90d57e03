"""Training of slide models as a task: what is trained, looked at and saved."""

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from spt_core.learning.batches import SlidePlan, graph_floats
from spt_core.learning.cohort import Cohort
from spt_core.learning.finish import (
    LAST,
    as_chosen,
    bare_model,
    build_for,
    earlier_stages,
)
from spt_core.learning.growth import Growth
from spt_core.learning.model_card import SITE
from spt_core.learning.model_file import save_model
from spt_core.learning.monitor import SlideMonitor
from spt_core.learning.settings import BASELINES, TrainSettings
from spt_core.learning.standardising import Standardiser
from spt_core.training.batch import BatchPlan, ViewBatch
from spt_core.training.objectives import Classify, SimCLR
from spt_core.training.objectives.simclr import level_of_chance
from spt_core.training.processes import Processes
from spt_core.training.run_folder import RunFolder
from spt_core.training.signals import Validation
from spt_core.training.step import ExactStep

CHUNK_ON_CPU = 64
CHUNK_ON_GPU = 1024
# Features of encoders are some tens; half precision ends at 65,504.
LARGEST = 1e6
# How the epoch of the best model is chosen, besides LAST.
BY_VALIDATION = "kNN of the validation split"
BY_VALIDATION_LOSS = "the loss on the validation split"
BY_LOSS = "the training loss"


@dataclass(frozen=True)
class Epoch:
    """One epoch is done; the numbers are its means."""

    epoch: int
    step: int
    loss: float
    learning_rate: float
    slides_per_second: float


class SlideTrainingTask:
    """
    Parameters
    ----------
    cohort
        All slides, those to validate on included.
    learned_from
        Those to learn from; ``self.cohort`` is these.
    standardiser
        By which their tokens are standardised, for the model file.
    """

    items = "slides"

    def __init__(
        self,
        settings: TrainSettings,
        cohort: Cohort,
        learned_from: Cohort,
        device: torch.device,
        processes: Processes,
        run: RunFolder,
        standardiser: Standardiser | None = None,
    ) -> None:
        self.standardiser = standardiser or Standardiser()
        self.settings, self.cohort, self.run = settings, learned_from, run
        self.device, self.processes = device, processes
        self.classes = cohort.classes if settings.supervised else []
        torch.manual_seed(settings.seed)
        encoder, objective = build_for(settings, learned_from)
        objective.varies = settings.by_site
        # Only the first process writes: cards, and the key of the patients.
        self.earlier = earlier_stages(settings, run) if processes.first else ()
        self.encoder, self.objective = encoder.to(device), objective.to(device)
        self.compute = ExactStep(
            self.encoder,
            self.objective,
            device=device,
            processes=processes,
            graph_floats=partial(graph_floats, self.encoder),
            micro_batch=settings.micro_batch,
            mixed=settings.mixed_precision,
        )
        batch = int(settings.batch_size or 1) // processes.world * processes.world
        plan = SlidePlan(
            learned_from,
            settings.views,
            batch,
            settings.seed,
            device,
            chunk=self._chunk(),
            rank=processes.rank,
            world=processes.world,
            by_site=settings.site_batches,
        )
        self.plan: BatchPlan = plan
        self.steps = int(settings.epochs or 1) * plan.steps_per_epoch
        self.labels: torch.Tensor | None = None
        if self.objective.needs_labels:
            numbers = learned_from.class_numbers()
            self.labels = torch.from_numpy(numbers).to(device)
        elif isinstance(self.objective, SimCLR):
            self.labels = kept_apart(settings, learned_from)
            if self.labels is not None:
                self.objective.chance = _level_of_chance(plan, self.labels)
                self.labels = self.labels.to(device)
        self.monitor = SlideMonitor(cohort, settings.seed)
        self.growth = Growth(run.path, self.monitor, self.steps)
        self.chosen_by = _chosen_by(settings, self.monitor)

    def _chunk(self) -> int:
        """Views in one tensor."""
        if self.encoder.has_dropout:
            return 1  # what it draws must not depend on padding
        if self.encoder.name in BASELINES and not self.settings.views.crop:
            return 1  # whole slides are long, and of very different length
        return CHUNK_ON_CPU if self.device.type == "cpu" else CHUNK_ON_GPU

    @cached_property
    def fingerprints(self) -> list[str]:
        return sorted(slide.fingerprint() for slide in self.cohort)

    @cached_property
    def data_hash(self) -> str:
        # Not their names: a renamed slide that keeps its place changes no step.
        lines = [f"{len(slide)} {slide.fingerprint()}\n" for slide in self.cohort]
        if self.settings.supervised:
            labels = [*self.classes, *map(str, self.cohort.class_numbers())]
            lines += [f"{label}\n" for label in labels]
        if self.standardiser.kind == SITE or self.settings.by_site:
            lines += [f"{slide.site}\n" for slide in self.cohort]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def watched(self) -> int:
        return len(self.monitor.chosen)

    def validate(self, step: int) -> Validation:
        was_training = self.encoder.training  # not where it is frozen
        self.encoder.eval()
        classifier = None
        if isinstance(self.objective, Classify):
            classifier = self.objective.classifier
        seen = self.monitor.validate(self.encoder, self.device, step, classifier)
        self.encoder.train(was_training)
        self.growth.take(step)
        return seen

    @cached_property
    def choice_fingerprints(self) -> frozenset[str]:
        """The slides whose labels choose the epoch."""
        if self.chosen_by not in (BY_VALIDATION, BY_VALIDATION_LOSS):
            return frozenset()
        asked = self.monitor.chosen[self.monitor.asked]
        slides = self.monitor.cohort
        return frozenset(slides[int(index)].fingerprint() for index in asked)

    def score(self, seen: Validation, loss: float) -> float | None:
        """How good an epoch is; None keeps the last."""
        if self.chosen_by == BY_VALIDATION:
            return seen.knn
        if self.chosen_by == BY_VALIDATION_LOSS:
            return None if seen.loss is None else -seen.loss
        return -loss if self.chosen_by == BY_LOSS else None

    def save(self, path: Path, step: int) -> None:
        model = bare_model(self, step)
        save_model(path, as_chosen(self, model) if path == self.run.best else model)

    def epoch_event(
        self, epoch: int, step: int, loss: float, rate: float, per_second: float
    ) -> Epoch:
        return Epoch(epoch, step, loss, rate, per_second)

    def why_diverged(self, batch: ViewBatch) -> str:
        bad = [
            slide.name
            for slide in (self.cohort[int(index)] for index in batch.items)
            if not (np.abs(slide.tokens()) < LARGEST).all()
        ]
        if not bad:
            return "Try a lower --learning-rate."
        return (
            "The features of these slides are larger than any encoder's: "
            f"{', '.join(bad[:10])}. Encode them again."
        )


def kept_apart(settings: TrainSettings, cohort: Cohort) -> torch.Tensor | None:
    """For each slide the numbers of its patient and its site, (slides, 2).

    What SimCLR is told: slides of one patient are no negatives, and with
    ``--negatives site`` only slides of one site are. None where all are.
    """
    number: dict[str, int] = {}
    patients = [number.setdefault(name, len(number)) for name in cohort.patients()]
    sites = cohort.site_numbers()
    if settings.negatives != SITE:
        if len(number) == len(cohort):
            return None
        sites = np.zeros_like(sites)
    return torch.from_numpy(np.stack([np.array(patients), sites], axis=1))


def _level_of_chance(plan: SlidePlan, groups: torch.Tensor) -> float:
    """The mean over an epoch's batches, which differ in whom they keep apart."""
    batches = (groups[plan.slides(step)] for step in range(plan.steps_per_epoch))
    return float(np.mean([level_of_chance(one, plan.views) for one in batches]))


def _chosen_by(settings: TrainSettings, monitor: SlideMonitor) -> str:
    """Without a validation split labels choose nothing: they may be judged by later."""
    if monitor.held_out and monitor.has_labels:
        is_classified = settings.objective == "classify"
        return BY_VALIDATION_LOSS if is_classified else BY_VALIDATION
    return BY_LOSS if settings.supervised else LAST
