"""Split files of other tools, read and written.

- STAMP's ``splits.json``: ``{"splits": [{"train_patients": [...], "test_patients":
  [...]}, ...]}``, one entry per fold. Ours has ``val_patients`` too, which are among
  those of train, and so STAMP reads it as it is.
- CLAM's and HIPT's folder of ``splits_0.csv``, ``splits_1.csv`` ...: columns train, val
  and test with slides under one another, or, as ``splits_0_bool.csv``, a row per slide
  with True and False. One of the files alone is one fold.
- Patho-Bench's table (``k=all.tsv``): ``case_id``, ``slide_id`` and a column for each
  fold (``fold_0`` ...) that says train, val or test.

Names may be slides', with or without their endings, patients', or the pseudonyms of our
reports.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import Cohort
from spt_core.plain_data import json_of
from spt_core.slides.names import slide_name
from spt_core.tokens import layout
from spt_core.tokens.labels import SPLIT_WORDS, SPLITS
from spt_core.tokens.tables import read_table

if TYPE_CHECKING:
    from spt_core.studies.divisions import Divisions

SHOWN = 5
FORMS = (
    "splits.json of STAMP, a folder of splits_0.csv, splits_1.csv ... as CLAM and HIPT "
    "write it, or a table with case_id, slide_id and fold_0, fold_1 ... of Patho-Bench"
)
_CLAM = re.compile(r"splits?_(\d+)(_bool)?\.csv", re.IGNORECASE)
_TRUE, _FALSE = {"true", "1", "1.0"}, {"false", "0", "0.0", ""}


class NamedSplit(NamedTuple):
    """One fold by the names of the cohort's slides, in order, none in two parts.

    ``says_val`` where the file says which slides choose, be it none.
    """

    repeat: int
    fold: int
    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    says_val: bool = False


@dataclass(frozen=True)
class SplitFile:
    """The folds of a file, and remarks that do not stop a run."""

    splits: tuple[NamedSplit, ...]
    remarks: tuple[str, ...] = ()
    divided: str = ""  # by what, where the file says


@dataclass(frozen=True)
class _Fold:
    """One fold as a file names it: a slide's or a patient's name and its part."""

    where: str
    named: tuple[tuple[str, str], ...]
    repeat: int | None = None
    patients_first: bool = False
    says_val: bool = False


def read_splits(path: str | Path, cohort: Cohort) -> SplitFile:
    """Read the folds of a file or folder for the slides of a cohort.

    A fold whose asked slides overlap with those before it begins a new repeat.

    Raises
    ------
    InputError
        Where the file has no form that is known, or a slide is in two parts of a fold.
    """
    path, divided = Path(path), ""
    if path.is_dir():
        folds = _of_folder(path)
    elif not path.is_file():
        raise InputError(f"There is no split file {path}.")
    elif path.suffix.lower() == ".json":
        folds, divided = _of_json(path), str(_json(path).get("divided", ""))
    else:
        folds = _of_table(path)
    slides = _SlideNames(cohort)
    found = [_in_cohort(fold, slides) for fold in folds]
    remarks = []
    if slides.unknown:
        remarks.append(
            f"{path.name} names {len(slides.unknown)} slides or patients that have no "
            f"features here; they are left out: {_some(slides.unknown)}."
        )
    if not any(split.train or split.val or split.test for split in found):
        raise InputError(
            f"{path.name} names none of the slides or patients of these features, but "
            f"{_some(slides.unknown) or 'nothing at all'}."
        )
    bare = [
        slide.name for slide in cohort if slide.label and slide.name not in slides.used
    ]
    if bare:
        remarks.append(
            f"{len(bare)} labelled slides are not in {path.name}; they take no part: "
            f"{_some(bare)}."
        )
    return SplitFile(tuple(_numbered(found, folds)), tuple(remarks), divided)


def write_splits(
    path: str | Path,
    cohort: Cohort,
    divisions: "Divisions",
    called: Mapping[str, str] | None = None,
) -> None:
    """Write divisions in STAMP's form.

    Parameters
    ----------
    called
        What each slide's name is written as: itself, or its patient for STAMP. Without
        it slides are written under their pseudonyms.
    """
    names = [
        pseudonym(slide.fingerprint()) if called is None else called[slide.name]
        for slide in cohort
    ]
    write_named_splits(path, names, divisions)


def write_named_splits(
    path: str | Path, names: Sequence[str], divisions: "Divisions"
) -> None:
    """The same by what each slide number is called."""
    splits = [
        {
            "train_patients": _listed(names, [*one.train, *one.val]),
            "val_patients": _listed(names, one.val),
            "test_patients": _listed(names, one.test),
            "repeat": one.repeat,
            "fold": one.fold,
        }
        for one in divisions.folds
    ]
    with written_whole(Path(path)) as temporary:
        plain = {"splits": splits, "divided": divisions.kind.value}
        text = json.dumps(plain, indent=1, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _listed(names: Sequence[str], rows: Iterable[int]) -> list[str]:
    return sorted({names[row] for row in rows})


class _SlideNames:
    """The slides that a name in a split file stands for."""

    def __init__(self, cohort: Cohort) -> None:
        self.slides = {slide.name: (slide.name,) for slide in cohort}
        self.patients: dict[str, tuple[str, ...]] = {}
        for slide in cohort:
            if slide.patient:
                before = self.patients.get(slide.patient, ())
                self.patients[slide.patient] = (*before, slide.name)
        self.cohort = cohort
        self.pseudonyms: dict[str, tuple[str, ...]] | None = None
        self.unknown: list[str] = []
        self.used: set[str] = set()

    def find(self, name: str, patients_first: bool) -> tuple[str, ...]:
        bare = slide_name(name.removesuffix(layout.ENDING).removesuffix(".pt"))
        ways = [self.slides.get(name), self.slides.get(bare)]
        patient = self.patients.get(name)
        found = next(
            (
                one
                for one in ([patient, *ways] if patients_first else [*ways, patient])
                if one
            ),
            (),
        )
        if not found and name.startswith("slide-"):
            found = self._of_pseudonym(name)
        if not found and name not in self.unknown:
            self.unknown.append(name)
        self.used.update(found)
        return found

    def _of_pseudonym(self, name: str) -> tuple[str, ...]:
        if self.pseudonyms is None:
            self.pseudonyms = {}
            for slide in self.cohort:
                called = pseudonym(slide.fingerprint())
                before = self.pseudonyms.get(called, ())
                self.pseudonyms[called] = (*before, slide.name)
        return self.pseudonyms.get(name, ())


def _in_cohort(fold: _Fold, slides: _SlideNames) -> NamedSplit:
    part_of: dict[str, str] = {}
    for name, part in fold.named:
        for slide in slides.find(name, fold.patients_first):
            before = part_of.setdefault(slide, part)
            if before != part:
                raise InputError(
                    f"{fold.where}: slide {slide} is in {before} and in {part}. Each "
                    "slide may be in one part of a fold only."
                )
    parts = [
        tuple(sorted(name for name, one in part_of.items() if one == part))
        for part in SPLITS
    ]
    train, val, test = parts
    return NamedSplit(0, 0, train, val, test, fold.says_val or bool(val))


def _numbered(splits: list[NamedSplit], folds: list[_Fold]) -> list[NamedSplit]:
    """With the number of their repeat and fold."""
    found: list[NamedSplit] = []
    asked: set[str] = set()
    repeat = fold = 0
    for split, read in zip(splits, folds, strict=True):
        begins = (
            asked & set(split.test) if read.repeat is None else read.repeat > repeat
        )
        if begins:
            repeat = repeat + 1 if read.repeat is None else read.repeat
            fold, asked = 0, set()
        asked |= set(split.test)
        found.append(split._replace(repeat=repeat, fold=fold))
        fold += 1
    return found


def _json(path: Path) -> Any:
    try:
        return json_of(path)
    except ValueError as error:
        raise InputError(f"{path.name} is not readable JSON: {error}.") from None


def _of_json(path: Path) -> list[_Fold]:
    plain = _json(path)
    splits = plain.get("splits") if isinstance(plain, dict) else None
    if not isinstance(splits, list) or not splits:
        raise InputError(
            f"{path.name} has no list 'splits', as STAMP writes it: "
            '{"splits": [{"train_patients": [...], "test_patients": [...]}, ...]}.'
        )
    return [_json_fold(path, number, one) for number, one in enumerate(splits)]


def _json_fold(path: Path, number: int, one: Any) -> _Fold:
    where = f"{path.name}, split {number}"
    if not isinstance(one, dict) or not {"train_patients", "test_patients"} <= set(one):
        raise InputError(f"{where} has no train_patients and test_patients.")
    names = {}
    for part in SPLITS:
        found = one.get(f"{part}_patients") or []
        if not isinstance(found, list):
            raise InputError(f"{where}: {part}_patients is not a list of names.")
        names[part] = [str(name) for name in found]
    aside = set(names["val"])
    names["train"] = [name for name in names["train"] if name not in aside]
    repeat = one.get("repeat")
    return _Fold(
        where,
        tuple((name, part) for part in SPLITS for name in names[part]),
        repeat if isinstance(repeat, int) else None,
        patients_first=True,
        says_val="val_patients" in one,
    )


def _of_folder(folder: Path) -> list[_Fold]:
    """Each numbered file of a folder; the list of names rather than that of True."""
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _CLAM.fullmatch(path.name)
        if match and (int(match[1]) not in found or not match[2]):
            found[int(match[1])] = path
    if not found:
        if (folder / "splits.json").is_file():
            return _of_json(folder / "splits.json")
        raise InputError(f"{folder} holds no split file. It may be: {FORMS}.")
    return [fold for _, path in sorted(found.items()) for fold in _of_table(path)]


def _of_table(path: Path) -> list[_Fold]:
    header, reader = read_table(path, "split file", "train,val,test")
    rows = [
        {name: (value or "").strip() for name, value in row.items() if name is not None}
        for row in reader
    ]
    folds = [name for name in header if re.fullmatch(r"fold_?\d+", name)]
    if folds and {"slide_id", "case_id"} & set(header):
        return _of_fold_columns(path, header, rows, folds)
    if not {"train", "test"} <= set(header):
        raise InputError(f"{path.name} has no form that is known. It may be: {FORMS}.")
    parts = [part for part in SPLITS if part in header]
    cells = {row.get(part, "").lower() for row in rows for part in parts}
    if cells <= _TRUE | _FALSE and cells & _TRUE and header[0] not in SPLITS:
        named = [
            (row[header[0]], part)
            for row in rows
            for part in parts
            if row.get(part, "").lower() in _TRUE
        ]
    else:
        named = [(row[part], part) for part in parts for row in rows if row.get(part)]
    return [_Fold(path.name, tuple(named))]


def _of_fold_columns(
    path: Path, header: list[str], rows: list[dict[str, str]], folds: list[str]
) -> list[_Fold]:
    """A row per slide (or case), a column per fold."""
    key = "slide_id" if "slide_id" in header else "case_id"
    found = []
    for column in sorted(folds, key=lambda name: int(re.sub(r"\D", "", name))):
        named = []
        cases: dict[str, str] = {}
        for line, row in enumerate(rows, start=2):
            word = row.get(column, "").lower()
            part = SPLIT_WORDS.get(word, word)
            if part and part not in SPLITS:
                raise InputError(
                    f"{path.name}, line {line}: {column} is {word!r}, not "
                    f"{', '.join(SPLITS)}."
                )
            if part and row.get(key):
                named.append((row[key], part))
                case = row.get("case_id", "")
                before = cases.setdefault(case, part)
                if case and before != part:
                    raise InputError(
                        f"{path.name}, {column}: patient {case} has slides in {before} "
                        f"and in {part}. Put all of them into one part."
                    )
        found.append(
            _Fold(
                f"{path.name}, {column}",
                tuple(named),
                patients_first=key == "case_id",
            )
        )
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
