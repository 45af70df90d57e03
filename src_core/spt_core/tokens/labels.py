"""labels.csv: the class, patient and site of each slide, checked as a whole.

The file has one row per slide (``slide,label``), or one per patient
(``patient,label``) beside a table that says whose each slide is (``slide,patient``).
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from unicodedata import normalize

from spt_core.errors import InputError
from spt_core.slides.names import slide_name
from spt_core.tokens import layout
from spt_core.tokens.tables import read_table

COLUMNS = ("slide", "label", "patient", "site", "split", "mpp")
SPLITS = ("train", "val", "test")
SPLIT_WORDS = {"training": "train", "valid": "val", "validation": "val", "tune": "val"}
SHOWN = 10
_NONE = ("nan", "na", "n/a", "null", "none", "#n/a", "<na>")
_BETWEEN = re.compile("[_-]+")
_WHOLE = re.compile("([0-9]+)[.]0+")
_INVISIBLE = re.compile("[\\s\u00ad\u200b-\u200f\u2060\ufeff]+")
_LEAST_MPP, _MOST_MPP = 1e-3, 1e3


# A patient in the barcodes of The Cancer Genome Atlas: project, site, participant.
_TCGA = re.compile(r"(TCGA-[A-Z0-9]{2}-[A-Z0-9]{4})(?![A-Z0-9])", re.IGNORECASE)


class PatientSource(StrEnum):
    """Where patients may be read from, where no column names them."""

    TCGA = "tcga"


@dataclass(frozen=True)
class SlideLabel:
    """One slide's row. An empty label is an unlabelled slide.

    Attributes
    ----------
    split
        None where the file has no splits at all; a blank one is ``train``.
    other
        Every column that means nothing here, kept for maps and reports.
    """

    slide: str
    label: str | None = None
    patient: str | None = None
    site: str | None = None
    split: str | None = None
    mpp: float | None = None
    other: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Labels:
    """All rows by slide name, and remarks that do not stop a run."""

    by_slide: dict[str, SlideLabel]
    remarks: tuple[str, ...] = ()

    @property
    def classes(self) -> list[str]:
        """The class names in alphabetical order."""
        return sorted({row.label for row in self.by_slide.values() if row.label})

    @property
    def has_splits(self) -> bool:
        return any(row.split for row in self.by_slide.values())

    @property
    def names_patients(self) -> bool:
        """Whether the patient of every labelled slide is known."""
        labelled = [row for row in self.by_slide.values() if row.label]
        return bool(labelled) and all(row.patient for row in labelled)

    def patient_of(self, slide: str) -> str:
        """The patient, or the slide itself where none is given."""
        row = self.by_slide.get(slide)
        return f"patient:{row.patient}" if row and row.patient else f"slide:{slide}"


def read_labels(
    path: str | os.PathLike[str],
    *,
    slides: str | os.PathLike[str] | None = None,
    patients_from: PatientSource | str | None = None,
) -> Labels:
    """Read and check a labels file by itself; everything wrong is said at once.

    Parameters
    ----------
    slides
        The table ``slide,patient`` (and optionally ``site,split,mpp``) that joins a
        labels file of patients to slides.
    patients_from
        Take the patient from the slide's name where no column gives one.
    """
    path = Path(path)
    header, reader = read_table(path, "labels file", "slide,label")
    if "slide" in header and slides is None:
        rows, wrong = _slide_rows(path, header, reader, needed=("slide", "label"))
    else:
        rows, wrong = _patient_rows(path, header, reader, slides)
    if any(row.split for row in rows):
        rows = [replace(row, split=row.split or "train") for row in rows]
    remarks: list[str] = []
    if patients_from is not None:
        rows, remark = _patients_from_names(rows, PatientSource(patients_from))
        remarks.append(remark)
    for name, count in Counter(row.slide for row in rows).items():
        if count > 1:
            wrong.append(f"{name} is listed {count} times")
    wrong += patients_in_two_splits((row.patient, row.split) for row in rows)
    if wrong:
        raise InputError(_all_at_once(path.name, wrong))
    remarks += _two_label_patients(rows)
    remarks += _unclear_names(rows)
    return Labels({row.slide: row for row in rows}, tuple(remarks))


def tcga_patient(slide: str) -> str | None:
    """The patient in a TCGA slide's name, such as ``TCGA-A1-A0SB``."""
    found = _TCGA.match(slide)
    return found.group(1).upper() if found else None


