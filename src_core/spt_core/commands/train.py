"""``spt train``: learn a slide model from a folder of features."""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.engine.priority import sleep_while_waiting
from spt_core.errors import InputError
from spt_core.learning.settings import MODELS, OBJECTIVES, TrainSettings
from spt_core.learning.views import ViewSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    views, run = ViewSettings(), TrainSettings("", "simclr", "")
    parser.epilog = (
        "More GPUs or hosts: torchrun --nproc-per-node N -m spt_core train ... "
        "For research, not for diagnosis."
    )
    add = parser.add_argument
    add("features", nargs="?", metavar="FEATURES", help="folder of feature files")
    add("--out", metavar="RUN", help="folder of the run; must not hold one yet")
    add("--resume", metavar="RUN", help="go on with a run that was stopped")
    add("--objective", choices=OBJECTIVES, help="what to learn by")
    add("--labels", metavar="CSV", help="slide,label[,patient,split,mpp]")

    group = parser.add_argument_group("model")
    add = group.add_argument
    add("--model", choices=MODELS, help="default: paper, or small without a GPU")
    add("--dim", type=int, help="width, instead of the preset's")
    add("--depth", type=int, help="layers, instead of the preset's")
    add("--heads", type=int, help="attention heads, instead of the preset's")
    add("--head", choices=("batchnorm", "paper"), default=run.head,
        help="projection head (default: %(default)s)")  # fmt: skip
    add("--init", metavar="MODEL", help="start from this model's encoder")
    add("--freeze", action="store_true", help="train the classifier alone")
    add("--class-weights", choices=("balanced", "none"), default=run.class_weights,
        help="in classification (default: %(default)s)")  # fmt: skip

    add("--momentum", type=float, default=run.momentum, metavar="M",
        help="of BYOL's target at the start (default: %(default)s)")  # fmt: skip

    group = parser.add_argument_group("views")
    add = group.add_argument
    add("--views", type=int, default=views.views, help="default: %(default)s")
    for name in ("split", "crop", "mask"):
        add(f"--no-{name}", action="store_true", help=f"do not {name}")
    add("--split-ratio", type=float, default=views.split_ratio, metavar="R",
        help="share of tokens in the larger part (default: %(default)s)")  # fmt: skip
    for name, value, text in (
        ("--crop-area", views.crop_area, "area in grid cells"),
        ("--crop-aspect", views.crop_aspect, "width / height"),
        ("--mask-keep", views.mask_keep, "share of tokens kept"),
    ):
        add(name, type=float, nargs=2, default=value, metavar=("MIN", "MAX"),
            help=f"{text} (default: {value[0]:g} {value[1]:g})")  # fmt: skip
    add("--max-tokens", type=int, default=views.max_tokens, metavar="N",
        help="most tokens a view (default: %(default)s)")  # fmt: skip

    group = parser.add_argument_group("training")
    add = group.add_argument
    add("--epochs", type=int, help="default: 800, supervised 100")
    add("--batch-size", type=int, metavar="N", help="slides a step, all GPUs together")
    add("--learning-rate", "--lr", type=float, default=run.learning_rate,
        metavar="LR", help="default: %(default)s")  # fmt: skip
    add("--weight-decay", type=float, default=run.weight_decay, metavar="W",
        help="default: %(default)s")  # fmt: skip
    add("--seed", type=int, default=run.seed, help="default: %(default)s")
    add("--device", default=run.device, help="auto, cpu, cuda, cuda:1, mps")
    add("--full-precision", action="store_true", help="no mixed precision on a GPU")
    add("--micro-batch", type=int, metavar="N",
        help="views in one pass; the gradient stays the whole batch's")  # fmt: skip
    add("--checkpoint-steps", type=int, default=run.checkpoint_steps, metavar="N",
        help="lose at most so many steps (default: %(default)s)")  # fmt: skip
    add("--validate-epochs", type=int, metavar="N", help="look every so many epochs")

    group = parser.add_argument_group("what the feature files do not state")
    add = group.add_argument
    add("--encoder", metavar="NAME", help="patch encoder")
    add("--mpp", type=float, help="micrometres a pixel of the patches")
    add("--patch-size", type=int, metavar="PX", help="side of the patches")


def run(args: argparse.Namespace, console: Console) -> int:
    settings = None if args.resume else settings_from(args)
    sleep_while_waiting()
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.learning.training import resume, train

    events = resume(args.resume) if settings is None else train(settings)
    if os.environ.get("RANK", "0") != "0":  # torchrun: one process speaks
        for _ in events:
            pass
        return 0
    result = console.follow(events, unit="step")
    knn = result.metrics.get("knn")
    console.say(
        f"Done: {result.steps} steps. The best model ({result.best}) is of step "
        f"{result.best_step}" + (f", kNN {knn:.3f}." if knn is not None else ".")
    )
    console.record(
        {
            "event": "done",
            "run": str(result.run),
            "best": str(result.best),
            "last": str(result.last),
            "steps": result.steps,
            "best_step": result.best_step,
            "metrics": result.metrics,
        }
    )
    return 0


def settings_from(args: argparse.Namespace) -> TrainSettings:
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
    views = ViewSettings(
        views=args.views,
        split=not args.no_split,
        crop=not args.no_crop,
        mask=not args.no_mask,
        split_ratio=args.split_ratio,
        crop_area=tuple(args.crop_area),
        crop_aspect=tuple(args.crop_aspect),
        mask_keep=tuple(args.mask_keep),
        max_tokens=args.max_tokens,
    )
    sizes = {name: getattr(args, name) for name in ("dim", "depth", "heads")}
    plain = TrainSettings(
        features=str(Path(args.features).absolute()),
        objective=args.objective,
        out=str(args.out),
        labels=str(Path(args.labels).absolute()) if args.labels else None,
        model=args.model,
        architecture={name: size for name, size in sizes.items() if size},
        views=views,
    )
    return replace(
        plain,
        init=str(Path(args.init).absolute()) if args.init else None,
        freeze=args.freeze,
        head=args.head,
        class_weights=args.class_weights,
        momentum=args.momentum,
        epochs=args.epochs,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        weight_decay=args.weight_decay,
        seed=args.seed,
        device=args.device,
        mixed_precision=not args.full_precision,
        micro_batch=args.micro_batch,
        checkpoint_steps=args.checkpoint_steps,
        validate_epochs=args.validate_epochs,
        encoder=args.encoder,
        mpp=args.mpp,
        patch_size=args.patch_size,
    )
