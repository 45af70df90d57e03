"""Other recipes of the bundled encoder, tried without its judges.

    python benchmarks/encoder_trials.py train RECIPE [RECIPE ...]
    python benchmarks/encoder_trials.py table

Each recipe learns from what ``scripts/make_bundled_encoder.py`` takes, in as many
steps. The table asks about the BreaKHis patients that it learned from, without their
labels: each person's fields by the other persons' (subtypes of one person alone are
left out), and about half of the oral fields for training by the other half. What
``bundled_encoder.py`` asks about is not looked at. Every row is compared with the
bundled encoder, with 95 % intervals over persons and oral fields. Some four minutes of
one quiet core for each recipe.
"""

import argparse
import json
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import bundled_encoder as asking
import numpy as np
from _bundled_data import kept_apart, person
from _figures import RESULTS, _versions

from spt_core.patches import load_encoder
from spt_core.patches.training import PatchTrainSettings, train_patches
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.patches.training.plan import PatchPlan

ROOT = Path(__file__).parents[1]
SAMPLES = tuple(f"sample-{number:03d}" for number in (1, 4, 7, 10, 13, 16))
LESS_COLOUR = Augmentation(
    stain=0.1, brightness=0.1, contrast=0.1, saturation=0.1, hue=3.0
)


def site_batches():
    """Each step's patches are of one set of tiles, or of one slide."""

    def tiles(plan: PatchPlan, step: int):
        pool, source = plan.pool(step), plan.source
        origins = [one.origin for one in (*source.slides, *source.tiles)]
        site = {
            source._slide_numbers[one.slide]: one.slide
            if one.is_slide
            else one.path.parts[-3:-1]
            for one in origins
        }
        groups = defaultdict(list)
        for tile, slide in enumerate(pool.slide):
            groups[site[int(slide)]].append(tile)
        rng = np.random.default_rng([plan.settings.seed, 53, step])
        names = sorted(groups, key=str)
        shares = np.array([len(groups[name]) for name in names], float)
        chosen = groups[names[rng.choice(len(names), p=shares / shares.sum())]]
        return rng.permutation(chosen)[: plan.batch]

    return patch.object(PatchPlan, "tiles", tiles)


RECIPES = {
    "again": (nullcontext, {}),
    "less-colour": (nullcontext, {"augmentation": LESS_COLOUR}),
    "sites": (site_batches, {}),
    "sites-less-colour": (site_batches, {"augmentation": LESS_COLOUR}),
    # As its authors train: their rate, head and temperature, two patches of two slides.
    "hidisc": (
        nullcontext,
        {"method": "hidisc", "temperature": None, "learning_rate": 1e-3},
    ),
    "renewed": (nullcontext, {"refresh": 0.5}),
}


def trained(args: argparse.Namespace, name: str) -> None:
    out = args.work / "trials" / f"{name}.safetensors"
    if out.exists():
        return
    data, tables = args.data, args.work / "tables"
    way, changes = RECIPES[name]
    settings = PatchTrainSettings(
        sources=tuple(
            str(one)
            for one in (
                data / "tiles/breakhis",
                data / "tiles/oral",
                data / "slides/CMU-1-Small-Region.svs",
                data / "slides/tcga-cr-7395-01a-01-ts1.svs",
                *sorted(args.work / f"sample/{name}.tif" for name in SAMPLES),
            )
        ),
        tables=tuple(
            str(one)
            for one in (
                tables / "breakhis.csv",
                tables / "oral.csv",
                tables / "slides.csv",
                args.work / "sample/taken.csv",
            )
        ),
        out=str(out.with_suffix(".run")),
        method="simclr", temperature=0.2, arch="mobilenetv2",
        init=str(args.weights / "mobilenetv2_imagenet.safetensors"),
        name=name, patch_size=128, mpp=0.5, view_size=96, patches_per_slide=128,
        freeze=7, statistics="batch", half=True, epochs=6, batch_size=96,
        learning_rate=3e-4, device="cpu",
    )  # fmt: skip
    events = train_patches(replace(settings, **changes))
    with way():
        while True:
            try:
                print(next(events), flush=True)
            except StopIteration as stop:
                stop.value.encoder.replace(out)
                return


def halves(mouths: np.ndarray, rows: list[dict]):
    """The oral fields for training; half of them are asked about."""
    train = [i for i, row in enumerate(rows) if row["source_split"] == "train"]
    order = np.random.default_rng(asking.SEED).permutation(train)
    split = ["train", "test"]
    return mouths[order], [
        {**rows[i], "source_split": split[n % 2]} for n, i in enumerate(order)
    ]


def table(args: argparse.Namespace) -> None:
    fields, rows = asking.breakhis(args.data / "tiles/breakhis")
    apart = kept_apart(rows)
    persons = defaultdict(set)
    for row in rows:
        if row["patient"] not in apart:
            persons[row["subtype"]].add(person(row["patient"]))
    kept = [
        i
        for i, row in enumerate(rows)
        if row["patient"] not in apart and len(persons[row["subtype"]]) > 1
    ]
    fields = fields[kept]
    rows = [{**rows[i], "patient": person(rows[i]["patient"])} for i in kept]
    everyone = {row["patient"] for row in rows}
    mouths, oral_rows = halves(*asking.oral(args.data / "tiles/oral"))
    start = args.weights / "mobilenetv2_imagenet.safetensors"
    trials = sorted((args.work / "trials").glob("*.safetensors"))
    compared = {
        "bundled": load_encoder("bundled"),
        "start": load_encoder("mobilenetv2", start),
        **{path.stem: load_encoder(str(path)) for path in trials},
    }
    found: dict = {"versions": _versions(), "persons": len(everyone), "rows": {}}
    columns = {}
    for name, encoder in compared.items():
        h = asking.features(encoder, fields)
        asked = asking.breakhis_table(h, rows, args.repeats, everyone)
        asked |= asking.oral_table(asking.features(encoder, mouths), oral_rows)
        columns[name] = asked
        scores = {" ".join(k): float(v.scores().mean()) for k, v in asked.items()}
        gain = asking.mean_gain(asked, columns["bundled"])
        found["rows"][name] = {**scores, "mean minus bundled": gain}
        said = " ".join(f"{value:.3f}" for value in scores.values())
        print(f"{name:20} {said}  {gain[0]:+.4f} [{gain[1]:+.4f}, {gain[2]:+.4f}]")
    out = RESULTS / "encoder_trials.json"
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("train", "table"))
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--weights", type=Path, default=ROOT / "../shared/weights")
    parser.add_argument("--work", type=Path, default=ROOT / "build/bundled")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    for name in args.recipes:
        trained(args, name)
    if args.do == "table":
        table(args)


if __name__ == "__main__":
    main()
