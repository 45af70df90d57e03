"""``spt train-patches``: learn a patch encoder from slides or tiles of one's own."""

import argparse
import os
import shutil
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.engine.priority import sleep_while_waiting
from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.hints import settings_of
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.patches.training.settings import PatchTrainSettings

ENDING = ".safetensors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "To use several GPUs or hosts: torchrun --nproc-per-node N -m spt_core "
        f"train-patches ... {NOT_FOR_DIAGNOSIS}"
    )
    add = parser.add_argument
    add("sources", nargs="*", metavar="FOLDER_OR_SLIDES",
        help="slides, folders of slides, folders of tiles (PNG, JPEG ...)")  # fmt: skip
    add_options(parser, PatchTrainSettings, "method")
    add("--out", type=Path, metavar="ENCODER",
        help="file for the encoder (*.safetensors), or a folder for the run"
        )  # fmt: skip
    add("--resume", type=Path, metavar="ENCODER",
        help="continue a run that was stopped")  # fmt: skip
    add("--table", dest="tables", action="append", default=[], metavar="CSV",
        help="table with columns file,slide,patient,mpp,split,label of tiles, or the "
        "same without file of slides; may be given several times")  # fmt: skip

    group = parser.add_argument_group("encoder")
    add_options(group, PatchTrainSettings, "arch", "init")
    group.add_argument("--name", help="name of the encoder (default: that of the file)")
    add_options(group, PatchTrainSettings, "freeze", "statistics", "stay", "blend")
    add_options(group, PatchTrainSettings, "half")

    group = parser.add_argument_group("patches")
    add_options(group, PatchTrainSettings, "patch_size", "mpp", "view_size")
    add_options(group, PatchTrainSettings, "tile_mpp", "slide_mpp", "channels")
    add_options(group, PatchTrainSettings, "patches_per_slide", "memory_gb", "refresh")

    group = parser.add_argument_group("views of a patch")
    add_options(group, PatchTrainSettings, "views")
    add_options(group, Augmentation, *settings_of(Augmentation))

    group = parser.add_argument_group("HiDisc")
    add_options(group, PatchTrainSettings, "group", "level_weights")

    group = parser.add_argument_group("training")
    add_options(group, PatchTrainSettings, "temperature", "head", "epochs")
    add_options(group, PatchTrainSettings, "batch_size", "learning_rate")
    add_options(group, PatchTrainSettings, "weight_decay", "seed", "device")
    add_options(group, PatchTrainSettings, "mixed_precision", "micro_batch", "workers")
    add_options(group, PatchTrainSettings, "checkpoint_steps", "validate_epochs")


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
    folder = run_folder_of(out)
    settings = None if args.resume else patch_settings(args, folder)
    sleep_while_waiting()
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.patches.training import resume_patches, train_patches

    events = resume_patches(folder) if settings is None else train_patches(settings)
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


def patch_settings(args: argparse.Namespace, folder: Path) -> PatchTrainSettings:
    is_file = args.init not in ("imagenet", "bundled", "none")
    return settings_from(
        args,
        PatchTrainSettings,
        sources=tuple(str(Path(source).absolute()) for source in args.sources),
        out=str(folder),
        tables=tuple(str(Path(table).absolute()) for table in args.tables),
        name=args.name or args.out.stem,
        init=str(Path(args.init).absolute()) if is_file else args.init,
        augmentation=settings_from(args, Augmentation),
    )
