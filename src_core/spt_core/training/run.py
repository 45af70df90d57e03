"""A training run, read from top to bottom.

:meth:`TrainingRun.events` is the loop. For each batch:

1. the exact gradient of its views             :mod:`step`, on a :mod:`batch`
2. NaN or infinity stops the run               :mod:`alarms`
3. the optimiser's step, at the step's rate    :mod:`schedule`
4. a loss that stays at chance is reported     :mod:`alarms`
5. at the end of an epoch: look at the embeddings, keep the best model, write a row of
   metrics.csv, report it
6. now and then a checkpoint and state.json    :mod:`run_folder`

A GPU is not made to wait for the numbers of each step: those of several are read
together (:mod:`lagged`), so that 2, 4 and 5 come some steps later there. A step whose
numbers are not finite changes no weight, whenever they are read.

Slide training and patch training differ in what a :class:`TrainingTask` says: what is
trained on which batches, what is looked at, and how a model is saved. What a run leaves
at its end is written by the caller, inside of :meth:`TrainingRun.recorded`, which also
keeps what is done when a run fails or is stopped.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from math import isfinite
from typing import Any

import torch

from spt_core.devices import copy_to, gradient_scaler
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.training.alarms import Alarms, DivergedError, advice, patience
from spt_core.training.batch import ViewBatch, made_ahead
from spt_core.training.checkpoint_clock import CheckpointClock
from spt_core.training.lagged import LaggedScalars, skip_unless_finite
from spt_core.training.objectives import Classify
from spt_core.training.processes import LostProcessError
from spt_core.training.run_folder import RunFolder
from spt_core.training.schedule import Schedule
from spt_core.training.signals import Validation
from spt_core.training.task import RunSettings, TrainingTask

STATE_SECONDS = 2.0
MOST_SKIPPED = 10  # steps in a row that half precision may overflow in

Events = Generator[Any, None, None]


class TrainingRun:
    """The state of one run."""

    def __init__(
        self, task: TrainingTask, settings: RunSettings, folder: RunFolder
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.compute, self.plan = task.compute, task.plan
        self.encoder, self.objective = task.compute.encoder, task.compute.objective
        self.device, self.processes = task.compute.device, task.compute.processes
        self.processes.copy_from_first(self.encoder, self.objective)
        weights = [*self.encoder.parameters(), *self.objective.parameters()]
        self.weights = [weight for weight in weights if weight.requires_grad]
        self.optimiser = torch.optim.AdamW(
            self.weights,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self.scaler = gradient_scaler(self.device, mixed=settings.mixed_precision)
        self.one = torch.ones((), device=self.device)
        if self.scaler:  # it has no scale until it is first asked to scale something
            self.scaler.scale(self.one)
        self.steps = task.steps
        self.schedule = Schedule(settings.learning_rate, settings.warm_up, self.steps)
        self.alarms = Alarms(
            chance=self.objective.chance_level(self.plan.batch, self.plan.views),
            patience=patience(self.steps, settings.warm_up),
            advice=advice(
                plain_head=settings.head == "paper"
                and not isinstance(self.objective, Classify)
            ),
        )
        self.clock = CheckpointClock(settings.checkpoint_steps)
        self.waiting = LaggedScalars(self.device)
        self.read: deque[tuple[int, dict[str, float]]] = deque()  # not yet counted
        self.step = self.saved_step = 0
        self.counted = 0  # steps whose numbers are known and in the sums
        self.ended = 0  # epochs that have been recorded
        self.best_score, self.best_step = float("-inf"), -1
        self.sums: dict[str, float] = {}  # over the steps of an epoch
        self.validation: Validation | None = None
        self.consistent = True  # the weights are those after self.step steps
        self.skipped = 0
        # Whether to take no further step, and end as if the last one was taken; asked
        # after each step, and before the first of a run that is taken up again.
        self.end_early: Callable[[], bool] = lambda: False

    # the loop

    def events(self) -> Events:
        """Take all steps that are left."""
        per_epoch = self.plan.steps_per_epoch
        if self.step and self.end_early():
            return  # taken up again for what it has come to
        self._look_before()
        started, at_start, state_written = time.monotonic(), self.step, 0.0
        if self.ended < self.step // per_epoch:  # stopped just before its end
            yield from self._end_epoch(0.0)
        with made_ahead(self.plan.make, self.step, self.steps) as batches:
            for batch in batches:
                self._set_gradients(batch)
                save = self.processes.first and self.clock.due(self.step + 1)
                self._read_numbers(batch, at_once=save or self._looks_after_this())
                self._update_weights()
                while self.read:
                    numbers = self._count()
                    rate = (self.counted - at_start) / (time.monotonic() - started)
                    loss = numbers["loss"]
                    yield Progress(self.counted, self.steps, rate, f"loss {loss:.4f}")
                    while self.compute.remarks:
                        yield Note(self.compute.remarks.pop(0))
                    yield from self.alarms.still_at_chance(loss, self.counted)
                    if self.counted % per_epoch == 0:
                        yield from self._end_epoch(rate * self.plan.batch)
                if save:
                    self.checkpoint()
                if time.monotonic() - state_written > STATE_SECONDS:
                    state_written = time.monotonic()
                    self._write_state("running")
                if self.end_early():
                    break

    def _look_before(self) -> None:
        """Know the spread before the first step: a collapse may precede any look."""
        if self.step == 0:
            if self.processes.first and self.task.watched > 1:
                self.alarms.has_collapsed(self.task.validate(0).spread)
            self.processes.wait()

    def _set_gradients(self, batch: ViewBatch) -> None:
        """Those of a batch; its loss, the loss's parts and the gradient's norm wait."""
        labels = self.task.labels
        if labels is not None:
            labels = labels[copy_to(torch.from_numpy(batch.items), self.device)]
        # As a tensor: asking for the number would wait for the device.
        scale = self.scaler.scale(self.one) if self.scaler else 1.0
        parts = self.compute(batch, labels, scale)
        if self.scaler:
            self.scaler.unscale_(self.optimiser)
        gradients = [w.grad for w in self.weights if w.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.waiting.every > 1 and not self.scaler:
            skip_unless_finite(self.optimiser, parts["loss"], norm)
        self.waiting.put(self.step + 1, {**parts, "gradient_norm": norm})

    def _looks_after_this(self) -> bool:
        """Whether the step that is being taken ends an epoch that is looked at."""
        epoch, rest = divmod(self.step + 1, self.plan.steps_per_epoch)
        return rest == 0 and self._due(epoch)

    def _read_numbers(self, batch: ViewBatch, *, at_once: bool) -> None:
        """Read what is due; stop where it is not finite."""
        self.read.extend(self.waiting.all() if at_once else self.waiting.due())
        for step, numbers in self.read:
            its_batch = batch if step == self.step + 1 else None
            self._stop_if_diverged(step, numbers, its_batch)

    def _stop_if_diverged(
        self, step: int, numbers: dict[str, float], batch: ViewBatch | None
    ) -> None:
        if all(isfinite(value) for value in numbers.values()):
            self.skipped = 0
            return
        if isfinite(numbers["loss"]) and self.scaler and self.skipped < MOST_SKIPPED:
            self.skipped += 1  # half precision overflowed: the scaler skips the step
            return
        kept = f"The last good model is in {self.folder.last}."
        if self.best_step >= 0:
            kept += f" The best model is in {self.folder.best}."
        if batch is None:
            batch = self.plan.make(step - 1)
        raise DivergedError(
            f"The loss was {numbers['loss']} in step {step} of {self.steps}. "
            f"{self.task.why_diverged(batch)} {kept}"
        )

    def _count(self) -> dict[str, float]:
        """Add the oldest numbers that were read to the sums of their epoch."""
        self.counted, numbers = self.read.popleft()
        for name, value in numbers.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        return numbers

    def _count_all(self) -> None:
        """Know the numbers of every step taken; epochs are recorded, not reported."""
        known = (*self.read, *self.waiting.all())
        # A step that was being taken has changed no weight yet.
        self.read = deque(one for one in known if one[0] <= self.step)
        while self.read:
            if self.ended < self.counted // self.plan.steps_per_epoch:
                for _ in self._end_epoch(0.0):
                    pass
            self._count()

    def _update_weights(self) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        self.consistent = False
        if self.scaler:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        else:
            self.optimiser.step()
        self.step += 1
        self.objective.after_step(self.encoder, self.step / self.steps)
        self.consistent = True

    def _end_epoch(self, per_second: float) -> Events:
        """Record the epoch; report it when nothing can be lost any more."""
        epoch = self.counted // self.plan.steps_per_epoch
        means = {n: v / self.plan.steps_per_epoch for n, v in self.sums.items()}
        loss, rate = means["loss"], self.schedule.rate(self.counted - 1)
        events = [self.task.epoch_event(epoch, self.counted, loss, rate, per_second)]
        seen = self._validate() if self._due(epoch) else None
        if seen is not None:
            events += [seen, *self._judge(seen, loss)]
        if self.processes.first:
            self.folder.add_metrics(
                {
                    "step": self.counted,
                    "epoch": epoch,
                    "loss": loss,
                    "learning_rate": rate,
                    "gradient_norm": means["gradient_norm"],
                    f"{self.task.items}_per_second": round(per_second, 2),
                    "knn": seen.knn if seen else None,
                    "site_knn": seen.site_knn if seen else None,
                    "knn_gap": seen.knn_gap if seen else None,
                    "validation_loss": seen.loss if seen else None,
                    "spread": seen.spread if seen else None,
                    "effective_rank": seen.effective_rank if seen else None,
                    **means,
                }
            )
        self.sums, self.ended = {}, epoch
        yield from events

    def _due(self, epoch: int) -> bool:
        every = int(self.settings.validate_epochs or 1)
        last = epoch * self.plan.steps_per_epoch == self.steps
        return epoch % every == 0 or last

    def _validate(self) -> Validation | None:
        """By the first process; the others wait for it."""
        if self.processes.first:
            self.validation = self.task.validate(self.step)
        self.processes.wait()
        return self.validation

    def _judge(self, seen: Validation, loss: float) -> Iterator[Note]:
        """Keep the model if it is the best; report a collapse."""
        if self.task.watched > 1 and self.alarms.has_collapsed(seen.spread):
            yield from self.alarms.collapsed(seen.spread, self.task.items)
            return
        score = self.task.score(seen, loss)
        if score is not None and score >= self.best_score:
            self.best_score, self.best_step = score, self.step
            self.task.save(self.folder.best, self.step)

    # what is kept

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Keep what is done, however the run ends, and state in state.json how."""
        self._write_state("running")
        try:
            yield
        except DivergedError as error:
            if self.processes.first:
                self.checkpoint()
                self.task.save(self.folder.last, self.step)
            self._write_state("failed", str(error))
            raise
        except (GeneratorExit, KeyboardInterrupt, LostProcessError) as error:
            with suppress(LostProcessError):  # the others may be gone already
                if self.consistent and self.step > self.saved_step:
                    self.checkpoint()
            self._write_state("stopped", str(error))
            raise
        except BaseException as error:
            with suppress(OSError):  # such as a full disk, which is the error itself
                self._write_state("failed", f"{type(error).__name__}: {error}")
            raise
        self._write_state("finished")

    def _write_state(self, status: str, message: str = "") -> None:
        if self.processes.first:
            self.folder.write_state(status, self.step, self.steps, message)

    def checkpoint(self) -> None:
        if not self.processes.first:
            return
        self._count_all()
        self.saved_step, started = self.step, time.monotonic()
        self.folder.save_checkpoint(
            {
                "step": self.step,
                "material": self.task.data_hash,
                "ended": self.ended,
                "encoder": self.encoder.state_dict(),
                "objective": self.objective.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "scaler": self.scaler.state_dict() if self.scaler else {},
                "best": (self.best_score, self.best_step),
                "sums": self.sums,
                "recent": self.alarms.recent,
                "widest": self.alarms.widest,
                "said": sorted(self.alarms.raised),
            }
        )
        self.clock.written(
            self.step,
            seconds=time.monotonic() - started,
            size=self.folder.checkpoint.stat().st_size,
        )

    def restore(self) -> None:
        """Go back to the last checkpoint; without one, to the beginning."""
        saved = self.folder.load_checkpoint(self.device)
        if saved is not None:
            begun_with = saved.get("material")  # older runs do not say
            if begun_with and begun_with != self.task.data_hash:
                raise InputError(
                    f"The {self.task.items} are not those that the run in "
                    f"{self.folder.path} began with: files were added, removed or "
                    "encoded again, or labels or the split are others. Put them back "
                    "to go on, or start anew with another --out."
                )
            try:
                self._take_up(saved)
            # Whole, but not what this run wrote.
            except _OF_ANOTHER_RUN as e:
                raise InputError(
                    f"The checkpoint in {self.folder.path} does not fit its run "
                    f"({' '.join(str(e).split())[:200]}). Its models are as they were. "
                    "Start anew with another --out."
                ) from e
        if self.processes.first:
            self.folder.drop_metrics_after(self.step)

    def _take_up(self, saved: dict[str, Any]) -> None:
        self.encoder.load_state_dict(saved["encoder"])
        self.objective.load_state_dict(saved["objective"])
        self.optimiser.load_state_dict(saved["optimiser"])
        if self.scaler and saved["scaler"]:  # none was needed where it began
            self.scaler.load_state_dict(saved["scaler"])
        self.step = self.saved_step = self.counted = _count(saved["step"], self.steps)
        self.clock = CheckpointClock(self.settings.checkpoint_steps, step=self.step)
        self.ended = _count(saved["ended"], self.steps)
        score, step = saved["best"]
        self.best_score, self.best_step = float(score), _count(step, self.steps, -1)
        self.sums = {name: float(one) for name, one in saved["sums"].items()}
        self.alarms.recent = [float(loss) for loss in saved["recent"]]
        self.alarms.widest = float(saved.get("widest", 0.0))  # older runs: none
        self.alarms.raised = set(saved["said"])


_OF_ANOTHER_RUN = (LookupError, TypeError, ValueError, RuntimeError, AttributeError)


def _count(value: Any, most: int, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is no number of steps of {most}")
    return value
