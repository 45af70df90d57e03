"""``spt train-patches``: learn a patch encoder from slides or tiles of one's own."""

import argparse
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

from spt_core.commands.console import Console
from spt_core.engine.priority import sleep_while_waiting
from spt_core.errors import InputError
from spt_core.files import written_whole

ENDING = ".safetensors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "More GPUs or hosts: torchrun --nproc-per-node N -m spt_core train-patches ... "
        "For research, not for diagnosis."
    )
    add = parser.add_argument
    add("sources", nargs="*", metavar="FOLDER_OR_SLIDES",
        help="slides, folders of slides, folders of tiles (PNG, JPEG ...)")  # fmt: skip
    add("--method", choices=("simclr", "hidisc"), help="what to learn by")
    add("--out", type=Path, metavar="ENCODER",
        help="the encoder's file (*.safetensors), or a folder for the run")  # fmt: skip
    add("--resume", type=Path, metavar="ENCODER", help="go on with a stopped run")
    add("--table", dest="tables", action="append", default=[], metavar="CSV",
        help="file,slide,patient,mpp,split,label of tiles, or the same of slides "
        "without file; may be given several times")  # fmt: skip

    group = parser.add_argument_group("encoder")
    add = group.add_argument
    add("--arch", default="resnet34", metavar="NAME",
        help="resnet34, mobilenetv2, any of timm (default: %(default)s)")  # fmt: skip
    add("--init", default="imagenet", metavar="START",
        help="imagenet, none, or a file of weights (default: %(default)s)")  # fmt: skip
    add("--name", help="what to call it (default: the file's name)")
    add("--freeze", type=int, default=0, metavar="N", help="keep the first N blocks")
    add("--statistics", choices=("frozen", "batch"),
        help="of batch norms: the start's, or each batch's (default: frozen, without "
        "a start batch)")  # fmt: skip
    add("--stay", type=float, default=0.0, metavar="W",
        help="weight of the start's own features (default: %(default)g)")  # fmt: skip
    add("--blend", type=float, default=1.0, metavar="SHARE",
        help="of learned weights in the result, the rest the start's "
        "(default: %(default)g)")  # fmt: skip
    add("--half", action="store_true", help="write half precision: half the size")

    group = parser.add_argument_group("patches")
    add = group.add_argument
    add("--patch-size", type=int, metavar="PX", help="that it is for (the arch's own)")
    add("--mpp", type=float, help="µm a pixel of them (the arch's own)")
    add("--view-size", type=int, metavar="PX",
        help="pixels a side in training, at that mpp (the patch's)")  # fmt: skip
    add("--tile-mpp", type=float, metavar="M", help="of tiles that do not say it")
    add("--slide-mpp", type=float, metavar="M", help="of slides that do not say it")
    add("--patches-per-slide", type=int, default=512, metavar="N",
        help="most that are sampled (default: %(default)s)")  # fmt: skip
    add("--memory", dest="memory_gb", type=float, default=4.0, metavar="GB",
        help="most that pixels may take (default: %(default)g)")  # fmt: skip

    group = parser.add_argument_group("views")
    add = group.add_argument
    add("--views", type=int, default=2, help="of each patch (default: %(default)s)")
    add("--scale", type=float, nargs=2, metavar=("MIN", "MAX"),
        help="µm a pixel in units of --mpp (default: 0.7 1.4)")  # fmt: skip
    for name, text in (
        ("stretch", "most that sides differ"),
        ("stain", "change of each stain's strength"),
        ("brightness", "change"),
        ("contrast", "change"),
        ("saturation", "change"),
        ("hue", "degrees"),
        ("grey", "share of views without colour"),
        ("blur", "share of blurred views"),
        ("blur-px", "most blur"),
    ):
        add(f"--{name}", type=float, metavar="X", help=text)

    group = parser.add_argument_group("HiDisc")
    add = group.add_argument
    add("--group", type=int, nargs=2, default=(2, 2), metavar=("SLIDES", "PATCHES"),
        help="slides of a patient, patches of a slide (default: 2 2)")  # fmt: skip
    add("--level-weights", type=float, nargs=3, default=(1.0, 1.0, 1.0),
        metavar=("PATIENT", "SLIDE", "PATCH"), help="default: 1 1 1")  # fmt: skip

    group = parser.add_argument_group("training")
    add = group.add_argument
    add("--temperature", type=float, help="default: 0.07, HiDisc 0.7")
    add("--head", choices=("batchnorm", "paper"), default="batchnorm",
        help="projection head (default: %(default)s)")  # fmt: skip
    add("--epochs", type=int, default=100, help="default: %(default)s")
    add("--batch-size", type=int, default=128, metavar="N",
        help="patches a step, all GPUs together (default: %(default)s)")  # fmt: skip
    add("--learning-rate", "--lr", type=float, default=3e-4, metavar="LR",
        help="default: %(default)s")  # fmt: skip
    add("--weight-decay", type=float, default=0.01, metavar="W",
        help="default: %(default)s")  # fmt: skip
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    add("--full-precision", action="store_true", help="no mixed precision on a GPU")
    add("--micro-batch", type=int, metavar="N",
        help="views in one pass; the gradient stays the whole batch's")  # fmt: skip
    add("--checkpoint-steps", type=int, default=50, metavar="N",
        help="lose at most so many steps (default: %(default)s)")  # fmt: skip
    add("--validate-epochs", type=int, metavar="N", help="look every so many epochs")


