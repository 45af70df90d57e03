"""What tests of studies are made of: settings that take seconds, and painted slides."""

import time

from spt_core.studies.study_settings import StudySettings

QUICK = {"folds": 2, "steps": 4, "pretrain_steps": 4, "workers": 1, "device": "cpu"}


def study_of(cohort, out, goal="classify", **changes):
    labels = str(cohort / "labels.csv")
    values = {"features": str(cohort / "features"), "labels": labels, **QUICK}
    return StudySettings(out=str(out), goal=goal, **{**values, **changes})


def without_labels(cohort, out, **changes):
    return study_of(cohort, out, "pretrain", **{"labels": None, **changes})


def of_slides(slides, out, goal="pretrain", **changes):
    return StudySettings(
        out=str(out), goal=goal, slides=str(slides), steps=2, device="cpu", **changes
    )


def painted_slides(folder):
    """Not what shows the truth about them."""
    return sorted(path for path in folder.rglob("*.tif*") if "truth" not in str(path))


def until(events, stage, folder):
    """Go on to the first step of a stage."""
    for event in events:
        state = folder.state()
        if state.stage == stage and type(event).__name__ == "Progress":
            return
    raise AssertionError("it ended before")


def wait_for(true, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
