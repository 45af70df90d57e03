"""The model that a study hands over: trained on all slides as the folds chose."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import Any

from spt_core.learning.cohort import Cohort
from spt_core.learning.settings import TrainSettings
from spt_core.learning.sites import usual_kind, usual_negatives
from spt_core.learning.training import TrainResult
from spt_core.studies.bench import Bench
from spt_core.studies.cell_work import begun_or_new
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.training.run_folder import RunFolder

Events = Generator[Any, None, TrainResult]


@dataclass(frozen=True)
class ChosenSteps:
    """How long the model that is handed over is trained.

    Attributes
    ----------
    steps, before
        With labels and before, without; None takes what ``spt train`` would.
    says
        How they were chosen, a sentence.
    """

    steps: int | None
    before: int | None
    says: str


def chosen_steps(settings: StudySettings, bench: Bench | None) -> ChosenSteps:
    """By the folds: the median of their best steps, or of all that they took."""
    if bench is None:
        return ChosenSteps(settings.steps, settings.pretrain_steps, "")
    cells = [cell for cell in bench.cells() if cell.method == settings.method]
    done = [cell for cell in cells if bench.folder.is_done(cell) and not cell.permuted]
    facts = [bench.result(cell).facts for cell in done]
    if not facts:
        return ChosenSteps(settings.steps, settings.pretrain_steps, "")
    best = [
        int(one["best_step"])
        for cell, one in zip(done, facts, strict=True)
        if settings.aim.needs_labels and len(bench.division(cell).val)
    ]
    before = [int(one["steps_before"]) for one in facts if "steps_before" in one]
    early = median_low(before) if before else settings.pretrain_steps
    if best:
        steps = max(1, median_low(best))
        says = (
            "the median of the best steps of the folds: "
            f"{', '.join(map(str, sorted(best)))}; in whole epochs"
        )
    else:
        steps = median_low(int(one["steps"]) for one in facts)
        says = "as in the folds, where nothing chose among steps"
    return ChosenSteps(steps, early, says)


def train_settings(
    settings: StudySettings,
    features: Path,
    out: Path,
    steps: int | None,
    cohort: Cohort,
) -> TrainSettings:
    """Of the last training: with labels, or without for the goal pretrain.

    Tokens are standardised and slides kept apart as in the folds, which may see more
    labels than a training without them; a model to start from goes on as it was.
    """
    standardise = settings.standardise
    if standardise is None and settings.init is None:
        standardise = usual_kind(cohort, [])
    with_labels = settings.aim.needs_labels
    objective = "classify" if with_labels else settings.details.pretraining
    negatives = None
    if standardise is not None:
        negatives = usual_negatives(
            objective,
            standardise,
            cohort,
            batch_size=settings.batch_size,
            site_batches=settings.site_batches,
        )
    return TrainSettings(
        features=str(features),
        objective=objective,
        out=str(out),
        labels=settings.labels if with_labels else None,
        model=settings.model,
        init=settings.init,
        views=settings.views,
        steps=steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        **settings.details.of_training(),
        standardise=standardise,
        site_batches=settings.site_batches,
        negatives=negatives,
        seed=settings.seed,
        device=settings.device,
    )


def pretrain_settings(
    settings: StudySettings,
    features: Path,
    out: Path,
    steps: int | None,
    cohort: Cohort,
) -> TrainSettings:
    """Of what comes before it, for the goal both."""
    plain = train_settings(
        replace(settings, goal=Goal.PRETRAIN.value), features, out, steps, cohort
    )
    return replace(plain, out=str(out))


def learned_from(cohort: Cohort, *, with_labels: bool) -> Cohort:
    """All slides but those of a split ``test`` that the labels name.

    A training without labels has them to be watched by alone: its slides' nearest, of
    other patients, are asked for the class beside the site. They choose nothing.
    """
    slides = [
        replace(slide, split=None)
        for slide in cohort
        if slide.split != "test" and (slide.label or not with_labels)
    ]
    return replace(cohort, slides=slides, remarks=())


def trained(
    folder: StudyFolder,
    settings: TrainSettings,
    cohort: Cohort,
    end_early: Callable[[], bool],
) -> Events:
    """Train, or go on with it; patients are known by the study's key."""
    RunFolder(Path(settings.out)).take_key(folder.path)
    return (yield from begun_or_new(settings, cohort, end_early=end_early))


def steps_sentence(result: TrainResult, chosen: ChosenSteps, kept: str) -> str:
    how = f" ({chosen.says})" if chosen.says and not kept else ""
    early = (
        f" It was stopped on request, and the {kept} model was kept." if kept else ""
    )
    return f"The model that is handed over took {result.steps} steps{how}.{early}"
