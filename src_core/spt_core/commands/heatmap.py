"""``spt heatmap``: attention and class map as GeoJSON, OME-TIFF, PNG or a report."""

import argparse
import hashlib
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.predict import Asker, add_model_argument, add_shared_arguments
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.hints import Hint

if TYPE_CHECKING:
    from spt_core.insight.faithfulness import Faithfulness
    from spt_core.insight.geometry import Geometry
    from spt_core.insight.results import ClassMap, Prediction
    from spt_core.slides import Slide

FORMATS = {
    ".geojson": "geojson",
    ".ome.tif": "ome",
    ".ome.tiff": "ome",
    ".png": "png",
    ".html": "html",
}


@dataclass(frozen=True)
class HeatmapOptions:
    stride: Annotated[
        int,
        Hint("distance between windows of the class map", above=0, unit="patches"),
    ] = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "The ending of FILE chooses the format: .geojson (QuPath), .ome.tif, .png, or "
        ".html for a report. For research, not for diagnosis."
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
    formats = [_format(path) for path in args.out]
    settings_from(args, HeatmapOptions)
    with Asker(args) as asker:
        if len(asker.sources) != 1:
            raise InputError(
                f"{args.sources} holds {len(asker.sources)} slides; name one of them."
            )
        heatmap = Heatmap(asker, args)
        console.follow(heatmap.events(), unit="patch")
        console.say(f"{asker.sources[0].name}: {heatmap.prediction.sentence}")
        for path, name in zip(args.out, formats, strict=True):
            heatmap.write(path, name)
            console.say(f"Written: {path}")
    console.record({"event": "done", "files": [str(path) for path in args.out]})
    return 0


class Heatmap:
    """All that is known of one slide, ready to be written in any format."""

    prediction: "Prediction"

    def __init__(self, asker: Asker, args: argparse.Namespace) -> None:
        self.asker, self.args = asker, args
        self.classes: ClassMap | None = None
        self.check: Faithfulness | None = None
        self.slide: Slide | None = None

    def events(self) -> Generator[Any, None, None]:
        from spt_core.insight.class_map import class_map
        from spt_core.insight.faithfulness import faithfulness
        from spt_core.insight.predicting import read_for
        from spt_core.slides import open_slide

        (source,) = self.asker.sources
        self.prediction = yield from self.asker.ask(source)
        path = self.args.slide or (None if source.is_features else source.path)
        if path is not None:
            self.slide = open_slide(path, self.args.slide_mpp)
            self._refuse_another_slide(path)
        elif any(_format(out) == "geojson" for out in self.args.out):
            yield Note(
                "Where the slide's scanned part begins is unknown without --slide: the "
                "GeoJSON counts from the corner of the canvas."
            )
        model = self.asker.model
        if len(self.prediction) == 0 or self.prediction.probabilities is None:
            return
        tokens = read_for(model, self.asker.features_of(source))
        if not self.args.no_class_map:
            work = class_map(
                model, tokens, stride=self.args.stride, margin=self.args.margin
            )
            with closing(work):
                self.classes = yield from work
        if self.args.check:
            self.check = yield from faithfulness(model, tokens)

    @property
    def called(self) -> str:
        if self.args.include_slide_name:
            return self.prediction.name
        return self.prediction.pseudonym

    @property
    def geometry(self) -> "Geometry":
        from spt_core.insight.geometry import Geometry

        return Geometry.of(
            self.prediction.facts, self.slide, stated_by_user=self._is_stated_by_user
        )

    @property
    def _is_stated_by_user(self) -> bool:
        """Whether the pixel size is the user's word: the file's comes before it."""
        from spt_core.slides import open_slide

        if self.slide is None or self.args.slide_mpp is None:
            return False
        plain = open_slide(self.slide.path)
        try:
            return plain.mpp_xy is None
        finally:
            plain.close()

    @property
    def title(self) -> str:
        from spt_core.insight.model_card import ModelCard

        return ModelCard(self.args.model, self.asker.model.card).title

    def write(self, path: Path, name: str) -> None:
        from spt_core.insight import geojson, ome_tiff, overlay
        from spt_core.insight.picture import tissue_picture

        found, geometry = self.prediction, self.geometry
        if name == "geojson":
            geojson.write_geojson(path, found, self.classes, geometry)
        elif name == "ome":
            ome_tiff.write_ome_tiff(
                path, found, self.classes, geometry, name=self.called
            )
        elif name == "png":
            overlay.refuse_empty(found)
            picture = tissue_picture(found, self.slide)
            if self.args.show == "attention":
                unit = self.args.scale.replace("-", " ")
                image = overlay.attention_overlay(
                    found, picture, geometry, unit=unit, model=self.title
                )
            elif self.classes is None:
                raise InputError("There is no class map to show: the model has none.")
            else:
                image = overlay.class_overlay(
                    found, self.classes, picture, geometry, model=self.title
                )
            overlay.write_png(path, image)
        else:
            self._write_report(path)

    def _write_report(self, path: Path) -> None:
        from spt_core.insight.report import ReportParts, write_report

        content = self.args.model.read_bytes()
        write_report(
            path,
            ReportParts(
                prediction=self.prediction,
                geometry=self.geometry,
                called=self.called,
                card=self.asker.model.card,
                model_name=self.args.model.name,
                model_sha256=hashlib.sha256(content).hexdigest(),
                command=self._command(),
                slide=self.slide,
                classes=self.classes,
                faithfulness=self.check,
            ),
        )

    def _command(self) -> str:
        """The same again; slide and features under words that say nothing of whose."""
        from spt_core.insight.report import FEATURES_WORD, SLIDE_WORD, command_again

        args = self.args
        (source,) = self.asker.sources
        options = ["--margin", f"{args.margin:g}", "--stride", str(args.stride)]
        for option, given in (
            ("--no-class-map", args.no_class_map),
            ("--check", args.check),
            ("--include-slide-name", args.include_slide_name),
        ):
            options += [option] if given else []
        if args.slide is not None:
            options += ["--slide", SLIDE_WORD]
        if args.slide_mpp is not None:
            options += ["--slide-mpp", f"{args.slide_mpp:g}"]
        if args.encoder_weights is not None:
            options += ["--encoder-weights", "WEIGHTS"]
        what = FEATURES_WORD if source.is_features else SLIDE_WORD
        return command_again(args.model, what, options)

    def _refuse_another_slide(self, path: Path) -> None:
        stated = self.prediction.facts.slide_fingerprint
        if stated and self.slide is not None and self.slide.fingerprint != stated:
            raise InputError(
                f"{path.name} is not the slide that these features were made from."
            )


def _format(path: Path) -> str:
    for ending, name in FORMATS.items():
        if path.name.lower().endswith(ending):
            return name
    raise InputError(
        f"--out {path.name}: its ending must be one of {', '.join(FORMATS)}."
    )
