"""BreaKHis fields and UCSB bags as feature files; nobody is named in them.

A BreaKHis field is a slide by itself: 46 by 70 um of tissue, seen as three rows of six
patches that overlap. Where a person's fields lay on the glass is not known, so that
grid positions say something inside a field only. A bag of UCSB has no positions.
"""

import csv
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _bundled_data import BREAKHIS_MPP, kept_apart, person, read, write
from PIL import Image

from spt_core import TokenFacts, Tokens
from spt_core.patches import TorchEncoder, load_encoder
from spt_core.tokens.feature_file import write_tokens

MPP, SIDE, STEP = 0.5, 64, 14
# The subtypes of five persons or more: others cannot be in five folds.
SUBTYPES = {
    "DC": "ductal carcinoma",
    "MC": "mucinous carcinoma",
    "PC": "papillary carcinoma",
    "F": "fibroadenoma",
    "TA": "tubular adenoma",
}


@dataclass(frozen=True)
class Field:
    """One line of the labels: a field, whose it is, and what it shows."""

    slide: str
    file: str
    patient: str
    label: str
    subtype: str
    is_apart: bool  # from a person whom the encoder has never seen


def fields_of(folder: Path) -> list[Field]:
    rows = read(folder / "labels.csv")
    apart = kept_apart(rows)
    # By a hash, so that neither number nor order says who somebody is.
    persons = sorted({person(row["patient"]) for row in rows}, key=_hashed)
    number = {name: place for place, name in enumerate(persons)}
    return [
        Field(
            f"field{place:04d}",
            row["file"],
            f"person{number[person(row['patient'])]:02d}",
            row["binary"],
            SUBTYPES.get(row["subtype"], ""),
            row["patient"] in apart,
        )
        for place, row in enumerate(rows)
    ]


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def prepare_breakhis(folder: Path, work: Path) -> list[Field]:
    """Features of every field, and one table of labels for each question."""
    fields = fields_of(folder)
    encoder = load_encoder("bundled")
    assert isinstance(encoder, TorchEncoder)
    pictures = next(folder.rglob(fields[0].file)).parent
    features = work / "breakhis" / "features"
    features.mkdir(parents=True, exist_ok=True)
    for field in fields:
        path = features / f"{field.slide}.h5"
        if not path.exists():
            write_tokens(path, encoded(encoder, pictures / field.file, field.slide))
    for name in ("label", "subtype"):
        rows = [
            {"slide": one.slide, "label": getattr(one, name), "patient": one.patient}
            for one in fields
        ]
        write(work / "breakhis" / f"{name}s.csv", [row for row in rows if row["label"]])
    return fields


@torch.inference_mode()
def encoded(encoder: TorchEncoder, path: Path, name: str) -> Tokens:
    with Image.open(path) as picture:
        l0_size = picture.size
        width, height = (round(n * BREAKHIS_MPP / MPP) for n in l0_size)
        small = picture.convert("RGB").resize(
            (width, height), Image.Resampling.BILINEAR
        )
    pixels = np.asarray(small)
    tops = range(0, height - SIDE + 1, STEP)
    lefts = range(0, width - SIDE + 1, STEP)
    p = np.array([(r, c) for r in range(len(tops)) for c in range(len(lefts))])
    patches = np.stack([
        pixels[tops[r] : tops[r] + SIDE, lefts[c] : lefts[c] + SIDE] for r, c in p
    ])  # fmt: skip
    x = encoder(torch.from_numpy(patches), SIDE).numpy()
    scale = MPP / BREAKHIS_MPP
    l0_step, l0_patch = round(STEP * scale), round(SIDE * scale)
    facts = TokenFacts(
        name=name,
        encoder=encoder.card.name,
        encoder_sha256=encoder.sha256,
        mpp=MPP,
        patch_size=SIDE,
        patch_um=SIDE * MPP,
        stain="none",
        l0_patch_xy=(l0_patch, l0_patch),
        l0_step_xy=(l0_step, l0_step),
        l0_size_xy=l0_size,
        overlap=SIDE - STEP,
        slide_fingerprint=_hashed(name),
    )
    return Tokens(x.astype(np.float32), p, p[:, ::-1] * l0_step, facts)


def prepare_ucsb(path: Path, work: Path) -> int:
    """Each bag as a feature file without positions; returns their number."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        table = np.array([[float(cell) for cell in row] for row in csv.reader(file)])
    label, bag, x = table[:, 0], table[:, 1], table[:, 2:].astype(np.float32)
    features = work / "ucsb" / "features"
    features.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in np.unique(bag):
        name = f"bag{int(number):02d}"
        own = bag == number
        nowhere = np.zeros((int(own.sum()), 2), np.int64)
        facts = TokenFacts(
            name=name,
            encoder="ucsb-708",
            has_positions=False,
            slide_fingerprint=_hashed(name),
        )
        write_tokens(features / f"{name}.h5", Tokens(x[own], nowhere, nowhere, facts))
        kind = "malignant" if label[own][0] == 1 else "benign"
        # The file names no patients. The site is the same for all: standardising per
        # site then measures every feature by the images that are learned from.
        rows.append({"slide": name, "label": kind, "site": "UCSB"})
    write(work / "ucsb" / "labels.csv", rows)
    return len(rows)
