"""The loop that every training runs in: steps, schedule, checkpoints, what is told.

What is learned from, how the model is looked at and what is kept of it are a trainer's:
of slides in :mod:`spt_core.learning.trainer`, of patches in
:mod:`spt_core.patches.training.trainer`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from math import cos, isfinite, pi
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from spt_core.devices import gradient_scaler
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.learning.batches import Batch
from spt_core.learning.monitor import COLLAPSED_SPREAD, Collapsed, NotLearning
from spt_core.training.objectives import Objective
from spt_core.training.processes import Processes
from spt_core.training.run_folder import RunFolder
from spt_core.training.step import ExactStep

STATE_SECONDS = 2.0
CHANCE_MARGIN = 0.01
MOST_SKIPPED = 10  # steps in a row that half precision may overflow in


class DivergedError(InputError):
    """The loss became NaN or infinite; the last good model is kept."""


class LoopSettings(Protocol):
    """What the loop needs to know of a run's settings."""

    @property
    def epochs(self) -> int | None: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def warm_up(self) -> float: ...
    @property
    def mixed_precision(self) -> bool: ...
    @property
    def checkpoint_steps(self) -> int: ...
    @property
    def validate_epochs(self) -> int | None: ...


class BatchPlan(Protocol):
    """Which batch makes which step."""

    @property
    def batch(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...
    def from_step(
        self, first: int, last: int
    ) -> AbstractContextManager[Iterator[Batch]]: ...


class Loop(ABC):
    """The state of one run."""

    def __init__(
        self,
        settings: LoopSettings,
        encoder: nn.Module,
        objective: Objective,
        plan: BatchPlan,
        compute: ExactStep,
        run: RunFolder,
        *,
        views: int,
    ) -> None:
        self._asked, self.plan, self.compute, self.run = settings, plan, compute, run
        self.encoder, self.objective, self.view_count = encoder, objective, views
        self.device: torch.device = compute.device
        self.processes: Processes = compute.processes
        self.processes.copy_from_first(encoder, objective)
        weights = [*encoder.parameters(), *objective.parameters()]
        self.weights = [weight for weight in weights if weight.requires_grad]
        self.optimiser = torch.optim.AdamW(
            self.weights,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self.scaler = gradient_scaler(self.device, mixed=settings.mixed_precision)
        if self.scaler:  # it has no scale until it is first asked to scale something
            self.scaler.scale(torch.zeros((), device=self.device))
        self.steps = int(settings.epochs or 1) * plan.steps_per_epoch
        self.step = self.saved_step = 0
        self.ended = 0  # epochs whose end has been written down
        self.best_score, self.best_step = float("-inf"), -1
        self.sums: dict[str, float] = {}
        self.recent: list[float] = []
        self.whole = True  # the weights are those after self.step steps
        self.skipped = 0
        self.said: set[str] = set()

    # what a trainer adds

    @abstractmethod
    def opening(self) -> str:
        """What is about to be done, for a person."""

    @abstractmethod
    def labels_of(self, batch: Batch) -> Tensor | None:
        """What the objective is told of a batch beside its embeddings."""

    @abstractmethod
    def end_of_epoch(
        self, epoch: int, means: dict[str, float], per_second: float
    ) -> tuple[dict[str, Any], list[Any]]:
        """More for the epoch's row in metrics.csv, and the events to tell."""

    @abstractmethod
    def why_diverged(self, batch: Batch) -> str:
        """What may be wrong, and what to do about it."""

    @abstractmethod
    def save_last_good(self) -> None:
        """Keep the model as it was before the step that went wrong."""

    @abstractmethod
    def finish(self) -> Generator[Any, None, Any]:
        """Write all that the run leaves; give its result."""

    def material(self) -> str:
        """A hash of what is learned from, in its order; empty where none is kept."""
        return ""

    # the run

    def events(self) -> Generator[Any, None, Any]:
        yield Note(self.opening())
        self._state("running")
        try:
            yield from self._steps()
            result = yield from self.finish()
        except DivergedError as error:
            if self.processes.first:
                self.checkpoint()
                self.save_last_good()
            self._state("failed", str(error))
            raise
        except (GeneratorExit, KeyboardInterrupt):
            if self.processes.first and self.whole and self.step > self.saved_step:
                self.checkpoint()
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
                parts = self._one_step(batch)
                seconds = time.monotonic() - started
                rate = (self.step - at_start) / seconds
                yield Progress(self.step, self.steps, rate, f"loss {parts['loss']:.4f}")
                yield from self._still_chance(parts["loss"])
                if self.step % per_epoch == 0:
                    yield from self._end_epoch(rate * self.plan.batch)
                if self.step - self.saved_step >= self._asked.checkpoint_steps:
                    self.checkpoint()
                if time.monotonic() - told > STATE_SECONDS:
                    told = time.monotonic()
                    self._state("running")

    def _one_step(self, batch: Batch) -> dict[str, float]:
        scale = self.scaler.get_scale() if self.scaler else 1.0
        parts = self.compute(batch, self.labels_of(batch), scale)
        if self.scaler:
            self.scaler.unscale_(self.optimiser)
        gradients = [w.grad for w in self.weights if w.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        numbers = {name: float(value) for name, value in parts.items()}
        numbers["gradient_norm"] = float(norm)
        self._stop_if_diverged(numbers, batch)
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
        warm = max(1, round(self._asked.warm_up * self.steps))
        if step < warm:
            return self._asked.learning_rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self._asked.learning_rate * (1 + cos(pi * done)) / 2

    def _end_epoch(self, per_second: float) -> Generator[Any, None, None]:
        """Write the epoch down; then, when nothing can be lost any more, tell of it."""
        epoch = self.step // self.plan.steps_per_epoch
        means = {n: v / self.plan.steps_per_epoch for n, v in self.sums.items()}
        more, told = self.end_of_epoch(epoch, means, per_second)
        row: dict[str, Any] = {
            "step": self.step,
            "epoch": epoch,
            "learning_rate": self.learning_rate(self.step - 1),
            **means,
            **more,
        }
        if self.processes.first:
            self.run.add_metrics(row)
        self.sums, self.ended = {}, epoch
        yield from told

    def due(self, epoch: int) -> bool:
        """Whether the model is looked at after this epoch."""
        every = int(self._asked.validate_epochs or 1)
        return epoch % every == 0 or self.step == self.steps

    def collapsed(self, spread: float, what: str) -> Iterator[Note]:
        if spread < COLLAPSED_SPREAD and "collapsed" not in self.said:
            self.said.add("collapsed")
            yield Collapsed(
                f"All {what} have nearly the same embedding (spread {spread:.1e}): the "
                "model has collapsed. Try a lower learning rate, a larger batch, or "
                "another objective."
            )

    def _still_chance(self, loss: float) -> Iterator[Note]:
        level = self.objective.chance_level(self.plan.batch, self.view_count)
        if level is None or "chance" in self.said:
            return
        self.recent = [*self.recent, loss][-20:]
        warm = self._asked.warm_up * self.steps
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

    def _stop_if_diverged(self, numbers: dict[str, float], batch: Batch) -> None:
        if all(isfinite(value) for value in numbers.values()):
            self.skipped = 0
            return
        if isfinite(numbers["loss"]) and self.scaler and self.skipped < MOST_SKIPPED:
            self.skipped += 1  # half precision overflowed: the scaler skips the step
            return
        raise DivergedError(
            f"The loss was {numbers['loss']} in step {self.step + 1} of {self.steps}. "
            f"{self.why_diverged(batch)}"
        )

    # what is kept

    def _state(self, status: str, message: str = "") -> None:
        if self.processes.first:
            self.run.write_state(status, self.step, self.steps, message)

    def checkpoint(self) -> None:
        self.saved_step = self.step
        if not self.processes.first:
            return
        self.run.save_checkpoint(
            {
                "step": self.step,
                "material": self.material(),
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
            begun_with = saved.get("material")  # older runs do not say
            if begun_with and begun_with != self.material():
                raise InputError(
                    f"The slides are not those that the run in {self.run.path} began "
                    "with: files were added, removed or encoded again, or labels or "
                    "the split are others. Put them back to go on, or start anew with "
                    "another --out."
                )
            self.encoder.load_state_dict(saved["encoder"])
            self.objective.load_state_dict(saved["objective"])
            self.optimiser.load_state_dict(saved["optimiser"])
            if self.scaler and saved["scaler"]:  # none was needed where it began
                self.scaler.load_state_dict(saved["scaler"])
            self.step = self.saved_step = saved["step"]
            self.ended = saved["ended"]
            self.best_score, self.best_step = saved["best"]
            self.sums, self.recent = saved["sums"], saved["recent"]
            self.said = set(saved["said"])
        if self.processes.first:
            self.run.drop_metrics_after(self.step)
