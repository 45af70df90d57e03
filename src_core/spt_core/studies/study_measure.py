"""How long the slides of a study will take to encode, measured on a few patches."""

import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.patches.encode import encode_slide
from spt_core.studies.study_check import StudySlides
from spt_core.studies.study_finding import About, Finding, doubtful, fine
from spt_core.studies.study_settings import StudySettings

PATCHES = 128
SECONDS = 20.0
LONG_HOURS = 24


def measure_study(settings: StudySettings) -> list[Finding]:
    """Encode a few patches of one slide, and keep nothing of it."""
    slides = StudySlides(settings)
    slides.findings()
    total = slides.patches_left()
    if not total:
        return []
    rate = _rate(settings, slides.left()[0])
    if rate is None:
        return []
    seconds = total / rate
    ready = time.strftime("%d %b %H:%M", time.localtime(time.time() + seconds))
    says = (
        f"Encoding runs at {rate:.0f} patches per second here: about "
        f"{in_words(seconds)}, done about {ready}. Training comes on top."
    )
    if seconds > LONG_HOURS * 3600:
        return [doubtful(About.TIME, says, "A GPU, or a quicker encoder, shortens it.")]
    return [fine(About.TIME, says)]


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
