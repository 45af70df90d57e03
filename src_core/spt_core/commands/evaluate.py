"""``spt evaluate``: how good a model is, on slides that it has not seen."""

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spt_core.commands.console import Console
from spt_core.commands.label_options import add_label_options, labels_from
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.predict import patients_key
from spt_core.errors import InputError
from spt_core.hints import Hint
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.settings import EncodeSettings
from spt_core.patients_key import KEY_FILE

if TYPE_CHECKING:
    from spt_core.learning.model_file import SlideModel
    from spt_core.studies.evaluation import Evaluation

POOLINGS = ("mean", "max")


@dataclass(frozen=True)
class EvaluateOptions:
    folds: Annotated[
        int,
        Hint(
            "parts of the slides, each tested in its turn; not with a column 'split'",
            minimum=2,
        ),
    ] = 5
    repeats: Annotated[
        int,
        Hint(
            "how often the folds are drawn",
            minimum=1,
            flags=("--repeats", "--seeds"),
        ),
    ] = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "With a column 'split' in the labels, 'train' is learned from and 'test' is "
        f"tested; without one, folds that share no patient. {NOT_FOR_DIAGNOSIS}"
    )
    add = parser.add_argument
    add("models", metavar="MODEL", nargs="+",
        help="model file (*.safetensors), several of them for several training "
        "seeds, or 'mean' or 'max' for pooling")  # fmt: skip
    add("features", metavar="FEATURES", type=Path, help="folder of feature files")
    add_label_options(parser, required=True)
    add_options(parser, EvaluateOptions, "folds", "repeats")
    add("--ignore-split", action="store_true",
        help="test all slides in folds, whatever the labels say of splits")  # fmt: skip
    add("--site", metavar="NAME", type=str.strip,
        help="where slides are from whose site the labels do not state, for models "
        "that standardise tokens per site")  # fmt: skip
    add("--include-slide-name", action="store_true",
        help="write the slides' names into predictions.csv, in place of "
        "pseudonyms")  # fmt: skip
    add("--out", metavar="REPORT", type=Path, required=True,
        help="folder for the report")  # fmt: skip
    add("--encoder", metavar="FILE", type=Path,
        help="the patch encoder's file, so that slides it was trained on are "
        "recognised")  # fmt: skip
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
    from spt_core.learning.model_file import load_model
    from spt_core.studies.evaluation import evaluate
    from spt_core.studies.evaluation_report import table, write_evaluation

    labels = labels_from(args)
    if labels is None:
        raise InputError("Give --labels CSV.")
    pooling = args.models[0] if args.models[0] in POOLINGS else None
    if pooling and len(args.models) > 1:
        raise InputError("Evaluate pooling by itself, without other models.")
    paths = [] if pooling else [Path(path) for path in args.models]
    models = [load_model(path, choose_device(args.device)) for path in paths]
    if args.calibrate is not None and len(models) != 1:
        raise InputError("One model is calibrated at a time: name one model file.")
    if args.calibrate is not None and not models[0].classes:
        raise InputError("This model names no classes: there is nothing to calibrate.")
    found = console.follow(
        evaluate(
            pooling or models,
            args.features,
            labels,
            folds=options.folds,
            repeats=options.repeats,
            keys=[patients_key(path, args.patients_key) for path in paths],
            encoder=args.encoder,
            ignore_split=args.ignore_split,
            site=args.site,
            include_slide_names=args.include_slide_name,
        ),
        unit="slide",
    )
    called = ", ".join(Path(path).name for path in args.models)
    write_evaluation(args.out, found, called)
    console.say(table(found))
    console.say(f"Written: {args.out}")
    if args.calibrate is not None:
        _calibrate(args.calibrate, models[0], found, console)
    console.record({"event": "done", "report": str(args.out), "rows": _records(found)})
    return 0


def _calibrate(
    path: Path, model: "SlideModel", found: "Evaluation", console: Console
) -> None:
    from spt_core.learning.model_file import save_model
    from spt_core.studies.evaluation_report import calibration_of

    if found.temperature is None:
        raise InputError(
            "The labels are not the model's classes: they cannot calibrate it."
        )
    model.card = replace(model.card, calibration=calibration_of(found))
    save_model(path, model)
    called = "Calibrated" if found.calibration_helps else "Uncalibrated"
    console.say(f"{called} model: {path}")


def _records(found: "Evaluation") -> list[dict[str, Any]]:
    return [
        {
            "method": row.method,
            "embedding": row.embedding,
            "level": row.level,
            **{name: asdict(score) for name, score in row.values.items()},
            "calibration_error": row.calibration_error,
        }
        for row in found.rows
    ]
