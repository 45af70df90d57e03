"""What a study ended with."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StudyResult:
    """
    Attributes
    ----------
    status
        ``finished``, ``paused``, ``stopped`` or ``discarded``.
    says
        What was found, in sentences.
    model
        What is handed over: a model, or an encoder; None where there is none yet.
    """

    folder: Path
    status: str
    says: tuple[str, ...] = ()
    model: Path | None = None
    report: Path | None = None
    run: int = 0
