"""What share of a training its snapshots take, and how large they are.

Self-supervised on made-up slides of 2,000 patches, by the clock.
"""

import tempfile
import time
from pathlib import Path

from _figures import Figures
from _made_up_cohort import write_sparse_cohort

from spt_core.events import finish
from spt_core.learning.growth import Growth
from spt_core.learning.growth_file import FOLDER
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train

SLIDES, STEPS = 12, 12


def main() -> None:
    spent = [0.0]
    taken = Growth.take

    def timed(self: Growth, step: int) -> None:
        began = time.perf_counter()
        taken(self, step)
        spent[0] += time.perf_counter() - began

    Growth.take = timed  # type: ignore[method-assign]
    figures = Figures("training_growth", slides=SLIDES, steps=STEPS, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        features = write_sparse_cohort(Path(folder) / "features", SLIDES)
        out = Path(folder) / "run"
        settings = TrainSettings(
            features=str(features),
            objective="simclr",
            out=str(out),
            steps=STEPS,
            batch_size=6,
            device="cpu",
        )
        began = time.perf_counter()
        finish(train(settings))
        total = time.perf_counter() - began
        files = list((out / FOLDER).iterdir())
        figures.add("snapshots", len(files))
        figures.add("time for snapshots", 100 * spent[0] / total, "%", goal="below 2")
        size = max(file.stat().st_size for file in files) / 1000
        figures.add("a snapshot", size, "kB")
    figures.save()


if __name__ == "__main__":
    main()
