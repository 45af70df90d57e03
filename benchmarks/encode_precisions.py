"""What fewer bits cost and gain on a CPU: bfloat16 by torch, int8 by ONNX Runtime.

    python benchmarks/encode_precisions.py --tiles ../shared/data/tiles/breakhis

One thread, the bundled encoder. Speed is by processor time, against float32 by ONNX
Runtime. Scores are of folds that share no patient; the bundled encoder has learned from
most of these pictures, so that only their differences mean anything here. A vision
transformer of random weights shows what bfloat16 gains where products are large.
"""

import argparse
import copy
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import timm
import torch
from _figures import Figures
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantType,
    quant_pre_process,
    quantize_static,
)
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from spt_core.patches import graph as graphs
from spt_core.patches import load_encoder

SIDE, BATCH = 128, 16
FOR_RANGES = 96  # pictures by which int8 learns how large numbers are
VIT = "vit_small_patch16_224"
Encode = Callable[[Tensor], Tensor]


def read_tiles(folder: Path, every: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The middles of every so many pictures, their classes and patients."""
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[::every]
    pixels = []
    for row in rows:
        picture = np.asarray(Image.open(folder / "images" / row["file"]).convert("RGB"))
        top, left = ((side - SIDE) // 2 for side in picture.shape[:2])
        pixels.append(picture[top : top + SIDE, left : left + SIDE])
    labels, patients = ([row[name] for row in rows] for name in ("binary", "patient"))
    return np.stack(pixels), np.array(labels), np.array(patients)


class Ranges(CalibrationDataReader):
    def __init__(self, pixels: Tensor) -> None:
        self.parts = iter(pixels.split(8))

    def get_next(self) -> dict[str, np.ndarray] | None:
        part = next(self.parts, None)
        return None if part is None else {"pixels": part.numpy()}


def in_int8(graph: Path, pixels: Tensor) -> graphs.Graph:
    ready, made = graph.with_suffix(".ready.onnx"), graph.with_suffix(".int8.onnx")
    quant_pre_process(str(graph), str(ready), skip_symbolic_shape=True)
    quantize_static(
        str(ready),
        str(made),
        Ranges(pixels),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return graphs.Graph(made.read_bytes())


def in_bfloat16(module: torch.nn.Module) -> Encode:
    smaller = copy.deepcopy(module).bfloat16()

    def encode(pixels: Tensor) -> Tensor:
        last = pixels.bfloat16().to(memory_format=torch.channels_last)
        return smaller(last).float()

    return encode


def rate(encode: Encode, batch: Tensor) -> float:
    encode(batch)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        encode(batch)
        seconds.append(time.process_time() - start)
    return len(batch) / min(seconds)


def scores(x: np.ndarray, y: np.ndarray, patients: np.ndarray) -> tuple[float, float]:
    """Mean class accuracy of neighbours and of a linear classifier."""
    found = []
    for make in (
        lambda: KNeighborsClassifier(10, metric="cosine", weights="distance"),
        lambda: make_pipeline(
            StandardScaler(), LogisticRegression(C=0.01, max_iter=500)
        ),
    ):
        said = np.empty_like(y)
        folds = StratifiedGroupKFold(5, shuffle=True, random_state=0)
        for train, test in folds.split(x, y, patients):
            said[test] = make().fit(x[train], y[train]).predict(x[test])
        found.append(float(np.mean([(said[y == c] == c).mean() for c in np.unique(y)])))
    return found[0], found[1]


@torch.inference_mode()
def bundled(figures: Figures, folder: Path, args: argparse.Namespace) -> None:
    pixels, y, patients = read_tiles(args.tiles, args.every)
    encoder = load_encoder("bundled")
    planes = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    seen = torch.addcmul(encoder._shift, planes, encoder._scale)
    path = folder / "graph.onnx"
    graphs.export(encoder.module, seen[:4], path, any_size=False)
    some = torch.from_numpy(np.random.default_rng(0).permutation(len(seen)))
    ways: dict[str, Encode] = {
        "float32": graphs.Graph(path.read_bytes()),
        "int8": in_int8(path, seen[some[:FOR_RANGES]]),
        "bfloat16": in_bfloat16(encoder.module),
    }
    plain = None
    for name, encode in ways.items():
        x = torch.cat([encode(part).flatten(1) for part in seen.split(32)])
        speed = rate(encode, seen[:BATCH])
        plain = (x, speed) if plain is None else plain
        least = torch.cosine_similarity(x, plain[0]).min()
        knn, linear = scores(x.numpy(), y, patients)
        figures.add(f"{name}, least cosine", float(least), goal=">= 0.999")
        figures.add(f"{name}, kNN", 100 * knn, "%")
        figures.add(f"{name}, linear", 100 * linear, "%")
        figures.add(f"{name}, gain", speed / plain[1])


@torch.inference_mode()
def transformer(figures: Figures, folder: Path) -> None:
    torch.manual_seed(0)
    module = timm.create_model(VIT, num_classes=0).eval()
    batch = torch.randn(8, 3, 224, 224)
    path = folder / "vit.onnx"
    graphs.export(module, batch[:4], path, any_size=False)
    graph, smaller = graphs.Graph(path.read_bytes()), in_bfloat16(module)
    plain = rate(graph, batch)
    least = torch.cosine_similarity(smaller(batch), graph(batch)).min()
    figures.add(f"{VIT}, random weights, bfloat16, least cosine", float(least))
    figures.add(f"{VIT}, bfloat16, gain", rate(smaller, batch) / plain)
    figures.add(f"{VIT}, float32 by torch, gain", rate(module, batch) / plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--tiles", type=Path, default=Path("../shared/data/tiles/breakhis")
    )
    parser.add_argument("--every", type=int, default=2, help="picture of the folder")
    args = parser.parse_args()
    figures = Figures("encode_precisions", **vars(args), seed=0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        if args.tiles.is_dir():
            bundled(figures, Path(temporary), args)
        else:
            print(f"Left out: {args.tiles} is not there.")
        transformer(figures, Path(temporary))
    figures.save()


if __name__ == "__main__":
    main()
