"""How a model grew: small snapshots of a run, to be looked at while it trains.

``RUN/growth/STEP.npz``, one file per snapshot, written whole. Numpy alone, without
names: slides are pseudonyms.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.files import written_whole
from spt_core.plain_data import arrays_of

FOLDER = "growth"
_STEP = re.compile("[0-9]{1,12}")
# At most about so many are taken in a run.
MOST = 40
# No slide has so many rows or columns of patches.
_FARTHEST = 2**20


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
        found = Snapshot(
            step,
            tuple(map(str, stored["slides"])),
            stored["xy"].astype(np.float32),
            _whole(stored["y"]),
            tuple(map(str, stored["classes"])),
            stored["held_out"].astype(np.bool_),
            int(stored["attended"]),
            _whole(stored["p"]),
            stored["attention"].astype(np.float32),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if _is_sound(found) else None


def _whole(numbers: NDArray[Any]) -> NDArray[np.int64]:
    return numbers.astype(np.int64, casting="same_kind")


def _is_sound(found: Snapshot) -> bool:
    """Whether its arrays go together, so that it can be drawn."""
    slides, patches = len(found.slides), found.p.size // 2
    return (
        patches > 0
        and found.xy.shape == (slides, 2)
        and found.y.shape == found.held_out.shape == (slides,)
        and found.p.shape == (patches, 2)
        and found.attention.shape == (patches,)
        and 0 <= found.attended < slides
        and bool((found.y < len(found.classes)).all())
        and bool((abs(found.p) < _FARTHEST).all())
        and bool(np.isfinite(found.xy).all() and np.isfinite(found.attention).all())
    )


def aligned(found: Snapshot, after: Snapshot) -> Snapshot:
    """A snapshot turned so that its slides lie as near as can be to a later one's.

    Directions of embeddings have no fixed sense: without it a map would jump.
    """
    if found.slides != after.slides:
        return found
    turned = found.xy - found.xy.mean(axis=0)
    left, _, right = np.linalg.svd(turned.T @ (after.xy - after.xy.mean(axis=0)))
    return replace(found, xy=(turned @ left @ right).astype(np.float32))
