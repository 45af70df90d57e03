"""The bundled slide model on sample slides of another seed, and on real slides.

Sample slides: accuracy, how many are taken for unlike, and the attention against the
truth (area under the ROC curve of "tumour", 0.5 = chance). Real slides, where they are:
each must be unlike, with no class named.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from _figures import Figures
from _insight_cohort import tumour_patches
from sklearn.metrics import roc_auc_score

from spt_core import bundled, load_model
from spt_core.errors import InputError
from spt_core.insight.maps import attention_values
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.wording import prediction_sentence
from spt_core.patches import EncodeSettings, encode_slides, slide_tasks
from spt_core.patches.folder import find_slides
from spt_core.sample.cohort import write_sample_cohort
from spt_core.tokens import read_labels

ROOT = Path(__file__).parents[1]


def finished(events):
    while True:
        try:
            next(events)
        except StopIteration as stop:
            return stop.value


def encoded(slides: list[Path], folder: Path, encoder: str, mpp=None):
    """Tokens by slide; what cannot be encoded is said."""
    settings = EncodeSettings(encoder=encoder)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = slide_tasks(slides, folder, mpp or {})
    for result in finished(encode_slides(tasks, settings)):
        if result.path is None:
            print(f"{result.name}: not encoded, {result.reason}")
        else:
            yield result.name, result.path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--encoder", default=bundled.ENCODER)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--cohort", type=Path, help="painted, and encoded, before")
    parser.add_argument("--only", choices=("sample", "real"))
    args = parser.parse_args()
    model = load_model(args.model or bundled.slide_model_path())
    model.card = replace(model.card, demonstration=True)
    figures = Figures("bundled_slide_model", cohort_seed=303)
    with tempfile.TemporaryDirectory() as made:
        if args.only != "real":
            folder = args.cohort or Path(made) / "fresh"
            if args.cohort is None:
                finished(write_sample_cohort(folder, slides=24, size=4096, seed=303))
            on_samples(model, folder, args.encoder, figures)
        if args.only != "sample" and args.data.is_dir():
            on_real(model, args.data, Path(made) / "real", args.encoder, figures)
    figures.save()


def on_samples(model, folder: Path, encoder: str, figures: Figures) -> None:
    labels = read_labels(folder / "labels.csv").by_slide
    slides = sorted(folder.glob("*.tif"))
    right, unlike, aucs, far = [], [], [], []
    for name, path in encoded(slides, folder / "features", encoder):
        tokens = read_for(model, path)
        said = predict(model, tokens, always_named=True)
        right.append(model.classes[said.top] == labels[name].label)
        unlike.append(said.likeness.is_unlike)
        far.append(closeness(said))
        truth = tumour_patches(folder / f"{name}.tif", tokens)
        if 0 < truth.sum() < len(truth):
            aucs.append(roc_auc_score(truth, attention_values(said.attention)))
    figures.add("sample slides, accuracy", float(np.mean(right)), goal=">= 0.9")
    figures.add("sample slides taken for unlike", float(np.mean(unlike)), goal="0")
    figures.add("sample slides, farthest in units of the limit", max(far), goal="< 1")
    figures.add("attention on tumour, area under the curve", float(np.mean(aucs)))


def closeness(said) -> float:
    """The larger of the two distances, in units of its limit: unlike beyond 1."""
    found = said.likeness
    return max(found.distances[name] / found.limits[name] for name in found.limits)


def on_real(model, data: Path, folder: Path, encoder: str, figures: Figures) -> None:
    slides = find_slides([data / "slides", data / "sections"])
    # It does not say how large its pixels are.
    mpp = {"tcga-cr-7395-01a-01-ts1": 0.74}
    count = named = 0
    nearest = np.inf
    for name, path in encoded(slides, folder, encoder, mpp):
        try:
            said = predict(model, read_for(model, path))
        except InputError as error:
            print(f"{name}: {error}")
            continue
        count += 1
        named += said.probabilities is not None
        if said.likeness is not None:
            nearest = min(nearest, closeness(said))
        print(f"{name}: {prediction_sentence(said)}")
    figures.add("real slides", count)
    figures.add("real slides of which a class is named", named, goal="0")
    figures.add(
        "real slides, nearest in units of the limit", float(nearest), goal="> 1"
    )


if __name__ == "__main__":
    main()
