"""Which fold each patient of a study is asked in: drawn once, then kept.

Patients that come later join the fold that has the fewest of their class. The file
holds HMACs under the study's key, no names.
"""

import json
from collections import Counter, defaultdict

import numpy as np

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.learning.cohort import Cohort
from spt_core.plain_data import json_of
from spt_core.studies.divisions import Divisions, divide_as_assigned, divide_by_patient
from spt_core.studies.study_folder import StudyFolder


def kept_divisions(
    folder: StudyFolder, cohort: Cohort, folds: int, seed: int
) -> Divisions:
    """The folds of a study for these slides; what is new is added to the file."""
    known = read_folds(folder, folds)
    if not known:
        divisions = divide_by_patient(cohort, folds=folds, seed=seed)
        patients = cohort.patients()
        known = {
            folder.hidden(patients[row]): one.fold
            for one in divisions.folds
            for row in one.test.tolist()
        }
        _write(folder, folds, known)
    kept = with_new_patients(folder, cohort, known, folds)
    if kept != known:
        _write(folder, folds, kept)
    labelled = cohort.class_numbers() >= 0
    fold_of = [
        kept[folder.hidden(patient)] if is_labelled else -1
        for patient, is_labelled in zip(cohort.patients(), labelled, strict=True)
    ]
    return divide_as_assigned(cohort, fold_of, seed=seed)


def with_new_patients(
    folder: StudyFolder, cohort: Cohort, known: dict[str, int], folds: int
) -> dict[str, int]:
    """Those known, and each new patient in the smallest fold of their class."""
    y = cohort.class_numbers()
    classes: dict[str, Counter[int]] = defaultdict(Counter)
    for patient, number in zip(cohort.patients(), y.tolist(), strict=True):
        if number >= 0:
            classes[patient][number] += 1
    main = {
        patient: min(found, key=lambda k: (-found[k], k))
        for patient, found in classes.items()
    }
    sizes = np.zeros((len(cohort.classes), folds), np.int64)
    kept = dict(known)
    for patient, number in main.items():
        hidden = folder.hidden(patient)
        if hidden in kept:
            sizes[number, kept[hidden]] += 1
    for patient in sorted(main):
        hidden, number = folder.hidden(patient), main[patient]
        if hidden in kept:
            continue
        of_class, of_all = sizes[number], sizes.sum(axis=0)
        fold = min(range(folds), key=lambda one: (of_class[one], of_all[one], one))
        kept[hidden] = fold
        sizes[number, fold] += 1
    return kept


def read_folds(folder: StudyFolder, folds: int) -> dict[str, int]:
    """The fold of each patient's HMAC; none where so many folds were never drawn."""
    try:
        plain = json_of(folder.folds)
        if plain["folds"] != folds:
            return {}
        known = dict(plain["patients"])
        wrong = [n for n in known.values() if type(n) is not int or not 0 <= n < folds]
        if wrong:
            raise ValueError(f"it states a fold {wrong[0]!r:.40} of {folds}")
        return known
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder.folds} cannot be read ({error}). Put it back, or remove it to "
            "draw the folds anew."
        ) from error


def _write(folder: StudyFolder, folds: int, known: dict[str, int]) -> None:
    with written_whole(folder.folds) as temporary:
        plain = {"folds": folds, "patients": dict(sorted(known.items()))}
        temporary.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
