"""Patches per second beside LazySlide: the same torch model, slide and patches.

LazySlide lives in an environment of its own, made on first use, or named by an option.
It is timed alone, with the better of 0 and as many loader processes as there are cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from _big_slide import big_slide
from _encoding import WEIGHTS, mobilenet, whole_pipeline
from _figures import Figures
from _peers import peer_python

from spt_core import read_tokens
from spt_core.weights_file import read_weights

RUNNER = Path(__file__).parent / "_lazyslide_run.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lazyslide-python", type=Path, help="of its environment")
    parser.add_argument("--patches", type=int, default=256, help="a round")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    python = args.lazyslide_python or peer_python(
        "lazyslide", ["lazyslide", "torchvision"]
    )
    figures = Figures("encode_lazyslide", patches=args.patches, repeats=args.repeats)
    encoder = mobilenet(None)
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for size in (224, 128):
            side = size * 4 * round(args.patches**0.5 / 4)
            slide = big_slide(folder / f"s{size}.svs", side)
            plain = folder / "mobilenet.pt"
            torch.save(_plain_weights(), plain)
            found = folder / "lazy.npz"
            command = [python, RUNNER, slide, plain, found, str(size)]
            peer = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

            def theirs(loaders: int, peer: subprocess.Popen = peer) -> dict:
                peer.stdin.write(f"{loaders}\n")
                peer.stdin.flush()
                return json.loads(peer.stdout.readline())

            theirs(0)
            rounds = []
            for i in range(args.repeats):
                them = [theirs(loaders) for loaders in (0, cores)]
                wall, _, count = whole_pipeline(
                    [slide], folder / f"o{i}", encoder, size, min_tissue=0.0
                )
                rates = [one["patches"] / one["seconds"] for one in them]
                rounds.append((1 / wall, *rates))
                if count != them[0]["patches"]:
                    raise RuntimeError(f"{count} patches, not {them[0]['patches']}")
            peer.stdin.close()
            peer.wait()
            _same_features(folder / "o0" / f"s{size}.h5", found)
            name = f"MobileNetV2 at {size} px"
            ours, none, some = (statistics.median(r) for r in zip(*rounds, strict=True))
            figures.add(f"{name}, this pipeline", ours, "patches/s")
            version = them[0]["version"]
            figures.add(f"{name}, LazySlide {version}, 0 loaders", none, "patches/s")
            figures.add(f"{name}, LazySlide, {cores} loaders", some, "patches/s")
            ratio = statistics.median(us / max(rest) for us, *rest in rounds)
            figures.add(f"{name}, over LazySlide", ratio, goal="> 1")
    figures.save()


def _plain_weights() -> dict[str, torch.Tensor]:
    from torchvision.models import mobilenet_v2

    if WEIGHTS.exists():
        return _with_counters(read_weights(WEIGHTS))
    torch.manual_seed(0)
    model = mobilenet_v2(weights=None)
    return {f"features.{k}": v for k, v in model.features.state_dict().items()}


def _with_counters(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from torchvision.models import mobilenet_v2

    whole = mobilenet_v2(weights=None).features.state_dict()
    return {f"features.{k}": state.get(f"features.{k}", v) for k, v in whole.items()}


def _same_features(ours: Path, theirs: Path) -> None:
    """Both encoded the same pixels, or the comparison means nothing."""
    tokens, found = read_tokens(ours), np.load(theirs)
    place = {tuple(xy): i for i, xy in enumerate(found["xy"].tolist())}
    rows = [place[tuple(xy)] for xy in tokens.xy.tolist()]
    a, b = tokens.x, found["x"][rows]
    alike = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    if alike.min() < 0.98:
        raise RuntimeError(f"the features differ: cosine {alike.min():.3f}")


if __name__ == "__main__":
    main()
