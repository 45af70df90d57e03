"""What a model or an encoder has learned from, so that it is known again. No torch.

Slides are known by fingerprints of their pixels, patients by HMACs under a random key
that stays in the run's folder.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

# The objectives that learn from labels.
SUPERVISED = ("supcon", "classify")


@dataclass(frozen=True)
class Stage:
    """One of the trainings that led to a model.

    Attributes
    ----------
    objective
        What it was trained by.
    slide_fingerprints, patient_hmacs
        What it was trained on; patients under a run's key.
    same_key
        Whether its patients' HMACs are under the key of the model's own run.
    known
        False for what came before a model that does not say what it began from.
    """

    objective: str | None
    slide_fingerprints: frozenset[str]
    patient_hmacs: frozenset[str]
    same_key: bool
    known: bool = True

    @property
    def with_labels(self) -> bool:
        return self.objective in SUPERVISED

    def has_slide(self, fingerprint: str) -> bool:
        return fingerprint in self.slide_fingerprints

    def has_patient(self, patient: str, key: bytes) -> bool:
        return patient_hmac(patient, key) in self.patient_hmacs


def patient_hmac(patient: str, key: bytes) -> str:
    """A patient's name as a model file may hold it."""
    return hmac.new(key, patient.encode(), hashlib.sha256).hexdigest()[:32]


class TakesKey(Protocol):
    def take_key(self, other: Path) -> bool: ...


def taken_over(
    stages: Sequence[Stage], run: TakesKey, folder: Path
) -> tuple[Stage, ...]:
    """Stages of what a run begins from, for its card.

    Their patients are known under the key in ``folder``. The run takes over that key
    where it has none yet; else the card says that it is another.
    """
    same = False
    if any(stage.patient_hmacs and stage.same_key for stage in stages):
        same = run.take_key(folder)
    return tuple(replace(stage, same_key=stage.same_key and same) for stage in stages)
