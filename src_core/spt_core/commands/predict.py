"""``spt predict``: class probabilities for each slide."""

import argparse
import json
import tempfile
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spt_core import bundled
from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.csv_files import write_rows
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.files import written_whole
from spt_core.hints import Hint
from spt_core.insight.results import MARGIN, Verdict
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.settings import EncodeSettings
from spt_core.patients_key import KEY_FILE, read_key
from spt_core.tokens import layout

if TYPE_CHECKING:
    from spt_core.insight.inputs import Input
    from spt_core.insight.predicting import Patient
    from spt_core.insight.results import Prediction
    from spt_core.learning.model_file import SlideModel
    from spt_core.tokens import Labels


@dataclass(frozen=True)
class PredictOptions:
    margin: Annotated[
        float,
        Hint(
            "smallest difference between the two most likely classes; below it the "
            f"verdict is '{Verdict.UNDECIDED}'",
            minimum=0,
            maximum=1,
            metavar="SHARE",
        ),
    ] = MARGIN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOT_FOR_DIAGNOSIS
    add_model_argument(parser)
    parser.add_argument(
        "sources",
        metavar="SLIDE_OR_FEATURES",
        nargs="+",
        type=Path,
        help="slides, feature files, or folders of either",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file for the results (.json or .csv)"
    )
    parser.add_argument(
        "--include-slide-name",
        action="store_true",
        help="name slides in the file by their names instead of pseudonyms",
    )
    add_shared_arguments(parser)


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        type=Path,
        help="model file, *.safetensors (default: the bundled demonstration, which "
        "knows only synthetic tissue)",
    )


def settle_model(args: argparse.Namespace) -> None:
    """Take the bundled model where none is named: the first name is then a slide's."""
    named = args.model
    if named is not None and named.suffix == ".safetensors":
        return
    if named is not None and str(named) != bundled.SLIDE_MODEL:
        if not isinstance(args.sources, list):
            raise InputError(f"{named} is no model file: its name ends otherwise.")
        args.sources.insert(0, named)
    args.model = bundled.slide_model_path()


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every command that asks a model about a slide."""
    add_options(parser, PredictOptions, "margin")
    add_site_option(parser)
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="CSV",
        help="table with columns slide and patient, to tell whether the model was "
        "trained on a patient, and site where slides are from several",
    )
    parser.add_argument(
        "--patients-key",
        type=Path,
        metavar="FILE",
        help="key by which the training run's patients are recognised "
        f"(default: {KEY_FILE} beside the model)",
    )
    add_options(parser, EncodeSettings, "device")
    group = parser.add_argument_group("slides that are not encoded yet")
    group.add_argument(
        "--features",
        type=Path,
        metavar="FOLDER",
        help="folder in which to keep their features (default: they are not kept)",
    )
    add_options(group, EncodeSettings, "weights", "slide_mpp", "channels")


def add_site_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--site",
        metavar="NAME",
        type=str.strip,
        help="where the slides are from, for models that standardise tokens per site "
        "(default: the column 'site' of --labels)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    if args.out is not None and args.out.suffix not in (".json", ".csv"):
        raise InputError(f"--out {args.out.name}: name a .json or a .csv file.")
    found = []
    with Predictor(args) as predictor:
        for given in predictor.inputs:
            try:
                prediction = console.follow(predictor.predict(given), unit="patch")
            except InputError as error:
                if len(predictor.inputs) == 1:
                    raise
                console.error(f"{given.name}: {error}")
                continue
            finally:
                predictor.forget(given)
            found.append(prediction)
            record = prediction_record(prediction, slide=given.name)
            console.say(f"{given.name}: {record['sentence']}")
            console.record({"event": "prediction", **record})
    if args.out is not None:
        write_predictions(args.out, found, names=args.include_slide_name)
    return 0 if len(found) == len(predictor.inputs) else 1


@dataclass(frozen=True)
class Refreshed:
    """An event: the prediction from the patches so far, without its arrays."""

    slide: str
    seen: int
    total: int
    verdict: Verdict
    answer: str | None
    probabilities: Mapping[str, float]


class Predictor:
    """A model and the slides to predict, as predict and heatmap are given them."""

    def __init__(self, args: argparse.Namespace) -> None:
        from spt_core.devices import choose_device
        from spt_core.insight.inputs import find_inputs
        from spt_core.learning.model_file import load_model
        from spt_core.tokens import read_labels

        settings_from(args, PredictOptions)
        settle_model(args)
        given = args.sources if isinstance(args.sources, list) else [args.sources]
        self.args = args
        self.inputs: list[Input] = find_inputs(given)
        self.model: SlideModel = load_model(args.model, choose_device(args.device))
        self.labels: Labels | None = read_labels(args.labels) if args.labels else None
        self.key = patients_key(args.model, args.patients_key)
        self._encoder: Any = None
        self._temporary: tempfile.TemporaryDirectory | None = None

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(self, *_: object) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def predict(self, given: "Input") -> Generator[Any, None, "Prediction"]:
        """Yield events without arrays, and return the prediction."""
        from spt_core.insight.predicting import predict, read_for

        if given.is_features:
            yield from []
            tokens = read_for(self.model, given.path, site=self.site_of(given))
            return predict(
                self.model,
                tokens,
                margin=self.args.margin,
                patient=self._patient(given.name),
            )
        if self.args.features is None and self._temporary is None:
            yield Note("Slides' features are not kept; --features FOLDER keeps them.")
        return (yield from self._encode(given, self.features_of(given).parent))

    def features_of(self, given: "Input") -> Path:
        """The feature file of an input that was predicted."""
        if given.is_features:
            return given.path
        folder = self.args.features
        if folder is None:
            if self._temporary is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="spt-")
            folder = Path(self._temporary.name)
        return folder / f"{given.name}{layout.ENDING}"

    def forget(self, given: "Input") -> None:
        """Drop features that nobody asked to keep."""
        if self._temporary is not None and not given.is_features:
            self.features_of(given).unlink(missing_ok=True)

    def _encode(
        self, given: "Input", folder: Path
    ) -> Generator[Any, None, "Prediction"]:
        from spt_core.insight.growing import predict_slide, settings_for
        from spt_core.insight.results import Prediction
        from spt_core.patches import load_encoder

        settings = settings_for(
            self.model,
            settings_from(self.args, EncodeSettings),
        )
        if self._encoder is None:
            self._encoder = load_encoder(settings.encoder, settings.weights)
        events = predict_slide(
            self.model,
            given.path,
            folder,
            settings,
            encoder=self._encoder,
            margin=self.args.margin,
            patient=self._patient(given.name),
            site=self.site_of(given),
        )
        with closing(events):
            while True:
                try:
                    event = next(events)
                except StopIteration as stop:
                    return stop.value
                if isinstance(event, Prediction):
                    event = Refreshed(
                        event.name,
                        event.seen,
                        event.total,
                        event.verdict,
                        event.answer,
                        event.shares,
                    )
                yield event

    def site_of(self, given: "Input") -> str | None:
        """Where a slide is from, as far as anybody said."""
        row = self.labels.by_slide.get(given.name) if self.labels else None
        return self.args.site or (row.site if row else None)

    def _patient(self, name: str) -> "Patient | None":
        from spt_core.insight.predicting import Patient

        row = self.labels.by_slide.get(name) if self.labels else None
        if row is None or not row.patient or self.key is None:
            return None
        return Patient(row.patient, self.key)


def patients_key(model: Path, given: Path | None) -> bytes | None:
    """The key of a run's patients: the file given, or the one beside the model."""
    path = given or model.with_name(KEY_FILE)
    if not path.exists():
        if given:
            raise InputError(f"There is no file {path}.")
        return None
    return read_key(path)


