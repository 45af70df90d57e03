"""Whole-slide attention: time against its matrix products, and memory."""

import argparse
import json
import resource
import subprocess
import sys
import threading
from pathlib import Path

import torch
from _alternately import add_clock, alternately, choose_clock
from _figures import Figures

from spt_core.learning.aggregators import build_encoder

TOKENS = (1000, 5000, 10_000, 20_000)
SIDE = 3000  # of the square matrices whose product measures the machine


def products(n: int, dim: int, depth: int) -> float:
    """Floating-point operations of the matrix products that ``attend`` needs.

    Of each layer but the last: q, k, v and the output (4 dim^2 a token), the MLP (8
    dim^2) and attention (2 n dim a token). The last layer has one query, and its keys
    and values are never formed: next to nothing.
    """
    tokens = n + 1
    layer = 2 * 12 * dim * dim * tokens + 4 * dim * tokens**2
    return (depth - 1) * layer


def some_slide(n: int, dim: int):
    torch.manual_seed(0)
    side = int(n**0.5) + 1
    p = torch.stack([torch.arange(n) // side, torch.arange(n) % side], dim=1)
    return torch.randn(n, dim), p


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def child(preset: str, n: int) -> None:
    """Most memory during one call, above that of the model and its input (Linux)."""
    encoder = build_encoder(preset, 512).eval()
    encoder.attend(*some_slide(64, 512))
    x, p = some_slide(n, 512)
    before, most, done = resident_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    encoder.attend(x, p)
    done.set()
    watcher.join()
    print(json.dumps(max(0, most - before)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    add_clock(parser)
    args = parser.parse_args()
    if args.child:
        child(args.preset, args.child)
        return
    clock = choose_clock(args.clock)
    figures = Figures(
        "learning_attend", seed=0, threads=torch.get_num_threads(), clock=args.clock
    )
    encoder = build_encoder(args.preset, 512).eval()
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    memory = {}
    for n in args.tokens:
        x, p = some_slide(n, 512)
        needed = products(n, encoder.dim, encoder.config["depth"])
        times = max(1, round(needed / 4 / (2 * SIDE**3)))

        def rate(times=times):
            for _ in range(times):
                a @ b

        whole, _, ratio = alternately(
            lambda x=x, p=p: encoder.attend(x, p),
            rate,
            repeats=args.repeats,
            clock=clock,
        )
        share = needed / (times * 2 * SIDE**3)
        figures.add(f"attend at {n} tokens", whole, "s")
        figures.add(
            f"attend / its products at {n} tokens", ratio / share, "x", goal="<= 1.3"
        )
        done = subprocess.run(
            [sys.executable, __file__, "--preset", args.preset, "--child", str(n)],
            check=True,
            capture_output=True,
            text=True,
        )
        memory[n] = json.loads(done.stdout) / 2**20
        figures.add(
            f"memory above model and input at {n} tokens", memory[n], "MiB",
            goal="< 1024",
        )  # fmt: skip
    first, last = min(memory), max(memory)
    growth = (memory[last] / memory[first]) / (last / first)
    figures.add("growth of memory for growth of tokens", growth, "x", goal="about 1")
    figures.save()


if __name__ == "__main__":
    main()
