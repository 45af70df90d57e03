"""Training of patch encoders as a task: what is trained, looked at and saved."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from spt_core._version import __version__
from spt_core.card_file import UNSTATED_LICENCE
from spt_core.patches.encoder_card import PatchTrainingSummary
from spt_core.patches.encoder_file import save_encoder
from spt_core.patches.training.hidisc import HiDisc
from spt_core.patches.training.monitor import PatchMonitor
from spt_core.patches.training.network import PatchNetwork, graph_floats
from spt_core.patches.training.plan import PatchPlan
from spt_core.patches.training.pool import TileSource
from spt_core.patches.training.settings import (
    HEAD_OF,
    TEMPERATURES,
    PatchTrainSettings,
)
from spt_core.patches.training.start import Start
from spt_core.patches.training.stay import StayNear
from spt_core.training.batch import BatchPlan, ViewBatch
from spt_core.training.batch_norms import share_statistics
from spt_core.training.mixing_step import MixingStep
from spt_core.training.objectives import Objective, SimCLR
from spt_core.training.processes import Processes
from spt_core.training.run_folder import RunFolder
from spt_core.training.signals import Validation
from spt_core.training.stages import patient_hmac, taken_over
from spt_core.training.step import ExactStep


@dataclass(frozen=True)
class PatchEpoch:
    """One epoch is done; the numbers are its means."""

    epoch: int
    step: int
    loss: float
    learning_rate: float
    patches_per_second: float


class PatchTrainingTask:
    items = "patches"
    data_hash = ""  # no hash is kept of tiles

    def __init__(
        self,
        settings: PatchTrainSettings,
        source: TileSource,
        start: Start,
        device: torch.device,
        processes: Processes,
        run: RunFolder,
    ) -> None:
        self.settings, self.source, self.start = settings, source, start
        self.device, self.processes, self.run = device, processes, run
        # Only the first process writes: cards, and the key of the patients.
        self.earlier = (
            taken_over(start.stages, run, start.run) if processes.first else ()
        )
        torch.manual_seed(settings.seed)
        frozen_statistics = settings.statistics == "frozen"
        module = start.module
        if processes.world > 1 and not frozen_statistics:
            module = share_statistics(module, device)
        self.network = PatchNetwork(
            module,
            start.card.dim,
            start.card.mean,
            start.card.std,
            freeze=settings.freeze,
            frozen_statistics=frozen_statistics,
        ).to(device)
        # On the CPU: it is needed once, at the end.
        self.start_weights = {
            name: weight.detach().cpu().clone()
            for name, weight in self.network.module.state_dict().items()
        }
        self.objective = _objective(settings, self.network).to(device)
        step = ExactStep if frozen_statistics else MixingStep
        self.compute = step(
            self.network,
            self.objective,
            device=device,
            processes=processes,
            graph_floats=self._graph_floats,
            micro_batch=settings.micro_batch,
            mixed=settings.mixed_precision,
        )
        batch = min(settings.batch_size, source.count)
        batch = batch // processes.world * processes.world
        plan = PatchPlan(
            source, settings, batch, device, processes.rank, processes.world
        )
        self.plan: BatchPlan = plan
        self.epoch_of = plan.epoch
        self.steps = int(settings.epochs or 1) * self.plan.steps_per_epoch
        self.labels: Tensor | None = None
        if self.objective.needs_labels:
            self.labels = torch.from_numpy(source.whose).to(device)
        pool = source.at(0)
        self.counts = len(pool), pool.slide_count, len(pool.by_patient) or None
        self.monitor = PatchMonitor(
            pool, settings.view_size or 1, settings.mpp or 1.0, settings.seed
        )
        self.floats_per_view = 0.0

    def _graph_floats(self, batch: ViewBatch) -> float:
        if not self.floats_per_view:  # measured once: all views are of one size
            (pixels,) = batch.chunks[0].inputs
            self.floats_per_view = graph_floats(
                self.network, pixels[:1].to(self.device)
            )
        return self.floats_per_view * batch.count

    @property
    def watched(self) -> int:
        return len(self.monitor.chosen)

    def validate(self, step: int) -> Validation:
        self.network.eval()
        seen = self.monitor.validate(self.network, self.device, step)
        self.network.train()
        return seen

    def score(self, seen: Validation, loss: float) -> None:
        """No best encoder is kept: the last one is the result."""

    def epoch_event(
        self, epoch: int, step: int, loss: float, rate: float, per_second: float
    ) -> PatchEpoch:
        return PatchEpoch(epoch, step, loss, rate, per_second)

    def why_diverged(self, batch: ViewBatch) -> str:
        return "Try a lower --learning-rate."

    def save(self, path: Path, step: int) -> None:
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
            training=self._training(step),
        )
        save_encoder(path, self.result(), card, half=settings.half)

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

    def _training(self, step: int) -> PatchTrainingSummary:
        settings, source = self.settings, self.source
        patches, slides, known_patients = self.counts
        epoch = self.epoch_of(max(0, step - 1))
        patients = source.patients(epoch)
        key = self.run.patient_key() if patients else b""
        kept: tuple[str, ...] = (
            "patch_size", "mpp", "channels", "view_size", "views", "freeze",
            "statistics", "stay", "blend", "batch_size", "learning_rate",
            "weight_decay", "epochs", "temperature", "head", "refresh", "seed",
            "augmentation",
        )  # fmt: skip
        if settings.method == "hidisc":
            kept = (*kept, "group", "level_weights")
        return PatchTrainingSummary(
            method=settings.method,
            start=start_name(settings.init),
            patches=patches,
            slides=slides,
            patients=known_patients,
            step=step,
            steps=self.steps,
            torch=torch.__version__,
            settings={name: getattr(settings, name) for name in kept},
            slide_fingerprints=source.fingerprints(epoch),
            patient_hmacs=frozenset(patient_hmac(name, key) for name in patients),
            earlier=self.earlier,
        )


def start_name(init: str) -> str:
    """What a card may say of the start: never a path, which may name a person."""
    return init if init in ("imagenet", "bundled", "none") else "a file of weights"


def _objective(settings: PatchTrainSettings, network: PatchNetwork) -> Objective:
    temperature = float(settings.temperature or TEMPERATURES[settings.method])
    head = settings.head or HEAD_OF[settings.method]
    objective: Objective
    if settings.method == "hidisc":
        objective = HiDisc(
            network.dim,
            weights=settings.level_weights,
            head=head,
            temperature=temperature,
        )
    else:
        objective = SimCLR(network.dim, head=head, temperature=temperature)
    if settings.stay:
        objective = StayNear(objective, network, settings.stay)
    return objective
