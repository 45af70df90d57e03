"""Make the bundled slide model again: a demonstration on synthetic tissue.

    python benchmarks/site_learning.py paint --work build/sites
    python scripts/make_bundled_slide_model.py

learns the labels of three of the cohorts that the first command paints, 160 patients of
15 sites with one slide each, calibrates on another one and is judged on a third, both
of other seeds. What is done already in ``--work`` is not done again. ``--install`` puts
the result into the package.
"""

import argparse
import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

from _bundling import install, run

from spt_core import bundled
from spt_core.card_file import DataSource
from spt_core.learning.model_card import JudgedOn, model_metadata, read_model_card

ROOT = Path(__file__).parents[1]
LEARNED = ("minority-0", "minority-21", "minority-22")
# seed, slides, pixels per side
COHORTS = {"calibration": (202, 24, 4096), "fresh": (303, 24, 4096)}
# One layer, so that the attention is of the patches as they are: with two, patches know
# of their neighbours before they are looked at, and it finds tumour less well. Nor does
# learning without labels before help it (docs/bundled-models.md).
MODEL = ("--model", "small", "--depth", 1, "--heads", 6)
VIEWS = ("--no-crop",)
# It is asked about single slides of no known site: nothing to standardise by.
SITES = ("--standardise", "no")
STEPS = 1000


def cohort(work: Path, name: str) -> Path:
    """Slides, labels.csv and features of one cohort."""
    seed, slides, size = COHORTS[name]
    folder = work / name
    if not (folder / "labels.csv").exists():
        run("sample", folder, "--slides", slides, "--size", size, "--seed", seed)
    if not (folder / "features/summary.csv").exists():
        # One that was just made is taken before it is installed.
        made = work / "encoder.safetensors"
        encoder = made if made.exists() else bundled.ENCODER
        run("encode", folder, "--out", folder / "features", "--encoder", encoder)
    return folder


def learned_from(sites: Path, folder: Path) -> Path:
    """Features and labels.csv of all cohorts that are learned from, in one folder."""
    (folder / "features").mkdir(parents=True, exist_ok=True)
    rows = ["slide,label,patient\n"]
    for name in LEARNED:
        with (sites / name / "labels.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                slide = f"{name}-{row['slide']}"
                target = folder / "features" / f"{slide}.h5"
                if not target.exists():
                    shutil.copy(
                        sites / name / "features" / f"{row['slide']}.h5", target
                    )
                rows.append(f"{slide},{row['label']},{name}-{row['patient']}\n")
    (folder / "labels.csv").write_text("".join(rows), encoding="utf-8")
    return folder


def own_labels(folder: Path) -> Path:
    """Every cohort counts its patients from 1: call those of this one by its name."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    path = folder / "own-labels.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("slide", "label", "patient"))
        for row in rows:
            table.writerow((row["slide"], row["label"], folder.name + row["patient"]))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=ROOT / "build/bundled")
    parser.add_argument("--sites", type=Path, default=ROOT / "build/sites")
    parser.add_argument("--install", action="store_true", help="into the package")
    args = parser.parse_args()
    work = args.work
    learned = learned_from(args.sites, work / "learned")
    features, labels = learned / "features", learned / "labels.csv"
    tuned = work / "tuned"
    if not (tuned / "last.safetensors").exists():
        run("train", features, "--objective", "classify", "--labels", labels, *MODEL,
            *VIEWS, *SITES, "--steps", STEPS, "--out", tuned)  # fmt: skip
    calibrated = work / "slide_model.safetensors"
    if not calibrated.exists():
        second = cohort(work, "calibration")
        run("evaluate", tuned / "last.safetensors", second / "features", "--labels",
            own_labels(second), "--folds", 3, "--calibrate", calibrated,
            "--out", work / "calibration-report")  # fmt: skip
    third = cohort(work, "fresh")
    report = work / "fresh-report"
    run("evaluate", calibrated, third / "features", "--labels", own_labels(third),
        "--folds", 3, "--out", report)  # fmt: skip
    if args.install:
        judged = json.loads((report / "evaluation.json").read_text(encoding="utf-8"))
        card = replace(
            read_model_card(calibrated),
            demonstration=True,
            about="A demonstration on synthetic tissue. It names tumour kinds of "
            "sample slides alone; of any other slide it names none.",
            licence="BSD-3-Clause; its tokens are the bundled encoder's",
            data=(DataSource("160 slides painted as by spt sample", "BSD-3-Clause"),),
            judged_on=_judged_on("24 sample slides of another seed", judged),
        )
        install(calibrated, bundled.SLIDE_MODEL_FILE, model_metadata(card))


def _judged_on(cohort: str, judged: dict) -> JudgedOn:
    """How many slides, and how the model's own calibrated classifier did on them."""
    own = next(
        row
        for row in judged["rows"]
        if row["embedding"] == "whole"
        and row["level"] == "slides"
        and row["method"].endswith("calibrated")
    )
    return JudgedOn(
        cohort,
        **{name: judged[name] for name in ("slides", "patients", "folds")},
        **{name: score["mean"] for name, score in own["values"].items()},
        calibration_error=own["calibration_error"],
    )


if __name__ == "__main__":
    main()
