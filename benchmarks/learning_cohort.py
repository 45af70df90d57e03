"""Ten thousand slides on disk against a hundred: start-up, step time, memory."""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path

import torch
from _alternately import add_clock, alternately, choose_clock
from _figures import Figures
from _made_up_cohort import write_sparse_cohort

from spt_core.learning.batches import SlidePlan, graph_floats
from spt_core.learning.cohort import open_cohort
from spt_core.learning.settings import TrainSettings
from spt_core.learning.task import CHUNK_ON_CPU
from spt_core.learning.training import train
from spt_core.learning.views import ViewSettings

CPU = torch.device("cpu")
BATCH, STEPS = 64, 6


def peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def child(folder: str, out: str) -> None:
    """A real run, from start to some steps; print what it took."""
    start = time.perf_counter()
    settings = TrainSettings(
        folder, "simclr", out, model="small", batch_size=BATCH, epochs=1, device="cpu"
    )
    events, first = train(settings), None
    for event in events:
        done = getattr(event, "done", 0)
        if first is None and done:
            first = time.perf_counter() - start
        if done >= 1 and time.perf_counter() - start > first + 20:
            break
        if done >= 2 * STEPS:
            break
    events.close()
    print(json.dumps({"first_step": first, "peak_mib": peak_mib()}))


def steps_of(folder: Path, clock):
    """A function that makes and computes a few batches of a cohort on disk."""
    start = clock()
    cohort = open_cohort(folder, in_memory_bytes=0)
    opened = clock() - start
    from spt_core.learning.aggregators import build_encoder
    from spt_core.training.objectives import build_objective
    from spt_core.training.processes import Processes
    from spt_core.training.step import ExactStep

    torch.manual_seed(0)
    encoder = build_encoder("small", cohort.dim)
    objective = build_objective("simclr", encoder)
    compute = ExactStep(
        encoder,
        objective,
        device=CPU,
        processes=Processes(),
        graph_floats=partial(graph_floats, encoder),
    )
    plan = SlidePlan(cohort, ViewSettings(), BATCH, 0, CPU, chunk=CHUNK_ON_CPU)
    numbers = count()
    return opened, lambda: [compute(plan.make(next(numbers))) for _ in range(STEPS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    add_clock(parser)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    clock = choose_clock(args.clock)
    figures = Figures("learning_cohort", seed=0, clock=args.clock)
    with tempfile.TemporaryDirectory() as made:
        few = write_sparse_cohort(Path(made) / "few", 100)
        many = write_sparse_cohort(Path(made) / "many", args.slides)
        opened, of_many = steps_of(many, clock)
        figures.add(f"opening {args.slides} slides", opened, "s", goal="< 30")
        _, of_few = steps_of(few, clock)
        slow, quick, ratio = alternately(
            of_many, of_few, repeats=args.repeats, clock=clock
        )
        figures.add(f"step with {args.slides} slides", slow / STEPS, "s")
        figures.add("step with 100 slides", quick / STEPS, "s")
        figures.add("many / few", ratio, "x", goal="<= 1.2")
        for folder in (few, many):
            done = subprocess.run(
                [
                    *(sys.executable, __file__, "--child", str(folder)),
                    str(Path(made) / f"run-{folder.name}"),
                ],
                check=True,
                capture_output=True,
                text=True,
            )
            seen = json.loads(done.stdout.splitlines()[-1])
            name = 100 if folder is few else args.slides
            figures.add(
                f"start to first step, {name} slides", seen["first_step"], "s",
                goal="< 30",
            )  # fmt: skip
            figures.add(
                f"peak memory, {name} slides", seen["peak_mib"], "MiB", goal="< 3072"
            )
    figures.save()


if __name__ == "__main__":
    main()
