"""What a study found, read from its report; without torch, for a window.

Every answer here is a fold's: of a model that had not learned from the slide's patient.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.plain_data import json_of
from spt_core.studies.study_folder import StudyFolder
from spt_core.training.signals import tells_site_better

RESULT, RESULTS, PREDICTIONS = "result.json", "results.json", "predictions.csv"
REPORT = "report.html"
_KNN = "kNN"
_SHARE = "share of "
# No score is as large: one that is cannot be shown either.
_MOST = 1e9


@dataclass(frozen=True)
class ReportRow:
    """One method: mean class accuracy and its 95 % interval, from 0 to 1."""

    method: str
    probe: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """What the folds said of one slide.

    Attributes
    ----------
    slide
        Its pseudonym.
    label, said
        Its class, and the class that was answered.
    shares
        By class; the mean where it was asked several times.
    """

    slide: str
    label: str
    said: str
    shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class StudyReport:
    """
    Attributes
    ----------
    says
        Sentences, first things first.
    rows
        The study's own method first; none where nothing was measured.
    answers
        One per slide that was asked.
    reliability : (bins, 3)
        Mean confidence, share that was right, and slides, of the study's method.
    calibration_error
        By how much confidence and accuracy differ, from 0 to 1; None where not known.
    class_knn, site_knn
        How well neighbours tell the class and the site; None without sites.
    site_count
        Among how many sites.
    """

    folder: Path
    says: tuple[str, ...]
    method: str
    rows: tuple[ReportRow, ...] = ()
    classes: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    reliability: NDArray[np.float64] | None = None
    calibration_error: float | None = None
    class_knn: float | None = None
    site_knn: float | None = None
    site_count: int = 0

    @property
    def html(self) -> Path | None:
        path = StudyFolder(self.folder).report / REPORT
        return path if path.exists() else None

    @property
    def model(self) -> Path | None:
        path = StudyFolder(self.folder).model
        return path if path.exists() else None

    @property
    def encoder(self) -> Path | None:
        """Of the goal patches: the patch encoder that was trained."""
        path = StudyFolder(self.folder).encoder
        return path if path.exists() else None

    @property
    def knows_site_better(self) -> bool:
        return (
            self.site_knn is not None
            and self.class_knn is not None
            and tells_site_better(
                self.site_knn, self.site_count, self.class_knn, len(self.classes)
            )
        )

    def confusion(self) -> NDArray[np.int64]:
        """Slides by their class (rows) and the answer (columns)."""
        found = np.zeros((len(self.classes),) * 2, np.int64)
        number = {name: index for index, name in enumerate(self.classes)}
        for one in self.answers:
            found[number[one.label], number[one.said]] += 1
        return found

    def slides_of(self, label: str, said: str) -> list[Answer]:
        """The slides of a cell of the confusion matrix, the most wrong one first."""
        own = self.classes.index(label)
        found = [one for one in self.answers if (one.label, one.said) == (label, said)]
        return sorted(found, key=lambda one: (one.shares[own], one.slide))


def read_study_report(folder: str | Path) -> StudyReport:
    """Read what a study has found so far."""
    report = StudyFolder(Path(folder)).report
    try:
        return _report_in(Path(folder), report)
    except InputError:
        raise
    # What its files lack, or state otherwise.
    except (
        LookupError, ValueError, TypeError, AttributeError, csv.Error, OSError
    ) as error:  # fmt: skip
        raise InputError(
            f"{report} is damaged: its files lack something, or state it otherwise "
            f"({str(error)[:80]}). Remove it, and let the study make another."
        ) from error


def _report_in(folder: Path, report: Path) -> StudyReport:
    plain = _read(report / RESULT)
    method = str(plain["method"])
    rows = tuple(
        ReportRow(
            str(one["method"]),
            str(one["probe"]),
            *(_number(one[name]) for name in ("mean", "low", "high")),
        )
        for one in plain["rows"]
    )
    said = tuple(map(str, plain["says"]))
    if not said:
        raise ValueError("it says nothing")
    ours = next((row for row in rows if row.method == method), None)
    if ours is None or not (report / RESULTS).exists():
        return StudyReport(folder, said, method, rows)
    found = _read(report / RESULTS)
    classes = tuple(map(str, found["classes"]))
    lines = [
        row for row in found["rows"] if (row["method"], row["variant"]) == (method, "")
    ]
    own = next((row for row in lines if row["probe"] == ours.probe), None)
    near = next((row for row in lines if row["probe"] == _KNN), None)
    site = near["site_knn"] if near else None
    return StudyReport(
        folder,
        said,
        method,
        rows,
        classes,
        tuple(_answers(report / PREDICTIONS, ours, classes)),
        np.array(own["reliability"], float).reshape(-1, 3) if own else None,
        _known(own["pooled"].get("ece")) if own else None,
        _known(near["values"]["accuracy"]["mean"]) if near and site else None,
        _known(site["mean"]) if site else None,
        len(found.get("sites", ())),
    )


def _number(value: Any) -> float:
    """A score; NaN where there is none."""
    if not isinstance(value, int | float) or abs(value) > _MOST:
        raise TypeError(f"{str(value)[:20]!r} is no score")
    return float(value)


def _known(value: Any) -> float | None:
    return None if value is None else _number(value)


def _answers(path: Path, ours: ReportRow, classes: tuple[str, ...]) -> list[Answer]:
    labels: dict[str, str] = {}
    shares: dict[str, list[list[float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["method"], row["probe"], row["variant"])
            if key != (ours.method, ours.probe, ""):
                continue
            labels[row["slide"]] = classes[classes.index(row["label"])]
            each = [float(row[_SHARE + name]) for name in classes]
            if not np.isfinite(each).all():
                raise ValueError("a share is no number")
            shares.setdefault(row["slide"], []).append(each)
    found = []
    for slide, several in shares.items():
        mean = np.mean(several, axis=0)
        said = classes[int(mean.argmax())]
        found.append(Answer(slide, labels[slide], said, tuple(mean.tolist())))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json_of(path))
    except FileNotFoundError:
        raise InputError(
            f"{path.parent.parent} holds no result yet: the study is not finished."
        ) from None
    except (ValueError, TypeError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
