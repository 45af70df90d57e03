"""``spt convert``: features of other tools as ours, and ours as theirs."""

import argparse
from collections.abc import Generator
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.errors import InputError
from spt_core.events import LeftOut, Note, Progress
from spt_core.tokens.converting import CLAM, FORMS, OURS, with_slide_mpp, write_as
from spt_core.tokens.feature_file import read_tokens
from spt_core.tokens.finding import features_in, is_feature_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "features",
        metavar="FEATURES",
        type=Path,
        help="feature file or folder of any tool; 'spt info FEATURES' says whose it is",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, required=True, help="folder to write to"
    )
    parser.add_argument(
        "--to",
        choices=FORMS,
        default=OURS,
        help="in whose form (default: %(default)s)",
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="name of the patch encoder, where the files do not state it",
    )
    parser.add_argument(
        "--mpp",
        type=float,
        metavar="UM",
        help="pixel size of the patches, where the files do not state it (in µm)",
    )
    parser.add_argument(
        "--patch-size",
        type=int,
        metavar="PX",
        help="side of the patches, where the files do not state it (in px)",
    )
    parser.add_argument(
        "--slide-mpp",
        type=float,
        metavar="UM",
        help="pixel size of the slides, where files give places in micrometres, as "
        "STAMP's (in µm)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    source: Path = args.features
    if not source.exists():
        raise InputError(f"There is no file or folder {source}.")
    files = [source] if is_feature_file(source) else features_in(source)
    if not files:
        raise InputError(f"{source} holds no feature files of any tool that is known.")
    if args.out.resolve() in {path.parent.resolve() for path in files}:
        raise InputError("--out must be another folder than that of the features.")
    given = ("mpp", args.mpp), ("slide-mpp", args.slide_mpp)
    for name, value in (*given, ("patch-size", args.patch_size)):
        least, most = (1, 2**20) if name == "patch-size" else (1e-3, 1e3)
        if value is not None and not least <= value <= most:
            raise InputError(
                f"--{name} must be from {least:g} to {most:g}, not {value}."
            )
    written = console.follow(_converted(args, files, console), unit="slide")
    console.say(f"{written} files are in {args.out}, in the form of {args.to}.")
    return 0  # 1 where a file was left out


def _converted(
    args: argparse.Namespace, files: list[Path], console: Console
) -> Generator[Progress | Note, None, int]:
    written = 0
    for done, path in enumerate(files, start=1):
        try:
            target = _convert(args, path)
        except InputError as error:
            if len(files) == 1:
                raise
            yield LeftOut(str(error))
        else:
            written += 1
            console.record({"event": "converted", "from": str(path), "to": str(target)})
        yield Progress(done, len(files), message=path.name)
    return written


def _convert(args: argparse.Namespace, path: Path) -> Path:
    tokens = read_tokens(
        path,
        encoder=args.encoder,
        mpp=args.mpp,
        patch_size=args.patch_size,
        dtype=None,
    )
    if args.slide_mpp:
        tokens = with_slide_mpp(tokens, args.slide_mpp)
    target = write_as(args.to, args.out, tokens, args.slide_mpp)
    if args.to == CLAM:
        _bare(args.out / "pt_files" / f"{tokens.name}.pt", tokens.x)
    return target


def _bare(path: Path, x: object) -> None:
    """CLAM's second file: the matrix alone."""
    import torch

    from spt_core.files import written_whole

    with written_whole(path) as temporary:
        torch.save(torch.as_tensor(x), temporary)
