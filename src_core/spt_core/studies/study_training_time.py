"""How long a study's trainings will take, by a few steps with made-up tokens."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.devices import choose_device
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.settings import TrainSettings
from spt_core.learning.task import Epoch
from spt_core.learning.training import train
from spt_core.studies.study_model import train_settings
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.tokens import SlideLabel, TokenFacts, Tokens, write_tokens
from spt_core.tokens.labels import Labels

# Of the made-up slides: as few as show what a step takes.
SLIDES, STEPS = 16, 6
MOST_PATCHES = 2000
# Looks of a training at its slides, and at how many at most.
LOOKS, MOST_LOOKED_AT = 20, 512


@dataclass(frozen=True)
class CohortSize:
    """
    Attributes
    ----------
    labelled
        How many of the slides have a label.
    patches
        Of a slide, on average.
    dim
        Numbers of a patch.
    """

    slides: int
    labelled: int
    patches: int
    dim: int


def training_seconds(settings: StudySettings, size: CohortSize) -> float:
    """Of all trainings, in the folds and of the model that is handed over.

    Several at a time share the cores, so that together they take as long as one after
    the other.
    """
    known: dict[tuple[str, str | None], tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cohort = _made_up(Path(folder), size)
        total = 0.0
        for one, slides, times in trainings(settings, size, cohort, Path(folder)):
            key = (one.objective, one.model)
            if key not in known:
                out = Path(folder) / f"run{len(known)}"
                known[key] = _paces(replace(one, out=str(out)), cohort)
            step, look = known[key]
            whole = one.resolved(slides, on_cpu=_on_cpu(settings))
            seen = int(whole.epochs or 1) * max(1, slides // int(whole.batch_size or 1))
            seconds = seen * int(whole.batch_size or 1) * step
            looks = min(LOOKS, int(whole.epochs or 1)) * min(slides, MOST_LOOKED_AT)
            more = max(1.0, size.patches / MOST_PATCHES) if one.model else 1.0
            total += times * more * (seconds + looks * look)
    return total


def trainings(
    settings: StudySettings, size: CohortSize, cohort: Cohort, folder: Path
) -> Iterator[tuple[TrainSettings, int, int]]:
    """Each kind of training, of how many slides it learns, and how often it is done."""

    def asked(aim: Goal, steps: int | None, **changes: Any) -> TrainSettings:
        goal = replace(settings, goal=aim.value, init=None)
        plain = train_settings(goal, folder, folder, steps, cohort)
        return replace(
            plain, labels="labels.csv" if plain.supervised else None, **changes
        )

    aim, once = settings.aim, settings.pretrain_once
    part = 1 - 1 / settings.folds
    in_folds = settings.folds * settings.seeds if settings.evaluates else 0
    if aim.pretrains:
        steps = settings.pretrain_steps if aim is Goal.BOTH else settings.steps
        before = asked(Goal.PRETRAIN, steps)
        if in_folds and not (once and aim is Goal.BOTH):
            yield before, max(2, round(part * size.slides)), in_folds
        yield before, size.slides, 1
    if aim.needs_labels:
        own = asked(Goal.CLASSIFY, settings.steps)
        yield own, max(2, round(part * size.labelled)), in_folds
        yield own, size.labelled, 1
    if in_folds:
        beside = asked(Goal.CLASSIFY, settings.steps, model="abmil")
        yield beside, max(2, round(part * size.labelled)), in_folds


def _paces(settings: TrainSettings, cohort: Cohort) -> tuple[float, float]:
    """Seconds that a slide takes in a step, and in a look at it."""
    began, rates = time.perf_counter(), []
    settings = replace(settings, steps=STEPS, epochs=None)
    with closing(train(settings, cohort=cohort)) as events:
        for event in events:
            if isinstance(event, Epoch):
                rates.append(event.slides_per_second)
    step = 1 / float(np.median(rates))
    looked = time.perf_counter() - began - len(rates) * len(cohort) * step
    return step, max(0.0, looked) / (len(rates) * len(cohort))


def _on_cpu(settings: StudySettings) -> bool:
    return choose_device(settings.device).type == "cpu"


def _made_up(folder: Path, size: CohortSize) -> Cohort:
    """Slides of as many patches as those of the study, of two classes."""
    rng = np.random.default_rng(0)
    patches = max(4, min(size.patches, MOST_PATCHES))
    side = int(np.ceil(np.sqrt(patches)))
    p = np.stack(np.divmod(np.arange(patches), side), axis=1)
    rows = {}
    for number in range(SLIDES):
        name = f"made-up-{number}"
        facts = TokenFacts(
            name=name,
            encoder="made-up",
            mpp=0.5,
            patch_size=100,
            l0_patch_xy=(100, 100),
            l0_step_xy=(100, 100),
            slide_fingerprint=name,
        )
        x = rng.normal(size=(patches, size.dim)).astype(np.float32)
        tokens = Tokens(x, p, p[:, ::-1] * 100, facts)
        write_tokens(folder / "features" / f"{name}.h5", tokens)
        rows[name] = SlideLabel(name, "ab"[number % 2], f"patient {number}")
    return open_cohort(folder / "features", Labels(rows))
