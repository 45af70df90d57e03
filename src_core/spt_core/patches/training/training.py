"""Patch training: from slides and tiles to an encoder file, a generator of events."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from spt_core.devices import choose_device, fixed_shapes
from spt_core.errors import InputError
from spt_core.patches.training.pool import fill_pool
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.start import load_start
from spt_core.patches.training.tiles import find_origins
from spt_core.patches.training.trainer import PatchTrainer, PatchTrainResult
from spt_core.training.processes import joined, own_device
from spt_core.training.run_folder import RunFolder

Events = Generator[Any, None, PatchTrainResult]
COMMAND = "spt train-patches"


def train_patches(settings: PatchTrainSettings, *, resume: bool = False) -> Events:
    """Train one patch encoder.

    Closing the generator stops at the next step and keeps all that is done; so does
    Ctrl-C. ``resume`` goes on with the run in ``settings.out``.
    """
    device = own_device(choose_device(settings.device))
    with joined(device) as processes, fixed_shapes(device):
        run = RunFolder(Path(settings.out), COMMAND)
        if not resume and processes.first:
            run.refuse_if_begun()
        start = load_start(settings.arch, settings.init, settings.seed)
        settings = settings.resolved(start.card.patch_size, start.card.mpp)
        origins = find_origins(settings.sources, settings.tables)
        pool = yield from fill_pool(origins, settings)
        if min(settings.batch_size, len(pool)) < max(2, processes.world):
            raise InputError(
                f"A batch of {min(settings.batch_size, len(pool))} patches is too "
                f"small for {processes.world} processes: two or more are needed."
            )
        if not resume and processes.first:
            run.begin(settings)
        trainer = PatchTrainer(settings, pool, start, device, processes, run)
        if resume:
            trainer.restore()
        return (yield from trainer.events())


def resume_patches(path: str | Path, **changes: Any) -> Events:
    """Go on with the run in a folder, up to its end."""
    settings = PatchTrainSettings.read(RunFolder(Path(path)).config)
    settings = replace(settings, out=str(path), **changes)
    return (yield from train_patches(settings, resume=True))
