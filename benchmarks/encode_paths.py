"""Torch against ONNX Runtime on a CPU: the bare encoder, and a whole slide.

Both are timed alternately on one thread, ready tensors in, features out; the slide goes
through the whole pipeline, once by each. The share of the machine's multiply-add rate
is of what this computer reaches, in the same minute, in a large float32 product.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from _alternately import alternately
from _big_slide import big_slide
from _encoding import whole_pipeline
from _figures import Figures
from torch import nn

from spt_core.patches import graph as graphs
from spt_core.patches import load_encoder

BATCH = 16


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
    parser.add_argument("--slide-side", type=int, default=24, help="in patches")
    args = parser.parse_args()
    figures = Figures("encode_paths", encoder=args.encoder, repeats=args.repeats)
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
            batch = torch.rand(BATCH, 3, size, size)
            last = batch.to(memory_format=torch.channels_last)
            by_torch, by_graph, gain = alternately(
                lambda last=last: encoder.module(last),
                lambda batch=batch: graph(batch),
                repeats=args.repeats,
            )
            each, rate = multiply_adds(encoder.module, size), machines_rate()
            for name, seconds in (("torch", by_torch), ("ONNX Runtime", by_graph)):
                figures.add(f"{name} at {size} px", BATCH / seconds, "patches/s")
                share = BATCH * each / seconds / rate
                figures.add(f"{name} at {size} px, share of multiply-adds", share)
            figures.add(f"gain at {size} px", gain, goal=">= 1.35")
        _whole_slide(figures, Path(temporary), args)
    figures.save()


def _whole_slide(figures: Figures, folder: Path, args: argparse.Namespace) -> None:
    os.environ["NAPARI_SPT_CACHE"] = str(folder / "cache")
    size = 224
    path = big_slide(folder / "big.svs", size * args.slide_side)
    ratios = []
    for i in range(4):
        seconds = []
        for switch in ("0", "1"):
            os.environ[graphs.SWITCH] = switch
            encoder = load_encoder(args.encoder)
            out = folder / f"out{i}{switch}"
            seconds.append(whole_pipeline([path], out, encoder, size)[0])
        ratios.append(seconds[0] / seconds[1])
    # In the first turn the graph is made.
    gain = statistics.median(ratios[1:])
    figures.add("whole slide, gain", gain, goal=">= 1.2")
    figures.add("whole slide, gain of the run that makes the graph", ratios[0])


if __name__ == "__main__":
    main()
