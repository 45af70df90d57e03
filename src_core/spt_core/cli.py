"""The ``spt`` command: one sub-command for each step.

Each sub-command lives in a module of ``spt_core.commands`` with two functions:
``add_arguments(parser)`` and ``run(args, console) -> exit code``. A module is imported
only when its command is the one that runs, so that ``spt info`` never loads torch.
"""

import argparse
import errno
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from spt_core import proving
from spt_core._version import __version__
from spt_core.commands.console import Console, interrupts, seen
from spt_core.commands.help_page import CommandParser, HelpPage, describe
from spt_core.errors import InputError
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.quiet import quiet_readers

# In the order in which the data flows; the text is the one-line help.
COMMANDS = {
    "sample": "make a synthetic H&E cohort: slides, labels.csv and truth masks",
    "info": "show what a slide file, or a folder of features, holds",
    "encoders": "list the patch encoders, or download one",
    "train-patches": "train a patch encoder on your own slides or tiles",
    "encode": "turn slides into features, one file per slide",
    "convert": "write features of other tools as ours, or ours as theirs",
    "train": "train a slide model on a folder of features",
    "add-site": "let a model know another site, from a handful of its slides",
    "evaluate": "measure how good a model is, on slides that it has not seen",
    "benchmark": "compare methods in every fold, and write the table and its report",
    "study": "learn from a folder of slides: encode, train, measure in folds, report",
    "embed": "write one embedding per slide, for other programs",
    "predict": "predict class probabilities for each slide",
    "heatmap": "write attention and class map as GeoJSON, OME-TIFF, PNG or a report",
    "doctor": "test this computer in a minute, for a bug report",
}

FAILED = 1
WRONG_USAGE = 2


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """Make the parser; only the ``chosen`` command's own options are loaded."""
    parser = CommandParser(
        prog="spt",
        description="Slide Pre-trained Transformers for whole-slide pathology. "
        f"{NOT_FOR_DIAGNOSIS}",
        epilog="'spt COMMAND --help' says what a command takes, with examples. "
        "'spt study' does the steps from encode to train in one.",
    )
    parser.add_argument("--version", action="version", version=f"spt {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, formatter_class=HelpPage)
        describe(command, name, text)
        command.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object per line, for programs",
        )
        if name == chosen:
            _command_module(name).add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 1 failed or stopped, 2 wrong usage."""
    is_process = argv is None
    argv = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    console = Console(json_lines="--json" in argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names that are no UTF-8 are said too
            stream.reconfigure(errors="backslashreplace")
    # From here on, so that the seconds in which libraries are imported count too.
    with interrupts(to_the_end=is_process) as interrupted:
        try:
            _refuse_lost_folder()
            code = _run(argv, console)
            sys.stdout.flush()
            return code
        except InputError as error:
            console.error(str(error))
            return FAILED
        except OSError as error:
            console.error("Stopped." if interrupted() else _system_sentence(error))
            return FAILED
        except KeyboardInterrupt:
            console.error("Stopped.")
            return FAILED
        except MemoryError:
            console.error(
                "The computer's memory does not suffice. Close other programs, or "
                "give less at once."
            )
            return FAILED
        except Exception:
            # Libraries that are interrupted in mid-import raise what they like.
            if not interrupted():
                raise
            console.error("Stopped.")
            return FAILED
        finally:
            _end_output()


def _run(argv: list[str], console: Console) -> int:
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.root.handlers:
        handler.setFormatter(_Seen("%(levelname)s: %(message)s"))
    quiet_readers()
    chosen = next((word for word in argv if word in COMMANDS), None)
    parser = build_parser(chosen)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.prog = f"spt {args.command}"
        parser.error(f"it does not take {' '.join(unknown)}")
    command = _command_module(args.command)
    proving.switch_on()  # a slide must not take the command down
    try:
        code = int(command.run(args, console))
    finally:
        proving.switch_off()
    return code or (FAILED if console.is_incomplete else 0)


class _Seen(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return seen(super().format(record))


def _open_closed_streams() -> None:
    """Give closed standard streams a place where nothing is kept.

    A file that is opened later would get their numbers, and what libraries write to
    standard error would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def _refuse_lost_folder() -> None:
    """Without a folder to be in, libraries end the process as they are loaded."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError(
            "The folder that this command was started in is gone. Change to another."
        ) from None


def _end_output() -> None:
    """Write what waits; a reader that has gone is no error of ours at the exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            place = os.open(os.devnull, os.O_WRONLY)
            os.dup2(place, stream.fileno())
            os.close(place)


def _system_sentence(error: OSError) -> str:
    """What the system refused, which file it was, and what to do."""
    if isinstance(error, BrokenPipeError):
        return "Stopped: nobody reads what it prints any more."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full: {error.filename or 'a file'} cannot be written. What "
            "was written before is whole: make room, and run the same command again."
        )
    said = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    advice = _ADVICE.get(error.errno or 0)
    return f"{said}. {advice}" if advice else said


_ADVICE = {
    errno.EACCES: "Ask for the right to it, or choose another place.",
    errno.EROFS: "Nothing can be written there: choose another place.",
    errno.EEXIST: "There is a file where a folder belongs: choose another place.",
    errno.ENOTDIR: "There is a file where a folder belongs: choose another place.",
    errno.ENOENT: "Was it removed or renamed meanwhile? Run the same command again.",
    errno.EFBIG: "Files may not be that large here: see 'ulimit -f', or choose another "
    "place. What was written before is whole.",
    errno.EMFILE: "Allow more open files ('ulimit -n 4096'), and run the same command "
    "again.",
}


def _command_module(name: str):  # type: ignore[no-untyped-def]
    return import_module(f"spt_core.commands.{name.replace('-', '_')}")
