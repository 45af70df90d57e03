"""``spt evaluate``: how good a model is, in folds that share no patient."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.predict import KEY_FILE, patients_key
from spt_core.errors import InputError
from spt_core.hints import Hint
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.settings import EncodeSettings


@dataclass(frozen=True)
class EvaluateOptions:
    folds: Annotated[
        int, Hint("parts of the slides, each tested in its turn", minimum=2)
    ] = 5
    seeds: Annotated[
        int, Hint("number of times that the slides are divided anew", minimum=1)
    ] = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOT_FOR_DIAGNOSIS
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="model file (*.safetensors)")
    add("features", metavar="FEATURES", type=Path, help="folder of feature files")
    add("--labels", metavar="CSV", type=Path, required=True,
        help="table with columns slide,label[,patient]")  # fmt: skip
    add_options(parser, EvaluateOptions, "folds", "seeds")
    add("--out", metavar="REPORT", type=Path, required=True,
        help="folder for the report")  # fmt: skip
    add("--calibrate", metavar="MODEL", type=Path,
        help="file for a copy of the model, calibrated on these slides")  # fmt: skip
    add("--patients-key", type=Path, metavar="FILE",
        help="key by which the training run's patients are recognised "
        f"(default: {KEY_FILE} beside the model)")  # fmt: skip
    add_options(parser, EncodeSettings, "device")


def run(args: argparse.Namespace, console: Console) -> int:
    options = settings_from(args, EvaluateOptions)
    # Only now: wrong usage is said at once, without waiting for torch.
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
            folds=options.folds,
            seeds=options.seeds,
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
