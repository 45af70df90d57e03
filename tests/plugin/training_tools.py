"""A study as its folder says it: recorded, without a process that does it."""

import json
import os
import time
from contextlib import ExitStack

from spt_core.files import held_by_one
from spt_core.studies.study_folder import StudyFolder, StudyState
from spt_core.studies.study_settings import StudySettings

STAGES = ("check", "evaluate", "train", "report")


class RecordedStudy:
    """Writes what ``spt study`` writes, and holds its lock while it seems to run."""

    def __init__(self, path, features, labels=None):
        self.folder = StudyFolder(path)
        self.folder.begin(
            StudySettings(
                out=str(path),
                goal="classify" if labels else "pretrain",
                features=str(features),
                labels=str(labels) if labels else None,
                device="cpu",
            )
        )
        self._held = ExitStack()

    def hold(self):
        assert self._held.enter_context(held_by_one(self.folder.path / ".lock"))

    def let_go(self):
        self._held.close()

    def say(self, status, stage="train", **changes):
        values = {
            "message": "", "done": 30, "total": 100, "rate": 0.5, "run": 1,
            "pid": os.getpid(), "request": "", "began": time.time() - 60,
            "when": time.time(),
        } | changes  # fmt: skip
        self.folder.write_state(StudyState(status, stage, STAGES, **values))

    def tell(self, *events, stage="train", run=1):
        with self.folder.events.open("ab") as file:
            for event in events:
                line = {"when": time.time(), "stage": stage, "run": run, **event}
                file.write(json.dumps(line).encode() + b"\n")


def epochs(losses, first=1):
    return [
        {
            "event": "epoch", "epoch": step, "step": step, "loss": loss,
            "learning_rate": 1e-3, "slides_per_second": 12.5,
        }
        for step, loss in enumerate(losses, start=first)
    ]  # fmt: skip


def validation(step, loss=None, knn=None, spread=0.9, rank=7.4, **more):
    return {
        "event": "validation", "step": step, "spread": spread, "knn": knn,
        "effective_rank": rank, "loss": loss, **more,
    }  # fmt: skip
