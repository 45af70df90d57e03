"""``spt evaluate``: how good a model is, in folds that share no patient."""

import argparse
from dataclasses import replace
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.commands.predict import KEY_FILE, patients_key
from spt_core.errors import InputError
from spt_core.notice import NOT_FOR_DIAGNOSIS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOT_FOR_DIAGNOSIS
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a model file")
    add("features", metavar="FEATURES", type=Path, help="folder of feature files")
    add("--labels", metavar="CSV", type=Path, required=True,
        help="slide,label[,patient]")  # fmt: skip
    add("--folds", type=int, default=5, help="default: %(default)s")
    add("--seeds", type=int, default=1,
        help="how many ways to make folds (default: %(default)s)")  # fmt: skip
    add("--out", metavar="REPORT", type=Path, required=True, help="folder to write to")
    add("--calibrate", metavar="MODEL", type=Path,
        help="write the model, calibrated on these slides, to this file")  # fmt: skip
    add("--patients-key", type=Path, metavar="FILE",
        help=f"of the training run (default: {KEY_FILE} beside the model)")  # fmt: skip
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")


def run(args: argparse.Namespace, console: Console) -> int:
    from spt_core.devices import choose_device
    from spt_core.learning.model_file import load_model, save_model
    from spt_core.studies.evaluation import evaluate
    from spt_core.studies.evaluation_report import (
        calibration_of,
        table,
        write_evaluation,
    )
    from spt_core.tokens import read_labels

    model = load_model(args.model, choose_device(args.device))
    if args.calibrate is not None and not model.classes:
        raise InputError("This model names no classes: there is nothing to calibrate.")
    found = console.follow(
        evaluate(
            model,
            args.features,
            read_labels(args.labels),
            folds=args.folds,
            seeds=args.seeds,
            key=patients_key(args.model, args.patients_key),
        ),
        unit="slide",
    )
    write_evaluation(args.out, found, args.model.name)
    console.say(table(found))
    console.say(f"Written: {args.out}")
    if args.calibrate is not None:
        if found.temperature is None:
            raise InputError(
                "The labels are not the model's classes: they cannot calibrate it."
            )
        model.card = replace(model.card, calibration=calibration_of(found))
        save_model(args.calibrate, model)
        called = "Calibrated" if found.calibration_helps else "Uncalibrated"
        console.say(f"{called} model: {args.calibrate}")
    console.record(
        {
            "event": "done",
            "report": str(args.out),
            "rows": [
                {
                    "method": row.method,
                    "embedding": row.embedding,
                    **{name: mean for name, (mean, _) in row.values.items()},
                    "calibration_error": row.calibration_error,
                }
                for row in found.rows
            ],
        }
    )
    return 0