def _slide_rows(
    path: Path,
    header: list[str],
    reader: Iterable[dict[str, str]],
    *,
    needed: tuple[str, ...],
) -> tuple[list[SlideLabel], list[str]]:
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(
            f"{path.name} has no column {' and no column '.join(missing)}. Its first "
            f"line must name the columns: {','.join(needed)} and optionally "
            "patient,site,split,mpp."
        )
    wrong: list[str] = []
    rows = [
        row
        for line, values in enumerate(reader, start=2)
        if (row := _row(values, line, wrong)) is not None
    ]
    return rows, wrong


def _patient_rows(
    path: Path,
    header: list[str],
    reader: Iterable[dict[str, str]],
    slides: str | os.PathLike[str] | None,
) -> tuple[list[SlideLabel], list[str]]:
    """The rows of a table of slides, with the labels of their patients."""
    missing = [name for name in ("patient", "label") if name not in header]
    if missing:
        needed = "slide" if "slide" not in header else missing[0]
        raise InputError(
            f"{path.name} has no column {needed}. Its first line must name the "
            "columns: slide,label (one row per slide) or patient,label (one row per "
            "patient, with a table slide,patient beside it)."
        )
    if slides is None:
        raise InputError(
            f"{path.name} names patients and no slides. Say whose each slide is: give "
            "a table with the columns slide,patient as --slide-table."
        )
    table = Path(slides)
    slide_header, slide_reader = read_table(table, "slide table", "slide,patient")
    rows, wrong = _slide_rows(
        table, slide_header, slide_reader, needed=("slide", "patient")
    )
    by_patient: dict[str, SlideLabel] = {}
    for line, values in enumerate(reader, start=2):
        cells = _cells(values)
        patient = cells.get("patient")
        if not any(cells.values()):
            continue
        if not patient:
            wrong.append(f"line {line} names no patient")
            continue
        # Named as a slide for the time of reading: the checks of a row are the same.
        row = _row({**values, "slide": patient}, line, wrong)
        known = by_patient.get(patient)
        if known is not None and row is not None and known.label != row.label:
            wrong.append(
                f"patient {patient} has the labels {known.label!r} and {row.label!r}"
            )
        elif row is not None:
            by_patient[patient] = row
    without = sorted(set(by_patient) - {row.patient or "" for row in rows})
    if without:
        wrong.append(
            f"{len(without)} patients have no slide in {table.name}: {_some(without)}"
        )
    return [_joined(row, by_patient.get(row.patient or "")) for row in rows], wrong


def _joined(row: SlideLabel, patient: SlideLabel | None) -> SlideLabel:
    """A slide with what is known of its patient; its own cells come first."""
    if patient is None:
        return row
    return replace(
        row,
        label=row.label or patient.label,
        site=row.site or patient.site,
        split=row.split or patient.split,
        mpp=row.mpp or patient.mpp,
        other={**patient.other, **row.other},
    )


def _patients_from_names(
    rows: list[SlideLabel], source: PatientSource
) -> tuple[list[SlideLabel], str]:
    """Patients where none are given, and a remark that shows them."""
    found = [row if row.patient else _named(row) for row in rows]
    new = [row for row, before in zip(found, rows, strict=True) if row is not before]
    if not new:
        return rows, f"No patient was taken from the slides' names ({source})."
    counts = Counter(row.patient for row in new)
    shown = ", ".join(f"{name} ({n})" for name, n in sorted(counts.items())[:SHOWN])
    more = " ..." if len(counts) > SHOWN else ""
    left = sum(1 for row in found if not row.patient)
    rest = f" {left} slides have no such name." if left else ""
    return found, (
        f"Patients taken from the slides' names ({source}): {len(new)} slides of "
        f"{len(counts)} patients, with their numbers of slides: {shown}{more}.{rest}"
    )


def _named(row: SlideLabel) -> SlideLabel:
    patient = tcga_patient(row.slide)
    return row if patient is None else replace(row, patient=patient)


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
                groups = "patients" if labels.names_patients else "slides"
                why = " (folds never share a patient)" * labels.names_patients
                wrong.append(
                    f"class {name!r} has {len(of_class)} {groups}, fewer than the "
                    f"{folds} folds{why}: choose fewer folds (--folds), or leave the "
                    "class out"
                )
    if wrong:
        raise InputError(_all_at_once("The labels do not fit", wrong))
    remarks = list(labels.remarks)
    bare = len(known - {row.slide for row in rows})
    if bare and supervised:
        remarks.append(f"{bare} slides have no label and are left out of supervision.")
    return tuple(remarks)


