"""What a slide is made of, found without a model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.tokens.tokens import TokenFacts

MOST_KINDS = 12
OUTLIER = 3.5  # robust standard deviations

# Twelve colours that stay apart for colour-blind eyes as well as twelve can.
PALETTE = np.array(
    [
        (68, 119, 170), (204, 187, 68), (170, 51, 119), (34, 136, 51),
        (238, 102, 119), (102, 204, 238), (153, 85, 27), (119, 119, 119),
        (102, 37, 160), (238, 153, 51), (0, 153, 136), (160, 190, 120),
    ],
    np.uint8,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of tissue by which slides of one encoder are mapped alike.

    Hand the kinds of one slide on to the next, and the same tissue keeps its colour.

    Attributes
    ----------
    centres : (k, d)
    colours : (k,)
        Rows of :data:`PALETTE`, each used once.
    """

    centres: NDArray[np.float32]
    colours: NDArray[np.int64]

    @property
    def rgb(self) -> NDArray[np.uint8]:
        return PALETTE[self.colours]


@dataclass(frozen=True, eq=False)
class TissueMap:
    """The kind of tissue of each patch.

    Attributes
    ----------
    xy : (n, 2)
        Level-0 (x, y) of the patches.
    labels : (n,)
        The kind of each patch: a row of ``kinds``.
    outlier_score : (n,)
        How far a patch is from its nearest others, in robust standard deviations.
    """

    facts: TokenFacts
    xy: NDArray[np.int64]
    labels: NDArray[np.int64]
    kinds: Kinds
    outlier_score: NDArray[np.float64]

    @property
    def outliers(self) -> NDArray[np.int64]:
        """Rows of patches that are like no others, the strangest first."""
        rows = np.flatnonzero(self.outlier_score > OUTLIER)
        return rows[np.argsort(-self.outlier_score[rows], kind="stable")]
