"""The folder of a study that is finished, made up: no model was trained."""

import csv
import json
import shutil
from pathlib import Path

from spt_core.bundled import slide_model_path
from spt_core.insight.results import pseudonym
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import StudySettings

CLASSES = ("a", "b")


def write_made_study(
    folder: Path,
    features: Path,
    slides: Path,
    labels: Path,
    prints: dict[str, str],
    *,
    site_knn: float | None = 0.9,
) -> StudyFolder:
    """A study of slides with fingerprints ``prints``, by their names.

    Every second slide is of class b; all are answered b, more surely one by one.
    """
    study = StudyFolder(folder)
    study.begin(
        StudySettings(
            out=str(folder),
            goal="classify",
            slides=str(slides),
            features=str(features),
            labels=str(labels),
        )
    )
    shutil.copytree(features, study.features)
    shutil.copyfile(slide_model_path(), study.model)
    study.report.mkdir()
    rows = [
        {"method": method, "probe": probe, "mean": mean, "sd": 0.1, "low": 0.4,
         "high": 0.95}
        for method, probe, mean in (
            ("classify", "own classifier", 0.8),
            ("mean", "linear", 0.7),
            ("max", "linear", 0.6),
            ("abmil", "own classifier", 0.75),
        )
    ]  # fmt: skip
    said = [
        "Better than averaging patches by 10 points (95 %: 3 to 13), 12 patients, "
        "5 folds.",
        "No difference to taking the largest value of each feature is shown.",
        "No difference to attention pooling (ABMIL) is shown: +5 points (95 %: 1 to 9) "
        "can be chance (p = 0.52 after Holm).",
        "Mean class accuracy 80 % (95 %: 40 to 95), of its own classifier, on slides "
        "of patients that the model of the fold had not learned from.",
        "features · classify (kNN) tells the site of a slide better than its class: "
        "such embeddings hold much of scanner and staining.",
        "Pre-training was repeated in each fold, without the slides that it asks.",
        "The model that is handed over took 32 steps (the median of the best steps of "
        "the folds: 30, 32; in whole epochs).",
        "The scores are the folds', not the score of the model that is handed over: no "
        "slide is left that it has not learned from.",
    ]
    result = {"says": said, "goal": "classify", "method": "classify", "rows": rows}
    (study.report / "result.json").write_text(json.dumps(result))
    plain = {"variant": "", "method": "classify"}
    results = {
        "classes": list(CLASSES),
        "sites": ["north", "south", "west"],
        "rows": [
            {**plain, "probe": "own classifier", "reliability": [[0.7, 0.5, 12]],
             "pooled": {"ece": 0.2}, "site_knn": None, "values": {}},
            {**plain, "probe": "kNN", "reliability": [], "pooled": {},
             "values": {"accuracy": {"mean": 0.6}},
             "site_knn": None if site_knn is None else {"mean": site_knn}},
        ],
    }  # fmt: skip
    (study.report / "results.json").write_text(json.dumps(results))
    (study.report / "report.html").write_text("<p>All of it.</p>")
    with (study.report / "predictions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["slide", "label", "features", "method", "probe", "variant", "repeat",
             "seed", "fold", "answer", "share of a", "share of b"]
        )  # fmt: skip
        for number, fingerprint in enumerate(prints.values()):
            share = 0.55 + 0.4 * number / len(prints)
            writer.writerow(
                [pseudonym(fingerprint), CLASSES[number % 2], "", "classify",
                 "own classifier", "", 0, 0, 0, "b", 1 - share, share]
            )  # fmt: skip
    return study
