"""The sample cohort of the insight benchmarks: slides, features, models."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.model_selection import StratifiedGroupKFold

from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train
from spt_core.patches import EncodeSettings, TorchEncoder, encode_slides, slide_tasks
from spt_core.sample.cohort import make_cases, write_case
from spt_core.sample.layout import plan
from spt_core.sample.slide_file import painters
from spt_core.sample.tissue import TissueClass
from spt_core.sample.truth import truth_paths, write_truth
from spt_core.tokens import Tokens

SEEDS, SLIDES, SIZE = (0, 1), 45, 4096


def make_slides(folder: Path) -> Path:
    """Two cohorts of 45 slides in one folder, with labels.csv; made once."""
    out = folder / "slides"
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    with painters(None) as pool:
        for seed in SEEDS:
            for case in make_cases(SLIDES, SIZE, seed):
                name = case.slide.replace("sample-", f"sample-{seed}")
                path = out / f"{name}.tif"
                if not path.exists():
                    for _ in write_case(out, replace(case, slide=name), pool):
                        pass
                elif not all(one.exists() for one in truth_paths(path)):
                    write_truth(path, case.spec, plan(case.spec))
                rows.append((name, case.label, f"{seed}-{case.patient}"))
    labels = folder / "labels.csv"
    if not labels.exists():
        names, kinds, patients = zip(*rows, strict=True)
        # A third of the patients, 30 slides, is never learned from.
        folds = StratifiedGroupKFold(3, shuffle=True, random_state=0)
        _, test = next(folds.split(names, kinds, patients))
        held_out = set(test.tolist())
        with labels.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(("slide", "label", "patient", "split"))
            for number, row in enumerate(rows):
                table.writerow((*row, "test" if number in held_out else "train"))
    return out


def growing_slides(folder: Path, slides: int, size: int) -> Iterator[Path]:
    """Slides of a seed that no model has learned from, of any size; made once."""
    out = folder / f"growing-{size}"
    out.mkdir(exist_ok=True)
    with painters(None) as pool:
        for case in make_cases(slides, size, max(SEEDS) + 1):
            path = out / f"{case.slide}.tif"
            if not path.exists():
                for _ in write_case(out, case, pool):
                    pass
            yield path


def encode(folder: Path, encoder: TorchEncoder) -> Path:
    """Features of all slides; what is there already is kept."""
    features = folder / "features"
    features.mkdir(exist_ok=True)
    tasks = slide_tasks(sorted((folder / "slides").glob("*.tif")), features)
    settings = EncodeSettings(encoder=encoder.card.name)
    for _ in encode_slides(tasks, settings, encoder=encoder):
        pass
    return features


def learn(folder: Path, model: str, **changes) -> Path:
    """A classifier of the training slides, with the defaults of ``spt train``."""
    run = folder / "-".join(("run", model, *changes))
    if not (run / "last.safetensors").exists():
        settings = TrainSettings(
            features=str(folder / "features"),
            labels=str(folder / "labels.csv"),
            objective="classify",
            model=model,
            out=str(run),
            device="cpu",
            **changes,
        )
        for _ in train(settings):
            pass
    return run / "last.safetensors"


def held_out(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and label of each slide that is not learned from."""
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["split"] == "test":
                yield row["slide"], row["label"]


def tumour_patches(slide: Path, tokens: Tokens) -> np.ndarray:
    """Which patches are tumour for the greater part, by the truth mask, (n,)."""
    mask = np.asarray(Image.open(truth_paths(slide)[0])) >= TissueClass.GLANDULAR
    width, height = tokens.facts.l0_size_xy or (1, 1)
    scale_x, scale_y = mask.shape[1] / width, mask.shape[0] / height
    size_x, size_y = tokens.facts.l0_patch_xy or (1, 1)
    shares = []
    for x, y in tokens.xy:
        # Five by five points a patch: the mask is coarser than that.
        xs = ((x + size_x * np.linspace(0.1, 0.9, 5)) * scale_x).astype(int)
        ys = ((y + size_y * np.linspace(0.1, 0.9, 5)) * scale_y).astype(int)
        shares.append(mask[ys.clip(0, len(mask) - 1)[:, None], xs[None]].mean())
    return np.array(shares) > 0.5