def prediction_record(prediction: "Prediction", *, slide: str) -> dict[str, Any]:
    """A prediction as plain data; ``slide`` is what to call it."""
    from spt_core.insight.wording import number_name, prediction_sentence

    shares, likeness = prediction.shares, prediction.likeness
    number = number_name(calibrated=prediction.calibrated) if shares else None
    return {
        "slide": slide,
        "verdict": prediction.verdict,
        "answer": prediction.answer,
        "probabilities": shares,
        "number": number,
        "seen": prediction.seen,
        "total": prediction.total,
        "trained_on": prediction.trained_on,
        "remarks": {one.kind.value: one.value for one in prediction.remarks},
        "distances": dict(likeness.distances) if likeness else {},
        "limits": dict(likeness.limits) if likeness else {},
        "sentence": prediction_sentence(prediction),
    }


def write_predictions(path: Path, found: list["Prediction"], *, names: bool) -> None:
    """All results in one file, slides under pseudonyms unless names are wanted."""
    records = [
        prediction_record(one, slide=one.name if names else one.pseudonym)
        for one in found
    ]
    with written_whole(path) as temporary:
        if path.suffix == ".json":
            text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
            temporary.write_text(text, encoding="utf-8")
            return
        classes = list(dict.fromkeys(c for r in records for c in r["probabilities"]))
        plain = ("slide", "verdict", "answer", "number", "seen", "total", "trained_on")
        rows = [(*plain, *classes, "sentence")]
        for one in records:
            shares = [one["probabilities"].get(name) for name in classes]
            rows.append((*(one[name] for name in plain), *shares, one["sentence"]))
        write_rows(temporary, rows)
