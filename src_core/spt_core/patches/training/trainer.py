"""Training a patch encoder: what is watched, what is kept."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spt_core._version import __version__
from spt_core.card_file import UNSTATED_LICENCE
from spt_core.learning.batches import Batch
from spt_core.learning.monitor import Validation
from spt_core.patches.encoder_card import PatchTrainingSummary
from spt_core.patches.encoder_file import ENCODER_FILE, save_encoder
from spt_core.patches.training.hidisc import HiDisc
from spt_core.patches.training.monitor import PatchMonitor
from spt_core.patches.training.network import PatchNetwork, PatchStep
from spt_core.patches.training.plan import PatchPlan
from spt_core.patches.training.pool import TilePool
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.start import Start
from spt_core.patches.training.stay import StayNear
from spt_core.training.loop import Loop
from spt_core.training.objectives import Objective, SimCLR
from spt_core.training.processes import Processes
from spt_core.training.run_folder import RunFolder


@dataclass(frozen=True)
class PatchEpoch:
    """One epoch is done; the numbers are its means."""

    epoch: int
    step: int
    loss: float
    learning_rate: float
    patches_per_second: float


@dataclass(frozen=True)
class PatchTrainResult:
    """Where the encoder is, and what was last seen of it."""

    run: Path
    encoder: Path
    steps: int
    metrics: dict[str, float | None]


class PatchTrainer(Loop):
    """The state of one run."""

    def __init__(
        self,
        settings: PatchTrainSettings,
        pool: TilePool,
        start: Start,
        device: torch.device,
        processes: Processes,
        run: RunFolder,
    ) -> None:
        self.settings, self.pool, self.start = settings, pool, start
        torch.manual_seed(settings.seed)
        network = PatchNetwork(
            start.module,
            start.card.dim,
            start.card.mean,
            start.card.std,
            freeze=settings.freeze,
            frozen_statistics=settings.statistics == "frozen",
        ).to(device)
        # On the CPU: it is needed once, at the end.
        self.start_weights = {
            name: weight.detach().cpu().clone()
            for name, weight in network.module.state_dict().items()
        }
        objective = _objective(settings, network).to(device)
        compute = PatchStep(
            network,
            objective,
            device=device,
            processes=processes,
            micro_batch=settings.micro_batch,
            mixed=settings.mixed_precision,
        )
        batch = min(settings.batch_size, len(pool)) // processes.world * processes.world
        plan = PatchPlan(pool, settings, batch, device, processes.rank, processes.world)
        super().__init__(
            settings, network, objective, plan, compute, run, views=settings.views
        )
        self.network = network
        numbers = np.stack([pool.patient, pool.slide, np.arange(len(pool))], axis=1)
        self.whose = torch.from_numpy(numbers).to(device)
        self.monitor = PatchMonitor(
            pool, settings.view_size or 1, settings.mpp or 1.0, settings.seed
        )
        self.seen: Validation | None = None

    def opening(self) -> str:
        settings, pool = self.settings, self.pool
        weights = sum(weight.numel() for weight in self.network.parameters())
        free = sum(w.numel() for w in self.network.parameters() if w.requires_grad)
        return (
            f"{settings.method} on {len(pool)} patches of {pool.slide_count} slides "
            f"and {pool.patient_count} patients ({pool.nbytes / 1e6:.0f} MB), "
            f"{settings.arch} from {start_word(settings.init)}, {free / 1e6:.2f} of "
            f"{weights / 1e6:.2f} M weights, batches of {self.plan.batch}, "
            f"{self.steps} steps on {self.device}."
        )

    def labels_of(self, batch: Batch) -> Tensor | None:
        if not self.objective.needs_labels:
            return None
        return self.whose[torch.from_numpy(batch.slides).to(self.device)]

    def end_of_epoch(
        self, epoch: int, means: dict[str, float], per_second: float
    ) -> tuple[dict[str, Any], list[Any]]:
        rate = self.learning_rate(self.step - 1)
        told: list[Any] = [
            PatchEpoch(epoch, self.step, means["loss"], rate, per_second)
        ]
        row: dict[str, Any] = {"patches_per_second": round(per_second, 2)}
        if self.due(epoch):
            if self.processes.first:
                seen = self._look()
                row.update(
                    spread=seen.spread,
                    effective_rank=seen.effective_rank,
                    knn="" if seen.knn is None else seen.knn,
                )
                told += [seen, *self.collapsed(seen.spread, "patches")]
            self.processes.wait()
        return row, told

    def _look(self) -> Validation:
        self.network.eval()
        self.seen = self.monitor.look(self.network, self.device, self.step)
        self.network.train()
        return self.seen

    def why_diverged(self, batch: Batch) -> str:
        where = self.run.path / ENCODER_FILE
        return f"Try a lower --learning-rate. The last good encoder is {where}."

    def save_last_good(self) -> None:
        self._save()

    def finish(self) -> Generator[Any, None, PatchTrainResult]:
        yield from []
        metrics: dict[str, float | None] = {}
        if self.processes.first:
            self.checkpoint()
            self._save()
            self.run.draw_curve()
            if self.seen is None:  # a run that was resumed at its very end
                self._look()
            if self.seen is not None:
                metrics = {
                    "knn": self.seen.knn,
                    "spread": self.seen.spread,
                    "effective_rank": self.seen.effective_rank,
                }
        self.processes.wait()
        return PatchTrainResult(
            self.run.path, self.run.path / ENCODER_FILE, self.steps, metrics
        )

    def _save(self) -> None:
        settings = self.settings
        card = replace(
            self.start.card,
            name=settings.name,
            patch_size=int(settings.patch_size or 1),
            mpp=float(settings.mpp or 1.0),
            licence=UNSTATED_LICENCE,
            about=f"{settings.arch} trained by {settings.method} on own patches",
            architecture=settings.arch,
            version=__version__,
            training=self._training(),
        )
        save_encoder(
            self.run.path / ENCODER_FILE, self.result(), card, half=settings.half
        )

    def result(self) -> dict[str, Tensor]:
        """The learned weights, blended with the start's where that was asked for."""
        share = self.settings.blend
        found = {}
        for name, weight in self.network.module.state_dict().items():
            weight = weight.detach().cpu()
            if share < 1 and weight.is_floating_point():
                weight = torch.lerp(self.start_weights[name], weight, share)
            found[name] = weight
        return found

    def _training(self) -> PatchTrainingSummary:
        settings, pool = self.settings, self.pool
        kept: tuple[str, ...] = (
            "patch_size", "mpp", "view_size", "views", "freeze", "statistics", "stay",
            "blend", "batch_size", "learning_rate", "weight_decay", "epochs",
            "temperature", "head", "seed", "augmentation",
        )  # fmt: skip
        if settings.method == "hidisc":
            kept = (*kept, "group", "level_weights")
        return PatchTrainingSummary(
            method=settings.method,
            start=start_word(settings.init),
            patches=len(pool),
            slides=pool.slide_count,
            patients=len(pool.by_patient) or None,
            step=self.step,
            steps=self.steps,
            torch=torch.__version__,
            settings={name: getattr(settings, name) for name in kept},
        )


def start_word(init: str) -> str:
    """What a card may say of the start: never a path, which may name a person."""
    return init if init in ("imagenet", "none") else "a file of weights"


def _objective(settings: PatchTrainSettings, network: PatchNetwork) -> Objective:
    temperature = float(settings.temperature or 0.07)
    objective: Objective
    if settings.method == "hidisc":
        objective = HiDisc(
            network.dim,
            weights=settings.level_weights,
            head=settings.head,
            temperature=temperature,
        )
    else:
        objective = SimCLR(network.dim, head=settings.head, temperature=temperature)
    if settings.stay:
        objective = StayNear(objective, network, settings.stay)
    return objective
