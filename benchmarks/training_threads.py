"""Training with one, two and all threads, alone and beside another program at work."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from _figures import Figures
from _made_up_cohort import write_sparse_cohort

PRESETS = {"small": 36, "paper-2": 24, "paper": 16}  # slides per step
# Another program that uses every core, as a second training or a render does.
BUSY = "import numpy as np\na = np.random.rand(1500, 1500)\nwhile True: a @ a"
WAITING = {"spins": "ACTIVE", "sleeps": "PASSIVE"}


def rates(folder: str, preset: str, repeats: int) -> None:
    """In a process of its own: print slides per second for each number of threads."""
    import torch
    from spt_core.learning.trainer import CHUNK_ON_CPU

    from spt_core.devices import training_threads
    from spt_core.learning.aggregators import build_encoder
    from spt_core.learning.batches import Plan
    from spt_core.learning.cohort import open_cohort
    from spt_core.learning.views import ViewSettings
    from spt_core.training.objectives import build_objective
    from spt_core.training.processes import Processes
    from spt_core.training.step import ExactStep

    cpu, usual = torch.device("cpu"), torch.get_num_threads()
    cohort, batch = open_cohort(folder), PRESETS[preset]
    torch.manual_seed(0)
    encoder = build_encoder(preset, cohort.dim)
    objective = build_objective("simclr", encoder)
    weights = [*encoder.parameters(), *objective.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=1e-5, fused=True)
    compute = ExactStep(encoder, objective, device=cpu, processes=Processes())
    plan = Plan(cohort, ViewSettings(), batch, 0, cpu, chunk=CHUNK_ON_CPU)
    kept = [plan.make(step) for step in range(repeats + 1)]
    tried = sorted({1, min(2, usual), usual})
    found: dict[int, list[float]] = {threads: [] for threads in tried}
    steps = {threads: count() for threads in tried}

    def step(threads: int) -> float:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        compute(kept[next(steps[threads])])
        optimiser.step()
        return batch / (time.perf_counter() - start)

    for threads in tried:
        step(threads)
    for _ in range(repeats):
        for threads in tried:
            found[threads].append(step(threads))
    torch.set_num_threads(usual)
    chosen = training_threads(sum(w.numel() for w in encoder.parameters()))
    medians = {threads: statistics.median(seen) for threads, seen in found.items()}
    print(json.dumps({"usual": usual, "chosen": chosen, "rates": medians}))


@contextmanager
def other_program(is_there: bool) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-c", BUSY]) if is_there else None
    try:
        yield
    finally:
        if child is not None:
            child.kill()
            child.wait()


def measure(figures: Figures, folder: Path, preset: str, repeats: int) -> None:
    for waiting, policy in WAITING.items():
        for busy in (False, True):
            with other_program(busy):
                done = subprocess.run(
                    [
                        *(sys.executable, __file__, "--child", str(folder), preset),
                        *("--repeats", str(repeats)),
                    ],
                    env={**os.environ, "OMP_WAIT_POLICY": policy},
                    check=True,
                    capture_output=True,
                    text=True,
                )
            seen = json.loads(done.stdout.splitlines()[-1])
            where = f"{preset}, {'busy' if busy else 'quiet'}, a waiting thread"
            rate = {int(threads): value for threads, value in seen["rates"].items()}
            for threads, value in rate.items():
                figures.add(f"{where} {waiting}: {threads} threads", value, "slides/s")
            nearest = min(rate, key=lambda n: abs(n - seen["chosen"]))
            figures.add(
                f"{where} {waiting}: chosen ({nearest}) / default ({seen['usual']})",
                rate[nearest] / rate[seen["usual"]],
                "x",
                goal=">= 0.8" if waiting == "sleeps" else "",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=PRESETS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        rates(*args.child, args.repeats)
        return
    figures = Figures("training_threads", seed=0, cores=os.cpu_count())
    with tempfile.TemporaryDirectory() as made:
        folder = write_sparse_cohort(Path(made) / "features", 100)
        for preset in PRESETS:
            if args.only in (None, preset):
                measure(figures, folder, preset, args.repeats)
    figures.save()


if __name__ == "__main__":
    main()
