"""All that differs between training slide models and training patch encoders."""

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from spt_core.training.batch import BatchPlan, ViewBatch
from spt_core.training.signals import Validation
from spt_core.training.step import ExactStep


class RunSettings(Protocol):
    """What a run needs to know of the settings of either training."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def warm_up(self) -> float: ...
    @property
    def head(self) -> str | None: ...
    @property
    def mixed_precision(self) -> bool: ...
    @property
    def checkpoint_steps(self) -> int: ...
    @property
    def validate_epochs(self) -> int | None: ...


class TrainingTask(Protocol):
    """What is trained, on which batches, what is looked at, how a model is saved.

    Attributes
    ----------
    compute
        The gradient of a batch; it holds the encoder and the objective.
    plan
        The batches.
    steps
        How many of them make the run.
    labels : (items, ...) or None
        What the objective is told of each item beside its embedding.
    items
        What a batch is made of, in the plural: slides or patches.
    """

    compute: ExactStep
    plan: BatchPlan
    steps: int
    labels: Tensor | None
    items: str

    @property
    def data_hash(self) -> str:
        """A hash of what is learned from, in its order; empty where none is kept."""

    @property
    def watched(self) -> int:
        """How many items :meth:`validate` looks at."""

    def validate(self, step: int) -> Validation:
        """What the embeddings look like now."""

    def score(self, seen: Validation, loss: float) -> float | None:
        """How good the model is, greater being better; None to keep no best one."""

    def save(self, path: Path, step: int) -> None:
        """Write the model as it is now; called in the first process alone."""

    def epoch_event(
        self, epoch: int, step: int, loss: float, rate: float, per_second: float
    ) -> Any:
        """What is reported at the end of an epoch."""

    def why_diverged(self, batch: ViewBatch) -> str:
        """What may be wrong with a batch, and what to do about it."""
