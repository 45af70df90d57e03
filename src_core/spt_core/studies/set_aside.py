"""Patients of a training part that choose the epoch and C, and are not learned from."""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

# With fewer patients of a class to learn from, none are set aside.
MIN_PATIENTS = 5


def patients_to_set_aside(
    y: Indices,
    patients: NDArray[np.str_],
    share: float,
    rng: np.random.Generator,
) -> list[str]:
    """Patients to set aside: about ``share`` of each class's, one at least.

    Rare classes draw first; a patient of several classes counts for each of them, and
    no class gives more than its share, so that each keeps patients to learn from.
    """
    classes = {
        str(one): np.unique(y[patients == one]).tolist() for one in np.unique(patients)
    }
    counts = patients_of_classes(y, patients)
    wanted = {k: max(1, round(share * count)) for k, count in counts.items()}
    wanted = {k: min(count, counts[k] - 1) for k, count in wanted.items()}
    have = dict.fromkeys(counts, 0)
    chosen: list[str] = []
    for one in sorted(counts, key=lambda k: (counts[k], k)):
        members = sorted(name for name, found in classes.items() if one in found)
        for at in rng.permutation(len(members)).tolist():
            name = members[at]
            if have[one] >= wanted[one]:
                break
            if name in chosen or any(have[k] >= wanted[k] for k in classes[name]):
                continue
            chosen.append(name)
            for k in classes[name]:
                have[k] += 1
    return chosen


def patients_of_classes(y: Indices, patients: NDArray[np.str_]) -> dict[int, int]:
    """How many patients each class has."""
    return {int(k): len(np.unique(patients[y == k])) for k in np.unique(y)}
