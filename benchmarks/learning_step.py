"""A training step against the bare forward and backward pass on ready batches."""

import argparse
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from _alternately import add_clock, alternately, choose_clock
from _figures import Figures
from _made_up_cohort import write_sparse_cohort

from spt_core.learning.aggregators import build_encoder
from spt_core.learning.batches import SlidePlan, graph_floats
from spt_core.learning.cohort import open_cohort
from spt_core.learning.task import CHUNK_ON_CPU
from spt_core.learning.views import ViewSettings
from spt_core.training.batch import made_ahead
from spt_core.training.objectives import build_objective
from spt_core.training.processes import Processes
from spt_core.training.step import ExactStep

CPU = torch.device("cpu")


def measure(figures, folder: Path, preset: str, batch: int, repeats: int, clock):
    cohort = open_cohort(folder)
    torch.manual_seed(0)
    encoder = build_encoder(preset, cohort.dim)
    objective = build_objective("simclr", encoder)
    weights = [*encoder.parameters(), *objective.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=1e-5, fused=True)
    compute = ExactStep(
        encoder,
        objective,
        device=CPU,
        processes=Processes(),
        graph_floats=partial(graph_floats, encoder),
    )
    plan = SlidePlan(
        cohort, ViewSettings(), batch, seed=0, device=CPU, chunk=CHUNK_ON_CPU
    )
    steps, ready = count(), count()
    total = 2 * repeats + 8
    kept = [plan.make(step) for step in range(repeats + 1)]

    def bare() -> None:
        """On ready tensors: forward and backward, nothing else."""
        made = kept[next(ready)]
        for weight in weights:
            weight.grad = None
        found = [encoder(*c.inputs_on(CPU)) for c in made.chunks]
        places = torch.cat([c.places for c in made.chunks]).argsort()
        h = torch.cat(found)[places].unflatten(0, (2, -1))
        objective(h)["loss"].backward()

    with made_ahead(plan.make, 0, total) as batches:

        def step() -> None:
            """Views, rows, padding, forward, backward, optimiser."""
            next(steps)
            compute(next(batches))
            torch.nn.utils.get_total_norm([w.grad for w in weights])
            optimiser.step()

        whole, alone, ratio = alternately(step, bare, repeats=repeats, clock=clock)
    figures.add(f"{preset} at batch {batch}, step", whole, "s")
    figures.add(f"{preset} at batch {batch}, bare", alone, "s")
    figures.add(f"{preset} at batch {batch}, step / bare", ratio, "x", goal="<= 1.15")
    masks = [c.inputs[-1] for b in kept for c in b.chunks]
    lengths = np.concatenate([mask.sum(1).numpy() for mask in masks])
    padded = 64 * len(lengths)
    figures.add(
        f"{preset}: tokens computed for each in a batch padded to 64",
        sum(mask.numel() for mask in masks) / padded,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("small", "paper"))
    add_clock(parser)
    args = parser.parse_args()
    clock = choose_clock(args.clock)
    figures = Figures(
        "learning_step", seed=0, threads=torch.get_num_threads(), clock=args.clock
    )
    with tempfile.TemporaryDirectory() as made:
        folder = write_sparse_cohort(Path(made) / "features", 300)
        for preset, batch in (("small", 256), ("paper", 64)):
            if args.only in (None, preset):
                measure(figures, folder, preset, batch, args.repeats, clock)
    figures.save()


if __name__ == "__main__":
    main()
