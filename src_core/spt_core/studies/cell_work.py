"""The work of one cell: train, embed, ask; all within one fold."""

import shutil
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import choose_device
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.model_file import SlideModel, load_model, save_model
from spt_core.learning.monitor import embed_slide
from spt_core.learning.settings import TrainSettings
from spt_core.learning.sites import settle_sites
from spt_core.learning.standardising import Standardiser, standardised
from spt_core.learning.training import DivergedError, TrainResult, resume, train
from spt_core.studies.bench import Bench, method_of
from spt_core.studies.cells import Cell, CellResult
from spt_core.studies.embeddings import pooling_model
from spt_core.studies.methods import OWN
from spt_core.studies.probes import (
    control_scores,
    permuted_labels,
    probe_shares,
    site_shares,
)
from spt_core.training.run_folder import RunFolder

Events = Generator[Any, None, CellResult]
# What may be wrong with one cell, and stops no other; anything else is a bug.
FAILURES = (
    InputError,
    DivergedError,
    MemoryError,
    OSError,
    RuntimeError,  # torch's
    ValueError,  # numpy's and scikit-learn's
    ArithmeticError,
)


def do_cell(bench: Bench, cell: Cell) -> Events:
    """Do one cell and write its result; a training that was begun goes on."""
    began = time.perf_counter()
    method, division = method_of(cell), bench.division(cell)
    cohort = bench.cohorts[cell.features]
    patients = cohort.patients()
    y = cohort.class_numbers()
    if cell.permuted:
        y = permuted_labels(y, patients, bench.labelled, cell.seed)
    facts: dict[str, Any] = {}
    if method.learns:
        model = yield from _trained(bench, cell, y, facts)
    else:
        by_itself = method.model or "mean"
        model = pooling_model(by_itself, cohort)
        if method.model is None:
            model = replace(model, encoder=_untrained(bench, cell, cohort))
        model = model.standardised_by(_of_training(bench, cell, y))
    facts["train_seconds"] = time.perf_counter() - began
    facts["standardised"] = model.card.standardising.kind
    began = time.perf_counter()
    rows = bench.labelled
    device = choose_device(bench.settings.device)
    h = yield from _embeddings(model.to(device), seen_by(model, cohort), rows, device)
    facts["embed_seconds"] = time.perf_counter() - began
    began = time.perf_counter()
    classes = len(cohort.classes)
    shares = probe_shares(
        h, y, patients, division, classes, mlp=bench.settings.mlp, seed=cell.seed
    )
    if model.classifier is not None:
        shares[OWN] = _own(model, h[division.test], cohort.classes)
    sites = None
    if bench.sites:
        numbers = bench.site_numbers()
        known = division.test[numbers[division.test] >= 0]
        sites = np.full((len(division.test), len(bench.sites)), np.nan)
        sites[numbers[division.test] >= 0] = site_shares(
            h, numbers, patients, known, len(bench.sites)
        )
    controls = {}
    if bench.settings.permute_labels and not method.uses_labels and not cell.variant:
        controls = control_scores(h, y, patients, bench.labelled, division, classes)
    facts["probe_seconds"] = time.perf_counter() - began
    place = {int(slide): row for row, slide in enumerate(bench.labelled)}
    result = CellResult(
        np.array([place[int(slide)] for slide in division.test]),
        shares,
        h[bench.labelled],
        sites,
        controls,
        facts,
    )
    if bench.keeps_model(cell):
        save_model(bench.folder.model(cell), model.to("cpu"))
    bench.folder.write(cell, result)
    shutil.rmtree(bench.folder.run(cell), ignore_errors=True)
    return result


