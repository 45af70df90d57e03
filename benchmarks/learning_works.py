"""Whether learning works, over several seeds: kNN accuracy and time by objective.

The cohort is the tests' own: 210 slides in which only which types of token share a
region says the class.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch
from _figures import Figures

sys.path.insert(0, str(Path(__file__).parents[1]))
from spt_core.learning.aggregators import AGGREGATORS
from spt_core.learning.slide_encoder import SlideEncoder
from tests.core.learning.regions import write_region_cohort
from tests.core.learning.test_learning_works import MODEL, SLIDES, knn, learn

RUNS = {
    "simclr": {"epochs": 200},
    "vicreg": {"epochs": 200, "learning_rate": 4e-3},
    "supcon": {"epochs": 150, "learning_rate": 4e-3},
    "byol": {"momentum": 0.9, "learning_rate": 1e-3},
}
LEAST = {"simclr": 0.9, "vicreg": 0.9, "supcon": 0.9, "byol": 0.75}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--objectives", nargs="+", default=list(RUNS))
    args = parser.parse_args()
    figures = Figures("learning_works", seeds=args.seeds, slides=SLIDES)
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "cohort"
            write_region_cohort(folder, slides=SLIDES, noise=1.2, seed=seed)
            torch.manual_seed(seed)
            untrained = {name: AGGREGATORS[name](32) for name in ("mean", "max")}
            untrained["untrained encoder"] = SlideEncoder(32, **MODEL)
            for name, encoder in untrained.items():
                figures.add(f"seed {seed}, {name}", knn(folder, encoder), goal="<= 0.6")
            for name in args.objectives:
                start = time.perf_counter()
                run = Path(made) / name
                accuracy, _ = learn(folder, run, name, seed=seed, **RUNS[name])
                figures.add(f"seed {seed}, {name}", accuracy, goal=f">= {LEAST[name]}")
                seconds = time.perf_counter() - start
                figures.add(f"seed {seed}, {name}, time", seconds, "s", goal="<= 120")
    figures.save()


if __name__ == "__main__":
    main()
