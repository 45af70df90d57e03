"""The bundled encoder against its start, colours alone and a random network.

On BreaKHis patients that the encoder has never seen (see ``_bundled_data.py``), at the
pixel size of use: each field is brought to 0.5 um per pixel and seen as two squares of
46 um, whose features are averaged. The patients kept apart are asked in five folds,
all others vote or are learned from; four times with other folds, each time with a
random 80 % of the others. kNN (k = 10, cosine) and a linear classifier (logistic
regression on standardised features), mean class accuracy, of the 8 subtypes and of
benign or malignant; differences from the start are of the same folds. Beside it the
oral fields (Normal or carcinoma, in the dataset's own split; the encoder has seen them
without labels), and patches per second. The gain of the mean of these six columns has a
95 % interval: patients are drawn again, and oral fields, which name no patient.
"""

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _bundled_data import BREAKHIS_MPP, kept_apart, person
from _figures import Figures
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core.patches import TorchEncoder, load_encoder
from spt_core.patches.registry import build_module, find_card
from spt_core.training.knn import knn_probabilities, mean_class_accuracy

ROOT = Path(__file__).parents[1]
MPP, SIDE = 0.5, 92  # a BreaKHis field is 46 um high
ORAL_SIDE = 128
FOLDS, SHARE, STRENGTH = 5, 0.8, 0.01
DRAWS = 2000
SEED = 17
START, COLOURS, RANDOM = "start (ImageNet)", "colours alone", "random network"


def breakhis(folder: Path):
    """Squares (n, 2, 92, 92, 3), and the rows of labels.csv."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    where = next(folder.rglob(rows[0]["file"])).parent
    squares = []
    for row in rows:
        with Image.open(where / row["file"]) as picture:
            width, height = (round(n * BREAKHIS_MPP / MPP) for n in picture.size)
            small = picture.convert("RGB").resize(
                (width, height), Image.Resampling.BILINEAR
            )
        pixels = np.asarray(small)
        squares.append(np.stack([pixels[:SIDE, :SIDE], pixels[:SIDE, -SIDE:]]))
    return np.stack(squares), rows


def oral(folder: Path):
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    where = next(folder.rglob(rows[0]["file"])).parent
    pixels = []
    for row in rows:
        with Image.open(where / row["file"]) as picture:
            small = picture.convert("RGB").resize((ORAL_SIDE, ORAL_SIDE))
        pixels.append(np.asarray(small))
    return np.stack(pixels)[:, None], rows


class Colours:
    """What colours alone tell: mean, spread and quantiles of each channel."""

    def __call__(self, pixels: torch.Tensor, size: int) -> torch.Tensor:
        flat = pixels.float().flatten(1, 2) / 255  # (b, pixels, 3)
        shares = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
        quantiles = torch.quantile(flat, shares, dim=1).permute(1, 0, 2).flatten(1)
        return torch.cat([flat.mean(1), flat.std(1), quantiles], dim=1)


def random_network() -> TorchEncoder:
    torch.manual_seed(0)
    return TorchEncoder(build_module("mobilenetv2"), find_card("mobilenetv2"))


@torch.inference_mode()
def features(encoder, squares: np.ndarray) -> np.ndarray:
    """(n, dim): the mean over each field's squares."""
    n, per, side = squares.shape[:3]
    flat = torch.from_numpy(squares.reshape(n * per, *squares.shape[2:]))
    found = [encoder(part, side) for part in flat.split(64)]
    return torch.cat(found).view(n, per, -1).mean(1).numpy()


def accuracies(h, y, known, asked) -> dict[str, np.ndarray]:
    """What each way of asking answers for those asked."""
    shares = knn_probabilities(h[known], y[known], h[asked], int(y.max()) + 1)
    linear = make_pipeline(
        StandardScaler(),
        LogisticRegression(C=STRENGTH, tol=1e-3, max_iter=500, class_weight="balanced"),
    )
    linear.fit(h[known], y[known])
    return {"kNN": shares.argmax(1), "linear": linear.predict(h[asked])}


@dataclass(frozen=True, eq=False)
class Asked:
    """One column: the truth, by whom it is, and what was answered in each repeat."""

    y: np.ndarray  # (n,)
    patients: np.ndarray  # (n,)
    said: np.ndarray  # (repeats, n)

    def scores(self) -> np.ndarray:
        """Mean class accuracy of each repeat."""
        return np.array([mean_class_accuracy(self.y, one) for one in self.said])

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """The mean over repeats when patients are drawn again, (DRAWS,)."""
        _, patient = np.unique(self.patients, return_inverse=True)
        count = int(patient.max()) + 1
        weights = rng.multinomial(count, np.full(count, 1 / count), DRAWS)[:, patient]
        right = (self.said == self.y).mean(axis=0)
        of_class = (self.y[:, None] == np.unique(self.y)).astype(float)
        total = weights @ of_class
        # A class of which no patient was drawn has no say in that draw.
        shares = np.full(total.shape, np.nan)
        hits = weights @ (of_class * right[:, None])
        np.divide(hits, total, out=shares, where=total > 0)
        return np.nanmean(shares, axis=1)


Columns = dict[tuple[str, str], Asked]


