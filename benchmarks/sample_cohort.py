"""Whether the sample cohort is hard in the right way.

What a slide shows at a glance (its colours, its tissue fractions, the mean of its
ImageNet features) must not give the class away; what lies inside the tumour must.
"""

import argparse
import csv
import json
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import openslide
import sklearn
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core.sample import write_sample_cohort
from spt_core.sample.truth import truth_paths

ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = ROOT.parent / "shared" / "weights" / "mobilenetv2_imagenet.safetensors"
PATCH = 300
SEEN = 224  # pixels of a patch as the network sees it
TUMOUR_PATCHES = 12  # a slide, at most
NEIGHBOURS = 10
HARD = 0.60  # no glance at the slide may reach this
CLEAR = 0.90  # a look inside the tumour must reach this


def read_slides(folder: Path, most: int, seed: int) -> list[dict]:
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [read_slide(folder, row, most, seed) for row in rows]


def read_slide(folder: Path, row: dict, most: int, seed: int) -> dict:
    """Patches of tissue, patches inside tumour, and the slide's colours."""
    path = folder / f"{row['slide']}.tif"
    mask_path, classes_path = truth_paths(path)
    mask = np.asarray(Image.open(mask_path))
    facts = json.loads(classes_path.read_text(encoding="utf-8"))
    scale = facts["scale"]
    tumour = [c["value"] for c in facts["classes"] if c["tumour"]]
    slide = openslide.OpenSlide(path)
    width, height = slide.dimensions
    tissue_xy, tumour_xy = [], []
    for y in range(0, height - PATCH + 1, PATCH):
        for x in range(0, width - PATCH + 1, PATCH):
            rows = slice(y // scale, (y + PATCH) // scale)
            part = mask[rows, x // scale : (x + PATCH) // scale]
            if (part > 0).mean() > 0.5:
                tissue_xy.append((x, y))
            if np.isin(part, tumour).mean() > 0.8:
                tumour_xy.append((x, y))
    rng = np.random.default_rng((seed, len(tissue_xy)))

    def read(places: list, count: int) -> np.ndarray:
        chosen = rng.permutation(len(places))[:count]
        found = [
            slide.read_region(places[k], 0, (PATCH, PATCH)).convert("RGB")
            for k in chosen
        ]
        shape = (len(found), PATCH, PATCH, 3)
        return np.array([np.asarray(f) for f in found], np.uint8).reshape(shape)

    low = np.asarray(slide.get_thumbnail((512, 512)).convert("RGB"), np.float64) / 255
    whole = np.asarray(
        Image.fromarray((mask > 0).astype(np.uint8)).resize(low.shape[1::-1], 0)
    )
    tissue = low[whole > 0]
    colour = np.concatenate(
        [tissue.mean(0), tissue.std(0), *np.quantile(tissue, (0.1, 0.5, 0.9), axis=0)]
    )
    fractions = [
        sum(c["fraction_of_tissue"] for c in facts["classes"] if c["tumour"]),
        *(c["fraction_of_tissue"] for c in facts["classes"] if not c["tumour"]),
    ]
    return {
        **row,
        "tissue": read(tissue_xy, most),
        "tumour": read(tumour_xy, TUMOUR_PATCHES),
        "colour": colour,
        "fractions": np.array(fractions),
    }


@torch.inference_mode()
def features(pixels: np.ndarray, net: torch.nn.Module) -> np.ndarray:
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    out = []
    for start in range(0, len(pixels), 32):
        x = torch.from_numpy(pixels[start : start + 32]).permute(0, 3, 1, 2) / 255
        x = torch.nn.functional.interpolate(x, (SEEN, SEEN), mode="area")
        out.append(net((x - mean) / std).mean((2, 3)).numpy())
    return np.concatenate(out)


def encoder(weights: Path) -> torch.nn.Module:
    model = torchvision.models.mobilenet_v2(weights=None)
    found = model.load_state_dict(load_file(weights), strict=False)
    missing = [
        k
        for k in found.missing_keys
        if k.startswith("features") and not k.endswith("num_batches_tracked")
    ]
    if missing or found.unexpected_keys:
        sys.exit(f"{weights} does not fit: {missing[:3]} {found.unexpected_keys[:3]}")
    return model.features.eval()


def accuracy(model, x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> float:
    """Mean class accuracy over five folds that share no patient."""
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=0)
    said = np.empty_like(y)
    for train, test in folds.split(x, y, groups):
        said[test] = model.fit(x[train], y[train]).predict(x[test])
    return float(np.mean([(said[y == c] == c).mean() for c in np.unique(y)]))


def check(folder: Path, net: torch.nn.Module, most: int, seed: int) -> dict:
    slides = read_slides(folder, most, seed)
    label = np.array([s["label"] for s in slides])
    patient = np.array([s["patient"] for s in slides])
    mean = np.stack([features(s["tissue"], net).mean(0) for s in slides])
    near = KNeighborsClassifier(NEIGHBOURS, metric="euclidean", weights="distance")
    cosine = KNeighborsClassifier(NEIGHBOURS, metric="cosine", weights="distance")
    scaled = make_pipeline(StandardScaler(), near)
    count = [len(s["tumour"]) for s in slides]
    inside = features(np.concatenate([s["tumour"] for s in slides]), net)
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    return {
        "slides": len(slides),
        "tumour patches": len(inside),
        "knn colour": accuracy(
            scaled, np.stack([s["colour"] for s in slides]), label, patient
        ),
        "knn tissue fractions": accuracy(
            scaled, np.stack([s["fractions"] for s in slides]), label, patient
        ),
        "knn mean features": accuracy(cosine, mean, label, patient),
        "knn mean features, standardised": accuracy(scaled, mean, label, patient),
        "patches inside tumour": accuracy(
            linear, inside, np.repeat(label, count), np.repeat(patient, count)
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--folder", type=Path, help="a cohort that is there already")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--slides", type=int, default=45)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--patches", type=int, default=40, help="a slide, at most")
    args = parser.parse_args()
    net = encoder(args.weights)
    results, good = {}, True
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as made:
            folder = args.folder or Path(made) / "cohort"
            if args.folder is None:
                for _ in write_sample_cohort(
                    folder, slides=args.slides, size=args.size, seed=seed
                ):
                    pass
            found = results[seed] = check(folder, net, args.patches, seed)
        for name, value in found.items():
            if isinstance(value, int):
                print(f"seed {seed}: {name}: {value}")
                continue
            clear = name.startswith("patches")
            right = value > CLEAR if clear else value < HARD
            goal = f"above {CLEAR:.0%}" if clear else f"below {HARD:.0%}"
            good &= right
            print(f"seed {seed}: {name}: {value:.1%} (goal {goal}, chance 33 %)")
    seeds = "-".join(str(seed) for seed in args.seeds)
    out = Path(__file__).parent / "results" / f"sample_cohort_{seeds}.json"
    out.parent.mkdir(exist_ok=True)
    facts = {
        "results": results,
        "slides": args.slides,
        "size": args.size,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sklearn": sklearn.__version__,
        "numpy": np.__version__,
    }
    out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
