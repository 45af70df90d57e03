"""Attention against the truth, and predictions that grow, on sample slides.

Supervised models, the default and one as the bundled one is, and ABMIL learn from 60
sample slides; 30 others, of the same sites, are asked about.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from _figures import Figures
from _insight_cohort import (
    encode,
    growing_slides,
    held_out,
    learn,
    make_slides,
    tumour_patches,
)
from sklearn.metrics import roc_auc_score

from spt_core import bundled, load_model, open_slide
from spt_core.insight.growing import predict_slide
from spt_core.insight.maps import attention_values
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.results import Prediction, Verdict
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.model_file import SlideModel
from spt_core.learning.views import THE_PAPERS
from spt_core.patches import EncodeSettings
from spt_core.patches.registry import load_encoder
from spt_core.sample.cohort import SIZE
from spt_core.tokens import Tokens


def nuclear_density(slide: Path, tokens: Tokens) -> np.ndarray:
    """Share of each patch that takes much red light, as nuclei do and eosin not."""
    pixels = open_slide(slide)
    width, height = tokens.facts.l0_patch_xy or (1, 1)
    density = []
    for x, y in tokens.xy:
        red = pixels.read(0, int(x), int(y), width, height)[::2, ::2, 0]
        density.append(-np.log10((red.astype(float) + 1) / 256))
    taken = np.stack(density)
    dark = np.quantile(taken, 0.8)
    return (taken > dark).mean(axis=(1, 2))


def untrained(model: SlideModel) -> SlideModel:
    torch.manual_seed(0)
    encoder = build_encoder("small", model.card.tokens.dim).eval()
    return SlideModel(encoder, model.card)


def attention_against_truth(folder: Path, figures: Figures) -> None:
    ours = load_model(learn(folder, "small"))
    one_layer = learn(
        folder,
        "small",
        architecture={"depth": 1, "heads": 6},
        views=replace(THE_PAPERS, crop=False),
        steps=1000,
    )
    models = {
        "slide transformer": ours,
        "slide transformer, one layer": load_model(one_layer),
        "ABMIL": load_model(learn(folder, "abmil")),
        "untrained encoder": untrained(ours),
    }
    aucs = defaultdict(list)
    right = defaultdict(list)
    unlike = []
    for name, label in held_out(folder):
        path = folder / "slides" / f"{name}.tif"
        tokens = read_for(ours, folder / "features" / f"{name}.h5")
        truth = tumour_patches(path, tokens)
        scores = {"nuclear density": nuclear_density(path, tokens)}
        for which, model in models.items():
            found = predict(model, tokens)
            scores[which] = attention_values(found.attention)
            if model.classes:
                right[which].append(found.classes[found.top] == label)
            if model is ours:
                unlike.append(found.verdict == Verdict.UNLIKE)
        if 0 < truth.sum() < len(truth):
            for which, score in scores.items():
                aucs[which].append(roc_auc_score(truth, score))
    figures.add("slides asked about", len(unlike))
    for which in (*models, "nuclear density"):
        goal = ">= 0.8" if which == "slide transformer" else ""
        figures.add(f"attention AUC, {which}, mean", np.mean(aucs[which]), goal=goal)
        figures.add(
            f"attention AUC, {which}, worst decile", np.quantile(aucs[which], 0.1)
        )
        if right[which]:
            figures.add(f"slides classified right, {which}", np.mean(right[which]))
    figures.add("held-out slides called unlike", np.mean(unlike))


def growing(folder: Path, figures: Figures, encoder, slides: int, size: int) -> None:
    model = load_model(learn(folder, "small"))
    agree, shares, firsts = defaultdict(list), [], []
    for path in list(growing_slides(folder, slides, size)):
        grown, seconds, last = run_slide(model, path, encoder)
        firsts.append(grown[0].top == last.top)
        shares.append(seconds[0] / seconds[-1])
        for one in grown:
            count = 16 * 2 ** int(np.log2(one.seen / 16))
            agree[count].append(one.top == last.top)
    for count, found in sorted(agree.items()):
        figures.add(f"agreement with the whole from {count} patches", np.mean(found))
    figures.add("agreement of the first prediction", np.mean(firsts), goal=">= 0.9")
    figures.add("slides encoded", len(firsts))
    figures.add(
        f"time to the first prediction, of slides of {last.total} patches or so",
        np.median(shares), "of the whole", goal="<= 0.1",
    )  # fmt: skip


def run_slide(
    model: SlideModel, path: Path, encoder
) -> tuple[list[Prediction], list[float], Prediction]:
    """The growing predictions, the seconds at which each came, and the last."""
    grown, seconds = [], []
    with tempfile.TemporaryDirectory() as out:
        settings = EncodeSettings(device="cpu")
        work = predict_slide(model, path, out, settings, encoder=encoder)
        start = time.perf_counter()
        while True:
            try:
                event = next(work)
            except StopIteration as stop:
                seconds.append(time.perf_counter() - start)
                return grown, seconds, stop.value
            if isinstance(event, Prediction):
                grown.append(event)
                seconds.append(time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep slides and models here")
    parser.add_argument("--slides", type=int, default=30, help="to encode growing")
    parser.add_argument("--size", type=int, default=SIZE, help="of those, in pixels")
    parser.add_argument("--only", choices=("attention", "growing"))
    args = parser.parse_args()
    figures = Figures("insight_attention", seeds=(0, 1), slides=90, learned_from=60)
    encoder = load_encoder(bundled.ENCODER)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        make_slides(folder)
        encode(folder, encoder)
        if args.only != "growing":
            attention_against_truth(folder, figures)
        if args.only == "attention":
            return
        growing(folder, figures, encoder, args.slides, args.size)
    figures.save()


if __name__ == "__main__":
    main()
