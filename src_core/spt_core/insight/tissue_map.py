"""What a slide is made of, found without a model."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.colours import KIND_COLOURS
from spt_core.tokens.tokens import TokenFacts

MOST_KINDS = 12
OUTLIER = 3.5  # robust standard deviations
PALETTE = np.array(KIND_COLOURS, np.uint8)


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of tissue by which slides of one encoder are mapped alike.

    Hand the kinds of one slide on to the next, and the same tissue keeps its number,
    name and colour.

    Attributes
    ----------
    centres : (m, d)
    spread : (m,)
        How far patches are from their centre, on average.
    kind : (m,)
        The row of the kind that a centre belongs to: merged kinds have several.
    numbers : (k,)
        By which kinds are known from slide to slide.
    names
        Given by a person, (k,); empty without one.
    rgb : (k, 3)
    """

    centres: NDArray[np.float32]
    spread: NDArray[np.float32]
    kind: NDArray[np.int64]
    numbers: NDArray[np.int64]
    names: tuple[str, ...]
    rgb: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def titles(self) -> list[str]:
        """What to call each kind: its name, or its number."""
        pairs = zip(self.names, self.numbers.tolist(), strict=True)
        return [name or f"tissue kind {number + 1}" for name, number in pairs]

    def row(self, number: int) -> int | None:
        """The row of a kind by its number; None where it is not there."""
        rows = np.flatnonzero(self.numbers == number)
        return int(rows[0]) if len(rows) else None

    def renamed(self, number: int, name: str) -> "Kinds":
        row = self.row(number)
        if row is None:
            return self
        names = list(self.names)
        names[row] = name.strip()
        return replace(self, names=tuple(names))

    def recoloured(self, number: int, rgb: tuple[int, int, int]) -> "Kinds":
        row = self.row(number)
        if row is None:
            return self
        colours = self.rgb.copy()
        colours[row] = rgb
        return replace(self, rgb=colours)

    def renumbered(self, number: int, like: "Kinds", into: int) -> "Kinds":
        """With one kind taken for another, by its number, name and colour."""
        row, theirs = self.row(number), like.row(into)
        if row is None or theirs is None:
            return self
        numbers = self.numbers.copy()
        numbers[row] = into
        rgb = (int(part) for part in like.rgb[theirs])
        taken = replace(self, numbers=numbers).renamed(into, like.names[theirs])
        return taken.recoloured(into, (*rgb,))  # type: ignore[arg-type]

    def merged(self, number: int, into: int) -> "Kinds":
        """One kind less: what was of one is of the other, centres and all."""
        gone, stays = self.row(number), self.row(into)
        if gone is None or stays is None or gone == stays:
            return self
        left = np.arange(len(self)) != gone
        place = np.cumsum(left) - 1
        place[gone] = place[stays]
        return replace(
            self,
            kind=place[self.kind],
            numbers=self.numbers[left],
            names=tuple(np.array(self.names, object)[left]),
            rgb=self.rgb[left],
        )


@dataclass(frozen=True, eq=False)
class TissueMap:
    """The kind of tissue of each patch.

    Attributes
    ----------
    xy : (n, 2)
        Level-0 (x, y) of the patches.
    labels : (n,)
        The kind of each patch: a row of ``kinds``.
    typical : (k,)
        The patch of each kind that is most like all of it.
    outlier_score : (n,)
        How far a patch is from its nearest others, in robust standard deviations.
    """

    facts: TokenFacts
    xy: NDArray[np.int64]
    labels: NDArray[np.int64]
    kinds: Kinds
    typical: NDArray[np.int64]
    outlier_score: NDArray[np.float64]

    @property
    def outliers(self) -> NDArray[np.int64]:
        """Rows of patches that are like no others, the strangest first."""
        rows = np.flatnonzero(self.outlier_score > OUTLIER)
        return rows[np.argsort(-self.outlier_score[rows], kind="stable")]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many patches each kind has, (k,)."""
        return np.bincount(self.labels, minlength=len(self.kinds))

    @property
    def shares(self) -> NDArray[np.float64]:
        """Which part of the patches each kind has, (k,)."""
        return self.counts / max(len(self.labels), 1)

    def areas_mm2(
        self, um_pixel_xy: tuple[float, float] | None
    ) -> NDArray[np.float64] | None:
        """The area of each kind, (k,); None where sizes are not known."""
        step = self.facts.l0_step_xy or self.facts.l0_patch_xy
        if um_pixel_xy is None or step is None:
            return None
        patch = step[0] * um_pixel_xy[0] * step[1] * um_pixel_xy[1] / 1e6
        return self.counts.astype(np.float64) * patch

    def renamed(self, number: int, name: str) -> "TissueMap":
        return replace(self, kinds=self.kinds.renamed(number, name))

    def recoloured(self, number: int, rgb: tuple[int, int, int]) -> "TissueMap":
        return replace(self, kinds=self.kinds.recoloured(number, rgb))

    def taken_for(self, number: int, like: Kinds, into: int) -> "TissueMap":
        """With one kind taken for one of another slide's."""
        return replace(self, kinds=self.kinds.renumbered(number, like, into))

    def merged(self, number: int, into: int) -> "TissueMap":
        """With the patches of one kind counted as another's."""
        gone, stays = self.kinds.row(number), self.kinds.row(into)
        if gone is None or stays is None or gone == stays:
            return self
        place = np.arange(len(self.kinds)) - (np.arange(len(self.kinds)) > gone)
        place[gone] = place[stays]
        return replace(
            self,
            kinds=self.kinds.merged(number, into),
            labels=place[self.labels],
            typical=np.delete(self.typical, gone),
        )
