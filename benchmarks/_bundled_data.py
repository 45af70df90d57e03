"""The data that the bundled encoder learns from, and the patients it never sees.

    python benchmarks/_bundled_data.py --data ../shared/data --out TABLES

writes ``breakhis.csv``, ``oral.csv`` and ``slides.csv`` as ``spt train-patches
--table`` takes them. A fifth of the BreaKHis patients of each subtype, at least one, is
kept apart, with all whose number is the same (22549AB, 22549CD and 22549G are blocks of
one person): only ``benchmarks/bundled_encoder.py`` looks at them.
"""

import argparse
import csv
import math
import re
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


def person(patient: str) -> str:
    """Whoever it is: the number without the letters of the block."""
    found = re.match(r"\d+", patient)
    return found.group() if found else patient


def kept_apart(rows: list[dict[str, str]]) -> set[str]:
    """The patients that the encoder never sees."""
    patients: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        patients[row["subtype"]].add(row["patient"])
    rng = np.random.default_rng(SEED)
    chosen = set()
    for subtype in sorted(patients):
        order = rng.permutation(sorted(patients[subtype])).tolist()
        chosen |= {person(patient) for patient in order[: math.ceil(len(order) / 5)]}
    return {row["patient"] for row in rows if person(row["patient"]) in chosen}


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
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = read(args.data / "tiles/breakhis/labels.csv")
    apart = kept_apart(rows)
    everyone = {row["patient"] for row in rows}
    print(f"kept apart: {len(apart)} of {len(everyone)} patients")
    write(
        args.out / "breakhis.csv",
        [
            {
                "file": row["file"],
                "slide": row["slide"],
                "patient": person(row["patient"]),
                "mpp": BREAKHIS_MPP,
                "split": "test" if row["patient"] in apart else "train",
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