def why_of(error: Exception) -> str:
    """A cell's failure as a sentence that names no slide."""
    if isinstance(error, DivergedError):
        return "The training diverged: its loss became NaN or infinite."
    if isinstance(error, InputError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _trained(
    bench: Bench, cell: Cell, y: NDArray[np.int64], facts: dict[str, Any]
) -> Generator[Any, None, SlideModel]:
    method = method_of(cell)
    path = bench.folder.run(cell)
    settings = bench.train_settings(cell)
    if method.pretraining:
        before = replace(bench.pretrain_settings(cell), out=str(path / "before"))
        part = _learned_from(bench, cell, y, with_labels=False)
        start = yield from begun_or_new(before, part)
        facts["steps_before"] = start.steps
        settings = replace(settings, init=str(start.last))
        path = path / "after"
    settings = replace(settings, out=str(path))
    part = _learned_from(bench, cell, y, with_labels=method.uses_labels)
    found = yield from begun_or_new(settings, part)
    facts |= {
        "steps": found.steps,
        "best_step": found.best_step,
        "chosen_by": found.chosen_by,
    }
    # Without a validation part nothing may choose: the last step's model is taken.
    is_chosen = method.uses_labels and len(bench.division(cell).val) > 0
    return load_model(found.best if is_chosen else found.last)


def begun_or_new(
    settings: TrainSettings, cohort: Cohort, **more: Any
) -> Generator[Any, None, TrainResult]:
    """Go on with the training in ``settings.out``, or begin it."""
    run = RunFolder(Path(settings.out))
    if run.is_begun:
        return (yield from resume(run.path, cohort=cohort, **more))
    # Killed before its first step. A key that was laid there beforehand stays.
    run.config.unlink(missing_ok=True)
    run.metrics.unlink(missing_ok=True)
    return (yield from train(settings, cohort=cohort, **more))


def _learned_from(
    bench: Bench, cell: Cell, y: NDArray[np.int64], *, with_labels: bool
) -> Cohort:
    """The slides a cell's model may see: none that it is asked about.

    Labels are those of ``y``. What learns from labels keeps the validation part to
    choose the epoch by; the rest learns from it too, without its labels.
    """
    division = bench.division(cell)
    cohort = bench.cohorts[cell.features]
    splits = dict.fromkeys(division.train.tolist(), "train")
    splits |= dict.fromkeys(division.val.tolist(), "val" if with_labels else "train")
    if bench.settings.unlabelled and not with_labels:
        unlabelled = np.flatnonzero(cohort.class_numbers() < 0)
        splits |= dict.fromkeys(unlabelled.tolist(), "train")
    numbers = sorted(splits)
    if cell.method == "giga-ssl" and bench.settings.augmented:
        cohort = cohort.with_augmented(
            open_cohort(folder) for folder in bench.settings.augmented
        )
    classes = cohort.classes
    part = cohort.subset(numbers)
    slides = [
        replace(
            slide,
            split=splits[number],
            label=classes[y[number]] if with_labels else None,
        )
        for number, slide in zip(numbers, part, strict=True)
    ]
    return replace(part, slides=slides, remarks=())


def _untrained(bench: Bench, cell: Cell, cohort: Cohort) -> Aggregator:
    settings = bench.train_settings(cell)
    torch.manual_seed(cell.seed)
    encoder = build_encoder(str(settings.model), cohort.dim, **settings.architecture)
    return encoder.eval()


def _of_training(bench: Bench, cell: Cell, y: NDArray[np.int64]) -> Standardiser:
    """How a method that learns nothing has its tokens standardised: as the others."""
    part = _learned_from(bench, cell, y, with_labels=False)
    settings = bench.train_settings(cell)
    return settle_sites(settings, part, part).standardiser


def seen_by(model: SlideModel, cohort: Cohort) -> Cohort:
    """A cohort as a model of one fold takes it.

    Statistics are of the slides it learned from; those of other sites are of their own
    slides, without labels.
    """
    return standardised(cohort, model.standardiser.with_sites_of(cohort))


def _embeddings(
    model: SlideModel, cohort: Cohort, rows: NDArray[np.int64], device: torch.device
) -> Generator[Any, None, NDArray[np.float32]]:
    """Of the labelled slides as a whole, (slides, dim); others are 0."""
    h = np.zeros((len(cohort), model.encoder.dim), np.float32)
    model.encoder.eval()
    for done, number in enumerate(rows.tolist(), start=1):
        h[number] = embed_slide(model.encoder, cohort[number], device)
        yield Progress(done, len(rows), message="embedding slides")
    return h


def _own(model: SlideModel, h: NDArray[np.float32], classes: list[str]) -> Any:
    """The model's own class shares, in the cohort's order of classes."""
    with torch.no_grad():
        device = next(model.encoder.parameters()).device
        scores = model.logits(torch.from_numpy(h).to(device)).double().cpu().numpy()
    exp = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = np.zeros((len(h), len(classes)))
    columns = [classes.index(name) for name in model.classes]
    shares[:, columns] = exp / exp.sum(axis=1, keepdims=True)
    return shares