def breakhis_table(h, rows, repeats: int, apart: set[str]) -> Columns:
    """By task and classifier, of these patients."""
    patients = np.array([row["patient"] for row in rows])
    apart = sorted(apart)
    answers: dict[tuple[str, str], np.ndarray] = {}
    truth = {}
    for task, column in (("8 subtypes", "subtype"), ("2 classes", "binary")):
        names = sorted({row[column] for row in rows})
        truth[task] = np.array([names.index(row[column]) for row in rows])
    for repeat in range(repeats):
        rng = np.random.default_rng([SEED, repeat])
        folds = np.array_split(rng.permutation(apart), FOLDS)
        everyone = sorted(set(patients.tolist()))
        some = rng.permutation(everyone)[: round(SHARE * len(everyone))]
        for task, y in truth.items():
            for fold in folds:
                asked = np.flatnonzero(np.isin(patients, fold))
                known = np.isin(patients, some) & ~np.isin(patients, fold)
                known = np.flatnonzero(known)
                for how, said in accuracies(h, y, known, asked).items():
                    empty = np.full((repeats, len(y)), -1)
                    answers.setdefault((task, how), empty)[repeat, asked] = said
    asked = np.flatnonzero(np.isin(patients, apart))
    # By persons, whose blocks are not drawn one without the other.
    persons = np.array([person(patients[row]) for row in asked])
    return {
        (task, how): Asked(truth[task][asked], persons, said[:, asked])
        for (task, how), said in answers.items()
    }


def oral_table(h, rows) -> Columns:
    y = np.array([row["label"] == "OSCC" for row in rows]).astype(int)
    split = np.array([row["source_split"] for row in rows])
    known, asked = np.flatnonzero(split == "train"), np.flatnonzero(split == "test")
    return {
        ("oral", how): Asked(y[asked], np.arange(len(asked)), said[None])
        for how, said in accuracies(h, y, known, asked).items()
    }


def mean_gain(ours: Columns, theirs: Columns) -> tuple[float, float, float]:
    """Of the mean of all columns, with its 95 % interval; the same draws for both."""
    drawn = []
    for columns in (ours, theirs):
        # Both tasks are of the same patients: draw these alike.
        each = [one.drawn(np.random.default_rng(SEED)) for one in columns.values()]
        drawn.append(np.mean(each, axis=0))
    low, high = np.quantile(drawn[0] - drawn[1], (0.025, 0.975))
    whole = [
        np.mean([one.scores().mean() for one in columns.values()])
        for columns in (ours, theirs)
    ]
    return float(whole[0] - whole[1]), float(low), float(high)


def speed(encoder, size: int, seconds: float = 4.0) -> float:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (32, size, size, 3), generator=generator)
    pixels = pixels.to(torch.uint8)
    with torch.inference_mode():
        encoder(pixels, size)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            encoder(pixels, size)
            count += len(pixels)
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoders", nargs="*", help="files; default: the bundled one")
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--weights", type=Path, default=ROOT / "../shared/weights")
    parser.add_argument(
        "--against", nargs="*", default=[], help="encoders asked before, as the bundled"
    )
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument(
        "--start-alone", action="store_true", help="compare with the start alone"
    )
    args = parser.parse_args()
    tiles = args.data / "tiles"
    if not tiles.is_dir():
        print(f"skipped: there is no {tiles}")
        return
    fields, rows = breakhis(tiles / "breakhis")
    mouths, oral_rows = oral(tiles / "oral")
    start = args.weights / "mobilenetv2_imagenet.safetensors"
    compared = {
        START: load_encoder("mobilenetv2", start),
        **({} if args.start_alone else {COLOURS: Colours(), RANDOM: random_network()}),
        **{name: load_encoder(name) for name in args.encoders or ["bundled"]},
    }
    figures = Figures("bundled_encoder", mpp=MPP, seed=SEED, repeats=args.repeats)
    tables = {}
    for name, encoder in compared.items():
        h = features(encoder, fields)
        found = breakhis_table(h, rows, args.repeats, kept_apart(rows))
        found |= oral_table(features(encoder, mouths), oral_rows)
        tables[name] = found
        for (task, how), asked in found.items():
            values = asked.scores()
            called = f"{Path(name).stem}, {task}, {how}"
            figures.add(called, float(values.mean()))
            if name not in (START, COLOURS, RANDOM):
                gain = values - tables[START][task, how].scores()
                figures.add(f"{called}, minus start", float(gain.mean()), goal="> 0")
                figures.add(f"{called}, minus start, sd", float(gain.std()))
        if name not in (START, COLOURS, RANDOM):
            for other in (START, *args.against):
                called = f"{Path(name).stem}, mean of the six, minus {Path(other).stem}"
                if other in tables and other != name:
                    gain, low, high = mean_gain(found, tables[other])
                    figures.add(called, gain, goal="> 0")
                    figures.add(f"{called}, 95 % from", low, goal="> 0")
                    figures.add(f"{called}, to", high)
        if not args.no_speed and isinstance(encoder, TorchEncoder):
            figures.add(f"{Path(name).stem}, 128 px", speed(encoder, 128), "patches/s",
                        goal=">= 100")  # fmt: skip
    figures.save()


if __name__ == "__main__":
    main()
