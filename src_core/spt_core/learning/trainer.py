"""Training a slide model: what is watched, what is kept."""

import hashlib
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spt_core.events import Note
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.batches import Batch, Plan
from spt_core.learning.cohort import Cohort
from spt_core.learning.finish import (
    bare_model,
    build_for,
    earlier_stages,
    finished_model,
)
from spt_core.learning.model_file import load_model, save_model
from spt_core.learning.monitor import COLLAPSED_SPREAD, Monitor, Validation
from spt_core.learning.settings import TrainSettings
from spt_core.training.loop import DivergedError, Loop
from spt_core.training.processes import Processes
from spt_core.training.run_folder import RunFolder
from spt_core.training.step import ExactStep

__all__ = ["DivergedError", "Epoch", "Events", "TrainResult", "Trainer"]

CHUNK_ON_CPU = 64


@dataclass(frozen=True)
class Epoch:
    """One epoch is done; the numbers are its means."""

    epoch: int
    step: int
    loss: float
    learning_rate: float
    slides_per_second: float


@dataclass(frozen=True)
class TrainResult:
    """Where the models are, and how good."""

    run: Path
    best: Path
    last: Path
    steps: int
    best_step: int
    metrics: dict[str, float | None]


Events = Generator[Any, None, TrainResult]


class Trainer(Loop):
    """The state of one run."""

    encoder: Aggregator

    def __init__(
        self,
        settings: TrainSettings,
        cohort: Cohort,
        learned_from: Cohort,
        device: torch.device,
        processes: Processes,
        run: RunFolder,
    ) -> None:
        self.settings, self.cohort = settings, learned_from
        self.classes = cohort.classes if settings.supervised else []
        torch.manual_seed(settings.seed)
        encoder, objective = build_for(settings, learned_from)
        # Only the first process writes: cards, and the key of the patients.
        self.earlier = earlier_stages(settings, run) if processes.first else ()
        encoder, objective = encoder.to(device), objective.to(device)
        compute = ExactStep(
            encoder,
            objective,
            device=device,
            processes=processes,
            micro_batch=settings.micro_batch,
            mixed=settings.mixed_precision,
        )
        batch = int(settings.batch_size or 1) // processes.world * processes.world
        plan = Plan(
            learned_from,
            settings.views,
            batch,
            settings.seed,
            device,
            chunk=CHUNK_ON_CPU if device.type == "cpu" else 1024,
            rank=processes.rank,
            world=processes.world,
        )
        views = settings.views.views
        super().__init__(settings, encoder, objective, plan, compute, run, views=views)
        self.labels = torch.from_numpy(learned_from.class_numbers()).to(device)
        self.monitor = Monitor(cohort, settings.seed)

    @cached_property
    def fingerprints(self) -> list[str]:
        return sorted(slide.fingerprint() for slide in self.cohort)

    @cached_property
    def _material(self) -> str:
        # Not their names: a renamed slide that keeps its place changes no step.
        lines = [f"{len(slide)} {slide.fingerprint()}\n" for slide in self.cohort]
        if self.settings.supervised:
            labels = [*self.classes, *map(str, self.cohort.class_numbers())]
            lines += [f"{label}\n" for label in labels]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def material(self) -> str:
        return self._material

    def opening(self) -> str:
        settings = self.settings
        weights = sum(weight.numel() for weight in self.weights)
        return (
            f"{settings.objective} on {len(self.cohort)} slides, model "
            f"{settings.model}, {weights / 1e6:.2f} M weights, batches of "
            f"{self.plan.batch}, {self.steps} steps on {self.device}."
        )

    def labels_of(self, batch: Batch) -> Tensor | None:
        if not self.objective.needs_labels:
            return None
        return self.labels[torch.from_numpy(batch.slides).to(self.device)]

    def end_of_epoch(
        self, epoch: int, means: dict[str, float], per_second: float
    ) -> tuple[dict[str, Any], list[Any]]:
        rate = self.learning_rate(self.step - 1)
        told: list[Any] = [Epoch(epoch, self.step, means["loss"], rate, per_second)]
        row: dict[str, Any] = {"slides_per_second": round(per_second, 2)}
        if self.due(epoch):
            seen = self._look()
            if seen is not None:
                row.update(
                    spread=seen.spread,
                    effective_rank=seen.effective_rank,
                    knn="" if seen.knn is None else seen.knn,
                )
                told += [seen, *self._judge(seen, means["loss"])]
        return row, told

    def _look(self) -> Validation | None:
        seen = None
        if self.processes.first:
            self.encoder.eval()
            seen = self.monitor.look(self.encoder, self.device, self.step)
            self.encoder.train()
        self.processes.wait()
        return seen

    def _judge(self, seen: Validation, loss: float) -> Iterator[Note]:
        """Keep the model if it is the best; say so if it has collapsed."""
        if seen.spread < COLLAPSED_SPREAD and len(self.monitor.chosen) > 1:
            yield from self.collapsed(seen.spread, "slides")
            return
        # Labelled slides that were trained on with their labels prove nothing.
        fair = seen.knn is not None and (
            self.monitor.held_out or not self.settings.supervised
        )
        score = float(seen.knn or 0) if fair else -loss
        if score >= self.best_score:
            self.best_score, self.best_step = score, self.step
            self._save_model(self.run.best)

    def why_diverged(self, batch: Batch) -> str:
        bad = [
            slide.name
            for slide in (self.cohort[int(index)] for index in batch.slides)
            if not np.isfinite(slide.tokens()).all()
        ]
        why = (
            f"These slides hold NaN or infinity: {', '.join(bad[:10])}. Encode them "
            "again."
            if bad
            else "Try a lower --learning-rate."
        )
        kept = "" if self.best_step < 0 else f" The best model is in {self.run.best}."
        return f"{why} The last good model is in {self.run.last}.{kept}"

    # what is kept

    def _save_model(self, path: Path) -> None:
        if self.processes.first:
            save_model(path, bare_model(self))

    def save_last_good(self) -> None:
        self._save_model(self.run.last)

    def finish(self) -> Events:
        """Write both models with all that belongs to them."""
        metrics: dict[str, float | None] = {}
        if self.processes.first:
            self.checkpoint()
            finished = yield from finished_model(self, bare_model(self))
            save_model(self.run.last, finished)
            metrics = asdict(finished.card.metrics)
            if self.best_step in (-1, self.steps):
                save_model(self.run.best, finished)
            else:
                best = load_model(self.run.best, self.device)
                finished = yield from finished_model(self, best)
                save_model(self.run.best, finished)
                metrics = asdict(finished.card.metrics)
            self.run.draw_curve()
        self.processes.wait()
        return TrainResult(
            self.run.path,
            self.run.best,
            self.run.last,
            self.steps,
            self.best_step if self.best_step >= 0 else self.steps,
            metrics,
        )
