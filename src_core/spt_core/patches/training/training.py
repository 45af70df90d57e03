"""Patch training: from slides and tiles to an encoder file, a generator of events."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spt_core.devices import choose_device, fixed_shapes
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.patches.encoder_file import ENCODER_FILE
from spt_core.patches.training.pool import fill_pool
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.start import load_start
from spt_core.patches.training.task import PatchTrainingTask, start_name
from spt_core.patches.training.tiles import find_origins
from spt_core.training.processes import joined, own_device
from spt_core.training.run import TrainingRun
from spt_core.training.run_folder import RunFolder

COMMAND = "spt train-patches"


@dataclass(frozen=True)
class PatchTrainResult:
    """Where the encoder is, and what was last seen of it."""

    run: Path
    encoder: Path
    steps: int
    metrics: dict[str, float | None]


Events = Generator[Any, None, PatchTrainResult]


def train_patches(
    settings: PatchTrainSettings,
    *,
    resume: bool = False,
    end_early: Callable[[], bool] | None = None,
) -> Events:
    """Train one patch encoder.

    Closing the generator stops at the next step and keeps all that is done; so does
    Ctrl-C. ``resume`` goes on with the run in ``settings.out``.

    Parameters
    ----------
    end_early
        Asked after each step: True ends the run there, with its encoder written.
    """
    device = own_device(choose_device(settings.device))
    with joined(device) as processes, fixed_shapes(device), ExitStack() as held:
        folder = RunFolder(Path(settings.out), COMMAND, ENCODER_FILE)
        if processes.first:
            held.enter_context(folder.held())
        if not resume and processes.first:
            folder.refuse_if_begun()
        start = load_start(settings.arch, settings.init, settings.seed)
        settings = settings.resolved(start.card.patch_size, start.card.mpp)
        origins = find_origins(settings.sources, settings.tables)
        source = yield from fill_pool(origins, settings)
        with closing(source):
            batch = min(settings.batch_size, source.count)
            if batch < max(2, processes.world):
                raise InputError(
                    f"A batch of {batch} patches is too small for {processes.world} "
                    "processes: two or more are needed."
                )
            if not resume and processes.first:
                folder.begin(settings)
            task = PatchTrainingTask(settings, source, start, device, processes, folder)
            run = TrainingRun(task, settings, folder)
            if end_early is not None:
                run.end_early = end_early
            if resume:
                run.restore()
            yield Note(_opening(task))
            with run.recorded():
                yield from run.events()
                result = _finish(task, run)
            if source.unreadable:
                yield Note(f"Could not be read: {'; '.join(source.unreadable[:5])}.")
            return result


def resume_patches(
    path: str | Path, *, end_early: Callable[[], bool] | None = None, **changes: Any
) -> Events:
    """Go on with the run in a folder, up to its end."""
    settings = PatchTrainSettings.read(RunFolder(Path(path)).config)
    settings = replace(settings, out=str(path), **changes)
    return (yield from train_patches(settings, resume=True, end_early=end_early))


def _opening(task: PatchTrainingTask) -> str:
    settings, pool = task.settings, task.source.at(0)
    weights = sum(weight.numel() for weight in task.network.parameters())
    free = sum(w.numel() for w in task.network.parameters() if w.requires_grad)
    at_a_time = " at a time" if task.source.is_renewed else ""
    return (
        f"{settings.method} on {len(pool)} patches{at_a_time} of {pool.slide_count} "
        f"slides and {pool.patient_count} patients ({pool.nbytes / 1e6:.0f} MB), "
        f"{settings.arch} from {start_name(settings.init)}, {free / 1e6:.2f} of "
        f"{weights / 1e6:.2f} M weights, batches of {task.plan.batch}, "
        f"{task.steps} steps on {task.device}."
    )


def _finish(task: PatchTrainingTask, run: TrainingRun) -> PatchTrainResult:
    """Write the encoder and the curve."""
    folder = run.folder
    metrics: dict[str, float | None] = {}
    if run.processes.first:
        run.checkpoint()
        task.save(folder.last, run.step)
        folder.draw_curve()
        # None where a run was resumed at its very end.
        seen = run.validation or task.validate(run.step)
        metrics = {
            "knn": seen.knn,
            "spread": seen.spread,
            "effective_rank": seen.effective_rank,
        }
    run.processes.wait()
    return PatchTrainResult(folder.path, folder.last, run.step, metrics)