def run(args: argparse.Namespace, console: Console) -> int:
    out = args.resume or args.out
    missing = [
        name
        for name, value in (
            ("FOLDER_OR_SLIDES", args.resume or args.sources),
            ("--method", args.resume or args.method),
            ("--out", out),
        )
        if not value
    ]
    if missing:
        raise InputError(f"Give {', '.join(missing)} (or --resume ENCODER).")
    sleep_while_waiting()
    from spt_core.patches.training import resume_patches, train_patches

    folder = run_folder_of(out)
    events = (
        resume_patches(folder)
        if args.resume
        else train_patches(settings_from(args, folder))
    )
    if os.environ.get("RANK", "0") != "0":  # torchrun: one process speaks
        for _ in events:
            pass
        return 0
    result = console.follow(events, unit="step")
    encoder = result.encoder
    if out.suffix == ENDING:
        with written_whole(out) as temporary:
            shutil.copyfile(result.encoder, temporary)
        encoder = out
    knn = result.metrics.get("knn")
    console.say(
        f"Done: {result.steps} steps{'' if knn is None else f', kNN {knn:.3f}'}. Use "
        f"it by 'spt encode SLIDES --encoder {encoder}'."
    )
    console.record(
        {
            "event": "done",
            "run": str(result.run),
            "encoder": str(encoder),
            "steps": result.steps,
            "metrics": result.metrics,
        }
    )
    return 0


def run_folder_of(out: Path) -> Path:
    """Where the run of an encoder is: the folder itself, or one beside the file."""
    return out.with_suffix(".run") if out.suffix == ENDING else out


def settings_from(args: argparse.Namespace, folder: Path):  # type: ignore[no-untyped-def]
    from spt_core.patches.training import PatchTrainSettings
    from spt_core.patches.training.augment import Augmentation

    views: dict[str, Any] = {
        field.name: tuple(value) if isinstance(value, list) else value
        for field in fields(Augmentation)
        if (value := getattr(args, field.name)) is not None
    }
    init = args.init
    if init not in ("imagenet", "none"):
        init = str(Path(init).absolute())
    same = (
        "method", "arch", "freeze", "statistics", "stay", "blend", "half", "patch_size",
        "mpp", "view_size", "tile_mpp", "slide_mpp", "patches_per_slide", "memory_gb",
        "views", "temperature", "head", "epochs", "batch_size", "learning_rate",
        "weight_decay", "seed", "device", "micro_batch", "checkpoint_steps",
        "validate_epochs",
    )  # fmt: skip
    return PatchTrainSettings(
        sources=tuple(str(Path(source).absolute()) for source in args.sources),
        out=str(folder),
        tables=tuple(str(Path(table).absolute()) for table in args.tables),
        name=args.name or args.out.stem,
        init=init,
        group=tuple(args.group),
        level_weights=tuple(args.level_weights),
        augmentation=Augmentation(**views),
        mixed_precision=not args.full_precision,
        **{name: getattr(args, name) for name in same},
    )
