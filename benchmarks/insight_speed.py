"""Prediction and class map: time against matrix products and one attention pass."""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from _alternately import add_clock, alternately, choose_clock
from _figures import Figures
from learning_attend import SIDE, products, resident_bytes

from spt_core.insight.class_map import class_map
from spt_core.insight.predicting import predict, read_for
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.model_card import (
    Architecture,
    ModelCard,
    TokenKind,
    TrainingSummary,
)
from spt_core.learning.model_file import SlideModel
from spt_core.tokens import TokenFacts, Tokens, write_tokens

DIM, STEP = 512, 300


def some_model(preset: str) -> SlideModel:
    torch.manual_seed(0)
    encoder = build_encoder(preset, DIM).eval()
    card = ModelCard(
        Architecture(encoder.name, encoder.config),
        TokenKind(DIM),
        TrainingSummary(slides=0),
        classes=("a", "b", "c"),
    )
    return SlideModel(encoder, card, torch.nn.Linear(encoder.dim, 3))


def write_slide(path: Path, n: int) -> Path:
    side = int(np.ceil(np.sqrt(n)))
    p = np.stack(np.divmod(np.arange(n), side), axis=1)
    x = np.random.default_rng(0).normal(size=(n, DIM)).astype(np.float32)
    facts = TokenFacts(l0_patch_xy=(STEP, STEP), l0_step_xy=(STEP, STEP))
    write_tokens(path, Tokens(x, p, p[:, ::-1] * STEP, facts))
    return path


def run_through(work) -> None:
    for _ in work:
        pass


def child(preset: str, path: str) -> None:
    """Most memory while reading and predicting, above that of the model (Linux)."""
    model = some_model(preset)
    predict(model, read_for(model, path).take(np.arange(64)))
    before, most, done = resident_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    predict(model, read_for(model, path))
    done.set()
    watcher.join()
    print(json.dumps(max(0, most - before)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presets", nargs="+", default=["paper", "small"])
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    add_clock(parser)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    n, clock = args.tokens, choose_clock(args.clock)
    figures = Figures("insight_speed", seed=0, clock=args.clock)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    with tempfile.TemporaryDirectory() as folder:
        path = write_slide(Path(folder) / "slide.h5", n)
        for preset in args.presets:
            model = some_model(preset)
            tokens = read_for(model, path)
            needed = products(n, model.encoder.dim, model.encoder.config["depth"])
            times = max(1, round(needed / 4 / (2 * SIDE**3)))

            def rate(times=times):
                for _ in range(times):
                    a @ b

            whole, _, ratio = alternately(
                lambda model=model: predict(model, read_for(model, path)),
                rate,
                repeats=args.repeats,
                clock=clock,
            )
            share = needed / (times * 2 * SIDE**3)
            figures.add(f"{preset}: features to prediction at {n} tokens", whole, "s")
            goal = "<= 1.3" if preset == "paper" else ""
            figures.add(
                f"{preset}: prediction / its products", ratio / share, "x", goal=goal
            )
            mapped, _, ratio = alternately(
                lambda model=model, tokens=tokens: run_through(
                    class_map(model, tokens, stride=4)
                ),
                lambda model=model, tokens=tokens: predict(model, tokens),
                repeats=args.repeats,
                clock=clock,
            )
            figures.add(f"{preset}: class map at stride 4", mapped, "s")
            figures.add(
                f"{preset}: class map / one attention pass", ratio, "x", goal="<= 1.5"
            )
        sizes = (n // 2, n, 2 * n)
        memory = []
        for count in sizes:
            slide = write_slide(Path(folder) / f"{count}.h5", count)
            words = [sys.executable, __file__, "--child", args.presets[0], str(slide)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            memory.append(json.loads(done.stdout) / 2**20)
            figures.add(f"memory above the model at {count} tokens", memory[-1], "MiB")
        growth = (memory[-1] / memory[0]) / (sizes[-1] / sizes[0])
        figures.add("growth of memory for growth of tokens", growth, "x",
                    goal="about 1")  # fmt: skip
    figures.save()


if __name__ == "__main__":
    main()
