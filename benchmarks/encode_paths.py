"""Torch against ONNX Runtime on a CPU: the bare encoder, and a slide's whole analysis.

The encoder is timed alternately on one thread, ready tensors in, features out. The
analysis is the dock's: two engines, one by each, take turns to open a slide, find its
tissue, encode it, predict as it grows, look at attention and map classes. The share of
the machine's multiply-add rate is of what this computer reaches, in the same minute, in
a large float32 product.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from _alternately import alternately
from _engine import Clocked, first
from _figures import Figures
from torch import nn

from spt_core.devices import usual_batch
from spt_core.engine.protocol import Analyse, Analysed, Step, Working
from spt_core.patches import graph as graphs
from spt_core.patches import load_encoder
from spt_core.sample import write_sample_slide

BATCHES = (usual_batch(torch.device("cpu")), 16)  # as in use, and smaller


def multiply_adds(module: nn.Module, size: int) -> int:
    """Of one patch, in convolutions and linear layers."""
    counted = []

    def count(layer: nn.Module, given: tuple, out: torch.Tensor) -> None:
        each = layer.weight[0].numel()
        counted.append(each * out[0].numel())

    layers = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.inference_mode():
        module(torch.zeros(1, 3, size, size))
    for hook in hooks:
        hook.remove()
    return sum(counted)


def machines_rate() -> float:
    """Multiply-adds a second of one thread in a large product."""
    a = torch.rand(1024, 1024)
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, a)
        seconds.append(time.perf_counter() - start)
    return 1024**3 / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--size", type=int, default=10_240, help="pixels of the slide")
    parser.add_argument("--turns", type=int, default=4)
    args = parser.parse_args()
    figures = Figures("encode_paths", **vars(args), seed=0)
    torch.set_num_threads(1)
    encoder = load_encoder(args.encoder)
    side = encoder.card.input_size
    probe = torch.randn(4, 3, side or 128, side or 128)
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        path = Path(temporary) / "graph.onnx"
        graphs.export(encoder.module, probe, path, any_size=side is None)
        graph = graphs.Graph(path.read_bytes())
        same = torch.cosine_similarity(encoder.module(probe), graph(probe)).min()
        figures.add("least cosine of features", float(same), goal=">= 0.9999")
        for size in (side,) if side else (128, 224):
            for batch in BATCHES:
                _bare(figures, encoder.module, graph, size, batch, args.repeats)
    with tempfile.TemporaryDirectory() as temporary:
        _whole_analysis(figures, Path(temporary), args)
    figures.save()


def _bare(
    figures: Figures,
    module: nn.Module,
    graph: graphs.Graph,
    size: int,
    count: int,
    repeats: int,
) -> None:
    batch = torch.rand(count, 3, size, size)
    last = batch.to(memory_format=torch.channels_last)
    by_torch, by_graph, gain = alternately(
        lambda: module(last), lambda: graph(batch), repeats=repeats
    )
    what = f"{size} px, batches of {count}"
    each, rate = multiply_adds(module, size), machines_rate()
    for name, seconds in (("torch", by_torch), ("ONNX Runtime", by_graph)):
        figures.add(f"{name}, {what}", count / seconds, "patches/s")
        share = count * each / seconds / rate
        figures.add(f"{name}, {what}, share of multiply-adds", share)
    figures.add(f"gain, {what}", gain, goal=">= 1.35")


def _whole_analysis(figures: Figures, folder: Path, args: argparse.Namespace) -> None:
    """The bundled models: an engine by torch and one by ONNX Runtime, in turns."""
    os.environ["NAPARI_SPT_CACHE"] = str(folder / "cache")
    slide = folder / "sample.tif"
    for _ in write_sample_slide(slide, size=args.size):
        pass
    engines = {}
    for name, switch in (("torch", "0"), ("ONNX Runtime", "1")):
        os.environ[graphs.SWITCH] = switch
        engines[name] = Clocked()
        engines[name].start()
        engines[name].warm_up(folder)
    whole: dict[str, list[float]] = {name: [] for name in engines}
    encoded: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(args.turns + 1):
        for name, engine in engines.items():
            into = folder / f"{name} {turn}"
            seen = engine.run(Analyse(slide, slide.name, into, model=Path("bundled")))
            reused = next(m.reused for _, m in seen if isinstance(m, Analysed))
            if reused:
                raise SystemExit("It was encoded before: nothing is measured.")
            whole[name].append(seen[-1][0])
            encoded[name].append(
                first(seen, Working, lambda m: m.step == Step.READING_SLIDE)
            )
    for engine in engines.values():
        engine.engine.close()
    # In the first turn everything is met for the first time, and the graph is made.
    for name in engines:
        seconds = statistics.median(whole[name][1:])
        figures.add(f"whole analysis by {name}", seconds, "s")
    for what, taken, goal in (
        ("whole analysis", whole, ">= 1.2"),
        ("whole analysis up to the last patch", encoded, ""),
    ):
        by_torch, by_graph = taken["torch"], taken["ONNX Runtime"]
        gains = [a / b for a, b in zip(by_torch, by_graph, strict=True)]
        figures.add(f"{what}, gain", statistics.median(gains[1:]), goal=goal)
        figures.add(f"{what}, gain of the run that makes the graph", gains[0])


if __name__ == "__main__":
    main()
