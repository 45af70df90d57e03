"""How a model grew: small snapshots of a run, to be looked at while it trains.

``RUN/growth/STEP.npz``, one file per snapshot, written whole. Numpy alone, without
names: slides are pseudonyms.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spt_core.files import written_whole
from spt_core.plain_data import arrays_of

FOLDER = "growth"
_STEP = re.compile("[0-9]{1,12}")
# At most about so many are taken in a run.
MOST = 40


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some slides as a model sees them after a step.

    Attributes
    ----------
    slides
        Their pseudonyms.
    xy : (n, 2)
        Where they lie, by the two directions in which their embeddings differ most.
    y : (n,)
        Class numbers, -1 without a label.
    held_out : (n,)
        Whether a slide is kept from training.
    attended
        The row of the slide whose attention is shown.
    p : (m, 2) grid (row, col)
    attention : (m,)
        Of its patches, in times of the average.
    """

    step: int
    slides: tuple[str, ...]
    xy: NDArray[np.float32]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    held_out: NDArray[np.bool_]
    attended: int
    p: NDArray[np.integer]
    attention: NDArray[np.float32]


def snapshot_file(run: Path, step: int) -> Path:
    return run / FOLDER / f"{step:08}.npz"


def snapshot_steps(run: str | Path) -> list[int]:
    """The steps of a run of which there are snapshots, in order."""
    names = [path.stem for path in (Path(run) / FOLDER).glob("*.npz")]
    return sorted(int(name) for name in names if _STEP.fullmatch(name))


def write_snapshot(run: Path, found: Snapshot) -> None:
    with (
        written_whole(snapshot_file(run, found.step)) as temporary,
        temporary.open("wb") as file,
    ):
        np.savez(
            file,
            slides=np.array(found.slides, np.str_),
            xy=found.xy.astype(np.float32),
            y=found.y.astype(np.int32),
            classes=np.array(found.classes, np.str_),
            held_out=found.held_out,
            attended=np.array(found.attended),
            p=found.p.astype(np.int32),
            attention=found.attention.astype(np.float16),
        )


def read_snapshot(run: str | Path, step: int) -> Snapshot | None:
    """One snapshot; None where it is gone or cannot be read."""
    try:
        stored = arrays_of(snapshot_file(Path(run), step))
        return Snapshot(
            step,
            tuple(stored["slides"].tolist()),
            stored["xy"],
            stored["y"].astype(np.int64),
            tuple(stored["classes"].tolist()),
            stored["held_out"],
            int(stored["attended"]),
            stored["p"].astype(np.int64),
            stored["attention"].astype(np.float32),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def aligned(found: Snapshot, after: Snapshot) -> Snapshot:
    """A snapshot turned so that its slides lie as near as can be to a later one's.

    Directions of embeddings have no fixed sense: without it a map would jump.
    """
    if found.slides != after.slides:
        return found
    turned = found.xy - found.xy.mean(axis=0)
    left, _, right = np.linalg.svd(turned.T @ (after.xy - after.xy.mean(axis=0)))
    return replace(found, xy=(turned @ left @ right).astype(np.float32))
