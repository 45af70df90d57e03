"""``spt train``: learn a slide model from a folder of features."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.engine.priority import sleep_while_waiting
from spt_core.errors import InputError
from spt_core.hints import Hint, settings_of
from spt_core.learning.settings import TrainSettings
from spt_core.learning.views import ViewSettings
from spt_core.notice import NOT_FOR_DIAGNOSIS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "To use several GPUs or hosts: torchrun --nproc-per-node N -m spt_core train "
        f"... {NOT_FOR_DIAGNOSIS}"
    )
    add = parser.add_argument
    add("features", nargs="?", metavar="FEATURES", help="folder of feature files")
    add("--out", metavar="RUN", help="folder for the run; it must not hold one yet")
    add("--resume", metavar="RUN", help="continue a run that was stopped")
    add_options(parser, TrainSettings, "objective", "labels")
    add_options(parser, TrainSettings, "slide_table", "patient_from")

    group = parser.add_argument_group("model")
    add_options(group, TrainSettings, "model")
    add_options(group, ArchitectureSettings, "dim", "depth", "heads", "dropout")
    add_options(group, TrainSettings, "head", "init", "freeze", "region_weights")
    add_options(group, TrainSettings, "class_weights", "momentum")
    add_options(group, TrainSettings, "temperature", "vicreg_weights")

    group = parser.add_argument_group("sites that the slides are from")
    add_options(group, TrainSettings, "standardise", "sites")
    add_options(group, TrainSettings, "site_batches", "negatives")

    group = parser.add_argument_group("views of a slide")
    add_options(group, ViewSettings, *settings_of(ViewSettings))

    group = parser.add_argument_group("training")
    add_options(group, TrainSettings, "epochs", "steps", "batch_size")
    add_options(group, TrainSettings, "learning_rate", "weight_decay", "warm_up")
    add_options(group, TrainSettings, "seed", "device")
    add_options(group, TrainSettings, "mixed_precision", "micro_batch")
    add_options(group, TrainSettings, "checkpoint_steps", "validate_epochs")

    group = parser.add_argument_group("where the feature files do not state it")
    add_options(group, TrainSettings, "encoder", "mpp", "patch_size")


@dataclass(frozen=True)
class ArchitectureSettings:
    """Sizes of the slide encoder instead of the preset's."""

    dim: Annotated[
        int | None,
        Hint("width of the model", above=0, automatic="the preset's"),
    ] = None
    depth: Annotated[
        int | None, Hint("number of layers", above=0, automatic="the preset's")
    ] = None
    heads: Annotated[
        int | None,
        Hint("number of attention heads", above=0, automatic="the preset's"),
    ] = None
    dropout: Annotated[
        float | None,
        Hint(
            "share of values left out in training, of models that have dropout",
            minimum=0,
            maximum=0.9,
            digits=2,
            automatic="the model's: 0.25 of abmil, clam and hipt, 0.1 of transmil",
        ),
    ] = None


def run(args: argparse.Namespace, console: Console) -> int:
    settings = None if args.resume else train_settings(args)
    sleep_while_waiting()
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.encoder_terms import terms_sentence
    from spt_core.learning.model_card import read_model_card
    from spt_core.learning.training import resume, train

    events = resume(args.resume) if settings is None else train(settings)
    if os.environ.get("RANK", "0") != "0":  # torchrun: one process speaks
        for _ in events:
            pass
        return 0
    result = console.follow(events, unit="step")
    console.say(
        f"Done: {result.steps} steps. The best model ({result.best}) is of step "
        f"{result.best_step}, chosen by {result.chosen_by}"
        + _told_apart(result.metrics.get("knn"), result.metrics.get("site_knn"))
    )
    if terms := terms_sentence(None, read_model_card(result.best).encoder_terms):
        console.say(terms)
    console.record(
        {
            "event": "done",
            "run": str(result.run),
            "best": str(result.best),
            "last": str(result.last),
            "steps": result.steps,
            "best_step": result.best_step,
            "chosen_by": result.chosen_by,
            "metrics": result.metrics,
        }
    )
    return 0


def _told_apart(knn: float | None, site_knn: float | None) -> str:
    """How well neighbours tell class and site, the end of a sentence."""
    said = [
        f"{words} {value:.3f}"
        for words, value in (("kNN", knn), ("kNN of the site", site_knn))
        if value is not None
    ]
    if knn is not None and site_knn is not None:
        said.append(f"gap {knn - site_knn:+.3f}")
    return f"; {', '.join(said)}." if said else "."


def train_settings(args: argparse.Namespace) -> TrainSettings:
    missing = [
        name
        for name, value in (
            ("FEATURES", args.features),
            ("--objective", args.objective),
            ("--out", args.out),
        )
        if not value
    ]
    if missing:
        raise InputError(f"Give {', '.join(missing)} (or --resume RUN).")
    sizes = vars(settings_from(args, ArchitectureSettings))
    return settings_from(
        args,
        TrainSettings,
        features=absolute(args.features),
        out=str(args.out),
        labels=absolute(args.labels),
        slide_table=absolute(args.slide_table),
        init=absolute(args.init),
        region_weights=absolute(args.region_weights),
        architecture={n: size for n, size in sizes.items() if size is not None},
        views=settings_from(args, ViewSettings),
    )


def absolute(path: str | None) -> str | None:
    """As the run's folder keeps it: a run may be continued from another folder."""
    return str(Path(path).absolute()) if path else None
