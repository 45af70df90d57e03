"""What a benchmark found: the lines of its tables and what its figures show."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.studies.divisions import Divisions
from spt_core.studies.paired import Difference
from spt_core.studies.scores import OutOfFold
from spt_core.studies.table import Score

# The probes that tables name are these, and kNN, linear and own classifier of
# ``methods``.
MLP = "MLP"
SUPERVISED = (
    "abmil",
    "clam",
    "dsmil",
    "transmil",
    "hipt",
    "suspt",
    "classify",
    "pretrained-classify",
    "finetune",
)


@dataclass(frozen=True)
class Line:
    """What one line of a table is about.

    Attributes
    ----------
    features
        Short name of the features' folder; "" where there is one only.
    method
        Such as ``mean`` or ``ssspt-simclr``.
    probe
        ``kNN``, ``linear``, ``MLP`` or ``own classifier``.
    variant
        Of an ablation, such as ``split + crop`` or ``64 tokens``; "" in the main table.
    """

    features: str
    method: str
    probe: str
    variant: str = ""


@dataclass(frozen=True, eq=False)
class BenchmarkRow:
    """One line of a table, with what it rests on.

    Attributes
    ----------
    values
        ``accuracy``, ``f1``, ``auc``, ``auprc``, ``brier``, and ``kappa`` where the
        classes are ordered.
    pooled
        The same of all folds together, and ``slope`` and ``ece``.
    patient_values
        Of patients; None where each has one slide.
    difference
        Of accuracy, to the baseline with the same probe; None for the baseline.
    site_knn
        kNN of site, leaving the patient out; None without sites.
    cells, missing
        Cells that this line rests on, and those that failed or are not done.
    seconds
        Of training and embedding, mean per cell.
    runs
        For each seed in turn one per repeat, so that run ``i`` is of repeat
        ``i % repeats``. Methods without chance have one per repeat.
    run_names
        Repeat and seed of each run; needed where all cells of one have failed, and
        none where the runs are complete.
    """

    line: Line
    values: dict[str, Score]
    pooled: dict[str, float]
    patient_values: dict[str, Score] | None
    difference: Difference | None
    site_knn: Score | None
    cells: int
    missing: int
    seconds: float
    runs: tuple[OutOfFold, ...]
    run_names: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class FailedCell:
    """A cell without a result, and why."""

    cell: str
    why: str


@dataclass(frozen=True, eq=False)
class SlideMap:
    """All labelled slides by one method, of the first fold and seed.

    Attributes
    ----------
    h : (n, dim)
    is_test : (n,)
        Whether the first fold asks the slide.
    predicted : (n,)
        kNN's class out of fold, over all folds; -1 where a slide was not asked.
    """

    method: str
    features: str
    h: NDArray[np.float32]
    is_test: NDArray[np.bool_]
    predicted: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Control:
    """Scores with labels permuted between patients.

    ``low`` and ``high`` bound the 95 % interval of their mean.
    """

    line: Line
    scores: tuple[float, ...]
    chance: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Ablation:
    """Lines that differ in one thing; ordered ones are also drawn as a curve."""

    title: str
    is_ordered: bool
    rows: tuple[BenchmarkRow, ...]


@dataclass(frozen=True, eq=False)
class AttentionExample:
    """Where a model looked on one asked slide.

    Attributes
    ----------
    name
        As it may be written: a pseudonym, or the slide's name if that was asked for.
    p : (n, 2) grid (row, col)
    attention : (n,)
        Any scale: it is drawn as times the slide's average.
    label, predicted
        The slide's class and the model's answer, out of fold.
    share
        The answer's share, by the model's own classifier or a probe.
    """

    name: str
    p: NDArray[np.int64]
    attention: NDArray[np.floating]
    label: str
    method: str
    predicted: str = ""
    share: float | None = None


@dataclass(frozen=True, eq=False)
class Benchmark:
    """All that a benchmark found, ready to be written as a report.

    Attributes
    ----------
    ordered
        Whether the classes are grades, in their order.
    y : (n,)
        Classes of the labelled slides, in the order of the runs' rows.
    names
        As they may be written: pseudonyms, or the slides' names if asked for.
    patients
        Never written out.
    numbers : (n,)
        The slides' numbers in ``divisions``; None where these are their rows.
    baseline
        The method that others are compared with.
    supervised
        The methods that learn from labels; tables show them apart.
    learned_from
        What self-supervised methods learned from, in words.
    position_similarity : (k, k, side, side)
        As ``position_similarity`` of ``benchmark_positions`` gives it.
    settings
        Plain data, as ``benchmark.yaml`` has it.
    command
        As it was given, with words for places on a computer.
    hashes
        Of the labels, the features and the code, by what they are of.
    """

    title: str
    classes: tuple[str, ...]
    ordered: bool
    y: NDArray[np.int64]
    names: tuple[str, ...]
    patients: tuple[str, ...]
    sites: tuple[str | None, ...]
    is_patient_known: bool
    divisions: Divisions
    folds: int
    repeats: int
    seeds: tuple[int, ...]
    baseline: str
    rows: tuple[BenchmarkRow, ...]
    ablations: tuple[Ablation, ...] = ()
    controls: tuple[Control, ...] = ()
    failed: tuple[FailedCell, ...] = ()
    maps: tuple[SlideMap, ...] = ()
    position_similarity: NDArray[np.floating] | None = None
    attention: tuple[AttentionExample, ...] = ()
    remarks: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    supervised: tuple[str, ...] = SUPERVISED
    numbers: NDArray[np.int64] | None = None
    learned_from: str = "the training part of each fold"
