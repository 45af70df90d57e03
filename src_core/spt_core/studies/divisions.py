"""Which slides are learned from, which choose the epoch and C, and which are asked.

A division is one fold. Its three parts share no patient, and with one site left out no
site is both learned from and asked. The part asked takes no part in any choice.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort
from spt_core.studies.folds import Indices, patient_folds
from spt_core.studies.set_aside import (
    MIN_PATIENTS,
    patients_of_classes,
    patients_to_set_aside,
)
from spt_core.studies.split_files import read_splits

VAL_SHARE = 0.2
SHOWN = 5


class DivisionKind(StrEnum):
    """By what slides are divided."""

    PATIENT = "by patient"
    SITE = "by site"
    GIVEN = "as given"


@dataclass(frozen=True, eq=False)
class Division:
    """One fold: slides to learn from, to choose the epoch and C by, and to ask.

    Attributes
    ----------
    train, val, test
        Slide numbers in order, with none in two of them; ``val`` may be empty. Slides
        without a label are in none.
    """

    repeat: int
    fold: int
    train: Indices
    val: Indices
    test: Indices

    def parts(self) -> dict[str, Indices]:
        return {"train": self.train, "val": self.val, "test": self.test}


@dataclass(frozen=True, eq=False)
class Divisions:
    """The folds of all repeats, and what the reader of the table must know of them."""

    kind: DivisionKind
    folds: tuple[Division, ...]
    remarks: tuple[str, ...] = ()

    @property
    def repeats(self) -> int:
        return len({one.repeat for one in self.folds})


def divide_by_patient(
    cohort: Cohort,
    *,
    folds: int,
    repeats: int = 1,
    seed: int = 0,
    val_share: float = VAL_SHARE,
) -> Divisions:
    """Folds that share no patient, classes balanced, drawn ``repeats`` times.

    With the seed 0 the asked parts are those of ``spt evaluate``.
    """
    if folds < 2 or repeats < 1:
        raise InputError("A comparison needs 2 folds or more, and 1 repeat or more.")
    y, patients = cohort.class_numbers(), np.array(cohort.patients())
    labelled = np.flatnonzero(y >= 0)
    for number, name in enumerate(cohort.classes):
        found = len(np.unique(patients[y == number]))
        if found < folds:
            raise InputError(
                f"Class {name!r} has {found} patients, fewer than the {folds} folds "
                "(folds never share a patient). Ask for fewer folds, or leave the "
                "class out."
            )
    drawn = []
    for repeat in range(repeats):
        parts = patient_folds(
            y[labelled], patients[labelled].tolist(), folds, seed + repeat
        )
        drawn += [
            Division(repeat, fold, labelled[learn], _none(), labelled[asked])
            for fold, (learn, asked) in enumerate(parts)
        ]
    return _finished(cohort, DivisionKind.PATIENT, drawn, val_share, seed)


def divide_by_site(
    cohort: Cohort, *, seed: int = 0, val_share: float = VAL_SHARE
) -> Divisions:
    """Each site asked in its turn, by what was learned at all others.

    A patient with slides at several sites is asked at each of them and learned from
    only where none of its sites is asked. A site is not asked where a class would have
    no slide left to learn from; slides whose site is not known take no part.
    """
    y = cohort.class_numbers()
    sites = np.array([slide.site or "" for slide in cohort])
    patients = np.array(cohort.patients())
    usable = (y >= 0) & (sites != "")
    names = np.unique(sites[usable]).tolist()
    if len(names) < 2:
        found = f"only the site {names[0]!r}" if names else "no site"
        raise InputError(
            f"To leave one site out there must be two or more; the labels name {found}."
            " Give a column 'site', or divide by patient."
        )
    remarks = []
    unknown = int(((y >= 0) & (sites == "")).sum())
    if unknown:
        remarks.append(
            f"The site of {unknown} slides is not known: they are neither learned from "
            "nor tested."
        )
    drawn: list[Division] = []
    for name in names:
        asked = usable & (sites == name)
        learn = usable & ~asked & ~np.isin(patients, patients[asked])
        missing = np.setdiff1d(y[usable], y[learn])
        if len(missing):
            classes = _some(cohort.classes[i] for i in missing)
            remarks.append(
                f"Site {name} is not tested: without it there is no slide of class "
                f"{classes} to learn from."
            )
            continue
        drawn.append(
            Division(
                0, len(drawn), np.flatnonzero(learn), _none(), np.flatnonzero(asked)
            )
        )
    if not drawn:
        raise InputError(
            "No site can be left out: each is the only one of some class. Divide by "
            "patient."
        )
    both = _at_several_sites(patients[usable], sites[usable])
    if both:
        remarks.append(
            f"{both} patients have slides at several sites: they are never learned "
            "from where one of these sites is tested."
        )
    return _finished(cohort, DivisionKind.SITE, drawn, val_share, seed, remarks)


def divide_as_given(cohort: Cohort, *, val_share: float = VAL_SHARE) -> Divisions:
    """The labels' column ``split``: one fold. A blank split is ``train``.

    Where no slide is ``val``, a part of ``train`` is set aside.
    """
    if not any(slide.split for slide in cohort):
        raise InputError(
            "The labels have no split. Give a column 'split' with train, val and test, "
            "or divide by patient."
        )
    named = np.array([slide.split or "train" for slide in cohort])
    labelled = cohort.class_numbers() >= 0
    train, val, test = (
        np.flatnonzero(labelled & (named == part)) for part in ("train", "val", "test")
    )
    if len(test) == 0:
        raise InputError(
            "The labels have a split, and no labelled slide of it is 'test': there is "
            "nothing to ask. Name some, or divide by patient."
        )
    given = [Division(0, 0, train, val, test)]
    return _finished(cohort, DivisionKind.GIVEN, given, val_share, 0)


def divide_by_file(
    cohort: Cohort, path: str | Path, *, val_share: float = VAL_SHARE
) -> Divisions:
    """The folds of a split file, as STAMP, CLAM, HIPT or Patho-Bench write them.

    Where the file names no ``val``, a part of ``train`` is set aside.
    """
    read = read_splits(path, cohort)
    number = {slide.name: i for i, slide in enumerate(cohort)}
    labelled = cohort.class_numbers() >= 0

    def numbers(names: Iterable[str]) -> Indices:
        found = np.array(sorted(number[name] for name in names), np.int64)
        return found[labelled[found]]

    given = [
        Division(
            one.repeat,
            one.fold,
            numbers(one.train),
            numbers(one.val),
            numbers(one.test),
        )
        for one in read.splits
    ]
    for one in given:
        if len(one.train) == 0 or len(one.test) == 0:
            part = "train" if len(one.train) == 0 else "test"
            raise InputError(
                f"{Path(path).name}, {_called(one)}: no labelled slide of these "
                f"features is in {part!r}."
            )
    complete = {i for i, one in enumerate(read.splits) if one.says_val}
    is_ours = read.divided == DivisionKind.PATIENT.value
    kind = DivisionKind.PATIENT if is_ours else DivisionKind.GIVEN
    return _finished(cohort, kind, given, val_share, 0, read.remarks, complete)


def divide_as_assigned(
    cohort: Cohort,
    fold_of: Sequence[int],
    *,
    seed: int = 0,
    val_share: float = VAL_SHARE,
) -> Divisions:
    """Folds by patient that somebody keeps.

    Parameters
    ----------
    fold_of
        For each slide the fold in which it is asked; -1 for slides without a label.
    """
    asked = np.asarray(fold_of)
    if np.any((asked >= 0) != (cohort.class_numbers() >= 0)):
        raise ValueError("the slides with a label are those that have a fold")
    drawn = [
        Division(
            0,
            fold,
            np.flatnonzero((asked >= 0) & (asked != fold)),
            _none(),
            np.flatnonzero(asked == fold),
        )
        for fold in np.unique(asked[asked >= 0]).tolist()
    ]
    return _finished(cohort, DivisionKind.PATIENT, drawn, val_share, seed)


def check_divisions(cohort: Cohort, divisions: Divisions) -> None:
    """Refuse divisions in which a patient, or a site left out, is on both sides.

    Raises
    ------
    InputError
        That names the fold, the patient or site, and the parts.
    """
    patients, y = cohort.patients(), cohort.class_numbers()
    for one in divisions.folds:
        where: dict[int, str] = {}
        for part, rows in one.parts().items():
            for row in rows.tolist():
                if row in where:
                    raise InputError(
                        f"{_called(one)}: slide {cohort[row].name} is in {where[row]} "
                        f"and in {part}."
                    )
                where[row] = part
        _refuse_shared(one, where, patients)
        if divisions.kind is DivisionKind.SITE:
            sides = {
                row: "test" if part == "test" else "train"
                for row, part in where.items()
            }
            sites = [f"site:{slide.site}" for slide in cohort]
            _refuse_shared(one, sides, sites)
        missing = np.setdiff1d(y[np.concatenate([one.val, one.test])], y[one.train])
        if len(missing):
            classes = _some(cohort.classes[i] if i >= 0 else "none" for i in missing)
            raise InputError(
                f"{_called(one)}: no slide to learn from has the label {classes}, "
                "which slides of the other parts have."
            )
        if len(np.unique(y[one.train])) < 2:
            raise InputError(
                f"{_called(one)}: the slides to learn from have one class only; at "
                "least two are needed."
            )


def _refuse_shared(one: Division, where: dict[int, str], groups: Sequence[str]) -> None:
    parts: dict[str, str] = {}
    for row, part in where.items():
        before = parts.setdefault(groups[row], part)
        if before != part:
            kind, name = groups[row].split(":", 1)
            raise InputError(
                f"{_called(one)}: {kind} {name} has slides in {before} and in {part}: "
                "what is learned from some would be tested on others of the same "
                f"{kind}. Put all of them into one part."
            )


def _finished(
    cohort: Cohort,
    kind: DivisionKind,
    drawn: list[Division],
    val_share: float,
    seed: int,
    remarks: Iterable[str] = (),
    complete: Collection[int] = (),
) -> Divisions:
    """Checked, and with a part set aside to choose by where there is none.

    ``complete`` are folds to be left as they are, though nothing may choose in them.
    """
    if not 0 <= val_share < 1:
        raise InputError(f"The share to choose by is {val_share}, not 0 to below 1.")
    check_divisions(cohort, Divisions(kind, tuple(drawn)))
    y, patients = cohort.class_numbers(), np.array(cohort.patients())
    few: Counter[str] = Counter()
    folds = []
    for place, one in enumerate(drawn):
        if len(one.val) or val_share == 0 or place in complete:
            folds.append(one)
            continue
        counts = patients_of_classes(y[one.train], patients[one.train])
        scarce = [i for i, count in counts.items() if count < MIN_PATIENTS]
        if scarce:
            few.update(cohort.classes[i] for i in scarce)
            folds.append(one)
            continue
        rng = np.random.default_rng([seed, one.repeat, one.fold, 53])
        chosen = patients_to_set_aside(
            y[one.train], patients[one.train], val_share, rng
        )
        is_val = np.isin(patients[one.train], chosen)
        folds.append(
            Division(
                one.repeat, one.fold, one.train[~is_val], one.train[is_val], one.test
            )
        )
    remarks = list(remarks)
    for name, count in sorted(few.items()):
        often = "" if len(folds) == 1 else f"in {count} of {len(folds)} folds "
        remarks.append(
            f"Class {name} has {often}fewer than {MIN_PATIENTS} patients to learn "
            "from: none are set aside there, the number of epochs is fixed and C is "
            "chosen by folds within."
        )
    found = Divisions(kind, tuple(folds), tuple(remarks))
    check_divisions(cohort, found)
    return found


def _at_several_sites(patients: NDArray[np.str_], sites: NDArray[np.str_]) -> int:
    pairs = set(zip(patients.tolist(), sites.tolist(), strict=True))
    return sum(count > 1 for count in Counter(name for name, _ in pairs).values())


def _called(one: Division) -> str:
    return (
        f"Fold {one.fold} of repeat {one.repeat}" if one.repeat else f"Fold {one.fold}"
    )


def _none() -> Indices:
    return np.empty(0, np.int64)


def _some(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
