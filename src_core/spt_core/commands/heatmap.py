"""``spt heatmap``: attention and class map as GeoJSON, OME-TIFF, PNG or a report."""

import argparse
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.predict import (
    Predictor,
    add_model_argument,
    add_shared_arguments,
)
from spt_core.encoder_terms import terms_sentence
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.hints import Hint
from spt_core.insight.windows import STRIDE
from spt_core.notice import NOT_FOR_DIAGNOSIS

if TYPE_CHECKING:
    from spt_core.insight.exporting import Findings
    from spt_core.insight.inputs import Input
    from spt_core.tokens import TokenFacts


@dataclass(frozen=True)
class HeatmapOptions:
    stride: Annotated[
        int,
        Hint("distance between windows of the class map", above=0, unit="patches"),
    ] = STRIDE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from spt_core.insight.exporting import FORMATS

    formats = ", ".join(f"{one.endings[0]} ({one.name})" for one in FORMATS)
    parser.epilog = (
        f"The ending of FILE chooses the format: {formats}. {NOT_FOR_DIAGNOSIS}"
    )
    add_model_argument(parser)
    parser.add_argument(
        "sources",
        metavar="SLIDE_OR_FEATURES",
        type=Path,
        help="slide, or its feature file",
    )
    parser.add_argument(
        "--out",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="files to write",
    )
    parser.add_argument(
        "--slide",
        type=Path,
        metavar="SLIDE",
        help="slide that the features are of, for pictures of its tissue",
    )
    parser.add_argument(
        "--show",
        choices=("attention", "classes"),
        default="attention",
        help="what a PNG shows (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        choices=("times-average", "percentile"),
        default="times-average",
        help="scale of attention in a PNG: times-average is the same for every slide, "
        "percentile uses all colours on each (default: %(default)s)",
    )
    add_options(parser, HeatmapOptions, "stride")
    parser.add_argument(
        "--no-class-map", action="store_true", help="compute attention alone"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check whether attention matters, and add the result to a report (takes "
        "a while)",
    )
    parser.add_argument(
        "--include-slide-name",
        action="store_true",
        help="name the slide by its name instead of a pseudonym",
    )
    add_shared_arguments(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    from spt_core.insight.exporting import format_of, write_findings
    from spt_core.insight.wording import prediction_sentence
    from spt_core.tokens import read_index

    for path in args.out:
        format_of(path)
    settings_from(args, HeatmapOptions)
    with Predictor(args) as predictor:
        if len(predictor.inputs) != 1:
            raise InputError(
                f"{args.sources} holds {len(predictor.inputs)} slides; name one of "
                "them."
            )
        (given,) = predictor.inputs
        if given.is_features:
            _refuse_unplaced(args, given.path.name, read_index(given.path).facts)
        findings = console.follow(_find(predictor, given), unit="patch")
        console.say(f"{given.name}: {prediction_sentence(findings.prediction)}")
        unit = args.scale.replace("-", " ")
        for path in args.out:
            write_findings(path, findings, show=args.show, unit=unit)
            console.say(f"Written: {path}")
        if terms := terms_sentence(findings.prediction.facts.encoder):
            console.say(terms)
    console.record({"event": "done", "files": [str(path) for path in args.out]})
    return 0


def _refuse_unplaced(args: argparse.Namespace, name: str, facts: "TokenFacts") -> None:
    """A map lies on the slide, so patches must."""
    if not facts.has_positions:
        raise InputError(
            f"{name} does not say where its patches lie, so there is no map of them. "
            "'spt predict' needs no positions."
        )
    is_picture = args.slide is None and all(
        path.suffix.lower() == ".png" for path in args.out
    )
    if "xy" in facts.assumed and not is_picture:
        raise InputError(
            f"{name} says where its patches lie among themselves, and not in pixels of "
            "the slide: 'spt convert' with --slide-mpp writes features that do. A PNG "
            "without --slide needs no more than there is."
        )


def _find(predictor: Predictor, given: "Input") -> Generator[Any, None, "Findings"]:
    """Yield events, and return all that the files to write may hold."""
    from spt_core.insight.class_map import class_map
    from spt_core.insight.exporting import Findings, refuse_other_slide
    from spt_core.insight.faithfulness import faithfulness
    from spt_core.insight.predicting import read_for
    from spt_core.slides import open_slide

    args = predictor.args
    prediction = yield from predictor.predict(given)
    slide = args.slide or (None if given.is_features else given.path)
    if slide is None and any(path.suffix.lower() == ".geojson" for path in args.out):
        yield Note(
            "Where the slide's scanned part begins is unknown without --slide: the "
            "GeoJSON counts from the corner of the canvas."
        )
    mpp_from_user = False
    if slide is not None:
        with closing(open_slide(slide)) as opened:
            refuse_other_slide(prediction, opened)
            mpp_from_user = args.slide_mpp is not None and opened.mpp_xy is None
    findings = Findings(
        prediction,
        slide,
        model=args.model,
        slide_mpp=args.slide_mpp,
        mpp_from_user=mpp_from_user,
        title=prediction.name if args.include_slide_name else None,
        command=_command(predictor, given),
    )
    if len(prediction) == 0 or prediction.probabilities is None:
        return findings
    model = predictor.model
    site = predictor.site_of(given)
    tokens = read_for(model, predictor.features_of(given), site=site)
    if not args.no_class_map:
        work = class_map(model, tokens, stride=args.stride, margin=args.margin)
        with closing(work):
            findings = replace(findings, class_map=(yield from work))
    if args.check:
        check = yield from faithfulness(model, tokens)
        findings = replace(findings, faithfulness=check)
    return findings


def _command(predictor: Predictor, given: "Input") -> str:
    """The command that does the same, without the names of slide and features."""
    args = predictor.args
    from spt_core.insight.reproducing import FEATURES_WORD, SLIDE_WORD, command_again

    options = ["--margin", f"{args.margin:g}", "--stride", str(args.stride)]
    for option, chosen in (
        ("--no-class-map", args.no_class_map),
        ("--check", args.check),
        ("--include-slide-name", args.include_slide_name),
    ):
        options += [option] if chosen else []
    site = predictor.site_of(given)
    if site is not None:
        options += ["--site", site]
    if args.slide is not None:
        options += ["--slide", SLIDE_WORD]
    if args.slide_mpp is not None:
        options += ["--slide-mpp", f"{args.slide_mpp:g}"]
    if args.channels is not None:
        options += ["--channels", args.channels]
    if args.encoder_weights is not None:
        options += ["--encoder-weights", "WEIGHTS"]
    source = FEATURES_WORD if given.is_features else SLIDE_WORD
    return command_again(args.model, source, options)
