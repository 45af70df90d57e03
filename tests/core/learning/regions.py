"""A made-up cohort in which only neighbourhood tells the class.

Every slide has 30 x 30 cells and the same number of tokens of each of six types. The
types are paired, by class, and each of nine regions of 10 x 10 cells holds one pair:
so counts say nothing, and which types share a region says all.
"""

import numpy as np

from spt_core.tokens import TokenFacts, Tokens, write_tokens

PAIRINGS = (
    ((0, 1), (2, 3), (4, 5)),
    ((0, 2), (1, 4), (3, 5)),
    ((0, 4), (1, 3), (2, 5)),
)
SIDE, REGION, DIM = 30, 10, 32


def region_slide(kind, rng, types, *, noise=0.3, shuffled=False):
    """One slide's tokens: (x, p)."""
    places = rng.permutation(9)
    of_cell = np.empty((SIDE, SIDE), int)
    for number, place in enumerate(places):
        pair = PAIRINGS[kind][number % 3]
        cells = rng.permutation(np.repeat(pair, REGION * REGION // 2))
        row, col = divmod(int(place), 3)
        of_cell[
            row * REGION : (row + 1) * REGION, col * REGION : (col + 1) * REGION
        ] = cells.reshape(REGION, REGION)
    p = np.stack(np.divmod(np.arange(SIDE * SIDE), SIDE), axis=1)
    x = types[of_cell.ravel()] + noise * rng.normal(size=(SIDE * SIDE, DIM))
    if shuffled:
        p = rng.permutation(p)
    return x.astype(np.float32), p


def write_region_cohort(folder, *, slides=210, seed=0, shuffled=False, noise=0.3):
    """Feature files and labels.csv; gives back the folder."""
    rng = np.random.default_rng(seed)
    types = rng.normal(size=(6, DIM))
    features = folder / "features"
    lines = ["slide,label"]
    for number in range(slides):
        kind = number % 3
        x, p = region_slide(kind, rng, types, noise=noise, shuffled=shuffled)
        facts = TokenFacts(
            encoder="made-up", mpp=0.5, patch_size=256, l0_patch_xy=(256, 256)
        )
        name = f"slide{number:03d}"
        write_tokens(features / f"{name}.h5", Tokens(x, p, p[:, ::-1] * 256, facts))
        lines.append(f"{name},{'abc'[kind]}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return features
