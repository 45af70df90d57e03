"""One run: the steps, what is watched, what is kept."""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spt_core.devices import gradient_scaler
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.learning.batches import Batch, Plan
from spt_core.learning.cohort import Cohort
from spt_core.learning.finish import bare_model, build_for, finished_model
from spt_core.learning.model_file import load_model, save_model
from spt_core.learning.monitor import (
    COLLAPSED_SPREAD,
    Collapsed,
    Monitor,
    NotLearning,
    Validation,
)
from spt_core.learning.processes import Processes
from spt_core.learning.run_folder import RunFolder
from spt_core.learning.settings import TrainSettings
from spt_core.learning.step import ExactStep

STATE_SECONDS = 2.0
CHUNK_ON_CPU = 64
CHANCE_MARGIN = 0.01
MOST_SKIPPED = 10  # steps in a row that half precision may overflow in


class DivergedError(InputError):
    """The loss became NaN or infinite; the last good model is kept."""


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


class Trainer:
    """The state of one run."""

    def __init__(
        self,
        settings: TrainSettings,
        cohort: Cohort,
        learned_from: Cohort,
        device: torch.device,
        processes: Processes,
        run: RunFolder,
    ) -> None:
        self.settings, self.device, self.processes = settings, device, processes
        self.cohort, self.run = learned_from, run
        self.classes = cohort.classes if settings.supervised else []
        torch.manual_seed(settings.seed)
        encoder, objective = build_for(settings, learned_from)
        self.encoder, self.objective = encoder.to(device), objective.to(device)
        processes.copy_from_first(self.encoder, self.objective)
        weights = [*self.encoder.parameters(), *self.objective.parameters()]
        self.weights = [weight for weight in weights if weight.requires_grad]
        self.optimiser = torch.optim.AdamW(
            self.weights,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=device.type in ("cpu", "cuda"),
        )
        self.scaler = gradient_scaler(device, mixed=settings.mixed_precision)
        self.compute = ExactStep(
            self.encoder,
            self.objective,
            device=device,
            processes=processes,
            micro_batch=settings.micro_batch,
            mixed=settings.mixed_precision,
        )
        batch = int(settings.batch_size or 1) // processes.world * processes.world
        self.plan = Plan(
            learned_from,
            settings.views,
            batch,
            settings.seed,
            device,
            chunk=CHUNK_ON_CPU if device.type == "cpu" else 1024,
            rank=processes.rank,
            world=processes.world,
        )
        self.labels = torch.from_numpy(learned_from.class_numbers()).to(device)
        self.monitor = Monitor(cohort, settings.seed)
        self.steps = int(settings.epochs or 1) * self.plan.steps_per_epoch
        self.step = self.saved_step = 0
        self.ended = 0  # epochs whose end has been written down
        self.best_score, self.best_step = float("-inf"), -1
        self.sums: dict[str, float] = {}
        self.recent: list[float] = []
        self.whole = True  # the weights are those after self.step steps
        self.skipped = 0
        self.said: set[str] = set()

    @cached_property
    def fingerprints(self) -> list[str]:
        return sorted(slide.fingerprint() for slide in self.cohort)

    # the run

    def events(self) -> Events:
        settings, first = self.settings, self.processes.first
        weights = sum(weight.numel() for weight in self.weights)
        yield Note(
            f"{settings.objective} on {len(self.cohort)} slides, model "
            f"{settings.model}, {weights / 1e6:.2f} M weights, batches of "
            f"{self.plan.batch}, {self.steps} steps on {self.device}."
        )
        self._state("running")
        try:
            yield from self._steps()
            result = yield from self._finish()
        except DivergedError as error:
            if first:
                self._save_last_good()
            self._state("failed", str(error))
            raise
        except (GeneratorExit, KeyboardInterrupt):
            if first and self.whole and self.step > self.saved_step:
                self._checkpoint()
            self._state("stopped")
            raise
        except BaseException as error:
            self._state("failed", f"{type(error).__name__}: {error}")
            raise
        self._state("finished")
        return result

    def _steps(self) -> Generator[Any, None, None]:
        per_epoch = self.plan.steps_per_epoch
        started, at_start, told = time.monotonic(), self.step, 0.0
        if self.ended < self.step // per_epoch:  # stopped just before
            yield from self._end_epoch(0.0)
        with self.plan.from_step(self.step, self.steps) as batches:
            for batch in batches:
                labels = None
                if self.objective.needs_labels:
                    labels = self.labels[torch.from_numpy(batch.slides).to(self.device)]
                parts = self._one_step(batch, labels)
                seconds = time.monotonic() - started
                rate = (self.step - at_start) / seconds
                yield Progress(self.step, self.steps, rate, f"loss {parts['loss']:.4f}")
                yield from self._still_chance(parts["loss"])
                if self.step % per_epoch == 0:
                    yield from self._end_epoch(rate * self.plan.batch)
                if self.step - self.saved_step >= self.settings.checkpoint_steps:
                    self._checkpoint()
                if time.monotonic() - told > STATE_SECONDS:
                    told = time.monotonic()
                    self._state("running")

    def _one_step(self, batch: Batch, labels: Tensor | None) -> dict[str, float]:
        scale = self.scaler.get_scale() if self.scaler else 1.0
        parts = self.compute(batch, labels, scale)
        if self.scaler:
            self.scaler.unscale_(self.optimiser)
        gradients = [w.grad for w in self.weights if w.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        numbers = {name: float(value) for name, value in parts.items()}
        numbers["gradient_norm"] = float(norm)
        self._stop_if_diverged(numbers, batch.slides)
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate(self.step)
        self.whole = False
        if self.scaler:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        else:
            self.optimiser.step()
        self.step += 1
        self.objective.after_step(self.encoder, self.step / self.steps)
        self.whole = True
        for name, value in numbers.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        return numbers

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine."""
        warm = max(1, round(self.settings.warm_up * self.steps))
        if step < warm:
            return self.settings.learning_rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.settings.learning_rate * (1 + cos(pi * done)) / 2

    def _end_epoch(self, slides_per_second: float) -> Generator[Any, None, None]:
        """Write the epoch down; then, when nothing can be lost any more, tell of it."""
        epoch = self.step // self.plan.steps_per_epoch
        means = {n: v / self.plan.steps_per_epoch for n, v in self.sums.items()}
        rate = self.learning_rate(self.step - 1)
        told: list[Any] = [
            Epoch(epoch, self.step, means["loss"], rate, slides_per_second)
        ]
        row: dict[str, Any] = {
            "step": self.step,
            "epoch": epoch,
            "learning_rate": rate,
            "slides_per_second": round(slides_per_second, 2),
            **means,
        }
        due = epoch % int(self.settings.validate_epochs or 1) == 0
        if due or self.step == self.steps:
            seen = self._look()
            if seen is not None:
                row.update(
                    spread=seen.spread,
                    effective_rank=seen.effective_rank,
                    knn="" if seen.knn is None else seen.knn,
                )
                told += [seen, *self._judge(seen, means["loss"])]
        if self.processes.first:
            self.run.add_metrics(row)
        self.sums, self.ended = {}, epoch
        yield from told

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
            if "collapsed" not in self.said:
                self.said.add("collapsed")
                yield Collapsed(
                    "All slides have nearly the same embedding (spread "
                    f"{seen.spread:.1e}): the model has collapsed. Try a lower "
                    "learning rate, a larger batch, or another objective."
                )
            return
        # Labelled slides that were trained on with their labels prove nothing.
        fair = seen.knn is not None and (
            self.monitor.held_out or not self.settings.supervised
        )
        score = float(seen.knn or 0) if fair else -loss
        if score >= self.best_score:
            self.best_score, self.best_step = score, self.step
            self._save_model(self.run.best)

    def _still_chance(self, loss: float) -> Iterator[Note]:
        level = self.objective.chance_level(self.plan.batch, self.settings.views.views)
        if level is None or "chance" in self.said:
            return
        self.recent = [*self.recent, loss][-20:]
        warm = self.settings.warm_up * self.steps
        if self.step < max(warm, 20) or len(self.recent) < 20:
            return
        mean = sum(self.recent) / len(self.recent)
        if abs(mean - level) <= CHANCE_MARGIN * level:
            self.said.add("chance")
            yield NotLearning(
                f"Not learning: after {self.step} steps the loss {mean:.3f} is still "
                f"that of chance ({level:.3f}). Try --head batchnorm, another learning "
                "rate, or larger crops."
            )

    def _stop_if_diverged(self, numbers: dict[str, float], slides: Any) -> None:
        if all(isfinite(value) for value in numbers.values()):
            self.skipped = 0
            return
        if isfinite(numbers["loss"]) and self.scaler and self.skipped < MOST_SKIPPED:
            self.skipped += 1  # half precision overflowed: the scaler skips the step
            return
        bad = [
            slide.name
            for slide in (self.cohort[int(index)] for index in slides)
            if not np.isfinite(slide.tokens()).all()
        ]
        why = (
            f"These slides hold NaN or infinity: {', '.join(bad[:10])}. Encode them "
            "again."
            if bad
            else "Try a lower --learning-rate."
        )
        kept = "" if self.best_step < 0 else f" The best model is in {self.run.best}."
        raise DivergedError(
            f"The loss was {numbers['loss']} in step {self.step + 1} of {self.steps}. "
            f"{why} The last good model is in {self.run.last}.{kept}"
        )

    # what is kept

    def _state(self, status: str, message: str = "") -> None:
        if self.processes.first:
            self.run.write_state(status, self.step, self.steps, message)

    def _save_model(self, path: Path) -> None:
        if self.processes.first:
            save_model(path, bare_model(self))

    def _save_last_good(self) -> None:
        self._checkpoint()
        self._save_model(self.run.last)

    def _checkpoint(self) -> None:
        self.saved_step = self.step
        if not self.processes.first:
            return
        self.run.save_checkpoint(
            {
                "step": self.step,
                "ended": self.ended,
                "encoder": self.encoder.state_dict(),
                "objective": self.objective.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "scaler": self.scaler.state_dict() if self.scaler else {},
                "best": (self.best_score, self.best_step),
                "sums": self.sums,
                "recent": self.recent,
                "said": sorted(self.said),
            }
        )

    def restore(self) -> None:
        """Go back to the last checkpoint; without one, to the beginning."""
        saved = self.run.load_checkpoint(self.device)
        if saved is not None:
            self.encoder.load_state_dict(saved["encoder"])
            self.objective.load_state_dict(saved["objective"])
            self.optimiser.load_state_dict(saved["optimiser"])
            if self.scaler:
                self.scaler.load_state_dict(saved["scaler"])
            self.step = self.saved_step = saved["step"]
            self.ended = saved["ended"]
            self.best_score, self.best_step = saved["best"]
            self.sums, self.recent = saved["sums"], saved["recent"]
            self.said = set(saved["said"])
        if self.processes.first:
            self.run.drop_metrics_after(self.step)

    def _finish(self) -> Events:
        """Write both models with all that belongs to them."""
        metrics: dict[str, float | None] = {}
        if self.processes.first:
            self._checkpoint()
            finished = yield from finished_model(self, bare_model(self))
            save_model(self.run.last, finished)
            metrics = finished.card["metrics"]
            if self.best_step in (-1, self.steps):
                save_model(self.run.best, finished)
            else:
                best = load_model(self.run.best, self.device)
                finished = yield from finished_model(self, best)
                save_model(self.run.best, finished)
                metrics = finished.card["metrics"]
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
