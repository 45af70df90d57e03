"""An evaluation as files: a table to read, numbers to compute with, each slide."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spt_core._version import __version__
from spt_core.csv_files import write_csv
from spt_core.files import written_whole
from spt_core.learning.model_card import Calibration
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.evaluation import Evaluation
from spt_core.studies.methods import CALIBRATED, OWN
from spt_core.studies.scores import TABLE_METRICS
from spt_core.studies.table import SLIDES
from spt_core.studies.table_text import (
    TITLES,
    markdown,
    markdown_table,
    score_cell,
    without_nan,
)


def table(found: Evaluation) -> str:
    """The table as Markdown."""
    head = ["method", "embedding", "of", *(TITLES[m] for m in TABLE_METRICS)]
    head += ["calibration error"]
    rows = []
    for row in found.rows:
        cells = [score_cell(row.values[metric]) for metric in TABLE_METRICS]
        error = f"{row.calibration_error:.3f}"
        rows.append((row.method, row.embedding, row.level, *cells, error))
    return markdown_table(head, rows)


def page(found: Evaluation, model_name: str) -> str:
    said = "".join(f"- {markdown(remark)}\n" for remark in found.remarks)
    return (
        f"# Evaluation of {markdown(model_name)}\n\n{markdown(how(found))}\n\n"
        f"{table(found)}\n\n"
        f"{what_it_means(found)}\n\n{said}\nnapari-spt {__version__}. "
        f"{NOT_FOR_DIAGNOSIS}\n"
    )


def how(found: Evaluation) -> str:
    """Which slides were asked, and what was learned from."""
    asked = f"{found.slides} slides"
    if found.patients is not None:
        asked += f" of {found.patients} patients"
    words = [f"{asked}, classes {', '.join(found.classes)}."]
    if found.folds is None:
        words.append(
            f"Learned from the {found.learned_from} slides of the split 'train', "
            "tested on those of 'test'; 'val' took no part."
        )
    else:
        share = "share no patient" if found.patients is not None else "share no slide"
        times = f", drawn {found.repeats} times" if found.repeats > 1 else ""
        words.append(f"{found.folds} folds that {share}{times}.")
    if found.models > 1:
        words.append(f"{found.models} models.")
    return " ".join(words)


def what_it_means(found: Evaluation) -> str:
    over = "patients" if found.patients is not None else "slides"
    runs = [
        name
        for name, count in (
            ("folds", found.folds or 1),
            ("drawings of the folds", found.repeats),
            ("models", found.models),
        )
        if count > 1
    ]
    spread = f"Mean ± standard deviation over {' and '.join(runs)}" if runs else "Score"
    return (
        f"{spread}, and in brackets the 95 % interval from {found.draws:,} resamplings "
        f"of the {over} within their class. The interval is of these fitted models: "
        "how much a repeated training would vary is not in it. The AUC is measured "
        "within each fold and averaged."
    )


def write_evaluation(folder: Path, found: Evaluation, model_name: str) -> None:
    """Write ``evaluation.md``, ``evaluation.json`` and ``predictions.csv``."""
    with written_whole(folder / "evaluation.md") as temporary:
        temporary.write_text(page(found, model_name), encoding="utf-8")
    with written_whole(folder / "evaluation.json") as temporary:
        plain: dict[str, Any] = asdict(found)
        del plain["predictions"]
        plain |= {"model": model_name, "version": __version__}
        text = json.dumps(without_nan(plain), indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    columns = list(found.predictions[0]) if found.predictions else ["slide", "label"]
    rows = ([one[name] for name in columns] for one in found.predictions)
    write_csv(folder / "predictions.csv", columns, rows)


def calibration_of(found: Evaluation) -> Calibration:
    """What a model's card holds of its calibration.

    No temperature where it did not help on slides that it was not fitted to.
    """
    helps = found.calibration_helps
    is_measured = any(row.method == CALIBRATED for row in found.rows)
    return Calibration(
        temperature=found.temperature if helps else None,
        slides=found.slides,
        folds=found.folds,
        error_before=found.row(OWN, level=SLIDES).calibration_error,
        error_after=found.row(CALIBRATED).calibration_error if is_measured else None,
    )