def _cells(values: Mapping[str, str | None]) -> dict[str, str]:
    """What is not blank, by column; cells beyond the last column are left out."""
    return {
        name: text
        for name, value in values.items()
        if name and isinstance(value, str) and (text := value.strip())
    }


def _row(
    values: Mapping[str, str | None], line: int, wrong: list[str]
) -> SlideLabel | None:
    cells = _cells(values)
    if not cells:
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
            mpp = float(cells["mpp"].replace("_", "no number"))  # Python's, not ours
        except ValueError:
            wrong.append(f"line {line}: mpp is {cells['mpp'][:40]!r}, not a number")
        else:
            if not _LEAST_MPP <= mpp <= _MOST_MPP:
                wrong.append(
                    f"line {line}: mpp is {cells['mpp'][:40]!r}, not the size of a "
                    "pixel in micrometres"
                )
    return SlideLabel(
        slide=slide_name(cells["slide"].removesuffix(layout.ENDING)),
        label=cells.get("label"),
        patient=cells.get("patient"),
        site=cells.get("site"),
        split=split or None,
        mpp=mpp,
        other={name: text for name, text in cells.items() if name not in COLUMNS},
    )


def patients_in_two_splits(
    rows: Iterable[tuple[str | None, str | None]],
) -> list[str]:
    """A sentence for each patient (patient, split) on both sides of a split.

    A blank split is ``train``, where any row has one.
    """
    pairs = list(rows)
    if not any(split for _, split in pairs):
        return []
    splits = defaultdict(set)
    for patient, split in pairs:
        if patient:
            splits[patient].add(split or "train")
    return [
        f"patient {patient} is in {' and '.join(sorted(found))}: what is learned from "
        "one slide would be tested on another of the same person"
        for patient, found in sorted(splits.items())
        if len(found) > 1
    ]


def _two_label_patients(rows: Iterable[SlideLabel]) -> list[str]:
    found = defaultdict(set)
    for row in rows:
        if row.patient and row.label:
            found[row.patient].add(row.label)
    both = sorted(patient for patient, names in found.items() if len(names) > 1)
    if not both:
        return []
    return [
        f"{len(both)} patients have slides of different labels ({_some(both)}). Each "
        "slide keeps its own label; the patient stays in one fold."
    ]


def _unclear_names(rows: Sequence[SlideLabel]) -> list[str]:
    """Classes, sites and patients that somebody may have meant as one, or as none."""
    classes = Counter(row.label for row in rows if row.label)
    sites = {row.site for row in rows if row.site}
    patients = {row.patient for row in rows if row.patient}
    found = [
        f"The {what} {' and '.join(repr(name) for name in names)} differ in capitals, "
        "spaces, a '.0' or characters that are not seen alone. If they are one, write "
        "them alike."
        for what, names in (
            *(("classes", names) for names in _written_alike(classes)),
            *(("sites", names) for names in _written_alike(sites)),
            # Of numbers with dashes each dash counts.
            *(
                ("patients", names)
                for names in _written_alike(patients, dashes=True)[:SHOWN]
            ),
        )
    ]
    return found + [
        f"{classes[name]} slides have the label {name!r}, as programs write for none. "
        "If it is, leave those cells blank."
        for name in sorted(classes)
        if name.lower() in _NONE
    ]


def _written_alike(names: Iterable[str], *, dashes: bool = False) -> list[list[str]]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        alike[_as_meant(name, dashes)].append(name)
    return [group for group in alike.values() if len(group) > 1]


def _as_meant(name: str, dashes: bool) -> str:
    if name.isascii() and name.isalnum():  # most are: a million take a moment
        return name.lower()
    meant = _INVISIBLE.sub("", normalize("NFKC", name)).casefold()
    whole = _WHOLE.fullmatch(meant)  # 1.0, as programs write 1
    meant = whole[1] if whole else meant
    return meant if dashes else _BETWEEN.sub("", meant)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _all_at_once(where: str, wrong: list[str]) -> str:
    if len(wrong) == 1:
        return f"{where}: {wrong[0]}."
    more = [f"and {len(wrong) - 50} more"] if len(wrong) > 50 else []
    return f"{where}:\n" + "\n".join(f"  - {one}" for one in wrong[:50] + more)
