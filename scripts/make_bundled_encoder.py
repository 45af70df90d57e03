"""Make the bundled patch encoder again, from the data that it names.

    python scripts/make_bundled_encoder.py --data DATA --weights WEIGHTS

needs ``tiles/breakhis``, ``tiles/oral`` and ``slides`` as ``docs/bundled-models.md``
describes them, and MobileNetV2's ImageNet weights. What is done already in ``--work``
is not done again; a stopped training goes on. Then ``--install`` puts the result into
the package. About ten minutes of two quiet cores.
"""

import argparse
import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from _bundling import install, run

from spt_core.bundled import ENCODER_FILE
from spt_core.card_file import DataSource
from spt_core.patches.encoder_card import encoder_metadata, read_encoder_card

ROOT = Path(__file__).parents[1]
SAMPLE = {"slides": 24, "size": 4096, "seed": 77}
TAKEN = tuple(f"sample-{number:03d}" for number in (1, 4, 7, 10, 13, 16))


def tables(data: Path, out: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks/_bundled_data.py"]
    subprocess.run([*command, "--data", data, "--out", out], check=True)


def sample(out: Path) -> None:
    if not (out / "labels.csv").exists():
        options = [f"--{name}={value}" for name, value in SAMPLE.items()]
        run("sample", out, *options)
    with (out / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with (out / "taken.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("slide", "patient"))
        for row in rows:
            if row["slide"] in TAKEN:
                table.writerow((row["slide"], row["patient"]))


def train(args: argparse.Namespace, out: Path) -> None:
    if out.exists():
        return
    if out.with_suffix(".run").exists():
        run("train-patches", "--resume", out)
        return
    data, work = args.data, args.work
    run(
        "train-patches",
        data / "tiles/breakhis",
        data / "tiles/oral",
        data / "slides/CMU-1-Small-Region.svs",
        data / "slides/tcga-cr-7395-01a-01-ts1.svs",
        *(work / "sample" / f"{name}.tif" for name in TAKEN),
        *("--table", work / "tables/breakhis.csv"),
        *("--table", work / "tables/oral.csv"),
        *("--table", work / "tables/slides.csv"),
        *("--table", work / "sample/taken.csv"),
        *("--method", "simclr", "--temperature", 0.2, "--arch", "mobilenetv2"),
        *("--init", args.weights / "mobilenetv2_imagenet.safetensors"),
        *("--name", "bundled", "--patch-size", 128, "--mpp", 0.5, "--view-size", 96),
        *("--patches-per-slide", 128, "--freeze", 7, "--statistics", "batch"),
        "--half",
        *("--epochs", 6, "--batch-size", 96, "--learning-rate", 3e-4),
        *("--out", out),
    )


STATED: dict[str, Any] = {
    "about": "comes with the package; MobileNetV2 adapted to H&E, quick without a GPU",
    "licence": "CC BY 4.0 (attributions in MODEL_LICENSES.md)",
    "citation": "Sandler et al., MobileNetV2, 2018; adapted by SimCLR (Chen et al., "
    "2020) on BreaKHis (Spanhol et al., 2016) and others",
    "data": (
        DataSource("ImageNet weights of MobileNetV2", "MIT", "start"),
        DataSource(
            "BreaKHis, 790 fields of 41 patients at about 0.2 um/px",
            "CC BY 4.0",
            "training; 545 fields of 23 other patients are kept for the check",
            "Spanhol, Oliveira, Petitjean, Heutte: A Dataset for Breast Cancer "
            "Histopathological Image Classification, IEEE TBME 2016",
        ),
        DataSource("oral fields, 1,208", "CC0", "training"),
        DataSource("CMU-1-Small-Region (OpenSlide test data)", "CC0", "training"),
        DataSource(
            "TCGA-CR-7395-01A-01-TS1 at reduced size", "TCGA open access", "training"
        ),
        DataSource(
            "sample tissue painted by spt sample, 6 slides", "BSD-3-Clause", "training"
        ),
    ),
}
VERDICT = {
    "verdict": "Better than its ImageNet start by nearest neighbours (subtypes, benign "
    "or malignant, oral) and in linear subtypes; worse by 0.02 in the linear "
    "classification of benign or malignant and of oral fields.",
    "scales": "learned at 0.35 to 0.7 um/px, fields of about 34 to 67 um; made for "
    "patches of 128 px at 0.5 um/px (64 um)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--weights", type=Path, default=ROOT / "../shared/weights")
    parser.add_argument("--work", type=Path, default=ROOT / "build/bundled")
    parser.add_argument("--install", action="store_true", help="into the package")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    tables(args.data, args.work / "tables")
    sample(args.work / "sample")
    train(args, args.work / "encoder.safetensors")
    if args.install:
        made = args.work / "encoder.safetensors"
        card = read_encoder_card(made)
        if card is None:
            raise SystemExit(f"{made} has no card.")
        card = replace(card, **STATED, more={**VERDICT, **measured()})
        install(made, ENCODER_FILE, encoder_metadata(card))


def measured() -> dict:
    """What ``benchmarks/bundled_encoder.py`` found of the encoder and its start."""
    path = ROOT / "benchmarks/results/bundled_encoder.json"
    if not path.exists():
        raise SystemExit("Run benchmarks/bundled_encoder.py WORK/encoder.safetensors.")
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    found = {one["name"]: round(one["value"], 4) for one in figures}
    speed = found["encoder, 128 px"]
    return {
        "measured": {
            "what": "mean class accuracy on fields of 23 BreaKHis patients it never "
            "saw, at 0.5 um/px; oral: fields seen in training without their labels",
            **{
                name: value
                for name, value in found.items()
                if name.startswith(("encoder, ", "start (ImageNet), "))
                and "px" not in name
            },
        },
        "speed": f"{speed:.0f} patches of 128 px per second on two busy cores",
    }


if __name__ == "__main__":
    main()
