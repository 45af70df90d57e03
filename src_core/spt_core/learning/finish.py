"""What a run starts from and what it leaves: modules in, a model with its card out."""

from collections import Counter
from collections.abc import Generator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spt_core._version import __version__
from spt_core.card_file import UNSTATED_LICENCE
from spt_core.encoder_terms import terms_of
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.cohort import Cohort
from spt_core.learning.hipt import Hipt, load_region_weights
from spt_core.learning.linear_head import fit_linear_head
from spt_core.learning.model_card import (
    Architecture,
    Metrics,
    ModelCard,
    TokenKind,
    TrainingSummary,
    read_model_card,
)
from spt_core.learning.model_file import SlideModel, load_model
from spt_core.learning.monitor import embed_slide
from spt_core.learning.settings import (
    WITH_CLASSES,
    TrainSettings,
    needs_classifier,
)
from spt_core.learning.statistics import MOST_SLIDES, training_statistics
from spt_core.training.objectives import Classify, Objective, build_objective
from spt_core.training.run_folder import RunFolder
from spt_core.training.stages import Stage, patient_hmac, taken_over

LAST = "the last epoch"

if TYPE_CHECKING:
    from spt_core.learning.task import SlideTrainingTask


def build_for(settings: TrainSettings, cohort: Cohort) -> tuple[Aggregator, Objective]:
    """The encoder and the objective of a run, before its first step."""
    classes = len(cohort.classes)
    if settings.init:
        start = load_model(settings.init)
        start.refuse_unlike(cohort.facts, cohort.dim)
        encoder = start.encoder.train()
    else:
        options = dict(settings.architecture)
        if settings.model in WITH_CLASSES:
            options["classes"] = classes
        encoder = build_encoder(settings.model or "paper", cohort.dim, **options)
        if settings.region_weights and isinstance(encoder, Hipt):
            load_region_weights(encoder, settings.region_weights)
    if encoder.own_loss is not None:
        if settings.objective != "classify":
            raise InputError(needs_classifier(encoder.name))
        if encoder.own_loss.classes != classes:
            raise InputError(
                f"{settings.init} is a {encoder.name} model of "
                f"{encoder.own_loss.classes} classes, which are part of it; the labels "
                f"have {classes}. Train a new one with --model {encoder.name}."
            )
    if settings.freeze:
        encoder.requires_grad_(False).eval()
    weights = None
    if settings.objective == "classify" and settings.class_weights == "balanced":
        y = cohort.class_numbers()
        counts = np.bincount(y[y >= 0], minlength=classes)
        weights = torch.from_numpy((counts.sum() / (classes * counts)).astype("f4"))
    objective = build_objective(
        settings.objective,
        encoder,
        head=settings.head,
        classes=classes,
        class_weights=weights,
        momentum=settings.momentum,
        temperature=settings.temperature,
        vicreg_weights=settings.vicreg_weights,
    )
    if not any(
        weight.requires_grad for m in (encoder, objective) for weight in m.parameters()
    ):
        raise InputError("There is nothing to learn with these settings.")
    return encoder, objective


def earlier_stages(settings: TrainSettings, run: RunFolder) -> tuple[Stage, ...]:
    """What the model that a run begins from has learned from, for the card.

    Its patients are known under the key of its own run. This run takes over that key
    where it lies beside the model; else the card says that it is another.
    """
    if not settings.init:
        return ()
    stages = read_model_card(settings.init).stages()
    return taken_over(stages, run, Path(settings.init).parent)


def bare_model(task: "SlideTrainingTask", step: int) -> SlideModel:
    """The model as it is now; its statistics come when the run ends."""
    classifier = None
    if isinstance(task.objective, Classify):
        classifier = deepcopy(task.objective.classifier)
    model = SlideModel(task.encoder, _card(task, step), classifier)
    return model.standardised_by(task.standardiser)


def as_chosen(task: "SlideTrainingTask", model: SlideModel) -> SlideModel:
    """The same model with a card that states how its epoch was chosen."""
    training = replace(
        model.card.training,
        epoch_chosen_by=task.chosen_by,
        choice_fingerprints=task.choice_fingerprints,
    )
    return replace(model, card=replace(model.card, training=training))


def finished_model(
    task: "SlideTrainingTask", model: SlideModel
) -> Generator[Any, None, SlideModel]:
    """Add what needs the embeddings of whole slides: statistics and a linear head."""
    cohort, device = task.cohort, task.device
    was_training = model.encoder.training
    fits_head = task.settings.objective == "supcon"
    chosen = np.random.default_rng([task.settings.seed, 13]).permutation(len(cohort))
    part = cohort.subset(np.sort(chosen if fits_head else chosen[:MOST_SLIDES]))
    model.encoder.eval()
    embeddings = []
    for done, slide in enumerate(part, start=1):
        embeddings.append(embed_slide(model.encoder, slide, device))
        yield Progress(done, len(part), message="embedding whole slides")
    h = np.stack(embeddings)
    if fits_head:
        head = fit_linear_head(h, part.class_numbers(), part.patients())
        model.classifier = head.to(device)
    model.statistics |= training_statistics(part, h, task.settings.seed)
    seen = task.monitor.validate(model.encoder, device, task.steps)
    model.encoder.train(was_training)
    metrics = replace(
        model.card.metrics,
        knn=seen.knn,
        knn_held_out=task.monitor.held_out,
        site_knn=seen.site_knn,
        spread=seen.spread,
        effective_rank=seen.effective_rank,
    )
    model.card = replace(model.card, metrics=metrics)
    return model


def _card(task: "SlideTrainingTask", step: int) -> ModelCard:
    settings, cohort = task.settings, task.cohort
    patients = sorted({slide.patient for slide in cohort if slide.patient})
    key = task.run.patient_key() if patients and task.processes.first else b""
    return ModelCard(
        architecture=Architecture(task.encoder.name, task.encoder.config),
        tokens=TokenKind.of(cohort.facts, cohort.dim),
        training=TrainingSummary(
            slides=len(cohort),
            tokens=sum(len(slide) for slide in cohort),
            patients=len(patients) or None,
            class_counts=Counter(slide.label for slide in cohort if slide.label),
            slide_fingerprints=frozenset(task.fingerprints),
            patient_hmacs=frozenset(patient_hmac(name, key) for name in patients),
            earlier=task.earlier,
            epochs=settings.epochs,
            steps=task.steps,
            batch_size=task.plan.batch,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            head=settings.head,
            seed=settings.seed,
            site_batches=settings.site_batches,
            negatives=settings.negatives if settings.objective == "simclr" else None,
            from_pretrained=settings.init is not None,
            frozen_encoder=settings.freeze,
            epoch_chosen_by=LAST,
            torch=torch.__version__,
        ),
        classes=tuple(task.classes),
        objective=settings.objective,
        views=settings.views,
        metrics=Metrics(step=step),
        licence=UNSTATED_LICENCE,
        encoder_terms=terms_of(cohort.facts.encoder),
        version=__version__,
    )
