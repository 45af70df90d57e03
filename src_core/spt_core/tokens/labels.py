"""labels.csv: the class and patient of each slide, with all errors at once."""

import csv
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from spt_core.errors import InputError
from spt_core.slides.names import slide_name
from spt_core.tokens import layout

COLUMNS = ("slide", "label", "patient", "split", "mpp")
SPLITS = ("train", "val", "test")
SPLIT_WORDS = {"training": "train", "valid": "val", "validation": "val", "tune": "val"}
SHOWN = 10


@dataclass(frozen=True)
class SlideLabel:
    """One row. An empty label is an unlabelled slide."""

    slide: str
    label: str | None = None
    patient: str | None = None
    split: str | None = None
    mpp: float | None = None


@dataclass(frozen=True)
class Labels:
    """All rows by slide name, and remarks that do not stop a run."""

    by_slide: dict[str, SlideLabel]
    remarks: tuple[str, ...] = ()

    @property
    def classes(self) -> list[str]:
        """The class names in alphabetical order."""
        return sorted({row.label for row in self.by_slide.values() if row.label})

    def patient_of(self, slide: str) -> str:
        """The patient, or the slide itself where none is given."""
        row = self.by_slide.get(slide)
        return f"patient:{row.patient}" if row and row.patient else f"slide:{slide}"


def read_labels(path: str | os.PathLike[str]) -> Labels:
    """Read and check a labels file by itself; all errors are reported at once."""
    path = Path(path)
    header, reader = read_table(path, "labels file", "slide,label")
    missing = [name for name in ("slide", "label") if name not in header]
    if missing:
        raise InputError(
            f"{path.name} has no column {' and no column '.join(missing)}. Its first "
            "line must name the columns: slide,label and optionally patient,split,mpp."
        )
    wrong: list[str] = []
    rows = [
        row
        for line, values in enumerate(reader, start=2)
        if (row := _row(values, line, wrong)) is not None
    ]
    for name, count in Counter(row.slide for row in rows).items():
        if count > 1:
            wrong.append(f"{name} is listed {count} times")
    wrong += _patients_in_two_splits(rows)
    if wrong:
        raise InputError(_all_at_once(path.name, wrong))
    return Labels({row.slide: row for row in rows}, _two_label_patients(rows))


def read_table(
    path: Path, what: str, columns: str
) -> tuple[list[str], Iterable[dict[str, str]]]:
    """The columns of a CSV file, in lower case, and its rows."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"There is no {what} {path}.") from None
    except UnicodeDecodeError:
        raise InputError(
            f"{path.name} is not UTF-8 text. Save it as CSV UTF-8."
        ) from None
    lines = text.splitlines()
    if not lines:
        raise InputError(f"{path.name} is empty. It needs the columns {columns}.")
    delimiter = max(",;\t", key=lines[0].count)  # spreadsheets write all three
    reader = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True)
    header = [(name or "").strip().lower() for name in reader.fieldnames or []]
    reader.fieldnames = header
    return header, reader


def check_labels(
    labels: Labels,
    slides: Collection[str],
    *,
    supervised: bool = False,
    folds: int = 0,
) -> tuple[str, ...]:
    """Check labels against the slides before a run; all errors at once.

    Returns
    -------
    Remarks that do not stop the run.
    """
    wrong: list[str] = []
    known = set(slides)
    unknown = sorted(set(labels.by_slide) - known)
    if unknown:
        wrong.append(
            f"{len(unknown)} slides are in the labels but have no features: "
            + _some(unknown)
        )
    rows = [row for row in labels.by_slide.values() if row.slide in known and row.label]
    counts = Counter(row.label for row in rows)
    if supervised and len(counts) < 2:
        found = f"only the class {next(iter(counts))!r}" if counts else "no class"
        wrong.append(f"the labelled slides have {found}; at least two are needed")
    if folds:
        patients = defaultdict(set)
        for row in rows:
            patients[row.label].add(labels.patient_of(row.slide))
        for name, of_class in sorted(patients.items(), key=str):
            if len(of_class) < folds:
                wrong.append(
                    f"class {name!r} has {len(of_class)} patients, fewer than the "
                    f"{folds} folds (folds never share a patient)"
                )
    if wrong:
        raise InputError(_all_at_once("The labels do not fit", wrong))
    remarks = list(labels.remarks)
    bare = len(known - {row.slide for row in rows})
    if bare and supervised:
        remarks.append(f"{bare} slides have no label and are left out of supervision.")
    return tuple(remarks)


def _row(values: dict[str, str], line: int, wrong: list[str]) -> SlideLabel | None:
    cells = {
        name: (values.get(name) or "").strip() for name in COLUMNS if values.get(name)
    }
    if not any(cells.values()):
        return None  # a blank line
    if not cells.get("slide"):
        wrong.append(f"line {line} names no slide")
        return None
    split = cells.get("split", "").lower()
    split = SPLIT_WORDS.get(split, split)
    if split and split not in SPLITS:
        wrong.append(f"line {line}: split is {split!r}, not {', '.join(SPLITS)}")
    mpp = None
    if cells.get("mpp"):
        try:
            mpp = float(cells["mpp"])
        except ValueError:
            wrong.append(f"line {line}: mpp is {cells['mpp']!r}, not a number")
    return SlideLabel(
        slide=slide_name(cells["slide"].removesuffix(layout.ENDING)),
        label=cells.get("label") or None,
        patient=cells.get("patient") or None,
        split=split or None,
        mpp=mpp,
    )


def _patients_in_two_splits(rows: Iterable[SlideLabel]) -> list[str]:
    splits = defaultdict(set)
    for row in rows:
        if row.patient and row.split:
            splits[row.patient].add(row.split)
    return [
        f"patient {patient} is in {' and '.join(sorted(found))}: what is learned from "
        "one slide would be tested on another of the same person"
        for patient, found in sorted(splits.items())
        if len(found) > 1
    ]


def _two_label_patients(rows: Iterable[SlideLabel]) -> tuple[str, ...]:
    found = defaultdict(set)
    for row in rows:
        if row.patient and row.label:
            found[row.patient].add(row.label)
    both = sorted(patient for patient, names in found.items() if len(names) > 1)
    if not both:
        return ()
    return (
        f"{len(both)} patients have slides of different labels ({_some(both)}). Each "
        "slide keeps its own label; the patient stays in one fold.",
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _all_at_once(where: str, wrong: list[str]) -> str:
    if len(wrong) == 1:
        return f"{where}: {wrong[0]}."
    more = [f"and {len(wrong) - 50} more"] if len(wrong) > 50 else []
    return f"{where}:\n" + "\n".join(f"  - {one}" for one in wrong[:50] + more)
