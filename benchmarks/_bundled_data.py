"""The data that the bundled encoder learns from, and the patients it never sees.

    python benchmarks/_bundled_data.py --data ../shared/data --out TABLES

writes ``breakhis.csv``, ``oral.csv`` and ``slides.csv`` as ``spt train-patches
--table`` takes them. A fifth of the BreaKHis patients of each subtype, at least one,
is ``test``: only ``benchmarks/bundled_encoder.py`` looks at them. With
``--also-keep-apart`` a second fifth is ``val``, on which settings were chosen.
"""

import argparse
import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

SEED = 6
BREAKHIS_MPP = 0.2
# It does not say; nuclei of lymphocytes, some 7 um, are 8 to 10 pixels wide.
TCGA_MPP = 0.74


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def splits_of_patients(rows: list[dict[str, str]]) -> dict[str, str]:
    """``test`` and ``val`` are a fifth of each subtype's patients, at least one.

    A subtype of two patients has none in ``val``.
    """
    patients: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        patients[row["subtype"]].add(row["patient"])
    rng = np.random.default_rng(SEED)
    found = {}
    for subtype in sorted(patients):
        order = rng.permutation(sorted(patients[subtype])).tolist()
        test = math.ceil(len(order) / 5)
        val = round(len(order) / 5) if len(order) >= 3 else 0
        val = max(val, 1) if len(order) >= 3 else 0
        for place, patient in enumerate(order):
            found[patient] = (
                "test" if place < test else "val" if place < test + val else "train"
            )
    return found


def write(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    print(f"{path}: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--also-keep-apart", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = read(args.data / "tiles/breakhis/labels.csv")
    splits = splits_of_patients(rows)
    kept = {"train", "val"} if not args.also_keep_apart else {"train"}
    write(
        args.out / "breakhis.csv",
        [
            {
                "file": row["file"],
                "slide": row["slide"],
                "patient": row["patient"],
                "mpp": BREAKHIS_MPP,
                "split": "train" if splits[row["patient"]] in kept else "test",
            }
            for row in rows
        ],
    )
    write(
        args.out / "oral.csv",
        [{"file": row["file"]} for row in read(args.data / "tiles/oral/labels.csv")],
    )
    write(
        args.out / "slides.csv",
        [{"slide": "tcga-cr-7395-01a-01-ts1", "mpp": TCGA_MPP}],
    )


if __name__ == "__main__":
    main()
