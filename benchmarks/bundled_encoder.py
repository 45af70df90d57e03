"""The bundled encoder against its start, colours alone and a random network.

On BreaKHis patients that the encoder has never seen (see ``_bundled_data.py``), at the
pixel size of use: each field is brought to 0.5 um a pixel and seen as two squares of
46 um, whose features are averaged. Labelled are fields of the other patients: all of
them, and four random 70 % of them. kNN and a linear classifier, mean class accuracy, of
the 8 subtypes and of benign or malignant. Beside it the oral fields (Normal or
carcinoma, in the dataset's own split; the encoder has seen them without labels), and
patches a second.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch
from _bundled_data import BREAKHIS_MPP, splits_of_patients
from _figures import Figures
from PIL import Image

from spt_core.learning.knn import knn_probabilities, mean_class_accuracy
from spt_core.learning.linear_head import fit_linear_head
from spt_core.patches import TorchEncoder, load_encoder
from spt_core.patches.registry import build_module, find_card

ROOT = Path(__file__).parents[1]
MPP, SIDE = 0.5, 92  # a BreaKHis field is 46 um high
ORAL_SIDE = 128
REPEATS = 5
SEED = 17


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


def standardised(h: np.ndarray, known: np.ndarray) -> np.ndarray:
    return (h - h[known].mean(0)) / (h[known].std(0) + 1e-6)


def accuracies(h, y, patients, known, asked) -> dict[str, float]:
    classes = int(y.max()) + 1
    shares = knn_probabilities(h[known], y[known], h[asked], classes)
    head = fit_linear_head(h[known], y[known], patients[known].tolist())
    with torch.no_grad():
        scores = head(torch.from_numpy(h[asked]).float())
    return {
        "kNN": mean_class_accuracy(y[asked], shares.argmax(1)),
        "linear": mean_class_accuracy(y[asked], scores.argmax(1).numpy()),
    }


def breakhis_table(h, rows, asked_split: str, kept: tuple[str, ...]):
    """Accuracies (repeats,) by task and classifier."""
    splits = splits_of_patients(rows)
    patients = np.array([row["patient"] for row in rows])
    split = np.array([splits[patient] for patient in patients])
    asked = np.flatnonzero(split == asked_split)
    others = np.flatnonzero(np.isin(split, kept))
    rng = np.random.default_rng(SEED)
    found: dict[tuple[str, str], list[float]] = {}
    for repeat in range(REPEATS):
        known = others
        if repeat:
            kinds = {row["patient"]: row["subtype"] for row in rows}
            chosen = set()
            for kind in set(kinds.values()):
                of = sorted({p for p in patients[others] if kinds[p] == kind})
                chosen |= set(rng.permutation(of)[: max(1, round(0.7 * len(of)))])
            known = others[np.isin(patients[others], sorted(chosen))]
        for task, column in (("8 subtypes", "subtype"), ("2 classes", "binary")):
            names = sorted({row[column] for row in rows})
            y = np.array([names.index(row[column]) for row in rows])
            for how, value in accuracies(h, y, patients, known, asked).items():
                found.setdefault((task, how), []).append(value)
    return found


def oral_table(h, rows):
    y = np.array([row["label"] == "OSCC" for row in rows]).astype(int)
    split = np.array([row["source_split"] for row in rows])
    known, asked = np.flatnonzero(split == "train"), np.flatnonzero(split == "test")
    everyone = np.array([str(i) for i in range(len(rows))])
    return {
        ("oral", how): [value]
        for how, value in accuracies(h, y, everyone, known, asked).items()
    }


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
    parser.add_argument("--split", choices=("test", "val"), default="test")
    parser.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--no-speed", action="store_true")
    args = parser.parse_args()
    tiles = args.data / "tiles"
    if not tiles.is_dir():
        print(f"skipped: there is no {tiles}")
        return
    fields, rows = breakhis(tiles / "breakhis")
    mouths, oral_rows = oral(tiles / "oral")
    compared = {name: load_encoder(name) for name in args.encoders or ["bundled"]}
    if not args.no_baselines:
        start = args.weights / "mobilenetv2_imagenet.safetensors"
        compared["start (ImageNet)"] = load_encoder("mobilenetv2", start)
        compared["colours alone"] = Colours()
        compared["random network"] = random_network()
    figures = Figures("bundled_encoder", split=args.split, mpp=MPP, seed=SEED)
    kept = ("train", "val") if args.split == "test" else ("train",)
    for name, encoder in compared.items():
        found = breakhis_table(features(encoder, fields), rows, args.split, kept)
        found |= oral_table(features(encoder, mouths), oral_rows)
        short = Path(name).stem
        for (task, how), values in found.items():
            goal = "above its start's" if name in (args.encoders or ["bundled"]) else ""
            figures.add(f"{short}, {task}, {how}", float(np.mean(values)), goal=goal)
            if len(values) > 1:
                figures.add(f"{short}, {task}, {how}, sd", float(np.std(values)))
        if not args.no_speed and isinstance(encoder, TorchEncoder):
            size = encoder.card.patch_size if encoder.card.patch_size < 300 else 128
            figures.add(f"{short}, {size} px", speed(encoder, size), "patches/s",
                        goal=">= 100")  # fmt: skip
    figures.save()


if __name__ == "__main__":
    main()
