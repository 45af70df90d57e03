"""A cell of a benchmark: one method in one fold with one seed, and its result file.

A result is one file, written whole: it is there or it is not, so that a benchmark that
was killed goes on with the cells that have none.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.plain_data import arrays_of, from_json, json_of

# What an array's name begins with.
SHARES, CONTROL = "shares", "control"
# What a share may lie beyond 0 and 1.
_ROUNDED = 1e-3
_SECONDS = ("train_seconds", "embed_seconds")
_STEPS = ("steps_before", "steps", "best_step")


@dataclass(frozen=True, order=True)
class Cell:
    """What is trained and asked.

    Attributes
    ----------
    features
        Short name of the features.
    ablation, variant
        What is changed of the method; "" in the main table.
    permuted
        Whether labels are permuted between patients, as a control.
    """

    features: str
    method: str
    repeat: int
    fold: int
    seed: int
    ablation: str = ""
    variant: str = ""
    permuted: bool = False

    def __str__(self) -> str:
        parts = [self.features, self.method, self.variant]
        parts += [f"fold {self.fold + 1}", f"repeat {self.repeat + 1}"]
        parts += [f"seed {self.seed}", "labels permuted" if self.permuted else ""]
        return ", ".join(part for part in parts if part)

    @property
    def file_name(self) -> str:
        """Of its result, without an ending; no two cells share one."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:8]
        place = f"r{self.repeat}-f{self.fold}-s{self.seed}"
        return f"{self.method}-{place}-{digest}"


@dataclass(frozen=True, eq=False)
class CellResult:
    """What a cell found, with n labelled slides, m of them asked.

    Attributes
    ----------
    asked : (m,) slide numbers
    shares
        By probe, (m, classes).
    h : (n, dim)
        Embeddings of all labelled slides.
    site_shares : (m, sites) or None
        kNN of the site, leaving out the patient.
    controls
        By probe, (permutations,): mean class accuracy with labels permuted.
    facts
        Plain data: seconds, steps, how the epoch was chosen, versions.
    """

    asked: NDArray[np.int64]
    shares: Mapping[str, NDArray[np.float64]]
    h: NDArray[np.float32]
    site_shares: NDArray[np.float64] | None = None
    controls: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def fits(
        self, asked: NDArray[np.int64], slides: int, classes: int, sites: int
    ) -> bool:
        """Whether it is of the slides that are asked, and of numbers alone."""
        count, shape = len(asked), (len(asked), classes)
        told, controls = self.site_shares, self.controls.values()
        return (
            np.array_equal(self.asked, asked)
            and self.h.ndim == 2
            and len(self.h) == slides
            and self.h.dtype.kind == "f"
            and all(_are_shares(one, shape) for one in self.shares.values())
            and all(one.ndim == 1 and one.dtype.kind == "f" for one in controls)
            and (told is None or told.shape == (count, sites))
            and (told is None or told.dtype.kind == "f")
        )


def _are_shares(found: NDArray[Any], shape: tuple[int, int]) -> bool:
    return (
        found.shape == shape
        and found.dtype.kind == "f"
        and bool((found >= -_ROUNDED).all() and (found <= 1 + _ROUNDED).all())
    )


@dataclass(frozen=True)
class CellFolder:
    """The folder of a benchmark's cells.

    Attributes
    ----------
    recipe
        A hash of all that a result depends on besides its cell.
    """

    path: Path
    recipe: str

    def result(self, cell: Cell) -> Path:
        return self.path / f"{cell.file_name}.npz"

    def run(self, cell: Cell) -> Path:
        """Where the cell's model is trained."""
        return self.path / f"{cell.file_name}.run"

    def model(self, cell: Cell) -> Path:
        """The trained model, of the cells whose model is kept."""
        return self.path / f"{cell.file_name}.safetensors"

    def failure(self, cell: Cell) -> Path:
        return self.path / f"{cell.file_name}.failed.json"

    def is_done(self, cell: Cell) -> bool:
        return self.result(cell).exists()

    def write(self, cell: Cell, result: CellResult) -> None:
        arrays: dict[str, NDArray[Any]] = {"asked": result.asked, "h": result.h}
        arrays |= {f"{SHARES}/{name}": one for name, one in result.shares.items()}
        arrays |= {f"{CONTROL}/{name}": one for name, one in result.controls.items()}
        if result.site_shares is not None:
            arrays["site_shares"] = result.site_shares
        facts = {**result.facts, "cell": asdict(cell), "recipe": self.recipe}
        arrays["facts"] = np.array(json.dumps(facts))
        with written_whole(self.result(cell)) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]
        self.failure(cell).unlink(missing_ok=True)

    def read(self, cell: Cell) -> CellResult:
        path = self.result(cell)
        try:
            arrays = arrays_of(path)
            facts = dict(from_json(str(arrays.pop("facts"))))
            recipe, of = facts.pop("recipe"), facts.pop("cell")
            asked, h = arrays.pop("asked"), arrays.pop("h")
            if of != asdict(cell):
                raise ValueError("it is another cell's")
            if not _are_numbers(facts):
                raise ValueError("its seconds or steps are no numbers")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} cannot be read ({error}). Remove it; the cell is done again."
            ) from error
        if recipe != self.recipe:
            raise InputError(
                f"{path.parent.parent} holds cells of other settings, slides or "
                "labels. Choose another --out, or give the settings of before."
            )
        return CellResult(
            asked,
            _named(arrays, SHARES),
            h,
            arrays.get("site_shares"),
            _named(arrays, CONTROL),
            facts,
        )

    def write_failure(self, cell: Cell, why: str) -> None:
        with written_whole(self.failure(cell)) as temporary:
            text = json.dumps({"cell": asdict(cell), "why": why})
            temporary.write_text(text, encoding="utf-8")

    def why_failed(self, cell: Cell) -> str | None:
        path = self.failure(cell)
        if not path.exists():
            return None
        try:
            return str(json_of(path)["why"])
        except (ValueError, KeyError, TypeError):
            return "unknown"


def _are_numbers(facts: Mapping[str, Any]) -> bool:
    """Whether those of the facts that are reckoned with are."""
    seconds = [facts[name] for name in _SECONDS]
    steps = [facts[name] for name in _STEPS if facts.get(name) is not None]
    return all(isinstance(one, int | float) for one in seconds) and all(
        isinstance(one, int) and 0 <= one < 2**53 for one in steps
    )


def _named(arrays: Mapping[str, NDArray[Any]], kind: str) -> dict[str, NDArray[Any]]:
    return {
        name.partition("/")[2]: one
        for name, one in arrays.items()
        if name.partition("/")[0] == kind
    }
