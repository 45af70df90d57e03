"""Recipes of the bundled slide model: does its attention find tumour?

    python benchmarks/site_learning.py paint
    python benchmarks/slide_model_trials.py train [RECIPE ...]
    python benchmarks/slide_model_trials.py table

Each recipe learns from one or more of the cohorts that ``site_learning.py`` paints, or
from one that is painted here, and is asked about another one, of other patients and
other sites: the area under the curve of its attention against the truth, slide by
slide. What is trained already in ``--work`` is not trained again.
"""

import argparse
import csv
import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _figures import RESULTS, _versions
from _insight_cohort import tumour_patches
from sklearn.metrics import roc_auc_score

from spt_core import bundled, load_model
from spt_core.cli import main as spt
from spt_core.insight.maps import attention_values
from spt_core.insight.predicting import predict, read_for
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train
from spt_core.learning.views import THE_PAPERS

ROOT = Path(__file__).parents[1]
ASKED = "minority-1"
FEW, MANY = ("minority-0",), ("minority-0", "minority-21")
ALL = ("minority-0", "minority-21", "minority-22")
# Painted by ``spt sample``: slides, sites.
PAINTED = {"26 sites": (156, 26), "20 sites": (240, 20)}
NO_CROP = replace(THE_PAPERS, crop=False)
SMALL_CROPS = replace(THE_PAPERS, crop_area=(60, 300))


@dataclass(frozen=True)
class Recipe:
    """Cohorts that it learns from, layers and heads, and other settings of the run."""

    cohorts: tuple[str, ...]
    layers: int
    heads: int
    options: dict[str, Any] = field(default_factory=dict)
    model: str = "small"
    before: str | None = None  # another recipe, whose encoder it begins from


def without_labels(cohorts: tuple[str, ...], batch: int, **options: Any) -> Recipe:
    changes = {"objective": "simclr", "steps": 300, "negatives": "site"}
    return Recipe(cohorts, 1, 6, {**changes, "batch_size": batch, **options})


RECIPES = {
    "40": Recipe(FEW, 2, 3, {"views": SMALL_CROPS, "steps": 500}),
    "40, 24 tokens": Recipe(
        FEW, 2, 3, {"views": replace(SMALL_CROPS, max_tokens=24), "steps": 500}
    ),
    "40, no crop": Recipe(FEW, 2, 3, {"steps": 500}),
    "40, one layer": Recipe(FEW, 1, 3, {"steps": 500}),
    "100": Recipe(MANY, 2, 3, {"views": SMALL_CROPS}),
    "100, one layer": Recipe(MANY, 1, 3),
    "100, six heads": Recipe(MANY, 1, 6),
    "100, ABMIL": Recipe(
        MANY, 0, 0, {"steps": 500, "views": THE_PAPERS}, model="abmil"
    ),
    "100, SimCLR alone": without_labels(MANY, 50, views=SMALL_CROPS),
    "100, SimCLR before": Recipe(MANY, 1, 6, before="100, SimCLR alone"),
    "160, six heads": Recipe(ALL, 1, 6),
    "160, SimCLR alone": without_labels(ALL, 80),
    "160, SimCLR before": Recipe(
        ALL, 1, 6, {"steps": 2000}, before="160, SimCLR alone"
    ),
    "160, per slide": Recipe(ALL, 1, 6, {"standardise": "slide"}),
    "156 of 26 sites": Recipe(("26 sites",), 1, 6, {"steps": 1500}),
    "240 of 20 sites": Recipe(("20 sites",), 1, 6, {"steps": 2000}),
}


def joined(sites: Path, work: Path, cohorts: tuple[str, ...]) -> Path:
    """All cohorts as one folder of features with its labels.csv."""
    folder = work / "+".join(cohorts).replace(" ", "-")
    if (folder / "labels.csv").exists():
        return folder
    if cohorts[0] in PAINTED:
        slides, count = PAINTED[cohorts[0]]
        words = ["sample", folder, "--slides", slides, "--size", 4096, "--seed", 101]
        spt([str(word) for word in (*words, "--sites", count)])
        spt(["encode", str(folder), "--out", str(folder / "features")])
        return folder
    (folder / "features").mkdir(parents=True, exist_ok=True)
    rows = ["slide,label,patient,site\n"]
    for name in cohorts:
        with (sites / name / "labels.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                made = sites / name / "features" / f"{row['slide']}.h5"
                shutil.copy(made, folder / "features" / f"{name}-{row['slide']}.h5")
                whose = (
                    row["label"],
                    *(f"{name} {row[k]}" for k in ("patient", "site")),
                )
                rows.append(",".join((f"{name}-{row['slide']}", *whose)) + "\n")
    (folder / "labels.csv").write_text("".join(rows), encoding="utf-8")
    return folder


def trained(args: argparse.Namespace, name: str) -> Path:
    """The model of a recipe."""
    recipe = RECIPES[name]
    out = args.work / "runs" / name.replace(", ", "+").replace(" ", "_")
    if (out / "last.safetensors").exists():
        return out / "last.safetensors"
    folder = joined(args.sites, args.work, recipe.cohorts)
    shutil.rmtree(out, ignore_errors=True)
    begun: dict[str, Any] = {"model": recipe.model}
    if recipe.before:
        begun = {"init": str(trained(args, recipe.before))}
    elif recipe.layers:
        begun["architecture"] = {"depth": recipe.layers, "heads": recipe.heads}
    settings = {"objective": "classify", "standardise": "no", "steps": 1000,
                "views": NO_CROP, **recipe.options}  # fmt: skip
    run = TrainSettings(
        features=str(folder / "features"), labels=str(folder / "labels.csv"),
        out=str(out), device="cpu", validate_epochs=1000, checkpoint_steps=1000,
        **begun, **settings,
    )  # fmt: skip
    for _ in train(run):
        pass
    return out / "last.safetensors"


def asked(args: argparse.Namespace, path: Path) -> dict[str, float | None]:
    model = load_model(path)
    areas, right = [], []
    folder = args.sites / ASKED
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            tokens = read_for(model, folder / "features" / f"{row['slide']}.h5")
            said = predict(model, tokens, always_named=True)
            if model.classes:
                right.append(model.classes[said.top] == row["label"])
            truth = tumour_patches(folder / f"{row['slide']}.tif", tokens)
            if 0 < truth.sum() < len(truth):
                areas.append(roc_auc_score(truth, attention_values(said.attention)))
    return {
        "attention AUC": float(np.mean(areas)),
        "worst decile": float(np.quantile(areas, 0.1)),
        "right": float(np.mean(right)) if right else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("train", "table"))
    parser.add_argument("recipes", nargs="*", choices=[[], *RECIPES])
    parser.add_argument("--sites", type=Path, default=ROOT / "build/sites")
    parser.add_argument("--work", type=Path, default=ROOT / "build/slide-model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    out = RESULTS / "slide_model_trials.json"
    found: dict[str, Any] = {"asked": ASKED, "seed": 0, "rows": {}}
    if out.exists():
        found = json.loads(out.read_text(encoding="utf-8"))
    if args.do == "table":
        for name, row in found["rows"].items():
            said = " ".join(f"{key} {row[key]:.3f}" for key in list(row)[:2])
            print(f"{name:22} {said}")
        return
    for name in ["bundled", *(args.recipes or RECIPES)]:
        path = bundled.slide_model_path() if name == "bundled" else trained(args, name)
        found["rows"][name] = asked(args, path)
        print(name, found["rows"][name], flush=True)
        found["versions"] = _versions()
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
