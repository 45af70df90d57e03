"""Where which tissue lies on a slide: a plan at 1/32 of the slide's size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.sample.marks import Marks, draw_marks
from spt_core.sample.noise import Floats, fractal
from spt_core.sample.stain import Site
from spt_core.sample.tissue import MINORITY, TUMOUR_SHARES, TUMOURS, TissueClass

SCALE = 32  # slide pixels per pixel of the plan and of the truth mask


@dataclass(frozen=True)
class SlideSpec:
    """All that decides a slide's pixels."""

    width: int
    height: int
    kind: str
    site: Site
    seed: int
    marks: bool = True  # folds, bubbles, pen and dust
    tumour: str = MINORITY  # how much of the tissue it is: a key of TUMOUR_SHARES


@dataclass(frozen=True)
class Layout:
    """The plan of a slide: the class of each plan pixel, and what lies on top."""

    classes: NDArray[np.uint8]
    marks: Marks
    fibre_angle: float
    looseness: float  # of the stroma, 0 dense .. 1 loose
    cellularity: float  # of the stroma

    def window(self, top: int, left: int, height: int, width: int) -> NDArray[np.uint8]:
        """Classes of a window of the plan; glass outside the slide."""
        rows, cols = self.classes.shape
        out = np.zeros((height, width), np.uint8)
        t, b = max(top, 0), min(top + height, rows)
        le, r = max(left, 0), min(left + width, cols)
        if t < b and le < r:
            out[t - top : b - top, le - left : r - left] = self.classes[t:b, le:r]
        return out

    def at(self, x: Floats, y: Floats) -> NDArray[np.uint8]:
        """Classes at slide pixels."""
        rows, cols = self.classes.shape
        r = np.floor(y / SCALE).astype(np.int64)
        c = np.floor(x / SCALE).astype(np.int64)
        inside = (r >= 0) & (r < rows) & (c >= 0) & (c < cols)
        found = self.classes[np.clip(r, 0, rows - 1), np.clip(c, 0, cols - 1)]
        return np.where(inside, found, np.uint8(0))


def plan(spec: SlideSpec) -> Layout:
    """Draw the plan of a slide."""
    rng = np.random.default_rng((spec.seed, 1))
    shape = (-(-spec.height // SCALE), -(-spec.width // SCALE))
    tissue = _tissue(shape, rng)
    classes = np.where(
        tissue, np.uint8(TissueClass.STROMA), np.uint8(TissueClass.GLASS)
    )
    _fill(classes, tissue, TUMOURS[spec.kind], TUMOUR_SHARES[spec.tumour], rng)
    marks = draw_marks(spec.width, spec.height, np.random.default_rng((spec.seed, 2)))
    return Layout(
        classes=classes,
        marks=marks if spec.marks else Marks(),
        fibre_angle=float(rng.uniform(0, np.pi)),
        looseness=float(rng.uniform(0.1, 0.9)),
        cellularity=float(rng.uniform(0.45, 1.0)),
    )


def _tissue(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.bool_]:
    """One large piece, a few smaller ones or needle cores: a third to half of all."""
    height, width = shape
    side = min(shape)
    x = np.arange(width, dtype=np.float32)[None, :] / width
    y = np.arange(height, dtype=np.float32)[:, None] / height
    rough = fractal(shape, rng, side / 4, 6, 0.55)
    style = rng.choice(["piece", "pieces", "cores"], p=[0.5, 0.3, 0.2])
    best = np.full(shape, -np.inf, np.float32)
    if style == "piece":
        size = rng.uniform(0.28, 0.40, 2)
        parts = [(0.5, 0.5, size[0], size[1], rng.uniform(-0.6, 0.6))]
    elif style == "pieces":
        parts = [
            (*(place + rng.uniform(-0.04, 0.04, 2)), *size, rng.uniform(-0.6, 0.6))
            for place in np.array([(0.27, 0.3), (0.72, 0.32), (0.45, 0.74)])
            for size in [rng.uniform(0.17, 0.23, 2)]
        ]
    else:
        turn = rng.uniform(-0.25, 0.25)
        parts = [
            (cx + rng.uniform(-0.02, 0.02), 0.5, rng.uniform(0.085, 0.11), 0.40, turn)
            for cx in (0.22, 0.5, 0.78)
        ]
    for cx, cy, a, b, turn in parts:
        c, s = np.float32(np.cos(turn)), np.float32(np.sin(turn))
        dx, dy = x - np.float32(cx), y - np.float32(cy)
        # Between an ellipse and a box: cut tissue has flat sides.
        far = np.abs((dx * c + dy * s) / np.float32(a)) ** 3
        far += np.abs((dy * c - dx * s) / np.float32(b)) ** 3
        np.maximum(best, 1 - np.cbrt(far), out=best)
    score = best + np.float32(0.11) * rough
    fraction = rng.uniform(0.34, 0.46)
    limit = np.quantile(score, 1 - fraction)
    return score > limit


def _take(
    classes: NDArray[np.uint8], free: NDArray[np.bool_], field: Floats, count: int
) -> NDArray[np.bool_]:
    """The ``count`` free pixels where ``field`` is highest."""
    chosen = np.zeros(classes.shape, bool)
    count = min(count, int(free.sum()))
    if count > 0:
        limit = np.partition(field[free], -count)[-count]
        chosen = free & (field >= limit)
    return chosen


def _fill(
    classes: NDArray[np.uint8],
    tissue: NDArray[np.bool_],
    tumour: TissueClass,
    tumour_shares: tuple[float, float],
    rng: np.random.Generator,
) -> None:
    """Give parts of the tissue to the other classes.

    Fractions are drawn without regard to the kind of tumour, widely, so that they
    say nothing about it.
    """
    shape = classes.shape
    side = min(shape)
    total = int(tissue.sum())
    deep = fractal(shape, rng, max(side / 7, 14), 4, 0.45)
    tumour_share = rng.uniform(*tumour_shares)
    rest = rng.dirichlet([3.6, 1.1, 0.5, 0.22, 0.4, 1.0]) * (1 - tumour_share)
    share = dict(
        zip(
            (
                TissueClass.STROMA,
                TissueClass.ADIPOSE,
                TissueClass.LYMPHOCYTES,
                TissueClass.BLOOD,
                TissueClass.NECROSIS,
                TissueClass.BENIGN,
            ),
            rest.tolist(),
            strict=True,
        )
    )
    inner = _take(classes, tissue, deep, int(tumour_share * total))
    classes[inner] = tumour
    features = {
        TissueClass.ADIPOSE: (max(side / 6, 16), 0.0),
        TissueClass.BENIGN: (max(side / 9, 12), 0.0),
        TissueClass.NECROSIS: (max(side / 10, 10), 0.35),
        TissueClass.LYMPHOCYTES: (max(side / 16, 7), 0.45),
        TissueClass.BLOOD: (max(side / 18, 6), 0.0),
    }
    for kind, (feature, near_tumour) in features.items():
        free = classes == TissueClass.STROMA
        field = fractal(shape, rng, feature, 3, 0.45)
        # Lymphocytes and necrosis lie near tumour, of whatever kind.
        field = field + near_tumour * np.minimum(deep, 1.5)
        part = _take(classes, free, field, int(share[kind] * total))
        classes[part] = kind
