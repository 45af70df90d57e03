"""An evaluation as files: a table to read, numbers to compute with, each slide."""

import csv
import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from spt_core._version import __version__
from spt_core.files import written_whole
from spt_core.learning.model_card import Calibration
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.evaluation import Evaluation
from spt_core.studies.methods import CALIBRATED, OWN
from spt_core.studies.scores import METRICS

TITLES = {"accuracy": "mean class accuracy", "f1": "F1", "auc": "AUC"}


def table(found: Evaluation) -> str:
    """The table as Markdown."""
    head = ["method", "embedding", *(TITLES[m] for m in METRICS), "calibration error"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in found.rows:
        cells = [
            f"{mean:.3f} ± {sd:.3f}" for mean, sd in (row.values[m] for m in METRICS)
        ]
        error = f"{row.calibration_error:.3f}"
        lines.append(" | ".join((row.method, row.embedding, *cells, error)))
    return "\n".join(f"| {line} |" for line in lines)


def page(found: Evaluation, model_name: str) -> str:
    seeds = f", {found.seeds} seeds" if found.seeds > 1 else ""
    said = "".join(f"- {remark}\n" for remark in found.remarks)
    return (
        f"# Evaluation of {model_name}\n\n{found.slides} slides of {found.patients} "
        f"patients, classes {', '.join(found.classes)}; {found.folds} folds that "
        f"share no patient{seeds}. Mean ± standard deviation over folds.\n\n"
        f"{table(found)}\n\n{said}\nnapari-spt {__version__}. {NOT_FOR_DIAGNOSIS}\n"
    )


def write_evaluation(folder: Path, found: Evaluation, model_name: str) -> None:
    """Write ``evaluation.md``, ``evaluation.json`` and ``predictions.csv``."""
    with written_whole(folder / "evaluation.md") as temporary:
        temporary.write_text(page(found, model_name), encoding="utf-8")
    with written_whole(folder / "evaluation.json") as temporary:
        plain: dict[str, Any] = asdict(found)
        del plain["predictions"]
        for row in plain["rows"]:  # JSON knows no NaN
            for name, pair in row["values"].items():
                row["values"][name] = [v if isfinite(v) else None for v in pair]
        plain |= {"model": model_name, "version": __version__}
        text = json.dumps(plain, indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    with (
        written_whole(folder / "predictions.csv") as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, ("slide", "label", *found.classes))
        writer.writeheader()
        writer.writerows(found.predictions)


def calibration_of(found: Evaluation) -> Calibration:
    """What a model's card holds of its calibration.

    No temperature where it did not help on slides that it was not fitted to.
    """
    return Calibration(
        temperature=found.temperature if found.calibration_helps else None,
        slides=found.slides,
        folds=found.folds,
        error_before=found.row(OWN).calibration_error,
        error_after=found.row(CALIBRATED).calibration_error,
    )
