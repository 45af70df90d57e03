"""How long the slides of a study will take to encode, measured on a few patches."""

import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.patches.encode import encode_slide
from spt_core.studies.study_check import read_study_labels
from spt_core.studies.study_finding import About, Finding, doubtful, fine
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.studies.study_slides import DIM, StudySlides
from spt_core.tokens import Labels, read_index
from spt_core.tokens.finding import features_in, name_of

PATCHES = 128
SECONDS = 20.0
LONG_HOURS = 24
# Feature files that say how many patches a slide has.
LOOKED_AT = 20


def measure_study(settings: StudySettings) -> list[Finding]:
    """Encode a few patches of one slide and take a few steps; nothing of it is kept."""
    if settings.aim is Goal.PATCHES:
        says = (
            "Training an encoder takes hours without a graphics card. When it will be "
            "done is shown as soon as it runs."
        )
        return [fine(About.TIME, says)]
    labels = _labels(settings)
    slides = StudySlides(settings, labels)
    slides.findings()
    total = slides.patches_left()
    said, seconds = [], 0.0
    if total:
        rate = _rate(settings, slides.left()[0])
        if rate is None:
            return []
        seconds = total / rate
        said.append(
            f"Encoding runs at {rate:.0f} patches per second here: about "
            f"{in_words(seconds)}."
        )
    learning = _learning(settings, slides, labels, total)
    if learning is None:
        said.append("Training comes on top.")
    else:
        seconds += learning
        from spt_core.devices import choose_device

        is_cpu = choose_device(settings.device).type == "cpu"
        how = "without" if is_cpu else "with"
        said.append(
            f"Learning takes about {in_words(learning)} {how} a graphics card, by a "
            "few steps here."
        )
    ready = time.strftime("%d %b %H:%M", time.localtime(time.time() + seconds))
    what = "The study" if learning is not None else "Encoding"
    says = " ".join([*said, f"{what} is done about {ready}, if begun now."])
    if seconds > LONG_HOURS * 3600:
        do = "A GPU, a quicker encoder, or fewer steps shorten it."
        return [doubtful(About.TIME, says, do)]
    return [fine(About.TIME, says)] if seconds else []


def _labels(settings: StudySettings) -> Labels | None:
    try:
        return read_study_labels(settings) if settings.labels else None
    except (InputError, OSError):  # a finding of its own
        return None


def _learning(
    settings: StudySettings, slides: StudySlides, labels: Labels | None, left: int
) -> float | None:
    """Seconds of all trainings; None where that cannot be tried."""
    from spt_core.studies.study_training_time import CohortSize, training_seconds

    files = [
        path
        for folder in {settings.features, str(slides.folder.features)}
        if folder and Path(folder).is_dir()
        for path in features_in(Path(folder))
    ]
    names = {name_of(path) for path in files} | slides.names
    known = [read_index(path) for path in files[:: max(1, len(files) // LOOKED_AT)]]
    patches = [len(one.p) for one in known]
    if left:
        patches.append(left // max(1, len(slides.left())))
    dim = known[0].rows.shape[1] if known else slides.card.dim if slides.card else DIM
    labelled = sum(
        bool(row.label)
        for row in (labels.by_slide.values() if labels else ())
        if row.slide in names
    )
    size = CohortSize(len(names), labelled, round(sum(patches) / len(patches)), dim)
    try:
        return training_seconds(settings, size)
    except (InputError, RuntimeError, MemoryError):
        return None


def _rate(settings: StudySettings, path: Path) -> float | None:
    """Patches per second, without the time to load and to find tissue."""
    how = replace(settings.encode, device=settings.device, redo=True)
    began: tuple[float, int] | None = None
    rate: float | None = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            with closing(encode_slide(path, folder, how)) as events:
                for event in events:
                    if not isinstance(event, Progress):
                        continue
                    now = time.monotonic()
                    if began is None:
                        began, rate = (now, event.done), event.rate
                        continue
                    done = event.done - began[1]
                    if done >= PATCHES or now - began[0] > SECONDS:
                        return done / max(now - began[0], 1e-6)
                    rate = event.rate
        except InputError:
            return None
    return rate


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
