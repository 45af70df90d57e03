"""``spt study``: from a folder of slides to a model of one's own, and its report."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.train import absolute
from spt_core.commands.written import command_to_share
from spt_core.engine.priority import lower_priority, sleep_while_waiting
from spt_core.errors import InputError
from spt_core.hints import settings_of
from spt_core.learning.details import LearningDetails
from spt_core.learning.views import ViewSettings
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.settings import EncodeSettings
from spt_core.studies.study_finding import Finding, stops
from spt_core.studies.study_folder import Request, StudyFolder
from spt_core.studies.study_requests import end_unattended
from spt_core.studies.study_result import StudyResult
from spt_core.studies.study_settings import Goal, StudySettings

# A step that lasts longer after a request is broken off, and done again later.
HARD_SECONDS = 2.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A study that was stopped goes on when the command is given again, or by 'spt "
        f"study OUT' alone. {NOT_FOR_DIAGNOSIS}"
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="folder of the study")
    add_options(parser, StudySettings, "goal", "slides", "features", "labels", "init")
    add_options(parser, StudySettings, "slide_table", "patient_from", "title")
    add("--check", action="store_true",
        help="say what is to be known of slides and labels, and do nothing "
        "else")  # fmt: skip
    add("--measure", action="store_true",
        help="with --check: encode a few patches to say how long it will "
        "take")  # fmt: skip
    add("--request", choices=[one.value for one in Request],
        help="ask the study that runs in OUT, and return; one that nobody runs is "
        "stopped or discarded by this command")  # fmt: skip

    group = parser.add_argument_group("encoding")
    add_options(group, EncodeSettings, "encoder", "weights", "target_mpp")
    add_options(group, EncodeSettings, "patch_size", "slide_mpp", "channels")
    add_options(group, EncodeSettings, "min_tissue", "stain", "allow_upsampling")
    add_options(group, EncodeSettings, "precision")

    group = parser.add_argument_group("folds")
    add_options(group, StudySettings, "folds", "seeds", "ignore_split")

    group = parser.add_argument_group("training")
    add_options(group, StudySettings, "model", "steps", "pretrain_steps")
    add_options(group, StudySettings, "pretrain_once", "batch_size", "learning_rate")
    add_options(group, StudySettings, "standardise", "site_batches")
    add_options(group, LearningDetails, *settings_of(LearningDetails))
    add_options(group, StudySettings, "seed", "device", "workers")

    group = parser.add_argument_group("views of a slide")
    names = [name for name in settings_of(ViewSettings) if name != "views"]
    add_options(group, ViewSettings, *names)

    group = parser.add_argument_group("patch encoder")
    add_options(group, StudySettings, "patch_method", "patch_arch", "patch_epochs")


def run(args: argparse.Namespace, console: Console) -> int:
    folder = StudyFolder(Path(args.out))
    if args.request:
        return _ask(folder, args.request, console)
    settings = study_settings(args, folder)
    if args.check:
        return _check(settings, console, measure=args.measure)
    if not folder.is_held():
        folder.clear_request()  # of before
    sleep_while_waiting()
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.studies.study import study

    command = command_to_share(sys.argv[1:], args.out)

    def say(result: StudyResult) -> None:
        _tell(result, console)
        sys.stdout.flush()  # the process ends without

    events = study(settings, command=command, hard_after=HARD_SECONDS, say=say)
    return _tell(console.follow(events), console)


def _tell(result: StudyResult, console: Console) -> int:
    console.say("\n".join(result.says))
    if result.status in ("paused", "discarded") or result.model is None:
        out = result.folder
        console.say(f"The study is {result.status}; 'spt study {out}' goes on.")
    else:
        console.say(f"Written: {result.model} and {result.report}")
    console.record(
        {
            "event": "done",
            "status": result.status,
            "says": list(result.says),
            "model": str(result.model) if result.model else None,
            "report": str(result.report) if result.report else None,
            "run": result.run,
        }
    )
    return 0


def study_settings(args: argparse.Namespace, folder: StudyFolder) -> StudySettings:
    """Of the options; those of before where nothing is said."""
    if args.goal is None and not args.slides and not args.features:
        if not folder.settings.exists():
            raise InputError(
                f"{args.out} is no study yet. Give --goal, and --slides or --features."
            )
        return replace(StudySettings.read(folder.settings), out=str(folder.path))
    if args.goal is None:
        goals = ", ".join(Goal)
        raise InputError(f"Give --goal, what the study is for: one of {goals}.")
    return settings_from(
        args,
        StudySettings,
        out=str(folder.path),
        slides=absolute(args.slides),
        features=absolute(args.features),
        labels=absolute(args.labels),
        slide_table=absolute(args.slide_table),
        init=absolute(args.init),
        # --batch-size and --device are of training.
        encode=settings_from(args, EncodeSettings, batch_size=None, device="auto"),
        views=settings_from(args, ViewSettings),
        details=settings_from(args, LearningDetails),
    )


def _ask(folder: StudyFolder, request: str, console: Console) -> int:
    if not folder.is_held():
        return _end_unattended(folder, Request(request), console)
    folder.ask(request)
    console.say(f"Asked: {request}.")
    console.record({"event": "asked", "request": request})
    return 0


def _end_unattended(folder: StudyFolder, request: Request, console: Console) -> int:
    is_to_keep = end_unattended(folder, request)
    if not is_to_keep:
        state = folder.state()
        status, said = (state.status, state.message) if state else ("", "")
        result = StudyResult(folder.path, status, (said,) if said else ())
        return _tell(result, console)
    sleep_while_waiting()
    lower_priority()  # a window may be open beside it
    with folder.held():  # so that it is seen at work while torch is loaded
        from spt_core.studies.study import study
    settings = replace(StudySettings.read(folder.settings), out=str(folder.path))
    return _tell(console.follow(study(settings, keep=request)), console)


def _check(settings: StudySettings, console: Console, *, measure: bool) -> int:
    from spt_core.studies.study_check import check_study

    if measure:
        # A window may be open beside it; and so does a study that a window begins.
        lower_priority()
    found = check_study(settings)
    _say(found, console)
    if measure and not stops(found):
        from spt_core.studies.study_measure import measure_study

        _say(measure_study(settings), console)
    return 1 if stops(found) else 0


def _say(found: Iterable[Finding], console: Console) -> None:
    for one in found:
        console.say(f"{one.rank.value}: {one}")
        console.record(_record(one))


def _record(one: Finding) -> dict[str, str]:
    return {
        "event": "finding",
        "rank": one.rank.value,
        "about": one.about.value,
        "says": one.says,
        "do": one.do,
    }
